"""The space of `wavefront` on the GPU, where a search of it begins, and heuristic plans: those of grids."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.matrix import features
from akx.backends.cuda.schedules.wavefront import strips as fronts
from akx.backends.cuda.schedules.wavefront.cost import asks
from akx.backends.cuda.schedules.wavefront.options import BLOCKS, DIA, HELD_SLOTS, HELPERS, SLACKS, SLICES, VARIANTS
from akx.backends.cuda.schedules.wavefront.runs import runs_of
from akx.backends.cuda.value_compression.encodings import FULL, stored_bytes, ways_of
from akx.backends.cuda.variants.block_local.shapes import padding
from akx.backends.cuda.variants.options import LANES
from akx.backends.schedule import Parameter
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.block_local import WARP
from akx.partition.level_order import ORDERS

__all__ = ["heuristic_plans", "plan_of", "space", "starts", "untuned_for"]

#: Slack and helpers of the plans to begin with.
_STARTS = ((2, 128), (1, 128), (2, 256), (0, 128))
#: Numbers of slots in registers that are looked at, from the most that fit; and widths of strips for which some do.
_FEWER, _WIDTHS = 5, 2
#: Passes for k powers; helpers, those of most plans that were found by tuning.
_PASSES, _HELPERS = (1, 2, 4), 128
#: The compute capability of GPUs on which the kernel has been seen to run.
_SEEN = (9, 0)
#: Values of others that a thread may ask for in a step. A 7-point grid has 3 to 5; each takes registers and time.
_MOST_ASKS = 6


def space(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    variants = tuple(f"sell16-{n}" for n in LANES if padding(matrix, n, 1) <= fronts.MOST_PADDING) or VARIANTS[:1]
    variants += _by_diagonals(matrix)
    passes = tuple(sorted({min(fronts.MOST_POWERS, ceil(k / p)) for p in (1, 2, 3, 4)} | {min(k, 8)}))
    default = untuned_for(schedule, matrix, device, k)
    options = default.options
    return (
        Parameter("variant", variants, default.variant, "lanes per row, or diagonals"),
        Parameter("k_per_pass", passes, default.k_per_pass, "powers done each time the matrix comes by"),
        Parameter("partitioner", ORDERS, default.partitioner, "where levels come from"),
        Parameter("slices", SLICES, options["slices"], "slices of 32 lanes of a block that a strip has"),
        Parameter("held_slots", HELD_SLOTS, options["held_slots"], "slots of each of them in registers"),
        Parameter("block", BLOCKS, options["block"], "threads per multiprocessor that compute"),
        Parameter("helpers", HELPERS, options["helpers"], "threads that bring what these need"),
        Parameter("slack", SLACKS, options["slack"], "steps that what strips exchange may take beyond one"),
        Parameter("stored", tuple(ways_of(matrix)), options["stored"], "what values are stored as"),
    )


def untuned_for(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> Plan:
    """A plan that fits most matrices, from the sizes alone: nothing is ordered for it."""
    lanes = fronts.lanes_for(matrix)
    powers = min(max(ceil(k / p) for p in (1, 2, 3, 4) if ceil(k / p) <= 8 or p == 4), 8)
    slots = fronts.slots_for(matrix, lanes)
    held = max(n for n in HELD_SLOTS if n <= max(0, min(slots, 48 // matrix.dtype.itemsize)))
    options: dict[str, Option] = {"block": 512, "helpers": 128, "slices": 2, "held_slots": held, "slack": 0}
    options["stored"] = FULL
    return Plan(schedule.backend, schedule.name, f"sell16-{lanes}", "natural", k, powers, options=options)


def plan_of(
    schedule: Any,
    matrix: Matrix,
    device: CudaDevice,
    k: int,
    powers: int,
    variant: str,
    order: str,
    slack: int,
    helpers: int,
) -> Plan | None:
    """The plan that is thought to be fastest of those with a warp for each of about 16 slices at work at each step.

    These differ in how many slots are in registers: registers that wait are dear, and so are slots in shared memory.
    None where none can surely be laid out.
    """
    slots = fronts.slots_for(matrix, 1 if variant == DIA else int(variant.rpartition("-")[2]))
    way = min(ways_of(matrix), key=lambda way: stored_bytes(way, matrix.dtype))
    options: dict[str, Option] = {"helpers": helpers, "slack": slack, "stored": way}
    found: dict[Plan, float] = {}
    widths = 0
    for slices in sorted(SLICES, key=lambda n: abs(n - 16 / powers)):
        block = next((n for n in BLOCKS if n // WARP >= powers * slices), 512)
        fitting = 0
        for held in (n for n in reversed(HELD_SLOTS) if n <= max(slots, 1)):
            chosen = {**options, "block": block, "slices": slices, "held_slots": held}
            plan = Plan(schedule.backend, schedule.name, variant, order, k, powers, options=chosen)
            if schedule.against(plan, matrix, device) is None and _has_room(plan, matrix, device):
                found[plan] = schedule.work(plan, matrix, device, 1).cycles
                fitting += 1
            if fitting == _FEWER:
                break
        widths += fitting > 0
        if widths == _WIDTHS:
            break
    return min(found, key=found.__getitem__, default=None)


def starts(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a search should begin with: a slice for each warp at each step, for one, two and four passes."""
    passes = dict.fromkeys(min(fronts.MOST_POWERS, ceil(k / p)) for p in (1, 2, 4))
    plans = [
        plan_of(schedule, matrix, device, k, powers, variant, order, slack, helpers)
        for variant in (*_by_diagonals(matrix), f"sell16-{fronts.lanes_for(matrix)}")
        for order in (ORDERS[:1] if variant == DIA else _orders(matrix, device))
        for slack, helpers in _STARTS
        for powers in passes
    ]
    return tuple(plan for plan in plans if plan is not None)


