"""Arrays of other libraries on the GPU: taken as they are, and answered in kind.

Whatever has ``__cuda_array_interface__`` (CuPy, PyTorch, Numba, JAX) or speaks DLPack is read without a copy where its
layout is that of the kernels. Results are CuPy arrays for CuPy's, PyTorch's for PyTorch's, Numba's for Numba's, and a
:class:`DeviceView`, which has ``__cuda_array_interface__`` and speaks DLPack, for all others. Copies are made on akx's
own stream, ordered by events: it waits for the stream that the giver names, and that stream waits for akx. The
libraries themselves are never imported here: an array of theirs is only there where they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device import dlpack
from akx.backends.cuda.device.memory import DeviceArray, empty, wrap
from akx.backends.cuda.device.runtime import runtime
from akx.backends.cuda.device.streams import default_stream
from akx.core.device_arrays import is_on_device, unreadable
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, DeviceError, MatrixError

__all__ = [
    "DeviceView",
    "Foreign",
    "answer_like",
    "array_of",
    "block_of",
    "brings_memory",
    "copy_of",
    "dtype_of",
    "hand_over",
    "is_on_device",
    "make_result",
    "release",
    "result_in",
    "shape_of",
    "start_of",
    "values_of",
    "vector_of",
]

_LEGACY = 1
#: What errors call the new values of a matrix.
_VALUES = "the array of values"


class DeviceView:
    """A result on the device in a layout of its own.

    Any library that reads ``__cuda_array_interface__`` or speaks DLPack takes it: ``cupy.asarray(V)``,
    ``torch.from_dlpack(V)``. The memory lives as long as this object or what was taken from it; its strides are in
    bytes.
    """

    def __init__(self, array: DeviceArray, shape: Sequence[int], strides: Sequence[int]) -> None:
        self._array, self.shape, self.strides, self.dtype = array, tuple(shape), tuple(strides), array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface; readers wait for the legacy stream, which waits for akx."""
        return {**self._array.__cuda_array_interface__, "shape": self.shape, "strides": self.strides}

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of the GPU."""
        return self._array.__dlpack_device__()

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """See :meth:`akx.backends.cuda.device.memory.DeviceArray.__dlpack__`."""
        return self._array.export(self.shape, self.strides, stream, max_version, dl_device, copy)

    def get(self) -> NDArray[Any]:
        """A copy in host memory."""
        held = self._array.get()
        return np.ndarray(self.shape, self.dtype, buffer=held, strides=self.strides)


class Foreign(NamedTuple):
    """An array of another library: where it is, its layout (strides in bytes), and the stream that it is ready on."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int
    owner: Any


def start_of(x: Any, n: int) -> tuple[Foreign, bool]:
    """The start vectors, of shape (b, n), and whether `x` was a single vector. Raises where the shape does not fit."""
    found = _read(x)
    if found.dtype.kind not in "fc" or found.dtype.itemsize < 4:
        raise ArgumentTypeError(
            "x is not of a type that the GPU backend takes",
            expected="float32, float64, complex64 or complex128",
            found=str(found.dtype),
        )
    shape = found.shape
    if len(shape) not in (1, 2) or shape[0] != n or 0 in shape:
        raise ArgumentError("x does not fit the matrix", expected=f"shape ({n},) or ({n}, b)", found=f"shape {shape}")
    single = len(shape) == 1
    turned, steps = ((1, n), (0, *found.strides)) if single else (shape[::-1], found.strides[::-1])
    return Foreign(found.pointer, turned, steps, found.dtype, found.stream, found.owner), single


def block_of(x: Any, start: Foreign, dtype: np.dtype[Any], name: str = "x") -> DeviceArray:
    """The start vectors as a C-contiguous (b, n) array of `dtype`: the memory of `x` itself where that will do.

    Else a copy, which akx's own stream makes behind the work of that of `x`. Errors call it `name`.
    """
    if start.dtype != dtype:
        x = _converted(x, dtype)
        start, _ = start_of(x, start.shape[1])
    (b, n), size = start.shape, dtype.itemsize
    aligned = start.pointer % size == 0  # kernels load a complex number at once
    if aligned and start.strides[1] == size and (b == 1 or start.strides[0] == n * size):
        return wrap(start.pointer, (b, n), dtype, start.owner)
    if start.strides[1] < size or any(stride < 0 for stride in start.strides):
        raise ArgumentError(
            f"{name} has a layout that cannot be read", found=f"strides {start.strides}", hint="copy it first"
        )
    block = empty((b, n), dtype)
    default_stream().wait_for(start.stream)
    for row in range(b):
        source, target = start.pointer + row * start.strides[0], block.pointer + row * n * size
        _copy_strided(source, start.strides[1], target, size, n)
    return block


