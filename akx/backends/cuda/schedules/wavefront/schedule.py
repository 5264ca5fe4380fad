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

from collections.abc import Callable
from copy import copy
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, to_device
from akx.backends.cuda.matrix import features
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.wavefront.layout import (
    LEAST_FETCHED,
    LINE,
    RING,
    WARP,
    Front,
    Shape,
    asks_of,
    lag_of,
    lay_out,
    slices_per_step,
)
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    TABLE,
    error_of,
    in_full,
    is_storable,
    same_as_full,
    stored_bytes,
    table_bytes,
    values_of,
    way_of,
)
from akx.backends.cuda.value_compression.new_values import not_empty
from akx.backends.cuda.value_compression.program import StoredProgram, there_or_by_host
from akx.backends.cuda.variants.block_local.program import padding, widest
from akx.backends.cuda.variants.options import LANES
from akx.backends.schedule import Parameter, Program, Schedule, Traffic, Work, check_feasible, option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaWavefront
from akx.core.plan import Plan
from akx.formats.base import pattern_of
from akx.partition.level_order import ORDERS, LevelOrder, is_shallow, learnt_rows, level_order, levels_of_period
from akx.partition.wavefront_blocks import Strips, dealt, fullest, strips

__all__ = ["SCHEDULE", "Wavefront", "WavefrontProgram", "front_of", "macros", "strips_of"]

_SOURCE = Path(__file__).with_name("wavefront.cu")
#: Powers of a pass: which of them have which terms is a word of 32 bits.
_MOST_POWERS = 32
#: Places over entries up to which rows are worth so many lanes.
_MOST_PADDING = 2.0
#: The kernel is written out for each step of a lag, and for each slice of a warp.
_MOST_LAG, _MOST_PER = 12, 4
#: A front has to begin and to end: with fewer levels than that it does little else.
_FEWEST_LEVELS = 24
#: Entries of which breadth-first levels are made in a tenth of a second or two: they are not looked at first.
_SOON = 400_000
#: Bytes of shared memory that the kernel has besides.
_STATIC = 64
#: 32-bit registers of a thread that its slices may not take, a few of which wait in memory then; and of a slice besides
#: its values and columns.
_WORKING_REGISTERS, _SLICE_REGISTERS = 14, 2


