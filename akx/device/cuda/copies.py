"""Asynchronous copies between page-locked host memory and the device, and marks that order streams by.

Everything here only queues work on a stream, so that it can be recorded into a graph that forks and joins again.
"""

from __future__ import annotations

import contextlib

from akx.device.cuda.launch import Stream
from akx.device.cuda.runtime import runtime

__all__ = ["Mark", "bring_rows", "send"]


class Mark:
    """A place in a stream that other streams can wait for; without a time."""

    def __init__(self, stream: Stream) -> None:
        with runtime().active() as live:
            self._event = live.call("cuEventCreate", 2, doing="making an event")  # 2: no timing
            live.call("cuEventRecord", self._event, stream.raw, doing="recording an event")

    def holds(self, stream: Stream) -> None:
        """Let work from now on, on `stream`, wait for the mark."""
        with runtime().active() as live:
            live.call("cuStreamWaitEvent", stream.raw, self._event, 0, doing="waiting for an event")

    def __del__(self) -> None:
        with contextlib.suppress(Exception), runtime().active() as live:
            live.driver.cuEventDestroy(self._event)


def send(pointer: int, address: int, nbytes: int, stream: Stream) -> None:
    """Queue a copy of bytes at a host address to the device."""
    with runtime().active() as live:
        live.call("cuMemcpyHtoDAsync", pointer, address, nbytes, stream.raw, doing="copying to the GPU")


def bring_rows(
    address: int, pitch: int, pointer: int, device_pitch: int, width: int, height: int, stream: Stream
) -> None:
    """Queue a copy of `height` rows of `width` bytes from the device; pitches are the bytes from row to row."""
    with runtime().active() as live:
        if height == 1:
            live.call("cuMemcpyDtoHAsync", address, pointer, width, stream.raw, doing="copying from the GPU")
            return
        copy = live.driver.CUDA_MEMCPY2D()
        copy.srcMemoryType = live.driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.srcPitch = live.driver.CUdeviceptr(pointer), device_pitch
        copy.dstMemoryType = live.driver.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.dstHost, copy.dstPitch = address, pitch
        copy.WidthInBytes, copy.Height = width, height
        live.call("cuMemcpy2DAsync", copy, stream.raw, doing="copying from the GPU")
