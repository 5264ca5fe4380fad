"""``tune="online"``: calls that a user makes anyway are the trials of a search.

:class:`Online` stands in the place of the program of a plan. Calls run on the incumbent: the plan of the database, else
the predicted one. Beside them a thread prepares a candidate (:mod:`akx.tuner.online.candidates`), one step at a time;
then

1. first run    behind a call of the user's, on vectors of akx's own. One that takes half as long again is dropped
2. check        the result is compared with the reference by the bound of all trials, beside the calls that follow: a
                candidate that is wrong never computes what a user gets
3. duel         it takes every other call in place of the incumbent, until one of them is the faster

What each of these costs comes from a budget of seconds of calls (:mod:`akx.tuner.online.bandit`): of a step of the
thread the processor time that it took, without any help; all of a first run; of a call of a duel what it takes longer
than calls on the incumbent. Code is compiled in a process that stands back behind all others.

While nothing but the incumbent is at work, calls are timed only now and then, each for those that were not timed before
it. Calls that are queued on a GPU are another class (:mod:`akx.tuner.online.gpu_calls`).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from akx.backends.schedule import Coefficients, Program
from akx.tuner.online.exploration import DUEL, HOPELESS, Exploration

__all__ = ["Online"]

#: A first run shorter than this, in seconds, is made again where it was slow: data and code were not in cache yet.
_ONCE_SECONDS = 50e-3


class Online(Exploration, Program):
    """The program of the best plan so far, for calls that are over when they return."""

    @property
    def nbytes(self) -> int:
        """Bytes of what results are compared with: programs are counted where they are held."""
        return self._candidates.nbytes

    def update_values(self, data: NDArray[Any]) -> None:
        """Whoever holds the programs gives them new values."""

    def ready(self, vectors: int) -> None:
        self.program.ready(vectors)

    def new_result(self, vectors: int) -> NDArray[Any] | None:
        return self.program.new_result(vectors)

    def is_own_result(self, out: NDArray[Any]) -> bool:
        return self.program.is_own_result(out)

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        """Do a call, and what is due behind it."""
        self.untimed += 1
        if self.untimed < self.every:
            self.program.run(x, out, coefficients)
            return
        if self._phase == DUEL:
            self._run_in_duel(x, out, coefficients)
            return
        begin = self._now()
        self.program.run(x, out, coefficients)
        end = self._now()
        since, self._last = end - self._last, end
        self._took(end - begin, self._counted(), since)

    # ------------------------------------------------------------------------------------------------ trials

    def _run_first(self) -> None:
        """Run a candidate on vectors of akx's own, where there is the time."""
        candidate, budget, usual = self._candidate, self.budget, self._seconds()
        assert candidate is not None
        if not budget.covers(candidate.expected):
            return
        if not self._is_held(candidate):
            self._idle()
            return
        problem, took = candidate.problem, float("inf")
        try:
            for turn in range(3):
                begin = self._now()
                candidate.program.run(problem.x, problem.out, problem.coefficients)
                seconds = self._now() - begin
                budget.spent += seconds
                took = min(took, seconds)
                if took <= HOPELESS * usual or seconds > _ONCE_SECONDS or (turn > 0 and not budget.covers(seconds)):
                    break
        except Exception as failure:
            self._failed(candidate, failure)
            return
        candidate.expected = took
        if took > HOPELESS * usual:
            self._is_slower(candidate, took, usual)
        else:
            self._begin(self._check)

    def _run_in_duel(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        candidate = self._candidate
        if candidate is None or candidate.is_lost:  # new values did not come to all programs
            self._drop()
            self.run(x, out, coefficients)
            return
        turn = self._duel.is_candidates_turn
        is_paid = turn and self._covers_turn(candidate)
        begin = self._now()
        if is_paid:
            try:
                candidate.program.run(x, out, coefficients)
            except Exception as failure:
                self.budget.spent += self._now() - begin
                self._failed(candidate, failure)
                self.program.run(x, out, coefficients)
                return
        else:
            self.program.run(x, out, coefficients)
        self.untimed, self._last = 0, self._now()
        self._has_come(self._last - begin, candidate=candidate, turn=is_paid, counts=is_paid is turn)
