"""A fork beside a thread that holds a lock."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["succeeds_in_a_child"]


def succeeds_in_a_child(lock: Any, action: Callable[[], object]) -> bool:
    """Whether `action` gives something true, within 20 seconds, in a child that is made while a thread holds `lock`."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if action() else 1)
    found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done.set()
    other.join()
    return found == 0
