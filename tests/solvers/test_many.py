"""Several right-hand sides: what every solver promises for b of shape (n, m), and block conjugate gradients."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator
from solvers.systems import fitting, spd

import akx
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.solvers import SOLVERS, shared_passes, solve
from akx.solvers.columns import Solved, worst

Solver = Callable[..., Any]


def several(n: int, m: int, dtype: Any = float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n, m))
    return (B + 1j * rng.standard_normal((n, m)) if np.dtype(dtype).kind == "c" else B).astype(dtype)


def long_rows(n: int = 400, dtype: Any = float, condition: float = 1e3) -> sp.csr_array:
    """Hermitian positive definite with about 60 entries in a row: a banded matrix for which blocks are taken."""
    rng = np.random.default_rng(1)
    offsets = range(-30, 31)
    A = sp.diags_array([rng.standard_normal(n - abs(k)) for k in offsets], offsets=list(offsets), shape=(n, n))
    A = A + 1j * sp.diags_array([rng.standard_normal(n - abs(k)) for k in offsets], offsets=list(offsets)) * (
        np.dtype(dtype).kind == "c"
    )
    A = (A + A.conj().T) / 20
    A = A.real if np.dtype(dtype).kind != "c" else A
    values = np.linalg.eigvalsh(A.toarray())
    shift = (values[-1] - condition * values[0]) / (condition - 1)
    return sp.csr_array((A + shift * sp.eye_array(n)).astype(dtype))


def worst_relative(A: Any, X: np.ndarray, B: np.ndarray) -> float:
    return float(np.max(np.linalg.norm(B - A @ X, axis=0) / np.maximum(np.linalg.norm(B, axis=0), 1e-300)))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_every_solver_takes_several(name: str, solver: Solver, dtype: Any) -> None:
    A, B = fitting(name, dtype=dtype), several(300, 3, dtype)
    rtol = 1e-9 if dtype == np.float64 else 1e-4
    x, info, stats = solver(A, B, rtol=rtol, return_stats=True)
    assert (x.shape, x.dtype, info) == ((300, 3), dtype, 0)
    assert worst_relative(A, x, B) <= 1.01 * rtol
    assert stats.converged
    assert [record.converged for record in stats.columns] == [True] * 3
    assert stats.iterations == max(record.iterations for record in stats.columns)
    assert stats.method == name
    again = solver(A, B, rtol=rtol)[0]
    assert x.tobytes() == again.tobytes()


def test_forms_and_shapes(name: str) -> None:
    A, B = fitting(name, 60), several(60, 2)
    want = SOLVERS[name](A, B, rtol=1e-10)[0]
    for given in (B.tolist(), np.asfortranarray(B), np.asmatrix(B), B[::-1][::-1]):
        x, info = SOLVERS[name](A, given, rtol=1e-10)
        assert (type(x), x.shape, info) == (np.ndarray, (60, 2), 0)
        np.testing.assert_allclose(x, want, rtol=1e-8, atol=1e-9)
    x, info = SOLVERS[name](A, np.ones((60, 2), dtype=int), x0=B)
    assert (x.dtype, info) == (np.float64, 0)
    x, info, stats = SOLVERS[name](A, np.zeros((60, 0), dtype=np.float32), return_stats=True)
    assert (x.shape, x.dtype, info, stats.columns) == ((60, 0), np.float64, 0, [])
    single = SOLVERS[name](A, B[:, :1], rtol=1e-10)[0]
    assert np.array_equal(single[:, 0], SOLVERS[name](A, B[:, 0], rtol=1e-10)[0])


def test_what_cannot_be_solved_for_is_told(name: str) -> None:
    A = fitting(name, 40)
    bad = several(40, 3)
    bad[7, 2] = np.nan
    cases: list[tuple[Any, str]] = [
        (several(3, 40), r"b does not fit A[\s\S]*\(40, m\)[\s\S]*b\.T"),
        (several(40, 6).reshape(40, 3, 2), "b does not fit A"),
        (sp.csr_array(several(40, 3)), "b is sparse"),
        (bad, r"b is not finite[\s\S]*b\[7, 2\] = nan"),
    ]
    for b, words in cases:
        with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
            SOLVERS[name](A, b)
    for x0 in (several(40, 2), several(40, 3)[:, 0]):
        with pytest.raises(ArgumentError, match="x0 does not fit"):
            SOLVERS[name](A, several(40, 3), x0=x0)
    for options in ({"rtol": -1.0}, {"maxiter": -1}):
        with pytest.raises(ArgumentError):
            SOLVERS[name](A, several(40, 9), **options)


def test_zero_equal_and_dependent_columns(name: str, solver: Solver) -> None:
    A, B = fitting(name), several(300, 6)
    B[:, 1], B[:, 3], B[:, 5] = 0, B[:, 0], B[:, 0] - 2 * B[:, 2]
    x, info, stats = solver(A, B, rtol=1e-9, return_stats=True)
    assert info == 0
    assert worst_relative(A, x, B) <= 1.01e-9
    assert not x[:, 1].any()
    single = solver(A, B[:, 0], rtol=1e-9, return_stats=True)[2]
    assert stats.products < 4 * single.products  # three are independent


def test_one_easy_and_one_hard_column(name: str) -> None:
    A = fitting(name)
    exact = several(300, 2)
    B = A @ exact
    x, info, stats = SOLVERS[name](
        A, B, x0=np.stack([exact[:, 0], np.zeros(300)], axis=1), rtol=1e-9, return_stats=True
    )
    assert info == 0
    assert worst_relative(A, x, B) <= 1.01e-9
    assert stats.columns[0].iterations == 0 < stats.columns[1].iterations
    np.testing.assert_array_equal(x[:, 0], exact[:, 0])


def test_gmres_goes_on_from_column_to_column_where_that_helps() -> None:
    diagonal = np.concatenate([np.logspace(-2, -1, 6), np.linspace(1, 2, 494)])
    few = sp.csr_array(sp.diags_array([diagonal, np.full(499, 0.1)], offsets=[0, 1]))
    B = several(500, 6)
    for A, restart, most in ((few, 20, 0.6), (fitting("gmres", 500), 15, 1.1)):
        alone = [SOLVERS["gmres"](A, b, rtol=1e-9, restart=restart, return_stats=True)[2].products for b in B.T]
        x, info, stats = SOLVERS["gmres"](A, B, rtol=1e-9, restart=restart, return_stats=True)
        assert info == 0
        assert worst_relative(A, x, B) <= 1.01e-9
        assert stats.products <= most * sum(alone)
        y, info = solve(A, B, method="gmres", rtol=1e-9, restart=restart)
        np.testing.assert_array_equal(x, y)


def test_info_is_the_worst(name: str) -> None:
    assert (worst([0, 7, 3]), worst([5, -2, -11, 0]), worst([0, 0]), worst([])) == (7, -11, 0, 0)
    A, B = fitting(name), several(300, 3)
    B[:, 1] = 0
    options = {"restart": 3} if name.endswith("gmres") else {}
    x, info, stats = SOLVERS[name](A, B, rtol=1e-12, maxiter=2, return_stats=True, **options)
    assert info > 0
    assert not stats.converged
    assert [record.converged for record in stats.columns] == [False, True, False]
    for j, record in enumerate(stats.columns):
        assert record.residual == pytest.approx(np.linalg.norm(B[:, j] - A @ x[:, j]), rel=1e-9)
    assert "column" in stats.reason


def test_callbacks_see_all_columns(name: str) -> None:
    A, B, seen = fitting(name), several(300, 3), []
    x, info = SOLVERS[name](A, B, rtol=1e-8, callback=lambda value: seen.append(np.copy(value)))
    assert info == 0
    if name.endswith("gmres"):
        values = np.array(seen)
        assert values.shape == (len(seen),)
        assert (values[1:] <= values[:-1] * (1 + 1e-6)).all()
        assert values[-1] <= 1.1e-8
    else:
        assert seen[0].shape == (300, 3)
        np.testing.assert_allclose(seen[-1], x, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------------------ blocks


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("kind", ["cg", "ca_cg"])
def test_blocks_share_passes_and_take_fewer_steps(kind: str, dtype: Any) -> None:
    A, B = long_rows(dtype=dtype), several(400, 9, dtype)
    B[:, 4] = B[:, 0] + 1e-3 * B[:, 1]
    rtol = 1e-4 if dtype == np.complex64 else 1e-9
    x, info, stats = SOLVERS[kind](A, B, rtol=rtol, return_stats=True)
    assert info == 0
    assert worst_relative(A, x, B) <= 1.01 * rtol
    np.testing.assert_allclose(x, np.linalg.solve(A.toarray(), B), rtol=0, atol=2e3 * rtol * np.abs(x).max())
    single = SOLVERS["cg"](A, B[:, 0], rtol=rtol, return_stats=True)[2]
    assert stats.iterations < 0.9 * single.iterations
    assert stats.matrix_passes < 1.1 * single.matrix_passes  # m columns in less than one alone
    assert stats.products > 7 * stats.iterations
    assert "block conjugate gradients" in stats.notes[-1]


def test_columns_of_a_block_that_are_done_cost_nothing() -> None:
    A, B = long_rows(), several(400, 10)
    _, vectors = np.linalg.eigh(A.toarray())
    B[:, :6] = vectors[:, 100:106] * np.logspace(-8, 8, 6)  # one step each, were they alone
    B[:, 7], B[:, 8] = B[:, 6], 0
    x, info, stats = SOLVERS["cg"](A, B, rtol=1e-10, return_stats=True)
    assert info == 0
    assert worst_relative(A, x, B) <= 1.01e-10
    assert max(record.iterations for record in stats.columns[:6]) < 0.8 * stats.iterations
    assert stats.products < 6 * stats.iterations + 40
    np.testing.assert_allclose(x[:, 6], x[:, 7], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", ["matvec", "matmat", "sparse", "indefinite"])
def test_blocks_with_preconditioners(form: str) -> None:
    half = sp.diags_array(np.logspace(0, 2, 400))
    A, B = sp.csr_array(half @ long_rows() @ half), several(400, 8)
    inverse, sizes = 1 / A.diagonal(), []

    def matmat(V: Any) -> Any:
        sizes.append(V.shape)
        return inverse[:, None] * V

    if form == "matvec":
        M: Any = LinearOperator(A.shape, matvec=lambda v: inverse * v, dtype=float)
    elif form == "matmat":
        M = LinearOperator(A.shape, matvec=lambda v: inverse * v, matmat=matmat, dtype=float)
    else:
        M = sp.csr_array(sp.diags_array(inverse * (np.where(np.arange(400) < 3, -1, 1) if form == "indefinite" else 1)))
    x, info, stats = SOLVERS["cg"](A, B, rtol=1e-9, M=M, return_stats=True, x0="Mb")
    assert worst_relative(A, x, B) <= 1.01e-9 or info != 0
    if form != "indefinite":
        assert info == 0
        single = SOLVERS["cg"](A, B[:, 0], rtol=1e-9, M=M, return_stats=True)[2]
        assert stats.iterations < single.iterations
        assert stats.seconds["precondition"] > 0
    assert bool(sizes) == (form == "matmat")


def test_blocks_leave_what_is_not_positive_definite_to_single_solves() -> None:
    A, B = long_rows() - 0.05 * sp.eye_array(400), several(400, 8)
    x, info, stats = SOLVERS["cg"](sp.csr_array(A), B, rtol=1e-9, maxiter=300, return_stats=True)
    single = SOLVERS["cg"](sp.csr_array(A), B[:, 0], rtol=1e-9, maxiter=300)[1]
    assert single != 0
    assert info != 0
    for j, record in enumerate(stats.columns):
        assert record.residual == pytest.approx(np.linalg.norm(B[:, j] - A @ x[:, j]))
        assert record.converged == (record.residual <= record.target)
    assert "not positive definite" in " ".join(stats.notes)


def test_blocks_of_a_singular_system() -> None:
    weights = abs(long_rows())
    A, B = sp.csr_array(sp.diags_array(weights.sum(axis=1)) - weights), several(400, 8)  # A 1 = 0
    info = SOLVERS["cg"](A, B, rtol=1e-8)[1]
    assert info == -2
    B -= B.mean(axis=0)
    x, info = SOLVERS["cg"](A, B, rtol=1e-8)
    assert info == 0
    assert worst_relative(A, x, B) <= 1.01e-8


def test_blocks_end_where_asked_and_stay_honest() -> None:
    A, B, seen = long_rows(condition=1e5), several(400, 8), []
    x, info, stats = SOLVERS["cg"](A, B, rtol=1e-9, maxiter=7, callback=seen.append, return_stats=True)
    assert info == 7 == stats.iterations == len(seen)
    assert seen[-1].shape == (400, 8)
    assert worst_relative(A, x, B) > 1e-9
    x, info, stats = SOLVERS["cg"](A, B, rtol=1e-30, maxiter=2000, return_stats=True)
    assert info > 0
    assert worst_relative(A, x, B) < 1e-10
    x, info, stats = SOLVERS["cg"](1e200 * A, B, rtol=1e-8, return_stats=True)  # in units of its own, one by one
    assert info == 0


def test_a_residual_of_a_block_that_is_small_by_rounding_errors_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_passes, "_LONG", 0)
    monkeypatch.setattr(shared_passes, "_LEAST", 2)
    for seed in range(90):
        random, n = np.random.default_rng(seed), 2 + seed % 3
        Q, d = np.linalg.qr(random.standard_normal((n, n)))[0], np.ones(n)
        d[-1] = np.finfo(float).eps * 10 ** random.uniform(2, 4)
        A = sp.csr_array((Q * d) @ Q.T)
        A, B = sp.csr_array((A + A.T) / 2), random.standard_normal((n, 2))
        X, _, stats = SOLVERS["cg"](A, B, rtol=1e-4, maxiter=100, return_stats=True)
        R = B - A.astype(np.longdouble) @ X
        for r, b, column in zip(R.T, B.T, stats.columns, strict=True):
            assert not column.converged or np.linalg.norm(r) < 1.01e-4 * np.linalg.norm(b), seed


def test_solve_and_solver_take_several() -> None:
    A, B = long_rows(), several(400, 9)
    for find in (partial(solve, A), akx.solvers.Solver(A), akx.solvers.Solver(A, M="jacobi")):
        x, info, stats = find(B, rtol=1e-9, return_stats=True)
        assert (x.shape, info, len(stats.columns)) == ((400, 9), 0, 9)
        assert worst_relative(A, x, B) <= 1.01e-9
    skew = fitting("gmres")
    x, info, stats = solve(skew, several(300, 3), rtol=1e-9, return_stats=True)
    assert info == 0
    assert worst_relative(skew, x, several(300, 3)) <= 1.01e-9
    assert stats.to_json()["columns"][1]["converged"]
    assert "columns" not in solve(spd(), np.ones(300), return_stats=True)[2].to_json()


# ------------------------------------------------------------------------------------------- what all columns share


def test_all_columns_are_solved_for_the_values_that_the_solve_began_with(name: str) -> None:
    A, B, told = fitting(name), several(300, 3), []
    given = A.copy()

    def triple(value: Any) -> None:
        if not told:
            A.data *= 3
        told.append(value)

    for solver in (SOLVERS[name], partial(solve, method=name)):
        told.clear()
        A.data[:] = given.data
        x, info = solver(A, B, rtol=1e-8, callback=triple)
        assert (info, bool(told)) == (0, True)
        assert worst_relative(given, x, B) <= 1.01e-8


def test_each_column_has_the_bits_of_a_solve_of_its_own() -> None:
    A, B = spd(200), several(200, 4)
    for given in (A, A.tocsc(), A.tocoo(), A.tolil(), akx.Matrix.from_any(A)):
        x, info = SOLVERS["cg"](given, B, rtol=1e-9)
        assert info == 0
        for j in range(4):
            np.testing.assert_array_equal(x[:, j], SOLVERS["cg"](given, B[:, j], rtol=1e-9)[0])
    with pytest.raises(ArgumentTypeError, match="A is a LinearOperator"):
        SOLVERS["cg"](LinearOperator(A.shape, matvec=lambda v: v, dtype=float), B)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int64])
def test_the_last_solved_columns_make_a_guess(dtype: Any) -> None:
    B = (10 * several(50, 40, dtype)).astype(dtype)
    B[:, 30], B[:, 31], B[:, 32] = B[:, 29], 2 * B[:, 28] - B[:, 29], B[:, 0]
    X, solved = 3 * B.astype(np.result_type(dtype, np.float32)), Solved(B)
    assert solved.guess_for(0) is None
    for j in range(30):
        solved.add(j, X[:, j])
    for j in (30, 31):
        guess = solved.guess_for(j)
        assert guess is not None
        assert guess.dtype == X.dtype
        np.testing.assert_allclose(guess, X[:, j], rtol=1e-4, atol=1e-3)
    assert solved.guess_for(32) is None  # that is not kept any more
    B = B.astype(np.result_type(dtype, float)) * 1e300
    solved = Solved(np.stack([B[:, 0] * 1e-300 * 1e-300, B[:, 0], 0 * B[:, 0]], axis=1))
    solved.add(2, X[:, 2])
    assert solved.guess_for(1) is None
    solved.add(0, X[:, 0])
    assert solved.guess_for(1) is None  # beyond the range
    assert solved.guess_for(2) is None


def test_many_columns_take_no_room_for_all_their_inner_products() -> None:
    B = several(10, 3000)
    tracemalloc.start()
    try:
        solved = Solved(B)
        for j in range(200):
            solved.guess_for(j)
            solved.add(j, B[:, j])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_reason_is_not_that_of_a_column_without_steps() -> None:
    A = sp.diags_array([-np.ones(99), np.r_[1.0, 2 * np.ones(98), 1], -np.ones(99)], offsets=[-1, 0, 1], format="csr")
    b = A @ np.arange(100.0)
    _, info, stats = SOLVERS["cg"](A, np.column_stack([b, 2 * b]), return_stats=True)
    assert [record.iterations > 0 for record in stats.columns] == [True, False]
    assert (info, stats.reason, stats.iterations) == (0, "converged", stats.columns[0].iterations)
