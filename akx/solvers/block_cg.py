"""Block conjugate gradients: several right-hand sides in one Krylov space, with one pass over the matrix for all.

For A and M Hermitian positive definite, X and B of m columns. The residuals are kept as R = W sigma, W^H M W = I, with
p <= m columns in W (Dubrulle 2001, BCGrQ): they may come to depend on one another, or differ in size by any factor.
With S = Z = M W at first, a step is

    1.  Q = A S                                                 one pass over A
    2.  xi = (S^H Q)^-1,  X += S xi sigma                       one reduction
    3.  W rho = W - Q xi,  Z = M W                              another one
    4.  sigma = rho sigma,  S = Z + S rho^H

One space serves all columns, and finds the outer eigenvectors sooner: it takes fewer steps than each column by itself
(O'Leary 1980), never more in exact arithmetic.

The factors of step 3 come from the eigenvectors of the Gram matrix, whose small eigenvalues are raised to what can be
known of them; where that is much, by a second round (Stathopoulos and Wu 2002). Directions that have vanished up to
rounding errors are left out: any U with orthonormal columns makes W U, U^H rho of W, rho. So are those that only
columns need which have converged, U being a basis of the columns of sigma that are left. So equal, zero and dependent
columns are no special cases, and what has converged costs nothing from then on.

What claims to have converged is checked by true residuals, in one pass; where these are too large all begins anew from
them. The block ends without an answer, which single solves go on to find, where S^H A S is not safely positive
definite, where beginning anew brings nothing, or after as many products as 10 n steps of cg for each column have.

Memory moved for a step, in vectors of n words for each of p columns, beside the product's own: 2 read for step 2 and 2
read, 1 written for X; 2 read, 1 written for W - Q xi; 1 for its Gram matrix, 1 read and 1 written for the new W; 3 read
and 3 written in step 4: 17, where cg moves 10; multiplications 7 p where cg has 5.

Source: D. P. O'Leary, The block conjugate gradient algorithm and related methods, Linear Algebra Appl. 29 (1980)
293-322; A. A. Dubrulle, Retooling the method of block conjugate gradients, ETNA 12 (2001) 216-233; A. Stathopoulos,
K. Wu, A block orthogonalization procedure with constant synchronization requirements, SIAM J. Sci. Comput. 23 (2002).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import monomial
from akx.solvers.arguments import is_ours, real_if_told
from akx.solvers.rounding import confirmed
from akx.solvers.scaling import eps_of
from akx.solvers.stats import SolveStats
from akx.solvers.system import Rows, System

__all__ = ["BlockCG"]

#: Beginnings from true residuals, each of which is to leave no more than this part of those too large.
_BEGINNINGS, _PROGRESS = 4, 0.5
#: Steps that a block may take beside those of as many products as 10 n steps for each column have.
_MORE = 50
#: A Rayleigh quotient of so many units of rounding of the largest entry is zero.
_ZERO = 16
#: Eigenvalues of a scaled Gram matrix: below the first a second round is made; below so many units of rounding nothing
#: is known of them; in a second round, a direction below the last has vanished.
_SAFE, _KNOWN, _VANISHED = 1e-6, 100, 1e-8
_PRODUCT = monomial(1)


class BlockCG:
    """One solve of A X = B by rows: B and X (m, n), X being the first guess and then the best there is.

    Attributes
    ----------
    norms : (m,) array
        Of the residuals, true ones at the end.
    history : list of m lists
        Of norms: the true one of the first guess, then by the recurrence after each step that the column took part in.
    steps : int
        Block steps that were done.
    trouble : str
        Why it ended without an answer for all, or nothing.
    """

    def __init__(self, system: System, B: Rows, X: Rows, targets: NDArray[np.float64], limit: int) -> None:
        m = len(targets)
        self.system, self.work, self.B, self.X = system, system.work, B, X
        self.targets, self.steps, self.trouble = targets, 0, ""
        self.norms = np.full(m, np.inf)
        self.history: list[list[float]] = [[] for _ in range(m)]
        self._most = min(limit, 10 * system.n // m + _MORE)
        self._eps, self._largest = eps_of(system.dtype), float(system.matrix.largest)
        self._V, self._T = system.rows((3 if system.M is None else 4) * m), system.rows(m)
        self._looks = 0  # at true residuals
        self._p, self._columns = m, np.arange(m)  # of W; those that have not converged
        self._sigma: NDArray[Any] = np.eye(m)

    def solve(self, tell: Callable[[Rows], object] | None, *, zero_guess: bool) -> None:
        """Steps until all columns have converged, or no more can be done; ``tell(X)`` after each."""
        with np.errstate(all="ignore"):
            for turn in range(_BEGINNINGS + 1):
                before = self.norms
                self._take_residuals(zero_guess=zero_guess and turn == 0)
                left = ~(self.norms <= self.targets)
                if turn == 0:
                    self.history = [[norm] for norm in self.norms.tolist()]
                if not left.any():
                    self.trouble = ""
                    return
                if not np.isfinite(self.norms).all():
                    self.trouble = "a residual is not finite"
                elif turn == _BEGINNINGS or (self.norms[left] > _PROGRESS * before[left]).any():
                    self.trouble = self.trouble or "the true residuals go down no further"
                if self.trouble or self.steps >= self._most:
                    break
                self.trouble = self._begin(np.flatnonzero(left))
                while not self.trouble and self._columns.size and self.steps < self._most:
                    self.system.ended()
                    self.trouble = self._step(tell)
        self.trouble = self.trouble or "the steps ran out"

    def record(self, i: int, method: str) -> SolveStats:
        """Of one column; products and passes are those that it took part in."""
        norm, target, history = float(self.norms[i]), float(self.targets[i]), self.history[i]
        stats = SolveStats(method=method, converged=norm <= target, iterations=len(history) - 1, target=target)
        stats.residual, stats.residuals = norm, [*history, norm]
        stats.products = stats.matrix_passes = stats.iterations + self._looks
        stats.reason = "converged" if stats.converged else self.trouble
        return stats

    def _take_residuals(self, *, zero_guess: bool) -> None:
        """B - A X in the last rows of V, and its norms."""
        m, work = len(self.targets), self.work
        R = self._V[2 * m : 3 * m]
        R[:] = self.B
        if not zero_guess:
            self._looks += 1
            pair = self._V[: 2 * m]
            self.system.powers(self.X, pair.reshape(2, m, self.system.n), _PRODUCT)
            work.combine(-np.eye(m), pair[m:], R, add=True)
        self.norms = np.array([self.system.checked_norm(float(work.norm(R[j])), R[j]) for j in range(m)])
        for j in range(0 if zero_guess else m):
            given = float(self.norms[j]), self.X[j], R[j], self.B[j], float(self.targets[j])
            self.norms[j] = confirmed(self.system, *given)

    def _begin(self, columns: NDArray[np.int64]) -> str:
        """W, sigma and S of the residuals of these columns; why that cannot be, or nothing."""
        m, p, V = len(self.targets), columns.size, self._V
        for i, j in enumerate(columns.tolist()):
            self._T[i] = V[2 * m + j]
        V[2 * p : 3 * p] = self._T[:p]
        self._p, self._columns, self._sigma = p, columns, np.eye(p)
        return self._turn(None)

    def _step(self, tell: Callable[[Rows], object] | None) -> str:
        """One step; why it cannot be done, or nothing."""
        system, work, V, p = self.system, self.work, self._V, self._p
        system.powers(V[:p], V[: 2 * p].reshape(2, p, system.n), _PRODUCT)  # 1.
        with system.stats.phase("vectors"):
            G = work.gram(V[: 2 * p])  # 2.
            xi = self._inverse(G[:p, :p], G[:p, p:])
            if xi is None:
                return "the matrix is not positive definite, or close to it"
            self._move((xi @ self._sigma).T)
            work.combine(-xi.T, V[p : 2 * p], V[2 * p : 3 * p], add=True)  # 3.
        self.steps += 1
        columns = self._columns
        why = self._turn(V[:p])  # 4.
        for j in columns.tolist():
            self.history[j].append(float(self.norms[j]))
        if tell is not None:
            tell(self.X)
        return why

    def _inverse(self, SS: NDArray[Any], SQ: NDArray[Any]) -> NDArray[Any] | None:
        """(S^H Q)^-1; None where A is not safely positive definite, by Rayleigh quotients of S."""
        if not np.isfinite(SQ).all():
            return None
        sizes = np.sqrt(SS.diagonal().real)
        try:
            lower = np.linalg.cholesky((SQ + SQ.conj().T) / 2 / np.outer(sizes, sizes))
        except np.linalg.LinAlgError:
            return None
        inverse = np.linalg.inv(lower) / sizes
        greatest = np.einsum("ij,jk,ik->", inverse, SS, inverse.conj()).real  # of 1 / quotients, their sum
        if not _ZERO * self._eps * self._largest * greatest < 1:
            return None
        found: NDArray[Any] = inverse.conj().T @ inverse
        return found

    def _move(self, C: NDArray[Any]) -> None:
        """X += C S, for the columns that are left."""
        S, X = self._V[: self._p], self.X
        if self._columns.size == len(self.targets):
            self.work.combine(C, S, X, add=True)
            return
        for c, j in zip(C, self._columns.tolist(), strict=True):
            self.work.combine(c[None], S, X[j : j + 1], add=True)

    def _turn(self, S: Rows | None) -> str:
        """Make W orthonormal, without what is not needed any more, and S from Z and the one before, if there is one.

        All is in its place then for as many rows as W has. Why that cannot be done, or nothing.
        """
        work, V, T, p = self.work, self._V, self._T, self._p
        plain, was = self.system.M is None, self._sigma
        if not plain:
            self.precondition(V[2 * p : 3 * p], V[3 * p : 4 * p])
        with self.system.stats.phase("vectors"):
            G = self._gram()
            squares = np.einsum("ij,ik,kj->j", was.conj(), G[:p, :p], was).real
            self.norms[self._columns] = norms = np.sqrt(np.maximum(squares, 0))
            if not np.isfinite(G).all() or not np.isfinite(norms).all():
                return "a residual is not finite"
            F, rho, least = _factors(G[:p, -p:], self._eps)
            if least < -_SAFE:
                return "the preconditioner is not positive definite"
            if least < _SAFE:
                self._replace(F)
                F, again, _ = _factors(self._gram()[:p, -p:], self._eps, _VANISHED)
                rho = again @ rho
            left = norms > self.targets[self._columns]
            self._columns, sigma = self._columns[left], (rho @ was)[:, left]
            if not left.all():
                U = _basis_of(sigma, self._eps)
                F, rho, sigma = F @ U, U.conj().T @ rho, U.conj().T @ sigma
            self._sigma, self._p = sigma, F.shape[1]
            if not self._p:
                return "the residuals have vanished" if left.any() else ""
            self._replace(F)
            k, end = F.shape[1], (3 if plain else 4) * p
            T[:k] = V[end - p : end - p + k]  # Z
            if S is not None:
                work.combine(rho.conj(), S, T[:k], add=True)
            V[:k] = T[:k]
            if k < p:
                T[:k] = V[2 * p : 2 * p + k]
                V[2 * k : 3 * k] = T[:k]
        return ""

    def _gram(self) -> NDArray[Any]:
        """Inner products of W and, with a preconditioner, Z, whose rows follow."""
        p = self._p
        return self.work.gram(self._V[2 * p : (3 if self.system.M is None else 4) * p])

    def _replace(self, F: NDArray[Any]) -> None:
        """The first rows of W, and of Z, become F^T of all."""
        p, k = F.shape
        for first in range(2 * p, (3 if self.system.M is None else 4) * p, p):
            self.work.combine(F.T, self._V[first : first + p], self._T[:k])
            self._V[first : first + k] = self._T[:k]

    def precondition(self, R: Rows, Z: Rows) -> None:
        """Z = M R: at once, where M has a product with several vectors and is not on a device, else one by one."""
        system, M = self.system, self.system.M
        if system.on_device or not _takes_blocks(M):
            for i in range(len(R)):
                Z[i] = system.precondition(R[i])
            return
        with system.stats.phase("precondition"):
            found = np.asarray(M.matmat(R.T.copy()))  # type: ignore[union-attr]
            if found.dtype.kind == "c":
                real_if_told(found, system.dtype)
            Z[:] = found.T


def _takes_blocks(M: Any) -> bool:
    """Whether an operator of SciPy's kind has a product with several vectors of its own."""
    if is_ours(M):
        return False
    return getattr(M, "_CustomLinearOperator__matmat_impl", M) is not None and "_matmat" in vars(type(M))


