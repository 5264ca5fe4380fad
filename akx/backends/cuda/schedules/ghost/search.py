"""The space of `ghost` on the GPU, where a search of it begins, and heuristic plans: what a call may take unseen."""

from __future__ import annotations

from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.ghost import layout as ghost_layout
from akx.backends.cuda.schedules.ghost.options import BLOCKS_PER_SM, THREADS
from akx.backends.cuda.variants.block_local.clusters import WITH_CLUSTERS, clusters_at_once, likely_cut
from akx.backends.cuda.variants.block_local.cost import natural_cut
from akx.backends.cuda.variants.block_local.layout import holding, shared_limit
from akx.backends.cuda.variants.block_local.shapes import fitting_block, fitting_variants, shape_of, slices_per_part
from akx.backends.cuda.variants.options import CLUSTERS, HELD_SLICES, HELD_SLOTS, VECTORS, WAVES
from akx.backends.schedule import Parameter
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaGhost
from akx.core.plan import Option, Plan

__all__ = ["heuristic_plans", "space", "starts"]

#: Rows of a block with ghosts over own ones, where ghost zones pay.
_FEW_GHOSTS = 1.25


#: Rows of a block with ghosts over own ones, at most, in plans that calls take unseen.
_OFFERED_CLOSURE = 1.5


def space(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    variants = fitting_variants(matrix)
    sizes = CLUSTERS if device.compute_capability >= WITH_CLUSTERS else (1,)
    passes = tuple(dict.fromkeys(max(1, -(-k // p)) for p in (1, 2, 3, 4) if p <= k))
    likely = likely_cut(matrix, device, sizes, passes)
    return (
        Parameter("variant", variants, variants[0], "dense block and lanes per block row"),
        Parameter("partitioner", likely.partitioners, likely.partitioners[0], "how rows are cut into blocks"),
        Parameter("k_per_pass", passes, likely.depth, "powers done per launch"),
        Parameter("blocks_per_sm", BLOCKS_PER_SM, CudaGhost.blocks_per_sm, "blocks on a multiprocessor at a time"),
        Parameter("cluster", sizes, likely.cluster, "blocks that exchange through distributed shared memory"),
        Parameter("waves", WAVES, likely.waves, "times the blocks on the device at a time, one after another"),
        Parameter("block", THREADS, _block(matrix, device, variants[0], 1, 512), "threads per block"),
        Parameter("held_slices", HELD_SLICES, likely.held_slices, "slices of a warp in registers"),
        Parameter("held_slots", HELD_SLOTS, likely.held_slots, "slots of each of them in registers"),
        Parameter("vectors", VECTORS, CudaGhost.vectors, "start vectors at a time"),
    )


def starts(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a search should begin with, beside the defaults: all powers in one launch, one or two blocks."""
    variant = fitting_variants(matrix)[0]
    plans = []
    for blocks in (1, 2):
        options: dict[str, Option] = {
            "block": _block(matrix, device, variant, blocks, 1024),
            "blocks_per_sm": blocks,
            "cluster": 1,
            "waves": 1,
        }
        whole = Plan(schedule.backend, schedule.name, variant, k=k, k_per_pass=k, options=options)
        plans.append(holding(whole, lambda plan: schedule.against(plan, matrix, device)))
    return tuple(plan for plan in plans if plan is not None)


def _block(matrix: Matrix, device: CudaDevice, variant: str, blocks: int, most: int) -> int:
    """Threads for so many blocks per multiprocessor: a warp for each slice, a few ghosts included."""
    shape = shape_of(Plan("cuda", "ghost", variant, k=1, k_per_pass=1))
    slices = slices_per_part(matrix, shape, device.sms * blocks, _FEW_GHOSTS)
    return min(most // blocks, fitting_block(slices, THREADS))


def heuristic_plans(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen: all powers in one launch, where rows as they come have few ghosts."""
    if k < 2:
        return ()
    variant = fitting_variants(matrix)[0]
    bc = shape_of(Plan(schedule.backend, schedule.name, variant, k=k, k_per_pass=k)).bc
    cut = natural_cut(matrix, bc, device.sms, ghost_layout.ROW_WORK)
    # At most so many nodes in reach, for each step as many again.
    if float((cut.own + k * (cut.span - cut.own)).sum()) > _OFFERED_CLOSURE * float(cut.own.sum()):
        return ()
    return tuple(plan for plan in schedule.starts(matrix, device, k) if _is_sure(plan, matrix, device))


def _is_sure(plan: Plan, matrix: Matrix, device: CudaDevice) -> bool:
    """Whether the blocks of a plan, with their ghosts, fit the shared memory."""
    shape, count = shape_of(plan), clusters_at_once(plan, device)
    try:
        nodes, _, _ = ghost_layout.block_nodes(matrix, plan.partitioner, shape, count, plan.k_per_pass, 1)
    except InfeasibleError:
        return False
    x = 2.0 * float(nodes.room.max(initial=0)) * shape.bc * matrix.dtype.itemsize
    slices = 16.0 * slices_per_part(matrix, shape, count, 2.0 * _OFFERED_CLOSURE)
    return x + slices + plan.k * (3 * matrix.dtype.itemsize + 4) + 256 <= shared_limit(plan, device)
