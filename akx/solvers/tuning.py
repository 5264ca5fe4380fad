"""Tuning for a solver: the s whose steps are shortest, with a tuned plan for its matrix powers.

For each s that may do, the matrix powers of a block are tuned, and then a step of the solver is timed: matrix powers,
vector work, small matrices, and what a basis of s steps loses to rounding errors on this matrix. All take turns; the
time of a step is the slope between a short and a long solve, of a random right-hand side. Within 3 % the smaller s is
taken.
"""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from akx.backends import registry
from akx.backends.selection import HOST, backend_of, device_of, is_usable
from akx.core.errors import ArgumentError, brief
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.krylov.bases import check_basis
from akx.plandb import PlanDatabase, database_of
from akx.solvers.monitor import PREPARED
from akx.solvers.registry import SOLVERS
from akx.solvers.solver_choice import POWERS, chosen_steps, keep, keep_pair, powers_of, timing_key
from akx.tuner import Progress, tune
from akx.tuner.measure import median

__all__ = ["Candidate", "SolverTuning", "tune_for"]

#: Seconds for the plans of all choices, where nothing is said.
_SECONDS = 60.0
#: Rounds of timing; a larger s must be this much faster.
_ROUNDS, _NOISE = 3, 0.03
#: Steps of a cycle of ca_gmres, and the blocks that are timed of the others.
_RESTART, _BLOCKS, _BEFORE = 30, 10, 2
#: Solves end there: what is left then is rounding errors, which are not what a step is about.
_RTOL = 1e-9
#: A candidate that makes fewer steps than this share of s a block is no use: it is the next smaller s in disguise.
_SHARE = 0.5


@dataclass(frozen=True)
class Candidate:
    """One s with the plan of its matrix powers.

    Attributes
    ----------
    seconds : float
        Of a step; Inf where the basis is of no use.
    powers_seconds : float
        Of the matrix powers of a block, for each step.
    share : float
        Steps made over s for each block.
    """

    s: int
    seconds: float
    powers_seconds: float
    share: float
    plan: Plan


@dataclass(frozen=True)
class SolverTuning:
    """What :func:`tune_for` found.

    Attributes
    ----------
    solver, backend : str
    s : int
    seconds, classic_seconds : float
        Of a step, with s, and of the classic solver; the latter NaN where it was not timed.
    candidates : tuple of Candidate
        By s.
    kept, reused : bool
        Whether solvers will find it, and whether it was found rather than measured.
    tuning_seconds : float
    basis : str
        The kind that the plans are for.
    notes : tuple of str
        With ``backend="auto"``, what was found for the other backends.
    """

    solver: str
    backend: str
    s: int
    seconds: float
    classic_seconds: float
    candidates: tuple[Candidate, ...]
    kept: bool
    reused: bool = False
    tuning_seconds: float = 0.0
    basis: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types; no time is null."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["notes"] = list(self.notes)
        plain["candidates"] = [
            {**{field.name: getattr(one, field.name) for field in fields(one)}, "plan": one.plan.to_json()}
            for one in self.candidates
        ]
        for entry in (plain, *plain["candidates"]):
            entry |= {n: None for n in ("seconds", "classic_seconds") if n in entry and not np.isfinite(entry[n])}
        return {"schema": 1, **plain}


