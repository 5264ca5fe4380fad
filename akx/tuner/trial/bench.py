"""One trial: from a plan to a verified, timed program, or to the reason why not.

1. feasible?                  no: pruned, with the schedule's reason, before any work
   on a GPU, does it survive in another process (:mod:`akx.tuner.sandbox`)?   no: failed, with what became of it
2. prepare                    an exception: failed; InfeasibleError: pruned
3. poison, run, compare       a wrong or missing entry: failed, whatever its speed
4. time against the anchor    clearly slower than the best: pruned after the first rounds; too slow for the run-off
                              beyond doubt: complete after the fewest
5. time against the anchor    until the interval of the median is narrow: complete; twice where it is the best so far

The anchor is a baseline program kept alive: every candidate is timed in turn with it, and its figure is the ratio of
the two times the anchor's seconds, so that a machine that slows down between two trials favours neither. Where all of
a timing finds the anchor half as slow again as it was, the anchor and the best plan are timed anew: if that has passed
the trial is timed again, else the best plan is the anchor from then on, since what is like it is slowed like it. A
timing in which the candidate itself was now fast and now slow is made once more. Compilation is never part of a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from akx.backends import registry
from akx.backends.cpu.cores import CoreWatch
from akx.backends.schedule import Program, held_bytes
from akx.backends.selection import backend_of
from akx.core.errors import AkxError, InfeasibleError, VerificationError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.history.trial import AS_ANOTHER, COMPLETE, FAILED, PRUNED, Trial, fault_of
from akx.tuner.measure import Measurement, Precision, Watch
from akx.tuner.model.budget import compiling
from akx.tuner.select import CHANCE
from akx.tuner.space import Space
from akx.tuner.trial.problem import Problem
from akx.tuner.warmup.compile_ahead import CompileAhead
from akx.tuner.warmup.host_code import Warmup, job_of

__all__ = ["KEEP_BYTES", "SHORT_SECONDS", "Bench", "is_hopeless", "too_slow"]

#: Bytes of programs kept for the run-off beside the anchor's.
KEEP_BYTES = 1024**3
#: How much wider the margin of the race is for a single sample.
_CRUDE_MARGIN = 3.0
#: A call shorter than this is dropped only when it looks hopeless twice: one disturbance may be all its samples.
SHORT_SECONDS = 20e-3
#: Seconds of a timing that a disturbance hardly fills: behind them it may end with a plan that cannot win.
_TELLING_SECONDS = 50e-3
#: Seconds that are waited before a wild timing is made again; so many in a row that were no calmer: the machine is so.
_CALM_SECONDS, _MOST_WILD = 0.3, 3
#: An anchor that was slower for a while is so no more once it takes at most this times what it took when it was tried.
_RECOVERED = 1.25


@dataclass(frozen=True)
class _Anchor:
    """A program that candidates are timed against, what it took when it was tried, and what it takes by now."""

    plan: Plan
    program: Program
    seconds: float
    usual: float


class Bench:
    """Where plans of one problem are tried.

    `watch` looks at the machine while something is timed, `slowed` is how many times slower it has become, and plans of
    the run-off are timed in so many `places` of memory. A candidate may take `patience` seconds where it runs first.

    Parameters
    ----------
    race : float
        A candidate is dropped once its fastest sample is this many times slower than the best.
    keep : int
        Programs kept alive for the run-off.
    alone : callable
        Gives a context manager within which nobody else measures on the device; entered for each timing.
    wary : bool
        Whether candidates that may crash a GPU run in another process first.
    ahead : int
        Processes beside that one in which candidates are got ready before they are tried: see :meth:`get_ready`.
    warmup : Warmup, optional
        Where the code of the host's plans is compiled before they are tried.
    """

    def __init__(
        self,
        problem: Problem,
        space: Space,
        *,
        precision: Precision,
        race: float,
        keep: int,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
        wary: bool = True,
        ahead: int = 0,
        warmup: Warmup | None = None,
    ) -> None:
        self.problem, self.space, self.precision, self.race, self.keep = problem, space, precision, race, keep
        self.alone, self._warmup = alone, warmup or Warmup(problem.matrix, count=0)
        self._budget, self._backend = space.device.budget, backend_of(space.backend)
        self._vectors = self._backend.trial_vectors(problem, hosted=bool(self._budget))
        self.places = 1 if self._budget else self._backend.places
        self.watch = _watch(space)
        self.slowed, self.patience = 1.0, math.inf
        self._wild = 0
        self._anchor: _Anchor | None = None
        self._kept: dict[Plan, tuple[float, Program]] = {}
        self._compile_ahead = CompileAhead(problem, ahead=ahead) if wary and self._backend.may_crash else None
        self._sizes: dict[Plan, int] = {}
        self._beside: list[Callable[[], None]] = []

    @property
    def matrix(self) -> Matrix:
        """The matrix of the problem."""
        return self.problem.matrix

    def nbytes(self, plan: Plan) -> int:
        """Bytes of the program of a plan that was tried; 0 where it was not."""
        return self._sizes.get(plan, 0)

    def try_plan(self, plan: Plan, *, number: int, origin: str, best: float | None) -> Trial:
        """Make one trial; `number` and `origin` are for the record.

        `best` is the seconds of the best complete trial so far: no racing without. Never raises for anything the plan
        did; KeyboardInterrupt passes.
        """
        try:
            reason = self.space.feasible(plan, self.matrix)
        except Exception as failure:
            return Trial(number, plan, origin, FAILED, _describe(failure, plan))
        if reason is not None:
            return Trial(number, plan, origin, PRUNED, reason)
        start, compiled = measure.now(), list[float]()
        begin, error = math.nan, None
        told: dict[str, Any] = {"number": number, "plan": plan, "origin": origin}
        try:
            lost = self.reason_to_fear(plan)
            waited = measure.now() - start
            if lost is not None:  # what was not given the time has not failed
                state = PRUNED if self._compile_ahead is not None and self._compile_ahead.gave_up else FAILED
                return Trial(**told, state=state, reason=lost, prepare_seconds=waited)
            with compiling(compiled.append):
                program = self._prepare(plan)
            prepared = measure.now() - start
            error = self.run_verified(plan, program)
            self._warmup.has_come(plan)
            begin = measure.now()
            found, rough = self._time(program, best)
            if best is not None and found.seconds < best:
                again = self._time(program, None)[0]
                found = Measurement.of([*found.samples, *again.samples], found.batch)
        except Exception as failure:
            state = PRUNED if isinstance(failure, InfeasibleError) else FAILED
            took = measure.now() - start if math.isnan(begin) else prepared
            return Trial(**told, state=state, reason=_describe(failure, plan), prepare_seconds=took, error=error)
        trial = Trial(
            **told,
            state=PRUNED if rough else COMPLETE,
            reason=too_slow(self.race) if rough else "",
            seconds=found.seconds,
            spread=found.spread,
            prepare_seconds=prepared,
            error=error,
            samples=found.samples,
            timing_seconds=measure.now() - begin,
            clock_hz=self._backend.clock_hz(),
            prepare_again_seconds=max(0.0, prepared - waited - sum(compiled)),
        )
        if not rough:
            self._retain(plan, program, found.seconds)
        return trial

    def run_verified(self, plan: Plan, program: Program) -> float:
        """Run the program of a plan once on a poisoned output and return the error over its bound.

        The bound has no more of an error of values in it than :meth:`stored_error` says. Raises VerificationError
        where an entry is wrong or was not written.
        """
        self.problem.poison()
        self._vectors.poison()
        self.call(program)()
        self._vectors.fetch()
        error = self.problem.error(self.stored_error(plan))
        if fault := fault_of(error):
            raise VerificationError(fault)
        return error

    def call(self, program: Program) -> Callable[[], None]:
        """The call to be timed."""
        return self._vectors.call(program)

    def anchor_on(self, plan: Plan, seconds: float) -> None:
        """Time everything from now on against `plan`, a complete baseline trial of that many seconds."""
        self._anchor = _Anchor(plan, self.program(plan), seconds, seconds)

    def program(self, plan: Plan) -> Program:
        """A program of a complete trial, prepared and verified again where it was not kept."""
        if self._anchor is not None and self._anchor.plan == plan:
            return self._anchor.program
        if plan in self._kept:
            return self._kept[plan][1]
        return self.elsewhere(plan)

    def elsewhere(self, plan: Plan) -> Program:
        """Another program of a complete trial, prepared and verified; what is alive of the plan lies elsewhere."""
        program = self._prepare(plan)
        self.run_verified(plan, program)
        return program

    def stored_error(self, plan: Plan) -> float:
        """The largest relative error of a value as a feasible plan stores it here; mostly 0."""
        return registry.stored_error(self.space.schedules[plan.schedule], plan, self.matrix, self.space.device)

    def forget(self, plan: Plan) -> None:
        """Drop the program of a plan that has lost or was found out."""
        self._kept.pop(plan, None)

    def close(self) -> None:
        """Drop every program."""
        self._kept.clear()
        self._anchor = None
        self.settle()

    def reason_to_fear(self, plan: Plan) -> str | None:
        """Why a plan must not run in this process: it was lost, or hung, where it ran first."""
        if self._compile_ahead is None:
            return None
        if self.space.schedules[plan.schedule].may_crash:
            return self._compile_ahead.reason_against(plan, self.patience)
        self._compile_ahead.await_coming(plan, self.patience)
        return None

    def get_ready(self, likely: Callable[[], Iterable[Plan]]) -> None:
        """Prepare and compile elsewhere what is likely to be tried soon, the likeliest first, where there is room."""
        if self._compile_ahead is not None and self._compile_ahead.room > 0:
            self._compile_ahead.ahead(likely())
        if self._warmup.has_room:
            self._warmup.want((job_of(plan) for plan in likely()), self._warmup.count)

    def is_coming(self, plan: Plan) -> bool:
        """Whether the code of a plan is yet to be compiled beside this search: that is begun with now at the latest.

        Code of other packages is compiled in this process alone.
        """
        is_own = plan.schedule in registry.modules(plan.backend)
        return is_own and registry.variant(plan.backend, plan.variant) is None and self._warmup.is_coming(plan)

    def await_code(self, seconds: float) -> None:
        """Wait for the next piece of code that is being compiled, for so long at most."""
        self._warmup.wait_for_one(seconds)

    def end_when_settled(self, end: Callable[[], None]) -> None:
        """Call `end` where the processes beside this search are ended."""
        self._beside.append(end)

    def settle(self) -> None:
        """End the processes in which candidates run first: nobody else of this search is at the device from here on."""
        if self._compile_ahead is not None:
            self._compile_ahead.close()
        for end in self._beside:
            end()

    def _prepare(self, plan: Plan) -> Program:
        program = self.space.schedules[plan.schedule].prepare(self.matrix, plan)
        if not program.is_as_planned:
            raise InfeasibleError(AS_ANOTHER)
        self._sizes[plan] = int(program.nbytes)
        if self._budget and not plan.traits.streams:
            taken = self._sizes[plan] + self.problem.x.nbytes + self.problem.out.nbytes
            if taken > self._budget:
                raise InfeasibleError(f"takes {taken} bytes with its vectors, the memory budget is {self._budget}")
        return program

    def _time(self, program: Program, best: float | None) -> tuple[Measurement, bool]:
        """Seconds of a program, corrected against the anchor, and whether the timing was broken off as hopeless."""
        found, beside, broken_off = self._timed_calmly(program, best)
        anchor = self._anchor
        if anchor is None or beside is None:
            return found, broken_off
        if measure.all_disturbed(beside, anchor.usual):
            self._look_again(anchor)
            found, beside, broken_off = self._timed_calmly(program, best)
        elif anchor.usual > anchor.seconds and beside.seconds < _RECOVERED * anchor.seconds:
            self._anchor = replace(anchor, usual=anchor.seconds)
        return found, broken_off

    def _timed_calmly(self, program: Program, best: float | None) -> tuple[Measurement, Measurement | None, bool]:
        """As :meth:`_timed`, a moment later once more where that was wild; what took longer was disturbed more."""
        first, anchor = self._timed(program, best), self._anchor
        if first[2] or self._wild >= _MOST_WILD or not measure.is_wild(first[0]):
            return first
        measure.pause(min(_CALM_SECONDS, self.precision.seconds))
        again = self._timed(program, best)
        self._wild = self._wild + 1 if measure.is_wild(again[0]) else 0
        if anchor is not None and again[1] is not None and measure.all_disturbed(again[1], anchor.usual):
            return again  # the machine is slower, not the program
        return min(first, again, key=lambda timed: timed[0].seconds)

    def _look_again(self, anchor: _Anchor) -> None:
        """Where the anchor is slow and stays so, take the best plan for it, and what that takes by now as usual."""
        others = ((seconds, plan, program) for plan, (seconds, program) in self._kept.items())
        seconds, plan, program = min(others, key=itemgetter(0), default=(anchor.seconds, anchor.plan, anchor.program))
        calls = [self.call(anchor.program), self.call(program)]
        with self.alone():
            slow, best = measure.interleave(calls, self.precision, watch=self.watch)
        if not measure.all_disturbed(slow, anchor.seconds):
            self._anchor = replace(anchor, usual=anchor.seconds)
            return
        usual = max(best.seconds, seconds)
        self._anchor = _Anchor(plan, program, seconds, usual)
        self.slowed = max(self.slowed, usual / seconds)

    def _timed(self, program: Program, best: float | None) -> tuple[Measurement, Measurement | None, bool]:
        """One timing: as :meth:`_time`, with what the anchor took; None where there is none beside the program."""
        anchor, is_beside = self._anchor, self._anchor is not None and self._anchor.program is not program
        calls, known, broken_off, begin = [self.call(program)], list[float | None](), False, 0.0
        if anchor is not None and is_beside:
            calls.append(self.call(anchor.program))
            known = [None, anchor.usual]

        def corrected(found: Sequence[Measurement]) -> Measurement:
            if anchor is None or len(found) == 1:
                return found[0]
            return measure.against(found[0], found[1], anchor.seconds, anchor.usual)

        def ended(found: Sequence[Measurement]) -> bool:
            nonlocal broken_off
            if best is None:
                return False
            here = corrected(found)
            broken_off = is_hopeless(here.samples, self.race, best)
            telling = len(here.samples) >= self.precision.rounds_min and measure.now() - begin > _TELLING_SECONDS
            return broken_off or (telling and here.low > CHANCE * best)

        def timed() -> list[Measurement]:
            return measure.interleave(calls, self.precision, hopeless=ended, known=known, watch=self.watch)

        with self.alone():
            begin = measure.now()
            found = timed()
            if broken_off and corrected(found).seconds < SHORT_SECONDS:
                measure.pause(measure.DISTURBED_SECONDS)
                broken_off = False
                found = timed()
        return corrected(found), found[1] if len(found) > 1 else None, broken_off

    def _retain(self, plan: Plan, program: Program, seconds: float) -> None:
        """Keep the programs of the few best trials, within a budget of memory; in a GPU's the best one always."""
        self._kept[plan] = (seconds, program)
        held, always = 0, int(self._backend.has_own_memory)
        for place, (old, (_, kept)) in enumerate(sorted(self._kept.items(), key=lambda item: item[1][0])):
            held += held_bytes(kept)
            if place >= always and (place >= self.keep or held > KEEP_BYTES):
                del self._kept[old]


