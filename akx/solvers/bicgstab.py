"""BiCGStab (van der Vorst 1992), two products a step; :mod:`akx.solvers.bicgstab_steps` has its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akx.solvers.arguments import check_count
from akx.solvers.bicgstab_steps import Recurrence, iterate
from akx.solvers.many import takes_columns
from akx.solvers.singular import why_no_solution
from akx.solvers.system import Answer, make_system

__all__ = ["bicgstab"]


@takes_columns
def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for any square A, real or complex.

    Parameters
    ----------
    A, b, x0, rtol, atol, threads, db, backend, return_stats
        As for :func:`akx.solvers.cg.cg`.
    maxiter : int, optional
        Most steps, of two products each; 10 n by default.
    M : sparse matrix, array or LinearOperator, optional
        Preconditioner from the right, an approximation of A^-1.
    callback : callable, optional
        Called with x after each step.

    Returns
    -------
    x : ndarray
        In the shape of b.
    info : int
        0 where converged; the number of steps where they ran out or the attainable accuracy was met first; -10, -11 or
        -12 for a breakdown that a new beginning does not cure; -2 for a system without a solution. Where it is negative
        x is the best one found.
    stats : SolveStats
        With `return_stats`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    system = make_system(
        "bicgstab", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    most, step = check_count("maxiter", maxiter, 10 * system.n, least=0), lambda state, _: state.step()
    return iterate(Recurrence(system), most, step, why_no_solution=why_no_solution, return_stats=return_stats)
