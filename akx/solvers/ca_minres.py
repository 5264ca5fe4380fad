"""Communication-avoiding MINRES: s steps for each pass over the matrix and each reduction.

For A Hermitian, indefinite or singular too. A block of s steps begins with the last s + 1 Lanczos vectors, q_{k-s} to
q_k, and their part of the tridiagonal matrix T:

    1.  V = [v_0 = q_k, p_1(A) q_k, .., p_s(A) q_k] by matrix powers, A V_s^T = V^T B      one pass over A
    2.  inner products of Z = [q_{k-s} .. q_k, v_1 .. v_s]                                 one reduction
    3.  s steps of Lanczos' process and of MINRES (:mod:`akx.solvers.minres`), in coordinates: A of what q_{k+j} has of
        V is by B, A of what it has of the vectors before by T
    4.  q_{k+1} .. q_{k+s}, w, w' and x from their coordinates                             one pass over all

Only s + 1 vectors before are needed, since p_j(A) q_k is in the span of q_{k-j} .. q_{k+j}, and only the last two are
taken out of a new one, as in MINRES. (Orthogonal to all s + 1 of them it breaks the relation A q_j = .. that all stands
on.) Unlike the form with two start vectors (Carson 2015, ch. 3) there is one product for each step.

Memory moved for s steps, in vectors of n words: the matrix once, s written by the powers, 2 s + 1 read for the inner
products, 2 s + 4 read and s + 4 written in step 4: 6 + 9 / s for each step, where MINRES moves 9 and the product's 2,
and the matrix, every time.

What keeps it safe. Lengths of new vectors are found from inner products; where these cancel the block ends, and where
blocks keep ending early s is halved, and raised again after good ones. Errors of A q_j = .. are handed on from block to
block, and grow slowly; their size is known (:mod:`akx.solvers.ca_minres_block`), and where it is eps^(3/4) || A || / 2
the next s - 1 steps are ordinary ones, whose errors are new. So are the first steps; Ritz values of their T give the
basis, which is renewed as more steps are made.

Source: S. K. Kim, A. T. Chronopoulos, A class of Lanczos-like algorithms implemented on parallel computers, Parallel
Comput. 17 (1991) 763-778; M. Hoemmen, Communication-avoiding Krylov subspace methods, thesis, Berkeley 2010, ch. 4; E.
Carson, Communication-avoiding Krylov subspace methods in theory and practice, thesis, Berkeley 2015, ch. 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import Basis
from akx.core.plan import Plan
from akx.krylov.bases import basis_of, check_basis
from akx.solvers.arguments import check_count, check_hermitian
from akx.solvers.ca_cg import steps_of
from akx.solvers.ca_cg_block import Pace
from akx.solvers.ca_minres_block import lanczos_block
from akx.solvers.cg import iterate
from akx.solvers.forms import solve_with
from akx.solvers.many import takes_columns
from akx.solvers.minres import Steps
from akx.solvers.solver_choice import tuned_or
from akx.solvers.system import Answer, System, make_system

__all__ = ["ca_minres"]

#: The basis of "auto", and its s on a device.
_AUTO_BASIS, _AUTO_ON_DEVICE = "chebyshev", 8
#: Ordinary steps at the beginning, for each of the s; fewest steps for which a
#: block is worth its vector work, where the caller does not ask for fewer.
_FIRST, _LEAST = 2, 3
#: Entries of T that Ritz values are taken from, at most: the outermost have long settled.
_KEPT = 128
#: Errors of T's columns may be so many times eps^(3/4) || A ||, and so many times less each time that the residual was
#: not what blocks had claimed, but so many units of rounding at the least; those of an ordinary step are so many.
_WRONG, _STRICTER, _STRICT, _FRESH = 0.5, 8, 16, 2
#: Blocks between ordinary steps that are too few for this s.
_FEW = 4


@takes_columns
def ca_minres(
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
    """Solve A x = b for a Hermitian (real symmetric) A, indefinite or singular too, with s steps for each pass over A.

    Parameters
    ----------
    A, b, x0, rtol, atol, maxiter, threads, db, backend, return_stats
        As for :func:`akx.solvers.minres.minres`.
    M : sparse matrix, array, LinearOperator or preconditioner of :mod:`akx.solvers.preconditioners`, optional
        An approximation of A^-1 or of |A|^-1, Hermitian positive definite. Part of the matrix where it keeps that
        Hermitian, as for :func:`akx.solvers.ca_cg.ca_cg`. With any other the method is ``minres``, which a note says.
    callback : callable, optional
        Called as ``callback(xk)`` after each block of s steps, and after each ordinary step.
    s : int or ``"auto"``
        Most steps for each pass over the matrix, 1 to 20; fewer while rounding errors ask for it. ``"auto"``: as tuned
        for the matrix (:func:`akx.solvers.tune_for`), else 4, on a GPU 8.
    basis : str
        ``"chebyshev"`` (and ``"auto"``), ``"newton"`` or ``"monomial"``.
    plan : Plan, optional
        For the matrix powers of s steps; by default as for :class:`akx.MatrixPowers`.

    Returns
    -------
    x, info, stats
        As of :func:`akx.solvers.minres.minres`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError, PlanError

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.diags_array([-1.0, 0.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = ca_minres(A, np.ones(50), rtol=1e-10, s=4)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    """
    check_hermitian(M, "ca_minres")
    most = steps_of(s, plan)
    check_basis(basis)
    if M is not None:
        return solve_with(
            ca_minres, A, b, x0, M,
            rtol=rtol, atol=atol, maxiter=maxiter, callback=callback, s=s, basis=basis, plan=plan,
            threads=threads, db=db, backend=backend, return_stats=return_stats,
        )  # fmt: skip
    system = make_system(
        "ca_minres", A, b, x0, rtol=rtol, atol=atol, callback=callback, threads=threads, db=db, backend=backend
    )
    limit = check_count("maxiter", maxiter, 10 * system.n, least=0)
    if s == "auto" and plan is None:
        most = tuned_or(_AUTO_ON_DEVICE if system.on_device else most, "ca_minres", system, basis)
    kind = system.stats.basis = _AUTO_BASIS if basis == "auto" else basis
    blocks = Blocks(system, most, kind, plan, limit)
    return iterate(system, blocks.V, limit, return_stats, lambda: (blocks, blocks.step, blocks.settle, list, list))


class Blocks(Steps):
    """Ordinary steps, and blocks of up to `most`; `kind` is that of the basis, `plan` for `most` powers."""

    def __init__(self, system: System, most: int, kind: str, plan: Plan | None, limit: int) -> None:
        super().__init__(system, keep=most + 1, most=max(8, most))
        if self.alpha is not None:
            system.stats.notes.append("ordinary steps: the matrix is skew-symmetric, and blocks are for Hermitian ones")
        self.most, self._kind, self._plan, self._limit = most, kind, plan, limit
        self._least = max(2, min(_LEAST, most))
        self._pace = Pace(most, self._least, system.stats)
        self._alphas: list[float] = []  # T, since the residual was the first vector
        self._betas: list[float] = []
        self._errors: NDArray[Any] = np.zeros((0, 0))  # K of the last columns, see ca_minres_block
        self._ordinary = self._blocks = 0  # steps until the next block; blocks since the last ordinary ones
        self._ritz: NDArray[np.float64] | None = None
        self._wrong = _WRONG * self._eps**0.75
        self._known = 0  # columns of T that they are of
        self._bases: dict[int, tuple[Basis, NDArray[Any]]] = {}

    def begin(self, norm: float) -> str:
        self._alphas, self._betas, self._errors = [], [], np.zeros((0, 0))
        self._ordinary = self._blocks = 0
        if self.system.stats.iterations:  # the residual is not what blocks have claimed
            self._wrong = max(self._wrong / _STRICTER, _STRICT * self._eps)
        return super().begin(norm)

    def step(self) -> str:
        """A block, or an ordinary step; why there can be no more, or nothing."""
        s = min(self._pace.s, self._limit - self.system.stats.iterations)
        if s >= self._least and self._ordinary <= 0 and self._has_basis:
            made, why = self._several(s)
            if made or why:
                return why
            self._ordinary = s
        elif self._pace.s == 1 < self.most:
            self._pace.count(1)
        why = super().step()
        if not why:
            self._ordinary -= 1
            count = len(self._errors)
            errors = np.zeros((count + 1, count + 1), dtype=self._errors.dtype)
            errors[:count, :count], errors[count, count] = self._errors, (_FRESH * self._eps * self.size) ** 2
            self._errors = errors[-self.most :, -self.most :]
        return why

    @property
    def _has_basis(self) -> bool:
        return self.alpha is None and (self._ritz is not None or len(self._alphas) >= _FIRST * self.most)

    def _turn(self, alpha: float, beta: float, z: NDArray[Any]) -> str:
        why = super()._turn(alpha, beta, z)
        if not why:
            self._alphas.append(alpha)
            self._betas.append(beta)
        return why

    def _basis(self, s: int) -> tuple[Basis, NDArray[Any]]:
        """A basis of s steps and its matrix, renewed when twice as many columns of T are known."""
        count = min(len(self._alphas), _KEPT)
        if self._ritz is None or count >= 2 * self._known:
            below = np.diag(self._betas[: count - 1], -1)
            self._ritz = np.linalg.eigvalsh(np.diag(self._alphas[:count]) + below)  # looks at the lower triangle
            self._known, self._bases = count, {}
        if s not in self._bases:
            found = basis_of(self._kind, self._ritz, s, real=self.system.dtype.kind != "c")
            self._bases[s] = found, found.matrix()
        return self._bases[s]

    def _several(self, s: int) -> tuple[int, str]:
        """A block of up to s steps: how many were made, and why there can be no more, or nothing."""
        system, stats, W = self.system, self.system.stats, self.W
        with stats.phase("small"):
            basis, B = self._basis(s)
        if self._row + s >= self._rows:
            with stats.phase("vectors"):
                self._make_room()
        i, h = self._row, min(s + 1, self._row - 1)
        first, stop = i - h + 1, i + s + 1  # the rows of Z
        system.powers(
            W[i : i + 1], W[i:stop].reshape(s + 1, 1, system.n), basis, self._plan if s == self.most else None
        )
        stats.s.append(s)
        with stats.phase("vectors"), np.errstate(over="ignore", invalid="ignore"):
            etas = np.concatenate([self._etas[first : i + 1], np.full(s, self._etas[i])])
            G = self.work.gram(W[first:stop]) / np.outer(etas, etas)
        if not np.isfinite(G).all():
            self._pace.count(0)
            return 0, ""
        self._used = stop
        with stats.phase("small"):
            alphas, betas = (np.array(part[len(part) - h + 1 :]) for part in (self._alphas, self._betas))
            before = slice(len(self._errors) - h + 1, None)
            errors = self._errors[before, before]
            found = lanczos_block(G, B, alphas, betas, errors, self._eps, self._wrong * self.size)
            vectors = found.vectors / etas
            made, why = 0, ""
            for alpha, beta, q in zip(found.alphas, found.betas, vectors, strict=False):
                z = np.zeros_like(self._moved)
                z[first:stop] = q
                if why := self._turn(alpha, beta, z):
                    break
                made += 1
                self._count()
                if self.norm <= system.target:
                    break
            if not why:
                self._learn(s, made, is_worn=found.is_worn)
        if made:
            rows = np.zeros((h + made, stop), dtype=vectors.dtype)
            rows[:h, first : i + 1] = np.eye(h)
            rows[h:, first:] = vectors[1 : made + 1]
            stay = min(h + made, self._keep)
            columns = slice(max(0, h - 1 + made - self.most), h - 1 + made)
            self._errors = found.errors[columns, columns]
            with stats.phase("vectors"):
                self._renew(rows[-stay:], np.concatenate([etas[:h], np.ones(made)])[-stay:])
            self._tell()
        return made, why

    def _learn(self, s: int, made: int, *, is_worn: bool) -> None:
        """What a block of `made` steps of s says about the next ones."""
        self._blocks += 1
        is_good = self.norm <= self.system.target or (is_worn and self._blocks > _FEW)
        self._pace.count(s if is_good else made)
        if is_worn:
            self._ordinary, self._blocks = s - 1, 0
