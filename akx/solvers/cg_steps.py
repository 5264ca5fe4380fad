"""The steps of conjugate gradients (:mod:`akx.solvers.cg`), one at a time, or queued on a GPU ahead of the host.

A system without a solution. p over <r, u> is a multiple of the least residual that the space has (in the norm of M,
Weiss 1994), and with q = <p, M^-1 p>, of the recurrence q' = <r', u'> + beta^2 q, <p, A p> / q is its Rayleigh
quotient. Where b is not in the range of a singular A that goes to zero, while x and r grow without bound. Where it is
eps times the largest one, p is looked at as a null vector (:mod:`akx.solvers.singular`). x at the least of residuals is
kept, as far as it takes a tenth off the last kept.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from akx.solvers.scaling import eps_of
from akx.solvers.singular import why_no_solution
from akx.solvers.stopping import NO_SOLUTION, Best
from akx.solvers.symmetry import is_hermitian
from akx.solvers.system import Rows, System

__all__ = ["AheadSteps", "Steps"]

#: By so many units of rounding a norm on the device has to be smaller than the host asks for.
_SLACK, _DOUBLE = 16, np.dtype(float)
#: How often the directions may begin anew where <p, A p> is not positive.
_RESTARTS = 3
#: Over the least residual, what tells that the last one is no answer.
_FAR = 10
#: A Rayleigh quotient of so many units of rounding of the largest one is zero.
_ZERO = 4


class Rayleigh:
    """The Rayleigh quotient <p, A p> / <p, M^-1 p> of directions, by what is known without a look at vectors."""

    def __init__(self, system: System) -> None:
        self._tiny = _ZERO * eps_of(system.dtype)
        self._entry = float(system.matrix.largest)  # the norm of A is no less
        self._largest = self._before = self._gamma = self._q = 0.0
        self.was_zero = False

    def begin(self, gamma: float, norm: float) -> None:
        """Directions begin at r, of that norm and <r, M r>."""
        self._gamma = self._q = gamma
        self._before = 0.0
        self._largest = max(self._largest, self._entry * gamma / (norm * norm))

    def add(self, alpha: float, beta: float, gamma: float) -> None:
        """The coefficients of a step, and <r, M r> after it."""
        if alpha > 0:
            if abs(self._gamma / alpha) <= self._tiny * self._largest * self._q:
                self.was_zero = True
            entry = 1 / alpha + self._before  # of the diagonal of the Lanczos matrix
            if entry > self._largest:
                self._largest = entry
            self._before = beta / alpha
        self._gamma, self._q = gamma, gamma + beta * beta * self._q

    def is_zero(self, curvature: float) -> bool:
        """Whether <p, A p> is zero up to rounding, for the direction that a step would go along now."""
        return abs(curvature) <= self._tiny * self._largest * self._q


class Steps:
    """The steps, one at a time, on V = [p, w, r, x] or, with a preconditioner, [p, w, r, x, u].

    Attributes
    ----------
    norm : float
        Of r.
    alphas, betas : list of float
        The coefficients since the directions began: the Lanczos matrix.
    """

    def __init__(self, system: System, V: Rows) -> None:
        self.system, self.V, self.work = system, V, system.work
        self.norm = self.gamma = np.inf
        self.alphas: list[float] = []
        self.betas: list[float] = []
        self._restarts = 0
        self._u = 2 if system.M is None else 4  # the row of u
        self.best = Best(system)
        self.rayleigh = Rayleigh(system)
        self._eps = eps_of(system.dtype)
        self._most = 0.0  # a residual up to this has not grown
        self._next_look, self._why = 0, ""  # whether there is a solution, and why there is none

    def begin(self, norm: float) -> str:
        """Begin the directions at the residual r, whose norm is known; why that cannot be, or nothing."""
        self.norm, self._most = norm, self.system.stats.residuals[0]
        self.alphas, self.betas = [], []
        if self.system.zero_guess and not self.system.stats.iterations:
            self.best.norm = norm  # of the first guess, which is there
        else:
            self.best.take(self.V[3], norm)
        self.V[0] = self.system.precondition(self.V[2])
        why = self._take_gamma(0)
        self.rayleigh.begin(self.gamma, norm)
        return why

    def keep_before(self, norm: float) -> None:
        """Before a step to a residual of that norm: keep x where it grows by that."""
        if norm > self.norm:
            self.best.take(self.V[3], self.norm)

    def resume(self, norm: float, *, anew: bool) -> None:
        """Take p and r as others left them, without a preconditioner; `anew`: p is r."""
        self.norm, self.gamma = norm, norm * norm
        if anew:
            self.rayleigh.begin(self.gamma, norm)

    def replace(self, r: Rows, norm: float) -> str:
        """Have r, of that norm, for the residual, and go on with the directions there are; why not, or nothing.

        The new direction is p = u + beta p with u of this r (van der Vorst, Ye 2000, section 3). All that was queued is
        taken. `r` may be written to.
        """
        V, work, u = self.V, self.work, self._u
        work.add(V[2], -1.0, r)  # by what the recurrence was off
        work.add(V[0], -1.0, self.system.precondition(V[2]))
        V[2] = r
        self.resume(norm, anew=False)
        if self.system.M is None:
            return ""
        V[u] = self.system.precondition(V[2])
        return self._take_gamma(u)

    def count(self, norm: float) -> None:
        """A step by others, after which the residual has that norm."""

    def settle(self) -> None:
        """Take what has been queued: here nothing."""

    def step(self) -> str:
        """One step; why it cannot be done, or nothing."""
        system, work, V, rayleigh = self.system, self.work, self.V, self.rayleigh
        stats = system.stats
        while True:
            system.product_in(V, 0)  # 1. w = A p
            begin = time.perf_counter()
            curvature = work.dot(V, 0, 1).real  # 2. <p, w>
            is_doubtful = rayleigh.was_zero and self.is_doubtful
            if (is_doubtful or rayleigh.is_zero(curvature)) and self.has_no_solution():
                return self._why
            if 0 < curvature < math.inf:
                break
            if why := self.begin_anew(curvature):
                return why
        alpha, gamma = self.gamma / curvature, self.gamma
        square = work.descend(V, alpha)  # 3. r -= alpha w, and <r, r>
        norm = math.sqrt(square) if square >= 0 else math.nan  # rounding errors, where vectors are no numbers
        if norm > self.norm:
            self.keep_before(norm)
        self.norm, why = norm, ""
        if system.M is None:
            self.gamma = norm * norm
        else:
            stats.add("vectors", begin)
            V[self._u] = system.precondition(V[2])
            why = self._take_gamma(self._u)
            begin = time.perf_counter()
        beta = self.gamma / gamma  # 4.
        work.turn(V, alpha, beta, self._u)  # 5. x += alpha p, p = u + beta p
        stats.add("vectors", begin)
        self.alphas.append(alpha)
        self.betas.append(beta)
        rayleigh.add(alpha, beta, self.gamma)
        stats.iterations += 1
        stats.residuals.append(norm)
        if system.callback is not None:
            system.tell(V[3])
        if norm == 0:
            return ""
        return why or ("" if norm <= self._most else self.grown())

    @property
    def is_doubtful(self) -> bool:
        """Whether A sent a direction to about zero, and it is time to look at that."""
        return self.rayleigh.was_zero and self.system.stats.products >= self._next_look

    def has_no_solution(self) -> bool:
        """Whether p, which A sends to about zero, or later r shows that there is none; looked at now and then."""
        products = self.system.stats.products
        if products >= self._next_look:
            start = None if self._next_look else self.V[0]
            self._next_look, self.rayleigh.was_zero = 2 * products, False
            self._why = why_no_solution(self.system, self.system.x, start)
        return bool(self._why)

    def failed(self, why: str, otherwise: tuple[int, str]) -> tuple[int, str]:
        """info and reason of a solve that ended without an answer: after a breakdown, or as `otherwise` says."""
        watch = self.system.watch
        if not (why and watch is not None and watch.looks_at_plain):  # else other methods come, and look themselves
            self._why = self._why or why_no_solution(self.system, self.system.x if why else self.V[3])
        if self._why:
            return NO_SOLUTION, self._why
        return (-1, "breakdown: " + why) if why else otherwise

    def recover(self) -> None:
        """Nothing: the best x was kept."""

    def descends(self) -> bool:
        """Whether A is Hermitian: then the error's norm in A falls with each step, while the residual may grow."""
        return is_hermitian(self.system.matrix)

    def begin_anew(self, curvature: float) -> str:
        """Begin the directions anew where <p, A p> is not positive; why that would be in vain, or nothing."""
        stats = self.system.stats
        if not np.isfinite(curvature):
            return "the vectors are no longer finite"
        what = f"<p, A p> = {curvature:.2e}"
        if self._restarts == _RESTARTS or not self.betas:
            return f"the matrix is not positive definite, {what}"
        self._restarts += 1
        stats.notes.append(f"step {stats.iterations}: {what} is not positive; the directions begin anew")
        return self.begin(self.norm)

    def grown(self) -> str:
        """That the residual has grown without bound, before vectors overflow; or nothing."""
        first = self.system.stats.residuals[0]
        if self.norm * self._eps <= max(first, self.system.target):
            return ""
        first, last = map(self.system.units.norm, (first, self.norm))
        return f"the residual has grown from {first:.1e} to {last:.1e}: the matrix is singular, or not definite"

    def _take_gamma(self, row: int) -> str:
        """gamma = <r, u>, u being that row; that M is not definite, or nothing."""
        if self.system.M is None:
            self.gamma = self.norm * self.norm
            return ""
        with self.system.stats.phase("vectors"):
            self.gamma = self.work.dot(self.V, 2, row).real
        return "" if self.gamma > 0 else f"M is not positive definite, <r, M r> = {self.gamma:.2e}"


