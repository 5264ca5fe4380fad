"""GMRES and communication-avoiding GMRES: the same problems, the same answers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from solvers.systems import nonsymmetric, relative, rhs

from akx.core.basis import newton
from akx.core.errors import ArgumentError, ArgumentTypeError, PlanError
from akx.core.io import read_matrix
from akx.krylov.hessenberg import HessenbergQR
from akx.operator import MatrixPowers
from akx.solvers import Solver as Prepared
from akx.solvers.ca_gmres import _most_steps, _Steps, ca_gmres
from akx.solvers.gmres import Cycles, gmres
from akx.solvers.system import System, make_system

module = import_module("akx.solvers.ca_gmres")
BOTH = pytest.mark.parametrize("solve", [gmres, ca_gmres])
TYPES = [np.float32, np.float64, np.complex64, np.complex128]
Solver = Callable[..., Any]


def matrix(n: int = 400, dtype: Any = float, shift: float = 3.0) -> sp.csr_array:
    A = sp.diags_array([-1.0, shift, -1.5, 0.3], offsets=[-1, 0, 1, 7], shape=(n, n))
    if np.dtype(dtype).kind == "c":
        A = sp.csr_array(A) + 1j * sp.csr_array(sp.diags_array(np.linspace(-1, 1, n)))
    return sp.csr_array(A.astype(dtype))


def vector(n: int, dtype: Any = float, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(n)
    return (v + 1j * rng.standard_normal(n) if np.dtype(dtype).kind == "c" else v).astype(dtype)


def misfit(A: Any, x: Any, b: Any) -> float:
    return float(np.linalg.norm(b - A @ x) / np.linalg.norm(b))


@BOTH
@pytest.mark.parametrize("dtype", TYPES)
def test_all_types_reach_the_tolerance(solve: Solver, dtype: Any) -> None:
    A, b = matrix(dtype=dtype), vector(400, dtype)
    rtol = 2e-5 if np.finfo(dtype).eps > 1e-10 else 1e-11
    x, info, stats = solve(A, b, rtol=rtol, return_stats=True)
    assert (info, x.dtype, x.shape) == (0, np.dtype(dtype), (400,))
    assert misfit(A, x, b) <= 1.01 * rtol
    assert stats.converged
    assert stats.residual <= stats.target
    assert len(stats.residuals) == stats.iterations + 2
    np.testing.assert_allclose(x, sla.spsolve(A.tocsc(), b), rtol=0, atol=50 * rtol * np.abs(x).max())


def test_the_iterates_are_scipys() -> None:
    A, b = matrix(), vector(400)
    ours: list[float] = []
    theirs: list[float] = []
    x, info, stats = gmres(A, b, rtol=1e-9, restart=20, callback=ours.append, return_stats=True)
    y, _ = sla.gmres(A, b, rtol=1e-9, restart=20, callback=theirs.append, callback_type="pr_norm")
    assert info == 0
    assert stats.iterations == len(ours)
    assert abs(len(ours) - len(theirs)) <= 1
    both = min(len(ours), len(theirs))
    np.testing.assert_allclose(ours[:both], theirs[:both], rtol=1e-6)
    np.testing.assert_allclose(x, y, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("s", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("basis", ["newton", "chebyshev", "monomial"])
def test_every_step_is_that_of_gmres(dtype: Any, s: int, basis: str) -> None:
    """s divides the cycle or not: each step's residual is the classic one's."""
    A, b = matrix(dtype=dtype), vector(400, dtype)
    _, _, classic = gmres(A, b, rtol=1e-9, restart=22, return_stats=True)
    _, info, stats = ca_gmres(A, b, rtol=1e-9, restart=22, s=s, basis=basis, return_stats=True)
    assert info == 0
    assert stats.iterations == classic.iterations
    np.testing.assert_allclose(stats.residuals, classic.residuals, rtol=1e-4)
    if s > 1:
        assert set(stats.s) == {s}
        assert stats.matrix_passes < (0.55 if s == 2 else 0.4) * classic.matrix_passes + 2 * s


def test_a_basis_that_is_no_use_has_s_lowered() -> None:
    """Powers of A soon point in one direction; Newton's basis of the same length does not."""
    A, b = matrix(shift=2.8), vector(400)
    classic = gmres(A, b, rtol=1e-9, restart=60, return_stats=True)[2]
    for basis in ("monomial", "newton"):
        _, info, stats = ca_gmres(A, b, rtol=1e-9, restart=60, s=16, basis=basis, return_stats=True)
        assert (info, stats.iterations) == (0, classic.iterations)
        np.testing.assert_allclose(stats.residuals[:-1], classic.residuals[:-1], rtol=1e-3)
        lowered = [note for note in stats.notes if "lowered from 16 to 8" in note]
        assert (len(lowered) > 0) == (basis == "monomial")
        assert min(stats.s) == (8 if basis == "monomial" else 16)


