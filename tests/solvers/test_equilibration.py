"""Scaling first: rows of different size are scaled by a diagonal, an even matrix keeps its bits, M is the user's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator
from solvers.systems import nonsymmetric, relative, rhs, spd
from solvers.test_minres import scattered

from akx.core.matrix import Matrix
from akx.solvers import SOLVERS, Solver, auto, minres, solve
from akx.solvers.auto import families_for
from akx.solvers.equilibration import equilibration

pytestmark = pytest.mark.usefixtures("methods_first")


def uneven(A: Any, decades: float = 3.0, *, other: bool = False) -> Any:
    """D A D, or D A E, entries of D and E between 10^-decades and 10^decades."""
    random = np.random.default_rng(3)
    left, right = 10.0 ** random.uniform(-decades, decades, (2, A.shape[0]))
    scaled = sp.diags_array(left) @ A @ sp.diags_array(right if other else left)
    return sp.csr_array(scaled.astype(A.dtype))


def notes_of(stats: Any) -> list[str]:
    return [note for note in stats.notes if "; scaled " in note]


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
@pytest.mark.parametrize(("make", "other"), [(spd, False), (nonsymmetric, True)], ids=["hermitian", "other"])
def test_uneven_rows_take_as_few_steps_as_even_ones(make: Any, other: bool, dtype: Any) -> None:
    even, rtol, decades = make(300, dtype), *((1e-4, 1.0) if dtype == np.float32 else (1e-8, 3.0))
    A = uneven(even, decades, other=other)
    b = A @ rhs(300, dtype)
    x, info, stats = solve(A, b, rtol=rtol, return_stats=True)
    assert (info, x.dtype) == (0, dtype)
    assert relative(A, x, b) <= 1.01 * rtol
    assert len(notes_of(stats)) == 1
    assert stats.products <= 3 * solve(even, rhs(300, dtype), rtol=rtol, return_stats=True)[2].products
    rounding = 1e-14 * float(np.linalg.norm(b))
    assert stats.residual == pytest.approx(float(np.linalg.norm(b - A @ x)), rel=1e-2, abs=rounding)


@pytest.mark.parametrize(("make", "method"), [(spd, "cg"), (nonsymmetric, "bicgstab")])
def test_an_even_matrix_keeps_its_bits(make: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self, call: None)
    A, b = make(), rhs(300)
    x, _, stats = solve(A, b, rtol=1e-9, return_stats=True)
    np.testing.assert_array_equal(x, SOLVERS[method](A, b, rtol=1e-9)[0])
    assert not notes_of(stats)


def test_a_preconditioner_of_the_user_is_all_there_is() -> None:
    A = uneven(spd(), 1.0)
    M = aslinearoperator(sp.diags_array(1 / A.diagonal()))
    _, info, stats = solve(A, rhs(300), M=M, rtol=1e-8, return_stats=True)
    assert (info, notes_of(stats)) == (0, [])


def test_a_saddle_point_is_scaled_by_its_schur_complement() -> None:
    """Entries are of one size afterwards, and the diagonal of M is positive."""
    random = np.random.default_rng(4)
    B = sp.random_array((40, 120), density=0.1, rng=random) + sp.eye_array(40, 120)
    even = sp.block_array([[sp.diags_array(random.uniform(1, 2, 120)), B.T], [B, None]])
    A = uneven(even)
    matrix = Matrix.from_any(A)
    found = equilibration(matrix, hermitian=True)
    assert found is not None
    M, why = found
    assert why == "scaled so that rows are equally long (40 have no diagonal entry)"
    assert np.all(M.diagonal > 0)
    scaled = abs(M.apply_to(matrix).to_scipy())
    assert 0.1 <= scaled.max(axis=1).toarray().min() <= scaled.max() <= 10


def test_it_says_by_what_a_is_scaled() -> None:
    def said(A: Any, *, hermitian: bool) -> str:
        found = equilibration(Matrix.from_any(A), hermitian=hermitian)
        assert found is not None
        return found[1]

    D = sp.diags_array(np.logspace(0, 3, 60))
    line = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(60, 60))
    assert said(D @ line @ D, hermitian=True) == "scaled so that rows are equally long (A has no diagonal)"
    other = D @ sp.diags_array([2.0, 1.0], offsets=[-1, 1], shape=(60, 60))
    assert re.fullmatch(
        r"scaled by the size of entries, as rows .*-fold \(A has no diagonal\)", said(other, hermitian=False)
    )
    assert said(D, hermitian=True) == "scaled by the diagonal, as rows differ 1e+03-fold"


@pytest.mark.parametrize("decades", [0.0, 2.0])
def test_a_small_entry_on_the_diagonal_of_an_indefinite_matrix_is_no_size_of_its_row(
    decades: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self, call: None)
    A = uneven(scattered(600), decades)
    b = A @ rhs(600)
    x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
    assert (info, stats.method) == (0, "minres")
    assert relative(A, x, b) <= 1e-8
    even = minres(scattered(600), b, rtol=1e-8, return_stats=True)[2]
    assert stats.products <= 1.5 * even.products
    M, _ = equilibration(Matrix.from_any(A), hermitian=True) or (None, "")
    if M is not None:
        rows = np.asarray(M.apply_to(Matrix.from_any(A)).to_scipy().power(2).sum(axis=1))
        assert 0.5 <= rows.min() <= rows.max() <= 2


def test_what_has_no_size_and_what_leaves_the_range_is_left_alone() -> None:
    cyclic = Matrix.from_any(sp.csr_array(np.roll(np.eye(8), 1, axis=1)))
    assert equilibration(cyclic, hermitian=False) is None  # a diagonal of zeros, and rows of one size
    for least in (1e-320, 1e-310):
        assert equilibration(Matrix.from_any(sp.diags_array([least, 1.0])), hermitian=True) is None


def test_mb_is_b_where_the_user_has_no_m() -> None:
    A, b = uneven(nonsymmetric(), 1.0, other=True), rhs(300)
    stats = solve(A, b, "Mb", return_stats=True)[2]
    assert stats.residuals[0] == pytest.approx(float(np.linalg.norm(b - A @ b)))


def test_a_solver_scales_too_and_anew_for_other_values() -> None:
    A, b = uneven(spd(), 2.0), rhs(300)
    solver = Solver(A)
    x, info, stats = solver(b, rtol=1e-9, return_stats=True)
    assert (info, solver.M, len(notes_of(stats))) == (0, None, 1)
    np.testing.assert_array_equal(x, solve(A, b, rtol=1e-9)[0])
    solver.update_values(spd())
    assert not notes_of(solver(b, rtol=1e-9, return_stats=True)[2])
    assert families_for(Matrix.from_any(A))[0][0] == "cg"
