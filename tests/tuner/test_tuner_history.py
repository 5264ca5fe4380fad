"""Trials in the plan database: they are there as they end, and the next search for the same key goes on from them."""

from __future__ import annotations

import os
import signal
import sqlite3
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akx.backends.cuda.value_compression import encodings as stored
from akx.core.errors import DatabaseError, InfeasibleError
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, TrialRecord
from akx.tuner import Settings, TuneResult, plan_key, read_recording, tune
from akx.tuner.history import trial_log as history_module
from akx.tuner.history.trial import AS_ANOTHER, EARLIER, SHARED, WRONG, Trial
from akx.tuner.history.trial_log import NO_HISTORY, TrialLog, as_measured_here, earlier_trials, without_figures
from akx.tuner.sandbox import UNANSWERED
from akx.tuner.space import is_baseline
from tests.tuner.conftest import default_cost

KIB = 1024
_PATIENT = Settings(patience=1000, seconds=1e6)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


@pytest.fixture
def key(world: Any, matrix: Any) -> PlanKey:
    return plan_key(matrix, 8, threads=2)


def search(matrix: Any, db: Any, *, trials: int = 12, **options: Any) -> TuneResult:
    given = {"settings": _PATIENT, "threads": 2, **options}
    return tune(matrix, 8, trials=trials, db=db, **given)


def own(result: TuneResult) -> list[Plan]:
    return [trial.plan for trial in result.trials if trial.is_own]


def entered(result: TuneResult) -> dict[Plan, Trial]:
    return {trial.plan: trial for trial in result.trials if trial.origin == EARLIER}


def forget_plans(db: PlanDatabase) -> None:
    """Remove the plans and leave the trials."""
    db._change(lambda tables: tables.connection.execute("DELETE FROM plans"))


def front(**changes: Any) -> Plan:
    return Plan("cpu", "front", "sell", "natural", 8, 4, 256 * KIB, 2, {"split": "interleaved"}).replace(**changes)


def sweep(**changes: Any) -> Plan:
    return Plan("cpu", "sweep", "sell", k=8, threads=2).replace(**changes)


# ------------------------------------------------------------------------------------------------ killed


def killed(world: Any, matrix: Any, db: PlanDatabase, prepared: int) -> None:
    """A search in another process that is killed while it prepares the plan of that number; each takes 0.7 s."""
    child = os.fork()
    if child == 0:
        try:
            warnings.simplefilter("ignore")

            def prepare(plan: Plan) -> float:
                if len(world.prepared) == prepared:
                    os.kill(os.getpid(), signal.SIGKILL)
                return 0.7

            world.prepare_cost = prepare
            search(matrix, db, trials=60)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@needs_fork
@pytest.mark.parametrize("prepared", [5, 14, 30])
def test_a_search_that_is_killed_is_gone_on_with(
    world: Any, matrix: Any, db: PlanDatabase, key: PlanKey, prepared: int
) -> None:
    killed(world, matrix, db, prepared)
    assert db.find(key).record is None
    there = db.trials(key)
    assert prepared - 5 <= len(there) < prepared, "all but those of the last two seconds"
    result = search(matrix, db)
    assert not result.reused
    again = set(own(result)) & {trial.plan for trial in there}
    assert len(again) == 1, "the best baseline, to compare"
    assert all(is_baseline(plan) for plan in again)
    assert set(entered(result)) == {trial.plan for trial in there} - again
    assert len(own(result)) == sum(result.counts.to_json().values()) == 12
    assert any(f"went on from {len(there) - 1} trials" in note for note in result.notes)
    assert len(db.trials(key)) == len(there) + 12
    record = db.find(key).record
    assert record is not None
    assert (record.plan, record.trials) == (result.plan, result.counts.to_json())


@needs_fork
def test_what_a_killed_search_has_found_is_in_the_run_off_of_the_next(
    world: Any, matrix: Any, db: PlanDatabase, key: PlanKey, optimum: Plan
) -> None:
    killed(world, matrix, db, 55)
    assert optimum in [trial.plan for trial in db.trials(key)]
    result = search(matrix, db, trials=2)
    assert optimum not in own(result)
    assert result.plan == optimum
    assert optimum in world.prepared, "prepared, checked and timed here"
    assert result.seconds == pytest.approx(2e-3, rel=1e-3)


