"""Fronts by diagonals: all rows have their entries on the same few, as those of a grid, and no columns are stored.

Diagonals next to each other are a *run*. Places of x of a block, own rows and those of others, are in the order of
rows, so that the entries of a row in a run read places next to each other, and a lane needs one place a run: for a
9-point grid 2 and its own, where columns take 9 half words. A slot is a diagonal; what a row has not of it is zero.
The layout is that of :mod:`akx.backends.cuda.schedules.wavefront.layout` but for

- *x*: of each power `guard` places that nothing is in, then `ring` blocks of `stride` places: rows of a block in their
  order, own ones and those of the halo. Each line of a grid begins where its places and those of the lines next to it
  are of different banks of shared memory: 16 lanes read 16 of these at once, and rows are dealt to lanes so that they
  do. `stride` is a multiple of 16, and so large that no run reaches a row of the next block.
- *columns*: of each slice the places of runs (but that of the rows themselves), two in a word.
- *near*: as many slots for each slice; no columns.
- *halo*: words as there, in the upper 14 bits the place in x of one power where it goes.

Shared memory has v_{p-2} of all slices at work besides: powers slices lag 32 w bytes.

Rows that miss an entry of a run multiply zero with what is in that place: where x, or a power that overflows, is
infinite, other rows than with SciPy may be NaN.

Source: diagonals per row segment as in Sun, Zhang, Wang, Zhang 2011 (CRSD).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.matrix import features
from akx.backends.pattern_cache import per_pattern
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.numba_jit import njit
from akx.core.parallel import in_pieces
from akx.formats.base import pattern_of
from akx.partition.level_order import learnt_rows

__all__ = ["WORD_BITS", "Runs", "columns_of", "cut_runs", "fill_runs", "in_order_of_words", "most_places", "runs_of"]

#: As in ``wavefront.cuh``: bits of a word of a halo, and of the length of a run.
WORD_BITS, _LENGTH_BITS = 18, 5
#: Runs, and diagonals; entries of all diagonals that there have to be.
_MOST_RUNS, _MOST_DIAGONALS, _LEAST_FILL = 12, 30, 0.75
#: Beginnings of blocks that are looked at, and rows that a thread looks at at least.
_SOME, _ROWS = 64, 1 << 15


@dataclass(frozen=True)
class Runs:
    """Diagonals of a matrix, ascending, and the lengths of their runs. `own`: the slot of the rows themselves or -1."""

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    own: int

    @property
    def places(self) -> int:
        """Places of runs that a lane has, beside its own."""
        return len(self.lengths) - (self.own >= 0)

    @property
    def code(self) -> str:
        """The lengths as the kernel takes them."""
        return f"0x{sum(length << _LENGTH_BITS * run for run, length in enumerate(self.lengths)):x}ull"

    @property
    def guard(self) -> int:
        """Places with nothing that a run may reach, a multiple of four."""
        return (max(self.lengths) + 2) // 4 * 4


def columns_of(matrix: Matrix, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """How many entries some rows have, which ascend, and their columns: nothing else comes from a device."""
    there = features.of(matrix)
    if there is not None:
        return features.rows_of(there, rows)
    pattern = pattern_of(matrix)
    counts = np.diff(pattern.indptr)[rows].astype(np.int64)
    begins = np.repeat(pattern.indptr[rows].astype(np.int64) - np.cumsum(counts) + counts, counts)
    return counts, pattern.indices[begins + np.arange(begins.size)]


def _entries(matrix: Matrix, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of the entries of some rows, which ascend."""
    counts, columns = columns_of(matrix, rows)
    return np.repeat(rows, counts), columns.astype(np.int64)


def cut_runs(matrix: Matrix, runs: Runs, starts: NDArray[np.int64]) -> bool:
    """Whether rows read on both sides of where a block begins in one run: some of the `starts` are looked at."""
    some = starts[np.linspace(0, starts.size - 1, min(starts.size, _SOME)).astype(np.int64)]
    offsets = np.array(runs.offsets)
    first = (some[:, None] - 1 - offsets[:-1][np.diff(offsets) == 1]).ravel()
    rows = np.unique(first[(first >= 0) & (first < matrix.n)])
    row, column = _entries(matrix, rows)
    joined = (np.diff(row) == 0) & (np.diff(column) == 1)
    return bool(np.isin(column[1:][joined], starts).any())


