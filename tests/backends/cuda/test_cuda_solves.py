"""Whole solves by GMRES on the GPU's own queue, with a device that does nothing before it is waited for.

Kernels are those of the GPU, run on the host (host_engine.py), one after another when something is synchronised, and
what they take is read then: memory that the host has written to meanwhile shows, as do records that are read too early.
"""

from __future__ import annotations

import ctypes
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends.cuda.device import memory
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.preconditioners import scaling
from akx.backends.cuda.vectors import arnoldi, conjugate, queues
from akx.backends.cuda.vectors import operations as vectors
from akx.solvers import arguments, products

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
METHODS = [("gmres", {}), ("ca_gmres", {"s": 4})]


class Device:
    """Work that was queued and is not done."""

    def __init__(self) -> None:
        self.left: deque[Callable[[], object]] = deque()

    def queue(self, work: Callable[[], object]) -> None:
        self.left.append(work)

    def synchronize(self) -> None:
        while self.left:
            self.left.popleft()()

    def recorded(self, queue: Callable[[], object]) -> list[Callable[[], object]]:
        """What `queue` queues, which is not to be done now."""
        before, self.left = self.left, deque()
        queue()
        found, self.left = list(self.left), before
        return found


class Event:
    device: Device

    def __init__(self) -> None:
        self.is_over = True

    def record(self, stream: Any = None) -> None:
        self.is_over = False
        self.device.queue(lambda: setattr(self, "is_over", True))

    def synchronize(self) -> None:
        while not self.is_over:
            self.device.left.popleft()()


class Program(host_engine.HostProgram):
    """Powers in the basis that the device has when it comes to them."""

    def __init__(self, operator: Any, device: Device) -> None:
        super().__init__(operator)
        self.device, self.here, self.taken = device, None, ()

    def take(self, basis: Any) -> None:
        if basis is not self.taken:
            self.device.queue(lambda: setattr(self, "here", basis))
            self.taken = basis

    def enqueue(self, x: DeviceArray, out: DeviceArray) -> None:
        self.device.queue(lambda: host_engine.HostProgram.run(self, x, out, self.here))

    def run(self, x: DeviceArray, out: DeviceArray, basis: Any) -> None:
        self.take(basis)
        self.enqueue(x, out)

    def recorded(self, calls: Any, before: Any) -> Any:
        def all_of_it() -> None:
            if before is not None:
                before(self.device)
            for x, out, then in calls:
                self.enqueue(x, out)
                then(self.device)

        work = self.device.recorded(all_of_it)
        return SimpleNamespace(launch=lambda stream: self.device.left.extend(work))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("on_host")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, libraries: Path) -> Iterator[Device]:
    host_engine.install(monkeypatch, libraries)
    found = Device()
    Event.device = found
    launched = host_engine.HostKernel.launch

    def launch(self: Any, grid: int, block: int, args: Any, *, shared: int = 0, stream: Any = None) -> None:
        held = list(args)
        found.queue(lambda: launched(self, grid, block, held, shared=shared))

    def get(self: DeviceArray, out: Any = None) -> Any:
        found.synchronize()
        return host_engine._get(self, out)

    def set_values(self: DeviceArray, values: Any) -> None:
        found.synchronize()
        host_engine.seen(self)[...] = values

    def copy(self: DeviceArray, other: DeviceArray, stream: Any = None) -> None:
        found.queue(lambda: host_engine.seen(self).__setitem__(..., host_engine.seen(other)))

    def fill(self: DeviceArray, value: int, stream: Any = None) -> None:
        found.queue(lambda: host_engine.seen(self).view(np.uint8).fill(value))

    monkeypatch.setattr(host_engine.HostKernel, "launch", launch)
    for name, made in {"get": get, "set": set_values, "copy_from": copy, "fill_bytes": fill}.items():
        monkeypatch.setattr(DeviceArray, name, made)
    replaced = {
        "default_stream": lambda: found,
        "Event": Event,
        "send": lambda to, address, nbytes, stream: found.queue(lambda: ctypes.memmove(to, address, nbytes)),
        "_recorded": Program.recorded,
    }
    for module in (vectors, conjugate, arnoldi, queues, memory):
        for name, what in replaced.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, what)

    class Scaling:
        """The twin of akx.backends.cuda.preconditioners.scaling.Scaling."""

        def __init__(self, diagonal: Any) -> None:
            self._diagonal = diagonal

        def apply(self, x: DeviceArray, out: DeviceArray) -> None:
            def scale() -> None:
                host_engine.seen(out)[...] = self._diagonal * host_engine.seen(x)

            found.queue(scale)

    monkeypatch.setattr(scaling, "Scaling", Scaling)
    of_host = products.Products.operator

    def operator(self: Any, k: int, kind: str = "monomial", plan: Any = None) -> Any:
        if not self.on_device:
            return of_host(self, k, kind, plan)
        if (k, kind) not in self._operators:
            basis: Any = kind if kind == "monomial" else products._placeholder(k, kind)
            made = akx.MatrixPowers(self.matrix, k, basis=basis, backend="cpu", threads=1)
            program = Program(made, found)
            self._operators[k, kind] = SimpleNamespace(program=lambda vectors, basis=None: (program, basis))
        return self._operators[k, kind]

    monkeypatch.setattr(products.Products, "operator", operator)
    monkeypatch.setattr(arguments, "resolve_backend", lambda backend: backend)
    monkeypatch.setattr(import_module("akx.solvers.ca_gmres"), "tuned_or", lambda most, *_: most)
    akx.clear_cache()  # of work on vectors of another such device
    yield found
    akx.clear_cache()
    assert all(callable(work) for work in found.left)


