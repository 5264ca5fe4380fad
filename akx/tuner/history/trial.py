"""A trial: one plan that was asked for, and what became of it; and how far a search has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akx.core.errors import PlanError, brief
from akx.core.plan import Plan

__all__ = [
    "AS_ANOTHER",
    "COMPLETE",
    "EARLIER",
    "FAILED",
    "PRUNED",
    "SHARED",
    "WRONG",
    "Progress",
    "Trial",
    "fault_of",
    "figure_in",
]

COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
#: How the reason of a trial begins whose result was wrong.
WRONG = "wrong result"
#: Why a plan is no trial whose values cannot be stored as it says, which depends on them.
AS_ANOTHER = "there is no room to store values so: it would run as another plan"
#: Origins of a trial that another worker on the same study made, and of one of an earlier search for the same key.
SHARED, EARLIER = "shared", "earlier"
#: Figures of a trial, in the order of its fields.
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
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {
            "number": self.number,
            "origin": self.origin,
            "state": self.state,
            "reason": self.reason,
            **{name: None if value is None or not math.isfinite(value) else value for name, value in figures.items()},
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
            figures: dict[str, Any] = {name: figure_in(data.get(name)) for name in _FIGURES}
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
        if state == COMPLETE and not (samples and figures["seconds"]):
            raise PlanError("complete trial without a time", found=f"trial {number}")
        plan = Plan.from_json(data.get("plan", {}))
        return Trial(number, plan, origin, state, reason, samples=samples, **figures)


@dataclass(frozen=True)
class Progress:
    """What a progress bar needs, passed to the callback of :func:`akx.tuner.tune` after each trial and phase.

    Attributes
    ----------
    phase : str
        ``"compile"``, ``"baseline"``, ``"search"``, ``"run-off"`` or ``"done"``.
    trials, trials_budget : int
        Trials so far, and the most that will be made; in the phase ``"compile"``, pieces of code and all that there
        are to compile.
    elapsed, seconds_budget : float
        Seconds since the search began, or since compiling did, and the most that will be spent on it.
    state, trial : str, Trial or None
        The trial just ended and its state; empty where the report is not of a trial.
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
        made = self.trials / self.trials_budget if self.trials_budget > 0 else 1.0
        spent = self.elapsed / self.seconds_budget if self.seconds_budget > 0 else 1.0
        return min(1.0, made if self.phase == "compile" else max(spent, made))


def figure_in(value: object) -> float | None:
    """A time or the like in JSON that others may have written; None stays None. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no figure")
    return float(value)
