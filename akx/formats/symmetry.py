"""Whether a matrix is symmetric, entry by entry and exactly: what storing one of two entries that are equal asks for.

Rows are gone through in order, and with them the entries before the diagonal of all rows at once: those of row j with
columns less than j ascend, so that the next one that nobody has asked for is in column i when row i asks for (j, i).
Each entry is read twice, and one word for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Pattern, in_parallel

__all__ = ["has_symmetric_pattern", "has_symmetric_values", "is_as_laid_out"]


def has_symmetric_pattern(pattern: Pattern) -> bool:
    """Whether (j, i) is an entry wherever (i, j) is; the first that is not ends the search."""
    nothing = np.zeros(0)
    return pattern.rows == pattern.columns and bool(_is_symmetric(pattern.indptr, pattern.indices, nothing, False))


def has_symmetric_values(
    indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], *, conjugate: bool = False
) -> bool:
    """Whether the pattern is symmetric, and entries (i, j) and (j, i) are equal, or the `conjugate` of one another."""
    return bool(_is_symmetric(indptr, indices, data, conjugate))


def is_as_laid_out(
    values: NDArray[Any], slot: NDArray[Any], entries: NDArray[Any] | None, data: NDArray[Any], threads: int
) -> bool:
    """Whether each entry is what its slot has, which another one may have been written to as well.

    `values` (slots,), `slot` (nnz,): of a layout that has just taken `data` (nnz,), in CSR order; `entries` (nnz,) or
    None: of which of them the layout's are. `threads`: most that look.
    """
    entries = np.zeros(0, dtype=np.uint32) if entries is None else entries
    return all(in_parallel(_same, slot.size, threads, values, slot, entries, data))


@njit(nogil=True, cache=True)
def _is_symmetric(indptr: Any, indices: Any, data: Any, conjugate: Any) -> bool:
    """Of the pattern alone where there are no values."""
    following = indptr[:-1].astype(np.int64)
    for i in range(following.size):
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            j = np.int64(indices[p])
            if j > i:
                q = following[j]
                if q >= np.int64(indptr[j + 1]) or np.int64(indices[q]) != i:
                    return False
                if data.size:
                    partner = data[q]
                    if conjugate:
                        partner = np.conj(partner)
                    if data[p] != partner:
                        return False
                following[j] = q + 1
            elif j < i and p >= following[i]:  # row j has not asked for it
                return False
    return True


@njit(nogil=True, cache=True)
def _same(values: Any, slot: Any, entries: Any, data: Any, begin: Any, end: Any) -> bool:
    if entries.size:
        for p in range(begin, end):
            if values[np.int64(slot[p])] != data[np.int64(entries[p])]:
                return False
    else:
        for p in range(begin, end):
            if values[np.int64(slot[p])] != data[p]:
                return False
    return True
