"""Kernels, streams, events and graphs.

Plain launches are pycuda's; cooperative launches, clusters and graphs are those of ``cuda.bindings``, which pycuda
does not have. The two do not show each other their handles, so a kernel that needs both is loaded twice: state
in ``__device__`` variables is not shared between the two, and kernels must not have any.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from akx.device.collection import nothing_collected
from akx.device.cuda import memory
from akx.device.cuda.memory import DeviceArray
from akx.device.cuda.runtime import failed, pycuda_driver, runtime
from akx.device.forks import ForkSafeLock
from akx.device.once import once
from akx.errors import ArgumentTypeError, DeviceError, LaunchError, brief

__all__ = [
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
#: The handle of the legacy default stream.
_LEGACY = 1


def _keep_forever(made: Any) -> None:
    """Never let go what pycuda made: it can only be let go in the thread that it was made in."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


@contextlib.contextmanager
def _pycuda_context() -> Iterator[Any]:
    """pycuda's own view of the primary context, which it wants to see pushed before it makes anything."""
    library = pycuda_driver()
    context = library.Device(runtime().ordinal).retain_primary_context()
    _keep_forever(context)
    context.push()
    try:
        yield library
    finally:
        library.Context.pop()


class Stream:
    """A queue of work on the device.

    Parameters
    ----------
    blocking : bool
        It also waits for, and is waited for by, the legacy default stream. One to record graphs on must not: others
        could not use the legacy stream meanwhile.

    Attributes
    ----------
    handle : int
    raw
        For the driver's functions.
    launches : list or None
        Kernels launched on it while a graph is recorded that can be moved (:func:`capture`).
    """

    launches: list[_Launch] | None = None

    def __init__(self, *, blocking: bool = True) -> None:
        self.ours: Any = None
        flags = 0 if blocking else 1
        live = runtime()
        if pycuda_driver() is not None:
            with _pycuda_context() as library:
                self.ours = library.Stream(flags)
            _keep_forever(self.ours)
            self.handle = int(self.ours.handle)
        else:
            with live.active():
                made = live.call("cuStreamCreate", flags, doing="making a stream")
            self.handle = int(made)
        self.raw = live.driver.CUstream(self.handle)

    def synchronize(self) -> None:
        """Wait until all work so far is done; what failed in it is raised here."""
        with runtime().active() as live:
            live.call("cuStreamSynchronize", self.raw, doing="waiting for the GPU")

    def wait_for(self, handle: int) -> None:
        """Let work from now on wait for the work so far on a stream of another library (1 and 2: default streams)."""
        if handle != self.handle:
            Mark(handle).holds(self)

    def release_to(self, handle: int) -> None:
        """Let work from now on, on a stream of another library, wait for the work so far on this one."""
        if handle != self.handle:
            Mark(self).holds(handle)


class CallerStream(Stream):
    """A stream of another library, on which akx works for its arrays.

    Parameters
    ----------
    handle : int
        1 and 2: the default streams.
    lasts : bool
        Whether the handle means this stream as long as `owner` is held: that of one that is gone may be used again.
    owner : object
    """

    def __init__(self, handle: int, *, lasts: bool, owner: Any = None) -> None:
        live = runtime()
        self.ours, self.handle, self.lasts, self.owner = None, handle, lasts, owner
        self.raw = live.driver.CUstream(handle)
        self._asks, self._own = live.driver.cuStreamIsCapturing, default_stream()
        self._place = None if handle == _LEGACY else self

    @property
    def is_capturing(self) -> bool:
        """Whether its owner records a graph on it; raises DeviceError for the legacy stream where others do."""
        code, status = self._asks(self.raw)
        if int(code) != 0:
            raise failed(code, "working on the caller's stream")
        return int(status) != 0

    def submit(self, queue: Callable[[Stream], None]) -> None:
        """Queue work on the stream, behind all work of akx so far, and before all later work."""
        own = self._own
        with own.lock:
            if own.away is not self._place or not self.lasts:
                own.leave_for(self)
            queue(self)
            if not self.lasts:
                own.mark(self.raw)


