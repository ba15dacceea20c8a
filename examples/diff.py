"""What fine-tuning changed, in words: which groups carry those of the task.

python examples/diff.py [BASE TUNED]
"""

import sys

from rich import print as show

import embspace


def main(base: str = "sample-gpt2", tuned: str = "sample-gpt2-reviews") -> None:
    """Read the rows that moved most, both ways, beside tokens drawn at random."""
    before, after = embspace.load(base), embspace.load(tuned)
    show(embspace.diff(before, after, rows=1, turns=19))


if __name__ == "__main__":
    main(*sys.argv[1:])
