"""Figures of a machine: bandwidths for the predictor's model and for the roofline, and what formats cost a core.

Derived figures cost nothing and are careful guesses from the cores and caches. Measured bandwidths take about a fifth
of a second; a share of the roofline is given against these. Reading is timed on one buffer a thread, all threads at
once, best of five; a GPU's memories are timed in :mod:`akx.kernels.cuda.rates`. What kernels of a GPU cost in cycles is
theirs (:mod:`akx.kernels.cuda.work`); here are its rates, and what a kernel and an exchange take. All that a model
wants to know is measured once for a device by ``akx doctor --calibrate`` (:mod:`akx.tuner.calibration`), and then takes
the place of the guesses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np

from akx.kernels.cpu.variants import VARIANTS
from akx.kernels.traits import FormatCost

__all__ = ["FORMATS", "Figures", "FormatCost", "derived_figures", "faster", "measured_figures"]

#: Careful figures of one core of a server: bytes a second from memory, from the last-level cache and from its own,
#: sparse flops a second.
_SLOW_PER_CORE, _LAST_LEVEL_PER_CORE, _CACHE_PER_CORE, _FLOPS_PER_CORE = 10e9, 40e9, 80e9, 3.0e9
#: Seconds to hand a call to other threads: 1 to 4 us where they listen for it, as in a row of calls; about 50 where
#: they sleep, which is the first of a row.
_WAKING = 4e-6
#: Seconds of a kernel in a graph, and of an exchange between multiprocessors, where nobody has measured them.
_LAUNCH, _BARRIER = 1.2e-6, 1.5e-6
#: Branches that a core remembers: one of 2020 (Zen 3) knows of rows of 1 to 8 entries the ends of 12,000, and next to
#: none of 24,000.
_FORESEEN = 9e4
#: Cores that saturate the memory bus.
_SATURATING_CORES = 8
_MIB = 1024 * 1024
_PASSES = 5
#: Bytes that a thread reads in one measurement: so many that handing it over does not count.
_READ_BYTES = 128 * _MIB
#: Bytes at most that all threads read from memory.
_MOST_READ = 1024 * _MIB
#: Bytes a second between host and device, both directions at once: what a memory budget makes the slow memory. And in
#: one direction alone.
_BUS, _BUS_ONE_WAY = 1e11, 5.5e10


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
        Seconds that each further thread adds to what it takes all of them to meet once; on a GPU, of a kernel in a
        graph.
    last_level_bytes : int
        Size of the last-level cache.
    waking : float
        Seconds to set more than one thread to work, once a call.
    formats : mapping of str to FormatCost
        By SpMV variant; empty where nothing is known of them but their bytes and flops.
    barrier : float
        Seconds that it takes the multiprocessors of a GPU to exchange something within a kernel.
    link_bandwidth : float
        Bytes a second between a GPU and its host's memory, page-locked, both directions at once; 0 for a host.
    link_one_way : float
        The same in one direction while the other is idle.
    foreseen : float
        Branches whose outcome a core remembers from one product to the next.
    """

    slow_bandwidth: float
    last_level_bandwidth: float
    cache_bandwidth: float
    flops: float
    synchronisation: float
    last_level_bytes: int
    waking: float = 0.0
    formats: Mapping[str, FormatCost] = field(default_factory=dict)
    barrier: float = _BARRIER
    link_bandwidth: float = 0.0
    link_one_way: float = 0.0
    foreseen: float = _FORESEEN

    def bandwidth(self, working_set: float) -> float:
        """Bytes a second at which a working set of that many bytes is read again and again."""
        fits = working_set <= 0.75 * self.last_level_bytes
        return self.last_level_bandwidth if fits else self.slow_bandwidth


#: What formats cost a core, where nobody has measured it.
FORMATS = {name: one.cost for name, one in VARIANTS.items() if one.cost is not None}


