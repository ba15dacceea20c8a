"""The lens against the live model's own forward pass and dense float64 computations."""

import warnings
from typing import Any

import pytest
import torch

import embspace
from embspace.errors import EmbspaceError, ModelError, TextError, VocabularyError
from embspace.live import rebuilt as replay
from embspace.maps.decoding import Head
from embspace.maps.lens_rows import read
from embspace.maps.maps import Maps, PairFit

PROMPT = "The cats and the dogs saw Paris and London."


def live(folder: Any, auto: str = "AutoModelForCausalLM") -> Any:
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, auto).from_pretrained(folder).eval()


def hooked(module: Any, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(logits, states 0 … L) of GPT-2 by hooks of our own."""
    kept: list[torch.Tensor] = []
    blocks = module.transformer.h
    handles = [blocks[0].register_forward_pre_hook(lambda m, args: kept.append(args[0]))]
    for block in blocks:
        handles.append(
            block.register_forward_hook(
                lambda m, args, out: kept.append(out[0] if isinstance(out, tuple) else out)
            )
        )
    with torch.no_grad():
        logits = module(torch.tensor([ids])).logits[0]
    for handle in handles:
        handle.remove()
    return logits, [x[0] for x in kept]


def maps_of(model: Any, seed: int = 0) -> Maps:
    """Random maps of every layer to the last."""
    generator = torch.Generator().manual_seed(seed)
    n, d = model.n_layers, model.d
    tensors = {f"A.{l}-{n}": torch.randn(d, d, generator=generator) / d**0.5 for l in range(n)}
    pairs = tuple(
        PairFit(str(l), str(n), None, None, None, None, 0, d, None, None) for l in range(n)
    )
    about = {"model_hash": model.checkpoint.fingerprint, "d": d, "n_layers": n, "kind": "mat"}
    return Maps(model.provenance | about, pairs, tensors)


def test_every_cell_is_the_softmax_of_the_heads_own_computation(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    found = embspace.lens(model, PROMPT, "id", k=7)
    module = live(tiny_gpt2).double()
    _, states = hooked(module, list(found.ids))
    head = lambda x: module.lm_head(module.transformer.ln_f(x))[:, :300]  # noqa: E731
    grid = found.grids["id"]
    answers = head(states[-1]).argmax(-1)
    assert grid.rows == ("0", "1", "2", "3") and len(found.places) == len(found.ids)
    for l, x in enumerate(states):
        p = head(x).detach().softmax(-1)
        top = p.topk(7)
        assert torch.equal(grid.ids[l], top.indices)
        assert torch.allclose(grid.p[l].double(), top.values, atol=1e-5)
        entropy = -(p * p.log()).sum(-1)
        assert torch.allclose(grid.entropy[l].double(), entropy, atol=1e-4)
        rank = (p > p.gather(1, answers[:, None])).sum(1)
        assert torch.equal(grid.rank[l], rank)


def test_a_padded_row_is_never_a_token_and_takes_no_probability(
    tiny_gpt2, byte_tokenizer, tmp_path
):
    module = live(tiny_gpt2)
    with torch.no_grad():
        table = module.lm_head.weight
        table[302], table[303] = 50 * table[7], -50 * table[7]
    module.save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    model = embspace.load(str(tmp_path))
    found = embspace.lens(model, PROMPT, "id", k=300)
    grid = found.grids["id"]
    assert int(grid.ids.max()) < 300
    assert torch.allclose(grid.p.sum(-1), torch.ones(grid.p.shape[:2]), atol=1e-5)
    assert "padded" in " ".join(found.notes) and found.settings["padded_rows"] == 4


def test_entropy_does_not_depend_on_the_size_of_a_state(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    x = torch.randn(5, model.d, generator=torch.Generator().manual_seed(0)) * 10
    small, large = (read(Head(model), factor * x, 5, None) for factor in (1, 100))
    assert torch.allclose(small.entropy, large.entropy, atol=1e-4)
    assert torch.equal(small.ids, large.ids)


def test_through_maps_a_state_is_multiplied_before_the_head(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    maps = maps_of(model)
    found = embspace.lens(model, PROMPT, ["id", maps], k=3)
    _, states = hooked(live(tiny_gpt2), list(found.ids))
    for l in range(3):
        z = replay.logits(model, states[l] @ maps[l, 3])[:, :300]
        assert torch.equal(found.grids["mat"].ids[l], z.topk(3).indices)
    last = {kind: grid.ids[-1] for kind, grid in found.grids.items()}
    assert torch.equal(last["id"], last["mat"])


def test_reading_in_slices_changes_nothing(tiny_gpt2, monkeypatch):
    from embspace.maps import lens_rows as reading

    model = embspace.load(str(tiny_gpt2))
    whole = embspace.lens(model, PROMPT, "id", track="#7")
    monkeypatch.setattr(reading, "SLICE", 900)
    sliced = embspace.lens(model, PROMPT, "id", track="#7")
    for name, tensor in vars(whole.grids["id"]).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.allclose(tensor, getattr(sliced.grids["id"], name), atol=1e-5)


def test_ties_go_to_the_smaller_id(tiny_gpt2):
    class Tied(Head):
        def __call__(self, states: Any, room: Any = None) -> Any:
            z = torch.zeros(len(states), self.n_tokens)
            z[:, [5, 9, 20]] = 3.0
            return z

    head = Tied(embspace.load(str(tiny_gpt2)))
    found = read(head, torch.zeros(2, 32), 3, torch.tensor([9, 20]), (5, 0))
    assert found.ids.tolist() == [[5, 9, 20]] * 2
    assert found.rank.tolist() == [1, 2]
    assert found.tracked_rank[0].tolist() == [0, 3]


def test_settled_is_the_first_row_after_which_the_answer_never_leaves_the_top(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    grid = embspace.lens(model, PROMPT, "id").grids["id"]
    for at, settled in enumerate(grid.settled()):
        tops = [int(rank) == 0 for rank in grid.rank[:, at]]
        wanted = min(l for l in range(4) if all(tops[l:]))
        assert settled == str(wanted)


def test_layers_and_positions_choose_rows_and_columns(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    whole = embspace.lens(model, PROMPT, "id")
    part = embspace.lens(model, PROMPT, "id", layers=[2, 0], positions=[3, 1])
    assert part.grids["id"].rows == ("0", "2")
    assert [place.index for place in part.places] == [1, 3]
    assert torch.equal(part.grids["id"].ids, whole.grids["id"].ids[[0, 2]][:, [1, 3]])
    assert part.places[0].answer == whole.places[1].answer


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"layers": [4]}, EmbspaceError),
        ({"layers": [-5]}, EmbspaceError),
        ({"layers": []}, ModelError),
        ({"positions": [99]}, TextError),
        ({"positions": []}, TextError),
        ({"positions": "masks"}, VocabularyError),
        ({"track": "doctors teach"}, VocabularyError),
        ({"k": 0}, EmbspaceError),
        ({"prompt": "  "}, TextError),
        ({"prompt": "cats " * 80}, TextError),
        ({"maps": "mad"}, EmbspaceError),
        ({"maps": []}, EmbspaceError),
        ({"generate": 100}, TextError),
    ],
    ids=str,
)
def test_what_does_not_exist_is_refused(tiny_gpt2, given, error):
    model = embspace.load(str(tiny_gpt2))
    with pytest.raises(error):
        embspace.lens(model, **({"prompt": PROMPT, "maps": "id"} | given))


def test_maps_of_other_weights_are_refused(tiny_gpt2, tiny_llama):
    maps = maps_of(embspace.load(str(tiny_llama)))
    with pytest.raises(EmbspaceError, match="fit them again"):
        embspace.lens(embspace.load(str(tiny_gpt2)), PROMPT, maps)


def test_a_tracked_word_is_shown_in_each_spelling_that_is_one_token(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    ids = model.vocabulary.token_ids("s")
    found = embspace.lens(model, PROMPT, "id", track="s", k=300)
    assert [i for i, _ in found.tracked] == ids
    grid = found.grids["id"]
    for n, i in enumerate(ids):
        place = (grid.ids == i).int().argmax(-1)
        assert torch.equal(grid.tracked_rank[:, :, n], place)
        p = grid.p.gather(-1, place[..., None])[..., 0]
        assert torch.allclose(grid.tracked_p[:, :, n], p, atol=1e-6)


def test_the_cached_steps_are_those_of_one_pass_over_the_whole_text(tiny_gpt2, tiny_llama):
    for folder in (tiny_gpt2, tiny_llama):
        model = embspace.load(str(folder))
        stepped = embspace.lens(model, "The cats", "id", generate=5)
        n = len(stepped.places)
        module = live(folder)
        with torch.no_grad():
            own = module(torch.tensor([list(stepped.ids)])).logits[0, :, :300]
        first = len(stepped.ids) - n
        new = list(stepped.ids[first:])
        assert own[first - 1 : -1].argmax(-1).tolist() == new  # greedy, by the model itself
        assert [place.answer for place in stepped.places] == new
        text = model.vocabulary.tokenizer.decode(stepped.ids)
        again = model.vocabulary.tokenizer(text)["input_ids"]
        if tuple(again) == stepped.ids:
            whole = embspace.lens(
                model, text, "id", positions=list(range(first - 1, first + n - 1))
            )
            assert torch.allclose(whole.grids["id"].p, stepped.grids["id"].p, atol=1e-4)


def test_inside_a_block_is_the_stream_after_attention(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    found = embspace.lens(model, PROMPT, "id", inside=True, k=5)
    module = live(tiny_gpt2)
    inside: list[torch.Tensor] = []
    for block in module.transformer.h:
        block.ln_2.register_forward_pre_hook(lambda m, args: inside.append(args[0][0]))
    with torch.no_grad():
        module(torch.tensor([list(found.ids)]))
        z = [module.lm_head(module.transformer.ln_f(x))[:, :300] for x in inside]
    grid = found.grids["id"]
    assert grid.rows == ("0", "0.mid", "1", "1.mid", "2", "2.mid", "3")
    for l in range(3):
        assert torch.equal(grid.ids[2 * l + 1], z[l].topk(5).indices)


def test_parallel_blocks_have_no_inside(save_model):
    from transformers import GPTNeoXConfig

    config = GPTNeoXConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        use_parallel_residual=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = embspace.load(str(save_model(config)))
    with pytest.raises(ModelError, match="side by side"):
        embspace.lens(model, "The cats", "id", inside=True)


def test_the_same_answer_in_another_form(tiny_gpt2):
    found = embspace.lens(embspace.load(str(tiny_gpt2)), PROMPT, "id", k=3, track="s")
    data = found.to_dict()
    tokens = data["grids"]["id"]["tokens"]
    rows = found.rows()
    assert len(rows) == 4 * len(found.places) * 3
    assert rows[0]["token"] == tokens[0][0][0] and rows[0]["p"] == data["grids"]["id"]["p"][0][0][0]
    assert found.to_json() and found.to_csv()


def test_memory_does_not_grow_with_layers_times_tokens_times_vocabulary(tmp_path, save_model):
    """12 layers × 512 tokens × 50,304 rows would be 1.3 GB of logits."""
    import subprocess
    import sys

    from transformers import GPT2Config

    folder = save_model(
        GPT2Config(vocab_size=50304, n_embd=64, n_layer=12, n_head=4, n_positions=512),
        tokenizer=None,
    )
    code = f"""
import resource, torch
torch.set_num_threads(1)
import embspace
from embspace.maps.decoding import Head
from embspace.maps.lens_rows import read
from embspace.text.passages import Passage
from embspace.live.running import run
from embspace.live.capture import capture_all
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
model = embspace.load({str(folder)!r})
every = tuple(range(512))
states = capture_all(run(model, attention="fast"), [Passage(every, every, 0)])
read(Head(model), states.layers[12][:2], 10, None)
before = peak()
x = torch.cat([states.layers[l] for l in range(12)])
read(Head(model), x, 10, torch.zeros(len(x), dtype=torch.long))
print(peak() - before)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 500


def test_a_lens_says_of_maps_that_they_are_not_determined_or_may_know_the_prompt(
    tiny_gpt2, tmp_path
):
    model = embspace.load(str(tiny_gpt2))
    lines = [f"{PROMPT} again, {n}" for n in range(20)]
    found = embspace.lens(model, PROMPT, ["id", "mat"], text=lines)
    said = " ".join(found.notes)
    assert "15 rows do not determine maps of width 32" in said
    assert "The prompt stands in" in said
    enough = embspace.lens(model, PROMPT, "mat", text=[f"cats and dogs {n}" for n in range(99)])
    said = " ".join(enough.notes)
    assert "do not determine" not in said and "The prompt stands in" not in said


def test_ranks_count_from_one_in_what_is_written(tiny_gpt2):
    found = embspace.lens(embspace.load(str(tiny_gpt2)), PROMPT, "id", track="#7")
    data, grid = found.to_dict()["grids"]["id"], found.grids["id"]
    assert data["answer_rank"] == (grid.rank + 1).tolist()
    assert set(data["answer_rank"][-1]) == {1}  # the last layer is the answer
    assert data["tracked_rank"] == (grid.tracked_rank + 1).tolist()
    assert min(row["answer_rank"] for row in found.rows()) == 1


def test_several_prompts_are_each_what_they_are_alone(tiny_gpt2):
    model = embspace.load(str(tiny_gpt2))
    prompts = ["The cats saw Paris", "dogs"]
    found = embspace.lens(model, prompts, "id", k=3)
    assert len(found) == 2
    for prompt, one in zip(prompts, found, strict=True):
        assert one.to_dict() == embspace.lens(model, prompt, "id", k=3).to_dict()
    assert {row["prompt"] for row in found.rows()} == {0, 1}
    with pytest.raises(TextError, match="no prompt"):
        embspace.lens(model, [], "id")


@pytest.mark.parametrize("prompt", [5, b"hi", ["a", 5]])
def test_a_prompt_that_is_no_text_is_refused(tiny_gpt2, prompt):
    with pytest.raises(TextError, match="a prompt is text, not"):
        embspace.lens(embspace.load(str(tiny_gpt2)), prompt, "id")
