"""What moved is found, named and read; what a group says is told from chance."""

import json
import shutil
from pathlib import Path

import embspace_data
import pytest
import torch
from safetensors.torch import load_file, save_file

import embspace
from embspace.between.task_words import TaskWords, distinct, read_words
from embspace.errors import EmbspaceError, ModelError, TextError


@pytest.fixture
def planted(tmp_path: Path):
    """`planted(change)`: the bundled GPT-2 with `change(tensors)` done to its weights."""

    def plant(change) -> Path:
        folder = tmp_path / "planted"
        shutil.copytree(embspace_data.path("sample-gpt2"), folder)
        tensors = {n: t.float() for n, t in load_file(folder / "model.safetensors").items()}
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return plant


def ids_of(model, words: list[str]) -> list[int]:
    return [i for word in words for i in model.vocabulary.token_ids(f" {word}")]


@pytest.fixture(scope="module")
def base():
    return embspace.load("sample-gpt2")


def test_one_changed_row_is_found_and_read(base, planted):
    ids = ids_of(base, ["good", "bad"])
    good, bad = base.vocabulary.table[ids].float()

    def change(tensors):  # neuron 7 of layer 2: a row of c_proj, a column of c_fc
        tensors["transformer.h.2.mlp.c_proj.weight"][7] += good - bad

    found = embspace.diff(base, embspace.load(planted(change)), groups=["K", "V"], turns=0)
    moved = [c for c in found.layers if c.n_moved]
    assert [(c.group, c.layer, c.n_moved) for c in moved] == [("V", 2, 1)]
    (row,) = moved[0].rows
    assert row.where == "neuron 7" and row.norm == pytest.approx(
        float((good - bad).norm()), rel=1e-5
    )
    own = float(base.feed_forward(2).values[7].norm())
    assert row.share == pytest.approx(row.norm / own, rel=1e-5)
    scores = base.vocabulary.table.double() @ (good - bad).double()
    labels = base.vocabulary.labels
    assert row.up == tuple(labels[i] for i in scores.topk(8).indices.tolist())
    assert row.down == tuple(labels[i] for i in (-scores).topk(8).indices.tolist())
    assert found.words["K"] is None and "Nothing moved in K" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("group", "slab", "row"), [("W_Q", 0, 41), ("W_K", 1, 3), ("W_V", 2, 159), ("W_O", None, 81)]
)
def test_attention_rows_are_named_by_head_and_column(base, planted, group, slab, row):
    def change(tensors):
        if slab is None:
            tensors["transformer.h.1.attn.c_proj.weight"][row] += 1.0
        else:
            tensors["transformer.h.1.attn.c_attn.weight"][:, slab * base.d + row] += 1.0

    groups = ["W_Q", "W_K", "W_V", "W_O"]
    found = embspace.diff(base, embspace.load(planted(change)), groups=groups, turns=0)
    ((moved,),) = [c.rows for c in found.layers if c.n_moved]
    part = "row" if group == "W_O" else "column"
    assert moved.where == f"head {row // base.d_head} {part} {row % base.d_head}"
    assert [c.group for c in found.layers if c.n_moved] == [group]


def test_planted_words_are_found_and_random_changes_are_not(base, planted):
    words, _ = read_words(None)
    table = base.vocabulary.table.double()
    wanted = torch.zeros(len(table), dtype=torch.float64)
    wanted[TaskWords(base.vocabulary, words, name="ours").ids] = 1.0
    # the direction whose scores are nearest to 1 at the words and 0 elsewhere
    sentiment = base.vocabulary.back((table.T @ (wanted - wanted.mean()))[:, None], "pinv")
    sentiment = 10 * sentiment[:, 0].float() / sentiment.norm()
    noise = torch.randn(20, base.d, generator=torch.Generator().manual_seed(0))

    def change(tensors):
        tensors["transformer.h.3.mlp.c_proj.weight"][:20] += noise  # V
        tensors["transformer.h.3.mlp.c_fc.weight"][:, :20] += (100 * sentiment + 0.1 * noise).T  # K

    found = embspace.diff(base, embspace.load(planted(change)), groups=["K", "V"], turns=20)
    keys, values = found.words["K"], found.words["V"]
    assert keys is not None and values is not None
    assert keys.p == 1 / 10_001 and keys.p_turned == 1 / 21
    assert values.p > 0.01 and values.p_turned > 1 / 21
    assert keys.share > 2 * keys.chance


