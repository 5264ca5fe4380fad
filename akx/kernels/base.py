"""The protocol of a schedule: what the tuner, the operator and the tests may know of one, and nothing more.

A schedule is a small object registered once in :mod:`akx.kernels.registry`. It describes its own search space, says
whether a plan is feasible for a matrix, models the traffic of a plan, and prepares a *program*. Array conventions
inside kernels: the start vectors are a C-contiguous array of shape (b, n); the result W is a C-contiguous array of
shape (k+1, b, n), so that every vector is contiguous; the user's V[..., j] is a transposed view of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from akx.errors import InfeasibleError
from akx.matrix import Matrix
from akx.plan import Option, Plan

__all__ = [
    "Coefficients",
    "Parameter",
    "Program",
    "Schedule",
    "Traffic",
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


@runtime_checkable
class Program(Protocol):
    """A plan made ready for one matrix on one device. Not safe for two concurrent :meth:`run` calls."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays the program holds."""
        ...

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        """Fill out (k+1, b, n), C-contiguous, from x (b, n), C-contiguous; out[0] becomes x."""
        ...

    def update_values(self, data: NDArray[Any]) -> None:
        """Take new values, given in the order of the matrix's canonical CSR data, without a new plan.

        Programs of the GPU take them from there too, as a ``DeviceArray`` of their type or a narrower one.
        """
        ...


class Schedule(Protocol):
    """What every schedule of every backend provides.

    `device` is a :class:`akx.device.host.HostDevice` or a :class:`akx.device.cuda.facts.CudaDevice`, as the backend is.
    `revision` is raised when its plans would be chosen anew (:mod:`akx.kernels.revisions`).
    """

    name: str
    backend: str
    revision: int
    description: str

    def space(self, matrix: Matrix, device: Any, k: int) -> tuple[Parameter, ...]:
        """The tuning parameters that make sense for this matrix, device and k."""
        ...

    def feasible(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        """None where the plan can be prepared, else the reason why not."""
        ...

    def traffic(self, plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        """The byte and flop model of the plan; one model for the roofline, the predictor and the docs."""
        ...

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        """Lay the matrix out and make the program. Raises :class:`InfeasibleError` where it cannot be done."""
        ...


def held_bytes(program: Any) -> int:
    """Bytes that a program holds, wherever: those of one that keeps its matrix in page-locked memory count too."""
    return int(program.nbytes) + int(getattr(program, "host_nbytes", 0))


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
    """Coefficients cast to `dtype` and made contiguous."""
    return Coefficients(*(np.ascontiguousarray(v, dtype=dtype) for v in (a, b, c)))
