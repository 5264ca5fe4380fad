"""Rows of a node share one list of columns: compressed sparse rows of nodes, values column by column of the node.

A node is a run of rows with the same columns, as the unknowns of a finite element node are; nodes may be of any sizes,
1 to H rows each (longer runs are cut evenly), H = 8 or the lanes of a short vector where these are fewer. A column of a
node is one index and as many values as it has rows, which one vector load brings; lanes beyond them hold the values of
the next column, and what they add up to is not stored. So nothing is padded, blocks need not be dense or aligned, and
an entry of x is loaded once for a node. Nodes end where a group of 64 rows does, so that rows can be shared out there;
indices of 16, 32 or 64 bits are relative to a base per group.

Bytes per entry: itemsize + index bytes / m for m rows a node, and 5 a node. Source: nodes of rows that are alike are
the "inodes" of PETSc's AIJ matrices (Balay et al., PETSc users manual), and supernodes elsewhere; the order of the
values is akx's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.canonical import read_only
from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern, aligned_zeros, column_range, index_dtype, lanes_of, same_columns
from akx.formats.csr import GROUP

__all__ = ["InodeArrays", "Inodes", "from_csr", "inodes"]

#: Most rows of a node.
MOST = 8


class InodeArrays(NamedTuple):
    """node (groups+1,) in nodes, first (groups,) in values, base (groups,) in columns; of each node its place in the
    columns, pointer (nodes+1,), and its rows, height (nodes,); column, and values (nnz and the lanes of a vector)."""

    node: NDArray[np.uint64]
    first: NDArray[np.uint64]
    base: NDArray[np.uint64]
    pointer: NDArray[Any]
    height: NDArray[np.uint8]
    column: NDArray[Any]
    values: NDArray[Any]
    rows: int


class Inodes(NamedTuple):
    """Nodes of a pattern: node (groups+1,), where groups begin, rows of each, and the columns of all of them."""

    node: NDArray[np.uint64]
    height: NDArray[np.uint8]
    columns: int


def inodes(pattern: Pattern, dtype: np.dtype[Any]) -> Inodes:
    """The nodes for values of `dtype`; one pass over the pattern."""
    start, height, columns = _nodes(pattern.indptr, pattern.indices, min(MOST, lanes_of(dtype)))
    return Inodes(read_only(start), read_only(height), int(columns))


def from_csr(pattern: Pattern, dtype: np.dtype[Any], *, bits: int, nodes: Inodes | None = None) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`. The caller has checked :func:`csr_fits`.

    `nodes` are those of :func:`inodes` for this pattern and dtype, where they are known.
    """
    start, height, columns = nodes or inodes(pattern, dtype)
    first = pattern.indptr[np.minimum(np.arange(start.size - 1) * GROUP, pattern.rows)].astype(np.uint64)
    base = np.zeros(start.size - 1, np.uint64)
    if bits < 32:
        base, _ = column_range(pattern.indptr, pattern.indices, np.arange(pattern.rows), GROUP)
    pointer = np.zeros(height.size + 1, np.uint32 if columns < 2**32 else np.uint64)
    column = np.empty(columns, index_dtype(bits))
    slot = np.empty(pattern.nnz, dtype=np.uint32 if pattern.nnz < 2**32 else np.uint64)
    _lay_out(pattern.indptr, pattern.indices, start, height, base, pointer, column, slot)
    values = aligned_zeros(pattern.nnz + lanes_of(dtype), dtype)
    for array in (start, first, base, pointer, height, column, slot):
        array.flags.writeable = False
    arrays = InodeArrays(start, first, base, pointer, height, column, values, pattern.rows)
    return Format(arrays, slot, GROUP, pattern.nnz, GROUP)


@njit(nogil=True, cache=True)
def _nodes(indptr: Any, indices: Any, most: Any) -> Any:
    rows = indptr.size - 1
    groups = (rows + GROUP - 1) // GROUP
    start, height = np.zeros(groups + 1, np.uint64), np.empty(rows, np.uint8)
    count, columns = np.int64(0), np.int64(0)
    for g in range(groups):
        i, last = g * GROUP, min(rows, (g + 1) * GROUP)
        while i < last:
            end = i + 1
            while end < last and same_columns(indptr, indices, i, end):
                end += 1
            pieces = (end - i + most - 1) // most
            length = np.int64(indptr[i + 1]) - np.int64(indptr[i])
            for piece in range(pieces):
                height[count] = (end - i) * (piece + 1) // pieces - (end - i) * piece // pieces
                count += 1
                columns += length
            i = end
        start[g + 1] = count
    return start, height[:count].copy(), columns


@njit(nogil=True, cache=True)
def _lay_out(
    indptr: Any, indices: Any, start: Any, height: Any, base: Any, pointer: Any, column: Any, slot: Any
) -> None:
    place, i = np.int64(0), np.int64(0)
    for g in range(start.size - 1):
        for q in range(np.int64(start[g]), np.int64(start[g + 1])):
            begin, rows = np.int64(indptr[i]), np.int64(height[q])
            length = np.int64(indptr[i + 1]) - begin
            for e in range(length):
                column[place + e] = np.uint64(indices[begin + e]) - base[g]
                for r in range(rows):
                    slot[begin + r * length + e] = begin + e * rows + r
            place += length
            pointer[q + 1] = place
            i += rows
