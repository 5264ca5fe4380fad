"""Whether the threads of a team have cores of their own, and how near these are, from moment to moment.

The host of a virtual machine decides again and again where its cores run: for seconds or minutes two of them may be
the two hardware threads of one core, or share no cache. Plans of several threads are slower then, each in a way of its
own: what was measured in such a time is not what a plan takes, nor is the order of plans.

Two figures tell. All threads do sums in registers, each as many as one thread does alone: that takes as long where each
has a core for itself, and 1.8 times as long and more where two share one. And all threads meet, again and again, by
words that they write for one another: 0.1 us through a cache that they share, several times that without. Both are
compared with the least that has been seen, since threads may share cores by design, and cores need not be alike.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from akx.backends.cpu.jit import jit, jit_inner
from akx.backends.cpu.thread_sync import advanced, all_reached, begin, finish, first_part, hold, let_go, position, turn
from akx.backends.cpu.thread_team import Job, team
from akx.core.errors import AkxError

__all__ = ["CoreState", "CoreWatch", "core_state"]

#: Cores are shared where sums take so many times as long together as they did at best.
_SHARED = 1.5
#: Cores are far apart where meeting takes so many times as long as it did at best, on cores that were not shared.
_FAR = 2.5
#: Steps of the sums, some 30 us, beside which it hardly counts what it takes to hand them over; meetings, some 10 us;
#: and how often each is done: the least counts.
_STEPS, _MEETINGS, _TIMES = 16_000, 100, 4
#: Seconds after which an exercise is not done again: other processes have the cores.
_LONG = 2e-3
#: How many times as long as a look took there is none, and seconds at most: where other processes have the cores it
#: takes long; the first, which compiles, takes seconds and is no measure.
_REST, _LONGEST_REST = 5, 0.1
#: Looks that are remembered; those that must have found cores shared or far apart before it is told.
_REMEMBERED, _OFTEN = 200, 10


@dataclass(frozen=True)
class CoreState:
    """Where the threads of a team run.

    `together`: how many times as long sums in registers take on all threads at once as on one. `meeting`: seconds for
    all threads to meet once.
    """

    together: float
    meeting: float


@jit_inner
def _sums(steps: int, seed: int) -> Any:
    """Four chains of shifts (Marsaglia's xorshift64), which keep the units for integers busy."""
    a, b = np.uint64(seed + 1), np.uint64(seed + 2)
    c, d = np.uint64(seed + 3), np.uint64(seed + 4)
    for _ in range(steps):
        a ^= a << np.uint64(13)
        b ^= b << np.uint64(13)
        c ^= c << np.uint64(13)
        d ^= d << np.uint64(13)
        a ^= a >> np.uint64(7)
        b ^= b >> np.uint64(7)
        c ^= c >> np.uint64(7)
        d ^= d >> np.uint64(7)
        a ^= a << np.uint64(17)
        b ^= b << np.uint64(17)
        c ^= c << np.uint64(17)
        d ^= d << np.uint64(17)
    return np.int64((a ^ b ^ c ^ d) >> np.uint64(1))


@jit
def _exercise(todo: Any, sums: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool) -> Any:
    """todo[0] meetings of all parts, then todo[1] steps of sums by each; a job of a team.

    sums : (parts,) int64, what came of the sums.
    """
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    while number > 0:
        part, idle = first_part(calls, thread), 0
        while part >= 0:
            idle += 1
            if hold(calls, thread, number, part):
                at, total = position(calls, number, part), todo[0] + 1
                while at < total and (at == 0 or all_reached(calls, number, at)):
                    if at == total - 1:
                        sums[part] = _sums(todo[1], part + number % 2)
                    at += 1
                    advanced(calls, number, part, at, total)
                    idle = 0
                let_go(calls, thread, number, part)
            part = turn(calls, thread, number, part, idle)
        number = finish(calls, thread, number)
    return number == 0


class _Exercises:
    """The job for so many threads, whose members stay from one exercise to the next."""

    def __init__(self, threads: int) -> None:
        self._todo = np.zeros(2, dtype=np.int64)
        sums = np.zeros(threads, dtype=np.int64)
        self._job = Job(_exercise, (self._todo, sums), threads, np.dtype(np.float64))
        self._x, self._out = np.empty((1, 0)), np.empty(0)

    def seconds(self, meetings: int, steps: int) -> float:
        """What one exercise takes: the least of some, of which the first may have to wake the members."""
        self._todo[:] = meetings, steps
        least = math.inf
        for _ in range(_TIMES):
            start = time.perf_counter()
            self._job.run(self._x, self._out)
            took = time.perf_counter() - start
            least = min(least, took)
            if took > _LONG:
                break
        return least


def core_state(threads: int) -> CoreState:
    """Where so many threads, two or more, run now. Takes some tenths of a millisecond."""
    team(threads).send_away()  # who listens for a call has not left its core
    alone = _Exercises(1).seconds(0, _STEPS)
    exercises = _Exercises(threads)
    return CoreState(exercises.seconds(0, _STEPS) / alone, exercises.seconds(_MEETINGS, 0) / _MEETINGS)


class CoreWatch:
    """Which of several rounds of a timing ran on cores that were shared or far apart, by a look after each.

    What never ends is no disturbance: once :meth:`accept` was told so, it counts for nothing.

    `threads`: of the team, two or more. `seen`: what earlier watches saw (:attr:`seen`). `seen`: what was seen last.
    """

    def __init__(self, threads: int, seen: Sequence[CoreState] = ()) -> None:
        self.seen = deque(seen, _REMEMBERED)
        self._threads = threads
        self._most_together, self._most_meeting = 0.0, 0.0
        self._looks = self._spoilt = 0
        self._next = 0.0
        self._accepted = False

    @property
    def note(self) -> str | None:
        """What is to be told of it; None where cores were never shared or far apart for longer than a timing."""
        if not self._accepted and self._spoilt <= max(_OFTEN, self._looks // 2):
            return None
        return (
            f"for longer than a timing the {self._threads} threads had no cores of their own, or such as share no "
            "cache, as the host of a virtual machine may have it: at other times other plans may be faster; --retune "
            "(retune=True) tells more"
        )

    def look(self) -> CoreState | None:
        """Where the threads run now; None where that cannot be found out, or looks would take too much of the time."""
        begin = time.perf_counter()
        if begin < self._next:
            return None
        try:
            state = core_state(self._threads)
        except (AkxError, RuntimeError):  # a call from within a call; no more threads
            return None
        end = time.perf_counter()
        self._next = end + min(_REST * (end - begin), _LONGEST_REST)
        self._remember(state)
        return state

    def _remember(self, state: CoreState) -> None:
        self.seen.append(state)
        self._looks += 1
        self._spoilt += len(self.slow([state]))

    def slow(self, states: Sequence[CoreState | None]) -> list[int]:
        """The places of rounds in which cores were shared or far apart."""
        shared = _SHARED * max(1.0, min((one.together for one in self.seen), default=1.0))
        nearest = min((one.meeting for one in self.seen if one.together <= shared), default=math.inf)
        shared, far = max(shared, self._most_together), max(_FAR * nearest, self._most_meeting)
        return [
            place
            for place, state in enumerate(states)
            if state is not None and (state.together > shared or state.meeting > far)
        ]

    def accept(self, states: Sequence[CoreState | None]) -> None:
        """The cores stay as they are in those of these that are shared or far apart, as far as anybody can tell."""
        kept = [states[place] for place in self.slow(states)]
        slow = [state for state in kept if state is not None]
        if slow:
            self._accepted = True
            self._most_together = max(self._most_together, _SHARED * median(state.together for state in slow))
            self._most_meeting = max(self._most_meeting, _SHARED * median(state.meeting for state in slow))
