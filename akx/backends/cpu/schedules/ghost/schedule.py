"""`ghost`: every block takes its ghost zone along and does k_per_pass steps with no word to its neighbours.

Block g copies the entries of x of its closure (rows at distance <= k_per_pass) into a small local vector, makes
v_1, v_2, ... there on the rows still needed (distance <= k_per_pass - j at step j), and copies its own rows out. One
meeting of the threads per pass. Local columns are narrow (16 bits where a closure has at most 65,536 rows).

Flops: 2 nnz k redundancy; redundancy grows with k_per_pass and with the surface of the blocks. Traffic: the stacked
local matrices once per pass, vectors twice more than the wavefront (copies in and out). Good for bands and small
problems with many cores; a deep ghost zone of a 3-D problem does most of the work several times. Source: Demmel,
Hoemmen, Mohiyuddin and Yelick (IPDPS 2008), algorithm PA1; thesis ch. 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.device import HostDevice, host_device
from akx.backends.cpu.jit import jit
from akx.backends.cpu.layout import VARIANTS, bytes_per_entry, ordered, unknown_variant, variant_reason
from akx.backends.cpu.program import TeamProgram
from akx.backends.cpu.shared import (
    aligned_cuts,
    basic_reason,
    block_plan_reason,
    front,
    multiplied,
    sigma_of,
)
from akx.backends.cpu.task_loop import GhostBlocks, run_ghost
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.value_update import NewValues
from akx.backends.cpu.variants import Given, Known, index_bits, layout_of
from akx.backends.schedule import Coefficients, Parameter, Program, Schedule, Traffic, check_feasible
from akx.core.canonical import read_only
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CpuGhost
from akx.core.plan import Plan
from akx.formats.base import Format, Pattern
from akx.partition.ball_growth import ball_sizes, closure_and_work
from akx.partition.base import Partition, order_by_part
from akx.partition.ghost import GhostZones, ghost_zones

__all__ = ["SCHEDULE", "Ghost"]

_PARTITIONERS = ("natural", "metis", "hypergraph")
#: Local rows start at multiples of this, which every format's unit divides.
_ALIGN = 64
#: From so many entries on, METIS takes long where it is for nothing (a minute for 8 million entries of a graph without
#: locality), so that zones are estimated first: hopeless are closures so many times larger than they may be.
_DEAR, _HOPELESS = 1_000_000, 2.0
#: Closures may hold at most this many times the rows of the matrix.
_MOST_ROWS = 4.0


class Ghost(Schedule):
    """See the module."""

    name = "ghost"
    backend = "cpu"
    options = CpuGhost
    revision = 1
    description = "blocks with ghost zones do k steps each on their own"

    def space(self, matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cpu import ghost_space

        return ghost_space.space(matrix, device, k)

    def feasible(self, plan: Plan, matrix: Matrix, device: HostDevice) -> str | None:
        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        if plan.variant not in VARIANTS:
            return unknown_variant(plan.variant)
        reason = (
            layout_of(plan.variant).reason_against_zones
            or block_plan_reason(plan)
            or basic_reason(plan.replace(partitioner="natural", variant="csr"), matrix, ("natural",))
        )
        if reason is not None:
            return reason
        if plan.partitioner == "natural":
            redundancy = self._redundancy(plan, matrix)
            if redundancy > _MOST_ROWS:
                return f"about {redundancy:.0f} times the work would be done in ghost zones"
        elif matrix.nnz > _DEAR:
            closure = self._closure(plan, matrix)
            if closure > _HOPELESS * _MOST_ROWS:
                return f"even compact blocks would need about {closure:.0f} times their rows"
        return None

    def _closure(self, plan: Plan, matrix: Matrix) -> float:
        """Estimate, by the growth of balls, of the rows that compact blocks read in a pass over those they own."""
        blocks = max(1.0, _once(plan, matrix) / plan.block_bytes)
        own = matrix.n / blocks
        most = min(matrix.n, int(2 * _HOPELESS * _MOST_ROWS * own) + 1)
        key = ("akx.backends.cpu.balls", most)
        if key not in matrix.pattern_cache:
            pattern = ordered(matrix, "natural").pattern
            matrix.pattern_cache[key] = ball_sizes(pattern.indptr, pattern.indices, most)
        return closure_and_work(matrix.pattern_cache[key], own, plan.k_per_pass + 1)[0]

    def _redundancy(self, plan: Plan, matrix: Matrix) -> float:
        """Estimate for row blocks in natural order: half the front on either side, shrinking to nothing in the pass."""
        blocks = max(1.0, _once(plan, matrix) / plan.block_bytes)
        if blocks <= 1.0:
            return 1.0
        return 1.0 + 0.5 * (plan.k_per_pass - 1) * front(matrix, "natural") * blocks

    def traffic(self, plan: Plan, matrix: Matrix, device: HostDevice) -> Traffic:
        once = _once(plan, matrix)
        vector = matrix.n * matrix.dtype.itemsize
        passes = -(-plan.k // plan.k_per_pass)
        redundancy = self._redundancy(plan, matrix) if plan.partitioner == "natural" else 1.5
        everything = once * redundancy + (plan.k + 1) * vector
        resident = everything <= 0.8 * device.l3_bytes
        return Traffic(
            matrix_bytes=once * redundancy * (1.0 if resident else passes),
            vector_bytes=vector * (plan.k * (1 if resident else 2) + 2 * passes * redundancy),
            flops=2.0 * matrix.nnz * plan.k * redundancy,
            redundancy=redundancy,
            cache_bytes=(once + 4 * vector) * plan.k * redundancy,
            synchronisations=float(passes * (plan.threads - 1)),
        )

    def padding(self, plan: Plan, matrix: Matrix) -> float:
        """Values multiplied for each one of the matrix, in natural order."""
        return multiplied(plan.replace(partitioner="natural"), matrix)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        check_feasible(self, plan, matrix, host_device())
        natural = ordered(matrix, "natural")
        count = max(plan.threads, round(_once(plan, matrix) / plan.block_bytes))
        zones, sizes = _zones(matrix, plan.partitioner, natural.pattern, count, plan.k_per_pass)
        blocks, pattern, entries, longest = _stack(natural.pattern, zones, sizes, plan)
        known = Known({}, plan.label(), plan.threads)
        reason = variant_reason(plan.variant, pattern, matrix.dtype, sigma=sigma_of(plan), block=1, known=known)
        if reason is not None:
            raise InfeasibleError(f"plan {plan.label()} is not feasible: {reason}")
        given = Given(pattern, matrix.dtype, index_bits(plan.variant, pattern.columns), 1, 1, known)
        layout = layout_of(plan.variant).lay_out_zones(given, blocks.row)
        program = _GhostProgram(layout, blocks, pattern, entries, matrix.nnz, longest, plan.k_per_pass)
        program.update_values(matrix.data)
        return program


class _GhostProgram(TeamProgram):
    """Stacked local matrices and what each block fetches; see :class:`akx.backends.program.Program`."""

    def __init__(
        self,
        layout: Format,
        blocks: GhostBlocks,
        pattern: Pattern,
        entries: NDArray[Any],
        nnz: int,
        longest: int,
        depth: int,
    ) -> None:
        super().__init__(int(blocks.thread_ptr.size - 1), layout.arrays.values.dtype)
        self._layout = layout
        self._blocks = blocks
        self._entries = entries
        self._new = NewValues(layout, pattern, entries, self._threads, nnz)
        self._longest = longest
        self._depth = depth

    @property
    def nbytes(self) -> int:
        held = sum(int(a.nbytes) for a in self._blocks)
        return self._layout.nbytes + self._new.nbytes + held + int(self._entries.nbytes) + int(self._work.nbytes)

    def update_values(self, data: NDArray[Any]) -> None:
        self._new.take(data)

    def _work_size(self, x: NDArray[Any], out: NDArray[Any]) -> int:
        return int(self._threads * (self._depth + 2) * x.shape[0] * self._longest)

    def _make_job(self, coefficients: Coefficients, dtype: np.dtype[Any]) -> Job:
        basis = (coefficients.a, coefficients.b, coefficients.c)
        fixed = (self._layout.arrays, self._blocks, self._depth, self._longest, self._work)
        return Job(run_ghost, (*fixed, *basis), self._threads, dtype)


def _once(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of the matrix, as in natural order: blocks leave most rows beside their own."""
    return bytes_per_entry(plan.replace(partitioner="natural"), matrix) * matrix.nnz


