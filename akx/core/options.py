"""What schedules declare of themselves, to be known without importing them: traits, and the options of their plans.

An option has a type, a range and one default, in the record of its schedule. A value outside makes no sense for any
matrix on any device: no `Plan` can have it, wherever the plan comes from. Which of the values inside
fit a matrix and a device the schedule says (``feasible``).

The records of akx's own schedules are here, since a plan is checked before anything is compiled. A schedule of another
package has its record as its class attribute ``options``, by which it is declared when that class is made; one that an
entry point names is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, ClassVar, Self

from akx.core.errors import PlanError, brief
from akx.core.plugins import Registered, named

__all__ = [
    "SCHEDULES",
    "Allowed",
    "Flag",
    "Options",
    "Range",
    "Words",
    "declare",
    "declared",
    "of_option",
    "option_fault",
    "schedule_with",
    "traits",
    "unknown_option",
]


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


#: What an option may be.
Allowed = Range | Words | Flag


def of_option(default: Any, allowed: Allowed, *, shared: bool = False) -> Any:
    """A field of :class:`Options`.

    None is the default of an option for which the schedule decides from others. What is `shared` only means something
    to more than one thread.
    """
    return field(default=default, metadata={"allowed": allowed, "shared": shared})


@dataclass(frozen=True)
class Options:
    """The options of a schedule's plans, each a field with its default, and what others must know of the schedule.

    A record has every option; one that is out of range raises :class:`PlanError`.

    Attributes
    ----------
    is_plain : bool
        Whether its plans are plain products, one after another: the baseline of all others.
    streams : bool
        Whether the matrix comes from the host's memory during a call, so that plans keep within any memory budget; with
        one power per pass these are plain products, too.
    runs_by_levels : bool
        Whether blocks run by levels through the powers, so that they are used again while they are in cache.
    meaning : str
        What it does, for a report.
    """

    is_plain: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    runs_by_levels: ClassVar[bool] = False
    meaning: ClassVar[str] = ""

    #: What each option may be, its default where the schedule does not decide, and which mean nothing to one thread;
    #: filled in by :func:`declare`.
    allowed: ClassVar[dict[str, Allowed]] = {}
    defaults: ClassVar[dict[str, Any]] = {}
    shared: ClassVar[frozenset[str]] = frozenset()

    # What schedules without such options do; every plan is asked.
    sigma, stored, budget, share = 1, "full", 0, 0.0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The record of a plan's options, which the plan has checked: searches make many."""
        record = object.__new__(cls)
        record.__dict__.update(options)
        return record

    def __post_init__(self) -> None:
        for one in fields(self):
            value, allowed = getattr(self, one.name), one.metadata["allowed"]
            if not (value is None and one.default is None) and not allowed.holds(value):
                raise PlanError(f"option {one.name} is out of range", expected=str(allowed), found=brief(value))


_DECLARED: dict[tuple[str, str], type[Options]] = {}
#: "backend/schedule" -> "module:object" of all schedules. A new one is a line here, and its record below.
SCHEDULES: Registered[Any] = Registered(
    partial(named, "akx.backends.schedule:Schedule"),
    {
        "cpu/sweep": "akx.backends.cpu.schedules.sweep.schedule:SCHEDULE",
        "cpu/ghost": "akx.backends.cpu.schedules.ghost.schedule:SCHEDULE",
        "cpu/wavefront": "akx.backends.cpu.schedules.wavefront.schedule:SCHEDULE",
        "cuda/sweep": "akx.backends.cuda.schedules.sweep.schedule:SCHEDULE",
        "cuda/ghost": "akx.backends.cuda.schedules.ghost.schedule:SCHEDULE",
        "cuda/resident": "akx.backends.cuda.schedules.resident.schedule:SCHEDULE",
        "cuda/wavefront": "akx.backends.cuda.schedules.wavefront.schedule:SCHEDULE",
        "cuda/stream": "akx.backends.cuda.schedules.stream.schedule:SCHEDULE",
    },
    group="akx.schedules",
)


def declare(backend: str, schedule: str, options: type[Options]) -> None:
    """Let plans of a schedule have these options, and no others."""
    options.allowed = {one.name: one.metadata["allowed"] for one in fields(options)}
    options.shared = frozenset(one.name for one in fields(options) if one.metadata["shared"])
    options.defaults = {one.name: one.default for one in fields(options) if one.default is not None}
    options()  # defaults are in range
    _DECLARED[backend, schedule] = options


def declared(backend: str, schedule: str) -> type[Options] | None:
    """The record of a schedule; None of one that nobody has declared."""
    found = _DECLARED.get((backend, schedule))
    if found is None:
        SCHEDULES.get(f"{backend}/{schedule}")  # by which that of another package is imported
        found = _DECLARED.get((backend, schedule))
    return found


def traits(backend: str, schedule: str) -> type[Options]:
    """What is declared of a schedule; nothing is, of one that is not known here."""
    return declared(backend, schedule) or Options


def schedule_with(backend: str, trait: str) -> str | None:
    """The first schedule of a backend that is declared with a trait, by name."""
    found = _declared_with(backend, trait)
    if found is None:
        SCHEDULES.names(f"{backend}/")  # by which those of other packages are imported
        found = _declared_with(backend, trait)
    return found


def _declared_with(backend: str, trait: str) -> str | None:
    return next((name for (b, name), options in _DECLARED.items() if b == backend and getattr(options, trait)), None)


def option_fault(backend: str, schedule: str, name: str, value: object) -> str | None:
    """What is expected of an option that is out of range; None where it is not, or nobody has declared it."""
    options = declared(backend, schedule)
    allowed = None if options is None else options.allowed.get(name)
    return None if allowed is None or allowed.holds(value) else str(allowed)


