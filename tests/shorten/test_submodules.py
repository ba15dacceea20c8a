"""Sub-modules made linear from a block on: against passes written out, and what cannot be said."""

import itertools
import json

import pytest
import torch
from transformers import AlbertConfig, Olmo2Config, PreTrainedTokenizerFast

import embspace
from embspace.errors import EmbspaceError, ModelError
from embspace.live import rebuilt as replay
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.fit import fit
from embspace.maps.maps import Maps
from embspace.shorten.submodules import _Replacing, sets_of
from embspace.text.passages import Passages, passages
from embspace.text.text import Text

PARTS = {  # of a Llama block: where the sub-module begins, and where it ends
    "attn_norm": ("input_layernorm", "input_layernorm"),
    "attn": ("self_attn.q_proj", "self_attn.o_proj"),
    "ff_norm": ("post_attention_layernorm", "post_attention_layernorm"),
    "ff": ("mlp", "mlp"),
}


def changed(live, maps, parts, first, ids):
    """State L of a live Llama's pass with some parts of all blocks from `first` on replaced."""
    handles, seen = [], {}
    for part, (l, block) in itertools.product(parts, enumerate(live.model.layers)):
        if l < first:
            continue
        begin, end = (block.get_submodule(name) for name in PARTS[part])

        def keep(module, args, kwargs, l=l, part=part):
            seen[l, part] = args[0] if args else kwargs["hidden_states"]

        def replace(module, args, out, l=l, part=part):
            return seen[l, part] @ maps[f"{l}.{part}.in", f"{l}.{part}.out"]

        handles += [
            begin.register_forward_pre_hook(keep, with_kwargs=True),
            end.register_forward_hook(replace),
        ]
    last = {}
    handles.append(live.model.norm.register_forward_pre_hook(lambda m, a: last.update(x=a[0])))
    with torch.no_grad():
        live(input_ids=torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return last["x"][0]


SETS = {  # as typed -> the key of its scores, and its parts
    "attn": ("attn", ("attn",)),
    "ff": ("ff", ("ff",)),
    "norm1": ("attn_norm", ("attn_norm",)),
    "ff_norm": ("ff_norm", ("ff_norm",)),
    "norms": ("norms", ("attn_norm", "ff_norm")),
    "norms, attn": ("attn,norms", ("attn_norm", "attn", "ff_norm")),
    "norm2,attn": ("attn,ff_norm", ("attn", "ff_norm")),
}


def test_scores_are_those_of_passes_with_all_parts_of_a_set_replaced(tiny_llama, corpus):
    model = embspace.load(str(tiny_llama))
    fit_lines, lines = range(60), range(90, 102)
    found = embspace.submodules(
        model, Text.read(corpus, fit=fit_lines, held_out=lines), replace=SETS, layers=[0, 1]
    )
    assert list(found.parts) == [key for key, _ in SETS.values()]
    maps = fit(model, Text.read(corpus, fit=fit_lines, held_out=lines), parts="submodules")
    taken = passages(model, corpus, lines=lines)
    live = run(model).module
    end = len(model.vocabulary)
    for (key, parts), first in itertools.product(SETS.values(), (0, 1)):
        kl = []
        for one in taken.passages:
            mine, own = (
                replay.logits(model, changed(live, maps, parts, start, one.ids)[one.keep[0]])
                for start in (first, model.n_layers)
            )
            p, q = own[:end].double().log_softmax(0), mine[:end].double().log_softmax(0)
            kl.append(float((p.exp() * (p - q)).sum()))
        (score,) = (s for s in found.parts[key] if s.layer == first)
        assert score.means["kl"] == pytest.approx(sum(kl) / len(kl), rel=1e-3), key


def test_the_default_is_the_papers_figure_with_both_norms_together(tiny_gpt2, corpus):
    model = embspace.load(str(tiny_gpt2))
    text = Text.read(corpus, fit=range(60), held_out=range(90, 110))
    found = embspace.submodules(model, text, layers=[1])
    assert list(found.parts) == ["attn", "ff", "norms"]
    alone = embspace.submodules(model, text, replace="norm1,norm2", layers=[1])
    assert alone.parts["norms"] == found.parts["norms"]
    (row,) = (row for row in found.rows() if row["replaced"] == "norms")
    assert row["r2_attn_norm"] == found.r2["attn_norm"][1] and row["r2_attn"] is None
    assert "both norms" in str(found)


def test_a_model_without_norms_before_its_sub_modules_has_none_to_replace(save_model):
    config = Olmo2Config(
        vocab_size=304, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, pad_token_id=0,
    )  # fmt: skip
    model = embspace.load(str(save_model(config)))
    assert sets_of(model, None) == {"attn": ("attn",), "ff": ("ff",)}
    with pytest.raises(ModelError, match="has both norms to replace"):
        sets_of(model, "attn,norms")


def test_an_unknown_sub_module_is_named(tiny_gpt2, corpus):
    with pytest.raises(EmbspaceError, match="no sub-module 'mlp'"):
        embspace.submodules(embspace.load(str(tiny_gpt2)), corpus, replace="attn,mlp")


def test_one_map_of_the_rest_is_the_map_that_decodes_the_layer(tiny_gpt2, corpus):
    model = embspace.load(str(tiny_gpt2))
    text = Text.read(corpus, fit=range(60), held_out=range(90, 120))
    found = embspace.submodules(model, text, layers=[1, 2])
    scores = embspace.score(model, None, text)
    for score in found.blocks:
        assert score.means == pytest.approx(scores.layers["mat"][score.layer].means, abs=1e-5)


def test_layers_that_share_a_module_are_each_replaced_by_their_own_map(
    save_model, byte_tokenizer, corpus
):
    """ALBERT runs one block three times: the maps of its three runs differ."""
    config = AlbertConfig(
        vocab_size=304, embedding_size=8, hidden_size=16, num_hidden_layers=3, num_hidden_groups=1,
        num_attention_heads=2, intermediate_size=24, max_position_embeddings=64,
        initializer_range=0.5,
    )  # fmt: skip
    masking = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer.backend_tokenizer, mask_token="<|endoftext|>"
    )
    folder = save_model(config, "AutoModelForMaskedLM", tokenizer=masking)
    model = embspace.load(str(folder))
    maps = fit(model, Text.read(corpus, fit=range(60), held_out=range(60, 80)), parts="submodules")
    running = run(model, attention="fast")
    passes = passages(model, corpus, lines=range(80, 90)).passages
    block, ran = running.block(0), []

    def replace(module, args, out):
        ran.append(args[0])
        l = (len(ran) - 1) % 3
        return maps.apply(args[0], f"{l}.ff.in", f"{l}.ff.out")

    handle = block.ffn_output.register_forward_hook(lambda m, a, out: replace(m, [met["x"]], out))
    met = {}
    before = block.ffn.register_forward_pre_hook(lambda m, a: met.update(x=a[0]))
    expected = capture_all(running, passes, layers=[3])
    handle.remove()
    before.remove()
    work = _Replacing(running, maps, {"ff": ("ff",)}, [0], None)
    work.run(Passages(tuple(passes), 0, 0))
    found = torch.cat(work.finals["ff", 0])
    key = list(zip(*(torch.cat([getattr(s, n) for s in work.true]).tolist()
                     for n in ("lines", "positions")), strict=True))  # fmt: skip
    order = [key.index(k) for k in zip(expected.lines.tolist(), expected.positions.tolist(),
                                       strict=True)]  # fmt: skip
    assert (found[order] - expected.layers[3]).abs().max() < 1e-4


