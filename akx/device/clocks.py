"""The clock that a processor runs at right now, where the system tells: what says afterwards that it was throttled."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from akx.errors import AkxError

__all__ = ["clock_hz"]

_CORES = Path("/sys/devices/system/cpu")
#: Cores that are asked: each takes some microseconds.
_ASKED = 16
#: NVML's number for the clock of the multiprocessors.
_NVML_CLOCK_SM = 1


def clock_hz(backend: str, root: Path = _CORES) -> float | None:
    """Hertz of the processor of a backend; None where nobody tells.

    That of a host is the median of the cores that this process may run on. The kernel of the operating system has to
    tell (``cpufreq``), which it does not in many virtual machines. That of a GPU is the clock of its multiprocessors,
    from NVML, the management library that comes with NVIDIA's driver.
    """
    return _gpu_clock() if backend == "cuda" else _host_clock(root)


def _host_clock(root: Path) -> float | None:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = sorted(affinity(0)) if affinity is not None else list(range(os.cpu_count() or 1))
    found = []
    for core in cores[:_ASKED]:
        try:
            found.append(1e3 * int((root / f"cpu{core}" / "cpufreq" / "scaling_cur_freq").read_text()))
        except (OSError, ValueError):
            return None
    return median(found) if found else None


def _gpu_clock() -> float | None:
    opened = _nvml()
    if opened is None:
        return None
    library, handle = opened
    megahertz = ctypes.c_uint(0)
    if library.nvmlDeviceGetClockInfo(handle, _NVML_CLOCK_SM, ctypes.byref(megahertz)) != 0:
        return None
    return 1e6 * megahertz.value


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
    from akx.device.cuda.runtime import runtime

    here = runtime()
    text: Any = here.call("cuDeviceGetPCIBusId", 32, here.device, doing="asking for its place on the bus")
    return bytes(text).split(b"\0")[0]
