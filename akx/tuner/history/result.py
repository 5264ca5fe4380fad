"""What a tuning run found: its trials, its figures, and the JSON object that scripts read.

Figures and their meaning::

    speedup          = baseline seconds / best seconds, both medians of one interleaved run-off, never below 1
    break-even calls = ceil((tuning seconds + prepare seconds) / (baseline seconds - best seconds)), none without a gain
    roofline share   = bound seconds / best seconds, the bound being the plan's modelled traffic at measured bandwidths

The same two are told over an untuned call (:class:`Untuned`), which is what somebody has who does not tune.

The baseline is the fastest plan of the family "products one after another in the order the user gave"
(:func:`akx.tuner.space.is_baseline`); where nothing beats it, it is the plan and the speed-up is exactly 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from akx.core.errors import PlanError
from akx.core.plan import Plan
from akx.plandb.record import PlanRecord, break_even_calls
from akx.tuner.history.trial import COMPLETE, FAILED, PRUNED, Trial, figure_in

if TYPE_CHECKING:
    from akx.core.matrix import Matrix
    from akx.plandb import PlanKey

__all__ = [
    "EXHAUSTED",
    "FEW_CALLS",
    "NO_IMPROVEMENT",
    "RESULT_SCHEMA",
    "TIME_BUDGET",
    "Counts",
    "Finalist",
    "Roofline",
    "TuneResult",
    "Untuned",
]

#: Version of the JSON form of a result. Raised whenever a field changes its meaning or goes.
RESULT_SCHEMA = 1

#: What ended a search.
NO_IMPROVEMENT, EXHAUSTED, TIME_BUDGET, FEW_CALLS = "no improvement", "space exhausted", "time budget", "too few calls"


@dataclass(frozen=True)
class Counts:
    """Numbers of trials by state."""

    complete: int = 0
    pruned: int = 0
    failed: int = 0

    @staticmethod
    def of(trials: tuple[Trial, ...]) -> Counts:
        """Count `trials` by state."""
        states = Counter(trial.state for trial in trials)
        return Counts(states[COMPLETE], states[PRUNED], states[FAILED])

    def to_json(self) -> dict[str, int]:
        """``{"complete": ..., "pruned": ..., "failed": ...}``."""
        return asdict(self)


@dataclass(frozen=True)
class Finalist:
    """A plan's figures in the interleaved run-off: median seconds per call and relative half-width of its interval."""

    plan: Plan
    seconds: float
    spread: float
    rounds: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return {**_fields(self, "seconds", "spread", "rounds"), **_named(self.plan), "plan": self.plan.to_json()}


