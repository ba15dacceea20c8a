"""Which settings of a config change a model's states: maps are refused for those and no others."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import embspace
from embspace.errors import MapsError
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.fit import fit
from embspace.text.passages import passages
from embspace.text.text import Text
from embspace.weights.settings import difference, settings_of

FLAGS = (
    *("tie_last_hidden_states", "output_router_logits", "use_cache", "output_hidden_states"),
    *("summary_use_proj", "torchscript"),
)
NUMBERS = ("chunk_size_feed_forward", "bos_token_id", "image_token_index")
SHARES = ("initializer_range", "resid_pdrop", "summary_first_dropout", "temperature")
IDLE = {
    **dict.fromkeys(FLAGS, (True, False)),
    **dict.fromkeys(NUMBERS, (1, 2)),
    **dict.fromkeys(SHARES, (0.1, 0.3)),
}


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    return [f"the {chr(65 + n % 26)} cat {n} saw Paris and Rome" for n in range(60)]


def edited(folder: Path, place: Path, **settings: Any) -> Path:
    """A copy of a model whose config says something else."""
    shutil.copytree(folder, place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | settings))
    return place


def states(folder: Path, corpus: list[str]) -> torch.Tensor:
    model = embspace.load(str(folder))
    found = passages(model, Text.read(corpus), lines=range(8))
    return capture_all(run(model), found.passages).stacked()


@pytest.mark.parametrize("name", IDLE)
def test_maps_are_taken_where_no_state_differs(tiny_gpt2, corpus, tmp_path, name: str):
    both = [edited(tiny_gpt2, tmp_path / str(v), **{name: v}) for v in IDLE[name]]
    assert torch.equal(*(states(each, corpus) for each in both))
    first, second = (embspace.load(str(each)) for each in both)
    assert fit(first, corpus).require(second)


def test_maps_are_refused_where_states_differ(tiny_gpt2, corpus, tmp_path):
    other = edited(tiny_gpt2, tmp_path / "other", scale_attn_by_inverse_layer_idx=True)
    assert not torch.equal(states(tiny_gpt2, corpus), states(other, corpus))
    with pytest.raises(MapsError, match="scale_attn_by_inverse_layer_idx True instead of False"):
        fit(embspace.load(tiny_gpt2), corpus).require(embspace.load(str(other)))


def test_the_padding_id_counts_where_positions_are_counted_from_it():
    sizes = {"vocab_size": 304, "hidden_size": 32, "num_hidden_layers": 2}
    counted = [hf.RobertaConfig(pad_token_id=n, **sizes) for n in (1, 2)]
    assert "pad_token_id" in str(difference(settings_of(counted[0]), counted[1]))
    idle = [hf.BertConfig(pad_token_id=n, **sizes) for n in (1, 2)]
    assert difference(settings_of(idle[0]), idle[1]) is None


def test_an_encoder_that_reads_one_way_only_is_another_model():
    sizes = {"vocab_size": 304, "hidden_size": 32, "num_hidden_layers": 2}
    both, one = (hf.BertConfig(is_decoder=v, **sizes) for v in (False, True))
    assert "is_decoder" in str(difference(settings_of(both), one))


def test_settings_inside_a_config_are_judged_alike():
    outer = {"vision_config": {"depth": 2}, "text_config": {"use_cache": True, "rope_theta": 1.0}}

    def config(**inner: Any) -> Any:
        said = outer | {"text_config": outer["text_config"] | inner}
        return type("Config", (), {"to_dict": lambda self: said})()

    recorded = settings_of(config())
    assert recorded == {"text_config": {"rope_theta": 1.0}}
    assert difference(recorded, config(use_cache=False)) is None
    assert "text_config.rope_theta" in str(difference(recorded, config(rope_theta=2.0)))
