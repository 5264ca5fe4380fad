"""Hermitian up to rounding, against the definition on dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.solvers import symmetry
from akx.solvers.symmetry import is_hermitian, real_diagonal, skew_shift

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def defined(A: Any) -> bool:
    dense = A.toarray()
    roots = np.sqrt(abs(np.diag(dense)))
    size = np.maximum(np.maximum(abs(dense), abs(dense.T)), np.outer(roots, roots))
    return bool(np.all(abs(dense - dense.conj().T) <= 16 * np.finfo(A.dtype).eps * size))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compiled", [True, False])
def test_it_is_as_defined_for_any_pattern(dtype: Any, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "is_loaded", lambda: compiled)
    monkeypatch.setattr(symmetry, "_AT_ONCE", 5)
    rng, eps, found = np.random.default_rng(0), float(np.finfo(dtype).eps), []
    for trial in range(300):
        n = int(rng.integers(1, 12))
        A = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4)
        if np.dtype(dtype).kind == "c":
            A = A + 1j * rng.standard_normal((n, n)) * (A != 0)
        A = A + A.conj().T
        noise = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.1)
        A = A + eps * (3.0, 40.0)[trial % 2] * noise  # also where there was nothing: the pattern is not symmetric
        if trial % 3 == 0:
            A[0, 0] = 0
        held = sp.csr_array(A.astype(dtype))
        found.append(is_hermitian(Matrix.from_any(held)))
        assert found[-1] == defined(held)
    assert 50 < sum(found) < 250


def test_products_and_sums_are_hermitian_and_others_are_not() -> None:
    rng = np.random.default_rng(1)
    B = sp.random_array((400, 100), density=0.1, rng=rng, data_sampler=rng.standard_normal)
    K, D = (sp.diags_array(10 ** rng.uniform(-3, 3, n)) for n in (400, 100))
    A = sp.csr_array(D @ (B.T @ (K @ B)) @ D)
    matrix = Matrix.from_any(A)
    assert matrix.features.value_symmetry == "none"
    assert is_hermitian(matrix)
    assert not is_hermitian(Matrix.from_any(A + 1e-12 * sp.triu(A, 1)))
    assert not is_hermitian(Matrix.from_any(sp.csr_array(np.array([[1.0, 1e-9], [0.0, 1.0]]))))
    assert is_hermitian(Matrix.from_any(sp.csr_array((3, 3))))


def test_a_diagonal_is_real_up_to_rounding() -> None:
    d = np.array([1 + 2e-16j, 3.0, 0.0])
    np.testing.assert_array_equal(real_diagonal(d), [1, 3, 0])
    assert real_diagonal(d).dtype == d.dtype
    other = d + np.array([0, 1e-10j, 0])
    assert real_diagonal(other) is other


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_skew_symmetric_but_for_a_multiple_of_the_identity(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "_AT_ONCE", 5)
    rng, eps = np.random.default_rng(2), float(np.finfo(dtype).eps)
    for trial in range(100):
        n, c = int(rng.integers(3, 12)), (0.0, 0.7, -3.0)[trial % 3]
        S = np.triu(rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4), 1)
        S[0, n - 1] = 1.0  # not zero, and with empty rows
        A = (S - S.T + c * np.eye(n)).astype(dtype)
        shift = float(A[0, 0])
        assert skew_shift(Matrix.from_any(sp.csr_array(A))) == shift
        assert skew_shift(Matrix.from_any(sp.csr_array(A.astype(complex)))) is None
        i, j = np.argwhere(np.triu(A, 1))[-1]
        for units, is_so in ((4, True), (100, False)):
            other = A.copy()
            other[i, j] += units * eps * max(abs(A[i, j]), abs(shift))
            assert (skew_shift(Matrix.from_any(sp.csr_array(other))) == shift) is is_so
        others = [np.abs(A), A + np.diag(np.r_[1.0, np.zeros(n - 1)]), A + np.eye(n, k=1), c * np.eye(n)]
        for other in others:
            assert skew_shift(Matrix.from_any(sp.csr_array(other.astype(dtype)))) is None
    held = sp.csr_array((np.r_[0.0, 2.0, -2.0], np.r_[0, 2, 1], np.r_[0, 1, 2, 3]), shape=(3, 3))
    assert skew_shift(Matrix.from_any(held)) == 0.0  # with a stored zero on the diagonal
