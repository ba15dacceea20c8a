"""Names that are no folders: aliases, samples, Hub names; no test reaches the Hub."""

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import (
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from embspace.errors import ModelError
from embspace.models.load import load


@pytest.fixture
def hub(monkeypatch, tmp_path: Path, tiny_gpt2: Path):
    """A Hub that serves one model, and a list of what it was asked for."""
    asked: list[dict[str, Any]] = []

    def download(repo: str, **options: Any) -> str:
        asked.append({"repo": repo, **options})
        folder = tmp_path / "snapshot"
        shutil.copytree(tiny_gpt2, folder, dirs_exist_ok=True)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def _failing(error: Exception):
    def download(repo: str, **options: Any) -> str:
        raise error

    return download


def test_a_hub_name_is_downloaded_with_its_revision_and_without_other_formats(hub):
    model = load("owner/name", revision="abc")
    assert model.n_layers == 3 and model.provenance["revision"] == "abc"
    (asked,) = hub
    assert asked["repo"] == "owner/name" and asked["revision"] == "abc"
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any("bin" in pattern or "py" in pattern for pattern in asked["allow_patterns"])


def test_pickles_are_fetched_only_where_there_are_no_safetensors(monkeypatch, tmp_path, tiny_gpt2):
    import torch
    from safetensors.torch import load_file

    asked: list[list[str]] = []

    def download(repo: str, *, allow_patterns: list[str], **options: Any) -> str:
        asked.append(allow_patterns)
        shutil.copy(tiny_gpt2 / "config.json", tmp_path)
        if "*.bin" in allow_patterns:
            state = load_file(tiny_gpt2 / "model.safetensors")
            torch.save(state, tmp_path / "pytorch_model.bin")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert load("owner/old").n_layers == 3
    assert ["*.bin" in patterns for patterns in asked] == [False, True]


def test_an_alias_stands_for_its_hub_name(hub):
    load("bert-seed3")
    assert hub[0]["repo"] == "google/multiberts-seed_3"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LocalEntryNotFoundError("not cached"), "cannot be reached and its cache holds no such"),
        (ConnectionError("no route"), "cannot be reached"),
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
    assert not hub


def test_a_file_is_no_model_folder(tiny_gpt2, hub):
    with pytest.raises(ModelError, match="no model folder"):
        load(tiny_gpt2 / "config.json")
    assert not hub
