"""What programs on the GPU share: where vectors come from, coefficients, and the graph of a call.

A call is a sequence of kernels that only depends on the program and on the addresses of x and out. It is queued kernel
by kernel the first time that a pair of addresses is seen, recorded as a graph the second time, and one launch from then
on. Coefficients are in device memory, so that new ones do not make a new graph. Arrays of the host are copied to and
from arrays of the program.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.device.cuda.launch import Graph, Stream, capture, default_stream, spare_stream
from akx.device.cuda.memory import DeviceArray, empty, to_device
from akx.kernels.base import Coefficients, Program

__all__ = ["C_TYPES", "CudaProgram"]

#: What the value types are called in the kernels.
C_TYPES = {"float32": "float", "float64": "double", "complex64": "cfloat", "complex128": "cdouble"}
#: Graphs kept, one for each pair of addresses and number of start vectors.
_GRAPHS = 16


class CudaProgram(Program):
    """A plan on the GPU; see :class:`akx.kernels.base.Program`. Subclasses say what a call queues.

    Attributes
    ----------
    n, k : int
    dtype : numpy.dtype
    stream : Stream
        Where :meth:`enqueue` puts the work: the stream of all work, or one that records a graph.
    """

    def __init__(self, n: int, k: int, dtype: np.dtype[Any]) -> None:
        self.n, self.k, self.dtype = n, k, np.dtype(dtype)
        self.stream: Stream = default_stream()
        self._arrays: list[DeviceArray] = []
        self._coefficients: Coefficients | None = None
        self._on_device = empty((k, 3), self.dtype)
        self._graphs: OrderedDict[tuple[int, int, int], Graph | None] = OrderedDict()
        self._staging: tuple[DeviceArray, DeviceArray] | None = None

    # ------------------------------------------------------------------------------------------------ subclasses

    @abstractmethod
    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        """Queue one call on `stream`: x (b, n), out (k+1, b, n) with out[0] to become x, coefficients (k, 3).

        Nothing but launches and copies on `stream`, so that it can be recorded. What has to be made for a number of
        start vectors is made in :meth:`ready`.
        """

    @abstractmethod
    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """Take new values, in the order of the matrix's canonical CSR data: of the host, or queued from the device."""

    @abstractmethod
    def ready(self, vectors: int) -> None:
        """Compile and allocate what calls with so many start vectors need; asked before each call, cheap when done."""

    def hold(self, array: NDArray[Any]) -> DeviceArray:
        """A copy of a host array on the device, counted in :attr:`nbytes`."""
        return self.held(to_device(array))

    def held(self, array: DeviceArray) -> DeviceArray:
        """Count a device array in :attr:`nbytes`."""
        self._arrays.append(array)
        return array

    # ------------------------------------------------------------------------------------------------ of all programs

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(array.nbytes for array in self._arrays) + self._on_device.nbytes + self.staged_nbytes

    @property
    def staged_nbytes(self) -> int:
        """Of :attr:`nbytes` those of vectors: the arrays of :meth:`staged`, where a call has made them."""
        return sum(array.nbytes for array in self._staging or ())

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        """Fill out (k+1, b, n) from x (b, n): both NumPy arrays, or both :class:`DeviceArray`.

        On the device the work is queued on `stream`, and done when that has been synchronised.
        """
        if isinstance(x, DeviceArray):
            self._launch(x, out, coefficients)
            return
        held_x, held_out = self.staged(x.shape[0])
        held_x.set(x)
        self._launch(held_x, held_out, coefficients)
        out[0] = x
        held_out.view(x.size, (self.k, *x.shape)).get(out[1:])

    def staged(self, vectors: int) -> tuple[DeviceArray, DeviceArray]:
        """The arrays (b, n) and (k+1, b, n) on the device that calls with arrays of the host go through."""
        if self._staging is None or self._staging[0].shape[0] != vectors:
            self._staging = None
            shapes: Sequence[tuple[int, ...]] = ((vectors, self.n), (self.k + 1, vectors, self.n))
            x, out = (empty(shape, self.dtype) for shape in shapes)
            self._staging = x, out
        return self._staging

    def repeated(
        self,
        x: DeviceArray,
        out: DeviceArray,
        coefficients: Coefficients,
        count: int,
        then: Callable[[Stream], None] | None = None,
    ) -> Graph:
        """`count` calls, one after another, as one graph: what to time where the launch must not be timed.

        With `then` each call is followed by what that queues on the stream that it is given: a solver's own work, with
        which powers are one launch. Coefficients are those of :meth:`take` when the graph is launched.
        """
        self.ready(x.shape[0])
        self.take(coefficients)
        return self._record(x, out, count, then)

    @property
    def is_recordable(self) -> bool:
        """Always."""
        return True

    @property
    def coefficients(self) -> DeviceArray:
        """Those of calls from now on, (k, 3), always in the same place on the device."""
        return self._on_device

    def take(self, coefficients: Coefficients) -> None:
        """Let calls from now on have these coefficients."""
        if coefficients is not self._coefficients:
            triples = np.stack([coefficients.a, coefficients.b, coefficients.c], axis=1)
            self._on_device.set(triples.astype(self.dtype))
            self._coefficients = coefficients

    def forget_graphs(self) -> None:
        """Forget all that was recorded: it has the kernels, and where the arrays are."""
        self._graphs.clear()
        self.recordings.clear()

    # ------------------------------------------------------------------------------------------------ inside

    def _launch(self, x: DeviceArray, out: DeviceArray, coefficients: Coefficients) -> None:
        self.ready(x.shape[0])
        self.take(coefficients)
        key = (x.pointer, out.pointer, x.shape[0])
        graph = self._graphs.get(key)
        if graph is None and key not in self._graphs:
            self.enqueue(x, out, self._on_device)
            self._graphs[key] = None
            while len(self._graphs) > _GRAPHS:
                self._graphs.popitem(last=False)
            return
        if graph is None:
            graph = self._graphs[key] = self._record(x, out, 1)
        self._graphs.move_to_end(key)
        graph.launch(self.stream)

    def _record(
        self, x: DeviceArray, out: DeviceArray, count: int, then: Callable[[Stream], None] | None = None
    ) -> Graph:
        """`count` calls as a graph, recorded on a stream that no other thread has: it would record their work too."""
        own = self.stream
        try:
            with spare_stream() as self.stream, capture(self.stream) as graph:
                for _ in range(count):
                    self.enqueue(x, out, self._on_device)
                    if then is not None:
                        then(self.stream)
        finally:
            self.stream = own
        return graph
