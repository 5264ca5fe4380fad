"""Measured bandwidths of a GPU's memories and of its link to the host, bytes a second.

Its memory is timed with copies. They say little of caches: within L2 they take longer than reading does, and they never
come near shared memory. So two kernels read the same data again and again (``rates.cu``). The link is timed with
page-locked memory, in one direction and in both at once, as the schedule `stream` uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.copies import bring_rows, send
from akx.backends.cuda.device.launch import Event, default_stream, spare_stream
from akx.backends.cuda.device.memory import DeviceArray, empty
from akx.backends.cuda.device.pool import pinned

__all__ = [
    "WORD",
    "cache_rate",
    "link_rates",
    "memory_rate",
    "read_shared_cache",
    "read_shared_memory",
    "shared_memory_rate",
]

_SOURCE = Path(__file__).with_name("rates.cu")
#: Bytes of a word.
WORD = 16
_BLOCK, _TURNS_OF_MEMORY = 1024, 16384
#: Share of the L2 cache that is read, and how often: nobody promises a kernel more of it.
_SHARE, _ROUNDS_OF_CACHE = 2, 2
#: Words of shared memory that a block reads: 32 KiB, which every GPU has.
_WORDS = 2048
_LINK_BYTES = 64 * 1024 * 1024
_PASSES = 5


def read_shared_cache(device: Any, data: DeviceArray, turns: int, sums: DeviceArray) -> None:
    """Queue one block a multiprocessor that reads all of `data`, a part of it a turn.

    Parameters
    ----------
    device : CudaDevice
    data : (words, 4) array of uint32
        Words as many as a multiple of the multiprocessors.
    turns : int
        A multiple of the multiprocessors: so many times every block reads a part, each turn another.
    sums : (multiprocessors, 1024) array of uint32
        Of each thread, what it has read.
    """
    words = np.uint32(data.shape[0] // device.sms)
    kernel = load(_SOURCE, {}, device=device).kernel("read_shared_cache")
    kernel.launch(device.sms, _BLOCK, [words, np.uint32(turns), data, sums])


def read_shared_memory(device: Any, turns: int, sums: DeviceArray) -> None:
    """Queue one block a multiprocessor whose threads read a word of its 32 KiB `turns` times each; sums as above."""
    kernel = load(_SOURCE, {}, device=device).kernel("read_shared_memory")
    kernel.launch(device.sms, _BLOCK, [np.uint32(_WORDS), np.uint32(turns), sums], shared=_WORDS * WORD)


def memory_rate(nbytes: int) -> float:
    """Bytes a second, read and written, of copies of so many bytes in the device's memory."""
    one, other = empty(nbytes, np.uint8), empty(nbytes, np.uint8)
    one.fill_bytes(1)
    return 2.0 * nbytes / _least(lambda: other.copy_from(one))


def cache_rate(device: Any) -> float:
    """Bytes a second that all multiprocessors together read from the L2 cache."""
    words = max(1, device.l2_bytes // _SHARE // WORD // device.sms) * device.sms
    data, sums = empty((words, 4), np.uint32), empty((device.sms, _BLOCK), np.uint32)
    data.fill_bytes(1)
    turns = _ROUNDS_OF_CACHE * device.sms
    seconds = _least(lambda: read_shared_cache(device, data, turns, sums))
    return WORD * float(words * turns) / seconds


def shared_memory_rate(device: Any) -> float:
    """Bytes a second that all multiprocessors together read from their shared memory."""
    sums = empty((device.sms, _BLOCK), np.uint32)
    seconds = _least(lambda: read_shared_memory(device, _TURNS_OF_MEMORY, sums))
    return WORD * float(device.sms * _BLOCK * _TURNS_OF_MEMORY) / seconds


def link_rates(nbytes: int = _LINK_BYTES) -> tuple[float, float]:
    """Bytes a second between page-locked memory of the host and the device.

    Returns
    -------
    one_way, both_ways : float
        In the faster direction while the other is idle, and in both directions together while neither is.
    """
    there, back = pinned(nbytes, np.uint8), pinned(nbytes, np.uint8)
    one, other = empty(nbytes, np.uint8), empty(nbytes, np.uint8)
    there[:], back[:] = 1, 0
    other.fill_bytes(1)
    mine = default_stream()
    with spare_stream() as beside:

        def send_all() -> None:
            send(one.pointer, there.ctypes.data, nbytes, mine)

        def bring_all(stream: Any = mine) -> None:
            bring_rows(back.ctypes.data, nbytes, other.pointer, nbytes, nbytes, 1, stream)

        def both() -> None:
            mine.release_to(beside.handle)
            send_all()
            bring_all(beside)
            beside.release_to(mine.handle)

        one_way = nbytes / min(_least(send_all), _least(bring_all))
        return one_way, max(one_way, 2.0 * nbytes / _least(both))


def _least(queue: Callable[[], None]) -> float:
    """Seconds of what is queued, by the device's clock: the least of some, since what disturbs only adds."""
    begin, end, found = Event(), Event(), float("inf")
    queue()
    for _ in range(_PASSES):
        begin.record()
        queue()
        end.record()
        end.synchronize()
        found = min(found, end.seconds_since(begin))
    return found
