"""What is asked of the tuner, by :func:`akx.tuner.tune` or on a command line, and how a search spends its budget.

A field of :class:`TuneRequest` that a command line can give has a :class:`CommandOption` in its metadata, from which
:mod:`akx.cli.options` makes the option. So nothing that takes long is imported here until a request is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from akx.core.errors import ArgumentError, brief

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.plandb import PlanDatabase
    from akx.tuner.history.trial import Progress
    from akx.tuner.measure import Precision

__all__ = ["BasisName", "CommandOption", "Settings", "TuneRequest"]

#: Seconds by default where there is a GPU beside the host.
_BOTH_SECONDS = 60.0
#: Seeds that the sampler takes: of 32 bits.
_SEEDS = 2**32


class BasisName(StrEnum):
    """Kinds of basis that a command line can name."""

    MONOMIAL = "monomial"
    NEWTON = "newton"
    CHEBYSHEV = "chebyshev"


class _Unchosen(float):
    """Seconds that nobody has chosen."""


def _precision(**figures: Any) -> Precision:
    from akx.tuner.measure import Precision

    return Precision(**figures)


@dataclass(frozen=True)
class Settings:
    """How a search spends its budget.

    Attributes
    ----------
    trials : int
        Most trials.
    seconds : float
        Most seconds of the search, run-off included; a trial under way is finished. What is compiled before it, and
        what Numba compiles in it, is apart, and takes as long again at most. Where none are given, those of the
        backend: 30 for the host, 60 where there is a GPU to tune for.
    patience : int
        Trials without progress after which the search ends, once nothing next to the best plan may be better.
    race : float
        A candidate this many times slower than the best is dropped after a short measurement.
    precision, final : Precision
        Of a trial and of the run-off. With less than 15 seconds in all, both take a share of the time instead.
    finalists : int
        Plans in the run-off beside the baseline.
    noise : float
        Differences below this fraction count as none.
    seed : int
        Of start vectors and sampler.
    calls : int or None
        How often the kernel will run. No more seconds are then spent than further search could win in so many calls.
    """

    trials: int = 80
    seconds: float = _Unchosen(30.0)
    patience: int = 25
    race: float = 1.5
    precision: Precision = field(default_factory=_precision)
    final: Precision = field(
        default_factory=lambda: _precision(relative=0.004, seconds=3.0, rounds_min=7, rounds_max=101)
    )
    finalists: int = 4
    noise: float = 0.01
    seed: int = 0
    calls: int | None = None

    def __post_init__(self) -> None:
        from akx.core.arguments import ANY_COUNT, check_count, check_number

        object.__setattr__(self, "trials", check_count("trials", self.trials, most=ANY_COUNT))
        seconds = check_number("seconds", self.seconds, "a number > 0", lambda number: number > 0)
        if not isinstance(self.seconds, (int, float)):  # of NumPy
            object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "seed", check_count("seed", self.seed, least=0, most=_SEEDS - 1))
        if self.calls is not None:
            object.__setattr__(self, "calls", check_count("calls", self.calls, most=ANY_COUNT))
        if self.race < 1 or self.patience < 1 or self.finalists < 1 or not 0 <= self.noise < 1:
            given = f"{brief(self.race)}, {brief(self.patience)}, {brief(self.finalists)} and {brief(self.noise)}"
            raise ArgumentError(
                "search settings are out of range",
                expected="race, patience and finalists of at least 1, and 0 <= noise < 1",
                found=given,
            )

    def on(self, backend: str) -> Settings:
        """The same for plans of a backend, ``"auto"`` being several: with its seconds, where nobody has chosen any."""
        from akx.backends.selection import backend_of

        if not isinstance(self.seconds, _Unchosen):
            return self
        return replace(self, seconds=_BOTH_SECONDS if backend == "auto" else backend_of(backend).tuning_seconds)

    def but(self, **changes: Any) -> Settings:
        """The same with fields changed; None leaves a field as it is."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


@dataclass(frozen=True)
class CommandOption:
    """How a command line gives a field: as ``flag``, of what kind, and which values it may have."""

    flag: str
    kind: type
    help: str
    metavar: str | None = None
    expected: str = ""
    is_valid: Callable[[Any], bool] = lambda value: True
    example: str = ""

    def check(self, value: Any) -> Any:
        """`value`, where it was not given (None) or is in range. Raises :class:`ArgumentError`."""
        if value is None or self.is_valid(value):
            return value
        found = f"{value:g}" if isinstance(value, float) else str(value)
        hint = f"try {self.flag} {self.example}"
        raise ArgumentError(f"{self.flag} is out of range", expected=self.expected, found=found, hint=hint)


def _given(default: Any, flag: str, kind: type, says: str, **more: Any) -> Any:
    """A field that a command line can give."""
    return field(default=default, metadata={"option": CommandOption(flag, kind, says, **more)})


