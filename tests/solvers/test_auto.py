"""``solve``: the family by the matrix, the sister by measurement, and the next one where one does not get there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator
from solvers.fake_device import FakeWork
from solvers.systems import nonsymmetric, relative, rhs, spd

import akx.solvers
import akx.solvers.system
from akx.errors import ArgumentError
from akx.matrix import Matrix
from akx.solvers import SOLVERS, SolveStats, auto, solve


class _Fake:
    """Solvers that take a known time for each step, and answer what they are told."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("cg", "ca_cg", "gmres", "ca_gmres", "bicgstab", "ca_bicgstab"), 1.0)
        self.fails: set[str] = set()
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def solver(self, name: str) -> Callable[..., Any]:
        def run(A: Any, b: Any, x0: Any = None, **options: Any) -> Any:
            self.calls.append((name, {"x0": x0, **options}))
            measuring = options["rtol"] == 1e-14
            steps = min(options["maxiter"] or 10, 1000) * (10 if name.endswith("gmres") else 1)
            stats = SolveStats(method=name, iterations=steps, residuals=[1.0, 0.5], products=10, residual=0.5)
            stats.s = [2, 2, 2] if name.startswith("ca_") else []
            stats.seconds = {"matrix": 3.0 + steps * self.seconds[name], "setup": 99.0}
            stats.reason = "out of steps" if name in self.fails else "converged"
            info = 5 if name in self.fails or measuring else 0
            return np.full(np.size(b), float(len(self.calls))), info, stats

        return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> _Fake:
    made = _Fake()
    monkeypatch.setattr(akx.solvers, "SOLVERS", {name: made.solver(name) for name in made.seconds})
    monkeypatch.setattr(auto, "_chosen", {})
    monkeypatch.setattr(auto, "_SMALL", 10)
    return made


def test_the_family_goes_by_the_matrix(fake: _Fake) -> None:
    def of(A: Any) -> list[str]:
        return auto.families_for(Matrix.from_any(A))[0]

    assert of(spd(30)) == ["cg", "gmres"]
    assert of(spd(30, complex)) == ["cg", "gmres"]
    assert of(spd(30) - 9 * sp.eye_array(30)) == ["gmres"]
    assert of(nonsymmetric(30)) == ["bicgstab", "gmres"]
    assert of(sp.csr_array(spd(30).astype(complex) + 1j * sp.eye_array(30))) == ["bicgstab", "gmres"]  # not Hermitian
    assert of(sp.diags_array([-1.0, 1.0], offsets=[-1, 1], shape=(9, 9))) == ["gmres"]


@pytest.mark.parametrize(("ca", "wanted"), [(0.5, "ca_cg"), (2.0, "cg")])
def test_the_shorter_step_wins(fake: _Fake, ca: float, wanted: str) -> None:
    fake.seconds["ca_cg"] = ca
    _, info, stats = solve(spd(50), np.ones(50), return_stats=True, rtol=1e-6)
    assert (info, stats.method) == (0, wanted)
    assert any("us a step against" in note for note in stats.notes)
    measured = len(fake.calls)
    assert measured == 13  # three times each of two lengths, of two solvers, and the solve
    assert solve(spd(50), np.zeros(50))[1] == 0
    assert len(fake.calls) == measured + 1  # the choice is kept
    assert fake.calls[-1][0] == wanted
    solve(spd(51), np.ones(51))
    assert len(fake.calls) > measured + 2  # but not for another matrix


