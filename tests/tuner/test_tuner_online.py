"""Calls of a user as trials: what it costs is bounded, what is wrong reaches nobody, what wins is kept."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import akx
from akx import MatrixPowers
from akx.backends import registry
from akx.core.errors import ArgumentError, CapturingError
from akx.core.matrix import Matrix
from akx.core.parallel import is_alone
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import plan_key, tune
from akx.tuner.history.trial import COMPLETE
from akx.tuner.model import figures as machine
from akx.tuner.online import calls as online
from akx.tuner.online import candidates, exploration, first_runs
from akx.tuner.online import threads as beside
from akx.tuner.online.bandit import Budget, Duel

K = 8


@pytest.fixture(autouse=True)
def _beside_is_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are done where they begin, so that the fake clock is all that counts."""
    take_steps(monkeypatch, lambda step: step())
    monkeypatch.setattr(candidates, "figures_of", _without_prices)


def take_steps(monkeypatch: pytest.MonkeyPatch, how: Callable[[Callable[[], None]], None]) -> None:
    monkeypatch.setattr(exploration.Exploration.__init__, "__kwdefaults__", {"do_beside": how})


def _without_prices(device: Any, threads: int) -> machine.Figures:
    return replace(machine.derived_figures(device, threads), formats={})


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


def made(matrix: Matrix, db: PlanDatabase, **options: Any) -> MatrixPowers:
    return MatrixPowers(matrix, K, tune="online", db=db, threads=2, **options)


def told_of(P: MatrixPowers) -> online.Online:
    (found,) = P._prepared.online.values()
    return found


def call(P: MatrixPowers, times: int, world: Any) -> list[np.ndarray[Any, Any]]:
    """So many calls, each into a result full of NaN, which makes fake programs compute."""
    x, found = np.linspace(1.0, 2.0, P.shape[0]), []
    P.looks_for_overflow = False
    for _ in range(times):
        out = np.full((P.shape[0], K + 1), np.nan, order="F")
        found.append(P(x, out=out))
    return found


def spend(P: MatrixPowers, times: int) -> None:
    """So many calls that need not compute."""
    x, out = np.linspace(1.0, 2.0, P.shape[0]), np.zeros((P.shape[0], K + 1), order="F")
    P.looks_for_overflow = False
    for _ in range(times):
        P(x, out=out)


def seconds_of_calls(world: Any, P: MatrixPowers, times: int) -> float:
    begin = world.time
    spend(P, times)
    return float(world.time - begin)


# ------------------------------------------------------------------------------------------------ the rules


def allowed(calls: float) -> float:
    """What the documentation says that exploring may cost, of so many seconds of calls."""
    return min(0.5 * calls, 1.0) + 0.01 * calls


def test_nothing_is_spent_before_it_was_earned() -> None:
    budget = Budget()
    assert not budget.covers(1e-9)
    for total in (1e-3, 1.0, 2.5, 60.0, 3600.0):
        budget.total = total
        assert budget.covers(0.999 * allowed(total))
        assert not budget.covers(1.001 * allowed(total))
    assert allowed(60.0) < 0.03 * 60.0, "a minute of calls has to come out within 5 %"
    budget.spent = 100.0
    assert budget.covers(0.0), "what costs nothing is done whatever was spent"
    assert not budget.covers(1e-9)


@pytest.mark.parametrize("needed", [0.0, 0.01, 1.0, 1.03, 2.0])
def test_it_is_known_when_a_step_is_paid_for(needed: float) -> None:
    budget = Budget()
    budget.spent = needed / 2
    budget.total = budget.due(needed / 2)
    assert allowed(budget.total) == pytest.approx(needed)
    assert budget.covers(needed / 2 * (1 - 1e-9))


