"""From the outcome of a search to the result that users get: its figures, and the notes on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from akx.backends import registry
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.options import traits
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey
from akx.tuner import measure
from akx.tuner.history.result import FEW_CALLS, TIME_BUDGET, Counts, Finalist, TuneResult, Untuned
from akx.tuner.history.trial import Trial
from akx.tuner.model.predict import Model, predicted
from akx.tuner.space import NATURAL, Space

__all__ = ["Outcome", "as_result", "faster_of", "not_tried", "with_budget", "with_calls", "with_value_error"]

#: What a note says of too few calls.
_NOT_PAID = "not pay back what tuning cost"


@dataclass(frozen=True)
class Outcome:
    """What a search found; the fields mean what they mean in :class:`akx.tuner.history.result.TuneResult`."""

    best: Finalist
    baseline: Finalist
    trials: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]
    stopped: str
    interrupted: bool
    notes: tuple[str, ...]
    disturbed: bool = False
    starved: bool = False
    untried: Mapping[str, str] = field(default_factory=dict)


def as_result(
    outcome: Outcome,
    matrix: Matrix,
    key: PlanKey,
    space: Space,
    start: float,
    *,
    name: str,
    db: PlanDatabase | None,
    model: Callable[[], Model],
) -> TuneResult:
    """What is told of a search; `model` is made anew, with bandwidths measured after it, for the roofline."""
    best, baseline = outcome.best, outcome.baseline
    tried = next((trial.prepare_seconds for trial in outcome.trials if trial.plan == best.plan), None)
    prepare, roofline, untuned = tried if tried is not None else 0.0, None, None
    try:
        if not outcome.interrupted and not (outcome.stopped == FEW_CALLS and best.plan == baseline.plan):
            prepare = _cold_prepare_seconds(space, matrix, best.plan, prepare)
        known = model()
        roofline = known.roofline(best.plan, best.seconds)
        untuned = _untuned(outcome, known)
    except KeyboardInterrupt:  # the plan is found: what is said of it ends here, and it is kept
        pass
    return TuneResult(
        matrix_name=name,
        **TuneResult.problem(matrix, key),
        backend=space.backend,
        threads=space.threads,
        plan=best.plan,
        seconds=best.seconds,
        spread=best.spread,
        baseline_name=_name_of(baseline.plan),
        baseline_plan=baseline.plan,
        baseline_seconds=baseline.seconds,
        baseline_spread=baseline.spread,
        tuning_seconds=measure.now() - start,
        prepare_seconds=prepare,
        counts=Counts.of(tuple(trial for trial in outcome.trials if trial.is_own)),
        trials=outcome.trials,
        finalists=outcome.finalists,
        db=None if db is None else str(db.path),
        interrupted=outcome.interrupted,
        disturbed=outcome.disturbed,
        starved=outcome.starved,
        stopped=outcome.stopped,
        roofline=roofline,
        notes=outcome.notes,
        untried=outcome.untried,
        untuned=None if untuned is None else Untuned(*untuned, best.seconds, spent_seconds=0.0),
    )


def _name_of(baseline: Plan) -> str:
    name = f"{baseline.schedule}/{baseline.variant}"
    if not baseline.traits.streams:
        return f"{name} threads={baseline.threads}"
    return f"{name}{'' if baseline.partitioner == NATURAL else f' {baseline.partitioner}'} k_per_pass=1"


def _untuned(outcome: Outcome, model: Model) -> tuple[Plan, float] | None:
    """The plan of an untuned call and its seconds in the run-off, or those of its trial by the baseline's in both."""
    own = {trial.plan: trial for trial in outcome.trials if trial.is_own}
    plan = next((trial.plan for trial in own.values() if trial.origin == "predicted"), None)
    if plan is None:
        cut = outcome.interrupted or outcome.stopped in (FEW_CALLS, TIME_BUDGET)
        if cut and all(trial.origin == "baseline" for trial in own.values()):
            return None  # nobody has come to think of it, which takes time
        try:
            plan = model.space.inside(predicted(model))
        except AkxError:
            return None
    final = {one.plan: one.seconds for one in (*outcome.finalists, outcome.best, outcome.baseline)}
    if plan in final:
        return plan, final[plan]
    took = {trial.plan: trial.seconds for trial in own.values() if trial.seconds}  # those dropped early too
    seconds, before = took.get(plan), took.get(outcome.baseline.plan)
    return (plan, seconds * outcome.baseline.seconds / before) if seconds and before else None


def _cold_prepare_seconds(space: Space, matrix: Matrix, plan: Plan, fallback: float) -> float:
    """Seconds to prepare a plan for a matrix of which nothing is memoised; the code is compiled by now."""
    cold = Matrix(matrix.indptr, matrix.indices, matrix.data, pattern_cache={}, value_error=matrix.value_error)
    begin = measure.now()
    try:
        space.schedules[plan.schedule].prepare(cold, plan)
    except Exception:
        return fallback
    return measure.now() - begin


def faster_of(one: TuneResult, other: TuneResult, start: float) -> TuneResult:
    """The result of the two that takes less time per call, with a note on the other."""
    best, rest = (one, other) if one.seconds <= other.seconds else (other, one)
    return replace(best, tuning_seconds=measure.now() - start).noted(
        f"the best plan of the {rest.backend} backend takes {rest.seconds * 1e3:.3f} ms and is kept as well: arrays of "
        "the host are computed on the cpu, arrays of the device on the device, unless a backend is named"
    )


def with_budget(result: TuneResult, budget: int | None) -> TuneResult:
    """The result with a note on the memory budget that it is for, and on what it was compared with."""
    if budget is None:
        return result
    kind = "streamed" if traits(result.backend, result.baseline_name.partition("/")[0]).streams else "plain"
    note = (
        f"memory budget of {budget} bytes: vectors in the host's memory, the baseline is {kind} products, "
        f"{result.baseline_name}"
    )
    return replace(result, notes=(note, *result.notes))


def with_value_error(result: TuneResult, matrix: Matrix, device: Any) -> TuneResult:
    """The result with the error that its plan stores values with, and a note on it, where it does so."""
    plan = result.plan
    off = registry.stored_error(registry.get(plan.backend, plan.schedule), plan, matrix, device)
    if not off:
        return result
    note = (
        f"values are stored in half the bytes, with a relative error of at most {off:.3g} of the "
        f"{matrix.value_error:g} allowed; the baseline has them as they are"
    )
    return replace(result, stored_error=off, notes=(note, *result.notes))


def with_calls(result: TuneResult, calls: int | None) -> TuneResult:
    """The result for so many calls, with a note where they do not pay for it."""
    even = result.break_even_calls
    notes = tuple(note for note in result.notes if _NOT_PAID not in note)  # of another time that it took
    if calls is not None and even is not None and even > calls:
        few = "1 call does" if calls == 1 else f"{calls} calls do"
        notes = (*notes, f"{few} {_NOT_PAID}, {even} do")
    return replace(result, calls=calls, notes=notes)


def not_tried(untried: Mapping[str, str]) -> list[str]:
    """A note for each reason why schedules were not tried."""
    schedules: dict[str, list[str]] = {}
    for name, reason in untried.items():
        schedules.setdefault(reason, []).append(name)
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not tried: {reason}"
        for reason, names in schedules.items()
    ]
