"""k products by cuSPARSE of a matrix in dense blocks of one size, as SciPy has it in BSR.

``cusparse_bsr`` is ``cusparse?bsrmv``, of all releases so far, ``cusparse_bsr_alg1`` is ``cusparseSpMV`` of such a
matrix, of newer ones. Places of a block that have no entry are zeros, so that a block of r x r has 8 r^2 + 4 bytes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from akx.backends.cuda.baselines.cusparse import CusparsePowers, cusparse_library
from akx.backends.cuda.device.memory import to_device
from akx.core.errors import DeviceError
from akx.core.features import dense_block_size
from akx.core.matrix import Matrix

__all__ = ["BSR_ALGORITHMS", "BsrPowers", "bsr_algorithms"]

_LEGACY, _GENERIC = "cusparse_bsr", "cusparse_bsr_alg1"
#: CUSPARSE_SPMV_BSR_ALG1 of cusparse.h, and 0 for the function that is older than algorithms.
BSR_ALGORITHMS = {_LEGACY: 0, _GENERIC: 6}
_LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
_BY_ROWS, _PLAIN, _ZERO_BASE, _INDEX_32, _ROW_ORDER = 0, 0, 0, 2, 2


def bsr_algorithms(matrix: Matrix) -> tuple[str, ...]:
    """Names of the algorithms for a matrix; none where it is not made of blocks of one size, or the library lacks."""
    library = cusparse_library()
    size = dense_block_size(matrix.indptr, matrix.indices)[0]
    if library is None or size == 1 or matrix.n % size or matrix.nnz >= 2**31:
        return ()
    needed = {_LEGACY: f"cusparse{_LETTERS[matrix.dtype.name]}bsrmv", _GENERIC: "cusparseCreateBsr"}
    return tuple(name for name in BSR_ALGORITHMS if hasattr(library, needed[name]))


class BsrPowers(CusparsePowers):
    """As :class:`CusparsePowers`, with one of :data:`BSR_ALGORITHMS`, for a matrix of :func:`bsr_algorithms`."""

    numbers = BSR_ALGORITHMS

    def _make_matrix(self, matrix: Matrix) -> ctypes.c_void_p:
        size = self._size = dense_block_size(matrix.indptr, matrix.indices)[0]
        found = matrix.to_scipy().tobsr((size, size))
        self._rows, self._blocks = matrix.n // size, found.indices.size
        held = (found.indptr.astype(np.int32), found.indices.astype(np.int32), np.ascontiguousarray(found.data))
        self._arrays = [to_device(array) for array in held]
        self._product_name = f"cusparse{_LETTERS[matrix.dtype.name]}bsrmv"
        if not self._algorithm:
            return self._create("cusparseCreateMatDescr", "cusparseDestroyMatDescr")
        sizes = [ctypes.c_int64(one) for one in (self._rows, self._rows, self._blocks, size, size)]
        pointers = [ctypes.c_void_p(array.pointer) for array in self._arrays]
        common = [*sizes, *pointers, _INDEX_32, _INDEX_32, _ZERO_BASE, self._kind, _ROW_ORDER]
        return self._create("cusparseCreateBsr", "cusparseDestroySpMat", *common)

    def _prepare(self) -> None:
        if not self._algorithm:
            self._multiply(0)
            return
        try:
            super()._prepare()
        except DeviceError:  # releases that prepare nothing for blocks
            self._multiply(0)

    def _multiply(self, j: int) -> None:
        if self._algorithm:
            super()._multiply(j)
            return
        one, zero = (ctypes.c_void_p(array.ctypes.data) for array in (self._one, self._zero))
        x, y = (ctypes.c_void_p(self._out.view(at * self._out.shape[-1], (self._n,)).pointer) for at in (j, j + 1))
        start, column, values = (ctypes.c_void_p(array.pointer) for array in self._arrays)
        sizes: tuple[Any, ...] = (self._rows, self._rows, self._blocks)
        matrix = (self._matrix, values, start, column, self._size)
        self._call(self._product_name, self._handle, _BY_ROWS, _PLAIN, *sizes, one, *matrix, x, zero, y)
