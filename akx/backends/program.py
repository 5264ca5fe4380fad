"""Programs: a plan made ready for one matrix on one device, and the plain products of first calls, which have no plan.

Array conventions inside kernels: the start vectors are a C-contiguous array of shape (b, n); the result W is a
C-contiguous array of shape (k+1, b, n), so that every vector is contiguous; the user's V[..., j] is a transposed view
of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.core.canonical import read_only

__all__ = ["Coefficients", "PlainProducts", "Program", "TimedCall", "as_coefficients", "held_bytes"]


class Coefficients(NamedTuple):
    """The basis recurrence v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} in the program's dtype; each of shape (k,)."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]


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
    def variant_instead(self) -> str | None:
        """The variant that it multiplies with where values cannot be stored as the plan's; None where they are."""
        return None

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


def held_bytes(program: Program) -> int:
    """Bytes that a program holds, wherever: those of one that keeps its matrix in page-locked memory count too."""
    return int(program.nbytes) + int(program.host_nbytes)


def as_coefficients(a: Any, b: Any, c: Any, dtype: np.dtype[Any]) -> Coefficients:
    """Coefficients cast to `dtype`, contiguous, and read-only as a basis has them: compiled code is for one kind."""
    return Coefficients(*(read_only(np.ascontiguousarray(v, dtype=dtype)) for v in (a, b, c)))
