"""The whole prediction head on states of the stream: at the end, on the way, and in parts."""

from typing import Any

import pytest
import torch
from torch import Tensor

from embspace.errors import ModelError
from embspace.live import rebuilt as replay
from embspace.live.capture import States, capture_all
from embspace.live.prediction_head import LiveHead
from embspace.live.running import run
from embspace.read.reader import load
from embspace.text.passages import Passage
from embspace.weights.model import fold

IDS = tuple((11 * n + 7) % 290 + 5 for n in range(9))
PASS = [Passage(IDS, tuple(range(len(IDS))), 0)]
NORMED = ("gpt2", "llama", "gemma2", "bloom", "falcon multi-query", "gpt-j", "phi", "olmo2")
BARE = ("bert", "albert", "distilbert", "opt 350m", "opt without final norm")
HEADS = (*NORMED, *BARE, "opt narrow", "cohere", "granite", "modernbert", "electra", "gpt-oss")
HEADS = (*HEADS, "roberta", "xlm-roberta", "mpnet", "bert untied", "mpt scaled", "gemma3 capped")
GENERATING = [name for name in HEADS if not any(b in name for b in ("bert", "electra", "mpnet"))]


def near(ours: Tensor, true: Tensor, tolerance: float = 1e-5) -> bool:
    assert ours.shape == true.shape
    return bool((ours - true).abs().max() <= tolerance * true.abs().max())


def states_of(folder: Any, **options: Any) -> tuple[Any, States]:
    model = load(folder)
    return model, capture_all(run(model), PASS, **options)


def output_of(model: Any) -> Any:
    """What transformers' own forward pass returns."""
    with torch.no_grad():
        return run(model).module(input_ids=torch.tensor([IDS]), output_hidden_states=True)


@pytest.mark.parametrize("name", HEADS)
def test_the_head_on_state_L_gives_the_models_own_logits(saved, name: str):
    model, states = states_of(saved(name))
    assert near(replay.logits(model, states.layers[3]), output_of(model).logits[0])


@pytest.mark.parametrize("name", GENERATING)
def test_the_live_models_own_head_modules_give_the_same_logits(saved, name: str):
    model, states = states_of(saved(name))
    head = LiveHead(run(model))
    for x in states.layers.values():
        assert near(head(x), replay.logits(model, x))


@pytest.mark.parametrize("name", NORMED)
def test_state_L_is_not_yet_normed_and_what_transformers_calls_the_last_is(saved, name: str):
    model, states = states_of(saved(name))
    last = output_of(model).hidden_states[-1][0]
    assert not near(states.layers[3], last, 0.1)
    assert near(replay.final_norm(model, states.layers[3]), last)


@pytest.mark.parametrize("name", BARE)
def test_without_a_final_norm_state_L_is_what_transformers_calls_the_last(saved, name: str):
    model, states = states_of(saved(name))
    last = output_of(model).hidden_states[-1][0]
    if name != "opt 350m":  # there it is projected to the width of the embedding
        assert near(states.layers[3], last)
    assert torch.equal(replay.final_norm(model, states.layers[3]), states.layers[3])


@pytest.mark.parametrize("name", NORMED)
def test_every_state_is_normed_by_its_own_statistics(saved, name: str):
    """A state a hundred times as long is read alike: no layer borrows another's scale."""
    model, states = states_of(saved(name))
    for x in states.layers.values():
        ours, longer = (replay.logits(model, scale * x.double().float()) for scale in (1, 100))
        assert near(longer, ours, 1e-3)


PARTS = ("gpt2", "llama", "gemma2", "gemma3", "granite", "olmo2", "glm4", "opt", "mixtral")
PARALLEL = ("gpt-neox", "gpt-j", "phi", "falcon per group", "falcon one norm", "cohere")


@pytest.mark.parametrize("name", (*PARTS, *PARALLEL, "gpt-neox sequential", "falcon sequential"))
def test_the_embedding_and_all_parts_sum_to_state_L_and_so_to_the_logits(saved, name: str):
    model, states = states_of(saved(name), parts=("attn", "ff"))
    total = states.layers[0].clone()
    for (layer, part), (_, out) in states.parts.items():
        total += replay.written(model, layer, part, out)  # type: ignore[arg-type]
    assert near(total, states.layers[3])
    assert near(replay.logits(model, total), output_of(model).logits[0])


