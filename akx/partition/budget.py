"""Partitions whose blocks fit a memory budget, ghost zones included, by recursive splitting (thesis ch. 6).

Start with about as many parts of equal work as the bytes of the whole matrix ask for, and split every block that with
its k-step ghost zone takes more than the budget in two, again and again. The zone of a block depends on its own rows
only, so splitting one block leaves the others as they are. The measuring of a block stops as soon as it is over the
budget, so that a block far too large costs no more than one that just fits. When a single row with its zone does not
fit, nothing does, and that row is named.

Since halving leaves blocks half empty, some numbers of parts to start with are tried for the ordered methods
("natural", "rcm", "levels": blocks are stretches of the order), and the result with the fewest blocks is taken.
"metis" and "hypergraph" start from one set of parts and bisect the subgraphs of those that do not fit.
Cost: a few passes over the entries, for "metis" and "hypergraph" mostly that of the partitioner.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from akx.errors import ArgumentError, BudgetError
from akx.partition.base import ROW_FLOPS, IndexArray, Partition, order_by_part
from akx.partition.graph import metis_partition
from akx.partition.hypergraph import hypergraph_partition
from akx.partition.levels import levels, rcm
from akx.partition.pattern import signed, unsigned_pattern
from akx.partition.quality import BlockBytes
from akx.partition.reach import permute
from akx.partition.rows import even_cuts

__all__ = ["METHODS", "split_to_budget"]

#: How the rows may be ordered and cut.
METHODS = ("natural", "rcm", "levels", "metis", "hypergraph")
#: Each try starts with this much more parts than the one before.
_GROWTH = 1.2
_MOST_TRIES = 12


def split_to_budget(
    indptr: IndexArray,
    indices: IndexArray,
    k: int,
    budget: float,
    *,
    method: str = "natural",
    model: BlockBytes | None = None,
    most_blocks: int | None = None,
    seed: int = 0,
) -> Partition:
    """A partition into few blocks, each of which fits the budget together with its k-step ghost zone.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        CSR pattern of the matrix.
    k : int
        Steps, at least 1.
    budget : float
        The most bytes a block with its ghost zone may take.
    method : str
        One of :data:`METHODS`: stretches of the natural, reverse Cuthill-McKee or breadth-first order, or the parts of
        a partitioner.
    model : BlockBytes, optional
        Bytes of a block; default: float64 with 32-bit indices.
    most_blocks : int, optional
        Give up beyond this many blocks.
    seed : int
        Of the partitioners.

    Returns
    -------
    Partition
        Without empty blocks.

    Raises
    ------
    BudgetError
        Where no partition fits: a row alone is too large with its ghost zone, or more than `most_blocks` are needed.
    """
    if method not in METHODS:
        raise ArgumentError("unknown method of partitioning", expected=" or ".join(METHODS), found=repr(method))
    if isinstance(k, bool) or int(k) != k or k < 1:
        raise ArgumentError("number of steps k is out of range", expected="an integer >= 1", found=repr(k))
    if not (np.isfinite(budget) and budget > 0):
        raise ArgumentError("budget is out of range", expected="bytes > 0", found=repr(budget))
    split = _Splitter(indptr, indices, int(k), float(budget), model or BlockBytes(), most_blocks)
    if method in ("metis", "hypergraph"):
        return split.by_partitioner(method, seed)
    if method == "natural":
        return split.by_order(None)
    return split.by_order(rcm(indptr, indices) if method == "rcm" else levels(indptr, indices).permutation)


class _Splitter:
    def __init__(
        self,
        indptr: IndexArray,
        indices: IndexArray,
        k: int,
        budget: float,
        model: BlockBytes,
        most_blocks: int | None,
    ) -> None:
        self.pattern = unsigned_pattern(indptr, indices)
        self.given: tuple[Any, Any] = (indptr, indices)
        self.n = self.pattern[0].size - 1
        self.k, self.budget, self.model = k, budget, model
        self.sizes = (model.entry, model.row, model.vector, model.fixed)
        self.most_blocks = self.n if most_blocks is None else most_blocks
        room = max(budget - model.fixed, 1e-300)
        total = model.entry * self.pattern[1].size + (model.row + model.vector) * self.n
        self.first_parts = min(max(ceil(min(total / room, self.n)), 1), self.n)

    def by_order(self, permutation: NDArray[np.int64] | None) -> Partition:
        pointer, columns = self.pattern
        if permutation is not None:
            pointer, columns = unsigned_pattern(*permute(*self.given, permutation)[:2])
        work = 2.0 * pointer.astype(np.float64) + ROW_FLOPS * np.arange(self.n + 1)
        best: NDArray[np.int64] | None = None
        parts = self.first_parts
        for _ in range(_MOST_TRIES):
            start = even_cuts(work, parts)
            cuts, wrong = _split(pointer, columns, start, work, self.k, self.budget, *self.sizes)
            if wrong >= 0:
                raise self.failure(pointer, columns, wrong, permutation)
            if best is None or cuts.size < best.size:
                best = cuts
            # Without a split there is nothing to gain; nor with more parts than the best has blocks.
            parts = min(max(ceil(parts * _GROWTH), parts + 1), self.n)
            if cuts.size == start.size or parts >= best.size - 1:
                break
        assert best is not None
        self.check_count(best.size - 1)
        return Partition(permutation, best)

    def by_partitioner(self, method: str, seed: int) -> Partition:
        partition = metis_partition if method == "metis" else hypergraph_partition
        part = partition(*self.given, self.first_parts, seed=seed).astype(np.int64)
        while True:
            _, part = np.unique(part, return_inverse=True)  # no empty parts
            found = order_by_part(part)
            assert found.permutation is not None
            self.check_count(found.blocks)
            pointer, columns = unsigned_pattern(*permute(*self.given, found.permutation)[:2])
            fits = _fits(pointer, columns, found.cuts, self.k, self.budget, *self.sizes)
            if fits.all():
                return found
            part *= 2  # the two halves of part p become parts 2p and 2p + 1
            for b in np.flatnonzero(~fits):
                first, last = int(found.cuts[b]), int(found.cuts[b + 1])
                if last - first == 1:
                    raise self.failure(pointer, columns, first, found.permutation)
                inner: tuple[Any, ...] = signed(*_subgraph(pointer, columns, first, last))
                half = partition(inner[0], inner[1], 2, seed=seed)
                if half.min() == half.max():  # the partitioner did not split it
                    half = (np.arange(last - first) >= (last - first) // 2).astype(np.int32)
                part[found.permutation[first:last]] += half

    def check_count(self, blocks: int) -> None:
        if blocks > self.most_blocks:
            raise BudgetError(
                "the budget asks for too many blocks",
                expected=f"at most {self.most_blocks} blocks of {self.budget:g} bytes",
                found=f"{blocks} blocks",
                hint="raise the budget, or take fewer steps per pass",
            )

    def failure(
        self, pointer: NDArray[Any], columns: NDArray[Any], row: int, permutation: NDArray[np.int64] | None
    ) -> BudgetError:
        owner = np.zeros(self.n, dtype=np.int64)
        queue = np.empty(self.n, dtype=columns.dtype)
        needed = _measure(pointer, columns, row, row + 1, self.k, np.inf, *self.sizes, owner, 1, queue)
        original = row if permutation is None else int(permutation[row])
        return BudgetError(
            f"no partition fits the memory budget for k = {self.k}",
            expected=f"at most {self.budget:g} bytes for a block with its ghost zone",
            found=f"{needed:g} bytes for row {original} alone",
            hint="raise the budget, or take fewer steps per pass",
        )


@njit(cache=True, nogil=True)
def _measure(
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
def _fits(
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
    n = indptr.shape[0] - 1
    owner, queue = np.zeros(n, np.int64), np.empty(n, indices.dtype)
    fits = np.zeros(cuts.shape[0] - 1, np.bool_)
    for b in range(fits.shape[0]):
        size = _measure(
            indptr, indices, cuts[b], cuts[b + 1], k, budget, entry, row, vector, fixed, owner, b + 1, queue
        )
        fits[b] = size <= budget
    return fits


@njit(cache=True, nogil=True)
def _split(
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
) -> tuple[NDArray[np.int64], Any]:
    """Cuts after halving (by work) whatever does not fit, and the row that does not fit alone, or -1."""
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
            size = _measure(
                indptr, indices, first, last, k, budget, entry, row, vector, fixed, owner, stamp, queue
            )
            if size <= budget:
                blocks += 1
                cuts[blocks] = last
                first = last
                top -= 1
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
def _subgraph(
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
