from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.partition.base import Partition, inverse_permutation, order_by_part
from akx.partition.cuts import cut_rows, cut_rows_by_bytes, even_cuts, even_cuts_of
from akx.partition.ghost import ghost_zones

row_lengths = st.lists(st.one_of(st.integers(0, 6), st.just(500)), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(row_lengths, st.integers(1, 80))
def test_cuts_are_balanced(lengths: list[int], blocks: int) -> None:
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    n = len(lengths)
    cuts = cut_rows(indptr, blocks)
    assert cuts.dtype == np.int64
    assert cuts[0] == 0
    assert cuts[-1] == n
    assert cuts.size == min(blocks, n) + 1
    assert np.all(np.diff(cuts) > 0)
    if blocks < n / 4 and max(lengths) <= 6:
        work = 2 * np.diff(indptr[cuts]) + 5 * np.diff(cuts)
        mean = work.sum() / blocks
        # each end of a block is within half a row of its even place
        assert np.all(np.abs(work - mean) <= 2 * max(lengths) + 5 + 1e-9)


def test_even_rows_are_cut_evenly() -> None:
    indptr = 5 * np.arange(101)
    np.testing.assert_array_equal(cut_rows(indptr, 4), [0, 25, 50, 75, 100])


def test_ghost_flops_are_balanced() -> None:
    # Half of the rows are coupled over a distance, half are diagonal: only the first half has ghosts.
    n = 4000
    band = sp.diags_array([1.0] * 5, offsets=[-40, -1, 0, 1, 40], shape=(n // 2, n // 2))
    A = sp.csr_array(sp.block_diag((band, sp.diags_array(np.ones(n // 2)))))
    A.sort_indices()

    def worst(cuts: np.ndarray) -> float:
        zones = ghost_zones(A.indptr, A.indices, Partition(None, cuts), 8)
        flops = 2 * zones.products + 5 * zones.active_counts.sum(axis=1)
        return float(flops.max() / flops.mean())

    plain, balanced = cut_rows(A.indptr, 8), cut_rows(A.indptr, 8, k=8, indices=A.indices)
    assert balanced.size == plain.size == 9
    assert worst(plain) > 1.15
    assert worst(balanced) < 1.03
    np.testing.assert_array_equal(cut_rows(A.indptr, 8, k=8), plain)


def test_a_heavy_row_gets_a_block() -> None:
    indptr = np.concatenate(([0], np.cumsum([1] * 10 + [1000] + [1] * 10)))
    cuts = cut_rows(indptr, 3)
    assert 10 in cuts
    assert 11 in cuts


@settings(max_examples=150, deadline=None)
@given(row_lengths, st.integers(1, 4000))
def test_blocks_by_bytes_fit(lengths: list[int], target: int) -> None:
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    cuts = cut_rows_by_bytes(indptr, 12, 8, target)
    size = 12 * np.diff(indptr[cuts]) + 8 * np.diff(cuts)
    assert cuts[0] == 0
    assert cuts[-1] == len(lengths)
    assert np.all(np.diff(cuts) > 0)
    single = np.diff(cuts) == 1
    assert np.all((size <= target) | single | (size <= 12 * max(lengths) + 8))
    # as few as a greedy filling needs
    greedy, room = 1, target
    for length in lengths:
        need = 12 * length + 8
        if need > room and room < target:
            greedy, room = greedy + 1, target
        room -= need
    assert cuts.size - 1 <= greedy


def test_boundaries_are_kept() -> None:
    indptr = 3 * np.arange(101)
    boundaries = np.array([0, 7, 30, 31, 90, 100])
    assert np.all(np.isin(cut_rows(indptr, 3, boundaries=boundaries), boundaries))
    assert np.all(np.isin(cut_rows_by_bytes(indptr, 8, 4, 900, boundaries=boundaries), boundaries))
    assert cut_rows(indptr, 50, boundaries=boundaries).tolist() == boundaries.tolist()


@pytest.mark.parametrize("blocks", [0, -1, 1.5, True])
def test_wrong_number_of_blocks(blocks: int) -> None:
    with pytest.raises(ArgumentError, match="number of blocks"):
        cut_rows(np.arange(5), blocks)


def test_wrong_target() -> None:
    with pytest.raises(ArgumentError, match="target"):
        cut_rows_by_bytes(np.arange(5), 8, 4, 0)


def test_partition_checks_and_views() -> None:
    part = Partition(np.array([2, 0, 1], dtype=np.int32), [0, 1, 1, 3])
    assert (part.n, part.blocks) == (3, 3)
    assert part.cuts.dtype == part.permutation.dtype == np.int64
    np.testing.assert_array_equal(part.sizes, [1, 0, 2])
    np.testing.assert_array_equal(part.part_of_row(), [2, 2, 0])
    np.testing.assert_array_equal(part.rows_of(2), [0, 1])
    np.testing.assert_array_equal(Partition(None, np.array([0, 2, 5])).rows_of(1), [2, 3, 4])
    for permutation, cuts in [([0, 0, 1], [0, 3]), ([0, 1], [0, 3]), (None, [0]), (None, [1, 2]), (None, [0, 3, 2])]:
        with pytest.raises(ArgumentError):
            Partition(None if permutation is None else np.array(permutation), np.array(cuts))
    with pytest.raises(ArgumentTypeError):
        Partition(None, np.array([0.0, 1.0]))


def test_order_by_part() -> None:
    part = order_by_part([1, 0, 1, 3, 0], 5)
    np.testing.assert_array_equal(part.permutation, [1, 4, 0, 2, 3])
    np.testing.assert_array_equal(part.cuts, [0, 2, 4, 4, 5, 5])
    np.testing.assert_array_equal(part.part_of_row(), [1, 0, 1, 3, 0])
    ordered = order_by_part([1, 0, 1, 3, 0], order=[4, 3, 2, 1, 0])
    np.testing.assert_array_equal(ordered.permutation, [4, 1, 2, 0, 3])
    assert ordered.blocks == 4
    with pytest.raises(ArgumentError):
        order_by_part([0, 2], 2)
    with pytest.raises(ArgumentError):
        order_by_part([0, -1])


def test_inverse_permutation() -> None:
    np.testing.assert_array_equal(inverse_permutation([2, 0, 1]), [1, 2, 0])


def test_cuts_of_sums_that_are_asked_for() -> None:
    """The same as of all of them, of which most are never asked for."""
    rng = np.random.default_rng(0)
    for n, blocks in ((1, 1), (1, 7), (2, 2), (30, 40), (57, 1), (700, 9), (5000, 132)):
        for row in (0.0, 2.0):
            lengths = rng.integers(0, 5, n) * rng.integers(0, 2, n)
            lengths[n // 3] = 4 * n
            work, asked = np.append(0, np.cumsum(lengths)) + row * np.arange(n + 1), []

            def found(rows: Any, work: Any = work, asked: list[Any] = asked) -> Any:
                asked.append(rows.size)
                return work[rows]

            np.testing.assert_array_equal(even_cuts_of(found, n, blocks), even_cuts(work, blocks))
            assert len(asked) == 2
            assert sum(asked) <= 3 * (n * min(n, blocks)) ** 0.5 + 2 * min(n, blocks) + 3
