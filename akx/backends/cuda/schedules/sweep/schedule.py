"""`sweep` on the GPU: k products one after another in one graph, in every SpMV variant. The baseline of akx itself.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}, one kernel a step (two for PCSR), the recurrence fused. Variants:

csr-1 .. csr-32       compressed sparse rows, 1 to 32 threads per row (Bell and Garland, SC 2009)
rows16                rows padded to 16 entries, half a warp each, results gathered in shared memory (Zhang et al. 2009,
                      after Baskaran and Bordawekar)
pcsr                  partitions of 256 entries, rows padded to `pad`, `ahead` partitions a block (Mehri Dehnavi 2012,
                      ch. 3 and 4, without atomics)
sell-1 .. sell-8      slices of 32 rows stored by columns, 1 to 8 threads per row (Kreutzer et al. 2014)
sell16-1 .. sell16-8  the same with 16-bit columns relative to a base per slice
vbell-1 .. vbell-8    dense blocks of mixed sizes with one index each, 1 to 8 threads per row
                      (:mod:`akx.backends.cuda.variants.vbell`)
hubs                  for graphs: entries dealt evenly to warps, the most read ones of x, `hubs` KiB, in shared memory
                      (:mod:`akx.backends.cuda.variants.hot_columns`)

By `levels` rows are in the order of breadth-first levels, in which they read what is near, and vectors are brought into
it and back (:mod:`akx.backends.cuda.reordered`): for large meshes that come in no order.

Values may be stored in half their bytes, or as numbers of the different ones
(:mod:`akx.backends.cuda.value_compression.encodings`); a plan is plain products only where they are stored in full.

Traffic per call and start vector: k times the matrix unless it fits the L2 cache, k times x read and y written.
Flops: 2 nnz k.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty
from akx.backends.cuda.device.runtime import STARTS_EARLY
from akx.backends.cuda.reordered import moved_bytes, prepared
from akx.backends.cuda.row_lengths import starts_of_rows
from akx.backends.cuda.schedules.base import CudaSchedule, misnamed
from akx.backends.cuda.schedules.sweep.layout import (
    BY_LEVELS,
    CSR,
    NATURAL,
    PCSR,
    ROWS16,
    SELL,
    VBELL,
    WITH_HUBS,
    bytes_of,
    in_order,
    kind_of,
    lay_out,
    macros,
    other_of,
    slots_in,
    storable,
)
from akx.backends.cuda.schedules.sweep.options import OPTIONS, VARIANTS, keeps
from akx.backends.cuda.value_compression.encodings import (
    TABLE,
    error_of,
    is_storable,
    placed,
    same_as_full,
    way_of,
)
from akx.backends.cuda.value_compression.new_values import entry_map
from akx.backends.cuda.value_compression.program import there_or_by_host
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants import vbell
from akx.backends.cuda.variants.hot_columns import HUBS
from akx.backends.cuda.variants.outside import OutsideProgram, outside_reason
from akx.backends.cuda.variants.slots import SLICE, near, padded_rows, pattern_there, slices_of
from akx.backends.cuda.variants.swept import SweptProgram
from akx.backends.schedule import Program, Traffic, check_feasible, option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaSweep
from akx.core.plan import Plan

__all__ = ["SCHEDULE", "Sweep"]

_SOURCE = Path(__file__).with_name("sweep.cu")
_ROWS_PER_BLOCK = 128

#: Slots per entry that a padded format may need.
_MOST_PADDING = {SELL: 2.0, PCSR: 2.0, ROWS16: 4.0}


class Sweep(CudaSchedule):
    """See the module."""

    name = "sweep"
    options = CudaSweep
    description = "k products one after another in one graph (the baseline)"
    layout_shares, layout_turn = 1, 4
    step_price = "synchronisation"
    #: Its kernels neither wait for one another nor use addresses that depend on more than the layout.
    may_crash = False

    def plainest(self, k: int) -> Plan:
        return Plan(self.backend, self.name, "csr-1", k=k)

    def _fits(self, variant: str, matrix: Matrix, device: CudaDevice) -> bool:
        kind, lanes, _ = kind_of(variant)
        if kind == WITH_HUBS:
            return hubs.worthwhile(matrix, device)
        if kind == VBELL:
            return vbell.worthwhile(matrix, lanes)
        return self._variant_reason(variant, matrix, CudaSweep.pad, CudaSweep.sigma) is None

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        try:
            plan, matrix = in_order(plan, matrix)
        except InfeasibleError as refusal:
            return str(refusal)
        reason = self.reason_at_once(plan, matrix, device)
        if reason is not None or other_of(plan) is not None or kind_of(plan.variant)[0] != VBELL:
            return reason
        return vbell.reason_against(matrix, kind_of(plan.variant)[1])

    def reason_at_once(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        """As :meth:`feasible`, but for what only the nodes of `vbell` tell, where these are not known.

        :meth:`prepare` has the device find them, in less time than the host takes.
        """
        try:
            plan, matrix = in_order(plan, matrix)
        except InfeasibleError as refusal:
            return str(refusal)
        if reason := misnamed(plan, ("natural",)):
            return reason
        if plan.k_per_pass != 1:
            return f"a sweep does one power per pass, not {plan.k_per_pass}"
        other = other_of(plan)
        if other is not None:
            return option_reason(plan, OPTIONS) or outside_reason(plan) or other.reason_against(matrix)
        if reason := misnamed(plan, ("natural",), VARIANTS) or option_reason(plan, OPTIONS):
            return reason
        kind = kind_of(plan.variant)[0]
        if kind != SELL and plan.typed.sigma != 1:
            return f"sigma is for sliced ELL, not for {plan.variant}"
        if kind != PCSR and (plan.typed.pad, plan.typed.ahead) != (CudaSweep.pad, CudaSweep.ahead):
            return f"pad and ahead are for pcsr, not for {plan.variant}"
        if plan.typed.keep and not plan.typed.once:
            return "keep is for matrix data that is marked: say once=True as well"
        if kind in (ROWS16, PCSR, WITH_HUBS) and plan.typed.block != CudaSweep.block:
            return f"{plan.variant} has blocks of one size: leave `block` at {CudaSweep.block}"
        room = plan.typed.hubs
        if kind == WITH_HUBS:
            return hubs.reason_against(matrix, room, device)
        if room not in (hubs.ROOM, hubs.usual_room(device)):
            return f"hubs is for the variant of this name, not for {plan.variant}"
        if kind == VBELL:
            return vbell.known_reason(matrix, kind_of(plan.variant)[1])
        return self._variant_reason(plan.variant, matrix, plan.typed.pad, plan.typed.sigma)

    def _variant_reason(self, variant: str, matrix: Matrix, pad: int, sigma: int) -> str | None:
        kind, lanes, bits = kind_of(variant)
        if kind == VBELL:
            return vbell.reason_against(matrix, lanes)
        if kind == CSR:
            return None if matrix.nnz + matrix.n < 2**32 else "more than 2**32 entries"
        slots = slots_in(matrix, kind, pad, sigma)
        if slots >= 2**32:
            return "more than 2**32 slots"
        if slots > _MOST_PADDING[kind] * matrix.nnz + 4096:
            return f"padding would make it more than {_MOST_PADDING[kind]:g} times as large"
        if bits == 16 and not near(matrix, sigma):
            return "columns of one slice lie more than 65,535 apart"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        plan, matrix = in_order(plan, matrix)
        if not is_storable(plan, matrix):
            return same_as_full(plan)
        if plan.typed.early and device.compute_capability < STARTS_EARLY:
            return "a step cannot begin early on compute capability {}.{}".format(*device.compute_capability)
        keep = int(plan.typed.keep)
        if keep == 0:
            return None
        if keep not in keeps(device):
            return f"L2 asked to keep {keep} MiB: it has {device.l2_bytes / 2**20:g}"
        size = bytes_of(plan, matrix) / 2**20
        return f"L2 asked to keep {keep} MiB of {size:.1f}: leave `once` out" if keep > size else None

    def stored_error(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
        return error_of(matrix, way_of(plan))

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        moved = 0.0 if plan.partitioner == NATURAL else moved_bytes(matrix, plan.k)
        plan, matrix = in_order(plan, matrix)
        once = bytes_of(plan, matrix)
        vector = float(matrix.n * matrix.dtype.itemsize)
        is_hubs = plan.variant == HUBS
        brought = 1024.0 * device.sms * plan.typed.hubs if is_hubs else 0.0
        resident = once + 2 * vector <= 0.75 * device.l2_bytes
        kept = once if resident else min(2.0**20 * int(plan.typed.keep), once, 0.75 * device.l2_bytes)
        return Traffic(
            matrix_bytes=once + (once - kept) * (plan.k - 1),
            vector_bytes=2.0 * plan.k * vector + vector + moved,
            flops=2.0 * matrix.nnz * plan.k,
            cache_bytes=(once + 2 * vector + brought) * plan.k,
            synchronisations=float(plan.k),
        )

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        plan, matrix = in_order(plan, matrix)
        other = other_of(plan)
        if other is not None:
            other.pack(matrix)
            return
        kind, lanes, _ = kind_of(plan.variant)
        if kind == VBELL:
            vbell.reason_against(matrix, lanes)  # the device lays it out
        elif kind == WITH_HUBS:
            hubs.lay_out(matrix, plan.typed.hubs, device.sms)
        elif kind != CSR:
            lay_out(matrix, plan)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        if plan.partitioner == BY_LEVELS:
            return prepared(matrix, partial(self.prepare, plan=plan.replace(partitioner=NATURAL)))
        device, way = cuda_device(), way_of(plan)
        is_blocks = plan.variant.startswith("vbell-") and self.reason_at_once(plan, matrix, device) is None
        if is_blocks and (program := vbell.made_on_device(matrix, storable(plan, matrix), device, way)) is not None:
            return program  # the host need not look for nodes: the device knows that there is such a layout
        check_feasible(self, plan, matrix, device)
        other = other_of(plan)
        if other is not None:
            return OutsideProgram(other, matrix, plan, device)
        used = storable(plan, matrix)
        if is_blocks:
            return vbell.VbellProgram(matrix, used, device, way, vbell.laid_out(matrix, kind_of(plan.variant)[1]))
        made = hubs.HubsProgram if plan.variant == HUBS else _SweepProgram
        return there_or_by_host(partial(made, matrix, used, device, way))


class _SweepProgram(SweptProgram):
    """The arrays of one variant on the device, and a kernel for each number of start vectors.

    They are laid out there; `by_host`: by the host, which takes less memory of the device.
    """

    def __init__(self, matrix: Matrix, plan: Plan, device: CudaDevice, planned: str, *, by_host: bool = False) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._plan, self._device = plan, device
        self._kind, lanes, _ = kind_of(plan.variant)
        self._block = plan.typed.block
        self._shares: dict[int, DeviceArray] = {}
        self._splits = self._partitions = 0
        self._slot: NDArray[Any] | None = None
        if self._kind == CSR:
            self._slots = max(1, matrix.nnz)
            start, column = (self.held(array) for array in pattern_there(matrix))
            column = column if matrix.nnz else self.held(empty(1, np.uint32))
            self._before: list[Any] = [start, column]
            self._after: list[Any] = []
            self._grid = -(-matrix.n * lanes // self._block)
        elif not by_host:
            self._lay_out_there(matrix, lanes)
        else:
            layout = lay_out(matrix, plan)
            self._slot, self._slots = layout.slot, max(1, layout.stored)
            self._take_arrays(layout.arrays, matrix.n, lanes)
        self.store_values(matrix, way_of(plan), planned, self._laid, self._map)

    def _lay_out_there(self, matrix: Matrix, lanes: int) -> None:
        plan = self._plan
        if self._kind == SELL:
            found: Any = slices_of(matrix, plan.typed.sigma, kind_of(plan.variant)[2])
        elif self._kind == ROWS16:
            found = padded_rows(matrix, 16)
            found = found._replace(start=starts_of_rows(pattern_there(matrix)[0], 16, 16)[0])
        else:
            found = padded_rows(matrix, plan.typed.pad)
        self.entry, self._slots = found.entry, max(1, found.entry.size)
        self._take_arrays(found, matrix.n, lanes)

    def _take_arrays(self, arrays: Any, n: int, lanes: int) -> None:
        column = self._placed(arrays.column if arrays.column.size else np.zeros(1, arrays.column.dtype))
        if self._kind == SELL:
            start, base = self._placed(arrays.start), self._placed(arrays.base)
            order: Any = self._placed(arrays.row) if arrays.row.size else 0
            self._before, self._after = [start, base, column], [order]
            self._grid = -(-(-(-n // SLICE) * SLICE) * lanes // self._block)
        elif self._kind == ROWS16:
            there = isinstance(arrays.start, DeviceArray)  # in rows of 16 then
            start = self.held(arrays.start) if there else self.hold((arrays.start // 16).astype(np.uint32))
            self._before, self._after = [start, column], []
            self._grid = -(-n // _ROWS_PER_BLOCK)
        else:
            self._partitions, self._splits = arrays.row.size - 1, arrays.split.size
            self._before, self._after = [self._placed(arrays.start), column], [self._placed(arrays.row)]
            self._after.append(np.uint32(self._partitions))
            self._grid = -(-self._partitions // self._plan.typed.ahead)
            if self._splits:
                self._join = [self.hold(array) for array in (arrays.split, arrays.begin, arrays.end)]

    def _placed(self, array: Any) -> DeviceArray:
        """An array of the layout on the device, where it may be; numbers of 64 bits become such of 32."""
        if isinstance(array, DeviceArray):
            return self.held(array)
        return self.hold(array.astype(np.uint32) if array.dtype.itemsize == 8 else array)

    def _laid(self, data: NDArray[Any]) -> NDArray[Any]:
        """Values of the host in their slots."""
        if self.entry is not None:
            return placed(data, self.entry_of_host())
        laid = np.zeros(self._slots, dtype=data.dtype)
        laid[slice(data.size) if self._slot is None else self._slot] = data
        return laid

    def _map(self) -> NDArray[np.uint32] | None:
        """Which entry each slot has; None where slots are the entries, and places are not looked up."""
        if self.entry is not None:
            return self.entry_of_host()
        if self._slot is not None:
            return entry_map(self._slot, self._slots)
        return np.arange(1, self._entries + 1, dtype=np.uint32) if self._way == TABLE else None

    @property
    def nbytes(self) -> int:
        """Bytes on the device, and of the map from entries to slots on the host."""
        return super().nbytes + (0 if self._slot is None else int(self._slot.nbytes))

    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        module = load(_SOURCE, macros(self._plan, self.dtype, vectors, stored), device=self._device)
        if self._kind == PCSR and vectors not in self._shares:
            self._shares[vectors] = self.held(empty((2, vectors, self._partitions), self.dtype))
        return {name: module.kernel(name) for name in (("step", "join") if self._splits else ("step",))}

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors = x.shape[0]
        kernels, n = self.kernels[vectors], np.uint32(self.n)
        extra = [np.uint64(argument) if isinstance(argument, int) else argument for argument in self._after]
        shares: list[Any] = []
        if self._kind == PCSR:
            both = self._shares[vectors]
            shares = [both, both.view(both.size // 2, (vectors, self._partitions))]
        matrix, kept = [n, *self._before, self._values, self._table, *extra], self.kept(self._before[-1])
        for j, vectors_of in enumerate(self.powers(x, out, coefficients)):
            arguments = [*matrix, *shares, *vectors_of, kept]
            early = j > 0 and self.is_early
            kernels["step"].launch(self._grid, self._block, arguments, early=early, stream=self.stream)
            if self._splits:
                counts = [np.uint32(self._splits), np.uint32(self._partitions)]
                arguments = [n, *self._join, *counts, *shares, *vectors_of]
                grid = -(-self._splits // 128)
                kernels["join"].launch(grid, 128, arguments, early=self.is_early, stream=self.stream)


SCHEDULE = Sweep()
