"""Honest timing of short and long calls: warmed up, batched, interleaved, repeated until the median is known.

A sample is the time of a batch of calls over the size of the batch, which is as large as it takes for a sample to last
a millisecond. Several calls are timed in rounds, forwards and backwards in turn (A B B A), so that a drift of the
machine falls on all of them alike; ratios are taken round by round. Rounds are repeated until the confidence interval
of every median is narrow, or the time is gone.

The interval of the median needs no assumption on the distribution: of n sorted samples, numbers d+1 and n-d enclose the
median with probability 1 - 2 P(B <= d), B binomial with n and 1/2; d is the largest with at least 95 %.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from operator import gt
from typing import Any, Protocol

from akx.backends.schedule import TimedCall
from akx.core.errors import ArgumentError, brief
from akx.core.garbage_collection import nothing_collected

__all__ = [
    "DISTURBED_FACTOR",
    "DISTURBED_SECONDS",
    "Clock",
    "Measurement",
    "Precision",
    "Watch",
    "against",
    "all_disturbed",
    "interleave",
    "is_real_time",
    "is_wild",
    "median",
    "median_interval",
    "now",
    "on_clock",
    "paired_ratio",
    "pause",
]

#: A call shorter than this (seconds) is made untimed whenever its turn comes, to have its data in cache again.
_REWARM_SECONDS = 10e-3
#: A call shorter than this is tried up to three times before its batch is fixed: the first may be cold or disturbed.
_ONCE_SECONDS = 50e-3
_BATCH_MAX = 10_000
#: A call is disturbed where it takes so many times what it usually does.
DISTURBED_FACTOR = 1.5
#: Rounds of a timing that may be taken again for that.
_RETAKEN = 6
#: Rounds the least of which says what a call takes, where nothing is known of it.
_TELLING = 3
#: Seconds that are waited before what was disturbed, or may have been, is timed again.
DISTURBED_SECONDS = 20e-3


class Clock(Protocol):
    """What tells the time in :func:`on_clock`, in seconds."""

    def now(self) -> float: ...

    def pause(self, seconds: float) -> None: ...


class Watch(Protocol):
    """What looks at the machine after each round, and says which of them it spoilt: the clock of a GPU, or cores."""

    @property
    def note(self) -> str | None:
        """What was accepted, for whoever asked for the timing; None where nothing was."""
        ...

    def look(self) -> Any:
        """The state of the machine now."""
        ...

    def slow(self, states: Sequence[Any]) -> list[int]:
        """Places of the rounds that were spoilt, of which `states` are what was seen after each."""
        ...

    def accept(self, states: Sequence[Any]) -> None:
        """The machine stays as it is in these: from now on that spoils nothing."""
        ...


_CLOCK: ContextVar[Clock | None] = ContextVar("akx_tuner_clock", default=None)


def now() -> float:
    """Seconds on a monotonic clock; the only clock that tuning looks at."""
    clock = _CLOCK.get()
    return time.perf_counter() if clock is None else clock.now()


def pause(seconds: float) -> None:
    """Do nothing for so long."""
    clock = _CLOCK.get()
    (time.sleep if clock is None else clock.pause)(seconds)


def is_real_time() -> bool:
    """Whether seconds are those of this machine, so that looking at it says something of them."""
    return _CLOCK.get() is None


@contextmanager
def on_clock(clock: Clock) -> Iterator[None]:
    """Have tuning look at another clock, in this thread: that of a recorded run (:mod:`akx.tuner.trace.simulation`)."""
    before = _CLOCK.set(clock)
    try:
        yield
    finally:
        _CLOCK.reset(before)


@dataclass(frozen=True)
class Precision:
    """When to stop repeating.

    Attributes
    ----------
    relative : float
        Half-width wanted of the confidence interval of the median, relative to the median.
    seconds : float
        Time after which to stop, whatever the interval is, once `rounds_min` are done.
    rounds_min, rounds_max : int
        Least and most rounds. Two rounds are enough where they take three times `seconds`.
    sample_seconds : float
        Least time of one sample; shorter calls are batched.
    """

    relative: float = 0.02
    seconds: float = 0.3
    rounds_min: int = 5
    rounds_max: int = 60
    sample_seconds: float = 1e-3

    def __post_init__(self) -> None:
        if not (self.relative > 0 and self.seconds >= 0 and 1 <= self.rounds_min <= self.rounds_max):
            values = (self.relative, self.seconds, self.rounds_min, self.rounds_max)
            expected = "relative > 0, seconds >= 0 and 1 <= rounds_min <= rounds_max"
            raise ArgumentError("a precision is out of range", expected=expected, found=", ".join(map(brief, values)))


@dataclass(frozen=True)
class Measurement:
    """The time of one call.

    Attributes
    ----------
    seconds : float
        Median seconds per call.
    low, high : float
        95 % confidence interval of the median.
    samples : tuple of float
        Seconds per call of each round, in order.
    batch : int
        Calls per sample.
    """

    seconds: float
    low: float
    high: float
    samples: tuple[float, ...]
    batch: int = 1

    @staticmethod
    def of(samples: Sequence[float], batch: int = 1) -> Measurement:
        """The measurement that `samples`, at least one, stand for."""
        low, high = median_interval(samples)
        return Measurement(median(samples), low, high, tuple(samples), batch)

    @property
    def spread(self) -> float:
        """Half-width of the interval relative to the median."""
        return (self.high - self.low) / (2 * self.seconds) if self.seconds > 0 else 0.0


def median(samples: Sequence[float]) -> float:
    """Median of at least one sample."""
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest of a 95 % confidence interval of the median; the range for fewer than six samples."""
    ordered = sorted(samples)
    dropped = _dropped(len(ordered))
    return ordered[dropped], ordered[-1 - dropped]