def _by_diagonals(matrix: Matrix) -> tuple[str, ...]:
    """The variant by diagonals, where these suit."""
    try:
        runs_of(matrix)
    except InfeasibleError:
        return ()
    return (DIA,)


def _orders(matrix: Matrix, device: CudaDevice) -> tuple[str, ...]:
    """Orders worth a try: that of the rows where its levels make a front, else breadth-first levels too."""
    try:
        fronts.strips_of(matrix, ORDERS[0], device.sms, 2 * WARP)
    except InfeasibleError:
        return ORDERS
    return ORDERS[:1] if fronts.order_of(matrix, ORDERS[0]).mean_width >= device.sms // 2 else ORDERS


def heuristic_plans(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen, of each variant, number of passes and slack one.

    Rows are in the order given, all levels of one size, as lines or planes of a grid are, and strips read as little of
    one another as those of a grid: what longer edges cost, `work` hardly knows. A search tries such strips too.
    """
    if k < 2 or device.compute_capability != _SEEN or not _is_grid(matrix):
        return ()
    variants = (f"sell16-{fronts.lanes_for(matrix)}", *_by_diagonals(matrix))
    passes = dict.fromkeys(min(fronts.MOST_POWERS, ceil(k / p)) for p in _PASSES)
    plans = (
        plan_of(schedule, matrix, device, k, powers, variant, ORDERS[0], slack, _HELPERS)
        for variant, powers, slack in product(variants, passes, SLACKS)
        if powers > 1
    )
    return tuple(plan for plan in plans if plan is not None and asks(plan, matrix, device) <= _MOST_ASKS)


def _has_room(plan: Plan, matrix: Matrix, device: CudaDevice) -> bool:
    """Whether a feasible plan fits the shared memory surely: rows as long as the longest, diagonals read with gaps."""
    least = fronts.least_shape(matrix, plan, device)
    near = least.slices * max(0, fronts.slots_for(matrix, least.lanes) - plan.typed.held_slots)
    gaps = max(least.room, (least.room + least.fetched) // 3) if least.runs else 0
    fetched = least.fetched + least.fetched // 8 + 4
    likely = replace(least, fetched=fetched, near_slots=max(near, least.near_slots), gaps=gaps)
    if fronts.used_plan(plan, matrix, device, likely) != plan:
        return False
    return fronts.shared_bytes(likely, plan, matrix) + fronts.STATIC <= device.shared_per_block


def _is_grid(matrix: Matrix) -> bool:
    there = features.of(matrix)
    if there is not None and fronts.levels_there(matrix) is None:
        found = features.line_faults(there)
        # Levels by closure have one row each up to the first one that reads far: then one is left, or there is no grid.
        if (found.is_one or found.is_uneven or found.is_beyond) and found.far + 2 < fronts.FEWEST_LEVELS:
            return False
    sizes = np.diff(fronts.order_of(matrix, ORDERS[0]).level_ptr)
    return bool(sizes.size >= fronts.FEWEST_LEVELS and np.all(sizes[:-1] == sizes[0]))
