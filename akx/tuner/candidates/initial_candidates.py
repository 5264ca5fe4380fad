"""The first plans that a search tries.

1. given      plans that somebody wants tried
2. like       plans that like devices have for this very problem (:mod:`akx.tuner.candidates.warm_start`)
3. predicted  the plan of a call that nobody tuned
4. pattern    plans that were tuned for this pattern under another key: yesterday's kernels, another k
   similar    plans for similar matrices
5. default    the other schedules' defaults, also in the variants in which the baseline is fastest; and plans that a
   start      schedule itself wants tried (``starts``): the most promising next
6. model      of each schedule in each order of the rows, the plan that is thought to be fastest

Of 5 and 6, what is expected to gain next to nothing is passed over; the others are tried whatever is thought of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice

from akx.core.plan import Plan
from akx.tuner.candidates.candidate_pool import CandidatePool
from akx.tuner.candidates.warm_start import LIKE, PATTERN, SIMILAR, WarmStart
from akx.tuner.history.ledger import Ledger
from akx.tuner.model.predict import predicted
from akx.tuner.model.seconds import Model
from akx.tuner.space import NATURAL, is_baseline

__all__ = ["InitialCandidates", "foreseen"]

#: Variants, the fastest of the baseline, in which the other schedules are tried first.
_FAST_VARIANTS = 3
#: Baselines, those that the model likes best, whose code is compiled before a search.
_LIKELY_BASELINES = 3
#: Share of the best time that a plan must be expected to gain.
_LITTLE = 0.003


class InitialCandidates:
    """Who asks, and the plan, one after another; some may come twice, or be infeasible. At the end it `is_done`."""

    def __init__(self, pool: CandidatePool, warm_start: WarmStart, given: Iterable[Plan]) -> None:
        self._pool, self._warm_start, self._given = pool, warm_start, tuple(given)
        self._following: list[Plan] | None = None
        self.is_done = False

    @property
    def following(self) -> list[Plan]:
        """What will likely come after the plan that came last, as far as that is known."""
        return [plan for _, plan in self._known] if self._following is None else self._following

    @cached_property
    def _known(self) -> list[tuple[str, Plan]]:
        """What is not for measurements to say."""
        warm_start, space = self._warm_start, self._pool.space
        found = [("given", plan) for plan in self._given] + [("predicted", space.inside(predicted(self._pool.model)))]
        for origin, plans in ((LIKE, warm_start.like), (PATTERN, warm_start.pattern), (SIMILAR, warm_start.similar)):
            found += [(origin, plan) for plan in plans]
        return found

    def __iter__(self) -> Iterator[tuple[str, Plan]]:
        pool, space = self._pool, self._pool.space
        for place, (origin, plan) in enumerate(self._known):
            self._following = [other for _, other in self._known[place + 1 :]]
            yield origin, plan
        others = [name for name in space.parameters if name != space.plain]
        baselines = [trial.plan for trial in pool.ledger.completed() if is_baseline(trial.plan)]
        offered = [("default", plan) for plan in _in_fast_variants(pool, others, baselines)]
        offered += [("default", space.default(name)) for name in others]
        offered += [("start", plan) for name in space.parameters for plan in _starts(pool, name)]
        yield from self._by_worth(offered)
        for liked in _liked(pool, others):
            yield from self._by_worth([("model", liked)])
        self.is_done = True

    def _by_worth(self, offered: list[tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
        """What may gain most next, as it is known by then; without what has next to nothing to gain.

        What has no estimate comes last of what is worth a trial: its schedule would likely refuse it, or thinking of
        its kind takes too long, and finding that out may take seconds that others need.
        """
        left = {plan: origin for origin, plan in reversed(offered)}
        while left:
            times, plans = self._pool.times, list(reversed(left))
            worth = {plan: _LITTLE for plan in plans if not times.knows(plan)}
            known = [plan for plan in plans if plan not in worth]
            if known:
                worth |= dict(zip(known, times.improvement(known).tolist(), strict=True))
            best, *others = sorted(plans, key=worth.__getitem__, reverse=True)
            if worth[best] < _LITTLE:
                break
            self._following = [plan for plan in others if worth[plan] >= _LITTLE]
            yield left.pop(best), best
        self._following = []


def foreseen(model: Model, warm_start: WarmStart, given: Iterable[Plan]) -> Iterator[Plan]:
    """Plans that the search will likely begin with, as far as that is known before anything was measured.

    The baselines that the model likes best, what is not for measurements to say, and in the variants of these baselines
    what stands for each other schedule. Their code is compiled before the search begins.
    """
    pool = CandidatePool(model, Ledger(model.space))
    space = pool.space
    baselines = sorted(space.baselines(model.matrix), key=pool.times.modelled)
    likely = list(islice((plan for plan in baselines if pool.reason_against(plan) is None), _LIKELY_BASELINES))
    others = [name for name in space.parameters if name != space.plain]
    yield from likely[:1]
    yield from _in_fast_variants(pool, others, likely[:1])
    yield from (plan for _, plan in InitialCandidates(pool, warm_start, given)._known)
    yield from likely[1:]
    yield from _in_fast_variants(pool, others, likely[1:])
    for name in others:  # each order of the rows is thought of, which compiles what makes it
        for order in space.choices(name, "partitioner"):
            plan = space.plan(name, {"partitioner": order, "variant": likely[0].variant}) if likely else None
            if plan is not None and space.holds(plan):
                yield plan


def _in_fast_variants(pool: CandidatePool, names: list[str], baselines: list[Plan]) -> list[Plan]:
    """Schedules' defaults in the variants in which the baseline is fastest, which are compiled already.

    Each plan is in the first order of rows in which it is feasible.
    """
    space = pool.space
    found: list[Plan] = []
    for variant in list(dict.fromkeys(plan.variant for plan in baselines))[:_FAST_VARIANTS]:
        for name in names:
            if variant not in space.choices(name, "variant"):
                continue
            orders = space.choices(name, "partitioner")
            plans = (space.plan(name, {"variant": variant, "partitioner": order}) for order in orders)
            feasible = next((plan for plan in plans if pool.reason_against(plan) is None), None)
            if feasible is not None:
                found.append(feasible)
    return found


def _starts(pool: CandidatePool, name: str) -> list[Plan]:
    """The plans that a schedule wants a search to begin with; most have none."""
    space = pool.space
    starts = space.schedules[name].starts(pool.model.matrix, space.device, space.k)
    return [space.inside(plan) for plan in starts]


def _liked(pool: CandidatePool, names: list[str]) -> Iterator[Plan]:
    """The plan of each schedule in each order of the rows that is thought to be fastest, by what is known by then."""
    space = pool.space
    for name in names:
        for order in space.choices(name, "partitioner") or (NATURAL,):
            fixed = {"partitioner": order} if space.choices(name, "partitioner") else {}
            plan = space.least(space.plan(name, fixed), pool.thought, fixed)
            if pool.thought([plan])[0] < math.inf:
                yield plan
