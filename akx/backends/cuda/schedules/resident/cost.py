"""Which plans of `resident` a call may take unseen, and what they make a GPU do
(:mod:`akx.backends.cuda.cost.model`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from akx.backends.cuda.cost.model import Work
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.resident import options as resident_space
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.schedules.resident.schedule import KEEP
from akx.backends.cuda.value_compression.encodings import FULL, table_bytes, way_of, ways_of
from akx.backends.cuda.variants import diagonals
from akx.backends.cuda.variants import diagonals_cost as diagonals_offers
from akx.backends.cuda.variants.block_local.cost import (
    Cut,
    fixed_bytes,
    likely_cut_of,
    natural_cut,
    parts_work,
    slots_per_slice,
)
from akx.backends.cuda.variants.block_local.program import (
    fitting_block,
    holding,
    is_listed,
    is_staged,
    nodes_of,
    padding,
    results_apart,
    shape_of,
    shared_limit,
    slices_per_part,
    widest,
)
from akx.backends.cuda.variants.options import BLOCKS, HELD_SLOTS, LANES
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.block_local import Shape

__all__ = ["offers", "too_many_slots", "work"]

#: Of plans that calls take unseen: places over entries; steps from one exchange to the next in the order of METIS; and
#: blocks of a matrix that METIS cuts in a tenth of a second or two.
_OFFERED_PADDING, _OFFERED_DEPTHS, _SOON_CUT = 1.25, (2, 3, 4), 400_000
#: Share of the rows that closures may have which guessed ones may have, since METIS makes them up to 1.36 times as
#: large; and shared memory that must be there, over what is guessed.
_LIKELY_ROWS, _LIKELY_ROOM = 0.7, 1.6


def offers(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen: by diagonals, or in blocks, in the plainest forms.

    Rows are in the order given, when each plan can be laid out, or in that of METIS where that takes a tenth of a
    second or two: then it very likely can. Values are as they are and in each way in which these can be stored.
    """
    if k < 2:
        return ()
    plans = []
    if diagonals.offered(matrix, device):
        plan = schedule.untuned_for(matrix, device, k)
        if _against(schedule, matrix, device, plan) is None and diagonals_offers.is_compact(plan, matrix, device):
            plans.append(plan)
    plain = shape_of(schedule._plain(matrix, device, k))
    single = schedule._shape(matrix, device, 1, 1) if is_listed(matrix, plain.bc) else plain
    for shape in dict.fromkeys((plain, single)):
        node = nodes_of(matrix, shape.bc)
        depths = _OFFERED_DEPTHS if node is not None and node.nnz <= _SOON_CUT else ()
        lanes = (n for n in LANES if shape.lanes <= 2 * n <= 4 * shape.lanes)
        shapes = [replace(shape, lanes=n) for n in lanes if padding(matrix, n, shape.bc) <= _OFFERED_PADDING]
        ways: list[dict[str, Option]] = [
            {} if way == FULL else {"stored": way} for way in (ways_of(matrix) if shapes else ())
        ]
        for one, way in product(shapes, ways):
            for x in resident_space.PLACES:
                plans += _in_blocks(schedule, matrix, device, k, one, {"x": x, **way})
            for depth in (depth for depth in depths if depth <= k):
                plans += _in_blocks(schedule, matrix, device, k, one, {"x": "shared", "depth": depth, **way})
    return tuple(dict.fromkeys(plans))


def _in_blocks(
    schedule: Any, matrix: Matrix, device: CudaDevice, k: int, shape: Shape, chosen: dict[str, Option]
) -> list[Plan]:
    """A plan with a warp for each slice, with and without slots held; in the order of METIS where it has ghosts.

    No plan where it is impossible, or cannot surely be laid out: with slots held it is no less so.
    """
    depth = int(chosen.get("depth", 1))
    order = "natural" if depth == 1 else "metis"
    growth = 1.0 if depth == 1 else _cut(matrix, device, shape, order, 1, depth).redundancy
    most = 1024 if shape.br * shape.bc == 1 else 384
    block = min(most, fitting_block(slices_per_part(matrix, shape, device.sms, growth), BLOCKS))
    options: dict[str, Option] = {"block": block, "held_slices": 0, "held_slots": 1, "keep": KEEP, "vectors": 1}
    variant = f"{shape.br}x{shape.bc}-{shape.lanes}"
    bare = Plan(schedule.backend, schedule.name, variant, order, k, k, options={**options, **chosen})
    if _against(schedule, matrix, device, bare) is not None or not _has_room(bare, matrix, device):
        return []
    held = holding(bare, lambda plan: _against(schedule, matrix, device, plan), _enough_slots(matrix, shape))
    return [bare] if held is None else [bare, held]


