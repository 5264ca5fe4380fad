"""Conjugate gradients (Hestenes and Stiefel 1952), the vector work in three passes.

For A and M Hermitian positive definite, beginning with p = u = M r:

    1.  w = A p
    2.  alpha = <r, u> / <p, w>
    3.  r -= alpha w,  u = M r
    4.  beta = <r, u> / <r, u> of the step before
    5.  x += alpha p,  p = u + beta p

The order of Chronopoulos and Gear (1989) has a single reduction, but moves 11 vectors and takes more steps: 614 instead
of 598 for 662_bus, 12,570 instead of 12,020 for nasa4704, rtol 1e-8.

Source: M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, J. Res. Natl. Bur. Stand.
49 (1952) 409-436.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from akx.core.errors import PlanError
from akx.solvers.arguments import check_count, check_hermitian
from akx.solvers.cg_steps import AheadSteps, Steps
from akx.solvers.many import takes_columns
from akx.solvers.monitor import ENDED
from akx.solvers.scaling import eps_of
from akx.solvers.stopping import NO_SOLUTION, Claims
from akx.solvers.symmetry import is_hermitian, skew_shift
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["Iteration", "cg", "iterate", "steps_of"]


@takes_columns
def cg(
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
    """Solve A x = b for a Hermitian (real symmetric) positive definite A.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
    b : array_like, shape (n,), or (n, m) for several right-hand sides (:mod:`akx.solvers.many`)
    x0 : array_like or ``"Mb"``, optional
        First guess; zero by default. ``"Mb"``: M b.
    rtol, atol : float
        Converged where ||b - A x|| <= max(rtol ||b||, atol), by the true residual.
    maxiter : int, optional
        Most steps; 10 n by default.
    M : sparse matrix, array, LinearOperator or str, optional
        Preconditioner, an approximation of A^-1, Hermitian positive definite; or the name of one of akx's, as for
        :func:`akx.solvers.solve`.
    callback : callable, optional
        Called as ``callback(xk)`` after each step.
    threads, db
        As for :class:`akx.MatrixPowers`.
    backend : str
        ``"auto"`` or the name of a backend: where b is.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too.

    Returns
    -------
    x : ndarray of b's shape
    info : int
        0: converged. > 0: the number of steps, where they ran out or nothing more could be gained. -1: breakdown, as
        with a matrix that is not positive definite. -2: the system has no solution. Where it is negative x is the best
        one found.
    stats : SolveStats
        With `return_stats`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = cg(A, np.ones(50), rtol=1e-10)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    """
    check_hermitian(M, "cg")
    system = make_system(
        "cg", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    limit = check_count("maxiter", maxiter, 10 * system.n, least=0)
    V = system.rows(4 if system.M is None else 5)
    return iterate(system, V, limit, return_stats, lambda: _iteration(system, V, limit))


#: Residuals whose squares say nothing; with their products by A.
_LEAST = 1e-140


class Recurrence(Protocol):
    """What makes the steps of a solve; `norm` is that of the residual by the recurrence."""

    norm: float

    def begin(self, norm: float) -> str:
        """Begin at the residual r, whose norm is known; why that cannot be, or nothing."""

    def failed(self, why: str, otherwise: tuple[int, str]) -> tuple[int, str]:
        """info and reason of a solve that ended without an answer: after a breakdown, or as `otherwise` says."""

    def recover(self) -> None:
        """Where the steps ran out at an x that is far from the best: make that again, where it was not kept."""

    def descends(self) -> bool:
        """Whether an x whose residual has grown may be nearer to the solution all the same."""


#: Who makes the steps of a solve; one or several of them, or why there can be no more; what takes those that have been
#: queued, so that vectors are as the record says; what is done before directions begin anew; notes in the end.
Iteration = tuple[Recurrence, Callable[[], str], Callable[[], None], Callable[[], object], Callable[[], list[str]]]


def iterate(system: System, V: Rows, limit: int, return_stats: bool, make_iteration: Callable[[], Iteration]) -> Answer:
    """Steps on V = [.., w, r, x, ...] until the true residual is small enough, at most `limit`.

    The residual of the recurrence drifts from b - A x. When it meets the tolerance the true one is computed; where that
    is larger it takes the other's place and the directions begin anew.

    Memory moved for each step of CG beside the product's own, in vectors of n words: 2 read for <p, w>; 2 read and 1
    written in step 3, which forms <r, r> too; 3 read and 2 written in step 5: 10 in all, and 2 for <r, u> with M.
    """
    stats, x, w, r = system.stats, V[3], V[1], V[2]
    norm = _first_residual(system, x, r)
    if norm <= system.target:
        why = "b is zero" if system.norm_b == 0 else "the first guess is good enough"
        known = norm if system.norm_b else None
        return system.finish(x, info=0, reason=why, iterations=0, return_stats=return_stats, residual=known)
    steps, step, settle, forget, notes = make_iteration()
    claims = Claims(system)
    info, reason, true = max(limit, 1), "the steps ran out", None
    is_lost = norm < _LEAST
    why = "" if is_lost else steps.begin(norm)
    while not why and not is_lost and stats.iterations < limit:
        if system.ended(settle):
            info, reason = max(stats.iterations, 1), ENDED
            break
        # What was taken when a watch looked may have come to the end.
        why = step() if steps.norm > system.target and stats.iterations < limit else ""
        if not why and steps.norm <= system.target:
            settle()  # x is to be that of the last step counted
            if claims.check(x, w, steps.norm):
                info, reason, true = 0, "converged", claims.true
                break
            if claims.is_futile:
                info, reason = stats.iterations, claims.give_up(x)
                break
            r[:] = w
            forget()
            is_lost = claims.true < _LEAST
            why = "" if is_lost else steps.begin(claims.true)
    else:
        settle()  # x is to be that of the last step counted
        if not why:
            steps.recover()
    if is_lost:
        info, reason = max(stats.iterations, 1), "stagnation: the square of a smaller residual would vanish"
    elif why or claims.is_futile:
        info, reason = steps.failed(why, (info, reason))
    stats.notes += notes()
    if info not in (0, NO_SOLUTION) and reason != ENDED and (unfit := _unfit(system)):
        reason = f"{unfit}: {reason}"
    said = {"info": info, "reason": reason, "iterations": stats.iterations, "residual": true}
    return system.finish(x, return_stats=return_stats, descends=steps.descends, **said)  # type: ignore[arg-type]


def _unfit(system: System) -> str:
    """That A or M is not what these methods are for, or nothing: looked at where they have failed."""
    matrix, method = system.matrix, system.stats.method
    is_skew = method.endswith("minres") and skew_shift(matrix) is not None
    if not (is_hermitian(matrix) or is_skew):
        return f"A is not Hermitian, which {method} needs, gmres and bicgstab do not"
    if system.M is None or system.diagonal is not None:
        return ""
    u, v = np.random.default_rng(0).standard_normal((2, system.n)).astype(system.dtype)
    U = system.rows(4)
    for i, one in enumerate((u, v)):
        U[i] = system.work.from_host(one)
        U[2 + i] = system.precondition(U[i])
    off = abs(system.work.dot(U, 0, 3) - np.conj(system.work.dot(U, 1, 2)))
    is_wrong = off > eps_of(system.dtype) ** 0.5 * system.work.norm(U[0]) * system.work.norm(U[3])
    return f"M is not Hermitian, or not linear, which {method} needs" if is_wrong else ""


def _first_residual(system: System, x: Rows, r: Rows) -> float:
    """x = the first guess and r = b - A x, for b = 0 both zero; the norm of r, which is noted."""
    x[:] = system.x
    if system.norm_b == 0:
        x[:] = 0
    if system.norm_b == 0 or system.zero_guess:
        r[:], norm = system.b, system.norm_b
    else:
        norm = system.residual(x, r)
    system.stats.residuals.append(norm)
    return norm


def _iteration(system: System, V: Rows, limit: int) -> Iteration:
    """The steps of a system, queued ahead on a device: but for preconditioners other than a positive diagonal.

    Raises PlanError where the plan streams the matrix, which cannot be queued, and there is no preconditioner.
    """
    steps = steps_of(system, V, limit)
    return steps, steps.step, steps.settle, list, list


def steps_of(system: System, V: Rows, limit: int) -> Steps:
    """The steps alone, on V = [p, w, r, x] and u."""
    steps: Steps | None = None
    if system.on_device:
        if system.M is None:
            steps = AheadSteps(system, V, limit)
        elif (diagonal := system.positive_diagonal()) is not None:
            with suppress(PlanError):
                steps = AheadSteps(system, V, limit, diagonal)
    return Steps(system, V) if steps is None else steps
