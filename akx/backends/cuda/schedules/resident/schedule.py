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

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.cost.model import gathered_share
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    TABLE,
    error_of,
    in_full,
    is_storable,
    same_as_full,
    table_bytes,
    way_of,
    ways_of,
)
from akx.backends.cuda.value_compression.program import there_or_by_host
from akx.backends.cuda.variants import diagonals
from akx.backends.cuda.variants.block_local.cost import Cut, fixed_bytes, likely_cut_of, natural_cut
from akx.backends.cuda.variants.block_local.layout_on_device import filled_there, halos_there
from akx.backends.cuda.variants.block_local.program import (
    FLAGS,
    GLOBAL,
    SHARED,
    STAGED,
    VALUES,
    LaidOut,
    PartsProgram,
    active_slices,
    best_shape,
    blocked_of,
    choice_reason,
    entry_bytes,
    fill_of,
    filled_rows,
    fitting_block,
    fitting_variants,
    held_registers,
    is_listed,
    is_staged,
    lay_out_parts,
    may_wait_for_values,
    measured_nodes,
    nodes_there,
    padding,
    results_apart,
    rows_follow,
    shape_of,
    shared_limit,
    slices_per_part,
    stage_bytes,
    values_in,
    waste,
    widest,
    zone_nodes,
)
from akx.backends.cuda.variants.options import BLOCKS
from akx.backends.schedule import Parameter, Program, Schedule, Traffic, Work, check_feasible, option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaResident
from akx.core.plan import Option, Plan
from akx.formats.base import Pattern
from akx.formats.block_local import WARP, Nodes, Shape
from akx.partition.base import order_by_part
from akx.partition.cuts import even_cuts
from akx.partition.ghost import GhostZones, ghost_zones
from akx.partition.halo import halos

__all__ = ["KEEP", "SCHEDULE", "Resident", "lay_out_resident", "part_nodes"]

_PARTITIONERS = ("natural", "metis")
#: MiB of the matrix that L2 is asked to keep, where a plan does not say.
KEEP = CudaResident.keep
#: Closures may hold at most this many times the nodes of the matrix.
_MOST_ROWS = 4.0
#: What a row costs beside its entries, in entries.
_ROW_WORK = 2.0
#: Rows of the largest part of METIS over those that are taken as likely.
_LIKELY_OWN = 0.83
#: Sectors of x that rows read over their entries, from which on results are worth a stage: columns are anywhere.
_SCATTERED = 0.5
#: Nodes that the parts of rows as they come read of others, over those that parts of METIS likely do, from which on
#: rows have no order.
_SCATTERED_HALO = 3.0
#: Nodes from the first that a slice reads to the last, which 16 bits number.
_FAR = 65_535


