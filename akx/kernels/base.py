"""Schedules and programs: what the tuner, the operator and the tests may know of one, and nothing more.

A schedule is a small object registered once in :mod:`akx.kernels.registry`. It describes its own search space, says
whether a plan is feasible for a matrix, models the traffic of a plan, and prepares a *program*. Array conventions
inside kernels: the start vectors are a C-contiguous array of shape (b, n); the result W is a C-contiguous array of
shape (k+1, b, n), so that every vector is contiguous; the user's V[..., j] is a transposed view of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.errors import InfeasibleError
from akx.formats.base import read_only
from akx.matrix import Matrix
from akx.options import Options, declare
from akx.plan import Option, Plan

__all__ = [
    "Coefficients",
    "Parameter",
    "PlainProducts",
    "Program",
    "Schedule",
    "TimedCall",
    "Traffic",
    "Work",
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


@dataclass(frozen=True)
class Traffic:
    """Modelled work of one call for one start vector: bytes moved from and to slow memory, and floating-point work.

    Attributes
    ----------
    matrix_bytes, vector_bytes : float
        Bytes of matrix data and of vectors that cross the slow-memory bus in all k steps.
    flops : float
        Floating-point operations done, redundant ones included (one multiply-add counts two).
    redundancy : float
        flops done / flops needed, >= 1.
    cache_bytes : float
        Bytes the kernels read through the fast memory (L2) in all k steps.
    synchronisations : float
        Times a thread waits for others.
    """

    matrix_bytes: float
    vector_bytes: float
    flops: float
    redundancy: float = 1.0
    cache_bytes: float = 0.0
    synchronisations: float = 0.0

    @property
    def bytes(self) -> float:
        return self.matrix_bytes + self.vector_bytes


@dataclass(frozen=True)
class Coefficients:
    """The basis recurrence v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} in the program's dtype; each of shape (k,)."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]


@dataclass(frozen=True)
class Work:
    """What a call with all its powers and start vectors makes a device do.

    Attributes
    ----------
    loaded_bytes : float
        Bytes that come before the first step and are hidden by nothing: the matrix, where it stays on the chip.
    memory_bytes, cache_bytes : float
        Bytes between L2 and memory, and between the multiprocessors and L2, in all steps.
    cycles : float
        Cycles that the busiest multiprocessor issues instructions, or reads its shared memory.
    chain : float
        Cycles that the longest chain of loads takes, each of which waits for the one before.
    launches, barriers : float
        Kernels in a graph; times that multiprocessors wait for one another.
    """

    loaded_bytes: float = 0.0
    memory_bytes: float = 0.0
    cache_bytes: float = 0.0
    cycles: float = 0.0
    chain: float = 0.0
    launches: float = 1.0
    barriers: float = 0.0


