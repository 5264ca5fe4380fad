"""k-step ghost zones: what a block must have of its neighbours to do k steps alone.

That is, the foreign rows it must compute along and the foreign entries of x it must fetch. For a block with own rows O,
let D_0 = O and D_{d+1} = the columns of the rows in D_d that are in no earlier set: the rows at distance d+1 along the
directed graph row -> column, so nonsymmetric patterns are handled. v_k on O needs v_{k-1} on O and D_1, and so on
down to v_0 = x on D_0 .. D_k (Demmel, Hoemmen, Mohiyuddin, Yelick 2008, algorithm PA1; thesis ch. 6). Hence step j,
which makes v_j, is done on the rows at distance <= k - j: its *active* rows. They are stored as one list for each
block, nearest first, so that the active rows of every step are a prefix of it:

    rows of block b = [ own | distance 1 | ... | distance k-1 | distance k: only x is fetched ]
    ptr[b]          = [ |     |            ...              |                             | ]   (k+2 offsets)

Flops: 2 * sum_d (k - d) * nnz(D_d) for a block, against 2 k nnz(O) needed; the ratio over all blocks is the redundancy.
Cost: one pass over the entries of each block and of its ghosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, InfeasibleError
from akx.core.numba_jit import njit
from akx.partition.adjacency import signed, unsigned_pattern
from akx.partition.base import IndexArray, Partition
from akx.partition.halo import grown
from akx.partition.permutation import permute

__all__ = ["GhostZones", "ghost_zones"]


@dataclass(frozen=True)
class GhostZones:
    """The k-step closures of the blocks of a partition.

    Attributes
    ----------
    k : int
        Steps.
    rows : (total,) array of int32 or int64
        Row numbers of the matrix given (not of the permuted one), block after block. Within a block by distance; own
        rows in the order of the partition, and the rows of one distance sorted by their place in it.
    ptr : (blocks, k+2) array of int64
        Rows of block `b` at distance `d` are ``rows[ptr[b, d] : ptr[b, d+1]]``.
    entries : (blocks, k+1) array of int64
        Matrix entries in those rows.
    """

    k: int
    rows: NDArray[Any]
    ptr: NDArray[np.int64]
    entries: NDArray[np.int64]

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.ptr.shape[0])

    def own(self, block: int) -> NDArray[Any]:
        """The rows of the block itself; a view."""
        return self.rows[self.ptr[block, 0] : self.ptr[block, 1]]

    def closure(self, block: int) -> NDArray[Any]:
        """All rows at distance <= k, where x is needed; a view."""
        return self.rows[self.ptr[block, 0] : self.ptr[block, self.k + 1]]

    def active(self, block: int, step: int) -> NDArray[Any]:
        """The rows computed in step 1 <= `step` <= k, which makes v_step: those at distance <= k - step; a view."""
        if not 1 <= step <= self.k:
            raise ArgumentError("step is out of range", expected=f"1 .. {self.k}", found=str(step))
        return self.rows[self.ptr[block, 0] : self.ptr[block, self.k - step + 1]]

    @property
    def active_counts(self) -> NDArray[np.int64]:
        """Active rows of each step, shape (blocks, k): ``[b, j-1] == active(b, j).size``."""
        return self.ptr[:, self.k : 0 : -1] - self.ptr[:, :1]

    @property
    def fetched(self) -> NDArray[np.int64]:
        """Foreign entries of x that each block needs, shape (blocks,)."""
        return self.ptr[:, self.k + 1] - self.ptr[:, 1]

    @property
    def products(self) -> NDArray[np.int64]:
        """Multiply-adds each block does in k steps, shape (blocks,): sum over d of (k - d) nnz(D_d)."""
        return np.asarray(self.entries @ np.arange(self.k, -1, -1, dtype=np.int64))

    def within(self, steps: int) -> GhostZones:
        """The zones of fewer steps, 1 <= `steps` <= k, which are those within that distance; views."""
        if not 1 <= steps <= self.k:
            raise ArgumentError("steps are out of range", expected=f"1 .. {self.k}", found=str(steps))
        return GhostZones(steps, self.rows, self.ptr[:, : steps + 2], self.entries[:, : steps + 1])

    @property
    def redundancy(self) -> float:
        """Flops done over flops needed, at least 1; 1 for a matrix without entries."""
        needed = self.k * int(self.entries[:, 0].sum())
        return float(self.products.sum()) / needed if needed else 1.0


def ghost_zones(
    indptr: IndexArray, indices: IndexArray, partition: Partition, k: int, *, most_rows: float | None = None
) -> GhostZones:
    """The k-step ghost zones of every block of any partition.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        CSR pattern of the matrix, symmetric or not, in its original order.
    partition : Partition
        With or without a permutation.
    k : int
        Steps, at least 1.
    most_rows : float, optional
        Raise :class:`InfeasibleError` as soon as the closures of all blocks together hold more than ``most_rows * n``
        rows: for small blocks of a graph without locality they would fill the memory.
    """
    if isinstance(k, bool) or int(k) != k or k < 1:
        raise ArgumentError("number of steps k is out of range", expected="an integer >= 1", found=repr(k))
    pointer, columns = unsigned_pattern(indptr, indices)
    n = pointer.size - 1
    if partition.n != n:
        raise ArgumentError("partition is of another matrix", expected=f"{n} rows", found=f"{partition.n}")
    if partition.permutation is not None:
        new_pointer, new_columns, _ = permute(indptr, indices, partition.permutation)
        pointer, columns = unsigned_pattern(new_pointer, new_columns)
    most = np.iinfo(np.int64).max if most_rows is None else int(most_rows * n)
    rows, ptr, entries, done = _zones(pointer, columns, partition.cuts, int(k), most)
    if not done:
        expected = f"at most {most} rows in the closures of all {partition.blocks} blocks"
        hint = "take fewer or larger blocks, or fewer steps per pass"
        raise InfeasibleError(f"the {k}-step ghost zones are too large", expected=expected, hint=hint)
    if partition.permutation is not None:
        rows = partition.permutation.astype(rows.dtype)[rows]
    return GhostZones(int(k), signed(rows)[0], ptr, entries)


@njit(cache=True, nogil=True)
def _zones(indptr: Any, indices: Any, cuts: Any, k: int, most: int) -> tuple[Any, Any, Any, bool]:
    one = np.uint64(1)
    n = indptr.shape[0] - 1
    blocks = cuts.shape[0] - 1
    ptr = np.zeros((blocks, k + 2), np.int64)
    entries = np.zeros((blocks, k + 1), np.int64)
    owner = np.full(n, -1, np.int32)  # the last block whose closure held the row: nothing to reset between blocks
    rows = np.empty(n + n // 4 + 64, indices.dtype)
    tail = 0
    for b in range(blocks):
        ptr[b, 0] = tail
        if tail + (cuts[b + 1] - cuts[b]) > rows.shape[0]:
            rows = grown(rows, tail + (cuts[b + 1] - cuts[b]))
        for i in range(cuts[b], cuts[b + 1]):
            rows[tail] = i
            owner[i] = b
            tail += 1
        ptr[b, 1] = tail
        entries[b, 0] = np.int64(indptr[cuts[b + 1]]) - np.int64(indptr[cuts[b]])
        for d in range(1, k + 1):
            total = np.int64(0)
            for t in range(np.uint64(ptr[b, d - 1]), np.uint64(ptr[b, d])):
                row = np.uint64(rows[t])
                start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + one])
                if tail + np.int64(stop - start) > rows.shape[0]:
                    rows = grown(rows, tail + np.int64(stop - start))
                for e in range(start, stop):
                    j = indices[e]
                    if owner[j] != b:
                        owner[j] = b
                        rows[np.uint64(tail)] = j
                        total += np.int64(indptr[np.uint64(j) + one]) - np.int64(indptr[j])
                        tail += 1
            entries[b, d] = total
            rows[ptr[b, d] : tail].sort()
            ptr[b, d + 1] = tail
            if tail > most:
                return rows[:0], ptr, entries, False
    return rows[:tail].copy(), ptr, entries, True
