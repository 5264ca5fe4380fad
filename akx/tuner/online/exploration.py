"""A search beside calls that a user makes anyway: its phases, steps, costs and verdicts, whatever clock calls have.

See :mod:`akx.tuner.online.calls` for the way of a candidate. No thread lives longer than a step. What is under way when
the interpreter ends is waited for, for a moment; a forked child goes on with the plan that it has, and explores
nothing.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from akx.backends.schedule import Program
from akx.core.errors import CapturingError, shown
from akx.core.matrix import Matrix
from akx.core.parallel import alone
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.history.trial import COMPLETE, FAILED, PRUNED, Trial
from akx.tuner.measure import Measurement, median
from akx.tuner.online import threads as beside
from akx.tuner.online.bandit import Budget, Duel
from akx.tuner.online.candidates import REUSED, Candidates
from akx.tuner.online.first_runs import Candidate
from akx.tuner.trial.bench import too_slow

__all__ = ["DUEL", "FIRST", "HOPELESS", "IDLE", "OVER", "Exploration", "Holder"]

#: A candidate whose first run takes so many times as long as a call is dropped.
HOPELESS = 1.5
#: Calls on the incumbent that say what one takes: the last ones, and so many at least.
_RECENT, _FEWEST = 31, 3
#: Seconds of calls between two looks at whether code is compiled, or a capture is over.
_LOOK = 0.25
#: Seconds of starting a thread.
_THREAD = 1e-4
#: Calls on the incumbent one of which is timed: of so many seconds, and so many of them at most.
_UNTIMED_SECONDS, _UNTIMED = 1e-3, 64
#: What comes next: a step may begin; one is under way; a first run; a duel; nothing more.
IDLE, _BESIDE, FIRST, DUEL, OVER = range(5)


class Holder(Protocol):
    """Who has the programs, and gives all of them new values."""

    def matrix(self) -> Matrix:
        """The matrix of now."""
        ...

    def hold(self, plan: Plan, program: Program, given: Matrix) -> bool:
        """Have a candidate, which gets new values from now on; not where `given` is not the matrix of now."""
        ...

    def let_go(self, plan: Plan) -> None:
        """Forget a candidate."""
        ...

    def adopt(self, plan: Plan, program: Program, source: str, seconds: float) -> None:
        """Have calls run on this plan from now on."""
        ...

    def settled(self) -> None:
        """Nothing more is tried."""
        ...


class Exploration:
    """The best plan so far, and a search for a better one. For one call at a time.

    Parameters
    ----------
    candidates : Candidates
    holder : Holder
    budget : Budget, optional
        What exploring may cost.
    do_beside : callable, optional
        Does a step beside the calls: in a thread by default.

    Attributes
    ----------
    plan, program
        The incumbent.
    budget : Budget
    tried : dict of str to int
        Candidates by what became of them.
    untimed, every : int
        Calls since the last one that was timed, and which one of them is timed next.
    """

    def __init__(
        self,
        candidates: Candidates,
        holder: Holder,
        plan: Plan,
        program: Program,
        *,
        budget: Budget | None = None,
        do_beside: Callable[[Callable[[], None]], None] = beside.in_thread,
    ) -> None:
        self.plan, self.program, self.budget = plan, program, budget or Budget()
        self.tried = dict.fromkeys(("adopted", "slower", "wrong", "failed"), 0)
        self.beside_seconds, self.gain = 0.0, 1.0
        self._candidates, self._holder, self._do_beside = candidates, holder, do_beside
        self._phase, self._next = IDLE, candidates.price
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._usual, self._steps, self._not_before = 0.0, 0, 0.0
        self.untimed, self.every = 0, 0
        self._idle()
        self._candidate: Candidate | None = None
        self._duel = Duel()
        self._is_unkept = self._is_under_way = False
        is_real = measure.is_real_time()
        self._now = time.perf_counter if is_real else measure.now
        self._processor = time.thread_time if is_real else measure.now
        self._last = self._now()
        beside.note(self)
        weakref.finalize(self, candidates.end_processes)  # where calls end before the search does

    def _counted(self) -> int:
        """Calls that the one which is timed now stands for; they begin anew."""
        calls, self.untimed = self.untimed, 0
        return calls

    def _took(self, seconds: float, calls: int, most: float = math.inf) -> None:
        """Take note of what a call on the incumbent has taken, and so many of its kind; do what is due behind it.

        All of them have taken `most` seconds at most.
        """
        budget = self.budget
        budget.total += min(seconds * calls, most)
        self._recent.append(seconds)
        if budget.total >= self._due:
            self._behind()
        self.every = 0 if self._phase in (FIRST, DUEL) else self._most_untimed(seconds)

    def _most_untimed(self, seconds: float) -> int:
        """Of how many calls of so many seconds one is timed."""
        return int(min(_UNTIMED, _UNTIMED_SECONDS / max(seconds, 1e-9)))

    def _behind(self) -> None:
        """What is due behind a call."""
        phase = self._phase
        if phase == _BESIDE:
            self._recent.pop()
        elif phase == IDLE:
            if self.budget.covers(self._next) and len(self._recent) >= _FEWEST:
                self._begin(self._prepare)
        elif phase == FIRST:
            self._run_first()
        elif phase == OVER:
            self._holder.settled()

    def _idle(self) -> int:
        """Nothing is under way until calls have paid for the next step."""
        self._due = max(self._not_before, self.budget.due(self._next))
        self._phase = IDLE
        return IDLE

    # ------------------------------------------------------------------------------------------------ from outside

    @property
    def is_over(self) -> bool:
        """Whether nothing more is tried."""
        return self._phase == OVER

    @property
    def candidate_plan(self) -> Plan | None:
        """The plan of the candidate that gets new values, where there is one."""
        candidate = self._candidate
        return candidate.plan if candidate is not None and candidate.is_held else None

    def on(self, plan: Plan, program: Program, is_held: Callable[[Plan, Program], bool]) -> Self:
        """The same with this incumbent; without a candidate that the holder has not got any more."""
        if plan != self.plan:
            self.end("calls have got another plan")
        self.plan, self.program = plan, program
        candidate = self._candidate
        if candidate is not None and candidate.is_held and not is_held(candidate.plan, candidate.program):
            candidate.is_lost = True
        return self

    def stop(self) -> None:
        """Begin nothing more; a step that is under way ends by itself."""
        self._due, self._phase, self.every = 0.0, OVER, 0

    def interrupt(self) -> None:
        """End the processes that a step may wait for."""
        self._candidates.end_processes()

    def end(self, why: str = "") -> None:
        """Try nothing more."""
        self._candidates.ended = self._candidates.ended or why
        self.stop()
        self._candidate = None
        self._candidates.close()
        if not self._is_under_way:
            self._candidates.forget()

    def told(self) -> str:
        """What was tried, and what it has cost, in words."""
        budget, candidates = self.budget, self._candidates
        if candidates.ended == REUSED:
            return "nothing to try: the database has the plan of a search that came to its end"
        counts = [f"{count} {what}" for what, count in self.tried.items() if count]
        share = budget.spent / budget.total if budget.total else 0.0
        state = f"ended ({candidates.ended})" if self.is_over else "goes on"
        gain = f", {self.gain:.2f}x over the first plan" if self.gain > 1 else ""
        return shown(
            f"{sum(self.tried.values())} plans tried ({', '.join(counts) or 'none'}){gain}; it has cost "
            f"{budget.spent:.3g} s of {budget.total:.3g} s of calls ({share:.1%}; {budget.allowed:.3g} s are allowed), "
            f"{self.beside_seconds:.3g} s of them beside calls; {state}",
            600,
        )

    # ------------------------------------------------------------------------------------------------ beside calls

    def _begin(self, work: Callable[[], int]) -> None:
        """Do a step beside the calls that follow; it says what comes after it."""
        self._usual = self._seconds()
        self._due, self._phase, self._is_under_way = 0.0, _BESIDE, True

        def step() -> None:
            begin, phase = self._processor(), OVER
            try:
                with alone():  # so that the time of this thread is all that it costs, and calls have their team
                    phase = work()
            except CapturingError:
                phase = self._again()
            except Exception as failure:  # of whatever kind: calls have their plan
                self._candidates.ended = self._candidates.ended or f"a step failed: {failure}"
            self._is_under_way = False
            took = self._cost(self._processor() - begin + _THREAD)
            self.budget.spent += took
            self.beside_seconds += took
            self._steps += 1
            self._next = self._candidates.price
            if self._phase == OVER or phase == OVER:
                self.end()
            elif phase == IDLE:
                self._idle()
            else:
                self._phase = phase
            self.every = 0  # what comes next is not to wait for calls that are not timed

        try:
            self._do_beside(step)
        except RuntimeError:  # there is no thread to be had, as where the interpreter ends
            self._is_under_way = False
            self.end()

    def _cost(self, processor: float) -> float:
        """Seconds that a step has cost which took so many of a processor: calls have lost no more by it."""
        return processor

    def _again(self) -> int:
        """A step came upon a capture of the user's: it is taken again in a while."""
        self._not_before = self.budget.total + _LOOK
        return IDLE

    def _prepare(self) -> int:
        candidates = self._candidates
        if self._is_unkept:
            self._is_unkept = False
            candidates.keep(self.plan, self.gain, self.budget.spent)
        begin = self._processor()
        self._candidate = candidates.next(self.plan, self._usual, self.budget.left, self._holder.matrix())
        if self._candidate is not None:
            candidates.took(self._processor() - begin)
        if candidates.waits:
            self._not_before = self.budget.total + _LOOK
        if candidates.ended:
            candidates.keep(self.plan, self.gain, self.budget.spent)
            return OVER
        return IDLE if self._candidate is None else FIRST

    def _check(self) -> int:
        candidate = self._candidate
        assert candidate is not None
        return self._judged(candidate)

    def _judged(self, candidate: Candidate) -> int:
        """What comes after the first result of a candidate."""
        wrong = self._candidates.check(candidate)
        if not wrong:
            self._duel = Duel()
            return DUEL
        self.tried["wrong"] += 1
        self._tell(candidate, FAILED, wrong)
        self._forget()
        return IDLE

    # ------------------------------------------------------------------------------------------------ within calls

    def _seconds(self) -> float:
        """Seconds of a call on the incumbent, by the last ones."""
        return median(self._recent) if self._recent else self._usual

    def _run_first(self) -> None:
        """Run a candidate on vectors of akx's own, where there is the time."""
        raise NotImplementedError

    def _is_held(self, candidate: Candidate) -> bool:
        """Whether a candidate is held from now on, with the values of now; one with those of before comes again."""
        if not self._holder.hold(candidate.plan, candidate.program, self._candidates.given):
            self._candidates.put_back(candidate)  # what must come out is of before, too
            self._candidate = None
            return False
        candidate.is_held = True
        return True

    def _has_run(self, candidate: Candidate, took: float, usual: float) -> None:
        """A first run has taken so long, where a call takes `usual`."""
        candidate.expected = took
        if took > HOPELESS * usual:
            self.tried["slower"] += 1
            self._tell(candidate, PRUNED, too_slow(HOPELESS), [took], [usual])
            self._drop()
        else:
            self._begin(self._check)

    def _decide(self, candidate: Candidate, duel: Duel, won: bool) -> None:
        self.tried["adopted" if won else "slower"] += 1
        self._tell(candidate, COMPLETE, "", duel.candidate, duel.incumbent)
        if not won:
            self._drop()
            return
        known = self._candidates.given.pattern_cache
        for key, found in candidate.needed.items():
            known.setdefault(key, found)
        self.gain *= median(duel.incumbent) / median(duel.candidate)
        self.plan, self.program, self._is_unkept = candidate.plan, candidate.program, True
        self._recent.clear()
        self._recent.extend(duel.candidate)
        source = f"tuned online: {self.gain:.2f}x over the plan that calls began with"
        self._holder.adopt(self.plan, self.program, source, median(duel.candidate))
        self._candidate = None
        self._begin(self._keep)

    def _keep(self) -> int:
        self._is_unkept = False
        self._candidates.keep(self.plan, self.gain, self.budget.spent)
        return IDLE

    def _failed(self, candidate: Candidate, failure: Exception) -> None:
        self.tried["failed"] += 1
        self._tell(candidate, FAILED, f"{type(failure).__name__}: {failure}")
        self._drop()

    def _drop(self) -> None:
        """Have no candidate any more, within a call."""
        self._forget()
        if self._phase != OVER:
            self._idle()

    def _forget(self) -> None:
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            self._holder.let_go(candidate.plan)

    def _tell(
        self,
        candidate: Candidate,
        state: str,
        reason: str,
        own: list[float] | None = None,
        beside: list[float] | None = None,
    ) -> None:
        """Tell of a trial: its seconds are those that it takes where the first plan takes what it took first."""
        ledger, found = self._candidates.ledger, None
        if own and beside and ledger is not None:
            usual = ledger.trials[0].seconds or 0.0
            found = Measurement.of([usual / self.gain * one / median(beside) for one in own])
        self._candidates.tell(
            Trial(
                -1,
                candidate.plan,
                candidate.origin,
                state,
                reason,
                None if found is None else found.seconds,
                None if found is None else found.spread,
                candidate.prepare_seconds,
                candidate.error,
                samples=() if found is None else found.samples,
            )
        )
