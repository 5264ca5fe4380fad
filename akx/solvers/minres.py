"""The method of minimal residuals (Paige and Saunders 1975), for A Hermitian, indefinite or singular too.

And for a real A = c I + S with S = -S^T, below.

Lanczos' process with A and M, M Hermitian positive definite, from y_1 = r, z_1 = M r, eta_1^2 = <z_1, y_1>:

    1.  u = A z_j,  alpha_j = <z_j, u> / eta_j^2
    2.  y_{j+1} = u - alpha_j y_j - beta_j (eta_j / eta_{j-1}) y_{j-1},  z_{j+1} = M y_{j+1}
    3.  eta_{j+1}^2 = <z_{j+1}, y_{j+1}>,  beta_{j+1} = eta_{j+1} / eta_j

Vectors are as long as they come, v_j = y_j / eta_j; they are divided by eta where that leaves the range of squares. The
tridiagonal T with alpha on its diagonal and beta beside it is real for a complex A too. Givens' rotations c, s make it
upper triangular, column after column (Elman, Silvester, Wathen 2014, alg. 4.1), with phi_0 = eta_1:

    4.  a_0 = c_j alpha_j - c_{j-1} s_j beta_j,  a_1 = (a_0^2 + beta_{j+1}^2)^(1/2)
        a_2 = s_j alpha_j + c_{j-1} c_j beta_j,  a_3 = s_{j-1} beta_j
        c_{j+1} = a_0 / a_1,  s_{j+1} = beta_{j+1} / a_1
    5.  w_j = (z_j / eta_j - a_3 w_{j-2} - a_2 w_{j-1}) / a_1
    6.  x += c_{j+1} phi w_j,  phi = -s_{j+1} phi,  and |phi| is the norm of the residual

in the norm of M, which is what is minimised. With M the residual itself is r = s^2 r + c phi v_{j+1} (Choi, Paige,
Saunders 2011), and its norm is what the solve goes by.

Steps 5 and 6 are done in coordinates: z_j stay for eight steps, then x, w_{j-1} and w_j are formed in one pass.

Memory moved for each step beside the product's own, in vectors of n words: 2 read for alpha; 3 read and 1 written in
step 2, 1 read for its norm; every eight steps 13 read and 5 written: 9 in all, where steps 5 and 6 one at a time make
it 13. With M 9 more: its vectors are copied, 4, <z, y>, 1, and r, 4.

No solution. || A r || / || r || after step j - 1 is (a_0^2 + (c_j beta_{j+1})^2)^(1/2): where that is small, r may be
the least residual there is, a null vector of A, which is looked into (:mod:`akx.solvers.singular`). In practice it
comes down to sqrt(eps) || A ||; x grows without bound from there on, so x as it was is kept.

Skew-symmetric. i A is Hermitian for A = -A^T, and Lanczos' process with it stays real (Greif, Varah 2009): alpha = 0,
and T has -beta_j above the diagonal, in steps 2 and 4. For A = c I + S it has c on it (Idema, Vuik 2007), without an M.
All else is as it was, as A is normal: || A^T r || = || A r ||, and for c = 0 each second step leaves r as it is. alpha
is known, so that 2 vectors less are read. A of odd order is singular then.

Source: C. C. Paige, M. A. Saunders, Solution of sparse indefinite systems of linear equations, SIAM J. Numer. Anal. 12
(1975) 617-629; C. Greif, J. M. Varah, Iterative solution of skew-symmetric linear systems, SIAM J. Matrix Anal. Appl.
31 (2009) 584-601; R. Idema, C. Vuik, A minimal residual method for shifted skew-symmetric systems, report 07-09, Delft
University of Technology 2007.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError
from akx.solvers.arguments import check_count, check_hermitian
from akx.solvers.cg import iterate
from akx.solvers.many import takes_columns
from akx.solvers.scaling import eps_of
from akx.solvers.singular import why_no_solution
from akx.solvers.stopping import NO_SOLUTION, Best, Doubts, Moments
from akx.solvers.symmetry import skew_shift
from akx.solvers.system import Answer, System, make_system

__all__ = ["Rotations", "Steps", "minres"]

#: Steps whose z are kept.
_TOGETHER = 8
#: || A r || over || A || || r || of so many units of rounding is zero.
_ZERO = 4
#: And of so many times the root of one is small.
_SMALL = 2
#: Times as many products before the next look for why.
_AGAIN = 3
#: Powers of two between which eta stays, in single and in double precision.
_RANGE = {4: 24, 8: 300}


@takes_columns
def minres(
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
    """Solve A x = b for a Hermitian (real symmetric) A, which may be indefinite or singular.

    Or a real one that is skew-symmetric but for a multiple of the identity: where that is not zero, `M` has to be None
    or a positive multiple of it.

    Parameters
    ----------
    A, b, x0, rtol, atol, maxiter, threads, db, backend, return_stats
        As for :func:`akx.solvers.cg.cg`. Convergence is by the true residual alone; SciPy's test has || A || || x || in
        it. In place of SciPy's `shift` give A - shift I.
    M : sparse matrix, array or LinearOperator, optional
        Preconditioner, an approximation of A^-1 or of |A|^-1, Hermitian positive definite.
    callback : callable, optional
        Called as ``callback(xk)`` after each step.

    Returns
    -------
    x : ndarray of b's shape
    info : int
        0: converged. > 0: the number of steps, where they ran out or nothing more could be gained. -1: breakdown, as
        with an M that is not positive definite. -2: the system has no solution. Where it is negative x is the best
        one found.
    stats : SolveStats
        With `return_stats`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.diags_array([-1.0, 0.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = minres(A, np.ones(50), rtol=1e-10)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    """
    check_hermitian(M, "minres")
    system = make_system(
        "minres", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    limit = check_count("maxiter", maxiter, 10 * system.n, least=0)
    if M is not None and skew_shift(system.matrix):
        _drop_even(system)
    steps = Steps(system)
    return iterate(system, steps.V, limit, return_stats, lambda: (steps, steps.step, steps.settle, list, list))


class Rotations:
    """Step 4 and the scalars of step 6: T in, one column after another, the triangle and what x moves by out."""

    def __init__(self, phi: float, sign: int = 1) -> None:
        self.phi, self.beta, self._sign = phi, 0.0, sign  # beta: the entry above the diagonal
        self._c = self._c_before = 1.0
        self._s = self._s_before = 0.0
        self.a = 0.0, 0.0, 0.0

    def look(self, alpha: float, beta: float) -> float:
        """|| A r || / || r || for the residual as it is, the next column having these entries."""
        self._a0 = self._c * alpha - self._c_before * self._s * self.beta
        self.a = (
            math.hypot(self._a0, beta),
            self._s * alpha + self._c_before * self._c * self.beta,
            self._s_before * self.beta,
        )
        return math.hypot(self._a0, self._c * beta)

    def turn(self, beta: float) -> float:
        """Take the column that was looked at; how far x moves along w. `a` has a_1, a_2, a_3."""
        self._c_before, self._s_before = self._c, self._s
        self._c, self._s, self.beta = self._a0 / self.a[0], beta / self.a[0], self._sign * beta
        move = self._c * self.phi
        self.phi *= -self._s
        return move

    @property
    def c(self) -> float:
        """Of the last rotation."""
        return self._c


class Steps:
    """The steps, on W = [w, w', z .. ] and, with a preconditioner, [.., y, y', r]; x is apart.

    When there is no room for another z, the last `keep` of them stay; `most` are made at a time.

    Attributes
    ----------
    norm : float
        Of the residual.
    V : tuple of rows
        As :func:`akx.solvers.cg.iterate` asks for: .., room, r, x.
    size : float
        The norm of A, from below, in that of M.
    alpha : float or None
        c where A is c I + S.
    """

    def __init__(self, system: System, keep: int = 2, most: int = _TOGETHER) -> None:
        self.system, self.work = system, system.work
        self.is_plain = system.M is None
        self.alpha = skew_shift(system.matrix)  # of all steps
        self._keep, self._rows = keep, 2 + keep + most
        self.W = system.rows(self._rows + (0 if self.is_plain else 3))
        self._y = self._rows  # the row of y_j, where it is not z_j
        self.x, self._base = system.rows(1)[0], system.rows(1)[0]
        self.V = self.W[0], self.W[1], self.W[2 if self.is_plain else self._y + 2], self.x
        self.norm, self.size, self._is_behind = math.inf, 0.0, False
        self._eps, wide = eps_of(system.dtype), _RANGE[system.dtype.type(0).real.itemsize]
        self._wrong = self._eps  # errors of the columns of T, over the norm of A
        self._low, self._high = 2.0**-wide, 2.0**wide
        self._best, self._doubts, self._next_look, self._why = Best(system), Doubts(system), 0, ""
        self._moments = Moments(system)
        self._etas = np.ones(self._rows)  # by row
        self._forget(2)

    def _forget(self, row: int) -> None:
        """z_j is in that row; w and w' are rows of W, and x has not moved from its base."""
        self._row, self._used = row, row  # rows of W that coordinates are of
        kind = np.complex128 if self.system.dtype.kind == "c" else np.float64
        self._moved, self._old, self._new = np.zeros((3, self._rows), dtype=kind)
        self._old[0] = self._new[1] = 1

    def begin(self, norm: float) -> str:
        """Begin at the residual, whose norm is known; why that cannot be, or nothing."""
        W, self.norm = self.W, norm
        if not self.system.stats.iterations:
            self._best.norm = norm  # of the first guess, which is there
        W[0][:] = 0
        W[1][:] = 0
        self._base[:] = self.x
        self._is_behind = False
        self._forget(2)
        square = norm**2
        if not self.is_plain:
            self._y = self._rows
            W[self._y][:] = W[self._y + 2]
            W[2][:] = self.system.precondition(W[self._y])
            square = self.work.dot(W, self._y, 2).real
        self._first = self._etas[2] = math.sqrt(max(square, 0.0))
        self._rotations = Rotations(self._first, 1 if self.alpha is None else -1)
        return "" if square > 0 else _indefinite(square)

    def step(self) -> str:
        """One step; why it cannot be done, or nothing."""
        system, work, W, stats = self.system, self.work, self.W, self.system.stats
        if self._row == self._rows - 1:
            self._make_room()
        i, eta = self._row, float(self._etas[self._row])
        system.product_in(W, i)  # 1. u = A z_j
        begin = time.perf_counter()
        alpha = work.dot(W, i, i + 1).real / eta**2 if self.alpha is None else self.alpha
        self._take_out(i, alpha)  # 2.
        if self.is_plain:
            square = work.norm(W[i + 1]) ** 2
        else:
            stats.add("vectors", begin)
            self._y = 2 * self._rows + 1 - self._y
            W[self._y][:] = W[i + 1]
            W[i + 1][:] = system.precondition(W[self._y])
            begin = time.perf_counter()
            square = work.dot(W, self._y, i + 1).real  # 3.
        if not math.isfinite(alpha + square):
            return "the vectors are no longer finite"
        if square < 0:
            return _indefinite(square)
        after = math.sqrt(square)
        z = np.zeros_like(self._moved)
        z[i] = 1 / eta
        self._used = i + 1
        if why := self._turn(alpha, after / eta, z):
            return why
        self._row, self._etas[i + 1] = i + 1, after
        if not self.is_plain:
            self.norm = self._residual(after)
        if not self._low < after < self._high and after > 0:
            self._shorten(after)
        stats.add("vectors", begin)
        self._count()
        self._tell()
        return ""

    def _take_out(self, i: int, alpha: float) -> None:
        """Step 2 on the row behind z_j, row i."""
        beta, rows, factors = self._rotations.beta, self.W[i : i + 1], [-alpha]
        if beta == 0:  # the first one
            rows = rows if self.is_plain else self.W[self._y : self._y + 1]
        else:
            factors = [-beta * self._etas[i] / self._etas[i - 1], -alpha]
            rows = self.W[i - 1 : i + 1] if self.is_plain else self.W[self._rows : self._rows + 2]
            if not self.is_plain and self._y == self._rows:
                factors.reverse()
        self.work.combine(np.array([factors]), rows, self.W[i + 1 : i + 2], add=True)

    def _turn(self, alpha: float, beta: float, z: NDArray[Any]) -> str:
        """Steps 4 to 6 with a column of T, and z_j / eta_j in coordinates of W; why they cannot be done, or nothing."""
        rotations = self._rotations
        self.size = max(self.size, math.hypot(alpha, beta, rotations.beta))
        is_null = rotations.look(alpha, beta) <= _SMALL * self._wrong**0.5 * self.size  # 4.
        is_time = is_null and self.system.stats.products >= self._next_look
        if (self._doubts.arise(self.norm) or is_time) and self._has_no_solution():
            return self._why
        if rotations.a[0] <= _ZERO * self._eps * self.size:
            return "A r = 0 up to rounding for the residual r: the matrix is singular, or nearly so"
        move = rotations.turn(beta)
        z -= rotations.a[2] * self._old  # 5.
        z -= rotations.a[1] * self._new
        z /= rotations.a[0]
        self._old, self._new = self._new, z
        self._moved += move * z  # 6.
        self._is_behind, self.norm = True, abs(rotations.phi)
        return ""

    def _count(self) -> None:
        """A step is done."""
        self.system.stats.iterations += 1
        self.system.stats.residuals.append(self.norm)

    def _tell(self) -> None:
        """Call the caller's callback, if there is one."""
        if self.system.callback is not None:
            self.settle()
            self.system.tell(self.x)

    def _residual(self, eta: float) -> float:
        """The norm of the residual, of which row r has the part phi^-2."""
        rotations, r = self._rotations, self.W[self._rows + 2]
        part = (rotations.phi / self._first) ** 2
        if part <= self._eps**2 or eta == 0:
            return 0.0  # a claim, which is looked at
        self.work.add(r, rotations.c * rotations.phi / (part * eta), self.W[self._y])
        return part * self.work.norm(r)

    def _shorten(self, eta: float) -> None:
        """The newest z and y of length 1."""
        self.work.divide(self.W[self._row], eta)
        if not self.is_plain:
            self.work.divide(self.W[self._y], eta)
        self._etas[self._row] = 1.0

    def settle(self) -> None:
        """Bring x up to date; what it is made from stays, so that steps have the same bits whoever asks for x."""
        if self._is_behind:
            rows = self._used
            self.x[:] = self._base
            out = self.x.reshape(1, self.system.n)
            if self._moved.any():
                self.work.combine(self._moved[None, :rows].copy(), self.W[:rows], out, add=True)
            self._is_behind = False

    def _make_room(self) -> None:
        """The base of x, w and w', and the last rows of z where the first ones were."""
        first = max(2, self._row + 1 - self._keep)
        stay = np.eye(self._row + 1)[first:]
        self._renew(stay, self._etas[first : self._row + 1])

    def _renew(self, rows: NDArray[Any], etas: NDArray[Any]) -> None:
        """The base of x, w and w' from their coordinates, and z from these; how long they are."""
        m = rows.shape[1]
        C = np.concatenate([np.stack([self._moved[:m], self._old[:m], self._new[:m]]), rows])
        self.work.advance(C, self.W[:m], self._base)
        self._etas[2 : 2 + len(rows)] = etas
        self._forget(1 + len(rows))
        self._moments.look(self._base, self.norm)

    def _has_no_solution(self) -> bool:
        """Whether there is none, as is looked into now and then."""
        system = self.system
        self._next_look = _AGAIN * system.stats.products
        self.settle()
        self._best.take(self.x, self.norm)
        self._why = why_no_solution(system, system.x, on_the_way=True)
        return bool(self._why)

    def failed(self, why: str, otherwise: tuple[int, str]) -> tuple[int, str]:
        """info and reason of a solve that ended without an answer: after a breakdown, or as `otherwise` says."""
        self.settle()
        self._best.take(self.x, self.norm)
        self._why = self._why or why_no_solution(self.system, self.system.x)
        if self._why:
            return NO_SOLUTION, self._why
        return (-1, "breakdown: " + why) if why else otherwise

    def recover(self) -> None:
        """Nothing: what is worth it was kept."""

    def descends(self) -> bool:
        """Never: the residual is what is minimised."""
        return False


def _drop_even(system: System) -> None:
    """For A = c I + S no M: c' I as M changes nothing, and any other is refused."""
    entries = system.diagonal
    if entries is None or entries.imag.any() or not (entries.real > 0).all() or (entries != entries[0]).any():
        raise ArgumentError(
            "M does not fit A, which is skew-symmetric but for a multiple of I",
            expected="None, or a positive multiple of the identity",
            found="another M",
            hint="gmres and bicgstab take it",
        )
    system.M = system.diagonal = system.applies = None


def _indefinite(square: float) -> str:
    return f"M is not positive definite, <r, M r> = {square:.2e}"
