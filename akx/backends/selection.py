"""The backends there are, the device of each, and the threads of the host that its plans may use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from akx.backends.base import Backend
from akx.backends.device import Device
from akx.core.arguments import unknown_name
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.core.plugins import Registered
from akx.core.process import resolve_threads

__all__ = [
    "BACKENDS",
    "HOST",
    "array_backend",
    "backend_of",
    "device_of",
    "is_usable",
    "memory_pool",
    "plan_threads",
    "resolve_backend",
    "suited",
]

#: The backend whose device is the host, which is always there.
HOST = "cpu"


def _name_of(backend: Backend) -> str:
    if not isinstance(backend, Backend):
        raise TypeError(f"it is no Backend but of type {type(backend).__name__}")
    return backend.name


#: A new backend is one object, and one line here or an entry point of another package.
BACKENDS: Registered[Backend] = Registered(
    _name_of,
    {
        "cpu": "akx.backends.cpu.backend:BACKEND",
        "cuda": "akx.backends.cuda.backend:BACKEND",
    },
    group="akx.backends",
)


def backend_of(name: str) -> Backend:
    """The backend of a name.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Where there is none.
    """
    found = BACKENDS.get(name) if isinstance(name, str) else None
    if found is None:
        raise unknown_name("backend", name, BACKENDS.names())
    return found


def resolve_backend(backend: str) -> str:
    """The backend a name stands for: ``"auto"`` is the first one registered."""
    if backend == "auto":
        return next(iter(BACKENDS.own))
    try:
        return backend_of(backend).name
    except (ArgumentError, ArgumentTypeError):
        raise unknown_name("backend", backend, ("auto", *BACKENDS.names())) from None


def device_of(backend: str) -> Device:
    """This machine's device for a backend.

    Raises
    ------
    ArgumentError
        Where there is no such backend.
    MissingDependencyError, DeviceError
        Where there is no such device that can be used, as a GPU; the message says what to do.
    """
    return backend_of(backend).device()


@cache
def array_backend() -> str:
    """The backend that computes with arrays of other libraries in GPU memory, by name."""
    return next(one.name for one in BACKENDS if one.takes_arrays)


def memory_pool() -> Any:
    """The memory of the GPU that akx keeps for later: its `budget`, what is `used`, ``trim()``.

    Raises
    ------
    MissingDependencyError, DeviceError
        Where there is no GPU that can be used.
    """
    return backend_of(array_backend()).memory_pool()


def suited(entries: Callable[[Backend], int], nnz: int) -> str:
    """The usable backend that wants the most `entries` of those that want no more than a matrix has, by name.

    Of those that ``"auto"`` stands for; the host wants none.
    """
    found = [one for one in BACKENDS if one.is_automatic and entries(one) <= nnz]
    return next((one.name for one in sorted(found, key=entries, reverse=True) if is_usable(one.name)), HOST)


def is_usable(backend: str) -> bool:
    """Whether the backend has a device on this machine."""
    return backend_of(backend).missing() is None


def plan_threads(backend: str, threads: int | None = None) -> int:
    """Threads of the host that a plan of the backend may use: one feeds a GPU, whatever is asked for.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Where `threads` makes no sense, on a GPU too, or there is no such backend.
    """
    used = resolve_threads(threads)
    return used if backend_of(backend).uses_threads else 1