def _against(schedule: Any, matrix: Matrix, device: CudaDevice, plan: Plan) -> str | None:
    reason: str | None = schedule.feasible(plan, matrix, device) or schedule.waste(plan, matrix, device)
    return reason


def _has_room(plan: Plan, matrix: Matrix, device: CudaDevice) -> bool:
    """Whether a plan in blocks can be laid out, which `feasible` does not know: a guess where METIS orders the rows."""
    shape, shared = shape_of(plan), plan.typed.x == "shared"
    per_sm, depth = plan.typed.blocks_per_sm, plan.typed.depth
    cut = _cut(matrix, device, shape, plan.partitioner, per_sm, depth)
    fixed = fixed_bytes(cut, shape, plan.k, plan.typed.vectors, matrix.dtype.itemsize, shared=shared)
    fixed += table_bytes(matrix, way_of(plan))
    limit = shared_limit(plan, device)
    if plan.partitioner == "natural":
        reach = cut.own + cut.halo if shared else cut.span * (shape.bc if is_listed(matrix, shape.bc) else 1)
        return bool(fixed.max() <= limit and reach.max() < 2**16)
    # Parts are not of one size, and one with a long row reads much more than others.
    far = 2.0 * float(widest(matrix, shape.bc)) ** depth * shape.bc * matrix.dtype.itemsize
    rows = cut.closure + float((cut.halo / cut.own).max())
    return rows <= _LIKELY_ROWS * resident._MOST_ROWS and _LIKELY_ROOM * float(fixed.max()) + far <= limit


def _cut(matrix: Matrix, device: CudaDevice, shape: Shape, partitioner: str, per_sm: int, depth: int) -> Cut:
    count = device.sms * per_sm
    if partitioner == "natural":
        found = natural_cut(matrix, shape.bc, count, resident._ROW_WORK)
        around = float((found.halo / np.maximum(found.own, 1.0)).mean()) * (depth - 1)
        return replace(found, closure=1.0 + around, redundancy=1.0 + around / 2.0) if depth > 1 else found
    return likely_cut_of(matrix, shape.bc, count, depth)


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors."""
    if plan.variant == diagonals.DIA:
        return diagonals_offers.work(plan, matrix, device, vectors)
    plan = resident._storable(plan, matrix, device)
    shape, per_sm, depth = shape_of(plan), plan.typed.blocks_per_sm, plan.typed.depth
    return parts_work(
        matrix,
        device,
        plan.k,
        vectors,
        shape,
        _cut(matrix, device, shape, plan.partitioner, per_sm, depth),
        per_sm=per_sm,
        shared=plan.typed.x == "shared",
        together=plan.typed.vectors,
        depth=depth,
        keep=float(int(plan.typed.keep)) * 2**20,
        way=way_of(plan),
        scattered=results_apart(plan, matrix),
        staged=is_staged(plan),
    )


def too_many_slots(matrix: Matrix, plan: Plan) -> str | None:
    """Why a slice is not to hold so many slots: most have fewer, and multiply nothing in the places that are left."""
    if plan.typed.held_slices == 0:
        return None
    enough = plan.typed.held_slots <= _enough_slots(matrix, shape_of(plan))
    return None if enough else "most slices have fewer slots"


def _enough_slots(matrix: Matrix, shape: Shape) -> int:
    """Slots that most slices have, about."""
    mean = min(slots_per_slice(matrix, shape.lanes, shape.bc), HELD_SLOTS[-1])
    return min(HELD_SLOTS, key=lambda slots: abs(slots - mean))
