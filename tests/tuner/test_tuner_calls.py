"""``tune(..., calls=N)``: no more is spent than N calls can pay back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akx.backends.host import HostDevice
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError
from akx.cost.device_model import Figures
from akx.plandb import PlanDatabase
from akx.tuner import Progress, Settings, plan_key
from akx.tuner import tune as tune_and_keep
from akx.tuner.history.result import FEW_CALLS
from akx.tuner.model.predict import Model
from akx.tuner.search import outcome as outcomes
from akx.tuner.space import Space, is_baseline, least_bytes

tune = partial(tune_and_keep, db=False)


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


def slow_world(make_world: Any) -> Any:
    """Half a second to prepare a plan, 4 ms for a call of the baseline."""
    return make_world(prepare_cost=lambda plan: 0.5)


@pytest.mark.parametrize("calls", [1, 10, 1000])
def test_for_few_calls_the_baseline_is_taken_without_a_search(make_world: Any, matrix: Any, calls: int) -> None:
    slow_world(make_world)
    result = tune(matrix, 8, calls=calls)
    assert [(trial.origin, trial.state) for trial in result.trials] == [("baseline", "complete")]
    assert is_baseline(result.plan)
    assert (result.speedup, result.break_even_calls) == (1.0, None)
    assert (result.stopped, result.calls) == (FEW_CALLS, calls)
    said = "1 call is too few" if calls == 1 else f"{calls} calls are too few"
    assert any(said in note for note in result.notes)
    assert any("nothing was tried but the baseline" in note for note in result.notes)
    assert result.tuning_seconds < 1.5  # one plan prepared, its trial, and a run-off of two rounds


def test_what_was_not_compared_with_the_predicted_plan_does_not_take_its_place(
    make_world: Any, matrix: Any, db: PlanDatabase
) -> None:
    slow_world(make_world)
    result = tune_and_keep(matrix, 8, calls=100, db=db)
    assert (result.stopped, result.db, is_baseline(result.plan)) == (FEW_CALLS, None, True)
    assert any("the plan is not kept, and calls go on as untuned ones" in note for note in result.notes)
    key = plan_key(matrix, 8, threads=2)
    assert db.find(key).record is None
    assert [trial.plan for trial in db.trials(key)] == [result.plan], "what was measured is kept"
    enough = tune_and_keep(matrix, 8, calls=8000, db=db)
    assert "predicted" in {trial.origin for trial in enough.trials}
    kept = db.find(key).record
    assert kept is not None
    assert kept.plan == enough.plan
    again = tune_and_keep(matrix, 8, calls=100, db=db, retune=True)
    assert db.find(key).record is not None, "the plan that was there was measured too"
    assert again.plan in (enough.plan, again.baseline_plan)


def test_for_many_calls_it_is_as_without_the_option(make_world: Any, matrix: Any) -> None:
    slow_world(make_world)
    free = tune(matrix, 8)
    slow_world(make_world)
    many = tune(matrix, 8, calls=10**6)
    assert [trial.plan for trial in many.trials] == [trial.plan for trial in free.trials]
    assert (many.plan, many.stopped, many.tuning_seconds) == (free.plan, free.stopped, free.tuning_seconds)
    assert free.calls is None


def test_more_calls_pay_for_more_search(make_world: Any, matrix: Any) -> None:
    """Time spent is a quarter of what could be won at most, but for one trial; so what is gained pays for it."""
    made, gains = [], []
    for calls in (10, 4000, 8000, 20000, 10**6):
        slow_world(make_world)
        seen: list[Progress] = []
        result = tune(matrix, 8, calls=calls, callback=seen.append)
        made.append(len(result.trials))
        gains.append(result.baseline_seconds - result.seconds)
        best = min(p.best_seconds for p in seen if p.best_seconds)
        assert result.tuning_seconds < 0.25 * calls * best + 1.2
        assert result.break_even_calls is None or result.break_even_calls <= calls
    assert made == sorted(made)
    assert made[0] == 1 < made[1] < made[2] < made[-1]
    assert gains[0] == 0 < gains[2] <= gains[-1] * 1.02


def test_for_some_calls_the_predicted_plan_is_tried_and_no_more(make_world: Any, matrix: Any) -> None:
    """Baselines take 40 % of what there is at most, then the seeds have their turn before any search."""
    slow_world(make_world)
    result = tune(matrix, 8, calls=8000)
    assert {trial.origin for trial in result.trials} == {"baseline", "predicted", "default"}
    assert result.stopped == FEW_CALLS
    assert result.plan.schedule == "front"


def test_what_is_not_paid_back_in_so_many_calls_is_said(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    """A plan that was tuned for more calls answers for fewer; ten seconds to prepare it are more than these gain."""
    make_world(prepare_cost=lambda plan: 10.0 if plan.schedule == "front" else 0.01)
    result = tune_and_keep(matrix, 8, calls=10**6, db=db, settings=Settings(seconds=1e3))
    assert result.plan.schedule == "front"
    assert not any("pay back" in note for note in result.notes)
    again = tune_and_keep(matrix, 8, calls=3000, db=db)
    assert again.reused
    assert again.break_even_calls is not None
    assert again.break_even_calls > 3000
    (note,) = (note for note in again.notes if "pay back" in note)
    assert note == f"3000 calls do not pay back what tuning cost, {again.break_even_calls} do"


def test_what_preparing_takes_is_said_too(make_world: Any, matrix: Any) -> None:
    """The price of preparing shows when it was paid: ten seconds for the first plan that is better."""
    make_world(prepare_cost=lambda plan: 10.0 if plan.schedule == "front" else 0.01)
    result = tune(matrix, 8, calls=3000)
    assert result.break_even_calls is not None
    assert result.break_even_calls > 3000
    assert any("3000 calls do not pay back" in note for note in result.notes)


def test_what_two_searches_cost_is_said_once(make_world: Any, matrix: Any) -> None:
    """Where two backends are tuned each has a note on its own time; that on both takes the place of theirs."""
    make_world()
    alone = tune(matrix, 8)
    assert alone.break_even_calls is not None
    calls = alone.break_even_calls - 1
    first = outcomes.with_calls(alone, calls)
    assert first.notes == (*alone.notes, f"{calls} calls do not pay back what tuning cost, {calls + 1} do")
    both = outcomes.with_calls(replace(first, tuning_seconds=2 * first.tuning_seconds), calls)
    assert both.break_even_calls is not None
    assert both.break_even_calls > calls + 1
    assert both.notes == (*alone.notes, f"{calls} calls do not pay back what tuning cost, {both.break_even_calls} do")


def test_near_the_least_that_is_possible_search_ends_sooner(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the model's least time is what the best plan takes, a tenth of that is still granted, and no more."""
    trials = {}
    for least in (0.0, 1.0):
        monkeypatch.setattr(Model, "least_seconds", property(lambda self, least=least: least))
        slow_world(make_world)
        result = tune(matrix, 8, calls=20000, settings=Settings(patience=10**6))
        assert result.stopped == FEW_CALLS
        trials[least] = len(result.trials)
    assert 1 <= trials[1.0] < trials[0.0]
    slow_world(make_world)
    assert tune(matrix, 8, calls=10**6).stopped != FEW_CALLS


