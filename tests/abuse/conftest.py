"""A copy to damage, and the command line in this process."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a model folder that may be damaged."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("heads", folder)` in this process."""
    from embspace_cli.main import cli

    return lambda *a: CliRunner().invoke(cli, [str(x) for x in a], prog_name="embspace")
