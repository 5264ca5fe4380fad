"""A monitor of a solve, between its steps, for :func:`akx.solvers.solve`, which may end it; not for users.

A solver asks :meth:`akx.solvers.system.System.ended` before each step, block or cycle. What was queued on a GPU is
taken before the watch does anything of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akx.solvers.stats import SolveStats

__all__ = ["ENDED", "PREPARED", "Watch", "Watched"]

#: Why a solver stopped that a watch has ended.
ENDED = "ended for another solver to go on"


class Watch:
    """Looks at a solve. This one does nothing."""

    #: Whether the first step it looks at is to be one with products by a plan; else plain ones may come before it.
    is_of_prepared = True
    #: Whether it looks between steps with plain products too.
    looks_at_plain = False

    def due(self, stats: SolveStats) -> bool:
        """Whether there is something to be done now; asked before every step, so it is cheap."""
        return False

    def ends(self, stats: SolveStats, target: float) -> bool:
        """Do it; whether the solver is to return x as it is."""
        return True


class Watched:
    """The caller's callback, or None, with a watch beside it: what a solver is given as its callback."""

    def __init__(self, callback: Callable[[Any], object] | None, watch: Watch) -> None:
        self.callback, self.watch = callback, watch

    def __call__(self, value: Any) -> object:
        return None if self.callback is None else self.callback(value)


#: A callback with which a solve prepares at once, and nothing else is done.
PREPARED = Watched(None, Watch())
