"""Closures of clusters, dealt to their blocks: everything is dealt once, evenly, and who needs it is given it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.partition.base import order_by_part
from akx.partition.clusters import Clusters, clusters
from akx.partition.cuts import even_cuts
from akx.partition.ghost import GhostZones, ghost_zones
from akx.partition.metis import metis_partition


def grid(side: int) -> sp.csr_array:
    """The 9-point stencil on a square."""
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
    return sp.csr_array(sp.kron(line, line))


def one_way(n: int) -> sp.csr_array:
    """A pattern that is far from symmetric: row i needs i, i + 2 and, now and then, a row far behind."""
    i = np.arange(n)
    rows = np.concatenate([i, i, i[::9]])
    columns = np.concatenate([i, np.minimum(i + 2, n - 1), i[::9] // 2])
    A = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, n))
    A.sum_duplicates()
    return A


def dealt(A: sp.csr_array, count: int, k: int, size: int, metis: bool) -> tuple[GhostZones, Clusters]:
    part = metis_partition(A.indptr, A.indices, count)
    if not metis:
        cuts = even_cuts(A.indptr.astype(np.float64), count)
        part = np.repeat(np.arange(cuts.size - 1), np.diff(cuts)).astype(np.int32)
    zones = ghost_zones(A.indptr, A.indices, order_by_part(part, count), k)
    indptr, indices = (a.view(f"u{a.itemsize}") for a in (A.indptr, A.indices))
    return zones, clusters(indptr, indices, zones, size, metis=metis)


CASES = [(grid(24), 3, 4, 4), (grid(24), 1, 2, 8), (one_way(500), 4, 3, 2), (one_way(700), 2, 5, 8), (grid(5), 4, 1, 8)]


@pytest.mark.parametrize(("A", "count", "k", "size"), CASES)
@pytest.mark.parametrize("metis", [False, True])
def test_every_step_is_done_once(A: Any, count: int, k: int, size: int, metis: bool) -> None:
    """In each step the blocks of a cluster compute the rows that the ghost zone says, each by one of them."""
    zones, found = dealt(A, count, k, size, metis)
    for c in range(count):
        mine = range(c * size, (c + 1) * size)
        lists = [found.rows[found.ptr[p] : found.ptr[p + 1]] for p in mine]
        own = [rows[found.before[p] :][: found.own[p]] for p, rows in zip(mine, lists, strict=True)]
        assert np.array_equal(np.sort(np.concatenate(own)), np.sort(zones.own(c)))
        for step in range(1, k + 1):
            active = [
                rows[found.low[p, step - 1] : found.high[p, step - 1]] for p, rows in zip(mine, lists, strict=True)
            ]
            assert np.array_equal(np.sort(np.concatenate(active)), np.sort(zones.active(c, step)))
        for p, rows in zip(mine, lists, strict=True):
            assert found.low[p, -1] == found.before[p] <= found.border[p] <= found.computed[p] <= rows.size
            assert np.unique(rows).size == rows.size
            needed = np.unique(A[rows[: found.computed[p]].astype(np.int64)].indices)
            assert np.isin(needed, rows).all()


@pytest.mark.parametrize(("A", "count", "k", "size"), CASES)
def test_what_others_compute_is_given(A: Any, count: int, k: int, size: int) -> None:
    zones, found = dealt(A, count, k, size, False)
    given: list[dict[int, int]] = [{} for _ in range(count * size)]
    pairs, trash = set(), 0
    for p in range(count * size):
        for source, where in found.sends[found.send_ptr[p] : found.send_ptr[p + 1]].astype(np.int64):
            taker, target = p - p % size + (where >> 16), where & 0xFFFF
            pairs.add((p, int(taker)))
            if target == found.ptr[taker + 1] - found.ptr[taker]:
                trash += 1
                continue
            assert target not in given[taker]
            given[taker][int(target)] = int(found.rows[found.ptr[p] + source])
            assert source < found.border[p]
    assert pairs == {(taker, giver) for giver, taker in pairs}
    assert trash + sum(len(one) for one in given) == found.taken.sum() == len(found.sends)
    for p in range(count * size):
        rows = found.rows[found.ptr[p] : found.ptr[p + 1]]
        inside = np.isin(rows, zones.active(p // size, 1))
        places = np.flatnonzero(inside & (np.arange(rows.size) >= found.computed[p]))
        assert given[p] == {int(i): int(rows[i]) for i in places}


@pytest.mark.parametrize("metis", [False, True])
def test_work_is_even(metis: bool) -> None:
    """In the order given every step is even; by METIS the whole is."""
    A = grid(90)
    _, found = dealt(A, 2, 6, 4, metis)
    lengths = np.diff(A.indptr)
    work = np.zeros((8, 6))
    for p in range(8):
        rows = found.rows[found.ptr[p] : found.ptr[p + 1]].astype(np.int64)
        for step in range(6):
            work[p, step] = lengths[rows[found.low[p, step] : found.high[p, step]]].sum()
    by_cluster = work.reshape(2, 4, 6)
    if metis:
        by_cluster = by_cluster.sum(axis=2, keepdims=True)
    assert (by_cluster.max(axis=1) <= 1.06 * by_cluster.mean(axis=1)).all()
