"""Precision, Surprisal and KL against a row-by-row computation with the live model's own head."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, BertModel

import embspace
from embspace import load
from embspace.errors import MapsError
from embspace.live.capture import capture
from embspace.live.running import run
from embspace.maps import decoding
from embspace.maps.decoding import Comparison, Head, identity, outcome_of, through
from embspace.maps.fit import fit
from embspace.maps.score import score
from embspace.text.passages import Passage
from embspace.text.text import Text, mark_of

N = 300  # tokens of the tokenizer; the rows after are padding


def configs() -> dict:
    from transformers import Gemma2Config, GPT2Config, OPTConfig, PhiConfig

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.5}
    wide = {"vocab_size": 304, "hidden_size": 32, "intermediate_size": 44, **sizes}
    return {
        "gpt2": GPT2Config(vocab_size=304, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5),
        "phi": PhiConfig(**wide, partial_rotary_factor=0.5),  # its head has a bias
        "gemma2": Gemma2Config(  # and this one a soft cap
            **wide,
            num_key_value_heads=2,
            head_dim=8,
            final_logit_softcapping=3.0,
            pad_token_id=0,
        ),
        "opt": OPTConfig(  # narrower embedding, no final norm
            vocab_size=304,
            hidden_size=32,
            ffn_dim=44,
            num_hidden_layers=2,
            num_attention_heads=4,
            word_embed_proj_dim=16,
            do_layer_norm_before=False,
            init_std=0.5,
        ),
        "bert": BertConfig(**wide),  # dense layer, activation, norm and bias
    }


@pytest.fixture(scope="module", params=["gpt2", "phi", "gemma2", "opt", "bert"])
def folder(request, save_model):
    masked = request.param == "bert"
    return save_model(
        configs()[request.param], "AutoModelForMaskedLM" if masked else "AutoModelForCausalLM"
    )


def last_block(live):
    """The live model's last block."""
    lists = [m for m in live.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2]
    return lists[0][-1]


def own_logits(live, ids: list[int], state: torch.Tensor | None = None) -> np.ndarray:
    """Logits of the live model, also where its last block puts out another state instead."""

    def replace(module, args, output):
        if state is None:
            return output
        rest = output[1:] if isinstance(output, tuple) else None
        return state[None] if rest is None else (state[None], *rest)

    handle = last_block(live).register_forward_hook(replace)
    with torch.no_grad():
        logits = live(torch.tensor([ids])).logits[0, :, :N].double().numpy()
    handle.remove()
    return logits


PASSES = [
    Passage(
        tuple((5 * line + 11 * t) % 290 + 2 for t in range(4 + line)), tuple(range(4 + line)), line
    )
    for line in range(5)
]


def test_every_number_is_the_one_of_a_loop_over_rows(folder):
    model = load(folder)
    auto = AutoModelForCausalLM if model.family.causal else AutoModelForMaskedLM
    live = auto.from_pretrained(folder, attn_implementation="eager").eval()
    comparison = Comparison(model, {"id": identity, "half": lambda x, l: x * 0.5}, [0, 1, 2])
    for states in capture(run(model), PASSES, batch_tokens=1):  # a pass a batch
        comparison.add(states)
        one = PASSES[int(states.lines[0])]
        final = own_logits(live, list(one.ids))
        for l in range(3):
            for name, factor in (("id", 1.0), ("half", 0.5)):
                logits = own_logits(live, list(one.ids), states.layers[l] * factor)
                found = comparison._found[name, l][-1]
                for row in range(len(one.ids)):
                    p, q = log_softmax(final[row]), log_softmax(logits[row])
                    top = int(np.argmax(logits[row]))
                    assert int(found.rank[row]) == int((final[row] > final[row][top]).sum())
                    assert float(found.surprisal[row]) == pytest.approx(-p[top], abs=2e-3)
                    kl = float((np.exp(p) * (p - q)).sum())
                    assert float(found.kl[row]) == pytest.approx(kl, abs=2e-3)
    last = comparison.outcome("id", 2)
    assert not last.rank.any()
    assert float(last.kl.abs().max()) < 1e-9
    assert comparison.line_numbers().tolist() != []


