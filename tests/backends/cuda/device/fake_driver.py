"""A driver without a GPU: memory is the host's, kernels are functions, and streams do their work as late as they may.

What is queued has to wait for what was queued before it on its stream, for the events that the stream waits for, and
blocking streams and the legacy one for one another; nothing else orders it. Work is done when somebody waits for it,
the youngest that can be first. Calls are logged by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.backends.cuda import program
from akx.backends.cuda.device import callers, pool, runtime, streams
from akx.backends.cuda.matrix import content

LEGACY, CONTEXT = 1, 7
CAPTURED = 900  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED


class Names:
    """Any constant of an enumeration."""

    def __getattr__(self, name: str) -> str:
        return name


class Code(int):
    name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"


class Op:
    def __init__(self, work: Callable[[], None] | None, after: list[Op]) -> None:
        self.work, self.after, self.done, self.time = work, after, work is None and not after, 0.0

    @property
    def can_be_done(self) -> bool:
        return not self.done and all(op.done for op in self.after)


class FakeDriver:
    """``cuda.bindings.driver``, as far as calls need it.

    Attributes
    ----------
    log : list of str
        Names of the calls so far.
    kernels : dict
        By name, what a kernel does, and the types of its arguments.
    context : int
        The context that is current.
    time : float
        Seconds of the device so far; kernels add theirs.
    """

    CUstream = CUdeviceptr = int
    CUfunction_attribute = CUpointer_attribute = CUdevice_attribute = CUstreamCaptureMode = Names()
    CUlaunchAttributeID = Names()

    def __init__(self) -> None:
        self.log: list[str] = []
        self.functions: dict[int, str] = {}
        self.kernels: dict[str, tuple[Callable[..., None], list[Any]]] = {}
        self.context = CONTEXT
        self.ops: list[Op] = []
        self.last: dict[int, Op] = {LEGACY: Op(None, [])}
        self.blocking: set[int] = set()
        self.events: dict[int, Op] = {}
        self.recording: dict[int, list[Any]] = {}  # graphs that are being recorded
        self.held: dict[int, Any] = {}
        self.locked: dict[int, Any] = {}  # of these the host's that are page-locked
        self.handles = 100
        self.time = 0.0

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return partial(self._logged, name, found) if name.startswith("cu") else found

    def _logged(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self.log.append(name)
        return function(*arguments)

    def new(self) -> int:
        self.handles += 1
        return self.handles

    def queue(self, stream: int, work: Callable[[], None] | None, after: list[Op] | None = None) -> None:
        others = [self.last[one] for one in self.blocking] if stream == LEGACY else []
        others += [self.last[LEGACY]] if stream in self.blocking else []
        op = Op(work, [self.last.setdefault(stream, Op(None, [])), *others, *(after or [])])
        self.ops.append(op)
        self.last[stream] = op

    def finish(self) -> None:
        """Do all work."""
        while waiting := [op for op in self.ops if not op.done]:
            op = next(op for op in reversed(waiting) if op.can_be_done)
            op.done = True
            if op.work is not None:
                op.work()
            op.time = self.time
        self.ops = []

    # -------------------------------------------------------------------------------------------- device and streams

    def cuDeviceGetCount(self) -> Any:
        return 0, 1

    def cuDeviceGet(self, ordinal: int) -> Any:
        return 0, ordinal

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return 0, CONTEXT

    def cuDeviceGetAttribute(self, *_: Any) -> Any:
        return 0, 9

    def cuCtxGetCurrent(self) -> Any:
        return 0, self.context

    def cuCtxPushCurrent(self, context: int) -> Any:
        self.before, self.context = self.context, context
        return (0,)

    def cuCtxPopCurrent(self) -> Any:
        self.context = self.before
        return 0, CONTEXT

    def cuCtxSynchronize(self) -> Any:
        self.finish()
        return (0,)

    def cuPointerGetAttribute(self, attribute: str, address: int) -> Any:
        is_known = any(at <= address < at + one.size for at, one in self.locked.items())
        return int(attribute.endswith("MEMORY_TYPE") and not is_known), 0

    def cuStreamCreate(self, flags: int) -> Any:
        made = self.new()
        self.last[made] = Op(None, [])
        if not flags:
            self.blocking.add(made)
        return 0, made

    def cuStreamSynchronize(self, stream: int) -> Any:
        self.finish()
        return (0,)

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return 0, int(stream in self.recording)

    def cuEventCreate(self, flags: int) -> Any:
        return 0, self.new()

    def cuEventRecord(self, event: int, stream: int) -> Any:
        assert stream not in self.recording
        self.queue(stream, None)
        self.events[event] = self.last[stream]
        return (0,)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        assert stream not in self.recording
        self.queue(stream, None, [self.events[event]])
        return (0,)

    def cuEventQuery(self, event: int) -> Any:
        return (0 if self.events[event].done else 600,)

    def cuEventSynchronize(self, event: int) -> Any:
        self.finish()
        return (0,)

    def cuEventElapsedTime(self, begin: int, end: int) -> Any:
        assert self.events[end].done
        return 0, 1e3 * (self.events[end].time - self.events[begin].time)

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        self.mode, before = mode, getattr(self, "mode", "global")
        return 0, before

    def cuEventDestroy(self, event: int) -> Any:
        return (0,)

    # ------------------------------------------------------------------------------------------------------- memory

    def cuMemAlloc(self, size: int) -> Any:
        assert not self.recording, "memory in a capture"
        made = np.full(size + 16, 0xFF, np.uint8)  # NaN
        address = made.ctypes.data + -made.ctypes.data % 16
        self.held[address] = made
        return 0, address

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        _, address = self.cuMemAlloc(size)
        self.locked[address] = self.held[address]
        return 0, address

    def cuMemFree(self, address: int) -> Any:
        return (0,)

    cuMemFreeHost = cuMemFree

    def cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        if any(at <= source < at + one.size for at, one in self.locked.items()):  # read as late as may be
            self.queue(stream, lambda: ctypes.memmove(to, source, size) and None)
            return (0,)
        octets = ctypes.string_at(source, size)
        self.queue(stream, lambda: ctypes.memmove(to, octets, size) and None)
        return (0,)

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        assert stream not in self.recording
        self.queue(stream, lambda: ctypes.memmove(to, source, size) and None)
        return (0,)

    def cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        assert stream not in self.recording
        self.queue(stream, lambda: ctypes.memmove(to, source, size) and None)
        return (0,)

    def cuMemsetD8Async(self, to: int, value: int, size: int, stream: int) -> Any:
        assert stream not in self.recording
        self.queue(stream, lambda: ctypes.memset(to, value, size) and None)
        return (0,)

    # --------------------------------------------------------------------------------------------- kernels and graphs

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> Any:
        return 0, 1

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        return 0, cubin

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        self.functions[len(self.functions) + 1] = name.decode()
        return 0, len(self.functions)

    def cuFuncGetAttribute(self, *_: Any) -> Any:
        return 0, 0

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace()

    def CUlaunchAttribute(self) -> Any:
        return SimpleNamespace(value=SimpleNamespace())

    def _bound(self, function: int, addresses: int) -> tuple[Callable[[], None], Any, list[Any]]:
        """What a launch does, and its arguments as the driver keeps them."""
        work, kinds = self.kernels[self.functions[function]]
        places = (ctypes.c_void_p * len(kinds)).from_address(addresses)
        held = [kind(kind.from_address(place).value) for kind, place in zip(kinds, places, strict=True)]
        copies = (ctypes.c_void_p * len(kinds))(*(ctypes.addressof(one) for one in held))
        return lambda: work(*(one.value for one in held)), copies, held

    def cuLaunchKernelEx(self, config: Any, function: int, addresses: int, extra: int) -> Any:
        work, copies, held = self._bound(function, addresses)
        if config.hStream in self.recording:
            node = SimpleNamespace(function=function, work=work, copies=copies, held=held)
            self.recording[config.hStream].append(node)
        else:
            self.queue(config.hStream, work)
        return (0,)

    def cuStreamBeginCapture(self, stream: int, mode: Any) -> Any:
        self.recording[stream] = []
        return (0,)

    def cuStreamEndCapture(self, stream: int) -> Any:
        return 0, self.recording.pop(stream)

    def cuGraphGetNodes(self, graph: list[Any], count: int = 0) -> Any:
        return 0, graph[::-1][:count], len(graph)

    def cuGraphInstantiate(self, graph: list[Any], flags: int) -> Any:
        return 0, SimpleNamespace(work={id(node): node.work for node in graph})

    def cuGraphKernelNodeGetParams(self, node: Any) -> Any:
        return 0, SimpleNamespace(func=node.function, kernelParams=ctypes.addressof(node.copies))

    def cuGraphExecKernelNodeSetParams(self, graph: Any, node: Any, parameters: Any) -> Any:
        assert self.context == CONTEXT  # the driver crashes without one
        graph.work[id(node)] = self._bound(parameters.func, parameters.kernelParams)[0]
        return (0,)

    def cuGraphLaunch(self, graph: Any, stream: int) -> Any:
        if stream in self.recording:
            return (Code(CAPTURED),)
        for work in graph.work.values():
            self.queue(stream, work)
        return (0,)

    def cuGraphDestroy(self, graph: Any) -> Any:
        return (0,)

    cuGraphExecDestroy = cuGraphDestroy

    # ------------------------------------------------------------------------------------------------------ the rest

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let akx find this driver, and nothing that it made with another."""
        monkeypatch.setattr(runtime, "driver", lambda: self)
        monkeypatch.setattr(streams, "pycuda_driver", lambda: None)
        monkeypatch.setattr(streams, "_spare", [])
        monkeypatch.setattr(content, "_spare", [])
        monkeypatch.setattr(program, "_PAYS", 1)
        monkeypatch.setattr(content, "_words", [])
        monkeypatch.setattr(callers, "_of_cupy", (None, None))
        monkeypatch.setattr(callers, "_of_torch", {})
        for once in (runtime.runtime, streams.default_stream, pool.memory_pool, callers._legacy):
            monkeypatch.setattr(once, "_made", [])


def seen(address: int, count: int, dtype: Any = np.float64) -> Any:
    """Numbers at an address."""
    octets = (ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(octets, dtype)
