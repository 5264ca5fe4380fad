"""`sweep` on the GPU in variable block ELL: dense blocks of mixed sizes with one index each (:mod:`akx.formats.vbell`).

Unknowns of a node are found in the pattern (:mod:`akx.formats.nodes`), 1 to 6 of them, and sizes may be mixed. A warp
has a slice of nodes of one size, `lanes` threads a row; see ``vbell.cuh`` for the kernel. The order of the nodes is its
own: rows are written where they belong, so that nothing has to be permuted back or added up.

Traffic per call and start vector: k times w + 4 / (r c) bytes an entry, over the fill, unless it fits the L2 cache; k
times x read and y written. Flops: 2 nnz k.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from akx.device.cuda.compile import load
from akx.device.cuda.facts import CudaDevice
from akx.device.cuda.launch import Kernel
from akx.device.cuda.memory import DeviceArray
from akx.formats.base import pattern_of
from akx.formats.nodes import Nodes, alike_rows, natural_nodes
from akx.formats.vbell import Shape, VbellArrays, lay_out, slots_of, steps_of
from akx.kernels.cuda.program import C_TYPES
from akx.kernels.cuda.stored import placed, way_of
from akx.kernels.cuda.swept import SweptProgram, stored_name
from akx.matrix import Matrix
from akx.plan import Plan

__all__ = ["VbellProgram", "laid_out", "macros", "nodes_of", "reason_against", "slots", "turns", "worthwhile"]

_SOURCE = Path(__file__).with_name("vbell.cu")
_WARP = 32
#: Blocks of 1 to 6 columns that the kernel asks for together, as in ``vbell.cuh``.
_TOGETHER = np.array([6, 4, 3, 2, 2, 2])
#: Values stored for each entry that there may be, and entries that a block must have in the mean to be worth it.
_MOST_PADDING, _LEAST_ENTRIES = 2.0, 2.0
#: Share of the rows that must be like the row before: of nodes of two a half of them is.
_LEAST_ALIKE = 0.2


def nodes_of(matrix: Matrix) -> Nodes:
    """The natural nodes; memoised with the pattern."""
    key = ("akx.kernels.cuda.vbell", "nodes")
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = natural_nodes(pattern_of(matrix))
    found: Nodes = matrix.pattern_cache[key]
    return found


def slots(matrix: Matrix, lanes: int) -> int:
    """Values stored, padding included; memoised with the pattern."""
    key = ("akx.kernels.cuda.vbell", "slots", lanes)
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = slots_of(nodes_of(matrix), _shape(lanes))
    return int(matrix.pattern_cache[key])


def turns(matrix: Matrix, lanes: int) -> int:
    """Most times that a warp waits for what it has asked for together; memoised with the pattern."""
    key = ("akx.kernels.cuda.vbell", "turns", lanes)
    if key not in matrix.pattern_cache:
        steps = steps_of(nodes_of(matrix), _shape(lanes))
        matrix.pattern_cache[key] = int((-(-steps // _TOGETHER)).sum(axis=1).max(initial=0))
    return int(matrix.pattern_cache[key])


def reason_against(matrix: Matrix, lanes: int) -> str | None:
    """Why the variant is not possible with so many threads a row."""
    if matrix.n >= 2**31:
        return "more rows than 31 bits number"
    if slots(matrix, lanes) >= 2**32:
        return "more than 2**32 slots"
    if slots(matrix, lanes) > _MOST_PADDING * matrix.nnz + 4096:
        return f"padding would make it more than {_MOST_PADDING:g} times as large"
    return None


def worthwhile(matrix: Matrix, lanes: int) -> bool:
    """Whether the matrix has dense blocks, so that an index for each saves something."""
    if alike_rows(pattern_of(matrix)) < _LEAST_ALIKE:  # which costs nothing, where there are none
        return False
    return _LEAST_ENTRIES * nodes_of(matrix).blocks <= matrix.nnz and reason_against(matrix, lanes) is None


def laid_out(matrix: Matrix, lanes: int) -> VbellArrays:
    """The matrix's pattern in slices."""
    return lay_out(pattern_of(matrix), nodes_of(matrix), _shape(lanes))


def macros(plan: Plan, dtype: np.dtype[Any], stored: np.dtype[Any], vectors: int) -> dict[str, int | str]:
    """The macros of the plan's kernel for so many start vectors."""
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": stored_name(stored),
        "AKX_VECTORS": vectors,
        "AKX_ONCE": int(plan.option("once", False)),
        "AKX_THREADS": int(plan.option("block", 256)),
    }


class VbellProgram(SweptProgram):
    """A matrix in slices on the device."""

    def __init__(self, matrix: Matrix, plan: Plan, device: CudaDevice, planned: str) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._plan, self._device = plan, device
        self._block = int(plan.option("block", 256))
        found = laid_out(matrix, int(plan.variant.removeprefix("vbell-")))
        self._slices = found.head.shape[0]
        self._arrays_of = [self.hold(array) for array in (found.head, found.first, found.column)]
        entry = found.entry  # of all that was laid out this stays on the host
        self.store_values(
            way_of(plan), matrix.data, lambda data: placed(data, entry), entry, planned, matrix.value_error
        )

    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        given = macros(self._plan, self.dtype, stored, vectors)
        return {"step": load(_SOURCE, given, device=self._device).kernel("step")}

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        step, grid = self.kernels[x.shape[0]]["step"], -(-self._slices * _WARP // self._block)
        matrix: list[Any] = [np.uint32(self.n), np.uint32(self._slices), *self._arrays_of, self._values, self._table]
        for vectors in self.powers(x, out, coefficients):
            step.launch(grid, self._block, [*matrix, *vectors], stream=self.stream)


def _shape(lanes: int) -> Shape:
    return Shape(_WARP, lanes, _WARP)
