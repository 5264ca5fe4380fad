"""Cost model of `sweep` on the GPU: bytes, cycles and waits of a power, by variant.

For b start vectors at a time:

    transfers   stored bytes and b x (x read, y written); from L2 what is fetched twice, and the sectors of x gathered
    cycles      later warps x shuffles + loads of warps x b + lines that these ask L1 for
    chain       the longer of two: times that the longest row asks for some slots x latency, or until the last warp ends

A warp of csr-L has 32 / L rows and loads as often as the longest of them asks. Where few lanes have a row, a sector of
the matrix is used over several loads, and is fetched again where the rows in flight take more lines than L1 has.

Warps that a multiprocessor has room for begin together, and 25 of them are done with as soon as one, which is in what a
kernel takes anyway; the others crowd. Those that have no room begin when others end (*later*): a second round costs a
warp's life, however few it is for, and each further warp some cycles that transfers do not hide. Constants are rounded,
fitted on plain products of 34 matrices on an H100: of the variants offered the fastest promises most for 21 of them,
one within 5 % of it for 29, and one within 15 % for all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from akx.backends.cuda.cost.model import (
    SECTOR,
    gathered_share,
    in_cache,
    longest_row,
    multiply_cycles,
    sampled_lengths,
    touched_lines,
)
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.reordered import with_order
from akx.backends.cuda.schedules.sweep import layout
from akx.backends.cuda.schedules.sweep.layout import stored_slots
from akx.backends.cuda.value_compression.encodings import TABLE, stored_bytes, way_of
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants import vbell
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients
from akx.cost.counts import Work
from akx.formats.pcsr import PARTITION

__all__ = [
    "csr_work",
    "hubs_work",
    "looked_up",
    "outside_work",
    "pcsr_work",
    "rows16_work",
    "sell_work",
    "vbell_work",
    "work",
]

_COST = coefficients("cuda", "sweep")

#: Slots of a lane that csr and sell ask for together, as in ``sweep.cuh``.
_TOGETHER_IN_LANE = 4
#: Threads of a multiprocessor, bytes of a line, and the share of its memory that is L1's where a kernel shares none.
_THREADS, _LINE, _L1 = 2048, 128, 0.75
#: By compute capability, threads of multiprocessors that hold fewer (CUDA C++ Programming Guide, technical
#: specifications).
_FEWER_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536}
_WARP_SIZE = 32


def csr_work(matrix: Matrix, device: CudaDevice, k: int, vectors: int, lanes: int, value: int) -> Work:
    """Compressed sparse rows, `lanes` threads a row; a stored value has `value` bytes, here and below."""
    loads = -(-sampled_lengths(matrix) // lanes)
    per_warp = loads.reshape(loads.shape[0], lanes, _WARP_SIZE // lanes).max(axis=2)
    warps = matrix.n * lanes / _WARP_SIZE
    stored = matrix.nnz * (value + 4.0) + 4.0 * matrix.n
    longest = _turns(-(-longest_row(matrix) // lanes))
    again = _fetched_again(matrix, device, lanes)
    issued = _later(warps, device) * _COST.shuffle_cycles * np.log2(lanes) * vectors
    issued += _COST.load_cycles * warps * float(per_warp.mean()) * vectors
    issued += _COST.line_cycles * touched_lines(matrix, lanes) * matrix.nnz * vectors
    issued += _COST.line_cycles * warps * float(per_warp.mean()) * _lines_of_rows(matrix, _WARP_SIZE / lanes)
    found = _work(matrix, device, k, vectors, stored, again, issued, longest)
    turns = float(np.ceil(per_warp / _TOGETHER_IN_LANE).mean())
    return replace(found, chain=max(found.chain, k * _waited(warps, device, turns)))


def sell_work(
    matrix: Matrix,
    device: CudaDevice,
    k: int,
    vectors: int,
    lanes: int,
    *,
    slots: int,
    bits: int,
    order: bool,
    value: int,
) -> Work:
    """Sliced ELL of `slots` slots, columns of so many bits; `order`: rows are sorted."""
    size = matrix.dtype.itemsize
    warps = matrix.n * lanes / _WARP_SIZE
    stored = slots * (value + bits / 8.0) + matrix.n / 4.0 + (4.0 * matrix.n if order else 0.0)
    issued = _later(warps, device) * _COST.shuffle_cycles * np.log2(lanes) * vectors
    issued += _COST.load_cycles * vectors * (slots / _WARP_SIZE + matrix.n / _WARP_SIZE * (lanes - 1) / 2.0)
    issued += _COST.line_cycles * (
        touched_lines(matrix, lanes) * matrix.nnz * vectors + slots * (value + bits / 8.0) / _LINE
    )
    longest = _turns(-(-longest_row(matrix) // lanes))
    found = _work(matrix, device, k, vectors, stored, 1.0, issued, longest)
    loads = slots / max(matrix.n * lanes, 1) / _TOGETHER_IN_LANE
    found = replace(found, chain=max(found.chain, k * _waited(warps, device, loads)) + k * _COST.slice_search_cycles)
    apart = k * vectors * matrix.n * max(0.0, SECTOR - size) if order else 0.0  # results go to one sector each
    return replace(found, cache_bytes=found.cache_bytes + apart)


def rows16_work(matrix: Matrix, device: CudaDevice, k: int, vectors: int, slots: int, value: int) -> Work:
    """Rows padded to 16 entries; half a warp does eight of them one after another."""
    stored = slots * (value + 4.0) + 4.0 * matrix.n
    issued = (
        matrix.n / 2.0 * (_COST.warp_cycles + 4 * _COST.shuffle_cycles * vectors)
        + _COST.load_cycles * vectors * slots / _WARP_SIZE
    )
    issued += _COST.line_cycles * (touched_lines(matrix, 16) * matrix.nnz * vectors + stored / _LINE)
    waits = _turns(-(-longest_row(matrix) // 16)) + _COST.rows16_waits_count * max(
        1.0, slots / 16.0 / max(matrix.n, 1) / _TOGETHER_IN_LANE
    )
    return _work(matrix, device, k, vectors, stored, 1.0, issued, waits)


def pcsr_work(
    matrix: Matrix, device: CudaDevice, k: int, vectors: int, slots: int, pad: int, ahead: int, value: int
) -> Work:
    """Partitions of 256 slots, `ahead` of them a block: no row makes others wait, but all of a block meet.

    What a row has of a partition one thread adds up, `pad` slots at a time.
    """
    stored = slots * (value + 4.0) + 8.0 * matrix.n
    loads = slots / _WARP_SIZE
    issued = loads / ahead * _COST.warp_cycles + _COST.staged_load_cycles * vectors * loads
    issued += _COST.line_cycles * (touched_lines(matrix, 0) * matrix.nnz * vectors + stored / _LINE)
    found = _work(matrix, device, k, vectors, stored, 1.0, issued, 1.0 + ahead)
    added = min(longest_row(matrix), PARTITION) / pad
    return replace(found, chain=found.chain + k * (_COST.join_cycles + _COST.sum_cycles * added), launches=2.0 * k)


def hubs_work(
    matrix: Matrix, device: CudaDevice, k: int, vectors: int, slots: int, room: int, share: float, value: int
) -> Work:
    """Chunks of 256 slots dealt evenly; `room` bytes of x, with that share of the entries, are in shared memory."""
    size = matrix.dtype.itemsize
    stored, moved = slots * (value + 4.25), 2.0 * matrix.n * size * vectors
    cached = in_cache(stored + moved, device)
    gathered = gathered_share(matrix) * (1.0 - share) * matrix.nnz * SECTOR * vectors
    least = multiply_cycles(device, matrix.dtype) * slots / _WARP_SIZE
    each = (
        max(slots / 256.0 * _COST.chunk_cycles + (1.0 - share) * slots * _COST.far_slot_cycles, least)
        / max(device.sms, 1)
        + room / _COST.hub_bytes_per_cycle
    )
    return Work(
        memory_bytes=k * (vectors * (1.0 - cached) * stored + (1.0 - cached) * moved),
        cache_bytes=k * (vectors * stored + moved + gathered + vectors * room * device.sms),
        cycles=k * vectors * each,
        chain=k * vectors * (_COST.cache_wait_cycles + _COST.join_cycles),
        launches=vectors * (2.0 * k + 1.0),
    )


def vbell_work(matrix: Matrix, device: CudaDevice, k: int, vectors: int, lanes: int, value: int) -> Work:
    """Dense blocks of mixed sizes, at most `lanes` threads a row; rows of a node ask for the same entries of x."""
    nodes, slots = vbell.nodes_of(matrix), vbell.slots(matrix, lanes)
    stored = slots * value + 4.0 * nodes.blocks + 4.0 * nodes.sizes.size
    wide = max(1.0, (nodes.slots / max(nodes.blocks, 1)) ** 0.5)  # of a block
    issued = (
        matrix.n * lanes / _WARP_SIZE * _COST.shuffle_cycles * (lanes - 1) * vectors
        + _COST.load_cycles * (vectors + 1.0) * slots / _WARP_SIZE
    )
    issued += _COST.line_cycles * (slots / wide * vectors + stored / _LINE)
    found = _work(matrix, device, k, vectors, stored, 1.0, issued, 0)
    return replace(found, chain=k * (_COST.vbell_begin_cycles + _COST.vbell_turn_cycles * vbell.turns(matrix, lanes)))


def outside_work(matrix: Matrix, device: CudaDevice, k: int, vectors: int, stored: float) -> Work:
    """A layout of which no more is known than the bytes that a product reads."""
    return _work(matrix, device, k, vectors, stored, 1.0, 0.0, 0.0)


def _work(
    matrix: Matrix, device: CudaDevice, k: int, vectors: int, stored: float, again: float, issued: float, waits: float
) -> Work:
    size = matrix.dtype.itemsize
    moved = 2.0 * matrix.n * size * vectors
    cached = in_cache(stored + moved, device)
    gathered = gathered_share(matrix) * matrix.nnz * SECTOR * vectors
    multiplied = multiply_cycles(device, matrix.dtype) * vectors * matrix.nnz / _WARP_SIZE
    return Work(
        memory_bytes=k * (1.0 - cached) * (stored + moved) * _COST.memory_bytes_share,
        cache_bytes=k * (stored * again + moved + gathered) * _COST.cache_bytes_share,
        cycles=k * max(issued, multiplied) / max(device.sms, 1),
        chain=k * waits * (_COST.cache_wait_cycles + (1.0 - cached) * _COST.memory_wait_cycles),
        launches=float(k),
    )


def _turns(slots: int) -> int:
    """Times that a lane waits for what it has asked for together, of so many slots."""
    return -(-slots // _TOGETHER_IN_LANE)


def _later(warps: float, device: CudaDevice) -> float:
    """Of so many warps those that a device has no room for at first."""
    return max(0.0, warps - device.sms * _warps_of(device))


def _warps_of(device: CudaDevice) -> float:
    """Warps that a multiprocessor holds."""
    return _FEWER_THREADS.get(device.compute_capability, _THREADS) / _WARP_SIZE


def _waited(warps: float, device: CudaDevice, loads: float) -> float:
    """Cycles after which the last of so many warps ends, each with so many loads."""
    held = min(warps / max(device.sms, 1), _warps_of(device))
    later = _later(warps, device) / max(device.sms, 1)
    waited: float = _COST.cache_wait_cycles * loads
    waited += _COST.crowded_warp_cycles * max(0.0, held - _COST.free_warps_count)
    return waited + (_COST.second_round_cycles + _COST.later_warp_cycles * later if later else 0.0)


def looked_up(found: Work, device: CudaDevice, slots: int, loads: float, *, in_csr: bool) -> Work:
    """The work of a layout of so many slots, read so many times in all, with its values in a table."""
    each = _COST.csr_table_load_cycles if in_csr else _COST.table_load_cycles
    return replace(found, cycles=found.cycles + loads * each * slots / _WARP_SIZE / max(device.sms, 1))


def _lines_of_rows(matrix: Matrix, rows: float) -> float:
    """Lines of values and of columns that a load asks for which has an entry of each of so many rows."""
    entries = rows * matrix.nnz / max(matrix.n, 1)
    return sum(1.0 + min(_WARP_SIZE - 1.0, entries * size / _LINE) for size in (matrix.dtype.itemsize, 4))


def _fetched_again(matrix: Matrix, device: CudaDevice, lanes: int) -> float:
    """How many times the matrix comes from L2, as L1 loses lines before all of them is used."""
    size, per_row = matrix.dtype.itemsize, matrix.nnz / max(matrix.n, 1)
    rows = min(_THREADS / lanes, matrix.n / max(device.sms, 1))
    lines = rows * (min(_LINE, 4.0 * per_row) + min(_LINE, size * per_row))
    lines += rows * lanes * _LINE * min(1.0, gathered_share(matrix))
    lost = max(0.0, 1.0 - _L1 * device.shared_per_sm / max(lines, 1.0))
    uses = 4.0 * SECTOR / min(SECTOR, 4.0 * lanes) + size * SECTOR / min(SECTOR, size * lanes)
    return 1.0 + lost * (uses / (4.0 + size) - 1.0)


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors."""
    if plan.partitioner != layout.NATURAL:
        return with_order(work(*layout.in_order(plan, matrix), device, vectors), matrix, plan.k, vectors)
    way = way_of(layout.storable(plan, matrix))
    found = _passing(
        plan, matrix, device, vectors, _work_in_full(plan, matrix, device, vectors, stored_bytes(way, matrix.dtype))
    )
    kind = None if way != TABLE else layout.kind_of(plan.variant)[0]
    if kind not in (layout.CSR, layout.SELL, layout.PCSR):  # of others it is hidden by what they do
        return found
    slots = stored_slots(matrix, plan.variant, plan.typed.sigma, plan.typed.pad)
    return looked_up(found, device, slots, float(plan.k * vectors), in_csr=kind == layout.CSR)


