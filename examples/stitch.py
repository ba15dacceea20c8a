"""A classifier without training: one model's first blocks on another's fine-tuned last ones.

python examples/stitch.py [PRETRAINED FINE-TUNED [DATA]]
"""

import sys

from rich import print as show

import embspace


def main(
    kept: str = "sample-gpt2-b", tuned: str = "sample-gpt2-reviews", data: str = "sample"
) -> None:
    """Join them through the vocabulary at a few places, beside chance and the tuned model alone."""
    a, b = embspace.load(kept), embspace.load(tuned)
    show(embspace.stitch(a, b, data, keep=[0, 2, 4], transplant=[2], n_test=60, controls=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
