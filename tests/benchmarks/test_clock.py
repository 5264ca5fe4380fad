"""The clock: order of turns, batches, early stop, quartiles. Time is a counter here: no test waits for the machine."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from pretended import Seconds

from benchmarks import clock
from benchmarks.clock import Settings, Timing, interleave

QUICK = Settings(seconds=0.0, rounds_min=5, rounds_max=5, sample_seconds=1e-4, warm_seconds=0.0, pause_seconds=0.0)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    pretended = Seconds()
    monkeypatch.setattr(clock, "time", pretended)
    return pretended


def takes(time: Seconds, *seconds: float) -> Callable[[], None]:
    """A call that takes `seconds`, the last of them from then on."""
    left = list(seconds)
    return lambda: time.sleep(left.pop(0) if len(left) > 1 else left[0])


def test_quartiles_are_those_of_the_samples() -> None:
    timing = Timing.of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert timing == Timing(3.0, (4.0 - 2.0) / 3.0, 5)


def test_calls_take_turns_and_the_order_is_reversed(time: Seconds) -> None:
    trace: list[str] = []

    def call(name: str) -> None:
        trace.append(name)
        time.sleep(2e-3)  # longer than ten samples: one sample of one call a turn, after one untimed call

    found = interleave({"a": lambda: call("a"), "b": lambda: call("b")}, QUICK)
    assert [timing.samples for timing in found.values()] == [5, 5]
    assert "".join(trace[:8]) == "aaaabbbb"  # a warm-up and three trial calls of each
    assert "".join(trace[8:]) == "aabb" + "bbaa" + "aabb" + "bbaa" + "aabb"


def test_medians_are_those_of_single_calls(time: Seconds) -> None:
    found = interleave({"short": takes(time, 1e-3), "long": takes(time, 3e-3)}, QUICK, keep=("long",))
    assert found["short"].seconds == pytest.approx(1e-3)
    assert found["long"].seconds == pytest.approx(3e-3)
    assert found["long"].spread == pytest.approx(0.0, abs=1e-9)


def test_pauses_and_untimed_calls_are_not_in_the_samples(time: Seconds) -> None:
    settings = Settings(0.0, 1, 1, sample_seconds=1e-2, warm_seconds=4e-3, pause_seconds=0.5)
    calls = iter([1e-3] * 4 + [7e-3] * 4 + [1e-3] * 30)  # trial calls, untimed calls, three samples of ten calls
    found = interleave({"only": lambda: time.sleep(next(calls))}, settings)
    assert found["only"].seconds == pytest.approx(1e-3)
    assert found["only"].samples == 3
    assert next(calls, None) is None


def test_a_call_too_short_for_the_clock_is_batched(time: Seconds) -> None:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        time.sleep(2e-6)

    found = interleave({"short": count}, QUICK)
    assert calls == 4 + 5 * (1 + 3 * 50)  # 15 samples of 100 us, each turn after one untimed call
    assert found["short"].samples == 15
    assert found["short"].seconds == pytest.approx(2e-6)


def test_hopeless_calls_stop_after_three_rounds_unless_kept(time: Seconds) -> None:
    slow = {"fast": takes(time, 2e-3), "slow": takes(time, 8e-3), "kept": takes(time, 8e-3)}
    found = interleave(slow, QUICK, keep=("kept",))
    assert {name: timing.samples for name, timing in found.items()} == {"fast": 5, "slow": 3, "kept": 5}


def test_the_collector_is_put_back_even_after_a_failure() -> None:
    def fail() -> None:
        assert not gc.isenabled()
        raise OSError("broken")

    assert gc.isenabled()
    with pytest.raises(OSError, match="broken"):
        interleave({"fail": fail}, QUICK)
    assert gc.isenabled()


def test_rounds_end_with_the_time(time: Seconds) -> None:
    settings = Settings(seconds=0.5, rounds_min=3, rounds_max=50, pause_seconds=0.0)
    assert interleave({"only": takes(time, 30e-3)}, settings)["only"].samples == 9  # of 60 ms a turn
    assert interleave({"only": takes(time, 0.4)}, settings)["only"].samples == 3
    assert interleave({"only": takes(time, 2e-3)}, settings)["only"].samples == 150  # as many rounds as there may be
