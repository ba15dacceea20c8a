"""Names that are no folders: aliases, samples, Hub names; no test reaches the Hub."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import (
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file

from embspace.errors import ModelError, TextError
from embspace.read.reader import load
from embspace.text.text import Text

COMMIT = "0123456789" * 4
SHARD_INDEX = "model.safetensors.index.json"


class Hub:
    """A Hub that serves the files of one folder, and notes which it had to send."""

    def __init__(self, files: Path, cache: Path) -> None:
        self.files, self.snapshot = files, cache / COMMIT
        self.asked: list[tuple[str, str | None]] = []
        self.sent: list[str] = []

    def download(
        self, repo: str, *, revision: str | None, allow_patterns: Any, ignore_patterns: Any
    ) -> str:
        self.asked.append((repo, revision))
        every = [str(p.relative_to(self.files)) for p in self.files.rglob("*") if p.is_file()]
        for name in filter_repo_objects(
            sorted(every), allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            if not (self.snapshot / name).exists():
                self.sent.append(name)
                (self.snapshot / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.files / name, self.snapshot / name)
        return str(self.snapshot)


@pytest.fixture
def hub(monkeypatch, tmp_path: Path, copy, tiny_gpt2: Path) -> Hub:
    """A Hub with the small GPT-2 and formats beside it that are not read."""
    files = copy(tiny_gpt2, "repository")
    for name in ("onnx/model.onnx", "fp16/model.safetensors", "model.fp16.safetensors"):
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).touch()
    for name in ("pytorch_model.bin", "consolidated.safetensors", "modeling.py", "fp16/a.json"):
        (files / name).touch()
    served = Hub(files, tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", served.download)
    return served


def _failing(error: Exception):
    def download(repo: str, **options: Any) -> str:
        raise error

    return download


def test_a_hub_name_is_downloaded_with_its_revision_and_without_other_formats(hub, tiny_gpt2):
    model = load("owner/name", revision="abc")
    assert model.n_layers == 3 and model.provenance["revision"] == "abc"
    assert model.vocabulary.labels == load(tiny_gpt2).vocabulary.labels
    assert sorted(hub.sent) == sorted(p.name for p in tiny_gpt2.iterdir())


def test_weights_are_of_the_commit_that_the_config_is_of(hub):
    load("owner/name", revision="main")
    assert hub.asked == [("owner/name", "main"), ("owner/name", COMMIT)]


def test_what_is_cached_is_not_sent_again(hub):
    load("owner/name")
    hub.sent.clear()
    load("owner/name")
    assert hub.sent == []


@pytest.mark.parametrize(
    "change", [{"quantization_config": {"quant_method": "gptq"}}, {"model_type": "t5"}, None]
)
def test_no_weights_are_fetched_of_a_model_whose_config_is_refused(hub, change):
    config = hub.files / "config.json"
    if change is None:
        config.unlink()
    else:
        config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(ModelError, match=r"quantised|encoder-decoder|no config\.json"):
        load("owner/name")
    assert not [name for name in hub.sent if name.endswith((".safetensors", ".bin"))]


def test_of_a_sharded_model_the_shards_of_its_index_are_fetched(hub, sharded):
    (hub.files / "model.safetensors").rename(hub.files / "model-99999.safetensors")
    for file in sharded.glob("model*"):
        shutil.copy(file, hub.files)
    assert load("owner/name").checkpoint.fingerprint == load(sharded).checkpoint.fingerprint
    sent = {name for name in hub.sent if name.startswith("model")}
    assert sent == {file.name for file in sharded.glob("model*")}


def test_of_a_single_file_beside_shards_the_single_file_is_fetched(hub, sharded, tiny_gpt2):
    for file in sharded.glob("model*"):
        shutil.copy(file, hub.files)
    assert load("owner/name").checkpoint.fingerprint == load(tiny_gpt2).checkpoint.fingerprint
    sent = {name for name in hub.sent if name.startswith("model")}
    assert sent == {"model.safetensors", SHARD_INDEX}


@pytest.mark.parametrize("shards", [["*"], ["../x.safetensors"], "nonsense", [3]])
def test_an_index_that_names_no_plain_files_fetches_none_and_is_refused(hub, shards):
    (hub.files / "model.safetensors").unlink()
    named = {f"t{n}": shard for n, shard in enumerate(shards)} if shards != "nonsense" else shards
    (hub.files / SHARD_INDEX).write_text(json.dumps({"weight_map": named}))
    with pytest.raises(ModelError, match=r"refused|not a readable shard index"):
        load("owner/name")
    assert not [name for name in hub.sent if "fp16" in name or name.endswith(".bin")]


@pytest.mark.parametrize("split", [False, True])
def test_pickles_are_fetched_only_where_there_are_no_safetensors(hub, split: bool):
    weights = hub.files / "model.safetensors"
    state = load_file(weights)
    weights.unlink()
    (hub.files / "pytorch_model.bin").unlink()
    name = "pytorch_model-1.bin" if split else "pytorch_model.bin"
    torch.save(state, hub.files / name)
    if split:
        index = {"weight_map": dict.fromkeys(state, name)}
        (hub.files / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert load("owner/old").n_layers == 3
    assert [sent for sent in hub.sent if sent.endswith((".bin", ".safetensors"))] == [name]


def test_offline_the_hubs_own_cache_is_read(monkeypatch, tmp_path, tiny_gpt2):
    folder = tmp_path / "models--owner--name"
    shutil.copytree(tiny_gpt2, folder / "snapshots" / COMMIT)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert huggingface_hub.constants.HF_HUB_OFFLINE
    assert load("owner/name").checkpoint.fingerprint == load(tiny_gpt2).checkpoint.fingerprint
    (folder / "snapshots" / COMMIT / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="holds no weights"):
        load("owner/name")


def test_an_alias_stands_for_its_hub_name(hub):
    load("bert-seed3")
    assert hub.asked[0][0] == "google/multiberts-seed_3"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            LocalEntryNotFoundError("not cached"),
            "its cache holds no such",
        ),
        (ConnectionError("no route"), "cannot be reached|is not asked"),
        (HFValidationError("bad name"), "is no local folder.*The Hub says: bad name"),
    ],
)
def test_what_the_hub_answers_becomes_one_sentence(monkeypatch, error: Exception, message: str):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _failing(error))
    with pytest.raises(ModelError, match=message) as caught:
        load("owner/name")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [RepositoryNotFoundError, RevisionNotFoundError])
def test_an_unknown_repository_or_revision_is_told_from_a_lost_connection(monkeypatch, kind):
    import httpx2 as httpx  # the client that huggingface_hub uses

    response = httpx.Response(404, request=httpx.Request("GET", "https://hub.invalid"))
    error = kind("404 not there", response=response)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _failing(error))
    with pytest.raises(ModelError) as caught:
        load("owner/name", revision="r1")
    assert "cannot be reached" not in str(caught.value) and "404 not there" in str(caught.value)


def test_offline_an_unknown_name_fails_at_once_and_lists_the_samples():
    with pytest.raises(ModelError, match=r"'nobody/nothing' is no local folder") as caught:
        load("nobody/nothing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["./missing", "/no/such/folder", "~/none", "a/b/c"])
def test_a_path_that_does_not_exist_is_not_looked_up_on_the_hub(hub, name: str):
    with pytest.raises(ModelError, match="no model folder"):
        load(name)
    assert not hub.asked


def test_a_file_is_no_model_folder(tiny_gpt2, hub):
    with pytest.raises(ModelError, match="no model folder"):
        load(tiny_gpt2 / "config.json")
    assert not hub.asked


def test_an_alias_that_is_not_here_is_not_advised_in_its_own_place(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _failing(ConnectionError("none")))
    with pytest.raises(ModelError, match="'bert-seed1' stands for google/mult") as told:
        load("bert-seed1")
    assert "did you mean" not in str(told.value)
    with pytest.raises(ModelError, match="did you mean bert-seed1"):
        load("bert-sed1")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_what_forbids_to_ask_the_hub_is_named(monkeypatch, variable: str):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _failing(ConnectionError("none")))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=rf"{variable} is set.*unset {variable} once") as told:
        load("gpt2-medium")
    assert "cannot be reached" not in str(told.value)
    with pytest.raises(TextError, match=rf"text=FILE.*{variable} is set"):
        Text.of(None, SimpleNamespace(name="gpt2-medium"))  # type: ignore[arg-type]


def test_a_missing_revision_is_not_blamed_on_the_model(monkeypatch):
    import httpx2 as httpx  # the client that huggingface_hub uses

    response = httpx.Response(404, request=httpx.Request("GET", "https://hub.invalid"))
    error = RevisionNotFoundError("404 not there", response=response)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _failing(error))
    with pytest.raises(ModelError, match="owner/name has no revision 'r1'") as told:
        load("owner/name", revision="r1")
    assert "no local folder" not in str(told.value)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _failing(ConnectionError("none")))
    with pytest.raises(ModelError, match="holds no revision 'r1' of owner/name") as told:
        load("owner/name", revision="r1")
    assert "no local folder" not in str(told.value)
