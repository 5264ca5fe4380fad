"""The next plan to try: the initial plans (:mod:`akx.tuner.candidates.initial_candidates`), then those of the search.

The search asks in turn, every other time for what may be expected to gain most of all that is one or two choices from
the best plans (:mod:`akx.tuner.surrogate`). Between these it asks for a neighbour of the best plan (hill climbing: one
parameter changed, the choice with the best record first), for a suggestion of Optuna's sampler (TPE), which has learnt
from every trial, and for a neighbour of a rival: the best plan of another schedule or variant that is close behind.
When nobody has an idea, something untried at random. What its schedule says is infeasible is proposed by nobody, but
for plans that are given.

Where nothing better was found for some trials, or little time is left, the plans that differ from the best one in a
single choice and may be better come first, so that a search ends at a plan that is better than those next to it: what
is expected to gain most lies further away, where less is known. A search that ends for want of progress has tried all
of them that there was time for.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from akx.core.plan import Plan
from akx.tuner.candidates.candidate_pool import CandidatePool
from akx.tuner.candidates.initial_candidates import InitialCandidates
from akx.tuner.candidates.sampler import Sampler, Suggesting
from akx.tuner.candidates.warm_start import NO_WARM_START, WarmStart
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.trial import Trial
from akx.tuner.model.seconds import Model
from akx.tuner.space import Space

__all__ = ["SEARCHING", "Proposals"]

#: Origins of plans that the search itself came up with, after the seeds.
SEARCHING = frozenset({"estimate", "neighbour", "rival", "sampler", "spare"})

#: Best plans whose neighbours are tried.
_CLIMBED = 3
#: The best plan of another schedule or variant is a rival where it takes at most this many times as long as the best.
_RIVAL = 1.25
#: Trials without progress after which the neighbours of the best plan come first.
_SETTLED = 8
#: Share of the time that is left from which on they do in any case.
_LATE = 0.2
#: Combinations that are looked through for something not yet tried.
_ENUMERATED = 20_000


class Proposals:
    """A stream of plans, each new, each once, beside the trials of a ledger.

    Parameters
    ----------
    seed, sampler : int, callable
        The seed of the sampler, and what makes it of a space and a seed.
    keep, avoid, taken : callable, optional
        Plans that are never proposed (false; baselines always are), those that the search does not come up with, and
        those that others are at.
    given, warm_start : iterable of Plan, WarmStart
        Plans proposed before all others, infeasible ones too; and those of the database.
    seconds, left : callable
        Of the whole search, as it is known by then, little of which is spent on what to try; and those left for trials.
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
        warm_start: WarmStart = NO_WARM_START,
        seconds: Callable[[], float] = lambda: math.inf,
        left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.given = tuple(given)
        self.pool = CandidatePool(model, ledger, keep=keep, avoid=avoid, taken=taken, seconds=seconds)
        self._space, self._ledger = model.space, ledger
        self._initial = InitialCandidates(self.pool, warm_start, self.given)
        self._make_sampler, self._seed = sampler, seed
        self._seconds, self._left = seconds, left
        self._sampler: Suggesting | None = None
        self._near: dict[Plan, list[Plan]] = {}

    def baselines(self) -> list[Plan]:
        """Plain products in each variant, infeasible ones too, those first that the model likes best."""
        return sorted(self._space.baselines(self.pool.model.matrix), key=self.pool.times.modelled)

    def threads_of(self, plan: Plan) -> list[Plan]:
        """The same plan with every other number of threads."""
        others = [plan.replace(threads=threads) for threads in self._space.choices(plan.schedule, "threads")]
        return [other for other in others if self.pool.is_new(other)]

    def everything(self) -> Iterator[tuple[str, Plan]]:
        """Who asks, and the plan: the whole space in order."""
        yield from self._new(("given", plan) for plan in self.given)
        yield from self._new(("all", plan) for plan in self._space.plans())

    def search(self) -> Iterator[tuple[str, Plan]]:
        """Who asks, and the plan: seeds first, then the search, until nothing is left."""
        yield from self._new(self._initial)
        self._ledger.since_progress = 0
        spare = self._spare()
        while True:
            yield from self._beside_best()
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

    @property
    def has_begun(self) -> bool:
        """Whether all that a search begins with has come."""
        return self._initial.is_done

    def likely(self) -> Iterator[Plan]:
        """Plans that the search may soon come up with, the likeliest first: the initial ones, then what may gain most.

        Of what has been thought of already: to ask changes nothing of what comes.
        """
        yield from (plan for plan in self._initial.following if self.pool.is_new(plan))
        best = self._ledger.completed()[:_CLIMBED]
        if best and self._is_settled(ahead=2):  # what is next to it, by the time that they are ready
            yield from self._ranked(self._space.along(best[0].plan))
        yield from self._ranked(plan for trial in best for plan in self._near.get(trial.plan, ()))

    def _ranked(self, plans: Iterable[Plan]) -> list[Plan]:
        """Those of `plans` that have been thought of and were not tried, what may gain most first."""
        return self._by_worth([plan for plan in dict.fromkeys(plans) if self.pool.is_in_mind(plan)])

    def _by_worth(self, plans: list[Plan]) -> list[Plan]:
        """Those of `plans`, all of them known, that may gain most first."""
        worth = self.pool.times.improvement(plans) if plans else ()
        return [plans[place] for place in np.argsort(np.negative(worth), kind="stable")]

    def is_no_better(self, plan: Plan, seconds: float) -> bool:
        """Whether a plan takes, as good as certainly, more than so many seconds."""
        return self.pool.times.is_hopeless(plan, seconds)

    def expected_seconds(self, plan: Plan) -> float | None:
        """Seconds that a plan is thought to take, by the trials so far; None where nothing is thought of it."""
        times = self.pool.times
        return math.exp(float(times.estimate([plan])[0][0])) if times.knows(plan) else None

    def learn(self, trial: Trial) -> None:
        """Tell the sampler of a trial."""
        if self._sampler is not None:
            self._sampler.tell(trial)

    # ------------------------------------------------------------------------------------------------ sources

    def _promising(self) -> Plan | None:
        """The plan that may gain most, of those near the best plans: one or two choices away."""
        known, good = self.pool, [trial.plan for trial in self._ledger.completed()[:_CLIMBED]]
        for plan in good:
            if plan not in self._near:
                around = self._space.around(plan)
                self._near[plan] = [other for other in around if known.is_known(other)]
        plans = list(dict.fromkeys(other for plan in good for other in self._near[plan] if known.is_open(other)))
        return plans[int(known.times.improvement(plans).argmax())] if plans else None

    def _near_best(self) -> Plan | None:
        """A neighbour of the best plan, or of the next best where all of those are done."""
        near = (self._neighbour(trial.plan) for trial in self._ledger.completed()[:_CLIMBED])
        return next((plan for plan in near if plan is not None), None)

    def _beside_best(self) -> Iterator[tuple[str, Plan]]:
        """The plans next to the best one, those first that promise most, while it does not give way to another.

        Without those that are sure to be no better, and those of which nothing is thought.
        """
        while self._is_settled():
            near = self.beside()
            if not near:
                return
            yield "neighbour", near[0]

    def _is_settled(self, ahead: int = 0) -> bool:
        """Whether the best plan is compared with those next to it, in so many trials at the latest."""
        return self._ledger.since_progress >= _SETTLED - ahead or self._left() < _LATE * self._seconds()

    def beside(self) -> list[Plan]:
        """The untried plans one choice away from the best one that may be better, those first that promise most."""
        best, known = self._ledger.best, self.pool
        if best is None or best.seconds is None:
            return []
        near = [plan for plan in self._space.along(best.plan) if known.is_open(plan) and known.is_known(plan)]
        return self._by_worth([plan for plan in near if not known.times.is_hopeless(plan, best.seconds)])

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
        old = self._space.values(here) or {}

        def record(plan: Plan) -> float:
            if not self._ledger.is_compiled(plan.variant):
                return math.inf
            new = self._space.values(plan) or {}
            changed = [choice for choice in new.items() if old.get(choice[0]) != choice[1]]
            return max((self._ledger.record_of(choice) for choice in changed), default=0.0)

        near = sorted((plan for plan in self._space.neighbours(here) if self.pool.is_open(plan)), key=record)
        return next((plan for plan in near if self.pool.reason_against(plan) is None), None)

    def _suggestion(self) -> Plan | None:
        """What the sampler suggests, which was told of every trial so far."""
        if self._sampler is None:
            self._sampler = self._make_sampler(self._space, self._seed)
            for trial in self._ledger.trials:
                self._sampler.tell(trial)
        return self._sampler.suggest(self._ledger, self.pool.is_refused)

    def _spare(self) -> Iterator[Plan]:
        """What is left of the space, or of as much of each schedule, in a random order."""
        names = self._space.parameters
        plans = [plan for name in names for plan in islice(self._space.plans(name), _ENUMERATED // len(names))]
        random.Random(self._seed).shuffle(plans)
        yield from (plan for plan in plans if self.pool.is_open(plan) and self.pool.reason_against(plan) is None)

    def _new(self, proposals: Iterable[tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
        """Those that are new and feasible; and given ones in any case, whose trials say why they are not."""
        for origin, plan in proposals:
            if self.pool.is_new(plan) and (origin == "given" or self.pool.refusal(plan) is None):
                yield origin, plan
