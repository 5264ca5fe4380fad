"""A plan of a like device: believed after a measurement, refused without an error whatever it does."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from forked import succeeds_in_a_child

from akx.backends.cuda.backend import CudaBackend
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import host_device
from akx.core import options
from akx.core.errors import InfeasibleError, VerificationError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanKey, PlanRecord, make_key
from akx.tuner import plan_key
from akx.tuner.fallback import answer as ladder
from akx.tuner.fallback.answer import Answer, believed, fitted, like_plans, limited, renewed
from akx.tuner.trial import bench as worker
from akx.tuner.trial.problem import Comparison

PREDICTED = Plan("cpu", "sweep", "csr", k=8, threads=2)


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    monkeypatch.delenv(ladder.SWITCH, raising=False)


def other_class(key: PlanKey) -> str:
    """The class of this processor for seven threads."""
    return f"{key.device_class.removesuffix('/2 threads')}/7 threads"


def like_record(call: PlanKey, there: Plan, **changes: Any) -> PlanRecord:
    """What a like device has kept for the key."""
    fields: dict[str, Any] = {
        "key": replace(call, device_class=other_class(call)), "plan": there, "seconds": 1e-3,
        "baseline_name": "sweep/csr", "baseline_seconds": 2e-3, "prepare_seconds": 0.1,
    }  # fmt: skip
    return PlanRecord(**(fields | changes))


class Call:
    """A call in a fake world: its key, and :func:`believed` for it."""

    def __init__(self, matrix: Matrix, k: int = 8) -> None:
        self.matrix = matrix
        self.key = plan_key(matrix, k, threads=2)

    def renew(self, plan: Plan, **changes: Any) -> Answer:
        """What becomes of a plan of this very key that was made with another compiler."""
        there = {"provenance": {"versions": {"numba": "0.1"}}, "prepare_seconds": 0.1} | changes
        record = PlanRecord(self.key, plan, 1e-3, "sweep/csr", 2e-3, **there)
        return renewed(record, plan, lambda: PREDICTED, self.matrix, self.key, device=host_device(), threads=2)

    def ask(self, *records: PlanRecord, **changes: Any) -> Answer:
        fields: dict[str, Any] = {"device": host_device(), "threads": 2}
        return believed(records, PREDICTED, self.matrix, self.key, **(fields | changes))


@pytest.fixture
def call(matrix: Any) -> Call:
    return Call(matrix)


# ------------------------------------------------------------------------------------------------ who is considered


def test_only_the_device_class_may_differ(call: Call, optimum: Plan) -> None:
    record = like_record(call.key, optimum)
    (like,) = like_plans([record], call.key, backend="cpu", threads=2)
    assert (like.plan, like.record) == (optimum, record)
    assert 0.0 < like.distance < 1.0
    others = {"revisions": "other", "ranks": 2, "basis": "newton", "dtype": "float32"}
    for field, value in others.items():
        other = replace(record, key=replace(record.key, **{field: value}))
        assert like_plans([other], call.key, backend="cpu", threads=2) == []
    assert like_plans([record], call.key, backend="cuda", threads=2) == []
    assert like_plans([replace(record, key=call.key)], call.key, backend="cpu", threads=2) == []
    unlike = replace(record, key=replace(record.key, device_class="cpu/Some Processor/2 cores/L2 1 MiB/L3 8 MiB"))
    assert like_plans([unlike], call.key, backend="cpu", threads=2) == []


def test_plans_for_another_basis_are_considered_too(call: Call, optimum: Plan) -> None:
    here = like_record(call.key, optimum, key=replace(call.key, basis="newton"))
    there = like_record(call.key, optimum.replace(block_bytes=2**16))
    both = like_record(call.key, optimum.replace(block_bytes=2**15))
    both = replace(both, key=replace(both.key, basis="chebyshev"))
    other = like_record(call.key, optimum, key=replace(call.key, basis="newton", k=4), plan=optimum.replace(k=4))
    unlike = replace(here, key=replace(here.key, device_class="cpu/Some Processor/2 cores/L2 1 MiB/L3 8 MiB"))
    found = like_plans([both, here, there, other, unlike], call.key, backend="cpu", threads=2, others=True)
    assert sorted(found, key=lambda like: like.farness) == found
    assert {like.record: like.where for like in found} == {
        here: "for the newton basis",
        there: f"of a like device ({other_class(call.key)})",
        both: f"for the chebyshev basis of a like device ({other_class(call.key)})",
        other: "for the newton basis for k = 4",
    }
    assert [like.record for like in found[-2:]] == [both, other]
    (same,) = like_plans([here], call.key, backend="cpu", threads=2, others=True)
    assert (same.plan, same.distance) == (optimum, 0.0)


def test_the_nearest_device_first_and_each_plan_once(call: Call, optimum: Plan) -> None:
    key = replace(call.key, device_class="cpu/Xeon Gold 6430/8 cores/L2 2 MiB/L3 60 MiB")
    other = optimum.replace(block_bytes=2**16)

    def record(name: str, cores: int, plan: Plan, seconds: float) -> PlanRecord:
        there = f"cpu/Xeon {name}/{cores} cores/L2 2 MiB/L3 60 MiB"
        return like_record(key, plan, key=replace(key, device_class=there), seconds=seconds)

    records = [
        record("Gold 6448Y", 8, optimum, 1e-4),
        record("Gold 6430", 16, other, 1e-3),
        record("Gold 6430", 16, optimum, 0.5e-3),
        record("Gold 6430", 64, optimum.replace(block_bytes=2**15), 1e-5),
    ]
    found = like_plans(records, key, backend="cpu", threads=2)
    assert [like.record for like in found] == [records[2], records[1], records[3]]


def test_threads_are_those_there_are(optimum: Plan) -> None:
    eight = "cpu/Xeon/8 cores/L2 2 MiB/L3 60 MiB"
    plan = optimum.replace(threads=8, options={"split": "contiguous", "lag": 1, "sigma": 4})
    assert fitted(plan, eight, 2).threads == 2
    assert fitted(plan, eight, 32).threads == 32  # all there were, all there are
    assert fitted(plan, f"{eight}/8 threads", 1) == plan.replace(threads=1, options={"sigma": 4})
    assert fitted(plan.replace(threads=4), eight, 32).threads == 4
    assert fitted(plan.replace(threads=1), "cpu/Xeon/1 cores/L2 2 MiB/L3 60 MiB", 32).threads == 32
    assert limited(plan, 8) is plan


# ------------------------------------------------------------------------------------------------ what is believed


def test_a_faster_plan_is_believed(world: Any, call: Call, optimum: Plan) -> None:
    answer = call.ask(like_record(call.key, optimum))
    gain = world.cost(PREDICTED) / world.cost(optimum)
    assert (answer.plan, answer.is_like) == (optimum, True)
    assert (
        answer.why == f"of a like device ({other_class(call.key)}), measured here: {gain:.2f}x over the predicted plan"
    )
    assert answer.program is not None
    assert answer.program.plan == optimum  # type: ignore[attr-defined]
    gc.collect()
    assert [program.plan for program in world.alive] == [optimum]  # the loser's program is dropped
    assert world.calls < 40
    del answer
    gc.collect()
    assert not world.alive  # what is remembered holds no program


def test_an_aged_plan_is_raced_once_in_a_process(world: Any, call: Call, optimum: Plan) -> None:
    answer = call.renew(optimum)
    gain = world.cost(PREDICTED) / world.cost(optimum)
    assert (answer.plan, answer.is_like) == (optimum, True)
    assert answer.why == f"measured here: {gain:.2f}x over the predicted plan"
    assert answer.program is not None
    calls = world.calls
    assert 0 < calls < 40
    assert call.renew(optimum).plan == optimum
    assert world.calls == calls


def test_an_aged_plan_gives_way_where_the_prediction_is_faster_beyond_doubt(
    make_world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    make_world(cost=lambda plan: 4e-3, noise=lambda: float(random.uniform(0, 0.2)))
    assert call.renew(optimum).plan == optimum, "it was tuned for this call"
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    make_world(cost=lambda plan: 4e-3 if plan == PREDICTED else 8e-3)
    answer = call.renew(optimum)
    assert (answer.plan, answer.is_like) == (PREDICTED, False)
    assert answer.why.startswith("the plan of the database, aged (numba 0.1, now ")
    assert answer.why.endswith(") was not faster here: 0.50x")


@pytest.mark.parametrize(
    "changes",
    [
        {"wrong": lambda plan, call: plan.schedule == "front"},
        {"infeasible": lambda plan: "too small" if plan.schedule == "front" else None},
        {"fails_to_prepare": lambda plan: OSError("none") if plan.schedule == "front" else None},
    ],
)
def test_an_aged_plan_that_does_not_work_gives_way(
    make_world: Any, call: Call, optimum: Plan, changes: dict[str, Any]
) -> None:
    make_world(**changes)
    answer = call.renew(optimum)
    assert (answer.plan, answer.is_like) == (PREDICTED, False)
    assert "is not used: " in answer.why


def test_an_aged_plan_that_cannot_be_raced_is_used(
    world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs it is compiled from the sources of today, so that its age can cost nothing but time."""
    for answer, why in (
        (call.renew(optimum, prepare_seconds=9.0), "preparing it took 9 s there"),
        (call.renew(PREDICTED), "it is the predicted one"),
    ):
        assert answer.is_like
        assert answer.why == f"not measured again: {why}"
    monkeypatch.setenv(ladder.SWITCH, "off")
    assert call.renew(optimum).why == "not measured again: that is off"
    assert call.renew(optimum).plan == optimum
    assert world.calls == 0


