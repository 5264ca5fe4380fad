"""What GMRES and its communication-avoiding form share: cycles, counted, and when and why they stop.

``while goes_on(r): qr = begin(W, ortho); ...steps, each with count(); end(update of x)``, then ``finish()``. Whether to
go on is decided by the true residual, computed between cycles, alone: below the tolerance is converged; a cycle that
raised it is taken back; two cycles in a row without progress end the solve, as they would be followed by more.
"""

from __future__ import annotations

import numpy as np

from akx.errors import ArgumentError
from akx.solvers.arguments import check_count
from akx.solvers.hessenberg import HessenbergQR
from akx.solvers.orthogonalize import Orthogonalizer
from akx.solvers.system import Answer, Rows, System

__all__ = ["RESTART", "Cycles"]

#: Steps of a cycle, where the caller does not say.
RESTART = 30
#: A whole cycle that takes less than this off the residual, relative to it, is no progress; two in a row end the solve.
_PROGRESS = 1e-8
_CALLBACKS = ("pr_norm", "x", "legacy")


class Cycles:
    """The cycles of one solve.

    Parameters
    ----------
    system : System
    restart, maxiter, callback_type
        As for :func:`akx.solvers.gmres.gmres`.

    Attributes
    ----------
    restart : int
        Steps of a cycle, n at most.
    norm : float
        The true residual's norm of the x at hand, computed by :meth:`goes_on`.
    iterations, done : int
        Steps, and cycles.
    """

    def __init__(self, system: System, restart: int | None, maxiter: int | None, callback_type: str) -> None:
        if callback_type not in _CALLBACKS:
            raise ArgumentError("unknown callback_type", expected=" or ".join(_CALLBACKS), found=repr(callback_type))
        self.system = system
        self.restart = min(check_count("restart", restart, RESTART), system.n)
        most = check_count("maxiter", maxiter, 10 * system.n, least=0)
        self._most_steps = most if callback_type == "legacy" else None
        self._most_cycles = most
        self._tells_x = callback_type == "x"
        self.norm = np.inf
        self.iterations = self.done = 0
        self._best = np.inf
        self._idle = 0
        self._info, self._reason = 0, ""
        self._before = system.x
        self.broken = ""

    def goes_on(self, r: Rows) -> bool:
        """Compute the residual of x into `r`, and decide whether there is another cycle."""
        system, stats = self.system, self.system.stats
        if system.norm_b == 0.0:
            system.x[:] = 0
            return self._stop(0, "the right-hand side is zero, and so is the solution")
        if self.done == 0 and system.zero_guess:
            r[:] = system.b
            self.norm = system.norm_b
        else:
            self.norm = system.residual(system.x, r)
        if self.done == 0:
            stats.residuals.append(self.norm)
        if self.norm <= system.target:
            return self._stop(0, "converged: the residual is below the tolerance")
        if not (np.isfinite(self.norm) and self.norm <= self._best):  # a cycle only adds to it by rounding errors
            if self.done == 0:
                return self._stop(-1, "the residual of x0 is not finite")
            system.x, lost = self._before, self.norm
            self.norm = system.residual(system.x, r)
            stats.notes.append(f"cycle {self.done} raised the residual to {lost:.3g}: x taken back")
        self._idle = self._idle + 1 if self.norm >= (1 - self._least_progress) * self._best else 0
        self._best = min(self._best, self.norm)
        if self._idle >= 2:
            return self._stop(max(1, self.iterations), self._stagnation())
        if self.broken and self._idle:
            return self._stop(-1, self.broken)
        if self.done >= self._most_cycles or not self.step_allowed():
            return self._stop(max(1, self.iterations), "iterations ran out")
        return True

    @property
    def idle(self) -> bool:
        """Whether the last cycle made no progress."""
        return self._idle > 0

    def forgive(self) -> None:
        """Count the last cycle's lack of progress for nothing: the next will be another kind of cycle."""
        self._idle = 0

    def begin(self, W: Rows, ortho: Orthogonalizer) -> HessenbergQR:
        """Make the residual in row 0 a unit vector; the least-squares problem without columns."""
        with self.system.stats.phase("vectors"):
            self.system.work.divide(W[0], self.norm)
        ortho.loss = 0.0
        self.broken = ""
        return HessenbergQR(self.norm)

    def step_allowed(self) -> bool:
        return self._most_steps is None or self.iterations < self._most_steps

    def orthogonalize(self, ortho: Orthogonalizer, qr: HessenbergQR) -> bool:
        """Row j+1 becomes the next basis vector, and H gets its column; False where the space is invariant."""
        j = qr.size
        with self.system.stats.phase("orthogonalize"):
            h, length = ortho.append(j + 1)
        if not (np.isfinite(length) and np.isfinite(h).all()):
            self.broken = "a product with the matrix or the preconditioner is not finite"
            return False
        with self.system.stats.phase("small"):
            qr.append(np.append(h, length))
        if length == 0.0:
            # The space is invariant: x is exact, unless A is singular on it.
            self.broken = "breakdown: the Krylov space is exhausted, A is singular or close to it"
            self.count(qr.residual)
            self.tell(qr.residual)
            return False
        return True

    def count(self, estimate: float) -> None:
        """One step is done."""
        self.iterations += 1
        self.system.stats.residuals.append(estimate)

    def tell(self, estimate: float) -> None:
        """Call the callback, if it is one for residuals."""
        if not self._tells_x:
            self.system.say(estimate / self.system.norm_b)

    def combination(self, ortho: Orthogonalizer, qr: HessenbergQR) -> Rows:
        """Q^T y, (n,)."""
        stats = self.system.stats
        with stats.phase("small"):
            y = qr.solve()
        with stats.phase("vectors"):
            found = self.system.rows(1)[0]
            found[:] = 0
            ortho.work.add(y, found)
        return found

    def end(self, update: Rows) -> None:
        """Add the update, which becomes x, and remember the x before."""
        with self.system.stats.phase("vectors"):
            self._before = self.system.x
            self.system.work.add(update, 1.0, self._before)
            self.system.x = update
        self.done += 1
        if self._tells_x:
            self.system.tell(self.system.x)

    def finish(self, return_stats: bool) -> Answer:
        stats = self.system.stats
        if self.done > 1:
            stats.notes.append(f"{self.done} cycles of at most {self.restart} steps")
        return self.system.finish(
            self.system.x,
            info=self._info,
            reason=self._reason,
            iterations=self.iterations,
            return_stats=return_stats,
        )

    @property
    def _least_progress(self) -> float:
        return max(_PROGRESS, 4 * float(np.finfo(self.system.dtype).eps))

    def _stop(self, info: int, reason: str) -> bool:
        self._info, self._reason = info, reason
        return False

    def _stagnation(self) -> str:
        system = self.system
        size = float(np.abs(system.matrix.to_scipy()).sum(axis=1).max())
        rounding = float(np.finfo(system.dtype).eps) * (size * system.work.norm(system.x) + system.norm_b)
        if self.norm <= 100 * rounding:
            return "stagnation: the residual is as small as rounding errors allow"
        if self.broken:
            return self.broken
        return f"stagnation: two cycles of {self.restart} steps made no progress; a larger restart or M may help"