def tune_for(
    matrix: Any,
    solver: str,
    *,
    backend: str = HOST,
    basis: str = "auto",
    threads: int | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    choices: Sequence[int] | None = None,
    db: PlanDatabase | str | os.PathLike[str] | Literal[False] | None = None,
    retune: bool = False,
    seed: int = 0,
    name: str = "",
    callback: Callable[[Progress], object] | None = None,
) -> SolverTuning:
    """The best s of a communication-avoiding solver on a matrix, and plans for its matrix powers; both are kept.

    Parameters
    ----------
    matrix : sparse matrix or array, shape (n, n), or Matrix
        In the type that is to be solved in; with a preconditioner that is made part of the matrix, that product.
    solver : str
        ``"ca_cg"``, ``"ca_minres"``, ``"ca_gmres"`` or ``"ca_bicgstab"``, or with a hyphen.
    backend : str
        ``"auto"`` or the name of a backend: each that is usable here, in an equal share of the time. All are kept, the
        one with the shortest step is returned, and its notes tell of the others.
    basis : str
        As for the solver, which finds the result where it is asked for the same kind.
    threads : int, optional
        As for the solver.
    trials : int, optional
        Most trials of the search for each plan (80).
    seconds : float, optional
        For tuning the plans of all choices together (60); timing the solver comes on top.
    choices : sequence or array of int, optional
        Of s; by default those of :data:`akx.solvers.solver_choice.POWERS`. Others are timed, but not found by solvers.
    db, retune, name, callback
        As for :func:`akx.tuner.tune`. With `retune` plans are searched for again and solvers timed again.
    seed : int
        Of the right-hand side.

    Returns
    -------
    SolverTuning

    Raises
    ------
    ArgumentError, MatrixError, DatabaseError
        As :func:`akx.tuner.tune` does, and for an unknown solver or basis, and for `choices` without one that will do.
    DeviceError, MissingDependencyError
        Where the backend is that of a GPU and there is none that can be used.
    """
    begin = time.perf_counter()
    named = solver.replace("-", "_") if isinstance(solver, str) else solver
    if named not in POWERS:
        raise ArgumentError("no solver to tune for", expected=" or ".join(POWERS), found=brief(solver))
    check_basis(basis)
    matrix = Matrix.from_any(matrix, value_error=0.0)
    asked: dict[str, Any] = {"basis": basis, "threads": threads, "db": db}
    search: dict[str, Any] = {"trials": trials, "db": db, "retune": retune, "name": name, "callback": callback}
    allowed = _SECONDS if seconds is None else seconds
    if backend != "auto":
        found = _tuned_on(backend, named, matrix, choices, asked, search, allowed, seed)
        return replace(found, tuning_seconds=time.perf_counter() - begin)
    places = [one for one in registry.backends() if backend_of(one).is_automatic and is_usable(one)]
    share = allowed / len(places)
    found = _fastest([_tuned_on(one, named, matrix, choices, asked, search, share, seed) for one in places])
    return replace(found, tuning_seconds=time.perf_counter() - begin)


def _tuned_on(
    backend: str,
    solver: str,
    matrix: Matrix,
    choices: Sequence[int] | None,
    asked: dict[str, Any],
    search: dict[str, Any],
    seconds: float,
    seed: int,
) -> SolverTuning:
    """What is found for one backend; `asked` has basis, threads and db, `search` more for that of the plans."""
    device_of(backend)  # that it is missing is said before anything is tuned
    basis, threads, db = asked["basis"], asked["threads"], asked["db"]
    powers = powers_of(solver, backend)
    kind = powers.basis if basis == "auto" else basis
    given = powers.choices if choices is None else tuple(map(_whole, choices))
    wanted = [s for s in given if s == 1 or s * powers.per_step < matrix.n]
    if not wanted or min(wanted) < 1:
        fewer = f"s >= 1, and fewer powers than the {matrix.n} rows"
        raise ArgumentError("no s to choose from", expected=fewer, found=brief(given))
    known = None
    if db is not False and not search["retune"] and choices is None:
        known = chosen_steps(solver, matrix, backend=backend, **asked)
    if known is not None:
        return SolverTuning(solver, backend, known.s, known.seconds, float("nan"), (), True, True, basis=kind)
    own: dict[str, Any] = {"start_vectors": powers.start_vectors, "backend": backend, "seconds": seconds / len(wanted)}
    tuned = [tune(matrix, s * powers.per_step, basis=kind, threads=threads, **own, **search) for s in wanted]
    b = np.random.default_rng(seed).standard_normal(matrix.n).astype(matrix.dtype)
    family, place = solver.removeprefix("ca_"), (backend, threads, db)
    runs = [_Runs(solver, matrix, b, s, one.plan, *place, basis) for s, one in zip(wanted, tuned, strict=True)]
    runs.append(_Runs(family, matrix, b, 0, None, *place))
    times = [[one.slope() for one in runs] for _ in range(_ROUNDS)]
    *steps, classic = (median(list(of_one)) for of_one in zip(*times, strict=True))
    candidates = tuple(
        Candidate(s, step if run.share >= _SHARE else float("inf"), result.seconds / s, run.share, result.plan)
        for s, step, run, result in zip(wanted, steps, runs, tuned, strict=False)
    )
    best = _best(candidates)
    kept = db is not False and _keep(solver, matrix, best, backend=backend, **asked)
    if kept and np.isfinite(classic):
        key = timing_key(family, matrix, s=best.s, basis=basis, threads=threads, backend=backend)
        keep_pair(key, (classic, best.seconds), db)
    return SolverTuning(solver, backend, best.s, best.seconds, classic, candidates, kept, basis=kind)


