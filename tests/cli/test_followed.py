"""How fast long work goes and how long its rest takes, in plain lines where no bar can be."""

import time

import pytest
from embspace_cli import followed
from embspace_cli.followed import Beat, Followed, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_is_that_of_the_whole_work_through_all_its_parts():
    clock = Clock()
    pace = Pace(clock)
    pace.note("score", 100, 1000)
    clock.now += 10
    pace.note("score", 200, 1000)
    assert (pace.rate, pace.left) == (10.0, 80.0)
    pace.note("fit", 200, 1000)  # a part begins: it has not just read 200 at once
    clock.now += 10
    pace.note("fit", 300, 1000)
    assert (pace.rate, pace.left) == (10.0, 70.0)


def test_what_an_earlier_run_did_makes_this_one_no_faster():
    clock = Clock()
    pace = Pace(clock)
    pace.note("fit", 900_000, 1_000_000)
    assert pace.left is None
    clock.now += 10
    pace.note("fit", 901_000, 1_000_000)
    assert pace.left == pytest.approx(990)
    assert pace.line() == "tokens read: 901,000 of 1,000,000 (90%), 100 a second, 16 min left"


def test_new_work_is_timed_anew():
    clock = Clock()
    pace = Pace(clock)
    pace.note("fit", 500, 1000)
    clock.now += 1000
    assert pace.note("submodules", 0, 50) and pace.rate is None
    clock.now += 1
    assert not pace.note("submodules", 10, 50) and pace.left == pytest.approx(4)


def test_a_pipe_gets_plain_lines_from_the_start_on(capsys, monkeypatch):
    monkeypatch.setattr(followed, "FIRST_S", 0.01)
    monkeypatch.setattr(followed, "EVERY_S", 0.01)
    said = ""
    with Followed() as bar:
        while "preparing" not in said:
            said += capsys.readouterr().err
        bar("fit", 1, 10)
        while "tokens read: 1 of 10" not in said:
            said += capsys.readouterr().err
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == "" and "\x1b" not in said


def test_a_pipe_is_told_now_and_then_what_is_being_opened(run, tiny_gpt2, monkeypatch):
    import embspace

    monkeypatch.setattr(followed, "EVERY_S", 0.02)
    load = embspace.load

    def slowly(*model, **how):
        time.sleep(0.3)
        return load(*model, **how)

    monkeypatch.setattr(embspace, "load", slowly, raising=False)
    found = run("heads", tiny_gpt2, "0.0")
    assert found.exit_code == 0 and f"opening {tiny_gpt2} …" in found.stderr


def test_short_work_says_nothing(capsys):
    with Beat(lambda: "never"):
        pass
    assert capsys.readouterr().err == ""
