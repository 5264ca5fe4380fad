"""Block sliced ELL: dense m x m blocks with one index each, chunks of C block rows, one block row per vector lane.

For problems with m unknowns per node. Each slot holds, column by column of the block, C lanes of values; the m gathers
of x of a slot share one index load, so a block costs m gathers for m*m multiply-adds. Bytes per entry:
(itemsize + index bytes / m**2) / fill. Source: block SpMV with one index per block (Rennich, NVIDIA; bytes per entry
8 + 4/(nr nc) + ...), arranged in chunks as SELL is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from akx.formats.base import Format, Pattern, aligned_zeros, index_dtype, lanes_of

__all__ = ["BellArrays", "bell_fits", "bell_slots", "from_csr"]


class BellArrays(NamedTuple):
    """start (chunks+1,) in slots of C*m*m values, base (chunks,) in block columns, column (slots*C,), values."""

    start: NDArray[np.uint64]
    base: NDArray[np.uint64]
    column: NDArray[Any]
    values: NDArray[Any]
    shape: tuple[int, ...]
    rows: int
    chunk: int


def bell_slots(pattern: Pattern, dtype: np.dtype[Any], block: int) -> int:
    """Values that :func:`from_csr` would store, padding included."""
    chunk = lanes_of(dtype)
    width, _, _ = _chunk_shape(pattern.indptr, pattern.indices, block, chunk)
    return int(width.sum()) * chunk * block * block


def bell_fits(pattern: Pattern, dtype: np.dtype[Any], block: int, bits: int) -> bool:
    """Whether the block columns of every chunk lie within 2**bits of each other."""
    _, low, high = _chunk_shape(pattern.indptr, pattern.indices, block, lanes_of(dtype))
    return bool(np.all(high - low < np.uint64(2) ** np.uint64(bits))) if bits < 64 else True


def from_csr(pattern: Pattern, dtype: np.dtype[Any], *, block: int, bits: int) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`. Rows must be a multiple of `block`."""
    chunk = lanes_of(dtype)
    width, least, _ = _chunk_shape(pattern.indptr, pattern.indices, block, chunk)
    low = np.zeros_like(least) if bits >= 32 else least
    start = np.zeros(width.size + 1, dtype=np.uint64)
    np.cumsum(width, out=start[1:].view(np.int64))
    slots = int(start[-1])
    size = slots * chunk * block * block
    index = aligned_zeros(slots * chunk, index_dtype(bits))
    slot = np.empty(pattern.nnz, dtype=np.uint32 if size < 2**32 else np.uint64)
    _lay_out(pattern.indptr, pattern.indices, block, chunk, start, least, low, index, slot)
    values = aligned_zeros(size, dtype)
    arrays = BellArrays(start, low, index, values, (0,) * block, pattern.rows, chunk)
    return Format(arrays, slot, chunk * block, size, chunk * block)


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
def _chunk_shape(indptr: Any, indices: Any, block: Any, chunk: Any) -> Any:
    block_rows = (indptr.size - 1) // block
    chunks = (block_rows + chunk - 1) // chunk
    width = np.zeros(chunks, np.int64)
    low, high = np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64)
    cursor, found = np.empty(block, np.int64), _scratch(indptr, block)
    for c in range(chunks):
        least, most = np.int64(-1), np.int64(0)
        for block_row in range(c * chunk, min(block_rows, (c + 1) * chunk)):
            count = _block_columns(indptr, indices, block, block_row, cursor, found)
            width[c] = max(width[c], count)
            if count:
                least = found[0] if least < 0 else min(least, found[0])
                most = max(most, found[count - 1])
        if least >= 0:
            low[c], high[c] = least, most
    return width, low, high


@njit(nogil=True, cache=True)
def _lay_out(
    indptr: Any, indices: Any, block: Any, chunk: Any, start: Any, least: Any, low: Any, index: Any, slot: Any
) -> None:
    """Place every entry. Padding repeats the last block column of its block row, or reads the least one of the chunk
    where the block row is empty: never an entry of x that the chunk does not read anyway.
    """
    block_rows = (indptr.size - 1) // block
    cursor, found = np.empty(block, np.int64), _scratch(indptr, block)
    for c in range(low.size):
        first, width = np.int64(start[c]), np.int64(start[c + 1]) - np.int64(start[c])
        for block_row in range(c * chunk, min(block_rows, (c + 1) * chunk)):
            lane = block_row - c * chunk
            count = _block_columns(indptr, indices, block, block_row, cursor, found)
            for s in range(width):
                column = np.uint64(found[min(s, count - 1)]) if count else least[c]
                index[(first + s) * chunk + lane] = column - low[c]
            for r in range(block):
                s = 0
                for p in range(np.int64(indptr[block_row * block + r]), np.int64(indptr[block_row * block + r + 1])):
                    j = np.int64(indices[p])
                    while found[s] != j // block:
                        s += 1
                    inner = (j % block) * block + r
                    slot[p] = ((first + s) * block * block + inner) * chunk + lane
