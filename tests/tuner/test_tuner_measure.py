"""Timing: medians, intervals, batches, drift, and when to stop."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akx.backends.cuda.device.clocks import ClockState, ClockWatch
from akx.backends.schedule import TimedCall
from akx.core.errors import ArgumentError
from akx.tuner import measure
from akx.tuner.measure import Measurement, Precision, against, interleave, median, median_interval, paired_ratio

positive = st.floats(1e-6, 1.0)


class Clock:
    """Moves only when a call takes time; reads in steps of `resolution`."""

    def __init__(self, resolution: float = 0.0) -> None:
        self.time, self.resolution, self.speed = 0.0, resolution, lambda now: 1.0

    def now(self) -> float:
        return self.time if not self.resolution else math.floor(self.time / self.resolution) * self.resolution

    def call(self, seconds: float | Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.time += (seconds() if callable(seconds) else seconds) * self.speed(self.time)

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(measure, "now", found.now)
    return found


@given(st.lists(positive, min_size=1, max_size=50))
def test_median_is_numpys(samples: list[float]) -> None:
    assert median(samples) == pytest.approx(float(np.median(samples)), rel=1e-12)


@given(st.lists(positive, min_size=1, max_size=50))
def test_interval_encloses_the_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


@pytest.mark.parametrize("n", [*range(6, 40), 101, 200])
def test_interval_covers_the_true_median_95_times_in_100(n: int) -> None:
    """By the binomial distribution, exactly: P(low <= m <= high) = P(d < Bin(n, 1/2) < n - d)."""
    low, high = median_interval(list(range(n)))
    below = sum(math.comb(n, i) for i in range(int(low) + 1)) / 2**n
    assert int(low) == n - 1 - int(high)
    assert 1 - 2 * below >= 0.95
    # and it is not needlessly wide: one sample less on each side would not do
    assert 1 - 2 * (below + math.comb(n, int(low) + 1) / 2**n) < 0.95


def test_short_calls_are_batched_beyond_the_clocks_resolution(clock: Clock) -> None:
    clock.resolution = 50e-6
    found = interleave([clock.call(10e-6), clock.call(12e-6)], Precision(rounds_min=9))
    assert found[0].seconds == pytest.approx(10e-6, rel=0.08)
    assert found[1].seconds / found[0].seconds == pytest.approx(1.2, rel=0.1)
    assert min(one.batch for one in found) >= 20


def test_calls_of_no_time_end(clock: Clock) -> None:
    found = interleave([clock.call(0.0)], Precision(rounds_max=3, rounds_min=1))
    assert found[0].seconds == 0.0
    assert found[0].spread == 0.0


def test_drift_cancels(clock: Clock) -> None:
    clock.speed = lambda now: 1 + 2 * now  # three times slower after a second
    a, b = interleave([clock.call(3e-3), clock.call(2e-3)], Precision(1e-9, 0.8, 5, 200))
    assert a.samples[-1] > 1.5 * a.samples[0]
    assert paired_ratio(a, b).seconds == pytest.approx(1.5, rel=0.01)


def test_quiet_calls_need_few_rounds_and_noisy_ones_use_the_time(clock: Clock) -> None:
    quiet = interleave([clock.call(1e-3)], Precision(0.02, 0.3, 5, 100))
    assert len(quiet[0].samples) == 5
    random = np.random.default_rng(0)
    begin = clock.time
    noisy = interleave([clock.call(lambda: 1e-2 * random.uniform(0.7, 1.4))], Precision(0.001, 0.3, 5, 1000))
    assert len(noisy[0].samples) > 10
    assert 0.25 < clock.time - begin < 0.5


def test_a_very_long_call_is_not_repeated_for_ever(clock: Clock) -> None:
    found = interleave([clock.call(5.0)], Precision(0.001, 0.3, 5, 100))
    assert len(found[0].samples) == 2


def test_hopeless_calls_are_broken_off(clock: Clock) -> None:
    seen: list[int] = []

    def hopeless(found: Any) -> bool:
        seen.append(len(found[0].samples))
        return len(seen) == 3

    found = interleave([clock.call(1e-3), clock.call(9e-3)], Precision(), hopeless=hopeless)
    assert seen == [1, 1, 2]
    assert len(found[0].samples) == len(found[1].samples) == 2


def test_rounds_run_forwards_and_backwards(clock: Clock) -> None:
    order: list[str] = []

    def named(name: str) -> Callable[[], None]:
        run = clock.call(20e-3)
        return lambda: (order.append(name), run())[1]

    interleave([named("a"), named("b")], Precision(1e-9, 10.0, 4, 4))
    assert "".join(order[-8:]) == "abbaabba"


class Cached(TimedCall):
    """A call on a device whose cache others spoil: it takes `cold` longer until it was made six times in a row."""

    last: Cached | None = None

    def __init__(self, clock: Clock, seconds: float, cold: float) -> None:
        self._clock, self._seconds, self._cold, self._made = clock, seconds, cold, 0

    def __call__(self) -> None:
        self._made = self._made + 1 if Cached.last is self else 1
        Cached.last = self
        self._clock.time += self._seconds + (self._cold if self._made <= 6 else 0.0)

    def timed(self, batch: int) -> float:
        begin = self._clock.time
        for _ in range(batch):
            self()
        return (self._clock.time - begin) / batch

    def warm(self, batch: int) -> None:
        self.timed(batch)


def test_what_a_call_takes_on_a_device_does_not_depend_on_whose_turn_was_before(clock: Clock) -> None:
    calls = [Cached(clock, 1e-4, 3e-5), Cached(clock, 7e-5, 0.0)]
    found = interleave(calls, Precision(rounds_min=9))
    assert [one.seconds for one in found] == pytest.approx([1e-4, 7e-5])
    assert len(found[0].samples) == 9, "nothing but the order of turns could make it noisy"


def test_collection_of_garbage_is_off_while_timing_and_on_again(clock: Clock) -> None:
    seen = []
    interleave([lambda: (seen.append(gc.isenabled()), clock.call(1e-2)())[1]], Precision(rounds_max=5))
    assert seen
    assert not any(seen)
    assert gc.isenabled()


def test_collection_of_garbage_is_on_again_after_an_error(clock: Clock) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        interleave([broken])
    assert gc.isenabled()


def test_precision_is_checked() -> None:
    with pytest.raises(ArgumentError):
        Precision(relative=0)
    with pytest.raises(ArgumentError):
        Precision(rounds_min=5, rounds_max=4)


def test_spread_is_half_the_interval() -> None:
    found = Measurement.of([1.0, 1.0, 0.9, 1.1, 1.0])
    assert found.spread == pytest.approx(0.1)


def test_the_real_clock_times_a_short_call() -> None:
    data = np.zeros(1000)
    found = interleave([lambda: data.fill(1.0)], Precision(0.5, 0.05, 3, 20))
    assert 1e-8 < found[0].seconds < 1e-3
    assert found[0].batch > 1


class Scripted(TimedCall):
    """A call that takes what a list says, one sample after another; the last for ever."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.asked = list(seconds), 0

    def __call__(self) -> None:
        """Nothing: `timed` is asked."""

    def timed(self, batch: int) -> float:
        """The next entry."""
        self.asked += 1
        return self.seconds[min(self.asked, len(self.seconds)) - 1]


