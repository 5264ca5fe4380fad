"""The space of `ghost` on the GPU, and where a search of it begins."""

from __future__ import annotations

from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.variants.block_local.clusters import WITH_CLUSTERS, likely_cut
from akx.backends.cuda.variants.block_local.program import (
    fitting_block,
    fitting_variants,
    holding,
    shape_of,
    slices_per_part,
)
from akx.backends.cuda.variants.options import BLOCKS, CLUSTERS, HELD_SLICES, HELD_SLOTS, VECTORS, WAVES
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.options import CudaGhost
from akx.core.plan import Option, Plan

__all__ = ["BLOCKS_PER_SM", "OPTIONS", "THREADS", "space", "starts"]

BLOCKS_PER_SM = (1, 2, 3, 4, 6, 8)
THREADS = (128, *BLOCKS)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": THREADS,
    "held_slices": HELD_SLICES,
    "held_slots": HELD_SLOTS,
    "blocks_per_sm": BLOCKS_PER_SM,
    "cluster": CLUSTERS,
    "waves": WAVES,
    "vectors": VECTORS,
}
#: Rows of a block with ghosts over own ones, where ghost zones pay.
_FEW_GHOSTS = 1.25


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

    def reason(plan: Plan) -> str | None:
        against: str | None = schedule.feasible(plan, matrix, device) or schedule.waste(plan, matrix, device)
        return against

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
        plans.append(holding(whole, reason))
    return tuple(plan for plan in plans if plan is not None)


def _block(matrix: Matrix, device: CudaDevice, variant: str, blocks: int, most: int) -> int:
    """Threads for so many blocks per multiprocessor: a warp for each slice, a few ghosts included."""
    shape = shape_of(Plan("cuda", "ghost", variant, k=1, k_per_pass=1))
    slices = slices_per_part(matrix, shape, device.sms * blocks, _FEW_GHOSTS)
    return min(most // blocks, fitting_block(slices, THREADS))
