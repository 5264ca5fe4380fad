"""Processes in which plans run first: for what is asked, and to get ready before what may be asked for next.

What a trial on a GPU takes is mostly the compiler, and that runs on one core while the device waits. So plans that the
search is likely to come up with are prepared and compiled ahead, each in a process of its own
(:mod:`akx.tuner.sandbox`), while another is tried here. When one is asked for, its kernels are in the store of
machine code, and the process that has it ready runs it at once. Nothing is launched before it is asked for, so that a
plan that hangs does so when nobody measures here; what goes wrong ahead is no verdict: the plan runs first when it is
asked for, as if nothing had been.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from akx.backends.host import host_device
from akx.core.fork_safety import ForkSafeLock
from akx.core.plan import Plan
from akx.tuner.sandbox import SHARE, SPARED_CORES, UNANSWERED, Sandbox, available_bytes

if TYPE_CHECKING:
    from akx.tuner.trial.problem import Problem

__all__ = ["CompileAhead", "processes_ahead"]

#: Processes at most beside the one for what is asked.
_MOST = 8
#: Bytes that a context takes on the device, and copies of the matrix and the vectors that there may be with it; those
#: that a process takes of the host's memory, and copies of the matrix there.
_CONTEXT, _COPIES = 600 * 2**20, 4
_HOST, _HOST_COPIES = 500 * 2**20, 8
#: Seconds that a plan which cannot crash is waited for, where it is being got ready: then it is tried without.
_COMING = 5.0
#: Seconds that threads are waited for whose processes were ended.
_ENDING = 5.0


def processes_ahead(problem: Problem, free_bytes: int, cores: int | None = None, host_bytes: int | None = None) -> int:
    """How many processes may get plans ready, beside the one for the plan asked for; 0 where cores or memory are few.

    `free_bytes` are of the device's memory; cores, and `host_bytes` that are free, are by default as the system says.
    """
    cores = host_device().cores if cores is None else cores
    host_bytes = available_bytes() if host_bytes is None else host_bytes
    matrix = problem.matrix
    held = matrix.indptr.nbytes + matrix.indices.nbytes + matrix.data.nbytes
    on_device = held + problem.x.nbytes + problem.out.nbytes
    fitting = int(SHARE * free_bytes / (_CONTEXT + _COPIES * on_device)) - 1
    there = int(SHARE * host_bytes / (_HOST + _HOST_COPIES * held)) - 1
    return max(0, min(_MOST, cores - SPARED_CORES, fitting, there))


class CompileAhead:
    """Where candidates of a problem run first, with so many processes `ahead` for plans that nobody has asked for yet.

    `make` makes a process. `gave_up` says whether the plan that was asked for last was not given the time to answer.
    """

    def __init__(self, problem: Problem, *, ahead: int = 0, make: Callable[[Problem], Sandbox] = Sandbox) -> None:
        self.gave_up = False
        self._all = [make(problem) for _ in range(1 + ahead)]
        self._idle = list(self._all)
        self._most, self._is_new, self._is_closed = ahead, True, False
        self._coming: dict[Plan, Sandbox] = {}
        self._ready: dict[Plan, Sandbox] = {}
        self._begun: set[Plan] = set()
        self._have_come: set[Sandbox] = set()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition(ForkSafeLock())

    @property
    def room(self) -> int:
        """Plans that could be begun at once now: one more at first, so that all processes come up together."""
        if self._most == 0 or self._is_closed:
            return 0
        return max(0, min(len(self._idle), self._most + self._is_new - len(self._coming)))

    def ahead(self, plans: Iterable[Plan]) -> None:
        """Get the first of `plans` ready that were not begun yet, as many as there is room for. Does not wait."""
        new = (plan for plan in plans if plan not in self._begun)
        while self.room > 0:
            plan = next(new, None)
            if plan is None or not self._begin(plan):
                break
        self._is_new = False

    def await_coming(self, plan: Plan, most: float = math.inf) -> None:
        """Wait for a plan that is being got ready, for some seconds: what it compiles need not be compiled here.

        Not for a process that is still coming up: that takes longer than to compile most kernels, or to find them kept.
        """
        with self._changed:
            if self._coming.get(plan) in self._have_come:
                self._changed.wait_for(lambda: plan not in self._coming, min(_COMING, most))

    def reason_against(self, plan: Plan, most: float = math.inf) -> str | None:
        """As :meth:`Sandbox.reason_against`, in the process that has it ready, else in one that is up, else in any."""
        begin, limit = time.monotonic(), None if most == math.inf else most
        self._begun.add(plan)
        with self._changed:
            self.gave_up = not self._changed.wait_for(lambda: plan not in self._coming and bool(self._idle), limit)
            if self.gave_up:
                return f"{UNANSWERED} within {most:g} s"
            sandbox = self._ready.get(plan)
            if sandbox not in self._idle:
                sandbox = max(self._idle, key=lambda one: one.is_up)
            assert sandbox is not None
            self._take(sandbox)
        try:
            reason = sandbox.reason_against(plan, most - (time.monotonic() - begin))
            self.gave_up = sandbox.gave_up
            return reason
        finally:
            self._put_back(sandbox)

    def close(self) -> None:
        """End the processes, those at work too, and wait for that."""
        self._is_closed = True
        for sandbox in self._all:
            sandbox.end()
        for thread in self._threads:
            thread.join(_ENDING)
        for sandbox in self._idle:
            sandbox.close()

    def _begin(self, plan: Plan) -> bool:
        """Begin with a plan in a process that has waited for longest; whether that could be done."""
        self._begun.add(plan)
        with self._changed:
            sandbox = self._idle[0]
            self._take(sandbox)
            self._coming[plan] = sandbox
        thread = threading.Thread(target=self._get_ready, args=(plan, sandbox), name="akx-ahead", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are too many
            self._come(plan, sandbox, is_ready=False)
            return False
        self._threads = [other for other in self._threads if other.is_alive()] + [thread]
        return True

    def _get_ready(self, plan: Plan, sandbox: Sandbox) -> None:
        is_ready = False
        with suppress(Exception):  # whoever asks for the plan will be told
            is_ready = sandbox.get_ready(plan)
        self._come(plan, sandbox, is_ready=is_ready)

    def _come(self, plan: Plan, sandbox: Sandbox, *, is_ready: bool) -> None:
        with self._changed:
            del self._coming[plan]
            if is_ready:
                self._ready[plan] = sandbox
        self._put_back(sandbox)

    def _take(self, sandbox: Sandbox) -> None:
        """Out of those that are idle; what it had ready it will have no more."""
        self._idle.remove(sandbox)
        self._ready = {plan: other for plan, other in self._ready.items() if other is not sandbox}

    def _put_back(self, sandbox: Sandbox) -> None:
        with self._changed:
            (self._have_come.add if sandbox.is_up else self._have_come.discard)(sandbox)
            self._idle.append(sandbox)
            self._changed.notify_all()
