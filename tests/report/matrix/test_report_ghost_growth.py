"""Growth of ghosts: known for a line of rows, as the partition's own model has it, left out where it is dear."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.partition.base import ROW_FLOPS, Partition
from akx.partition.cuts import cut_rows
from akx.partition.quality import quality
from akx.report.matrix import ghost_growth as ghosts
from akx.report.matrix.ghost_growth import ghost_growth


def line(n: int) -> Matrix:
    return Matrix.from_any(sp.csr_array(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))))


def test_of_a_line_each_inner_edge_takes_a_row_a_step() -> None:
    growth = ghost_growth(line(400), 8)
    assert growth.blocks == 4
    assert growth.notes[0].startswith("4 blocks of about ")
    for curve in growth.curves:
        assert curve.ghosts == pytest.approx([6 * j / 400 for j in range(1, 9)])
        assert curve.redundancy[0] == 1
        assert all(a < b for a, b in pairwise(curve.redundancy))
    natural, by_levels, by_rcm, metis = growth.curves
    assert by_rcm.name == "rows by RCM, cut by work"
    assert natural.name == "rows in their order, cut by work"
    assert by_levels.name == "rows by levels, cut by work"
    assert metis.name == "compact blocks by METIS"
    assert growth.to_json()["curves"][1]["ghosts"] == list(by_levels.ghosts)


def test_levels_find_the_line_again_in_shuffled_rows() -> None:
    A = line(400).to_scipy()
    order = np.random.default_rng(0).permutation(400)
    natural, by_levels, by_rcm = ghost_growth(Matrix.from_any(sp.csr_array(A[order][:, order])), 8).curves[:3]
    assert by_levels.ghosts == pytest.approx([6 * j / 400 for j in range(1, 9)])
    assert by_rcm.ghosts == by_levels.ghosts
    assert natural.ghosts[0] > 1


def test_blocks_of_levels_have_like_work() -> None:
    """A line and a dense block, shuffled: cut by the lengths that rows have in the new order."""
    A = sp.csr_array(sp.block_diag([line(300).to_scipy(), np.ones((30, 30))]))
    order = np.random.default_rng(1).permutation(330)
    matrix = Matrix.from_any(sp.csr_array(A[order][:, order]))
    partition = ghosts._by_levels(matrix, 4)
    flops = 2 * np.diff(matrix.indptr) + ROW_FLOPS
    work = [int(flops[partition.rows_of(block)].sum()) for block in range(4)]
    assert max(work) < 1.05 * sum(work) / 4


def test_it_is_what_the_partition_says() -> None:
    grid = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40))
    A = Matrix.from_any(sp.csr_array(sp.kron(grid, sp.eye_array(40)) + sp.kron(sp.eye_array(40), grid)))
    curve = ghost_growth(A, 5).curves[0]
    partition = Partition(None, cut_rows(A.indptr, 4))
    for steps in (1, 3, 5):
        known = quality(A.indptr, A.indices, partition, steps)
        assert curve.redundancy[steps - 1] == pytest.approx(known.redundancy)
        assert curve.ghosts[steps - 1] == pytest.approx(known.surface_to_volume)


def test_without_locality_it_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ghosts, "BLOCK_BYTES", 16 * 1024)
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((4000, 4000), density=4 / 4000, rng=rng) + sp.eye_array(4000))
    growth = ghost_growth(Matrix.from_any(A), 8)
    assert all(len(curve.ghosts) < 8 for curve in growth.curves)
    assert any("4 times the rows" in note for note in growth.notes)
    assert any("METIS: left out" in note for note in growth.notes)


def test_what_would_take_long_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    A = line(4000)
    exact = ghost_growth(A, 8).curves[0]
    monkeypatch.setattr(ghosts, "_MOST_METIS", 100)
    monkeypatch.setattr(ghosts, "_MOST_ZONES", 100)
    growth = ghost_growth(A, 8)
    (curve,) = growth.curves
    assert "estimated" in curve.name
    # Two sides of a ball, of two of the eight balls only one, as they have reached an end: 7 edges instead of 6.
    assert curve.ghosts == pytest.approx([7 / 6 * ghost for ghost in exact.ghosts], rel=0.01)
    assert sum("100 entries" in note for note in growth.notes) == 2


def test_ten_million_entries_are_not_estimated_alone() -> None:
    """Rows in any order are cut, whatever the bar of ten seconds is for; METIS would take most of it."""
    assert ghosts._MOST_METIS < 10_000_000 < ghosts._MOST_ZONES


def test_as_many_blocks_as_asked_for() -> None:
    A = line(4000)
    for blocks in (1, 2, 40):
        growth = ghost_growth(A, 8, blocks)
        assert growth.blocks == blocks
        assert growth.curves[0].ghosts == pytest.approx([2 * (blocks - 1) * j / 4000 for j in range(1, 9)])
    assert ghost_growth(line(7), 2, 40).blocks == 7


@pytest.mark.parametrize("A", [sp.csr_array((5, 5)), sp.eye_array(1), sp.eye_array(3)])
def test_tiny_and_empty_matrices(A: sp.sparray) -> None:
    growth = ghost_growth(Matrix.from_any(A.astype(float)), 4)
    assert all(set(curve.ghosts) <= {0.0} for curve in growth.curves)
