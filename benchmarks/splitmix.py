"""Random numbers by formula: the same bits with every version of NumPy, so that a matrix name means one matrix.

The n-th word of a stream is the splitmix64 finaliser (Steele, Lea and Flood, 2014) of start + n * increment, where the
start depends on the seed and the increment is 2^64 over the golden ratio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["coefficients", "uniform", "words"]

_INCREMENT = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def words(seed: int, count: int) -> NDArray[np.uint64]:
    """`count` random 64-bit words of the stream `seed`."""
    return _words(seed, np.arange(count, dtype=np.uint64))


def uniform(seed: int, count: int) -> NDArray[np.float64]:
    """`count` random numbers in [0, 1) of the stream `seed`."""
    return _numbers(words(seed, count))


def coefficients(seed: int, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
    """Coefficients in [0.5, 1.5], of the stream `seed` those with these `numbers` (any shape, 0 or more)."""
    found = _numbers(_words(seed, numbers.astype(np.uint64)))
    found += 0.5
    return found


def _words(seed: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The words with these numbers, which are overwritten."""
    z = numbers
    z *= np.uint64(_INCREMENT)
    z += np.uint64((seed * 0xD1342543DE82EF95 + _INCREMENT) & _MASK)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _numbers(drawn: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Words as numbers in [0, 1)."""
    found = (drawn >> np.uint64(11)).astype(np.float64)
    found *= 2.0**-53
    return found
