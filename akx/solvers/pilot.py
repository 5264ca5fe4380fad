"""Classic or communication-avoiding: found out while the classic solver is at work, for a share of its time at most.

Where nothing is known of a matrix the classic solver begins. Most systems are solved before it would have paid to look
at anything else, and then nothing was. Where many steps are needed, the sister is timed between two steps, from the
first guess: when a quarter of the time so far is enough for a short solve by her, with what making her ready takes. She
is told how long she has, and ends where that is over. Where her step is shorter by so much that it pays, the classic
solver ends, and she goes on from its x:

    gmres           at the end of a cycle nothing is lost
    cg, bicgstab    the space is lost, at worst as many steps as were done; so what she saves on the steps that are
                    left, by the rate at which the residual has fallen so far, must be more than that

Otherwise it goes on as if nothing had been. In both cases the figures are for the next solve. What cannot be broken off
is making her ready: where that takes longer than was reckoned, so much is spent above the quarter, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np

from akx.solvers.monitor import busy_seconds
from akx.solvers.stats import SolveStats

__all__ = ["SHARE", "Pilot", "Stopwatch"]

#: Most of the time of a solve that measuring may take, over what it takes without.
SHARE = 0.25
#: Steps (cycles of gmres) that are not timed, and the fewest that are.
_BEFORE, _LEAST = 4, 8
#: A step of the sister is taken to be so many times the classic one before it is known.
_SLOWER = 2.0
#: And her setup, where her kernels are there, so many times the classic one.
_SETUPS = 4
#: Blocks (cycles of gmres) of the sister: not timed, timed, and the fewest for a verdict.
_FIRST_BLOCKS, _BLOCKS, _FEWEST = 1, 6, 3


class Pilot:
    """The watch of a classic solver.

    Parameters
    ----------
    trial : callable
        ``trial(seconds)`` times the sister for so long at most: seconds of a step, Inf where her basis is of no use,
        None where the time was too short to tell.
    begun : float
        When the solve began, on :func:`time.perf_counter`.
    in_cycles : bool
        Whether it is gmres, which is looked at between cycles.
    limit : int
        Most steps of the solve; of gmres not looked at.
    steps : callable
        Those of a trial; asked for where as many as `fewest` would be within what may be spent.
    fewest : int
        That it has at least.
    ready : float
        Seconds that the sister's kernels are taken to need before her first step, 0 where they were used before.

    Attributes
    ----------
    classic, sister : float or None
        Seconds of a step, None until the sister was timed.
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
        self._least_cost = 0.0
        self.classic: float | None = None
        self.sister: float | None = None
        self.spent = 0.0
        self.handed_over = False

    def due(self, stats: SolveStats) -> bool:
        """Whether a trial is within what may be spent by now."""
        if self.sister is not None:
            return False
        if stats is not self._stats:
            self._stats, self._looks = stats, 0
        self._looks += 1
        if self._looks <= (2 if self._in_cycles else 1 + _BEFORE):  # the first look is before the first step
            self._first = stats.iterations, busy_seconds(stats)
            return False
        steps = stats.iterations - self._first[0]
        if steps < _LEAST:
            return False
        self.classic = (busy_seconds(stats) - self._first[1]) / steps
        ready = self._ready + _SETUPS * stats.seconds.get("setup", 0.0)
        least = max(ready + _SLOWER * self._fewest * self.classic, self._least_cost)
        return least <= self._allowed() and ready + _SLOWER * self._steps * self.classic <= self._allowed()

    @cached_property
    def _steps(self) -> int:
        return self._find_steps()

    def ends(self, stats: SolveStats, target: float) -> bool:
        """The trial; whether the sister is to go on."""
        begin = time.perf_counter()
        self.sister = self._trial(self._allowed())
        took = time.perf_counter() - begin
        self.spent += took
        self._least_cost = 2 * took
        self.handed_over = self.sister is not None and self._pays(stats, target)
        return self.handed_over

    def _allowed(self) -> float:
        """Seconds that may still be spent."""
        return SHARE * (time.perf_counter() - self._begun - self.spent) - self.spent

    def _pays(self, stats: SolveStats, target: float) -> bool:
        assert self.classic is not None
        assert self.sister is not None
        gain = 1 - self.sister / self.classic if self.classic > 0 else 0.0
        if self._in_cycles or gain <= 0:
            return gain > 0
        done, left = stats.iterations, float(self._limit - stats.iterations)
        first, last = stats.residuals[0], stats.residuals[-1]
        if 0 < target < last < first:
            left = min(left, done * float(np.log(last / target) / np.log(first / last)))
        return gain * left > done


class Stopwatch:
    """The watch of a sister on trial: she ends after some blocks, or when her time is over.

    Parameters
    ----------
    seconds : float
        That she has.
    steps : int
        After so many without a first basis there will be none.
    in_cycles : bool
        Whether it is ca_gmres, which is looked at between cycles.
    queued : bool
        Whether blocks are queued ahead, so that they do not end one by one.
    """

    is_of_prepared = True

    def __init__(self, seconds: float, steps: int, *, in_cycles: bool, queued: bool = False) -> None:
        self._deadline, self._in_cycles, self._queued = time.perf_counter() + seconds, in_cycles, queued
        self._steps = steps
        self._points: list[tuple[int, float]] = []
        self._bases = 0
        self.late = False

    def due(self, stats: SolveStats) -> bool:
        """Note how far she is; whether that is enough."""
        if self._in_cycles or len(stats.s) > self._bases:
            self._points.append((stats.iterations, busy_seconds(stats)))
            self._bases = len(stats.s)
        self.late = time.perf_counter() > self._deadline
        if not (self._bases or self._in_cycles) and stats.iterations >= self._steps:
            return True
        return self.late or len(self._points) > _FIRST_BLOCKS + (1 if self._in_cycles else _BLOCKS)

    def ends(self, stats: SolveStats, target: float) -> bool:
        """That she is to end."""
        return True

    def verdict(self, stats: SolveStats) -> float | None:
        """Seconds of a step, Inf where no basis was of use, None where that cannot be told."""
        points = [*self._points, (stats.iterations, busy_seconds(stats))] if self._in_cycles else self._points
        timed = points[_FIRST_BLOCKS:]
        steps = [
            (after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(timed) if after[0] > before[0]
        ]
        if len(steps) >= (1 if self._in_cycles else _FEWEST) and stats.s:
            (few, less), (many, more) = timed[0], timed[-1]
            return (more - less) / (many - few) if self._queued else float(np.median(steps))
        return None if self.late else float("inf")
