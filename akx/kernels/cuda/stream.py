"""`stream` on the GPU: a matrix in host memory comes through a window on the device, k_per_pass powers at a time.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. The matrix is cut into chunks of rows, which come once per pass; the powers
follow one another through the window that :mod:`akx.kernels.cuda.window` describes, one launch a step for all of them.
So what thesis sec. 6.3.1 sends as ghost zones of its blocks, and computes again, is on the device already: the bytes
sent and the flops are those of one product and of k products. Copies to the device, kernels and copies of results to
the host run on three streams at once; the whole call is one graph.

The window takes no more device memory than `budget` bytes, or `fraction` of the bytes of the matrix in CSR, or without
either nine tenths of the device (then only for matrices that do not fit it). Vectors count.

Traffic, over the bus: ceil(k / k_per_pass) times the matrix and x, once each of the k results. Flops: 2 nnz k.
The bound of thesis eq. 6.2 over k streamed plain products (Fig. 6.5), which send the matrix k times and bring back k
results as well: the ratio of the bytes. It adds bytes of both directions up; a bus that does both at once may pass it.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from akx.device.cuda.compile import load
from akx.device.cuda.copies import Mark, bring_rows, send
from akx.device.cuda.facts import CudaDevice, cuda_device
from akx.device.cuda.launch import Graph, Kernel, Stream, capture, default_stream
from akx.device.cuda.memory import DeviceArray, empty, pinned
from akx.errors import InfeasibleError
from akx.formats.base import Pattern, unsigned
from akx.formats.sell import sell_fits
from akx.kernels.base import Coefficients, Parameter, Program, Traffic, check_feasible
from akx.kernels.cuda.program import C_TYPES
from akx.kernels.cuda.window import BACKS, SLICE, Window, choose_window, pack, stored_bytes
from akx.matrix import Matrix
from akx.partition.levels import rcm
from akx.partition.reach import permute
from akx.plan import Plan

__all__ = ["SCHEDULE", "VARIANTS", "Streamed", "bound", "budget_of", "bus_bytes", "step_kernel", "window_of"]

_SOURCE = Path(__file__).with_name("stream.cu")
VARIANTS = tuple(f"{name}-{lanes}" for name in ("sell16", "sell") for lanes in (1, 2, 4, 8))
_PARTITIONERS = ("natural", "rcm")
BLOCKS, VECTORS, BACK, AHEADS = (128, 256, 512), (1, 2, 4, 8), ("copy", "direct"), (1, 2, 3, 4)
_SHARE = 0.9
_MOST_PADDING = 2.0
_OPTIONS = {"block": BLOCKS, "vectors": VECTORS, "back": BACK, "ahead": AHEADS}


def _kind(variant: str) -> tuple[int, int]:
    """Bits of a column and lanes per row."""
    name, lanes = variant.split("-")
    return (16 if name == "sell16" else 32), int(lanes)


def budget_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Bytes that the window may take on the device."""
    given = [int(plan.option("budget", 0))] if plan.option("budget", 0) else []
    if plan.option("fraction", 0.0):
        once = matrix.nnz * (matrix.dtype.itemsize + 4) + 4 * (matrix.n + 1)
        given.append(int(float(plan.option("fraction", 0.0)) * once))
    return min([*given, int(_SHARE * device.memory_bytes)])


def _ordered(matrix: Matrix, partitioner: str) -> tuple[Matrix, NDArray[Any] | None, NDArray[Any] | None]:
    """The matrix in its order, the permutation and that of the entries; values are not to be used."""
    if partitioner == "natural":
        return matrix, None, None
    key = ("akx.kernels.cuda.stream.rcm", matrix.dtype.name)
    if key not in matrix.pattern_cache:
        order = rcm(matrix.indptr, matrix.indices)
        start, columns, entries = permute(matrix.indptr, matrix.indices, order)
        ones = np.ones(matrix.nnz, matrix.dtype)
        inner = sparse.csr_array((ones, columns, start), shape=(matrix.n, matrix.n))
        matrix.pattern_cache[key] = Matrix.from_any(inner), order, entries
    found: tuple[Matrix, NDArray[Any], NDArray[Any]] = matrix.pattern_cache[key]
    return found


def window_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> Window | None:
    """The window of a plan for the matrix in the plan's order, None where none fits the budget."""
    ordered, budget = _ordered(matrix, plan.partitioner)[0], budget_of(plan, matrix, device)
    vectors, rows = int(plan.option("vectors", 1)), int(plan.option("rows", 0))
    backs = BACKS if plan.option("back", "copy") == "copy" else 0
    bits, ahead = _kind(plan.variant)[0], int(plan.option("ahead", 2))
    return choose_window(ordered, plan.k_per_pass, budget, vectors, bits, backs, ahead, rows)


