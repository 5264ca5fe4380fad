"""New values as they are stored (`stored`), from data on the device, without a way over the host.

A table has the different values, found on the device by their bits: each thread puts one into a set, which is an open
addressing hash table, a compare-and-swap for each value that is new to it. Which they are comes to the host in one
copy, and is sorted there, so that a table depends on the values alone; then each value is looked up. A complex128 has
two words: where these are in a set of their own is the word of the value.

    values         (nnz,) of a type in :data:`akx.backends.cuda.value_compression.new_values.GIVEN` for w bytes a value
    a set          8 bytes a slot and a number of words; slots are a power of two, 4 to 8 for each value there may be
    offsets        2 bytes for each slot, and 2 for zero
    stored values  (nnz,), 2 bytes each, or w / 2 in half their bytes

Bytes per update, with a table: 2 nnz w (4 nnz w for complex128, which is read once more for its words, and of which
some are read twice), 2 nnz written, then for each place 4 of the map, at least 2 read and 2 written, or 4 and 4 where
an offset is beside a column; 2^bits (8 + 2) to and from the host, at most 320 KB (512 KB for complex128). In half the
bytes: nnz w and nnz w / 2, then for each place 4 of the map and w. The host waits once, for what was found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.program import C_TYPES

__all__ = ["halved", "place_offsets", "tabled"]

_SOURCE = Path(__file__).with_name("stored_values.cu")
_BLOCK = 256
#: Slots of a set for each word that there may be, at least, and at least so many bits for the number of one.
_SPREAD, _LEAST_BITS = 4, 6
_HALF = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.complex64)}


def halved(data: DeviceArray, dtype: np.dtype[Any]) -> tuple[DeviceArray, float]:
    """The values in half their bytes, and the largest |s - a| / |a| of a value a stored as s. Waits for the device.

    The error is infinite where s is and a is not, or where a is no number.

    `data`: (nnz,) on the device. `dtype`: of the values: float64 or complex128.
    """
    half = _HALF[dtype]
    kernel = _module(dtype, data.dtype, AKX_HALF=C_TYPES[half.name]).kernel("halve")
    stored, worst = empty(data.size, half), empty(1, np.float64)
    worst.fill_bytes(0)
    if data.size:
        kernel.launch(*_threads(data.size), [np.uint64(data.size), data, stored, worst])
    return stored, float(worst.get()[0])


def tabled(data: DeviceArray, dtype: np.dtype[Any], room: int) -> tuple[DeviceArray, NDArray[Any]] | None:
    """Where each value is in a table, in bytes, and the table: zero, the others by their bits, and padding.

    None where there are more different ones than a table of so many places has room for. Waits for the device.

    `data`: (nnz,) on the device. `dtype`: of the values. `room`: places of the table.
    """
    module, sets = _module(dtype, data.dtype), _Sets(dtype, room)
    count = np.uint64(data.size)
    if data.size:
        of_words = [np.uint32(sets.word_bits), np.uint32(sets.most_words)]
        module.kernel("collect").launch(*_threads(data.size), [count, data, sets.words, *of_words])
        if sets.paired:
            of_pairs = [sets.keys, np.uint32(sets.bits), np.uint32(sets.most)]
            module.kernel("pair").launch(*_threads(data.size), [count, data, sets.words, *of_words, *of_pairs])
    found = sets.sorted()
    if found is None:
        return None
    table, offsets = found
    stored, offset = empty(data.size, np.uint16), to_device(offsets)
    if data.size:
        of_sets = [sets.words, np.uint32(sets.word_bits), sets.keys, np.uint32(sets.bits)]
        module.kernel("number").launch(*_threads(data.size), [count, data, *of_sets, offset, stored])
    return stored, table


def place_offsets(stored: DeviceArray, entry: DeviceArray, values: DeviceArray) -> None:
    """Queue values[p] = stored[entry[p] - 1], or 0 where entry[p] is 0; of 32 bits, the upper half stays as it is.

    `stored`: (nnz,) on the device. `entry`: (places,) on the device. `values` (places,) of uint16 or uint32: may have
    one more, where there are no places.
    """
    count = min(values.size, entry.size)
    name = "place_alone" if values.dtype == np.uint16 else "place_beside"
    kernel = _module(np.dtype(np.float32), np.dtype(np.float32)).kernel(name)  # of no type: any instance has it
    if count:
        kernel.launch(*_threads(count), [np.uint64(count), entry, stored, values])


class _Sets:
    """The different values of a table with so many places, but for zero, and for complex128 their words before."""

    def __init__(self, dtype: np.dtype[Any], room: int) -> None:
        self.dtype, self.room = dtype, room
        self.paired = dtype.itemsize == 16
        self.most = room - 1
        self.bits = _bits_for(self.most)
        self.most_words = 2 * self.most if self.paired else self.most
        self.word_bits = _bits_for(self.most_words)
        slots = (1 << self.word_bits) + 1  # with their number
        self._held = empty(slots + (1 << self.bits) + 1 if self.paired else slots, np.uint64)
        self._held.fill_bytes(0)
        self.words = self._held.view(0, (slots,))
        self.keys = self._held.view(slots, ((1 << self.bits) + 1,)) if self.paired else self.words

    def sorted(self) -> tuple[NDArray[Any], NDArray[np.uint16]] | None:
        """The table, and the offset of zero and of what is in each slot; None where there are too many."""
        held = self._held.get()
        words, keys = held[: 1 << self.word_bits], held[-(1 << self.bits) - 1 : -1]
        if held[1 << self.word_bits] > self.most_words or held[-1] > self.most:
            return None
        slot = np.flatnonzero(keys)
        found = keys[slot][:, None]
        if self.paired:
            word = np.append(np.uint64(0), words)
            found = np.concatenate([word[found >> np.uint64(32)], word[found & np.uint64(2**32 - 1)]], axis=1)
        order = np.lexsort(found.T[::-1])
        table = np.zeros(self.room, self.dtype)
        kind = np.dtype(np.uint32 if self.dtype.itemsize == 4 else np.uint64)
        table[1 : 1 + order.size] = found[order].astype(kind).reshape(-1).view(self.dtype)
        offsets = np.zeros(keys.size + 1, np.uint16)
        offsets[1 + slot[order]] = np.arange(1, 1 + order.size) * self.dtype.itemsize
        return table, offsets


def _bits_for(words: int) -> int:
    return max(_LEAST_BITS, (_SPREAD * (words + 1) - 1).bit_length())


def _threads(count: int) -> tuple[int, int]:
    """Blocks, and threads of each, for so many in all."""
    return -(-count // _BLOCK), _BLOCK


def _module(kept: np.dtype[Any], given: np.dtype[Any], **more: str) -> Any:
    macros: dict[str, int | str] = {"AKX_VALUE": C_TYPES[kept.name], "AKX_GIVEN": C_TYPES[given.name], **more}
    return load(_SOURCE, macros, device=cuda_device())