def derived_figures(device: Any, threads: int) -> Figures:
    """Careful figures from the number of cores, or from the facts of a GPU; nothing is measured."""
    if device.backend == "cuda":
        return _gpu_figures(device)
    used = max(1, min(threads, device.cores))
    return Figures(
        slow_bandwidth=_SLOW_PER_CORE * min(used, _SATURATING_CORES),
        last_level_bandwidth=_LAST_LEVEL_PER_CORE * used,
        cache_bandwidth=_CACHE_PER_CORE * used,
        flops=_FLOPS_PER_CORE * used,
        synchronisation=0.0 if used == 1 else 1e-6 * (1 + math.log2(used)) / (used - 1),
        last_level_bytes=max(device.l3_bytes, device.l2_bytes),
        waking=0.0 if used == 1 else _WAKING,
        formats=FORMATS,
    )


def measured_figures(device: Any, threads: int) -> Figures:
    """Bandwidths with `threads` threads, the best that any call in this process has measured.

    Each call measures: what disturbs one hardly disturbs all. Flops and synchronisation as in :func:`derived_figures`,
    and on a GPU its link to the host.
    """
    if getattr(device, "budget", 0):  # what measures would itself take more
        return derived_figures(device, threads)
    now, before = _measure(device, threads), _BEST.get((device, threads))
    best = now if before is None else faster(now, before)
    _BEST[device, threads] = best
    return best


_BEST: dict[tuple[Any, int], Figures] = {}


def faster(one: Figures, other: Figures) -> Figures:
    """`one` with the higher bandwidth of the two for each memory: a measurement can only be too low."""
    return replace(
        one,
        slow_bandwidth=max(one.slow_bandwidth, other.slow_bandwidth),
        last_level_bandwidth=max(one.last_level_bandwidth, other.last_level_bandwidth),
        cache_bandwidth=max(one.cache_bandwidth, other.cache_bandwidth),
    )


def _gpu_figures(device: Any) -> Figures:
    """Of an NVIDIA GPU: 0.9 of the memory's peak, caches and arithmetic by multiprocessor and clock.

    A multiprocessor is taken to read 32 bytes a cycle from the L2 cache and 128 from its own (those of an H100 were
    measured to read 33 and 127), and to gather for 16 sparse multiply-adds a cycle; a synchronisation is a kernel in a
    graph. With a memory budget the slow memory is the host's, whatever the size of the problem.
    """
    cycles = device.sms * (device.clock_hz or 1.5e9)
    slow = _BUS if device.budget else 0.9 * (device.memory_bandwidth_hint or 1e12)
    return Figures(
        slow_bandwidth=slow,
        last_level_bandwidth=_BUS if device.budget else 32.0 * cycles,
        cache_bandwidth=128.0 * cycles,
        flops=32.0 * cycles,
        synchronisation=_LAUNCH,
        last_level_bytes=device.l2_bytes,
        link_bandwidth=_BUS,
        link_one_way=_BUS_ONE_WAY,
    )


def _measure_gpu(device: Any) -> Figures:
    """What copies in the device's memory achieve, bytes read and written, and reading again what its caches hold."""
    from akx.kernels.cuda.rates import cache_rate, memory_rate, shared_memory_rate

    slow = memory_rate(max(8 * device.l2_bytes, 256 * _MIB))
    near = max(slow, cache_rate(device))
    own = max(near, shared_memory_rate(device))
    return replace(_gpu_figures(device), slow_bandwidth=slow, last_level_bandwidth=near, cache_bandwidth=own)


def _measure(device: Any, threads: int) -> Figures:
    if device.backend == "cuda":
        return _measure_gpu(device)
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
    return Figures(
        slow_bandwidth=slow_rate,
        last_level_bandwidth=last_level_rate,
        cache_bandwidth=max(rates[own], last_level_rate),
        flops=guess.flops,
        synchronisation=guess.synchronisation,
        last_level_bytes=guess.last_level_bytes,
        waking=guess.waking,
        formats=guess.formats,
    )


def _read_rate(pool: ThreadPoolExecutor, threads: int, size: int) -> float:
    """Bytes a second at which `threads` threads read `size` bytes each, over and over."""
    from akx._reading import read_again

    buffers = [np.ones(size // 8, dtype=np.uint64) for _ in range(threads)]
    turns = max(1, _READ_BYTES // size)
    read_again(buffers[0][:1], 1)  # compiles
    seconds = []
    for _ in range(_PASSES):
        start = time.perf_counter()
        list(pool.map(read_again, buffers, repeat(turns)))
        seconds.append(time.perf_counter() - start)
    return turns * float(sum(buffer.nbytes for buffer in buffers)) / min(seconds)
