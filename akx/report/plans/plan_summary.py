"""What a database has to say of its plans: read from records and trials, with nothing taken for granted.

A record that came from elsewhere may have any provenance, or none. What is missing is left out, never guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from akx.backends import registry
from akx.core.errors import AkxError
from akx.core.plan import Plan
from akx.plandb import aged, stale_fields
from akx.tuner.history.result import FEW_CALLS, Untuned

if TYPE_CHECKING:
    from akx.plandb import PlanDatabase, PlanRecord, SolverTiming, TrialRecord

__all__ = [
    "Finalist",
    "Group",
    "PlanSummary",
    "Roofline",
    "group_summaries",
    "mapping",
    "read_summaries",
]

#: Trials of one search have one time, or times within microseconds; another one so much later is another search's.
_PAUSE = 1.0


@dataclass(frozen=True)
class Roofline:
    """The modelled bound of a plan's time, as its record tells it.

    Traffic of slow memory (`bytes`) and work (`flops`) of one call, redundant work included; the least time by the
    model, what sets it (``"memory"``, ``"cache"``, ...), and the time measured, in seconds.
    """

    bytes: float
    flops: float
    bound_seconds: float
    limit: str
    seconds: float

    @property
    def share(self) -> float:
        """Bound over measured seconds."""
        return self.bound_seconds / self.seconds

    @property
    def intensity(self) -> float:
        """Flops per byte of slow memory."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """Flop/s measured."""
        return self.flops / self.seconds

    @property
    def bound_rate(self) -> float:
        """Flop/s at the bound."""
        return self.flops / self.bound_seconds

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second of the slow memory, where it is what sets the bound: its ceiling. Else a record has none."""
        return self.bytes / self.bound_seconds if self.limit == "memory" else None

    @property
    def is_beyond(self) -> bool:
        """Whether the plan was faster than its bound, which then is none: a figure behind it was too low."""
        return self.bound_seconds > self.seconds


@dataclass(frozen=True)
class Finalist:
    """One plan of the run-off: label, median seconds, relative half-width of its interval, rounds."""

    label: str
    seconds: float
    spread: float | None
    rounds: int | None


