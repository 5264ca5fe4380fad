"""Padded CSR: rows padded to a multiple of some entries, cut into partitions of 256 entries wherever rows end.

Every row gets at least `pad` slots, so that a group of `pad` slots is of one row, no partition meets more than 256
rows, and no row is empty. A row that lies in several partitions is *split*: each partition holds a share of it, and a
list of the split rows says which shares make a row. Bytes per entry: (itemsize + 4) / fill, fill = entries / slots, and
4 per row and 4 per partition. Sources: Mehri Dehnavi, Krylov Subspace Techniques on Graphic Processing Units (McGill
2012), ch. 3 (partitions, split vector, padding) and 4 (no atomics); with pad = 16 and no partitions it is the layout of
Zhang et al., FPGA vs. GPU for sparse matrix vector multiply (2009).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern

__all__ = ["PARTITION", "PcsrArrays", "cuts_of", "from_csr", "pcsr_slots"]

#: Slots of a partition.
PARTITION = 256


class PcsrArrays(NamedTuple):
    """A pattern in padded CSR.

    `start` (rows+1,) uint32: first slot of each row. `column` (slots,) uint32: padding repeats the last column of its
    row, or is the row's own number where the row is empty. `values` (slots,). `row` (partitions+1,) uint32: the row of
    the first slot of each partition; `rows` at the end, and for a partition of padding alone. `split`, `begin`, `end`
    (splits,) uint32: the rows that are split, with their first and their last partition.
    """

    start: NDArray[np.uint32]
    column: NDArray[np.uint32]
    values: NDArray[Any]
    row: NDArray[np.uint32]
    split: NDArray[np.uint32]
    begin: NDArray[np.uint32]
    end: NDArray[np.uint32]


def _starts(pattern: Pattern, pad: int) -> NDArray[np.int64]:
    """First slot of each row, and the number of slots of all rows."""
    lengths = np.maximum(np.diff(pattern.indptr.astype(np.int64)), 1)
    start = np.zeros(pattern.rows + 1, dtype=np.int64)
    np.cumsum(-(-lengths // pad) * pad, out=start[1:])
    return start


def pcsr_slots(pattern: Pattern, pad: int) -> int:
    """Slots that :func:`from_csr` would store, padding included, whole partitions."""
    return -(-int(_starts(pattern, pad)[-1]) // PARTITION) * PARTITION


def from_csr(pattern: Pattern, dtype: np.dtype[Any], *, pad: int) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`. `pad` is a power of two, at most 256."""
    start = _starts(pattern, pad)
    slots = -(-int(start[-1]) // PARTITION) * PARTITION
    column = np.zeros(slots, dtype=np.uint32)
    slot = np.empty(pattern.nnz, dtype=np.uint32 if slots < 2**32 else np.uint64)
    _lay_out(pattern.indptr, pattern.indices, start, column, slot)
    starts, *cuts = _cuts(start)
    return Format(PcsrArrays(starts, column, np.zeros(slots, dtype=dtype), *cuts), slot, 1, slots, 1)


def cuts_of(pattern: Pattern, pad: int) -> tuple[NDArray[np.uint32], ...]:
    """Start, row, split, begin and end; of the pattern only the lengths of the rows are looked at."""
    return _cuts(_starts(pattern, pad))


def _cuts(start: NDArray[np.int64]) -> tuple[NDArray[np.uint32], ...]:
    slots = -(-int(start[-1]) // PARTITION) * PARTITION
    places = np.arange(0, slots + 1, PARTITION, dtype=np.int64)
    row = np.minimum(np.searchsorted(start, places, side="right") - 1, start.size - 1)
    begin, end = start[:-1] // PARTITION, (start[1:] - 1) // PARTITION
    split = np.flatnonzero(end > begin)
    return tuple(array.astype(np.uint32) for array in (start, row, split, begin[split], end[split]))


@njit(nogil=True, cache=True)
def _lay_out(indptr: Any, indices: Any, start: Any, column: Any, slot: Any) -> None:
    for i in range(start.size - 1):
        first, stop = np.int64(indptr[i]), np.int64(indptr[i + 1])
        at = start[i]
        for p in range(first, stop):
            column[at] = indices[p]
            slot[p] = at
            at += 1
        last = np.uint64(indices[stop - 1]) if stop > first else np.uint64(i)
        while at < start[i + 1]:
            column[at] = last
            at += 1