class Program(ABC):
    """A plan made ready for one matrix on one device. Not safe for two concurrent :meth:`run` calls.

    A program has :attr:`nbytes`, :meth:`run` and :meth:`update_values`; all else has a default that suits most.
    """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays the program holds; where it streams, of those on the device."""

    @abstractmethod
    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        """Fill out (k+1, b, n), C-contiguous, from x (b, n), C-contiguous; out[0] becomes x.

        Programs of the GPU take two arrays of the host, or two that are a ``DeviceArray``.
        """

    def run_beside(
        self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients, meanwhile: Callable[[], bool]
    ) -> bool:
        """:meth:`run` on arrays of the host, and what `meanwhile` says, which is done while a device works."""
        self.run(x, out, coefficients)
        return meanwhile()

    @abstractmethod
    def update_values(self, data: NDArray[Any]) -> None:
        """Take new values, given in the order of the matrix's canonical CSR data, without a new plan.

        Programs of the GPU take them from there too, as a ``DeviceArray`` of their type or a narrower one.
        """

    @property
    def host_nbytes(self) -> int:
        """Bytes in the host's memory that :attr:`nbytes` does not count: 0 but where the matrix is page-locked."""
        return 0

    @property
    def staged_nbytes(self) -> int:
        """Of :attr:`nbytes` those of vectors, which a call has made: 0 where it needs none."""
        return 0

    @property
    def stored_error(self) -> float:
        """The largest relative error of the values that it has now; 0 where they are stored as they are."""
        return 0.0

    @property
    def is_as_planned(self) -> bool:
        """Whether it does what its plan says: False where values could not be stored so, or memory was too short."""
        return True

    @property
    def is_as_captured(self) -> bool:
        """Whether graphs of callers that have calls in them do what calls do now; also where there are none."""
        return True

    @property
    def takes_any_order(self) -> bool:
        """Whether start vectors of the host may have any strides: else (b, n) has to be C-contiguous."""
        return False

    @property
    def is_recordable(self) -> bool:
        """Whether calls can be part of a graph (:meth:`repeated`): not where the matrix comes from the host."""
        return False

    @property
    def recordings(self) -> dict[Hashable, Any]:
        """Graphs that solvers have recorded of calls with work of their own behind them, by all that they depend on.

        They are gone where the program gets other kernels or other arrays.
        """
        found: dict[Hashable, Any] = self.__dict__.setdefault("_recordings", {})
        return found

    def ready(self, vectors: int) -> None:  # noqa: B027
        """Compile and allocate what calls with so many start vectors need; cheap when it is done. By default nothing.

        A call does it itself, where it was not done before.
        """

    def make_room(self) -> None:  # noqa: B027
        """Give up memory of the device that calls can do without. By default nothing."""

    def new_result(self, vectors: int) -> NDArray[Any] | None:
        """An array (k+1, vectors, n) that :meth:`run` fills faster than any other; None, the default: any will do."""
        return None

    def is_own_result(self, out: NDArray[Any]) -> bool:
        """Whether `out` (k+1, b, n) is an array of :meth:`new_result`, whole."""
        return False

    def queue_of(self, x: NDArray[Any], coefficients: Coefficients) -> Callable[[], None] | None:
        """What queues a call on `x` (b, n) that lies, as its results do, in page-locked memory of the program's own.

        None, the default, where vectors are on the device, and have to be sent there (:meth:`staged`).
        """
        return None

    def staged(self, vectors: int) -> tuple[Any, Any]:
        """The arrays (b, n) and (k+1, b, n) on the device that calls with arrays of the host go through."""
        raise NotImplementedError(f"{type(self).__name__} has no vectors on a device")

    def repeated(
        self, x: Any, out: Any, coefficients: Coefficients, count: int, then: Callable[[Any], None] | None = None
    ) -> Any:
        """`count` calls on arrays of the device as one graph, each followed by what `then` queues on a stream."""
        raise NotImplementedError(f"{type(self).__name__} cannot be part of a graph")


class PlainProducts(ABC):
    """Products of a matrix as it is, on a device, until preparing has paid; see :meth:`Backend.plain_products`."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes on the device."""

    @abstractmethod
    def program(self, k: int) -> Program:
        """The program for k products."""


class TimedCall(ABC):
    """Work that is done again and again, and has a clock of its own: that of a device, say."""

    @abstractmethod
    def __call__(self) -> object:
        """Do the work once, to its end."""

    @abstractmethod
    def timed(self, batch: int) -> float:
        """Seconds of the work once, over `batch` times."""

    def warm(self, batch: int) -> None:
        """Make it as it will be timed, `batch` times: what others have left in caches must not tell."""
        self()


class Schedule(ABC):
    """What every schedule of every backend provides.

    A schedule says :meth:`space`, :meth:`feasible`, :meth:`traffic` and :meth:`prepare`; all else has a default.
    `device` is a :class:`akx.device.host.HostDevice` or a :class:`akx.device.cuda.facts.CudaDevice`, as the backend is.

    Attributes
    ----------
    name, backend : str
        As in plans.
    options : type of Options
        What it declares of its plans' options, and of itself (:mod:`akx.options`).
    revision : int
        Raised when its plans would be chosen anew (:mod:`akx.kernels.revisions`).
    description : str
        In a few words.
    may_crash : bool
        Whether a program may use an address it must not, or wait for ever: then it first runs in a process of its own.
    layout_shares, layout_turn : int
        Processes that compile its layouts ahead of a search (:meth:`lay_out`), each beginning with another order of the
        rows; and its turn among the schedules, the lower the sooner.
    step_price : str
        The figure of a device (:class:`akx.tuner.machine.Figures`) that a step of :meth:`plainest` costs where there
        is next to nothing to do; "" where it is not timed for one.
    """

    name: str
    backend: str
    options: type[Options] = Options
    revision: int = 1
    description: str = ""
    may_crash: bool = True
    layout_shares: int = 0
    layout_turn: int = 0
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

    def offers(self, matrix: Matrix, device: Any, k: int) -> tuple[Plan, ...] | None:
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


def held_bytes(program: Program) -> int:
    """Bytes that a program holds, wherever: those of one that keeps its matrix in page-locked memory count too."""
    return int(program.nbytes) + int(program.host_nbytes)


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


def as_coefficients(a: Any, b: Any, c: Any, dtype: np.dtype[Any]) -> Coefficients:
    """Coefficients cast to `dtype`, contiguous, and read-only as a basis has them: compiled code is for one kind."""
    return Coefficients(*(read_only(np.ascontiguousarray(v, dtype=dtype)) for v in (a, b, c)))
