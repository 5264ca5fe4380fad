"""The levels, strips and front of a plan, memoised with the pattern; and the registers and shared memory it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.matrix import features
from akx.backends.cuda.matrix.level_order import KNOWN, by_levels, rows_by_levels
from akx.backends.cuda.schedules.wavefront.entries import lay_out
from akx.backends.cuda.schedules.wavefront.layout import LEAST_FETCHED, WARP, Front, Shape, lag_of, slices_per_step
from akx.backends.cuda.schedules.wavefront.options import DIA
from akx.backends.cuda.schedules.wavefront.runs import Runs, columns_of, cut_runs, runs_of
from akx.backends.cuda.value_compression.encodings import TABLE, in_full, is_storable, stored_bytes, table_bytes, way_of
from akx.backends.cuda.variants.block_local.shapes import padding, widest
from akx.backends.cuda.variants.options import LANES
from akx.backends.pattern_cache import per_pattern
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import pattern_of
from akx.partition.level_order import ORDERS, LevelOrder, learnt_rows, level_order, levels_of_period
from akx.partition.wavefront_blocks import Strips, dealt, fullest, strips

__all__ = [
    "FEWEST_LEVELS",
    "MOST_PADDING",
    "MOST_POWERS",
    "STATIC",
    "WORKING_REGISTERS",
    "fetched_of",
    "front_of",
    "in_order",
    "lanes_for",
    "lanes_of",
    "least_shape",
    "levels_there",
    "most_entries",
    "order_of",
    "registers_of",
    "room_of",
    "runs_of_plan",
    "shape_of_plan",
    "shared_bytes",
    "slices_each_step",
    "slots_for",
    "spilled",
    "storable",
    "strips_of",
    "strips_of_plan",
    "suits_runs",
    "used_plan",
]

#: Powers of a pass: which of them have which terms is a word of 32 bits.
MOST_POWERS = 32
#: Places over entries up to which rows are worth so many lanes.
MOST_PADDING = 2.0
#: A front has to begin and to end: with fewer levels than that it does little else.
FEWEST_LEVELS = 24
#: Entries of which breadth-first levels are made in a tenth of a second or two: they are not looked at first.
_SOON = 400_000
#: Bytes of shared memory that the kernel has besides.
STATIC = 64
#: 32-bit registers of a thread that its slices may not take, a few of which wait in memory then; and of a slice besides
#: its values and columns.
WORKING_REGISTERS, _SLICE_REGISTERS = 14, 2
#: What the rest of a thread has where none wait, with slots in shared memory and without: ptxas on 20 plans.
_USUAL_REGISTERS = (30, 20)
#: By diagonals, where what is read from shared memory is on its way at once, as timed.
_USUAL_BY_DIAGONALS = 40


def lanes_for(matrix: Matrix) -> int:
    """Lanes that leave a row at most 16 slots, where rows are long enough for them."""
    lanes = next((n for n in LANES if widest(matrix, 1) <= 16 * n), LANES[-1])
    while lanes > 1 and padding(matrix, lanes, 1) > MOST_PADDING:
        lanes //= 2
    return lanes


def slots_for(matrix: Matrix, lanes: int) -> int:
    """Slots of the longest row."""
    return -(-widest(matrix, 1) // lanes)


def lanes_of(plan: Plan) -> int:
    return 1 if plan.variant == DIA else int(plan.variant.rpartition("-")[2])


def runs_of_plan(matrix: Matrix, plan: Plan) -> Runs | None:
    """The diagonals of a plan by diagonals."""
    return runs_of(matrix) if plan.variant == DIA else None


@per_pattern
def suits_runs(matrix: Matrix, sms: int, room: int) -> bool:
    """Whether rows have their entries on few diagonals, and no run of them in two blocks."""
    return not cut_runs(matrix, runs_of(matrix), strips_of(matrix, ORDERS[0], sms, room).starts[1:-1])


def storable(plan: Plan, matrix: Matrix) -> Plan:
    """The plan, with values in full where those of the matrix cannot be stored as it says."""
    return plan if is_storable(plan, matrix) else in_full(plan)


def used_plan(plan: Plan, matrix: Matrix, device: CudaDevice, shape: Shape) -> Plan:
    """The plan as it runs: with values in full, too, where their table does not fit the shared memory."""
    plan = storable(plan, matrix)
    no_room = way_of(plan) == TABLE and shared_bytes(shape, plan, matrix) + STATIC > device.shared_per_block
    return in_full(plan) if no_room else plan


def slices_each_step(plan: Plan) -> int:
    return slices_per_step(plan.k_per_pass, plan.typed.slices, plan.typed.block // WARP)


def registers_of(
    plan: Plan, dtype: np.dtype[Any], device: CudaDevice, dealt: Strips, runs: Runs | None = None
) -> tuple[int, int]:
    """32-bit registers of a thread for its slices, and how many there are for them."""
    held, warps = plan.typed.held_slots, plan.typed.block // WARP
    of_slots = -(-held * stored_bytes(way_of(plan), dtype) // 4) + ((runs.places if runs else held) + 1) // 2
    of_slots += _SLICE_REGISTERS + (0 if runs else dtype.itemsize // 4)
    wanted = lag_of(dealt, plan.typed.slack) * slices_each_step(plan) * of_slots
    each = device.registers_per_sm // 4 // -(-(warps + plan.typed.helpers // WARP) // 4) // WARP
    return wanted, min(255, each // 8 * 8) - WORKING_REGISTERS


def spilled(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Registers of a plan that are likely to wait in memory, as its values can be stored."""
    plan, held_all = storable(plan, matrix), plan.typed.held_slots >= slots_for(matrix, lanes_of(plan))
    dealt, runs = strips_of_plan(matrix, plan, device), runs_of_plan(matrix, plan)
    registers, room = registers_of(plan, matrix.dtype, device, dealt, runs)
    usual = _USUAL_BY_DIAGONALS if runs else _USUAL_REGISTERS[held_all]
    return max(0, registers + usual - WORKING_REGISTERS - room)