def test_a_faster_plan_for_another_basis_is_believed(world: Any, call: Call, optimum: Plan) -> None:
    there = like_record(call.key, optimum.replace(block_bytes=2**16))
    answer = call.ask(there, like_record(call.key, optimum, key=replace(call.key, basis="newton")))
    assert (answer.plan, answer.is_like) == (optimum, True)
    assert answer.program is not None
    assert answer.why.startswith("for the newton basis, tuned on 20")
    assert answer.why.endswith(": 2.00x over sweep/csr")
    assert world.calls == 0, "what differs is hardly anything"


@pytest.mark.parametrize(
    ("told", "gain", "is_believed"),
    [
        ({"stopped": "no improvement"}, 1.0, True),
        ({"stopped": "time budget", "untuned": {"seconds": 1.0}}, 1.0, True),
        ({"stopped": "time budget"}, 1.0, False),
        ({"stopped": "time budget"}, 2.0, True),
        ({"stopped": "too few calls"}, 2.0, False),
        ({"stopped": "interrupted", "interrupted": True}, 2.0, False),
        ({}, 1.0, False),
    ],
)
def test_a_plan_for_another_basis_whose_search_was_broken_off_is_measured(
    world: Any, call: Call, optimum: Plan, told: dict[str, Any], gain: float, is_believed: bool
) -> None:
    there = like_record(
        call.key, optimum, key=replace(call.key, basis="newton"), baseline_seconds=gain * 1e-3, provenance=told
    )
    answer = call.ask(there)
    assert (answer.plan, answer.is_like) == (optimum, True), "it is the better one"
    assert (world.calls == 0) is is_believed
    assert ("measured here" in answer.why) is not is_believed


