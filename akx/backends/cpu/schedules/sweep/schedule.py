"""`sweep`: k products one after another, in every SpMV variant. The baseline.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} for j = 0..k-1, each product over the whole matrix before the next. Threads
take contiguous shares of the rows with equal work and wait for one another only where a share reads rows of another.

Where the variant is ``csr`` and rows have their own order, three start vectors and more are done eight at a time
or sixteen, and threads share such groups (:mod:`akx.backends.cpu.spmm`): the matrix is read once for a group.

Traffic per call and start vector: k times the matrix, unless all of it fits the last-level cache, and k times x read
and y written (a written line is first read). Flops: 2 nnz k.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends import registry
from akx.backends.cpu.feasibility import basic_reason, outside_reason
from akx.backends.cpu.layout import aligned_cuts, dependencies, laid_out, laying_out
from akx.backends.cpu.program import TaskProgram
from akx.backends.cpu.spmm import LEAST, coefficient_rows, fits_groups, group_code, group_powers, lanes_for, work_size
from akx.backends.cpu.task_graph import ascending, schedule_tasks
from akx.backends.host import HostDevice, host_device
from akx.backends.result_pool import rows_of
from akx.backends.schedule import Coefficients, Parameter, Program, Schedule, Traffic, check_feasible
from akx.backends.variant import ProductProgram, Variant
from akx.core.matrix import Matrix
from akx.core.options import CpuSweep
from akx.core.plan import Plan
from akx.core.process import share_out

__all__ = ["SCHEDULE", "Sweep"]


class Sweep(Schedule):
    """See the module."""

    name = "sweep"
    backend = "cpu"
    options = CpuSweep
    description = "k products one after another (the baseline)"

    def space(self, matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cpu.schedules.sweep import options

        return options.space(matrix, device, k)

    def untuned(self, k: int, threads: int) -> Plan:
        """Plain CSR products: right for any matrix, laid out at no cost."""
        return Plan(self.backend, self.name, "csr", k=k, threads=threads)

    def feasible(self, plan: Plan, matrix: Matrix, device: HostDevice) -> str | None:
        if plan.k_per_pass != 1:
            return f"a sweep does one power per pass, not {plan.k_per_pass}"
        other = _other(plan)
        if other is not None:
            return outside_reason(plan) or other.reason_against(matrix)
        return basic_reason(plan, matrix, ("natural", "rcm", "levels"))

    def traffic(self, plan: Plan, matrix: Matrix, device: HostDevice) -> Traffic:
        from akx.backends.cpu.schedules.sweep import cost

        return cost.traffic(plan, matrix, device, _other(plan))

    def at_once(self, plan: Plan, matrix: Matrix, vectors: int) -> int:
        if vectors < LEAST or not _is_for_groups(plan):
            return 1
        return lanes_for(matrix.nnz, matrix.n, vectors, plan.threads)

    def padding(self, plan: Plan, matrix: Matrix) -> float:
        from akx.backends.cpu.cost import multiplied

        return 1.0 if _other(plan) else multiplied(plan, matrix)

    def largest_share(self, plan: Plan, matrix: Matrix) -> float:
        from akx.backends.cpu.cost import largest_share

        return 1.0 if _other(plan) else largest_share(plan, matrix)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        check_feasible(self, plan, matrix, host_device())
        other = _other(plan)
        if other is not None:
            return ProductProgram(other.prepare(matrix, plan.threads))
        where, layout = laid_out(matrix, plan)
        cuts = aligned_cuts(where.pattern, plan.threads, layout.align, layout)
        low, high = dependencies(where.pattern, layout, cuts)
        owner = np.arange(cuts.size - 1, dtype=np.int64)
        order, pointer = ascending(owner, plan.threads)
        tasks = schedule_tasks(cuts, low, high, owner, order, pointer, k=plan.k, k_per_pass=1, lag=0)
        program = (GroupProgram if _is_for_groups(plan) else TaskProgram)(layout, tasks, where)
        program.fill(matrix.data, laying_out(matrix, plan))
        return program


class GroupProgram(TaskProgram):
    """A matrix in CSR, of which three start vectors and more have products in groups."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._scratch: deque[NDArray[Any]] = deque(maxlen=self._threads)
        self._factors: tuple[Coefficients, NDArray[Any] | None] | None = None

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(work.nbytes for work in list(self._scratch))

    @property
    def takes_any_order(self) -> bool:
        return True

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        arrays = self._layout.arrays
        A = arrays.pointer, arrays.column, arrays.values
        vectors, n = x.shape
        factors, code = None, None
        if vectors >= LEAST and fits_groups(A, out.dtype):
            factors = self._rows_of(coefficients, out.dtype)
            lanes = lanes_for(A[1].size, n, vectors, self._threads)
            code = group_code(A, recurs=factors is not None, lanes=lanes)
        if code is None:
            super().run(rows_of(x, out.dtype), out, coefficients)
            return
        done, lanes = partial(group_powers, code, A), code.lanes
        size = work_size(n, out.dtype, lanes)

        def do(first: int) -> None:
            part = slice(first, first + lanes)
            try:
                work = self._scratch.pop()
            except IndexError:  # the others have theirs
                work = np.empty(size, dtype=out.dtype)
            if work.size < size:
                work = np.empty(size, dtype=out.dtype)
            done(out[:, part], work, factors, x[part])
            self._scratch.append(work)

        share_out("products", range(0, vectors, lanes), do, self._threads)

    def _rows_of(self, coefficients: Coefficients, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """The coefficients in rows; None where they are those of the monomial basis. The last ones are remembered."""
        if self._factors is None or self._factors[0] is not coefficients:
            rows = coefficient_rows(coefficients, coefficients.a.size, dtype)
            self._factors = coefficients, None if (rows == (1, 0, 0)).all() else rows
        return self._factors[1]


def _is_for_groups(plan: Plan) -> bool:
    return plan.variant == "csr" and plan.partitioner == "natural"


def _other(plan: Plan) -> Variant | None:
    """The variant of another package that a plan has; None of akx's own."""
    found = registry.variant("cpu", plan.variant)
    assert found is None or isinstance(found, Variant)
    return found


SCHEDULE = Sweep()
