"""The steps of BiCGStab (van der Vorst 1992), their vector work fused into five passes.

With the shadow residual r~ = r_0 and p_0 = r_0, step j is, in the symbols of the paper,

    v = A p,   alpha = (r~, r) / (r~, v),   s = r - alpha v                                 (1)
    t = A s,   omega = (t, s) / (t, t)                                                      (2)
    x += alpha p + omega s,   r' = s - omega t                                              (3)
    beta = (r~, r') / (r~, r) * alpha / omega,   p' = r' + beta (p - omega v)               (4)

and with a preconditioner M from the right v = A M p, t = A M s, x += alpha M p + omega M s. (r~, r') is (r~, s) - omega
(r~, t), and ||r'||^2 is ||s||^2 less |(t, s)|^2 / (t, t), but for large cancellation, where it is computed.

Words moved for each step, in n, beside two products of A: (r~, v) 2, s 3, the inner products 3, then x and p from p and
v 5, x and r' from s and t 5, p' 3: 21, where one operation after another moves 31.

Breakdowns. Where (r~, r), (r~, v) or (t, s) vanishes the method begins again from its newest x with r~ = r, then with
random ones a few times. Where the recurrence says converged and the true residual does not, the residual is replaced
and the method begins again, until that no longer lowers the true residual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from akx.solvers.monitor import ENDED
from akx.solvers.stopping import NO_SOLUTION, Best, Doubts
from akx.solvers.system import Answer, Rows, System

__all__ = ["NOISE", "Recurrence", "iterate"]

#: Rows of :attr:`Recurrence.W`: v behind p and t behind r, as products want it, and r~, r, t side by side.
_P, _V, _SHADOW, _R, _T, _X = range(6)
#: ||r'||^2 below this part of ||s||^2 is not taken from their difference.
_CANCELLED = 1e-4
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
    "omega": "(A s, s) = 0: the step of steepest descent does not move (is A skew-symmetric? minres is for that)",
    "overflow": "a vector is not finite any more",
}


@dataclass
class Recurrence:
    """The vectors of BiCGStab between two steps, and one step.

    The rows of W, (6, n), are p, v, r~, r (s within a step), t, x; `norm` is ||r|| by the recurrence, `rho` (r~, r).
    `alphas` and `betas` since the last beginning are those of BiCG, whose tridiagonal matrix has its Ritz values.
    """

    system: System
    W: Rows = field(init=False)
    norm: float = 0.0
    rho: complex = 0.0
    shadow_norm: float = 0.0
    steps: int = 0
    alphas: list[complex] = field(default_factory=list)
    betas: list[complex] = field(default_factory=list)

    def __post_init__(self) -> None:
        system = self.system
        self.work = system.work
        self.W = system.rows(6)
        self.W[_X] = system.x
        if system.zero_guess:
            self.r[:] = system.b
            self.norm = system.norm_b
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
        self.shadow[:] = self.r if seed == 0 else np.random.default_rng(seed).standard_normal(self.system.n)
        self.measure()
        self.alphas.clear()
        self.betas.clear()

    def measure(self) -> None:
        """The norms of r and r~, and (r~, r), from the vectors."""
        G = self.work.gram(self.W[_SHADOW : _R + 1])
        self.shadow_norm, self.norm = (float(v) for v in np.sqrt(G.diagonal().real))
        self.rho = G[0, 1]

    def replace(self) -> float:
        """r = b - A x; its norm. What is no number in x becomes 0: A does not see it where a column is empty."""
        if not np.isfinite(self.work.norm(self.x)):
            x = self.work.to_host(self.x)
            self.W[_X] = self.work.from_host(np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0))
        self.norm = self.system.residual(self.x, self.r)
        return self.norm

    def go_on_from(self, r: Rows) -> None:
        """Have r for the residual, and go on with the direction and the r~ there are; `r` may be written to."""
        self.work.add(self.r, -1.0, r)  # by what the recurrence was off
        self.work.add(self.p, -1.0, self.r)
        self.W[_R] = r
        self.measure()

    def step(self) -> str:
        """One step. What it came to: ``""``, or the name of a breakdown; x is good in any case but ``"overflow"``."""
        system, W, advance = self.system, self.W, self.work.advance
        tiny = NOISE * float(np.finfo(system.dtype).eps)
        if abs(self.rho) <= tiny * self.shadow_norm * self.norm:
            return "rho"
        self.steps += 1
        p_hat = self._product_of(_P)
        with system.stats.phase("vectors"):
            # (1)
            rv = self.work.dot(W, _SHADOW, _V)
            rv = rv if system.dtype.kind == "c" else rv.real
            if not np.isfinite(rv):
                return "overflow"
            alpha = self.rho / rv if rv != 0 else np.inf
            if not np.isfinite(alpha):
                return "alpha"
            advance(np.array([[-alpha]]), W[_V : _V + 1], self.r)
        s_hat = self._product_of(_R)
        with system.stats.phase("vectors"):
            # (2)
            G = self.work.gram(W[_SHADOW : _T + 1])
            ss, tt, ts, rs, rt = G[1, 1].real, G[2, 2].real, G[2, 1], G[0, 1], G[0, 2]
            if not np.isfinite(ss + tt + abs(ts) + abs(rs) + abs(rt)):
                return "overflow"
            norm_s = float(np.sqrt(ss))
            lost = tt == 0 or abs(ts) <= tiny * norm_s * np.sqrt(tt)
            if norm_s <= system.target or lost:
                self._add_to_x(alpha, p_hat)
                self.norm = norm_s
                return "" if norm_s <= system.target else "omega"
            omega = ts / tt
            # (3), (4)
            rho = rs - omega * rt
            beta = rho / self.rho * alpha / omega
            plain = system.M is None
            advance(np.array([[alpha if plain else 0, 0], [beta, -beta * omega]]), W[_P : _V + 1], self.x)
            advance(np.array([[omega if plain else 0, 0], [1, -omega]]), W[_R : _T + 1], self.x)
            advance(np.array([[1.0]]), W[_R : _R + 1], self.p)
            if not plain:
                self._add_to_x(alpha, p_hat)
                self._add_to_x(omega, s_hat)
            square = ss - abs(ts) ** 2 / tt
            if square <= _CANCELLED * ss:
                square = self.work.gram(W[_R : _R + 1])[0, 0].real
            if not np.isfinite(square):
                return "overflow"
            self.norm, self.rho = float(np.sqrt(square)), rho
            self.alphas.append(alpha)
            self.betas.append(beta)
        return ""

    def _product_of(self, row: int) -> Rows:
        """The row behind becomes A M of that row; M of it."""
        system = self.system
        if system.M is None:
            system.product_in(self.W, row)
            return self.W[row]
        found = system.precondition(self.W[row])
        system.product(found, self.W[row + 1], apart=True)
        return found

    def _add_to_x(self, factor: complex, v: Rows) -> None:
        """x += factor v."""
        self.work.add(self.x, factor, v)


def iterate(
    state: Recurrence,
    most: int,
    advance: Callable[[Recurrence, int], str],
    *,
    fall_back: Callable[[], bool] = lambda: False,
    why_no_solution: Callable[..., str] = lambda *_, **__: "",
    return_stats: bool,
) -> Answer:
    """Advance by at most `most` steps, until the true residual is small enough or nothing helps any more.

    ``advance(state, left)`` does one step or several, at most `left`, and names a breakdown or returns ``""``.
    ``fall_back()`` is asked where new beginnings are in vain: whether steps will be of a more stable kind from now on;
    ``why_no_solution`` (:mod:`akx.solvers.singular`) where nothing helps.
    """
    system = state.system
    stats, best, in_vain = system.stats, state.norm, 0
    kept, doubts = Best(system), Doubts(system)
    kept.norm = state.norm

    def finish(info: int, reason: str, residual: float | None = None) -> Answer:
        done = {"iterations": state.steps, "return_stats": return_stats, "residual": residual}
        return system.finish(state.x, info=info, reason=reason, **done)  # type: ignore[arg-type]

    if system.norm_b == 0.0:
        state.x[:] = 0
        return finish(0, "the right-hand side is zero")
    stats.residuals.append(state.norm)
    while True:
        trouble = ""
        if state.norm > system.target:
            if state.steps >= most:
                return finish(max(1, most), f"not converged after {most} steps")
            if system.ended():
                return finish(max(1, state.steps), ENDED)
            before = state.steps
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                trouble = advance(state, most - state.steps)
            stats.iterations = state.steps
            if state.steps > before and not trouble:
                stats.residuals.append(state.norm)
                system.tell(state.x)
                kept.take(state.x, state.norm)
        if not trouble and state.norm > system.target:
            if doubts.arise(kept.norm) and (why := why_no_solution(system, system.x, on_the_way=True)):
                return finish(NO_SOLUTION, why)
            continue
        # The recurrence says converged, or it broke down: what does the true residual say?
        if trouble == "overflow" and not np.isfinite(system.work.norm(state.x)):
            state.x[:] = system.x  # the best one
        said, true = state.norm, state.replace()
        if true <= system.target:
            return finish(0, "converged", true)
        if true < _BETTER * best:
            best, in_vain = true, 0
            system.x[:] = state.x
        else:
            in_vain += 1
            is_over = in_vain >= (_TRIES if trouble else _PATIENCE) or not np.isfinite(true)
            if is_over and fall_back():
                in_vain, state.x[:] = 0, system.x
                true = state.replace()
            elif is_over:
                if not true <= best:
                    state.x[:] = system.x
                if why := why_no_solution(system, system.x):
                    return finish(NO_SOLUTION, why)
                if trouble:
                    return finish(_CODES[trouble], f"breakdown: {_WORDS[trouble]}")
                least, target = map(system.units.norm, (best, system.target))
                attained = f"a residual of {least:.1e} is what can be attained in {system.dtype}"
                return finish(max(1, state.steps), f"stagnated: {attained}, above the target of {target:.1e}")
        true, said = map(system.units.norm, (true, said))
        why = _WORDS[trouble] if trouble else f"the true residual was {true:.2e} where the recurrence said {said:.2e}"
        stats.note_often(f"step {state.steps}: begun again, as {why}", "begun again", ": begun again,")
        state.begin(seed=in_vain if trouble else 0)