@lru_cache(maxsize=1024)
def _dropped(n: int) -> int:
    """Samples to leave out at either end: d of the module's formula, in exact arithmetic."""
    d, below = 0, 1 + n
    while 40 * below <= 2**n:  # P(B <= d + 1) <= 2.5 %
        d += 1
        below += math.comb(n, d + 1)
    return d


def paired_ratio(a: Measurement, b: Measurement) -> Measurement:
    """The ratio a / b, taken round by round of one :func:`interleave`; its `seconds` is a plain number."""
    return Measurement.of([x / y if y > 0 else 1.0 for x, y in zip(a.samples, b.samples, strict=True)])


def against(a: Measurement, b: Measurement, seconds: float, usual: float | None = None) -> Measurement:
    """Seconds of a, from rounds taken in turn with a call b that is known to take so many seconds.

    A drift of the machine slows both, and the ratio of a round does not change. Where b takes half as much again as it
    should, something has disturbed it that need not have disturbed a. Then a counts as it was measured, which is too
    long rather than too short. `usual`: what b takes for the time being, where the machine has become slower for good.
    """
    usual = seconds if usual is None else usual
    most, slower = DISTURBED_FACTOR * usual, seconds / usual
    pairs = zip(a.samples, b.samples, strict=True)
    return Measurement.of([seconds * x / y if 0 < y <= most else slower * x for x, y in pairs], a.batch)


def is_wild(measured: Measurement) -> bool:
    """Whether half of the samples, of three or more, took half as much again as the least.

    Another process was at the device, or had the core, for most of the timing: the call takes no longer than that.
    """
    samples = measured.samples
    return len(samples) >= _TELLING and measured.seconds > DISTURBED_FACTOR * min(samples)


def all_disturbed(b: Measurement, usual: float) -> bool:
    """Whether every sample took half as much again as usual."""
    return all(sample > DISTURBED_FACTOR * usual for sample in b.samples)


