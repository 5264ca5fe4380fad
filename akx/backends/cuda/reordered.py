"""A program for a matrix in another order of its rows, for callers who have theirs.

x is brought into that order, all powers are made in it, and the results are brought back: of as many vectors as make up
a line of 64 bytes those values that belong to a row are put side by side first, so that only whole lines are read in
another order (``reordered.cuh``). What one vector takes beside others is as much as four copies.

Bytes: per call and start vector 4 k + 3 vectors, and a sector of 32 bytes for each row of x; besides the program's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.matrix.level_order import sent_by_levels
from akx.backends.cuda.matrix.transpose import take
from akx.backends.cuda.program import C_TYPES, CudaProgram
from akx.backends.program import Program
from akx.core.matrix import Matrix
from akx.cost.counts import Work

__all__ = ["ReorderedProgram", "moved_bytes", "prepared", "with_order"]

_SOURCE = Path(__file__).with_name("reordered.cu")
#: THREADS, TILE and LINE of the kernels.
_THREADS, _TILE, _LINE = 256, 128, 64
_SECTOR = 32.0


def prepared(matrix: Matrix, make: Callable[[Matrix], Program]) -> ReorderedProgram:
    """The program that `make` makes of the matrix by levels, for callers who have rows in the order of the matrix."""
    found = sent_by_levels(matrix, keep=False)
    made = make(found.matrix)
    assert isinstance(made, CudaProgram)
    return ReorderedProgram(made, found.order, found.place, found.source)


def moved_bytes(matrix: Matrix, k: int) -> float:
    """Bytes that the order costs a call and start vector: results side by side and apart, and x."""
    size = matrix.dtype.itemsize
    return float(matrix.n) * (4.0 * k * size + 3.0 * size + _SECTOR + 4.0)


def with_order(work: Work, matrix: Matrix, k: int, vectors: int) -> Work:
    """The work of the program in the other order, with what it takes to come there and back."""
    lines, moved = -(-k * vectors * matrix.dtype.itemsize // _LINE), vectors * moved_bytes(matrix, k)
    return replace(
        work,
        memory_bytes=work.memory_bytes + moved,
        cache_bytes=work.cache_bytes + moved,
        launches=work.launches + 1.0 + 2.0 * lines,
    )


class ReorderedProgram(CudaProgram):
    """`made` is a program for P A P^T.

    `order`, `place`, `source`: ``order[new] = old``, ``place[old] = new``, (n,), and ``data_new = data[source]``,
    (nnz,), of uint32 on the device.
    """

    def __init__(self, made: CudaProgram, order: DeviceArray, place: DeviceArray, source: DeviceArray) -> None:
        super().__init__(made.n, made.k, made.dtype)
        self.made = made
        self._order, self._place = self.held(order), self.held(place)
        self._source: DeviceArray | NDArray[np.uint32] = self.held(source)
        self._lines = _LINE // self.dtype.itemsize  # vectors of a line
        self._kernels: dict[str, Kernel] = {}
        self._vectors: dict[int, DeviceArray] = {}
        self._beside: DeviceArray | None = None

    def ready(self, vectors: int) -> None:
        self.made.ready(vectors)
        if not self._kernels:
            module = load(_SOURCE, {"AKX_VALUE": C_TYPES[self.dtype.name]}, device=cuda_device())
            names = ("take_starts", "put_side_by_side", "put_apart")
            self._kernels = {name: module.kernel(name) for name in names}
        if vectors not in self._vectors:
            self._vectors[vectors] = self.held(empty((self.k + 1, vectors, self.n), self.dtype))
        if self._beside is None:
            self._beside = self.held(empty((self.n, self._lines), self.dtype))

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors, rows = x.shape[0], np.uint32(self.n)
        own, beside = self._vectors[vectors], self._beside
        start, first = own.view(0, x.shape), np.uint64(0) if x.pointer == out.pointer else out
        self._launch("take_starts", self.n, _THREADS, [rows, np.uint32(vectors), self._order, x, start, first])
        self.made.stream = self.stream
        self.made.enqueue(start, own, coefficients)
        for done in range(vectors, (self.k + 1) * vectors, self._lines):
            count = min(self._lines, (self.k + 1) * vectors - done)
            shift, place = np.uint32((count - 1).bit_length()), done * self.n
            sizes = [rows, np.uint32(count), shift]
            some = own.view(place, (count, self.n)), out.view(place, (count, self.n))
            self._launch("put_side_by_side", self.n, _TILE, [*sizes, some[0], beside])
            self._launch("put_apart", self.n, _TILE, [*sizes, self._place, beside, some[1]])

    def _launch(self, name: str, rows: int, each: int, arguments: list[Any]) -> None:
        self._kernels[name].launch(-(-rows // each), _THREADS, arguments, stream=self.stream)

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        if data.size != self._source.size:
            self.made.update_values(data)  # says what is wrong
            return
        given = data if isinstance(data, DeviceArray) else to_device(data.astype(self.dtype, copy=False))
        source = self._source if isinstance(self._source, DeviceArray) else to_device(self._source)
        was_as_planned = self.made.is_as_planned
        self.made.update_values(take(given, source) if given.size else given)
        if self.made.is_as_planned != was_as_planned:
            self.forget_graphs()  # they have the kernels, and where the old values are

    @property
    def nbytes(self) -> int:
        shared = {id(array): array.nbytes for array in self.made._kept()}
        return super().nbytes + self.made.nbytes - sum(shared.values())

    @property
    def stored_error(self) -> float:
        return self.made.stored_error

    @property
    def is_as_planned(self) -> bool:
        return self.made.is_as_planned

    def make_room(self) -> None:
        """Keep on the host what only new values need."""
        self.made.make_room()
        if isinstance(self._source, DeviceArray):
            self._arrays = [array for array in self._arrays if array is not self._source]
            self._source = self._source.get()

    def _kept(self) -> list[DeviceArray]:
        return [*super()._kept(), *self.made._kept()]
