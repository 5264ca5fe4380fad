"""Cost model of `resident` and `ghost` on the GPU: bytes, cycles and waits of a step, for the busiest of the parts.

    cycles      slots x values in one x cycles of 32 values + slices x cycles of one, of all parts on a multiprocessor
    chain       slots of the longest warp x latency of x + halo / threads x latency of L2 + flags of neighbours
    transfers   slots that neither registers nor shared memory hold (L2 keeps some), results, gathers of x in L2

with a barrier for each exchange, and a chain of some cycles where only the threads of a block meet. What a part holds
and what it reads of others is counted where rows are in the order given (one pass over the columns, memoised); of an
order that METIS would make it is guessed from the growth of balls (:mod:`akx.partition.ball_growth`). Results that
METIS has scattered are written one by one, or move through a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.cost.model import SECTOR, gathered_share, in_cache, multiply_cycles
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.matrix import features
from akx.backends.cuda.value_compression.encodings import FULL, table_bytes
from akx.backends.cuda.variants.block_local.clusters import likely_closure_and_work
from akx.backends.cuda.variants.block_local.layout import STATIC, held_registers, slot_bytes, stage_bytes
from akx.backends.cuda.variants.block_local.shapes import nodes_of, nodes_there, padding, widest
from akx.core.matrix import Matrix
from akx.cost.coefficients import coefficients
from akx.cost.counts import Work
from akx.formats.base import Pattern
from akx.formats.block_local import SLICE, WARP, Shape
from akx.partition.cuts import even_cuts_of
from akx.partition.halo import halo_sizes

__all__ = ["Cut", "block_local_work", "fixed_bytes", "likely_cut_of", "natural_cut", "slots_per_slice"]

_COST = coefficients("cuda", "block_local")

#: 32-bit registers of a thread that are no slots.
_WORKING = 34


@dataclass(frozen=True)
class Cut:
    """The parts of a matrix, in nodes; each array of shape (parts,), or of one element that stands for all parts.

    Attributes
    ----------
    own, halo : arrays of float64
        Nodes of a part, and others that its rows read.
    neighbours : array of float64
        Parts that own the halo.
    span : array of float64
        From the least node that a part has or reads to the largest; infinite where that is not known.
    first : (parts+1,) array of int64, optional
        First node of each part, where parts are runs of nodes.
    closure, redundancy : float
        Rows ever computed over own ones, and row products over those needed, where ghosts are computed along.
    """

    own: NDArray[np.float64]
    halo: NDArray[np.float64]
    neighbours: NDArray[np.float64]
    span: NDArray[np.float64]
    first: NDArray[np.int64] | None = None
    closure: float = 1.0
    redundancy: float = 1.0


def natural_cut(matrix: Matrix, bc: int, parts: int, row_work: float) -> Cut:
    """What `parts` runs of nodes of equal work read of one another; memoised with the pattern.

    `row_work` is what a row costs beside its entries, in entries.
    """
    key = ("akx.backends.cuda.natural_cut", bc, parts, row_work)
    if key not in matrix.pattern_cache:
        node, there = _nodes(matrix, bc), nodes_there(matrix, bc)

        def work(rows: NDArray[np.int64]) -> NDArray[np.float64]:
            before = node.indptr[rows] if there is None else features.starts_at(there, rows)
            return before.astype(np.float64) + row_work * rows

        cuts = even_cuts_of(work, node.rows, parts)
        if there is None:
            halo, neighbours, span = halo_sizes(node.indptr, node.indices, cuts)
        else:
            halo, neighbours, span, slots = features.parts_read(there, cuts)
            for lanes, count in slots.items():
                matrix.pattern_cache[_dealt_key(bc, lanes, cuts)] = count.astype(np.float64)
        matrix.pattern_cache[key] = Cut(np.diff(cuts).astype(np.float64), halo, neighbours, span, cuts)
    found: Cut = matrix.pattern_cache[key]
    return found


def likely_cut_of(matrix: Matrix, bc: int, parts: int, depth: int) -> Cut:
    """The parts of a partitioner that keeps them compact, which nobody has asked, with ghosts of `depth` steps."""
    rows = _nodes(matrix, bc).rows
    reach = likely_closure_and_work(matrix, parts, depth + 1)[0]
    closure, redundancy = likely_closure_and_work(matrix, parts, depth)
    own = np.array([_COST.largest_part_ratio * rows / max(parts, 1)])
    return Cut(
        own,
        own * (reach - closure),
        np.array([_COST.neighbour_parts_count]),
        np.array([np.inf]),
        None,
        closure,
        redundancy,
    )


def fixed_bytes(cut: Cut, shape: Shape, k: int, vectors: int, size: int, *, shared: bool) -> NDArray[np.float64]:
    """Bytes of shared memory of each part before any slot (:mod:`akx.backends.cuda.variants.block_local.program`)."""
    slices = np.ceil(cut.own * cut.redundancy * (shape.bc // shape.br) * shape.lanes / WARP)
    x = 2.0 * (cut.own * cut.closure + cut.halo) * shape.bc * vectors * size if shared else 0.0
    fixed: NDArray[np.float64] = STATIC + -(-k * (3 * size + 4) // 16) * 16 + SLICE.itemsize * slices + x
    return fixed


def block_local_work(
    matrix: Matrix,
    device: CudaDevice,
    k: int,
    vectors: int,
    shape: Shape,
    cut: Cut,
    *,
    per_sm: int,
    shared: bool,
    together: int = 1,
    depth: int = 1,
    keep: float = 0.0,
    passes: int = 1,
    waves: int = 1,
    way: str = FULL,
    scattered: bool = False,
    partial: float | None = None,
    staged: bool = False,
) -> Work:
    """The work of k steps of parts, for `resident` and `ghost`.

    `vectors`, `together`: start vectors, and how many of them at a time. `per_sm`: parts on a multiprocessor. `shared`:
    x is in shared memory. `depth`: steps from one exchange to the next; 0 where there is none. `keep`: bytes that L2 is
    asked to keep. `passes`, `waves`: launches for the k steps; sets of parts one after another. `way`: what values are
    stored as. `scattered`: rows of a part lie as far apart in the results as the columns of a row do. `partial`: bytes
    that L2 moves in the time in which it takes a result that shares a sector with no other of its warp. `staged`:
    results come in the order of rows through a stage.
    """
    size, groups = matrix.dtype.itemsize, ceil(vectors / together)
    slots, slices = _slots(matrix, shape, cut)
    mean = float(slots.sum() / max(slices.sum(), 1.0))
    long = ceil(widest(matrix, shape.bc) / shape.lanes)
    held, rounds = np.minimum(slices, shape.held_slices * shape.warps), slices / shape.warps
    held_filled = held * min(mean, shape.held_slots)
    spent = _multiplying_cycles(device, matrix, shape, together, slots - held_filled, held * shape.held_slots)
    cycles = waves * per_sm * float((spent + slices * _COST.slice_cycles).max(initial=0.0))
    chain = (long + np.maximum(rounds - 1.0, 0.0) * mean) * (
        _COST.shared_wait_cycles if shared else _COST.global_wait_cycles
    )
    waited = cut.neighbours * _COST.flag_cycles
    if shared:
        waited = waited + cut.halo * shape.bc * together / (WARP * shape.warps) * _COST.halo_wait_cycles
    bytes_of_slot = float(slot_bytes(shape, matrix.dtype, way))
    limit = min(device.shared_per_block, device.shared_per_sm // per_sm - 1024)
    fixed = fixed_bytes(cut, shape, k, together, size, shared=shared) + table_bytes(matrix, way)
    if staged:
        fixed += stage_bytes(matrix, shape.bc, device.sms * per_sm, together)
    room = np.maximum(limit - fixed, 0.0)
    rest = np.maximum(slots * bytes_of_slot - room - held_filled * bytes_of_slot, 0.0)
    count = 1.0 if cut.first is not None else _nodes(matrix, shape.bc).rows / float(cut.own[0])
    far = read = float(rest.sum()) * count
    stored = float(slots.sum()) * count * bytes_of_slot
    kept = min(far, keep, _COST.kept_cache_share * device.l2_bytes)
    vector = float(matrix.n) * size * together
    gathered = 0.0 if shared else _COST.gathered_sectors_share * gathered_share(matrix) * matrix.nnz * SECTOR * together
    if staged:
        gathered += (1.0 + 2.0 / k) * matrix.n * _COST.staged_result_bytes * size / 8.0 * together
    elif scattered:
        gathered += _scattered_bytes(matrix, together, partial)
    if far > 0.0:
        far += _spilled(device, matrix, shape, per_sm, together, way) * per_sm * device.sms
    steps, exchanges = float(k * groups), (ceil(k / depth) if depth else 0) * groups
    waiting = float(long) if depth else long + _COST.later_slice_wait_ratio * np.maximum(rounds - 1.0, 0.0) * mean
    chain = chain + waiting * (far / max(stored, 1.0)) / _ahead(shape) * _COST.slots_wait_cycles
    beside = steps * waves * float(chain.max(initial=0.0)) + exchanges * float(waited.max(initial=0.0))
    cached = in_cache(stored + 2.0 * vector, device)
    # What comes in each step is not loaded besides; what is read once a call stays longer than that.
    loaded = (1.0 - in_cache(_COST.loaded_bytes_share * stored, device)) * max(stored - read, 0.0)
    return Work(
        loaded_bytes=passes * (loaded + (1.0 - cached) * vector * cut.closure),
        memory_bytes=steps * (far - kept + (2.0 if staged else 1.0) * vector * (1.0 - cached)),
        cache_bytes=steps * (far + (2.0 if depth else 1.0) * vector + gathered) + passes * (stored + vector),
        cycles=steps * cycles,
        chain=beside
        + (steps - exchanges) * waves * _COST.meeting_cycles
        + (steps + 2.0 * groups) * (_COST.staged_step_cycles if staged else 0.0),
        launches=float(passes),
        barriers=float(exchanges),
    )


def _multiplying_cycles(
    device: CudaDevice,
    matrix: Matrix,
    shape: Shape,
    together: int,
    slots: NDArray[np.float64],
    held: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Cycles of the products of each part in a step, of `slots` that are read and of those that registers hold."""
    area, least = shape.br * shape.bc * together, multiply_cycles(device, matrix.dtype)
    each, each_held = (
        area * max(one * matrix.dtype.itemsize / 8.0, least) for one in (_COST.values_cycles, _COST.held_values_cycles)
    )
    found: NDArray[np.float64] = np.maximum(slots, 0.0) * each + held * each_held
    return found


