"""Clocks: of the cores, where the system tells, and of a GPU, from a stand-in for NVIDIA's library."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from akx.backends.cpu import clock
from akx.backends.cpu.clock import host_clock_hz
from akx.backends.cuda.device import clocks
from akx.backends.cuda.device.clocks import ClockState, ClockWatch, clock_state, gpu_clock_hz
from akx.backends.cuda.device.facts import cuda_missing
from akx.core.errors import DeviceError


def test_the_clock_is_that_of_the_cores_where_somebody_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 2, 3}, raising=False)
    monkeypatch.setattr(clock, "_ASKING", 60.0)  # a busy machine takes its time
    assert host_clock_hz(tmp_path) is None
    for core, khz in ((0, 2_000_000), (2, 3_000_000), (3, 3_100_000)):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n")
    assert host_clock_hz(tmp_path) == 3.1e9
    (tmp_path / "cpu3" / "cpufreq" / "scaling_cur_freq").write_text("<unknown>\n")
    assert host_clock_hz(tmp_path) is None


class Library:
    """What is asked of NVML: it knows the GPU at 0000:3B:00.0, which runs at 1755 MHz."""

    def __init__(self) -> None:
        self.codes = {"init": 0, "handle": 0, "clock": 0, "reasons": 0}
        self.started = self.reasons = 0

    def nvmlInit_v2(self) -> int:
        self.started += 1
        return self.codes["init"]

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, handle: Any) -> int:
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 0x1234 if bus == b"0000:3B:00.0" else None
        return self.codes["handle"]

    def nvmlDeviceGetClockInfo(self, handle: ctypes.c_void_p, kind: int, found: Any) -> int:
        assert handle.value == 0x1234
        ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))[0] = 1755 if kind == 1 else 0
        return self.codes["clock"]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: ctypes.c_void_p, found: Any) -> int:
        assert handle.value == 0x1234
        ctypes.cast(found, ctypes.POINTER(ctypes.c_ulonglong))[0] = self.reasons
        return self.codes["reasons"]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(clocks, "_bus_id", lambda: b"0000:3B:00.0")
    monkeypatch.setattr("ctypes.CDLL", lambda name: made)
    clocks._nvml.cache_clear()
    yield made
    clocks._nvml.cache_clear()


def test_the_clock_of_a_gpu_is_that_of_its_multiprocessors(library: Library) -> None:
    assert gpu_clock_hz() == gpu_clock_hz() == 1755e6
    assert library.started == 1


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0x0, 0), (0x1, 0), (0x2, 0), (0x10, 0), (0x100, 0), (0x4, 0x4), (0x21, 0x20), (0x48, 0x48), (0x82, 0x80)],
)
def test_a_gpu_that_is_idle_or_set_to_a_clock_is_not_throttled(library: Library, reasons: int, throttled: int) -> None:
    library.reasons = reasons
    assert clock_state() == ClockState(1755e6, throttled)
    library.codes["reasons"] = 3
    assert clock_state() == ClockState(1755e6, 0)
    library.codes["clock"] = 3
    assert clock_state() is None


def test_rounds_of_a_throttled_gpu_are_found_by_its_reason_or_by_its_clock(library: Library) -> None:
    watch = ClockWatch()
    library.reasons = 0x40
    hot = watch.look()
    fast, slower, slow = ClockState(2.0e9), ClockState(1.91e9), ClockState(1.89e9)
    assert watch.slow([fast, hot]) == [1]
    assert watch.slow([slow, fast]) == [], "two clocks tell nothing"
    assert watch.slow([slow, fast, fast, slower, fast, None]) == [0]
    assert watch.slow([None, None, None, None]) == []
    watch.accept([fast, hot, None])
    assert watch.slow([hot, hot]) == [], "it stays so"
    assert watch.slow([hot, ClockState(hot.hertz, 0x44)]) == [1], "that is another reason"  # type: ignore[union-attr]


@pytest.mark.parametrize("what", ["init", "handle", "clock"])
def test_a_library_that_does_not_tell_is_no_error(library: Library, what: str) -> None:
    library.codes[what] = 3
    assert gpu_clock_hz() is None


def test_a_library_without_reasons_is_no_error(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Library, "nvmlDeviceGetCurrentClocksThrottleReasons")
    assert clock_state() == ClockState(1755e6, 0)


def test_an_old_library_is_no_error(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert gpu_clock_hz() is None


def test_without_a_gpu_or_its_library_there_is_no_clock(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", absent)
    assert gpu_clock_hz() is None

    def no_gpu() -> bytes:
        raise DeviceError("no NVIDIA driver on this machine")

    clocks._nvml.cache_clear()
    monkeypatch.setattr(clocks, "_bus_id", no_gpu)
    assert gpu_clock_hz() is None


@pytest.mark.cuda
@pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
def test_the_clock_of_the_gpu_here() -> None:
    clocks._nvml.cache_clear()
    found = gpu_clock_hz()
    assert found is None or 1e8 < found < 5e9  # a container may keep the library from telling
    clock_state()
    begin = time.perf_counter()
    for _ in range(100):
        clock_state()
    assert time.perf_counter() - begin < 0.1, "a look at the clock takes less than a millisecond"
