from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from scipy.sparse import csgraph

from akx.core.errors import ArgumentError
from akx.partition.adjacency import symmetrized, transposed, unsigned_pattern
from akx.partition.levels import levels, rcm
from akx.partition.permutation import permute
from partition.patterns import as_bool, from_dense, grid_9pt, patterns, random_pattern


@settings(max_examples=60, deadline=None)
@given(patterns())
def test_levels_are_breadth_first_levels(A: sp.csr_array) -> None:
    n = A.shape[0]
    found = levels(A.indptr, A.indices)
    np.testing.assert_array_equal(np.sort(found.permutation), np.arange(n))
    assert found.level_ptr[0] == 0
    assert found.level_ptr[-1] == n
    assert np.all(np.diff(found.level_ptr) > 0)
    level_of = np.empty(n, dtype=int)
    level_of[found.permutation] = np.repeat(np.arange(found.count), np.diff(found.level_ptr))
    # Oracle: SciPy's distances in the symmetrised graph from the first row of each component.
    dense = as_bool(A) | as_bool(A).T
    count, label = csgraph.connected_components(sp.csr_array(dense), directed=False)
    alone = np.flatnonzero(np.bincount(label)[label] == 1)
    assert found.component_ptr.size == count - alone.size + (alone.size > 0) + 1
    np.testing.assert_array_equal(found.permutation[n - alone.size :], alone)  # last, and one level
    assert alone.size == 0 or found.level_ptr[-2] == n - alone.size
    for c in range(count - alone.size):
        first, last = found.component_ptr[c], found.component_ptr[c + 1]
        rows = found.permutation[found.level_ptr[first] : found.level_ptr[last]]
        assert np.unique(label[rows]).size == 1
        assert rows.size == np.sum(label == label[rows[0]])
        distance = csgraph.shortest_path(sp.csr_array(dense), unweighted=True, directed=False, indices=rows[0])
        np.testing.assert_array_equal(level_of[rows] - first, distance[rows])
        assert found.level_ptr[first + 1] - found.level_ptr[first] == 1
        for level in range(first + 1, last):  # by the first neighbour that each has in the level before, then by number
            own, before = (found.permutation[found.level_ptr[i] : found.level_ptr[i + 1]] for i in (level, level - 1))
            keys = [(int(np.argmax(dense[row, before])), int(row)) for row in own]
            assert keys == sorted(keys)


def test_start_is_the_far_end_of_a_path() -> None:
    n = 50
    shuffled = np.random.default_rng(1).permutation(n)
    dense = np.eye(n, k=1, dtype=bool) | np.eye(n, k=-1, dtype=bool)
    found = levels(*_pattern(from_dense(dense[np.ix_(shuffled, shuffled)])))
    assert found.count == n
    assert np.diff(found.level_ptr).max() == 1


def test_shuffled_grid_gets_a_long_structure() -> None:
    A = grid_9pt(30)
    shuffled = np.random.default_rng(2).permutation(900)
    found = levels(*_pattern(sp.csr_array(A[shuffled][:, shuffled])))
    assert found.count == 30  # the diameter of the 9-point graph, plus one
    assert np.diff(found.level_ptr).max() <= 59


def test_empty_rows_are_one_level() -> None:
    found = levels(np.zeros(6, dtype=np.int32), np.zeros(0, dtype=np.int32))
    np.testing.assert_array_equal(found.permutation, np.arange(5))
    np.testing.assert_array_equal(found.level_ptr, [0, 5])
    np.testing.assert_array_equal(found.component_ptr, [0, 1])


def test_row_without_entries_but_in_a_column_is_connected() -> None:
    dense = np.zeros((3, 3), dtype=bool)
    dense[0, 2] = True
    found = levels(*_pattern(from_dense(dense)))
    assert found.component_ptr.size == 3  # {0, 2} and {1}


@pytest.mark.parametrize("width", ["int32", "int64"])
@pytest.mark.parametrize("seed", range(3))
def test_rcm_is_as_narrow_as_scipys(seed: int, width: str) -> None:
    A = random_pattern(300, 0.006, seed, symmetric=True, wide=width == "int64")
    mine, theirs = rcm(A.indptr, A.indices), csgraph.reverse_cuthill_mckee(sp.csr_matrix(A), symmetric_mode=True)
    np.testing.assert_array_equal(np.sort(mine), np.arange(300))
    assert _bandwidth(A, mine) <= 1.15 * _bandwidth(A, theirs)
    assert _bandwidth(A, mine) < 0.9 * _bandwidth(A, np.arange(300))


def test_rcm_of_a_star_sorts_a_long_run() -> None:
    n = 200
    dense = np.zeros((n, n), dtype=bool)
    dense[0] = dense[:, 0] = True
    order = rcm(*_pattern(from_dense(dense)))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


@settings(max_examples=60, deadline=None)
@given(patterns())
def test_symmetrized_and_transposed(A: sp.csr_array) -> None:
    dense = as_bool(A)
    u = unsigned_pattern(A.indptr, A.indices)
    np.testing.assert_array_equal(_dense(*transposed(*u)), dense.T)
    pointer, columns = symmetrized(*u)
    np.testing.assert_array_equal(_dense(pointer, columns), dense | dense.T)
    assert columns.size == np.count_nonzero(dense | dense.T)
    for i in range(A.shape[0]):
        assert np.all(np.diff(columns[pointer[i] : pointer[i + 1]].astype(int)) > 0)
    if np.array_equal(dense, dense.T):
        assert np.shares_memory(columns, A.indices) or columns.size == 0


def test_symmetrized_takes_unsorted_columns_with_duplicates() -> None:
    pointer, columns = symmetrized(*unsigned_pattern(np.array([0, 4, 4, 5]), np.array([2, 0, 2, 1, 0])))
    np.testing.assert_array_equal(pointer, [0, 3, 4, 5])
    np.testing.assert_array_equal(columns, [0, 1, 2, 0, 0])


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [([0, 2, 1], [0, 1]), ([0, 1, 3], [0, 1]), ([1, 1, 2], [0, 1]), ([0, 1, 2], [0, 2]), ([0, 1, 2], [0, -1])],
)
def test_malformed_patterns_are_refused(indptr: list[int], indices: list[int]) -> None:
    with pytest.raises(ArgumentError):
        levels(np.array(indptr, dtype=np.int32), np.array(indices, dtype=np.int32))


def _pattern(A: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    A.sort_indices()
    return A.indptr, A.indices


def _dense(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    n = indptr.size - 1
    out = np.zeros((n, n), dtype=bool)
    out[np.repeat(np.arange(n), np.diff(indptr).astype(int)), indices] = True
    return out


def _bandwidth(A: sp.csr_array, permutation: np.ndarray) -> int:
    pointer, columns, _ = permute(A.indptr, A.indices, permutation)
    return int(np.abs(np.repeat(np.arange(A.shape[0]), np.diff(pointer)) - columns).max())
