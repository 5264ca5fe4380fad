"""Natural blocks of a matrix: runs of rows and columns with the same pattern, as the unknowns of a node have.

A matrix from a discretisation with several unknowns a node has dense blocks, of r x c values where the nodes of the
rows and of the columns have r and c unknowns; r and c may differ from node to node (a shell has six, where it meets a
solid three). Rows i and i + 1 belong to one node where they have the same columns, and columns i and i + 1 the same
rows. A few entries that are missing (zeros that were dropped) would cut nodes apart; so rows that have most of their
columns in common may make a node as well, where that takes fewer bytes.

Nodes have at most six rows: longer runs are cut evenly. One pass over the entries for the rows and one for the columns,
and one more for each other choice of nodes.

Source: natural blocks of mixed sizes are those of Rennich (NVIDIA, "Block SpMV on GPU"), "supervariables" in the
literature on direct methods (Duff and Reid, ACM TOMS 22, 1996), there found without regard to the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Pattern, even_pieces

__all__ = ["INDEX_BYTES", "MOST", "VALUE_BYTES", "Nodes", "alike_rows", "compared_rows", "natural_nodes"]

#: Most rows of a node.
MOST = 6
#: Share of all columns of two rows that both have, from which on they may be of one node though they are not the same.
_ALIKE = 0.7
#: bytes of a value and of the index of a block, by which nodes are chosen.
VALUE_BYTES, INDEX_BYTES = 8, 4
#: Pieces of the matrix that are looked at first, and rows of each.
_PIECES, _PIECE = 64, 64


@dataclass(frozen=True)
class Nodes:
    """Runs of rows, and the dense blocks that they cut a pattern into.

    `cuts` (nodes+1,) int64: first row of each node, and the number of rows. `of` (rows,) int32: node of each row.
    `counts` (nodes, 6) int32: blocks of each node with 1 to 6 columns. `blocks`: blocks in all. `slots`: values of all
    blocks: entries, and zeros that fill them up.
    """

    cuts: NDArray[np.int64]
    of: NDArray[np.int32]
    counts: NDArray[np.int32]
    blocks: int
    slots: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each node."""
        return np.diff(self.cuts)


def alike_rows(pattern: Pattern) -> float:
    """Share of the rows that may be of one node with the row before, by a look at some thousand of them."""
    alike = [_likeness(pattern.indptr[at : at + _PIECE + 1], pattern.indices)[1:] for at in _pieces(pattern.rows)]
    found = np.concatenate(alike)
    return float(np.mean(found >= _ALIKE)) if found.size else 0.0


def compared_rows(rows: int) -> NDArray[np.int64]:
    """The rows that :func:`alike_rows` looks at, each and the one before it, of so many."""
    found: NDArray[np.int64] = (_pieces(rows)[:, None] + np.arange(1, _PIECE)).ravel()
    return found[found < rows]


def _pieces(rows: int) -> NDArray[np.int64]:
    """Where the pieces begin that are looked at."""
    return np.unique(np.linspace(0, max(0, rows - _PIECE - 1), _PIECES).astype(np.int64))


def natural_nodes(pattern: Pattern, value_bytes: int = VALUE_BYTES, index_bytes: int = INDEX_BYTES) -> Nodes:
    """The nodes with which values and an index for each block take the fewest bytes.

    `pattern`: square, rows sorted. `value_bytes`, `index_bytes`: of a value, and of the index of a block.
    """
    alike = _likeness(pattern.indptr, pattern.indices)
    exact = _nodes(pattern, (alike == 1.0) & _same_columns(pattern.indptr, pattern.indices))
    if exact.cuts.size == _cuts(alike >= _ALIKE).size:  # their blocks are full
        return exact
    loose = _nodes(pattern, alike >= _ALIKE)

    def size(nodes: Nodes) -> int:
        return nodes.slots * value_bytes + nodes.blocks * index_bytes

    return loose if size(loose) < size(exact) else exact


def _nodes(pattern: Pattern, joined: NDArray[np.bool_]) -> Nodes:
    cuts = _cuts(joined)
    of = np.repeat(np.arange(cuts.size - 1, dtype=np.int32), np.diff(cuts))
    counts = np.zeros((cuts.size - 1, MOST), np.int32)
    _count(pattern.indptr, pattern.indices, cuts, of, counts)
    wide = counts.astype(np.int64) @ np.arange(1, MOST + 1)
    return Nodes(cuts, of, counts, int(counts.sum(dtype=np.int64)), int(wide @ np.diff(cuts)))


def _cuts(joined: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where nodes begin: at rows that are not joined to the one before; runs that are too long are cut evenly."""
    begin = np.flatnonzero(~joined)
    run, at = even_pieces(np.diff(np.append(begin, joined.size)), MOST)
    return np.append(begin[run] + at, joined.size).astype(np.int64)


@njit(nogil=True, cache=True)
def _likeness(indptr: Any, indices: Any) -> Any:
    """Of each row and the one before it, the share of their columns that both have; 1 where both are empty."""
    n = indptr.size - 1
    found = np.zeros(n, np.float64)
    for i in range(1, n):
        p, q = np.int64(indptr[i - 1]), np.int64(indptr[i])
        end, stop = q, np.int64(indptr[i + 1])
        total = stop - p
        if end - p == stop - q:  # mostly they are the same or differ at once
            while q < stop and indices[p] == indices[q]:
                p += 1
                q += 1
            if q == stop:
                found[i] = 1.0
                continue
        both = q - end
        if both == 0 and total > 0 and min(end - p, stop - q) * 10 < 7 * max(end - p, stop - q):
            continue
        while p < end and q < stop:
            if indices[p] == indices[q]:
                p += 1
                q += 1
                both += 1
            elif indices[p] < indices[q]:
                p += 1
            else:
                q += 1
        found[i] = np.float64(both) / np.float64(total - both)
    return found


@njit(nogil=True, cache=True)
def _same_columns(indptr: Any, indices: Any) -> Any:
    """Whether each column has the rows of the one before it."""
    n = indptr.size - 1
    count, pairs = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        before = -2  # no column
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            j = int(indices[p])
            count[j] += 1
            pairs[j] += j == before + 1
            before = j
    found = np.zeros(n, np.bool_)
    for j in range(1, n):
        found[j] = pairs[j] == count[j] and pairs[j] == count[j - 1]
    return found


@njit(nogil=True, cache=True)
def _count(indptr: Any, indices: Any, cuts: Any, of: Any, counts: Any) -> None:
    """Blocks of each node by their columns."""
    seen = np.full(cuts.size - 1, -1, np.int32)
    for node in range(cuts.size - 1):
        for p in range(np.int64(indptr[cuts[node]]), np.int64(indptr[cuts[node + 1]])):
            column = of[np.int64(indices[p])]
            if seen[column] != node:
                seen[column] = node
                counts[node, cuts[column + 1] - cuts[column] - 1] += 1
