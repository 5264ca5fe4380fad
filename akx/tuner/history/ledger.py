"""The trials of one search, and what can be read off them."""

from __future__ import annotations

import math
from dataclasses import replace

from akx.core.plan import Option, Plan
from akx.tuner.history.trial import COMPLETE, EARLIER, FAILED, Trial
from akx.tuner.measure import median
from akx.tuner.space import Space, is_baseline

__all__ = ["Ledger"]

#: A plan must be this much faster to count as progress.
_PROGRESS = 0.99
#: Plans that take this many times longer to prepare than others must be within this factor of the best.
_DEAR, _NEAR = 5.0, 1.1
#: So many times as long as the median plan of a kind one takes to prepare from nothing, at most.
_FRESH = 3.0


class Ledger:
    """Every trial once, in order; the fastest complete trial and that of a baseline so far.

    `since_progress` counts trials, of those that took any work, since one was clearly better than all before.
    """

    def __init__(self, space: Space) -> None:
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self.baseline: Trial | None = None
        self.since_progress = 0
        self._space = space
        self._by_plan: dict[Plan, Trial] = {}
        self._choices: dict[tuple[str, Option], float] = {}
        self._prepare: dict[tuple[str, str], list[float]] = {}
        self._again: dict[tuple[str, str], float] = {}
        self._expected: dict[tuple[str, str], list[float]] = {}
        self._compiled: set[tuple[str, str]] = set()
        self._first: list[float] = []

    def __contains__(self, plan: Plan) -> bool:
        return plan in self._by_plan

    def __getitem__(self, plan: Plan) -> Trial:
        return self._by_plan[plan]

    @property
    def best_seconds(self) -> float | None:
        """Seconds of the best trial so far."""
        return None if self.best is None else self.best.seconds

    @property
    def baseline_seconds(self) -> float | None:
        """Seconds of the baseline so far."""
        return None if self.baseline is None else self.baseline.seconds

    @property
    def measured_seconds(self) -> float | None:
        """Seconds of the fastest plan that was measured now, here or by a worker: figures on record may be off."""
        found = (trial.seconds for trial in self.trials if trial.state == COMPLETE and trial.origin != EARLIER)
        return min((seconds for seconds in found if seconds is not None), default=None)

    def add(self, trial: Trial) -> bool:
        """Enter a trial. Returns whether it became the baseline."""
        self.trials.append(trial)
        self._by_plan[trial.plan] = trial
        kind, again = _kind(trial.plan), trial.prepare_again_seconds
        if trial.prepare_seconds is not None:
            if _code(trial.plan) not in self._compiled:
                self._compiled.add(_code(trial.plan))
                self._first.append(trial.elapsed or 0.0)
            self.since_progress += 1
            self._prepare.setdefault(kind, []).append(trial.prepare_seconds)
            self._expected.setdefault(kind, []).append(trial.prepare_seconds if again is None else again)
        if again is not None:
            self._again[kind] = max(again, self._again.get(kind, 0.0))
        if trial.seconds is None:
            return False
        for choice in (self._space.values(trial.plan) or {}).items():
            self._choices[choice] = min(trial.seconds, self._choices.get(choice, math.inf))
        if trial.state != COMPLETE:
            return False
        best, baseline = self.best_seconds, self.baseline_seconds
        if best is None or trial.seconds < best:
            if best is None or trial.seconds < _PROGRESS * best:
                self.since_progress = 0
            self.best = trial
        if is_baseline(trial.plan) and (baseline is None or trial.seconds < baseline):
            self.baseline = trial
            return True
        return False

    def fail(self, plan: Plan, reason: str) -> None:
        """Change a trial that seemed complete to a failed one."""
        changed = replace(self._by_plan[plan], state=FAILED, reason=reason)
        self.trials[changed.number] = self._by_plan[plan] = changed

    def completed(self) -> list[Trial]:
        """Complete trials, fastest first."""
        done = [trial for trial in self.trials if trial.state == COMPLETE and trial.seconds is not None]
        return sorted(done, key=lambda trial: (trial.seconds or 0.0, trial.number))

    def prepare_seconds(self, plan: Plan) -> float:
        """Median seconds that plans of this schedule and order of the rows took to prepare; 0 where none was."""
        return median(self._prepare.get(_kind(plan), [0.0]))

    def fresh_seconds(self, plan: Plan) -> float:
        """Seconds to prepare a plan of this schedule and order of the rows with nothing memoised; 0 where none was.

        The dearest of its kind: what others found memoised it had to do. Where compilation was not measured separately
        it may be included, so that it counts as three times the median at most.
        """
        if _kind(plan) in self._again:
            return self._again[_kind(plan)]
        spent = self._prepare.get(_kind(plan), [0.0])
        return min(max(spent), _FRESH * median(spent))

    def is_compiled(self, variant: str) -> bool:
        """Whether a plan of this variant, of whatever schedule, has been prepared in this search."""
        return any(variant == compiled for _, compiled in self._compiled)

    def expected_seconds(self, plan: Plan) -> float:
        """Seconds before a trial of this plan can be timed: like others of its kind, and to compile what is new.

        The very first trial tells nothing of the price of compiling: it compiles what all others share. What a trial
        waited for and compiled, another of its kind is not expected to take again.
        """
        others = self._first[1:]
        compiling = median(others) if others and _code(plan) not in self._compiled else 0.0
        return max(median(self._expected.get(_kind(plan), [0.0])), compiling)

    def is_dear(self, plan: Plan, limit: float) -> bool:
        """Whether plans of this schedule and order took more than `limit` seconds to prepare, and for nothing.

        For nothing: five times as long as the median plan, with no complete trial near the best. Then there are better
        uses of the time. Once is no rule: the first of a kind pays for what the others find memoised.
        """
        spent = self._prepare.get(_kind(plan), [])
        if len(spent) < 2 or median(spent) <= limit:
            return False
        everyone = [seconds for kind in self._prepare.values() for seconds in kind]
        if median(spent) <= _DEAR * median(everyone):
            return False
        best = self.best_seconds or math.inf
        return not any(
            _kind(t.plan) == _kind(plan) and (t.seconds or math.inf) < _NEAR * best for t in self.completed()
        )

    def record_of(self, choice: tuple[str, Option]) -> float:
        """Fewest seconds of any trial with this choice of a parameter, in whatever schedule; 0 where there is none."""
        return self._choices.get(choice, 0.0)


def _code(plan: Plan) -> tuple[str, str]:
    """What has to be compiled once."""
    return plan.schedule, plan.variant


def _kind(plan: Plan) -> tuple[str, str]:
    """What the price of preparing depends on."""
    return plan.schedule, plan.partitioner
