"""`ghost` on the GPU: each block takes its ghost zone along and does k_per_pass steps with no word to the others.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. One launch per pass, no barrier between blocks. A block fetches x on its
closure (nodes at distance <= k_per_pass), keeps it in shared memory, and in step j computes the nodes at distance <=
k_per_pass - j: a prefix of its list, nearest first. Matrix slots are in registers and shared memory as in `resident`.

With `cluster` > 1 the ghost zone is that of a cluster of blocks, which write what others of it need into their shared
memory after each step (:mod:`akx.partition.clusters`): fewer ghosts, but a barrier of the cluster in each step. With
`waves` > 1 there are so many times the blocks that are on the device at once, one after another, so that a matrix that
does not fit the chip is read from memory once per pass all the same.

Flops: 2 nnz k redundancy. Traffic: matrix and x once per pass with their ghosts, k results; what of the matrix fits
neither registers nor shared memory is read again in each step. Blocks per multiprocessor from 1 to 8 as the thesis
tunes it; where a block does not fit, there are more and smaller ones. Source: Demmel, Hoemmen, Mohiyuddin and Yelick
(IPDPS 2008), algorithm PA1; Mehri Dehnavi 2012, ch. 6.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.value_compression.program import there_or_by_host
from akx.backends.cuda.variants.block_local.clusters import (
    WITH_CLUSTERS,
    active_windows,
    cluster_nodes,
    clusters_at_once,
    likely_closure_and_work,
    on_device,
)
from akx.backends.cuda.variants.block_local.cost import natural_cut
from akx.backends.cuda.variants.block_local.layout_on_device import filled_there
from akx.backends.cuda.variants.block_local.program import (
    ALONE,
    CLUSTER,
    LaidOut,
    PartsProgram,
    active_slices,
    choice_reason,
    filled_rows,
    held_registers,
    lay_out_parts,
    nodes_of,
    shape_of,
    shared_limit,
    values_in,
    waste,
    zone_nodes,
)
from akx.backends.schedule import Parameter, Program, Schedule, Traffic, Work, check_feasible
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaGhost
from akx.core.plan import Plan
from akx.formats.base import Pattern
from akx.formats.block_local import Nodes, Shape
from akx.partition.base import Partition, order_by_part
from akx.partition.clusters import Clusters, clusters
from akx.partition.cuts import even_cuts
from akx.partition.ghost import GhostZones, ghost_zones

__all__ = ["SCHEDULE", "Ghost", "lay_out_ghost"]

_PARTITIONERS = ("natural", "metis")
#: Closures may hold at most this many times the nodes of the matrix.
_MOST_ROWS = 4.0
#: What a row costs beside its entries, in entries.
_ROW_WORK = 1.0
#: Rows of a block with ghosts over own ones, where ghost zones pay.
_FEW_GHOSTS = 1.25
#: Times that the number of blocks is raised where a block does not fit.
_REPARTITIONS = 3


class Ghost(Schedule):
    """See the module."""

    name = "ghost"
    backend = "cuda"
    options = CudaGhost
    revision = 1
    description = "blocks with ghost zones do k steps each on their own, in shared memory"
    layout_shares, layout_turn = 2, 3

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cuda.schedules.ghost import options as ghost_space

        return ghost_space.space(self, matrix, device, k)

    def starts(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        from akx.backends.cuda.schedules.ghost import options as ghost_space

        return ghost_space.starts(self, matrix, device, k)

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        from akx.backends.cuda.schedules.ghost.options import OPTIONS

        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        blocks = plan.typed.blocks_per_sm
        reason = choice_reason(plan, matrix, device, OPTIONS, int(blocks))
        if reason is not None:
            return reason
        if plan.typed.cluster != 1 and device.compute_capability < WITH_CLUSTERS:
            return "clusters need compute capability {}.{}, this has {}.{}".format(
                *WITH_CLUSTERS, *device.compute_capability
            )
        vectors = plan.typed.vectors
        x = 2.0 * filled_rows(matrix, shape_of(plan).bc) * matrix.dtype.itemsize * vectors / device.sms
        if x > 8 * device.shared_per_sm:
            return f"x takes {x:.0f} bytes per multiprocessor: too many blocks, one after another"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        from akx.backends.cuda.schedules.ghost.options import THREADS

        parts = device.sms * plan.typed.blocks_per_sm * plan.typed.waves
        return waste(plan, matrix, parts, THREADS, _MOST_ROWS)

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        shape, size = shape_of(plan), matrix.dtype.itemsize
        once = values_in(matrix, shape) * (size + 2.0 / (shape.br * shape.bc))
        passes = -(-plan.k // plan.k_per_pass)
        waves, count = plan.typed.waves, clusters_at_once(plan, device)
        redundancy = _redundancy(matrix, plan.partitioner, shape, waves * count, plan.k_per_pass)
        vector = float(matrix.n * size)
        chip = device.sms * (device.shared_per_block + 128.0 * shape.warps * held_registers(shape, matrix.dtype))
        x = 2 * filled_rows(matrix, shape.bc) * size * redundancy * plan.typed.vectors
        rest = max(0.0, once * redundancy - max(0.0, waves * chip - x))
        again = rest * (plan.k - passes)
        return Traffic(
            matrix_bytes=once * redundancy * passes
            + max(0.0, again * (1.0 - device.l2_bytes * waves / max(rest, 1.0))),
            vector_bytes=vector * (plan.k + 1.0 + 2 * (passes - 1)),
            flops=2.0 * matrix.nnz * plan.k * redundancy,
            redundancy=redundancy,
            cache_bytes=once * redundancy * passes + again + vector * (plan.k + 1.0),
            synchronisations=float(passes),
        )

    def work(self, plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
        from akx.backends.cuda.schedules.ghost import cost as ghost_offers

        return ghost_offers.work(plan, matrix, device, vectors)

    def offers(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        """Plans that a call may take unseen: all powers in one launch, where rows as they come have few ghosts."""
        from akx.backends.cuda.schedules.ghost import cost as ghost_offers

        return ghost_offers.offers(self, matrix, device, k)

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        lay_out_ghost(matrix, plan, device)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        at_once = on_device(matrix, plan, device)

        def made(*, by_host: bool = False) -> PartsProgram:
            laid_out, active, steps = lay_out_ghost(matrix, plan, device, at_once, there=not by_host)
            return PartsProgram(matrix, laid_out, plan, steps, active, plan.typed.blocks_per_sm)

        return there_or_by_host(made)


def lay_out_ghost(
    matrix: Matrix, plan: Plan, device: CudaDevice, at_once: int | None = None, *, there: bool = False
) -> tuple[LaidOut, dict[int, NDArray[np.uint32]], tuple[int, ...]]:
    """The matrix in blocks with ghost zones, the active slices by steps of a pass, and the steps of each pass.

    Parameters
    ----------
    at_once : int, optional
        Clusters that are on the device at once; by default those for which there are multiprocessors.
    there : bool
        What is in slots is found on the device, and stays there.

    Raises
    ------
    InfeasibleError
        Where a block does not fit, however small.
    """
    shape, depth = shape_of(plan), plan.k_per_pass
    vectors, size = plan.typed.vectors, plan.typed.cluster
    limit, mode = shared_limit(plan, device), ALONE if size == 1 else CLUSTER
    count = plan.typed.waves * (clusters_at_once(plan, device) if at_once is None else at_once)
    steps = (depth,) * (plan.k // depth) + ((plan.k % depth,) if plan.k % depth else ())
    count = _most_blocks(matrix, plan.partitioner, shape, count, depth)
    fill = filled_there(matrix, in_words=False) if there else None
    for attempt in range(_REPARTITIONS + 1):
        nodes, zones, dealt = _nodes(matrix, plan.partitioner, shape, count, depth, size)
        try:
            laid_out = lay_out_parts(matrix, nodes, shape, mode, plan.k, vectors, limit, fill=fill)
        except InfeasibleError:
            if attempt == _REPARTITIONS:
                raise
        else:
            if dealt is None:
                return laid_out, {one: active_slices(zones, shape, one) for one in set(steps)}, steps
            return laid_out, {one: active_windows(dealt, shape, one) for one in set(steps)}, steps
        count *= 2
    raise InfeasibleError("a block does not fit the shared memory")  # pragma: no cover - raised above


def _nodes(
    matrix: Matrix, partitioner: str, shape: Shape, count: int, depth: int, size: int
) -> tuple[Nodes, GhostZones, Clusters | None]:
    """The nodes of the blocks, and the zones of the clusters, dealt to their blocks; memoised with the pattern."""
    zones = _zones(matrix, partitioner, shape, count, depth)
    node = nodes_of(matrix, shape.bc)
    if size == 1:
        return zone_nodes(zones, node), zones, None
    assert node is not None
    key = ("akx.backends.cuda.variants.block_local.clusters", partitioner, shape.bc, count, depth, size)
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = clusters(node.indptr, node.indices, zones, size, metis=partitioner == "metis")
    dealt: Clusters = matrix.pattern_cache[key]
    return cluster_nodes(dealt), zones, dealt


def _most_blocks(matrix: Matrix, partitioner: str, shape: Shape, blocks: int, depth: int) -> int:
    """`blocks`, halved until the ghost zones are not many times the blocks: small matrices leave some SMs idle."""
    while blocks > 1:
        try:
            _zones(matrix, partitioner, shape, blocks, depth)
        except InfeasibleError:
            blocks //= 2
        else:
            break
    return blocks


def _zones(matrix: Matrix, partitioner: str, shape: Shape, blocks: int, depth: int) -> GhostZones:
    """Ghost zones of the nodes; memoised with the pattern. Raises InfeasibleError where they are too large."""
    key = _zones_key(partitioner, shape, blocks, depth)
    if key not in matrix.pattern_cache:
        node = nodes_of(matrix, shape.bc)
        assert node is not None
        indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
        partition = _partition(matrix, node, partitioner, shape.bc, blocks)
        try:
            matrix.pattern_cache[key] = ghost_zones(indptr, indices, partition, depth, most_rows=_MOST_ROWS)
        except InfeasibleError as refusal:
            matrix.pattern_cache[key] = copy(refusal)  # without its traceback, which would hold all that is above
    zones: GhostZones | InfeasibleError = matrix.pattern_cache[key]
    if isinstance(zones, InfeasibleError):
        raise copy(zones)
    return zones


def _zones_key(partitioner: str, shape: Shape, blocks: int, depth: int) -> tuple[str | int, ...]:
    return ("akx.backends.cuda.schedules.ghost.schedule", partitioner, shape.bc, blocks, depth)


def _redundancy(matrix: Matrix, partitioner: str, shape: Shape, count: int, depth: int) -> float:
    """Flops done over flops needed: of the zones, or, where they take long to make, of balls instead of blocks."""
    made = _zones_key(partitioner, shape, count, depth) in matrix.pattern_cache
    if partitioner == "metis" and not made:
        return float(min(likely_closure_and_work(matrix, count, depth)[1], 2.0 * _MOST_ROWS))
    key = ("akx.backends.cuda.redundancy", partitioner, shape.bc, count, depth)
    if key not in matrix.pattern_cache:
        try:
            if not made and _are_too_large(matrix, shape.bc, count):
                raise InfeasibleError("the ghost zones are too large")
            matrix.pattern_cache[key] = _zones(matrix, partitioner, shape, count, depth).redundancy
        except InfeasibleError:
            matrix.pattern_cache[key] = 2.0 * _MOST_ROWS
    return float(matrix.pattern_cache[key])


def _are_too_large(matrix: Matrix, bc: int, count: int) -> bool:
    """Whether zones of one step are too large already, with rows as they come; one pass over the columns."""
    cut = natural_cut(matrix, bc, count, _ROW_WORK)
    return bool((cut.own + cut.halo).sum() > _MOST_ROWS * cut.own.sum())


def _partition(matrix: Matrix, node: Pattern, partitioner: str, bc: int, blocks: int) -> Partition:
    """The nodes in blocks; memoised with the pattern where it takes long."""
    if partitioner != "metis" or blocks == 1:
        return Partition(None, even_cuts(node.indptr.astype(np.float64) + _ROW_WORK * np.arange(node.rows + 1), blocks))
    key = ("akx.backends.cuda.schedules.ghost.schedule.partition", bc, blocks)
    if key not in matrix.pattern_cache:
        from akx.partition.metis import metis_partition

        indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
        matrix.pattern_cache[key] = order_by_part(metis_partition(indptr, indices, min(blocks, node.rows)))
    partition: Partition = matrix.pattern_cache[key]
    return partition


SCHEDULE = Ghost()
