"""The budget of a search: trials, and seconds, of which the run-off and what follows it keep a reserve.

Where the user says how often the kernel will run, the seconds are bounded by what further search could win::

    seconds = min(budget, calls x max(best so far - least, best so far / 10) / 4)

`least` being what no plan is thought to do with less than (:attr:`akx.tuner.model.seconds.Model.least_seconds`); the
model may be wrong, so that a tenth of the time is always thought possible; and few searches win more than a quarter of
what is. For few calls that is less than was spent by the time the baseline is known, which is then the plan; for many
the budget is what it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import FEW_CALLS, TIME_BUDGET
from akx.tuner.measure import Precision
from akx.tuner.model.budget import CompileClock
from akx.tuner.model.seconds import Model
from akx.tuner.request import Settings

__all__ = ["SearchBudget"]

#: Share of the time that baselines may take: there are many on first use, when each has to be compiled.
_BASELINE_SHARE = 0.4
#: Share of the time that the run-off may take, and that is kept back for it and the last preparation at most.
_FINAL_SHARE, _RESERVED_SHARE = 0.1, 0.25
#: Share of the run-off's time that it has in any case.
_LEAST_FINAL = 1 / 3
#: Share of the time that is kept back for what nobody can know before: the end of a trial that was begun in time, and
#: a new order of the rows for the last preparation.
_END_SHARE = 0.09
#: Share of the best time that further search may win, whatever the model says.
_LEAST_GAIN = 0.1
#: Share of what further search could win at most that it may cost: plans that take the least possible are rare.
_WORTH = 0.25


class SearchBudget:
    """Trials and seconds of a search that began at `start`; `made` counts its trials.

    `ordering_seconds` are those that ordering the rows for a plan takes.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        model: Model,
        start: float,
        ordering_seconds: Callable[[Plan], float],
    ) -> None:
        self.made = 0
        self.clock = CompileClock()
        self._settings, self._ledger, self._start = settings, ledger, start
        self._least = 0.0 if settings.calls is None else model.least_seconds
        self._ordering_seconds = ordering_seconds

    def gone(self, *, baseline: bool = False) -> str:
        """Which budget is at its end, or "". Baselines may take half of the trials and a share of the time."""
        trials = self._settings.trials
        if self.made >= (max(1, -(-trials // 2)) if baseline else trials):
            return "trial budget"
        if self.left() <= 0 or (baseline and self.elapsed() > _BASELINE_SHARE * self.seconds()):
            return self.time_gone()
        return ""

    def time_gone(self) -> str:
        """What it is that leaves no time."""
        return FEW_CALLS if _WORTH * self.gain() < self._settings.seconds else TIME_BUDGET

    def elapsed(self) -> float:
        """Seconds since the search began, without what was compiled here meanwhile, up to as much again."""
        return measure.now() - self._start - min(self.clock.seconds, self._settings.seconds)

    def gain(self) -> float:
        """Most seconds that further search can win in the calls to come; infinite where nobody said how many."""
        best, calls = self._ledger.measured_seconds, self._settings.calls
        if calls is None or best is None:
            return math.inf
        return calls * max(best - self._least, _LEAST_GAIN * best)

    def seconds(self) -> float:
        """Most seconds in all: the budget, or what more search is worth where that is less."""
        return min(self._settings.seconds, _WORTH * self.gain())

    def left(self) -> float:
        """Seconds left for trials: the rest is for the end of one, the run-off and preparing the winner anew."""
        seconds, best = self.seconds(), self._ledger.best
        reserve = self.final_seconds() + _END_SHARE * seconds
        if best is not None and best.seconds is not None:
            rounds = 3 * (self._settings.finalists + 2) * best.seconds
            needed = max(self.final_seconds(), rounds) + self.fresh_seconds(best.plan) + _END_SHARE * seconds
            reserve = min(needed, _RESERVED_SHARE * seconds)
        return seconds - self.elapsed() - reserve

    def final_seconds(self) -> float:
        """Seconds of the run-off."""
        return min(self._settings.final.seconds, _FINAL_SHARE * self.seconds())

    def fresh_seconds(self, plan: Plan) -> float:
        """Seconds to prepare a plan with nothing memoised."""
        return self._ledger.fresh_seconds(plan) + self._ordering_seconds(plan)

    def final_precision(self) -> Precision:
        """That of the run-off, with less time where the last trial took longer than could be known."""
        best, allowed = self._ledger.best, self.final_seconds()
        over = self.elapsed() + allowed - self.seconds()
        if best is not None:
            over += self.fresh_seconds(best.plan)
        final = self._settings.final
        seconds = max(allowed - max(over, 0.0), _LEAST_FINAL * allowed)
        return Precision(final.relative, seconds, final.rounds_min, final.rounds_max)
