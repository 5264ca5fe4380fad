"""DLPack, in and out: arrays as capsules that other libraries take over, without a copy.

A capsule holds the address of a *managed tensor*: data, device, type, shape and strides (in entries, not bytes), and a
function that the taker calls when it needs the memory no longer. Two layouts of that structure are in use: the one
before version 1.0 (capsule ``"dltensor"``) and the one with a version and flags (``"dltensor_versioned"``), which is
given to those that ask for it by ``max_version``. The taker renames the capsule; one that nobody took is freed with it.

NumPy makes the capsules, of an array that has the address but never looks there, and the device is written in
afterwards. So the functions that free memory are NumPy's, in C: they may be called in any thread, while an exception is
on its way, and after Python has ended, none of which a function made by ctypes survives.

Source: dlpack.h and "Python Specification for DLPack" (dmlc/dlpack), and ``__dlpack__`` of the array API standard
2024.12.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from akx.core.errors import ArgumentError, ArgumentTypeError, ExportError, brief

__all__ = ["CPU", "CUDA", "PLAIN", "VERSIONED", "Tensor", "capsule_of", "check_stream", "imported", "leaves_device"]

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
#: What capsules are called that nobody has taken yet: before version 1.0, and since.
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
_COPIED = 2  # DLPACK_FLAG_BITMASK_IS_COPIED
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c"}


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned; the one before 1.0 begins with its tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


#: Prototypes of our own, so that nobody else's of the same functions are changed.
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_called = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


class _Place:
    """Memory somewhere, as NumPy is told of it; keeps its owner alive."""

    def __init__(
        self, pointer: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], owner: object
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (pointer, False),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": dtype.str,
        }


def capsule_of(
    pointer: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype[Any],
    *,
    device: tuple[int, int],
    owner: object,
    max_version: tuple[int, int] | None = None,
    copied: bool = False,
) -> Any:
    """A capsule for an array; `owner` is kept alive until the taker lets go of it.

    `pointer`: address of the first entry. `strides`: in bytes, whole multiples of the size of an entry. `device`: type
    and number as DLPack has them. `owner`: whose memory it is. `max_version`: the newest version that the taker knows;
    None: one before 1.0. `copied`: the memory is a copy made for this taker. Raises :class:`ExportError` where
    DLPack has no such type, or strides are no whole numbers of entries.
    """
    array = np.asarray(_Place(pointer, shape, strides, dtype, owner))
    try:
        try:
            capsule = array.__dlpack__() if max_version is None else array.__dlpack__(max_version=max_version)
        except TypeError:  # NumPy 2.0 has but the old form, which every taker must understand
            capsule = array.__dlpack__()
    except BufferError as error:
        raise ExportError("the array cannot be had by DLPack", found=str(error)) from error
    tensor = _tensor_in(capsule)
    tensor.device_type, tensor.device_id = device
    if copied and _is_called(capsule, VERSIONED):
        _ManagedVersioned.from_address(_pointer_in(capsule, VERSIONED)).flags |= _COPIED
    return capsule


def _tensor_in(capsule: Any) -> Any:
    if _is_called(capsule, VERSIONED):
        return _ManagedVersioned.from_address(_pointer_in(capsule, VERSIONED)).tensor
    return _DLTensor.from_address(_pointer_in(capsule, PLAIN))


def check_stream(stream: Any) -> int:
    """The stream that a taker on a GPU names, as a handle (1: the legacy one); -1 where it wants no order.

    Raises :class:`ArgumentError` for 0, which the standard forbids since it could mean two streams, and for what is no
    number.
    """
    if stream is None:
        return 1
    if isinstance(stream, bool) or not isinstance(stream, (int, np.integer)) or stream == 0 or stream < -1:
        raise ArgumentError(
            "no stream to hand an array over to",
            expected="None, -1 (no order), 1 (legacy), 2 (per thread), or a handle",
            found=brief(stream),
        )
    return int(stream)


def leaves_device(here: tuple[int, int], wanted: tuple[int, int] | None, copy: bool | None) -> bool:
    """Whether an array that is `here` has to go to the host, where it is `wanted`; `copy` False forbids it.

    Raises :class:`ExportError` for another device, and for the host where nothing may be copied.
    """
    there = here if wanted is None else (int(wanted[0]), int(wanted[1]))
    if there == here:
        return False
    if there[0] != CPU:
        raise ExportError("the array is on another device", expected=f"{here} or the host", found=f"{there}")
    if copy is False:
        raise ExportError("the array is on the GPU, and copy=False was asked for", hint="leave copy out")
    return True


def _dtype_of(tensor: _DLTensor) -> np.dtype[Any] | None:
    """The type of the entries, None where NumPy has none: those of 4 or 8 bits, bfloat16, several in one."""
    if tensor.lanes != 1 or tensor.code not in _KINDS or tensor.bits % 8 or not tensor.bits:
        return None
    try:
        return np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
    except TypeError:
        return None


class Tensor(NamedTuple):
    """What a capsule says: address, shape, strides in bytes, type, device; `capsule` keeps the memory alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: tuple[int, int]
    capsule: Any


def imported(capsule: Any, name: str = "x") -> Tensor:
    """Read a capsule; it is kept, not taken, so that its own destructor frees the memory with it.

    Errors call the array `name`.

    Raises :class:`ArgumentTypeError` for a type that akx has no use for.
    """
    found = _tensor_in(capsule)
    dtype = _dtype_of(found)
    if dtype is None:
        raise ArgumentTypeError(
            f"{name} is of a type that cannot be read",
            found=f"DLPack type code {found.code}, {found.bits} bits, {found.lanes} lanes",
        )
    shape = tuple(found.shape[axis] for axis in range(found.ndim))
    strides = tuple(dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(found.ndim))
    if found.strides:
        strides = tuple(found.strides[axis] * dtype.itemsize for axis in range(found.ndim))
    pointer = (found.data or 0) + found.byte_offset
    return Tensor(pointer, shape, strides, dtype, (found.device_type, found.device_id), capsule)
