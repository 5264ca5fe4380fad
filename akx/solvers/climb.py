"""A solve that may leave its method for a rung of the ladder: the rungs one after another, and what has worked kept."""

from __future__ import annotations

import time
from typing import Any

from akx.backends.selection import HOST
from akx.solvers.direct import doubt
from akx.solvers.ladder import MOST_PRODUCTS, Ladder
from akx.solvers.rungs import AT_ROUNDING, make_rung
from akx.solvers.solver_pair import SolverPair

__all__ = ["Climb"]

#: The method that takes what a rung has made.
_BY = {"direct": "direct", "ilu": "gmres", "spai": "gmres", "amg": "cg"}


class Climb(SolverPair):
    """What :class:`akx.solvers.auto.Auto` is made of, beside pairs of solvers.

    `rung` is what a method was left for.
    """

    ladder: Ladder | None
    rung: str
    first_guess: Any
    choosing: float
    notes: list[str]
    runs: tuple[tuple[str, int, int], ...] = ()
    total: Any
    in_steps: bool
    maxiter: Any
    is_spent: bool

    def _run(self, name: str, limit: int, pilot: Any = None, rung: tuple[str, Any] | None = None) -> int:
        raise NotImplementedError

    def _is_over(self) -> bool:
        raise NotImplementedError

    def _edit_notes(self) -> None:
        """Say whose notes are, where several methods were at work, and that an M is none of the caller's."""
        are_several = len({name for name, *_ in self.runs}) > 1
        for name, first, count in self.runs:
            for i in range(first, first + count):
                if self.ladder is not None and name not in _BY and self.notes[i].endswith("made part of the matrix"):
                    self.notes[i] = "the scaling made part of the matrix"
                self.notes[i] = f"{name}: {self.notes[i]}" if are_several else self.notes[i]

    def _climb_as_before(self) -> bool:
        """Begin with the rung that had the last word on this matrix before; whether x is good enough."""
        won = None if self.ladder is None else self.ladder.won
        return won is not None and self._climb(won[0], won[1])

    def _climb_at_once(self, family: str) -> bool:
        """Take the factors at once where they are no dearer than a few steps; whether x is good enough."""
        ladder = self.ladder
        if ladder is None or self.total is not None or self.options["backend"] != HOST or self.maxiter == 0:
            return False
        begun = time.perf_counter()
        is_first = "direct" in ladder.left and ladder.is_done_in_a_blink(family)
        self.choosing += time.perf_counter() - begun
        if is_first:
            self.notes.append(f"auto: direct first, as it takes no longer than a few steps of {family}")
        return is_first and self._climb("direct")

    def _climb_at_last(self) -> None:
        """Where no method got there, take what rungs are left and are not dearer than what was done in vain."""
        while self.ladder is not None and not self._is_over():
            costs = {rung: self.ladder.cost(rung) for rung in self.ladder.left}
            rung = min(costs, key=lambda one: costs[one], default="")
            if not rung or costs[rung] > MOST_PRODUCTS or self._climb(rung):
                break

    def _climb(self, rung: str, made: Any = None) -> bool:
        """Solve by a rung of the ladder, from the best x there is; whether x is good enough."""
        ladder, self.rung, begun = self.ladder, "", time.perf_counter()
        assert ladder is not None
        ladder.left, definite = [one for one in ladder.left if one != rung], ladder.definite
        if made is None:
            threads = self.options["threads"]
            made = make_rung(rung, self.matrix, ladder.scale, definite=definite, threads=threads)
        self.choosing += time.perf_counter() - begun
        if isinstance(made, str):
            self.notes.append(f"auto: no {rung}: {made}")
            self._forget_rungs(rung)
            return False
        self.in_steps = self.in_steps or self.total is not None
        said = self._run(_BY[rung] if definite or rung != "amg" else "gmres", 10 * self.matrix.n, rung=(rung, made))
        if said == 0:
            is_kept = ladder.keep(rung, made)
            self.notes.append(
                f"auto: solved by {rung}" + ", which the next solve with this matrix begins with" * is_kept
            )
        elif self.total.reason == AT_ROUNDING:
            self.is_spent = True
        else:
            self._forget_rungs(rung)
        return said == 0

    def _forget_rungs(self, rung: str) -> None:
        """Where A has no factors of use, have the methods go on as without a ladder: they see what is singular."""
        if rung == "direct" and self.ladder is not None:
            doubt(self.matrix)
            self.ladder.left.clear()
            self.rung, self.guess = "", self.first_guess
