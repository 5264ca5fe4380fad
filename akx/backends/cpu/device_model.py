"""Bandwidths of a host's memories, guessed from its cores and caches, and measured; what formats cost a core.

Reading is timed on one buffer a thread, all threads at once, best of five.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

import numpy as np

from akx.backends.host import HostDevice
from akx.cost.coefficients import coefficients
from akx.cost.device_model import FORMATS, Figures

__all__ = ["derived_figures", "measured_figures"]

_GUESS = coefficients("cpu", "guesses")
_MIB = 1024 * 1024
_PASSES = 5
#: Bytes that a thread reads in one measurement: so many that handing it over does not count.
_READ_BYTES = 128 * _MIB
#: Bytes at most that all threads read from memory.
_MOST_READ = 1024 * _MIB


def derived_figures(device: HostDevice, threads: int) -> Figures:
    """Careful figures from the number of cores; nothing is measured."""
    used = max(1, min(threads, device.cores))
    return Figures(
        slow_bandwidth=_GUESS.memory_bytes_per_second * min(used, _GUESS.saturating_cores_count),
        last_level_bandwidth=_GUESS.last_level_bytes_per_second * used,
        cache_bandwidth=_GUESS.own_cache_bytes_per_second * used,
        flops=_GUESS.flops_per_second * used,
        synchronisation=0.0 if used == 1 else _GUESS.meeting_seconds * (1 + math.log2(used)) / (used - 1),
        last_level_bytes=max(device.l3_bytes, device.l2_bytes),
        waking=0.0 if used == 1 else _GUESS.waking_seconds,
        formats=FORMATS,
    )


def measured_figures(device: HostDevice, threads: int) -> Figures:
    """Bandwidths with so many threads, as measured now; flops and synchronisation as derived."""
    guess = derived_figures(device, threads)
    used = max(1, min(threads, device.cores))
    together = max(min(device.l3_bytes // 2, 32 * _MIB), 4 * used * device.l2_bytes)  # not what their own caches hold
    last_level = min(together, 3 * device.l3_bytes // 4) // used
    slow = min(max(3 * device.l3_bytes, 64 * _MIB), _MOST_READ) // used
    own = max(device.l2_bytes // 2, 128 * 1024)
    with ThreadPoolExecutor(used) as pool:
        rates = {size: _read_rate(pool, used, size) for size in dict.fromkeys((own, max(own, last_level), slow))}
    slow_rate = rates[slow]
    last_level_rate = max(rates[max(own, last_level)], slow_rate)
    near = max(rates[own], last_level_rate)
    return replace(guess, slow_bandwidth=slow_rate, last_level_bandwidth=last_level_rate, cache_bandwidth=near)


def _read_rate(pool: ThreadPoolExecutor, threads: int, size: int) -> float:
    """Bytes a second at which `threads` threads read `size` bytes each, over and over."""
    from akx.backends.cpu.read_bandwidth import read_again

    buffers = [np.ones(size // 8, dtype=np.uint64) for _ in range(threads)]
    turns = max(1, _READ_BYTES // size)
    read_again(buffers[0][:1], 1)  # compiles
    seconds = []
    for _ in range(_PASSES):
        start = time.perf_counter()
        list(pool.map(read_again, buffers, repeat(turns)))
        seconds.append(time.perf_counter() - start)
    return turns * float(sum(buffer.nbytes for buffer in buffers)) / min(seconds)
