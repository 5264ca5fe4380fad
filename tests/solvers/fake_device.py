"""A device without a GPU: arrays that refuse what device arrays refuse, and queues that run ahead of their readers.

Solvers that pass their tests on it use nothing of NumPy on vectors, leave vectors alone that queued work still changes,
and read what came of it in order. Arithmetic is the host's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from akx.backends.cpu.vectors.team_vectors import VectorWork
from akx.backends.cuda.vectors.arnoldi import RowsRecord
from akx.backends.cuda.vectors.conjugate import BlockRecord, StepRecord
from akx.backends.schedule import Program
from akx.krylov.orthogonalize import Orthogonalizer
from akx.operator import MatrixPowers
from akx.solvers.ca_cg_block import PIVOT, TRUST, block_steps

_AHEAD = 3


class FakeArray:
    """Rows in `held`, a NumPy array that only the fake's own kernels look at."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.shape, self.dtype, self.nbytes = held.shape, held.dtype, held.nbytes

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, place: int | slice) -> FakeArray:
        assert isinstance(place, (int, slice)), place
        return FakeArray(self.held[place, ...])

    def __setitem__(self, place: int | slice, values: Any) -> None:
        assert isinstance(values, (FakeArray, np.ndarray)) or values == 0
        self.held[place] = values.held if isinstance(values, FakeArray) else values

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a device array is no NumPy array")

    __array_ufunc__ = None

    def reshape(self, *shape: int) -> FakeArray:
        assert min(shape) >= 0
        return FakeArray(self.held.reshape(shape))


class FakeBlocks:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return lambda *given, **named: method(*map(_bare, given), **named)


class FakeWork:
    """The twin of CudaVectorWork."""

    backend = "cuda"
    on_device = True

    def __init__(self, dtype: Any, n: int) -> None:
        self.dtype, self.n = np.dtype(dtype), n
        self.host = VectorWork(dtype, 1)

    def rows(self, count: int, n: int) -> FakeArray:
        return FakeArray(np.full((count, n), np.nan, dtype=self.dtype))

    def from_host(self, v: Any) -> FakeArray:
        return FakeArray(np.array(v, dtype=self.dtype))

    def to_host(self, v: FakeArray) -> Any:
        return v.held.copy()

    def taken(self, v: FakeArray, factor: float = 1.0) -> FakeArray:
        return FakeArray(self.host.taken(v.held, factor))

    def following(self, v: FakeArray, w: FakeArray) -> FakeArray | None:
        found = self.host.following(v.held, w.held)
        return None if found is None else FakeArray(found)

    def over(self, W: FakeArray) -> FakeBlocks:
        return FakeBlocks(self.host.over(W.held))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.host, name)
        return lambda *given, **named: method(*map(_bare, given), **named)

    def step_queue(self, program: Any, coefficients: Any, V: FakeArray, diagonal: FakeArray | None = None) -> FakeSteps:
        return FakeSteps(self.host, program, V.held, None if diagonal is None else diagonal.held)

    def block_queue(self, program: Any, W: FakeArray, x: FakeArray, s: int) -> FakeBlockQueue:
        return FakeBlockQueue(self.host, program, W.held, x.held, s)

    def advance_block(self, C: Any, moved: Any, W: FakeArray, x: FakeArray) -> None:
        advance_block(self.host, C, moved, W.held, x.held)

    def rows_queue(self, W: FakeArray, allowed: float, most: int) -> FakeRows:
        return FakeRows(self.host, W.held, allowed, most)


class FakeProgram(Program):
    """Powers by an operator of the host."""

    nbytes, is_recordable = 0, True

    def __init__(self, operator: MatrixPowers) -> None:
        self.operator = operator

    def run(self, block: FakeArray, out: FakeArray, basis: Any) -> None:
        b, into = block.held, out.held
        if len(b) == 1:
            self.operator(b[0], out=into[:, 0].T, basis=basis)
        else:
            self.operator(b.T, out=into.transpose(2, 1, 0), basis=basis)

    def update_values(self, data: Any) -> None:
        """Nothing: the operator has its own."""


class FakeOperator:
    """What System asks of a MatrixPowers on the device."""

    def __init__(self, operator: MatrixPowers) -> None:
        self._program = FakeProgram(operator)
        self.plan = operator.plan

    def program(self, vectors: int, basis: Any = None) -> tuple[FakeProgram, Any]:
        return self._program, basis