class _HostCall(TimedCall):
    """A function, timed by the clock of the host."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run

    def __call__(self) -> object:
        return self._run()

    def timed(self, batch: int) -> float:
        run, start = self._run, now()
        for _ in range(batch):
            run()
        return (now() - start) / batch


def interleave(
    calls: Sequence[Callable[[], object]],
    precision: Precision | None = None,
    *,
    hopeless: Callable[[Sequence[Measurement]], bool] | None = None,
    known: Sequence[float | None] = (),
    watch: Watch | None = None,
) -> list[Measurement]:
    """Time several calls against one another.

    Parameters
    ----------
    calls : sequence of callables without arguments
        Each has been called before, so that nothing is left to compile; each is called at least once more, untimed.
        A :class:`akx.backends.program.TimedCall` has a clock of its own.
    precision : Precision, optional
        When to stop.
    hopeless : callable, optional
        Asked after the first timed call of each and after each round, with what is known so far; true stops the timing.
    known : sequence of float or None
        Seconds that a call takes when nothing disturbs it, where that is known; else the least of its rounds so far,
        once there are three. A round in which one takes half as much again is taken again, a few times while there is
        time; then the machine is as it is, and all rounds count.
    watch : Watch, optional
        Looks at the machine after each round: the clock of a device, the cores that threads are on. One that it calls
        spoilt is taken again in the same way.

    Returns
    -------
    list of Measurement
        One for each call, with equally many samples; sample i of all of them is of the same round.
    """
    wanted = precision or Precision()
    timed = [call if isinstance(call, TimedCall) else _HostCall(call) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    with nothing_collected():
        start = now()
        once = [_once(call) for call in timed]
        first = [Measurement.of([seconds]) for seconds in once]
        if hopeless is not None and hopeless(first):
            return first
        batches = [_batch(seconds, wanted.sample_seconds) for seconds in once]
        looks: list[Any] = []
        spoilt: list[tuple[list[float], Any]] | None = []  # None: the machine is as it is
        turn = 0
        while len(samples[0]) < wanted.rounds_max:
            begin = now()
            order = range(len(calls)) if turn % 2 == 0 else reversed(range(len(calls)))
            for i in order:
                if once[i] < _REWARM_SECONDS:
                    timed[i].warm(batches[i])
                samples[i].append(timed[i].timed(batches[i]))
            turn += 1
            if spoilt is not None:
                looks.append(None if watch is None else watch.look())
                slow = [] if watch is None else watch.slow(looks)
                places = sorted({*_disturbed(samples, known), *slow}, reverse=True)
                spoilt += [([times.pop(place) for times in samples], looks.pop(place)) for place in places]
                if places and len(spoilt) <= _RETAKEN and now() - start < wanted.seconds:
                    pause(DISTURBED_SECONDS)
                    continue
                if places:
                    if watch is not None and len(spoilt) > _RETAKEN:
                        watch.accept([look for _, look in spoilt])
                    for again, _ in spoilt:
                        for times, seconds in zip(samples, again, strict=True):
                            times.append(seconds)
                    spoilt = None
            found = [Measurement.of(times, batch) for times, batch in zip(samples, batches, strict=True)]
            if hopeless is not None and hopeless(found):
                break
            if _enough(found, wanted, now() - start, now() - begin):
                break
    return found


def _disturbed(samples: Sequence[Sequence[float]], known: Sequence[float | None]) -> list[int]:
    """The rounds in which a call took half as much again as it should."""
    rounds = len(samples[0])
    told = [min(times) if rounds >= _TELLING else math.inf for times in samples]
    most = [DISTURBED_FACTOR * (least if one is None else one) for one, least in zip_longest(known, told)]
    return [place for place, taken in enumerate(zip(*samples, strict=True)) if any(map(gt, taken, most))]


def _enough(found: Sequence[Measurement], wanted: Precision, elapsed: float, last_round: float) -> bool:
    rounds = len(found[0].samples) if found else wanted.rounds_max
    if rounds < wanted.rounds_min:
        return rounds >= 2 and elapsed + last_round > 3 * wanted.seconds
    return elapsed + last_round > wanted.seconds or all(one.spread <= wanted.relative for one in found)


def _once(call: TimedCall) -> float:
    """Seconds of one call; the best of two or three where it is short."""
    seconds = call.timed(1)
    for most in (_ONCE_SECONDS, 0.2 * _ONCE_SECONDS):
        if seconds <= most:
            seconds = min(seconds, call.timed(1))
    return seconds


def _batch(seconds: float, least: float) -> int:
    if seconds * _BATCH_MAX <= least:
        return _BATCH_MAX
    return max(1, math.ceil(least / seconds))
