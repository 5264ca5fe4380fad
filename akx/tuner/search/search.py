"""The loop of a search: baselines, sampled plans, run-off; from a space of plans to the one to keep.

1. baseline      plain products in every variant that is not sure to be slower than others, natural order; the fastest
                 becomes the anchor of all timing
2. search        what :mod:`akx.tuner.candidates.proposals` proposes: plans of the database, the predicted plan,
                 defaults, what is estimated to gain most, neighbours, Optuna's suggestions
3. run-off       the few best and the baseline (:mod:`akx.tuner.search.run_off`)

Nothing is tried twice, neither here nor by another worker on the same study (:mod:`akx.tuner.search.shared_study`), nor
what an earlier search for the same key has tried (:mod:`akx.tuner.history.trial_log`), but for what is to be in the
run-off; and nothing that its schedule says is infeasible, unless it is given: a note has the reason where nothing of a
schedule was tried for it. The choices depend on the seed and the measurements alone, unless thinking takes so long that
it is cut (:mod:`akx.tuner.model.budget`), and unless code has to be compiled: plans whose code comes later are tried
later (:mod:`akx.tuner.warmup.host_code`). What Numba compiles is not in the time. The search ends with its budget of
trials or of seconds (:mod:`akx.tuner.search.budget`; the plan of an untuned call is tried even so), when nothing better
was found for a while and what is next to the best was tried, or nothing is left; Ctrl-C ends it with the best so far.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.tuner.candidates.proposals import SEARCHING, Proposals
from akx.tuner.candidates.sampler import Sampler, Suggesting
from akx.tuner.candidates.warm_start import NO_WARM_START, WarmStart
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import EXHAUSTED, FEW_CALLS, NO_IMPROVEMENT, TIME_BUDGET
from akx.tuner.history.trial import COMPLETE, EARLIER, SHARED, Progress, Trial
from akx.tuner.history.trial_log import NO_HISTORY, History, as_measured_here, may_be_otherwise, without_figures
from akx.tuner.model.seconds import Model
from akx.tuner.request import Settings
from akx.tuner.search.budget import SearchBudget
from akx.tuner.search.outcome import Outcome, not_tried
from akx.tuner.search.run_off import Decision, RunOff, by_trials
from akx.tuner.search.shared_study import SharedStudy
from akx.tuner.space import Space, is_baseline

if TYPE_CHECKING:
    from akx.tuner.trace.simulation import RecordedBench
    from akx.tuner.trial.bench import Bench

__all__ = ["Search"]

#: Seconds that a candidate is given where it runs first, however little time is left.
_LEAST_PATIENCE = 2.0
#: Share of the time that preparing one plan may take where plans of its kind have not been worth it.
_DEAR_SHARE = 0.05
#: Trials, of plans that were measured, below which a search that has run out of time has hardly begun.
_FEW_TRIALS = 8


class Search:
    """One search, on a bench or on a record of what one has measured, that began at `start`.

    Parameters
    ----------
    callback, keep : callable, optional
        Called with a :class:`Progress` after each trial and phase; false for plans that are left out.
    given : iterable of Plan
        Plans to be tried before anything but the baseline, whatever is left of the budgets, and to be in the run-off.
        Infeasible ones are trials as well, with the reason.
    everything : bool
        Try the whole feasible space instead of searching it, and drop nothing early.
    alone : callable
        Gives a context manager within which nobody else measures on the device; entered for the run-off.
    others, warm_start, history : SharedStudy, WarmStart, History
        The study that other workers are at as well, plans of the database with which the search begins, and what
        earlier searches for the same key have tried.
    record : callable, optional
        Called with each trial and the bytes of its program, and again with a trial that was found out later: the same
        number, another state.
    sampler : callable
        Makes the sampler of a space and a seed.
    """

    def __init__(
        self,
        bench: Bench | RecordedBench,
        model: Model,
        settings: Settings,
        *,
        start: float,
        callback: Callable[[Progress], object] | None = None,
        keep: Callable[[Plan], bool] | None = None,
        given: Iterable[Plan] = (),
        everything: bool = False,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
        others: SharedStudy | None = None,
        record: Callable[[Trial, int], object] | None = None,
        sampler: Callable[[Space, int], Suggesting] = Sampler,
        warm_start: WarmStart = NO_WARM_START,
        history: History = NO_HISTORY,
    ) -> None:
        self.bench, self.model, self.settings = bench, model, settings
        self.ledger = Ledger(bench.space)
        self.budget = SearchBudget(
            settings, self.ledger, model, start, lambda plan: self.proposals.pool.ordering_seconds(plan.partitioner)
        )
        self.proposals = Proposals(
            model,
            self.ledger,
            seed=settings.seed,
            keep=keep,
            avoid=self._avoid,
            taken=None if others is None else others.is_under_way,
            given=given,
            sampler=sampler,
            warm_start=warm_start,
            seconds=self.budget.seconds,
            left=self.budget.left,
        )
        self.notes: list[str] = []
        self._run_off = RunOff(bench, self.ledger, settings, self.budget, self.notes, alone, record)
        self._callback, self._record = callback, record
        self._everything, self._others, self._history = everything, others, history
        self._waiting: list[tuple[str, Trial]] = []
        self._later: list[tuple[str, Plan]] = []
        self._ran_short = False

    # ------------------------------------------------------------------------------------------------ phases

    def run(self) -> Outcome:
        """Search and return what was found.

        Raises :class:`InfeasibleError` where no baseline works, and KeyboardInterrupt before anything was measured.
        """
        try:
            with self.budget.clock.running():
                self._measure_baseline()
                stopped = self._try_all(self.proposals.everything() if self._everything else self._as_code_comes())
                self._report("run-off")
                self.bench.settle()
                self._hear()
                return self._outcome(self._run_off.decide(self.proposals.given), stopped)
        except KeyboardInterrupt:
            if self.ledger.baseline is None:
                raise
            own = (trial for trial in self.ledger.completed() if trial.is_own)
            best = by_trials(own, self.settings.noise, self.bench.nbytes)
            self.notes.append("interrupted: the best so far, without a run-off")
            few = replace(best, finalists=best.finalists[: self.settings.finalists])
            return self._outcome(few, "interrupted", interrupted=True)
        finally:
            if self._others is not None:
                with suppress(KeyboardInterrupt):  # where the storage is slow: what is claimed ends with this process
                    self._others.leave()

    def _measure_baseline(self) -> None:
        self._begin_as_others()
        plans, refusals = self.proposals.baselines(), list[str]()
        for place, plan in enumerate(plans):
            is_first = self.ledger.baseline is None
            if plan in self.ledger:
                continue
            if not is_first and self.budget.gone(baseline=True):
                break
            if not self._everything and self.proposals.pool.is_hopeless(plan):
                continue
            if (refusal := self.proposals.pool.refusal(plan)) is not None:
                refusals.append(refusal)
                continue
            if not is_first and self._is_put_off("baseline", plan):
                continue
            self._get_ready(plan, plans[place + 1 :])
            self._try(plan, "baseline")
        if self.ledger.baseline is None:
            reasons = dict.fromkeys([*refusals, *(trial.reason for trial in self.ledger.trials)])
            why = "; ".join(reasons) or "there is no plain sweep"
            raise InfeasibleError(f"nothing to compare with, every baseline fails: {why}", hint="use another backend")
        for plan in self.proposals.threads_of(self.ledger.baseline.plan):
            if not self.budget.gone(baseline=True):
                self._try_baseline(plan)
        for run in self._history.runs:
            self._adopt(trial for trial in without_figures(run) if trial.plan not in self.proposals.given)
        self._report("baseline")

    def _try_all(self, proposals: Iterator[tuple[str, Plan]]) -> str:
        """Try what is proposed until a budget ends or nothing is left; returns which."""
        due = {plan for plan in self.proposals.given if plan not in self.ledger}  # whatever the time
        for origin, plan in proposals:
            due.discard(plan)
            if origin == "given":
                self._try(plan, origin)
                continue
            gone = self.budget.gone()
            is_due = origin == "predicted" and gone in ("", TIME_BUDGET) and self.budget.time_gone() == TIME_BUDGET
            if gone and not is_due:
                return gone
            if not is_due and self.ledger.expected_seconds(plan) > self.budget.left():
                if self.budget.time_gone() == FEW_CALLS:
                    return FEW_CALLS
                self._ran_short = True
                continue
            self._get_ready(plan)
            self._try(plan, origin)
            is_stuck = origin in SEARCHING and self.ledger.since_progress >= self.settings.patience
            if is_stuck and not self.proposals.beside():
                return NO_IMPROVEMENT
            if not due and (gone := self.budget.gone()):  # before another plan is thought of, which may take an order
                return gone
        return self.budget.time_gone() if self._ran_short else EXHAUSTED

    def _outcome(self, found: Decision, stopped: str, *, interrupted: bool = False) -> Outcome:
        if not interrupted:
            self._note_on_end(found, stopped)
        ordered = tuple(sorted(found.finalists, key=lambda one: (one.seconds, one.plan.label())))
        trials = tuple(self.ledger.trials)
        origins = Counter(trial.origin for trial in trials)
        if self._others is not None and (workers := self._others.workers):
            others = f"{workers} other worker{'s' * (workers > 1)}"
            self.notes.append(f"{origins[SHARED]} more trials are of {others} on the same study")
        if earlier := origins[EARLIER]:
            self.notes.append(f"went on from {earlier} trials of earlier searches; --fresh (fresh=True) begins anew")
        tried = {trial.plan.schedule for trial in trials}
        untried = {name: reason for name, reason in self.proposals.pool.refused.items() if name not in tried}
        notes = (*self.notes, *not_tried(untried))
        is_early = not self.proposals.has_begun or sum(one.seconds is not None for one in trials) < _FEW_TRIALS
        starved = stopped == TIME_BUDGET and not self._everything and is_early
        best, baseline = found.best, found.baseline
        return Outcome(best, baseline, trials, ordered, stopped, interrupted, notes, found.disturbed, starved, untried)

    def _note_on_end(self, found: Decision, stopped: str) -> None:
        if stopped == FEW_CALLS:
            calls = "1 call is" if self.settings.calls == 1 else f"{self.settings.calls} calls are"
            self.notes.append(
                f"{calls} too few to search on: {self.budget.elapsed():.3g} s were spent, and more "
                f"could win {self.budget.gain():.3g} s in all at most, of which a quarter may be spent"
            )
        if self.bench.watch is not None and self.bench.watch.note is not None:
            self.notes.append(self.bench.watch.note)
        if found.best.plan == found.baseline.plan:
            plain = "the plain sweep" if found.best.plan.traits.is_plain else "streamed products"
            others = any(not is_baseline(trial.plan) for trial in self.ledger.trials)
            self.notes.append(f"nothing {'beat' if others else 'was tried but'} the baseline: the plan is {plain}")

    # ------------------------------------------------------------------------------------------------ trials

    def _try(self, plan: Plan, origin: str) -> None:
        if not self._is_ours(plan, origin):
            return
        self.budget.made += 1
        racing = not self._everything and origin != "given"
        best = self.ledger.measured_seconds if racing else None
        is_bounded = racing and origin not in ("baseline", "predicted")
        self.bench.patience = max(self.budget.left(), _LEAST_PATIENCE) if is_bounded else math.inf
        begin = self.budget.elapsed()
        trial = self.bench.try_plan(plan, number=len(self.ledger.trials), origin=origin, best=best)
        trial = replace(trial, elapsed=self.budget.elapsed() - begin)
        if self.ledger.add(trial) and trial.seconds is not None:
            self.bench.anchor_on(plan, trial.seconds)
        self.proposals.learn(trial)
        if origin == "baseline":
            self._go_on()
        if self._others is not None:
            self._others.tell(trial)
            if self.ledger.baseline is not None:
                self._hear()
        if self._record is not None:
            self._record(trial, self.bench.nbytes(plan))
        self._report("baseline" if origin == "baseline" else "search", trial)

    def _try_baseline(self, plan: Plan) -> None:
        if self.proposals.pool.refusal(plan) is None:
            self._try(plan, "baseline")

    def _avoid(self, plan: Plan) -> bool:
        """Whether plans of this kind take longer to compile or prepare than there is time, or than they are worth.

        What was put off is tried when its code is there.
        """
        if any(plan == other for _, other in self._later):
            return True
        if self.ledger.expected_seconds(plan) > self.budget.left():
            self._ran_short = True
            return True
        return self.ledger.is_dear(plan, _DEAR_SHARE * self.budget.seconds())

    # ------------------------------------------------------------------------------------------------ code to come

    def _as_code_comes(self) -> Iterator[tuple[str, Plan]]:
        """What is proposed; plans whose code is being compiled come as soon as it is there, and others before them."""
        while True:
            for origin, plan in self.proposals.search():
                if not self._is_put_off(origin, plan):
                    yield origin, plan
                yield from self._put_off_so_far()
            if not self._later:
                return
            self.bench.await_code(max(0.0, self.budget.left()))
            yield from self._put_off_so_far()

    def _is_put_off(self, origin: str, plan: Plan) -> bool:
        """Whether a plan is better tried later, since its code is not there."""
        if origin in ("given", "predicted") or self._everything or not self.bench.is_coming(plan):
            return False
        self._later.append((origin, plan))
        return True

    def _put_off_so_far(self) -> Iterator[tuple[str, Plan]]:
        """The plans that were put off whose code is there by now."""
        come = [one for one in self._later if not self.bench.is_coming(one[1])]
        self._later = [one for one in self._later if one not in come]
        for origin, plan in come:
            if plan not in self.ledger and not (origin == "baseline" and self.proposals.pool.is_hopeless(plan)):
                yield origin, plan

    def _get_ready(self, now: Plan, baselines: Iterable[Plan] = ()) -> None:
        """Let plans that may come behind `now` be got ready beside its trial, `baselines` before others."""
        is_last = self.budget.made + 1 >= self.settings.trials or self.budget.left() <= _LEAST_PATIENCE
        waits = self.settings.calls is not None and self.ledger.baseline is None  # for what search is worth
        if is_last or waits or self._everything:
            return

        def likely() -> Iterator[Plan]:
            for plan in baselines:
                is_due = plan not in self.ledger and not self.proposals.pool.is_hopeless(plan)
                if is_due and self.proposals.pool.refusal(plan) is None:
                    yield plan
            yield from (plan for plan in self.proposals.likely() if plan != now)

        self.bench.get_ready(likely)

    # ------------------------------------------------------------------------------------------------ others' trials

    def _is_ours(self, plan: Plan, origin: str) -> bool:
        """Claim a plan; where another worker has it, it is theirs, but for what has to be measured here in any case."""
        if self._others is None or self._others.claim(plan) or origin == "given" or self.ledger.baseline is None:
            return True
        self._hear()
        # What cannot be read of another, as of an akx of tomorrow, is tried here: else it would be proposed for ever.
        return plan not in self.ledger and not self._others.is_under_way(plan)

    def _begin_as_others(self) -> None:
        """Where others have baselines, measure the best of them before all else: it tells how their times compare."""
        self._hear()
        pool = self.proposals.pool
        plain = (trial for _, trial in self._waiting if is_baseline(trial.plan) and trial.state == COMPLETE)
        known = [trial for trial in plain if pool.is_fit(trial)]
        if known:
            self._try_baseline(min(known, key=lambda trial: trial.seconds or math.inf).plan)
        earlier = self._history.baseline(pool.is_fit)
        if earlier is not None and earlier not in self.ledger:
            self._try_baseline(earlier)

    def _hear(self) -> None:
        """Enter what others have tried since the last time, once there is a baseline to compare their times with."""
        if self._others is None:
            return
        self._waiting += ((worker, trial) for worker, trial in self._others.hear() if not may_be_otherwise(trial))
        if self.ledger.baseline is not None:
            self._adopt(self._others.as_mine(worker, trial) for worker, trial in self._waiting)
            self._waiting = []

    def _go_on(self) -> None:
        """Enter what earlier searches have tried, those that have measured one of the baselines that are known here."""
        if self.ledger.baseline is None:
            return
        mine = {trial.plan: trial.seconds or 0.0 for trial in self.ledger.completed() if trial.is_own}
        for run in self._history.runs:
            found = as_measured_here(run, mine)
            if found is not None:
                self._history = self._history.without(run)
                self._adopt(trial for trial in found if trial.plan not in self.proposals.given)

    def _adopt(self, trials: Iterable[Trial]) -> None:
        """Enter trials that were made elsewhere, maybe for other values, of plans that fit here and have none."""
        for trial in trials:
            if trial.plan not in self.ledger and self.proposals.pool.is_fit(trial):
                adopted = replace(trial, number=len(self.ledger.trials))
                self.ledger.add(adopted)
                self.proposals.learn(adopted)

    def _report(self, phase: str, trial: Trial | None = None) -> None:
        best, roofline = self.ledger.best, None
        if self._callback is None:
            return
        if best is not None and best.seconds and getattr(self._callback, "wants_roofline", True):
            roofline = self.model.roofline(best.plan, best.seconds)
        self._callback(
            Progress(
                phase=phase,
                trials=self.budget.made,
                trials_budget=self.settings.trials,
                elapsed=self.budget.elapsed(),
                seconds_budget=self.settings.seconds,
                state="" if trial is None else trial.state,
                trial=trial,
                best_plan=None if best is None else best.plan,
                best_seconds=self.ledger.best_seconds,
                baseline_seconds=self.ledger.baseline_seconds,
                roofline_share=None if roofline is None else roofline.share,
            )
        )
