"""What programs on the GPU share: where vectors come from, coefficients, and the graph of a call.

A call is a sequence of kernels that only depends on the program and on the addresses of x and out. The first ones with
so many start vectors are queued kernel by kernel, the next one is recorded as a graph, and all others are one launch. A
pair of addresses that comes often has a graph of its own; for those that do not, one graph is moved from pair to pair.
To record a kernel takes the host as long as to queue it some five times (60 and 12 us on the host of an H100), and so
does another graph beside moves of one: either is done when it would have paid.
Coefficients are in device memory, so that new ones do not make a new graph. Arrays of the host are copied to and from
arrays of the program. Work is queued on akx's own stream, or on that of a caller whose arrays are on the device.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.launch import CallerStream, Graph, Stream, capture, default_stream, spare_stream
from akx.backends.cuda.device.memory import LARGE, DeviceArray, empty, to_device
from akx.backends.cuda.device.pool import pinned
from akx.backends.program import Coefficients, Program
from akx.core.errors import DeviceError, DeviceMemoryError

__all__ = ["C_TYPES", "CudaProgram"]

#: What the value types are called in the kernels.
C_TYPES = {"float32": "float", "float64": "double", "complex64": "cfloat", "complex128": "cdouble"}
#: Graphs kept, one for each pair of addresses and number of start vectors; and pairs that are remembered without.
_GRAPHS, _PAIRS = 16, 64
#: Times that a pair has to come for a graph that another one has to give way for.
_OFTEN = 8
#: Calls with so many start vectors before a graph is recorded, and those of a pair before it has one of its own.
_PAYS = 5


#: Addresses of x and out, and the number of start vectors.
_Pair = tuple[int, int, int]


class CudaProgram(Program):
    """A plan on the GPU; see :class:`akx.backends.program.Program`. Subclasses say what a call queues.

    `stream`: where :meth:`enqueue` puts the work: the stream of all work, or one that records a graph.
    """

    def __init__(self, n: int, k: int, dtype: np.dtype[Any]) -> None:
        self.n, self.k, self.dtype = n, k, np.dtype(dtype)
        self.stream: Stream = default_stream()
        self._arrays: list[DeviceArray] = []
        self._coefficients: Coefficients | None = None
        self._on_device = empty((k, 3), self.dtype)
        self._graphs: OrderedDict[_Pair, Graph] = OrderedDict()
        self._pairs: OrderedDict[_Pair, int] = OrderedDict()
        self._moving: dict[tuple[int, bool], Graph] = {}
        self._one_by_one: dict[tuple[int, bool], int] = {}
        self._can_move = True
        self._captured: list[list[DeviceArray]] = []
        self._staging: tuple[DeviceArray, DeviceArray] | None = None
        self._locked: NDArray[Any] | None = None  # x on its way there

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
        held = {id(array): array.nbytes for arrays in (self._kept(), *self._captured) for array in arrays}
        return sum(held.values()) + self.staged_nbytes

    @property
    def staged_nbytes(self) -> int:
        """Of :attr:`nbytes` those of vectors: the arrays of :meth:`staged`, where a call has made them."""
        return sum(array.nbytes for array in self._staging or ())

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        """Fill out (k+1, b, n) from x (b, n): both NumPy arrays, or both :class:`DeviceArray`.

        On the device the work is queued on `stream`, and done when that has been synchronised.
        """
        if isinstance(x, DeviceArray):
            self.work_of(x, out, coefficients)(self.stream)
        else:
            self.run_beside(x, out, coefficients, lambda: True)

    def run_beside(
        self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients, meanwhile: Callable[[], bool]
    ) -> bool:
        held_x, held_out = self.staged(x.shape[0])
        self._send(x, held_x)
        self.work_of(held_x, held_out, coefficients)(self.stream)
        out[0] = x
        found = meanwhile()
        held_out.view(x.size, (self.k, *x.shape)).get(out[1:])
        return found

    def _send(self, x: NDArray[Any], held: DeviceArray) -> None:
        """Queue the copy of x to the device, where it goes through page-locked memory; nothing is waited for then."""
        if x.nbytes < LARGE and self._locked is None:
            with contextlib.suppress(DeviceMemoryError):
                self._locked = pinned(x.shape, self.dtype)
        if x.nbytes >= LARGE or self._locked is None:
            held.set(x)
            return
        self._locked[...] = x
        held.queue_from(self._locked)

    def work_of(self, x: DeviceArray, out: DeviceArray, coefficients: Coefficients) -> Callable[[Stream], None]:
        """What queues a call on a stream, such as a caller's; all that may have to be made for it is made now."""
        self.ready(x.shape[0])
        self.take(coefficients)
        graph = self._graph_for(x, out)
        return partial(self._queue, x=x, out=out) if graph is None else graph.launch

    def graph_of(self, x: int, out: int, vectors: int, coefficients: Coefficients) -> Graph | None:
        """The graph of a call by its addresses; None where there is more to do than to launch it."""
        if coefficients is not self._coefficients:
            return None
        pair = (x, out, vectors)
        graph = self._graphs.get(pair)
        if graph is not None:
            self._graphs.move_to_end(pair)
            return graph
        graph = self._moving.get((vectors, x == out))
        if graph is None or self._is_due(pair) or not self._moves(graph, pair):
            return None
        self._note(pair)
        return graph

    def capture_for(self, caller: CallerStream, x: DeviceArray, out: DeviceArray, coefficients: Coefficients) -> None:
        """Queue the kernels of a call on a stream that its owner captures; nothing is made, and nothing waited for.

        The graph that they come into has addresses of the program. So what it has now stays as long as it does, and
        other coefficients go elsewhere.

        Raises :class:`DeviceError` where the coefficients are not on the device.
        """
        if coefficients is not self._coefficients:
            raise DeviceError("the basis is not on the device", hint="call it once before capture, with this basis")
        if not self._captured or not self.is_as_captured:
            self._captured.append(self._kept())
        self._queue(caller, x, out)

    @property
    def is_as_captured(self) -> bool:
        """Whether what callers have captured last does what a call does now."""
        return not self._captured or self._captured[-1] == self._kept()

    def _kept(self) -> list[DeviceArray]:
        return [self._on_device, *self._arrays]

    def forget_graphs(self) -> None:
        """Forget all that was recorded: it has the kernels of now, and where the values are."""
        for kept in (self._graphs, self._pairs, self._moving, self._one_by_one, self.recordings):
            kept.clear()

    def staged(self, vectors: int) -> tuple[DeviceArray, DeviceArray]:
        if self._staging is None or self._staging[0].shape[0] != vectors:
            self._staging = self._locked = None
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
            if self._captured and self._captured[-1][0] is self._on_device:
                self._on_device = empty((self.k, 3), self.dtype)
                self.forget_graphs()
            triples = np.stack([coefficients.a, coefficients.b, coefficients.c], axis=1)
            self._on_device.set(triples.astype(self.dtype))
            self._coefficients = coefficients

    # ------------------------------------------------------------------------------------------------ inside

    def _queue(self, stream: Stream, x: DeviceArray, out: DeviceArray) -> None:
        """Queue a call kernel by kernel."""
        own = self.stream
        try:
            self.stream = stream
            self.enqueue(x, out, self._on_device)
        finally:
            self.stream = own

    def _graph_for(self, x: DeviceArray, out: DeviceArray) -> Graph | None:
        """The graph for these arrays, made where there is none yet; None where kernels are to be queued one by one."""
        pair, form = (x.pointer, out.pointer, x.shape[0]), (x.shape[0], x.pointer == out.pointer)
        graph = self._graphs.get(pair)
        if graph is not None:
            self._graphs.move_to_end(pair)
            return graph
        is_due, queued = self._is_due(pair), self._one_by_one.get(form, 0)
        self._note(pair)
        if queued < _PAYS:
            self._one_by_one[form] = queued + 1
            return None
        if is_due:
            self._pairs[pair] = 0  # where it has to give way, it comes often again before another has to
            graph = self._graphs[pair] = self._copied(form, pair) or self._recorded(x, out)
            while len(self._graphs) > _GRAPHS:
                self._graphs.popitem(last=False)
            return graph
        graph = self._moving.get(form)
        if graph is not None:
            return graph if self._moves(graph, pair) else None
        if not self._can_move:
            return None
        graph = self._copied(form, pair) or self._recorded(x, out)
        if graph.is_movable:
            self._moving[form] = graph
        return graph

    def _is_due(self, pair: _Pair) -> bool:
        """Whether a pair has come so often that it has a graph of its own, the next time."""
        return self._pairs.get(pair, 0) >= (_PAYS if len(self._graphs) < _GRAPHS else _OFTEN)

    def _note(self, pair: _Pair) -> None:
        """A pair has come."""
        self._pairs[pair] = self._pairs.pop(pair, 0) + 1
        while len(self._pairs) > _PAIRS:
            self._pairs.popitem(last=False)

    def _copied(self, form: tuple[int, bool], pair: _Pair) -> Graph | None:
        """The graph of a pair, made of another one of its form; None where there is none that can be moved."""
        for (at, to, vectors), known in self._graphs.items():
            if (vectors, at == to) == form and known.is_movable:
                graph = known.another()
                return graph if self._moves(graph, pair) else None
        moving = self._moving.get(form)
        if moving is None:
            return None
        graph = moving.another()
        return graph if self._moves(graph, pair) else None

    def _recorded(self, x: DeviceArray, out: DeviceArray) -> Graph:
        """The graph of a call, which can be moved to other arrays where the driver lets it."""
        graph = self._record(x, out, 1, movable=self._can_move)
        if self._can_move:
            graph.follow(x, out)
        return graph

    def _moves(self, graph: Graph, pair: _Pair) -> bool:
        """Whether a graph could be moved to a pair; one that could not is not tried again."""
        try:
            graph.move(pair[0], pair[1])
        except DeviceError:
            self._can_move = False
            self.forget_graphs()
            return False
        return True

    def _record(
        self,
        x: DeviceArray,
        out: DeviceArray,
        count: int,
        then: Callable[[Stream], None] | None = None,
        *,
        movable: bool = False,
    ) -> Graph:
        """`count` calls as a graph, recorded on a stream that no other thread has: it would record their work too."""
        with spare_stream() as stream, capture(stream, movable=movable) as graph:
            for _ in range(count):
                self._queue(stream, x, out)
                if then is not None:
                    then(stream)
        return graph