def _whole(s: Any) -> int:
    """One of the choices as an int. Raises ArgumentError."""
    try:
        return operator.index(s)
    except TypeError:
        raise ArgumentError("no s to choose from", expected="integers >= 1", found=brief(s)) from None


def _fastest(found: Sequence[SolverTuning]) -> SolverTuning:
    """The result with the shortest step, and notes on those of the other backends."""
    best = min(found, key=lambda one: one.seconds)
    notes = []
    for other in (one for one in found if one is not best):
        timed = f"s = {other.s}, {other.seconds * 1e3:.3g} ms a step"
        step = timed if np.isfinite(other.seconds) else "no basis of use"
        kept = "kept as well, and taken where that is the solver's backend" if other.kept else "not kept"
        notes.append(f"on the {other.backend}: {step}; {kept}")
    return replace(best, notes=tuple(notes))


def _best(found: Sequence[Candidate]) -> Candidate:
    """The fastest, or a smaller s that is as fast within the noise; the smallest where no basis is of use."""
    fastest = min(one.seconds for one in found)
    return min((one for one in found if one.seconds <= (1 + _NOISE) * fastest), key=lambda one: one.s)


class _Runs:
    """Short and long solves by one solver with one s and plan."""

    def __init__(
        self,
        name: str,
        matrix: Matrix,
        b: Any,
        s: int,
        plan: Plan | None,
        backend: str,
        threads: int | None,
        db: Any,
        basis: str = "auto",
    ) -> None:
        self.name, self.matrix, self.b, self.s = name, matrix, b, s
        self.options: dict[str, Any] = {"rtol": _RTOL, "threads": threads, "backend": backend, "return_stats": True}
        if s:
            self.options |= {"s": s, "plan": plan, "basis": basis}
        if db is not None and db is not False:
            self.options["db"] = db
        self.share = 0.0
        self._is_new = True

    def slope(self) -> float:
        """Seconds of a step: of a long solve less a short one; Inf where there are no more steps to do."""
        short, long = self._limits()
        if self._is_new:
            self._solve(short)  # compiles
            self._is_new = False
        (less, few, _), (more, many, blocks) = self._solve(short), self._solve(long)
        self.share = self._share(blocks, many)
        return (more - less) / (many - few) if many > few and more > less else float("inf")

    def _share(self, blocks: list[int], steps: int) -> float:
        """Blocks that steps take over those that were made, behind the ordinary steps before the first basis."""
        if self.s <= 1:
            return 1.0
        if not blocks:
            return 0.0
        ordinary = {"ca_cg": 0.5 if self.options["backend"] == HOST else 2.0, "ca_minres": 2.0}.get(self.name, 1.0)
        needed = math.ceil(max(steps / self.s - ordinary, 0))
        return min(1.0, needed / len(blocks), blocks[-1] / self.s)

    def _limits(self) -> tuple[int, int]:
        block = self.s or 4
        return (2, 4) if self.name.endswith("gmres") else ((2 + _BEFORE) * block, (2 + _BEFORE + _BLOCKS) * block)

    def _solve(self, limit: int) -> tuple[float, int, list[int]]:
        options = {**self.options, "maxiter": limit, "callback": PREPARED}
        if self.name.endswith("gmres"):
            options["restart"] = _RESTART
        _, _, stats = SOLVERS[self.name](self.matrix, self.b, **options)
        spent = stats.seconds["total"] - stats.seconds.get("setup", 0.0)
        return spent, stats.iterations, list(stats.s)


def _keep(
    name: str, matrix: Matrix, best: Candidate, *, basis: str, threads: int | None, db: Any, backend: str
) -> bool:
    """Keep the best s, with the plan that it was found with; whether solvers will find it."""
    if not np.isfinite(best.seconds):
        return False
    spec = powers_of(name, backend)
    record = database_of(db).find(spec.key(matrix, best.s, basis=basis, threads=threads, backend=backend)).record
    if record is None:
        return False
    key = timing_key(name, matrix, basis=basis, threads=threads, backend=backend)
    figures = {"best_s": best.s, "plan_created": record.created, "matrix_name": record.matrix_name}
    return keep(key, {name: best.seconds}, db, **figures) and best.s in spec.choices
