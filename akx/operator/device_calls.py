"""Calls with arrays on the GPU: on the stream of the caller, and into a graph that they record.

A call is one launch of a graph. What has to be looked at is looked at in the first call with arrays of a kind, and
remembered for those that look the same. Host, per such call: two arrays read, two locks taken, three calls of the
driver, and where arrays are not where they were one more for each kernel of the graph. Nothing waits.

While the stream of x is captured, the kernels of the call go into the caller's graph. Then nothing may be made, waited
for or asked of the driver that it refuses, so a call like it has to have been made before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from akx.backends.schedule import Coefficients
from akx.backends.selection import array_backend, backend_of
from akx.core.basis import Basis
from akx.core.errors import ArgumentError, ArgumentTypeError, DeviceError
from akx.operator.overflow import OverflowWatch
from akx.operator.prepared import Prepared
from akx.operator.start_vectors import overlap

if TYPE_CHECKING:
    from akx.tuner.online.gpu_calls import Queued

__all__ = ["Around", "DeviceCalls", "in_place", "stream_for"]

#: What the backend of such arrays has for calls with them.
interchange: Any = backend_of(array_backend()).interchange()
_gpu: Any = backend_of(array_backend()).caller_arrays()
library_of, stream_of, wrap = _gpu.library_of, _gpu.stream_of, _gpu.wrap
default_stream, runtime, DeviceProgram = _gpu.default_stream, _gpu.runtime, _gpu.CudaProgram
#: What queues the work of a call on a stream.
_Work = Callable[[Any], None]
#: What queues more with it: by that, the addresses of x and V, the number of start vectors, and whether all of it goes
#: into a graph of the caller's.
Around = Callable[[_Work, int, int, int, bool], _Work]

#: Calls that are remembered for an operator: each may be of arrays at another place, where the look says so.
_MOST = 64
_AGAIN = "call it once before capture, with arrays of this shape and type"


@dataclass(frozen=True)
class _Known:
    """What is known of a call by the looks of x and out: nothing of them is copied, and both are on one stream.

    `online` tunes it while it is made, where something does.
    """

    program: Any
    online: Queued | None
    coefficients: Coefficients
    vectors: int
    grain: int
    x_bytes: int
    shape: tuple[int, ...]
    out_bytes: int
    brings_memory: bool


class DeviceCalls:
    """The calls of one operator with arrays on the GPU."""

    def __init__(self, prepared: Prepared, overflow: OverflowWatch, n: int, k: int) -> None:
        self._prepared, self._overflow, self._n, self._k = prepared, overflow, n, k
        self._lock, self._there, self._live = prepared.lock, array_backend(), runtime()
        self._forms: dict[Any, tuple[tuple[int, ...], Any, bool]] = {}

    def again(self, x: Any, out: Any) -> bool:
        """Whether this is a call like one before, which is queued now; else nothing is done."""
        kind, here = type(x), library_of(type(x))
        there = here if type(out) is kind else library_of(type(out))
        try:
            (at, look), (to, other) = here.read(x), there.read(out)
            hash((look, other))
        except (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError):
            return False  # it cannot be read like this: the long way says why
        return self.again_at(at, to, look, other, here.stream(look))

    def again_at(self, at: int, to: int, look: Any, other: Any, stream: Any, around: Around | None = None) -> bool:
        """The same by addresses and looks of x and out. With `around` more is queued with it, at once."""
        ready = self._prepared.ready
        known = ready.get((look, other, self._there))
        if known is None:
            return False
        with self._lock:
            return ready is self._prepared.ready and self._queued(known, at, to, stream, around)

    def in_new(self, x: Any) -> Any:
        """V of a call like one before, in memory of the library of x; None where it has to be looked at."""
        try:
            form = self._forms.get(library_of(type(x)).read(x)[1])
        except (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError):
            return None
        if form is None:
            return None
        _, out = interchange.make_result(x, *form)
        return out if self.again(x, out) else self(x, out, None)

    def _queued(self, known: _Known, at: int, to: int, stream: Any, around: Around | None) -> bool:
        online = known.online
        if online is not None:
            online.untimed += 1
            if online.untimed >= online.every:  # it is to be timed, or more is due
                online.untimed -= 1
                return False
        if at % known.grain or (at != to and at < to + known.out_bytes and to < at + known.x_bytes):
            return False
        live = self._live
        if not live.is_current:
            with live.active():
                return live.is_current and self._queued(known, at, to, stream, around)
        graph = None if stream.is_capturing else known.program.graph_of(at, to, known.vectors, known.coefficients)
        if graph is None:
            return False
        work: _Work = graph.launch_here
        stream.submit(work if around is None else around(work, at, to, known.vectors, False))
        if not known.brings_memory:
            default_stream().come_back()
        self._overflow.look_on_device(lambda: wrap(to, known.shape, known.program.dtype, None), stream)
        return True

    def __call__(self, x: Any, out: Any, basis: Basis | None, around: Around | None = None) -> Any:
        """V, as :meth:`akx.MatrixPowers.__call__` says."""
        prepared, n, k1 = self._prepared, self._n, self._k + 1
        planner = prepared.planner
        if planner.given is not None and planner.given.backend != self._there:
            raise ArgumentTypeError(
                "the plan is for arrays of the host", found=f"{planner.given.label()} and x on the device"
            )
        asked = planner.asked.backend
        if asked not in ("auto", self._there):
            raise ArgumentTypeError("x is on the device", expected=f"an array of the host for backend={asked!r}")
        start, single = interchange.start_of(x, n)
        dtype, shape = prepared.recurrence.result_dtype(start.dtype), (k1, *start.shape)
        vectors, stream = start.shape[0], stream_for(x, start)
        with runtime().active():
            is_captured = stream.is_capturing
        if is_captured:
            block, powers, answer = in_place(x, out, start, single, dtype, k1)
            with self._lock:
                self._capture(stream, block, powers, basis, around)
            return answer
        block = interchange.block_of(x, start, dtype)
        if out is None:
            powers, answer = interchange.make_result(x, shape, dtype, single)
            ready_on = start.stream
        else:
            wanted = (n, k1) if single else (n, vectors, k1)
            (powers, ready_on), answer = interchange.result_in(out, wanted, dtype, shape), out
        is_own = block.pointer == start.pointer
        if block.pointer != powers.pointer and overlap(block, powers):
            block, is_own = interchange.copy_of(block, start.stream), False
        with self._lock:
            found, coefficients = prepared.for_call(dtype, vectors, self._there)
            if basis is not None:
                coefficients = prepared.recurrence.coefficients_of(basis, dtype)
            if ready_on != start.stream:
                stream.wait_for(ready_on)
            brings_memory = interchange.brings_memory(answer)
            if found.is_recordable:
                program: Any = found  # a program, or what stands in the place of one
                work = program.work_of(block, powers, coefficients)
                stream.submit(work if around is None else around(work, *_places(block, powers), False))
                if not brings_memory:  # V says of itself that it is ready on the legacy stream
                    default_stream().come_back()
                if out is None and brings_memory and is_own and basis is None and len(self._forms) < _MOST:
                    self._forms[library_of(type(x)).read(x)[1]] = shape, dtype, single
                if is_own and basis is None and out is not None and ready_on == start.stream:
                    sizes = dtype.itemsize, block.nbytes, powers.shape, powers.nbytes, brings_memory
                    own, online = prepared.own_program(found, (dtype, vectors, self._there))
                    known = _Known(own, cast("Queued | None", online), coefficients, vectors, *sizes)
                    self._remember(x, out, known)
            else:
                default_stream().wait_for(start.stream)
                found.run(block, powers, coefficients)
                interchange.hand_over(start)
            self._overflow.look_on_device(lambda: powers, stream)
        return answer

    def _remember(self, x: Any, out: Any, known: _Known) -> None:
        """Let :meth:`again` find what is known of this call, where its arrays can be read in that way."""
        try:
            key = library_of(type(x)).read(x)[1], library_of(type(out)).read(out)[1], self._there
            hash(key)
        except (AttributeError, LookupError, TypeError):
            return
        prepared = self._prepared
        ready = prepared.ready
        if len(ready) >= _MOST:
            ready = prepared.ready = {}
        ready[key] = known

    def _capture(self, stream: Any, block: Any, powers: Any, basis: Basis | None, around: Around | None) -> None:
        """Queue the kernels of a call on a stream that its owner captures."""
        prepared, dtype = self._prepared, block.dtype
        found = prepared.for_capture(dtype, block.shape[0], self._there)
        if found is None:
            raise DeviceError("nothing is prepared for this call, and nothing can be in a capture", hint=_AGAIN)
        program, coefficients = found
        if not isinstance(program, DeviceProgram):
            raise DeviceError(
                "a plan that brings the matrix from the host cannot be captured", hint="call it outside of the capture"
            )
        if basis is not None:
            coefficients = prepared.recurrence.coefficients_of(basis, dtype)
        with runtime().active():
            work = partial(program.capture_for, x=block, out=powers, coefficients=coefficients)
            (work if around is None else around(work, *_places(block, powers), True))(stream)
        prepared.captured[id(program)] = program


def _places(block: Any, powers: Any) -> tuple[int, int, int]:
    """Addresses of x and V, and the number of start vectors."""
    return block.pointer, powers.pointer, block.shape[0]


def stream_for(x: Any, start: Any) -> Any:
    """The stream that work on x is for, now."""
    library = library_of(type(x))
    if start.owner is not x or not interchange.brings_memory(x):
        return stream_of(start.stream)
    return library.stream(library.read(x)[1])


def in_place(x: Any, out: Any, start: Any, single: bool, dtype: Any, k1: int) -> tuple[Any, Any, Any]:
    """x (b, n), V (k+1, b, n) and what the caller gets of it, of a call in a capture.

    Raises ArgumentError where it would need memory of akx, for a copy of x or for V: in a capture there is none.
    """
    (b, n), size = start.shape, dtype.itemsize
    is_dense = start.strides[1] == size and (b == 1 or start.strides[0] == n * size)
    if start.dtype != dtype or not is_dense or start.pointer % size:
        raise ArgumentError(
            "x would be copied, which cannot be captured",
            expected=f"{dtype}, each vector contiguous",
            found=f"{start.dtype}, strides {start.strides[::-1]}",
            hint="copy it before the capture",
        )
    block, shape = interchange.block_of(x, start, dtype), (k1, b, n)
    if out is not None:
        powers, _ = interchange.result_in(out, (n, k1) if single else (n, b, k1), dtype, shape)
        if block.pointer != powers.pointer and overlap(block, powers):
            raise ArgumentError("x and out overlap, and a copy cannot be captured", hint="pass other memory as out")
        return block, powers, out
    if not interchange.brings_memory(x):
        raise ArgumentError("V would be made, which cannot be captured", hint="pass out=")
    return block, *interchange.make_result(x, shape, dtype, single)