@pytest.mark.parametrize("kept", [True, False])
def test_a_classifier_is_read_by_what_training_did_to_it(base, planted, kept):
    """A random start that hides a small change: subtracted where it is kept, else said."""
    words = {"positive": [" good", " great"], "negative": [" bad", " awful"]}
    table = base.vocabulary.table.float()
    ids = {label: ids_of(base, [w.strip() for w in these]) for label, these in words.items()}
    wanted = torch.zeros(len(table), 1, dtype=torch.float64)
    wanted[ids["positive"]], wanted[ids["negative"]] = 1.0, -1.0
    sentiment = base.vocabulary.back(table.double().T @ wanted, "pinv")[:, 0].float()
    sentiment /= sentiment.norm()
    start = torch.randn(2, base.d, generator=torch.Generator().manual_seed(0))
    learned = 0.1 * torch.stack([-sentiment, sentiment])

    def change(tensors):
        tensors["classifier.weight"] = start + learned
        tensors["classifier.bias"] = torch.zeros(2)

    folder = planted(change)
    record = {"labels": ["negative", "positive"], "blocks_trained": 0}
    (folder / "classifier.json").write_text(json.dumps(record), encoding="utf8")
    if kept:
        save_file({"classifier.weight": start}, folder / "classifier_start.safetensors")
    found = embspace.diff(base, embspace.load(folder), groups=["V"], turns=0)
    negative, positive = found.classifier
    expected = {base.vocabulary.labels[i] for i in ids["positive"]}
    assert (expected <= set(positive.up[:4])) == kept
    assert (expected <= set(negative.down[:4])) == kept
    assert (positive.norm == pytest.approx(0.1, rel=1e-4)) == kept
    assert any("how its classifier started" in note for note in found.notes) != kept


def test_the_chance_share_is_that_of_random_tokens(base):
    words, _ = read_words(None)
    task = TaskWords(base.vocabulary, words, name="ours")
    vectors = torch.randn(10, base.d, generator=torch.Generator().manual_seed(1))
    found = task.score(vectors, k=50)
    members = task.candidates.nonzero()[:, 0]
    scores = vectors @ base.vocabulary.table[members].float().T
    ends = [members[scores.topk(50, largest=side).indices] for side in (True, False)]
    hits = torch.isin(torch.stack(ends), task.ids).double().mean()
    assert found.share == pytest.approx(float(hits), abs=1e-9)
    assert found.chance == pytest.approx(len(task.ids) / len(members), rel=0.5)
    assert 0 < found.p <= 1 and found.base is None and found.p_turned is None


def test_draws_hold_different_numbers_each_as_often_as_any_other():
    generator = torch.Generator().manual_seed(0)
    for n, m in ((3, 50), (9, 12), (1, 1), (12, 12)):
        found = distinct(n, m, 4000, generator)
        assert found.shape == (4000, n)
        assert (found.sort(1).values.diff(dim=1) > 0).all()
        counts = found.flatten().bincount(minlength=m) / 4000
        assert counts.numpy() == pytest.approx(n / m, abs=0.05)


