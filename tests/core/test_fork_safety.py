"""Locks that do not outlive a fork."""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from forked import succeeds_in_a_child

import akx
from akx.backends.cuda.device.runtime import Runtime
from akx.core.fork_safety import ForkSafeLock, lock_file, unlock_file

_FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
_PACKAGE = Path(akx.__file__).parent


def _child_says(action: Callable[[], object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if action() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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


@_FORKS
def test_a_child_finds_it_free() -> None:
    lock = ForkSafeLock()
    assert succeeds_in_a_child(lock, lambda: lock.acquire(timeout=5.0))
    assert lock.acquire(timeout=5.0)  # here it was let go of
    lock.release()
    assert not succeeds_in_a_child(lock, lambda: False)


@_FORKS
def test_a_thread_that_forks_keeps_what_it_holds() -> None:
    lock = ForkSafeLock()

    def another_gets_it() -> bool:
        had: list[bool] = []
        other = threading.Thread(target=lambda: had.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
        return had[0]

    with lock:
        assert _child_says(lambda: not another_gets_it())


def test_every_lock_is_one() -> None:
    """A child finds whatever lock the package makes free; the owners of the exceptions make theirs anew."""
    plain = re.compile(r"threading\.(?:Lock|RLock|Semaphore|BoundedSemaphore|Barrier|Condition)\((?!ForkSafeLock)")
    owners = {"core/progress.py", "core/fork_safety.py", "backends/device_lock.py"}
    found = {path.relative_to(_PACKAGE).as_posix() for path in _PACKAGE.rglob("*.py") if plain.search(path.read_text())}
    assert found <= owners
    takers = [path for path in _PACKAGE.rglob("*.py") if "flock(" in path.read_text()]
    assert [path.name for path in takers] == ["fork_safety.py"]


@_FORKS
@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_can_call_what_a_thread_is_calling(threads: int) -> None:
    A = sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    x = np.ones(50)
    P = akx.MatrixPowers(A, 2, plan=akx.Plan("cpu", "sweep", "csr", k=2, threads=threads))
    expected = P(x)
    assert succeeds_in_a_child(P._lock, lambda: np.array_equal(P(x), expected))


@_FORKS
def test_a_child_does_not_get_values_that_are_half_old(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    x = np.arange(50.0)
    P = akx.MatrixPowers(A, 1, plan=akx.Plan("cpu", "sweep", "csr", k=1))
    (program,) = P._prepared.programs.values()
    original, said = type(program).update_values, []

    def forks_midway(self: object, data: np.ndarray) -> None:
        original(self, np.where(np.arange(data.size) < 70, data, 0.0))  # type: ignore[arg-type]
        monkeypatch.undo()
        said.append(_child_says(lambda: np.allclose(P(x)[:, 1], 3.0 * (A @ x))))
        original(self, data)  # type: ignore[arg-type]

    monkeypatch.setattr(type(program), "update_values", forks_midway)
    P.update_values(3.0 * A)
    assert said == [True]
    assert np.allclose(P(x)[:, 1], 3.0 * (A @ x))


@_FORKS
def test_a_fork_waits_until_the_compiler_is_done() -> None:
    from numba.core.compiler_lock import global_compiler_lock

    held, free = threading.Event(), []

    def compiles() -> None:
        with global_compiler_lock:
            held.set()
            time.sleep(0.1)
            free.append(True)

    other = threading.Thread(target=compiles)
    other.start()
    held.wait(60)
    assert _child_says(lambda: free and global_compiler_lock._lock.acquire(timeout=5.0))
    other.join()


@_FORKS
def test_a_child_can_compute_the_property_that_a_thread_is_computing() -> None:
    lock = getattr(akx.Matrix.__dict__["fingerprint"], "lock", None)
    if lock is None:
        pytest.skip("cached properties have no lock here")
    A = akx.Matrix.from_any(sp.eye_array(3, format="csr"))
    assert isinstance(akx.Matrix.__dict__["fingerprint"], functools.cached_property)
    assert succeeds_in_a_child(lock, lambda: len(A.fingerprint) == 40)


@_FORKS
def test_the_lock_of_a_file_ends_with_its_owner_and_not_with_a_child(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    mine, other = (os.open(path, os.O_CREAT | os.O_RDWR) for _ in range(2))
    lock_file(mine)
    with pytest.raises(BlockingIOError):
        lock_file(other)
    begun, end = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.write(begun[1], b"1")
        os.read(end[0], 1)
        os._exit(0)
    os.read(begun[0], 1)
    os.close(mine)  # as the system does for a process that was killed: the child alone has the file open
    lock_file(other)
    unlock_file(other)
    again = os.open(path, os.O_RDWR)
    lock_file(again)
    os.write(end[1], b"1")
    os.waitpid(child, 0)
    for descriptor in (other, again, *begun, *end):
        unlock_file(descriptor)
        os.close(descriptor)


class _DriverOfAParent:
    """As the driver answers in a forked child."""

    def cuCtxGetCurrent(self) -> tuple[Any, None]:
        return SimpleNamespace(name="CUDA_ERROR_NOT_INITIALIZED"), None


def test_a_child_is_told_that_it_cannot_use_the_gpu() -> None:
    parent = object.__new__(Runtime)
    parent.driver = _DriverOfAParent()
    with pytest.raises(akx.DeviceError, match="spawn"), parent.active():
        pass
