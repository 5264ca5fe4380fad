"""Symmetric matrices by diagonals: one value for a_ij and a_ji, and the few entries off the diagonals row by row.

    y_i = sum_d (u_d[i] x_{i+d} + u_d[i-d] x_{i-d}) + the rest,    u_d[i] = a_{i,i+d} = a_{i+d,i},    d >= 0 (0 once)

A diagonal on which at least a few in ten entries are there is stored from one end of the matrix to the other, zeros
among them. Every row is summed by itself: a value is read twice, the second time d rows later and from a near cache
where diagonals are near, and no entry of y is written for another row. So threads need not know of one another, and
rows can be done in any shares with the same bits.

The rest is stored in full, by slices of rows (4 short vectors, as in :mod:`akx.formats.dia`): value, column, and the
row within its slice.

Bytes per entry of a diagonal that is full: itemsize / 2. Of the rest: itemsize + index bytes + 1. Source: storing the
upper triangle alone halves the bytes of symmetric products (RACE, Alappat et al., ACM TOPC 7, 2020, who colour rows so
that threads may write for one another); gathering along diagonals in place of that, and the rest beside it, are akx's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.canonical import read_only
from akx.core.numba_jit import njit
from akx.formats.base import (
    VECTOR_BYTES,
    Format,
    Pattern,
    aligned_zeros,
    in_parallel,
    index_dtype,
    lanes_of,
    pointers_of,
)

__all__ = ["Diagonals", "SymmetricDiaArrays", "diagonals_of", "from_csr", "slots_of", "symmetric_dia_reach"]

#: A diagonal is stored as one where it has this share of its entries: of 8 bytes, fewer are cheaper one by one.
_FILL = 0.3
#: Lines between diagonals, so that entries of different ones do not fall on the same place of a cache.
_APART = 5


class SymmetricDiaArrays(NamedTuple):
    """offset, base (diagonals,): entry (i, i + offset) is values[base + i]; pointer (slices+1,), row and column
    (rest,) and values[rest:] of what lies off them: `row` within its slice of `slice` rows."""

    offset: NDArray[np.uint64]
    base: NDArray[np.uint64]
    pointer: NDArray[np.uint64]
    row: NDArray[np.uint8]
    column: NDArray[Any]
    values: NDArray[Any]
    rest: int
    rows: int
    slice: int


class Diagonals(NamedTuple):
    """offset (diagonals,), ascending; and the entries of the matrix off these diagonals and their mirror images."""

    offset: NDArray[np.uint64]
    rest: int


def diagonals_of(pattern: Pattern) -> Diagonals:
    """The diagonals of a symmetric pattern that are worth storing; one pass."""
    counts = _count(pattern.indptr, pattern.indices)
    offset = np.flatnonzero(counts > _FILL * (pattern.rows - np.arange(counts.size)))
    on = 2 * int(counts[offset].sum()) - (int(counts[0]) if offset.size and offset[0] == 0 else 0)
    return Diagonals(read_only(offset.astype(np.uint64)), pattern.nnz - on)


def slots_of(found: Diagonals, rows: int, dtype: np.dtype[Any]) -> int:
    """Slots that are stored, where diagonals begin and end included."""
    return int(_bases(found, rows, dtype)[-1]) + found.rest


def _bases(found: Diagonals, rows: int, dtype: np.dtype[Any]) -> NDArray[np.int64]:
    line = VECTOR_BYTES // dtype.itemsize
    lengths = rows - found.offset.astype(np.int64)
    return pointers_of((-(-lengths // line) + _APART) * line)


def from_csr(
    pattern: Pattern, dtype: np.dtype[Any], *, bits: int, found: Diagonals | None = None, threads: int = 1
) -> Format:
    """Lay a symmetric `pattern` out; the values are zero until :meth:`Format.fill`.

    `found`: what :func:`diagonals_of` says of it, where that is known. Entries (i, j) and (j, i) have the same slot.
    """
    found = found or diagonals_of(pattern)
    rows, height = pattern.rows, 4 * lanes_of(dtype)
    base, slices = _bases(found, rows, dtype), -(-rows // height)
    rest = int(base[-1])
    counts = np.zeros(slices, dtype=np.int64)
    in_parallel(_count_rest, slices, threads, pattern.indptr, pattern.indices, height, found.offset, counts)
    pointer = pointers_of(counts).view(np.uint64)
    row, column = np.empty(found.rest, dtype=np.uint8), np.empty(found.rest, dtype=index_dtype(bits))
    slot = np.empty(pattern.nnz, dtype=np.uint32 if rest + found.rest < 2**32 else np.uint64)
    places = base.view(np.uint64)[:-1].copy(), pointer, row, column, slot
    in_parallel(_lay_out, slices, threads, pattern.indptr, pattern.indices, height, found.offset, rest, places)
    values = aligned_zeros(rest + found.rest, dtype)
    for array in (*places, found.offset):
        array.flags.writeable = False
    arrays = SymmetricDiaArrays(found.offset, *places[:4], values, rest, rows, height)
    return Format(arrays, slot, height, rest + found.rest, height)


def symmetric_dia_reach(arrays: SymmetricDiaArrays, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last column that the kernel reads for each slice by whole diagonals, padding included.

    Columns that are not read but lie between those that are do no harm: (columns, -1) where there are none.
    """
    first = np.arange(arrays.pointer.size - 1, dtype=np.int64) * arrays.slice
    last = first + arrays.slice - 1
    low, high = np.full(first.size, columns, dtype=np.int64), np.full(first.size, -1, dtype=np.int64)
    for offset in arrays.offset.astype(np.int64):
        before, behind = (first >= offset) & (last < columns), last + offset < columns
        low[before] = np.minimum(low[before], first[before] - offset)
        high[before] = np.maximum(high[before], last[before] - offset)
        low[behind] = np.minimum(low[behind], first[behind] + offset)
        high[behind] = np.maximum(high[behind], last[behind] + offset)
    return low, high


