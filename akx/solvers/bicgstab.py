"""BiCGStab (van der Vorst 1992), its vector work fused into three passes.

With the shadow residual r~ = r_0 and p_0 = r_0, step j is, in the symbols of the paper,

    v = A p,   alpha = (r~, r) / (r~, v),   s = r - alpha v                                 (1)
    t = A s,   omega = (t, s) / (t, t)                                                      (2)
    x += alpha p + omega s,   r' = s - omega t                                              (3)
    beta = (r~, r') / (r~, r) * alpha / omega,   p' = r' + beta (p - omega v)               (4)

and with a preconditioner M from the right v = A M p, t = A M s, x += alpha M p + omega M s. (r~, r') is taken as
(r~, s) - omega (r~, t), so that all inner products of (2) and (4) are one small product of [t, r~] with [s, t], and the
three new vectors of (3) and (4) are one product of a 3 x 5 matrix of coefficients with [p, v, s, t, x].

Words moved for each step, in n, beside two products of A: (r~, v) 2, s and its norm 4, the inner products 4, the new
vectors 8, the norm of r' 1: 19, where one operation after another moves 31.

Breakdowns. Where (r~, r), (r~, v) or (t, s) vanishes the method begins again from its newest x with r~ = r; where that
has not lowered the residual, r~ is random, another one a few times; then it gives up. Where the recurrence says
converged and the true residual does not, the residual is replaced and the method begins again, until that no longer
lowers the true residual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.errors import ArgumentError
from akx.solvers.system import Answer, System, make_system

__all__ = ["NOISE", "Recurrence", "bicgstab", "check_maxiter", "iterate"]

#: Rows of :attr:`Recurrence.W`.
_P, _V, _R, _T, _X, _SHADOW = range(6)
#: A true residual is better below this fraction of the best so far; the last of so many beginnings without one ends it.
_BETTER, _PATIENCE = 0.9, 3
#: The same after breakdowns, where each new beginning has another random r~.
_TRIES = 8
#: Inner products below so many units of rounding of their vectors' norms are noise.
NOISE = 2
#: Names of the breakdowns, with SciPy's codes for `info`.
_CODES = {"rho": -10, "alpha": -11, "omega": -11, "overflow": -12}
_WORDS = {
    "rho": "(r~, r) = 0: the residual is orthogonal to the shadow residual",
    "alpha": "(r~, A p) = 0: A p is orthogonal to the shadow residual",
    "omega": "(A s, s) = 0: the step of steepest descent does not move (is A skew-symmetric? gmres does not need this)",
    "overflow": "a vector is not finite any more",
}


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
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for any square A.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
        Real or complex.
    b : array_like, shape (n,) or (n, 1)
    x0 : array_like, optional
        First guess; zero by default.
    rtol, atol : float
        Converged when ||b - A x|| <= max(rtol ||b||, atol), for the true residual.
    maxiter : int, optional
        Most steps, of two products each; 10 n by default.
    M : sparse matrix, array or LinearOperator, optional
        Preconditioner from the right, an approximation of A^-1.
    callback : callable, optional
        Called with x after each step.
    threads, db
        As for :class:`akx.MatrixPowers`.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too.

    Returns
    -------
    x : ndarray
        In the shape of b.
    info : int
        0 where converged; the number of steps where they ran out or the attainable accuracy was met first; -10, -11 or
        -12 for a breakdown that a new beginning does not cure.
    stats : SolveStats
        With `return_stats`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    system = make_system("bicgstab", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db)
    most = check_maxiter(maxiter, system.n)
    return iterate(Recurrence(system), most, lambda state, _: state.step(), return_stats=return_stats)


@dataclass
class Recurrence:
    """The vectors of BiCGStab between two steps, and one step.

    Attributes
    ----------
    W : (6, n) array
        Rows p, v, r (s within a step), t, x, r~.
    norm : float
        Of r, by the recurrence.
    alphas, betas : list
        Coefficients since the last beginning: those of BiCG, whose tridiagonal matrix has its Ritz values.
    steps : int
        Steps in all.
    """

    system: System
    W: NDArray[Any] = field(init=False)
    norm: float = 0.0
    rho: complex = 0.0
    shadow_norm: float = 0.0
    steps: int = 0
    alphas: list[complex] = field(default_factory=list)
    betas: list[complex] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        system = self.system
        self.W, self._next = system.rows(6), system.rows(6)
        self.W[_X] = system.x
        if system.zero_guess:
            self.W[_R] = system.b
            self.norm = float(np.linalg.norm(system.b))
        else:
            self.norm = system.residual(self.x, self.r)
        self.begin()

    p = property(lambda self: self.W[_P])
    r = property(lambda self: self.W[_R])
    x = property(lambda self: self.W[_X])
    shadow = property(lambda self: self.W[_SHADOW])

    def begin(self, seed: int = 0) -> None:
        """Begin from r: p = r, and r~ = r, or random with a seed other than 0."""
        self.W[_P] = self.r
        self.W[_SHADOW] = self.r if seed == 0 else np.random.default_rng(seed).standard_normal(self.system.n)
        self._next[_SHADOW] = self.shadow
        self.shadow_norm = float(np.linalg.norm(self.shadow))
        self.rho = np.vdot(self.shadow, self.r)
        self.alphas.clear()
        self.betas.clear()

    def replace(self) -> float:
        """r = b - A x; its norm."""
        self.norm = self.system.residual(self.x, self.r)
        return self.norm

    def take(self, C: NDArray[Any], Y: NDArray[Any], *, add_x: bool) -> None:
        """[p, r, x] = C Y, or x += with `add_x`, in one pass over the rows of Y; what was stays in the other array."""
        new = self._next
        np.matmul(C.astype(self.system.dtype), Y, out=new[_P : _X + 1 : 2])
        if add_x:
            new[_X] += self.x
        self.W, self._next = new, self.W
        self.norm = float(np.linalg.norm(self.r))

    def take_back(self) -> None:
        """Undo :meth:`take`."""
        self.W, self._next = self._next, self.W

    def step(self) -> str:
        """One step. What it came to: ``""``, or the name of a breakdown, after which x is as good as before."""
        system, W = self.system, self.W
        p, v, r, t, x, shadow = W
        tiny = NOISE * float(np.finfo(system.dtype).eps)
        if abs(self.rho) <= tiny * self.shadow_norm * self.norm:
            return "rho"
        self.steps += 1
        p_hat = system.precondition(p)
        system.product(p_hat, v)
        with system.stats.phase("vectors"):
            # (1)
            rv = np.vdot(shadow, v)
            alpha = self.rho / rv if rv != 0 else np.inf
            if not np.isfinite(alpha):
                return "alpha" if np.isfinite(rv) else "overflow"
            _add(r, -alpha, v, t)
            norm_s = float(np.linalg.norm(r))
            if not np.isfinite(norm_s):
                return "overflow"
            if norm_s <= system.target:
                _add(x, alpha, p_hat, t)
                self.norm = norm_s
                return ""
        s_hat = system.precondition(r)
        system.product(s_hat, t)
        with system.stats.phase("vectors"):
            # (2)
            (ts, tt), (rs, rt) = (W[_T : _SHADOW + 1 : 2].conj() @ W[_R : _T + 1].T).tolist()
            if not (np.isfinite(ts) and np.isfinite(tt)):
                return "overflow"
            if tt == 0 or abs(ts) <= tiny * norm_s * np.sqrt(abs(tt)):
                _add(x, alpha, p_hat, v)
                self.norm = norm_s
                return "omega"
            omega = ts / tt
            # (3), (4)
            rho = rs - omega * rt
            beta = rho / self.rho * alpha / omega
            plain = system.M is None
            C = np.array(
                [
                    [beta, -beta * omega, 1, -omega, 0],
                    [0, 0, 1, -omega, 0],
                    [alpha if plain else 0, 0, omega if plain else 0, 0, 1],
                ]
            )
            self.take(C, W[: _X + 1], add_x=False)
            if not np.isfinite(self.norm):
                self.take_back()
                return "overflow"
            if not plain:
                _add(self.x, alpha, p_hat, self.W[_V])
                _add(self.x, omega, s_hat, self.W[_V])
            self.rho = rho
            self.alphas.append(alpha)
            self.betas.append(beta)
        return ""


def iterate(state: Recurrence, most: int, advance: Callable[[Recurrence, int], str], *, return_stats: bool) -> Answer:
    """Advance until the true residual is small enough, or nothing helps any more.

    Parameters
    ----------
    state : Recurrence
        Begun.
    most : int
        Most steps.
    advance : callable
        ``advance(state, left)`` does one step or several, at most `left`, and names a breakdown or returns ``""``.
    """
    system = state.system
    stats, best, in_vain = system.stats, state.norm, 0

    def finish(info: int, reason: str) -> Answer:
        answer = system.finish(state.x, info=info, reason=reason, iterations=state.steps, return_stats=return_stats)
        stats.seconds["total"] = time.perf_counter() - state.began
        return answer

    if system.norm_b == 0.0:
        state.x[:] = 0
        return finish(0, "the right-hand side is zero")
    stats.residuals.append(state.norm)
    while True:
        trouble = ""
        if state.norm > system.target:
            if state.steps >= most:
                return finish(max(1, most), f"not converged after {most} steps")
            before = state.steps
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                trouble = advance(state, most - state.steps)
            if state.steps > before and not trouble:
                stats.residuals.append(state.norm)
                system.say(state.x.reshape(system.shape))
        if not trouble and state.norm > system.target:
            continue
        # The recurrence says converged, or it broke down: what does the true residual say?
        said, true = state.norm, state.replace()
        if true <= system.target:
            return finish(0, "converged")
        if true < _BETTER * best:
            best, in_vain = true, 0
            system.x[:] = state.x
        else:
            in_vain += 1
            if in_vain >= (_TRIES if trouble else _PATIENCE) or not np.isfinite(true):
                if not true <= best:
                    state.x[:] = system.x
                if trouble:
                    return finish(_CODES[trouble], f"breakdown: {_WORDS[trouble]}")
                return finish(
                    max(1, state.steps),
                    f"stagnated: a residual of {best:.1e} is what can be attained in {system.dtype}, "
                    f"above the target of {system.target:.1e}",
                )
        why = _WORDS[trouble] if trouble else f"the true residual was {true:.2e} where the recurrence said {said:.2e}"
        stats.notes.append(f"step {state.steps}: begun again, as {why}")
        state.begin(seed=in_vain if trouble else 0)


def check_maxiter(maxiter: Any, n: int) -> int:
    """The most steps: `maxiter`, or SciPy's 10 n."""
    if maxiter is None:
        return 10 * n
    if isinstance(maxiter, bool) or not isinstance(maxiter, (int, np.integer)) or maxiter < 0:
        raise ArgumentError("maxiter is out of range", expected="an integer >= 0", found=repr(maxiter))
    return int(maxiter)


def _add(y: NDArray[Any], factor: complex, x: NDArray[Any], scratch: NDArray[Any]) -> None:
    """y += factor x."""
    np.multiply(x, y.dtype.type(factor), out=scratch)
    y += scratch
