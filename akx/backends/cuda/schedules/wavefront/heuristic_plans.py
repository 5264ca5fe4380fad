"""Which plans of `wavefront` a call may take unseen: those of grids, whose strips read little of one another."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.matrix import features
from akx.backends.cuda.schedules.wavefront import options as wavefront_space
from akx.backends.cuda.schedules.wavefront import schedule as wavefront
from akx.backends.cuda.schedules.wavefront.cost import asks
from akx.backends.cuda.value_compression.encodings import stored_bytes, ways_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.partition.level_order import ORDERS

__all__ = ["offers"]

#: Passes for k powers; slack and helpers, those of most plans that were found by tuning.
_PASSES, _SLACK, _HELPERS = (1, 2, 4), 2, 128
#: Registers of a thread of 640, and steps that a slice stays in them at least, with such a slack.
_REGISTERS, _LEAST_LAG = 96, 5
#: The compute capability of GPUs on which the kernel has been seen to run.
_SEEN = (9, 0)
#: Values of others that a thread may ask for in a step. A 7-point grid has 3 to 5; each takes registers and time.
_MOST_ASKS = 6


def offers(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen, each with all slots in registers.

    Rows are in the order given, all levels of one size, as lines or planes of a grid are, and strips read as little of
    one another as those of a grid: what longer edges cost, `work` hardly knows. A search tries such strips too.
    """
    if k < 2 or device.compute_capability != _SEEN:
        return ()
    lanes = wavefront._lanes_for(matrix)
    slots = wavefront._slots_for(matrix, lanes)
    narrowest = min(stored_bytes(way, matrix.dtype) for way in ways_of(matrix))
    too_long = _LEAST_LAG * slots * (narrowest + 2) > 4 * _REGISTERS  # seen before strips are made
    if too_long or not _is_grid(matrix):
        return ()
    passes = dict.fromkeys(min(wavefront._MOST_POWERS, ceil(k / p)) for p in _PASSES)
    plans = (
        wavefront_space.plan_of(schedule, matrix, device, k, powers, lanes, ORDERS[0], _SLACK, _HELPERS)
        for powers in passes
        if powers > 1
    )
    return tuple(
        plan
        for plan in dict.fromkeys(plans)
        if wavefront._held_of(plan) >= slots
        and schedule.feasible(plan, matrix, device) is None
        and schedule.waste(plan, matrix, device) is None
        and asks(plan, matrix, device) <= _MOST_ASKS
    )


def _is_grid(matrix: Matrix) -> bool:
    there = features.of(matrix)
    if there is not None and wavefront.levels_there(matrix) is None:
        found = features.line_faults(there)
        # Levels by closure have one row each up to the first one that reads far: then one is left, or there is no grid.
        if (found.is_one or found.is_uneven or found.is_beyond) and found.far + 2 < wavefront._FEWEST_LEVELS:
            return False
    sizes = np.diff(wavefront.order_of(matrix, ORDERS[0]).level_ptr)
    return bool(sizes.size >= wavefront._FEWEST_LEVELS and np.all(sizes[:-1] == sizes[0]))