class AheadSteps(Steps):
    """The steps, queued on the GPU before the host knows what came of those before, for M a positive diagonal or none.

    With a callback they are queued one by one. The device ends by itself where the norm is reached or a step cannot be
    done, and where `quota` steps are done, so that vectors are those after the last step that was reported. Before
    `ahead`, whether they are queued ahead at all, is set to False :meth:`settle` has to be called.
    """

    def __init__(self, system: System, V: Rows, limit: int, diagonal: Rows | None = None) -> None:
        super().__init__(system, V)
        self.limit = self.quota = limit
        self.ahead = True
        self._taken = self._steps_to_best = 0  # since the directions began
        self._diagonal, self._left = diagonal, 0
        self._tier, self._queue = system.tier, system.step_queue(V, diagonal)

    def begin(self, norm: float) -> str:
        self._left = 0
        self.best.norm, self._taken, self._steps_to_best = np.inf, 0, 0
        return super().begin(norm)

    def resume(self, norm: float, *, anew: bool) -> None:
        super().resume(norm, anew=anew)
        self._left = 0

    def step(self) -> str:
        """The next step; why it cannot be done, or nothing."""
        if not self.ahead:
            return super().step()
        while True:
            with self.system.stats.phase("device"):
                if self._left == 0:
                    if self._tier != self.system.tier:  # all steps so far were taken
                        self._tier, self._queue = self.system.tier, self.system.step_queue(self.V, self._diagonal)
                    self._left = self._allowed()
                    goal = self.system.target * self.system.target * (1 - _SLACK * eps_of(_DOUBLE))
                    self._queue.begin(self.gamma, self.norm * self.norm, goal, self._left)
                record = self._queue.next()
            self._count(record)
            if self.is_doubtful or (not record.done and self.rayleigh.is_zero(record.curvature)):
                self.settle()
                if self.has_no_solution():
                    return self._why
            if record.done:
                if self.system.callback is not None:
                    self.settle()
                    self.system.tell(self.V[3])
                return "" if self.norm == 0 else self.grown()
            if not self.gamma > 0:
                return f"M is not positive definite, <r, M r> = {self.gamma:.2e}"
            if why := "no step can be done" if record.curvature > 0 else self.begin_anew(record.curvature):
                return why

    def _allowed(self) -> int:
        left, of_plain = self.limit - self.system.stats.iterations, self.system.plain_left
        left = left if of_plain is None else min(left, of_plain)
        return max(1, min(self.quota, left)) if self.system.callback is None else 1

    def settle(self) -> None:
        """Take what has been queued, so that vectors stay as they are."""
        for record in self._queue.rest():
            if record.done:
                self._count(record)
        self._left = 0

    def _count(self, record: Any) -> None:
        stats = self.system.stats
        stats.products += 1
        stats.matrix_passes += 1
        if not record.done:
            return
        self._left -= 1
        self.gamma, self.norm = record.gamma, float(np.sqrt(record.square))
        self.alphas.append(record.alpha)
        self.betas.append(record.beta)
        self.rayleigh.add(record.alpha, record.beta, self.gamma)
        self.count(self.norm)
        stats.iterations += 1
        stats.residuals.append(self.norm)

    def count(self, norm: float) -> None:
        """A step since the directions began, after which the residual has that norm: x of the least can be found."""
        self._taken += 1
        if norm < self.best.norm:
            self.best.norm, self._steps_to_best = norm, self._taken

    def failed(self, why: str, otherwise: tuple[int, str]) -> tuple[int, str]:
        """See :meth:`Steps.failed`. x of the least residual, which the device has long left, is made again."""
        said = super().failed(why, otherwise)
        if said[0] == NO_SOLUTION or (said[0] < 0 and 2 * self.best.norm < self.norm):
            self._repeat()
        return said

    def recover(self) -> None:
        """See :class:`akx.solvers.cg.Recurrence`. Not where A is Hermitian: the error falls, whatever the residual."""
        if self.norm > min(self._most, _FAR * self.best.norm) and not self.descends():
            self._repeat()

    def _repeat(self) -> None:
        """The steps to the least residual, once more."""
        system, stats, V = self.system, self.system.stats, self.V
        if not self._steps_to_best:
            return
        steps, residuals, callback = stats.iterations, list(stats.residuals), system.callback
        system.callback, again = None, Steps(system, V)
        V[3] = system.x
        again.begin(system.residual(V[3], V[2]))
        for _ in range(self._steps_to_best):
            if again.step():
                break
        again.best.take(V[3], again.norm)
        system.callback, stats.iterations, stats.residuals = callback, steps, residuals
        stats.notes.append(f"the {self._steps_to_best} steps to the least residual were done again")
