"""States and parts of every family against forward hooks on the live model, one text at a time."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embspace.live.capture import capture_all
from embspace.live.recorder import PARTS
from embspace.live.running import run
from embspace.maps.fit import plan_of
from embspace.read.reader import load
from embspace.text.passages import Passage

from .zoo import ZOO, build

LENGTHS = (3, 14, 9)  # past every sliding window of the zoo; not in order
TEXTS = [[(7 * n + 31 * t) % 290 + 5 for t in range(n)] for n in LENGTHS]
PASSES = [Passage(tuple(ids), tuple(range(len(ids))), n) for n, ids in enumerate(TEXTS)]


def blocks_of(live: Any) -> list[nn.Module]:
    """The blocks of a live model in the order they run: the list of three that is not vision's."""
    lists = {
        name: found
        for name, found in live.named_modules()
        if isinstance(found, nn.ModuleList) and "vision" not in name
    }
    groups = next((found for name, found in lists.items() if name.endswith("layer_groups")), None)
    if groups is not None:  # ALBERT: groups of one layer, used in turn
        each = [group.albert_layers[0] for group in groups]
        return each if len(each) == 3 else each * 3
    return list(next(found for found in lists.values() if len(found) == 3))


def hooked(live: Any, ids: list[int]) -> list[Tensor]:
    """State 0, the first block's input, and every block's output, of one text alone."""
    seen: list[Tensor] = []

    def start(module: Any, args: Any, kwargs: Any) -> None:
        if not seen:
            seen.append((args[0] if args else kwargs["hidden_states"])[0].clone())

    def finish(module: Any, args: Any, output: Any) -> None:
        found = output[0] if isinstance(output, tuple) else output
        assert found.ndim == 3
        seen.append(found[0].clone())

    handles = [
        handle
        for block in dict.fromkeys(blocks_of(live))
        for handle in (
            block.register_forward_pre_hook(start, with_kwargs=True),
            block.register_forward_hook(finish),
        )
    ]
    plainly(live)
    with torch.no_grad():
        live(input_ids=torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return seen


def plainly(live: Any) -> Any:
    """The same model computed without fused kernels."""
    live.set_experts_implementation("eager")
    live.set_attn_implementation("eager")
    return live


def near(ours: Tensor, true: Tensor, tolerance: float) -> bool:
    assert ours.shape == true.shape
    return bool((ours - true).abs().max() <= tolerance * true.abs().max())


@pytest.mark.parametrize("name", ZOO)
def test_states_of_a_mixed_batch_are_the_hooked_outputs_of_each_text_alone(saved, name: str):
    live = build(name)
    # short ones first: dynamic rotary scaling remembers the longest text it has seen
    found = {n: hooked(live, TEXTS[n]) for n in sorted(range(3), key=lambda n: LENGTHS[n])}
    alone = [found[n] for n in range(3)]
    assert all(len(found) == 4 for found in alone)
    model = load(saved(name))
    for attention, tolerance in (("eager", 1e-5), ("fast", 1e-4)):
        states = capture_all(run(model, attention=attention), PASSES)
        assert sorted(states.layers) == [0, 1, 2, 3]
        assert states.lines.tolist() == [n for n, ids in enumerate(TEXTS) for _ in ids]
        assert states.tokens.tolist() == [token for ids in TEXTS for token in ids]
        for l, rows in states.layers.items():
            assert near(rows, torch.cat([found[l] for found in alone]), tolerance), (attention, l)


@pytest.mark.parametrize("name", ZOO)
def test_the_submodules_planned_from_the_weights_are_those_the_live_model_yields(saved, name: str):
    model = load(saved(name))
    states = capture_all(run(model), PASSES, layers=(), parts=PARTS)
    planned = {
        tuple(space.split(".")[:2]) for space in plan_of(model, "final", "submodules").spaces
    }
    assert {(str(l), part) for l, part in states.parts} == planned
    assert {(l, part) for l in range(3) for part in ("attn", "ff")} <= set(states.parts)
    for x, y in states.parts.values():
        assert x.shape == y.shape == (sum(LENGTHS), model.d)


@pytest.mark.parametrize("name", ZOO)
def test_the_limit_is_the_longest_text_that_the_live_model_takes(saved, zoo, name: str):
    limit = load(saved(name)).n_positions
    longest = 90 if limit is None else limit
    live = plainly(zoo(name))
    with torch.no_grad():
        live(input_ids=torch.full((1, longest), 7))
        if limit is None:
            return
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            live(input_ids=torch.full((1, longest + 1), 7))


PATHS = {  # part -> the live module whose input it begins with, and the one whose output ends it
    "gpt2": {
        "attn_norm": ("transformer.h.1.ln_1",) * 2,
        "attn": ("transformer.h.1.attn.c_attn", "transformer.h.1.attn.c_proj"),
        "ff_norm": ("transformer.h.1.ln_2",) * 2,
        "ff": ("transformer.h.1.mlp.c_fc", "transformer.h.1.mlp.c_proj"),
    },
    "llama": {
        "attn_norm": ("model.layers.1.input_layernorm",) * 2,
        "attn": ("model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.o_proj"),
        "ff_norm": ("model.layers.1.post_attention_layernorm",) * 2,
        "ff": ("model.layers.1.mlp",) * 2,
    },
    "gemma2": {
        "attn_norm": ("model.layers.1.input_layernorm",) * 2,
        "attn": ("model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.o_proj"),
        "ff_norm": ("model.layers.1.pre_feedforward_layernorm",) * 2,
        "ff": ("model.layers.1.mlp",) * 2,
    },
    "mixtral": {
        "ff_norm": ("model.layers.1.post_attention_layernorm",) * 2,
        "ff": ("model.layers.1.mlp",) * 2,
    },
    "phi": {"attn": ("model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.dense")},
    "bloom": {
        "attn": (
            "transformer.h.1.self_attention.query_key_value",
            "transformer.h.1.self_attention.dense",
        ),
        "ff": ("transformer.h.1.mlp.dense_h_to_4h", "transformer.h.1.mlp.dense_4h_to_h"),
    },
    "opt 350m": {
        "attn": (
            "model.decoder.layers.1.self_attn.q_proj",
            "model.decoder.layers.1.self_attn.out_proj",
        ),
        "ff": ("model.decoder.layers.1.fc1", "model.decoder.layers.1.fc2"),
    },
    "bert": {
        "attn": (
            "bert.encoder.layer.1.attention.self",
            "bert.encoder.layer.1.attention.output.dense",
        ),
        "ff": ("bert.encoder.layer.1.intermediate", "bert.encoder.layer.1.output.dense"),
    },
    "distilbert": {
        "attn": (
            "distilbert.transformer.layer.1.attention.q_lin",
            "distilbert.transformer.layer.1.attention.out_lin",
        ),
        "ff": ("distilbert.transformer.layer.1.ffn",) * 2,
    },
}


@pytest.mark.parametrize("name", PATHS)
def test_parts_are_what_goes_in_and_out_of_the_live_modules(saved, zoo, name: str):
    live = plainly(zoo(name))
    states = capture_all(run(load(saved(name))), PASSES[1:2], layers=(), parts=PARTS)
    for part, (first, last) in PATHS[name].items():
        seen: dict[str, Tensor] = {}

        def keep_in(module: Any, args: Any, kwargs: Any, seen: Any = seen) -> None:
            seen["in"] = args[0] if args else kwargs["hidden_states"]

        def keep_out(module: Any, args: Any, output: Any, seen: Any = seen) -> None:
            seen["out"] = output[0] if isinstance(output, tuple) else output

        handles = [
            live.get_submodule(first).register_forward_pre_hook(keep_in, with_kwargs=True),
            live.get_submodule(last).register_forward_hook(keep_out),
        ]
        with torch.no_grad():
            live(input_ids=torch.tensor([TEXTS[1]]))
        for handle in handles:
            handle.remove()
        x, y = states.parts[1, part]  # type: ignore[index]
        assert near(x, seen["in"].reshape(x.shape), 1e-5), part
        assert near(y, seen["out"].reshape(y.shape), 1e-5), part


def test_layers_that_share_their_weights_are_numbered_apart(saved, zoo):
    """ALBERT runs one block three times: three states, and three parts of each kind."""
    states = capture_all(run(load(saved("albert"))), PASSES, parts=("attn", "ff"))
    assert sorted(states.parts) == [(l, part) for l in range(3) for part in ("attn", "ff")]
    for l in range(2):
        assert not torch.equal(states.layers[l + 1], states.layers[l])
        assert not torch.equal(states.parts[l, "ff"][0], states.parts[l + 1, "ff"][0])
