"""Jobs side by side: their order, their errors, their threads; and circuits as one by one."""

import threading
import time

import pytest
import torch

import embspace
from embspace.errors import EmbspaceError
from embspace.read import reader
from embspace.read.cancel import GivenUpError, stop_if_given_up, works_until
from embspace.read.factors import Factor
from embspace.read.pairs import top_pairs
from embspace.read.parallel import circuits_at_once, in_order


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_results_come_in_the_order_of_the_jobs(at_once):
    def slow_at_first(n):
        time.sleep(0.02 if n % 3 == 0 else 0)
        return n

    jobs = [lambda n=n: slow_at_first(n) for n in range(12)]
    assert list(in_order(jobs, at_once)) == list(range(12))
    assert list(in_order([], at_once)) == []


def test_jobs_run_side_by_side_but_no_more_of_them_than_asked():
    running, most, lock = 0, 0, threading.Lock()

    def job():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    list(in_order([job] * 20, 3))
    assert most == 3


def test_threads_of_torch_are_shared_out_and_given_back():
    before = torch.get_num_threads()
    seen = list(in_order([torch.get_num_threads] * 6, 2))
    assert seen[1:] == [max(1, before // 2)] * 5
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("bad", [0, 1, 4])
def test_an_error_comes_where_its_result_would(bad):
    def job(n):
        if n == bad:
            raise EmbspaceError("no")
        return n

    found = []
    with pytest.raises(EmbspaceError, match="no"):
        for result in in_order([lambda n=n: job(n) for n in range(6)], 2):
            found.append(result)
    assert found == list(range(bad))


def test_jobs_that_nobody_waits_for_are_not_begun():
    begun = []
    jobs = in_order([lambda n=n: begun.append(n) for n in range(100)], 2)
    for _ in range(3):
        next(jobs)
    jobs.close()
    assert len(begun) < 10


def test_jobs_that_have_begun_are_told_to_stop():
    begun, stopped = threading.Event(), []

    def endless():
        begun.set()
        try:
            while True:
                stop_if_given_up()
                time.sleep(0.001)
        except GivenUpError:
            stopped.append(True)
            raise

    jobs = in_order([int, int, endless, endless], 2)
    assert [next(jobs), next(jobs)] == [0, 0]
    assert begun.wait(60)
    jobs.close()
    assert stopped
    stop_if_given_up()  # of this thread nothing was given up


def test_a_search_that_was_given_up_ends():
    given_up, ended = threading.Event(), []
    side = Factor(torch.randn(500, 4), torch.eye(4))

    def search():
        works_until(given_up)
        top_pairs(side, side, 3)
        given_up.set()
        with pytest.raises(GivenUpError):
            top_pairs(side, side, 3)
        ended.append(True)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert ended


def test_circuits_side_by_side_are_what_they_are_one_by_one(monkeypatch):
    model = embspace.load("sample-gpt2-b")
    found = {}
    for at_once in (1, 4):
        monkeypatch.setattr(reader, "circuits_at_once", lambda *_, n=at_once: n)
        options = {"layers": [0, 2], "filters": ["ascii"], "exclude_same": True, "k": 7}
        found[at_once] = [result.to_dict() for result in model.survey(**options)]
    assert len(found[1]) == 2 * model.n_heads * 2
    assert found[1] == found[4]


def test_large_circuits_have_all_threads_to_themselves(monkeypatch):
    model = embspace.load("sample-gpt2-b")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert circuits_at_once(model) == 4
    assert circuits_at_once(model, rows=1 << 23) == 1
    monkeypatch.setattr("embspace.read.parallel.free_memory", lambda device: 0)
    assert circuits_at_once(model) == 1
