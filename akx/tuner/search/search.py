"""The search: from a space of plans to the one to keep.

1. baseline      plain products in every variant that is not sure to be slower than others, natural order; the fastest
                 becomes the anchor of all timing
2. search        what :mod:`akx.tuner.candidates.proposals` proposes: plans of the database, the predicted plan,
                 defaults, what is estimated to gain most, neighbours, Optuna's suggestions
3. run-off       the few best and the baseline, timed in turn with one another at higher precision, on a GPU in some
                 places of memory; within the noise the simpler plan wins (:mod:`akx.tuner.select`), and the winner's
                 result is checked once more; their trials decide where another process slows the baseline and not all
                 of them, twice over

Nothing is tried twice, neither here nor by another worker on the same study (:mod:`akx.tuner.search.shared_study`), nor
what an earlier search for the same key has tried (:mod:`akx.tuner.history.trial_log`), but for what is to be in the
run-off; and nothing that its schedule says is infeasible, unless it is given: a note has the reason where nothing of a
schedule was tried for it. The choices depend on the seed and the measurements alone, unless thinking takes so long that
it is cut (:mod:`akx.tuner.model.budget`), and unless code has to be compiled: plans whose code comes later are tried
later (:mod:`akx.tuner.warmup.host_code`). What Numba compiles is not in the time. The search ends with its budget of
trials or of seconds, when nothing better was found for a while and what is next to the best plan was tried, or when
nothing is left; Ctrl-C ends it with the best so far.

Where the user says how often the kernel will run, the seconds are bounded by what further search could win::

    seconds = min(budget, calls x max(best so far - least, best so far / 10) / 4)

`least` being what no plan is thought to do with less than (:attr:`akx.tuner.model.predict.Model.least_seconds`); the
model may be wrong, so that a tenth of the time is always thought possible; and few searches win more than a quarter of
what is. For few calls that is less than was spent by the time the baseline is known, which is then the plan; for many
the budget is what it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.candidates.proposals import SEARCHING, Proposals
from akx.tuner.candidates.sampler import Sampler, Suggesting
from akx.tuner.candidates.warm_start import NO_WARM_START, WarmStart
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import (
    COMPLETE,
    EARLIER,
    EXHAUSTED,
    FEW_CALLS,
    NO_IMPROVEMENT,
    SHARED,
    TIME_BUDGET,
    Finalist,
    Progress,
    Trial,
)
from akx.tuner.history.trial_log import NO_HISTORY, History, as_measured_here, may_be_otherwise, without_figures
from akx.tuner.measure import Measurement, Precision, Watch
from akx.tuner.model.budget import CompileClock
from akx.tuner.model.seconds import Model
from akx.tuner.request import Settings
from akx.tuner.search.shared_study import SharedStudy
from akx.tuner.select import choose, finalists
from akx.tuner.space import Space, is_baseline

__all__ = ["Outcome", "Search"]

#: Share of the time that baselines may take: there are many on first use, when each has to be compiled.
_BASELINE_SHARE = 0.4
#: Seconds that a candidate is given where it runs first, however little time is left.
_LEAST_PATIENCE = 2.0
#: Share of the time that the run-off may take, and that is kept back for it and the last preparation at most.
_FINAL_SHARE, _RESERVED_SHARE = 0.1, 0.25
#: Share of the run-off's time that it has in any case.
_LEAST_FINAL = 1 / 3
#: Plans that take at most this many times as long as the best of the run-off are timed in other places of memory too.
_RIVALS = 1.1
#: Seconds, and share of the time, that are waited at most before a run-off that was disturbed is timed again.
_LULL_SECONDS, _LULL_SHARE = 0.5, 0.02
#: Share of the time that is kept back for what nobody can know before: the end of a trial that was begun in time, and
#: a new order of the rows for the last preparation.
_END_SHARE = 0.09
#: Share of the time that preparing one plan may take where plans of its kind have not been worth it.
_DEAR_SHARE = 0.05
#: Share of the best time that further search may win, whatever the model says.
_LEAST_GAIN = 0.1
#: Share of what further search could win at most that it may cost: plans that take the least possible are rare.
_WORTH = 0.25
#: Trials, of plans that were measured, below which a search that has run out of time has hardly begun.
_FEW_TRIALS = 8


@dataclass(frozen=True)
class Outcome:
    """What a search found; the fields mean what they mean in :class:`akx.tuner.history.result.TuneResult`."""

    best: Finalist
    baseline: Finalist
    trials: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]
    stopped: str
    interrupted: bool
    notes: tuple[str, ...]
    disturbed: bool = False
    starved: bool = False
    untried: Mapping[str, str] = field(default_factory=dict)


class Tried(Protocol):
    """Where plans are tried: :class:`akx.tuner.trial.bench.Bench`, or a record of what one of those measured.

    Attributes
    ----------
    patience : float
        Seconds that a candidate may take where it runs first, in a process of its own.
    watch : Watch or None
        Looks at the machine while something is timed.
    slowed : float
        How many times slower the machine has become, so that trials behind that are scaled; 1 where it has not.
    places : int
        Places of memory in which the plans of the run-off are timed, while there is time.
    """

    patience: float
    watch: Watch | None
    slowed: float
    places: int

    @property
    def space(self) -> Space:
        """Of the plans."""
        ...

    def nbytes(self, plan: Plan) -> int:
        """Bytes of the program of a plan that was tried; 0 where it was not."""
        ...

    def try_plan(self, plan: Plan, *, number: int, origin: str, best: float | None) -> Trial:
        """Make one trial; whatever the plan does is in it."""
        ...

    def get_ready(self, likely: Callable[[], Iterable[Plan]]) -> None:
        """Begin with plans that may be tried soon, where that can be done beside a trial; the likeliest come first."""
        ...

    def is_coming(self, plan: Plan) -> bool:
        """Whether the code of a plan is compiled beside the search and not there yet."""
        ...

    def await_code(self, seconds: float) -> None:
        """Wait for the next piece of code that is being compiled, for so long at most."""
        ...

    def settle(self) -> None:
        """End what was begun so: no more plans are tried."""
        ...

    def anchor_on(self, plan: Plan, seconds: float) -> None:
        """Time everything from now on against `plan`."""
        ...

    def program(self, plan: Plan) -> Any:
        """A program of a complete trial."""
        ...

    def elsewhere(self, plan: Plan) -> Any:
        """Another program of a complete trial, in another place of memory while the first one is alive."""
        ...

    def call(self, program: Any) -> Callable[[], None]:
        """The call to be timed."""
        ...

    def run_verified(self, plan: Plan, program: Any) -> float:
        """Run the program of a plan once and check. Raises where the result is wrong."""
        ...

    def forget(self, plan: Plan) -> None:
        """Drop a program."""
        ...


class Search:
    """One search.

    Parameters
    ----------
    bench : Tried
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
        Plans to be tried before anything but the baseline, whatever is left of the budgets, and to be in the run-off.
        Infeasible ones are trials as well, with the reason.
    everything : bool
        Try the whole feasible space instead of searching it, and drop nothing early.
    alone : callable
        Gives a context manager within which nobody else measures on the device; entered for the run-off.
    others : SharedStudy, optional
        The study that other workers are at as well.
    record : callable, optional
        Called with each trial and the bytes of its program, and again with a trial that was found out later: the same
        number, another state.
    sampler : callable
        Makes the sampler of a space and a seed: Optuna's TPE by default.
    warm_start : WarmStart
        Plans of the database with which the search begins, within its budgets.
    history : History
        What earlier searches for the same key have tried: it is where this one goes on.
    """

    def __init__(
        self,
        bench: Tried,
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
        self.bench = bench
        self.model = model
        self.settings = settings
        self.ledger = Ledger(bench.space)
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
            seconds=self._seconds,
            left=self._left,
        )
        self.notes: list[str] = []
        self._start = start
        self._callback = callback
        self._record = record
        self._everything = everything
        self._alone = alone
        self._others = others
        self._history = history
        self._keep = keep
        self._made = 0
        self._waiting: list[tuple[str, Trial]] = []
        self._later: list[tuple[str, Plan]] = []
        self._clock = CompileClock()
        self._ran_short = False
        self._least = 0.0 if settings.calls is None else model.least_seconds

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
            with self._clock.running():
                self._measure_baseline()
                stopped = self._try_all(self.proposals.everything() if self._everything else self._as_code_comes())
                return self._run_off(stopped)
        except KeyboardInterrupt:
            if self.ledger.baseline is None:
                raise
            return self._unfinished()
        finally:
            if self._others is not None:
                with suppress(KeyboardInterrupt):  # where the storage is slow: what is claimed ends with this process
                    self._others.leave()

    def _measure_baseline(self) -> None:
        self._begin_as_others()
        plans, refusals = self.proposals.baselines(), list[str]()
        for place, plan in enumerate(plans):
            if plan in self.ledger:
                continue
            if self.ledger.baseline is not None and self._budget_gone(baseline=True):
                break
            if not self._everything and self.proposals.is_hopeless(plan):
                continue
            refusal = self.proposals.refusal(plan)
            if refusal is not None:
                refusals.append(refusal)
                continue
            if self.ledger.baseline is not None and self._is_put_off("baseline", plan):
                continue
            self._get_ready(plan, plans[place + 1 :])
            self._try(plan, "baseline")
        if self.ledger.baseline is None:
            reasons = dict.fromkeys([*refusals, *(trial.reason for trial in self.ledger.trials)])
            why = "; ".join(reasons) or "there is no plain sweep"
            raise InfeasibleError(f"nothing to compare with, every baseline fails: {why}", hint="use another backend")
        for plan in self.proposals.threads_of(self.ledger.baseline.plan):
            if not self._budget_gone(baseline=True):
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
            gone = self._budget_gone()
            if gone:
                return gone
            if self.ledger.expected_seconds(plan) > self._left():
                if self._time_gone() == FEW_CALLS:
                    return FEW_CALLS
                self._ran_short = True
                continue
            self._get_ready(plan)
            self._try(plan, origin)
            if origin in SEARCHING and self._has_settled():
                return NO_IMPROVEMENT
            gone = "" if due else self._budget_gone()
            if gone:  # before anybody thinks of another plan, for which a matrix may have to be ordered
                return gone
        return self._time_gone() if self._ran_short else EXHAUSTED

    def _as_code_comes(self) -> Iterator[tuple[str, Plan]]:
        """What is proposed; plans whose code is being compiled come as soon as it is there, and others before them."""
        while True:
            for origin, plan in self.proposals.search():
                if not self._is_put_off(origin, plan):
                    yield origin, plan
                yield from self._put_off_so_far()
            if not self._later:
                return
            self.bench.await_code(max(0.0, self._left()))
            yield from self._put_off_so_far()

    def _is_put_off(self, origin: str, plan: Plan) -> bool:
        """Whether a plan is better tried later, since its code is not there."""
        if origin == "given" or self._everything or not self.bench.is_coming(plan):
            return False
        self._later.append((origin, plan))
        return True

    def _put_off_so_far(self) -> Iterator[tuple[str, Plan]]:
        """The plans that were put off whose code is there by now."""
        come = [one for one in self._later if not self.bench.is_coming(one[1])]
        self._later = [one for one in self._later if one not in come]
        for origin, plan in come:
            if plan not in self.ledger and not (origin == "baseline" and self.proposals.is_hopeless(plan)):
                yield origin, plan

    def _has_settled(self) -> bool:
        """Whether nothing better was found for long, and nothing next to the best plan is left to try."""
        return self.ledger.since_progress >= self.settings.patience and not self.proposals.beside()

    def _run_off(self, stopped: str) -> Outcome:
        """Time the few best against the baseline once more, and choose."""
        self._report("run-off")
        self.bench.settle()
        self._hear()
        settings = self.settings
        plans = finalists(
            self.ledger,
            settings.finalists,
            noise=settings.noise,
            given=self.proposals.given,
            nbytes=self.bench.nbytes,
        )
        disturbed = False
        while True:
            programs, plans = self._programs(plans)
            times = self._time_finalists(plans, programs, again=not disturbed)
            disturbed = self._is_disturbed(times)
            if not disturbed:
                try:
                    times = self._timed_elsewhere(times, programs)
                except _WrongElsewhere as wrong:
                    plans = self._found_out(wrong.plan, str(wrong), plans)
                    continue
            by_trials = disturbed and self._is_disturbed_baseline(times)
            if by_trials:
                finals = tuple(_finalist(trial) for trial in self._as_tried(plans))
                best, baseline = choose(finals, noise=settings.noise, nbytes=self.bench.nbytes)
            else:
                finals = tuple(Finalist(plan, one.seconds, one.spread, len(one.samples)) for plan, one in times.items())
                best, baseline = choose(
                    finals,
                    noise=settings.noise,
                    nbytes=self.bench.nbytes,
                    ratio=_ratios(times),
                    before=self._own_seconds,
                )
            try:
                known = best.plan in plans
                program = programs[plans.index(best.plan)] if known else self.bench.program(best.plan)
                self.bench.run_verified(best.plan, program)
                break
            except Exception as failure:
                plans = self._found_out(best.plan, str(failure), plans)
        if stopped == FEW_CALLS:
            self.notes.append(
                f"{_calls_are(self.settings.calls)} too few to search on: {self._elapsed():.3g} s were spent, and more "
                f"could win {self._gain():.3g} s in all at most, of which a quarter may be spent"
            )
        if disturbed:
            slower, decided = self._slower(times), ", which have decided instead" if by_trials else ""
            self.notes.append(
                f"the run-off was disturbed: the best plans took {slower[0]:.1f} to {slower[-1]:.1f} times as long in "
                f"it as in their trials{decided}; with nothing else on the machine, --retune (retune=True) tells more"
            )
        if self.bench.watch is not None and self.bench.watch.note is not None:
            self.notes.append(self.bench.watch.note)
        if best.plan == baseline.plan:
            plain = "the plain sweep" if best.plan.traits.is_plain else "streamed products"
            others = any(not is_baseline(trial.plan) for trial in self.ledger.trials)
            self.notes.append(f"nothing {'beat' if others else 'was tried but'} the baseline: the plan is {plain}")
        return self._outcome(best, baseline, finals, stopped, interrupted=False, disturbed=by_trials)

    def _unfinished(self) -> Outcome:
        """The best so far, by the figures of the trials, when there is no time for a run-off."""
        finals = tuple(_finalist(trial) for trial in self.ledger.completed() if trial.is_own)
        best, baseline = choose(finals, noise=self.settings.noise, nbytes=self.bench.nbytes)
        self.notes.append("interrupted: the best so far, without a run-off")
        return self._outcome(best, baseline, finals[: self.settings.finalists], "interrupted", interrupted=True)

    # ------------------------------------------------------------------------------------------------ trials

    def _try(self, plan: Plan, origin: str) -> None:
        if not self._is_ours(plan, origin):
            return
        self._made += 1
        racing = not self._everything and origin != "given"
        best = self.ledger.measured_seconds if racing else None
        self.bench.patience = max(self._left(), _LEAST_PATIENCE) if racing and origin != "baseline" else math.inf
        begin = self._elapsed()
        trial = self.bench.try_plan(plan, number=len(self.ledger.trials), origin=origin, best=best)
        trial = replace(trial, elapsed=self._elapsed() - begin)
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
        """Try a baseline, where it is feasible."""
        if self.proposals.refusal(plan) is None:
            self._try(plan, "baseline")

    def _get_ready(self, now: Plan, baselines: Iterable[Plan] = ()) -> None:
        """Let plans that may come behind `now` be got ready beside its trial, `baselines` before others."""
        is_last = self._made + 1 >= self.settings.trials or self._left() <= _LEAST_PATIENCE
        waits = self.settings.calls is not None and self.ledger.baseline is None  # for what search is worth
        if is_last or waits or self._everything:
            return

        def likely() -> Iterator[Plan]:
            for plan in baselines:
                is_due = plan not in self.ledger and not self.proposals.is_hopeless(plan)
                if is_due and self.proposals.refusal(plan) is None:
                    yield plan
            yield from (plan for plan in self.proposals.likely() if plan != now)

        self.bench.get_ready(likely)

    # ------------------------------------------------------------------------------------------------ others

    def _is_ours(self, plan: Plan, origin: str) -> bool:
        """Claim a plan; where another worker has it, it is theirs, but for what has to be measured here in any case."""
        if self._others is None or self._others.claim(plan):
            return True
        if origin == "given" or self.ledger.baseline is None:
            return True
        self._hear()
        # What cannot be read of another, as of an akx of tomorrow, is tried here: else it would be proposed for ever.
        return plan not in self.ledger and not self._others.is_under_way(plan)

    def _begin_as_others(self) -> None:
        """Where others have baselines, measure the best of them before all else: it tells how their times compare."""
        self._hear()
        known = [trial for _, trial in self._waiting if is_baseline(trial.plan) and trial.state == COMPLETE]
        if known:
            self._try_baseline(min(known, key=lambda trial: trial.seconds or math.inf).plan)
        earlier = self._history.baseline
        if earlier is not None and earlier not in self.ledger and self.bench.space.values(earlier) is not None:
            self._try_baseline(earlier)

    def _hear(self) -> None:
        """Enter what others have tried since the last time, once there is a baseline to compare their times with."""
        if self._others is None:
            return
        self._waiting += ((worker, trial) for worker, trial in self._others.hear() if not may_be_otherwise(trial))
        if self.ledger.baseline is None:
            return
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
        """Enter trials that were made elsewhere, of plans of this space that have none here."""
        for trial in trials:
            if trial.plan in self.ledger or self.bench.space.values(trial.plan) is None:
                continue
            if not is_baseline(trial.plan) and self._keep is not None and not self._keep(trial.plan):
                continue
            adopted = replace(trial, number=len(self.ledger.trials))
            self.ledger.add(adopted)
            self.proposals.learn(adopted)

    # ------------------------------------------------------------------------------------------------ run-off

    def _programs(self, plans: list[Plan]) -> tuple[list[Any], list[Plan]]:
        """The finalists' programs, those prepared again that were not kept; without those that fail now."""
        programs: dict[Plan, Any] = {}
        for plan in plans:
            try:
                programs[plan] = self.bench.program(plan)
            except Exception as failure:
                plans = self._found_out(plan, str(failure), plans)
        return [programs[plan] for plan in plans], plans

    def _time_finalists(self, plans: list[Plan], programs: list[Any], *, again: bool) -> dict[Plan, Measurement]:
        """The finalists timed in turn with one another; `again` where some of them were disturbed, if there is time."""
        calls = [self.bench.call(program) for program in programs]
        known = [self._known(plan) for plan in plans]

        def timed() -> dict[Plan, Measurement]:
            with self._alone():
                found = measure.interleave(calls, self._final_precision(), known=known, watch=self.bench.watch)
            return dict(zip(plans, found, strict=True))

        begin = measure.now()
        times, took = timed(), measure.now() - begin
        lull = min(_LULL_SECONDS, _LULL_SHARE * self._seconds())
        if not (again and self._is_disturbed(times)) or self._elapsed() + lull + took > self._seconds():
            return times
        measure.pause(lull)
        return timed()

    def _timed_elsewhere(self, times: dict[Plan, Measurement], programs: list[Any]) -> dict[Plan, Measurement]:
        """The finalists timed again with those that may win in other places of memory, so often as there is time.

        Where the arrays of a program lie decides which of them share sets of a GPU's L2 cache: the same plan took 134.6
        to 141.8 us in ten searches on an H100, each time as long as in its trial. All rounds count alike, and there are
        as many in each place, so that medians are those of a plan and not of the place that it had by chance.

        Raises
        ------
        _WrongElsewhere
            Where a plan fails in another place, or its result is wrong there.
        """
        fastest = min(times.values(), key=lambda found: found.seconds).seconds
        rivals = [plan for plan, found in times.items() if found.seconds <= _RIVALS * fastest]
        rounds = len(next(iter(times.values())).samples)
        samples = {plan: list(found.samples) for plan, found in times.items()}
        held, took = [programs], sum(self.ledger.prepare_seconds(plan) for plan in rivals)
        for _ in range(self.bench.places - 1 if len(rivals) > 1 else 0):
            begin = measure.now()
            if self._elapsed() + took + self._final_seconds() + self._fresh_seconds(rivals[0]) > self._seconds():
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
        try:
            for place, plan in enumerate(plans):
                if plan in rivals:
                    moved[place] = self.bench.elsewhere(plan)
        except (MemoryError, InfeasibleError):  # there is no room for them beside the others
            return None
        except Exception as failure:
            raise _WrongElsewhere(plan, str(failure)) from failure
        held.append(moved)
        calls = [self.bench.call(program) for program in moved]
        precision = replace(self._final_precision(), rounds_min=rounds, rounds_max=rounds)
        known = [self._known(plan) for plan in plans]
        with self._alone():
            timed = measure.interleave(calls, precision, known=known, watch=self.bench.watch)
        found = dict(zip(plans, timed, strict=True))
        return None if self._is_disturbed(found) else found

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

    def _slower(self, times: Mapping[Plan, Measurement]) -> list[float]:
        """How many times as long as in their trials here the finalists took, the least first."""
        before = ((plan, self._own_seconds(plan)) for plan in times)
        return sorted(times[plan].seconds / seconds for plan, seconds in before if seconds)

    def _as_tried(self, plans: list[Plan]) -> list[Trial]:
        """The trials of the finalists that were made here, and that of the fastest baseline of these."""
        own = [trial for trial in self.ledger.completed() if trial.is_own and is_baseline(trial.plan)]
        found = [self.ledger[plan] for plan in plans if self.ledger[plan].is_own]
        return list({trial.plan: trial for trial in (*found, *own[:1])}.values())

    def _known(self, plan: Plan) -> float | None:
        """Seconds that a finalist took in its trial; None where that was another worker's, on a device of its own."""
        trial = self.ledger[plan]
        return None if trial.origin == SHARED else trial.seconds

    def _found_out(self, plan: Plan, reason: str, plans: list[Plan]) -> list[Plan]:
        """Take a finalist that failed when run again out of the run-off."""
        self.bench.forget(plan)
        self.ledger.fail(plan, reason)
        if self._record is not None:
            self._record(self.ledger[plan], self.bench.nbytes(plan))
        self.notes.append(f"{plan.label()} was right at first and wrong later, and is out: {reason}")
        left = [other for other in plans if other != plan]
        if not any(is_baseline(other) for other in left):
            raise InfeasibleError("the baseline gave a wrong result when it was run again", found=reason)
        return left

    def _outcome(
        self,
        best: Finalist,
        baseline: Finalist,
        finals: tuple[Finalist, ...],
        stopped: str,
        *,
        interrupted: bool,
        disturbed: bool = False,
    ) -> Outcome:
        ordered = tuple(sorted(finals, key=lambda one: (one.seconds, one.plan.label())))
        trials = tuple(self.ledger.trials)
        if self._others is not None and self._others.workers:
            heard, workers = sum(trial.origin == SHARED for trial in trials), self._others.workers
            self.notes.append(
                f"{heard} more trials are of {workers} other worker{'s' * (workers > 1)} on the same study"
            )
        earlier = sum(trial.origin == EARLIER for trial in trials)
        if earlier:
            self.notes.append(f"went on from {earlier} trials of earlier searches; --fresh (fresh=True) begins anew")
        tried = {trial.plan.schedule for trial in trials}
        untried = {name: reason for name, reason in self.proposals.refused.items() if name not in tried}
        notes = (*self.notes, *_not_tried(untried))
        starved = stopped == TIME_BUDGET and not self._is_through()
        return Outcome(best, baseline, trials, ordered, stopped, interrupted, notes, disturbed, starved, untried)

    def _is_through(self) -> bool:
        """Whether all that a search begins with was tried, and enough of it measured."""
        measured = sum(trial.seconds is not None for trial in self.ledger.trials)
        return self._everything or (self.proposals.has_begun and measured >= _FEW_TRIALS)

    # ------------------------------------------------------------------------------------------------ budgets

    def _budget_gone(self, *, baseline: bool = False) -> str:
        """Which budget is at its end, or "". Baselines may take half of the trials and a share of the time."""
        settings = self.settings
        allowed = max(1, -(-settings.trials // 2)) if baseline else settings.trials
        if self._made >= allowed:
            return "trial budget"
        if self._left() <= 0 or (baseline and self._elapsed() > _BASELINE_SHARE * self._seconds()):
            return self._time_gone()
        return ""

    def _time_gone(self) -> str:
        """What it is that leaves no time."""
        return FEW_CALLS if _WORTH * self._gain() < self.settings.seconds else TIME_BUDGET

    def _avoid(self, plan: Plan) -> bool:
        """Whether plans of this kind take longer to compile or prepare than there is time, or than they are worth.

        What was put off is tried when its code is there.
        """
        if any(plan == other for _, other in self._later):
            return True
        if self.ledger.expected_seconds(plan) > self._left():
            self._ran_short = True
            return True
        return self.ledger.is_dear(plan, _DEAR_SHARE * self._seconds())

    def _elapsed(self) -> float:
        """Seconds since the search began, without what was compiled here meanwhile, up to as much again."""
        return measure.now() - self._start - min(self._clock.seconds, self.settings.seconds)

    def _gain(self) -> float:
        """Most seconds that further search can win in the calls to come; infinite where nobody said how many."""
        if self.settings.calls is None:
            return math.inf
        best = self.ledger.measured_seconds
        if best is None:
            return math.inf
        return self.settings.calls * max(best - self._least, _LEAST_GAIN * best)

    def _seconds(self) -> float:
        """Most seconds in all: the budget, or what more search is worth where that is less."""
        return min(self.settings.seconds, _WORTH * self._gain())

    def _left(self) -> float:
        """Seconds left for trials."""
        return self._seconds() - self._elapsed() - self._reserve()

    def _reserve(self) -> float:
        """Seconds for the end of a trial, the run-off (three rounds at least) and preparing the winner anew."""
        best, end = self.ledger.best, _END_SHARE * self._seconds()
        if best is None or best.seconds is None:
            return self._final_seconds() + end
        rounds = 3 * (self.settings.finalists + 2) * best.seconds
        needed = max(self._final_seconds(), rounds) + self._fresh_seconds(best.plan) + end
        return min(needed, _RESERVED_SHARE * self._seconds())

    def _final_seconds(self) -> float:
        return min(self.settings.final.seconds, _FINAL_SHARE * self._seconds())

    def _fresh_seconds(self, plan: Plan) -> float:
        """Seconds to prepare a plan with nothing memoised."""
        return self.ledger.fresh_seconds(plan) + self.proposals.ordering_seconds(plan)

    def _final_precision(self) -> Precision:
        """That of the run-off, with less time where the last trial took longer than could be known."""
        final, best = self.settings.final, self.ledger.best
        over = self._elapsed() + self._final_seconds() - self._seconds()
        if best is not None:
            over += self._fresh_seconds(best.plan)
        seconds = max(self._final_seconds() - max(over, 0.0), _LEAST_FINAL * self._final_seconds())
        return Precision(final.relative, seconds, final.rounds_min, final.rounds_max)

    # ------------------------------------------------------------------------------------------------ progress

    def _report(self, phase: str, trial: Trial | None = None) -> None:
        if self._callback is None:
            return
        best = self.ledger.best
        share = None
        if best is not None and best.seconds and getattr(self._callback, "wants_roofline", True):
            roofline = self.model.roofline(best.plan, best.seconds)
            share = None if roofline is None else roofline.share
        self._callback(
            Progress(
                phase=phase,
                trials=self._made,
                trials_budget=self.settings.trials,
                elapsed=self._elapsed(),
                seconds_budget=self.settings.seconds,
                state="" if trial is None else trial.state,
                trial=trial,
                best_plan=None if best is None else best.plan,
                best_seconds=self.ledger.best_seconds,
                baseline_seconds=self.ledger.baseline_seconds,
                roofline_share=share,
            )
        )


class _WrongElsewhere(Exception):
    """A plan of the run-off failed, or gave a wrong result, in another place of memory."""

    def __init__(self, plan: Plan, reason: str) -> None:
        super().__init__(reason)
        self.plan = plan


def _finalist(trial: Trial) -> Finalist:
    """A complete trial in place of a run-off."""
    return Finalist(trial.plan, trial.seconds or math.inf, trial.spread or 0.0, len(trial.samples))


def _ratios(times: Mapping[Plan, Measurement]) -> Callable[[Plan, Plan], Measurement]:
    """Seconds of one plan over those of another, round by round."""
    return lambda one, other: measure.paired_ratio(times[one], times[other])


def _not_tried(untried: Mapping[str, str]) -> list[str]:
    """A note for each reason why schedules were not tried."""
    schedules: dict[str, list[str]] = {}
    for name, reason in untried.items():
        schedules.setdefault(reason, []).append(name)
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not tried: {reason}"
        for reason, names in schedules.items()
    ]


def _calls_are(calls: int | None) -> str:
    return "1 call is" if calls == 1 else f"{calls} calls are"