def test_a_plan_for_another_basis_that_cannot_be_prepared_is_passed_over(
    make_world: Any, call: Call, optimum: Plan
) -> None:
    make_world(fails_to_prepare=lambda plan: MemoryError("none left") if plan == optimum else None)
    answer = call.ask(like_record(call.key, optimum, key=replace(call.key, basis="newton")))
    assert (answer.plan, answer.is_like) == (PREDICTED, False)


def test_a_plan_for_another_basis_that_is_not_feasible_is_passed_over(
    make_world: Any, call: Call, optimum: Plan
) -> None:
    make_world(infeasible=lambda plan: "too large" if plan == optimum else None)
    answer = call.ask(like_record(call.key, optimum, key=replace(call.key, basis="newton")))
    assert (answer.plan, answer.is_like) == (PREDICTED, False)


@pytest.mark.parametrize(("tuned", "per_pass", "moved"), [(4, 4, 8), (4, 2, 2), (16, 16, 8), (16, 4, 4), (16, 12, 8)])
def test_a_plan_for_another_k_is_measured(world: Any, call: Call, tuned: int, per_pass: int, moved: int) -> None:
    there = Plan("cpu", "front", "csr", k=tuned, k_per_pass=per_pass, block_bytes=2**17, threads=2)
    record = like_record(call.key, there, key=replace(call.key, k=tuned))
    (like,) = like_plans([record], call.key, backend="cpu", threads=2, others=True)
    assert like.plan == there.replace(k=8, k_per_pass=moved)
    assert like.where == f"for k = {tuned}"
    answer = call.ask(record)
    assert answer.is_like is (world.cost(like.plan) < world.cost(PREDICTED))
    assert "for k = " in answer.why
    assert world.calls > 4


