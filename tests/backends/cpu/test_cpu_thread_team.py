"""Teams of threads: members that listen for the next call, sleep when none comes, and leave for another job."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import akx
from akx.backends.cpu import thread_team as team_module
from akx.backends.cpu.system_calls import CORE_WORDS
from akx.backends.cpu.thread_sync import (
    _CALL,
    LINE,
    _make_way,
    _move,
    _say_core,
    advanced,
    begin,
    finish,
    hold,
    new_calls,
    turn,
    waited,
)
from akx.backends.cpu.thread_team import Job, Team, team
from akx.core.basis import chebyshev
from akx.core.parallel import alone
from akx.core.plan import Plan

_N = 4000
_ROOT = Path(akx.__file__).resolve().parents[1]


def _operator(threads: int, schedule: str = "sweep", k: int = 3, seed: int = 0) -> tuple[akx.MatrixPowers, Any]:
    values = np.random.default_rng(seed).uniform(0.1, 0.3, 3)
    A = sp.diags_array(values, offsets=[-1, 0, 1], shape=(_N, _N), format="csr")
    options: dict[str, Any] = {} if schedule == "sweep" else {"k_per_pass": k, "block_bytes": 4096}
    return akx.MatrixPowers(A, k, plan=Plan("cpu", schedule, "csr", k=k, threads=threads, **options)), A


def _right(A: Any, x: NDArray[Any], V: NDArray[Any]) -> bool:
    expected = x
    for j in range(1, V.shape[-1]):
        expected = A @ expected
        if not np.allclose(V[..., j], expected, rtol=1e-12):
            return False
    return True


@pytest.fixture(autouse=True)
def _all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls have all their threads, however long they wait for one another on a busy machine."""
    monkeypatch.setattr(Team, "_judge", lambda *arguments: None)
    for size in (2, 3, 5):
        team(size)._running = size


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs for which members were sent for, in order."""
    seen: list[Job] = []
    original = Team._gather

    def gather(self: Team, job: Job, running: int) -> None:
        seen.append(job)
        original(self, job, running)

    monkeypatch.setattr(Team, "_gather", gather)
    return seen


@pytest.mark.parametrize("schedule", ["sweep", "ghost", "wavefront"])
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_many_calls_with_fresh_vectors_are_all_right(schedule: str, threads: int) -> None:
    P, A = _operator(threads, schedule)
    rng = np.random.default_rng(threads)
    for number in range(40):
        x = rng.standard_normal((_N, 1 + number % 3) if number % 4 else _N)
        assert _right(A, x, P(x)), number


def test_members_that_listen_need_not_be_sent_for(gathered: list[Job]) -> None:
    P, A = _operator(2)
    x = np.ones(_N)
    out = P(x)
    for _ in range(2000):
        P(x, out=out)
    assert _right(A, x, out)
    assert len(gathered) < 500  # a busy machine may keep the caller off its core for longer than members listen


def test_members_that_went_to_sleep_are_woken(gathered: list[Job]) -> None:
    P, A = _operator(2)
    for number in range(4):
        x = np.full(_N, 1.0 + number)
        assert _right(A, x, P(x))
        assert len(gathered) == number + 1
        gone, until = 3 * 2 * LINE, time.monotonic() + 60.0
        while gathered[-1].calls[gone] == 0:  # each offer of the core may take milliseconds on a busy machine
            assert time.monotonic() < until
            time.sleep(0.002)


def test_members_leave_one_job_for_another(gathered: list[Job]) -> None:
    pairs = [_operator(2, seed=seed) for seed in range(3)]
    for number in range(30):
        for P, A in pairs:
            x = np.full(_N, 1.0 + number)
            assert _right(A, x, P(x))
    assert len(gathered) >= 90
    P, A = _operator(2, seed=7)
    P(np.ones(_N))
    del pairs, P  # an operator that is gone while its members may still listen
    gc.collect()
    P, A = _operator(2, seed=8)
    assert _right(A, np.ones(_N), P(np.ones(_N)))


def test_new_values_reach_members_that_listen() -> None:
    P, A = _operator(2)
    x = np.ones(_N)
    for number in range(20):
        A.data = np.random.default_rng(number).uniform(0.1, 0.3, A.nnz)
        P.update_values(A)
        assert _right(A, x, P(x))


def test_callers_in_several_threads_take_turns() -> None:
    pairs = [_operator(2, seed=seed) for seed in range(3)]
    wrong: list[int] = []

    def work(number: int) -> None:
        P, A = pairs[number]
        rng = np.random.default_rng(number)
        for _ in range(30):
            x = rng.standard_normal(_N)
            if not _right(A, x, P(x)):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert not wrong
    assert not any(worker.is_alive() for worker in workers)


def _in_child(operator: akx.MatrixPowers, x: NDArray[Any], connection: Any) -> None:
    connection.send([operator(x) for _ in range(3)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_team_of_its_own() -> None:
    P, A = _operator(2)
    x = np.ones(_N)
    P(x)  # members listen at the time of the fork: the child has none
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(P, x, there))
    child.start()
    try:
        assert here.poll(60), "the forked child hangs"
        assert all(_right(A, x, V) for V in here.recv())
    finally:
        child.kill()
        child.join()
    assert _right(A, x, P(x))


def test_ctrl_c_ends_a_call_and_the_next_one_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    P, A = _operator(3)
    x = np.ones(_N)
    P(x)
    original = Team._gather

    def interrupted(self: Team, job: Job, running: int) -> None:
        original(self, job, running)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.raise_signal(signal.SIGINT)

    for _ in range(3):
        team(3).send_away()  # else members that still listen, on a busy machine for long, would not be sent for
        with monkeypatch.context() as patched:
            patched.setattr(Team, "_gather", interrupted)
            with pytest.raises(KeyboardInterrupt):
                P(x)
        assert team(3)._calls is None  # nobody waits for a call that does not come
        assert _right(A, x, P(x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("moment", ["before", "behind"])
def test_a_child_forked_within_a_call_gets_an_error_and_goes_on(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    P, A = _operator(2)
    x = np.ones(_N)
    P(x)
    original, children = Team._gather, []

    def forks(self: Team, job: Job, running: int) -> None:
        if moment == "behind":
            original(self, job, running)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            children.append(os.fork())
        if children[0] == 0:
            signal.alarm(20)
        if moment == "before":
            original(self, job, running)

    team(2).send_away()
    with monkeypatch.context() as patched:
        patched.setattr(Team, "_gather", forks)
        try:
            V = P(x)
        except akx.DeviceError:
            patched.undo()
            os._exit(0 if _right(A, x, P(x)) else 1)
        if children[0] == 0:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert _right(A, x, V)


def test_what_a_job_raises_is_raised_and_the_team_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)

    def fails(*arguments: Any) -> bool:
        raise RuntimeError("no such kernel")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such kernel"):
            Job(fails, (), 3, np.float64).run(np.ones((1, 4)), np.ones(8))
    P, A = _operator(3)
    assert _right(A, np.ones(_N), P(np.ones(_N)))


def test_calls_of_one_thread_share_no_progress() -> None:
    """Several threads may be in a job of one thread at a time: each would take the other's parts for done."""
    seen: list[NDArray[Any]] = []

    def calls_again(x: Any, out: Any, calls: NDArray[Any], thread: int, sent: bool) -> bool:
        seen.append(calls)
        if len(seen) < 2:
            job.run(x, out)
        return True

    job = Job(calls_again, (), 1, np.float64)
    job.run(np.ones((1, 4)), np.ones(8))
    assert not np.shares_memory(*seen)


