"""Plans that run ahead of the search, in processes of their own."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from akx.device.host import host_device
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner import worker
from akx.tuner.canary import Canary
from akx.tuner.forerunners import Forerunners, processes_ahead
from akx.tuner.measure import Precision
from akx.tuner.result import COMPLETE, FAILED
from akx.tuner.space import build_space
from akx.tuner.verify import Problem
from akx.tuner.worker import Bench

PLANS = [Plan("cpu", "sweep", variant, k=2) for variant in ("csr", "sell", "dia", "bcsr-2x2")]


@pytest.fixture
def problem(make_matrix: Callable[..., Matrix]) -> Problem:
    return Problem(make_matrix(), 2)


class Slow:
    """Answers when it is let go, and counts who is at work."""

    at_work = 0
    most = 0

    def __init__(self, problem: Problem | None, go: threading.Event, ran: list[Plan]) -> None:
        self.gave_up, self.is_ended = False, False
        self._go, self._ran = go, ran

    def reason_against(self, plan: Plan, most: float = float("inf")) -> str | None:
        Slow.at_work += 1
        Slow.most = max(Slow.most, Slow.at_work)
        self._ran.append(plan)
        self.gave_up = not self._go.wait(min(most, 20.0))
        Slow.at_work -= 1
        return f"{plan.variant} is lost" if plan.variant == "dia" else None

    def end(self) -> None:
        self.is_ended = True
        self._go.set()


@pytest.fixture
def slow() -> Iterator[tuple[Callable[[int], Forerunners], threading.Event, list[Plan]]]:
    Slow.at_work = Slow.most = 0
    go, ran, made = threading.Event(), [], []

    def make(ahead: int) -> Forerunners:
        one: Any = Forerunners(None, ahead=ahead, make=lambda problem: Slow(problem, go, ran))  # type: ignore[arg-type, return-value]
        made.append(one)
        return one

    yield make, go, ran
    for one in made:
        one.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(1e-3)


def test_nothing_runs_ahead_where_there_are_no_processes_for_it(slow: Any) -> None:
    make, go, ran = slow
    go.set()
    runners = make(0)
    assert runners.room == 0
    runners.ahead(PLANS)
    assert runners.reason_against(PLANS[0]) is None
    assert ran == PLANS[:1]


def test_plans_run_once_and_as_many_at_a_time_as_there_are_processes(slow: Any) -> None:
    make, go, ran = slow
    runners = make(2)
    runners.ahead(PLANS)  # all processes come up together, that for what is asked too
    wait_until(lambda: len(ran) == 3)
    assert runners.room == -1
    runners.ahead(PLANS)
    assert len(ran) == 3
    go.set()
    assert [runners.reason_against(plan) for plan in PLANS] == [None, None, "dia is lost", None]
    assert sorted(plan.variant for plan in ran) == sorted(plan.variant for plan in PLANS)
    wait_until(lambda: runners.room == 2)
    runners.ahead(PLANS)  # known by now
    assert len(ran) == 4
    assert Slow.most == 3


def test_one_process_is_left_for_what_is_asked(slow: Any) -> None:
    make, go, ran = slow
    runners = make(1)
    go.set()
    runners.ahead(PLANS[:2])
    wait_until(lambda: len(ran) == 2 and runners.room == 1)
    go.clear()
    runners.ahead(PLANS[2:3])
    wait_until(lambda: len(ran) == 3)
    begin = time.monotonic()
    runners.reason_against(PLANS[3], 0.05)  # beside the one under way
    assert runners.gave_up
    assert ran[3] == PLANS[3]
    assert time.monotonic() - begin < 5.0


def test_a_plan_under_way_is_waited_for_as_long_as_there_is_time(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make, go, ran = slow
    runners = make(1)
    runners.ahead(PLANS[:1])
    assert "did not answer within 0.05 s" in (runners.reason_against(PLANS[0], 0.05) or "")
    assert runners.gave_up
    monkeypatch.setattr("akx.tuner.forerunners._COMING", 0.05)
    runners.await_coming(PLANS[0])  # no longer than that
    threading.Timer(0.05, go.set).start()
    assert runners.reason_against(PLANS[0], 10.0) is None
    assert not runners.gave_up
    assert ran == PLANS[:1]


def test_what_cannot_be_run_is_told_to_who_asks(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make, _go, _ran = slow

    def fails(self: Slow, plan: Plan, most: float = 0.0) -> str | None:
        raise MemoryError("no room for a copy of the matrix")

    monkeypatch.setattr(Slow, "reason_against", fails)
    runners = make(1)
    runners.ahead(PLANS[:1])
    runners.await_coming(PLANS[0])
    with pytest.raises(MemoryError, match="no room"):
        runners.reason_against(PLANS[0])


def test_real_processes_answer_and_end(problem: Problem) -> None:
    runners = Forerunners(problem, ahead=2)
    runners.ahead(PLANS[:3])
    assert [runners.reason_against(plan) for plan in PLANS] == [None] * 4
    processes: list[Any] = [canary._process for canary in runners._all]
    assert all(process.poll() is None for process in processes)
    runners.close()
    assert all(process.wait(10) is not None for process in processes)


def test_a_process_that_hangs_ends_with_the_search(problem: Problem) -> None:
    """Nobody is left behind on the device, and who waits gets an answer."""
    hangs = [sys.executable, "-c", "import time; time.sleep(600)"]
    runners = Forerunners(problem, ahead=1, make=lambda problem: Canary(problem, command=hangs))
    runners.ahead(PLANS[:2])
    wait_until(lambda: all(canary._process is not None for canary in runners._all))
    processes: list[Any] = [canary._process for canary in runners._all]
    runners.close()
    assert "was lost" in (runners.reason_against(PLANS[0], 10.0) or "")
    assert all(process.wait(10) is not None for process in processes)


def test_a_process_that_comes_up_as_all_end_ends_too(problem: Problem) -> None:
    canary = Canary(problem, command=[sys.executable, "-c", "import time; time.sleep(600)"])
    canary.end()
    assert "was lost" in (canary.reason_against(PLANS[0]) or "")


def test_a_trial_uses_what_was_found_out_ahead(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that was lost ahead is not tried; one that cannot crash is, whatever became of it there."""
    space = build_space(problem.matrix, 2, host_device(), threads=1)
    bench = Bench(problem, space, precision=Precision(seconds=0.01), race=1.5, keep=0)
    lost = [sys.executable, "-c", "import os; os.read(0, 99); os._exit(3)"]
    plan = space.plan("sweep", {})
    for may_crash, state in ((True, FAILED), (False, COMPLETE)):
        runners = Forerunners(problem, ahead=1, make=lambda problem: Canary(problem, command=lost))
        monkeypatch.setattr(bench, "_forerunners", runners)
        monkeypatch.setattr(space.schedules["sweep"], "may_crash", may_crash, raising=False)
        bench.get_ready(lambda: [plan])
        trial = bench.try_plan(plan, number=0, origin="estimate", best=None)
        assert trial.state == state
        assert list(runners._known) == [plan]
        bench.close()


def test_nobody_is_asked_for_plans_where_there_is_no_room(problem: Problem) -> None:
    space = build_space(problem.matrix, 2, host_device(), threads=1)
    bench = Bench(problem, space, precision=Precision(), race=1.5, keep=0)
    bench.get_ready(lambda: pytest.fail("asked"))
    assert worker.Forerunners is Forerunners


def test_how_many_processes(problem: Problem) -> None:
    gib = 2**30
    assert processes_ahead(problem, 80 * gib, cores=16) == 4
    assert processes_ahead(problem, 80 * gib, cores=4) == 2
    assert [processes_ahead(problem, 80 * gib, cores=cores) for cores in (1, 2)] == [0, 0]
    assert processes_ahead(problem, 8 * gib, cores=16) == 2
    assert processes_ahead(problem, 2 * gib, cores=16) == 0
