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

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from akx.core.errors import PlanError, brief
from akx.core.plan import Plan
from akx.plandb.record import PlanRecord, break_even_calls

__all__ = [
    "AS_ANOTHER",
    "EXHAUSTED",
    "FEW_CALLS",
    "NO_IMPROVEMENT",
    "RESULT_SCHEMA",
    "TIME_BUDGET",
    "WRONG",
    "Counts",
    "Finalist",
    "Progress",
    "Roofline",
    "Trial",
    "TuneResult",
    "Untuned",
    "fault_of",
]

#: Version of the JSON form of a result. Raised whenever a field changes its meaning or goes.
RESULT_SCHEMA = 1

COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
#: What ended a search, as results and records have it, where others ask for it.
NO_IMPROVEMENT, EXHAUSTED, TIME_BUDGET, FEW_CALLS = "no improvement", "space exhausted", "time budget", "too few calls"
#: How the reason of a trial begins whose result was wrong.
WRONG = "wrong result"
#: Why a plan is no trial whose values cannot be stored as it says, which depends on them.
AS_ANOTHER = "there is no room to store values so: it would run as another plan"
#: Origins of a trial that another worker on the same study made, and of one of an earlier search for the same key.
SHARED, EARLIER = "shared", "earlier"


def fault_of(error: float) -> str:
    """Why a result with this error over its bound, NaN where entries are missing, is wrong; "" where it is right."""
    if error <= 1.0:
        return ""
    is_missing = math.isnan(error)
    return f"{WRONG}: " + ("entries missing or not finite" if is_missing else f"error is {error:.3g} times its bound")


