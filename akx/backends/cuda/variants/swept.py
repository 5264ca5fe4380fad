"""Programs of `sweep`: one power after another, in kernels of one layout whatever values are stored as.

Where a plan says so (`early`), all kernels of a call but the first begin before those before them have ended
(``swept.cuh``). What comes before a call, new values say, is done when its first one begins.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression.program import StoredProgram
from akx.core.plan import Plan

__all__ = ["SweptProgram", "how_data_comes", "stored_name"]

#: Parts of the matrix by which kernels are told how much of it L2 is asked to keep.
_PARTS = 256


def stored_name(stored: np.dtype[Any]) -> str:
    """What the type that values are stored as is called in the kernels of `sweep`."""
    return "u16" if stored == np.uint16 else C_TYPES[stored.name]


def how_data_comes(plan: Plan) -> int:
    """HOW of the kernels: 0 by any cache, 1 marked as not to be kept, 2 as L2 is told."""
    return 2 if plan.typed.keep else int(plan.typed.once)


class SweptProgram(StoredProgram):
    """Subclasses say which kernels a number of start vectors takes, and launch them."""

    _plan: Plan

    def __init__(self, n: int, k: int, dtype: np.dtype[Any]) -> None:
        super().__init__(n, k, dtype)
        self.kernels: dict[int, dict[str, Kernel]] = {}

    @abstractmethod
    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        """The kernels for so many start vectors, with values stored as that."""

    def ready(self, vectors: int) -> None:
        if vectors not in self.kernels:
            self.kernels[vectors] = self.kernels_of(self._stored, vectors)

    def kernels_in_full(self) -> dict[int, dict[str, Kernel]]:
        return {vectors: self.kernels_of(self.dtype, vectors) for vectors in self.kernels}

    @property
    def is_early(self) -> bool:
        """Whether kernels of a call, but for the first, begin before those before them have ended."""
        return bool(self._plan.typed.early)

    def kept(self, *others: DeviceArray) -> np.uint32:
        """256ths of the matrix that L2 is asked to keep: of stored values, and of these arrays."""
        size = self._values.nbytes + sum(array.nbytes for array in others)
        return np.uint32(min(_PARTS, round(_PARTS * 2**20 * int(self._plan.typed.keep) / max(1, size))))

    def powers(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> Iterator[list[Any]]:
        """For each power what its kernel reads and writes: v_j, v_{j-1}, v_{j+1}, v_0 to be filled, coefficients."""
        shape, none = x.shape, np.uint64(0)
        size = x.size
        for j in range(self.k):
            own: DeviceArray = out.view(j * size, shape) if j else x
            before: Any = out.view((j - 1) * size, shape) if j > 1 else x if j else none
            first: Any = out if j == 0 and x.pointer != out.pointer else none
            yield [own, before, out.view((j + 1) * size, shape), first, coefficients.view(3 * j, (3,))]
