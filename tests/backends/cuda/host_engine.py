"""The GPU without one: its own drivers, its own kernels, run by on_host/cuda_on_host.h.

:func:`install` puts host memory behind device arrays, and kernels compiled by g++ behind those of a module. Nothing
else is replaced: tiles, launches, arguments, sizes of shared memory and records are those of a GPU.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled_store import store

import akx.backends.cuda
from akx.backends.cuda.device import launch, memory
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.vectors import arnoldi, conjugate, queues
from akx.backends.cuda.vectors import operations as vectors
from akx.backends.schedule import Program

_FOLDER = Path(__file__).with_name("on_host")
_KERNELS = Path(akx.backends.cuda.__file__).parent
#: Multiprocessors: few, since each block is run for all its threads; bytes of shared memory of a block.
_SMS, _SHARED = 2, 99 * 1024
_libraries: dict[tuple[Any, ...], Any] = {}


def seen(array: DeviceArray) -> Any:
    """The memory of a device array, which is the host's here."""
    size = array.nbytes
    octets = np.ctypeslib.as_array((ctypes.c_byte * max(size, 1)).from_address(array.pointer))
    return octets[:size].view(array.dtype).reshape(array.shape)


def empty(shape: Any, dtype: Any) -> DeviceArray:
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    count = int(np.prod(extents))
    octets = np.full((count + 2) * np.dtype(dtype).itemsize + 16, 0xFF, dtype=np.uint8)  # NaN
    start = -octets.ctypes.data % 16
    return DeviceArray(octets.ctypes.data + start, extents, dtype, octets)


def zeros(shape: Any, dtype: Any) -> DeviceArray:
    array = empty(shape, dtype)
    seen(array)[...] = 0
    return array


def to_device(values: Any) -> DeviceArray:
    array = empty(values.shape, values.dtype)
    seen(array)[...] = values
    return array


def pinned(shape: Any, dtype: Any) -> Any:
    found = np.empty(shape, dtype=dtype)
    found.view(np.uint8).fill(0xFF)  # NaN
    return found


def send(pointer: int, address: int, nbytes: int, stream: Any) -> None:
    ctypes.memmove(pointer, address, nbytes)


class HostStream:
    """Work is done when it is queued."""

    def synchronize(self) -> None:
        """Nothing: all is done."""

    def submit(self, queue: Callable[[Any], None]) -> None:
        """At once."""
        queue(self)

    def wait_for(self, handle: int) -> None:
        """Nothing either."""

    def release_to(self, handle: int) -> None:
        """Nothing either."""


class HostEvent:
    """See :class:`HostStream`."""

    def record(self, stream: Any = None) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""


class HostKernel:
    """A kernel of a library made by g++; `device` says in which order threads run, and is told of launches."""

    def __init__(self, library: Any, name: str, device: Any) -> None:
        self._library, self._name, self._device = library, name, device
        self._function = getattr(library, f"launch_{name}")
        self._function.restype = ctypes.c_bool

    def most_blocks(self, block: int) -> int:
        """Two: few, since each is run for all its threads."""
        return 2

    def bound(self, grid: int, block: int, args: Any, *, cooperative: bool = False) -> HostBound:
        return HostBound(self, grid, block, args, cooperative)

    def launch(
        self,
        grid: int,
        block: int,
        args: Any,
        *,
        shared: int = 0,
        cooperative: bool = False,
        cluster: int = 1,
        early: bool = False,
        stream: Any = None,
    ) -> None:
        assert grid >= 1
        assert grid % cluster == 0
        assert 1 <= block <= 1024
        assert block % 32 == 0
        assert shared < self._device.shared_per_block
        self._device.launches.append((self._name, grid, block, shared))
        if hasattr(self._device, "early"):
            self._device.early.append((self._name, early))
        self._library.on_host_order(ctypes.c_ulong(self._device.order))
        keep, addresses = launch._packed(args)
        numbers = ctypes.c_uint(grid), ctypes.c_uint(block), ctypes.c_size_t(shared)
        at_once = ctypes.c_uint(grid if cooperative else cluster)
        ended = self._function(*numbers, at_once, ctypes.c_uint(cluster), addresses)
        assert ended, f"threads of {self._name} wait for others that never come, or touch what is beyond shared memory"
        del keep


class HostBound:
    """A launch that is made again and again."""

    def __init__(self, kernel: Any, grid: int, block: int, args: Any, cooperative: bool) -> None:
        self._kernel, self._launched, self.args = kernel, (grid, block), list(args)
        self._cooperative = cooperative

    def put(self, place: int, value: int) -> None:
        self.args[place] = np.uint64(value)

    def launch_here(self, stream: Any) -> None:
        self._kernel.launch(*self._launched, self.args, cooperative=self._cooperative)