@pytest.mark.parametrize(
    ("incumbent", "candidate", "calls", "won"),
    [
        ([1.0, 1.1, 1.0, 1.2, 1.0, 1.1], [2.0, 2.1, 2.0, 1.9, 2.0, 2.2], 6, False),
        ([1.0, 1.1, 1.0, 1.2, 1.0, 1.1], [0.5, 0.6, 0.5, 0.6, 0.5, 0.6], 6, True),
        ([1.0, 1.5, 0.9, 1.2] * 6, [0.95, 1.4, 0.9, 1.1] * 6, 24, True),
        ([1.0, 1.5, 0.9, 1.2] * 6, [1.0, 1.5, 0.9, 1.2] * 6, 6, False),
        ([1.0, 1.5, 0.9, 1.2] * 6, [0.95, 1.4, 0.9, 1.1, 0.95, 1.4] + [1.2] * 18, 12, False),
    ],
)
def test_a_duel_ends_when_it_is_known_who_wins_or_that_nobody_will(
    incumbent: list[float], candidate: list[float], calls: int, won: bool
) -> None:
    duel, times, turns = Duel(), {False: iter(incumbent), True: iter(candidate)}, []
    while duel.verdict() is None:
        turn = duel.is_candidates_turn
        turns.append(turn)
        (duel.candidate if turn else duel.incumbent).append(next(times[turn]))
    assert turns[:4] == [False, True, True, False]
    assert len(duel.candidate) == len(duel.incumbent) == calls
    assert duel.verdict() is won


# ------------------------------------------------------------------------------------------------ regret


@pytest.mark.parametrize("slower", [1.05, 1.9, 50.0])
def test_regret_is_bounded_where_every_candidate_is_slower(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, slower: float
) -> None:
    first: list[Plan] = []
    make_world(cost=lambda plan: 4e-3 * (1.0 if not first or plan == first[0] else slower))
    P = made(matrix, db)
    first.append(P.plan)
    plain, found = 4e-3, None
    largest = slower * plain + 3e-3  # of one step: a first run, or preparing and what a thread takes
    for calls in range(1, 1000):
        spend(P, 1)
        found = told_of(P) if P._prepared.online else found
        if found is not None and found.budget.total:
            assert found.budget.spent <= allowed(found.budget.total) + largest
        if calls == 1:
            assert found is not None
            assert found.budget.spent == 0.0, "a first call explores nothing"
    assert found is not None
    assert sum(found.tried.values()) >= (1 if slower > 10 else 3)
    assert found.tried["adopted"] == 0
    assert P.plan == first[0]


@pytest.mark.parametrize("slower", [3.0, 20.0])
def test_regret_is_bounded_where_candidates_are_fast_once_and_slow_then(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, slower: float
) -> None:
    runs: dict[Plan, int] = {}
    first: list[Plan] = []

    def cost(plan: Plan) -> float:
        runs[plan] = runs.get(plan, 0) + 1
        return 4e-3 * (slower if first and plan != first[0] and runs[plan] > 1 else 1.0)

    make_world(cost=cost)
    P = made(matrix, db)
    first.append(P.plan)
    spend(P, 1)
    found = told_of(P)
    for _ in range(1000):
        spend(P, 1)
        assert found.budget.spent <= allowed(found.budget.total) + slower * 4e-3 + 3e-3
    assert max(runs[plan] for plan in runs if plan != first[0]) > 1
    assert found.tried["adopted"] == 0


def test_it_ends_at_a_better_plan_and_never_costs_more_than_its_share(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, optimum: Plan
) -> None:
    world = make_world(noise=iter_noise())
    P = made(matrix, db)
    before = world.cost(P.plan)
    took = seconds_of_calls(world, P, 1_500)
    found = told_of(P)
    assert found.tried["adopted"] >= 1
    assert world.cost(P.plan) <= 1.2 * world.cost(optimum) < before
    assert found.budget.spent <= allowed(found.budget.total) + 2 * before
    assert took <= 1.02 * 1.03 * 1_500 * before


@pytest.mark.parametrize(("slower", "most"), [(1.0, 1.03), (1.2, 1.05), (2.0, 1.05), (4.0, 1.15)])
def test_a_minute_of_calls_comes_out_by_what_it_was_tuned_for(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, slower: float, most: float
) -> None:
    """Calls of 20 ms, plans that take 0.1 s to prepare: the goal, where the plan of the beginning is so much slower."""
    best = 20e-3

    def cost(plan: Plan) -> float:
        return best * (1.0 if plan.schedule == "front" else slower)

    world = make_world(cost=cost, prepare_cost=lambda plan: 0.1, noise=iter_noise())
    P = made(matrix, db)
    assert P.plan.schedule == "sweep"
    took = seconds_of_calls(world, P, 3000)
    assert took <= most * 1.02 * 3000 * best  # the noise is 2 % in the mean


