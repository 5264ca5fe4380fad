"""One measurement at a time: between processes, between threads, and when a holder dies, hangs or forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from akx.backends import device_lock as module
from akx.backends.device_lock import DeviceBusyWarning, DeviceLock, device_lock
from akx.backends.host import host_device

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such locks")

_HOLD = """
import os, sys, time
from akx.backends.device_lock import DeviceLock
with DeviceLock("a device").alone() as sure:
    child = os.fork() if "fork" in sys.argv else -1
    if child:
        print(os.getpid(), child, sure, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AKX_LOCK_DIR", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def hold() -> Iterator[Callable[..., tuple[subprocess.Popen[str], int]]]:
    """Start a process that holds the lock; it, and the id of its child with ``"fork"``."""
    started: list[int] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
        holder = subprocess.Popen([sys.executable, "-c", _HOLD, *arguments], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        pid, child, sure = holder.stdout.readline().split()
        started.extend(number for number in (int(pid), int(child)) if number > 0)
        assert (int(pid), sure) == (holder.pid, "True")
        return holder, int(child)

    yield start
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_another_process_is_waited_for_and_named(
    hold: Callable[..., tuple[subprocess.Popen[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, _ = hold()
    monkeypatch.setattr(module, "_TOLD", 0.0)
    mine = DeviceLock("a device", patience=0.05)
    with pytest.warns(DeviceBusyWarning) as caught, mine.alone() as sure:
        assert not sure
    assert [f"process {holder.pid}" in str(warning.message) for warning in caught] == [True, True]
    assert ["waits for" in str(warning.message) for warning in caught] == [True, False]
    with pytest.warns(DeviceBusyWarning, match="for 0 s"), DeviceLock("a device").alone(0.02) as sure:
        assert not sure
    with DeviceLock("another device").alone() as sure:
        assert sure
    # One that is stuck is not waited for again and again, until it has let go once.
    mine.patience = 60.0
    start = time.monotonic()
    with pytest.warns(DeviceBusyWarning, match="waits for"), mine.alone() as sure:
        assert not sure
    assert time.monotonic() - start < 30
    holder.kill()
    holder.wait()
    with mine.alone() as sure:
        assert sure
    assert not mine._is_stuck


def test_what_need_not_be_measured_is_not_measured_beside_another(
    hold: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    """Nobody is told of it, and who measures in earnest waits for as long as before."""
    holder, _ = hold()
    mine = DeviceLock("a device", patience=60.0)
    begin = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mine.in_passing(0.3) as may:
            assert not may
        assert 0.3 <= time.monotonic() - begin < 10
        begin = time.monotonic()
        with mine.in_passing(30.0) as may:
            assert not may
        assert time.monotonic() - begin < 10, "it is not waited for as long again"
        assert not mine._is_stuck
        holder.kill()
        holder.wait()
        with mine.in_passing(30.0) as may:
            assert may
            with mine.alone() as sure, mine.in_passing(0.0) as again:
                assert sure
                assert again
            assert _is_free_elsewhere() == "False"
        assert _is_free_elsewhere() == "True"
    assert not mine._is_busy


def _is_free_elsewhere() -> str:
    """Whether another process gets the lock: a process has it once, whoever asks in it."""
    code = (
        "from akx.backends.device_lock import DeviceLock as L\nwith L('a device').in_passing(0.05) as may: print(may)"
    )
    return subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def test_what_need_not_be_measured_waits_for_another_thread_for_a_moment() -> None:
    mine = DeviceLock("a device")
    held, done = threading.Event(), threading.Event()

    def other() -> None:
        with mine.alone():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(60)
    with mine.in_passing(0.05) as may:
        assert not may
    done.set()
    thread.join()
    with mine.in_passing(0.05) as may:
        assert may


def test_where_there_are_no_locks_what_need_not_be_measured_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AKX_LOCK_DIR", str(tmp_path / "file"))
    mine = DeviceLock("a device")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mine.in_passing(0.05) as may:
            assert may
    with pytest.warns(DeviceBusyWarning, match="AKX_LOCK_DIR"), mine.alone() as sure:
        assert not sure


def test_a_holder_that_is_killed_frees_the_lock_for_who_waits(
    hold: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    holder, _ = hold()
    timer = threading.Timer(0.1, holder.kill)
    timer.start()
    with DeviceLock("a device", patience=60.0).alone() as sure:
        assert sure
        assert holder.wait(10) == -signal.SIGKILL
    timer.join()


def test_a_child_of_a_holder_that_is_killed_does_not_keep_the_lock(
    hold: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    holder, child = hold("fork")
    assert child > 0
    holder.kill()
    holder.wait()
    os.kill(child, 0)  # it is there
    with DeviceLock("a device", patience=10.0).alone() as sure:
        assert sure


def test_a_fork_within_the_lock_holds_none() -> None:
    mine = DeviceLock("a device", patience=0.1)
    with mine.alone() as sure:
        assert sure
        child = os.fork()
        if child == 0:
            status = 1
            try:
                warnings.simplefilter("ignore")
                with mine.alone() as there:
                    status = 0 if there is False else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_take_turns_and_nest() -> None:
    mine, inside, most, done = DeviceLock("a device"), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(20):
            with mine.alone() as sure, mine.alone() as again:
                assert sure
                assert again
                inside += 1
                most = max(most, inside)
                time.sleep(1e-4)
                inside -= 1
                done += 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 60)


def test_a_lock_file_that_somebody_removed_is_made_anew(
    folder: Path, hold: Callable[..., tuple[subprocess.Popen[str], int]]
) -> None:
    mine = DeviceLock("a device", patience=0.05)
    with mine.alone() as sure:
        assert sure
    for file in folder.iterdir():
        file.unlink()
    hold()
    with pytest.warns(DeviceBusyWarning), mine.alone() as sure:
        assert not sure


def test_a_folder_that_cannot_be_used_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AKX_LOCK_DIR", str(tmp_path / "file" / "locks"))
    mine = DeviceLock("a device")
    with pytest.warns(DeviceBusyWarning, match="AKX_LOCK_DIR"), mine.alone() as sure:
        assert not sure
    with warnings.catch_warnings(), mine.alone() as sure:
        warnings.simplefilter("error")
        assert not sure


def test_an_exception_leaves_the_lock() -> None:
    mine = DeviceLock("a device")
    with pytest.raises(KeyboardInterrupt), mine.alone():
        raise KeyboardInterrupt
    other = DeviceLock("a device", patience=0.0)
    child = os.fork()
    if child == 0:
        with other.alone() as sure:
            os._exit(0 if sure else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_costs_some_microseconds() -> None:
    mine = device_lock(host_device())
    assert device_lock(host_device()) is mine
    seconds = []
    for _ in range(300):
        start = time.perf_counter()
        with mine.alone():
            pass
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 50e-6


@pytest.mark.parametrize("name", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_sessions_and_jobs_with_folders_of_their_own_take_turns(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AKX_LOCK_DIR")
    monkeypatch.delenv(name, raising=False)
    here = module._folder()
    monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # as in a process that begins so
    assert module._folder() == here
    assert here.name == f"akx-locks-{os.getuid()}"


def test_where_nobody_may_write_to_the_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_LOCK_DIR")
    monkeypatch.setattr(module, "_TEMPORARY", str(tmp_path / "nowhere"))
    assert module._folder().parent == Path(tempfile.gettempdir())
