"""Symmetric matrices by nodes of rows, in blocks: one value for a_ij and a_ji where both rows are in one block.

A node is a run of 1 to 3 rows with the same columns (:mod:`akx.formats.inode`). Of the columns of a node, those of its
block before it are stored for both of two entries,

    s += V x[columns],    y[columns] += V^T x[rows],

with V the dense rows x columns block of their values; rows of y before the node have been written by then. Those of its
own rows and of other blocks are stored in full. So a block of rows writes to no other, needs no colours and no buffers,
and the bits are the same whichever threads have the blocks. Their size depends on the matrix alone: an eighth of its
rows, and 65,536 at most, so that columns within a block have 16 bits.

Values are in groups of as many columns as a short vector has lanes, row by row within a group, of which the last of a
node is as narrow as it has to be: nothing is padded. Bytes per entry within blocks: itemsize / 2 + 1 / m, for m rows a
node, without those within a node; of other entries: itemsize + 4 / m. Per node: 9.

Source: half the entries and writes to both rows as in RACE (Alappat et al., ACM TOPC 7, 2020), blocks in place of
colours as in the symmetric CSB of Buluc et al. (IPDPS 2011); nodes and their order are akx's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern, aligned_zeros, index_dtype, lanes_of, pointers_of, same_columns

__all__ = ["MOST", "Counts", "SymmetricInodeArrays", "block_rows", "counts_of", "from_csr"]

#: Most rows of a node; those of a short vector of rows would not stay in registers.
MOST = 3
#: Blocks that rows are cut into at least, where there are enough; multiples of so many rows.
_BLOCKS, _UNIT = 8, 64


class SymmetricInodeArrays(NamedTuple):
    """first_node, first_value (blocks+1,); of each node height (nodes,), pointer and full_pointer (nodes+1,) of its
    columns in column, relative to its block, and in full_column; values, and the lanes of a vector."""

    first_node: NDArray[np.uint64]
    first_value: NDArray[np.uint64]
    height: NDArray[np.uint8]
    pointer: NDArray[np.uint64]
    full_pointer: NDArray[np.uint64]
    column: NDArray[np.uint16]
    full_column: NDArray[Any]
    values: NDArray[Any]
    rows: int
    block: int


class Counts(NamedTuple):
    """(blocks,): nodes of each block, their columns stored for two, and in full, and the values."""

    nodes: NDArray[np.int64]
    columns: NDArray[np.int64]
    full_columns: NDArray[np.int64]
    values: NDArray[np.int64]


def block_rows(rows: int) -> int:
    """Rows of a block: a multiple of 64, at most 65,536."""
    return min(65_536, max(1, -(-rows // (_BLOCKS * _UNIT))) * _UNIT)


def counts_of(pattern: Pattern) -> Counts:
    """What a symmetric pattern is made of; one pass over it."""
    block = block_rows(pattern.rows)
    blocks = -(-pattern.rows // block)
    found = Counts(*(np.zeros(blocks, dtype=np.int64) for _ in Counts._fields))
    _count(pattern.indptr, pattern.indices, block, tuple(found), 0, blocks)
    return found


def from_csr(pattern: Pattern, dtype: np.dtype[Any], *, bits: int, counts: Counts | None = None) -> Format:
    """Lay a symmetric `pattern` out; the values are zero until :meth:`Format.fill`.

    `counts`: from :func:`counts_of`, where they are known. Entries (i, j) and (j, i) of a block have the same slot,
    but for those of one node.
    """
    counts = counts or counts_of(pattern)
    block = block_rows(pattern.rows)
    nodes, columns, full_columns, values = (pointers_of(one) for one in counts)
    spare = lanes_of(dtype)
    height = np.zeros(nodes[-1], dtype=np.uint8)
    pointer, full_pointer = (np.zeros(nodes[-1] + 1, dtype=np.uint64) for _ in range(2))
    column = np.zeros(columns[-1] + spare, dtype=np.uint16)
    full_column = np.zeros(full_columns[-1] + spare, dtype=index_dtype(bits))
    slot = np.zeros(pattern.nnz, dtype=np.uint32 if values[-1] < 2**32 else np.uint64)
    begins = nodes, columns, full_columns, values
    places = height, pointer, full_pointer, column, full_column, slot
    _lay_out(pattern.indptr, pattern.indices, block, spare, begins, places, 0, counts.nodes.size)
    pointer[-1], full_pointer[-1] = columns[-1], full_columns[-1]
    first = nodes.view(np.uint64), values.view(np.uint64)
    for array in (*first, *places):
        array.flags.writeable = False
    stored = int(values[-1])
    arrays = SymmetricInodeArrays(*first, *places[:5], aligned_zeros(stored + spare, dtype), pattern.rows, block)
    return Format(arrays, slot, block, stored, block)


@njit(nogil=True, cache=True)
def _node_end(indptr: Any, indices: Any, i: Any, last: Any) -> Any:
    """Where the node that begins with row i ends."""
    end = i + 1
    while end < min(last, i + MOST) and same_columns(indptr, indices, i, end):
        end += 1
    return end


@njit(nogil=True, cache=True)
def _count(indptr: Any, indices: Any, block: Any, found: Any, begin: Any, end: Any) -> None:
    nodes, columns, full_columns, values = found
    for b in range(begin, end):
        i, last = b * block, min(indptr.size - 1, (b + 1) * block)
        while i < last:
            stop = _node_end(indptr, indices, i, last)
            twice = full = 0
            for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                j = np.int64(indices[p])
                twice += b * block <= j < i
                full += j < b * block or j >= last or i <= j < stop
            nodes[b] += 1
            columns[b] += twice
            full_columns[b] += full
            values[b] += (twice + full) * (stop - i)
            i = stop


@njit(nogil=True, cache=True)
def _place(at: Any, count: Any, c: Any, r: Any, rows: Any, lanes: Any) -> Any:
    """The slot of column c of `count` and row r of a node whose values begin at `at`."""
    begin = c // lanes * lanes
    return at + begin * rows + r * min(lanes, count - begin) + (c - begin)


@njit(nogil=True, cache=True)
def _lay_out(indptr: Any, indices: Any, block: Any, lanes: Any, begins: Any, places: Any, begin: Any, end: Any) -> None:
    nodes, columns, full_columns, values = begins
    height, pointer, full_pointer, column, full_column, slot = places
    following = np.zeros(block, np.int64)
    for b in range(begin, end):
        start, last = b * block, min(indptr.size - 1, (b + 1) * block)
        q, e, f, at = nodes[b], columns[b], full_columns[b], values[b]
        for i in range(start, last):  # the first entry behind the own node that row i has in its block
            following[i - start] = -1
        i = start
        while i < last:
            stop = _node_end(indptr, indices, i, last)
            first, rows = np.int64(indptr[i]), stop - i
            length = np.int64(indptr[i + 1]) - first
            height[q], pointer[q], full_pointer[q] = rows, e, f
            twice = full = behind = 0
            for p in range(length):
                j = np.int64(indices[first + p])
                twice += start <= j < i
                full += j < start or j >= last or i <= j < stop
                behind += j < stop
            c = g = 0
            for p in range(length):
                j = np.int64(indices[first + p])
                if start <= j < i:
                    column[e] = j - start
                    e += 1
                    for r in range(rows):
                        s = _place(at, twice, c, r, rows, lanes)
                        slot[first + r * length + p] = s
                        slot[following[j - start]] = s
                        following[j - start] += 1
                    c += 1
                elif j < start or j >= last or j < stop:
                    full_column[f] = j
                    f += 1
                    for r in range(rows):
                        s = _place(at + twice * rows, full, g, r, rows, lanes)
                        slot[first + r * length + p] = s
                    g += 1
            for r in range(rows):
                following[i - start + r] = first + r * length + behind
            at += (twice + full) * rows
            q += 1
            i = stop
