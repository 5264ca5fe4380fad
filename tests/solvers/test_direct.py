"""The direct rung of ``solve``: what is known of factors before they are made, and that quick ones are first."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import nonsymmetric, relative, rhs, spd
from solvers.test_ladder import chain, grid, saddle

from akx.core.matrix import Matrix
from akx.solvers import direct, ladder, singular, solve
from akx.solvers.ladder import Ladder


def shuffled(A: Any, seed: int = 0) -> Any:
    """Rows and columns in another order, the same for both."""
    order = np.random.default_rng(seed).permutation(A.shape[0])
    return sp.csr_array(sp.csr_array(A[order])[:, order])


def moved(A: Any, seed: int = 0) -> Any:
    """Rows in another order than columns: no diagonal to speak of."""
    return sp.csr_array(A[np.random.default_rng(seed).permutation(A.shape[0])])


def graph(n: int, degree: int) -> Any:
    """Random entries: no order has little fill."""
    random = np.random.default_rng(1)
    return sp.csr_array(sp.random_array((n, n), density=degree / n, rng=random) + 4 * sp.eye_array(n))


LOOKS: dict[str, tuple[Any, bool, bool]] = {  # whether the diagonal is safe, and whether minimum degree suits
    "line": (lambda: chain(3000), True, True),
    "small grid": (lambda: grid(20), True, True),
    "grid": (lambda: grid(90), True, True),
    "shuffled grid": (lambda: shuffled(grid(60)), True, True),
    "moved line": (lambda: moved(chain(900, 1.0)), False, False),
    "moved grid": (lambda: moved(grid(40)), False, False),
    "saddle": (saddle, False, False),
    "random": (lambda: graph(900, 4), True, False),
    "long row": (lambda: sp.csr_array(chain(2000) + sp.csr_array(np.eye(1, 2000).T @ np.ones((1, 2000)))), True, False),
}


@pytest.mark.parametrize("name", LOOKS)
def test_the_fill_is_what_was_forecast(name: str) -> None:
    make, pivots, degree = LOOKS[name]
    matrix = Matrix.from_any(make())
    first = direct.forecast(matrix)
    assert first.next > 0
    found = direct.foreseen(matrix, None)
    assert (found.pivots, found.degree, found.next) == (pivots, degree, 0)
    factors = direct.factors_of(matrix.to_scipy(), found)
    assert factors is not None
    if found.order is not None:
        least = 0.5 if name == "random" else 0.95  # the pattern of A + A^T is more than that of A
        most = 2.0 if name == "long row" else 1.05  # its supernodes hold zeros
        assert least * found.fill <= factors.lu.nnz <= most * found.fill + matrix.n
    assert factors.lu.nnz <= 3 * found.fill + 2 * matrix.n
    assert direct.forecast(matrix) is found
    assert direct.look_closer(matrix.with_values(2 * matrix.data), None).fill == found.fill
    x = rhs(matrix.n)
    assert relative(matrix.to_scipy(), factors.solve(matrix.to_scipy() @ x), matrix.to_scipy() @ x) <= 1e-8


def test_the_fill_of_an_order_is_that_of_a_factorisation_of_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    A = grid(17).toarray()
    order = np.random.default_rng(0).permutation(len(A))
    L = np.linalg.cholesky(A[np.ix_(order, order)] + np.eye(len(A)))
    G = sp.csr_array(A - np.diag(A.diagonal()))
    for loaded in (False, True):
        monkeypatch.setattr(direct, "is_loaded", lambda loaded=loaded: loaded)
        counts = direct._column_counts(G.indptr, G.indices, order, 1e9)
        np.testing.assert_array_equal(counts, np.count_nonzero(L, axis=0))
        assert direct._column_counts(G.indptr, G.indices, order, 100).sum() > 100


def test_minimum_degree_fills_a_grid_about_as_nested_dissection_does() -> None:
    A = shuffled(grid(50))
    pointer, columns = A.indptr, A.indices
    by_degree, dissected = (
        direct._column_counts(pointer, columns, order, 1e9).sum()
        for order in (direct._by_superlu(pointer, columns, "MMD_AT_PLUS_A"), direct._dissected(pointer, columns))
    )
    assert by_degree <= 1.2 * dissected


def test_what_would_run_away_is_out_of_the_question() -> None:
    found = direct.foreseen(Matrix.from_any(graph(1500, 15)), None)
    assert found.flops > 1e8
    assert direct.Forecast(1e9, 1e9).seconds == direct.Forecast(1e6, 1e13).seconds == np.inf


def test_what_is_wide_is_not_for_minimum_degree_however_many_rows_there_are() -> None:
    """Of random graphs of 100,000 rows it takes ten times as long as METIS, though none is wider than its share."""
    random, n = np.random.default_rng(0), 18_000
    follows = [np.roll(cycle, 1)[np.argsort(cycle)] for cycle in (random.permutation(n), random.permutation(n))]
    rows, columns = np.tile(np.arange(n), 2), np.concatenate(follows)
    A = sp.csr_array((np.ones(2 * n), (rows, columns)), shape=(n, n))
    found = direct.look_closer(Matrix.from_any(sp.csr_array(A + A.T + 5 * sp.eye_array(n))), None)
    assert found.pivots
    assert found.width > direct._MANY
    assert not found.degree


def test_a_long_row_fills_little_where_some_of_the_diagonal_is_zero() -> None:
    """As of a circuit: COLAMD would fill it all."""
    random, n = np.random.default_rng(0), 4000
    long = sp.csr_array((np.ones(3000), (np.full(3000, 7), random.permutation(n)[:3000])), shape=(n, n))
    diagonal = np.where(random.random(n) < 0.04, 0.0, 3.0)
    A = sp.csr_array(chain(n) + long + long.T + sp.diags_array(diagonal - 2.0))
    matrix = Matrix.from_any(A)
    found = direct.foreseen(matrix, None)
    assert (found.pivots, found.degree) == (True, False)
    assert direct._KEY not in matrix.pattern_cache  # for other values it may be no good
    factors = direct.factors_of(matrix.to_scipy(), found)
    assert factors is not None
    assert factors.lu.nnz <= found.times * found.fill <= 1e6
    assert relative(A, factors.solve(A @ rhs(n)), A @ rhs(n)) <= 1e-8


def test_a_scaled_diagonal_may_be_safe_where_that_of_a_is_not() -> None:
    A = grid(30)
    scale = 10.0 ** np.random.default_rng(0).uniform(-3, 3, 900)
    matrix = Matrix.from_any(sp.csr_array(sp.diags_array(1 / scale) @ A @ sp.diags_array(1 / scale)))
    assert direct._strong(matrix, scale).all()
    assert not direct._strong(matrix, None).all()
    assert not direct._strong(Matrix.from_any(moved(A)), None).all()


# ------------------------------------------------------------------------------------------------ before any method


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
@pytest.mark.parametrize("make", [spd, nonsymmetric], ids=["hermitian", "other"])
def test_a_small_system_is_factorised_at_once(make: Any, dtype: Any) -> None:
    A, b, rtol = make(300, dtype), rhs(300, dtype), 1e-4 if dtype == np.float32 else 1e-10
    x, info, stats = solve(A, b, rtol=rtol, return_stats=True)
    assert (info, stats.method, x.dtype) == (0, "direct", dtype)
    assert stats.products <= 4
    assert any("no dearer than a few steps" in note for note in stats.notes)
    assert relative(A, x, b) <= 1.01 * rtol
    assert solve(A, b, rtol=rtol, maxiter=0)[1] > 0


@pytest.mark.parametrize("make", [lambda: grid(150), lambda: graph(2000, 8)], ids=["large", "random"])
def test_what_takes_long_to_factorise_or_to_find_out_is_not(make: Any) -> None:
    found = Ladder(Matrix.from_any(make()), definite=True)
    assert not found.is_done_in_a_blink("cg")
    notes = solve(make(), rhs(make().shape[0]), return_stats=True)[2].notes  # type: ignore[misc]
    assert not any("no dearer than a few steps" in note for note in notes)


def test_a_solution_beyond_the_range_of_its_type_is_none() -> None:
    A = sp.csr_array(sp.eye_array(150) - 2 * sp.eye_array(150, k=-1), dtype=np.float32)  # x_i = 2^i
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, info = solve(A, np.eye(1, 150, dtype=np.float32)[0])
    assert info != 0
    assert np.isfinite(x).all()


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_matrix_without_entries_has_no_solution(n: int) -> None:
    x, info = solve(sp.csr_array((n, n)), np.ones(n))
    assert info == -2
    assert not x.any()


def test_a_small_singular_system_is_left_to_the_methods() -> None:
    A = chain(400).tolil()
    A[0, 0] = A[-1, -1] = 1  # Neumann
    A, b = sp.csr_array(A), rhs(400)
    assert solve(A, b, rtol=1e-8)[1] == -2
    x, info = solve(A, b - b.mean(), rtol=1e-8)
    assert info == 0
    assert relative(A, x, b - b.mean()) <= 1.01e-8


def test_many_columns_share_what_factors_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = grid(60), np.random.default_rng(0).standard_normal((3600, 12))
    single = Ladder(Matrix.from_any(A), definite=True)
    shared = Ladder(single.matrix, definite=True, call=ladder.Call(12))
    assert shared.cost("direct") < 0.2 * single.cost("direct")
    monkeypatch.setattr(ladder, "KEPT_BYTES", 0)  # too much to be kept for another call
    made: list[int] = []
    real = direct.factors_of
    monkeypatch.setattr("akx.solvers.rungs.factors_of", lambda *given: made.append(1) or real(*given))
    for calls in (1, 2):
        X, info, stats = solve(A, B, rtol=1e-10, return_stats=True)
        assert (info, stats.method, len(made)) == (0, "direct", calls)
        assert max(relative(A, X[:, j], B[:, j]) for j in range(12)) <= 1.01e-10


def test_a_singular_matrix_is_known_by_its_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its band is too wide for an elimination, and its factors have a tiny pivot."""
    G, random = grid(70), np.random.default_rng(2)
    weights = random.uniform(0.5, 2, 4900)
    A = sp.csr_array(sp.diags_array(weights) @ shuffled(G - sp.diags_array(G.sum(axis=1))))  # rows sum to zero
    b, z = rhs(4900), 1 / weights
    x, info, stats = solve(A, b, rtol=1e-10, return_stats=True)
    assert (info, stats.converged) == (-2, False)
    assert abs(z @ b) / np.linalg.norm(z) <= stats.residual
    monkeypatch.setattr(singular, "_factorised", lambda *_: None)
    assert stats.products < 0.7 * solve(A.copy(), b, rtol=1e-10, return_stats=True)[2].products
    b -= z * (z @ b) / (z @ z)
    x, info = solve(A, b, rtol=1e-8)
    assert info == 0
    assert relative(A, x, b) <= 1.01e-8


