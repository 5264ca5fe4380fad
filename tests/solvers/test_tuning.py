"""Tuning for a solver: what is chosen, that solvers take it by themselves, and what spoils it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx.solvers.auto
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, shared_database
from akx.plandb.store import Store
from akx.solvers import solver_choice, tune_for, tuning
from akx.solvers.solver_choice import POWERS, chosen_steps
from akx.solvers.stats import SolveStats


def grid(side: int = 24) -> sp.csr_array:
    line = sp.diags_array([-1.0, 2.01, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    unit = sp.eye_array(side)
    return sp.csr_array(sp.kron(line, unit) + sp.kron(unit, line))


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Seconds of a step by s (0: the classic solver), in place of the clock; the solves are done all the same."""
    found = {0: 9.0, 2: 7.0, 3: 6.0, 4: 4.0, 5: 5.0, 6: 6.0, 8: 8.0, 10: 10.0}

    def slope(self: Any) -> float:
        _, many, blocks = self._solve(self._limits()[1])
        self.share = self._share(blocks, many)
        return found[self.s]

    monkeypatch.setattr(tuning._Runs, "slope", slope)
    return found


SOLVERS = pytest.mark.parametrize("solver", sorted(POWERS))


@SOLVERS
def test_solvers_take_what_was_tuned_and_say_so(solver: str, db: PlanDatabase, times: dict[int, float]) -> None:
    A = grid()
    b = A @ np.ones(A.shape[0])
    solve = akx.solvers.SOLVERS[solver]
    _, _, before = solve(A, b, db=db, threads=1, return_stats=True)
    assert not any("as tuned" in note for note in before.notes)
    wanted = min(POWERS[solver].choices, key=lambda s: times[s])
    found = tune_for(A, solver.replace("_", "-"), threads=1, seconds=0.1, db=db, name="grid")
    assert (found.solver, found.s, found.seconds, found.classic_seconds) == (solver, wanted, times[wanted], 9.0)
    assert (found.kept, found.reused) == (True, False)
    assert [one.s for one in found.candidates] == list(POWERS[solver].choices)
    assert all(0 < one.powers_seconds < 1 and 0.5 <= one.share <= 1 for one in found.candidates)
    x, info, stats = solve(A, b, rtol=1e-8, db=db, threads=1, return_stats=True)
    assert info == 0
    assert np.linalg.norm(b - A @ x) <= 1e-8 * np.linalg.norm(b)
    assert any(note.startswith(f"s = {wanted}, as tuned on 20") for note in stats.notes)
    assert max(stats.s) == wanted
    _, _, asked = solve(A, b, s=2, db=db, threads=1, return_stats=True)
    assert max(asked.s) == 2
    assert not any("as tuned" in note for note in asked.notes)


