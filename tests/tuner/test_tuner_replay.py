"""A search over recorded trials: as the search that was recorded, or another one, without device and matrix."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.core.errors import ArgumentError, FileFormatError, FileMissingError
from akx.core.plan import Plan
from akx.tuner import ReplayResult, Settings, exhaustive, measure, read_recording, replay
from akx.tuner import tune as tune_and_keep
from akx.tuner.history.result import FEW_CALLS
from akx.tuner.history.trial import Trial
from akx.tuner.space import is_baseline
from akx.tuner.trace.recording import Recording
from akx.tuner.trace.simulation import UNKNOWN, RecordedClock

tune = partial(tune_and_keep, db=False)
PREPARE = 0.2
_WHOLE: list[bytes] = []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials.jsonl"


def noisy_world(make_world: Any, **changes: Any) -> Any:
    random = np.random.default_rng(5)
    noise = {"noise": lambda: float(random.uniform(0, 0.01))}
    return make_world(**{"prepare_cost": lambda plan: PREPARE, **noise, **changes})


@pytest.fixture
def whole(make_world: Any, matrix: Any, path: Path) -> Recording:
    """The whole space of the default world, on record; measured once."""
    if not _WHOLE:
        noisy_world(make_world)
        exhaustive(matrix, 8, record=path, name="small")
        _WHOLE.append(path.read_bytes())
    path.write_bytes(_WHOLE[0])
    return read_recording(path)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on there is neither registry nor device nor clock: as on another machine."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked of a machine that is not there")

    def leave() -> None:
        for name in ("schedules", "get", "backends"):
            monkeypatch.setattr(f"akx.backends.registry.{name}", never)
        monkeypatch.setattr("akx.backends.host.host_device", never)
        monkeypatch.setattr(measure, "_CLOCK", ContextVar("nobody's", default=None))
        monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=never, sleep=never))

    return leave


def test_a_recorded_search_is_made_again_plan_by_plan(
    make_world: Any, matrix: Any, path: Path, elsewhere: Callable[[], None]
) -> None:
    noisy_world(make_world)
    result = tune(matrix, 8, record=path)
    elsewhere()
    found = replay(path)
    assert [trial.plan for trial in found.trials] == [trial.plan for trial in result.trials]
    assert [trial.state for trial in found.trials] == [trial.state for trial in result.trials]
    assert [trial.origin for trial in found.trials] == [trial.origin for trial in result.trials]
    assert (found.plan, found.stopped) == (result.plan, result.stopped)
    assert found.missing == 0
    spent, then = (sum(trial.elapsed or 0.0 for trial in trials) for trials in (found.trials, result.trials))
    assert spent == pytest.approx(then, rel=0.05)
    assert spent < found.search_seconds < spent + 4.0  # the run-off goes on for 3 s where samples are few
    assert found.share > 0.97
    assert found.speedup == pytest.approx(result.speedup, rel=0.03)


def test_a_search_over_the_whole_space_finds_what_a_real_one_finds(
    whole: Recording, make_world: Any, matrix: Any, elsewhere: Callable[[], None]
) -> None:
    noisy_world(make_world)
    real = tune(matrix, 8, seed=3)
    elsewhere()
    found = replay(whole, seed=3)
    assert whole.exhaustive
    assert len(whole.trials) == 8 + 4 * 3 * 7 * 2 * 2
    assert found.missing == 0
    assert found.stopped == real.stopped
    assert len(found.trials) == pytest.approx(len(real.trials), abs=25)
    origins = [trial.origin for trial in found.trials]
    assert origins[:6] == [trial.origin for trial in real.trials[:6]]
    assert {"neighbour", "sampler", "rival"} <= set(origins)
    assert found.optimum.seconds == min(t.trial.seconds or math.inf for t in whole.trials.values())
    assert found.share > 0.95
    assert found.seconds == whole.trials[found.plan].trial.seconds


def test_more_trials_find_more(whole: Recording) -> None:
    shares = [replay(whole, trials=trials, settings=Settings(patience=10**6)).share for trials in (2, 10, 80)]
    assert shares == sorted(shares)
    assert shares[0] < 0.6 < shares[-1]
    assert shares[-1] > 0.98
    few = replay(whole, trials=10)
    assert (len(few.trials), few.stopped) == (10, "trial budget")


def test_the_budget_of_seconds_is_that_of_the_recorded_machine(whole: Recording) -> None:
    begin = time.monotonic()
    short = replay(whole, seconds=3.0)
    assert short.stopped == "time budget"
    assert 2.0 < short.search_seconds < 3.6
    assert len(short.trials) < len(replay(whole, seconds=30.0).trials)
    assert time.monotonic() - begin < 30


def test_seeds_differ_and_repeat(whole: Recording) -> None:
    one, again, other = (replay(whole, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert [trial.plan for trial in one.trials] != [trial.plan for trial in other.trials]


def test_another_sampler_may_be_compared(whole: Recording) -> None:
    class First:
        """The first plan of the space that is new."""

        def __init__(self, space: Any, seed: int) -> None:
            self.space, self.told = space, 0

        def suggest(self, done: Any, refuse: Callable[[Plan], bool]) -> Plan | None:
            assert self.told == len(done.trials)
            return next((plan for plan in self.space.plans() if not refuse(plan)), None)

        def tell(self, outcome: Trial) -> None:
            self.told += 1

    found = replay(whole, sampler=First, trials=40)
    suggested = [trial.plan for trial in found.trials if trial.origin == "sampler"]
    order = list(whole.trials)
    assert len(suggested) > 3
    assert suggested == sorted(suggested, key=lambda plan: (plan.schedule == "front", order.index(plan)))
    assert suggested != [trial.plan for trial in replay(whole, trials=40).trials if trial.origin == "sampler"]


def test_calls_bound_a_replay(whole: Recording) -> None:
    few = replay(whole, calls=100)
    assert (few.stopped, is_baseline(few.plan)) == (FEW_CALLS, True)
    many = replay(whole, calls=10**7)
    assert [trial.plan for trial in many.trials] == [trial.plan for trial in replay(whole).trials]


def test_slow_plans_are_dropped_beside_the_best_of_the_replay(make_world: Any, matrix: Any, path: Path) -> None:
    """The exhaustive run measured them to the end; a search does not, and pays for a few calls only."""
    noisy_world(make_world, cost=lambda plan: 2e-3 if plan.schedule == "sweep" else 40e-3)
    exhaustive(matrix, 8, record=path, space_filter=lambda plan: getattr(plan.typed, "split", "") != "interleaved")
    recording = read_recording(path)
    assert {one.trial.state for one in recording.trials.values()} == {"complete"}
    found = replay(recording, trials=20)
    slow = [trial for trial in found.trials if trial.plan in recording.trials and trial.plan.schedule == "front"]
    assert slow
    assert {(trial.state, trial.reason) for trial in slow} == {("pruned", "more than 1.5x slower than the best")}
    for trial in slow:
        whole = recording.trials[trial.plan].trial
        assert trial.elapsed is not None
        assert whole.elapsed is not None
        assert PREPARE < trial.elapsed < 0.8 * whole.elapsed
    assert is_baseline(found.plan)
    assert found.share > 0.99


def test_what_was_dropped_early_may_be_good_enough_now(make_world: Any, matrix: Any, path: Path) -> None:
    """Another search has not met the fast plan yet: what is slow beside that one is not slow to it."""

    def cost(plan: Plan) -> float:
        return 1e-3 if plan.variant == "sell" and plan.schedule == "sweep" else 5e-3

    noisy_world(make_world, cost=cost)
    tune(matrix, 8, record=path, trials=16)
    recording = read_recording(path)
    dropped = {plan for plan, one in recording.trials.items() if one.trial.state == "pruned" and one.trial.samples}
    assert any(plan.variant != "sell" for plan in dropped)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"variant": "sell"' not in line or '"akx"' in line))
    found = replay(path, trials=6)
    assert {trial.state for trial in found.trials if trial.plan in dropped} == {"complete"}


def test_what_is_not_on_record_counts_as_infeasible(whole: Recording, path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    interleaved = '"split": "interleaved"'
    path.write_text("".join(line for line in lines if interleaved not in line or '"akx"' in line or "result" in line))
    found = replay(path, settings=Settings(patience=40))
    assert found.missing > 3
    assert getattr(found.plan.typed, "split", "") != "interleaved"
    assert not [trial for trial in found.trials if trial.reason == UNKNOWN]
    assert found.share > 0.9


def test_failures_and_refusals_are_those_on_record(make_world: Any, matrix: Any, path: Path) -> None:
    noisy_world(
        make_world,
        infeasible=lambda plan: "too large" if plan.block_bytes >= 2**19 else None,
        wrong=lambda plan, call: getattr(plan.typed, "split", "") == "interleaved",
    )
    result = exhaustive(matrix, 8, record=path)
    found = replay(path, trials=40, settings=Settings(patience=10**6))
    known = {trial.plan: trial for trial in result.trials}
    bad = [trial for trial in found.trials if trial.state == "failed"]
    assert bad
    assert all(trial.reason == known[trial.plan].reason for trial in bad)
    assert getattr(found.plan.typed, "split", "") == "contiguous"
    assert found.missing > 0  # those that are too large: an exhaustive run lists none of them


def test_steps_lead_to_the_plan(whole: Recording) -> None:
    found = replay(whole)
    assert [step.share for step in found.steps] == sorted(step.share for step in found.steps)
    assert found.steps[0].trials == 1
    assert found.steps[-1].share == pytest.approx(found.share, rel=0.03)
    assert all(step.seconds <= found.search_seconds for step in found.steps)


def test_a_replay_in_json(whole: Recording, path: Path) -> None:
    found = replay(path, trials=12, seed=4)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (data["schema"], data["share"], data["missing"]) == (1, found.share, found.missing)
    assert data["recording"] == {
        "path": str(path),
        "runs": 1,
        "plans": len(whole.trials),
        "exhaustive": True,
        "lost": 0,
    }
    assert data["settings"] == {"trials": 12, "seconds": 30.0, "seed": 4, "calls": None}
    assert Plan.from_json(data["best"]["plan"]) == found.plan
    assert sum(data["trials"].values()) == 12
    assert data["matrix"]["name"] == "small"
    assert isinstance(found, ReplayResult)
    assert found.recording.lost == 0


def test_a_recording_that_cannot_be_searched_says_so(make_world: Any, matrix: Any, path: Path, tmp_path: Path) -> None:
    with pytest.raises(FileMissingError):
        replay(tmp_path / "nothing.jsonl")
    noisy_world(make_world)
    tune(matrix, 8, record=path, trials=3)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0])
    with pytest.raises(FileFormatError, match="nothing to search"):
        replay(path)
    damages = (
        ('"default": 2', '"default": 17'),
        ('"choices": ["csr", "sell"]', '"choices": ["csr", ["sell"]]'),
        ('"slow_bandwidth"', '"bandwidth"'),
        ('"least_seconds"', '"x"'),
    )
    for old, new in damages:
        assert old in lines[0]
        path.write_text("".join([lines[0].replace(old, new), *lines[1:]]))
        with pytest.raises(FileFormatError, match="damaged in line 1"):
            replay(path)
    path.write_text("".join(lines))
    for wrong in ({"trials": 0}, {"seconds": -1.0}, {"seed": -1}, {"calls": 0}):
        with pytest.raises(ArgumentError):
            replay(path, **wrong)


def test_the_clock_is_the_callers_again_behind_a_replay() -> None:
    clock = RecordedClock()
    with measure.on_clock(clock):
        before = measure.now()
        measure.pause(100.0)
        assert measure.now() - before == 100.0
    assert measure.now() != clock.now()


def test_a_name_that_its_home_has_too_is_the_function() -> None:
    for before in ("from akx.tuner import ReplayResult", "import akx.tuner.search.replay"):
        code = f"{before}; from akx.tuner import replay; assert callable(replay)"
        subprocess.run([sys.executable, "-c", code], check=True)
