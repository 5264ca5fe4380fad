"""Cost model of `ghost` on the GPU: bytes, cycles and waits of a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.ghost import layout
from akx.backends.cuda.variants.block_local.clusters import clusters_at_once, likely_closure_and_work
from akx.backends.cuda.variants.block_local.cost import Cut, block_local_work, fixed_bytes
from akx.backends.cuda.variants.block_local.layout import shared_limit
from akx.backends.cuda.variants.block_local.shapes import filled_rows, results_apart, shape_of
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients
from akx.cost.counts import Work
from akx.formats.block_local import Shape
from akx.partition.ghost import GhostZones

__all__ = ["work"]

_COST = coefficients("cuda", "ghost")


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors.

    The constants are fitted on 378 timed plans of 16 matrices on an H100: prices are 28 % off in the mean, and
    those of tuned plans a tenth.
    """
    shape, together = shape_of(plan), plan.typed.vectors
    per_sm, cluster = plan.typed.blocks_per_sm, plan.typed.cluster
    at_once, passes = clusters_at_once(plan, device), -(-plan.k // plan.k_per_pass)
    cut, count = _likely_cut(plan, matrix, device)
    waves, used = -(-count // at_once), min(count, at_once) * cluster
    found = block_local_work(
        matrix,
        device,
        plan.k,
        vectors,
        shape,
        cut,
        per_sm=per_sm,
        shared=True,
        together=together,
        depth=0,
        keep=float(device.l2_bytes),
        passes=passes,
        waves=waves,
        scattered=results_apart(plan, matrix),
        partial=_COST.partial_result_bytes,
    )
    groups = -(-vectors // together)
    begin = passes * _COST.pass_begin_cycles + (plan.k * _COST.cluster_meeting_cycles if cluster > 1 else 0.0)
    return replace(
        found, cycles=found.cycles / per_sm * -(-used // device.sms), chain=found.chain + groups * waves * begin
    )


def _likely_cut(plan: Plan, matrix: Matrix, device: CudaDevice) -> tuple[Cut, int]:
    """The blocks that :func:`akx.backends.cuda.schedules.ghost.layout.lay_out_ghost` will likely end with, and the
    number of clusters.

    Fewer where their zones would be too large, more where one does not fit.

    Raises
    ------
    InfeasibleError
        Where it would likely refuse the plan.
    """
    shape, at_once = shape_of(plan), clusters_at_once(plan, device)
    rows, limit = max(1, filled_rows(matrix, shape.bc) // shape.bc), shared_limit(plan, device)
    count = plan.typed.waves * at_once
    zones = _likely_zones(plan, matrix, shape, count)
    are_fewer = zones[0] > layout.MOST_ROWS
    while zones[0] > layout.MOST_ROWS:
        count //= 2
        if _shared(plan, matrix, _cut_of(plan, rows, min(count, rows))) > limit:  # smaller blocks have been refused
            raise InfeasibleError("larger blocks would not fit, whatever their ghosts")
        zones = _likely_zones(plan, matrix, shape, count, zones)
    for attempt in range(layout.REPARTITIONS + 1):
        if attempt:
            count *= 2
            zones = _likely_zones(plan, matrix, shape, count)
            if zones[0] > layout.MOST_ROWS:
                raise InfeasibleError("smaller blocks would be nothing but ghosts")
        clusters = min(count, rows)
        cut = _cut_of(plan, rows, clusters, *zones)
        if _shared(plan, matrix, cut) <= limit:
            return cut, clusters
        if are_fewer:
            raise InfeasibleError("smaller blocks have been refused")
    raise InfeasibleError("a block does not fit the shared memory")


def _cut_of(plan: Plan, rows: int, clusters: int, closure: float = 1.0, redundancy: float = 1.0) -> Cut:
    """So many nodes in clusters of equal shares, with these figures of their zones; without ghosts by default."""
    cluster = plan.typed.cluster
    own, neighbours = np.array([rows / (clusters * cluster)]), np.full(1, float(cluster))
    return Cut(own, np.zeros(1), neighbours, np.full(1, np.inf), None, closure, redundancy)


def _shared(plan: Plan, matrix: Matrix, cut: Cut) -> float:
    """Bytes of shared memory of the largest block before any slot."""
    vectors = plan.typed.vectors
    return float(fixed_bytes(cut, shape_of(plan), plan.k, vectors, matrix.dtype.itemsize, shared=True).max())


def _likely_zones(
    plan: Plan, matrix: Matrix, shape: Shape, count: int, more: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Rows of so many zones over own ones, infinite where they are known to be too large; products over those needed.

    Of rows as they come the zones are made, but where they are surely too large; those of METIS are guessed from the
    growth of balls, unless they are there. `more` are the figures of twice as many.
    """
    if count <= 1:
        return 1.0, 1.0
    depth, metis = plan.k_per_pass, plan.partitioner == "metis"
    made = layout.zones_of.known(matrix, plan.partitioner, shape.bc, count, depth)
    if made is None and not metis and not layout.are_too_large(matrix, shape.bc, count):
        try:
            made = layout.zones_of(matrix, plan.partitioner, shape.bc, count, depth)
        except InfeasibleError as refusal:
            made = refusal
    if isinstance(made, GhostZones):
        own = float((made.ptr[:, 1] - made.ptr[:, 0]).sum())
        return float((made.ptr[:, -1] - made.ptr[:, 0]).sum()) / max(own, 1.0), made.redundancy
    if made is not None or not metis:
        return np.inf, np.inf
    closure = likely_closure_and_work(matrix, count, depth + 1)[0]
    redundancy = likely_closure_and_work(matrix, count, depth)[1]
    if closure == 1.0 and more is not None:  # balls are not grown to that size
        closure, redundancy = more
    closure = min(closure, float(count))  # a zone is all there is
    return closure, min(redundancy, 0.5 * (1.0 + closure))  # zones grow faster from step to step
