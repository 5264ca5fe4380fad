"""Plans that are got ready ahead of the search, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba.core.event import trigger_event

from akx.backends.cuda import timing
from akx.backends.host import host_device
from akx.core import process as _process
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import Settings
from akx.tuner import sandbox as processes
from akx.tuner.history.trial import COMPLETE, FAILED, Trial
from akx.tuner.measure import Precision
from akx.tuner.sandbox import Sandbox
from akx.tuner.search import preparation
from akx.tuner.space import build_space
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import Problem
from akx.tuner.warmup import compile_ahead
from akx.tuner.warmup.compile_ahead import CompileAhead, processes_ahead

PLANS = [Plan("cpu", "sweep", variant, k=2) for variant in ("csr", "sell", "dia", "bcsr-2x2")]
HANGS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def problem(make_matrix: Callable[..., Matrix]) -> Problem:
    return Problem(make_matrix(), 2)


class Slow:
    """Gets plans ready when it is let go; runs them at once, or never where it hangs."""

    def __init__(self, go: threading.Event, did: list[tuple[str, Plan, Slow]]) -> None:
        self.gave_up = self.is_ended = self.is_up = self.hangs = self.fails = False
        self._go, self._did = go, did

    def get_ready(self, plan: Plan) -> bool:
        self.is_up = True
        self._did.append(("get ready", plan, self))
        self._go.wait(20.0)
        if self.fails:
            raise MemoryError("no room for a copy of the matrix")
        return plan.variant != "sell"

    def reason_against(self, plan: Plan, most: float = float("inf")) -> str | None:
        self.is_up = True
        self._did.append(("run", plan, self))
        self.gave_up = self.hangs
        return f"{plan.variant} is lost" if plan.variant == "dia" else None

    def end(self) -> None:
        self.is_ended = True
        self._go.set()

    def close(self) -> None:
        assert self.is_ended


class Hall:
    """CompileAhead of slow processes, and what they did."""

    def __init__(self) -> None:
        self.go, self.did = threading.Event(), list[tuple[str, Plan, Slow]]()
        self.made: list[CompileAhead] = []

    def __call__(self, ahead: int) -> Any:
        make: Any = lambda problem: Slow(self.go, self.did)  # noqa: E731
        self.made.append(CompileAhead(None, ahead=ahead, make=make))  # type: ignore[arg-type]
        return self.made[-1]

    def plans(self, what: str) -> list[Plan]:
        return [plan for done, plan, _ in self.did if done == what]


@pytest.fixture
def hall() -> Iterator[Hall]:
    found = Hall()
    yield found
    for one in found.made:
        one.close()


def wait_until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(1e-3)


def test_nothing_is_got_ready_where_there_are_no_processes_for_it(hall: Hall) -> None:
    runners = hall(0)
    assert runners.room == 0
    runners.ahead(PLANS)
    assert runners.reason_against(PLANS[0]) is None
    assert hall.plans("get ready") == []


def test_as_many_at_a_time_as_there_are_processes_and_none_twice(hall: Hall) -> None:
    runners = hall(2)
    runners.ahead(PLANS)  # all processes come up together, that for what is asked too
    wait_until(lambda: len(hall.did) == 3)
    assert runners.room == 0
    runners.ahead(PLANS)
    hall.go.set()
    wait_until(lambda: runners.room == 2)
    runners.ahead(PLANS)
    wait_until(lambda: runners.room == 2)
    runners.ahead(PLANS)
    assert hall.plans("get ready") == PLANS
    assert [runners.reason_against(plan) for plan in PLANS] == [None, None, "dia is lost", None]
    assert hall.plans("run") == PLANS


def test_a_plan_runs_where_it_is_ready_unless_that_process_has_something_else(hall: Hall) -> None:
    hall.go.set()
    runners = hall(2)
    runners.ahead(PLANS[:3])
    wait_until(lambda: len(runners._idle) == 3)
    where = {plan: one for _, plan, one in hall.did}
    runners.reason_against(PLANS[2])
    assert hall.did[-1][2] is where[PLANS[2]]
    runners.reason_against(PLANS[0])
    assert hall.did[-1][2] is where[PLANS[0]]
    assert PLANS[1] not in runners._ready  # it did not come through


def test_one_process_is_left_for_what_is_asked(hall: Hall) -> None:
    runners = hall(1)
    hall.go.set()
    runners.ahead(PLANS[:2])
    wait_until(lambda: len(runners._idle) == 2)
    hall.go.clear()
    runners.ahead(PLANS[2:])
    wait_until(lambda: len(hall.plans("get ready")) == 3)
    assert runners.room == 0
    assert runners.reason_against(PLANS[3]) is None  # beside the one under way
    assert not hall.go.is_set()


def test_who_asks_waits_no_longer_than_there_is_time(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    runners = hall(1)
    runners.ahead(PLANS[:2])
    for plan in (PLANS[0], PLANS[3]):  # one is being got ready, and both processes are at work
        assert "did not answer within 0.05 s" in (runners.reason_against(plan, 0.05) or "")
        assert runners.gave_up
    begin = time.monotonic()
    runners.await_coming(PLANS[0], 0.05)
    monkeypatch.setattr(compile_ahead, "_COMING", 0.05)
    runners.await_coming(PLANS[0])
    runners.await_coming(PLANS[3])
    assert time.monotonic() - begin < 3.0
    threading.Timer(0.05, hall.go.set).start()
    assert runners.reason_against(PLANS[0], 10.0) is None
    assert not runners.gave_up


def test_a_process_that_comes_up_is_not_waited_for(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a plan cannot crash: to compile it here takes less. Later the same process is."""
    monkeypatch.setattr(compile_ahead, "_COMING", 0.3)
    runners = hall(1)
    runners.ahead(PLANS[:1])
    waited = []
    for plan in PLANS[:2]:
        wait_until(lambda plan=plan: plan in hall.plans("get ready"))  # type: ignore[misc]
        begin = time.monotonic()
        runners.await_coming(plan)
        waited.append(time.monotonic() - begin)
        hall.go.set()
        wait_until(lambda: len(runners._idle) == 2)
        hall.go.clear()
        monkeypatch.setattr(runners, "_idle", runners._idle[::-1])  # the one that has come up is next
        runners.ahead(PLANS[1:2])
    assert waited[0] < 0.2 < 0.3 <= waited[1]


