"""What to try next.

Seeds: plans that like devices have for this very problem; the predicted plan; plans for similar matrices
(:mod:`akx.tuner.seeds`); the other schedules' defaults, also in the variants in which the baseline is fastest, and the
plans that a schedule itself wants tried (:class:`Started`), the most promising next; then, of each schedule in each
order of the rows, the plan that is thought to be fastest. What is thought of a plan is the traffic model's word,
corrected by every trial so far (:mod:`akx.tuner.surrogate`). A seed that has next to nothing to gain is passed over.

Then in turn, every other time, what may be expected to gain most of all that is one or two choices from the best plans;
between these a neighbour of the best plan (hill climbing: one parameter changed, the choice with the best record
first), a suggestion of Optuna's sampler (TPE), which has learnt from every trial, and a neighbour of a rival: the best
plan of another schedule or variant that is close behind. When nobody has an idea, something untried at random.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner.ledger import Ledger
from akx.tuner.predict import Model
from akx.tuner.result import Trial
from akx.tuner.sampler import Sampler, Suggesting
from akx.tuner.seeds import LIKE, NO_SEEDS, SIMILAR, Seeds
from akx.tuner.space import BASELINE_SCHEDULE, NATURAL, Space, is_baseline
from akx.tuner.surrogate import Surrogate

__all__ = ["SEARCHING", "Proposals", "Started"]

#: Origins of plans that the search itself came up with, after the seeds.
SEARCHING = frozenset({"estimate", "neighbour", "rival", "sampler", "spare"})

#: Variants, the fastest of the baseline, in which the other schedules are tried first.
_FAST_VARIANTS = 3
#: Best plans whose neighbours are tried.
_CLIMBED = 3
#: The best plan of another schedule or variant is a rival where it takes at most this many times as long as the best.
_RIVAL = 1.25
#: Infeasible plans that may become trials, as examples of the reasons; the rest is passed over.
_REFUSALS = 5
#: Combinations that are looked through for something not yet tried.
_ENUMERATED = 20_000
#: Share of the best time that a plan must be expected to gain to be a seed.
_LITTLE = 0.003


@runtime_checkable
class Started(Protocol):
    """A schedule that knows where a search should begin, beside its defaults."""

    def starts(self, matrix: Matrix, device: Any, k: int) -> tuple[Plan, ...]:
        """Feasible plans, each for an idea of its own."""
        ...


class Proposals:
    """A stream of plans, each new, each once.

    Parameters
    ----------
    model : Model
        Of the matrix and the space.
    ledger : Ledger
        Of the trials made meanwhile.
    seed : int
        Of the sampler.
    keep : callable, optional
        Plans for which it returns false are never proposed; baselines always are.
    avoid : callable, optional
        Plans for which it returns true are not proposed by the search, though they may be seeds.
    taken : callable, optional
        Plans for which it returns true are not proposed for the time being: others are at them.
    given : iterable of Plan
        Plans proposed before all others.
    sampler : callable
        Makes the sampler of a space and a seed.
    seeds : Seeds
        Plans of like devices and for similar matrices.
    """

    def __init__(
        self,
        model: Model,
        ledger: Ledger,
        *,
        seed: int,
        keep: Callable[[Plan], bool] | None = None,
        avoid: Callable[[Plan], bool] | None = None,
        taken: Callable[[Plan], bool] | None = None,
        given: Iterable[Plan] = (),
        sampler: Callable[[Space, int], Suggesting] = Sampler,
        seeds: Seeds = NO_SEEDS,
    ) -> None:
        self.given = tuple(given)
        self._known = seeds
        self._make_sampler = sampler
        self._model = model
        self._space = model.space
        self._ledger = ledger
        self._seed = seed
        self._keep = keep
        self._avoid = avoid
        self._taken = taken
        self._refused: set[tuple[str, str]] = set()
        self._sampler: Suggesting | None = None
        self._times, self._seen = Surrogate(model), 0
        self._near: dict[Plan, list[Plan]] = {}

    def baselines(self) -> list[Plan]:
        """Plain products in each variant, those first that the model likes best."""
        plans = self._model.rank(self._space.baselines(self._model.matrix))
        if getattr(self._space.device, "budget", 0):  # most variants do not fit: none of them is worth a trial
            plans = [plan for plan in plans if self._reason_against(plan) is None] or plans
        return plans

    def threads_of(self, plan: Plan) -> list[Plan]:
        """The same plan with every other number of threads."""
        choices = self._space.choices(plan.schedule, "threads")
        return [other for other in (plan.replace(threads=threads) for threads in choices) if self._is_new(other)]

    def everything(self) -> Iterator[tuple[str, Plan]]:
        """Who asks, and the plan: the whole space in order."""
        yield from self._new(("given", plan) for plan in self.given)
        yield from self._new(("all", plan) for plan in self._space.plans())

    def search(self) -> Iterator[tuple[str, Plan]]:
        """Who asks, and the plan: seeds first, then the search, until nothing is left."""
        yield from self._new(self._seeds())
        self._ledger.since_progress = 0
        spare = self._spare()
        while True:
            idle = True
            for origin, ask in (
                ("estimate", self._promising),
                ("neighbour", self._near_best),
                ("estimate", self._promising),
                ("sampler", self._suggestion),
                ("estimate", self._promising),
                ("rival", self._near_rival),
            ):
                plan = ask()
                if plan is not None:
                    idle = False
                    yield origin, plan
            if idle:
                left = next(spare, None)
                if left is None:
                    return
                yield "spare", left

    def learn(self, trial: Trial) -> None:
        """Tell the sampler of a trial."""
        if self._sampler is not None:
            self._sampler.tell(trial)

    # ------------------------------------------------------------------------------------------------ sources

    def _seeds(self) -> Iterator[tuple[str, Plan]]:
        yield from (("given", plan) for plan in self.given)
        yield from ((LIKE, plan) for plan in self._known.like)
        yield "predicted", self._space.inside(self._model.predicted())
        yield from ((SIMILAR, plan) for plan in self._known.similar)
        others = [name for name in self._space.parameters if name != BASELINE_SCHEDULE]
        seeds = [("default", plan) for plan in self._in_fast_variants(others)]
        seeds += [("default", self._space.default(name)) for name in others]
        seeds += [("start", plan) for name in others for plan in self._starts(name)]
        yield from self._by_worth(seeds)
        yield from (("model", plan) for liked in self._liked() for _, plan in self._by_worth([("model", liked)]))

    def _by_worth(self, seeds: list[tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
        """What may gain most next, as it is known by then; without what has next to nothing to gain.

        What has no estimate comes first.
        """
        left = {plan: origin for origin, plan in reversed(seeds)}
        while left:
            times, plans = self._learnt_times(), list(reversed(left))
            worth = {plan: math.inf for plan in plans if not times.knows(plan)}
            known = [plan for plan in plans if plan not in worth]
            if known:
                worth |= dict(zip(known, times.improvement(known).tolist(), strict=True))
            best = max(plans, key=worth.__getitem__)
            if worth[best] < _LITTLE:
                return
            yield left.pop(best), best

    def is_hopeless(self, plan: Plan) -> bool:
        """Whether a plan takes longer than the best so far, as good as certainly."""
        return self._learnt_times().is_hopeless(plan)

    def _learnt_times(self) -> Surrogate:
        """The surrogate, which has seen every trial so far."""
        if self._seen != len(self._ledger.trials):
            self._seen = len(self._ledger.trials)
            self._times.learn(self._ledger.trials)
        return self._times

    def _in_fast_variants(self, names: list[str]) -> list[Plan]:
        """Schedules' defaults in the variants in which the baseline is fastest, most promising first.

        These are also the variants that are compiled already. Promising is what the baseline took in the variant, times
        the model's ratio of the plan to the baseline. Each plan is in the first order of rows in which it is feasible.
        """
        baselines = [trial for trial in self._ledger.completed() if is_baseline(trial.plan)]
        fast = {trial.plan.variant: trial for trial in reversed(baselines)}
        promise: list[tuple[float, Plan]] = []
        for variant in list(reversed(fast))[:_FAST_VARIANTS]:
            plain = fast[variant]
            modelled = self._model.seconds(plain.plan)
            for name in names:
                if variant not in self._space.choices(name, "variant"):
                    continue
                orders = self._space.choices(name, "partitioner")
                plans = [self._space.plan(name, {"variant": variant, "partitioner": order}) for order in orders]
                feasible = next((plan for plan in plans if self._reason_against(plan) is None), None)
                if feasible is not None:
                    promise.append(((plain.seconds or 0.0) * self._model.seconds(feasible) / modelled, feasible))
        return [plan for _, plan in sorted(promise, key=lambda pair: pair[0])]

    def _starts(self, name: str) -> list[Plan]:
        """The plans that a schedule wants a search to begin with; most have none."""
        schedule = self._space.schedules[name]
        if not isinstance(schedule, Started):
            return []
        plans = schedule.starts(self._model.matrix, self._space.device, self._space.k)
        return [self._space.inside(plan) for plan in plans]

    def _liked(self) -> Iterator[Plan]:
        """The plan of each schedule in each order of the rows that is thought to be fastest, but for plain products.

        Each by what is known when it is its turn.
        """
        for name in self._space.parameters:
            for order in self._space.choices(name, "partitioner") or (NATURAL,):
                if name == BASELINE_SCHEDULE:
                    continue
                fixed = {"partitioner": order} if self._space.choices(name, "partitioner") else {}
                plan = self._space.least(self._space.plan(name, fixed), self._thought, fixed)
                if self._thought([plan])[0] < math.inf:
                    yield plan

    def _thought(self, plans: Sequence[Plan]) -> list[float]:
        """The logarithm of the seconds that each of `plans` is thought to take; infinite where one cannot be tried."""
        found = dict.fromkeys(plans, math.inf)
        known = [plan for plan in found if self._is_open(plan) and self._can_be_estimated(plan)]
        if known:
            found.update(zip(known, self._learnt_times().estimate(known)[0].tolist(), strict=True))
        return [found[plan] for plan in plans]

    def _can_be_estimated(self, plan: Plan) -> bool:
        return self._space.holds(plan) and self._reason_against(plan) is None and self._times.knows(plan)

    def _promising(self) -> Plan | None:
        """The plan that may gain most, of those near the best plans: one or two choices away."""
        good = [trial.plan for trial in self._ledger.completed()[:_CLIMBED]]
        for plan in good:
            if plan not in self._near:
                around = self._space.around(plan)
                self._near[plan] = [other for other in around if self._can_be_estimated(other)]
        plans = list(dict.fromkeys(other for plan in good for other in self._near[plan] if self._is_open(other)))
        return plans[int(self._learnt_times().improvement(plans).argmax())] if plans else None

    def _near_best(self) -> Plan | None:
        """A neighbour of the best plan, or of the next best where all of those are done."""
        near = (self._neighbour(trial.plan) for trial in self._ledger.completed()[:_CLIMBED])
        return next((plan for plan in near if plan is not None), None)

    def _near_rival(self) -> Plan | None:
        """A neighbour of the best plan of another schedule or variant that is not far behind, the least tried first.

        The best choices of one variant are not those of another: a rival deserves to be tuned before it is given up.
        """
        done = self._ledger.completed()
        groups: dict[tuple[str, str], Plan] = {}
        for trial in done:
            if (trial.seconds or 0.0) <= _RIVAL * (done[0].seconds or 0.0):
                groups.setdefault((trial.plan.schedule, trial.plan.variant), trial.plan)
        groups.pop((done[0].plan.schedule, done[0].plan.variant), None)
        tried = Counter((trial.plan.schedule, trial.plan.variant) for trial in self._ledger.trials)
        near = (self._neighbour(groups[group]) for group in sorted(groups, key=lambda group: tried[group]))
        return next((plan for plan in near if plan is not None), None)

    def _neighbour(self, here: Plan) -> Plan | None:
        """An untried feasible neighbour.

        Of several the one whose new choice has done best so far, in whatever plan; a choice never tried comes first,
        but for a variant that has to be compiled, which comes last.
        """
        near = [plan for plan in self._space.neighbours(here) if self._is_open(plan)]
        ordered = sorted(near, key=self._by_record(here))
        return next((plan for plan in ordered if self._reason_against(plan) is None), None)

    def _suggestion(self) -> Plan | None:
        return self._learnt().suggest(self._ledger, self._is_refused)

    def _by_record(self, here: Plan) -> Callable[[Plan], float]:
        old = self._space.values(here) or {}

        def record(plan: Plan) -> float:
            if not self._ledger.is_compiled(plan.variant):
                return math.inf
            new = self._space.values(plan) or {}
            changed = [choice for choice in new.items() if old.get(choice[0]) != choice[1]]
            return max((self._ledger.record_of(choice) for choice in changed), default=0.0)

        return record

    def _learnt(self) -> Suggesting:
        """The sampler, told of every trial so far."""
        if self._sampler is None:
            self._sampler = self._make_sampler(self._space, self._seed)
            for trial in self._ledger.trials:
                self._sampler.tell(trial)
        return self._sampler

    def _spare(self) -> Iterator[Plan]:
        """What is left of the space, in a random order."""
        plans = list(islice(self._space.plans(), _ENUMERATED))
        random.Random(self._seed).shuffle(plans)
        yield from (plan for plan in plans if self._is_open(plan) and self._reason_against(plan) is None)

    # ------------------------------------------------------------------------------------------------ refusals

    def _new(self, proposals: Iterable[tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
        """Those that are new and not refused; what others ask for may become a pruned trial, with its reason."""
        for origin, plan in proposals:
            trusted = origin in ("given", "predicted", "default")
            if self._is_new(plan) and (trusted or not self._is_old_refusal(plan)):
                yield origin, plan

    def _is_refused(self, plan: Plan) -> bool:
        return not self._is_open(plan) or self._reason_against(plan) is not None

    def _is_old_refusal(self, plan: Plan) -> bool:
        """Whether a plan is infeasible; the first ones for each reason are let through, to be on record."""
        reason = self._reason_against(plan)
        if reason is None:
            return False
        kind = (plan.schedule, reason)
        known = kind in self._refused or len(self._refused) >= _REFUSALS
        self._refused.add(kind)
        return known

    def _reason_against(self, plan: Plan) -> str | None:
        """Why a plan is infeasible; a schedule that cannot even say so fails in a trial, with its reason."""
        try:
            return self._space.feasible(plan, self._model.matrix)
        except Exception as failure:
            return str(failure)

    def _is_new(self, plan: Plan) -> bool:
        wanted = self._keep is None or is_baseline(plan) or self._keep(plan)
        return wanted and plan not in self._ledger and (self._taken is None or not self._taken(plan))

    def _is_open(self, plan: Plan) -> bool:
        return self._is_new(plan) and (self._avoid is None or not self._avoid(plan))
