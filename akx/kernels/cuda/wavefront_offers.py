"""Which plans of `wavefront` a call may take unseen: those of grids, whose strips read little of one another."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from akx.device.cuda.facts import CudaDevice
from akx.kernels.cuda import wavefront
from akx.kernels.cuda.stored import stored_bytes, ways_of
from akx.matrix import Matrix
from akx.partition.strips import ORDERS
from akx.plan import Plan

__all__ = ["offers"]

#: Passes for k powers; slack and helpers, those of most plans that were found by tuning.
_PASSES, _SLACK, _HELPERS = (1, 2, 4), 2, 128
#: Registers of a thread of 640, and steps that a slice stays in them at least, with such a slack.
_REGISTERS, _LEAST_LAG = 96, 5
#: GPUs on which the kernel has been seen to run, from this compute capability on.
_SEEN = (9, 0)


def offers(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen, each with all slots in registers.

    Rows are in the order given, and all levels of one size, as lines or planes of a grid are: strips of others may have
    long edges, which `work` does not know. A search tries those too.
    """
    lanes = wavefront._lanes_for(matrix)
    slots = wavefront._slots_for(matrix, lanes)
    narrowest = min(stored_bytes(way, matrix.dtype) for way in ways_of(matrix))
    too_long = _LEAST_LAG * slots * (narrowest + 2) > 4 * _REGISTERS  # seen before strips are made
    if k < 2 or device.compute_capability < _SEEN or too_long or not _is_grid(matrix, device):
        return ()
    passes = dict.fromkeys(min(wavefront._MOST_POWERS, ceil(k / p)) for p in _PASSES)
    plans = (
        schedule._plan(matrix, device, k, powers, lanes, ORDERS[0], _SLACK, _HELPERS) for powers in passes if powers > 1
    )
    return tuple(
        plan
        for plan in dict.fromkeys(plans)
        if int(plan.option("held_slots", 0)) >= slots
        and schedule.feasible(plan, matrix, device) is None
        and schedule.waste(plan, matrix, device) is None
    )


def _is_grid(matrix: Matrix, device: CudaDevice) -> bool:
    sizes = np.diff(wavefront.order_of(matrix, ORDERS[0]).level_ptr)
    wide = sizes.size >= wavefront._FEWEST_LEVELS and sizes[0] >= device.sms // 2
    return bool(wide and np.all(sizes[:-1] == sizes[0]) and sizes[-1] <= sizes[0])
