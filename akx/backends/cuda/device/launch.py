"""Kernels; and the names of streams, events and graphs, which go with them.

Plain launches are pycuda's; cooperative launches, clusters and graphs are those of ``cuda.bindings``, which pycuda
does not have. The two do not show each other their handles, so a kernel that needs both is loaded twice: state
in ``__device__`` variables is not shared between the two, and kernels must not have any.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from akx.backends.cuda.device.graphs import Graph, Launch, capture
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.device.runtime import failed, pycuda_driver, runtime
from akx.backends.cuda.device.streams import (
    CallerStream,
    Event,
    Mark,
    Stream,
    default_stream,
    keep_forever,
    pycuda_context,
    spare_stream,
    synchronize,
)
from akx.core.errors import ArgumentTypeError, DeviceError, LaunchError, brief

__all__ = [
    "Bound",
    "CallerStream",
    "Event",
    "Graph",
    "Kernel",
    "Mark",
    "Module",
    "Stream",
    "capture",
    "default_stream",
    "spare_stream",
    "synchronize",
]

Argument = DeviceArray | np.generic | int
#: Bytes of an argument, at most.
_SLOT, _POINTER = 16, struct.Struct("Q")


class Module:
    """Loaded machine code; kernels are found by their ``extern "C"`` names."""

    def __init__(self, cubin: bytes, name: str) -> None:
        self.cubin = cubin
        self.name = name
        self._pycuda: Any = None
        self._driver: Any = None
        self._kernels: dict[str, Kernel] = {}

    def kernel(self, name: str) -> Kernel:
        """The kernel `name`. Raises :class:`DeviceError` where there is none."""
        if name not in self._kernels:
            self._kernels[name] = Kernel(self, name)
        return self._kernels[name]

    def pycuda_function(self, name: str) -> Any:
        """The kernel for pycuda's launches."""
        with pycuda_context() as library:
            if self._pycuda is None:
                self._pycuda = library.module_from_buffer(self.cubin)
                keep_forever(self._pycuda)
            return self._pycuda.get_function(name)

    def driver_function(self, name: str) -> Any:
        """The kernel for the driver's launches."""
        with runtime().active() as live:
            if self._driver is None:
                self._driver = live.call("cuModuleLoadData", self.cubin, doing=f"loading {self.name}")
            return live.call(
                "cuModuleGetFunction", self._driver, name.encode(), doing=f"looking for {name} in {self.name}"
            )


