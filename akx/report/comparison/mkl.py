"""Intel MKL's sparse products through ctypes: found, never required, and used as its makers ask.

MKL's inspector-executor interface is driven in the order of its manual: create a handle on the CSR arrays (no copy),
say what is coming (a general matrix, many products, memory is no object), optimise once, then multiply. The threads
are set around every run and put back after it, and the OpenMP workers go to sleep a millisecond after the last product
instead of after 200 ms of spinning, so that whatever is timed next has the cores to itself.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import DeviceError, MissingDependencyError
from akx.core.matrix import Matrix

__all__ = ["mkl_missing", "mkl_powers", "mkl_version"]

_SUCCESS = 0
_INDEX_BASE_ZERO = 0
_LAYOUT_ROW_MAJOR = 101
_OPERATION_NON_TRANSPOSE = 10
_MATRIX_TYPE_GENERAL = 20
_FILL_MODE_FULL = 42
_DIAG_NON_UNIT = 50
_MEMORY_AGGRESSIVE = 81
_SLEEP_AFTER_MS = 1
_STATUS = {1: "not initialised", 2: "out of memory", 3: "invalid value", 4: "execution failed", 6: "not supported"}
_LIBRARY_NAMES = (*(f"libmkl_rt.so.{v}" for v in range(9, 0, -1)), "libmkl_rt.so", "libmkl_rt.dylib", "mkl_rt.dll")


class _Descriptor(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int))


class _Complex64(ctypes.Structure):
    _fields_ = (("real", ctypes.c_float), ("imag", ctypes.c_float))


class _Complex128(ctypes.Structure):
    _fields_ = (("real", ctypes.c_double), ("imag", ctypes.c_double))


_GENERAL = _Descriptor(_MATRIX_TYPE_GENERAL, _FILL_MODE_FULL, _DIAG_NON_UNIT)
#: dtype -> (letter in MKL's function names, scalar passed by value)
_SCALARS: dict[np.dtype[Any], tuple[str, Any]] = {
    np.dtype(np.float32): ("s", ctypes.c_float),
    np.dtype(np.float64): ("d", ctypes.c_double),
    np.dtype(np.complex64): ("c", _Complex64),
    np.dtype(np.complex128): ("z", _Complex128),
}


def _candidates() -> Iterator[str]:
    if chosen := os.environ.get("MKL_RT"):
        yield chosen
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("mkl") or ():
            if file.name in _LIBRARY_NAMES or (file.name.startswith("mkl_rt") and file.suffix == ".dll"):
                yield os.path.realpath(file.locate())
    for folder in (Path(sys.prefix) / "lib", Path(sys.prefix) / "Library" / "bin"):
        yield from (str(folder / name) for name in _LIBRARY_NAMES if (folder / name).is_file())
    if found := ctypes.util.find_library("mkl_rt"):
        yield found


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    for name in _candidates():
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


@lru_cache(maxsize=1)
def _openmp() -> ctypes.CDLL | None:
    """The Intel OpenMP runtime that MKL uses, when it lies beside MKL."""
    library = _library()
    if library is None:
        return None
    for name in ("libiomp5.so", "libiomp5.dylib", "libiomp5md.dll"):
        with suppress(OSError):
            return ctypes.CDLL(str(Path(library._name).parent / name))
    return None


def mkl_version() -> str | None:
    """MKL's own version line, or None where it is not installed."""
    library = _library()
    if library is None:
        return None
    buffer = ctypes.create_string_buffer(256)
    library.mkl_get_version_string(buffer, ctypes.c_int(len(buffer)))
    return " ".join(buffer.value.decode(errors="replace").split()) or "unknown version"


def mkl_missing() -> str | None:
    """None where MKL can be used, else how to get it."""
    return None if _library() is not None else "pip install 'akx[bench]' (or set MKL_RT to the file libmkl_rt.so)"


def _check(status: int, call: str) -> None:
    if status != _SUCCESS:
        raise DeviceError(f"MKL's {call} failed", found=_STATUS.get(status, f"status {status}"))


