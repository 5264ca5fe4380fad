"""``solve``: which method for which matrix, and classic or communication-avoiding by measuring both.

The family:

    Hermitian (real: symmetric), no diagonal entry <= 0     cg, then gmres where it is not positive definite after all
    Hermitian otherwise                                     gmres
    any other                                               bicgstab, then gmres

A method that does not get there hands its x on to the next one. Within a family both solvers do a few steps of the
system, twice (setup aside, which is paid once), and the one with the shorter step does the rest; that choice is kept
for the pattern of the matrix and the backend as long as the process lives. GMRES remembers `restart` vectors, BiCGStab
six: that and its shorter steps are why it comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from akx.device.choose import is_usable
from akx.errors import ArgumentError
from akx.matrix import Matrix
from akx.solvers.chosen import chosen_steps
from akx.solvers.stats import SolveStats
from akx.solvers.system import Answer, make_system

__all__ = ["FAMILIES", "families_for", "solve"]

#: The classic solvers that have a communication-avoiding sister.
FAMILIES = ("cg", "gmres", "bicgstab")
#: Rows below which nothing is measured: the classic solver is done before.
_SMALL = 2000
#: Steps per basis where nothing is asked for; steps and blocks that are timed, after those that are not.
_S, _STEPS, _BLOCKS, _BEFORE = 4, 12, 6, 4
#: Steps without an answer after which a method gives way to the next one, where there is one and no `maxiter`.
_PATIENCE = 10_000

_chosen: dict[tuple[Any, ...], tuple[str, str]] = {}


def solve(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    method: str = "auto",
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    restart: int | None = None,
    s: int | str = "auto",
    basis: str = "auto",
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b by a named method, or by the one that suits the matrix and is fastest here.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
    b : array_like, shape (n,) or (n, 1)
    x0, rtol, atol, threads, db, backend
        As for every solver.
    method : str
        ``"auto"``, or the name of a solver: ``"cg"``, ``"ca_cg"``, ``"gmres"``, ``"ca_gmres"``, ``"bicgstab"``,
        ``"ca_bicgstab"``. With ``"auto"`` the name of what was taken is in the record.
    maxiter : int, optional
        In the sense of the method: steps, for gmres restart cycles. By default 10 n, but with ``"auto"`` a method
        gives way to the next one after 10,000.
    M : sparse matrix, array, LinearOperator or preconditioner of :mod:`akx.solvers.preconditioners`, optional
        With one that cannot be made part of the matrix, ``"auto"`` takes classic solvers only.
    callback : callable, optional
        Called as the method does: with x, by gmres with the norm of the residual over that of b.
    restart : int, optional
        Of gmres and ca_gmres.
    s, basis
        Of the communication-avoiding solvers; the basis of ``"auto"`` is each solver's own choice.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too; its notes say why the method was taken.

    Returns
    -------
    x, info, stats
        As for the solvers.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    from akx.solvers import SOLVERS

    if method != "auto" and method not in SOLVERS:
        raise ArgumentError("unknown method", expected=" or ".join(("auto", *SOLVERS)), found=repr(method))
    options = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "M": M, "threads": threads, "db": db}
    options["backend"] = backend
    special = {"restart": restart, "s": s, "basis": basis}
    if method != "auto":
        return _call(SOLVERS[method], method, A, b, x0, options, special, callback, return_stats)
    begin = time.perf_counter()
    system = make_system("auto", A, b, x0, rtol=rtol, atol=atol, callback=callback, backend=backend, scale=False)
    matrix, options["backend"] = system.matrix, system.work.backend
    families, why = families_for(matrix)
    if "cg" in families and getattr(M, "hermitian", True) is False:
        families, why = ["bicgstab", "gmres"], "the preconditioner is not Hermitian"
    notes = [f"auto: {why}"]
    choosing, total, guess = time.perf_counter() - begin, None, x0
    x, info, least = system.answer(system.x), 1, float("inf")
    for family in families:
        begun = time.perf_counter()
        name, reason = _classic_or_ca(family, matrix, b, guess, options, special)
        choosing += time.perf_counter() - begun
        notes.append(f"auto: {name}, {reason}")
        if maxiter is None:
            patience = _PATIENCE if family is not families[-1] else 10 * matrix.n
            options["maxiter"] = min(10 * matrix.n, patience)
        found, said, stats = _call(SOLVERS[name], name, matrix, b, guess, options, special, callback, True)  # type: ignore[misc]
        total = _added(total, stats)
        if said == 0 or stats.residual < least:
            x, info, least = found, said, stats.residual
            guess = found if stats.residual <= (total.residuals or [0.0])[0] else guess
        if said == 0:
            break
        notes.append(f"auto: {name} ended without an answer: {stats.reason}")
    assert total is not None
    total.residual = least
    total.notes = notes + total.notes
    total.seconds |= {"choose": choosing, "total": time.perf_counter() - begin}
    return (x, info, total) if return_stats else (x, info)


def families_for(matrix: Matrix) -> tuple[list[str], str]:
    """The families to try, best first, and why: by the symmetry and the diagonal of the matrix."""
    from akx.solvers import SOLVERS

    diagonal = matrix.to_scipy().diagonal()
    if matrix.features.value_symmetry == ("hermitian" if matrix.dtype.kind == "c" else "symmetric"):
        if diagonal.real.min() > 0:
            found, why = ["cg", "gmres"], "the matrix is Hermitian with a positive diagonal"
        else:
            found, why = ["gmres"], "the matrix is Hermitian, but not positive definite"
    elif matrix.features.value_symmetry == "skew":
        found, why = ["gmres"], "the matrix is skew-symmetric"
    else:
        found, why = ["bicgstab", "gmres"], "the matrix is not Hermitian"
    present = [name for name in found if name in SOLVERS]
    return present or [name for name in FAMILIES if name in SOLVERS][:1], why


def _classic_or_ca(
    family: str, matrix: Matrix, b: Any, x0: Any, options: dict[str, Any], special: dict[str, Any]
) -> tuple[str, str]:
    """The solver of a family with the shorter step on this matrix, and a word about it."""
    from akx.solvers import SOLVERS

    sister, M = f"ca_{family}", options["M"]
    if sister not in SOLVERS:
        return family, "the only one of its family"
    if M is not None and not getattr(M, "folds", False):
        return family, "as this preconditioner cannot be made part of the matrix"
    if matrix.n < _SMALL:
        return family, f"as {matrix.n} rows are too few to measure"
    where = options["backend"], options["threads"]
    key = (matrix.fingerprint, str(matrix.dtype), family, type(M).__name__, special["s"], *where)
    if key not in _chosen:
        steps = {name: _step_seconds(name, matrix, b, x0, options, special) for name in (family, sister)}
        best = min(steps, key=lambda name: steps[name])
        other = family if best == sister else sister
        word = f"{steps[best] * 1e6:.0f} us a step against {steps[other] * 1e6:.0f} of {other}"
        if not np.isfinite(steps[sister]):
            best, word = family, f"as {sister} found no use for a basis"
        _chosen[key] = best, word
    return _chosen[key]


def _step_seconds(
    name: str, matrix: Matrix, b: Any, x0: Any, options: dict[str, Any], special: dict[str, Any]
) -> float:
    """Seconds for each step of a solver, without its setup and the steps before its first basis; Inf without any."""
    from akx.solvers import SOLVERS

    asked, ca = special["s"], name.startswith("ca_")
    s = int(asked) if isinstance(asked, (int, np.integer)) and asked > 0 else _S  # the solver will say what is wrong
    if ca and isinstance(asked, str) and is_usable(options["backend"]):
        places = {which: options[which] for which in ("threads", "db", "backend")}
        found = chosen_steps(name, matrix, basis=special["basis"], **places)
        s = s if found is None else found.s
    if name.endswith("gmres"):
        limits = [1, 2] if ca else [0, 1]  # cycles
    else:
        limits = [2 * s, (2 + _BLOCKS) * s] if ca else [_BEFORE, _BEFORE + _STEPS]
    busy, done = [0.0, 0.0], [0, 0]
    for i, limit in enumerate(limits):
        times = []
        for _ in range(3 if limit else 0):  # the first may compile, another be disturbed
            short = {**options, "rtol": 1e-14, "atol": 0.0, "maxiter": limit}
            _, _, stats = _call(SOLVERS[name], name, matrix, b, x0, short, special, None, True)  # type: ignore[misc]
            times.append(sum(t for phase, t in stats.seconds.items() if phase not in ("setup", "total")))
            done[i] = stats.iterations
        busy[i] = min(times, default=0.0)
    if done[1] <= done[0] or (ca and not stats.s):
        return float("inf")
    if busy[1] <= busy[0]:  # the clock was disturbed: what is known is the mean of all steps
        return busy[1] / done[1]
    return (busy[1] - busy[0]) / (done[1] - done[0])


def _call(
    solver: Callable[..., Any],
    name: str,
    A: Any,
    b: Any,
    x0: Any,
    options: dict[str, Any],
    special: dict[str, Any],
    callback: Callable[[Any], object] | None,
    return_stats: bool,
) -> Answer:
    """One solver with those of the options that it has."""
    own = dict(options)
    if name.endswith("gmres"):
        own["restart"] = special["restart"]
    if name.startswith("ca_"):
        own |= {"s": special["s"], "basis": special["basis"]}
    answer: Answer = solver(A, b, x0, callback=callback, return_stats=return_stats, **own)
    return answer


def _added(before: SolveStats | None, stats: SolveStats) -> SolveStats:
    """The record of a solver that took over, with the work of the ones before it."""
    if before is not None:
        stats.residuals = before.residuals + stats.residuals[1:]
        stats.iterations += before.iterations
        stats.products += before.products
        stats.matrix_passes += before.matrix_passes
        stats.s = before.s + stats.s
        stats.notes = before.notes + stats.notes
        stats.basis = stats.basis or before.basis
        for phase, seconds in before.seconds.items():
            stats.seconds[phase] = stats.seconds.get(phase, 0.0) + seconds
    return stats
