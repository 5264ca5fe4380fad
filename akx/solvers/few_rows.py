"""Systems of few rows: SuperLU at once, as finding out anything about A takes longer than to factorise it.

    A = L U,    x = U^-1 L^-1 b,    and once more for b - A x where that is not small enough

No more than that: with any argument that asks for more, an x that rounding errors might flatter or a pivot of zero,
:func:`akx.solvers.solve` goes its usual way from the beginning.

Where all else has failed, x of least squares, of the singular values of A: A may be singular, and b in its range.

Work: (2/3) n^3 at the most; memory 2 n^2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import HOST
from akx.core.matrix import Matrix
from akx.core.process import resolve_threads
from akx.operator.tiers import CSR
from akx.solvers.direct import superlu
from akx.solvers.rounding import size_of_terms
from akx.solvers.scaling import eps_of
from akx.solvers.singular import why_no_solution
from akx.solvers.stats import AT_ROUNDING, NO_SOLUTION, SolveStats
from akx.solvers.system import make_system

__all__ = ["MOST_ROWS", "solve_by_least_squares", "solve_few_rows"]

#: Rows that are few.
MOST_ROWS = 256
#: Rounding errors of b - A x are to be below this part of the tolerance: :mod:`akx.solvers.rounding` looks at others.
_NOISE = 0.1
#: Units of rounding of the terms of b - A x that no x takes off.
_ATTAINED = 10
#: Norms outside of these may have squares that overflow or underflow on the way.
_LEAST, _LARGEST = 1e-100, 1e100
_PLAIN = {"restart": None, "s": "auto", "basis": "auto"}


def solve_few_rows(
    A: Any, b: Any, options: dict[str, Any], special: dict[str, Any]
) -> tuple[Any, int, SolveStats] | None:
    """x, 0 and the record; None where that is not for this system.

    `options` and `special` as for :func:`akx.solvers.solving.answer_by`; raises what is wrong with A and the threads.
    """
    begun = time.perf_counter()
    rtol, atol = options["rtol"], options["atol"]
    if not (
        type(A) in CSR
        and 0 < A.shape[0] <= MOST_ROWS
        and type(b) is np.ndarray
        and b.shape in ((A.shape[0],), (A.shape[0], 1))
        and A.dtype.char in "dD"
        and b.dtype.char in "dD"
        and type(rtol) is type(atol) is float
        and rtol >= 0
        and atol >= 0
        and options["maxiter"] is options["M"] is options["db"] is None
        and options["backend"] in ("auto", HOST)
        and special == _PLAIN
    ):
        return None
    resolve_threads(options["threads"])
    matrix = Matrix.from_any(A)
    with np.errstate(all="ignore"):
        return _solve(A, b, matrix, rtol, atol, begun)


def _solve(
    A: Any, b: NDArray[Any], matrix: Matrix, rtol: float, atol: float, begun: float
) -> tuple[Any, int, SolveStats] | None:
    """The same, where the arguments are those for it; squares may overflow or underflow here."""
    norm_b = float(np.linalg.norm(b))
    if not (_LEAST < norm_b < _LARGEST and _LEAST < matrix.largest < _LARGEST):
        return None
    stats = SolveStats("direct", target=max(rtol * norm_b, atol), residuals=[norm_b], reason="converged")
    right = b.reshape(-1).astype(np.result_type(A, b), copy=False)
    entries = matrix.to_scipy().astype(right.dtype, copy=False)
    x, r = np.zeros_like(right), right
    if isinstance(factors := superlu(entries), str):
        return None
    while stats.iterations < 2 and not stats.converged:
        x = x + factors.solve(r)
        r = right - entries @ x
        stats.residual = float(np.linalg.norm(r))
        stats.residuals.append(stats.residual)
        stats.iterations += 1
        stats.converged = stats.residual <= stats.target
    noise = eps_of(right.dtype) * float(np.linalg.norm(matrix.data) * np.linalg.norm(x))
    if not (stats.converged and noise <= _NOISE * stats.target):
        return None
    stats.products = stats.matrix_passes = stats.iterations
    done = f"direct {stats.iterations} step{'s' * (stats.iterations > 1)}"
    stats.notes += [f"A is of few rows: {matrix.n}", done, "solved by direct"]
    stats.seconds = {"choose": 0.0, "total": time.perf_counter() - begun}
    return x.reshape(b.shape), 0, stats


def solve_by_least_squares(
    A: Any, b: Any, options: dict[str, Any], callback: Callable[[Any], object] | None
) -> tuple[Any, int, SolveStats]:
    """x, info and the record, by LAPACK's singular values."""
    own = {name: options[name] for name in ("rtol", "atol", "threads", "db", "backend")}
    system = make_system("lstsq", A, b, callback=callback, **own)
    entries, right = system.matrix.to_scipy().toarray(), system.work.to_host(system.b)
    wide = np.result_type(system.dtype, np.float64)
    x, info, reason = np.zeros_like(right), 1, "no x of least squares"
    system.stats.residuals.append(system.norm_b)
    with suppress(np.linalg.LinAlgError):
        x = np.linalg.lstsq(entries.astype(wide), right.astype(wide))[0].astype(system.dtype)
        reason = "least squares leave a residual above the tolerance"
    system.x[:] = system.work.from_host(x)
    system.tell(system.x)
    norm = system.residual(system.x, system.rows(1)[0])
    unit = eps_of(system.dtype) * size_of_terms(entries, x, right)
    if norm <= system.target:
        info, reason = 0, "converged"
    elif why := why_no_solution(system, system.x):
        info, reason = NO_SOLUTION, why
    elif norm <= _ATTAINED * unit:
        reason = AT_ROUNDING
    return system.finish(system.x, info=info, reason=reason, iterations=1, return_stats=True)  # type: ignore[return-value]