def test_rows_whose_states_overflow_count_as_wrong_and_are_counted(tiny_gpt2, corpus, monkeypatch):
    model = embspace.load(str(tiny_gpt2))
    apply = Maps.apply

    def growing(self, x, source, target=None):
        """The first sequences of a batch alone leave all numbers behind."""
        y = apply(self, x, source, target)
        if str(source) == "1.ff.in":
            y[:2] = torch.inf
        return y

    before = embspace.submodules(model, corpus, layers=[1, 2], rows=8)
    monkeypatch.setattr(Maps, "apply", growing)
    found = embspace.submodules(model, corpus, layers=[1, 2], rows=8)
    lost, kept = found.parts["ff"]
    assert kept == before.parts["ff"][1] and found.parts["attn"] == before.parts["attn"]
    assert set(lost.means) == {f"precision@{k}" for k in (1, 5, 10)} == set(lost.intervals)
    was = before.parts["ff"][0].means
    assert all(
        was[name] - 2 / 8 <= lost.means[name] <= min(was[name], 6 / 8) for name in lost.means
    )
    assert [note for note in found.notes if "2 of 8 rows" in note and "block 1 on" in note]
    assert sum("rows overflow" in note for note in found.notes) == 1
    cells = [row for row in found.rows() if row["replaced"] == "ff" and row["from_block"] == 1]
    assert cells[0]["kl"] is None and cells[0].keys() == found.rows()[-1].keys()
    assert "2 of 8 rows" in " ".join(str(found).split()) and json.loads(found.to_json())
