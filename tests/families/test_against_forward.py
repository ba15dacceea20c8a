"""The split matrices against hooked forward passes, in arithmetic of the tests' own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from embspace.read.reader import load

IDS = torch.tensor([[5, 17, 44, 3, 120, 9, 201, 77, 30], [8, 8, 250, 61, 2, 99, 140, 13, 71]])


def _hooked(live: Any, ids: Tensor, *paths: str) -> dict[str, Any]:
    """Outputs of modules of the live model, by path, and its attentions and logits."""
    seen: dict[str, Any] = {}
    handles = [
        live.get_submodule(path).register_forward_hook(
            lambda module, args, output, path=path: seen.__setitem__(path, (args, output))
        )
        for path in paths
    ]
    live.set_attn_implementation("eager")
    with torch.no_grad():
        output = live(input_ids=ids, output_attentions=True)
    for handle in handles:
        handle.remove()
    return {**seen, "attentions": output.attentions, "logits": output.logits}


def _close(ours: Tensor, true: Tensor, tolerance: float = 1e-5) -> bool:
    return bool((ours - true).abs().max() <= tolerance * true.abs().max())


ATTENTION = {  # path of the attention module, and the paths of what its projections read
    "gpt2": ("transformer.h.1.attn", "transformer.h.1.attn.c_attn"),
    "gpt-neox": ("gpt_neox.layers.1.attention", "gpt_neox.layers.1.attention.query_key_value"),
    "bloom": ("transformer.h.1.self_attention", "transformer.h.1.self_attention.query_key_value"),
    "falcon multi-query": (
        "transformer.h.1.self_attention",
        "transformer.h.1.self_attention.query_key_value",
    ),
    "falcon per group": (
        "transformer.h.1.self_attention",
        "transformer.h.1.self_attention.query_key_value",
    ),
    "falcon per head": (
        "transformer.h.1.self_attention",
        "transformer.h.1.self_attention.query_key_value",
    ),
    "llama": ("model.layers.1.self_attn", "model.layers.1.self_attn.q_proj"),
    "qwen3": ("model.layers.1.self_attn", "model.layers.1.self_attn.q_proj"),
    "phi3": ("model.layers.1.self_attn", "model.layers.1.self_attn.qkv_proj"),
    "gpt-bigcode": ("transformer.h.1.attn", "transformer.h.1.attn.c_attn"),
    "bert": (
        "bert.encoder.layer.1.attention.output.dense",
        "bert.encoder.layer.1.attention.self.query",
    ),
    "modernbert": ("model.layers.1.attn", "model.layers.1.attn.Wqkv"),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_heads_sum_to_the_attention_output(saved, zoo, name: str):
    """Query head h reads key/value head h // (H / G); biases are added once."""
    path, reads = ATTENTION[name]
    seen = _hooked(zoo(name), IDS, path, reads)
    out = seen[path][1]
    out = out[0] if isinstance(out, tuple) else out
    if name == "bloom":  # its attention adds the residual itself
        out = out - seen[path][0][1]
    x, model = seen[reads][0][0], load(saved(name))
    attention = model.attention(1)
    group = model.n_heads // model.n_kv_heads
    total = torch.zeros_like(out)
    for h in range(model.n_heads):
        weights = seen["attentions"][1][:, h]
        values = x @ attention.W_V[h // group]
        bias = attention.bias("v")
        values = values if bias is None else values + bias[h // group]
        total += weights @ values @ attention.W_O[h]
    total = total if attention.b_O is None else total + attention.b_O
    assert _close(total, out)


@pytest.mark.parametrize("name", ["falcon multi-query", "falcon per group", "falcon per head"])
def test_falcons_three_layouts_split_as_falcon_splits_them(saved, zoo, name: str):
    module = zoo(name).transformer.h[1].self_attention
    x = torch.randn(1, 5, 48)
    with torch.no_grad():
        q, k, v = module._split_heads(module.query_key_value(x))
    _same_heads(load(saved(name)), x, (q, k, v))


def test_blooms_heads_split_as_bloom_splits_them(saved, zoo):
    module = zoo("bloom").transformer.h[1].self_attention
    x = torch.randn(1, 5, 48)
    with torch.no_grad():
        parts = module._reshape(module.query_key_value(x))
    _same_heads(load(saved("bloom")), x, tuple(part.transpose(1, 2) for part in parts))


def _same_heads(model: Any, x: Tensor, true: tuple[Tensor, ...]) -> None:
    attention = model.attention(1)
    for which, part in zip("qkv", true, strict=True):
        weight = getattr(attention, f"W_{which.upper()}")
        ours = torch.stack(
            [x @ w + b for w, b in zip(weight, attention.bias(which), strict=True)], 2
        )
        if part.shape[2] != ours.shape[2]:
            ours = ours.repeat_interleave(part.shape[2] // ours.shape[2], 2)
        assert _close(ours, part)


@pytest.mark.parametrize(
    ("name", "scaled_by"),
    [
        ("gpt-neo", 1.0),
        ("gpt2 scaled by layer", 8**-0.5 / 2),
        ("gpt2 unscaled", 1.0),
        ("opt", 8**-0.5),
    ],
)
def test_scores_give_the_models_own_attention(saved, zoo, name: str, scaled_by: float):
    reads = {
        "gpt-neo": "transformer.h.1.ln_1",
        "opt": "model.decoder.layers.1.self_attn_layer_norm",
    }.get(name, "transformer.h.1.ln_1")
    seen = _hooked(zoo(name), IDS, reads)
    x, attention = seen[reads][1], load(saved(name)).attention(1)
    n = IDS.shape[1]
    mask = torch.full((n, n), -torch.inf).triu(1)
    if name == "gpt-neo":  # a local layer, window 4
        mask = mask + torch.full((n, n), -torch.inf).tril(-4)
    for h in range(6):
        q, k = (
            x @ w[h] + (0 if b is None else b[h])
            for w, b in (
                (attention.W_Q, attention.bias("q")),
                (attention.W_K, attention.bias("k")),
            )
        )
        ours = (q @ k.transpose(1, 2) * scaled_by + mask).softmax(-1)
        assert torch.allclose(ours, seen["attentions"][1][:, h], atol=1e-5)


FEED_FORWARD = {
    "gpt2": (
        "transformer.h.2.mlp",
        lambda m: torch.nn.functional.gelu(m["up"], approximate="tanh"),
    ),
    "llama": ("model.layers.2.mlp", lambda m: torch.nn.functional.silu(m["gate"]) * m["up"]),
    "phi3": ("model.layers.2.mlp", lambda m: torch.nn.functional.silu(m["gate"]) * m["up"]),
    "gemma": (
        "model.layers.2.mlp",
        lambda m: torch.nn.functional.gelu(m["gate"], approximate="tanh") * m["up"],
    ),
    "modernbert": ("model.layers.2.mlp", lambda m: torch.nn.functional.gelu(m["gate"]) * m["up"]),
    "starcoder2": (
        "model.layers.2.mlp",
        lambda m: torch.nn.functional.gelu(m["up"], approximate="tanh"),
    ),
}


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_keys_and_values_give_the_feed_forward_output(saved, zoo, name: str):
    path, activate = FEED_FORWARD[name]
    args, out = _hooked(zoo(name), IDS, path)[path]
    ff = load(saved(name)).feed_forward(2)
    met = {
        key: args[0] @ rows.T + (0 if ff.key_biases[key] is None else ff.key_biases[key])
        for key, rows in ff.keys.items()
    }
    ours = activate(met) @ ff.values + (0 if ff.value_bias is None else ff.value_bias)
    assert _close(ours, out)


def test_a_value_is_what_its_neuron_alone_adds(saved, zoo):
    """Row i of the values: the change of the output when activation i grows by one."""
    mlp = zoo("gpt2").transformer.h[0].mlp
    hidden = torch.randn(37)
    with torch.no_grad():
        change = mlp.c_proj(hidden + torch.eye(37)) - mlp.c_proj(hidden)
    assert torch.allclose(change, load(saved("gpt2")).feed_forward(0).values, atol=1e-4)


def _llama_forward(model: Any, ids: Tensor) -> Tensor:
    """A Llama forward pass written with our matrices only."""

    def rms(x: Tensor, gain: Tensor | None) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain

    from embspace.weights.rotary import rotation

    n = ids.shape[1]
    turn = [rotation(model, 0, t) for t in range(n)]
    state = model.embedding("input")[ids]
    for layer in range(model.n_layers):
        attention, ff = model.attention(layer), model.feed_forward(layer)
        x = rms(state, model.reading_gain(layer, "attn"))
        for h in range(model.n_heads):
            g = h // 3
            q = x @ attention.W_Q[h] + attention.bias("q")[h]
            k = x @ attention.W_K[g] + attention.bias("k")[g]
            q = torch.stack([q[:, t] @ turn[t] for t in range(n)], 1)
            k = torch.stack([k[:, t] @ turn[t] for t in range(n)], 1)
            scores = q @ k.transpose(1, 2) * model.d_head**-0.5
            weights = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
            values = x @ attention.W_V[g] + attention.bias("v")[g]
            state = state + weights @ values @ attention.W_O[h]
        state = state + attention.b_O
        x = rms(state, model.reading_gain(layer, "ff"))
        met = {k: x @ rows.T + ff.key_biases[k] for k, rows in ff.keys.items()}
        activations = torch.nn.functional.silu(met["gate"]) * met["up"]
        state = state + activations @ ff.values + ff.value_bias
    return rms(state, model.final_gain()) @ model.embedding().T


def test_a_whole_forward_pass_written_with_our_matrices_gives_the_logits(saved, zoo):
    with torch.no_grad():
        true = zoo("llama")(input_ids=IDS).logits
    assert _close(_llama_forward(load(saved("llama")), IDS), true)
