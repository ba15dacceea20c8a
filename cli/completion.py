"""What a shell may complete: names of models and of filters."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from embspace.weights.aliases import ALIASES, bundled_names

FILTERS = {
    "ascii": "printable ASCII",
    "alnum": "ASCII letters and digits",
    "unicode-alnum": "letters and digits of any script",
    "words": "a word's beginning, three or more letters",
    "text": "no special tokens",
    "file:": "tokens of a text file, in any case",
    "file-exact:": "tokens of a text file, as they are",
    "re:": "tokens that match a pattern",
}


def models(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[Any]:
    """Samples and aliases; files and folders where none begins so."""
    names = [name for name in (*bundled_names(), *ALIASES) if name.startswith(begun)]
    if not names:
        return [CompletionItem(begun, type="file")]
    return [CompletionItem(name, help=ALIASES.get(name, "bundled sample")) for name in names]


def filters(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of filters."""
    found = ((name, about) for name, about in FILTERS.items() if name.startswith(begun))
    return [CompletionItem(name, help=about) for name, about in found]
