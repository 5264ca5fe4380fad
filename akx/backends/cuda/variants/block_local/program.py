"""What `resident` and `ghost` share: parts of the matrix that stay on the multiprocessors, and their program.

Shared memory of a thread block, in bytes, for NB start vectors at a time (w: bytes of a value):

    k (3 w + 4)  +  table  +  chunk (NB w + 2 / bc)  +  16 slices  +  2 nodes bc NB w  +  slots (32 br bc s + 64)

that is: coefficients and active slices, the table of values, results on their way into the order of rows (where they
are staged: an equal share of all), slices, x with its halo twice (not where x is in global memory), and as many slots
of the matrix as then fit; s is bytes of a stored value (:mod:`akx.backends.cuda.value_compression.encodings`).
With a table a slot of one entry is a word: where its value is, and its column, 128 bytes in all. Slots in registers
come on top; what fits neither is read from L2 or memory each step.

Dense blocks are those of nodes of one size where the matrix is made of such. Otherwise the natural nodes
(:mod:`akx.formats.natural_blocks`), or supervariables where rows of a node do not follow one another
(:mod:`akx.formats.supervariables`), are cut into pieces of at most bc rows, where blocks with their padding take fewer
bytes than single entries. Then the rows of each node are listed, and 2 / bc above is 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty
from akx.backends.cuda.matrix import features
from akx.backends.cuda.matrix.features import OnDevice
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    TABLE,
    placed,
    placed_words,
    stored_bytes,
    table_bytes,
    values_of,
    way_of,
)
from akx.backends.cuda.value_compression.new_values import not_empty
from akx.backends.cuda.value_compression.program import StoredProgram
from akx.backends.cuda.variants.block_local.exchange import TURNS, ring_of
from akx.backends.cuda.variants.options import HELD_SLOTS, LANES, SHAPES, VARIANTS
from akx.backends.cuda.variants.row_lengths import Measured, measured, measured_rows
from akx.backends.cuda.variants.similar_rows import alike_share, natural_nodes_of, twin_share
from akx.backends.schedule import option_reason
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.base import LatePattern, Pattern, pattern_of
from akx.formats.block_local import (
    NOWHERE,
    SLICE,
    WARP,
    Blocked,
    Fill,
    Nodes,
    Parts,
    Shape,
    blocks_of,
    cut_blocks,
    filled,
    full_blocks,
    lay_out,
    slice_widths,
)
from akx.formats.halo_exchange import published
from akx.formats.supervariables import Supervariables, of_nodes, supervariables
from akx.partition.ghost import GhostZones

__all__ = [
    "ALONE",
    "CLUSTER",
    "DIRECT",
    "EXCHANGES",
    "FLAGS",
    "GLOBAL",
    "RESULTS",
    "SHARED",
    "STAGED",
    "STATIC",
    "VALUES",
    "KeptShare",
    "LaidOut",
    "PartsProgram",
    "active_slices",
    "as_words",
    "best_shape",
    "blocked_of",
    "choice_reason",
    "chunk_bytes",
    "chunk_nodes",
    "column_shapes",
    "entry_bytes",
    "fill_of",
    "filled_rows",
    "fitting_block",
    "fitting_variants",
    "flag_words",
    "holding",
    "is_listed",
    "is_staged",
    "lay_out_parts",
    "load_kernel",
    "macros",
    "may_wait_for_values",
    "measured_nodes",
    "nodes_of",
    "nodes_there",
    "padding",
    "results_apart",
    "rows_follow",
    "shape_of",
    "shared_limit",
    "slices_per_part",
    "slot_bytes",
    "stage_bytes",
    "stage_chunk",
    "staging",
    "values_in",
    "vector_groups",
    "waits_for_values",
    "waste",
    "widest",
    "zone_nodes",
]

SHARED, GLOBAL, ALONE, CLUSTER = 0, 1, 2, 3
_SOURCE = Path(__file__).with_name("parts.cu")
#: How results come in the order of rows: each row where it belongs at once, or through a stage.
RESULTS = DIRECT, STAGED = ("direct", "staged")
#: What a part waits for: values of others themselves, or flags that say that they are there.
EXCHANGES = VALUES, FLAGS = ("values", "flags")
#: Share of the rows that must be like the row before, or like any, for nodes of mixed sizes, or anywhere, to be looked
#: for.
_LEAST_ALIKE = 1.0 / 3.0
#: Entries over values in blocks, at least, where nodes are not all of one size; and bytes over the fewest, at most, of
#: the blocks that are tried for them.
_LEAST_FILL, _NEAR_BEST = 0.8, 1.05
#: Places over entries up to which rows are worth so many lanes.
_MOST_PADDING = 2.0
#: Steps whose results are in the stage at a time: of fewer some would be written again before all have taken them.
_SLABS = 4
#: Bytes of shared memory that the kernels have besides.
STATIC = 96
#: 32-bit registers of a thread that its slots may take, of those that its block leaves it.
_WORKING_REGISTERS = 34
#: Of the bytes of L2, those of a call whose matrix is still there for the next one: between 0.83, where that is so, and
#: 0.90, where it is not (one H100, brick and the 27-point grid).
_STAYS = 0.86
#: What a program has of a layout.
_OF_LAYOUT = (
    *("_laid_out", "_count", "_form", "_tables", "_columns", "_active", "_flags", "_share", "_kernels", "_arrays"),
    *(
        "entry",
        "words",
        "_values",
        "_places",
        "_table",
        "_tabled",
        "_stored",
        "_way",
        "_stage",
        "_ring",
        "_given_places",
    ),
)


def shape_of(plan: Plan) -> Shape:
    """The form of the plan's slots."""
    options = plan.typed
    return _shape(plan.variant, options.block // WARP, options.held_slices, options.held_slots)


@lru_cache(maxsize=1024)
def _shape(variant: str, warps: int, held_slices: int, held_slots: int) -> Shape:
    block, lanes = variant.split("-")
    br, bc = block.split("x")
    return Shape(int(br), int(bc), int(lanes), warps, held_slices, held_slots)


def is_staged(plan: Plan) -> bool:
    """Whether results come in the order of rows through a stage."""
    return bool(plan.typed.results == STAGED)


def may_wait_for_values(plan: Plan) -> bool:
    """Whether parts exchange x between steps in such a way that they may wait for values or for flags."""
    exchanges = plan.typed.x == "shared" and plan.typed.depth < plan.k
    return exchanges and not is_staged(plan)


def waits_for_values(plan: Plan) -> bool:
    """Whether parts look for what others publish until it is there, and not for a flag that says so."""
    return plan.typed.exchange == VALUES and may_wait_for_values(plan)


def blocked_of(matrix: Matrix, bc: int) -> Blocked | None:
    """The matrix in dense blocks of nodes of (up to) bc rows, None where it is not made of them; memoised."""
    key = ("akx.backends.cuda.blocked", bc)
    if key not in matrix.pattern_cache:
        found = _full(matrix, bc)
        if found is None and (sets := _sets(matrix)) is not None:
            found = cut_blocks(pattern_of(matrix), sets, bc)
        matrix.pattern_cache[key] = found
    known: Blocked | None = matrix.pattern_cache[key]
    return known


def nodes_of(matrix: Matrix, bc: int) -> Pattern | None:
    """The pattern of nodes of (up to) bc rows, None where the matrix is not made of dense blocks of them."""
    blocked = blocked_of(matrix, bc)
    return None if blocked is None else blocked.pattern


def filled_rows(matrix: Matrix, bc: int) -> int:
    """Rows of the matrix and those that fill its nodes up to bc."""
    node = nodes_of(matrix, bc)
    assert node is not None
    return node.rows * bc


def is_listed(matrix: Matrix, bc: int) -> bool:
    """Whether the rows of nodes of up to bc rows, of which there are some, are listed."""
    blocked = blocked_of(matrix, bc)
    return blocked is not None and blocked.listed is not None


def rows_follow(matrix: Matrix, bc: int) -> bool:
    """Whether rows of nodes of up to bc rows, of which there are some, follow one another."""
    blocked = blocked_of(matrix, bc)
    return blocked is not None and blocked.contiguous


def results_apart(plan: Plan, matrix: Matrix) -> bool:
    """Whether rows of a part lie anywhere in the results."""
    return plan.partitioner != "natural" or not rows_follow(matrix, shape_of(plan).bc)


def _full(matrix: Matrix, bc: int) -> Blocked | None:
    """The matrix in blocks of bc x bc that have no padding; memoised with the pattern."""
    key = ("akx.backends.cuda.full_blocks", bc)
    if key not in matrix.pattern_cache:
        there = features.of(matrix)
        matrix.pattern_cache[key] = full_blocks(pattern_of(matrix), bc) if there is None else _full_there(matrix, bc)
    found: Blocked | None = matrix.pattern_cache[key]
    return found


def _full_there(matrix: Matrix, bc: int) -> Blocked | None:
    """The same of a matrix on the device, which tells what the nodes are; their columns stay there until asked for."""
    if bc == 1:
        return Blocked(pattern_of(matrix), 1, matrix.n)
    there = nodes_there(matrix, bc)
    if there is None:
        return None
    return Blocked(LatePattern(there.rows, there.column.size, there.pointer.get, there.column.get), bc, matrix.n)


def nodes_there(matrix: Matrix, bc: int) -> OnDevice | None:
    """The pattern of nodes of bc rows on the device; None where they are not all of one size, or of the host.

    Memoised with the pattern.
    """
    there = features.of(matrix)
    if there is None or bc == 1:
        return there
    key = "akx.backends.cuda.nodes_there"
    if key not in matrix.pattern_cache:
        sizes = features.full_blocks(there)
        matrix.pattern_cache[key] = {size: features.blocks_of_nodes(there, size) for size in sizes}
    found: OnDevice | None = matrix.pattern_cache[key].get(bc)
    return found


def measured_nodes(matrix: Matrix, bc: int) -> Measured | None:
    """What :func:`measured_rows` tells, of nodes of bc rows; None where :func:`nodes_there` is. Memoised likewise."""
    there = nodes_there(matrix, bc)
    if there is None or bc == 1:
        return None if there is None else measured_rows(matrix)
    key = ("akx.backends.cuda.measured_nodes", bc)
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = measured(*there)
    found: Measured = matrix.pattern_cache[key]
    return found


def _sets(matrix: Matrix) -> Supervariables | None:
    """What nodes are cut from where the matrix is not made of nodes of one size; memoised with the pattern.

    None where it is, or where a look at some rows says that hardly any is like another.
    """
    key = "akx.backends.cuda.sets"
    if key not in matrix.pattern_cache:
        wide, found = {bc for _, bc in SHAPES if bc > 1}, None
        if matrix.n >= max(wide) and not any(_full(matrix, bc) for bc in wide):
            rows = measured_rows(matrix)
            none = int(np.count_nonzero(np.diff(matrix.indptr) == 0)) if rows is None else rows.empty  # they are alike
            if alike_share(matrix) - none / matrix.n >= _LEAST_ALIKE:
                found = of_nodes(natural_nodes_of(matrix))
            elif twin_share(matrix) >= _LEAST_ALIKE:
                found = supervariables(pattern_of(matrix))
        matrix.pattern_cache[key] = found
    known: Supervariables | None = matrix.pattern_cache[key]
    return known


def fill_of(matrix: Matrix, bc: int) -> float:
    """Entries over values in blocks of nodes of up to bc rows, the padding of rows not counted; 0 where there are none.

    Memoised with the pattern.
    """
    if _full(matrix, bc) is not None:
        return 1.0
    sets = _sets(matrix)
    if sets is None:
        return 0.0
    key = ("akx.backends.cuda.fill", bc)
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = matrix.nnz / max(blocks_of(sets, bc) * bc * bc, 1)
    return float(matrix.pattern_cache[key])


def _bytes_in(matrix: Matrix, shape: tuple[int, int]) -> float:
    """Bytes that an entry takes in blocks of that shape, its share of the padding and of a column included."""
    br, bc = shape
    fill = fill_of(matrix, bc)
    return (matrix.dtype.itemsize + 2.0 / (br * bc)) / fill if fill >= _LEAST_FILL else inf


def column_shapes(matrix: Matrix) -> tuple[tuple[int, int], ...]:
    """The dense blocks that the matrix is made of, or that take fewer bytes than its entries one by one.

    Memoised with the pattern.
    """
    key = ("akx.backends.cuda.column_shapes", matrix.dtype.itemsize)
    if key not in matrix.pattern_cache:
        single = matrix.dtype.itemsize + 2.0
        fewer = (shape for shape in SHAPES if shape == (1, 1) or _bytes_in(matrix, shape) < single)
        matrix.pattern_cache[key] = tuple(fewer)
    found: tuple[tuple[int, int], ...] = matrix.pattern_cache[key]
    return found


def best_shape(matrix: Matrix) -> tuple[int, int]:
    """The dense blocks that take the fewest bytes."""
    return min(column_shapes(matrix), key=lambda shape: (_bytes_in(matrix, shape), shape))


def padding(matrix: Matrix, lanes: int, bc: int) -> float:
    """Places over blocks where rows are dealt to `lanes` lanes, the padding of slices not counted."""
    key = ("akx.backends.cuda.padding", lanes, bc)
    if key not in matrix.pattern_cache:
        node = nodes_of(matrix, bc)
        assert node is not None
        known = measured_nodes(matrix, bc)
        if known is None or lanes not in known.dealt:
            lengths = np.diff(node.indptr.astype(np.int64))
            dealt = int((-(-lengths // lanes) * lanes).sum())
        else:
            dealt = known.dealt[lanes]
        matrix.pattern_cache[key] = float(dealt) / max(node.nnz, 1)
    return float(matrix.pattern_cache[key])


def values_in(matrix: Matrix, shape: Shape) -> float:
    """Values in slots, the padding of slices not counted."""
    node = nodes_of(matrix, shape.bc)
    assert node is not None
    return node.nnz * shape.bc**2 * padding(matrix, shape.lanes, shape.bc)


def fitting_variants(matrix: Matrix) -> tuple[str, ...]:
    """The variants of the widest dense blocks that the matrix is made of, with lanes that its rows are long enough for.

    Narrower blocks hold the same entries with more columns; they are possible, and never the better plan. Of other
    nodes wider blocks have more padding: there those that take hardly more bytes than the best ones are variants, these
    first, and single entries.
    """
    fitting = []
    shapes: Iterable[tuple[int, int]] = column_shapes(matrix)
    if _sets(matrix) is not None:
        taken = {shape: _bytes_in(matrix, shape) for shape in shapes}
        near = (shape for shape in taken if shape == (1, 1) or taken[shape] <= _NEAR_BEST * min(taken.values()))
        shapes = sorted(near, key=lambda shape: (taken[shape], shape))
    else:
        widest = max(wide for _, wide in shapes)
        shapes = (shape for shape in shapes if shape[1] == widest)
    for br, bc in shapes:
        lanes = (n for n in LANES if padding(matrix, n, bc) <= _MOST_PADDING)
        fitting += [f"{br}x{bc}-{n}" for n in lanes]
    return tuple(fitting)


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


def widest(matrix: Matrix, bc: int) -> int:
    """Dense blocks of the longest block row; memoised with the pattern."""
    key = ("akx.backends.cuda.widest", bc)
    if key not in matrix.pattern_cache:
        node = nodes_of(matrix, bc)
        assert node is not None
        known = measured_nodes(matrix, bc)
        longest = np.diff(node.indptr.astype(np.int64)).max(initial=0) if known is None else known.longest
        matrix.pattern_cache[key] = int(longest)
    return int(matrix.pattern_cache[key])


def slices_per_part(matrix: Matrix, shape: Shape, parts: int, growth: float) -> int:
    """Slices of a part that computes `growth` times the rows of an equal share."""
    rows = filled_rows(matrix, shape.bc) / shape.br * growth / max(parts, 1)
    return max(1, ceil(rows * shape.lanes / WARP))


def fitting_block(slices: int, blocks: Sequence[int]) -> int:
    """The fewest threads that give each slice a warp, or the most there are."""
    return next((threads for threads in blocks if threads // WARP >= slices), blocks[-1])


def holding(plan: Plan, reason: Callable[[Plan], str | None], most: int = HELD_SLOTS[-1]) -> Plan | None:
    """The plan with as many slots in registers as one slice of a warp can have, `most` or fewer; None without any."""
    for slots in (slots for slots in reversed(HELD_SLOTS) if slots <= most):
        held = plan.replace(options={**plan.options, "held_slices": 1, "held_slots": slots})
        if reason(held) is None:
            return held
    return None


def choice_reason(
    plan: Plan,
    matrix: Matrix,
    device: CudaDevice,
    allowed: Mapping[str, Sequence[Option]],
    blocks_per_sm: int,
) -> str | None:
    """Why the plan's variant and options are not possible, whatever the parts are."""
    if plan.backend != "cuda":
        return f"this schedule runs on cuda, not on {plan.backend}"
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


def macros(
    shape: Shape,
    dtype: np.dtype[Any],
    vectors: int,
    *,
    mode: int,
    stream: bool,
    blocks: int = 1,
    stored: np.dtype[Any] | None = None,
    staged: bool = False,
    listed: bool = False,
    ringed: bool = False,
    deep: bool = False,
) -> dict[str, int | str]:
    """The macros of the kernel.

    `stored` is the type that values are stored as, their own by default; `staged`: results come through a stage;
    `listed`: so are the rows of nodes; `ringed`: parts wait for values and not for flags; `deep`: not in every step.
    """
    stored = dtype if stored is None else stored
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": "u32" if stored.kind == "u" else C_TYPES[stored.name],
        "AKX_BR": shape.br,
        "AKX_BC": shape.bc,
        "AKX_LANES": shape.lanes,
        "AKX_HELD_SLICES": shape.held_slices,
        "AKX_HELD_SLOTS": shape.held_slots if shape.held_slices else 0,
        "AKX_VECTORS": vectors,
        "AKX_THREADS": WARP * shape.warps,
        "AKX_MODE": mode,
        "AKX_STREAM": int(stream),
        "AKX_BLOCKS": blocks,
        "AKX_STAGED": int(staged),
        "AKX_LISTED": int(listed),
        "AKX_RINGED": int(ringed),
        "AKX_DEEP": int(deep),
    }


def load_kernel(given: dict[str, int | str]) -> Kernel:
    """The kernel that macros ask for."""
    return load(_SOURCE, given, device=cuda_device()).kernel("steps")


@dataclass(frozen=True)
class LaidOut:
    """A matrix in parts, with what the kernels need to know besides.

    Attributes
    ----------
    parts : Parts
    mode : int
    shared : int
        Bytes of dynamic shared memory.
    vectors : int
        Start vectors at a time.
    way : str
        What values are stored as.
    chunk : int
        Results that a part brings from the stage into the order of rows, 0 where they are written there at once.
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


@dataclass(frozen=True)
class KeptShare:
    """Of what a program reads, the share that L2 is asked to keep, in sixteenths.

    Of what is read again in each step: as much as the plan says. Where nothing is: all, for the next call, or nothing.
    What L2 is asked to keep and cannot is worse than nothing: results then have to wait for memory (one H100).

    Attributes
    ----------
    plan : Plan
    far : int
        Bytes that are read again in each step.
    stored : int
        Bytes of the program.
    device : CudaDevice
    """

    plan: Plan
    far: int
    stored: int
    device: CudaDevice

    def of(self, vectors: int) -> np.uint32:
        """For a launch that reads and writes so many bytes of vectors."""
        if self.far:
            return np.uint32(min(16, round(16 * float(self.plan.typed.keep) * 2**20 / self.far)))
        return np.uint32(16 if self.stored + vectors <= _STAYS * self.device.l2_bytes else 0)


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


class PartsProgram(StoredProgram):
    """A matrix in parts on the GPU.

    Attributes
    ----------
    steps : tuple of int
        Steps of each pass; more than one pass only without exchange.
    """

    def __init__(
        self,
        matrix: Matrix,
        laid_out: LaidOut,
        plan: Plan,
        steps: tuple[int, ...],
        active: dict[int, NDArray[np.uint32]],
        blocks_per_sm: int,
        planned: str = FULL,
        in_full: Callable[[NDArray[Any]], PartsProgram] | None = None,
    ) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self.steps, self._in_full = steps, in_full
        self._depth = plan.typed.depth
        self._cluster = plan.typed.cluster
        self._laid_out = laid_out
        parts = laid_out.parts
        self._count = int(parts.parts.size)
        self._form: dict[str, Any] = {
            "mode": laid_out.mode,
            "stream": parts.far_slots > 0,
            "blocks": blocks_per_sm,
            "staged": laid_out.chunk > 0,
            "listed": parts.blocked.listed is not None,
            "ringed": laid_out.mode == SHARED and waits_for_values(plan),
        }
        self._form["deep"] = self._form["ringed"] and self._depth > 1
        ring = published(parts) if self._form["ringed"] else None
        table = parts.parts if ring is None else ring.parts
        words = [table, parts.slices, parts.blocked.words(parts.rows), parts.neighbours]
        self._tables = [self.hold(not_empty(as_words(a))) for a in words]
        if isinstance(parts.entry, DeviceArray):  # the program has them, or what has made room
            self.entry = parts.entry
            self._laid_out = replace(laid_out, parts=replace(parts, columns=None, entry=None))
        if laid_out.way == TABLE:  # in one word with what says the value
            self._columns = self.hold(np.zeros(1, np.uint16))
            self.words = None if self.entry is None else parts.columns
        elif self.entry is None or parts.columns.size == 0:
            self._columns = self.hold(np.zeros(1, np.uint16) if parts.columns.size == 0 else parts.columns)
        else:
            self._columns = self.held(parts.columns)
        self._active = {depth: self.hold(table) for depth, table in active.items()}
        self._flags = self.hold(np.zeros(flag_words(self._count, staged=laid_out.chunk > 0), dtype=np.uint32))
        self._stage, self._ring = [self._flags] * 3, [self._flags] * 2  # not looked at
        self._given_places = np.uint32(0 if ring is None else ring.places)
        if ring is not None:
            vectors = laid_out.vectors * (2 if self._depth > 1 else 1)
            if TURNS * vectors * ring.places >= 2**32:
                raise InfeasibleError("what parts publish has more places than 32 bits number")
            of_values = self.held(ring_of(ring.places, vectors, self.dtype))
            self._ring = [self.hold(not_empty(ring.halo)), of_values]
        if laid_out.chunk:
            places = (self.hold(not_empty(array)) for array in staging(parts, laid_out.chunk))
            self._stage = [self.held(empty((_SLABS, laid_out.vectors, self.n), self.dtype)), *places]
        self.store_values(laid_out.way, values_of(matrix), self._laid, self._map, planned, matrix.value_error)
        far = parts.far_slots * slot_bytes(parts.shape, matrix.dtype, laid_out.way)
        self._share = KeptShare(plan, far, self.nbytes - self._places.nbytes, cuda_device())
        self._kernels: dict[int, Kernel] = {}

    def _laid(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Values of the host in their places."""
        if self.entry is None:
            return self._laid_out.values(stored)
        entry = self.entry_of_host()
        if self._way != TABLE:
            return placed(stored, entry)
        return placed_words(stored, entry, (self._values.get() >> 16).astype(np.uint16))

    def _map(self) -> NDArray[np.uint32]:
        """Which entry each place has."""
        found: NDArray[np.uint32] = self._laid_out.parts.entry if self.entry is None else self.entry_of_host()
        return found

    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these and all later values in full, which takes another layout: less of it stays on the chip."""
        assert self._in_full is not None
        other = self._in_full(data)
        for size in self._kernels:
            other.ready(size)
        self.forget_graphs()
        for name in _OF_LAYOUT:
            setattr(self, name, getattr(other, name))
        self._on_host = self._laid
        self._in_full = None  # from here on they stay so

    def groups(self, vectors: int) -> list[tuple[int, int, int]]:
        """(first, last, at a time) of the kernels that so many start vectors take."""
        return vector_groups(vectors, self._laid_out.vectors)

    def ready(self, vectors: int) -> None:
        for _, _, size in self.groups(vectors):
            if size not in self._kernels:
                given = macros(self._laid_out.parts.shape, self.dtype, size, **self._form, stored=self._stored)
                self._kernels[size] = load_kernel(given)

    @property
    def kernels(self) -> dict[int, Kernel]:
        """The kernels made so far, by start vectors at a time."""
        return self._kernels

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors = x.shape[0]
        parts, slices, rows, neighbours = self._tables
        for first, last, size in self.groups(vectors):
            done = 0
            for steps in self.steps:
                depth = self._depth if self._laid_out.mode == SHARED else steps
                self._kernels[size].launch(
                    self._count,
                    WARP * self._laid_out.parts.shape.warps,
                    [
                        parts,
                        slices,
                        rows,
                        neighbours,
                        self._active.get(depth, self._flags),
                        self._values,
                        self._columns,
                        self._table,
                        np.uint32(self._tabled),
                        coefficients,
                        self._flags,
                        x,
                        out,
                        np.uint32(self.k),
                        np.uint32(vectors),
                        np.uint32(first),
                        np.uint32(last),
                        np.int64(self.n),
                        np.uint32(done),
                        np.uint32(steps),
                        np.uint32(depth),
                        self._share.of((steps + 2) * (last - first) * self.n * self.dtype.itemsize),
                        *self._stage,
                        np.uint32(self._laid_out.chunk),
                        *self._ring,
                        np.uint32(self._laid_out.vectors),
                        self._given_places,
                    ],
                    shared=self._laid_out.shared,
                    cooperative=self._laid_out.mode in (SHARED, GLOBAL),
                    cluster=self._cluster,
                    stream=self.stream,
                )
                done += steps


def vector_groups(vectors: int, size: int) -> list[tuple[int, int, int]]:
    """(first, last, at a time) of the kernels that so many start vectors take, at most `size` at a time."""
    found, at = [], 0
    while at < vectors:
        while size > vectors - at:
            size //= 2
        stop = at + (vectors - at) // size * size
        found.append((at, stop, size))
        at = stop
    return found


def as_words(array: NDArray[Any]) -> NDArray[np.uint32]:
    """The bytes of an array as 32-bit words."""
    return np.ascontiguousarray(array).view(np.uint32).reshape(-1)
