"""`PlanRecord`, what is stored of a winning plan: its figures and where they come from.

A record is frozen, checked when made, and equal to itself after a round trip through JSON or the database: floats are
kept to the last bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

from akx.core.errors import PlanError, brief
from akx.core.plan import Plan, check_fields
from akx.plandb.key import PlanKey, aged_of, key_of_plan, revisions_of

__all__ = [
    "FEATURES",
    "LONGEST_NAME",
    "RECORD_SCHEMA",
    "PlanRecord",
    "aged",
    "break_even_calls",
    "check_plan",
    "check_time",
    "checked_object",
    "checked_seconds",
    "checked_text",
    "mismatch",
    "newest",
    "now",
    "stale_fields",
]

#: Version of the JSON form of a record. Raised whenever a field changes its meaning.
RECORD_SCHEMA = 2

#: The most characters of a name, as of a file's; what is longer is cut.
LONGEST_NAME = 255
#: The most lists and objects one in another.
_DEEPEST = 32
#: The most states that trials are counted by.
_MOST_STATES = 100
#: What a search says in the provenance where it did not come to a sound end, and the words for it.
_PROVISIONAL = {"interrupted": "interrupted", "disturbed": "disturbed", "starved": "too little time"}

#: Where the provenance has the features of the matrix.
FEATURES = "features"


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
        check_plan(self.plan, self.key)
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

    @property
    def features(self) -> dict[str, float] | None:
        """Those of the matrix, by which similar ones are found; None where they are none of finite numbers."""
        given = self.provenance.get(FEATURES)
        if not isinstance(given, Mapping) or not given:
            return None
        plain = all(type(value) in (int, float) for value in given.values())
        if not plain or not all(abs(value) < 2**63 and math.isfinite(value) for value in given.values()):
            return None
        return {name: float(value) for name, value in given.items()}

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
        """
        if not isinstance(data, Mapping):
            raise PlanError("record is not a JSON object", found=type(data).__name__)
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


def stale_fields(record: PlanRecord) -> list[str]:
    """Fields of the record's key that differ from what its schedule and variant declare now; empty where none does."""
    return [] if record.key.revisions == revisions_of(record.plan) else ["revisions"]


class _Made(Protocol):
    """A plan, or a trial of one, with what it was made with."""

    @property
    def plan(self) -> Plan: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...


def aged(record: _Made) -> list[str]:
    """Why a plan, or a trial, is aged: made with other kernel sources or versions than those of today, in words."""
    return aged_of(record.plan.backend, record.plan.schedule, record.provenance)


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


def check_plan(plan: Plan, key: PlanKey | None = None) -> None:
    """Raise PlanError where a plan cannot be kept, under this key."""
    if not isinstance(plan, Plan):
        raise PlanError("record has no plan", found=type(plan).__name__)
    if key is not None and plan.k != key.k:
        raise PlanError("plan is for another k than its key", expected=f"k = {key.k}", found=f"k = {plan.k}")
    for name, option in plan.options.items():
        if isinstance(option, float) and not math.isfinite(option):
            raise PlanError(f"plan option {brief(name)} is not finite", found=brief(option))


# --------------------------------------------- checks of what a record holds, from wherever it comes


def checked_seconds(what: str, value: Any, *, zero: bool) -> float:
    """A time in seconds, finite and positive, or `zero` where that will do. Raises PlanError."""
    least = "a finite number >= 0" if zero else "a finite number > 0"
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise PlanError(f"{what} is not a time", expected=least, found=brief(value))
    return number


def checked_text(what: str, value: Any, most: int) -> str:
    """A text of `most` characters at most, which UTF-8 can hold: what is longer is cut. Raises PlanError."""
    if not isinstance(value, str):
        raise PlanError(f"{what} is not a string", found=brief(value))
    text = value[: most + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 3]}..."


def check_time(what: str, value: Any) -> None:
    """Raise PlanError where a moment is none of ISO 8601 with an offset from UTC."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise PlanError(f"{what} is not a time", expected="ISO 8601 with an offset from UTC", found=brief(value))


def checked_object(what: str, value: Any) -> dict[str, Any]:
    """A copy of a JSON object. Raises PlanError."""
    try:
        if not isinstance(value, Mapping):
            raise TypeError(type(value).__name__)
        copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
        if set(copy) != set(value):
            raise TypeError("a name that is not a string")
        if _depth(copy) > _DEEPEST:
            raise TypeError(f"more than {_DEEPEST} lists or objects one in another")
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError(f"record field '{what}' is not a JSON object", found=str(error)) from error
    return copy


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
