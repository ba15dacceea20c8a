"""R_k against a hooked forward pass of transformers' own model, position by position."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import embspace
from embspace.errors import EmbspaceError
from embspace.evidence.state_overlap import shares, state_overlap
from embspace.text.passages import passages
from embspace.text.text import Text

TEXTS = ("The cats saw Paris.", "Her brother sings in Rome, his sister in Madrid.", "Doctors heal.")
K, M = 10, 3
FAMILIES = {
    "gpt2": ("transformer.h", "mlp.c_proj", "attn.c_proj"),
    "llama": ("model.layers", "mlp.down_proj", "self_attn.o_proj"),
    "bert": ("bert.encoder.layer", "output.dense", "attention.output.dense"),
}


def hooked(folder: Any, kind: str, ids: tuple[int, ...]) -> tuple[Any, list[dict[str, Any]]]:
    """transformers' model, and of each block its output, activations and mixed values (T, n)."""
    auto = "AutoModelForMaskedLM" if kind == "bert" else "AutoModelForCausalLM"
    live = (
        getattr(transformers, auto)
        .from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        .eval()
    )
    blocks, ff, out = FAMILIES[kind]
    seen: list[dict[str, Any]] = [{} for _ in live.get_submodule(blocks)]

    def keep(layer: int, name: str, side: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            found = args[0] if side == "in" else output
            found = found[0] if isinstance(found, tuple) else found
            seen[layer][name] = found[0].detach().double().numpy()

        return hook

    for layer, block in enumerate(live.get_submodule(blocks)):
        block.register_forward_hook(keep(layer, "state", "out"))
        block.get_submodule(ff).register_forward_hook(keep(layer, "acts", "in"))
        block.get_submodule(out).register_forward_hook(keep(layer, "mixed", "in"))
    with torch.no_grad():
        live(torch.tensor([ids]))
    return live, seen


def vectors(live: Any, kind: str, layer: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """(part, which activations, one vector a row), straight from the state dict."""
    weights = {k: v.double().numpy() for k, v in live.state_dict().items()}
    block = f"{FAMILIES[kind][0]}.{layer}."
    if kind == "gpt2":
        yield "key", "acts", weights[block + "mlp.c_fc.weight"].T
        yield "value", "acts", weights[block + "mlp.c_proj.weight"]
        yield "W_V", "mixed", weights[block + "attn.c_attn.weight"][:, 64:].T
        yield "W_O", "mixed", weights[block + "attn.c_proj.weight"]
    elif kind == "llama":
        for part in ("gate", "up"):
            yield part, "acts", weights[block + f"mlp.{part}_proj.weight"]
        yield "value", "acts", weights[block + "mlp.down_proj.weight"].T
        grouped = weights[block + "self_attn.v_proj.weight"].reshape(2, 8, 36)
        yield "W_V", "mixed", np.repeat(grouped, 3, axis=0).reshape(48, 36)
        yield "W_O", "mixed", weights[block + "self_attn.o_proj.weight"].T
    else:
        yield "key", "acts", weights[block + "intermediate.dense.weight"]
        yield "value", "acts", weights[block + "output.dense.weight"].T
        yield "W_V", "mixed", weights[block + "attention.self.value.weight"]
        yield "W_O", "mixed", weights[block + "attention.output.dense.weight"].T


def read(live: Any, kind: str, state: np.ndarray) -> np.ndarray:
    """The state as the output embedding meets it."""
    x = torch.tensor(state).float()
    norm = {
        "gpt2": lambda: live.transformer.ln_f,
        "llama": lambda: live.model.norm,
        "bert": lambda: live.cls.predictions.transform,
    }[kind]()
    with torch.no_grad():
        return norm(x).double().numpy()


def tops(x: np.ndarray, table: np.ndarray) -> set[int]:
    return set((table @ x).argsort()[-K:].tolist())


@pytest.mark.parametrize("against", ["state", "final"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_overlap_is_that_of_a_hooked_forward_pass(kind, against, tiny_gpt2, tiny_llama):
    import embspace_data

    folder = {"gpt2": tiny_gpt2, "llama": tiny_llama, "bert": embspace_data.path("sample-bert-a")}
    model = embspace.load(folder[kind])
    corpus = Text.read(TEXTS)
    found = state_overlap(model, Text.read(corpus, seed=3), against=against, k=K, m=M, per_text=2)
    rows = {(r.layer, r.part): r for r in found.layers}
    chosen = passages(model, Text.read(corpus, positions=2, seed=3))
    expected: dict[tuple[int, str], list[float]] = {}
    for one in chosen.passages:
        live, seen = hooked(folder[kind], kind, one.ids)
        table = live.get_output_embeddings().weight.double().detach().numpy()
        table = table[: len(model.vocabulary)]
        for at in one.keep:
            for layer, block in enumerate(seen):
                state = seen[-1 if against == "final" else layer]["state"][at]
                own = tops(read(live, kind, state), table)
                for part, which, x in vectors(live, kind, layer):
                    used = block[which][at].argsort()[-M:]
                    named = set().union(*(tops(x[n], table) for n in used))
                    expected.setdefault((layer, part), []).append(len(own & named) / K)
    assert rows.keys() == expected.keys()
    for key, values in expected.items():
        assert rows[key].aligned.mean == pytest.approx(np.mean(values), abs=1e-9), key
        assert rows[key].aligned.n == len(values) == chosen.n_rows


def test_shares_are_those_of_sets():
    random = torch.Generator().manual_seed(0)
    state = torch.stack([torch.randperm(40, generator=random)[:6] for _ in range(500)])
    named = torch.randint(40, (500, 9), generator=random)
    expected = [
        len(set(a) & set(b)) / 6 for a, b in zip(state.tolist(), named.tolist(), strict=True)
    ]
    assert shares(state, named).tolist() == pytest.approx(expected)


def test_values_of_a_trained_model_name_the_state_of_their_own_position():
    model = embspace.load("sample-gpt2")
    found = state_overlap(model, Text.read("sample:reference", limit=40))
    for row in found.parts()["value"]:
        assert row.aligned.low is not None and row.permuted.high is not None
        assert row.aligned.low > row.permuted.high


def test_the_same_seed_gives_the_same_result(tiny_gpt2):
    model, corpus = embspace.load(tiny_gpt2), Text.read(TEXTS)
    first, again = (state_overlap(model, corpus, k=K, per_text=1) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert first.settings["text_hash"] == corpus.digest


def test_what_does_not_apply_is_refused(tiny_gpt2):
    model, corpus = embspace.load(tiny_gpt2), Text.read(TEXTS)
    for wrong in ({"k": 0}, {"m": 0}, {"per_text": 0}, {"against": "none"}):
        with pytest.raises(EmbspaceError):
            state_overlap(model, corpus, **wrong)
    with pytest.raises(EmbspaceError, match="permuted"):
        state_overlap(model, Text.read(TEXTS[:1]), per_text=1)


def test_parts_of_a_mixture_are_left_out_and_said_to_be(save_model):
    from transformers import MixtralConfig

    config = MixtralConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=3,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    found = state_overlap(embspace.load(save_model(config)), Text.read(TEXTS), k=K)
    assert set(found.parts()) == {"W_V", "W_O"}
    assert any("mixture" in note for note in found.notes)