@dataclass(frozen=True)
class Roofline:
    """The modelled lower bound of the best plan's time, and what limits it.

    Attributes
    ----------
    bound_seconds : float
        Longest of the times of slow-memory traffic, cache traffic and arithmetic at the measured figures.
    share : float
        bound_seconds / seconds measured: 1 is as fast as the model allows.
    limit : str
        ``"memory"``, ``"cache"``, ``"arithmetic"`` or ``"synchronisation"``.
    bytes, flops, redundancy : float
        The plan's modelled traffic and work for one call with all start vectors.
    """

    bound_seconds: float
    share: float
    limit: str
    bytes: float
    flops: float
    redundancy: float

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Untuned:
    """What a call takes that nobody tuned, and what the best plan gains over it.

    Attributes
    ----------
    plan : Plan
        The predicted plan.
    seconds : float
        Median seconds of one call: those of the run-off, or of its trial times what the baseline took in the run-off
        over what it took in its own trial.
    best_seconds, spent_seconds : float
        Of the best plan, and of tuning and preparing it.
    """

    plan: Plan
    seconds: float
    best_seconds: float
    spent_seconds: float

    @staticmethod
    def of_record(record: PlanRecord) -> Untuned | None:
        """What the record of a plan says; None where it says nothing that can be read."""
        given: Any = record.provenance.get("untuned")
        try:
            seconds = figure_in(given["seconds"])
            if not seconds:
                return None
            spent = record.tuning_seconds + record.prepare_seconds
            return Untuned(Plan.from_json(given.get("plan", {})), seconds, record.seconds, spent)
        except (
            PlanError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
        ):
            return None

    @property
    def gain(self) -> float:
        """Seconds that a call saves, at least 0."""
        return max(0.0, self.seconds - self.best_seconds)

    @property
    def speedup(self) -> float:
        """Untuned seconds over best seconds, at least 1."""
        return max(1.0, self.seconds / self.best_seconds) if self.best_seconds > 0 else 1.0

    @property
    def break_even_calls(self) -> int | None:
        """Calls after which tuning and preparing have paid, or None where nothing was gained."""
        return break_even_calls(self.spent_seconds, self.gain)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, without the plan."""
        return {"label": self.plan.label(), **_fields(self, "seconds", "speedup", "break_even_calls")}


@dataclass(frozen=True)
class TuneResult:
    """The outcome of :func:`akx.tuner.tune`.

    Attributes
    ----------
    matrix_name, rows, nnz
        Name given by the caller, may be empty; size of the matrix.
    dtype, index_type, fingerprint : str
        Value type, index type, digest of the pattern.
    k, start_vectors, threads : int
        Powers computed, start vectors per call, and most threads that a plan could use.
    basis, backend, device : str
        Basis kind, backend of the plan, device class that the plan is keyed by.
    plan, seconds, spread
        The best plan, its median seconds per call and the relative half-width of the interval of the median.
    baseline_name, baseline_plan, baseline_seconds, baseline_spread
        The same of the baseline, from the same run-off or, where that was disturbed, of its trial; the plan is None
        where a reused record does not tell it.
    tuning_seconds : float
        Wall time of this call, everything included; of the look-up where the plan was reused.
    prepare_seconds : float
        Seconds to prepare the best plan's program from the matrix with nothing memoised, code compiled before.
    counts : Counts
        Trials by state; those of the original run where the plan was reused.
    trials, finalists : tuple
        History of this run, empty where the plan was reused.
    reused : bool
        The plan was known, and nothing was measured.
    layer : str
        Where a reused plan was found: ``"project"``, ``"user"``, ``"system"`` or ``"shipped"``; "" otherwise.
    db : str or None
        The database used; None without one.
    interrupted : bool
        The run was stopped by Ctrl-C and kept the best so far.
    stopped : str
        What ended the search: ``"trial budget"``, ``"time budget"``, ``"no improvement"``, ``"space exhausted"``,
        ``"too few calls"`` (more search could not win what it would cost), ``"interrupted"`` or ``"reused"``.
    roofline : Roofline or None
        The bound, where the model could give one.
    notes : tuple of str
        Anything the user should know, e.g. that nothing beat the baseline.
    calls : int or None
        How often the user said that the kernel will run.
    stored_error : float
        The largest relative error of a value as the plan stores it, measured; 0 where values are as they are, which
        they always are for the baseline.
    untuned : Untuned or None
        What an untuned call takes; its two figures of the best plan are always those of this result. None where the
        predicted plan was not timed in this search.
    disturbed : bool
        Another process slowed the baseline in the run-off and not all other plans, twice over: the trials have decided,
        and all figures and finalists are theirs.
    starved : bool
        The search had no time to try all that it begins with, or measured next to nothing.
    untried : mapping of str to str
        Schedules without any trial whose default is infeasible, and why; the notes say so too. Empty where the plan was
        reused.
    """

    matrix_name: str
    rows: int
    nnz: int
    dtype: str
    index_type: str
    fingerprint: str
    k: int
    basis: str
    start_vectors: int
    backend: str
    device: str
    threads: int
    plan: Plan
    seconds: float
    spread: float
    baseline_name: str
    baseline_plan: Plan | None
    baseline_seconds: float
    baseline_spread: float
    tuning_seconds: float
    prepare_seconds: float
    counts: Counts = Counts()
    trials: tuple[Trial, ...] = ()
    finalists: tuple[Finalist, ...] = ()
    reused: bool = False
    layer: str = ""
    db: str | None = None
    interrupted: bool = False
    stopped: str = ""
    roofline: Roofline | None = None
    notes: tuple[str, ...] = ()
    calls: int | None = None
    stored_error: float = 0.0
    untuned: Untuned | None = None
    disturbed: bool = False
    starved: bool = False
    untried: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.untuned is not None:
            spent = self.tuning_seconds + self.prepare_seconds
            own = replace(self.untuned, best_seconds=self.seconds, spent_seconds=spent)
            object.__setattr__(self, "untuned", own)

    @staticmethod
    def problem(matrix: Matrix, key: PlanKey) -> dict[str, Any]:
        """The fields that say what was tuned for."""
        held = _fields(key, "dtype", "index_type", "fingerprint", "k", "basis", "start_vectors")
        return {"rows": matrix.n, "nnz": matrix.nnz, "device": key.device_class, **held}

    def noted(self, *notes: str) -> TuneResult:
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    @property
    def speedup(self) -> float:
        """Baseline seconds over best seconds; exactly 1 where the baseline is the plan."""
        if self.plan == self.baseline_plan or self.seconds <= 0:
            return 1.0
        return max(1.0, self.baseline_seconds / self.seconds)

    @property
    def break_even_calls(self) -> int | None:
        """Calls after which tuning and preparing have paid, or None where nothing was gained."""
        if self.plan == self.baseline_plan:
            return None
        return break_even_calls(self.tuning_seconds + self.prepare_seconds, self.baseline_seconds - self.seconds)

    @property
    def schedules(self) -> tuple[Trial, ...]:
        """The best complete trial of each schedule, fastest first."""
        best: dict[str, Trial] = {}
        for trial in self.trials:
            if trial.state == COMPLETE and trial.seconds is not None:
                best[trial.plan.schedule] = min(best.get(trial.plan.schedule, trial), trial, key=_seconds)
        return tuple(sorted(best.values(), key=lambda trial: (_seconds(trial), trial.plan.schedule)))

    @property
    def reasons(self) -> dict[str, dict[str, int]]:
        """How often each reason for pruning and failing was given in this search, the most frequent first."""
        tables = {}
        for state in (PRUNED, FAILED):
            found = Counter(trial.reason for trial in self.trials if trial.state == state and trial.is_own)
            tables[state] = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
        return tables

    def to_json(self, *, history: bool = False) -> dict[str, Any]:
        """One object of JSON types: the contract of ``akx tune --json``; with `history` also every trial."""
        untuned, roofline, baseline = self.untuned, self.roofline, self.baseline_plan
        data: dict[str, Any] = {
            "schema": RESULT_SCHEMA,
            "matrix": {
                "name": self.matrix_name,
                **_fields(self, "rows", "nnz", "dtype", "index_type", "fingerprint"),
            },
            **_fields(self, "k", "basis", "start_vectors", "backend", "device", "threads"),
            "baseline": {
                "name": self.baseline_name,
                "seconds": self.baseline_seconds,
                "spread": self.baseline_spread,
                "plan": None if baseline is None else baseline.to_json(),
            },
            "best": {
                **_fields(self, "seconds", "spread"),
                **_named(self.plan),
                "stored_error": self.stored_error,
                "plan": self.plan.to_json(),
            },
            "speedup": self.speedup,
            "trials": self.counts.to_json(),
            **_fields(self, "tuning_seconds", "prepare_seconds", "break_even_calls"),
            "untuned": None if untuned is None else untuned.to_json(),
            **_fields(self, "calls", "reused"),
            "layer": self.layer or None,
            **_fields(self, "db", "interrupted", "disturbed", "starved", "stopped"),
            "roofline": None if roofline is None else roofline.to_json(),
            "schedules": [{**_named(one.plan), **_fields(one, "seconds", "spread")} for one in self.schedules],
            "finalists": [finalist.to_json() for finalist in self.finalists],
            "reasons": self.reasons,
            "notes": list(self.notes),
        }
        return {**data, "history": [trial.to_json() for trial in self.trials]} if history else data


def _fields(held: object, *names: str) -> dict[str, Any]:
    return {name: getattr(held, name) for name in names}


def _named(plan: Plan) -> dict[str, str]:
    return {"schedule": plan.schedule, "variant": plan.variant, "label": plan.label()}


def _seconds(trial: Trial) -> float:
    return trial.seconds or 0.0
