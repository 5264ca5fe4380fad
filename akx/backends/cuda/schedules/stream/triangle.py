"""Half chunks: of a symmetric matrix one triangle travels, and the device makes whole chunks of it (triangle.cuh).

a_ji = a_ij, or a_ji = conj(a_ij). Of the n_i entries of row i those below the diagonal are sent, c_i of them, with

    w + q + s bytes each, s = 1 or 2, and w + s for the row     (w, q: a value, a column relative to its slice)

where a whole chunk has n_i (w + q), and padding, of which a half one has none. The s bytes say which entry of row j the
mirror of (i, j) is, so that each place of a whole chunk is written by one thread, and is what it would be if all had
been sent: the steps are the same, and so is every bit of a result. With w = 8, q = 2, s = 1 and n_i = 2 c_i + 1 that is
11 c_i + 9 for 20 c_i + 10: a ratio of 1.70 for 9 entries in a row, 1.77 for 27, 1.80 for 69.

Chunk t comes with the x of its rows, and step t makes it whole; its last mirrors are there at step t + u / C, and
power 1 is done on it l = C + u rows later in any case. So chunks arrive floor(l / C) steps earlier than whole ones do,
and on the device are

    ceil(m l / C) + 1   whole chunks, each made again in every pass,
    ahead + 1           half ones, `ahead` of them on their way, and those that stay, as there is room,
    2 n / 32            numbers, where the slices of whole chunks begin, and their least columns.

What stays is half as large, too. Sources: of one triangle and both products of an entry any text on sparse matrices
tells; that it is made whole on the way, with a place for each mirror, is akx's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.schedules.stream.layout import (
    ALIGN,
    SLICE,
    Chunks,
    Window,
    below_diagonal,
    first_from,
    slices_of,
    stored_bytes,
)
from akx.core.matrix import Matrix
from akx.core.numba_jit import njit
from akx.core.plan import FULL, Plan, in_full
from akx.formats.base import column_range
from akx.formats.symmetry import has_symmetric_values

__all__ = [
    "CONJUGATE",
    "PLAIN",
    "heads_of",
    "is_smaller",
    "is_symmetric",
    "pack_halves",
    "storable",
    "symmetry_of",
]

#: How mirrors may be alike.
PLAIN, CONJUGATE = "plain", "conjugate"
#: By so much fewer bytes have to cross the bus than of whole chunks, which are made meanwhile.
_LEAST_GAIN = 1.2
#: In the cache of a matrix, what :func:`symmetry_of` has found.
_SYMMETRY = "akx.backends.cuda.schedules.stream.symmetry"


def symmetry_of(matrix: Matrix) -> str:
    """`PLAIN` where a_ji = a_ij to the last bit but the sign of zero, `CONJUGATE` where a_ji = conj(a_ij), else ""."""
    if _SYMMETRY not in matrix.cache:
        kinds = (PLAIN, CONJUGATE) if matrix.dtype.kind == "c" else (PLAIN,)
        matrix.cache[_SYMMETRY] = next((kind for kind in kinds if is_symmetric(matrix, matrix.data, kind)), "")
    return str(matrix.cache[_SYMMETRY])


def is_symmetric(pattern: Matrix, data: NDArray[Any], kind: str) -> bool:
    """Whether values `data` (nnz,) of a pattern are alike in that way; one pass, and one number for each row."""
    return has_symmetric_values(pattern.indptr, pattern.indices, data, conjugate=kind == CONJUGATE)


def storable(plan: Plan, matrix: Matrix) -> Plan:
    """The plan, with values in full where they cannot be stored as it says."""
    if plan.typed.stored == FULL or symmetry_of(matrix):
        return plan
    return in_full(plan)


def is_smaller(pattern: Matrix) -> bool:
    """Whether half chunks pay: not of rows of an entry or two."""
    half = below_diagonal(pattern)[0]
    return half > 0 and _LEAST_GAIN * stored_bytes(pattern, 16, half=half) < stored_bytes(pattern, 16)


def pack_halves(matrix: Matrix, window: Window, bits: int, memory: Any = np.zeros) -> Chunks:
    """Lay a triangle of a matrix with a symmetric pattern out in half chunks, as :func:`pack` does it in whole ones."""
    size, rows, per = matrix.dtype.itemsize, window.rows, window.rows // SLICE
    index, mark = np.dtype(f"u{bits // 8}"), np.dtype(f"u{window.half // 8}")
    begin, order = below_diagonal(matrix)[1], np.arange(matrix.n)
    base = column_range(matrix.indptr, matrix.indices, order, SLICE)[0].astype(np.int64)
    first = np.minimum(np.arange(window.chunks + 1) * per, base.size)
    count = np.diff(begin[first])
    fixed = window.header + rows * (size + mark.itemsize)
    octets = -(-(fixed + count * (size + index.itemsize + mark.itemsize)) // ALIGN) * ALIGN
    at = np.concatenate([[0], np.cumsum(octets)]).astype(np.int64)
    data = memory(int(at[-1]), np.uint8)
    data[:] = 0
    cursor = first_from(matrix.indptr, matrix.indices, 1)
    on_diagonal = np.count_nonzero(matrix.indices[np.maximum(cursor - 1, 0)] == order)
    slot = np.empty((matrix.nnz - on_diagonal) // 2 + on_diagonal, np.int64)
    entry = np.empty(slot.size, np.int64 if matrix.nnz >= 2**31 else np.int32)
    number = 0
    for c in range(window.chunks):
        a, b = first[c], first[c + 1]
        chunk, below = data[at[c] : at[c + 1]], int(count[c])
        head = chunk[: window.header].view(np.uint32)
        head[: per + 1] = begin[b] - begin[a]  # also of the slices that a last chunk does not have
        head[: b - a + 1] = begin[a : b + 1] - begin[a]
        values = window.header + rows * size
        columns = values + below * size
        marks = columns + below * index.itemsize
        number = _pack(
            matrix.indptr,
            matrix.indices,
            cursor,
            (c * rows, min(matrix.n, (c + 1) * rows)),
            begin[a : b + 1] - begin[a],
            base[a:b],
            chunk[columns:marks].view(index),
            chunk[marks : marks + (below + rows) * mark.itemsize].view(mark),
            ((at[c] + window.header) // size, (at[c] + values) // size),
            slot,
            entry,
            number,
        )
    return Chunks(data, at, slot[:number], entry[:number])


def heads_of(matrix: Matrix, window: Window) -> NDArray[np.uint32]:
    """(chunks, window.head): where the slices of each whole chunk begin, and their least columns in the ring."""
    start, per = slices_of(matrix), window.rows // SLICE
    base = column_range(matrix.indptr, matrix.indices, np.arange(matrix.n), SLICE)[0].astype(np.int64)
    at = start[np.minimum(np.arange(window.chunks * per + 1), base.size)]  # a last chunk may lack some slices
    found = np.zeros((window.chunks, window.head), np.uint32)
    found[:, :per] = at[:-1].reshape(-1, per) - at[:-1:per, None]
    found[:, per] = at[per::per] - at[:-1:per]
    held = np.zeros(window.chunks * per, np.int64)
    held[: base.size] = base % window.ring
    found[:, per + 1 :] = held.reshape(-1, per)
    return found


@njit(nogil=True, cache=True)
def _pack(
    indptr: Any,
    indices: Any,
    cursor: Any,
    rows: Any,
    begin: Any,
    base: Any,
    column: Any,
    mark: Any,
    places: Any,
    slot: Any,
    entry: Any,
    number: Any,
) -> Any:
    """One chunk: columns, marks, and where which values go. `cursor` is each row's next entry beyond its diagonal."""
    place = np.empty(np.diff(indptr[rows[0] : rows[1] + 1]).max() + 1, np.int64)
    for i in range(rows[0], rows[1]):
        own = i - rows[0]
        least = base[own // 32]
        if own % 32 == 0:  # where the first entries of its rows begin, the second ones, and so on
            _begin(indptr, indices, i, min(i + 32, rows[1]), begin[own // 32], place)
        below = on = 0
        for p in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[p])
            if j > i:
                break
            entry[number] = p
            if j == i:
                slot[number] = places[0] + own
                on = 1
            else:
                q, at = cursor[j], place[below]
                cursor[j] = q + 1
                place[below] = at + 1
                column[at] = j - least
                mark[at] = 2 * (q - np.int64(indptr[j])) + (1 if q + 1 == indptr[j + 1] else 0)
                slot[number] = places[1] + at
                below += 1
            number += 1
        beyond = 1 if indptr[i + 1] - indptr[i] > below + on else 0
        mark[column.size + own] = 4 * below + 2 * beyond + on
    return number


@njit(nogil=True, cache=True)
def _begin(indptr: Any, indices: Any, first: Any, last: Any, begin: Any, place: Any) -> None:
    """Where the s-th entries below the diagonal of rows first .. last - 1 begin, for every s."""
    place[:] = 0
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] >= i:
                break
            place[p - indptr[i]] += 1
    for s in range(place.size):
        count = place[s]
        place[s] = begin
        begin += count
