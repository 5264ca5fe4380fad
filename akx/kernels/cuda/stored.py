"""What the values of a matrix are stored as: as they are, in half the bytes, or as numbers of the different ones.

    full    w bytes a value
    half    w / 2 bytes: float32 for float64, complex64 for complex128, where every value is the same in it
    table   2 bytes: where a value is in a table of all that are different, in bytes; 0 is there first

All are exact: each product of an entry and x has the bits that it has with full values. They may be added up in another
order where slots are in shared memory, since how many are asked for at once depends on the bytes of a value (`AT_ONCE`
in ``wavefront.cuh``). Matrices of grids with constant coefficients and of meshes whose elements are alike have few
different values; Laplacians of graphs have whole numbers.

Source: the table is value compression by unique values, CSR-VI (Kourtis, Goumas, Koziris, "Optimizing sparse
matrix-vector multiplication using index and value compression", CF 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from akx.matrix import Matrix

__all__ = ["FULL", "HALF", "STORED", "TABLE", "WHY_NOT", "Values", "encoded", "stored_bytes", "table_bytes", "ways_of"]

FULL, HALF, TABLE = STORED = ("full", "half", "table")
#: Why values cannot be stored in a way.
WHY_NOT = {HALF: "values are not the same in half the bytes", TABLE: "too many values are different"}
#: The type of half the bytes.
_NARROW = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.complex64)}
#: Places that a table is made with are a multiple of it, so that new values of about as many kinds fit in too.
_ROUNDED = 64
#: 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, sec. 6.4).
_SCATTER = np.uint64(0x9E3779B97F4A7C15)
#: Places of the hash table for each different value there may be.
_SPREAD = 4


@dataclass(frozen=True)
class Values:
    """Values as they are stored.

    Attributes
    ----------
    stored : array
        Of the values' own type, of that of half the bytes, or uint16.
    table : array
        Of the values' own type, padded with zeros; empty but for ``table``.
    """

    stored: NDArray[Any]
    table: NDArray[Any]


def stored_bytes(way: str, dtype: np.dtype[Any]) -> int:
    """Bytes of a stored value."""
    return {FULL: dtype.itemsize, HALF: dtype.itemsize // 2, TABLE: 2}[way]


def encoded(data: NDArray[Any], way: str, room: int | None = None) -> Values | None:
    """The values stored that way, or None where that is not exact or takes too large a table.

    Parameters
    ----------
    data : (nnz,) array of float32, float64, complex64 or complex128
    way : {"full", "half", "table"}
    room : int, optional
        Places of the table; as many as there have to be by default, at most those of 64 KB.
    """
    empty = np.zeros(0, data.dtype)
    if way == FULL:
        return Values(data, empty)
    if way == HALF:
        narrow = _NARROW.get(data.dtype)
        if narrow is None:
            return None
        with np.errstate(all="ignore"):
            stored = data.astype(narrow)
        return Values(stored, empty) if np.array_equal(stored, data) else None
    most = 2**16 // data.dtype.itemsize if room is None else room
    words = _words(data)
    number, first, count = _numbered(words, most)
    if count > most:
        return None
    places = room if room is not None else -(-count // _ROUNDED) * _ROUNDED
    table = np.zeros(places, data.dtype)
    table[1:count] = data[first[1:count]]
    return Values(number * np.uint16(data.dtype.itemsize), table)


def ways_of(matrix: Matrix) -> dict[str, int]:
    """The ways in which its values can be stored, and the bytes of a table for each; memoised with the values."""
    known: dict[str, int] | None = matrix.cache.get("akx.kernels.cuda.stored")
    if known is None:
        found = ((way, encoded(matrix.data, way)) for way in STORED)
        known = {way: int(values.table.nbytes) for way, values in found if values is not None}
        matrix.cache["akx.kernels.cuda.stored"] = known
    return known


def table_bytes(matrix: Matrix, way: str) -> int:
    """Bytes of the table where values are stored that way."""
    return ways_of(matrix).get(way, 0) if way == TABLE else 0


def _words(data: NDArray[Any]) -> NDArray[np.uint64]:
    """The bits of each value, (nnz, 1 or 2)."""
    flat = np.ascontiguousarray(data)
    if flat.dtype == np.float32:
        return flat.view(np.uint32).astype(np.uint64).reshape(-1, 1)
    return flat.view(np.uint64).reshape(flat.size, flat.dtype.itemsize // 8)


@njit(cache=True, nogil=True)
def _numbered(words: NDArray[np.uint64], most: int) -> Any:
    """The number of each value among the different ones, zero the first; where they are; and how many (or too many)."""
    n, width = words.shape
    number = np.zeros(n, np.uint16)
    first = np.zeros(most + 1, np.int64)
    bits = 6
    while 1 << bits < _SPREAD * (most + 1):
        bits += 1
    slot = np.full(1 << bits, -1, np.int64)
    mask = np.int64((1 << bits) - 1)
    count = 1  # zero
    for i in range(n):
        hashed = words[i, 0]
        nothing = words[i, 0] == 0
        for w in range(1, width):
            hashed = hashed * _SCATTER + words[i, w]
            nothing = nothing and words[i, w] == 0
        if nothing:
            continue
        at = np.int64((hashed * _SCATTER) >> np.uint64(64 - bits))  # bits that depend on all bits of the value
        while True:
            known = slot[at]
            if known < 0:
                if count >= most:
                    return number, first, most + 1
                slot[at] = count
                first[count] = i
                number[i] = count
                count += 1
                break
            same = True
            for w in range(width):
                same = same and words[first[known], w] == words[i, w]
            if same:
                number[i] = known
                break
            at = (at + 1) & mask
    return number, first, count
