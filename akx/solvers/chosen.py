"""Which s a communication-avoiding solver takes by itself: the one that was tuned for the matrix, where there is one.

What :func:`akx.solvers.tune_for` finds is kept with the plans of the matrix powers that the solver does: the record of
a plan says, under ``provenance["solvers"]``, for which solvers it was chosen and how long a step took. So it is found
by the same keys, travels with the plans, and is never stale: another pattern, type, device, version or kernel is
another key. A plan that is tuned anew by itself is chosen for no solver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from akx.matrix import Matrix
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, shared_database
from akx.solvers.system import System
from akx.tuner import plan_key

__all__ = ["POWERS", "Chosen", "Powers", "chosen_steps", "database_of", "mark_of", "powers_of", "tuned_or"]


@dataclass(frozen=True)
class Powers:
    """The matrix powers of a solver.

    Attributes
    ----------
    basis : str
        The kind that ``basis="auto"`` is.
    start_vectors : int
    per_step : int
        Powers of a basis for each of the s steps.
    choices : tuple of int
        Values of s to choose from.
    """

    basis: str
    start_vectors: int
    per_step: int
    choices: tuple[int, ...]

    def key(self, matrix: Matrix, s: int, *, basis: str = "auto", threads: int | None, backend: str) -> PlanKey:
        """The key of the plan for s steps."""
        kind = self.basis if basis == "auto" else basis
        k, vectors = s * self.per_step, self.start_vectors
        return plan_key(matrix, k, basis=kind, start_vectors=vectors, threads=threads, backend=backend)


#: By solver. A cycle of gmres, 30 steps by default, is a whole number of passes with most of the choices.
POWERS: Mapping[str, Powers] = {
    "ca_cg": Powers("chebyshev", 1, 1, (3, 4, 6, 8)),
    "ca_gmres": Powers("newton", 1, 1, (5, 6, 10)),
    "ca_bicgstab": Powers("chebyshev", 2, 2, (2, 3, 4)),
}
#: Where a backend has another form: on a GPU ca_cg begins with p and r.
_OF_BACKEND: Mapping[tuple[str, str], Powers] = {("ca_cg", "cuda"): Powers("chebyshev", 2, 1, (4, 8, 12))}


def powers_of(solver: str, backend: str) -> Powers:
    """The matrix powers of a solver on a backend."""
    return _OF_BACKEND.get((solver, backend), POWERS[solver])


@dataclass(frozen=True)
class Chosen:
    """The s that was chosen, seconds a step took, and when that was."""

    s: int
    seconds: float
    date: str

    def note(self) -> str:
        """For the record of a solve."""
        return f"s = {self.s}, as tuned on {self.date}: {self.seconds * 1e3:.3g} ms a step"


def chosen_steps(
    solver: str,
    matrix: Matrix,
    *,
    basis: str = "auto",
    threads: int | None = None,
    db: Any = None,
    backend: str = "cpu",
) -> Chosen | None:
    """What was tuned for a solver on this matrix and device, or None.

    Parameters
    ----------
    solver : str
        ``"ca_cg"``, ``"ca_gmres"`` or ``"ca_bicgstab"``.
    matrix : Matrix
        In the type that the solver computes in.
    basis, threads, db
        As for the solver.
    backend : str
        ``"cpu"`` or ``"cuda"``.
    """
    powers, database = powers_of(solver, backend), database_of(db)
    found = []
    for s in powers.choices:
        key = powers.key(matrix, s, basis=basis, threads=threads, backend=backend)
        record = database.find(key).record
        mark = None if record is None else mark_of(record, solver)
        if record is not None and mark is not None:
            found.append(Chosen(s, mark, record.created[:10]))
    if not isinstance(db, PlanDatabase):
        database.close()  # lookups are rare, open files are few
    return min(found, key=lambda one: one.seconds, default=None)


def tuned_or(default: int, solver: str, system: System, basis: str) -> int:
    """The s that was tuned for a system's matrix, which is noted, or the default."""
    backend = "cuda" if system.on_device else "cpu"
    found = chosen_steps(solver, system.matrix, basis=basis, threads=system.threads, db=system.db, backend=backend)
    if found is None:
        return default
    system.stats.notes.append(found.note())
    return found.s


def mark_of(record: PlanRecord, solver: str) -> float | None:
    """Seconds of a step where the record was chosen for a solver, else None."""
    marks = record.provenance.get("solvers")
    seconds = marks.get(solver) if isinstance(marks, Mapping) else None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        return None
    return float(seconds)


def database_of(db: Any) -> PlanDatabase:
    """The database that the argument of a solver names."""
    found: Callable[[Any], PlanDatabase] = shared_database
    return db if isinstance(db, PlanDatabase) else found(db)
