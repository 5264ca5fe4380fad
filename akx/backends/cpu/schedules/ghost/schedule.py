"""`ghost`: every block takes its ghost zone along and does k_per_pass steps with no word to its neighbours.

Block g copies the entries of x of its closure (rows at distance <= k_per_pass) into a small local vector, makes
v_1, v_2, ... there on the rows still needed (distance <= k_per_pass - j at step j), and copies its own rows out. One
meeting of the threads per pass. Local columns are narrow (16 bits where a closure has at most 65,536 rows).

Flops: 2 nnz k redundancy; redundancy grows with k_per_pass and with the surface of the blocks. Traffic: the stacked
local matrices once per pass, vectors twice more than the wavefront (copies in and out). Good for bands and small
problems with many cores; a deep ghost zone of a 3-D problem does most of the work several times. Source: Demmel,
Hoemmen, Mohiyuddin and Yelick (IPDPS 2008), algorithm PA1; thesis ch. 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.cost import multiplied
from akx.backends.cpu.feasibility import basic_reason, block_plan_reason, unknown_variant, variant_reason
from akx.backends.cpu.layout import ordered, sigma_of
from akx.backends.cpu.program import TeamProgram
from akx.backends.cpu.schedules.ghost import cost
from akx.backends.cpu.schedules.ghost.kernel import GhostBlocks, run_ghost
from akx.backends.cpu.schedules.ghost.layout import MOST_ROWS, stacked, zones_of
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.value_update import NewValues
from akx.backends.cpu.variants import VARIANTS, Given, Known, index_bits, layout_of
from akx.backends.host import HostDevice, host_device
from akx.backends.schedule import Coefficients, Parameter, Program, Schedule, Traffic, check_feasible
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CpuGhost
from akx.core.plan import Plan
from akx.formats.base import Format, Pattern

__all__ = ["SCHEDULE", "Ghost"]

_PARTITIONERS = ("natural", "metis", "hypergraph")
#: From so many entries on, METIS takes long where it is for nothing (a minute for 8 million entries of a graph without
#: locality), so that zones are estimated first.
_DEAR = 1_000_000


class Ghost(Schedule):
    """See the module."""

    name = "ghost"
    backend = "cpu"
    options = CpuGhost
    description = "blocks with ghost zones do k steps each on their own"

    def space(self, matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cpu.schedules.ghost import options

        return options.space(matrix, device, k)

    def feasible(self, plan: Plan, matrix: Matrix, device: HostDevice) -> str | None:
        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        if plan.variant not in VARIANTS:
            return unknown_variant(plan.variant)
        reason = (
            layout_of(plan.variant).reason_against_zones
            or block_plan_reason(plan)
            or basic_reason(plan.replace(partitioner="natural", variant="csr"), matrix, ("natural",))
        )
        if reason is not None:
            return reason
        if plan.partitioner == "natural":
            redundancy = cost.redundancy(plan, matrix)
            if redundancy > MOST_ROWS:
                return f"about {redundancy:.0f} times the work would be done in ghost zones"
        elif matrix.nnz > _DEAR:
            closure = cost.closure(plan, matrix)
            if closure > cost.HOPELESS * MOST_ROWS:
                return f"even compact blocks would need about {closure:.0f} times their rows"
        return None

    def traffic(self, plan: Plan, matrix: Matrix, device: HostDevice) -> Traffic:
        return cost.traffic(plan, matrix, device)

    def padding(self, plan: Plan, matrix: Matrix) -> float:
        """Values multiplied for each one of the matrix, in natural order."""
        return multiplied(plan.replace(partitioner="natural"), matrix)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        check_feasible(self, plan, matrix, host_device())
        natural = ordered(matrix, "natural")
        count = max(plan.threads, round(cost.matrix_bytes(plan, matrix) / plan.block_bytes))
        zones, sizes = zones_of(matrix, plan.partitioner, count, plan.k_per_pass)
        blocks, pattern, entries, longest = stacked(natural.pattern, zones, sizes, plan)
        known = Known({}, plan.label(), plan.threads)
        reason = variant_reason(plan.variant, pattern, matrix.dtype, sigma=sigma_of(plan), block=1, known=known)
        if reason is not None:
            raise InfeasibleError(f"plan {plan.label()} is not feasible: {reason}")
        given = Given(pattern, matrix.dtype, index_bits(plan.variant, pattern.columns), 1, 1, known)
        layout = layout_of(plan.variant).lay_out_zones(given, blocks.row)
        program = _GhostProgram(layout, blocks, pattern, entries, matrix.nnz, longest, plan.k_per_pass)
        program.update_values(matrix.data)
        return program


class _GhostProgram(TeamProgram):
    """Stacked local matrices and what each block fetches; see :class:`akx.backends.program.Program`."""

    def __init__(
        self,
        layout: Format,
        blocks: GhostBlocks,
        pattern: Pattern,
        entries: NDArray[Any],
        nnz: int,
        longest: int,
        depth: int,
    ) -> None:
        super().__init__(int(blocks.thread_ptr.size - 1), layout.arrays.values.dtype)
        self._layout = layout
        self._blocks = blocks
        self._entries = entries
        self._new = NewValues(layout, pattern, entries, self._threads, nnz)
        self._longest = longest
        self._depth = depth

    @property
    def nbytes(self) -> int:
        held = sum(int(a.nbytes) for a in self._blocks)
        return self._layout.nbytes + self._new.nbytes + held + int(self._entries.nbytes) + int(self._work.nbytes)

    def update_values(self, data: NDArray[Any]) -> None:
        self._new.take(data)

    def _work_size(self, x: NDArray[Any], out: NDArray[Any]) -> int:
        return int(self._threads * (self._depth + 2) * x.shape[0] * self._longest)

    def _make_job(self, coefficients: Coefficients, dtype: np.dtype[Any]) -> Job:
        basis = (coefficients.a, coefficients.b, coefficients.c)
        fixed = (self._layout.arrays, self._blocks, self._depth, self._longest, self._work)
        return Job(run_ghost, (*fixed, *basis), self._threads, dtype)


SCHEDULE = Ghost()
