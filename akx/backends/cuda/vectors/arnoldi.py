"""Steps of Arnoldi's process queued on the GPU ahead of the host, one by one or s at a time.

A run makes powers of the last orthonormal row in the rows behind it and these orthonormal to all before and to each
other, by the kernels of ``gram_schmidt.cuh``, which say what a record has. A launch is several runs, each of which
begins where the one before ends, as one graph; with the first of a cycle the residual is divided by its norm. Words
moved for s rows behind k: those of the powers, (k + s) n read for the products, (k + s) n read and s n written to
replace the rows, as much again where a second round is needed.

The end of a cycle is a launch too: x moves along the rows, and its residual is there for the next cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.copies import send
from akx.backends.cuda.device.launch import Graph, Stream, capture, spare_stream
from akx.backends.cuda.device.memory import DeviceArray, empty
from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.program import CudaProgram
from akx.backends.cuda.vectors.operations import VectorOperations
from akx.backends.cuda.vectors.queues import Ring, record_once
from akx.backends.program import Coefficients

__all__ = ["RowsQueue", "RowsRecord"]

#: Launches that may be on their way, and runs of each.
_AHEAD, _TOGETHER = 4, 16
#: Graphs that are kept, more of cycles that take many.
_GRAPHS = 64
_STATE = 10
_LOSS, _ALLOWED, _EPS = 0, 1, 6


@dataclass(frozen=True)
class RowsRecord:
    """What became of s rows V behind k: V^T = Q^T C + Q_new^T R.

    `good`: where not, rows are of no use, and so is all that was queued behind. `loss`: a bound, or the measured
    figure, of how far from orthonormal the rows are. `norms` (s,): lengths of the rows of V. `C`, `R`: (k, s) and (s,
    s) arrays of float64 or complex128.
    """

    good: bool
    loss: float
    norms: NDArray[np.float64]
    C: NDArray[Any]
    R: NDArray[Any]


class RowsQueue:
    """Rows of one array, made orthonormal one launch after another.

    `W`: (m, n), the first row of length 1. `allowed`: how far from orthonormal rows may be. `most`: the most rows of a
    launch.
    """

    def __init__(self, work: VectorOperations, W: DeviceArray, allowed: float, most: int) -> None:
        self.work, self._W, self._allowed = work, W, allowed
        self._words = work.wide.itemsize // 8
        size = 4 + most + len(W) * most * self._words
        self._size = size + size % 2
        kind = self._kind = ("RowsQueue", len(W), most)
        self._ring = work.kept((*kind, "ring"), lambda: Ring(_AHEAD, min(_TOGETHER, len(W)), self._size))
        self._ring.clear()  # of what the queue before has not read
        # The state, and behind it what the residual is multiplied with: one copy for both.
        self._first = work.kept((*kind, "first"), lambda: pinned(_STATE + 2, np.float64))
        self._on_device = work.kept((*kind, "state"), lambda: empty(_STATE + 2, np.float64))
        self._state = self._on_device.view(0, (_STATE,))
        self._factor = self._on_device.view(_STATE, (1,), work.wide)
        self._F = work.kept((*kind, "factors"), lambda: empty(len(W) * most, work.wide))
        self._y = work.kept((*kind, "y"), lambda: pinned(len(W), work.wide))
        self._y_on_device = work.kept((*kind, "y there"), lambda: empty(len(W), work.wide))
        self._solutions: list[DeviceArray] = []
        self._most_graphs = max(_GRAPHS, 4 * len(W) // _TOGETHER)
        held = self._on_device, self._F, self._y_on_device, W, work.partial, work.counter
        self._addresses = (*(array.pointer for array in held), int(self._ring.address), self._first.ctypes.data)
        self._pending: deque[tuple[int, int]] = deque()
        self._residual: int | None = None  # the row that becomes the first, with the next launch

    @property
    def is_full(self) -> bool:
        """Whether nothing further may be queued."""
        return self._ring.is_full

    @property
    def launches(self) -> int:
        """Launches whose records were not all read."""
        return self._ring.launches

    @property
    def together(self) -> int:
        """Most runs of a launch."""
        return self._ring.slots // _AHEAD

    def begin(self, loss: float) -> None:
        """Begin behind rows that are so far from orthonormal; what was queued is waited for and forgotten."""
        self._state.set(self._beginning(loss)[:_STATE])
        self._ring.clear()
        self._pending.clear()

    def start(self, norm: float, row: int) -> None:
        """Begin a cycle once all that was queued is done: the first row is to be row `row`, 0 or 1, over its norm."""
        self._first[:] = self._beginning(0.0)
        self._first[_STATE] = 1 / norm
        self._ring.clear()
        self._pending.clear()
        self._residual = row

    def launch(self, program: CudaProgram, coefficients: Coefficients, runs: Sequence[tuple[int, int]]) -> None:
        """Queue runs, each of which begins where the one before ends.

        `program`: of the powers of a run. `runs` sequence of (int, int): the row that powers are made of, and how many
        of them are wanted and made orthonormal.
        """
        first, self._residual = self._residual, None
        n, steps = self.work.n, program.k
        calls = []
        program.ready(1)
        for last, wanted in runs:
            x, out = self._W[last : last + 1], self._W[last : last + steps + 1].reshape(steps + 1, 1, n)
            calls.append((x, out, partial(self._queue, last + 1, wanted)))
        before = None if first is None else partial(self._normalise, first)
        go = self._ready(program, calls, coefficients, before, (tuple(runs), first), frozenset(runs))
        self._ring.launch(go, len(runs), self.work.stream)
        self._pending.extend((last + 1, wanted) for last, wanted in runs)

    def restart(
        self, program: CudaProgram, coefficients: Coefficients, y: NDArray[Any], x: DeviceArray, b: DeviceArray
    ) -> DeviceArray:
        """Queue the end of a cycle: x + sum_j y[j] W[j], which is returned, and its residual into row 1.

        The array that is returned is good until the end of the cycle after the next.

        `program`: of one product. `y`: (j,). `x`, `b`: (n,) DeviceArray.
        """
        if not self._solutions:
            self._solutions = [empty(self.work.n, self.work.dtype) for _ in range(2)]
        found = next(one for one in self._solutions if one.pointer != x.pointer)
        self._y[: y.size] = y
        both, count = self._W[:2].reshape(2, 1, self.work.n), y.size

        def move(stream: Stream) -> None:
            found.copy_from(x, stream)
            if count:
                send(self._y_on_device.pointer, self._y.ctypes.data, self._y.nbytes, stream)
                self.work.queue_mix(1, self._W[:count], self._y_on_device, found, None, stream=stream)

        def remain(stream: Stream) -> None:
            self.work.queue_remain(b, self._W[1], stream=stream)

        key = ("restart", count, x.pointer, found.pointer, b.pointer)
        kernels = frozenset([key[:2]])
        self._ready(program, [(found.reshape(1, self.work.n), both, remain)], coefficients, move, key, kernels)()
        return found

    def residual(self) -> float:
        """The norm of the residual that :meth:`restart` leaves, once it is there."""
        return self.work.norm_found()

    def next(self) -> RowsRecord:
        """The record of the next launch."""
        record = self._ring.next()
        k, s = self._pending.popleft()
        start = 3 + s + (3 + s) % 2
        behind = record[start : start + (k + s) * s * self._words].copy().view(self.work.wide)
        C, R = behind[: k * s].reshape(k, s), behind[k * s :].reshape(s, s)
        return RowsRecord(bool(record[0]), float(record[1]), record[3 : 3 + s].copy(), C, R)

    def _beginning(self, loss: float) -> NDArray[np.float64]:
        found = np.zeros(len(self._first))
        found[[_LOSS, _ALLOWED, _EPS]] = loss, self._allowed, float(np.finfo(self.work.dtype).eps)
        return found

    def _ready(
        self,
        program: CudaProgram,
        calls: Sequence[tuple[DeviceArray, DeviceArray, Callable[[Stream], None]]],
        coefficients: Coefficients,
        before: Callable[[Stream], None] | None,
        key: tuple[Any, ...],
        kernels: frozenset[Hashable],
    ) -> Callable[[], None]:
        """What queues calls: kernel by kernel where some are not loaded, else as a graph, which later calls find."""
        stream = self.work.stream
        program.take(coefficients)

        def at_once() -> None:
            if before is not None:
                before(stream)
            for x, out, then in calls:
                program.run(x, out, coefficients)
                then(stream)

        def go() -> None:
            place = (*self._kind, *self._addresses, *key)
            named = frozenset((*self._kind, one) for one in kernels)
            recorded = partial(_recorded, program, calls, before)
            graph: Graph | None = record_once(program, place, named, at_once, recorded, self._most_graphs)
            if graph is not None:
                graph.launch(stream)

        return go

    def _normalise(self, row: int, stream: Stream) -> None:
        """A new state, and the first row of the cycle."""
        send(self._on_device.pointer, self._first.ctypes.data, self._first.nbytes, stream)
        self.work.queue_mix(1, self._W[row : row + 1], self._factor, None, self._W[:1], stream=stream)

    def _queue(self, k: int, s: int, stream: Stream) -> None:
        work, m = self.work, k + s
        lag = int(s == 1)
        ring = [self._ring.address, np.uint32(self._ring.slots), np.uint32(self._size)]
        sums = [work.partial, work.counter, self._state, self._F]
        extent = [np.uint64(work.n), self._W, np.uint32(k), np.uint32(s), np.uint32(lag)]
        for turn, active, columns in (("first", 2, s + lag), ("second", 4, s)):
            tiles = work.tiles(m, columns)
            kernel = work.kernel(turn, "gram_schmidt", **tiles.macros)
            shared = tiles.shared(2 * s * s + s)
            kernel.launch(tiles.blocks, tiles.threads, [*extent, *sums, *ring], shared=shared, stream=stream)
            rows, flag = self._W[k : k + s], self._state.view(active, (1,))
            work.queue_mix(s, self._W[:m], self._F, None, rows, stream=stream, active=flag)


def _recorded(
    program: CudaProgram,
    calls: Sequence[tuple[DeviceArray, DeviceArray, Callable[[Stream], None]]],
    before: Callable[[Stream], None] | None,
) -> Graph:
    """Calls one after another as a graph, on a stream that no other thread has: for each x, out and what follows it."""
    own = program.stream
    try:
        with spare_stream() as program.stream, capture(program.stream) as graph:
            if before is not None:
                before(program.stream)
            for x, out, then in calls:
                program.enqueue(x, out, program.coefficients)
                then(program.stream)
    finally:
        program.stream = own
    return graph
