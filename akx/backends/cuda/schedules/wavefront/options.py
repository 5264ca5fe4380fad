"""The space of `wavefront` on the GPU, and where a search of it begins."""

from __future__ import annotations

from math import ceil
from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.wavefront import schedule as wavefront
from akx.backends.cuda.value_compression.encodings import FULL, STORED, stored_bytes, ways_of
from akx.backends.cuda.variants.block_local.program import padding
from akx.backends.cuda.variants.options import LANES
from akx.backends.schedule import Parameter
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.block_local import WARP
from akx.partition.level_order import ORDERS

__all__ = ["BLOCKS", "HELD_SLOTS", "HELPERS", "OPTIONS", "SLACKS", "SLICES", "VARIANTS", "plan_of", "space", "starts"]

#: Sliced ELL with 16-bit columns and so many lanes a row.
VARIANTS = tuple(f"sell16-{lanes}" for lanes in LANES)
BLOCKS = (256, 384, 512, 640, 768)
HELPERS = (128, 256)
SLICES = (1, 2, 3, 4, 6)
HELD_SLOTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14)
SLACKS = (0, 1, 2)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": BLOCKS,
    "helpers": HELPERS,
    "slices": SLICES,
    "held_slots": HELD_SLOTS,
    "slack": SLACKS,
    "stored": STORED,
}
#: Slack and helpers of the plans to begin with.
_STARTS = ((2, 128), (1, 128), (2, 256))
#: Registers that the rest of a thread has where none wait, and how many may in a plan to begin with.
_USUAL_REGISTERS, _FEW_SPILLED = 30, 4


def space(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    variants = tuple(f"sell16-{n}" for n in LANES if padding(matrix, n, 1) <= wavefront._MOST_PADDING) or VARIANTS[:1]
    passes = tuple(sorted({min(wavefront._MOST_POWERS, ceil(k / p)) for p in (1, 2, 3, 4)} | {min(k, 8)}))
    default = untuned_for(schedule, matrix, device, k)
    options = default.options
    return (
        Parameter("variant", variants, default.variant, "lanes per row"),
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
    lanes = wavefront._lanes_for(matrix)
    powers = min(max(ceil(k / p) for p in (1, 2, 3, 4) if ceil(k / p) <= 8 or p == 4), 8)
    slots = wavefront._slots_for(matrix, lanes)
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
    lanes: int,
    order: str,
    slack: int,
    helpers: int,
) -> Plan:
    """A plan with about 16 slices at work at each step, a warp for each, and as many slots in registers as fit."""
    slots = wavefront._slots_for(matrix, lanes)
    way = min(ways_of(matrix), key=lambda way: stored_bytes(way, matrix.dtype))
    options: dict[str, Option] = {"block": 512, "helpers": helpers, "slices": 1, "held_slots": 0, "slack": slack}
    first = Plan(
        schedule.backend, schedule.name, f"sell16-{lanes}", order, k, powers, options={**options, "stored": way}
    )
    for slices in sorted(SLICES, key=lambda n: abs(n - 16 / powers)):
        block = next((n for n in BLOCKS if n // WARP >= powers * slices), 512)
        for held in (n for n in reversed(HELD_SLOTS) if n <= max(slots, 1)):
            plan = first.replace(options={**first.options, "block": block, "slices": slices, "held_slots": held})
            if schedule.feasible(plan, matrix, device) is not None or schedule._stored_else(plan, matrix, device):
                continue
            if _spilled(plan, matrix, device) <= _FEW_SPILLED:
                return plan
    return first


def _spilled(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Registers of a feasible plan that are likely to wait in memory."""
    registers, room = wavefront._registers(plan, matrix.dtype, device, wavefront._dealt(matrix, plan, device))
    return max(0, registers + _USUAL_REGISTERS - wavefront._WORKING_REGISTERS - room)


def starts(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a search should begin with: a slice for each warp at each step, for one, two and four passes."""
    lanes = wavefront._lanes_for(matrix)
    passes = dict.fromkeys(min(wavefront._MOST_POWERS, ceil(k / p)) for p in (1, 2, 4))
    plans = [
        plan_of(schedule, matrix, device, k, powers, lanes, order, slack, helpers)
        for order in _orders(matrix, device)
        for slack, helpers in _STARTS
        for powers in passes
    ]
    fitting = (plan for plan in plans if schedule.feasible(plan, matrix, device) is None)
    return tuple(plan for plan in fitting if schedule.waste(plan, matrix, device) is None)


def _orders(matrix: Matrix, device: CudaDevice) -> tuple[str, ...]:
    """Orders worth a try: that of the rows where its levels make a front, else breadth-first levels too."""
    try:
        wavefront.strips_of(matrix, ORDERS[0], device.sms, 2 * WARP)
    except InfeasibleError:
        return ORDERS
    return ORDERS[:1] if wavefront.order_of(matrix, ORDERS[0]).mean_width >= device.sms // 2 else ORDERS
