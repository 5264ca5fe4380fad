"""From measurements to the plan: who is in the run-off, and who wins it.

Within the noise the simpler plan wins, so that the same plan wins from run to run and nothing complicated is used for
nothing: the baseline before all others, a sweep before other schedules, the user's order of rows before a new one, then
fewer threads and a smaller program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from akx.plan import Plan
from akx.tuner.ledger import Ledger
from akx.tuner.result import COMPLETE, Finalist
from akx.tuner.space import BASELINE_SCHEDULE, NATURAL, is_baseline

__all__ = ["choose", "complexity", "finalists"]

#: Plans slower than the best by more than this factor have no chance in the run-off.
_CHANCE = 1.15
#: Two plans may differ by at most this fraction and still be called equal, however noisy the machine is.
_MOST_NOISE = 0.03


def complexity(plan: Plan, nbytes: int) -> tuple[Any, ...]:
    """Plans in the order in which they are preferred when they are equally fast; `nbytes` is the program's size."""
    return (
        not is_baseline(plan),
        plan.schedule != BASELINE_SCHEDULE,
        plan.partitioner != NATURAL,
        plan.threads,
        nbytes,
        plan.label(),
    )


def finalists(
    ledger: Ledger, count: int, *, noise: float, given: Iterable[Plan], nbytes: Callable[[Plan], int]
) -> list[Plan]:
    """Plans for the run-off: two baselines, the two best plans, and the simplest of those that are as good.

    Parameters
    ----------
    ledger : Ledger
        With a baseline.
    count : int
        Plans at most, beside the baselines and those given.
    noise : float
        Differences below this fraction count as none.
    given : iterable of Plan
        Take part where their trials are complete.
    nbytes : callable
        The size of a plan's program.
    """
    done = ledger.completed()
    fastest = done[0].seconds or 0.0
    level = (1 + max(noise, min(_MOST_NOISE, 2 * (done[0].spread or 0.0)))) * fastest
    equal = [trial.plan for trial in done if (trial.seconds or 0.0) <= level]
    near = [trial.plan for trial in done if (trial.seconds or 0.0) <= _CHANCE * fastest]
    simple = sorted(equal, key=lambda plan: complexity(plan, nbytes(plan)))
    close = list(dict.fromkeys([*near[:2], *simple, *near]))[:count]
    family = [trial for trial in done if is_baseline(trial.plan)]
    bar = _CHANCE * (family[0].seconds or 0.0)
    baselines = [trial.plan for trial in family if (trial.seconds or 0.0) <= bar][:2]
    asked = [plan for plan in given if plan in ledger and ledger[plan].state == COMPLETE]
    return list(dict.fromkeys([*baselines, *close, *asked]))


def choose(
    finals: Iterable[Finalist],
    *,
    noise: float,
    nbytes: Callable[[Plan], int],
    is_faster: Callable[[Plan, Plan], bool] | None = None,
) -> tuple[Finalist, Finalist]:
    """The best plan and the baseline.

    Parameters
    ----------
    finals : iterable of Finalist
        Measured in one run-off, a baseline at least among them.
    noise : float
        Differences below this fraction count as none.
    nbytes : callable
        The size of a plan's program.
    is_faster : callable, optional
        Whether one plan is faster than another beyond doubt; by default, whether it has fewer seconds.

    Returns
    -------
    best, baseline : Finalist
        The same object where nothing beats the baseline; else the best has fewer seconds.
    """
    measured = list(finals)
    fastest = min(measured, key=_by_seconds)

    def is_equal(one: Finalist) -> bool:
        allowed = max(noise, min(_MOST_NOISE, one.spread + fastest.spread))
        return one.seconds <= (1 + allowed) * fastest.seconds

    best = min((one for one in measured if is_equal(one)), key=lambda one: complexity(one.plan, nbytes(one.plan)))
    if is_baseline(best.plan):
        return best, best
    baseline = min((one for one in measured if is_baseline(one.plan)), key=_by_seconds)
    beyond_doubt = is_faster is None or is_faster(best.plan, baseline.plan)
    return (best, baseline) if best.seconds < baseline.seconds and beyond_doubt else (baseline, baseline)


def _by_seconds(one: Finalist) -> tuple[float, str]:
    return one.seconds, one.plan.label()
