"""Sliced ELL with a sorting window: chunks of C rows stored column by column.

C is the lanes of a short vector by default; on a GPU it is the threads of a warp.

Rows are sorted by falling length within windows of sigma rows, so that the rows of a chunk are of like length; a row
map takes the results back (no map and no scatter where sigma = 1). Indices of 16, 32 or 64 bits are relative to a base
per chunk. Bytes per entry: (itemsize + index bytes) / fill, fill = entries / slots. Source: Kreutzer et al., SIAM J.
Sci. Comput. 36 (2014), "SELL-C-sigma".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Format, Pattern, aligned_zeros, column_range, fits_bits, index_dtype, lanes_of, pointers_of

__all__ = ["SellArrays", "from_csr", "order_of", "sell_fits", "sell_slots", "starts_of"]


class SellArrays(NamedTuple):
    """start (chunks+1,), base (chunks,), column and values (slots,), row (chunks*C,) or (0,) where unsorted."""

    start: NDArray[np.uint64]
    base: NDArray[np.uint64]
    column: NDArray[Any]
    values: NDArray[Any]
    row: NDArray[np.uint32]
    rows: int
    chunk: int


def order_of(pattern: Pattern, sigma: int) -> NDArray[np.int64]:
    """Rows in the order they are stored: by falling length within windows of sigma rows, ties in order."""
    n = pattern.rows
    if sigma == 1 or n == 0:
        return np.arange(n, dtype=np.int64)
    lengths = np.diff(pattern.indptr).astype(np.int64)
    longest, window = int(lengths.max()), min(sigma, n)
    first = np.arange(0, n, window, dtype=np.int64)[:, None]
    key = np.zeros((first.size, window), np.uint16 if longest < 2**16 - 1 else np.int64)  # few bits: they are counted
    key.ravel()[:n] = longest - lengths
    key.ravel()[n:] = longest + 1
    order: NDArray[np.int64] = (np.argsort(key, axis=1, kind="stable") + first).ravel()
    return order[:n]


def _chunk_width(pattern: Pattern, order: NDArray[np.int64], chunk: int) -> NDArray[np.int64]:
    lengths = np.zeros(-(-pattern.rows // chunk) * chunk, dtype=np.int64)
    lengths[: pattern.rows] = np.diff(pattern.indptr.astype(np.int64))[order]
    return np.asarray(lengths.reshape(-1, chunk).max(axis=1))


def _starts(pattern: Pattern, order: NDArray[np.int64], chunk: int) -> NDArray[np.uint64]:
    return pointers_of(_chunk_width(pattern, order, chunk) * chunk).view(np.uint64)


def starts_of(pattern: Pattern, sigma: int, chunk: int) -> NDArray[np.uint64]:
    """First slot of each chunk, and the number of all; of the pattern only the lengths of the rows are looked at."""
    return _starts(pattern, order_of(pattern, sigma), chunk)


def sell_slots(pattern: Pattern, dtype: np.dtype[Any], sigma: int, *, chunk: int | None = None) -> int:
    """Slots that :func:`from_csr` would store, padding included."""
    chunk = chunk or lanes_of(dtype)
    return int(_chunk_width(pattern, order_of(pattern, sigma), chunk).sum()) * chunk


def sell_fits(pattern: Pattern, dtype: np.dtype[Any], sigma: int, bits: int, *, chunk: int | None = None) -> bool:
    """Whether the columns of every chunk lie within 2**bits of each other."""
    chunk, order = chunk or lanes_of(dtype), order_of(pattern, sigma)
    low, high = column_range(pattern.indptr, pattern.indices, order, chunk)
    return fits_bits(low, high, bits)


def from_csr(pattern: Pattern, dtype: np.dtype[Any], *, sigma: int, bits: int, chunk: int | None = None) -> Format:
    """Lay `pattern` out; the values are zero until :meth:`Format.fill`. The caller has checked :func:`sell_fits`.

    `sigma` is 1 (unsorted) or a multiple of the chunk height; `chunk` is that height, :func:`lanes_of` by default.
    """
    chunk, order = chunk or lanes_of(dtype), order_of(pattern, sigma)
    start = _starts(pattern, order, chunk)
    slots, chunks = int(start[-1]), start.size - 1
    least, _ = column_range(pattern.indptr, pattern.indices, order, chunk)
    low = np.zeros_like(least) if bits >= 32 else least
    index = aligned_zeros(slots, index_dtype(bits))
    slot = np.empty(pattern.nnz, dtype=np.uint32 if slots < 2**32 else np.uint64)
    _lay_out(pattern.indptr, pattern.indices, order, chunk, start, least, low, index, slot)
    row = np.zeros(0, dtype=np.uint32)
    if sigma > 1:
        row = np.zeros(chunks * chunk, dtype=np.uint32)
        row[: pattern.rows] = order
    values = aligned_zeros(slots, dtype)
    arrays = SellArrays(start, low, index, values, row, pattern.rows, chunk)
    return Format(arrays, slot, chunk if sigma == 1 else sigma, slots, chunk)


@njit(nogil=True, cache=True)
def _lay_out(
    indptr: Any, indices: Any, order: Any, chunk: Any, start: Any, least: Any, low: Any, index: Any, slot: Any
) -> None:
    """Place every entry. Padding repeats the last column of its row, or reads the least column of the chunk where the
    row is empty: it must never read an entry of x that the chunk does not read anyway, which may not be there yet.
    """
    for c in range(low.size):
        first_slot = np.int64(start[c])
        width = (np.int64(start[c + 1]) - first_slot) // chunk
        for lane in range(chunk):
            s = c * chunk + lane
            first, stop = np.int64(0), np.int64(0)
            if s < order.size:
                first, stop = np.int64(indptr[order[s]]), np.int64(indptr[order[s] + 1])
            at = first_slot + lane
            for p in range(first, stop):
                index[at] = np.uint64(indices[p]) - low[c]
                slot[p] = at
                at += chunk
            last = np.uint64(indices[stop - 1]) if stop > first else least[c]
            for _ in range(width - (stop - first)):
                index[at] = last - low[c]
                at += chunk
