"""Schedules and programs: what the tuner, the operator and the tests may know of one, and nothing more.

A schedule is a small object registered once in :mod:`akx.backends.registry`. It describes its own search space, says
whether a plan is feasible for a matrix, models the traffic of a plan, and prepares a *program*, which is in a module of
its own (:mod:`akx.backends.program`): first calls have some without a plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akx.backends.program import Coefficients, PlainProducts, Program, TimedCall, as_coefficients, held_bytes
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import Options, declare
from akx.core.plan import Option, Plan
from akx.cost.counts import Traffic, Work

__all__ = [
    "Coefficients",
    "Parameter",
    "PlainProducts",
    "Program",
    "Schedule",
    "TimedCall",
    "Traffic",
    "Work",
    "as_coefficients",
    "check_feasible",
    "held_bytes",
    "option_reason",
]


@dataclass(frozen=True)
class Parameter:
    """One discrete tuning parameter of a schedule: its name, choices in order, default and meaning."""

    name: str
    choices: tuple[Option, ...]
    default: Option
    description: str

    def __post_init__(self) -> None:
        if not self.choices or self.default not in self.choices:
            raise ValueError(f"parameter {self.name}: default {self.default!r} not in {self.choices!r}")


class Schedule(ABC):
    """What every schedule of every backend provides.

    A schedule says :meth:`space`, :meth:`feasible`, :meth:`traffic` and :meth:`prepare`; all else has a default.
    `device` is a `HostDevice` or a `CudaDevice`, as the backend is.

    Attributes
    ----------
    name, backend : str
        As in plans.
    options : type of Options
        What it declares of its plans' options, and of itself (:mod:`akx.core.options`).
    revision : int
        Raised when its plans would be chosen anew (:mod:`akx.backends.revisions`).
    description : str
        In a few words.
    may_crash : bool
        Whether a program may use an address it must not, or wait for ever: then it first runs in a process of its own.
    layout_shares, layout_turn : int
        Processes that compile its layouts ahead of a search (:meth:`lay_out`), each beginning with another order of the
        rows; and its turn among the schedules, the lower the sooner.
    gives_way : tuple of str
        Parameters that may change where a plan that was tuned for other values, or elsewhere, does not fit
        (:mod:`akx.tuner.fallback.nearest`); none where such a plan is not used at all.
    step_price : str
        The figure of a device (:class:`akx.cost.device_model.Figures`) that a step of :meth:`plainest` costs where
        there is next to nothing to do; "" where it is not timed for one.
    """

    name: str
    backend: str
    options: type[Options] = Options
    revision: int = 1
    description: str = ""
    may_crash: bool = True
    layout_shares: int = 0
    layout_turn: int = 0
    gives_way: tuple[str, ...] = ()
    step_price: str = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "options" in vars(cls):
            declare(cls.backend, cls.name, cls.options)

    @abstractmethod
    def space(self, matrix: Matrix, device: Any, k: int) -> tuple[Parameter, ...]:
        """The tuning parameters that make sense for this matrix, device and k."""

    @abstractmethod
    def feasible(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        """None where the plan can be prepared, else the reason why not."""

    @abstractmethod
    def traffic(self, plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        """The byte and flop model of the plan; one model for the roofline, the predictor and the docs."""

    @abstractmethod
    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        """Lay the matrix out and make the program. Raises :class:`InfeasibleError` where it cannot be done."""

    def reason_at_once(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        """As :meth:`feasible`, but for what takes long to find out; :meth:`prepare` finds the rest."""
        return self.feasible(plan, matrix, device)

    def waste(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        """What a feasible plan has no use for, where there is one without that is the same and cheaper; else None."""
        return None

    def untuned(self, k: int, threads: int) -> Plan | None:
        """A plan that is offered without a look at the matrix, in the plainest variant and natural order, or None."""
        return None

    def plainest(self, k: int) -> Plan:
        """The plan whose steps are timed for :attr:`step_price`."""
        raise NotImplementedError(f"no step of {self.backend}/{self.name} is timed")

    def heuristic_plans(self, matrix: Matrix, device: Any, k: int) -> tuple[Plan, ...] | None:
        """Plans that a call may take unseen, as far as is known with nothing prepared; None where nothing is known.

        What the plans of such a schedule make the device do, :meth:`work` says.
        """
        return None

    def starts(self, matrix: Matrix, device: Any, k: int) -> tuple[Plan, ...]:
        """Feasible plans that a search should begin with, beside the defaults, each for an idea of its own."""
        return ()

    def work(self, plan: Plan, matrix: Matrix, device: Any, vectors: int) -> Work | None:
        """What a call with so many start vectors makes the device do; None where :meth:`traffic` is all there is."""
        return None

    def stored_error(self, plan: Plan, matrix: Matrix, device: Any) -> float:
        """The largest relative error with which a feasible plan stores values; 0 where they are stored as they are."""
        return 0.0

    def at_once(self, plan: Plan, matrix: Matrix, vectors: int) -> int:
        """Of so many start vectors those that have an entry of the matrix at once; 1 where they take turns with it."""
        return 1

    def padding(self, plan: Plan, matrix: Matrix) -> float:
        """Values multiplied for each one of the matrix, at least 1."""
        return 1.0

    def largest_share(self, plan: Plan, matrix: Matrix) -> float:
        """Work of the thread that has most over the mean, at least 1."""
        return 1.0

    def least_budget(self, matrix: Matrix, k: int, device: Any) -> int | None:
        """The fewest bytes of the device's memory that some plan for the matrix does with; None where nobody knows."""
        return None

    def lay_out(self, plan: Plan, matrix: Matrix, device: Any) -> None:  # noqa: B027
        """Do on the host what preparing a feasible plan does there, and throw it away: Numba has it compiled then."""


def check_feasible(schedule: Schedule, plan: Plan, matrix: Matrix, device: Any) -> None:
    """Raise :class:`InfeasibleError` with the schedule's reason where `plan` cannot be prepared."""
    reason = schedule.feasible(plan, matrix, device)
    if reason is not None:
        raise InfeasibleError(
            f"plan {plan.label()} is not feasible: {reason}", hint="tune the matrix, or pass plan=None"
        )


def option_reason(plan: Plan, allowed: Mapping[str, Sequence[Option]]) -> str | None:
    """The first option of `plan` that is none of those `allowed`, in words, or None; True is not 1 here, nor 1.0."""
    for name, value in plan.options.items():
        choices = allowed.get(name)
        if choices is not None and not any(value == one and type(value) is type(one) for one in choices):
            return f"{name} is {value!r}, expected one of {', '.join(map(str, choices))}"
    return None
