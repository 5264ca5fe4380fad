"""Systems of few rows are factorised before anything is found out about them; the unusual goes the usual way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.errors import AkxError
from akx.solvers import few_rows, solve
from tests.solvers.systems import rhs

NOTES = ["A is of few rows: 120", "direct 1 step", "solved by direct"]


def system(dtype: Any = float, n: int = 120) -> Any:
    A = sp.random_array((n, n), density=0.05, rng=np.random.default_rng(4), format="csr") + 4 * sp.eye_array(n)
    return sp.csr_array(A * (1 + 0.5j) if np.dtype(dtype).kind == "c" else A)


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("of_b", [float, complex])
@pytest.mark.parametrize("shape", [(120,), (120, 1)])
def test_the_answer_is_superlus(kind: Any, of_b: Any, shape: tuple[int, ...]) -> None:
    A, b = system(kind), rhs(120, of_b).reshape(shape)
    before = b.copy()
    x, info, stats = solve(A, b, rtol=1e-10, return_stats=True)
    assert (info, stats.method, stats.converged, stats.notes) == (0, "direct", True, NOTES)
    assert (x.shape, x.dtype) == (shape, np.result_type(kind, of_b))
    np.testing.assert_allclose(x, np.linalg.solve(A.toarray(), b), rtol=1e-10)
    np.testing.assert_array_equal(b, before)
    r = b - A @ x.reshape(shape)
    assert stats.residual == stats.residuals[-1] == pytest.approx(np.linalg.norm(r), abs=1e-15)
    assert stats.residual <= stats.target == pytest.approx(1e-10 * np.linalg.norm(b))
    assert (stats.iterations, stats.products) == (1, 1)


def is_usual(A: Any, b: Any, **options: Any) -> bool:
    _, _, stats = solve(A, b, **options, return_stats=True)
    return not any("few rows" in note for note in stats.notes)


def test_what_asks_for_more_goes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = system(), rhs(120)
    assert not is_usual(A, b)
    assert not is_usual(sp.csr_matrix(A), b, rtol=1e-9, atol=1e-12, threads=1, backend="cpu")
    for options in (
        {"x0": b},
        {"M": "jacobi"},
        {"maxiter": 10},
        {"callback": lambda x: None},
        {"restart": 5},
        {"s": 2},
        {"rtol": 0},
        {"method": "gmres"},
    ):
        assert is_usual(A, b, **options), options
    assert is_usual(A.tocsc(), b)
    assert is_usual(A.astype(np.float32), b.astype(np.float32))
    assert is_usual(1e200 * A, b)
    assert is_usual(A, 1e-200 * b)
    assert is_usual(A, 0 * b)
    monkeypatch.setattr(few_rows, "MOST_ROWS", 119)
    assert is_usual(A, b)


def test_what_has_no_sure_answer_goes_the_usual_way() -> None:
    A, b = system().tolil(), rhs(120)
    A[7] = A[8]
    _, info, stats = solve(sp.csr_array(A), b, return_stats=True)
    assert info != 0
    assert "few rows" not in stats.notes[0]
    steep = sp.diags_array(np.logspace(0, -17, 120), format="csr")
    steep = sp.csr_array(steep + 1e-3 * sp.eye_array(120, k=1) @ steep)
    assert is_usual(steep, b, rtol=1e-12)


def test_what_is_wrong_is_told() -> None:
    A, b = system(), rhs(120)
    for given, options in (
        ((A, b), {"threads": 0}),
        ((A, b), {"rtol": -1.0}),
        ((A, b), {"atol": np.nan}),
        ((A, b), {"backend": "no"}),
        ((A, b[:-1]), {}),
        ((A[:, :-1], b), {}),
        ((A, np.where(b == b[3], np.nan, b)), {}),
        ((A * np.inf, b), {}),
    ):
        with np.errstate(all="ignore"), pytest.raises(AkxError):
            solve(*given, **options)


@pytest.mark.parametrize("size", [1e160, 1e-170, 1.0])
def test_squares_out_of_range_are_nothing_to_warn_of(size: float) -> None:
    A, b = system(), size * rhs(120)
    with np.errstate(all="raise"):
        x, info = solve(A, b)  # type: ignore[misc]
    np.testing.assert_allclose(A @ x / size, b / size, atol=1e-4)
    assert info == 0


@pytest.mark.parametrize("kind", [np.float32, complex])
def test_what_no_method_solves_is_solved_by_least_squares(kind: Any) -> None:
    """Of index 2 and 3: the Krylov space of b does not hold x, and b is in the range of A."""
    for A, b in (
        (sp.eye_array(3, k=1), [1, 1, 0]),
        (sp.csr_array([[0.0, 1], [0, 0]]), [1, 0]),
        (sp.eye_array(3, k=1), [*np.random.default_rng(0).standard_normal(2), 0]),
    ):
        A, b, seen = sp.csr_array(A.astype(kind)), np.array(b, dtype=kind), []
        x, info, stats = solve(A, b, callback=seen.append, return_stats=True)
        assert (info, stats.method, stats.reason) == (0, "lstsq", "converged")
        assert stats.notes[-1] == "solved by lstsq"
        assert np.linalg.norm(b - A @ x) <= 1e-5 * np.linalg.norm(b)
        np.testing.assert_array_equal(seen[-1], x)
        M = sp.eye_array(len(b), format="csr")
        assert solve(A, b, M=M)[1] != 0  # an M of the caller's is all there is


def test_singular_systems_in_single_precision_are_solved() -> None:
    """Random ones with empty columns, of whose x the methods keep too large a part."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        A = sp.csr_array(sp.random_array((25, 25), density=0.12, rng=random).astype(np.float32))
        b = A @ random.standard_normal(25).astype(np.float32)
        x, info = solve(A, b)  # type: ignore[misc]
        assert info == 0
        assert np.linalg.norm(b - A @ x) <= 1.001e-5 * np.linalg.norm(b)


def test_least_squares_tell_that_there_is_no_solution() -> None:
    A = sp.csr_array(np.kron(np.eye(3, k=1) + np.diag([0, 0, 1.0]), np.ones((2, 2))))
    b = np.array([1.0, -1, 0, 0, 0, 0])
    options = {"rtol": 1e-5, "atol": 0.0, "threads": None, "db": None, "backend": "auto"}
    _, info, stats = few_rows.solve_by_least_squares(A, b, options, None)
    assert info == -2
    assert stats.residual == pytest.approx(2**0.5)
    _, info, stats = few_rows.solve_by_least_squares(A, A @ b + 1e-9, {**options, "rtol": 1e-300}, None)
    assert info > 0 or stats.converged
