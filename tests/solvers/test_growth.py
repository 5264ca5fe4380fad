"""An x that has blown up is never returned: the best one before is, and none worse than the first guess."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from solvers.systems import is_of_hermitian, relative, rhs, spd

from akx.solvers import SOLVERS, bicgstab, minres, solve
from akx.solvers.preconditioners import jacobi
from akx.solvers.system import make_system


def neumann(m: int) -> sp.csr_array:
    """The Laplacian of a square with no flow through its sides: singular, its null vector constant."""
    T = sp.diags_array([-np.ones(m - 1), np.r_[1, np.full(m - 2, 2.0), 1], -np.ones(m - 1)], offsets=[-1, 0, 1])
    one = sp.eye_array(m)
    return sp.csr_array(sp.kron(T, one) + sp.kron(one, T))


def rotation(m: int) -> sp.csr_array:
    """I and much that is skew-symmetric."""
    S, one = sp.diags_array([-1.0, 0.0, 1.0], offsets=[-1, 0, 1], shape=(m, m)), sp.eye_array(m)
    return sp.csr_array(sp.kron(1e4 * S, one) + sp.eye_array(m * m))


def at_random(n: int) -> sp.csr_array:
    rng = np.random.default_rng(1)
    return sp.csr_array(sp.random_array((n, n), density=4 / n, rng=rng) + 0.1 * sp.eye_array(n))


SYSTEMS = {
    "singular": (neumann(30).astype(np.float32), np.random.default_rng(0).random(900).astype(np.float32)),
    "rotation": (rotation(20), np.ones(400)),
    "random": (at_random(400), np.random.default_rng(2).random(400)),
}


@pytest.mark.parametrize("maxiter", [40, 150])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", SOLVERS)
def test_x_is_no_worse_than_the_first_guess(name: str, system: str, maxiter: int) -> None:
    A, b = SYSTEMS[system]
    options = {"restart": 10} if name.endswith("gmres") else {}
    x, info, stats = SOLVERS[name](A, b, rtol=1e-6, maxiter=maxiter, return_stats=True, **options)  # type: ignore[misc]
    if not (name.endswith("cg") and system == "singular"):  # whose error may be less all the same
        assert relative(A, x, b) <= 1 + 1e-6
    assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-3)
    assert (info == 0) == (stats.residual <= stats.target)


@pytest.mark.parametrize("name", SOLVERS)
def test_so_it_is_with_columns(name: str) -> None:
    A, b = SYSTEMS["random"]
    options = {"restart": 10} if name.endswith("gmres") else {}
    x = SOLVERS[name](A, b[:, None] * [1, 2], rtol=1e-6, maxiter=50, **options)[0]
    assert all(relative(A, x[:, j], (j + 1) * b) <= 1 + 1e-6 for j in range(2))


@pytest.mark.parametrize("name", ["minres", "ca_minres"])
@pytest.mark.parametrize("maxiter", [300])
def test_the_best_x_is_kept_where_the_recurrence_goes_down_without_it(name: str, maxiter: int) -> None:
    A = neumann(100).astype(np.float32)
    b = np.random.default_rng(0).random(10_000).astype(np.float32)
    x, _, stats = SOLVERS[name](A, b, rtol=1e-4, maxiter=maxiter, return_stats=True)  # type: ignore[misc]
    least = np.sqrt(len(b)) * b.mean() / np.linalg.norm(b)
    assert relative(A, x, b) < 1.001 * least
    assert any("had blown up" in note and "best" in note for note in stats.notes)


def test_looking_for_it_costs_a_few_products_of_a_slow_solve_and_none_of_a_usual_one() -> None:
    A, b = spd(3000), rhs(3000)
    assert minres(A, b, rtol=1e-9, return_stats=True)[2].notes == []  # type: ignore[misc]
    stats = minres(A, b, rtol=1e-9, return_stats=True)[2]  # type: ignore[misc]
    assert stats.products <= stats.iterations + 1
    values = np.geomspace(1e-5, 1, 3000)
    slow = minres(sp.csr_array(sp.diags_array(values)), b, rtol=1e-9, return_stats=True)[2]  # type: ignore[misc]
    assert slow.iterations > 500
    assert slow.products <= 1.02 * slow.iterations + 1


@pytest.mark.parametrize("name", ["cg", "ca_cg"])
@pytest.mark.parametrize("with_M", [False, True])
def test_conjugate_gradients_may_raise_the_residual_on_the_way(name: str, with_M: bool) -> None:
    """Some steps are as good as SciPy's, so that calling again from there gets on."""
    line, one = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(60, 60)), sp.eye_array(60)
    A, b = sp.csr_array(sp.kron(line, one) + sp.kron(one, line)), np.ones(3600)
    M = jacobi(A) if with_M else None
    x, info, stats = SOLVERS[name](A, b, M=M, maxiter=12, return_stats=True)  # type: ignore[misc]
    assert info == 12
    assert stats.residual > np.linalg.norm(b)
    assert not any("blown" in note for note in stats.notes)
    expected = spla.cg(A, b, M=None if M is None else sp.diags_array(1 / A.diagonal()), maxiter=12)[0]
    assert np.allclose(x, expected, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in SOLVERS if not is_of_hermitian(name)])