class Resident(Schedule):
    """See the module."""

    name = "resident"
    backend = "cuda"
    options = CudaResident
    revision = 1
    description = "the matrix stays on the multiprocessors, only the halo of x is exchanged"
    layout_shares, layout_turn = 2, 1
    step_price = "barrier"

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cuda.schedules.resident import options as resident_space

        return resident_space.space(self, matrix, device, k)

    def starts(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        from akx.backends.cuda.schedules.resident import options as resident_space

        return resident_space.starts(self, matrix, device, k)

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
        br, bc = best_shape(matrix)
        shape, far = self._shape(matrix, device, br, bc), _reach(matrix, bc) > _FAR or _is_scattered(matrix, device, bc)
        most = 1024 if br * bc == 1 else 384
        # Where nothing is read again in each step, x in shared memory is faster; else what it takes is missed more.
        once = matrix.nnz / fill_of(matrix, bc) * entry_bytes(shape, matrix.dtype, way)
        once += 3 * filled_rows(matrix, bc) * matrix.dtype.itemsize
        near = far or not rows_follow(matrix, bc)
        options: dict[str, Option] = {
            "block": min(most, fitting_block(slices_per_part(matrix, shape, device.sms, 1.0), BLOCKS)),
            "held_slices": 0,
            "held_slots": 1,
            "x": "shared" if near or once <= 1.3 * device.sms * device.shared_per_block else "global",
            "keep": KEEP,
            "vectors": 1,
            "stored": way,
        }
        if options["block"] == 1024 and options["x"] == "shared" and k > 1:
            options["exchange"] = FLAGS  # of 64 registers for a thread those that values take are missed
        order = _PARTITIONERS[far]  # rows that read so far have little in common with those next to them
        return Plan(self.backend, self.name, f"{br}x{bc}-{shape.lanes}", order, k, k, options=options)

    def _shape(self, matrix: Matrix, device: CudaDevice, br: int, bc: int) -> Shape:
        """Blocks with as many lanes for each of their rows as keep multiprocessors busy, where rows are long enough."""
        rows = filled_rows(matrix, bc) / br / max(device.sms, 1)
        lanes = next((n for n in (1, 2, 4, 8) if rows * n >= 512 or n == 8), 8)
        while lanes > 1 and padding(matrix, lanes, bc) > 1.25:
            lanes //= 2
        return Shape(br, bc, lanes, 1, 0, 1)

    def _staged(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Plan | None:
        """The plan with results through a stage, where rows lie anywhere and there very likely is room for it."""
        if plan.variant == diagonals.DIA or not results_apart(plan, matrix) or gathered_share(matrix) <= _SCATTERED:
            return None
        options = {name: value for name, value in plan.options.items() if name != "exchange"}
        staged = plan.replace(options={**options, "results": STAGED})
        if self.feasible(staged, matrix, device) is not None:
            return None
        shape, parts = shape_of(plan), device.sms * plan.typed.blocks_per_sm
        likely = likely_cut_of(matrix, shape.bc, parts, 1)
        cut = replace(likely, own=_LIKELY_OWN * likely.own)
        fixed = _fixed(staged, cut, matrix, device) + table_bytes(matrix, way_of(plan))
        return staged if fixed <= shared_limit(plan, device) else None

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        from akx.backends.cuda.schedules.resident.options import OPTIONS

        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        if plan.k_per_pass != plan.k:
            return f"all {plan.k} powers are done in one pass, not {plan.k_per_pass} at a time"
        if plan.backend == self.backend and plan.variant == diagonals.DIA:
            return option_reason(plan, OPTIONS) or diagonals.reason_against(plan, matrix, device)
        reason = choice_reason(plan, matrix, device, OPTIONS, plan.typed.blocks_per_sm)
        if reason is not None:
            return reason
        if way_of(plan) == TABLE and shape_of(plan).slot != WARP:
            return "a table of values is for blocks of one entry"
        if plan.typed.x == "global" and not rows_follow(matrix, shape_of(plan).bc):
            return "with x in global memory, rows of a node must follow one another"
        if plan.typed.x == "global" and _reach(matrix, shape_of(plan).bc) > _FAR:
            what = "rows" if is_listed(matrix, shape_of(plan).bc) else "nodes"
            return f"with x in global memory, columns of a row that lie more than {_FAR:,} {what} apart have no number"
        if plan.typed.depth > plan.k:
            return f"an exchange every {plan.typed.depth} steps, of {plan.k}"
        if plan.typed.depth != 1 and plan.typed.x != "shared":
            return "with x in global memory the exchange is in every step"
        vectors = plan.typed.vectors
        if is_staged(plan) and (plan.typed.x != "shared" or plan.typed.depth != 1):
            return "results are staged where x is in shared memory, and exchanged in every step"
        each = filled_rows(matrix, shape_of(plan).bc) * matrix.dtype.itemsize * vectors / device.sms
        x, what = (3.0 * each, "x and results take") if is_staged(plan) else (2.0 * each, "x takes")
        if plan.typed.x == "shared" and x > device.shared_per_block:
            return f"{what} {x:.0f} bytes of each multiprocessor, of {device.shared_per_block} shared ones"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        has_choice = plan.variant != diagonals.DIA and may_wait_for_values(plan)
        if plan.typed.exchange != VALUES and not has_choice:
            return f"{FLAGS} are what parts wait for in any case, or for nothing"
        if plan.variant == diagonals.DIA:  # offered where all stays on the chip
            keep = plan.typed.keep
            if way_of(plan) != FULL:
                return f"diagonals are stored in {FULL}"
            if is_staged(plan):
                return "diagonals write results in the order of rows"
            return None if keep == KEEP else f"L2 asked to keep {keep} MiB of none"
        if is_staged(plan) and not results_apart(plan, matrix):
            return "parts have rows that follow one another, and write them so"
        if not is_storable(plan, matrix):
            return same_as_full(plan)
        if way_of(plan) == TABLE and _least_shared(plan, matrix, device) > shared_limit(plan, device):
            return same_as_full(plan, "its table does not fit beside x")
        growth = 1.0 if plan.typed.depth == 1 else _MOST_ROWS
        found = waste(plan, matrix, device.sms * plan.typed.blocks_per_sm, BLOCKS, growth)
        keep, again = int(plan.typed.keep), _again(plan, matrix, device)
        if keep != KEEP and (again <= 0 or (keep > KEEP and again <= KEEP * 2**20)):
            return f"L2 asked to keep {keep} MiB of {max(0.0, again) / 2**20:.0f}: the same as {KEEP}"
        return found

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        if plan.variant == diagonals.DIA:
            return diagonals.traffic(plan, matrix, device)
        plan = _storable(plan, matrix, device)
        once = _stored_bytes(plan, matrix)
        vector, rest = float(matrix.n * matrix.dtype.itemsize), max(0.0, _again(plan, matrix, device))
        l2 = min(float(int(plan.typed.keep)) * 2**20, 0.8 * device.l2_bytes)
        return Traffic(
            matrix_bytes=once + plan.k * max(0.0, rest - l2),
            vector_bytes=vector * (plan.k + 1.0),
            flops=2.0 * matrix.nnz * plan.k,
            cache_bytes=once + plan.k * (rest + (3.0 if is_staged(plan) else 1.0) * vector),
            synchronisations=float(plan.k),
        )

    def stored_error(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
        return 0.0 if plan.variant == diagonals.DIA else error_of(matrix, way_of(plan))

    def work(self, plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
        from akx.backends.cuda.schedules.resident import cost as resident_offers

        return resident_offers.work(plan, matrix, device, vectors)

    def offers(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        """Plans that a call may take unseen: by diagonals, or in blocks, in the plainest forms."""
        from akx.backends.cuda.schedules.resident import cost as resident_offers

        return resident_offers.offers(self, matrix, device, k)

    def lay_out(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
        if plan.variant == diagonals.DIA:
            diagonals.lay_out(matrix, plan, device)
            return
        _, zones = lay_out_resident(matrix, plan, device)
        if zones is not None:
            active_slices(zones, shape_of(plan), plan.typed.depth)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        if plan.variant == diagonals.DIA:
            return diagonals.DiagonalsProgram(matrix, diagonals.lay_out(matrix, plan, device), plan)
        return there_or_by_host(partial(self._program, matrix, plan, device))

    def _program(self, matrix: Matrix, plan: Plan, device: CudaDevice, *, by_host: bool = False) -> PartsProgram:
        """The program in parts, laid out on the device; `by_host`: by the host, which takes less of its memory."""
        plan = _storable(plan, matrix, device)
        planned = way_of(plan)
        try:
            laid_out, zones = lay_out_resident(matrix, plan, device, there=not by_host)
        except InfeasibleError:
            if planned != TABLE:
                raise
            plan = _in_full(plan, matrix, device)  # no room for the table, where the plan is of other values
            laid_out, zones = lay_out_resident(matrix, plan, device, there=not by_host)
        depth, per_sm = plan.typed.depth, plan.typed.blocks_per_sm
        active = {} if zones is None else {depth: active_slices(zones, shape_of(plan), depth)}
        pattern, known = matrix.pattern, matrix.pattern_cache

        def stored_in_full(data: NDArray[Any]) -> PartsProgram:  # holds no values
            fresh = Matrix(pattern.indptr, pattern.indices, data.view(), pattern_cache=known)
            found = self.prepare(fresh, _in_full(plan, fresh, device))
            assert isinstance(found, PartsProgram)
            return found

        return PartsProgram(matrix, laid_out, plan, (plan.k,), active, per_sm, planned, stored_in_full)


def _again(plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes of the matrix that do not fit the multiprocessors, about; negative where there is room left."""
    shape, size = shape_of(plan), matrix.dtype.itemsize
    once = _stored_bytes(plan, matrix)
    parts: int = device.sms * plan.typed.blocks_per_sm
    chip = device.sms * device.shared_per_block + parts * 128.0 * shape.warps * held_registers(
        shape, matrix.dtype, way_of(plan)
    )
    chip -= parts * table_bytes(matrix, way_of(plan))
    if plan.typed.x == "shared":
        each = filled_rows(matrix, shape.bc) * size * int(plan.typed.vectors)
        chip -= (3.5 if is_staged(plan) else 2.5) * each
    return once - max(chip, 0.0)


def _is_scattered(matrix: Matrix, device: CudaDevice, bc: int) -> bool:
    """Whether nodes whose rows are not together read many more others, as they come, than in the parts of METIS."""
    if rows_follow(matrix, bc):
        return False
    natural, likely = natural_cut(matrix, bc, device.sms, _ROW_WORK), likely_cut_of(matrix, bc, device.sms, 1)
    return float(natural.halo.max(initial=0.0)) > _SCATTERED_HALO * float(likely.halo.max(initial=0.0))


def _reach(matrix: Matrix, bc: int) -> int:
    """Nodes from the first that a row reads or is to the last, of the row that has most; memoised with the pattern.

    Rows, where those of nodes are listed and follow one another.
    """
    key = ("akx.backends.cuda.schedules.resident.schedule.reach", bc)
    if key not in matrix.pattern_cache:
        blocked, known = blocked_of(matrix, bc), measured_nodes(matrix, bc)
        assert blocked is not None
        if known is not None and blocked.listed is None:
            matrix.pattern_cache[key] = known.reach
            return known.reach
        node = blocked.pattern
        rows = np.flatnonzero(np.diff(node.indptr.astype(np.int64)))
        first, last = (node.indices[node.indptr[rows + at].astype(np.int64) - at].astype(np.int64) for at in (0, 1))
        first, last = np.minimum(first, rows), np.maximum(last, rows)
        in_rows = blocked.listed is not None and blocked.contiguous
        reach = blocked.begin[last] - blocked.begin[first] if in_rows else last - first
        matrix.pattern_cache[key] = int(reach.max(initial=0))
    return int(matrix.pattern_cache[key])


def _stored_bytes(plan: Plan, matrix: Matrix) -> float:
    """Bytes of the matrix as it is laid out, about."""
    shape = shape_of(plan)
    return values_in(matrix, shape) * entry_bytes(shape, matrix.dtype, way_of(plan))


def _ways(matrix: Matrix) -> tuple[str, ...]:
    """Ways to store its values in the blocks that variants have: tables are for blocks of one entry."""
    single = any(variant.startswith("1x1-") for variant in fitting_variants(matrix))
    return tuple(way for way in ways_of(matrix) if single or way != TABLE)


def _least_shared(plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes of shared memory that a block takes at least: of a part of equal share that reads nothing of others."""
    shape, parts = shape_of(plan), device.sms * plan.typed.blocks_per_sm
    own = filled_rows(matrix, shape.bc) / shape.bc / parts
    cut = Cut(np.array([own]), np.zeros(1), np.zeros(1), np.zeros(1))
    return _fixed(plan, cut, matrix, device) + table_bytes(matrix, way_of(plan))


def _fixed(plan: Plan, cut: Cut, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes of shared memory of the largest part of a cut, before its table and its slots."""
    shape, parts = shape_of(plan), device.sms * plan.typed.blocks_per_sm
    shared, vectors = plan.typed.x == "shared", plan.typed.vectors
    fixed = fixed_bytes(cut, shape, plan.k, vectors, matrix.dtype.itemsize, shared=shared).max(initial=0.0)
    return float(fixed) + (stage_bytes(matrix, shape.bc, parts, vectors) if is_staged(plan) else 0)


def _storable(plan: Plan, matrix: Matrix, device: CudaDevice) -> Plan:
    """The plan, with values in full where those of the matrix cannot be stored as it says."""
    return plan if is_storable(plan, matrix) else _in_full(plan, matrix, device)


def _in_full(plan: Plan, matrix: Matrix, device: CudaDevice) -> Plan:
    """The plan with values in full, and without slots in registers where there are too few for them."""
    from akx.backends.cuda.schedules.resident.options import OPTIONS

    full = in_full(plan)
    if choice_reason(full, matrix, device, OPTIONS, plan.typed.blocks_per_sm) is None:
        return full
    return full.replace(options={**full.options, "held_slices": 0, "held_slots": 1})


def lay_out_resident(
    matrix: Matrix, plan: Plan, device: CudaDevice, *, there: bool = False
) -> tuple[LaidOut, GhostZones | None]:
    """The matrix in one part per multiprocessor, and the ghost zones if the exchange is not in every step.

    `there`: what is in slots is found on the device, and stays there; so are parts of rows as they come, of a matrix
    that is there.
    """
    shape = shape_of(plan)
    mode = SHARED if plan.typed.x == "shared" else GLOBAL
    per_sm = plan.typed.blocks_per_sm
    parts, depth = device.sms * per_sm, plan.typed.depth
    given = {"beyond": mode == GLOBAL, "there": there}
    nodes, zones = part_nodes(matrix, plan.partitioner, shape, parts, depth, **given)
    if mode == GLOBAL and nodes.rows.size > nodes.own.sum():
        nodes = Nodes(
            _own_rows(nodes),
            _starts(nodes.own),
            nodes.own,
            nodes.own,
            nodes.border,
            nodes.neighbours,
            nodes.neighbour_ptr,
        )
    vectors = plan.typed.vectors
    limit, way, staged = shared_limit(plan, device), way_of(plan), is_staged(plan)
    fill = filled_there(matrix, in_words=way == TABLE) if there else None
    return lay_out_parts(matrix, nodes, shape, mode, plan.k, vectors, limit, way, staged, fill), zones


def part_nodes(
    matrix: Matrix,
    partitioner: str,
    shape: Shape,
    parts: int,
    depth: int,
    *,
    beyond: bool = False,
    there: bool = False,
) -> tuple[Nodes, GhostZones | None]:
    """The nodes of each part, and the zones where ghosts are computed along; memoised with the pattern.

    `beyond`: blocks read what follows a small node as well (:meth:`akx.formats.block_local.Blocked.read`). `there`:
    parts of rows as they come are found on the device where the pattern of nodes is; with `beyond` these have own nodes
    alone.
    """
    blocked = blocked_of(matrix, shape.bc)
    assert blocked is not None
    on_device = nodes_there(matrix, shape.bc) if there and partitioner == "natural" and depth == 1 else None
    beyond &= blocked.listed is not None or on_device is not None
    key = ("akx.backends.cuda.schedules.resident.schedule", partitioner, shape.bc, parts, depth, beyond)
    if key not in matrix.pattern_cache:
        node = blocked.pattern
        if depth == 1:
            if on_device is not None:
                cuts = natural_cut(matrix, shape.bc, parts, _ROW_WORK).first
                assert cuts is not None
                cuts = np.pad(cuts, (0, parts + 1 - cuts.size), mode="edge")
                found = halos_there(on_device, cuts, widest(matrix, shape.bc), alone=beyond)
            else:
                read, part = blocked.read() if beyond else node, _part(node, partitioner, parts)
                found = halos(read.indptr, read.indices, part, parts, np.diff(node.indptr))
            nodes = Nodes(
                found.rows, found.ptr, found.own, found.own, found.border, found.neighbours, found.neighbour_ptr
            )
            matrix.pattern_cache[key] = nodes, None
        else:
            part = _part(node, partitioner, parts)
            indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
            try:
                zones = ghost_zones(indptr, indices, order_by_part(part, parts), depth, most_rows=_MOST_ROWS)
                matrix.pattern_cache[key] = zone_nodes(zones, node), zones
            except InfeasibleError as refusal:
                matrix.pattern_cache[key] = copy(refusal)  # without its traceback, which would hold all that is above
    known: tuple[Nodes, GhostZones | None] | InfeasibleError = matrix.pattern_cache[key]
    if isinstance(known, InfeasibleError):
        raise copy(known)
    return known


def _part(node: Pattern, partitioner: str, parts: int) -> NDArray[Any]:
    if partitioner == "metis" and parts > 1:
        from akx.partition.metis import metis_partition

        found: NDArray[Any] = metis_partition(
            node.indptr.view(f"i{node.indptr.itemsize}"),
            node.indices.view(f"i{node.indices.itemsize}"),
            parts,
            weights=np.diff(node.indptr.astype(np.int64)) + int(_ROW_WORK),
        )
        return found
    work = np.arange(node.rows + 1, dtype=np.float64)
    work *= _ROW_WORK
    work += node.indptr
    cuts = even_cuts(work, parts)
    return np.repeat(np.arange(cuts.size - 1, dtype=np.uint32), np.diff(cuts))


def _own_rows(nodes: Nodes) -> NDArray[np.uint32]:
    of_parts = (nodes.rows[p : p + own] for p, own in zip(nodes.ptr[:-1], nodes.own, strict=True))
    return np.concatenate([nodes.rows[:0], *of_parts])


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    found = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=found[1:])
    return found


SCHEDULE = Resident()
