"""A fit that goes on judges its maps where an unbroken one does, wherever it was broken off."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from embspace.live import capture as states
from embspace.maps import fit as fitting
from embspace.read.reader import load

SETTINGS: dict[str, Any] = {"positions": "all", "batch_tokens": 100}


class StopError(Exception):
    """Of the test."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """States after every batch, and maps judged early on."""
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(fitting, "CHECKS_FROM", 60)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_broken_off_while_it_judges(tiny_gpt2, corpus, tmp_path: Path, number: int, fit_as):
    model, judged = load(tiny_gpt2), []
    whole = fit_as(model, corpus, SETTINGS)
    assert len(whole.about["checks"]) >= 3

    def stop(check: Any) -> None:
        judged.append(check)
        if len(judged) == number:
            raise StopError

    options = {"state": tmp_path / "state", **SETTINGS}
    with pytest.raises(StopError):
        fit_as(model, corpus, options, on_check=stop)
    rest = fit_as(model, corpus, options, resume=True)
    assert rest.about == whole.about and rest.pairs == whole.pairs


def test_broken_off_after_it_had_seen_enough(
    tiny_gpt2, corpus, tmp_path: Path, monkeypatch, fit_as
):
    monkeypatch.setattr(fitting, "CONVERGED", 10.0)  # any gain is small beside that
    model, options = load(tiny_gpt2), {"state": tmp_path / "state", **SETTINGS}
    whole = fit_as(model, corpus, options, until_converged=True)
    assert whole.about["rows"] < fit_as(model, corpus, SETTINGS).about["rows"]
    again = fit_as(model, corpus, options, until_converged=True, resume=True)
    assert again.about == whole.about and again.pairs == whole.pairs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["while the model runs", "while rows are added"])
@pytest.mark.parametrize("products", ["float64", "float32"])
def test_an_interrupt_saves_what_was_read_and_the_rest_ends_alike(
    tiny_gpt2, corpus, tmp_path: Path, monkeypatch, number, place: str, products: str, fit_as
):
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", 1e9)
    monkeypatch.setattr(fitting, "WORTH_SAVING_S", 1e9)  # however slow this machine is
    model, state = load(tiny_gpt2), tmp_path / "state"
    options = {"state": state, "kind": "ridge", "products": products, **SETTINGS}
    whole = fit_as(model, corpus, options).save(tmp_path / "whole.maps").read_bytes()
    assert not state.exists()  # nothing is written that nobody needs

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        where: Any = (
            (fitting, "outlying") if place == "while rows are added" else (states, "padded")
        )
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(*where, _killing(getattr(*where), number, 7))
            fit_as(model, corpus, options)
    finally:
        signal.signal(number, before)
    assert state.is_file()
    rest = fit_as(model, corpus, options, resume=True).save(tmp_path / "rest.maps")
    assert rest.read_bytes() == whole


def _killing(true: Any, number: int, times: int) -> Any:
    """A function that sends this process a signal from the nth use on."""
    n = iter(range(times))

    def watched(*given: Any) -> Any:
        if next(n, None) is None:
            os.kill(os.getpid(), number)
        return true(*given)

    return watched
