"""Checks of a caller's CSR matrix: its row pointers and indices, before compiled code follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.operator.freshness import SMALL, Copies, has_other_threads

__all__ = ["CheckedPattern"]

_UNSIGNED = {np.dtype(np.int32): np.uint32, np.dtype(np.int64): np.uint64}
#: Calls after which a small pattern is copied.
_CALLS = 2


class CheckedPattern:
    """What is known of the row pointers and indices of a matrix, from call to call.

    Those of a small matrix are copied, and the copies used: that the matrix has them still is one comparison of bytes,
    which takes less than to look at them again. Where another thread may change the others at any moment, each call
    copies them, looks at the copies and uses these.

    Attributes
    ----------
    is_full : bool
        Whether it is known that every column has an entry; of small matrices.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._calls, self._n, self._nnz = 0, -1, 0
        self._copies: Copies | None = None

    def arrays_of(self, A: Any, n: int) -> tuple[NDArray[Any], ...] | None:
        """The arrays of a CSR matrix of n rows, with indices that can be followed; None where they cannot be."""
        indptr, indices, data = A.indptr, A.indices, A.data
        copies = self._copies
        if copies is not None:
            if n == self._n and data.ndim == 1 and data.size >= self._nnz and copies.are_of(indptr, indices):
                return *copies.arrays, data
            self._copies, self.is_full = None, False
        self._calls += 1
        given = indptr, indices
        for array in (indptr, indices, data):
            if not isinstance(array, np.ndarray) or array.ndim != 1:
                return None
        unsigned = _UNSIGNED.get(indices.dtype)
        if unsigned is None or indptr.dtype != indices.dtype or indptr.size != n + 1:
            return None
        if has_other_threads():
            indptr, indices = indptr.copy(), indices.copy()
        nnz = indptr.item(-1)
        if indptr.item(0) != 0 or not 0 <= nnz <= min(indices.size, data.size):
            return None
        if np.count_nonzero(indptr[1:] < indptr[:-1]):
            return None
        followed = indices[:nnz].view(unsigned)
        if nnz and not np.maximum.reduce(followed) < n:  # a negative one is very large here
            return None
        is_small = indptr.nbytes + indices.nbytes <= SMALL
        if is_small and self._calls > _CALLS and all(array.flags.c_contiguous for array in given):
            self._copies, self._n, self._nnz = Copies(given, (indptr, indices)), n, nnz
            self.see_full(self._copies.arrays[1][:nnz], n)
        return indptr, indices, data

    def see_full(self, indices: NDArray[Any], n: int) -> None:
        """Look whether every column has an entry, where that takes little."""
        self.is_full = indices.nbytes <= SMALL and bool(np.bincount(indices, minlength=n).all())
