"""Orders by several threads are those of one, to the bit, however many there are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

from akx.backends.cpu import level_order
from akx.partition.levels import levels, rcm
from akx.partition.permutation import permute


def grid(*extents: int) -> Any:
    found = sp.eye_array(1)
    for n in extents:
        line = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(n, n))
        found = sp.kron(found, sp.eye_array(n)) + sp.kron(sp.eye_array(found.shape[0]), line)
    return found


def shuffled(A: Any) -> sp.csr_array:
    order = np.random.default_rng(0).permutation(A.shape[0])
    found = sp.csr_array(sp.csr_array(A)[order][:, order])
    found.sort_indices()
    found.indptr, found.indices = found.indptr.astype(np.int32), found.indices.astype(np.int32)
    return found


def graphs() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    star = sp.lil_array(sp.random_array((250, 250), density=0.01, rng=rng))
    star[0] = star[:, [0]] = 1.0
    return {
        "room": grid(9, 10, 8),
        "parts": sp.block_diag([grid(11, 9), np.eye(3), grid(30), sp.csr_array((2, 2)), grid(6, 5, 4)]),
        "one way": sp.triu(grid(12, 15)),
        "random": sp.random_array((400, 400), density=0.01, rng=rng),
        "star": star,
        "lines": sp.block_diag([grid(1 + i % 7) for i in range(150)]),
        "nothing": sp.csr_array((20, 20)),
    }


@pytest.mark.parametrize("name", graphs())
def test_orders_of_many_threads_are_those_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_order, "_ALONE", 4)
    A = shuffled(graphs()[name])
    wanted = {"levels": levels(A.indptr, A.indices).permutation, "rcm": rcm(A.indptr, A.indices)}
    for kind, threads in ((kind, threads) for kind in wanted for threads in (1, 2, 3, 5)):
        np.testing.assert_array_equal(level_order.ordered_rows(A.indptr, A.indices, kind, threads), wanted[kind])


def test_there_is_an_order_where_threads_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    A, start = shuffled(grid(40, 30)), threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if threading.active_count() > before:
            raise RuntimeError("can't start new thread")
        start(thread)

    before = threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", start_one)
    found = level_order.ordered_rows(A.indptr, A.indices, "levels", 4)
    np.testing.assert_array_equal(found, levels(A.indptr, A.indices).permutation)


def test_a_shuffled_grid_is_as_narrow_as_by_scipy() -> None:
    A = shuffled(grid(20, 30))

    def width(permutation: Any) -> int:
        indptr, indices, _ = permute(A.indptr, A.indices, np.asarray(permutation, np.int64))
        return int(np.abs(indices - np.repeat(np.arange(A.shape[0]), np.diff(indptr))).max())

    mine = level_order.ordered_rows(A.indptr, A.indices, "rcm", 2)
    assert width(mine) <= 1.1 * width(csgraph.reverse_cuthill_mckee(sp.csr_matrix(A), symmetric_mode=True))