def is_hopeless(samples: Sequence[float], race: float, best: float) -> bool:
    """Whether even the fastest sample is `race` times slower than the best; a single one is crude: a wide margin."""
    return min(samples) > (race if len(samples) > 1 else _CRUDE_MARGIN * race) * best


def too_slow(race: float) -> str:
    """The reason given for a plan that was dropped early."""
    return f"more than {race:g}x slower than the best"


def _watch(space: Space) -> Watch | None:
    """What looks at the machine of a space while something is timed."""
    backend = backend_of(space.backend)
    of_device: Watch | None = backend.watch()
    if of_device is not None or not backend.uses_threads or not measure.is_real_time():
        return of_device
    named = [one for several in space.parameters.values() for one in several if one.name == "threads"]
    threads = max((int(choice) for one in named for choice in one.choices), default=space.threads)
    if threads < 2:
        return None
    watch = CoreWatch(threads)
    watch.look()  # compiles what it needs
    return watch


def _describe(failure: Exception, plan: Plan) -> str:
    """One line for an exception: of a refusal without the plan's label, so that equal reasons are equal."""
    if isinstance(failure, InfeasibleError):
        return failure.what.removeprefix(f"plan {plan.label()} is not feasible: ")
    if isinstance(failure, AkxError):
        return str(failure)
    text = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {text[:200]}" if text else type(failure).__name__
