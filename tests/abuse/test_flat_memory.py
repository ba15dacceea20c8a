"""The same work again and again takes no more memory than once."""

import gc
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import embspace
from embspace.live.capture import capture
from embspace.live.running import run
from embspace.maps.lens import lens
from embspace.text.passages import passages
from embspace.text.text import Text

MB = 1 << 20


def growth(work: Callable[[], Any], *, first: int, then: int) -> tuple[int, int]:
    """Bytes and Python objects that the later calls added to what the first ones took."""

    def held() -> tuple[int, int]:
        gc.collect()
        return psutil.Process().memory_info().rss, len(gc.get_objects())

    for _ in range(first):
        work()
    before = held()
    for _ in range(then):
        work()
    after = held()
    return after[0] - before[0], after[1] - before[1]


@pytest.fixture(scope="module")
def model(tiny_gpt2) -> Any:
    return embspace.load(tiny_gpt2)


def test_lens_calls(model):
    running = run(model)
    n_bytes, n_objects = growth(
        lambda: lens(model, "the cats and the dogs", "id", running=running), first=20, then=80
    )
    assert n_objects < 100 and n_bytes < 8 * MB


def test_readings_of_weights(model):
    def read() -> None:
        model.heads[1, 2].vo.top_pairs(5)
        model.ff[2].values[3].top_tokens(5).to_json()

    n_bytes, n_objects = growth(read, first=15, then=40)
    assert n_objects < 100 and n_bytes < 8 * MB


def test_batches_of_a_long_run(model):
    """What a batch yields is let go before the next one comes."""
    corpus = Text.read([f"the {chr(65 + n % 26)} cat {n} saw Paris and Rome" for n in range(500)])
    taken = passages(model, Text.read(corpus, positions="all")).passages
    sizes = []
    for n, _ in enumerate(capture(run(model), taken, batch_tokens=300, parts=("attn", "ff"))):
        if n % 5 == 0:
            gc.collect()
            sizes.append(len(gc.get_objects()))
    assert len(sizes) > 5 and max(sizes[2:]) - sizes[1] < 200


def test_models_that_are_opened_and_let_go(tiny_gpt2):
    def opened() -> None:
        run(embspace.load(tiny_gpt2), n_layers=1)

    _, n_objects = growth(opened, first=3, then=5)
    assert n_objects < 400