def test_trials_are_there_as_they_end(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    world = make_world(prepare_cost=lambda plan: 0.5)
    key = plan_key(matrix, 8, threads=2)
    seen: list[tuple[float, int, int]] = []
    search(matrix, db, callback=lambda now: seen.append((world.time, now.trials, len(db.trials(key)))))
    within = [one for one in seen if one[1] < 12]
    assert {there for _, _, there in within} > {0}
    assert all(made - there <= 5 for _, made, there in within)
    changed = [time for (time, _, before), (_, _, after) in pairwise(seen) if after > before]
    assert all(after - before >= 1.5 for before, after in pairwise(changed[:-1])), "and not each by itself"
    assert len(changed) >= 3


# ------------------------------------------------------------------------------------------------ what is entered


def test_seconds_are_those_that_they_would_be_here(
    make_world: Any, matrix: Any, db: PlanDatabase, optimum: Plan
) -> None:
    fast = make_world()
    first = search(matrix, db, trials=60)
    world = make_world(cost=lambda plan: 3 * fast.cost(plan))
    result = search(matrix, db, trials=3, retune=True)
    assert own(result)[0] == first.baseline_plan
    done = [trial for trial in entered(result).values() if trial.state == "complete"]
    assert len(done) > 20
    assert all(trial.seconds == pytest.approx(world.cost(trial.plan), rel=0.05) for trial in done)
    assert result.plan == optimum
    assert result.seconds == pytest.approx(6e-3, rel=1e-3)


def test_the_run_off_measures_whatever_is_on_record(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world()
    assert search(matrix, db, trials=60).plan.schedule == "front"
    make_world(cost=lambda plan: 1e-3 if plan.schedule == "sweep" else 2e-3)
    again = search(matrix, db, trials=5, retune=True)
    assert entered(again)
    assert (again.plan.schedule, again.speedup) == ("sweep", 1.0)


def test_the_plan_that_is_kept_is_measured_and_not_entered(world: Any, matrix: Any, db: PlanDatabase) -> None:
    first = search(matrix, db, trials=60)
    again = search(matrix, db, trials=4, retune=True)
    (given,) = (trial for trial in again.trials if trial.origin == "given")
    assert given.plan == first.plan
    assert first.plan not in entered(again)


def test_trials_of_another_key_are_not_entered(
    world: Any, make_matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    from akx.plandb import key as keys

    matrix = make_matrix()
    search(matrix, db)
    for options in ({"threads": 1}, {"basis": "newton"}, {"start_vectors": 2}):
        assert not entered(search(matrix, db, **options))
    assert not entered(search(make_matrix(seed=1), db))
    with monkeypatch.context() as patched:
        patched.setattr(keys, "revision", lambda backend, schedule: 2)
        other = search(matrix, db)
        assert not entered(other)
        assert "pattern" in [trial.origin for trial in other.trials], "its plan is a seed all the same"
    assert entered(search(matrix, db, retune=True))


def test_what_was_wrong_or_is_infeasible_is_not_tried_again(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    def no(plan: Plan, call: int) -> bool:
        return plan.schedule == "front" and plan.threads == 1

    make_world(wrong=no, fails_to_prepare=lambda p: InfeasibleError("never") if p.block_bytes == 128 * KIB else None)
    first = search(matrix, db, trials=60)
    states = {trial.plan: trial.state for trial in first.trials}
    assert set(states.values()) == {"complete", "pruned", "failed"}
    world = make_world()
    again = search(matrix, db, trials=40, retune=True)
    assert again.reasons == {"pruned": again.reasons["pruned"], "failed": {}}, "of this search alone"
    assert first.reasons["failed"]
    assert {plan: trial.state for plan, trial in entered(again).items()} == {
        plan: state for plan, state in states.items() if plan not in own(again)
    }
    assert {states[plan] for plan in set(own(again)) & states.keys()} == {"complete"}
    assert len(set(own(again)) & states.keys()) == 2, "the best baseline and the plan that is kept"
    world.prepared.clear()
    anew = search(matrix, db, trials=60, fresh=True)
    assert not entered(anew)
    assert {plan for plan in own(anew) if states.get(plan) == "failed"}


def test_what_may_be_otherwise_today_is_tried_again(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    """Memory was short, or a process was lost; and how values can be stored is not in the key."""

    def short(plan: Plan) -> Exception | None:
        if plan.schedule == "front" and plan.block_bytes == 64 * KIB:
            return InfeasibleError(AS_ANOTHER)
        return MemoryError("short") if plan.schedule == "front" and plan.threads == 1 else None

    make_world(fails_to_prepare=short)
    first = search(matrix, db, trials=60)
    states = {trial.plan: trial.state for trial in first.trials}
    assert set(states.values()) == {"complete", "pruned", "failed"}
    like = front(block_bytes=16 * KIB)
    same = stored.same_as_full(like.replace(backend="cuda", options={**like.options, "stored": "half"}))
    put(db, plan_key(matrix, 8, threads=2), "2026-01-01T00:00:00+00:00", (like, None, "pruned", same))
    make_world()
    again = search(matrix, db, trials=60, retune=True)
    assert all(trial.seconds is not None for trial in entered(again).values())
    assert {plan for plan in own(again) if states.get(plan) == "failed"}
    without_room = {trial.plan for trial in first.trials if trial.reason == AS_ANOTHER}
    assert without_room
    assert without_room & set(own(again))


def test_a_baseline_that_was_disturbed_then_drops_nothing_now(
    make_world: Any, matrix: Any, db: PlanDatabase, key: PlanKey
) -> None:
    """Figures of that search are far too good here then; what is measured here races with what was measured here."""
    make_world()
    before = search(matrix, PlanDatabase(db.path.with_name("other.sqlite"), layers=()), trials=30)
    best = min((trial.seconds or 1.0 for trial in before.trials if is_baseline(trial.plan)), default=1.0)
    rows = [
        TrialRecord(
            trial.plan,
            [15.0 * best] * 5 if is_baseline(trial.plan) else [trial.seconds or 1.0] * 5,
            created="2024-01-01T00:00:00+00:00",
        )
        for trial in before.trials[:12]
        if trial.state == "complete"
    ]
    db.add_trials(key, rows)
    again = search(matrix, db, trials=30)
    phantom = [trial.seconds or 1.0 for trial in entered(again).values()]
    measured = {trial.plan: trial for trial in again.trials if trial.is_own and trial.seconds}
    complete = [trial.seconds for trial in measured.values() if trial.state == "complete"]
    assert min(phantom) < 0.2 * min(complete)
    assert len(complete) >= 5
    for trial in measured.values():
        assert trial.state == "complete" or trial.seconds > 1.3 * min(complete)


def test_a_fresh_search_is_one_even_where_a_plan_is_known(world: Any, matrix: Any, db: PlanDatabase) -> None:
    first = search(matrix, db)
    anew = search(matrix, db, fresh=True)
    assert not anew.reused
    assert [trial.plan for trial in anew.trials if trial.origin == "baseline"] == [
        trial.plan for trial in first.trials if trial.origin == "baseline"
    ]
    assert search(matrix, db).reused


def test_what_was_found_out_late_is_not_trusted_tomorrow(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    world = make_world(wrong=lambda plan, call: plan.schedule == "front" and call > 1)
    key = plan_key(matrix, 8, threads=2)
    first = search(matrix, db, trials=30)
    late = {trial.plan for trial in first.trials if trial.state == "failed"}
    assert late
    assert [(trial.plan, trial.state, trial.reason) for trial in db.trials(key)] == [
        (trial.plan, trial.state, trial.reason) for trial in first.trials
    ], "each once, and as it ended"
    world.wrong = lambda plan, call: False
    again = search(matrix, db, trials=3, retune=True)
    assert {plan for plan, trial in entered(again).items() if trial.state == "failed"} == late
    assert again.plan not in late


def test_what_was_found_out_of_an_earlier_search_is_on_record(
    make_world: Any, matrix: Any, db: PlanDatabase, optimum: Plan
) -> None:
    world = make_world()
    key = plan_key(matrix, 8, threads=2)
    assert search(matrix, db, trials=60).plan == optimum
    forget_plans(db)
    world.wrong = lambda plan, call: plan == optimum
    assert search(matrix, db, trials=2).plan != optimum
    assert [trial.state for trial in earlier_trials(db, key).runs[0] if trial.plan == optimum] == ["failed"]
    forget_plans(db)
    world.wrong = lambda plan, call: False
    again = search(matrix, db, trials=2)
    assert entered(again)[optimum].state == "failed"
    assert again.plan != optimum


def test_recorded_and_shared_searches_begin_anew(world: Any, matrix: Any, db: PlanDatabase, tmp_path: Path) -> None:
    search(matrix, db)
    path = tmp_path / "trials.jsonl"
    recorded = search(matrix, db, retune=True, record=path)
    assert not entered(recorded)
    assert [one.trial.plan for one in read_recording(path).runs[0].trials] == [trial.plan for trial in recorded.trials]
    shared = search(matrix, db, retune=True, storage=tmp_path / "study.journal")
    assert not entered(shared)
    assert SHARED not in [trial.origin for trial in shared.trials]


def test_budgets_count_what_is_tried_here(world: Any, matrix: Any, db: PlanDatabase) -> None:
    search(matrix, db, trials=30)
    seen: list[Any] = []
    again = search(matrix, db, trials=10, retune=True, callback=seen.append)
    assert len(own(again)) == 10
    assert again.stopped == "trial budget"
    assert len(again.trials) == 10 + 30 - 2
    assert max(progress.trials for progress in seen) == 10
    assert seen[0].fraction <= 0.1


def test_ctrl_c_keeps_nothing_that_was_not_measured_here(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world()
    search(matrix, db, trials=60)
    forget_plans(db)
    world = make_world()

    def stop(progress: Any) -> None:
        if progress.trials == 1 and progress.phase != "done":
            raise KeyboardInterrupt

    result = search(matrix, db, callback=stop)
    assert result.interrupted
    assert entered(result)
    assert result.plan in own(result)
    assert result.plan in world.prepared


# ------------------------------------------------------------------------------------------------ what is written


def test_trials_stay_where_there_is_no_result(world: Any, matrix: Any, db: PlanDatabase, key: PlanKey) -> None:
    def broken(progress: Any) -> None:
        if progress.trials == 7:
            raise RuntimeError("bar")

    with pytest.raises(RuntimeError, match="bar"):
        search(matrix, db, callback=broken)
    assert len(db.trials(key)) == 7
    assert db.list() == []


def test_an_interrupted_search_leaves_its_trials_beside_the_plan_there_was(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise DatabaseError("no space left on device")

    make_world()
    first = search(matrix, db)
    key = plan_key(matrix, 8, threads=2)
    make_world(interrupt_at=400)
    second = search(matrix, db, trials=1000, retune=True)
    assert second.interrupted
    assert len(own(second)) > 2
    assert len(db.trials(key)) == len(first.trials) + len(own(second))
    make_world(interrupt_at=400)
    monkeypatch.setattr(db, "add_trials", full)
    assert any("its trials are not" in note for note in search(matrix, db, trials=1000, retune=True).notes)


@pytest.mark.parametrize("error", [DatabaseError("no space left on device"), OSError(5, "Input/output error")])
def test_a_database_that_fails_meanwhile_does_not_end_the_search(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    world = make_world(prepare_cost=lambda plan: 1.0)
    genuine, asked = db.add_trials, []

    def fails(*given: Any, **options: Any) -> int:
        asked.append((world.time, options["patience"]))
        if world.time < 130.0:
            raise error
        return genuine(*given, **options)

    monkeypatch.setattr(db, "add_trials", fails)
    result = search(matrix, db, trials=40)
    assert len(result.trials) == 40
    assert len(db.trials(plan_key(matrix, 8, threads=2))) == 40
    early = [time for time, _ in asked if time < 130.0]
    assert 2 <= len(early) <= 4
    assert all(after - before >= 10.0 for before, after in pairwise(early))
    assert all(patience < 1 for _, patience in asked[:-1])
    assert not any("trials are not" in note for note in result.notes)


def test_a_slow_database_gets_a_twentieth_of_the_time(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(prepare_cost=lambda plan: 1.0)
    genuine, times = db.add_trials, []

    def slow(*given: Any, **options: Any) -> int:
        times.append(world.time)
        world.pause(0.5)
        return genuine(*given, **options)

    monkeypatch.setattr(db, "add_trials", slow)
    search(matrix, db, trials=60)
    assert 4 <= len(times) <= 8
    assert all(after - before >= 10.0 for before, after in pairwise(times[:-1]))


def test_another_process_that_holds_the_database_is_not_waited_for_long(
    matrix: Any, db: PlanDatabase, key: PlanKey, world: Any
) -> None:
    db.check_writable()
    log, waited = TrialLog(db, key), Clock()
    holder = sqlite3.connect(db.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    world.pause(3.0)
    log.trial(Trial(0, sweep(), "baseline", "complete", seconds=1.0, samples=(1.0,)))
    assert waited() < 5.0, "and not the ten seconds of a plan"
    holder.execute("ROLLBACK")
    holder.close()
    assert db.trials(key) == ()
    log.end()
    assert [trial.plan for trial in db.trials(key)] == [sweep()]


@pytest.mark.parametrize("kind", ["file", "server"])
@pytest.mark.parametrize("fault", [DatabaseError("the connection was lost"), KeyboardInterrupt()])
def test_what_was_put_there_and_reported_as_lost_is_there_once(
    request: pytest.FixtureRequest, tmp_path: Path, key: PlanKey, world: Any, kind: str, fault: BaseException
) -> None:
    place = tmp_path / "plans.sqlite" if kind == "file" else request.getfixturevalue("server_url")

    class Lossy(PlanDatabase):
        def add_trials(self, *given: Any, **options: Any) -> int:
            genuine = super().add_trials(*given, **options)
            if faults:
                raise faults.pop()
            return genuine

    def made(plan: Plan, state: str = "complete") -> Trial:
        return Trial(0, plan, "sampled", state, "" if state == "complete" else WRONG, seconds=1.0, samples=(1.0,))

    faults: list[BaseException] = []
    with Lossy(place, layers=()) as lossy:
        log = TrialLog(lossy, key)
        log.trial(made(sweep()))
        log.trial(made(front()))
        faults.append(fault)
        world.pause(3.0)
        if isinstance(fault, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                log.trial(made(front(threads=1)))
        else:
            log.trial(made(front(threads=1)))
        assert not faults
        assert len(lossy.trials(key)) == 3, "although nobody was told"
        log.trial(made(front(), "failed"))  # found out later
        log.trial(made(sweep(threads=1)))
        log.end()
        log.end()
        expected = [(sweep(), "complete"), (front(), "failed"), (front(threads=1), "complete")]
        found = [(trial.plan, trial.state) for trial in lossy.trials(key)]
        assert found == [*expected, (sweep(threads=1), "complete")]
        assert len({trial.created for trial in lossy.trials(key)}) == 1


def Clock() -> Callable[[], float]:
    import time

    begin = time.monotonic()
    return lambda: time.monotonic() - begin


# ------------------------------------------------------------------------------------------------ reading


def put(db: PlanDatabase, key: PlanKey, created: str, *trials: tuple[Plan, float | None, str, str]) -> None:
    rows = [TrialRecord(p, () if s is None else (s,) * 3, state, why, created) for p, s, state, why in trials]
    db.add_trials(key, rows)


def test_trials_of_one_time_are_of_one_search(
    matrix: Any, db: PlanDatabase, key: PlanKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = "2026-01-01T00:00:00.000001+00:00", "2026-01-01T00:00:00.000002+00:00"
    put(db, key, first, (front(block_bytes=32 * KIB), None, "failed", "MemoryError: short"))
    put(db, key, first, (sweep(), 4.0, "complete", ""))
    put(db, key, second, (sweep(variant="csr"), 5.0, "complete", ""), (front(), None, "failed", f"{WRONG}: x"))
    put(db, key, first, (front(), 2.0, "complete", ""), (front(threads=1), 9.0, "pruned", "slow"))
    put(db, key, first, (front(k_per_pass=8), None, "pruned", f"{UNANSWERED} within 3 s"))
    put(db, key, first, (front(block_bytes=64 * KIB), None, "complete", ""))
    history = earlier_trials(db, key)
    assert [[(one.plan, one.state, one.seconds) for one in run] for run in history.runs] == [
        [(sweep(variant="csr"), "complete", 5.0), (front(), "failed", None)],
        [(sweep(), "complete", 4.0), (front(), "complete", 2.0), (front(threads=1), "pruned", 9.0)],
    ]
    assert {one.origin for run in history.runs for one in run} == {EARLIER}
    assert history.baseline() == sweep(variant="csr"), "of the newest search"
    assert earlier_trials(db, replace(key, ranks=2)) == earlier_trials(None, key) == NO_HISTORY
    newest, oldest = history.runs
    assert as_measured_here(newest, {sweep(): 8.0}) is None
    assert [one.seconds for one in as_measured_here(oldest, {sweep(): 8.0}) or ()] == [8.0, 4.0, 18.0]
    assert [one.plan for one in without_figures(newest)] == [front()]
    monkeypatch.setattr(history_module, "_MOST_TRIALS", 3)
    assert [[one.plan for one in run] for run in earlier_trials(db, key).runs] == [[front(threads=1)]]


def test_the_newest_search_that_can_be_compared_holds(matrix: Any, db: PlanDatabase, key: PlanKey) -> None:
    put(db, key, "2026-01-01T00:00:00+00:00", (sweep(), 4e-3, "complete", ""), (front(), 1e-3, "complete", ""))
    put(db, key, "2026-01-02T00:00:00+00:00", (sweep(), 8e-3, "complete", ""), (front(), 4e-3, "complete", ""))
    put(
        db, key, "2026-01-03T00:00:00+00:00", (front(), 1e-9, "complete", ""), (front(threads=1), None, "failed", WRONG)
    )
    result = search(matrix, db, trials=1)
    found = entered(result)
    assert found[front()].seconds == pytest.approx(2e-3, rel=1e-3)
    assert found[front(threads=1)].reason == WRONG


def test_a_database_that_cannot_be_read_has_no_trials(
    matrix: Any, db: PlanDatabase, key: PlanKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise DatabaseError("the server is gone")

    search(matrix, db)
    monkeypatch.setattr(PlanDatabase, "trials", fails)
    assert earlier_trials(db, key) == NO_HISTORY
    assert not entered(search(matrix, db, retune=True))


def test_what_lies_outside_the_space_is_not_entered(matrix: Any, db: PlanDatabase, key: PlanKey) -> None:
    outside = (sweep(variant="old"), front(block_bytes=3 * KIB), front(schedule="none"))
    at = "2026-01-01T00:00:00+00:00"
    put(db, key, at, *((plan, 1e-6, "complete", "") for plan in outside), (sweep(), 4e-3, "complete", ""))
    result = search(matrix, db, trials=3)
    assert not set(outside) & {trial.plan for trial in result.trials}
    put(db, key, "2026-01-02T00:00:00+00:00", (sweep(variant="old"), 1e-6, "complete", ""))
    assert sweep(variant="old") not in {trial.plan for trial in search(matrix, db, trials=3, retune=True).trials}


def test_plans_alone_are_no_trials(matrix: Any, db: PlanDatabase, key: PlanKey) -> None:
    fields: dict[str, Any] = {"seconds": 1e-3, "baseline_name": "sweep/csr", "baseline_seconds": 2e-3}
    db.put(PlanRecord(key=key, plan=front(), **fields))
    assert earlier_trials(db, key) == NO_HISTORY
    assert not entered(search(matrix, db, retune=True))


def test_a_baseline_for_other_values_is_passed_over(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    """What these values cannot be stored as is neither tried nor entered, however fast it was; the next best counts."""
    make_world(cost=lambda plan: 1e-3 if plan.variant == "sell" else 4e-3)
    first = search(matrix, db, trials=20)
    assert first.baseline_plan.variant == "sell"
    forget_plans(db)
    other = lambda plan: plan.variant == "sell" and plan.partitioner == "natural"  # noqa: E731
    make_world(infeasible=lambda plan: "its values are not symmetric" if other(plan) else None)
    second = search(matrix, db, trials=6)
    assert not any(other(trial.plan) and trial.seconds for trial in second.trials)
    assert own(second)[0] in [trial.plan for trial in first.trials if trial.plan.variant == "csr"]
    assert entered(second)


def test_a_plan_on_record_that_is_faster_by_far_wins_a_noisy_run_off(
    make_world: Any, matrix: Any, db: PlanDatabase, optimum: Plan
) -> None:
    """As one tried in this search does: what is on record says it as well as the median of the rounds."""
    usual = make_world()
    usual.cost = lambda plan: 2.7e-3 if plan.schedule == "sweep" else default_cost(plan)
    assert search(matrix, db, trials=60).plan == optimum
    forget_plans(db)
    rng = np.random.default_rng(0)
    slow = lambda plan: 1.45 if plan.schedule == "front" and rng.random() < 0.46 else 1.0  # noqa: E731
    make_world(cost=lambda plan: usual.cost(plan) * slow(plan))
    result = search(matrix, db, trials=1)
    assert optimum not in own(result)
    assert result.plan.schedule == "front"
