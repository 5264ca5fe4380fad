"""The diagonals of each slice of 32 rows: which are stored whole, and which entries one by one.

A slot is one value for each of the 32 rows of a slice. In a *uniform* slot all of them lie on one diagonal, so that one
offset (column - row) stands for 32 columns; in a *scattered* slot every row has a 16-bit column of its own. Each slice
has the diagonals that pay: with the diagonals of a slice by falling number of entries, u of them are uniform and the
entries left are scattered, u such that (uniform + 2 scattered) slots are fewest. Or it is cut in two, where that takes
fewer slots: rows from `cut` on have diagonals of their own, and a slot has two offsets. Lines of a grid, whatever their
lengths, then take no more slots where one line ends and the next begins.

Bytes per entry: (itemsize + 8 / 32) / fill, and itemsize + 2 where scattered. Source: diagonals per row segment as in
Sun, Zhang, Wang, Zhang 2011 (CRSD), cut by slices as sliced ELL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Pattern, pointers_of

__all__ = ["WARP", "Diagonals", "Extents", "diagonals_of"]

WARP = 32
#: Diagonals of a slice that are looked at; a slice with more of them is scattered.
_MOST_DIAGONALS = 64


class Extents(NamedTuple):
    """Of :class:`Diagonals` what prices go by: each of shape (slices,), but for the number of rows."""

    rows: int
    uniform: NDArray[np.int64]
    scattered: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def slots(self) -> int:
        """Slots in all."""
        return int(self.uniform.sum() + self.scattered.sum())


@dataclass(frozen=True)
class Diagonals:
    """The diagonals of every slice, whatever the parts are.

    `ptr` (slices+1,) int64: into `offset`: the uniform slots of each slice. `offset`, `later` (int64): column - row, of
    the rows before the cut and of the others; increasing in each slice, then 0 where one has less. `cut` (slices,)
    int64: rows before the cut; 32 where there is none. `scattered` (slices,) int64: scattered slots, which come behind
    the uniform ones. `slot` (nnz,) uint16: slot of each entry in its slice. `low`, `high` (slices,) int64: the rows of
    x that a slice reads, from `low` to `high` - 1, padding included.
    """

    rows: int
    ptr: NDArray[np.int64]
    offset: NDArray[np.int64]
    later: NDArray[np.int64]
    cut: NDArray[np.int64]
    scattered: NDArray[np.int64]
    slot: NDArray[np.uint16]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def uniform(self) -> NDArray[np.int64]:
        """Uniform slots of each slice."""
        found: NDArray[np.int64] = np.diff(self.ptr)
        return found

    @property
    def extents(self) -> Extents:
        """What is known of each slice without its slots."""
        return Extents(self.rows, self.uniform, self.scattered, self.low, self.high)


def diagonals_of(pattern: Pattern) -> Diagonals:
    """The diagonals of each slice of a pattern."""
    slices = -(-pattern.rows // WARP)
    uniform, scattered = np.zeros(slices, dtype=np.int64), np.zeros(slices, dtype=np.int64)
    slot = np.zeros(pattern.nnz, dtype=np.uint16)
    low, high = np.zeros(slices, dtype=np.int64), np.zeros(slices, dtype=np.int64)
    offset, later = (np.zeros(slices * _MOST_DIAGONALS, dtype=np.int32) for _ in range(2))
    cut = np.zeros(slices, dtype=np.int64)
    _choose(pattern.indptr, pattern.indices, (uniform, scattered, offset, later, cut, slot, low, high))
    kept = np.arange(_MOST_DIAGONALS) < uniform[:, None]
    first, second = (a.reshape(slices, -1)[kept].astype(np.int64) for a in (offset, later))
    return Diagonals(pattern.rows, pointers_of(uniform), first, second, cut, scattered, slot, low, high)


@njit(nogil=True, cache=True)
def _choose(indptr: Any, indices: Any, found: Any) -> None:
    """Of each slice its diagonals, where it is cut, how many slots are scattered, and the slot of each entry."""
    uniform, scattered, offset, later, cut, slot, low, high = found
    rows, most = indptr.size - 1, _MOST_DIAGONALS
    known, mask = np.empty(most, np.int64), np.empty(most, np.uint32)
    left, taken, chosen = np.empty(WARP, np.int64), np.empty(most, np.bool_), np.empty(most, np.bool_)
    for s in range(uniform.size):
        first, stop = s * WARP, min(rows, (s + 1) * WARP)
        low[s], high[s] = first, stop
        for i in range(first, stop):
            begin, end = np.int64(indptr[i]), np.int64(indptr[i + 1])
            left[i - first] = end - begin
            if end > begin:
                low[s] = min(low[s], np.int64(indices[begin]))
                high[s] = max(high[s], np.int64(indices[end - 1]) + 1)
        longest = left[: stop - first].max()
        count = _find_diagonals(indptr, indices, first, stop, known, mask)
        uniform[s], scattered[s] = _choose_uniform(mask[:count], left[: stop - first], taken, chosen)
        least = uniform[s] + 2 * scattered[s]
        cut[s] = WARP
        for c in range(1, stop - first if count and least > longest else 1):
            one = other = 0
            for k in range(count):
                one += mask[k] & ((np.int64(1) << c) - 1) != 0
                other += (mask[k] >> np.uint32(c)) != 0
            if max(one, other) < least:
                least = max(one, other)
                uniform[s], scattered[s], cut[s] = least, 0, c
        below = (np.int64(1) << cut[s]) - 1
        here = s * most
        k = j = 0
        for m in range(count):
            before = chosen[m] if cut[s] == WARP else mask[m] & below != 0
            behind = chosen[m] if cut[s] == WARP else mask[m] >> np.uint32(cut[s]) != 0
            if before:
                offset[here + k] = known[m]
                k += 1
            if behind:
                later[here + j] = known[m]
                j += 1
            if before or behind:
                low[s] = min(low[s], first + known[m])
                high[s] = max(high[s], first + WARP + known[m])
        middle = min(stop, first + cut[s])
        _place(indptr, indices, first, middle, offset[here : here + k], uniform[s], slot)
        _place(indptr, indices, middle, stop, later[here : here + j], uniform[s], slot)


@njit(nogil=True, cache=True)
def _find_diagonals(indptr: Any, indices: Any, first: int, stop: int, known: Any, mask: Any) -> int:
    """The diagonals of a slice, ascending, and a bit for each of its rows on them; none where there are too many."""
    count = 0
    for i in range(first, stop):
        k = 0
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            wanted = np.int64(indices[p]) - i
            while k < count and known[k] < wanted:
                k += 1
            if k == count or known[k] != wanted:
                if count == known.size:
                    return 0
                for m in range(count, k, -1):
                    known[m], mask[m] = known[m - 1], mask[m - 1]
                known[k], mask[k] = wanted, 0
                count += 1
            mask[k] |= np.uint32(1) << np.uint32(i - first)
    return count


@njit(nogil=True, cache=True)
def _choose_uniform(mask: Any, left: Any, taken: Any, chosen: Any) -> tuple[int, int]:
    """How many diagonals are uniform slots, and the scattered ones beside them; `chosen` says which diagonals.

    `left` (rows of the slice,) are their entries; it is used up.
    """
    taken[:] = False
    chosen[:] = False
    best, width = 0, left.max()
    least, scattered = 2 * width, width
    for u in range(mask.size):
        most_rows, at = -1, 0
        for k in range(mask.size):
            if not taken[k]:
                bits = 0
                for r in range(WARP):
                    bits += (mask[k] >> np.uint32(r)) & np.uint32(1)
                if bits > most_rows:
                    most_rows, at = bits, k
        taken[at] = True
        for r in range(left.size):
            left[r] -= (mask[at] >> np.uint32(r)) & np.uint32(1)
        width = left.max()
        if u + 1 + 2 * width <= least:
            least, best, scattered = u + 1 + 2 * width, u + 1, width
            chosen[:] = taken
    return best, scattered


@njit(nogil=True, cache=True)
def _place(indptr: Any, indices: Any, first: int, stop: int, offset: Any, uniform: int, slot: Any) -> None:
    """The slots of the entries of some rows: that of their diagonal, or one after another behind the uniform ones."""
    for i in range(first, stop):
        k, lone = 0, uniform
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            wanted = np.int64(indices[p]) - i
            while k < offset.size and offset[k] < wanted:
                k += 1
            if k < offset.size and offset[k] == wanted:
                slot[p] = k
            else:
                slot[p] = lone
                lone += 1
