"""Timing of threads on cores that are theirs: of a virtual machine they may be shared, or far apart, for minutes.

:mod:`akx.tuner.cores` tells. Here nothing is measured until the threads have cores of their own, as near to one another
as they have been in this process, and what was measured while they had not is measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from akx.tuner import measure
from akx.tuner.cores import CoreWatch
from akx.tuner.measure import Measurement, Precision

__all__ = ["Calm"]

#: Seconds that are waited for calm, and how often something is measured again at most.
_PATIENCE, _AGAIN = 60.0, 5


class Calm:
    """Where calls of the host are timed in calm times.

    Parameters
    ----------
    threads : int
        Of the calls.

    Attributes
    ----------
    again : int
        Timings that were made once more.
    """

    def __init__(self, threads: int) -> None:
        self.again = 0
        self._threads = threads
        self._watch = CoreWatch(threads) if threads > 1 else None

    def timed(
        self, calls: Sequence[Callable[[], object]], precision: Precision | None = None
    ) -> tuple[list[Measurement], bool]:
        """As :func:`akx.tuner.measure.interleave`, and whether the times were calm."""
        if self._watch is None:
            return measure.interleave(calls, precision), True
        for _ in range(1 + _AGAIN):
            self._wait(self._watch)
            here = CoreWatch(self._threads, nearest=self._watch.nearest)
            found = measure.interleave(calls, precision, watch=here)
            if here.note is None:
                return found, True
            self.again += 1
        return found, False

    @staticmethod
    def _wait(watch: CoreWatch) -> None:
        end = time.monotonic() + _PATIENCE
        while watch.slow([watch.look()]) and time.monotonic() < end:
            time.sleep(0.2)
