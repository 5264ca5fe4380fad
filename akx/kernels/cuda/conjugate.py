"""Steps of conjugate gradients queued on the GPU ahead of the host: ordinary ones, and blocks of s in coordinates.

The kernels are in ``conjugate.cuh``, which says what a record has. Words moved are those of :mod:`akx.solvers.cg` and
:mod:`akx.solvers.ca_cg`; of launches a step has three beside the product, a block two beside the powers, and all of a
launch of several steps, or of a block, are one graph.
"""

from __future__ import annotations

from collections.abc import Iterator
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

__all__ = ["BlockQueue", "BlockRecord", "StepQueue", "StepRecord"]

_THREADS = 256
#: Steps of a graph, and graphs on their way.
_STEPS, _AHEAD = 4, 3
#: Numbers of a record of a step, and of the state.
_RECORD, _STATE = 8, 8
_GAMMA, _GOAL, _LEFT, _TRUST = 0, 1, 2, 7


@dataclass(frozen=True)
class StepRecord:
    """What a step came to; without one that was `done` nothing has changed, and nothing will by itself."""

    done: bool
    curvature: float
    gamma: float
    alpha: float
    beta: float


@dataclass(frozen=True)
class BlockRecord:
    """What a block of steps came to.

    Attributes
    ----------
    made : int
        Steps; with 0 nothing has changed.
    C : (3, m) array of float64 or complex128
        Coordinates of the change of x, of p and of r.
    gammas, alphas, betas : (made,) arrays
        <r, r> after each step, and the step's coefficients.
    sizes : (m,) array
        Squares of the lengths of the rows.
    """

    made: int
    C: NDArray[Any]
    gammas: NDArray[np.float64]
    alphas: NDArray[np.float64]
    betas: NDArray[np.float64]
    sizes: NDArray[np.float64]


class _Queue:
    """The state on the device, the ring, and graphs that are queued again and again."""

    def __init__(self, work: CudaVectorWork, records: int, size: int) -> None:
        self.work = work
        self.ring = Ring(_AHEAD, records, size)
        self.state = empty(_STATE, np.float64)
        self._graphs: dict[int, Graph] = {}
        self._is_loaded = False
        self._unqueued = 0  # steps that were asked for and not queued

    def begin(self, gamma: float, goal: float, left: int, trust: float = 0.0) -> None:
        """Begin with <r, r> = gamma; end where that is `goal` or less, or so many steps are done."""
        state = np.zeros(_STATE)
        state[[_GAMMA, _GOAL, _LEFT, _TRUST]] = gamma, goal, left, trust
        self.state.set(state)  # waits for all that was queued before
        self.ring.clear()
        self._unqueued = left

    def _go(
        self, program: CudaProgram, x: DeviceArray, out: DeviceArray, coefficients: Coefficients, count: int
    ) -> None:
        """Queue `count` calls of the program with :meth:`_queue` after each: at first one by one, then as a graph."""
        program.take(coefficients)
        stream = self.work.stream

        def one_by_one() -> None:
            for _ in range(count):
                program.run(x, out, coefficients)
                self._queue(stream)

        if not self._is_loaded:  # kernels are loaded now, so that nothing has to be while a graph is recorded
            self._is_loaded = True
            self.ring.launch(one_by_one, count, stream)
            return
        graph = self._graphs.get(count)
        if graph is None:
            graph = self._graphs[count] = program.repeated(x, out, coefficients, count, self._queue)
        self.ring.launch(partial(graph.launch, stream), count, stream)

    def _queue(self, stream: Stream) -> None:
        raise NotImplementedError

    def _kernel(self, name: str) -> Any:
        return self.work.kernel(name, "conjugate")


