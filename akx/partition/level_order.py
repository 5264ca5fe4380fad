"""Orders of the rows by levels: a row reads its own level and those next to it only, or nearly so.

Levels of rows in the order given are found by what there is, the first that is at hand:

- *period*: rows of a grid have the same offsets; the middle of the farthest ones is the number of rows of a line (in
  two dimensions) or of a plane (in three), and the middle of the farthest ones within that, the line of the plane;
- *lines*: stretches of rows each of which reads the next one; where all neighbours are in lines next to each other, as
  in a grid of lines of changing length;
- *closure*: the next level ends where this one's columns do.

For ``levels`` they are breadth-first (:mod:`akx.partition.levels`). Cost: O(n + nnz).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.partition.ball_growth import grow
from akx.partition.levels import levels

__all__ = [
    "ORDERS",
    "LevelOrder",
    "is_shallow",
    "learnt_rows",
    "level_order",
    "levels_of_period",
    "natural_levels",
]

#: Orders of the rows from which levels are made.
ORDERS = ("natural", "levels")
#: Rows from which offsets are learnt, and the share of them that has to have one.
_SAMPLE, _FREQUENT = 4096, 0.4
#: Offsets this near the farthest, as a part of it, are those of one line or plane.
_NEAR = 0.75


@dataclass(frozen=True)
class LevelOrder:
    """Rows in an order of levels.

    `level_ptr` (levels + 1,) int64: level `l` is rows ``level_ptr[l] .. level_ptr[l+1] - 1`` of the order. `line`: rows
    of a line, where levels are planes of a grid, else 0. `permutation` (n,) int64, optional: ``permutation[new] =
    old``; None where the order is that of the rows.
    """

    level_ptr: NDArray[np.int64]
    line: int
    permutation: NDArray[np.int64] | None = None

    @property
    def is_natural(self) -> bool:
        """The order is that of the rows."""
        return self.permutation is None

    @property
    def mean_width(self) -> float:
        """Rows of a level, in the mean."""
        return int(self.level_ptr[-1]) / max(self.level_ptr.size - 1, 1)

    def by_row(self, of_order: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """What rows have, from what they have in this order."""
        if self.permutation is None:
            return of_order
        found = np.empty_like(of_order)
        found[self.permutation] = of_order
        return found


def level_order(indptr: NDArray[Any], indices: NDArray[Any], order: str) -> LevelOrder:
    """Levels of the rows in the order given, "natural", or by breadth-first search, "levels".

    `indptr` (n+1,) and `indices` (nnz,) are the CSR pattern of A, columns ascending.
    """
    if order == "natural":
        level_ptr, line = natural_levels(indptr.astype(np.int64, copy=False), indices)
        return LevelOrder(level_ptr, line)
    found = levels(indptr, indices)
    return LevelOrder(found.level_ptr, 0, found.permutation)


def is_shallow(indptr: NDArray[Any], indices: NDArray[Any], depth: int) -> bool:
    """Whether breadth-first search from the first row finds half of all rows within so many levels, by one search."""
    n = indptr.size - 1
    return bool(n > 0 and 2 * grow(indptr, indices, 0, -(-n // 2), depth)[-1] >= n)


def natural_levels(indptr: NDArray[np.int64], indices: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Pointers of the levels of rows in the order given, and rows of a line of a level that is a plane (else 0)."""
    rows = learnt_rows(indptr.size - 1)
    counts = indptr[rows + 1] - indptr[rows]
    at = np.repeat(indptr[rows], counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    found = levels_of_period(indptr.size - 1, rows, counts, indices[at])
    if found is not None:
        return found
    starts = _lines(indptr, indices)
    if starts.size > 2 and _next_to(indptr, indices, starts):
        return starts, 0
    return _closure(indptr, indices), 0


def learnt_rows(n: int) -> NDArray[np.int64]:
    """The rows from which offsets are learnt, of so many."""
    return np.unique(np.linspace(n // 4, max(n // 4, 3 * n // 4 - 1), min(n, _SAMPLE)).astype(np.int64))


def levels_of_period(
    n: int, rows: NDArray[np.int64], counts: NDArray[Any], columns: NDArray[Any]
) -> tuple[NDArray[np.int64], int] | None:
    """As :func:`natural_levels`, where rows have a period; None where they have none.

    Of n rows, `rows` are those of :func:`learnt_rows`, `counts` the entries of each, and `columns` theirs, row by row.
    """
    distance = columns.astype(np.int64) - np.repeat(rows, counts)
    values, times = np.unique(distance[distance > 0], return_counts=True)
    offsets = values[times >= _FREQUENT * rows.size]  # behind the diagonal, that many rows have
    period = _middle(offsets, n)
    if period <= 1:
        return None
    return np.append(np.arange(0, n, period), n).astype(np.int64), _middle(offsets[offsets < period / 2], period)


def _middle(offsets: NDArray[np.int64], n: int) -> int:
    """The middle of the farthest offsets, 0 where those are no line of a grid."""
    if offsets.size == 0 or offsets[-1] < 3 or offsets[-1] > n // 2:
        return 0
    far = offsets[offsets >= _NEAR * offsets[-1]]
    return int(far[far.size // 2])


@njit(cache=True, nogil=True)
def _lines(indptr: NDArray[np.int64], indices: NDArray[Any]) -> NDArray[np.int64]:
    n = indptr.shape[0] - 1
    starts = np.empty(n + 1, np.int64)
    count = 0
    joined = False
    for i in range(n):
        if not joined:
            starts[count] = i
            count += 1
        joined = False
        for e in range(indptr[i], indptr[i + 1]):
            if np.int64(indices[e]) == i + 1:
                joined = True
    starts[count] = n
    return starts[: count + 1].copy()


@njit(cache=True, nogil=True)
def _next_to(indptr: NDArray[np.int64], indices: NDArray[Any], starts: NDArray[np.int64]) -> bool:
    """Whether every row reads lines next to its own only."""
    for line in range(starts.shape[0] - 1):
        low = starts[max(line - 1, 0)]
        high = starts[min(line + 2, starts.shape[0] - 1)]
        for e in range(indptr[starts[line]], indptr[starts[line + 1]]):
            if np.int64(indices[e]) < low or np.int64(indices[e]) >= high:
                return False
    return True


@njit(cache=True, nogil=True)
def _closure(indptr: NDArray[np.int64], indices: NDArray[Any]) -> NDArray[np.int64]:
    """Level after level: the next ends behind the last column of this one, or row that reads into it."""
    n = indptr.shape[0] - 1
    last = np.zeros(n + 1, np.int64)  # behind the last row that reads column i, or that row i reads
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[e])
            last[i] = max(last[i], j + 1)
            last[j] = max(last[j], i + 1)
    starts = np.empty(n + 2, np.int64)
    starts[0] = 0
    count, begin, end = 1, 0, 1
    while begin < n:
        reach = end
        for i in range(begin, end):
            reach = max(reach, last[i])
        starts[count] = end
        count += 1
        begin, end = end, min(max(reach, end + 1), n)
    starts[count - 1] = n
    return starts[:count].copy()
