"""The rungs of the ladder of ``solve`` at work: a solve by factors, and preconditioners of SciPy's and PyAMG's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from akx.backends.selection import HOST
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.solvers.direct import ILU_FILL, Factors, factors_of, foreseen
from akx.solvers.rounding import size_of_terms
from akx.solvers.scaling import norm_of
from akx.solvers.stats import AT_ROUNDING, SolveStats
from akx.solvers.system import make_system

__all__ = ["make_rung", "solve_by_factors"]

#: This part of b is small.
_SMALL = 1e-3

#: Refinements at most, and what each has to leave of the residual before it.
_ROUNDS, _BETTER = 6, 0.5
#: Incomplete factors: entries below this part of their column are dropped.
_DROP = 1e-4
#: Units of rounding that b - A x may be off by, over the target, before x says nothing; and that no x takes off.
_ROUNDING, _ATTAINED = 4, 10
#: Entries of a column of an approximate inverse, so that no local problem is large.
_LONGEST = 40
#: PyAMG's way to smooth prolongations.
_SMOOTH = ("jacobi", {"omega": 4.0 / 3.0, "weighting": "local"})


def make_rung(rung: str, matrix: Matrix, scale: Any, *, definite: bool, threads: int | None = None) -> Any:
    """What a rung needs: factors, or a preconditioner; or, as text, why there is none.

    `scale` is the diagonal by which a Hermitian A is scaled on both sides, or None.
    """
    if rung == "direct":
        known = foreseen(matrix, scale)
        if not known.seconds < float("inf"):
            return "its factors would be too large"
        A = matrix.to_scipy()
        found = factors_of(A, known)
        if isinstance(found, str):  # those of A and rounding errors of it serve where A is singular and b in its range
            sums = abs(A).sum(axis=1)
            shift = np.where(sums > 0, np.finfo(float).eps * sums, sums.max(initial=1))
            found = factors_of(sp.csr_array(A + sp.diags_array(shift)), known)
        return found
    if rung == "spai":
        from akx.solvers.preconditioners.spai import spai

        try:
            inverse = spai(matrix, most=_LONGEST, threads=threads, backend=HOST)
        except AkxError as error:
            return str(error)[:80]
        return _sized(inverse, inverse.M.nnz)
    from scipy.sparse.linalg import LinearOperator, spilu

    A = matrix.to_scipy()
    A = A.astype(np.result_type(A.dtype, np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if rung == "ilu":
                factors = spilu(sp.csc_array(A), drop_tol=_DROP, fill_factor=ILU_FILL)
                return _sized(LinearOperator(A.shape, matvec=factors.solve, dtype=A.dtype), factors.nnz)
            from pyamg import smoothed_aggregation_solver

            kind = "hermitian" if definite else "nonsymmetric"
            # By default it estimates a spectral radius from random vectors, of a generator that the user may draw from.
            levels = smoothed_aggregation_solver(sp.csr_array(A), symmetry=kind, smooth=_SMOOTH)
            cycle = np.errstate(all="ignore")(levels.aspreconditioner().matvec)
            made = LinearOperator(A.shape, matvec=cycle, dtype=A.dtype)
            return _sized(made, 2 * sum(level.A.nnz for level in levels.levels))
        except (RuntimeError, ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError, ImportError) as error:
            text = " ".join(str(error).split())
            return "the factors are singular" if "singular" in text else text[:80] or type(error).__name__


def _sized(M: Any, entries: float) -> Any:
    """M with the bytes that it takes, about."""
    M.nbytes = int(12 * entries)
    return M


def solve_by_factors(
    factors: Factors, A: Any, b: Any, x0: Any, options: dict[str, Any], callback: Callable[[Any], object] | None
) -> tuple[Any, int, SolveStats]:
    """x by factors of A and refinement, from `x0` on; info and the record. A step is a use of the factors."""
    own = {name: options[name] for name in ("rtol", "atol", "threads", "db", "backend")}
    system = make_system("direct", A, b, x0, callback=callback, scale=False, **own)  # steps have no squares
    work, stats, x = system.work, system.stats, system.x
    r = system.rows(1)[0]
    first = x
    norm, steps, reason = system.norm_b, 0, "converged"
    if system.zero_guess:
        r[:] = system.b
    else:
        norm = system.residual(x, r)
    stats.residuals.append(norm)
    most = _ROUNDS if options["maxiter"] is None else min(_ROUNDS, options["maxiter"])
    if system.norm_b == 0:
        x[:] = 0
        norm = 0.0
    before = norm
    if system.no_solution:  # of any method x suits the other rows better
        reason, system.no_solution = "A has empty rows", ""
    while reason == "converged" and not norm <= system.target:
        if steps >= most:
            reason = f"not converged after {steps} steps"
            break
        with stats.phase("precondition"), np.errstate(all="ignore"):
            update = factors.solve(work.to_host(r))  # of the caller's A
            better = work.to_host(x) + update
            better = np.ascontiguousarray(better, dtype=system.dtype)
        is_finite = bool(np.isfinite(better).all())
        if is_finite:
            system.x = work.from_host(better)
            before, norm = norm, system.residual(system.x, r)
        if not is_finite or not norm < _BETTER * before:
            norm, system.x = (norm, system.x) if is_finite and norm < before else (before, x)
            x = system.x
            if norm <= _ATTAINED * _rounding(system, work.to_host(x)) <= _SMALL * system.norm_b:
                reason = AT_ROUNDING
            else:
                reason = f"refinement by the factors leaves a residual of {norm / system.norm_b:.1e} ||b||"
            break
        x, steps = system.x, steps + 1
        stats.residuals.append(norm)
        system.tell(x)
    x = system.x
    if norm > system.target and steps and _is_noise(system, work.to_host(x)):
        x = system.x = first  # along a null vector, where b is not in the range of A
    info = 0 if reason == "converged" else max(1, steps)
    known = None if info else norm
    return system.finish(x, info=info, reason=reason, iterations=steps, return_stats=True, residual=known)  # type: ignore[return-value]


def _rounding(system: Any, x: Any) -> float:
    """A unit of rounding of the terms of A x."""
    eps = float(np.finfo(np.result_type(system.dtype, np.float64)).eps)
    return eps * size_of_terms(system.matrix.to_scipy(), x)


def _is_noise(system: Any, x: Any) -> bool:
    """Whether rounding errors of b - A x may be above the target."""
    least = max(system.target, _SMALL * system.norm_b) / _ROUNDING
    bound = float(np.finfo(np.float64).eps) * norm_of(system.matrix.data) * norm_of(x)
    return not bound <= least and _rounding(system, x) > least
