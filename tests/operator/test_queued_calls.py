"""Calls on a GPU that are tuned as they are made, without one: what waits, what counts, what it costs, what is kept."""

# ruff: noqa: F811

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device.fake_driver import FakeDriver
from test_device_calls import DTYPE, LAUNCH, A, Array, Case, K, N, Steps, Stream, case, cupy, driver  # noqa: F401

import akx
from akx.backends.cuda import program
from akx.backends.cuda.device.memory import DeviceArray
from akx.core.plan import Plan
from akx.operator.online import Held
from akx.operator.planner import Choice
from akx.tuner.online import exploration, first_runs
from akx.tuner.online import gpu_calls as queued
from akx.tuner.online.first_runs import Candidate
from akx.tuner.online.gpu_calls import Queued
from akx.tuner.trial.problem import Problem

CALL = DTYPE, 1, "cuda"
USUAL = 1e-3


class Timed(Steps):
    """A program that takes the device so long."""

    def __init__(self, case: Case, seconds: float, factor: float = 1.0, fails_after: int | None = None) -> None:
        super().__init__(factor * case.A)
        self.indices, self.indptr = case.A.indices, case.A.indptr  # type: ignore[attr-defined]
        self.driver, self.seconds, self.factor = case.driver, seconds, factor
        self.runs, self.left = 0, fails_after

    def update_values(self, data: Any) -> None:
        super().update_values(data.get() if isinstance(data, DeviceArray) else data)

    def work_of(self, x: Any, out: Any, coefficients: Any) -> Any:
        self.runs += 1
        if self.left is not None and self.runs > self.left:
            raise akx.AkxError("lost")
        return super().work_of(x, out, coefficients)


class Few:
    """Candidates that a test has made."""

    waits, ended, ledger, nbytes, price = False, "", None, 0, 1e-4

    def __init__(self, case: Case, programs: list[Timed]) -> None:
        self.given = case.P._prepared.values.of(DTYPE)
        self.problem, self.left = Problem(self.given, K), list(enumerate(programs))
        self.kept: list[Plan] = []
        self.vectors = akx.backends.selection.backend_of("cuda").trial_vectors(self.problem)

    def next(self, incumbent: Plan, seconds: float, left: float, matrix: Any) -> Candidate | None:
        if not self.left:
            self.ended = "no more"
            return None
        place, program = self.left[0]
        self.given = matrix
        if program.factor == 1.0:
            program.update_values(matrix.data)
        self.problem = Problem(matrix, K)
        self.vectors = akx.backends.selection.backend_of("cuda").trial_vectors(self.problem)
        self.problem.poison()
        del self.left[0]
        return Candidate(_plan(place), "given", program, self.problem, seconds, 0.0)

    def check(self, candidate: Candidate) -> str:
        error = candidate.problem.error()
        return "" if error <= 1 else f"{error} times the bound"

    def keep(self, plan: Plan, gain: float, spent: float) -> None:
        self.kept.append(plan)

    def put_back(self, candidate: Candidate) -> None:
        self.left.insert(0, (int(candidate.plan.variant[-1]), candidate.program))  # type: ignore[arg-type]

    def took(self, seconds: float) -> None: ...

    def tell(self, trial: Any) -> None: ...

    def end_processes(self) -> None: ...

    def close(self) -> None: ...

    def forget(self) -> None: ...


def _plan(place: int) -> Plan:
    return Plan("cuda", "sweep", f"csr-{2 ** (place + 1)}", k=K)


class Online:
    """An operator whose calls are tuned, whose clock is the device's; steps wait until the test takes them."""

    def __init__(self, case: Case, *programs: Timed) -> None:
        self.case, self.steps = case, list[Callable[[], None]]()
        self.first = Timed(case, USUAL)
        prepared = case.P._prepared
        plan = Plan("cuda", "sweep", "csr-1", k=K)
        prepared.programs = {(DTYPE, plan): self.first}
        self.few = Few(case, list(programs))
        self.search = Queued(self.few, Held(prepared, CALL), plan, self.first, do_beside=self.steps.append)
        self.search._now = self.search._processor = lambda: case.driver.time
        self.search._last = case.driver.time
        prepared.online[CALL] = self.search
        prepared.choices.made[CALL] = Choice(plan, "given", USUAL)
        prepared.ready = {CALL: (self.search, prepared.recurrence.coefficients(DTYPE))}
        self.x, self.out = case.arrays()
        case.P.looks_for_overflow = False

    def call(self, times: int, *, every: int = 1) -> None:
        """So many calls; the device does its work after each so many of them."""
        for turn in range(times):
            self.case.P(self.x, out=self.out)
            if turn % every == every - 1:
                self.case.is_right(self.x, self.out)
                while self.steps:
                    self.steps.pop()()


