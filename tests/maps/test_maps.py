"""Maps on disk and on the model they belong to."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from embspace import load
from embspace.errors import EmbspaceError, MapsError
from embspace.maps.fit import fit
from embspace.maps.maps import Maps
from embspace.maps.remembered import fitted
from embspace.text.text import Text


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return load(tiny_gpt2)


@pytest.fixture(scope="module")
def maps(model, corpus) -> Maps:
    return fit(model, Text.read(corpus, positions=3), pairs="all", kind="affine")


def test_a_file_holds_all_of_them_and_is_no_pickle(maps, model, tmp_path):
    path = maps.save(tmp_path / "m.safetensors")
    found = Maps.load(path, model)
    assert found.about == maps.about
    assert found.pairs == maps.pairs
    assert found.tensors.keys() == maps.tensors.keys()
    assert all(torch.equal(found.tensors[name], t) for name, t in maps.tensors.items())
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    with safe_open(path, "pt") as file:  # by the format's own reader
        assert file.get_tensor("A.0-3").dtype == torch.float32
    assert not {b"\x80\x02", b"\x80\x04"} & {path.read_bytes()[:2]}
    assert b"cpickle" not in path.read_bytes().lower()


def test_what_decides_the_maps_is_recorded(maps, model, corpus):
    about = maps.about
    assert about["model_hash"] == model.checkpoint.fingerprint
    assert about["text_hash"] == corpus.digest
    assert (about["kind"], about["d"], about["n_layers"]) == ("affine", 32, 3)
    assert (about["positions"], about["seed"], about["run_dtype"]) == (3, 0, "float32")
    assert about["rows"] + about["rows_scored"] > 300
    assert len(about["tokenizer_hash"]) == 16
    assert about["embspace"]
    assert len(about["marks"]) == 90
    assert "marks" not in maps.to_dict()["about"]
    assert [(p.source, p.target) for p in maps.pairs] == [
        (str(a), str(b)) for a in range(3) for b in range(a + 1, 4)
    ]


def test_applying_is_a_product_and_the_last_state_stays(maps):
    x = torch.randn(2, 5, 32)
    assert torch.allclose(maps.apply(x, 1, 2), x @ maps[1, 2] + maps.tensors["b.1-2"])
    assert torch.equal(maps.apply(x, 0), maps.apply(x, 0, 3))
    assert maps.apply(x, 3) is x
    assert maps.apply(x.double(), 1).dtype == torch.float64
    assert (0, 3) in maps
    assert (3, 0) not in maps
    with pytest.raises(MapsError, match="no map 2 → 1 was fitted"):
        maps.apply(x, 2, 1)


def test_maps_of_other_weights_are_refused(maps, model, tiny_gpt2, byte_tokenizer, tmp_path):
    """The same sizes and tokenizer, another seed."""
    torch.manual_seed(1)
    config = GPT2Config.from_pretrained(tiny_gpt2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "other")
    byte_tokenizer.save_pretrained(tmp_path / "other")
    path = maps.save(tmp_path / "m")
    with pytest.raises(MapsError, match=r"weights .* not on"):
        Maps.load(path, load(tmp_path / "other"))
    assert Maps.load(path, model).about == maps.about


@pytest.mark.parametrize("how", ["one number", "two rows swapped"])
def test_maps_of_weights_of_which_one_row_was_changed_are_refused(
    save_model, corpus, tmp_path, how: str
):
    """A neuron switched off by hand: too little for a hash over a sample of the weights."""
    config = GPT2Config(
        vocab_size=20_000, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.5
    )
    folder = save_model(config)
    model = load(folder)
    maps = fit(model, corpus)
    path = maps.save(tmp_path / "m")
    fitted(model, corpus)
    assert Maps.load(path, load(folder)).about == maps.about
    state = load_file(folder / "model.safetensors")
    table = state["transformer.wte.weight"]
    if how == "one number":
        table[11_111, 3] += 1e-3
    else:
        table[[7_777, 7_778]] = table[[7_778, 7_777]]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    other = load(folder)
    assert other.checkpoint.fingerprint == model.checkpoint.fingerprint
    with pytest.raises(MapsError, match="fit them again"):
        Maps.load(path, other)
    assert not fitted(other, corpus)[1]


@pytest.fixture
def copied(tiny_gpt2, tmp_path):
    """A copy of the model's folder, and a way to change one of its JSON files."""
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path / "copy"))

    def change(name: str, **entries) -> Path:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | entries))
        return folder

    return change