def room_of(plan: Plan) -> int:
    """Rows of a block that a strip may have."""
    return int(plan.typed.slices) * (WARP // lanes_of(plan))


def in_order(plan: Plan, matrix: Matrix, device: CudaDevice) -> tuple[Plan, Matrix]:
    """A plan by levels as one for rows as they come, and the matrix by levels, where results do not fit L2.

    They are brought into the order of the rows in whole lines then (:mod:`akx.backends.cuda.reordered`), where the
    kernel would store each of them by itself. Other plans, and their matrix, are as they were. Raises
    :class:`InfeasibleError` where there is no such order.
    """
    results = float(plan.k) * matrix.n * matrix.dtype.itemsize
    if plan.partitioner != ORDERS[1] or results <= device.l2_bytes:
        return plan, matrix
    return plan.replace(partitioner=ORDERS[0]), by_levels(matrix)


@per_pattern
def order_of(matrix: Matrix, order: str) -> LevelOrder:
    """The rows by levels. Raises :class:`InfeasibleError` where there are too few levels."""
    made: LevelOrder | None = matrix.pattern_cache.get(KNOWN) if order == ORDERS[0] else None
    if made is not None:
        return made
    known = levels_there(matrix) if order == ORDERS[0] else None
    if known is not None:
        return LevelOrder(*known)
    if order != ORDERS[0] and matrix.nnz > _SOON:
        permutation, level_ptr = rows_by_levels(matrix)
        return LevelOrder(level_ptr, 0, permutation)
    pattern = pattern_of(matrix)
    return level_order(pattern.indptr, pattern.indices, order)


def levels_there(matrix: Matrix) -> tuple[NDArray[np.int64], int] | None:
    """Levels of a matrix on the device whose rows have a period: the host sees some rows. None without one."""
    return None if features.of(matrix) is None else _levels_there(matrix)


@per_pattern
def _levels_there(matrix: Matrix) -> tuple[NDArray[np.int64], int] | None:
    there, rows = features.of(matrix), learnt_rows(matrix.n)
    assert there is not None
    return levels_of_period(matrix.n, rows, *features.rows_of(there, rows))


@per_pattern
def strips_of(matrix: Matrix, order: str, sms: int, room: int) -> Strips:
    """A strip for each multiprocessor, or as many as levels have rows. Raises :class:`InfeasibleError`."""
    ordered, there = order_of(matrix, order), features.of(matrix)
    parts = max(1, min(sms, int(ordered.mean_width)))
    if there is not None and ordered.is_natural:
        return dealt(ordered, parts, room, lambda found: features.blocks_read(there, found.starts[:-1]))
    pattern = pattern_of(matrix)
    return strips(pattern.indptr, pattern.indices, ordered, parts, room)


def strips_of_plan(matrix: Matrix, plan: Plan, device: CudaDevice) -> Strips:
    """The strips of a plan. Raises :class:`InfeasibleError` where there are none."""
    return strips_of(matrix, plan.partitioner, device.sms, room_of(plan))


def least_shape(matrix: Matrix, plan: Plan, device: CudaDevice) -> Shape:
    """A shape of which nothing is larger than in the layout; :class:`InfeasibleError` where there are no strips."""
    of_plan = plan.partitioner, device.sms, room_of(plan)
    return shape_of_plan(matrix, plan, device, lambda dealt: _fullest(matrix, *of_plan))


@per_pattern
def _fullest(matrix: Matrix, order: str, sms: int, room: int) -> int:
    """Entries of the fullest block."""
    return int(fullest(pattern_of(matrix).indptr, strips_of(matrix, order, sms, room))[1])


@per_pattern
def fetched_of(matrix: Matrix, order: str, sms: int, room: int) -> int:
    """Values of others that a strip reads of the block in the middle, at most; of other blocks it may be more."""
    strips = strips_of(matrix, order, sms, room)
    middle = strips.blocks // 2
    near = [max(0, middle - strips.ahead), min(strips.blocks, middle + strips.behind + 1)]
    if strips.order.is_natural:  # rows from one to another
        begin, own, behind, end = strips.starts[[near[0], middle, middle + 1, near[1]]].tolist()
        rows, part = np.arange(begin, end), strips.groups.strips_of(*strips.begin[near])
    else:
        rows = np.flatnonzero((strips.block >= near[0]) & (strips.block < near[1]))
        part = strips.part[rows]
    counts, columns = columns_of(matrix, rows)
    readers = np.repeat(part.astype(np.int64), counts)
    if strips.order.is_natural:
        inside = (columns >= own) & (columns < behind)
    else:
        inside = strips.block[columns] == middle
    columns, readers = columns[inside].astype(np.int64), readers[inside]
    owners = part[columns - begin] if strips.order.is_natural else strips.part[columns]
    foreign = owners != readers
    pairs = np.unique(readers[foreign] * matrix.n + columns[foreign])
    return int(np.bincount(pairs // matrix.n, minlength=1).max())


def most_entries(matrix: Matrix, dealt: Strips) -> int:
    """Entries of the fullest block if all rows were as long as the longest one."""
    return int(dealt.rows.max(initial=0)) * widest(matrix, 1)


def shape_of_plan(matrix: Matrix, plan: Plan, device: CudaDevice, entries: Callable[[Strips], int]) -> Shape:
    """A shape, by the entries of the fullest block: they are asked for where not all slots of a row are held."""
    dealt, lanes, held = strips_of_plan(matrix, plan, device), lanes_of(plan), plan.typed.held_slots
    slices = max(1, -(-int(dealt.rows.max(initial=0)) * lanes // WARP))
    runs = runs_of_plan(matrix, plan)
    near = max(0, (len(runs.offsets) if runs else slots_for(matrix, lanes)) - held)
    if runs:
        near *= slices
    elif near:
        near = max(near, -(-entries(dealt) // WARP) - slices * held)
    fetched = max(LEAST_FETCHED, fetched_of(matrix, plan.partitioner, device.sms, room_of(plan)))
    return Shape(dealt, lanes, slices, held, plan.typed.slack, fetched, near, runs=runs)


def shared_bytes(shape: Shape, plan: Plan, matrix: Matrix) -> int:
    """Bytes of shared memory with values stored as the plan says, and in full: new ones may have to be stored so."""
    way, size = way_of(plan), matrix.dtype.itemsize
    now = shape.shared(plan.k_per_pass, size, stored_bytes(way, matrix.dtype), table_bytes(matrix, way))
    return max(now, shape.shared(plan.k_per_pass, size, size, 0))


def front_of(matrix: Matrix, plan: Plan, device: CudaDevice) -> Front:
    """The matrix laid out for the plan; the last one is kept. Raises :class:`InfeasibleError` where it does not fit."""
    lanes, slices, slack = lanes_of(plan), plan.typed.slices, plan.typed.slack
    held = plan.typed.held_slots
    key = ("akx.backends.cuda.schedules.wavefront.schedule.front",)
    form = (plan.partitioner, device.sms, lanes, slices, held, slack, matrix.dtype.itemsize, plan.variant)
    known: tuple[Any, Front] | None = matrix.pattern_cache.get(key)
    if known is None or known[0] != form:
        matrix.pattern_cache.pop(key, None)
        dealt = strips_of_plan(matrix, plan, device)
        known = (
            form,
            lay_out(pattern_of(matrix), dealt, lanes, held, slack, matrix.dtype.itemsize, runs_of_plan(matrix, plan)),
        )
        matrix.pattern_cache[key] = known
    front = known[1]
    shared = shared_bytes(front, used_plan(plan, matrix, device, front), matrix)
    if shared + STATIC > device.shared_per_block:
        raise InfeasibleError(
            "the front does not fit the shared memory",
            expected=f"at most {device.shared_per_block - STATIC} bytes a multiprocessor",
            found=f"{shared} bytes",
            hint="take fewer powers per pass, smaller blocks or more slots in registers",
        )
    return front