class _OwnStream(Stream):
    """The stream that akx works on where no other is named.

    All work of akx is done in the order in which it is queued, on streams of callers too: programs have memory of their
    own, and the pool gives memory out again. So there is one place where the last work is. Who queues work elsewhere
    lets it wait for that place first, and work that follows on the same stream waits for nothing. The legacy stream and
    this one wait for one another anyway, and are one place.

    Attributes
    ----------
    away : CallerStream or None
        Where the last work is; None for here.
    lock : ForkSafeLock
        Held while work is queued on a stream of a caller.
    """

    away: CallerStream | None = None

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self._event: Any = None
        super().__init__()

    @property
    def raw(self) -> Any:
        """For the driver's functions, which then queue work behind all work so far."""
        self.come_back()
        return self._raw

    @raw.setter
    def raw(self, value: Any) -> None:
        self._raw = value

    @property
    def ours(self) -> Any:
        """The same for pycuda's."""
        self.come_back()
        return self._ours

    @ours.setter
    def ours(self, value: Any) -> None:
        self._ours = value

    def come_back(self) -> None:
        """Let work from now on, here or on the legacy stream, wait for what was queued on streams of callers."""
        if self.away is not None:
            with self.lock:
                self._settle(self._raw)
                self.away = None

    def leave_for(self, stream: CallerStream) -> None:
        """Let work from now on be queued on a stream of a caller: behind all work so far."""
        is_legacy = stream.handle == _LEGACY
        if self.away is not None:
            self._settle(stream.raw)
        elif not is_legacy:
            self.mark(self._raw)
            self._wait(stream.raw)
        if is_legacy and self.away is not None:
            self._wait(self._raw)
        self.away = None if is_legacy else stream

    def mark(self, raw: Any) -> None:
        """Let what waits next wait for the work so far on a stream."""
        with runtime().active() as live:
            if self._event is None:
                self._event = live.call("cuEventCreate", 2, doing="making an event")  # 2: no timing
            live.call("cuEventRecord", self._event, raw, doing="recording an event")

    def _settle(self, raw: Any) -> None:
        """Let a stream wait for the work on that of the last caller."""
        away = self.away
        if away is None:  # another thread was here first
            return
        if away.lasts:
            with runtime().active():
                is_captured = away.is_capturing
            if is_captured:
                raise DeviceError(
                    "a stream that akx has worked on is being captured, and other work has to wait for it",
                    hint="end the capture first",
                )
            self.mark(away.raw)
        self._wait(raw)

    def _wait(self, raw: Any) -> None:
        with runtime().active() as live:
            live.call("cuStreamWaitEvent", raw, self._event, 0, doing="waiting for an event")


class Mark:
    """A place in a stream that others can wait for; without a time.

    Parameters
    ----------
    stream : Stream or int
        The stream, or the handle of one of another library (1 and 2: default streams).
    """

    def __init__(self, stream: Stream | int) -> None:
        with runtime().active() as live:
            self._event = live.call("cuEventCreate", 2, doing="making an event")  # 2: no timing
            live.call("cuEventRecord", self._event, _raw(live, stream), doing="recording an event")

    def holds(self, stream: Stream | int) -> None:
        """Let work from now on, on `stream`, wait for the mark; it may be dropped then."""
        with runtime().active() as live:
            live.call("cuStreamWaitEvent", _raw(live, stream), self._event, 0, doing="waiting for an event")

    def __del__(self) -> None:
        with contextlib.suppress(Exception), runtime().active() as live:
            live.driver.cuEventDestroy(self._event)


def _raw(live: Any, stream: Stream | int) -> Any:
    return stream.raw if isinstance(stream, Stream) else live.driver.CUstream(stream)