def system(n: int = 60) -> tuple[sp.csr_array, Any]:
    A = sp.csr_array(sp.diags_array([-1.3, 2.4, -0.7], offsets=[-1, 0, 1], shape=(n, n)))
    return A, np.random.default_rng(5).standard_normal(n)


def both(method: str, A: Any, b: Any, **options: Any) -> tuple[Any, Any]:
    """What the solver says of a system on the device and on the host, with its statistics."""
    solver = getattr(akx.solvers, method)
    return tuple(solver(A, b, backend=backend, threads=1, return_stats=True, **options) for backend in ("cuda", "cpu"))  # type: ignore[return-value]


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_cycles_are_those_of_the_host(device: Device, method: str, options: Any) -> None:
    A, b = system()
    told: list[list[float]] = [[], []]
    found = []
    for backend, said in zip(("cuda", "cpu"), told, strict=True):
        solver = getattr(akx.solvers, method)
        given = {"rtol": 1e-8, "restart": 8, "callback": said.append, "threads": 1, "return_stats": True, **options}
        found.append(solver(A, b, backend=backend, **given))
    (x, info, stats), (_, expected, there) = found
    assert info == expected == 0
    assert np.linalg.norm(b - A @ x) <= 1.01e-8 * np.linalg.norm(b)
    assert (stats.iterations, stats.products, stats.matrix_passes) == (
        there.iterations,
        there.products,
        there.matrix_passes,
    )
    assert stats.iterations > 3 * 8  # graphs are made, and launched again
    np.testing.assert_allclose(told[0], told[1], rtol=1e-4)


@pytest.mark.parametrize(("method", "options"), METHODS)
@pytest.mark.parametrize("maxiter", [5, 16, 27])
def test_steps_end_where_they_are_to_end(device: Device, method: str, options: Any, maxiter: int) -> None:
    A, b = system()
    given = {"rtol": 1e-14, "restart": 8, "maxiter": maxiter, "callback_type": "legacy", "callback": lambda _: None}
    (x, info, stats), (y, expected, there) = both(method, A, b, **given, **options)
    assert (info, stats.iterations) == (expected, there.iterations) == (maxiter, maxiter)
    np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-9)


def test_a_cycle_that_raised_the_residual_is_taken_back(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = system()
    right, count = arnoldi.RowsQueue.restart, iter(range(1, 100))

    def restart(self: Any, program: Any, coefficients: Any, y: Any, x: Any, of: Any) -> Any:
        return right(self, program, coefficients, 50 * y if next(count) in (2, 4, 5) else y, x, of)

    monkeypatch.setattr(arnoldi.RowsQueue, "restart", restart)
    x, info, stats = akx.solvers.gmres(A, b, restart=8, rtol=1e-8, backend="cuda", return_stats=True)
    assert info == 0
    assert np.linalg.norm(b - A @ x) <= 1.01e-8 * np.linalg.norm(b)
    assert sum("taken back" in note for note in stats.notes) == 3


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_what_the_device_leaves_to_the_host(
    device: Device, monkeypatch: pytest.MonkeyPatch, method: str, options: Any
) -> None:
    A, b = system()
    right, count = arnoldi.RowsQueue.next, iter(range(1, 10**6))

    def refused(self: Any) -> Any:
        record = right(self)
        return replace(record, good=False) if next(count) % 5 == 0 else record

    monkeypatch.setattr(arnoldi.RowsQueue, "next", refused)
    (x, info, _), (_, expected, _) = both(method, A, b, restart=8, rtol=1e-8, **options)
    assert info == expected == 0
    assert np.linalg.norm(b - A @ x) <= 1.01e-8 * np.linalg.norm(b)


def test_cycles_become_longer_where_they_get_nowhere(device: Device) -> None:
    n = 50
    A = sp.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    b = np.zeros(n)
    b[0] = 1.0
    (x, info, stats), (_, expected, there) = both("gmres", A, b)
    assert info == expected == 0
    assert [note for note in stats.notes if "no progress" in note] == [
        note for note in there.notes if "no progress" in note
    ]
    np.testing.assert_allclose(A @ x, b, atol=1e-5)
