"""Breadth-first levels and reverse Cuthill-McKee, on the pattern of A + A^T.

A level is the set of rows at one distance from a start node, so that the neighbours of level l lie in levels l-1, l and
l+1. Long and thin level structures suit the wavefront; the start node decides. It is found as George and Liu (1979) do:
from any node of the component, go to a node of least degree in the last level and repeat while the structure gets
longer (here also: as long, but thinner). Each component is levelled by itself, in the order of its first row; rows
without neighbours come last and are one level, in ascending order. Levels of different components are never neighbours,
so a list of the levels of all components, one after another, keeps the property above.

Inside a level the rows are in the order of discovery (that of Cuthill and McKee without the sorting by degree), which
keeps neighbours close in memory whatever the numbering was. `rcm` is the same search with children sorted by degree,
read backwards. Cost: O(n + nnz) for each search, three to five searches for each component.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.partition.adjacency import symmetrized, unsigned_pattern
from akx.partition.base import IndexArray

__all__ = ["Levels", "levels", "rcm"]

#: Searches that look for a better start node, beside the first one.
_MOST_TRIES = 5
#: Runs of children up to this length are sorted by insertion.
_SHORT_RUN = 48


@dataclass(frozen=True)
class Levels:
    """Rows grouped by breadth-first level.

    `permutation` (n,) int64: ``permutation[new] = old``; rows of a level are contiguous in the new order. `level_ptr`
    (levels + 1,) int64: level `l` is rows ``level_ptr[l] .. level_ptr[l+1] - 1`` of the new order. `component_ptr`
    (components + 1,) int64: component `c` is made of levels ``component_ptr[c] .. component_ptr[c+1] - 1``; rows
    without neighbours count as one.
    """

    permutation: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    component_ptr: NDArray[np.int64]

    @property
    def count(self) -> int:
        """Number of levels, over all components."""
        return int(self.level_ptr.size - 1)


def levels(indptr: IndexArray, indices: IndexArray) -> Levels:
    """Breadth-first levels of the pattern of A + A^T from a pseudo-peripheral node of each component.

    `indptr` (n+1,) and `indices` (nnz,), int32 or int64, are the CSR pattern of A, symmetric or not.
    """
    pointer, columns = symmetrized(*unsigned_pattern(indptr, indices))
    order, level_ptr, component_ptr = _level_all(pointer, columns, False)
    return Levels(order.astype(np.int64), level_ptr, component_ptr)


def rcm(indptr: IndexArray, indices: IndexArray) -> NDArray[np.int64]:
    """Reverse Cuthill-McKee order, ``permutation[new] = old``, (n,), of the pattern of A + A^T, for a small bandwidth.

    The pattern is that of :func:`levels`.
    """
    pointer, columns = symmetrized(*unsigned_pattern(indptr, indices))
    order, _, _ = _level_all(pointer, columns, True)
    permutation: NDArray[np.int64] = order[::-1].astype(np.int64)
    return permutation


@njit(cache=True, nogil=True)
def _level_all(indptr: Any, indices: Any, by_degree: bool) -> tuple[Any, Any, Any]:
    """Order of the rows, pointers of the levels, pointers of the components."""
    n = np.uint64(indptr.shape[0] - 1)
    one = np.uint64(1)
    order = np.empty(n, indices.dtype)
    level_ptr = np.zeros(n + one, np.int64)
    seen = np.zeros(n, np.uint8)
    component_ptr = np.zeros(n + one, np.int64)
    filled, height, parts = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(n):
        if seen[i] != 0 or not _has_others(indptr, indices, i):
            continue
        start = i
        if indptr[i + one] - indptr[i] > np.uint64(1):
            start = _peripheral(indptr, indices, i, seen, order, filled)
        count, depth, _, _ = _search(indptr, indices, start, seen, order, filled, level_ptr, height, by_degree)
        filled += count
        height += depth
        parts += one
        component_ptr[parts] = height
    if filled < n:
        for i in range(n):
            if seen[i] == 0:
                order[filled] = i
                filled += one
        height += one
        level_ptr[height] = n
        parts += one
        component_ptr[parts] = height
    return order, level_ptr[: height + one].copy(), component_ptr[: parts + one].copy()


@njit(cache=True, nogil=True)
def _has_others(indptr: Any, indices: Any, i: Any) -> Any:
    """Whether a row has entries beside that on the diagonal."""
    found = False
    for e in range(indptr[i], indptr[i + np.uint64(1)]):
        found |= indices[e] != i
    return found


@njit(cache=True, nogil=True)
def _peripheral(indptr: Any, indices: Any, root: Any, seen: Any, order: Any, filled: Any) -> Any:
    """A node whose level structure is long and thin (George and Liu)."""
    one = np.uint64(1)
    scratch = np.empty(0, np.int64)
    best, best_depth, best_width = root, np.uint64(0), np.uint64(0)
    node = root
    for _ in range(_MOST_TRIES + 1):
        count, depth, width, last = _search(indptr, indices, node, seen, order, filled, scratch, np.uint64(0), False)
        better = depth > best_depth or (depth == best_depth and width < best_width)
        if better:
            best, best_depth, best_width = node, depth, width
            # Next: the first node of least degree in the last level.
            least = np.uint64(indptr.shape[0])
            for t in range(filled + last, filled + count):
                v = np.uint64(order[t])
                degree = np.uint64(indptr[v + one] - indptr[v])
                if degree < least:
                    least, node = degree, v
        for t in range(filled, filled + count):
            seen[order[t]] = 0
        if not better or depth <= one:
            break
    return best


@njit(cache=True, nogil=True)
def _search(
    indptr: Any,
    indices: Any,
    start: Any,
    seen: Any,
    order: Any,
    filled: Any,
    level_ptr: Any,
    height: Any,
    by_degree: Any,
) -> tuple[Any, Any, Any, Any]:
    """Search one component from `start` into order[filled:].

    Returns its rows, its levels, the rows of its widest level and the place of its last level in the component. Writes
    the level pointers from level_ptr[height + 1] on, unless level_ptr is empty.
    """
    one = np.uint64(1)
    keep = level_ptr.shape[0] > 0
    order[filled] = start
    seen[start] = 1
    head, tail, level_end = np.uint64(filled), filled + one, filled + one
    level_start = np.uint64(filled)
    depth, width = np.uint64(0), np.uint64(0)
    while True:
        while head < level_end:
            v = np.uint64(order[head])
            head += one
            first = tail
            for e in range(indptr[v], indptr[v + one]):
                u = indices[e]
                if seen[u] == 0:
                    seen[u] = 1
                    order[tail] = u
                    tail += one
            if by_degree and tail - first > one:
                _sort_by_degree(indptr, order, first, tail)
        depth += one
        width = max(width, level_end - level_start)
        if keep:
            level_ptr[height + depth] = level_end
        if tail == level_end:
            break
        level_start, level_end = level_end, tail
    return tail - filled, depth, width, level_start - filled


@njit(cache=True, nogil=True)
def _sort_by_degree(indptr: NDArray[Any], order: NDArray[Any], first: Any, stop: Any) -> None:
    """Sort order[first:stop] by degree, stably."""
    one = np.uint64(1)
    if stop - first <= np.uint64(_SHORT_RUN):
        for s in range(first + one, stop):
            v = np.uint64(order[s])
            degree = indptr[v + one] - indptr[v]
            t = np.uint64(s)
            while t > first:
                u = np.uint64(order[t - one])
                if indptr[u + one] - indptr[u] <= degree:
                    break
                order[t] = u
                t -= one
            order[t] = v
    else:
        run = order[first:stop].copy()
        degrees = np.empty(run.shape[0], indptr.dtype)
        for s in range(np.uint64(run.shape[0])):
            degrees[s] = indptr[np.uint64(run[s]) + one] - indptr[run[s]]
        by_degree = np.argsort(degrees, kind="mergesort")
        for s in range(np.uint64(run.shape[0])):
            order[first + s] = run[by_degree[s]]
