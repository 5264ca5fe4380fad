"""The blocks of `ghost` with their ghost zones, as local matrices one below the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.jit import jit
from akx.backends.cpu.layout import aligned_cuts
from akx.backends.cpu.schedules.ghost.kernel import GhostBlocks
from akx.backends.pattern_cache import per_pattern
from akx.core.canonical import read_only
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Pattern, pattern_of
from akx.partition.base import Partition, order_by_part
from akx.partition.ghost import GhostZones, ghost_zones

__all__ = ["MOST_ROWS", "stacked", "zones_of"]

#: Local rows start at multiples of this, which every format's unit divides.
_ALIGN = 64
#: Closures may hold at most this many times the rows of the matrix.
MOST_ROWS = 4.0


@per_pattern
def zones_of(matrix: Matrix, partitioner: str, count: int, depth: int) -> tuple[GhostZones, NDArray[np.int64]]:
    """Ghost zones of `count` blocks and the blocks' work."""
    partition = _partition(matrix, partitioner, count)
    zones = ghost_zones(matrix.indptr, matrix.indices, partition, depth, most_rows=MOST_ROWS)
    return zones, zones.products


@per_pattern
def _partition(matrix: Matrix, partitioner: str, count: int) -> Partition:
    """Rows in blocks; the libraries behind the partitioners are imported when asked for."""
    if partitioner == "natural":
        return Partition(None, aligned_cuts(pattern_of(matrix), count, 1))
    if partitioner == "metis":
        from akx.partition.metis import metis_partition as partition
    else:
        from akx.partition.hypergraph import hypergraph_partition as partition
    return order_by_part(partition(matrix.indptr, matrix.indices, min(count, matrix.n)))


def stacked(
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