@pytest.fixture
def clocked(case: Case) -> Iterator[Case]:
    """A device whose clock runs by what programs take: a call is as many kernels as it has powers."""
    work, kinds = case.driver.kernels["step"]
    seconds: dict[int, float] = {}

    def step(*arguments: Any) -> None:
        case.driver.time += seconds.get(arguments[1], 0.0)
        work(*arguments)

    case.driver.kernels["step"] = step, kinds
    init = Timed.__init__

    def made(self: Timed, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        seconds[self.A.pointer] = self.seconds / K

    Timed.__init__ = made  # type: ignore[method-assign]
    yield case
    Timed.__init__ = init  # type: ignore[method-assign]
    gc.collect()


def test_a_faster_candidate_becomes_the_plan(clocked: Case) -> None:
    fast, slow = Timed(clocked, 0.4 * USUAL), Timed(clocked, 1.3 * USUAL)
    online = Online(clocked, slow, fast)
    online.call(2500)
    assert online.search.tried == {"adopted": 1, "slower": 1, "wrong": 0, "failed": 0}
    assert online.search.program is fast
    assert online.few.kept[0] == _plan(1) == clocked.P._prepared.choices.made[CALL].plan
    assert online.search.gain == pytest.approx(2.5)
    assert online.search.is_over
    clocked.driver.log.clear()
    online.call(1)
    assert clocked.P._prepared.ready[CALL][0] is not online.search, "calls take no detour any more"


def test_no_call_waits(clocked: Case) -> None:
    online = Online(clocked, Timed(clocked, 0.8 * USUAL), Timed(clocked, 1.2 * USUAL))
    online.call(1)
    waits = {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"}
    for _ in range(1500):
        clocked.driver.log.clear()
        clocked.P(online.x, out=online.out)
        assert not waits.intersection(clocked.driver.log)
        clocked.driver.finish()
        while online.steps:
            online.steps.pop()()
    assert online.search.tried["adopted"] == online.search.tried["slower"] == 1


def test_a_call_that_is_not_timed_is_a_launch(clocked: Case) -> None:
    online = Online(clocked)
    online.call(100)
    launches = 0
    for _ in range(100):
        clocked.driver.log.clear()
        online.call(1)
        launches += clocked.driver.log == LAUNCH
    assert launches > 80


@pytest.mark.parametrize("slower", [1.1, 1.9, 30.0])
@pytest.mark.parametrize("every", [1, 16])
def test_regret_is_bounded(clocked: Case, slower: float, every: int) -> None:
    """The device's clock is all there is: what calls and candidates took beyond the incumbent is the budget at most."""
    online = Online(clocked, *(Timed(clocked, slower * USUAL) for _ in range(4)))
    calls = 0
    for _ in range(100):
        online.call(16, every=every)
        calls += 16
        over = clocked.driver.time - calls * USUAL
        total = calls * USUAL
        assert over <= min(0.5 * total, 1.0) + 0.01 * total + 4 * slower * USUAL
    assert online.search.tried["slower"] >= (1 if slower > 2 else 3)
    assert online.search.program is online.first


def test_a_slow_candidate_is_not_queued_far_ahead(clocked: Case) -> None:
    other = Timed(clocked, 1.4 * USUAL)
    online = Online(clocked, other)
    while online.search._phase != exploration.DUEL:
        online.call(1)
    before = other.runs
    online.call(400, every=400)
    assert other.runs - before <= 8


def test_a_wrong_candidate_never_reaches_the_caller(clocked: Case) -> None:
    online = Online(clocked, Timed(clocked, 0.1 * USUAL, factor=1.01))
    online.call(500)
    assert online.search.tried["wrong"] == 1
    assert online.search.program is online.first


def test_a_candidate_that_fails_in_a_call_gives_way(clocked: Case) -> None:
    lost = Timed(clocked, 0.9 * USUAL, fails_after=3)
    online = Online(clocked, lost)
    online.call(500)
    assert online.search.tried["failed"] == 1
    assert lost.runs == 4


def test_new_values_come_to_candidates_or_these_come_again(clocked: Case) -> None:
    case, online = clocked, Online(clocked, Timed(clocked, 0.5 * USUAL))
    for turn in range(1, 400):
        if turn % 3 == 0:
            case.A = case.A.copy()
            case.A.data = case.A.data * (1 + 1 / turn)
            case.P.update_values(case.A)
        case.P(online.x, out=online.out)
        case.is_right(online.x, online.out)
        while online.steps:
            online.steps.pop()()
    assert online.search.tried["wrong"] == 0
    assert online.search.tried["adopted"] == 1


def test_a_captured_call_holds_the_plan(clocked: Case, cupy: Any) -> None:
    online = Online(clocked, Timed(clocked, 0.5 * USUAL))
    cupy.current = Stream(55)
    online.call(3)
    clocked.driver.recording[55] = graph = []
    clocked.P(online.x, out=online.out)
    del clocked.driver.recording[55]
    assert len(graph) == K
    assert online.search.is_over
    assert clocked.P._prepared.ready[CALL][0] is online.first
    assert list(clocked.P._prepared.captured.values()) == [online.first]
    online.call(200)
    assert not any(online.search.tried.values())


def test_steps_do_not_spoil_what_others_record(clocked: Case) -> None:
    online, modes = Online(clocked, Timed(clocked, 0.5 * USUAL)), []
    step = online.few.next

    def seen(*arguments: Any) -> Any:
        modes.append(clocked.driver.mode)  # type: ignore[attr-defined]
        return step(*arguments)

    online.few.next = seen  # type: ignore[method-assign]
    online.call(100)
    assert set(modes) == {"CU_STREAM_CAPTURE_MODE_RELAXED"}
    assert clocked.driver.mode == "global"  # type: ignore[attr-defined]


def test_what_calls_took_is_read_beside_captures_of_others(clocked: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another thread captures in global mode the driver refuses such a call, and the capture is lost."""
    online, modes = Online(clocked, Timed(clocked, 0.5 * USUAL)), set()
    for name in ("cuEventQuery", "cuEventElapsedTime"):
        asked = getattr(FakeDriver, name)

        def ask(driver: Any, *arguments: Any, asked: Any = asked) -> Any:
            modes.add(getattr(driver, "mode", "global"))
            return asked(driver, *arguments)

        monkeypatch.setattr(FakeDriver, name, ask)
    online.call(200)
    assert modes == {"CU_STREAM_CAPTURE_MODE_RELAXED"}
    assert clocked.driver.mode == "global"  # type: ignore[attr-defined]


def test_a_step_waits_for_the_end_of_a_capture(clocked: Case, cupy: Any) -> None:
    """Of what else is done on the last stream: nobody loses by it, neither the candidate nor the search."""
    online = Online(clocked, Timed(clocked, 0.5 * USUAL))
    cupy.current = Stream(55)
    prepare, begun = online.few.next, []

    def captured_behind(*arguments: Any) -> Any:
        found = prepare(*arguments)
        if found is not None and len(begun) == 1:
            begun.append(clocked.driver.recording.setdefault(55, []))
        return found

    online.few.next = captured_behind  # type: ignore[method-assign]
    for _ in range(2500):
        online.case.P(online.x, out=online.out)
        clocked.driver.finish()
        while online.steps:
            if not begun:
                begun.append(clocked.driver.recording.setdefault(55, []))
            online.steps.pop()()
            clocked.driver.recording.pop(55, None)
    assert len(begun) == 2
    assert online.search.tried == {"adopted": 1, "slower": 0, "wrong": 0, "failed": 0}


def test_a_duel_goes_on_behind_a_capture(clocked: Case) -> None:
    """Where another thread captures, a turn of the candidate is a call like all others."""
    other = Timed(clocked, 0.5 * USUAL)
    online, queue, refused = Online(clocked, other), other.work_of, []

    def work_of(*arguments: Any) -> Any:
        if online.search._phase == exploration.DUEL and len(refused) < 3:
            refused.append(online.search._queued)
            raise akx.CapturingError("a stream is being captured")
        return queue(*arguments)

    other.work_of = work_of  # type: ignore[method-assign]
    online.call(2500)
    assert len(refused) == 3
    assert online.search.tried == {"adopted": 1, "slower": 0, "wrong": 0, "failed": 0}


def test_a_first_run_is_timed_apart_from_calls(clocked: Case) -> None:
    """Calls of another thread wait, for as long as the run takes to be queued."""
    other = Timed(clocked, 1.2 * USUAL)
    online = Online(clocked, other)
    callers: list[threading.Thread] = []
    make = online.few.next

    def interrupted(*arguments: Any) -> Any:
        found, vectors = make(*arguments), online.few.vectors
        queue = vectors.queue

        def meanwhile(program: Any) -> None:
            callers.append(threading.Thread(target=clocked.P, args=(online.x,), kwargs={"out": online.out}))
            callers[-1].start()
            callers[-1].join(0.05)
            queue(program)

        vectors.queue = meanwhile
        return found

    online.few.next = interrupted  # type: ignore[method-assign]
    while not callers:
        online.call(1)
    for caller in callers:
        caller.join()
    assert online.search._candidate is not None
    assert online.search._candidate.expected == pytest.approx(1.2 * USUAL)


def test_the_graph_of_a_candidate_is_made_before_calls_count(clocked: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_PAYS", 5)  # as it is without a test
    other = Timed(clocked, 0.9 * USUAL)
    online = Online(clocked, other)
    made: list[int] = []
    record = other._recorded

    def recorded(*arrays: Any) -> Any:
        made.append(online.search._queued)
        return record(*arrays)

    other._recorded = recorded  # type: ignore[method-assign]
    while not online.search._duel.candidate:
        online.call(1)
    online.call(10)
    assert len(made) == 1
    assert made[0] <= queued._WARM


def test_solvers_get_a_program_that_can_be_recorded(clocked: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    online = Online(clocked, Timed(clocked, 0.5 * USUAL))
    assert clocked.P._prepared.for_solver(DTYPE, 1, "cuda")[0] is online.first


def test_vectors_of_the_host_have_a_clock_of_their_own(clocked: Case) -> None:
    """Both kinds of calls of one operator: what one kind takes says nothing of the other."""
    online = Online(clocked, Timed(clocked, 0.5 * USUAL))
    x, coefficients = np.ones((1, N)), clocked.P._prepared.recurrence.coefficients(DTYPE)
    out = np.empty((K + 1, 1, N))
    for _ in range(300):
        online.call(1)
        online.search.run(x, out, coefficients)
        np.testing.assert_allclose(out[1, 0], clocked.A @ x[0], rtol=1e-12)
    assert not online.search.tried["wrong"]
    assert isinstance(online.x, Array)


class Ran:
    """In place of the process that candidates run in first."""

    def __init__(self, problem: Problem, log: list[str]) -> None:
        self.log = log
        log.append("start")

    def reason_against(self, plan: Plan) -> str | None:
        self.log.append(plan.variant)
        return "lost it" if plan.variant == "csr-2" else None

    def end(self) -> None:
        self.log.append("end")

    def close(self) -> None: ...


def test_what_may_crash_runs_elsewhere_first(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for all candidates, also where values change; none for schedules that cannot crash."""
    log: list[str] = []
    monkeypatch.setattr(first_runs, "Sandbox", lambda problem: Ran(problem, log))
    matrix = case.P._prepared.values.of(DTYPE)
    runs = first_runs.FirstRuns(matrix, K, "monomial", 1, "cuda")
    safe, wary = SimpleNamespace(may_crash=False), SimpleNamespace(may_crash=True)
    assert runs.reason_to_fear(_plan(0), safe) is None  # type: ignore[arg-type]
    assert log == []
    assert runs.reason_to_fear(_plan(0), wary) == "lost it"  # type: ignore[arg-type]
    runs.forget(matrix.with_values(2.0 * matrix.data))
    assert runs.reason_to_fear(_plan(1), wary) is None  # type: ignore[arg-type]
    runs.end()
    assert log == ["start", "csr-2", "csr-4", "end"]
    assert first_runs.FirstRuns(matrix, K, "monomial", 1, "cpu").reason_to_fear(_plan(0), wary) is None  # type: ignore[arg-type]
