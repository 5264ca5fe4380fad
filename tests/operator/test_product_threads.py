"""Products by several threads: right with those that can be started, and nobody writes to the result afterwards."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core import process
from akx.operator import host_products


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that are at work now, which others than this one are for a while; they are new ones."""
    now: list[str] = []
    real, here = host_products._apart, threading.current_thread()

    def noted(*given: Any, **named: Any) -> None:
        name = threading.current_thread().name
        now.append(name)
        try:
            real(*given, **named)
            time.sleep(0.01 if threading.current_thread() is here else 0.1)
        finally:
            now.remove(name)

    monkeypatch.setattr(host_products, "_apart", noted)
    monkeypatch.setattr(host_products, "_SHARED", 1)
    monkeypatch.setattr(process, "_CREWS", {})
    return now


def system() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    """A matrix, start vectors with room for two powers, and all of these."""
    A = sp.diags_array([1.0, -2.0, 3.0], offsets=[-1, 0, 1], shape=(40, 40), format="csr")
    powers = np.zeros((3, 4, 40))
    powers[0] = np.random.default_rng(0).random((4, 40))
    return (A.indptr, A.indices, A.data), powers, np.stack([powers[0], powers[0] @ A.T, powers[0] @ A.T @ A.T])


@pytest.mark.parametrize("started", [0, 1, 3])
def test_threads_that_cannot_be_started_are_done_without(
    started: int, running: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    A, powers, expected = system()
    begun: list[Any] = []
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if len(begun) == started:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    host_products.powers_into(A, powers, None, 4)
    assert running == []
    np.testing.assert_allclose(powers, expected, rtol=1e-14)
    assert len(begun) == started


def test_an_error_of_one_thread_is_raised_when_the_others_are_done(
    running: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    A, powers, _ = system()
    real = host_products._apart

    def fail_in_one(*given: Any, **named: Any) -> None:
        if threading.current_thread().name.endswith("_0"):
            raise MemoryError("no room")
        real(*given, **named)

    monkeypatch.setattr(host_products, "_apart", fail_in_one)
    with pytest.raises(MemoryError, match="no room"):
        host_products.powers_into(A, powers, None, 3)
    assert running == []


def test_ctrl_c_is_raised_when_the_others_are_done(running: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    A, powers, _ = system()
    real, here = host_products._apart, threading.current_thread()

    def interrupt(*given: Any, **named: Any) -> None:
        real(*given, **named)
        if threading.current_thread() is not here:
            running.append("after Ctrl-C")
            signal.pthread_kill(here.ident, signal.SIGINT)
            time.sleep(0.1)
            running.remove("after Ctrl-C")

    monkeypatch.setattr(host_products, "_apart", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            host_products.powers_into(A, powers, None, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert running == []
