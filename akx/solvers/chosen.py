"""Which s a communication-avoiding solver takes by itself: the one that was tuned for the matrix, where there is one.

What :func:`akx.solvers.tune_for` finds is kept with the plans of the matrix powers that the solver does: the record of
a plan says, under ``provenance["solvers"]``, for which solvers it was chosen and how long a step took. So it is found
by the same keys, travels with the plans, and is never stale: another pattern, type or device is another key, and beside
the choice stands the revision of the vector work of solvers, which a plan does not depend on. A plan that is tuned anew
by itself is chosen for no solver.

How long a step of a classic solver and of its communication-avoiding sister take, which :func:`akx.solvers.solve`
finds out, is kept as two trials, under a key like that of a plan, with all that the two steps depend on in place of the
basis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from akx.errors import AkxError
from akx.kernels.revisions import SOLVERS, revision
from akx.matrix import Matrix
from akx.operator.planner import database_of
from akx.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, TrialRecord
from akx.solvers.system import System
from akx.tuner import plan_key

__all__ = [
    "POWERS",
    "Chosen",
    "Powers",
    "chosen_steps",
    "database_of",
    "keep_sisters",
    "known_sisters",
    "mark_of",
    "marked",
    "marks_of",
    "powers_of",
    "sisters_key",
    "tuned_or",
]


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
#: Where a backend has other choices: on a GPU a launch is dear, and more steps pay.
_OF_BACKEND: Mapping[tuple[str, str], Powers] = {("ca_cg", "cuda"): Powers("chebyshev", 1, 1, (4, 6, 8, 12))}


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
    backend = system.work.backend
    found = chosen_steps(solver, system.matrix, basis=basis, threads=system.threads, db=system.db, backend=backend)
    if found is None:
        return default
    system.stats.notes.append(found.note())
    return found.s


def sisters_key(
    family: str,
    matrix: Matrix,
    *,
    s: int | str,
    basis: str = "auto",
    restart: int | None = None,
    M: str = "",
    threads: int | None = None,
    backend: str = "cpu",
) -> PlanKey:
    """The key of the choice between a classic solver and its sister.

    Parameters
    ----------
    family : str
        Name of the classic solver.
    s : int or str
        Most steps for each pass; ``"auto"`` where none is asked for and none was tuned.
    basis, restart, threads, backend
        As for the solvers; `restart` counts for gmres alone.
    M : str
        What the preconditioner is, "" where there is none.
    """
    cycle = f", restart {restart or 'auto'}" if family == "gmres" else ""
    kind = powers_of(f"ca_{family}", backend).basis if basis == "auto" else basis
    asked = f"{family} or ca_{family}: s {s}, basis {kind}{cycle}, M {M or 'none'}"
    number = revision(backend, SOLVERS)
    asked += f", revision {number}" if number > 1 else ""
    return replace(plan_key(matrix, 1, threads=threads, backend=backend), basis=asked)


def known_sisters(key: PlanKey, db: Any = None) -> tuple[float, float] | None:
    """Seconds of a step of the classic solver and of its sister, the latter Inf where its basis is of no use; or None.

    None also where the database cannot be read.
    """
    database, found = database_of(db), dict[bool, float]()
    try:
        trials = database.trials(key)
    except AkxError:
        return None
    if not isinstance(db, PlanDatabase):
        database.close()
    for trial in trials:  # the newest are last
        is_sister = str(trial.plan.option("solver", "")).startswith("ca_")
        found[is_sister] = trial.seconds[0] if trial.state == "complete" and trial.seconds else math.inf
    return (found[False], found[True]) if len(found) == 2 else None


def keep_sisters(key: PlanKey, family: str, backend: str, seconds: tuple[float, float], db: Any = None) -> bool:
    """Keep what :func:`known_sisters` is to find; whether that was possible."""
    trials = []
    for name, step in zip((family, f"ca_{family}"), seconds, strict=True):
        plan = Plan(backend, "sweep", "csr", options={"solver": name})  # stands for the solver: nothing is made of it
        of_use = math.isfinite(step)
        trials.append(TrialRecord(plan, (step,)) if of_use else TrialRecord(plan, (), "failed", "no basis is of use"))
    database = database_of(db)
    try:
        database.add_trials(key, trials)
    except AkxError:
        return False
    if not isinstance(db, PlanDatabase):
        database.close()
    return True


def mark_of(record: PlanRecord, solver: str) -> float | None:
    """Seconds of a step where the record was chosen for a solver of today's revision, else None."""
    seconds = marks_of(record).get(solver)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        return None
    return float(seconds)


def marks_of(record: PlanRecord) -> dict[str, Any]:
    """What is marked in a record, by solver, for solvers of today's revision; where it does not say it is of 1."""
    marks = record.provenance.get("solvers")
    known = record.provenance.get("solver_revision", 1) == revision(record.plan.backend, SOLVERS)
    return dict(marks) if known and isinstance(marks, Mapping) else {}


def marked(record: PlanRecord, marks: Mapping[str, float]) -> PlanRecord:
    """The record with these marks instead."""
    number = revision(record.plan.backend, SOLVERS)
    return replace(record, provenance={**record.provenance, "solvers": dict(marks), "solver_revision": number})
