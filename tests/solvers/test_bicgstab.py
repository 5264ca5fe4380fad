"""BiCGStab: the steps are SciPy's, breakdowns are named, and a residual that has gone astray is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from solvers.systems import nonsymmetric, relative, rhs

from akx.core.io import read_matrix
from akx.solvers.bicgstab import bicgstab
from akx.solvers.bicgstab_steps import Recurrence
from akx.solvers.system import make_system


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_the_steps_are_scipys(dtype: Any, preconditioned: bool) -> None:
    A, b = nonsymmetric(200, dtype), rhs(200, dtype)
    M = sp.csr_array(sp.diags_array(1 / (1 + np.abs(np.sin(np.arange(200)))))) if preconditioned else None
    theirs: list[Any] = []
    ours: list[Any] = []
    sla.bicgstab(A, b, rtol=1e-8, M=M, callback=lambda x: theirs.append(x.copy()))
    _, info, stats = bicgstab(A, b, rtol=1e-8, M=M, callback=lambda x: ours.append(x.copy()), return_stats=True)
    assert info == 0
    assert abs(len(ours) - len(theirs)) <= 1  # SciPy does not count a half step, and looks for convergence a step later
    for x, y in zip(ours[:10], theirs[:10], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())
    assert len(stats.residuals) == stats.iterations + 2  # of x0, after each step, and the true one
    assert stats.products <= 2 * stats.iterations + 2


def test_the_recurrence_keeps_r_equal_to_the_residual() -> None:
    A, b = nonsymmetric(100), rhs(100)
    state = Recurrence(make_system("bicgstab", A, b, rhs(100, seed=5)))
    for _ in range(6):
        assert state.step() == ""
        np.testing.assert_allclose(state.r, b - A @ state.x, atol=1e-12 * np.linalg.norm(b))
        assert state.norm == pytest.approx(np.linalg.norm(state.r))
        assert state.rho == pytest.approx(np.vdot(state.shadow, state.r), rel=1e-6, abs=1e-12)


def test_a_vanishing_product_with_the_shadow_residual_is_survived() -> None:
    # (r~, A r~) = 0 for r~ = b, but not for others.
    A = sp.csr_array(np.array([[0.0, 1.0, 0.0], [-1.0, 2.0, 0.3], [0.0, 0.0, 1.0]]))
    b = np.array([1.0, 0.0, 0.0])
    assert b @ (A @ b) == 0
    x, info, stats = bicgstab(A, b, rtol=1e-10, return_stats=True)
    assert info == 0
    np.testing.assert_allclose(A @ x, b, atol=1e-10)
    assert any("orthogonal" in note for note in stats.notes)


def test_a_breakdown_without_cure_has_a_name_and_scipys_code() -> None:
    A = sp.csr_array(np.array([[0.0, 1.0], [-1.0, 0.0]]))  # (A s, s) = 0 for every s
    x, info, stats = bicgstab(sp.csr_array(sp.kron(sp.eye_array(9), A)), rhs(18), rtol=1e-10, return_stats=True)
    if info != 0:
        assert info in (-10, -11)
        assert "breakdown" in stats.reason
    A = sp.csr_array((2, 2))
    x, info, stats = bicgstab(A, np.ones(2), return_stats=True)
    assert info == -2
    assert "it has no solution" in stats.reason
    assert not x.any()


def test_a_false_convergence_is_seen_and_cured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that is wrong for a while leaves r astray: the true residual must be what decides."""
    from akx.solvers.system import System

    A, b = nonsymmetric(150), rhs(150)
    product, calls = System.product_in, 0

    def wrong(self: System, V: Any, j: int) -> None:
        nonlocal calls
        product(self, V, j)
        calls += 1
        if calls == 9:
            V[j + 1] *= 1 + 1e-4

    monkeypatch.setattr(System, "product_in", wrong)
    x, info, stats = bicgstab(A, b, rtol=1e-10, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-10
    assert any("true residual" in note for note in stats.notes)


def test_overflow_is_named() -> None:
    M = 1e300 * sp.eye_array(50)
    x, info, stats = bicgstab(nonsymmetric(50), rhs(50), M=M, return_stats=True)
    assert info == -12
    assert "finite" in stats.reason
    assert np.isfinite(x).all()


@pytest.mark.parametrize("name", ["cage10", "pde900", "helmholtz_2D", "662_bus"])
def test_real_matrices(shared_matrices: Path, name: str) -> None:
    path = next(shared_matrices.glob(f"{name}.*"))
    A = sp.csr_array(read_matrix(path))
    b = A @ np.ones(A.shape[0])
    count = 0

    def each(_: Any) -> None:
        nonlocal count
        count += 1

    assert sla.bicgstab(A, b, rtol=1e-8, callback=each)[1] == 0
    x, info, stats = bicgstab(A, b, rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert stats.iterations <= 1.25 * count + 2  # the steps are chaotic once rounding errors count
