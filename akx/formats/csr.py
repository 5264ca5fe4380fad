"""Compressed sparse rows with unsigned indices of 16, 32 or 64 bits, relative to a base per group of rows.

Bytes per entry: itemsize + index bytes; per row: 4 (the pointer) and 8/64 (the base). With 16-bit indices a group of 64
rows may touch columns at most 65,535 apart. Source: local column indices as in the cache-blocked SpMV of Williams et
al. (SC 2007) and Morlan et al. (Berkeley akx).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern, column_range, fits_bits, index_dtype

__all__ = ["GROUP", "CsrAheadArrays", "CsrArrays", "csr_fits", "from_csr"]

#: Rows that share a base.
GROUP = 64


class CsrArrays(NamedTuple):
    """pointer (rows+1,), base (groups,), column (nnz,), values (nnz,)."""

    pointer: NDArray[Any]
    base: NDArray[np.uint64]
    column: NDArray[Any]
    values: NDArray[Any]


class CsrAheadArrays(NamedTuple):
    """As :class:`CsrArrays`; the kernel asks for entries of x well before it uses them."""

    pointer: NDArray[Any]
    base: NDArray[np.uint64]
    column: NDArray[Any]
    values: NDArray[Any]


def csr_fits(pattern: Pattern, bits: int) -> bool:
    """Whether the columns of every group of rows lie within 2**bits of each other."""
    low, high = column_range(pattern.indptr, pattern.indices, np.arange(pattern.rows), GROUP)
    return fits_bits(low, high, bits)


def from_csr(pattern: Pattern, dtype: np.dtype[Any], *, bits: int, ahead: bool = False) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`. The caller has checked :func:`csr_fits`.

    With `ahead`, for the kernel that asks for x ahead of use; columns are then not relative to a base.
    """
    if bits >= 32:
        low = np.zeros(-(-pattern.rows // GROUP), dtype=np.uint64)
        index = pattern.indices.astype(index_dtype(bits), copy=False)  # the matrix's own array where the width allows
    else:
        low, _ = column_range(pattern.indptr, pattern.indices, np.arange(pattern.rows), GROUP)
        index = np.empty(pattern.nnz, dtype=index_dtype(bits))
        _relative(pattern.indptr, pattern.indices, low, GROUP, index)
    index.flags.writeable = False
    values = np.zeros(pattern.nnz, dtype=dtype)
    arrays = (CsrAheadArrays if ahead else CsrArrays)(pattern.indptr, low, index, values)
    return Format(arrays, None, 1, pattern.nnz, 1)


@njit(nogil=True, cache=True)
def _relative(indptr: Any, indices: Any, low: Any, group: Any, index: Any) -> None:
    rows = indptr.size - 1
    for g in range(low.size):
        first, stop = np.uint64(indptr[g * group]), np.uint64(indptr[min(rows, (g + 1) * group)])
        for p in range(first, stop):
            index[p] = np.uint64(indices[p]) - low[g]