def test_k_may_differ_by_a_factor_of_two_and_sweeps_have_one_power_in_a_pass(call: Call) -> None:
    sweep = Plan("cpu", "sweep", "csr", k=1, threads=2)
    records = [like_record(call.key, sweep.replace(k=k), key=replace(call.key, k=k)) for k in (1, 3, 4, 16, 17)]
    found = like_plans(records, call.key, backend="cpu", threads=2, others=True)
    assert [like.plan for like in found] == [sweep.replace(k=8)]
    assert found[0].record.key.k in (4, 16)


@pytest.mark.parametrize(
    ("where", "gain", "is_tried"), [("device", 1.0, True), ("device", 1.05, False), ("k", 1.05, True)]
)
def test_what_a_plan_gained_where_it_was_tuned(
    world: Any, call: Call, optimum: Plan, where: str, gain: float, is_tried: bool
) -> None:
    """The fastest plain product need not be the predicted plan."""
    changes: dict[str, Any] = {} if where == "device" else {"key": replace(call.key, k=4)}
    plan = optimum if where == "device" else optimum.replace(k=4, k_per_pass=min(4, optimum.k_per_pass))
    answer = call.ask(like_record(call.key, plan, baseline_seconds=gain * 1e-3, **changes))
    assert ("measured here" in answer.why or "not faster here" in answer.why) is is_tried


def test_a_slower_plan_is_not(make_world: Any, call: Call, optimum: Plan) -> None:
    world = make_world(cost=lambda plan: 4e-3 if plan == PREDICTED else 5e-3)
    answer = call.ask(like_record(call.key, optimum))
    assert (answer.plan, answer.is_like) == (PREDICTED, False)
    assert answer.why == f"the plan of a like device ({other_class(call.key)}) was not faster here: 0.80x"
    assert answer.program is not None
    assert answer.program.plan == PREDICTED  # type: ignore[attr-defined]
    gc.collect()
    assert len(world.alive) == 1


def test_a_plan_that_is_sometimes_faster_is_not_believed(make_world: Any, call: Call, optimum: Plan) -> None:
    random = np.random.default_rng(0)
    make_world(cost=lambda plan: 4e-3, noise=lambda: float(random.uniform(0, 0.2)))
    assert not call.ask(like_record(call.key, optimum)).is_like


def test_a_plan_that_is_far_slower_is_not_timed_to_the_end(make_world: Any, call: Call, optimum: Plan) -> None:
    world = make_world(cost=lambda plan: 4e-3 if plan == PREDICTED else 1.0)
    begin = world.time
    assert not call.ask(like_record(call.key, optimum)).is_like
    assert world.time - begin < 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wrong": lambda plan, call: plan.schedule == "front"}, "wrong result"),
        ({"unwritten": lambda plan: plan.schedule == "front"}, "wrong result"),
        ({"unwritten": lambda plan: plan.schedule == "sweep"}, "not finite"),
        ({"fails_to_prepare": lambda plan: MemoryError() if plan.schedule == "front" else None}, "MemoryError"),
        ({"fails_to_prepare": lambda plan: InfeasibleError("no") if plan.schedule == "front" else None}, "used: no"),
        ({"fails_to_run": lambda plan: OSError("lost") if plan.schedule == "front" else None}, "lost"),
        ({"fails_to_prepare": lambda plan: OSError("none") if plan.schedule == "sweep" else None}, "none"),
        ({"infeasible": lambda plan: "of another shape" if plan.schedule == "front" else None}, "of another shape"),
    ],
)
def test_whatever_it_does_is_no_error(
    make_world: Any, call: Call, optimum: Plan, changes: dict[str, Callable[..., Any]], reason: str
) -> None:
    world = make_world(**changes)
    record = like_record(call.key, optimum)
    answer = call.ask(record)
    assert (answer.plan, answer.is_like, answer.program) == (PREDICTED, False, None)
    assert answer.why.startswith(f"the plan of a like device ({other_class(call.key)}) is not used: ")
    assert reason in answer.why
    prepared = len(world.prepared)
    assert call.ask(record) == answer
    assert len(world.prepared) == prepared  # nor is it tried again


