"""Time several calls against one another in one run: interleaved, warm, in medians with their interquartile range.

The calls take turns, so that a drift of the machine falls on all alike. A turn is: a pause, in which the spinning
workers of the call before go to sleep; untimed calls, which bring the caller's own data back into cache; then samples.
A sample is a batch of calls that lasts long enough for the clock. The order is reversed from round to round. A call
that is hopelessly slow stops after a few rounds and keeps what it has.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Settings", "Timing", "interleave"]

Call = Callable[[], object]


@dataclass(frozen=True)
class Settings:
    """How long and how often to measure.

    Attributes
    ----------
    seconds : float
        Time after which no further round begins, once `rounds_min` are done.
    rounds_min, rounds_max : int
        Least and most rounds.
    sample_seconds, warm_seconds, pause_seconds : float
        Least duration of a sample, of the untimed calls before it, and of the pause before those.
    samples : int
        Samples in a turn; one where a call takes longer than ten times `sample_seconds`.
    hopeless : float
        A call this many times slower than the fastest stops after three rounds.
    """

    seconds: float = 4.0
    rounds_min: int = 7
    rounds_max: int = 25
    sample_seconds: float = 2e-3
    warm_seconds: float = 1e-3
    pause_seconds: float = 3e-3
    samples: int = 3
    hopeless: float = 1.6


@dataclass(frozen=True)
class Timing:
    """The time of one call: median seconds, interquartile range relative to the median, number of samples."""

    seconds: float
    spread: float
    samples: int

    @staticmethod
    def of(samples: Collection[float]) -> Timing:
        """The timing that `samples`, at least one, stand for."""
        low, middle, high = np.quantile(np.fromiter(samples, dtype=np.float64), [0.25, 0.5, 0.75])
        return Timing(float(middle), float((high - low) / middle) if middle > 0 else 0.0, len(samples))


def interleave(
    calls: Mapping[str, Call],
    settings: Settings | None = None,
    *,
    keep: Collection[str] = (),
    wait: Call = lambda: None,
) -> dict[str, Timing]:
    """Time `calls`, each prepared and called before.

    Parameters
    ----------
    calls : mapping of str to callable without arguments
        What to time, by name.
    settings : Settings, optional
        How long and how often.
    keep : collection of str
        Names that never stop early.
    wait : callable without arguments
        Called at the end of a batch, within its time: waits for a device on which calls only queue their work.

    Returns
    -------
    dict of str to Timing
        In the order of `calls`.
    """
    wanted = settings or Settings()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    collecting = gc.isenabled()
    gc.disable()
    try:
        batches = {name: _batch(call, wait, wanted) for name, call in calls.items()}
        running = list(calls)
        start = time.perf_counter()
        for turn in range(wanted.rounds_max):
            for name in running if turn % 2 == 0 else running[::-1]:
                samples[name] += _turn(calls[name], wait, batches[name], wanted)
            medians = {name: float(np.median(samples[name])) for name in running}
            if turn >= 2:
                limit = wanted.hopeless * min(medians.values())
                running = [name for name in running if name in keep or medians[name] <= limit]
            if turn + 1 >= wanted.rounds_min and time.perf_counter() - start >= wanted.seconds:
                break
    finally:
        if collecting:
            gc.enable()
    return {name: Timing.of(times) for name, times in samples.items()}


def _batch(call: Call, wait: Call, wanted: Settings) -> tuple[int, int, int]:
    """Calls per sample, untimed calls before, and samples per turn, from the best of three calls."""
    _seconds(call, 1, wait)
    once = min(_seconds(call, 1, wait) for _ in range(3))
    size = max(1, round(wanted.sample_seconds / max(once, 1e-9)))
    warm = max(1, round(wanted.warm_seconds / max(once, 1e-9)))
    return size, warm, wanted.samples if once <= 10 * wanted.sample_seconds else 1


def _turn(call: Call, wait: Call, batch: tuple[int, int, int], wanted: Settings) -> list[float]:
    size, warm, count = batch
    time.sleep(wanted.pause_seconds)
    _seconds(call, warm, wait)
    return [_seconds(call, size, wait) / size for _ in range(count)]


def _seconds(call: Call, times: int, wait: Call) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    wait()
    return time.perf_counter() - start
