"""``solve``: which method for which matrix, and classic or communication-avoiding by measuring both.

The family:

    Hermitian (real: symmetric), no diagonal entry <= 0     cg, then minres where it is not positive definite after all
    Hermitian otherwise                                     minres, then gmres, as above
    real and skew-symmetric but for a multiple of I         minres, then gmres
    complex and skew-symmetric                              gmres
    any other                                               bicgstab, then gmres

Hermitian is meant up to rounding errors (:mod:`akx.solvers.symmetry`). A method that does not get there hands its x on
to the next one: cg after its own 10 n steps, bicgstab after 10,000, or 24 where its residual does not fall, as for many
non-normal matrices. A system without a solution is tried by no other. Which of a family's solvers has the shorter step
is kept in the plan database; where it is not known it is found out on the way (:mod:`akx.solvers.pilot`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends.selection import HOST
from akx.core.matrix import Matrix
from akx.solvers.arguments import is_known_hermitian, place_of
from akx.solvers.ca_cg import MOST
from akx.solvers.direct import doubt
from akx.solvers.equilibration import equilibration
from akx.solvers.few_rows import MOST_ROWS, solve_by_least_squares
from akx.solvers.ladder import MOST_PRODUCTS, Both, Call, Ladder, Progress
from akx.solvers.monitor import Watch, Watched
from akx.solvers.pilot import Pilot
from akx.solvers.rungs import make_rung, solve_by_factors
from akx.solvers.solver_pair import Settled, SolverPair, call_solver, check_special, shorter
from akx.solvers.stats import AT_ROUNDING, BOUND, NO_SOLUTION, Notice, SolveStats
from akx.solvers.symmetry import is_hermitian, skew_shift

__all__ = ["Auto", "families_for"]

#: In the cache of a matrix, what :func:`families_for` has found.
_FAMILIES = "akx.solvers.families"
#: Steps without an answer after which bicgstab gives way to gmres, where there is no `maxiter`.
_PATIENCE = 10_000
#: The method that takes what a rung has made.
_BY = {"direct": "direct", "ilu": "gmres", "spai": "gmres", "amg": "cg"}
#: Letters of a note beyond which it gives no reasons for what was tried first.
_LONG = 130


class Auto(SolverPair):
    """One solve by what suits the matrix: methods one after another, their work in one record, the best x so far."""

    def __init__(
        self,
        A: Any,
        b: Any,
        x0: Any,
        options: dict[str, Any],
        special: dict[str, Any],
        callback: Callable[[Any], object] | None,
        settled: Settled | None = None,
        call: Call | None = None,
    ) -> None:
        self.begun = time.perf_counter()
        asked = {name: options[name] for name in ("rtol", "atol", "M", "threads", "backend")}
        matrix, backend = place_of(A, b, x0, callback=callback, **asked)
        settled = {} if settled is None else settled
        super().__init__(matrix, b, x0, {**options, "backend": backend}, special, settled)
        self.callback, self.maxiter = callback, options["maxiter"]
        self.x: Any = None
        self.info, self.least, self.choosing = 1, float("inf"), 0.0
        self.runs: list[tuple[str, str, str]] = []  # a method, its steps, and why it was left
        self.by = self.word = self.scaled = ""  # whose x it is, why that method; what A was scaled by
        self.told: list[str] = []  # of the one whose x it is
        self.total: SolveStats | None = None
        self.in_steps = self.maxiter is not None  # a limit is one of steps, of gmres too
        self.has_no_solution = self.is_spent = False
        self.rung, self.scale = "", None  # what a method was left for, and the diagonal that scales both sides
        self.ladder = self._ladder(call) if self._equilibrate() else None
        self.first_guess = self.guess

    def _equilibrate(self) -> bool:
        """Where rows differ in size, scale by a diagonal; whether that is left to us, as the caller has no M."""
        if self.options["M"] is not None:
            return False
        found = equilibration(self.matrix, hermitian=is_hermitian(self.matrix))
        if found is not None:
            self.options["M"], said = found
            self.scale = found[0].diagonal.real ** -0.5 if found[0].side == "symmetric" else None
            self.guess = self.b if isinstance(self.guess, str) else self.guess  # his M b is b
            self.scaled = f"; {said}"
        return True

    def _ladder(self, call: Call | None) -> Ladder:
        """The rungs for this matrix."""
        return Ladder(self.matrix, definite=families_for(self.matrix)[0][0] == "cg", scale=self.scale, call=call)

    def solve(self) -> tuple[Any, int, SolveStats]:
        """x, info, and the record of all methods."""
        families, why = self.families()
        check_special(self.special, most=MOST if "minres" in families else None)  # not when it is their turn
        self.choosing = time.perf_counter() - self.begun
        is_done = self._climb_as_before() or self._climb_at_once(families[0])
        self.others = {"bicgstab": "gmres", "gmres": "bicgstab"} if families == ["bicgstab", "gmres"] else {}
        for family in (in_turn := [*families]):
            self.rung = ""
            if is_done or (self.total is not None and self._is_over()):
                break
            if self.total is not None:
                self.in_steps = True
            limit = min(10 * self.matrix.n, _PATIENCE if family == "bicgstab" else 10 * self.matrix.n)
            is_done = self._family(family, limit)
            if self.rung == "bicgstab":  # gmres does no better
                in_turn += families
            while self.rung and self.rung not in families and not (is_done or self._is_over()):
                is_done = self._climb(self.rung)
                if not (is_done or self.rung or self._is_over()):
                    is_done = self._family(family, limit)
        if not is_done and not self._is_over():
            self._climb_at_last()
        total = self.total
        assert total is not None
        if self.has_no_solution:
            self.info = NO_SOLUTION
        elif self.info > 0:
            self.info = max(1, total.iterations)
        total.residual = self.least
        total.notes = ["; ".join((why + self.scaled, *getattr(self.options["M"], "notes", ()))), *self._said()]
        total.seconds |= {"choose": self.choosing, "total": time.perf_counter() - self.begun}
        return self.x, self.info, total

    def _said(self) -> list[str]:
        """What was tried, how it ended and what comes next; and what the method whose x it is has to say of it."""
        assert self.total is not None
        runs, reason, texts = self.runs, self.total.reason, list[str]()
        for name, steps, why in runs:
            is_told = not why or (why == reason and len(texts) == len(runs) - 1)  # in the end
            texts.append(name + steps if is_told else f"{name}{steps} ({_short(why)})")
        for i in sorted(range(len(runs) - 1), key=lambda i: not runs[i][1]):  # the last count most
            if len("; ".join(filter(None, texts))) > _LONG:
                texts[i] = runs[i][0] + runs[i][1] if runs[i][1] else ""  # which without a reason says nothing
        ended = [f"solved by {self.by}{self.word}"]
        if self.has_no_solution:
            ended = [", ".join(("not solved: A is singular", *self.told[:1]))]
        elif self.info != 0:
            ended = [f"not solved: {reason}", *[f"x is that of {self.by}"] * (self.by != runs[-1][0])]
        return ["; ".join(filter(None, texts)), "; ".join(ended + self.told[self.has_no_solution :])]

    def families(self) -> tuple[list[str], str]:
        """The families to try, best first, and why."""
        families, why = families_for(self.matrix)
        M = self.options["M"]
        if M is not None and not is_hermitian(self.matrix) and (shift := skew_shift(self.matrix)) is not None:
            if shift or not is_known_hermitian(M):
                why = "A is not known to be skew-symmetric with this M"
                return ["bicgstab", "gmres"] if shift else ["gmres"], why
        elif "minres" in families and getattr(M, "hermitian", True) is False:
            return ["bicgstab", "gmres"], "A is Hermitian, but M is not"
        return families, why

    def _family(self, family: str, limit: int) -> bool:
        """The solver of a family with the shorter step, or both in turn; whether x is good enough."""
        begun = time.perf_counter()
        counterpart = f"ca_{family}"
        name, word, key = self.solver_of(family)
        self.choosing += time.perf_counter() - begun
        self.word = f", {word}"
        if key is None:
            return self._run(name, limit) == 0
        before = 0 if self.total is None else self.total.iterations
        pilot = self._pilot(family, limit if self.maxiter is None else self._left(), self.begun)
        said = self._run(family, limit, pilot)
        self.choosing += pilot.spent
        if pilot.counterpart is None:
            return said == 0
        assert pilot.classic is not None
        found = pilot.classic, pilot.counterpart
        if self.refused:
            why = f"as there was no room for {counterpart}"
            self.word = f", {why}"
            self.settled[self._use_of(family)] = family, why, None
            self.refused = False
            return said == 0
        self._keep(family, found)
        name, word = shorter(family, found)
        self.settled[self._use_of(family)] = name, word, None
        self.word = f"; {name} is for the next solve" * (name != family and not pilot.handed_over) + f", {word}"
        if said == 0 or not pilot.handed_over or self._is_over():
            return said == 0
        assert self.total is not None
        done = 0 if family == "gmres" and not self.in_steps else self.total.iterations - before
        return self._run(counterpart, max(1, limit - done)) == 0

    def _run(self, name: str, limit: int, pilot: Pilot | None = None, rung: tuple[str, Any] | None = None) -> int:
        """A solver from the best x there is, its work added to that of the ones before; its info.

        By a rung of the ladder that is a preconditioner, or the factors.
        """
        options = {**self.options, "maxiter": limit if self.maxiter is None else self._left()}
        watch: Watch | None = pilot
        progress = None
        if self.ladder is not None:
            most = (
                MOST_PRODUCTS - (0 if self.total is None else self.total.products) if self.maxiter is None else np.inf
            )
            other = "" if rung else self.others.pop(name.removeprefix("ca_"), "")
            progress = Progress(self.ladder, name, most, M=rung[0] if rung else "", other=other)
            watch = progress if pilot is None else Both(progress, pilot)
        say = self.callback if watch is None else Watched(self.callback, watch)
        if name == "lstsq":
            x, said, stats = solve_by_least_squares(self.matrix, self.b, options, self.callback)
        elif rung is not None and rung[0] == "direct":
            x, said, stats = solve_by_factors(rung[1], self.matrix, self.b, self.guess, options, self.callback)
        else:
            options |= {"M": rung[1]} if rung else {}
            given = name, self.matrix, self.b, self.guess
            x, said, stats = call_solver(*given, options, self.special, say, in_steps=self.in_steps)
            self.note_use(name)
        label, steps, why = rung[0] if rung else name, stats.iterations, ""
        told: list[str] = [note for note in stats.notes if isinstance(note, Notice)] if stats.notes else []
        stats.notes = []
        total = self.total = stats.after(self.total)
        self.info = said  # as method and reason: of the last, whosever x it is
        if said == 0 or stats.residual < self.least or self.x is None:
            self.x, self.least, self.by, self.told = x, stats.residual, label, told
            self.guess = x if stats.residual <= (total.residuals or [0.0])[0] else self.guess
        self.has_no_solution = said == NO_SOLUTION
        if self.has_no_solution:
            self.told = [note for note in told if note.startswith(BOUND)]
        if said != 0 and progress is not None and (progress.rung or progress.is_spent):
            self.rung, self.is_spent, why = progress.rung, progress.is_spent, progress.why
            if self.is_spent:
                stats.reason = why
        elif said != 0 and not (pilot is not None and pilot.handed_over):
            why = stats.reason
        self.runs.append((label, f" {steps} step{'s' * (steps != 1)}" * bool(steps or label != "direct"), why))
        return said

    def _climb_as_before(self) -> bool:
        """Begin with the rung that had the last word on this matrix before; whether x is good enough."""
        won = None if self.ladder is None else self.ladder.won
        return won is not None and self._climb(*won, why=", as before")

    def _climb_at_once(self, family: str) -> bool:
        """Take the factors at once where they are no dearer than a few steps; whether x is good enough."""
        ladder = self.ladder
        if ladder is None or self.total is not None or self.options["backend"] != HOST or self.maxiter == 0:
            return False
        begun = time.perf_counter()
        is_first = "direct" in ladder.left and ladder.is_done_in_a_blink(family)
        self.choosing += time.perf_counter() - begun
        return is_first and self._climb("direct", why=f", no dearer than a few steps of {family}")

    def _climb_at_last(self) -> None:
        """Where no method got there, take what rungs are left and not too dear, and least squares for few rows."""
        while self.ladder is not None and not self._is_over():
            costs = {rung: self.ladder.cost(rung) for rung in self.ladder.left}
            rung = min(costs, key=lambda one: costs[one], default="")
            if not rung or costs[rung] > MOST_PRODUCTS:
                break
            if self._climb(rung):
                return
        if self.ladder is not None and self.matrix.n <= MOST_ROWS and not self._is_over():
            self.word = ""
            self._run("lstsq", 1)

    def _climb(self, rung: str, made: Any = None, why: str = "") -> bool:
        """Solve by a rung of the ladder, from the best x there is; whether x is good enough. `why` is for a note."""
        ladder, self.rung, begun = self.ladder, "", time.perf_counter()
        assert ladder is not None
        ladder.left, definite = [one for one in ladder.left if one != rung], ladder.definite
        if made is None:
            threads = self.options["threads"]
            made = make_rung(rung, self.matrix, ladder.scale, definite=definite, threads=threads)
        self.choosing += time.perf_counter() - begun
        if isinstance(made, str):
            self.runs.append((f"no {rung}", "", made))
            self._forget_rungs(rung)
            return False
        self.in_steps = self.in_steps or self.total is not None
        said = self._run(_BY[rung] if definite or rung != "amg" else "gmres", 10 * self.matrix.n, rung=(rung, made))
        if said == 0:
            self.word = why + "; kept for the next solve with this matrix" * ladder.keep(rung, made)
        elif self.runs[-1][-1] == AT_ROUNDING:
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

    def _left(self) -> int:
        """Steps of `maxiter` that are left."""
        return max(0, int(self.maxiter) - (0 if self.total is None else self.total.iterations))

    def _is_over(self) -> bool:
        return self.has_no_solution or self.is_spent or (self.maxiter is not None and self._left() == 0)


def _short(reason: str) -> str:
    """Without figures: "breakdown: the matrix is not positive definite, <p, A p> = -1.2e+04"."""
    return reason.removeprefix("breakdown: ").partition(", <")[0]


def families_for(matrix: Matrix) -> tuple[list[str], str]:
    """The families to try, best first, and why: by the symmetry and the diagonal of the matrix."""
    if _FAMILIES not in matrix.cache:
        matrix.cache[_FAMILIES] = _families_for(matrix)
    found: tuple[list[str], str] = matrix.cache[_FAMILIES]
    return found


def _families_for(matrix: Matrix) -> tuple[list[str], str]:
    diagonal = matrix.diagonal()
    if is_hermitian(matrix):
        if diagonal.real.min() > 0:
            return ["cg", "minres", "gmres"], "A is Hermitian with a positive diagonal"
        return ["minres", "gmres"], "A is Hermitian, but not positive definite"
    if (shift := skew_shift(matrix)) is not None:
        return ["minres", "gmres"], "A is skew-symmetric" + " but for a multiple of I" * bool(shift)
    if not diagonal.any() and matrix.features.value_symmetry == "skew":  # features are dear
        return ["gmres"], "A is complex and skew-symmetric"
    return ["bicgstab", "gmres"], "A is not Hermitian"