def array_of(x: Any, name: str) -> tuple[DeviceArray, int]:
    """A one-dimensional array of any type as it is, and its stream, behind whose work ours is queued.

    It is copied where its entries are not next to one another. Errors call it `name`.
    """
    found = _read(x, name)
    if len(found.shape) != 1:
        raise ArgumentError(f"{name} is not one-dimensional", expected="shape (m,)", found=f"shape {found.shape}")
    size = found.shape[0]
    if not size:
        return empty(0, found.dtype), found.stream
    row = Foreign(found.pointer, (1, size), (0, *found.strides), found.dtype, found.stream, found.owner)
    default_stream().wait_for(found.stream)
    return block_of(x, row, found.dtype, name).reshape(size), found.stream


def values_of(data: Any, nnz: int, dtype: np.dtype[Any]) -> DeviceArray:
    """A copy of the values of a matrix, (nnz,) of `dtype`, queued behind the work of their stream, which waits for it.

    Raises :class:`MatrixError` where the shape does not fit. Raises :class:`ArgumentTypeError` where the type is
    another one.
    """
    found = _read(data, _VALUES)
    if found.shape != (nnz,):
        raise MatrixError(
            "values do not fit the pattern",
            expected=f"shape ({nnz},)",
            found=f"shape {found.shape}",
            hint="give one value per entry, row by row with ascending columns",
        )
    if found.dtype != dtype:
        raise ArgumentTypeError(
            "values are of another type than the matrix",
            expected=str(dtype),
            found=str(found.dtype),
            hint="convert them",
        )
    if not nnz:
        return empty(0, dtype)
    row = Foreign(found.pointer, (1, nnz), (0, *found.strides), dtype, found.stream, found.owner)
    return _own_copy(data, row, dtype, _VALUES)


def result_in(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], block: tuple[int, ...]
) -> tuple[DeviceArray, int]:
    """The array (k+1, b, n) behind the caller's `out`, a device array in Fortran order; and its stream."""
    if not is_on_device(out):
        raise ArgumentError("out does not fit", expected="an array on the device, as x is", found=type(out).__name__)
    found = _read(out, "out")
    if (getattr(out, "__cuda_array_interface__", None) or {"data": (0, False)})["data"][1]:
        raise ArgumentError("out is read-only", hint="pass an array that can be written to")
    steps = tuple(dtype.itemsize * prod(shape[:axis]) for axis in range(len(shape)))
    if found.shape != shape or found.dtype != dtype:
        raise ArgumentError("out does not fit", expected=f"{shape} of {dtype}", found=f"{found.shape} of {found.dtype}")
    if any(have != want for have, want, extent in zip(found.strides, steps, shape, strict=True) if extent > 1):
        raise ArgumentError(
            "out has the wrong layout",
            expected=f"Fortran order, strides {steps}",
            found=f"strides {found.strides}",
            hint="pass no out, or one that an earlier call returned",
        )
    return wrap(found.pointer, block, dtype, out), found.stream


def brings_memory(x: Any) -> bool:
    """Whether results for `x` are in memory of its own library."""
    return type(x).__module__.partition(".")[0] in ("cupy", "torch")


def make_result(x: Any, block: tuple[int, ...], dtype: np.dtype[Any], single: bool) -> tuple[DeviceArray, Any]:
    """A new array (k+1, b, n), and what the caller gets: V of the library of `x`, a view of it in Fortran order."""
    library = type(x).__module__.partition(".")[0]
    k1, b, n = block
    shape = (n, k1) if single else (n, b, k1)
    if library == "cupy":
        made = sys.modules["cupy"].empty(shape, dtype, order="F")
        return wrap(made.data.ptr, block, dtype, made), made
    if library == "torch":
        torch = sys.modules["torch"]
        base = torch.empty(block, dtype=getattr(torch, dtype.name), device=x.device)
        return wrap(base.data_ptr(), block, dtype, base), base[:, 0].T if single else base.permute(2, 1, 0)
    array = empty(block, dtype)
    strides = tuple(dtype.itemsize * prod(shape[:axis]) for axis in range(len(shape)))
    view = DeviceView(array, shape, strides)
    return array, sys.modules["numba.cuda"].as_cuda_array(view) if library == "numba" else view


def vector_of(x: Any, n: int, dtype: np.dtype[Any], name: str) -> DeviceArray:
    """A copy (n,) in `dtype` of a vector of shape (n,) or (n, 1), queued behind the work of its stream.

    Raises :class:`ArgumentError`, :class:`ArgumentTypeError`.
    """
    start, _ = start_of(x, n)
    if start.shape[0] != 1:
        raise ArgumentError(f"{name} is not one vector", expected=f"({n},) or ({n}, 1)", found=str(start.shape[::-1]))
    return _own_copy(x, start, dtype, name)


def _own_copy(x: Any, row: Foreign, dtype: np.dtype[Any], name: str) -> DeviceArray:
    """A copy of one vector, queued behind the work of its stream, which waits for it."""
    block = block_of(x, row, dtype, name)
    copy = copy_of(block, row.stream) if block.pointer == row.pointer else block
    hand_over(row)
    return copy.reshape(copy.size)


