"""Variable block ELL: dense blocks of mixed sizes with one index each, in slices of nodes of one size.

The rows of a matrix are cut into nodes of 1 to 6 (:mod:`akx.formats.natural_blocks`). Within windows of some thousand
rows nodes are sorted by their size and by how many blocks of each width they have. A slice has as many nodes of one
size r as fit W lanes, L of them for each row; its blocks of 6, 5, ..., 1 columns come one width after another, L of
each node at a step. So all lanes of a slice do the same, whatever the sizes of the blocks; widths are known without
being stored, and what is summed of each width stays where it is (a kernel for each width would have to add its results
up). The index of a block is its first column: x is read where it is.

    place of value (i, j) of block L s + l of its width, in node t of the slice, c columns wide:
        start + (((s c + j) L + l) r + i) N + t,        N nodes a slice, start of that width
    bytes per entry: (itemsize + 4 / (r c)) / fill

Source: Rennich (NVIDIA), "Block SpMV on GPU": submatrices by column extent, ELL sections over sorted rows. There x is
padded for each extent, and the sections of an extent are a kernel of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Pattern, pointers_of
from akx.formats.natural_blocks import MOST, Nodes

__all__ = ["HEAD", "NOWHERE", "WINDOW", "Shape", "VbellArrays", "lay_out", "sizes_of", "slots_of"]

#: Rows within which nodes are sorted.
WINDOW = 65_536
#: Numbers that a slice has in `head`, and the first row of a node that there is not.
HEAD, NOWHERE = 12, np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class Shape:
    """What a slice has.

    `width`: lanes of a slice, for whole nodes; at least six. `lanes`: lanes that share a row, where so many fit.
    `nodes`: most nodes of a slice.
    """

    width: int
    lanes: int
    nodes: int

    def lanes_of(self, r: int) -> int:
        """Lanes that share a row of a node of r rows."""
        return min(self.lanes, self.width // r)

    def nodes_of(self, r: int) -> int:
        """Nodes of r rows in a slice."""
        return max(1, min(self.nodes, self.width // (r * self.lanes_of(r))))


@dataclass(frozen=True)
class VbellArrays:
    """A pattern in slices.

    `head` (slices, 12) uint32: of a slice the place of its first node, of its first index, of its first value, r, N, L,
    and how many steps it has with blocks of 6, 5, ..., 1 columns. `first` (places,) uint32: first row of each node,
    2**32 - 1 for none. `column` (indices,) uint32: first column of each block; of padding, that of the node's last
    block of the width, or about that of its last. `entry` (slots,) uint32: one plus the CSR entry in each place, 0 for
    padding.
    """

    head: NDArray[np.uint32]
    first: NDArray[np.uint32]
    column: NDArray[np.uint32]
    entry: NDArray[np.uint32]


@dataclass(frozen=True)
class _Slices:
    """Nodes in order, and where each slice has them, its indices and its values."""

    order: NDArray[np.int64]
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    steps: NDArray[np.int64]
    places: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.int64]


def slots_of(nodes: Nodes, shape: Shape) -> int:
    """Values that :func:`lay_out` stores, padding included."""
    return int(_slices(nodes, shape).values[-1])


def sizes_of(nodes: Nodes, shape: Shape) -> tuple[int, NDArray[np.int64]]:
    """Values stored, and steps of each slice with blocks of 1 to 6 columns, shape (slices, 6)."""
    found = _slices(nodes, shape)
    return int(found.values[-1]), found.steps


def lay_out(pattern: Pattern, nodes: Nodes, shape: Shape) -> VbellArrays:
    """Lay a pattern out; fewer than 2**32 places."""
    at = _slices(nodes, shape)
    head = np.zeros((at.size.size, HEAD), np.uint32)
    head[:, 0], head[:, 1], head[:, 2], head[:, 3] = at.places[:-1], at.indices[:-1], at.values[:-1], at.size
    per_size = np.array([[shape.nodes_of(r), shape.lanes_of(r)] for r in range(1, MOST + 1)])
    head[:, 4:6] = per_size[at.size - 1]
    head[:, 6:] = at.steps[:, ::-1]
    first = np.full(int(at.places[-1]), NOWHERE, np.uint32)
    column, entry = np.zeros(int(at.indices[-1]), np.uint32), np.zeros(int(at.values[-1]), np.uint32)
    of_nodes = nodes.cuts, nodes.of, at.order, at.begin
    _place(pattern.indptr, pattern.indices, of_nodes, (head, first, column, entry))
    return VbellArrays(head, first, column, entry)


def _slices(nodes: Nodes, shape: Shape) -> _Slices:
    size = nodes.sizes
    window = nodes.cuts[:-1] // WINDOW
    # Many blocks first, wide ones before narrow ones; among equals as they come.
    order = np.lexsort((*(-nodes.counts.T), -size, window))
    size, window, counts = size[order], window[order], nodes.counts[order].astype(np.int64)
    group = np.flatnonzero(np.append(True, (size[1:] != size[:-1]) | (window[1:] != window[:-1])))
    ends = np.append(group[1:], size.size)
    per_slice = np.array([shape.nodes_of(r) for r in range(1, MOST + 1)])
    lanes = np.array([shape.lanes_of(r) for r in range(1, MOST + 1)])
    pieces = -(-(ends - group) // per_slice[size[group] - 1])
    of = np.repeat(np.arange(group.size), pieces)
    piece = np.arange(of.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = group[of] + piece * per_slice[size[group[of]] - 1]
    r = size[begin]
    steps = -(-np.maximum.reduceat(counts, begin, axis=0) // lanes[r - 1, None])
    # A slice ends where its group does, and the next one begins there.
    each = per_slice[r - 1] * lanes[r - 1]
    return _Slices(
        order,
        np.append(begin, size.size),
        r,
        steps,
        pointers_of(per_slice[r - 1]),
        pointers_of(steps.sum(axis=1) * each),
        pointers_of((steps @ np.arange(1, MOST + 1)) * each * r),
    )


@njit(nogil=True, cache=True)
def _place(indptr: Any, indices: Any, of_nodes: Any, found: Any) -> None:
    """Indices and entries; the blocks of a node come in the order in which its rows have them."""
    cuts, of, order, begin = of_nodes
    head, first, column, entry = found
    seen = np.full(cuts.size - 1, -1, np.int64)
    number = np.zeros(cuts.size - 1, np.int64)
    # Of the widths 1 to 6: blocks met so far, the last one's column, first index, first value.
    met, last, index, value = np.zeros(7, np.int64), np.zeros(7, np.int64), np.zeros(7, np.int64), np.zeros(7, np.int64)
    for s in range(head.shape[0]):
        r, many, lanes = np.int64(head[s, 3]), np.int64(head[s, 4]), np.int64(head[s, 5])
        at, where = np.int64(head[s, 1]), np.int64(head[s, 2])
        for c in range(6, 0, -1):
            index[c], value[c] = at, where
            slots = np.int64(head[s, 12 - c]) * lanes * many
            at += slots
            where += slots * c * r
        for t in range(begin[s + 1] - begin[s]):
            node = order[begin[s] + t]
            first[np.int64(head[s, 0]) + t] = cuts[node]
            met[:] = 0
            last[0] = 0
            for i in range(r):
                for p in range(np.int64(indptr[cuts[node] + i]), np.int64(indptr[cuts[node] + i + 1])):
                    j = np.int64(indices[p])
                    other = np.int64(of[j])
                    c = cuts[other + 1] - cuts[other]
                    if seen[other] != node:
                        seen[other] = node
                        number[other] = met[c]
                        last[c] = last[0] = cuts[other]
                        column[index[c] + met[c] * many + t] = cuts[other]
                        met[c] += 1
                    step, lane = number[other] // lanes, number[other] % lanes
                    inner = ((step * c + j - cuts[other]) * lanes + lane) * r + i
                    entry[value[c] + inner * many + t] = p + 1
            for c in range(1, 7):
                known = last[c] if met[c] > 0 else min(last[0], np.int64(indptr.size) - 1 - c)
                for m in range(met[c], np.int64(head[s, 12 - c]) * lanes):
                    column[index[c] + m * many + t] = known
