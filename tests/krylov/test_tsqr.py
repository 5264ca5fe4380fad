"""TSQR: the factors of a tall matrix, whatever its columns are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.krylov import tsqr


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize(("n", "rows"), [(6, None), (12, 12), (1000, 12), (1003, 50), (1000, None)])
def test_factors(dtype: Any, n: int, rows: int | None) -> None:
    rng = np.random.default_rng(0)
    V = rng.standard_normal((n, 6))
    V = (V + 1j * rng.standard_normal((n, 6)) if np.dtype(dtype).kind == "c" else V).astype(dtype)
    Q, R = tsqr(V, rows=rows)
    eps = float(np.finfo(dtype).eps)
    assert (Q.shape, R.shape, Q.dtype, R.dtype) == ((n, 6), (6, 6), dtype, dtype)
    np.testing.assert_allclose(Q.conj().T @ Q, np.eye(6), atol=50 * eps)
    np.testing.assert_allclose(Q @ R, V, atol=100 * eps)
    assert not np.tril(R, -1).any()
    diagonal = np.diagonal(R)
    assert (diagonal.real > 0).all()
    assert not diagonal.imag.any()
    np.testing.assert_allclose(np.abs(R), np.abs(np.linalg.qr(V)[1]), atol=100 * eps * n**0.5)


def test_columns_that_depend_on_each_other_and_zero() -> None:
    V = np.vander(np.linspace(0, 1, 3000), 30)  # of condition beyond 1e16
    V[:, 7] = 0
    for given in (V, np.asfortranarray(V), V[::2]):
        Q, R = tsqr(given, rows=100)
        np.testing.assert_allclose(Q.T @ Q, np.eye(30), atol=1e-13)
        np.testing.assert_allclose(Q @ R, given, atol=1e-13)
    Q, R = tsqr(np.zeros((50, 3)), rows=6)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    assert not R.any()


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="V is not tall"):
        tsqr(np.ones((3, 4)))
    with pytest.raises(ArgumentError, match="rows is out of range"):
        tsqr(np.ones((30, 4)), rows=7)
    with pytest.raises(ArgumentError, match="V is not finite"):
        tsqr(np.array([[np.inf], [1.0]]))
    with pytest.raises(ArgumentTypeError):
        tsqr("abc")  # type: ignore[arg-type]
    Q, R = tsqr([1, 2, 2])
    assert (Q.shape, R.tolist()) == ((3, 1), [[pytest.approx(3.0)]])