def test_a_scaled_singular_matrix_is_looked_at_with_little_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its diagonal is a safe pivot only where it is scaled."""
    G = grid(60)
    d = 10.0 ** np.random.default_rng(0).uniform(-3, 3, 3600)
    G = shuffled(G - sp.diags_array(G.sum(axis=1)))
    matrix = Matrix.from_any(sp.csr_array(sp.diags_array(d) @ G @ sp.diags_array(d)))
    found = direct.foreseen(matrix, np.abs(matrix.diagonal()) ** -0.5)
    made: list[Any] = []
    real = direct.factors_of
    monkeypatch.setattr(direct, "factors_of", lambda *given: made.append(real(*given)) or made[-1])
    eps = np.finfo(float).eps * abs(matrix.to_scipy()).sum(axis=1)
    solves = singular._factorised(matrix, matrix.to_scipy(), eps, 10**6)
    assert solves is not None
    assert made[0].lu.nnz <= 1.05 * found.fill + matrix.n
    b = rhs(3600)
    left = (matrix.to_scipy() + sp.diags_array(eps)).conj().T @ solves(b) - b
    assert np.linalg.norm(left / d) <= 1e-2 * np.linalg.norm(b / d)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_factors_solve_with_the_adjoint_too(dtype: Any) -> None:
    matrix = Matrix.from_any(
        sp.csr_array(shuffled(grid(60)).astype(dtype) + sp.diags_array([0.3], offsets=[1], shape=(3600,) * 2))
    )
    found, b = direct.foreseen(matrix, None), rhs(3600, dtype)
    factors = direct.factors_of(matrix.to_scipy(), found)
    assert factors is not None
    assert found.order is not None
    assert relative(matrix.to_scipy().conj().T, factors.solve(b, adjoint=True), b) <= 1e-10


def test_factors_hold_what_was_counted() -> None:
    """SuperLU by itself takes columns together that belong to no one subtree: of rail_20209 13 times the fill."""
    holes = np.random.default_rng(5).random(10000) > 0.2
    A = sp.csr_array(sp.csr_array(grid(100)[holes])[:, holes])
    matrix = Matrix.from_any(A)
    known = direct.Forecast(1.0, 1.0, pivots=True, degree=True, graph=(A.indptr, A.indices))
    found = direct._counted_fill(matrix, known)
    factors = direct.factors_of(matrix.to_scipy(), found)
    assert factors is not None
    assert factors.lu.nnz == found.fill


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_nothing_is_said_on_the_terminal_of_empty_rows_and_columns(
    dtype: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of some of these SuperLU itself says "On entry to ZTRSV parameter number 6 had an illegal value"."""
    for seed in range(1, 60, 5):
        random, n = np.random.default_rng(seed), (20, 40, 300)[seed % 3]
        A = sp.random_array((n, n), density=random.uniform(0.5, 1.5) / n, rng=random)
        A = sp.csr_array(A + sp.diags_array(random.integers(0, 2, n).astype(float)), dtype=dtype)
        A.eliminate_zeros()
        if np.diff(A.tocsc().indptr).all():
            continue
        assert direct.factors_of(A, direct.foreseen(Matrix.from_any(A), None)) == "a row or column is empty"
        solve(A, rhs(n, dtype), maxiter=50)
    assert capfd.readouterr() == ("", "")