@njit(nogil=True, cache=True)
def _count(indptr: Any, indices: Any) -> Any:
    """Entries (i, i + d) for each d."""
    counts = np.zeros(max(indptr.size - 1, 1), np.int64)
    for i in range(indptr.size - 1):
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            d = np.int64(indices[p]) - i
            if d >= 0:
                counts[d] += 1
    return counts


@njit(nogil=True, cache=True)
def _number(offset: Any, wanted: Any) -> Any:
    """Which diagonal it is; -1 where it is none of them."""
    low, high = 0, offset.size
    while low < high:
        middle = (low + high) // 2
        if np.int64(offset[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < offset.size and np.int64(offset[low]) == wanted else -1


@njit(nogil=True, cache=True)
def _count_rest(indptr: Any, indices: Any, height: Any, offset: Any, counts: Any, begin: Any, end: Any) -> None:
    rows = indptr.size - 1
    for s in range(begin, end):
        for i in range(s * height, min(rows, (s + 1) * height)):
            for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                counts[s] += _number(offset, abs(np.int64(indices[p]) - i)) < 0


@njit(nogil=True, cache=True)
def _lay_out(indptr: Any, indices: Any, height: Any, offset: Any, rest: Any, places: Any, begin: Any, end: Any) -> None:
    base, pointer, row, column, slot = places
    rows = indptr.size - 1
    for s in range(begin, end):
        at = np.int64(pointer[s])
        for i in range(s * height, min(rows, (s + 1) * height)):
            for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                j = np.int64(indices[p])
                d = _number(offset, abs(j - i))
                if d >= 0:
                    slot[p] = np.int64(base[d]) + (i if i < j else j)
                else:
                    slot[p], row[at], column[at] = rest + at, i - s * height, j
                    at += 1
