"""The space of `resident` on the GPU, where a search of it begins, and heuristic plans: what a call may take unseen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.resident import layout
from akx.backends.cuda.schedules.resident.cost import cut_of_parts
from akx.backends.cuda.schedules.resident.options import BLOCKS_PER_SM, DEPTHS, KEEP, KEEPS, PARTITIONERS, PLACES
from akx.backends.cuda.value_compression.encodings import FULL, TABLE, stored_bytes, table_bytes, way_of, ways_of
from akx.backends.cuda.variants import diagonals, diagonals_cost
from akx.backends.cuda.variants.block_local.cost import fixed_bytes, slots_per_slice
from akx.backends.cuda.variants.block_local.layout import holding, shared_limit
from akx.backends.cuda.variants.block_local.shapes import (
    EXCHANGES,
    RESULTS,
    VALUES,
    best_shape,
    fitting_block,
    fitting_variants,
    is_listed,
    nodes_of,
    padding,
    shape_of,
    slices_per_part,
    widest,
)
from akx.backends.cuda.variants.options import BLOCKS, HELD_SLICES, HELD_SLOTS, LANES, VECTORS
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.options import CudaResident
from akx.core.plan import Option, Plan
from akx.formats.block_local import WARP, Shape

__all__ = ["heuristic_plans", "space", "starts", "too_many_slots"]


#: Of plans that calls take unseen: places over entries; steps from one exchange to the next in the order of METIS; and
#: blocks of a matrix that METIS cuts in a tenth of a second or two.
_OFFERED_PADDING, _OFFERED_DEPTHS, _SOON_CUT = 1.25, (2, 3, 4), 400_000
#: Share of the rows that closures may have which guessed ones may have, since METIS makes them up to 1.36 times as
#: large; and shared memory that must be there, over what is guessed.
_LIKELY_ROWS, _LIKELY_ROOM = 0.7, 1.6


def space(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    variants = fitting_variants(matrix)
    if diagonals.offered(matrix, device):
        variants += (diagonals.DIA,)
    default = schedule.untuned_for(matrix, device, k)
    orders = PARTITIONERS
    depths = tuple(depth for depth in DEPTHS if depth <= k)
    return (
        Parameter("variant", variants, default.variant, "dense block and lanes per block row, or diagonals"),
        Parameter("k_per_pass", (k,), k, "powers done per launch: all"),
        Parameter("partitioner", orders, default.partitioner, "how rows are dealt to multiprocessors"),
        Parameter("block", BLOCKS, default.options["block"], "threads per multiprocessor"),
        Parameter("held_slices", HELD_SLICES, default.options["held_slices"], "slices of a warp in registers"),
        Parameter("held_slots", HELD_SLOTS, default.options["held_slots"], "slots of each of them in registers"),
        Parameter("x", PLACES, default.options["x"], "where x is: shared or global memory"),
        Parameter("keep", KEEPS, CudaResident.keep, "MiB of the matrix that L2 is asked to keep"),
        Parameter(
            "blocks_per_sm",
            BLOCKS_PER_SM,
            CudaResident.blocks_per_sm,
            "parts on a multiprocessor, to work while others wait",
        ),
        Parameter(
            "depth", depths, CudaResident.depth, "steps from one exchange to the next, ghosts computed along in between"
        ),
        Parameter("stored", layout.ways_in_blocks(matrix), CudaResident.stored, "what values are stored as"),
        Parameter("results", RESULTS, CudaResident.results, "how results come in the order of rows"),
        Parameter("exchange", EXCHANGES, CudaResident.exchange, "what parts wait for: values, or flags"),
        Parameter("vectors", VECTORS, CudaResident.vectors, "start vectors at a time"),
    )


def starts(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a search should begin with, beside the defaults: one idea each; each has won somewhere."""

    def reason(plan: Plan) -> str | None:
        return schedule.against(plan, matrix, device) or too_many_slots(matrix, plan)

    default = schedule._plain(matrix, device, k)
    halved = {**default.options, "blocks_per_sm": 2, "block": max(BLOCKS[0], int(default.options["block"]) // 2)}
    plans = [default, holding(default, reason), default.replace(options=halved)]
    if diagonals.offered(matrix, device):
        plans.insert(0, schedule.untuned_for(matrix, device, k))
    if default.options["x"] == "shared":
        plans.append(holding(default.replace(options=_in_memory(default.options)), reason))
        if k > 1:
            apart = default.replace(partitioner="metis", options={**default.options, "depth": 2, "exchange": VALUES})
            plans.append(holding(apart, reason) or apart)
    ways = (way for way in layout.ways_in_blocks(matrix) if way != TABLE or best_shape(matrix) == (1, 1))
    way = min(ways, key=lambda way: stored_bytes(way, matrix.dtype))
    plans += _compact_starts(schedule, matrix, device, k, way, reason)
    both = ((schedule._staged(plan, matrix, device), plan) for plan in plans if plan is not None)
    return tuple(dict.fromkeys(plan for pair in both for plan in pair if plan is not None))


def _in_memory(options: Mapping[str, Option]) -> dict[str, Option]:
    """The options with x in global memory, where parts have no choice of what they wait for."""
    return {name: value for name, value in options.items() if name != "exchange"} | {"x": "global"}


def _compact_starts(
    schedule: Any, matrix: Matrix, device: CudaDevice, k: int, way: str, reason: Callable[[Plan], str | None]
) -> list[Plan]:
    """Plans with values stored that way, rows as they come and by METIS: more of the matrix stays on the chip."""
    first = schedule._plain(matrix, device, k, way)
    shared = first.replace(partitioner="metis", options={**first.options, "x": "shared"})
    if layout.bytes_read_again(shared, matrix, device) > 0:
        shared = shared.replace(options={**shared.options, "keep": KEEPS[1]})
    halved = {**shared.options, "blocks_per_sm": 2, "block": max(BLOCKS[0], int(first.options["block"]) // 2)}
    plans = [shared, holding(shared, reason), shared.replace(options=halved)]
    if first.partitioner == "natural":
        plans = [first, holding(first, reason), *plans]
    away = {**_in_memory(halved), "keep": KEEP}  # x makes room for more of the matrix
    plans += [first.replace(options=away), first.replace(options=_in_memory(first.options))]
    shape = shape_of(shared)
    if shape.slot > WARP and shape.lanes < LANES[-1]:  # few slices: more of them hide more of what each waits for
        wide = shared.replace(variant=f"{shape.br}x{shape.bc}-{2 * shape.lanes}")
        plans += [wide, holding(wide, reason)]
    return [plan for plan in plans if plan is not None and reason(plan) is None]


def heuristic_plans(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen: by diagonals, or in blocks, in the plainest forms.

    Rows are in the order given, when each plan can be laid out, or in that of METIS where that takes a tenth of a
    second or two: then it very likely can. Values are as they are and in each way in which these can be stored.
    """
    if k < 2:
        return ()
    plans = []
    if diagonals.offered(matrix, device):
        plan = schedule.untuned_for(matrix, device, k)
        if schedule.against(plan, matrix, device) is None and diagonals_cost.is_compact(plan, matrix, device):
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
            for x in PLACES:
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
    growth = 1.0 if depth == 1 else cut_of_parts(matrix, device, shape, order, 1, depth).redundancy
    most = 1024 if shape.br * shape.bc == 1 else 384
    block = min(most, fitting_block(slices_per_part(matrix, shape, device.sms, growth), BLOCKS))
    options: dict[str, Option] = {"block": block, "held_slices": 0, "held_slots": 1, "keep": KEEP, "vectors": 1}
    variant = f"{shape.br}x{shape.bc}-{shape.lanes}"
    bare = Plan(schedule.backend, schedule.name, variant, order, k, k, options={**options, **chosen})
    if schedule.against(bare, matrix, device) is not None or not _has_room(bare, matrix, device):
        return []
    held = holding(bare, lambda plan: schedule.against(plan, matrix, device), _enough_slots(matrix, shape))
    return [bare] if held is None else [bare, held]


def _has_room(plan: Plan, matrix: Matrix, device: CudaDevice) -> bool:
    """Whether a plan in blocks can be laid out, which `feasible` does not know: a guess where METIS orders the rows."""
    shape, shared = shape_of(plan), plan.typed.x == "shared"
    per_sm, depth = plan.typed.blocks_per_sm, plan.typed.depth
    cut = cut_of_parts(matrix, device, shape, plan.partitioner, per_sm, depth)
    fixed = fixed_bytes(cut, shape, plan.k, plan.typed.vectors, matrix.dtype.itemsize, shared=shared)
    fixed += table_bytes(matrix, way_of(plan))
    limit = shared_limit(plan, device)
    if plan.partitioner == "natural":
        reach = cut.own + cut.halo if shared else cut.span * (shape.bc if is_listed(matrix, shape.bc) else 1)
        return bool(fixed.max() <= limit and reach.max() < 2**16)
    # Parts are not of one size, and one with a long row reads much more than others.
    far = 2.0 * float(widest(matrix, shape.bc)) ** depth * shape.bc * matrix.dtype.itemsize
    rows = cut.closure + float((cut.halo / cut.own).max())
    return rows <= _LIKELY_ROWS * layout.MOST_ROWS and _LIKELY_ROOM * float(fixed.max()) + far <= limit


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