def _factors(G: NDArray[Any], eps: float, vanished: float | None = None) -> tuple[NDArray[Any], NDArray[Any], float]:
    """F and rho with W = (W F) rho for the Gram matrix G of W, W F orthonormal; the least eigenvalue, W being scaled.

    Eigenvalues of which nothing can be known are raised to what can. With `vanished` W is not scaled, and directions
    below that are left out.
    """
    G = (G + G.conj().T) / 2
    sizes = np.sqrt(np.maximum(G.diagonal().real, 0))
    sizes[(sizes == 0) | (vanished is not None)] = 1
    values, U = np.linalg.eigh(G / np.outer(sizes, sizes))
    if vanished is not None:
        values, U = values[values > vanished], U[:, values > vanished]
    roots = np.sqrt(np.maximum(values, _KNOWN * eps))
    return U / roots / sizes[:, None], roots[:, None] * U.conj().T * sizes, float(values.min(initial=1.0))


def _basis_of(sigma: NDArray[Any], eps: float) -> NDArray[Any]:
    """An orthonormal basis of the columns of sigma, each of which counts whatever its size."""
    sizes = np.linalg.norm(sigma, axis=0)
    U, values, _ = np.linalg.svd(sigma / np.where(sizes > 0, sizes, 1), full_matrices=False)
    found: NDArray[Any] = U[:, values > _KNOWN * eps]
    return found
