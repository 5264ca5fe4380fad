"""Communication-avoiding BiCGStab (Carson, Knight, Demmel 2013): s steps for one pass over the matrix.

Every vector of the next s steps of BiCGStab lies in the span of Y = [P, R], the bases of 2s steps of p and of 2s - 1
steps of r, with A Y c = Y B c for the small matrix B of the bases' recurrence. With the Gram matrix G = Y^H Y and
g = r~^H Y the s steps are done on coordinates p', r', x' (p = Y p', r = Y r', x = x_m + Y x'):

    1. Y by matrix powers of the two start vectors p and r, in one pass over the matrix
    2. G and g in one pass over Y
    3. for j = 0 .. s-1:
           alpha = g.r' / g.Bp',   q' = r' - alpha Bp',   t' = Bq',   omega = (t', G q') / (t', G t')
           x' += alpha p' + omega q',   r'_next = q' - omega t'
           beta = g.r'_next / g.r' * alpha / omega,   p'_next = r'_next + beta (p' - omega Bp')
    4. p, r, x from their coordinates in one pass over Y

Words moved for s steps, in n: 4s to make Y beside the matrix, 4s + 3 to read it with r~ for G and g, 4s + 2 to read it
for p, r, x, and 17 for those and r~: 12s + 22, where s classic steps move 21s and read the matrix 2s times. In
multiply-adds it takes 4s products instead of 2s, and (4s + 3)^2 n / 2 for G.

The first s steps are ordinary ones: their coefficients are those of BiCG, whose tridiagonal matrix has the Ritz values
that the basis is made from; so have those of the steps after them.

How far coordinates can be trusted. Rounding errors of r are eps (|r'|, |y|), with |y| the norms of the basis' vectors,
so that the amplification (|r'|, |y|) / ||r|| is known after each step. The block ends before a step for which it passes
0.01 / sqrt(eps), and s is halved for the next (after Carson's adaptive s-step methods, 2018); after several good blocks
it is doubled. After a breakdown steps are ordinary for a while, longer each time; where beginnings are in vain, to the
end of the solve.

What it costs in steps. A relative error of 1e-12 in each r takes 1.2 times the steps on epb0, so r is replaced by
b - A x only where it claims to be small enough: more of it takes 1.19 instead of 1.02 times the steps for epb0. The
Chebyshev basis amplifies errors less than Newton's: 1.02 instead of 1.16 times (medians of five right-hand sides, rtol
1e-8, s = 4; docs/parity.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.vectors import MOST_ROWS
from akx.core.basis import Basis
from akx.core.errors import PlanError
from akx.core.plan import Plan, check_plan
from akx.krylov.bases import basis_of, check_basis
from akx.solvers.arguments import check_count
from akx.solvers.bicgstab_steps import NOISE, Recurrence, iterate
from akx.solvers.forms import solve_with
from akx.solvers.many import takes_columns
from akx.solvers.singular import why_no_solution
from akx.solvers.solver_choice import tuned_or
from akx.solvers.system import Answer, make_system

__all__ = ["ca_bicgstab"]

#: Steps for each basis where nothing is asked for: its vectors are of degree 8, and G costs 180 multiply-adds a row.
_AUTO, _AUTO_BASIS = 4, "chebyshev"
#: Good blocks after which s is raised again, and most Ritz values.
_GOOD, _RITZ = 4, 32
#: Ordinary steps after the first breakdown of a block; twice as many after each further one.
_ORDINARY = 32
#: Rows for each of the s below which 2 s steps are ordinary at first.
_SMALL = 64
#: Amplification that is allowed, over 1 / sqrt(eps).
_LIMIT = 0.01
#: The largest s: as many vectors as a Gram matrix is made of.
_MOST = (MOST_ROWS - 3) // 4


@takes_columns
def ca_bicgstab(
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
    """Solve A x = b for any square A, reading it once for s steps.

    Parameters
    ----------
    A, b, x0, rtol, atol, threads, db, backend, return_stats
        As for :func:`akx.solvers.bicgstab`.
    maxiter : int, optional
        Most steps, of two products each in the classic method; 10 n by default.
    M : sparse matrix, array, LinearOperator or preconditioner of :mod:`akx.solvers.preconditioners`, optional
        An approximation of A^-1. Part of the matrix where it can be made that: a diagonal, and a sparse matrix with
        which A M has no more entries than A and M. With any other the method is ``bicgstab``, which a note says: blocks
        take twice the products, and with M between them twice the uses of M.
    callback : callable, optional
        Called with x after each block of up to s steps.
    s : int or ``"auto"``
        Most steps for each pass over the matrix, 1 to 15; its bases are of degree 2s. Lowered by itself where the basis
        is too ill-conditioned. ``"auto"``: as tuned for the matrix, else 4.
    basis : str
        ``"chebyshev"`` (and ``"auto"``), ``"newton"`` or ``"monomial"``.
    plan : Plan, optional
        A plan for k = 2s powers; by default the tuned one from the database, else a predicted one.

    Returns
    -------
    x, info, stats
        As for :func:`akx.solvers.bicgstab`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError, PlanError
    """
    steps = _check_s(s, plan)
    check_basis(basis)
    if M is not None:
        return solve_with(
            ca_bicgstab, A, b, x0, M,
            rtol=rtol, atol=atol, maxiter=maxiter, callback=callback, s=s, basis=basis, plan=plan,
            threads=threads, db=db, backend=backend, return_stats=return_stats,
        )  # fmt: skip
    system = make_system(
        "ca_bicgstab", A, b, x0, rtol=rtol, atol=atol, callback=callback, threads=threads, db=db, backend=backend
    )
    most = check_count("maxiter", maxiter, 10 * system.n, least=0)
    if s == "auto" and plan is None:
        steps = tuned_or(steps, "ca_bicgstab", system, basis)
    state = Recurrence(system)
    blocks = _Blocks(state, steps, basis, plan)
    return iterate(
        state,
        most,
        blocks.advance,
        fall_back=blocks.fall_back,
        why_no_solution=why_no_solution,
        return_stats=return_stats,
    )


@dataclass
class _Blocks:
    """Blocks of s steps, `most` at the most; ordinary ones before the first basis and where no basis is usable."""

    state: Recurrence
    most: int
    kind: str
    plan: Plan | None
    s: int = 0
    good: int = 0
    classic: int = 0
    patience: int = _ORDINARY
    norm_A: float = 0.0
    ritz: NDArray[Any] | None = None
    stale: bool = True
    bases: dict[int, Basis] = field(default_factory=dict)
    room: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self.s = self.most
        few = self.state.system.n < _SMALL * self.most  # their Krylov spaces may end within a block
        self.classic = min(2 * self.most, _RITZ) if few else self.most
        self.eps = float(np.finfo(self.state.system.dtype).eps)
        self.limit = _LIMIT / float(np.sqrt(self.eps))
        self.kind = _AUTO_BASIS if self.kind == "auto" else self.kind

    def advance(self, state: Recurrence, left: int) -> str:
        """One block, or one ordinary step."""
        if self.classic > 0:
            self.classic -= 1
            return state.step()
        if self.stale:
            self._find_ritz()
        trouble = self._block(min(self.s, left))
        if trouble:
            self.classic, self.patience = self.patience, 2 * self.patience
        return trouble

    def fall_back(self) -> bool:
        """Ordinary steps for the rest of the solve; False where they were that for long."""
        if self.classic > self.patience:
            return False
        self.classic = sys.maxsize
        self.state.system.stats.notes.append(
            f"step {self.state.steps}: ordinary steps from here on, as all else broke down"
        )
        return True

    def _block(self, steps: int) -> str:
        """Up to so many steps by one pass over the matrix: steps 1 to 4; the name of a breakdown, or nothing."""
        state, system, s = self.state, self.state.system, self.s
        stats, work = system.stats, state.work
        basis, m = self.bases[s], 2 * (2 * s + 1)
        # 1.
        if self.room is None:
            self.room = system.rows(4 * self.most + 3)
        Y = self.room[:m]
        with stats.phase("vectors"):
            Y[0], Y[1], self.room[m] = state.p, state.r, state.shadow
        plan = self.plan if self.plan is not None and self.plan.k == 2 * s else None
        system.powers(Y[:2], Y.reshape(2 * s + 1, 2, system.n), basis, plan)
        stats.s.append(s)
        # 2.
        with stats.phase("orthogonalize"):
            G = work.gram(self.room[: m + 1])
        if not np.isfinite(G).all():
            return self._lower("a basis that overflows")
        # 3.
        with stats.phase("small"):
            g, G = G[m, :m], G[:m, :m]
            tiny = NOISE * self.eps
            run = Coordinates(basis, G, g, self.limit, system.target, tiny * state.shadow_norm, tiny)
            done, trouble = run.steps(steps)
        if done == 0 and not trouble:
            return self._lower(f"an amplification of {run.worst:.0e}")
        if done:
            # 4.
            with stats.phase("vectors"):
                work.advance(np.stack([run.x, run.p, run.r]), Y, state.x)
                state.p[:], state.r[:] = Y[0], Y[1]
                state.measure()
            if not np.isfinite(state.norm):
                return "overflow"
            state.steps += done
            state.alphas += run.alphas
            state.betas += run.betas
            self._judge(run, done, steps)
        return trouble

    def _judge(self, run: Coordinates, done: int, wanted: int) -> None:
        """Lower or raise s by what became of a block."""
        off = abs(self.state.norm - run.norm) > 0.1 * self.state.norm
        if run.stopped or off:
            amplified = f"an amplification of {run.worst:.0e} after {done} of {wanted} steps"
            self._lower("norms from G that are off" if off else amplified)
            return
        self.good += 1
        if self.good >= _GOOD and self.s < self.most:
            self.s, self.good, self.stale = min(2 * self.s, self.most), 0, True
            self._tell(f"s raised to {self.s}")

    def _lower(self, why: str) -> str:
        """Half of s and a new basis; ordinary steps where s is 1 already."""
        self.good, self.stale = 0, True
        if self.s > 1:
            self.s = (self.s + 1) // 2
            self._tell(f"s lowered to {self.s} by {why}")
        else:
            self.classic = 2 * _GOOD
            self._tell(f"{self.classic} ordinary steps, by {why}")
        return ""

    def _tell(self, what: str) -> None:
        """Note a change of s."""
        text, marks = f"step {self.state.steps}: {what}", (" s lowered", " s raised", " ordinary steps, by")
        self.state.system.stats.note_often(text, "s changed", *marks)

    def _find_ritz(self) -> None:
        """Bases of this s from the Ritz values that are known now."""
        state, system = self.state, self.state.system
        with system.stats.phase("setup"):
            if self.norm_A == 0.0:
                self.norm_A = float(abs(system.matrix.to_scipy()).sum(axis=1).max())
            found = ritz_values(state.alphas[-_RITZ:], state.betas[-_RITZ:], self.norm_A)
            if found.size and (self.ritz is None or found.size >= min(2 * self.s, self.ritz.size)):
                self.ritz = found
            if self.ritz is None or not self.ritz.size:
                self.ritz = np.array([self.norm_A])
            basis = basis_of(self.kind, self.ritz, 2 * self.s, real=system.dtype.kind != "c")
        self.bases = {self.s: basis}
        self.stale = False
        system.stats.basis = basis.kind


class Coordinates:
    """The s steps on coordinates: step 3 of the algorithm."""

    def __init__(
        self, basis: Basis, G: NDArray[Any], g: NDArray[Any], limit: float, target: float, noise: float, tiny: float
    ) -> None:
        m = G.shape[0]
        dtype = np.result_type(G.dtype, basis.a.dtype)
        self.B = np.zeros((m, m), dtype=dtype)
        self.B[:, : m - 2] = np.kron(basis.matrix(), np.eye(2))
        self.G, self.g = G.astype(dtype), g.astype(dtype)
        self.sizes = np.sqrt(np.abs(np.diagonal(G).real))
        self.limit, self.target, self.noise, self.tiny = limit, target, noise, tiny
        self.p, self.r, self.x = np.zeros((3, m), dtype=dtype)
        self.p[0] = self.r[1] = 1
        self.alphas: list[complex] = []
        self.betas: list[complex] = []
        self.norm = float(self.sizes[1])
        self.worst = 0.0
        self.stopped = False

    def steps(self, most: int) -> tuple[int, str]:
        """Up to so many steps: how many were done, and the name of a breakdown; ended early where it converged."""
        B, G, g = self.B, self.G, self.g
        rho = g @ self.r
        for j in range(most):
            if abs(rho) <= self.noise * self.norm:
                return j, "rho"
            Bp = B @ self.p
            rv = g @ Bp
            alpha = rho / rv if rv != 0 else np.inf
            if not np.isfinite(alpha):
                return j, "alpha"
            q = self.r - alpha * Bp
            Gq = G @ q
            x = self.x + alpha * self.p
            norm_q = self._norm(q, Gq)
            if norm_q is None:
                return self._stop(j)
            if norm_q <= self.target:
                self._take(self.p, q, x, norm_q)
                return j + 1, ""
            t = B @ q
            tt, ts = np.vdot(t, G @ t).real, np.vdot(t, Gq)
            if not tt > 0:
                return self._stop(j)
            if abs(ts) <= self.tiny * norm_q * np.sqrt(tt):
                self._take(self.p, q, x, norm_q)
                return j + 1, "omega"
            omega = ts / tt
            r = q - omega * t
            norm_r = self._norm(r, G @ r)
            if norm_r is None:
                return self._stop(j)
            following = g @ r
            beta = following / rho * alpha / omega
            p = r + beta * (self.p - omega * Bp)
            self._take(p, r, x + omega * q, norm_r)
            self.alphas.append(alpha)
            self.betas.append(beta)
            rho = following
            if norm_r <= self.target:
                return j + 1, ""
        return most, ""

    def _norm(self, c: NDArray[Any], Gc: NDArray[Any]) -> float | None:
        """||Y c||, or None where the amplification says that it cannot be known."""
        square, upper = np.vdot(c, Gc).real, float(np.abs(c) @ self.sizes)
        self.worst = upper / float(np.sqrt(square)) if square > 0 else float("inf")
        return float(np.sqrt(square)) if self.worst <= self.limit else None

    def _stop(self, done: int) -> tuple[int, str]:
        self.stopped = True
        return done, ""

    def _take(self, p: NDArray[Any], r: NDArray[Any], x: NDArray[Any], norm: float) -> None:
        self.p, self.r, self.x, self.norm = p, r, x, norm


def ritz_values(alphas: list[complex], betas: list[complex], largest: float) -> NDArray[Any]:
    """The eigenvalues of BiCG's tridiagonal matrix that can be eigenvalues of A: not beyond its norm."""
    m = len(alphas)
    if m == 0:
        return np.zeros(0)
    a, beta = 1 / np.array(alphas), np.array(betas)
    # A r_j = (1/alpha_j + beta_{j-1}/alpha_{j-1}) r_j - r_{j+1}/alpha_j - (beta_{j-1}/alpha_{j-1}) r_{j-1}
    back = beta[:-1] * a[:-1]
    T = np.diag(a) - np.diag(a[:-1], -1) - np.diag(back, 1)
    T[np.arange(1, m), np.arange(1, m)] += back
    if not np.isfinite(T).all():
        return np.zeros(0)
    found = np.linalg.eigvals(T)
    kept: NDArray[Any] = found[np.abs(found) <= largest]
    return kept


def _check_s(s: Any, plan: Any) -> int:
    check_plan(plan)
    if isinstance(s, str) and s == "auto":
        if plan is None:
            return _AUTO
        s = max(1, plan.k // 2)
    count = check_count("s", s, most=_MOST, auto=True)
    if plan is not None and plan.k != 2 * count:
        raise PlanError(
            "plan is for another k", expected=f"k = 2 s = {2 * count}", found=f"k = {plan.k}", hint="tune again"
        )
    return count
