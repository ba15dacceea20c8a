"""How many neurons speak of the same tokens in key and value, layer by layer.

python examples/related.py [MODEL]
"""

import sys

import embspace


def main(name: str = "sample-gpt2") -> None:
    """Print the share of related key-value pairs of each layer beside shuffled pairs."""
    model = embspace.load(name)
    print("layer  keys   related  shuffled")
    for layer in range(model.n_layers):
        found = model.related(layer)
        for keys, share in found.share.items():
            print(f"{layer:>5}  {keys:5} {share:>8.1%} {found.share_shuffled[keys]:>9.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
