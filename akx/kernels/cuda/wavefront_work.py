"""The work of `wavefront` (:mod:`akx.kernels.cuda.work`). Of a pass:

    transfers   the matrix, one x and the results, once; through L2 nothing is read again
    cycles      steps x (what a step takes by itself + slices of a warp x (their own + slots))

A step waits for the longest of its warps, and for what other strips have published, whatever it computes; with slack it
does not wait for the way there.
"""

from __future__ import annotations

from math import ceil

from akx.device.cuda.facts import CudaDevice
from akx.kernels.base import Traffic
from akx.kernels.cuda import wavefront
from akx.kernels.cuda.front import FLIGHT
from akx.kernels.cuda.work import Work, multiply_cycles
from akx.matrix import Matrix
from akx.partition.strips import ORDERS
from akx.plan import Plan

__all__ = ["work"]

#: Cycles of a step, by its slack; of each slice that a warp has in it, beside its slots; of each of these; and where
#: some slots of a slice stay in shared memory.
_STEP, _SLICE, _SLOT, _NEAR = (900.0, 400.0, 200.0), 400.0, 60.0, 400.0
#: Times as long where strips are of breadth-first levels and have long edges (`delaunay`, G3_circuit).
_EDGES = 2.5


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, steps: int, traffic: Traffic) -> Work:
    """What the plan makes the device do, for so many start vectors one after another, in `steps` of each pass."""
    steps += 2 * FLIGHT  # before the first block has all it needs
    passes, per = ceil(plan.k / plan.k_per_pass), wavefront._per_of(plan)
    # Irregular: what strips exchange is not counted, and is what a step takes; seen on two matrices.
    edges = 1.0 if plan.partitioner == ORDERS[0] else _EDGES
    slots = ceil(matrix.nnz / max(matrix.n, 1) / wavefront._lanes_of(plan))
    near = _NEAR if wavefront._slots_for(matrix, wavefront._lanes_of(plan)) > wavefront._held_of(plan) else 0.0
    each = _STEP[wavefront._slack_of(plan)] + per * (
        _SLICE + near + slots * max(_SLOT, 4.0 * multiply_cycles(device, matrix.dtype))
    )
    return Work(
        memory_bytes=vectors * traffic.bytes,
        cache_bytes=vectors * traffic.cache_bytes,
        cycles=vectors * passes * steps * each * edges,
        launches=float(passes * vectors),
    )
