"""Structure features of a sparse matrix: what schedules, the predictor and ``akx info`` go by.

The compiled passes are linear in the entries and together read the indices about fifteen times, the values twice: about
a second for 20 million entries. They take ``indptr`` (n+1,) and ``indices`` (nnz,), int32 or int64, with the columns of
each row ascending and unique. Breadth-first searches run on the graph of A + A^T without forming it: where the pattern
is not symmetric, the neighbours of a row are its columns in A and its columns in A^T (``tptr``, ``tind``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["Features", "compute_features", "count_diagonals", "dense_block_size", "extent"]

IntArray = NDArray[Any]

#: An aligned block counts as dense where at least this share of the cells of all touched blocks is filled.
_DENSE = 0.95
_BLOCK_SIZES = (6, 5, 4, 3, 2)
_SWEEPS = 4


@dataclass(frozen=True)
class Features:
    """Structure of a canonical matrix of n rows.

    Attributes
    ----------
    rows, nnz : int
        Rows, and entries including explicit zeros.
    dtype : str
        Value type: ``"float32"``, ``"float64"``, ``"complex64"`` or ``"complex128"``.
    row_min, row_max : int
        Entries of the shortest and of the longest row.
    row_mean, row_std : float
        Mean and standard deviation (over the population) of the entries per row.
    empty_rows : int
        Rows without an entry.
    bandwidth : int
        max |i - j| over the entries.
    profile : int
        sum_i max(0, i - first column of row i).
    components : int
        Connected components of the graph of A + A^T.
    level_count, level_width_max : int
        Breadth-first levels from a good root, those of each component after those of the component before, and the
        rows in the widest.
    pattern_symmetric : bool
        Whether (j, i) is an entry wherever (i, j) is.
    value_symmetry : str
        ``"symmetric"``, ``"skew"``, ``"hermitian"`` (complex only, and preferred to symmetric) or ``"none"``, exactly,
        without a tolerance.
    block_size : int
        The largest b in 1..6 for which the aligned b x b blocks that hold an entry are at least 95% full: unknowns that
        share a node and are numbered together.
    block_fill : float
        Share of the cells of those blocks that hold an entry, 1.0 for b = 1.
    diagonal_count : int
        Distinct offsets j - i.
    diagonal_fill : float
        nnz / (diagonal_count * n), 0.0 without entries.
    """

    rows: int
    nnz: int
    dtype: str
    row_min: int
    row_max: int
    row_mean: float
    row_std: float
    empty_rows: int
    bandwidth: int
    profile: int
    components: int
    level_count: int
    level_width_max: int
    pattern_symmetric: bool
    value_symmetry: str
    block_size: int
    block_fill: float
    diagonal_count: int
    diagonal_fill: float

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, keyed by the attribute names."""
        return asdict(self)


def compute_features(indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any]) -> Features:
    """Features of the canonical CSR arrays of an n x n matrix, n >= 1.

    `indptr`, `indices` (n+1,) and (nnz,) int32 or int64: the pattern, columns ascending and unique within a row. `data`
    (nnz,) array of float32, float64, complex64 or complex128: the values.
    """
    n, nnz = indptr.size - 1, indices.size
    lengths = np.diff(indptr)
    bandwidth, profile = extent(indptr, indices)
    pattern, same, skew, hermitian = _symmetry(indptr, indices, data)
    if pattern:
        tptr, tind = np.empty(0, dtype=indptr.dtype), np.empty(0, dtype=indices.dtype)
    else:
        tptr, tind = _transpose_pattern(indptr, indices)
    components, level_count, level_width = _level_structure((indptr, indices, tptr, tind), _SWEEPS)
    kinds = (("hermitian", data.dtype.kind == "c" and hermitian), ("symmetric", same), ("skew", skew), ("none", True))
    symmetry = next(kind for kind, holds in kinds if holds)
    block_size, block_fill = dense_block_size(indptr, indices)
    diagonals = int(count_diagonals(indptr, indices))
    return Features(
        rows=n,
        nnz=nnz,
        dtype=data.dtype.name,
        row_min=int(lengths.min()),
        row_max=int(lengths.max()),
        row_mean=nnz / n,
        row_std=float(np.std(lengths)),
        empty_rows=int(n - np.count_nonzero(lengths)),
        bandwidth=int(bandwidth),
        profile=int(profile),
        components=int(components),
        level_count=int(level_count),
        level_width_max=int(level_width),
        pattern_symmetric=bool(pattern),
        value_symmetry=symmetry,
        block_size=block_size,
        block_fill=block_fill,
        diagonal_count=diagonals,
        diagonal_fill=nnz / (diagonals * n) if diagonals else 0.0,
    )


def dense_block_size(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[int, float]:
    n, nnz = indptr.size - 1, indices.size
    for size in _BLOCK_SIZES:
        if size > n or nnz == 0:
            continue
        limit = int(nnz / _DENSE)
        cells = int(_block_cells(indptr, indices, size, limit))
        if cells <= limit:
            return size, nnz / cells
    return 1, 1.0


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
def _symmetry(indptr: IntArray, indices: IntArray, data: NDArray[Any]) -> tuple[bool, bool, bool, bool]:
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
def _transpose_pattern(indptr: IntArray, indices: IntArray) -> tuple[IntArray, IntArray]:
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
def _search(graph: Any, root: int, queue: IntArray, stamp: IntArray, mark: int) -> tuple[int, int, int, int]:
    """Breadth-first search from `root`: rows reached, levels, widest level, start of the last level in `queue`.

    A row counts as visited where ``stamp`` holds `mark`.
    """
    indptr, indices, tptr, tind = graph
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
def _level_structure(graph: Any, sweeps: int) -> tuple[int, int, int]:
    """Components, levels in all (those of one component after those of another) and the widest level.

    The root of each component is found as by A. George and J. W. H. Liu (ACM TOMS 5, 1979): from a row of least degree
    in the last level, search again while that gives more levels, at most `sweeps` searches.
    """
    indptr, indices, _, _ = graph
    n = indptr.size - 1
    stamp = np.zeros(n, dtype=np.int32)
    queue = np.empty(n, dtype=indices.dtype)
    components = total = width = 0
    for seed in range(n):
        if stamp[seed]:
            continue
        components += 1
        reached, levels, widest, last = _search(graph, seed, queue, stamp, 1)
        for sweep in range(2, sweeps + 1):
            if levels < 3 and widest < 2:
                break
            root = queue[last]
            least = indptr[root + 1] - indptr[root]
            for q in range(last, reached):
                i = queue[q]
                if indptr[i + 1] - indptr[i] < least:
                    root, least = i, indptr[i + 1] - indptr[i]
            _, deeper, thinner, start = _search(graph, root, queue, stamp, sweep)
            improved = deeper > levels
            if deeper > levels or (deeper == levels and thinner < widest):
                levels, widest, last = deeper, thinner, start
            if not improved:
                break
        total += levels
        width = max(width, widest)
    return components, total, width


@njit(nogil=True, cache=True)
def _block_cells(indptr: IntArray, indices: IntArray, size: int, limit: int) -> Any:
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
