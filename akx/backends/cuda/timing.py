"""Trials on a GPU: vectors that stay on the device, or in the host's memory, and a clock made of events.

A call is timed as it is used again and again: its kernels are recorded into a CUDA graph, several calls one after
another, and the device's own clock is read before and after the graph. What the host does to launch is not part of it.

Within a memory budget vectors are at home in the host's memory, page-locked: then a call also brings x there and the
results back, whatever the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from akx.backends.base import TrialVectors
from akx.backends.cuda.device.copies import bring_rows, send
from akx.backends.cuda.device.launch import Event, Graph, Stream, default_stream
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.device.pool import memory_pool, pinned
from akx.backends.cuda.device.runtime import runtime
from akx.backends.schedule import Coefficients, Program, TimedCall

__all__ = ["DeviceCall", "DeviceProblem", "HostCall", "HostProblem", "free_bytes"]

#: Products in one graph at most: larger graphs take long to make and no shorter to run.
_PRODUCTS = 256


def free_bytes() -> int:
    """Bytes of the device's memory that other processes of this search may share; 0 where akx may not take all."""
    if memory_pool().budget is not None:
        return 0
    with runtime().active() as live:
        return int(live.call("cuMemGetInfo")[0])


def _seconds(stream: Stream, events: tuple[Event, Event], queue: Callable[[], object]) -> float:
    """Of the work that is queued, by the device's clock."""
    begin, end = events
    begin.record(stream)
    queue()
    end.record(stream)
    end.synchronize()
    return end.seconds_since(begin)


class DeviceCall(TimedCall):
    """Work on the device that is done again and again; :meth:`timed` is what the tuner's clock asks.

    `run`: queues the work once. `repeated`: ``repeated(count)`` is a graph of the work done so many times. `products`:
    products in the work, to bound the size of a graph.
    """

    def __init__(self, run: Callable[[], object], repeated: Callable[[int], Graph], products: int) -> None:
        self._run, self._repeated, self._products = run, repeated, products
        self._graphs: dict[int, Graph] = {}
        self._stream = default_stream()
        self._events = Event(), Event()

    @staticmethod
    def of(program: Any, x: DeviceArray, out: DeviceArray, coefficients: Coefficients) -> DeviceCall:
        """A call of a program on arrays of the device."""
        return DeviceCall(
            partial(program.run, x, out, coefficients),
            partial(program.repeated, x, out, coefficients),
            coefficients.a.size,
        )

    def __call__(self) -> None:
        self._run()
        self._stream.synchronize()

    def warm(self, batch: int) -> None:
        """Do the work as often as it will be timed: what L2 keeps of another call's data goes over several calls.

        A sweep whose matrix L2 holds took 157 us behind a batch of another plan, and 134 behind one of its own, with
        one call in between.
        """
        self._launch(*self._graph(batch)[:2])

    def timed(self, batch: int) -> float:
        """Seconds of one call, by the device's clock, over `batch` calls or a few more."""
        graph, launches, size = self._graph(batch)
        return _seconds(self._stream, self._events, partial(self._launch, graph, launches)) / (launches * size)

    def _graph(self, batch: int) -> tuple[Graph, int, int]:
        """A graph of some calls, how often it is launched for `batch` of them at least, and how many are in it."""
        size = max(1, min(batch, _PRODUCTS // self._products))
        graph = self._graphs.get(size)
        if graph is None:
            graph = self._graphs[size] = self._repeated(size)
        return graph, -(-batch // size), size

    def _launch(self, graph: Graph, launches: int) -> None:
        for _ in range(launches):
            graph.launch(self._stream)


class DeviceProblem(TrialVectors):
    """The vectors of a problem on the device."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self._x = to_device(problem.x)
        self._out = empty(problem.out.shape, problem.out.dtype)

    def poison(self) -> None:
        self._out.fill_bytes(255)

    def fetch(self) -> None:
        self._out.get(self._problem.out)

    def queue(self, program: Any) -> None:
        program.run(self._x, self._out, self._problem.coefficients)

    def call(self, program: Program) -> DeviceCall:
        return DeviceCall.of(program, self._x, self._out, self._problem.coefficients)


class HostCall(TimedCall):
    """A program's call on vectors of the host: done once for its result, timed between page-locked vectors.

    `program`: on the device; where it streams it has page-locked vectors of its own. `x`, `out`: (b, n) and (k+1, b,
    n).
    """

    def __init__(self, program: Program, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        self._program, self._x, self._out, self._coefficients = program, x, out, coefficients
        self._stream, self._events = default_stream(), (Event(), Event())
        self._queue = program.queue_of(x, coefficients) or self._copied()

    def __call__(self) -> None:
        self._program.run(self._x, self._out, self._coefficients)
        self._stream.synchronize()

    def timed(self, batch: int) -> float:
        return _seconds(self._stream, self._events, lambda: [self._queue() for _ in range(batch)]) / batch

    def _copied(self) -> Callable[[], None]:
        x, out = self._program.staged(self._x.shape[0])  # the program has them anyway: no second pair
        here, there = pinned(self._x.shape, self._x.dtype), pinned(self._out.shape, self._out.dtype)
        here[:] = self._x

        def queue() -> None:
            send(x.pointer, here.ctypes.data, x.nbytes, self._stream)
            self._program.run(x, out, self._coefficients)
            bring_rows(there.ctypes.data, out.nbytes, out.pointer, out.nbytes, out.nbytes, 1, self._stream)

        return queue


class HostProblem(TrialVectors):
    """The vectors of a problem in the host's memory, for programs within a memory budget."""

    def call(self, program: Program) -> HostCall:
        return HostCall(program, self._problem.x, self._problem.out, self._problem.coefficients)