def test_a_member_that_fails_alone_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    P, _ = _operator(3)
    x = np.ones(_N)
    V = P(x)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    job = next(iter(P._prepared.programs.values()))._job  # type: ignore[attr-defined]
    original = job.function

    def fails_in_a_member(*arguments: Any) -> bool:
        calls, thread = arguments[-3], arguments[-2]
        if thread == 2:
            raise MemoryError
        while thread == 0 and calls[calls.size - LINE] >= 0:  # else the caller may have done that part before
            time.sleep(0.001)
        return bool(original(*arguments))

    monkeypatch.setattr(job, "function", fails_in_a_member)
    team(3).send_away()
    with pytest.raises(akx.AkxError, match="could not do its part"):
        P(x)
    monkeypatch.undo()
    assert np.array_equal(P(x), V)


@pytest.mark.parametrize("failing", [0, 2])
def test_a_call_that_failed_ends_when_nobody_is_at_work(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    at_work = threading.Event()
    left = []

    def part(*arguments: Any) -> bool:
        calls, thread = arguments[-3], arguments[-2]
        if thread == failing:
            at_work.wait(60)
            raise MemoryError
        if thread == 1:
            at_work.set()
            time.sleep(0.1)
            left.append(thread)
        while calls[calls.size - LINE] >= 0:
            time.sleep(0.001)
        return False

    with pytest.raises((MemoryError, akx.DeviceError)):
        Job(part, (), 3, np.float64).run(np.ones((1, 4)), np.ones(8))
    assert left == [1]
    P, A = _operator(3)
    assert _right(A, np.ones(_N), P(np.ones(_N)))


def test_a_call_within_a_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    P, A = _operator(2)
    x = np.ones(_N)
    original = Team._gather

    def nested(self: Team, job: Job, running: int) -> None:
        with pytest.raises(akx.AkxError, match="in the middle of a call"):
            P(x)
        original(self, job, running)

    team(2).send_away()
    monkeypatch.setattr(Team, "_gather", nested)
    assert _right(A, x, P(x))


_ALARMS = """
import random, signal, time
import numpy as np, scipy.sparse as sp, akx
from akx.core.plan import Plan

class Alarm(Exception):
    pass

def ring(number, frame):
    raise Alarm

A = sp.diags_array([0.2, 0.3, 0.1], offsets=[-1, 0, 1], shape=(4000, 4000), format="csr")
P = akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "csr", k=3, threads=2))
x = np.ones(4000)
expected = P(x).copy()
signal.signal(signal.SIGALRM, ring)
random.seed(1)
rung, end = 0, time.monotonic() + 4
while time.monotonic() < end:
    try:
        time.sleep(0.0015)  # the members sleep
        signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 3e-4))
        V = P(x)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert np.array_equal(V, expected)
    except Alarm:
        rung += 1
assert rung > 10, rung
"""

_LATE = """
import atexit, time
def late():
    time.sleep(0.3)
    print(P(x)[-1, -1])
atexit.register(late)
import numpy as np, scipy.sparse as sp, akx
from akx.core.plan import Plan
A = sp.eye_array(4000, format="csr")
P = akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "csr", k=3, threads=2))
x = np.ones(4000)
P(x)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize("program", [_ALARMS, _LATE], ids=["exceptions at any moment", "calls at exit"])
def test_nothing_hangs(program: str, tmp_path: Path) -> None:
    environment = os.environ | {"AKX_DB": str(tmp_path / "plans.sqlite"), "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_slow_waking_is_no_sign_of_too_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that slept come a millisecond late on a quiet machine too; in a row of calls that is long."""
    monkeypatch.undo()
    monkeypatch.setattr(team_module, "waited", lambda calls: 1_000_000)
    one = Team(2)
    job = Job(lambda *arguments: True, (), 2, np.float64)
    begin = time.perf_counter() - 1.5e-3
    one._judge(job, 2, begin, True)
    assert (one._running, job.seconds) == (2, {})
    one._judge(job, 2, begin, False)
    assert one._running == 1


def test_one_team_of_each_size() -> None:
    assert team(3) is team(3)
    assert team(3) is not team(2)
    made: list[Team] = []
    makers: list[Callable[[], None]] = [lambda: made.append(team(4))] * 4
    workers = [threading.Thread(target=maker) for maker in makers]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(map(id, made))) == 1


