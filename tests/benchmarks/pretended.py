"""Time that passes only where somebody sleeps, so that nothing else on the machine can be seen in a figure."""

from __future__ import annotations

__all__ = ["Seconds"]


class Seconds:
    """What `benchmarks.clock` uses of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
