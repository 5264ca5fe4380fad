"""Natural nodes of mixed sizes, and the slices of variable block ELL, read back entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.formats.base import pattern_of
from akx.formats.natural_blocks import MOST, Nodes, alike_rows, natural_nodes
from akx.formats.vbell import HEAD, NOWHERE, WINDOW, Shape, VbellArrays, lay_out, slots_of


def spread(sizes: Any, near: Any) -> Matrix:
    """Dense blocks where `near` has entries, of nodes with these sizes."""
    rows = int(np.sum(sizes))
    of = np.repeat(np.arange(len(sizes)), sizes)
    S = sp.csr_array((np.ones(rows), (np.arange(rows), of)), shape=(rows, len(sizes)))
    A = sp.csr_array(S @ sp.csr_array(near) @ S.T)
    A.data = np.random.default_rng(A.nnz).standard_normal(A.nnz)
    return Matrix.from_any(A)


def chain(nodes: int) -> Any:
    return sp.diags_array([np.ones(nodes)] * 3, offsets=[-1, 0, 1], shape=(nodes, nodes))


def nodes_of(matrix: Matrix) -> Nodes:
    return natural_nodes(pattern_of(matrix))


def test_nodes_of_mixed_sizes_are_found() -> None:
    sizes = np.random.default_rng(1).integers(1, 7, 400)
    matrix = spread(sizes, chain(400))
    found = nodes_of(matrix)
    assert found.sizes.tolist() == sizes.tolist()
    assert (found.slots, found.blocks) == (matrix.nnz, 3 * 400 - 2)
    assert found.of.tolist() == np.repeat(np.arange(400), sizes).tolist()
    wide = np.zeros((400, MOST), int)
    for node in range(400):
        for other in range(max(0, node - 1), min(400, node + 2)):
            wide[node, sizes[other] - 1] += 1
    assert found.counts.tolist() == wide.tolist()


def test_rows_that_are_the_same_are_no_node_where_columns_are_not() -> None:
    """All others read column 0 and not column 1: these are of two nodes, though their rows are the same."""
    A = np.eye(40)
    A[:2, :] = A[:, 0] = 1
    found = nodes_of(Matrix.from_any(sp.csr_array(A)))
    assert found.cuts.tolist() == list(range(41))
    A[:, 1] = 1
    assert nodes_of(Matrix.from_any(sp.csr_array(A))).cuts.tolist() == [0, *range(2, 41)]


@pytest.mark.parametrize(("length", "sizes"), [(6, [6]), (7, [3, 4]), (12, [6, 6]), (13, [4, 4, 5]), (20, [5] * 4)])
def test_long_runs_are_cut_evenly(length: int, sizes: list[int]) -> None:
    found = nodes_of(Matrix.from_any(sp.csr_array(np.ones((length, length)))))
    assert sorted(found.sizes.tolist()) == sizes
    assert found.slots == length * length


def test_a_few_entries_that_are_missing_do_not_cut_nodes_apart() -> None:
    matrix = spread([3] * 300, chain(300))
    A = sp.csr_array(matrix.to_scipy()).copy()
    A.data[np.random.default_rng(2).choice(A.nnz, A.nnz // 50, replace=False)] = 0
    A.eliminate_zeros()
    found = nodes_of(Matrix.from_any(A))
    assert np.mean(found.sizes == 3) > 0.95
    assert A.nnz < found.slots <= 1.06 * A.nnz


def test_there_are_none_in_a_grid_and_in_no_entries() -> None:
    grid = sp.csr_array(sp.kron(sp.eye_array(30), chain(40)) + sp.kron(chain(30), sp.eye_array(40)))
    found = nodes_of(Matrix.from_any(grid))
    assert (found.sizes == 1).all()
    assert found.blocks == found.slots == grid.nnz
    empty = nodes_of(Matrix.from_any(sp.csr_array((9, 9))))
    assert (empty.blocks, empty.slots, empty.cuts[-1]) == (0, 0, 9)


def test_a_look_at_some_rows_tells_whether_there_are_nodes() -> None:
    for size, share in ((1, 0.0), (2, 1 / 2), (3, 2 / 3), (6, 5 / 6)):
        for nodes in (40, 9000):
            matrix = spread([size] * nodes, chain(nodes) if size > 1 else sp.eye_array(nodes))
            assert alike_rows(pattern_of(matrix)) == pytest.approx(share, abs=0.03)
    assert alike_rows(pattern_of(Matrix.from_any(sp.csr_array((1, 1))))) == 0


# --------------------------------------------------------------------------------------------------------- the layout

SHAPES = [Shape(32, lanes, 32) for lanes in (1, 2, 3, 4, 8)] + [Shape(48, 1, 8), Shape(6, 1, 1)]


def dense(found: VbellArrays, matrix: Matrix, shape: Shape) -> Any:
    """The matrix from the arrays, each place by the formula of the module; places that nobody has asked for are NaN."""
    data = np.append(0.0, matrix.data)
    A = np.zeros((matrix.n, matrix.n))
    read = np.zeros(found.entry.size, int)
    for place, index, value, r, many, lanes, *steps in found.head.astype(int).tolist():
        assert (many, lanes) == (shape.nodes_of(r), shape.lanes_of(r))
        assert r * many * lanes <= max(shape.width, r)
        for c, count in zip(range(6, 0, -1), steps, strict=True):
            for s, lane, t in np.ndindex(count, lanes, many):
                at = int(found.column[index + (s * lanes + lane) * many + t])
                assert at + c <= matrix.n
                for i, j in np.ndindex(r, c):
                    slot = value + (((s * c + j) * lanes + lane) * r + i) * many + t
                    read[slot] += 1
                    row = int(found.first[place + t])
                    if row != NOWHERE:
                        A[row + i, at + j] += data[found.entry[slot]]
                    else:
                        assert found.entry[slot] == 0
            index += count * lanes * many
            value += count * lanes * many * r * c
    assert (read == 1).all()
    return A


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("most", [1, 3, 6])
def test_every_entry_is_where_the_formula_says(most: int, shape: Shape) -> None:
    rng = np.random.default_rng(most)
    for nodes in (1, 2, 37):
        near = sp.csr_array(chain(nodes) + (sp.random_array((nodes, nodes), density=0.1, rng=rng) != 0))
        matrix = spread(rng.integers(1, most + 1, nodes), near)
        found = nodes_of(matrix)
        arrays = lay_out(pattern_of(matrix), found, shape)
        assert arrays.head.shape[1] == HEAD
        assert arrays.entry.size == slots_of(found, shape)
        assert np.array_equal(np.sort(arrays.entry[arrays.entry > 0]), np.arange(1, matrix.nnz + 1))
        assert np.array_equal(np.sort(arrays.first[arrays.first != NOWHERE]), found.cuts[:-1])
        assert np.array_equal(dense(arrays, matrix, shape), matrix.to_scipy().toarray())


def test_nodes_are_sorted_within_windows_only() -> None:
    lengths = np.tile([1, 5, 3], WINDOW)  # three windows of rows, each of its own length
    n = lengths.size
    column = np.concatenate([np.arange(count) for count in lengths]) * 7 + np.repeat(np.arange(n), lengths)
    A = sp.csr_array((np.ones(column.size), column % n, np.append(0, np.cumsum(lengths))), shape=(n, n))
    matrix = Matrix.from_any(A)
    found, shape = nodes_of(matrix), Shape(32, 1, 32)
    arrays = lay_out(pattern_of(matrix), found, shape)
    assert slots_of(found, shape) <= 1.001 * matrix.nnz + 64 * 6  # rows of one length lie together
    window = arrays.first[arrays.first != NOWHERE] // WINDOW
    assert (np.diff(window.astype(int)) >= 0).all()
