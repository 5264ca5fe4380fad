"""What a caller's arrays on the device have in them: checksums, and whether a kernel can follow them (``content.cuh``).

Bytes: each look reads the arrays once. A comparison waits for nothing. What it finds a word of the device says, for
what is queued behind it, and a word of the host, for the next call.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Stream, default_stream
from akx.backends.cuda.device.memory import DeviceArray, wrap, zeros
from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.device.runtime import beside_captures
from akx.core.errors import DeviceError

__all__ = ["INDICES", "VALUES", "CaptureWords", "Comparison", "address_of", "host_word", "is_sound", "sums_of"]

_SOURCE = Path(__file__).with_name("content.cu")
#: Threads of a block, bytes that one reads at least, and blocks for each multiprocessor at most.
_BLOCK, _EACH, _BLOCKS = 256, 32, 6
#: The numbers of types that the kernels know.
INDICES = {"int32": 0, "uint32": 1, "int64": 2, "uint64": 3}
VALUES = {"float32": 0, "float64": 1, "complex64": 2, "complex128": 3}
_NONE = np.uint64(0)
#: Captured calls that words are made for at once, and words of each.
_CAPTURES, _PER_CAPTURE = 1024, 6
#: Words to form sums in that nobody uses now, and of the host, to have them; appending and popping are atomic.
_spare: list[tuple[DeviceArray, NDArray[np.uint64]]] = []
#: Those of :func:`host_word`, and which comes next.
_WORDS = 1024
_words: list[NDArray[np.uint32]] = []
_turns = itertools.count()


def sums_of(arrays: Sequence[DeviceArray]) -> list[int]:
    """The checksums of three arrays. Waits for the device."""
    try:
        words, found = _spare.pop()
    except IndexError:
        words, found = zeros(4, np.uint64), pinned(3, np.uint64)
    arguments = [*_extents(arrays), words, _NONE, address_of(found), _NONE, _NONE]
    _summing().launch(_grid(arrays), _BLOCK, arguments)
    default_stream().synchronize()
    sums = [int(one) for one in found]
    _spare.append((words, found))
    return sums


def is_sound(arrays: Sequence[DeviceArray], n: int) -> tuple[bool, int]:
    """Whether kernels can follow CSR arrays (data, indices, row pointers), and values are finite; and the longest row.

    Waits for the device.
    """
    data, index, pointer = arrays
    entries = min(data.size, index.size)
    found = zeros(4, np.uint64)
    numbers = [VALUES[data.dtype.name], INDICES[index.dtype.name], n]
    arguments: list[Any] = [*map(np.uint32, numbers), np.uint64(entries), pointer, index, data, found]
    blocks = min(-(-32 * n // _BLOCK), 2 * _BLOCKS * cuda_device().sms)
    load(_SOURCE, {}, device=cuda_device()).kernel("look_at_callers_csr").launch(blocks, _BLOCK, arguments)
    *wrong, longest = found.get()
    return not any(wrong), int(longest)


class Comparison:
    """Of three arrays where they are now, whether they have the checksums that they had; queued again and again.

    `arrays`: they are not held. `known`: (3,), uint64: the checksums, as they are when the device comes there. `told`:
    a word of the host that becomes 1 where one is another. `words`: five words to work in, uint64, zeros: for one
    comparison at a time. `differs`: (1,), uint32: 1 behind a comparison that found another content, else 0.
    """

    def __init__(
        self,
        arrays: Sequence[DeviceArray],
        known: DeviceArray,
        told: NDArray[np.uint32],
        words: DeviceArray | None = None,
    ) -> None:
        self._kernel, self._grid, self._extents = _summing(), _grid(arrays), _extents(arrays)
        self._known, self._told = known, told
        self._work_in(zeros(5, np.uint64) if words is None else words)

    def _work_in(self, words: DeviceArray) -> None:
        self.differs = words.view(4, (1,), np.uint32)
        arguments = [*self._extents, words, self._known, _NONE, self.differs, address_of(self._told)]
        self._launch = self._kernel.bound(self._grid, _BLOCK, arguments)

    def working_in(self, words: DeviceArray) -> Comparison:
        """The same in other words, which may go on beside it."""
        found = copy.copy(self)
        found._work_in(words)
        return found

    def queue(self, stream: Stream) -> None:
        """Queue one on a stream, where the context is current."""
        self._launch.launch_here(stream)


class CaptureWords:
    """Words of the device for calls in graphs of callers: each has its own, since two graphs may be launched at once.

    There are some ahead, as nothing can be made in a capture.
    """

    def __init__(self) -> None:
        self._taken, self._words = _CAPTURES, zeros(0, np.uint64)
        self.make()

    @property
    def are_few(self) -> bool:
        """Whether :meth:`make` is due, between captures."""
        return self._taken > _CAPTURES // 2

    def make(self) -> None:
        """Have words for the next captures."""
        with beside_captures():  # of other threads
            self._words = zeros(_CAPTURES * _PER_CAPTURE, np.uint64)
        self._taken = 0

    def take(self) -> tuple[DeviceArray, DeviceArray]:
        """Five words for a :class:`Comparison`, and one of 32 bits in which blocks meet; zeros."""
        if self._taken == _CAPTURES:
            raise DeviceError(
                "too many calls are captured one after another",
                expected=f"at most {_CAPTURES}",
                hint="make one that is not captured between captures, or use an akx.MatrixPowers",
            )
        at, self._taken = self._taken * _PER_CAPTURE, self._taken + 1
        return self._words.view(at, (5,)), self._words.view(at + 5, (1,), np.uint32)


def host_word() -> NDArray[np.uint32]:
    """A word of the host that kernels write to, (1,), 0 so far.

    It is never given back, since kernels may be on their way that write to it: the same comes again after many others.
    """
    if not _words:
        _words.append(pinned(_WORDS, np.uint32))
    turn = next(_turns) % _WORDS
    found = _words[0][turn : turn + 1]
    found[:] = 0
    return found


def address_of(word: NDArray[Any]) -> DeviceArray:
    """Such a word as an argument of a kernel."""
    return wrap(word.ctypes.data, word.shape, word.dtype, word)


def _summing() -> Any:
    return load(_SOURCE, {}, device=cuda_device()).kernel("sum_all_arrays")


def _extents(arrays: Sequence[DeviceArray]) -> list[Any]:
    """Bytes and address of each; they are not held."""
    return [one for array in arrays for one in (np.uint64(array.nbytes), np.uint64(array.pointer))]


def _grid(arrays: Sequence[DeviceArray]) -> int:
    octets = sum(array.nbytes for array in arrays)
    return max(1, min(-(-octets // (_EACH * _BLOCK)), _BLOCKS * cuda_device().sms))