@per_pattern
def runs_of(matrix: Matrix) -> Runs:
    """The diagonals of a matrix by a sample of its rows; :class:`InfeasibleError` where these are none of a grid.

    The host looks whether all entries are on them, where it has the rows: laying out would find what is not too late.
    """
    row, column = _entries(matrix, learnt_rows(matrix.n))
    offsets = np.unique(column - row)
    first = np.flatnonzero(np.diff(offsets, prepend=-(2**40)) > 1)
    lengths = np.diff(first, append=offsets.size)
    fits = 0 < offsets.size <= _MOST_DIAGONALS and lengths.size <= _MOST_RUNS and lengths.max() < 1 << _LENGTH_BITS
    few = InfeasibleError("rows do not have their entries on the same few diagonals")
    if not fits or not _LEAST_FILL * matrix.n * offsets.size <= matrix.nnz <= matrix.n * offsets.size:
        raise few
    if features.of(matrix) is None:
        given = matrix.indptr, matrix.indices, offsets
        if any(in_pieces(lambda begin, end: _is_any_off(*given, begin, end), matrix.n, _ROWS)):
            raise few
    own = np.flatnonzero(offsets == 0)
    return Runs(tuple(offsets.tolist()), tuple(lengths.tolist()), int(own[0]) if own.size else -1)


@njit(cache=True, nogil=True)
def _is_any_off(indptr: Any, indices: Any, offsets: NDArray[np.int64], begin: int, end: int) -> bool:
    """Whether an entry of some rows, whose columns ascend, is on none of the diagonals."""
    for i in range(begin, end):
        d = 0
        for e in range(indptr[i], indptr[i + 1]):
            offset = indices[e] - i
            while d < offsets.size and offsets[d] < offset:
                d += 1
            if d == offsets.size or offsets[d] != offset:
                return True
    return False


