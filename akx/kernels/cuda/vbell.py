"""`sweep` on the GPU in variable block ELL: dense blocks of mixed sizes with one index each (:mod:`akx.formats.vbell`).

Unknowns of a node are found in the pattern (:mod:`akx.formats.nodes`), 1 to 6 of them, and sizes may be mixed. A warp
has a slice of nodes of one size, `lanes` threads a row; see ``vbell.cuh`` for the kernel. The order of the nodes is its
own: rows are written where they belong, so that nothing has to be permuted back or added up.

A program is laid out on the device (:mod:`akx.kernels.cuda.translate`): the host sends the pattern and the values as
they are. Where each entry goes stays there, 4 bytes a slot, for values that come later.

Traffic per call and start vector: k times w + 4 / (r c) bytes an entry, over the fill, unless it fits the L2 cache; k
times x read and y written. Flops: 2 nnz k.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.device.cuda.compile import load
from akx.device.cuda.facts import CudaDevice
from akx.device.cuda.launch import Kernel
from akx.device.cuda.memory import DeviceArray, empty, to_device
from akx.errors import DeviceMemoryError
from akx.formats.base import pattern_of
from akx.formats.nodes import Nodes, alike_rows, natural_nodes
from akx.formats.vbell import VbellArrays, lay_out, slots_of, steps_of
from akx.kernels.cuda.program import C_TYPES
from akx.kernels.cuda.stored import placed, way_of
from akx.kernels.cuda.stored_values import place_offsets
from akx.kernels.cuda.swept import SweptProgram, stored_name
from akx.kernels.cuda.translate import DeviceVbell, reason_of, shape_of, translated
from akx.kernels.cuda.values import GIVEN, Places
from akx.matrix import Matrix
from akx.plan import Plan

__all__ = [
    "PlacesOnDevice",
    "VbellProgram",
    "laid_out",
    "macros",
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


def nodes_of(matrix: Matrix) -> Nodes:
    """The natural nodes; memoised with the pattern."""
    key = ("akx.kernels.cuda.vbell", "nodes")
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = natural_nodes(pattern_of(matrix))
    found: Nodes = matrix.pattern_cache[key]
    return found


def slots(matrix: Matrix, lanes: int) -> int:
    """Values stored, padding included; memoised with the pattern."""
    key = _slots_key(lanes)
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = slots_of(nodes_of(matrix), shape_of(lanes))
    return int(matrix.pattern_cache[key])


def turns(matrix: Matrix, lanes: int) -> int:
    """Most times that a warp waits for what it has asked for together; memoised with the pattern."""
    key = ("akx.kernels.cuda.vbell", "turns", lanes)
    if key not in matrix.pattern_cache:
        steps = steps_of(nodes_of(matrix), shape_of(lanes))
        matrix.pattern_cache[key] = int((-(-steps // _TOGETHER)).sum(axis=1).max(initial=0))
    return int(matrix.pattern_cache[key])


def reason_against(matrix: Matrix, lanes: int) -> str | None:
    """Why the variant is not possible with so many threads a row."""
    found = reason_of(matrix.n, matrix.nnz, 0)  # which needs no layout
    return reason_of(matrix.n, matrix.nnz, slots(matrix, lanes)) if found is None else found


def on_device(matrix: Matrix, lanes: int) -> DeviceVbell | None:
    """The pattern in slices on the device; None where the variant is not possible. Then the host knows why not.

    So :func:`reason_against` has an answer without a layout on the host.
    """
    key = _slots_key(lanes)
    if reason_of(matrix.n, matrix.nnz, matrix.pattern_cache.get(key, 0)) is not None:
        return None
    pattern = pattern_of(matrix)
    pointer, index = (to_device(one.astype(np.uint32, copy=False)) for one in (pattern.indptr, pattern.indices))
    found = translated(pointer, index, lanes)
    matrix.pattern_cache[key] = found.slots
    return found if isinstance(found, DeviceVbell) else None


def _slots_key(lanes: int) -> tuple[object, ...]:
    return ("akx.kernels.cuda.vbell", "slots", lanes)


def worthwhile(matrix: Matrix, lanes: int) -> bool:
    """Whether the matrix has dense blocks, so that an index for each saves something."""
    if alike_rows(pattern_of(matrix)) < _LEAST_ALIKE:  # which costs nothing, where there are none
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
        "AKX_ONCE": int(plan.option("once", False)),
        "AKX_THREADS": int(plan.option("block", 256)),
    }


class PlacesOnDevice(Places):
    """Where entries go, from a map that is on the device already."""

    def __init__(self, entry: DeviceArray) -> None:
        super().__init__(lambda: None)
        self._entry, self._known = entry, True


class VbellProgram(SweptProgram):
    """A matrix in slices on the device, by default those of :func:`on_device`. The caller has asked ``feasible``."""

    def __init__(
        self, matrix: Matrix, plan: Plan, device: CudaDevice, planned: str, found: DeviceVbell | None = None
    ) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._plan, self._device = plan, device
        self._block = int(plan.option("block", 256))
        if found is None:
            found = on_device(matrix, int(plan.variant.removeprefix("vbell-")))
        assert found is not None
        self._slices = found.slices
        self._arrays_of = [self.held(array) for array in (found.head, found.first, found.column)]
        entry = found.entry
        self._places = PlacesOnDevice(entry)
        self.store_values(
            way_of(plan),
            matrix.data,
            lambda data: placed(data, entry.get()),
            lambda: None,
            planned,
            matrix.value_error,
        )

    def place_values(
        self,
        on_host: Callable[[NDArray[Any]], NDArray[Any]],
        entry: NDArray[np.uint32] | Callable[[], NDArray[np.uint32] | None],
        data: Any,
    ) -> None:
        """Place the first values on the device; `on_host` is for those of later that it has no memory for."""
        self._on_host = on_host
        where, given = self._places.entry, to_device(data)
        assert where is not None
        self._values = self.held(empty(max(1, where.size), data.dtype))
        if where.size == 0:
            self._values.fill_bytes(0)
        elif data.dtype == np.uint16:
            place_offsets(given, where, self._values)
        else:
            self._places.fill(self._values, given)

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """As of all programs; values of the host are placed on the device, where there is memory for them."""
        if not isinstance(data, DeviceArray) and data.size == self._entries:
            with contextlib.suppress(DeviceMemoryError):
                data = to_device(data if data.dtype.name in GIVEN[self.dtype.name] else data.astype(self.dtype))
        super().update_values(data)

    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        given = macros(self._plan, self.dtype, stored, vectors)
        return {"step": load(_SOURCE, given, device=self._device).kernel("step")}

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        step, grid = self.kernels[x.shape[0]]["step"], -(-self._slices * _WARP // self._block)
        matrix: list[Any] = [np.uint32(self.n), np.uint32(self._slices), *self._arrays_of, self._values, self._table]
        for vectors in self.powers(x, out, coefficients):
            step.launch(grid, self._block, [*matrix, *vectors], stream=self.stream)
