"""The sparsity pattern as the partitioners see it: checked, in unsigned integers, transposed, symmetrised.

Compiled loops take `indptr` and `indices` as *unsigned* arrays (views, not copies): an unsigned subscript needs no test
for Python's negative indices. :func:`unsigned_pattern` makes the views once and checks them, since a compiled loop
would not notice a column out of range. All costs here are O(n + nnz).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.partition.base import IndexArray

__all__ = ["off_diagonal", "signed", "symmetrized", "transposed", "unsigned_pattern"]

#: Rows that a thread looks at at least.
_ROWS = 1 << 15


def unsigned_pattern(indptr: IndexArray, indices: IndexArray) -> tuple[NDArray[Any], NDArray[Any]]:
    """`indptr` (n+1,) and `indices` (nnz,) as unsigned arrays of one width, checked; views wherever possible.

    They may not be written to, nor may those of :func:`symmetrized`: compiled code is for one kind.

    Raises :class:`ArgumentTypeError` where they are not one-dimensional integer arrays. Raises :class:`ArgumentError`
    where they are not the CSR pattern of a square matrix.
    """
    pointer: NDArray[Any] = np.asarray(indptr)
    columns: NDArray[Any] = np.asarray(indices)
    for name, array in (("indptr", pointer), ("indices", columns)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ArgumentTypeError(
                f"{name} is not a CSR index array", expected="1-D int32 or int64", found=f"{array.ndim}-D {array.dtype}"
            )
    n = pointer.size - 1
    wide = pointer.itemsize > 4 or columns.itemsize > 4
    kind = np.dtype(np.int64 if wide else np.int32)
    pointer, columns = (_unsigned(a, kind.itemsize) for a in (pointer, columns))
    if n < 0 or pointer[0] != 0 or int(pointer[-1]) != columns.size or np.any(pointer[1:] < pointer[:-1]):
        raise ArgumentError(
            "indptr is malformed", expected="non-decreasing from 0 to the number of entries", hint="check the matrix"
        )
    if columns.size and int(columns.max()) >= n:
        wrong = columns.view(kind)[int(np.argmax(columns))]
        raise ArgumentError("a column index is out of range", expected=f"0 .. {n - 1}", found=str(wrong))
    return _read_only(pointer, columns)


def _unsigned(array: NDArray[Any], itemsize: int) -> NDArray[Any]:
    """The same numbers, contiguous, in unsigned ones of so many bytes; a view where they have so many."""
    kept = np.dtype(f"{array.dtype.kind}{itemsize}")
    return np.ascontiguousarray(array, dtype=kept).view(f"u{itemsize}")


def signed(*arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Unsigned arrays viewed as signed ones of the same width."""
    return tuple(a.view(f"i{a.itemsize}") for a in arrays)


def transposed(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pattern of A^T with sorted columns, from and to unsigned arrays."""
    pointer = np.zeros_like(indptr)
    rows = np.empty_like(indices)
    _transpose(indptr, indices, pointer, rows)
    return pointer, rows


def symmetrized(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pattern of A + A^T with sorted columns and no duplicates, from and to unsigned arrays.

    Returned as it came, without a copy, where the pattern is symmetric and sorted already. Diagonal entries stay.
    """
    if all(in_pieces(lambda first, last: _is_symmetric(indptr, indices, first, last), indptr.size - 1, _ROWS)):
        return indptr, indices
    t_pointer, t_rows = transposed(indptr, indices)
    is_start = np.zeros(indices.size + 1, dtype=np.bool_)
    is_start[indptr] = True
    if not (is_start[1:-1] | (indices[1:] > indices[:-1])).all():  # columns that do not ascend
        indptr, indices = transposed(t_pointer, t_rows)
    if 2 * indices.size > np.iinfo(np.int32).max:  # the union may outgrow 32-bit pointers
        indptr, indices, t_pointer, t_rows = (a.astype(np.uint64) for a in (indptr, indices, t_pointer, t_rows))
    pointer = np.zeros_like(indptr)
    _unite(indptr, indices, t_pointer, t_rows, pointer, np.empty(0, dtype=indices.dtype))
    columns = np.empty(int(pointer[-1]), dtype=indices.dtype)
    _unite(indptr, indices, t_pointer, t_rows, pointer, columns)
    return _read_only(pointer, columns)


def _read_only(pointer: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    pointer.flags.writeable = columns.flags.writeable = False
    return pointer, columns


def off_diagonal(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pattern without its diagonal entries, from and to unsigned arrays; a graph as partitioners want it."""
    others = indices != np.repeat(np.arange(indptr.size - 1, dtype=indices.dtype), np.diff(signed(indptr)[0]))
    before = np.zeros(others.size + 1, dtype=indptr.dtype)
    np.cumsum(others, out=before[1:])
    return before[indptr], indices[others]


@njit(cache=True, nogil=True)
def _transpose(indptr: NDArray[Any], indices: NDArray[Any], pointer: NDArray[Any], rows: NDArray[Any]) -> None:
    n = np.uint64(indptr.shape[0] - 1)
    for e in range(np.uint64(indices.shape[0])):
        pointer[indices[e]] += 1
    total = pointer[0] - pointer[0]
    for i in range(n + np.uint64(1)):  # exclusive sums: pointer[i] = first slot of row i
        count = pointer[i]
        pointer[i] = total
        total += count
    for i in range(n):
        for e in range(indptr[i], indptr[i + np.uint64(1)]):
            j = indices[e]
            rows[pointer[j]] = i
            pointer[j] += 1
    for i in range(n):  # each pointer now stands at the end of its row: shift back by one
        r = n - i
        pointer[r] = pointer[r - np.uint64(1)]
    pointer[0] = 0


@njit(cache=True, nogil=True)
def _is_symmetric(indptr: NDArray[Any], indices: NDArray[Any], first: int, last: int) -> bool:
    """Whether columns of rows from one to another ascend, and each entry (i, j) has an entry (j, i)."""
    one = np.uint64(1)
    for i in range(np.uint64(first), np.uint64(last)):
        for e in range(indptr[i], indptr[i + one]):
            if e > indptr[i] and indices[e] <= indices[e - one]:
                return False
            j = indices[e]
            low, high = np.uint64(indptr[j]), np.uint64(indptr[j + one])
            while low < high:
                middle = (low + high) // np.uint64(2)
                if indices[middle] < i:
                    low = middle + one
                else:
                    high = middle
            if low == np.uint64(indptr[j + one]) or indices[low] != i:
                return False
    return True


@njit(cache=True, nogil=True)
def _unite(ap: Any, ai: Any, bp: Any, bi: Any, pointer: Any, columns: Any) -> None:
    """Row pointers of the union of two patterns with sorted columns, and its columns where there is room for them."""
    one = np.uint64(1)
    slot = np.uint64(0)
    for i in range(np.uint64(ap.shape[0] - 1)):
        a, a_end, b, b_end = np.uint64(ap[i]), np.uint64(ap[i + one]), np.uint64(bp[i]), np.uint64(bp[i + one])
        while a < a_end or b < b_end:
            take = ai[a] if b >= b_end or (a < a_end and ai[a] <= bi[b]) else bi[b]
            while a < a_end and ai[a] == take:
                a += one
            while b < b_end and bi[b] == take:
                b += one
            if columns.shape[0] > 0:
                columns[slot] = take
            slot += one
        pointer[i + one] = slot
