"""What costs time is imported only when it is needed."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "numpy", "safetensors")
REPORT = f"import sys; print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"


def loaded_by(code: str) -> str:
    """The heavy packages that a fresh interpreter has imported after some code."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=True
    )
    return run.stderr.strip()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_by("import embspace; dir(embspace)") == ""


COMMANDS = ("heads", "ff", "token", "vectors", "check", "models")
LIGHT = [["--help"], ["--version"], ["models"], *([name, "-h"] for name in COMMANDS)]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_help_loads_nothing_heavy(arguments):
    code = (
        "from embspace_cli.main import cli\n"
        f"try: cli.main({arguments!r}, prog_name='embspace')\n"
        "except SystemExit as end: assert not end.code"
    )
    assert loaded_by(code) == ""


def test_the_module_is_the_command():
    run = subprocess.run(
        [sys.executable, "-m", "embspace", "--version"], capture_output=True, text=True, check=True
    )
    from embspace import __version__

    assert __version__ in run.stdout