def unknown_option(backend: str, schedule: str, names: Iterable[str]) -> str | None:
    """Why a plan with options of these names cannot be used; None where it can, or its schedule declares none."""
    options = declared(backend, schedule)
    name = None if options is None else next((name for name in names if name not in options.allowed), None)
    return (
        None if name is None else f"{backend}/{schedule} has no option {brief(name)}; another version of akx may have"
    )


# ------------------------------------------------------------------------------------------------ akx's own schedules

#: The largest number of rows, bytes or anything else.
_LARGEST = 2**62
_SIGMA, _BLOCK, _VECTORS, _HELD = Range(1, 2**31 - 1), Range(32, 1024), Range(1, 1024), Range(0, 64)
_STORED, _MEBIBYTES, _FEW = Words(("full", "half", "table")), Range(0.0, 2.0**20), Range(1, 64)


class _Sweep(Options):
    is_plain = True
    meaning = "k products one after another"


class _Ghost(Options):
    meaning = "each block takes the rows around it along and does its steps alone; some work is done twice"


class _Wavefront(Options):
    runs_by_levels = True
    meaning = "blocks of levels run diagonally through the powers, so that each is loaded once and used in cache"


@dataclass(frozen=True)
class CpuSweep(_Sweep):
    """`sweep` on the CPU."""

    sigma: int = of_option(1, _SIGMA)


@dataclass(frozen=True)
class CpuGhost(_Ghost):
    """`ghost` on the CPU."""

    sigma: int = of_option(1, _SIGMA)


@dataclass(frozen=True)
class CpuWavefront(_Wavefront):
    """`wavefront` on the CPU."""

    sigma: int = of_option(1, _SIGMA)
    split: str = of_option("contiguous", Words(("contiguous", "interleaved")), shared=True)
    lag: int | None = of_option(None, Range(0, 2**20), shared=True)  # as the split asks for


@dataclass(frozen=True)
class CudaSweep(_Sweep):
    """`sweep` on the GPU."""

    ahead: int = of_option(2, _FEW)
    block: int = of_option(256, _BLOCK)
    early: bool = of_option(False, Flag())
    hubs: int = of_option(128, Range(1, 1024))
    keep: int = of_option(0, _MEBIBYTES)
    once: bool = of_option(False, Flag())
    pad: int = of_option(4, _FEW)
    sigma: int = of_option(1, _SIGMA)
    stored: str = of_option("full", _STORED)


@dataclass(frozen=True)
class CudaGhost(_Ghost):
    """`ghost` on the GPU."""

    block: int = of_option(512, _BLOCK)
    blocks_per_sm: int = of_option(1, _FEW)
    cluster: int = of_option(1, _FEW)
    held_slices: int = of_option(0, _HELD)
    held_slots: int = of_option(1, _HELD)
    vectors: int = of_option(1, _VECTORS)
    waves: int = of_option(1, Range(1, 1024))

    depth, keep = 1, 32  # as `resident` without exchanges in between; it has these as options


@dataclass(frozen=True)
class CudaResident(Options):
    """`resident` on the GPU."""

    meaning = "the matrix stays in fast memory for all steps, and blocks exchange the edges of their vectors"

    block: int = of_option(512, _BLOCK)
    blocks_per_sm: int = of_option(1, _FEW)
    depth: int = of_option(1, Range(1, 2**31 - 1))
    exchange: str = of_option("values", Words(("values", "flags")))
    held_slices: int = of_option(0, _HELD)
    held_slots: int = of_option(1, _HELD)
    keep: int = of_option(24, _MEBIBYTES)
    results: str = of_option("direct", Words(("direct", "staged")))
    stored: str = of_option("full", _STORED)
    vectors: int = of_option(1, _VECTORS)
    x: str = of_option("shared", Words(("shared", "global")))

    cluster = 1  # an option of `ghost`


@dataclass(frozen=True)
class CudaWavefront(_Wavefront):
    """`wavefront` on the GPU."""

    block: int = of_option(512, _BLOCK)
    held_slots: int = of_option(0, _HELD)
    helpers: int = of_option(128, Range(32, 1024))
    slack: int = of_option(0, _HELD)
    slices: int = of_option(2, _FEW)
    stored: str = of_option("full", _STORED)


@dataclass(frozen=True)
class CudaStream(Options):
    """`stream` on the GPU."""

    streams = True
    meaning = "the matrix comes through the memory block by block, several steps at a time"

    ahead: int = of_option(4, _FEW)
    block: int = of_option(256, _BLOCK)
    budget: int = of_option(0, Range(0, _LARGEST))
    fraction: float = of_option(0.0, Range(0.0, 1.0))
    front: str = of_option("shared", Words(("shared", "own", "none")))
    host: str = of_option("csr", Words(("csr", "csr16", "sell", "sell16", "bell", "bell16")))
    move: str = of_option("kernel", Words(("kernel", "copy", "direct")))
    rows: int = of_option(0, Range(0, _LARGEST))
    share: float = of_option(0.0, Range(0.0, 1.0))
    stays: bool = of_option(True, Flag())
    stored: str = of_option("full", Words(("full", "triangle")))
    vectors: int = of_option(1, _VECTORS)


for _backend, _schedule, _options in (
    ("cpu", "sweep", CpuSweep),
    ("cpu", "ghost", CpuGhost),
    ("cpu", "wavefront", CpuWavefront),
    ("cuda", "sweep", CudaSweep),
    ("cuda", "ghost", CudaGhost),
    ("cuda", "resident", CudaResident),
    ("cuda", "wavefront", CudaWavefront),
    ("cuda", "stream", CudaStream),
):
    declare(_backend, _schedule, _options)