@once
def default_stream() -> _OwnStream:
    """The stream that akx works on where no other is named."""
    own = _OwnStream()
    memory.before_reuse(own.come_back)  # what is given out again may be in use by work so far
    return own


#: Streams that nobody uses now; appending and popping are atomic.
_spare: list[Stream] = []


@contextlib.contextmanager
def spare_stream() -> Iterator[Stream]:
    """A stream to record a graph on that no other thread has: it would record their work too.

    It is used again by the next one who asks, since streams are never given back to the driver; one on which something
    failed is not, as nobody knows what state that left it in.
    """
    stream = _spare.pop() if _spare else Stream(blocking=False)
    yield stream
    _spare.append(stream)


def synchronize() -> None:
    """Wait for everything on the device."""
    with runtime().active() as live:
        live.call("cuCtxSynchronize", doing="waiting for the GPU")


class Event:
    """A mark in a stream, with the time when the device passed it."""

    def __init__(self) -> None:
        with runtime().active() as live:
            self._event = live.call("cuEventCreate", 0, doing="making an event")

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark at the end of the stream."""
        with runtime().active() as live:
            live.call("cuEventRecord", self._event, (stream or default_stream()).raw, doing="recording an event")

    def synchronize(self) -> None:
        """Wait until the device has passed the mark."""
        with runtime().active() as live:
            live.call("cuEventSynchronize", self._event, doing="waiting for the GPU")

    def seconds_since(self, earlier: Event) -> float:
        """Seconds between two marks that the device has passed."""
        with runtime().active() as live:
            found = live.call("cuEventElapsedTime", earlier._event, self._event, doing="reading the clock")
        return float(found) * 1e-3

    def __del__(self) -> None:
        with contextlib.suppress(Exception), runtime().active() as live:
            live.driver.cuEventDestroy(self._event)


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
        with _pycuda_context() as library:
            if self._pycuda is None:
                self._pycuda = library.module_from_buffer(self.cubin)
                _keep_forever(self._pycuda)
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

    Attributes
    ----------
    registers : int
        Per thread.
    local_bytes : int
        Local memory per thread: not zero where registers were spilt or an array is indexed at run time.
    shared_bytes : int
        Static shared memory per block.
    max_threads : int
        Most threads per block.
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

        Parameters
        ----------
        grid, block : int
            Blocks, and threads per block.
        args : sequence of DeviceArray, NumPy scalar or int
            Pointers for arrays, scalars in their own type, int64 for plain integers. Complex scalars are aligned as
            their parts are; rather pass an array.
        shared : int
            Bytes of dynamic shared memory; above 48 KiB the limit is raised.
        cooperative : bool
            All blocks are on the device at once, or the launch fails.
        cluster : int
            Blocks per cluster; `grid` must be a multiple of it.
        early : bool
            It may begin before the kernel queued before it has ended, and waits for that itself where it has to
            (``griddepcontrol.wait``). Where the device cannot do that (before compute capability 9.0) it does not.
        stream : Stream, optional
            The default stream of akx by default.

        Raises
        ------
        LaunchError
            Where the launch is refused. What fails while the kernel runs is raised by the next synchronisation.
        """
        on = default_stream() if stream is None else stream
        is_plain = not cooperative and cluster == 1 and not early and on.launches is None
        if is_plain and on.ours is not None:
            self._launch_by_pycuda(grid, block, args, shared, on)
            return
        keep, addresses = _packed(args)
        with runtime().active() as live:
            self._allow_shared(shared)
            config = live.driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
            config.sharedMemBytes = shared
            config.hStream = on.raw
            config.attrs = _attributes(live.driver, cooperative, cluster, early and live.starts_early)
            config.numAttrs = len(config.attrs)
            pointers = 0 if not keep else ctypes.addressof(addresses)
            try:
                live.call("cuLaunchKernelEx", config, self._function, pointers, 0, doing=f"launching {self.name}")
            except LaunchError:
                raise
            except DeviceError as error:
                raise LaunchError(f"launching {self.name} was refused", found=error.found) from error
            if on.launches is not None:
                on.launches.append(_Launch(_last_node(live, on), keep, addresses))

    def most_clusters(self, cluster: int, block: int, shared: int) -> int:
        """Clusters that can be on the device at once, 0 where not even one can.

        Parameters
        ----------
        cluster, block : int
            Blocks per cluster, and threads per block.
        shared : int
            Bytes of dynamic shared memory of a block.
        """
        with runtime().active() as live:
            self._allow_shared(shared)
            config = live.driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
            config.sharedMemBytes = shared
            config.attrs = _attributes(live.driver, False, cluster)
            config.numAttrs = len(config.attrs)
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