def test_padded_rows_of_the_head_take_no_part(save_model):
    """Rows past the tokenizer that would win every top place."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=304, n_embd=32, n_layer=2, n_head=4)
    folder = save_model(config)
    live = GPT2LMHeadModel.from_pretrained(folder)
    with torch.no_grad():
        live.transformer.wte.weight[302] = 50 * live.transformer.wte.weight[7]
        live.transformer.wte.weight[303] = -50 * live.transformer.wte.weight[7]
    live.save_pretrained(folder)
    head, x = Head(load(folder)), torch.randn(20, 32)
    logits = head(x)
    assert logits.shape == (20, N)
    with torch.no_grad():
        true = live.lm_head(live.transformer.ln_f(x))[:, :N]
    assert torch.allclose(logits, true, atol=1e-5)


def test_ties_are_broken_by_the_smaller_id():
    final = torch.tensor([[1.0, 3.0, 3.0, 0.0]])
    log_p = final.log_softmax(-1)
    for chosen, rank in ((1, 0), (2, 1), (0, 2), (3, 3)):
        logits = torch.zeros(1, 4)
        logits[0, chosen] = 1
        assert int(outcome_of(logits, final, log_p).rank) == rank


def test_a_token_that_the_model_rules_out_adds_nothing_to_kl():
    final = torch.tensor([[0.0, 0.0, -float("inf")]])
    found = outcome_of(torch.zeros(1, 3), final, final.log_softmax(-1))
    assert float(found.kl) == pytest.approx(float(np.log(3) - np.log(2)))


def test_slices_of_rows_change_nothing(tiny_gpt2, monkeypatch):
    model = load(tiny_gpt2)
    states = next(iter(capture(run(model), PASSES)))
    whole = Comparison(model, {"id": identity}, [1])
    whole.add(states)
    monkeypatch.setattr(decoding, "SLICE", 3 * N)
    parts = Comparison(model, {"id": identity}, [1])
    assert parts.head.rows == 3
    parts.add(states)
    assert len(parts._found["id", 1]) > 5
    for name in decoding.METRICS:
        a, b = (getattr(c.outcome("id", 1), name).double() for c in (whole, parts))
        assert torch.allclose(a, b, atol=1e-5)


def test_a_model_without_a_head_gets_r2_and_the_reason(save_model, corpus, byte_tokenizer):
    from transformers import PreTrainedTokenizerFast

    import embspace

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer.backend_tokenizer, mask_token="<|endoftext|>"
    )
    config = BertConfig(
        vocab_size=N,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
    )
    folder = save_model(config, "AutoModel", tokenizer=tokenizer)
    assert isinstance(BertModel.from_pretrained(folder), BertModel)
    model = embspace.load(folder)
    found = score(model, text=corpus)
    assert set(found.r2) == {"mat", "id"}
    assert all(value is not None for value in found.r2["mat"].values())
    assert not any(found.layers.values())
    assert any("no prediction head" in note for note in found.notes)
    assert {row["kind"] for row in found.rows()} == {"mat", "id"}


# the whole score -------------------------------------------------------------------------
def test_scores_are_means_over_the_held_out_rows_with_intervals_around_them(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    found = score(model, text=Text.read(corpus, held_out=range(90, 120), positions=2))
    assert found.settings["rows"] == 60
    assert found.settings["rows_fitted"] == 180
    assert list(found.r2["mat"]) == ["0-1", "0-2", "0-3", "1-2", "1-3", "2-3"]
    for kind in ("mat", "id"):
        assert [one.layer for one in found.layers[kind]] == [0, 1, 2]
        for one in found.layers[kind]:
            for name, mean in one.means.items():
                low, high = one.intervals[name]
                assert low <= mean <= high
            p1, p5, p10 = (one.means[f"precision@{k}"] for k in (1, 5, 10))
            assert 0 <= p1 <= p5 <= p10 <= 1
            assert one.means["kl"] >= -1e-6
            assert one.means["surprisal"] > 0
    said = found.to_dict()
    assert set(said["layers"]["mat"]["0"]) >= {"precision@1", "precision@1_interval", "kl"}
    assert len(found.rows()) == 6


def test_scores_of_given_maps_are_those_of_the_fit(tiny_gpt2, corpus, tmp_path):
    """r² from the sums of a second pass is the one that the fit recorded."""
    model = load(tiny_gpt2)
    maps = fit(model, Text.read(corpus, positions=2), pairs="all", kind="affine")
    found = score(model, maps.save(tmp_path / "m"), Text.read(corpus, positions=2))
    assert found.settings["rows"] == maps.about["rows_scored"]
    assert any("were left out" in note for note in found.notes)
    for pair in maps.pairs:
        name = f"{pair.source}-{pair.target}"
        assert found.r2["affine"][name] == pytest.approx(pair.r2, abs=1e-5)
        assert found.r2["id"][name] == pytest.approx(pair.r2_id, rel=1e-5)


def test_lines_that_were_fitted_are_named(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    maps = fit(model, Text.read(corpus, fit=range(60), held_out=0.0))
    found = score(model, maps, Text.read(corpus, held_out=range(50, 80)))
    assert "10 of the 30 lines were also fitted: their scores are not held out." in found.notes


def test_the_last_layer_is_the_model_itself(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    maps = fit(model, corpus)
    found = score(model, maps, corpus, layers=[1, 3])
    for kind in ("mat", "id"):
        one = found.layers[kind][1]
        assert (one.layer, one.means["precision@1"]) == (3, 1.0)
        assert one.means["kl"] == pytest.approx(0, abs=1e-9)
    x = torch.randn(3, 32)
    assert torch.equal(through(maps)(x, 1), maps.apply(x, 1))


def test_layers_without_a_map_and_maps_of_submodules_are_refused(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    with pytest.raises(MapsError, match="no map of layer 2"):
        score(model, fit(model, corpus, pairs=[(0, 3)]), corpus, layers=[2])
    with pytest.raises(MapsError, match="sub-modules"):
        score(model, fit(model, corpus, parts="submodules"), corpus)


def test_the_same_seed_gives_the_same_scores(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    assert score(model, text=corpus) == score(model, text=corpus)


def test_repeated_lines_are_scored_once_and_the_notes_say_whose_they_are(tiny_gpt2, corpus):
    model = embspace.load(str(tiny_gpt2))
    twice = Text(corpus.lines[:60] + corpus.lines[:10], "twice")
    maps = fit(model, twice)
    (repeated,) = (note for note in maps.about["notes"] if "more than once" in note)
    other = Text(corpus.lines[60:80] * 3 + corpus.lines[:5], "other")
    found = embspace.score(model, maps, other)
    assert found.settings["rows"] in range(20, 26) and found.settings["rows"] == 20 + sum(
        mark_of(line) not in maps.about["marks"] for line in corpus.lines[:5]
    )
    assert repeated not in found.notes
    assert f"When the maps were fitted: {repeated}" in found.notes
    assert any("or that came before, were left out" in note for note in found.notes)
    given = embspace.score(model, maps, Text.read(other, held_out=range(60)))
    assert given.settings["rows"] == 60  # as they were asked for, with a word
    assert any("40 of the 60 lines repeat others" in note for note in given.notes)


def test_intervals_are_in_every_table_that_is_written(tiny_gpt2, corpus):
    model = embspace.load(str(tiny_gpt2))
    other = Text(tuple(line.upper() for line in corpus.lines), "loud")
    results = (
        embspace.score(model, None, corpus),
        embspace.transfer(model, corpus, other),
        embspace.submodules(model, corpus, rows=10),
    )
    for result in results:
        for row in result.rows():
            for name in ("precision@1", "surprisal", "kl"):
                assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
