"""One solve by communication-avoiding CG, as :mod:`akx.solvers.ca_cg` describes it: ordinary steps, and blocks of them.

Vectors are rows of arrays of the host or of a GPU; nothing but their copies and the operations of the system's `work`
is asked of them. On a GPU :mod:`akx.solvers.ca_cg_queued` does most blocks, and leaves to this what is rare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.plan import Plan
from akx.solvers.ca_cg_block import Block, Pace, Shifts, block_steps, local_recurrences
from akx.solvers.ca_cg_pairs import PairPace, pair_steps, trusted
from akx.solvers.cg import Iteration
from akx.solvers.cg_steps import Steps
from akx.solvers.scaling import eps_of
from akx.solvers.system import Rows, System

__all__ = ["Blocks"]

#: Fewest steps for which a block is worth its vector work; below, steps are ordinary.
_LEAST = 2
#: Blocks after which the directions' images are looked at, and the multiple of eps by which they may be wrong.
_LOOK, _WRONG = 8, 4096
#: Most that blocks get stricter about what they trust, four times each time that images were wrong.
_STRICT = 16.0
#: Share of <r, r> that r may have along the direction of a step after blocks, or the directions begin anew.
_ALONG = 1e-2
#: A residual is replaced where it is off by so many times the rounding errors of b - A x.
_GAIN = 64


class Blocks:
    """V = [p, w, r, x] for ordinary steps; W = [P, A P, v_0 .. v_s], 3 s + 1 rows, for blocks, v_0 = r.

    The newest of the directions are last; `have` of them are there, and the rows before these are zero. `most` is the
    largest s, `kind` that of the basis, `plan` for `most` powers. With `may_pair` blocks are from p and r
    (:mod:`akx.solvers.ca_cg_pairs`) where others end early.
    """

    #: Ordinary steps at the beginning, for each of the s.
    first = 0.5

    def __init__(
        self, system: System, V: Rows, most: int, kind: str, plan: Plan | None, limit: int, *, may_pair: bool = False
    ) -> None:
        self.system, self.stats, self.limit = system, system.stats, limit
        self.work, self.V, self.W = system.work, V, system.rows(0)
        self.in_block = False  # whether r is in W
        self.have, self.whole = 0, True  # `whole`: these are all since r itself was the direction
        self.plain = True  # no block has made a step since then
        self.length = 0.0  # what x moved along the newest direction
        self.since = 0  # blocks since the images of directions were looked at; they are in the next one where it is -1
        self.most, self.pace = most, Pace(most, _LEAST, system.stats)
        self.ordinary = max(2, int(self.first * most)) if most > 1 else limit  # steps until the first block
        self.steps: Steps = self._make_steps()
        self.plan = plan
        self.shifts = Shifts(kind, real=system.dtype.kind != "c")
        self.eps = eps_of(system.dtype)
        self.care, self.replaced, self.renewed = 1.0, 0, 0
        self.may_pair, self.pairs = may_pair, PairPace(most)
        self.drift = self._moved = 0.0  # see _begin_drift
        self._is_off = False

    def iteration(self) -> Iteration:
        """What :func:`akx.solvers.cg.iterate` asks for."""
        return self.steps, self._next, self._settle, self._begin_anew, self._notes

    def _begin_anew(self) -> None:
        self.in_block = False
        self._begin_drift(0.0)
        self._forget(whole=True)
        self.shifts.close()

    def _notes(self) -> list[str]:
        counts = (self.replaced, "residual replaced"), (self.renewed, "images of directions made anew")
        return [f"{what} {times} times before it could drift away" for times, what in counts if times]

    @property
    def s(self) -> int:
        """Steps of the next block."""
        return self.pace.s

    @property
    def residual(self) -> Rows:
        """r of the recurrence, where it is now."""
        return self.W[2 * self._slots] if self.in_block else self.V[2]

    @property
    def is_over(self) -> bool:
        """Whether no further step may be done: the residual claims to be small enough, or the steps ran out."""
        return self.steps.norm <= self.system.target or self.stats.iterations >= self.limit

    # ------------------------------------------------------------------------------------------------ for subclasses

    def _make_steps(self) -> Steps:
        return Steps(self.system, self.V)

    def _settle(self) -> None:
        """Take what was queued, so that vectors are as the record says: here nothing."""

    def _let_run_ahead(self, *, allowed: bool) -> None:
        """Whether ordinary steps may be queued before it is known what came of those before: here none are."""

    def _make_room(self, s: int) -> Any:
        """W for blocks of s steps, not filled."""
        return self.system.rows(3 * s + 1)

    def _advance(self, found: Block, C: NDArray[Any]) -> None:
        """W and x at the end of a block; `C` is ``found.rows()``."""
        self.work.advance(C, self.W, self.V[3])

    def _next(self) -> str:
        """The next block or step; why there can be no more, or nothing."""
        if self.may_pair and self.s <= max(2, self.most // 4) < self.most:
            return self._pair()
        iterations = self.stats.iterations
        has_directions = iterations >= self.ordinary and (self.whole or self.have >= self.s)
        if self.s > 1 and has_directions and not self.steps.is_doubtful:  # else the direction itself is looked at
            why = self._block()
        else:
            keep = iterations >= self.ordinary - self.s or self.steps.is_doubtful
            why = self._ordinary(keep=self.s > 1 and keep)
        if why:
            self._settle()
        return why

    # ------------------------------------------------------------------------------------------------ steps

    def _forget(self, *, whole: bool) -> None:
        """The directions before are of no use any more; `whole`: the next one is r."""
        self.have, self.whole = 0, whole
        self.plain = self.plain or whole
        if self._slots:
            self.W[: 2 * self._slots] = 0

    @property
    def _slots(self) -> int:
        """Directions that W has room for."""
        return len(self.W) // 3

    def _room(self) -> None:
        """Rows for blocks of s steps, what is in W included."""
        s, old, before = self.s, self.W, self._slots
        if before == s:
            return
        self.W = self._make_room(s)
        self.W[: 2 * s] = 0
        self.whole = self.whole and self.have <= s
        self.have = min(self.have, s)
        for j in range(1, self.have + 1):
            self.W[s - j], self.W[2 * s - j] = old[before - j], old[2 * before - j]
        if self.in_block:
            self.W[2 * s] = old[2 * before]

    def _ordinary(self, *, keep: bool) -> str:
        """One step as the classic method does it; `keep` its direction for a block to come."""
        steps, V = self.steps, self.V
        if self.in_block:
            self._leave_blocks()
        self._let_run_ahead(allowed=not keep)
        if self.is_over:
            return ""
        s = self.s
        slot = s - 1 - max(0, self.ordinary - self.stats.iterations - 1)  # at first one after another, then as the last
        if keep:
            self._room()
            with self.stats.phase("vectors"):
                for j in [*range(s - 1), *range(s, 2 * s - 1)] if self.stats.iterations >= self.ordinary else ():
                    self.W[j] = self.W[j + 1]
                self.W[slot] = V[0]
        begun, norm = len(steps.alphas), steps.norm
        why = steps.step()
        if len(steps.alphas) <= begun:
            self._forget(whole=False)
            self.shifts.close()
        elif not why:
            alpha = steps.alphas[-1]
            self.shifts.add(steps.alphas[-1:], steps.betas[-1:])
            if keep:
                with self.stats.phase("vectors"):
                    self.W[s + slot] = V[1]
                    for row in (slot, s + slot):
                        self.work.divide(self.W[row], norm / np.sqrt(alpha))
                self.whole = self.whole and self.have < s
                self.have, self.length = min(self.have + 1, s), np.sqrt(alpha) * norm
        if not keep and self.have + self.whole:
            self._forget(whole=False)
        if not why and self.s == 1 < self.most:
            self.pace.count(1)
        return why

    def _enter_blocks(self) -> None:
        """Let a block of s steps be next, from the directions and r, where they are."""
        self._room()
        if not self.in_block:
            self.W[2 * self.s] = self.V[2]
        self.in_block = True

    def _leave_blocks(self) -> None:
        """Let an ordinary step be next, along the direction that CG has now: r + beta p, p being the newest one.

        Where r is not orthogonal to p, errors have grown along eigenvectors that had converged, and ordinary steps
        would keep <p, r> / <r, r> as wrong as it is now, and with it every alpha: they begin at r then.
        """
        steps, V = self.steps, self.V
        V[2] = self.W[2 * self._slots]
        V[0] = V[2]
        if self.have:
            self.work.add(V[0], steps.norm**2 / np.conj(self.length), self.W[self._slots - 1])
            with self.stats.phase("vectors"):
                along = self.work.dot(V, 0, 2).real / steps.norm**2
            if not abs(along - 1) <= _ALONG:
                V[0] = V[2]
                self._forget(whole=True)
                self.shifts.close()
        self.in_block = False
        steps.resume(steps.norm, anew=not self.have)

    def _block(self) -> str:
        """Up to s steps by one pass over the matrix; why there can be no more, or nothing."""
        system, stats, s, V = self.system, self.stats, self.s, self.V
        self._enter_blocks()
        W, basis = self.W, self.shifts.basis(s)
        # 1. the basis in one pass
        out = W[2 * s :].reshape(s + 1, 1, system.n)
        system.powers(W[2 * s : 2 * s + 1], out, basis, self.plan if s == self.most else None)
        # 2. one reduction
        renewed = self.renewed
        G, E, e = self._products()
        is_renewed = self.renewed > renewed
        if self.plain:
            G, E, e = local_recurrences(G, s), None, None
        # 3. the steps in coordinates
        with stats.phase("small"):
            most = min(s, self.limit - stats.iterations) if np.isfinite(G).all() else 0
            found = block_steps(G, basis.matrix(), most, system.target, self.care, E, e)
        stats.s.append(s)
        if found.made == 0:
            self.pace.count(0)
            if is_renewed:
                self._replace()
            return self._ordinary(keep=self.s > 1)
        self.plain = False
        # 4. back to vectors
        with stats.phase("vectors"):
            C = found.rows()
            self.steps.keep_before(float(found.norms.max()))
            self._advance(found, C)
        self.shifts.add(found.alphas, found.betas)
        self._account(s, found.norms.tolist(), found.lengths)
        moduli = np.abs(C[[0, -1], s:]) @ np.sqrt(np.abs(G.diagonal().real))
        if self._has_drifted(*moduli) or (is_renewed and not self.is_over):
            self._replace()
        if is_renewed:
            self.since = 0  # no second look at them
        system.tell(V[3])
        self.pace.count(found.made if found.made < most else s)
        return self.steps.grown()

    def _pair(self) -> str:
        """Up to s steps from p and r by one pass over the matrix; why there can be no more, or nothing."""
        system, stats, steps, V = self.system, self.stats, self.steps, self.V
        if self.in_block:
            self._leave_blocks()
        if len(self.W) != 2 * self.most + 2:
            self.W = system.rows(2 * self.most + 2)
            stats.notes.append(f"step {stats.iterations}: blocks from two vectors from here on")
        s = self.pairs.s
        if s == 1 or steps.is_doubtful:
            begun = len(steps.alphas)
            why = steps.step()
            self.shifts.add(steps.alphas[begun:], steps.betas[begun:])
            self.pairs.count(1)
            return why
        basis, Y = self.shifts.basis(s, low=True), self.W[: 2 * s + 2]
        with stats.phase("vectors"):
            Y[0], Y[1] = V[0], V[2]
        system.powers(Y[:2], Y.reshape(s + 1, 2, system.n), basis, self.plan if s == self.most else None)
        with stats.phase("vectors"):
            G = self.work.gram(Y)
        stats.s.append(s)
        with stats.phase("small"):
            most = min(s, self.limit - stats.iterations) if np.isfinite(G).all() else 0
            found = pair_steps(G, basis.matrix(), most, system.target, trusted(self.eps))
        made = len(found.norms)
        self.pairs.count(made if made < most else s)
        if made == 0:
            return steps.step() if self.pairs.s == 1 else ""
        with stats.phase("vectors"):
            steps.keep_before(max(found.norms))
            self.work.advance(np.stack([found.x, found.p, found.r]), Y, V[3])
            V[0], V[2] = Y[0], Y[1]
            found.norms[-1] = self.work.norm(V[2])
        self.shifts.add(found.alphas, found.betas)
        self._count(found.norms, found.alphas)
        sizes = np.sqrt(np.abs(G.diagonal().real))
        if self._has_drifted(np.abs(found.x) @ sizes, np.abs(found.r) @ sizes):
            self._replace()
        system.tell(V[3])
        steps.resume(steps.norm, anew=False)
        return steps.grown()

    def _account(self, s: int, norms: list[float], lengths: Any) -> None:
        """Count the steps of a block of s: the residual's norm after each, and what x moved along each direction."""
        gammas = np.square([self.steps.norm, *norms[:-1]])
        self._count(norms, (np.abs(lengths) ** 2 / gammas).tolist())
        made = len(norms)
        self.whole = self.whole and self.have + made <= s
        self.have, self.length = min(self.have + made, s), lengths[-1]

    def _count(self, norms: list[float], alphas: list[float]) -> None:
        """Count steps: the residual's norm after each, and what p was multiplied by."""
        gamma = self.steps.norm**2
        for norm, alpha in zip(norms, alphas, strict=True):
            self.steps.rayleigh.add(alpha, norm**2 / gamma, norm**2)
            self.steps.count(norm)
            gamma = norm**2
        self.stats.iterations += len(norms)
        self.stats.residuals += norms
        self.steps.norm = norms[-1]

    def _products(self) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
        """Inner products of A P and V; now and then of P with A P and r as well, where A P is found out to be wrong."""
        s, W, have = self.s, self.W, self.have
        self.since = (self.since + 1) % _LOOK
        with self.stats.phase("vectors"):
            G = self.work.gram(W if self.since == 0 else W[s:])
        if self.since:
            return G, None, None
        found = G[s - have : s, 2 * s - have : 2 * s]
        wrong = np.abs(found - np.eye(have)).max(initial=0.0)
        of_images = found - found.conj().T  # zero, however conjugate P is
        self.drift, self._moved = self.drift + np.abs(of_images).max(initial=0.0) * self._moved, 0.0
        if self._is_wrong(wrong) and np.isfinite(G).all():
            for j in range(s - have, s):
                self.system.product(W[j], W[s + j])
            self.renewed += 1
            self.care = min(_STRICT, 4 * self.care)
            with self.stats.phase("vectors"):
                G = self.work.gram(W)
        return G[s:, s:], G[:s, s : 2 * s], G[:s, 2 * s]

    def _is_wrong(self, by: float) -> bool:
        """Whether directions whose <p_i, A p_j> are so far from those of a unit matrix need new images."""
        return not by <= _WRONG * self.eps

    def _begin_drift(self, drift: float) -> None:
        """Let the residual be off b - A x by so much."""
        self.drift, self._is_off = drift, drift > np.sqrt(self.eps) * self.steps.norm
        self._moved = 0.0  # moduli of what was added up for r since images were looked at

    def _has_drifted(self, of_x: float, of_r: float) -> bool:
        """Bound how far the residual has drifted from b - A x; whether that has just become sqrt(eps) of its norm.

        Rounding x and r in step 4 changes b - A x - r by eps times the moduli of what is added up, sizes of the rows of
        W being the roots of G's diagonal (van der Vorst and Ye 2000, sec. 3; Carson 2015, sec. 5.2).
        """
        norm, was_off = self.steps.norm, self._is_off
        self.drift += self.eps * float(self.shifts.largest * of_x + of_r)
        self._moved += float(of_r)
        self._is_off = bool(self.drift > np.sqrt(self.eps) * norm)
        return norm > self.system.target and self._is_off and not was_off

    def _replace(self) -> None:
        """The true residual instead of the recurrence's, where that is off by more than rounding errors of A x.

        These are about eps ||D x||, D being A's diagonal: entries of a definite A are at most the geometric means of
        D's. Where no more is gained than that CG would only take more steps.
        """
        system, work, x, r = self.system, self.work, self.V[3], self.V[1]
        with self.stats.phase("vectors"):
            known = self.eps * float(np.linalg.norm(system.matrix.diagonal() * work.to_host(x)))
        if not self.drift > _GAIN * known:
            return
        norm = system.residual(x, r)
        with self.stats.phase("vectors"):
            between = self.V[0] if self.in_block else self.W[0]  # where nothing is
            between[:] = r
            work.add(between, -1.0, self.residual)
            gap = work.norm(between)
        if not gap > _GAIN * known:
            self.drift = gap + known
            return
        self.since, self.replaced = -1, self.replaced + 1
        if self.in_block:
            self.steps.norm = norm
            self.residual[:] = r
        else:
            self.steps.replace(r, norm)
        self._begin_drift(known)
