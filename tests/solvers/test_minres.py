"""MINRES against SciPy's and dense algebra: indefinite, singular, complex and preconditioned systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from solvers.systems import relative, rhs

from akx.core.errors import ArgumentError
from akx.solvers import SOLVERS, auto, minres, solve
from akx.solvers.preconditioners import jacobi
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
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self, call: None)  # which has a direct solve for small systems
    b = rhs(900)
    for A, first in ((grid(30, 0.5), "cg"), (grid(30, 4.1), "minres"), (grid(30, 0.5, complex), "cg")):
        x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
        assert (info, stats.method) == (0, "minres")
        assert relative(A, x, b) <= 1e-8
        assert stats.notes[1].startswith(f"{first} ")
        assert stats.products <= minres(A, b, rtol=1e-8, return_stats=True)[2].products + 100


# ------------------------------------------------------------------------------------------------- skew-symmetric


def chain(n: int, shift: float = 0.0, dtype: Any = float) -> sp.csr_array:
    """tridiag(-1, shift, 1)."""
    A = sp.diags_array([-1.0, 1.0], offsets=[-1, 1], shape=(n, n))
    return sp.csr_array((A + shift * sp.eye_array(n) if shift else A).astype(dtype))


def rotation(m: int, seed: int = 0) -> sp.csr_array:
    """Skew-symmetric with random values on a grid, regular."""
    values = np.random.default_rng(seed).uniform(0.5, 1.5, m * m)
    step = sp.kron(sp.eye_array(m, k=1), sp.eye_array(m)) + 3 * sp.kron(sp.eye_array(m), sp.eye_array(m, k=1))
    upper = sp.csr_array(sp.diags_array(values) @ step)
    return sp.csr_array(upper - upper.T)


@pytest.mark.parametrize("name", ["minres", "ca_minres"])
@pytest.mark.parametrize("shift", [0.0, 2.0, -2.0])
@pytest.mark.parametrize("make", [chain, rotation])
def test_skew_symmetric_but_for_a_multiple_of_the_identity(name: str, make: Any, shift: float) -> None:
    A = make(200 if make is chain else 12)
    n = A.shape[0]
    A, b = sp.csr_array(A + shift * sp.eye_array(n)) if shift else A, rhs(n)
    x, info, stats = SOLVERS[name](A, b, rtol=1e-9, return_stats=True)
    assert (info, x.dtype) == (0, np.float64)
    assert relative(A, x, b) <= 1e-9
    exact = np.linalg.solve(A.toarray(), b)
    np.testing.assert_allclose(x, exact, atol=1e-9 * np.linalg.cond(A.toarray()) * np.abs(exact).max())
    assert (np.diff(stats.residuals[:-1]) <= 0).all()
    if shift:  # of all methods it has the least residual after each step, as that of full gmres
        theirs: list[float] = []
        sla.gmres(A, b, restart=n, rtol=1e-9, maxiter=1, callback=theirs.append, callback_type="pr_norm")
        assert stats.iterations <= len(theirs) + 3
    else:
        other = minres(sp.csr_array(1j * A), 1j * b, rtol=1e-9, return_stats=True)[2]
        assert stats.iterations <= 1.05 * other.iterations + 2


def test_a_preconditioner_of_a_skew_symmetric_one() -> None:
    scale = sp.diags_array(10.0 ** np.random.default_rng(1).uniform(-2, 2, 400))
    A, b = sp.csr_array(scale @ rotation(20) @ scale), rhs(400)
    M = sp.csr_array(sp.diags_array(1 / scale.diagonal() ** 2))
    said = minres(A, b, rtol=1e-8, maxiter=2000)[1]
    x, info, stats = minres(A, b, M=M, rtol=1e-8, maxiter=2000, return_stats=True)
    assert (info, said) == (0, 2000)
    assert relative(A, x, b) <= 1e-8
    assert stats.residuals[-1] == pytest.approx(stats.residuals[-2], rel=0.1)
    x, info, stats = solve(A, b, rtol=1e-8, M=M, return_stats=True)  # a positive diagonal, as it shows
    assert (info, stats.method) == (0, "minres")
    assert relative(A, x, b) <= 1e-8
    x, info, stats = solve(A, b, rtol=1e-8, M=sla.aslinearoperator(M), return_stats=True)  # of which nothing is known
    assert "not known to be skew-symmetric" in " ".join(stats.notes)
    assert (info == 0) == (relative(A, x, b) <= 1e-8)


@pytest.mark.parametrize("name", ["minres", "ca_minres"])
def test_a_shifted_skew_symmetric_one_takes_no_preconditioner(name: str) -> None:
    A, b = chain(200, 0.5), rhs(200)
    M = sla.LinearOperator(A.shape, matvec=lambda r: 2 * r, dtype=float)
    for one in (M, -2 * sp.eye_array(200)):
        with pytest.raises(ArgumentError, match="gmres and bicgstab take it"):
            SOLVERS[name](A, b, M=one)


def test_nor_one_that_would_be_made_part_of_it() -> None:
    A, b = chain(200, 0.5), rhs(200)
    M = sp.diags_array(np.linspace(0.5, 2, 200))
    for one in (sp.csr_array(M), jacobi(sp.csr_array(M))):
        for name in ("minres", "ca_minres"):
            with pytest.raises(ArgumentError, match="skew-symmetric but for a multiple of I"):
                SOLVERS[name](A, b, M=one)


@pytest.mark.parametrize("name", ["minres", "ca_minres"])
@pytest.mark.parametrize("M", ["jacobi", 2 * sp.eye_array(200, format="csr")])
def test_but_a_multiple_of_the_identity_leaves_it_as_it_is(name: str, M: Any) -> None:
    A, b = chain(200, 0.5), rhs(200)
    x, info = SOLVERS[name](A, b, M=M)
    assert info == 0
    assert relative(A, x, b) <= 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", [minres, SOLVERS["ca_minres"], solve])
def test_a_skew_symmetric_one_of_odd_order_is_singular(how: Any, dtype: Any) -> None:
    A, rtol = chain(201, dtype=dtype), 1e-4 if dtype == np.float32 else 1e-8
    null = (np.arange(201) % 2 == 0).astype(dtype)
    assert not (A @ null).any()
    x, info = how(A, A @ rhs(201, dtype), rtol=rtol)
    assert info == 0
    assert relative(A, x, A @ rhs(201, dtype)) <= 1.01 * rtol
    x, info, stats = how(A, rhs(201, dtype), rtol=rtol, return_stats=True)
    assert info == NO_SOLUTION
    assert np.isfinite(x).all()
    assert stats.products < 1000


@pytest.mark.usefixtures("methods_first")
def test_solve_takes_it_for_skew_symmetric_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self, call: None)
    b = rhs(200)
    for A, most in ((chain(200), 201), (chain(200, 0.3), 130), (1e200 * chain(200), 203), (1e-200 * chain(200), 203)):
        x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
        assert (info, stats.method) == (0, "minres")
        assert relative(A / abs(A).max(), x * abs(A).max(), b) <= 1.01e-8
        assert stats.products <= most
        assert any("A is skew-symmetric" in note for note in stats.notes)


@pytest.mark.parametrize("name", ["minres", "ca_minres"])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_x_is_that_of_the_last_step_where_the_steps_run_out(name: str, steps: int) -> None:
    A = sp.diags_array([-1.0, 0.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300), format="csr")
    b = np.random.default_rng(2).standard_normal(300)
    x, info, stats = SOLVERS[name](A, b, rtol=1e-12, maxiter=steps, return_stats=True)
    assert info == stats.iterations == steps
    assert np.linalg.norm(b - A @ x) == pytest.approx(stats.residuals[-2], rel=1e-6)
    assert stats.residuals[-2] < stats.residuals[0]
