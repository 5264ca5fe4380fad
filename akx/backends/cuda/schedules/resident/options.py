"""The space of `resident` on the GPU, and where a search of it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.schedules.resident.schedule import KEEP
from akx.backends.cuda.value_compression.encodings import STORED, TABLE, stored_bytes
from akx.backends.cuda.variants import diagonals
from akx.backends.cuda.variants.block_local.program import (
    EXCHANGES,
    RESULTS,
    VALUES,
    best_shape,
    fitting_variants,
    holding,
    shape_of,
)
from akx.backends.cuda.variants.options import BLOCKS, HELD_SLICES, HELD_SLOTS, LANES, VECTORS
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.options import CudaResident
from akx.core.plan import Option, Plan
from akx.formats.block_local import WARP

__all__ = ["BLOCKS_PER_SM", "DEPTHS", "KEEPS", "OPTIONS", "PLACES", "space", "starts"]

PLACES = ("shared", "global")
#: MiB of the matrix that L2 is asked to keep, and steps from one exchange to the next.
KEEPS = (0, 16, 24, 32, 40)
DEPTHS = (1, 2, 3, 4, 6, 8)
#: With two blocks on a multiprocessor one can work while the other waits.
BLOCKS_PER_SM = (1, 2, 4)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": BLOCKS,
    "held_slices": HELD_SLICES,
    "held_slots": HELD_SLOTS,
    "x": PLACES,
    "keep": KEEPS,
    "vectors": VECTORS,
    "depth": DEPTHS,
    "blocks_per_sm": BLOCKS_PER_SM,
    "stored": STORED,
    "results": RESULTS,
    "exchange": EXCHANGES,
}


def space(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    variants = fitting_variants(matrix)
    if diagonals.offered(matrix, device):
        variants += (diagonals.DIA,)
    default = schedule.untuned_for(matrix, device, k)
    orders = resident._PARTITIONERS
    depths = tuple(depth for depth in DEPTHS if depth <= k)
    return (
        Parameter("variant", variants, default.variant, "dense block and lanes per block row, or diagonals"),
        Parameter("k_per_pass", (k,), k, "powers done per launch: all"),
        Parameter("partitioner", orders, default.partitioner, "how rows are dealt to multiprocessors"),
        Parameter("block", BLOCKS, default.options["block"], "threads per multiprocessor"),
        Parameter("held_slices", HELD_SLICES, default.options["held_slices"], "slices of a warp in registers"),
        Parameter("held_slots", HELD_SLOTS, default.options["held_slots"], "slots of each of them in registers"),
        Parameter("x", PLACES, default.options["x"], "where x is: shared or global memory"),
        Parameter("keep", KEEPS, CudaResident.keep, "MiB of the matrix that L2 is asked to keep"),
        Parameter(
            "blocks_per_sm",
            BLOCKS_PER_SM,
            CudaResident.blocks_per_sm,
            "parts on a multiprocessor, to work while others wait",
        ),
        Parameter(
            "depth", depths, CudaResident.depth, "steps from one exchange to the next, ghosts computed along in between"
        ),
        Parameter("stored", resident._ways(matrix), CudaResident.stored, "what values are stored as"),
        Parameter("results", RESULTS, CudaResident.results, "how results come in the order of rows"),
        Parameter("exchange", EXCHANGES, CudaResident.exchange, "what parts wait for: values, or flags"),
        Parameter("vectors", VECTORS, CudaResident.vectors, "start vectors at a time"),
    )


def starts(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a search should begin with, beside the defaults: one idea each; each has won somewhere."""
    from akx.backends.cuda.schedules.resident.cost import too_many_slots

    def reason(plan: Plan) -> str | None:
        against = schedule.feasible(plan, matrix, device) or schedule.waste(plan, matrix, device)
        return against or too_many_slots(matrix, plan)

    default = schedule._plain(matrix, device, k)
    halved = {**default.options, "blocks_per_sm": 2, "block": max(BLOCKS[0], int(default.options["block"]) // 2)}
    plans = [default, holding(default, reason), default.replace(options=halved)]
    if diagonals.offered(matrix, device):
        plans.insert(0, schedule.untuned_for(matrix, device, k))
    if default.options["x"] == "shared":
        plans.append(holding(default.replace(options=_in_memory(default.options)), reason))
        if k > 1:
            apart = default.replace(partitioner="metis", options={**default.options, "depth": 2, "exchange": VALUES})
            plans.append(holding(apart, reason) or apart)
    ways = (way for way in resident._ways(matrix) if way != TABLE or best_shape(matrix) == (1, 1))
    way = min(ways, key=lambda way: stored_bytes(way, matrix.dtype))
    plans += _compact_starts(schedule, matrix, device, k, way, reason)
    both = ((schedule._staged(plan, matrix, device), plan) for plan in plans if plan is not None)
    return tuple(dict.fromkeys(plan for pair in both for plan in pair if plan is not None))


def _in_memory(options: Mapping[str, Option]) -> dict[str, Option]:
    """The options with x in global memory, where parts have no choice of what they wait for."""
    return {name: value for name, value in options.items() if name != "exchange"} | {"x": "global"}


def _compact_starts(
    schedule: Any, matrix: Matrix, device: CudaDevice, k: int, way: str, reason: Callable[[Plan], str | None]
) -> list[Plan]:
    """Plans with values stored that way, rows as they come and by METIS: more of the matrix stays on the chip."""
    first = schedule._plain(matrix, device, k, way)
    shared = first.replace(partitioner="metis", options={**first.options, "x": "shared"})
    if resident._again(shared, matrix, device) > 0:
        shared = shared.replace(options={**shared.options, "keep": KEEPS[1]})
    halved = {**shared.options, "blocks_per_sm": 2, "block": max(BLOCKS[0], int(first.options["block"]) // 2)}
    plans = [shared, holding(shared, reason), shared.replace(options=halved)]
    if first.partitioner == "natural":
        plans = [first, holding(first, reason), *plans]
    away = {**_in_memory(halved), "keep": KEEP}  # x makes room for more of the matrix
    plans += [first.replace(options=away), first.replace(options=_in_memory(first.options))]
    shape = shape_of(shared)
    if shape.slot > WARP and shape.lanes < LANES[-1]:  # few slices: more of them hide more of what each waits for
        wide = shared.replace(variant=f"{shape.br}x{shape.bc}-{2 * shape.lanes}")
        plans += [wide, holding(wide, reason)]
    return [plan for plan in plans if plan is not None and reason(plan) is None]