def test_turned_vectors_keep_the_geometry_of_their_scores(base):
    words, _ = read_words(None)
    task = TaskWords(base.vocabulary, words, name="ours")
    forth, back = task._whitening
    q, _ = torch.linalg.qr(torch.randn(base.d, base.d).double())
    x = torch.randn(4, base.d).double()
    rows = task._rows.double() - task._rows.double().mean(0)
    for vectors in (x, x @ forth @ q @ back):
        scores = vectors @ rows.T
        assert torch.allclose(scores @ scores.T, (x @ rows.T) @ (x @ rows.T).T, rtol=1e-4)


def test_the_classifier_is_read_by_label(base, tuned, tiny_gpt2, tmp_path):
    model, end = embspace.load(tiny_gpt2), embspace.load(tuned)
    words = tmp_path / "words.txt"
    mask = model.vocabulary.mask("words").tolist()
    known = [t.strip() for t, keep in zip(model.vocabulary.texts, mask, strict=True) if keep]
    words.write_text("# a remark\n" + "\n".join(known[:6]), encoding="utf8")
    found = embspace.diff(model, end, words=words, turns=2)
    assert [row.where for row in found.classifier] == ["negative", "positive"]
    head = load_file(tuned / "model.safetensors")["classifier.weight"]
    scores = model.vocabulary.table.float() @ (head[1] - head[0])
    labels = model.vocabulary.labels
    assert found.classifier[1].up[0] == labels[int(scores.argmax())]
    assert found.classifier[0].up == found.classifier[1].down
    assert {c.layer for c in found.layers if c.n_moved} == {1, 2}
    assert "classifier" in found.words
    assert "p turned" in str(found) and json.loads(found.to_json())["word_list"]["tokens"] >= 1
    assert {"group", "layer", "where", "up"} <= set(found.rows()[0])
    again = embspace.diff(model, end, words=words, turns=2)
    assert again.to_json() == found.to_json()


def test_the_same_weights_show_that_nothing_moved(base):
    found = embspace.diff(base, embspace.load("sample-gpt2"), turns=0)
    assert all(not c.n_moved for c in found.layers) and not any(found.words.values())
    assert any("the weights are the same" in note for note in found.notes)


def test_another_base_than_the_stated_one_is_refused(tiny_gpt2, tuned, altered):
    other = altered(tiny_gpt2, lambda model: model.transformer.h[0].mlp.c_fc.weight.add_(1.0))
    with pytest.raises(ModelError, match="fine-tuned from other weights"):
        embspace.diff(embspace.load(other), embspace.load(tuned))


def test_shapes_that_differ_are_named(base):
    with pytest.raises(ModelError, match="its d is"):
        embspace.diff(base, embspace.load("sample-gpt2-b"))
    with pytest.raises(EmbspaceError, match=r"embspace\.load"):
        embspace.diff("gpt2", base)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rows": 0}, "at least 1"),
        ({"turns": -1}, "at least 0"),
        ({"groups": ["W_X"]}, "unknown group"),
        ({"seed": -1}, "seed"),
    ],
    ids=str,
)
def test_wrong_numbers_are_refused(base, how, said):
    with pytest.raises(EmbspaceError, match=said):
        embspace.diff(base, base, **how)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "holds no words"), (b"\xff\xfe", "cannot be read"), (b"qqq\nzzzq\n", "no word of")],
)
def test_lists_that_say_nothing_are_refused(base, tmp_path, content, said):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(TextError, match=said):
        embspace.diff(base, base, words=path)


def test_our_own_list_is_left_out_where_no_token_is_on_it(tiny_llama, altered):
    base = embspace.load(tiny_llama)
    tuned = altered(tiny_llama, lambda model: model.model.layers[1].mlp.up_proj.weight.add_(0.1))
    found = embspace.diff(base, embspace.load(tuned))
    assert not any(found.words.values()) and found.notes[-2].startswith("No scores: no word of")
    assert {c.group for c in found.layers if c.n_moved} == {"K_up"}


def test_our_own_list_has_words_of_both_kinds_once():
    words, name = read_words(None)
    assert name == "sentiment" and len(set(words)) == len(words)
    assert {"good", "awful"} <= set(words)
