"""When a solver may stop: what its claim to have converged is worth, its best x, and when to doubt that it will."""

from __future__ import annotations

import numpy as np

from akx.solvers.scaling import eps_of
from akx.solvers.stats import NO_SOLUTION
from akx.solvers.system import Rows, System

__all__ = ["NO_SOLUTION", "Best", "Claims", "Doubts", "Moments"]

#: A claim that leaves more than this share of the true residual at the claim before has brought nothing.
_PROGRESS = 0.5
#: Claims in a row that bring nothing, after which the accuracy is taken as the best that can be attained.
_FUTILE = 3
#: Products before the first look for a proof that there is no solution, and times as many before each further one.
_FIRST, _AGAIN = 200, 3
#: Units of rounding of the terms of b - A x.
_ATTAINED = 10
#: x is kept where its residual is below this part of that of the x kept before; a large x only below this part of b.
_BETTER, _GAINED = 0.9, 0.1
#: Steps until the first moment at which x is kept, and times as many until each further one; what is left of the
#: residual since the one before where it seems to stay; and how many x are kept then.
_MOMENT, _LATER, _STAYS, _PAST = 32, 2, 0.8, 4


class Claims:
    """Claims of convergence by a recurrence, each checked by the true residual."""

    def __init__(self, system: System) -> None:
        self._system, self._futile = system, 0
        self._last = self.true = np.inf  # norms of true residuals
        self._best: Rows | None = None

    def check(self, x: Rows, out: Rows, claimed: float) -> bool:
        """Whether x is good enough; `out` becomes its true residual, to go on from unless :attr:`is_futile`."""
        self.true = self._system.residual(x, out)
        if self.true <= self._system.target:
            return True
        self._futile = self._futile + 1 if not self.true <= _PROGRESS * self._last else 0
        if self.true < self._last:
            self._last, self._best = self.true, self._system.rows(1)[0] if self._best is None else self._best
            self._best[:] = x
        true, claimed = map(self._system.units.norm, (self.true, claimed))
        self._system.stats.notes.append(f"residual replaced: {true:.2e}, where the recurrence had {claimed:.2e}")
        return False

    @property
    def is_futile(self) -> bool:
        """Whether replacing the residual has stopped to help."""
        return self._futile >= _FUTILE

    def give_up(self, x: Rows) -> str:
        """Why a solver gives up, in words; `x` becomes the best of those that were claimed."""
        if self._best is not None:
            x[:] = self._best
        true = self._system.units.norm(self._last)
        return f"stagnation: the true residual stays at {true:.2e}, the accuracy that can be attained"


class Best:
    """The best x so far, kept as the x of the system, and its residual's `norm`: returned where there is no answer."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._eps, self._largest = eps_of(system.dtype), float(system.matrix.largest)
        self.norm, self._taken = np.inf, False

    def take(self, x: Rows, norm: float) -> None:
        """Keep x, whose residual has that norm by a recurrence, where it is better and small enough to know that."""
        if not norm < _BETTER * self.norm:
            return
        unit = _ATTAINED * self._eps if norm < _GAINED * self._system.norm_b else self._eps**0.5
        if norm > unit * self._largest * self._system.work.norm(x):
            if not self._taken:  # the first guess stays too: a recurrence may be wrong
                self._system.past.append(self._system.x)
                self._system.x = self._system.rows(1)[0]
            self._taken, self.norm, self._system.kept = True, norm, norm
            self._system.x[:] = x


class Moments:
    """Keeps x at rare moments of a solve whose recurrence never grows, though x may: for an end without an answer.

    One x, and the last few where the residual seems to stay. Which is best is found out where it is asked for.
    """

    def __init__(self, system: System) -> None:
        self._system, self._next, self._last = system, _MOMENT, 0.0
        self._past: list[Rows] = []

    def look(self, x: Rows, norm: float) -> None:
        """To be called now and then, with x and the norm of its residual by the recurrence."""
        system, past = self._system, self._past
        if system.stats.iterations < self._next:
            return
        self._next, stays, self._last = _LATER * system.stats.iterations, norm > _STAYS * self._last > 0, norm
        if not past or (stays and len(past) < _PAST):
            past.append(system.rows(1)[0])
            system.past.append(past[-1])
        elif stays:
            past.append(past.pop(0))
        past[-1][:] = x
        system.kept = min(system.kept, norm)


class Doubts:
    """Whether it is time to ask if the system has a solution: where the residual was not halved for long."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._next, self._last = min(_FIRST, 2 * system.n + 8), np.inf

    def arise(self, norm: float) -> bool:
        """To be asked after each step or cycle, with the norm of the residual."""
        products = self._system.stats.products
        if products < self._next:
            return False
        self._next, last = _AGAIN * products, min(self._last, self._system.norm_b)
        self._last = min(last, norm)
        return not norm <= 0.5 * last
