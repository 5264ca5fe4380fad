"""Optuna's part of the search: suggestions by TPE over the conditional space, learning from every trial.

The space is defined by run: first the schedule, then that schedule's own parameters, named ``schedule.parameter``.
Numbers are suggested by their place among the choices, so that the sampler knows their order. Trials made on others'
suggestions are told to the study too, as if it had asked for them. Optuna is imported when a sampler is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from akx.core.plan import Option, Plan
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.trial import COMPLETE, PRUNED, Trial
from akx.tuner.space import Space, is_numeric

__all__ = ["Sampler", "Suggesting", "quiet_optuna"]

#: Suggestions of plans already tried after which the sampler has nothing new.
_ATTEMPTS = 12


class Suggesting(Protocol):
    """What a search asks of a sampler, so that another may stand in for :class:`Sampler`."""

    def suggest(self, done: Ledger, refuse: Callable[[Plan], bool]) -> Plan | None:
        """A plan not done and not refused; None where there is no idea."""
        ...

    def tell(self, outcome: Trial) -> None:
        """Of a trial, its own or another's; each is told once, in order."""
        ...


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Without Optuna's log and its warnings of experiments."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


class Sampler:
    """Optuna's TPE over the conditional space: the schedule first, then that schedule's own parameters."""

    def __init__(self, space: Space, seed: int) -> None:
        import optuna

        self._optuna, self._space = optuna, space
        with quiet_optuna():
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, n_startup_trials=8, warn_independent_sampling=False
            )
            self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._open: dict[Plan, Any] = {}

    def suggest(self, done: Ledger, refuse: Callable[[Plan], bool]) -> Plan | None:
        """A plan not done and not refused; None after many attempts without one."""
        for _ in range(_ATTEMPTS):
            trial = self._study.ask()
            plan = self._walk(trial)
            if plan in done:
                self._close(trial, done[plan])
            elif refuse(plan):
                # Infeasible, or another worker is at it: that one counts as bad until it is known (a constant liar).
                self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
            else:
                self._open[plan] = trial
                return plan
        return None

    def tell(self, outcome: Trial) -> None:
        """Let the sampler learn from a trial, its own or another's."""
        trial = self._open.pop(outcome.plan, None)
        if trial is None:
            values = self._space.values(outcome.plan)
            if values is None:
                return
            self._study.enqueue_trial(self._coded(outcome.plan.schedule, values))
            trial = self._study.ask()
            self._walk(trial)
        self._close(trial, outcome)

    def _close(self, trial: Any, outcome: Trial) -> None:
        if outcome.state == COMPLETE and outcome.seconds is not None:
            self._study.tell(trial, outcome.seconds)
            return
        if outcome.state == PRUNED and outcome.seconds is not None:
            trial.report(outcome.seconds, step=1)
        # TPE forgets failed trials; told as pruned, it keeps away from plans that fail.
        self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def _walk(self, trial: Any) -> Plan:
        """Define by run: ask for the schedule, then for each of its parameters."""
        schedule = trial.suggest_categorical("schedule", list(self._space.parameters))
        values: dict[str, Option] = {}
        for parameter in self._space.parameters[schedule]:
            name, choices = f"{schedule}.{parameter.name}", parameter.choices
            if len(choices) == 1:
                values[parameter.name] = choices[0]
            elif is_numeric(parameter):
                values[parameter.name] = choices[trial.suggest_int(name, 0, len(choices) - 1)]
            else:
                values[parameter.name] = trial.suggest_categorical(name, choices)
        return self._space.plan(schedule, values)

    def _coded(self, schedule: str, values: dict[str, Option]) -> dict[str, Any]:
        """A plan's choices as the parameters of the study: numbers by their place, names as they are."""
        coded: dict[str, Any] = {"schedule": schedule}
        for parameter in self._space.parameters[schedule]:
            if len(parameter.choices) > 1:
                value = values[parameter.name]
                at = parameter.choices.index(value)
                coded[f"{schedule}.{parameter.name}"] = at if is_numeric(parameter) else value
        return coded
