"""Large arrays of the host to the device and back: through page-locked buffers, by several threads.

Memory that is not page-locked is copied by the driver at 5 GB/s on the host of an H100, page-locked memory at 49; to
lock what is there takes as long as to copy it at 15. Threads copy pieces of it into buffers of theirs, or out of them,
two each, and queue them on streams of theirs: 42 GB/s to the device with eight threads and pieces of 4 MB, 19 to 23
back, where the driver has 9. The array is read and written once on the host, and once more by the device.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.device.runtime import runtime
from akx.backends.cuda.device.streams import Mark, Stream, default_stream
from akx.backends.host import default_threads
from akx.core.errors import DeviceError
from akx.core.process import share_out

__all__ = ["download", "upload"]

#: Bytes of a piece, and the most threads.
_PIECE, _THREADS = 4 << 20, 8
#: Buffers that nobody uses now; appending and popping are atomic.
_spare: list[_Buffers] = []


class _Buffers:
    """Two page-locked buffers, and a stream on which they are sent."""

    def __init__(self) -> None:
        self._buffers = [pinned(_PIECE, np.uint8) for _ in range(2)]  # first: a stream is never given back
        self._stream = Stream(blocking=False)
        with runtime().active() as live:
            self._events = [live.call("cuEventCreate", 2, doing="making an event") for _ in range(2)]

    def send(self, pointer: int, address: int, sizes: Iterable[tuple[int, int]], behind: Mark) -> None:
        """Send pieces, (place, bytes) each, and wait until they are there; buffers are free then."""
        behind.holds(self._stream)
        try:
            with runtime().active() as live:
                for turn, (place, size) in enumerate(sizes):
                    buffer, event = self._buffers[turn % 2].ctypes.data, self._events[turn % 2]
                    if turn > 1:
                        live.call("cuEventSynchronize", event, doing="waiting for a copy")
                    ctypes.memmove(buffer, address + place, size)
                    live.call("cuMemcpyHtoDAsync", pointer + place, buffer, size, self._stream.raw, doing="copying")
                    live.call("cuEventRecord", event, self._stream.raw, doing="recording an event")
        finally:
            self._stream.synchronize()

    def fetch(self, pointer: int, address: int, sizes: Iterable[tuple[int, int]], behind: Mark) -> None:
        """Fetch pieces; they are there on return."""
        behind.holds(self._stream)
        coming: deque[tuple[int, int, int, Any]] = deque()
        try:
            with runtime().active() as live:

                def take() -> None:
                    buffer, place, size, event = coming.popleft()
                    live.call("cuEventSynchronize", event, doing="waiting for a copy")
                    ctypes.memmove(address + place, buffer, size)

                for turn, (place, size) in enumerate(sizes):
                    buffer, event = self._buffers[turn % 2].ctypes.data, self._events[turn % 2]
                    if turn > 1:
                        take()
                    live.call("cuMemcpyDtoHAsync", buffer, pointer + place, size, self._stream.raw, doing="copying")
                    live.call("cuEventRecord", event, self._stream.raw, doing="recording an event")
                    coming.append((buffer, place, size, event))
                while coming:
                    take()
        finally:
            self._stream.synchronize()


def upload(pointer: int, values: NDArray[Any]) -> bool:
    """Copy a contiguous array to an address of the device, behind all work so far; it is there on return.

    False where no memory can be page-locked: nothing is done.
    """
    return _shared(_Buffers.send, pointer, values)


def download(pointer: int, values: NDArray[Any]) -> bool:
    """Copy what is at an address of the device to a contiguous array, as :func:`upload` does the other way."""
    return _shared(_Buffers.fetch, pointer, values)


def _shared(copy: Callable[..., None], pointer: int, values: NDArray[Any]) -> bool:
    """Copy the pieces of an array by several threads; False without page-locked memory."""
    nbytes, address = values.nbytes, values.ctypes.data
    buffers = _taken(max(1, min(_THREADS, default_threads(), nbytes // (2 * _PIECE))))
    if not buffers:
        return False
    count = len(buffers)

    def work(share: tuple[int, _Buffers]) -> None:
        number, own = share
        places = range(number * _PIECE, nbytes, count * _PIECE)
        copy(own, pointer, address, ((place, min(_PIECE, nbytes - place)) for place in places), behind)

    try:
        behind = Mark(default_stream())
        share_out("copies", enumerate(buffers), work, count)
    finally:
        _spare.extend(buffers)
    return True


def _taken(count: int) -> list[_Buffers]:
    """Buffers that nobody else has: so many, or as many as there is memory for that can be page-locked."""
    found: list[_Buffers] = []
    while len(found) < count:
        try:
            found.append(_spare.pop())
        except IndexError:
            try:
                found.append(_Buffers())
            except DeviceError:
                return found
    return found