def test_a_lowered_s_is_raised_after_good_steps() -> None:
    system = make_system("ca_gmres", matrix(), vector(400))
    steps = _Steps(system, Cycles(system, 30, None, "pr_norm"), 8, "auto", None, False, 8)
    steps._lower(2, "test")
    for expected in (2, 2, 2, 2, 2, 2, 2, 4):
        steps._raise_later(True)
        assert steps.s == expected
    steps._raise_later(False)
    for _ in range(8):
        assert steps.s == 4
        steps._raise_later(True)
    assert steps.s == 8
    assert [note.split(": ")[1] for note in system.stats.notes] == [
        "test, s lowered from 8 to 2",
        "s raised from 2 to 4",
        "s raised from 4 to 8",
    ]


def test_a_cycle_that_falls_short_is_followed_by_an_ordinary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of H that are wrong: the true residual tells, x is taken back, and the solve goes on and converges."""

    def spoiled(*arguments: Any) -> Any:
        return new_columns(*arguments) * 1.5

    new_columns = module.new_columns
    monkeypatch.setattr(module, "new_columns", spoiled)
    A, b = matrix(shift=2.8), vector(400)
    x, info, stats = ca_gmres(A, b, rtol=1e-9, return_stats=True)
    assert info == 0
    assert misfit(A, x, b) <= 1e-9
    assert any("the next is ordinary" in note for note in stats.notes)


def test_cycles_that_get_nowhere_as_they_say_are_no_fault_of_blocks() -> None:
    """Shifting around in a circle: every cycle shorter than n leaves the residual as it was, of blocks or not."""
    n = 300
    A = sp.csr_array((np.ones(n), (np.roll(np.arange(n), -1), np.arange(n))), shape=(n, n))
    b = np.zeros(n)
    b[0] = 1.0
    _, _, stats = ca_gmres(A, b, restart=20, maxiter=6, s=4, return_stats=True, backend="cpu")
    assert stats.residuals[-1] == pytest.approx(1.0)
    assert set(stats.s) == {4}
    assert not any("ordinary" in note for note in stats.notes)


@BOTH
def test_zero_right_hand_side_and_exact_guess(solve: Solver) -> None:
    A, b = matrix(50), vector(50)
    x, info, stats = solve(A, np.zeros(50), x0=np.ones(50), return_stats=True)
    assert info == 0
    assert not x.any()
    exact = sla.spsolve(A.tocsc(), b)
    x, info, stats = solve(A, b, x0=exact, rtol=1e-10, return_stats=True)
    assert (info, stats.iterations) == (0, 0)
    np.testing.assert_array_equal(x, exact)
    x, info = solve(A, b[:, None], x0=exact[:, None] + 1e-3)
    assert (info, x.shape) == (0, (50, 1))


@BOTH
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_systems_end_in_an_invariant_space(solve: Solver, n: int) -> None:
    A = sp.csr_array(np.diag(np.arange(1.0, n + 1)) + np.eye(n, k=1))
    x, info, stats = solve(A, np.ones(n), rtol=1e-13, return_stats=True)
    assert info == 0
    assert stats.iterations <= n
    assert misfit(A, x, np.ones(n)) <= 1e-13


@BOTH
def test_the_identity_takes_one_step(solve: Solver) -> None:
    x, info, stats = solve(sp.csr_array(4.0 * sp.eye_array(60)), np.arange(60.0), rtol=1e-14, return_stats=True)
    assert (info, stats.iterations) == (0, 1)
    np.testing.assert_allclose(x, np.arange(60) / 4)


@BOTH
def test_few_eigenvalues_end_within_a_block(solve: Solver) -> None:
    """20 of them: the Krylov space is exhausted in the second block of eight or so, and x is exact."""
    d = np.tile(np.arange(1.0, 21.0), 10)
    A, b = sp.csr_array(sp.diags_array(d)), vector(200)
    x, info, stats = solve(A, b, rtol=1e-12, restart=40, return_stats=True)
    assert info == 0
    assert stats.iterations <= 21
    np.testing.assert_allclose(x, b / d, rtol=1e-9)


@BOTH
def test_singular_systems(solve: Solver) -> None:
    A = sp.lil_array(sp.diags_array(np.linspace(1, 3, 40)))
    A[7:9, 7:9] = 1
    A = sp.csr_array(A)
    consistent, inconsistent = vector(40), np.ones(40)
    consistent[7], inconsistent[7] = consistent[8], -1
    x, info = solve(A, consistent, rtol=1e-10)
    assert info == 0
    assert misfit(A, x, consistent) <= 1e-10
    x, info, stats = solve(A, inconsistent, rtol=1e-10, return_stats=True)
    assert info != 0
    assert not stats.converged
    assert "singular" in stats.reason or "stagnation" in stats.reason
    assert stats.residual == pytest.approx(2**0.5, rel=1e-6)  # the least there is
    assert np.isfinite(x).all()


@BOTH
def test_no_progress_is_named(solve: Solver) -> None:
    """A cyclic shift: the residual does not move before step n."""
    A = sp.csr_array(np.roll(np.eye(60), 1, axis=0))
    x, info, stats = solve(A, np.eye(60)[0], restart=20, return_stats=True)
    assert info > 0
    assert "stagnation" in stats.reason
    x, info = solve(A, np.eye(60)[0], restart=60)
    assert info == 0
    np.testing.assert_allclose(A @ x, np.eye(60)[0], atol=1e-12)


def _spoiled(monkeypatch: pytest.MonkeyPatch, cycles: set[int]) -> list[int]:
    """Cycles of these numbers end with a wrong y; the steps of all of them."""
    sizes: list[int] = []
    right = HessenbergQR.solve

    def solved(self: HessenbergQR) -> Any:
        sizes.append(self.size)
        return right(self) * (50 if len(sizes) in cycles else 1)

    monkeypatch.setattr(HessenbergQR, "solve", solved)
    return sizes


def test_a_cycle_that_was_spoiled_is_followed_by_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = _spoiled(monkeypatch, {2, 3, 5})
    A, b = matrix(), vector(400)
    x, info, stats = gmres(A, b, restart=8, rtol=1e-8, return_stats=True)
    assert info == 0
    assert misfit(A, x, b) <= 1e-8
    assert sizes[:7] == [8, 8, 4, 2, 8, 4, 8]
    assert sum("taken back" in note for note in stats.notes) == 3


@BOTH
def test_a_cycle_that_is_spoiled_each_time_is_the_end(solve: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = _spoiled(monkeypatch, set(range(2, 99)))
    _, info, stats = solve(matrix(), vector(400), restart=8, rtol=1e-8, return_stats=True)
    assert info == stats.iterations > 0
    assert stats.reason == (
        "stagnation: a cycle of 8 steps made no progress, nor would the next; a larger restart or M may help"
    )
    # each of blocks is followed by one of as many ordinary steps
    assert sizes[1:] == ([8, 4, 2, 1] if solve is gmres else [8, 8, 4, 4, 2, 2, 1])


def test_a_cycle_without_progress_that_was_taken_back_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding errors raise the residual a little: the next cycles are longer, where they may be."""
    A, b = sp.csr_array(np.roll(np.eye(100), 1, axis=0)), np.eye(100)[0]
    right = System.residual
    monkeypatch.setattr(
        System, "residual", lambda self, x, out: right(self, x, out) * (1 + 1e-15 * self.stats.products)
    )
    _, info, stats = gmres(A, b, return_stats=True)
    assert (info, stats.iterations) == (0, 30 + 60 + 100)
    _, info, stats = gmres(A, b, restart=30, return_stats=True)
    assert (info, stats.iterations) == (30, 30)
    assert "a larger restart or M may help" in stats.reason


