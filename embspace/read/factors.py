"""One side of a circuit in vocabulary space, kept factored: a table times a thin matrix."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import EmbspaceError

CHUNK_BYTES = 1 << 23


@dataclass(frozen=True, eq=False)
class Factor:
    """One side P = E A of a score P Q^T, never multiplied out for longer than needed.

    table: E (V × d), any float dtype, may be memory-mapped; matrix: A (d × d_h), same device.
    Raises EmbspaceError for anything but two floating matrices, on one device, that can be
    multiplied.
    """

    table: Tensor
    matrix: Tensor

    def __post_init__(self) -> None:
        for name, given in (("table", self.table), ("matrix", self.matrix)):
            if given.ndim != 2 or not given.is_floating_point():
                raise EmbspaceError(
                    f"{name}: expected a floating matrix, got {given.dtype} {tuple(given.shape)}"
                )
        if not self.matrix.numel() or self.table.device != self.matrix.device:
            raise EmbspaceError(
                f"matrix: expected a non-empty one on {self.table.device}, got "
                f"{tuple(self.matrix.shape)} on {self.matrix.device}"
            )
        if self.table.shape[1] != self.matrix.shape[0]:
            raise EmbspaceError(
                f"a table of width {self.table.shape[1]} does not meet a matrix with "
                f"{self.matrix.shape[0]} rows"
            )

    @property
    def n_rows(self) -> int:
        """V, the number of rows of the table."""
        return self.table.shape[0]

    def chunks(self, ids: Tensor | None = None) -> Iterator[Tensor]:
        """The table's rows (those of `ids`, in that order) a few megabytes at a time."""
        n_rows = self.n_rows if ids is None else len(ids)
        step = max(1, CHUNK_BYTES // (4 * max(1, self.table.shape[1])))
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            yield self.table[start:stop] if ids is None else self.table[ids[start:stop]]

    def product32(self, matrix: Tensor, ids: Tensor | None = None, unit: float = 1.0) -> Tensor:
        """E[ids] / unit times a float32 d × m matrix, in float32: (n × m)."""
        n_rows = self.n_rows if ids is None else len(ids)
        out = torch.empty(n_rows, matrix.shape[1], dtype=torch.float32, device=matrix.device)
        start = 0
        for chunk in self.chunks(ids):
            torch.mm(_single(chunk, unit), matrix, out=out[start : start + len(chunk)])
            start += len(chunk)
        return out

    def rows64(self, ids: Tensor) -> Tensor:
        """E[ids] A in float64 (n × d_h); identical rows of E give bit-identical results.

        One matrix-vector product a row, each from a fresh buffer: the order of additions inside
        a matrix-matrix product may depend on where a row stands, and ties would come undone.
        """
        transposed = self.matrix.double().T.contiguous()
        out = torch.empty(len(ids), len(transposed), dtype=torch.float64, device=transposed.device)
        buffer = torch.empty(self.table.shape[1], dtype=torch.float64, device=transposed.device)
        for place, row in enumerate(ids.tolist()):
            buffer.copy_(self.table[row])
            out[place] = torch.mv(transposed, buffer)
        return out


@dataclass(frozen=True)
class TableSize:
    """How large a table's rows are: what rounding margins are made of.

    unit: 1, or a power of two that brings extreme tables into float32's comfortable range.
    row_norms: (V,) float32, norms of the rows of E / unit, rounded up.
    """

    unit: float
    row_norms: Tensor


_sizes: dict[int, tuple[weakref.ref[Tensor], int, TableSize]] = {}


def table_size(factor: Factor) -> TableSize:
    """TableSize of a factor's table; remembered for as long as the table lives unchanged.

    Raises EmbspaceError if the table holds NaN or infinity.
    """
    table = factor.table
    known = _sizes.get(id(table))
    version = -1 if table.is_inference() else table._version
    if known is not None and known[0]() is table and known[1] == version and version >= 0:
        return known[2]
    size = _measure(factor)
    key = id(table)
    _sizes[key] = (weakref.ref(table, lambda _: _sizes.pop(key, None)), version, size)
    return size


def _single(chunk: Tensor, unit: float) -> Tensor:
    return (chunk if unit == 1.0 else chunk / unit).float()


def _measure(factor: Factor) -> TableSize:
    extremes = [torch.stack(torch.aminmax(c)).double() for c in factor.chunks() if c.numel()]
    largest = float(torch.stack(extremes).abs().max()) if extremes else 0.0
    if not largest < float("inf"):
        raise EmbspaceError("the table holds NaN or infinity: there is no strongest pair")
    comfortable = largest == 0.0 or 2.0**-40 < largest < 2.0**40
    exponent = max(-120, min(1000, math.frexp(largest)[1]))
    unit = 1.0 if comfortable else 2.0**exponent
    norms = [torch.linalg.vector_norm(_single(c, unit), dim=1) for c in factor.chunks()]
    empty = torch.empty(0, device=factor.table.device)
    return TableSize(unit, round_up_norms(torch.cat([empty, *norms]), factor.table.shape[1]))


def round_up_norms(norms: Tensor, width: int) -> Tensor:
    """Float32 norms of rows of `width` numbers, enlarged by what rounding and underflow hid.

    The sum of squares is off by at most a factor 1 ± (width + 1) 2^-24 (Higham 2002, §3.1), and
    entries below 2^-63 may have squared to nothing.
    """
    return norms * (1 + (width + 8) * 2.0**-24) + width**0.5 * 2.0**-62
