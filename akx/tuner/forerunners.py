"""Processes in which plans run first: one for the plan that is asked for, others for what may be asked for next.

What a trial on a GPU takes is mostly the compiler, and that runs on one core while the device waits. So plans that the
search is likely to come up with are prepared, compiled and run ahead, each in a process of its own
(:mod:`akx.tuner.canary`), while another is tried here. Kernels that were compiled there are in the store of machine
code, and whether the plan crashes is known. What is tried next, and what it is found to take, do not depend on it; for
their runs the processes take their turn at the device.

With ``m`` processes more than one, a plan costs the search what is left of (compile + run first) / m, where it was
foreseen, instead of all of it.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress

from akx.device.host import host_device
from akx.plan import Plan
from akx.tuner.canary import UNANSWERED, Canary
from akx.tuner.verify import Problem

__all__ = ["Forerunners", "processes_ahead"]

#: Processes at most that run plans ahead, and cores that are left to others: to the search, and to what it asks for.
_MOST, _OTHER_CORES = 4, 2
#: What a context takes on the device, and copies of the matrix and the vectors that there may be with it, in bytes.
_CONTEXT, _COPIES = 600 * 2**20, 4
#: Share of the device's memory that all of these may take.
_MEMORY_SHARE = 0.25
#: Seconds that a plan which cannot crash is waited for, where it is being run ahead: it is tried without.
_COMING = 5.0


def processes_ahead(problem: Problem, memory_bytes: int, cores: int | None = None) -> int:
    """How many processes may run plans ahead, beside the one for the plan asked for; 0 where cores or memory are few.

    Parameters
    ----------
    problem : Problem
    memory_bytes : int
        Of the device.
    cores : int, optional
        Of the host; by default those of this process.
    """
    cores = host_device().cores if cores is None else cores
    matrix = problem.matrix
    held = matrix.indptr.nbytes + matrix.indices.nbytes + matrix.data.nbytes + problem.x.nbytes + problem.out.nbytes
    fitting = int(_MEMORY_SHARE * memory_bytes / (_CONTEXT + _COPIES * held)) - 1
    return max(0, min(_MOST, cores - _OTHER_CORES, fitting))


class Forerunners:
    """Where candidates run first.

    Parameters
    ----------
    problem : Problem
        What they compute.
    ahead : int
        Processes for plans that nobody has asked for yet; none by default.
    make : callable
        Makes one process; a :class:`Canary` by default.

    Attributes
    ----------
    gave_up : bool
        Whether the plan that was asked for last was not given the time to answer.
    """

    def __init__(self, problem: Problem, *, ahead: int = 0, make: Callable[[Problem], Canary] = Canary) -> None:
        self.gave_up = False
        self._idle: queue.SimpleQueue[Canary] = queue.SimpleQueue()
        self._all = [make(problem) for _ in range(1 + ahead)]
        for canary in self._all:
            self._idle.put(canary)
        self._most, self._under_way, self._is_new = ahead, 0, True
        self._known: dict[Plan, Future[str | None]] = {}
        self._turn = threading.Lock()

    @property
    def room(self) -> int:
        """Plans that could be run ahead at once now: one more at first, so that all processes come up together."""
        return self._most - self._under_way + (self._is_new and self._most > 0)

    def ahead(self, plans: Iterable[Plan]) -> None:
        """Run the first of `plans` that are new here, as many as there is room for. Does not wait."""
        for plan in plans:
            if self.room <= 0:
                break
            if plan in self._known:
                continue
            answer: Future[str | None] = Future()
            with self._turn:
                self._under_way += 1
            self._known[plan] = answer
            threading.Thread(target=self._run, args=(plan, answer), name="akx-ahead", daemon=True).start()
        self._is_new = False

    def await_coming(self, plan: Plan) -> None:
        """Wait for a plan that is being run ahead, for some seconds: what it compiles need not be compiled here."""
        if plan in self._known:
            with suppress(FutureTimeoutError):
                self._known[plan].exception(_COMING)

    def reason_against(self, plan: Plan, most: float = math.inf) -> str | None:
        """What became of a plan that ran ahead, or runs now: see :meth:`Canary.reason_against`."""
        self.gave_up = False
        coming = self._known.get(plan)
        if coming is None:
            canary = self._idle.get()
            try:
                reason = canary.reason_against(plan, most)
            finally:
                self._idle.put(canary)
            self.gave_up = canary.gave_up
            if not self.gave_up:
                self._known[plan] = Future()
                self._known[plan].set_result(reason)
            return reason
        try:
            return coming.result(None if most == math.inf else most)
        except FutureTimeoutError:
            self.gave_up = True
            return f"{UNANSWERED} within {most:g} s"

    def close(self) -> None:
        """End the processes, those at work too."""
        for canary in self._all:
            canary.end()

    def _run(self, plan: Plan, answer: Future[str | None]) -> None:
        canary = self._idle.get()
        try:
            reason = canary.reason_against(plan)
        except Exception as failure:  # for whoever asks
            answer.set_exception(failure)
        else:
            answer.set_result(reason)
        finally:
            with self._turn:
                self._under_way -= 1
            self._idle.put(canary)
