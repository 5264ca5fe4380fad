"""A monitor of a solve, between its steps, for :func:`akx.solvers.solve`, which may end it; not for users.

A solver asks :meth:`akx.solvers.system.System.ended` before each step, block or cycle. What was queued on a GPU is
taken before the watch does anything of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from akx.solvers.stats import SolveStats

__all__ = ["ENDED", "PREPARED", "Watch", "Watched", "busy_seconds"]

#: Why a solver stopped that a watch has ended.
ENDED = "ended for another solver to go on"


class Watch(Protocol):
    """Looks at a solve.

    Attributes
    ----------
    is_of_prepared : bool
        Whether the first step it looks at is to be one with products by a plan; else plain ones may come before it.
    """

    @property
    def is_of_prepared(self) -> bool: ...

    def due(self, stats: SolveStats) -> bool:
        """Whether there is something to be done now; asked before every step, so it is cheap."""
        ...

    def ends(self, stats: SolveStats, target: float) -> bool:
        """Do it; whether the solver is to return x as it is."""
        ...


class Watched:
    """The caller's callback, or None, with a watch beside it: what a solver is given as its callback."""

    def __init__(self, callback: Callable[[Any], object] | None, watch: Watch) -> None:
        self.callback, self.watch = callback, watch

    def __call__(self, value: Any) -> object:
        return None if self.callback is None else self.callback(value)


class _Nothing:
    is_of_prepared = True

    def due(self, stats: SolveStats) -> bool:
        return False

    def ends(self, stats: SolveStats, target: float) -> bool:
        return False


#: A callback with which a solve prepares at once, and nothing else is done.
PREPARED = Watched(None, _Nothing())


def busy_seconds(stats: SolveStats) -> float:
    """Seconds of steps, without the setup."""
    return sum(seconds for phase, seconds in stats.seconds.items() if phase not in ("setup", "total"))
