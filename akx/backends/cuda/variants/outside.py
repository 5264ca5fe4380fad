"""Variants of the GPU's `sweep` from other packages: a source, what packs a matrix for it, and the program of both.

The source has one kernel, which makes v_{j+1} from v_j, the recurrence of the basis included::

    extern "C" __global__ void step(u32 n, ARRAYS, const T *value, const T *x, const T *before, T *y, T *first,
                                    const T *coefficient)

ARRAYS are those that the matrix is packed in, T is ``AKX_VALUE``, and x and y are ``AKX_VECTORS`` vectors of n entries,
one behind the other. ``#include "swept.cuh"`` finds akx's own text: types and arithmetic, and ``finish_step``, the
recurrence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import ROOT, load
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression.encodings import FULL
from akx.backends.cuda.value_compression.new_values import entry_map
from akx.backends.cuda.variants.swept import SweptProgram
from akx.backends.variant import AnyVariant
from akx.core.matrix import Matrix
from akx.core.options import CudaSweep
from akx.core.plan import Plan

__all__ = ["INCLUDE", "CudaVariant", "OutsideProgram", "Packed", "outside_reason"]

#: Where a source of another package finds ``swept.cuh``.
INCLUDE = f"-I{ROOT}/include"
#: Options that are not about the layout: a program that has no use for one does without.
_OF_ALL = ("early", "hubs")


@dataclass(frozen=True)
class Packed:
    """A matrix as a kernel has it, but for its values.

    Attributes
    ----------
    arrays : tuple of arrays
        Which the kernel gets, in order, none of them empty.
    grid, block : int
        Blocks, and threads of each.
    slot : (nnz,) array of unsigned integers, optional
        ``value[slot] = data`` for the data of canonical CSR; None where they are the entries themselves.
    slots : int
        Of `value`, padding of zero included.
    macros : mapping of str to int or str
        To compile with, beside those of the module.
    """

    arrays: tuple[NDArray[Any], ...]
    grid: int
    block: int
    slots: int
    slot: NDArray[Any] | None = None
    macros: Mapping[str, int | str] = field(default_factory=dict)


class CudaVariant(AnyVariant):
    """An SpMV variant of the GPU, registered once (:func:`akx.backends.registry.register`).

    Attributes
    ----------
    source : Path
        A ``.cu`` file; ``.cuh`` files beside it, and those of akx, can be included by name.
    waits : bool
        Whether its kernel calls ``let_the_next_begin``, and ``after_the_last`` before it reads vectors: then steps may
        begin early.
    """

    backend = "cuda"
    source: Path
    waits = False

    @abstractmethod
    def pack(self, matrix: Matrix) -> Packed:
        """The pattern laid out."""


def outside_reason(plan: Plan) -> str | None:
    """Why a plan with a variant of another package makes no sense, whatever the matrix, or None."""
    allowed = CudaSweep.defaults
    name = next((name for name, value in plan.options.items() if name not in _OF_ALL and value != allowed[name]), None)
    return None if name is None else f"{name} is for variants of akx, not for {plan.variant}"


class OutsideProgram(SweptProgram):
    """k products by the kernel of a :class:`CudaVariant`; see :class:`akx.backends.program.Program`."""

    def __init__(self, variant: CudaVariant, matrix: Matrix, plan: Plan, device: CudaDevice) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._plan, self._device, self._variant = plan, device, variant
        self._packed = variant.pack(matrix)
        self._before = [self.hold(np.ascontiguousarray(array)) for array in self._packed.arrays]
        slot, slots = self._packed.slot, max(1, self._packed.slots)
        slot = np.arange(matrix.nnz) if slot is None and slots > matrix.nnz else slot

        def laid(data: NDArray[Any]) -> NDArray[Any]:
            found = np.zeros(slots, dtype=data.dtype)
            found[slice(data.size) if slot is None else slot] = data
            return found

        self.store_values(matrix, FULL, None, laid, lambda: None if slot is None else entry_map(slot, slots))

    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        macros = {"AKX_VALUE": C_TYPES[self.dtype.name], "AKX_VECTORS": vectors, **self._packed.macros}
        return {"step": load(self._variant.source, macros, device=self._device, options=[INCLUDE]).kernel("step")}

    @property
    def is_early(self) -> bool:
        return self._variant.waits and super().is_early

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        step = self.kernels[x.shape[0]]["step"]
        matrix: list[Any] = [np.uint32(self.n), *self._before, self._values]
        for j, vectors_of in enumerate(self.powers(x, out, coefficients)):
            early = j > 0 and self.is_early
            step.launch(self._packed.grid, self._packed.block, [*matrix, *vectors_of], early=early, stream=self.stream)
