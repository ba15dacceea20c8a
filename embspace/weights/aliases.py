"""Short names: Hub aliases, and the samples that come with the package."""

from importlib import import_module
from pathlib import Path

ALIASES = {f"bert-seed{n}": f"google/multiberts-seed_{n}" for n in range(25)}
DEFAULT_SAMPLE = "sample-gpt2"


def bundled(name: str) -> Path | None:
    """The folder of a bundled sample, or None where there is none of that name."""
    folder = samples_folder() / name
    plain = Path(name).name == name and name.startswith("sample-")
    return folder if plain and (folder / "config.json").is_file() else None


def bundled_names() -> list[str]:
    """Names of all bundled samples, sorted."""
    return sorted(p.parent.name for p in samples_folder().glob("sample-*/config.json"))


def samples_folder() -> Path:
    """Where the bundled samples lie."""
    return Path(str(import_module("embspace_data").__file__)).parent / "samples"
