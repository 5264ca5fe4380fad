"""Clusters: blocks that do k steps together, exchanging x in each, with one ghost zone for all of them.

The ghost zone is that of the cluster, the k-step closure of the union of its blocks' rows (:mod:`akx.partition.ghost`),
and all rows computed, own ones and ghosts alike, are dealt to the blocks of the cluster, so that ghosts are paid once
for each cluster. A row is on the *border* of its block where another block of the cluster needs it or has a row that it
needs. A block's list has border rows first, farthest ghosts before own rows, and inner rows after, nearest first:

    nodes of block p = [ ghosts, border | own, border | own, inner | ghosts, inner | computed by others | only x ]
                         k-1 .. 1         0             0            1 .. k-1

so that the rows at distance <= k - j, which step j computes, are one range of it, ``low[p, j-1] : high[p, j-1]``, with
the border at its start, and own rows are one range too.

Dealt in the order given, each ring of one distance is cut evenly by its entries, so every step is balanced; dealt by
METIS, the closure is, with weight (k - d) (entries + 2) at distance d.

Cost: two passes over the entries of the closures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.partition.ghost import GhostZones
from akx.partition.metis import metis_partition

__all__ = ["Clusters", "clusters"]

#: What a row costs beside its entries, in entries.
_ROW_WORK = 2
#: "No block": rows of which only x is needed.
_NONE = 255


@dataclass(frozen=True)
class Clusters:
    """The blocks of clusters; block p is number p % size of cluster p // size.

    `size`: blocks of a cluster. `rows` (total,) uint32: row numbers, block after block, in the order above. `ptr`
    (blocks+1,) int64. `before`, `own`, `border`, `computed` (blocks,) int64: ghosts before the own rows, own rows,
    border rows (ghosts before the own ones among them), computed rows. `low`, `high` (blocks, k) int64: where the rows
    computed in each step begin and end in the block's list. `sends` (m, 2) uint32: what each block gives to others of
    its cluster after each step: its own number of the row, and the other's number of it plus 2^16 times the other's
    place in the cluster. Who is given something gives something back, if only a row that the other puts after the end
    of its list: so no block gets ahead of one that it gives to. `send_ptr` (blocks+1,) int64. `taken` (blocks,) int64:
    how many rows each block is given.
    """

    size: int
    rows: NDArray[np.uint32]
    ptr: NDArray[np.int64]
    before: NDArray[np.int64]
    own: NDArray[np.int64]
    border: NDArray[np.int64]
    computed: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    sends: NDArray[np.uint32]
    send_ptr: NDArray[np.int64]
    taken: NDArray[np.int64]


def clusters(indptr: NDArray[Any], indices: NDArray[Any], zones: GhostZones, size: int, *, metis: bool) -> Clusters:
    """Deal the closures of clusters, whose ghost zones are `zones`, to `size` blocks of each, at most 8.

    `indptr` (n+1,) and `indices` (nnz,), unsigned, are the CSR pattern. They are dealt by METIS, or in the order given.
    """
    k, count = zones.k, zones.blocks
    rows = zones.rows.astype(np.int64)
    ring = np.repeat(np.tile(np.arange(k + 1), count), np.diff(zones.ptr, axis=1).ravel())
    cluster = np.repeat(np.arange(count), zones.ptr[:, -1] - zones.ptr[:, 0])
    lengths = np.asarray(np.diff(indptr.astype(np.int64))[rows], dtype=np.int64)
    start = np.append(zones.ptr[:, 0], rows.size).astype(np.int64)
    block = np.full(rows.size, _NONE, dtype=np.uint8)
    inside = ring < k
    if metis and size > 1:
        weights = (k - ring) * (lengths + _ROW_WORK)
        for c in range(count):
            span = slice(int(start[c]), int(zones.ptr[c, k]))
            sub = _inside(indptr, indices, rows[span])
            block[span] = metis_partition(*sub, size, weights=weights[span])
    else:
        block[inside] = _even(cluster[inside] * k + ring[inside], lengths[inside] + _ROW_WORK, count * k, size)
    needed, reads = np.zeros(rows.size, dtype=np.uint8), np.zeros(rows.size, dtype=np.uint8)
    _needs(indptr, indices, rows, start, zones.ptr[:, k].astype(np.int64), block, needed, reads)
    return _listed(k, size, count, (rows, ring, cluster, lengths, block), needed, reads > 0)


def _even(group: NDArray[np.int64], work: NDArray[np.int64], groups: int, size: int) -> NDArray[np.uint8]:
    """Blocks of rows, each group of consecutive rows cut evenly by work."""
    total = np.bincount(group, weights=work, minlength=groups)
    before = np.concatenate([[0.0], np.cumsum(work, dtype=np.float64)])
    first = np.concatenate([[0.0], np.cumsum(total)])[group]
    middle = before[:-1] + work / 2 - first
    return np.asarray(np.minimum(middle * size / total[group], size - 1), dtype=np.uint8)


def _listed(k: int, size: int, count: int, of_places: tuple[Any, ...], needed: Any, reads: Any) -> Clusters:
    """The lists of the blocks, once it is known who computes a row and who needs it (bit b of `needed`: block b)."""
    rows, ring, cluster, lengths, block = of_places
    computed = np.flatnonzero(ring < k)
    by = block[computed].astype(np.int64)
    border = reads[computed] | ((needed[computed] & ~(1 << by)) > 0)
    far = ring[computed]
    where = [np.flatnonzero((needed >> b & 1 > 0) & (block != b)) for b in range(size)]
    at = np.concatenate([computed, *where])
    part = cluster[at] * size
    part[: computed.size] += by
    part[computed.size :] += np.repeat(np.arange(size), [len(one) for one in where])
    order_of = np.where(border, np.where(far > 0, -2 * far, 0), 2 * far + 1)
    # Those computed by others are in ascending order, which is nearest first; the rest by falling length.
    keys = np.concatenate([order_of, np.full(at.size - computed.size, 2 * k + 2)])
    falling = np.where(keys < 2 * k + 2, -lengths[at], 0)
    order = np.lexsort((at, falling, keys, part))
    ptr = np.searchsorted(part[order], np.arange(count * size + 1)).astype(np.int64)
    number = np.empty(at.size, dtype=np.int64)
    number[order] = np.arange(at.size) - ptr[part[order]]

    parts = count * size
    own_part, halo_part = part[: computed.size], part[computed.size :]
    per_ring = [np.zeros((parts, k), dtype=np.int64) for _ in range(2)]
    for found, of in zip(per_ring, (border & (far > 0), ~border & (far > 0)), strict=True):
        np.add.at(found, (own_part[of], far[of]), 1)
    first, last = (_from_far(found) for found in per_ring)  # ghosts at distance >= d
    total = np.bincount(own_part, minlength=parts)
    beyond = k - np.arange(k)  # step j = 1 .. k leaves out the distances > k - j, >= k - j + 1
    low, high = first[:, beyond], total[:, None] - last[:, beyond]

    halo = at[computed.size :]
    given = ring[halo] < k
    home = np.full(rows.size, -1, dtype=np.int64)
    home[computed] = number[: computed.size]
    giver = cluster[halo[given]] * size + block[halo[given]]
    taker, target = halo_part[given], number[computed.size :][given]
    one_way = np.setdiff1d(taker * parts + giver, giver * parts + taker)
    back, to = one_way // parts, one_way % parts
    source = np.concatenate([home[halo[given]], np.zeros_like(back)])
    target = np.concatenate([target, np.diff(ptr)[to]])
    giver, taker = np.concatenate([giver, back]), np.concatenate([taker, to])
    in_turn = np.lexsort((target, taker, giver))
    sends = np.stack([source, target + (taker % size << 16)], axis=1)[in_turn].astype(np.uint32)
    return Clusters(
        size,
        rows[at[order]].astype(np.uint32),
        ptr,
        first[:, 1].copy(),
        np.bincount(own_part[far == 0], minlength=parts).astype(np.int64),
        np.bincount(own_part[border], minlength=parts).astype(np.int64),
        total.astype(np.int64),
        low,
        high,
        sends,
        np.searchsorted(giver[in_turn], np.arange(parts + 1)).astype(np.int64),
        np.bincount(taker, minlength=parts).astype(np.int64),
    )


def _from_far(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums from each distance on, shape (parts, k+1)."""
    summed = np.zeros((found.shape[0], found.shape[1] + 1), dtype=np.int64)
    summed[:, :-1] = np.cumsum(found[:, ::-1], axis=1)[:, ::-1]
    return summed


