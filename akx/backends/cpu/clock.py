"""The clock that the host's processor runs at right now, where the system tells."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["host_clock_hz"]

_CORES = Path("/sys/devices/system/cpu")
#: Cores that are asked, and seconds after which no more are: each takes some microseconds, or on some systems 10 ms.
_ASKED, _ASKING = 64, 2e-3


def host_clock_hz(root: Path = _CORES) -> float | None:
    """Hertz of the host's processor; None where nobody tells.

    That of the highest of the cores that this process may run on: others may be idle. The kernel of the operating
    system has to tell (``cpufreq``), which it does not in many virtual machines.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = sorted(affinity(0)) if affinity is not None else list(range(os.cpu_count() or 1))
    found: list[float] = []
    end = time.perf_counter() + _ASKING
    for core in cores[:_ASKED]:
        if found and time.perf_counter() > end:
            break
        try:
            found.append(1e3 * int((root / f"cpu{core}" / "cpufreq" / "scaling_cur_freq").read_text()))
        except (OSError, ValueError):
            return None
    return max(found, default=None)