def test_what_goes_wrong_ahead_is_no_verdict(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    runners = hall(1)
    for one in runners._all:
        one.fails = True
    hall.go.set()
    runners.ahead(PLANS[:2])
    wait_until(lambda: len(runners._idle) == 2)
    assert runners._ready == {}
    assert runners.reason_against(PLANS[0]) is None

    def too_many(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", too_many)
    runners.ahead(PLANS[2:])
    assert runners.room == 1
    assert runners.reason_against(PLANS[3]) is None


def test_real_processes_answer_and_end(problem: Problem) -> None:
    runners = CompileAhead(problem, ahead=2)
    runners.ahead(PLANS[:3])
    assert [runners.reason_against(plan) for plan in PLANS] == [None] * 4
    processes: list[Any] = [one._process for one in runners._all if one._process is not None]
    assert len(processes) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runners.close()
    assert all(process.returncode is not None for process in processes)  # nobody else has to wait for them
    assert all(process.stdin.closed and process.stdout.closed for process in processes)
    assert runners.room == 0


def test_a_process_keeps_what_it_has_ready_and_runs_it(problem: Problem) -> None:
    """And prepares what it has not, or has no more."""
    program = """
from akx.backends import registry
from akx.tuner import sandbox
found, times = registry.get, []

def get(backend, schedule):
    chosen = found(backend, schedule)

    class Counting(type(chosen)):
        def prepare(self, matrix, plan):
            times.append(plan.variant)
            return chosen.prepare(matrix, plan)

    return Counting()

run = sandbox._run
registry.get = get
sandbox._run = lambda *given: run(*given) or ",".join(times)
sandbox.main()
"""
    one = Sandbox(problem, command=[sys.executable, "-c", program])
    try:
        assert one.get_ready(PLANS[0])
        assert one.reason_against(PLANS[0]) == "csr"
        assert one.reason_against(PLANS[0]) == "csr,csr"
        assert one.get_ready(PLANS[0])
        assert one.get_ready(Plan("cpu", "sweep", "nonsense", k=2))
        assert one.get_ready(PLANS[1])
        assert one.reason_against(PLANS[0]) == "csr,csr,csr,nonsense,sell,csr"
    finally:
        one.close()


def test_processes_that_hang_end_with_the_search(problem: Problem) -> None:
    """Nobody is left behind on the device, and who waits gets an answer."""
    runners = CompileAhead(problem, ahead=1, make=lambda problem: Sandbox(problem, command=HANGS))
    runners.ahead(PLANS[:2])
    wait_until(lambda: all(one._process is not None for one in runners._all))
    processes: list[Any] = [one._process for one in runners._all]
    begin = time.monotonic()
    runners.close()
    assert time.monotonic() - begin < 4.0
    assert all(process.returncode is not None for process in processes)
    assert "was lost" in (runners.reason_against(PLANS[0], 10.0) or "")


def test_a_process_that_is_being_ended_can_be_ended_at_once(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is given the time to end by itself, it is there for who cannot wait."""
    one = Sandbox(problem, command=HANGS)
    thread = threading.Thread(target=one.get_ready, args=(PLANS[0],))
    thread.start()
    wait_until(lambda: one.is_up)
    process: Any = one._process
    closing = threading.Thread(target=one.close)
    closing.start()
    one.end()
    closing.join(1.5)
    thread.join(1.5)
    assert process.returncode == -signal.SIGKILL
    assert not closing.is_alive()


def test_a_process_that_comes_up_as_all_end_ends_too(problem: Problem) -> None:
    one = Sandbox(problem, command=HANGS)
    one.end()
    assert "was lost" in (one.reason_against(PLANS[0]) or "")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_nobody_outlives_a_tuner_that_is_killed(tmp_path: Path) -> None:
    """Neither those that are idle nor one that hangs in a plan."""
    program = """
import sys, time
import scipy.sparse as sp
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.sandbox import Sandbox
from akx.tuner.warmup.compile_ahead import CompileAhead
from akx.tuner.trial.problem import Problem

child = "import time; from akx.tuner import sandbox as it; it._run = lambda *_: time.sleep(600); it.main()"
problem = Problem(Matrix.from_any(sp.eye_array(40, format="csr")), 2)
runners = CompileAhead(problem, ahead=1, make=lambda problem: Sandbox(problem, command=[sys.executable, "-c", child]))
plans = [Plan("cpu", "sweep", variant, k=2) for variant in ("csr", "sell")]
runners.ahead(plans)
while len(runners._idle) < 2:
    time.sleep(0.01)
print(*(one._process.pid for one in runners._all), flush=True)
runners.reason_against(plans[0])
"""
    folder = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": folder}
    ) as tuner:
        assert tuner.stdout is not None
        children = [int(number) for number in tuner.stdout.readline().split()]
        assert len(children) == 2
        time.sleep(0.3)  # it is in the plan
        tuner.kill()

    def is_gone(pid: int) -> bool:
        try:
            return ") Z" in Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True

    wait_until(lambda: all(map(is_gone, children)), 5.0 + 2 * processes._LOOK)


def test_ctrl_c_is_for_the_tuner_alone(problem: Problem) -> None:
    one = Sandbox(problem)
    try:
        assert one.reason_against(PLANS[0]) is None
        process: Any = one._process
        process.send_signal(signal.SIGINT)
        assert one.reason_against(PLANS[1]) is None
        assert one._process is process
    finally:
        one.close()


def test_a_trial_finds_out_for_itself(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan whose process is lost as it runs is not tried; one that cannot crash is, whatever became of it ahead."""
    space = build_space(problem.matrix, 2, host_device(), threads=1)
    bench = Bench(problem, space, precision=Precision(seconds=0.01), race=1.5, keep=0)
    lost = [sys.executable, "-c", "import os; os.read(0, 99); os._exit(3)"]
    plan = space.plan("sweep", {})
    for may_crash, state in ((True, FAILED), (False, COMPLETE)):
        runners = CompileAhead(problem, ahead=1, make=lambda problem: Sandbox(problem, command=lost))
        monkeypatch.setattr(bench, "_compile_ahead", runners)
        monkeypatch.setattr(space.schedules["sweep"], "may_crash", may_crash, raising=False)
        bench.get_ready(lambda: [plan])
        assert runners._begun == {plan}
        trial = bench.try_plan(plan, number=0, origin="estimate", best=None)
        assert trial.state == state
        assert may_crash is ("exit code 3" in trial.reason)
        bench.settle()
        assert runners.room == 0
        bench.get_ready(lambda: pytest.fail("asked where there is no room"))


def test_what_preparing_again_would_take_is_told_apart(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait for the process that runs a plan first, and without what Numba compiled here."""
    space = build_space(problem.matrix, 2, host_device(), threads=1)
    bench = Bench(problem, space, precision=Precision(seconds=0.01), race=1.5, keep=0)
    plan, prepare = space.plan("sweep", {}), space.schedules["sweep"].prepare

    def compiled_first(matrix: Any, plan: Plan) -> Any:
        with trigger_event("numba:compile"):
            time.sleep(0.2)
        time.sleep(0.1)
        return prepare(matrix, plan)

    monkeypatch.setattr(space.schedules["sweep"], "prepare", compiled_first, raising=False)
    monkeypatch.setattr(bench, "reason_to_fear", lambda plan: time.sleep(0.3))
    bench.try_plan(plan, number=0, origin="estimate", best=None)  # all that is compiled in truth is, by then
    trial = bench.try_plan(plan, number=0, origin="estimate", best=None)
    assert trial.state == COMPLETE
    assert (trial.prepare_seconds or 0.0) >= 0.6
    assert 0.1 <= (trial.prepare_again_seconds or 0.0) <= (trial.prepare_seconds or 0.0) - 0.49
    assert Trial.from_json({**trial.to_json(), "samples": [1.0]}).prepare_again_seconds == trial.prepare_again_seconds


def test_what_cannot_be_run_first_is_a_failed_trial(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    space = build_space(problem.matrix, 2, host_device(), threads=1)
    bench = Bench(problem, space, precision=Precision(), race=1.5, keep=0)

    def fails(plan: Plan) -> str | None:
        raise MemoryError("no room for a copy of the matrix")

    monkeypatch.setattr(bench, "reason_to_fear", fails)
    trial = bench.try_plan(space.plan("sweep", {}), number=0, origin="estimate", best=None)
    assert (trial.state, trial.reason) == (FAILED, "MemoryError: no room for a copy of the matrix")


def test_a_gpu_search_that_has_the_time_gets_plans_ready(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of the host, nor a short one, nor one within a memory budget."""
    asked: list[int] = []
    monkeypatch.setattr(timing, "free_bytes", lambda: 2**36)
    monkeypatch.setattr(preparation, "processes_ahead", lambda problem, free: asked.append(free) or 3)
    monkeypatch.setattr(preparation, "Bench", lambda problem, space, **given: given["ahead"])
    monkeypatch.setattr(preparation, "_alone", lambda *_: None)

    def ahead(backend: str = "cuda", seconds: float = 60.0, budget: int = 0) -> Any:
        space: Any = SimpleNamespace(backend=backend, device=SimpleNamespace(budget=budget))
        return preparation.bench_for(problem, space, Settings(seconds=seconds))

    assert ahead() == 3
    assert asked == [2**36]
    assert [ahead("cpu"), ahead(seconds=5.0), ahead(budget=2**30)] == [0, 0, 0]


def test_how_many_processes(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 2**30
    assert processes_ahead(problem, 80 * gib, cores=16, host_bytes=64 * gib) == 8
    assert processes_ahead(problem, 80 * gib, cores=4, host_bytes=64 * gib) == 2
    assert [processes_ahead(problem, 80 * gib, cores=cores, host_bytes=64 * gib) for cores in (1, 2)] == [0, 0]
    assert processes_ahead(problem, 8 * gib, cores=16, host_bytes=64 * gib) == 2
    assert processes_ahead(problem, 0, cores=16, host_bytes=64 * gib) == 0
    assert processes_ahead(problem, 80 * gib, cores=16, host_bytes=6 * gib) == 2
    meminfo = tmp_path / "meminfo"
    monkeypatch.setattr(_process, "_MEMINFO", meminfo)
    monkeypatch.setattr(_process, "_CGROUPS", tmp_path)
    for kib, expected in ((64 * 2**20, 8), (1000, 0)):
        meminfo.write_text(f"MemTotal: 1 kB\nMemAvailable:   {kib} kB\n")
        assert processes_ahead(problem, 80 * gib, cores=16) == expected
