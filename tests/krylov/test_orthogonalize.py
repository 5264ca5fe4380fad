"""Orthonormal rows: exact relations, near dependence, every value type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from akx.krylov.orthogonalize import Orthogonalizer, condition_of_columns

TYPES = [np.float32, np.float64, np.complex64, np.complex128]


def rows(m: int, n: int, dtype: Any, seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((m, n))
    if np.dtype(dtype).kind == "c":
        W = W + 1j * rng.standard_normal((m, n))
    return W.astype(dtype)


def loss(Q: NDArray[Any]) -> float:
    """How far the rows are from orthonormal."""
    return float(np.abs(Q.conj() @ Q.T - np.eye(Q.shape[0])).max())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("allowed", [0.0, None])
def test_vectors_one_by_one(dtype: Any, allowed: float | None) -> None:
    W = rows(12, 500, dtype)
    before, eps = W.astype(complex), float(np.finfo(dtype).eps)
    ortho = Orthogonalizer(W, allowed)
    R = np.zeros((12, 12), dtype=complex)
    for k in range(12):
        R[:k, k], R[k, k] = ortho.append(k)
    assert loss(W) <= (40 * eps if allowed == 0.0 else eps**0.5)
    np.testing.assert_allclose(W.T.astype(complex) @ R, before.T, rtol=0, atol=200 * eps)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [9001, 40])
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-5, 1e-9])
def test_blocks(dtype: Any, n: int, spread: float) -> None:
    """Blocks whose rows differ by less and less: rounds of CholQR, then Householder's reflections."""
    k, s, eps = 7, 6, float(np.finfo(dtype).eps)
    W = rows(k + s, n, dtype)
    ortho = Orthogonalizer(W)
    for j in range(k):
        ortho.append(j)
    W[k:] = W[k] + W[2] + W[k:] * np.asarray(spread, dtype=dtype)
    before, lengths = W.astype(complex), np.linalg.norm(W.astype(complex), axis=1)
    block = ortho.append_block(k, s)
    assert (block.C.shape, block.R.shape) == ((k, s), (s, s))
    assert np.all(np.tril(block.R, -1) == 0)
    assert loss(W) <= 2 * eps**0.5
    np.testing.assert_allclose(block.norms, lengths[k:], rtol=100 * eps)
    made = W[:k].T.astype(complex) @ block.C + W[k:].T.astype(complex) @ block.R
    assert np.abs(made - before[k:].T).max() <= 100 * eps * lengths.max()


def test_a_second_round_is_done_only_where_it_is_needed() -> None:
    def rounds(spread: float) -> float:
        W = rows(10, 2000, float)
        ortho = Orthogonalizer(W)
        for j in range(4):
            ortho.append(j)
        W[4:] = W[4] + spread * W[4:]
        ortho.append_block(4, 6)
        return loss(W)

    assert rounds(1.0) < 1e-13
    assert 1e-13 < rounds(3e-3) < 1.5e-8  # one round, and the loss that was foreseen
    assert rounds(1e-6) < 1e-13


@pytest.mark.parametrize("dtype", TYPES)
def test_dependent_rows_are_seen(dtype: Any) -> None:
    W = rows(6, 200, dtype)
    ortho = Orthogonalizer(W)
    for j in range(2):
        ortho.append(j)
    W[4] = W[0] + 2 * W[2] - W[3]
    before = W.astype(complex)
    block = ortho.append_block(2, 4)
    condition = condition_of_columns(block.R, block.norms)
    limit = float(np.finfo(dtype).eps) ** -0.5
    np.testing.assert_array_equal(condition <= limit, [True, True, False, False])
    made = W[:2].T.astype(complex) @ block.C[:, :2] + W[2:4].T.astype(complex) @ block.R[:2, :2]
    np.testing.assert_allclose(made, before[2:4].T, rtol=0, atol=100 * np.finfo(dtype).eps)
    W[5] = W[1] - W[0]
    c, r = ortho.append(5)
    assert r == 0.0
    np.testing.assert_allclose(c[:2], [-1, 1], atol=100 * np.finfo(dtype).eps)


def test_a_block_ends_before_what_is_no_vector() -> None:
    for bad in (0.0, np.nan, np.inf, 1e300):
        W = rows(6, 100, float)
        ortho = Orthogonalizer(W)
        ortho.append(0)
        W[4] = bad
        block = ortho.append_block(1, 5)
        assert block.R.shape == (3, 3)
        assert loss(W[:4]) < 1e-13
        assert Orthogonalizer(W).append(4)[1] == 0 or not np.isfinite(bad * bad)
    W[1] = 0
    assert ortho.append_block(1, 2).R.shape == (0, 0)


def test_condition_numbers_of_leading_columns() -> None:
    rng = np.random.default_rng(3)
    T = np.triu(rng.standard_normal((5, 5)))
    norms = np.array([1.0, 2.0, 0.1, 3.0, 1.0])
    found = condition_of_columns(T, norms)
    for j in range(5):
        X = (T / norms)[: j + 1, : j + 1]
        assert found[j] == pytest.approx(np.linalg.norm(X) * np.linalg.norm(np.linalg.inv(X)))
    T[3, 3] = 0
    assert np.isfinite(condition_of_columns(T, norms)).tolist() == [True, True, True, False, False]
    T[1, 1] = np.nan
    assert np.isfinite(condition_of_columns(T, norms)).tolist() == [True, False, False, False, False]
