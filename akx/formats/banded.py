"""Banded format: slices with diagonals, dealt to contiguous parts and to the memory tiers of a multiprocessor.

Layout of slot s: ``values[s * 32 + row of the slice]``. A part computes contiguous rows and sees x in a contiguous
window of rows; a column is a row of the window, so uniform padding (value 0) may point before the first and behind the
last row of the matrix: the window has zeros there. The slots of a part are in three tiers as in
:mod:`akx.formats.block_local`: held (registers), near (shared memory), far (the rest). Slices that other parts' windows
reach into come first: those above, then those below, then inner ones. Each has a place, and warps take places in turn;
those of inner slices that would be the last warp's stay empty, since it exchanges meanwhile. For uniform and scattered
slots see :mod:`akx.formats.slice_diagonals`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import InfeasibleError
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.formats.base import Pattern, placed, pointers_of, sums_before, sums_of
from akx.formats.slice_diagonals import WARP, Diagonals, Extents

__all__ = ["BAND", "BAND_SLICE", "Bands", "Deal", "deal", "dealt_slices", "windows"]

#: Slices that a thread lays out at least.
_SLICES = 512
#: One part, as the kernels read it.
_BAND = "span row rows slices border slice offset offsets held near nears column columns neighbour neighbours"
BAND = np.dtype([("low", "i4"), *((name, "u4") for name in _BAND.split())])
#: One slice, as the kernels read it: numbers of uniform and scattered slots in shared memory and beyond.
BAND_SLICE = np.dtype(
    [(name, "u4") for name in ("near", "far", "offset", "column", "far_column")]
    + [(name, "u2") for name in ("nears", "near_scattered", "fars", "far_scattered", "cut", "number")]
)


@dataclass(frozen=True)
class Bands:
    """Contiguous parts: their cuts in slices, windows of x in rows, and who waits for whom.

    `cuts` (parts+1,) int64: first slice of each part. `low`, `high` (parts,) int64: the window, from `low` to `high` -
    1; may reach beyond the matrix. `above`, `below` (parts,) int64: slices at the beginning and at the end that other
    windows reach into. `neighbours`, `neighbour_ptr` (uint32, int64): parts whose rows are in the window.
    """

    cuts: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    above: NDArray[np.int64]
    below: NDArray[np.int64]
    neighbours: NDArray[np.uint32]
    neighbour_ptr: NDArray[np.int64]


@dataclass(frozen=True)
class Deal:
    """A matrix dealt to parts and tiers.

    `parts` (parts,) BAND. `slices` (places,) BAND_SLICE: in each part border slices first; those of inner ones that
    would be the last warp's are empty. `offsets` (int32): part after part: of held slots, twice `held_slots` rounded up
    to 4 for each slice that holds any, then of the others: before the cut, then from it on. `columns` (scattered slots
    * 32,) uint16: rows of the window; those in shared memory first in each part. `neighbours` (uint32). `entry` (slots
    * 32,) uint32: one plus the CSR entry in each place, 0 for padding.
    """

    parts: NDArray[Any]
    slices: NDArray[Any]
    offsets: NDArray[np.int32]
    columns: NDArray[np.uint16]
    neighbours: NDArray[np.uint32]
    entry: NDArray[np.uint32]
    far_slots: int

    def values(self, data: NDArray[Any]) -> NDArray[Any]:
        """The values in their places."""
        return placed(data, self.entry)


def windows(diagonals: Diagonals | Extents, cuts: NDArray[np.int64]) -> Bands:
    """What parts with these cuts, in slices, see of x and of one another. No part is empty."""
    n = diagonals.rows
    first, stop = cuts[:-1] * WARP, cuts[1:] * WARP  # the last part's slices may end behind the matrix
    low = np.minimum(np.minimum.reduceat(diagonals.low, cuts[:-1]), first)
    high = np.maximum(np.maximum.reduceat(diagonals.high, cuts[:-1]), stop)
    inside_low, inside_high = np.maximum(low, 0), np.minimum(high, n)
    reached = np.maximum.accumulate(np.concatenate([[0], inside_high[:-1]]))
    wanted = np.minimum.accumulate(np.concatenate([[n], inside_low[:0:-1]]))[::-1]
    slices = np.diff(cuts)
    above = np.minimum(np.maximum(-(-(reached - first) // WARP), 0), slices)
    below = np.minimum(np.maximum(cuts[1:] - wanted // WARP, 0), slices - above)
    begin = np.searchsorted(stop, inside_low, side="right")
    end = np.searchsorted(first, inside_high, side="left")
    others = (np.arange(b, e) for b, e in zip(begin, end, strict=True))
    near = [one[one != g] for g, one in enumerate(others)]
    ptr = pointers_of(np.array([one.size for one in near]))
    return Bands(cuts, low, high, above, below, np.concatenate(near).astype(np.uint32), ptr)


def deal(
    pattern: Pattern,
    diagonals: Diagonals,
    bands: Bands,
    warps: int,
    held_slices: int,
    held_slots: int,
    room: NDArray[np.int64],
    size: int,
) -> Deal:
    """Deal the slots of a pattern, of its diagonals, to parts and tiers.

    `warps`, `held_slices`, `held_slots`: each of the warps of a part holds `held_slots` uniform slots of its first
    `held_slices` slices, which are every `warps`-th one. The last warp has only such slices as other windows reach
    into. `room` (parts,) int64: bytes of shared memory for slots with their columns, and for offsets of slots that are
    not held. `size`: bytes of a value. Raises :class:`InfeasibleError` where a number does not fit.
    """
    count = bands.cuts.size - 1
    order = _order(bands, warps)
    cuts, part_of, number = order.cuts, order.part_of, order.number
    tiers = _tiers(order, diagonals, warps, held_slices, held_slots, room, size)
    held, rest, nears, near_scattered = tiers.held, tiers.rest, tiers.nears, tiers.near_scattered
    scattered, far_scattered = tiers.scattered, tiers.scattered - near_scattered
    near_uniform, fars = nears - near_scattered, rest - (nears - near_scattered)
    rounded = -(-held_slots // 4) * 4 if held_slices else 0
    offset_held = 2 * held_slices * warps * rounded
    places = np.diff(cuts)
    held_total = np.minimum(places, held_slices * warps) * (held_slots if held_slices else 0)
    near_total, far_total = sums_of(nears, cuts), sums_of(fars + far_scattered, cuts)
    start = pointers_of(held_total + near_total + far_total)
    column_start = pointers_of(sums_of(scattered, cuts))
    offsets = offset_held + -(-2 * sums_of(rest, cuts) // 4) * 4
    offset_start = pointers_of(offsets)
    span = bands.high - bands.low
    most = int(np.maximum(rest + scattered, number).max(initial=0))
    _check_sizes(pattern, int(start[-1]), most, int(span.max(initial=0)) if scattered.any() else 0)
    parts = np.zeros(count, dtype=BAND)
    parts["low"], parts["span"] = bands.low, span
    parts["row"] = bands.cuts[:-1] * WARP
    parts["rows"] = np.minimum(bands.cuts[1:] * WARP, pattern.rows) - bands.cuts[:-1] * WARP
    parts["slices"], parts["border"] = places, bands.above + bands.below
    parts["slice"], parts["offset"], parts["offsets"] = cuts[:-1], offset_start[:-1], offsets
    parts["held"], parts["near"], parts["nears"] = start[:-1], start[:-1] + held_total, near_total
    parts["column"], parts["columns"] = column_start[:-1], sums_of(near_scattered, cuts)
    parts["neighbour"], parts["neighbours"] = bands.neighbour_ptr[:-1], np.diff(bands.neighbour_ptr)
    table = np.zeros(part_of.size, dtype=BAND_SLICE)
    table["near"], table["nears"], table["near_scattered"] = sums_before(nears, cuts), near_uniform, near_scattered
    table["far"] = (start[:-1] + held_total + near_total)[part_of] + sums_before(fars + far_scattered, cuts)
    table["fars"], table["far_scattered"] = fars, far_scattered
    table["offset"] = offset_held + 2 * sums_before(rest, cuts)
    table["cut"], table["number"] = diagonals.cut[order.slice], order.natural
    table["column"] = sums_before(near_scattered, cuts)
    table["far_column"] = (column_start[:-1] + parts["columns"])[part_of] + sums_before(far_scattered, cuts)
    columns = np.zeros(int(column_start[-1]) * WARP, dtype=np.uint16)
    offset = np.zeros(int(offset_start[-1]), dtype=np.int32)
    entry = np.zeros(int(start[-1]) * WARP, dtype=np.uint32)
    of_slices = diagonals.slot, diagonals.ptr, diagonals.offset, diagonals.later, np.where(order.there, order.slice, -1)
    held_at = start[:-1][part_of] + number * held_slots
    near_at = start[:-1][part_of] + held_total[part_of] + table["near"]
    at = held, held_at, near_at, table["far"].astype(np.int64), near_uniform, near_scattered, fars
    held_offset = offset_start[:-1][part_of] + 2 * number * rounded
    offset_at, column_at = offset_start[:-1][part_of] + table["offset"], column_start[:-1][part_of] + table["column"]
    offsets_at = held_offset, rounded, offset_at, column_at, table["far_column"].astype(np.int64), bands.low[part_of]
    given = ((pattern.indptr, pattern.indices), of_slices, at, offsets_at, (columns, offset, entry))
    in_pieces(lambda first, last: _fill(*given, first, last), part_of.size, _SLICES)
    return Deal(parts, table, offset, columns, bands.neighbours, entry, int(far_total.sum()))


def _check_sizes(pattern: Pattern, slots: int, most: int, span: int) -> None:
    """Refuse more slots in all, slices or slots of one, or rows of a window with columns than their types count."""
    if slots * WARP >= 2**32 - 1 or pattern.nnz >= 2**32 - 1 or pattern.rows >= 2**31 - 2**16:
        raise InfeasibleError("the matrix is too large for 32-bit places")
    if most >= 2**16 or span > 2**16:
        raise InfeasibleError("a part has more slices, a slice more slots, or a window more rows than 16 bits count")


class _Order(NamedTuple):
    """The places of slices in the order of the kernel: above, below, inner; of those the last warp's are not there.

    `cuts` (parts+1,) says where parts begin; of each place its part, its number there, whether there is a slice, which
    of the part's it is as rows come (`natural`), and which of all (0 where there is none).
    """

    cuts: NDArray[np.int64]
    part_of: NDArray[np.int64]
    number: NDArray[np.int64]
    there: NDArray[np.bool_]
    natural: NDArray[np.int64]
    slice: NDArray[np.int64]


def _order(bands: Bands, warps: int) -> _Order:
    slices, border = np.diff(bands.cuts), bands.above + bands.below
    places = dealt_slices(slices, border, warps)
    cuts = pointers_of(places)
    part_of = np.repeat(np.arange(places.size), places)
    number = np.arange(part_of.size) - cuts[part_of]
    above, outer = bands.above[part_of], border[part_of]
    there = (number < outer) | (number % warps != warps - 1)
    rank = number - np.where(number < outer, 0, number // warps - outer // warps)
    natural = np.where(rank < above, rank, rank + slices[part_of] - outer)
    natural = np.where(rank < outer, natural, rank - bands.below[part_of])
    return _Order(cuts, part_of, number, there, natural, np.where(there, bands.cuts[part_of] + natural, 0))


class _Tiers(NamedTuple):
    """Slots of each place: uniform ones held in registers and the rest of them, scattered ones, and of these in shared
    memory `near_scattered`; `nears` are all there."""

    held: NDArray[np.int64]
    rest: NDArray[np.int64]
    scattered: NDArray[np.int64]
    nears: NDArray[np.int64]
    near_scattered: NDArray[np.int64]


def _tiers(
    order: _Order, diagonals: Diagonals, warps: int, held_slices: int, held_slots: int, room: Any, size: int
) -> _Tiers:
    uniform, scattered = (
        np.where(order.there, one[order.slice], 0) for one in (diagonals.uniform, diagonals.scattered)
    )
    holds = order.there & (order.number < held_slices * warps)
    held = np.where(holds, np.minimum(uniform, held_slots), 0)
    rest = uniform - held
    room = room - 8 * (np.bincount(order.part_of, rest, minlength=room.size).astype(np.int64) + 3)
    nears = _near(rest, scattered, order.cuts, order.part_of, room, size)
    return _Tiers(held, rest, scattered, nears, nears - np.minimum(nears, rest))


def dealt_slices(slices: NDArray[np.int64], border: NDArray[np.int64], warps: int) -> NDArray[np.int64]:
    """Places of the slices of each part: as many, and those of the last warp behind the border, which stay empty.

    `slices` and `border`, (parts,) int64, are the number of slices, and of those, the first ones, that other windows
    reach into; `warps` is two at least.
    """
    inner, begun = slices - border, border % warps
    room = warps - 1 - begun  # before the first empty place
    rows = -(-(inner - room) // (warps - 1))  # begun after it
    return np.asarray(slices + np.where(inner > room, rows, 0))


def _near(rest: Any, scattered: Any, cuts: Any, part_of: Any, room: Any, size: int) -> NDArray[np.int64]:
    """Slots of each slice in shared memory, uniform ones first: the same share of each, so that both tiers are busy."""
    total = rest + scattered
    before, sums = sums_before(total, cuts), sums_of(total, cuts)
    fit = np.minimum(sums, np.maximum(room // (WARP * size), 0))
    while True:
        share = np.where(sums > 0, fit / np.maximum(sums, 1), 0.0)[part_of]
        begin = np.floor(before * share + 1e-9).astype(np.int64)
        nears = np.floor((before + total) * share + 1e-9).astype(np.int64) - begin
        taken = sums_of(nears, cuts) * (WARP * size) + sums_of(np.maximum(nears - rest, 0), cuts) * (2 * WARP)
        over = np.maximum(taken - np.maximum(room, 0), 0)
        if not over.any():
            return np.asarray(nears)
        fit = np.maximum(fit + -over // (WARP * size), 0)


@njit(nogil=True, cache=True)
def _fill(pattern: Any, of_slices: Any, at: Any, offsets_at: Any, found: Any, begin: int, end: int) -> None:
    """Offsets, columns and entries of places from one to another."""
    indptr, indices = pattern
    slot, ptr, diagonal, later, order = of_slices
    held, held_at, near_at, far_at, nears, near_scattered, fars = at
    held_offset, rounded, offset_at, column_at, far_column, low = offsets_at
    columns, offset, entry = found
    rows = indptr.size - 1
    for t in range(begin, end):
        s = order[t]
        if s < 0:
            continue
        first, stop, uniform = s * WARP, min(rows, (s + 1) * WARP), ptr[s + 1] - ptr[s]
        for q in range(uniform):
            if q < held[t]:
                offset[held_offset[t] + q] = diagonal[ptr[s] + q]
                offset[held_offset[t] + rounded + q] = later[ptr[s] + q]
            else:
                offset[offset_at[t] + q - held[t]] = diagonal[ptr[s] + q]
                offset[offset_at[t] + uniform - held[t] + q - held[t]] = later[ptr[s] + q]
        own = first - low[t]
        for lane in range(WARP):
            for q in range(near_scattered[t]):
                columns[(column_at[t] + q) * WARP + lane] = own + lane
        for i in range(first, stop):
            lane = i - first
            for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                mine = np.int64(slot[p])
                if mine < held[t]:
                    place = held_at[t] + mine
                elif mine < uniform:
                    r = mine - held[t]
                    place = near_at[t] + r if r < nears[t] else far_at[t] + r - nears[t]
                else:
                    r = mine - uniform
                    column = np.int64(indices[p]) - low[t]
                    if r < near_scattered[t]:
                        place = near_at[t] + nears[t] + r
                        columns[(column_at[t] + r) * WARP + lane] = column
                    else:
                        r -= near_scattered[t]
                        place = far_at[t] + fars[t] + r
                        columns[(far_column[t] + r) * WARP + lane] = column
                entry[place * WARP + lane] = p + 1
