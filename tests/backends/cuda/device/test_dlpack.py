"""DLPack without a GPU: what is in a capsule, who frees the memory and when, and what a taker may ask for.

Capsules of host memory are really taken, by NumPy. Of those for a GPU the fields are read as a taker in C would.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.backends.cuda.device import dlpack, interchange, memory
from akx.backends.cuda.device.interchange import DeviceView, is_on_device
from akx.backends.cuda.device.memory import DeviceArray
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, ExportError

NUMPY_HAS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Owner:
    """Somebody's memory."""


class Taker:
    """What ``np.from_dlpack`` wants: an object that hands out one capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0)


def name_of(capsule: Any) -> bytes:
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    return bytes(get(capsule))


def words(capsule: Any, count: int) -> list[int]:
    """The managed tensor as 64-bit words, as it lies in memory."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return list((ctypes.c_uint64 * count).from_address(get(capsule, name_of(capsule))))


def numbers(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address))


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Device arrays believe in a GPU; the streams that were made to wait are collected."""
    released: list[int] = []

    class Stream:
        def release_to(self, handle: int) -> None:
            released.append(handle)

    class Runtime:
        ordinal = 0

    monkeypatch.setattr(memory, "runtime", Runtime)
    monkeypatch.setattr("akx.backends.cuda.device.memory.default_stream", Stream)
    return released


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "uint8", "int64"])
def test_numpy_takes_what_is_there_and_frees_it(dtype: str, version: tuple[int, int] | None) -> None:
    held = np.arange(24).astype(dtype)
    owner = Owner()
    gone = weakref.ref(owner)
    size = held.itemsize
    capsule = dlpack.capsule_of(
        held.ctypes.data,
        (3, 4),
        (2 * size, 6 * size),
        held.dtype,
        device=(dlpack.CPU, 0),
        owner=owner,
        max_version=version,
    )
    del owner
    gc.collect()
    assert gone() is not None
    taken = np.from_dlpack(Taker(capsule))
    assert name_of(capsule).startswith(b"used_")
    del capsule
    gc.collect()
    assert gone() is not None  # the taker holds it, not the capsule
    np.testing.assert_array_equal(taken, np.ndarray((3, 4), dtype, held, 0, (2 * size, 6 * size)))
    assert taken.ctypes.data == held.ctypes.data
    del taken
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_nobody_takes_frees_the_memory(version: tuple[int, int] | None) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    capsule = dlpack.capsule_of(
        4096, (5,), (8,), np.dtype(float), device=(dlpack.CUDA, 0), owner=owner, max_version=version
    )
    del owner
    assert gone() is not None
    with pytest.raises(TypeError):  # it goes while an exception is on its way
        len(capsule)
    del capsule
    gc.collect()
    assert gone() is None


def test_the_fields_of_both_structures(on_a_gpu: list[int]) -> None:
    array = DeviceArray(0x7000, (2, 3, 5), np.complex64, None)
    old = words(array.__dlpack__(), 9)
    assert old[0] == 0x7000
    assert old[1] == dlpack.CUDA  # and number 0 in the upper half
    assert old[2] == 3 | 5 << 32 | 64 << 40 | 1 << 48  # three axes, complex, 64 bits, one lane
    assert numbers(old[3], 3) == [2, 3, 5]
    assert numbers(old[4], 3) == [15, 5, 1]
    assert old[5] == 0
    assert old[7] != 0  # a deleter
    if not NUMPY_HAS_VERSIONS:
        return
    capsule = array.__dlpack__(max_version=(1, 1))
    assert name_of(capsule) == b"dltensor_versioned"
    new = words(capsule, 10)
    assert new[0] & 0xFFFFFFFF == 1
    assert new[2] != 0
    assert new[3] == 0  # neither read-only nor a copy
    assert new[4:7] == old[0:3]
    assert numbers(new[8], 3) == [15, 5, 1]


def test_a_view_has_strides_of_its_own(on_a_gpu: list[int]) -> None:
    array = DeviceArray(0x7000, (4, 1, 10), float, None)  # k + 1 = 4 powers
    view = DeviceView(array, (10, 4), (8, 80))
    assert is_on_device(view)
    found = dlpack.imported(view.__dlpack__(stream=-1))
    assert (found.shape, found.strides, found.pointer) == ((10, 4), (8, 80), 0x7000)
    assert found.device == view.__dlpack_device__() == (dlpack.CUDA, 0)
    gone = weakref.ref(array)
    del array, view
    gc.collect()
    assert gone() is not None
    del found
    gc.collect()
    assert gone() is None


def test_streams(on_a_gpu: list[int]) -> None:
    array = DeviceArray(0x7000, (3,), float, None)
    for stream in (None, 1, 2, 0xABC0, -1):
        array.__dlpack__(stream=stream)
    assert on_a_gpu == [1, 1, 2, 0xABC0]
    for wrong in (0, -2, True, "1"):
        with pytest.raises(ArgumentError, match="stream"):
            array.__dlpack__(stream=wrong)


def test_devices_and_copies(on_a_gpu: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    array = DeviceArray(0x7000, (3,), float, None)
    found = dlpack.imported(array.__dlpack__(dl_device=(dlpack.CUDA, 0), copy=False))
    assert found.pointer == 0x7000
    with pytest.raises(ExportError, match="another device"):
        array.__dlpack__(dl_device=(dlpack.CUDA, 1))
    with pytest.raises(BufferError, match="copy"):
        array.__dlpack__(dl_device=(dlpack.CPU, 0), copy=False)
    monkeypatch.setattr(DeviceArray, "get", lambda self: np.arange(3.0))
    capsule = array.__dlpack__(dl_device=(dlpack.CPU, 0), max_version=(1, 0))
    if NUMPY_HAS_VERSIONS:
        assert words(capsule, 4)[3] == 2  # a copy
    np.testing.assert_array_equal(np.from_dlpack(Taker(capsule)), np.arange(3.0))


@pytest.mark.parametrize(
    ("code", "bits", "lanes"),
    [(4, 16, 1), (2, 8, 1), (10, 8, 1), (2, 4, 1), (0, 4, 1), (1, 1, 1), (5, 32, 1), (2, 32, 4), (2, 0, 1), (6, 8, 1)],
)
def test_types_that_numpy_does_not_have(code: int, bits: int, lanes: int) -> None:
    capsule = dlpack.capsule_of(4096, (3,), (4,), np.dtype("f4"), device=(dlpack.CUDA, 0), owner=None)
    tensor = dlpack._tensor_in(capsule)
    tensor.code, tensor.bits, tensor.lanes = code, bits, lanes
    with pytest.raises(ArgumentTypeError, match=f"x is of a type .* code {code}, {bits} bits, {lanes} lanes"):
        dlpack.imported(capsule)


@pytest.mark.parametrize("interface", [True, False])
def test_errors_name_the_values_of_a_matrix(on_a_gpu: list[int], monkeypatch: Any, interface: bool) -> None:
    monkeypatch.setattr(interchange, "_check_device", lambda _: None)
    monkeypatch.setattr(interchange, "default_stream", lambda: SimpleNamespace(wait_for=lambda _: None))
    backward = {"shape": (3,), "typestr": "<f8", "data": (4096, False), "strides": (-8,)}
    capsule = dlpack.capsule_of(4096, (3,), (4,), np.dtype("f4"), device=(dlpack.CUDA, 0), owner=None)
    dlpack._tensor_in(capsule).code = 4
    given = SimpleNamespace(__cuda_array_interface__=backward) if interface else Taker(capsule)
    with pytest.raises(AkxError, match=r"^the array of values (has a layout|is of a type) that cannot be read"):
        interchange.values_of(given, 3, np.dtype(float))


def test_what_dlpack_does_not_have() -> None:
    for dtype, step in ((np.dtype(">f8"), 8), (np.dtype(float), 12)):
        with pytest.raises(ExportError, match="DLPack"):
            dlpack.capsule_of(4096, (3,), (step,), dtype, device=(dlpack.CPU, 0), owner=None)
