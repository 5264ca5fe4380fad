"""Cost model of `resident` on the GPU: bytes, cycles and waits of a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.resident import layout
from akx.backends.cuda.value_compression.encodings import way_of
from akx.backends.cuda.variants import diagonals, diagonals_cost
from akx.backends.cuda.variants.block_local.cost import Cut, block_local_work, likely_cut_of, natural_cut
from akx.backends.cuda.variants.block_local.shapes import is_staged, results_apart, shape_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.counts import Work
from akx.formats.block_local import Shape

__all__ = ["cut_of_parts", "work"]


def cut_of_parts(matrix: Matrix, device: CudaDevice, shape: Shape, partitioner: str, per_sm: int, depth: int) -> Cut:
    """What parts have and read, by the order of rows and the steps from one exchange to the next."""
    count = device.sms * per_sm
    if partitioner == "natural":
        found = natural_cut(matrix, shape.bc, count, layout.ROW_WORK)
        around = float((found.halo / np.maximum(found.own, 1.0)).mean()) * (depth - 1)
        return replace(found, closure=1.0 + around, redundancy=1.0 + around / 2.0) if depth > 1 else found
    return likely_cut_of(matrix, shape.bc, count, depth)


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors."""
    if plan.variant == diagonals.DIA:
        return diagonals_cost.work(plan, matrix, device, vectors)
    plan = layout.storable(plan, matrix, device)
    shape, per_sm, depth = shape_of(plan), plan.typed.blocks_per_sm, plan.typed.depth
    return block_local_work(
        matrix,
        device,
        plan.k,
        vectors,
        shape,
        cut_of_parts(matrix, device, shape, plan.partitioner, per_sm, depth),
        per_sm=per_sm,
        shared=plan.typed.x == "shared",
        together=plan.typed.vectors,
        depth=depth,
        keep=float(int(plan.typed.keep)) * 2**20,
        way=way_of(plan),
        scattered=results_apart(plan, matrix),
        staged=is_staged(plan),
    )