class FakeScaling:
    """The twin of akx.backends.cuda.preconditioners.scaling.Scaling."""

    def __init__(self, diagonal: Any) -> None:
        self._diagonal = diagonal.copy()

    def apply(self, x: FakeArray, out: FakeArray) -> None:
        out.held[...] = self._diagonal * x.held


class FakeSteps:
    """:class:`akx.backends.cuda.vectors.conjugate.StepQueue`: as many steps ahead as there."""

    def __init__(self, work: VectorWork, program: FakeProgram, V: Any, diagonal: Any = None) -> None:
        self._work, self._program, self._V, self._diagonal = work, program, V, diagonal
        self._records: deque[StepRecord] = deque()

    def begin(self, gamma: float, square: float, goal: float, left: int) -> None:
        self._gamma, self._square, self._goal, self._left = gamma, square, goal, left
        self._records.clear()

    def next(self) -> StepRecord:
        while len(self._records) < 4 * _AHEAD:
            self._records.append(self._step())
        return self._records.popleft()

    def rest(self) -> Iterator[StepRecord]:
        while self._records:
            yield self._records.popleft()

    def _step(self) -> StepRecord:
        V, work = self._V, self._work
        self._program.run(FakeArray(V[:1]), FakeArray(V[:2].reshape(2, 1, -1)), None)
        curvature = work.dot(V, 0, 1).real
        wanted = self._left > 0 and self._square > self._goal and self._gamma > 0
        if not (wanted and 0 < curvature < np.inf):
            return StepRecord(False, curvature, 0.0, 0.0, 0.0, 0.0)
        self._left -= 1
        alpha = self._gamma / curvature
        square = gamma = work.descend(V, alpha)
        rows = V
        if self._diagonal is not None:
            rows = np.concatenate([V[:4], (self._diagonal * V[2])[None]])
            gamma = work.dot(rows, 2, 4).real
        beta = gamma / self._gamma
        work.turn(rows, alpha, beta, len(rows) - 1 if rows is not V else 2)
        V[:4] = rows[:4]
        self._gamma, self._square = gamma, square
        return StepRecord(True, curvature, gamma, alpha, beta, square)