@pytest.mark.parametrize("layer", [4, -5, -1])
def test_a_state_that_does_not_exist_is_named(saved, layer: int):
    with pytest.raises(ModelError, match=f"no state {layer}: states are 0 to 3"):
        states_of(saved("gpt2"), layers=[layer])


def test_the_parts_sum_to_the_logits_with_the_final_gain_folded_into_E_too(saved):
    model, states = states_of(saved("gpt2"), parts=("attn", "ff"))
    x = states.layers[0] + sum(out for _, out in states.parts.values())
    x = torch.nn.functional.layer_norm(x, (48,))
    E, shift = fold(model.embedding(), model.final_gain()), model.weight("transformer.ln_f.bias")
    assert near(x @ E.T + model.embedding() @ shift, output_of(model).logits[0])


def test_the_scale_of_an_embedding_is_rounded_as_the_model_rounds_it(saved):
    """√48 has eight bits in bfloat16."""
    model = load(saved("gemma"))
    (state,) = capture_all(run(model, dtype=torch.bfloat16), PASS, layers=[0]).layers.values()
    rows = model.embedding("input")[list(IDS)].bfloat16()
    assert torch.equal(state, (rows * torch.tensor(48**0.5).bfloat16()).float())
    assert not torch.equal(state, (rows.float() * 48**0.5).bfloat16().float())


@pytest.mark.parametrize("name", ["gemma", "gemma2", "gemma3"])
def test_gemmas_scaled_embedding_is_state_0_and_its_rows_are_kept_raw(saved, name: str):
    model, states = states_of(saved(name))
    rows = model.embedding("input")[list(IDS)]
    assert not near(states.layers[0], rows, 0.1)
    assert near(states.layers[0], rows * 48**0.5)


def test_raw_weights_are_bit_for_bit_those_of_the_file(saved, zoo):
    model, live = load(saved("gpt2")), zoo("gpt2")
    assert torch.equal(model.embedding("input"), live.transformer.wte.weight)
    assert torch.equal(model.embedding(), live.lm_head.weight)
    assert torch.equal(model.feed_forward(1).values, live.transformer.h[1].mlp.c_proj.weight)


@pytest.mark.parametrize("name", ["phi", "gpt-j"])
def test_the_bias_of_a_head_changes_which_tokens_come_first(saved, zoo, name: str):
    model, states = states_of(saved(name))
    with_bias = replay.logits(model, states.layers[3])
    without = with_bias - zoo(name).lm_head.bias
    assert not torch.equal(with_bias.topk(5).indices, without.topk(5).indices)


def test_a_capped_head_keeps_the_order_and_bounds_the_logits(saved):
    model, states = states_of(saved("gemma2"))
    capped = replay.logits(model, 3 * states.layers[2])
    assert float(capped.abs().max()) <= 3.0
    raw = replay.against(replay.prepared(model, 3 * states.layers[2]), model.head_table())
    assert near(capped, 3.0 * torch.tanh(raw / 3.0))


@pytest.mark.parametrize("name", HEADS)
def test_room_given_beforehand_changes_nothing_and_gradients_pass_through_without_it(saved, name):
    model = load(saved(name), dtype="float64")
    x = states_of(saved(name))[1].layers[3].double()
    z = replay.logits(model, x)
    room = x.new_full((len(x) + 2, z.shape[1]), 7.0)
    kept = x.clone()
    assert torch.allclose(replay.logits(model, x, room[: len(x)]), z, rtol=1e-12, atol=1e-12)
    assert torch.equal(x, kept) and bool((room[len(x) :] == 7).all())

    moved = x.clone().requires_grad_()
    replay.logits(model, moved).square().sum().backward()
    way, step = torch.randn_like(x), 1e-6
    ends = [replay.logits(model, x + s * step * way).square().sum() for s in (1, -1)]
    slope = float((ends[0] - ends[1]) / (2 * step))
    assert moved.grad is not None
    assert float((moved.grad * way).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-4)
