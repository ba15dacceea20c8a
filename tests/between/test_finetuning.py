"""Fine-tuning: what is trained, what is saved, and that an interruption changes nothing."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertConfig

import embspace
from embspace.between.classifier import read_head
from embspace.between.classifier_folder import load_state, read_marks, state_file
from embspace.errors import EmbspaceError, ModelError
from embspace.text.text import mark_of

HOW = {"blocks": 2, "epochs": 2, "batch": 8}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_only_the_last_blocks_and_the_head_are_trained(tiny_gpt2, tuned):
    before, after = weights(tiny_gpt2), weights(tuned)
    assert set(after) == {*before, "classifier.weight", "classifier.bias"}
    for name, tensor in before.items():
        trained = name.startswith(("transformer.h.1.", "transformer.h.2."))
        assert torch.equal(tensor, after[name]) != trained, name


def test_the_papers_recipe_trains_the_matrices_of_three_blocks_and_nothing_else(
    tiny_gpt2, reviews, tmp_path
):
    out = tmp_path / "out"
    found = embspace.finetune(embspace.load(tiny_gpt2), reviews, out, paper=True, batch=8)
    before, after = weights(tiny_gpt2), weights(out)
    for name, tensor in before.items():
        trained = name.startswith("transformer.h.") and tensor.ndim == 2
        assert torch.equal(tensor, after[name]) != trained, name
    assert not after["classifier.bias"].any() and after["classifier.weight"].any()
    record = json.loads((out / "classifier.json").read_text(encoding="utf8"))
    said = {"paper": True, "blocks_trained": 3, "epochs": 1, "rate": 1e-5, "weight_decay": 0.0}
    assert {name: record[name] for name in said} == said and len(found.epochs) == 1
    # three steps of Adam, the first of which moves every entry of the head by the rate
    assert float(after["classifier.weight"].abs().max()) <= 3.001e-5


@pytest.mark.parametrize("more", [{"blocks": 3}, {"rate": 1e-5}, {"epochs": 1}, {"n_train": 9}])
def test_the_papers_recipe_takes_no_other_numbers(tiny_gpt2, reviews, tmp_path, more):
    with pytest.raises(EmbspaceError, match=f"decides {next(iter(more))}"):
        embspace.finetune(embspace.load(tiny_gpt2), reviews, tmp_path / "out", paper=True, **more)


def test_three_thousand_texts_are_what_the_paper_trains_on(tmp_path):
    from embspace.between.finetune import PAPER_TEXTS
    from embspace.text.labelled import read_split

    rows = [{"text": f"text {i}", "label": i % 2} for i in range(5000)]
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
    assert len(read_split(file, n_train=PAPER_TEXTS, n_test=9).train) == 3000


def test_a_head_starts_at_zero(tiny_gpt2, reviews, tmp_path):
    out = tmp_path / "out"
    embspace.finetune(embspace.load(tiny_gpt2), reviews, out, blocks=1, epochs=1, rate=1e-9)
    head = read_head(embspace.load(out))
    assert 0 < float(head.weight.abs().max()) < 1e-7 and torch.equal(head.learned, head.weight)


def test_the_folder_says_what_it_is(tiny_gpt2, tuned, reviews):
    record = json.loads((tuned / "classifier.json").read_text(encoding="utf8"))
    assert record["labels"] == ["negative", "positive"] and record["blocks_trained"] == 2
    assert record["base_hash"] == embspace.load(tiny_gpt2).provenance["model_hash"]
    assert record["data"]["train_digest"] == reviews.train.digest
    assert record["seed"] == 0 and record["rate"] == 5e-4 and len(record["accuracy_by_epoch"]) == 1
    assert record["test"]["n"] == len(reviews.test) and record["chance"] == 0.5
    marks = read_marks(embspace.load(tuned))
    assert marks == {mark_of(t) for t in (*reviews.train.texts, *reviews.validation.texts)}
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in tuned.iterdir())
    assert not state_file(tuned).exists() and not list(tuned.parent.glob(".embspace-*"))


def test_the_test_accuracy_is_that_of_the_saved_folder(tiny_gpt2, reviews, tmp_path):
    found = embspace.finetune(embspace.load(tiny_gpt2), reviews, tmp_path / "out", **HOW)
    live = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    head, right = read_head(embspace.load(tmp_path / "out")), 0
    kept: list[torch.Tensor] = []
    live.transformer.ln_f.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
    for text, label in zip(reviews.test.texts, reviews.test.labels, strict=True):
        with torch.no_grad():
            live.transformer(torch.tensor([tokenizer(text)["input_ids"]]))
        scores = (kept[-1][0] @ head.weight.T + head.bias).mean(0)
        right += int(scores.argmax()) == label
    assert (found.test.right, found.test.n) == (right, len(reviews.test))
    assert found.kept == max(found.epochs, key=lambda e: (e.right, -e.number)).number


class Killed(BaseException):
    """An interruption that nothing catches."""


def killed_after(n: int):
    def watch(steps, total):
        for at, step in enumerate(steps):
            if at == n:
                raise Killed
            yield step

    return watch


@pytest.mark.parametrize("at", [0, 1, 3])
def test_an_interrupted_training_goes_on_to_the_same_bytes(
    tiny_gpt2, reviews, tmp_path, monkeypatch, at
):
    from embspace.between import finetune as finetuning

    monkeypatch.setattr(finetuning, "SAVE_EVERY", -1.0)  # after every step
    model = embspace.load(tiny_gpt2)
    model_with_dropout = model  # GPT-2's config has dropout, so that its randomness is tested too
    assert model_with_dropout.config.resid_pdrop > 0
    whole = embspace.finetune(model, reviews, tmp_path / "whole", **HOW)
    with pytest.raises(Killed):
        embspace.finetune(model, reviews, tmp_path / "cut", watch=killed_after(at), **HOW)
    assert not (tmp_path / "cut").exists()
    torch.manual_seed(99)  # what else drew random numbers does not matter
    resumed = embspace.finetune(model, reviews, tmp_path / "cut", resume=True, **HOW)
    assert resumed.epochs == whole.epochs and resumed.test == whole.test
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("where", ["between steps", "while an epoch is scored"])
def test_ctrl_c_keeps_every_step_that_was_made(tiny_gpt2, reviews, tmp_path, monkeypatch, where):
    from embspace.between.trainer import Trainer

    model, score, steps = embspace.load(tiny_gpt2), Trainer.score, []

    def stopped(trainer, examples):
        monkeypatch.setattr(Trainer, "score", score)
        raise KeyboardInterrupt

    def watch(each, total):
        for step in each:
            steps.append(step)
            if where == "between steps" and len(steps) == 2:
                raise KeyboardInterrupt
            yield step

    if where != "between steps":
        monkeypatch.setattr(Trainer, "score", stopped)
    whole_out, out = tmp_path / "whole", tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        embspace.finetune(model, reviews, out, watch=watch, **HOW)
    counts = load_state(state_file(out))[1]["counts"]
    a_step_each = -(-len(reviews.train) // HOW["batch"])
    assert counts["step_in_epoch"] == (2 if where == "between steps" else a_step_each)
    assert not counts["epochs"]
    resumed = embspace.finetune(model, reviews, out, resume=True, **HOW)
    assert resumed.epochs == embspace.finetune(model, reviews, whole_out, **HOW).epochs
    one, other = weights(whole_out), weights(out)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_saved_state_goes_with_one_training_only(tiny_gpt2, reviews, tmp_path):
    model, out = embspace.load(tiny_gpt2), tmp_path / "cut"
    with pytest.raises(Killed):
        embspace.finetune(model, reviews, out, watch=killed_after(0), **HOW)
    with pytest.raises(EmbspaceError, match="go on with resume=True"):
        embspace.finetune(model, reviews, out, **HOW)
    with pytest.raises(EmbspaceError, match="its seed is 0, asked for 1"):
        embspace.finetune(model, reviews, out, resume=True, seed=1, **HOW)
    state_file(out).write_bytes(b"no state")
    with pytest.raises(EmbspaceError, match="no state of a training"):
        embspace.finetune(model, reviews, out, resume=True, **HOW)


def test_a_state_of_tensors_alone_is_refused(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "x.training.safetensors")
    with pytest.raises(EmbspaceError, match="no state"):
        load_state(tmp_path / "x.training.safetensors")


def test_equal_seeds_give_equal_heads_and_others_do_not(tiny_llama, reviews, tmp_path):
    model = embspace.load(tiny_llama)
    heads = []
    for n, seed in enumerate((5, 5, 6)):
        embspace.finetune(model, reviews, tmp_path / str(n), blocks=1, epochs=1, seed=seed)
        heads.append(weights(tmp_path / str(n))["classifier.weight"])
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_a_masked_model_becomes_a_classifier_too(save_model, reviews, tmp_path):
    config = BertConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=64,
    )
    model = embspace.load(save_model(config, "AutoModelForMaskedLM"))
    out = tmp_path / "out"
    found = embspace.finetune(model, reviews, out, blocks=1, epochs=1)
    assert 0 <= found.test.right <= found.test.n
    live = AutoModelForMaskedLM.from_pretrained(out, dtype=torch.float32)
    assert live.config.num_hidden_layers == 2
    assert read_head(embspace.load(out)).weight.shape == (2, 32)


def test_no_better_epoch_ends_the_training(tiny_gpt2, reviews, tmp_path):
    how = {"blocks": 0, "epochs": 9, "rate": 1e-12, "patience": 2}
    found = embspace.finetune(embspace.load(tiny_gpt2), reviews, tmp_path / "out", **how)
    assert len(found.epochs) == 3 and found.kept == 1  # nothing moves at such a rate


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"blocks": 4}, "0 to 3"),
        ({"rate": 0.0}, "between 0 and 1"),
        ({"epochs": 0}, "at least 1"),
        ({"keep": "middle"}, "start or end"),
        ({"max_tokens": 65}, "64 tokens at most"),
    ],
    ids=str,
)
def test_wrong_numbers_are_refused_before_anything_is_written(
    tiny_gpt2, reviews, tmp_path, how, said
):
    with pytest.raises(EmbspaceError, match=said):
        embspace.finetune(embspace.load(tiny_gpt2), reviews, tmp_path / "out", **how)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_are_refused_first(tiny_gpt2, reviews, tmp_path):
    model = embspace.load(tiny_gpt2)
    for out, said in ((tmp_path, "is there already"), (tmp_path / "a/b", "no folder")):
        with pytest.raises(EmbspaceError, match=said):
            embspace.finetune(model, reviews, out)
    with pytest.raises(EmbspaceError, match="nothing to resume"):
        embspace.finetune(model, reviews, tmp_path / "new", resume=True)


def test_a_result_becomes_rows_and_a_sheet(tiny_gpt2, reviews, tmp_path):
    found = embspace.finetune(embspace.load(tiny_gpt2), reviews, tmp_path / "out", epochs=1)
    assert [row["texts"] for row in found.rows()] == ["validation", "test"]
    assert "chance 50.0%" in str(found) and "kept" in str(found)
    assert json.loads(found.to_json())["settings"]["data"]["n_train"] == len(reviews.train)


def test_the_end_of_a_long_text_can_be_what_is_read(tiny_gpt2):
    from embspace.between.classifier_texts import read_texts

    model = embspace.load(tiny_gpt2)
    text = "the start " * 9 + "the end"
    ids = tuple(model.vocabulary.tokenizer(text)["input_ids"])
    for keep, expected in (("start", ids[:10]), ("end", ids[-10:])):
        (found,), n_cut = read_texts(model, [text], max_tokens=10, keep=keep)  # type: ignore[arg-type]
        assert found.ids == expected and found.keep == tuple(range(10)) and n_cut == 1


def test_the_bundled_classifier_is_read_as_a_fresh_one_is():
    model = embspace.load("sample-gpt2-reviews")
    head = read_head(model)
    assert head.labels == ("negative", "positive") and head.weight.shape == (2, model.d)
    torch.manual_seed(31)  # the seed of its training, which drew the head first
    start = torch.nn.Linear(model.d, 2).weight.detach()
    assert head.start is not None and torch.equal(head.start, start)
    assert float(head.learned.norm() / head.weight.norm()) == pytest.approx(0.1715, abs=1e-3)
    assert 1 <= head.n_blocks <= model.n_layers


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": "positive"}, "no classifier of the kind"),
        ({"labels": ["a", "a"]}, "no classifier of the kind"),
        ({"labels": ["a", "b", "c"]}, "expected"),
        ({"kind": "a pooled head"}, "no classifier of the kind"),
        ({"blocks_trained": 9}, "how many"),
        ({"blocks_trained": True}, "how many"),
        ({}, None),
    ],
    ids=str,
)
def test_records_that_do_not_fit_are_refused(tuned, tmp_path, change, said):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(tuned, copy)
    record = json.loads((copy / "classifier.json").read_text(encoding="utf8")) | change
    (copy / "classifier.json").write_text(json.dumps(record), encoding="utf8")
    if said is None:
        read_head(embspace.load(copy))
        return
    with pytest.raises(ModelError, match=said):
        read_head(embspace.load(copy))


def test_a_model_without_a_classifier_is_named(tiny_gpt2):
    with pytest.raises(ModelError, match="embspace finetune"):
        read_head(embspace.load(tiny_gpt2))
