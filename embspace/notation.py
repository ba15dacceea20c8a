"""The glossary that every docstring refers to.

Row vectors throughout; logarithms are natural.

Axis names
    d      model width
    V      rows of the embedding that the tokenizer can name (padded rows are no tokens)
    H      query heads of a layer
    G      key/value heads of a layer; query head h reads key/value head h // (H / G)
    d_h    head width, read from the config
    d_ff   feed-forward width (of one expert)
    L      number of blocks
    n      any number of vectors
    k      how many entries are kept

Layer numbers
    Blocks are 0 … L-1. State l is the residual stream after the first l blocks: state 0 is the
    embedding's output, state L the stream after the last block, before the final norm.

Symbols
    E      d × V, the transposed output embedding; a vector x (1 × d) is read as x E
    A      d × d, the fitted map of one state to a later one: x A
    W_Q, W_K, W_V   d × d_h, one head;  W_O   d_h × d, one head
    W_QK   W_Q W_K^T, d × d: row = the token that asks, column = the token attended to
    W_VO   W_V W_O, d × d: row = the token attended to, column = the token it promotes; also `ov`
    keys   feed-forward, d_ff × d: each row meets the input (gate and up where gated); [DAR]'s K
    values feed-forward, d_ff × d: each row is added to the stream; [DAR]'s V

Words
    side   a table of n × d, what each token looks like where a weight reads (source) or writes
           (target); E^T on both sides is the papers' reading
    row    one vector of a matrix; of a text, the state at one position of one line
    line   one sentence of a text

Norms
    raw     weights as stored (the papers' convention)
    folded  gains of the norms multiplied into the weights that read or write the stream

Sources
    [DAR]  Dar et al. 2022, Analyzing Transformers in Embedding Space, arXiv 2209.02535
    [DIN]  Yom Din et al. 2024, Jump to Conclusions, arXiv 2303.09435
"""

from typing import Literal, get_args

Norm = Literal["raw", "folded"]
Inverse = Literal["transpose", "pinv"]
Circuit = Literal["vo", "qk"]
Group = Literal["q", "k", "v", "o"]

NORMS: tuple[str, ...] = get_args(Norm)
INVERSES: tuple[str, ...] = get_args(Inverse)
CIRCUITS: tuple[str, ...] = get_args(Circuit)
GROUPS: tuple[str, ...] = get_args(Group)
