"""Communication-avoiding conjugate gradients: s steps for each pass over the matrix and each reduction.

For A Hermitian positive definite. A block of s steps begins with r, the s directions before, P = [p_1 .. p_s] with
<p_i, A p_j> = 1 for i = j and 0 else, and their images A P (Chronopoulos and Gear 1989):

    1.  V = [p_0(A) r, .., p_s(A) r] by matrix powers, A V_s^T = V^T B        one pass over A
    2.  inner products of A P and V with A P and V                             one reduction
    3.  v_0 .. v_{s-1} made A-orthonormal to P and each other, one after another, in coordinates: the new P = V_s^T u +
        P^T q and, by B, A P = V^T B u + (A P)^T q; x += P^T l and r -= (A P)^T l with l_i = <p_i, r>
    4.  x, r, P and A P from their coordinates                                 one pass over all

Step j of the block is a step of CG: p_j spans its direction. Unlike the form with two start vectors (Hoemmen 2010),
there is one product a step, as in the classic method, and the matrix is read once for s of them.

Memory moved for s steps, in vectors of n words: the matrix once, s + 1 written by the powers, 2 s + 1 read for inner
products, 3 s + 2 read and 2 s + 2 written in step 4: about 9 for each step, where the classic method moves 10 and the
product's 2, and the matrix, every time.

A P is never computed from P: errors of the recurrence stay. They are looked for in <p_i, A p_j> every few blocks. Where
they are more than a few thousand eps, A P is made anew by s products, and blocks are stricter from then on. (To keep
p_s alone of P moves 2 vectors less for each step, and took up to 3 times the steps of CG; the last s residuals in place
of P and A P 3 less, and took 1.6 times the steps on bcsstk16.)

The first steps are ordinary ones. Their alpha and beta are the Lanczos matrix, whose Ritz values give the basis; as
more steps are made the estimate is renewed, at no cost. Where too little is left of a v_j the block ends with the step
before, and where blocks keep ending early s is halved, and raised again after good ones (Carson's adaptive s); or, if s
was asked for, blocks are from two vectors from then on (:mod:`akx.solvers.ca_cg_pairs`). Ordinary steps in between go
on along the newest direction, unless r has lost its orthogonality to it. The first block after the directions began
takes out of v_j the newest j + 1 of them alone, as their recurrences would.

The distance of the residual of the recurrence from b - A x is bounded on the way. When the bound becomes a share
sqrt(eps) of the residual, as it does on the way down from where r had grown, b - A x is computed, and replaces r if
that is off by 64 times the rounding errors of b - A x itself, about eps ||D x||, D being A's diagonal. (For bcsstk16,
b = 1, rtol 1e-11, 802 to 849 steps in place of 969 to 1,249. With each r replaced for which the bound asks 662_bus took
up to 3% more steps, for nothing.) Wrong images count in the bound by <p_i, A p_j> - <A p_i, p_j>, which is zero for
right ones however conjugate P is.

Source: A. Chronopoulos, C. W. Gear, s-step iterative methods for symmetric linear systems, J. Comput. Appl. Math. 25
(1989); M. Hoemmen, Communication-avoiding Krylov subspace methods, thesis, Berkeley 2010, ch. 5; E. Carson,
Communication-avoiding Krylov subspace methods in theory and practice, thesis, Berkeley 2015, sec. 5.2 and 6.1;
H. van der Vorst, Q. Ye, Residual replacement strategies for Krylov subspace iterative methods, SIAM J. Sci. Comput. 22
(2000).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from akx.core.errors import PlanError
from akx.core.plan import Plan, check_plan
from akx.krylov.bases import check_basis
from akx.solvers.arguments import check_count, check_hermitian
from akx.solvers.ca_cg_queued import BlocksAhead
from akx.solvers.ca_cg_solve import Blocks
from akx.solvers.cg import iterate
from akx.solvers.forms import solve_with
from akx.solvers.many import takes_columns
from akx.solvers.solver_choice import tuned_or
from akx.solvers.system import Answer, make_system

__all__ = ["MOST", "ca_cg", "steps_of"]

#: s of "auto", and the most that is accepted; the basis of "auto".
_AUTO, MOST, _AUTO_BASIS = 4, 20, "chebyshev"
_AUTO_ON_DEVICE = 8


@takes_columns
def ca_cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    s: int | str = "auto",
    basis: str = "auto",
    plan: Plan | None = None,
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for a Hermitian (real symmetric) positive definite A, with s steps for each pass over A.

    Parameters
    ----------
    A, b, x0, rtol, atol, maxiter, threads, db, return_stats
        As for :func:`akx.solvers.cg.cg`.
    M : sparse matrix, array, LinearOperator or preconditioner of :mod:`akx.solvers.preconditioners`, optional
        An approximation of A^-1, Hermitian positive definite. Part of the matrix where it keeps that Hermitian: a
        positive diagonal, of SciPy's or :func:`jacobi`, and :func:`block_jacobi`, whose symmetric forms are taken. With
        any other the method is ``cg``, which a note says: :mod:`akx.solvers.forms` counts why.
    callback : callable, optional
        Called as ``callback(xk)`` after each block of s steps, and after each ordinary step.
    s : int or ``"auto"``
        Most steps for each pass over the matrix, 1 to 20; fewer while rounding errors ask for it. ``"auto"``: as tuned
        for the matrix (:func:`akx.solvers.tune_for`), else 4, on a GPU 8. A number may take two products a step, on a
        CPU: :mod:`akx.solvers.ca_cg_pairs`.
    basis : str
        ``"chebyshev"`` (and ``"auto"``), ``"newton"`` or ``"monomial"``.
    plan : Plan, optional
        For the matrix powers of s steps; by default as for :class:`akx.MatrixPowers`.
    backend : str
        ``"auto"`` or the name of a backend: where b is. On a GPU see :mod:`akx.solvers.ca_cg_queued`.

    Returns
    -------
    x, info, stats
        As of :func:`akx.solvers.cg.cg`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError, PlanError

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = ca_cg(A, np.ones(50), rtol=1e-10, s=4)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    """
    check_hermitian(M, "ca_cg")
    most = steps_of(s, plan)
    check_basis(basis)
    if M is not None:
        return solve_with(
            ca_cg, A, b, x0, M,
            rtol=rtol, atol=atol, maxiter=maxiter, callback=callback, s=s, basis=basis, plan=plan,
            threads=threads, db=db, backend=backend, return_stats=return_stats,
        )  # fmt: skip
    system = make_system(
        "ca_cg", A, b, x0, rtol=rtol, atol=atol, callback=callback, threads=threads, db=db, backend=backend
    )
    limit = check_count("maxiter", maxiter, 10 * system.n, least=0)
    if s == "auto" and plan is None:
        most = tuned_or(_AUTO_ON_DEVICE if system.on_device else most, "ca_cg", system, basis)
    kind = system.stats.basis = _AUTO_BASIS if basis == "auto" else basis
    V = system.rows(4)
    make = BlocksAhead if system.on_device else partial(Blocks, may_pair=s != "auto" and plan is None)
    return iterate(system, V, limit, return_stats, lambda: make(system, V, most, kind, plan, limit).iteration())


def steps_of(s: Any, plan: Plan | None) -> int:
    """Most steps of a block that `s` and `plan` ask for."""
    check_plan(plan)
    if isinstance(s, str) and s == "auto":
        return _AUTO if plan is None else plan.k
    count = check_count("s", s, most=MOST, auto=True)
    if plan is not None and plan.k != count:
        raise PlanError("plan is for another number of steps", expected=f"k = {count}", found=f"k = {plan.k}")
    return count
