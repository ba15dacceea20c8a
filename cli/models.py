"""`embspace models`: which models can be named, and what lies on this machine."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from embspace.cache import cache_folder
from embspace.weights.aliases import ALIASES, DEFAULT_SAMPLE, bundled, bundled_names
from embspace.weights.json_files import path_of
from embspace.weights.registry import BY_TYPE

from . import completion
from . import options as o
from .places import snapshot
from .terminal import show

NO_ALIAS = "no alias"
KEPT = ("certificates", "gguf", "maps", "trust")  # folders of our cache that hold results


@o.command("models", "What MODEL can be.")
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=completion.models)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Bundled samples, aliases, supported architectures, and what the caches hold.

    With NAMEs: what each of them stands for, and whether it is here. Opens no connection.

    \b
        embspace models
        embspace models bert-seed3 gpt2
    """
    found = {"models": [describe(name) for name in names]} if names else inventory()
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from embspace.show.topics.inventory import inventory_view

    show(inventory_view(found))


def inventory() -> dict[str, Any]:
    """Samples, aliases, architectures and both caches. Opens no connection."""
    return {
        "samples": [_sample(name) for name in bundled_names()],
        "aliases": ALIASES,
        "architectures": sorted(BY_TYPE),
        "hub_cache": _hub_cache(),
        "embspace_cache": _own_cache(),
    }


def describe(name: str) -> dict[str, Any]:
    """What a name stands for, whether it is here, and how its architecture is read."""
    folder, kind, stands_for = _meaning(name)
    model_type = _model_type(folder)
    return {
        "name": name,
        "kind": kind,
        "stands_for": stands_for,
        "here": folder is not None,
        "architecture": model_type,
        "read": "" if kind == NO_ALIAS else _way(model_type),
    }


def _meaning(name: str) -> tuple[Path | None, str, str]:
    path = path_of(name)
    sample = bundled(name)
    if path.is_dir():
        return path, "folder", str(path)
    if path.suffix == ".gguf":
        return (path if path.is_file() else None), "gguf file", str(path)
    if sample:
        return sample, "bundled sample", _about(name)
    if name not in ALIASES and re.fullmatch(r"bert-seed\d*", name):
        return None, NO_ALIAS, f"aliases end at {list(ALIASES)[-1]}"
    repo = ALIASES.get(name, name)
    return snapshot(repo), "alias" if name in ALIASES else "Hub name", repo


def _way(model_type: str | None) -> str:
    if model_type is None:
        return "known once its config is here"
    if model_type in BY_TYPE:
        return "by name"
    return "by its shape, if its certificate passes"


def _model_type(folder: Path | None) -> str | None:
    try:
        raw = json.loads(((folder or Path()) / "config.json").read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    text = raw.get("text_config") or {}
    return text.get("model_type") or raw.get("model_type")


def _sample(name: str) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in (bundled(name) or Path()).glob("*"))
    return {
        "name": name,
        "description": _about(name),
        "bytes": size,
        "default": name == DEFAULT_SAMPLE,
    }


def _about(name: str) -> str:
    samples = import_module("embspace_data").SAMPLES
    return samples[name].description if name in samples else ""


def _hub_cache() -> list[dict[str, Any]]:
    """Models in the Hub's cache, largest first."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = [repo for repo in scan_cache_dir().repos if repo.repo_type == "model"]
    except CacheNotFound:
        return []
    repos.sort(key=lambda repo: -repo.size_on_disk)
    return [{"name": repo.repo_id, "bytes": repo.size_on_disk} for repo in repos]


def _own_cache() -> dict[str, Any]:
    folder = cache_folder("certificates").parent
    kinds = [folder / kind for kind in KEPT if (folder / kind).is_dir()]
    return {
        "folder": str(folder),
        "kinds": [
            {
                "kind": kind.name,
                "entries": sum(1 for _ in kind.iterdir()),
                "bytes": sum(file.stat().st_size for file in kind.rglob("*") if file.is_file()),
            }
            for kind in kinds
        ],
    }
