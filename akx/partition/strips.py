"""Strips and blocks for a front: who owns a row, and when its powers are due.

A front does power p on block t - lag (p - 1) of the rows at step t, and each worker owns a *strip*: its share of every
block. Rows are first grouped in *levels*, so that a row is in one with, or next to, those that it reads: lines of a
grid, planes of one, breadth-first levels. A block is some whole levels, or a piece of one where levels are large. A
strip has the same stretch of every level (or the same patch, where a level is a plane of a grid), so that what it reads
of others lies along its edges.

Levels of rows in the order given are found by what there is, the first that is at hand:

- *period*: rows of a grid have the same offsets; the middle of the farthest ones is the number of rows of a line (in
  two dimensions) or of a plane (in three), and the middle of the farthest ones within that, the line of the plane;
- *lines*: stretches of rows each of which reads the next one; where all neighbours are in lines next to each other, as
  in a grid of lines of changing length;
- *closure*: the next level ends where this one's columns do.

For ``levels`` they are breadth-first (:mod:`akx.partition.levels`). Patches are made by bisection, along
the longer side, into parts of equal numbers (Berger, Bokhari 1987). Cost: O(n + nnz).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx._numba import njit
from akx.errors import InfeasibleError
from akx.partition.levels import levels
from akx.partition.pieces import in_pieces

__all__ = [
    "ORDERS",
    "LevelOrder",
    "Strips",
    "dealt",
    "fullest",
    "in_order",
    "is_shallow",
    "learnt_rows",
    "level_order",
    "levels_of_period",
    "natural_levels",
    "strips",
]

#: Orders of the rows from which levels are made.
ORDERS = ("natural", "levels")
#: Rows from which offsets are learnt, and the share of them that has to have one.
_SAMPLE, _FREQUENT = 4096, 0.4
#: Offsets this near the farthest, as a part of it, are those of one line or plane.
_NEAR = 0.75
#: Rows that stay together: a sector of memory, of 32 bytes, in double precision.
_TOGETHER = 4
#: Times that levels are cut anew, in smaller pieces, where strips have too many rows.
_TRIES = 4
#: Blocks that are joined without compiled code, which would have to be loaded.
_FEW_BLOCKS = 2000
#: Rows that a thread looks at at least.
_ROWS = 1 << 15
#: Blocks that a row may read on each side: more make the front wide.
_MOST_REACH = 16


@dataclass(frozen=True)
class Strips:
    """Rows dealt to strips and blocks.

    Attributes
    ----------
    part : (n,) array of uint32
        Strip of each row.
    block : (n,) array of uint32
        Block of each row.
    parts, blocks : int
    ahead, behind : int
        Blocks that a row reads before and after its own, at most.
    rows : (blocks, parts) array of int64, optional
        How many each strip has of each block.
    """

    part: NDArray[np.uint32]
    block: NDArray[np.uint32]
    parts: int
    blocks: int
    ahead: int
    behind: int
    rows: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class LevelOrder:
    """Rows in an order of levels.

    Attributes
    ----------
    permutation : (n,) array of int64
        ``permutation[new] = old``.
    level_ptr : (levels + 1,) array of int64
        Level `l` is rows ``level_ptr[l] .. level_ptr[l+1] - 1`` of the order.
    line : int
        Rows of a line, where levels are planes of a grid, else 0.
    is_natural : bool
        The order is that of the rows.
    """

    permutation: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    line: int
    is_natural: bool = False

    @property
    def mean_width(self) -> float:
        """Rows of a level, in the mean."""
        return self.permutation.size / max(self.level_ptr.size - 1, 1)


def level_order(indptr: NDArray[Any], indices: NDArray[Any], order: str) -> LevelOrder:
    """Levels of the rows in the order given, or by breadth-first search.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of integers
        CSR pattern of A, columns ascending.
    order : {"natural", "levels"}
    """
    if order == "natural":
        level_ptr, line = natural_levels(indptr.astype(np.int64, copy=False), indices)
        return in_order(level_ptr, line)
    found = levels(indptr, indices)
    return LevelOrder(found.permutation, found.level_ptr, 0)


def in_order(level_ptr: NDArray[np.int64], line: int) -> LevelOrder:
    """Levels of the rows in the order given."""
    return LevelOrder(np.arange(level_ptr[-1], dtype=np.int64), level_ptr, line, is_natural=True)


def is_shallow(indptr: NDArray[Any], indices: NDArray[Any], depth: int) -> bool:
    """Whether breadth-first search from the first row finds half of all rows within so many levels, by one search."""
    return bool(indptr.size > 1 and _found_within(indptr.astype(np.int64, copy=False), indices, depth))


@njit(cache=True, nogil=True)
def _found_within(indptr: NDArray[np.int64], indices: NDArray[Any], depth: int) -> bool:
    n = indptr.shape[0] - 1
    seen = np.zeros(n, np.bool_)
    order = np.zeros(n, np.int64)
    seen[0] = True
    head, tail = 0, 1
    for _ in range(depth):
        end = tail
        for t in range(head, end):
            i = order[t]
            for e in range(indptr[i], indptr[i + 1]):
                j = np.int64(indices[e])
                if not seen[j]:
                    seen[j] = True
                    order[tail] = j
                    tail += 1
        head = end
        if 2 * tail >= n:
            return True
    return False


def strips(indptr: NDArray[Any], indices: NDArray[Any], order: str | LevelOrder, parts: int, room: int) -> Strips:
    """Deal the rows to `parts` strips and to blocks of at most `room` rows of each.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of integers
        CSR pattern of A, columns ascending.
    order : {"natural", "levels"} or LevelOrder
        Where levels come from: the order of the rows, or breadth-first search.
    parts : int
        Strips. Levels of fewer rows than that leave some without rows.
    room : int
        Rows of a block that a strip may have.

    Raises
    ------
    InfeasibleError
        Where rows cannot be dealt evenly, or read too far.
    """
    found = level_order(indptr, indices, order) if isinstance(order, str) else order
    pointer = indptr.astype(np.int64, copy=False)

    def reach(block: NDArray[np.uint32]) -> tuple[int, int]:
        def of_rows(first: int, last: int) -> Any:
            return _reach(pointer, indices, block, first, last, found.is_natural)

        ahead, behind = (int(max(one)) for one in zip(*in_pieces(of_rows, pointer.size - 1, _ROWS), strict=True))
        return ahead, behind

    return dealt(found, parts, room, reach)


def dealt(found: LevelOrder, parts: int, room: int, reach: Callable[[NDArray[np.uint32]], tuple[int, int]]) -> Strips:
    """As :func:`strips`, of rows in levels; `reach` says how many blocks they read before and after their own."""
    n, rows = found.permutation.size, parts * room
    for _ in range(_TRIES):
        groups = _groups(found.level_ptr, rows)
        part_in_order = _dealt(groups, found.line, parts)
        block_in_order, blocks, of_strips = _blocks(groups, part_in_order, parts, room)
        if blocks:
            break
        rows = max(1, int(0.85 * rows))
    else:
        raise InfeasibleError(
            "levels cannot be dealt evenly",
            expected=f"at most {room} rows of a block in each of {parts} strips",
            hint="take larger blocks, or fewer strips",
        )
    part, block = part_in_order, block_in_order
    if not found.is_natural:
        part, block = np.empty(n, np.uint32), np.empty(n, np.uint32)
        part[found.permutation], block[found.permutation] = part_in_order, block_in_order
    ahead, behind = reach(block)
    if max(ahead, behind) > _MOST_REACH:
        raise InfeasibleError(
            "rows read too far for a front",
            expected=f"at most {_MOST_REACH} blocks of {parts * room} rows",
            found=f"{max(ahead, behind)} blocks",
            hint="order the rows by levels, or take another schedule",
        )
    return Strips(part, block, parts, blocks, ahead, behind, of_strips)


def fullest(indptr: NDArray[Any], found: Strips) -> tuple[int, int]:
    """Rows, and entries, that a strip has of a block at most."""
    lengths = np.diff(indptr)
    usual = lengths[lengths.size // 2]
    others = np.flatnonzero(lengths != usual)  # few rows of a grid

    def group(rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        strip: NDArray[np.int64] = found.block[rows].astype(np.int64) * found.parts + found.part[rows]
        return strip

    rows = np.bincount(group(slice(None))) if found.rows is None else found.rows.ravel()
    more = np.bincount(group(others), lengths[others].astype(np.int64) - int(usual), minlength=rows.size)
    return int(rows.max()), int((int(usual) * rows + more).max())


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

    Parameters
    ----------
    n : int
    rows, counts : arrays
        :func:`learnt_rows`, and entries of each.
    columns : array
        Their columns, one row after another.
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


def _groups(level_ptr: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Pointers of the levels, those of more than `rows` cut in even pieces."""
    sizes = np.diff(level_ptr)
    pieces = np.maximum(1, -(-sizes // max(rows, 1)))
    if pieces.max(initial=1) == 1:
        return level_ptr
    level = np.repeat(np.arange(sizes.size), pieces)
    number = np.arange(level.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(level_ptr[level] + sizes[level] * number // pieces[level], level_ptr[-1])


def _dealt(groups: NDArray[np.int64], line: int, parts: int) -> NDArray[np.uint32]:
    """The strip of each row: the same stretch of each group, or the same patch where groups are planes of lines.

    Stretches begin at multiples of :data:`_TOGETHER`, so that what they write is whole sectors of memory.
    """
    sizes = np.diff(groups)
    if line > 1:
        known: dict[tuple[int, int], NDArray[np.uint32]] = {}
        keys = list(zip(sizes.tolist(), (groups[:-1] % line).tolist(), strict=True))
        for count, start in dict.fromkeys(keys):
            place = start + np.arange(count)
            known[count, start] = _patches(place // line, place % line // _TOGETHER, parts)
        return np.concatenate([known[key] for key in keys])
    row = np.arange(int(groups[-1]), dtype=np.int64)
    first, size = np.repeat(groups[:-1], sizes), np.repeat(sizes, sizes)
    middle = np.minimum(row // _TOGETHER * _TOGETHER + (_TOGETHER - 1) / 2 - first, size - 1.0)
    strip: NDArray[np.uint32] = (np.maximum(middle, 0.0) * parts / size).astype(np.uint32)
    return strip


def _patches(u: NDArray[np.int64], v: NDArray[np.int64], parts: int) -> NDArray[np.uint32]:
    """Points of a grid in `parts` patches of about equal numbers, by bisection along the longer side.

    Points of one u and v stay together.
    """
    width = int(v.max(initial=0)) + 1
    name, of_point, weight = np.unique(u * width + v, return_inverse=True, return_counts=True)
    cell = np.stack([name // width, name % width])
    found = np.zeros(cell.shape[1], dtype=np.uint32)
    waiting = [(np.arange(cell.shape[1]), 0, parts)]
    while waiting:
        cells, first, count = waiting.pop()
        if count == 1 or cells.size == 0:
            found[cells] = first
            continue
        long = np.ptp(cell[0, cells]) >= np.ptp(cell[1, cells]) * _TOGETHER
        across, along = (cell[0, cells], cell[1, cells]) if long else (cell[1, cells], cell[0, cells])
        cells = cells[np.lexsort((along, across))]
        half = count // 2
        behind = np.cumsum(weight[cells])
        cut = int(np.searchsorted(behind, behind[-1] * half / count, side="left")) + 1
        waiting += [(cells[:cut], first, half), (cells[cut:], first + half, count - half)]
    points: NDArray[np.uint32] = np.take(found, of_point.reshape(-1))
    return points


def _blocks(
    groups: NDArray[np.int64], part: NDArray[np.uint32], parts: int, room: int
) -> tuple[NDArray[np.uint32], int, NDArray[np.int64] | None]:
    """Groups joined to blocks of at most `room` rows of a strip, as many as fit; no blocks where one has more.

    The block of each row, the number of blocks, and the rows that each strip has of each, where these are counted.
    """
    if part.size > _FEW_BLOCKS * parts * room:
        block, count = _many_blocks(groups, part, parts, room)
        return block, int(count), None
    sizes = np.diff(groups)
    own = np.bincount(np.repeat(parts * np.arange(sizes.size), sizes) + part, minlength=parts * sizes.size)
    before = np.concatenate([np.zeros((1, parts), np.int64), np.cumsum(own.reshape(-1, parts), axis=0)])
    begins, end = [], 0
    if own.max(initial=0) > room:
        return np.zeros(part.size, np.uint32), 0, None
    while end < sizes.size:
        begins.append(end)
        most, end, look = before[end] + room, end + 1, 4
        while end < sizes.size:
            fits = (before[end + 1 : end + 1 + look] <= most).all(axis=1)
            end += int(np.argmin(fits)) if not fits.all() else fits.size
            if not fits.all():
                break
            look *= 2
    ends = np.append(begins, sizes.size)
    rows = np.diff(groups[ends])
    return np.repeat(np.arange(rows.size, dtype=np.uint32), rows), rows.size, np.diff(before[ends], axis=0)


@njit(cache=True, nogil=True)
def _many_blocks(groups: NDArray[np.int64], part: NDArray[np.uint32], parts: int, room: int) -> Any:
    """The same, compiled."""
    block = np.zeros(part.shape[0], np.uint32)
    filled = np.zeros(parts, np.int64)
    count = np.uint32(0)
    for g in range(groups.shape[0] - 1):
        own = np.zeros(parts, np.int64)
        for i in range(groups[g], groups[g + 1]):
            own[part[i]] += 1
        if own.max() > room:
            return block, 0
        if count > 0 and (filled + own).max() <= room:
            filled += own
        else:
            filled[:] = own
            count += np.uint32(1)
        block[groups[g] : groups[g + 1]] = count - np.uint32(1)
    return block, count


@njit(cache=True, nogil=True)
def _reach(
    indptr: NDArray[np.int64], indices: NDArray[Any], block: NDArray[np.uint32], first: int, last: int, ascend: bool
) -> Any:
    """Of rows from one to another: blocks that one reads after its own and before it, at most.

    Where blocks ascend with rows, the ends of a row tell.
    """
    ahead, behind = np.int64(0), np.int64(0)
    for i in range(first, last):
        own = np.int64(block[i])
        step = max(np.int64(1), indptr[i + 1] - indptr[i] - 1) if ascend else np.int64(1)
        for e in range(indptr[i], indptr[i + 1], step):
            other = np.int64(block[indices[e]])
            ahead, behind = max(ahead, other - own), max(behind, own - other)
    return ahead, behind
