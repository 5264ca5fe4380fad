"""`resident` on the GPU: the matrix stays on the multiprocessors for all k steps, only the halo of x is exchanged.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. One part of the matrix per multiprocessor, one cooperative launch per call.
Slots of a part are in registers, in shared memory, and, what fits neither, in L2 or memory. After each step a part
raises its flag and waits for those of its neighbours only; border rows are computed and published first. With depth > 1
it does so every `depth` steps, and computes the ghost rows in between along (fewer waits, some work twice). See
``parts.cuh`` for the kernel and :mod:`akx.formats.block_local` for the layout.

Where rows of a part lie anywhere in the results, these may come through a stage into the order of rows; all parts then
wait for all.

Traffic per call and start vector: the matrix once, k times what does not stay on chip (or in L2), x and k results, and
with a stage those k twice more through L2. Flops: 2 nnz k. Variants: ``BRxBC-L``, dense blocks of BR x BC and L lanes
per block row; ``dia``, diagonals of 32 rows (:mod:`akx.backends.cuda.variants.diagonals`). Values of blocks may be
stored in half their bytes, and those of single entries as numbers of the different ones, where that is exact or the
error is allowed (:mod:`akx.backends.cuda.value_compression.encodings`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from akx.backends.cuda.cost.model import gathered_share
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.schedules.base import CudaSchedule, misnamed
from akx.backends.cuda.schedules.resident import layout
from akx.backends.cuda.schedules.resident.options import KEEP, OPTIONS, PARTITIONERS
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    TABLE,
    error_of,
    is_storable,
    same_as_full,
    table_bytes,
    way_of,
)
from akx.backends.cuda.value_compression.program import there_or_by_host
from akx.backends.cuda.variants import diagonals
from akx.backends.cuda.variants.block_local import shapes
from akx.backends.cuda.variants.block_local.cost import likely_cut_of
from akx.backends.cuda.variants.block_local.layout import active_slices, choice_reason, entry_bytes, shared_limit, waste
from akx.backends.cuda.variants.block_local.program import PartsProgram
from akx.backends.cuda.variants.options import BLOCKS
from akx.backends.schedule import Program, Traffic, check_feasible, option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaResident
from akx.core.plan import Option, Plan
from akx.formats.block_local import WARP, Shape

__all__ = ["SCHEDULE", "Resident"]


class Resident(CudaSchedule):
    """See the module."""

    name = "resident"
    options = CudaResident
    description = "the matrix stays on the multiprocessors, only the halo of x is exchanged"
    layout_shares, layout_turn = 2, 1
    step_price = "barrier"

    def plainest(self, k: int) -> Plan:
        return Plan(self.backend, self.name, "1x1-1", k=k, k_per_pass=k)

    def untuned_for(self, matrix: Matrix, device: CudaDevice, k: int) -> Plan:
        """A plan that fits, where one does, from the sizes and how far rows read; by diagonals where they suit."""
        plain = self._plain(matrix, device, k)
        if not diagonals.offered(matrix, device):
            return self._staged(plain, matrix, device) or plain
        return plain.replace(variant=diagonals.DIA, options=diagonals.default_options(matrix, device))

    def _plain(self, matrix: Matrix, device: CudaDevice, k: int, way: str = FULL) -> Plan:
        """A plan that fits, in dense blocks, with values stored that way."""
        br, bc = shapes.best_shape(matrix)
        shape, far = (
            self._shape(matrix, device, br, bc),
            layout.reach_of_nodes(matrix, bc) > layout.FAR or layout.is_scattered(matrix, device, bc),
        )
        most = 1024 if br * bc == 1 else 384
        # Where nothing is read again in each step, x in shared memory is faster; else what it takes is missed more.
        once = matrix.nnz / shapes.fill_of(matrix, bc) * entry_bytes(shape, matrix.dtype, way)
        once += 3 * shapes.filled_rows(matrix, bc) * matrix.dtype.itemsize
        near = far or not shapes.rows_follow(matrix, bc)
        options: dict[str, Option] = {
            "block": min(most, shapes.fitting_block(shapes.slices_per_part(matrix, shape, device.sms, 1.0), BLOCKS)),
            "held_slices": 0,
            "held_slots": 1,
            "x": "shared" if near or once <= 1.3 * device.sms * device.shared_per_block else "global",
            "keep": KEEP,
            "vectors": 1,
            "stored": way,
        }
        if options["block"] == 1024 and options["x"] == "shared" and k > 1:
            options["exchange"] = shapes.FLAGS  # of 64 registers for a thread those that values take are missed
        order = PARTITIONERS[far]  # rows that read so far have little in common with those next to them
        return Plan(self.backend, self.name, f"{br}x{bc}-{shape.lanes}", order, k, k, options=options)

    def _shape(self, matrix: Matrix, device: CudaDevice, br: int, bc: int) -> Shape:
        """Blocks with as many lanes for each of their rows as keep multiprocessors busy, where rows are long enough."""
        rows = shapes.filled_rows(matrix, bc) / br / max(device.sms, 1)
        lanes = next((n for n in (1, 2, 4, 8) if rows * n >= 512 or n == 8), 8)
        while lanes > 1 and shapes.padding(matrix, lanes, bc) > 1.25:
            lanes //= 2
        return Shape(br, bc, lanes, 1, 0, 1)

    def _staged(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Plan | None:
        """The plan with results through a stage, where rows lie anywhere and there very likely is room for it."""
        if (
            plan.variant == diagonals.DIA
            or not shapes.results_apart(plan, matrix)
            or gathered_share(matrix) <= layout.SCATTERED
        ):
            return None
        options = {name: value for name, value in plan.options.items() if name != "exchange"}
        staged = plan.replace(options={**options, "results": shapes.STAGED})
        if self.feasible(staged, matrix, device) is not None:
            return None
        shape, parts = shapes.shape_of(plan), device.sms * plan.typed.blocks_per_sm
        likely = likely_cut_of(matrix, shape.bc, parts, 1)
        cut = replace(likely, own=layout.LIKELY_OWN * likely.own)
        fixed = layout.fixed_of(staged, cut, matrix, device) + table_bytes(matrix, way_of(plan))
        return staged if fixed <= shared_limit(plan, device) else None

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        if reason := misnamed(plan, PARTITIONERS):
            return reason
        if plan.k_per_pass != plan.k:
            return f"all {plan.k} powers are done in one pass, not {plan.k_per_pass} at a time"
        if plan.variant == diagonals.DIA:
            return option_reason(plan, OPTIONS) or diagonals.reason_against(plan, matrix, device)
        reason = choice_reason(plan, matrix, device, OPTIONS, plan.typed.blocks_per_sm)
        if reason is not None:
            return reason
        if way_of(plan) == TABLE and shapes.shape_of(plan).slot != WARP:
            return "a table of values is for blocks of one entry"
        if plan.typed.x == "global" and not shapes.rows_follow(matrix, shapes.shape_of(plan).bc):
            return "with x in global memory, rows of a node must follow one another"
        if plan.typed.x == "global" and layout.reach_of_nodes(matrix, shapes.shape_of(plan).bc) > layout.FAR:
            what = "rows" if shapes.is_listed(matrix, shapes.shape_of(plan).bc) else "nodes"
            far = f"{layout.FAR:,} {what} apart"
            return f"with x in global memory, columns of a row that lie more than {far} have no number"
        if plan.typed.depth > plan.k:
            return f"an exchange every {plan.typed.depth} steps, of {plan.k}"
        if plan.typed.depth != 1 and plan.typed.x != "shared":
            return "with x in global memory the exchange is in every step"
        vectors = plan.typed.vectors
        if shapes.is_staged(plan) and (plan.typed.x != "shared" or plan.typed.depth != 1):
            return "results are staged where x is in shared memory, and exchanged in every step"
        each = shapes.filled_rows(matrix, shapes.shape_of(plan).bc) * matrix.dtype.itemsize * vectors / device.sms
        x, what = (3.0 * each, "x and results take") if shapes.is_staged(plan) else (2.0 * each, "x takes")
        if plan.typed.x == "shared" and x > device.shared_per_block:
            return f"{what} {x:.0f} bytes of each multiprocessor, of {device.shared_per_block} shared ones"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        has_choice = plan.variant != diagonals.DIA and shapes.may_wait_for_values(plan)
        if plan.typed.exchange != shapes.VALUES and not has_choice:
            return f"{shapes.FLAGS} are what parts wait for in any case, or for nothing"
        if plan.variant == diagonals.DIA:  # offered where all stays on the chip
            keep = plan.typed.keep
            if way_of(plan) != FULL:
                return f"diagonals are stored in {FULL}"
            if shapes.is_staged(plan):
                return "diagonals write results in the order of rows"
            return None if keep == KEEP else f"L2 asked to keep {keep} MiB of none"
        if shapes.is_staged(plan) and not shapes.results_apart(plan, matrix):
            return "parts have rows that follow one another, and write them so"
        if not is_storable(plan, matrix):
            return same_as_full(plan)
        if way_of(plan) == TABLE and layout.least_shared(plan, matrix, device) > shared_limit(plan, device):
            return same_as_full(plan, "its table does not fit beside x")
        growth = 1.0 if plan.typed.depth == 1 else layout.MOST_ROWS
        found = waste(plan, matrix, device.sms * plan.typed.blocks_per_sm, BLOCKS, growth)
        keep, again = int(plan.typed.keep), layout.bytes_read_again(plan, matrix, device)
        if keep != KEEP and (again <= 0 or (keep > KEEP and again <= KEEP * 2**20)):
            return f"L2 asked to keep {keep} MiB of {max(0.0, again) / 2**20:.0f}: the same as {KEEP}"
        return found

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        if plan.variant == diagonals.DIA:
            return diagonals.traffic(plan, matrix, device)
        plan = layout.storable(plan, matrix, device)
        once, rest = layout.laid_out_bytes(plan, matrix), max(0.0, layout.bytes_read_again(plan, matrix, device))
        return diagonals.resident_traffic(plan, matrix, device, once, rest, 3.0 if shapes.is_staged(plan) else 1.0)

    def stored_error(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
        return 0.0 if plan.variant == diagonals.DIA else error_of(matrix, way_of(plan))

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        if plan.variant == diagonals.DIA:
            diagonals.lay_out(matrix, plan, device)
            return
        _, zones = layout.lay_out_resident(matrix, plan, device)
        if zones is not None:
            active_slices(zones, shapes.shape_of(plan), plan.typed.depth)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        if plan.variant == diagonals.DIA:
            return diagonals.DiagonalsProgram(matrix, diagonals.lay_out(matrix, plan, device), plan)
        return there_or_by_host(partial(self._program, matrix, plan, device))

    def _program(self, matrix: Matrix, plan: Plan, device: CudaDevice, *, by_host: bool = False) -> PartsProgram:
        """The program in parts, laid out on the device; `by_host`: by the host, which takes less of its memory."""
        plan = layout.storable(plan, matrix, device)
        planned = way_of(plan)
        try:
            laid_out, zones = layout.lay_out_resident(matrix, plan, device, there=not by_host)
        except InfeasibleError:
            if planned != TABLE:
                raise
            plan = layout.without_compression(
                plan, matrix, device
            )  # no room for the table, where the plan is of other values
            laid_out, zones = layout.lay_out_resident(matrix, plan, device, there=not by_host)
        depth, per_sm = plan.typed.depth, plan.typed.blocks_per_sm
        active = {} if zones is None else {depth: active_slices(zones, shapes.shape_of(plan), depth)}
        pattern, known = matrix.pattern, matrix.pattern_cache

        def stored_in_full(data: NDArray[Any]) -> PartsProgram:  # holds no values
            fresh = Matrix(pattern.indptr, pattern.indices, data.view(), pattern_cache=known)
            found = self.prepare(fresh, layout.without_compression(plan, fresh, device))
            assert isinstance(found, PartsProgram)
            return found

        return PartsProgram(matrix, laid_out, plan, (plan.k,), active, per_sm, planned, stored_in_full)


SCHEDULE = Resident()
