"""The ladder of ``solve``: what each rung costs, when a method is left for it, and that every rung answers honestly."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import nonsymmetric, relative, rhs, spd

from akx.core.matrix import Matrix
from akx.solvers import Solver, SolveStats, auto, direct, ladder, solve
from akx.solvers.ladder import Ladder, Progress, steps_left


def chain(n: int, shift: float = 0.0, dtype: Any = float) -> Any:
    """The Laplacian of a line, of condition n^2."""
    A = sp.diags_array([-1.0, 2.0 + shift, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(A.astype(dtype))


def grid(n: int) -> Any:
    return sp.csr_array(sp.kronsum(chain(n), chain(n)))


def saddle(seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    B = sp.random_array((60, 300), density=0.03, rng=random) + sp.eye_array(60, 300)
    return sp.csr_array(sp.block_array([[chain(300, 0.001), B.T], [-2 * B, None]]))


@pytest.fixture(autouse=True)
def _plain(methods_first: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled."""
    monkeypatch.delenv("AKX_PREPARE")


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have only some rungs, which cost nothing."""
    made = auto.Auto._ladder

    def some(self: Any, call: Any) -> Ladder:
        found = made(self, call)
        found.left = list(names)
        return found

    monkeypatch.setattr(auto.Auto, "_ladder", some)
    monkeypatch.setattr(Ladder, "cost", lambda self, rung: 1.0)
    known = direct.Forecast(1.0, 1.0, pivots=True, degree=True)
    monkeypatch.setattr(direct, "forecast", lambda matrix: known)


# ------------------------------------------------------------------------------------------ when a method is left


def test_a_rate_says_how_many_steps_are_left() -> None:
    assert steps_left([10.0 ** (-k / 10) for k in range(41)], 1e-8) == pytest.approx(40)
    assert steps_left([1.0] * 10, 1e-8) == np.inf
    assert steps_left([1.0, 0.5, 1e-9], 1e-8) == 0
    assert steps_left([1.0, 0.0], 1e-8) == 0


def test_a_method_is_left_by_counts_and_the_sooner_the_more_it_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    found = Ladder(Matrix.from_any(spd()), definite=True)
    found.left = ["direct"]
    monkeypatch.setattr(Ladder, "cost", lambda self, rung: 100.0)
    monkeypatch.setattr(direct, "look_closer", lambda *_: pytest.fail("the order is known"))
    assert found.next_for(149, 1000) is None
    assert found.next_for(151, 12) is None
    assert found.next_for(151, 20) == "direct"
    assert found.next_for(1000, 6) == "direct"
    assert found.next_for(np.inf, 4) is None
    assert found.next_for(np.inf, 6) == "direct"


def test_the_look_is_at_residuals_alone_and_there_is_an_end() -> None:
    found = Ladder(Matrix.from_any(grid(60)), definite=True)
    watch = Progress(found, "cg", 50)
    stats = SolveStats(residuals=[1.0] * 4, iterations=3)
    assert not watch.due(stats)
    stats = SolveStats(residuals=[10.0**-k for k in range(9)], iterations=8, products=9)
    assert watch.due(stats)
    assert not watch.ends(stats, 1e-10)
    stats.products = 50
    assert watch.ends(stats, 1e-10)
    assert watch.is_spent


# ------------------------------------------------------------------------------------------------------- the rungs


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
@pytest.mark.parametrize("skew", [0.0, 0.02])
def test_a_long_line_is_factorised_and_remembered(skew: float, dtype: Any) -> None:
    A = sp.csr_array(
        (chain(2600, 1e-3) + sp.diags_array([skew, -skew], offsets=[1, -1], shape=(2600,) * 2)).astype(dtype)
    )
    b, rtol = rhs(2600, dtype), 1e-3 if dtype == np.float32 else 1e-10
    told: list[Any] = []
    x, info, stats = solve(A, b, rtol=rtol, callback=told.append, return_stats=True)
    assert (info, x.dtype) == (0, dtype)
    assert relative(A, x, b) <= 1.01 * rtol
    assert stats.products < 400
    if dtype == np.float32 and stats.method != "direct":  # to that accuracy it takes few steps
        return
    assert stats.method == "direct"
    assert re.match(r"(cg|bicgstab) \d+ steps \(.*\); direct \d+ step", stats.notes[1])
    assert told[-1].shape == (2600,)
    solver = Solver(A)
    for products in (400, 6):
        _, info, stats = solver(b, rtol=rtol, return_stats=True)
        assert (info, stats.method) == (0, "direct")
        assert stats.products <= products


@pytest.mark.parametrize(("rung", "method"), [("ilu", "gmres"), ("spai", "gmres"), ("amg", "cg"), ("direct", "direct")])
def test_every_rung_solves(rung: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rung == "amg":
        pytest.importorskip("pyamg")
    only(monkeypatch, rung)
    A, b = grid(30), rhs(900)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    x, info, stats = solve(A, b, rtol=1e-9, return_stats=True)
    assert (info, stats.method) == (0, method)
    assert relative(A, x, b) <= 1.01e-9
    assert any(f"solved by {rung}" in note for note in stats.notes)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    y, info, again = solve(A, b, rtol=1e-9, return_stats=True)
    assert (info, again.method) == (0, method)
    assert again.products < stats.products
    assert relative(A, y, b) <= 1.01e-9


def test_a_saddle_point_without_a_diagonal_is_factorised() -> None:
    A = saddle()
    b = rhs(360)
    x, info, stats = solve(A, b, rtol=1e-10, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1.01e-10
    assert stats.products < 2000


def test_a_singular_system_is_not_solved_by_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "direct", "ilu")
    A = chain(400).tolil()
    A[0, 0] = A[-1, -1] = 1  # Neumann
    A, b = sp.csr_array(A), rhs(400)
    x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
    assert (info, stats.converged) == (-2, False)
    x, info = solve(A, b - b.mean(), rtol=1e-8)
    assert info == 0
    assert relative(A, x, b - b.mean()) <= 1.01e-8


def test_one_that_fails_is_told_and_the_next_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def singular(*_: Any, **__: Any) -> None:
        raise RuntimeError("Factor is exactly singular")

    only(monkeypatch, "ilu", "direct")
    monkeypatch.setattr("scipy.sparse.linalg.spilu", singular)
    _, info, stats = solve(grid(30), rhs(900), rtol=1e-9, return_stats=True)
    assert (info, stats.method) == (0, "direct")
    assert "; no ilu (the factors are singular); " in stats.notes[1]
    assert len(stats.notes) == 3


def test_it_ends_soon_and_says_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    for module in (auto, ladder):
        monkeypatch.setattr(module, "MOST_PRODUCTS", 300)
    x, info, stats = solve(chain(3000), rhs(3000), rtol=1e-12, return_stats=True)
    assert info > 0
    assert 300 <= stats.products <= 330
    assert stats.notes[2] == "not solved: gave up after 300 products; pass maxiter= to go on, or an M"
    assert stats.reason == "gave up after 300 products; pass maxiter= to go on, or an M"
    assert stats.residual == pytest.approx(float(np.linalg.norm(rhs(3000) - chain(3000) @ x)), rel=1e-3)


def test_with_an_m_of_the_user_there_is_no_ladder() -> None:
    A = nonsymmetric()
    M = sp.linalg.aslinearoperator(sp.diags_array(1 / A.diagonal()))
    stats = solve(A, rhs(300), M=M, rtol=1e-8, return_stats=True)[2]
    assert stats.method == "bicgstab"
    assert stats.notes[1] == f"bicgstab {stats.iterations} steps"


def test_maxiter_is_steps_of_factors_too() -> None:
    for maxiter in (0, 1, 5, 60):
        _, info, stats = solve(chain(2600), rhs(2600), rtol=1e-12, maxiter=maxiter, return_stats=True)
        assert stats.iterations <= maxiter
        assert (info == 0) == stats.converged


@pytest.mark.parametrize("scale", [1e150, 1e-150, 1e-300])
def test_factors_are_of_the_callers_scale(scale: float) -> None:
    A, b = chain(2600, 1e-3), np.random.default_rng(0).standard_normal(2600)
    given = {"rtol": 1e-10, "return_stats": True, "threads": 1}
    _, info, stats = solve(A * scale, b, **given)
    assert (info, stats.method, stats.products) == (0, "direct", solve(A, b, **given)[2].products)


def test_a_solve_by_factors_that_meets_rounding_ends() -> None:
    A, b = chain(2600, 1e-6), np.random.default_rng(0).standard_normal(2600)
    assert solve(A, b, threads=1)[1] == 0
    x, info, stats = solve(A, b, rtol=1e-15, threads=1, return_stats=True)
    assert info > 0
    assert "rounding" in stats.reason
    assert stats.products < 20
    assert np.linalg.norm(b - A @ x) < 1e-10 * np.linalg.norm(b)
    zero, info = solve(A, 0 * b, 1e308 * np.ones(2600), threads=1)
    assert info == 0
    assert not zero.any()


def test_factors_are_kept_for_right_hand_sides_of_a_wider_type() -> None:
    solver, b = Solver(chain(2600, 1e-3), threads=1), np.random.default_rng(0).standard_normal(2600)
    before = solver.nbytes
    products = [solver(b * (1 + 1j), rtol=1e-10, return_stats=True)[2].products for _ in range(3)]
    assert products[0] > products[1] == products[2]
    assert solver.nbytes > before


def test_a_singular_matrix_of_which_factors_say_nothing_is_solved_or_refused_soon() -> None:
    """A grid's edges, and pairs of vertices that hang on one: columns in pairs that are multiples of each other."""
    random, n = np.random.default_rng(0), 1600
    W = sp.coo_array(abs(grid(40)) - 4 * sp.eye_array(n))
    W.data *= np.ceil(np.exp(random.normal(3, 2, W.nnz)))
    ends = np.repeat(random.choice(n, 20, replace=False), 2)
    B = sp.coo_array((np.ceil(np.exp(random.normal(5, 2, 40))), (ends, np.arange(40))), shape=(n, 40))
    A = sp.csr_array(sp.block_array([[sp.triu(W) + sp.triu(W).T, B], [B.T, None]]))
    values, vectors = np.linalg.eigh(A.toarray())
    null = vectors[:, abs(values) < 1e-13 * abs(values).max()]
    for b in (A @ rhs(n + 40), np.ones(n + 40), rhs(n + 40)):
        x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
        is_in_range = np.linalg.norm(null.T @ b) < 1e-9 * np.linalg.norm(b)
        assert info == (0 if is_in_range else -2), stats.reason
        assert stats.products < 1000
        assert relative(A, x, b) <= (1e-8 if is_in_range else 1)
        assert np.linalg.norm(x) < 1e8 * np.linalg.norm(b)
