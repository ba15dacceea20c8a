"""A prompt through the lens: what every layer would say next, with and without a fitted map.

python examples/lens.py [PROMPT [MODEL]]
"""

import sys

from rich import print as show

import embspace
from embspace.text.text import Text


def main(prompt: str | None = None, name: str = "sample-gpt2") -> None:
    """Fit maps on a few sentences, then show id and mat side by side."""
    model = embspace.load(name)
    maps = embspace.fit(model, Text.read("sample:reference", limit=800))
    show(embspace.lens(model, prompt, ["id", maps]))


if __name__ == "__main__":
    main(*sys.argv[1:])