@njit(cache=True, nogil=True)
def fill_runs(
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
    sizes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    how: NDArray[np.int64],
    meta: NDArray[np.uint32],
    nodes: NDArray[np.uint32],
    halo: NDArray[np.uint32],
    entry: NDArray[np.uint32],
    first_strip: int,
    last_strip: int,
) -> Any:
    """All arrays, of strips from one to another; how many entries do not lie as said."""
    parts, blocks, _, held, slices, ring, _, itemsize = sizes
    own, guard, stride = how
    n, runs, slots = indptr.shape[0] - 1, lengths.shape[0], offsets.shape[0]
    run_of = np.repeat(np.arange(runs), lengths)
    within = np.arange(slots) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    room, near = slices * 32, max(0, slots - held)
    own_run, own_within = (run_of[own], within[own]) if own >= 0 else (np.int64(-1), np.int64(0))
    pairs = (runs - (own >= 0) + 1) // 2
    nodes_at = 4 + (slices + 3) // 4 * 4
    places_at, columns_at = nodes_at + room, nodes_at + 2 * room
    held_total = parts * blocks * slices * held * 32
    of_lane = np.empty(room, np.int64)
    local = np.zeros(n, np.int64)  # where in x each row is that the strip reads, in bytes
    at_run = np.empty(runs, np.int64)
    faults = 0
    for s in range(first_strip, last_strip):
        _place_rows(
            s, rows, group, np.sort(foreign[begins[s] : begins[s + 1]]), block, sizes, guard, stride, nodes, local
        )
        _fill_halo(s, foreign[begins[s] : begins[s + 1]], part, block, place, base, parts, itemsize, halo, local)
        for b in range(blocks):
            g = b * parts + s
            first = (guard + b % ring * stride) * itemsize
            _deal_lanes(rows[group[g] : group[g + 1]], local, first, itemsize, of_lane)
            meta[g, 0], meta[g, 1] = g * slices * near, slices * near
            nodes[g, 0], nodes[g, 1] = meta[g, 0], meta[g, 1]
            meta[g, 2], meta[g, 3] = guard + b % ring * stride, group[g + 1] - group[g]
            for r in range(room):
                i = of_lane[r]
                mine = local[i] if i >= 0 else first + (1 + r % 16) * itemsize
                meta[g, nodes_at + r] = np.uint32(i) if i >= 0 else np.uint32(0xFFFFFFFF)
                public = place[i] if i >= 0 and place[i] >= 0 else np.int64(0xFFFF)
                meta[g, places_at + r] = np.uint32(public << 16 | mine)
                at_run[:] = -1
                if i >= 0:
                    at = (
                        (g * slices + r // 32) * held * 32 + r % 32,
                        held_total + (g * slices + r // 32) * near * 32 + r % 32,
                    )
                    faults += _fill_row(
                        i, indptr, indices, offsets, run_of, within, local, itemsize, held, at, at_run, entry
                    )
                word = 0
                for run in range(runs):
                    if run == own_run:
                        faults += at_run[run] >= 0 and at_run[run] != mine - own_within * itemsize
                        continue
                    column = at_run[run] if at_run[run] >= 0 else mine
                    meta[g, columns_at + (r // 32 * pairs + word // 2) * 32 + r % 32] |= np.uint32(
                        column << (16 * (word % 2))
                    )
                    word += 1
    return faults


@njit(cache=True, nogil=True)
def _fill_row(
    i: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    offsets: NDArray[np.int64],
    run_of: NDArray[np.int64],
    within: NDArray[np.int64],
    local: NDArray[np.int64],
    itemsize: int,
    held: int,
    at: tuple[int, int],
    at_run: NDArray[np.int64],
    entry: NDArray[np.uint32],
) -> Any:
    """Entries of row i in their slots, and where its runs begin in x; how many do not lie as said."""
    q, faults = 0, 0
    for e in range(indptr[i], indptr[i + 1]):
        column = np.int64(indices[e])
        offset = column - i
        while q < offsets.size and offsets[q] < offset:
            q += 1
        if q == offsets.size or offsets[q] != offset:
            faults += 1
            continue
        begin = local[column] - within[q] * itemsize
        faults += at_run[run_of[q]] >= 0 and at_run[run_of[q]] != begin
        at_run[run_of[q]] = begin
        entry[at[0] + q * 32 if q < held else at[1] + (q - held) * 32] = e + 1
    return faults


@njit(cache=True, nogil=True)
def most_places(
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    begins: NDArray[np.int64],
    foreign: NDArray[np.int64],
    block: NDArray[np.uint32],
    sizes: NDArray[np.int64],
    first_strip: int,
    last_strip: int,
) -> Any:
    """Places of x that a block takes at most, of strips from one to another."""
    none, nowhere = np.empty((0, 0), np.uint32), np.empty(0, np.int64)
    most = np.int64(0)
    for s in range(first_strip, last_strip):
        of_others = np.sort(foreign[begins[s] : begins[s + 1]])
        most = max(most, _place_rows(s, rows, group, of_others, block, sizes, 0, 0, none, nowhere))
    return most


@njit(cache=True, nogil=True)
def _place_rows(
    s: int,
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    foreign: NDArray[np.int64],
    block: NDArray[np.uint32],
    sizes: NDArray[np.int64],
    guard: int,
    stride: int,
    nodes: NDArray[np.uint32],
    local: NDArray[np.int64],
) -> Any:
    """Places in x of rows of strip s and, sorted, those of others that it reads; how many a block takes at most.

    Without a stride they are only counted. Of rows that follow one another each four that stay together have four
    places of the same fourth of the banks. Where the next such stretch begins, fours are others than the last two, so
    that all fourths come as often.
    """
    parts, blocks, _, _, _, ring, _, itemsize = sizes
    f, most = 0, np.int64(0)
    for b in range(blocks):
        g = b * parts + s
        t, number, last, four = group[g], np.int64(0), np.int64(-2), np.int64(-1)
        length, behind, before = np.int64(1), np.int64(-1), np.int64(-1)  # of the stretch before: its last two fours
        while t < group[g + 1] or (f < foreign.size and np.int64(block[foreign[f]]) == b):
            theirs = f < foreign.size and np.int64(block[foreign[f]]) == b
            if theirs and (t == group[g + 1] or foreign[f] < rows[t]):
                row = foreign[f]
                f += 1
            else:
                row = rows[t]
                t += 1
            if row != last + 1:
                if four >= 0:
                    length = max(np.int64(1), (number - 1) // 4 - four)
                    before, behind = four + length - 2 if length > 1 else behind, four + length - 1
                number += (row + 1 - number) % 4
                ahead = (number + 2) // 4  # the first whole four, which may begin behind the row
                while four >= 0 and (
                    (ahead - four) % 2 == 0 if length > 2 else (ahead - behind) % 4 == 0 or (ahead - before) % 4 == 0
                ):
                    number, ahead = number + 4, ahead + 1
                four = ahead
            last = row
            if stride > 0:
                nodes[g, 4 + number] = row
                local[row] = (guard + b % ring * stride + number) * itemsize
            number += 1
        most = max(most, number)
    return most


@njit(cache=True, nogil=True)
def _deal_lanes(
    rows: NDArray[np.int64], local: NDArray[np.int64], first: int, itemsize: int, of_lane: NDArray[np.int64]
) -> None:
    """The row of each lane, -1 where none: of a half of a warp those whose places are of different banks, if it may be.

    `first`: the place of x, in bytes, where the block begins.
    """
    of_lane[:] = -1
    for t in range(rows.size):
        begin = t // 32 * 32
        lane = ((local[rows[t]] - first) // itemsize - 1) % 16
        for other in (begin + lane, begin + lane + 16):
            if of_lane[other] < 0:
                of_lane[other] = rows[t]
                break
    dealt = 0
    for lane in range(of_lane.size):
        dealt += of_lane[lane] >= 0
    if dealt < rows.size:
        _deal_the_rest(rows, of_lane)


@njit(cache=True, nogil=True)
def _deal_the_rest(rows: NDArray[np.int64], of_lane: NDArray[np.int64]) -> None:
    for t in range(rows.size):
        begin, there = t // 32 * 32, False
        for lane in range(begin, begin + 32):
            there |= of_lane[lane] == rows[t]
        for lane in range(begin, begin + 32):
            if not there and of_lane[lane] < 0:
                of_lane[lane] = rows[t]
                there = True


@njit(cache=True, nogil=True)
def in_order_of_words(
    found: NDArray[np.int64],
    part: NDArray[np.uint32],
    block: NDArray[np.uint32],
    place: NDArray[np.int64],
    base: NDArray[np.int64],
    parts: int,
) -> Any:
    """Rows of others that a strip reads, by block and then by the words where they are published.

    These rows, the word of each, and its number among those of its block.
    """
    word, key, number = np.empty(found.size, np.int64), np.empty(found.size, np.int64), np.zeros(found.size, np.int64)
    for t in range(found.size):
        word[t] = base[np.int64(part[found[t]])] + place[found[t]]
        key[t] = np.int64(block[found[t]]) * base[parts] + word[t]
    order = np.argsort(key)
    read = found[order]
    for t in range(1, read.size):
        number[t] = number[t - 1] + 1 if block[read[t]] == block[read[t - 1]] else 0
    return read, word[order], number


@njit(cache=True, nogil=True)
def _fill_halo(
    s: int,
    found: NDArray[np.int64],
    part: NDArray[np.uint32],
    block: NDArray[np.uint32],
    place: NDArray[np.int64],
    base: NDArray[np.int64],
    parts: int,
    itemsize: int,
    halo: NDArray[np.uint32],
    local: NDArray[np.int64],
) -> None:
    """What strip s reads of others, by block and then by where it is published."""
    read, word, number = in_order_of_words(found, part, block, place, base, parts)
    for t in range(read.size):
        own = np.uint32((local[read[t]] // itemsize) << WORD_BITS | word[t])
        halo[np.int64(block[read[t]]) * parts + s, number[t]] = own
