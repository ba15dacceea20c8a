"""Feed-forward neurons as key and value: what they look for beside what they add.

python examples/neurons.py [MODEL [LAYER]]
"""

import sys

from rich import print as show

import embspace
from embspace.read.neurons import read_neurons, sharpest


def main(name: str = "sample-gpt2", layer: str = "2") -> None:
    """Print the two neurons of a layer whose values single out a token most."""
    reading = embspace.load(name).ff[int(layer)]
    for neuron in read_neurons(reading, sharpest(reading, 2), 10):
        show(neuron, end="\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
