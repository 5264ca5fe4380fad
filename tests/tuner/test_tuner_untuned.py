"""What tuning gains over an untuned call, and when that has paid: found in a search, kept, and read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akx.backends.host import host_device
from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.cost.device_model import Figures
from akx.plandb import PlanDatabase
from akx.tuner import tune
from akx.tuner.candidates import initial_candidates
from akx.tuner.history.kept import reuse
from akx.tuner.history.result import FEW_CALLS, Finalist, TuneResult, Untuned
from akx.tuner.history.trial import Trial
from akx.tuner.model.figures import derived_figures, faster
from akx.tuner.search import outcome as outcomes
from akx.tuner.search import preparation
from akx.tuner.search.outcome import Outcome

SWEEP = Plan("cpu", "sweep", "csr", k=8, threads=2)
BEST = Plan("cpu", "front", "sell", k=8, k_per_pass=4, block_bytes=2**18, threads=2)
GUESS = BEST.replace(variant="csr")


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


def predicts(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    for module in (initial_candidates, outcomes):
        monkeypatch.setattr(module, "predicted", lambda model: plan)


@pytest.fixture
def plain(world: Any, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """What is predicted: plain products, a tenth slower than the baseline."""
    predicts(monkeypatch, SWEEP)
    return SWEEP


def trial(plan: Plan, origin: str, seconds: float | None = None, state: str = "complete") -> Trial:
    return Trial(0, plan, origin, state, seconds=seconds)


def outcome(*trials: Trial, finals: dict[Plan, float] | None = None, **changes: Any) -> Outcome:
    """The best takes 2 ms and the baseline 4 in the run-off."""
    best, baseline = Finalist(BEST, 2e-3, 0.0), Finalist(SWEEP, 4e-3, 0.0)
    others = tuple(Finalist(plan, seconds, 0.0) for plan, seconds in (finals or {}).items())
    return replace(Outcome(best, baseline, trials, (best, *others, baseline), "", False, ()), **changes)


def untuned(found: Outcome, predicted: Callable[[], Plan] = lambda: GUESS) -> tuple[Plan, float] | None:
    model: Any = SimpleNamespace(space=SimpleNamespace(inside=lambda plan: plan))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "predicted", lambda model: predicted())
        return outcomes._untuned(found, model)


def never() -> Plan:
    raise AssertionError("looked for all the same")


def infeasible() -> Plan:
    raise InfeasibleError("no plan")


def test_seconds_are_those_of_the_run_off_or_of_the_trial_by_the_baselines() -> None:
    trials = trial(SWEEP, "baseline", 5e-3), trial(GUESS, "predicted", 3e-3), trial(BEST, "model", 2.5e-3)
    assert untuned(outcome(*trials), never) == (GUESS, pytest.approx(2.4e-3))  # all were slower by a quarter
    assert untuned(outcome(*trials, finals={GUESS: 2.2e-3}), never) == (GUESS, 2.2e-3)
    dropped = trial(SWEEP, "baseline", 5e-3), trial(GUESS, "predicted", 9e-3, "pruned")
    assert untuned(outcome(*dropped), never) == (GUESS, pytest.approx(7.2e-3))  # early, by few samples
    by_another_name = trial(SWEEP, "baseline", 5e-3), trial(GUESS, "default", 3e-3)
    assert untuned(outcome(*by_another_name)) == (GUESS, pytest.approx(2.4e-3))


def test_the_same_plan_takes_the_same_time() -> None:
    trials = trial(SWEEP, "baseline", 5e-3), trial(BEST, "predicted", 2.6e-3)
    assert untuned(outcome(*trials, finalists=())) == (BEST, 2e-3)
    assert untuned(outcome(*trials, finalists=()), lambda: SWEEP) == (BEST, 2e-3)
    assert untuned(outcome(trials[0], finalists=()), lambda: SWEEP) == (SWEEP, 4e-3)


@pytest.mark.parametrize(
    "trials",
    [
        (trial(SWEEP, "baseline", 5e-3),),
        (trial(SWEEP, "baseline", 5e-3), trial(GUESS, "predicted", None, "pruned")),
        (trial(SWEEP, "baseline", 5e-3), trial(GUESS, "predicted", None, "failed")),
        (trial(SWEEP, "baseline", 5e-3), trial(GUESS, "earlier", 3e-3)),
        (trial(SWEEP, "baseline", 5e-3), trial(GUESS, "shared", 3e-3)),
        (trial(SWEEP, "shared", 5e-3), trial(GUESS, "predicted", 3e-3)),
    ],
)
def test_nothing_is_said_without_a_time_of_this_search(trials: tuple[Trial, ...]) -> None:
    assert untuned(outcome(*trials)) is None


def test_where_nothing_can_be_predicted_or_nobody_came_so_far() -> None:
    baselines = trial(SWEEP, "baseline", 5e-3), trial(SWEEP.replace(variant="sell"), "baseline", 6e-3)
    assert untuned(outcome(*baselines), infeasible) is None
    assert untuned(outcome(*baselines, stopped=FEW_CALLS), never) is None
    assert untuned(outcome(*baselines, interrupted=True), never) is None
    more = (*baselines, trial(GUESS, "given", 2.5e-3))
    assert untuned(outcome(*more, stopped=FEW_CALLS)) == (GUESS, pytest.approx(2e-3))


def test_gain_speed_up_and_calls() -> None:
    one = Untuned(GUESS, 3e-3, best_seconds=2e-3, spent_seconds=5.0)
    assert (one.gain, one.speedup, one.break_even_calls) == (pytest.approx(1e-3), pytest.approx(1.5), 5000)
    assert one.to_json() == {
        "label": GUESS.label(), "seconds": 3e-3, "speedup": pytest.approx(1.5), "break_even_calls": 5000,
    }  # fmt: skip
    for seconds in (2e-3, 1.99e-3):  # the same plan, and one that is as fast and less simple
        none = replace(one, seconds=seconds)
        assert (none.gain, none.speedup, none.break_even_calls) == (0.0, 1.0, None)


def test_a_search_says_what_it_gains_over_an_untuned_call(
    world: Any, matrix: Any, db: PlanDatabase, plain: Plan
) -> None:
    result = tune(matrix, 8, db=db)
    assert isinstance(result.untuned, Untuned)
    assert result.untuned.plan == plain != result.baseline_plan
    assert result.untuned.seconds == pytest.approx(world.cost(result.untuned.plan), rel=0.02)
    assert result.untuned.speedup == pytest.approx(result.untuned.seconds / result.seconds)
    assert result.untuned.spent_seconds == result.tuning_seconds + result.prepare_seconds
    assert result.to_json()["untuned"] == result.untuned.to_json()
    later = replace(result, tuning_seconds=10 * result.tuning_seconds)
    assert later.untuned is not None
    assert later.untuned.break_even_calls is not None
    assert later.untuned.break_even_calls > (result.untuned.break_even_calls or 0)

    again = tune(matrix, 8, db=db)
    assert again.reused
    assert again.untuned is not None
    assert (again.untuned.plan, again.untuned.seconds) == (result.untuned.plan, result.untuned.seconds)
    assert again.untuned.speedup == result.untuned.speedup
    assert again.untuned.spent_seconds == again.tuning_seconds + again.prepare_seconds


def test_an_untuned_call_that_takes_the_best_plan_already(
    world: Any, matrix: Any, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicts(monkeypatch, optimum)
    result = tune(matrix, 8, db=False)
    assert result.plan == optimum
    assert result.untuned is not None
    assert (result.untuned.plan, result.untuned.speedup, result.untuned.break_even_calls) == (optimum, 1.0, None)
    assert result.break_even_calls is not None, "beside the baseline it has gained"


def test_a_slow_prediction_is_timed_by_its_trial(
    world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, optimum: Plan
) -> None:
    slow = optimum.replace(variant="csr", block_bytes=2**16, threads=2)
    predicts(monkeypatch, slow)
    result = tune(matrix, 8, db=False)
    assert slow not in [finalist.plan for finalist in result.finalists]
    assert result.untuned is not None
    assert result.untuned.seconds == pytest.approx(world.cost(slow), rel=0.02)
    assert result.untuned.break_even_calls is not None


def test_for_few_calls_nothing_is_predicted_for_the_sake_of_a_figure(make_world: Any, matrix: Any) -> None:
    make_world(prepare_cost=lambda plan: 0.5)
    result = tune(matrix, 8, db=False, calls=10)
    assert result.stopped == FEW_CALLS
    assert result.untuned is None
    assert result.to_json()["untuned"] is None


def test_a_prediction_that_was_dropped_as_too_slow_has_the_figure_of_few_samples(
    world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SWEEP.replace(threads=1)  # twice as slow as the baseline
    predicts(monkeypatch, slow)
    result = tune(matrix, 8, db=False)
    assert [trial.state for trial in result.trials if trial.plan == slow] == ["pruned"]
    assert result.untuned is not None
    assert result.untuned.seconds == pytest.approx(world.cost(slow), rel=0.02)
    assert result.untuned.speedup == pytest.approx(world.cost(slow) / world.cost(result.plan), rel=0.02)


@pytest.mark.parametrize(
    "given",
    [None, 3, {}, {"seconds": 1e-3}, {"seconds": True, "plan": SWEEP.to_json()}, {"seconds": -1, "plan": {}},
     {"seconds": "1", "plan": SWEEP.to_json()}, {"seconds": 1e-3, "plan": {"k": 1}}, {"seconds": 1e-3, "plan": 7},
     {"seconds": 10**400, "plan": SWEEP.to_json()}],
)  # fmt: skip
def test_a_record_that_does_not_tell_is_read_all_the_same(
    world: Any, matrix: Any, db: PlanDatabase, plain: Plan, given: Any
) -> None:
    tune(matrix, 8, db=db)
    (record,) = db.list()
    assert record.provenance["untuned"]["plan"] == plain.to_json()
    other = replace(record, provenance={**record.provenance, "untuned": given})
    found: TuneResult = reuse(db, other, "user", matrix, host_device(), 2, world.now())
    assert (found.plan, found.untuned) == (record.plan, None)


def test_a_plan_sought_for_few_calls_says_so_when_it_is_reused(world: Any, matrix: Any, db: PlanDatabase) -> None:
    tune(matrix, 8, db=db)
    (record,) = db.list()
    for calls, said in ((1, "for 1 call, too few"), (20, "for 20 calls, too few")):
        few = replace(record, provenance={**record.provenance, "stopped": FEW_CALLS, "calls": calls})
        assert any(said in note for note in reuse(db, few, "user", matrix, host_device(), 2, world.now()).notes)
    assert not any("too few" in note for note in reuse(db, record, "user", matrix, host_device(), 2, world.now()).notes)


# ---------------------------------------------------------------------------------------------------- the ceiling


def figures(slow: float, near: float, own: float) -> Figures:
    return Figures(slow, near, own, flops=1e9, synchronisation=0.0, last_level_bytes=2**20)


def test_the_faster_of_two_for_each_memory() -> None:
    one, other = figures(10.0, 30.0, 50.0), replace(figures(20.0, 25.0, 60.0), flops=5e9)
    assert faster(one, other) == figures(20.0, 30.0, 60.0)


def test_the_ceiling_is_what_was_measured_best_now_or_in_a_calibration(
    matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = host_device()
    space: Any = SimpleNamespace(device=device, threads=2)
    monkeypatch.setattr(preparation, "measured_figures", lambda device, threads: figures(10.0, 30.0, 50.0))
    monkeypatch.setattr(preparation, "figures_of", lambda device, threads: figures(20.0, 25.0, 60.0))
    model = preparation.model_of(matrix, space, 1)
    assert model.ceiling == figures(20.0, 30.0, 60.0)
    assert model.figures == figures(20.0, 25.0, 60.0), "predictions go by the calibration alone"
    monkeypatch.setattr(preparation, "figures_of", derived_figures)
    assert preparation.model_of(matrix, space, 1).ceiling == figures(10.0, 30.0, 50.0), "a guess is no measurement"
