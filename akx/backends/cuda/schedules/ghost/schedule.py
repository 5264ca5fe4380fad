"""`ghost` on the GPU: each block takes its ghost zone along and does k_per_pass steps with no word to the others.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. One launch per pass, no barrier between blocks. A block fetches x on its
closure (nodes at distance <= k_per_pass), keeps it in shared memory, and in step j computes the nodes at distance <=
k_per_pass - j: a prefix of its list, nearest first. Matrix slots are in registers and shared memory as in `resident`.

With `cluster` > 1 the ghost zone is that of a cluster of blocks, which write what others of it need into their shared
memory after each step (:mod:`akx.partition.clusters`): fewer ghosts, but a barrier of the cluster in each step. With
`waves` > 1 there are so many times the blocks that are on the device at once, one after another, so that a matrix that
does not fit the chip is read from memory once per pass all the same.

Flops: 2 nnz k redundancy. Traffic: matrix and x once per pass with their ghosts, k results; what of the matrix fits
neither registers nor shared memory is read again in each step. Blocks per multiprocessor from 1 to 8 as the thesis
tunes it; where a block does not fit, there are more and smaller ones. Source: Demmel, Hoemmen, Mohiyuddin and Yelick
(IPDPS 2008), algorithm PA1; Mehri Dehnavi 2012, ch. 6.
"""

from __future__ import annotations

from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.schedules.base import CudaSchedule, misnamed
from akx.backends.cuda.schedules.ghost.layout import MOST_ROWS, lay_out_ghost, redundancy_of
from akx.backends.cuda.schedules.ghost.options import OPTIONS, THREADS
from akx.backends.cuda.value_compression.program import there_or_by_host
from akx.backends.cuda.variants.block_local.clusters import WITH_CLUSTERS, clusters_at_once, on_device
from akx.backends.cuda.variants.block_local.layout import choice_reason, held_registers, waste
from akx.backends.cuda.variants.block_local.program import PartsProgram
from akx.backends.cuda.variants.block_local.shapes import filled_rows, shape_of, values_in
from akx.backends.schedule import Program, Traffic, check_feasible
from akx.core.matrix import Matrix
from akx.core.options import CudaGhost
from akx.core.plan import Plan

__all__ = ["SCHEDULE", "Ghost"]

_PARTITIONERS = ("natural", "metis")


class Ghost(CudaSchedule):
    """See the module."""

    name = "ghost"
    options = CudaGhost
    description = "blocks with ghost zones do k steps each on their own, in shared memory"
    layout_shares, layout_turn = 2, 3

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        per_sm = int(plan.typed.blocks_per_sm)
        if reason := misnamed(plan, _PARTITIONERS) or choice_reason(plan, matrix, device, OPTIONS, per_sm):
            return reason
        if plan.typed.cluster != 1 and device.compute_capability < WITH_CLUSTERS:
            return "clusters need compute capability {}.{}, this has {}.{}".format(
                *WITH_CLUSTERS, *device.compute_capability
            )
        vectors = plan.typed.vectors
        x = 2.0 * filled_rows(matrix, shape_of(plan).bc) * matrix.dtype.itemsize * vectors / device.sms
        if x > 8 * device.shared_per_sm:
            return f"x takes {x:.0f} bytes per multiprocessor: too many blocks, one after another"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        parts = device.sms * plan.typed.blocks_per_sm * plan.typed.waves
        return waste(plan, matrix, parts, THREADS, MOST_ROWS)

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        shape, size = shape_of(plan), matrix.dtype.itemsize
        once = values_in(matrix, shape) * (size + 2.0 / (shape.br * shape.bc))
        passes = -(-plan.k // plan.k_per_pass)
        waves, count = plan.typed.waves, clusters_at_once(plan, device)
        redundancy = redundancy_of(matrix, plan.partitioner, shape.bc, waves * count, plan.k_per_pass)
        vector = float(matrix.n * size)
        chip = device.sms * (device.shared_per_block + 128.0 * shape.warps * held_registers(shape, matrix.dtype))
        x = 2 * filled_rows(matrix, shape.bc) * size * redundancy * plan.typed.vectors
        rest = max(0.0, once * redundancy - max(0.0, waves * chip - x))
        again = rest * (plan.k - passes)
        return Traffic(
            matrix_bytes=once * redundancy * passes
            + max(0.0, again * (1.0 - device.l2_bytes * waves / max(rest, 1.0))),
            vector_bytes=vector * (plan.k + 1.0 + 2 * (passes - 1)),
            flops=2.0 * matrix.nnz * plan.k * redundancy,
            redundancy=redundancy,
            cache_bytes=once * redundancy * passes + again + vector * (plan.k + 1.0),
            synchronisations=float(passes),
        )

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        lay_out_ghost(matrix, plan, device)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        at_once = on_device(matrix, plan, device)

        def made(*, by_host: bool = False) -> PartsProgram:
            laid_out, active, steps = lay_out_ghost(matrix, plan, device, at_once, there=not by_host)
            return PartsProgram(matrix, laid_out, plan, steps, active, plan.typed.blocks_per_sm)

        return there_or_by_host(made)


SCHEDULE = Ghost()
