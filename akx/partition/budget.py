"""Partitions whose blocks fit a memory budget, ghost zones included, by recursive splitting (thesis ch. 6).

Start with about as many parts of equal work as the bytes of the whole matrix ask for, and split every block that with
its k-step ghost zone takes more than the budget in two, again and again. The zone of a block depends on its own rows
only, so splitting one block leaves the others as they are. The measuring of a block stops as soon as it is over the
budget, so that a block far too large costs no more than one that just fits. When a single row with its zone does not
fit, nothing does, and that row is named.

Since halving leaves blocks half empty, the ordered methods ("natural", "rcm", "levels": blocks are stretches of the
order) then start again from numbers of parts between half of the blocks found and all of them, and the result with the
fewest blocks is taken. "metis" and "hypergraph" start once more from as many parts as the bytes with ghost zones ask
for, then bisect the subgraphs of those that do not fit.
Cost: a few passes over the entries, for "metis" and "hypergraph" mostly that of the partitioner.
"""

from __future__ import annotations

from dataclasses import astuple
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, BudgetError, InfeasibleError
from akx.core.numba_jit import njit
from akx.partition.adjacency import signed, unsigned_pattern
from akx.partition.base import ROW_FLOPS, IndexArray, Partition, order_by_part
from akx.partition.cuts import even_cuts
from akx.partition.ghost import ghost_zones
from akx.partition.hypergraph import hypergraph_partition
from akx.partition.levels import levels, rcm
from akx.partition.metis import metis_partition
from akx.partition.permutation import permute
from akx.partition.quality import BlockBytes

__all__ = ["METHODS", "split_to_budget"]

#: How the rows may be ordered and cut.
METHODS = ("natural", "rcm", "levels", "metis", "hypergraph")
#: Numbers of parts to start again from, over the blocks that halving gave.
_AGAIN = (0.55, 0.65, 0.75, 0.85, 0.95)
#: With more blocks than this times those without ghost zones, the zones are nearly all there is: not tried again.
_HOPELESS = 4


def split_to_budget(
    indptr: IndexArray,
    indices: IndexArray,
    k: int,
    budget: float,
    *,
    method: str = "natural",
    model: BlockBytes | None = None,
    seed: int = 0,
) -> Partition:
    """A partition into few blocks, none empty, each of which fits the budget together with its k-step ghost zone.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        CSR pattern of the matrix.
    k : int
        Steps, at least 1.
    budget : float
        The most bytes a block with its ghost zone may take, by `model` (default: float64 with 32-bit indices).
    method : str
        One of :data:`METHODS`: stretches of the natural, reverse Cuthill-McKee or breadth-first order, or the parts of
        a partitioner, with this `seed`.

    Raises
    ------
    BudgetError
        Where no partition fits: a row alone is too large with its ghost zone.
    """
    if method not in METHODS:
        raise ArgumentError("unknown method of partitioning", expected=" or ".join(METHODS), found=repr(method))
    if isinstance(k, bool) or int(k) != k or k < 1:
        raise ArgumentError("number of steps k is out of range", expected="an integer >= 1", found=repr(k))
    if not (np.isfinite(budget) and budget > 0):
        raise ArgumentError("budget is out of range", expected="bytes > 0", found=repr(budget))
    split = _Splitter(indptr, indices, int(k), float(budget), model or BlockBytes())
    if method in ("metis", "hypergraph"):
        return split.by_partitioner(method, seed)
    if method == "natural":
        return split.by_order(None)
    return split.by_order(rcm(indptr, indices) if method == "rcm" else levels(indptr, indices).permutation)


