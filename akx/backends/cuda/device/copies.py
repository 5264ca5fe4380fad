"""Asynchronous copies between page-locked host memory and the device.

Everything here only queues work on a stream, so that it can be recorded into a graph that forks and joins again.
"""

from __future__ import annotations

from akx.backends.cuda.device.runtime import call, runtime
from akx.backends.cuda.device.streams import Stream

__all__ = ["bring_rows", "send"]


def send(pointer: int, address: int, nbytes: int, stream: Stream) -> None:
    """Queue a copy of bytes at a host address to the device."""
    call("cuMemcpyHtoDAsync", pointer, address, nbytes, stream.raw, doing="copying to the GPU")


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