class HostProgram(Program):
    """Powers by a :class:`akx.MatrixPowers` of the host; coefficients are a basis."""

    nbytes, is_recordable = 0, True

    def __init__(self, operator: Any) -> None:
        self.operator, self.k = operator, operator.k
        self.coefficients = empty((self.k, 3), operator.dtype)
        self._taken: Any = None

    def take(self, basis: Any) -> None:
        self._taken = basis
        if basis is not None:
            seen(self.coefficients)[...] = np.stack([basis.a, basis.b, basis.c], axis=1)

    def run(self, x: DeviceArray, out: DeviceArray, basis: Any) -> None:
        block, into = seen(x), seen(out)
        if len(block) == 1:
            self.operator(block[0], out=into[:, 0].T, basis=basis)
        else:
            self.operator(block.T, out=into.transpose(2, 1, 0), basis=basis)

    def repeated(
        self, x: DeviceArray, out: DeviceArray, basis: Any, count: int, then: Callable[[Any], None] | None = None
    ) -> Any:
        def replay(stream: Any) -> None:
            for _ in range(count):
                self.run(x, out, basis)
                if then is not None:
                    then(stream)

        return SimpleNamespace(launch=replay)

    def update_values(self, data: Any) -> None:
        """Nothing: the operator has its own."""

    def recorded(self, calls: Sequence[Any], before: Callable[[Any], None] | None) -> Any:
        """What ``_recorded`` of arnoldi.py makes, with the basis of the last :meth:`take`."""
        basis = self._taken

        def replay(stream: Any) -> None:
            if before is not None:
                before(stream)
            for x, out, then in calls:
                self.run(x, out, basis)
                then(stream)

        return SimpleNamespace(launch=replay)


def load(source: Path, macros: Mapping[str, int | str], *, device: Any) -> Any:
    """The kernels of a source with macros."""
    key: tuple[Any, ...] = (source.stem, *sorted(macros.items()))
    if key not in _libraries:
        folder = store()
        target = folder / ("-".join([source.stem, *(f"{name}={value}" for name, value in key[1:])]) + ".so")
        if not target.exists():
            options = ["-shared", *(f"-D{name}={value}" for name, value in macros.items())]
            sources = [str(_FOLDER / f"{source.stem}.cpp"), str(_threads(folder))]
            options += [
                "-iquote",
                str(_KERNELS),
                "-iquote",
                str(_KERNELS / "include"),
                "-include",
                str(_header(folder)),
                *sources,
            ]
            _compile(options, target)
        _libraries[key] = ctypes.CDLL(str(target))
    library = _libraries[key]
    return SimpleNamespace(kernel=lambda name: HostKernel(library, name, device))


def _threads(folder: Path) -> Path:
    """The library that runs threads, for all others here."""
    target = folder / "cuda_on_host.so"
    if not target.exists():
        _compile(["-shared", str(_FOLDER / "cuda_on_host.cpp")], target)
    return target


def _header(folder: Path) -> Path:
    """What all sources here include, compiled before: that is half of what compiling one of them takes."""
    header = folder / "cuda_on_host.h"
    compiled = header.with_name(f"{header.name}.gch")
    if not compiled.exists():
        if not header.exists():
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write((_FOLDER / header.name).read_bytes())
            os.replace(file.name, header)
        _compile(["-x", "c++-header", str(header)], compiled)
    return header


def _compile(options: Sequence[str], target: Path) -> None:
    """Under another name at first: another process may look for the file."""
    command = ["g++", "-std=c++17", "-O1", "-fno-gnu-unique", "-U_FORTIFY_SOURCE", "-fPIC"]
    command += ["-Wall", "-Wno-unknown-pragmas", "-Werror"]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        subprocess.run([*command, *options, "-o", str(made)], check=True)
        os.replace(made, target)


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    modules: Sequence[Any] = (vectors, conjugate, arnoldi, queues, memory),
    *,
    sms: int = _SMS,
    shared: int = _SHARED,
) -> Any:
    """Let modules of the GPU, by default those of its vector work, find all this instead of a GPU.

    Returns the device: `order` of its threads (0 ascending, 1 descending, others shuffled) may be set, `launches` are
    those so far: kernel, grid, block, bytes of shared memory.
    """
    device = SimpleNamespace(
        sms=sms, shared_per_block=shared + 1024, memory_bytes=2**30, folder=folder, order=0, launches=[]
    )
    stream = HostStream()
    replaced = {
        "empty": empty,
        "zeros": zeros,
        "to_device": to_device,
        "pinned": pinned,
        "send": send,
        "load": load,
        "Event": HostEvent,
    }
    replaced |= {"cuda_device": lambda: device, "default_stream": lambda: stream}
    replaced["begin"] = lambda wanted, *, device: None
    replaced["_recorded"] = HostProgram.recorded
    for module in modules:
        for name, made in replaced.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, made)
    monkeypatch.setattr(DeviceArray, "get", _get)
    for name in ("set", "queue_from"):
        monkeypatch.setattr(DeviceArray, name, lambda self, values: seen(self).__setitem__(..., values))
    monkeypatch.setattr(
        DeviceArray, "copy_from", lambda self, other, stream=None: seen(self).__setitem__(..., seen(other))
    )
    monkeypatch.setattr(DeviceArray, "fill_bytes", lambda self, value: seen(self).view(np.uint8).fill(value))
    monkeypatch.setattr(DeviceArray, "fill_words", lambda self, value: seen(self).view(np.uint32).fill(value))
    return device


def _get(self: DeviceArray, out: Any = None) -> Any:
    if out is None:
        return seen(self).copy()
    out[...] = seen(self)
    return out
