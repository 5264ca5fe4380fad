"""Systems whose squares leave the range of numbers are solved as if they did not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator
from solvers.systems import fitting, relative, rhs

import akx.solvers.system as system_home
from akx.core.errors import ArgumentError
from akx.solvers import SOLVERS, preconditioners, solve
from akx.solvers.scaling import Units, exponent_of, norm_of, scaled, units_of

#: Nothing that NumPy has to say reaches the user.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

Solver = Callable[..., Any]
#: Exponents of A and b: one of them extreme, both to the same side, and to opposite sides.
EXPONENTS = {
    np.float64: [(-900, 0), (-570, 0), (520, 0), (900, 0), (0, -1000), (0, -540), (0, 520), (0, 960), (-530, -530),
                 (500, 500), (-400, 400), (400, -400)],
    np.float32: [(-100, 0), (-70, 0), (60, 0), (100, 0), (0, -110), (0, -70), (0, 60), (0, 100), (-60, -60), (60, 60)],
}  # fmt: skip
CASES = [(dtype, *pair) for dtype, pairs in EXPONENTS.items() for pair in pairs]


def extreme(name: str, dtype: Any, of_A: int, of_b: int, n: int = 120) -> tuple[Any, Any, Any, Any]:
    """A and b of ordinary scale, and of the extreme one, without a digit lost."""
    A, b = fitting(name, n, dtype), rhs(n, dtype)
    large = A.copy()
    large.data = scaled(A.data, of_A)
    return A, b, large, scaled(b, of_b)


@pytest.mark.parametrize(("dtype", "of_A", "of_b"), CASES)
def test_solves_it_as_the_ordinary_system(name: str, solver: Solver, dtype: Any, of_A: int, of_b: int) -> None:
    A, b, large, right = extreme(name, dtype, of_A, of_b)
    rtol = 1e-4 if dtype == np.float32 else 1e-9
    x, info, stats = solver(large, right, rtol=rtol, return_stats=True)
    assert info == 0
    assert x.dtype == dtype
    assert relative(A, scaled(x, of_A - of_b), b) <= 1.01 * rtol
    _, _, plain = solver(A, b, rtol=rtol, return_stats=True)
    assert abs(stats.iterations - plain.iterations) <= 2
    # the record is in the units of b
    unit = 2.0**of_b
    assert stats.converged
    assert stats.target == pytest.approx(rtol * np.linalg.norm(b.astype(float)) * unit, rel=1e-6)
    assert stats.residual <= stats.target
    assert stats.residuals[0] == pytest.approx(plain.residuals[0] * unit, rel=1e-6)
    assert stats.residuals[-1] == stats.residual
    assert any("A / 2^" in note for note in stats.notes)


@pytest.mark.parametrize("n", [120, 12_000])
@pytest.mark.parametrize("size", [1e200, 1e-200, 5e-324])
def test_vectors_of_numpy_warn_of_nothing(
    name: str, solver: Solver, size: float, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_home, "is_compiled", lambda *_: False)
    A, b = fitting(name, n, np.float64), np.full(n, size)
    x, info = solver(A, b, rtol=1e-4)
    assert np.isfinite(x).all()
    if size > 1e-300:  # else no x with so few digits is good enough
        assert info == 0
        assert np.linalg.norm((b - A @ x) / size) <= 1.01e-4 * n**0.5


@pytest.mark.parametrize(("of_A", "of_b"), [(-900, 0), (0, -540), (500, 500)])
def test_complex_guess_atol_and_callback(name: str, solver: Solver, of_A: int, of_b: int) -> None:
    A, b, large, right = extreme(name, np.complex128, of_A, of_b)
    exact = np.linalg.solve(A.toarray(), b)
    given = scaled(exact, of_b - of_A)
    seen: list[Any] = []
    x, info, stats = solver(large, right, x0=given, rtol=1e-8, callback=seen.append, return_stats=True)
    assert (info, stats.iterations, seen) == (0, 0, [])
    np.testing.assert_array_equal(x, given)

    aim = 1e-3 * float(np.linalg.norm(b)) * 2.0**of_b
    x, info, stats = solver(large, right, x0=0.5 * given, rtol=0.0, atol=aim, callback=seen.append, return_stats=True)
    assert info == 0
    assert stats.target == aim
    assert 1e-9 < relative(A, scaled(x, of_A - of_b), b) <= 1.01e-3
    if name.endswith("gmres"):
        assert 0 < seen[-1] <= 1.01e-3
        return
    assert relative(A, scaled(seen[-1], of_A - of_b), b) <= 1.01e-3


@pytest.mark.parametrize("kind", ["matrix", "operator", "jacobi", "spai"])
@pytest.mark.parametrize(("of_A", "of_b"), [(-900, 0), (900, 0), (0, -600), (-530, -530)])
def test_preconditioners(name: str, kind: str, of_A: int, of_b: int) -> None:
    scale = sp.diags_array(np.logspace(0, 1, 120))
    A = sp.csr_array(scale @ fitting(name, 120) @ scale)
    b = A @ rhs(120)
    large = A.copy()
    large.data = scaled(A.data, of_A)
    if kind in ("jacobi", "spai"):
        options = {"symmetric": True, "tau": 1.0, "backend": "cpu"} if kind == "spai" else {}
        M = getattr(preconditioners, kind)(large, **options)
    else:
        M = sp.csr_array(sp.diags_array(1 / large.diagonal()))
        M = aslinearoperator(M) if kind == "operator" else M
    x, info, stats = SOLVERS[name](large, scaled(b, of_b), M=M, rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, scaled(x, of_A - of_b), b) <= 1.01e-8
    assert stats.residual == pytest.approx(float(np.linalg.norm(b - A @ scaled(x, of_A - of_b))) * 2.0**of_b, rel=1e-3)


def test_of_ordinary_scale_nothing_is_changed(name: str, solver: Solver) -> None:
    A, b, large, right = extreme(name, np.float64, 100, -100)
    x, _, stats = solver(large, right, rtol=1e-9, return_stats=True)
    plain, _ = solver(A, b, rtol=1e-9)
    assert not any("A / 2^" in note for note in stats.notes)
    np.testing.assert_allclose(scaled(x, 200), plain, rtol=1e-12, atol=0)


def test_a_guess_far_too_large_is_no_false_success(name: str, solver: Solver) -> None:
    A, b, _, right = extreme(name, np.float64, 0, -700)
    x, info, stats = solver(A, right, x0=np.ones(120), rtol=1e-6, maxiter=60, return_stats=True)
    with np.errstate(over="ignore"):
        assert (info == 0) == stats.converged == (relative(A, scaled(x, 700), b) <= 1e-6)


@pytest.mark.parametrize(("of_A", "of_b"), [(-700, 700), (700, -700)])
def test_a_solution_beyond_the_range_is_not_called_one(name: str, solver: Solver, of_A: int, of_b: int) -> None:
    _, _, large, right = extreme(name, np.float64, of_A, of_b)
    x, info, stats = solver(large, right, return_stats=True)
    assert info > 0
    assert not stats.converged
    assert "represented in float64" in stats.reason
    assert np.isfinite(x).all()


def test_a_norm_beyond_the_range_is_refused(name: str, solver: Solver) -> None:
    with pytest.raises(ArgumentError, match="norm of b"):
        solver(fitting(name, 40), np.full(40, 1.5e308))


def test_auto_takes_it_too() -> None:
    for method in ("cg", "gmres"):
        A, b, large, right = extreme(method, np.float64, -700, -700)
        x, info = solve(large, right, rtol=1e-8)
        assert info == 0
        assert relative(A, x, b) <= 1.01e-8


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_norms_and_powers_of_two(dtype: Any) -> None:
    v = rhs(50, dtype)
    size = float(np.linalg.norm(v.astype(np.result_type(dtype, np.float64))))
    most = int(np.finfo(dtype).maxexp) - 40
    for exponent in (-most, 0, most):
        far = scaled(v, exponent)
        assert norm_of(far) == pytest.approx(size * 2.0**exponent, rel=1e-5)
        assert exponent_of(far) == exponent_of(v) + exponent
        np.testing.assert_array_equal(scaled(far, -exponent), v)
    assert exponent_of(np.zeros(3, dtype)) is None
    assert norm_of(np.zeros(3, dtype)) == 0
    assert norm_of(np.array([np.inf, 1], dtype)) == np.inf
    assert np.isnan(norm_of(np.array([np.nan, np.inf], dtype)))


def test_units() -> None:
    double = np.dtype(float)
    assert not units_of(3, -5, 700, double).matrix
    assert units_of(100, -100, None, double) == Units()
    assert units_of(-300, 2, None, double) == Units(matrix=-300)
    assert units_of(0, -300, None, double) == Units(rhs=-300)
    assert units_of(0, -300, -290, double) == Units(rhs=-290)  # the residual of x0 is that large
    assert units_of(0, -900, 0, double) == Units(rhs=-900 + 256)
    assert units_of(-300, None, 5, double) == Units()
    assert units_of(17, 0, None, np.dtype(np.float32)) == Units(matrix=17)


@pytest.mark.parametrize("n", [2, 300])
@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e200), (np.complex128, 1e200), (np.float32, 1e25)])
def test_entries_that_a_scale_would_lose_are_kept(n: int, dtype: Any, size: float) -> None:
    """A solution is there, and nobody says that it is not; with a diagonal it is found."""
    A = sp.csr_array(sp.diags_array(np.where(np.arange(n) % 2, size, 1 / size).astype(dtype)))
    b = np.ones(n, dtype)
    for name, solver in {**SOLVERS, "solve": solve}.items():
        x, info, stats = solver(A, b, return_stats=True)
        assert info != -2
        assert (info == 0) == (relative(A, x, b) <= 1e-5) == stats.converged
        assert info == 0 or name != "solve"
    for name in ("cg", "gmres", "minres", "bicgstab"):
        x, info = SOLVERS[name](A, b, M="jacobi")
        assert info == 0, name
        assert relative(A, x, b) <= 1e-5


def test_couplings_of_extreme_entries_are_equilibrated() -> None:
    d = np.where(np.arange(300) % 2, 1e80, 1e-80)
    A = sp.csr_array(
        sp.diags_array(d) @ sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300)) @ sp.diags_array(d)
    )
    x, info = solve(A, d * rhs(300))
    assert info == 0
    assert relative(A, x, d * rhs(300)) <= 1e-5
