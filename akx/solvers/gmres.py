"""GMRES, restarted (Saad, Schultz 1986): the least residual over x0 + span{M r, M A M r, ..., M (A M)^(j-1) r}.

Arnoldi's process from q_0 = r / ||r|| makes Q with A M Q_j^T = Q_{j+1}^T H, H of shape (j+1, j) upper Hessenberg. With
x = x0 + M Q_j^T y the residual has the norm ||beta e_1 - H y||: a small least-squares problem, solved along the way
(:mod:`akx.solvers.hessenberg`), whose residual is known after every step without x. After `restart` steps x is formed,
the true residual computed, and all begins again.

The preconditioner is applied from the right, so that what is minimised and reported is the residual of A x = b itself;
SciPy applies it from the left, and without one both are the same.

Vectors are made orthogonal by classical Gram-Schmidt, two passes over those before, and a third where the loss of
orthogonality asks for it (:mod:`akx.solvers.orthogonalize`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akx.solvers.arnoldi import arnoldi_of
from akx.solvers.gmres_cycles import Cycles
from akx.solvers.system import Answer, make_system

__all__ = ["gmres"]


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for any square A by restarted GMRES.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
    b : array_like, shape (n,) or (n, 1)
    x0 : array_like or ``"Mb"``, optional
        First guess; zero by default. ``"Mb"``: M b.
    rtol, atol : float
        Converged is ||b - A x|| <= max(rtol ||b||, atol).
    restart : int, optional
        Steps of a cycle, n at most; the solver holds restart + 1 vectors. By default 30 (SciPy: 20), and 60 or 120
        where shorter cycles make no progress any more.
    maxiter : int, optional
        Most cycles, as in SciPy; 10 n by default. With a callback of the type ``"legacy"``, most steps.
    M : sparse matrix, array or LinearOperator, shape (n, n), optional
        Approximates the inverse of A; applied from the right.
    callback : callable, optional
    callback_type : str
        ``"pr_norm"`` (default) and ``"legacy"``: called after each step with the residual's norm over that of b;
        ``"x"``: called after each cycle with x. None is ``"legacy"``, as in SciPy.
    threads, db
        As for :class:`akx.MatrixPowers`.
    backend : str
        ``"auto"`` or the name of a backend: where b is.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` as a third value.

    Returns
    -------
    x : ndarray, of b's shape
    info : int
        0: converged. > 0: not, after so many steps. < 0: breakdown; x is the best found.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    system = make_system(
        "gmres", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    cycles = Cycles(system, restart, maxiter, callback_type)
    # Memory movement of step j, in words: A once; Q, j n, once for the products and once to be subtracted, and again
    # where a second round is needed; 3 n for the new vector. Of a cycle of m: m n for x, and a product.
    W = system.rows(cycles.restart + 1)
    arnoldi = arnoldi_of(system, W)
    while cycles.goes_on(W[0]):
        if len(W) <= cycles.restart:
            W = cycles.room(W, cycles.restart + 1)
            arnoldi = arnoldi_of(system, W)
        qr = cycles.begin(arnoldi)
        while qr.size < cycles.restart and cycles.step_allowed() and qr.residual > cycles.aim:
            if not cycles.step(arnoldi, qr):
                break
            cycles.count(qr.residual)
            cycles.tell(qr.residual)
        cycles.end(arnoldi, qr, None if system.M is None else system.precondition)
    return cycles.finish(return_stats)
