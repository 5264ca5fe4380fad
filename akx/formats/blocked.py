"""The pattern of a matrix in dense blocks of its nodes: bc consecutive rows each, or up to bc rows from anywhere.

Small nodes are filled up with rows and columns of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Pattern, even_pieces
from akx.formats.natural_blocks import MOST
from akx.formats.supervariables import Supervariables

__all__ = ["NOWHERE", "Blocked", "blocks_of", "cut_blocks", "full_blocks"]

#: The row of what fills a node up.
NOWHERE = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class Blocked:
    """A matrix as dense blocks of its nodes.

    `pattern`: of the nodes: which blocks there are. `bc`: most rows of a node. `n`: rows of the matrix. `listed`
    (nodes, bc) uint32, optional: the rows of each node, ascending, then :data:`NOWHERE`. By default rows i*bc .. are
    those of node i.
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
        return self._by_row(0, np.int32)

    @cached_property
    def at(self) -> NDArray[np.uint8]:
        """Place of each row in its node."""
        return self._by_row(1, np.uint8)

    def _by_row(self, axis: int, kind: type[Any]) -> NDArray[Any]:
        """Of each row where it is in `rows`, along an axis."""
        if self.listed is None:
            nodes, places = np.arange(self.pattern.rows, dtype=kind), np.arange(self.bc, dtype=kind)
            return np.tile(places, nodes.size) if axis else np.repeat(nodes, self.bc)
        found = np.empty(self.n, dtype=kind)
        where = np.nonzero(self.listed != NOWHERE)
        found[self.listed[where]] = where[axis]
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
    of, at = even_pieces(sizes, bc)
    begin = sets.cuts[:-1][of] + at
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


def _follow(listed: NDArray[np.uint32]) -> bool:
    """Whether the rows of each node follow one another."""
    return bool(((listed[:, 1:] - listed[:, :-1] == 1) | (listed[:, 1:] == NOWHERE)).all())


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
