"""CA-BiCGStab: coordinates do the steps of the classic method, and it knows when they are not to be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import nonsymmetric, relative, rhs, spd

import akx
from akx.core.errors import ArgumentError, PlanError
from akx.core.io import read_matrix
from akx.solvers.bicgstab import bicgstab
from akx.solvers.bicgstab_steps import Recurrence
from akx.solvers.ca_bicgstab import Coordinates, _Blocks, ca_bicgstab, ritz_values
from akx.solvers.system import make_system


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("s", [1, 2, 4])
def test_coordinates_do_the_steps_of_the_classic_method(dtype: Any, s: int) -> None:
    A, b = nonsymmetric(120, dtype), rhs(120, dtype)
    state = Recurrence(make_system("bicgstab", A, b))
    for _ in range(3):
        assert state.step() == ""
    basis = akx.newton([1.0, 3.0, 5.0, 2.0], 2 * s, scale=2.0)
    Y = np.empty((2 * (2 * s + 1) + 1, 120), dtype=dtype)
    Y[0], Y[1], Y[-1] = state.p, state.r, state.shadow
    for j in range(2 * s):
        for i in range(2):
            Y[2 * j + 2 + i] = basis.a[j] * (A @ Y[2 * j + i]) + basis.b[j] * Y[2 * j + i]
    G = Y.conj() @ Y.T
    run = Coordinates(basis, G[:-1, :-1], G[-1, :-1], 1e8, 0.0, 0.0, 0.0)
    assert run.steps(s) == (s, "")
    x = state.x.copy()
    for _ in range(s):
        assert state.step() == ""
    size = np.linalg.norm(state.r)
    np.testing.assert_allclose(run.r @ Y[:-1], state.r, atol=1e-7 * size)
    np.testing.assert_allclose(run.p @ Y[:-1], state.p, atol=1e-7 * np.linalg.norm(state.p))
    np.testing.assert_allclose(x + run.x @ Y[:-1], state.x, atol=1e-9 * np.linalg.norm(state.x))
    np.testing.assert_allclose(run.alphas, state.alphas[3:], rtol=1e-5)
    np.testing.assert_allclose(run.betas, state.betas[3:], rtol=1e-5)
    assert run.norm == pytest.approx(size, rel=1e-6)


def test_the_coefficients_have_theritz_values() -> None:
    A, b = spd(80), rhs(80)  # of a symmetric matrix, with r~ = r: those of Lanczos
    state = Recurrence(make_system("bicgstab", A, b))
    for _ in range(5):
        assert state.step() == ""
    K = np.stack([b, *(A @ b for _ in range(4))])
    for j in range(1, 5):
        K[j] = A @ K[j - 1]
    Q = np.linalg.qr(K.T)[0]
    wanted = np.linalg.eigvalsh(Q.T @ A.toarray() @ Q)
    found = ritz_values(state.alphas, state.betas, 100.0)
    np.testing.assert_allclose(np.sort(found.real), wanted, rtol=1e-8)
    assert ritz_values(state.alphas, state.betas, 3.0).max() <= 3.0
    assert ritz_values([], [], 1.0).size == 0


@pytest.mark.parametrize("s", [2, 4, 8])
def test_as_many_steps_as_the_classic_method(s: int) -> None:
    n = 40
    line = sp.diags_array([-1.2, 2.0, -0.8], offsets=[-1, 0, 1], shape=(n, n))
    A = sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))
    b = rhs(n * n)
    _, _, classic = bicgstab(A, b, rtol=1e-8, return_stats=True)
    x, info, stats = ca_bicgstab(A, b, rtol=1e-8, s=s, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert stats.iterations <= 1.1 * classic.iterations + 1
    assert max(stats.s) == s
    ordinary = min(2 * s, 32)
    assert stats.matrix_passes <= 2 * ordinary + 1.5 * (stats.iterations - ordinary) / s + 10


def test_a_bad_basis_lowers_s_and_good_blocks_raise_it() -> None:
    A = sp.csr_array(sp.diags_array(np.r_[np.linspace(1, 2, 299), 3e3]) + sp.eye_array(300, k=1) * 0.4)
    x, info, stats = ca_bicgstab(A, rhs(300), rtol=1e-9, s=8, basis="monomial", return_stats=True)
    assert info == 0
    assert min(stats.s) < 8
    assert any("lowered" in note for note in stats.notes)
    assert relative(A, x, rhs(300)) <= 1e-9


def test_a_residual_that_went_astray_is_seen_and_cured(monkeypatch: pytest.MonkeyPatch) -> None:
    """x is spoilt once, which r knows nothing of, as rounding errors would do it."""
    original, spoilt = _Blocks._block, []

    def spoiling(self: _Blocks, steps: int) -> str:
        trouble = original(self, steps)
        if not spoilt and self.state.steps > 20:
            spoilt.append(self.state.steps)
            self.state.x[::7] *= 1 + 1e-5
        return trouble

    monkeypatch.setattr(_Blocks, "_block", spoiling)
    n = 60
    line = sp.diags_array([-1.3, 2.0, -0.7], offsets=[-1, 0, 1], shape=(n, n))
    A = sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))
    b = rhs(n * n)
    x, info, stats = ca_bicgstab(A, b, rtol=1e-10, s=4, return_stats=True)
    assert spoilt
    assert info == 0
    assert any("begun again, as the true residual was" in note for note in stats.notes)
    assert relative(A, x, b) <= 1e-10


def test_plans() -> None:
    A, b = nonsymmetric(), rhs(300)
    plan = akx.MatrixPowers(A, 6, basis="newton").plan
    _, info, stats = ca_bicgstab(A, b, rtol=1e-10, plan=plan, return_stats=True)
    assert info == 0
    assert set(stats.s) == {3}
    with pytest.raises(PlanError, match="2 s"):
        ca_bicgstab(A, b, s=4, plan=plan)
    with pytest.raises(ArgumentError, match=r"s is out of range[\s\S]*1 \.\. 15"):
        ca_bicgstab(A, b, s=16)
    _, info, stats = ca_bicgstab(A, b, rtol=1e-10, s=15, return_stats=True)
    assert info == 0
    assert max(stats.s, default=0) <= 15
    with pytest.raises(ArgumentError, match="s is out of range"):
        ca_bicgstab(A, b, s=-1)


@pytest.mark.parametrize("s", [4, 8])
@pytest.mark.parametrize("name", ["cage10", "pde900", "sherman4", "662_bus"])
def test_real_matrices(shared_matrices: Path, name: str, s: int) -> None:
    path = next(shared_matrices.glob(f"{name}.*"))
    A = sp.csr_array(read_matrix(path))
    A = sp.csr_array(A @ sp.diags_array(1 / A.diagonal()))
    b = A @ np.ones(A.shape[0])
    _, info, classic = bicgstab(A, b, rtol=1e-8, return_stats=True)
    assert info == 0
    x, info, stats = ca_bicgstab(A, b, rtol=1e-8, s=s, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert stats.iterations <= 1.15 * classic.iterations + 1


def test_blocks_that_break_down_give_way_to_ordinary_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinates, "steps", lambda self, most: (0, "rho"))
    A, b = nonsymmetric(), rhs(300)
    x, info, stats = ca_bicgstab(A, b, s=2, rtol=1e-12, return_stats=True)
    assert info == 0, stats.reason
    assert relative(A, x, b) <= 1e-12
    assert stats.iterations > 4 + 32, "one breakdown is not enough"
