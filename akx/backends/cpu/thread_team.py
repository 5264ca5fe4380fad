"""A team of threads that do jobs, compiled functions with all their arguments but the vectors, call after call.

Plain Python threads and functions compiled without the GIL: unlike in Numba's own pools, each member is sure to run,
which the point-to-point waits of the kernels rely on, and several callers do no harm: there is one team of each size in
a process, and callers of one size take turns. The calling thread is member 0.

After a call the members listen in compiled code for the next one of the same job (:mod:`akx.backends.cpu.thread_sync`);
when none has come for a while, or another job is to be done, they return and sleep on a queue.

Signals. A handler runs, and may raise (Ctrl-C, a timeout), between two steps of the interpreter: never while compiled
code waits for members. Before that a call has not been handed out, and behind it every member is done, so whoever is
left waiting is dismissed, and nobody writes to the result of a call that was given up. No handler is ever replaced.

A thread that fails, for want of memory, dismisses the others, who may be at a step: the call ends when all have left.

On a busy machine the system lets members wait for a core, a few milliseconds at a time, and the caller with them. A
call for which it waited long says that there were too many threads: the calls of the next while have half as many, and
then twice as many are tried again, after 1 s at the latest. The bits of a result are the same, as these are of the
parts of a job and not of the threads.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.jit import compile_for
from akx.backends.cpu.thread_sync import dismiss, is_dismissed, new_calls, waited
from akx.core.errors import DeviceError
from akx.core.fork_safety import ForkSafeLock
from akx.core.parallel import is_alone

__all__ = ["Job", "Team", "team"]

#: A call waited long if it waited for this share of its time, and so many seconds: in a row of calls, and in the first,
#: for which members are woken, which may take a millisecond on a machine with nothing else to do.
_SHARE, _LONG, _LONG_FIRST = 0.3, 30e-6, 5e-3
#: Calls have fewer threads for so many times what was waited, and twice as long as the last time; at most for so long.
_TIMES, _LONGEST = 2.0, 1.0

#: What a member is sent: a function, its arguments but the last three, of these `calls` and `thread`, and where to say
#: that it has left.
_Part: TypeAlias = tuple[Callable[..., bool], tuple[Any, ...], NDArray[np.int64], int, SimpleQueue[int]]


class Job:
    """A function compiled without the GIL and its arguments but the last five: x, out, calls, thread, sent.

    `function` does the part of one thread and says whether it did: see :func:`akx.backends.cpu.thread_sync.begin`.
    Members are given empty arrays for x and out; those of a call are in `calls`.
    """

    __slots__ = ("arguments", "calls", "empty", "function", "seconds", "threads")

    def __init__(self, function: Callable[..., bool], arguments: tuple[Any, ...], threads: int, dtype: Any) -> None:
        self.function = function
        self.arguments = arguments
        self.threads = threads
        self.empty = np.empty((1, 0), dtype=dtype), np.empty(0, dtype=dtype)
        self.calls = new_calls(threads, 1)
        self.seconds: dict[int, float] = {}

    def compile(self) -> None:
        """Have the function compiled, for arguments of these types; cheap when it is done."""
        compile_for(self.function, (*self.arguments, *self.empty, self.calls, 0, True))

    def run(self, x: NDArray[Any], out: NDArray[Any]) -> None:
        """Do the job on x (b, n), C-contiguous, with the result in `out`, flat; in several threads at once too."""
        if self.threads == 1 or is_alone():  # no call of another job waits for the team; the bits are the same
            self.function(*self.arguments, x, out, new_calls(self.threads, 1), 0, True)
        else:
            team(self.threads).run(self, x, out)


class Team:
    """`size` >= 2 threads, the caller included."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._busy = ForkSafeLock()
        self._owner = 0
        self._running = self._sent = size
        self._until = self._pause = self._late = 0.0
        self._inboxes: list[SimpleQueue[_Part | None]] = [SimpleQueue() for _ in range(1, size)]
        self._calls: NDArray[np.int64] | None = None
        self._left: SimpleQueue[int] = SimpleQueue()
        for number, inbox in enumerate(self._inboxes, 1):
            threading.Thread(target=_serve, args=(inbox,), name=f"akx-{number}", daemon=True).start()
        weakref.finalize(self, _retire, self._inboxes).atexit = False  # there may be calls after that

    def run(self, job: Job, x: NDArray[Any], out: NDArray[Any]) -> None:
        """Do `job`, each thread its part; return when all are done.

        Raises :class:`DeviceError` in a call from within a call, as from a signal handler; or where a member could not
        do its part.
        """
        self._check_turn()
        with self._busy:
            self._owner, done = threading.get_ident(), False
            try:
                begin = time.perf_counter()
                running = self._running if begin < self._until else min(2 * self._running, self.size)
                listening = self._calls is job.calls and self._sent == running
                done = listening and job.function(*job.arguments, x, out, job.calls, 0, False)
                if not done:
                    listening = False
                    self._gather(job, running)
                    done = job.function(*job.arguments, x, out, job.calls, 0, True)
                if not done:
                    raise DeviceError("a thread could not do its part of a call", hint="its own error is printed too")
                self._judge(job, running, begin, not listening)
            finally:
                try:
                    if not done:
                        self._give_up()
                finally:
                    self._owner = 0

    def _judge(self, job: Job, running: int, begin: float, is_first: bool) -> None:
        """Whether so many threads were too many, by the time that the caller waited for others."""
        end = time.perf_counter()
        took, lost = end - begin, 1e-9 * waited(job.calls)
        if not is_first:
            mean = job.seconds.get(running, took)
            job.seconds[running] = took if took < mean / 4 else mean + (min(took, 4 * mean) - mean) / 4
        long = _LONG_FIRST if is_first else _LONG
        if running > 1 and lost > max(long, _SHARE * took) and took > 0.9 * job.seconds.get(running // 2, 0.0):
            self._pause = min(max(_TIMES * lost, 2 * self._pause), _LONGEST)
            self._running, self._until, self._late = running // 2, end + self._pause, end
            return
        self._running = running
        if end - self._late > 4 * self._pause:
            self._pause = 0.0

    def _check_turn(self) -> None:
        if self._owner == threading.get_ident():
            raise DeviceError(
                "this thread is in the middle of a call already",
                hint="do not call an operator in a signal handler or a finalizer",
            )

    def send_away(self) -> None:
        """Let members that listen go to sleep now: another job is to be done, or somebody else needs the cores."""
        self._check_turn()
        with self._busy:
            self._dismiss()

    def _dismiss(self) -> None:
        if self._calls is None:
            return
        if is_dismissed(self._calls):  # by a member that failed
            self._give_up()
        else:
            dismiss(self._calls)  # who still listens there leaves; nobody enters again
            self._calls = None

    def _give_up(self) -> None:
        """Dismiss members that may be at a step, and wait until all have left."""
        if self._calls is not None:
            dismiss(self._calls)
            while self._left.qsize() < self._sent - 1:
                time.sleep(1e-4)
            self._calls = None

    def _gather(self, job: Job, running: int) -> None:
        """Send members to the first of a new row of calls by so many threads."""
        self._dismiss()
        if not self._inboxes:
            raise DeviceError("the process was forked in the middle of a call", hint="call again in the child")
        self._left, self._sent = SimpleQueue(), 1
        self._calls = job.calls = new_calls(self.size, running)
        for number, inbox in enumerate(self._inboxes[: running - 1], 1):
            inbox.put((job.function, (*job.arguments, *job.empty), job.calls, number, self._left))
            self._sent += 1


def _serve(inbox: SimpleQueue[_Part | None]) -> None:
    while (part := inbox.get()) is not None:
        function, arguments, calls, number, left = part
        failure = None
        try:
            function(*arguments, calls, number, True)
        except BaseException as error:
            dismiss(calls)  # or all the others would wait for this one
            failure = error
        finally:
            left.put(number)
        if failure is not None:
            threading.excepthook(threading.ExceptHookArgs((type(failure), failure, failure.__traceback__, None)))
        del part, function, arguments, calls, left, failure  # a sleeping thread holds no matrix


def _retire(inboxes: list[SimpleQueue[_Part | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)


_TEAMS: dict[int, Team] = {}
_LOCK = ForkSafeLock()


def team(size: int) -> Team:
    """The team of `size` threads of this process; made once, and anew after a fork."""
    found = _TEAMS.get(size)
    if found is None:
        with _LOCK:
            found = _TEAMS.get(size)
            if found is None:
                found = _TEAMS[size] = Team(size)
    return found


def _forget() -> None:
    """In a forked child: threads do not survive a fork. A call that a thread forked from within ends with an error."""
    while _TEAMS:
        _, gone = _TEAMS.popitem()
        gone._sent = 1  # nobody is at work
        gone._dismiss()
        gone._inboxes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
