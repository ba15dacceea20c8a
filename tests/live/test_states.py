"""How states are taken: batches, padding, mode, hooks, what is not finite, a caller's own model."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from embspace import load
from embspace.errors import ModelError
from embspace.live.attach import attach
from embspace.live.capture import StateError, batches, capture, capture_all, padded
from embspace.live.recorder import PARTS
from embspace.live.running import run
from embspace.text.passages import Passage


def passes_of(lengths, *, keep="all") -> list[Passage]:
    """A pass of every length, ids drawn by the line's number."""
    found = []
    for line, n in enumerate(lengths):
        ids = tuple((13 * line + 7 * t) % 290 + 1 for t in range(n))
        found.append(Passage(ids, tuple(range(n)) if keep == "all" else (n - 1,), line))
    return found


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return load(tiny_gpt2)


@pytest.fixture
def live(tiny_gpt2):
    return AutoModelForCausalLM.from_pretrained(tiny_gpt2, attn_implementation="eager")


def n_hooks(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def test_batches_hold_every_pass_once_and_no_more_ids_than_asked():
    passes = passes_of([(37 * n) % 50 + 1 for n in range(500)])
    found = list(batches(passes, 128))
    assert sorted(p.line for batch in found for p in batch) == list(range(500))
    assert all(len(b) == 1 or len(b) * max(len(p.ids) for p in b) <= 128 for b in found)
    assert found == list(batches(passes, 128))
    pad = sum(max(len(p.ids) for p in b) - len(p.ids) for b in found for p in b)
    assert pad < 0.05 * sum(len(p.ids) for p in passes)


def test_the_first_batches_are_of_all_lengths():
    """So that what is judged early is like what comes later."""
    passes = passes_of([n // 20 + 1 for n in range(800)])
    sizes = [len(batch[0].ids) for batch in batches(passes, 40)]
    assert sizes != sorted(sizes)
    assert sizes != sorted(sizes, reverse=True)
    assert max(sizes[:20]) > 2 * min(sizes[:20])


def test_padding_is_masked_by_length_and_never_by_id():
    """A pad token inside a text is a token like others."""
    ids, mask = padded([Passage((5, 0, 7), (2,), 0), Passage((0,), (0,), 1)], 0)
    assert ids.tolist() == [[5, 0, 7], [0, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_end_tokens_inside_a_text_are_attended_and_kept(model, live):
    """They are also what texts are padded with here."""
    passes = [Passage((5, 0, 9, 0, 30), (0, 1, 2, 3, 4), 0), Passage((8, 9), (1,), 1)]
    states = capture_all(run(model), passes)
    with torch.no_grad():
        true = live.transformer(torch.tensor([passes[0].ids]), output_hidden_states=True)
    assert torch.allclose(states.layers[2][:5], true.hidden_states[2][0], atol=1e-4)


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_rows_do_not_depend_on_the_batches(model, batch_tokens):
    running, passes = run(model), passes_of([3, 9, 1, 20, 9, 5, 31], keep="last")
    alone = torch.cat([capture_all(running, [one]).stacked() for one in passes], 1)
    together = capture_all(running, passes, batch_tokens=batch_tokens)
    assert together.lines.tolist() == list(range(7))
    assert torch.allclose(together.stacked(), alone, atol=1e-4)


def test_processes_that_share_batches_run_each_of_them_once(model):
    running, passes = run(model), passes_of([4, 9, 2, 7, 5, 6, 3])
    whole = list(capture(running, passes, batch_tokens=10))
    for size in (2, 3):
        parts = [
            list(capture(running, passes, batch_tokens=10, share=(r, size))) for r in range(size)
        ]
        for n, states in enumerate(whole):
            assert torch.equal(states.stacked(), parts[n % size][n // size].stacked())
        assert sum(len(part) for part in parts) == len(whole)
    rest = list(capture(running, passes, batch_tokens=10, share=(1, 2), skip_batches=1))
    assert torch.equal(rest[0].stacked(), whole[3].stacked())


def test_only_what_is_asked_for_is_kept(model):
    states = capture_all(run(model), passes_of([4]), layers=[3, 1])
    assert list(states.layers) == [1, 3]
    assert not states.parts
    assert len(states) == 4
    with pytest.raises(ModelError, match="states are 0 to 3"):
        capture_all(run(model), passes_of([4]), layers=[4])
    with pytest.raises(ModelError, match="no pass"):
        capture_all(run(model), [])


def test_a_pass_in_another_dtype_yields_float32(tiny_gpt2):
    model = load(tiny_gpt2)
    exact = capture_all(run(model), passes_of([9]))
    rough = capture_all(run(model, dtype=torch.bfloat16), passes_of([9]))
    assert rough.layers[3].dtype == torch.float32
    assert not torch.equal(rough.layers[3], exact.layers[3])
    assert (rough.layers[3] - exact.layers[3]).abs().max() < 0.1 * exact.layers[3].abs().max()
    fine = capture_all(run(model, dtype=torch.float64), passes_of([9]), dtype=torch.float64)
    assert fine.layers[3].dtype == torch.float64
    assert torch.allclose(fine.layers[3].float(), exact.layers[3], atol=1e-3)


# not finite ------------------------------------------------------------------------------
def test_nan_in_padded_rows_changes_nothing(model, live):
    running, passes = attach(model, live), passes_of([3, 9, 5])
    before = capture_all(running, passes).stacked()

    def spoil(module, args, output):
        x = output[0] if isinstance(output, tuple) else output
        for row, n in enumerate(sorted((3, 9, 5), reverse=True)):
            x[row, n:] = float("nan")
        return output

    handle = live.transformer.h[2].register_forward_hook(spoil)
    after = capture_all(running, passes).stacked()
    handle.remove()
    assert torch.equal(before, after)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_real_row_that_is_not_finite_stops_with_layer_and_line(model, live, value):
    def spoil(module, args, output):
        x = output[0] if isinstance(output, tuple) else output
        x[1, 1, 4] = value  # the batch is sorted: row 1 is line 0
        return output

    handle = live.transformer.h[1].register_forward_hook(spoil)
    with pytest.raises(StateError, match=r"state 2 of line 1 holds NaN or infinity"):
        capture_all(attach(model, live), passes_of([5, 9]))
    handle.remove()


def test_a_part_that_is_not_finite_stops_the_run_too(model, live):
    running = attach(model, live)
    with torch.no_grad():
        live.transformer.h[1].mlp.c_proj.bias[3] = float("nan")
    with pytest.raises(StateError, match="ff of block 1 of line 1"):
        capture_all(running, passes_of([5]), layers=(), parts=("ff",))


def test_half_precision_that_overflows_is_an_error_and_no_token(tiny_llama):
    model = load(tiny_llama)
    running = run(model, dtype=torch.float16)
    with torch.no_grad():
        running.module.model.layers[1].mlp.down_proj.weight *= 1e6
    with pytest.raises(StateError, match=r"state 2 .*float16.*run in float32"):
        capture_all(running, passes_of([6]))


# what is left behind ---------------------------------------------------------------------
def test_the_callers_mode_and_hooks_are_as_before(model, live):
    live.train()
    live.transformer.h[0].mlp.eval()  # a mixture of modes
    modes = {name: m.training for name, m in live.named_modules()}
    states = capture_all(attach(model, live), passes_of([6, 4]), parts=PARTS)
    assert {name: m.training for name, m in live.named_modules()} == modes
    assert n_hooks(live) == 0
    assert torch.equal(states.stacked(), capture_all(run(model), passes_of([6, 4])).stacked())


def test_an_error_leaves_no_hook_and_the_mode_as_it_was(model, live):
    live.train()

    def fail(module, args):
        raise RuntimeError("device lost\nmore")

    handle = live.transformer.h[1].register_forward_pre_hook(fail)
    with pytest.raises(ModelError, match=r"cannot be run: device lost") as error:
        capture_all(attach(model, live), passes_of([6]), parts=PARTS)
    assert "\n" not in str(error.value)
    handle.remove()
    assert n_hooks(live) == 0
    assert live.training


def test_a_run_that_is_given_up_leaves_no_hook(model, live):
    found = capture(attach(model, live), passes_of([6, 3, 9]), batch_tokens=1)
    next(found)
    assert n_hooks(live) > 0
    found.close()
    assert n_hooks(live) == 0


def test_a_live_model_with_fewer_blocks_is_refused_and_gets_no_hook(model):
    other = GPT2LMHeadModel(GPT2Config(vocab_size=304, n_embd=32, n_layer=2, n_head=4))
    with pytest.raises(ModelError, match="has no module"):
        capture_all(attach(model, other), passes_of([6]))
    assert n_hooks(other) == 0


# a caller's own model --------------------------------------------------------------------
@pytest.mark.parametrize("name", ["transformer.wte.weight", "transformer.h.2.mlp.c_fc.bias"])
def test_a_live_model_of_other_weights_is_refused_by_the_tensor_that_differs(model, live, name):
    with torch.no_grad():
        live.get_parameter(name).view(-1)[-1] += 1.0
    with pytest.raises(ModelError, match=f"its {name} holds other numbers"):
        attach(model, live)


def test_a_live_model_of_other_settings_is_refused_by_the_setting(model, live):
    live.config.layer_norm_epsilon = 0.1
    with pytest.raises(ModelError, match=r"layer_norm_epsilon 0\.1 instead of 1e-05"):
        attach(model, live)


def test_a_live_model_with_more_parameters_than_its_checkpoint_is_refused(model, live):
    live.transformer.h[1].mlp.register_parameter("added", nn.Parameter(torch.zeros(3)))
    with pytest.raises(ModelError, match=r"it holds transformer\.h\.1\.mlp\.added"):
        attach(model, live)


def test_a_live_model_that_lacks_a_bias_of_its_checkpoint_is_refused(model, live):
    live.transformer.h[1].mlp.c_fc.bias = None
    with pytest.raises(ModelError, match=r"it has no transformer\.h\.1\.mlp\.c_fc\.bias"):
        attach(model, live)


def test_the_dtype_of_a_live_model_is_that_of_its_parameters(model, live):
    assert attach(model, live).dtype == torch.float32
    assert attach(model, live.to(torch.bfloat16)).dtype == torch.bfloat16


def test_weights_that_are_not_loaded_are_refused_at_once(model):
    with torch.device("meta"):
        empty = GPT2LMHeadModel(GPT2Config(vocab_size=304, n_embd=32, n_layer=3, n_head=4))
    with pytest.raises(ModelError, match="not loaded"):
        attach(model, empty)


def test_a_model_whose_weights_lie_on_disk_is_refused_at_once(model, live, tmp_path):
    """Offloaded by accelerate: its parameters hold no values until a part is called."""
    accelerate = pytest.importorskip("accelerate")
    kept = ("lm_head", *(f"transformer.{name}" for name in ("wte", "wpe", "h.0", "h.2", "ln_f")))
    places = dict.fromkeys(kept, "cpu") | {"transformer.h.1": "disk"}
    accelerate.dispatch_model(live, places, main_device="cpu", offload_dir=tmp_path)
    with pytest.raises(ModelError, match="not loaded"):
        attach(model, live)


def test_another_architecture_is_refused(model, tiny_llama):
    other = AutoModelForCausalLM.from_pretrained(tiny_llama)
    with pytest.raises(ModelError, match=r"keeps its embedding at model\.embed_tokens"):
        attach(model, other)


def test_blocks_spread_over_devices_yield_the_same(model):
    pytest.importorskip("accelerate")
    spread = run(model, attention="fast", device_map="auto")
    one = run(model, attention="fast")
    passes = passes_of([6, 9])
    assert torch.allclose(
        capture_all(spread, passes).stacked(), capture_all(one, passes).stacked(), atol=1e-5
    )
