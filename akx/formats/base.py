"""What all formats share: a bundle of arrays for the kernels, and the map from CSR entries to the slots they live in.

A format is laid out once for a pattern; the values are a separate scatter, ``values[slot] = data``, so that new values
under the same pattern cost one pass and no new layout. Slots that no entry maps to are padding and stay zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.canonical import read_only
from akx.core.matrix import Matrix
from akx.core.parallel import in_pieces

__all__ = [
    "Format",
    "LatePattern",
    "Pattern",
    "aligned_zeros",
    "in_parallel",
    "index_dtype",
    "lanes_of",
    "lengths_of",
    "pattern_of",
    "pointers_of",
    "sums_before",
    "sums_of",
    "unsigned",
]

#: Bytes of a short vector in the kernels; a chunk of sliced ELL has as many rows as it has lanes.
VECTOR_BYTES = 64
#: Chunks or slices that a thread lays out at least: starting it takes as long as laying out so many.
_LEAST_CHUNKS = 64


def lanes_of(dtype: np.dtype[Any]) -> int:
    """Rows per chunk for values of `dtype`: 16 for float32, 8 for float64 and complex64, 4 for complex128."""
    return VECTOR_BYTES // dtype.itemsize


def unsigned(array: NDArray[Any]) -> NDArray[Any]:
    """The same non-negative integers as an unsigned array, without a copy: 32 or 64 bits as they were."""
    return array.view(np.uint32 if array.dtype.itemsize == 4 else np.uint64)


def index_dtype(bits: int) -> np.dtype[Any]:
    """The unsigned dtype of `bits` bits."""
    return np.dtype(f"uint{bits}")


def aligned_zeros(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that begin at a multiple of the vector length in memory.

    NumPy's own begin 16 bytes past one as a rule; then every vector load takes parts of two cache lines, which costs
    sliced ELL and diagonals 10 to 20 % where the matrix is in cache (one core of Zen 4).
    """
    octets = np.zeros(size * dtype.itemsize + VECTOR_BYTES, dtype=np.uint8)
    skipped = -octets.ctypes.data % VECTOR_BYTES
    return octets[skipped : skipped + size * dtype.itemsize].view(dtype)


def pointers_of(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Where each of some pieces begins that lie one after another, and the end of the last: (m+1,)."""
    starts = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def sums_of(sizes: NDArray[Any], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the sizes of each group; group g is sizes ``first[g] .. first[g+1] - 1``."""
    sums: NDArray[np.int64] = np.diff(pointers_of(sizes)[first])
    return sums


def sums_before(sizes: NDArray[Any], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the sizes before each one, within its group."""
    starts = pointers_of(sizes)
    before: NDArray[np.int64] = starts[:-1] - np.repeat(starts[first[:-1]], np.diff(first))
    return before


def in_parallel(function: Callable[..., Any], count: int, threads: int, *arguments: Any) -> list[Any]:
    """``function(*arguments, first, last)`` for pieces of range(count), and what each of them gave, in order.

    Parameters
    ----------
    function : callable
        Compiled without the GIL. It computes nothing that another piece needs.
    count : int
        Chunks, slices, groups of rows.
    threads : int
        The caller's included.
    """
    return in_pieces(partial(function, *arguments), count, _LEAST_CHUNKS, threads=threads)


@dataclass(frozen=True)
class Pattern:
    """A CSR pattern, rows x columns, with unsigned indices and sorted rows; its arrays are read-only."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    columns: int

    def __post_init__(self) -> None:
        for name in ("indptr", "indices"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @property
    def rows(self) -> int:
        return int(self.indptr.size - 1)

    @property
    def nnz(self) -> int:
        return int(self.indices.size)


class LatePattern(Pattern):
    """A square pattern elsewhere, whose arrays come to the host when they are asked for, each by itself."""

    def __init__(
        self, rows: int, nnz: int, indptr: Callable[[], NDArray[Any]], indices: Callable[[], NDArray[Any]]
    ) -> None:
        known: dict[str, Any] = {"columns": rows, "_rows": rows, "_nnz": nnz, "_indptr": indptr, "_indices": indices}
        for name, one in known.items():
            object.__setattr__(self, name, one)

    @cached_property
    def indptr(self) -> NDArray[Any]:
        """Of the host, as `indices`."""
        return read_only(unsigned(self._indptr()))

    @cached_property
    def indices(self) -> NDArray[Any]:
        return read_only(unsigned(self._indices()))

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def nnz(self) -> int:
        return self._nnz

    _rows: int
    _nnz: int
    _indptr: Callable[[], NDArray[Any]]
    _indices: Callable[[], NDArray[Any]]


def pattern_of(matrix: Matrix) -> Pattern:
    """The pattern of a matrix in the order of its rows, without a copy."""
    if matrix.on_device is not None:
        return LatePattern(matrix.n, matrix.nnz, lambda: matrix.indptr, lambda: matrix.indices)
    return Pattern(unsigned(matrix.indptr), unsigned(matrix.indices), matrix.n)


def lengths_of(matrix: Matrix) -> Pattern:
    """The same without columns, for the lengths of rows alone: those of a matrix on a GPU stay there."""
    indptr = unsigned(matrix.indptr)
    return Pattern(indptr, indptr[:0], matrix.n)


@dataclass(frozen=True)
class Format:
    """A matrix laid out for a kernel.

    Attributes
    ----------
    arrays : NamedTuple
        What the kernel takes; its class says which kernel that is. Has a field ``values``.
    slot : (nnz,) array of unsigned integers, or None
        ``values[slot] = data`` for CSR data; None where the slots are the entries themselves.
    align : int
        Rows per unit: blocks of rows must begin at a multiple of it.
    stored : int
        Slots stored, padding included.
    unit : int
        Rows that the kernel does at once: of a chunk, a slice; divides `align`.
    """

    arrays: Any
    slot: NDArray[Any] | None
    align: int
    stored: int
    unit: int

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, the slot map included."""
        held = [a for a in self.arrays if isinstance(a, np.ndarray)]
        return sum(int(a.nbytes) for a in held) + (0 if self.slot is None else int(self.slot.nbytes))

    @property
    def matrix_bytes(self) -> int:
        """Bytes the kernel reads once per product: everything but the slot map."""
        return sum(int(a.nbytes) for a in self.arrays if isinstance(a, np.ndarray))

    def fill(self, data: NDArray[Any]) -> None:
        """Lay `data`, in CSR order, out in the slots."""
        if self.slot is None:
            self.arrays.values[: data.size] = data
        else:
            self.arrays.values[self.slot] = data