@BOTH
def test_no_callback_type_is_scipys(solve: Solver) -> None:
    A, b = matrix(shift=2.0), vector(400)
    options: dict[str, Any] = {"rtol": 1e-12, "restart": 10, "maxiter": 3, "callback_type": None}
    assert solve(A, b, callback=lambda _: None, **options)[1] == 3
    assert solve(A, b, **options)[1] == 30  # nothing is called, so that its type means nothing


@BOTH
def test_idle_cycles_far_from_rounding_do_no_work_for_it(solve: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's cycle takes less time than the product of |A| by the host."""

    def refuse(self: Cycles) -> Any:
        raise AssertionError("|A| was asked for")

    monkeypatch.setattr(Cycles, "_moduli", property(refuse))
    A = sp.csr_array(np.roll(np.eye(60), 1, axis=0))
    assert "stagnation" in solve(A, np.eye(60)[0], restart=20, return_stats=True)[2].reason
    with pytest.raises(AssertionError, match="asked for"):
        solve(matrix(), vector(400), rtol=0.0)


@BOTH
def test_cycles_without_progress_become_longer_where_that_was_left_to_the_solver(solve: Solver) -> None:
    A, b = sp.csr_array(np.roll(np.eye(100), 1, axis=0)), np.eye(100)[0]
    x, info, stats = solve(A, b, return_stats=True)
    assert info == 0
    np.testing.assert_allclose(A @ x, b, atol=1e-12)
    assert [note.split(": ")[1] for note in stats.notes if "no progress" in note] == [
        "no progress by cycles of 30 steps, the next are of 60",
        "no progress by cycles of 60 steps, the next are of 100",
    ]
    assert solve(A, b, restart=30, maxiter=100)[1] > 0


@pytest.mark.parametrize(
    ("gains", "stops"),
    [
        ([1e-9] * 10, True),
        ([1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 0, 0, 0], True),
        ([0.0] * 10, True),
        ([1e-12 * 2**j for j in range(10)], False),  # leaving a point where cycles of this length stay
        ([0.0] * 4 + [1e-3] + [0.0] * 5, False),  # not for long
        ([1e-7] * 10, False),  # slow
        ([1e-9] * 9, False),  # too few to judge by
    ],
)
def test_stagnation_is_progress_that_is_small_and_falls(gains: list[float], stops: bool) -> None:
    cycles = Cycles(make_system("gmres", matrix(), vector(400)), 30, None, "pr_norm")
    cycles._history = [1.0, *np.cumprod(1 - np.array(gains)).tolist()]
    assert cycles._stagnates() is stops


@BOTH
def test_what_rounding_errors_allow_is_named(solve: Solver) -> None:
    x, info, stats = solve(matrix(), vector(400), rtol=0.0, return_stats=True)
    assert info == stats.iterations > 0
    assert "rounding errors" in stats.reason
    assert misfit(matrix(), x, vector(400)) < 1e-14


@BOTH
def test_iterations_run_out(solve: Solver) -> None:
    A, b = matrix(shift=2.0), vector(400)
    x, info, stats = solve(A, b, rtol=1e-12, restart=10, maxiter=2, return_stats=True)
    assert info == stats.iterations == 20
    assert "ran out" in stats.reason
    assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x))
    _, info = solve(A, b, rtol=1e-12, restart=10, maxiter=13, callback_type="legacy", callback=lambda _: None)
    assert info == 13
    assert solve(A, b, maxiter=0)[1] > 0


