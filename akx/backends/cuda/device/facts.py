"""Facts of a GPU, read from the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from akx.backends.cuda.device.runtime import Runtime, cuda_missing, runtime
from akx.backends.device import Device
from akx.core.errors import DeviceError

__all__ = ["CudaDevice", "cuda_device", "cuda_missing"]


@dataclass(frozen=True)
class CudaDevice(Device):
    """An NVIDIA GPU.

    `name`: as the driver gives it. `ordinal`: among the visible GPUs. `compute_capability`: e.g. (9, 0). `sms`:
    streaming multiprocessors. `shared_per_block`: most bytes of shared memory that one block may ask for (the opt-in
    limit). `shared_per_sm`: bytes of shared memory of one multiprocessor, 1 KiB per resident block included.
    `registers_per_sm`: 32-bit registers of one multiprocessor. `l2_bytes`: second-level cache. `memory_bytes`: device
    memory in all. `clock_hz`: highest clock of the multiprocessors. `memory_bandwidth_hint`: bytes a second from memory
    clock and bus width: a bound, not a measurement. 0 where the driver does not tell. `cores`: threads of the host that
    feed it: one. `budget`: bytes that plans may take of its memory, vectors included; 0 where nobody said.
    """

    name: str
    ordinal: int
    compute_capability: tuple[int, int]
    sms: int
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int
    l2_bytes: int
    memory_bytes: int
    clock_hz: int
    memory_bandwidth_hint: float
    cores: int = 1
    backend: str = "cuda"
    budget: int = 0

    @property
    def device_class(self) -> str:
        """What a plan is keyed by: GPUs of one class share plans, and a budget makes a class of its own."""
        mib = 1024 * 1024
        major, minor = self.compute_capability
        memory = round(self.memory_bytes / 1024**3)
        l2 = f"L2 {self.l2_bytes / mib:g} MiB"
        whole = f"cuda/{self.name}/sm_{major}{minor}/{self.sms} SMs/{l2}/{memory} GiB"
        return f"{whole}/budget {self.budget} bytes" if self.budget else whole

    @property
    def identity(self) -> str:
        """The UUID of the GPU, or of its partition."""
        try:
            live = runtime()
            uuid: Any = live.call("cuDeviceGetUuid_v2", live.device, doing="asking for the UUID")
            return f"GPU {bytes(uuid.bytes).hex()}"
        except Exception:  # a name that several GPUs of this host may share only makes them wait for one another
            return f"GPU {self.name} {self.ordinal}"

    def whole(self) -> CudaDevice:
        """The GPU without a memory budget."""
        return replace(self, budget=0) if self.budget else self

    @property
    def arch(self) -> str:
        """What kernels are compiled for, e.g. ``"sm_90"``."""
        return "sm_{}{}".format(*self.compute_capability)


@lru_cache(maxsize=16)
def cuda_device(ordinal: int = 0) -> CudaDevice:
    """The facts of one GPU.

    Raises :class:`MissingDependencyError` where cuda-bindings is not installed; the hint says what to install. Raises
    :class:`DeviceError` where there is no driver, or no such GPU.
    """
    live = Runtime(ordinal)
    names = live.driver.CUdevice_attribute

    def fact(name: str) -> int:
        attribute = getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(live.call("cuDeviceGetAttribute", attribute, live.device, doing=f"asking for {name}"))

    def optional(name: str) -> int:
        try:
            return fact(name)
        except (AttributeError, DeviceError):
            return 0

    text: Any = live.call("cuDeviceGetName", 256, live.device, doing="asking for the name")
    return CudaDevice(
        name=text.split(b"\0")[0].decode(errors="replace").strip(),
        ordinal=ordinal,
        compute_capability=(fact("COMPUTE_CAPABILITY_MAJOR"), fact("COMPUTE_CAPABILITY_MINOR")),
        sms=fact("MULTIPROCESSOR_COUNT"),
        shared_per_block=fact("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_per_sm=fact("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        registers_per_sm=fact("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        l2_bytes=fact("L2_CACHE_SIZE"),
        memory_bytes=int(live.call("cuDeviceTotalMem", live.device, doing="asking for the memory")),
        clock_hz=1000 * optional("CLOCK_RATE"),
        memory_bandwidth_hint=2.0 * 1000 * optional("MEMORY_CLOCK_RATE") * optional("GLOBAL_MEMORY_BUS_WIDTH") / 8,
    )
