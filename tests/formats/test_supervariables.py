"""Supervariables: rows with the same columns and the same rows as columns, wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.formats.base import Pattern, pattern_of
from akx.formats.natural_blocks import natural_nodes
from akx.formats.supervariables import of_nodes, supervariables, twins
from benchmarks import gallery
from benchmarks.orders import permuted
from benchmarks.products import wind

COUNTS = {1: 9, 2: 7, 3: 8, 4: 5, 5: 4, 6: 30}
ROWS = sum(size * many for size, many in COUNTS.items())


def pattern(A: Any) -> Pattern:
    return pattern_of(Matrix.from_any(sp.csr_array(A)))


@pytest.mark.parametrize("seed", [0, 1])
def test_nodes_are_found_in_any_order(seed: int) -> None:
    A = wind(counts=COUNTS)
    natural, order = natural_nodes(pattern(A)), np.random.default_rng(seed).permutation(A.shape[0])
    assert natural.cuts.size - 1 == sum(COUNTS.values())
    found = supervariables(pattern(permuted(A, order)))
    assert np.array_equal(np.sort(found.rows), np.arange(A.shape[0]))
    assert found.cuts[-1] == A.shape[0]
    pieces = np.split(found.rows, found.cuts[1:-1])
    wanted = np.split(np.argsort(order), natural.cuts[1:-1])  # where the rows of each node are now
    assert {frozenset(piece) for piece in pieces} == {frozenset(piece) for piece in wanted}
    assert all((np.diff(piece) > 0).all() for piece in pieces)
    assert (np.diff([piece[0] for piece in pieces]) > 0).all()
    assert np.array_equal(np.sort(found.counts, axis=0), np.sort(natural.counts, axis=0))
    before = {frozenset(piece): counts for piece, counts in zip(wanted, natural.counts, strict=True)}
    assert all((before[frozenset(piece)] == counts).all() for piece, counts in zip(pieces, found.counts, strict=True))


def test_those_of_rows_that_follow_one_another_are_the_nodes() -> None:
    A = pattern(wind(counts=COUNTS))
    found, nodes = supervariables(A), of_nodes(natural_nodes(A))
    assert np.array_equal(found.rows, nodes.rows)
    assert np.array_equal(found.cuts, nodes.cuts)
    assert np.array_equal(found.counts, nodes.counts)
    assert np.array_equal(found.sizes, nodes.sizes)


def test_more_rows_than_six_are_cut_evenly() -> None:
    found = supervariables(pattern(np.kron(np.eye(3), np.ones((10, 10)))))
    assert found.sizes.tolist() == [5, 5] * 3
    assert found.counts.tolist() == [[0, 0, 0, 0, 2, 0]] * 6
    order = np.arange(30).reshape(3, 10).T.ravel()
    again = supervariables(pattern(permuted(np.kron(np.eye(3), np.ones((10, 10))), order)))
    assert np.sort(again.rows[:5]).tolist() == [0, 3, 6, 9, 12]
    assert again.sizes.tolist() == [5] * 6


def test_rows_alone_are_not_enough() -> None:
    """Rows 0 and 1 have the same columns; columns 0 and 1 do not have the same rows."""
    A = np.eye(5)
    A[:2, :2] = 1
    assert supervariables(pattern(A)).sizes.tolist() == [2, 1, 1, 1]
    A[3, 0] = 1
    assert supervariables(pattern(A)).sizes.tolist() == [1] * 5


def test_rows_without_entries_are_single() -> None:
    assert supervariables(pattern(np.zeros((4, 4)))).sizes.tolist() == [1] * 4
    assert twins(pattern(np.zeros((4, 4)))) == 0.0
    assert supervariables(pattern(np.ones((1, 1)))).sizes.tolist() == [1]


def test_names_that_are_the_same_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the numbers are, rows are only together where they have the same columns."""

    class Same:
        def integers(self, low: int, high: int, n: int, dtype: Any) -> Any:
            return np.full(n, 2**40, dtype)

    A = pattern(permuted(wind(counts=COUNTS), np.random.default_rng(0).permutation(ROWS)))
    right = supervariables(A)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Same())
    found = supervariables(A)
    for i, j in zip(found.cuts[:-1], found.cuts[1:], strict=True):
        columns = [A.indices[int(A.indptr[r]) : int(A.indptr[r + 1])].tolist() for r in found.rows[i:j]]
        assert all(one == columns[0] for one in columns)
    assert found.sizes.size >= right.sizes.size


@pytest.mark.parametrize(("name", "share"), [("brick", 1.0), ("shell", 1.0), ("9-point", 0.0), ("delaunay", 0.0)])
def test_a_look_at_some_rows(name: str, share: float) -> None:
    A = gallery.small(name)
    for order in (np.arange(A.shape[0]), np.random.default_rng(0).permutation(A.shape[0])):
        assert twins(pattern(permuted(A, order))) == pytest.approx(share, abs=0.05)


def test_a_look_at_nodes_of_mixed_sizes() -> None:
    A, single = wind(counts=COUNTS), COUNTS[1] / ROWS
    assert twins(pattern(A)) == pytest.approx(1 - single, abs=0.03)
