"""Classic or communication-avoiding: found out while the classic solver is at work, for a share of its time at most.

Where nothing is known of a matrix the classic solver begins. Most systems are solved before it would have paid to look
at anything else. Where many steps are needed, its communication-avoiding counterpart is timed between two steps, from
the first guess, as soon as a quarter of the time so far is enough for a short solve by it, with what making it ready
takes; and once more, within the same share, as one timing says little on a busy machine: two in a row with the same
winner count. Where its step is shorter by so much that it pays, the classic solver ends, and it goes on from there:

    gmres           at the end of a cycle nothing is lost
    cg, bicgstab    the space is lost, at worst as many steps as were done; so what it saves on the steps that are
                    left, by the rate at which the residual has fallen so far, must be more than that

In both cases the figures are for the next solve. What cannot be broken off is making it ready: where that takes longer
than was reckoned, so much is spent above the quarter, once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np

from akx.solvers.monitor import Watch
from akx.solvers.stats import SolveStats

__all__ = ["SHARE", "Pilot", "Stopwatch"]

#: Most of the time of a solve that measuring may take, over what it takes without.
SHARE = 0.25
#: Steps (cycles of gmres) that are not timed, and the fewest that are.
_BEFORE, _LEAST = 4, 8
#: A step of the counterpart is taken to be so many times the classic one before it is known, and its setup too.
_SLOWER, _SETUPS = 2.0, 4
#: Blocks (cycles of gmres) of the counterpart: not timed, timed, and the fewest for a verdict.
_FIRST_BLOCKS, _BLOCKS, _FEWEST = 1, 6, 3


class Pilot(Watch):
    """The watch of a classic solver of at most `limit` steps, `in_cycles` of gmres, which is looked at between them.

    ``trial(seconds)`` times the counterpart for so long at most: seconds of a step, Inf where its basis is of no use,
    None where the time was too short to tell. ``steps()`` are those of a trial, asked for where as many as `fewest`
    would be within what may be spent. Its kernels are taken to need `ready` seconds before its first step. The solve
    began when `begun` was the time of :func:`time.perf_counter`.

    Attributes
    ----------
    classic, counterpart : float or None
        Seconds of a step, None until the counterpart was timed.
    spent : float
        Seconds of all trials.
    handed_over : bool
        Whether the classic solver was ended.
    """

    is_of_prepared = False

    def __init__(
        self,
        trial: Callable[[float], float | None],
        *,
        begun: float,
        in_cycles: bool,
        limit: int,
        steps: Callable[[], int],
        fewest: int,
        ready: float,
    ) -> None:
        self._trial, self._begun, self._in_cycles = trial, begun, in_cycles
        self._limit, self._find_steps, self._fewest, self._ready = limit, steps, fewest, ready
        self._stats: SolveStats | None = None
        self._looks, self._first = 0, (0, 0.0)
        self._least_cost = self.spent = 0.0
        self._before: tuple[float, float] | None = None  # seconds of a step of both, by the trial before
        self.classic: float | None = None
        self.counterpart: float | None = None
        self.handed_over = False

    def due(self, stats: SolveStats) -> bool:
        """Whether a trial is within what may be spent by now."""
        if self.counterpart is not None:
            return False
        if stats is not self._stats:
            self._stats, self._looks = stats, 0
        self._looks += 1
        if self._looks <= (2 if self._in_cycles else 1 + _BEFORE):  # the first look is before the first step
            self._first = stats.iterations, _busy_seconds(stats)
            return False
        steps = stats.iterations - self._first[0]
        if steps < _LEAST:
            return False
        self.classic = (_busy_seconds(stats) - self._first[1]) / steps
        ready = self._ready + _SETUPS * stats.seconds.get("setup", 0.0)
        least = max(ready + _SLOWER * self._fewest * self.classic, self._least_cost)
        return least <= self._allowed() and ready + _SLOWER * self._steps * self.classic <= self._allowed()

    @cached_property
    def _steps(self) -> int:
        return self._find_steps()

    def ends(self, stats: SolveStats, target: float) -> bool:
        """The trial; whether the counterpart is to go on."""
        begin = time.perf_counter()
        found = self._trial(self._allowed())
        took = time.perf_counter() - begin
        self.spent += took
        self._least_cost = took if found is not None else 2 * took
        if found is None or not self._agrees(found, stats):
            return False
        assert self.counterpart is not None
        self.handed_over = self._pays(self.counterpart, stats, target)
        return self.handed_over

    def _agrees(self, found: float, stats: SolveStats) -> bool:
        """Whether the trial before had the same winner, whose means count then; a basis of no use needs no other."""
        assert self.classic is not None
        pair, before = (self.classic, found), self._before
        self._before, self._first = pair, (stats.iterations, _busy_seconds(stats))
        if math.isinf(found):
            before = pair
        if before is None or (before[0] > before[1]) != (pair[0] > pair[1]):
            return False
        self.classic, self.counterpart = (float(np.mean(both)) for both in zip(before, pair, strict=True))
        return True

    def _allowed(self) -> float:
        """Seconds that may still be spent."""
        return SHARE * (time.perf_counter() - self._begun - self.spent) - self.spent

    def _pays(self, counterpart: float, stats: SolveStats, target: float) -> bool:
        gain = 1 - counterpart / self.classic if self.classic else 0.0
        if self._in_cycles or gain <= 0:
            return gain > 0
        done, left = stats.iterations, float(self._limit - stats.iterations)
        first, last = stats.residuals[0], stats.residuals[-1]
        if 0 < target < last < first:
            left = min(left, done * float(np.log(last / target) / np.log(first / last)))
        return gain * left > done


class Stopwatch(Watch):
    """The watch of a counterpart on trial: it ends after some blocks, or when its `seconds` are over.

    After so many `steps` without a first basis there will be none. `in_cycles`: it is ca_gmres, looked at between
    cycles. `queued`: blocks are queued ahead, so that they do not end one by one.
    """

    def __init__(self, seconds: float, steps: int, *, in_cycles: bool, queued: bool = False) -> None:
        self._deadline, self._in_cycles, self._queued = time.perf_counter() + seconds, in_cycles, queued
        self._steps, self._bases = steps, 0
        self._points: list[tuple[int, float]] = []
        self.late = False

    def due(self, stats: SolveStats) -> bool:
        """Note how far it is; whether that is enough."""
        if self._in_cycles or len(stats.s) > self._bases:
            self._points.append((stats.iterations, _busy_seconds(stats)))
            self._bases = len(stats.s)
        self.late = time.perf_counter() > self._deadline
        if not (self._bases or self._in_cycles) and stats.iterations >= self._steps:
            return True
        return self.late or len(self._points) > _FIRST_BLOCKS + (1 if self._in_cycles else _BLOCKS)

    def verdict(self, stats: SolveStats) -> float | None:
        """Seconds of a step, Inf where no basis was of use, None where that cannot be told."""
        points = [*self._points, (stats.iterations, _busy_seconds(stats))] if self._in_cycles else self._points
        timed = points[_FIRST_BLOCKS:]
        steps = [(more - less) / (many - few) for (few, less), (many, more) in pairwise(timed) if many > few]
        if len(steps) >= (1 if self._in_cycles else _FEWEST) and stats.s:
            (few, less), (many, more) = timed[0], timed[-1]
            return (more - less) / (many - few) if self._queued else float(np.median(steps))
        return None if self.late else float("inf")


def _busy_seconds(stats: SolveStats) -> float:
    """Seconds of steps, without the setup."""
    return sum(seconds for phase, seconds in stats.seconds.items() if phase not in ("setup", "total"))