def bus_bytes(plan: Plan, matrix: Matrix) -> tuple[float, float]:
    """Bytes of the matrix and of vectors, for one start vector, that a call sends or brings back."""
    ordered, passes = _ordered(matrix, plan.partitioner)[0], ceil(plan.k / plan.k_per_pass)
    vector = float(matrix.n * matrix.dtype.itemsize)
    return float(passes * stored_bytes(ordered, _kind(plan.variant)[0])), vector * (plan.k + 2 * passes - 1)


def bound(plan: Plan, matrix: Matrix) -> float:
    """The most that a call may be faster than k streamed plain products, thesis eq. 6.2 (see the module)."""
    once = stored_bytes(_ordered(matrix, plan.partitioner)[0], _kind(plan.variant)[0])
    return plan.k * (once + matrix.n * matrix.dtype.itemsize) / sum(bus_bytes(plan, matrix))


def step_kernel(dtype: np.dtype[Any], variant: str, vectors: int, device: CudaDevice) -> Kernel:
    """The kernel of one step."""
    bits, lanes = _kind(variant)
    macros: dict[str, int | str] = {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_VECTORS": vectors,
        "AKX_INDEX": f"u{bits}",
        "AKX_LANES": lanes,
    }
    return load(_SOURCE, macros, device=device).kernel("step")


