"""Communication-avoiding MINRES: the steps of the classic method, and errors that are handed on."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import relative, rhs
from solvers.test_minres import grid, scattered

from akx.core.basis import chebyshev
from akx.solvers import ca_minres, minres, solve
from akx.solvers.ca_minres_block import lanczos_block
from akx.solvers.preconditioners import jacobi
from akx.solvers.stopping import NO_SOLUTION

SYSTEMS = {
    "shifted Laplacian": grid(30, 0.5),
    "in the midst": grid(24, 3.7),
    "scattered": scattered(600),
    "complex": grid(24, 1.3, complex),
}


@pytest.mark.parametrize("s", [4, 8])
@pytest.mark.parametrize("name", SYSTEMS)
def test_takes_the_steps_of_minres(name: str, s: int) -> None:
    A = SYSTEMS[name]
    b = rhs(A.shape[0], A.dtype)
    _, _, classic = minres(A, b, rtol=1e-8, return_stats=True)
    x, info, stats = ca_minres(A, b, rtol=1e-8, s=s, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert stats.iterations <= 1.12 * classic.iterations + s
    assert stats.matrix_passes <= stats.iterations / (0.6 * s) + 2 * s
    assert (np.diff(stats.residuals[:-1]) <= 0).all()


def test_with_outliers_and_in_single_precision_it_gets_there() -> None:
    A = sp.csr_array(sp.diags_array(np.r_[-np.geomspace(1, 1000, 20), np.linspace(0.5, 3, 1000)]))
    x, info = ca_minres(A, rhs(1020), rtol=1e-10, s=8)
    assert info == 0
    assert relative(A, x, rhs(1020)) <= 1e-10
    A, b = grid(24, 0.5).astype(np.float32), rhs(576, np.float32)
    x, info, stats = ca_minres(A, b, rtol=1e-4, s=4, return_stats=True)
    assert (info, x.dtype) == (0, np.float32)
    assert relative(A, x, b) <= 1.01e-4
    assert stats.iterations <= 1.3 * minres(A, b, rtol=1e-4, return_stats=True)[2].iterations


def test_singular_systems_with_and_without_a_solution() -> None:
    A, b = grid(20, 2.0), rhs(400)
    x, info = ca_minres(A, A @ b, rtol=1e-8)
    assert info == 0
    assert relative(A, x, A @ b) <= 1e-8
    x, info = ca_minres(A, b, rtol=1e-8)
    assert info == NO_SOLUTION
    assert np.linalg.norm(x) < 1e3


def lanczos(A: Any, q: Any, steps: int) -> tuple[Any, list[float], list[float]]:
    """Vectors and T, by the plain recurrences."""
    Q, alphas, betas = [q / np.linalg.norm(q)], list[float](), list[float]()
    for _ in range(steps):
        u = A @ Q[-1] - (betas[-1] * Q[-2] if betas else 0)
        alphas.append(float(np.vdot(Q[-1], u).real))
        u -= alphas[-1] * Q[-1]
        betas.append(float(np.linalg.norm(u)))
        Q.append(u / betas[-1])
    return np.array(Q), alphas, betas


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("before", [0, 2, 5])
def test_a_block_in_coordinates_is_the_process_itself(before: int, dtype: Any) -> None:
    A, s = grid(12, 0.5, dtype), 4
    Q, alphas, betas = lanczos(A, rhs(144, dtype), before + s)
    h = min(before, s) + 1
    basis = chebyshev(s, (-0.5, 7.5))
    V = [Q[before]]
    for a, b, c in zip(basis.a, basis.b, basis.c, strict=True):
        V.append(a * (A @ V[-1]) + b * V[-1] + (c * V[-2] if len(V) > 1 else 0))
    Z = np.concatenate([Q[before + 1 - h : before + 1], V[1:]])
    known = (np.array(part[before - h + 1 : before]) for part in (alphas, betas))
    K = np.diag(np.arange(1.0, h))
    found = lanczos_block(Z.conj() @ Z.T, basis.matrix(), *known, K, eps=1e-16, most=np.inf)
    np.testing.assert_allclose(found.alphas, alphas[before:], atol=1e-12)
    np.testing.assert_allclose(found.betas, betas[before:], atol=1e-12)
    np.testing.assert_allclose(found.vectors @ Z, Q[before:], atol=1e-12)
    # errors that columns of T have, as they are handed on
    C = np.concatenate([np.eye(h - 1), found.vectors[:-1, : h - 1]])
    np.testing.assert_allclose(found.errors, C @ K @ C.conj().T, atol=1e-12)
    assert not found.is_worn
    if h > 2:
        limit = np.sqrt(np.abs(np.diagonal(found.errors))[h - 1 :].max()) * 0.99
        known = (np.array(part[before - h + 1 : before]) for part in (alphas, betas))
        worn = lanczos_block(Z.conj() @ Z.T, basis.matrix(), *known, K, eps=1e-16, most=limit)
        assert worn.is_worn
        assert 0 < len(worn.alphas) < s


def test_blocks_go_on_after_ordinary_steps_where_errors_have_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["akx.solvers.ca_minres"]
    monkeypatch.setattr(module, "_WRONG", 2e-3)
    A, b = grid(24, 3.7), rhs(576)
    x, info, stats = ca_minres(A, b, rtol=1e-8, s=4, return_stats=True)
    _, _, classic = minres(A, b, rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert len(stats.s) > 20
    assert stats.iterations / stats.matrix_passes < 3.8
    assert stats.iterations <= 1.1 * classic.iterations


def test_a_diagonal_is_made_part_of_the_matrix() -> None:
    scale = sp.diags_array(10.0 ** np.random.default_rng(1).uniform(-2, 2, 900))
    A, b = sp.csr_array(scale @ grid(30, 0.5) @ scale), rhs(900)
    x, info, stats = ca_minres(A, b, M=jacobi(A), rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert stats.iterations < 1000
    assert max(stats.s) == 4
    x, info, stats = solve(A, b, method="ca_minres", M=jacobi(A), rtol=1e-8, return_stats=True)
    assert (info, stats.method) == (0, "ca_minres")
