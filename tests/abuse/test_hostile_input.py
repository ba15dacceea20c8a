"""Hostile files, options and arguments. What holds is asserted; what does not is a strict xfail."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

import embspace
from embspace.cache import write_atomically
from embspace.errors import CannotRunError, EmbspaceError, ModelError
from embspace.models.load import load

INDEX = "model.safetensors.index.json"
ATTENTION = "transformer.h.0.attn.c_attn.weight"
VALUES = "transformer.h.0.mlp.c_proj.weight"


def fails_today(reason: str, *raises: type[BaseException]) -> pytest.MarkDecorator:
    """A defect of today: strict, so that its mending is noticed."""
    return pytest.mark.xfail(strict=True, reason=reason, raises=raises or None)


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a model folder that may be damaged."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("heads", folder)` in this process."""
    from embspace_cli.main import cli

    return lambda *a: CliRunner().invoke(cli, [str(x) for x in a], prog_name="embspace")


def in_one_line(result: Result, code: int = 1) -> None:
    """The run failed with one sentence of ours, and printed nothing else."""
    assert result.exit_code == code, (result.exit_code, result.output)
    assert "unexpected " not in result.stderr and "Traceback" not in result.stderr, result.stderr
    if code == 1:
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1 and len(result.stderr) < 1000


