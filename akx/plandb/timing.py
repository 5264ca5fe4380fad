"""What steps of solvers took: by it ``solve`` takes one of two, and a communication-avoiding solver its s.

A timing is of one pattern, dtype, index type and class of device, as a plan is, and of all else that a step depends on
(:class:`TimingKey`). Under the name of a classic solver it has the seconds of a step of it and of its
communication-avoiding sister, taken in one run; under that of a sister those with the s that was found best, and when
the plan of the matrix powers was made with which they were taken: the timing counts where that plan is the one in use.

A timing of another revision of the vector work of solvers is stale, and never used; one taken with other sources or
versions is aged, and used.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar

from akx.backends.revisions import SOLVERS, revision
from akx.core.errors import PlanError, brief, shown
from akx.core.plan import check_fields
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.key import Key, aged_of, check_name, check_number, made_of
from akx.plandb.layout import TIMING_COLUMNS
from akx.plandb.record import LONGEST_NAME, PlanRecord, check_time, checked_object, checked_seconds, checked_text, now

__all__ = ["SolverTiming", "TimingKey", "decode_timings", "encode_timing"]

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class TimingKey(Key):
    """What a step of a solver depends on.

    Attributes
    ----------
    fingerprint, dtype, index_type, device_class : str
        As in a :class:`akx.plandb.PlanKey`.
    solver : str
        ``"ca_cg"``, or ``"cg"`` for both of the family.
    basis : str
        Kind of the basis.
    asked_s : int
        Most steps for each pass over the matrix; 0 where none are asked for.
    restart : int
        Steps of a cycle of gmres; 0 where none are asked for.
    preconditioner : str
        What it is; "" where there is none.
    revision : int
        Of the vector work of solvers.

    Raises
    ------
    PlanError
        Where a field has the wrong type or is out of range.
    """

    fingerprint: str
    dtype: str
    index_type: str
    device_class: str
    solver: str
    basis: str
    asked_s: int = 0
    restart: int = 0
    preconditioner: str = ""
    revision: int = 1

    _WHAT: ClassVar[str] = "timing key"

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            what = f"timing key field '{name}'"
            if name in ("asked_s", "restart", "revision"):
                check_number(what, value, 1 if name == "revision" else 0, _LARGEST)
            else:
                check_name(what, value, empty=name == "preconditioner")


_KEY_FIELDS = tuple(one.name for one in fields(TimingKey))


@dataclass(frozen=True)
class SolverTiming:
    """What a step took.

    Attributes
    ----------
    key : TimingKey
    seconds : mapping of str to float or None
        Of a step, by solver; None where no basis was of use.
    best_s : int
        The s that was found best; 0 where two solvers were compared.
    plan_created : str
        When the plan was made with which the s was found; "" where two solvers were compared.
    created : str
        When, ISO 8601 with the offset from UTC; now where not given.
    matrix_name : str
        A name to recognise the matrix by; "" where it has none.
    provenance : mapping
        Kernel sources and versions; those of today where not given. Two timings that differ in it alone are equal.

    Raises
    ------
    PlanError
        Where a field has the wrong type or is out of range.
    """

    key: TimingKey
    seconds: Mapping[str, float | None]
    best_s: int = 0
    plan_created: str = ""
    created: str = field(default_factory=now)
    matrix_name: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, TimingKey):
            raise PlanError("timing has no key", found=type(self.key).__name__)
        names = (self.key.solver,) if self.is_choice else (self.key.solver, f"ca_{self.key.solver}")
        if not isinstance(self.seconds, Mapping) or set(self.seconds) != set(names):
            raise PlanError(
                "timing is of other solvers than its key", expected=" and ".join(names), found=brief(self.seconds)
            )
        steps = {
            name: None
            if self.seconds[name] is None and not self.is_choice
            else checked_seconds(f"a step of {name}", self.seconds[name], zero=False)
            for name in names
        }
        object.__setattr__(self, "seconds", MappingProxyType(steps))
        check_number("timing field 'best_s'", self.best_s, 0, _LARGEST)
        check_time("timing field 'created'", self.created)
        if self.is_choice or self.plan_created:
            check_time("timing field 'plan_created'", self.plan_created)
        name = checked_text("timing field 'matrix_name'", self.matrix_name, LONGEST_NAME)
        object.__setattr__(self, "matrix_name", name)
        made = self.provenance or made_of(self.key.backend, SOLVERS)
        object.__setattr__(self, "provenance", MappingProxyType(checked_object("provenance", made)))

    def __hash__(self) -> int:
        return hash((self.key, self.created))

    def __reduce__(self) -> tuple[object, ...]:
        return (SolverTiming.from_json, (self.to_json(),))

    @property
    def id(self) -> str:
        """The id of the key: there is one timing per key."""
        return self.key.id

    @property
    def is_choice(self) -> bool:
        """Whether it says which s is best, rather than which of two solvers."""
        return self.best_s != 0

    @property
    def is_stale(self) -> bool:
        """Whether it is of another revision of the vector work of solvers than that of today."""
        return self.key.revision != revision(self.key.backend, SOLVERS)

    @property
    def aged(self) -> list[str]:
        """Why it is aged, taken with other kernel sources or versions than those of today, in words."""
        return aged_of(self.key.backend, SOLVERS, self.provenance)

    def step(self, solver: str) -> float:
        """Seconds of a step; Inf where no basis was of use."""
        seconds = self.seconds[solver]
        return math.inf if seconds is None else seconds

    def is_of(self, record: PlanRecord) -> bool:
        """Whether the s was found with this plan."""
        names = ("fingerprint", "dtype", "index_type", "device_class", "basis")
        alike = all(getattr(self.key, name) == getattr(record.key, name) for name in names)
        return alike and self.plan_created == record.created

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_json` inverts it."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain |= {"key": self.key.to_json(), "seconds": dict(self.seconds)}
        return {"id": self.id, **plain, "provenance": json.loads(json.dumps(dict(self.provenance)))}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SolverTiming:
        """Make a timing from :meth:`to_json`'s dict. Raises :class:`PlanError` where it is not valid."""
        if not isinstance(data, Mapping):
            raise PlanError("timing is not a JSON object", found=type(data).__name__)
        given = {name: value for name, value in data.items() if name != "id"}
        check_fields("timing", given, {one.name for one in fields(SolverTiming)})
        timing = SolverTiming(**{**given, "key": TimingKey.from_json(given["key"])})
        if data.get("id", timing.id) != timing.id:
            raise PlanError("timing id is not that of its key", expected=timing.id, found=brief(data["id"]))
        return timing


def encode_timing(timing: SolverTiming) -> dict[str, Any]:
    """The columns of a timing."""
    values = timing.to_json()
    values |= {one.name: getattr(timing.key, one.name) for one in fields(TimingKey)}
    values |= {name: json.dumps(values[name], allow_nan=False) for name in ("seconds", "provenance")}
    return {name: values[name] for name in TIMING_COLUMNS}


def decode_timings(rows: Iterable[tuple[Any, ...]]) -> list[SolverTiming]:
    """Timings from rows in the order of their columns; one that is not valid is reported and left out."""
    found = []
    for identifier, *values in rows:
        try:
            key = TimingKey(*values[: len(_KEY_FIELDS)])
            seconds, best_s, plan_created, created, name, provenance = values[len(_KEY_FIELDS) :]
            if key.id != identifier:
                raise PlanError("its id is not that of its key", expected=key.id, found=brief(identifier))
            steps, made = json.loads(seconds), json.loads(provenance)
            found.append(SolverTiming(key, steps, best_s, plan_created, created, name, made))
        except (PlanError, TypeError, ValueError, RecursionError) as error:
            warnings.warn(f"timing {shown(str(identifier), 12)} skipped: {error}", PlanDatabaseWarning, stacklevel=3)
    return found
