"""Mixed precision: the answers of double precision, in as many steps, and in double where single is no good."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.fake_device import FakeWork
from solvers.systems import fitting, relative, rhs, spd

import akx.solvers.corrections
import akx.solvers.mixed
from akx.core.errors import ArgumentError
from akx.solvers import Solver, preconditioners, solve
from akx.solvers.cg import cg
from akx.solvers.stats import SolveStats
from akx.solvers.system import make_system

_N = 2500
_WHY_NO_GAIN = akx.solvers.mixed._why_no_gain


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(akx.solvers.mixed, "_why_no_gain", lambda *_: "")


def grid(m: int = 50) -> sp.csr_array:
    """The 5-point Laplacian, with entries that single precision rounds."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m)) / 3
    return sp.csr_array(sp.kron(line, sp.eye_array(m)) + sp.kron(sp.eye_array(m), line))


def mixed(A: Any, b: Any, method: str = "auto", **options: Any) -> Any:
    return solve(A, b, method=method, precision="mixed", return_stats=True, **options)


def is_single(stats: Any) -> bool:
    """Whether single precision came to the end."""
    return any("steps in" in note for note in stats.notes)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_every_method_comes_to_the_accuracy_of_double_precision(name: str, dtype: Any) -> None:
    if dtype == np.complex128 and name not in ("cg", "gmres"):
        pytest.skip("kernels for complex numbers take long to compile, and are the same")
    A, b = fitting(name, _N, dtype) / 3, rhs(_N, dtype)
    x, info, stats = mixed(A, b, name, rtol=1e-12)
    assert (info, x.dtype, stats.converged, stats.method) == (0, dtype, True, name)
    assert is_single(stats), stats.notes
    assert relative(A, x, b) <= 1e-12
    assert stats.residual == stats.residuals[-1] <= stats.target
    np.testing.assert_allclose(stats.residual, np.linalg.norm(b - A @ x), rtol=0.5)
    assert x.tobytes() == mixed(A, b, name, rtol=1e-12)[0].tobytes()


@pytest.mark.parametrize("method", ["cg", "bicgstab"])
@pytest.mark.parametrize("M", [None, "jacobi"])
def test_recurrences_take_the_steps_of_double_precision(method: str, M: str | None) -> None:
    A, b = grid(), rhs(_N)
    M = None if M is None else preconditioners.jacobi(A)
    steps = solve(A, b, method=method, rtol=1e-8, M=M, return_stats=True)[2].iterations
    x, info, stats = mixed(A, b, method, rtol=1e-8, M=M)
    assert info == 0
    assert is_single(stats)
    assert stats.iterations <= (1.05 if method != "bicgstab" else 1.3) * steps
    assert relative(A, x, b) <= 1e-8


def test_a_first_guess_and_what_a_callback_is_told() -> None:
    A, exact = grid(), rhs(_N)
    b, told = A @ exact, list[Any]()
    x, info, stats = mixed(A, b, "cg", x0=exact + 1e-3 * rhs(_N, seed=1), rtol=1e-10, callback=told.append)
    assert info == 0
    assert len(told) == stats.iterations
    np.testing.assert_allclose(told[-1], x, atol=1e-7)
    assert stats.residuals[0] < 0.1 * np.linalg.norm(b)
    norms: list[float] = []
    x, info, stats = mixed(A, b, "gmres", rtol=1e-9, callback=norms.append)
    assert (info, len(norms)) == (0, stats.iterations)
    assert 1e-10 < norms[-1] <= 1e-9
    x, info, stats = mixed(A, b, "cg", x0=exact)
    assert (info, stats.iterations) == (0, 0)


