"""Steps beside calls: in threads that live for one step, and end with the interpreter.

A call that the driver or compiled code comes back from waits for the interpreter, which the thread of a step may have:
by default for 5 ms, a hundred times as long as the call. While there are steps, threads change places sooner.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from akx.core.fork_safety import ForkSafeLock

__all__ = ["NAME", "in_thread", "note", "stop"]

#: Of the threads.
NAME = "akx-online"
#: Seconds for which a step is waited for where the interpreter ends.
_PATIENCE = 2.0
#: Seconds after which another thread has its turn in the interpreter while there are steps.
_TURN = 1e-4


class _Search(Protocol):
    def stop(self) -> object: ...
    def interrupt(self) -> object: ...
    def end(self) -> object: ...


_SEARCHES: weakref.WeakSet[_Search] = weakref.WeakSet()
_STEPS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
#: What the seconds of a turn were before, for each step under way.
_under_way, _lock = list[float](), ForkSafeLock()


def note(search: _Search) -> None:
    """Stop a search in forked children, which have none of its threads, and where the interpreter ends."""
    _SEARCHES.add(search)


def in_thread(step: Callable[[], None]) -> None:
    """Take a step in a thread. Raises RuntimeError where there is none to be had, as where the interpreter ends."""

    def take() -> None:
        with _lock:
            _under_way.append(sys.getswitchinterval() if not _under_way else _under_way[0])
            sys.setswitchinterval(min(_TURN, _under_way[0]))
        try:
            step()
        finally:
            with _lock:
                before = _under_way.pop() if _under_way else None  # none: this is a child that it has forked
                is_set = math.isclose(sys.getswitchinterval(), _TURN, rel_tol=0.01)  # else by somebody else
                if before is not None and is_set and not _under_way:
                    sys.setswitchinterval(before)

    thread = threading.Thread(target=take, name=NAME, daemon=True)
    _STEPS.add(thread)
    thread.start()


def stop() -> None:
    """At the end of the interpreter: begin nothing more, and wait a moment for what is under way."""
    deadline = time.monotonic() + _PATIENCE
    searches, threads = list(_SEARCHES), list(_STEPS)
    for one in searches:
        one.stop()
        one.interrupt()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        for one in searches:
            one.end()


def _in_child() -> None:
    for one in list(_SEARCHES):
        one.stop()
    if _under_way:
        sys.setswitchinterval(_under_way[0])
        _under_way.clear()


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