def test_the_choice_of_one_backend_is_not_that_of_the_other(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(akx.solvers.system, "resolve_backend", lambda backend: "cpu" if backend == "auto" else backend)
    work = akx.solvers.system.make_work

    def make_work(backend: str, dtype: Any, n: int, threads: Any) -> Any:
        return FakeWork(dtype, n) if backend == "cuda" else work(backend, dtype, n, threads)

    monkeypatch.setattr(akx.solvers.system, "make_work", make_work)
    fake.seconds["ca_cg"] = 0.5
    assert solve(spd(50), np.ones(50), return_stats=True)[2].method == "ca_cg"
    fake.seconds["ca_cg"] = 2.0
    assert solve(spd(50), np.ones(50), backend="cuda", return_stats=True)[2].method == "cg"
    assert solve(spd(50), np.ones(50), backend="cpu", return_stats=True)[2].method == "ca_cg"


def test_a_sister_without_a_basis_is_asked_once(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def seconds(name: str, *_: Any) -> float:
        asked.append(name)
        return float("inf") if name.startswith("ca_") else 1e-3

    monkeypatch.setattr(auto, "_step_seconds", seconds)
    for _ in range(3):
        _, info, stats = solve(spd(40), rhs(40), return_stats=True)
        assert info == 0
        assert stats.method == "cg"
        assert any("no use for a basis" in note for note in stats.notes)
    assert asked == ["cg", "ca_cg"]


def test_the_next_family_takes_over(fake: _Fake) -> None:
    fake.fails, fake.seconds["ca_gmres"] = {"cg", "ca_cg"}, 3.0
    _, info, stats = solve(spd(50), np.ones(50), return_stats=True)
    assert info == 0
    assert stats.method == "gmres"
    assert stats.iterations == 500 + 5000  # 10 n, and as many cycles of 10
    assert stats.residuals == [1.0, 0.5, 0.5]
    assert stats.seconds["total"] >= stats.seconds["choose"] > 0
    assert any("cg ended without an answer: out of steps" in note for note in stats.notes)
    started = [options["x0"] for name, options in fake.calls if options["rtol"] != 1e-14]
    assert started[0] is None
    assert started[1] is not None
    fake.fails |= {"gmres", "ca_gmres"}
    assert solve(spd(50), np.ones(50))[1] == 5


def test_the_best_answer_is_what_comes_out_of_none(fake: _Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """gmres made it worse: x is that of cg, and so is the residual in the record."""
    fake.fails = set(fake.seconds)
    gmres = akx.solvers.SOLVERS["gmres"]

    def worse(*arguments: Any, **options: Any) -> Any:
        x, info, stats = gmres(*arguments, **options)
        stats.residual = 0.9
        return x, info, stats

    monkeypatch.setitem(akx.solvers.SOLVERS, "gmres", worse)
    monkeypatch.delitem(akx.solvers.SOLVERS, "ca_gmres")
    monkeypatch.delitem(akx.solvers.SOLVERS, "ca_cg")
    x, info, stats = solve(spd(50), np.ones(50), return_stats=True)
    assert [name for name, _ in fake.calls] == ["cg", "gmres"]
    assert (x[0], info, stats.residual, stats.converged) == (1.0, 5, 0.5, False)


def test_preconditioners_and_small_matrices_are_for_classic_solvers(fake: _Fake) -> None:
    fake.seconds["ca_cg"] = 0.1
    solve(spd(50), np.ones(50), M=aslinearoperator(sp.eye_array(50)))
    assert [name for name, _ in fake.calls] == ["cg"]
    fake.calls.clear()
    solve(spd(9), np.ones(9))
    assert [name for name, _ in fake.calls] == ["cg"]


def test_options_reach_only_those_that_have_them(fake: _Fake) -> None:
    for name in fake.seconds:
        solve(spd(20), np.ones(20), method=name, restart=7, s=3, basis="chebyshev", maxiter=11, threads=1)
        options = fake.calls[-1][1]
        assert options["maxiter"] == 11
        assert ("restart" in options) == name.endswith("gmres")
        assert ("s" in options) == ("basis" in options) == name.startswith("ca_")


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


def test_an_unknown_method() -> None:
    with pytest.raises(ArgumentError, match="bicgstab"):
        solve(spd(), rhs(300), method="sor")


def test_a_wrong_s_is_the_solvers_to_refuse() -> None:
    for s in ("many", 0, 2.5):
        with pytest.raises(ArgumentError, match="s is out of range"):
            solve(nonsymmetric(2500), rhs(2500), s=s)


@pytest.mark.parametrize("name", [name for name in SOLVERS if name.startswith("ca_")])
def test_preconditioners_that_fold_are_folded(name: str) -> None:
    made = pytest.importorskip("akx.solvers.preconditioners")
    scale = sp.diags_array(np.logspace(0, 2, 300))
    A = sp.csr_array(scale @ (spd() if name.endswith("cg") else nonsymmetric()) @ scale)
    b = A @ rhs(300)
    x, info, stats = solve(A, b, method=name, M=made.jacobi(A), rtol=1e-9, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    assert any("made part of the matrix" in note for note in stats.notes)