@pytest.mark.parametrize(("classic", "taken"), [(9.0, "ca_cg"), (0.5, "cg")])
def test_solve_knows_at_once_what_was_tuned(
    classic: float, taken: str, db: PlanDatabase, times: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of the two has the shorter step, and with which s; a basis that was not tuned is another matter."""
    A = grid(50)  # 2500 rows: large enough to be timed
    b = A @ np.ones(A.shape[0])
    times |= {0: classic, 8: 1.0}
    assert tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db).s == 8
    for forget in (True, False):
        if forget:
            monkeypatch.setattr(akx.solvers.solver_pair, "_chosen", {})
        _, info, stats = akx.solvers.solve(A, b, threads=1, db=db, return_stats=True)
        assert (info, stats.method) == (0, taken)
        assert any(f"solved by {taken}, " in note and "us a step against" in note for note in stats.notes)
        assert max(stats.s, default=8) == 8
    for other in ({"basis": "newton"}, {"s": 4}):
        _, _, stats = akx.solvers.solve(A, b, threads=1, db=db, return_stats=True, **other)  # type: ignore[misc]
        assert any("ca_cg has not been timed" in note for note in stats.notes)


def test_what_is_known_is_not_measured_again(db: PlanDatabase, times: dict[int, float]) -> None:
    A = grid(12)
    first = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    again = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    assert (again.s, again.seconds, again.reused, again.candidates) == (first.s, first.seconds, True, ())
    times[6] = 1.0
    other = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db, retune=True)
    assert (first.s, other.s, other.reused) == (4, 6, False)
    known = chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=db)
    assert known is not None
    assert (known.s, known.seconds) == (6, 1.0)  # that of the first one is gone
    assert chosen_steps("ca_gmres", Matrix.from_any(A), threads=1, db=db) is None
    json.dumps(other.to_json(), allow_nan=False)
    assert again.to_json()["classic_seconds"] is None


def test_a_choice_holds_for_its_key_alone(db: PlanDatabase, times: dict[int, float]) -> None:
    A = grid(12)
    tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    matrix = Matrix.from_any(A)
    assert chosen_steps("ca_cg", matrix, threads=1, db=db) is not None
    assert chosen_steps("ca_cg", matrix, threads=3, db=db) is None
    assert chosen_steps("ca_cg", matrix, basis="newton", threads=1, db=db) is None
    assert chosen_steps("ca_cg", Matrix.from_any(A.astype(np.float32)), threads=1, db=db) is None
    assert chosen_steps("ca_cg", Matrix.from_any(grid(13)), threads=1, db=db) is None
    assert chosen_steps("ca_cg", Matrix.from_any(A * 2.0), threads=1, db=db) is not None  # other values


def test_a_plan_tuned_by_itself_is_chosen_for_no_solver(db: PlanDatabase, times: dict[int, float]) -> None:
    A = grid(12)
    found = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    akx.tune(A, found.s, basis="chebyshev", threads=1, seconds=0.1, backend="cpu", db=db, retune=True)
    assert chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=db) is None


def test_an_s_that_was_found_with_another_plan_counts_for_nothing(db: PlanDatabase, times: dict[int, float]) -> None:
    A = grid(12)
    found = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    ((layer, timing),) = [entry for entry in db.timings() if entry[1].is_choice]
    assert (layer, timing.best_s, dict(timing.seconds)) == ("user", found.s, {"ca_cg": found.seconds})
    assert chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=db) is not None
    for wrong in ({"plan_created": "2024-01-01T00:00:00+00:00"}, {"best_s": 5}):  # 5 is none of the choices
        db.put_timing(replace(timing, **wrong))  # type: ignore[arg-type]
        assert chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=db) is None
    db.put_timing(timing)
    assert chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=db) is not None


def test_what_is_kept_of_solvers_is_no_plan_and_no_trial(db: PlanDatabase, times: dict[int, float]) -> None:
    """The s and the steps of two solvers have rows of their own, and leave with a bundle."""
    A = grid(12)
    found = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db, name="grid")
    assert {record.matrix_name for record in db.list()} == {"grid"}
    assert not any({"solvers", "solver_revision"} & set(record.provenance) for record in db.list())
    assert all(key.basis == "chebyshev" and "solver" not in trial.plan.options for key, trial in db.all_trials())
    known = {timing.key.solver: timing for _, timing in db.timings()}
    assert set(known) == {"ca_cg", "cg"}
    assert (known["cg"].key.asked_s, dict(known["cg"].seconds)) == (found.s, {"cg": 9.0, "ca_cg": found.seconds})
    place = Path(str(db.path)).with_name("other.sqlite")
    bundle = place.with_name("plans.json")
    with PlanDatabase(place, layers=()) as other:
        db.export(bundle)
        assert other.import_(bundle).timings == 2
        assert chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=other) == chosen_steps(
            "ca_cg", Matrix.from_any(A), threads=1, db=db
        )


def test_a_choice_for_another_revision_of_solvers_counts_for_nothing(
    db: PlanDatabase, times: dict[int, float], revise: Callable[..., None]
) -> None:
    """The plan stands, since it does not depend on them; the s does not, nor what steps of two solvers took."""
    A = grid(12)
    found = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    matrix = Matrix.from_any(A)
    key = POWERS["ca_cg"].key(matrix, found.s, threads=1, backend="cpu")
    pair = solver_choice.timing_key("cg", matrix, s=found.s, threads=1)
    assert solver_choice.known_pair(pair, db) == (9.0, found.seconds)
    assert db.find(key).record is not None
    revise("cpu/solvers", revision=2)
    assert db.find(key).record is not None
    assert chosen_steps("ca_cg", matrix, threads=1, db=db) is None
    assert solver_choice.timing_key("cg", matrix, s=found.s, threads=1) == replace(pair, revision=2)
    assert solver_choice.known_pair(replace(pair, revision=2), db) is None
    again = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db)
    known = chosen_steps("ca_cg", matrix, threads=1, db=db)
    assert known is not None
    assert (again.reused, known.seconds) == (False, again.seconds)
    assert [timing.is_stale for _, timing in db.timings()].count(True) == 2
    assert {one.key.revision for one in db.remove_stale()} == {1}  # type: ignore[union-attr]
    assert chosen_steps("ca_cg", matrix, threads=1, db=db) == known


def test_choices_of_ones_own_are_timed_but_not_found_by_solvers(db: PlanDatabase, times: dict[int, float]) -> None:
    A = grid(12)
    found = tune_for(A, "ca_cg", threads=1, seconds=0.1, db=db, choices=(2, 10))
    assert (found.s, found.kept) == (2, False)
    assert chosen_steps("ca_cg", Matrix.from_any(A), threads=1, db=db) is None
    assert tune_for(A, "ca_cg", threads=1, seconds=0.1, db=False, choices=(3,)).kept is False


def test_within_the_noise_the_smaller_s_is_taken(db: PlanDatabase, times: dict[int, float]) -> None:
    times |= {3: 4.1, 4: 4.2, 5: 4.3, 6: 4.05, 8: 4.0}
    assert tune_for(grid(12), "ca_cg", threads=1, seconds=0.1, db=db).s == 3


def test_an_s_whose_blocks_end_early_is_no_use(
    db: PlanDatabase, times: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a basis for eigenvalues that are far too small, 8 steps are not to be had; the clock says otherwise."""
    times[8] = 0.001
    monkeypatch.setattr("akx.solvers.ca_cg_block.Shifts.ritz", lambda self, **_: np.array([1e-2]))
    found = tune_for(grid(), "ca_cg", threads=1, seconds=0.1, db=db, choices=(3, 8))
    by = {one.s: one for one in found.candidates}
    assert by[8].share < 0.5
    assert by[8].seconds == float("inf")


def test_the_clock_is_looked_at() -> None:
    A = Matrix.from_any(grid(40))
    b = np.random.default_rng(0).standard_normal(A.n)
    run = tuning._Runs("ca_cg", A, b, 4, None, "cpu", 1, None)
    assert 0 <= sorted(run.slope() for _ in range(5))[2] < 1  # what disturbs a short solve makes one or two infinite
    assert run.share == 1.0
    plain = tuning._Runs("cg", A, b, 0, None, "cpu", 1, None)
    assert sorted(plain.slope() for _ in range(5))[2] < 1
    tiny = Matrix.from_any(grid(2))  # solved before there is a step to time
    assert tuning._Runs("ca_cg", tiny, np.ones(4), 4, None, "cpu", 1, None).slope() == float("inf")


def test_bad_arguments(db: PlanDatabase) -> None:
    for wrong in ({"solver": "cg"}, {"solver": 3}, {"backend": "tpu"}, {"choices": (0,)}, {"choices": (500,)}):
        with pytest.raises(ArgumentError):
            tune_for(grid(12), **{"solver": "ca_cg", "db": db, **wrong})  # type: ignore[arg-type]


def test_on_a_gpu_solves_are_timed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tuner and solvers replaced: the plans of the tuner, and the time of the solves."""
    asked, solved = [], []

    def fake(matrix: Any, k: int, **options: Any) -> Any:
        asked.append((k, options["backend"], options["start_vectors"], options["basis"]))
        return SimpleNamespace(backend="cuda", seconds=1e-3, plan=Plan("cuda", "sweep", "csr-1", k=k))

    def solve(matrix: Any, b: Any, *, maxiter: int, backend: str, plan: Any = None, s: int = 0, **_: Any) -> Any:
        solved.append((s, backend, None if plan is None else plan.k))
        step = {0: 5e-3, 4: 2e-3, 8: 1e-3}[s]
        made = [s] * (maxiter // s) if s else []
        seconds = {"total": 1 + step * maxiter, "setup": 1.0}
        return b, 0, SolveStats(method="", iterations=maxiter, s=made, seconds=seconds)

    monkeypatch.setattr(tuning, "tune", fake)
    monkeypatch.setattr(tuning, "device_of", lambda backend: None)
    monkeypatch.setattr(tuning, "SOLVERS", {"ca_cg": solve, "cg": solve})
    found = tune_for(grid(), "ca_cg", backend="cuda", choices=(4, 8), db=False)
    assert asked == [(4, "cuda", 1, "chebyshev"), (8, "cuda", 1, "chebyshev")]
    assert set(solved) == {(0, "cuda", None), (4, "cuda", 4), (8, "cuda", 8)}
    assert [one.seconds for one in found.candidates] == pytest.approx([2e-3, 1e-3])
    assert (found.s, found.classic_seconds) == (8, pytest.approx(5e-3))
    assert not found.kept


@pytest.mark.parametrize(("there", "places"), [(True, ["cpu", "cuda"]), (False, ["cpu"])])
def test_auto_is_each_backend_that_is_usable(monkeypatch: pytest.MonkeyPatch, there: bool, places: list[str]) -> None:
    """The time is shared, all are kept, the fastest is the result, and the other is in its notes."""
    asked: list[tuple[str, float, int]] = []

    def fake(matrix: Any, k: int, **options: Any) -> Any:
        asked.append((options["backend"], options["seconds"], options["trials"]))
        return SimpleNamespace(backend=options["backend"], seconds=1e-3, plan=Plan(options["backend"], "sweep", "csr"))

    def slope(self: Any) -> float:
        self.share = 1.0
        return 1e-3 if self.options["backend"] == "cuda" else 5e-3

    monkeypatch.setattr(tuning, "tune", fake)
    monkeypatch.setattr(tuning._Runs, "slope", slope)
    monkeypatch.setattr(tuning, "device_of", lambda backend: None)
    monkeypatch.setattr(tuning, "is_usable", lambda backend: backend == "cpu" or there)
    monkeypatch.setattr(tuning, "_keep", lambda *given, **options: True)
    monkeypatch.setattr(tuning, "timing_key", lambda family, matrix, **options: None)
    monkeypatch.setattr(tuning, "keep_pair", lambda *given: True)
    found = tune_for(grid(), "ca_cg", backend="auto", choices=[4], seconds=8.0, trials=3)
    assert asked == [(place, 8.0 / len(places), 3) for place in places]
    assert (found.backend, found.seconds) == (("cuda", 1e-3) if there else ("cpu", 5e-3))
    assert len(found.notes) == len(places) - 1
    assert all("on the cpu: s = 4, 5 ms a step; kept as well" in note for note in found.notes)
    assert found.to_json()["notes"] == list(found.notes)


def test_a_basis_of_ones_own_is_tuned_and_found_for_that_basis(db: PlanDatabase, times: dict[int, float]) -> None:
    A, b = grid(12), np.ones(144)
    found = tune_for(A, "ca_cg", basis="newton", threads=1, seconds=0.1, db=db)
    assert (found.s, found.basis, found.kept) == (4, "newton", True)
    matrix = Matrix.from_any(A)
    assert chosen_steps("ca_cg", matrix, threads=1, db=db) is None
    assert chosen_steps("ca_cg", matrix, basis="newton", threads=1, db=db) is not None
    assert tune_for(A, "ca_cg", basis="newton", threads=1, db=db).reused
    _, _, stats = akx.solvers.ca_cg(A, b, basis="newton", threads=1, db=db, return_stats=True)
    assert any("as tuned" in note for note in stats.notes)
    with pytest.raises(ArgumentError, match="unknown basis"):
        tune_for(A, "ca_cg", basis="legendre", db=db)


@pytest.mark.parametrize("choices", [np.array([3, 6]), np.array([3, 6], dtype=np.int32), range(3, 7, 3), (3, 6)])
def test_choices_may_be_any_sequence(choices: Any, db: PlanDatabase, times: dict[int, float]) -> None:
    times |= {3: 2.0, 6: 1.0}
    found = tune_for(grid(12), "ca_cg", threads=1, seconds=0.1, db=db, choices=choices)
    assert [one.s for one in found.candidates] == [3, 6]
    json.dumps(found.to_json())


@pytest.mark.parametrize("choices", [(), [], np.array([], dtype=int), (0,), (500,), (2.5,), ("4",)])
def test_choices_without_one_that_will_do_are_refused(choices: Any, db: PlanDatabase) -> None:
    with pytest.raises(ArgumentError, match="no s to choose from"):
        tune_for(grid(12), "ca_cg", threads=1, seconds=0.1, db=db, choices=choices)


def test_the_table_of_choices_is_of_solvers_there_are() -> None:
    assert set(POWERS) == {name for name in akx.solvers.SOLVERS if name.startswith("ca_")}
    assert all(list(one.choices) == sorted(set(one.choices)) for one in POWERS.values())
    assert solver_choice.POWERS is POWERS


def test_a_plan_that_another_process_has_tuned_is_taken_at_once(tmp_path: Path, times: dict[int, float]) -> None:
    A, solver = Matrix.from_any(grid()), "ca_cg"
    place, other = tmp_path / "plans.sqlite", tmp_path / "other.sqlite"
    tune_for(A, solver, threads=1, seconds=0.1, db=place)
    times[3] = 1.0
    tune_for(A, solver, threads=1, seconds=0.1, db=other)
    for each in (place, other):
        shared_database(each).close()
    hour = time.time() - 3600
    os.utime(place, (hour, hour))
    for _ in range(2):
        assert chosen_steps(solver, A, threads=1, db=place).s == 4  # type: ignore[union-attr]
    os.replace(other, place)  # what another process has done this one does not count
    os.utime(place, (hour, hour))
    assert chosen_steps(solver, A, threads=1, db=place).s == 3  # type: ignore[union-attr]


def test_what_was_tuned_is_not_looked_up_twice(
    tmp_path: Path, times: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    A, place = Matrix.from_any(grid()), tmp_path / "plans.sqlite"
    tune_for(A, "ca_cg", threads=1, seconds=0.1, db=place)
    shared_database(place).close()
    os.utime(place, (time.time() - 3600,) * 2)
    first = chosen_steps("ca_cg", A, threads=1, db=place)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "read", lambda *_: pytest.fail("the file was opened"))
        assert chosen_steps("ca_cg", A, threads=1, db=place) == first