def test_maps_of_the_same_weights_with_other_settings_are_refused(maps, copied, tmp_path):
    """The same shapes and tensors, but other states."""
    path = maps.save(tmp_path / "m")
    folder = copied("config.json", layer_norm_epsilon=0.5)
    with pytest.raises(
        MapsError, match=r"same weights, but .* has layer_norm_epsilon 0\.5 instead"
    ):
        Maps.load(path, load(folder))


def test_settings_that_change_no_state_do_not_matter(maps, copied, tmp_path):
    """What a save by another version, or a training, leaves in a config."""
    path = maps.save(tmp_path / "m")
    folder = copied(
        "config.json",
        transformers_version="4.40.0",
        attn_pdrop=0.3,
        use_cache=False,
        eos_token_id=5,
        unsloth_fixed=True,
        id2label={"0": "bad"},
    )
    assert Maps.load(path, load(folder)).pairs == maps.pairs


def test_maps_of_the_same_weights_with_other_tokens_are_refused(maps, copied, tmp_path):
    path = maps.save(tmp_path / "m")
    tokenizer = json.loads((copied("config.json") / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = {
        {"s": "t", "t": "s"}.get(piece, piece): n
        for piece, n in tokenizer["model"]["vocab"].items()
    }
    folder = copied("tokenizer.json", model=tokenizer["model"])
    with pytest.raises(MapsError, match="other tokens in its tokenizer"):
        Maps.load(path, load(folder))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert Maps.load(path, load(folder)).pairs == maps.pairs  # weights alone have none to differ


def test_the_same_weights_in_shards_are_accepted(maps, tiny_gpt2, byte_tokenizer, tmp_path):
    live = AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    live.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    byte_tokenizer.save_pretrained(tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 5
    path = maps.save(tmp_path / "m")
    assert Maps.load(path, load(tmp_path / "shards")).pairs == maps.pairs


def test_maps_of_which_matrices_were_not_kept_are_not_saved(model, corpus, tmp_path):
    some = fit(model, corpus, pairs="all", keep="final")
    assert len(some.pairs) == 6
    assert (0, 3) in some
    assert (0, 1) not in some
    with pytest.raises(MapsError, match="not saved"):
        some.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_leaves_nothing(maps, tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "no" / "m", tmp_path / "folder"):
        with pytest.raises(EmbspaceError, match=r"cannot be written|is a folder"):
            maps.save(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["folder"]


SAVING = """
import sys
from embspace.maps.maps import Maps
maps = Maps.load(sys.argv[1])
print("ready", flush=True)
while True:
    maps.save(sys.argv[2])
"""


def test_a_save_killed_at_any_moment_leaves_a_whole_file_or_none(maps, tmp_path):
    source, target = maps.save(tmp_path / "m"), tmp_path / "out" / "m"
    target.parent.mkdir()
    command = [sys.executable, "-c", SAVING, str(source), str(target)]
    root = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    end = time.monotonic() + 60
    while not target.exists() and time.monotonic() < end:
        time.sleep(0.001)
    for _ in range(200):  # read while it is being replaced over and over
        assert len(Maps.load(target).pairs) == 6
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert Maps.load(target).about == maps.about


def test_states_of_another_width_are_refused_in_one_sentence(tiny_gpt2, corpus):
    maps = fit(load(tiny_gpt2), Text.read(corpus, fit=range(60)))
    for shape in ((3, 7), (5,), ()):
        with pytest.raises(MapsError, match="states of width 32 are mapped"):
            maps.apply(torch.ones(shape), 0, 3)


def test_a_record_prints_no_list_of_hashes(tiny_gpt2, corpus):
    about = fit(load(tiny_gpt2), corpus).about
    assert len(about["marks"]) == 90 and "<90 entries>" in repr(about)
    assert about["marks"][0] not in repr(about)
    assert about == dict(about)