class _Splitter:
    """Halves what does not fit, in the order given or by a partitioner."""

    def __init__(self, indptr: IndexArray, indices: IndexArray, k: int, budget: float, model: BlockBytes) -> None:
        self.given: tuple[Any, Any] = (indptr, indices)
        self.k, self.budget, self.model = k, budget, model
        self.n = int(np.asarray(indptr).size - 1)
        self.use(None)
        self.owner, self.stamp = np.zeros(self.n, dtype=np.int64), 0
        total = model.entry * self.columns.size + (model.row + model.vector) * self.n
        room = max(budget - model.fixed, 1e-300)
        self.first_parts = min(max(ceil(min(total / room, self.n)), 1), self.n)

    def use(self, permutation: NDArray[np.int64] | None) -> None:
        """Go on with the pattern in this order."""
        self.permutation = permutation
        pattern = self.given if permutation is None else permute(*self.given, permutation)[:2]
        self.pointer, self.columns = unsigned_pattern(*pattern)
        self.queue = np.empty(self.n, dtype=self.columns.dtype)

    def bytes_of(self, first: int, last: int, most: float) -> float:
        """Bytes of a block with its zone, or any number above `most` where it takes more."""
        self.stamp += 1
        sizes = tuple(map(float, astuple(self.model)))
        scratch = (self.owner, self.stamp, self.queue)
        return float(_block_bytes(self.pointer, self.columns, (first, last), self.k, most, sizes, *scratch))

    def fits(self, first: int, last: int) -> bool:
        """Whether a block fits the budget. Raises BudgetError where it does not and is a single row."""
        if self.bytes_of(first, last, self.budget) <= self.budget:
            return True
        if last - first > 1:
            return False
        row = first if self.permutation is None else int(self.permutation[first])
        raise BudgetError(
            f"no partition fits the memory budget for k = {self.k}",
            expected=f"at most {self.budget:g} bytes for a block with its ghost zone",
            found=f"{self.bytes_of(first, last, np.inf):g} bytes for row {row} alone",
            hint="raise the budget, or take fewer steps per pass",
        )

    def by_order(self, permutation: NDArray[np.int64] | None) -> Partition:
        """Stretches of an order."""
        self.use(permutation)
        work = 2.0 * self.pointer.astype(np.float64) + ROW_FLOPS * np.arange(self.n + 1)
        best = self.halved(work, self.first_parts, self.n)
        halved = best.size - 1
        for share in _AGAIN if self.first_parts < halved <= _HOPELESS * self.first_parts else ():
            parts = ceil(share * halved)
            if self.first_parts < parts < best.size - 1:
                best = min(best, self.halved(work, parts, best.size - 1), key=len)
        return Partition(permutation, best)

    def halved(self, work: NDArray[np.float64], parts: int, most: int) -> NDArray[np.int64]:
        """Cuts after halving, by work, whatever of `parts` even blocks does not fit; ends beyond `most` blocks."""
        cuts = [0]
        ends = even_cuts(work, parts)[:0:-1].tolist()  # still to do, the next one last
        while ends and len(cuts) <= most + 1:
            first, last = cuts[-1], ends[-1]
            if self.fits(first, last):
                cuts.append(ends.pop())
                continue
            middle = int(np.searchsorted(work[first : last + 1], 0.5 * (work[first] + work[last]))) + first
            quarter = max((last - first) // 4, 1)  # neither half with less: the depth stays small
            ends.append(min(max(middle, first + quarter), last - quarter))
        return np.array(cuts, dtype=np.int64)

    def by_partitioner(self, method: str, seed: int) -> Partition:
        """Parts of METIS or Mt-KaHyPar."""
        partition = metis_partition if method == "metis" else hypergraph_partition
        part = partition(*self.given, self.first_parts, seed=seed).astype(np.int64)
        parts = self.parts_with_zones(order_by_part(part))
        if parts > 1.05 * self.first_parts:
            part = partition(*self.given, parts, seed=seed).astype(np.int64)
        while True:
            _, part = np.unique(part, return_inverse=True)  # no empty parts
            found = order_by_part(part)
            assert found.permutation is not None
            self.use(found.permutation)
            large = [(first, last) for first, last in pairwise(found.cuts.tolist()) if not self.fits(first, last)]
            if not large:
                return found
            arrays = (np.ones(self.columns.size, np.int8), *signed(self.columns, self.pointer))
            ordered = sp.csr_array(arrays, shape=(self.n, self.n))
            part *= 2  # the two halves of part p become parts 2p and 2p + 1
            for first, last in large:
                inner = ordered[first:last, first:last]
                half = partition(inner.indptr, inner.indices, 2, seed=seed)
                if half.min() == half.max():  # the partitioner did not split it
                    half = (np.arange(last - first) >= (last - first) // 2).astype(np.int32)
                part[found.permutation[first:last]] += half

    def parts_with_zones(self, found: Partition) -> int:
        """Parts that the bytes of these blocks with their zones ask for, a tenth for unevenness; 0 where all fit."""
        try:
            sizes = self.model.of(ghost_zones(*self.given, found, self.k, most_rows=_HOPELESS))
        except InfeasibleError:
            return 0
        return min(ceil(1.1 * float(sizes.sum()) / self.budget), self.n) if float(sizes.max()) > self.budget else 0


@njit(cache=True, nogil=True)
def _block_bytes(
    indptr: Any, indices: Any, rows: Any, k: int, most: float, sizes: Any, owner: Any, stamp: int, queue: Any
) -> Any:
    """Bytes of the rows from one to another with their k-step zone; or any number above `most` where they take more.

    `stamp` is a number that is not in `owner` (n,) yet; `queue` (n,) is scratch.
    """
    first, last = rows
    entry, row, vector, fixed = sizes
    own = np.int64(indptr[np.uint64(last)]) - np.int64(indptr[np.uint64(first)])
    size = fixed + entry * own + (row + vector) * (last - first)
    if size > most:
        return size
    one = np.uint64(1)
    head, tail = np.uint64(0), np.uint64(0)
    for i in range(np.uint64(first), np.uint64(last)):
        queue[tail] = i
        owner[i] = stamp
        tail += one
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
            if size > most:
                return size
    return size
