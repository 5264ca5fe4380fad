"""Estimated seconds of plans that nobody has tried: the traffic models, corrected by what was measured.

A traffic model is wrong, but its errors are alike for plans that are alike. So the logarithm of the error is a Gaussian
process over the choices, and every timed trial says something of all other plans::

    log seconds(p) = log model(p) + e(p),      e ~ GP(0, K)
    K(p, q) = a^2 + b^2 m_p m_q + v^2 [same variant] + c^2 M(p, q)
              + [same schedule] (s^2 + o^2 [same order of the rows] + t^2 M(p, q) + l^2 prod_i kappa_i(p, q))
    M(p, q) = sum_i kappa_i(p, q) / sqrt(parameters of p x parameters of q)
    kappa_i = rho^d_i,  d_i = places between two choices of a number, and 2 for two names that differ

i being the parameters that both have, and m_p = log model(p) less its mean over the trials: b is how far the model's
word for word may be too much or too little, so that one that has plans the wrong way round is soon not followed. M is
the mean of kappa_i for plans of one schedule; a mean over what two schedules share would be no kernel, since matrices
of it have negative eigenvalues.

With trials p_1 .. p_n, r_i = log seconds_i - log model_i, C = K + w^2 I = L L^T (n is some tens)::

    mean(p) = log model(p) + k_p^T C^-1 r,     variance(p) = K(p, p) - |L^-1 k_p|^2

The worth of a trial of p is its expected improvement on the best so far, relative to it::

    EI(p) = (log best - mean) Phi(z) + deviation phi(z),   z = (log best - mean) / deviation

The amplitudes are near those that make recorded searches on an H100 most likely, 16 matrices together, but for `a`,
which is so large that the first trials alone decide: on other machines models may be wrong by any factor. What has no
model has no estimate.

A plan that fails, or cannot be prepared, has no seconds, and what is like it may fail as well. That is a process of its
own, with 1 for what came to nothing and 0 for what was timed, and K less a^2 and b^2; the worth is EI (1 - its mean),
so that the search goes elsewhere in the end, and leaves no region for a single failure.

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1; Jones, Schonlau and Welch,
Efficient global optimization, 1998.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from akx.core.plan import Option, Plan
from akx.tuner.history.trial import FAILED, Trial
from akx.tuner.model.budget import ModelBudget
from akx.tuner.model.seconds import Model
from akx.tuner.space import Space

__all__ = ["Amplitudes", "Surrogate"]

#: Places between two names that differ, in the kernel.
_APART = 2
#: Places of a code that say schedule, order of the rows and variant.
_HEAD = 3
#: Deviations within which an estimate is as good as certain.
_SURE = 2.0
#: Trials that are looked at; of a shared study there may be thousands, and the price grows with the cube.
_MOST_TRIALS = 256
#: Chance that a plan works at least, however many like it have failed.
_LEAST_CHANCE = 0.01
_LEAST_VARIANCE = 1e-8

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Amplitudes:
    """Of the parts of the kernel; all but `rho` and `slope` are deviations of the logarithm of seconds.

    `everything` is what the model is wrong by for all plans, `schedule`, `order` and `variant` for those of one
    schedule, order of the rows and variant; `slope` is of the power of the model's seconds to which plans' seconds
    grow, which is thought to be one; `common` is for plans of whatever schedule with the same choices of what both
    have; `main` and `local` are for plans of one schedule with the same choice of one parameter, and of nearly all;
    `rho` is the correlation of two plans one place apart, and `noise` that of a measurement.
    """

    everything: float = 2.0
    slope: float = 0.2
    schedule: float = 0.4
    order: float = 0.1
    variant: float = 0.1
    common: float = 0.15
    main: float = 0.15
    local: float = 0.4
    rho: float = 0.9
    noise: float = 0.03


_AMPLITUDES = Amplitudes()


class Surrogate:
    """Seconds of plans, with how sure that is, from a model and the trials so far; thinking of plans is on a budget."""

    def __init__(self, model: Model, amplitudes: Amplitudes = _AMPLITUDES, budget: ModelBudget | None = None) -> None:
        self._model = model
        self._budget = budget or ModelBudget()
        self._space = model.space
        self._amplitudes = amplitudes
        self._schedules = {name: place for place, name in enumerate(self._space.parameters)}
        held = _choices(self._space)
        self._parameters, self._choices = list(held), list(held.values())
        self._is_name = np.array([not _are_numbers(choices) for choices in self._choices], dtype=bool)
        self._names: dict[str, int] = {}
        self._modelled: dict[Plan, float] = {}
        self._codes: dict[Plan, tuple[int, ...]] = {}
        self._plans: list[Plan] = []
        self._logs: list[float] = []
        self._failed: list[Plan] = []
        self._solved: tuple[Array, Array] | None = None
        self._failing: Array | None = None

    @property
    def best(self) -> float:
        """Logarithm of the fewest seconds so far."""
        return min(self._logs, default=math.inf)

    def learn(self, trials: Iterable[Trial]) -> None:
        """Take in timed trials, those dropped early too, and what came to nothing; what was known is replaced."""
        held = [trial for trial in trials if self.knows(trial.plan)]
        timed = [trial for trial in held if trial.state != FAILED and 0 < (trial.seconds or 0.0) < math.inf]
        known = _thinned(sorted(timed, key=lambda trial: trial.seconds or 0.0), _MOST_TRIALS)
        self._plans = [trial.plan for trial in known]
        self._logs = [math.log(trial.seconds or 1.0) for trial in known]
        self._failed = [trial.plan for trial in held if _came_to_nothing(trial)][-_MOST_TRIALS:]
        self._solved = self._failing = None

    def knows(self, plan: Plan) -> bool:
        """Whether a plan lies in the space and has a model, which does not take too long."""
        return self._space.values(plan) is not None and 0 < self.modelled(plan) < math.inf

    def estimate(self, plans: Sequence[Plan]) -> tuple[Array, Array]:
        """Logarithms of the seconds of `plans`, all of them known, and their deviations."""
        lower, weights = self._solve()
        modelled, known = self._logs_modelled(plans), self._logs_modelled(self._plans)
        centre, slope = (float(known.mean()) if known.size else 0.0), self._amplitudes.slope**2
        across = self._kernel(plans, self._plans) + slope * np.outer(modelled - centre, known - centre)
        half = solve_triangular(lower, across.T, lower=True)
        variance = self._variance() + slope * (modelled - centre) ** 2 - np.einsum("ij,ij->j", half, half)
        return modelled + across @ weights, np.sqrt(np.maximum(variance, _LEAST_VARIANCE))

    def improvement(self, plans: Sequence[Plan]) -> Array:
        """What a trial of each of `plans` may be expected to gain on the best so far, as a share of its seconds.

        Without any timed trial that is without bounds.
        """
        if not self._plans:
            return np.full(len(plans), math.inf)
        mean, deviation = self.estimate(plans)
        z = (self.best - mean) / deviation
        gain: Array = deviation * (z * ndtr(z) + np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))
        return gain * self.chance(plans)

    def chance(self, plans: Sequence[Plan]) -> Array:
        """How likely each of `plans` is to work at all, by what became of plans like it."""
        if not self._failed:
            return np.ones(len(plans))
        tried, everything = [*self._plans, *self._failed], self._amplitudes.everything**2
        if self._failing is None:
            failed = np.repeat((0.0, 1.0), (len(self._plans), len(self._failed)))
            noise = self._amplitudes.noise**2 * np.eye(len(tried))
            self._failing = np.linalg.solve(self._kernel(tried, tried) - everything + noise, failed)
        found: Array = np.clip(1.0 - (self._kernel(plans, tried) - everything) @ self._failing, _LEAST_CHANCE, 1.0)
        return found

    def is_hopeless(self, plan: Plan, than: float) -> bool:
        """Whether a plan takes, as good as certainly, more than so many seconds."""
        if not self._plans or not self.knows(plan):
            return False
        mean, deviation = self.estimate([plan])
        return bool(mean[0] - _SURE * deviation[0] > math.log(than))

    def modelled(self, plan: Plan) -> float:
        """Seconds by the traffic model, asked once for a plan; infinite where models of its kind take too long."""
        if plan not in self._modelled:
            self._modelled[plan] = math.inf
            if self._budget.allows(plan):
                with self._budget.on(plan):
                    self._modelled[plan] = self._model.seconds(plan)
        return self._modelled[plan]

    def has_modelled(self, plan: Plan) -> bool:
        """Whether the model was asked for a plan, and had an answer."""
        return 0 < self._modelled.get(plan, math.inf) < math.inf

    # ------------------------------------------------------------------------------------------------ the process

    def _solve(self) -> tuple[Array, Array]:
        if self._solved is None:
            noise = self._amplitudes.noise**2 * np.eye(len(self._plans))
            modelled = self._logs_modelled(self._plans)
            apart = modelled - (float(modelled.mean()) if modelled.size else 0.0)
            tilt = self._amplitudes.slope**2 * np.outer(apart, apart)
            lower = np.linalg.cholesky(self._kernel(self._plans, self._plans) + tilt + noise)
            errors = np.array(self._logs) - modelled
            half = solve_triangular(lower, errors, lower=True)
            weights: Array = solve_triangular(lower, half, lower=True, trans="T")
            self._solved = lower.astype(float), weights
        return self._solved

    def _logs_modelled(self, plans: Sequence[Plan]) -> Array:
        return np.array([math.log(self.modelled(plan)) for plan in plans])

    def _variance(self) -> float:
        a = self._amplitudes
        parts = (a.everything, a.variant, a.common, a.schedule, a.order, a.main, a.local)
        return float(sum(part**2 for part in parts))

    def _kernel(self, some: Sequence[Plan], others: Sequence[Plan]) -> Array:
        a = self._amplitudes
        width = _HEAD + len(self._parameters)
        rows, columns = (
            np.array([self._code(plan) for plan in plans], dtype=int).reshape(len(plans), width)
            for plans in (some, others)
        )
        same = rows[:, None, :_HEAD] == columns[None, :, :_HEAD]
        left, right = rows[:, None, _HEAD:], columns[None, :, _HEAD:]
        apart = np.abs(left - right)
        apart[..., self._is_name] = np.where(apart[..., self._is_name] > 0, _APART, 0)
        shared = (left >= 0) & (right >= 0)
        alike = np.where(shared, self._correlations()[apart], 0.0)
        held = np.sqrt(np.outer((rows[:, _HEAD:] >= 0).sum(axis=1), (columns[:, _HEAD:] >= 0).sum(axis=1)))
        mean = alike.sum(axis=2) / np.maximum(1.0, held)
        whole = np.where(shared, alike, 1.0).prod(axis=2)
        found: Array = a.everything**2 + a.variant**2 * same[..., 2] + a.common**2 * mean
        within = a.schedule**2 + a.order**2 * same[..., 1] + a.main**2 * mean + a.local**2 * whole
        found += same[..., 0] * within
        return found

    def _correlations(self) -> Array:
        """By places apart."""
        most = max((len(choices) for choices in self._choices), default=0)
        found: Array = self._amplitudes.rho ** np.arange(max(most, _APART) + 2.0)
        return found

    def _code(self, plan: Plan) -> tuple[int, ...]:
        """Schedule, order and variant by number, then the place of each choice, -1 for parameters of others."""
        if plan not in self._codes:
            values = self._space.values(plan) or {}
            places = (
                choices.index(values[name]) if name in values else -1
                for name, choices in zip(self._parameters, self._choices, strict=True)
            )
            order, variant = (
                self._names.setdefault(name, len(self._names)) for name in (plan.partitioner, plan.variant)
            )
            self._codes[plan] = (self._schedules[plan.schedule], order, variant, *places)
        return self._codes[plan]


def _came_to_nothing(trial: Trial) -> bool:
    """Whether a plan was begun and failed, or could not be prepared: not one that was known to be infeasible."""
    return trial.state == FAILED or (trial.seconds is None and trial.prepare_seconds is not None)


def _thinned(known: list[Trial], most: int) -> list[Trial]:
    """Of very many, fastest first: the fastest, and of the rest as many, spread evenly, to know what is slow."""
    if len(known) <= most:
        return known
    half = most // 2
    return known[:half] + known[half :: -(-(len(known) - half) // half)]


def _choices(space: Space) -> dict[str, list[Option]]:
    """All choices of the parameters of each name, in whatever schedule; numbers in their order."""
    found: dict[str, dict[Option, None]] = {}
    for parameters in space.parameters.values():
        for parameter in parameters:
            found.setdefault(parameter.name, {}).update(dict.fromkeys(parameter.choices))
    return {name: sorted(held) if _are_numbers(held) else list(held) for name, held in found.items()}


def _are_numbers(choices: Iterable[Option]) -> bool:
    return all(isinstance(choice, (int, float)) and not isinstance(choice, bool) for choice in choices)
