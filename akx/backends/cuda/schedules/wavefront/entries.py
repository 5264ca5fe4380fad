"""Where entries, x and what strips exchange are: the layout of a front filled, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.schedules.wavefront.layout import _HEAD, LEAST_FETCHED, NONE, WARP, Front, Shape
from akx.backends.cuda.schedules.wavefront.runs import WORD_BITS, Runs, fill_runs, in_order_of_words, most_places
from akx.core.errors import InfeasibleError
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.formats.base import Pattern
from akx.partition.wavefront_blocks import Strips

__all__ = ["lay_out"]

#: Rows that a thread lays out at least.
_ROWS = 1 << 14
#: Published values of a strip begin at multiples of so many, in lines of their own.
_APART = 16


def lay_out(
    pattern: Pattern,
    strips: Strips,
    lanes: int,
    held_slots: int,
    slack: int,
    itemsize: int,
    runs: Runs | None = None,
) -> Front:
    """Lay the matrix out. Raises :class:`InfeasibleError` where columns do not fit 16 bits, or rows not the runs."""
    pointer = pattern.indptr.astype(np.int64)
    parts, blocks = strips.parts, strips.blocks
    rows, group = _grouped(strips.part, strips.block, parts, blocks)
    each = max(1, _ROWS * (group.size - 1) // max(rows.size, 1))
    if runs is None:
        in_pieces(lambda first, last: _longest_first(pointer, rows, group, first, last), group.size - 1, each)
    per_slice = WARP // lanes
    slices = max(1, -(-int(np.diff(group).max(initial=1)) // per_slice))
    least = max(1, _ROWS * parts // max(rows.size, 1))
    of_strips = (pointer, pattern.indices, rows, group, strips.part, parts, blocks)
    pieces = in_pieces(lambda first, last: tuple(_foreign(*of_strips, first, last)), parts, least)
    counts, foreign = (np.concatenate(one) for one in zip(*pieces, strict=True))
    begins = np.concatenate([[0], np.cumsum(counts)])
    reader = np.repeat(np.arange(parts), np.diff(begins))
    needed = np.zeros(pattern.indptr.size - 1, dtype=np.bool_)
    needed[foreign] = True
    place, capacity = np.full(rows.size, -1, dtype=np.int64), np.zeros(parts, dtype=np.int64)
    in_pieces(
        lambda first, last: _places(rows, group, needed, parts, blocks, place, capacity, first, last), parts, least
    )
    capacity = -(-capacity // _APART) * _APART
    base = np.zeros(parts + 1, dtype=np.int64)
    np.cumsum(capacity, out=base[1:])
    fetched = np.bincount(strips.block[foreign].astype(np.int64) * parts + reader, minlength=1)
    most = -(-max(int(fetched.max()), 1) // LEAST_FETCHED) * LEAST_FETCHED
    if runs is None:
        near_first, near_most = _near_slots(pointer, rows, group, lanes, held_slots, slices)
        gaps = 0
    else:
        near_most = slices * max(0, len(runs.offsets) - held_slots)
        near_first = np.array([parts * blocks * near_most])
        counted = np.array([parts, blocks, 0, 0, 0, 1, 0, itemsize])
        of_rows = (rows, group, begins, foreign, strips.block, counted)
        gaps = int(max(in_pieces(lambda first, last: most_places(*of_rows, first, last), parts, least)))
        gaps -= slices * per_slice + most
    shape = Shape(strips, lanes, slices, held_slots, slack, most, int(near_most), runs=runs, gaps=gaps)
    ring, stride, words = shape.ring, shape.stride, shape.words
    places = ring * stride + shape.guard
    if places * itemsize > 2**16 or int(capacity.max(initial=0)) >= 0xFFFF:
        raise InfeasibleError(
            "columns do not fit 16 bits",
            expected=f"at most {2**16 // itemsize} places of x in a strip",
            found=f"{places}",
            hint="take smaller blocks",
        )
    meta = np.zeros((parts * blocks, words), dtype=np.uint32)
    nodes = np.full((parts * blocks, _HEAD + stride), NONE, dtype=np.uint32)
    halo = np.full((parts * blocks, most), NONE, dtype=np.uint32)
    held = parts * blocks * slices * held_slots * WARP
    entry = np.zeros(held + int(near_first[-1]) * WARP, dtype=np.uint32)
    near_columns = np.zeros((0 if runs else int(near_first[-1]), WARP), dtype=np.uint16)
    sizes = np.array([parts, blocks, lanes, held_slots, slices, ring, most, itemsize], dtype=np.int64)
    given: tuple[Any, ...] = (
        pointer, pattern.indices, rows, group, strips.part, strips.block, begins, foreign, place, base,
    )  # fmt: skip
    if runs is None:
        given += near_first, sizes, meta, nodes, halo, entry, near_columns
        in_pieces(lambda first, last: _fill(*given, first, last), parts, least)
    else:
        given += sizes, np.array(runs.offsets), np.array(runs.lengths), np.array([runs.own, runs.guard, stride])
        given += meta, nodes, halo, entry
        if base[-1] >> WORD_BITS or sum(in_pieces(lambda first, last: fill_runs(*given, first, last), parts, least)):
            raise InfeasibleError("rows do not have their entries in runs, as those of a grid")
    readers = _readers(strips.part[foreign], reader, parts)
    return Front(
        strips, lanes, slices, held_slots, slack, most, shape.near_slots, meta.reshape(blocks, parts, words),
        nodes.reshape(blocks, parts, _HEAD + stride), halo.reshape(blocks, parts, most), readers,
        base[:-1].astype(np.uint32), near_columns, entry, max(int(base[-1]), 1), runs=runs, gaps=gaps,
    )  # fmt: skip


def _readers(owners: NDArray[np.uint32], readers: NDArray[np.int64], parts: int) -> NDArray[np.uint32]:
    """Who reads what each strip publishes, padded to the most readers of one."""
    reads = np.zeros((parts, parts), dtype=bool)
    reads[owners, readers] = True
    owner, reader = np.nonzero(reads)
    most = max(int(np.count_nonzero(reads, axis=1).max(initial=0)), 1)
    found = np.full((parts, most), NONE, dtype=np.uint32)
    starts = np.searchsorted(owner, np.arange(parts))
    found[owner, np.arange(owner.size) - starts[owner]] = reader
    return found


@njit(cache=True, nogil=True)
def _grouped(part: NDArray[np.uint32], block: NDArray[np.uint32], parts: int, blocks: int) -> Any:
    """Rows of each block, strip by strip, as they come; and where each group begins."""
    n = part.shape[0]
    group = np.zeros(parts * blocks + 1, np.int64)
    for i in range(n):
        group[np.int64(block[i]) * parts + np.int64(part[i]) + 1] += 1
    for g in range(parts * blocks):
        group[g + 1] += group[g]
    filled = group[:-1].copy()
    rows = np.empty(n, np.int64)
    for i in range(n):
        at = np.int64(block[i]) * parts + np.int64(part[i])
        rows[filled[at]] = i
        filled[at] += 1
    return rows, group


@njit(cache=True, nogil=True)
def _longest_first(
    indptr: NDArray[np.int64], rows: NDArray[np.int64], group: NDArray[np.int64], first: int, last: int
) -> None:
    """Sort groups from one to another, which are small and nearly sorted."""
    for g in range(first, last):
        for t in range(group[g], group[g + 1]):
            row = rows[t]
            length = indptr[row + 1] - indptr[row]
            at = t
            while at > group[g] and indptr[rows[at - 1] + 1] - indptr[rows[at - 1]] < length:
                rows[at] = rows[at - 1]
                at -= 1
            rows[at] = row


@njit(cache=True, nogil=True)
def _foreign(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    part: NDArray[np.uint32],
    parts: int,
    blocks: int,
    first: int,
    last: int,
) -> Any:
    """Of strips from one to another: how many rows of others each reads, and which, each once, strip after strip."""
    n = indptr.shape[0] - 1
    seen, own = np.zeros(n, np.int32), np.empty(n, np.int64)
    counts = np.zeros(last - first, np.int64)
    found = np.empty(0, np.int64)
    tail = 0
    for s in range(first, last):
        count = _foreign_of(s, indptr, indices, rows, group, part, parts, blocks, seen, own)
        counts[s - first] = count
        if tail + count > found.size:
            found = np.concatenate((found, np.empty(tail + count + 1024, np.int64)))
        found[tail : tail + count] = own[:count]
        tail += count
    return counts, found[:tail].copy()


@njit(cache=True, nogil=True)
def _foreign_of(
    s: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    part: NDArray[np.uint32],
    parts: int,
    blocks: int,
    seen: NDArray[np.int32],
    found: NDArray[np.int64],
) -> Any:
    count = 0
    for b in range(blocks):
        for t in range(group[b * parts + s], group[b * parts + s + 1]):
            i = rows[t]
            for e in range(indptr[i], indptr[i + 1]):
                j = np.int64(indices[e])
                if part[j] != s and seen[j] != s + 1:
                    seen[j] = s + 1
                    found[count] = j
                    count += 1
    return count


@njit(cache=True, nogil=True)
def _places(
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    needed: NDArray[np.bool_],
    parts: int,
    blocks: int,
    place: NDArray[np.int64],
    capacity: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """The number of each published row in its block and strip, and the most of a strip, from one strip to another."""
    for s in range(first, last):
        for b in range(blocks):
            count = 0
            for t in range(group[b * parts + s], group[b * parts + s + 1]):
                if needed[rows[t]]:
                    place[rows[t]] = count
                    count += 1
            capacity[s] = max(capacity[s], count)


@njit(cache=True, nogil=True)
def _near_slots(
    indptr: NDArray[np.int64], rows: NDArray[np.int64], group: NDArray[np.int64], lanes: int, held: int, slices: int
) -> Any:
    """First near slot of each strip and block, and the most of one."""
    per_slice = 32 // lanes
    first = np.zeros(group.shape[0], np.int64)
    most = np.int64(0)
    for g in range(group.shape[0] - 1):
        count = np.int64(0)
        for t in range(group[g], group[g + 1], per_slice):
            i = rows[t]  # the longest of its slice
            count += max(np.int64(0), -(-(indptr[i + 1] - indptr[i]) // lanes) - held)
        first[g + 1] = first[g] + count
        most = max(most, count)
    return first, most


@njit(cache=True, nogil=True)
def _fill(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    part: NDArray[np.uint32],
    block: NDArray[np.uint32],
    begins: NDArray[np.int64],
    foreign: NDArray[np.int64],
    place: NDArray[np.int64],
    base: NDArray[np.int64],
    near_first: NDArray[np.int64],
    sizes: NDArray[np.int64],
    meta: NDArray[np.uint32],
    nodes: NDArray[np.uint32],
    halo: NDArray[np.uint32],
    entry: NDArray[np.uint32],
    near_columns: NDArray[np.uint16],
    first_strip: int,
    last_strip: int,
) -> None:
    """All arrays, of strips from one to another."""
    parts, blocks, lanes, held, slices, ring, _, itemsize = sizes
    n = indptr.shape[0] - 1
    per_slice = 32 // lanes
    room = slices * per_slice
    pairs = (held + 1) // 2
    nodes_at = 4 + (slices + 3) // 4 * 4
    places_at, columns_at = nodes_at + room, nodes_at + 2 * room
    held_total = parts * blocks * slices * held * 32
    local = np.zeros(n, np.uint32)  # where in x each row is that the strip reads
    for s in range(first_strip, last_strip):
        for b in range(blocks):
            for t in range(group[b * parts + s], group[b * parts + s + 1]):
                local[rows[t]] = (b % ring * room + t - group[b * parts + s]) * itemsize
        _fill_halo(s, foreign[begins[s] : begins[s + 1]], part, block, place, base, sizes, nodes, halo, local)
        for b in range(blocks):
            g = b * parts + s
            own_at, near = b % ring * room, near_first[g]
            meta[g, 0], meta[g, 1] = near, near_first[g + 1] - near
            nodes[g, 0], nodes[g, 1] = meta[g, 0], meta[g, 1]
            meta[g, 2], meta[g, 3] = own_at, group[g + 1] - group[g]
            for r in range(room):
                meta[g, nodes_at + r] = 0xFFFFFFFF
                meta[g, places_at + r] = np.uint32(0xFFFF0000) | np.uint32((own_at + r) * itemsize)
            for sl in range(slices):
                t0 = group[g] + sl * per_slice
                t1 = min(t0 + per_slice, group[g + 1])
                width = np.int64(0)
                if t0 < t1:
                    width = -(-(indptr[rows[t0] + 1] - indptr[rows[t0]]) // lanes)
                more = max(np.int64(0), width - held)
                meta[g, 4 + sl] = (near - near_first[g]) << 16 | more
                for r in range(per_slice):
                    t = t0 + r
                    mine = (own_at + sl * per_slice + r) * itemsize  # padding reads the row itself
                    begin_row, length = np.int64(0), np.int64(0)
                    if t < t1:
                        i = rows[t]
                        begin_row, length = indptr[i], indptr[i + 1] - indptr[i]
                        meta[g, nodes_at + sl * per_slice + r] = i
                        nodes[g, 4 + sl * per_slice + r] = i
                        if place[i] >= 0:
                            meta[g, places_at + sl * per_slice + r] = np.uint32(place[i] << 16) | np.uint32(mine)
                    for part_lane in range(lanes):
                        lane = r + per_slice * part_lane
                        for q in range(held + more):
                            e = q * lanes + part_lane
                            column = np.int64(local[indices[begin_row + e]]) if e < length else mine
                            if q < held:
                                at = columns_at + (sl * pairs + q // 2) * 32 + lane
                                meta[g, at] |= np.uint32(column << (16 * (q % 2)))
                                if e < length:
                                    entry[((g * slices + sl) * held + q) * 32 + lane] = begin_row + e + 1
                            else:
                                near_columns[near + q - held, lane] = column
                                if e < length:
                                    entry[held_total + (near + q - held) * 32 + lane] = begin_row + e + 1
                near += more


@njit(cache=True, nogil=True)
def _fill_halo(
    s: int,
    found: NDArray[np.int64],
    part: NDArray[np.uint32],
    block: NDArray[np.uint32],
    place: NDArray[np.int64],
    base: NDArray[np.int64],
    sizes: NDArray[np.int64],
    nodes: NDArray[np.uint32],
    halo: NDArray[np.uint32],
    local: NDArray[np.uint32],
) -> None:
    """What strip s reads of others, by block and then by where it is published."""
    parts, _, lanes, _, slices, ring, most, itemsize = sizes
    room = slices * (32 // lanes)
    read, word, number = in_order_of_words(found, part, block, place, base, parts)
    for t in range(read.size):
        node = read[t]
        its = np.int64(block[node])
        nodes[its * parts + s, 4 + room + number[t]] = node
        halo[its * parts + s, number[t]] = word[t]
        local[node] = (ring * room + its % ring * most + number[t]) * itemsize
