"""Figures of the host's memory: bandwidths for the predictor's model and for the roofline.

Derived figures cost nothing and are careful guesses from the cores and caches; they rank plans. Measured figures take
about a fifth of a second; a share of the roofline is given against these. Reading is timed with NumPy reductions and
copies on one buffer a thread, all threads at once, best of five.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.device.host import HostDevice

__all__ = ["Figures", "derived_figures", "measured_figures"]

#: Careful figures of one core of a server: bytes a second from memory and from its own cache, sparse flops a second.
_SLOW_PER_CORE, _CACHE_PER_CORE, _FLOPS_PER_CORE = 10e9, 30e9, 3.0e9
#: Seconds to hand a call to threads that listen for it (measured: a call on two threads takes 2 to 4 us more).
_WAKING = 4e-6
#: Cores that saturate the memory bus.
_SATURATING_CORES = 8
_MIB = 1024 * 1024
_PASSES = 5


@dataclass(frozen=True)
class Figures:
    """What the traffic model needs to become seconds.

    Attributes
    ----------
    slow_bandwidth : float
        Bytes a second from memory, all threads together.
    last_level_bandwidth : float
        Bytes a second from the last-level cache, all threads together.
    cache_bandwidth : float
        Bytes a second from the cores' own caches, all threads together.
    flops : float
        Sparse floating-point operations a second, all threads together (bound by gathers, far below the peak).
    synchronisation : float
        Seconds for threads to meet once.
    last_level_bytes : int
        Size of the last-level cache.
    waking : float
        Seconds to set more than one thread to work, once a call.
    """

    slow_bandwidth: float
    last_level_bandwidth: float
    cache_bandwidth: float
    flops: float
    synchronisation: float
    last_level_bytes: int
    waking: float = 0.0

    def bandwidth(self, working_set: float) -> float:
        """Bytes a second at which a working set of that many bytes is read again and again."""
        fits = working_set <= 0.75 * self.last_level_bytes
        return self.last_level_bandwidth if fits else self.slow_bandwidth


def derived_figures(device: HostDevice, threads: int) -> Figures:
    """Careful figures from the number of cores; nothing is measured."""
    used = max(1, min(threads, device.cores))
    return Figures(
        slow_bandwidth=_SLOW_PER_CORE * min(used, _SATURATING_CORES),
        last_level_bandwidth=2 * _SLOW_PER_CORE * used,
        cache_bandwidth=_CACHE_PER_CORE * used,
        flops=_FLOPS_PER_CORE * used,
        synchronisation=0.0 if used == 1 else 1e-6 * (1 + math.log2(used)),
        last_level_bytes=device.l3_bytes,
        waking=0.0 if used == 1 else _WAKING,
    )


def measured_figures(device: HostDevice, threads: int) -> Figures:
    """Bandwidths with `threads` threads, the best that any call in this process has measured.

    Each call measures: what disturbs one hardly disturbs all. Flops and synchronisation as in :func:`derived_figures`.
    """
    now, before = _measure(device, threads), _BEST.get((device, threads))
    best = now if before is None else _faster(now, before)
    _BEST[device, threads] = best
    return best


_BEST: dict[tuple[HostDevice, int], Figures] = {}


def _faster(one: Figures, other: Figures) -> Figures:
    return replace(
        one,
        slow_bandwidth=max(one.slow_bandwidth, other.slow_bandwidth),
        last_level_bandwidth=max(one.last_level_bandwidth, other.last_level_bandwidth),
        cache_bandwidth=max(one.cache_bandwidth, other.cache_bandwidth),
    )


def _measure(device: HostDevice, threads: int) -> Figures:
    guess = derived_figures(device, threads)
    used = max(1, min(threads, device.cores))
    last_level = min(device.l3_bytes // 2, 32 * _MIB) // used
    slow = min(max(3 * device.l3_bytes, 64 * _MIB), 256 * _MIB) // used
    own = max(device.l2_bytes // 2, 128 * 1024)
    with ThreadPoolExecutor(used) as pool:
        rates = {size: _read_rate(pool, used, size) for size in dict.fromkeys((own, max(own, last_level), slow))}
    slow_rate = rates[slow]
    last_level_rate = max(rates[max(own, last_level)], slow_rate)
    return Figures(
        slow_bandwidth=slow_rate,
        last_level_bandwidth=last_level_rate,
        cache_bandwidth=max(rates[own], last_level_rate),
        flops=guess.flops,
        synchronisation=guess.synchronisation,
        last_level_bytes=guess.last_level_bytes,
        waking=guess.waking,
    )


def _read_rate(pool: ThreadPoolExecutor, threads: int, size: int) -> float:
    """Bytes a second at which `threads` threads read `size` bytes each, over and over."""
    buffers = [np.ones(size // 8, dtype=np.int64) for _ in range(threads)]
    turns = max(1, 16 * _MIB // size)
    return max(_rate(pool, kernel, buffers, turns) for kernel in (_reduce, _copy))


def _rate(
    pool: ThreadPoolExecutor, kernel: Callable[[NDArray[Any]], None], buffers: list[NDArray[Any]], turns: int
) -> float:
    def work(buffer: NDArray[Any]) -> None:
        for _ in range(turns):
            kernel(buffer)

    seconds = []
    for _ in range(_PASSES):
        start = time.perf_counter()
        list(pool.map(work, buffers))
        seconds.append(time.perf_counter() - start)
    return turns * float(sum(buffer.nbytes for buffer in buffers)) / min(seconds)


def _reduce(buffer: NDArray[Any]) -> None:
    buffer.max()


def _copy(buffer: NDArray[Any]) -> None:
    half = buffer.size // 2
    np.copyto(buffer[:half], buffer[half : 2 * half])
