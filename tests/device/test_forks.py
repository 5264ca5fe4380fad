"""A lock that does not outlive a fork."""

from __future__ import annotations

import os
import threading

import pytest
from forked import succeeds_in_a_child

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
    lock = ForkSafeLock()
    assert succeeds_in_a_child(lock, lambda: lock.acquire(timeout=5.0))
    assert lock.acquire(timeout=5.0)  # here it was let go of
    lock.release()
    assert not succeeds_in_a_child(lock, lambda: False)
