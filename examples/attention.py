"""Who looks at a word: the tokens that attend to it most, in the head that does so most.

python examples/attention.py [MODEL [WORD]]
"""

import sys

from rich import print as show

import embspace


def main(name: str = "sample-gpt2", word: str = "king") -> None:
    """Ask W_QK of every head for the askers of a word, and print the most pronounced ones."""
    model = embspace.load(name)
    columns = [head.qk.column(word, 15) for head in model.heads]
    show(max(columns, key=lambda found: found.pairs[0].score / found.rms))


if __name__ == "__main__":
    main(*sys.argv[1:])
