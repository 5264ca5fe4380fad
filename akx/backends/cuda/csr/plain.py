"""Plain products on the GPU: CSR arrays as they are, by one kernel in few instances.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}, the recurrence fused, one launch a step and 8, 4, 2 or 1 start vectors.
What comes before the first result is the transfer of the arrays and, on a machine that has never run it, one small
kernel by NVRTC. Nothing is planned or laid out: this is what calls run on until preparing has paid
(:mod:`akx.operator.device_products`).

Threads of a row are 2, 8 or 32, by the mean length of rows, and 32 where one row is so long that few threads would be
waited for. They are instances of ``sweep.cu`` that a tuned plan of `sweep` has too. Where some rows are much longer
than the mean, each of these has a block of its own, in the same launch (``long_rows.cuh``): in a graph with hubs all
others would wait for them.

Traffic per call: k times the matrix for each launch of start vectors, unless it fits the L2 cache. Flops: 2 nnz k.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import ROOT, begin, load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.program import C_TYPES, CudaProgram
from akx.backends.program import PlainProducts
from akx.core.matrix import Matrix

__all__ = ["CudaPlainProducts", "PlainProgram", "expect", "groups_of", "lanes_of"]

_SOURCE, _WITH_LONG_ROWS = ROOT / "schedules/sweep/sweep.cu", Path(__file__).with_name("long_rows.cu")
#: What looks at a matrix and its content, at a matrix to choose a plan, and what solvers do with vectors of a type.
_TO_SOLVE, _TO_PLAN, _OF_VECTORS = (
    tuple(ROOT / f"{name}.cu" for name in names)
    for names in (
        ("matrix/content", "matrix/canonical"),
        ("matrix/canonical", "matrix/digest", "matrix/features", "lengths"),
        ("vectors/vectors", "vectors/conjugate"),
    )
)
#: What was expected in this process: types, threads of a row, and what is to be looked at.
_expected: set[tuple[str, int, tuple[Path, ...]]] = set()
_BLOCK, _CSR = 256, 1
#: Threads of a row, and the mean length of rows up to which they are so many.
_LANES = ((2, 12.0), (8, 96.0), (32, float("inf")))
#: A row that is longer has as many threads as there may be.
_LONG = 1024
#: A row that has a block of its own is longer than that, and so many times as long as the mean; and most such rows.
_OWN_BLOCK, _OVER_MEAN, _FEW = 256, 16, 1 << 16
#: Start vectors of a launch.
_TOGETHER = (8, 4, 2, 1)


def lanes_of(n: int, nnz: int, longest: int) -> int:
    """Threads of a row, for a matrix whose longest row has so many entries."""
    lanes = next(lanes for lanes, most in _LANES if nnz <= most * n)
    return _LANES[-1][0] if longest > _LONG else lanes


def expect(A: Any, *, to_plan: bool = False) -> None:
    """Begin to compile what a first solve with A is going to load, as far as A says it without being looked at.

    That is guessed of a matrix with a few long rows, and of solvers other than :func:`akx.solvers.cg`. `to_plan`: what
    choosing a plan for A loads, instead. The content of an :class:`akx.Matrix` is not looked at.
    """
    name, nnz, shape = (getattr(A, one, None) for one in ("dtype", "nnz", "shape"))
    name, lanes = str(name).removeprefix("torch."), 0
    if not to_plan and name in C_TYPES and type(nnz) is int and shape:
        lanes = lanes_of(shape[0], nnz, 0)
    looked = _TO_PLAN if to_plan else () if isinstance(A, Matrix) else _TO_SOLVE
    if (name, lanes, looked) in _expected:
        return
    _expected.add((name, lanes, looked))
    wanted: list[tuple[Path, dict[str, int | str]]] = [(source, {}) for source in looked]
    if lanes:
        wanted.append((_SOURCE, _macros(np.dtype(name), lanes, 1)))
        wanted += [(source, {"AKX_VALUE": C_TYPES[name]}) for source in _OF_VECTORS]
    begin(wanted, device=cuda_device())


class CudaPlainProducts(PlainProducts):
    """The arrays of one matrix on the device, and a program for each k.

    `indptr` array (n + 1,): of CSR, of the host. `indices`, `data` arrays (nnz,), (nnz,): of the host or the device.
    Entries of a row may be in any order, and twice.
    """

    def __init__(self, indptr: NDArray[Any], indices: Any, data: Any) -> None:
        n, nnz = indptr.size - 1, int(indptr[-1])
        self.n, self.dtype = n, data.dtype
        lengths = np.diff(indptr)
        self.most = max(_OWN_BLOCK, int(_OVER_MEAN * nnz / max(n, 1)))
        rows = np.flatnonzero(lengths > self.most)
        rows = rows if 0 < rows.size <= _FEW else rows[:0]
        #: The rows that have a block of their own, where there are such.
        self.long_rows = to_device(rows.astype(np.uint32)) if rows.size else None
        of_rows = int(lengths[rows].sum()) if rows.size else 0
        self.lanes = lanes_of(n, nnz - of_rows, 0 if rows.size else int(lengths.max(initial=0)))
        self.arrays = [_sent(indptr, n + 1), _sent(indices, nnz)]
        self.values = empty(1, self.dtype)
        if nnz:
            self.values = data if isinstance(data, DeviceArray) else to_device(np.ascontiguousarray(data[:nnz]))
        self._programs: dict[int, PlainProgram] = {}

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(array.nbytes for array in self.arrays)

    def program(self, k: int) -> PlainProgram:
        found = self._programs.get(k)
        if found is None:
            found = self._programs[k] = PlainProgram(self, k)
        return found


class PlainProgram(CudaProgram):
    """k steps with arrays that others of the same matrix have too."""

    def __init__(self, products: CudaPlainProducts, k: int) -> None:
        super().__init__(products.n, k, products.dtype)
        self._lanes, rows = products.lanes, products.long_rows
        self._kernels: dict[int, Kernel] = {}
        self._values, n = products.values, np.uint32(self.n)
        self._grid = -(-self.n * products.lanes // _BLOCK)
        self._is_uneven = rows is not None
        self._matrix: list[Any] = [n, *products.arrays, products.values, np.uint64(0)]
        self._behind: list[Any] = [np.uint32(0)]
        if rows is not None:
            self._grid += rows.size
            of_rows = [n, np.uint32(rows.size), np.uint32(products.most), rows]
            self._matrix, self._behind = [*of_rows, *products.arrays, products.values], []

    def ready(self, vectors: int) -> None:
        for together in groups_of(vectors):
            if together not in self._kernels:
                source = _WITH_LONG_ROWS if self._is_uneven else _SOURCE
                given = _macros(self.dtype, self._lanes, together, uneven=self._is_uneven)
                self._kernels[together] = load(source, given, device=cuda_device()).kernel("step")

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """Take new values, which all programs with these arrays have from now on."""
        if isinstance(data, DeviceArray):
            self._values.copy_from(data)
        elif data.size:
            self._values.set(np.ascontiguousarray(data, dtype=self.dtype))

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        n, size, none, first = self.n, x.size, np.uint64(0), x.pointer != out.pointer
        begin = 0
        for together in groups_of(x.shape[0]):
            kernel, shape, at = self._kernels[together], (together, n), begin * n
            begin += together
            for j in range(self.k):
                own = out.view(j * size + at, shape) if j else x.view(at, shape)
                before: Any = none
                if j:
                    before = out.view((j - 1) * size + at, shape) if j > 1 else x.view(at, shape)
                made = out.view((j + 1) * size + at, shape)
                filled: Any = out.view(at, shape) if j == 0 and first else none
                vectors = [own, before, made, filled, coefficients.view(3 * j, (3,))]
                kernel.launch(self._grid, _BLOCK, [*self._matrix, *vectors, *self._behind], stream=self.stream)


def _macros(dtype: np.dtype[Any], lanes: int, vectors: int, *, uneven: bool = False) -> dict[str, int | str]:
    name = C_TYPES[dtype.name]
    given: dict[str, int | str] = {"AKX_VALUE": name, "AKX_VECTORS": vectors, "AKX_LANES": lanes}
    return given if uneven else given | {"AKX_STORED": name, "AKX_VARIANT": _CSR, "AKX_ONCE": 0}


def groups_of(vectors: int) -> list[int]:
    """So many start vectors as sums of the numbers that kernels are there for."""
    found = []
    for together in _TOGETHER:
        count, vectors = divmod(vectors, together)
        found += [together] * count
    return found


def _sent(indices: Any, size: int) -> DeviceArray:
    """Indices as the kernels have them: 32 bits without a sign."""
    if not size:
        return empty(1, np.uint32)
    if isinstance(indices, DeviceArray):
        return indices
    used = np.ascontiguousarray(indices[:size])
    return to_device(used.view(np.uint32) if used.dtype.itemsize == 4 else used.astype(np.uint32))
