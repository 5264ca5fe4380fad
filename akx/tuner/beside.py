"""Steps beside calls: in threads that live for one step, and end with the interpreter."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

__all__ = ["NAME", "Search", "in_thread", "note", "stop"]

#: Of the threads.
NAME = "akx-online"
#: Seconds for which a step is waited for where the interpreter ends.
_PATIENCE = 2.0


class Search(Protocol):
    """What takes steps."""

    def stop(self) -> None:
        """Begin nothing more; a step may be under way."""
        ...

    def interrupt(self) -> None:
        """End the processes that a step may wait for."""
        ...

    def end(self) -> None:
        """Let go of everything; no step is under way."""
        ...


_SEARCHES: weakref.WeakSet[Search] = weakref.WeakSet()
_STEPS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def note(search: Search) -> None:
    """Stop a search in forked children, which have none of its threads, and where the interpreter ends."""
    _SEARCHES.add(search)


def in_thread(step: Callable[[], None]) -> None:
    """Take a step in a thread. Raises RuntimeError where there is none to be had, as where the interpreter ends."""
    thread = threading.Thread(target=step, name=NAME, daemon=True)
    _STEPS.add(thread)
    thread.start()


def stop() -> None:
    """At the end of the interpreter: begin nothing more, and wait a moment for what is under way."""
    deadline = time.monotonic() + _PATIENCE
    for one in list(_SEARCHES):
        one.stop()
        one.interrupt()
    threads = list(_STEPS)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        for one in list(_SEARCHES):
            one.end()


def _in_child() -> None:
    for one in list(_SEARCHES):
        one.stop()


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