def dtype_of(x: Any) -> np.dtype[Any]:
    """The type of a device array's entries."""
    return _read(x).dtype


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of a device array."""
    return _read(x).shape


def answer_like(x: Any, vector: DeviceArray, shape: tuple[int, ...]) -> Any:
    """A copy of m vectors behind one another as an array of the library of `x`; ready on the stream of `x`.

    `shape`: (n,) or (n, m), in Fortran order.
    """
    block, answer = make_result(x, (prod(shape[1:]), 1, shape[0]), vector.dtype, True)
    block.copy_from(vector)
    default_stream().release_to(_read(x).stream)
    if len(shape) == 2:
        return answer
    return DeviceView(block, (block.size,), (block.dtype.itemsize,)) if type(answer) is DeviceView else answer[:, 0]


def copy_of(array: DeviceArray, stream: int) -> DeviceArray:
    """Another array of the same content, copied behind the work of the stream that it is ready on."""
    copy = empty(array.shape, array.dtype)
    default_stream().wait_for(stream)
    copy.copy_from(array)
    return copy


def hand_over(start: Foreign) -> None:
    """Let the stream that x came on wait for the work queued so far, so that its owner can use the result."""
    default_stream().release_to(start.stream)


def release(streams: Iterable[int]) -> None:
    """Let streams wait for the work queued so far."""
    for stream in streams:
        default_stream().release_to(stream)


def _converted(x: Any, dtype: np.dtype[Any]) -> Any:
    if type(x).__module__.partition(".")[0] == "torch":
        return x.to(getattr(sys.modules["torch"], dtype.name))
    convert = getattr(x, "astype", None)
    if convert is None:
        raise ArgumentTypeError("x has another type than the result", expected=str(dtype), hint="convert it first")
    return convert(dtype)


def _read(x: Any, name: str = "x") -> Foreign:
    if type(x).__module__.partition(".")[0] == "torch" and (x.is_conj() or x.is_neg()):
        if name == "out":
            raise ArgumentError("out is conjugated or negated by a bit", hint="call resolve_conj() and resolve_neg()")
        x = x.resolve_conj().resolve_neg()  # a bit of the tensor says so, the memory does not
    try:
        interface = getattr(x, "__cuda_array_interface__", None)
        if interface is None:  # the capsule is kept, and frees the memory
            there = dlpack.imported(x.__dlpack__(stream=_LEGACY), name)
            found = Foreign(there.pointer, there.shape, there.strides, there.dtype, _LEGACY, (x, there.capsule))
        else:
            found = _read_interface(x, interface, name)
    except AkxError:
        raise
    except (RuntimeError, BufferError) as refusal:
        raise unreadable(name, refusal) from refusal
    _check_device(found)
    return found


def _read_interface(x: Any, interface: dict[str, Any], name: str) -> Foreign:
    if interface.get("mask") is not None:
        raise ArgumentError(f"{name} is a masked array, which cannot be used")
    shape, dtype = tuple(int(extent) for extent in interface["shape"]), np.dtype(interface["typestr"])
    steps = interface.get("strides")
    strides = tuple(dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape)))
    if steps is not None:
        strides = tuple(int(step) for step in steps)
    stream = interface.get("stream")
    if type(x).__module__.partition(".")[0] == "torch":
        stream = sys.modules["torch"].cuda.current_stream().cuda_stream
    return Foreign(int(interface["data"][0]), shape, strides, dtype, int(stream or _LEGACY), x)


def _check_device(found: Foreign) -> None:
    if not found.pointer or 0 in found.shape:
        return
    live = runtime()
    attribute = live.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    with live.active():
        code, ordinal = live.driver.cuPointerGetAttribute(attribute, found.pointer)
    if int(code) != 0 or int(ordinal) != live.ordinal:
        raise DeviceError(
            "an array is not on the GPU that akx uses",
            expected=f"GPU {live.ordinal}",
            found=f"GPU {int(ordinal)}" if int(code) == 0 else "no memory of a GPU",
            hint="choose the GPU with CUDA_VISIBLE_DEVICES",
        )


def _copy_strided(source: int, step: int, target: int, size: int, count: int) -> None:
    """`count` entries of `size` bytes, `step` bytes apart, to where they are next to one another."""
    live = runtime()
    job = live.driver.CUDA_MEMCPY2D()
    job.srcMemoryType = job.dstMemoryType = live.driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    job.srcDevice, job.srcPitch = live.driver.CUdeviceptr(source), step
    job.dstDevice, job.dstPitch = live.driver.CUdeviceptr(target), size
    job.WidthInBytes, job.Height = size, count
    with live.active():
        live.call("cuMemcpy2DAsync", job, default_stream().raw, doing="copying vectors")
