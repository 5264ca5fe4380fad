"""Conjugate gradients (Hestenes and Stiefel 1952), the vector work in three passes.

For A and M Hermitian positive definite, beginning with p = u = M r:

    1.  w = A p
    2.  alpha = <r, u> / <p, w>
    3.  r -= alpha w,  u = M r
    4.  beta = <r, u> / <r, u> of the step before
    5.  x += alpha p,  p = u + beta p

Memory moved for each step beside the product's own, in vectors of n words: 2 read for <p, w>; 2 read and 1 written in
step 3, which forms <r, r> too; 3 read and 2 written in step 5: 10 in all, and 2 for <r, u> with M.

The order of Chronopoulos and Gear (1989) has a single reduction, with s = A p by a recurrence and <p, w> taken from
<r, A r>. It moves 11 vectors, and on a host a reduction costs nothing; what it does cost is steps on ill-conditioned
matrices: 614 instead of 598 for 662_bus, 12,570 instead of 12,020 for nasa4704, rtol 1e-8.

A system without a solution. p over <r, u> is the sum of u_i over <r_i, u_i> of all steps so far, so that p is a
multiple of the least residual that the space has (in the norm of M, Weiss 1994), and with q = <p, M^-1 p>, of the
recurrence q' = <r', u'> + beta^2 q, <p, A p> / q is its Rayleigh quotient. Where b is not in the range of a singular A
that goes to zero, while x and r grow without bound. Where it is eps times the largest one, p is looked at as a null
vector (:mod:`akx.solvers.stopping`). x at the least of residuals is kept, as far as it takes a tenth off the last kept.

The residual of the recurrence drifts from b - A x. When it meets the tolerance the true one is computed; where that is
larger it takes the other's place and the directions begin anew.

Source: M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, J. Res. Natl. Bur. Stand.
49 (1952) 409-436.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from akx.core.errors import PlanError
from akx.solvers.arguments import check_count, check_hermitian
from akx.solvers.monitor import ENDED
from akx.solvers.scaling import eps_of
from akx.solvers.singular import why_no_solution
from akx.solvers.stopping import NO_SOLUTION, Best, Claims
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["AheadSteps", "Steps", "cg", "first_residual", "steps_of"]

#: By so many units of rounding a norm on the device has to be smaller than the host asks for.
_SLACK = 16
#: How often the directions may begin anew where <p, A p> is not positive.
_RESTARTS = 3
#: A Rayleigh quotient of so many units of rounding of the largest one is zero.
_ZERO = 4


def cg(
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
    """Solve A x = b for a Hermitian (real symmetric) positive definite A.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
    b : array_like, shape (n,) or (n, 1)
    x0 : array_like or ``"Mb"``, optional
        First guess; zero by default. ``"Mb"``: M b.
    rtol, atol : float
        Converged where ||b - A x|| <= max(rtol ||b||, atol), by the true residual.
    maxiter : int, optional
        Most steps; 10 n by default.
    M : sparse matrix, array or LinearOperator, optional
        Preconditioner, an approximation of A^-1, Hermitian positive definite.
    callback : callable, optional
        Called as ``callback(xk)`` after each step.
    threads, db
        As for :class:`akx.MatrixPowers`.
    backend : str
        ``"auto"`` or the name of a backend: where b is.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too.

    Returns
    -------
    x : ndarray of b's shape
    info : int
        0: converged. > 0: the number of steps, where they ran out or nothing more could be gained. -1: breakdown, as
        with a matrix that is not positive definite. -2: the system has no solution. Where it is negative x is the best
        one found.
    stats : SolveStats
        With `return_stats`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = cg(A, np.ones(50), rtol=1e-10)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    """
    check_hermitian(M, "cg")
    system = make_system(
        "cg", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    return _solve(system, check_count("maxiter", maxiter, 10 * system.n, least=0), return_stats)


def _solve(system: System, limit: int, return_stats: bool) -> Answer:
    stats = system.stats
    V = system.rows(4 if system.M is None else 5)
    x, w, r = V[3], V[1], V[2]
    norm = first_residual(system, x, r)
    if norm <= system.target:
        why = "b is zero" if system.norm_b == 0 else "the first guess is good enough"
        known = norm if system.norm_b else None
        return system.finish(x, info=0, reason=why, iterations=0, return_stats=return_stats, residual=known)
    steps = steps_of(system, V, limit)
    claims = Claims(system)
    info, reason, true = max(limit, 1), "the steps ran out", None
    why = steps.begin(norm)
    while not why and stats.iterations < limit:
        if system.ended(steps.settle):
            info, reason = max(stats.iterations, 1), ENDED
            break
        # What was taken when a watch looked may have come to the end.
        why = steps.step() if steps.norm > system.target and stats.iterations < limit else ""
        if not why and steps.norm <= system.target:
            steps.settle()  # x is to be that of the last step counted
            if claims.check(x, w, steps.norm):
                info, reason, true = 0, "converged", claims.true
                break
            if claims.is_futile:
                info, reason = stats.iterations, claims.give_up(x)
                break
            r[:] = w
            why = steps.begin(claims.true)
    if why or claims.is_futile:
        info, reason = steps.failed(why, (info, reason))
    iterations = stats.iterations
    return system.finish(x, info=info, reason=reason, iterations=iterations, return_stats=return_stats, residual=true)


def first_residual(system: System, x: Rows, r: Rows) -> float:
    """x = the first guess and r = b - A x, for b = 0 both zero; the norm of r, which is noted."""
    x[:] = system.x
    if system.norm_b == 0:
        x[:] = 0
    if system.norm_b == 0 or system.zero_guess:
        r[:], norm = system.b, system.norm_b
    else:
        norm = system.residual(x, r)
    system.stats.residuals.append(norm)
    return norm


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
        self._largest = max(self._largest, self._entry * gamma / norm**2)

    def add(self, alpha: float, beta: float, gamma: float) -> None:
        """The coefficients of a step, and <r, M r> after it."""
        if alpha > 0:
            if abs(self._gamma / alpha) <= self._tiny * self._largest * self._q:
                self.was_zero = True
            entry = 1 / alpha + self._before  # of the diagonal of the Lanczos matrix
            if entry > self._largest:
                self._largest = entry
            self._before = beta / alpha
        self._gamma, self._q = gamma, gamma + beta**2 * self._q

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
        self.norm, self.gamma = norm, norm**2
        if anew:
            self.rayleigh.begin(self.gamma, norm)

    def count(self, norm: float) -> None:
        """A step by others, after which the residual has that norm."""

    def step(self) -> str:
        """One step; why it cannot be done, or nothing."""
        system, work, V, rayleigh = self.system, self.work, self.V, self.rayleigh
        stats = system.stats
        while True:
            system.product_in(V, 0)
            begin = time.perf_counter()
            curvature = work.dot(V, 0, 1).real
            is_doubtful = rayleigh.was_zero and self.is_doubtful
            if (is_doubtful or rayleigh.is_zero(curvature)) and self.has_no_solution():
                return self._why
            if 0 < curvature < math.inf:
                break
            if why := self.begin_anew(curvature):
                return why
        alpha, gamma = self.gamma / curvature, self.gamma
        square = work.descend(V, alpha)
        norm = math.sqrt(square) if square >= 0 else math.nan  # rounding errors, where vectors are no numbers
        if norm > self.norm:
            self.keep_before(norm)
        self.norm, why = norm, ""
        if system.M is None:
            self.gamma = norm**2
        else:
            stats.add("vectors", begin)
            V[self._u] = system.precondition(V[2])
            why = self._take_gamma(self._u)
            begin = time.perf_counter()
        beta = self.gamma / gamma
        work.turn(V, alpha, beta, self._u)
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

    def settle(self) -> None:
        """Take what has been queued: here nothing."""

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
        self._why = self._why or why_no_solution(self.system, self.system.x if why else self.V[3])
        if self._why:
            return NO_SOLUTION, self._why
        return (-1, "breakdown: " + why) if why else otherwise

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
        """gamma = <r, u>, u being that row."""
        if self.system.M is None:
            self.gamma = self.norm**2
            return ""
        with self.system.stats.phase("vectors"):
            self.gamma = self.work.dot(self.V, 2, row).real
        return "" if self.gamma > 0 else f"M is not positive definite, <r, M r> = {self.gamma:.2e}"


class AheadSteps(Steps):
    """The steps, queued on the GPU before the host knows what came of those before, for M a positive diagonal or none.

    With a callback they are queued one by one.

    The device ends by itself where the norm is reached or a step cannot be done, and where `quota` steps are done, so
    that vectors are those after the last step that was reported; see `StepQueue`.

    Attributes
    ----------
    limit, quota : int
        Most steps in all, and those that may be done before the host says so again.
    ahead : bool
        Whether they are queued ahead at all. Before it is set to False :meth:`settle` has to be called.
    """

    def __init__(self, system: System, V: Rows, limit: int, diagonal: Rows | None = None) -> None:
        super().__init__(system, V)
        self.limit = self.quota = limit
        self.ahead = True
        self._taken = self._steps_to_best = 0  # since the directions began
        self._diagonal, self._left = diagonal, 0
        self._tier, self._queue = system.tier, system.step_queue(V, diagonal)
        self._goal = system.target**2 * (1 - _SLACK * float(np.finfo(float).eps))

    def begin(self, norm: float) -> str:
        """Begin the directions at the residual r, whose norm is known; why that cannot be, or nothing."""
        self._left = 0
        self.best.norm, self._taken, self._steps_to_best = np.inf, 0, 0
        return super().begin(norm)

    def resume(self, norm: float, *, anew: bool) -> None:
        """Take p and r as others left them."""
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
                    self._queue.begin(self.gamma, self.norm**2, self._goal, self._left)
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
            if why := self._refused(record.curvature):
                return why

    def _refused(self, curvature: float) -> str:
        """Why no step was done, or nothing where the directions could begin anew."""
        if not self.gamma > 0:
            return f"M is not positive definite, <r, M r> = {self.gamma:.2e}"
        return self.begin_anew(curvature) if not curvature > 0 else "no step can be done"

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
        system, stats, V = self.system, self.system.stats, self.V
        said = super().failed(why, otherwise)
        is_lost = said[0] == NO_SOLUTION or (said[0] < 0 and 2 * self.best.norm < self.norm)
        if is_lost and self._steps_to_best:
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
        return said


def steps_of(system: System, V: Rows, limit: int) -> Steps:
    """The steps of a system, queued ahead on a device: but for preconditioners other than a positive diagonal.

    Raises PlanError where the plan streams the matrix, which cannot be queued, and there is no preconditioner.
    """
    if not system.on_device:
        return Steps(system, V)
    if system.M is None:
        return AheadSteps(system, V, limit)
    diagonal = system.positive_diagonal()
    if diagonal is not None:
        with suppress(PlanError):
            return AheadSteps(system, V, limit, diagonal)
    return Steps(system, V)
