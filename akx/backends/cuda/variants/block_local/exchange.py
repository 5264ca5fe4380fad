"""The memory in which parts publish what others read, without flags; see ``exchange.cuh``."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cuda.device.memory import DeviceArray, empty

__all__ = ["ABSENT", "TURNS", "ring_of"]

#: Vectors of what is published: one is written again when nobody can ask for what it held.
TURNS = 5
#: What stands in each 32 bits where nothing has been published: a signalling NaN.
ABSENT = {"float32": 0x7FA57FA5, "complex64": 0x7FA57FA5, "float64": 0x7FF47FF4, "complex128": 0x7FF47FF4}


def ring_of(places: int, vectors: int, dtype: np.dtype[Any]) -> DeviceArray:
    """Room for `places` values of so many vectors at a time, with nothing published yet: (TURNS, vectors, places)."""
    ring = empty((TURNS, vectors, max(places, 1)), dtype)
    ring.fill_words(ABSENT[dtype.name])
    return ring
