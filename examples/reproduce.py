"""A paper's claims measured from a script: only the steps that read weights, then the verdicts.

python examples/reproduce.py [MODEL [FOLDER]]
"""

import sys

from rich import print as show

import embspace
from embspace.evidence.embedding_steps import Cast, embedding_steps
from embspace.evidence.reproduction import reproduce
from embspace.show import LOOKS


def main(name: str = "sample-gpt2", folder: str = "embedding-claims") -> None:
    """Write figures, tables and the page, and print the claims."""
    model = embspace.load(name)
    steps = embedding_steps(Cast(model, text=None), quick=True)
    show(reproduce("embedding", steps, folder, models={"model": model}, looks=LOOKS, quick=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