def iter_noise() -> Callable[[], float]:
    random = np.random.default_rng(1)
    return lambda: float(random.exponential(0.02))


def test_a_pause_in_a_call_that_is_timed_is_not_one_in_those_that_are_not(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase
) -> None:
    pause = 20e-3
    seconds = [20e-6]
    world = make_world(cost=lambda plan: seconds[0])
    P = made(matrix, db)
    spend(P, 1)
    found, begin = told_of(P), world.time
    found._due = float("inf")
    for _ in range(2000):
        seconds[0] = pause if found.every > 1 and found.untimed + 1 >= found.every else 20e-6
        spend(P, 1)
    assert found.budget.total <= 1.001 * (world.time - begin) + 20e-6


# ------------------------------------------------------------------------------------------------ right before fast


@pytest.mark.parametrize("spoilt", ["wrong", "unwritten"])
def test_a_wrong_candidate_never_reaches_the_user(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, spoilt: str
) -> None:
    first: list[Plan] = []

    def is_other(plan: Plan, *_: int) -> bool:
        return bool(first) and plan != first[0]

    world = make_world(cost=lambda plan: 1e-3 if is_other(plan) else 4e-3, **{spoilt: is_other})
    P = made(matrix, db)
    first.append(P.plan)
    results = call(P, 2000, world)
    found = told_of(P)
    assert found.tried["wrong"] >= 3
    assert found.tried["adopted"] == 0
    assert all(np.array_equal(one, results[0]) for one in results)
    assert P.plan == first[0]


def test_a_candidate_that_fails_costs_no_call(make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase) -> None:
    runs: dict[Plan, int] = {}
    first: list[Plan] = []

    def fails(plan: Plan) -> Exception | None:
        runs[plan] = runs.get(plan, 0) + 1
        return RuntimeError("lost") if first and plan != first[0] and runs[plan] > 4 else None

    world = make_world(cost=lambda plan: 4e-3, fails_to_run=fails)
    P = made(matrix, db)
    first.append(P.plan)
    results = call(P, 2000, world)
    assert told_of(P).tried["failed"] >= 3
    assert all(np.allclose(one, results[0], rtol=1e-12) for one in results)


def test_what_has_to_wait_for_a_capture_comes_again(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase
) -> None:
    """Nothing is said against its plan, and the search goes on."""
    put_off: list[Plan] = []

    def fails(plan: Plan) -> Exception | None:
        if is_alone() and len(put_off) < 3 and plan not in put_off:
            put_off.append(plan)
            return CapturingError("a stream is being captured")
        return None

    make_world(cost=lambda plan: 4e-3, fails_to_prepare=fails)
    P = made(matrix, db)
    spend(P, 1500)
    ledger = told_of(P)._candidates.ledger
    assert ledger is not None
    assert len(put_off) == 3
    assert {trial.state for trial in ledger.trials if trial.plan in put_off} == {COMPLETE}
    assert {*put_off} <= {trial.plan for trial in ledger.trials}


# ------------------------------------------------------------------------------------------------ what is kept


