"""First runs beside calls: on vectors of akx's own, with what must come out; in another process if they may crash."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from akx.backends.base import TrialVectors
from akx.backends.schedule import Program, Schedule
from akx.backends.selection import backend_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.sandbox import Sandbox, available_bytes
from akx.tuner.trial.problem import Problem

__all__ = ["Asked", "Candidate", "FirstRuns", "knowing"]

#: Of the free memory that a candidate may take with what results are compared with.
_FREE = 0.5


class Asked(dict[Any, Any]):
    """What was asked for of all that is known of a pattern, and what is new."""

    def __init__(self, known: dict[Any, Any]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, key: Any) -> Any:
        found = self[key] = self._known[key]
        return found

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key) and key in self._known:
            self[key] = self._known[key]
        return super().__contains__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key, default) if key in self else default

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return super().setdefault(key, self.get(key, default))


def knowing(matrix: Matrix, known: dict[Any, Any]) -> Matrix:
    """The same matrix, with this known of its pattern."""
    found = object.__new__(type(matrix))
    vars(found).update(vars(matrix), pattern_cache=known)
    return found


@dataclass(eq=False)
class Candidate:
    """A plan that is to be tried, who asked for it, its program, and the problem on which that runs first.

    `expected` seconds are those that a call is thought to take; `error` is that of its first result over the bound. One
    that `is_held` gets new values, one that `is_lost` has missed some. Of what is known of the pattern it has `needed`
    this.
    """

    plan: Plan
    origin: str
    program: Program
    problem: Problem
    expected: float
    prepare_seconds: float
    error: float = math.nan
    is_held: bool = False
    is_lost: bool = False
    needed: Mapping[Any, Any] = field(default_factory=dict)


class FirstRuns:
    """What the first runs of all candidates for one kind of call need, for the values of now."""

    def __init__(self, matrix: Matrix, k: int, basis: str, start_vectors: int, backend: str) -> None:
        self._matrix, self._k, self._basis, self._vectors = matrix.with_value_error(0.0), k, basis, start_vectors
        self._backend = backend_of(backend)
        self._sandbox: Sandbox | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known what must come out."""
        return "problem" in vars(self)

    @cached_property
    def problem(self) -> Problem:
        """The call, and what must come out: found out when it is first asked for."""
        return Problem(self._matrix, self._k, basis=self._basis, start_vectors=self._vectors)

    @cached_property
    def vectors(self) -> TrialVectors:
        """Those of the call, where the backend has them."""
        return self._backend.trial_vectors(self.problem)

    @property
    def nbytes(self) -> int:
        """Bytes of what results are compared with: twice in double precision beside the output."""
        return self.problem.x.nbytes + 3 * self.problem.out.nbytes if self.is_known else 0

    def lack_memory(self) -> bool:
        """Whether a candidate, and what results are compared with, might take what others need."""
        matrix, backend = self._matrix, self._backend
        vectors = (self._k + 2) * self._vectors * matrix.n * matrix.dtype.itemsize
        held, free = matrix.nbytes, backend.free_bytes() if backend.has_own_memory else 0
        return 3 * (held + vectors) > _FREE * available_bytes() or 0 < _FREE * free < 2 * held + vectors

    def reason_to_fear(self, plan: Plan, schedule: Schedule) -> str | None:
        """Why a plan must not run in this process: it was lost, or hung, in the one where it ran first.

        That keeps the values with which it was started: what a plan crashes on is the pattern.
        """
        if not (self._backend.may_crash and schedule.may_crash):
            return None
        if self._sandbox is None:
            self._sandbox = Sandbox(self.problem)
        return self._sandbox.reason_against(plan)

    def forget(self, matrix: Matrix) -> None:
        """Forget the values of before, and what has them; `matrix` has those of now."""
        self._matrix = matrix
        for name in ("problem", "vectors"):
            vars(self).pop(name, None)

    def end(self) -> None:
        """Forget everything; a thread that waits for the process that may crash gets an answer."""
        self.forget(self._matrix)
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.end()
            sandbox.close()
