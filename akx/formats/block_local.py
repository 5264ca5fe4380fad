"""Block-local format: a part of the matrix for each thread block, in slots of 32 dense blocks with 16-bit columns.

A node is bc consecutive rows, or up to bc rows which may lie anywhere (:class:`Blocked`): small ones are filled up with
rows and columns of zeros. Each part computes a list of nodes; node i of the list is rows i*bc .. of the part,
taken br at a time as block rows. A slice is 32 / lanes block rows, a slot one dense br x bc block for each of 32 lanes:
lane = l * (32 / lanes) + r takes blocks l, l + lanes, ... of block row r of its slice. Layout of slot s:

    values[(s * br*bc + e) * 32 + lane]   entry e = row * bc + column of the block
    columns[s * 32 + lane]                node of x: its number in the part's list, or relative to the slice's base

The slots of a part are in three tiers, one after another: `held` (a fixed number for each of the first slices: in
registers), `near` (shared memory, as many as fit), `far` (the rest). Each slice has its share of near and far slots, so
that both are read at the same time. Bytes per entry: itemsize + 2 / (br bc), over the fill. Padding has value 0 and the
column of its own row. Sources: sliced ELL as in Kreutzer et al. 2014; 16-bit local columns as in Morlan et al. (akx).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import InfeasibleError
from akx.core.parallel import in_pieces
from akx.formats.base import Pattern, placed, pointers_of, sums_before, sums_of
from akx.formats.block_local_loops import fill_slots, find_widths
from akx.formats.blocked import NOWHERE, Blocked, blocks_of, cut_blocks, full_blocks

__all__ = [
    "NOWHERE",
    "PART",
    "SLICE",
    "WARP",
    "Blocked",
    "Fill",
    "Nodes",
    "Parts",
    "Shape",
    "Slots",
    "blocks_of",
    "cut_blocks",
    "filled",
    "full_blocks",
    "lay_out",
    "slice_widths",
]

WARP = 32
#: Rows that a thread lays out at least.
_ROWS = 1 << 14
#: Times as many where it only asks for their lengths: less takes no longer than to start a thread.
_FEWER = 4
#: One part, as the kernels read it; the last four are for :mod:`akx.formats.halo_exchange`.
_PART = "node nodes computed own slice slices border held near nears neighbour neighbours before span taken"
PART = np.dtype([(name, "u4") for name in f"{_PART} given givens halo halos".split()])
#: One slice, as the kernels read it.
SLICE = np.dtype([("near", "u4"), ("far", "u4"), ("nears", "u2"), ("fars", "u2"), ("base", "u4")])


@dataclass(frozen=True)
class Shape:
    """How slots are formed: br x bc blocks, lanes per block row, and which slots are held in registers.

    `warps` warps of a thread block take slices in turn; each holds `held_slots` slots of its first `held_slices` ones.
    """

    br: int
    bc: int
    lanes: int
    warps: int
    held_slices: int
    held_slots: int

    @property
    def slot(self) -> int:
        """Values in a slot."""
        return WARP * self.br * self.bc


@dataclass(frozen=True)
class Nodes:
    """The nodes of each part: `computed` ones, of which `own` are its own, then those it only fetches.

    `rows` (total,) uint32: node numbers, part after part. `ptr` (parts+1,) int64. `computed`, `own`, `border` (parts,)
    int64: the first `border` ones are published before the others are computed. `neighbours`, `neighbour_ptr`: parts
    that each part waits for; in clusters, pairs of what it gives and where to
    (:attr:`akx.partition.clusters.Clusters.sends`). `before` (parts,) int64, optional: ghosts before the own nodes,
    none by default. `span` (parts,) int64, optional: nodes that each copy of x has room for, by default those of the
    part. The same for all parts of a cluster, so that a place of x is the same in all of them. `taken` (parts,) int64,
    optional: nodes that others of its cluster give to each part after each step.
    """

    rows: NDArray[np.uint32]
    ptr: NDArray[np.int64]
    computed: NDArray[np.int64]
    own: NDArray[np.int64]
    border: NDArray[np.int64]
    neighbours: NDArray[np.uint32]
    neighbour_ptr: NDArray[np.int64]
    before: NDArray[np.int64] | None = None
    span: NDArray[np.int64] | None = None
    taken: NDArray[np.int64] | None = None

    @property
    def room(self) -> NDArray[np.int64]:
        """Nodes that each copy of x has room for, shape (parts,)."""
        return np.diff(self.ptr) if self.span is None else self.span


@dataclass(frozen=True)
class Parts:
    """A matrix laid out in parts.

    `parts` (parts,) PART. `slices` (slices,) SLICE. `rows`, `neighbours` (uint32): as in :class:`Nodes`. `columns`
    (slots * 32,) uint16. `entry` (slots * 32 * br * bc,) uint32: one plus the CSR entry in each place, 0 for padding.
    `far_slots`: slots in neither registers nor shared memory.

    `columns` and `entry` are on the device where they were found there.
    """

    parts: NDArray[Any]
    slices: NDArray[Any]
    rows: NDArray[np.uint32]
    neighbours: NDArray[np.uint32]
    blocked: Blocked
    columns: Any
    entry: Any
    shape: Shape
    far_slots: int

    def values(self, data: NDArray[Any]) -> NDArray[Any]:
        """The values in their places."""
        return placed(data, self.entry)


@dataclass(frozen=True)
class Slots:
    """Which slots each slice has: all of a layout but what is in them.

    `first` (parts+1,) int64: where each part's slices begin. `held`, `nears`, `slots` (slices,) int64: slots in
    registers, in shared memory, and all of a slice. `parts`, `slices` (PART, SLICE): but for the bases of
    columns. `count`, `far_slots`: slots of all parts, and those in neither registers nor shared memory.
    """

    nodes: Nodes
    shape: Shape
    first: NDArray[np.int64]
    held: NDArray[np.int64]
    nears: NDArray[np.int64]
    slots: NDArray[np.int64]
    parts: NDArray[Any]
    slices: NDArray[Any]
    count: int
    far_slots: int


#: Finds columns, entries, and bases of columns, which are none where these are local; None where columns do not fit.
Fill = Callable[[Blocked, Slots, bool], "tuple[Any, Any, NDArray[np.uint32] | None] | None"]


def slice_widths(nodes: Nodes, pattern: Pattern, shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slots of each slice, and where each part's slices begin."""
    height = WARP // shape.lanes
    per_part = -(-nodes.computed * (shape.bc // shape.br) // height)
    first = pointers_of(per_part)
    width = np.zeros(int(first[-1]), dtype=np.int64)
    per = shape.bc // shape.br
    of_nodes = (pattern.indptr, nodes.rows, nodes.ptr, nodes.computed, first)

    work = partial(find_widths, of_nodes, height, per, shape.lanes, width)
    in_pieces(work, per_part.size, _FEWER * _least_parts(nodes))
    return width, first


def _least_parts(nodes: Nodes) -> int:
    """Parts that a thread takes at least."""
    return max(1, _ROWS * nodes.computed.size // max(1, nodes.rows.size))


def lay_out(
    entries: int,
    blocked: Blocked,
    nodes: Nodes,
    shape: Shape,
    widths: tuple[NDArray[np.int64], NDArray[np.int64]],
    room: NDArray[np.int64],
    fill: Fill,
    *,
    local: bool,
) -> Parts:
    """Lay a matrix of so many `entries` out.

    `blocked`: the matrix in blocks of ``shape.bc`` columns. `widths` (array, array): of :func:`slice_widths`. `room`
    (parts,) int64: slots that fit the shared memory of each part. `fill`: finds what is in slots: :func:`filled`, or a
    function that does so on a device. `local`: columns are numbers in the part's list; otherwise nodes of the matrix
    relative to a base per slice, or the first rows that blocks multiply (:attr:`Blocked.begin`) where rows are listed.
    Raises :class:`InfeasibleError` where 16 bits do not hold the columns, or a number does not fit.
    """
    longest = int(np.diff(nodes.ptr).max(initial=0))
    if local and longest > 2**16:
        raise InfeasibleError(f"a part has {longest} nodes in reach, more than 16 bits number")
    slots = _slots(entries, nodes, shape, widths, room)
    assert local or blocked.contiguous
    found = fill(blocked, slots, local)
    if found is None:
        what = "nodes" if blocked.listed is None else "rows"
        raise InfeasibleError(f"columns of one slice lie more than 65,535 {what} apart")
    columns, entry, base = found
    if base is not None:
        slots.slices["base"] = base
    return Parts(
        slots.parts, slots.slices, nodes.rows, nodes.neighbours, blocked, columns, entry, shape, slots.far_slots
    )


def _slots(entries: int, nodes: Nodes, shape: Shape, widths: tuple[Any, Any], room: Any) -> Slots:
    width, first = widths
    count = nodes.computed.size
    part_of = np.repeat(np.arange(count), np.diff(first))
    number = np.arange(width.size) - first[part_of]
    holds = number < shape.held_slices * shape.warps
    held = np.where(holds, shape.held_slots, 0)
    rest = np.maximum(width - held, 0)
    before = sums_before(rest, first)
    total = sums_of(rest, first)
    fit = np.minimum(total, room)
    share = np.where(total > 0, fit / np.maximum(total, 1), 0.0)[part_of]
    near_before = np.floor(before * share + 1e-9).astype(np.int64)
    nears = np.floor((before + rest) * share + 1e-9).astype(np.int64) - near_before
    fars = rest - nears
    held_total = sums_of(held, first)
    near_total, far_total = sums_of(nears, first), sums_of(fars, first)
    start = pointers_of(held_total + near_total + far_total)
    if int(width.max(initial=0)) >= 2**16:
        raise InfeasibleError(f"a row has {int(width.max())} blocks for each lane, more than 16 bits count")
    if int(start[-1]) * shape.slot >= 2**32 - 1 or entries >= 2**32 - 1:
        raise InfeasibleError("the matrix is too large for 32-bit places")
    parts = np.zeros(count, dtype=PART)
    parts["node"], parts["nodes"] = nodes.ptr[:-1], np.diff(nodes.ptr)
    parts["computed"], parts["own"] = nodes.computed, nodes.own
    parts["slice"], parts["slices"] = first[:-1], np.diff(first)
    parts["border"] = -(-nodes.border * (shape.bc // shape.br) // (WARP // shape.lanes))
    parts["held"], parts["near"], parts["nears"] = start[:-1], start[:-1] + held_total, near_total
    parts["neighbour"], parts["neighbours"] = nodes.neighbour_ptr[:-1], np.diff(nodes.neighbour_ptr)
    parts["before"], parts["span"] = 0 if nodes.before is None else nodes.before, nodes.room
    parts["taken"] = 0 if nodes.taken is None else nodes.taken
    slices = np.zeros(width.size, dtype=SLICE)
    slices["near"], slices["nears"], slices["fars"] = sums_before(nears, first), nears, fars
    slices["far"] = (start[:-1] + held_total + near_total)[part_of] + sums_before(fars, first)
    most = np.maximum(width, held)
    return Slots(nodes, shape, first, held, nears, most, parts, slices, int(start[-1]), int(far_total.sum()))


def filled(pattern: Pattern) -> Fill:
    """What finds what is in slots, by threads of the host, from the pattern of the matrix."""

    def fill(
        blocked: Blocked, slots: Slots, local: bool
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint32], NDArray[np.uint32]] | None:
        nodes, shape, parts, slices, node = slots.nodes, slots.shape, slots.parts, slots.slices, blocked.pattern
        columns = np.zeros(slots.count * WARP, dtype=np.uint16)
        entry = np.zeros(slots.count * shape.slot, dtype=np.uint32)
        base = np.zeros(slots.slots.size, dtype=np.uint32)
        listed = blocked.listed is not None
        begin = blocked.begin if listed else np.arange(node.rows)
        shifted = np.zeros(node.rows, dtype=np.int64)
        if listed and not local:
            shifted = blocked.rows[:, 0].astype(np.int64) - begin  # of the last nodes, whose blocks begin earlier
        places = parts["held"], parts["near"], slices["near"], slices["far"]
        given = (
            (pattern.indptr, pattern.indices, node.indptr, node.indices),
            (blocked.rows, blocked.of, blocked.at, begin, shifted),
            (nodes.rows, nodes.ptr, nodes.computed, slots.first),
            (*(one.astype(np.int64) for one in places), slots.nears, slots.held, slots.slots),
            (shape.br, shape.bc, shape.lanes, shape.held_slots, local),
            (base, columns, entry),
        )
        works = in_pieces(lambda begin, end: bool(fill_slots(*given, begin, end)), parts.size, _least_parts(nodes))
        return (columns, entry, base) if all(works) else None

    return fill
