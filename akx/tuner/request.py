"""What is asked of the tuner, as :func:`akx.tuner.tune` takes it, and how a search spends its budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from akx.backends.selection import backend_of
from akx.core.arguments import ANY_COUNT, check_count, check_number
from akx.core.errors import ArgumentError, brief
from akx.tuner.measure import Precision

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.plandb import PlanDatabase
    from akx.tuner.history.result import Progress

__all__ = ["Settings", "TuneRequest"]

#: Seconds by default where there is a GPU beside the host.
_BOTH_SECONDS = 60.0
#: Seeds that the sampler takes: of 32 bits.
_SEEDS = 2**32


class _Unchosen(float):
    """Seconds that nobody has chosen."""


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
    precision: Precision = field(default_factory=Precision)
    final: Precision = field(
        default_factory=lambda: Precision(relative=0.004, seconds=3.0, rounds_min=7, rounds_max=101)
    )
    finalists: int = 4
    noise: float = 0.01
    seed: int = 0
    calls: int | None = None

    def __post_init__(self) -> None:
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
        """The same for plans of a backend: with its seconds, where nobody has chosen any.

        ``"auto"``, where there is a GPU, is for plans of both.
        """
        return (
            replace(self, seconds=_BOTH_SECONDS if backend == "auto" else backend_of(backend).tuning_seconds)
            if isinstance(self.seconds, _Unchosen)
            else self
        )

    def but(
        self,
        *,
        trials: int | None = None,
        seconds: float | None = None,
        seed: int | None = None,
        calls: int | None = None,
    ) -> Settings:
        """The same with what is given changed; None leaves a field as it is."""
        return replace(
            self,
            trials=self.trials if trials is None else trials,
            seconds=self.seconds if seconds is None else seconds,
            seed=self.seed if seed is None else seed,
            calls=self.calls if calls is None else calls,
        )


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """All that :func:`akx.tuner.tune` is asked for beside the matrix; its arguments say what the fields mean."""

    k: int
    basis: str = "monomial"
    start_vectors: int = 1
    backend: str = "auto"
    threads: int | None = None
    trials: int | None = None
    seconds: float | None = None
    db: PlanDatabase | str | os.PathLike[str] | Literal[False] | None = None
    retune: bool = False
    seed: int | None = None
    name: str = ""
    callback: Callable[[Progress], object] | None = None
    space_filter: Callable[[Plan], bool] | None = None
    settings: Settings | None = None
    memory_budget: int | str | None = None
    fraction: float | None = None
    value_error: float | None = None
    storage: Any = None
    calls: int | None = None
    record: str | os.PathLike[str] | None = None
    fresh: bool = False

    def settings_on(self, backend: str) -> Settings:
        """The settings of a search on a backend, with what the request itself says of budgets and the seed."""
        base = (self.settings or Settings()).on(backend)
        return base.but(trials=self.trials, seconds=self.seconds, seed=self.seed, calls=self.calls)