class FakeBlockQueue:
    """A `BlockQueue`; steps in coordinates are those of the solver on the host."""

    look = 8

    def __init__(self, work: VectorWork, program: FakeProgram, W: Any, x: Any, s: int) -> None:
        self._work, self._program, self._x, self.s, self._W = work, program, x, s, W
        self._records: deque[list[BlockRecord]] = deque()
        self._unlooked = self._looks = 0

    def start(self, goal: float, left: int, pivot: float, trust: float) -> None:
        assert pivot / PIVOT == pytest.approx(trust / TRUST)
        self._goal, self._left, self._care, self._wrong = goal, left, pivot / PIVOT, 0.0
        self._records.clear()
        self._looks = 0

    @property
    def is_full(self) -> bool:
        return len(self._records) == _AHEAD

    @property
    def launches(self) -> int:
        return len(self._records)

    def next(self) -> list[BlockRecord]:
        return self._records.popleft()

    def wrong(self) -> float:
        return self._wrong

    def launch(self, basis: Any, count: int = 1) -> None:
        assert not self.is_full
        self._records.append([self._block(basis) for _ in range(count)])
        self._unlooked += count
        if self._unlooked >= min(32, self.look << self._looks // 4):
            self._unlooked = 0
            self._looks += 1
            off = self._work.gram(self._W)[: self.s, self.s : 2 * self.s]
            self._wrong = float(np.abs(off - np.diag(off.diagonal() != 0)).max())

    def _block(self, basis: Any) -> BlockRecord:
        W, s = self._W, self.s
        self._program.run(FakeArray(W[2 * s : 2 * s + 1]), FakeArray(W[2 * s :].reshape(s + 1, 1, -1)), basis)
        with np.errstate(all="ignore"):
            G = self._work.gram(W[s:])
        gamma = G[s, s].real
        most = min(s, self._left) if np.isfinite(G).all() and gamma > self._goal else 0
        found = block_steps(G, basis.matrix(), most, max(self._goal, 0.0) ** 0.5, self._care)
        moduli = np.zeros(2)
        if found.made:
            C = found.rows()
            self._work.advance(C, W, self._x)
            moduli = np.abs(C[[0, -1], s:]) @ np.sqrt(np.abs(G.diagonal().real))
        self._left -= found.made
        gammas = np.concatenate([[gamma], found.norms**2])
        return BlockRecord(found.made, moduli.tolist(), self._wrong, gammas, found.lengths.real)


class FakeRows:
    """:class:`akx.backends.cuda.vectors.arnoldi.RowsQueue`; every `refuse`-th launch is left to the host."""

    refuse = 0

    together = 16

    def __init__(self, work: VectorWork, W: Any, allowed: float, most: int) -> None:
        self._W, self._most, self._work = W, most, work
        self._ortho = Orthogonalizer(W, allowed, work)
        self._launches: deque[deque[RowsRecord]] = deque()
        self._count = 0
        self._first: tuple[float, int] | None = None

    def begin(self, loss: float) -> None:
        assert self._first is None
        self._ortho.loss = loss
        self._launches.clear()

    def start(self, norm: float, row: int) -> None:
        self._first = norm, row
        self._ortho.loss = 0.0
        self._launches.clear()

    @property
    def is_full(self) -> bool:
        return len(self._launches) == _AHEAD

    @property
    def launches(self) -> int:
        return len(self._launches)

    def launch(self, program: FakeProgram, basis: Any, runs: list[tuple[int, int]]) -> None:
        assert not self.is_full
        assert 0 < len(runs) <= self.together
        if self._first is not None:
            norm, row = self._first
            assert runs[0][0] == 0
            self._W[0] = self._W[row] * (1 / norm)
            self._first = None
        self._launches.append(deque(self._run(program, basis, last, wanted) for last, wanted in runs))

    def _run(self, program: FakeProgram, basis: Any, last: int, wanted: int) -> RowsRecord:
        k, W, steps = last + 1, self._W, program.operator.k
        assert wanted <= self._most
        program.run(FakeArray(W[last:k]), FakeArray(W[last : k + steps].reshape(steps + 1, 1, -1)), basis)
        self._count += 1
        with np.errstate(all="ignore"):
            refused = self.refuse and self._count % self.refuse == 0
            found = None if refused or not np.isfinite(W[:k]).all() else self._ortho.append_block(k, wanted)
        if found is None or found.norms.size < wanted or not 0 < found.R[0, 0].real < np.inf:
            W[k : k + wanted] = np.nan
            nothing = np.zeros((wanted, wanted))
            return RowsRecord(False, 0.0, nothing[0], nothing, nothing)
        return RowsRecord(True, self._ortho.loss, found.norms, found.C, found.R)

    def restart(self, program: FakeProgram, basis: Any, y: Any, x: FakeArray, b: FakeArray) -> FakeArray:
        found, W = FakeArray(x.held.copy()), self._W
        self._work.over(W).add(y, found.held)
        W[0] = found.held
        program.run(FakeArray(W[:1].copy()), FakeArray(W[:2].reshape(2, 1, -1)), basis)
        self._norm = self._work.remain(b.held, W[1])
        return found

    def residual(self) -> float:
        return float(self._norm)

    def next(self) -> RowsRecord:
        record = self._launches[0].popleft()
        if not self._launches[0]:
            self._launches.popleft()
        return record


def advance_block(work: VectorWork, C: Any, moved: Any, W: Any, x: Any) -> None:
    """What ``advance_block`` of conjugate.cuh does, by combinations of all rows."""
    s = len(moved)
    factors = np.zeros((2 * s + 2, 3 * s + 1), dtype=C.dtype)
    factors[1 : s + 1, :s], factors[1 : s + 1, 2 * s : 3 * s] = C[:, :s], C[:, s : 2 * s]
    factors[s + 1 : 2 * s + 1, s : 2 * s], factors[s + 1 : 2 * s + 1, 2 * s :] = C[:, :s], C[:, 2 * s :]
    factors[0], factors[-1] = moved @ factors[1 : s + 1], -moved @ factors[s + 1 : 2 * s + 1]
    factors[-1, 2 * s] += 1
    work.advance(factors, W, x)


def _bare(value: Any) -> Any:
    return value.held if isinstance(value, FakeArray) else value
