"""The program of `stream`: a call as one graph, of one kernel per pass or of copies and a launch per step.

One kernel per pass (`move` = kernel): blocks of it are movers, which read the matrix and x from the host's memory and
write results there, the others do the steps, ordered by counters in device memory; see flow.cuh.

A launch per step (`move` = copy or direct): it waits for the chunk that it is the first to use, and where results are
copied, for the copy that empties the buffer it writes to; a chunk is sent as soon as the step that is the last to use
what lies in its slot is done. Nothing else is ordered: the three streams run as far ahead as they can.

Chunks that stay on the device are sent by the first call with their values. Where the processor does a share of the
rows, a graph is a pass, and the next one begins when both are done with it.

Where half chunks of a symmetric matrix travel, new values that are not symmetric are stored in full from then on.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.launch import Graph, Kernel, Stream, capture, default_stream, spare_stream
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.device.pool import pinned
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.stream.host_share import HostShare, device_part, passes
from akx.backends.cuda.schedules.stream.layout import COUNTERS, Ordered, Window, kind_of, pack, whole_slices
from akx.backends.cuda.schedules.stream.steps import Steps
from akx.backends.cuda.schedules.stream.triangle import CONJUGATE, heads_of, is_symmetric, pack_halves
from akx.backends.schedule import Coefficients, Program
from akx.core.plan import Plan

__all__ = ["StreamProgram", "movers", "step_kernel"]

_SOURCE = Path(__file__).with_name("stream.cu")
#: Movers: 8 read as much as the bus gives beside those that write; 4 of these are needed where results are many.
_IN, _OUT = 8, 4
#: Entries of a row below its diagonal that a task makes whole, and tasks of a slice at most.
_OF_TASK, _PARTS = 2, 16
#: Threads of a block of it: as many as there are registers for, with numbers of up to 8 bytes and with others.
_FEW, _MANY = 512, 768
#: Graphs kept, one for each number of start vectors and place of the result; results kept for the next call.
_GRAPHS, _SPARE = 8, 2
#: What :meth:`StreamProgram._take_device_memory` makes.
_ON_DEVICE = ("_slots", "_whole", "_rings", "_staged", "_coefficients", "_staged_x", "_counters")


def movers(ahead: int) -> tuple[int, int]:
    """Blocks of one kernel that bring what `ahead` steps need, in as many groups, and that take results away."""
    return ahead * -(-_IN // ahead), _OUT


def step_kernel(dtype: np.dtype[Any], variant: str, vectors: int, device: CudaDevice) -> Kernel:
    """The kernel of one step."""
    return _kernel("step", 0, dtype, variant, vectors, device)


def _kernel(
    name: str,
    threads: int,
    dtype: np.dtype[Any],
    variant: str,
    vectors: int,
    device: CudaDevice,
    half: int = 0,
    alike: str = "",
) -> Kernel:
    """With `half` bits of a mark half chunks travel, whose mirrors are `alike` in that way."""
    bits, lanes = kind_of(variant)
    macros: dict[str, int | str] = {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_VECTORS": vectors,
        "AKX_INDEX": f"u{bits}",
        "AKX_LANES": lanes,
        "AKX_FLOW": threads,
    }
    if half:
        macros |= {"AKX_MARK": half, "AKX_CONJUGATE": int(alike == CONJUGATE)}
    return load(_SOURCE, macros, device=device).kernel(name)


class _Room:
    """Page-locked memory as a caller holds it: it is asked for again when the last view of it is gone."""

    def __init__(self, memory: NDArray[Any]) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.memory.__array_interface__


def _give_back(of: weakref.ref[StreamProgram], memory: NDArray[Any]) -> None:
    program = of()
    if program is not None:
        program._take_back(memory)


class StreamProgram(Program):
    """The matrix in page-locked memory, the window on the device, and a graph for each place of a result.

    `is_as_planned`: false where nothing of the matrix stays on the device though the plan's window has room for it, and
    where values are in full that were to be symmetric.
    """

    is_as_planned = True

    def __init__(
        self,
        ordered: Ordered,
        plan: Plan,
        window: Window,
        device: CudaDevice,
        beside: HostShare | None = None,
        alike: str = "",
        in_full: Callable[[], StreamProgram] | None = None,
    ) -> None:
        """`alike`: in which way mirrors are, where half chunks travel; `in_full` makes the same with whole ones."""
        matrix, self._order, self._entries = ordered
        self._pattern, self._alike, self._in_full = matrix, alike, in_full
        self.window, self._plan, self._device, self.dtype = window, plan, device, matrix.dtype
        self.n, self.k, self._size = matrix.n, plan.k, matrix.nnz
        self.pitch = whole_slices(matrix.n)
        self._beside = beside
        self._graphs: OrderedDict[tuple[int, int, bool], tuple[Graph, ...]] = OrderedDict()
        self._take_device_memory()
        self._first, self._others = matrix.nnz, np.zeros(0, np.int64)  # where the GPU's entries are among all
        if beside is not None:
            matrix, self._first, self._others = device_part(matrix, beside.split)
        packed = pack_halves if window.half else pack
        self._chunks = packed(matrix, window, kind_of(plan.variant)[0], pinned)  # where there is room on the device
        self._heads = to_device(heads_of(matrix, window) if window.half else np.zeros(0, np.uint32))
        self._begin = to_device(self._chunks.begin if window.staged else np.zeros(0, np.int64))
        self._own: NDArray[Any] | None = None
        self._lent: dict[int, NDArray[Any]] = {}
        self._spare: list[NDArray[Any]] = []

    def _take_device_memory(self) -> None:
        """Nothing is in it yet, and no graph knows it."""
        window = self.window
        self._graphs.clear()
        self._slots = empty((window.kept + window.slots) * window.slot_bytes, np.uint8)
        self._whole = empty(window.whole * window.whole_bytes, np.uint8)
        self._are_there = False  # the chunks that stay
        shape = (window.depth + 2, window.vectors, window.ring)
        self._rings = empty(shape, self.dtype)
        self._staged = empty((window.backs, window.vectors, window.depth, window.rows), self.dtype)
        self._coefficients = empty((self.k, 3), self.dtype)
        self._known: Coefficients | None = None
        self._staged_x = empty((window.staged, 2, window.vectors, window.rows), self.dtype)
        self._counters = empty(COUNTERS if window.staged else 0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes on the device: what the budget is for."""
        held = [self._slots, self._whole, self._rings, self._staged, self._coefficients]
        held += [self._staged_x, self._begin, self._counters, self._heads]
        return sum(array.nbytes for array in held)

    @property
    def host_nbytes(self) -> int:
        """Bytes on the host: the page-locked matrix and vectors, and where each entry of the matrix is."""
        chunks = self._chunks
        held: list[NDArray[Any]] = [chunks.data, chunks.begin, chunks.slot, *self._spare]
        held += [] if self._own is None else [self._own]
        held += [self._others] if chunks.entry is None else [self._others, chunks.entry]
        return sum(array.nbytes for array in held) + (0 if self._beside is None else self._beside.nbytes)

    @property
    def _pinned(self) -> NDArray[Any]:
        """Page-locked vectors of the program's own, made when they are first asked for."""
        if self._own is None:
            self._own = pinned((self.k + 1, self.window.vectors, self.pitch), self.dtype)
        return self._own

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """Take new values, in the order of the matrix's canonical CSR data; the matrix is on the host, so they go.

        From the first ones on that are not symmetric, where they were to be, all of them are stored in full.
        """
        if isinstance(data, DeviceArray):
            data = data.get()
        if data.size != self._size:
            raise ValueError(f"a matrix of {self._size} entries cannot take {data.size} values")
        inner = (data if self._entries is None else data[self._entries]).astype(self.dtype, copy=False)
        if self._alike and not is_symmetric(self._pattern, inner, self._alike):
            self._store_in_full()
        self._are_there = False  # first, so that after an update that is broken off all is sent
        values, slot, entry = self._chunks.data.view(self.dtype), self._chunks.slot, self._chunks.entry
        if entry is None:
            values[slot[: self._first]] = inner[: self._first]
            values[slot[self._first :]] = inner[self._others]
        else:
            count = int(np.searchsorted(entry, self._first))  # of those that have the same place in the GPU's part
            values[slot[:count]] = inner[entry[:count]]
            values[slot[count:]] = inner[self._others[entry[count:] - self._first]]
        if self._beside is not None:
            self._beside.update_values(inner)

    def _store_in_full(self) -> None:
        """Go on with whole chunks. Results that were lent stay as they are; the budget is for one window at a time."""
        assert self._in_full is not None
        self._graphs.clear()
        for name in _ON_DEVICE:
            del self.__dict__[name]
        try:
            other = self._in_full()
        except BaseException:
            self._take_device_memory()
            raise
        held = ("_own", "_lent", "_spare")
        self.__dict__.update({name: made for name, made in other.__dict__.items() if name not in held})
        self.is_as_planned = False

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        """Fill out (k+1, b, n) from x (b, n): both NumPy arrays, or both on the device.

        An `out` of :meth:`new_result` is filled where it is, any other is copied to.
        """
        if isinstance(x, DeviceArray):
            found = np.empty(out.shape, self.dtype)
            self.run(x.get(), found, coefficients)
            out.set(found)
            return
        if self.is_own_result(out):
            out[0] = x
            self.queue(x.shape[0], coefficients, out.ctypes.data)
            default_stream().synchronize()
            return
        out[0] = x
        for first in range(0, x.shape[0], self.window.vectors):
            group = slice(first, min(first + self.window.vectors, x.shape[0]))
            held = self.pinned_vectors(group.stop - first)
            held[0] = x[group] if self._order is None else x[group][:, self._order]
            self.queue(group.stop - first, coefficients)
            default_stream().synchronize()
            if self._order is None:
                out[1:, group] = held[1:]
            else:
                out[1:, group, self._order] = held[1:]

    def new_result(self, vectors: int) -> NDArray[Any] | None:
        """A page-locked array (k+1, vectors, n) that :meth:`run` fills without a copy, its rows some entries apart.

        None where results come in another order of the rows, or in groups. The memory is used again when the last view
        of it is gone.
        """
        if self._order is not None or vectors > self.window.vectors:
            return None
        shape = (self.k + 1, vectors, self.pitch)
        memory = next((held for held in self._spare if held.shape == shape), None)
        if memory is None:
            memory = pinned(shape, self.dtype)
        else:
            self._spare = [held for held in self._spare if held is not memory]
        room = _Room(memory)
        weakref.finalize(room, _give_back, weakref.ref(self), memory).atexit = False
        self._lent[memory.ctypes.data] = memory
        found: NDArray[Any] = np.asarray(room)[:, :, : self.n]
        return found

    def is_own_result(self, out: NDArray[Any]) -> bool:
        if out.ctypes.data not in self._lent or out.shape[0] != self.k + 1 or out.shape[2] != self.n:
            return False
        row = self.pitch * self.dtype.itemsize
        wanted = (out.shape[1] * row, row, self.dtype.itemsize)
        return all(
            have == want or extent == 1 for have, want, extent in zip(out.strides, wanted, out.shape, strict=True)
        )

    def _take_back(self, memory: NDArray[Any]) -> None:
        """Keep memory for the next result; what is not kept is freed, and so must be the graphs that write there."""
        self._lent.pop(memory.ctypes.data, None)
        held = [*self._spare, memory]
        self._spare = held[-_SPARE:]
        for freed in held[:-_SPARE]:
            for key in [key for key in self._graphs if key[1] == freed.ctypes.data]:
                del self._graphs[key]

    def pinned_vectors(self, vectors: int) -> NDArray[Any]:
        """The program's own page-locked (k+1, vectors, n) array that :meth:`queue` works on: v_0 is to be put there."""
        return self._own_vectors(vectors)[:, :, : self.n]

    def queue_of(self, x: NDArray[Any], coefficients: Coefficients) -> Callable[[], None]:
        """What queues a call on `x` (b, n), which is copied to :meth:`pinned_vectors` once."""
        most, vectors = self.window.vectors, x.shape[0]
        groups = [min(most, vectors - first) for first in range(0, vectors, most)]
        for count in dict.fromkeys(groups):
            self.pinned_vectors(count)[0] = x[:count]

        def queue() -> None:
            for count in groups:
                self.queue(count, coefficients)

        return queue

    def _own_vectors(self, vectors: int) -> NDArray[Any]:
        flat: NDArray[Any] = self._pinned.reshape(-1)[: (self.k + 1) * vectors * self.pitch]
        return flat.reshape(self.k + 1, vectors, self.pitch)

    def queue(self, vectors: int, coefficients: Coefficients, at: int | None = None) -> None:
        """Queue one call on vectors in page-locked memory, in the order of the plan's rows.

        They are at the address `at` of a result, by default those of :meth:`pinned_vectors`. Where the processor does a
        share of the rows, its share is done on return, and all passes but the last.
        """
        if coefficients is not self._known:
            triples = np.stack([coefficients.a, coefficients.b, coefficients.c], axis=1)
            self._coefficients.set(triples.astype(self.dtype))
            self._known = coefficients
        memory = self._own_vectors(vectors) if at is None else self._lent[at]
        sends = self.window.kept > 0 and not self._are_there
        for number, graph in enumerate(self._graphs_of(vectors, memory.ctypes.data, sends)):
            if self._beside is not None:  # a pass begins with what both have returned, a call where none is under way
                default_stream().synchronize()
            graph.launch(default_stream())
            if self._beside is None:
                continue
            try:
                self._beside.run(number, memory, coefficients)
            except BaseException:
                default_stream().synchronize()  # what the GPU writes to must not go before it is done
                raise
        self._are_there = True

    def _graphs_of(self, *key: Any) -> tuple[Graph, ...]:
        """For a number of start vectors, an address, and whether what stays is sent: of each pass, or one of all."""
        if key not in self._graphs:
            self._graphs[key] = self._record(*key)
            while len(self._graphs) > _GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def frame(self, vectors: int) -> list[Any]:
        """What kernels are given first: the window, and the rings of three vectors."""
        window, stride = self.window, vectors * self.window.ring
        sizes = (window.slots, window.kept, window.header, window.rows, window.lag, window.n)
        rings = [np.uint64(self._rings.pointer + i * stride * window.itemsize) for i in range(3)]
        of_slots = [self._slots, np.uint64(window.slot_bytes)]
        return [*of_slots, *map(np.uint32, sizes), *rings, np.int64(stride), np.uint32(window.ring)]

    def _record(self, vectors: int, at: int, sends: bool) -> tuple[Graph, ...]:
        steps_of = list(passes(self.k, self.window.depth))
        if self.window.staged:
            with spare_stream() as work:
                graphs = [steps_of] if self._beside is None else [[one] for one in steps_of]
                return tuple(self._record_flow(vectors, at, sends, some, work) for some in graphs)
        kernel = step_kernel(self.dtype, self._plan.variant, vectors, self._device)
        with spare_stream() as work, spare_stream() as there, spare_stream() as back, capture(work) as graph:
            steps = Steps(self, kernel, vectors, at, sends, (work, there, back))
            for power, depth in steps_of:
                steps.one_pass(power, depth)
            steps.join()
        return (graph,)

    def _record_flow(
        self, vectors: int, at: int, sends: bool, steps_of: Sequence[tuple[int, int]], work: Stream
    ) -> Graph:
        """One kernel per pass; it has as many threads as there are registers for."""
        window, size, b, sms = self.window, self.window.itemsize, vectors, self._device.sms
        threads = _MANY if size <= 8 and b * size <= 32 else _FEW
        half = (window.half, self._alike) if window.half else ()
        kernel = _kernel("flow", threads, self.dtype, self._plan.variant, vectors, self._device, *half)
        ahead = window.staged - 1
        into, out = movers(ahead)
        parts = min(_PARTS, -(-self._chunks.slot.size // (_OF_TASK * window.n)))
        slack = max(1, window.ring // window.rows)  # steps until the place of a result is taken; a whole vector's never
        frame = self.frame(vectors)
        split, rise = (window.n, 0) if self._beside is None else (self._beside.split.first, self._beside.split.rise)
        with capture(work) as graph:
            for power, depth in steps_of:
                self._counters.fill_bytes(0, work)
                x = at + power * b * self.pitch * size
                arguments = [*frame, np.uint32(power > 0), self._coefficients.view(3 * power, (depth, 3))]
                arguments += [np.uint64(self._chunks.data.ctypes.data), self._begin, np.uint32(window.chunks)]
                arguments += [self._staged_x, np.uint64(x), np.uint64(x - b * self.pitch * size if power else 0)]
                arguments += [np.uint64(x), np.int64(self.pitch), np.uint32(depth), np.uint32(window.steps(depth))]
                arguments += [np.uint32(v) for v in (ahead, slack, sends and not power, into, out, split, rise)]
                arguments += [self._counters, self._whole, np.uint64(window.whole_bytes)]
                arguments += [np.uint32(window.whole), np.uint32(window.whole_header), self._heads]
                arguments += [np.uint32(parts)]
                kernel.launch(sms, threads, arguments, cooperative=True, stream=work)
        return graph
