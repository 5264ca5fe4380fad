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

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, BudgetError, InfeasibleError
from akx.partition.adjacency import signed, unsigned_pattern
from akx.partition.base import ROW_FLOPS, IndexArray, Partition, order_by_part
from akx.partition.cuts import even_cuts
from akx.partition.fitting import block_bytes, blocks_fit, diagonal_block, split_cuts
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

        def split(parts: int, most: int) -> NDArray[np.int64]:
            start = even_cuts(work, parts)
            cuts, wrong = split_cuts(pointer, columns, start, work, self.k, self.budget, *self.sizes, most)
            if wrong >= 0:
                raise self.failure(pointer, columns, wrong, permutation)
            return np.asarray(cuts)

        best = split(self.first_parts, self.most_blocks)
        self.check_count(best.size - 1)
        halved = best.size - 1
        for share in _AGAIN if self.first_parts < halved <= _HOPELESS * self.first_parts else ():
            parts = ceil(share * halved)
            if self.first_parts < parts < best.size - 1:
                cuts = split(parts, best.size - 1)
                best = cuts if cuts.size < best.size else best
        return Partition(permutation, best)

    def by_partitioner(self, method: str, seed: int) -> Partition:
        partition = metis_partition if method == "metis" else hypergraph_partition
        part = partition(*self.given, self.first_parts, seed=seed).astype(np.int64)
        parts = self.parts_with_zones(order_by_part(part))
        if parts > 1.05 * self.first_parts:
            part = partition(*self.given, parts, seed=seed).astype(np.int64)
        while True:
            _, part = np.unique(part, return_inverse=True)  # no empty parts
            found = order_by_part(part)
            assert found.permutation is not None
            self.check_count(found.blocks)
            pointer, columns = unsigned_pattern(*permute(*self.given, found.permutation)[:2])
            fits = blocks_fit(pointer, columns, found.cuts, self.k, self.budget, *self.sizes)
            if fits.all():
                return found
            part *= 2  # the two halves of part p become parts 2p and 2p + 1
            for b in np.flatnonzero(~fits):
                first, last = int(found.cuts[b]), int(found.cuts[b + 1])
                if last - first == 1:
                    raise self.failure(pointer, columns, first, found.permutation)
                inner: tuple[Any, ...] = signed(*diagonal_block(pointer, columns, first, last))
                half = partition(inner[0], inner[1], 2, seed=seed)
                if half.min() == half.max():  # the partitioner did not split it
                    half = (np.arange(last - first) >= (last - first) // 2).astype(np.int32)
                part[found.permutation[first:last]] += half

    def parts_with_zones(self, found: Partition) -> int:
        """Parts that the bytes of these blocks with their zones ask for, a tenth for unevenness; 0 where all fit."""
        try:
            zones = ghost_zones(*self.given, found, self.k, most_rows=_HOPELESS)
        except InfeasibleError:
            return 0
        sizes = self.model.of(zones)
        return min(ceil(1.1 * float(sizes.sum()) / self.budget), self.n) if float(sizes.max()) > self.budget else 0

    def check_count(self, blocks: int) -> None:
        if blocks > self.most_blocks:
            raise BudgetError(
                "the budget asks for too many blocks",
                expected=f"at most {self.most_blocks} blocks of {self.budget:g} bytes",
                found=f"{blocks} blocks or more",
                hint="raise the budget, or take fewer steps per pass",
            )

    def failure(
        self, pointer: NDArray[Any], columns: NDArray[Any], row: int, permutation: NDArray[np.int64] | None
    ) -> BudgetError:
        owner = np.zeros(self.n, dtype=np.int64)
        queue = np.empty(self.n, dtype=columns.dtype)
        needed = block_bytes(pointer, columns, row, row + 1, self.k, np.inf, *self.sizes, owner, 1, queue)
        original = row if permutation is None else int(permutation[row])
        return BudgetError(
            f"no partition fits the memory budget for k = {self.k}",
            expected=f"at most {self.budget:g} bytes for a block with its ghost zone",
            found=f"{needed:g} bytes for row {original} alone",
            hint="raise the budget, or take fewer steps per pass",
        )
