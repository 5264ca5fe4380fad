"""Random numbers by formula: the same bits with every version of NumPy, so that a matrix name means one matrix.

The n-th word of a stream is the splitmix64 finaliser (Steele, Lea and Flood, 2014) of start + n * increment, where the
start depends on the seed and the increment is 2^64 over the golden ratio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["uniform", "words"]

_INCREMENT = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def words(seed: int, count: int) -> NDArray[np.uint64]:
    """`count` random 64-bit words of the stream `seed`."""
    start = np.uint64((seed * 0xD1342543DE82EF95 + _INCREMENT) & _MASK)
    z = np.arange(count, dtype=np.uint64) * np.uint64(_INCREMENT) + start
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(seed: int, count: int) -> NDArray[np.float64]:
    """`count` random numbers in [0, 1) of the stream `seed`."""
    return (words(seed, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
