"""A fit that goes on judges its maps where an unbroken one does, wherever it was broken off."""

from pathlib import Path
from typing import Any

import pytest

from embspace.mapping import fitting
from embspace.mapping.fitting import fit
from embspace.models.load import load

SETTINGS: dict[str, Any] = {"positions": "all", "batch_tokens": 100}


class StopError(Exception):
    """Of the test."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """States after every batch, and maps judged early on."""
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(fitting, "CHECKS_FROM", 60)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_broken_off_while_it_judges(tiny_gpt2, corpus, tmp_path: Path, number: int):
    model, judged = load(tiny_gpt2), []
    whole = fit(model, corpus, **SETTINGS)
    assert len(whole.about["checks"]) >= 3

    def stop(check: Any) -> None:
        judged.append(check)
        if len(judged) == number:
            raise StopError

    options = {"state": tmp_path / "state", **SETTINGS}
    with pytest.raises(StopError):
        fit(model, corpus, on_check=stop, **options)
    rest = fit(model, corpus, resume=True, **options)
    assert rest.about == whole.about and rest.pairs == whole.pairs


def test_broken_off_after_it_had_seen_enough(tiny_gpt2, corpus, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fitting, "CONVERGED", 10.0)  # any gain is small beside that
    model, options = load(tiny_gpt2), {"state": tmp_path / "state", **SETTINGS}
    whole = fit(model, corpus, until_converged=True, **options)
    assert whole.about["rows"] < fit(model, corpus, **SETTINGS).about["rows"]
    again = fit(model, corpus, until_converged=True, resume=True, **options)
    assert again.about == whole.about and again.pairs == whole.pairs