@dataclass(frozen=True)
class PlanSummary:
    """One plan of a layer with the trials behind it that the database has, in the order in which they were made, and
    the timings of solvers whose s was found with it.
    """

    layer: str
    record: PlanRecord
    trials: tuple[TrialRecord, ...] = ()
    timings: tuple[SolverTiming, ...] = ()

    @cached_property
    def state(self) -> str:
        """``"current"``, or what made it aged or stale."""
        if self.record.plan.backend not in registry.backends():
            return f"cannot be used: unknown backend {self.record.plan.backend!r}"
        if changed := stale_fields(self.record):
            return f"stale, never used again: {', '.join(changed)} changed"
        why = aged(self.record)
        state = f"aged, raced before it is used: {'; '.join(why)}" if why else "current"
        return state + (f", provisional ({self.record.provisional})" if self.record.provisional else "")

    @property
    def is_current(self) -> bool:
        """Whether a lookup would find it."""
        return self.state.startswith(("current", "aged"))

    @property
    def is_baseline(self) -> bool:
        """Whether nothing beat the baseline, so that it is the plan."""
        return self.record.speedup == 1

    @property
    def is_interrupted(self) -> bool:
        """Whether the search was, so that there was no run-off."""
        return bool(self.record.provenance.get("interrupted"))

    @property
    def is_disturbed(self) -> bool:
        """Whether the run-off was, so that trials have decided: its finalists are trials too."""
        return bool(self.record.provenance.get("disturbed"))

    @property
    def is_by_trials(self) -> bool:
        """Whether the figures of the finalists are those of their trials."""
        return self.record.is_crude

    @property
    def few_calls(self) -> int | None:
        """The calls that were too few to search on; None where the search did not end so."""
        calls = _number(self.record.provenance.get("calls"))
        return int(calls) if self.record.provenance.get("stopped") == FEW_CALLS and calls is not None else None

    @property
    def untuned(self) -> Untuned | None:
        """Of the record; None where it has none."""
        return Untuned.of_record(self.record)

    @property
    def spreads(self) -> tuple[float | None, float | None]:
        """Relative half-widths of the intervals of plan and baseline."""
        found = self.record.provenance.get("spreads")
        if not isinstance(found, list) or len(found) != 2:
            return None, None
        return _number(found[0]), _number(found[1])

    @property
    def roofline(self) -> Roofline | None:
        """Of the record; None where it has none, or not all of it."""
        given = mapping(self.record.provenance.get("roofline"))
        figures = [_number(given.get(name)) for name in ("bytes", "flops", "bound_seconds")]
        data, flops, bound = (value if value is not None and value > 0 else None for value in figures)
        if data is None or flops is None or bound is None:
            return None
        return Roofline(data, flops, bound, str(given.get("limit") or "a model"), self.record.seconds)

    @property
    def redundancy(self) -> float | None:
        """Flops done over flops needed, by the model."""
        return _number(mapping(self.record.provenance.get("roofline")).get("redundancy"))

    @property
    def finalists(self) -> tuple[Finalist, ...]:
        """The plans of the run-off, or the best trials where there was none, fastest first.

        Those without a label or a time are left out.
        """
        found = self.record.provenance.get("finalists")
        plans = []
        for one in found if isinstance(found, list) else ():
            given = mapping(one)
            label, seconds, rounds = given.get("label"), _number(given.get("seconds")), _number(given.get("rounds"))
            if isinstance(label, str) and seconds is not None and seconds > 0:
                spread = _number(given.get("spread"))
                plans.append(Finalist(label, seconds, spread, None if rounds is None else int(rounds)))
        return tuple(sorted(plans, key=lambda plan: plan.seconds))

    @property
    def reasons(self) -> list[tuple[str, str, int]]:
        """State, reason and number of the trials that were pruned or failed, the most frequent first."""
        found = Counter((trial.state, trial.reason or "-") for trial in self.trials if trial.state != "complete")
        return [(state, reason, times) for (state, reason), times in sorted(found.items(), key=lambda i: (-i[1], i[0]))]

    @property
    def untried(self) -> dict[str, str]:
        """Schedules whose default is infeasible, and why, of which there is no trial."""
        given, tried = mapping(self.record.provenance.get("untried")), {trial.plan.schedule for trial in self.trials}
        return {name: str(reason) for name, reason in given.items() if name not in tried}

    @property
    def timed(self) -> list[tuple[int, TrialRecord, float]]:
        """Complete trials that were timed: number from 1, trial, median of its samples."""
        return [
            (number, trial, median(trial.seconds))
            for number, trial in enumerate(self.trials, 1)
            if trial.state == "complete" and trial.seconds and median(trial.seconds) > 0
        ]

    @property
    def searches(self) -> list[int]:
        """Numbers of the trials, from 1, that begin a search."""
        times = [datetime.fromisoformat(trial.created) for trial in self.trials]
        pauses = [math.inf, *(abs(after - before).total_seconds() for before, after in pairwise(times))]
        first: dict[datetime, int] = {}  # two searches at once take turns
        for number, moment in enumerate(times, 1):
            first.setdefault(moment, number)
        return [number for number in first.values() if pauses[number - 1] > _PAUSE]

    @property
    def _speeds(self) -> dict[str, float]:
        """By search, as of when it began: the baseline's seconds in the record over those in that search."""
        try:
            baseline = Plan.from_json(mapping(self.record.provenance.get("baseline_plan")))
        except AkxError:
            return {}
        then = {trial.created: seconds for _, trial, seconds in self.timed if trial.plan == baseline}
        return {created: self.record.baseline_seconds / seconds for created, seconds in then.items()}

    @property
    def is_scaled(self) -> bool:
        """Whether :attr:`scaled` differs from :attr:`timed`, as far as the baseline is known."""
        return any(speed != 1 for speed in self._speeds.values())

    @property
    def scaled(self) -> list[tuple[int, TrialRecord, float]]:
        """:attr:`timed`, with medians that compare from search to search.

        Each is times what the baseline took in the run-off over what it took in that search: the machine may have been
        slower, or busier.
        """
        speeds = self._speeds
        return [(number, trial, seconds * speeds.get(trial.created, 1.0)) for number, trial, seconds in self.timed]

    @property
    def by_schedule(self) -> dict[str, tuple[float, str]]:
        """The best of each schedule, fastest first: its seconds and its label.

        The best is that of the trials' medians (:attr:`scaled`). Its seconds are those of the run-off where it came
        that far. Of the schedule of the plan itself it is the plan, also where there are no trials.
        """
        final = {one.label: one.seconds for one in self.finalists}
        best: dict[str, tuple[float, Plan]] = {}
        for _, trial, seconds in self.scaled:
            name = trial.plan.schedule
            if name not in best or seconds < best[name][0]:
                best[name] = seconds, trial.plan
        found = {name: (final.get(plan.label(), seconds), plan.label()) for name, (seconds, plan) in best.items()}
        found[self.record.plan.schedule] = self.record.seconds, self.record.plan.label()
        return dict(sorted(found.items(), key=lambda item: item[1][0]))