def test_the_least_time_is_that_of_values_and_vectors(matrix: Any) -> None:
    device = HostDevice("host", 2, 32 * 1024, 1024 * 1024, 16 * 1024 * 1024)
    figures = Figures(1e9, 2e9, 4e9, 1e9, 0.0, 10**9)
    size = least_bytes(matrix, 8)
    assert size == 8 * (matrix.nnz + 10 * matrix.n)
    space = Space("cpu", 8, 2, device, {}, {})
    assert Model(matrix, space, figures).least_seconds == pytest.approx(size / 4e9)
    small = Figures(1e9, 2e9, 4e9, 1e9, 0.0, size - 1)
    assert Model(matrix, space, small).least_seconds == pytest.approx(size / 1e9)
    assert Model(matrix, space, figures, ceiling=small).least_seconds == pytest.approx(size / 1e9)
    assert Model(matrix, space, small, start_vectors=3).least_seconds == pytest.approx(least_bytes(matrix, 8, 3) / 1e9)


def test_a_plan_that_was_sought_for_few_calls_is_sought_again_for_more(
    make_world: Any, matrix: Any, db: PlanDatabase
) -> None:
    world = slow_world(make_world)
    few = tune(matrix, 8, db=db, calls=8000)
    assert few.stopped == FEW_CALLS
    made = len(world.prepared)
    for calls in (8000, 5):
        again = tune(matrix, 8, db=db, calls=calls)
        assert (again.reused, again.plan, again.calls) == (True, few.plan, calls)
    assert len(world.prepared) == made
    more = tune(matrix, 8, db=db, calls=20000)
    assert not more.reused
    assert more.plan.schedule == "front"
    whole = tune(matrix, 8, db=db)
    assert not whole.reused
    assert "given" in [trial.origin for trial in whole.trials]
    assert tune(matrix, 8, db=db).reused
    assert tune(matrix, 8, db=db, calls=10**6).reused
    record = db.find(plan_key(matrix, 8, threads=2)).record
    assert record is not None
    assert record.plan == whole.plan


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        (0, ArgumentError),
        (-3, ArgumentError),
        (1.5, ArgumentTypeError),
        ("7", ArgumentTypeError),
        (True, ArgumentTypeError),
    ],
)
def test_calls_are_checked(world: Any, matrix: Any, calls: Any, error: type[AkxError]) -> None:
    with pytest.raises(error, match="calls"):
        tune(matrix, 8, calls=calls)
    with pytest.raises(error, match="calls"):
        Settings(calls=calls)
    assert world.prepared == []


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True])
def test_seeds_that_no_sampler_takes_are_refused_before_any_time_is_spent(world: Any, matrix: Any, seed: Any) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match="seed"):
        tune(matrix, 8, seed=seed)
    assert world.prepared == []


def test_the_largest_seed_and_one_of_numpy(world: Any, matrix: Any, tmp_path: Path) -> None:
    settings = Settings(seed=np.int64(3))
    assert type(settings.seed) is int
    result = tune(matrix, 8, seed=np.uint32(2**32 - 1), record=tmp_path / "trials.jsonl")
    assert "sampler" in [trial.origin for trial in result.trials]


def test_numpy_integers_are_calls(world: Any, matrix: Any) -> None:
    result = tune(matrix, 8, calls=np.int64(10**6), trials=3)
    assert result.to_json()["calls"] == 10**6
    assert type(result.calls) is int
