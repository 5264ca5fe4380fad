"""Compiled passes over a canonical CSR pattern: what :mod:`akx.features` needs, each linear in the entries.

All take ``indptr`` (n+1,) and ``indices`` (nnz,), int32 or int64, with the columns of each row ascending and unique.
Breadth-first searches run on the graph of A + A^T without forming it: where the pattern is not symmetric, the
neighbours of a row are its columns in A and its columns in A^T (``tptr``, ``tind``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["block_cells", "count_diagonals", "extent", "level_structure", "symmetry", "transpose_pattern"]

IntArray = NDArray[Any]


@njit(nogil=True, cache=True)
def extent(indptr: IntArray, indices: IntArray) -> tuple[int, int]:
    """Bandwidth max |i - j| and profile sum_i max(0, i - first column of row i)."""
    bandwidth = 0
    profile = 0
    for i in range(indptr.size - 1):
        start, stop = indptr[i], indptr[i + 1]
        if start == stop:
            continue
        left = i - indices[start]
        right = indices[stop - 1] - i
        bandwidth = max(bandwidth, left, right)
        profile += max(0, left)
    return bandwidth, profile


@njit(nogil=True, cache=True)
def count_diagonals(indptr: IntArray, indices: IntArray) -> int:
    """Number of distinct offsets j - i."""
    n = indptr.size - 1
    seen = np.zeros(2 * n, dtype=np.uint8)
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            seen[indices[p] - i + n] = 1
    count = 0
    for d in range(2 * n):
        count += seen[d]
    return count


@njit(nogil=True, cache=True)
def symmetry(indptr: IntArray, indices: IntArray, data: NDArray[Any]) -> tuple[bool, bool, bool, bool]:
    """Whether the pattern is symmetric and whether A = A^T, A = -A^T, A = A^H exactly.

    Rows are walked in order, and ``cursor[j]`` is the next entry of row j whose partner has not been met. Where the
    pattern is symmetric the partner of (i, j) is always the entry under the cursor of row j, so that no transpose is
    needed: each entry is read twice.
    """
    n = indptr.size - 1
    cursor = indptr[:n].copy()
    same = skew = hermitian = True
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            q = cursor[j]
            if q >= indptr[j + 1] or indices[q] != i:
                return False, False, False, False
            cursor[j] = q + 1
            value, partner = data[p], data[q]
            same = same and value == partner
            skew = skew and value == -partner
            hermitian = hermitian and value == np.conj(partner)
    return True, same, skew, hermitian


@njit(nogil=True, cache=True)
def transpose_pattern(indptr: IntArray, indices: IntArray) -> tuple[IntArray, IntArray]:
    """The pattern of A^T, canonical, in the index type of A; a counting sort by column."""
    n = indptr.size - 1
    tptr = np.zeros_like(indptr)
    for p in range(indices.size):
        tptr[indices[p] + 1] += 1
    for j in range(n):
        tptr[j + 1] += tptr[j]
    cursor = tptr[:n].copy()
    tind = np.empty_like(indices)
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            tind[cursor[j]] = i
            cursor[j] += 1
    return tptr, tind


@njit(nogil=True, cache=True)
def _search(
    indptr: IntArray,
    indices: IntArray,
    tptr: IntArray,
    tind: IntArray,
    root: int,
    queue: IntArray,
    stamp: IntArray,
    mark: int,
) -> tuple[int, int, int, int]:
    """Breadth-first search from `root`: rows reached, levels, widest level, start of the last level in `queue`.

    A row counts as visited where ``stamp`` holds `mark`.
    """
    queue[0] = root
    stamp[root] = mark
    begin, end = 0, 1
    levels, widest = 0, 0
    while True:
        levels += 1
        widest = max(widest, end - begin)
        filled = end
        for q in range(begin, end):
            i = queue[q]
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                if stamp[j] != mark:
                    stamp[j] = mark
                    queue[filled] = j
                    filled += 1
            if tptr.size:
                for p in range(tptr[i], tptr[i + 1]):
                    j = tind[p]
                    if stamp[j] != mark:
                        stamp[j] = mark
                        queue[filled] = j
                        filled += 1
        if filled == end:
            return end, levels, widest, begin
        begin, end = end, filled


@njit(nogil=True, cache=True)
def level_structure(
    indptr: IntArray, indices: IntArray, tptr: IntArray, tind: IntArray, sweeps: int
) -> tuple[int, int, int]:
    """Components, levels in all (those of one component after those of another) and the widest level.

    The root of each component is found as by A. George and J. W. H. Liu (ACM TOMS 5, 1979): from a row of least degree
    in the last level, search again while that gives more levels, at most `sweeps` searches.
    """
    n = indptr.size - 1
    stamp = np.zeros(n, dtype=np.int32)
    queue = np.empty(n, dtype=indices.dtype)
    components = total = width = 0
    for seed in range(n):
        if stamp[seed]:
            continue
        components += 1
        reached, levels, widest, last = _search(indptr, indices, tptr, tind, seed, queue, stamp, 1)
        for sweep in range(2, sweeps + 1):
            if levels < 3 and widest < 2:
                break
            root = queue[last]
            least = indptr[root + 1] - indptr[root]
            for q in range(last, reached):
                i = queue[q]
                if indptr[i + 1] - indptr[i] < least:
                    root, least = i, indptr[i + 1] - indptr[i]
            _, deeper, thinner, start = _search(indptr, indices, tptr, tind, root, queue, stamp, sweep)
            improved = deeper > levels
            if deeper > levels or (deeper == levels and thinner < widest):
                levels, widest, last = deeper, thinner, start
            if not improved:
                break
        total += levels
        width = max(width, widest)
    return components, total, width


@njit(nogil=True, cache=True)
def block_cells(indptr: IntArray, indices: IntArray, size: int, limit: int) -> Any:
    """Cells of the aligned size x size blocks that hold an entry (clipped at n), or a number above `limit` if more.

    It stops as soon as they must be more, since each entry that is left is in a cell that is not counted yet.
    """
    n = indptr.size - 1
    count = (n + size - 1) // size
    owner = np.full(count, -1, dtype=np.int64)
    cells = 0
    for block in range(count):
        first, stop = block * size, min(n, block * size + size)
        for i in range(first, stop):
            column_end = -1  # end of the block column of the entry before: a cheap test before the division
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                if j < column_end:
                    continue
                column = j // size
                column_end = (column + 1) * size
                if owner[column] != block:
                    owner[column] = block
                    cells += (stop - first) * (min(n, column_end) - column * size)
        left = np.int64(indptr[n]) - np.int64(indptr[stop])
        if cells + left > limit:
            return cells + left
    return cells
