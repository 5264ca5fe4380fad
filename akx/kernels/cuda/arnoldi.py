"""Steps of Arnoldi's process queued on the GPU ahead of the host, one by one or s at a time.

A launch makes powers of the last orthonormal row in the rows behind it and these orthonormal to all before and to each
other, by the kernels of ``gram_schmidt.cuh``, which say what a record has; all of it is one graph. The rows of a launch
begin where those of the launch before end. Words moved for s rows behind k: those of the powers, (k + s) n read for the
products, (k + s) n read and s n written to replace the rows, as much again where a second round is needed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.device.cuda.launch import Graph, Stream
from akx.device.cuda.memory import DeviceArray, empty
from akx.kernels.base import Coefficients
from akx.kernels.cuda.program import CudaProgram
from akx.kernels.cuda.queues import Ring
from akx.kernels.cuda.vectors import CudaVectorWork

__all__ = ["RowsQueue", "RowsRecord"]

_AHEAD = 4
_STATE = 8
_LOSS, _ALLOWED, _EPS = 0, 1, 6


@dataclass(frozen=True)
class RowsRecord:
    """What became of s rows V behind k: V^T = Q^T C + Q_new^T R.

    Attributes
    ----------
    good : bool
        Where not, rows are of no use, and so is all that was queued behind.
    loss : float
        A bound, or the measured figure, of how far from orthonormal the rows are.
    norms : (s,) array
        Lengths of the rows of V.
    C, R : (k, s) and (s, s) arrays of float64 or complex128
    """

    good: bool
    loss: float
    norms: NDArray[np.float64]
    C: NDArray[Any]
    R: NDArray[Any]


class RowsQueue:
    """Rows of one array, made orthonormal one launch after another.

    Parameters
    ----------
    work : CudaVectorWork
    W : DeviceArray
        (m, n), the first row of length 1.
    allowed : float
        How far from orthonormal rows may be.
    most : int
        The most rows of a launch.
    """

    def __init__(self, work: CudaVectorWork, W: DeviceArray, allowed: float, most: int) -> None:
        self.work, self._W, self._allowed = work, W, allowed
        self._words = work.wide.itemsize // 8
        size = 4 + most + len(W) * most * self._words
        self._size = size + size % 2
        self._ring = Ring(_AHEAD, 1, self._size)
        self._state = empty(_STATE, np.float64)
        self._F = empty(len(W) * most, work.wide)
        self._graphs: dict[tuple[int, int, int], Graph | None] = {}
        self._pending: deque[tuple[int, int]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether nothing further may be queued."""
        return self._ring.is_full

    def begin(self, loss: float) -> None:
        """Begin behind rows that are so far from orthonormal; what was queued is waited for and forgotten."""
        state = np.zeros(_STATE)
        state[[_LOSS, _ALLOWED, _EPS]] = loss, self._allowed, float(np.finfo(self.work.dtype).eps)
        self._state.set(state)
        self._ring.clear()
        self._pending.clear()

    def launch(self, program: CudaProgram, coefficients: Coefficients, last: int, wanted: int) -> None:
        """Queue powers of row `last`, as many as the program makes, and make the first of them orthonormal.

        Parameters
        ----------
        wanted : int
            How many.
        """
        program.take(coefficients)
        stream, key = self.work.stream, (id(program), last, wanted)
        n, steps = self.work.n, program.k
        x, out = self._W[last : last + 1], self._W[last : last + steps + 1].reshape(steps + 1, 1, n)
        queue = partial(self._queue, last + 1, wanted)

        def at_once() -> None:
            program.run(x, out, coefficients)
            queue(stream)

        if key not in self._graphs:  # kernels are loaded now, and a single cycle is not worth a graph
            self._graphs[key] = None
            self._ring.launch(at_once, 1, stream)
        else:
            graph = self._graphs[key]
            if graph is None:
                graph = self._graphs[key] = program.repeated(x, out, coefficients, 1, queue)
            self._ring.launch(partial(graph.launch, stream), 1, stream)
        self._pending.append((last + 1, wanted))

    def next(self) -> RowsRecord:
        """The record of the next launch."""
        record = self._ring.next()
        k, s = self._pending.popleft()
        start = 3 + s + (3 + s) % 2
        behind = record[start : start + (k + s) * s * self._words].copy().view(self.work.wide)
        C, R = behind[: k * s].reshape(k, s), behind[k * s :].reshape(s, s)
        return RowsRecord(bool(record[0]), float(record[1]), record[3 : 3 + s].copy(), C, R)

    def _queue(self, k: int, s: int, stream: Stream) -> None:
        work, m = self.work, k + s
        tiles = work.tiles(m, s)
        shared = tiles.shared(2 * s * s + s)
        ring = [self._ring.address, np.uint32(self._ring.slots), np.uint32(self._size)]
        sums = [work.partial, work.counter, self._state, self._F]
        extent = [np.uint64(work.n), self._W, np.uint32(k), np.uint32(s)]
        for turn, active in (("first", 2), ("second", 4)):
            kernel = work.kernel(turn, "gram_schmidt", **tiles.macros)
            kernel.launch(tiles.blocks, tiles.threads, [*extent, *sums, *ring], shared=shared, stream=stream)
            rows, flag = self._W[k : k + s], self._state.view(active, (1,))
            work.queue_mix(s, self._W[:m], self._F, None, rows, stream=stream, active=flag)
