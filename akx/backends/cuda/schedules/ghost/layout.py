"""Blocks with their ghost zones: their nodes, and the matrix laid out for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.variants.block_local.clusters import (
    active_windows,
    cluster_nodes,
    clusters_at_once,
    likely_closure_and_work,
)
from akx.backends.cuda.variants.block_local.cost import natural_cut
from akx.backends.cuda.variants.block_local.layout import (
    ALONE,
    CLUSTER,
    LaidOut,
    active_slices,
    lay_out_parts,
    shared_limit,
    zone_nodes,
)
from akx.backends.cuda.variants.block_local.layout_on_device import filled_there
from akx.backends.cuda.variants.block_local.shapes import nodes_of, shape_of
from akx.backends.pattern_cache import per_pattern
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.block_local import Nodes, Shape
from akx.partition.base import Partition, order_by_part
from akx.partition.clusters import Clusters, clusters
from akx.partition.cuts import even_cuts
from akx.partition.ghost import GhostZones, ghost_zones

__all__ = [
    "MOST_ROWS",
    "REPARTITIONS",
    "ROW_WORK",
    "are_too_large",
    "block_nodes",
    "lay_out_ghost",
    "redundancy_of",
    "zones_of",
]

#: Closures may hold at most this many times the nodes of the matrix.
MOST_ROWS = 4.0
#: What a row costs beside its entries, in entries.
ROW_WORK = 1.0
#: Times that the number of blocks is raised where a block does not fit.
REPARTITIONS = 3


def lay_out_ghost(
    matrix: Matrix, plan: Plan, device: CudaDevice, at_once: int | None = None, *, there: bool = False
) -> tuple[LaidOut, dict[int, NDArray[np.uint32]], tuple[int, ...]]:
    """The matrix in blocks with ghost zones, the active slices by steps of a pass, and the steps of each pass.

    `at_once`: clusters that are on the device at once; by default those for which there are multiprocessors. `there`:
    what is in slots is found on the device, and stays there. Raises :class:`InfeasibleError` where a block does not
    fit, however small.
    """
    shape, depth = shape_of(plan), plan.k_per_pass
    vectors, size = plan.typed.vectors, plan.typed.cluster
    limit, mode = shared_limit(plan, device), ALONE if size == 1 else CLUSTER
    count = plan.typed.waves * (clusters_at_once(plan, device) if at_once is None else at_once)
    steps = (depth,) * (plan.k // depth) + ((plan.k % depth,) if plan.k % depth else ())
    count = _most_blocks(matrix, plan.partitioner, shape, count, depth)
    fill = filled_there(matrix, in_words=False) if there else None
    for attempt in range(REPARTITIONS + 1):
        nodes, zones, dealt = block_nodes(matrix, plan.partitioner, shape, count, depth, size)
        try:
            laid_out = lay_out_parts(matrix, nodes, shape, mode, plan.k, vectors, limit, fill=fill)
        except InfeasibleError:
            if attempt == REPARTITIONS:
                raise
        else:
            if dealt is None:
                return laid_out, {one: active_slices(zones, shape, one) for one in set(steps)}, steps
            return laid_out, {one: active_windows(dealt, shape, one) for one in set(steps)}, steps
        count *= 2
    raise InfeasibleError("a block does not fit the shared memory")  # pragma: no cover - raised above


def block_nodes(
    matrix: Matrix, partitioner: str, shape: Shape, count: int, depth: int, size: int
) -> tuple[Nodes, GhostZones, Clusters | None]:
    """The nodes of the blocks, and the zones of the clusters, dealt to their blocks."""
    zones = zones_of(matrix, partitioner, shape.bc, count, depth)
    if size == 1:
        return zone_nodes(zones, nodes_of(matrix, shape.bc)), zones, None
    dealt = _clusters(matrix, partitioner, shape.bc, count, depth, size)
    return cluster_nodes(dealt), zones, dealt


@per_pattern
def _clusters(matrix: Matrix, partitioner: str, bc: int, count: int, depth: int, size: int) -> Clusters:
    node, zones = nodes_of(matrix, bc), zones_of(matrix, partitioner, bc, count, depth)
    assert node is not None
    return clusters(node.indptr, node.indices, zones, size, metis=partitioner == "metis")


def _most_blocks(matrix: Matrix, partitioner: str, shape: Shape, blocks: int, depth: int) -> int:
    """`blocks`, halved until the ghost zones are not many times the blocks: small matrices leave some SMs idle."""
    while blocks > 1:
        try:
            zones_of(matrix, partitioner, shape.bc, blocks, depth)
        except InfeasibleError:
            blocks //= 2
        else:
            break
    return blocks


@per_pattern
def zones_of(matrix: Matrix, partitioner: str, bc: int, blocks: int, depth: int) -> GhostZones:
    """Ghost zones of the nodes of bc rows. Raises :class:`InfeasibleError` where they are too large."""
    node = nodes_of(matrix, bc)
    assert node is not None
    indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
    return ghost_zones(indptr, indices, _partition(matrix, partitioner, bc, blocks), depth, most_rows=MOST_ROWS)


def redundancy_of(matrix: Matrix, partitioner: str, bc: int, count: int, depth: int) -> float:
    """Flops done over flops needed: of the zones, or, where they take long to make, of balls instead of blocks."""
    made = zones_of.known(matrix, partitioner, bc, count, depth) is not None
    if partitioner == "metis" and not made:
        return float(min(likely_closure_and_work(matrix, count, depth)[1], 2.0 * MOST_ROWS))
    if not made and are_too_large(matrix, bc, count):
        return 2.0 * MOST_ROWS
    try:
        return zones_of(matrix, partitioner, bc, count, depth).redundancy
    except InfeasibleError:
        return 2.0 * MOST_ROWS


def are_too_large(matrix: Matrix, bc: int, count: int) -> bool:
    """Whether zones of one step are too large already, with rows as they come; one pass over the columns."""
    cut = natural_cut(matrix, bc, count, ROW_WORK)
    return bool((cut.own + cut.halo).sum() > MOST_ROWS * cut.own.sum())


@per_pattern
def _partition(matrix: Matrix, partitioner: str, bc: int, blocks: int) -> Partition:
    """The nodes in blocks."""
    node = nodes_of(matrix, bc)
    assert node is not None
    if partitioner != "metis" or blocks == 1:
        return Partition(None, even_cuts(node.indptr.astype(np.float64) + ROW_WORK * np.arange(node.rows + 1), blocks))
    from akx.partition.metis import metis_partition

    indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
    return order_by_part(metis_partition(indptr, indices, min(blocks, node.rows)))