def test_rounds_in_which_the_anchor_is_disturbed_are_taken_again() -> None:
    precision = Precision(1e-9, 0.2, 4, 4)
    slow = [1e-3] * 3 + [1e-3, 3e-3, 4e-3, 1e-3, 1e-3]  # three to begin with, then rounds
    anchor, plan = Scripted(*slow, 1e-3), Scripted(5e-4)
    measured = interleave([plan, anchor], precision, known=[None, 1e-3])
    assert measured[1].samples == (1e-3,) * 4
    assert measured[0].samples == (5e-4,) * 4
    assert anchor.asked == 3 + 6
    other = interleave([Scripted(5e-4), Scripted(*slow, 1e-3)], precision, known=[5e-4, None])
    assert other[1].samples == (1e-3,) * 4  # of this one nothing is known but its rounds, once there are three
    soon = interleave([Scripted(5e-4), Scripted(*slow[:5], 1e-3)], Precision(1e-9, 0.2, 2, 2), known=[5e-4, None])
    assert soon[1].samples == (1e-3, 3e-3)


@pytest.mark.parametrize("place", range(6))
def test_where_nothing_is_known_the_rounds_tell_which_of_them_was_disturbed(place: int) -> None:
    """Also the first of them, which nothing came before."""
    rounds = [1e-3 * (1 + 0.01 * number) for number in range(6)]
    rounds[place] = 2e-3
    plan, other = Scripted(*[1e-3] * 3, *rounds, 1e-3), Scripted(5e-4)
    measured = interleave([plan, other], Precision(1e-9, 1.0, 6, 6))
    assert sorted(measured[0].samples) == sorted([1e-3, *(seconds for seconds in rounds if seconds < 2e-3)])
    assert len(measured[1].samples) == 6
    assert plan.asked == 3 + 7


