"""`sweep` on the GPU in variable block ELL: dense blocks of mixed sizes with one index each (:mod:`akx.formats.vbell`).

Unknowns of a node are found in the pattern (:mod:`akx.formats.natural_blocks`), 1 to 6 of them, and sizes may be mixed.
A warp has a slice of nodes of one size, `lanes` threads a row; see ``vbell.cuh`` for the kernel. The order of the nodes
is its own: rows are written where they belong, so that nothing has to be permuted back or added up.

A program is laid out on the device (:mod:`akx.backends.cuda.variants.translate`): the host sends the pattern and the
values as they are. Where each entry goes stays there, 4 bytes a slot, for values that come later, unless it has to make
room (:meth:`VbellProgram.make_room`). Where the device has no memory for that, up to 20 bytes an entry of float64 and
160 a row, the host lays the same arrays out.

Traffic per call and start vector: k times w + 4 / (r c) bytes an entry, over the fill, unless it fits the L2 cache; k
times x read and y written. Flops: 2 nnz k.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression.encodings import way_of
from akx.backends.cuda.variants.similar_rows import alike_share
from akx.backends.cuda.variants.similar_rows import natural_nodes_of as nodes_of
from akx.backends.cuda.variants.slots import pattern_there
from akx.backends.cuda.variants.swept import SweptProgram, how_data_comes, stored_name
from akx.backends.cuda.variants.translate import DeviceVbell, reason_of, shape_of, translated
from akx.backends.pattern_cache import per_pattern
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import pattern_of
from akx.formats.vbell import VbellArrays, lay_out, sizes_of

__all__ = [
    "VbellProgram",
    "known_reason",
    "laid_out",
    "macros",
    "made_on_device",
    "nodes_of",
    "on_device",
    "reason_against",
    "slots",
    "turns",
    "worthwhile",
]

_SOURCE = Path(__file__).with_name("vbell.cu")
_WARP = 32
#: Blocks of 1 to 6 columns that the kernel asks for together, as in ``vbell.cuh``.
_TOGETHER = np.array([6, 4, 3, 2, 2, 2])
#: Entries that a block must have in the mean to be worth it.
_LEAST_ENTRIES = 2.0
#: Share of the rows that must be like the row before: of nodes of two a half of them is.
_LEAST_ALIKE = 0.2


def slots(matrix: Matrix, lanes: int) -> int:
    """Values stored, padding included."""
    known: int | None = matrix.pattern_cache.get(_slots_key(lanes))
    return _sizes(matrix, lanes)[0] if known is None else known


def turns(matrix: Matrix, lanes: int) -> int:
    """Most times that a warp waits for what it has asked for together."""
    return _sizes(matrix, lanes)[1]


@per_pattern
def _sizes(matrix: Matrix, lanes: int) -> tuple[int, int]:
    """Both, which the slices tell."""
    found, steps = sizes_of(nodes_of(matrix), shape_of(lanes))
    matrix.pattern_cache[_slots_key(lanes)] = int(found)
    return int(found), int((-(-steps // _TOGETHER)).sum(axis=1).max(initial=0))


def reason_against(matrix: Matrix, lanes: int) -> str | None:
    """Why the variant is not possible with so many threads a row."""
    found = known_reason(matrix, lanes)
    return reason_of(matrix.n, matrix.nnz, slots(matrix, lanes)) if found is None else found


def known_reason(matrix: Matrix, lanes: int) -> str | None:
    """The same, by what is known without a look at the nodes: none may mean that nothing is known."""
    return reason_of(matrix.n, matrix.nnz, matrix.pattern_cache.get(_slots_key(lanes), 0))


def on_device(matrix: Matrix, lanes: int) -> DeviceVbell | None:
    """The pattern in slices on the device; None where the variant is not possible. Then the host knows why not.

    So :func:`reason_against` has an answer without a layout on the host.
    """
    if known_reason(matrix, lanes) is not None:
        return None
    found = translated(*pattern_there(matrix), lanes)
    matrix.pattern_cache[_slots_key(lanes)] = found.slots
    return found if isinstance(found, DeviceVbell) else None


def _slots_key(lanes: int) -> tuple[object, ...]:
    return ("akx.backends.cuda.variants.vbell", "slots", lanes)


def worthwhile(matrix: Matrix, lanes: int) -> bool:
    """Whether the matrix has dense blocks, so that an index for each saves something."""
    if alike_share(matrix) < _LEAST_ALIKE:  # which costs nothing, where there are none
        return False
    return _LEAST_ENTRIES * nodes_of(matrix).blocks <= matrix.nnz and reason_against(matrix, lanes) is None


def laid_out(matrix: Matrix, lanes: int) -> VbellArrays:
    """The matrix's pattern in slices."""
    return lay_out(pattern_of(matrix), nodes_of(matrix), shape_of(lanes))


def macros(plan: Plan, dtype: np.dtype[Any], stored: np.dtype[Any], vectors: int) -> dict[str, int | str]:
    """The macros of the plan's kernel for so many start vectors."""
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": stored_name(stored),
        "AKX_VECTORS": vectors,
        "AKX_ONCE": how_data_comes(plan),
        "AKX_THREADS": plan.typed.block,
    }


def made_on_device(matrix: Matrix, plan: Plan, device: CudaDevice, planned: str) -> VbellProgram | None:
    """The program of a plan, laid out on the device; None where that is not possible or takes more memory than it has.

    `planned` is how values were to be stored, :class:`VbellProgram` says the rest.
    """
    try:
        found = on_device(matrix, int(plan.variant.removeprefix("vbell-")))
        return None if found is None else VbellProgram(matrix, plan, device, planned, found)
    except DeviceMemoryError:
        return None


class VbellProgram(SweptProgram):
    """A matrix in slices on the device, of :func:`on_device` or :func:`laid_out`."""

    def __init__(
        self, matrix: Matrix, plan: Plan, device: CudaDevice, planned: str, found: DeviceVbell | VbellArrays
    ) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._plan, self._device = plan, device
        self._block = plan.typed.block
        self._slices = found.head.shape[0]
        arrays = (found.head, found.first, found.column)
        self._arrays_of = [self.held(array) if isinstance(array, DeviceArray) else self.hold(array) for array in arrays]
        self.entry = found.entry  # on the host it is all that stays of the layout
        self.store_values(matrix, way_of(plan), planned)

    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        given = macros(self._plan, self.dtype, stored, vectors)
        return {"step": load(_SOURCE, given, device=self._device).kernel("step")}

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        step, grid = self.kernels[x.shape[0]]["step"], -(-self._slices * _WARP // self._block)
        matrix: list[Any] = [np.uint32(self.n), np.uint32(self._slices), *self._arrays_of, self._values, self._table]
        kept = self.kept(self._arrays_of[-1])
        for j, vectors in enumerate(self.powers(x, out, coefficients)):
            step.launch(grid, self._block, [*matrix, *vectors, kept], early=j > 0 and self.is_early, stream=self.stream)
