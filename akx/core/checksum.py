"""A checksum of raw memory at close to memory bandwidth, to see whether a user changed an array in place.

For 64-bit words w_0, w_1, ... the checksum is the sum modulo 2**64 of m_i * f(w_i), where f is a bijection of 64-bit
words (fold, multiply by an odd constant, fold) and m_i is an odd multiplier that depends on the position i in a
scrambled way. Both steps are invertible for every i, so changing any one word always changes the sum; other changes go
unseen with a probability of about 2**-64. A plain sum needs no order, so the loop vectorises, and the sums of chunks
add up. It is no cryptographic hash: it guards against forgetfulness, not against an adversary.

A core has few lines on their way from memory at a time, of one place that it reads from, so the loop reads from four
places: 12.5 GB/s where one has 7.4, and a plain sum 16 (one core of a Granite Rapids class). Threads take pieces.

Bytes: 8 per word read once, nothing written. Work: two 64-bit multiplications per word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentTypeError, CompileError
from akx.core.numba_jit import is_loaded, njit
from akx.core.process import share_out

__all__ = ["checksums", "compiled_sum", "end_of", "words_of"]

_FOLD = np.uint64(32)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)

#: Words that NumPy goes through at once: four arrays of them stay in a near cache (1.9 GB/s; 1.3 with an eighth).
_PIECE = 1 << 15
#: Below this many words waking threads costs more than they save; and the most threads (of 16 cores all are slower).
_THREADED_WORDS, _THREADS = 1 << 19, 8
#: Words that NumPy takes longer to go through than Numba takes to come: 1.2 GB/s with eight threads, of a billion.
_COMPILED_WORDS = 1 << 27
#: Words of what a thread takes at a time, at least, and pieces for each thread, about.
_SHARE, _SHARES = 1 << 15, 8


def checksums(arrays: Sequence[NDArray[Any]], *, threads: int = 1) -> list[int]:
    """The checksum of the bytes of each array, read by so many threads, piece by piece.

    Raises :class:`ArgumentTypeError` for arrays of objects.
    """
    parts = [words_of(array) for array in arrays]
    total = sum(words.size for words, _, _ in parts)
    word_sum, readers = _word_sum(total), max(1, min(threads, _THREADS))
    if readers == 1 or total < _THREADED_WORDS:
        return [(int(word_sum(part[0], np.uint64(0))) + end_of(*part)) % 2**64 for part in parts]
    step = max(_SHARE, -(-total // (_SHARES * readers)))
    pieces = ((number, begin) for number, part in enumerate(parts) for begin in range(0, part[0].size, step))
    found = list[tuple[int, int]]()

    def read(piece: tuple[int, int]) -> None:
        number, begin = piece
        found.append((number, int(word_sum(parts[number][0][begin : begin + step], np.uint64(begin)))))

    share_out("readers", pieces, read, readers)
    sums = [end_of(*part) for part in parts]
    for number, one in found:
        sums[number] += one
    return [one % 2**64 for one in sums]


def words_of(array: NDArray[Any]) -> tuple[NDArray[np.uint64], int, bytes]:
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
def _of_size(size: int) -> int:
    """What the size adds to the checksum of whole words."""
    return int(_word_sum()(np.array([size, 0], dtype=np.uint64), np.uint64(size // 8)))


def end_of(words: NDArray[np.uint64], size: int, rest: bytes) -> int:
    """What the size, and bytes that are no whole word, add to the checksum."""
    if not rest:
        return _of_size(size)
    tail = np.zeros(2, dtype=np.uint64)
    tail[0] = size
    tail[1:].view(np.uint8)[: len(rest)] = np.frombuffer(rest, dtype=np.uint8)
    return int(_word_sum()(tail, np.uint64(words.size)))


def _word_sum(total: int = 0) -> Callable[[NDArray[np.uint64], np.uint64], Any]:
    """What forms the sum of m_i f(w_i) over words, (m,), of which the first has a position in the whole array.

    Compiled, where anything else is, or where there are so many words in all that it pays.
    """
    try:
        return compiled_sum() if total >= _COMPILED_WORDS or is_loaded() else _by_numpy
    except CompileError:  # Numba is told not to
        return _by_numpy


def _by_numpy(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    total = 0
    room = np.empty((3, min(words.size, _PIECE)), dtype=np.uint64)  # threads that make arrays wait for one another
    for start in range(0, words.size, _PIECE):
        own = words[start : start + _PIECE]
        word, key, folded = room[:, : own.size]
        np.right_shift(own, _FOLD, out=folded)
        np.bitwise_xor(own, folded, out=word)
        word *= _FACTOR
        np.right_shift(word, _FOLD, out=folded)
        word ^= folded
        np.add(_steps()[: own.size], np.uint64((int(first) + start) * int(_STEP) % 2**64), out=key)
        np.right_shift(key, _FOLD, out=folded)
        key ^= folded
        key |= _ONE
        total += int(np.dot(word, key))
    return np.uint64(total % 2**64)


@lru_cache(maxsize=1)
def _steps() -> NDArray[np.uint64]:
    """0, 1, 2, ... times the step of keys, as many as a piece has words."""
    return np.arange(_PIECE, dtype=np.uint64) * _STEP


def compiled_sum() -> Callable[[NDArray[np.uint64], np.uint64], Any]:
    """What forms the sum of m_i f(w_i), in machine code."""
    found: Callable[[NDArray[np.uint64], np.uint64], Any] = getattr(_by_word, "compiled", _by_word)
    return found


@njit("uint64(uint64, uint64)", nogil=True, cache=True)
def _weighed(word: np.uint64, key: np.uint64) -> np.uint64:
    word = (word ^ (word >> _FOLD)) * _FACTOR
    return (word ^ (word >> _FOLD)) * ((key ^ (key >> _FOLD)) | _ONE)


@njit("uint64(Array(uint64, 1, 'C', readonly=True), uint64)", nogil=True, cache=True)
def _by_word(words: NDArray[np.uint64], first: np.uint64) -> np.uint64:
    quarter = words.size // 4
    apart, key = np.uint64(quarter) * _STEP, first * _STEP
    a = b = c = d = np.uint64(0)
    for i in range(quarter):
        a += _weighed(words[i], key)
        b += _weighed(words[i + quarter], key + apart)
        c += _weighed(words[i + 2 * quarter], key + apart + apart)
        d += _weighed(words[i + 3 * quarter], key + apart + apart + apart)
        key += _STEP
    key += apart + apart + apart
    for i in range(4 * quarter, words.size):
        a += _weighed(words[i], key)
        key += _STEP
    return a + b + c + d
