"""The ladder of ``solve``: what may follow a method that is slow, what each costs, and when to leave it.

A rung costs so many products with A to set up, and so many to use. A method is left for the cheapest rung when the
steps that it still needs, by the rate at which its residual has fallen, would take half as long again as the rung, and
the sooner the more they are: after an eighth of what the rung takes, or a twentieth where they would take four times as
long (ski rental, :mod:`akx.operator.tiers`, with a forecast). Where the rate is no guide the loss is bounded.
Costs come from sizes and from constants of one machine, never from a clock, and so does the end of it all.

    direct     L U of A, in an order whose fill is counted first (:mod:`akx.solvers.direct`)
    amg        PyAMG's smoothed aggregation, where it can be imported and A is Hermitian with a positive diagonal
    ilu        SciPy's incomplete factors, of ten times the entries of A at the most, for gmres
    spai       a sparse approximate inverse of akx's, for gmres, where A is no such matrix
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from weakref import ref

import numpy as np

from akx.core.matrix import Matrix
from akx.operator.cache import CACHE
from akx.operator.lookup import cache_of
from akx.operator.workspaces import KEPT_BYTES
from akx.solvers import direct
from akx.solvers.arguments import given_matrix
from akx.solvers.monitor import Watch
from akx.solvers.products import product_seconds
from akx.solvers.stats import SolveStats

__all__ = ["MOST_PRODUCTS", "Both", "Call", "Ladder", "Progress", "kept_bytes"]

#: Products of one solve after which it stops, where the caller has given no limit.
MOST_PRODUCTS = 20_000
#: Products of a step of a method; seconds on one machine of what else it does, and of each row of that.
_STEP = {"cg": (1.0, 1.2e-5, 2e-9), "minres": (1.0, 6e-5, 5e-9), "bicgstab": (2.0, 6e-5, 1.4e-8)}
_STEP |= {"gmres": (1.0, 3e-5, 1.2e-8)}
#: Of incomplete factors, of multigrid, and below of an approximate inverse: at all, and for each entry of A; of factors
#: for each entry and each column that the envelope of A is wide. How often they are used, and the products that each
#: use is worth; of a direct one all of them.
_ILU, _AMG = (1e-3, 4e-7), (1e-2, 2.5e-7)
_ILU_WIDTH = 6e-9
_REFINED = 3.0
_ILU_STEPS, _ILU_USE, _AMG_STEPS, _AMG_USE = 15, 12.0, 15, 35.0
_SPAI, _SPAI_STEPS, _SPAI_USE = (1e-3, 4e-7), 100, 1.0
_USES = {"": 0.0, "direct": 0.0, "ilu": _ILU_USE, "amg": _AMG_USE, "spai": _SPAI_USE}
#: A method is left where what it has done, times what it has to do, is this part of what the rung costs, squared; and
#: not before it has done the second part of that, however long it seems to take.
_SHARE, _LEAST = 0.2, 0.05
#: It has to have so much more to do than the rung: rates of a method grow on its way.
_MORE = 1.5
#: Steps of a method that a direct one may take before any is done; finding that out may take so many, or such seconds.
_BLINK, _LOOKING = 80.0, (3.0, 1e-3)
#: The same share for incomplete factors and approximate inverses, of which nobody knows before what they take, nor
#: whether they help; and what that makes of their price.
_SHARES, _RISK = {"ilu": 2.0, "spai": 0.4}, 2.0
#: Steps after which a method that leaves more than this part of its first residual gives way to the other family.
_PATIENCE, _NOWHERE = {"bicgstab": 24, "gmres": 120}, 0.5
#: Steps between two looks, at least, and with an M of the ladder; the part of all steps that the rate is taken over.
_LOOK, _LOOK_WITH, _WINDOW = 8, 4, 0.5
_WON = "akx.solvers.ladder.won"


@lru_cache(maxsize=1)
def _has_pyamg() -> bool:
    return find_spec("pyamg") is not None


@dataclass
class Call:
    """What the solves for the columns of one right-hand side share: how many they are, and what a rung has made."""

    columns: int = 1
    made: Any = None


class Ladder:
    """The rungs for one matrix.

    Parameters
    ----------
    matrix : Matrix
    definite : bool
        Whether it is Hermitian with a positive diagonal.
    scale : (n,) array, optional
        The diagonal by which both sides are scaled.
    call : Call, optional
        Each solve of it pays for its part of what a rung takes to set up.
    """

    def __init__(self, matrix: Matrix, *, definite: bool, scale: Any = None, call: Call | None = None) -> None:
        self.matrix, self.definite, self.scale, self.call = matrix, definite, scale, call or Call()
        self.left = ["direct", "ilu", *(["amg"] * _has_pyamg() if definite else ["spai"])]
        self.product = product_seconds(matrix)

    @property
    def won(self) -> tuple[str, Any] | None:
        """The rung that was the last word on this matrix before, and what it had made."""
        rung, made = given_matrix(self.matrix).cache.get((_WON, self.matrix.dtype.str), ("", None))
        made = made() if isinstance(made, ref) else made
        return None if made is None else (rung, made)

    def keep(self, rung: str, made: Any) -> bool:
        """For the next solve with this matrix, and whether: of a function only what is small beside what else is kept.

        By the matrix that the caller has, as one in a wider type is made anew by each call. What is large is there for
        the other columns of this call alone.
        """
        is_kept = cache_of(self.matrix) is not CACHE or getattr(made, "nbytes", math.inf) <= KEPT_BYTES // 4
        self.call.made = made
        given_matrix(self.matrix).cache[_WON, self.matrix.dtype.str] = rung, made if is_kept else ref(made)
        return bool(is_kept)

    def step(self, method: str) -> float:
        """Products that a step of a method is worth."""
        products, least, row = _STEP.get(method.removeprefix("ca_"), _STEP["gmres"])
        return products + (least + row * self.matrix.n) / self.product

    def cost(self, rung: str) -> float:
        """Products that a rung is worth, with what it takes to solve by it; of a direct one by what is known by now.

        Inf where it is out of the question.
        """
        nnz, scale = self.matrix.nnz, 1 + (self.matrix.dtype.kind == "c")
        if rung == "direct":
            known = direct.forecast(self.matrix)
            return (known.next + known.seconds * scale) / self.product / self.call.columns + _REFINED
        if rung == "spai":
            making = (_SPAI[0] + scale * _SPAI[1] * nnz) / self.call.columns
            return _RISK * (making / self.product + _SPAI_STEPS * (self.step("gmres") + _SPAI_USE))
        (least, entry), steps, use = (_ILU, _ILU_STEPS, _ILU_USE) if rung == "ilu" else (_AMG, _AMG_STEPS, _AMG_USE)
        if rung == "ilu" and direct.ILU_FILL * nnz > direct.MOST_FILL:
            return math.inf
        entry += _ILU_WIDTH * direct.forecast(self.matrix).width * (rung == "ilu")
        making = (least + scale * entry * nnz) / self.call.columns
        worth = (making + steps * 6e-5) / self.product + steps * use
        return worth * (_RISK if rung == "ilu" else 1.0)

    def is_done_in_a_blink(self, method: str) -> bool:
        """Whether a direct one takes no longer than a few steps of a method, which nobody needs to try then."""
        step = self.step(method)
        most = max(_LOOKING[0] * step * self.product, _LOOKING[1])
        while self.cost("direct") <= _BLINK * step:
            price = direct.forecast(self.matrix).next
            if not 0 < price <= most:
                return not price
            direct.look_closer(self.matrix, self.scale)
        return False

    def next_for(self, left: float, done: float) -> str | None:
        """The cheapest rung, where a method that has `left` products to do is to be left for it after `done`."""
        while True:
            costs = {rung: self.cost(rung) for rung in self.left}
            if not costs:
                return None
            rung = min(costs, key=lambda one: costs[one])
            least, share = _LEAST * costs[rung], _SHARES.get(rung, _SHARE) * costs[rung] ** 2
            if not (left > _MORE * costs[rung] and left * done > share and done > least):
                return None
            if rung != "direct" or not direct.forecast(self.matrix).next:
                return rung
            direct.look_closer(self.matrix, self.scale)  # its price is found out where it seems to pay


def kept_bytes(matrix: Matrix) -> int:
    """Bytes of what the ladder keeps for a matrix."""
    kept = (made for key, made in list(matrix.cache.items()) if isinstance(key, tuple) and key[0] == _WON)
    return sum(int(getattr(made, "nbytes", 0)) for _, made in kept)


class Progress(Watch):
    """The watch of a method that may be left for a rung of the ladder: `rung` is the one, once it has been left.

    It looks at the residuals alone. It ends the method too where all has taken `most` products, and one that gets
    nowhere for the `other` family, whose name `rung` is then.
    """

    is_of_prepared = False
    looks_at_plain = True

    def __init__(self, ladder: Ladder, method: str, most: float, M: str = "", other: str = "") -> None:
        self._ladder, self._most, self._other = ladder, most, other
        self._patience = _PATIENCE.get(method.removeprefix("ca_"), math.inf)
        self._step = ladder.step(method) + _USES[M]
        self._apart = _LOOK_WITH if M else _LOOK
        self._seen, self.rung, self.is_spent, self.why = 0, "", False, ""
        self._least: list[float] = []  # of the residuals up to each step

    def due(self, stats: SolveStats) -> bool:
        """Whether some more steps were done."""
        return stats.iterations - self._seen >= self._apart

    def ends(self, stats: SolveStats, target: float) -> bool:
        """Whether the method is to be left."""
        self._seen = stats.iterations
        if stats.products >= self._most:
            self.is_spent = True
            self.why = f"gave up after {MOST_PRODUCTS:,} products; pass maxiter= to go on, or an M"
            return True
        before, new = self._least[-1:], stats.residuals[len(self._least) :]
        self._least += np.minimum.accumulate([*before, *new])[len(before) :].tolist()
        left, done = steps_left(self._least, target), stats.iterations
        if self._other and done >= self._patience and self._least[-1] > _NOWHERE * self._least[0]:
            self.rung, self.why = self._other, "residual does not fall"
            return True
        if not self._ladder.left:
            return False
        self.rung = self._ladder.next_for(left * self._step, done * self._step) or ""
        if self.rung:
            cost = self._ladder.cost(self.rung) / self._step
            self.why = f"about {left:.0f} to go against {cost:.0f} by {self.rung}"
            if left >= MOST_PRODUCTS:
                self.why = "residual falls no more"
        return bool(self.rung)


def steps_left(least: list[float], target: float) -> float:
    """Steps until the target, by the rate of the least residual over the later half of the steps; Inf without one."""
    middle, last = int(_WINDOW * (len(least) - 1)), len(least) - 1
    before, now = least[middle], least[last]
    if not 0 < target < now:
        return 0.0
    if not 0 < now < before:
        return float("inf")
    return float((last - middle) * np.log(now / target) / np.log(before / now))


class Both(Watch):
    """Two watches of one solve."""

    is_of_prepared = False
    looks_at_plain = True

    def __init__(self, first: Watch, second: Watch) -> None:
        self._both = first, second
        self._due: list[Watch] = []

    def due(self, stats: SolveStats) -> bool:
        """Whether one of them has something to do."""
        self._due = [watch for watch in self._both if watch.due(stats)]
        return bool(self._due)

    def ends(self, stats: SolveStats, target: float) -> bool:
        """Whether one of them ends it."""
        return any(watch.ends(stats, target) for watch in self._due)
