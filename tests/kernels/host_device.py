"""A device that is the host: CUDA sources compiled by g++ over ``host_cuda.hpp``, and arrays of NumPy.

What runs is the text of the kernels and the modules that launch them, block after block, threads as coroutines.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["HostArray", "HostDevice", "has_compiler"]

_HERE = Path(__file__).parent


def has_compiler() -> bool:
    return shutil.which("g++") is not None


class HostArray:
    """As :class:`akx.device.cuda.memory.DeviceArray`; what is not written is NaN, or as large as can be."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def shape(self) -> Any:
        return self.array.shape

    @property
    def size(self) -> int:
        return int(self.array.size)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    def get(self) -> Any:
        return self.array.copy()

    def fill_bytes(self, value: int) -> None:
        self.array.view(np.uint8)[...] = value

    def copy_from(self, other: HostArray) -> None:
        self.array[...] = other.array

    def view(self, offset: int, shape: Sequence[int]) -> HostArray:
        return HostArray(self.array[offset : offset + int(np.prod(shape))].reshape(shape))


@dataclass
class _Kernel:
    library: Any
    name: str
    device: HostDevice

    def launch(self, grid: int, block: int, args: Sequence[Any], *, shared: int = 0) -> None:
        assert grid >= 1
        assert 1 <= block <= 1024
        assert shared <= self.device.shared_per_block
        slots = np.zeros(len(args) + 1, dtype=np.uint64)
        for slot, argument in zip(slots[:-1].reshape(-1, 1), args, strict=True):
            value = np.uint64(argument.array.ctypes.data) if isinstance(argument, HostArray) else argument
            assert isinstance(value, np.generic), f"{self.name}: an argument without a type"
            slot.view(np.uint8)[: value.dtype.itemsize] = np.frombuffer(value.tobytes(), dtype=np.uint8)
        self.device.launches.append((self.name, grid, block, shared))
        order = ctypes.c_ulong(self.device.order)
        done = self.library.launch(self.name.encode(), grid, block, order, ctypes.c_void_p(slots.ctypes.data))
        assert done, f"{self.name} is unknown, or its threads wait for what never comes"


class HostDevice:
    """Facts of a small device, and what modules ask of :mod:`akx.device.cuda`.

    Attributes
    ----------
    order : int
        In which order threads run: 0 ascending, 1 descending, others shuffled.
    launches : list
        (kernel, grid, block, shared bytes) of what was launched.
    """

    sms = 3
    memory_bytes = 2**30

    def __init__(self, folder: Path, *, shared_per_block: int = 100 * 1024) -> None:
        self.folder = folder
        self.shared_per_block = shared_per_block
        self.order = 0
        self.launches: list[tuple[str, int, int, int]] = []
        self._libraries: dict[str, Any] = {}

    def patch(self, monkeypatch: Any, *modules: Any) -> None:
        """Let modules of kernels work on this device."""
        for module in modules:
            monkeypatch.setattr(module, "load", self.load)
            for name, value in (("cuda_device", lambda: self), ("empty", self.empty), ("to_device", self.to_device)):
                monkeypatch.setattr(module, name, value, raising=False)

    def load(self, source: Path, macros: Mapping[str, int | str], *, device: Any) -> HostDevice:
        assert device is self
        given = [f"-D{name}={value}" for name, value in sorted(macros.items())]
        key = "_".join([source.stem, *given]).replace("-D", "").replace("=", "")
        if key not in self._libraries:
            target = self.folder / f"{key}.so"
            if not target.exists():
                command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", *given, "-o", str(target)]
                subprocess.run([*command, str(_HERE / f"host_{source.stem}.cpp")], check=True)
            self._libraries[key] = ctypes.CDLL(str(target))
            self._libraries[key].launch.restype = ctypes.c_bool
        self._loaded = self._libraries[key]
        return self

    def kernel(self, name: str) -> _Kernel:
        return _Kernel(self._loaded, name, self)

    @staticmethod
    def empty(shape: Any, dtype: Any) -> HostArray:
        found = np.empty(shape, dtype=dtype)
        found.view(np.uint8)[...] = 255
        return HostArray(found)

    @staticmethod
    def to_device(values: Any) -> HostArray:
        return HostArray(np.array(values))
