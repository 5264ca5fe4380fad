"""Timing of threads on cores that are theirs: of a virtual machine they may be shared, or far apart, for minutes.

:mod:`akx.backends.cpu.cores` tells. Here nothing is measured until the threads have cores of their own, as near to one
another as they have been in this process, and what was measured while they had not is measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from akx.backends.cpu.cores import CoreState, CoreWatch
from akx.backends.host import default_threads
from akx.tuner import measure
from akx.tuner.measure import Measurement, Precision

__all__ = ["Calm", "calm_on"]

#: Seconds that are waited for calm, at a time and in all, and how often something is measured again by default.
_PATIENCE, _ALL, _AGAIN = 30.0, 600.0, 5


class Calm:
    """Where calls of the host are timed in calm times.

    Parameters
    ----------
    threads : int
        Of the calls.
    most : int
        So often something is measured again.

    Attributes
    ----------
    again : int
        Timings that were made once more.
    """

    def __init__(self, threads: int, most: int = _AGAIN) -> None:
        self.again = 0
        self._most = most
        self._waited = 0.0
        self._threads = threads
        self._watch = CoreWatch(threads) if threads > 1 and measure.is_real_time() else None

    def timed(
        self, calls: Sequence[Callable[[], object]], precision: Precision | None = None
    ) -> tuple[list[Measurement], bool]:
        """As :func:`akx.tuner.measure.interleave`, and whether the times were calm."""
        if self._watch is None:
            return measure.interleave(calls, precision), True
        for _ in range(1 + self._most):
            self._wait(self._watch)
            here = _Counting(self._threads, self._watch.seen)
            found = measure.interleave(calls, precision, watch=here)
            self._watch.seen.extend(state for state in here.own if state is not None)
            if len(here.own) - len(self._watch.slow(here.own)) >= len(found[0].samples):
                return found, True
            self.again += 1
        return found, False

    def _wait(self, watch: CoreWatch) -> None:
        begin = time.monotonic()
        end = begin + min(_PATIENCE, max(0.0, _ALL - self._waited))
        while watch.slow([watch.look()]) and time.monotonic() < end:
            time.sleep(0.2)
        self._waited += time.monotonic() - begin


def calm_on(backend: str, most: int = _AGAIN) -> Calm:
    """For calls of a backend: on a GPU no threads of the host are looked at."""
    return Calm(default_threads() if backend == "cpu" else 1, most)


class _Counting(CoreWatch):
    """Keeps what it saw after each round; None where it was no time to look."""

    def __init__(self, threads: int, seen: Sequence[CoreState]) -> None:
        super().__init__(threads, tuple(seen))
        self.own: list[CoreState | None] = []

    def look(self) -> CoreState | None:
        """As another, and kept."""
        state = super().look()
        self.own.append(state)
        return state
