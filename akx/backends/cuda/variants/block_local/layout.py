"""Parts of a matrix laid out for blocks of threads: their lists of nodes, and the shared memory that each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    TABLE,
    placed,
    placed_words,
    stored_bytes,
    table_bytes,
    way_of,
)
from akx.backends.cuda.variants.block_local.shapes import (
    _MOST_PADDING,
    blocked_of,
    column_shapes,
    fitting_block,
    is_listed,
    padding,
    shape_of,
    slices_per_part,
    widest,
)
from akx.backends.cuda.variants.options import HELD_SLOTS, VARIANTS
from akx.backends.schedule import option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.base import Pattern, pattern_of
from akx.formats.block_local import NOWHERE, SLICE, WARP, Fill, Nodes, Parts, Shape, filled, lay_out, slice_widths
from akx.partition.ghost import GhostZones

__all__ = [
    "ALONE",
    "CLUSTER",
    "GLOBAL",
    "SHARED",
    "STATIC",
    "LaidOut",
    "active_slices",
    "as_words",
    "choice_reason",
    "chunk_bytes",
    "chunk_nodes",
    "entry_bytes",
    "flag_words",
    "held_registers",
    "holding",
    "lay_out_parts",
    "shared_limit",
    "slot_bytes",
    "stage_bytes",
    "stage_chunk",
    "staging",
    "waste",
    "zone_nodes",
]

SHARED, GLOBAL, ALONE, CLUSTER = 0, 1, 2, 3
#: Bytes of shared memory that the kernels have besides.
STATIC = 96
#: 32-bit registers of a thread that its slots may take, of those that its block leaves it.
_WORKING_REGISTERS = 34


def shared_limit(plan: Plan, device: CudaDevice) -> int:
    """Bytes of shared memory for each block."""
    return min(device.shared_per_block, device.shared_per_sm // int(plan.typed.blocks_per_sm) - 1024)


def slot_bytes(shape: Shape, dtype: np.dtype[Any], way: str = FULL) -> int:
    """Bytes of a slot: values and columns, which are in one word where values are in a table."""
    return 4 * WARP if way == TABLE else shape.slot * stored_bytes(way, dtype) + 2 * WARP


def entry_bytes(shape: Shape, dtype: np.dtype[Any], way: str = FULL) -> float:
    """Bytes of an entry, its share of a column included."""
    return slot_bytes(shape, dtype, way) / shape.slot


def held_registers(shape: Shape, dtype: np.dtype[Any], way: str = FULL) -> int:
    """32-bit registers of a thread that its slots take."""
    if way == TABLE:
        return shape.held_slices * shape.held_slots
    of_values = shape.held_slots * shape.br * shape.bc * stored_bytes(way, dtype) // 4
    return shape.held_slices * (of_values + (shape.held_slots + 1) // 2)


def holding(plan: Plan, reason: Callable[[Plan], str | None], most: int = HELD_SLOTS[-1]) -> Plan | None:
    """The plan with as many slots in registers as one slice of a warp can have, `most` or fewer; None without any."""
    for slots in (slots for slots in reversed(HELD_SLOTS) if slots <= most):
        held = plan.replace(options={**plan.options, "held_slices": 1, "held_slots": slots})
        if reason(held) is None:
            return held
    return None


def choice_reason(
    plan: Plan, matrix: Matrix, device: CudaDevice, allowed: Mapping[str, Sequence[Option]], blocks_per_sm: int
) -> str | None:
    """Why the plan's variant and options are not possible, whatever the parts are."""
    if plan.variant not in VARIANTS:
        return f"unknown variant {plan.variant!r}, known are {', '.join(VARIANTS)}"
    reason = option_reason(plan, allowed)
    if reason is not None:
        return reason
    shape = shape_of(plan)
    if (shape.br, shape.bc) not in column_shapes(matrix):
        return f"the matrix is not made of dense {shape.bc} x {shape.bc} blocks, nor nearly so"
    if shape.held_slices == 0 and shape.held_slots != 1:
        return "slots in registers of no slices"
    if padding(matrix, shape.lanes, shape.bc) > _MOST_PADDING:
        return f"rows are too short for {shape.lanes} lanes each"
    threads = WARP * shape.warps * blocks_per_sm
    room = min(255, device.registers_per_sm // threads // 8 * 8) - _WORKING_REGISTERS
    area = shape.br * shape.bc * matrix.dtype.itemsize // 4
    room -= shape.br * matrix.dtype.itemsize // 4 * plan.typed.vectors + area
    registers = held_registers(shape, matrix.dtype, way_of(plan) if "stored" in allowed else FULL)
    if registers > max(room, 0):
        return f"{registers} registers for slots do not fit {room}"
    if threads > 2048:
        return f"{threads} threads do not fit a multiprocessor"
    return None


def waste(plan: Plan, matrix: Matrix, parts: int, blocks: Sequence[int], growth: float) -> str | None:
    """What the plan has no use for: threads beyond the slices of a part, registers for slices or slots it has not.

    The plan with fewer is the same and cheaper. `growth` is how many times the rows of an equal share a part computes.
    """
    shape = shape_of(plan)
    slices = slices_per_part(matrix, shape, parts, growth)
    if WARP * shape.warps > fitting_block(slices, blocks):
        return f"{WARP * shape.warps} threads for {slices} slices of 32 lanes"
    if shape.held_slices > ceil(slices / shape.warps):
        return f"registers for {shape.held_slices} slices of a warp, of {ceil(slices / shape.warps)}"
    slots = ceil(widest(matrix, shape.bc) / shape.lanes)
    return (
        f"registers for {shape.held_slots} slots of a slice, of {slots}" if shape.held_slots > max(1, slots) else None
    )


@dataclass(frozen=True)
class LaidOut:
    """A matrix in parts, with what the kernels need to know besides.

    `shared`: bytes of dynamic shared memory. `vectors`: start vectors at a time. `way`: what values are stored as.
    `chunk`: results that a part brings from the stage into the order of rows, 0 where they are written there at once.
    """

    parts: Parts
    mode: int
    shared: int
    vectors: int
    way: str = FULL
    chunk: int = 0

    def values(self, stored: NDArray[Any]) -> NDArray[Any]:
        """The values in their places, from those of the entries in the order of CSR, as they are stored."""
        parts = self.parts
        return placed_words(stored, parts.entry, parts.columns) if self.way == TABLE else placed(stored, parts.entry)


def lay_out_parts(
    matrix: Matrix,
    nodes: Nodes,
    shape: Shape,
    mode: int,
    k: int,
    vectors: int,
    limit: int,
    way: str = FULL,
    staged: bool = False,
    fill: Fill | None = None,
) -> LaidOut:
    """Lay the matrix out for blocks with `limit` bytes of shared memory. Raises :class:`InfeasibleError`.

    `fill` finds what is in slots, by default on the host.
    """
    blocked = blocked_of(matrix, shape.bc)
    assert blocked is not None
    size, node = matrix.dtype.itemsize, blocked.pattern
    if mode == SHARED:  # who reads has something to publish
        nodes = replace(nodes, border=np.maximum(nodes.border, np.diff(nodes.ptr) > nodes.own))
    widths = slice_widths(nodes, node, shape)
    x = np.zeros(nodes.own.size) if mode == GLOBAL else 2 * nodes.room * (shape.bc * vectors * size)
    tables = -(-k * (3 * size + 4) // 16) * 16 + table_bytes(matrix, way)
    chunk, together = stage_chunk(matrix, shape.bc, nodes.own.size) if staged else (0, 1)
    tables += chunk_bytes(chunk, together, vectors, size, listed=blocked.listed is not None)
    fixed = STATIC + tables + np.diff(widths[1]) * SLICE.itemsize + x.astype(np.int64)
    if int(fixed.max(initial=0)) > limit:
        raise InfeasibleError(
            "x does not fit the shared memory",
            expected=f"at most {limit} bytes per part",
            found=f"{int(fixed.max())} bytes",
            hint="keep x in global memory, or take fewer start vectors at a time",
        )
    slot = slot_bytes(shape, matrix.dtype, way)
    room, local = (limit - fixed) // slot, mode != GLOBAL
    fill = fill or filled(pattern_of(matrix))
    parts = lay_out(matrix.nnz, blocked, nodes, shape, widths, room, fill, local=local)
    shared = int((fixed - STATIC + parts.parts["nears"].astype(np.int64) * slot).max(initial=0))
    return LaidOut(parts, mode, shared, vectors, way, chunk * together)


def flag_words(parts: int, *, staged: bool) -> int:
    """Words that parts tell one another by: one each, and with a stage a counter of all in a line of its own."""
    return -(-parts // WARP) * WARP + 1 if staged else max(parts, 1)


def chunk_nodes(nodes: int, parts: int) -> int:
    """Nodes whose results a part brings from the stage into the order of rows: what each would have, and some more."""
    return -(-nodes // max(parts, 1) // 4) * 4


def chunk_bytes(chunk: int, bc: int, vectors: int, size: int, *, listed: bool = False) -> int:
    """Bytes of shared memory for the results of so many nodes, and for where they are: among them, or in the stage."""
    return vectors * chunk * bc * size + -(-chunk // 8) * (32 if listed else 16)


def stage_chunk(matrix: Matrix, bc: int, parts: int) -> tuple[int, int]:
    """Nodes that a part brings from the stage, and rows of each; or single rows where those of nodes are listed."""
    together = 1 if is_listed(matrix, bc) else bc
    return chunk_nodes(matrix.n // together, parts), together


def stage_bytes(matrix: Matrix, bc: int, parts: int, vectors: int) -> int:
    """Bytes of shared memory for them (:func:`chunk_bytes`)."""
    chunk, together = stage_chunk(matrix, bc, parts)
    return chunk_bytes(chunk, together, vectors, matrix.dtype.itemsize, listed=is_listed(matrix, bc))


def active_slices(zones: GhostZones, shape: Shape, steps: int) -> NDArray[np.uint32]:
    """Slices of each block that each of `steps` steps computes, shape (blocks, steps)."""
    counts = zones.ptr[:, steps:0:-1] - zones.ptr[:, :1]
    per_slice = WARP // shape.lanes
    return np.ascontiguousarray(-(-counts * (shape.bc // shape.br) // per_slice), dtype=np.uint32)


def zone_nodes(zones: GhostZones, node: Pattern | None) -> Nodes:
    """The closures as lists of nodes: own ones, those that others need first, then distance by distance.

    Among themselves own ones and those of one distance are by falling length.
    """
    assert node is not None
    lengths = np.diff(node.indptr.astype(np.int64))
    sizes = np.diff(zones.ptr, axis=1)
    count, distances = sizes.shape
    ring = np.repeat(np.arange(count * distances), sizes.ravel())
    foreign = ring % distances > 0
    part = ring // distances
    wanted, owner = np.zeros(node.rows, dtype=bool), np.zeros(node.rows, dtype=np.int64)
    wanted[zones.rows[foreign]] = True
    owner[zones.rows[~foreign]] = part[~foreign]
    inner = ~wanted[zones.rows] & ~foreign
    order = np.lexsort((np.arange(ring.size), -lengths[zones.rows], inner, ring))
    pairs = np.unique(part[foreign] * count + owner[zones.rows[foreign]])
    neighbour_ptr = np.searchsorted(pairs, np.arange(count + 1) * count).astype(np.int64)
    return Nodes(
        zones.rows[order].astype(np.uint32),
        np.append(zones.ptr[:, 0], zones.ptr[-1, -1]).astype(np.int64),
        zones.ptr[:, zones.k] - zones.ptr[:, 0],
        sizes[:, 0].copy(),
        np.bincount(part[~foreign & ~inner], minlength=count).astype(np.int64),
        (pairs % count).astype(np.uint32),
        neighbour_ptr,
    )


def staging(parts: Parts, rows: int) -> tuple[NDArray[np.uint32], NDArray[np.unsignedinteger[Any]]]:
    """Where results are in the stage, of each node of each part, in the order of :attr:`Parts.rows`.

    By chunks of so many rows, in each chunk part by part; beside it where in its chunk each node of the matrix is. If
    the rows of nodes are listed, of each row, part by part; beside it where in the stage each row of the matrix is.
    """
    first, own = (parts.parts[name].astype(np.int64) for name in ("node", "own"))
    at = np.arange(int(own.sum())) + np.repeat(first - (np.cumsum(own) - own), own)
    wanted, blocked = parts.blocked.words(parts.rows), parts.blocked
    owned = blocked.words(parts.rows[at])
    if blocked.listed is not None:
        owned = owned[owned != NOWHERE]
        place = np.empty(owned.size, dtype=np.uint32)
        place[owned] = np.arange(owned.size)
        return np.append(place, NOWHERE)[np.minimum(wanted, owned.size)], place
    chunk, owned = rows // blocked.bc, owned.astype(np.int64)
    place = np.empty(owned.size, dtype=np.uint32)
    place[owned[np.argsort(owned // chunk, kind="stable")]] = np.arange(owned.size)
    return place[wanted], (place % chunk).astype(np.uint16)


def as_words(array: NDArray[Any]) -> NDArray[np.uint32]:
    """The bytes of an array as 32-bit words."""
    return np.ascontiguousarray(array).view(np.uint32).reshape(-1)
