from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.errors import ArgumentError, MissingDependencyError
from akx.partition.base import order_by_part
from akx.partition.graph import metis_partition
from akx.partition.hypergraph import _nets, hypergraph_partition
from akx.partition.pattern import off_diagonal, transposed, unsigned_pattern
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
