"""Block sliced ELL: dense m x m blocks with one index each, chunks of C block rows, one block row per vector lane.

For problems with m unknowns per node. Each slot holds, column by column of the block, C lanes of values; the m gathers
of x of a slot share one index load, so a block costs m gathers for m*m multiply-adds. Bytes per entry:
(itemsize + index bytes / m**2) / fill. Source: block SpMV with one index per block (Rennich, NVIDIA; bytes per entry
8 + 4/(nr nc) + ...), arranged in chunks as SELL is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern, aligned_zeros, fits_bits, in_parallel, index_dtype, lanes_of, pointers_of

__all__ = ["BellArrays", "BellFormat", "BellShape", "bell_fits", "bell_shape", "bell_slots", "from_csr"]


class BellArrays(NamedTuple):
    """start (chunks+1,) in slots of C*m*m values, base (chunks,) in block columns, column (slots*C,), values."""

    start: NDArray[np.uint64]
    base: NDArray[np.uint64]
    column: NDArray[Any]
    values: NDArray[Any]
    shape: tuple[int, ...]
    rows: int
    chunk: int


class BellShape(NamedTuple):
    """width (chunks,), slots of each chunk; low and high (chunks,), the block columns that it reads lie between."""

    width: NDArray[np.int64]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]


@dataclass(frozen=True)
class BellFormat(Format):
    """A matrix in dense blocks.

    `length` (units * lanes,) uint32: of a node all of whose blocks are full the entries of each row, which are one for
    each column of its first blocks then; 0 for other nodes.
    """

    length: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, the slot map and the lengths included."""
        return super().nbytes + int(self.length.nbytes)