def _count(default: Any, flag: str, says: str, example: str, metavar: str | None = None) -> Any:
    """The same for numbers from 1 on."""
    valid: dict[str, Any] = {"expected": "an integer >= 1", "is_valid": lambda count: count >= 1}
    return _given(default, flag, int, says, metavar=metavar, example=example, **valid)


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """All that :func:`akx.tuner.tune` is asked for beside the matrix, and what follows from it.

    Attributes
    ----------
    backend
        Where there is a GPU, ``"auto"`` tunes for the host in a third of the time and for the GPU, with vectors in its
        memory, in the rest, and keeps both plans.
    seconds
        A trial under way is finished. akx's own code is compiled before, once on a machine, on all cores, in as many
        seconds at most.
    retune
        The plan that is there is measured as well, and stays unless the search runs to its end and finds a better one.
        What earlier searches have tried is not tried again. A provisional plan, whose search was interrupted, disturbed
        or had too little time, is searched on from in any case.
    fresh
        As `retune`, and everything is tried again. Without it a search goes on from the trials that the database has of
        earlier ones for exactly this key, such as one that was killed; not where there is a `storage`, which has them.
    callback
        Without one akx says itself how far it is, unless :func:`akx.progress` is off.
    space_filter
        A plan from a part of the space is not the best plan: so the database is left alone.
    memory_budget, fraction
        Bytes, as a number or such as ``"512M"`` and ``"80GiB"``, vectors included; the smaller of the two counts. They
        mean the backend of a GPU. Vectors are then at home in the host's memory, the baseline is plain products,
        streamed or not, and the plan is kept for exactly this budget.
    value_error
        Plans for the GPU may store the entries in half the bytes where each is off by no more; see
        :class:`akx.MatrixPowers`. By default that of the matrix where it is an :class:`akx.Matrix`, else 0: exact.
        Results are judged by the error with which a plan stores these values. The best plan is kept for exactly this
        allowance, beside that for exact values, which takes part in the search. No effect on the CPU, float32 and
        complex64.
    storage
        Workers have a device each; the journal is in a shared directory. A plan that another worker on a device of the
        same class has tried, or is at, is not tried here; budgets count what is tried here. Each worker has a run-off
        of its own. A search that was broken off goes on where it was.
    calls
        For few, the baseline or the predicted plan is taken without a search. Where not even the predicted plan was
        measured no plan is kept. A plan that was sought for few calls is sought again where more are to come.
    record
        Lines of JSON (:mod:`akx.tuner.trace.recording`). A recording of the same problem that is there already is
        continued. Nothing is recorded where the plan comes from the database. A search that is recorded begins anew, as
        with `fresh`.
    """

    k: int = _count(8, "--k", "Number of powers; 8 by default.", "8")
    backend: str = _given("auto", "--backend", str, "Where to run; auto tries all there are.")
    basis: str = _given(
        "monomial",
        "--basis",
        BasisName,
        "Kind of polynomial basis; monomial by default, with --for the solver's own.",
    )
    trials: int | None = _count(None, "--trials", "Most plans to try; by default the tuner decides.", "100")
    seconds: float | None = _given(
        None,
        "--time",
        float,
        "Seconds to spend, but for compiling, as long again at most; by default 30, with a GPU 60.",
        metavar="SECONDS",
        expected="seconds, more than 0",
        is_valid=lambda seconds: 0 < seconds < float("inf"),
        example="60",
    )
    threads: int | None = _count(
        None, "--threads", "Most threads to use; by default NUMBA_NUM_THREADS, else all cores.", "2"
    )
    db: PlanDatabase | str | os.PathLike[str] | Literal[False] | None = _given(  # noqa: RUF009
        None,
        "--db",
        str,
        "Plan database: a file, or a server as postgresql://user@host/database; by default AKX_DB, else in the user's "
        "data.",
        metavar="PATH|URL",
    )
    retune: bool = _given(False, "--retune", bool, "Search on even where a plan is known.")
    fresh: bool = _given(False, "--fresh", bool, "Search anew: try again what earlier searches have tried as well.")
    memory_budget: int | str | None = _given(
        None,
        "--memory-budget",
        str,
        "Most bytes of the GPU's memory, vectors included, e.g. 512M, 2G, 80GiB; what does not fit is streamed.",
        metavar="BYTES",
    )
    fraction: float | None = _given(
        None, "--fraction", float, "The same, as a fraction of the bytes of the matrix in CSR; the smaller counts."
    )
    value_error: float | None = _given(
        None,
        "--value-error",
        float,
        "Largest relative error of a stored value, e.g. 6e-8: a GPU may then keep float64 in float32; 0 is exact.",
        metavar="E",
        expected="a number of at least 0 and less than 1",
        is_valid=lambda error: 0 <= error < 1,
        example="6e-8",
    )
    storage: Any = _given(  # noqa: RUF009
        None,
        "--storage",
        str,
        "Share trials with other workers on the same matrix and kind of device: a journal in a shared directory, or "
        "postgresql://user@host/database.",
        metavar="PATH|URL",
    )
    calls: int | None = _count(
        None,
        "--calls",
        "How often the kernel will run: no more time is spent than so many calls can pay back.",
        "1000",
        metavar="N",
    )
    seed: int | None = _given(None, "--seed", int, "Of the search; 0 by default.")
    record: str | os.PathLike[str] | None = _given(  # noqa: RUF009
        None, "--record", Path, "Write every trial to a file, as lines of JSON, to be replayed.", metavar="PATH"
    )
    start_vectors: int = 1
    name: str = ""
    callback: Callable[[Progress], object] | None = None
    space_filter: Callable[[Plan], bool] | None = None
    settings: Settings | None = None

    def settings_on(self, backend: str) -> Settings:
        """The settings of a search on a backend, with what the request itself says of budgets and the seed."""
        base = (self.settings or Settings()).on(backend)
        return base.but(trials=self.trials, seconds=self.seconds, seed=self.seed, calls=self.calls)
