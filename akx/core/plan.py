"""Plans: frozen, JSON-serialisable choices of how to compute matrix powers. A plan holds no arrays.

A plan says *how*; a *program* (:mod:`akx.backends.program`) is a plan made ready for one matrix on one device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from akx.core.errors import ArgumentTypeError, PlanError, brief, listed, shown
from akx.core.options import Options, option_fault, traits

__all__ = ["FULL", "PLAN_SCHEMA", "Option", "Plan", "check_fields", "check_plan", "in_full"]

#: Version of the JSON form of a plan. Raised whenever a field changes its meaning.
PLAN_SCHEMA = 1
#: What values are stored as by a plan that stores them as they are.
FULL = "full"

Option = bool | int | float | str

#: The least and the most that each number of a plan may be.
_NAMES = ("backend", "schedule", "variant", "partitioner")
_RANGES = {"k": (1, 2**31 - 1), "k_per_pass": (1, 2**31 - 1), "block_bytes": (0, 2**40), "threads": (1, 4096)}
#: The most characters of a name or a word, and the most options: what has more was made to do harm.
_LONGEST, _MOST_OPTIONS = 200, 100
#: The most characters of a label; those of plans that schedules offer are shorter.
_LONGEST_LABEL = 300


@dataclass(frozen=True, eq=False)
class Plan:
    """One way to compute k matrix powers.

    Two plans are equal where they are the same in JSON: an option ``1`` is neither ``True`` nor ``1.0``.

    Attributes
    ----------
    backend : str
        The name of its backend, such as ``"cpu"``.
    schedule : str
        The order in which (block, power) pairs are done: ``"sweep"``, ``"ghost"``, ``"wavefront"``, ...
    variant : str
        The SpMV variant: a format with its mapping of lanes or threads to rows, e.g. ``"csr"`` or ``"sell16"``.
    partitioner : str
        How rows are ordered and cut: ``"natural"``, ``"rcm"``, ``"levels"``, ``"metis"``, ``"hypergraph"``.
    k : int
        Number of powers, at least 1.
    k_per_pass : int
        Powers done per pass over the matrix, 1 <= k_per_pass <= k. A schedule runs ceil(k / k_per_pass) passes.
    block_bytes : int
        Target size in bytes of the matrix data of one block; 0 where the schedule has no blocks.
    threads : int
        Threads of the host, at least 1.
    options : mapping of str to bool, int, float or str
        Parameters that only this schedule or variant knows, such as ``sigma`` of sliced ELL, each of the type and in
        the range that :mod:`akx.core.options` declares. Numbers are finite.

    Raises
    ------
    PlanError
        Where a field or an option has the wrong type or is out of range.
    """

    backend: str
    schedule: str
    variant: str
    partitioner: str = "natural"
    k: int = 1
    k_per_pass: int = 1
    block_bytes: int = 0
    threads: int = 1
    options: Mapping[str, Option] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _NAMES:  # searches make hundreds of thousands of plans: what is in order is told at once
            value = getattr(self, name)
            if type(value) is not str or not 0 < len(value) <= _LONGEST:
                _check_name(f"plan field '{name}'", value)
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise PlanError(
                    f"plan field '{name}' is out of range",
                    expected=f"an integer from {least} to {most}",
                    found=brief(value),
                )
        if self.k_per_pass > self.k:
            raise PlanError(
                "plan field 'k_per_pass' is out of range", expected=f"at most k = {self.k}", found=str(self.k_per_pass)
            )
        if not isinstance(self.options, Mapping):
            raise PlanError("plan options are not named", expected="a mapping of names", found=brief(self.options))
        if len(self.options) > _MOST_OPTIONS:
            found = str(len(self.options))
            raise PlanError("plan has too many options", expected=f"at most {_MOST_OPTIONS}", found=found)
        options = dict(sorted((_name(name), _scalar(name, value)) for name, value in self.options.items()))
        for name, option in options.items():
            expected = option_fault(self.backend, self.schedule, name, option)
            if expected is not None:
                raise PlanError(f"plan option {brief(name)} is out of range", expected=expected, found=brief(option))
        object.__setattr__(self, "options", MappingProxyType(options))

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        """What makes two plans equal; types are part of it, since Python holds that 1 == True == 1.0."""
        plain = tuple(getattr(self, name) for name in _PLAIN)
        return (*plain, tuple((name, type(value), value) for name, value in self.options.items()))

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return (Plan.from_json, (self.to_json(),))

    @property
    def traits(self) -> type[Options]:
        """What is declared of its schedule; nothing is, of one that is not known here."""
        return traits(self.backend, self.schedule)

    @cached_property
    def typed(self) -> Any:
        """The record of its options that its schedule declares: what the plan sets, and the defaults of the others."""
        return self.traits.of(self.options)

    def replace(self, **changes: Any) -> Plan:
        """A copy with some fields changed; checked like any new plan."""
        return replace(self, **changes)

    def label(self) -> str:
        """One line that names every choice, e.g. ``cpu/wavefront/sell16 natural k=8x1 block=128KiB threads=2``."""
        passes = -(-self.k // self.k_per_pass)
        parts = [f"{self.backend}/{self.schedule}/{self.variant}", self.partitioner, f"k={self.k_per_pass}x{passes}"]
        if passes * self.k_per_pass != self.k:
            parts[-1] += f"({self.k})"
        if self.block_bytes:
            parts.append(f"block={self.block_bytes / 1024:g}KiB")
        parts.append(f"threads={self.threads}")
        parts += [f"{name}={value}" for name, value in self.options.items()]
        return shown(" ".join(parts), _LONGEST_LABEL)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, with the schema version; :meth:`from_json` inverts it."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"schema": PLAN_SCHEMA, **plain, "options": dict(self.options)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """Make a plan from :meth:`to_json`'s dict. Raises :class:`PlanError` on any unknown or missing field."""
        if not isinstance(data, Mapping):
            raise PlanError("plan is not a JSON object", found=type(data).__name__)
        schema = data.get("schema")
        if schema != PLAN_SCHEMA:
            raise PlanError(
                "plan is of another schema",
                expected=str(PLAN_SCHEMA),
                found=brief(schema),
                hint="tune the matrix again",
            )
        names = {f.name for f in fields(Plan)}
        given = {key: value for key, value in data.items() if key != "schema"}
        check_fields("plan", given, names)
        return Plan(**given)

    @staticmethod
    def from_parameters(backend: str, schedule: str, k: int, values: Mapping[str, Option]) -> Plan:
        """A plan from a tuner's parameter values: plan fields by name, everything else becomes an option."""
        chosen: dict[str, Any] = {key: value for key, value in values.items() if key in _CHOSEN}
        options = {key: value for key, value in values.items() if key not in _CHOSEN}
        return Plan(backend=backend, schedule=schedule, k=k, options=options, **chosen)