def test_a_key_is_measured_once_in_a_process(make_world: Any, call: Call, optimum: Plan) -> None:
    world = make_world()
    record = like_record(call.key, optimum)
    first = call.ask(record)
    calls, prepared = world.calls, len(world.prepared)
    again = call.ask(record)
    assert (again.plan, again.why) == (first.plan, first.why)
    assert again.program is not None
    assert again.program is not first.program
    assert (world.calls, len(world.prepared)) == (calls, prepared + 1)
    kept = call.ask(record, prepared=lambda plan: first.program if plan == optimum else None)
    assert kept.program is first.program
    assert len(world.prepared) == prepared + 1
    world.fails_to_prepare = lambda plan: MemoryError("no room") if plan == optimum else None
    later = call.ask(record)
    assert (later.plan, later.program) == (PREDICTED, None)
    assert "no room" in later.why
    assert world.calls == calls


def test_an_interrupt_is_one_and_leaves_nothing_behind(make_world: Any, call: Call, optimum: Plan) -> None:
    make_world(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        call.ask(like_record(call.key, optimum))
    assert ladder._VERDICTS == {}


@pytest.mark.parametrize("value", ["off", "OFF", "0", "no", "false"])
def test_the_switch(world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AKX_LIKE_DEVICES", value)
    assert call.ask(like_record(call.key, optimum)) == Answer(PREDICTED)
    assert world.calls == 0
    monkeypatch.setenv("AKX_LIKE_DEVICES", "on")
    assert call.ask(like_record(call.key, optimum)).is_like


def test_what_is_not_worth_a_measurement(
    world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def why(**changes: Any) -> str:
        ladder._VERDICTS.clear()
        answer = call.ask(like_record(call.key, optimum, **changes))
        assert (answer.plan, answer.program, world.calls) == (PREDICTED, None, 0)
        return answer.why

    assert "it gained 1.05x there" in why(baseline_seconds=1.05e-3)
    assert "preparing it took 5 s there" in why(prepare_seconds=5.0)
    monkeypatch.setitem(options._DECLARED, ("cpu", "stream"), options.CudaStream)
    streamed = Plan("cpu", "stream", "csr", k=8, threads=2)
    assert "memory is short" in why(plan=streamed)
    with monkeypatch.context() as patched:
        patched.setattr(ladder, "_MOST_BYTES", call.matrix.nbytes)
        assert "too large" in why()
    custom = replace(call.key, basis="hermite")
    answer = believed([like_record(custom, optimum)], PREDICTED, call.matrix, custom, device=host_device(), threads=2)
    assert "hermite" in answer.why
    assert call.ask() == Answer(PREDICTED)
    assert world.calls == 0


def test_the_memory_of_a_gpu_that_is_limited_is_left_alone(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SimpleNamespace(budget=10**9)
    monkeypatch.setattr("akx.backends.cuda.device.pool.memory_pool", lambda: pool)
    there, here = (f"cuda/NVIDIA H100 80GB HBM3/sm_90/132 SMs/L2 50 MiB/{size} GiB" for size in (79, 80))
    key = make_key(call.matrix, 8, device=SimpleNamespace(device_class=here, cores=1), threads=1, backend="cuda")
    ghost = Plan("cuda", "ghost", "csr", k=8, k_per_pass=8)
    record = like_record(key, ghost, key=replace(key, device_class=there))
    predicted = Plan("cuda", "sweep", "csr", k=8)
    answer = believed([record], predicted, call.matrix, key, device=SimpleNamespace(budget=0), threads=1)
    assert (answer.plan, answer.is_like) == (predicted, False)
    assert "the memory of the GPU is limited" in answer.why
    ladder._VERDICTS.clear()
    answer = believed([record], predicted, call.matrix, key, device=SimpleNamespace(budget=5), threads=1)
    assert "memory is short" in answer.why


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_device_with_the_nearest_number_of_threads_goes_first(call: Call, optimum: Plan) -> None:
    """A plan for one thread may have gained more over a baseline of one thread, and says little of many."""
    whole = call.key.device_class.removesuffix("/2 threads")
    single = like_record(call.key, optimum.replace(threads=1), seconds=1e-4)
    single = replace(single, key=replace(call.key, device_class=f"{whole}/1 threads"))
    other = like_record(call.key, optimum.replace(threads=3))
    other = replace(other, key=replace(call.key, device_class=f"{whole}/3 threads"))
    found = like_plans([single, other], call.key, backend="cpu", threads=2)
    assert found[0].record == other
    assert [like.plan.threads for like in found] == [2]  # of all there were, for all there are: the same plan


def test_another_like_device_is_asked_where_the_nearest_has_nothing_worth_it(
    world: Any, call: Call, optimum: Plan
) -> None:
    whole = call.key.device_class.removesuffix("/2 threads")
    poor = like_record(call.key, optimum.replace(block_bytes=1 << 15), seconds=1.9e-3)
    poor = replace(poor, key=replace(call.key, device_class=f"{whole}/3 threads"))
    assert call.ask(poor).plan == PREDICTED
    answer = call.ask(poor, like_record(call.key, optimum))
    assert answer.is_like
    assert answer.plan == fitted(optimum, other_class(call.key), 2)


def test_a_plan_that_is_predicted_as_well_needs_no_measurement(world: Any, call: Call) -> None:
    answer = call.ask(like_record(call.key, PREDICTED))
    assert (answer.plan, answer.is_like, answer.program) == (PREDICTED, False, None)
    assert "is the same" in answer.why
    assert world.prepared == []


def test_a_failure_of_the_moment_is_forgotten_after_a_minute(
    make_world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [True]
    make_world(fails_to_prepare=lambda plan: MemoryError() if failing[0] and plan != PREDICTED else None)
    seconds = [1000.0]
    monkeypatch.setattr(ladder, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    record = like_record(call.key, optimum)
    assert not call.ask(record).is_like
    failing[0] = False
    seconds[0] += 59.0
    assert not call.ask(record).is_like
    seconds[0] += 2.0
    assert call.ask(record).is_like


def test_a_child_is_not_kept_waiting_by_a_measurement_of_its_parent(world: Any, call: Call, optimum: Plan) -> None:
    record = like_record(call.key, optimum)
    assert succeeds_in_a_child(ladder._lock, lambda: call.ask(record).is_like)


def test_it_is_not_measured_beside_another_process(
    world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The call goes on with the predicted plan, and what it says holds for a minute."""
    monkeypatch.setenv("AKX_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(ladder, "_PATIENCE", 0.05)
    seconds = [1000.0]
    monkeypatch.setattr(ladder, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    record, timed = like_record(call.key, optimum), world.time
    with _held_elsewhere():
        answer = call.ask(record)
        assert (answer.plan, answer.is_like) == (PREDICTED, False)
        assert "is measuring on the device" in answer.why
        assert answer.program is not None
        assert answer.program.plan == PREDICTED  # type: ignore[attr-defined]
        assert world.calls <= 3, "each is run to be compared, and not timed"
        assert world.time - timed < 0.1
    seconds[0] += 59.0
    assert not call.ask(record).is_like
    seconds[0] += 2.0
    assert call.ask(record).is_like


def test_what_is_timed_is_timed_alone(world: Any, call: Call, optimum: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    held, seen = [False], []

    class Lock:
        @contextmanager
        def in_passing(self, patience: float) -> Iterator[bool]:
            assert 0.5 <= patience <= 2.0
            held[0] = True
            yield True
            held[0] = False

    cost = world.cost

    def watched(plan: Plan) -> float:
        seen.append(held[0])
        return float(cost(plan))

    world.cost = watched
    monkeypatch.setattr(ladder, "device_lock", lambda device: Lock())
    assert call.ask(like_record(call.key, optimum)).is_like
    assert seen == [False] * 3 + [True] * (len(seen) - 3)
    assert len(seen) > 10


@contextmanager
def _held_elsewhere() -> Iterator[None]:
    """Another process measures on the processors of this host."""
    code = (
        "import sys, time; from akx.backends.host import host_device\n"
        "from akx.backends.device_lock import device_lock\n"
        "with device_lock(host_device()).alone() as sure: print(sure, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "True"
        yield
    finally:
        holder.kill()
        holder.communicate()


# ------------------------------------------------------------------------------------------------ on a GPU


class FakeDeviceProblem:
    """Vectors of a device that is not there: what is written shows on the host once it is fetched."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.x, self.out = problem, problem.x.copy(), np.empty_like(problem.out)

    def poison(self) -> None:
        self.out.fill(np.nan)

    def fetch(self) -> None:
        self.problem.out[:] = self.out

    def call(self, program: Any) -> Callable[[], None]:
        return lambda: program.run(self.x, self.out, self.problem.coefficients)


H100 = CudaDevice("NVIDIA H100 80GB HBM3", 0, (9, 0), 132, 2**17, 2**17, 2**16, 50 * 2**20, 80 * 2**30, 10**9, 3e12)


@pytest.mark.parametrize(("memory", "sms", "asked"), [(94, 132, 0), (80, 114, 1)])
def test_on_a_gpu_of_another_kind_it_runs_in_another_process_first(
    make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch, memory: int, sms: int, asked: int
) -> None:
    world = make_world()
    cards: list[Any] = []

    class Runners:
        def __init__(self, problem: Any, *, ahead: int) -> None:
            assert ahead == 0  # what is asked is all that there is
            self.asked: list[Plan] = []
            self.closed = self.gave_up = False
            cards.append(self)

        def reason_against(self, plan: Plan, most: float) -> str | None:
            assert most == float("inf")
            self.asked.append(plan)
            return lost

        def close(self) -> None:
            self.closed = True

    lost: str | None = None
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    monkeypatch.setattr(worker, "CompileAhead", Runners)
    monkeypatch.setattr(CudaBackend, "trial_vectors", lambda self, problem, **_: FakeDeviceProblem(problem))
    front = Plan("cuda", "front", "sell", k=8, k_per_pass=4, block_bytes=2**18, options={"split": "interleaved"})
    predicted = Plan("cuda", "sweep", "csr", k=8)
    key = make_key(matrix, 8, device=H100, threads=1, backend="cuda")
    other = replace(H100, memory_bytes=memory * 2**30, sms=sms)
    record = like_record(key, front, key=replace(key, device_class=other.device_class))
    answer = believed([record], predicted, matrix, key, device=H100, threads=1)
    assert (answer.plan, answer.is_like) == (front, True), answer.why
    assert sum(len(card.asked) for card in cards) == asked
    assert all(card.closed for card in cards)
    ladder._VERDICTS.clear()
    prepared = len(world.prepared)
    lost = "lost the process that ran it first"
    answer = believed([record], predicted, matrix, key, device=H100, threads=1)
    assert answer.is_like is (asked == 0)
    assert (front in world.prepared[prepared:]) is (asked == 0)
    assert asked == 0 or "lost the process" in answer.why


# ------------------------------------------------------------------------------------------------ the judge


def powers(matrix: Matrix, x: Any, c: Any, *, reverse: bool = False) -> Any:
    """The powers in the matrix's own type; backwards sums each row in the other order."""
    A = matrix.to_scipy()
    out = np.empty((c.a.size + 1, *x.shape), matrix.dtype)
    out[0] = x
    rows = np.repeat(np.arange(matrix.n), np.diff(matrix.indptr))[:: -1 if reverse else 1]
    columns, data = A.indices[:: -1 if reverse else 1], A.data[:: -1 if reverse else 1]
    for j in range(c.a.size):
        for b in range(x.shape[0]):
            product = np.zeros(matrix.n, matrix.dtype)
            np.add.at(product, rows, data * out[j, b, columns])
            out[j + 1, b] = c.a[j] * product + c.b[j] * out[j, b] + (c.c[j] * out[j - 1, b] if j else 0)
    return out


def trusted(matrix: Matrix, k: int, basis: str = "monomial", vectors: int = 1) -> Comparison:
    problem = Comparison(matrix, k, basis=basis, start_vectors=vectors)
    problem.out[:] = powers(matrix, problem.x, problem.coefficients)
    assert problem.error() == 0.0
    problem.trust()
    other = problem.magnitudes()
    absolute = matrix.with_values(problem.absolute_values())
    problem.bound_by(powers(absolute, other.x, other.coefficients))
    return problem


@pytest.mark.parametrize("basis", ["monomial", "newton", "chebyshev"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_right_answers_agree_and_wrong_ones_do_not(make_matrix: Any, dtype: str, basis: str) -> None:
    matrix = make_matrix(60, seed=3, dtype=dtype)
    problem = trusted(matrix, 7, basis, vectors=2)
    right = powers(matrix, problem.x, problem.coefficients, reverse=True)
    problem.out[:] = right
    assert 0 < problem.error() <= 1
    real = np.finfo(dtype).dtype
    bound = problem._bound.reshape(problem.out.shape)
    assert bound.dtype == real
    largest = np.abs(right[1:]).max(axis=-1, keepdims=True)
    assert (bound[1:] <= 1e3 * np.finfo(dtype).eps * np.maximum(largest, 1) * 3.3**7).all()  # it says something
    for j, b, i in ((1, 0, 5), (7, 1, 59), (0, 1, 3)):
        problem.out[:] = right
        problem.out[j, b, i] += 4 * bound[j, b, i] + abs(right[j, b, i]) * 8 * np.finfo(dtype).eps
        assert problem.error() > 1
    problem.out[:] = right
    problem.out[7, 1, 59] = np.nan
    assert not problem.error() <= 1


def test_a_matrix_of_any_scale_can_be_judged(make_matrix: Any) -> None:
    for factor in (1e-30, 1e30):
        small = make_matrix(30)
        matrix = small.with_values(small.data * factor)
        problem = trusted(matrix, 12)
        problem.out[:] = powers(matrix, problem.x, problem.coefficients, reverse=True)
        assert problem.error() <= 1
        problem.out[-1, 0, 7] *= 1 + 1e-9
        assert problem.error() > 1


def test_what_cannot_be_compared_is_refused() -> None:
    matrix = Matrix.from_any(sp.eye_array(40, format="csr", dtype=np.float32))
    problem = Comparison(matrix, 3)
    problem.out[:] = np.inf
    with pytest.raises(VerificationError, match="not finite"):
        problem.trust()
    problem.out[:] = 1
    problem.trust()
    with pytest.raises(VerificationError, match="says nothing"):
        problem.bound_by(np.full_like(problem.out, np.inf))
    n = 300_000
    row = sp.csr_array((np.ones(n, np.float32), (np.zeros(n, int), np.arange(n))), shape=(n, n))
    problem = Comparison(Matrix.from_any(row), 8)
    problem.trust()
    with pytest.raises(VerificationError, match="says nothing"):
        problem.bound_by(np.ones_like(problem.out))


def test_coefficients_of_the_magnitudes_are_absolute(make_matrix: Any) -> None:
    problem = Comparison(make_matrix(), 5, basis="chebyshev", start_vectors=2)
    other = problem.magnitudes()
    for name in "abc":
        np.testing.assert_array_equal(getattr(other.coefficients, name), np.abs(getattr(problem.coefficients, name)))
    assert (other.x >= 0).all()
    np.testing.assert_array_equal(problem.absolute_values(), np.abs(problem.matrix.data))
