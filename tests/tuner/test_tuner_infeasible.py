"""What a schedule says is infeasible: never a trial, unless it was asked for; and where the reason is told instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import mostly_nightly

from akx.backends import registry
from akx.backends.host import host_device
from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import Settings, TuneResult, exhaustive, plan_key, read_recording, replay
from akx.tuner import tune as tune_and_keep
from akx.tuner.candidates import initial_candidates
from akx.tuner.candidates.warm_start import WarmStart
from akx.tuner.history.trial import EARLIER, SHARED
from akx.tuner.search import outcome
from akx.tuner.search import tune as tuning
from akx.tuner.search.outcome import not_tried
from akx.tuner.space import build_space
from akx.tuner.trace.simulation import UNKNOWN
from akx.tuner.trial.bench import Bench

KIB = 1024
tune = partial(tune_and_keep, db=False)
NO_FRONT = "front was not tried: no front forms"


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Every plan that is tried from now on."""
    found: list[Plan] = []
    try_plan = Bench.try_plan

    def watched(bench: Bench, plan: Plan, **options: Any) -> Any:
        found.append(plan)
        return try_plan(bench, plan, **options)

    monkeypatch.setattr(Bench, "try_plan", watched)
    return found


def front(**changes: Any) -> Plan:
    options = {"split": "interleaved"}
    return Plan("cpu", "front", "sell", "natural", 8, 4, 256 * KIB, 2, options).replace(**changes)


def no_front(plan: Plan) -> str | None:
    return "no front forms" if plan.schedule == "front" else None


def no_sell(plan: Plan) -> str | None:
    return "padding is too much" if plan.variant == "sell" else None


def told(result: Any) -> list[str]:
    """What the notes say was not tried."""
    return [note for note in result.notes if "not tried" in note]


def retune(matrix: Any, db: PlanDatabase, **options: Any) -> TuneResult:
    return tune_and_keep(matrix, 8, threads=2, db=db, retune=True, **options)


# ------------------------------------------------------------------------------------------------ no trials

REFUSED: dict[str, Callable[[Plan], bool]] = {
    "baselines": lambda plan: plan.variant == "sell",
    "other threads": lambda plan: plan.threads == 1,
    "defaults": lambda plan: getattr(plan.typed, "split", "") == "contiguous",
    "most blocks": lambda plan: plan.schedule == "front" and plan.block_bytes != 32 * KIB,
    "the best": lambda plan: getattr(plan.typed, "split", "") == "interleaved" and plan.variant == "sell",
    "an order": lambda plan: plan.partitioner == "rcm",
    "a schedule": lambda plan: plan.schedule == "front",
}


@pytest.mark.parametrize("what", mostly_nightly(REFUSED, ["baselines", "the best", "a schedule"]))
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_infeasible_is_never_tried(
    make_world: Any, matrix: Any, tried: list[Plan], what: str, whole: bool
) -> None:
    refused = REFUSED[what]
    world = make_world(infeasible=lambda plan: f"refused: {what}" if refused(plan) else None)
    result = exhaustive(matrix, 8) if whole else tune(matrix, 8, settings=Settings(patience=1000))
    assert tried == [trial.plan for trial in result.trials]
    assert [plan for plan in tried if refused(plan)] == []
    assert set(tried) <= set(world.prepared)
    assert not refused(result.plan)


