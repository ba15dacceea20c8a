"""Fit maps from every layer to the last, keep them in a file, and see what they are worth.

python examples/maps.py [MODEL [FILE [TEXT]]]
"""

import sys

from rich import print as show

import embspace
from embspace.text.text import Text


def main(name: str = "sample-gpt2", file: str = "sample.maps", text: str | None = None) -> None:
    """Fit on some lines, save, load again, and score on lines that were not fitted."""
    model = embspace.load(name)
    sentences = Text.read(text or "sample:reference", limit=800)
    embspace.fit(model, sentences, rows=600).save(file)
    maps = embspace.Maps.load(file, model)
    show(embspace.score(model, maps, sentences))


if __name__ == "__main__":
    main(*sys.argv[1:])