@contextmanager
def _threads(library: ctypes.CDLL, threads: int) -> Iterator[None]:
    before = library.MKL_Set_Num_Threads_Local(ctypes.c_int(threads))
    try:
        yield
    finally:
        library.MKL_Set_Num_Threads_Local(ctypes.c_int(before))


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def mkl_powers(matrix: Matrix, k: int, threads: int, block: int = 1) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """k products by MKL on so many threads, one after another: ``run(x, out)``, x of shape (n,), out (k + 1, n),
    C-contiguous.

    The arrays of the matrix are shared with MKL, which may make an optimised copy of its own, and is told to expect
    many runs. `block`: size of dense blocks, a divisor of the number of rows: with 1, MKL gets CSR; else block CSR of
    that size. Raises :class:`MissingDependencyError` where MKL is not installed, :class:`DeviceError` where it refuses
    the matrix.
    """
    library = _library()
    if library is None:
        raise MissingDependencyError("MKL is not installed", hint=mkl_missing())
    letter, scalar = _SCALARS[np.dtype(matrix.dtype)]
    wide = matrix.indptr.dtype.itemsize == 8
    suffix = "_64" if wide else ""
    if wide and not hasattr(library, f"mkl_sparse_{letter}_mv_64"):
        raise DeviceError("this MKL has no 64-bit sparse interface", hint="pip install --upgrade mkl")
    multiply = getattr(library, f"mkl_sparse_{letter}_mv{suffix}")
    multiply.argtypes = [ctypes.c_int, scalar, ctypes.c_void_p, _Descriptor, ctypes.c_void_p, scalar, ctypes.c_void_p]
    multiply.restype = ctypes.c_int
    one, zero = (scalar(1.0), scalar(0.0)) if letter in "sd" else (scalar(1.0, 0.0), scalar(0.0, 0.0))
    with _threads(library, threads):
        handle, arrays = _optimised(library, letter, matrix, block, products=1000 * k)
    openmp = _openmp()
    if openmp is not None and "KMP_BLOCKTIME" not in os.environ:
        openmp.kmp_set_blocktime(ctypes.c_int(_SLEEP_AFTER_MS))

    def run(x: NDArray[Any], out: NDArray[Any]) -> None:
        out[0] = x
        row, step = out.ctypes.data, out.strides[0]
        with _threads(library, threads):
            for j in range(k):
                source, target = ctypes.c_void_p(row + j * step), ctypes.c_void_p(row + (j + 1) * step)
                status = multiply(_OPERATION_NON_TRANSPOSE, one, handle, _GENERAL, source, zero, target)
                if status != _SUCCESS:
                    _check(status, "mv")

    # MKL reads the arrays in place: they must live as long as the handle
    weakref.finalize(run, _destroy, library, suffix, handle, arrays)
    return run


def _optimised(
    library: ctypes.CDLL, letter: str, matrix: Matrix, block: int, *, products: int
) -> tuple[ctypes.c_void_p, tuple[NDArray[Any], ...]]:
    """The handle of a matrix, told what is coming and optimised; and the arrays, which must live as long as it."""
    wide = matrix.indptr.dtype.itemsize == 8
    suffix, integer = ("_64", ctypes.c_int64) if wide else ("", ctypes.c_int32)

    def call(name: str, *arguments: Any) -> None:
        status = getattr(library, f"mkl_sparse_{name}{suffix}")(*arguments)
        _check(status, "create" if "_create_" in name else name)

    rows, layout, arrays = _layout(matrix, block)
    indptr, indices, data = arrays
    handle = ctypes.c_void_p()
    starts, ends = _pointer(indptr), ctypes.c_void_p(indptr.ctypes.data + indptr.dtype.itemsize)
    call(
        f"{letter}_create_{'csr' if block == 1 else 'bsr'}",
        ctypes.byref(handle),
        ctypes.c_int(_INDEX_BASE_ZERO),
        *(ctypes.c_int(value) for value in layout),
        integer(rows),
        integer(rows),
        *(integer(block) for _ in layout),
        starts,
        ends,
        _pointer(indices),
        _pointer(data),
    )
    call("set_mv_hint", handle, ctypes.c_int(_OPERATION_NON_TRANSPOSE), _GENERAL, integer(products))
    call("set_memory_hint", handle, ctypes.c_int(_MEMORY_AGGRESSIVE))
    call("optimize", handle)
    return handle, arrays


def _layout(matrix: Matrix, block: int) -> tuple[int, tuple[int, ...], tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Rows (of blocks), the layout of a block where there are blocks, and the arrays: row pointers, columns, values."""
    if block == 1:
        return matrix.n, (), (matrix.indptr, matrix.indices, matrix.data)
    blocks = matrix.to_scipy().tobsr((block, block))
    kind = matrix.indptr.dtype
    arrays = (blocks.indptr.astype(kind), blocks.indices.astype(kind), np.ascontiguousarray(blocks.data))
    return matrix.n // block, (_LAYOUT_ROW_MAJOR,), arrays


def _destroy(library: ctypes.CDLL, suffix: str, handle: ctypes.c_void_p, arrays: tuple[NDArray[Any], ...]) -> None:
    getattr(library, f"mkl_sparse_destroy{suffix}")(handle)
    del arrays
