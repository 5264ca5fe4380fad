"""Communication-avoiding CG on a GPU: blocks of s steps that are queued before the host knows what came of the last.

The method is that of :mod:`akx.solvers.ca_cg`, and the device does all of a block by itself, a few of them in one
graph (`BlockQueue`). A block of which no step can be used changes nothing, nor do those behind it, so that the host may
follow at leisure: it reads the records, renews the basis, bounds the drift of the residual, lowers and raises s.

What is rare is the host's to do once all that was queued is done (:mod:`akx.solvers.ca_cg_solve`): the steps by which
the first directions are found and the first block behind them, blocks in which images of directions are made anew or
directions are no longer orthogonal to r, and all blocks where there is a callback.

Words moved for s steps, in n: as on a CPU, s + 1 written by the powers, 2 s + 1 read for the Gram matrix, 3 s + 2 read
and 2 s + 2 written at the end, and 2 s read for each look at the images. Launches: those of the powers, and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.plan import Plan
from akx.solvers.ca_cg_block import PIVOT, TRUST, Block
from akx.solvers.ca_cg_solve import Blocks
from akx.solvers.cg_steps import AheadSteps, Steps
from akx.solvers.system import Rows, System

__all__ = ["BlocksAhead"]

#: Blocks of a launch, and launches on their way: what is queued when the end comes is done in vain.
_BLOCKS, _LAUNCHES = 2, 2
#: Values of s whose rows and graphs are kept, the last ones: a lowered s is soon raised again.
_ROOMS = 2
#: Ordinary steps that may be on their way where there are no blocks.
_QUOTA = 16


class BlocksAhead(Blocks):
    """One solve, see :class:`akx.solvers.ca_cg_solve.Blocks`; `system` is on a device."""

    steps: AheadSteps
    first = 2.0  # half of them are queued ahead: a wait costs more than a step

    def __init__(self, system: System, V: Rows, most: int, kind: str, plan: Plan | None, limit: int) -> None:
        self._rooms: dict[int, Any] = {}
        self._queues: dict[int, Any] = {}
        self._active: Any = None  # the queue at work
        self._tier = system.tier
        self._is_stuck = False  # the last block had no steps, and those behind it have none unless the basis changed
        self._is_to_replace = False
        super().__init__(system, V, most, kind, plan, limit)

    def _make_steps(self) -> Steps:
        steps = AheadSteps(self.system, self.V, self.limit)
        if self.most > 1:
            steps.quota = self.ordinary - self.most
        return steps

    def _make_room(self, s: int) -> Any:
        found = self._rooms.pop(s, None)
        if found is None:
            while len(self._rooms) >= _ROOMS:  # with the graphs that have their addresses
                least = next(iter(self._rooms))
                del self._rooms[least]
                self._queues.pop(least, None)
            found = super()._make_room(s)
        self._rooms[s] = found
        return found

    def _let_run_ahead(self, *, allowed: bool) -> None:
        if self.steps.ahead and not allowed:
            self._settle_steps()
        elif allowed and not self.steps.ahead:
            self.steps.quota = _QUOTA
        self.steps.ahead = allowed

    def _advance(self, found: Block, C: NDArray[Any]) -> None:
        s, moved = found.old.shape[1], np.zeros(found.old.shape[1], dtype=C.dtype)
        moved[s - found.made :] = found.lengths
        made_of = np.hstack([C[1 : s + 1, :s], C[1 : s + 1, 2 * s : 3 * s], C[s + 1 : 2 * s + 1, 2 * s :]])
        self.work.advance_block(made_of, moved, self.W, self.V[3])

    def _ordinary(self, *, keep: bool) -> str:
        self._settle_blocks()
        return "" if self.is_over else super()._ordinary(keep=keep)

    def _settle(self) -> None:
        self._settle_blocks()
        self._settle_steps()

    def _settle_steps(self) -> None:
        begun = len(self.steps.alphas)
        self.steps.settle()
        self.shifts.add(self.steps.alphas[begun:], self.steps.betas[begun:])

    def _settle_blocks(self) -> None:
        if self._active is None:
            return
        while self._active.launches:
            self._take(self._active.next())
        if self._is_wrong(self._active.wrong()):
            self.since = -1
        self._active = None

    def _block(self) -> str:
        if self._active is not None and (self._active.s != self.s or self._tier != self.system.tier):
            self._settle_blocks()
            return ""
        if self.since == -1 or self.system.callback is not None or self.plain:
            self._settle_blocks()
            return "" if self.is_over else super()._block()
        if self._active is None:
            self._begin()
        queue, shifts = self._active, self.shifts
        with self.stats.phase("device"):
            if not queue.is_full and queue.launches < _LAUNCHES:
                basis = shifts.basis(self.s)
                _, coefficients = self.system.queued(self._operator(basis.kind), 1, basis)
                while not queue.is_full and queue.launches < _LAUNCHES:
                    queue.launch(coefficients, _BLOCKS)
            records = queue.next()
        self._take(records)
        if self._is_stuck:
            return self._ordinary(keep=self.s > 1)
        if self._is_to_replace:
            self._settle_blocks()
            self._is_to_replace = False
            if not self.is_over:
                self._replace()
        return self.steps.grown()

    def _begin(self) -> None:
        """Let blocks begin from the directions and r, where they are."""
        self._enter_blocks()
        s, self._is_stuck = self.s, False
        if self._tier != self.system.tier:
            self._tier = self.system.tier
            self._queues.clear()
        if s not in self._queues:
            self._queues[s] = self.system.block_queue(self.W, self.V[3], s, self._operator(self.shifts.basis(s).kind))
        self._active = self._queues[s]
        goal = self.system.target**2 * (1 - 16 * float(np.finfo(float).eps))
        left = self.limit - self.stats.iterations
        self._active.start(goal, left, self.care * PIVOT, self.care * TRUST)

    def _operator(self, kind: str) -> Any:
        return self.system.operator(self.s, kind, self.plan if self.s == self.most else None)

    def _take(self, records: Sequence[Any]) -> None:
        """Account for the blocks of a launch; what is to be done about them is noted."""
        stats, s = self.stats, self._active.s
        for record in records:
            made = record.made
            if made == 0 and (self._is_stuck or self.is_over):
                continue
            stats.products += s
            stats.matrix_passes += 1
            stats.s.append(s)
            if made == 0:
                self.pace.count(0)
                self._is_stuck = True
                continue
            self._is_stuck = False
            if self.shifts.is_open:
                self.shifts.add(*record.coefficients())
            self._account(s, np.sqrt(record.gammas[1:]).tolist(), record.lengths)
            if self._has_drifted(*record.moduli):
                self._is_to_replace = True
            if self._is_wrong(record.wrong):
                self.since = -1
            self.pace.count(s if made == s or self.is_over else made)