class Wavefront(Schedule):
    """See the module."""

    name = "wavefront"
    backend = "cuda"
    options = CudaWavefront
    revision = 1
    description = "blocks run diagonally through the powers while they are on the chip"
    layout_shares, layout_turn = 2, 2

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cuda.schedules.wavefront import options as wavefront_space

        return wavefront_space.space(self, matrix, device, k)

    def starts(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        from akx.backends.cuda.schedules.wavefront import options as wavefront_space

        return wavefront_space.starts(self, matrix, device, k)

    def offers(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        """Plans that a call may take unseen; see :mod:`akx.backends.cuda.schedules.wavefront.heuristic_plans`."""
        from akx.backends.cuda.schedules.wavefront import heuristic_plans as wavefront_offers

        return wavefront_offers.offers(self, matrix, device, k)

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        from akx.backends.cuda.schedules.wavefront.options import OPTIONS, VARIANTS

        if plan.backend != self.backend:
            return f"this schedule runs on cuda, not on {plan.backend}"
        if plan.variant not in VARIANTS:
            return f"unknown variant {plan.variant!r}, known are {', '.join(VARIANTS)}"
        if plan.partitioner not in ORDERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(ORDERS)}"
        reason = option_reason(plan, OPTIONS)
        if reason is not None:
            return reason
        powers, lanes = plan.k_per_pass, _lanes_of(plan)
        if not 1 <= powers <= min(plan.k, _MOST_POWERS):
            return f"{powers} powers per pass, expected 1 .. {min(plan.k, _MOST_POWERS)}"
        if padding(matrix, lanes, 1) > _MOST_PADDING:
            return f"rows are too short for {lanes} lanes each"
        try:
            few, most = (_sized(matrix, plan, device, found) for found in (lambda dealt: 0, partial(_most, matrix)))
            reason = self._too_large(_used(plan, matrix, device, few), matrix, device, few)
            if reason or self._too_large(_used(plan, matrix, device, most), matrix, device, most) is None:
                return reason  # whatever the entries of the fullest block
            least = _least(matrix, plan, device)
        except InfeasibleError as refusal:
            return str(refusal)
        return self._too_large(_used(plan, matrix, device, least), matrix, device, least)

    def _too_large(self, plan: Plan, matrix: Matrix, device: CudaDevice, least: Shape) -> str | None:
        per = _per_of(plan)
        if least.lag > _MOST_LAG or per > _MOST_PER:
            return f"{least.lag * per} slices of a warp at work: blocks are too small, or threads too few"
        registers, room = _registers(plan, matrix.dtype, device, least.strips)
        if registers > room:
            return f"{registers} registers for slices do not fit {room}"
        shared = _shared(least, plan, matrix)
        if shared + _STATIC > device.shared_per_block:
            return f"x and blocks on their way take {shared} bytes, of {device.shared_per_block} shared ones"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        from akx.backends.cuda.schedules.wavefront.options import BLOCKS

        if reason := self._stored_else(plan, matrix, device):
            return reason
        slots, held = _slots_for(matrix, _lanes_of(plan)), _held_of(plan)
        if held > max(1, slots):
            return f"registers for {held} slots of a slice, of {slots}"
        width = int(order_of(matrix, plan.partitioner).mean_width)
        if width < device.sms // 2:
            return f"levels of {width} rows, for {device.sms} multiprocessors"
        busy = plan.k_per_pass * _slices_of(plan)
        warps = _warps_of(plan)
        if warps > busy and warps > BLOCKS[0] // WARP:
            return f"{warps} warps for {busy} slices at a time"
        return None

    def _stored_else(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        """Why values are not stored as a feasible plan says."""
        if way_of(plan) == FULL or _used(plan, matrix, device, _least(matrix, plan, device)) == plan:
            return None
        return same_as_full(plan, "their table does not fit" if is_storable(plan, matrix) else None)

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        size, passes = matrix.dtype.itemsize, ceil(plan.k / plan.k_per_pass)
        each = stored_bytes(way_of(_storable(plan, matrix)), matrix.dtype) + 2.0
        stored = matrix.nnz * padding(matrix, _lanes_of(plan), 1) * each + 12.0 * matrix.n
        vector = float(matrix.n * size)
        return Traffic(
            matrix_bytes=passes * stored,
            vector_bytes=vector * (plan.k + 2.0 * passes - 1),
            flops=2.0 * matrix.nnz * plan.k,
            cache_bytes=passes * stored + vector * (plan.k + passes),
            synchronisations=float(passes) * self._steps(plan, matrix, device),
        )

    def stored_error(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
        return error_of(matrix, way_of(_used(plan, matrix, device, _least(matrix, plan, device))))

    def _steps(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
        try:
            dealt = _dealt(matrix, plan, device)
        except InfeasibleError:
            return ceil(matrix.n / (device.sms * _room_of(plan))) + 3 * plan.k_per_pass
        return dealt.blocks + lag_of(dealt, _slack_of(plan)) * plan.k_per_pass

    def work(self, plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
        from akx.backends.cuda.schedules.wavefront import cost as wavefront_work

        steps = self._steps(plan, matrix, device)
        return wavefront_work.work(plan, matrix, device, vectors, steps, self.traffic(plan, matrix, device))

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        front_of(matrix, plan, device)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        front = front_of(matrix, plan, device)
        used = _used(plan, matrix, device, front)
        return there_or_by_host(partial(WavefrontProgram, matrix, front, used))


def _lanes_for(matrix: Matrix) -> int:
    """Lanes that leave a row at most 16 slots, where rows are long enough for them."""
    lanes = next((n for n in LANES if widest(matrix, 1) <= 16 * n), LANES[-1])
    while lanes > 1 and padding(matrix, lanes, 1) > _MOST_PADDING:
        lanes //= 2
    return lanes


def _slots_for(matrix: Matrix, lanes: int) -> int:
    """Slots of the longest row."""
    return -(-widest(matrix, 1) // lanes)


def _lanes_of(plan: Plan) -> int:
    return int(plan.variant.rpartition("-")[2])


def _storable(plan: Plan, matrix: Matrix) -> Plan:
    """The plan, with values in full where those of the matrix cannot be stored as it says."""
    return plan if is_storable(plan, matrix) else in_full(plan)


def _used(plan: Plan, matrix: Matrix, device: CudaDevice, shape: Shape) -> Plan:
    """The plan as it runs: with values in full, too, where their table does not fit the shared memory."""
    plan = _storable(plan, matrix)
    no_room = way_of(plan) == TABLE and _shared(shape, plan, matrix) + _STATIC > device.shared_per_block
    return in_full(plan) if no_room else plan


def _per_of(plan: Plan) -> int:
    return slices_per_step(plan.k_per_pass, _slices_of(plan), _warps_of(plan))


def _registers(plan: Plan, dtype: np.dtype[Any], device: CudaDevice, dealt: Strips) -> tuple[int, int]:
    """32-bit registers of a thread for its slices, and how many there are for them."""
    held, warps = _held_of(plan), _warps_of(plan)
    of_slots = -(-held * stored_bytes(way_of(plan), dtype) // 4) + (held + 1) // 2
    wanted = lag_of(dealt, _slack_of(plan)) * _per_of(plan) * (of_slots + dtype.itemsize // 4 + _SLICE_REGISTERS)
    each = device.registers_per_sm // 4 // -(-(warps + _helpers_of(plan) // WARP) // 4) // WARP
    return wanted, min(255, each // 8 * 8) - _WORKING_REGISTERS


def _warps_of(plan: Plan) -> int:
    """Warps that compute."""
    return int(plan.typed.block) // WARP


def _helpers_of(plan: Plan) -> int:
    return int(plan.typed.helpers)


def _held_of(plan: Plan) -> int:
    return int(plan.typed.held_slots)


def _slack_of(plan: Plan) -> int:
    return int(plan.typed.slack)


def _slices_of(plan: Plan) -> int:
    return int(plan.typed.slices)


def _room_of(plan: Plan) -> int:
    """Rows of a block that a strip may have."""
    return _slices_of(plan) * (WARP // _lanes_of(plan))


def order_of(matrix: Matrix, order: str) -> LevelOrder:
    """The rows by levels; memoised with the pattern. Raises :class:`InfeasibleError` where there are too few levels."""
    key = ("akx.backends.cuda.schedules.wavefront.schedule.order", order)
    if key not in matrix.pattern_cache:
        pattern = pattern_of(matrix)
        long = order != ORDERS[0] and matrix.nnz > _SOON
        known = levels_there(matrix) if order == ORDERS[0] else None
        if known is not None:
            matrix.pattern_cache[key] = LevelOrder(*known)
        elif long and is_shallow(pattern.indptr, pattern.indices, _FEWEST_LEVELS // 2):
            matrix.pattern_cache[key] = InfeasibleError(
                "breadth-first levels are too few for a front", expected=f"at least {_FEWEST_LEVELS}"
            )
        else:
            matrix.pattern_cache[key] = level_order(pattern.indptr, pattern.indices, order)
    ordered: LevelOrder | InfeasibleError = matrix.pattern_cache[key]
    if isinstance(ordered, InfeasibleError):
        raise copy(ordered)
    return ordered


def levels_there(matrix: Matrix) -> tuple[NDArray[np.int64], int] | None:
    """Levels of a matrix on the device whose rows have a period: the host sees some rows. None without, or elsewhere.

    Memoised with the pattern.
    """
    there, key = features.of(matrix), "akx.backends.cuda.schedules.wavefront.schedule.period"
    if there is None:
        return None
    if key not in matrix.pattern_cache:
        rows = learnt_rows(matrix.n)
        matrix.pattern_cache[key] = levels_of_period(matrix.n, rows, *features.rows_of(there, rows))
    found: tuple[NDArray[np.int64], int] | None = matrix.pattern_cache[key]
    return found


def strips_of(matrix: Matrix, order: str, sms: int, room: int) -> Strips:
    """A strip for each multiprocessor, or as many as levels have rows; memoised with the pattern.

    Raises :class:`InfeasibleError` where there are none.
    """
    key = ("akx.backends.cuda.schedules.wavefront.schedule", order, sms, room)
    if key not in matrix.pattern_cache:
        pattern = pattern_of(matrix)
        try:
            ordered = order_of(matrix, order)
            parts, there = max(1, min(sms, int(ordered.mean_width))), features.of(matrix)
            if there is not None and ordered.is_natural:
                matrix.pattern_cache[key] = dealt(
                    ordered, parts, room, lambda found: features.blocks_read(there, found.starts[:-1])
                )
            else:
                matrix.pattern_cache[key] = strips(pattern.indptr, pattern.indices, ordered, parts, room)
        except InfeasibleError as refusal:
            matrix.pattern_cache[key] = copy(refusal)  # without its traceback, which would hold all that is above
    known: Strips | InfeasibleError = matrix.pattern_cache[key]
    if isinstance(known, InfeasibleError):
        raise copy(known)
    return known


def _dealt(matrix: Matrix, plan: Plan, device: CudaDevice) -> Strips:
    """The strips of a plan. Raises :class:`InfeasibleError` where there are none."""
    return strips_of(matrix, plan.partitioner, device.sms, _room_of(plan))


def _least(matrix: Matrix, plan: Plan, device: CudaDevice) -> Shape:
    """A shape of which nothing is larger than in the layout, from the fullest block; that is memoised with the pattern.

    Raises :class:`InfeasibleError` where there are no strips.
    """

    def entries(dealt: Strips) -> int:
        key = ("akx.backends.cuda.schedules.wavefront.schedule.fullest", plan.partitioner, device.sms, _room_of(plan))
        if key not in matrix.pattern_cache:
            matrix.pattern_cache[key] = fullest(pattern_of(matrix).indptr, dealt)[1]
        return int(matrix.pattern_cache[key])

    return _sized(matrix, plan, device, entries)


def _most(matrix: Matrix, dealt: Strips) -> int:
    """Entries of the fullest block if all rows were as long as the longest one."""
    return int(dealt.rows.max(initial=0)) * widest(matrix, 1)


def _sized(matrix: Matrix, plan: Plan, device: CudaDevice, entries: Callable[[Strips], int]) -> Shape:
    """A shape, by the entries of the fullest block: they are asked for where not all slots of a row are held."""
    dealt, lanes, held = _dealt(matrix, plan, device), _lanes_of(plan), _held_of(plan)
    slices = max(1, -(-int(dealt.rows.max(initial=0)) * lanes // WARP))
    near = max(0, _slots_for(matrix, lanes) - held)
    if near:
        near = max(near, -(-entries(dealt) // WARP) - slices * held)
    return Shape(dealt, lanes, slices, held, _slack_of(plan), LEAST_FETCHED, near)


def _shared(shape: Shape, plan: Plan, matrix: Matrix) -> int:
    """Bytes of shared memory with values stored as the plan says, and in full: new ones may have to be stored so."""
    way, size = way_of(plan), matrix.dtype.itemsize
    now = shape.shared(plan.k_per_pass, size, stored_bytes(way, matrix.dtype), table_bytes(matrix, way))
    return max(now, shape.shared(plan.k_per_pass, size, size, 0))


def front_of(matrix: Matrix, plan: Plan, device: CudaDevice) -> Front:
    """The matrix laid out for the plan; the last one is kept. Raises :class:`InfeasibleError` where it does not fit."""
    lanes, slices, slack = _lanes_of(plan), _slices_of(plan), _slack_of(plan)
    held = _held_of(plan)
    key = ("akx.backends.cuda.schedules.wavefront.schedule.front",)
    form = (plan.partitioner, device.sms, lanes, slices, held, slack, matrix.dtype.itemsize)
    known: tuple[Any, Front] | None = matrix.pattern_cache.get(key)
    if known is None or known[0] != form:
        matrix.pattern_cache.pop(key, None)
        dealt = _dealt(matrix, plan, device)
        known = form, lay_out(pattern_of(matrix), dealt, lanes, held, slack, matrix.dtype.itemsize)
        matrix.pattern_cache[key] = known
    front = known[1]
    shared = _shared(front, _used(plan, matrix, device, front), matrix)
    if shared + _STATIC > device.shared_per_block:
        raise InfeasibleError(
            "the front does not fit the shared memory",
            expected=f"at most {device.shared_per_block - _STATIC} bytes a multiprocessor",
            found=f"{shared} bytes",
            hint="take fewer powers per pass, smaller blocks or more slots in registers",
        )
    return front


def macros(
    front: Front, dtype: np.dtype[Any], stored: np.dtype[Any], powers: int, warps: int, helpers: int
) -> dict[str, int | str]:
    """The macros of the kernel."""
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": "u16" if stored == np.uint16 else C_TYPES[stored.name],
        "AKX_LANES": front.lanes,
        "AKX_LAG": front.lag,
        "AKX_PER": front.slices_per_step(powers, warps),
        "AKX_HELD_SLOTS": front.held_slots,
        "AKX_SLICES": front.slices,
        "AKX_WARPS": warps,
        "AKX_HELPERS": helpers,
        "AKX_ASKS": max(1, asks_of(powers, front.fetched, helpers)),
        "AKX_XS": -(-front.stride // WARP),
        "AKX_NEAR": int(front.near_slots > 0),
        "AKX_SLACK": front.slack,
    }


class WavefrontProgram(StoredProgram):
    """A matrix laid out for a front, on the GPU.

    Values are placed there; `by_host`: by the host, which takes less memory of the device.
    """

    def __init__(self, matrix: Matrix, front: Front, plan: Plan, *, by_host: bool = False) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._front = front
        self._warps, self._helpers = _warps_of(plan), _helpers_of(plan)
        self._passes = [min(plan.k_per_pass, plan.k - done) for done in range(0, plan.k, plan.k_per_pass)]
        self._meta, self._nodes, self._halo, self._readers, self._bases = (
            self.hold(array) for array in (front.meta, front.nodes, front.halo, front.readers, front.bases)
        )
        self._near_columns = self.hold(not_empty(front.near_columns))
        words = self.dtype.itemsize // 4
        most = max(self._passes)
        self._published = self.hold(np.zeros(max(most - 1, 1) * RING * front.published * words, dtype=np.uint64))
        self._beats = self.hold(np.zeros(LINE * front.strips.parts, dtype=np.uint32))
        self._epochs = self.hold(np.ones(front.strips.parts, dtype=np.uint32))
        self.entry = None if by_host else to_device(front.entry)
        values = values_of(matrix)
        self.store_values(way_of(plan), values, front.values, front.entry, value_error=matrix.value_error)
        self._total = front.steps(most) + 1
        self._kernels: dict[int, Kernel] = {}

    def ready(self, vectors: int) -> None:
        for powers in dict.fromkeys(self._passes):
            if powers not in self._kernels:
                self._kernels[powers] = self._kernel(powers, self._stored)

    def _kernel(self, powers: int, stored: np.dtype[Any]) -> Kernel:
        given = macros(self._front, self.dtype, stored, powers, self._warps, self._helpers)
        return load(_SOURCE, given, device=cuda_device()).kernel("steps")

    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these and all later values in full: the layout has room for that, registers may be too few."""
        values = to_device(not_empty(self._front.values(data)))
        kernels = {powers: self._kernel(powers, self.dtype) for powers in dict.fromkeys(self._passes)}
        self.forget_graphs()  # they have the kernels, and where the old values are
        self._arrays = [held for held in self._arrays if held is not self._values]
        self._values, self._kernels = self.held(values), kernels
        self._way, self._stored, self._tabled = FULL, self.dtype, 0

    @property
    def kernels(self) -> dict[int, Kernel]:
        """The kernels made so far, by the powers of a pass."""
        return self._kernels

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors, front = x.shape[0], self._front
        for v in range(vectors):
            done = 0
            for powers in self._passes:
                sizes = [
                    front.strips.blocks,
                    front.strips.parts,
                    front.strips.ahead,
                    front.slack,
                    front.ring,
                    front.stride,
                    front.fetched,
                    front.published,
                    front.words,
                    front.near_slots,
                    front.nears(powers),
                    front.lists,
                    front.halos(powers),
                    front.readers.shape[1],
                    powers,
                ]
                self._kernels[powers].launch(
                    front.strips.parts,
                    32 * self._warps + self._helpers,
                    [
                        *(np.uint32(size) for size in sizes),
                        self._meta,
                        self._values,
                        self._near_columns,
                        self._nodes,
                        self._halo,
                        self._readers,
                        self._bases,
                        coefficients,
                        self._table,
                        np.uint32(self._tabled),
                        self._published,
                        self._beats,
                        self._epochs,
                        x.view(v * self.n, (self.n,)),
                        out.view(v * self.n, (out.size - v * self.n,)),
                        np.int64(vectors * self.n),
                        np.uint32(done),
                        np.uint32(self._total),
                    ],
                    shared=front.shared(
                        powers, self.dtype.itemsize, self._stored.itemsize, self._tabled * self.dtype.itemsize
                    ),
                    cooperative=True,
                    stream=self.stream,
                )
                done += powers


SCHEDULE = Wavefront()
