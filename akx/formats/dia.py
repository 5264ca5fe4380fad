"""Sliced diagonals: slices of S rows, each with its own list of diagonals, stored diagonal by diagonal.

A stencil on a regular grid has few diagonals in all (a slice then has just these); a matrix whose rows are numbered
line by line over lines of changing length has few in each slice though many in all. No column index is stored and x is
read in runs. Bytes per entry: (itemsize + 4/S) / fill. Slices where some diagonal leaves the matrix, or where rows are
missing, are marked and done entry by entry. Source: diagonal storage (Saad, Iterative Methods, 3.4), cut into slices as
ELL is in SELL.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern, aligned_zeros, in_parallel, lanes_of, pointers_of

__all__ = ["DiaArrays", "dia_reach", "dia_slots", "from_csr", "slice_rows"]


class DiaArrays(NamedTuple):
    """start (slices+1,) in diagonals, offset (diagonals,), values (diagonals*S,), edge (slices,) bool."""

    start: NDArray[np.uint64]
    offset: NDArray[np.int64]
    values: NDArray[Any]
    edge: NDArray[np.bool_]
    rows: int
    slice: int


def slice_rows(dtype: np.dtype[Any]) -> int:
    """Rows per slice: four short vectors, so that four sums stay in registers."""
    return 4 * lanes_of(dtype)


def dia_slots(
    pattern: Pattern, dtype: np.dtype[Any], limit: int, *, counts: NDArray[np.uint64] | None = None, threads: int = 1
) -> int:
    """Slots that :func:`from_csr` would store; counting stops, and the count so far is given, beyond `limit`.

    `counts` (slices,), where given, becomes the diagonals of each slice, if there are no more slots than that.
    """
    height = slice_rows(dtype)
    origin = np.zeros(-(-pattern.rows // height), dtype=np.int64)
    counts = np.zeros(origin.size, np.uint64) if counts is None else counts
    known = pattern.indptr, pattern.indices, height, origin, limit, counts
    return int(sum(in_parallel(_count, origin.size, threads, *known)))


def from_csr(
    pattern: Pattern,
    dtype: np.dtype[Any],
    *,
    origin: NDArray[np.int64] | None = None,
    columns: Any = None,
    counts: NDArray[np.uint64] | None = None,
    threads: int = 1,
) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`.

    For matrices made of stacked local blocks `origin` (slices,), int64, is subtracted from the row number to give the
    row's own column, and `columns` (slices,) are those that exist for each slice, ``pattern.columns`` by default.
    `counts` (slices,), uint64, are the diagonals of each slice, from :func:`dia_slots`, where they are known.
    """
    height = slice_rows(dtype)
    slices = -(-pattern.rows // height)
    if origin is None:
        origin = np.zeros(slices, dtype=np.int64)
    if columns is None:
        columns = np.full(slices, pattern.columns, dtype=np.int64)
    if counts is None:
        counts, most = np.zeros(slices, dtype=np.uint64), int(np.iinfo(np.int64).max)
        in_parallel(_count, slices, threads, pattern.indptr, pattern.indices, height, origin, most, counts)
    start = pointers_of(counts).view(np.uint64)
    diagonals = int(start[-1])
    offset = np.zeros(diagonals, dtype=np.int64)
    slot = np.empty(pattern.nnz, dtype=np.uint32 if diagonals * height < 2**32 else np.uint64)
    edge = np.zeros(slices, dtype=np.bool_)
    known = pattern.indptr, pattern.indices, height, (origin, columns, start), (offset, slot, edge)
    in_parallel(_lay_out, slices, threads, *known)
    values = aligned_zeros(diagonals * height, dtype)
    return Format(
        DiaArrays(start, offset, values, edge, pattern.rows, height), slot, height, diagonals * height, height
    )


def dia_reach(arrays: DiaArrays, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last column that the kernel reads for each slice, padding included; (columns, -1) where it reads none.

    Padding multiplies zeros with entries of x that the matrix does not couple to the row, so x must be there all the
    same: a schedule must wait for this reach, not only for that of the entries. Edge slices read no padding.
    """
    first = np.arange(arrays.edge.size, dtype=np.int64) * arrays.slice
    start, stop = arrays.start[:-1].astype(np.int64), arrays.start[1:].astype(np.int64)
    reads = (stop > start) & ~arrays.edge
    low, high = np.full(first.size, columns, dtype=np.int64), np.full(first.size, -1, dtype=np.int64)
    low[reads] = first[reads] + arrays.offset[start[reads]]
    high[reads] = first[reads] + arrays.slice - 1 + arrays.offset[stop[reads] - 1]
    return low, high


@njit(nogil=True, cache=True)
def _merge_row(known: Any, count: Any, spare: Any, indices: Any, first: Any, stop: Any, row: Any) -> Any:
    """Merge the sorted offsets of a row into the sorted list known[:count], in linear time; give the new count.

    `spare` is as long as `known`, and both are long enough for all offsets of the slice.
    """
    k, p, total = 0, first, 0
    new = False
    while k < count and p < stop and not new:  # most rows have no offset that is not known
        offset = np.int64(indices[p]) - row
        if known[k] < offset:
            k += 1
        elif known[k] == offset:
            k += 1
            p += 1
        else:
            new = True
    if p == stop:
        return count
    total = k
    for m in range(k, count):
        spare[m] = known[m]
    while k < count or p < stop:
        offset = np.int64(indices[p]) - row if p < stop else np.iinfo(np.int64).max
        if k < count and spare[k] <= offset:
            p += spare[k] == offset
            known[total] = spare[k]
            k += 1
        else:
            known[total] = offset
            p += 1
        total += 1
    return total


@njit(nogil=True, cache=True)
def _count(indptr: Any, indices: Any, height: Any, origin: Any, limit: Any, counts: Any, begin: Any, end: Any) -> Any:
    """The diagonals of slices begin..end-1 into `counts`; give their slots, or those so far beyond `limit`."""
    rows = indptr.size - 1
    total = 0
    known, spare = np.empty(1024, np.int64), np.empty(1024, np.int64)
    for s in range(begin, end):
        count = 0
        bound = np.int64(indptr[min(rows, (s + 1) * height)]) - np.int64(indptr[s * height])
        if bound > known.size:
            known, spare = np.empty(2 * bound, np.int64), np.empty(2 * bound, np.int64)
        for i in range(s * height, min(rows, (s + 1) * height)):
            first, stop = np.int64(indptr[i]), np.int64(indptr[i + 1])
            count = _merge_row(known, count, spare, indices, first, stop, i - origin[s])
            if total + count * height > limit:
                return total + count * height
        total += count * height
        counts[s] = count
    return total


@njit(nogil=True, cache=True)
def _lay_out(indptr: Any, indices: Any, height: Any, of_slices: Any, places: Any, begin: Any, end: Any) -> None:
    """Place every entry of slices begin..end-1."""
    origin, columns, start = of_slices
    offset, slot, edge = places
    rows = indptr.size - 1
    spare = np.empty(offset.size, np.int64)
    for s in range(begin, end):
        at, room = np.int64(start[s]), np.int64(start[s + 1]) - np.int64(start[s])
        known = offset[at : at + room]
        count = 0
        for i in range(s * height, min(rows, (s + 1) * height)):
            first, stop = np.int64(indptr[i]), np.int64(indptr[i + 1])
            count = _merge_row(known, count, spare, indices, first, stop, i - origin[s])
        first_row, last_row = s * height - origin[s], (s + 1) * height - 1 - origin[s]
        if (s + 1) * height > rows:
            edge[s] = True
        if count and (first_row + known[0] < 0 or last_row + known[count - 1] >= columns[s]):
            edge[s] = True
        for i in range(s * height, min(rows, (s + 1) * height)):
            d = 0
            for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                wanted = np.int64(indices[p]) - (i - origin[s])
                while known[d] != wanted:
                    d += 1
                slot[p] = (at + d) * height + (i - s * height)