@BOTH
def test_callbacks(solve: Solver) -> None:
    A, b = matrix(), vector(400)
    norms: list[float] = []
    _, _, stats = solve(A, b, rtol=1e-8, callback=norms.append, return_stats=True)
    assert norms[-1] <= 1e-8
    assert all(type(norm) is np.float64 and norm.ndim == 0 for norm in norms)
    assert len(norms) == (stats.iterations if solve is gmres else len(norms))
    if solve is ca_gmres:
        assert len(norms) < stats.iterations
    xs: list[Any] = []
    x, _, stats = solve(A, b, rtol=1e-8, restart=12, callback=lambda x: xs.append(x.copy()), callback_type="x",
                        return_stats=True)  # fmt: skip
    assert len(xs) == -(-stats.iterations // 12)
    np.testing.assert_array_equal(xs[-1], x)


@BOTH
def test_the_same_input_gives_the_same_bits(solve: Solver) -> None:
    A, b = matrix(5000), vector(5000)
    first, second = (solve(A, b, rtol=1e-9)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_preconditioners_work_from_the_right() -> None:
    A = matrix() @ sp.diags_array(np.logspace(-3, 3, 400))
    b = vector(400)
    inverse = sp.diags_array(np.logspace(3, -3, 400))
    seen: list[float] = []
    x, info, stats = gmres(A, b, M=inverse, rtol=1e-9, callback=seen.append, return_stats=True)
    _, _, plain = gmres(matrix(), b, rtol=1e-9, return_stats=True)
    assert info == 0
    assert misfit(A, x, b) <= 1e-9
    assert stats.iterations == plain.iterations
    np.testing.assert_allclose(stats.residuals, plain.residuals, rtol=1e-5)
    exact = sla.LinearOperator(A.shape, sla.splu(A.tocsc()).solve, dtype=float)
    _, info, stats = gmres(A, b, M=exact, rtol=1e-9, return_stats=True)
    assert (info, stats.iterations) == (0, 1)


class _Diagonal(sla.LinearOperator):  # type: ignore[misc]
    """M = D^-1, part of the matrix from the right."""

    folds, keeps_residual, name = True, True, "scaling"

    def __init__(self, d: Any) -> None:
        super().__init__(np.dtype(float), (d.size, d.size))
        self.d = d

    def apply_to(self, A: Any) -> Any:
        return A.with_values(A.data / self.d[A.indices])

    def solution(self, y: Any) -> Any:
        return y / self.d

    def _matvec(self, x: Any) -> Any:
        return x.reshape(-1) / self.d


def test_what_folds_becomes_part_of_the_matrix() -> None:
    d = np.logspace(-3, 3, 400)
    A = sp.csr_array(matrix() @ sp.diags_array(d))
    b, x0 = vector(400), vector(400, seed=1) / d
    x, info, stats = ca_gmres(A, b, x0=x0, M=_Diagonal(d), rtol=1e-9, return_stats=True)
    _, _, classic = gmres(A, b, x0=x0, M=_Diagonal(d), rtol=1e-9, return_stats=True)
    assert info == 0
    assert misfit(A, x, b) <= 1e-9
    assert abs(stats.iterations - classic.iterations) <= 1


def test_a_plan_is_for_its_s() -> None:
    A, b = matrix(), vector(400)
    plan = MatrixPowers(A, 5, basis=newton([1.0], 5)).plan
    _, info, stats = ca_gmres(A, b, rtol=1e-9, plan=plan, return_stats=True)
    assert info == 0
    assert set(stats.s) == {5}
    with pytest.raises(PlanError):
        ca_gmres(A, b, s=4, rtol=1e-9, plan=plan)


@pytest.mark.parametrize(
    ("restart", "s", "long"),
    [(30, 6, 10), (20, 5, 10), (40, 8, 10), (32, 8, 8), (7, 7, 7), (31, 8, 11), (1, 1, 1), (12, 6, 12), (60, 6, 12)],
)
def test_the_s_of_auto_divides_the_cycle(restart: int, s: int, long: int) -> None:
    assert (_most_steps("auto", None, restart, 8), _most_steps("auto", None, restart, 12)) == (s, long)


def test_auto_takes_long_blocks_where_they_are_of_use() -> None:
    A, b = matrix(), vector(400)
    for most, kind, options in ((10, "d", {}), (6, "d", {"basis": "monomial"}), (6, "f", {}), (10, "D", {})):
        _, info, stats = ca_gmres(A.astype(kind), b.astype(kind), rtol=1e-4, restart=30, return_stats=True, **options)
        assert (info, max(stats.s)) == (0, most)


@BOTH
def test_no_product_is_finite(solve: Solver) -> None:
    A = sp.csr_array(sp.diags_array([np.full(40, 1e200), np.full(39, 1e250)], offsets=[0, 1]))
    with np.errstate(all="ignore"):
        assert solve(A, np.ones(40), x0=np.full(40, 1e200))[1] < 0  # not even the first residual
        x, info, stats = solve(A, np.full(40, 1e100), return_stats=True)
    assert info != 0
    assert not stats.converged
    assert np.isfinite(x).all()
    assert stats.reason


@BOTH
def test_badly_scaled_systems(solve: Solver) -> None:
    """Rows and b of any size: nothing depends on units."""
    A, b = matrix(), vector(400)
    reference = solve(A, b, rtol=1e-8, return_stats=True)[2]
    for of_matrix, of_b in ((1e-60, 1e60), (1e90, 1e-60), (1e-120, 1e-120)):
        x, info, stats = solve(of_matrix * A, of_b * b, rtol=1e-8, return_stats=True)
        assert info == 0
        assert abs(stats.iterations - reference.iterations) <= 1
        assert misfit(A, x * (of_matrix / of_b), b) <= 1.01e-8


@pytest.mark.parametrize("bad", [{"restart": 0}, {"restart": 2.5}, {"maxiter": -1}, {"callback_type": "xk"}])
@BOTH
def test_bad_arguments(solve: Solver, bad: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        solve(matrix(10), np.ones(10), **bad)


@pytest.mark.parametrize("bad", [{"s": 0}, {"s": "most"}, {"s": True}, {"basis": "legendre"}])
def test_bad_arguments_of_the_basis(bad: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        ca_gmres(matrix(10), np.ones(10), **bad)


@pytest.mark.parametrize(("name", "rtol"), [("cage10", 1e-8), ("helmholtz_2D", 1e-8), ("wang4", 1e-4)])
@pytest.mark.parametrize("s", [4, 8])
def test_real_matrices_take_no_more_steps(shared_matrices: Path, name: str, rtol: float, s: int) -> None:
    A = read_matrix(shared_matrices / f"{name}.mtx.gz")
    b = A @ vector(A.shape[0], A.dtype)
    x, info, stats = ca_gmres(A, b, rtol=rtol, s=s, return_stats=True)
    _, classic_info, classic = gmres(A, b, rtol=rtol, return_stats=True)
    assert (info, classic_info) == (0, 0)
    assert misfit(A, x, b) <= rtol
    assert stats.iterations <= 1.1 * classic.iterations
    assert stats.matrix_passes < classic.matrix_passes


def test_columns_of_the_small_problem() -> None:
    rng = np.random.default_rng(0)
    H = np.triu(rng.standard_normal((7, 6)) + 1j * rng.standard_normal((7, 6)), -1)
    qr = HessenbergQR(2.0)
    for j in range(6):
        found = qr.append(H[: j + 2, j])
        y = np.linalg.lstsq(H[: j + 2, : j + 1], 2.0 * np.eye(j + 2)[0], rcond=None)[0]
        np.testing.assert_allclose(qr.solve(), y)
        assert found == pytest.approx(np.linalg.norm(2.0 * np.eye(j + 2)[0] - H[: j + 2, : j + 1] @ y))
    np.testing.assert_array_equal(qr.matrix(), H)
    np.testing.assert_allclose(np.sort(qr.ritz()), np.sort(np.linalg.eigvals(H[:6])))
    for room in (2, 32):
        one, at_once = HessenbergQR(2.0), HessenbergQR(2.0, room)
        at_once.append(H[:2, 0])
        wanted = [one.append(H[: j + 2, j]) for j in range(6)]
        np.testing.assert_array_equal(at_once.extend(H[:, 1:], 0.0, 2), wanted[1:3])  # as many as are allowed
        np.testing.assert_array_equal(at_once.extend(H[:, 3:], wanted[4], 9), wanted[3:5])  # as many as it takes
        assert (at_once.size, at_once.residual) == (5, wanted[4])
        np.testing.assert_array_equal(at_once.matrix(), H[:6, :5])
        at_once.append(H[:, 5])
        np.testing.assert_allclose(at_once.solve(), one.solve())
    dependent = HessenbergQR(1.0)
    assert dependent.append(np.array([0.0, 1.0])) == 1.0
    assert dependent.append(np.array([0.0, 0.0, 0.0])) == 1.0
    assert np.isfinite(dependent.solve()).all()


@pytest.mark.parametrize(("n", "restart", "s", "most"), [(300, 6, 10, 6), (300, 10, 10, 10), (9, None, 12, 9)])
def test_more_steps_per_pass_than_a_cycle_has_are_lowered_with_a_note(n: int, restart: Any, s: int, most: int) -> None:
    A, b = nonsymmetric(n), rhs(n)
    _, info, stats = ca_gmres(A, b, rtol=1e-8, restart=restart, s=s, return_stats=True)
    assert info == 0
    assert max(stats.s, default=0) <= most
    assert (f"s lowered from {s} to {most}, the steps of a cycle" in stats.notes) == (s > most)


@pytest.mark.parametrize("solve", [gmres, ca_gmres])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_reaches_what_rounding_allows(solve: Solver, dtype: Any) -> None:
    """Cycles that end at the tolerance end above it, by what x is rounded: the next ones are to go further."""
    line, one = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40)), sp.eye_array(40)
    A = sp.csr_array(sp.kron(line, one) + sp.kron(one, line)).astype(dtype)
    for b, rtol in ((rhs(1600, dtype), 1e-6), (np.ones(1600, dtype), 1e-5)):
        x, info, stats = solve(A, b, rtol=rtol, return_stats=True)
        assert info == 0, stats.reason
        assert relative(A.astype(complex), x, b) <= 1.01 * rtol
    x, info, stats = solve(A, np.ones(1600, dtype), rtol=1e-8, return_stats=True)
    assert info > 0
    assert "rounding errors" in stats.reason


@pytest.mark.parametrize("solve", [gmres, ca_gmres])
def test_maxiter_cycles_of_restart_steps_bound_the_steps(solve: Solver) -> None:
    """Where cycles become longer, and the first ones that recycle are."""
    A = sp.csr_array(sp.diags_array([np.ones(299), np.ones(1)], offsets=[1, -299]))  # no progress before step 300
    b = np.zeros(300)
    b[0] = 1
    assert solve(A, b, maxiter=12)[1] <= 12 * 30
    hard, B = (
        sp.csr_array(sp.diags_array(np.geomspace(1e-4, 1, 900))),
        np.random.default_rng(0).standard_normal((900, 3)),
    )
    _, info, stats = solve(hard, B, restart=10, maxiter=4, rtol=1e-12, return_stats=True)
    assert 0 < info <= 40
    assert all(record.iterations <= 40 for record in stats.columns)
    recycling = Prepared(hard, "gmres", restart=10, recycle=5)
    assert 0 < recycling(B[:, 0], maxiter=1, rtol=1e-12)[1] <= 10


@BOTH
def test_where_the_space_ends_it_is_said_what_is_singular(solve: Solver) -> None:
    A, b = sp.csr_array(nonsymmetric(60)), rhs(60)
    for M in (sp.csr_array(A.shape), sla.LinearOperator(A.shape, matvec=np.zeros_like, dtype=float)):
        _, info, stats = solve(A, b, M=M, return_stats=True)
        assert (info, stats.reason) == (-1, "breakdown: M r = 0 for the residual r: M is singular")
    shift = sp.csr_array(sp.eye_array(3, k=1))
    for M, what in ((None, "A"), (sp.eye_array(3, format="csr"), "A M")):
        _, info, stats = solve(shift, np.array([1.0, 1, 0]), M=M, return_stats=True)
        assert info == -1
        assert stats.reason == f"breakdown: the Krylov space is exhausted, {what} is singular or close to it"


@BOTH
def test_an_exhausted_space_is_no_breakdown_where_the_residual_is_of_rounding_errors(solve: Solver) -> None:
    B = np.random.default_rng(2).standard_normal((10, 10))
    A, b = sp.csr_array((B @ B.T).astype(np.float32)), rhs(10).astype(np.float32)
    _, info, stats = solve(A, b, rtol=1e-12, return_stats=True)
    assert info > 0
    assert "stagnation" in stats.reason
