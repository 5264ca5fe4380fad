"""Arrays in device memory: made, filled, copied, viewed, and handed to other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.cuda.device import dlpack
from akx.backends.cuda.device.pool import is_pinned, memory_pool
from akx.backends.cuda.device.runtime import call, runtime
from akx.backends.cuda.device.streams import default_stream
from akx.core.errors import ArgumentError, brief

__all__ = ["DeviceArray", "empty", "to_device", "wrap", "zeros"]

#: Bytes from which on an array of the host is sent by several threads, and fetched: with fewer they come too late.
LARGE, LARGE_BACK = 16 << 20, 32 << 20


class DeviceArray:
    """A C-contiguous array in device memory.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    pointer : int
        Address on the device.
    nbytes : int
    """

    __slots__ = ("__weakref__", "_owner", "dtype", "nbytes", "pointer", "shape")

    def __init__(self, pointer: int, shape: Sequence[int], dtype: DTypeLike, owner: object) -> None:
        self.pointer = pointer
        self.shape = tuple(int(extent) for extent in shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = prod(self.shape) * self.dtype.itemsize
        self._owner = owner

    def __reduce__(self) -> tuple[Any, ...]:
        return (to_device, (self.get(),))

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface; the work that fills the array is done, or ordered on the legacy stream."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
            "stream": 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of the GPU."""
        return (dlpack.CUDA, runtime().ordinal)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The array as a DLPack capsule, as the array API standard has it.

        Parameters
        ----------
        stream : int, optional
            Stream of the taker, which waits for akx's work so far: None or 1 the legacy one, 2 the thread's own, a
            handle, or -1 for no order.
        max_version : (int, int), optional
            The newest version of DLPack that the taker knows; by default one before 1.0.
        dl_device : (int, int), optional
            Where the array is wanted: this GPU, or (1, 0) for a copy in host memory.
        copy : bool, optional
            True for a copy in any case, False for none: then the host is refused.

        Raises
        ------
        ArgumentError
            For a stream that there cannot be (0).
        ExportError
            Which is a BufferError, where the wish cannot be met.

        Notes
        -----
        The memory lives until the taker lets go of it. It may then be used again by work of akx, which waits for the
        legacy stream: a taker with a stream that does not must have finished with the array by then.
        """
        strides = [self.dtype.itemsize * prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        return self.export(self.shape, strides, stream, max_version, dl_device, copy)

    def export(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        stream: int | None,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> Any:
        """:meth:`__dlpack__` for the same entries in another shape, with strides in bytes."""
        here = self.__dlpack_device__()
        given: dict[str, Any] = {"max_version": max_version, "copied": True}
        if dlpack.leaves_device(here, dl_device, copy):
            host = self.get()
            where = host.ctypes.data
            return dlpack.capsule_of(where, shape, strides, self.dtype, device=(dlpack.CPU, 0), owner=host, **given)
        on = dlpack.check_stream(stream)
        held = self
        if copy:
            held = empty(self.shape, self.dtype)
            held.copy_from(self)
        if on != -1:
            default_stream().release_to(on)
        given["copied"] = bool(copy)
        return dlpack.capsule_of(held.pointer, shape, strides, self.dtype, device=here, owner=held, **given)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} at {self.pointer:#x}>"

    def get(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A copy in host memory, once the device has done all work before it."""
        found = np.empty(self.shape, dtype=self.dtype) if out is None else out
        if found.shape != self.shape or found.dtype != self.dtype or not found.flags.c_contiguous:
            raise ArgumentError("out does not fit", expected=f"{self.shape} of {self.dtype}, C-contiguous")
        if self.nbytes >= LARGE_BACK and not is_pinned(found.ctypes.data):
            from akx.backends.cuda.device.uploads import download

            if download(self.pointer, found):
                return found
        stream = default_stream()
        if self.nbytes:
            call("cuMemcpyDtoHAsync", found.ctypes.data, self.pointer, self.nbytes, stream.raw, doing="copying")
        stream.synchronize()
        return found

    def set(self, values: NDArray[Any]) -> None:
        """Take the values of a host array of the same shape; it may be changed as soon as this returns."""
        source = np.ascontiguousarray(values, dtype=self.dtype)
        if source.shape != self.shape:
            raise ArgumentError("values do not fit", expected=f"shape {self.shape}", found=f"shape {source.shape}")
        is_there = not self.nbytes
        if self.nbytes >= LARGE and not is_pinned(source.ctypes.data):
            from akx.backends.cuda.device.uploads import upload

            is_there = upload(self.pointer, source)
        if not is_there:
            self.queue_from(source)
            default_stream().synchronize()

    def queue_from(self, values: NDArray[Any]) -> None:
        """Queue a copy of a contiguous host array of as many bytes, which stays as it is until then."""
        with runtime().active() as live:
            raw = default_stream().raw
            live.call("cuMemcpyHtoDAsync", self.pointer, values.ctypes.data, self.nbytes, raw, doing="copying")

    def copy_from(self, other: DeviceArray, stream: Any = None) -> None:
        """Take the bytes of another device array of the same size, ordered on `stream`."""
        if other.nbytes != self.nbytes:
            raise ArgumentError("arrays differ in size", expected=f"{self.nbytes} bytes", found=f"{other.nbytes}")
        if self.nbytes and other.pointer != self.pointer:
            on = default_stream() if stream is None else stream
            call("cuMemcpyDtoDAsync", self.pointer, other.pointer, self.nbytes, on.raw, doing="copying")

    def fill_bytes(self, value: int, stream: Any = None) -> None:
        """Set every byte to `value`; 255 makes every float a NaN."""
        self._fill("cuMemsetD8Async", value, self.nbytes, stream)

    def fill_words(self, value: int, stream: Any = None) -> None:
        """Set every 32 bits to `value`."""
        if self.nbytes % 4:
            raise ArgumentError("an array is not made of words of 32 bits", found=f"{self.nbytes} bytes")
        self._fill("cuMemsetD32Async", value, self.nbytes // 4, stream)

    def _fill(self, how: str, value: int, count: int, stream: Any) -> None:
        if count:
            on = default_stream() if stream is None else stream
            call(how, self.pointer, value, count, on.raw, doing="filling")

    def view(self, offset: int, shape: Sequence[int], dtype: DTypeLike | None = None) -> DeviceArray:
        """An array over `shape` entries from entry number `offset` on; it keeps the memory alive."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        start = offset * self.dtype.itemsize
        if offset < 0 or start + prod(shape) * kind.itemsize > self.nbytes:
            raise ArgumentError("view reaches beyond the array", found=f"{shape} of {kind} from entry {offset}")
        return DeviceArray(self.pointer + start, shape, kind, self)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: int | slice) -> DeviceArray:
        """A row, or rows next to one another: a view, as of a NumPy array."""
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                raise ArgumentError("rows of a device array are next to one another", found=f"a step of {step}")
            count = max(0, stop - start)
            return DeviceArray(self.pointer + start * self._row_bytes, (count, *self.shape[1:]), self.dtype, self)
        row = place + len(self) if place < 0 else place
        if not 0 <= row < len(self):
            raise IndexError(f"row {place} of {len(self)}")
        return DeviceArray(self.pointer + row * self._row_bytes, self.shape[1:], self.dtype, self)

    def __setitem__(self, place: int | slice, values: Any) -> None:
        """Queue a copy of a device array, take the values of a host array, or zero, into rows of this one."""
        target = self[place]
        if isinstance(values, DeviceArray):
            if values.dtype != self.dtype:
                raise ArgumentError("arrays differ in type", expected=str(self.dtype), found=str(values.dtype))
            target.copy_from(values)
        elif isinstance(values, np.ndarray):
            target.set(values)
        elif values == 0:
            target.fill_bytes(0)
        else:
            raise ArgumentError("only zero fills a device array", found=brief(values))

    @property
    def _row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize

    def reshape(self, *shape: int) -> DeviceArray:
        """The same entries in another shape."""
        if prod(shape) != self.size:
            raise ArgumentError("shape does not fit", expected=f"{self.size} entries", found=f"{shape}")
        return DeviceArray(self.pointer, shape, self.dtype, self)


def empty(shape: int | Sequence[int], dtype: DTypeLike) -> DeviceArray:
    """A device array with whatever was in the memory. Raises :class:`DeviceMemoryError`."""
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    nbytes = prod(extents) * np.dtype(dtype).itemsize
    pool = memory_pool()
    address, size = pool.take(nbytes)
    array = DeviceArray(address, extents, dtype, None)
    pool.lend(array, size)
    return array


def zeros(shape: int | Sequence[int], dtype: DTypeLike) -> DeviceArray:
    """The same of zeros."""
    array = empty(shape, dtype)
    array.fill_bytes(0)
    return array


def to_device(values: NDArray[Any]) -> DeviceArray:
    """A copy of a host array in device memory."""
    array = empty(values.shape, values.dtype)
    array.set(values)
    return array


def wrap(pointer: int, shape: Sequence[int], dtype: DTypeLike, owner: object) -> DeviceArray:
    """Memory of another library as a device array; `owner` is kept alive with it."""
    return DeviceArray(pointer, shape, dtype, owner)