class Watched(ClockWatch):
    """The clock of a device as a list says, one look after another; the last for ever."""

    def __init__(self, *states: ClockState | None) -> None:
        super().__init__()
        self.states, self.looked = list(states), 0

    def look(self) -> ClockState | None:
        self.looked += 1
        return self.states[min(self.looked, len(self.states)) - 1]


_FAST, _HOT, _SLOW = ClockState(2e9), ClockState(2e9, 0x40), ClockState(1.8e9)


@pytest.mark.parametrize("held", [_HOT, _SLOW], ids=["for heat", "by its clock"])
def test_rounds_in_which_the_device_was_throttled_are_taken_again(held: ClockState) -> None:
    """They take 1.2 times as long, as no disturbance does; the second and the fourth."""
    call = Scripted(*[1e-3] * 3, 1e-3, 1.2e-3, 1e-3, 1.2e-3, 1e-3)
    watch = Watched(_FAST, held, _FAST, held, _FAST)
    (measured,) = interleave([call], Precision(1e-9, 1.0, 5, 5), known=[1e-3], watch=watch)
    assert measured.samples == (1e-3,) * 5
    assert watch.looked == 7


def test_a_device_that_stays_throttled_is_as_it_is() -> None:
    """A few rounds are taken again, once; later timings by the same watch do not ask for that reason."""
    watch = Watched(_HOT)
    calls = Scripted(1e-3), Scripted(2e-3)
    measured = interleave(calls, Precision(1e-9, 60.0, 9, 9), watch=watch)
    assert [len(one.samples) for one in measured] == [9, 9]
    assert calls[0].asked == 3 + 9
    assert watch.slow([_HOT, _HOT]) == []
    assert watch.slow([ClockState(2e9, 0x4)]) == [0]


def test_rounds_are_not_taken_again_where_there_is_no_time_or_no_clock(clock: Clock) -> None:
    watch = Watched(_HOT)
    found = interleave([clock.call(1.0), clock.call(2.0)], Precision(1e-9, 0.5, 2, 5), watch=watch)
    assert len(found[0].samples) == len(found[1].samples) == 2
    assert watch.slow([_HOT]) == [0], "so few rounds do not tell that it stays so"
    call = Scripted(*[1e-3] * 3, 1e-3, 1.2e-3, 1e-3)
    (measured,) = interleave([call], Precision(1e-9, 1.0, 3, 3), watch=Watched(None))
    assert measured.samples == (1e-3, 1.2e-3, 1e-3)


def test_what_is_uneven_by_nature_is_not_retaken_for_ever() -> None:
    """Half of the calls take three times as long: a few rounds are taken again, then all count."""
    uneven = Scripted(*[1e-3] * 3, *[1e-3, 1e-3, 1e-3, 3e-3, 3e-3, 1e-3] * 10)
    (measured,) = interleave([uneven], Precision(1e-9, 60.0, 25, 25))
    assert uneven.asked == 3 + len(measured.samples)
    assert measured.samples.count(3e-3) >= 7


def test_on_a_machine_that_stays_slow_all_rounds_count() -> None:
    anchor, plan = Scripted(4e-3), Scripted(2e-3)
    measured = interleave([plan, anchor], Precision(1e-9, 60.0, 9, 9), known=[None, 1e-3])
    assert [one.seconds for one in measured] == [2e-3, 4e-3]
    assert len(measured[0].samples) == len(measured[1].samples) >= 7
    assert anchor.asked == 3 + len(measured[1].samples)
    long = interleave([Scripted(2.0), Scripted(4.0)], Precision(1e-9, 0.0, 2, 3), known=[None, 1.0])
    assert len(long[0].samples) == 2  # no time for another


def test_an_anchor_that_was_kept_from_its_core_makes_no_other_plan_fast() -> None:
    """Rounds of a drift are corrected; one in which the anchor alone took 15 times as long counts as measured."""
    a, b = Measurement.of([0.5, 0.6, 0.55]), Measurement.of([1.0, 1.2, 15.0])
    assert against(a, b, 1.0).samples == pytest.approx((0.5, 0.5, 0.55))
    assert against(Measurement.of([0.5]), Measurement.of([0.0]), 1.0).samples == (0.5,)