#: The fields but the options, and those of them that are parameters of a search.
_PLAIN = tuple(f.name for f in fields(Plan) if f.name != "options")
_CHOSEN = frozenset(_PLAIN) - {"backend", "schedule", "k"}


def in_full(plan: Plan) -> Plan:
    """The plan with values in full."""
    return plan.replace(options={**plan.options, "stored": FULL})


def check_plan(plan: Any) -> None:
    """Raise ArgumentTypeError where a ``plan=`` that was given is not a Plan."""
    if plan is not None and not isinstance(plan, Plan):
        raise ArgumentTypeError("plan is not a Plan", found=type(plan).__name__, hint="use Plan.from_json")


def check_fields(what: str, given: Mapping[str, Any], names: Set[str], optional: Set[str] = frozenset()) -> None:
    """Raise :class:`PlanError` where fields of the JSON form of `what` are missing or unknown."""
    unknown, missing = [name for name in given if name not in names], names - optional - set(given)
    if unknown or missing:
        found = [f"without {listed(sorted(missing))}"] if missing else []
        found += [f"with {listed(map(str, unknown))}"] if unknown else []
        raise PlanError(f"{what} fields do not match", expected=", ".join(sorted(names)), found=" and ".join(found))


def _check_name(what: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise PlanError(f"{what} is not a name", expected="a non-empty string", found=brief(value))
    if len(value) > _LONGEST:
        raise PlanError(f"{what} is too long", expected=f"at most {_LONGEST} characters", found=str(len(value)))


def _name(name: object) -> str:
    if type(name) is str and 0 < len(name) <= _LONGEST:
        return name
    _check_name("name of a plan option", name)
    return str(name)


def _scalar(name: str, value: object) -> Option:
    """An option as the plain type that it has after a trip through JSON."""
    if isinstance(value, str) and len(value) > _LONGEST:
        most = f"at most {_LONGEST} characters"
        raise PlanError(f"plan option {brief(name)} is too long", expected=most, found=str(len(value)))
    if isinstance(value, (bool, str)):
        return value if isinstance(value, bool) else str(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            found = brief(value)
            raise PlanError(f"plan option {brief(name)} is out of range", expected="a number of 64 bits", found=found)
        return int(value)
    if not isinstance(value, float):
        raise PlanError(f"plan option {brief(name)} is not a scalar", found=brief(value))
    if not math.isfinite(value):
        raise PlanError(f"plan option {brief(name)} is not finite", found=brief(value))
    return float(value) + 0.0  # so that there is one zero