@dataclass(frozen=True)
class Trial:
    """One plan that was asked for, and what became of it.

    Attributes
    ----------
    number : int
        Position in the run, from 0.
    plan : Plan
        The plan tried.
    origin : str
        Who asked for it: ``"baseline"``, ``"like"`` (the plan of a like device), ``"predicted"``, ``"pattern"`` (a
        plan for the same pattern under another key), ``"similar"`` (that for a similar matrix), ``"default"``,
        ``"start"``, ``"model"``, ``"estimate"``, ``"neighbour"``, ``"rival"``, ``"sampler"``, ``"spare"``, ``"all"`` or
        ``"given"``; ``"shared"`` where another worker made it, ``"earlier"`` where an earlier search did.
    state : str
        ``"complete"``, ``"pruned"`` (infeasible, or dropped early as too slow) or ``"failed"`` (an exception, or a
        wrong result).
    reason : str
        Why it was pruned or failed; empty where complete.
    seconds, spread : float or None
        Seconds of one call, corrected for drift against the baseline, and the relative half-width of the confidence
        interval. A plan dropped early has a rough figure here.
    prepare_seconds : float or None
        Seconds spent preparing the program in this run (a compilation on first use included).
    error : float or None
        Largest componentwise error over its bound; at most 1 in a complete trial.
    samples : tuple of float
        Seconds per call of every sample, corrected for drift.
    elapsed, timing_seconds : float or None
        Seconds that the trial took in all, and those of them in which it was timed; None where nobody looked.
    clock_hz : float or None
        Hertz of the processor when the timing had ended; None where nobody told.
    prepare_again_seconds : float or None
        Those of `prepare_seconds` that preparing it would take again: without waiting for the process in which it ran
        first, and without what Numba compiled. None where nobody looked.
    """

    number: int
    plan: Plan
    origin: str
    state: str
    reason: str = ""
    seconds: float | None = None
    spread: float | None = None
    prepare_seconds: float | None = None
    error: float | None = None
    samples: tuple[float, ...] = ()
    elapsed: float | None = None
    timing_seconds: float | None = None
    clock_hz: float | None = None
    prepare_again_seconds: float | None = None

    @property
    def is_own(self) -> bool:
        """Whether it was made in this search."""
        return self.origin not in (SHARED, EARLIER)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, without the samples; numbers that are not finite become null."""
        return {
            "number": self.number,
            "origin": self.origin,
            "state": self.state,
            "reason": self.reason,
            "seconds": _finite(self.seconds),
            "spread": _finite(self.spread),
            "prepare_seconds": _finite(self.prepare_seconds),
            "error": _finite(self.error),
            "elapsed": _finite(self.elapsed),
            "timing_seconds": _finite(self.timing_seconds),
            "clock_hz": _finite(self.clock_hz),
            "prepare_again_seconds": _finite(self.prepare_again_seconds),
            "plan": self.plan.to_json(),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        """A trial from :meth:`to_json`'s dict with a list ``"samples"``; other names in it are passed over.

        Raises
        ------
        PlanError
            Where a field is missing or wrong.
        """
        try:
            figures = [_figure(data.get(name)) for name in _FIGURES]
            origin, state, reason = data["origin"], data["state"], data["reason"]
            number, samples = data["number"], tuple(float(sample) for sample in data["samples"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError("trial has a wrong field", found=f"{type(error).__name__}: {error}") from error
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise PlanError("trial has no number", expected="an integer >= 0", found=brief(number))
        if state not in (COMPLETE, PRUNED, FAILED) or not isinstance(origin, str) or not isinstance(reason, str):
            raise PlanError("trial has no origin, state or reason", found=brief((origin, state, reason)))
        if not all(math.isfinite(sample) and sample >= 0 for sample in samples):
            raise PlanError("trial has samples that are no times", found=brief(samples[:3]))
        if state == COMPLETE and not (samples and figures[0]):
            raise PlanError("complete trial without a time", found=f"trial {number}")
        plan = Plan.from_json(data.get("plan", {}))
        seconds, spread, prepare, error_ratio, *times = figures
        return Trial(number, plan, origin, state, reason, seconds, spread, prepare, error_ratio, samples, *times)


_FIGURES = (
    "seconds",
    "spread",
    "prepare_seconds",
    "error",
    "elapsed",
    "timing_seconds",
    "clock_hz",
    "prepare_again_seconds",
)


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
        return {"complete": self.complete, "pruned": self.pruned, "failed": self.failed}


@dataclass(frozen=True)
class Finalist:
    """A plan's figures in the interleaved run-off: median seconds per call and relative half-width of its interval."""

    plan: Plan
    seconds: float
    spread: float
    rounds: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return {
            "seconds": self.seconds,
            "spread": self.spread,
            "rounds": self.rounds,
            "schedule": self.plan.schedule,
            "variant": self.plan.variant,
            "label": self.plan.label(),
            "plan": self.plan.to_json(),
        }


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
        return {
            "bound_seconds": self.bound_seconds,
            "share": self.share,
            "limit": self.limit,
            "bytes": self.bytes,
            "flops": self.flops,
            "redundancy": self.redundancy,
        }


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
        given = record.provenance.get("untuned")
        if not isinstance(given, Mapping):
            return None
        seconds = given.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            return None
        try:
            plan = Plan.from_json(given.get("plan", {}))
            return Untuned(plan, float(seconds), record.seconds, record.tuning_seconds + record.prepare_seconds)
        except (PlanError, OverflowError):
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
        return {
            "label": self.plan.label(),
            "seconds": self.seconds,
            "speedup": self.speedup,
            "break_even_calls": self.break_even_calls,
        }


@dataclass(frozen=True)
class Progress:
    """What a progress bar needs, passed to the callback of :func:`akx.tuner.tune` after each trial and phase.

    Attributes
    ----------
    phase : str
        ``"compile"``, ``"baseline"``, ``"search"``, ``"run-off"`` or ``"done"``.
    trials : int
        Trials so far, of at most `trials_budget`; in the phase ``"compile"``, pieces of code of all that are compiled.
    trials_budget : int
        Most trials that will be made.
    elapsed, seconds_budget : float
        Seconds since the search began, or since compiling did, and the most that will be spent on it.
    state : str
        State of the trial just ended, empty where the report is not of a trial.
    trial : Trial or None
        The trial just ended.
    best_plan : Plan or None
        Best plan so far.
    best_seconds, baseline_seconds : float or None
        Seconds per call of the best plan so far and of the baseline.
    roofline_share : float or None
        Share of the roofline that the best plan so far reaches.
    """

    phase: str
    trials: int
    trials_budget: int
    elapsed: float
    seconds_budget: float
    state: str = ""
    trial: Trial | None = None
    best_plan: Plan | None = None
    best_seconds: float | None = None
    baseline_seconds: float | None = None
    roofline_share: float | None = None

    @property
    def words(self) -> str:
        """How far it is, in a line."""
        if self.phase == "compile":
            return f"tuning: compiling akx's own code, {self.trials} of {self.trials_budget} pieces"
        words = f"tuning: {self.phase}, {self.trials} trials"
        if self.best_seconds is None:
            return words
        return f"{words}, best {self.best_seconds * 1e3:.3g} ms, {self.speedup:.2f}x"

    @property
    def speedup(self) -> float:
        """Baseline over best so far, at least 1."""
        if not self.best_seconds or not self.baseline_seconds:
            return 1.0
        return max(1.0, self.baseline_seconds / self.best_seconds)

    @property
    def fraction(self) -> float:
        """Share of the budget used, the tighter of trials and seconds, in [0, 1]."""
        if self.phase == "done":
            return 1.0
        if self.phase == "compile":
            return self.trials / max(self.trials_budget, 1)
        spent = self.elapsed / self.seconds_budget if self.seconds_budget > 0 else 1.0
        made = self.trials / self.trials_budget if self.trials_budget > 0 else 1.0
        return min(1.0, max(spent, made))


