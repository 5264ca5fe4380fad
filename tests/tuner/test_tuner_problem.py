"""The judge: right results pass, and no wrong entry does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.tuner.trial.problem import BASIS_KINDS, Problem, typical_coefficients

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def solve(problem: Problem) -> None:
    """The recurrence with a dense matrix, in the problem's dtype: an oracle apart from the reference."""
    A = problem.matrix.to_scipy().toarray()
    a, b, c = problem.coefficients.a, problem.coefficients.b, problem.coefficients.c
    problem.out[0] = problem.x
    for j in range(problem.k):
        product = problem.out[j] @ A.T
        problem.out[j + 1] = a[j] * product + b[j] * problem.out[j] + (c[j] * problem.out[j - 1] if j else 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("basis", BASIS_KINDS)
@pytest.mark.parametrize("start_vectors", [1, 3])
def test_a_right_result_passes(make_matrix: Any, dtype: Any, basis: str, start_vectors: int) -> None:
    problem = Problem(make_matrix(dtype=dtype), 6, basis=basis, start_vectors=start_vectors)
    problem.poison()
    solve(problem)
    assert 0 < problem.error() <= 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 6), st.integers(0, 1), st.integers(0, 39), st.sampled_from(DTYPES))
def test_any_wrong_entry_is_found(make_matrix: Any, j: int, vector: int, row: int, dtype: Any) -> None:
    problem = Problem(make_matrix(dtype=dtype), 6, start_vectors=2)
    solve(problem)
    largest = np.abs(problem.out[j, vector]).max()
    problem.out[j, vector, row] += 0.01 * max(largest, 1.0)
    assert problem.error() > 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_missing_entry_is_found(make_matrix: Any, value: float) -> None:
    problem = Problem(make_matrix(), 4)
    solve(problem)
    problem.out[2, 0, 7] = value
    assert np.isnan(problem.error())


def test_a_poisoned_output_is_wrong(make_matrix: Any) -> None:
    problem = Problem(make_matrix(dtype=np.complex64), 4)
    solve(problem)
    problem.poison()
    assert np.isnan(problem.error())


def test_pieces_are_all_looked_at(make_matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import akx.tuner.trial.problem as verify

    monkeypatch.setattr(verify, "_PIECE", 17)
    problem = Problem(make_matrix(), 4)
    solve(problem)
    assert problem.error() <= 1
    problem.out[-1, 0, -1] *= 1.01
    assert problem.error() > 1


@pytest.mark.parametrize("scale", [1e-9, 1e9])
@pytest.mark.parametrize("basis", BASIS_KINDS)
def test_powers_stay_in_range(make_matrix: Any, scale: float, basis: str) -> None:
    plain = make_matrix(dtype=np.float32)
    matrix = plain.with_values(plain.data * np.float32(scale))
    problem = Problem(matrix, 16, basis=basis)
    solve(problem)
    assert np.isfinite(problem.out).all()
    assert np.abs(problem.out[-1]).max() > np.finfo(np.float32).tiny
    assert problem.error() <= 1


def test_coefficients_vanish_where_those_of_the_basis_do(make_matrix: Any) -> None:
    matrix = make_matrix()
    plain = typical_coefficients(matrix, 6, "monomial")
    assert np.all(plain.a == 1)
    assert not plain.b.any()
    assert not plain.c.any()
    newton = typical_coefficients(matrix, 6, "newton")
    assert newton.b.all()
    assert newton.c.any()
    chebyshev = typical_coefficients(matrix, 6, "chebyshev")
    assert np.all(chebyshev.c[1:] == -1)
    assert chebyshev.c[0] == 0
    with pytest.raises(ArgumentError, match="basis"):
        typical_coefficients(matrix, 6, "legendre")


def test_a_zero_matrix_can_be_tuned() -> None:
    import scipy.sparse as sp

    problem = Problem(Matrix.from_any(sp.csr_array((5, 5))), 3)
    solve(problem)
    assert problem.error() <= 1
    problem.out[1, 0, 0] = 1e-30
    assert problem.error() > 1
