"""The work of `wavefront` (:mod:`akx.kernels.cuda.work`). Of a pass:

    transfers   the matrix, one x and the results, once; through L2 nothing is read again
    cycles      steps x (what a step takes by itself + slices of a warp x (their own + slots))

A step waits for the longest of its warps, and for what other strips have published, whatever it computes: the more a
thread has to ask for, the longer; values that come over the long edges of breadth-first levels are late. That a step is
shorter with slack is not counted.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from akx.device.cuda.facts import CudaDevice
from akx.formats.base import pattern_of
from akx.kernels.base import Traffic
from akx.kernels.cuda import features, wavefront
from akx.kernels.cuda.front import FLIGHT, asks_of
from akx.kernels.cuda.work import Work, multiply_cycles
from akx.matrix import Matrix
from akx.partition.strips import ORDERS
from akx.plan import Plan

__all__ = ["asks", "work"]

#: Cycles of a step, whatever the slack (none has been seen on levels of ct2010 only); of each slice that a warp has in
#: it, beside its slots; of each of these; and where some slots of a slice stay in shared memory.
_STEP, _SLICE, _SLOT, _NEAR = 515.0, 120.0, 38.0, 200.0
#: And for each value of others that a thread asks for in a step, where rows are in the order given and by levels.
_ASK, _FAR_ASK = 70.0, 200.0


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, steps: int, traffic: Traffic) -> Work:
    """What the plan makes the device do, for so many start vectors one after another, in `steps` of each pass.

    The constants are fitted on 251 timed plans of 9 matrices on an H100. Plans that take up to twice as long as the
    fastest of their matrix are priced a fifth off in the mean; those of levels whose threads ask for much take up to
    ten times what they are priced.
    """
    steps += 2 * FLIGHT  # before the first block has all it needs
    passes, per = ceil(plan.k / plan.k_per_pass), wavefront._per_of(plan)
    slots = ceil(matrix.nnz / max(matrix.n, 1) / wavefront._lanes_of(plan))
    near = _NEAR if wavefront._slots_for(matrix, wavefront._lanes_of(plan)) > wavefront._held_of(plan) else 0.0
    each = _STEP + per * (_SLICE + near + slots * max(_SLOT, 4.0 * multiply_cycles(device, matrix.dtype)))
    each += asks(plan, matrix, device) * (_ASK if plan.partitioner == ORDERS[0] else _FAR_ASK)
    return Work(
        memory_bytes=vectors * traffic.bytes,
        cache_bytes=vectors * traffic.cache_bytes,
        cycles=vectors * passes * steps * each,
        launches=float(passes * vectors),
    )


def asks(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Values of others that a thread asks for in a step, by what strips read of the block in the middle."""
    strips = wavefront._dealt(matrix, plan, device)
    key = ("akx.kernels.cuda.wavefront.fetched", plan.partitioner, device.sms, wavefront._room_of(plan))
    if key not in matrix.pattern_cache:
        pattern, there, middle = pattern_of(matrix), features.of(matrix), strips.blocks // 2
        near = (strips.block + strips.ahead >= middle) & (strips.block <= middle + strips.behind)
        rows = np.flatnonzero(near)
        if there is not None:
            counts, columns = features.rows_of(there, rows)
        else:
            counts = np.diff(pattern.indptr)[rows].astype(np.int64)
            begins = np.repeat(pattern.indptr[rows].astype(np.int64) - np.cumsum(counts) + counts, counts)
            columns = pattern.indices[begins + np.arange(begins.size)]
        columns = columns.astype(np.int64)
        readers = np.repeat(strips.part[rows].astype(np.int64), counts)
        foreign = (strips.block[columns] == middle) & (strips.part[columns] != readers)
        pairs = np.unique(readers[foreign] * matrix.n + columns[foreign])
        matrix.pattern_cache[key] = int(np.bincount(pairs // matrix.n, minlength=1).max())
    fetched: int = matrix.pattern_cache[key]
    return asks_of(plan.k_per_pass, fetched, wavefront._helpers_of(plan))