@dataclass(frozen=True)
class TuneResult:
    """The outcome of :func:`akx.tuner.tune`.

    Attributes
    ----------
    matrix_name : str
        Name given by the caller, may be empty.
    rows, nnz : int
        Size of the matrix.
    dtype, index_type, fingerprint : str
        Value type, index type, digest of the pattern.
    k, start_vectors : int
        Powers computed and start vectors per call.
    basis, backend, device : str
        Basis kind, backend of the plan, device class that the plan is keyed by.
    threads : int
        Most threads that a plan could use.
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
            if trial.state != COMPLETE or trial.seconds is None:
                continue
            held = best.get(trial.plan.schedule)
            if held is None or held.seconds is None or trial.seconds < held.seconds:
                best[trial.plan.schedule] = trial
        return tuple(sorted(best.values(), key=lambda trial: (trial.seconds or 0.0, trial.plan.schedule)))

    @property
    def reasons(self) -> dict[str, dict[str, int]]:
        """How often each reason for pruning and failing was given in this search, the most frequent first."""
        tables = {}
        for state in (PRUNED, FAILED):
            found = Counter(trial.reason for trial in self.trials if trial.state == state and trial.is_own)
            tables[state] = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
        return tables

    def to_json(self, *, history: bool = False) -> dict[str, Any]:
        """One object of JSON types: the contract of ``akx tune --json``.

        Parameters
        ----------
        history : bool
            Add every trial under ``"history"``.
        """
        data: dict[str, Any] = {
            "schema": RESULT_SCHEMA,
            "matrix": {
                "name": self.matrix_name,
                "rows": self.rows,
                "nnz": self.nnz,
                "dtype": self.dtype,
                "index_type": self.index_type,
                "fingerprint": self.fingerprint,
            },
            "k": self.k,
            "basis": self.basis,
            "start_vectors": self.start_vectors,
            "backend": self.backend,
            "device": self.device,
            "threads": self.threads,
            "baseline": {
                "name": self.baseline_name,
                "seconds": self.baseline_seconds,
                "spread": self.baseline_spread,
                "plan": None if self.baseline_plan is None else self.baseline_plan.to_json(),
            },
            "best": {
                "seconds": self.seconds,
                "spread": self.spread,
                "schedule": self.plan.schedule,
                "variant": self.plan.variant,
                "label": self.plan.label(),
                "stored_error": self.stored_error,
                "plan": self.plan.to_json(),
            },
            "speedup": self.speedup,
            "trials": self.counts.to_json(),
            "tuning_seconds": self.tuning_seconds,
            "prepare_seconds": self.prepare_seconds,
            "break_even_calls": self.break_even_calls,
            "untuned": None if self.untuned is None else self.untuned.to_json(),
            "calls": self.calls,
            "reused": self.reused,
            "layer": self.layer or None,
            "db": self.db,
            "interrupted": self.interrupted,
            "disturbed": self.disturbed,
            "starved": self.starved,
            "stopped": self.stopped,
            "roofline": None if self.roofline is None else self.roofline.to_json(),
            "schedules": [
                {
                    "schedule": trial.plan.schedule,
                    "variant": trial.plan.variant,
                    "seconds": trial.seconds,
                    "spread": trial.spread,
                    "label": trial.plan.label(),
                }
                for trial in self.schedules
            ],
            "finalists": [finalist.to_json() for finalist in self.finalists],
            "reasons": self.reasons,
            "notes": list(self.notes),
        }
        if history:
            data["history"] = [trial.to_json() for trial in self.trials]
        return data


def _figure(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no figure")
    return float(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
