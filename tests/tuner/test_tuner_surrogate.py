"""What is thought of plans that nobody has tried: from a model that may be wrong, and from what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from akx.kernels.base import Parameter
from akx.plan import Plan
from akx.tuner import measure
from akx.tuner.predict import Model
from akx.tuner.result import COMPLETE, Trial
from akx.tuner.space import Space
from akx.tuner.surrogate import Surrogate

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
    times = surrogate(space, lambda plan: wrong[plan.option("block", 128)])
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
    assert not times.is_hopeless(slow)  # nothing is known
    assert times.improvement([slow, beside]).tolist() == [math.inf, math.inf]
    times.learn(trials({space.plan("sweep", {}): 1.0, slow: 1.2}))
    assert times.is_hopeless(slow)
    assert not times.is_hopeless(beside)
    times.learn(trials({space.plan("sweep", {}): 1.0, slow: 20.0}))
    assert times.is_hopeless(beside)


def test_without_a_model_there_is_no_estimate(space: Space) -> None:
    def formula(plan: Plan) -> float:
        return math.inf if plan.schedule == "far" else 1.0

    times = surrogate(space, formula)
    far = space.plan("far", {})
    times.learn(trials({far: 1.0, near(space): 2.0}))
    assert not times.knows(far)
    assert math.exp(times.best) == pytest.approx(2.0)
    assert not times.is_hopeless(far)
    assert not times.knows(near(space, block=999))  # outside the space


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


def test_of_very_many_trials_the_fastest_are_looked_at(space: Space) -> None:
    times = surrogate(space, lambda plan: 1.0)
    held = trials({near(space, block=b): 1.0 + b for b in BLOCKS}) * 200
    times.learn(held)
    mean, _ = times.estimate([near(space, block=128)])
    assert math.exp(mean[0]) == pytest.approx(129.0, rel=0.05)


def test_a_way_down_goes_past_a_dear_choice_and_over_two_at_a_time(space: Space) -> None:
    """The least plan is two choices away, where either alone is dearer, behind a choice that is dearer still."""

    def cost(plan: Plan) -> float:
        block, order = plan.option("block", 128), plan.partitioner
        if (block, order) == (512, "metis"):
            return 1.0
        return 2.0 if (block, order) == (128, "natural") else 3.0 + (block == 256)

    def costs(plans: Any) -> list[float]:
        return [cost(plan) for plan in plans]

    found = space.least(near(space), costs)
    assert (found.option("block", 0), found.partitioner) == (512, "metis")
    kept = space.least(near(space), costs, fixed=("partitioner",))
    assert (kept.option("block", 0), kept.partitioner) == (128, "natural")


def test_around_a_plan_are_all_that_differ_in_one_choice_or_two(space: Space) -> None:
    here = near(space, block=384)
    around = space.around(here)
    assert here not in around
    assert len(around) == len(set(around)) == 1 + 1 + 4 + 1 + 4 + 4
    assert near(space, block=640, variant="b") in around
    assert near(space, block=640, variant="b", partitioner="metis") not in around
    assert len(space.around(space.plan("sweep", {}))) == 1
    assert space.around(near(space, block=999)) == ()