def _zones(
    matrix: Matrix, partitioner: str, pattern: Pattern, count: int, depth: int
) -> tuple[GhostZones, NDArray[np.int64]]:
    """Ghost zones of `count` blocks and the blocks' work; memoised with the pattern."""
    key = ("akx.backends.cpu.zones", partitioner, count, depth)
    if key not in matrix.pattern_cache:
        parts_key = ("akx.backends.cpu.parts", partitioner, count)
        if parts_key not in matrix.pattern_cache:
            if partitioner == "natural":
                partition = Partition(None, aligned_cuts(pattern, count, 1))
            else:
                partition = order_by_part(_parts(matrix, partitioner, min(count, matrix.n)))
            matrix.pattern_cache[parts_key] = partition
        partition = matrix.pattern_cache[parts_key]
        zones = ghost_zones(matrix.indptr, matrix.indices, partition, depth, most_rows=_MOST_ROWS)
        matrix.pattern_cache[key] = (zones, zones.products)
    result: tuple[GhostZones, NDArray[np.int64]] = matrix.pattern_cache[key]
    return result


def _parts(matrix: Matrix, partitioner: str, count: int) -> NDArray[Any]:
    """The part of each row; the libraries behind the partitioners are imported when asked for."""
    if partitioner == "metis":
        from akx.partition.metis import metis_partition

        parts: NDArray[Any] = metis_partition(matrix.indptr, matrix.indices, count)
        return parts
    from akx.partition.hypergraph import hypergraph_partition

    cells: NDArray[Any] = hypergraph_partition(matrix.indptr, matrix.indices, count)
    return cells


