"""`TrialRecord`, what is stored of a trial: every sample of its time and how it ended, for later searches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from akx.core.errors import PlanError, brief
from akx.core.plan import Plan
from akx.plandb.key import made_with, revisions_of
from akx.plandb.record import check_plan, check_time, checked_object, checked_seconds, checked_text, now

__all__ = ["TRIAL_STATES", "TrialRecord"]

#: How a trial may end.
TRIAL_STATES = ("complete", "pruned", "failed")
#: The most characters of a reason; what is longer is cut.
_LONGEST_REASON = 2000


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a search, kept so that a later search goes on from it.

    Attributes
    ----------
    plan : Plan
        What was tried.
    seconds : tuple of float
        Every sample in seconds; empty where nothing was measured.
    state : str
        ``"complete"``, ``"pruned"`` or ``"failed"``.
    reason : str
        Why it was pruned or failed; "" otherwise.
    created : str
        When its search began, which tells the trials of one from those of another: ISO 8601 with the offset from UTC;
        now where not given.
    clock_hz : float or None
        Hertz of the processor when the timing had ended; None where nobody told.
    provenance : mapping
        Revisions, kernel sources and versions of what was tried; the database adds those of today where there are none.
        Two trials that differ in it alone are equal.
    """

    plan: Plan
    seconds: tuple[float, ...] = ()
    state: str = "complete"
    reason: str = ""
    created: str = field(default_factory=now)
    clock_hz: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_plan(self.plan)
        if not isinstance(self.seconds, (list, tuple)):
            raise PlanError("trial field 'seconds' is not a sequence", found=type(self.seconds).__name__)
        samples = tuple(checked_seconds("trial field 'seconds'", value, zero=True) for value in self.seconds)
        object.__setattr__(self, "seconds", samples)
        if self.state not in TRIAL_STATES:
            raise PlanError("trial has an unknown state", expected=f"one of {TRIAL_STATES}", found=brief(self.state))
        object.__setattr__(self, "reason", checked_text("trial field 'reason'", self.reason, _LONGEST_REASON))
        check_time("trial field 'created'", self.created)
        if self.clock_hz is not None:
            object.__setattr__(self, "clock_hz", checked_seconds("trial field 'clock_hz'", self.clock_hz, zero=False))
        object.__setattr__(self, "provenance", MappingProxyType(checked_object("provenance", self.provenance)))

    def __reduce__(self) -> tuple[object, ...]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)} | {"provenance": dict(self.provenance)}
        return (TrialRecord, tuple(plain.values()))

    @property
    def revisions(self) -> str:
        """Of the plan, as they were when it was tried."""
        return str(self.provenance.get("revisions") or revisions_of(self.plan))

    @property
    def is_current(self) -> bool:
        """Whether the revisions are those of today."""
        return self.revisions == revisions_of(self.plan)

    def stamped(self) -> TrialRecord:
        """The trial with what it was made with, now where it does not say."""
        if self.provenance:
            return self
        return replace(self, provenance={"revisions": revisions_of(self.plan), **made_with(self.plan)})

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, ``seconds`` a list of every sample."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        provenance = json.loads(json.dumps(dict(self.provenance)))
        return {**plain, "plan": self.plan.to_json(), "seconds": list(self.seconds), "provenance": provenance}
