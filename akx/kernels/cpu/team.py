"""A team of threads that runs one compiled function per thread, again and again.

Plain Python threads and functions compiled without the GIL: unlike in Numba's own pools, each member is sure to run,
which the point-to-point waits of the kernels rely on, and several callers do no harm: there is one team of each size in
a process, and callers of one size take turns. The calling thread is member 0. Members sleep on a lock between calls.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Team", "team"]


class Team:
    """`size` threads, the caller included."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._busy = threading.Lock()
        self._members = [_Member(number) for number in range(1, size)]

    def run(self, job: Callable[[int], None]) -> None:
        """Call job(t) for t in 0 .. size-1, each in a thread of its own; raise what the first of them raised."""
        if self.size == 1:
            job(0)
            return
        with self._busy, _interrupts_later():
            for member in self._members:
                member.start(job)
            try:
                job(0)
            finally:
                failures = [member.finish() for member in self._members]
            for failure in failures:
                if failure is not None:
                    raise failure


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back until the members are done: they wait for one another, and their results go to the caller."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual):  # ignored, default, or not Python's
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if held:
            usual(*held[0])


class _Member:
    def __init__(self, number: int) -> None:
        self._wake, self._done = threading.Lock(), threading.Lock()
        self._wake.acquire()
        self._done.acquire()
        self._mail: list[Callable[[int], None] | None] = [None]
        self._failure: list[BaseException | None] = [None]
        thread = threading.Thread(
            target=_serve,
            args=(number, self._wake, self._done, self._mail, self._failure),
            name=f"akx-{number}",
            daemon=True,
        )
        thread.start()
        weakref.finalize(self, _dismiss, self._wake, self._mail)

    def start(self, job: Callable[[int], None]) -> None:
        self._mail[0] = job
        self._wake.release()

    def finish(self) -> BaseException | None:
        self._done.acquire()
        return self._failure[0]


def _serve(
    number: int,
    wake: threading.Lock,
    done: threading.Lock,
    mail: list[Callable[[int], None] | None],
    failure: list[BaseException | None],
) -> None:
    while True:
        wake.acquire()
        job = mail[0]
        if job is None:
            return
        failure[0] = None
        try:
            job(number)
        except BaseException as error:  # handed to the caller
            failure[0] = error
        mail[0] = job = None
        done.release()


def _dismiss(wake: threading.Lock, mail: list[Callable[[int], None] | None]) -> None:
    mail[0] = None
    if wake.locked():
        wake.release()


_TEAMS: dict[tuple[int, int], Team] = {}
_LOCK = threading.Lock()


def team(size: int) -> Team:
    """The team of `size` threads of this process; made once, and anew after a fork."""
    key = (os.getpid(), size)
    with _LOCK:
        found = _TEAMS.get(key)
        if found is None:
            found = _TEAMS[key] = Team(size)
        return found