def _stack(
    pattern: Pattern, zones: GhostZones, work: NDArray[np.int64], plan: Plan
) -> tuple[GhostBlocks, Pattern, NDArray[Any], int]:
    """Local matrices of all closures, one below the other, each from a multiple of `_ALIGN` rows on."""
    depth, count = zones.k, zones.blocks
    fetch_ptr = np.append(zones.ptr[:, 0], zones.ptr[-1, -1]).astype(np.int64)
    fetch = zones.rows.astype(np.uint32)
    distance = np.repeat(np.tile(np.arange(depth + 1), count), np.diff(zones.ptr, axis=1).ravel())
    lengths = np.diff(fetch_ptr)
    row = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(-(-lengths // _ALIGN) * _ALIGN, out=row[1:])
    first, last = np.zeros((count, depth), dtype=np.int64), np.zeros((count, depth), dtype=np.int64)
    own_first, own_last = np.zeros(count, dtype=np.int64), np.diff(zones.ptr[:, :2], axis=1).ravel().astype(np.int64)
    steps = np.arange(1, depth + 1)
    if plan.partitioner == "natural":  # local rows in their natural order, so that diagonals stay diagonals
        for g in range(count):
            part = slice(int(fetch_ptr[g]), int(fetch_ptr[g + 1]))
            order = np.argsort(fetch[part], kind="stable")
            fetch[part], distance[part] = fetch[part][order], distance[part][order]
            if not lengths[g]:
                continue
            near = distance[part][None, :] <= (depth - steps)[:, None]
            first[g], last[g] = near.argmax(axis=1), lengths[g] - near[:, ::-1].argmax(axis=1)
            own_first[g] = int((distance[part] == 0).argmax())
        own_last += own_first
    else:  # own rows first, then by distance: what is still needed is a prefix
        last[:] = zones.ptr[:, depth:0:-1] - zones.ptr[:, :1]
    first, last = first // _ALIGN * _ALIGN, -(-last // _ALIGN) * _ALIGN
    total = int(zones.entries[:, :depth].sum())
    kind = pattern.indptr.dtype if total < 2**32 else np.dtype(np.uint64)
    indptr, indices = np.zeros(int(row[-1]) + 1, dtype=kind), np.empty(total, dtype=np.uint32)
    entries = np.empty(total, dtype=kind)
    _localise(pattern.indptr, pattern.indices, fetch_ptr, fetch, distance < depth, row, indptr, indices, entries)
    share = np.cumsum(work) - work / 2
    thread = (share * plan.threads / max(float(work.sum()), 1.0)).astype(np.int64)
    thread_ptr = np.searchsorted(thread, np.arange(plan.threads + 1)).astype(np.int64)
    thread_ptr[-1] = count
    blocks = GhostBlocks(row, fetch_ptr, read_only(fetch), first, last, own_first, own_last, thread_ptr)
    longest = int(np.diff(row).max(initial=_ALIGN))
    return blocks, Pattern(indptr, indices, longest), entries, longest


@jit
def _localise(
    indptr: Any,
    indices: Any,
    fetch_ptr: Any,
    fetch: Any,
    computed: Any,
    row: Any,
    local_ptr: Any,
    local: Any,
    entries: Any,
) -> None:
    """The rows of each closure that are computed, with columns numbered within the closure and sorted."""
    where = np.zeros(indptr.size, np.uint32)
    at = 0
    for g in range(fetch_ptr.size - 1):
        begin, stop = fetch_ptr[g], fetch_ptr[g + 1]
        for f in range(begin, stop):
            where[fetch[f]] = f - begin
        for r in range(row[g + 1] - row[g]):
            f = begin + r
            if f < stop and computed[f]:
                start = at
                for p in range(np.int64(indptr[fetch[f]]), np.int64(indptr[fetch[f] + np.uint64(1)])):
                    column = where[indices[p]]
                    q = at
                    while q > start and local[q - 1] > column:  # insertion sort: rows come nearly sorted
                        local[q] = local[q - 1]
                        entries[q] = entries[q - 1]
                        q -= 1
                    local[q] = column
                    entries[q] = p
                    at += 1
            local_ptr[row[g] + r + 1] = at


SCHEDULE = Ghost()
