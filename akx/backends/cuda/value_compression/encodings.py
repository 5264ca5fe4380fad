"""What the values of a matrix are stored as: as they are, in half the bytes, or as numbers of the different ones.

    full    w bytes a value
    half    w / 2 bytes: float32 for float64, complex64 for complex128, where every value is the same in it, or is off
            by no more than the matrix allows (:attr:`akx.core.matrix.Matrix.value_error`)
    table   2 bytes: where a value is in a table of all that are different, in bytes; 0 is there first

A value a is stored as s, the nearest number of half the bytes, where |s - a| <= value_error |a|. Rounding to float32 is
off by 2^-24 |a| at most, about 6e-8, but for what is too small or too large for it: zero and infinity are off by |a| or
more, which no allowance below 1 permits. What can be stored is found from the values themselves.

Without an allowance all are exact: each product of an entry and x has the bits that it has with full values. They may
be added up in another order where slots are in shared memory, since how many are asked for at once depends on the bytes
of a value (`AT_ONCE` in ``wavefront.cuh``). Matrices of grids with constant coefficients and of meshes whose elements
are alike have few different values; Laplacians of graphs have whole numbers.

Source: the table is value compression by unique values, CSR-VI (Kourtis, Goumas, Koziris, "Optimizing sparse
matrix-vector multiplication using index and value compression", CF 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.core.plan import FULL, Plan, in_full

__all__ = [
    "FULL",
    "HALF",
    "STORED",
    "TABLE",
    "Values",
    "encoded",
    "error_of",
    "in_full",
    "is_storable",
    "placed",
    "placed_words",
    "same_as_full",
    "stored_bytes",
    "table_bytes",
    "values_of",
    "way_of",
    "ways_of",
]

HALF, TABLE = "half", "table"
STORED = (FULL, HALF, TABLE)
#: Why values cannot be stored in a way.
_WHY_NOT = {HALF: "values are not the same in half the bytes", TABLE: "too many values are different"}
#: The type of half the bytes.
_NARROW = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.complex64)}
#: Places that a table is made with are a multiple of it, so that new values of about as many kinds fit in too.
_ROUNDED = 64
#: 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, sec. 6.4).
_SCATTER = np.uint64(0x9E3779B97F4A7C15)
#: Places of the hash table for each different value there may be.
_SPREAD = 4
#: Values that a thread takes at least.
_PIECE = 1 << 19


@dataclass(frozen=True)
class Values:
    """Values as they are stored.

    `stored`: of the values' own type, of that of half the bytes, or uint16; of the host, or on the device. `table`: of
    the values' own type, padded with zeros; empty but for ``table``. `error`: the largest |s - a| / |a| of a value a
    stored as s; 0 where all are the same.
    """

    stored: Any
    table: NDArray[Any]
    error: float = 0.0


def way_of(plan: Plan) -> str:
    """What the plan stores values as."""
    return str(plan.typed.stored)


def is_storable(plan: Plan, matrix: Matrix) -> bool:
    """Whether the values of the matrix can be stored as the plan says."""
    return (way := way_of(plan)) == FULL or way in ways_of(matrix)


def same_as_full(plan: Plan, why: str | None = None) -> str:
    """Why a search has no use for what the plan stores values as; by default, since these cannot be stored so."""
    way = way_of(plan)
    return f"stored={way} is the same as {FULL} here: {why or _WHY_NOT[way]}"


def stored_bytes(way: str, dtype: np.dtype[Any]) -> int:
    """Bytes of a stored value."""
    return {FULL: dtype.itemsize, HALF: dtype.itemsize // 2, TABLE: 2}[way]


def encoded(data: Any, way: str, room: int | None = None, value_error: float = 0.0) -> Values | None:
    """The values stored that way, or None where they are off by more than is allowed or take too large a table.

    `data` (nnz,) array of float32, float64, complex64 or complex128: of the host; or on the device, and then that is
    where they are stored. `way`: {"full", "half", "table"}. `room`: places of the table; as many as there have to be by
    default, at most those of 64 KB. `value_error`: largest relative error of a value in half the bytes, at least 0 and
    less than 1; a table is exact.
    """
    empty = np.zeros(0, data.dtype)
    if way == FULL:
        return Values(data, empty)
    if way == HALF and data.dtype not in _NARROW:
        return None
    if not isinstance(data, np.ndarray):
        return _encoded_there(data, way, room, value_error)
    return _halved(data, _NARROW[data.dtype], value_error) if way == HALF else _tabled(data, room)


def _encoded_there(data: Any, way: str, room: int | None, value_error: float) -> Values | None:
    """The same on the device. The table is in the order of the bits of its values, and is trimmed as on the host."""
    from akx.backends.cuda.value_compression.on_device import halved, tabled

    if way == HALF:
        stored, error = halved(data, data.dtype)
        return Values(stored, np.zeros(0, data.dtype), error) if error <= value_error else None
    found = tabled(data, data.dtype, 2**16 // data.dtype.itemsize if room is None else room)
    if found is None:
        return None
    stored, table = found
    different = 1 + int(np.count_nonzero(_words(table).any(axis=1)))
    return Values(stored, table if room is not None else table[: -(-different // _ROUNDED) * _ROUNDED])


def _halved(data: NDArray[Any], narrow: np.dtype[Any], value_error: float) -> Values | None:
    stored = np.empty(data.size, narrow)

    def halve(begin: int, end: int) -> float:
        with np.errstate(all="ignore"):
            stored[begin:end] = data[begin:end]
        if np.array_equal(stored[begin:end], data[begin:end]):
            return 0.0
        return float(_largest_error(stored[begin:end], data[begin:end])) if value_error > 0 else np.inf

    error = max(in_pieces(halve, data.size, _PIECE))
    return Values(stored, np.zeros(0, data.dtype), error) if error <= value_error else None


def _tabled(data: NDArray[Any], room: int | None) -> Values | None:
    """Each piece by itself, then the different values of all of them, in the order in which they come in the data."""
    words, size = _words(data), data.dtype.itemsize
    most = 2**16 // size if room is None else room
    pieces = in_pieces(lambda begin, end: (begin, *_numbered(words[begin:end], most)), data.size, _PIECE)
    if any(count > most for *_, count in pieces):
        return None
    # One after another: where a value is met first in each piece, zero left out.
    met = np.concatenate([begin + first[1:count] for begin, _, first, count in pieces])
    among, first, count = _numbered(words[met], most)
    if count > most:
        return None
    stored = np.empty(data.size, np.uint16)
    ends = np.cumsum([count - 1 for *_, count in pieces])
    offsets = [np.append(np.uint16(0), part * np.uint16(size)) for part in np.split(among, ends[:-1])]
    numbers = {begin: (number, offset) for (begin, number, *_), offset in zip(pieces, offsets, strict=True)}
    in_pieces(lambda begin, end: _renumbered(*numbers[begin], stored[begin:end]), data.size, _PIECE)
    places = room if room is not None else -(-count // _ROUNDED) * _ROUNDED
    table = np.zeros(places, data.dtype)
    table[1:count] = data[met[first[1:count]]]
    return Values(stored, table)


def placed(stored: NDArray[Any], entry: NDArray[np.uint32]) -> NDArray[Any]:
    """Stored values where a layout has them: each place says one plus its entry, or 0 for padding, which is zero."""
    found = np.empty(entry.size, stored.dtype)
    in_pieces(lambda begin, end: _place(stored, entry[begin:end], found[begin:end]), entry.size, _PIECE)
    return found


def placed_words(
    stored: NDArray[np.uint16], entry: NDArray[np.uint32], columns: NDArray[np.uint16]
) -> NDArray[np.uint32]:
    """The same for offsets into a table, each with the column of its place in the upper half of a word."""
    found = np.empty(entry.size, np.uint32)

    def place(begin: int, end: int) -> None:
        _place(stored, entry[begin:end], found[begin:end])
        found[begin:end] |= columns[begin:end].astype(np.uint32) << np.uint32(16)

    in_pieces(place, entry.size, _PIECE)
    return found


def values_of(matrix: Matrix) -> Any:
    """Its values where they are: on the device, or in host memory."""
    return matrix.data if matrix.on_device is None else matrix.on_device.data


def ways_of(matrix: Matrix) -> dict[str, int]:
    """The ways in which its values can be stored, and the bytes of a table for each; memoised with the values."""
    return _known(matrix)[0]


def error_of(matrix: Matrix, way: str) -> float:
    """The largest relative error of its values stored that way; 0 where they cannot be, and are in full instead.

    Values are looked at only where they may be off.
    """
    return _known(matrix)[1].get(way, 0.0) if way == HALF and matrix.value_error else 0.0


def _known(matrix: Matrix) -> tuple[dict[str, int], dict[str, float]]:
    """The bytes of a table and the error for each way there is: of values, and of what is allowed for them."""
    known: tuple[dict[str, int], dict[str, float]] | None = matrix.cache.get(
        "akx.backends.cuda.value_compression.encodings"
    )
    if known is None:
        data = values_of(matrix)
        found = {way: encoded(data, way, value_error=matrix.value_error) for way in STORED}
        tables = {way: int(values.table.nbytes) for way, values in found.items() if values is not None}
        known = tables, {way: values.error for way, values in found.items() if values is not None}
        matrix.cache["akx.backends.cuda.value_compression.encodings"] = known
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
def _largest_error(stored: NDArray[Any], data: NDArray[Any]) -> float:
    """The largest |s - a| / |a|; infinite where an s is. Quotients, as a product with a tiny |a| may be rounded up."""
    worst = 0.0
    for i in range(data.size):
        off = abs(stored[i] - data[i])
        if off != 0.0:
            relative = off / abs(data[i])
            if not relative <= worst:  # larger, or not a number, where both are infinite
                worst = relative if relative == relative else np.inf
    return worst


@njit(cache=True, nogil=True)
def _renumbered(number: NDArray[np.uint16], offset: NDArray[np.uint16], stored: NDArray[np.uint16]) -> None:
    for i in range(number.size):
        stored[i] = offset[number[i]]


@njit(cache=True, nogil=True)
def _place(stored: NDArray[Any], entry: NDArray[np.uint32], found: NDArray[Any]) -> None:
    nothing = np.zeros(1, stored.dtype)[0]
    for p in range(entry.size):
        e = np.int64(entry[p])
        found[p] = stored[e - 1] if e > 0 else nothing


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
