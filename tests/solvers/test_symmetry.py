"""Hermitian up to rounding, against the definition on dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.solvers import symmetry
from akx.solvers.symmetry import is_hermitian, real_diagonal

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
