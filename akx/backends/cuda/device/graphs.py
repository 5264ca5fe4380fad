"""Graphs: work that is recorded once and launched in one go, for the same arrays or for others of their size."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.device.runtime import call, failed, give_back, runtime
from akx.backends.cuda.device.streams import Stream, default_stream
from akx.core.errors import DeviceError
from akx.core.garbage_collection import nothing_collected

__all__ = ["Graph", "Launch", "capture"]


class Launch(NamedTuple):
    """A kernel in a graph: its handle, its arguments, and the array of their addresses."""

    function: int
    values: list[Any]
    addresses: Any

    def is_of(self, parameters: Any) -> bool:
        """Whether these are the parameters of its node; one of another launch with the same arguments is as good."""
        if int(parameters.func) != self.function:
            return False
        theirs = (ctypes.c_void_p * len(self.values)).from_address(int(parameters.kernelParams))
        pairs = zip(self.values, theirs, strict=True)
        return all(value.tobytes() == ctypes.string_at(at, value.nbytes) for value, at in pairs)


class Graph:
    """A recorded sequence of work, launched in one go; made by :func:`capture`.

    `is_movable`: whether :meth:`move` works: after :meth:`follow`.
    """

    def __init__(self) -> None:
        self._executable: Any = None
        self._recorded: Any = None  # nodes are nodes of this
        self._of: Graph | None = None  # or of that
        self._launches: list[Launch] = []
        self._places: list[tuple[Any, Any, list[tuple[Any, int, int]]]] = []
        self._at: tuple[int, ...] = ()
        self._start = runtime().driver.cuGraphLaunch
        self.is_movable = False

    def launch(self, stream: Stream | None = None) -> None:
        """Queue the whole sequence. Raises :class:`DeviceError` where nothing was recorded."""
        if self._executable is None:
            raise DeviceError("the graph is not complete", hint="leave the block of capture() first")
        on = default_stream() if stream is None else stream
        call("cuGraphLaunch", self._executable, on.raw, doing="launching a graph")

    def launch_here(self, stream: Stream) -> None:
        """The same where the context is current."""
        (code,) = self._start(self._executable, stream.raw)
        if int(code) != 0:
            raise failed(code, "launching a graph")

    def follow(self, *arrays: DeviceArray) -> bool:
        """Whether the graph, recorded for these arrays, can be moved to others of their size from now on.

        It can where all its work is kernels. An argument that points into an array moves with it.
        """
        live, places = runtime(), []
        if self._recorded is None:
            return False
        with live.active():
            _, count = live.call("cuGraphGetNodes", self._recorded, doing="looking at a graph")
            if int(count) != len(self._launches):
                return False
            nodes, _ = live.call("cuGraphGetNodes", self._recorded, count, doing="looking at a graph")
            left = [(node, live.call("cuGraphKernelNodeGetParams", node, doing="looking at a graph")) for node in nodes]
        for one in self._launches:  # in whatever order the driver has them
            found = next((pair for pair in left if one.is_of(pair[1])), None)
            if found is None:
                return False
            left = [pair for pair in left if pair is not found]
            found[1].kernelParams = ctypes.addressof(one.addresses)
            moved = [(value, *place) for value in one.values if (place := _place(value, arrays)) is not None]
            if moved:
                places.append((*found, moved))
        self._places, self._at, self.is_movable = places, tuple(array.pointer for array in arrays), True
        return True

    def move(self, *pointers: int) -> None:
        """Let launches from now on have arrays at other addresses, in the order of :meth:`follow`."""
        if pointers == self._at:
            return
        live, self._at = runtime(), ()
        change = live.driver.cuGraphExecKernelNodeSetParams
        with live.active():  # without a context the driver ends the process
            for node, parameters, moved in self._places:
                for value, array, offset in moved:
                    value[0] = pointers[array] + offset
                (code,) = change(self._executable, node, parameters)
                if int(code) != 0:
                    raise failed(code, "moving a graph")
        self._at = pointers

    def another(self) -> Graph:
        """One more of the same, which moves by itself; it has to be moved before it is launched."""
        made, source = Graph(), self._of or self
        made._executable = call("cuGraphInstantiate", source._recorded, 0, doing="making a graph")
        made._of, made._places, made.is_movable = source, source._places, True
        return made

    def __del__(self, give_back: Callable[..., None] = give_back) -> None:
        if self._executable is not None:
            give_back("cuGraphExecDestroy", self._executable)
        if self._recorded is not None:
            give_back("cuGraphDestroy", self._recorded)


def _place(value: Any, arrays: Sequence[DeviceArray]) -> tuple[int, int] | None:
    """Of an argument that points into one of the arrays: which, and how many bytes after its begin."""
    if value.dtype != np.uint64:
        return None
    address = int(value[0])
    for number, array in enumerate(arrays):
        if array.pointer <= address < array.pointer + array.nbytes:
            return number, address - array.pointer
    return None


@contextlib.contextmanager
def capture(stream: Stream | None = None, *, movable: bool = False) -> Iterator[Graph]:
    """Record the work queued on `stream` within the block, instead of doing it.

    With `movable` what :meth:`Graph.follow` needs is kept.

    >>> with capture(stream) as graph:  # doctest: +SKIP
    ...     kernel.launch(1, 32, [], stream=stream)
    >>> graph.launch(stream)  # doctest: +SKIP
    """
    on = default_stream() if stream is None else stream
    graph = Graph()
    live = runtime()
    # Memory that is freed meanwhile, by the garbage collector or with its last name, must not spoil the recording.
    mode = live.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    with live.active(), nothing_collected():
        live.call("cuStreamBeginCapture", on.raw, mode, doing="recording a graph")
        on.launches = graph._launches if movable else None
        try:
            yield graph
        except BaseException:
            code, recorded = live.driver.cuStreamEndCapture(on.raw)
            if int(code) == 0:
                live.driver.cuGraphDestroy(recorded)
            raise
        finally:
            on.launches = None
        recorded = live.call("cuStreamEndCapture", on.raw, doing="recording a graph")
        try:
            graph._executable = live.call("cuGraphInstantiate", recorded, 0, doing="making a graph")
            graph._recorded = recorded if movable else None
        finally:
            if graph._recorded is None:
                live.driver.cuGraphDestroy(recorded)
