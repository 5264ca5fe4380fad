"""The search: from a space of plans to the one to keep.

1. baseline      plain products in every variant, natural order; the fastest becomes the anchor of all timing
2. seeds         the predicted plan, the other schedules' defaults, and what the traffic models like best
3. search        in turn a neighbour of the best plan (one parameter changed) and a suggestion of Optuna's sampler
                 (TPE), which learns from every trial, the seeds included
4. run-off       the few best and the baseline, timed in turn with one another at higher precision; within the noise the
                 simpler plan wins, and the winner's result is checked once more

Nothing is tried twice. The choices depend on the seed and the measurements alone. The search ends with its budget of
trials or of seconds, when nothing better was found for a while, or when nothing is left; Ctrl-C ends it with the best
so far.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from akx.errors import ArgumentError, InfeasibleError
from akx.kernels.base import Program
from akx.plan import Plan
from akx.tuner import measure
from akx.tuner.measure import Precision
from akx.tuner.predict import Model, predicted
from akx.tuner.result import COMPLETE, FAILED, Finalist, Progress, Trial
from akx.tuner.sampler import Sampler
from akx.tuner.space import BASELINE_SCHEDULE, Space, is_baseline
from akx.tuner.worker import Bench

__all__ = ["Outcome", "Search", "Settings"]

#: A plan must be this much faster to count as progress.
_PROGRESS = 0.99
#: Combinations that are looked through for something not yet tried.
_ENUMERATED = 20_000
#: Infeasible plans that may become trials, as examples of the reasons; the rest is passed over.
_REFUSALS = 5
#: Share of the time that baselines may take: there are many on first use, when each has to be compiled.
_BASELINE_SHARE = 0.5
#: Seconds that ranking by the traffic models may take.
_RANKING_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """How a search spends its budget.

    Attributes
    ----------
    trials : int
        Most trials.
    seconds : float
        Most seconds in all; a trial under way is finished.
    patience : int
        Trials without progress after which the search ends.
    race : float
        A candidate this many times slower than the best is dropped after a short measurement.
    precision, final : Precision
        Of a trial and of the run-off.
    finalists : int
        Plans in the run-off beside the baseline.
    noise : float
        Differences below this fraction count as none.
    seed : int
        Of the sampler.
    """

    trials: int = 60
    seconds: float = 40.0
    patience: int = 20
    race: float = 1.5
    precision: Precision = field(default_factory=Precision)
    final: Precision = field(
        default_factory=lambda: Precision(relative=0.004, seconds=3.0, rounds_min=7, rounds_max=101)
    )
    finalists: int = 4
    noise: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise ArgumentError("number of trials is out of range", expected="an integer >= 1", found=repr(self.trials))
        if not (isinstance(self.seconds, (int, float)) and self.seconds > 0):
            raise ArgumentError("tuning time is out of range", expected="seconds > 0", found=repr(self.seconds))
        if self.race < 1 or self.patience < 1 or self.finalists < 1 or not 0 <= self.noise < 1:
            raise ArgumentError("search settings make no sense", found=repr(self))


@dataclass(frozen=True)
class Outcome:
    """What a search found; the fields mean what they mean in :class:`akx.tuner.result.TuneResult`."""

    best: Finalist
    baseline: Finalist
    trials: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]
    stopped: str
    interrupted: bool
    notes: tuple[str, ...]


class Search:
    """One search.

    Parameters
    ----------
    bench : Bench
        Where plans are tried.
    model : Model
        For the predicted plan and the order of the seeds.
    settings : Settings
        Budgets and precision.
    start : float
        When tuning began, on the clock of :func:`akx.tuner.measure.now`.
    callback : callable, optional
        Called with a :class:`Progress` after each trial and at the end of each phase.
    keep : callable, optional
        Plans for which it returns false are left out.
    given : iterable of Plan
        Plans to be tried before anything but the baseline, and to be in the run-off.
    everything : bool
        Try the whole feasible space instead of searching it.
    """

    def __init__(
        self,
        bench: Bench,
        model: Model,
        settings: Settings,
        *,
        start: float,
        callback: Callable[[Progress], object] | None = None,
        keep: Callable[[Plan], bool] | None = None,
        given: Iterable[Plan] = (),
        everything: bool = False,
    ) -> None:
        self.bench = bench
        self.model = model
        self.settings = settings
        self.space: Space = bench.space
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._start = start
        self._callback = callback
        self._keep = keep
        self._given = tuple(given)
        self._everything = everything
        self._done: dict[Plan, Trial] = {}
        self._refused: set[tuple[str, str]] = set()
        self._passed: set[Plan] = set()
        self._best: Trial | None = None
        self._baseline: Trial | None = None
        self._since_progress = 0
        self._prepare_seconds: dict[tuple[str, str], float] = {}
        self._sampler: Sampler | None = None

    # ------------------------------------------------------------------------------------------------ phases

    def run(self) -> Outcome:
        """Search and return what was found.

        Raises
        ------
        InfeasibleError
            Where no baseline works.
        KeyboardInterrupt
            Where it comes before anything was measured.
        """
        try:
            self._measure_baseline()
            stopped = self._stop_reason(self._propose())
        except KeyboardInterrupt:
            if self._best is None or self._baseline is None:
                raise
            return self._unfinished()
        try:
            return self._run_off(stopped)
        except KeyboardInterrupt:
            return self._unfinished()

    def _measure_baseline(self) -> None:
        plans = [plan for plan in self.model.rank(self.space.baselines()) if self._wanted(plan)]
        for plan in plans:
            if self._baseline is not None and self._budget_gone(baseline=True):
                break
            self._try(plan, "baseline")
        if self._baseline is None:
            why = "; ".join(dict.fromkeys(trial.reason for trial in self.trials)) or "no plain sweep is in the space"
            raise InfeasibleError(f"nothing to compare with, every baseline fails: {why}", hint="use another backend")
        for threads in self.space.choices(BASELINE_SCHEDULE, "threads"):
            if self._budget_gone(baseline=True):
                break
            plan = self._baseline.plan.replace(threads=threads)
            if plan not in self._done and self._wanted(plan):
                self._try(plan, "baseline")
        self._anchor()
        self._report("baseline")

    def _stop_reason(self, proposals: Iterator[tuple[str, Plan]]) -> str:
        """Try what is proposed until a budget ends or nothing is left."""
        for origin, plan in proposals:
            gone = self._budget_gone()
            if gone:
                return gone
            if self._too_long(plan):
                self._pass_over(plan)
                continue
            self._try(plan, origin)
            searching = origin in ("neighbour", "sampler", "spare")
            if searching and self._since_progress >= self.settings.patience:
                return "no improvement"
        return "space exhausted"

    def _run_off(self, stopped: str) -> Outcome:
        """Time the few best against the baseline once more, and choose."""
        self._report("run-off")
        plans = self._finalists()
        while True:
            programs, plans = self._programs(plans)
            calls = [self.bench.call(program) for program in programs]
            found = measure.interleave(calls, self._final_precision())
            finals = tuple(
                Finalist(plan, one.seconds, one.spread, len(one.samples))
                for plan, one in zip(plans, found, strict=True)
            )
            best, baseline = self._choose(finals)
            try:
                self.bench.run_verified(programs[plans.index(best.plan)])
                break
            except Exception as failure:
                plans = self._found_out(best.plan, str(failure), plans)
        if best.plan == baseline.plan:
            self.notes.append("nothing beat the baseline: the plan is the plain sweep")
        return self._outcome(best, baseline, finals, stopped, interrupted=False)

    def _programs(self, plans: list[Plan]) -> tuple[list[Program], list[Plan]]:
        """The finalists' programs, those prepared again that were not kept; without those that fail now."""
        programs: dict[Plan, Program] = {}
        for plan in plans:
            try:
                programs[plan] = self.bench.program(plan)
            except Exception as failure:
                plans = self._found_out(plan, str(failure), plans)
        return [programs[plan] for plan in plans], plans

    def _unfinished(self) -> Outcome:
        """The best so far, by the figures of the trials, when there is no time for a run-off."""
        finals = tuple(
            Finalist(trial.plan, trial.seconds or math.inf, trial.spread or 0.0, len(trial.samples))
            for trial in self._completed()
        )
        best, baseline = self._choose(finals)
        self.notes.append("interrupted: the best so far, without a run-off")
        return self._outcome(best, baseline, finals[: self.settings.finalists], "interrupted", interrupted=True)

    # ------------------------------------------------------------------------------------------------ proposals

    def _propose(self) -> Iterator[tuple[str, Plan]]:
        """What to try next, with who asks; duplicates left out."""
        sources = self._all_plans() if self._everything else self._search_plans()
        for origin, plan in sources:
            if self._is_new(plan) and not self._refuse(plan, origin):
                yield origin, plan

    def _all_plans(self) -> Iterator[tuple[str, Plan]]:
        yield from (("given", plan) for plan in self._given)
        yield from (("all", plan) for plan in self.space.plans())

    def _search_plans(self) -> Iterator[tuple[str, Plan]]:
        yield from (("given", plan) for plan in self._given)
        yield "predicted", predicted(self.model)
        others = [name for name in self.space.parameters if name != BASELINE_SCHEDULE]
        yield from (("default", self.space.default(name)) for name in others)
        yield from (("model", plan) for plan in self._liked(others))
        self._since_progress = 0
        spare = self._spare()
        while True:
            near = self._neighbour()
            if near is not None:
                yield "neighbour", near
            suggested = self._suggestion()
            if suggested is not None:
                yield "sampler", suggested
            if near is None and suggested is None:
                left = next(spare, None)
                if left is None:
                    return
                yield "spare", left

    def _liked(self, names: list[str]) -> list[Plan]:
        """The two plans of each schedule that its traffic model likes best."""
        end = measure.now() + _RANKING_SECONDS
        liked: list[Plan] = []
        for name in names:
            scored: list[tuple[float, int, Plan]] = []
            for i, plan in enumerate(islice(self.space.plans(name), _ENUMERATED)):
                if measure.now() > end:
                    break
                if self._reason_against(plan) is None:
                    scored.append((self.model.seconds(plan), i, plan))
            liked += [plan for _, _, plan in sorted(scored)[:2]]
        return liked

    def _neighbour(self) -> Plan | None:
        """An untried feasible neighbour of the best plan, or of the next best where all of those are done."""
        for trial in self._completed()[:3]:
            for plan in self.space.neighbours(trial.plan):
                if self._is_new(plan) and self._reason_against(plan) is None:
                    return plan
        return None

    def _suggestion(self) -> Plan | None:
        """What the sampler suggests, or None where it finds nothing new."""
        return self._optuna().suggest(self._done, self._refuse_quietly)

    def _spare(self) -> Iterator[Plan]:
        """What is left of the space in a random order, for when nobody has an idea."""
        plans = list(islice(self.space.plans(), _ENUMERATED))
        random.Random(self.settings.seed).shuffle(plans)
        return (plan for plan in plans if self._is_new(plan) and self._reason_against(plan) is None)

    def _optuna(self) -> Sampler:
        if self._sampler is None:
            self._sampler = Sampler(self.space, self.settings.seed)
            for trial in self.trials:
                self._sampler.tell(trial)
        return self._sampler

    # ------------------------------------------------------------------------------------------------ trials

    def _try(self, plan: Plan, origin: str) -> None:
        best = None if self._best is None or self._everything else self._best.seconds
        if origin == "given":
            best = None
        trial = self.bench.try_plan(plan, number=len(self.trials), origin=origin, best=best)
        self._record(trial)

    def _record(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._done[trial.plan] = trial
        if trial.prepare_seconds is not None:
            kind = (trial.plan.schedule, trial.plan.partitioner)
            held = self._prepare_seconds.get(kind)
            self._prepare_seconds[kind] = min(trial.prepare_seconds, held if held is not None else math.inf)
            self._since_progress += 1
        if trial.state == COMPLETE and trial.seconds is not None:
            if self._best is None or self._best.seconds is None or trial.seconds < self._best.seconds:
                if self._best is None or self._best.seconds is None or trial.seconds < _PROGRESS * self._best.seconds:
                    self._since_progress = 0
                self._best = trial
            if is_baseline(trial.plan):
                held_baseline = self._baseline.seconds if self._baseline is not None else None
                if held_baseline is None or trial.seconds < held_baseline:
                    self._baseline = trial
                    self._anchor()
        if self._sampler is not None:
            self._sampler.tell(trial)
        self._report("baseline" if trial.origin == "baseline" else "search", trial)

    def _anchor(self) -> None:
        if self._baseline is not None and self._baseline.seconds is not None:
            self.bench.anchor_on(self._baseline.plan, self._baseline.seconds)

    def _refuse(self, plan: Plan, origin: str) -> bool:
        """Whether a plan is infeasible for a reason on record; the first of a kind is left to become a pruned trial."""
        if origin in ("given", "predicted", "default", "sampler"):
            return False
        return self._is_old_refusal(plan)

    def _refuse_quietly(self, plan: Plan) -> bool:
        """Whether the sampler should be told at once that a plan is no good."""
        return not self._is_new(plan) or self._is_old_refusal(plan)

    def _is_old_refusal(self, plan: Plan) -> bool:
        reason = self._reason_against(plan)
        if reason is None:
            return False
        kind = (plan.schedule, reason)
        known = kind in self._refused or len(self._refused) >= _REFUSALS
        self._refused.add(kind)
        return known

    def _reason_against(self, plan: Plan) -> str | None:
        """Why a plan is infeasible; a schedule that cannot even say so fails in a trial, with its reason."""
        try:
            return self.space.feasible(plan, self.bench.matrix)
        except Exception as failure:
            return str(failure)

    def _is_new(self, plan: Plan) -> bool:
        return plan not in self._done and plan not in self._passed and self._wanted(plan)

    def _pass_over(self, plan: Plan) -> None:
        self._passed.add(plan)
        if self._sampler is not None:
            self._sampler.drop(plan)

    def _found_out(self, plan: Plan, reason: str, plans: list[Plan]) -> list[Plan]:
        """Take a finalist that failed when run again out of the run-off."""
        self.bench.forget(plan)
        for i, trial in enumerate(self.trials):
            if trial.plan == plan:
                changed = Trial(i, plan, trial.origin, FAILED, reason, trial.seconds, trial.spread)
                self.trials[i] = self._done[plan] = changed
        self.notes.append(f"{plan.label()} was right at first and wrong later, and is out: {reason}")
        left = [other for other in plans if other != plan]
        if not any(is_baseline(other) for other in left):
            raise InfeasibleError("the baseline gave a wrong result when it was run again", found=reason)
        return left

    def _wanted(self, plan: Plan) -> bool:
        return self._keep is None or is_baseline(plan) or self._keep(plan)

    # ------------------------------------------------------------------------------------------------ choosing

    def _completed(self) -> list[Trial]:
        """Complete trials, fastest first."""
        done = [trial for trial in self.trials if trial.state == COMPLETE and trial.seconds is not None]
        return sorted(done, key=lambda trial: (trial.seconds or 0.0, trial.number))

    def _finalists(self) -> list[Plan]:
        """The two best, the simplest of those that are as good, the best two baselines, and the plans given."""
        done = self._completed()
        fastest = done[0].seconds or 0.0
        noise = max(self.settings.noise, min(0.05, 2 * (done[0].spread or 0.0)))
        equal = [t.plan for t in done if (t.seconds or 0.0) <= (1 + noise) * fastest]
        near = [t.plan for t in done if (t.seconds or 0.0) <= 1.15 * fastest]
        wanted = [*near[:2], *sorted(equal, key=self._complexity), *near]
        close = list(dict.fromkeys(wanted))[: self.settings.finalists]
        baselines = [t.plan for t in done if is_baseline(t.plan)]
        assert self._baseline is not None
        rivals = [self._baseline.plan, *(plan for plan in baselines[:2] if plan != self._baseline.plan)]
        given = [plan for plan in self._given if plan in self._done and self._done[plan].state == COMPLETE]
        return list(dict.fromkeys([*rivals, *close, *given]))

    def _choose(self, finals: tuple[Finalist, ...]) -> tuple[Finalist, Finalist]:
        """The best plan and the baseline: the fastest of each, and the simpler one within the noise."""
        fastest = min(finals, key=lambda one: (one.seconds, one.plan.label()))

        def ties(one: Finalist) -> bool:
            noise = max(self.settings.noise, min(0.03, one.spread + fastest.spread))
            return one.seconds <= fastest.seconds * (1 + noise)

        best = min((one for one in finals if ties(one)), key=lambda one: self._complexity(one.plan))
        baseline = min(
            (one for one in finals if is_baseline(one.plan)), key=lambda one: (one.seconds, one.plan.label())
        )
        if is_baseline(best.plan):
            baseline = best
        elif best.seconds >= baseline.seconds:
            best = baseline
        return best, baseline

    def _complexity(self, plan: Plan) -> tuple[Any, ...]:
        """Plans in the order in which they are preferred when they are equally fast."""
        return (
            not is_baseline(plan),
            plan.schedule != BASELINE_SCHEDULE,
            plan.partitioner != "natural",
            plan.threads,
            self.bench.nbytes(plan),
            plan.label(),
        )

    def _outcome(
        self, best: Finalist, baseline: Finalist, finals: tuple[Finalist, ...], stopped: str, *, interrupted: bool
    ) -> Outcome:
        ordered = tuple(sorted(finals, key=lambda one: (one.seconds, one.plan.label())))
        return Outcome(best, baseline, tuple(self.trials), ordered, stopped, interrupted, tuple(self.notes))

    # ------------------------------------------------------------------------------------------------ budgets

    def _budget_gone(self, *, baseline: bool = False) -> str:
        """Which budget is at its end, or "". Baselines may take half the trials."""
        allowed = max(1, -(-self.settings.trials // 2)) if baseline else self.settings.trials
        if len(self.trials) >= allowed:
            return "trial budget"
        if self._left() <= 0 or (baseline and self._elapsed() > _BASELINE_SHARE * self.settings.seconds):
            return "time budget"
        return ""

    def _left(self) -> float:
        """Seconds left for trials: what is needed for the run-off and the final preparation is kept back."""
        return self.settings.seconds - self._elapsed() - self._reserve()

    def _elapsed(self) -> float:
        return measure.now() - self._start

    def _reserve(self) -> float:
        """Seconds for the run-off, three rounds at least, and for preparing the winner anew."""
        if self._best is None or self._best.seconds is None:
            return self._final_seconds()
        rounds = 3 * (self.settings.finalists + 2) * self._best.seconds
        prepare = self._prepare_seconds.get((self._best.plan.schedule, self._best.plan.partitioner), 0.0)
        return min(max(self._final_seconds(), rounds) + prepare, 0.25 * self.settings.seconds)

    def _final_seconds(self) -> float:
        return min(self.settings.final.seconds, 0.1 * self.settings.seconds)

    def _too_long(self, plan: Plan) -> bool:
        """Whether plans of this kind take longer to prepare than there is time."""
        return self._prepare_seconds.get((plan.schedule, plan.partitioner), 0.0) > max(self._left(), 0.0)

    def _final_precision(self) -> Precision:
        final = self.settings.final
        return Precision(final.relative, self._final_seconds(), final.rounds_min, final.rounds_max)

    # ------------------------------------------------------------------------------------------------ progress

    def _report(self, phase: str, trial: Trial | None = None) -> None:
        if self._callback is None:
            return
        best = self._best
        share = None
        if best is not None and best.seconds:
            roofline = self.model.roofline(best.plan, best.seconds)
            share = None if roofline is None else roofline.share
        self._callback(
            Progress(
                phase=phase,
                trials=len(self.trials),
                trials_budget=self.settings.trials,
                elapsed=self._elapsed(),
                seconds_budget=self.settings.seconds,
                state="" if trial is None else trial.state,
                trial=trial,
                best_plan=None if best is None else best.plan,
                best_seconds=None if best is None else best.seconds,
                baseline_seconds=None if self._baseline is None else self._baseline.seconds,
                roofline_share=share,
            )
        )
