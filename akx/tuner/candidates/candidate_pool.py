"""Which plans may be tried now, and what is thought of them.

A plan is *new* where nobody has tried it and nobody is at it, *open* where the search has no reason to avoid it, and
*known* where it is feasible and has an estimate (:mod:`akx.tuner.surrogate`). The trials of the ledger are learnt as
they come; what models and feasibility of plans take that may never be tried is on a budget
(:mod:`akx.tuner.model.budget`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from akx.core.plan import FULL, Plan
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.trial import Trial
from akx.tuner.model.budget import ModelBudget
from akx.tuner.model.seconds import Model
from akx.tuner.space import NATURAL, is_baseline
from akx.tuner.surrogate import Surrogate

__all__ = ["CandidatePool"]


class CandidatePool:
    """What a search knows of plans before it tries them: its model, its space, its ledger, and the surrogate.

    `keep`, `avoid`, `taken` and `seconds` are those of :class:`akx.tuner.candidates.proposals.Proposals`.
    """

    def __init__(
        self,
        model: Model,
        ledger: Ledger,
        *,
        keep: Callable[[Plan], bool] | None = None,
        avoid: Callable[[Plan], bool] | None = None,
        taken: Callable[[Plan], bool] | None = None,
        seconds: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.model, self.space, self.ledger = model, model.space, ledger
        self._keep, self._avoid, self._taken = keep, avoid, taken
        self._budget = ModelBudget(seconds)
        self._times, self._seen = Surrogate(model, budget=self._budget), 0
        self._inside: dict[Plan, bool] = {}
        self._feasible: dict[Plan, bool] = {}
        self._refused: dict[str, str] = {}

    @property
    def times(self) -> Surrogate:
        """The surrogate, which has seen every trial so far."""
        if self._seen != len(self.ledger.trials):
            self._seen = len(self.ledger.trials)
            self._times.learn(self.ledger.trials)
        return self._times

    def is_new(self, plan: Plan) -> bool:
        """Whether a plan is wanted, and neither tried nor under way."""
        return self._is_wanted(plan) and plan not in self.ledger and (self._taken is None or not self._taken(plan))

    def is_open(self, plan: Plan) -> bool:
        """Whether the search itself may come up with a plan."""
        return self.is_new(plan) and (self._avoid is None or not self._avoid(plan))

    def reason_against(self, plan: Plan) -> str | None:
        """Why a plan is infeasible, or why its schedule cannot even say so."""
        with self._budget.on(plan, counts=False):
            return self._reason_against(plan)

    def refusal(self, plan: Plan) -> str | None:
        """Why a plan is infeasible; a schedule that cannot even say so fails in a trial, with its reason."""
        with self._budget.on(plan, counts=False), suppress(Exception):
            return self._refusal(plan)
        return None

    @property
    def refused(self) -> dict[str, str]:
        """By schedule, why its default is infeasible, as far as anybody has asked; without those that nobody wants."""
        wanted = {name for plan, name in self._defaults.items() if self._keep is None or self._keep(plan)}
        return {name: self._refused[name] for name in self.space.parameters if name in wanted & self._refused.keys()}

    def ordering_seconds(self, partitioner: str) -> float:
        """Seconds that it took to order the rows so, and what else is memoised, as far as thinking of plans did it."""
        return self._budget.longest(partitioner)

    def is_fit(self, trial: Trial) -> bool:
        """Whether a trial that was made elsewhere says something here: of a plan that is wanted and fits these values.

        They are in no key: others may have been stored in ways that these cannot. Of the ways there are the space knows
        some, by its choices, and feasibility the rest; an order of the rows is not found for plans that store values as
        they are, which were feasible.
        """
        plan = trial.plan
        if self.space.values(plan) is None or not self._is_wanted(plan):
            return False
        is_sure = plan.partitioner != NATURAL and plan.typed.stored == FULL
        return trial.seconds is None or is_sure or self.refusal(plan) is None

    def is_refused(self, plan: Plan) -> bool:
        """Whether the search may not come up with a plan, or it is infeasible."""
        return not self.is_open(plan) or self.reason_against(plan) is not None

    def is_known(self, plan: Plan) -> bool:
        """Whether a plan is feasible and has an estimate; not one for which there is no time to find out."""
        if plan not in self._inside:
            self._inside[plan] = self.space.holds(plan)
        if not self._inside[plan]:
            return False
        if plan not in self._feasible and self._budget.allows(plan):
            with self._budget.on(plan):
                self._feasible[plan] = self._reason_against(plan) is None
        return self._feasible.get(plan, False) and self._times.knows(plan)

    def is_in_mind(self, plan: Plan) -> bool:
        """Whether a plan is new, and known without thinking of it: what is asked so changes nothing."""
        return self.is_new(plan) and self._feasible.get(plan, False) and self._times.has_modelled(plan)

    def thought(self, plans: Sequence[Plan]) -> list[float]:
        """The logarithm of the seconds that each of `plans` is thought to take; infinite where one cannot be tried."""
        found = dict.fromkeys(plans, math.inf)
        known = [plan for plan in found if self.is_open(plan) and self.is_known(plan)]
        if known:
            found.update(zip(known, self.times.estimate(known)[0].tolist(), strict=True))
        return [found[plan] for plan in plans]

    def is_hopeless(self, plan: Plan) -> bool:
        """Whether a plan takes longer than the fastest baseline so far, as good as certainly."""
        seconds = self.ledger.baseline_seconds
        return seconds is not None and self.times.is_hopeless(plan, seconds)

    def _is_wanted(self, plan: Plan) -> bool:
        return self._keep is None or is_baseline(plan) or self._keep(plan)

    def _reason_against(self, plan: Plan) -> str | None:
        try:
            return self._refusal(plan)
        except Exception as failure:
            return str(failure)

    def _refusal(self, plan: Plan) -> str | None:
        reason = self.space.feasible(plan, self.model.matrix)
        if reason is not None and plan in self._defaults:
            self._refused[plan.schedule] = reason
        return reason

    @cached_property
    def _defaults(self) -> dict[Plan, str]:
        """The default of each schedule, and its name."""
        return {self.space.default(name): name for name in self.space.parameters}