def _inside(indptr: NDArray[Any], indices: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pattern of some rows among themselves."""
    pointer = np.zeros(rows.size + 1, dtype=np.int64)
    columns = np.empty(int((indptr[rows + 1].astype(np.int64) - indptr[rows].astype(np.int64)).sum()), dtype=np.int64)
    _sub_pattern(indptr, indices, rows, pointer, columns)
    return pointer, columns[: pointer[-1]].copy()


@njit(cache=True, nogil=True)
def _sub_pattern(indptr: Any, indices: Any, rows: Any, pointer: Any, columns: Any) -> None:
    local = np.full(indptr.size - 1, -1, np.int64)
    for i in range(rows.size):
        local[rows[i]] = i
    tail = 0
    for i in range(rows.size):
        for p in range(np.int64(indptr[rows[i]]), np.int64(indptr[rows[i] + 1])):
            j = local[indices[p]]
            if j >= 0:
                columns[tail] = j
                tail += 1
        pointer[i + 1] = tail


@njit(cache=True, nogil=True)
def _needs(indptr: Any, indices: Any, rows: Any, start: Any, ends: Any, block: Any, needed: Any, reads: Any) -> None:
    """Mark whose rows need each place of a closure, and rows that need what others of the cluster compute."""
    at = np.zeros(indptr.size - 1, np.int64)
    for c in range(ends.size):
        for t in range(start[c], start[c + 1]):
            at[rows[t]] = t
        for t in range(start[c], ends[c]):
            for p in range(np.int64(indptr[rows[t]]), np.int64(indptr[rows[t] + 1])):
                u = at[np.int64(indices[p])]
                needed[u] |= np.uint8(1 << block[t])
                if block[u] != block[t] and u < ends[c]:
                    reads[t] = 1
