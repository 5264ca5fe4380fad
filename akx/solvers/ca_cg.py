"""Communication-avoiding conjugate gradients: s steps for each pass over the matrix and each reduction.

For A Hermitian positive definite. After m steps the next s iterates lie in x_m + span W with the rows

    W = [p_0(A) p, p_0(A) r, p_1(A) p, p_1(A) r, ..., p_{s-1}(A) r, p_s(A) p],   2 s + 1 of them,

which one pass over the matrix makes from p and r. In coordinates q of W, p = W^T p' and so on, a product with A is one
with a small matrix T, the basis' recurrence written out, and an inner product one with the Gram matrix G = conj(W) W^T:

    1.  W by matrix powers,  G                                      one pass over A, one reduction
    2.  p' = e_0,  r' = e_1,  x' = 0,  gamma = G[1, 1]
    3.  s times:  alpha = gamma / <p', T p'>_G,  x' += alpha p',  r' -= alpha T p',
                  gamma' = <r', r'>_G,  beta = gamma' / gamma,  p' = r' + beta p'
    4.  x += W^T x',  r = W^T r',  p = W^T p'                       one pass over W

Memory moved for s steps, in vectors of n words: the matrix once, 2 s + 2 written by the powers, 2 s + 1 read for G,
2 s + 2 read and 3 written in step 4: about 6 for each step, where the classic method moves 10 and the product's 2, and
the matrix, every time. The products are 2 s for s steps: where arithmetic and not memory is the limit that is what a
step costs. On two cores of a (shared, busy) EPYC VM, with plans that were not tuned and s = 8, a step took 8.3 ms where
one of CG took 6.8 (9-point, 1000 x 1000) and 9.2 where it took 5.4 (shell): there CG is the faster.

The first steps are ordinary ones. Their alpha and beta are the Lanczos matrix, whose Ritz values give the basis; as
more steps are made the estimate is renewed, at no cost. The inner products of step 3 carry a rounding error of eps
times the sum of their terms' moduli: where that is too large a share of the value the block ends with the step before,
and where blocks keep ending early s is halved, and doubled again after good ones (Carson's adaptive s, with the bound
computed rather than estimated). The distance of the residual of the recurrence from the true one is bounded on the way,
and when it is a share sqrt(eps) of the residual, the true one replaces it while that still changes nothing else.

Source: M. Hoemmen, Communication-avoiding Krylov subspace methods, thesis, Berkeley 2010, ch. 5; E. Carson,
Communication-avoiding Krylov subspace methods in theory and practice, thesis, Berkeley 2015, alg. 12, sec. 5.2 and 6.1;
H. van der Vorst, Q. Ye, Residual replacement strategies for Krylov subspace iterative methods, SIAM J. Sci. Comput. 22
(2000).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.errors import PlanError
from akx.kernels.cpu.vectors import VectorWork
from akx.plan import Plan, check_plan
from akx.solvers.arguments import check_count
from akx.solvers.bases import check_basis
from akx.solvers.ca_cg_ahead import BlocksAhead
from akx.solvers.ca_cg_block import Block, Shifts, block_steps, recurrence_matrix
from akx.solvers.cg import Steps, first_residual
from akx.solvers.folding import solve_with
from akx.solvers.stopping import Claims
from akx.solvers.system import Answer, System, make_system

__all__ = ["ca_cg"]

#: s of "auto", and the most that is accepted; the basis of "auto".
_AUTO, _MOST, _AUTO_BASIS = 8, 30, "chebyshev"
#: Ordinary steps at the beginning, for each of the s.
_FIRST = 2
#: Fewest steps for which a block is worth its two products a step; below, steps are ordinary.
_LEAST = 3
#: Blocks in a row without an early end, after which s is doubled.
_GOOD = 6


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
    A : sparse matrix or array, shape (n, n), or Matrix
    b : array_like, shape (n,) or (n, 1)
    x0 : array_like, optional
        First guess; zero by default.
    rtol, atol : float
        Converged where ||b - A x|| <= max(rtol ||b||, atol), by the true residual.
    maxiter : int, optional
        Most steps, counted as those of :func:`akx.solvers.cg.cg`; 10 n by default.
    M : preconditioner of :mod:`akx.solvers.preconditioners`, optional
        One that can be made part of the matrix, and keeps it Hermitian: :func:`jacobi`.
    callback : callable, optional
        Called as ``callback(xk)`` after each block of s steps, and after each ordinary step.
    s : int or ``"auto"``
        Most steps for each pass over the matrix, 1 to 30, by default 8; fewer while rounding errors ask for it.
    basis : str
        ``"chebyshev"`` (and ``"auto"``), ``"newton"`` or ``"monomial"``.
    plan : Plan, optional
        For the matrix powers of s steps; by default as for :class:`akx.MatrixPowers`, for two start vectors.
    threads, db
        As for :class:`akx.MatrixPowers`.
    backend : str
        ``"cpu"``, ``"cuda"``, or ``"auto"``: where b is. On a GPU see :mod:`akx.solvers.ca_cg_ahead`.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too.

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
    if M is not None:
        return solve_with(
            ca_cg, A, b, x0, M,
            rtol=rtol, atol=atol, maxiter=maxiter, callback=callback, s=s, basis=basis, plan=plan,
            threads=threads, db=db, backend=backend, return_stats=return_stats,
        )  # fmt: skip
    most = _steps_of(s, plan)
    check_basis(basis)
    system = make_system(
        "ca_cg", A, b, x0, rtol=rtol, atol=atol, callback=callback, threads=threads, db=db, backend=backend
    )
    limit = check_count("maxiter", maxiter, 10 * system.n, least=0)
    if system.on_device:
        kind = _AUTO_BASIS if basis == "auto" else basis
        return BlocksAhead(system, 8 if s == "auto" and plan is None else most, kind, plan).run(limit, return_stats)
    return _Solve(system, most, basis, plan).run(limit, return_stats)


def _steps_of(s: Any, plan: Plan | None) -> int:
    check_plan(plan)
    if isinstance(s, str) and s == "auto":
        return _AUTO if plan is None else plan.k
    count = check_count("s", s, most=_MOST, auto=True)
    if plan is not None and plan.k != count:
        raise PlanError("plan is for another number of steps", expected=f"k = {count}", found=f"k = {plan.k}")
    return count


class _Solve:
    """One solve: V = [p, w, r, x] for ordinary steps; W (2 s + 2, n) for blocks, its first rows p and r."""

    def __init__(self, system: System, most: int, kind: str, plan: Plan | None) -> None:
        self.system, self.stats = system, system.stats
        self.work = VectorWork(system.dtype, system.threads)
        self.V = system.rows(4)
        self.W = system.rows(0)
        self.in_block = False  # whether p and r are in W
        self.steps = Steps(system, self.V)
        self.claims = Claims(system)
        self.most = self.s = most
        self.plan = plan
        self.shifts = Shifts(_AUTO_BASIS if kind == "auto" else kind, real=system.dtype.kind != "c")
        self.good, self.patience = 0, _GOOD
        self.eps = float(np.finfo(system.dtype).eps)
        self.drift, self.replaced = 0.0, 0
        self.stats.basis = self.shifts.kind

    def run(self, limit: int, return_stats: bool) -> Answer:
        system, stats, steps, V = self.system, self.stats, self.steps, self.V
        norm = first_residual(system, V[3], V[2])
        if norm <= system.target:
            why = "b is zero" if system.norm_b == 0 else "the first guess is good enough"
            return system.finish(V[3], info=0, reason=why, iterations=0, return_stats=return_stats)
        ordinary = _FIRST * self.most if self.most > 1 else limit
        info, reason = max(limit, 1), "the steps ran out"
        why = steps.begin(norm)
        while not why and stats.iterations < limit:
            why = self._ordinary() if stats.iterations < ordinary or self.s == 1 else self._block(limit)
            if not why and steps.norm <= system.target:
                if self.claims.check(V[3], V[1], steps.norm):
                    info, reason = 0, "converged"
                    break
                if self.claims.is_futile:
                    info, reason = stats.iterations, self.claims.reason()
                    break
                V[2] = V[1]
                self.in_block, self.drift = False, 0.0
                self.shifts.close()
                why = steps.begin(self.claims.true)
        if why:
            info, reason = -1, "breakdown: " + why
        if self.replaced:
            stats.notes.append(f"residual replaced {self.replaced} times before it could drift away")
        iterations = stats.iterations
        return system.finish(V[3], info=info, reason=reason, iterations=iterations, return_stats=return_stats)

    def _ordinary(self) -> str:
        """One step as the classic method does it."""
        if self.in_block:
            self.V[0], self.V[2] = self.W[0], self.W[1]
            self.in_block = False
            self.steps.resume(float(np.linalg.norm(self.V[2])))
        begun = len(self.steps.alphas)
        why = self.steps.step()
        if len(self.steps.alphas) <= begun:
            self.shifts.close()
        elif not why:
            self.shifts.add(self.steps.alphas[-1:], self.steps.betas[-1:])
            if self.s < self.most:
                self._count(1)
        return why

    def _block(self, limit: int) -> str:
        """Up to s steps by one pass over the matrix; why there can be no more, or nothing."""
        system, stats, s, V = self.system, self.stats, self.s, self.V
        m = 2 * s + 1
        if len(self.W) != m + 1:
            start = (self.W[0], self.W[1]) if self.in_block else (V[0], V[2])
            self.W = system.rows(m + 1)
            self.W[0], self.W[1] = start
        elif not self.in_block:
            self.W[0], self.W[1] = V[0], V[2]
        self.in_block = True
        W, basis = self.W, self.shifts.basis(s)
        # 1. both bases in one pass, and one reduction
        system.powers(W[:2], W.reshape(s + 1, 2, -1), basis, self.plan if s == self.most else None)
        with stats.phase("vectors"):
            G = self.work.gram(W[:m])
        # 2. and 3. the steps in coordinates
        with stats.phase("small"):
            most = min(s, limit - stats.iterations) if np.isfinite(G).all() else 0
            T = recurrence_matrix(basis, G.dtype)
            found = block_steps(G, T, most, system.target, self.eps)
        stats.s.append(found.made)
        if found.made == 0:
            self._count(0)
            return self._ordinary()
        # 4. back to vectors
        with stats.phase("vectors"):
            self.work.advance(found.C, W[:m], V[3])
        stats.iterations += found.made
        stats.residuals += found.norms.tolist()
        self.shifts.add(found.alphas, found.betas)
        self.steps.norm = float(found.norms[-1])
        self._watch(found, G)
        system.tell(V[3])
        self._count(found.made if found.made < most else s)
        return self.steps.grown()

    def _watch(self, found: Block, G: NDArray[Any]) -> None:
        """Bound how far the residual has drifted from b - A x; replace it where that is sqrt(eps) of its norm.

        Rounding x and r in step 4 changes b - A x - r by eps times the moduli of what is added up (van der Vorst and Ye
        2000, sec. 3; Carson 2015, sec. 5.2), sizes of the rows of W being the roots of G's diagonal.
        """
        norm, before = self.steps.norm, self.drift
        moduli = np.abs(found.C) @ np.sqrt(np.abs(G.diagonal().real))
        self.drift += self.eps * float(self.shifts.largest * moduli[0] + moduli[2])
        limit = np.sqrt(self.eps) * norm
        if norm <= self.system.target or self.drift <= limit or before > limit:
            return
        # Once only on the way down: where eps |A| |x| is that much, another replacement would bring no more.
        r = self.V[1]
        norm = self.system.residual(self.V[3], r)
        self.drift = self.eps * (self.shifts.largest * float(np.linalg.norm(self.V[3])) + norm)
        self.W[1] = r
        self.steps.norm = norm
        self.replaced += 1

    def _count(self, made: int) -> None:
        """Halve s after a block of so few steps, double it after several good ones."""
        if made < self.s:
            self.good = 0
            if 2 * made <= self.s:
                self.s = self.s // 2 if self.s // 2 >= _LEAST else 1
                self.patience *= 2
                self.stats.notes.append(f"step {self.stats.iterations}: s lowered to {self.s}")
            return
        self.good += 1
        if self.good >= self.patience * (self.most if self.s == 1 else 1) and self.s < self.most:
            self.s, self.good = min(self.most, max(2 * self.s, _LEAST)), 0
            self.stats.notes.append(f"step {self.stats.iterations}: s raised to {self.s}")
