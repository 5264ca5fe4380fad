"""GMRES, restarted (Saad, Schultz 1986): the least residual over x0 + span{M r, M A M r, ..., M (A M)^(j-1) r}.

Arnoldi's process from q_0 = r / ||r|| makes Q with A M Q_j^T = Q_{j+1}^T H, H of shape (j+1, j) upper Hessenberg. With
x = x0 + M Q_j^T y the residual has the norm ||beta e_1 - H y||: a small least-squares problem, solved along the way
(:mod:`akx.krylov.hessenberg`), whose residual is known after every step without x. After `restart` steps x is formed,
the true residual computed, and all begins again. The preconditioner is applied from the right, so that what is
minimised is the residual of A x = b itself. Vectors are made orthogonal as :mod:`akx.krylov.orthogonalize` says.

Whether to go on is decided by the true residual, computed between cycles, alone: below the tolerance is converged; a
cycle that raised it is taken back. The next is another one: of half the steps where it had promised progress, which
rounding errors spoiled; a longer one where it had not, or none.

Stagnation. Restarted GMRES can come to a residual r that is orthogonal to A r, .., A^m r, and then stays there for
ever; or pass close by such a point, where progress is as small, but grows again. So ten cycles are looked at: the solve
ends where they took less than 1e-8 each off the residual and the last five hardly more than the five before, or where
they took nothing but rounding errors. Where the caller has left `restart` to the solver, cycles are made twice as long
first, and once more.

Rounding x adds to the true residual what no estimate has. Where a cycle has kept its promise and the residual is above
the tolerance, but near it, the next ones end at a quarter of it, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from akx.core.arguments import unknown_name
from akx.krylov.hessenberg import HessenbergQR
from akx.solvers.arguments import BY_STEPS, RESTART, check_count
from akx.solvers.arnoldi import Arnoldi, arnoldi_of
from akx.solvers.many import takes_columns
from akx.solvers.monitor import ENDED
from akx.solvers.scaling import eps_of, norm_of
from akx.solvers.singular import why_no_solution
from akx.solvers.stats import AT_ROUNDING, NO_SOLUTION
from akx.solvers.stopping import Doubts
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["Cycles", "gmres"]

#: A whole cycle that takes less than this off the residual, relative to it, is no progress.
_PROGRESS = 1e-8
#: Cycles that are looked at for stagnation, an even number, and how long cycles may become, over the default.
_WINDOW, _LONGEST = 10, 4
#: Progress of the later half of them that is not growing yet, over that of the earlier half.
_GROWN = 1.1
#: The true residual is near the target within this factor; an aim is lowered by the second, to the third at the least.
_NEAR, _LOWER, _LEAST_AIM = 4.0, 0.25, 0.01
_CALLBACKS = ("pr_norm", "x", "legacy")


@takes_columns
def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for any square A by restarted GMRES.

    Parameters
    ----------
    A, b, x0, rtol, atol, threads, db, backend, return_stats
        As for :func:`akx.solvers.cg.cg`.
    restart : int, optional
        Steps of a cycle, n at most; the solver holds restart + 1 vectors. By default 30 (SciPy: 20), and 60 or 120
        where shorter cycles make no progress any more.
    maxiter : int, optional
        Most cycles, as in SciPy, of `restart` steps: longer ones are so many fewer; 10 n by default. With a callback of
        the type ``"legacy"``, most steps.
    M : sparse matrix, array or LinearOperator, shape (n, n), optional
        Approximates the inverse of A; applied from the right.
    callback : callable, optional
    callback_type : str
        ``"pr_norm"`` (default) and ``"legacy"``: called after each step with the residual's norm over that of b;
        ``"x"``: called after each cycle with x. None is ``"legacy"``, as in SciPy.

    Returns
    -------
    x : ndarray, of b's shape
    info : int
        0: converged. > 0: not, after so many steps. < 0: breakdown; x is the best found.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    system = make_system(
        "gmres", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    cycles = Cycles(system, restart, maxiter, callback_type)
    # Memory movement of step j, in words: A once; Q, j n, once for the products and once to be subtracted, and again
    # where a second round is needed; 3 n for the new vector. Of a cycle of m: m n for x, and a product.
    W = system.rows(cycles.restart + 1)
    arnoldi = arnoldi_of(system, W)
    while cycles.goes_on(W[0]):
        if len(W) <= cycles.restart:
            W = cycles.room(W, cycles.restart + 1)
            arnoldi = arnoldi_of(system, W)
        qr = cycles.begin(arnoldi)
        while qr.size < cycles.restart and cycles.step_allowed() and qr.residual > cycles.aim:
            if not cycles.step(arnoldi, qr):
                break
            cycles.count(qr.residual)
            cycles.tell(qr.residual)
        cycles.end(arnoldi, qr, None if system.M is None else system.precondition)
    return cycles.finish(return_stats)


class Cycles:
    """The cycles of one solve by GMRES or its communication-avoiding form; arguments as for :func:`gmres`.

    ``while goes_on(r): qr = begin(arnoldi); ...steps, each with count(); end(update of x)``, then ``finish()``.

    `norm` is the true residual's of the x at hand, computed by :meth:`goes_on`; `taken_back` says that the last cycle
    raised it, `plain` that it was of ordinary steps, so that the next would be the same. There were `iterations` steps
    and `done` cycles; one may end at the estimate `aim`.
    """

    def __init__(self, system: System, restart: int | None, maxiter: int | None, callback_type: str | None) -> None:
        callback_type = "legacy" if callback_type is None else callback_type  # as in SciPy
        if callback_type not in (*_CALLBACKS, BY_STEPS):
            raise unknown_name("callback_type", callback_type, _CALLBACKS)
        self.system = system
        self.restart = self._length = min(check_count("restart", restart, RESTART), system.n)
        self._longest = min(_LONGEST * RESTART, system.n) if restart is None else self.restart
        most = check_count("maxiter", maxiter, 10 * system.n, least=0)
        # As in SciPy: the type of a callback that is not there means nothing.
        is_legacy = callback_type == "legacy" and system.callback is not None
        self._most_steps = most if is_legacy or callback_type == BY_STEPS else most * self.restart
        self._most_cycles, self._tells_x = most, callback_type in ("x", BY_STEPS)
        self.iterations = self.done = self._idle = 0
        self.norm = self._best = self._estimate = np.inf  # the last: of the residual, by the last cycle
        self._history: list[float] = []  # of _best, one entry for each cycle of this length
        self._info, self._reason, self.broken = 0, "", ""
        self._true: float | None = None  # norm of the residual of x as it is returned
        self._before, self._row = system.x, 0  # the row where the residual is
        self._norm: Callable[[], float] | None = None  # waits for it, where it is on its way
        self.taken_back, self.plain = False, True
        self._eps, self._doubts, self.aim = eps_of(system.dtype), Doubts(system), system.target
        self._least_progress = max(_PROGRESS, 4 * self._eps)

    def goes_on(self, r: Rows) -> bool:
        """Compute the residual of x into `r`, where it is not there yet, and decide whether there is another cycle."""
        system, stats = self.system, self.system.stats
        if system.norm_b == 0.0:
            system.x[:] = 0
            return self._stop(0, "the right-hand side is zero, and so is the solution")
        if self.done == 0 and system.zero_guess:
            r[:] = system.b
            self.norm = system.norm_b
        elif self._norm is not None:
            self.norm, self._row, self._norm = self._norm(), 1, None
        else:
            self.norm, self._row = system.residual(system.x, r), 0
        if self.done == 0:
            stats.residuals.append(self.norm)
        if self.norm <= system.target:
            self._true = self.norm
            return self._stop(0, "converged: the residual is below the tolerance")
        self.taken_back = not (np.isfinite(self.norm) and self.norm <= self._best)
        if self.taken_back:  # a cycle only adds to it by rounding errors
            if self.done == 0:
                return self._stop(-1, "the residual of x0 is not finite")
            system.x, lost = self._before, system.units.norm(self.norm)
            self.norm, self._row = system.residual(system.x, r), 0
            stats.notes.append(f"cycle {self.done} raised the residual to {lost:.3g}: x taken back")
        self._idle = self._idle + 1 if self.norm >= (1 - self._least_progress) * self._best else 0
        self._best = min(self._best, self.norm)
        self._history.append(self._best)
        if self._doubts.arise(self._best) and (why := why_no_solution(system, system.x, on_the_way=True)):
            return self._stop(NO_SOLUTION, why)
        if self.broken and self.idle:
            if self._is_rounding():
                return self._fail(max(1, self.iterations), AT_ROUNDING)
            if system.M is not None and system.work.norm(system.precondition(r)) == 0:
                return self._fail(-1, "breakdown: M r = 0 for the residual r: M is singular")
            return self._fail(-1, self.broken)
        further = self._estimate <= self.aim and self._aims_lower()  # the next cycle is another one
        again = self.taken_back and self.plain and not further
        if (again or (self._idle >= 2 and not further)) and self._is_rounding():
            return self._fail(max(1, self.iterations), AT_ROUNDING)
        if self._stagnates():
            again = False
            if not self._lengthen():
                why = f"stagnation: {_WINDOW} cycles of {self._length} steps made no progress; {self._help}"
                return self._fail(max(1, self.iterations), self.broken or why)
        if system.ended():
            return self._stop(max(1, self.iterations), ENDED)
        if self.done >= self._most_cycles or not self.step_allowed():
            return self._stop(max(1, self.iterations), "iterations ran out")
        if not self.taken_back:
            self.restart = self._length
        elif again and not self._shorten() and not self._lengthen():
            why = f"stagnation: a cycle of {self._length} steps made no progress, nor would the next; {self._help}"
            return self._fail(max(1, self.iterations), why)
        return True

    @property
    def idle(self) -> bool:
        """Whether the last cycle made no progress."""
        return self._idle > 0

    def room(self, W: Rows, count: int) -> Rows:
        """`W` where it has so many rows, or more rows with the residual among them: cycles may become longer."""
        if len(W) >= count:
            return W
        more = self.system.rows(count)
        more[self._row] = W[self._row]
        return more

    def _aims_lower(self) -> bool:
        """Lower the aim where a cycle has met it and the true residual is near the target; whether it was lowered."""
        before = self.aim
        if self.norm <= _NEAR * self.system.target:
            self.aim = max(_LOWER * before, _LEAST_AIM * self.system.target)
        return self.aim < before

    def _stagnates(self) -> bool:
        """Whether the last cycles made no progress, and none that grows."""
        if len(self._history) <= _WINDOW:
            return False
        first, middle, last = (self._history[-1 - back] for back in (_WINDOW, _WINDOW // 2, 0))
        gains = 1 - middle / first, 1 - last / middle
        if sum(gains) <= 4 * _WINDOW * self._eps:
            return True
        return sum(gains) <= _WINDOW * self._least_progress and gains[1] <= _GROWN * gains[0]

    def _lengthen(self) -> bool:
        """Twice as long cycles from now on, where that is allowed."""
        if self._length >= self._longest:
            return False
        longer = min(2 * self._length, self._longest)
        why = f"no progress by cycles of {self._length} steps, the next are of {longer}"
        self.system.stats.notes.append(f"cycle {self.done}: {why}")
        self.restart = self._length = longer
        self._history = [self._best]
        return True

    def _shorten(self) -> bool:
        """Half the steps for the next cycle, where the last one had promised progress."""
        promised = self._estimate < (1 - self._least_progress) * self._best
        if not promised or self.restart == 1:
            return False
        self.restart //= 2
        return True

    @property
    def _help(self) -> str:
        return "a larger restart or M may help" if self._length < self.system.n else "M may help"

    def begin(self, arnoldi: Arnoldi) -> HessenbergQR:
        """Make the residual a unit vector in row 0; the least-squares problem without columns."""
        arnoldi.begin(self.norm, self._row)
        self.broken = ""
        return HessenbergQR(self.norm, self.restart)

    def step_allowed(self) -> bool:
        return self.steps_left > 0

    @property
    def steps_left(self) -> int:
        """Steps that may be done yet."""
        return max(0, self._most_steps - self.iterations)

    def step(self, arnoldi: Arnoldi, qr: HessenbergQR) -> bool:
        """Row j+1 becomes the next basis vector, and H gets its column; False where the space is invariant."""
        h, length = arnoldi.step(qr.size, self.restart)
        if not (np.isfinite(length) and np.isfinite(h).all()):
            self.broken = "a product with the matrix or the preconditioner is not finite"
            return False
        with self.system.stats.phase("small"):
            qr.append(np.append(h, length))
        if length == 0.0:
            # The space is invariant: x is exact, unless A is singular on it.
            of = "A" if self.system.M is None else "A M"
            self.broken = f"breakdown: the Krylov space is exhausted, {of} is singular or close to it"
            self.count(qr.residual)
            self.tell(qr.residual)
            return False
        return True

    def count(self, *estimates: float) -> None:
        """So many steps are done."""
        self.iterations += len(estimates)
        self.system.stats.iterations = self.iterations
        self.system.stats.residuals += estimates

    def tell(self, estimate: float) -> None:
        """Call the callback, if it is one for residuals."""
        if not self._tells_x:
            self.system.say(np.float64(estimate / self.system.norm_b))

    def end(self, arnoldi: Arnoldi, qr: HessenbergQR, solution: Callable[[Rows], Rows] | None = None) -> None:
        """Add to x the combination Q^T y of the rows, or what `solution` makes of it; the x before is remembered."""
        system, stats = self.system, self.system.stats
        with stats.phase("small"):
            y = qr.solve()
        self._estimate = qr.residual
        self._before = system.x
        self._norm = arnoldi.restart(y) if solution is None else None
        if self._norm is None:
            with stats.phase("vectors"):
                update = system.rows(1)[0]
                update[:] = 0
                arnoldi.add(y, update)
            if solution is not None:
                update = solution(update)
            with stats.phase("vectors"):
                system.work.add(update, 1.0, self._before)
                system.x = update
        self.done += 1
        if self._tells_x:
            system.tell(system.x)

    def finish(self, return_stats: bool) -> Answer:
        stats = self.system.stats
        if self.done > 1:
            stats.notes.append(f"{self.done} cycles of at most {self._length} steps")
        said = {"info": self._info, "reason": self._reason, "iterations": self.iterations}
        x = self.system.x
        return self.system.finish(x, return_stats=return_stats, residual=self._true, **said)  # type: ignore[arg-type]

    def _stop(self, info: int, reason: str) -> bool:
        self._info, self._reason = info, reason
        return False

    def _fail(self, info: int, reason: str) -> bool:
        """Stop without an answer: for this reason, or as there is none."""
        why = why_no_solution(self.system, self.system.x)
        return self._stop(NO_SOLUTION, why) if why else self._stop(info, reason)

    @cached_property
    def _moduli(self) -> Any:
        """|A|, for cycles without progress alone."""
        return abs(self.system.matrix.to_scipy())

    @cached_property
    def _frobenius(self) -> float:
        """The Frobenius norm of A, which is no smaller than the norm of |A|."""
        return norm_of(self.system.matrix.data)

    def _is_rounding(self) -> bool:
        """Whether the residual is within some units of rounding of |A| |x| + |b|, entry by entry."""
        system, eps = self.system, self._eps
        if self.norm > 10 * eps * (self._frobenius * system.work.norm(system.x) + system.norm_b):
            return False  # far from it, as in most cycles that ask: nothing has to come from the device
        x, b = system.work.to_host(system.x), system.work.to_host(system.b)
        moduli = self._moduli @ np.abs(x) + np.abs(b)
        return self.norm <= 10 * eps * float(np.linalg.norm(moduli))
