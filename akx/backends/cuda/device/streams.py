"""Streams and events: akx's own stream, those to record graphs on, and those of callers.

All work of akx is done in the order in which it is queued, whatever streams it is on: see :class:`OwnStream`.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from akx.backends.cuda.device.runtime import call, failed, give_back, pycuda_driver, runtime
from akx.backends.cuda.device.singleton import Once
from akx.core.errors import CapturingError
from akx.core.fork_safety import ForkSafeLock

__all__ = [
    "CallerStream",
    "Event",
    "Mark",
    "OwnStream",
    "Stream",
    "come_back",
    "default_stream",
    "keep_forever",
    "pycuda_context",
    "spare_stream",
    "synchronize",
]

#: The handle of the legacy default stream.
_LEGACY = 1
#: CUDA_ERROR_NOT_READY.
_NOT_READY = 600


def keep_forever(made: Any) -> None:
    """Never let go what pycuda made: it can only be let go in the thread that it was made in."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


@contextlib.contextmanager
def pycuda_context() -> Iterator[Any]:
    """pycuda's own view of the primary context, which it wants to see pushed before it makes anything."""
    library = pycuda_driver()
    context = library.Device(runtime().ordinal).retain_primary_context()
    keep_forever(context)
    context.push()
    try:
        yield library
    finally:
        library.Context.pop()


class Stream:
    """A queue of work on the device.

    `blocking`: it also waits for, and is waited for by, the legacy default stream. One to record graphs on must not:
    others could not use the legacy stream meanwhile. `raw`: for the driver's functions. `launches`: while a graph is
    recorded that can be moved: the kernels launched so far, each a `Launch` (:func:`capture`).
    """

    launches: list[Any] | None = None

    def __init__(self, *, blocking: bool = True) -> None:
        self.ours: Any = None
        flags = 0 if blocking else 1
        live = runtime()
        if pycuda_driver() is not None:
            with pycuda_context() as library:
                self.ours = library.Stream(flags)
            keep_forever(self.ours)
            self.handle = int(self.ours.handle)
        else:
            with live.active():
                made = live.call("cuStreamCreate", flags, doing="making a stream")
            self.handle = int(made)
        self.raw = live.driver.CUstream(self.handle)

    def synchronize(self) -> None:
        """Wait until all work so far is done; what failed in it is raised here."""
        call("cuStreamSynchronize", self.raw, doing="waiting for the GPU")

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

    `handle`: 1 and 2: the default streams. `lasts`: whether the handle means this stream as long as `owner` is held:
    that of one that is gone may be used again.
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
            try:
                queue(self)
            finally:
                if not self.lasts:
                    own.mark(self.raw)


class OwnStream(Stream):
    """The stream that akx works on where no other is named.

    All work of akx is done in the order in which it is queued, on streams of callers too: programs have memory of their
    own, and the pool gives memory out again. So there is one place where the last work is. Who queues work elsewhere
    lets it wait for that place first, and work that follows on the same stream waits for nothing. The legacy stream and
    this one wait for one another anyway, and are one place.

    `away`: where the last work is; None for here. `lock`: held while work is queued on a stream of a caller.
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

    def wait_for(self, handle: int) -> None:
        if handle != _LEGACY:  # they wait for one another anyway
            super().wait_for(handle)

    def release_to(self, handle: int) -> None:
        if handle != _LEGACY:
            super().release_to(handle)
        else:
            self.come_back()

    def submit(self, queue: Callable[[Stream], None]) -> None:
        """Queue work here, as :meth:`CallerStream.submit` does there."""
        with self.lock:
            queue(self)

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
                raise CapturingError(
                    "a stream that akx has worked on is being captured, and other work has to wait for it",
                    hint="end the capture first",
                )
            self.mark(away.raw)
        self._wait(raw)

    def _wait(self, raw: Any) -> None:
        call("cuStreamWaitEvent", raw, self._event, 0, doing="waiting for an event")


class Mark:
    """A place in a stream that others can wait for; without a time.

    `stream`: the stream, or the handle of one of another library (1 and 2: default streams).
    """

    def __init__(self, stream: Stream | int) -> None:
        with runtime().active() as live:
            self._event = live.call("cuEventCreate", 2, doing="making an event")  # 2: no timing
            live.call("cuEventRecord", self._event, _raw(stream), doing="recording an event")

    def holds(self, stream: Stream | int) -> None:
        """Let work from now on, on `stream`, wait for the mark; it may be dropped then."""
        call("cuStreamWaitEvent", _raw(stream), self._event, 0, doing="waiting for an event")

    def __del__(self, give_back: Callable[..., None] = give_back) -> None:
        give_back("cuEventDestroy", self._event)


def _raw(stream: Stream | int) -> Any:
    return stream.raw if isinstance(stream, Stream) else runtime().driver.CUstream(stream)


@Once
def default_stream() -> OwnStream:
    """The stream that akx works on where no other is named."""
    return OwnStream()


def come_back() -> None:
    """Let work from now on wait for what was queued on streams of callers: for who gives memory out again."""
    if default_stream.is_made:
        default_stream().come_back()


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
    call("cuCtxSynchronize", doing="waiting for the GPU")


class Event:
    """A mark in a stream, with the time when the device passed it."""

    def __init__(self) -> None:
        self._event = call("cuEventCreate", 0, doing="making an event")

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark at the end of the stream."""
        call("cuEventRecord", self._event, (stream or default_stream()).raw, doing="recording an event")

    def synchronize(self) -> None:
        """Wait until the device has passed the mark."""
        call("cuEventSynchronize", self._event, doing="waiting for the GPU")

    @property
    def has_passed(self) -> bool:
        """Whether the device has passed the mark; nothing is waited for."""
        with runtime().active() as live:
            code, *_ = live.driver.cuEventQuery(self._event)
        if int(code) not in (0, _NOT_READY):
            raise failed(code, "asking for a mark in a stream")
        return int(code) == 0

    def seconds_since(self, earlier: Event) -> float:
        """Seconds between two marks that the device has passed."""
        found = call("cuEventElapsedTime", earlier._event, self._event, doing="reading the clock")
        return float(found) * 1e-3

    def __del__(self, give_back: Callable[..., None] = give_back) -> None:
        give_back("cuEventDestroy", self._event)
