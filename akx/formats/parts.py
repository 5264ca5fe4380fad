"""Parts: the matrix cut for thread blocks that keep their share of it, in slots of 32 dense blocks with 16-bit columns.

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

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx._numba import njit
from akx.errors import InfeasibleError
from akx.formats.base import Pattern
from akx.formats.nodes import MOST
from akx.formats.supervariables import Supervariables
from akx.partition.pieces import in_pieces

__all__ = [
    "NOWHERE",
    "PART",
    "SLICE",
    "WARP",
    "Blocked",
    "Nodes",
    "Parts",
    "Shape",
    "blocks_of",
    "cut_blocks",
    "full_blocks",
    "lay_out",
    "slice_widths",
]

WARP = 32
#: Rows that a thread lays out at least.
_ROWS = 1 << 14
#: The row of what fills a node up.
NOWHERE = np.uint32(0xFFFFFFFF)
#: One part, as the kernels read it; the last four are for :mod:`akx.formats.published`.
PART = np.dtype(
    [
        (name, np.uint32)
        for name in [
            "node",
            "nodes",
            "computed",
            "own",
            "slice",
            "slices",
            "border",
            "held",
            "near",
            "nears",
            "neighbour",
            "neighbours",
            "before",
            "span",
            "taken",
            "given",
            "givens",
            "halo",
            "halos",
        ]
    ]
)
#: One slice, as the kernels read it.
SLICE = np.dtype([("near", "u4"), ("far", "u4"), ("nears", "u2"), ("fars", "u2"), ("base", "u4")])


@dataclass(frozen=True)
class Blocked:
    """A matrix as dense blocks of its nodes.

    Attributes
    ----------
    pattern : Pattern
        Of the nodes: which blocks there are.
    bc : int
        Most rows of a node.
    n : int
        Rows of the matrix.
    listed : (nodes, bc) array of uint32, optional
        The rows of each node, ascending, then :data:`NOWHERE`. By default rows i*bc .. are those of node i.
    """

    pattern: Pattern
    bc: int
    n: int
    listed: NDArray[np.uint32] | None = None

    @cached_property
    def rows(self) -> NDArray[np.uint32]:
        """The rows of each node, shape (nodes, bc), as in `listed`."""
        return np.arange(self.n, dtype=np.uint32).reshape(-1, self.bc) if self.listed is None else self.listed

    @cached_property
    def of(self) -> NDArray[np.int32]:
        """Node of each row."""
        if self.listed is None:
            return np.repeat(np.arange(self.pattern.rows, dtype=np.int32), self.bc)
        found = np.empty(self.n, dtype=np.int32)
        node, at = np.nonzero(self.rows != NOWHERE)
        found[self.rows[node, at]] = node
        return found

    @cached_property
    def at(self) -> NDArray[np.uint8]:
        """Place of each row in its node."""
        if self.listed is None:
            return np.tile(np.arange(self.bc, dtype=np.uint8), self.pattern.rows)
        found = np.empty(self.n, dtype=np.uint8)
        node, at = np.nonzero(self.rows != NOWHERE)
        found[self.rows[node, at]] = at
        return found

    @cached_property
    def contiguous(self) -> bool:
        """Whether the rows of each node follow one another, and those of the next node come after them."""
        first = self.rows[:, 0].astype(np.int64)
        return self.listed is None or (_follow(self.rows) and bool((np.diff(first) > 0).all()))

    @cached_property
    def begin(self) -> NDArray[np.int64]:
        """First of the bc entries of x that the blocks of a node multiply where x has no room between nodes."""
        return np.minimum(self.rows[:, 0], max(self.n - self.bc, 0)).astype(np.int64)

    def read(self) -> Pattern:
        """The pattern of the nodes that blocks multiply where x has no room between nodes: those behind small ones too.

        A block starts at the first row of its node, or so that it does not go beyond the last row of all. A node reads
        itself in any case: padding does.
        """
        nodes, count = self.pattern, np.zeros(self.pattern.rows + 1, dtype=np.int64)
        first, last = (self.of[np.minimum(self.begin + more, self.n - 1)] for more in (0, self.bc - 1))
        _read(nodes.indptr, nodes.indices, first, last, count, np.zeros(0, dtype=nodes.indices.dtype))
        np.cumsum(count, out=count)
        indices = np.empty(int(count[-1]), dtype=nodes.indices.dtype)
        _read(nodes.indptr, nodes.indices, first, last, count, indices)
        return Pattern(count.astype(nodes.indptr.dtype), indices, nodes.rows)

    def words(self, nodes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """What the kernels name nodes by: their numbers, or the rows of each where these are listed."""
        if self.listed is None:
            return nodes
        named: NDArray[np.uint32] = self.listed[nodes].reshape(-1)
        return named


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

    Attributes
    ----------
    rows : (total,) array of uint32
        Node numbers, part after part.
    ptr : (parts+1,) array of int64
    computed, own, border : (parts,) arrays of int64
        The first `border` ones are published before the others are computed.
    neighbours, neighbour_ptr
        Parts that each part waits for; in clusters, pairs of what it gives and where to
        (:attr:`akx.partition.clusters.Clusters.sends`).
    before : (parts,) array of int64, optional
        Ghosts before the own nodes, none by default.
    span : (parts,) array of int64, optional
        Nodes that each copy of x has room for, by default those of the part. The same for all parts of a cluster, so
        that a place of x is the same in all of them.
    taken : (parts,) array of int64, optional
        Nodes that others of its cluster give to each part after each step.
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

    Attributes
    ----------
    parts : (parts,) array of PART
    slices : (slices,) array of SLICE
    rows, neighbours : arrays of uint32
        As in :class:`Nodes`.
    blocked : Blocked
    columns : (slots * 32,) array of uint16
    entry : (slots * 32 * br * bc,) array of uint32
        One plus the CSR entry in each place, 0 for padding.
    shape : Shape
    far_slots : int
        Slots in neither registers nor shared memory.
    """

    parts: NDArray[Any]
    slices: NDArray[Any]
    rows: NDArray[np.uint32]
    neighbours: NDArray[np.uint32]
    blocked: Blocked
    columns: NDArray[np.uint16]
    entry: NDArray[np.uint32]
    shape: Shape
    far_slots: int

    def values(self, data: NDArray[Any]) -> NDArray[Any]:
        """The values in their places."""
        padded = np.concatenate([np.zeros(1, dtype=data.dtype), data])
        placed: NDArray[Any] = padded[self.entry]
        return placed

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on the host."""
        held = (self.parts, self.slices, self.rows, self.neighbours, self.columns, self.entry)
        return sum(int(array.nbytes) for array in held)


def full_blocks(pattern: Pattern, bc: int) -> Blocked | None:
    """The nodes of bc rows, or None where the matrix is not made of dense, aligned bc x bc blocks."""
    if bc == 1:
        return Blocked(pattern, 1, pattern.rows)
    if pattern.rows % bc or pattern.nnz % (bc * bc):
        return None
    nodes = pattern.rows // bc
    indptr = np.zeros(nodes + 1, dtype=pattern.indptr.dtype)
    indices = np.empty(pattern.nnz // (bc * bc), dtype=pattern.indices.dtype)
    if not _node_pattern(pattern.indptr, pattern.indices, bc, indptr, indices):
        return None
    return Blocked(Pattern(indptr, indices, nodes), bc, pattern.rows)


def blocks_of(sets: Supervariables, bc: int) -> int:
    """Blocks of sets of rows cut into pieces of at most bc; each block has an entry where the sets are exact."""
    pieces = -(-np.arange(1, MOST + 1) // bc)
    return int((sets.counts.astype(np.int64) @ pieces) @ pieces[sets.sizes - 1])


def cut_blocks(pattern: Pattern, sets: Supervariables, bc: int) -> Blocked:
    """Nodes from sets of rows, cut evenly into pieces of at most bc."""
    sizes = sets.sizes
    pieces = -(-sizes // bc)
    of = np.repeat(np.arange(sizes.size), pieces)
    piece = np.arange(of.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = sets.cuts[:-1][of] + piece * sizes[of] // pieces[of]
    cuts = np.append(begin, pattern.rows)
    at = begin[:, None] + np.arange(bc)
    there = at < cuts[1:, None]
    listed = np.where(there, sets.rows[np.where(there, at, 0)], NOWHERE).astype(np.uint32)
    if _follow(listed):  # in the order of rows then: pieces of a set may have those of another one between them
        listed = listed[np.argsort(listed[:, 0], kind="stable")]
    blocked = Blocked(pattern, bc, pattern.rows, listed)  # of no pattern yet
    enough = listed[:, :1] if sets.exact else listed
    count = np.zeros(of.size + 1, dtype=np.int64)
    _cut(pattern.indptr, pattern.indices, enough, blocked.of, count, np.zeros(0, dtype=pattern.indices.dtype))
    np.cumsum(count, out=count)
    indices = np.empty(int(count[-1]), dtype=pattern.indices.dtype)
    _cut(pattern.indptr, pattern.indices, enough, blocked.of, count, indices)
    nodes = Pattern(count.astype(pattern.indptr.dtype), indices, of.size)
    plain = pattern.rows == listed.size and bool((listed.reshape(-1) == np.arange(listed.size)).all())
    return Blocked(nodes, bc, pattern.rows, None if plain else listed)


def slice_widths(nodes: Nodes, pattern: Pattern, shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slots of each slice, and where each part's slices begin."""
    height = WARP // shape.lanes
    per_part = -(-nodes.computed * (shape.bc // shape.br) // height)
    first = np.zeros(per_part.size + 1, dtype=np.int64)
    np.cumsum(per_part, out=first[1:])
    width = np.zeros(int(first[-1]), dtype=np.int64)
    per = shape.bc // shape.br
    of_nodes = (pattern.indptr, nodes.rows, nodes.ptr, nodes.computed, first)

    def work(begin: int, end: int) -> None:
        _widths(*of_nodes, height, per, shape.lanes, width, begin, end)

    in_pieces(work, per_part.size, _least_parts(nodes))
    return width, first


def _least_parts(nodes: Nodes) -> int:
    """Parts that a thread takes at least."""
    return max(1, _ROWS * nodes.computed.size // max(1, nodes.rows.size))


def lay_out(
    pattern: Pattern, blocked: Blocked, nodes: Nodes, shape: Shape, room: NDArray[np.int64], *, local: bool
) -> Parts:
    """Lay a pattern out.

    Parameters
    ----------
    pattern : Pattern
        Of the matrix.
    blocked : Blocked
        The same in blocks of ``shape.bc`` columns.
    nodes : Nodes
    shape : Shape
    room : (parts,) array of int64
        Slots that fit the shared memory of each part.
    local : bool
        Columns are numbers in the part's list; otherwise nodes of the matrix relative to a base per slice, or the first
        rows that blocks multiply (:attr:`Blocked.begin`) where rows are listed.

    Raises
    ------
    InfeasibleError
        Where 16 bits do not hold the columns, or a number does not fit.
    """
    node = blocked.pattern
    width, first = slice_widths(nodes, node, shape)
    count = nodes.computed.size
    part_of = np.repeat(np.arange(count), np.diff(first))
    number = np.arange(width.size) - first[part_of]
    holds = number < shape.held_slices * shape.warps
    held = np.where(holds, shape.held_slots, 0)
    rest = np.maximum(width - held, 0)
    before = _before(rest, first)
    total = _sums(rest, first)
    fit = np.minimum(total, room)
    share = np.where(total > 0, fit / np.maximum(total, 1), 0.0)[part_of]
    near_before = np.floor(before * share + 1e-9).astype(np.int64)
    nears = np.floor((before + rest) * share + 1e-9).astype(np.int64) - near_before
    fars = rest - nears
    held_total = _sums(held, first)
    near_total, far_total = _sums(nears, first), _sums(fars, first)
    start = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(held_total + near_total + far_total, out=start[1:])
    slots = int(start[-1])
    longest = int(np.diff(nodes.ptr).max(initial=0))
    if local and longest > 2**16:
        raise InfeasibleError(f"a part has {longest} nodes in reach, more than 16 bits number")
    if int(width.max(initial=0)) >= 2**16:
        raise InfeasibleError(f"a row has {int(width.max())} blocks for each lane, more than 16 bits count")
    if slots * shape.slot >= 2**32 - 1 or pattern.nnz >= 2**32 - 1:
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
    slices["near"], slices["nears"], slices["fars"] = _before(nears, first), nears, fars
    slices["far"] = (start[:-1] + held_total + near_total)[part_of] + _before(fars, first)
    columns = np.zeros(slots * WARP, dtype=np.uint16)
    entry = np.zeros(slots * shape.slot, dtype=np.uint32)
    base = np.zeros(width.size, dtype=np.uint32)
    listed = blocked.listed is not None
    assert local or blocked.contiguous
    begin = blocked.begin if listed else np.arange(node.rows)
    shifted = np.zeros(node.rows, dtype=np.int64)
    if listed and not local:
        shifted = blocked.rows[:, 0].astype(np.int64) - begin  # of the last nodes, whose blocks begin earlier
    given = (
        pattern.indptr,
        pattern.indices,
        node.indptr,
        node.indices,
        blocked.rows,
        blocked.of,
        blocked.at,
        begin,
        shifted,
        nodes.rows,
        nodes.ptr,
        nodes.computed,
        first,
        parts["held"].astype(np.int64),
        parts["near"].astype(np.int64),
        slices["near"].astype(np.int64),
        slices["far"].astype(np.int64),
        nears,
        held,
        width,
        shape.br,
        shape.bc,
        shape.lanes,
        shape.held_slots,
        local,
        base,
        columns,
        entry,
    )
    if not all(in_pieces(lambda begin, end: bool(_fill(*given, begin, end)), count, _least_parts(nodes))):
        what = "rows" if listed else "nodes"
        raise InfeasibleError(f"columns of one slice lie more than 65,535 {what} apart")
    slices["base"] = base
    return Parts(parts, slices, nodes.rows, nodes.neighbours, blocked, columns, entry, shape, int(far_total.sum()))


def _follow(listed: NDArray[np.uint32]) -> bool:
    """Whether the rows of each node follow one another."""
    return bool(((listed[:, 1:] - listed[:, :-1] == 1) | (listed[:, 1:] == NOWHERE)).all())


def _before(sizes: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the sizes before each one, within its part."""
    running = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=running[1:])
    found: NDArray[np.int64] = running[:-1] - np.repeat(running[first[:-1]], np.diff(first))
    return found


def _sums(sizes: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    running = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=running[1:])
    return np.diff(running[first])


@njit(cache=True, nogil=True)
def _node_pattern(indptr: Any, indices: Any, bc: int, node_ptr: Any, node_columns: Any) -> bool:
    at = 0
    for g in range(node_ptr.size - 1):
        start = np.int64(indptr[g * bc])
        length = np.int64(indptr[g * bc + 1]) - start
        if length % bc or at + length // bc > node_columns.size:
            return False
        for q in range(length // bc):
            column = np.int64(indices[start + q * bc])
            if column % bc:
                return False
            for r in range(bc):
                row = np.int64(indptr[g * bc + r])
                if np.int64(indptr[g * bc + r + 1]) - row != length:
                    return False
                for c in range(bc):
                    if np.int64(indices[row + q * bc + c]) != column + c:
                        return False
            node_columns[at] = column // bc
            at += 1
        node_ptr[g + 1] = at
    return bool(at == node_columns.size)


@njit(cache=True, nogil=True)
def _widths(
    indptr: Any,
    rows: Any,
    ptr: Any,
    computed: Any,
    first: Any,
    height: int,
    per: int,
    lanes: int,
    width: Any,
    begin_part: int,
    end_part: int,
) -> None:
    for g in range(begin_part, end_part):
        for i in range(computed[g]):
            node = rows[ptr[g] + i]
            length = np.int64(indptr[node + np.uint64(1)]) - np.int64(indptr[node])
            slots = (length + lanes - 1) // lanes
            for s in range((i * per) // height, ((i + 1) * per - 1) // height + 1):
                width[first[g] + s] = max(width[first[g] + s], slots)


@njit(cache=True, nogil=True)
def _cut(indptr: Any, indices: Any, listed: Any, of: Any, count: Any, columns: Any) -> None:
    """The blocks of each node: how many, from count[1] on, or in ascending order which, from the sums of these."""
    seen = np.full(listed.shape[0], -1, np.int64)
    for i in range(listed.shape[0]):
        at = first = np.int64(count[i]) if columns.size else np.int64(0)
        last, descents = np.int64(-1), 0
        for r in range(listed.shape[1]):
            row = np.int64(listed[i, r])
            if row == NOWHERE:
                break
            for p in range(np.int64(indptr[row]), np.int64(indptr[row + 1])):
                node = np.int64(of[np.int64(indices[p])])
                if seen[node] != i:
                    seen[node] = i
                    if node < last:
                        descents += 1
                    last = node
                    if columns.size:
                        columns[at] = node
                    at += 1
        if not columns.size:
            count[i + 1] = at
        elif descents:
            columns[first:at].sort()


@njit(cache=True, nogil=True)
def _read(node_ptr: Any, node_columns: Any, first: Any, last: Any, count: Any, columns: Any) -> None:
    """Of each node the nodes that it reads, which are first[j] .. last[j] for its column j; as in :func:`_cut`."""
    seen = np.full(first.size, -1, np.int64)
    for i in range(first.size):
        at = begin = np.int64(count[i]) if columns.size else np.int64(0)
        start, stop = np.int64(node_ptr[i]), np.int64(node_ptr[i + 1])
        for p in range(start - 1, stop):
            j = np.int64(i) if p < start else np.int64(node_columns[p])
            for node in range(np.int64(first[j]), np.int64(last[j]) + 1):
                if seen[node] != i:
                    seen[node] = i
                    if columns.size:
                        columns[at] = node
                    at += 1
        if columns.size:
            columns[begin:at].sort()
        else:
            count[i + 1] = at


@njit(cache=True, nogil=True)
def _fill(
    indptr: Any,
    indices: Any,
    node_ptr: Any,
    node_columns: Any,
    listed: Any,
    of: Any,
    within: Any,
    named: Any,
    shifted: Any,
    rows: Any,
    ptr: Any,
    computed: Any,
    first: Any,
    part_held: Any,
    part_near: Any,
    slice_near: Any,
    slice_far: Any,
    nears: Any,
    held: Any,
    width: Any,
    br: int,
    bc: int,
    lanes: int,
    held_slots: int,
    local: bool,
    base: Any,
    columns: Any,
    entry: Any,
    begin_part: int,
    end_part: int,
) -> bool:
    """Columns and entries of parts from one to another.

    A column is `named` so where it is not local, with `shifted` columns of zeros first.
    """
    height, per, area = 32 // lanes, bc // br, br * bc
    where, place_of = np.zeros(node_ptr.size, np.int64), np.zeros(node_ptr.size, np.int64)
    slots = np.zeros(max(width.max(), held.max()) if width.size else 0, np.int64)
    for g in range(begin_part, end_part):
        if local:
            for i in range(ptr[g + 1] - ptr[g]):
                where[rows[ptr[g] + i]] = i
        for s in range(first[g], first[g + 1]):
            top = (s - first[g]) * height
            low, high = np.int64(2**62), np.int64(-1)
            if not local:
                for r in range(height):
                    i = (top + r) // per
                    if i < computed[g]:
                        node = rows[ptr[g] + i]
                        low, high = min(low, np.int64(named[node])), max(high, np.int64(named[node]))
                        for p in range(np.int64(node_ptr[node]), np.int64(node_ptr[node + np.uint64(1)])):
                            low = min(low, np.int64(named[np.int64(node_columns[p])]))
                            high = max(high, np.int64(named[np.int64(node_columns[p])]))
                if high - low > 65535:
                    return False
                base[s] = low
            many = max(width[s], held[s])
            for q in range(many):
                if q < held[s]:
                    slots[q] = part_held[g] + (s - first[g]) * held_slots + q
                elif q - held[s] < nears[s]:
                    slots[q] = part_near[g] + slice_near[s] + q - held[s]
                else:
                    slots[q] = slice_far[s] + q - held[s] - nears[s]
            for r in range(height):
                block_row = top + r
                i = block_row // per
                if i >= computed[g]:
                    break
                node = np.int64(rows[ptr[g] + i])
                start, end = np.int64(node_ptr[node]), np.int64(node_ptr[node + 1])
                at = start
                for q in range(many):
                    for lane in range(r, 32, height):
                        column = node
                        if at < end:
                            column = np.int64(node_columns[at])
                            place_of[column] = (slots[q] * area + shifted[column]) * 32 + lane
                            at += 1
                        columns[slots[q] * 32 + lane] = where[column] if local else named[column] - low
                upper = block_row % per * br
                for r_of in range(br):
                    if listed[node, upper + r_of] == NOWHERE:
                        break
                    row = np.int64(listed[node, upper + r_of])
                    for p in range(np.int64(indptr[row]), np.int64(indptr[row + 1])):
                        j = np.int64(indices[p])
                        entry[place_of[of[j]] + (r_of * bc + np.int64(within[j])) * 32] = p + 1
    return True
