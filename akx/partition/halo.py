"""Halos: what each part of a partition must know of the others to do one step.

Part p owns the rows with part[i] == p. Its halo is the set of foreign columns of its rows, and its neighbours are the
parts that own them; for a nonsymmetric pattern p may be a neighbour of q without q being one of p. A row is on the
*border* where it has a foreign column or is in the halo of another part; border rows come first, so that what others
wait for can be done first, and inner rows, which need no halo, meanwhile:

    nodes of part p = [ border | inner | halo ]

Cost: one pass over the entries, and some over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces

__all__ = ["Halos", "grown", "halo_sizes", "halos"]


#: Rows that a thread takes at least.
_ROWS = 1 << 14
#: A de Bruijn sequence: no six bits of it are the same as six others. The first six tell what power of two it is times
#: (Leiserson, Prokop, Randall, "Using de Bruijn sequences to index a 1 in a computer word", 1998).
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT = np.empty(64, np.uint8)
_BIT[((_DE_BRUIJN << np.arange(64, dtype=np.uint64)) >> np.uint64(58)).astype(int)] = np.arange(64)


@dataclass(frozen=True)
class Halos:
    """The rows of each part and its halo.

    `rows` (total,) uint32: part after part: own rows (border, then inner ones, each by falling length) and the halo in
    ascending order. `ptr` (parts+1,) int64: where each part begins in `rows`. `own`, `border` (parts,) int64: how many
    of them are own rows, and how many of those are on the border. `neighbours` (m,) uint32: the parts that own the
    halo, ascending, part after part. `neighbour_ptr` (parts+1,) int64.
    """

    rows: NDArray[np.uint32]
    ptr: NDArray[np.int64]
    own: NDArray[np.int64]
    border: NDArray[np.int64]
    neighbours: NDArray[np.uint32]
    neighbour_ptr: NDArray[np.int64]

    @property
    def parts(self) -> int:
        """Number of parts."""
        return int(self.own.size)

    @property
    def halo(self) -> NDArray[np.int64]:
        """Foreign rows that each part fetches, shape (parts,)."""
        return np.diff(self.ptr) - self.own


def halos(
    indptr: NDArray[Any], indices: NDArray[Any], part: NDArray[Any], parts: int, lengths: NDArray[Any] | None = None
) -> Halos:
    """The halos of a partition.

    `indptr`, `indices` (n+1,) and (nnz,) arrays of unsigned integers: CSR pattern. `part` (n,) integers: the part of
    each row, 0 <= part < parts. `parts`: parts may be empty. `lengths` (n,) integers, optional: what own rows are
    sorted by, entries by default.
    """
    owner = part.astype(np.uint32, copy=False)
    border = np.zeros(owner.size, dtype=np.uint8)
    entries: NDArray[Any] = np.diff(indptr) if lengths is None else lengths
    if (owner[1:] >= owner[:-1]).all():  # runs of rows
        members = np.arange(owner.size, dtype=np.uint32)
        place = np.searchsorted(owner, np.arange(parts + 1, dtype=np.uint32))
        own = np.diff(place)
    else:
        own = np.bincount(owner, minlength=parts)
        place = np.concatenate([[0], np.cumsum(own)])
        members = np.empty(owner.size, np.uint32)
        _gather(owner, place[:-1].copy(), members)
    least = max(1, _ROWS * parts // max(owner.size, 1))

    def found(first: int, last: int) -> tuple[NDArray[Any], ...]:
        return tuple(_halos(indptr, indices, owner, members, place, border, first, last))

    pieces = in_pieces(found, parts, least)
    halo, counts, neighbours, neighbour_counts = (np.concatenate(one) for one in zip(*pieces, strict=True))
    halo_ptr, neighbour_ptr = (np.concatenate([[0], np.cumsum(one)]) for one in (counts, neighbour_counts))
    ptr = place + halo_ptr
    rows, on_border = np.empty(int(ptr[-1]), np.uint32), np.zeros(parts, np.int64)
    longest = int(entries.max(initial=0))

    def together(first: int, last: int) -> None:
        _by_length(members, (border, entries), longest, place, ptr, rows, on_border, first, last)
        for g in range(first, last):
            rows[ptr[g] + own[g] : ptr[g + 1]] = halo[halo_ptr[g] : halo_ptr[g + 1]]

    in_pieces(together, parts, least)
    return Halos(rows, ptr, own, on_border, neighbours, neighbour_ptr)


def halo_sizes(
    indptr: NDArray[Any], indices: NDArray[Any], cuts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """How large the halos of runs of rows are, without lists of them; one pass over the entries.

    `indptr` and `indices` are a CSR pattern of unsigned integers, `cuts` (parts+1,), int64, the first row of each run,
    and n. Returns three (parts,) arrays of float64: foreign rows that each part fetches, the parts that own them, and
    rows from the least that it has or fetches to the largest.
    """
    found: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] = _sizes(indptr, indices, cuts)
    return found


@njit(cache=True, nogil=True)
def _sizes(indptr: Any, indices: Any, cuts: Any) -> Any:
    parts, n = cuts.size - 1, indptr.size - 1
    halo, neighbours, span = np.zeros(parts), np.zeros(parts), np.zeros(parts)
    seen, met = np.full(n, -1, np.int32), np.full(parts, -1, np.int32)
    owner = np.empty(n, np.int32)
    for g in range(parts):
        owner[cuts[g] : cuts[g + 1]] = g
    for g in range(parts):
        first, last = cuts[g], cuts[g + 1]
        low, high = first, last - 1
        for p in range(np.int64(indptr[first]), np.int64(indptr[last])):
            j = np.int64(indices[p])
            if (j < first or j >= last) and seen[j] != g:
                seen[j] = g
                halo[g] += 1
                low, high = min(low, j), max(high, j)
                if met[owner[j]] != g:
                    met[owner[j]] = g
                    neighbours[g] += 1
        span[g] = high - low + 1
    return halo, neighbours, span


@njit(cache=True, nogil=True)
def _gather(owner: Any, following: Any, members: Any) -> None:
    """The rows of each part, as they come, from `following` on, which moves on."""
    for i in range(owner.size):
        g = owner[i]
        members[following[g]] = i
        following[g] += 1


@njit(cache=True, nogil=True)
def _by_length(
    members: Any, of_rows: Any, longest: int, place: Any, ptr: Any, rows: Any, on_border: Any, begin: int, end: int
) -> None:
    """Sort the members of parts from one to another by counting: those on the border first, the longest first.

    Ties stay as they come; `on_border` is told how many there are.
    """
    border, lengths = of_rows
    begins = np.zeros(longest + 2, np.int64)
    for g in range(begin, end):
        tail = ptr[g]
        for wanted in (1, 0):
            shortest, most = np.int64(longest), np.int64(-1)
            for t in range(place[g], place[g + 1]):
                if border[members[t]] == wanted:
                    length = np.int64(lengths[members[t]])
                    begins[length] += 1
                    shortest, most = min(shortest, length), max(most, length)
            for size in range(most, shortest - 1, -1):
                count = begins[size]
                begins[size] = tail
                tail += count
            for t in range(place[g], place[g + 1]):
                if border[members[t]] == wanted:
                    length = np.int64(lengths[members[t]])
                    rows[begins[length]] = members[t]
                    begins[length] += 1
            for size in range(shortest, most + 1):
                begins[size] = 0
            if wanted:
                on_border[g] = tail - ptr[g]


@njit(cache=True, nogil=True)
def _halos(
    indptr: Any, indices: Any, owner: Any, members: Any, place: Any, border: Any, begin_part: int, end_part: int
) -> Any:
    """Of parts from one to another: the halos, how many rows of each, the neighbours, and how many.

    A halo is a set of bits, read from the least to the greatest: ascending, each row once, without a sort. Rows on the
    border are marked, of other parts too: it does not matter who is first.
    """
    one, low_bits = np.uint64(1), np.uint64(63)
    bits, met = np.zeros((owner.size >> 6) + 1, np.uint64), np.zeros(place.size - 1, np.bool_)
    rows = np.empty(place[end_part] - place[begin_part] + 64, np.uint32)
    counts = np.zeros(end_part - begin_part, np.int64)
    neighbours = np.empty(8 * (end_part - begin_part) + 64, np.uint32)
    neighbour_counts = np.zeros(end_part - begin_part, np.int64)
    tail, met_tail = 0, 0
    for g in range(begin_part, end_part):
        begin, low, high = tail, np.int64(bits.size), np.int64(-1)
        for t in range(place[g], place[g + 1]):
            row = np.uint64(members[t])
            for p in range(np.uint64(indptr[row]), np.uint64(indptr[row + one])):
                j = np.uint64(indices[p])
                if owner[j] != g:
                    border[row] = border[j] = 1
                    word = np.int64(j >> np.uint64(6))
                    bits[word] |= one << (j & low_bits)
                    low, high = min(low, word), max(high, word)
        least, most = np.int64(met.size), np.int64(-1)
        for w in range(low, high + 1):
            left = bits[w]
            bits[w] = 0
            if left and tail + 64 > rows.size:
                rows = grown(rows, tail + 64)
            while left:
                least_bit = left & (~left + one)
                j = np.uint64(w) << np.uint64(6) | np.uint64(_BIT[(least_bit * _DE_BRUIJN) >> np.uint64(58)])
                left ^= least_bit
                rows[tail] = j
                tail += 1
                q = np.int64(owner[j])
                met[q] = True
                least, most = min(least, q), max(most, q)
        met_first = met_tail
        for other in range(least, most + 1):
            if met[other]:
                met[other] = False
                if met_tail == neighbours.size:
                    neighbours = grown(neighbours, met_tail + 1)
                neighbours[met_tail] = other
                met_tail += 1
        counts[g - begin_part] = tail - begin
        neighbour_counts[g - begin_part] = met_tail - met_first
    return rows[:tail].copy(), counts, neighbours[:met_tail].copy(), neighbour_counts


@njit(cache=True, nogil=True)
def grown(array: Any, least: int) -> Any:
    """A copy with room for `least` or more, half as many again at least."""
    larger = np.empty(max(least, array.size + array.size // 2), array.dtype)
    for i in range(array.size):  # a slice takes ten times as long to compile: its error would be a text
        larger[i] = array[i]
    return larger