def _passing(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, found: Work) -> Work:
    """The work where some of the matrix stays in L2, and where steps begin early."""
    keep, is_early = int(plan.typed.keep), plan.typed.early
    if not keep and not is_early:
        return found
    size = layout.bytes_of(plan, matrix)
    vector = float(matrix.n * matrix.dtype.itemsize * vectors)
    # Of what comes from memory, the matrix has its share; of that, what stays does not come.
    kept = min(2.0**20 * keep, _COST.kept_cache_share * device.l2_bytes, size) / max(size + 2.0 * vector, 1.0)
    early = (_COST.early_far_launch_share if size > device.l2_bytes else _COST.early_launch_share) if is_early else 1.0
    return replace(found, memory_bytes=found.memory_bytes * (1.0 - kept), launches=found.launches * early)


def _work_in_full(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, value: int) -> Work:
    """The same for values of so many bytes that are where they are read."""
    if layout.other_of(plan) is not None:
        return outside_work(matrix, device, plan.k, vectors, layout.bytes_of(plan, matrix))
    kind, lanes, bits = layout.kind_of(plan.variant)
    if kind == layout.CSR:
        return csr_work(matrix, device, plan.k, vectors, lanes, value)
    if kind == layout.VBELL:
        return vbell_work(matrix, device, plan.k, vectors, lanes, value)
    if kind == layout.WITH_HUBS:
        room = plan.typed.hubs
        share, slots = hubs.share(matrix, room), hubs.slots_of(matrix)
        return hubs_work(matrix, device, plan.k, vectors, slots, room * 1024, share, value)
    pad, sigma = plan.typed.pad, plan.typed.sigma
    slots = layout.slots_in(matrix, kind, pad, sigma)
    if kind == layout.SELL:
        return sell_work(matrix, device, plan.k, vectors, lanes, slots=slots, bits=bits, order=sigma > 1, value=value)
    if kind == layout.ROWS16:
        return rows16_work(matrix, device, plan.k, vectors, slots, value)
    return pcsr_work(matrix, device, plan.k, vectors, slots, pad, plan.typed.ahead, value)
