"""Which ghost zones a call may take unseen, and what they make a GPU do (:mod:`akx.kernels.cuda.work`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from akx.device.cuda.facts import CudaDevice
from akx.errors import InfeasibleError
from akx.kernels.cuda import ghost
from akx.kernels.cuda.clusters import clusters_at_once
from akx.kernels.cuda.parts import (
    filled_rows,
    fitting_variants,
    results_apart,
    shape_of,
    shared_limit,
    slices_per_part,
)
from akx.kernels.cuda.parts_work import Cut, natural_cut, parts_work
from akx.kernels.cuda.work import Work, gathered_share
from akx.matrix import Matrix
from akx.plan import Plan

__all__ = ["offers", "work"]

#: Rows of a block with ghosts over own ones, at most, in plans that calls take unseen.
_OFFERED_CLOSURE = 1.5
#: What blocks of METIS take beyond that, for each sector that an entry needs of its own (`gathered_share`): rows of a
#: closure lie as far apart as columns do. On six matrices the model had said 0.37 to 0.83 of what they took.
_APART = 1.5


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors."""
    shape, together = shape_of(plan), int(plan.option("vectors", 1))
    waves, count = int(plan.option("waves", 1)), clusters_at_once(plan, device)
    per_sm, cluster = int(plan.option("blocks_per_sm", 1)), int(plan.option("cluster", 1))
    redundancy = ghost._redundancy(matrix, plan.partitioner, shape, waves * count, plan.k_per_pass)
    closure = 1.0 + 2.0 * (redundancy - 1.0)  # zones grow from step to step
    own = np.array([filled_rows(matrix, shape.bc) / shape.bc / (waves * count * cluster)])
    cut = Cut(own, np.zeros(1), np.full(1, float(cluster)), np.full(1, np.inf), None, closure, redundancy)
    passes = -(-plan.k // plan.k_per_pass)
    found = parts_work(
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
    )
    if plan.partitioner != "metis":
        return found
    apart = 1.0 + _APART * gathered_share(matrix)
    times = ("loaded_bytes", "memory_bytes", "cache_bytes", "cycles", "chain")
    return replace(found, **{name: apart * getattr(found, name) for name in times})


def offers(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen: all powers in one launch, where rows as they come have few ghosts."""
    if k < 2:
        return ()
    variant = fitting_variants(matrix)[0]
    bc = shape_of(Plan(schedule.backend, schedule.name, variant, k=k, k_per_pass=k)).bc
    cut = natural_cut(matrix, bc, device.sms, ghost._ROW_WORK)
    # At most so many nodes in reach, for each step as many again.
    if float((cut.own + k * (cut.span - cut.own)).sum()) > _OFFERED_CLOSURE * float(cut.own.sum()):
        return ()
    return tuple(plan for plan in schedule.starts(matrix, device, k) if _is_sure(plan, matrix, device))


def _is_sure(plan: Plan, matrix: Matrix, device: CudaDevice) -> bool:
    """Whether the blocks of a plan, with their ghosts, fit the shared memory."""
    shape, count = shape_of(plan), clusters_at_once(plan, device)
    try:
        nodes, _, _ = ghost._nodes(matrix, plan.partitioner, shape, count, plan.k_per_pass, 1)
    except InfeasibleError:
        return False
    x = 2.0 * float(nodes.room.max(initial=0)) * shape.bc * matrix.dtype.itemsize
    slices = 16.0 * slices_per_part(matrix, shape, count, 2.0 * _OFFERED_CLOSURE)
    return x + slices + plan.k * (3 * matrix.dtype.itemsize + 4) + 256 <= shared_limit(plan, device)