@dataclass(frozen=True)
class Group:
    """Plans that differ in k alone, or in whether they are stale: one matrix, basis, value type, device."""

    summaries: tuple[PlanSummary, ...]

    @property
    def name(self) -> str:
        """Of the matrix."""
        names = [summary.record.matrix_name for summary in self.summaries if summary.record.matrix_name]
        return names[0] if names else f"unnamed matrix {self.summaries[0].record.key.fingerprint[:12]}"

    @property
    def what(self) -> str:
        """What they have in common beside the matrix."""
        key = self.summaries[0].record.key
        vectors = "" if key.start_vectors == 1 else f", {key.start_vectors} start vectors"
        return f"{key.basis} basis, {key.dtype}{vectors}, on {key.device_class}"

    @property
    def size(self) -> tuple[int, int] | None:
        """Rows and entries of the matrix, where a record tells them."""
        for summary in self.summaries:
            given = mapping(summary.record.provenance.get("matrix"))
            rows, nnz = _number(given.get("rows")), _number(given.get("nnz"))
            if rows is not None and nnz is not None:
                return int(rows), int(nnz)
        return None


def read_summaries(database: PlanDatabase, entries: Iterable[tuple[str, PlanRecord]]) -> list[PlanSummary]:
    """Records, as :meth:`akx.plandb.PlanDatabase.entries` has them, with their trials and timings."""
    found = list(entries)
    behind = database.trials_behind_each([record for _, record in found])
    known = [timing for _, timing in database.timings() if timing.is_choice]
    return [
        PlanSummary(layer, record, trials, tuple(timing for timing in known if timing.is_of(record)))
        for (layer, record), trials in zip(found, behind, strict=True)
    ]


def group_summaries(summaries: Sequence[PlanSummary]) -> list[Group]:
    """Plans by matrix, basis, value type, start vectors and device; within a group by k, current ones first."""
    groups: dict[tuple[object, ...], list[PlanSummary]] = {}
    for summary in summaries:
        key = summary.record.key
        same = key.fingerprint, key.basis, key.dtype, key.index_type, key.start_vectors, key.device_class
        groups.setdefault(same, []).append(summary)
    order = [
        Group(tuple(sorted(found, key=lambda one: (one.record.key.k, not one.is_current, one.record.id))))
        for found in groups.values()
    ]
    return sorted(order, key=lambda group: (group.name, group.what))


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}
