"""tune() in a world whose costs are known: what wins, what cannot win, and what ends a search."""

from __future__ import annotations

import dataclasses
import json
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba.core import event
from postgres import PostgresServer

from akx.backends import registry
from akx.backends.cpu import device_model as rates
from akx.backends.cuda.device.clocks import ClockState, ClockWatch
from akx.backends.host import host_device
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, DatabaseError, DeviceError, InfeasibleError
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanRecord, default_database
from akx.plandb import bundle as transfer
from akx.plandb.key import key_of_plan, search_key
from akx.tuner import Progress, Settings, exhaustive, measure, plan_key
from akx.tuner import tune as tune_and_keep
from akx.tuner.candidates.proposals import SEARCHING
from akx.tuner.history.trial import COMPLETE
from akx.tuner.request import TuneRequest
from akx.tuner.search import preparation
from akx.tuner.search import tune as tuning
from akx.tuner.search.run_off import RunOff
from akx.tuner.space import build_space, is_baseline
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import Problem

JSON_FIELDS = {
    "schema", "matrix", "k", "backend", "device", "baseline", "best", "speedup", "trials", "tuning_seconds",
    "prepare_seconds", "break_even_calls", "reused", "db",
}  # fmt: skip
#: A search each time, unless a test says where plans are kept.
tune = partial(tune_and_keep, db=False)
quick = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


# ---------------------------------------------------------------------------------------------------- what wins


def test_the_best_plan_is_found_with_default_settings(world: Any, matrix: Any, optimum: Plan) -> None:
    result = tune(matrix, 8)
    assert world.cost(result.plan) <= 1.05 * world.cost(optimum)
    assert result.speedup == pytest.approx(4e-3 / world.cost(result.plan), rel=1e-6)
    assert result.baseline_name == "sweep/sell threads=2"
    assert not result.reused
    assert result.db is None


def test_a_run_off_that_begins_disturbed_is_taken_again(make_world: Any, matrix: Any) -> None:
    """For as long as seven rounds take, everything takes twice as long as in the trials."""
    until = [0.0]
    world = make_world(noise=lambda: float(world.time < until[0]))

    def meanwhile(progress: Progress) -> None:
        if progress.phase == "run-off":
            until[0] = world.time + 0.65

    result = tune(matrix, 8, callback=meanwhile)
    assert until[0] > 0
    for finalist in result.finalists:
        assert finalist.seconds == pytest.approx(world.cost(finalist.plan), rel=1e-9)


