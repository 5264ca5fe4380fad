from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import ArgumentError, MissingDependencyError
from akx.partition.adjacency import off_diagonal, transposed, unsigned_pattern
from akx.partition.base import order_by_part
from akx.partition.hypergraph import _nets, hypergraph_partition
from akx.partition.metis import _bounded, metis_partition
from akx.partition.quality import edge_cut
from partition.patterns import as_bool, from_dense, grid_9pt, patterns

PARTITIONERS = [metis_partition, hypergraph_partition]


def _available(partitioner: object) -> None:
    if partitioner is hypergraph_partition:
        pytest.importorskip("mtkahypar")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_grid_is_cut_well_and_evenly(partitioner, width: type) -> None:
    _available(partitioner)
    A = sp.csr_array(grid_9pt(60))
    A.sort_indices()
    A.indptr, A.indices = A.indptr.astype(width), A.indices.astype(width)
    part = partitioner(A.indptr, A.indices, 9)
    assert part.dtype == np.int32
    counts = np.bincount(part, minlength=9)
    assert counts.max() < 1.1 * 400
    # nine squares of 20 x 20: 2 * 2 lines of 60 rows with 3 entries in each direction
    ideal = 4 * 60 * 3 * 2
    assert edge_cut(A.indptr, A.indices, order_by_part(part, 9)) < 1.5 * ideal
    np.testing.assert_array_equal(part, partitioner(A.indptr, A.indices, 9))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_weights_are_balanced(partitioner) -> None:
    _available(partitioner)
    A = sp.csr_array(grid_9pt(30))
    A.sort_indices()
    weights = np.ones(900, dtype=int)
    weights[:300] = 10
    part = partitioner(A.indptr, A.indices, 4, weights=weights)
    loads = np.bincount(part, weights=weights, minlength=4)
    assert loads.max() < 1.1 * loads.mean()


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@settings(max_examples=25, deadline=None)
@given(A=patterns(), parts=st.integers(1, 50))
def test_any_pattern(partitioner, A: sp.csr_array, parts: int) -> None:
    _available(partitioner)
    n = A.shape[0]
    part = partitioner(A.indptr, A.indices, parts)
    assert part.shape == (n,)
    assert part.min() >= 0
    assert part.max() < max(parts, n)
    if parts >= n > 1:
        np.testing.assert_array_equal(part, np.arange(n))
    order_by_part(part, max(parts, n))


def _star(n: int) -> sp.csr_array:
    rows = np.arange(1, n)
    zeros = np.zeros_like(rows)
    return sp.csr_array((np.ones(2 * n - 2), (np.r_[rows, zeros], np.r_[zeros, rows])), shape=(n, n))


_HEAVY = np.r_[10**6, np.ones(39, dtype=int)]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("weights", [None, _HEAVY, np.zeros(40, dtype=int)], ids=["flops", "heavy", "none"])
@pytest.mark.parametrize(
    "A",
    [
        sp.csr_array((40, 40)),
        sp.eye_array(40, format="csr"),
        _star(40),
        sp.csr_array(sp.block_diag([np.ones((4, 4))] * 10)),
        sp.csr_array(sp.block_diag([np.ones((20, 20)), np.zeros((20, 20))])),
    ],
    ids=["no entries", "diagonal", "star", "ten components", "half empty"],
)
def test_nothing_is_printed_whatever_the_graph(partitioner, A: sp.csr_array, weights, capfd) -> None:
    _available(partitioner)
    for parts in (2, 7, 13, 19, 20, 21, 38, 39, 40, 41):
        part = partitioner(A.indptr, A.indices, parts, weights=weights)
        assert (part.size, part.dtype) == (40, np.int32)
        assert 0 <= part.min() <= part.max() < parts
    ctypes.CDLL(None).fflush(None)  # libraries in C have a buffer of their own
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("n", [0, 1])
def test_nearly_nothing_to_divide(n: int) -> None:
    assert metis_partition(np.zeros(n + 1, dtype=np.int32), np.zeros(0, dtype=np.int32), 3).tolist() == [0] * n


def test_a_row_heavier_than_a_part_leaves_the_others_balanced() -> None:
    part = metis_partition(*(lambda A: (A.indptr, A.indices))(_star(400)), 4, weights=np.r_[10**9, np.ones(399, int)])
    counts = np.bincount(part, minlength=4)
    assert np.sort(counts)[1:].min() > 0.8 * 400 / 3


def test_bounded_weights_are_what_repeated_bounding_ends_at() -> None:
    rng = np.random.default_rng(3)
    for parts in (1, 2, 5, 9):
        weights = rng.zipf(1.3, size=20).clip(1, 10**6)
        slowly = weights
        for _ in range(300):
            slowly = np.minimum(slowly, -(-int(slowly.sum()) // parts))
        np.testing.assert_allclose(_bounded(weights, parts), slowly, atol=parts)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_wrong_arguments(partitioner) -> None:
    A = grid_9pt(4)
    with pytest.raises(ArgumentError, match="parts"):
        partitioner(A.indptr, A.indices, 0)
    with pytest.raises(ArgumentError, match="weights"):
        partitioner(A.indptr, A.indices, 2, weights=np.ones(3, dtype=int))
    with pytest.raises(ArgumentError, match="weights"):
        partitioner(A.indptr, A.indices, 2, weights=-np.ones(16, dtype=int))


def test_missing_hypergraph_partitioner_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mtkahypar", None)
    A = grid_9pt(4)
    with pytest.raises(MissingDependencyError, match=r"akx\[hypergraph\]"):
        hypergraph_partition(A.indptr, A.indices, 2)


@settings(max_examples=40, deadline=None)
@given(patterns())
def test_nets_and_graph_edges(A: sp.csr_array) -> None:
    dense = as_bool(A)
    u = unsigned_pattern(A.indptr, A.indices)
    with_own = dense | np.eye(A.shape[0], dtype=bool)
    expected = [np.flatnonzero(column).tolist() for column in with_own.T if column.sum() > 1]
    assert [sorted(net) for net in _nets(*transposed(*u))] == expected
    pointer, columns = off_diagonal(*u)
    kept = from_dense(dense & ~np.eye(A.shape[0], dtype=bool))
    np.testing.assert_array_equal(pointer, kept.indptr)
    np.testing.assert_array_equal(columns, kept.indices)