def test_auto_takes_what_suits() -> None:
    A, b = grid(), rhs(_N)
    x, info, stats = mixed(A, b, rtol=1e-11)
    assert info == 0
    assert stats.notes[0] == "A is Hermitian with a positive diagonal; steps in float32, residuals and x in float64"
    assert len(stats.notes) == 3
    assert relative(A, x, b) <= 1e-11
    D = sp.diags_array(10.0 ** np.linspace(-3, 3, _N))
    x, info, stats = mixed(sp.csr_array(D @ A @ D), b, rtol=1e-8)
    assert info == 0
    assert "rows that differ" in stats.notes[0]
    skewed = sp.csr_array(A + sp.diags_array([0.2, -0.2], offsets=[1, -1], shape=A.shape))
    x, info, stats = mixed(skewed, b, rtol=1e-9)
    assert info == 0
    assert relative(skewed, x, b) <= 1e-9


@pytest.mark.parametrize(("method", "most"), [("cg", 7), ("bicgstab", 7), ("auto", 7), ("gmres", 1)])
def test_steps_run_out(method: str, most: int) -> None:
    x, info, stats = mixed(grid(), rhs(_N), method, rtol=1e-12, maxiter=most)
    assert info == stats.iterations == (30 if method == "gmres" else most)
    assert stats.residual == pytest.approx(np.linalg.norm(rhs(_N) - grid() @ x))


