"""What all solvers share: arguments checked as SciPy's users expect, products counted, and no false success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import akx
from akx.core.errors import ArgumentError, ArgumentTypeError, MatrixError
from akx.krylov.bases import basis_of
from akx.solvers import cg
from akx.solvers.system import make_system


def matrix(n: int = 40, dtype: Any = float) -> sp.csr_array:
    return sp.csr_array(sp.diags_array([-1.0, 3.0, -1.5], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))


def test_products_are_right_and_counted() -> None:
    A, rng = matrix(), np.random.default_rng(0)
    system = make_system("cg", A, rng.standard_normal(40), rtol=1e-3, atol=0.5)
    W = system.rows(3)
    W[0] = rng.standard_normal(40)
    system.product(W[0], W[1])  # the row behind
    system.product(W[1], W[0])  # not
    np.testing.assert_allclose(W[0], A @ W[1], rtol=1e-14)
    assert (system.stats.products, system.stats.matrix_passes) == (2, 2)
    V = np.empty((4, 2, 40))
    system.powers(W[:2], V, akx.newton([1.0, 2.0, 3.0], 3))
    B = akx.newton([1.0, 2.0, 3.0], 3).matrix()
    for i in range(2):  # A V_k = V_{k+1} B
        np.testing.assert_allclose(A @ V[:3, i].T, V[:, i].T @ B, rtol=1e-12, atol=1e-12)
    assert (system.stats.products, system.stats.matrix_passes) == (8, 3)
    one = np.empty((3, 1, 40))
    system.powers(W[:1], one, akx.monomial(2))
    np.testing.assert_allclose(one[2, 0], A @ (A @ W[0]), rtol=1e-13)
    r = system.rows(1)[0]
    x = rng.standard_normal(40)
    assert system.residual(x, r) == pytest.approx(np.linalg.norm(system.b - A @ x))
    assert system.target == max(1e-3 * np.linalg.norm(system.b), 0.5)


def test_types_are_scipys() -> None:
    for of_matrix, of_b, wanted in (
        (np.float32, np.float32, np.float32),
        (np.float32, np.float64, np.float64),
        (np.float32, np.int64, np.float64),
        (np.float64, np.complex64, np.complex128),
        (np.complex64, np.float32, np.complex64),
    ):
        assert make_system("cg", matrix(5, of_matrix), np.ones(5, of_b)).dtype == wanted


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (ArgumentTypeError, {"A": aslinearoperator(matrix())}),
        (MatrixError, {"A": sp.csr_array(np.ones((3, 4)))}),
        (ArgumentError, {"b": np.ones(39)}),
        (ArgumentError, {"b": np.full(40, np.nan)}),
        (ArgumentTypeError, {"b": np.array(["x"] * 40)}),
        (ArgumentTypeError, {"b": [[1.0], [2.0, 3.0]]}),
        (ArgumentTypeError, {"b": np.array([object()] * 40)}),
        (ArgumentTypeError, {"x0": np.array(["x"] * 40)}),
        (ArgumentError, {"x0": np.ones(3)}),
        (ArgumentError, {"x0": np.ones((1, 40))}),
        (ArgumentError, {"rtol": -1.0}),
        (ArgumentError, {"atol": "legacy"}),
        (ArgumentTypeError, {"callback": 3}),
        (MatrixError, {"M": sp.eye_array(3)}),
    ],
)
def test_bad_arguments(error: type[Exception], change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"A": matrix(), "b": np.ones(40), **change}
    with pytest.raises(error):
        make_system("cg", given.pop("A"), given.pop("b"), **given)


def test_an_unconverged_answer_is_never_called_converged() -> None:
    system = make_system("cg", matrix(), np.ones(40))
    with pytest.raises(AssertionError, match="unconverged"):
        system.finish(system.x, info=0, reason="", iterations=0, return_stats=False)
    x, info = system.finish(system.x, info=7, reason="", iterations=7, return_stats=False)  # type: ignore[misc]
    assert (x.shape, info) == ((40,), 7)


@pytest.mark.parametrize("kind", ["auto", "newton", "chebyshev", "monomial"])
@pytest.mark.parametrize("ritz", [[2.0], [1.0, 3.0, 2.0], [1 + 1j, 1 - 1j, 0.5], [0.0], [2j, -2j]])
def test_bases_from_ritz_values_are_real_and_bounded(kind: str, ritz: list[complex]) -> None:
    basis = basis_of(kind, np.array(ritz), 6, real=True)
    assert basis.k == 6
    assert basis.is_real
    assert np.isfinite(basis.matrix()).all()


def test_errors_say_where_and_what_else() -> None:
    A, b = sp.eye_array(5, format="csr"), np.array([1.0, 2.0, np.inf, np.nan, 5.0])
    with pytest.raises(ArgumentError, match=r"b is not finite.*found b\[2\] = inf in float64"):
        cg(A, b)
    with pytest.raises(ArgumentError, match=r"x0 is not finite.*found x0\[3\] = nan in float64"):
        cg(A, np.ones(5), x0=np.array([1.0, 2.0, 3.0, np.nan, 5.0]))
    with pytest.raises(ArgumentError, match="unknown backend, expected 'auto' or 'cpu' or 'cuda'"):
        cg(A, np.ones(5), backend="gpu")
