"""From measurements to the plan: who is in the run-off, and who wins it.

Within the noise the simpler plan wins, so that the same plan wins from run to run and nothing complicated is used for
nothing: the baseline before all others, a sweep before other schedules, the user's order of rows before a new one, then
fewer threads and a smaller program. Of plans as simple as one another, which differ in their labels alone, one is as
good where it is within the noise that is allowed, however much the rounds differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from akx.core.plan import Plan
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import Finalist
from akx.tuner.history.trial import COMPLETE
from akx.tuner.measure import Measurement
from akx.tuner.space import NATURAL, is_baseline

__all__ = ["choose", "complexity", "finalists"]

#: Plans slower than the best by more than this factor have no chance in the run-off.
CHANCE = 1.15
#: Trials may differ by at most this fraction and still be called equal, however noisy the machine is.
_MOST_NOISE = 0.03
#: And plans in the run-off, which are measured for longer and against one another.
_MOST_DOUBT = 0.02


def complexity(plan: Plan, nbytes: int) -> tuple[Any, ...]:
    """Plans in the order in which they are preferred when they are equally fast; `nbytes` is the program's size."""
    return (
        not is_baseline(plan),
        not plan.traits.is_plain,
        plan.partitioner != NATURAL,
        plan.threads,
        nbytes,
        plan.label(),
    )


def finalists(
    ledger: Ledger, count: int, *, noise: float, given: Iterable[Plan], nbytes: Callable[[Plan], int]
) -> list[Plan]:
    """Plans for the run-off: two baselines, the two best plans, and the simplest of those that are as good.

    `count` plans at most, beside the baselines and those given, which take part where their trials are complete.
    Differences below `noise`, a fraction, count as none. The ledger has a baseline; `nbytes` is of a plan's program.
    """
    done = ledger.completed()
    fastest = done[0].seconds or 0.0
    level = (1 + max(noise, min(_MOST_NOISE, 2 * (done[0].spread or 0.0)))) * fastest
    equal = [trial.plan for trial in done if (trial.seconds or 0.0) <= level]
    near = [trial.plan for trial in done if (trial.seconds or 0.0) <= CHANCE * fastest]
    simple = sorted(equal, key=lambda plan: complexity(plan, nbytes(plan)))
    close = list(dict.fromkeys([*near[:2], *simple, *near]))[:count]
    family = [trial for trial in done if is_baseline(trial.plan)]
    bar = CHANCE * (family[0].seconds or 0.0)
    baselines = [trial.plan for trial in family if (trial.seconds or 0.0) <= bar][:2]
    asked = [plan for plan in given if plan in ledger and ledger[plan].state == COMPLETE]
    return list(dict.fromkeys([*baselines, *close, *asked]))


def choose(
    finals: Iterable[Finalist],
    *,
    noise: float,
    nbytes: Callable[[Plan], int],
    ratio: Callable[[Plan, Plan], Measurement] | None = None,
    before: Callable[[Plan], float | None] | None = None,
) -> tuple[Finalist, Finalist]:
    """The best plan and the baseline, the same where nothing beats it; else the best has fewer seconds.

    Parameters
    ----------
    finals : iterable of Finalist
        Measured in one run-off, a baseline at least among them.
    noise, nbytes
        As in :func:`finalists`.
    ratio : callable, optional
        Seconds of one plan over those of another, round by round: a drift of the machine is in both, and plans count as
        equal, up to 2 % apart, where the interval holds one. A plan beats the baseline where it lies below one. By
        default the seconds and spreads of each decide.
    before : callable, optional
        Seconds that a plan took in its trial. One that is clearly faster than the baseline there and in the median of
        the rounds beats it too, whatever became of some of the rounds: on a machine that others use a few of them say
        nothing.
    """
    measured = list(finals)
    fastest = min(measured, key=_by_seconds)

    def is_equal(one: Finalist) -> bool:
        if ratio is None:
            allowed = max(noise, min(_MOST_NOISE, one.spread + fastest.spread))
            return one.seconds <= (1 + allowed) * fastest.seconds
        found = ratio(one.plan, fastest.plan)
        return found.seconds <= 1 + (max(noise, _MOST_DOUBT) if found.low <= 1.0 else noise)

    best = _simplest([one for one in measured if is_equal(one)], noise, nbytes, ratio)
    if is_baseline(best.plan):
        return best, best
    baseline = min((one for one in measured if is_baseline(one.plan)), key=_by_seconds)
    beyond_doubt = ratio is None or _is_faster(best.plan, baseline.plan, ratio(best.plan, baseline.plan), before)
    return (best, baseline) if best.seconds < baseline.seconds and beyond_doubt else (baseline, baseline)


def _simplest(
    equal: list[Finalist],
    noise: float,
    nbytes: Callable[[Plan], int],
    ratio: Callable[[Plan, Plan], Measurement] | None,
) -> Finalist:
    """The simplest of equal plans; of those that differ in their labels alone none that is slower by `noise`."""

    def rank(one: Finalist) -> tuple[Any, ...]:
        return complexity(one.plan, nbytes(one.plan))

    least = min(rank(one)[:-1] for one in equal)
    alike = [one for one in equal if rank(one)[:-1] == least]
    fastest = min(alike, key=_by_seconds)

    def slower(one: Finalist) -> float:
        return one.seconds / fastest.seconds if ratio is None else ratio(one.plan, fastest.plan).seconds

    return min((one for one in alike if slower(one) <= 1 + noise), key=rank)


def _is_faster(plan: Plan, baseline: Plan, ratio: Measurement, before: Callable[[Plan], float | None] | None) -> bool:
    """Whether a plan is faster than the baseline: by the interval of the ratio, or by its median and the trials."""
    if ratio.high < 1.0:
        return True
    then, then_baseline = (None, None) if before is None else (before(plan), before(baseline))
    if then is None or then_baseline is None:
        return False
    return CHANCE * ratio.seconds < 1.0 and CHANCE * then < then_baseline


def _by_seconds(one: Finalist) -> tuple[float, str]:
    return one.seconds, one.plan.label()