def _packed(args: Sequence[Argument]) -> tuple[list[Any], Any]:
    """Buffers with the arguments, and the array of their addresses; the buffers must outlive the launch call."""
    keep: list[Any] = []
    for argument in args:
        kind = _kind(argument)
        if isinstance(argument, DeviceArray):
            keep.append(np.array([argument.pointer], dtype=np.uint64))
        elif kind == "q" and isinstance(argument, int):
            keep.append(np.array([argument], dtype=np.int64))
        else:
            keep.append(np.array([argument]))
    addresses = (ctypes.c_void_p * max(1, len(keep)))(*(one.ctypes.data for one in keep))
    return keep, addresses


def _attributes(library: Any, cooperative: bool, cluster: int, early: bool = False) -> list[Any]:
    found = []
    if cooperative:
        attribute = library.CUlaunchAttribute()
        attribute.id = library.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        found.append(attribute)
    if cluster > 1:
        attribute = library.CUlaunchAttribute()
        attribute.id = library.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x = cluster
        attribute.value.clusterDim.y = 1
        attribute.value.clusterDim.z = 1
        found.append(attribute)
    if early:
        attribute = library.CUlaunchAttribute()
        attribute.id = library.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        found.append(attribute)
    return found


@dataclass(frozen=True)
class _Launch:
    """A kernel in a graph: its node, None where that is not known, its arguments, and the array of their addresses."""

    node: Any
    values: list[Any]
    addresses: Any


def _last_node(live: Any, stream: Stream) -> Any:
    """What was recorded last on a stream; None where nobody tells."""
    code, *found = live.driver.cuStreamGetCaptureInfo(stream.raw)
    nodes = found[3] if int(code) == 0 else []
    return nodes[0] if len(nodes) == 1 else None


