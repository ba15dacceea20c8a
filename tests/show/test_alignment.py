"""An alignment is shown with its counts, its notes and both models' provenance."""

import itertools

import pytest
import torch
from rich.cells import cell_len

import embspace
from embspace.between.alignment import align
from embspace.show import as_text
from embspace.show.topics.alignment import centred


@pytest.fixture(scope="module")
def result():
    return align(embspace.load("sample-bert-a"), embspace.load("sample-bert-b"), groups=["V", "K"])


def test_the_summary_has_a_line_a_group(result):
    text = as_text(result, 120)
    found = result.groups["V"].vocabulary
    line = next(line for line in text.split("\n") if line.startswith("V "))
    assert f"{found.n_diagonal} of 6" in line and f"{found.p:.2g}" in line
    assert "one vocabulary" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(result, width):
    lines = as_text(result, width).split("\n")
    assert max(map(cell_len, lines)) <= width


def test_every_map_is_there_with_its_match(result):
    text = as_text(result, 80)
    for name in ("V", "K"):
        for space in ("vocabulary", "feature"):
            assert f"{name}, {space} space" in text
    assert text.count("[") == 4 * 6


def test_models_notes_and_origins_are_named_by_model(result):
    text = as_text(result, 200)
    for side in ("a", "b"):
        assert f"sample-bert-{side}: weights {result.provenance[side]['model_hash']}" in text


def test_shared_tokens_are_counted_where_vocabularies_differ(tiny_gpt2):
    one, other = embspace.load("sample-bert-a"), embspace.load(tiny_gpt2)
    found = align(one, other, groups="V")
    shared = found.coverage["shared"]
    assert f"{shared} shared tokens" in as_text(found, 200)
    assert "No feature space" in as_text(found, 200)


def test_what_shades_show_ranks_matches_as_scores_do():
    """Means of rows and columns are part of every one-to-one match: only their sum moves."""
    score = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    score += torch.arange(4.0)[:, None] + 3 * torch.arange(4.0)
    shades = torch.tensor(centred(score.tolist()), dtype=torch.float64)
    assert torch.allclose(shades.mean(0), torch.zeros(4, dtype=torch.float64))
    assert torch.allclose(shades.mean(1), torch.zeros(4, dtype=torch.float64))
    rows = torch.arange(4)
    moved = {
        round(float((score - shades)[rows, list(order)].sum()), 9)
        for order in itertools.permutations(range(4))
    }
    assert len(moved) == 1


def test_layers_without_scores_stay_without_shades():
    found = centred(((1.0, 3.0), (None, None)))
    assert found[1] == (None, None) and None not in found[0]
