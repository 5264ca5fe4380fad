"""A checksum of raw memory at close to memory bandwidth, to see whether a user changed an array in place.

For 64-bit words w_0, w_1, ... the checksum is the sum modulo 2**64 of m_i * f(w_i), where f is a bijection of 64-bit
words (fold, multiply by an odd constant, fold) and m_i is an odd multiplier that depends on the position i in a
scrambled way. Both steps are invertible for every i, so changing any one word always changes the sum; other changes go
unseen with a probability of about 2**-64. A plain sum needs no order, so the loop vectorises, and the sums of chunks
add up. It is no cryptographic hash: it guards against forgetfulness, not against an adversary.

Bytes: 8 per word read once, nothing written. Work: two 64-bit multiplications per word.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx._numba import is_loaded
from akx._process import kept_threads
from akx.errors import ArgumentTypeError

__all__ = ["checksums", "word_sum"]

_FOLD = np.uint64(32)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


#: Words that NumPy goes through at once: they stay in a near cache.
_PIECE = 4096
#: Below this many words starting threads costs more than they save; and the most threads.
_THREADED_WORDS, _THREADS = 1 << 19, 16


def checksums(arrays: Sequence[NDArray[Any]], *, threads: int = 1) -> list[int]:
    """The checksum of the bytes of each array, read by so many threads: each has a share of every array.

    Raises :class:`ArgumentTypeError` for arrays of objects.
    """
    parts = [_words(array) for array in arrays]
    if threads == 1 or sum(words.size for words, _, _ in parts) < _THREADED_WORDS:
        return [(int(word_sum(part[0], np.uint64(0))) + _end(*part)) % 2**64 for part in parts]
    shares = min(threads, _THREADS)

    def share(number: int) -> list[int]:
        found = []
        for words, _, _ in parts:
            begin, end = (words.size * one // shares for one in (number, number + 1))
            found.append(int(word_sum(words[begin:end], np.uint64(begin))))
        return found

    readers = kept_threads("readers", _THREADS)  # to start them takes as long as to read a megabyte
    others = [readers.submit(share, number) for number in range(1, shares)]
    found = [share(0), *(other.result() for other in others)]
    sums = [sum(of_array) for of_array in zip(*found, strict=True)]
    return [(total + _end(*part)) % 2**64 for total, part in zip(sums, parts, strict=True)]


def _words(array: NDArray[Any]) -> tuple[NDArray[np.uint64], int, bytes]:
    """The whole words of an array, its bytes, and those that are left."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.hasobject:
        raise ArgumentTypeError("checksum needs plain memory", found=f"dtype {flat.dtype}")
    size = flat.nbytes
    count, rest = divmod(size, 8)
    octets = flat.view(np.uint8) if rest or not size else flat
    words = (octets[: count * 8] if rest else octets).view(np.uint64)
    return words if words.flags.aligned else words.copy(), size, octets[count * 8 :].tobytes() if rest else b""


@lru_cache(maxsize=64)
def _end_of(size: int) -> int:
    """What the size adds to the checksum of whole words."""
    return int(word_sum(np.array([size, 0], dtype=np.uint64), np.uint64(size // 8)))


def _end(words: NDArray[np.uint64], size: int, rest: bytes) -> int:
    """What the size, and bytes that are no whole word, add to the checksum."""
    if not rest:
        return _end_of(size)
    tail = np.zeros(2, dtype=np.uint64)
    tail[0] = size
    tail[1:].view(np.uint8)[: len(rest)] = np.frombuffer(rest, dtype=np.uint8)
    return int(word_sum(tail, np.uint64(words.size)))


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
    total, key = np.uint64(0), first * _STEP
    for i in range(words.size):
        word = words[i]
        word = (word ^ (word >> _FOLD)) * _FACTOR
        word = word ^ (word >> _FOLD)
        total += word * ((key ^ (key >> _FOLD)) | _ONE)
        key += _STEP
    return total
