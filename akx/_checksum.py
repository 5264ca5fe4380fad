"""A checksum of raw memory at close to memory bandwidth, to see whether a user changed an array in place.

For 64-bit words w_0, w_1, ... the checksum is the sum modulo 2**64 of m_i * f(w_i), where f is a bijection of 64-bit
words (fold, multiply by an odd constant, fold) and m_i is an odd multiplier that depends on the position i in a
scrambled way. Both steps are invertible for every i, so changing any one word always changes the sum; other changes go
unseen with a probability of about 2**-64. A plain sum needs no order, so the loop vectorises, and the sums of chunks
add up. It is no cryptographic hash: it guards against forgetfulness, not against an adversary.

Bytes: 8 per word read once, nothing written. Work: two 64-bit multiplications per word.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx._numba import is_loaded

__all__ = ["word_sum"]

_FOLD = np.uint64(32)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


#: Words that NumPy goes through at once: they stay in a near cache.
_PIECE = 4096


def word_sum(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    """Sum of m_i f(w_i) over `words`, shape (m,), uint64, whose first word has position `first` in the whole array.

    Compiled, where anything else is; the same by NumPy takes some times as long.
    """
    return _compiled()(words, first) if is_loaded() else _by_numpy(words, first)


def _by_numpy(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    total = 0
    for start in range(0, words.size, _PIECE):
        word = words[start : start + _PIECE]
        word = (word ^ (word >> _FOLD)) * _FACTOR
        word ^= word >> _FOLD
        key = np.arange(start, start + word.size, dtype=np.uint64)
        key += first
        key *= _STEP
        key ^= key >> _FOLD
        key |= _ONE
        key *= word
        total += int(np.add.reduce(key))
    return np.uint64(total % 2**64)


@cache
def _compiled() -> Any:
    from akx._numba import njit

    return njit("uint64(Array(uint64, 1, 'C', readonly=True), uint64)", nogil=True, cache=True)(_by_word)


def _by_word(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    total = np.uint64(0)
    for i in range(words.size):
        word = words[i]
        word = (word ^ (word >> _FOLD)) * _FACTOR
        word = word ^ (word >> _FOLD)
        key = (np.uint64(i) + first) * _STEP
        total += word * ((key ^ (key >> _FOLD)) | _ONE)
    return total
