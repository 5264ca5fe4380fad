"""`wavefront`: blocks of rows run diagonally through the powers, so that a block is used k times while it is in cache.

Rows are taken in an order of small reach (natural for banded matrices and grids, reverse Cuthill-McKee or breadth-first
levels else) and cut into blocks of `block_bytes`. Power j of block b needs power j-1 of the blocks that its rows read;
always doing the highest power that is ready makes a front that moves once through the matrix with the live blocks,
about k (reach + block) of them, in cache. No flop is done twice. Two ways to share the work (`split`):

- "contiguous": every thread has a stretch of the rows and a front of its own, even ones running down and odd ones up,
  so that neighbours start where they meet. Hardly any waiting; every core needs its own front in its cache.
- "interleaved": every block is cut between the threads. The front is shared, a core's part of it is 1/threads, but
  threads exchange vector entries all along. A round of slack (`lag`) spares 2 to 5 % of waiting here (none: 0).

Traffic per call and start vector: the matrix once per pass, ceil(k / k_per_pass) passes, if the front fits the cache;
k vectors written (and the lines read first), one read. Flops: 2 nnz k. Source: Alappat et al., "Level-based blocking
for sparse matrices", TPDS 2023, for the diagonal order; the readiness rule by blocks, the mirrored fronts and the
point-to-point waits are akx's own (:mod:`akx.backends.cpu.task_graph`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.cost import front_share, has_front, multiplied
from akx.backends.cpu.feasibility import basic_reason, block_plan_reason
from akx.backends.cpu.layout import Ordered, aligned_cuts, dependencies, laid_out, laying_out
from akx.backends.cpu.program import TaskProgram
from akx.backends.cpu.task_graph import ascending, mirrored, schedule_tasks
from akx.backends.host import HostDevice, host_device
from akx.backends.schedule import Parameter, Program, Schedule, Traffic, check_feasible
from akx.core.matrix import Matrix
from akx.core.options import CpuWavefront
from akx.core.plan import Plan
from akx.formats.base import Format

__all__ = ["SCHEDULE", "Wavefront"]


class Wavefront(Schedule):
    """See the module."""

    name = "wavefront"
    backend = "cpu"
    options = CpuWavefront
    description = "blocks run diagonally through the powers while they are in cache"

    def space(self, matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cpu.schedules.wavefront import options

        return options.space(matrix, device, k)

    def untuned(self, k: int, threads: int) -> Plan:
        """All powers in one pass, blocks of 512 KiB, CSR in the order the rows have."""
        from akx.backends.cpu.schedules.wavefront.options import BLOCK

        return Plan(self.backend, self.name, "csr", k=k, k_per_pass=k, block_bytes=BLOCK, threads=threads)

    def feasible(self, plan: Plan, matrix: Matrix, device: HostDevice) -> str | None:
        if plan.k_per_pass < 2:
            return "a wavefront of one power per pass is a sweep"
        if plan.threads == 1 and (plan.typed.lag or plan.typed.split != "contiguous"):
            return "split and lag are for two threads or more"
        reason = block_plan_reason(plan) or basic_reason(plan, matrix, ("natural", "rcm", "levels"))
        if reason is not None:
            return reason
        if not has_front(matrix, plan.partitioner):
            share = front_share(matrix, plan.partitioner)
            return f"rows reach over {share:.0%} of the matrix in {plan.partitioner} order, so that no front forms"
        return None

    def traffic(self, plan: Plan, matrix: Matrix, device: HostDevice) -> Traffic:
        from akx.backends.cpu.schedules.wavefront import cost

        return cost.traffic(plan, matrix, device)

    def padding(self, plan: Plan, matrix: Matrix) -> float:
        return multiplied(plan, matrix)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        check_feasible(self, plan, matrix, host_device())
        where, layout = laid_out(matrix, plan)
        blocks = max(1, round(layout.matrix_bytes / plan.block_bytes))
        interleaved = plan.typed.split == "interleaved"
        cuts, owner = _shares(where, layout, blocks, plan.threads, interleaved)
        low, high = dependencies(where.pattern, layout, cuts)
        order, pointer = (ascending if interleaved else mirrored)(owner, plan.threads)
        lag = int(interleaved) if plan.typed.lag is None else plan.typed.lag
        tasks = schedule_tasks(cuts, low, high, owner, order, pointer, k=plan.k, k_per_pass=plan.k_per_pass, lag=lag)
        program = TaskProgram(layout, tasks, where)
        program.fill(matrix.data, laying_out(matrix, plan))
        return program


def _shares(
    where: Ordered, layout: Format, blocks: int, threads: int, interleaved: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cuts of the rows and the thread of each block; a share is whole blocks, or every block is cut between threads."""
    cuts = aligned_cuts(where.pattern, max(blocks, threads) * (threads if interleaved else 1), layout.align, layout)
    count = cuts.size - 1
    number = np.arange(count, dtype=np.int64)
    return cuts, number % threads if interleaved else number * threads // max(count, 1)


SCHEDULE = Wavefront()