def test_the_winner_is_in_the_database_and_others_use_it(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    P = made(matrix, db)
    before = P.plan
    while not told_of_or_none(P) or not told_of(P).tried["adopted"]:
        spend(P, 50)
    record = db.find(plan_key(matrix, K, threads=2)).record
    assert record is not None
    assert record.provenance["online"] is True
    assert record.provisional == "too little time", "the search goes on"
    assert record.plan == P.plan != before
    assert record.speedup > 1.0
    assert MatrixPowers(matrix, K, db=db, threads=2).plan == P.plan
    assert "tuned online" in P.explain(measure=False)
    assert "adopted" in P.explain(measure=False)


def told_of_or_none(P: MatrixPowers) -> online.Online | None:
    return next(iter(P._prepared.online.values()), None)


def test_what_losing_candidates_found_out_goes_with_the_search(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the pattern the operator knows what its plans need, also where another candidate was the first to find it."""
    make_world(noise=iter_noise())
    schedule, found = type(registry.get("cpu", "sweep")), list[Any]()
    prepare = schedule.prepare

    def knowing(schedule: Any, of: Matrix, plan: Plan) -> Any:
        for key in ("shared", plan):
            if key not in of.pattern_cache:
                found.append(key)
                of.pattern_cache[key] = key
        return prepare(schedule, of, plan)

    monkeypatch.setattr(schedule, "prepare", knowing)
    P = made(matrix, db)
    first = P.plan
    known = P._prepared.values.matrix.pattern_cache
    before = known.keys() | {"shared", first}
    while not told_of_or_none(P) or not (told_of(P).tried["adopted"] and sum(told_of(P).tried.values()) > 4):
        spend(P, 50)
        known.pop("shared", None)  # what only candidates know
    told_of(P).end()
    assert found.count("shared") <= 2
    kept = {key for key in known.keys() - before if isinstance(key, Plan)}
    assert P.plan in kept
    assert len(kept) == told_of(P).tried["adopted"] < len(found) - 2
    assert not {key for key in told_of(P)._candidates._known if isinstance(key, Plan)} - kept - {first}


def test_a_search_that_has_ended_is_not_begun_again(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    world.cost = lambda plan: 4e-3
    P = made(matrix, db)
    spend(P, 10_000)
    assert told_of(P).is_over
    record = db.find(plan_key(matrix, K, threads=2)).record
    assert record is not None
    assert not record.provisional
    assert "ended" in P.explain(measure=False)
    ready = next(iter(P._prepared.ready.values()))[0]
    assert not isinstance(ready, online.Online), "calls take no detour any more"
    again = made(matrix, db)
    spend(again, 2000)
    assert told_of(again).is_over
    assert not any(told_of(again).tried.values())
    assert tune(matrix, K, db=db, threads=2).reused


def test_another_process_goes_on_from_the_trials(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    world.cost = lambda plan: 4e-3
    P = made(matrix, db)
    while not told_of_or_none(P) or sum(told_of(P).tried.values()) < 4:
        spend(P, 20)
    told_of(P).end()
    known = {trial.plan for trial in told_of(P)._candidates.ledger.trials}  # type: ignore[union-attr]
    again = made(matrix, db)
    while not told_of_or_none(again) or not sum(told_of(again).tried.values()):
        spend(again, 20)
    ledger = told_of(again)._candidates.ledger
    assert ledger is not None
    mine = {trial.plan for trial in ledger.trials[1:] if trial.is_own}
    assert len(known) > 3
    assert mine, told_of(again)._candidates.ended
    assert not mine & known


# ------------------------------------------------------------------------------------------------ one of many


def test_new_values_come_to_candidates_too(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    P = made(matrix, db)
    x = np.linspace(1.0, 2.0, matrix.n)
    for turn in range(1, 150):
        P.update_values(matrix.with_values(matrix.data * turn))
        for _ in range(3):
            found = P(x, out=np.full((matrix.n, K + 1), np.nan, order="F"))
            assert np.allclose(found[:, 1], turn * (matrix.to_scipy() @ x), rtol=1e-12)
    assert told_of(P).tried["adopted"] >= 1
    assert not told_of(P).tried["wrong"]


def test_each_number_of_vectors_and_type_has_a_search_of_its_own(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    P = made(matrix, db)
    for x in (np.ones(matrix.n), np.ones((matrix.n, 3)), np.ones(matrix.n, dtype=complex)):
        for _ in range(20):
            P(x)
    assert {(str(dtype), vectors) for dtype, vectors, _ in P._prepared.online} == {
        ("float64", 1),
        ("float64", 3),
        ("complex128", 1),
    }


def test_a_copy_takes_the_plan_along_and_searches_for_itself(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    P = made(matrix, db)
    while not told_of_or_none(P) or not told_of(P).tried["adopted"]:
        spend(P, 50)
    other = pickle.loads(pickle.dumps(P))
    assert other.plan == P.plan
    call(other, 10, world)
    assert told_of(other) is not told_of(P)
    assert told_of(other).plan == P.plan


def test_fixed_plans_are_held(world: Any, matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_PREPARE", "fixed")
    P = made(matrix, db)
    call(P, 100, world)
    assert not P._prepared.online
    assert "AKX_PREPARE=fixed holds the plan" in P.explain(measure=False)


def test_what_cannot_be_tuned_so_is_refused(world: Any, matrix: Matrix) -> None:
    with pytest.raises(ArgumentError, match="unknown way to tune"):
        MatrixPowers(matrix, K, tune="always")
    with pytest.raises(ArgumentError, match="a plan that is given is not tuned"):
        MatrixPowers(matrix, K, tune="online", plan=Plan("cpu", "sweep", "csr", k=K))
    with pytest.raises(ArgumentError, match="within a memory budget cannot be tuned online"):
        akx.operator.online.check_tune("online", budget=10**9)


def test_nothing_is_tried_where_memory_is_little(
    world: Any, matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_runs, "available_bytes", lambda: 2 * matrix.nbytes)
    P = made(matrix, db)
    spend(P, 1000)
    assert told_of(P).is_over
    assert "too little memory" in P.explain(measure=False)
    assert db.find(plan_key(matrix, K, threads=2)).record is None


def test_the_likely_is_tried_before_much_was_earned(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    """What a minute of calls pays for is mostly spent in its first seconds: that is what it comes out by."""
    P = made(matrix, db)
    before = world.cost(P.plan)
    spend(P, 500)  # 2 s
    assert told_of(P).tried["adopted"] >= 1
    assert world.cost(P.plan) < 0.7 * before


def test_an_operator_that_is_gone_leaves_nothing(
    world: Any, matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    P = made(matrix, db)
    spend(P, 500)
    gone = weakref.ref(told_of(P)), weakref.ref(P._prepared)
    del P
    gc.collect()
    assert gone[0]() is None
    assert gone[1]() is None


def test_a_forked_child_tries_nothing(world: Any, matrix: Matrix, db: PlanDatabase) -> None:
    P = made(matrix, db)
    call(P, 100, world)
    child = os.fork()
    if child == 0:
        os._exit(0 if told_of(P).is_over and np.isfinite(call(P, 3, world)[-1]).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not told_of(P).is_over


def test_steps_are_done_in_a_thread_that_ends(
    make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(monkeypatch, beside.in_thread)
    make_world(cost=lambda plan: 4e-3)
    P = made(matrix, db)
    found = None
    for _ in range(300):
        spend(P, 10)
        found = told_of(P)
        for thread in threading.enumerate():
            if thread.name == "akx-online":
                thread.join()
        if sum(found.tried.values()) > 1:
            break
    assert found is not None
    assert sum(found.tried.values()) > 1
    beside.stop()
    assert found.is_over
    assert not any(thread.name == "akx-online" for thread in threading.enumerate())


def test_threads_change_places_sooner_while_there_are_steps() -> None:
    """Until the last has ended; a forked child has none."""
    before, may_end, seen = sys.getswitchinterval(), [threading.Event(), threading.Event()], list[float]()
    for one in may_end:
        beside.in_thread(lambda one=one: seen.append(sys.getswitchinterval()) or one.wait(20))
    steps = [thread for thread in threading.enumerate() if thread.name == beside.NAME]
    while len(seen) < 2:
        time.sleep(1e-3)
    child = os.fork()
    if child == 0:
        os._exit(int(sys.getswitchinterval() != before))
    assert os.waitpid(child, 0)[1] == 0
    may_end[0].set()
    steps[0].join()
    assert [*seen, sys.getswitchinterval()] == pytest.approx([1e-4] * 3)
    may_end[1].set()
    steps[1].join()
    assert sys.getswitchinterval() == before


def test_a_step_has_one_thread(make_world: Callable[..., Any], matrix: Matrix, db: PlanDatabase) -> None:
    """Its processor time is what it costs, and calls have the team."""
    seen: set[bool] = set()
    make_world(cost=lambda plan: 4e-3, fails_to_prepare=lambda plan: seen.add(is_alone()))
    P = made(matrix, db)
    spend(P, 100)
    assert sum(told_of(P).tried.values())
    assert seen == {False, True}, "the first plan was prepared in a call"


ENDS = """
import numpy as np, scipy.sparse as sp, akx
A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300), format="csr")
P = akx.MatrixPowers(A, 2, tune="online", threads=1)
found = None
while found is None or found._steps < 1:
    P(np.ones(300))
    found = next(iter(P._prepared.online.values()))
    found._next = 0.0
    found.budget.total = 1e3
print("under way", flush=True)
"""


def test_nothing_outlives_the_interpreter(tmp_path: Path) -> None:
    """A real process, which ends amidst of it: takes what Python and a first plan take."""
    environment = {**os.environ, "AKX_DB": str(tmp_path / "plans.db")}
    done = subprocess.run(
        [sys.executable, "-c", ENDS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "under way\n"
    assert done.stderr == ""