def test_nor_are_seeds_and_what_is_predicted_or_where_a_schedule_wants_to_begin(
    make_world: Any, matrix: Any, tried: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [2**i * KIB for i in range(4, 11)]
    bad = {front(block_bytes=size): f"no blocks of {size} bytes" for size in sizes[:5]}
    make_world(infeasible=bad.get)
    like, similar, pattern, predicted, start = bad
    monkeypatch.setattr(tuning, "warm_start_of", lambda *_: WarmStart((like,), (similar,), (pattern,)))
    for module in (initial_candidates, outcome):
        monkeypatch.setattr(module, "predicted", lambda model: predicted)
    schedule = registry.get("cpu", "front")
    monkeypatch.setattr(schedule, "starts", lambda matrix, device, k: (start,), raising=False)
    result = tune(matrix, 8)
    assert not bad.keys() & set(tried)
    assert {"like", "similar", "pattern", "predicted", "start"}.isdisjoint(trial.origin for trial in result.trials)
    assert result.plan.schedule == "front"


@pytest.mark.parametrize("trials", [2, 5, 20])
def test_the_budget_of_trials_is_for_what_is_feasible(make_world: Any, matrix: Any, trials: int) -> None:
    make_world(infeasible=lambda plan: no_sell(plan) or ("too large" if plan.block_bytes >= 128 * KIB else None))
    result = tune(matrix, 8, trials=trials)
    assert result.stopped == "trial budget"
    assert len(result.trials) == trials
    assert all(trial.prepare_seconds is not None for trial in result.trials)


def test_baselines_that_others_or_earlier_searches_have_measured_are_not_tried_where_they_are_infeasible(
    make_world: Any, matrix: Any, db: PlanDatabase, tried: list[Plan], tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    storage = tmp_path / "shared" / "study.journal"
    make_world()
    first = retune(matrix, db)
    shared = tune(matrix, 8, threads=2, storage=storage)
    assert first.baseline_plan is not None
    assert first.baseline_plan == shared.baseline_plan
    assert first.baseline_plan.variant == "sell"
    tried.clear()
    make_world(infeasible=no_sell)
    for result in (retune(matrix, db), tune(matrix, 8, threads=2, storage=storage)):
        assert result.baseline_plan is not None
        assert result.baseline_plan.variant == "csr"
        assert {EARLIER, SHARED} & {trial.origin for trial in result.trials}
    assert tried
    assert not any(no_sell(plan) for plan in tried)


# ------------------------------------------------------------------------------------------------ trials all the same


def test_what_the_user_gave_is_a_trial_that_says_why_it_was_not_run(make_world: Any, matrix: Any) -> None:
    world = make_world(infeasible=lambda plan: no_front(plan) or no_sell(plan))
    given = [front(), Plan("cpu", "sweep", "sell", k=8, threads=2)]
    result = exhaustive(matrix, 8, include=given)
    found = {trial.plan: trial for trial in result.trials if trial.origin == "given"}
    assert [(found[plan].state, found[plan].reason) for plan in given] == [
        ("pruned", "no front forms"),
        ("pruned", "padding is too much"),
    ]
    assert not set(given) & set(world.prepared)
    assert len(result.trials) - len(found) == 4, "plain products in csr"
    assert told(result) == [], "its trial says it"


def test_what_turns_out_infeasible_when_it_is_prepared_is_a_pruned_trial(make_world: Any, matrix: Any) -> None:
    make_world(fails_to_prepare=lambda plan: InfeasibleError("no room") if plan.schedule == "front" else None)
    result = tune(matrix, 8)
    fronts = [trial for trial in result.trials if trial.plan.schedule == "front"]
    assert fronts
    assert {(trial.state, trial.reason) for trial in fronts} == {("pruned", "no room")}
    assert told(result) == []


@pytest.mark.parametrize("schedule", ["front", "sweep"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_schedule_that_cannot_say_what_is_feasible_fails_with_its_reason(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, schedule: str, whole: bool
) -> None:
    def broken(plan: Plan) -> str | None:
        if (plan.schedule, plan.variant) == (schedule, "csr"):
            raise ZeroDivisionError("by nought")
        return None

    make_world(infeasible=broken)
    for module in (initial_candidates, outcome):
        monkeypatch.setattr(module, "predicted", lambda model: front())
    result = (exhaustive if whole else tune)(matrix, 8)
    failed = [trial for trial in result.trials if trial.state == "failed"]
    assert failed
    assert {(trial.plan.schedule, trial.plan.variant) for trial in failed} == {(schedule, "csr")}
    assert {trial.reason for trial in failed} == {"ZeroDivisionError: by nought"}
    assert result.plan.variant == "sell"
    if whole:
        space = build_space(matrix, 8, host_device(), threads=2)
        assert len(failed) == len([plan for plan in space.plans(schedule) if plan.variant == "csr"])
    else:
        assert len(failed) <= 3


# ------------------------------------------------------------------------------------------------ what is told


@pytest.mark.parametrize("whole", [False, True])
def test_a_note_says_why_a_schedule_was_not_tried(make_world: Any, matrix: Any, whole: bool) -> None:
    make_world(infeasible=no_front)
    result = (exhaustive if whole else tune)(matrix, 8)
    assert [note for note in told(result) if note.startswith("front")] == [NO_FRONT]
    assert result.untried == {"front": "no front forms"}
    assert NO_FRONT in result.to_json()["notes"]


def test_the_reason_is_that_of_the_default(make_world: Any, matrix: Any) -> None:
    make_world(infeasible=lambda plan: f"{plan.block_bytes // KIB} KiB" if plan.schedule == "front" else None)
    assert "front was not tried: 128 KiB" in tune(matrix, 8).notes


def test_there_is_no_note_where_a_schedule_was_tried(make_world: Any, matrix: Any) -> None:
    make_world(infeasible=lambda plan: "too large" if plan.block_bytes >= 64 * KIB else None)
    result = tune(matrix, 8)
    assert (told(result), result.untried) == ([], {})
    assert result.plan.block_bytes == 32 * KIB


def test_there_is_no_note_on_what_was_left_out(make_world: Any, matrix: Any) -> None:
    make_world(infeasible=no_front)
    for search in (tune, exhaustive):
        result = search(matrix, 8, space_filter=lambda plan: plan.schedule != "front")
        assert result.untried == {}
        assert NO_FRONT not in result.notes
        assert NO_FRONT in search(matrix, 8, space_filter=lambda plan: plan.schedule == "front").notes


def test_there_is_no_note_where_nobody_came_to_ask(make_world: Any, matrix: Any) -> None:
    make_world(infeasible=no_front)
    assert tune(matrix, 8, trials=1).untried == {}


def test_there_is_no_note_where_others_or_earlier_searches_have_tried_a_schedule(
    make_world: Any, matrix: Any, db: PlanDatabase, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    storage = tmp_path / "shared" / "study.journal"
    make_world()
    first = retune(matrix, db)
    assert first.plan.schedule == "front"
    tune(matrix, 8, threads=2, storage=storage)
    make_world(infeasible=no_front)
    for result, origin in ((retune(matrix, db), EARLIER), (tune(matrix, 8, threads=2, storage=storage), SHARED)):
        assert origin in {trial.origin for trial in result.trials if trial.plan.schedule == "front"}
        assert NO_FRONT not in result.notes
        assert result.plan.schedule == "sweep"


def test_the_reason_is_kept_with_the_plan_and_told_again_by_the_next_search(
    make_world: Any, matrix: Any, db: PlanDatabase
) -> None:
    make_world(infeasible=no_front)
    key = plan_key(matrix, 8, threads=2)
    for _ in range(2):
        assert NO_FRONT in retune(matrix, db).notes
        record = db.find(key).record
        assert record is not None
        assert record.provenance["untried"] == {"front": "no front forms"}
        assert not any(trial.plan.schedule == "front" for trial in db.trials(key))


def test_schedules_with_the_same_reason_share_a_note() -> None:
    assert not_tried({}) == []
    assert not_tried({"ghost": "too large", "wavefront": "no front", "resident": "too large"}) == [
        "ghost, resident were not tried: too large",
        "wavefront was not tried: no front",
    ]


def test_where_no_baseline_is_feasible_the_error_names_the_reasons(
    make_world: Any, matrix: Any, tried: list[Plan]
) -> None:
    reasons = {"csr": "rows are too long", "sell": "padding is too much"}
    make_world(infeasible=lambda plan: reasons[plan.variant] if plan.schedule == "sweep" else None)
    for search in (exhaustive, tune):
        with pytest.raises(InfeasibleError, match="every baseline fails") as refusal:
            search(matrix, 8)
        assert all(reason in str(refusal.value) for reason in reasons.values())
    assert tried == []


def test_the_error_names_what_failed_beside_what_is_infeasible(make_world: Any, matrix: Any) -> None:
    make_world(infeasible=no_sell, fails_to_run=lambda plan: MemoryError("short"))
    with pytest.raises(InfeasibleError, match="padding is too much; MemoryError: short"):
        tune(matrix, 8)


# ------------------------------------------------------------------------------------------------ recordings


def noisy(make_world: Any, **changes: Any) -> None:
    random = np.random.default_rng(5)
    make_world(prepare_cost=lambda plan: 0.2, noise=lambda: float(random.uniform(0, 0.01)), **changes)


def test_a_search_among_infeasible_plans_is_made_again_from_its_recording(
    make_world: Any, matrix: Any, tmp_path: Path
) -> None:
    """What turned out infeasible only when it was prepared is tried again, as it was."""
    noisy(
        make_world,
        infeasible=lambda plan: "too large" if plan.block_bytes == 64 * KIB or plan.threads == 1 else None,
        fails_to_prepare=lambda plan: InfeasibleError("no room") if plan.block_bytes >= 512 * KIB else None,
    )
    path = tmp_path / "trials.jsonl"
    result = tune(matrix, 8, record=path)
    assert any(trial.reason == "no room" for trial in result.trials)
    found = replay(path)
    assert [(one.origin, one.plan, one.state, one.reason) for one in found.trials] == [
        (one.origin, one.plan, one.state, one.reason) for one in result.trials
    ]
    assert found.plan == result.plan
    assert found.missing > 0, "what was infeasible is not on record"


def test_what_is_not_in_a_recording_of_the_whole_space_is_infeasible(
    make_world: Any, matrix: Any, tmp_path: Path
) -> None:
    def infeasible(plan: Plan) -> str | None:
        return no_sell(plan) or no_front(plan)

    noisy(make_world, infeasible=infeasible)
    path = tmp_path / "trials.jsonl"
    exhaustive(matrix, 8, record=path)
    recording = read_recording(path)
    space = build_space(matrix, 8, host_device(), threads=2)
    assert recording.exhaustive
    assert recording.trials.keys() == {plan for plan in space.plans() if infeasible(plan) is None}
    found = replay(recording)
    assert found.missing > 0
    assert not any(trial.reason == UNKNOWN for trial in found.trials)
    assert f"front was not tried: {UNKNOWN}" in found.notes
