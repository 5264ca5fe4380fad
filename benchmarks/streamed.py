"""What `stream` is measured against: k streamed plain products, thesis Fig. 6.5.

    for i = 1 .. k
        for each block of rows
            send the block, compute its part of v_i, bring that back

as well as it can be done: page-locked memory, blocks sent while the one before is worked on and its results are brought
back, on three streams, all k products in one graph, the same layout and the same kernel as `stream`. Two to four blocks
are on the device at a time, together at most a fraction of the bytes of the matrix in CSR. The vectors stay on the
device as a whole, beyond that budget and for nothing: `stream` must have its vectors within it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.copies import bring_rows, send
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Graph, Mark, Stream, capture, default_stream
from akx.backends.cuda.device.memory import empty
from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.schedules.stream.layout import SLICE, Window, pack, stored_bytes
from akx.backends.cuda.schedules.stream.program import step_kernel
from akx.backends.schedule import Coefficients
from akx.core.matrix import Matrix

__all__ = ["StreamedProducts", "blocks_of"]


def blocks_of(matrix: Matrix, budget: int, slots: int, bits: int) -> Window:
    """Blocks of as many rows as fit the budget `slots` times, in the terms of a window of depth 1."""
    key = ("benchmarks.streamed", budget, slots, bits, matrix.dtype.itemsize)
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = _blocks_of(matrix, budget, slots, bits)
    found: Window = matrix.pattern_cache[key]
    return found


def _blocks_of(matrix: Matrix, budget: int, slots: int, bits: int) -> Window:
    size = matrix.dtype.itemsize
    rows = -(-matrix.n // SLICE) * SLICE
    rows = max(SLICE, int(rows * budget / slots / stored_bytes(matrix, bits)) // SLICE * SLICE)
    while True:
        chunks = -(-matrix.n // rows)
        window = Window(matrix.n, rows, chunks, 0, 1, slots, 0, chunks * rows, 1, size)
        widest = int(np.diff(pack(matrix, window, bits).begin).max())
        if widest * slots <= budget or rows == SLICE:
            return Window(matrix.n, rows, chunks, 0, 1, slots, widest, chunks * rows, 1, size)
        rows = max(SLICE, min(rows - SLICE, int(rows * budget / slots / widest) // SLICE * SLICE))


class StreamedProducts:
    """k streamed plain products of one matrix with one vector.

    Attributes
    ----------
    vectors : (k+1, 1, n) array
        In page-locked memory; v_0 is to be put there.
    """

    def __init__(self, matrix: Matrix, k: int, budget: int, slots: int, variant: str) -> None:
        bits = 16 if variant.startswith("sell16") else 32
        self.window = blocks_of(matrix, budget, slots, bits)
        self.k, self._lanes = k, int(variant.split("-")[1])
        self._chunks = pack(matrix, self.window, bits, pinned)
        self._chunks.data.view(matrix.dtype)[self._chunks.slot] = matrix.data
        self._kernel = step_kernel(matrix.dtype, variant, 1, cuda_device())
        self._slots = empty(slots * self.window.slot_bytes, np.uint8)
        self._held = [empty(self.window.ring, matrix.dtype) for _ in range(3)]
        self._coefficients = empty((k, 3), matrix.dtype)
        self.vectors: NDArray[Any] = pinned((k + 1, 1, matrix.n), matrix.dtype)
        self._graph: Graph | None = None

    def queue(self, coefficients: Coefficients) -> None:
        """Queue the products; the coefficients are those of the first call ever after."""
        if self._graph is None:
            self._coefficients.set(np.stack([coefficients.a, coefficients.b, coefficients.c], axis=1))
            self._graph = self._record()
        self._graph.launch(default_stream())

    def _record(self) -> Graph:
        work, there, back = (Stream(blocking=False) for _ in range(3))
        with capture(work) as graph:
            start = Mark(work)
            start.holds(there)
            start.holds(back)
            address, size = self.vectors.ctypes.data, self.window.itemsize
            send(self._held[0].pointer, address, self.window.n * size, work)
            done: list[Mark] = []
            returned: list[Mark] = []
            for j in range(self.k):
                if j > 2:  # the vector to be written has been brought back
                    returned[j - 3].holds(work)
                for chunk in range(self.window.chunks):
                    number = j * self.window.chunks + chunk
                    if number >= self.window.slots:
                        done[number - self.window.slots].holds(there)
                    self._send(chunk, number, there)
                    Mark(there).holds(work)
                    self._launch(j, chunk, number, work)
                    done.append(Mark(work))
                    done[-1].holds(back)
                    first = chunk * self.window.rows
                    width = (min(self.window.n, first + self.window.rows) - first) * size
                    source = self._held[(j + 1) % 3].pointer + first * size
                    bring_rows(address + ((j + 1) * self.window.n + first) * size, width, source, width, width, 1, back)
                returned.append(Mark(back))
            Mark(there).holds(work)
            Mark(back).holds(work)
        return graph

    def _send(self, chunk: int, number: int, stream: Stream) -> None:
        begin, end = int(self._chunks.begin[chunk]), int(self._chunks.begin[chunk + 1])
        to = self._slots.pointer + number % self.window.slots * self.window.slot_bytes
        send(to, self._chunks.data.ctypes.data + begin, end - begin, stream)

    def _launch(self, j: int, chunk: int, number: int, stream: Stream) -> None:
        window, (before, x, y) = self.window, (self._held[(j + i) % 3] for i in (2, 0, 1))
        slot = np.uint64(self._slots.pointer + number % window.slots * window.slot_bytes)
        numbers = [np.uint32(v) for v in (1, 0, window.header, window.rows, 0, window.n)]
        per = -(-window.rows * self._lanes // 256)
        arguments: list[Any] = [slot, np.uint64(0), *numbers, before, x, y, np.int64(0), np.uint32(window.ring)]
        arguments += [np.uint32(j > 0), self._coefficients.view(3 * j, (1, 3)), np.int64(chunk), np.uint32(1)]
        arguments += [np.uint32(per), np.uint64(0), np.uint64(0), np.int64(0)]
        arguments += [np.uint64(y.pointer + chunk * window.rows * window.itemsize), np.int64(0), np.int64(0)]
        self._kernel.launch(per, 256, arguments, stream=stream)
