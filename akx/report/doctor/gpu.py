"""The GPU: its driver, its compiler, its memory, and the backends that can be used."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

from akx.backends.selection import BACKENDS, array_backend, backend_of, is_usable
from akx.core.errors import AkxError
from akx.report.doctor.check import Check
from akx.report.units import counted, size

__all__ = ["gpu", "gpu_memory", "nvidia_driver", "usable_backends"]


def nvidia_driver() -> Check:
    """The NVIDIA driver, asked through its own library: no CUDA package is needed for that."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        devices = ctypes.c_int(0)
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(devices)) == 0 and devices.value:
            return Check("nvidia driver", "ok", counted(devices.value, "GPU"))
        return Check("nvidia driver", "missing", "installed, but it sees no GPU", "see what nvidia-smi says")
    return Check("nvidia driver", "missing", "no NVIDIA driver on this machine; the CPU backend needs none")


def usable_backends() -> Check:
    usable = [name for name in BACKENDS.names() if is_usable(name)]
    lacking = [name for name in BACKENDS.names() if name not in usable]
    return Check(
        "backends", "ok", ", ".join(usable) + (f" (not on this machine: {', '.join(lacking)})" if lacking else "")
    )


def gpu() -> Iterator[Check]:
    """The GPU that akx would use, its compiler, and what `akx bench` compares with."""
    backend = backend_of(array_backend())
    reason = backend.missing()
    if reason is not None:
        yield Check("gpu", "missing", f"cannot be used: {reason}")
    else:
        device: Any = backend.device()
        memory = f"{size(device.memory_bytes)} of memory, L2 {size(device.l2_bytes)}"
        shared = f"{size(device.shared_per_block)} of shared memory per block"
        yield Check("gpu", "ok", f"{device.name}, {device.arch}, {device.sms} multiprocessors, {memory}, {shared}")
    name, compiler = f"{backend.name} compiler", backend.compiler()
    if compiler is None:
        yield Check(name, "missing", "neither NVRTC nor nvcc", f"pip install '{backend.compilers[0]}[all]'")
    else:
        yield Check(name, "ok", f"{compiler[0]}; machine code is kept in {compiler[1]}")
    for library, (hint, version) in backend.baseline_libraries().items():
        if hint is not None:
            yield Check(library, "missing", "for `akx bench`, to compare with", hint)
        else:
            yield Check(library, "ok", version or "version unknown")


def gpu_memory() -> Iterator[Check]:
    """What variables say about the GPU's memory, where they say anything."""
    given = [name for name in ("AKX_GPU_MEMORY", "AKX_GPU_POOL") if os.environ.get(name, "").strip()]
    if not given:
        return
    try:
        pool = backend_of(array_backend()).memory_pool()
    except AkxError as error:
        found = f"{error.what}, expected {error.expected}, found {error.found}"
        yield Check("gpu memory", "problem", found, error.hint or f"unset {' and '.join(given)}")
        return
    most = "all there is" if pool.budget is None else f"at most {size(pool.budget)}"
    yield Check("gpu memory", "ok", f"{most}{', nothing kept for later' * pool.exact} (from {', '.join(given)})")
