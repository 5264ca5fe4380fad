"""Programs of `sweep`: one power after another, in kernels of one layout whatever values are stored as."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.device.cuda.launch import Kernel
from akx.device.cuda.memory import DeviceArray, to_device
from akx.kernels.cuda.program import C_TYPES
from akx.kernels.cuda.stored import FULL
from akx.kernels.cuda.stored_program import StoredProgram
from akx.kernels.cuda.values import not_empty

__all__ = ["SweptProgram", "stored_name"]


def stored_name(stored: np.dtype[Any]) -> str:
    """What the type that values are stored as is called in the kernels of `sweep`."""
    return "u16" if stored == np.uint16 else C_TYPES[stored.name]


class SweptProgram(StoredProgram):
    """Subclasses say which kernels a number of start vectors takes, and launch them."""

    _made: dict[int, dict[str, Kernel]]

    @abstractmethod
    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        """The kernels for so many start vectors, with values stored as that."""

    def ready(self, vectors: int) -> None:
        if vectors not in self.kernels:
            self.kernels[vectors] = self.kernels_of(self._stored, vectors)

    @property
    def kernels(self) -> dict[int, dict[str, Kernel]]:
        """The kernels made so far, by the number of start vectors and by name."""
        if not hasattr(self, "_made"):
            self._made = {}
        return self._made

    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these and all later values in full: in the same places."""
        values = to_device(not_empty(self._on_host(data)))
        made = {vectors: self.kernels_of(self.dtype, vectors) for vectors in self.kernels}
        self._graphs.clear()  # they have the kernels, and where the old values are
        self._arrays = [held for held in self._arrays if held is not self._values]
        self._values, self._made = self.held(values), made
        self._way, self._stored, self._tabled = FULL, self.dtype, 0

    def powers(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> Iterator[list[Any]]:
        """For each power what its kernel reads and writes: v_j, v_{j-1}, v_{j+1}, v_0 to be filled, coefficients."""
        shape, none = x.shape, np.uint64(0)
        size = x.size
        for j in range(self.k):
            own: DeviceArray = out.view(j * size, shape) if j else x
            before: Any = out.view((j - 1) * size, shape) if j > 1 else x if j else none
            first: Any = out if j == 0 and x.pointer != out.pointer else none
            yield [own, before, out.view((j + 1) * size, shape), first, coefficients.view(3 * j, (3,))]
