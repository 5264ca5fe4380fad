"""A diagonal matrix on the device: one multiplication for each entry of a vector, three words moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, to_device
from akx.backends.cuda.program import C_TYPES

__all__ = ["Scaling"]

_SOURCE = Path(__file__).with_name("scaling.cu")
_BLOCK = 256


class Scaling:
    """A diagonal matrix.

    `diagonal` (n,): of the type of the vectors.
    """

    def __init__(self, diagonal: NDArray[Any]) -> None:
        self._diagonal = to_device(diagonal)
        macros: dict[str, int | str] = {"AKX_VALUE": C_TYPES[diagonal.dtype.name]}
        self._kernel = load(_SOURCE, macros, device=cuda_device()).kernel("scale_entries")

    def apply(self, x: DeviceArray, out: DeviceArray) -> None:
        """Queue out = D x; both (n,) and of the type of D."""
        n = self._diagonal.size
        self._kernel.launch(-(-n // _BLOCK), _BLOCK, [np.uint64(n), self._diagonal, x, out])