class Streamed:
    """See the module."""

    name = "stream"
    backend = "cuda"
    description = "a matrix in host memory, or beyond a budget, comes through a window on the device"
    may_crash = False

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        per_row = matrix.nnz / max(1, matrix.n)
        variants = sorted(VARIANTS, key=lambda v: (v.startswith("sell-"), per_row < 8 * int(v.split("-")[1])))
        if _fits(matrix, k, int(_SHARE * device.memory_bytes)):  # nothing to search: no plan without a budget will do
            return (Parameter("variant", tuple(variants[:1]), variants[0], "width of columns and lanes per row"),)
        passes = tuple(dict.fromkeys(max(1, ceil(k / p)) for p in (8, 4, 3, 2, 1)))
        return (
            Parameter("variant", tuple(variants), variants[0], "width of columns and lanes per row"),
            Parameter("partitioner", _PARTITIONERS, "natural", "order of the rows"),
            Parameter("k_per_pass", passes, passes[-1], "powers done each time the matrix comes by"),
            Parameter("block", BLOCKS, 256, "threads per block"),
            Parameter("back", BACK, "copy", "how results return: copied, or written to the host by the kernels"),
            Parameter("ahead", AHEADS, 2, "chunks of the matrix that are on their way at a time"),
            Parameter("vectors", VECTORS, 1, "start vectors at a time"),
        )

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        reason = self._malformed(plan)
        if reason is not None:
            return reason
        if not 0 < matrix.n < 2**32 or matrix.nnz >= 2**40:
            return f"{matrix.n} rows and {matrix.nnz} entries are out of range"
        size, budget = matrix.dtype.itemsize, budget_of(plan, matrix, device)
        unasked = not plan.option("budget", 0) and not plan.option("fraction", 0.0)
        if unasked and _fits(matrix, plan.k, budget):
            return "the matrix fits the device; set a budget or a fraction to stream it all the same"
        bits = _kind(plan.variant)[0]
        ordered = _ordered(matrix, plan.partitioner)[0]
        stored = stored_bytes(ordered, bits)
        if stored > (_MOST_PADDING * matrix.nnz + 4096) * (size + bits / 8) + matrix.n:
            return f"padding would make it more than {_MOST_PADDING:g} times as large"
        if bits == 16 and not _near(ordered):
            return "columns of one slice lie more than 65,535 apart"
        found = window_of(plan, matrix, device)
        if found is None:
            return (
                f"no window for {plan.k_per_pass} powers fits {budget} bytes in the {plan.partitioner} order: "
                "take more memory, or fewer powers per pass"
            )
        if found.slot_bytes >= 2**32:
            return "a chunk of more than 2**32 bytes"
        return None

    def _malformed(self, plan: Plan) -> str | None:
        if plan.backend != self.backend:
            return f"this schedule runs on cuda, not on {plan.backend}"
        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        if plan.variant not in VARIANTS:
            return f"unknown variant {plan.variant!r}, known are {', '.join(VARIANTS)}"
        for name, value in plan.options.items():
            allowed = _OPTIONS.get(name)
            if allowed is not None and not any(value == one and type(value) is type(one) for one in allowed):
                return f"{name} is {value!r}, expected one of {', '.join(map(str, allowed))}"
        for name in ("budget", "rows"):
            value = plan.option(name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                return f"{name} is {value!r}, expected a whole number of {'bytes' if name == 'budget' else 'rows'}"
        fraction = plan.option("fraction", 0.0)
        if isinstance(fraction, (bool, str)) or not 0 <= fraction <= 1:
            return f"fraction is {fraction!r}, expected 0 .. 1"
        return None

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        sent, vectors = bus_bytes(plan, matrix)
        window, passes = window_of(plan, matrix, device), ceil(plan.k / plan.k_per_pass)
        return Traffic(
            matrix_bytes=sent,
            vector_bytes=vectors,
            flops=2.0 * matrix.nnz * plan.k,
            cache_bytes=(sent / passes + 2.0 * matrix.n * matrix.dtype.itemsize) * plan.k,
            synchronisations=0.0 if window is None else float(passes * window.steps(plan.k_per_pass)),
        )

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        program = StreamProgram(matrix, plan, device)
        program.update_values(matrix.data)
        return program


def _fits(matrix: Matrix, k: int, budget: int) -> bool:
    """Whether the matrix in CSR and k + 1 vectors fit so many bytes."""
    size = matrix.dtype.itemsize
    return matrix.nnz * (size + 4.0) + matrix.n * (4.0 + (k + 1.0) * size) <= budget


def _near(matrix: Matrix) -> bool:
    """Whether 16 bits hold the columns of every slice, relative to its least; memoised with the pattern."""
    key = ("akx.kernels.cuda.near", 1)
    if key not in matrix.pattern_cache:
        pattern = Pattern(unsigned(matrix.indptr), unsigned(matrix.indices), matrix.n)
        matrix.pattern_cache[key] = sell_fits(pattern, matrix.dtype, 1, 16, chunk=SLICE)
    return bool(matrix.pattern_cache[key])


class StreamProgram:
    """The matrix in page-locked memory, the window on the device, and a graph for each number of start vectors.

    Attributes
    ----------
    window : Window
    """

    def __init__(self, matrix: Matrix, plan: Plan, device: CudaDevice) -> None:
        ordered, self._order, self._entries = _ordered(matrix, plan.partitioner)
        window = window_of(plan, matrix, device)
        if window is None:
            raise InfeasibleError("no window fits the budget")
        self.window, self._plan, self._device, self.dtype = window, plan, device, matrix.dtype
        self.n, self.k = matrix.n, plan.k
        self._chunks = pack(ordered, window, _kind(plan.variant)[0], pinned)
        self._slots = empty(window.slots * window.slot_bytes, np.uint8)
        shape = (window.depth + 2, window.vectors, window.ring)
        self._rings = empty(shape, self.dtype)
        self._staged = empty((window.backs, window.vectors, window.depth, window.rows), self.dtype)
        self._coefficients = empty((self.k, 3), self.dtype)
        self._known: Coefficients | None = None
        self._pinned = pinned((self.k + 1, window.vectors, self.n), self.dtype)
        self._graphs: dict[int, Graph] = {}

    @property
    def nbytes(self) -> int:
        """Bytes on the device: what the budget is for."""
        held = (self._slots, self._rings, self._staged, self._coefficients)
        return sum(array.nbytes for array in held)

    @property
    def host_bytes(self) -> int:
        """Bytes of page-locked host memory, and of the map of the entries."""
        return self._chunks.data.nbytes + self._pinned.nbytes + self._chunks.slot.nbytes

    def update_values(self, data: NDArray[Any]) -> None:
        """Take new values, in the order of the matrix's canonical CSR data."""
        values = self._chunks.data.view(self.dtype)
        values[self._chunks.slot] = data if self._entries is None else data[self._entries]

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        """Fill out (k+1, b, n) from x (b, n): both NumPy arrays, or both on the device."""
        if isinstance(x, DeviceArray):
            found = np.empty(out.shape, self.dtype)
            self.run(x.get(), found, coefficients)
            out.set(found)
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

    def pinned_vectors(self, vectors: int) -> NDArray[Any]:
        """The page-locked (k+1, vectors, n) array that :meth:`queue` works on: v_0 is to be put there."""
        flat: NDArray[Any] = self._pinned.reshape(-1)[: (self.k + 1) * vectors * self.n]
        return flat.reshape(self.k + 1, vectors, self.n)

    def queue(self, vectors: int, coefficients: Coefficients) -> None:
        """Queue one call on the vectors in page-locked memory, in the order of the plan's rows."""
        if coefficients is not self._known:
            triples = np.stack([coefficients.a, coefficients.b, coefficients.c], axis=1)
            self._coefficients.set(triples.astype(self.dtype))
            self._known = coefficients
        if vectors not in self._graphs:
            self._graphs[vectors] = self._record(vectors)
        self._graphs[vectors].launch(default_stream())

    def _record(self, vectors: int) -> Graph:
        kernel = step_kernel(self.dtype, self._plan.variant, vectors, self._device)
        work = Stream(blocking=False)
        with capture(work) as graph:
            steps = _Steps(self, kernel, vectors, work)
            for power in range(0, self.k, self.window.depth):
                steps.one_pass(power, min(self.window.depth, self.k - power))
            steps.join()
        return graph


class _Steps:
    """The steps of a call, queued on three streams: copies to the device, kernels, copies to the host."""

    def __init__(self, program: StreamProgram, kernel: Kernel, vectors: int, work: Stream) -> None:
        self.of, self.kernel, self.vectors, self.work = program, kernel, vectors, work
        self.there, self.back = Stream(blocking=False), Stream(blocking=False)
        self.copied = program._plan.option("back", "copy") == "copy"
        self.out = program.pinned_vectors(vectors).ctypes.data
        start = Mark(work)
        start.holds(self.there)
        start.holds(self.back)
        self.last = start
        self.returned: list[Mark] = []
        self.passes = 0

    def one_pass(self, power: int, depth: int) -> None:
        """v_{power+1} .. v_{power+depth}, from v_power and the one before it in host memory."""
        window = self.of.window
        made: list[Mark] = []
        if self.returned:  # this pass begins with what the last one returned
            self.returned[-1].holds(self.work)
        self.last.holds(self.there)
        for step in range(window.steps(depth)):
            chunk = window.arrives(step)
            if 0 <= chunk < window.chunks and not (self.passes and window.slots == window.chunks):
                if chunk >= window.slots:
                    made[window.frees(chunk - window.slots, depth)].holds(self.there)
                self._send(chunk)
                Mark(self.there).holds(self.work)
            if self.copied and len(self.returned) >= BACKS:
                self.returned[-BACKS].holds(self.work)
            self._launch(step, power, depth)
            made.append(Mark(self.work))
            if self.copied:
                made[-1].holds(self.back)
                self._bring(step, power, depth)
                self.returned.append(Mark(self.back))
        self.last = made[-1]
        self.passes += 1

    def join(self) -> None:
        """Let the first stream wait for the others, so that the graph is whole."""
        Mark(self.there).holds(self.work)
        Mark(self.back).holds(self.work)

    def _send(self, chunk: int) -> None:
        window, chunks = self.of.window, self.of._chunks
        begin, end = int(chunks.begin[chunk]), int(chunks.begin[chunk + 1])
        to = self.of._slots.pointer + chunk % window.slots * window.slot_bytes
        send(to, chunks.data.ctypes.data + begin, end - begin, self.there)

    def _launch(self, step: int, power: int, depth: int) -> None:
        window, of, b = self.of.window, self.of, self.vectors
        low, high = window.powers(step, depth)
        if low > high:
            return
        size, stride = window.itemsize, b * window.ring
        block = int(of._plan.option("block", 256))
        per = -(-window.rows * _kind(of._plan.variant)[1] // block)
        if self.copied:
            back = of._staged.pointer + (step % BACKS * b * depth - 1) * window.rows * size
            strides = window.rows, depth * window.rows
        else:
            back = self.out + (power * b * window.n + step * window.rows) * size
            strides = b * window.n - window.lag, window.n
        x = self.out + power * b * window.n * size
        rings = [np.uint64(of._rings.pointer + i * stride * size) for i in range(3)]
        arguments: list[Any] = [of._slots, np.uint64(window.slot_bytes)]
        arguments += [np.uint32(v) for v in (window.slots, window.header, window.rows, window.lag, window.n)]
        arguments += [np.int64(step), np.uint32(low), np.uint32(per), *rings, np.int64(stride)]
        arguments += [np.uint32(window.ring), np.uint32(power > 0), np.uint64(x)]
        arguments += [np.uint64(x - b * window.n * size if power else 0), np.uint64(back)]
        arguments += [np.int64(stride) for stride in strides]
        arguments += [of._coefficients.view(3 * power, (depth, 3))]
        self.kernel.launch((high - low + 1) * per, block, arguments, stream=self.work)

    def _bring(self, step: int, power: int, depth: int) -> None:
        window, b = self.of.window, self.vectors
        low, high = window.powers(step, depth)
        size, n, rows = window.itemsize, window.n, window.rows
        pitch, width = (b * n - window.lag) * size, rows * size
        for v in range(b):
            first = max(low, 1)
            while first <= high:
                begin = step * rows - first * window.lag
                skipped, end = max(0, -begin), min(rows, n - begin)
                last = first
                while end - skipped == rows and last < high and step * rows >= (last + 1) * window.lag:
                    last += 1  # whole in both: one copy, where the pitch can be had
                count = last - first + 1 if pitch >= width else 1
                source = ((step % window.backs * b + v) * depth + first - 1) * rows + skipped
                to = ((power + first) * b + v) * n + begin + skipped
                pointer = self.of._staged.pointer + source * size
                bring_rows(self.out + to * size, pitch, pointer, width, (end - skipped) * size, count, self.back)
                first += count


SCHEDULE = Streamed()
