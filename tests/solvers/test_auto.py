"""``solve``: the family by the matrix, classic or not by measurement, and the next one where one does not get there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator
from solvers.fake_device import FakeWork
from solvers.systems import is_of_hermitian, nonsymmetric, relative, rhs, spd

import akx.solvers
import akx.solvers.system
from akx.core.errors import ArgumentError, ArgumentTypeError, BudgetError, DeviceMemoryError, InfeasibleError, PlanError
from akx.core.matrix import Matrix
from akx.solvers import SOLVERS, SolveStats, auto, host_fallback, pilot, solve, solver_pair, solving
from akx.solvers.arguments import BY_STEPS
from akx.solvers.ladder import Ladder
from akx.solvers.monitor import ENDED, Watched
from akx.solvers.preconditioners import jacobi, spai


def indefinite(n: int) -> Any:
    """Symmetric, with a diagonal that says that it is not positive definite."""
    return sp.csr_array(spd(n) - 9 * sp.eye_array(n))


def skew(n: int) -> Any:
    """Skew-symmetric, and complex, which no method but gmres is for."""
    return sp.csr_array((1 + 1j) * sp.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]))


def _folding(n: int) -> Any:
    """A preconditioner that says it can be made part of a matrix."""
    made = aslinearoperator(sp.eye_array(n))
    made.folds = True
    return made


class _Fake:
    """Solvers on a clock of their own, that take a known time for each step and as many steps as they are told.

    x is the number of steps that are done, the residual falls by the same factor with each of them, and gmres has
    cycles of ten.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = dict.fromkeys(SOLVERS, 1.0)
        self.needs = 400
        self.useless: set[str] = set()  # without a basis
        self.fails: set[str] = set()
        self.setup = 0.0
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.measuring = 0.0

    @property
    def names(self) -> list[str]:
        """Of the solvers that were called, those on trial with a question mark."""
        return [name + "?" * (options["rtol"] == 1e-14) for name, options in self.calls]

    def solver(self, name: str) -> Callable[..., Any]:
        def run(A: Any, b: Any, x0: Any = None, *, callback: Any = None, **options: Any) -> Any:
            self.calls.append((name, {"x0": x0, **options}))
            begun, watch = self.now, callback.watch if isinstance(callback, Watched) else None
            done = 0 if x0 is None else int(x0[0])
            cycle = 10 if name.endswith("gmres") else 4 if name.startswith("ca_") else 1
            limit = options["maxiter"]
            limit *= 10 if name.endswith("gmres") and options.get("callback_type") != BY_STEPS else 1
            stats = SolveStats(method=name, target=1e-8)
            stats.seconds = {"matrix": 0.0, "setup": self.setup}
            self.now += self.setup
            first, info = done, 0
            stats.residuals.append(10 ** (-8 * done / self.needs))
            while done < self.needs or name in self.fails:
                if watch is not None and watch.due(stats) and watch.ends(stats, 1e-8):
                    info, stats.reason = max(1, stats.iterations), ENDED
                    break
                size = min(cycle, first + limit - done)
                if size == 0:
                    info, stats.reason = max(1, limit), "out of steps"
                    break
                done += size
                self.now += size * self.seconds[name]
                stats.seconds["matrix"] += size * self.seconds[name]
                stats.iterations += size
                stats.s += [] if not name.startswith("ca_") or name in self.useless else [size]
                stats.residuals.append(10 ** (-8 * min(done / self.needs, 0.9 if name in self.fails else 1.0)))
            stats.residual = stats.residuals[-1]
            stats.converged = info == 0
            self.measuring += (self.now - begun) * (options["rtol"] == 1e-14)
            return np.full(np.size(b), float(done)), info, stats

        return run


@pytest.fixture
def fake(methods_first: None, monkeypatch: pytest.MonkeyPatch) -> _Fake:
    made = _Fake()
    clock = SimpleNamespace(perf_counter=lambda: made.now)
    monkeypatch.setattr(auto, "time", clock)
    monkeypatch.setattr(pilot, "time", clock)
    solvers = {name: made.solver(name) for name in made.seconds}
    for module in (akx.solvers, solving, solver_pair):
        monkeypatch.setattr(module, "SOLVERS", solvers)
    monkeypatch.setattr(solver_pair, "_chosen", {})
    monkeypatch.setattr(solver_pair, "_SMALL", 10)
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self, call: None)  # which is tested by itself
    return made


