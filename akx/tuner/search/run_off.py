"""The run-off: the few best plans and the baseline, timed in turn with one another at higher precision.

On a GPU they are timed in some places of memory; within the noise the simpler plan wins (:mod:`akx.tuner.select`), and
the winner's result is checked once more. Their trials decide where another process slows the baseline and not all of
them, twice over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import Finalist
from akx.tuner.history.trial import SHARED, Trial
from akx.tuner.measure import Measurement
from akx.tuner.request import Settings
from akx.tuner.search.budget import SearchBudget
from akx.tuner.select import choose, finalists
from akx.tuner.space import is_baseline
from akx.tuner.trial.bench import KEEP_BYTES

if TYPE_CHECKING:
    from akx.tuner.trace.simulation import RecordedBench
    from akx.tuner.trial.bench import Bench

__all__ = ["Decision", "RunOff", "by_trials"]

#: Plans that take at most this many times as long as the best of the run-off are timed in other places of memory too.
_RIVALS = 1.1
#: Seconds, and share of the time, that are waited at most before a run-off that was disturbed is timed again.
_LULL_SECONDS, _LULL_SHARE = 0.5, 0.02


@dataclass(frozen=True)
class Decision:
    """The winner and the baseline, all that took part, and whether disturbance left it to the trials to decide."""

    best: Finalist
    baseline: Finalist
    finalists: tuple[Finalist, ...]
    disturbed: bool = False


class _WrongElsewhere(Exception):
    """A plan failed, or gave a wrong result, in another place of memory."""

    def __init__(self, plan: Plan, reason: str) -> None:
        super().__init__(reason)
        self.plan = plan


@dataclass(frozen=True)
class RunOff:
    """What it takes: see :class:`akx.tuner.search.search.Search`, which hands these on."""

    bench: Bench | RecordedBench
    ledger: Ledger
    settings: Settings
    budget: SearchBudget
    notes: list[str]
    alone: Callable[[], AbstractContextManager[object]]
    record: Callable[[Trial, int], object] | None

    def decide(self, given: Iterable[Plan]) -> Decision:
        """Time the few best, and those `given`, against the baseline once more, and choose."""
        noise, nbytes = self.settings.noise, self.bench.nbytes
        plans = finalists(self.ledger, self.settings.finalists, noise=noise, given=given, nbytes=nbytes)
        plans = self._that_fit(plans)
        disturbed = False
        while True:
            programs, plans = self._programs(plans)
            times = self._timed(plans, programs, again=not disturbed)
            disturbed = self._is_disturbed(times)
            if not disturbed:
                try:
                    times = self._timed_elsewhere(times, programs)
                except _WrongElsewhere as wrong:
                    plans = self._found_out(wrong.plan, str(wrong), plans)
                    continue
            if disturbed and self._is_disturbed_baseline(times):
                decision = by_trials(self._as_tried(plans), noise, nbytes, disturbed=True)
            else:
                finals = tuple(Finalist(plan, one.seconds, one.spread, len(one.samples)) for plan, one in times.items())
                ratio = _ratios(times)
                best, baseline = choose(finals, noise=noise, nbytes=nbytes, ratio=ratio, before=self._tried_seconds)
                decision = Decision(best, baseline, finals)
            winner = decision.best.plan
            try:
                program: Any = programs[plans.index(winner)] if winner in plans else self.bench.program(winner)
                self.bench.run_verified(winner, program)
                break
            except Exception as failure:
                plans = self._found_out(winner, str(failure), plans)
        if disturbed:
            slower, decided = self._slower(times), ", which have decided instead" if decision.disturbed else ""
            self.notes.append(
                f"the run-off was disturbed: the best plans took {slower[0]:.1f} to {slower[-1]:.1f} times as long in "
                f"it as in their trials{decided}; with nothing else on the machine, --retune (retune=True) tells more"
            )
        return decision

    def _that_fit(self, plans: list[Plan]) -> list[Plan]:
        """Plans whose programs are kept beside one another; of a large matrix the best and the best baseline alone."""
        by_seconds = sorted(plans, key=lambda plan: self.ledger[plan].seconds or math.inf)
        first = dict.fromkeys([by_seconds[0], next(filter(is_baseline, by_seconds))])
        taken, fitting = 0, set[Plan]()
        for plan in dict.fromkeys([*first, *by_seconds]):
            taken += self.bench.nbytes(plan)
            if plan in first or taken <= KEEP_BYTES:
                fitting.add(plan)
        return [plan for plan in plans if plan in fitting]

    def _programs(self, plans: list[Plan]) -> tuple[list[Any], list[Plan]]:
        """The finalists' programs, those prepared again that were not kept; without those that fail now."""
        programs: dict[Plan, Any] = {}
        for plan in plans:
            try:
                programs[plan] = self.bench.program(plan)
            except Exception as failure:
                plans = self._found_out(plan, str(failure), plans)
        return [programs[plan] for plan in plans], plans

    def _found_out(self, plan: Plan, reason: str, plans: list[Plan]) -> list[Plan]:
        """The others, where a finalist failed when run again."""
        self.bench.forget(plan)
        self.ledger.fail(plan, reason)
        if self.record is not None:
            self.record(self.ledger[plan], self.bench.nbytes(plan))
        self.notes.append(f"{plan.label()} was right at first and wrong later, and is out: {reason}")
        left = [other for other in plans if other != plan]
        if not any(is_baseline(other) for other in left):
            raise InfeasibleError("the baseline gave a wrong result when it was run again", found=reason)
        return left

    # ------------------------------------------------------------------------------------------------ timing

    def _timed(self, plans: list[Plan], programs: list[Any], *, again: bool) -> dict[Plan, Measurement]:
        """The finalists timed in turn with one another; `again` where some of them were disturbed, if there is time."""
        begin = measure.now()
        times = self._interleaved(plans, programs)
        took = measure.now() - begin
        lull = min(_LULL_SECONDS, _LULL_SHARE * self.budget.seconds())
        if again and self._is_disturbed(times) and self.budget.elapsed() + lull + took <= self.budget.seconds():
            measure.pause(lull)
            return self._interleaved(plans, programs)
        return times

    def _interleaved(
        self, plans: list[Plan], programs: list[Any], rounds: int | None = None
    ) -> dict[Plan, Measurement]:
        """One timing of all, of so many rounds or as many as their precision takes."""
        calls = [self.bench.call(program) for program in programs]
        precision = self.budget.final_precision()
        if rounds:
            precision = replace(precision, rounds_min=rounds, rounds_max=rounds)
        with self.alone():
            found = measure.interleave(calls, precision, known=list(map(self._known, plans)), watch=self.bench.watch)
        return dict(zip(plans, found, strict=True))

    def _timed_elsewhere(self, times: dict[Plan, Measurement], programs: list[Any]) -> dict[Plan, Measurement]:
        """The finalists timed again with those that may win in other places of memory, so often as there is time.

        Where the arrays of a program lie decides which of them share sets of a GPU's L2 cache: the same plan took 134.6
        to 141.8 us in ten searches on an H100, each time as long as in its trial. All rounds count alike, and there are
        as many in each place, so that medians are those of a plan and not of the place that it had by chance.
        """
        fastest = min(times.values(), key=lambda found: found.seconds).seconds
        rivals = [plan for plan, found in times.items() if found.seconds <= _RIVALS * fastest]
        rounds = len(next(iter(times.values())).samples)
        samples = {plan: list(found.samples) for plan, found in times.items()}
        held, took = [programs], sum(self.ledger.prepare_seconds(plan) for plan in rivals)
        is_small = sum(map(self.bench.nbytes, [*times, *rivals])) <= KEEP_BYTES
        for _ in range(self.bench.places - 1 if len(rivals) > 1 and is_small else 0):
            begin, budget = measure.now(), self.budget
            needed = took + budget.final_seconds() + budget.fresh_seconds(rivals[0])
            if budget.elapsed() + needed > budget.seconds():
                break
            try:
                found = self._timed_beside(list(times), rivals, held, rounds)
            except KeyboardInterrupt:  # what was found in the places before stands
                break
            if found is None:
                break
            for plan, one in found.items():
                samples[plan] += one.samples
            took = max(took, measure.now() - begin)
        return {plan: Measurement.of(samples[plan], found.batch) for plan, found in times.items()}

    def _timed_beside(
        self, plans: list[Plan], rivals: list[Plan], held: list[list[Any]], rounds: int
    ) -> dict[Plan, Measurement] | None:
        """So many rounds of the finalists, the rivals in another place than all of `held`, where they are put.

        None where there is no room, or the rounds were disturbed.
        """
        moved = list(held[0])
        for place, plan in enumerate(plans):
            if plan in rivals:
                try:
                    moved[place] = self.bench.elsewhere(plan)
                except (MemoryError, InfeasibleError):  # there is no room for them beside the others
                    return None
                except Exception as failure:
                    raise _WrongElsewhere(plan, str(failure)) from failure
        held.append(moved)
        found = self._interleaved(plans, moved, rounds)
        return None if self._is_disturbed(found) else found

    def _known(self, plan: Plan) -> float | None:
        """Seconds that a finalist took in its trial; None where that was another worker's, on a device of its own."""
        trial = self.ledger[plan]
        return None if trial.origin == SHARED else trial.seconds

    # ------------------------------------------------------------------------------------------------ disturbances

    def _is_disturbed(self, times: Mapping[Plan, Measurement]) -> bool:
        """Whether something has slowed some of the finalists and not others, as what waits for a core that is taken.

        Where all have become slower alike, the machine has, and they compare as they did.
        """
        if not any(self._is_slowed(plan, found) for plan, found in times.items()):
            return False
        slower = self._slower(times)
        return slower[-1] > measure.DISTURBED_FACTOR * slower[0]

    def _is_disturbed_baseline(self, times: Mapping[Plan, Measurement]) -> bool:
        """Whether a baseline is among those that were slowed, so that speed-ups would be too large.

        Where the baselines took what they took before, another plan may have been slowed now, or timed too well in its
        trial, and the run-off stands: the plan loses, which is safe. It stands too where trials were scaled, by an
        anchor that had become slower.
        """
        if self.bench.slowed >= measure.DISTURBED_FACTOR:
            return False
        return any(self._is_slowed(plan, found) for plan, found in times.items() if is_baseline(plan))

    def _is_slowed(self, plan: Plan, found: Measurement) -> bool:
        """Whether a finalist that was tried here took half as much again in every round."""
        before = self._own_seconds(plan)
        return before is not None and measure.all_disturbed(found, before)

    def _own_seconds(self, plan: Plan) -> float | None:
        """Seconds of a trial; None where it was not made in this search."""
        trial = self.ledger[plan]
        return trial.seconds if trial.is_own else None

    def _tried_seconds(self, plan: Plan) -> float | None:
        """Seconds of a trial, whoever made it: as they would have been here."""
        return self.ledger[plan].seconds

    def _slower(self, times: Mapping[Plan, Measurement]) -> list[float]:
        """How many times as long as in their trials here the finalists took, the least first."""
        before = ((plan, self._own_seconds(plan)) for plan in times)
        return sorted(times[plan].seconds / seconds for plan, seconds in before if seconds)

    def _as_tried(self, plans: list[Plan]) -> list[Trial]:
        """The trials of the finalists that were made here, and that of the fastest baseline of these."""
        own = [trial for trial in self.ledger.completed() if trial.is_own and is_baseline(trial.plan)]
        found = [self.ledger[plan] for plan in plans if self.ledger[plan].is_own]
        return list({trial.plan: trial for trial in (*found, *own[:1])}.values())


def by_trials(
    trials: Iterable[Trial], noise: float, nbytes: Callable[[Plan], int], *, disturbed: bool = False
) -> Decision:
    """What complete trials decide, in place of a run-off."""
    finals = tuple(
        Finalist(trial.plan, trial.seconds or math.inf, trial.spread or 0.0, len(trial.samples)) for trial in trials
    )
    return Decision(*choose(finals, noise=noise, nbytes=nbytes), finals, disturbed)


def _ratios(times: Mapping[Plan, Measurement]) -> Callable[[Plan, Plan], Measurement]:
    """Seconds of one plan over those of another, round by round."""
    return lambda one, other: measure.paired_ratio(times[one], times[other])
