"""What is thought of plans that nobody has tried: from a model that may be wrong, and from what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numba
import numpy as np
import pytest

from akx.backends.schedule import Parameter
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.candidates.candidate_pool import CandidatePool
from akx.tuner.candidates.initial_candidates import InitialCandidates
from akx.tuner.candidates.warm_start import NO_WARM_START
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.trial import COMPLETE, FAILED, PRUNED, Trial
from akx.tuner.model.budget import ModelBudget
from akx.tuner.model.predict import Model
from akx.tuner.space import Space
from akx.tuner.surrogate import Amplitudes, Surrogate

BLOCKS = (128, 256, 384, 512, 640)
ORDER = Parameter("partitioner", ("natural", "metis"), "natural", "order")
VARIANT = Parameter("variant", ("a", "b"), "a", "variant")
BLOCK = Parameter("block", BLOCKS, 128, "threads")


@pytest.fixture
def space() -> Space:
    parameters = {"sweep": (VARIANT,), "near": (VARIANT, ORDER, BLOCK), "far": (VARIANT, ORDER, BLOCK)}
    return Space("cpu", 4, 1, None, {name: cast("Any", SimpleNamespace(name=name)) for name in parameters}, parameters)


@dataclass
class Said:
    """A model that says what a formula does."""

    space: Space
    formula: Any
    asked: list[Plan] = field(default_factory=list)

    def seconds(self, plan: Plan) -> float:
        self.asked.append(plan)
        return float(self.formula(plan))


def surrogate(space: Space, formula: Any) -> Surrogate:
    return Surrogate(cast("Model", Said(space, formula)))


def trials(measured: dict[Plan, float]) -> list[Trial]:
    return [
        Trial(number, plan, "given", COMPLETE, "", seconds=seconds)
        for number, (plan, seconds) in enumerate(measured.items())
    ]


def near(space: Space, **values: Any) -> Plan:
    return space.plan("near", values)


def test_what_was_measured_is_believed_and_what_is_unlike_it_is_not_sure(space: Space) -> None:
    times = surrogate(space, lambda plan: 1.0)
    here, beside, away = near(space, block=128), near(space, block=256), near(space, block=640, partitioner="metis")
    other = space.plan("far", {"block": 128})
    times.learn(trials({here: 2.0}))
    mean, deviation = times.estimate([here, beside, away, other])
    assert math.exp(mean[0]) == pytest.approx(2.0, rel=0.02)
    assert deviation[0] < 0.05
    assert np.all(np.diff(deviation) > 0)
    assert mean[0] > mean[1] > mean[2]  # the less alike, the more it is the model's word
    assert mean[2] > 0.5  # a model that is wrong by a factor is wrong by that for all


def test_errors_of_a_model_are_learnt_choice_by_choice(space: Space) -> None:
    """Every plan of 512 threads takes twice what the model says, in one schedule: so it is thought in the other one."""
    times = surrogate(space, lambda plan: 1.0)
    known = {near(space, block=b, variant=v): 2.0 if b == 512 else 1.0 for b in (128, 384, 512) for v in "ab"}
    times.learn(trials(known))
    metis = [near(space, block=b, partitioner="metis") for b in (128, 512)]
    mean, _ = times.estimate(metis)
    assert mean[1] > mean[0] + 0.2
    mean, _ = times.estimate([space.plan("far", {"block": b}) for b in (128, 512)])
    assert mean[1] > mean[0]


def test_a_model_that_has_plans_the_wrong_way_round_is_not_followed(space: Space) -> None:
    wrong = {block: 1.0 / block for block in BLOCKS}
    times = surrogate(space, lambda plan: wrong[plan.options.get("block", 128)])
    trusting, _ = times.estimate([near(space, block=128), near(space, block=640)])
    assert trusting[1] < trusting[0]
    times.learn(trials({near(space, block=b, variant=v): b / 128 for b in (128, 384, 640) for v in "ab"}))
    mean, _ = times.estimate([space.plan("far", {"block": b}) for b in (128, 640)])
    assert mean[1] > mean[0]


def test_the_worth_of_a_trial_is_the_expected_gain(space: Space) -> None:
    times = surrogate(space, lambda plan: 1.0)
    times.learn(trials({near(space, block=128): 1.0, near(space, block=640): 3.0}))
    plans = [near(space, block=256), near(space, block=512), space.plan("far", {"block": 512})]
    mean, deviation = times.estimate(plans)
    draws = np.random.default_rng(0).standard_normal((200_000, 1)) * deviation + mean
    expected = np.maximum(0.0, times.best - draws).mean(axis=0)
    assert times.improvement(plans) == pytest.approx(expected, rel=0.03, abs=1e-4)
    assert times.improvement([near(space, block=128)])[0] < 0.03


def test_hopeless_is_what_is_slow_beyond_doubt(space: Space) -> None:
    times = surrogate(space, lambda plan: 1.0)
    slow, beside = near(space, block=128), near(space, block=128, variant="b")
    assert not times.is_hopeless(slow, 1.0)  # nothing is known
    assert times.improvement([slow, beside]).tolist() == [math.inf, math.inf]
    times.learn(trials({space.plan("sweep", {}): 1.0, slow: 1.2}))
    assert times.is_hopeless(slow, 1.0)
    assert not times.is_hopeless(slow, 1.5)
    assert not times.is_hopeless(beside, 1.0)
    times.learn(trials({space.plan("sweep", {}): 1.0, slow: 20.0}))
    assert times.is_hopeless(beside, 1.0)


def test_a_baseline_is_hopeless_beside_other_baselines_alone(space: Space) -> None:
    """What others on the study found may be far faster; the best baseline is to be found nonetheless."""
    ledger = Ledger(space)
    pool = CandidatePool(cast("Model", Said(space, lambda plan: 1.0)), ledger)
    plain, other = space.plan("sweep", {"variant": "a"}), space.plan("sweep", {"variant": "b"})
    assert not pool.is_hopeless(other)
    for trial in trials({plain: 1.0, near(space): 0.05, near(space, variant="b"): 0.05}):
        ledger.add(trial)
    assert pool.times.is_hopeless(other, 0.05)
    assert not pool.is_hopeless(other)


def test_without_a_model_there_is_no_estimate(space: Space) -> None:
    def formula(plan: Plan) -> float:
        return math.inf if plan.schedule == "far" else 1.0

    times = surrogate(space, formula)
    far = space.plan("far", {})
    times.learn(trials({far: 1.0, near(space): 2.0}))
    assert not times.knows(far)
    assert math.exp(times.best) == pytest.approx(2.0)
    assert not times.is_hopeless(far, 0.1)
    assert not times.knows(near(space, block=999))  # outside the space


def test_an_opening_has_what_is_likely_refused_last(space: Space) -> None:
    """To find a plan impossible may take seconds; a plan that is thought to be fast is tried with them first."""

    def formula(plan: Plan) -> float:
        return math.inf if plan.schedule == "far" else 0.5 if plan.partitioner == "natural" else 0.9

    pool = CandidatePool(cast("Model", Said(space, formula)), Ledger(space))
    for trial in trials({space.plan("sweep", {}): 1.0}):
        pool.ledger.add(trial)
    refused, fast = space.plan("far", {}), near(space)
    unsure = space.plan("sweep", {"variant": "b"})  # likely slower, but nobody knows its variant
    pool.times.learn(trials({space.plan("sweep", {}): 1.0, near(space, block=BLOCKS[1]): 0.6}))
    initial = InitialCandidates(pool, NO_WARM_START, ())
    found = list(initial._by_worth([("start", refused), ("start", fast), ("start", unsure)]))
    assert found[0] == ("start", fast)
    assert found[1:] == [("start", unsure), ("start", refused)]


def test_a_model_that_takes_long_is_asked_no_more(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0}
    monkeypatch.setattr(measure, "now", lambda: clock["now"])

    def formula(plan: Plan) -> float:
        clock["now"] += 0.6 if plan.partitioner == "metis" else 0.0
        return 1.0

    model = Said(space, formula)
    times = Surrogate(cast("Model", model))
    dear = [near(space, partitioner="metis", block=block) for block in BLOCKS]
    assert [times.knows(plan) for plan in dear] == [True, True, False, False, False]
    assert len(model.asked) == 2
    assert times.knows(near(space))
    assert times.knows(dear[0])
    assert len(model.asked) == 3  # each once


def test_all_thinking_is_a_tenth_of_the_search_at_most(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, kinds = {"now": 0.0}, [near(space, partitioner=f"order {i}") for i in range(9)]
    monkeypatch.setattr(measure, "now", lambda: clock["now"])
    budget = ModelBudget(lambda: 30.0)
    for plan in kinds:
        assert budget.allows(plan) == (clock["now"] < 3.0)
        if budget.allows(plan):
            with budget.on(plan):
                clock["now"] += 0.9
            assert budget.allows(plan) == (clock["now"] < 3.0)
    assert clock["now"] == pytest.approx(3.6)


def test_what_is_compiled_while_a_plan_is_thought_of_is_no_thinking(space: Space) -> None:
    budget, plan = ModelBudget(lambda: 30.0), near(space)
    numba.njit(lambda x: x + 1.0)(1.0)  # what Numba does but once
    begin = measure.now()
    with budget.on(plan):
        numba.njit(lambda x: np.sort(x)[0] + np.argsort(x)[0] + np.median(x))(np.arange(3.0))
    took = measure.now() - begin
    assert took > 0.3, "it was compiled before"
    assert budget.longest(plan.partitioner) < 0.3 * took


def test_the_longest_thought_in_an_order_is_known_whether_it_counts_or_not(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 0.0}
    monkeypatch.setattr(measure, "now", lambda: clock["now"])
    budget, plan = ModelBudget(lambda: 30.0), near(space)
    assert budget.longest(plan.partitioner) == 0.0
    for seconds, counts in ((0.2, True), (5.0, False), (0.3, True)):
        with budget.on(plan, counts=counts):
            clock["now"] += seconds
    assert budget.longest(plan.partitioner) == 5.0
    assert budget.allows(plan)


def test_feasibility_that_takes_long_is_asked_no_more(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = {"now": 0.0}, []
    monkeypatch.setattr(measure, "now", lambda: clock["now"])
    model = cast("Any", Said(space, lambda plan: 1.0))
    model.matrix = None
    pool = CandidatePool(model, Ledger(space), seconds=lambda: 30.0)

    def reason(plan: Plan) -> None:
        asked.append(plan)
        clock["now"] += 0.6

    monkeypatch.setattr(pool, "_reason_against", reason)
    plans = [near(space, block=block) for block in BLOCKS]
    assert [pool.is_known(plan) for plan in plans] == [True, False, False, False, False]
    assert asked == plans[:2]
    assert pool.is_known(plans[0])  # as before, and not asked again
    assert asked == plans[:2]


def test_of_very_many_trials_the_fastest_are_looked_at_and_some_of_the_rest() -> None:
    blocks = tuple(range(1, 1001))
    parameters = {"sweep": (VARIANT,), "near": (VARIANT, Parameter("block", blocks, 1, "threads"))}
    space = Space("cpu", 4, 1, None, {name: cast("Any", SimpleNamespace(name=name)) for name in parameters}, parameters)
    times = surrogate(space, lambda plan: 1.0)
    times.learn(trials({near(space, block=b): 1.0 + b for b in blocks}))
    plans = [near(space, block=b) for b in (1, 64, 500, 950)]
    mean, _ = times.estimate(plans)
    assert np.exp(mean) == pytest.approx([2.0, 65.0, 501.0, 951.0], rel=0.1)
    assert 128 < len(times._plans) <= 256


def test_trials_that_came_to_nothing_say_nothing_of_seconds(space: Space) -> None:
    times, good = surrogate(space, lambda plan: 1.0), near(space, block=128)
    plans = [near(space, block=b, variant=v) for b in (256, 384) for v in "ab"]
    bad = [
        Trial(1, plans[0], "x", FAILED, "wrong later", seconds=0.01, prepare_seconds=0.1),
        Trial(2, plans[1], "x", COMPLETE, "", seconds=math.nan),
        Trial(3, plans[2], "x", COMPLETE, "", seconds=math.inf),
        Trial(4, plans[3], "x", COMPLETE, "", seconds=0.0),
        Trial(5, near(space, block=512), "x", PRUNED, "too large"),
    ]
    times.learn(bad)
    assert np.isinf(times.improvement(plans)).all()
    times.learn([*bad, *trials({good: 2.0})])
    assert math.exp(times.best) == pytest.approx(2.0)
    assert np.isfinite(times.improvement(plans)).all()
    assert np.exp(times.estimate([near(space, block=640)])[0]) == pytest.approx(2.0, rel=0.1)


def test_what_is_like_plans_that_failed_is_worth_less(space: Space) -> None:
    """Variant b fails whatever else is chosen: a few failures tell, and a single one is no rule."""
    times = surrogate(space, lambda plan: 0.8 if plan.variant == "b" else 1.0)
    good = trials({near(space, block=b): 1.0 for b in (128, 384, 640)})
    sound, doubtful = near(space, block=256), near(space, block=256, variant="b", partitioner="metis")
    times.learn(good)
    assert times.improvement([doubtful])[0] > times.improvement([sound])[0]
    assert times.chance([doubtful]).tolist() == [1.0]
    failed = [
        Trial(9 + b, near(space, block=b, variant="b"), "x", FAILED, "crashed", prepare_seconds=0.1) for b in BLOCKS
    ]
    times.learn([*good, failed[0]])
    assert 0.1 < times.chance([doubtful])[0] < 0.9
    assert times.chance([sound])[0] > 0.95
    times.learn([*good, *failed])
    assert times.improvement([doubtful])[0] < times.improvement([sound])[0]
    assert times.chance([failed[0].plan])[0] < 0.05


def test_the_kernel_is_one_between_schedules_that_share_some_parameters() -> None:
    names = "abcdefgh"
    each = {name: Parameter(name, (1, 2), 1, name) for name in names}
    parameters = {"hub": (VARIANT, *each.values()), **{f"leaf {name}": (VARIANT, each[name]) for name in names}}
    space = Space("cpu", 4, 1, None, {name: cast("Any", SimpleNamespace(name=name)) for name in parameters}, parameters)
    alone = Amplitudes(everything=0.0, slope=0.0, schedule=0.0, order=0.0, variant=0.0, main=0.0, local=0.0, common=1.0)
    times = Surrogate(cast("Model", Said(space, lambda plan: 1.0)), alone)
    draws = [space.plan("hub", {name: 1 + (i >> at) % 2 for at, name in enumerate(names)}) for i in range(0, 256, 5)]
    draws += [plan for name in names for plan in space.plans(f"leaf {name}")]
    kernel = times._kernel(draws, draws)
    assert np.diag(kernel) == pytest.approx(1.0)
    assert np.linalg.eigvalsh(kernel).min() > -1e-9


def test_a_way_down_goes_past_a_dear_choice_and_over_two_at_a_time(space: Space) -> None:
    """The least plan is two choices away, where either alone is dearer, behind a choice that is dearer still."""

    def cost(plan: Plan) -> float:
        block, order = plan.options.get("block", 128), plan.partitioner
        if (block, order) == (512, "metis"):
            return 1.0
        return 2.0 if (block, order) == (128, "natural") else 3.0 + (block == 256)

    def costs(plans: Any) -> list[float]:
        return [cost(plan) for plan in plans]

    found = space.least(near(space), costs)
    assert (found.options.get("block"), found.partitioner) == (512, "metis")
    kept = space.least(near(space), costs, fixed=("partitioner",))
    assert (kept.options.get("block"), kept.partitioner) == (128, "natural")


def test_around_a_plan_are_all_that_differ_in_one_choice_or_two(space: Space) -> None:
    here = near(space, block=384)
    around = space.around(here)
    assert here not in around
    assert len(around) == len(set(around)) == 1 + 1 + 4 + 1 + 4 + 4
    assert near(space, block=640, variant="b") in around
    assert near(space, block=640, variant="b", partitioner="metis") not in around
    assert len(space.around(space.plan("sweep", {}))) == 1
    assert space.around(near(space, block=999)) == ()
