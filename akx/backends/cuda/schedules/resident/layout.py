"""Parts of the matrix, one a multiprocessor: their nodes, what fits their memory, and the matrix laid out for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.resident.options import OPTIONS
from akx.backends.cuda.value_compression.encodings import TABLE, in_full, is_storable, table_bytes, way_of, ways_of
from akx.backends.cuda.variants.block_local import shapes
from akx.backends.cuda.variants.block_local.cost import Cut, fixed_bytes, likely_cut_of, natural_cut
from akx.backends.cuda.variants.block_local.layout import (
    GLOBAL,
    SHARED,
    LaidOut,
    choice_reason,
    entry_bytes,
    held_registers,
    lay_out_parts,
    shared_limit,
    stage_bytes,
    zone_nodes,
)
from akx.backends.cuda.variants.block_local.layout_on_device import filled_there, halos_there
from akx.backends.pattern_cache import per_pattern
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Pattern
from akx.formats.block_local import Nodes, Shape
from akx.partition.base import order_by_part
from akx.partition.cuts import even_cuts
from akx.partition.ghost import GhostZones, ghost_zones
from akx.partition.halo import halos

__all__ = [
    "FAR",
    "LIKELY_OWN",
    "MOST_ROWS",
    "ROW_WORK",
    "SCATTERED",
    "bytes_read_again",
    "fixed_of",
    "is_scattered",
    "laid_out_bytes",
    "lay_out_resident",
    "least_shared",
    "part_nodes",
    "reach_of_nodes",
    "storable",
    "ways_in_blocks",
    "without_compression",
]

#: Closures may hold at most this many times the nodes of the matrix.
MOST_ROWS = 4.0
#: What a row costs beside its entries, in entries.
ROW_WORK = 2.0
#: Rows of the largest part of METIS over those that are taken as likely.
LIKELY_OWN = 0.83
#: Nodes that the parts of rows as they come read of others, over those that parts of METIS likely do, from which on
#: rows have no order.
_SCATTERED_HALO = 3.0
#: Nodes from the first that a slice reads to the last, which 16 bits number.
FAR = 65_535


#: Sectors of x that rows read over their entries, from which on results are worth a stage: columns are anywhere.
SCATTERED = 0.5


def bytes_read_again(plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes of the matrix that do not fit the multiprocessors, about; negative where there is room left."""
    shape, size = shapes.shape_of(plan), matrix.dtype.itemsize
    once = laid_out_bytes(plan, matrix)
    parts: int = device.sms * plan.typed.blocks_per_sm
    chip = device.sms * device.shared_per_block + parts * 128.0 * shape.warps * held_registers(
        shape, matrix.dtype, way_of(plan)
    )
    chip -= parts * table_bytes(matrix, way_of(plan))
    if plan.typed.x == "shared":
        each = shapes.filled_rows(matrix, shape.bc) * size * int(plan.typed.vectors)
        chip -= (3.5 if shapes.is_staged(plan) else 2.5) * each
    return once - max(chip, 0.0)


def is_scattered(matrix: Matrix, device: CudaDevice, bc: int) -> bool:
    """Whether nodes whose rows are not together read many more others, as they come, than in the parts of METIS."""
    if shapes.rows_follow(matrix, bc):
        return False
    natural, likely = natural_cut(matrix, bc, device.sms, ROW_WORK), likely_cut_of(matrix, bc, device.sms, 1)
    return float(natural.halo.max(initial=0.0)) > _SCATTERED_HALO * float(likely.halo.max(initial=0.0))


@per_pattern
def reach_of_nodes(matrix: Matrix, bc: int) -> int:
    """Nodes from the first that a row reads or is to the last, of the row that has most.

    Rows, where those of nodes are listed and follow one another.
    """
    blocked, known = shapes.blocked_of(matrix, bc), shapes.measured_nodes(matrix, bc)
    assert blocked is not None
    if known is not None and blocked.listed is None:
        return known.reach
    node = blocked.pattern
    rows = np.flatnonzero(np.diff(node.indptr.astype(np.int64)))
    first, last = (node.indices[node.indptr[rows + at].astype(np.int64) - at].astype(np.int64) for at in (0, 1))
    first, last = np.minimum(first, rows), np.maximum(last, rows)
    in_rows = blocked.listed is not None and blocked.contiguous
    reach = blocked.begin[last] - blocked.begin[first] if in_rows else last - first
    return int(reach.max(initial=0))


def laid_out_bytes(plan: Plan, matrix: Matrix) -> float:
    """Bytes of the matrix as it is laid out, about."""
    shape = shapes.shape_of(plan)
    return shapes.values_in(matrix, shape) * entry_bytes(shape, matrix.dtype, way_of(plan))


def ways_in_blocks(matrix: Matrix) -> tuple[str, ...]:
    """Ways to store its values in the blocks that variants have: tables are for blocks of one entry."""
    single = any(variant.startswith("1x1-") for variant in shapes.fitting_variants(matrix))
    return tuple(way for way in ways_of(matrix) if single or way != TABLE)


