"""When a solver may stop: what its claim to have converged is worth."""

from __future__ import annotations

import numpy as np

from akx.solvers.system import Rows, System

__all__ = ["Claims"]

#: A claim that leaves more than this share of the true residual at the claim before has brought nothing.
_PROGRESS = 0.5
#: Claims in a row that bring nothing, after which the accuracy is taken as the best that can be attained.
_FUTILE = 3


class Claims:
    """Claims of convergence by a recurrence, each checked by the true residual."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._last = np.inf
        self._futile = 0
        self.true = np.inf

    def check(self, x: Rows, out: Rows, claimed: float) -> bool:
        """Whether x is good enough; `out` becomes its true residual and :attr:`true` that residual's norm.

        Where it is not, the solver is to go on from the residual in `out`, unless :attr:`is_futile`.
        """
        self.true = self._system.residual(x, out)
        if self.true <= self._system.target:
            return True
        self._futile = self._futile + 1 if not self.true <= _PROGRESS * self._last else 0
        self._last = min(self._last, self.true)
        true, claimed = map(self._system.units.norm, (self.true, claimed))
        self._system.stats.notes.append(f"residual replaced: {true:.2e}, where the recurrence had {claimed:.2e}")
        return False

    @property
    def is_futile(self) -> bool:
        """Whether replacing the residual has stopped to help."""
        return self._futile >= _FUTILE

    def reason(self) -> str:
        """For a solver that gives up, in words."""
        true = self._system.units.norm(self.true)
        return f"stagnation: the true residual stays at {true:.2e}, the accuracy that can be attained"
