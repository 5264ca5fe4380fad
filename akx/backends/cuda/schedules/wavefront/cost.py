"""Cost model of `wavefront` on the GPU: bytes and cycles of a pass.

    transfers   the matrix, one x and the results, once; through L2 nothing is read again
    cycles      steps x (what a step takes by itself + slices of a warp x (slots, or diagonals, + registers that wait))

A step waits for the longest of its warps, and for what other strips have published, whatever it computes: the more a
thread has to ask for, the longer, and without slack what others have published is late; values that come over the long
edges of breadth-first levels are later.
"""

from __future__ import annotations

from math import ceil

from akx.backends.cuda.cost.model import multiply_cycles
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.wavefront import strips as fronts
from akx.backends.cuda.schedules.wavefront.layout import FLIGHT, asks_of
from akx.backends.cuda.schedules.wavefront.options import DIA
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients
from akx.cost.counts import Traffic, Work
from akx.partition.level_order import ORDERS

__all__ = ["asks", "work"]

_COST = coefficients("cuda", "wavefront")


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, steps: int, traffic: Traffic) -> Work:
    """What the plan makes the device do, for so many start vectors one after another, in `steps` of each pass.

    The constants are fitted on 180 timed plans of four matrices. Plans that take up to 1.7 times as long as the fastest
    of their matrix are priced a tenth off in the mean; those of levels whose threads ask for much take up to ten times
    what they are priced.
    """
    steps += 2 * FLIGHT  # before the first block has all it needs
    passes, per = ceil(plan.k / plan.k_per_pass), fronts.slices_each_step(plan)
    slots = ceil(matrix.nnz / max(matrix.n, 1) / fronts.lanes_of(plan))
    multiply = slots * 4.0 * multiply_cycles(device, matrix.dtype)
    near = fronts.slots_for(matrix, fronts.lanes_of(plan)) > plan.typed.held_slots
    if plan.variant == DIA:
        slice_cycles = max(_COST.diagonals_cycles, multiply) + near * _COST.shared_diagonals_cycles
    else:
        slice_cycles = max(slots * _COST.slot_cycles, multiply) + near * _COST.shared_slots_cycles
    each = _COST.step_cycles + per * (slice_cycles + fronts.spilled(plan, matrix, device) * _COST.spilled_cycles)
    each += 0.0 if plan.typed.slack else _COST.late_cycles
    each += asks(plan, matrix, device) * (_COST.ask_cycles if plan.partitioner == ORDERS[0] else _COST.level_ask_cycles)
    return Work(
        memory_bytes=vectors * traffic.bytes,
        cache_bytes=vectors * traffic.cache_bytes,
        cycles=vectors * passes * steps * each,
        launches=float(passes * vectors),
    )


def asks(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Values of others that a thread asks for in a step, by what strips read of the block in the middle."""
    fetched = fronts.fetched_of(matrix, plan.partitioner, device.sms, fronts.room_of(plan))
    return asks_of(plan.k_per_pass, fetched, plan.typed.helpers)