def _all_plans(threads: int) -> list[Plan]:
    """Plans of every schedule, in every way to order rows and to share them."""
    blocks: dict[str, Any] = {"k": 5, "k_per_pass": 3, "block_bytes": 4096, "threads": threads}
    shared = Plan("cpu", "wavefront", "csr", **blocks, options={"split": "interleaved", "lag": 1})
    return [
        Plan("cpu", "sweep", "csr", k=5, threads=threads),
        Plan("cpu", "sweep", "csr", k=5, threads=threads, partitioner="rcm"),
        Plan("cpu", "wavefront", "csr", **blocks),
        Plan("cpu", "wavefront", "csr", **blocks, partitioner="rcm"),
        Plan("cpu", "ghost", "csr", **{**blocks, "block_bytes": 16384}),
        *([shared] if threads > 1 else []),
    ]


def _grid() -> Any:
    line = sp.diags_array([0.2, 0.3, 0.1], offsets=[-1, 0, 1], shape=(40, 40))
    return sp.csr_array(sp.kronsum(line, line))


@pytest.mark.parametrize("plan", _all_plans(4), ids=lambda plan: plan.label())
def test_bits_do_not_depend_on_how_many_threads_run(plan: Plan) -> None:
    A, rng = _grid(), np.random.default_rng(0)
    P = akx.MatrixPowers(A, 5, plan=plan, basis=chebyshev(5, (0.1, 1.0)))
    x = rng.standard_normal((A.shape[0], 2))
    found = []
    for running in (1, 2, 3, 4, 1):
        team(4)._running = running
        found.append(P(x).tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("plan", _all_plans(3), ids=lambda plan: plan.label())
@pytest.mark.parametrize("missing", [{1, 2}, {1}, {2}], ids=str)
def test_parts_of_members_that_do_not_come_are_done(
    plan: Plan, missing: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    A = _grid()
    P = akx.MatrixPowers(A, 5, plan=plan)
    x = np.random.default_rng(1).standard_normal(A.shape[0])
    expected = P(x).tobytes()
    team(3).send_away()
    inboxes = list(team(3)._inboxes)
    sink: list[Any] = [SimpleQueue() if number in missing else inbox for number, inbox in enumerate(inboxes, 1)]
    monkeypatch.setattr(team(3), "_inboxes", sink)
    for _ in range(3):
        assert P(x).tobytes() == expected
    for number in missing:  # they come late, between two calls
        while not sink[number - 1].empty():
            inboxes[number - 1].put(sink[number - 1].get())
    for _ in range(50):
        assert P(x).tobytes() == expected


def test_a_member_that_comes_late_does_the_rest_of_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts are not the caller's for good: after the call both have counted steps of the same part."""
    P, A = _operator(2, "wavefront")
    x = np.ones(_N)
    for wait in (0.0, 0.0002, 0.0005, 0.001):
        team(2).send_away()
        (inbox,), late = team(2)._inboxes, SimpleQueue()
        monkeypatch.setattr(team(2), "_inboxes", [late])

        def pass_on(late: Any = late, inbox: Any = inbox, wait: float = wait) -> None:
            part = late.get()
            time.sleep(wait)
            inbox.put(part)

        helper = threading.Thread(target=pass_on)
        helper.start()
        V = P(x)
        helper.join(timeout=60)
        monkeypatch.undo()
        monkeypatch.setattr(Team, "_judge", lambda *arguments: None)
        assert _right(A, x, V)
        assert _right(A, x, P(x))


def test_the_wait_that_ends_a_call_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has nothing left to do, and a member that holds a part does not go on for a while."""
    calls = new_calls(2, 2)
    x, out = np.ones((1, 4)), np.ones(8)
    number = begin(calls, 0, True, x, out)
    assert hold(calls, 0, number, 0)
    assert hold(calls, 1, number, 1)
    advanced(calls, number, 0, 1, 1)
    end, part, idle = time.monotonic() + 0.02, 0, 0
    while part >= 0:
        idle += 1
        if time.monotonic() > end:
            advanced(calls, number, 1, 1, 1)
        part = turn(calls, 0, number, part, idle)
    assert finish(calls, 0, number) == 0
    assert 0.005 < 1e-9 * waited(calls) < 1.0


class _Calls:
    """Judgements on calls of a pair, by a clock of the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()  # judge again
        self.now, self.team = 100.0, Team(2)
        self.job = Job(lambda *arguments: True, (), 2, np.float64)
        monkeypatch.setattr(team_module.time, "perf_counter", lambda: self.now)

    def call(self, seconds: dict[int, float], lost: float, rest: float = 0.0) -> int:
        """A call that takes so long with so many threads; a pair waits so long in it. The threads that it had."""
        seen: list[int] = []

        def work(*arguments: Any) -> bool:
            calls = arguments[-3]
            running = int(calls[calls.size - LINE + 5])
            seen.append(running)
            calls[2 * 2 * LINE + 1] = round(1e9 * lost) if running == 2 else 0
            self.now += seconds[running]
            return True

        self.job.function = work
        self.team.run(self.job, np.ones((1, 1)), np.ones(2))
        self.now += rest
        return seen[-1]


def test_a_call_that_waited_long_is_followed_by_calls_with_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _Calls(monkeypatch)
    quiet, crowded = {1: 1e-3, 2: 0.6e-3}, {1: 1e-3, 2: 5e-3}
    assert [calls.call(quiet, 0.0) for _ in range(5)] == [2] * 5
    assert calls.call(crowded, 4e-3) == 2
    assert [calls.call(crowded, 4e-3) for _ in range(5)] == [1] * 5
    row = [calls.call(crowded, 4e-3) for _ in range(20_000)]
    assert 2 in row  # it is tried again
    assert row.count(2) < 80  # two calls each time, of which the first is not judged; less and less often
    seconds = sum(crowded[running] for running in row)
    assert seconds < 1.02 * len(row) * crowded[1]
    row = [calls.call(quiet, 0.0) for _ in range(3000)]
    assert row[-1500:] == [2] * 1500  # and is back within a second or two


def test_waiting_for_moments_or_for_an_uneven_share_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _Calls(monkeypatch)
    assert [calls.call({1: 4e-5, 2: 3e-5}, 2e-5) for _ in range(50)] == [2] * 50
    uneven = [calls.call({1: 1e-3, 2: 0.8e-3}, 0.4e-3) for _ in range(2000)]
    assert uneven.count(1) < 50  # one thread was tried, and is slower


def test_one_long_wait_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _Calls(monkeypatch)
    for _ in range(10):
        assert calls.call({1: 1e-3, 2: 5e-3}, 4e-3, rest=10.0) == 2
        row = [calls.call({1: 1e-3, 2: 0.6e-3}, 0.0, rest=1e-3) for _ in range(20)]
        assert row.count(1) <= 5
        calls.now += 10.0


_AFFINITY = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there are no cores to choose from"
)


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """The cores that this thread may run on, which it may again in the end."""
    cores = os.sched_getaffinity(0)
    yield cores
    os.sched_setaffinity(0, cores)


def _said(calls: NDArray[np.int64], thread: int) -> int:
    """The core where that thread last waited."""
    return int(calls[thread * LINE + 1] & ((1 << _CALL) - 1)) - 1


def _words(cores: list[int], call: int = 0, said_in: int | None = None) -> NDArray[np.int64]:
    """Words of a team in the middle of that call, whose threads were last seen on `cores`, by default in that call."""
    calls = new_calls(len(cores), len(cores))
    calls[calls.size - LINE] = call
    for one, core in enumerate(cores):
        calls[one * LINE + 1] = ((call if said_in is None else said_in) << _CALL) + core + 1
    return calls


def _in_place_of_a_member(calls: NDArray[np.int64], core: int, allowed: set[int]) -> tuple[int, int, set[int]]:
    """Thread 1 waits on `core` for thread 0: the cores before and after, and those allowed."""
    os.sched_setaffinity(0, {core})
    os.sched_setaffinity(0, allowed)
    before = int(_say_core(calls, 1) & ((1 << _CALL) - 1)) - 1
    _make_way(calls, 1, 0)
    return before, _said(calls, 1), os.sched_getaffinity(0)


@_AFFINITY
@pytest.mark.parametrize("call", [0, 1, 2**40])
def test_a_member_leaves_the_core_of_the_one_it_waits_for(allowed: set[int], call: int) -> None:
    for core in sorted(allowed)[:4]:
        found = [_in_place_of_a_member(_words([core, core], call), core, allowed) for _ in range(20)]
        stayed = [after for before, after, _ in found if before == core]
        assert len(stayed) >= 10  # else the system moved it first, each time
        assert core not in stayed
        assert all(mask == allowed for _, _, mask in found)


@_AFFINITY
def test_it_moves_to_a_core_where_none_of_the_team_was_seen(allowed: set[int]) -> None:
    *taken, free = sorted(allowed)
    team_of_many = [taken[0], taken[0], *taken]  # two on the first core, and each of the others but one is taken
    found = [_in_place_of_a_member(_words(team_of_many), taken[0], allowed) for _ in range(20)]
    moved = [after for before, after, _ in found if before == taken[0]]
    assert len(moved) >= 10
    assert set(moved) == {free}


@_AFFINITY
def test_where_there_is_no_such_core_it_stays(allowed: set[int]) -> None:
    core = min(allowed)
    for _ in range(20):
        calls = _words([core, core, *sorted(allowed)])  # more threads than cores
        assert not _move(calls)
        before, after, mask = _in_place_of_a_member(calls, core, {core})  # or one core to run on
        assert (before, after, mask) == (core, core, {core})


@_AFFINITY
def test_it_stays_where_the_other_has_said_nothing_since_the_last_call(allowed: set[int]) -> None:
    core = min(allowed)
    found = [_in_place_of_a_member(_words([core, core], 3, said_in=2), core, allowed) for _ in range(20)]
    assert [before for before, _, _ in found].count(core) >= 10
    assert sum(before == after for before, after, _ in found) >= 18  # the system may move it


@_AFFINITY
def test_cores_beyond_those_that_fit_a_set_do_not_matter() -> None:
    before = os.sched_getaffinity(0)
    calls = _words([0, 0, 64 * CORE_WORDS, (1 << _CALL) - 2])
    calls[LINE] = 7  # a counter beside the word, which is to be as it was
    _move(calls)
    assert os.sched_getaffinity(0) == before
    assert calls[LINE] == 7


@_AFFINITY
def test_the_thread_of_the_caller_is_never_moved(allowed: set[int]) -> None:
    core = min(allowed)
    found = []
    for _ in range(20):
        calls = _words([-1, core])
        os.sched_setaffinity(0, {core})
        os.sched_setaffinity(0, allowed)
        _make_way(calls, 0, 1)
        _say_core(calls, 0)
        found.append(_said(calls, 0))
    assert found.count(core) >= 10


@_AFFINITY
def test_threads_that_the_system_put_on_one_core_part(allowed: set[int]) -> None:
    P, A = _operator(2)
    x = np.ones(_N)
    P(x)
    job = next(iter(P._prepared.programs.values()))._job  # type: ignore[attr-defined]
    before = set(threading.enumerate())
    pair = Team(2)
    (member,) = set(threading.enumerate()) - before
    assert member.native_id is not None
    core, out = min(allowed), np.empty(4 * _N)
    os.sched_setaffinity(0, {core})
    for _ in range(5):
        os.sched_setaffinity(member.native_id, {core})
        pair.run(job, x[None], out)  # on one core, and on none else
        assert [_said(job.calls, thread) for thread in range(2)] == [core, core]
        os.sched_setaffinity(member.native_id, allowed)
        parted = False
        for _ in range(200):
            out[:] = np.nan
            pair.run(job, x[None], out)
            assert _right(A, x, out.reshape(4, _N).T)
            assert _said(job.calls, 0) == core
            parted = _said(job.calls, 1) not in (-1, core)
            if parted:
                break
        assert parted
        assert os.sched_getaffinity(member.native_id) == allowed


def test_a_job_that_a_thread_does_alone_keeps_no_call_waiting() -> None:
    """It has its first run beside calls: its function is loaded meanwhile, which may take seconds."""
    loaded, entered = threading.Event(), threading.Event()

    def load(*arguments: Any) -> bool:
        entered.set()
        return loaded.wait(20.0)

    def first_run() -> None:
        with alone():
            Job(load, (), 2, np.float64).run(*call)

    call = np.zeros((1, 4)), np.zeros(8)
    usual = Job(lambda *arguments: True, (), 2, np.float64)
    usual.run(*call)
    threads = [threading.Thread(target=first_run), threading.Thread(target=usual.run, args=call)]
    try:
        threads[0].start()
        assert entered.wait(20.0)
        threads[1].start()
        threads[1].join(5.0)
        assert not threads[1].is_alive()
    finally:
        loaded.set()
        for thread in threads:
            thread.join()


def test_one_thread_does_all_parts_with_the_same_bits() -> None:
    P, A = _operator(3)
    x = np.random.default_rng(1).standard_normal(_N)
    together = P(x)
    with alone():
        by_itself = P(x)
    assert _right(A, x, by_itself)
    assert np.array_equal(together, by_itself)
    assert np.array_equal(together, P(x))
