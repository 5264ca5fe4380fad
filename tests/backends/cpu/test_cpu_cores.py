"""Whether threads have cores of their own, from moment to moment."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest
import scipy.sparse as sp

from akx.backends.cpu.cores import CoreState, CoreWatch, core_state
from akx.backends.cpu.thread_team import team
from akx.backends.host import HostDevice, default_threads
from akx.backends.schedule import TimedCall
from akx.core.matrix import Matrix
from akx.tuner.measure import Precision, interleave
from akx.tuner.space import build_space
from akx.tuner.trial.bench import _watch

_OWN, _FAR, _SHARED = CoreState(1.05, 1e-7), CoreState(1.05, 4e-7), CoreState(1.9, 0.3e-7)


class Scripted(CoreWatch):
    """Looks as a list says, one after another; the last for ever."""

    def __init__(self, *states: CoreState) -> None:
        super().__init__(2)
        self.states, self.looked = list(states), 0

    def look(self) -> CoreState:
        self.looked += 1
        self._remember(state := self.states[min(self.looked, len(self.states)) - 1])
        return state


class Steady(TimedCall):
    """A call that takes a millisecond by a clock of its own."""

    def __call__(self) -> None:
        pass

    def timed(self, batch: int) -> float:
        return 1e-3


def test_rounds_on_cores_that_are_shared_or_far_apart_are_found() -> None:
    watch = Scripted(_OWN)
    watch.look()
    assert watch.slow([_OWN, _FAR, _SHARED, None, _OWN]) == [1, 2]
    assert watch.note is None
    watch.accept([_FAR, None])
    assert watch.slow([_OWN, _FAR, _SHARED]) == [2], "they stay far apart, and sharing one is another thing"
    assert watch.note is not None
    assert "2 threads" in watch.note
    watch.accept([_SHARED])
    assert watch.slow([_OWN, _FAR, _SHARED]) == []


def test_cores_that_were_far_apart_from_the_beginning_are_not_taken_for_slow() -> None:
    """Of two sockets, say: nothing nearer has been seen."""
    watch = Scripted(_FAR, _OWN)
    assert watch.slow([watch.look()]) == []
    watch.look()
    assert watch.slow([_FAR, _OWN]) == [0], "something nearer has"


def test_two_threads_of_one_core_meet_sooner_and_are_no_measure_of_what_is_far() -> None:
    watch = Scripted(_SHARED, _OWN)
    assert watch.slow([watch.look()]) == [], "it may be by design"
    watch.look()
    assert watch.slow([_SHARED, _OWN, _FAR]) == [0, 2]


def test_threads_that_share_cores_by_design_are_not_slow() -> None:
    """One for each hardware thread: nothing better has been seen."""
    watch = Scripted(CoreState(1.8, 1e-7))
    states = [watch.look() for _ in range(30)]
    assert watch.slow(states) == []
    watch.accept(states)
    assert watch.note is None


def test_what_was_spoilt_by_something_else_is_not_accepted() -> None:
    watch = Scripted(_OWN)
    watch.look()
    watch.accept([_OWN] * 7)
    assert watch.note is None
    watch.accept([_OWN] * 5 + [_SHARED, CoreState(9.0, 5e-5), _SHARED])
    assert watch.note is not None
    assert watch.slow([_SHARED]) == []
    assert watch.slow([CoreState(3.5, 1e-7)]) == [0], "one stop of a thread is no measure"


def test_it_is_told_where_cores_were_shared_all_the_time_in_timings_that_were_too_short_to_say() -> None:
    watch = Scripted(_OWN, *[_SHARED] * 11)
    for _ in range(11):
        watch.look()
    assert watch.note is None
    watch.look()
    assert watch.note is not None


def test_where_it_cannot_be_found_out_nothing_is_spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(threads: int) -> CoreState:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("akx.backends.cpu.cores.core_state", fails)
    watch = CoreWatch(2)
    assert watch.look() is None
    assert watch.slow([None, None]) == []


def test_looks_take_a_sixth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def looks(threads: int) -> CoreState:
        nonlocal now
        now += 0.01
        return _OWN

    monkeypatch.setattr("akx.backends.cpu.cores.core_state", looks)
    monkeypatch.setattr("akx.backends.cpu.cores.time", SimpleNamespace(perf_counter=lambda: now))
    watch, found = CoreWatch(2), []
    for _ in range(100):
        found.append(watch.look())
        now += 0.005
    assert found[0] == _OWN
    assert found.count(_OWN) == len(watch.seen)
    assert 0.01 * len(watch.seen) <= now / 6 + 0.01


def test_a_look_that_had_to_be_compiled_is_soon_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def looks(threads: int) -> CoreState:
        nonlocal now
        now += 2.0 if now == 0.0 else 4e-4
        return _OWN

    monkeypatch.setattr("akx.backends.cpu.cores.core_state", looks)
    monkeypatch.setattr("akx.backends.cpu.cores.time", SimpleNamespace(perf_counter=lambda: now))
    watch = CoreWatch(2)
    assert watch.look() == _OWN
    now += 0.05
    assert watch.look() is None
    now += 0.06
    assert watch.look() == _OWN


@pytest.mark.parametrize(("n", "expected"), [(100, False), (2000, True)])
def test_nobody_looks_at_cores_for_plans_of_one_thread(n: int, expected: bool) -> None:
    matrix = Matrix.from_any(sp.diags_array([1.0] * 3, offsets=[-1, 0, 1], shape=(n, n)))
    space = build_space(matrix, 4, HostDevice("two cores", 2, 2**15, 2**20, 2**25), threads=2)
    assert (_watch(space) is not None) == expected
    assert _watch(build_space(matrix, 4, HostDevice("one core", 1, 2**15, 2**20, 2**25), threads=1)) is None


@pytest.mark.parametrize("state", [_FAR, _SHARED], ids=["far", "shared"])
def test_rounds_are_taken_again_until_the_cores_are_back(state: CoreState) -> None:
    watch = Scripted(_OWN, state, state, _OWN)
    (measured,) = interleave([Steady()], Precision(1e-9, 5.0, 3, 3), watch=watch)
    assert len(measured.samples) == 3
    assert watch.looked == 5
    assert watch.note is None


def test_where_they_stay_so_all_rounds_count_and_it_is_told() -> None:
    watch = Scripted(_OWN, _SHARED)
    (measured,) = interleave([Steady()], Precision(1e-9, 60.0, 9, 9), watch=watch)
    assert len(measured.samples) == 9
    assert watch.note is not None


def test_threads_that_are_kept_on_one_core_are_seen_to_share_it() -> None:
    """By the affinity of all threads of this process, which members of the team have as well."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is None or len(affinity(0)) < 2:
        pytest.skip("one core, or a system without affinity")
    core_state(2)  # nothing is left to compile, and the team is there
    team(2).send_away()  # a member that listens may be about to move to another core, and to set its affinity for that
    time.sleep(0.05)
    mine = affinity(0)
    members = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("akx-")]
    try:
        for thread in [0, *members]:
            os.sched_setaffinity(thread, {min(mine)})
        end, kept = time.monotonic() + 5.0, core_state(2)
        while kept.together <= 1.8 and time.monotonic() < end:  # one thread alone had to share the core, too
            time.sleep(0.01)
            kept = core_state(2)
    finally:
        for thread in [0, *members]:
            os.sched_setaffinity(thread, mine)
    assert kept.together > 1.8, kept
    end, seen = time.monotonic() + 5.0, [core_state(2)]
    while seen[-1].together > 0.8 * kept.together and time.monotonic() < end:
        time.sleep(0.01)
        seen.append(core_state(2))
    if seen[-1].together > 0.8 * kept.together and os.getloadavg()[0] > 0.8 * len(mine):
        pytest.skip("other processes have the cores")
    assert seen[-1].together < 0.8 * kept.together, (seen, kept)
    assert seen[-1].meeting > 0


def test_a_state_is_measured_while_others_use_the_team() -> None:
    """They take turns."""
    threads = max(2, min(default_threads(), 4))
    states: list[CoreState] = []
    others = [threading.Thread(target=lambda: states.append(core_state(threads))) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert len(states) == 3
    assert all(state.meeting > 0 and state.together > 0 for state in states)
    team(threads).send_away()