class StepQueue(_Queue):
    """Ordinary steps on V = [p, w, r, x] (4, n).

    Parameters
    ----------
    work : CudaVectorWork
    V : DeviceArray
    program : CudaProgram
        For one product.
    coefficients : Coefficients
        Of the monomial basis.
    """

    def __init__(self, work: CudaVectorWork, V: DeviceArray, program: CudaProgram, coefficients: Coefficients) -> None:
        super().__init__(work, _STEPS, _RECORD)
        self._V, self._program, self._coefficients = V, program, coefficients

    def next(self) -> StepRecord:
        """The record of the next step, with further ones queued behind it, as many as there may be."""
        while not self.ring.is_full and (self._unqueued > 0 or not self.ring.launches):
            self._launch(_STEPS if self._unqueued >= _STEPS else 1)
        return self._record()

    def rest(self) -> Iterator[StepRecord]:
        """The records of all that was queued."""
        while self.ring.launches:
            yield self._record()

    def _record(self) -> StepRecord:
        done, curvature, gamma, alpha, beta = self.ring.next()[:5].tolist()
        return StepRecord(bool(done), curvature, gamma, alpha, beta)

    def _launch(self, count: int) -> None:
        self._unqueued -= count
        n = self.work.n
        x, out = self._V[0].reshape(1, n), self._V[:2].reshape(2, 1, n)
        self._go(self._program, x, out, self._coefficients, count)

    def _queue(self, stream: Stream) -> None:
        work, (p, w, r, x) = self.work, (self._V[i] for i in range(4))
        sums, ring = [work.partial, work.counter], [self.state, self.ring.address, np.uint32(self.ring.slots)]
        for name, arguments in (
            ("curvature", [p, w, *sums, *ring]),
            ("descend", [w, r, *sums, *ring]),
            ("turn", [p, r, x, self.state]),
        ):
            kernel = self._kernel(name)
            kernel.launch(work.grid, _THREADS, [np.uint64(work.n), *arguments], stream=stream)


class BlockQueue(_Queue):
    """Blocks of up to s steps on W = [p, r, ...] (2 s + 2, n) and x.

    Parameters
    ----------
    work : CudaVectorWork
    W : DeviceArray
        Rows, as many as s needs or more.
    x : DeviceArray
    s : int
    program : CudaProgram
        For s powers of two vectors.
    """

    def __init__(self, work: CudaVectorWork, W: DeviceArray, x: DeviceArray, s: int, program: CudaProgram) -> None:
        self.s, self.m = s, 2 * s + 1
        self._words = work.wide.itemsize // 8
        self._size = 2 + 3 * s + self.m * (3 * self._words + 1)
        super().__init__(work, 1, self._size)
        self._W, self._x, self._program = W, x, program
        self._F = empty((3, self.m), work.wide)

    def launch(self, coefficients: Coefficients) -> None:
        """Queue a block in the basis of these coefficients."""
        self._unqueued -= self.s
        x, out = self._W[:2], self._W[: self.m + 1].reshape(self.s + 1, 2, self.work.n)
        self._go(self._program, x, out, coefficients, 1)

    @property
    def is_full(self) -> bool:
        """Whether no further block may be queued, or is of use as long as those on their way do all their steps."""
        return self.ring.is_full or (self._unqueued <= 0 and self.ring.launches > 0)

    @property
    def launches(self) -> int:
        """Blocks whose records were not read."""
        return self.ring.launches

    def next(self) -> BlockRecord:
        """The record of the next block."""
        s, m, record = self.s, self.m, self.ring.next()
        made = int(record[0])
        steps = record[2 : 2 + 3 * s].reshape(s, 3)[:made].copy()
        behind = record[2 + 3 * s :]
        C = behind[: 3 * m * self._words].copy().view(self.work.wide).reshape(3, m)
        sizes = behind[3 * m * self._words :].copy()
        return BlockRecord(made, C, steps[:, 0], steps[:, 1], steps[:, 2], sizes)

    def _queue(self, stream: Stream) -> None:
        work, m = self.work, self.m
        tiles = work.tiles(m, m, triangular=True)
        basis = self._program.coefficients
        sums = [*tiles.extent, work.partial, work.counter, self.state, self._F]
        ring = [self.ring.address, np.uint32(self.ring.slots), np.uint32(self._size)]
        shared = tiles.shared(m * m + 4 * m)
        self._kernel("steps").launch(
            work.blocks,
            tiles.threads,
            [np.uint64(work.n), self._W, np.uint32(self.s), basis, *sums, *ring],
            shared=shared,
            stream=stream,
        )
        active = self.state.view(5, (1,))
        work.queue_mix(3, self._W[:m], self._F, self._x, self._W, stream=stream, active=active)