def test_the_family_goes_by_the_matrix(fake: _Fake) -> None:
    def of(A: Any) -> list[str]:
        return auto.families_for(Matrix.from_any(A))[0]

    assert of(spd(30)) == ["cg", "minres", "gmres"]
    assert of(spd(30, complex)) == ["cg", "minres", "gmres"]
    assert of(spd(30) - 9 * sp.eye_array(30)) == ["minres", "gmres"]
    D = sp.diags_array(np.linspace(0.1, 7.0, 30))
    assert of(D @ (spd(30) * 1.1) @ D) == ["cg", "minres", "gmres"]
    assert of(nonsymmetric(30)) == ["bicgstab", "gmres"]
    assert of(sp.csr_array(spd(30).astype(complex) + 1j * sp.eye_array(30))) == ["bicgstab", "gmres"]  # not Hermitian
    S = sp.diags_array([-1.0, 1.0], offsets=[-1, 1], shape=(9, 9))
    assert of(S) == of(S - 2 * sp.eye_array(9)) == ["minres", "gmres"]
    assert of(skew(9)) == ["gmres"]


def of_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows."""
    monkeypatch.setattr(solver_pair, "_chosen", {})


def test_a_short_solve_measures_nothing(fake: _Fake) -> None:
    fake.needs, fake.seconds["ca_cg"] = 100, 0.1
    for _ in range(3):
        _, info, stats = solve(spd(500), np.ones(500), return_stats=True)
        assert (info, stats.method, stats.iterations) == (0, "cg", 100)
        assert any("ca_cg has not been timed on this matrix yet" in note for note in stats.notes)
    assert fake.names == ["cg"] * 3


@pytest.mark.parametrize("family", ["cg", "minres", "bicgstab", "gmres"])
@pytest.mark.parametrize("ca", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("setup", [0.0, 5.0, 50.0])
@pytest.mark.parametrize("needs", [50, 200, 400, 800, 4000])
def test_measuring_takes_a_quarter_of_the_solve_at_most(
    fake: _Fake, family: str, ca: float, setup: float, needs: int
) -> None:
    A = {"cg": spd, "minres": indefinite, "bicgstab": nonsymmetric, "gmres": skew}[family](500)
    fake.needs, fake.seconds[f"ca_{family}"], fake.setup = needs, ca, setup
    _, info, stats = solve(A, np.ones(500), return_stats=True, rtol=1e-6)
    assert info == 0
    assert fake.measuring <= 0.25 * fake.now
    assert stats.seconds["choose"] >= fake.measuring
    if needs == 4000 and setup < 50:
        assert f"ca_{family}?" in fake.names


@pytest.mark.parametrize("family", ["cg", "minres", "bicgstab", "gmres"])
def test_a_counterpart_with_a_shorter_step_goes_on(fake: _Fake, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    fake.needs, fake.seconds[f"ca_{family}"] = 4000, 0.5
    A = {"cg": spd, "minres": indefinite, "bicgstab": nonsymmetric, "gmres": skew}[family](500)
    x, info, stats = solve(A, np.ones(500), return_stats=True, rtol=1e-6)
    assert (info, stats.method, x[0]) == (0, f"ca_{family}", stats.iterations)
    assert 4000 <= stats.iterations < 4010  # whole blocks from where the classic one was
    assert fake.names == [family, f"ca_{family}?", f"ca_{family}?", f"ca_{family}"]
    assert fake.calls[3][1]["x0"] is not None
    assert stats.notes[2] == f"solved by ca_{family}, 500000 us a step against 1000000 of {family}"
    assert stats.residuals[0] == 1.0
    assert len(set(stats.residuals)) == len(stats.residuals)  # the record of both, without a gap
    # the choice is kept, in this process and in the database
    for _ in range(2):
        fake.calls.clear()
        assert solve(A, np.zeros(500))[1] == 0
        assert fake.names == [f"ca_{family}"]
        of_new_process(monkeypatch)
    fake.calls.clear()
    solve(A[:499, :499], np.ones(499))
    assert fake.names[0] == family  # but not for another matrix


@pytest.mark.parametrize("ca", [2.0, 0.97])
def test_the_classic_solver_stays_where_the_counterpart_does_not_pay(
    fake: _Fake, monkeypatch: pytest.MonkeyPatch, ca: float
) -> None:
    """Where its step is hardly shorter this solve stays as it is, since steps would be lost; the next one is."""
    fake.needs, fake.seconds["ca_cg"] = 1000, ca
    _, _, first = solve(spd(500), np.ones(500), return_stats=True)
    assert (first.method, first.iterations) == ("cg", 1000)
    assert fake.names == ["cg", "ca_cg?", "ca_cg?"]
    of_new_process(monkeypatch)
    _, _, stats = solve(spd(500), np.ones(500), return_stats=True)
    assert stats.method == fake.names[3] == ("cg" if ca > 1 else "ca_cg")
    assert len(fake.calls) == 4
    assert any("us a step against" in note for note in stats.notes)
    said = "solved by cg" + "; ca_cg is for the next solve" * (ca < 1)
    assert first.notes[2].startswith(f"{said}, ")


def test_one_timing_is_not_remembered(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where trials contradict each other the classic one stays, and the next solve finds out; two that agree count."""
    fake.needs, found = 20_000, iter([0.1, 3.0, 0.1, 3.0, 0.1, 3.0, 0.1, 3.0, 0.2, 0.4])
    monkeypatch.setattr(auto.Auto, "_trial", lambda self, family, seconds: next(found, None))
    kept: list[Any] = []
    monkeypatch.setattr(auto.Auto, "_keep", lambda self, family, pair: kept.append(pair))
    _, _, stats = solve(spd(5000), np.ones(5000), return_stats=True)
    assert (stats.method, kept) == ("ca_cg", [(1.0, pytest.approx(0.3))])


