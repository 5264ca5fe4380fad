"""What is stored: a winning plan with its figures and where they come from, and the trials of a search.

Both are frozen, checked when made, and equal to themselves after a round trip through JSON or the database: floats are
kept to the last bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from akx.core.errors import PlanError, brief
from akx.core.plan import Plan, check_fields
from akx.plandb.checks import LONGEST_NAME, check_time, checked_object, checked_seconds, checked_text
from akx.plandb.key import PlanKey, aged_by, key_of_plan, made_with, revisions_of
from akx.plandb.legacy import modern_record

__all__ = [
    "RECORD_SCHEMA",
    "TRIAL_STATES",
    "PlanRecord",
    "TrialRecord",
    "aged",
    "break_even_calls",
    "mismatch",
    "newest",
    "now",
    "stale_fields",
]

#: Version of the JSON form of a record. Raised whenever a field changes its meaning.
RECORD_SCHEMA = 2

#: The most characters of a reason; what is longer is cut.
_LONGEST_REASON = 2000
#: The most states that trials are counted by.
_MOST_STATES = 100
#: What a search says in the provenance where it did not come to a sound end, and the words for it.
_PROVISIONAL = {"interrupted": "interrupted", "disturbed": "disturbed", "starved": "too little time"}

#: How a trial may end.
TRIAL_STATES = ("complete", "pruned", "failed")


def now() -> str:
    """The time of day in UTC as ISO 8601, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def break_even_calls(spent: float, gain: float) -> int | None:
    """Calls after which `spent` seconds are paid back by a `gain` in seconds a call; None where nothing is gained."""
    return None if not gain > 0 else max(1, math.ceil(spent / gain))