def edit(folder: Path, file: str, **changes: Any) -> Path:
    """Change keys of a JSON file of a folder."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def with_tensors(folder: Path, **changes: Any) -> Path:
    """Replace tensors of a folder (names with dots go in a dict)."""
    stored = load_file(folder / "model.safetensors") | changes
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def with_header(folder: Path, header: bytes) -> Path:
    """A safetensors file with this header and 64 bytes of data."""
    content = struct.pack("<Q", len(header)) + header + bytes(64)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def entry(offsets: str, shape: str = "[1]") -> bytes:
    """A header of one tensor."""
    return f'{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}'.encode()


# checkpoint files --------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**40, 2**63, 2**64 - 1])
def test_an_absurd_header_length_is_refused(tiny_gpt2, copy, length):
    file = copy(tiny_gpt2) / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(file.parent)


@pytest.mark.parametrize(
    "header",
    [
        *(b"[]", b"3", b"null", b"{}", b'{"a":3}', b'{"__metadata__":3}', b"\xff"),
        *(entry("[-8,8]"), entry("[8,0]"), entry("[0,4]", "[-1]"), entry("[0,1e400]")),
        *(entry("[0,NaN]"), entry("[0,%s]" % ("9" * 5000)), entry("[0,4]", f"[{2**62},{2**62}]")),
    ],
    ids=lambda header: header[:70].decode("latin1"),
)
def test_a_false_header_is_refused(tiny_gpt2, copy, header):
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(with_header(copy(tiny_gpt2), header))


@pytest.mark.parametrize(
    "header",
    [entry('["x","y"]'), entry("[0,null]"), entry("[0,[4]]"), entry("[]"), b"[" * 200_000],
    ids=lambda header: header[:70].decode("latin1"),
)
def test_a_header_of_wrong_types_is_refused(tiny_gpt2, copy, header):
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(with_header(copy(tiny_gpt2), header))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_packed_embeddings_are_refused(tiny_gpt2, copy, run, dtype):
    name = "transformer.wte.weight"
    stored = load_file(tiny_gpt2 / "model.safetensors")[name]
    folder = with_tensors(copy(tiny_gpt2), **{name: stored.to(dtype)})
    for command in ("heads", "ff"):
        result = run(command, folder, "-k", 1)
        assert result.exit_code == 1 and "packed or quantised" in result.stderr


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["transformer.wte.weight", ATTENTION, VALUES])
def test_weights_that_are_no_numbers_are_refused(tiny_gpt2, copy, run, name, value):
    tensor = load_file(tiny_gpt2 / "model.safetensors")[name]
    tensor.view(-1)[7] = value
    folder = with_tensors(copy(tiny_gpt2), **{name: tensor})
    for command in ("heads", "ff", "check"):
        assert run(command, folder).exit_code == 1


@pytest.mark.parametrize("cut", [slice(0), slice(-1)], ids=["empty", "short"])
def test_matrices_that_contradict_the_config_are_refused(tiny_gpt2, copy, run, cut):
    tensor = load_file(tiny_gpt2 / "model.safetensors")[VALUES]
    folder = with_tensors(copy(tiny_gpt2), **{VALUES: tensor[cut].contiguous()})
    in_one_line(run("heads", folder, "-k", 1))


def test_an_embedding_that_is_no_matrix_is_refused(tiny_gpt2, copy, run):
    name = "transformer.wte.weight"
    flat = load_file(tiny_gpt2 / "model.safetensors")[name].reshape(-1)
    in_one_line(run("heads", with_tensors(copy(tiny_gpt2), **{name: flat})))


def test_a_live_model_of_other_shapes_is_no_reason_to_read_without_proof(tiny_gpt2, copy):
    name = "transformer.h.1.ln_2.weight"  # of no matrix that is read: the live model tells
    folder = with_tensors(copy(tiny_gpt2), **{name: torch.ones(31)})
    with pytest.raises(ModelError, match=rf"{name} is \(31,\).*asks for \(32,\)"):
        embspace.certify(load(folder))


def test_a_tensor_of_a_block_that_is_not_there_is_named(tiny_gpt2, copy):
    folder, name = copy(tiny_gpt2), "transformer.h.1.ln_2.weight"
    stored = load_file(folder / "model.safetensors")
    del stored[name]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"lacks {name}"):
        embspace.certify(load(folder))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (VALUES, (52, 31)),
        (ATTENTION, (96, 32)),
        ("transformer.h.2.attn.c_proj.weight", (31, 32)),
        ("transformer.h.2.attn.c_attn.bias", (95,)),
        ("transformer.wte.weight", (304, 31)),
        ("transformer.wte.weight", (0, 32)),
    ],
)
def test_shapes_are_compared_when_a_model_is_opened(tiny_gpt2, copy, name, shape):
    with pytest.raises(ModelError, match=r"expected|no projection"):
        load(with_tensors(copy(tiny_gpt2), **{name: torch.ones(shape)}))


def test_what_transformers_does_not_know_cannot_be_run(tiny_gpt2, monkeypatch):
    from transformers import AutoConfig

    from embspace.models.running import run as run_live

    model = load(tiny_gpt2)
    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda *a, **b: 1 / 0)
    with pytest.raises(CannotRunError, match="own code"):
        run_live(model)


@pytest.mark.parametrize("name", ["a/b.bin", "x.txt", "a\nb.bin", "n" * 300 + ".bin", ".."])
def test_shards_are_plain_files_of_weights(tiny_gpt2, copy, name):
    folder = copy(tiny_gpt2)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"transformer.wte.weight": name}}))
    with pytest.raises(ModelError, match="not a file beside it"):
        load(folder)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.ones(1, device="meta")])
def test_tensors_without_dense_values_are_refused(tiny_gpt2, copy, tensor):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").unlink()
    torch.save({"transformer.wte.weight": tensor}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        load(folder)


@pytest.mark.parametrize("shard", [[], {}], ids=str)
def test_an_index_that_names_no_string_is_refused(tiny_gpt2, copy, shard):
    folder = copy(tiny_gpt2)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"transformer.wte.weight": shard}}))
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize("file", ["config.json", INDEX])
def test_deeply_nested_json_is_refused(tiny_gpt2, copy, file):
    folder = copy(tiny_gpt2)
    (folder / file).write_text("[" * 200_000)
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize("what", ["loop", "dangling", "folder", "fifo"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_what_is_no_file_is_refused_and_does_not_hang(tiny_gpt2, copy, what, file):
    path = copy(tiny_gpt2) / file
    path.unlink()
    make = {
        "loop": lambda: path.symlink_to(path.name),
        "dangling": lambda: path.symlink_to("/nowhere/at/all"),
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
    }
    make[what]()
    with pytest.raises(ModelError, match="holds no"):
        load(path.parent)


class _Runs:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_code_in_any_place_does_not_run(tiny_gpt2, copy, tmp_path, zipped):
    folder, touched = copy(tiny_gpt2), tmp_path / "touched"
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    for content in (_Runs(touched), {"transformer.wte.weight": _Runs(touched)}, [1], 3, {"a": 3}):
        torch.save(content, file, _use_new_zipfile_serialization=zipped)
        with pytest.raises(ModelError):
            load(folder)
    assert not touched.exists()


@pytest.mark.parametrize("content", ["empty", "number for a name"])
def test_a_bin_file_of_nothing_is_refused(tiny_gpt2, copy, content):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    file.touch() if content == "empty" else torch.save({1: torch.ones(1)}, file)
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        load(folder)


# configs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, [], {}, "x", -1, 0, 10**30, 1.5], ids=str)
@pytest.mark.parametrize("key", ["n_layer", "n_embd", "activation_function"])
def test_nonsense_in_the_config_is_never_a_bug(tiny_gpt2, copy, run, key, value):
    result = run("heads", edit(copy(tiny_gpt2), "config.json", **{key: value}), "-k", 1)
    assert result.exit_code in (0, 1) and "unexpected " not in result.stderr


@pytest.mark.parametrize("value", [[], {}, "x", 3, True], ids=str)
def test_a_text_config_that_is_none_is_refused(tiny_llama, copy, value):
    with pytest.raises(ModelError):
        load(edit(copy(tiny_llama), "config.json", text_config=value))


@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads"])
def test_negative_head_sizes_are_refused(tiny_llama, copy, key):
    with pytest.raises(ModelError, match=key):
        load(edit(copy(tiny_llama), "config.json", **{key: -1}))


# words, filters, options -------------------------------------------------------------------

HEAD = ("--layer", 0, "--head", 0)


@pytest.mark.parametrize("word", ["", " ", "#-1000", "#99999999999999999999", "unheard"])
def test_words_that_are_none_are_one_line(tiny_gpt2, run, word):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--token", word))


def test_a_word_that_is_no_text_is_one_line(tiny_gpt2, run):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--token", "\udcff"))


@pytest.mark.parametrize(
    "name", ["", "file:", "file:/", "file:/dev/null", "re:nonexistent", "re:(", "letters"]
)
def test_filters_that_are_none_are_one_line(tiny_gpt2, run, name):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--filter", name))


@pytest.mark.parametrize("name", ["file:a\0b", "re:a{99999999999}", "re:" + "(" * 5000])
def test_filters_beyond_reason_are_one_line(tiny_gpt2, run, name):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--filter", name))


def test_a_filter_that_leaves_one_token_works(tiny_gpt2, run):
    one = ("--filter", "re:^Z$")
    result = run("heads", tiny_gpt2, *HEAD, *one, "--json")
    assert all(len(circuit["pairs"]) == 1 for circuit in json.loads(result.stdout)["heads"])
    result = run("heads", tiny_gpt2, *HEAD, *one, "--exclude-same", "--json")
    assert all(circuit["pairs"] == [] for circuit in json.loads(result.stdout)["heads"])
    assert run("heads", tiny_gpt2, *one, "--exclude-same").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("ff", "--layer", 0, "--expert", "²"),
        ("ff", "--layer", 0, "--expert", "٣"),
        ("heads", "--device", "meta"),
        ("heads", "--device", "mps"),
        ("heads", "--device", "xla"),
        ("check", "--seed", 10**30),
    ],
    ids=str,
)
def test_option_values_beyond_reason_are_one_line(tiny_gpt2, run, arguments):
    command, *rest = arguments
    in_one_line(run(command, tiny_gpt2, *rest))


@pytest.mark.parametrize("name", ["~nobody-here/x", "x" * 5000, "a\0b"])
def test_names_beyond_reason_are_refused(name):
    with pytest.raises(ModelError, match="cannot be opened"):
        load(name)


@pytest.mark.parametrize("name", ["~nobody-here/x", "x" * 5000], ids=["home", "long"])
def test_names_beyond_reason_are_one_line(run, name):
    in_one_line(run("heads", name))
    in_one_line(run("models", name))


def test_csv_to_a_link_writes_where_it_points(tiny_gpt2, run, tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.touch()
    link.symlink_to(target)
    assert run("heads", tiny_gpt2, *HEAD, "--csv", link).exit_code == 0
    assert link.is_symlink() and target.stat().st_size


def test_files_are_written_to_what_is_there_and_folders_are_not_made(tmp_path):
    with pytest.raises(EmbspaceError, match="is a folder"):
        write_atomically(tmp_path, "x")
    with pytest.raises(EmbspaceError, match="there is no folder") as caught:
        write_atomically(tmp_path / "none" / "x.csv", "x")
    assert ".embspace-" not in str(caught.value) and not any(tmp_path.iterdir())
    write_atomically(tmp_path / "made" / "x.csv", "x", make_folder=True)
    write_atomically(Path(os.devnull), "x")
    assert Path(os.devnull).is_char_device()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(EmbspaceError, match="cannot be written"):
        write_atomically(tmp_path / "loop", "x")


def test_a_failure_at_the_first_line_prints_no_heading(tiny_gpt2, copy, run):
    packed = torch.zeros(32, 96, dtype=torch.uint8)
    result = run("heads", with_tensors(copy(tiny_gpt2), **{ATTENTION: packed}), "-k", 1)
    assert result.exit_code == 1 and "packed" in result.stderr
    assert result.stdout == ""


# the API -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "misuse",
    [
        lambda m: m.heads[-1, 0],
        lambda m: m.heads[0, 99],
        lambda m: m.ff[-1],
        lambda m: m.ff[0].values[-1],
        lambda m: m.ff[0].values[99],
        lambda m: m.token(""),
        lambda m: embspace.certify(m, layers=[]),
        lambda m: embspace.certify(m, layers=[99]),
        lambda m: m.vocabulary.project(torch.ones(3)),
        lambda m: m.vocabulary.project(torch.full((1, m.d), torch.nan)),
        lambda m: m.heads[0, 0].circuit("qk", distance=1).top_pairs(1),
    ],
)
def test_misuse_is_an_error_of_ours(tiny_gpt2, misuse):
    with pytest.raises(EmbspaceError):
        misuse(embspace.load(tiny_gpt2))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda m: m.heads[0, 0].circuit("ov").top_pairs(1),  # read as qk
        lambda m: m.heads[0, 0].circuit("vo", norm="fold").top_pairs(1),  # half folded
        lambda m: m.heads[0, 0].circuit("vo", inverse="svd").top_pairs(1),  # read as pinv
        lambda m: m.heads[0.5, 0],
        lambda m: m.ff[0].values[1.5].top_tokens(1),
        lambda m: m.ff[0].values.top_tokens(1, only=[-1]),
        lambda m: m.ff[0].values[0].top_tokens(-1),
        lambda m: m.ff[0].values[0].top_tokens(0),
        lambda m: m.ff[0].values.top_tokens(1, only=[99]),
        lambda m: m.ff[0].values.top_tokens(1, only=[True]),
        lambda m: m.ff[0].values.top_tokens(1, only=torch.ones(52, dtype=torch.bool)),
        lambda m: m.ff[0].values.top_tokens(1, only=3),
        lambda m: m.ff[0].values[1:3],
        lambda m: m.ff["a"],
        lambda m: m.ff[0:2],
        lambda m: m.ff[0, 1, 2],
        lambda m: m.heads[0],
        lambda m: m.heads[True, 0],
        lambda m: m.heads[0, 0].circuit("qk", distance=1.5),
        lambda m: m.heads[0, 0].vo.top_pairs(1.5),
        lambda m: m.heads[0, 0].vo.top_pairs(-1),
        lambda m: m.heads[0, 0].vo.top_pairs(True),
        lambda m: m.heads[0, 0].vo.top_pairs(1, filters=3),
        lambda m: m.heads[0, 0].vo.top_pairs(1, filters=[None]),
        lambda m: m.heads[0, 0].vo.row(3),
        lambda m: m.token(3),
        lambda m: m.token("#1", 0),
        lambda m: m.token("#" + "9" * 5000),
        lambda m: m.vectors(0, 0, "x"),
        lambda m: m.related(0, k=0),
        lambda m: next(m.survey(layers=0)),
        lambda m: embspace.certify(m, layers=0),
        lambda m: embspace.certify(m, seed=-1),
        lambda m: embspace.load(m.folder, family="gpt2"),
        lambda m: embspace.load(m.folder, device=None),
        lambda m: embspace.load(m.folder, device="cpu:1"),
    ],
)
def test_misuse_is_never_answered_silently(tiny_gpt2, misuse):
    with pytest.raises(EmbspaceError):
        misuse(embspace.load(tiny_gpt2))