def test_a_trial_without_an_end_in_its_time_is_not_begun_at_once_again(fake: _Fake) -> None:
    """Twelve times slower than the classic one: each trial ends by its time, and the next has twice as much."""
    fake.needs, fake.seconds["ca_cg"] = 4000, 12.0
    solve(spd(500), np.ones(500))
    assert 1 < fake.names.count("ca_cg?") < 6
    assert fake.measuring <= 0.25 * fake.now


def test_restart_basis_s_and_preconditioner_are_part_of_what_is_known(fake: _Fake) -> None:
    fake.needs = 4000
    A, b = skew(500), np.ones(500)
    special: list[dict[str, Any]] = [
        {}, {"restart": 20}, {"restart": 40}, {"basis": "monomial"}, {"s": 3}, {"threads": 1}, {"M": _folding(500)}
    ]  # fmt: skip
    for one in special:
        fake.calls.clear()
        solve(A, b, **one)
        assert fake.names == ["gmres", "ca_gmres?", "ca_gmres?"], one
    for one in special:
        fake.calls.clear()
        solve(A, b, **one)
        assert len(fake.calls) == 1, one
    fake.calls.clear()
    solve(A, b, basis="newton")  # which is what "auto" is
    assert len(fake.calls) == 1
    fake.calls.clear()
    fake.seconds["ca_cg"] = 1.5
    solve(spd(500), b)
    solve(spd(500), b, restart=20)  # which cg has no use for
    assert fake.names == ["cg", "ca_cg?", "ca_cg?", "cg"]