@dataclass(frozen=True)
class PlanRecord:
    """The winning plan for one key, with its figures.

    Attributes
    ----------
    key : PlanKey
        What the plan is valid for; given the key of a search it becomes that of its plan.
    plan : Plan
        The plan; its k is the key's.
    seconds : float
        Median time of one call in seconds.
    baseline_name : str
        What it was compared with, e.g. ``"sweep/csr"``.
    baseline_seconds : float
        Median time of the baseline in seconds, measured in the same run.
    prepare_seconds, tuning_seconds : float
        Time to prepare the program, and time the search took.
    created : str
        When, ISO 8601 with the offset from UTC; now where not given.
    matrix_name : str
        A name to recognise the matrix by, such as that of its file; "" where it has none. This name and that of the
        baseline are cut to 255 characters, the longest that the name of a file may be.
    provenance : mapping
        Where the figures come from: machine, kernel sources, versions, options. Any JSON object.
    trials : mapping of str to int
        How many trials ended ``complete``, ``pruned`` and ``failed``.

    Raises
    ------
    PlanError
        Where a field has the wrong type or is out of range.
    """

    key: PlanKey
    plan: Plan
    seconds: float
    baseline_name: str
    baseline_seconds: float
    prepare_seconds: float = 0.0
    tuning_seconds: float = 0.0
    created: str = field(default_factory=now)
    matrix_name: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.key, PlanKey):
            raise PlanError("record has no plan key", found=type(self.key).__name__)
        _check_plan(self.plan, self.key)
        object.__setattr__(self, "key", key_of_plan(self.key, self.plan))
        for name in ("seconds", "baseline_seconds", "prepare_seconds", "tuning_seconds"):
            zero = name in ("prepare_seconds", "tuning_seconds")
            object.__setattr__(self, name, checked_seconds(f"record field '{name}'", getattr(self, name), zero=zero))
        for name in ("baseline_name", "matrix_name"):
            object.__setattr__(self, name, checked_text(f"record field '{name}'", getattr(self, name), LONGEST_NAME))
        check_time("record field 'created'", self.created)
        object.__setattr__(self, "provenance", MappingProxyType(checked_object("provenance", self.provenance)))
        counts = checked_object("trials", self.trials)
        if len(counts) > _MOST_STATES:
            raise PlanError(
                "record has too many counts of trials", expected=f"at most {_MOST_STATES}", found=f"{len(counts)}"
            )
        for state, count in counts.items():
            if len(state) > LONGEST_NAME:
                most = f"at most {LONGEST_NAME} characters"
                raise PlanError("name of a state of trials is too long", expected=most, found=str(len(state)))
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
                what = f"count of {brief(state)} trials is wrong"
                raise PlanError(what, expected="an integer >= 0 of 64 bits", found=brief(count))
        object.__setattr__(self, "trials", MappingProxyType(counts))

    def __hash__(self) -> int:
        return hash((self.key, self.created, self.seconds))

    def __reduce__(self) -> tuple[object, ...]:
        return (PlanRecord.from_json, (self.to_json(),))

    @property
    def id(self) -> str:
        """The id of the key: there is one winning plan per key."""
        return self.key.id

    @property
    def speedup(self) -> float:
        """Baseline time over plan time."""
        return self.baseline_seconds / self.seconds

    @property
    def break_even_calls(self) -> int | None:
        """Calls after which tuning and preparing are paid back; None where nothing is gained."""
        return break_even_calls(self.tuning_seconds + self.prepare_seconds, self.baseline_seconds - self.seconds)

    @property
    def is_crude(self) -> bool:
        """Whether trials have chosen the plan, without a run-off or with one that was disturbed."""
        return bool(self.provenance.get("interrupted") or self.provenance.get("disturbed"))

    @property
    def provisional(self) -> str:
        """Why the next tuning searches on, from this plan; "" where it takes the plan as it is."""
        return ", ".join(why for name, why in _PROVISIONAL.items() if self.provenance.get(name))

    def better_than(self, other: PlanRecord) -> bool:
        """Whether this record should replace `other`, of the same key and of another search.

        One that a run-off has chosen goes before one that is crude, then the larger speed-up, then the newer one. Times
        of two searches compare badly, what each plan gained in its own does better.
        """
        if self.is_crude != other.is_crude:
            return other.is_crude
        if self.speedup != other.speedup:
            return self.speedup > other.speedup
        return datetime.fromisoformat(self.created) > datetime.fromisoformat(other.created)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, with the schema version; :meth:`from_json` inverts it."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["key"], plain["plan"] = self.key.to_json(), self.plan.to_json()
        plain["provenance"] = json.loads(json.dumps(dict(self.provenance)))
        plain["trials"] = dict(self.trials)
        return {"schema": RECORD_SCHEMA, "id": self.id, **plain}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PlanRecord:
        """Make a record from :meth:`to_json`'s dict.

        Raises
        ------
        PlanError
            On another schema, on any unknown, missing or wrong field, and where the id is not that of the key.

        A record of schema 1, which was kept before there were revisions, becomes one of revision 1.
        """
        if not isinstance(data, Mapping):
            raise PlanError("record is not a JSON object", found=type(data).__name__)
        if data.get("schema") == 1:
            try:
                data = modern_record(data)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise PlanError("record of schema 1 is not valid", found=f"{type(error).__name__}: {error}") from error
        if data.get("schema") != RECORD_SCHEMA:
            raise PlanError("record is of another schema", expected=str(RECORD_SCHEMA), found=brief(data.get("schema")))
        given = {name: value for name, value in data.items() if name not in ("schema", "id")}
        names = {f.name for f in fields(PlanRecord)}
        check_fields("record", given, names)
        given["key"], given["plan"] = PlanKey.from_json(given["key"]), Plan.from_json(given["plan"])
        record = PlanRecord(**given)
        if data.get("id", record.id) != record.id:
            raise PlanError("record id is not that of its key", expected=record.id, found=brief(data["id"]))
        return record


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
        _check_plan(self.plan, None)
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


def stale_fields(record: PlanRecord) -> list[str]:
    """Fields of the record's key that differ from what its schedule and variant declare now; empty where none does."""
    return [] if record.key.revisions == revisions_of(record.plan) else ["revisions"]


def aged(record: PlanRecord | TrialRecord) -> list[str]:
    """Why a plan, or a trial, is aged: made with other kernel sources or versions than those of today, in words."""
    return aged_by(record.plan, record.provenance)


def mismatch(key: PlanKey, record: PlanRecord) -> list[str]:
    """Fields of `key` for which the record's plan is none, in the order of declaration; empty where it may be used.

    Where `key` is that of a search, revisions count that are not as the plan's schedule and variant declare them.
    """
    names = key.mismatch(record.key)
    if "revisions" in names and not key.revisions and not stale_fields(record):
        names.remove("revisions")
    return names


def newest(records: Iterable[PlanRecord]) -> PlanRecord | None:
    """The record that was made last; of equals the first."""
    return max(records, key=lambda record: datetime.fromisoformat(record.created), default=None)


def _check_plan(plan: Plan, key: PlanKey | None) -> None:
    if not isinstance(plan, Plan):
        raise PlanError("record has no plan", found=type(plan).__name__)
    if key is not None and plan.k != key.k:
        raise PlanError("plan is for another k than its key", expected=f"k = {key.k}", found=f"k = {plan.k}")
    for name, option in plan.options.items():
        if isinstance(option, float) and not math.isfinite(option):
            raise PlanError(f"plan option {brief(name)} is not finite", found=brief(option))
