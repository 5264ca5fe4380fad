"""The device of a backend, and the threads of the host that a plan for it may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.device.host import HostDevice, host_device, resolve_threads

if TYPE_CHECKING:
    from akx.device.cuda.facts import CudaDevice

__all__ = ["device_of", "is_usable", "plan_threads"]


def device_of(backend: str) -> HostDevice | CudaDevice:
    """This machine's device for a backend.

    Raises
    ------
    MissingDependencyError, DeviceError
        Where the backend is ``"cuda"`` and there is no GPU that can be used; the message says what to do.
    """
    if backend != "cuda":
        return host_device()
    from akx.device.cuda.facts import cuda_device

    return cuda_device()


def is_usable(backend: str) -> bool:
    """Whether the backend has a device on this machine."""
    if backend != "cuda":
        return True
    from akx.device.cuda.runtime import cuda_missing

    return cuda_missing() is None


def plan_threads(backend: str, threads: int | None = None) -> int:
    """Threads of the host that a plan of the backend may use: one feeds a GPU, whatever is asked for.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Where `threads` makes no sense, on a GPU too.
    """
    used = resolve_threads(threads)
    return 1 if backend == "cuda" else used
