"""Which s a communication-avoiding solver takes by itself: the one that was tuned for the matrix, where there is one.

What :func:`akx.solvers.tune_for` finds is a timing in the plan database (:mod:`akx.plandb.timing`). It counts while the
plan of the matrix powers that it was found with is the one in use: a plan that is tuned anew by itself is chosen for no
solver. How long a step of a classic solver and of its counterpart take, which :func:`akx.solvers.solve` finds out, is
another timing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from akx.backends.host import resolve_threads
from akx.backends.revisions import SOLVERS, revision
from akx.backends.selection import HOST, backend_of
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.operator.freshness import database_of, state_of_plans
from akx.solvers.system import System

if TYPE_CHECKING:  # first calls have no need of these
    from akx.plandb import PlanDatabase, PlanKey, TimingKey

__all__ = [
    "POWERS",
    "Chosen",
    "Powers",
    "chosen_steps",
    "keep",
    "keep_pair",
    "known_pair",
    "powers_of",
    "timing_key",
    "tuned_or",
]

#: What :func:`tuned_or` has found, by what it was asked and the state of the database; and how much of that is kept.
_found: dict[tuple[Any, ...], Chosen | None] = {}
_MOST_FOUND = 1000


@dataclass(frozen=True)
class Powers:
    """The matrix powers of a solver: what ``basis="auto"`` is, powers for each step, and values of s to try."""

    basis: str
    start_vectors: int
    per_step: int
    choices: tuple[int, ...]

    def key(self, matrix: Matrix, s: int, *, basis: str = "auto", threads: int | None, backend: str) -> PlanKey:
        """The key of the plan for s steps."""
        from akx.tuner.space import plan_key

        kind = self.basis if basis == "auto" else basis
        k, vectors = s * self.per_step, self.start_vectors
        return plan_key(matrix, k, basis=kind, start_vectors=vectors, threads=threads, backend=backend)


#: By solver. A cycle of gmres, 30 steps by default, is a whole number of passes with most of the choices.
POWERS: Mapping[str, Powers] = {
    "ca_cg": Powers("chebyshev", 1, 1, (3, 4, 6, 8)),
    "ca_minres": Powers("chebyshev", 1, 1, (3, 4, 6, 8)),
    "ca_gmres": Powers("newton", 1, 1, (5, 6, 10)),
    "ca_bicgstab": Powers("chebyshev", 2, 2, (2, 3, 4)),
}


def powers_of(solver: str, backend: str) -> Powers:
    """The matrix powers of a solver on a backend."""
    steps = backend_of(backend).steps_to_try.get(solver)
    return POWERS[solver] if steps is None else replace(POWERS[solver], choices=steps)


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
    backend: str = HOST,
) -> Chosen | None:
    """What was tuned for a communication-avoiding solver on this matrix, in the type it computes in, and device."""
    powers, database = powers_of(solver, backend), database_of(db)
    found = None
    key = timing_key(solver, matrix, basis=basis, threads=threads, backend=backend)
    for timing in database.find_timings(key):
        if timing.best_s not in powers.choices:
            continue
        record = database.find(powers.key(matrix, timing.best_s, basis=basis, threads=threads, backend=backend)).record
        if record is not None and timing.is_of(record):
            found = Chosen(timing.best_s, timing.step(solver), timing.created[:10])
            break
    _done_with(database, db)
    return found


def tuned_or(default: int, solver: str, system: System, basis: str) -> int:
    """The s that was tuned for a system's matrix, which is noted, or the default; looked up anew after plans change."""
    matrix = system.matrix
    if system.is_plain:  # whose products are as long for any s
        return default
    options: dict[str, Any] = {"basis": basis, "threads": system.threads, "backend": system.work.backend}
    types, most = (matrix.dtype.str, matrix.index_dtype.str), resolve_threads(system.threads)
    asked = solver, matrix.fingerprint, types, most, *options.values(), *state_of_plans(system.db)
    if asked not in _found:
        if len(_found) >= _MOST_FOUND:
            _found.clear()
        _found[asked] = chosen_steps(solver, matrix, db=system.db, **options)
    found = _found[asked]
    if found is None:
        return default
    system.stats.notes.append(found.note())
    return found.s


def timing_key(
    solver: str,
    matrix: Matrix,
    *,
    s: int | str = "auto",
    basis: str = "auto",
    restart: int | None = None,
    M: str = "",
    threads: int | None = None,
    backend: str = HOST,
) -> TimingKey:
    """The key of the s that is best for a solver, or of the choice between a classic `solver` and its counterpart.

    `s` is ``"auto"`` where none is asked for and none was tuned; `restart` counts for gmres alone; `M` says what the
    preconditioner is, "" where there is none.
    """
    from akx.plandb import TimingKey
    from akx.tuner.space import plan_key

    place = plan_key(matrix, 1, threads=threads, backend=backend)
    family = solver.removeprefix("ca_")
    return TimingKey(
        fingerprint=place.fingerprint,
        dtype=place.dtype,
        index_type=place.index_type,
        device_class=place.device_class,
        solver=solver,
        basis=powers_of(f"ca_{family}", backend).basis if basis == "auto" else basis,
        asked_s=0 if isinstance(s, str) else int(s),
        restart=int(restart or 0) if family == "gmres" else 0,
        preconditioner=M,
        revision=revision(backend, SOLVERS),
    )


def known_pair(key: TimingKey, db: Any = None) -> tuple[float, float] | None:
    """Seconds of a step of the classic solver and of its counterpart, Inf where its basis is of no use.

    None where they are not known, also where the database cannot be read.
    """
    database = database_of(db)
    found = database.find_timings(key)
    _done_with(database, db)
    return (found[0].step(key.solver), found[0].step(f"ca_{key.solver}")) if found else None


def keep_pair(key: TimingKey, seconds: tuple[float, float], db: Any = None) -> bool:
    """Keep what :func:`known_pair` is to find; whether that was possible."""
    return keep(key, dict(zip((key.solver, f"ca_{key.solver}"), seconds, strict=True)), db)


def keep(key: TimingKey, seconds: Mapping[str, float], db: Any = None, **figures: Any) -> bool:
    """Keep a timing, with `figures` as of :class:`akx.plandb.SolverTiming`; whether that was possible."""
    from akx.plandb import SolverTiming

    database = database_of(db)
    steps = {name: step if math.isfinite(step) else None for name, step in seconds.items()}
    try:
        database.put_timing(SolverTiming(key, steps, **figures))
    except AkxError:
        return False
    _done_with(database, db)
    return True


def _done_with(database: PlanDatabase, db: Any) -> None:
    """Close a database that the caller has not open: lookups are rare, open files are few."""
    if database is not db:
        database.close()
