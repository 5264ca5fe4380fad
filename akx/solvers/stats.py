"""What a solver did: residuals, products, passes over the matrix, time by phase, and why it stopped."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["AT_ROUNDING", "BOUND", "NO_SOLUTION", "Notice", "SolveStats"]

#: The `info` of a system that has no solution, and how a note begins that says what is proved.
NO_SOLUTION = -2
BOUND = "no x has a residual below"
#: Why a solve has ended whose x is as good as it can be.
AT_ROUNDING = "stagnation: the residual is as small as rounding errors allow"

#: Notes of a kind that comes again and again, before the rest of them is counted.
_TOLD = 4


class Notice(str):
    """A note that a user is to see where methods are tried in turn, too, if the x returned is that of its solve."""

    __slots__ = ()


@dataclass
class SolveStats:
    """The record of one solve; with ``return_stats=True`` the third value that a solver returns.

    Attributes
    ----------
    method, reason : str
        The solver's name; and why it stopped, in words.
    converged : bool
        Whether the true residual ||b - A x|| met the tolerance when it was computed at the end.
    iterations : int
        Steps of the method, in the sense of its classic form: one product of cg, gmres; two products of bicgstab.
    residuals : list of float
        Norms of the residual, first that of x0: after each step where the method knows it cheaply (estimates, by the
        recurrence), the last entry being the true one.
    residual, target : float
        The true residual's norm at the end, and what it was to be: max(rtol ||b||, atol).
    products : int
        Products of A with a vector, those of a preconditioner of akx included; what any other M does is not known.
    matrix_passes : int
        Times that the matrix was read from slow memory, with s powers of any number of vectors as one, and so a
        polynomial as preconditioner: equal to `products` for classic solvers without one.
    seconds : dict of str to float
        Wall time by phase: ``"matrix"``, ``"orthogonalize"``, ``"vectors"``, ``"small"``, ``"precondition"``,
        ``"setup"``, ``"device"`` and ``"total"``, and of :func:`akx.solvers.solve` ``"choose"``. On a GPU work is
        queued: ``"device"`` is the wait for whole steps that were queued ahead.
    s : list of int
        Steps per basis, one entry for each basis that was made; empty for classic solvers.
    basis : str
        Kind of the polynomial basis, empty for classic solvers.
    notes : list of str
        What happened on the way: a basis too ill-conditioned, s lowered or raised, residuals replaced, restarts. Of
        :func:`akx.solvers.solve` without a method's name what A is, what was tried, and how it ended.
    columns : list of SolveStats
        Of several right-hand sides the record of each; empty for a single one. Those above are then sums of the work of
        all, where a pass that several share counts once, the most `iterations` of a column, and what became of the
        worst: what `info` says. In lockstep ``"total"`` of a column is from its beginning to its end, with the others'
        work.
    """

    method: str = ""
    converged: bool = False
    reason: str = ""
    iterations: int = 0
    residuals: list[float] = field(default_factory=list)
    residual: float = float("nan")
    target: float = 0.0
    products: int = 0
    matrix_passes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    s: list[int] = field(default_factory=list)
    basis: str = ""
    notes: list[str] = field(default_factory=list)
    columns: list[SolveStats] = field(default_factory=list)

    def phase(self, name: str) -> _Phase:
        """Add the time of a block to a phase. Phases do not nest."""
        return _Phase(self.seconds, name)

    def add(self, name: str, begin: float) -> float:
        """Add the time since `begin` to a phase, and return what the clock says now: for each part of a step."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - begin
        return now

    def note_first(self, text: str, *, joined: bool) -> None:
        """Add a note before all others; or `joined` to the first, as to those of ``"auto"``, which are three lines."""
        if joined and self.notes:
            self.notes[0] += f"; {text}"
        else:
            self.notes.insert(0, text)

    def note_often(self, text: str, what: str, *marks: str) -> None:
        """Add a note of a kind that has one of `marks`; from the fifth on they are counted, as `what` so many times."""
        for i, note in enumerate(self.notes):
            if found := re.fullmatch(rf"{what} (\d+) more times?", note):
                self.notes[i] = f"{what} {int(found[1]) + 1} more times"
                return
        is_told = sum(any(mark in note for mark in marks) for note in self.notes) >= _TOLD
        self.notes.append(f"{what} 1 more time" if is_told else text)

    def after(self, before: SolveStats | None, *, first: int = 1) -> SolveStats:
        """This record with the work of the solve before it, whose last residuals are the `first` ones of this."""
        if before is not None:
            self.residuals = before.residuals + self.residuals[first:]
            self.iterations += before.iterations
            self.products += before.products
            self.matrix_passes += before.matrix_passes
            self.s, self.notes = before.s + self.s, before.notes + self.notes
            self.basis = self.basis or before.basis
            for phase, seconds in before.seconds.items():
                self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        return self

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        found = asdict(self)
        columns = found.pop("columns")
        return found | {"residuals": found.pop("residuals")} | ({"columns": columns} if columns else {})


class _Phase:
    """The time of a ``with`` block, added to that of a phase. A class costs a third of a generator."""

    __slots__ = ("_begin", "_name", "_seconds")

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.perf_counter() - self._begin
