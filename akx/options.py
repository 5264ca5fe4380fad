"""What options of plans may be: their types and ranges, by backend and schedule.

A value outside makes no sense for any matrix on any device: no :class:`akx.plan.Plan` can have it, wherever the plan
comes from. Which of the values inside fit a matrix and a device the schedule says (``feasible``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from akx.errors import brief

__all__ = ["OPTIONS", "Flag", "Range", "Words", "option_fault", "unknown_option"]

#: The largest number of rows, bytes or anything else.
_LARGEST = 2**62


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, both included: integers where both are integers."""

    least: int | float
    most: int | float

    def __str__(self) -> str:
        kind = "an integer" if self._kinds == (int,) else "a number"
        return f"{kind} from {self.least} to {self.most}"

    def holds(self, value: object) -> bool:
        """Whether `value` is one of them; True is no number."""
        is_number = isinstance(value, self._kinds) and not isinstance(value, bool)
        return is_number and self.least <= value <= self.most  # type: ignore[operator]

    @cached_property
    def _kinds(self) -> tuple[type, ...]:
        return (float, int) if isinstance(self.most, float) else (int,)


@dataclass(frozen=True)
class Words:
    """A choice among words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"

    def holds(self, value: object) -> bool:
        """Whether `value` is one of them."""
        return value in self.words


class Flag:
    """True or False."""

    def __str__(self) -> str:
        return "true or false"

    def holds(self, value: object) -> bool:
        """Whether `value` is one of them; 1 is none."""
        return isinstance(value, bool)


_SIGMA = Range(1, 2**31 - 1)
_STORED = Words(("full", "half", "table"))
_BLOCK, _VECTORS = Range(32, 1024), Range(1, 1024)
_HELD = {"held_slices": Range(0, 64), "held_slots": Range(0, 64)}

#: By backend and schedule, what each option may be.
OPTIONS: Mapping[tuple[str, str], Mapping[str, Range | Words | Flag]] = {
    ("cpu", "sweep"): {"sigma": _SIGMA},
    ("cpu", "ghost"): {"sigma": _SIGMA},
    ("cpu", "wavefront"): {
        "sigma": _SIGMA,
        "split": Words(("contiguous", "interleaved")),
        "lag": Range(0, 2**20),
    },
    ("cuda", "sweep"): {
        "ahead": Range(1, 64),
        "block": _BLOCK,
        "early": Flag(),
        "hubs": Range(1, 1024),
        "keep": Range(0.0, 2.0**20),
        "once": Flag(),
        "pad": Range(1, 64),
        "sigma": _SIGMA,
        "stored": _STORED,
    },
    ("cuda", "ghost"): {
        **_HELD,
        "block": _BLOCK,
        "blocks_per_sm": Range(1, 64),
        "cluster": Range(1, 64),
        "vectors": _VECTORS,
        "waves": Range(1, 1024),
    },
    ("cuda", "resident"): {
        **_HELD,
        "block": _BLOCK,
        "blocks_per_sm": Range(1, 64),
        "depth": Range(1, 2**31 - 1),
        "exchange": Words(("values", "flags")),
        "keep": Range(0.0, 2.0**20),
        "results": Words(("direct", "staged")),
        "stored": _STORED,
        "vectors": _VECTORS,
        "x": Words(("shared", "global")),
    },
    ("cuda", "wavefront"): {
        "block": _BLOCK,
        "held_slots": Range(0, 64),
        "helpers": Range(32, 1024),
        "slack": Range(0, 64),
        "slices": Range(1, 64),
        "stored": _STORED,
    },
    ("cuda", "stream"): {
        "ahead": Range(1, 64),
        "block": _BLOCK,
        "budget": Range(0, _LARGEST),
        "fraction": Range(0.0, 1.0),
        "front": Words(("shared", "own", "none")),
        "host": Words(("csr", "csr16", "sell", "sell16", "bell", "bell16")),
        "move": Words(("kernel", "copy", "direct")),
        "rows": Range(0, _LARGEST),
        "share": Range(0.0, 1.0),
        "stays": Flag(),
        "vectors": _VECTORS,
    },
}

_NONE: Mapping[str, Range | Words | Flag] = {}


def option_fault(backend: str, schedule: str, name: str, value: object) -> str | None:
    """What is expected of an option that is out of range; None where it is not, or nobody has declared it."""
    declared = OPTIONS.get((backend, schedule), _NONE).get(name)
    return None if declared is None or declared.holds(value) else str(declared)


def unknown_option(backend: str, schedule: str, names: Iterable[str]) -> str | None:
    """Why a plan with options of these names cannot be used; None where it can, or its schedule declares none."""
    declared = OPTIONS.get((backend, schedule))
    name = None if declared is None else next((name for name in names if name not in declared), None)
    return (
        None if name is None else f"{backend}/{schedule} has no option {brief(name)}; another version of akx may have"
    )
