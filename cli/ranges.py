"""Numbers as every command takes them: `0-5,8`, both ends of a range included."""

import re
from collections.abc import Callable
from typing import Any

import click

Spans = list[tuple[int, int]]  # first and last number of each
HINT = "give numbers and ranges like 0-5,8 (both ends included)"
MOST = 1_000_000  # numbers that a range may list


def spans(text: str) -> Spans:
    """The ranges of `0-5,8`, not yet listed one by one; `3:6` leaves its end out, as Python does.

    Raises ValueError.
    """
    found: Spans = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*([-:])\s*(\d{1,18}))?\s*", part)
        if not match:
            raise ValueError(part)
        first, last = int(match[1]), int(match[3] or match[1]) - (match[2] == ":")
        if last < first:
            raise ValueError(part)
        found.append((first, last))
    return found


def layer_spans(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Spans | None:
    """The callback of an option that takes ranges as they are; None for all."""
    if text is None:
        return None
    try:
        return spans(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {HINT}.") from error


def numbers(ctx: click.Context, parameter: click.Parameter, text: Any) -> list[int] | None:
    """The callback of an option of numbers, given once or several times; None for all."""
    texts = [text] if isinstance(text, str) else list(text or ())
    found: list[int] = []
    for one in texts:
        for first, last in layer_spans(ctx, parameter, one) or ():
            if last - first >= MOST:
                raise click.BadParameter(f"{one!r} is a range of more than {MOST:,} numbers.")
            found += range(first, last + 1)
    return found or None


def numbers_or(*words: str) -> Any:
    """The same callback, which leaves some words as they are."""

    def read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        if text in words:
            return text
        try:
            return numbers(ctx, parameter, text)
        except click.BadParameter as error:
            raise click.BadParameter(
                f"{error.message.rstrip('.')}, or {' or '.join(words)}."
            ) from error

    return read


def range_option(*names: str, help: str, multiple: bool = False) -> Callable[..., Any]:
    """An option of numbers and ranges."""
    return click.option(*names, callback=numbers, multiple=multiple, metavar="0-5,8", help=help)
