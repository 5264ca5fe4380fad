"""Communication-avoiding CG on a GPU: blocks of s steps that are queued before the host knows what came of the last.

The method is that of :mod:`akx.solvers.ca_cg` with the two start vectors p and r,

    W = [p_0(A) p, p_0(A) r, p_1(A) p, ..., p_{s-1}(A) r, p_s(A) p],   m = 2 s + 1 rows,

and the device does all of a block by itself, in one graph: matrix powers, the Gram matrix with the s steps in
coordinates behind it, and one pass that brings x, p and r up to date (:mod:`akx.kernels.cuda.conjugate`). A block of
which no step can be used changes nothing, nor do those behind it, so that the host may follow at leisure: it reads the
records, renews the basis, bounds the drift of the residual, lowers and raises s.

Words moved for s steps, in n: those of the powers, 2 s + 2 of them written; 2 s + 1 read for G, 2 s + 2 read and 3
written at the end: 6 s + 8, where s classic steps move 12 s and the matrix s times. Launches: those of the powers, 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.plan import Plan
from akx.solvers.ca_cg_block import Pace, Shifts
from akx.solvers.cg import AheadSteps, first_residual
from akx.solvers.stopping import Claims
from akx.solvers.system import Answer, System
from akx.solvers.watch import ENDED

__all__ = ["BlocksAhead"]

#: An inner product counts where it is at least this power of eps times the sum of its terms' moduli.
_TRUST = 0.425
#: Ordinary steps at the beginning, for each of the s; those that follow a block without any step.
_FIRST, _BETWEEN = 2, 4
#: Fewest steps for which a block is worth its two products a step; below, steps are ordinary.
_LEAST = 3


class BlocksAhead:
    """One solve.

    Parameters
    ----------
    system : System
        On a device.
    most : int
        The largest s.
    kind : str
        Of the basis.
    plan : Plan, optional
        For `most` powers of two vectors.
    """

    def __init__(self, system: System, most: int, kind: str, plan: Plan | None) -> None:
        self.system, self.stats, self.work = system, system.stats, system.work
        self.V = system.rows(4)
        self.W = system.rows(2 * most + 2)
        self.claims = Claims(system)
        self.most, self.pace = most, Pace(most, _LEAST, system.stats)
        self.plan = plan
        self.shifts = Shifts(kind, real=system.dtype.kind != "c")
        self.norm = np.inf
        self.eps = float(np.finfo(system.dtype).eps)
        self.drift, self.replaced = 0.0, 0
        self._watched = system.callback is not None  # then nothing is queued behind the block at hand
        self._queues: dict[int, Any] = {}
        self._active = 0  # the s of the queue at work, 0 while p and r are in V
        self._wanted = ""  # what is to be done once all that was queued has been taken: "s", "ordinary" or "replace"
        self.stats.basis = self.shifts.kind

    @property
    def s(self) -> int:
        """Steps of the next block."""
        return self.pace.s

    def run(self, limit: int, return_stats: bool) -> Answer:
        """Solve with at most so many steps."""
        system, stats, V = self.system, self.stats, self.V
        norm = first_residual(system, V[3], V[2])
        if norm <= system.target:
            why = "b is zero" if system.norm_b == 0 else "the first guess is good enough"
            return system.finish(V[3], info=0, reason=why, iterations=0, return_stats=return_stats)
        self.limit, self.steps = limit, AheadSteps(system, V, limit)
        steps = self.steps
        ordinary = steps.quota = _FIRST * self.most if self.most > 1 else limit
        info, reason = max(limit, 1), "the steps ran out"
        why, self.norm = steps.begin(norm), norm
        while not why and stats.iterations < limit:
            if system.ended():
                self._settle()
                info, reason = max(stats.iterations, 1), ENDED
                break
            is_ordinary = stats.iterations < ordinary or self.s == 1 or self._wanted == "ordinary"
            why = self._ordinary() if is_ordinary else self._block()
            if not why and self.norm <= system.target:
                self._settle()
                if self.claims.check(V[3], V[1], self.norm):
                    info, reason = 0, "converged"
                    break
                if self.claims.is_futile:
                    info, reason = stats.iterations, self.claims.reason()
                    break
                V[2] = V[1]
                self._active, self.drift, self._wanted = 0, 0.0, ""
                self.shifts.close()
                why, self.norm = steps.begin(self.claims.true), self.claims.true
        if why:
            info, reason = -1, "breakdown: " + why
        if self.replaced:
            stats.notes.append(f"residual replaced {self.replaced} times before it could drift away")
        iterations = stats.iterations
        return system.finish(V[3], info=info, reason=reason, iterations=iterations, return_stats=return_stats)

    def _ordinary(self) -> str:
        """One step as the classic method does it."""
        steps = self.steps
        if self._active:
            self.V[0], self.V[2] = self.W[0], self.W[1]
            steps.resume(self.work.norm(self.V[2]))
            self._active = 0
        self._wanted = ""
        begun = len(steps.alphas)
        why = steps.step()
        self.norm = steps.norm
        if len(steps.alphas) <= begun:
            self.shifts.close()
        elif not why:
            self.shifts.add(steps.alphas[-1:], steps.betas[-1:])
            if self.s < self.most:
                self._count(1)
        return why

    def _block(self) -> str:
        """Up to s steps by one pass over the matrix; why there can be no more, or nothing."""
        if self._active != self.s:
            if not self._begin():
                return ""
            if self.norm <= self.system.target:
                return ""
        queue, shifts = self._queues[self.s], self.shifts
        if not (self._wanted or queue.is_full):
            with self.stats.phase("device"):
                basis = shifts.basis(self.s)
                _, coefficients = self.system.queued(self._operator(self.s, basis.kind), 2, basis)
                queue.launch(coefficients)
                while not (queue.is_full or self._watched):
                    queue.launch(coefficients)
        with self.stats.phase("device"):
            record = queue.next()
        self._take(record)
        if self._watched and record.made:
            self.system.tell(self.V[3])
        if self._wanted:
            self._settle()
            if self._wanted == "replace":
                self._replace()
            if self._wanted != "ordinary":
                self._wanted = ""
        self.steps.norm = self.norm
        return self.steps.grown()

    def _begin(self) -> bool:
        """Let blocks of this s begin from p and r, where they are; False where no steps are left."""
        if not self._active:
            begun = len(self.steps.alphas)
            self.steps.settle()
            self.steps.quota = _BETWEEN
            self.shifts.add(self.steps.alphas[begun:], self.steps.betas[begun:])
            self.norm = self.steps.norm
            self.W[0], self.W[1] = self.V[0], self.V[2]
        s = self.s
        if s not in self._queues:
            kind = self.shifts.basis(s).kind
            self._queues[s] = self.system.block_queue(self.W, self.V[3], s, self._operator(s, kind))
        left = self.limit - self.stats.iterations
        goal = self.system.target**2 * (1 - 16 * float(np.finfo(float).eps))
        self._queues[s].begin(0.0, goal, left, self.eps**_TRUST)
        self._active = s
        return left > 0

    def _operator(self, s: int, kind: str) -> Any:
        return self.system.operator(s, kind, self.plan if s == self.most else None)

    def _settle(self) -> None:
        """Take all that was queued, so that vectors are as the last record says."""
        if self._active:
            queue = self._queues[self._active]
            while queue.launches:
                self._take(queue.next())
        else:
            self.steps.settle()
            self.norm = self.steps.norm

    def _take(self, record: Any) -> None:
        """Account for a block; what is to be done about it is noted."""
        stats, s = self.stats, self._active
        if record.made == 0:
            if self.norm > self.system.target and stats.iterations < self.limit and self._wanted != "ordinary":
                stats.s.append(s)
                self._passed(s)
                self._count(0)
                self._wanted = "ordinary"
            return
        self._passed(s)
        stats.s.append(record.made)
        stats.iterations += record.made
        norms = np.sqrt(record.gammas)
        stats.residuals += norms.tolist()
        self.shifts.add(record.alphas, record.betas)
        self.norm = float(norms[-1])
        self._watch(record)
        whole = record.made == s or stats.iterations >= self.limit or self.norm <= self.system.target
        self._count(s if whole else record.made)

    def _passed(self, s: int) -> None:
        self.stats.products += 2 * s
        self.stats.matrix_passes += 1

    def _watch(self, record: Any) -> None:
        """Bound how far the residual has drifted from b - A x, as :mod:`akx.solvers.ca_cg` does."""
        before = self.drift
        moduli = np.abs(record.C[[0, 2]]) @ np.sqrt(np.abs(record.sizes))
        self.drift += self.eps * float(self.shifts.largest * moduli[0] + moduli[1])
        limit = np.sqrt(self.eps) * self.norm
        if self.norm > self.system.target and self.drift > limit >= before:
            self._wanted = self._wanted or "replace"

    def _replace(self) -> None:
        """The true residual instead of the recurrence's, while that changes nothing else."""
        r = self.V[1]
        self.norm = self.system.residual(self.V[3], r)
        self.drift = self.eps * (self.shifts.largest * self.work.norm(self.V[3]) + self.norm)
        self.W[1] = r
        self.replaced += 1

    def _count(self, made: int) -> None:
        """Let the pace know of a block; what was queued with another s is to be taken first."""
        before = self.s
        self.pace.count(made)
        if self.s != before and self._active:
            self._wanted = self._wanted or "s"
