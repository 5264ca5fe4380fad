"""A lock that does not outlive a fork."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import pytest

from akx.device.forks import ForkSafeLock


def test_it_is_a_reentrant_lock() -> None:
    lock, had = ForkSafeLock(), []
    with lock, lock:
        other = threading.Thread(target=lambda: had.append(lock.acquire(timeout=0.01)))
        other.start()
        other.join()
    assert had == [False]
    other = threading.Thread(target=lambda: had.append(lock.acquire(timeout=5.0)))
    other.start()
    other.join()
    assert had == [False, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_finds_it_free() -> None:
    lock, held, done = ForkSafeLock(), threading.Event(), threading.Event()

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
        with lock:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not lock.acquire(timeout=0.01)  # here it is still held
    done.set()
    other.join()
    with lock:
        pass
