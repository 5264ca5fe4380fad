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
from dataclasses import replace
from typing import Any, Self

from akx.backends.schedule import Program
from akx.core.errors import CapturingError, shown
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

__all__ = ["DUEL", "FIRST", "HOPELESS", "IDLE", "OVER", "Exploration"]

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


class Exploration:
    """The best plan so far, and a search for a better one. For one call at a time.

    The holder, an :class:`akx.operator.online.Held`, has the programs, and gives all of them new values. Calls run on
    the incumbent, `plan` and `program`. `do_beside` does a step beside the calls. `tried` counts candidates by what
    became of them. `untimed` counts calls since the last one that was timed, and of `every` so many one is.
    """

    def __init__(
        self,
        candidates: Candidates,
        holder: Any,
        plan: Plan,
        program: Program,
        *,
        do_beside: Callable[[Callable[[], None]], None] = beside.in_thread,
    ) -> None:
        self.plan, self.program, self.budget = plan, program, Budget()
        self.tried = dict.fromkeys(("adopted", "slower", "wrong", "failed"), 0)
        self.beside_seconds, self.gain = 0.0, 1.0
        self._candidates, self._holder, self._do_beside = candidates, holder, do_beside
        self._phase, self._next = IDLE, candidates.price
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._usual, self._steps, self._not_before = 0.0, 0, 0.0
        self.untimed = self.every = 0
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
        """Take note of a call on the incumbent, and so many of its kind, `most` seconds in all; do what is due then."""
        self.budget.total += min(seconds * calls, most)
        self._recent.append(seconds)
        if self.budget.total >= self._due:
            if self._phase == _BESIDE:
                self._recent.pop()
            elif self._phase == IDLE and self.budget.covers(self._next) and len(self._recent) >= _FEWEST:
                self._begin(self._prepare)
            elif self._phase == FIRST:
                self._run_first()
            elif self._phase == OVER:
                self._holder.settled()
        self.every = 0 if self._phase in (FIRST, DUEL) else self._most_untimed(seconds)

    def _most_untimed(self, seconds: float) -> int:
        """Of how many calls of so many seconds one is timed."""
        return int(min(_UNTIMED, _UNTIMED_SECONDS / max(seconds, 1e-9)))

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
            except CapturingError:  # of the user's: it is taken again in a while
                self._not_before, phase = self.budget.total + _LOOK, IDLE
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

    def _prepare(self) -> int:
        candidates = self._candidates
        if self._is_unkept:
            self._keep()
        begin = self._processor()
        self._candidate = candidates.next(self.plan, self._usual, self.budget.left, self._holder.matrix())
        if self._candidate is not None:
            candidates.took(self._processor() - begin)
        if candidates.waits:
            self._not_before = self.budget.total + _LOOK
        if candidates.ended:
            self._keep()
            return OVER
        return IDLE if self._candidate is None else FIRST

    def _check(self) -> int:
        """What comes after the first result of a candidate."""
        candidate = self._candidate
        assert candidate is not None
        wrong = self._candidates.check(candidate)
        if not wrong:
            self._duel = Duel()
            return DUEL
        self._is_out(candidate, "wrong", FAILED, wrong)
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

    def _is_slower(self, candidate: Candidate, took: float, usual: float) -> None:
        """A first run has taken so long that there is no need for more."""
        self._is_out(candidate, "slower", PRUNED, too_slow(HOPELESS), [took], [usual])

    def _covers_turn(self, candidate: Candidate) -> bool:
        """Whether a call of a duel by the candidate is paid for."""
        known = self._duel.candidate
        return self.budget.covers((median(known) if known else candidate.expected) - self._seconds())

    def _has_come(self, seconds: float, *, candidate: Candidate, turn: bool, counts: bool) -> None:
        """A call of a duel is over, by the candidate where it had the `turn`."""
        self.budget.total += seconds
        if turn:
            self.budget.spent += max(0.0, seconds - self._seconds())
        else:
            self._recent.append(seconds)
        if not counts or candidate is not self._candidate or self._phase != DUEL:
            return
        duel = self._duel
        (duel.candidate if turn else duel.incumbent).append(seconds)
        won = duel.verdict()
        if won is not None:
            self._decide(candidate, duel, won)

    def _decide(self, candidate: Candidate, duel: Duel, won: bool) -> None:
        if not won:
            self._is_out(candidate, "slower", COMPLETE, "", duel.candidate, duel.incumbent)
            return
        self._tell(candidate, "adopted", COMPLETE, "", duel.candidate, duel.incumbent)
        for key, found in candidate.needed.items():
            self._candidates.given.pattern_cache.setdefault(key, found)
        self.gain *= median(duel.incumbent) / median(duel.candidate)
        self.plan, self.program, self._is_unkept = candidate.plan, candidate.program, True
        self._recent.clear()
        self._recent.extend(duel.candidate)
        source = f"tuned online: {self.gain:.2f}x over the plan that calls began with"
        self._holder.adopt(self.plan, self.program, source, median(duel.candidate))
        self._candidate = None
        self._begin(self._keep)

    def _keep(self) -> int:
        """Put the incumbent into the database."""
        self._is_unkept = False
        self._candidates.keep(self.plan, self.gain, self.budget.spent)
        return IDLE

    def _failed(self, candidate: Candidate, failure: Exception) -> None:
        self._is_out(candidate, "failed", FAILED, f"{type(failure).__name__}: {failure}")

    def _is_out(self, candidate: Candidate, what: str, *told: Any) -> None:
        self._tell(candidate, what, *told)
        self._drop()

    def _drop(self) -> None:
        """Have no candidate any more; within a call nothing is under way then."""
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            self._holder.let_go(candidate.plan)
        if self._phase not in (OVER, _BESIDE):
            self._idle()

    def _tell(
        self,
        candidate: Candidate,
        what: str,
        state: str,
        reason: str,
        own: list[float] | None = None,
        beside: list[float] | None = None,
    ) -> None:
        """Tell of a trial: its seconds are those that it takes where the first plan takes what it took first."""
        self.tried[what] += 1
        ledger, found = self._candidates.ledger, None
        if own and beside and ledger is not None:
            usual = ledger.trials[0].seconds or 0.0
            found = Measurement.of([usual / self.gain * one / median(beside) for one in own])
        made: dict[str, Any] = {"prepare_seconds": candidate.prepare_seconds, "error": candidate.error}
        trial = Trial(-1, candidate.plan, candidate.origin, state, reason, **made)
        if found is not None:
            trial = replace(trial, seconds=found.seconds, spread=found.spread, samples=found.samples)
        self._candidates.tell(trial)