def least_shared(plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes of shared memory that a block takes at least: of a part of equal share that reads nothing of others."""
    shape, parts = shapes.shape_of(plan), device.sms * plan.typed.blocks_per_sm
    own = shapes.filled_rows(matrix, shape.bc) / shape.bc / parts
    cut = Cut(np.array([own]), np.zeros(1), np.zeros(1), np.zeros(1))
    return fixed_of(plan, cut, matrix, device) + table_bytes(matrix, way_of(plan))


def fixed_of(plan: Plan, cut: Cut, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes of shared memory of the largest part of a cut, before its table and its slots."""
    shape, parts = shapes.shape_of(plan), device.sms * plan.typed.blocks_per_sm
    shared, vectors = plan.typed.x == "shared", plan.typed.vectors
    fixed = fixed_bytes(cut, shape, plan.k, vectors, matrix.dtype.itemsize, shared=shared).max(initial=0.0)
    return float(fixed) + (stage_bytes(matrix, shape.bc, parts, vectors) if shapes.is_staged(plan) else 0)


def storable(plan: Plan, matrix: Matrix, device: CudaDevice) -> Plan:
    """The plan, with values in full where those of the matrix cannot be stored as it says."""
    return plan if is_storable(plan, matrix) else without_compression(plan, matrix, device)


def without_compression(plan: Plan, matrix: Matrix, device: CudaDevice) -> Plan:
    """The plan with values in full, and without slots in registers where there are too few for them."""
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
    shape = shapes.shape_of(plan)
    mode = SHARED if plan.typed.x == "shared" else GLOBAL
    per_sm = plan.typed.blocks_per_sm
    parts, depth = device.sms * per_sm, plan.typed.depth
    given = {"beyond": mode == GLOBAL, "there": there}
    nodes, zones = part_nodes(matrix, plan.partitioner, shape, parts, depth, **given)
    if mode == GLOBAL and nodes.rows.size > nodes.own.sum():
        own = [nodes.rows[p : p + count] for p, count in zip(nodes.ptr[:-1], nodes.own, strict=True)]
        rows, ptr = np.concatenate([nodes.rows[:0], *own]), np.concatenate([[0], np.cumsum(nodes.own)])
        nodes = Nodes(rows, ptr, nodes.own, nodes.own, nodes.border, nodes.neighbours, nodes.neighbour_ptr)
    vectors = plan.typed.vectors
    limit, way, staged = shared_limit(plan, device), way_of(plan), shapes.is_staged(plan)
    fill = filled_there(matrix, in_words=way == TABLE) if there else None
    return lay_out_parts(matrix, nodes, shape, mode, plan.k, vectors, limit, way, staged, fill), zones


def part_nodes(
    matrix: Matrix, partitioner: str, shape: Shape, parts: int, depth: int, *, beyond: bool = False, there: bool = False
) -> tuple[Nodes, GhostZones | None]:
    """The nodes of each part, and the zones where ghosts are computed along.

    `beyond`: blocks read what follows a small node as well (:meth:`akx.formats.block_local.Blocked.read`). `there`:
    parts of rows as they come are found on the device where the pattern of nodes is; with `beyond` these have own nodes
    alone.
    """
    blocked = shapes.blocked_of(matrix, shape.bc)
    assert blocked is not None
    on_device = shapes.nodes_there(matrix, shape.bc) if there and partitioner == "natural" and depth == 1 else None
    beyond &= blocked.listed is not None or on_device is not None
    if depth > 1:
        return _parts_with_ghosts(matrix, partitioner, shape.bc, parts, depth)
    return _parts_alone(matrix, partitioner, shape.bc, parts, beyond, on_device is not None), None


@per_pattern
def _parts_with_ghosts(matrix: Matrix, partitioner: str, bc: int, parts: int, depth: int) -> tuple[Nodes, GhostZones]:
    node = shapes.nodes_of(matrix, bc)
    assert node is not None
    part = _part(node, partitioner, parts)
    indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
    zones = ghost_zones(indptr, indices, order_by_part(part, parts), depth, most_rows=MOST_ROWS)
    return zone_nodes(zones, node), zones


@per_pattern
def _parts_alone(matrix: Matrix, partitioner: str, bc: int, parts: int, beyond: bool, there: bool) -> Nodes:
    blocked, on_device = shapes.blocked_of(matrix, bc), shapes.nodes_there(matrix, bc) if there else None
    assert blocked is not None
    if on_device is not None:
        cuts = natural_cut(matrix, bc, parts, ROW_WORK).first
        assert cuts is not None
        cuts = np.pad(cuts, (0, parts + 1 - cuts.size), mode="edge")
        found = halos_there(on_device, cuts, shapes.widest(matrix, bc), alone=beyond)
    else:
        read, part = blocked.read() if beyond else blocked.pattern, _part(blocked.pattern, partitioner, parts)
        found = halos(read.indptr, read.indices, part, parts, np.diff(blocked.pattern.indptr))
    return Nodes(found.rows, found.ptr, found.own, found.own, found.border, found.neighbours, found.neighbour_ptr)


def _part(node: Pattern, partitioner: str, parts: int) -> NDArray[Any]:
    if partitioner == "metis" and parts > 1:
        from akx.partition.metis import metis_partition

        found: NDArray[Any] = metis_partition(
            node.indptr.view(f"i{node.indptr.itemsize}"),
            node.indices.view(f"i{node.indices.itemsize}"),
            parts,
            weights=np.diff(node.indptr.astype(np.int64)) + int(ROW_WORK),
        )
        return found
    work = np.arange(node.rows + 1, dtype=np.float64)
    work *= ROW_WORK
    work += node.indptr
    cuts = even_cuts(work, parts)
    return np.repeat(np.arange(cuts.size - 1, dtype=np.uint32), np.diff(cuts))
