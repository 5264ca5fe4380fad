"""MINRES against SciPy's and dense algebra: indefinite, singular, complex and preconditioned systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from solvers.systems import relative, rhs

from akx.solvers import SOLVERS, auto, minres, solve
from akx.solvers.stopping import NO_SOLUTION


def grid(m: int, shift: float, dtype: Any = float) -> sp.csr_array:
    """A five-point Laplacian less shift I; complex by a phase for each point."""
    line, one = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m)), sp.eye_array(m)
    A = sp.kron(line, one) + sp.kron(one, line) - shift * sp.eye_array(m * m)
    if np.dtype(dtype).kind == "c":
        turn = sp.diags_array(np.exp(1j * np.arange(m * m)))
        A = turn @ A @ turn.conj()
    return sp.csr_array(A.astype(dtype))


def scattered(n: int, seed: int = 0) -> sp.csr_array:
    """Random, symmetric, most eigenvalues positive and some negative, as in calculations of electrons."""
    random = np.random.default_rng(seed)
    upper = sp.random_array((n, n), density=8 / n, rng=random, data_sampler=random.standard_normal)
    return sp.csr_array(upper + upper.T + sp.diags_array(np.linspace(-1.0, 15.0, n)))


def products_of_scipy(A: Any, b: Any, rtol: float) -> int:
    """Those after which the residual of SciPy's minres is small enough."""
    norms: list[float] = []
    limit = rtol * np.linalg.norm(b)
    sla.minres(A, b, rtol=1e-15, maxiter=3000, callback=lambda x: norms.append(float(np.linalg.norm(b - A @ x))))
    return 1 + int(np.argmax(np.array(norms) <= limit))


SYSTEMS = {
    "shifted Laplacian": grid(30, 0.5),
    "further inside": grid(30, 1.3),
    "scattered": scattered(600),
    "plus and minus": sp.csr_array(sp.diags_array(np.r_[-np.linspace(1, 9, 150), np.linspace(2, 7, 150)])),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_takes_the_products_of_scipy(name: str) -> None:
    A = SYSTEMS[name]
    b = rhs(A.shape[0])
    theirs = products_of_scipy(A, b, 1e-8)
    x, info, stats = minres(A, b, rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    assert stats.products <= 1.05 * theirs + 3
    np.testing.assert_allclose(x, np.linalg.solve(A.toarray(), b), atol=1e-5 * np.abs(x).max())
    assert (np.diff(stats.residuals[:-1]) <= 0).all()  # minimal ones


def test_a_hermitian_one_takes_the_steps_of_the_real_one_it_is_similar_to() -> None:
    b = rhs(900)
    turn = np.exp(1j * np.arange(900))
    _, _, real = minres(grid(30, 0.5), b, rtol=1e-8, return_stats=True)
    A = grid(30, 0.5, complex)
    x, info, stats = minres(A, turn * b, rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, x, turn * b) <= 1e-8
    assert stats.iterations == pytest.approx(real.iterations, rel=0.05)


@pytest.mark.parametrize("form", ["sparse", "operator"])
def test_a_preconditioner_for_what_is_badly_scaled(form: str) -> None:
    scale = sp.diags_array(10.0 ** np.random.default_rng(1).uniform(-2, 2, 900))
    A, b = sp.csr_array(scale @ grid(30, 0.5) @ scale), rhs(900)
    M = sp.csr_array(sp.diags_array(1 / np.abs(A.diagonal())))
    said = minres(A, b, rtol=1e-8, maxiter=2000)[1]
    x, info, stats = minres(A, b, M=M if form == "sparse" else sla.aslinearoperator(M), rtol=1e-8, return_stats=True)
    assert (info, said) == (0, 2000)
    assert relative(A, x, b) <= 1e-8
    assert stats.iterations < 700
    assert stats.residuals[-1] == pytest.approx(stats.residuals[-2], rel=0.1)  # they are those of A x = b, not of M


def test_a_preconditioner_that_is_not_definite_is_a_breakdown() -> None:
    A = grid(10, 0.5)
    x, info, stats = minres(A, rhs(100), M=sp.diags_array(np.r_[-np.ones(50), np.ones(50)]), return_stats=True)
    assert info == -1
    assert "M is not positive definite" in stats.reason
    assert np.isfinite(x).all()


def test_steps_have_the_same_bits_whoever_asks_for_x() -> None:
    A, b = grid(20, 0.5), rhs(400)
    seen: list[Any] = []
    x, _, stats = minres(A, b, rtol=1e-9, return_stats=True)
    y, _, others = minres(A, b, rtol=1e-9, return_stats=True, callback=seen.append)
    assert np.array_equal(x, y)
    assert stats.residuals == others.residuals
    assert np.array_equal(seen[-1], x)
    found = [np.linalg.norm(b - A @ one) for one in seen]
    np.testing.assert_allclose(found, stats.residuals[1:-1], rtol=1e-3, atol=1e-12)


def test_singular_systems_with_and_without_a_solution() -> None:
    """cos a + cos b = 1 for a = b = 60 degrees: an eigenvalue in the midst of the others is zero."""
    A = grid(20, 2.0)
    b = rhs(400)
    x, info = minres(A, A @ b, rtol=1e-8)
    assert info == 0
    assert relative(A, x, A @ b) <= 1e-8
    x, info, stats = minres(A, b, rtol=1e-8, return_stats=True)
    assert info == NO_SOLUTION
    wave = np.sin(np.pi / 3 * np.arange(1, 21))
    null = np.kron(wave, wave) / (wave @ wave)
    assert np.linalg.norm(A @ null) < 1e-12
    assert np.linalg.norm(b - A @ x) >= 0.999 * abs(null @ b)
    assert np.linalg.norm(x) < 1e3
    assert stats.products < 1000


def test_a_residual_that_is_orthogonal_to_its_image() -> None:
    """<r, A r> = 0 at first, where conjugate residuals break down."""
    A = sp.csr_array(sp.diags_array(np.r_[-np.ones(5), np.ones(5)]))
    x, info, stats = minres(A, np.ones(10), rtol=1e-12, return_stats=True)
    assert (info, stats.iterations) == (0, 2)
    np.testing.assert_allclose(x, A.diagonal())


def test_solve_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self: None)  # which has a direct solve for small systems
    b = rhs(900)
    for A, first in ((grid(30, 0.5), "cg"), (grid(30, 4.1), "minres"), (grid(30, 0.5, complex), "cg")):
        x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
        assert (info, stats.method) == (0, "minres")
        assert relative(A, x, b) <= 1e-8
        assert f"auto: {first}, " in " ".join(stats.notes)
        assert stats.products <= minres(A, b, rtol=1e-8, return_stats=True)[2].products + 100


@pytest.mark.parametrize("name", ["minres", "ca_minres"])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_x_is_that_of_the_last_step_where_the_steps_run_out(name: str, steps: int) -> None:
    A = sp.diags_array([-1.0, 0.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300), format="csr")
    b = np.random.default_rng(2).standard_normal(300)
    x, info, stats = SOLVERS[name](A, b, rtol=1e-12, maxiter=steps, return_stats=True)
    assert info == stats.iterations == steps
    assert np.linalg.norm(b - A @ x) == pytest.approx(stats.residuals[-2], rel=1e-6)
    assert stats.residuals[-2] < stats.residuals[0]