def _scattered_bytes(matrix: Matrix, together: int, each: float | None) -> float:
    """Bytes that L2 moves in the time in which it takes the results of a step one by one."""
    each = _COST.partial_result_bytes if each is None else each
    return float(gathered_share(matrix) ** _COST.partial_result_exponent * matrix.n * each * together)


def _ahead(shape: Shape) -> int:
    """Slots that a warp asks for before it uses the first of them."""
    values = shape.br * shape.bc
    return 1 if values >= 12 else 2 if values >= 6 else 4 if values >= 3 else 8


def _spilled(device: CudaDevice, matrix: Matrix, shape: Shape, per_sm: int, together: int, way: str) -> float:
    """Bytes that a block writes and reads in a step for want of registers, where slots are on their way besides."""
    words, values = matrix.dtype.itemsize / 4.0, shape.br * shape.bc
    ahead = _ahead(shape) * slot_bytes(shape, matrix.dtype, way) / (4.0 * WARP)
    threads = WARP * shape.warps
    there = min(255, device.registers_per_sm // (threads * per_sm) // 8 * 8) - _WORKING
    held = held_registers(shape, matrix.dtype, way)
    taken = held + ahead + values * words + shape.br * words * together
    return 8.0 * threads * max(0.0, min(taken - there, float(held)))


def _slots(matrix: Matrix, shape: Shape, cut: Cut) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slots and slices of each part: rows are by falling length in it, so that hardly a slice is padded."""
    per_node, height = shape.bc // shape.br, WARP // shape.lanes
    slices = np.ceil(cut.own * cut.redundancy * per_node / height)
    if cut.first is None:
        blocks = slots_per_slice(matrix, shape.lanes, shape.bc) * shape.lanes
        return cut.own * cut.redundancy * per_node * blocks / WARP, slices
    key = _dealt_key(shape.bc, shape.lanes, cut.first)
    if key not in matrix.pattern_cache:
        lengths = np.diff(_nodes(matrix, shape.bc).indptr.astype(np.int64))
        ends = np.zeros(lengths.size + 1, dtype=np.int64)
        np.cumsum(-(-lengths // shape.lanes), out=ends[1:])
        matrix.pattern_cache[key] = np.diff(ends[cut.first]).astype(np.float64)
    entries = matrix.pattern_cache[key]
    return entries * cut.redundancy * per_node / height, slices


def _dealt_key(bc: int, lanes: int, first: NDArray[np.int64]) -> tuple[object, ...]:
    """What the slots of parts are known by, where each row is dealt to so many lanes."""
    return ("akx.backends.cuda.padded_rows", bc, lanes, first.tobytes())


def _nodes(matrix: Matrix, bc: int) -> Pattern:
    node = nodes_of(matrix, bc)
    assert node is not None
    return node


def slots_per_slice(matrix: Matrix, lanes: int, bc: int) -> float:
    """Slots that a slice has on average."""
    node = _nodes(matrix, bc)
    return node.nnz * padding(matrix, lanes, bc) / lanes / max(node.rows, 1)
