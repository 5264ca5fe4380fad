"""New values for a matrix on the device from data that is there too, without a way over the host.

A layout keeps its values in places, padding among them; a map says which entry of the CSR data each place has: one plus
its number, 0 for padding. ``values[p] = data[map[p] - 1]``, or zero, is one kernel (``values.cu``), ordered on the
stream of all work. Data may be narrower than the values: a program for complex vectors takes real data as it is.

Bytes per update: for each place 4 of the map and the value written, for each entry at least its own bytes read, more
where neighbouring places are of entries far from one another. The map is made when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import CallerStream, Graph, Stream, capture, spare_stream
from akx.backends.cuda.device.memory import DeviceArray, to_device, wrap, zeros
from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.program import C_TYPES
from akx.core.fork_safety import ForkSafeLock

__all__ = ["GIVEN", "FiniteWatch", "Places", "all_finite", "entry_map", "not_empty"]

#: Types of data that values of a type are made from.
GIVEN = {
    "float32": ("float32",),
    "float64": ("float64", "float32"),
    "complex64": ("complex64", "float32"),
    "complex128": ("complex128", "complex64", "float64", "float32"),
}
_SOURCE = Path(__file__).with_name("values.cu")
#: Threads per block, and places per thread.
_BLOCK, _EACH = 256, 4


def entry_map(slot: NDArray[Any], places: int) -> NDArray[np.uint32]:
    """The map of a format that knows the place of each entry: ``values[slot] = data``.

    `slot`: (nnz,) array of unsigned integers. `places`: padding included, less than 2**32.
    """
    found = np.zeros(places, dtype=np.uint32)
    found[slot] = np.arange(1, slot.size + 1, dtype=np.uint32)
    return found


class Places:
    """Where entries go, for one program; the map comes to the device with the first update, unless it is there.

    `make`: makes the map, or None where the first places are the entries themselves. `entry`: the map on the device.
    """

    def __init__(
        self, make: Callable[[], NDArray[np.uint32] | None] | None = None, entry: DeviceArray | None = None
    ) -> None:
        self._make, self._entry = make, entry
        self._kernels: dict[tuple[Any, Any], Any] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the map on the device so far."""
        return 0 if self._entry is None else self._entry.nbytes

    @property
    def entry(self) -> DeviceArray | None:
        """The map on the device; None where the first places are the entries."""
        if self._make is not None:
            found = self._make()
            self._entry, self._make = None if found is None else to_device(found), None
        return self._entry

    def fill(self, values: DeviceArray, data: DeviceArray) -> None:
        """Queue the update of all `values` from `data`, (nnz,) of a type in :data:`GIVEN` for them."""
        entry = self.entry
        count = data.size if entry is None else min(values.size, entry.size)
        if count:
            where: Any = np.uint64(0) if entry is None else entry
            kernel = self._kernels.get((values.dtype, data.dtype))
            if kernel is None:  # looking it up takes as long as small updates
                kernel = self._kernels[values.dtype, data.dtype] = _kernel("place", values.dtype, data.dtype)
            kernel.launch(-(-count // (_BLOCK * _EACH)), _BLOCK, [np.uint64(count), where, data, values])


def not_empty(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or one of a single zero where it is empty: kernels are given an address in any case."""
    return array if array.size else np.zeros(1, dtype=array.dtype)


def all_finite(data: DeviceArray) -> bool:
    """Whether no entry is NaN or infinite. Waits for the device."""
    found = zeros(1, np.uint32)
    _examine(_kernel("examine", data.dtype, data.dtype), data, found)
    return not found.get()[0]


class FiniteWatch:
    """Which of some vectors on the device are not finite. Nothing waits: kernels write to words of the host.

    `count`: vectors.
    """

    def __init__(self, count: int) -> None:
        self._lock = ForkSafeLock()  # over a move and the launch behind it
        self._words = pinned(count, np.uint32)
        self._words[:] = 0
        self._octets, self._none = self._words.data.cast("B"), bytes(self._words.nbytes)
        self._form: Any = None
        self._graph: Graph | None = None
        self._kernel: Any = None

    def look(self, vectors: DeviceArray, caller: CallerStream) -> None:
        """Queue a look at vectors (count, ...), in order: kernels at first, then a graph for all of that shape."""
        with self._lock:
            form = vectors.shape, vectors.dtype
            if self._form != form:
                self._form, self._graph, self._kernel = form, None, _kernel("examine", vectors.dtype, vectors.dtype)
            elif self._graph is None:
                with spare_stream() as own, capture(own, movable=True) as self._graph:
                    self._queue(own, vectors)
                self._graph.follow(vectors)
            if self._graph is not None and self._graph.is_movable:
                self._graph.move(vectors.pointer)
                caller.submit(self._graph.launch)
            else:
                caller.submit(partial(self._queue, vectors=vectors))

    def _queue(self, stream: Stream, vectors: DeviceArray) -> None:
        for number in range(len(vectors)):
            word = self._words[number : number + 1]
            found = wrap(word.ctypes.data, word.shape, word.dtype, self._words)
            _examine(self._kernel, vectors[number], found, stream)

    @property
    def first(self) -> int | None:
        """The first vector of those looked at so far that was not finite; None where there was none."""
        return None if self._octets == self._none else int(np.flatnonzero(self._words)[0])


def _examine(kernel: Any, data: DeviceArray, found: DeviceArray, stream: Stream | None = None) -> None:
    """Queue the write of 1 to `found`, (1,) uint32, where an entry is NaN or infinite."""
    if data.size:
        kernel.launch(-(-data.size // _BLOCK), _BLOCK, [np.uint64(data.size), data, found], stream=stream)


def _kernel(name: str, kept: np.dtype[Any], given: np.dtype[Any]) -> Any:
    macros: dict[str, int | str] = {"AKX_VALUE": C_TYPES[kept.name], "AKX_GIVEN": C_TYPES[given.name]}
    macros["AKX_EACH"] = _EACH
    return load(_SOURCE, macros, device=cuda_device()).kernel(name)
