"""Stitched models against models put together by hand, and the sweep over them."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AutoModelForCausalLM,
    BertConfig,
    BloomConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    MPNetConfig,
)

import embspace
from embspace.between.carrying import Carrying
from embspace.between.classifier import Classifier, read_head
from embspace.between.stitch import _halves
from embspace.between.stitched_model import Stitched, load_stitched, stitched
from embspace.errors import EmbspaceError, ModelError, TextError
from embspace.live.recorder import states_of
from embspace.live.running import run
from embspace.live.tail import Tail

IDS = torch.tensor([[5, 80, 261, 3, 9, 44], [270, 7, 7, 0, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
SMALL = {"vocab_size": 300, "hidden_size": 32, "num_attention_heads": 4}
ENCODER = SMALL | {"num_hidden_layers": 3, "intermediate_size": 40, "max_position_embeddings": 64}
FAMILIES = {
    "gpt2": (GPT2Config(vocab_size=300, n_embd=32, n_layer=3, n_head=4, n_positions=64), None),
    "bloom": (BloomConfig(vocab_size=300, hidden_size=32, n_layer=3, n_head=4), None),
    "gpt_neo": (
        GPTNeoConfig(
            vocab_size=300,
            hidden_size=32,
            num_layers=3,
            attention_types=[[["global", "local", "global"], 1]],
            num_heads=4,
            max_position_embeddings=64,
            window_size=4,
        ),
        None,
    ),
    "bert": (BertConfig(**ENCODER), "AutoModelForMaskedLM"),
    "mpnet": (MPNetConfig(**ENCODER), "AutoModelForMaskedLM"),
    "albert": (AlbertConfig(embedding_size=16, **ENCODER), "AutoModelForMaskedLM"),
}


@pytest.fixture(params=[*FAMILIES, "llama"])
def running(request, save_model, tiny_llama):
    """A live model of each kind: tensors and tuples from blocks, masks, biases, shared blocks."""
    if request.param == "llama":
        return run(embspace.load(tiny_llama))
    config, auto = FAMILIES[request.param]
    return run(embspace.load(save_model(config, *([auto] if auto else []))))


def test_a_models_own_states_go_through_its_tail_to_its_own_last_state(running):
    layers = range(running.n_layers + 1)
    with torch.no_grad():
        states = states_of(running, IDS, MASK, layers)
        for n in layers:
            found = Tail(running, n)(states[running.n_layers - n], MASK)
            assert torch.allclose(
                found[MASK.bool()], states[running.n_layers][MASK.bool()], atol=1e-5
            )
        again = states_of(running, IDS, MASK, layers)  # every block has its own forward back
    assert all(torch.equal(states[l], again[l]) for l in layers)


def test_padding_changes_no_score(tiny_gpt2, tuned):
    joined = stitched(embspace.load(tiny_gpt2), embspace.load(tuned), n_kept=1)
    with torch.no_grad():
        both, alone = joined(IDS, MASK), joined(IDS[1:, :3])
    assert torch.allclose(both[1:], alone, atol=1e-5)


def test_the_base_stitched_to_its_own_end_is_the_tuned_model(tiny_gpt2, tuned):
    base, end = embspace.load(tiny_gpt2), embspace.load(tuned)
    head = read_head(end)
    own = Classifier(run(end), 2)
    with torch.no_grad():
        own.head.weight.copy_(head.weight)
        own.head.bias.copy_(head.bias)
        expected = own(IDS, MASK)
        for n in (2, 3):  # the blocks that were trained, and one more that was not
            joined = stitched(base, end, n_kept=base.n_layers - n, n_transplanted=n)
            assert torch.allclose(joined(IDS, MASK), expected, atol=1e-4)


def other_gpt2(save_model):
    return save_model(
        GPT2Config(
            vocab_size=300,
            n_embd=20,
            n_layer=2,
            n_head=2,
            n_positions=64,
            initializer_range=0.5,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def test_two_models_are_joined_as_one_put_together_by_hand(save_model, tuned):
    a, b = embspace.load(other_gpt2(save_model)), embspace.load(tuned)
    first = AutoModelForCausalLM.from_pretrained(a.folder, dtype=torch.float64).eval()
    last = AutoModelForCausalLM.from_pretrained(b.folder, dtype=torch.float64).eval()
    E_A, E_B = (m.transformer.wte.weight.detach().numpy()[:300].T for m in (first, last))
    head = read_head(b)
    with torch.no_grad():
        state = first.transformer(IDS[:1], output_hidden_states=True).hidden_states[1]
        given = state @ torch.tensor(E_A @ np.linalg.pinv(E_B))
        config = GPT2Config(**last.config.to_dict() | {"n_layer": 2})
        end = GPT2LMHeadModel(config).double().eval()
        end.transformer.wpe.weight.zero_()
        for block, source in zip(end.transformer.h, last.transformer.h[1:], strict=True):
            block.load_state_dict(source.state_dict())
        kept = []
        end.transformer.ln_f.register_forward_pre_hook(lambda _, x: kept.append(x[0]))
        end.transformer(inputs_embeds=given)
        expected = (kept[0][0] @ head.weight.double().T + head.bias.double()).mean(0)
        bare = Carrying(match_scale=False)
        found = stitched(a, b, n_kept=1, n_transplanted=2, carry=bare)(IDS[:1])[0]
    assert found.double().numpy() == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-4)


def times_ten(model) -> None:
    """The same function on a stream ten times as long: all that writes is scaled."""
    writes = [model.transformer.wte.weight, model.transformer.wpe.weight]
    for block in model.transformer.h:
        writes += [*block.attn.c_proj.parameters(), *block.mlp.c_proj.parameters()]
    for tensor in writes:
        tensor *= 10


@pytest.fixture
def longer(tuned, tmp_path, altered):
    """The fine-tuned model with a stream ten times as long and a head that reads a tenth of it."""
    folder = altered(tuned, times_ten)
    tensors = load_file(folder / "model.safetensors") | {}
    own = load_file(tuned / "model.safetensors")
    tensors["classifier.weight"] = own["classifier.weight"] / 10
    tensors["classifier.bias"] = own["classifier.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf8"))
    config["layer_norm_epsilon"] = config["layer_norm_epsilon"] * 100
    (folder / "config.json").write_text(json.dumps(config), encoding="utf8")
    for name in ("classifier.json", "trained_on.json"):
        (folder / name).write_bytes((tuned / name).read_bytes())
    return folder


@pytest.mark.parametrize(
    "carry", [Carrying(), Carrying(final_norm=True), Carrying(positions=True)], ids=str
)
def test_the_scale_of_the_stream_that_is_stitched_into_does_not_matter(
    save_model, tuned, longer, carry
):
    a = embspace.load(other_gpt2(save_model))
    short, long = embspace.load(tuned), embspace.load(longer)
    for kept in (0, 2):
        with torch.no_grad():
            one, other = (
                stitched(a, b, n_kept=kept, carry=carry)(IDS, MASK) for b in (short, long)
            )
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)
    bare = Carrying(match_scale=False)
    with torch.no_grad():
        one, other = (stitched(a, b, n_kept=2, carry=bare)(IDS, MASK) for b in (short, long))
    assert not torch.allclose(one, other, rtol=1e-2, atol=1e-5)


def test_the_norm_and_positions_of_the_papers_code_are_put_where_it_puts_them(save_model, tuned):
    a, b = embspace.load(other_gpt2(save_model)), embspace.load(tuned)
    first = AutoModelForCausalLM.from_pretrained(a.folder, dtype=torch.float32).eval()
    last = AutoModelForCausalLM.from_pretrained(b.folder, dtype=torch.float32).eval()
    carry = Carrying(match_scale=False, final_norm=True, positions=True)
    joined = stitched(a, b, n_kept=1, n_transplanted=2, carry=carry)
    with torch.no_grad():
        state = first.transformer(IDS[:1], output_hidden_states=True).hidden_states[1]
        given = first.transformer.ln_f(state) @ joined.kernel
        given = given + last.transformer.wpe.weight[: IDS.shape[1]]
        head, tail = read_head(b), Tail(run(b), 2)
        expected = head.scores(tail(given, MASK[:1])[0])
        assert torch.allclose(joined(IDS[:1])[0], expected, atol=1e-5)


def test_positions_that_are_not_in_the_stream_cannot_be_added(tiny_llama, reviews, tmp_path):
    out = tmp_path / "out"
    base = embspace.load(tiny_llama)
    embspace.finetune(base, reviews, out, blocks=1, epochs=1)
    joined = stitched(base, embspace.load(out), n_kept=1, carry=Carrying(positions=True))
    with pytest.raises(ModelError, match="adds no position embeddings"):
        joined(IDS, MASK)


def test_a_sweep_scores_every_cut_and_chooses_on_one_half(save_model, tuned, reviews):
    a, b = embspace.load(other_gpt2(save_model)), embspace.load(tuned)
    found = embspace.stitch(a, b, reviews.test, seed=3)
    assert [(c.kept, c.transplanted) for c in found.cuts] == [
        (i, n) for n in (1, 2) for i in range(3)
    ]
    choosing, scoring = _halves(len(reviews.test), 3)
    assert sorted(choosing + scoring) == list(range(len(reviews.test)))
    for cut in found.cuts:
        joined = stitched(a, b, n_kept=cut.kept, n_transplanted=cut.transplanted)
        predicted = joined.classify(reviews.test.texts)
        truth = [reviews.test.names[label] for label in reviews.test.labels]
        right = [p == t for p, t in zip(predicted, truth, strict=True)]
        assert cut.accuracy.right == sum(right)
        assert cut.choosing.right == sum(right[i] for i in choosing)
        assert cut.scoring.right == sum(right[i] for i in scoring)
        assert cut.turned is not None and cut.shuffled is not None
    assert found.best.choosing.right == max(cut.choosing.right for cut in found.cuts)
    assert found.own.n == len(reviews.test) and found.chance == 0.5
    assert found.to_json() == embspace.stitch(a, b, reviews.test, seed=3).to_json()


def test_cuts_can_be_chosen_and_controls_left_out(tiny_gpt2, tuned, reviews):
    a, b = embspace.load(tiny_gpt2), embspace.load(tuned)
    found = embspace.stitch(a, b, reviews.test, keep=[1], transplant=[0, 2], controls=False)
    assert [(c.kept, c.transplanted) for c in found.cuts] == [(1, 0), (1, 2)]
    assert found.cuts[1].accuracy == found.own  # the base's own state, through the identity
    assert all(cut.turned is None and cut.shuffled is None for cut in found.cuts)
    row = found.rows()[0]
    assert row["turned"] is None and row["kept"] == 1
    text = str(found)
    assert "B alone" in text and "other half" in text
    json.loads(found.to_json())


def test_texts_that_the_classifier_was_trained_on_are_left_out(tiny_gpt2, tuned, reviews):
    a, b = embspace.load(tiny_gpt2), embspace.load(tuned)
    from dataclasses import replace

    mixed = replace(
        reviews.test,
        texts=reviews.test.texts + reviews.train.texts[:5],
        labels=reviews.test.labels + reviews.train.labels[:5],
    )
    found = embspace.stitch(a, b, mixed, keep=[1], transplant=[2], controls=False)
    assert found.own.n == len(reviews.test)
    assert any(note.startswith("5 texts") for note in found.notes)
    with pytest.raises(TextError, match="fewer than two"):
        embspace.stitch(a, b, reviews.train)


def test_a_saved_stitched_model_is_the_same_and_knows_its_halves(save_model, tuned, tmp_path):
    a, b = embspace.load(other_gpt2(save_model)), embspace.load(tuned)
    joined = stitched(a, b, n_kept=1, carry=Carrying(final_norm=True))
    joined.save(tmp_path / "joined")
    again = load_stitched(tmp_path / "joined")
    with torch.no_grad():
        assert torch.equal(joined(IDS, MASK), again(IDS, MASK))
    with pytest.raises(EmbspaceError, match="is there already"):
        joined.save(tmp_path / "joined")
    record = json.loads((tmp_path / "joined/stitched.json").read_text(encoding="utf8"))
    record["a"]["model_hash"] = "0" * 16
    (tmp_path / "joined/stitched.json").write_text(json.dumps(record), encoding="utf8")
    with pytest.raises(ModelError, match="other weights"):
        load_stitched(tmp_path / "joined")


def test_what_is_no_stitched_model_is_refused(tuned, tmp_path):
    for folder in (tuned, tmp_path):
        with pytest.raises(ModelError):
            load_stitched(folder)


def test_b_must_be_a_classifier_and_the_numbers_must_exist(tiny_gpt2, tuned, reviews):
    a, b = embspace.load(tiny_gpt2), embspace.load(tuned)
    with pytest.raises(ModelError, match="embspace finetune"):
        embspace.stitch(b, a, reviews.test)
    for how, said in (({"keep": [4]}, "kept blocks 4"), ({"transplant": [4]}, "blocks 4")):
        with pytest.raises(EmbspaceError, match=said):
            embspace.stitch(a, b, reviews.test, **how)
    with pytest.raises(EmbspaceError, match=r"embspace\.load"):
        embspace.stitch("gpt2", b, reviews.test)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="kernel is"):
        Stitched(run(a), run(b), torch.eye(3), n_kept=1, n_transplanted=1)


def test_a_fine_tuned_a_is_named_as_one(tuned, reviews):
    b = embspace.load(tuned)
    found = embspace.stitch(b, b, reviews.test, keep=[3], transplant=[0], controls=False)
    assert any("fine-tuned itself" in note for note in found.notes)
    assert found.cuts[0].accuracy == found.own


def test_a_figure_is_drawn(tiny_gpt2, tuned, reviews, tmp_path):
    from embspace.show import plot

    a, b = embspace.load(tiny_gpt2), embspace.load(tuned)
    found = embspace.stitch(a, b, reviews.test, transplant=[2], controls=False)
    plot(found, tmp_path / "x.svg")
    assert "blocks kept" in (tmp_path / "x.svg").read_text(encoding="utf8")
