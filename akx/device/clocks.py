"""The clock that a processor runs at right now, where the system tells: what says afterwards that it was throttled."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

__all__ = ["clock_hz"]

_CORES = Path("/sys/devices/system/cpu")
#: Cores that are asked: each takes some microseconds.
_ASKED = 16


def clock_hz(backend: str, root: Path = _CORES) -> float | None:
    """Hertz of the cores that this process may run on, the median of them; None where nobody tells.

    The kernel of the operating system has to tell (``cpufreq``), which it does not in many virtual machines; for a GPU
    nobody is asked.
    """
    if backend != "cpu":
        return None
    affinity = getattr(os, "sched_getaffinity", None)
    cores = sorted(affinity(0)) if affinity is not None else list(range(os.cpu_count() or 1))
    found = []
    for core in cores[:_ASKED]:
        try:
            found.append(1e3 * int((root / f"cpu{core}" / "cpufreq" / "scaling_cur_freq").read_text()))
        except (OSError, ValueError):
            return None
    return median(found) if found else None
