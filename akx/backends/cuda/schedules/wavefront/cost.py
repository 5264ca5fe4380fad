"""Cost model of `wavefront` on the GPU: bytes and cycles of a pass.

    transfers   the matrix, one x and the results, once; through L2 nothing is read again
    cycles      steps x (what a step takes by itself + slices of a warp x (their own + slots))

A step waits for the longest of its warps, and for what other strips have published, whatever it computes: the more a
thread has to ask for, the longer; values that come over the long edges of breadth-first levels are late. That a step is
shorter with slack is not counted.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from akx.backends.cuda.cost.model import multiply_cycles
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.matrix import features
from akx.backends.cuda.schedules.wavefront import strips as fronts
from akx.backends.cuda.schedules.wavefront.layout import FLIGHT, asks_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients
from akx.cost.counts import Traffic, Work
from akx.formats.base import pattern_of
from akx.partition.level_order import ORDERS
from akx.partition.wavefront_blocks import Strips

__all__ = ["asks", "work"]

_COST = coefficients("cuda", "wavefront")


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, steps: int, traffic: Traffic) -> Work:
    """What the plan makes the device do, for so many start vectors one after another, in `steps` of each pass.

    The constants are fitted on 251 timed plans of 9 matrices on an H100. Plans that take up to twice as long as the
    fastest of their matrix are priced a fifth off in the mean; those of levels whose threads ask for much take up to
    ten times what they are priced.
    """
    steps += 2 * FLIGHT  # before the first block has all it needs
    passes, per = ceil(plan.k / plan.k_per_pass), fronts.slices_each_step(plan)
    slots = ceil(matrix.nnz / max(matrix.n, 1) / fronts.lanes_of(plan))
    near = _COST.shared_slots_cycles if fronts.slots_for(matrix, fronts.lanes_of(plan)) > plan.typed.held_slots else 0.0
    each = _COST.step_cycles + per * (
        _COST.slice_cycles + near + slots * max(_COST.slot_cycles, 4.0 * multiply_cycles(device, matrix.dtype))
    )
    each += asks(plan, matrix, device) * (_COST.ask_cycles if plan.partitioner == ORDERS[0] else _COST.level_ask_cycles)
    return Work(
        memory_bytes=vectors * traffic.bytes,
        cache_bytes=vectors * traffic.cache_bytes,
        cycles=vectors * passes * steps * each,
        launches=float(passes * vectors),
    )


def asks(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Values of others that a thread asks for in a step, by what strips read of the block in the middle."""
    strips = fronts.strips_of_plan(matrix, plan, device)
    key = ("akx.backends.cuda.schedules.wavefront.schedule.fetched", plan.partitioner, device.sms, fronts.room_of(plan))
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = _fetched(matrix, strips)
    fetched: int = matrix.pattern_cache[key]
    return asks_of(plan.k_per_pass, fetched, plan.typed.helpers)


def _fetched(matrix: Matrix, strips: Strips) -> int:
    """Values of others that a strip reads of the block in the middle, at most."""
    middle, there = strips.blocks // 2, features.of(matrix)
    near = [max(0, middle - strips.ahead), min(strips.blocks, middle + strips.behind + 1)]
    if strips.order.is_natural:  # rows from one to another
        begin, own, behind, end = strips.starts[[near[0], middle, middle + 1, near[1]]].tolist()
        rows, part = np.arange(begin, end), strips.groups.strips_of(*strips.begin[near])
    else:
        rows = np.flatnonzero((strips.block >= near[0]) & (strips.block < near[1]))
        part = strips.part[rows]
    if there is not None:
        counts, columns = features.rows_of(there, rows)
    else:
        pattern = pattern_of(matrix)
        counts = np.diff(pattern.indptr)[rows].astype(np.int64)
        begins = np.repeat(pattern.indptr[rows].astype(np.int64) - np.cumsum(counts) + counts, counts)
        columns = pattern.indices[begins + np.arange(begins.size)]
    readers = np.repeat(part.astype(np.int64), counts)
    if strips.order.is_natural:
        inside = (columns >= own) & (columns < behind)
    else:
        inside = strips.block[columns] == middle
    columns, readers = columns[inside].astype(np.int64), readers[inside]
    owners = part[columns - begin] if strips.order.is_natural else strips.part[columns]
    foreign = owners != readers
    pairs = np.unique(readers[foreign] * matrix.n + columns[foreign])
    return int(np.bincount(pairs // matrix.n, minlength=1).max())
