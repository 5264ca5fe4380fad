"""What a partition costs for k steps without communication: redundancy, surface, bytes, edge cut, imbalance.

redundancy         = flops of k steps on blocks with ghost zones / flops of k plain products
surface to volume  = foreign entries of x that the blocks fetch / rows  (thesis ch. 6: should be well below 1)
bytes of a block   = entry * nnz(D_<k) + row * |D_<k| + vector * |D_<=k| + fixed, D_<d the rows at distance < d
edge cut           = entries a_ij whose row and column lie in different blocks
imbalance          = flops of the block with the most / mean flops of a block
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError
from akx.partition.adjacency import unsigned_pattern
from akx.partition.base import ROW_FLOPS, IndexArray, Partition
from akx.partition.ghost import GhostZones, ghost_zones

__all__ = ["BlockBytes", "Quality", "edge_cut", "quality"]


@dataclass(frozen=True)
class BlockBytes:
    """The byte model of a block with its ghost zone.

    Attributes
    ----------
    entry : float
        Bytes of a matrix entry: value and index. 12 for float64 with 32-bit indices.
    row : float
        Bytes of a computed row beside its entries: row pointers.
    vector : float
        Bytes of vectors for each row at distance <= k: 16 for two float64 vectors, the old and the new one.
    fixed : float
        Bytes of a block whatever its size.
    """

    entry: float = 12.0
    row: float = 4.0
    vector: float = 16.0
    fixed: float = 0.0

    def __post_init__(self) -> None:
        values = (self.entry, self.row, self.vector, self.fixed)
        if not all(np.isfinite(v) and v >= 0 for v in values) or sum(values) == 0:
            raise ArgumentError("byte model is malformed", expected="numbers >= 0, not all zero", found=str(values))

    def of(self, zones: GhostZones) -> NDArray[np.float64]:
        """Bytes of each block, shape (blocks,)."""
        k = zones.k
        entries = zones.entries[:, :k].sum(axis=1)
        computed, needed = zones.ptr[:, k] - zones.ptr[:, 0], zones.ptr[:, k + 1] - zones.ptr[:, 0]
        return np.asarray(self.entry * entries + self.row * computed + self.vector * needed + self.fixed)


@dataclass(frozen=True)
class Quality:
    """The cost of a partition for k steps; see the head of :mod:`akx.partition.quality`.

    Attributes
    ----------
    k, blocks : int
        Steps, and blocks (empty ones included).
    redundancy : float
        Flops done / flops needed, >= 1.
    surface_to_volume : float
        Foreign entries of x fetched by all blocks / n.
    bytes : float
        Bytes of all blocks with their ghost zones: what one pass of k steps reads.
    block_bytes_max : float
        Bytes of the largest block.
    edge_cut : int
        Entries between blocks.
    imbalance : float
        Flops of the heaviest block / mean, >= 1.
    """

    k: int
    blocks: int
    redundancy: float
    surface_to_volume: float
    bytes: float
    block_bytes_max: float
    edge_cut: int
    imbalance: float


def quality(
    indptr: IndexArray,
    indices: IndexArray,
    partition: Partition,
    k: int,
    *,
    model: BlockBytes | None = None,
    most_rows: float | None = None,
) -> Quality:
    """Measure a partition of a CSR pattern, in its original order, for k steps, at least 1.

    `model` says the bytes of a block (default: float64 with 32-bit indices); `most_rows` is as of
    :func:`akx.partition.ghost.ghost_zones`.
    """
    zones = ghost_zones(indptr, indices, partition, k, most_rows=most_rows)
    sizes = (model or BlockBytes()).of(zones)
    flops = 2.0 * zones.products + ROW_FLOPS * zones.active_counts.sum(axis=1)
    return Quality(
        k=int(k),
        blocks=partition.blocks,
        redundancy=zones.redundancy,
        surface_to_volume=float(zones.fetched.sum()) / max(partition.n, 1),
        bytes=float(sizes.sum()),
        block_bytes_max=float(sizes.max()),
        edge_cut=edge_cut(indptr, indices, partition),
        imbalance=float(flops.max() / flops.mean()) if flops.any() else 1.0,
    )


def edge_cut(indptr: IndexArray, indices: IndexArray, partition: Partition) -> int:
    """Entries whose row and column lie in different blocks."""
    pointer, columns = unsigned_pattern(indptr, indices)
    if partition.n != pointer.size - 1:
        raise ArgumentError(
            "partition is of another matrix", expected=f"{pointer.size - 1} rows", found=str(partition.n)
        )
    part = partition.part_of_row()
    return int(np.count_nonzero(np.repeat(part, np.diff(pointer.view(f"i{pointer.itemsize}"))) != part[columns]))
