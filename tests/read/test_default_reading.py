"""The default reading: what is kept for a model, else a rule that needs no labels."""

import pytest
import torch

import embspace
from embspace.errors import EmbspaceError
from embspace.read import default_reading as rule
from embspace.read.reading import COMMON, Reading
from embspace.read.seen_rows import largest_cosine


@pytest.fixture
def fresh(tiny_gpt2, tmp_path, monkeypatch):
    """Opens the tiny model with a cache of its own."""
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path))
    return lambda: embspace.load(tiny_gpt2)


def test_what_was_measured_is_the_default_from_then_on(fresh):
    chosen = {0: Reading(), 1: Reading(source="first-mlp", unit=True, common=50), 2: Reading()}
    rule.keep_readings(fresh(), chosen, "measured here")
    model = fresh()
    assert [model.reading(layer) for layer in range(3)] == list(chosen.values())
    assert rule.kept_readings(model).how == "measured here"
    assert model.heads[1, 2].ov.read().reading == chosen[1]
    assert model.heads[1, 2].ov.read(centre=True).reading == chosen[1].but(centre=True)
    assert model.ff[1].read().reading == model.vectors(1, 0, "v").read().reading == chosen[1]
    with pytest.raises(EmbspaceError, match="needs no maps and no text"):
        rule.keep_readings(model, {0: Reading(source="mean", text=["a"])}, "so")


def test_a_damaged_file_of_readings_is_none(fresh, tmp_path):
    rule.keep_readings(fresh(), {0: Reading(unit=True)}, "so")
    (path,) = (tmp_path / "readings").iterdir()
    path.write_text(path.read_text().replace("embedding", "no such side"))
    assert fresh().reading(0) == Reading()


def test_narrow_heads_are_read_as_in_the_papers_and_wide_ones_by_unit_rows(fresh, monkeypatch):
    assert {fresh().reading(layer) for layer in range(3)} == {Reading()}
    monkeypatch.setattr(rule, "has_room", lambda model: True)
    monkeypatch.setattr(rule, "likeness", lambda model, layer, reading, ids: 0.0)
    rule.keep_readings(fresh(), {}, rule.RULE)
    usual = Reading(centre=True, unit=True, common=COMMON)
    assert fresh().reading(2) == usual
    likeness = {"embedding": 0.2, "first-mlp": 0.3}
    monkeypatch.setattr(rule, "likeness", lambda model, layer, how, ids: likeness[how.source])
    rule.keep_readings(fresh(), {}, rule.RULE)
    model = fresh()
    assert model.reading(1) == usual.but(source="first-mlp")
    assert model.reading(0) == usual  # block 0 meets the embedding
    assert model.reading(1, source="embedding") == Reading()
    assert model.reading(1, source="token", norm="folded") == usual.but(
        source="token", norm="folded"
    )


def test_likeness_is_the_mean_cosine_of_the_strongest_pairs(fresh):
    model = fresh()
    ids = torch.arange(5, 205)
    how = Reading(centre=True, unit=True)
    E = model.vocabulary.table[ids].double()
    like = torch.nn.functional.normalize(E - E.mean(0), dim=1)
    found = []
    for head in range(4):
        left, right = (m.double() for m in model.heads[1, head].ov.matrices)
        p, q = (E @ left), (E @ right)
        p, q = (torch.nn.functional.normalize(x - x.mean(0), dim=1) for x in (p, q))
        scores = (p @ q.T).fill_diagonal_(-torch.inf)
        best = scores.flatten().topk(rule.PAIRS).indices
        found += [float(like[int(n) // 200] @ like[int(n) % 200]) for n in best]
    expected = sum(found) / len(found)
    assert rule.likeness(model, 1, how, ids) == pytest.approx(expected, abs=1e-6)


def test_the_largest_cosine_of_random_directions_is_foreseen():
    generator = torch.Generator().manual_seed(0)
    for width in (8, 32, 64):
        rows = torch.randn(2, 3000, width, generator=generator)
        p, q = torch.nn.functional.normalize(rows, dim=2)
        largest = float((p @ q.T).max())
        assert largest == pytest.approx(largest_cosine(3000**2, width), abs=0.06)
    assert largest_cosine(100, 1) == 1.0
