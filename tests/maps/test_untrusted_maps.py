"""Files of maps from elsewhere: whole and of these very weights, or refused; none of them runs."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import EmbspaceError, MapsError
from embspace.maps.fit import fit
from embspace.maps.imported import read_maps
from embspace.maps.maps import KEY, Maps
from embspace.weights.checksum import sealed

TEXTS = [f"the {chr(65 + n % 26)} cat {n} saw Paris and Rome" for n in range(60)]
MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def model(tiny_gpt2: Path) -> Any:
    return embspace.load(tiny_gpt2)


@pytest.fixture(scope="module")
def kept(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of maps of the small GPT-2."""
    path = tmp_path_factory.mktemp("maps") / "tiny.maps"
    fit(model, TEXTS, kind="affine").save(path)
    return path


def test_the_file_has_one_entry_of_metadata_for_the_library_writes_several_in_any_order(kept):
    with safe_open(kept, framework="pt") as file:
        assert set(file.metadata()) == {KEY}


def test_what_was_written_is_read_again_to_the_bit(model, kept):
    maps = Maps.load(kept, model)
    stored = load_file(kept)
    assert set(maps.tensors) == set(stored)
    assert all(torch.equal(maps.tensors[name], stored[name]) for name in stored)


@MANY
@given(data=st.data())
def test_one_flipped_bit_is_noticed_wherever_it_is(model, kept, tmp_path, data):
    content = bytearray(kept.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    refused(tmp_path / "flipped.maps", bytes(content), model, kept)


@MANY
@given(share=st.floats(0, 1))
def test_a_file_cut_anywhere_is_refused(model, kept, tmp_path, share):
    content = kept.read_bytes()
    refused(tmp_path / "cut.maps", content[: int(share * (len(content) - 1))], model, kept)


@MANY
@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused(model, kept, tmp_path, content):
    refused(tmp_path / "any.maps", content, model, kept)


def refused(path: Path, content: bytes, model: Any, kept: Path) -> None:
    """Refused in one sentence, or (where the change says nothing) the very same maps."""
    path.write_bytes(content)
    try:
        found = Maps.load(path, model)
    except EmbspaceError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return
    whole = Maps.load(kept)
    assert (found.about, found.pairs) == (whole.about, whole.pairs)
    assert all(torch.equal(found.tensors[name], whole.tensors[name]) for name in whole.tensors)


def rewritten(kept: Path, path: Path, change: Callable[[dict[str, Any], dict[str, Any]], Any]):
    """The file with its record or tensors changed, and sealed as if embspace had written it."""
    with safe_open(kept, framework="pt") as file:
        record = json.loads(file.metadata()[KEY].split("\n", 1)[1])
    tensors = load_file(kept)
    change(record, tensors)
    said = json.dumps(record)
    save_file(tensors, path, metadata={KEY: sealed(said, tensors)})
    return path


CHANGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "record a list": lambda r, t: r.update(about=[1]),
    "no width": lambda r, t: r["about"].pop("d"),
    "width a text": lambda r, t: r["about"].update(d="32"),
    "width a truth": lambda r, t: r["about"].update(d=True),
    "another width": lambda r, t: r["about"].update(d=31),
    "absurd width": lambda r, t: r["about"].update(d=2**70),
    "negative layers": lambda r, t: r["about"].update(n_layers=-3),
    "another format": lambda r, t: r.update(format=99),
    "notes a number": lambda r, t: r["about"].update(notes=3),
    "notes of numbers": lambda r, t: r["about"].update(notes=[3]),
    "marks a text": lambda r, t: r["about"].update(marks="abc"),
    "ridge a list": lambda r, t: r["about"].update(ridge=[1.0]),
    "pairs a number": lambda r, t: r.update(pairs=3),
    "a pair without rank": lambda r, t: r["pairs"][0].pop("rank"),
    "a pair with more": lambda r, t: r["pairs"][0].update(more=1),
    "rank a text": lambda r, t: r["pairs"][0].update(rank="full"),
    "r2 a text": lambda r, t: r["pairs"][0].update(r2="good"),
    "r2 not a number": lambda r, t: r["pairs"][0].update(r2=float("nan")),
    "condition infinite": lambda r, t: r["pairs"][0].update(condition=float("inf")),
    "source a list": lambda r, t: r["pairs"][0].update(source=[0]),
    "a pair too many": lambda r, t: r["pairs"].append(r["pairs"][0] | {"source": "7"}),
    "a matrix too many": lambda r, t: t.update({"A.9-3": t["A.0-3"].clone()}),
    "a matrix missing": lambda r, t: t.pop("A.1-3"),
    "a matrix flat": lambda r, t: t.update({"A.0-3": t["A.0-3"].reshape(-1)}),
    "a matrix of integers": lambda r, t: t.update({"A.0-3": t["A.0-3"].int()}),
    "a matrix of NaN": lambda r, t: t["A.0-3"].fill_(float("nan")),
    "an infinite shift": lambda r, t: t["b.0-3"][:1].fill_(float("inf")),
    "weights of another model": lambda r, t: r["about"].update(model_hash="0" * 16),
    "weights without a name": lambda r, t: r["about"].pop("model_hash"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_contents_of_the_wrong_kind_are_refused_in_one_sentence(model, kept, tmp_path, name: str):
    path = rewritten(kept, tmp_path / "x.maps", CHANGES[name])
    with pytest.raises(MapsError) as caught:
        Maps.load(path, model)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_record_that_is_endlessly_nested_is_refused(kept, tmp_path):
    deep = "[" * 100_000
    tensors = load_file(kept)
    save_file(tensors, tmp_path / "x.maps", metadata={KEY: sealed(deep, tensors)})
    with pytest.raises(MapsError, match="cannot be read as maps"):
        Maps.load(tmp_path / "x.maps")


@pytest.mark.parametrize("length", [2**31, 2**40, 2**63, 2**64 - 1])
def test_an_absurd_header_length_is_refused_without_memory(kept, tmp_path, length: int):
    path = tmp_path / "x.maps"
    path.write_bytes(struct.pack("<Q", length) + kept.read_bytes()[8:])
    with pytest.raises(MapsError, match=r"x\.maps"):
        Maps.load(path)


@pytest.mark.parametrize("shape", [[2**62, 2**62], [-1], [2**40], "x"], ids=str)
def test_absurd_shapes_are_refused_without_memory(tmp_path, shape):
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}
    header = json.dumps({"A.0-3": entry, "__metadata__": {KEY: "{}"}}).encode()
    (tmp_path / "x.maps").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(MapsError, match=r"x\.maps"):
        Maps.load(tmp_path / "x.maps")


class _Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("name", ["x.maps", "x.safetensors", "x.pickle", "x.pkl", "x.pt", "x.bin"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "torch"])
def test_a_pickle_is_refused_and_does_not_run(model, tmp_path, name: str, wrapped: bool):
    path, touched = tmp_path / name, tmp_path / "touched"
    if wrapped:
        torch.save({"J": {0: _Evil(touched)}}, path)
    else:
        path.write_bytes(pickle.dumps(_Evil(touched)))
    with pytest.raises(MapsError):
        read_maps(path, model)
    assert not touched.exists()


def test_a_tuned_lens_of_pickled_code_is_refused_and_does_not_run(model, tmp_path):
    touched = tmp_path / "touched"
    (tmp_path / "config.json").write_text("{}")
    torch.save({"0.weight": _Evil(touched)}, tmp_path / "params.pt")
    with pytest.raises(MapsError, match=r"params\.pt is refused"):
        read_maps(tmp_path, model)
    assert not touched.exists()


SQUARE = torch.eye(32)
LENSES: dict[str, Any] = {
    "a list": [1, 2],
    "no J": {"K": {}},
    "no layer": {"J": {}},
    "J a tensor": {"J": SQUARE},
    "a layer named by text": {"J": {"0": SQUARE}},
    "a layer that is not there": {"J": {3: SQUARE}},
    "a negative layer": {"J": {-1: SQUARE}},
    "another width": {"J": {0: torch.eye(31)}},
    "a number": {"J": {0: 3.0}},
    "NaN": {"J": {0: SQUARE * float("nan")}},
    "integers": {"J": {0: SQUARE.long()}},
    "packed": {"J": {0: SQUARE.to(torch.uint8)}},
    "sparse": {"J": {0: SQUARE.to_sparse()}},
    "meta": {"J": {0: torch.eye(32, device="meta")}},
    "complex": {"J": {0: SQUARE.to(torch.complex64)}},
    "truths": {"J": {True: SQUARE}},
}


@pytest.mark.parametrize("name", LENSES)
def test_a_jacobian_lens_of_the_wrong_kind_is_refused(model, tmp_path, name: str):
    torch.save(LENSES[name], tmp_path / "x.pt")
    with pytest.raises(MapsError) as caught:
        read_maps(tmp_path / "x.pt", model)
    assert "\n" not in str(caught.value)


ROWS = {"convention": "rows"}


def test_published_matrices_meet_rows_or_columns_as_their_file_says(model, tmp_path):
    A, b = torch.randn(32, 32), torch.randn(32)
    x = torch.randn(5, 32)
    for convention, matrix in (("rows", A), ("columns", A.T.contiguous())):
        tensors = {"mat.0-3": matrix, "bias.0-3": b, "mat.1-2": torch.eye(32)}
        path = tmp_path / f"{convention}.safetensors"
        save_file(tensors, path, metadata={"convention": convention})
        maps = read_maps(path, model)
        assert torch.equal(maps.apply(x, 0, 3), x @ A + b)
        assert torch.equal(maps.apply(x, 1, 2), x)
        assert maps.kind == "published maps" and "names no weights" in maps.recalled[0]
        assert [(p.source, p.target, p.r2) for p in maps.pairs] == [
            ("0", "3", None),
            ("1", "2", None),
        ]


def test_published_matrices_are_scored_like_any(model, tmp_path):
    ours, path = fit(model, TEXTS), tmp_path / "x.safetensors"
    save_file({f"mat.{l}-3": ours[l, 3].contiguous() for l in range(3)}, path, metadata=ROWS)
    unseen = [text.replace("cat", "dog") for text in TEXTS]
    found, expected = (embspace.score(model, maps, unseen) for maps in (path, ours))
    mine, theirs = found.to_dict()["layers"], expected.to_dict()["layers"]
    assert mine["id"] == theirs["id"] and mine["published maps"] == theirs["mat"]


PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, str] | None]] = {
    "no convention": ({"mat.0-3": SQUARE}, None),
    "an unknown convention": ({"mat.0-3": SQUARE}, {"convention": "left"}),
    "another name beside": ({"mat.0-3": SQUARE, "x": torch.ones(2)}, ROWS),
    "a shift alone": ({"mat.0-3": SQUARE, "bias.1-3": torch.ones(32)}, ROWS),
    "a shift of another width": ({"mat.0-3": SQUARE, "bias.0-3": torch.ones(31)}, ROWS),
    "another width": ({"mat.0-3": torch.eye(31)}, ROWS),
    "flat": ({"mat.0-3": torch.ones(1024)}, ROWS),
    "a layer that is not there": ({"mat.0-4": SQUARE}, ROWS),
    "backwards": ({"mat.3-0": SQUARE}, ROWS),
    "to itself": ({"mat.1-1": SQUARE}, ROWS),
    "integers": ({"mat.0-3": SQUARE.int()}, ROWS),
    "NaN": ({"mat.0-3": SQUARE * float("nan")}, ROWS),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_matrices_of_the_wrong_kind_are_refused(model, tmp_path, name: str):
    tensors, said = PUBLISHED[name]
    save_file(tensors, tmp_path / "x.safetensors", metadata=said)
    with pytest.raises(MapsError) as caught:
        read_maps(tmp_path / "x.safetensors", model)
    assert "\n" not in str(caught.value) and "x.safetensors" in str(caught.value)


def test_the_refusal_of_a_pickle_converts_it(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    A = torch.randn(32, 32)
    Path("0_3.pickle").write_bytes(pickle.dumps(A.numpy()))
    with pytest.raises(MapsError) as caught:
        read_maps("0_3.pickle", model)
    lines = str(caught.value).split("layers: ")[1].replace("0_12", "0_3").replace("0-12", "0-3")
    assert lines.count("; ") == 5
    exec(lines, {})
    x = torch.randn(2, 32)
    found = read_maps("published.safetensors", model).apply(x, 0, 3)
    assert torch.allclose(found, x @ A.T, atol=1e-5)


TUNED: dict[str, Any] = {
    "a list": [1],
    "a layer missing": {"0.weight": SQUARE},
    "another width": {f"{l}.weight": torch.eye(31) for l in range(3)},
    "a shift of another width": {f"{l}.weight": SQUARE for l in range(3)}
    | {f"{l}.bias": torch.ones(31) for l in range(3)},
    "NaN": {f"{l}.weight": SQUARE * float("nan") for l in range(3)},
    "integers": {f"{l}.weight": SQUARE.int() for l in range(3)},
    "sparse": {f"{l}.weight": SQUARE.to_sparse() for l in range(3)},
}


@pytest.mark.parametrize("name", TUNED)
def test_a_tuned_lens_of_the_wrong_kind_is_refused(model, tmp_path, name: str):
    (tmp_path / "config.json").write_text('{"base_model_name_or_path": 7}')
    torch.save(TUNED[name], tmp_path / "params.pt")
    with pytest.raises(MapsError) as caught:
        read_maps(tmp_path, model)
    assert "\n" not in str(caught.value)


@MANY
@given(data=st.data())
def test_a_damaged_torch_file_is_refused_or_read_whole(model, tmp_path, data):
    path = tmp_path / "x.pt"
    torch.save({"J": {l: (l + 2) * SQUARE for l in range(3)}}, path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    path.write_bytes(content)
    try:
        found = read_maps(path, model)
    except EmbspaceError as error:
        assert "\n" not in str(error)
        return
    assert set(found.tensors) <= {"A.1-3", "A.2-3"}


def test_maps_of_the_same_config_with_other_weights_are_refused(kept, save_model):
    import transformers as hf

    config = hf.GPT2Config(
        vocab_size=304, n_embd=32, n_layer=3, n_head=4, n_inner=52, n_positions=64
    )
    other = embspace.load(save_model(config))
    assert (other.d, other.n_layers) == (32, 3)
    with pytest.raises(MapsError, match=r"fitted on .*not on"):
        Maps.load(kept, other)


def test_maps_are_accepted_where_the_same_weights_lie_in_shards(kept, tiny_gpt2, tmp_path):
    import transformers as hf

    live = hf.AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    live.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    assert Maps.load(kept, embspace.load(tmp_path)).kind == "affine"


@pytest.mark.parametrize("pair", [(0, 2), (3, 0), (-1, 3), (0, 4), ("x", "y")], ids=str)
def test_a_map_that_was_not_fitted_is_named(kept, pair):
    with pytest.raises(MapsError, match=f"no map {pair[0]} → {pair[1]} was fitted"):
        Maps.load(kept).apply(torch.ones(2, 32), *pair)


def test_the_last_state_is_passed_on_as_it_is(kept):
    x = torch.randn(2, 32)
    assert Maps.load(kept).apply(x, 3) is x
