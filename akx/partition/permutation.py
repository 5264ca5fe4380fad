"""Matrices in another order: the symmetric permutation P A P^T, and how far the columns of each block reach.

Both work on patterns only. `permute` also gives the map of the entries, so that the values of a matrix, and later new
values under the same pattern, are laid out by one gather: ``data_new = data[entry_permutation]``.
Cost of `permute`: O(nnz) plus the sorting of the columns of each row. Cost of `block_reach`: O(n), since of a row with
sorted columns only the first and the last entry matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.partition.adjacency import signed, unsigned_pattern
from akx.partition.base import IndexArray, Partition, inverse_permutation

__all__ = ["block_dependencies", "block_reach", "permute"]

#: Rows up to this length are sorted by insertion, longer ones by a quicksort.
_SHORT_ROW = 48
#: Rows that a thread permutes at least.
_ROWS = 1 << 15


def permute(
    indptr: IndexArray, indices: IndexArray, permutation: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The pattern of P A P^T with sorted columns.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        CSR pattern of A. Columns need not be sorted.
    permutation : (n,) array of int64
        ``permutation[new] = old``; raises :class:`ArgumentError` where it is not one of the n rows.

    Returns
    -------
    indptr_new, indices_new, entry_permutation : arrays of the index type given, (n+1,), (nnz,) and (nnz,)
        Entry (i, j) is entry (permutation[i], permutation[j]) of A; ``data_new = data[entry_permutation]``.
    """
    pointer, columns = unsigned_pattern(indptr, indices)
    n = pointer.size - 1
    inverse = inverse_permutation(permutation)
    if inverse.size != n:
        raise ArgumentError("permutation does not fit the matrix", expected=f"{n} rows", found=f"{inverse.size}")
    forward = np.ascontiguousarray(permutation, dtype=np.int64).astype(columns.dtype)
    new_pointer = np.zeros_like(pointer)
    np.cumsum(np.diff(pointer)[forward], out=new_pointer[1:])
    new_columns, entries = np.empty_like(columns), np.empty_like(columns)
    given = (pointer, columns, forward, inverse.astype(columns.dtype), new_pointer, new_columns, entries)
    in_pieces(lambda first, last: _permute(*given, first, last), n, _ROWS)
    new = signed(new_pointer, new_columns, entries)
    return new[0], new[1], new[2]


def block_reach(
    indptr: IndexArray, indices: IndexArray, cuts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least and the greatest column that each block of rows touches, its own rows counted as touched.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        CSR pattern in the order of the cuts, columns sorted within each row.
    cuts : (blocks + 1,) array of int64
        Block `b` is rows ``cuts[b] .. cuts[b+1] - 1``.

    Returns
    -------
    lo, hi : (blocks,) arrays of int64
        Both inclusive; of an empty block cuts[b] and cuts[b] - 1.
    """
    pointer, columns = unsigned_pattern(indptr, indices)
    bounds = _cuts_of(cuts, pointer.size - 1)
    lo, hi = bounds[:-1].copy(), bounds[1:] - 1
    _reach(pointer, columns, bounds, lo, hi)
    return lo, hi


def block_dependencies(
    indptr: IndexArray, indices: IndexArray, cuts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last block whose rows each block reads, (blocks,) int64, inclusive; as :func:`block_reach`.

    ``first[b] <= b <= last[b]``; an empty block reads itself only.
    """
    lo, hi = block_reach(indptr, indices, cuts)
    bounds = _cuts_of(cuts, int(np.asarray(indptr).size) - 1)
    own = np.arange(lo.size, dtype=np.int64)
    first = np.searchsorted(bounds, lo, side="right") - 1
    last = np.searchsorted(bounds, hi, side="right") - 1
    empty = bounds[1:] == bounds[:-1]
    return np.where(empty, own, first), np.where(empty, own, last)


def _cuts_of(cuts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    bounds = Partition(None, cuts).cuts
    if int(bounds[-1]) != n:
        raise ArgumentError("cuts do not fit the matrix", expected=f"the last one to be {n}", found=f"{bounds[-1]}")
    return bounds


@njit(cache=True, nogil=True)
def _permute(
    indptr: Any,
    indices: Any,
    forward: Any,
    inverse: Any,
    new_pointer: Any,
    new_columns: Any,
    entries: Any,
    begin: int,
    end: int,
) -> None:
    one = np.uint64(1)
    for i in range(np.uint64(begin), np.uint64(end)):
        old = np.uint64(forward[i])
        source, stop = np.uint64(indptr[old]), np.uint64(indptr[old + one])
        first = np.uint64(new_pointer[i])
        length = stop - source
        if length <= np.uint64(_SHORT_ROW):
            for s in range(length):  # insertion sort while gathering
                column = inverse[indices[source + s]]
                t = first + s
                while t > first and new_columns[t - one] > column:
                    new_columns[t] = new_columns[t - one]
                    entries[t] = entries[t - one]
                    t -= one
                new_columns[t] = column
                entries[t] = source + s
        else:
            long = np.empty(length, indices.dtype)
            for s in range(length):
                long[s] = inverse[indices[source + s]]
            by_column = np.argsort(long, kind="mergesort")
            for s in range(length):
                new_columns[first + s] = long[by_column[s]]
                entries[first + s] = source + np.uint64(by_column[s])


@njit(cache=True, nogil=True)
def _reach(indptr: Any, indices: Any, cuts: Any, lo: Any, hi: Any) -> None:
    one = np.uint64(1)
    for b in range(np.uint64(lo.shape[0])):
        least, most = lo[b], hi[b]
        for i in range(np.uint64(cuts[b]), np.uint64(cuts[b + one])):
            start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + one])
            if start < stop:
                least = min(least, np.int64(indices[start]))
                most = max(most, np.int64(indices[stop - one]))
        lo[b], hi[b] = least, most
