"""Time that passes only where somebody sleeps, so that nothing else on the machine can be seen in a figure."""

from __future__ import annotations

__all__ = ["Seconds", "TunerSeconds"]


class Seconds:
    """What `benchmarks.clock` uses of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class TunerSeconds:
    """A clock for the tuner (:class:`akx.tuner.measure.Clock`), with the same `sleep`."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        self.passed += 1e-9  # looking takes a while
        return self.passed

    def pause(self, seconds: float) -> None:
        self.passed += seconds

    sleep = pause
