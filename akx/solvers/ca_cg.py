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
product's 2, and the matrix, every time. With two start vectors they are 6, but products are two a step, and a block of
the matrix in cache has to be gone through for each.

A P is never computed from P: errors of the recurrence stay. They are looked for in <p_i, A p_j> every few blocks. Where
they are more than a few thousand eps, A P is made anew by s products, and blocks are stricter from then on. (To keep
p_s alone of P, from which the others follow, would move 2 vectors less for each step. It lost the accuracy: x no longer
went with r, and steps on the real matrices were up to 3 times those of CG. So did keeping the last s residuals, whose
images the coefficients of CG tell, and one direction in place of P and A P, which would move 3 vectors less: as many
steps as CG on six of eight systems, and more of them a pass, but 1.6 times as many on bcsstk16, where r had to be made
anew late, and none to the end on nasa4704, s = 8.)

The first steps are ordinary ones. Their alpha and beta are the Lanczos matrix, whose Ritz values give the basis; as
more steps are made the estimate is renewed, at no cost. Where too little is left of a v_j the block ends with the step
before, and where blocks keep ending early s is halved, and raised again after good ones (Carson's adaptive s). The
distance of the residual of the recurrence from the true one is bounded on the way, and when it is a share sqrt(eps) of
the residual, the true one replaces it while that still changes nothing else.

Source: A. Chronopoulos, C. W. Gear, s-step iterative methods for symmetric linear systems, J. Comput. Appl. Math. 25
(1989); M. Hoemmen, Communication-avoiding Krylov subspace methods, thesis, Berkeley 2010, ch. 5; E. Carson,
Communication-avoiding Krylov subspace methods in theory and practice, thesis, Berkeley 2015, sec. 5.2 and 6.1;
H. van der Vorst, Q. Ye, Residual replacement strategies for Krylov subspace iterative methods, SIAM J. Sci. Comput. 22
(2000).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.errors import PlanError
from akx.plan import Plan, check_plan
from akx.solvers.arguments import check_count, check_hermitian
from akx.solvers.bases import check_basis
from akx.solvers.ca_cg_ahead import BlocksAhead
from akx.solvers.ca_cg_block import Pace, Shifts, block_steps
from akx.solvers.cg import Steps, first_residual
from akx.solvers.chosen import tuned_or
from akx.solvers.folding import solve_with
from akx.solvers.stopping import Claims
from akx.solvers.system import Answer, System, make_system
from akx.solvers.watch import ENDED

__all__ = ["MOST", "ca_cg"]

#: s of "auto", and the most that is accepted; the basis of "auto".
_AUTO, MOST, _AUTO_BASIS = 4, 20, "chebyshev"
_AUTO_ON_DEVICE = 8
#: Ordinary steps at the beginning, for each of the s.
_FIRST = 2
#: Fewest steps for which a block is worth its vector work; below, steps are ordinary.
_LEAST = 2
#: Blocks after which the directions' images are looked at, and the multiple of eps by which they may be wrong.
_LOOK, _WRONG = 8, 4096
#: Most that blocks get stricter about what they trust, four times each time that images were wrong.
_STRICT = 16.0


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
        Most steps for each pass over the matrix, 1 to 20; fewer while rounding errors ask for it. ``"auto"``: as tuned
        for the matrix (:func:`akx.solvers.tune_for`), else 4.
    basis : str
        ``"chebyshev"`` (and ``"auto"``), ``"newton"`` or ``"monomial"``.
    plan : Plan, optional
        For the matrix powers of s steps; by default as for :class:`akx.MatrixPowers`.
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
    check_hermitian(M, "ca_cg")
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
        if s == "auto" and plan is None:
            most = tuned_or(_AUTO_ON_DEVICE, "ca_cg", system, basis)
        return BlocksAhead(system, most, kind, plan).run(limit, return_stats)
    if s == "auto" and plan is None:
        most = tuned_or(most, "ca_cg", system, basis)
    return _Solve(system, most, basis, plan).run(limit, return_stats)


def _steps_of(s: Any, plan: Plan | None) -> int:
    check_plan(plan)
    if isinstance(s, str) and s == "auto":
        return _AUTO if plan is None else plan.k
    count = check_count("s", s, most=MOST, auto=True)
    if plan is not None and plan.k != count:
        raise PlanError("plan is for another number of steps", expected=f"k = {count}", found=f"k = {plan.k}")
    return count


class _Solve:
    """One solve: V = [p, w, r, x] for ordinary steps; W = [P, A P, v_0 .. v_s], 3 s + 1 rows, for blocks, v_0 = r.

    The newest of the directions are last; `have` of them are there, and the rows before these are zero.
    """

    def __init__(self, system: System, most: int, kind: str, plan: Plan | None) -> None:
        self.system, self.stats = system, system.stats
        self.work = system.work
        self.V = system.rows(4)
        self.W = system.rows(0)
        self.in_block = False  # whether r is in W
        self.have, self.whole = 0, True  # `whole`: these are all since r itself was the direction
        self.length = 0.0  # what x moved along the newest direction
        self.since = 0  # blocks since the images of directions were looked at
        self.steps = Steps(system, self.V)
        self.claims = Claims(system)
        self.most, self.pace = most, Pace(most, _LEAST, system.stats)
        self.plan = plan
        self.shifts = Shifts(_AUTO_BASIS if kind == "auto" else kind, real=system.dtype.kind != "c")
        self.eps = float(np.finfo(system.dtype).eps)
        self.drift, self.replaced, self.renewed = 0.0, 0, 0
        self.care = 1.0
        self.stats.basis = self.shifts.kind

    @property
    def s(self) -> int:
        """Steps of the next block."""
        return self.pace.s

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
            if system.ended():
                info, reason = max(stats.iterations, 1), ENDED
                break
            if stats.iterations >= ordinary and self.s > 1 and (self.whole or self.have >= self.s):
                why = self._block(limit)
            else:
                why = self._ordinary(keep=self.s > 1 and stats.iterations >= ordinary - self.s)
            if not why and steps.norm <= system.target:
                if self.claims.check(V[3], V[1], steps.norm):
                    info, reason = 0, "converged"
                    break
                if self.claims.is_futile:
                    info, reason = stats.iterations, self.claims.reason()
                    break
                V[2] = V[1]
                self.in_block, self.drift = False, 0.0
                self._forget(whole=True)
                self.shifts.close()
                why = steps.begin(self.claims.true)
        if why:
            info, reason = -1, "breakdown: " + why
        for times, what in ((self.replaced, "residual replaced"), (self.renewed, "images of directions made anew")):
            if times:
                stats.notes.append(f"{what} {times} times before it could drift away")
        iterations = stats.iterations
        return system.finish(V[3], info=info, reason=reason, iterations=iterations, return_stats=return_stats)

    def _forget(self, *, whole: bool) -> None:
        """The directions before are of no use any more; `whole`: the next one is r."""
        self.have, self.whole = 0, whole
        self.W[: 2 * self._slots] = 0

    @property
    def _slots(self) -> int:
        """Directions that W has room for."""
        return len(self.W) // 3

    def _room(self) -> None:
        """Rows for blocks of s steps, what is in W included."""
        s, old, before = self.s, self.W, self._slots
        if before == s:
            return
        self.W = self.system.rows(3 * s + 1)
        self.W[: 2 * s] = 0
        self.whole = self.whole and self.have <= s
        self.have = min(self.have, s)
        for j in range(1, self.have + 1):
            self.W[s - j], self.W[2 * s - j] = old[before - j], old[2 * before - j]
        if self.in_block:
            self.W[2 * s] = old[2 * before]

    def _ordinary(self, *, keep: bool) -> str:
        """One step as the classic method does it; `keep` its direction for a block to come."""
        steps, V = self.steps, self.V
        if self.in_block:
            V[2] = self.W[2 * self._slots]
            V[0] = V[2]
            if self.have:  # the direction that CG has now: r + beta p, from the newest one as x moved along it
                V[0] += np.asarray(steps.norm**2 / np.conj(self.length), V.dtype) * self.W[self._slots - 1]
            self.in_block = False
            steps.resume(steps.norm)
        s = self.s
        if keep:
            self._room()
            with self.stats.phase("vectors"):
                for j in [*range(s - 1), *range(s, 2 * s - 1)]:
                    self.W[j] = self.W[j + 1]
                self.W[s - 1] = V[0]
        begun, norm = len(steps.alphas), steps.norm
        why = steps.step()
        if len(steps.alphas) <= begun:
            self._forget(whole=False)
            self.shifts.close()
        elif not why:
            alpha = steps.alphas[-1]
            self.shifts.add(steps.alphas[-1:], steps.betas[-1:])
            if keep:
                with self.stats.phase("vectors"):
                    np.multiply(self.W[s - 1], np.sqrt(alpha) / norm, out=self.W[s - 1])
                    np.multiply(V[1], np.sqrt(alpha) / norm, out=self.W[2 * s - 1])
                self.whole = self.whole and self.have < s
                self.have, self.length = min(self.have + 1, s), np.sqrt(alpha) * norm
        if not keep and self.have + self.whole:
            self._forget(whole=False)
        if not why and self.s == 1 < self.most:
            self.pace.count(1)
        return why

    def _block(self, limit: int) -> str:
        """Up to s steps by one pass over the matrix; why there can be no more, or nothing."""
        system, stats, s, V = self.system, self.stats, self.s, self.V
        self._room()
        W, basis = self.W, self.shifts.basis(s)
        if not self.in_block:
            W[2 * s] = V[2]
        self.in_block = True
        # 1. the basis in one pass
        system.powers(W[2 * s : 2 * s + 1], W[2 * s :, None], basis, self.plan if s == self.most else None)
        # 2. one reduction
        G, E, e = self._products()
        # 3. the steps in coordinates
        with stats.phase("small"):
            most = min(s, limit - stats.iterations) if np.isfinite(G).all() else 0
            found = block_steps(G, basis.matrix(), most, system.target, self.care, E, e)
        stats.s.append(s)
        if found.made == 0:
            self.pace.count(0)
            return self._ordinary(keep=self.s > 1)
        # 4. back to vectors
        with stats.phase("vectors"):
            C = found.rows()
            self.work.advance(C, W, V[3])
        stats.iterations += found.made
        stats.residuals += found.norms.tolist()
        self.shifts.add(found.alphas, found.betas)
        self.whole = self.whole and self.have + found.made <= s
        self.have, self.length = min(self.have + found.made, s), found.lengths[-1]
        self.steps.norm = float(found.norms[-1])
        self._watch(C[:, s:], G)
        system.tell(V[3])
        self.pace.count(found.made if found.made < most else s)
        return self.steps.grown()

    def _products(self) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
        """Inner products of A P and V; now and then of P with A P and r as well, where A P is found out to be wrong."""
        s, W, have = self.s, self.W, self.have
        self.since = (self.since + 1) % _LOOK
        with self.stats.phase("vectors"):
            G = self.work.gram(W if self.since == 0 else W[s:])
        if self.since:
            return G, None, None
        wrong = np.abs(G[s - have : s, 2 * s - have : 2 * s] - np.eye(have)).max(initial=0.0)
        if wrong > _WRONG * self.eps and np.isfinite(G).all():
            for j in range(s - have, s):
                self.system.product(W[j], W[s + j])
            self.renewed += 1
            self.care = min(_STRICT, 4 * self.care)
            with self.stats.phase("vectors"):
                G = self.work.gram(W)
        return G[s:, s:], G[:s, s : 2 * s], G[:s, 2 * s]

    def _watch(self, C: NDArray[Any], G: NDArray[Any]) -> None:
        """Bound how far the residual has drifted from b - A x; replace it where that is sqrt(eps) of its norm.

        Rounding x and r in step 4 changes b - A x - r by eps times the moduli of what is added up (van der Vorst and Ye
        2000, sec. 3; Carson 2015, sec. 5.2), sizes of the rows of W being the roots of G's diagonal.
        """
        norm, before = self.steps.norm, self.drift
        moduli = np.abs(C[[0, -1]]) @ np.sqrt(np.abs(G.diagonal().real))
        self.drift += self.eps * float(self.shifts.largest * moduli[0] + moduli[1])
        limit = np.sqrt(self.eps) * norm
        if norm <= self.system.target or self.drift <= limit or before > limit:
            return
        # Once only on the way down: where eps |A| |x| is that much, another replacement would bring no more.
        r = self.V[1]
        norm = self.system.residual(self.V[3], r)
        self.drift = self.eps * (self.shifts.largest * float(np.linalg.norm(self.V[3])) + norm)
        self.W[2 * self._slots] = r
        self.steps.norm = norm
        self.since = -1
        self.replaced += 1
