"""`wavefront` on the GPU: blocks of rows run diagonally through the powers while their entries stay on the chip.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. Every multiprocessor owns a strip of the matrix
(:mod:`akx.partition.wavefront_blocks`). At step t it does power p on block t - lag (p - 1), for all p at once, so that
the entries of a block come from memory once for all powers of a pass, whatever the size of the matrix: in registers of
the warp that has the slice, and in shared memory. Strips exchange what lies along their edges by words that carry a
tag; there is no barrier between them and none is waited for at once, since what is published at one step is read
`slack` + 2 steps later. Values may be stored in half their bytes, or as numbers of the different ones, where that is
exact or the error is allowed (:mod:`akx.backends.cuda.value_compression.encodings`). See ``wavefront.cuh`` for the
kernel and :mod:`akx.backends.cuda.schedules.wavefront.layout` for the layout.

Traffic per call and start vector: the matrix once per pass (w + 2 bytes a place, w those of a stored value), k results
and one x; through L2 also 2 w bytes for each value published, w those of a value, and as many for each reader.
Flops: 2 nnz k, no redundancy.
Steps: about blocks + lag (powers - 1) in a pass, and some before the first block has all it needs;
lag = reach + 2 + slack.

Source: the diagonal order is that of Alappat et al., "Level-based blocking for sparse matrices", TPDS 2023, for CPUs;
strips, registers as the place of a block and tagged words between strips are akx's own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil

from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.reordered import moved_bytes, prepared, with_order
from akx.backends.cuda.schedules.base import CudaSchedule, misnamed
from akx.backends.cuda.schedules.wavefront import strips as fronts
from akx.backends.cuda.schedules.wavefront.layout import WARP, Shape, lag_of
from akx.backends.cuda.schedules.wavefront.options import BLOCKS, DIA, OPTIONS, VARIANTS
from akx.backends.cuda.schedules.wavefront.program import WavefrontProgram
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    error_of,
    is_storable,
    same_as_full,
    stored_bytes,
    way_of,
)
from akx.backends.cuda.value_compression.program import there_or_by_host
from akx.backends.cuda.variants.block_local.shapes import padding
from akx.backends.schedule import Program, Traffic, Work, check_feasible, option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaWavefront
from akx.core.plan import Plan
from akx.partition.level_order import ORDERS

__all__ = ["SCHEDULE", "Wavefront"]

#: The kernel is written out for each step of a lag, and for each slice of a warp.
_MOST_LAG, _MOST_PER = 12, 4


class Wavefront(CudaSchedule):
    """See the module."""

    name = "wavefront"
    options = CudaWavefront
    description = "blocks run diagonally through the powers while they are on the chip"
    layout_shares, layout_turn = 2, 2
    gives_way = ("stored", "held_slots", "slack", "slices", "block", "k_per_pass")

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        try:
            plan, matrix = fronts.in_order(plan, matrix, device)
        except InfeasibleError as refusal:
            return str(refusal)
        if reason := misnamed(plan, ORDERS, VARIANTS) or option_reason(plan, OPTIONS):
            return reason
        powers, lanes = plan.k_per_pass, fronts.lanes_of(plan)
        if not 1 <= powers <= min(plan.k, fronts.MOST_POWERS):
            return f"{powers} powers per pass, expected 1 .. {min(plan.k, fronts.MOST_POWERS)}"
        if plan.variant == DIA and plan.partitioner != ORDERS[0]:
            return "diagonals are those of the rows in their order"
        if plan.variant != DIA and padding(matrix, lanes, 1) > fronts.MOST_PADDING:
            return f"rows are too short for {lanes} lanes each"
        try:
            if plan.variant == DIA and not fronts.suits_runs(matrix, device.sms, fronts.room_of(plan)):
                return "rows read on both sides of where a block begins"
            few = fronts.shape_of_plan(matrix, plan, device, lambda dealt: 0)
            most = fronts.shape_of_plan(matrix, plan, device, partial(fronts.most_entries, matrix))
            reason = self._too_large(fronts.used_plan(plan, matrix, device, few), matrix, device, few)
            if reason or self._too_large(fronts.used_plan(plan, matrix, device, most), matrix, device, most) is None:
                return reason  # whatever the entries of the fullest block
            least = fronts.least_shape(matrix, plan, device)
        except InfeasibleError as refusal:
            return str(refusal)
        return self._too_large(fronts.used_plan(plan, matrix, device, least), matrix, device, least)

    def _too_large(self, plan: Plan, matrix: Matrix, device: CudaDevice, least: Shape) -> str | None:
        per = fronts.slices_each_step(plan)
        if least.lag > _MOST_LAG or per > _MOST_PER:
            return f"{least.lag * per} slices of a warp at work: blocks are too small, or threads too few"
        registers, room = fronts.registers_of(plan, matrix.dtype, device, least.strips, least.runs)
        if registers > room:
            return f"{registers} registers for slices do not fit {room}"
        shared = fronts.shared_bytes(least, plan, matrix)
        if shared + fronts.STATIC > device.shared_per_block:
            return f"x and blocks on their way take {shared} bytes, of {device.shared_per_block} shared ones"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        plan, matrix = fronts.in_order(plan, matrix, device)
        if reason := self._stored_else(plan, matrix, device):
            return reason
        slots, held = fronts.slots_for(matrix, fronts.lanes_of(plan)), plan.typed.held_slots
        if held > max(1, slots):
            return f"registers for {held} slots of a slice, of {slots}"
        width = int(fronts.order_of(matrix, plan.partitioner).mean_width)
        if width < device.sms // 2:
            return f"levels of {width} rows, for {device.sms} multiprocessors"
        busy = plan.k_per_pass * plan.typed.slices
        warps = plan.typed.block // WARP
        if any(busy <= fewer // WARP < warps for fewer in BLOCKS):
            return f"{warps} warps for {busy} slices at a time"
        return None

    def _stored_else(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        """Why values are not stored as a feasible plan says."""
        if (
            way_of(plan) == FULL
            or fronts.used_plan(plan, matrix, device, fronts.least_shape(matrix, plan, device)) == plan
        ):
            return None
        return same_as_full(plan, "their table does not fit" if is_storable(plan, matrix) else None)

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        used, near = fronts.in_order(plan, matrix, device)
        if near is not matrix:
            found = self.traffic(used, near, device)
            return replace(found, vector_bytes=found.vector_bytes + moved_bytes(matrix, plan.k))
        size, passes = matrix.dtype.itemsize, ceil(plan.k / plan.k_per_pass)
        each = stored_bytes(way_of(fronts.storable(plan, matrix)), matrix.dtype) + (2.0 if plan.variant != DIA else 0.0)
        stored = matrix.nnz * padding(matrix, fronts.lanes_of(plan), 1) * each + 12.0 * matrix.n
        vector = float(matrix.n * size)
        return Traffic(
            matrix_bytes=passes * stored,
            vector_bytes=vector * (plan.k + 2.0 * passes - 1),
            flops=2.0 * matrix.nnz * plan.k,
            cache_bytes=passes * stored + vector * (plan.k + passes),
            synchronisations=float(passes) * self._steps(plan, matrix, device),
        )

    def stored_error(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
        plan, matrix = fronts.in_order(plan, matrix, device)
        return error_of(
            matrix, way_of(fronts.used_plan(plan, matrix, device, fronts.least_shape(matrix, plan, device)))
        )

    def _steps(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
        try:
            dealt = fronts.strips_of_plan(matrix, plan, device)
        except InfeasibleError:
            return ceil(matrix.n / (device.sms * fronts.room_of(plan))) + 3 * plan.k_per_pass
        return dealt.blocks + lag_of(dealt, plan.typed.slack) * plan.k_per_pass

    def work(self, plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
        from akx.backends.cuda.schedules.wavefront import cost

        used, near = fronts.in_order(plan, matrix, device)
        if near is not matrix:
            return with_order(self.work(used, near, device, vectors), matrix, plan.k, vectors)
        steps = self._steps(plan, matrix, device)
        return cost.work(plan, matrix, device, vectors, steps, self.traffic(plan, matrix, device))

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        plan, matrix = fronts.in_order(plan, matrix, device)
        fronts.front_of(matrix, plan, device)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        used, near = fronts.in_order(plan, matrix, device)
        if near is not matrix:
            return prepared(matrix, partial(self.prepare, plan=used))
        front = fronts.front_of(matrix, plan, device)
        used = fronts.used_plan(plan, matrix, device, front)
        return there_or_by_host(partial(WavefrontProgram, matrix, front, used))


SCHEDULE = Wavefront()
