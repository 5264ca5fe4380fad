"""The clock that a GPU runs at right now, as NVML tells: what says that it is, or was, throttled.

Asking a GPU takes a microsecond on an H100 (NVML answers from what the driver has), and milliseconds the first time.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

from akx.core.errors import AkxError

__all__ = ["ClockState", "ClockWatch", "clock_state", "gpu_clock_hz"]

#: NVML's number for the clock of the multiprocessors.
_NVML_CLOCK_SM = 1
#: NVML's bits for what holds a clock down and is nobody's setting: a cap on power, slowdowns of hardware and software
#: for heat, a brake for power. An idle GPU, and clocks that somebody has set, are no reason to wait.
_THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
#: A clock below this share of the median is throttled, once there are so many of them.
_SLOW, _TELLING = 0.95, 3


@dataclass(frozen=True)
class ClockState:
    """What a GPU says of its clock.

    `hertz`: of its multiprocessors. `throttled`: what holds it down, in NVML's bits; 0 where nothing does, or nobody
    tells.
    """

    hertz: float
    throttled: int = 0


class ClockWatch:
    """Which of several rounds of a timing ran on a throttled GPU, by a look at its clock after each.

    What never ends is no disturbance: once :meth:`accept` was told so, it counts for nothing.
    """

    def __init__(self) -> None:
        self._usual = 0

    @property
    def note(self) -> str | None:
        """What is to be told of it: that the GPU was held down for longer than a timing, or None."""
        return "the GPU was held down for longer than a timing, for power or for heat" if self._usual else None

    def look(self) -> ClockState | None:
        """The clock now; None where nobody tells."""
        return clock_state()

    def slow(self, states: Sequence[ClockState | None]) -> list[int]:
        """The places of throttled rounds: held down, or with a clock far below the median."""
        told = [state.hertz for state in states if state is not None]
        least = _SLOW * median(told) if len(told) >= _TELLING else 0.0
        return [
            place
            for place, state in enumerate(states)
            if state is not None and (state.throttled & ~self._usual or state.hertz < least)
        ]

    def accept(self, states: Sequence[ClockState | None]) -> None:
        """The GPU is held down for good, as far as anybody can tell."""
        for state in states:
            self._usual |= 0 if state is None else state.throttled


def clock_state() -> ClockState | None:
    """What the GPU that akx uses says of its clock; None where nobody tells."""
    hertz = gpu_clock_hz()
    return None if hertz is None else ClockState(hertz, _gpu_reasons() & _THROTTLED)


def gpu_clock_hz() -> float | None:
    """Hertz of the multiprocessors of a GPU, from NVML, the management library that comes with NVIDIA's driver."""
    opened = _nvml()
    if opened is None:
        return None
    library, handle = opened
    megahertz = ctypes.c_uint(0)
    if library.nvmlDeviceGetClockInfo(handle, _NVML_CLOCK_SM, ctypes.byref(megahertz)) != 0:
        return None
    return 1e6 * megahertz.value


def _gpu_reasons() -> int:
    opened = _nvml()
    ask = None if opened is None else getattr(opened[0], "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    reasons = ctypes.c_ulonglong(0)
    if opened is None or ask is None or ask(opened[1], ctypes.byref(reasons)) != 0:
        return 0
    return reasons.value


@lru_cache(maxsize=1)
def _nvml() -> tuple[Any, ctypes.c_void_p] | None:
    """The library and its handle of the GPU that akx uses, which it knows by its place on the bus; None without one."""
    try:
        bus = _bus_id()
        library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except (AkxError, OSError):
        return None
    handle = ctypes.c_void_p()
    try:
        failed = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle))
    except AttributeError:  # an old library
        return None
    return None if failed else (library, handle)


def _bus_id() -> bytes:
    from akx.backends.cuda.device.runtime import runtime

    here = runtime()
    text: Any = here.call("cuDeviceGetPCIBusId", 32, here.device, doing="asking for its place on the bus")
    return bytes(text).split(b"\0")[0]
