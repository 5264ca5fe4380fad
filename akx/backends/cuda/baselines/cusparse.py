"""k products by cuSPARSE, through its C interface: what akx is compared with on a GPU.

A weak baseline would be a defect: the matrix and all vectors are on the device, each algorithm for CSR gets its
preprocessing ahead of the clock and a descriptor of its own, the k products are one CUDA graph, and the fastest
algorithm is what counts. A product writes straight into the next vector; x is in its place already, and nothing is
copied. Newer libraries have ``cusparseSpMVOp`` beside ``cusparseSpMV``: see
:mod:`akx.backends.cuda.baselines.spmvop`; matrices in blocks have :mod:`akx.backends.cuda.baselines.bsr`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import lru_cache
from typing import Any

import numpy as np

from akx.backends.cuda.device.launch import Graph, capture, default_stream
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.device.runtime import open_library, runtime
from akx.core.errors import DeviceError, MissingDependencyError
from akx.core.matrix import Matrix

__all__ = ["ALGORITHMS", "CusparsePowers", "cusparse_library", "cusparse_missing", "cusparse_version"]

#: Algorithms for CSR by their numbers in cusparse.h.
ALGORITHMS = {"cusparse_alg1": 2, "cusparse_alg2": 3}
_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_INDEX_32, _INDEX_64, _ZERO_BASE, _PLAIN = 2, 3, 0, 0
#: What cusparse.h says of a status, where it is of use.
_STATUS = {3: " (invalid value)", 10: " (not supported)", 11: " (insufficient resources)"}
_SONAMES = ("libcusparse.so.13", "libcusparse.so.12", "libcusparse.so")


def cusparse_library() -> Any:
    """The library: the file that ``AKX_CUSPARSE`` names, else that of the environment or the system; or None."""
    chosen = os.environ.get("AKX_CUSPARSE")
    return _load(chosen) if chosen else open_library("cusparse", _SONAMES)


@lru_cache(maxsize=4)
def _load(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def cusparse_missing() -> str | None:
    """None where cuSPARSE can be used, else what to do."""
    if cusparse_library() is not None:
        return None
    chosen = os.environ.get("AKX_CUSPARSE")
    return f"AKX_CUSPARSE names no library that loads: {chosen}" if chosen else "pip install nvidia-cusparse"


def cusparse_version() -> str | None:
    """cuSPARSE's version, or None where it is not there."""
    library = cusparse_library()
    if library is None:
        return None
    parts = []
    for which in range(3):  # major, minor, patch
        value = ctypes.c_int()
        library.cusparseGetProperty(which, ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


class CusparsePowers:
    """k products with one algorithm: ``out[j+1] = A out[j]``.

    Parameters
    ----------
    matrix : Matrix
        The matrix, in its natural order.
    out : DeviceArray, shape (k+1, 1, n or more)
        Holds x in out[0]; the rest is written by :meth:`run`. A last extent beyond n is for vectors that begin at an
        address of one's choice; what is beyond n is not touched.
    algorithm : str
        One of :data:`ALGORITHMS`.
    """

    #: The algorithms by name.
    numbers = ALGORITHMS

    def __init__(self, matrix: Matrix, out: DeviceArray, algorithm: str) -> None:
        library = cusparse_library()
        if library is None:
            raise MissingDependencyError("cuSPARSE is not installed", hint=cusparse_missing())
        self._library = library
        self._out, self._n, self._k = out, matrix.n, out.shape[0] - 1
        self._kind, self._algorithm = _TYPES[matrix.dtype.name], self.numbers[algorithm]
        self.stream = default_stream()
        self._one, self._zero = np.ones(1, matrix.dtype), np.zeros(1, matrix.dtype)
        self._made: list[tuple[str, ctypes.c_void_p]] = []
        try:
            with runtime().active():
                self._handle = self._create("cusparseCreate", "cusparseDestroy")
                self._call("cusparseSetStream", self._handle, ctypes.c_void_p(self.stream.handle))
                self._arrays = [to_device(array) for array in (matrix.indptr, matrix.indices, matrix.data)]
                self._matrix = self._make_matrix(matrix)
                self._vectors = [self._make_vector(j) for j in range(self._k + 1)]
                self._prepare()
                self.graph = self._record(1)
            self.stream.synchronize()
        except BaseException:
            with contextlib.suppress(Exception):  # what failed first is what is raised
                self.close()
            raise

    def run(self) -> None:
        """Queue the k products."""
        self.graph.launch(self.stream)

    def run_here(self) -> None:
        """The same where the context is current: nothing but the launch of the graph."""
        self.graph.launch_here(self.stream)

    def repeated(self, count: int) -> Graph:
        """`count` times the k products as one graph, to be timed."""
        with runtime().active():
            return self._record(count)

    def close(self) -> None:
        """Give back all that cuSPARSE holds, what was made last first."""
        failed: list[str] = []
        with contextlib.suppress(Exception):  # of work that is still under way, and no reason to hold anything
            self.stream.synchronize()
        with runtime().active():
            while self._made:
                destroy, made = self._made.pop()
                try:
                    self._call(destroy, made)
                except DeviceError as failure:
                    failed.append(str(failure))
        if failed:
            raise DeviceError("; ".join(failed))

    def _record(self, count: int) -> Graph:
        with capture(self.stream) as graph:
            for _ in range(count):
                for j in range(self._k):
                    self._multiply(j)
        return graph

    def _make_matrix(self, matrix: Matrix) -> ctypes.c_void_p:
        index = _INDEX_32 if matrix.indices.dtype.itemsize == 4 else _INDEX_64
        sizes = [ctypes.c_int64(size) for size in (matrix.n, matrix.n, matrix.nnz)]
        pointers = [ctypes.c_void_p(array.pointer) for array in self._arrays]
        common = [*sizes, *pointers, index, index, _ZERO_BASE, self._kind]
        return self._create("cusparseCreateCsr", "cusparseDestroySpMat", *common)

    def _make_vector(self, j: int) -> ctypes.c_void_p:
        vector = self._out.view(j * self._out.shape[-1], (self._n,))
        size, pointer = ctypes.c_int64(self._n), ctypes.c_void_p(vector.pointer)
        return self._create("cusparseCreateDnVec", "cusparseDestroyDnVec", size, pointer, self._kind)

    def _prepare(self) -> None:
        """The preprocessing, ahead of the clock."""
        self._buffer = empty(self._buffer_size(), np.uint8)
        self._product("cusparseSpMV_preprocess", 0)

    def _multiply(self, j: int) -> None:
        """Queue ``out[j+1] = A out[j]``."""
        self._product("cusparseSpMV", j)

    def _arguments(self, j: int) -> list[Any]:
        one, zero = (ctypes.c_void_p(array.ctypes.data) for array in (self._one, self._zero))
        x, y = self._vectors[j], self._vectors[j + 1]
        return [self._handle, _PLAIN, one, self._matrix, x, zero, y, self._kind, self._algorithm]

    def _buffer_size(self) -> int:
        size = ctypes.c_size_t()
        self._call("cusparseSpMV_bufferSize", *self._arguments(0), ctypes.byref(size))
        return max(1, int(size.value))

    def _product(self, name: str, j: int) -> None:
        self._call(name, *self._arguments(j), ctypes.c_void_p(self._buffer.pointer))

    def _create(self, name: str, destroy: str, *arguments: Any, before: tuple[Any, ...] = ()) -> ctypes.c_void_p:
        """What a function of cuSPARSE makes, in its first argument after those `before`; `destroy` gives it back."""
        made = ctypes.c_void_p()
        self._call(name, *before, ctypes.byref(made), *arguments)
        self._made.append((destroy, made))
        return made

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise DeviceError(f"{name} failed", found=f"status {code}{_STATUS.get(code, '')}")