class Kernel:
    """One kernel.

    `registers`: per thread. `local_bytes`: local memory per thread: not zero where registers were spilt or an array is
    indexed at run time. `shared_bytes`: static shared memory per block. `max_threads`: most threads per block.
    """

    def __init__(self, module: Module, name: str) -> None:
        self._module = module
        self.name = name
        self._function = module.driver_function(name)
        self._plain: Any = None
        self._prepared: list[str] = []
        self._most_shared = 0
        self._most_shared_plain = 0
        self.registers = self._attribute("NUM_REGS")
        self.local_bytes = self._attribute("LOCAL_SIZE_BYTES")
        self.shared_bytes = self._attribute("SHARED_SIZE_BYTES")
        self.max_threads = self._attribute("MAX_THREADS_PER_BLOCK")
        self._free_shared = 48 * 1024 - self.shared_bytes  # what a launch may have without being asked for

    def launch(
        self,
        grid: int,
        block: int,
        args: Sequence[Argument],
        *,
        shared: int = 0,
        cooperative: bool = False,
        cluster: int = 1,
        early: bool = False,
        stream: Stream | None = None,
    ) -> None:
        """Queue the kernel on a stream.

        `grid`, `block`: blocks, and threads per block. `args`: pointers for arrays, scalars in their own type, int64
        for plain integers. Complex scalars are aligned as their parts are; rather pass an array. `shared`: bytes of
        dynamic shared memory; above 48 KiB the limit is raised. `cooperative`: all blocks are on the device at once, or
        the launch fails. `cluster`: blocks per cluster; `grid` must be a multiple of it. `early`: it may begin before
        the kernel queued before it has ended, and waits for that itself where it has to (``griddepcontrol.wait``).
        Where the device cannot do that (before compute capability 9.0) it does not. `stream`: the default stream of akx
        by default. Raises :class:`LaunchError` where the launch is refused. What fails while the kernel runs is raised
        by the next synchronisation.
        """
        on = default_stream() if stream is None else stream
        is_plain = not cooperative and cluster == 1 and not early and on.launches is None
        if is_plain and on.ours is not None:
            self._launch_by_pycuda(grid, block, args, shared, on)
            return
        slots, addresses = _packed(args)
        with runtime().active() as live:
            self._allow_shared(shared)
            attributes = _attributes(live.driver, cooperative, cluster, early and live.starts_early)
            config = _config(live.driver, grid, block, shared, attributes)
            config.hStream = on.raw
            pointers = ctypes.addressof(addresses) if args else 0
            try:
                live.call("cuLaunchKernelEx", config, self._function, pointers, 0, doing=f"launching {self.name}")
            except LaunchError:
                raise
            except DeviceError as error:
                raise LaunchError(f"launching {self.name} was refused", found=error.found) from error
            if on.launches is not None:
                on.launches.append(Launch(int(self._function), _values(args, slots), addresses))

    def bound(self, grid: int, block: int, args: Sequence[Argument], *, cooperative: bool = False) -> Bound:
        """A launch that is to be made again and again; what it is given is as for :meth:`launch`."""
        return Bound(self, grid, block, args, cooperative)

    def most_blocks(self, block: int) -> int:
        """Blocks of so many threads that can be on the device at once."""
        with runtime().active() as live:
            each = live.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._function, block, 0, doing="asking")
            attribute = live.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            return int(each) * int(live.call("cuDeviceGetAttribute", attribute, live.device, doing="asking the GPU"))

    def most_clusters(self, cluster: int, block: int, shared: int) -> int:
        """Clusters that can be on the device at once, 0 where not even one can.

        `cluster`, `block`: blocks per cluster, and threads per block. `shared`: bytes of dynamic shared memory of a
        block.
        """
        with runtime().active() as live:
            self._allow_shared(shared)
            config = _config(live.driver, cluster, block, shared, _attributes(live.driver, False, cluster))
            return int(live.call("cuOccupancyMaxActiveClusters", self._function, config, doing=f"asking {self.name}"))

    def _launch_by_pycuda(self, grid: int, block: int, args: Sequence[Argument], shared: int, stream: Stream) -> None:
        library = pycuda_driver()
        if self._plain is None:
            self._plain = self._module.pycuda_function(self.name)
        if shared > max(self._most_shared_plain, self._free_shared):
            limit = library.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            with runtime().active(), _launching(library, self.name):
                self._plain.set_attribute(limit, shared)
            self._most_shared_plain = shared
        kinds = [_kind(argument) for argument in args]
        if kinds != self._prepared:
            self._plain.prepare(kinds)
            self._prepared = kinds
        values = [argument.pointer if isinstance(argument, DeviceArray) else argument for argument in args]
        with runtime().active(), _launching(library, self.name):
            self._plain.prepared_async_call((grid, 1), (block, 1, 1), stream.ours, *values, shared_size=shared)

    def _allow_shared(self, shared: int) -> None:
        if shared > max(self._most_shared, self._free_shared):
            live = runtime()
            limit = live.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            live.call("cuFuncSetAttribute", self._function, limit, shared, doing=f"shared memory of {self.name}")
            self._most_shared = shared

    def _attribute(self, name: str) -> int:
        with runtime().active() as live:
            attribute = getattr(live.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(live.call("cuFuncGetAttribute", attribute, self._function, doing=f"asking {self.name}"))


class Bound:
    """A launch whose arguments are laid out once, so that it costs the host a call of the driver alone.

    Arrays among the arguments are held. For one thread at a time.
    """

    def __init__(self, kernel: Kernel, grid: int, block: int, args: Sequence[Argument], cooperative: bool) -> None:
        self._name, self._function, self._held = kernel.name, kernel._function, list(args)
        slots, self._addresses = _packed(args)
        self._values = _values(args, slots)
        driver = runtime().driver
        self._start, self._where, self._raw = driver.cuLaunchKernelEx, ctypes.addressof(self._addresses), None
        self._config = _config(driver, grid, block, 0, _attributes(driver, cooperative, 1))

    def put(self, place: int, value: int) -> None:
        """Let launches from now on have another number, or address, as the argument at a place."""
        self._values[place][0] = value

    def launch_here(self, stream: Stream) -> None:
        """Queue it, where the context is current."""
        raw = stream.raw
        if raw is not self._raw:
            self._raw = self._config.hStream = raw
        (code,) = self._start(self._config, self._function, self._where, 0)
        if int(code) != 0:
            raise failed(code, f"launching {self._name}")


@contextlib.contextmanager
def _launching(library: Any, name: str) -> Iterator[None]:
    try:
        yield
    except library.Error as error:
        raise LaunchError(f"launching {name} was refused", found=str(error)) from error


def _kind(argument: Argument) -> str:
    """The letter of pycuda's format for an argument."""
    if isinstance(argument, DeviceArray):
        return "P"
    if isinstance(argument, np.generic):
        return str(argument.dtype.char)
    if isinstance(argument, int) and not isinstance(argument, bool):
        return "q"
    raise ArgumentTypeError("a kernel cannot take this argument", found=brief(argument))


def _packed(args: Sequence[Argument]) -> tuple[bytearray, Any]:
    """The arguments, each in its slot, and the array of their addresses; both must outlive the launch call."""
    count = max(1, len(args))
    slots = bytearray(count * _SLOT)
    for place, argument in zip(range(0, count * _SLOT, _SLOT), args, strict=False):
        if isinstance(argument, DeviceArray):
            _POINTER.pack_into(slots, place, argument.pointer)
        elif isinstance(argument, np.generic):
            slots[place : place + argument.itemsize] = argument.tobytes()
        else:
            struct.pack_into(_kind(argument), slots, place, argument)
    first = ctypes.addressof(ctypes.c_char.from_buffer(slots))
    return slots, (ctypes.c_void_p * count)(*range(first, first + count * _SLOT, _SLOT))


def _values(args: Sequence[Argument], slots: bytearray) -> list[Any]:
    """The arguments as arrays (1,) in their slots, to be changed."""
    kinds = [np.dtype(np.uint64 if isinstance(one, DeviceArray) else _kind(one)) for one in args]
    return [np.frombuffer(slots, kind, 1, number * _SLOT) for number, kind in enumerate(kinds)]


def _config(library: Any, grid: int, block: int, shared: int, attributes: list[Any]) -> Any:
    """What a launch is told, but for its stream."""
    config = library.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
    config.sharedMemBytes, config.attrs, config.numAttrs = shared, attributes, len(attributes)
    return config


@lru_cache(maxsize=64)
def _attributes(library: Any, cooperative: bool, cluster: int, early: bool = False) -> list[Any]:
    """Those of a launch; none of them changes."""
    found: list[Any] = []

    def add(name: str) -> Any:
        found.append(library.CUlaunchAttribute())
        found[-1].id = getattr(library.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        return found[-1].value

    if cooperative:
        add("COOPERATIVE").cooperative = 1
    if cluster > 1:
        shape = add("CLUSTER_DIMENSION").clusterDim
        shape.x, shape.y, shape.z = cluster, 1, 1
    if early:
        add("PROGRAMMATIC_STREAM_SERIALIZATION").programmaticStreamSerializationAllowed = 1
    return found