def test_the_first_guess_of_the_caller_is_what_is_returned(name: str) -> None:
    A, b = SYSTEMS["random"]
    x0 = spla.spsolve(sp.csc_array(A), b) * (1 + 1e-3)
    x = SOLVERS[name](A, b, x0, rtol=1e-12, maxiter=5)[0]
    assert np.linalg.norm(b - A @ x) <= np.linalg.norm(b - A @ x0) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["cg", "ca_cg", "minres", "ca_minres"])
def test_a_matrix_or_M_that_is_not_hermitian_is_named(name: str) -> None:
    A, b = SYSTEMS["random"]
    *_, info, stats = SOLVERS[name](A, b, maxiter=200, return_stats=True)
    assert info != 0
    assert stats.reason.startswith(f"A is not Hermitian, which {name} needs")
    A, b = spd(400), rhs(400)
    M = sp.csr_array(sp.triu(np.random.default_rng(3).standard_normal((400, 400))) + 20 * sp.eye_array(400))
    *_, info, stats = SOLVERS[name](A, b, M=spla.aslinearoperator(M), rtol=1e-10, maxiter=100, return_stats=True)
    assert info != 0
    assert stats.reason.startswith("M is not Hermitian")
    *_, info, stats = SOLVERS[name](A, b, rtol=1e-10, maxiter=3, M=spla.aslinearoperator(A), return_stats=True)
    assert (info, stats.reason) == (3, "the steps ran out")


def test_a_breakdown_with_the_answer_at_hand_has_converged() -> None:
    A, b = spd(400), rhs(400)
    x = spla.spsolve(sp.csc_array(A), b)
    said = {"info": -1, "reason": "breakdown: of a test", "iterations": 3, "return_stats": True}
    *_, info, stats = make_system("cg", A, b).finish(x, **said)  # type: ignore[arg-type]
    assert (info, stats.converged) == (0, True)
    assert stats.reason.startswith("converged")


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("has_solution", [True, False])
@pytest.mark.parametrize("n", [3, 4])
def test_what_an_empty_column_hides_is_a_number_too(n: int, has_solution: bool, dtype: Any) -> None:
    """Its part of x may grow beyond all range, and no residual sees that."""
    random = np.random.default_rng(n)
    for _ in range(6):
        entries = np.exp(1j * random.uniform(0, 6, n - 1))
        A = sp.csr_array(sp.diags_array([entries.astype(dtype)], offsets=[1], shape=(n, n)))
        b = random.standard_normal(n).astype(dtype)
        b = A @ b if has_solution else b
        for found in (solve, bicgstab):
            x, info = found(A, b)
            assert np.isfinite(x).all()
            assert has_solution or info != 0
