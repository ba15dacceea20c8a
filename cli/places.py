"""What stands after a command without an option: MODEL, a prompt, a layer, a head or a neuron."""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from embspace.errors import ModelError
from embspace.weights.aliases import ALIASES, DEFAULT_SAMPLE, bundled
from embspace.weights.json_files import path_of

from . import completion
from .terminal import say

Command = Callable[..., Any]
PLACE = re.compile(r"[lL]?(\d{1,9})(?:(?:[.x:]|\.?[hHnN])(\d{1,9}))?")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def names_a_model(text: str) -> bool:
    """Whether text is rather a model than a word: sample, alias, path, or in the Hub's cache."""
    is_path = os.sep in text or text in (".", "..") or text.endswith(".gguf")
    try:
        path = path_of(text)
        named = text in ALIASES or bundled(text) is not None
        found = named or (path / "config.json").is_file() or (is_path and path.exists())
    except ModelError:  # longer than any path, or of no such user
        return False
    return found or snapshot(text) is not None


def snapshot(repo: str) -> Path | None:
    """The folder of a Hub model in the cache, or None."""
    if not HUB_NAME.fullmatch(repo):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repo, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def prompt_argument(command: Command) -> Command:
    """MODEL and PROMPT, both optional; the command gets `model` and `prompt`."""

    @click.argument("given", nargs=-1, metavar="[MODEL] [PROMPT]", shell_complete=completion.models)
    @click.option(
        "-m",
        "--model",
        metavar="MODEL",
        shell_complete=completion.models,
        help="The same as MODEL before PROMPT.",
    )
    @functools.wraps(command)
    def with_prompt(*, given: tuple[str, ...], model: str | None, **rest: Any) -> Any:
        model, prompt = _model_and_prompt(given, model)
        return command(model=model, prompt=prompt, **rest)

    return with_prompt


def model_or_option(command: Command) -> Command:
    """MODEL, or -m MODEL as it was spelled before; by default the bundled sample."""

    @click.argument("given", required=False, metavar="[MODEL]", shell_complete=completion.models)
    @click.option(
        "-m",
        "--model",
        metavar="MODEL",
        shell_complete=completion.models,
        help="The same as the argument.",
    )
    @functools.wraps(command)
    def with_model(*, given: str | None, model: str | None, **rest: Any) -> Any:
        if given is not None and model is not None:
            raise click.UsageError("give MODEL once.")
        chosen = model if given is None else given
        return command(model=DEFAULT_SAMPLE if chosen is None else chosen, **rest)

    return with_model


def _model_and_prompt(given: tuple[str, ...], model: str | None) -> tuple[str, str | None]:
    if len(given) > 2 or (model is not None and len(given) > 1):
        raise click.UsageError(
            f"PROMPT is one argument: put it in quotes, as in  embspace lens {model or 'MODEL'} "
            f'"{" ".join(given[-3:])}"'
        )
    if model is not None:
        if given and names_a_model(given[0]):
            say(f"note: {given[0]!r} is read as the prompt, as -m names the model")
        return model, given[0] if given else None
    if len(given) == 2:
        if " " in given[0].strip() and not names_a_model(given[0]):
            raise click.UsageError(
                f"{given[0][:60]!r} is no MODEL: give MODEL first, then one PROMPT."
            )
        return given
    if not given:
        return DEFAULT_SAMPLE, None
    if names_a_model(given[0]):
        say(f"note: {given[0]!r} is read as MODEL; a prompt would follow it")
        return given[0], None
    if HUB_NAME.fullmatch(given[0]):
        say(
            f"note: {given[0]!r} is read as a prompt for {DEFAULT_SAMPLE}; were it a model: "
            f"embspace lens {given[0]} PROMPT"
        )
    return DEFAULT_SAMPLE, given[0]


def place_argument(part: str) -> Callable[[Command], Command]:
    """MODEL and where to look, all optional; the command gets `model`, `layer` and the part.

    part: what a layer has many of, `head` or `neuron`: `23`, `23.4`, `23x4`, `L23H4` or `23 4`.
    """

    def add(command: Command) -> Command:
        @click.argument(
            "given",
            nargs=-1,
            metavar=f"[MODEL] [LAYER[.{part.upper()}]]",
            shell_complete=completion.models,
        )
        @functools.wraps(command)
        def with_place(*, given: tuple[str, ...], **rest: Any) -> Any:
            model, numbers = _model_and_place(given, part)
            for name, number in zip(("layer", part), numbers, strict=False):
                if rest[name] not in (None, number):
                    raise click.UsageError(
                        f"the {name} is given twice: {number}, and --{name} {rest[name]}."
                    )
                rest[name] = number
            return command(model=model, **rest)

        return with_place

    return add


def _model_and_place(given: tuple[str, ...], part: str) -> tuple[str, tuple[int, ...]]:
    if given and not given[0].strip():
        raise click.UsageError("MODEL is empty: give a name or a folder, or leave it out.")
    is_place = given and PLACE.fullmatch(given[0]) and not names_a_model(given[0])
    model, rest = (DEFAULT_SAMPLE, given) if is_place or not given else (given[0], given[1:])
    found = [PLACE.fullmatch(text) for text in rest]
    numbers = tuple(int(n) for match in found if match for n in match.groups() if n is not None)
    if not all(found) or len(numbers) > 2:
        raise click.UsageError(
            f"{' '.join(rest)[:60]!r} is no place in a model: after MODEL give a layer, or a layer "
            f"and a {part}, as in 3, 3.1, L3{part[0].upper()}1 or 3 1."
        )
    return model, numbers