@pytest.mark.filterwarnings("ignore::akx.plandb.PlanDatabaseWarning")
def test_a_database_that_cannot_be_written_is_no_harm(
    fake: _Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    db, fake.needs = tmp_path / "file" / "plans.sqlite", 1000
    fake.seconds["ca_cg"] = 1.5
    for _ in range(2):
        assert solve(spd(500), np.ones(500), db=db)[1] == 0
    assert fake.names == ["cg", "ca_cg?", "ca_cg?", "cg"]  # this process knows
    of_new_process(monkeypatch)
    solve(spd(500), np.ones(500), db=db)
    assert fake.names[-3:] == ["cg", "ca_cg?", "ca_cg?"]


def test_the_choice_of_one_backend_is_not_that_of_the_other(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(akx.solvers.arguments, "resolve_backend", lambda name: "cpu" if name == "auto" else name)
    work = akx.solvers.vector_work.make_work

    def make_work(backend: str, dtype: Any, n: int, threads: Any, **options: Any) -> Any:
        return FakeWork(dtype, n) if backend == "cuda" else work(backend, dtype, n, threads, **options)

    for module in (akx.solvers.system, akx.solvers.vector_work):
        monkeypatch.setattr(module, "make_work", make_work)
    fake.needs, fake.seconds["ca_cg"] = 4000, 0.5
    assert solve(spd(500), np.ones(500), return_stats=True)[2].method == "ca_cg"
    fake.seconds["ca_cg"] = 2.0
    assert solve(spd(500), np.ones(500), backend="cuda", return_stats=True)[2].method == "cg"
    assert solve(spd(500), np.ones(500), backend="cpu", return_stats=True)[2].method == "ca_cg"


def test_a_counterpart_without_a_basis_is_asked_once(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.needs, fake.useless = 4000, {"ca_cg"}
    for _ in range(3):
        _, info, stats = solve(spd(500), rhs(500), return_stats=True)
        assert (info, stats.method) == (0, "cg")
        assert any("no use for a basis" in note for note in stats.notes)
        of_new_process(monkeypatch)
    assert fake.names.count("ca_cg?") == 1


def test_a_counterpart_that_has_no_room_may_have_it_another_time(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.needs = 1000

    def no_room(*_: Any, **__: Any) -> Any:
        fake.calls.append(("ca_cg", {"rtol": 1e-14}))
        raise DeviceMemoryError("the device is out of memory")

    monkeypatch.setitem(akx.solvers.SOLVERS, "ca_cg", no_room)
    for _ in range(2):
        fake.calls.clear()
        _, info, stats = solve(spd(500), np.ones(500), return_stats=True)
        assert (info, stats.method) == (0, "cg")
        assert fake.names == ["cg", "ca_cg?"]
        assert any("no room for ca_cg" in note for note in stats.notes)


def test_the_next_family_takes_over(fake: _Fake) -> None:
    fake.needs, fake.fails, fake.seconds["ca_minres"] = 1000, {"cg", "ca_cg"}, 3.0
    _, info, stats = solve(spd(50), np.ones(50), return_stats=True)
    assert info == 0
    assert stats.method == "minres"
    assert stats.iterations == 500 + 500  # 10 n, and what was left
    assert stats.seconds["total"] >= stats.seconds["choose"] > 0
    assert stats.notes[1] == "cg 500 steps (out of steps); minres 500 steps"
    started = [options["x0"] for name, options in fake.calls if options["rtol"] != 1e-14]
    assert started[0] is None
    assert started[1] is not None
    fake.fails |= {"minres", "ca_minres", "gmres", "ca_gmres"}
    _, info, stats = solve(spd(50), np.ones(50), return_stats=True)
    assert info == 500 + 500 + 500  # steps of gmres too, where it goes on from another's x
    assert stats.notes[1] == "ca_cg 500 steps (out of steps); minres 500 steps (out of steps); gmres 500 steps"
    assert stats.notes[2].startswith("not solved: out of steps")


@pytest.mark.parametrize(("A", "most"), [(spd(2000), 20_000), (nonsymmetric(2000), 10_000)], ids=["cg", "bicgstab"])
def test_how_long_the_first_method_has(fake: _Fake, A: Any, most: int) -> None:
    """cg makes progress with each step, and has the limit that it has by itself."""
    fake.needs = 25_000
    fake.seconds |= {"ca_cg": 3.0, "ca_minres": 3.0, "ca_bicgstab": 3.0, "ca_gmres": 3.0}
    _, info, stats = solve(A, np.ones(2000), return_stats=True)
    second = "minres" if most == 20_000 else "gmres"
    assert (info, stats.method, stats.iterations) == (0, second, 25_000)
    assert stats.notes[1].startswith(
        f"{'cg' if second == 'minres' else 'bicgstab'} {most} steps (out of steps); {second} "
    )
    given = next(options for name, options in fake.calls if name == second)
    assert (given["maxiter"], given.get("callback_type")) == (20_000, BY_STEPS if second == "gmres" else None)


def test_both_of_a_gmres_that_goes_on_share_its_steps(fake: _Fake) -> None:
    fake.needs, fake.fails = 1000, set(fake.seconds)
    fake.seconds |= {"ca_bicgstab": 3.0, "ca_gmres": 0.1}
    _, info, stats = solve(nonsymmetric(500), np.ones(500), return_stats=True)
    assert (info, stats.method) == (10_000, "ca_gmres")


def test_a_preconditioner_that_ca_cg_cannot_fold_is_for_cg(fake: _Fake) -> None:
    A = spd(500)
    fake.needs, fake.seconds["ca_cg"] = 4000, 0.1
    for M, names in ((spai(A, symmetric=True), ["cg"]), (jacobi(A, side="right"), ["cg", "ca_cg?", "ca_cg?", "ca_cg"])):
        fake.calls.clear()
        assert solve(A, np.ones(500), M=M)[1] == 0
        assert fake.names == names


def test_the_best_answer_is_what_comes_out_of_none(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """gmres made it worse: x is that of bicgstab, and so is the residual in the record."""
    fake.needs, fake.fails = 1000, set(fake.seconds)
    gmres = akx.solvers.SOLVERS["gmres"]

    def worse(*arguments: Any, **options: Any) -> Any:
        x, info, stats = gmres(*arguments, **options)
        stats.residual = 0.9
        return x, info, stats

    monkeypatch.setitem(akx.solvers.SOLVERS, "gmres", worse)
    x, info, stats = solve(nonsymmetric(50), np.ones(50), s=1, return_stats=True)
    assert [name for name, _ in fake.calls] == ["bicgstab", "gmres"]
    assert (x[0], info, stats.residual, stats.converged) == (500.0, 1000, 1e-4, False)


@pytest.mark.parametrize("ca", [0.5, 2.0])
@pytest.mark.parametrize("A", [spd(50), nonsymmetric(50), indefinite(50), skew(50)])
def test_maxiter_of_auto_is_steps_of_all_methods_together(fake: _Fake, A: Any, ca: float) -> None:
    fake.needs = 10_000
    fake.seconds |= dict.fromkeys(("ca_cg", "ca_minres", "ca_bicgstab", "ca_gmres"), ca)
    for maxiter in (0, 7, 345, 900):
        fake.calls.clear()
        _, info, stats = solve(A, np.ones(50), maxiter=maxiter, return_stats=True)
        assert (info, stats.iterations) == (max(1, maxiter), maxiter)
        left = [options for name, options in fake.calls if options["rtol"] != 1e-14]
        assert left[0]["maxiter"] == maxiter
    for wrong in (-1, 2.5, "many"):
        with pytest.raises(ArgumentError if wrong == -1 else ArgumentTypeError, match="maxiter is "):
            solve(A, np.ones(50), maxiter=wrong)


@pytest.mark.usefixtures("methods_first")
@pytest.mark.parametrize(
    ("A", "method"),
    [(spd(300), "cg"), (nonsymmetric(300), "bicgstab"), (indefinite(300), "minres"), (skew(300), "gmres")],
)
def test_maxiter_of_real_solvers(A: Any, method: str) -> None:
    """Steps with "auto", whatever it takes; SciPy's meaning with the method's name."""
    for maxiter in (0, 3, 5):
        _, info, stats = solve(A, rhs(300), rtol=1e-14, maxiter=maxiter, restart=4, return_stats=True)
        assert (info, stats.method, stats.iterations) == (max(1, maxiter), method, maxiter)
        _, info, stats = solve(A, rhs(300), method=method, rtol=1e-14, maxiter=maxiter, restart=4, return_stats=True)
        assert stats.iterations == maxiter * (4 if method == "gmres" else 1)


@pytest.mark.parametrize("method", ["auto", "gmres", "ca_cg"])
def test_a_guess_of_mb(method: str) -> None:
    A, b = spd(300), rhs(300)
    M = jacobi(A)
    _, info, stats = solve(A, b, x0="Mb", M=M, method=method, rtol=1e-8, return_stats=True)
    assert info == 0
    if method != "ca_cg":  # whose residuals are those of the scaled system
        assert stats.residuals[0] == pytest.approx(np.linalg.norm(b - A @ (M @ b)))


def test_preconditioners_and_small_matrices_are_for_classic_solvers(fake: _Fake) -> None:
    fake.needs, fake.seconds["ca_cg"] = 4000, 0.1
    solve(spd(500), np.ones(500), M=aslinearoperator(sp.eye_array(500)))
    assert [name for name, _ in fake.calls] == ["cg"]
    fake.calls.clear()
    solve(spd(500), np.ones(500), s=1)
    assert fake.names == ["cg"]
    fake.calls.clear()
    solve(spd(9), np.ones(9))
    assert fake.names[0] == "cg"


def test_options_reach_only_those_that_have_them(fake: _Fake) -> None:
    for name in fake.seconds:
        solve(spd(20), np.ones(20), method=name, restart=7, s=3, basis="chebyshev", maxiter=11, threads=1)
        options = fake.calls[-1][1]
        assert options["maxiter"] == 11
        assert ("restart" in options) == name.endswith("gmres")
        assert ("s" in options) == ("basis" in options) == name.startswith("ca_")


@pytest.mark.usefixtures("methods_first")
def test_real_solvers() -> None:
    A, b = nonsymmetric(2500), rhs(2500)
    x, info, stats = solve(A, b, rtol=1e-9, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    assert stats.method in SOLVERS
    x, info = solve(A, b, rtol=1e-9, method="bicgstab")
    assert info == 0
    x, info = solve(spd(), rhs(300), rtol=1e-9)
    assert info == 0
    assert relative(spd(), x, rhs(300)) <= 1e-9


@pytest.mark.parametrize("maxiter", [None, 5000])
@pytest.mark.parametrize("family", ["cg", "minres", "bicgstab", "gmres"])
def test_real_solvers_go_on_from_each_other(monkeypatch: pytest.MonkeyPatch, family: str, maxiter: int | None) -> None:
    """A long chain, whatever the clock says: it is this test's."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(60, 60))
    skew = sp.diags_array([-0.3, 0.3], offsets=[-1, 1], shape=(60, 60))
    unit = sp.eye_array(60)
    A = sp.csr_array(sp.kron(line, unit) + sp.kron(unit, line))
    A = sp.csr_array(A + {"cg": 0.0, "minres": 0.0, "bicgstab": 1.0, "gmres": 0.0}[family] * sp.kron(skew, unit))
    b, trials = rhs(3600), []

    def trial(self: Any, which: str, seconds: float) -> float:
        trials.append(which)
        return 1e-9

    monkeypatch.setattr(solver_pair, "_chosen", {})
    monkeypatch.setattr(auto.Auto, "_ladder", lambda self, call: None)
    monkeypatch.setattr(auto.Auto, "_trial", trial)
    monkeypatch.setattr(auto, "families_for", lambda matrix: ([family], "the test says so"))
    monkeypatch.setattr(pilot, "SHARE", 1e3)
    x, info, stats = solve(A, b, rtol=1e-8, maxiter=maxiter, restart=20, return_stats=True)
    assert (info, stats.method, trials) == (0, f"ca_{family}", [family] * 2)
    assert relative(A, x, b) <= 1e-8
    assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-3)
    assert len(stats.s) > 0
    _, _, classic = solve(A, b, rtol=1e-8, method=family, restart=20, return_stats=True)
    assert stats.iterations <= 1.5 * classic.iterations
    assert stats.products >= stats.iterations


def test_an_unknown_method() -> None:
    with pytest.raises(ArgumentError, match="bicgstab"):
        solve(spd(), rhs(300), method="sor")


def test_what_only_some_of_the_solvers_would_refuse_is_refused_at_once() -> None:
    for s in ("many", 0, 2.5):
        with pytest.raises(ArgumentTypeError if s else ArgumentError, match="s is "):
            solve(nonsymmetric(30), rhs(30), s=s)
    with pytest.raises(ArgumentError, match="s is out of range"):
        solve(spd(30), rhs(30), s=21)
    with pytest.raises(ArgumentError, match="unknown basis"):
        solve(spd(30), rhs(30), basis="legendre")
    with pytest.raises(ArgumentError, match="restart is out of range"):
        solve(spd(30), rhs(30), restart=0)
    for method in ("auto", "cg", "ca_cg"):
        with pytest.raises(ArgumentTypeError, match="db is no database"):
            solve(spd(2500), rhs(2500), method=method, db=False)


@pytest.mark.parametrize("name", [name for name in SOLVERS if name.startswith("ca_")])
def test_preconditioners_that_fold_are_folded(name: str) -> None:
    made = pytest.importorskip("akx.solvers.preconditioners")
    scale = sp.diags_array(np.logspace(0, 2, 300))
    A = sp.csr_array(scale @ (spd() if is_of_hermitian(name) else nonsymmetric()) @ scale)
    b = A @ rhs(300)
    x, info, stats = solve(A, b, method=name, M=made.jacobi(A), rtol=1e-9, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    assert any("made part of the matrix" in note for note in stats.notes)


class OnDevice:
    """Stands for a vector of the GPU."""

    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU that has no room: where solvers were asked to work."""
    asked: list[str] = []

    def refusing(real: Any, kind: type[Exception]) -> Any:
        def run(A: Any, b: Any, x0: Any = None, **options: Any) -> Any:
            asked.append(options["backend"])
            if options["backend"] == "cuda" or isinstance(b, OnDevice):
                raise kind("it is too large")
            return real(A, b, x0, **options)

        return run

    made = {"cg": DeviceMemoryError, "gmres": InfeasibleError, "bicgstab": PlanError, "ca_cg": BudgetError}
    solvers = {name: refusing(SOLVERS[name], kind) for name, kind in made.items()}
    for module in (solving, solver_pair):
        monkeypatch.setattr(module, "SOLVERS", solvers)
    monkeypatch.setattr(solving, "is_on_device", lambda b: isinstance(b, OnDevice))
    monkeypatch.setattr(solving, "of_host", lambda v, name: v.held if isinstance(v, OnDevice) else v)
    monkeypatch.setattr(host_fallback, "answer_in_kind", lambda given, x: OnDevice(x))
    monkeypatch.setattr(solving, "answer_in_kind", lambda given, x: OnDevice(x))
    real = auto.place_of

    def place_of(A: Any, b: Any, x0: Any = None, **options: Any) -> Any:
        if isinstance(b, OnDevice) or options["backend"] == "cuda":
            asked.append(options["backend"])
            raise DeviceMemoryError("it is too large")
        return real(A, b, x0, **options)

    monkeypatch.setattr(auto, "place_of", place_of)
    return asked


@pytest.mark.usefixtures("methods_first")
@pytest.mark.parametrize("method", ["auto", "cg", "ca_cg", "gmres", "bicgstab"])
def test_what_is_too_much_for_the_gpu_is_solved_by_the_host(method: str, device: list[str]) -> None:
    A, b = spd(), rhs(300)
    told: list[Any] = []
    x, info, stats = solve(A, OnDevice(b), method=method, rtol=1e-9, callback=told.append, return_stats=True)
    assert device == ["auto", "cpu"]
    assert info == 0
    assert isinstance(x, OnDevice)
    assert relative(A, x.held, b) <= 1e-9
    assert stats.notes[0].endswith("solved on the CPU, as it was too much for the GPU: it is too large")
    assert method != "auto" or len(stats.notes) == 3
    assert told
    assert all(isinstance(one, OnDevice if method != "gmres" else float) for one in told)
    y, info = solve(A, OnDevice(b), OnDevice(x.held), method=method, rtol=1e-8)
    assert info == 0
    np.testing.assert_array_equal(y.held, x.held)


@pytest.mark.parametrize("method", ["auto", "cg", "gmres"])
def test_a_gpu_that_was_asked_for_says_that_it_has_no_room(method: str, device: list[str]) -> None:
    kind = InfeasibleError if method == "gmres" else DeviceMemoryError
    for b in (OnDevice(rhs(300)), rhs(300)):
        with pytest.raises(kind, match="too large"):
            solve(spd(), b, method=method, backend="cuda")
    assert set(device) == {"cuda"}


@pytest.mark.parametrize("maxiter", [None, 1500])
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_the_callback_of_auto_gets_x_whatever_the_method(maxiter: int | None, precision: str) -> None:
    """By gmres too, at first, after another method and by a rung of the ladder."""
    rotation = sp.diags_array([-1.0, 1e-3, 1.0], offsets=[-1, 0, 1], shape=(300, 300))
    complex_skew = sp.csr_array(rotation * 1j - 1e-3j * sp.eye_array(300))
    hard = sp.csr_array(rotation + sp.diags_array(np.geomspace(1e-6, 1, 300)))
    for A, most in ((complex_skew, 40), (hard, maxiter)):
        b = np.random.default_rng(0).standard_normal(300)
        norms: list[float] = []

        def look(x: Any, A: Any = A, b: Any = b, norms: list[float] = norms) -> None:
            norms.append(float(np.linalg.norm(b - A @ x)))

        _, _, stats = solve(A, b, maxiter=most, callback=look, precision=precision, return_stats=True)  # type: ignore[misc]
        assert norms
        assert np.isfinite(norms).all()
        if most is not None:
            assert stats.iterations <= most
    B, shapes = b[:, None] * [1, 2, 3], set()
    solve(complex_skew, B, maxiter=40, callback=lambda x: shapes.add(x.shape), precision=precision)
    assert shapes == {(300, 3)}


@pytest.mark.parametrize("method", ["auto", "cg", "gmres", "ca_bicgstab"])
@pytest.mark.parametrize(
    "wrong", [{"s": -1}, {"s": 0}, {"restart": 0}, {"basis": "nonsense"}, {"precision": "half"}, {"M": "ilu"}]
)
def test_what_is_out_of_range_is_refused_where_it_is_not_used_too(method: str, wrong: dict[str, Any]) -> None:
    A = spd(50)
    with pytest.raises(ArgumentError):
        solve(A, np.ones(50), method=method, **wrong)
    with pytest.raises(ArgumentError):
        akx.solvers.Solver(A, method, **wrong)
    assert solve(A, np.ones(50), method=method, s=3, restart=7, basis="newton")[1] == 0


def test_notes_of_a_method_that_come_again_and_again_are_counted() -> None:
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((3000, 3000), density=0.002, rng=rng)) + 0.1 * sp.eye_array(3000)
    b = rng.random(3000)
    notes = akx.solvers.ca_bicgstab(A, b, maxiter=500, return_stats=True)[2].notes  # type: ignore[misc]
    assert sum(": begun again, as" in note for note in notes) == 4
    assert any(re.fullmatch(r"begun again \d+ more times", note) for note in notes)
    stats = SolveStats()
    for k in range(235):
        stats.note_often(f"step {k}: s lowered to 1", "s changed", " s lowered", " s raised")
    assert stats.notes[3:] == ["step 3: s lowered to 1", "s changed 231 more times"]


@pytest.mark.usefixtures("methods_first")
def test_where_bicgstab_gets_nowhere_gmres_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grcar's matrix is far from normal: bicgstab breaks down on it."""
    monkeypatch.setattr(Ladder, "next_for", lambda *_: None)
    A = sp.csr_array(sp.diags_array([-1.0, 1, 1, 1, 1], offsets=[-1, 0, 1, 2, 3], shape=(1000, 1000)))
    b = rhs(1000)
    x, info, stats = solve(A, b, rtol=1e-8, return_stats=True)
    assert (info, stats.method) == (0, "gmres")
    assert relative(A, x, b) <= 1e-8
    assert stats.notes[1].startswith("bicgstab 24 steps (residual does not fall); gmres ")
    alone = solve(A, b, rtol=1e-8, method="gmres", return_stats=True)[2]
    assert stats.products <= 1.5 * alone.products + 60


@pytest.mark.usefixtures("methods_first")
def test_where_gmres_gets_nowhere_either_bicgstab_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ladder, "next_for", lambda *_: None)
    cyclic = sp.csr_array(np.roll(np.eye(400), 1, axis=1) + 1e-3 * np.eye(400))
    _, _, stats = solve(cyclic, rhs(400), rtol=1e-8, maxiter=2000, return_stats=True)
    assert re.match("bicgstab 24 steps.*; gmres 120 steps.*; bicgstab ", stats.notes[1])


def test_info_method_and_reason_are_of_the_last_solve() -> None:
    random = np.random.default_rng(2)
    for A in (B := random.standard_normal((10, 10)), B + B.T, B @ B.T):
        b = random.standard_normal(10).astype(np.float32)
        _, info, stats = solve(sp.csr_array(A.astype(np.float32)), b, rtol=1e-12, return_stats=True)
        assert info == stats.iterations > 0  # as accurate as single precision allows
        assert stats.method == "lstsq"
        assert stats.reason == "stagnation: the residual is as small as rounding errors allow"
    A, b = sp.csr_array(sp.eye_array(3, k=1)), np.array([1.0, 1, 0])
    _, info, stats = solve(A, b, M=sp.eye_array(3, format="csr"), return_stats=True)
    assert (info, stats.method) == (-1, "gmres")
    assert stats.reason == "breakdown: the Krylov space is exhausted, A M is singular or close to it"
