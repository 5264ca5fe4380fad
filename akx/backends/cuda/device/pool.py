"""Memory of the device, from a pool with a budget; and page-locked memory of the host.

The pool keeps what was freed, in sizes rounded up to a few bits, and gives it out again without a word to the driver.
That is safe because all of akx's work is ordered on streams that also wait for one another (see
`Stream`). Where the driver has no memory left, the pool first gives back what it keeps.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import defaultdict, deque
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.cuda.device.runtime import failed, give_back, runtime
from akx.backends.cuda.device.singleton import Once
from akx.backends.cuda.device.streams import come_back
from akx.backends.memory_budget import parse_bytes
from akx.core.errors import ArgumentError, DeviceMemoryError, brief
from akx.core.fork_safety import ForkSafeLock

__all__ = ["MemoryPool", "is_pinned", "memory_pool", "pinned"]

_GRAIN = 512


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
                come_back()
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

    def lend(self, array: Any, size: int) -> None:
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
                with runtime().active() as live:
                    live.driver.cuMemFree(live.driver.CUdeviceptr(addresses.pop()))

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


@Once
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


def _rounded(nbytes: int) -> int:
    """`nbytes` up to a multiple of 512 with at most four bits set, so that little is wasted and sizes repeat."""
    units = max(1, -(-nbytes // _GRAIN))
    step = 1 << max(0, units.bit_length() - 4)
    return -(-units // step) * step * _GRAIN


class _Loan(weakref.ref[Any]):
    """Memory that a device array has from a pool."""

    __slots__ = ("address", "size")
    address: int
    size: int


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


def is_pinned(address: int) -> bool:
    """Whether memory of the host is page-locked, so that the device reads it by itself."""
    live = runtime()
    attribute = live.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    with live.active():
        code, _ = live.driver.cuPointerGetAttribute(attribute, address)
    return int(code) == 0
