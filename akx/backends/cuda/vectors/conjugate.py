"""Steps of conjugate gradients queued on the GPU ahead of the host: ordinary ones, and blocks of s in coordinates.

The kernels are in ``conjugate.cuh``, which says what a record has. Words moved are those of :mod:`akx.solvers.cg` and
:mod:`akx.solvers.ca_cg`; of launches a step has three beside the product, a block two beside the powers, and all of a
launch of several steps, or of a block, are one graph. With a diagonal preconditioner D a step has as many launches: it
reads D twice, 2 words for each entry more, and u = D r is nowhere stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.launch import Graph, Stream
from akx.backends.cuda.device.memory import DeviceArray, empty
from akx.backends.cuda.program import CudaProgram
from akx.backends.cuda.vectors.operations import VectorOperations
from akx.backends.cuda.vectors.queues import Ring, record_once
from akx.backends.program import Coefficients

__all__ = ["BlockQueue", "BlockRecord", "StepQueue", "StepRecord"]

_THREADS = 256
#: Steps of a graph, and graphs on their way.
_STEPS, _AHEAD = 4, 3
#: Numbers of a record of a step, and of the state.
_RECORD, _STATE = 8, 11
_GAMMA, _GOAL, _LEFT, _PIVOT, _TRUST, _WRONG, _SQUARE = 0, 1, 2, 7, 8, 9, 10
#: Numbers of a record of a block beside two for each step, and most blocks of a launch.
_BLOCK, _BLOCKS = 5, 2
#: Blocks after which directions are looked at: at first, and at most, twice as many each time that so many looks found
#: nothing to be done.
_LOOK, _MOST_LOOK, _GOOD = 8, 32, 4


class StepRecord(NamedTuple):
    """What a step came to; without one that was `done` nothing has changed, and nothing will by itself.

    `gamma` is <r, D r> after it, and `square` <r, r>: the same without a preconditioner D.
    """

    done: bool
    curvature: float
    gamma: float
    alpha: float
    beta: float
    square: float


class BlockRecord(NamedTuple):
    """What a block of steps came to.

    `made`: steps; with 0 nothing has changed. `moduli` (2,): sums of the moduli, as vectors' lengths, of what was added
    up to the change of x, without what it has of the directions before, and to the new r. `wrong`: by how much <p_i, A
    p_j> of directions was last found not to be what it should be. `gammas` (made + 1,): <r, r> before, and after each
    step. `lengths` (made,): what x moved along each direction, which has length 1 in the norm of A.
    """

    made: int
    moduli: Sequence[float]
    wrong: float
    gammas: NDArray[np.float64]
    lengths: NDArray[np.float64]

    def coefficients(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """alpha and beta of each step, as the classic method has them."""
        before = self.gammas[:-1]
        return self.lengths**2 / before, self.gammas[1:] / before


class _Queue:
    """The state on the device, the ring, and graphs that are queued again and again."""

    def __init__(self, work: VectorOperations, records: int, size: int) -> None:
        self.work = work
        self._kind = type(self).__name__, records, size
        self.ring = work.kept((*self._kind, "ring"), lambda: Ring(_AHEAD, records, size))
        self.state = work.kept((*self._kind, "state"), lambda: empty(_STATE, np.float64))
        self.ring.clear()  # of what the queue before has not read
        self._unqueued = 0  # steps that were asked for and not queued

    def _begin(self, given: dict[int, float]) -> None:
        state = np.zeros(_STATE)
        state[list(given)] = list(given.values())
        self.state.set(state)  # waits for all that was queued before
        self.ring.clear()

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

        def go() -> None:
            key = (*self._kind, *self._addresses(), count)
            repeated = partial(program.repeated, x, out, coefficients, count, self._queue)
            graph: Graph | None = record_once(program, key, frozenset([self._kind]), one_by_one, repeated)
            if graph is not None:
                graph.launch(stream)

        self.ring.launch(go, count, stream)

    def _addresses(self) -> tuple[int, ...]:
        """All addresses that what is queued depends on, but for those of the program."""
        work = self.work
        return self.state.pointer, int(self.ring.address), work.partial.pointer, work.counter.pointer

    def _queue(self, stream: Stream) -> None:
        raise NotImplementedError


class StepQueue(_Queue):
    """Ordinary steps on V = [p, w, r, x, ...] (4 or more, n).

    `program`: for one product. `coefficients`: of the monomial basis. `diagonal`: a preconditioner D: its entries,
    (n,), real, of the type of the vectors.
    """

    def __init__(
        self,
        work: VectorOperations,
        V: DeviceArray,
        program: CudaProgram,
        coefficients: Coefficients,
        diagonal: DeviceArray | None = None,
    ) -> None:
        super().__init__(work, _STEPS, _RECORD)
        self._V, self._program, self._coefficients, self._diagonal = V, program, coefficients, diagonal

    def _addresses(self) -> tuple[int, ...]:
        diagonal = 0 if self._diagonal is None else self._diagonal.pointer
        return *super()._addresses(), self._V.pointer, diagonal

    def begin(self, gamma: float, square: float, goal: float, left: int) -> None:
        """Begin with <r, D r> = gamma, <r, r> = square; end where that is `goal` or less, or so many steps are done."""
        self._begin({_GAMMA: gamma, _SQUARE: square, _GOAL: goal, _LEFT: left})
        self._unqueued = left

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
        done, *numbers = self.ring.next()[:6].tolist()
        return StepRecord(bool(done), *numbers)

    def _launch(self, count: int) -> None:
        self._unqueued -= count
        n = self.work.n
        x, out = self._V[0].reshape(1, n), self._V[:2].reshape(2, 1, n)
        self._go(self._program, x, out, self._coefficients, count)

    def _queue(self, stream: Stream) -> None:
        work, (p, w, r, x) = self.work, (self._V[i] for i in range(4))
        sums, ring = [work.partial, work.counter], [self.state, self.ring.address, np.uint32(self.ring.slots)]
        by, d = ("", []) if self._diagonal is None else ("_by", [self._diagonal])
        for name, arguments in (
            ("curvature", [p, w, *sums, *ring]),
            (f"descend{by}", [w, r, *d, *sums, *ring]),
            (f"turn{by}", [p, r, *d, x, self.state]),
        ):
            kernel = work.kernel(name, "conjugate")
            kernel.launch(work.grid, _THREADS, [np.uint64(work.n), *arguments], stream=stream)


class BlockQueue(_Queue):
    """Blocks of up to s steps on W = [P, A P, v_0 .. v_s] (3 s + 1, n) and x; r is v_0.

    `s`: 2 or more. `program`: for s powers of one vector.
    """

    def __init__(self, work: VectorOperations, W: DeviceArray, x: DeviceArray, s: int, program: CudaProgram) -> None:
        self.s = s
        super().__init__(work, _BLOCKS, _BLOCK + 2 * s)
        self._W, self._x, self._program = W, x, program
        # For each of s directions 3 s + 1 factors, and what x moves along each.
        self._F = work.kept((*self._kind, "factors"), lambda: empty(s * (3 * s + 2), work.wide))
        self._every, self._looks, self._unlooked = _LOOK, 0, 0  # blocks; looks, and blocks queued since the last
        self._look_of: Any = None

    def _addresses(self) -> tuple[int, ...]:
        return *super()._addresses(), self._W.pointer, self._x.pointer, self._F.pointer

    def start(self, goal: float, left: int, pivot: float, trust: float) -> None:
        """Begin with what is in W.

        `goal`: end where <r, r> is that or less. `left`: or so many steps are done. `pivot`: the share of a vector of
        the basis, in the norm of A squared, that has to be left without those before it. `trust`: the share of the sum
        of its terms' moduli that the square of a residual's norm has to be.
        """
        self._begin({_GOAL: goal, _LEFT: left, _PIVOT: pivot, _TRUST: trust})
        self._unqueued = left
        self._every, self._looks = _LOOK, 0

    def launch(self, coefficients: Coefficients, count: int = 1) -> None:
        """Queue `count` blocks, at most 2, in the basis of these coefficients."""
        self._unqueued -= self.s * count
        self._unlooked += count
        s, n = self.s, self.work.n
        x, out = self._W[2 * s : 2 * s + 1], self._W[2 * s :].reshape(s + 1, 1, n)
        self._go(self._program, x, out, coefficients, count)
        if self._unlooked >= self._every:
            self._looks += 1
            self._unlooked = 0
            if self._looks % _GOOD == 0:
                self._every = min(2 * self._every, _MOST_LOOK)
            self._look(self.work.stream)

    @property
    def is_full(self) -> bool:
        """Whether no further block may be queued, or is of use as long as those on their way do all their steps."""
        return self.ring.is_full or (self._unqueued <= 0 and self.ring.launches > 0)

    @property
    def launches(self) -> int:
        """Launches whose records were not read."""
        return self.ring.launches

    def next(self) -> list[BlockRecord]:
        """The records of the next launch."""
        return [self._record(record) for record in self.ring.take()]

    def wrong(self) -> float:
        """By how much directions were last found to be wrong since :meth:`start`; waits for all that was queued."""
        return float(self.state.view(_WRONG, (1,)).get()[0])

    def _record(self, record: NDArray[np.float64]) -> BlockRecord:
        made, of_x, of_r, wrong = record[:4].tolist()
        last = _BLOCK + 2 * int(made)
        return BlockRecord(int(made), (of_x, of_r), wrong, record[_BLOCK - 1 : last : 2], record[_BLOCK:last:2])

    def _queue(self, stream: Stream) -> None:
        work, s = self.work, self.s
        m = 2 * s + 1
        tiles = work.tiles(m, m, triangular=True)
        given = [np.uint64(work.n), self._W[s:], self._program.coefficients, work.partial, work.counter]
        given += [self.state, self._F, self.ring.address, np.uint32(self.ring.slots)]
        shared = tiles.shared(room_of_block(s))
        kernel = work.kernel("steps", "blocks", AKX_STEPS=s)
        kernel.launch(tiles.blocks, tiles.threads, given, shared=shared, stream=stream)
        work.queue_advance(self._W, self._x, self._F, s, stream=stream, active=self.state.view(5, (1,)))

    def _look(self, stream: Stream) -> None:
        work, s = self.work, self.s
        if self._look_of is None:  # not part of a graph: what is asked for each time is made once
            tiles = work.tiles(2 * s, s)
            arguments = [np.uint64(work.n), self._W, work.partial, work.counter, self.state]
            kernel = work.kernel("look", "blocks", AKX_STEPS=s)
            self._look_of = kernel, tiles.blocks, tiles.threads, arguments, tiles.shared()
        kernel, blocks, threads, arguments, shared = self._look_of
        kernel.launch(blocks, threads, arguments, shared=shared, stream=stream)


def room_of_block(s: int) -> int:
    """Numbers in shared memory that s steps in coordinates take beside the sums of products: ``Room``."""
    m = 2 * s + 1
    arrays = (m * m, s * s, s * s, s * s, s * (s + 1), s, s * m, 3 * s, s, s, s)
    return sum(count + count % 2 for count in arrays) + 2  # the sums end with a pair too; the counts
