"""Arnoldi's process, one step or several at a time: by the host, step for step, or queued on a GPU ahead of it.

Row j of W is the last orthonormal one. A step makes row j + 1 of its product with the matrix; a block of s makes rows
j + 1 .. j + s of powers. On a GPU both are queued before the host knows what came of those before, as if all went well:
what the host decides otherwise it says by asking for something else than what was queued, which is then forgotten. Rows
up to j are never touched by what is queued behind them, so nothing is lost but time.

From the second cycle on half of what is left of a cycle is queued in one launch, then half of the rest, and so on. At
most three are on their way, so that a cycle that ends early has not been queued to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import Basis
from akx.core.plan import Plan
from akx.krylov.orthogonalize import Block, Orthogonalizer
from akx.solvers.rounding import confirmed
from akx.solvers.system import Rows, System

__all__ = ["Arnoldi", "arnoldi_of"]

#: What is queued: the row it starts from, steps, how many of them are wanted, and their basis, None for a product.
_Item = tuple[int, int, int, Basis | None]

#: Launches of several items that are on their way.
_AT_A_TIME = 3


class Arnoldi:
    """The process in the rows of W, (m, n), of which the first is of length 1; `preconditioned`: with A M."""

    def __init__(self, system: System, W: Rows, *, preconditioned: bool) -> None:
        self.system, self.W, self._preconditioned = system, W, preconditioned
        self.ortho = Orthogonalizer(W, work=system.work)

    def begin(self, norm: float, row: int = 0) -> None:
        """Begin a cycle from the residual in row `row`, of that norm: the first row is to be it over the norm.

        Only :meth:`restart` leaves it in another row than the first.
        """
        with self.system.stats.phase("vectors"):
            self.system.work.divide(self.W[0], norm)
        self.ortho.loss = 0.0

    def restart(self, y: NDArray[Any]) -> Callable[[], float] | None:
        """End a cycle: x of the system += sum_j y[j] W[j]; None where it is not done.

        Its residual becomes row 1; what is returned waits for it, and gives its norm.
        """
        return None

    def add(self, y: NDArray[Any], update: Rows) -> None:
        """update (n,) += sum_j y[j] W[j]."""
        self.ortho.work.add(y, update)

    def step(self, j: int, stop: int) -> tuple[NDArray[Any], float]:
        """Row j + 1 from row j: its inner products with those before, and the length that was left, as of ``append``.

        `stop`: steps are expected to go on until that row.
        """
        if self._preconditioned and self.system.M is not None:
            self.system.product(self.system.precondition(self.W[j]), self.W[j + 1])
        else:
            self.system.product_in(self.W, j)
        with self.system.stats.phase("orthogonalize"):
            return self.ortho.append(j + 1)

    def block(self, k: int, wanted: int, basis: Basis, plan: Plan | None, stop: int) -> Block:
        """Rows k + 1 .. k + wanted from row k and the powers of a basis; more of these are made than are wanted."""
        s = basis.k
        V = self.W[k : k + s + 1]
        self.system.powers(V[:1], V.reshape(s + 1, 1, self.system.n), basis, plan)
        with self.system.stats.phase("orthogonalize"):
            return self.ortho.append_block(k + 1, wanted)


class ArnoldiAhead(Arnoldi):
    """The same with `most` steps at a time or less, queued ahead of the host."""

    def __init__(self, system: System, W: Rows, most: int) -> None:
        super().__init__(system, W, preconditioned=False)
        self._queue = system.work.rows_queue(W, self.ortho.allowed, most)
        self._pending: deque[_Item] = deque()
        self._plan: Plan | None = None
        self._loss = 0.0
        self._alone = False  # for the rest of a cycle, after something that the device leaves to the host
        self._cycles = 0

    def begin(self, norm: float, row: int = 0) -> None:
        """It is part of the first launch. All that was queued is done."""
        self._queue.start(norm, row)
        self._pending.clear()
        self._loss = self.ortho.loss = 0.0
        self._alone = False
        self._cycles += 1

    def restart(self, y: NDArray[Any]) -> Callable[[], float] | None:
        system = self.system
        program, coefficients = system.queued(system.operator(1), 1)
        with system.stats.phase("device"):
            system.x = self._queue.restart(program, coefficients, y, system.x, system.b)
        system.stats.products += 1
        system.stats.matrix_passes += 1
        return self._residual

    def _residual(self) -> float:
        system, r = self.system, self.W[1]
        with system.stats.phase("device"):
            return confirmed(system, system.checked_norm(self._queue.residual(), r), system.x, r)

    def step(self, j: int, stop: int) -> tuple[NDArray[Any], float]:
        found = self._take((j, 1, 1, None), stop)
        if found is None:
            return super().step(j, stop)
        return found.C[:, 0], float(np.real(found.R[0, 0]))

    def block(self, k: int, wanted: int, basis: Basis, plan: Plan | None, stop: int) -> Block:
        self._plan = plan
        found = self._take((k, basis.k, wanted, basis), stop)
        return super().block(k, wanted, basis, plan, stop) if found is None else found

    def _take(self, item: _Item, stop: int) -> Block | None:
        """What came of an item, with those that should follow queued behind it; None where the host has to do it."""
        if self._alone:
            return None
        system = self.system
        with system.stats.phase("device"):
            if self._pending and self._pending[0] != item:
                self._forget(self._loss)
            following: _Item | None = self._after(self._pending[-1], stop) if self._pending else item
            while following is not None and not self._queue.is_full:
                if self._cycles > 1 and self._queue.launches >= _AT_A_TIME:
                    break
                following = self._launch(following, stop)
            record = self._queue.next()
        self._pending.popleft()
        system.stats.products += item[1]
        system.stats.matrix_passes += 1
        if not record.good:
            self._forget(self._loss)
            self._alone, self.ortho.loss = True, self._loss
            return None
        self._loss = max(self._loss, record.loss)
        return Block(record.C, record.R, record.norms)

    def _launch(self, item: _Item, stop: int) -> _Item | None:
        """Queue an item and some that follow it in one launch; what follows these."""
        items: list[_Item] = []
        following: _Item | None = item
        while following is not None and len(items) < 2 * self._queue.together:
            items.append(following)
            following = self._after(following, stop)
        items = items[: -(-len(items) // 2) if self._cycles > 1 else 1]
        _, s, _, basis = item
        system = self.system
        operator = system.operator(1) if basis is None else system.operator(s, basis.kind, self._plan)
        program, coefficients = system.queued(operator, 1, basis)
        self._queue.launch(program, coefficients, [(k, wanted) for k, _, wanted, _ in items])
        self._pending.extend(items)
        return self._after(items[-1], stop)

    @staticmethod
    def _after(item: _Item, stop: int) -> _Item | None:
        k, s, wanted, basis = item
        following = k + wanted
        return (following, s, min(s, stop - following), basis) if following < stop else None

    def _forget(self, loss: float) -> None:
        """Wait for what is queued, and let it be."""
        self._queue.begin(loss)
        self._pending.clear()
        self._loss = loss


def arnoldi_of(system: System, W: Rows, most: int = 1, *, preconditioned: bool = True) -> Arnoldi:
    """The process in the rows of W, up to `most` steps at a time: ahead of the host where W is on a device.

    A preconditioner, where there is one and it is asked for, is the host's to apply.
    """
    if system.on_device and not (preconditioned and system.M is not None):
        return ArnoldiAhead(system, W, most)
    return Arnoldi(system, W, preconditioned=preconditioned)
