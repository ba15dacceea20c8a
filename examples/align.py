"""Which layer of one model is which of another: two training runs, matched by their parameters.

python examples/align.py [A B]
"""

import sys

from rich import print as show

import embspace


def main(one: str = "sample-bert-a", other: str = "sample-bert-b") -> None:
    """Match values and output matrices, in vocabulary space and without the vocabulary."""
    a, b = embspace.load(one), embspace.load(other)
    show(embspace.align(a, b, groups=["V", "W_O"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
