"""Every example runs on the bundled sample and prints something."""

import runpy
from pathlib import Path

import pytest

from embspace.weights.aliases import DEFAULT_SAMPLE, bundled

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path, capsys, tmp_path, monkeypatch):
    if bundled(DEFAULT_SAMPLE) is None:
        pytest.skip(f"the sample {DEFAULT_SAMPLE} is not bundled yet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 3


def test_there_are_examples():
    assert EXAMPLES