def test_an_ill_conditioned_system_goes_on_in_double_precision() -> None:
    n = 3000
    A = sp.csr_array(sp.diags_array(np.concatenate([np.linspace(1, 2, n - 4), [1e7, 2e7, 1e-1, 3e7]])))
    plain = solve(A, rhs(n), method="cg", rtol=1e-8, return_stats=True)[2]
    x, info, stats = mixed(A, rhs(n), "cg", rtol=1e-8)
    assert info == 0
    assert relative(A, x, rhs(n)) <= 1e-8
    hard = sp.csr_array(sp.diags_array([-1.0, 2.0 + 1e-7, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
    x, info, stats = mixed(hard, rhs(n), "cg", rtol=1e-9)
    assert info == 0
    assert relative(hard, x, rhs(n)) <= 1e-9
    assert any("went on in float64 at a residual" in note for note in stats.notes)
    assert stats.iterations <= 1.3 * solve(hard, rhs(n), method="cg", rtol=1e-9, return_stats=True)[2].iterations
    assert plain.converged


def test_what_a_single_precision_answer_cannot_be_taken_for() -> None:
    A, b = grid(), rhs(_N)
    for factor in (1e60, 1e-60):
        x, info, stats = mixed(factor * A, b, "cg", rtol=1e-9)
        assert info == 0
        assert relative(factor * A, x, b) <= 1e-9
        assert "beyond the range" in stats.notes[0]
    x, info, stats = mixed(A, 0 * b)
    assert (info, x.any()) == (0, False)
    single = mixed(A.astype(np.float32), b.astype(np.float32))
    assert (single[1], single[0].dtype) == (0, np.float32)
    path = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(_N, _N)).tolil()
    path[0, 0] = path[-1, -1] = 1.0
    x, info, stats = mixed(sp.csr_array(path), b, "cg", rtol=1e-9)
    assert info == -2


def test_small_systems_are_solved_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(akx.solvers.mixed, "_why_no_gain", _WHY_NO_GAIN)
    A, b = spd(300), rhs(300)
    x, info, stats = mixed(A, b, rtol=1e-10)
    assert info == 0
    assert "caches hold" in stats.notes[0]
    assert x.tobytes() == solve(A, b, rtol=1e-10)[0].tobytes()


def test_notes_of_gmres_are_one_line_and_others_say_of_which_correction() -> None:
    A = sp.csr_array(grid() + sp.diags_array([0.2, 0.5, -0.2], offsets=[1, 0, -1], shape=(_N, _N)))
    _, info, stats = mixed(A, rhs(_N), "gmres", rtol=1e-10, restart=5)
    assert info == 0
    cycles = -(-stats.iterations // 5)
    assert re.fullmatch(r"steps in float32, residuals and x in float64, (\d+) cycles in all", stats.notes[0])
    assert cycles <= int(stats.notes[0].split()[-4]) <= cycles + 5
    assert stats.notes[1:] == []
    told = ["7 cycles of at most 30 steps", "step 51: s raised from 3 to 6"]
    by = akx.solvers.mixed._telling("ca_gmres", lambda *_: (0, 0, SolveStats("ca_gmres", notes=list(told))))
    assert [by()[2].notes for _ in range(2)] == [[f"correction {i}: {told[1]}"] for i in (1, 2)]


def test_a_solver_keeps_both() -> None:
    A, b = grid(), rhs(_N)
    solver = Solver(A, "cg", precision="mixed")
    x, info, stats = solver(b, rtol=1e-11, return_stats=True)
    assert info == 0
    assert is_single(stats)
    assert relative(A, x, b) <= 1e-11
    solver.update_values(2 * A)
    assert relative(2 * A, solver(b, rtol=1e-11)[0], b) <= 1e-11
    assert pickle.loads(pickle.dumps(solver)).precision == "mixed"


def test_words_that_are_wrong() -> None:
    with pytest.raises(ArgumentError, match="precision"):
        solve(grid(), rhs(_N), precision="single")
    with pytest.raises(ArgumentError, match="precision"):
        Solver(grid(), precision="half")
    with pytest.raises(ArgumentError, match="recycled"):
        Solver(grid(), "gmres", precision="mixed", recycle=3)


def test_a_replaced_residual_leaves_the_directions() -> None:
    A, b = grid(20), rhs(400)
    system = make_system("cg", A, b, rtol=1e-10)
    V = system.rows(4)
    V[2], V[3] = b, 0
    system.stats.residuals.append(system.norm_b)
    steps = akx.solvers.corrections.steps_of(system, V, 400)
    steps.begin(system.norm_b)
    while steps.norm > system.target:
        assert not steps.step()
        norm = system.residual(V[3], V[1])
        assert not steps.replace(V[1].copy(), norm)
    assert system.stats.iterations <= cg(A, b, rtol=1e-10, return_stats=True)[2].iterations + 1


def test_vectors_of_another_precision() -> None:
    for dtype in (np.float64, np.complex128):
        v, work = rhs(70, dtype), FakeWork(np.dtype(dtype).str.replace("8", "4").replace("16", "8"), 70).host
        found = work.taken(v, 0.5)
        assert found.dtype == work.dtype
        np.testing.assert_array_equal(found, (0.5 * v).astype(work.dtype))


@pytest.mark.parametrize("method", ["gmres", "ca_gmres"])
@pytest.mark.parametrize("diagonal", [0.7, 0.8])
def test_a_limit_of_cycles_is_one_of_all_corrections(method: str, diagonal: float) -> None:
    A, b = sp.csr_array(sp.diags_array([-1 / 3, diagonal, -1 / 3], offsets=[-1, 0, 1], shape=(_N, _N))), rhs(_N)
    x, info, stats = mixed(A, b, method, maxiter=1, rtol=1e-10)
    assert 0 < info == stats.iterations <= 30
    assert relative(A, x, b) > 1e-10
    x, info, stats = mixed(A, b, method, maxiter=3, rtol=1e-14)
    assert 0 < info <= 90


def test_a_callback_of_the_type_legacy_makes_it_one_of_steps() -> None:
    A, b = grid(), rhs(_N)
    solver = Solver(A, "gmres", callback_type="legacy", precision="mixed")
    _, info, stats = solver(b, rtol=1e-10, maxiter=7, callback=lambda _: None, return_stats=True)
    assert (info, stats.iterations) == (7, 7)


def test_the_reason_has_the_steps_of_both_precisions() -> None:
    stats = mixed(grid(), rhs(_N), "bicgstab", rtol=1e-12, maxiter=40)[2]
    assert (stats.iterations, stats.reason) == (40, "not converged after 40 steps")
