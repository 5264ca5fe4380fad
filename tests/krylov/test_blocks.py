"""Orthonormal blocks, their condition, and columns of H from them, for columns as users have them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.krylov import Basis, basis_from_ritz, condition_estimates, extend_hessenberg, newton, orthonormalize

TYPES = [np.float32, np.float64, np.complex64, np.complex128]


@pytest.fixture(autouse=True)
def _plain_products(no_plans_of_the_user: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_PREPARE", "auto")


def columns(n: int, s: int, dtype: Any = float, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((n, s))
    return (V + 1j * rng.standard_normal((n, s)) if np.dtype(dtype).kind == "c" else V).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_block_is_made_of_the_others_and_new_ones(dtype: Any) -> None:
    eps = float(np.finfo(dtype).eps)
    Q = np.linalg.qr(columns(200, 5, dtype))[0]
    V = columns(200, 4, dtype, seed=1)
    before = V.copy()
    new, C, R = orthonormalize(V, Q)
    assert (new.shape, C.shape, R.shape, new.dtype) == ((200, 4), (5, 4), (4, 4), dtype)
    np.testing.assert_array_equal(V, before)
    both = np.hstack([Q, new]).astype(complex)
    np.testing.assert_allclose(both.conj().T @ both, np.eye(9), atol=40 * eps)
    np.testing.assert_allclose(Q @ C + new @ R, V, atol=100 * eps)
    assert not np.tril(R, -1).any()
    assert (np.diagonal(R).real > 0).all()
    rougher, _, _ = orthonormalize(V, Q, loss=eps**0.5)
    np.testing.assert_allclose(rougher, new, atol=eps**0.5)


def test_blocks_that_are_nearly_dependent_zero_or_of_extreme_scale() -> None:
    V = columns(100, 4)
    V[:, 2] = V[:, 0] + 1e-13 * V[:, 1]
    new, _, R = orthonormalize(V)
    np.testing.assert_allclose(new.T @ new, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(new @ R, V, atol=1e-13)
    found = condition_estimates(R)
    assert found[1] < 10
    assert found[2] > 1e12
    V[:, 2] = 0
    new, C, R = orthonormalize(V)
    assert (new.shape, C.shape, R.shape) == ((100, 2), (0, 2), (2, 2))
    for scale in (1e-200, 1e200, 5e-324):
        V = columns(100, 3) * np.array([1.0, scale, 1.0])
        new, _, R = orthonormalize(V)
        if scale > 1e-300:
            np.testing.assert_allclose(new @ R, V, rtol=1e-12)
        np.testing.assert_allclose(new.T @ new, np.eye(3), atol=1e-14)


def test_lists_and_integers_and_one_column() -> None:
    new, _, R = orthonormalize([3, 0, 4])
    np.testing.assert_allclose(new, [[0.6], [0.0], [0.8]])
    np.testing.assert_allclose(R, [[5.0]])
    new, C, _ = orthonormalize(np.array([[1], [1]], dtype=np.int8), [[1.0], [0.0]])
    assert (new.dtype, C.tolist()) == (np.float64, [[1.0]])


def test_conditions_are_those_of_columns_of_length_one() -> None:
    V = columns(50, 5) * np.logspace(-8, 8, 5)
    V[:, 3] += 1e9 * V[:, 1]
    Q = np.linalg.qr(columns(50, 2, seed=1))[0]
    _, C, R = orthonormalize(V, Q)
    for found, W in (
        (condition_estimates(R), V - Q @ (Q.T @ V)),
        (condition_estimates(R, C), np.hstack([Q[:, 1:], V - Q[:, :1] @ (Q[:, :1].T @ V)])),
    ):
        W = W / np.linalg.norm(W, axis=0)
        first = W.shape[1] - 5
        for j in range(5):
            exact = np.linalg.cond(W[:, : first + j + 1])
            assert 0.1 * exact <= found[j] <= 10 * exact
    assert condition_estimates(np.diag([1.0, 0.0, 2.0])).tolist() == [1.0, np.inf, np.inf]


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("kind", ["newton", "chebyshev", "monomial"])
def test_columns_of_h_are_those_of_arnoldi(dtype: Any, kind: str) -> None:
    rng = np.random.default_rng(3)
    A = sp.csr_array(sp.random_array((60, 60), density=0.1, rng=rng) + sp.diags_array(np.linspace(1, 2, 60)))
    A = A.astype(dtype) * (1 + 0.2j if np.dtype(dtype).kind == "c" else 1)
    Q = columns(60, 1, dtype)
    Q, H = Q / np.linalg.norm(Q), np.zeros((1, 0))
    basis = basis_from_ritz(kind, np.linalg.eigvals(A.toarray()), 4, real=np.dtype(dtype).kind != "c")
    for _ in range(3):
        V = akx.matrix_powers(A, Q[:, -1], 4, basis=basis)
        new, C, R = orthonormalize(V[:, 1:], Q)
        H = extend_hessenberg(H, C, R, basis.matrix())
        Q = np.hstack([Q, new])
    assert H.shape == (13, 12)
    np.testing.assert_allclose(A @ Q[:, :-1], Q @ H, atol=1e-10)
    assert not np.tril(H, -2).any()
    one_by_one = Q[:, :1]
    for j in range(12):  # Arnoldi's process as it is written
        w = A @ one_by_one[:, -1]
        w = w - one_by_one @ (one_by_one.conj().T @ w)
        w = w - one_by_one @ (one_by_one.conj().T @ w)
        assert np.linalg.norm(w) == pytest.approx(abs(H[j + 1, j]), rel=1e-8)
        one_by_one = np.hstack([one_by_one, w[:, None] / np.linalg.norm(w)])


def test_a_block_that_ended_early() -> None:
    A = sp.csr_array(sp.diags_array(np.arange(1.0, 31.0)))
    v, basis = np.eye(30)[:, :1] + np.eye(30)[:, 1:2], newton([1.0, 2.0, 3.0], 3)
    V = akx.matrix_powers(A, v[:, 0] / 2**0.5, 3, basis=basis)
    new, C, R = orthonormalize(V[:, 1:], v / 2**0.5)
    assert new.shape[1] < 3  # of rank 2
    H = extend_hessenberg(np.zeros((1, 0)), C, R, basis.matrix())
    assert H.shape == (1 + new.shape[1], new.shape[1])
    assert H[0, 0] == pytest.approx(1.5)


def test_what_is_refused() -> None:
    V, Q = columns(10, 2), np.eye(10)[:, :3]
    with pytest.raises(ArgumentError, match="Q does not fit V"):
        orthonormalize(V, Q[:9])
    with pytest.raises(ArgumentError, match="too many columns"):
        orthonormalize(columns(4, 2), np.eye(4)[:, :3])
    with pytest.raises(ArgumentError, match="V is not finite"):
        orthonormalize(V * np.nan)
    with pytest.raises(ArgumentError, match="V has no columns"):
        orthonormalize(np.zeros((2, 2, 2)))
    with pytest.raises(ArgumentError, match="loss is out of range"):
        orthonormalize(V, loss=-1.0)
    with pytest.raises(ArgumentTypeError, match="V is sparse"):
        orthonormalize(sp.csr_array(V))
    with pytest.raises(ArgumentError, match="no upper triangle"):
        condition_estimates(np.ones((2, 2)))
    with pytest.raises(ArgumentError, match="C does not fit R"):
        condition_estimates(np.eye(2), np.ones((3, 3)))
    with pytest.raises(ArgumentError, match="C has no rows"):
        condition_estimates(np.eye(2), np.ones((0, 2)))
    with pytest.raises(ArgumentError, match="H does not fit C"):
        extend_hessenberg(np.zeros((2, 2)), np.ones((3, 2)), np.eye(2), np.eye(3, 2))
    with pytest.raises(ArgumentError, match="B does not fit R"):
        extend_hessenberg(np.zeros((1, 0)), np.ones((1, 2)), np.eye(2), np.eye(2, 1))
    with pytest.raises(ArgumentError, match="basis"):
        basis_from_ritz("bernstein", [1.0], 3)
    with pytest.raises(ArgumentError, match="s is out of range"):
        basis_from_ritz("newton", [1.0], 0)
    for ritz in ([], [np.nan], [1.0, np.inf]):
        with pytest.raises(ArgumentError, match="ritz has no eigenvalues to go by"):
            basis_from_ritz("newton", ritz, 4)
    for loss in (1.0, 2.0, -1e-3, np.nan):
        with pytest.raises(ArgumentError, match="loss is out of range"):
            orthonormalize(np.eye(3, 2), loss=loss)


def test_a_single_complex_value_makes_a_basis() -> None:
    basis = basis_from_ritz("chebyshev", [2.0 + 1.0j], 2, real=False)
    x = np.ones(5, complex)
    V = akx.matrix_powers(sp.diags_array(np.linspace(1, 2, 5) + 0j), x, 2, basis=basis)
    np.testing.assert_allclose(np.linspace(1, 2, 5)[:, None] * V[:, :-1], V @ basis.matrix(), rtol=1e-12)


def test_names_come_when_they_are_asked_for() -> None:
    for name in akx.krylov.__all__:
        assert getattr(akx.krylov, name) is not None
    assert Basis is akx.Basis
    text = "import sys, akx; akx.krylov; assert 'numpy' not in sys.modules; akx.krylov.orthonormalize([[1.0], [2.0]]); "
    text += "assert not {'numba', 'scipy.linalg', 'akx.solvers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
