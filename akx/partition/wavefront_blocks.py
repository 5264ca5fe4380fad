"""Blocks of levels for a wavefront, and the strip of each worker: who owns a row, and when its powers are due.

A wavefront does power p on block t - lag (p - 1) of the rows at step t, and each worker owns a *strip*: its share of
every block. A block is some whole levels (:mod:`akx.partition.level_order`), or a piece of one where levels are large.
A strip has the same stretch of every level (or the same patch, where a level is a plane of a grid), so that what it
reads of others lies along its edges. Patches are made by bisection, along the longer side, into parts of equal numbers
(Berger, Bokhari 1987). Cost: O(n + nnz).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import InfeasibleError
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.partition.level_order import LevelOrder, level_order

__all__ = [
    "Groups",
    "Strips",
    "dealt",
    "fullest",
    "strips",
]

#: Rows that stay together: a sector of memory, of 32 bytes, in double precision.
_TOGETHER = 4
#: Times that levels are cut anew, in smaller pieces, where strips have too many rows.
_TRIES = 4
#: Rows that a thread looks at at least.
_ROWS = 1 << 15
#: Blocks that a row may read on each side: more make the front wide.
_MOST_REACH = 16


@dataclass(frozen=True)
class Groups:
    """Levels, or even pieces of them, in kinds: those of a kind are dealt to strips alike.

    `ptr` (groups + 1,) int64: where each begins in the order. `kind` (groups,) int64. `strip` (rows of one group of
    each kind,) uint32: strip of each row, kind after kind. `kind_ptr` (kinds + 1,) int64: where each kind begins in
    `strip`. `own` (kinds, parts) int64: rows that each strip has of a group.
    """

    ptr: NDArray[np.int64]
    kind: NDArray[np.int64]
    strip: NDArray[np.uint32]
    kind_ptr: NDArray[np.int64]
    own: NDArray[np.int64]

    def strips_of(self, first: int, last: int) -> NDArray[np.uint32]:
        """Strip of each row of the groups from one to another."""
        sizes = np.diff(self.ptr[first : last + 1])
        place = np.repeat(self.kind_ptr[self.kind[first:last]] - (np.cumsum(sizes) - sizes), sizes)
        place += np.arange(place.size)
        return np.take(self.strip, place)


@dataclass(eq=False)
class Strips:
    """Rows dealt to strips and blocks. What each row has is made when it is asked for.

    `begin` (blocks + 1,) int64: the group with which each block begins. `ahead`, `behind`: blocks that a row reads
    before and after its own, at most.
    """

    order: LevelOrder
    groups: Groups
    begin: NDArray[np.int64]
    parts: int
    ahead: int = 0
    behind: int = 0

    @property
    def blocks(self) -> int:
        """How many."""
        return self.begin.size - 1

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each block begins in the order, (blocks + 1,)."""
        return self.groups.ptr[self.begin]

    @cached_property
    def part(self) -> NDArray[np.uint32]:
        """Strip of each row, (n,)."""
        return self.order.by_row(self.groups.strips_of(0, self.groups.kind.size))

    @cached_property
    def block(self) -> NDArray[np.uint32]:
        """Block of each row, (n,)."""
        return self.order.by_row(np.repeat(np.arange(self.blocks, dtype=np.uint32), np.diff(self.starts)))

    def place_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Block and strip of some rows, (m,) each."""
        if not self.order.is_natural:
            return self.block[rows].astype(np.int64), self.part[rows].astype(np.int64)
        groups = self.groups
        group = np.searchsorted(groups.ptr, rows, side="right") - 1
        strip = groups.strip[groups.kind_ptr[groups.kind[group]] + rows - groups.ptr[group]]
        return np.searchsorted(self.starts, rows, side="right") - 1, strip.astype(np.int64)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """How many each strip has of each block, (blocks, parts)."""
        own = self.groups.own[self.groups.kind]
        return np.add.reduceat(own, self.begin[:-1], axis=0) if own.size else own


def strips(indptr: NDArray[Any], indices: NDArray[Any], order: str | LevelOrder, parts: int, room: int) -> Strips:
    """Deal the rows to `parts` strips and to blocks of at most `room` rows of each.

    `indptr`, `indices` (n+1,) and (nnz,) integers: CSR pattern of A, columns ascending. `order` ({"natural", "levels"}
    or LevelOrder): where levels come from: the order of the rows, or breadth-first search. `parts`: strips. Levels of
    fewer rows than that leave some without rows. `room`: rows of a block that a strip may have. Raises
    :class:`InfeasibleError` where rows cannot be dealt evenly, or read too far.
    """
    found = level_order(indptr, indices, order) if isinstance(order, str) else order
    pointer = indptr.astype(np.int64, copy=False)

    def reach(dealt: Strips) -> tuple[int, int]:
        def of_rows(first: int, last: int) -> Any:
            return _reach(pointer, indices, dealt.block, first, last, found.is_natural)

        ahead, behind = (int(max(one)) for one in zip(*in_pieces(of_rows, pointer.size - 1, _ROWS), strict=True))
        return ahead, behind

    return dealt(found, parts, room, reach)


def dealt(found: LevelOrder, parts: int, room: int, reach: Callable[[Strips], tuple[int, int]]) -> Strips:
    """As :func:`strips`, of rows in levels; `reach` says how many blocks they read before and after their own."""
    rows = parts * room
    for _ in range(_TRIES):
        groups = _dealt(_groups(found.level_ptr, rows), found.line, parts)
        begin = _blocks(groups.kind, groups.own, room)
        if begin is not None:
            break
        rows = max(1, int(0.85 * rows))
    else:
        expected = f"at most {room} rows of a block in each of {parts} strips"
        hint = "take larger blocks, or fewer strips"
        raise InfeasibleError("levels cannot be dealt evenly", expected=expected, hint=hint)
    made = Strips(found, groups, begin, parts)
    ahead, behind = reach(made)
    if max(ahead, behind) > _MOST_REACH:
        raise InfeasibleError(
            "rows read too far for a front",
            expected=f"at most {_MOST_REACH} blocks of {parts * room} rows",
            found=f"{max(ahead, behind)} blocks",
            hint="order the rows by levels, or take another schedule",
        )
    made.ahead, made.behind = ahead, behind
    return made


def fullest(indptr: NDArray[Any], found: Strips) -> tuple[int, int]:
    """Rows, and entries, that a strip has of a block at most."""
    lengths = np.diff(indptr)
    usual = lengths[lengths.size // 2]
    others = np.flatnonzero(lengths != usual)  # few rows of a grid

    rows = found.rows.ravel()
    block, part = found.place_of(others)
    group = block * found.parts + part
    more = np.bincount(group, lengths[others].astype(np.int64) - int(usual), minlength=rows.size)
    return int(rows.max()), int((int(usual) * rows + more).max())


def _groups(level_ptr: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Pointers of the levels, those of more than `rows` cut in even pieces."""
    sizes = np.diff(level_ptr)
    pieces = np.maximum(1, -(-sizes // max(rows, 1)))
    if pieces.max(initial=1) == 1:
        return level_ptr
    level = np.repeat(np.arange(sizes.size), pieces)
    number = np.arange(level.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(level_ptr[level] + sizes[level] * number // pieces[level], level_ptr[-1])


def _dealt(ptr: NDArray[np.int64], line: int, parts: int) -> Groups:
    """The same stretch of each group for a strip, or the same patch where groups are planes of lines.

    Stretches begin at multiples of :data:`_TOGETHER`, so that what they write is whole sectors of memory.
    """
    sizes, unit = np.diff(ptr), line if line > 1 else _TOGETHER
    _, some, kind = np.unique(sizes * unit + ptr[:-1] % unit, return_index=True, return_inverse=True)
    size, start = sizes[some], ptr[some] % unit
    kind_ptr = np.concatenate([[0], np.cumsum(size)])
    number = np.repeat(np.arange(size.size), size)
    place = np.arange(kind_ptr[-1]) + (start - kind_ptr[:-1])[number]
    if line > 1:
        each = [place[first:last] for first, last in pairwise(kind_ptr)]
        strip = np.concatenate([_patches(one // line, one % line // _TOGETHER, parts) for one in each])
    else:
        middle = np.minimum(place // _TOGETHER * _TOGETHER + (_TOGETHER - 1) / 2 - start[number], size[number] - 1.0)
        strip = (np.maximum(middle, 0.0) * parts / size[number]).astype(np.uint32)
    own = np.bincount(number * parts + strip, minlength=parts * size.size).reshape(-1, parts)
    return Groups(ptr, kind.reshape(-1), strip, kind_ptr, own)


def _patches(u: NDArray[np.int64], v: NDArray[np.int64], parts: int) -> NDArray[np.uint32]:
    """Points of a grid in `parts` patches of about equal numbers, by bisection along the longer side.

    Points of one u and v stay together.
    """
    width = int(v.max(initial=0)) + 1
    name, of_point, weight = np.unique(u * width + v, return_inverse=True, return_counts=True)
    u, v = name // width, name % width
    far = int(max(u.max(initial=0), width)) + 1
    at, first, count = np.zeros(min(u.size, 1), np.int64), np.zeros(1, np.int64), np.full(1, parts)
    while u.size and count.max() > 1:  # all pieces at once: each begins at `at`, for `count` parts from `first` on
        size, half = np.diff(at, append=u.size), count // 2
        piece = np.repeat(np.arange(at.size), size)
        span_u, span_v = (np.maximum.reduceat(one, at) - np.minimum.reduceat(one, at) for one in (u, v))
        long = (span_u >= span_v * _TOGETHER)[piece]
        across, along = np.where(long, u, v), np.where(long, v, u)
        order = np.argsort((piece * far + across) * far + along, kind="stable")  # it is in runs
        u, v, name, weight = u[order], v[order], name[order], weight[order]
        behind = np.cumsum(weight)
        base = behind[at] - weight[at]
        total = np.diff(base, append=behind[-1])
        cut = np.searchsorted(behind, base + total * half / count) + 1
        both = np.flatnonzero((count > 1) & (cut < at + size))  # else there is nothing to cut off, or none behind it
        at = np.insert(at, both + 1, cut[both])
        other, more = (first + half)[both], (count - half)[both]
        first, count = np.insert(first, both + 1, other), np.insert(np.where(count > 1, half, 1), both + 1, more)
    found = np.repeat(first, np.diff(at, append=u.size)).astype(np.uint32)[np.argsort(name)]
    points: NDArray[np.uint32] = np.take(found, of_point.reshape(-1))
    return points


def _blocks(kind: NDArray[np.int64], own: NDArray[np.int64], room: int) -> NDArray[np.int64] | None:
    """Groups joined to blocks of at most `room` rows of a strip, as many as fit; None where one has more.

    The group with which each block begins, and the number of groups.
    """
    if own.max(initial=0) > room:
        return None
    of_groups = own[kind]
    if not (of_groups[:-1] + of_groups[1:] <= room).all(axis=1).any():
        return np.arange(kind.size + 1)
    before = np.concatenate([np.zeros((1, own.shape[1]), np.int64), np.cumsum(of_groups, axis=0)])
    fit = room // np.maximum(own.max(axis=1), 1)  # of a kind
    alike = np.append(np.flatnonzero(np.diff(kind)) + 1, kind.size)  # behind groups that follow one another
    begins: list[int] = []
    end, look = 0, 4
    while end < kind.size:
        several = int(fit[kind[end]])
        whole = end + (int(alike[np.searchsorted(alike, end, side="right")]) - end - 1) // several * several
        begins += range(end, whole, several)
        begins.append(whole)
        most, end = before[whole] + room, whole + 1
        while end < kind.size:
            fits = (before[end + 1 : end + 1 + look] <= most).all(axis=1)
            end += int(np.argmin(fits)) if not fits.all() else fits.size
            if not fits.all():
                break
            look *= 2
        look = max(4, end - begins[-1])  # the next one is likely as long
    return np.append(begins, kind.size)


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
