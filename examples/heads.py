"""The attention head that says most: of all heads, the one whose strongest pair stands out most.

python examples/heads.py [MODEL]
"""

import sys

from rich import print as show

import embspace


def main(name: str = "sample-gpt2") -> None:
    """Survey W_VO of every head, and print the table of the one that stands out."""
    model = embspace.load(name)
    survey = list(model.survey(circuits=["vo"], k=15, filters="words", exclude_same=True))
    show(max(survey, key=lambda found: found.pairs[0].score / found.rms))


if __name__ == "__main__":
    main(*sys.argv[1:])
