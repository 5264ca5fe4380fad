"""The clock: order of turns, batches, early stop, quartiles."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

from benchmarks.clock import Settings, Timing, interleave

QUICK = Settings(seconds=0.0, rounds_min=5, rounds_max=5, sample_seconds=1e-4, warm_seconds=0.0, pause_seconds=0.0)


def test_quartiles_are_those_of_the_samples() -> None:
    timing = Timing.of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert timing == Timing(3.0, (4.0 - 2.0) / 3.0, 5)


def test_calls_take_turns_and_the_order_is_reversed() -> None:
    trace: list[str] = []

    def call(name: str) -> None:
        trace.append(name)
        time.sleep(2e-3)  # longer than ten samples: one sample of one call a turn, after one untimed call

    found = interleave({"a": lambda: call("a"), "b": lambda: call("b")}, QUICK)
    assert [timing.samples for timing in found.values()] == [5, 5]
    rounds = "".join(trace[8:])  # after a warm-up and three trial calls of each
    assert rounds == "aabb" + "bbaa" + "aabb" + "bbaa" + "aabb"


def test_medians_are_close_to_what_a_call_takes() -> None:
    found = interleave({"short": lambda: time.sleep(1e-3), "long": lambda: time.sleep(3e-3)}, QUICK, keep=("long",))
    assert 1e-3 <= found["short"].seconds < 3e-3 <= found["long"].seconds < 9e-3


def test_a_call_too_short_for_the_clock_is_batched() -> None:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    found = interleave({"short": count}, QUICK)
    assert calls > 15 * 50  # 15 samples of 100 us of a call of well under 2 us
    assert found["short"].samples == 15
    assert found["short"].seconds < 1e-5


def test_hopeless_calls_stop_after_three_rounds_unless_kept() -> None:
    slow = {"fast": lambda: time.sleep(2e-3), "slow": lambda: time.sleep(8e-3), "kept": lambda: time.sleep(8e-3)}
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


def test_rounds_end_with_the_time() -> None:
    settings = Settings(seconds=0.0, rounds_min=3, rounds_max=50, pause_seconds=0.0)
    found = interleave({"only": lambda: time.sleep(30e-3)}, settings)
    assert found["only"].samples == 3
    assert np.isfinite(found["only"].spread)
