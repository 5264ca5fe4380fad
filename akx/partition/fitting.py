"""The compiled part of :mod:`akx.partition.budget`: does a block fit, and halving until it does.

All take the pattern in unsigned integers, in the order of the blocks, and the four numbers of
:class:`akx.partition.quality.BlockBytes`. Compiled to machine code, cached on disk; not part of the public interface.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["block_bytes", "blocks_fit", "diagonal_block", "split_cuts"]


@njit(cache=True, nogil=True)
def block_bytes(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    first: int,
    last: int,
    k: int,
    budget: float,
    entry: float,
    row: float,
    vector: float,
    fixed: float,
    owner: NDArray[np.int64],
    stamp: int,
    queue: NDArray[Any],
) -> float:
    """Bytes of rows first .. last-1 with their k-step zone; or any number above the budget where they take more."""
    one = np.uint64(1)
    own = np.int64(indptr[np.uint64(last)]) - np.int64(indptr[np.uint64(first)])
    size = fixed + entry * own + (row + vector) * (last - first)
    if size > budget:
        return size
    tail = np.uint64(0)
    for i in range(np.uint64(first), np.uint64(last)):
        queue[tail] = i
        owner[i] = stamp
        tail += one
    head = np.uint64(0)
    for d in range(1, k + 1):
        # Rows at distance d < k are computed and cost their entries; those at distance k only an entry of x.
        inner = d < k
        level_end = tail
        while head < level_end:
            v = np.uint64(queue[head])
            head += one
            for e in range(indptr[v], indptr[v + one]):
                j = indices[e]
                if owner[j] != stamp:
                    owner[j] = stamp
                    queue[tail] = j
                    tail += one
                    size += vector
                    if inner:
                        size += row + entry * (np.int64(indptr[np.uint64(j) + one]) - np.int64(indptr[j]))
            if size > budget:
                return size
    return size


@njit(cache=True, nogil=True)
def blocks_fit(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    cuts: NDArray[np.int64],
    k: int,
    budget: float,
    entry: float,
    row: float,
    vector: float,
    fixed: float,
) -> NDArray[np.bool_]:
    """Which blocks fit the budget with their k-step zones."""
    n = indptr.shape[0] - 1
    owner, queue = np.zeros(n, np.int64), np.empty(n, indices.dtype)
    fits = np.zeros(cuts.shape[0] - 1, np.bool_)
    for b in range(fits.shape[0]):
        size = block_bytes(
            indptr, indices, cuts[b], cuts[b + 1], k, budget, entry, row, vector, fixed, owner, b + 1, queue
        )
        fits[b] = size <= budget
    return fits


@njit(cache=True, nogil=True)
def split_cuts(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    start: NDArray[np.int64],
    work: NDArray[np.float64],
    k: int,
    budget: float,
    entry: float,
    row: float,
    vector: float,
    fixed: float,
    most: int,
) -> tuple[NDArray[np.int64], Any]:
    """Cuts after halving (by work) whatever does not fit, and the row that does not fit alone, or -1.

    Stops, with cuts that do not reach the end, beyond `most` blocks.
    """
    n = indptr.shape[0] - 1
    owner, queue = np.zeros(n, np.int64), np.empty(n, indices.dtype)
    cuts = np.zeros(n + 1, np.int64)
    ends = np.empty(128, np.int64)  # stretches still to do, the next one on top; halving goes at most 64 deep
    blocks, stamp, first = 0, 0, np.int64(0)
    for b in range(start.shape[0] - 1):
        ends[0] = start[b + 1]
        top = 0
        while top >= 0:
            last = ends[top]
            stamp += 1
            size = block_bytes(indptr, indices, first, last, k, budget, entry, row, vector, fixed, owner, stamp, queue)
            if size <= budget:
                blocks += 1
                cuts[blocks] = last
                first = last
                top -= 1
                if blocks > most:
                    return cuts[: blocks + 1].copy(), -1
            elif last - first == 1:
                return cuts[:1], first
            else:
                middle = np.searchsorted(work[first : last + 1], 0.5 * (work[first] + work[last])) + first
                # Halves of equal work, but neither with less than a quarter of the rows: the depth stays small.
                quarter = max((last - first) // 4, 1)
                top += 1
                ends[top] = min(max(middle, first + quarter), last - quarter)
    return cuts[: blocks + 1].copy(), -1


@njit(cache=True, nogil=True)
def diagonal_block(
    indptr: NDArray[Any], indices: NDArray[Any], first: int, last: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pattern of the diagonal block of rows first .. last-1."""
    one = np.uint64(1)
    low, high = np.uint64(first), np.uint64(last)
    pointer = np.zeros(last - first + 1, indptr.dtype)
    columns = np.empty(np.int64(indptr[high]) - np.int64(indptr[low]), indices.dtype)
    used = np.uint64(0)
    for i in range(low, high):
        for e in range(indptr[i], indptr[i + one]):
            j = np.uint64(indices[e])
            if low <= j < high:
                columns[used] = j - low
                used += one
        pointer[i - low + one] = used
    return pointer, columns[:used].copy()
