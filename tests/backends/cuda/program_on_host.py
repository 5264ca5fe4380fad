"""Programs of the GPU without one: kernels of host_engine.py on memory of the host, queued, recorded and replayed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import pytest
from test_contract import make_coefficients, random_numbers

from akx.backends import reference
from akx.backends.cuda import program as programs
from akx.backends.cuda.device.memory import DeviceArray, wrap
from akx.backends.cuda.value_compression import new_values as values
from akx.backends.cuda.value_compression import on_device as stored_values
from akx.backends.cuda.value_compression import program as stored_program
from akx.backends.cuda.value_compression.encodings import HALF, error_of
from akx.backends.cuda.variants import slots
from akx.backends.cuda.variants.block_local import exchange
from akx.backends.cuda.variants.block_local import layout_on_device as parts_layout
from akx.core.matrix import Matrix

__all__ = ["Call", "Device", "drops_all_graphs", "poisoned_powers", "widens_narrow_values"]


class _Kernel:
    """What a source has of one name: another one each time that it is loaded."""

    def __init__(self, launch: Callable[..., None]) -> None:
        self.launch = launch

    def most_blocks(self, block: int) -> int:
        """Two: few, since each is run for all its threads."""
        return 2

    def bound(self, grid: int, block: int, args: Any, *, cooperative: bool = False) -> Any:
        return host_engine.HostBound(self, grid, block, args, cooperative)


class Device:
    """Kernels compiled by g++ on memory of the host, one after another, and graphs of them.

    Attributes
    ----------
    facts : CudaDevice
    sources : tuple of str
        The sources that are looked at.
    loaded : list of dict
        Macros of these, each time that one was loaded.
    threads : SimpleNamespace
        `order` is that of the threads of all launches, `launches` are those so far.
    less : int
        Bytes of shared memory that launches have less than they ask for.
    """

    def __init__(self, facts: Any, libraries: Path, *sources: str) -> None:
        self.facts, self.sources, self.less = facts, sources, 0
        self.loaded: list[dict[str, int | str]] = []
        self.recorded: list[Callable[[], None]] | None = None
        self.threads = SimpleNamespace(folder=libraries, order=0, launches=[], shared_per_block=2**22)

    def load(self, source: Path, macros: dict[str, int | str], *, device: Any, options: Sequence[str] = ()) -> Any:
        if source.stem in self.sources:
            self.loaded.append(macros)

        def launch(name: str, grid: int, block: int, args: Any, *, shared: int = 0, **more: Any) -> None:
            assert shared <= getattr(self.facts, "shared_per_block", shared)
            if self.recorded is not None:  # a graph has addresses, and keeps no memory alive
                args = [
                    wrap(one.pointer, one.shape, one.dtype, None) if type(one) is DeviceArray else one for one in args
                ]

            def work() -> None:
                if shutil.which("g++") is None:
                    pytest.skip("g++ is not installed")
                module = host_engine.load(source, macros, device=self.threads)
                module.kernel(name).launch(grid, block, list(args), shared=shared and shared - self.less, **more)

            if self.recorded is None:
                work()
            else:
                self.recorded.append(work)

        return SimpleNamespace(kernel=lambda name: _Kernel(partial(launch, name)))

    @contextlib.contextmanager
    def capture(self, stream: Any, *, movable: bool = False) -> Iterator[Any]:
        self.recorded = []
        graph = SimpleNamespace(work=self.recorded, is_movable=False, follow=lambda *arrays: False)
        graph.launch = lambda stream: [work() for work in graph.work]
        yield graph
        self.recorded = None

    def install(self, monkeypatch: pytest.MonkeyPatch, folder: Path, modules: Sequence[Any]) -> None:
        """Let modules, and those that all programs share, find this device."""
        modules = (programs, values, stored_values, stored_program, exchange, parts_layout, slots, *modules)
        host_engine.install(monkeypatch, folder, modules)
        made = {"load": self.load, "capture": self.capture, "cuda_device": lambda: self.facts}
        made["begin"] = lambda wanted, *, device: None
        for module in modules:
            for name, one in made.items():
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, one)
        monkeypatch.setattr(programs, "_PAYS", 1)
        monkeypatch.setattr(programs, "spare_stream", lambda: contextlib.nullcontext(host_engine.HostStream()))


def poisoned_powers(
    device: Device, program: Any, x: Any, coefficients: Any, *, aliased: bool = False, held: Sequence[Any] = ()
) -> Any:
    """What a call finds in memory that was poisoned, the same bits in every order of threads.

    At first kernels are queued, then recorded, then the graph is launched. `aliased`: x is out[0]. `held` are arrays of
    the program to be poisoned too.
    """
    room, found = host_engine.empty((program.k + 3, *x.shape), program.dtype), []
    out = room.view(x.size, (program.k + 1, *x.shape))
    given = out.view(0, x.shape) if aliased else host_engine.empty(x.shape, program.dtype)
    for device.threads.order in (0, 1, 7):
        for array in (room, *held):
            array.fill_bytes(255)
        given.set(x)
        program.run(given, out, coefficients)
        found.append(out.get())
        assert {*room.get()[[0, -1]].tobytes()} == {255}  # nothing is written beyond
    assert len({one.tobytes() for one in found}) == 1
    assert found[0][0].tobytes() == given.get().tobytes() == x.tobytes()
    return found[0]


class Call:
    """A program on the device, called again and again with the same arrays."""

    def __init__(self, program: Any, matrix: Matrix, vectors: int = 1) -> None:
        self.program, self.k, rng = program, program.k, np.random.default_rng(1)
        self.x = random_numbers(rng, (vectors, matrix.n), matrix.dtype.name)
        self.coefficients = make_coefficients("general", self.k, matrix.dtype.name, rng)
        out = host_engine.empty((self.k + 1, *self.x.shape), matrix.dtype)
        self.held = host_engine.to_device(self.x), out

    def is_right(self, matrix: Matrix, times: int = 3) -> None:
        """Queued at first, recorded, and by the graph; off by no more than its values are, as the matrix allows."""
        for _ in range(times):
            self.held[1].fill_bytes(255)
            self.program.run(*self.held, self.coefficients)
            off = min(self.program.stored_error, error_of(matrix, HALF))
            found = self.held[1].get()
            assert reference.error_ratio(matrix, found, self.x, self.coefficients, stored_error=off) <= 1


def drops_all_graphs(call: Call, matrix: Matrix, other: Matrix) -> None:
    """What would be launched with the old values, or by the old kernel, is nowhere any more once others are in full."""
    held = [call.held, *((call.held[0], host_engine.empty(call.held[1].shape, matrix.dtype)) for _ in range(2))]
    for call.held in held:
        call.is_right(matrix)
    assert len(call.program._graphs) == 3
    call.program.update_values(other.data)
    for call.held in held:
        call.is_right(other)


def widens_narrow_values(call: Call, matrix: Matrix) -> None:
    """float64 for complex values in half the bytes: those that fit, and those that do not."""
    for data in (matrix.data.real, np.random.default_rng(0).standard_normal(matrix.nnz).astype("f4")):
        call.program.update_values(host_engine.to_device(np.ascontiguousarray(data)))
        assert call.program._values.dtype == np.complex64
        call.is_right(matrix.with_values(data.astype("c16")))
    wide = np.random.default_rng(1).standard_normal(matrix.nnz)
    call.program.update_values(host_engine.to_device(wide))
    assert call.program._values.dtype == np.complex128
    call.is_right(matrix.with_values(wide.astype("c16")))
