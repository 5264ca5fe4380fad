"""``tune="online"``: calls that a user makes anyway are the trials of a search.

:class:`Online` stands in the place of the program of a plan. Calls run on the incumbent: the plan of the database, else
the predicted one. Beside them a thread prepares a candidate (:mod:`akx.tuner.candidates`), one step at a time; then

1. first run    behind a call of the user's, on vectors of akx's own. One that takes twice as long is dropped
2. check        the result is compared with the reference by the bound of all trials, beside the calls that follow: a
                candidate that is wrong never computes what a user gets
3. duel         it takes every other call in place of the incumbent, until one of them is the faster

What each of these costs comes from a budget, a share of the seconds of calls, and what is to be the plan in the end is
decided as by :mod:`akx.tuner.bandit`. A step of the thread costs the processor time that it took, or what calls beside
it took longer where that is more; a first run all of its time; a call of a duel what it takes longer than calls on the
incumbent. Code that has to be compiled is compiled in a process that stands back behind all others.

No thread lives longer than a step. What is under way when the interpreter ends is waited for, for a moment; a forked
child goes on with the plan that it has, and explores nothing.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import NDArray

from akx.errors import shown
from akx.kernels.base import Coefficients, Program
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner import measure
from akx.tuner.bandit import SHARE, Budget, Duel
from akx.tuner.candidates import REUSED, Candidate, Candidates
from akx.tuner.measure import Measurement, median
from akx.tuner.result import COMPLETE, FAILED, PRUNED, Trial
from akx.tuner.worker import too_slow

__all__ = ["Holder", "Online"]

#: A candidate whose first run takes so many times as long as a call is dropped.
_HOPELESS = 2.0
#: A first run shorter than this, in seconds, is made again where it was slow: data and code were not in cache yet.
_ONCE_SECONDS = 50e-3
#: Calls on the incumbent that say what one takes: the last ones, and so many at least.
_RECENT, _FEWEST = 31, 3
#: Seconds of calls between two looks at whether code is compiled.
_LOOK = 0.25
#: Seconds of starting a thread.
_THREAD = 1e-4
#: Seconds for which a step is waited for where the interpreter ends.
_PATIENCE = 2.0
#: What comes next: a step may begin; one is under way; a first run; a duel; nothing more.
_IDLE, _BESIDE, _FIRST, _DUEL, _OVER = range(5)


class Holder(Protocol):
    """Who has the programs, and gives all of them new values."""

    def matrix(self) -> Matrix:
        """The matrix of now."""
        ...

    def hold(self, plan: Plan, program: Program) -> None:
        """Have a candidate, which gets new values from now on."""
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


def _in_thread(step: Callable[[], None]) -> None:
    thread = threading.Thread(target=step, name="akx-online", daemon=True)
    _STEPS.add(thread)
    thread.start()


class Online(Program):
    """The program of the best plan so far, and a search for a better one. For one call at a time.

    Parameters
    ----------
    candidates : Candidates
    holder : Holder
    share : float
        Of the seconds of calls that exploring may cost.
    beside : callable, optional
        Does a step beside the calls: in a thread by default.

    Attributes
    ----------
    plan, program
        The incumbent.
    budget : Budget
    tried : dict of str to int
        Candidates by what became of them.
    """

    def __init__(
        self,
        candidates: Candidates,
        holder: Holder,
        plan: Plan,
        program: Program,
        *,
        share: float = SHARE,
        beside: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        self.plan, self.program, self.budget = plan, program, Budget(share)
        self.tried = dict.fromkeys(("adopted", "slower", "wrong", "failed"), 0)
        self.beside_seconds, self.gain = 0.0, 1.0
        self._candidates, self._holder, self._do_beside = candidates, holder, beside
        self._phase, self._next = _IDLE, candidates.price
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._usual, self._lost, self._steps, self._not_before = 0.0, 0.0, 0, 0.0
        self._idle()
        self._candidate: Candidate | None = None
        self._duel = Duel()
        self._is_unkept = False
        is_real = measure.is_real_time()
        self._now = time.perf_counter if is_real else measure.now
        self._processor = time.thread_time if is_real else measure.now
        _ALL.add(self)
        weakref.finalize(self, candidates.end_processes)  # where calls end before the search does

    # ------------------------------------------------------------------------------------------------ as a program

    @property
    def nbytes(self) -> int:
        """Bytes of what results are compared with: programs are counted where they are held."""
        return self._candidates.nbytes

    def update_values(self, data: NDArray[Any]) -> None:
        """Whoever holds the programs gives them new values."""

    def ready(self, vectors: int) -> None:
        """See :meth:`akx.kernels.base.Program.ready`."""
        self.program.ready(vectors)

    def new_result(self, vectors: int) -> NDArray[Any] | None:
        """See :meth:`akx.kernels.base.Program.new_result`."""
        return self.program.new_result(vectors)

    def is_own_result(self, out: NDArray[Any]) -> bool:
        """See :meth:`akx.kernels.base.Program.is_own_result`."""
        return self.program.is_own_result(out)

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        """See :meth:`akx.kernels.base.Program.run`; what is due behind a call is done then."""
        if self._phase == _DUEL:
            self._run_in_duel(x, out, coefficients)
            return
        begin = self._now()
        self.program.run(x, out, coefficients)
        seconds = self._now() - begin
        budget = self.budget
        budget.total += seconds
        self._recent.append(seconds)
        if budget.total >= self._due:
            self._behind(seconds)

    def _behind(self, seconds: float) -> None:
        """What is due behind a call that took so long."""
        phase = self._phase
        if phase == _BESIDE:
            self._recent.pop()
            self._lost += seconds - self._usual
        elif phase == _IDLE:
            if self.budget.covers(self._next) and len(self._recent) >= _FEWEST:
                self._begin(self._prepare)
        elif phase == _FIRST:
            self._run_first()
        elif phase == _OVER:
            self._holder.settled()

    def _idle(self) -> int:
        """Nothing is under way until calls have paid for the next step."""
        budget = self.budget
        self._due = max(self._not_before, (budget.spent + self._next) / budget.share)
        self._phase = _IDLE
        return _IDLE

    # ------------------------------------------------------------------------------------------------ from outside

    @property
    def is_over(self) -> bool:
        """Whether nothing more is tried."""
        return self._phase == _OVER

    @property
    def candidate_plan(self) -> Plan | None:
        """The plan of the candidate that gets new values, where there is one."""
        candidate = self._candidate
        return candidate.plan if candidate is not None and candidate.is_held else None

    def on(self, plan: Plan, program: Program, is_held: Callable[[Plan, Program], bool]) -> Online:
        """The same with this incumbent; without a candidate that the holder has not got any more."""
        if plan != self.plan:
            self._candidates.ended = self._candidates.ended or "calls have got another plan"
            self.end()
        self.plan, self.program = plan, program
        candidate = self._candidate
        if candidate is not None and candidate.is_held and not is_held(candidate.plan, candidate.program):
            candidate.is_lost = True
        return self

    def end(self) -> None:
        """Try nothing more."""
        self._due, self._phase, self._candidate = 0.0, _OVER, None
        self._candidates.close()

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
            f"{budget.spent:.3g} s of {budget.total:.3g} s of calls ({share:.1%}, at most {budget.share:.0%}), "
            f"{self.beside_seconds:.3g} s of them beside calls; {state}",
            600,
        )

    # ------------------------------------------------------------------------------------------------ beside calls

    def _begin(self, work: Callable[[], int]) -> None:
        """Do a step beside the calls that follow; it says what comes after it."""
        self._usual, self._lost = self._seconds(), 0.0
        self._due, self._phase = 0.0, _BESIDE

        def step() -> None:
            begin, phase = self._processor(), _OVER
            try:
                phase = work()
            except Exception as failure:  # of whatever kind: calls have their plan
                self._candidates.ended = self._candidates.ended or f"a step failed: {failure}"
            took = max(self._processor() - begin + _THREAD, self._lost)
            self.budget.spent += took
            self.beside_seconds += took
            self._steps += 1
            self._next = self._candidates.price
            if self._phase == _OVER or phase == _OVER:
                self.end()
            elif phase == _IDLE:
                self._idle()
            else:
                self._phase = phase

        try:
            self._do_beside(step)
        except RuntimeError:  # there is no thread to be had, as where the interpreter ends
            self.end()

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
            return _OVER
        return _IDLE if self._candidate is None else _FIRST

    def _check(self) -> int:
        candidate = self._candidate
        assert candidate is not None
        wrong = self._candidates.check(candidate)
        if not wrong:
            self._duel = Duel()
            return _DUEL
        self.tried["wrong"] += 1
        self._tell(candidate, FAILED, wrong)
        self._forget()
        return _IDLE

    # ------------------------------------------------------------------------------------------------ within calls

    def _seconds(self) -> float:
        """Seconds of a call on the incumbent, by the last ones."""
        return median(self._recent) if self._recent else self._usual

    def _run_first(self) -> None:
        """Run a candidate on vectors of akx's own, where there is the time."""
        candidate, budget, usual = self._candidate, self.budget, self._seconds()
        assert candidate is not None
        if not budget.covers(candidate.expected):
            return
        if (
            self._holder.matrix() is not self._candidates.given
        ):  # it has values of before, and so has what must come out
            self._candidates.put_back(candidate)
            self._candidate = None
            self._idle()
            return
        self._holder.hold(candidate.plan, candidate.program)
        candidate.is_held = True
        problem, took = candidate.problem, float("inf")
        try:
            for turn in range(3):
                begin = self._now()
                candidate.program.run(problem.x, problem.out, problem.coefficients)
                seconds = self._now() - begin
                budget.spent += seconds
                took = min(took, seconds)
                if took <= _HOPELESS * usual or seconds > _ONCE_SECONDS or (turn > 0 and not budget.covers(seconds)):
                    break
        except Exception as failure:
            self._failed(candidate, failure)
            return
        candidate.expected = took
        if took > _HOPELESS * usual:
            self.tried["slower"] += 1
            self._tell(candidate, PRUNED, too_slow(_HOPELESS), [took], [usual])
            self._drop()
        else:
            self._begin(self._check)

    def _run_in_duel(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        candidate, duel, budget = self._candidate, self._duel, self.budget
        if candidate is None or candidate.is_lost:  # new values did not come to all programs
            self._drop()
            self.run(x, out, coefficients)
            return
        turn, excess = duel.is_candidates_turn, 0.0
        if turn:
            usual = self._seconds()
            excess = (median(duel.candidate) if duel.candidate else candidate.expected) - usual
        if turn and budget.covers(excess):
            begin = self._now()
            try:
                candidate.program.run(x, out, coefficients)
            except Exception as failure:
                budget.spent += self._now() - begin
                self._failed(candidate, failure)
                self.program.run(x, out, coefficients)
                return
            seconds = self._now() - begin
            duel.candidate.append(seconds)
            budget.spent += max(0.0, seconds - usual)
        else:
            begin = self._now()
            self.program.run(x, out, coefficients)
            seconds = self._now() - begin
            self._recent.append(seconds)
            if not turn:
                duel.incumbent.append(seconds)
        budget.total += seconds
        won = duel.verdict()
        if won is not None:
            self._decide(candidate, duel, won)

    def _decide(self, candidate: Candidate, duel: Duel, won: bool) -> None:
        self.tried["adopted" if won else "slower"] += 1
        self._tell(candidate, COMPLETE, "", duel.candidate, duel.incumbent)
        if not won:
            self._drop()
            return
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
        return _IDLE

    def _failed(self, candidate: Candidate, failure: Exception) -> None:
        self.tried["failed"] += 1
        self._tell(candidate, FAILED, f"{type(failure).__name__}: {failure}")
        self._drop()

    def _drop(self) -> None:
        """Have no candidate any more, within a call."""
        self._forget()
        if self._phase != _OVER:
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


#: All that there are, for forked children; steps under way.
_ALL: weakref.WeakSet[Online] = weakref.WeakSet()
_STEPS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def _stop() -> None:
    """At the end of the interpreter: begin nothing more, and wait a moment for what is under way."""
    deadline = time.monotonic() + _PATIENCE
    for one in list(_ALL):
        one._due, one._phase = 0.0, _OVER
    for thread in list(_STEPS):
        thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in _STEPS):
        for one in list(_ALL):
            one.end()


def _in_child() -> None:
    """In a forked child, which has none of the threads."""
    for one in list(_ALL):
        one._due, one._phase, one._candidate = 0.0, _OVER, None


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
