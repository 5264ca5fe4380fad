from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import ArgumentError, InfeasibleError
from akx.partition.base import Partition, order_by_part
from akx.partition.ghost import ghost_zones
from partition.patterns import as_bool, patterns, random_pattern


def brute_force(dense: np.ndarray, own: np.ndarray, k: int) -> list[np.ndarray]:
    """Rows at distance exactly 0 .. k, by boolean products of the dense matrix."""
    reached = np.zeros(dense.shape[0], dtype=bool)
    reached[own] = True
    groups = [np.flatnonzero(reached)]
    for _ in range(k):
        further = reached | (reached.astype(int) @ dense.astype(int) > 0)
        groups.append(np.flatnonzero(further & ~reached))
        reached = further
    return groups


def test_zones_of_fewer_steps_are_within_those_of_more() -> None:
    A = random_pattern(60, 0.04, 3)
    part = order_by_part(np.arange(60) % 5, 5)
    zones = ghost_zones(A.indptr, A.indices, part, 5)
    for steps in range(1, 6):
        found, wanted = zones.within(steps), ghost_zones(A.indptr, A.indices, part, steps)
        assert found.k == steps
        assert found.redundancy == wanted.redundancy
        np.testing.assert_array_equal(found.fetched, wanted.fetched)
        for block in range(5):
            np.testing.assert_array_equal(found.closure(block), wanted.closure(block))
            np.testing.assert_array_equal(found.active(block, steps), wanted.active(block, steps))
    for wrong in (0, 6):
        with pytest.raises(ArgumentError, match="steps"):
            zones.within(wrong)


@settings(max_examples=120, deadline=None)
@given(patterns(), st.integers(1, 50), st.integers(1, 6), st.integers(0, 2**31), st.booleans())
def test_zones_are_powers_of_the_pattern(A: sp.csr_array, parts: int, k: int, seed: int, natural: bool) -> None:
    n = A.shape[0]
    rng = np.random.default_rng(seed)
    if natural:  # any cuts, empty blocks and more blocks than rows included
        part = Partition(None, np.concatenate(([0], np.sort(rng.integers(0, n + 1, parts - 1)), [n])))
    else:
        part = order_by_part(rng.integers(0, parts, n), parts, order=rng.permutation(n))
    zones = ghost_zones(A.indptr, A.indices, part, k)
    dense, lengths = as_bool(A), np.diff(A.indptr)
    place = np.arange(n) if part.permutation is None else np.argsort(part.permutation)
    assert (zones.blocks, zones.k) == (part.blocks, k)
    assert zones.rows.dtype == A.indices.dtype
    done = 0
    for b in range(part.blocks):
        np.testing.assert_array_equal(zones.own(b), part.rows_of(b))
        groups = brute_force(dense, part.rows_of(b), k)
        for d in range(k + 1):
            found = zones.rows[zones.ptr[b, d] : zones.ptr[b, d + 1]]
            np.testing.assert_array_equal(np.sort(found), groups[d])
            assert np.all(np.diff(place[found]) > 0)
            assert zones.entries[b, d] == lengths[groups[d]].sum()
        assert zones.closure(b).size == sum(g.size for g in groups)
        assert zones.fetched[b] == sum(g.size for g in groups[1:])
        for j in range(1, k + 1):
            active = zones.active(b, j)
            assert zones.active_counts[b, j - 1] == active.size
            np.testing.assert_array_equal(np.sort(active), np.sort(np.concatenate(groups[: k - j + 1])))
            done += int(lengths[active].sum())
    assert zones.products.sum() == done
    assert zones.redundancy == (pytest.approx(done / (k * A.nnz)) if A.nnz else 1.0)


@settings(max_examples=40, deadline=None)
@given(patterns(), st.integers(1, 9), st.integers(1, 5))
def test_a_block_can_do_k_steps_with_its_closure_alone(A: sp.csr_array, parts: int, k: int) -> None:
    n = A.shape[0]
    rng = np.random.default_rng(0)
    A.data = rng.integers(-3, 4, A.nnz).astype(np.float64)  # exact arithmetic
    x = rng.integers(-3, 4, n).astype(np.float64)
    part = order_by_part(rng.integers(0, parts, n), parts)
    zones = ghost_zones(A.indptr, A.indices, part, k)
    expected = np.linalg.matrix_power(A.toarray(), k) @ x
    for b in range(parts):
        v = np.full(n, np.nan)
        v[zones.closure(b)] = x[zones.closure(b)]
        for j in range(1, k + 1):
            w = np.full(n, np.nan)
            for i in zones.active(b, j):
                w[i] = sum(A.data[e] * v[A.indices[e]] for e in range(A.indptr[i], A.indptr[i + 1]))
            v = w
        np.testing.assert_array_equal(v[zones.own(b)], expected[zones.own(b)])


def test_tridiagonal_redundancy_by_formula() -> None:
    n, blocks, k = 1200, 10, 4
    A = sp.csr_array(sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)))
    zones = ghost_zones(A.indptr, A.indices, Partition(None, np.linspace(0, n, blocks + 1).astype(np.int64)), k)
    # an inner side of a block: one row of 3 entries at each distance d < k, done k - d times
    extra = 2 * (blocks - 1) * 3 * (k * (k - 1) // 2)
    assert zones.redundancy == pytest.approx(1 + extra / (k * A.nnz))


def test_limit_and_wrong_arguments() -> None:
    A = random_pattern(200, 0.1, 3)
    part = Partition(None, np.arange(0, 201, 2))
    with pytest.raises(InfeasibleError, match="too large"):
        ghost_zones(A.indptr, A.indices, part, 4, most_rows=10.0)
    assert ghost_zones(A.indptr, A.indices, part, 4, most_rows=101.0).blocks == 100
    with pytest.raises(ArgumentError, match="k is out of range"):
        ghost_zones(A.indptr, A.indices, part, 0)
    with pytest.raises(ArgumentError, match="another matrix"):
        ghost_zones(A.indptr, A.indices, Partition(None, np.array([0, 100])), 1)
    with pytest.raises(ArgumentError, match="step"):
        ghost_zones(A.indptr, A.indices, part, 2).active(0, 3)