@pytest.mark.parametrize("phase", ["baseline", "run-off"])
def test_a_timing_that_begins_on_a_throttled_device_is_taken_again(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Everything takes 1.3 times as long at first, which only the clock tells."""
    until = [math.inf if phase == "baseline" else 0.0]
    world = make_world(noise=lambda: 0.3 * float(world.time < until[0]))
    until[0] = world.time + 0.1 if phase == "baseline" else 0.0

    class Watched(ClockWatch):
        def look(self) -> ClockState:
            return ClockState(2e9, 0x4 if world.time < until[0] else 0)

    class Warm(Bench):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            assert self.watch is None, "that is for GPUs"
            self.watch = Watched()

    def meanwhile(progress: Progress) -> None:
        if progress.phase == phase == "run-off":
            until[0] = world.time + 0.5

    monkeypatch.setattr(preparation, "Bench", Warm)
    result = tune(matrix, 8, callback=meanwhile)
    assert world.time > until[0] > 100.0
    for finalist in result.finalists:
        assert finalist.seconds == pytest.approx(world.cost(finalist.plan), rel=1e-9)
    for trial in result.trials:
        assert trial.seconds is None or trial.seconds == pytest.approx(world.cost(trial.plan), rel=1e-9)


def test_random_worlds_are_tuned_well(make_world: Any, matrix: Any) -> None:
    """Worlds where every choice has a random price, and blocks want to be smaller for more powers per pass."""
    missed = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        price = {
            name: float(random.uniform(1, 1.8)) for name in ("csr", "sell", "natural", "rcm", "split", "depth", "block")
        }
        middle = float(random.uniform(14, 20))

        def cost(plan: Plan, price: dict[str, float] = price, middle: float = middle) -> float:
            seconds = 2e-3 * price[plan.variant] * price[plan.partitioner] * 2 / plan.threads
            if plan.schedule == "sweep":
                return 1.5 * seconds
            depth, block = math.log2(plan.k_per_pass), math.log2(plan.block_bytes)
            seconds *= 1 + 0.1 * price["block"] * abs(block - middle + 0.5 * depth) + 0.05 * price["depth"] / depth
            return seconds * (price["split"] - 0.3 if plan.typed.split == "interleaved" else 1.0)

        noisy = np.random.default_rng(seed)
        world = make_world(cost=cost, noise=lambda noisy=noisy: float(noisy.exponential(0.02)))
        space = build_space(matrix, 8, host_device(), threads=2)
        best = min(map(cost, space.plans()))
        missed.append(world.cost(tune(matrix, 8, seed=seed).plan) / best)
    assert np.mean(missed) < 1.03
    assert max(missed) < 1.10


def test_the_baseline_is_the_fastest_variant_of_the_sweep(world: Any, matrix: Any) -> None:
    result = tune(matrix, 8)
    family = [plan for plan in {t.plan for t in result.trials} if is_baseline(plan)]
    assert len(family) == 4
    assert result.baseline_plan == min(family, key=world.cost)


def test_where_nothing_beats_the_baseline_it_is_the_plan(make_world: Any, matrix: Any) -> None:
    make_world(cost=lambda plan: 1e-3 if is_baseline(plan) else 2e-3)
    result = tune(matrix, 8, trials=20)
    assert is_baseline(result.plan)
    assert result.plan == result.baseline_plan
    assert result.speedup == 1.0
    assert result.break_even_calls is None
    assert any("nothing beat the baseline" in note for note in result.notes)


@quick
@given(st.integers(0, 2**32 - 1), st.floats(0.001, 0.2))
def test_noise_never_beats_the_baseline(make_world: Any, matrix: Any, seed: int, size: float) -> None:
    """All plans take the same time: whatever the noise makes of it, the speed-up is 1 or close, and never below."""
    random = np.random.default_rng(seed)
    make_world(cost=lambda plan: 2e-3, noise=lambda: float(size * random.uniform(0, 1)))
    result = tune(matrix, 8, trials=14)
    assert result.speedup >= 1.0
    assert result.seconds <= result.baseline_seconds
    assert result.speedup < 1 + 0.6 * size
    if size < 0.02:
        assert is_baseline(result.plan)
        assert result.speedup == 1.0


@quick
@given(st.integers(0, 2**32 - 1))
def test_a_fast_plan_wins_in_noise_and_drift(make_world: Any, matrix: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    world = make_world(noise=lambda: float(random.exponential(0.05)), drift=0.05)
    result = tune(matrix, 8)
    assert result.plan.schedule == "front"
    assert result.speedup > 1.3
    assert world.cost(result.plan) < 1.25 * 2e-3


def test_ties_go_to_the_simpler_plan(make_world: Any, matrix: Any) -> None:
    def cost(plan: Plan) -> float:
        return 2e-3 if plan.schedule == "front" else 4e-3

    make_world(cost=cost)
    first, second = (tune(matrix, 8, seed=seed) for seed in (0, 1))
    assert first.plan.threads == second.plan.threads == 1
    assert first.plan.partitioner == second.plan.partitioner == "natural"


def test_a_sweep_in_another_order_may_win_over_the_baseline(make_world: Any, matrix: Any) -> None:
    make_world(cost=lambda plan: 1e-3 if plan.schedule == "sweep" and plan.partitioner == "rcm" else 2e-3)
    result = tune(matrix, 8, trials=25)
    assert (result.plan.schedule, result.plan.partitioner) == ("sweep", "rcm")
    assert result.speedup == pytest.approx(2.0)


# ---------------------------------------------------------------------------------------------------- what cannot


def test_a_wrong_plan_never_wins(make_world: Any, matrix: Any) -> None:
    make_world(cost=lambda p: 1e-5 if p.schedule == "front" else 1e-3, wrong=lambda p, call: p.schedule == "front")
    result = tune(matrix, 8)
    assert result.plan.schedule == "sweep"
    failed = [t for t in result.trials if t.state == "failed"]
    assert failed
    assert {t.plan.schedule for t in failed} == {"front"}
    assert all("wrong result" in t.reason and "times its bound" in t.reason for t in failed)
    assert result.counts.failed == len(failed)


def test_a_plan_that_leaves_entries_out_never_wins(make_world: Any, matrix: Any) -> None:
    make_world(cost=lambda p: 1e-5 if p.schedule == "front" else 1e-3, unwritten=lambda p: p.schedule == "front")
    result = tune(matrix, 8)
    assert result.plan.schedule == "sweep"
    assert any("entries missing" in t.reason for t in result.trials if t.state == "failed")


def test_a_plan_that_is_right_once_and_wrong_later_is_found_out(make_world: Any, matrix: Any) -> None:
    world = make_world(wrong=lambda plan, call: plan.schedule == "front" and call > 1)
    result = tune(matrix, 8)
    assert result.plan.schedule == "sweep"
    assert any("wrong later" in note for note in result.notes)
    assert any(t.state == "failed" and t.plan.schedule == "front" for t in result.trials)
    assert world.prepared


@pytest.mark.parametrize("where", ["fails_to_prepare", "fails_to_run"])
def test_exceptions_are_failed_trials_with_their_reason(make_world: Any, matrix: Any, where: str) -> None:
    make_world(**{where: lambda plan: ZeroDivisionError("by\nnought") if plan.schedule == "front" else None})
    result = tune(matrix, 8)
    assert result.plan.schedule == "sweep"
    assert result.counts.failed > 0
    assert result.reasons["failed"] == {"ZeroDivisionError: by nought": result.counts.failed}


def test_running_out_of_memory_is_a_failed_trial(make_world: Any, matrix: Any) -> None:
    make_world(fails_to_prepare=lambda plan: MemoryError() if plan.variant == "sell" else None)
    result = tune(matrix, 8, trials=20)
    assert result.plan.variant == "csr"
    assert result.reasons["failed"].keys() == {"MemoryError"}


def test_infeasible_plans_are_passed_over(make_world: Any, matrix: Any) -> None:
    world = make_world(infeasible=lambda p: "blocks too large" if p.block_bytes >= 64 * 1024 else None)
    result = tune(matrix, 8)
    assert "blocks too large" not in result.reasons["pruned"]
    assert not any(plan.block_bytes >= 64 * 1024 for plan in (*world.prepared, *(t.plan for t in result.trials)))
    assert result.plan.block_bytes == 32 * 1024


def test_slow_plans_are_dropped_early(make_world: Any, matrix: Any) -> None:
    calls: Counter[Plan] = Counter()

    def cost(plan: Plan) -> float:
        calls[plan] += 1
        return 1e-3 if plan.schedule == "sweep" else 50e-3

    make_world(cost=cost)
    result = tune(matrix, 8, trials=20)
    slow = [t for t in result.trials if t.plan.schedule == "front"]
    assert slow
    assert all(t.state == "pruned" and "slower than the best" in t.reason for t in slow)
    assert all(calls[t.plan] <= 5 for t in slow)


@pytest.mark.parametrize("factor", [1.4, 1.6, 2.0, 3.0])
@pytest.mark.parametrize("kind", ["for good", "for a while", "of slow calls alone"])
def test_a_machine_that_becomes_slower_finds_the_same(
    make_world: Any, matrix: Any, optimum: Plan, factor: float, kind: str
) -> None:
    """A laptop goes to battery, a neighbour comes and goes, or takes bandwidth that fast plans do not need."""

    def slowness(now: float, seconds: float) -> float:
        is_slow = now > 1.0 and (kind == "for good" or now < 3.0 or kind == "of slow calls alone")
        if kind == "of slow calls alone":
            is_slow = is_slow and seconds > 3e-3
        return factor if is_slow else 1.0

    world = make_world()
    undisturbed = tune(matrix, 8)
    make_world(slowness=slowness)
    result = tune(matrix, 8)
    assert world.cost(result.plan) <= 1.02 * world.cost(optimum)
    assert result.counts.pruned < 0.3 * len(result.trials)
    assert result.tuning_seconds < 2.0 * factor * undisturbed.tuning_seconds
    told = [note for note in result.notes if "slower during the search" in note]
    assert len(told) == (kind != "of slow calls alone" and factor > 1.5)
    assert not told or f"{factor:.1f}x" in told[0]


@pytest.mark.parametrize("lasts", [0.1, 0.3, 0.5])
def test_a_plan_whose_first_timing_falls_into_a_storm_is_timed_again(
    make_world: Any, matrix: Any, optimum: Plan, lasts: float
) -> None:
    """Another process on the device: calls of 0.1 ms soon took up to 4.8 ms, those of the baseline did not."""
    times, since, usual = cycle([16.0, 48.0, 23.0, 13.0]), math.inf, make_world().cost

    def quiet(plan: Plan) -> Any:
        return usual(plan) / 20

    def cost(plan: Plan) -> Any:
        nonlocal since
        if plan != optimum:
            return quiet(plan)
        since = min(since, world.time)
        if world.time > since + lasts:
            return quiet(plan)
        return quiet(plan) * (1.4 if world.time < since + 5e-3 else next(times))

    world = make_world(cost=cost)
    result = tune(matrix, 8, space_filter=lambda plan: plan == optimum)
    (trial,) = [trial for trial in result.trials if trial.plan == optimum]
    assert trial.state == COMPLETE
    assert trial.seconds == pytest.approx(quiet(optimum), rel=0.1)
    assert result.plan == optimum
    assert not result.disturbed


class Crowded:
    """A world in which another process takes a core once the run-off has begun: two threads wait for one another."""

    def __init__(
        self, make_world: Any, *, seconds: float, alike: bool = False, hits: Callable[[Plan], bool] | None = None
    ) -> None:
        self.seconds, self.alike, self.since = seconds, alike, math.inf
        self.hits = hits or (lambda plan: plan.threads == 2)
        self.usual = make_world().cost
        self.world = make_world(cost=self.cost)

    def quiet(self, plan: Plan) -> Any:
        """A front is as fast with one thread as with two."""
        return self.usual(plan.replace(threads=2) if plan.schedule == "front" else plan)

    def cost(self, plan: Plan) -> float:
        taken = self.since <= self.world.time < self.since + self.seconds
        return self.quiet(plan) * (4 if taken and (self.alike or self.hits(plan)) else 1)

    def tune(self, matrix: Any, **how: Any) -> Any:
        def reached(progress: Progress) -> None:
            if progress.phase == "run-off":
                self.since = self.world.time

        return tune(matrix, 8, callback=reached, **how)


def test_trials_decide_where_the_run_off_is_disturbed(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    """The baseline of two threads takes four times as long, a plan of one thread does not: no speed-up of 8 is told."""
    crowded = Crowded(make_world, seconds=math.inf)
    result = crowded.tune(matrix, db=db)
    best, baseline = crowded.quiet(result.plan), crowded.quiet(result.baseline_plan)
    assert result.disturbed
    assert result.plan.schedule == "front"
    assert result.speedup == pytest.approx(baseline / best, rel=0.02)
    assert result.seconds == pytest.approx(best, rel=0.02)
    assert result.baseline_seconds == pytest.approx(baseline, rel=0.02)
    assert any("run-off was disturbed" in note and "1.0 to 4.0 times" in note for note in result.notes)
    assert result.to_json()["disturbed"] is True
    assert any("provisional (disturbed)" in note for note in result.notes)
    make_world(cost=crowded.quiet)
    calm = tune(matrix, 8, db=db)
    assert not calm.reused
    assert not calm.disturbed
    assert calm.plan == result.plan
    assert not any("disturbed" in note for note in tune(matrix, 8, db=db).notes)


def test_a_run_off_that_is_disturbed_for_a_moment_is_timed_again(make_world: Any, matrix: Any) -> None:
    crowded = Crowded(make_world, seconds=1.5)
    result = crowded.tune(matrix)
    assert result.speedup == pytest.approx(crowded.quiet(result.baseline_plan) / crowded.quiet(result.plan), rel=0.02)
    assert not result.disturbed
    assert not any("disturbed" in note for note in result.notes)


def in_places(monkeypatch: pytest.MonkeyPatch, places: int) -> None:
    """Have the run-off prepare plans anew, as on a GPU."""
    real = Bench.__init__

    def made(bench: Bench, *args: Any, **options: Any) -> None:
        real(bench, *args, **options)
        bench.places = places

    monkeypatch.setattr(Bench, "__init__", made)


@pytest.mark.parametrize(("places", "lucky"), [(1, True), (3, False)])
def test_a_lucky_place_in_memory_wins_nothing(
    make_world: Any, matrix: Any, optimum: Plan, monkeypatch: pytest.MonkeyPatch, places: int, lucky: bool
) -> None:
    """The best plan's neighbour takes 5 % longer, and 5 % less in the place that it has first."""
    other = optimum.replace(block_bytes=optimum.block_bytes // 2)
    world = make_world(luck=lambda plan, copy: 0.95 if plan == other and copy == 1 else 1.0)
    usual, world.cost = world.cost, lambda plan: 1.05 * usual(optimum) if plan == other else usual(plan)
    in_places(monkeypatch, places)
    result = tune(matrix, 8, settings=Settings(patience=200, trials=300))
    assert (result.plan == other) is lucky
    assert lucky or result.plan == optimum
    shown = {final.plan: final.seconds for final in result.finalists}
    assert lucky or shown[other] > shown[optimum]


def test_a_plan_that_is_wrong_in_another_place_is_found_out(
    make_world: Any, matrix: Any, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(spoilt=lambda plan, copy: plan == optimum and copy == 2)
    in_places(monkeypatch, 3)
    result = tune(matrix, 8, settings=Settings(patience=200, trials=300))
    assert result.plan != optimum
    assert [trial.state for trial in result.trials if trial.plan == optimum] == ["failed"]
    assert any("was right at first and wrong later" in note for note in result.notes)


def test_ctrl_c_in_another_place_leaves_what_was_found_before(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run-off in the first place was whole: the plan is that of a search with one place, and no best so far."""
    make_world()
    found = tune(matrix, 8)
    in_places(monkeypatch, 3)
    again: list[Plan] = []
    beside, elsewhere = RunOff._timed_beside, Bench.elsewhere

    def interrupted(bench: Bench, plan: Plan) -> Any:
        again.append(plan)
        raise KeyboardInterrupt

    def interrupting(search: RunOff, *given: Any) -> Any:
        monkeypatch.setattr(Bench, "elsewhere", interrupted)
        try:
            return beside(search, *given)
        finally:
            monkeypatch.setattr(Bench, "elsewhere", elsewhere)

    make_world()
    monkeypatch.setattr(RunOff, "_timed_beside", interrupting)
    result = tune(matrix, 8, db=db)
    assert len(again) == 1
    assert (result.plan, result.seconds, result.interrupted) == (found.plan, found.seconds, False)
    assert len(result.finalists) == len(found.finalists)
    assert [record.plan for record in db.list()] == [found.plan]


def test_without_time_or_room_plans_stay_where_they_are(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_places(monkeypatch, 3)
    world = make_world(prepare_cost=lambda plan: 0.2)
    settings = Settings(seconds=10.0)
    result = tune(matrix, 8, settings=settings)
    assert result.tuning_seconds < 1.1 * settings.seconds
    refused: list[Plan] = []

    def no_room(plan: Plan) -> Exception | None:
        if plan not in {program.plan for program in world.alive}:
            return None
        refused.append(plan)
        return MemoryError()

    world.prepare_cost, world.fails_to_prepare = lambda plan: 1e-3, no_room
    result = tune(matrix, 8)
    assert result.speedup > 1.5
    assert refused == [refused[0]] * 2, "one more place is asked for, and the last preparation comes"
    assert refused[0] in {final.plan for final in result.finalists}


def test_a_plan_that_was_timed_too_well_does_not_overrule_the_run_off(make_world: Any, matrix: Any) -> None:
    """The baseline takes what it took, what seemed the best takes four times as long: maybe it always did."""
    crowded = Crowded(make_world, seconds=math.inf, hits=lambda plan: plan.schedule == "front")
    result = crowded.tune(matrix)
    assert result.plan == result.baseline_plan
    assert result.speedup == 1.0
    assert not result.disturbed
    assert any("run-off was disturbed" in note and "decided" not in note for note in result.notes)


def test_a_short_search_does_not_time_its_run_off_twice(make_world: Any, matrix: Any) -> None:
    crowded = Crowded(make_world, seconds=math.inf, hits=is_baseline)
    result = crowded.tune(matrix, seconds=3.0)
    assert result.disturbed
    assert result.tuning_seconds < 3.6


def test_a_machine_that_is_slower_alike_in_the_run_off_disturbs_nothing(make_world: Any, matrix: Any) -> None:
    crowded = Crowded(make_world, seconds=math.inf, alike=True)
    result = crowded.tune(matrix)
    assert not result.disturbed
    assert result.seconds == pytest.approx(4 * crowded.quiet(result.plan), rel=0.02)
    assert result.speedup == pytest.approx(crowded.quiet(result.baseline_plan) / crowded.quiet(result.plan), rel=0.02)


def test_a_disturbed_search_replaces_no_plan(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    """Neither one that was there before it, nor one that another search has kept meanwhile."""
    crowded = Crowded(make_world, seconds=math.inf)
    tune(matrix, 8, db=db)
    (before,) = db.list()
    result = crowded.tune(matrix, db=db, retune=True)
    assert result.disturbed
    assert any("keeps the plan it had" in note and "was disturbed" in note for note in result.notes)
    assert db.list() == [before]


def with_plan(record: PlanRecord, plan: Plan) -> PlanRecord:
    """The record of another plan that the same search might have found."""
    return dataclasses.replace(record, plan=plan, key=key_of_plan(search_key(record.key), plan))


def test_a_plan_of_another_search_stays_where_this_one_was_disturbed(
    make_world: Any, matrix: Any, db: PlanDatabase, tmp_path: Path
) -> None:
    crowded = Crowded(make_world, seconds=math.inf)
    elsewhere = PlanDatabase(tmp_path / "elsewhere.sqlite", layers=())
    tune(matrix, 8, db=elsewhere)
    (found,) = elsewhere.list()
    other = with_plan(found, found.plan.replace(variant="csr", partitioner="rcm", block_bytes=16 * 1024))
    slower = dataclasses.replace(other, seconds=0.9 * found.baseline_seconds)

    def reached(progress: Progress) -> None:
        if progress.phase == "run-off":
            crowded.since = crowded.world.time
            db.put(slower)

    result = tune(matrix, 8, db=db, callback=reached)
    assert result.disturbed
    assert other.plan not in [finalist.plan for finalist in result.finalists]
    assert result.speedup > slower.speedup
    assert db.list() == [slower]
    db.remove(db.list()[0].id)
    crowded.since = math.inf
    marked = dataclasses.replace(slower, seconds=1e-6, provenance={**slower.provenance, "disturbed": True})

    def meanwhile(progress: Progress) -> None:
        if progress.phase == "run-off":
            db.put(marked)

    calm = tune(matrix, 8, db=db, callback=meanwhile)
    assert not calm.disturbed
    assert [record.plan for record in db.list()] == [calm.plan]


def test_what_is_compiled_in_a_search_is_not_in_its_time(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On first use it would be most of it; but it is no more than as long again."""
    monkeypatch.setattr(measure, "is_real_time", lambda: True)

    def trials(compiles: bool) -> int:
        def prepared(plan: Plan) -> None:
            if compiles:
                with event.trigger_event("numba:compile"):
                    time.sleep(0.05)

        make_world(fails_to_prepare=prepared, prepare_cost=lambda plan: 0.05)
        result = tune(matrix, 8, seconds=0.5, threads=1, db=False)
        assert result.stopped == "time budget"
        return len(result.trials)

    assert 1.3 * trials(False) <= trials(True) <= 2.5 * trials(False)


def test_plans_whose_code_is_coming_are_tried_when_it_is_there(
    world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def count(progress: Progress) -> None:
        nonlocal made
        made = progress.trials

    monkeypatch.setattr(Bench, "is_coming", lambda bench, plan: plan.schedule == "front" and made < 8)
    result = tune(matrix, 8, trials=20, callback=count)
    schedules = [trial.plan.schedule for trial in result.trials]
    assert "front" not in schedules[:8], "others are tried before them"
    assert "front" in schedules[8:]
    assert len({trial.plan for trial in result.trials}) == len(result.trials) == 20


def test_a_search_waits_for_code_where_nothing_else_is_left(
    world: Any, matrix: Any, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = 0

    def await_code(bench: Bench, seconds: float) -> None:
        nonlocal waits
        waits += 1

    monkeypatch.setattr(Bench, "is_coming", lambda bench, plan: plan == optimum and waits < 2)
    monkeypatch.setattr(Bench, "await_code", await_code)
    result = tune(matrix, 8, space_filter=optimum.__eq__)
    assert (result.plan, waits) == (optimum, 2)


def test_the_phase_that_compiles_is_bounded_and_waits_for_the_first_baseline(matrix: Any) -> None:
    """Nothing can be tried without that; with all other code the search can begin."""

    class Slow:
        has_all, looks, bound = False, 0, 0.0

        def want(self, jobs: Any) -> None:
            self.wanted = [code for code, *_ in jobs]

        def wait(self, seconds: float, report: Callable[[int, int], object]) -> int:
            self.bound = seconds
            report(0, len(self.wanted))
            return 0

        def is_coming(self, plan: Plan) -> bool:
            return self.looks < 3

        def wait_for_one(self, seconds: float) -> None:
            self.looks += 1

    slow: Any = Slow()
    plans = list(build_space(matrix, 2, host_device(), backend="cpu", threads=1).baselines(matrix))
    told: list[Progress] = []
    preparation.compile_first(slow, None, iter(plans), Settings(seconds=30.0), told.append)
    assert (slow.bound, slow.looks) == (30.0, 3)
    assert [(one.phase, one.trials, one.trials_budget) for one in told] == [("compile", 0, len(plans))]
    preparation.compile_first(slow, None, iter(plans), Settings(trials=2), print)
    assert len(slow.wanted) == 2, "no more than can be tried"
    preparation.compile_first(slow, None, iter(plans), Settings(calls=100), print)
    assert len(slow.wanted) == 1, "it may be all that is worth it"
    slow.has_all = True
    preparation.compile_first(slow, None, iter([]), Settings(seconds=30.0), told.append)
    assert len(told) == 1, "where all is there nothing is shown"


def test_plans_that_cannot_win_are_timed_for_the_fewest_rounds(make_world: Any, matrix: Any) -> None:
    """More repeats only for contenders: what is 1.3 times as slow as the best is complete after five rounds."""
    random = np.random.default_rng(3)
    make_world(noise=lambda: float(random.exponential(0.02)))
    result = tune(matrix, 8)
    done = [trial for trial in result.trials if trial.state == "complete" and not is_baseline(trial.plan)]
    best = min(trial.seconds for trial in done if trial.seconds)
    seen: list[int] = []
    so_far = math.inf
    for trial in result.trials:
        if trial.seconds is None or trial.state != "complete":
            continue
        if 1.25 * so_far < trial.seconds < 1.45 * so_far and trial.origin != "baseline":
            seen.append(len(trial.samples))
        so_far = min(so_far, trial.seconds)
    assert best == so_far
    assert seen
    assert max(seen) <= 6


def test_a_disturbance_does_not_drop_a_good_plan(make_world: Any, matrix: Any) -> None:
    """For 15 ms from the first timed call of the best plan on, everything takes a hundred times as long."""
    begun: list[float] = []

    def noise() -> float:
        return 99.0 if begun and world.time - begun[0] < 15e-3 else 0.0

    def cost(plan: Plan) -> float:
        calls[plan] += 1
        good = (plan.variant, plan.partitioner, plan.threads) == ("sell", "natural", 2)
        if good and calls[plan] == 2:
            begun.append(world.time)
        return 1e-4 if good else 2e-4

    calls: Counter[Plan] = Counter()
    world = make_world(cost=cost, noise=noise)
    result = tune(matrix, 8, trials=20, space_filter=is_baseline)
    assert begun
    assert (result.plan.variant, result.plan.partitioner, result.plan.threads) == ("sell", "natural", 2)


def test_no_baseline_is_an_error(make_world: Any, matrix: Any) -> None:
    make_world(infeasible=lambda plan: "never" if plan.schedule == "sweep" else None)
    with pytest.raises(InfeasibleError, match="never"):
        tune(matrix, 8)


# ---------------------------------------------------------------------------------------------------- what ends it


@pytest.mark.parametrize("trials", [1, 2, 3, 7, 20])
def test_the_trial_budget_is_kept(world: Any, matrix: Any, trials: int) -> None:
    result = tune(matrix, 8, trials=trials)
    assert sum(result.counts.to_json().values()) == len(result.trials) <= trials
    assert result.speedup >= 1.0
    if trials >= 2:
        assert any(t.origin == "predicted" or not is_baseline(t.plan) for t in result.trials)
    if trials < 20:
        assert result.stopped == "trial budget"


@pytest.mark.parametrize("seconds", [0.5, 3.0, 20.0])
def test_the_time_budget_is_kept(make_world: Any, matrix: Any, seconds: float) -> None:
    random = np.random.default_rng(0)
    make_world(prepare_cost=lambda plan: 0.05 * seconds, noise=lambda: float(random.uniform(0, 0.3)))
    result = tune(matrix, 8, trials=1000, seconds=seconds, settings=Settings(patience=1000))
    assert result.stopped == "time budget"
    assert 0.6 * seconds < result.tuning_seconds <= 1.3 * seconds


def test_what_an_untuned_call_takes_is_tried_though_time_is_gone(make_world: Any, matrix: Any) -> None:
    """Baselines may take all of the time; the tuned plan was slower than the untuned one then."""
    make_world(prepare_cost=lambda plan: 1.0, cost=lambda plan: 1e-3 * plan.threads)
    result = tune(matrix, 8, seconds=0.5, db=False)
    assert [(trial.origin, trial.plan.threads) for trial in result.trials] == [("baseline", 2), ("predicted", 1)]
    assert (result.plan.threads, result.stopped) == (1, "time budget")


@pytest.mark.parametrize("is_thought_of", [False, True])
def test_time_is_kept_back_to_prepare_the_winner_with_nothing_memoised(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, is_thought_of: bool
) -> None:
    """The first plan in an order has to order the rows, be it only thought of; the last preparation has to as well."""
    random = np.random.default_rng(0)
    world = make_world(
        cost=lambda plan: (1e-3 if plan.schedule == "front" else 4e-3) * (1.0 if plan.partitioner == "rcm" else 1.5),
        prepare_cost=lambda plan: 1.0,
        noise=lambda: float(random.uniform(0, 0.3)),
    )
    front = registry.get("cpu", "front")
    prepare = front.prepare

    def order(of: Any, plan: Plan) -> None:
        if plan.partitioner == "rcm" and "ordered" not in of.pattern_cache:
            of.pattern_cache["ordered"] = True
            world.time += 2.0

    def feasible(plan: Plan, of: Any, device: Any) -> None:
        if is_thought_of:
            order(of, plan)

    def ordered(of: Any, plan: Plan) -> Any:
        order(of, plan)
        return prepare(of, plan)

    monkeypatch.setattr(front, "feasible", feasible)
    monkeypatch.setattr(front, "prepare", ordered)
    result = tune(matrix, 8, trials=1000, seconds=30.0, settings=Settings(patience=1000))
    assert (result.plan.schedule, result.plan.partitioner) == ("front", "rcm")
    assert result.prepare_seconds == pytest.approx(3.0)
    assert result.stopped == "time budget"
    assert 24.0 < result.tuning_seconds <= 30.0


@pytest.mark.parametrize("seconds", [3.0, 30.0])
def test_slow_models_do_not_eat_the_budget(make_world: Any, matrix: Any, seconds: float) -> None:
    """What is not thought of in time is tried as neighbours, by the sampler and at random."""
    thought = 0.0

    def think(plan: Plan) -> float:
        nonlocal thought
        thought += 0.05
        return 0.05

    world = make_world(thinking_cost=think)
    predicting = 0.25  # one model for each of the few plans of a call that is not tuned, whatever the budget
    result = tune(matrix, 8, trials=1000, seconds=seconds, settings=Settings(patience=1000))
    assert thought < 0.1 * seconds + 0.05 + predicting
    assert result.tuning_seconds < 1.1 * seconds
    assert world.cost(result.plan) < 3e-3


def test_what_fails_whatever_else_is_chosen_is_not_tried_again_and_again(make_world: Any, matrix: Any) -> None:
    """Nothing is known of the seconds of fronts in one variant, since all of them crash: they promise most for ever."""
    make_world(fails_to_run=lambda plan: MemoryError() if (plan.schedule, plan.variant) == ("front", "sell") else None)
    result = tune(matrix, 8, trials=60, seconds=1e3, settings=Settings(patience=1000))
    searched = [trial for trial in result.trials if trial.origin in SEARCHING]
    assert sum(trial.state == "failed" for trial in searched[:20]) <= 3


def test_compilation_counts_as_tuning_time_and_not_as_the_plans(make_world: Any, matrix: Any) -> None:
    world = make_world(compile_cost=4.0)
    result = tune(matrix, 8)
    assert result.tuning_seconds < 60
    assert result.seconds == pytest.approx(world.cost(result.plan))
    assert any(not is_baseline(t.plan) for t in result.trials)


def test_plans_that_take_too_long_to_prepare_are_passed_over(make_world: Any, matrix: Any) -> None:
    make_world(prepare_cost=lambda plan: 3.0 if plan.partitioner == "rcm" else 0.01)
    result = tune(matrix, 8, settings=Settings(patience=1000))
    dear = [t for t in result.trials if t.plan.partitioner == "rcm"]
    assert {t.plan.schedule for t in dear} <= {"sweep", "front"}
    assert len(dear) <= 4  # twice for each schedule, to know
    assert len(result.trials) == Settings().trials


def test_plans_that_are_dear_and_good_are_tried(make_world: Any, matrix: Any) -> None:
    def cost(plan: Plan) -> float:
        return default_cost(plan) * (0.5 if plan.partitioner == "rcm" and plan.schedule == "front" else 1.0)

    world = make_world(prepare_cost=lambda plan: 3.0 if plan.partitioner == "rcm" else 0.01)
    default_cost, world.cost = world.cost, cost
    result = tune(matrix, 8, settings=Settings(patience=1000))
    assert result.plan.partitioner == "rcm"
    assert sum(t.plan.partitioner == "rcm" for t in result.trials) > 3


def test_a_search_without_progress_ends_early(world: Any, matrix: Any) -> None:
    result = tune(matrix, 8, trials=1000, settings=Settings(patience=10))
    assert result.stopped == "no improvement"
    assert result.tuning_seconds < 20


@pytest.mark.parametrize("seed", [0, 8, 14])
def test_a_search_without_progress_ends_where_no_single_choice_is_better(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every plan has a price of its own, so that none tells much of those next to it; in the second world one is missed
    where only what is expected to gain most is tried. (To change numbers by one place alone misses none in a hundred
    worlds: what is expected to gain most is sought among all choices.)

    Waking a thread is dear, which decides what is predicted and where the search begins.
    """
    monkeypatch.setattr(rates._GUESS, "waking_seconds", 20e-6)
    usual = make_world().cost

    def cost(plan: Plan) -> float:
        return float(usual(plan)) * (1 + 0.3 * (zlib.crc32(f"{seed}{plan.label()}".encode()) % 1000) / 1000)

    make_world(cost=cost)
    result = tune(matrix, 8, seed=seed, trials=1000)
    assert result.stopped == "no improvement"
    best = min((trial for trial in result.trials if trial.state == COMPLETE), key=lambda t: t.seconds or math.inf)
    tried = {trial.plan for trial in result.trials}
    near = build_space(matrix, 8, host_device(), threads=2).along(best.plan)
    assert not [plan for plan in near if plan not in tried and cost(plan) < 0.99 * (best.seconds or 0.0)]


def test_most_plans_are_foreseen(world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be got ready beside a trial is new, not that trial's plan, and mostly what is tried soon after."""
    foreseen: set[Plan] = set()
    tried: list[tuple[str, bool]] = []
    settled: list[int] = []
    real = Bench.try_plan

    def get_ready(bench: Bench, likely: Callable[[], Any]) -> None:
        foreseen.update(islice((plan for plan in likely() if plan not in foreseen), 3))

    def try_plan(bench: Bench, plan: Plan, **given: Any) -> Any:
        tried.append((given["origin"], plan in foreseen))
        return real(bench, plan, **given)

    monkeypatch.setattr(Bench, "get_ready", get_ready)
    monkeypatch.setattr(Bench, "try_plan", try_plan)
    monkeypatch.setattr(Bench, "settle", lambda bench: settled.append(len(tried)))
    tune(matrix, 8)
    later = [known for _, known in tried[1:]]
    assert sum(later) >= 0.6 * len(later)
    assert dict(tried[1:])["predicted"]
    assert settled == [len(tried)] * 2  # before the run-off, and when it is closed


@pytest.mark.parametrize("seconds", [10.0, 30.0])
def test_to_get_plans_ready_changes_nothing_of_what_comes(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Where models are dear too, so that only so many plans are thought of: to foresee thinks of none."""
    found = []
    for foresees in (False, True):
        monkeypatch.setattr(
            Bench, "get_ready", lambda bench, likely, foresees=foresees: list(likely()) if foresees else 0
        )
        make_world(thinking_cost=lambda plan: 0.02)
        result = tune(matrix, 8, settings=Settings(seconds=seconds))
        found.append([(trial.origin, trial.plan) for trial in result.trials])
    assert found[0] == found[1]


def test_nothing_is_got_ready_for_few_calls_or_the_whole_space(
    world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is known what a search is worth, and where everything is tried in its order."""
    asked: list[int] = []
    monkeypatch.setattr(Bench, "get_ready", lambda bench, likely: asked.append(1))
    tune(matrix, 8, calls=1)
    exhaustive(matrix, 8, seconds=5.0)
    assert not asked
    tune(matrix, 8, calls=10**9)
    assert asked


def test_a_small_space_is_exhausted(make_world: Any, matrix: Any) -> None:
    def infeasible(plan: Plan) -> str | None:
        return "no" if plan.schedule == "front" and (plan.block_bytes, plan.k_per_pass) != (2**20, 4) else None

    world = make_world(infeasible=infeasible)
    result = tune(matrix, 8, trials=1000, settings=Settings(patience=1000))
    assert result.stopped == "space exhausted"
    assert result.counts.complete + len([t for t in result.trials if "slower" in t.reason]) == 8 + 8 * 2
    assert world.cost(result.plan) == min(world.cost(t.plan) for t in result.trials if t.state == "complete")


def test_nothing_is_tried_twice(world: Any, matrix: Any) -> None:
    result = tune(matrix, 8)
    assert len({t.plan for t in result.trials}) == len(result.trials)
    assert [t.number for t in result.trials] == list(range(len(result.trials)))


def test_the_same_measurements_make_the_same_choices(make_world: Any, matrix: Any) -> None:
    def run(seed: int) -> list[Plan]:
        random = np.random.default_rng(7)
        make_world(noise=lambda: float(random.uniform(0, 0.05)))
        result = tune(matrix, 8, seed=seed)
        return [*(t.plan for t in result.trials), result.plan]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_baseline_and_predicted_plan_come_first(world: Any, matrix: Any) -> None:
    origins = [t.origin for t in tune(matrix, 8).trials]
    assert origins[0] == "baseline"
    ranks = {
        "baseline": 0,
        "predicted": 1,
        "default": 2,
        "model": 3,
        "estimate": 4,
        "neighbour": 4,
        "sampler": 4,
        "rival": 4,
        "spare": 4,
    }
    assert [ranks[o] for o in origins] == sorted(ranks[o] for o in origins)
    assert {"estimate", "neighbour", "sampler", "rival"} <= set(origins)


# ---------------------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_keeps_the_best_so_far(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    total = make_world()
    tune(matrix, 8)
    for at in range(200, total.calls, max(1, total.calls // 7)):
        make_world(interrupt_at=at)
        for record in db.list():
            db.remove(record.id)
        result = tune(matrix, 8, db=db)
        assert result.interrupted
        assert result.stopped == "interrupted"
        assert result.speedup >= 1.0
        fastest = min(t.seconds for t in result.trials if t.state == "complete")
        assert result.seconds <= 1.05 * fastest
        record = db.find(plan_key(matrix, 8, threads=2)).record
        assert record is not None
        assert record.plan == result.plan
        assert result.to_json()["interrupted"] is True
        assert any("provisional (interrupted)" in note for note in result.notes)
        make_world()
        again = tune(matrix, 8, db=db)
        assert (again.reused, again.interrupted) == (False, False), "it goes on where it was"
        assert result.plan in [trial.plan for trial in again.trials if trial.is_own]
        assert tune(matrix, 8, db=db).reused


def test_a_plan_of_a_search_without_time_is_provisional(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    """An untuned call uses it, and the next tuning begins with it and takes it into the run-off."""
    make_world(prepare_cost=lambda plan: 1.0)
    first = tune(matrix, 8, seconds=6.0, db=db)
    assert (first.stopped, first.starved) == ("time budget", True)
    assert any("provisional (too little time)" in note for note in first.notes)
    (record,) = db.list()
    assert record.provisional == "too little time"
    assert db.find(plan_key(matrix, 8, threads=2)).record == record
    make_world()
    second = tune(matrix, 8, db=db)
    assert (second.reused, second.starved) == (False, False)
    assert first.plan in [finalist.plan for finalist in second.finalists]
    assert [(one.plan, one.provisional) for one in db.list()] == [(second.plan, "")]
    assert tune(matrix, 8, db=db).reused


def test_a_provisional_plan_is_used_where_none_can_be_kept(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(prepare_cost=lambda plan: 1.0)
    first = tune(matrix, 8, seconds=6.0, db=db)

    def refuse() -> None:
        raise DatabaseError("the database cannot be written")

    monkeypatch.setattr(db, "check_writable", refuse)
    again = tune(matrix, 8, db=db)
    assert (again.reused, again.plan) == (True, first.plan)
    assert any("provisional" in note for note in again.notes)


def test_ctrl_c_does_not_replace_a_plan_by_a_worse_one(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world()
    assert tune(matrix, 8, db=db).plan.schedule == "front"
    total = make_world()
    assert not tune(matrix, 8, db=db, retune=True).interrupted
    assert not any("interrupted" in note for note in tune(matrix, 8, db=db).notes)
    (before,) = db.list()
    for at in range(200, total.calls, max(1, total.calls // 3)):
        make_world(interrupt_at=at)
        result = tune(matrix, 8, db=db, retune=True)
        assert result.interrupted
        assert any("keeps the plan it had" in note for note in result.notes)
        assert db.list() == [before]


@pytest.mark.parametrize("when", ["prepared anew", "figures"])
def test_ctrl_c_after_the_search_does_not_lose_its_plan(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """What is then left, figures that are said of the plan, may take seconds: another process may be measuring."""
    whole = make_world()
    found = tune(matrix, 8)
    calls = {"prepared anew": 0, "figures": 0}
    last = {"prepared anew": len(whole.prepared), "figures": 2}

    def interrupting(what: str, genuine: Any) -> Any:
        def call(*given: Any) -> Any:
            calls[what] += 1
            if what == when and calls[what] == last[what]:
                raise KeyboardInterrupt
            return genuine(*given)

        return call

    make_world(prepare_cost=interrupting("prepared anew", lambda plan: 1e-3))
    monkeypatch.setattr(preparation, "measured_figures", interrupting("figures", preparation.measured_figures))
    try:
        result = tune(matrix, 8, db=db)
    except KeyboardInterrupt:
        pytest.fail("the plan is lost")
    assert calls[when] == last[when]
    assert (result.plan, result.stopped, result.interrupted) == (found.plan, found.stopped, False)
    assert [record.plan for record in db.list()] == [found.plan]
    assert result.prepare_seconds > 0


def test_ctrl_c_in_the_half_of_the_host_ends_that_of_the_gpu_too(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(interrupt_at=900)
    whole, asked = tuning._tune, []

    def half(matrix: Any, request: TuneRequest) -> Any:
        if request.backend == "auto":
            return whole(matrix, request)
        asked.append(request.backend)
        return whole(matrix, dataclasses.replace(request, backend="cpu"))

    monkeypatch.setattr(registry, "backends", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(tuning, "is_usable", lambda backend: True)
    monkeypatch.setattr(tuning, "_tune", half)
    result = tune_and_keep(matrix, 8, db=db)
    assert asked == ["cpu"]
    assert result.interrupted
    assert [record.plan for record in db.list()] == [result.plan]
    assert any("cuda" in note for note in result.notes)


def test_a_gpu_that_fails_does_not_lose_what_the_host_found(
    make_world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world()
    whole = tuning._tune

    def half(matrix: Any, request: TuneRequest) -> Any:
        if request.backend == "auto":
            return whole(matrix, request)
        if request.backend == "cuda":
            raise DeviceError("the device has no room for the matrix")
        return whole(matrix, dataclasses.replace(request, backend="cpu"))

    monkeypatch.setattr(registry, "backends", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(tuning, "is_usable", lambda backend: True)
    monkeypatch.setattr(tuning, "_tune", half)
    result = tune_and_keep(matrix, 8, db=db)
    assert result.speedup > 1.5
    assert [record.plan for record in db.list()] == [result.plan]
    assert result.notes[-1] == "the cuda backend was not tuned: the device has no room for the matrix"


def test_ctrl_c_before_anything_was_measured_is_ctrl_c(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world(interrupt_at=1)
    with pytest.raises(KeyboardInterrupt):
        tune(matrix, 8, db=db)
    assert db.list() == []


# ---------------------------------------------------------------------------------------------------- the database


def test_the_second_time_the_plan_comes_from_the_database(world: Any, matrix: Any, db: PlanDatabase) -> None:
    first = tune(matrix, 8, db=db, name="small")
    made = len(world.prepared)
    again = tune(matrix.with_values(2 * matrix.data), 8, db=db)
    assert len(world.prepared) == made
    assert again.reused
    assert (again.plan, again.seconds, again.speedup) == (first.plan, first.seconds, first.speedup)
    assert (again.counts, again.baseline_name) == (first.counts, first.baseline_name)
    assert again.db == str(db.path)
    assert again.matrix_name == "small"
    assert again.trials == ()
    assert len(db.trials(plan_key(matrix, 8, threads=2))) == len(first.trials)


def test_retune_searches_again_and_replaces(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world()
    slow = tune(matrix, 8, db=db)
    world = make_world(cost=lambda plan: 1e-3 if plan.schedule == "sweep" else 2e-3)
    assert tune(matrix, 8, db=db).plan == slow.plan
    again = tune(matrix, 8, db=db, retune=True)
    assert not again.reused
    assert again.plan.schedule == "sweep"
    assert world.prepared
    assert tune(matrix, 8, db=db).plan == again.plan


@pytest.mark.parametrize("short", [{"trials": 1}, {"trials": 4}, {"seconds": 0.2}, {"seconds": 1e-3}])
def test_a_short_retune_does_not_replace_a_plan_by_a_worse_one(
    make_world: Any, matrix: Any, db: PlanDatabase, optimum: Plan, short: dict[str, Any]
) -> None:
    world = make_world()
    first = tune(matrix, 8, db=db)
    assert world.cost(first.plan) <= 1.02 * world.cost(optimum)
    again = tune(matrix, 8, db=db, retune=True, **short)
    assert not again.reused
    assert "given" in [trial.origin for trial in again.trials]
    assert world.cost(tune(matrix, 8, db=db).plan) <= 1.02 * world.cost(first.plan)


def test_of_two_searches_that_overlap_the_better_plan_stays(
    world: Any, matrix: Any, db: PlanDatabase, tmp_path: Path, optimum: Plan
) -> None:
    key = plan_key(matrix, 8, threads=2)

    def beside(*plans: Plan, **how: Any) -> Any:
        """A short search during which others keep these plans, found elsewhere."""

        def meanwhile(progress: Progress) -> None:
            if progress.trials == 2 and progress.phase != "done":
                for plan in plans:
                    db.put(dataclasses.replace(with_plan(found, plan), seconds=world.cost(plan)))

        return tune(matrix, 8, db=db, trials=3, callback=meanwhile, **how)

    elsewhere = PlanDatabase(tmp_path / "elsewhere.sqlite", layers=())
    tune(matrix, 8, db=elsewhere)
    (found,) = elsewhere.list()
    assert world.cost(found.plan) < 1.1 * world.cost(optimum)
    slow = beside(found.plan)
    assert slow.speedup < found.speedup
    assert [record.plan for record in db.list()] == [found.plan]
    assert "another search" in " ".join(slow.notes)
    assert len(db.trials(key)) == len(slow.trials)
    # What is slower than the plan found here goes, and so does what took part in the run-off.
    slowest = found.plan.replace(variant="csr", threads=1)
    db.remove(db.list()[0].id)
    again = beside(slowest)
    assert again.plan == slow.plan != slowest
    assert [record.plan for record in db.list()] == [slow.plan]
    assert "another search" not in " ".join(again.notes)
    db.put(found)
    last = beside(slowest, found.plan, retune=True)
    assert last.plan == found.plan
    assert db.list()[0].tuning_seconds == last.tuning_seconds


def test_an_interrupted_search_leaves_what_another_has_kept_meanwhile(
    make_world: Any, matrix: Any, db: PlanDatabase, tmp_path: Path
) -> None:
    make_world()
    elsewhere = PlanDatabase(tmp_path / "elsewhere.sqlite", layers=())
    tune(matrix, 8, db=elsewhere)
    (found,) = elsewhere.list()
    untried = found.plan.replace(variant="csr", partitioner="rcm", threads=1)
    slower = dataclasses.replace(with_plan(found, untried), seconds=found.baseline_seconds)

    def meanwhile(progress: Progress) -> None:
        if progress.trials == 2:
            db.put(slower)

    make_world(interrupt_at=900)
    result = tune(matrix, 8, db=db, trials=1000, callback=meanwhile)
    assert result.interrupted
    assert untried not in [finalist.plan for finalist in result.finalists]
    assert result.speedup > slower.speedup
    assert db.list() == [slower]


def test_retune_drops_a_plan_that_is_wrong_now(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world()
    first = tune(matrix, 8, db=db)
    make_world(wrong=lambda plan, call: plan == first.plan)
    again = tune(matrix, 8, db=db, retune=True)
    assert again.plan != first.plan
    assert tune(matrix, 8, db=db).plan == again.plan


def test_by_default_plans_are_in_the_users_database(world: Any, matrix: Any) -> None:
    first = tune_and_keep(matrix, 8)
    assert not first.reused
    assert first.db == str(default_database().path)
    assert tune_and_keep(matrix, 8).reused
    assert [record.plan for record in default_database().list()] == [first.plan]


def test_nothing_is_kept_where_db_is_false(world: Any, matrix: Any) -> None:
    assert tune_and_keep(matrix, 8, trials=3, db=False).db is None
    assert not default_database().exists()


def test_a_database_may_be_named_by_its_path(world: Any, matrix: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "named.sqlite", str(tmp_path / "named.sqlite")):
        result = tune_and_keep(matrix, 8, trials=3, db=path)
    assert result.reused
    assert not default_database().exists()


def test_a_team_shares_plans_on_a_server(world: Any, matrix: Any, server_url: str) -> None:
    first = tune_and_keep(matrix, 8, trials=3, db=server_url)
    assert first.db == server_url
    with PlanDatabase(server_url) as another:
        again = tune_and_keep(matrix, 8, db=another)
        assert (again.reused, again.plan) == (True, first.plan)
        assert len(another.trials(plan_key(matrix, 8, threads=2))) == len(first.trials)
    assert not default_database().exists()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_any_sparse_matrix_will_do(world: Any, matrix: Any, kind: str) -> None:
    first = tune_and_keep(matrix, 8, trials=3)
    other = sp.csr_matrix(matrix.to_scipy()).asformat(kind)
    assert tune_and_keep(other, 8).plan == first.plan
    assert plan_key(other, 8) == plan_key(matrix, 8)
    assert exhaustive(other, 8, seconds=0.05).fingerprint == matrix.fingerprint


@pytest.mark.parametrize("A", [np.eye(3), sp.csr_array((0, 0)), sp.csr_array((2, 3)), None])
def test_what_is_no_sparse_matrix_is_refused(world: Any, A: Any) -> None:
    for call in (tune, exhaustive):
        with pytest.raises(AkxError):
            call(A, 8)


def test_the_seed_of_the_settings_counts(world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    class Watched(Problem):
        def __init__(self, *args: Any, seed: int, **kwargs: Any) -> None:
            seeds.append(seed)
            super().__init__(*args, seed=seed, **kwargs)

    monkeypatch.setattr(tuning, "Problem", Watched)
    monkeypatch.setattr("akx.tuner.search.exhaustive.Problem", Watched)
    for call in (partial(tune, trials=2), partial(exhaustive, seconds=0.01)):
        call(matrix, 8)
        call(matrix, 8, settings=Settings(seed=5))
        call(matrix, 8, settings=Settings(seed=5), seed=0)
        call(matrix, 8, seed=3)
    assert seeds == [0, 5, 0, 3] * 2


@pytest.mark.parametrize(
    "change", [{"k": 7}, {"basis": "newton"}, {"start_vectors": 2}, {"threads": 1}, {"dtype": np.float32}]
)
def test_a_plan_for_something_else_is_not_used(
    make_matrix: Any, world: Any, matrix: Any, db: PlanDatabase, change: dict[str, Any]
) -> None:
    tune(matrix, 8, db=db, trials=5)
    other = make_matrix(dtype=change.pop("dtype", np.float64))
    result = tune(other, **{"k": 8, "db": db, "trials": 5, **change})
    assert not result.reused
    assert len(db.list()) == 2


def test_a_plan_that_became_infeasible_is_not_used(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world()
    assert tune(matrix, 8, db=db).plan.schedule == "front"
    make_world(infeasible=lambda plan: "gone" if plan.schedule == "front" else None)
    again = tune(matrix, 8, db=db)
    assert not again.reused
    assert again.plan.schedule == "sweep"


def test_an_unwritable_database_is_an_error_before_any_work(world: Any, matrix: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(DatabaseError):
        tune(matrix, 8, db=PlanDatabase(tmp_path / "file" / "plans.sqlite", layers=()))
    assert world.prepared == []


def full(*_: Any, **__: Any) -> None:
    """A disk that takes nothing."""
    raise DatabaseError("no space left on device")


def test_a_database_that_fails_later_does_not_lose_the_result(
    world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "put", full)
    result = tune(matrix, 8, db=db)
    assert result.speedup > 1
    (note,) = (note for note in result.notes if "could not be kept" in note)
    assert "no space left" in note
    monkeypatch.undo()
    file = note.split("it is in ")[1].split(",")[0]
    assert f"akx plans import {file}" in note
    assert db.import_(file).added == 1
    assert [record.plan for record in db.list()] == [result.plan]


def test_a_disk_that_is_full_everywhere_does_not_lose_the_plan(
    world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the database nor the user's folder nor that for temporary files takes it: it is in the note."""
    monkeypatch.setattr(db, "put", full)
    tried: list[Path] = []
    monkeypatch.setattr(transfer, "write_bundle", lambda path, text: tried.append(path) or full())
    result = tune(matrix, 8, db=db)
    assert len({path.parent for path in tried}) == 2
    (note,) = (note for note in result.notes if "could not be kept" in note)
    assert Plan.from_json(json.loads(note.split("; it is ")[1])) == result.plan


def test_trials_that_cannot_be_kept_are_no_lost_plan(
    world: Any, matrix: Any, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "add_trials", full)
    result = tune(matrix, 8, db=db, trials=4)
    assert [note for note in result.notes if "kept" in note] == [
        "the plan is kept, its trials are not: no space left on device"
    ]
    assert [record.plan for record in db.list()] == [result.plan]


def test_a_server_that_is_gone_at_the_end_does_not_lose_the_plan(
    world: Any, matrix: Any, postgres_server: PostgresServer
) -> None:
    url = postgres_server.url(postgres_server.new_database())
    with PlanDatabase(url, layers=(), timeout=0.2) as db:
        try:
            result = tune(
                matrix, 8, db=db, trials=4, callback=lambda p: postgres_server.kill() if p.phase == "run-off" else None
            )
        finally:
            postgres_server.start()
        (note,) = (note for note in result.notes if "could not be kept" in note)
        assert db.list() == []
        assert db.import_(note.split("it is in ")[1].split(",")[0]).added == 1
        assert db.find(plan_key(matrix, 8, threads=2)).record.plan == result.plan  # type: ignore[union-attr]


def test_a_part_of_the_space_leaves_the_database_alone(world: Any, matrix: Any, db: PlanDatabase) -> None:
    result = tune(matrix, 8, db=db, space_filter=lambda plan: plan.variant == "csr")
    assert {t.plan.variant for t in result.trials if not is_baseline(t.plan)} == {"csr"}
    assert not db.exists()
    assert result.db is None


# ---------------------------------------------------------------------------------------------------- results


def test_json_has_the_promised_fields(world: Any, matrix: Any, db: PlanDatabase) -> None:
    for result in (tune(matrix, 8, db=db), tune(matrix, 8, db=db)):
        data = json.loads(json.dumps(result.to_json(history=True), allow_nan=False))
        assert data.keys() >= JSON_FIELDS
        assert data["matrix"].keys() >= {"rows", "nnz", "dtype", "fingerprint"}
        assert data["matrix"]["rows"] == matrix.n
        assert data["baseline"].keys() >= {"name", "seconds"}
        assert data["best"].keys() >= {"seconds", "schedule", "variant", "plan"}
        assert data["trials"].keys() == {"complete", "pruned", "failed"}
        assert data["speedup"] == pytest.approx(data["baseline"]["seconds"] / data["best"]["seconds"])
        assert Plan.from_json(data["best"]["plan"]) == result.plan
        assert data["db"] == str(db.path)
        gain = data["baseline"]["seconds"] - data["best"]["seconds"]
        calls = data["break_even_calls"]
        spent = data["tuning_seconds"] + data["prepare_seconds"]
        assert (calls - 1) * gain < max(spent, gain) <= max(calls * gain, gain)
    assert data["reused"] is True


def test_break_even_is_one_call_at_least(world: Any, matrix: Any) -> None:
    result = tune(matrix, 8, trials=10)
    free = dataclasses.replace(result, tuning_seconds=0.0, prepare_seconds=0.0)
    assert free.break_even_calls == 1
    dear = dataclasses.replace(result, tuning_seconds=10.0, prepare_seconds=1.0)
    assert dear.break_even_calls == math.ceil(11.0 / (result.baseline_seconds - result.seconds))


def test_each_schedule_has_its_best(world: Any, matrix: Any) -> None:
    result = tune(matrix, 8)
    best = result.schedules
    assert [t.plan.schedule for t in best] == ["front", "sweep"]
    for one in best:
        done = [t for t in result.trials if t.state == "complete" and t.plan.schedule == one.plan.schedule]
        assert one.seconds == min(t.seconds for t in done)


def test_preparation_is_timed_without_what_was_memoised(make_world: Any, matrix: Any) -> None:
    make_world(prepare_cost=lambda plan: 0.25)
    assert tune(matrix, 8, trials=8).prepare_seconds == pytest.approx(0.25)


def test_programs_of_losing_trials_are_freed(world: Any, matrix: Any) -> None:
    most = 0

    def look(progress: Progress) -> None:
        nonlocal most
        most = max(most, len(world.alive))

    result = tune(matrix, 8, callback=look)
    assert len(result.trials) > 20
    assert most <= Settings().finalists + 4
    assert len(world.alive) == 0


def test_the_callback_sees_every_trial_and_the_end(world: Any, matrix: Any) -> None:
    seen: list[Progress] = []
    result = tune(matrix, 8, trials=15, seconds=30.0, callback=seen.append)
    assert [p.trial for p in seen if p.trial is not None] == list(result.trials)
    assert seen[-1].phase == "done"
    assert seen[-1].fraction == 1.0
    assert seen[-1].speedup == pytest.approx(result.speedup)
    assert all(0 <= p.fraction <= 1 and p.trials <= 15 and p.speedup >= 1 for p in seen)
    elapsed = [p.elapsed for p in seen]
    assert elapsed == sorted(elapsed)


def test_a_callback_that_raises_ends_the_tuning(world: Any, matrix: Any) -> None:
    def broken(progress: Progress) -> None:
        raise RuntimeError("bar")

    with pytest.raises(RuntimeError, match="bar"):
        tune(matrix, 8, callback=broken)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"k": 0}, ArgumentError),
        ({"k": -1}, ArgumentError),
        ({"k": 2.0}, ArgumentTypeError),
        ({"k": True}, ArgumentTypeError),
        ({"start_vectors": 0}, ArgumentError),
        ({"basis": "legendre"}, ArgumentError),
        ({"backend": "abacus"}, ArgumentError),
        ({"trials": 0}, ArgumentError),
        ({"seconds": 0}, ArgumentError),
        ({"seed": -1}, ArgumentError),
        ({"seed": 1.5}, ArgumentTypeError),
        ({"db": True}, ArgumentTypeError),
        ({"db": 3}, ArgumentTypeError),
        ({"seconds": float("nan")}, ArgumentError),
    ],
)
def test_arguments_are_checked(world: Any, matrix: Any, change: dict[str, Any], error: type[AkxError]) -> None:
    with pytest.raises(error):
        tune(matrix, **{"k": 8, **change})
    assert world.prepared == []


def test_numpy_integers_are_numbers(world: Any, matrix: Any) -> None:
    result = tune(matrix, np.int64(8), start_vectors=np.int32(2), trials=2)
    assert json.loads(json.dumps(result.to_json()))["k"] == 8


def test_the_docs_name_the_default_budgets() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    default = Settings()
    of_gpus = Settings().on("cuda").seconds
    for option, row in (
        ("--time", f"| {default.seconds:g}, {of_gpus:g} with a GPU |"),
        ("--trials", f"| {default.trials} |"),
    ):
        for page in ("tuner.md", "cli.md"):
            (line,) = [line for line in (docs / page).read_text().splitlines() if f"| `{option}" in line]
            assert row in line
    assert f"gain of 1 % | {default.patience} |" in (docs / "tuner.md").read_text()


# ---------------------------------------------------------------------------------------------------- exhaustive


def test_exhaustive_measures_the_whole_feasible_space(make_world: Any, matrix: Any, optimum: Plan) -> None:
    world = make_world(infeasible=lambda plan: "no" if plan.threads == 1 and plan.schedule == "front" else None)
    tuned = tune(matrix, 8)
    result = exhaustive(matrix, 8, include=[tuned.plan])
    assert sum(t.state == "complete" for t in result.trials) == 8 + 4 * 3 * 7 * 2
    assert result.plan == optimum
    assert tuned.plan in [one.plan for one in result.finalists]
    seconds = {one.plan: one.seconds for one in result.finalists}
    assert seconds[tuned.plan] <= 1.05 * seconds[optimum]
    assert world.cost(result.plan) == min(world.cost(t.plan) for t in result.trials)


def test_exhaustive_can_be_limited(world: Any, matrix: Any) -> None:
    result = exhaustive(matrix, 8, seconds=1.0)
    assert result.stopped == "time budget"
    assert result.tuning_seconds < 1.5
    part = exhaustive(matrix, 8, space_filter=lambda plan: plan.schedule == "sweep")
    assert {t.plan.schedule for t in part.trials} == {"sweep"}


def test_by_default_the_host_has_half_a_minute_a_gpu_one_and_both_share_one(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world()
    asked: list[tuple[str, float]] = []
    whole = tuning._tune

    def part(matrix: Any, request: TuneRequest) -> Any:
        if request.backend == "auto":
            return whole(matrix, request)
        assert request.settings is not None
        asked.append((request.backend, request.settings.seconds))
        return whole(matrix, dataclasses.replace(request, backend="cpu"))

    assert [Settings().on(name).seconds for name in ("cpu", "cuda", "auto")] == [30.0, 60.0, 60.0]
    assert len({dataclasses.replace(Settings().on(name), seconds=1.0) for name in ("cpu", "cuda")}) == 1
    monkeypatch.setattr(registry, "backends", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(tuning, "is_usable", lambda backend: True)
    monkeypatch.setattr(tuning, "_tune", part)
    for seconds in (None, 9.0):
        tune_and_keep(matrix, 8, db=False, seconds=seconds)
    for chosen in (Settings(patience=40), Settings(seconds=30.0)):
        tune_and_keep(matrix, 8, db=False, settings=chosen)
    assert [backend for backend, _ in asked] == ["cpu", "cuda"] * 4
    assert [seconds for _, seconds in asked] == pytest.approx([20.0, 40.0, 3.0, 6.0, 20.0, 40.0, 10.0, 20.0])


def test_plans_that_would_run_as_another_are_passed_over(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has no room for what its plan says runs all the same, for values that the plan is not of."""
    make_world()
    for schedule in registry.schedules("cpu"):

        def prepare(matrix: Any, plan: Plan, made: Any = schedule.prepare) -> Any:
            program = made(matrix, plan)
            program.is_as_planned = plan.variant != "sell"
            return program

        monkeypatch.setattr(schedule, "prepare", prepare)
    result = tune(matrix, 8)
    assert result.plan.variant == "csr"
    other = [trial for trial in result.trials if trial.plan.variant == "sell"]
    assert other
    assert all(trial.state == "pruned" and "run as another plan" in trial.reason for trial in other)


def test_plans_of_the_baselines_own_schedule_are_tried_where_it_names_some(
    world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from akx.backends import registry

    asked = Plan("cpu", "sweep", "sell", k=8, threads=1)
    schedule = registry.get("cpu", "sweep")
    monkeypatch.setattr(schedule, "starts", lambda matrix, device, k: (asked,), raising=False)
    world.cost = lambda plan: 5e-4 if plan == asked else 1e-3
    found = tune(matrix, 8, threads=2, db=False, trials=40)
    assert [trial.origin for trial in found.trials if trial.plan == asked] == ["start"]
