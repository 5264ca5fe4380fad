"""Arrays in device memory, from a pool with a budget, and pinned arrays of the host.

The pool keeps what was freed, in sizes rounded up to a few bits, and gives it out again without a word to the driver.
That is safe because all of akx's work is ordered on streams that also wait for one another (see
`Stream`). Where the driver has no memory left, the pool first gives back what it keeps.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.cuda.device import dlpack
from akx.backends.cuda.device.runtime import failed, give_back, runtime
from akx.backends.cuda.device.singleton import once
from akx.backends.memory_budget import parse_bytes
from akx.core.errors import ArgumentError, DeviceMemoryError, brief
from akx.core.fork_safety import ForkSafeLock

__all__ = ["DeviceArray", "MemoryPool", "before_reuse", "empty", "memory_pool", "pinned", "to_device", "wrap", "zeros"]

_GRAIN = 512
#: Bytes from which on an array of the host is sent by several threads, and fetched: with fewer they come too late.
LARGE, LARGE_BACK = 16 << 20, 32 << 20


class MemoryPool:
    """Device memory, kept between uses; what is in use and what is kept are together never more than the budget.

    Arrays give their memory back from wherever the collector finds them, and a signal handler may raise in any step of
    the interpreter. So an array that goes only leaves a note, in one step, which the next one who asks for something
    reads.

    Parameters
    ----------
    budget : int or str, optional
        See :attr:`budget`.
    exact : bool
        Ask the driver for every array, for as many bytes as it has, and keep nothing: slow, but then a tool that
        watches accesses (compute-sanitizer) sees those beyond the end of an array, and those to one that is gone.
    """

    def __init__(self, budget: int | str | None = None, *, exact: bool = False) -> None:
        self.exact = exact
        self._used = 0
        self._free: dict[int, list[int]] = defaultdict(list)
        self._given: deque[tuple[int, int] | _Loan] = deque()
        self._loans: dict[int, _Loan] = {}
        self._lock = ForkSafeLock()
        self._budget: int | None = None
        self.budget = budget

    def __reduce__(self) -> tuple[Any, ...]:
        return (memory_pool, ())  # that of the process which reads it

    @property
    def budget(self) -> int | None:
        """Bytes; None for as much as the device has. May be set, also to a text as ``"8G"``: what is in use stays so.

        Raises :class:`ArgumentError` or :class:`ArgumentTypeError` for what is no number of bytes.
        """
        return self._budget

    @budget.setter
    def budget(self, value: int | str | None) -> None:
        with self._lock:
            self._budget = None if value is None else parse_bytes(value)
            self._settle()

    @property
    def used(self) -> int:
        """Bytes given out."""
        with self._lock:
            self._settle()
            return self._used

    @property
    def kept(self) -> int:
        """Bytes free, but not given back to the driver."""
        with self._lock:
            self._settle()
            return self._idle()

    def take(self, nbytes: int) -> tuple[int, int]:
        """An address and the bytes that are there, at least `nbytes`. Raises :class:`DeviceMemoryError`."""
        size = max(1, nbytes) if self.exact else _rounded(nbytes)
        with self._lock:
            self._settle()
            if self._free[size]:
                for order in _BEFORE_REUSE:
                    order()
                address = self._free[size].pop()
                self._used += size
                return address, size
            if self._budget is not None and self._used + self._idle() + size > self._budget:
                self._empty()
                if self._used + size > self._budget:
                    raise DeviceMemoryError(
                        "the memory budget is spent",
                        expected=f"at most {self._budget} bytes",
                        found=f"{self._used} in use and {size} more asked for",
                        hint="raise it (akx.memory_pool().budget or AKX_GPU_MEMORY), or free arrays",
                    )
            address = self._allocate(size)
            self._used += size
            return address, size

    def lend(self, array: DeviceArray, size: int) -> None:
        """Take back the memory of an array, `size` bytes as of :meth:`take`, when the array goes."""
        loan = _Loan(array, self._given.append)  # by the interpreter itself: no step in which a handler could raise
        loan.address, loan.size = array.pointer, size
        self._loans[loan.address] = loan

    def give(self, address: int, size: int) -> None:
        """Take back what :meth:`take` gave; in any thread, and in the midst of anything."""
        self._given.append((address, size))

    def trim(self) -> None:
        """Give everything that is free back to the driver."""
        with self._lock:
            self._settle()
            self._empty()

    def _settle(self) -> None:
        """Read the notes of what came back, and keep to the budget."""
        while self._given:
            note = self._given.popleft()
            if isinstance(note, _Loan):
                del self._loans[note.address]
                note = note.address, note.size
            address, size = note
            self._used -= size
            self._free[size].append(address)
        if self.exact or (self._budget is not None and self._used + self._idle() > self._budget):
            self._empty()

    def _idle(self) -> int:
        return sum(size * len(addresses) for size, addresses in self._free.items())

    def _empty(self) -> None:
        """Give the driver what is free; an address that is on its way there is nowhere else any more."""
        while self._free:
            _, addresses = self._free.popitem()
            while addresses:
                self._release(addresses.pop())

    def _release(self, address: int) -> None:
        with runtime().active() as live:
            live.driver.cuMemFree(live.driver.CUdeviceptr(address))

    def _allocate(self, size: int) -> int:
        with runtime().active() as live:
            code, address = live.driver.cuMemAlloc(size)
            if int(code) != 0 and self._idle():
                self._empty()
                code, address = live.driver.cuMemAlloc(size)
            if int(code) != 0:
                name = str(getattr(code, "name", code))
                if name != "CUDA_ERROR_OUT_OF_MEMORY":
                    raise failed(code, "allocating memory of the device")
                free = live.call("cuMemGetInfo")[0]
                raise DeviceMemoryError(
                    "the device is out of memory", expected=f"{size} bytes", found=f"{free} free ({name})"
                )
            return int(address)


@once
def memory_pool() -> MemoryPool:
    """The pool that all of akx's arrays in device memory come from; CuPy and PyTorch have pools of their own.

    Its budget is that of the variable ``AKX_GPU_MEMORY`` at the first use (``"8G"``; see
    `parse_bytes`), without it what the device has; setting ``budget`` changes it. With the
    variable ``AKX_GPU_POOL=off`` it is exact (see :class:`MemoryPool`).

    Raises
    ------
    ArgumentError
        A variable is not what it can be.

    Examples
    --------
    >>> akx.memory_pool().budget = "8G"  # doctest: +SKIP
    >>> akx.memory_pool().trim()  # what is free, back to the driver: for others on this GPU
    """
    kind = os.environ.get("AKX_GPU_POOL", "").strip().lower() or "on"
    if kind not in ("on", "off"):
        raise ArgumentError("AKX_GPU_POOL is wrong", expected="on or off", found=brief(kind), hint="unset it")
    text = os.environ.get("AKX_GPU_MEMORY", "").strip()
    try:
        return MemoryPool(text or None, exact=kind == "off")
    except ArgumentError as error:
        error.hint = "AKX_GPU_MEMORY is wrong: unset it, or give bytes"
        raise


#: Called before memory is given out again: see :func:`before_reuse`.
_BEFORE_REUSE: list[Callable[[], None]] = []


def before_reuse(order: Callable[[], None]) -> None:
    """Call `order` before memory is given out again: it lets work from now on wait for all work so far."""
    _BEFORE_REUSE[:] = [order]


def _rounded(nbytes: int) -> int:
    """`nbytes` up to a multiple of 512 with at most four bits set, so that little is wasted and sizes repeat."""
    units = max(1, -(-nbytes // _GRAIN))
    step = 1 << max(0, units.bit_length() - 4)
    return -(-units // step) * step * _GRAIN


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
        from akx.backends.cuda.device.launch import default_stream

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
        from akx.backends.cuda.device.launch import default_stream

        found = np.empty(self.shape, dtype=self.dtype) if out is None else out
        if found.shape != self.shape or found.dtype != self.dtype or not found.flags.c_contiguous:
            raise ArgumentError("out does not fit", expected=f"{self.shape} of {self.dtype}, C-contiguous")
        if self.nbytes >= LARGE_BACK and not _is_pinned(found.ctypes.data):
            from akx.backends.cuda.device.uploads import download

            if download(self.pointer, found):
                return found
        stream = default_stream()
        if self.nbytes:
            with runtime().active() as live:
                live.call(
                    "cuMemcpyDtoHAsync", found.ctypes.data, self.pointer, self.nbytes, stream.raw, doing="copying"
                )
        stream.synchronize()
        return found

    def set(self, values: NDArray[Any]) -> None:
        """Take the values of a host array of the same shape; it may be changed as soon as this returns."""
        from akx.backends.cuda.device.launch import default_stream

        source = np.ascontiguousarray(values, dtype=self.dtype)
        if source.shape != self.shape:
            raise ArgumentError("values do not fit", expected=f"shape {self.shape}", found=f"shape {source.shape}")
        is_there = not self.nbytes
        if self.nbytes >= LARGE and not _is_pinned(source.ctypes.data):
            from akx.backends.cuda.device.uploads import upload

            is_there = upload(self.pointer, source)
        if not is_there:
            self.queue_from(source)
            default_stream().synchronize()

    def queue_from(self, values: NDArray[Any]) -> None:
        """Queue a copy of a contiguous host array of as many bytes, which stays as it is until then."""
        from akx.backends.cuda.device.launch import default_stream

        with runtime().active() as live:
            raw = default_stream().raw
            live.call("cuMemcpyHtoDAsync", self.pointer, values.ctypes.data, self.nbytes, raw, doing="copying")

    def copy_from(self, other: DeviceArray, stream: Any = None) -> None:
        """Take the bytes of another device array of the same size, ordered on `stream`."""
        from akx.backends.cuda.device.launch import default_stream

        if other.nbytes != self.nbytes:
            raise ArgumentError("arrays differ in size", expected=f"{self.nbytes} bytes", found=f"{other.nbytes}")
        if self.nbytes and other.pointer != self.pointer:
            on = default_stream() if stream is None else stream
            with runtime().active() as live:
                live.call("cuMemcpyDtoDAsync", self.pointer, other.pointer, self.nbytes, on.raw, doing="copying")

    def fill_bytes(self, value: int, stream: Any = None) -> None:
        """Set every byte to `value`; 255 makes every float a NaN."""
        self._fill("cuMemsetD8Async", value, self.nbytes, stream)

    def fill_words(self, value: int, stream: Any = None) -> None:
        """Set every 32 bits to `value`."""
        if self.nbytes % 4:
            raise ArgumentError("an array is not made of words of 32 bits", found=f"{self.nbytes} bytes")
        self._fill("cuMemsetD32Async", value, self.nbytes // 4, stream)

    def _fill(self, how: str, value: int, count: int, stream: Any) -> None:
        from akx.backends.cuda.device.launch import default_stream

        if count:
            on = default_stream() if stream is None else stream
            with runtime().active() as live:
                live.call(how, self.pointer, value, count, on.raw, doing="filling")

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


class _Loan(weakref.ref[DeviceArray]):
    """Memory that an array has from a pool."""

    __slots__ = ("address", "size")
    address: int
    size: int


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


def pinned(shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """A host array in page-locked memory, for fast and asynchronous copies; freed with its last view."""
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    nbytes = max(1, prod(extents) * np.dtype(dtype).itemsize)
    with runtime().active() as live:
        try:
            address = int(live.call("cuMemHostAlloc", nbytes, 1, doing="pinning host memory"))  # 1: for every context
        except DeviceMemoryError as error:
            raise DeviceMemoryError(
                "the host has no more memory that can be page-locked", expected=f"{nbytes} bytes", found=error.found
            ) from error
    buffer = (ctypes.c_byte * nbytes).from_address(address)
    weakref.finalize(buffer, give_back, "cuMemFreeHost", address).atexit = False
    octets: NDArray[Any] = np.ctypeslib.as_array(buffer)
    array: NDArray[Any] = octets[: prod(extents) * np.dtype(dtype).itemsize].view(dtype).reshape(extents)
    return array


def _is_pinned(address: int) -> bool:
    """Whether memory of the host is page-locked, so that the device reads it by itself."""
    live = runtime()
    attribute = live.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    with live.active():
        code, _ = live.driver.cuPointerGetAttribute(attribute, address)
    return int(code) == 0
