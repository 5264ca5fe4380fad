"""How long a search may think of plans that it does not try: models and feasibility may take passes over the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from akx.core.plan import Plan
from akx.tuner import measure

__all__ = ["CompileClock", "ModelBudget", "compiling"]

#: Seconds of a search where nobody says.
_SECONDS = 30.0
#: Shares of a search that thinking of plans may take: of those of one schedule and order of the rows, and of all.
_KIND_SHARE, _WHOLE_SHARE = 1 / 30, 1 / 10
#: What Numba calls it when it tells of its doings.
_COMPILING = "numba:compile"


@contextmanager
def compiling(report: Callable[[float], object]) -> Iterator[None]:
    """At the end `report` is told how many seconds Numba has compiled within, in this process."""
    from numba.core.event import install_timer

    with install_timer(_COMPILING, report):
        yield


class CompileClock:
    """Seconds that Numba has compiled so far in this process."""

    def __init__(self) -> None:
        self._listener: Any = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Compiling within counts, where time is real."""
        if not measure.is_real_time():
            yield
            return
        from numba.core.event import TimingListener, install_listener

        self._listener = TimingListener()
        with install_listener(_COMPILING, self._listener):
            yield

    @property
    def seconds(self) -> float:
        """Of what has ended."""
        return float(self._listener.duration) if self._listener is not None and self._listener.done else 0.0


class ModelBudget:
    """Seconds that went into thinking of plans, by schedule and order of the rows, which is what the price depends on.

    What Numba compiles meanwhile is not among them: on first use that is most of it, and it does not come again.

    Parameters
    ----------
    seconds : callable
        Of the whole search, as it is known by then.
    """

    def __init__(self, seconds: Callable[[], float] = lambda: _SECONDS) -> None:
        self._seconds = seconds
        self._spent: dict[tuple[str, str], float] = {}
        self._longest: dict[str, float] = {}

    def allows(self, plan: Plan) -> bool:
        """Whether there is time to think of a plan of this kind."""
        kind, seconds = self._spent.get((plan.schedule, plan.partitioner), 0.0), self._seconds()
        return kind < _KIND_SHARE * seconds and sum(self._spent.values()) < _WHOLE_SHARE * seconds

    @contextmanager
    def on(self, plan: Plan, *, counts: bool = True) -> Iterator[None]:
        """What is done within is thinking of this plan; where it is to be tried, that does not count as spent."""
        kind, begin, compiled = (plan.schedule, plan.partitioner), measure.now(), list[float]()
        try:
            with compiling(compiled.append):
                yield
        finally:
            took = max(0.0, measure.now() - begin - sum(compiled))
            self._longest[plan.partitioner] = max(took, self._longest.get(plan.partitioner, 0.0))
            if counts:
                self._spent[kind] = self._spent.get(kind, 0.0) + took

    def longest(self, partitioner: str) -> float:
        """Most seconds that thinking of one plan in this order of the rows took: the first has to order them."""
        return self._longest.get(partitioner, 0.0)