def bell_shape(pattern: Pattern, dtype: np.dtype[Any], block: int, *, threads: int = 1) -> BellShape:
    """What :func:`from_csr` and those that ask whether it can want to know of the chunks; a pass over the pattern."""
    chunk = lanes_of(dtype)
    chunks = -(-(pattern.rows // block) // chunk)
    shape = BellShape(np.zeros(chunks, np.int64), np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64))
    in_parallel(_chunk_shape, chunks, threads, pattern.indptr, pattern.indices, block, chunk, *shape)
    return shape


def bell_slots(pattern: Pattern, dtype: np.dtype[Any], block: int, *, shape: BellShape | None = None) -> int:
    """Values that :func:`from_csr` would store, padding included."""
    shape = shape or bell_shape(pattern, dtype, block)
    return int(shape.width.sum()) * lanes_of(dtype) * block * block


def bell_fits(pattern: Pattern, dtype: np.dtype[Any], block: int, bits: int, *, shape: BellShape | None = None) -> bool:
    """Whether the block columns of every chunk lie within 2**bits of each other."""
    shape = shape or bell_shape(pattern, dtype, block)
    return fits_bits(shape.low, shape.high, bits)


def from_csr(
    pattern: Pattern, dtype: np.dtype[Any], *, block: int, bits: int, shape: BellShape | None = None, threads: int = 1
) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`. Rows must be a multiple of `block`.

    `shape` is that of :func:`bell_shape` for this pattern, dtype and block, where it is known.
    """
    chunk = lanes_of(dtype)
    width, least, _ = shape or bell_shape(pattern, dtype, block, threads=threads)
    low = np.zeros_like(least) if bits >= 32 else least
    start = pointers_of(width).view(np.uint64)
    slots = int(start[-1])
    size = slots * chunk * block * block
    index = aligned_zeros(slots * chunk, index_dtype(bits))
    slot = np.empty(pattern.nnz, dtype=np.uint32 if size < 2**32 else np.uint64)
    length = np.zeros(width.size * chunk, dtype=np.uint32)
    known = pattern.indptr, pattern.indices, block, chunk, (start, least, low), (index, slot, length)
    in_parallel(_lay_out, low.size, threads, *known)
    values = aligned_zeros(size, dtype)
    arrays = BellArrays(start, low, index, values, (0,) * block, pattern.rows, chunk)
    return BellFormat(arrays, slot, chunk * block, size, chunk * block, length)


@njit(nogil=True, cache=True)
def _dense_blocks(indptr: Any, indices: Any, block: Any, block_row: Any) -> Any:
    """The number of blocks of a block row where each of them is full, -1 where some cell is missing."""
    row = np.uintp(block_row * block)
    first = np.uintp(indptr[row])
    length = np.uintp(indptr[row + np.uintp(1)]) - first
    if length % np.uintp(block):
        return np.int64(-1)
    for r in range(1, block):
        if np.uintp(indptr[row + np.uintp(r + 1)]) - np.uintp(indptr[row + np.uintp(r)]) != length:
            return np.int64(-1)
    wide = np.uintp(block)
    count, last, same = length // wide, wide - np.uintp(1), True
    for q in range(count):  # of a row: columns ascend, so that the first and the last of a block tell
        at = first + np.uintp(q) * wide
        column = np.uintp(indices[at])
        same &= (column % wide == np.uintp(0)) & (np.uintp(indices[at + last]) == column + last)
    for r in range(1, block):
        other = first + np.uintp(r) * length
        for p in range(length):
            same &= indices[first + np.uintp(p)] == indices[other + np.uintp(p)]
    return np.int64(count) if same else np.int64(-1)


@njit(nogil=True, cache=True)
def _block_columns(indptr: Any, indices: Any, block: Any, block_row: Any, cursor: Any, found: Any) -> Any:
    """The sorted block columns of one block row into `found` (by merging its sorted rows); give their number."""
    for r in range(block):
        cursor[r] = np.int64(indptr[block_row * block + r])
    count = 0
    while True:
        least = np.int64(-1)
        for r in range(block):
            if cursor[r] < np.int64(indptr[block_row * block + r + 1]):
                column = np.int64(indices[cursor[r]]) // block
                if least < 0 or column < least:
                    least = column
        if least < 0:
            return count
        for r in range(block):
            stop = np.int64(indptr[block_row * block + r + 1])
            while cursor[r] < stop and np.int64(indices[cursor[r]]) // block == least:
                cursor[r] += 1
        found[count] = least
        count += 1


@njit(nogil=True, cache=True)
def _scratch(indptr: Any, block: Any) -> Any:
    """Room for the block columns of any block row: the most entries a block row has."""
    most = np.int64(1)
    for block_row in range((indptr.size - 1) // block):
        most = max(most, np.int64(indptr[(block_row + 1) * block]) - np.int64(indptr[block_row * block]))
    return np.empty(most, np.int64)


@njit(nogil=True, cache=True)
def _chunk_shape(
    indptr: Any, indices: Any, block: Any, chunk: Any, width: Any, low: Any, high: Any, begin: Any, end: Any
) -> None:
    """The shape of chunks begin..end-1."""
    block_rows = (indptr.size - 1) // block
    cursor, found = np.empty(block, np.int64), _scratch(indptr, block)
    for c in range(begin, end):
        least, most = np.int64(-1), np.int64(0)
        for block_row in range(c * chunk, min(block_rows, (c + 1) * chunk)):
            count = _dense_blocks(indptr, indices, block, block_row)
            if count > 0:
                row = np.int64(indptr[block_row * block])
                found[0] = np.int64(indices[row]) // block
                found[count - 1] = np.int64(indices[row + (count - 1) * block]) // block
            else:
                count = _block_columns(indptr, indices, block, block_row, cursor, found)
            width[c] = max(width[c], count)
            if count:
                least = found[0] if least < 0 else min(least, found[0])
                most = max(most, found[count - 1])
        if least >= 0:
            low[c], high[c] = least, most


@njit(nogil=True, cache=True)
def _lay_out(
    indptr: Any, indices: Any, block: Any, chunk: Any, of_chunks: Any, places: Any, begin: Any, end: Any
) -> None:
    """Place every entry of chunks begin..end-1. Padding repeats the last block column of its block row, or reads the
    least one of the chunk where the block row is empty: never an entry of x that the chunk does not read anyway.
    """
    start, least, low = of_chunks
    index, slot, length = places
    block_rows = (indptr.size - 1) // block
    cursor, columns = np.empty(block, np.int64), _scratch(indptr, block)
    for c in range(begin, end):
        first, width = np.int64(start[c]), np.int64(start[c + 1]) - np.int64(start[c])
        for block_row in range(c * chunk, min(block_rows, (c + 1) * chunk)):
            lane = block_row - c * chunk
            count = _dense_blocks(indptr, indices, block, block_row)
            is_dense = count > 0
            if is_dense:
                length[block_row] = count * block
                row = np.int64(indptr[block_row * block])
                for s in range(count):
                    columns[s] = np.int64(indices[row + s * block]) // block
            else:
                count = _block_columns(indptr, indices, block, block_row, cursor, columns)
            for s in range(width):
                column = np.uint64(columns[min(s, count - 1)]) if count else least[c]
                index[(first + s) * chunk + lane] = column - low[c]
            for r in range(block):
                p, stop = np.int64(indptr[block_row * block + r]), np.int64(indptr[block_row * block + r + 1])
                if is_dense:
                    at, step = (first * block * block + r) * chunk + lane, block * chunk  # columns are r, r + block, ..
                    for q in range(p, stop):
                        slot[q] = at
                        at += step
                    continue
                s = 0
                for q in range(p, stop):
                    j = np.int64(indices[q])
                    while columns[s] != j // block:
                        s += 1
                    inner = (j % block) * block + r
                    slot[q] = ((first + s) * block * block + inner) * chunk + lane
