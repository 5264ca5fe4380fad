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
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces

__all__ = [
    "Format",
    "LatePattern",
    "Pattern",
    "aligned_zeros",
    "column_range",
    "even_pieces",
    "fits_bits",
    "in_parallel",
    "index_dtype",
    "lanes_of",
    "lengths_of",
    "pattern_of",
    "placed",
    "pointers_of",
    "same_columns",
    "sums_before",
    "sums_of",
    "unsigned",
]

#: bytes of a short vector in the kernels; a chunk of sliced ELL has as many rows as it has lanes.
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

    NumPy's own begin 16 bytes past one as a rule, which costs sliced ELL and diagonals 10 to 20 % in cache (Zen 4).
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
    return np.asarray(np.diff(pointers_of(sizes)[first]))


def sums_before(sizes: NDArray[Any], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the sizes before each one, within its group."""
    starts = pointers_of(sizes)
    return np.asarray(starts[:-1] - np.repeat(starts[first[:-1]], np.diff(first)))


def even_pieces(lengths: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths cut evenly into pieces of at most `most`: of which of them each piece is, and where in it it begins."""
    pieces = -(-lengths // most)
    of = np.repeat(np.arange(lengths.size), pieces)
    piece = np.arange(of.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return of, piece * lengths[of] // pieces[of]


def placed(data: NDArray[Any], entry: NDArray[np.uint32]) -> NDArray[Any]:
    """Values in their places: `entry` has one plus the CSR entry of each place, 0 for padding."""
    return np.asarray(np.concatenate([np.zeros(1, dtype=data.dtype), data])[entry])


@njit(nogil=True, cache=True)
def same_columns(indptr: Any, indices: Any, i: Any, j: Any) -> bool:
    """Whether rows i and j have the same columns."""
    a, b = np.int64(indptr[i]), np.int64(indptr[j])
    length = np.int64(indptr[i + 1]) - a
    if np.int64(indptr[j + 1]) - b != length:
        return False
    for e in range(length - 1, -1, -1):  # rows that differ mostly do at their ends  # noqa: SIM110
        if indices[a + e] != indices[b + e]:
            return False
    return True


def fits_bits(low: NDArray[np.uint64], high: NDArray[np.uint64], bits: int) -> bool:
    """Whether each of some columns up to `high` can be told by so many bits from `low` on."""
    return bits >= 64 or bool(np.all(high - low < np.uint64(2) ** np.uint64(bits)))


@njit(nogil=True, cache=True)
def column_range(indptr: Any, indices: Any, order: Any, group: Any) -> Any:
    """The least and the greatest column of each group of rows, in some order; (0, 0) where a group is empty."""
    groups = (order.size + group - 1) // group
    low, high = np.zeros(groups, np.uint64), np.zeros(groups, np.uint64)
    for g in range(groups):
        least, most = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
        for s in range(g * group, min(order.size, (g + 1) * group)):
            first, stop = np.uint64(indptr[order[s]]), np.uint64(indptr[order[s] + 1])
            if stop > first:
                least = min(least, np.uint64(indices[first]))
                most = max(most, np.uint64(indices[stop - np.uint64(1)]))
        if least <= most:
            low[g], high[g] = least, most
    return low, high


def in_parallel(function: Callable[..., Any], count: int, threads: int, *arguments: Any) -> list[Any]:
    """``function(*arguments, first, last)`` for pieces of range(count), and what each of them gave, in order.

    The function, compiled without the GIL, computes nothing that another piece needs; the caller's thread is one of
    `threads`.
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

    `arrays`: what the kernel takes; its class says which kernel that is. Has a field ``values``. `slot` (nnz,) array of
    unsigned integers, or None: ``values[slot] = data`` for CSR data; None where the slots are the entries themselves.
    `align`: blocks of rows must begin at a multiple of so many rows. `stored`: slots stored, padding included.
    `unit`: rows that the kernel does at once: of a chunk, a slice; divides `align`.
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
