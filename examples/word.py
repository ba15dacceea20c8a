"""One word across a model: its neighbours, and the heads and neurons that use it most.

python examples/word.py [MODEL [WORD]]
"""

import sys

from rich import print as show

import embspace


def main(name: str = "sample-gpt2", word: str = "London") -> None:
    """Print one reading for each spelling of the word that is one token."""
    for reading in embspace.load(name).token(word, 10):
        show(reading, end="\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
