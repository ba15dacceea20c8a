"""Layers that are not there are refused before anything large is imported."""

import subprocess
import sys

import pytest

PROBE = """
import sys
from embspace_cli.main import cli
try:
    cli(sys.argv[1:], prog_name="embspace", standalone_mode=False)
except Exception as error:
    print(error, file=sys.stderr)
print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("heads", "99"),
        ("ff", "99"),
        ("score", "-l", "99"),
        ("submodules", "-l", "0-99"),
        ("exit", "--exits", "99"),
        ("lens", "the cats", "--layers", "99"),
    ],
)
def test_a_layer_beyond_the_config_is_refused_without_torch(arguments, tiny_gpt2):
    command, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-c", PROBE, command, str(tiny_gpt2), *rest],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "layer" in done.stderr and "does not exist" in done.stderr, done.stderr
    assert done.stdout.strip() in ("False", "") and "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_refused_without_torch(tiny_gpt2, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "fit", str(tiny_gpt2), "--out", str(tmp_path / "no" / "x")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "no" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout.strip() in ("False", "")