class Graph:
    """A recorded sequence of work, launched in one go; made by :func:`capture`.

    Attributes
    ----------
    is_movable : bool
        Whether :meth:`move` works: after :meth:`follow`.
    """

    def __init__(self) -> None:
        self._executable: Any = None
        self._recorded: Any = None  # nodes are nodes of this
        self._of: Graph | None = None  # or of that
        self._launches: list[_Launch] = []
        self._places: list[tuple[Any, Any, list[tuple[Any, int, int]]]] = []
        self._at: tuple[int, ...] = ()
        self._start = runtime().driver.cuGraphLaunch
        self.is_movable = False

    def launch(self, stream: Stream | None = None) -> None:
        """Queue the whole sequence. Raises :class:`DeviceError` where nothing was recorded."""
        if self._executable is None:
            raise DeviceError("the graph is not complete", hint="leave the block of capture() first")
        on = default_stream() if stream is None else stream
        with runtime().active() as live:
            live.call("cuGraphLaunch", self._executable, on.raw, doing="launching a graph")

    def launch_here(self, stream: Stream) -> None:
        """The same where the context is current."""
        (code,) = self._start(self._executable, stream.raw)
        if int(code) != 0:
            raise failed(code, "launching a graph")

    def follow(self, *arrays: DeviceArray) -> bool:
        """Whether the graph, recorded for these arrays, can be moved to others of their size from now on.

        It can where all its work is kernels. An argument that points into an array moves with it.
        """
        live, places = runtime(), []
        if self._recorded is None or any(one.node is None for one in self._launches):
            return False
        with live.active():
            _, count = live.call("cuGraphGetNodes", self._recorded, doing="looking at a graph")
            if int(count) != len(self._launches):
                return False
            for one in self._launches:
                moved = [(value, *place) for value in one.values if (place := _place(value, arrays)) is not None]
                if not moved:
                    continue
                parameters = live.call("cuGraphKernelNodeGetParams", one.node, doing="looking at a graph")
                parameters.kernelParams = ctypes.addressof(one.addresses)
                places.append((one.node, parameters, moved))
        self._places, self._at, self.is_movable = places, tuple(array.pointer for array in arrays), True
        return True

    def move(self, *pointers: int) -> None:
        """Let launches from now on have arrays at other addresses, in the order of :meth:`follow`."""
        if pointers == self._at:
            return
        change, self._at = runtime().driver.cuGraphExecKernelNodeSetParams, ()
        for node, parameters, moved in self._places:
            for value, array, offset in moved:
                value[0] = pointers[array] + offset
            (code,) = change(self._executable, node, parameters)
            if int(code) != 0:
                raise failed(code, "moving a graph")
        self._at = pointers

    def another(self) -> Graph:
        """One more of the same, which moves by itself; it has to be moved before it is launched."""
        made, source = Graph(), self._of or self
        with runtime().active() as live:
            made._executable = live.call("cuGraphInstantiate", source._recorded, 0, doing="making a graph")
        made._of, made._places, made.is_movable = source, source._places, True
        return made

    def __del__(self) -> None:
        if self._executable is not None:
            with contextlib.suppress(Exception), runtime().active() as live:
                live.driver.cuGraphExecDestroy(self._executable)
        if self._recorded is not None:
            with contextlib.suppress(Exception), runtime().active() as live:
                live.driver.cuGraphDestroy(self._recorded)


def _place(value: Any, arrays: Sequence[DeviceArray]) -> tuple[int, int] | None:
    """Of an argument that points into one of the arrays: which, and how many bytes after its begin."""
    if value.dtype != np.uint64:
        return None
    address = int(value[0])
    for number, array in enumerate(arrays):
        if array.pointer <= address < array.pointer + array.nbytes:
            return number, address - array.pointer
    return None


@contextlib.contextmanager
def capture(stream: Stream | None = None, *, movable: bool = False) -> Iterator[Graph]:
    """Record the work queued on `stream` within the block, instead of doing it.

    With `movable` what :meth:`Graph.follow` needs is kept.

    >>> with capture(stream) as graph:  # doctest: +SKIP
    ...     kernel.launch(1, 32, [], stream=stream)
    >>> graph.launch(stream)  # doctest: +SKIP
    """
    on = default_stream() if stream is None else stream
    graph = Graph()
    live = runtime()
    # Memory that is freed meanwhile, by the garbage collector or with its last name, must not spoil the recording.
    mode = live.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    with live.active(), nothing_collected():
        live.call("cuStreamBeginCapture", on.raw, mode, doing="recording a graph")
        on.launches = graph._launches if movable else None
        try:
            yield graph
        except BaseException:
            code, recorded = live.driver.cuStreamEndCapture(on.raw)
            if int(code) == 0:
                live.driver.cuGraphDestroy(recorded)
            raise
        finally:
            on.launches = None
        recorded = live.call("cuStreamEndCapture", on.raw, doing="recording a graph")
        try:
            graph._executable = live.call("cuGraphInstantiate", recorded, 0, doing="making a graph")
            graph._recorded = recorded if movable else None
        finally:
            if graph._recorded is None:
                live.driver.cuGraphDestroy(recorded)
