"""`stream` on the GPU: a matrix in host memory comes through a window on the device, k_per_pass powers at a time.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. The matrix is cut into chunks of rows, which come once per pass; the powers
follow one another through the window that :mod:`akx.backends.cuda.schedules.stream.layout` describes, one launch a step
for all of them. So what thesis sec. 6.3.1 sends as ghost zones of its blocks, and computes again, is on the device
already: the bytes sent and the flops are those of one product and of k products. What moves: the thread blocks of one
kernel per pass, some bringing the matrix, some writing results to the host, the others computing (`move` = kernel), or
copies on streams of their own beside a launch per step (copy; direct: the launches write the results to the host). One
graph is a call.

The window takes no more device memory than `budget` bytes, or `fraction` of the bytes of the matrix in CSR, or the
device's budget, or without any nine tenths of the device (then only for matrices that do not fit it). Vectors count.
What the window leaves of that is filled with chunks that stay on the device from call to call, until values change
(`stays`); where nobody has said how much may be taken, half of the device is, as others need memory too. With a `share`
the processor does the last rows, so much of the entries, in its own memory and at the same time
(:mod:`akx.backends.cuda.schedules.stream.host_share`); its threads are all that a call on the processor would have.

Traffic, over the bus: ceil(k / k_per_pass) times the GPU's rows that do not stay, and x, once each of the k results;
from the processor's memory: its rows as often, or k times where it makes plain products, and two vectors per power.
Flops: 2 nnz k, and those of the GPU's rows beyond its share.
The bound of thesis eq. 6.2 over k streamed plain products (Fig. 6.5), which send the matrix k times and bring back k
results as well: the ratio of the bytes. It adds bytes of both directions up; a bus that does both at once may pass it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from scipy import sparse

from akx.backends.cpu.device import default_threads
from akx.backends.cpu.layout import block_of
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.schedules.stream.host_share import HostShare, Split, host_plan, host_reason, split_of
from akx.backends.cuda.schedules.stream.layout import BACKS, Window, choose_window, reach, smallest_window, stored_bytes
from akx.backends.cuda.schedules.stream.program import Ordered, StreamProgram, kind_of, movers
from akx.backends.cuda.schedules.sweep.layout import near
from akx.backends.schedule import Parameter, Program, Schedule, Traffic, check_feasible, option_reason
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.core.options import CudaStream
from akx.core.plan import Plan
from akx.partition.levels import rcm
from akx.partition.permutation import permute

__all__ = ["SCHEDULE", "Streamed", "border", "bound", "budget_of", "bus_bytes", "window_of"]

_PARTITIONERS = ("natural", "rcm")
_SHARE = 0.9
#: And what is filled with chunks that stay where nobody has said how much may be taken.
_STAYING = 0.5
_MOST_PADDING = 2.0


def budget_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Bytes that the window may take on the device: what is allowed, less the coefficients."""
    given: list[int] = [plan.typed.budget] if plan.typed.budget else []
    if plan.typed.fraction:
        given.append(int(float(plan.typed.fraction) * matrix.csr_bytes))
    if device.budget:
        given.append(device.budget)
    return min([*given, int(_SHARE * device.memory_bytes)]) - 3 * plan.k * matrix.dtype.itemsize


def _ordered(matrix: Matrix, partitioner: str) -> Ordered:
    """The matrix in its order, the permutation and that of the entries; values are not to be used."""
    if partitioner == "natural":
        return matrix, None, None
    key = ("akx.backends.cuda.schedules.stream.schedule.rcm", matrix.dtype.name)
    if key not in matrix.pattern_cache:
        order = rcm(matrix.indptr, matrix.indices)
        start, columns, entries = permute(matrix.indptr, matrix.indices, order)
        ones = np.ones(matrix.nnz, matrix.dtype)
        inner = sparse.csr_array((ones, columns, start), shape=(matrix.n, matrix.n))
        matrix.pattern_cache[key] = Matrix.from_any(inner), order, entries
    found: Ordered = matrix.pattern_cache[key]
    return found


def border(plan: Plan, matrix: Matrix) -> Split | None:
    """Who makes which rows, in the plan's order; None where the GPU makes all, or there is no room for a border."""
    share, ordered = float(plan.typed.share), _ordered(matrix, plan.partitioner)[0]
    if not share:
        return None
    return split_of(ordered, share, plan.k_per_pass, block_of(host_plan(_host_variant(plan)), ordered))


def _host_variant(plan: Plan) -> str:
    return str(plan.typed.host)


def _device_rows(plan: Plan, matrix: Matrix) -> int:
    """How many rows the GPU has, the first ones in the plan's order."""
    split = border(plan, matrix)
    return matrix.n if split is None else split.device_rows


def _stored(plan: Plan, matrix: Matrix) -> int:
    """Bytes of the GPU's rows as they are stored."""
    ordered = _ordered(matrix, plan.partitioner)[0]
    return stored_bytes(ordered, kind_of(plan.variant)[0], _device_rows(plan, matrix))


def window_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> Window | None:
    """The window of a plan for the GPU's rows in the plan's order, None where none fits the budget."""
    ordered, budget = _ordered(matrix, plan.partitioner)[0], budget_of(plan, matrix, device)
    vectors, rows = plan.typed.vectors, plan.typed.rows
    move = plan.typed.move
    backs = BACKS if move == "copy" else 0
    bits, ahead = kind_of(plan.variant)[0], plan.typed.ahead
    is_given = plan.typed.budget or plan.typed.fraction or device.budget
    full = budget if is_given else int(_STAYING * device.memory_bytes)
    full = full if plan.typed.stays else 0
    one, first = move == "kernel", _device_rows(plan, matrix)
    return choose_window(ordered, plan.k_per_pass, budget, vectors, bits, backs, ahead, rows, one, full, first)


def bus_bytes(plan: Plan, matrix: Matrix, staying: float = 0.0) -> tuple[float, float]:
    """Bytes of the matrix and of vectors, for one start vector, that a call sends or brings back.

    `staying` is the share of the GPU's rows that is on the device already.
    """
    rows, split, passes = _device_rows(plan, matrix), border(plan, matrix), ceil(plan.k / plan.k_per_pass)
    size = matrix.dtype.itemsize
    back = plan.k * (matrix.n if split is None else split.first + (plan.k_per_pass + 1) / 2 * split.rise)
    sent = passes * _stored(plan, matrix) * (1.0 - staying)
    return float(sent), float(size * (rows * (2 * passes - 1) + back))


def bound(plan: Plan, matrix: Matrix) -> float:
    """The most that a call may be faster than k streamed plain products, thesis eq. 6.2 (see the module).

    It is of a GPU that does all rows, and keeps none of the matrix from call to call.
    """
    once = stored_bytes(_ordered(matrix, plan.partitioner)[0], kind_of(plan.variant)[0])
    alone = plan.replace(options={**plan.options, "share": 0.0})
    return plan.k * (once + matrix.n * matrix.dtype.itemsize) / sum(bus_bytes(alone, matrix))


class Streamed(Schedule):
    """See the module."""

    name = "stream"
    backend = "cuda"
    options = CudaStream
    revision = 1
    description = "a matrix in host memory, or beyond a budget, comes through a window on the device"

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cuda.schedules.stream import options as stream_space

        return stream_space.space(matrix, device, k)

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        reason = self._malformed(plan)
        if reason is not None:
            return reason
        if not 0 < matrix.n < 2**32 or matrix.nnz >= 2**40:
            return f"{matrix.n} rows and {matrix.nnz} entries are out of range"
        size, budget = matrix.dtype.itemsize, budget_of(plan, matrix, device)
        unasked = not plan.typed.budget and not plan.typed.fraction
        if device.budget and budget_of(plan, matrix, replace(device, budget=0)) > budget:
            return f"the plan may take more than the memory budget of {device.budget} bytes"
        if unasked and _fits(matrix, plan.k, budget):
            return "the matrix fits the device; set a budget or a fraction to stream it all the same"
        bits, split = kind_of(plan.variant)[0], border(plan, matrix)
        if plan.typed.share:
            reason = self._unshared(plan, matrix, split)
            if reason is not None:
                return reason
        ordered, stored = _ordered(matrix, plan.partitioner)[0], _stored(plan, matrix)
        rows = _device_rows(plan, matrix)
        if stored > (_MOST_PADDING * int(ordered.indptr[rows]) + 4096) * (size + bits / 8) + rows:
            return f"padding would make it more than {_MOST_PADDING:g} times as large"
        if bits == 16 and not near(ordered, 1):
            return "columns of one slice lie more than 65,535 apart"
        found = window_of(plan, matrix, device)
        if found is None:
            return (
                f"no window for {plan.k_per_pass} powers fits {budget} bytes in the {plan.partitioner} order: "
                "take more memory, or fewer powers per pass"
            )
        if found.slot_bytes >= 2**32:
            return "a chunk of more than 2**32 bytes"
        if found.staged and sum(movers(found.staged - 1)) >= device.sms:
            return f"{device.sms} multiprocessors are too few for one kernel with movers; move=copy does without"
        return None

    def _unshared(self, plan: Plan, matrix: Matrix, split: Split | None) -> str | None:
        """Why the processor cannot do a share of the rows, or None."""
        if split is None:
            below = reach(_ordered(matrix, plan.partitioner)[0])[0]
            return (
                f"with share={plan.typed.share:g} there is no room among {matrix.n} rows for a border that "
                f"goes up by {below} rows with each of {plan.k_per_pass} powers ({plan.partitioner} order)"
            )
        return host_reason(_ordered(matrix, plan.partitioner)[0], _host_variant(plan))

    def _malformed(self, plan: Plan) -> str | None:
        from akx.backends.cuda.schedules.stream.options import OPTIONS, VARIANTS

        if plan.backend != self.backend:
            return f"this schedule runs on cuda, not on {plan.backend}"
        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        if plan.variant not in VARIANTS:
            return f"unknown variant {plan.variant!r}, known are {', '.join(VARIANTS)}"
        reason = option_reason(plan, OPTIONS)
        if reason is not None:
            return reason
        if plan.typed.move == "kernel" and plan.typed.block != CudaStream.block:
            return "threads per block are those of a launch per step; one kernel takes what its registers allow"
        share = plan.typed.share
        if share == 1:
            return f"share is {share!r}, expected 0 .. 1, and less than 1"
        if share and plan.typed.move != "kernel":
            return "the processor has a share only beside one kernel: move=kernel"
        return None

    def least_budget(self, matrix: Matrix, k: int, device: CudaDevice) -> int:
        """The fewest bytes that some plan for the matrix does with, one power per pass, in the better order of rows."""
        least = []
        for partitioner in _PARTITIONERS:
            ordered = _ordered(matrix, partitioner)[0]
            for bits in (16, 32) if near(ordered, 1) else (32,):
                least.append(smallest_window(ordered, bits).nbytes)
        return min(least) + 3 * k * matrix.dtype.itemsize

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        window, passes = window_of(plan, matrix, device), ceil(plan.k / plan.k_per_pass)
        sent, vectors = bus_bytes(plan, matrix, 0.0 if window is None else window.kept / window.chunks)
        rows, split, ordered = _device_rows(plan, matrix), border(plan, matrix), _ordered(matrix, plan.partitioner)[0]
        flops, size = 2.0 * matrix.nnz * plan.k, matrix.dtype.itemsize
        if split is not None:  # the GPU does all its rows for all powers, and the processor those beyond the border
            middle = int(split.first + (plan.k_per_pass + 1) / 2 * split.rise)
            others = matrix.nnz - int(ordered.indptr[middle])
            flops = 2.0 * plan.k * (int(ordered.indptr[rows]) + others)
            times = plan.k if plan.typed.front == "none" else passes
            sent += times * others * (size + (2.0 if _host_variant(plan).endswith("16") else 4.0))
            vectors += 2.0 * plan.k * size * (matrix.n - middle)
        return Traffic(
            matrix_bytes=sent,
            vector_bytes=vectors,
            flops=flops,
            redundancy=flops / (2.0 * max(matrix.nnz, 1) * plan.k),
            cache_bytes=(_stored(plan, matrix) + 2.0 * rows * matrix.dtype.itemsize) * plan.k,
            synchronisations=0.0 if window is None else float(passes * window.steps(plan.k_per_pass)),
        )

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        window = window_of(plan, matrix, device)
        assert window is not None
        ordered, split = _ordered(matrix, plan.partitioner), border(plan, matrix)
        beside = None
        if split is not None:
            front = plan.typed.front
            beside = HostShare(ordered[0], split, _host_variant(plan), front, plan.k, default_threads())
        program = _made(ordered, plan, window, device, beside)
        if program is None:  # others have what was to stay
            frugal = window_of(plan.replace(options={**plan.options, "stays": False}), matrix, device)
            program = StreamProgram(ordered, plan, frugal or window, device, beside)
            program.is_as_planned = False
        program.update_values(matrix.data)
        return program


def _made(
    ordered: Ordered, plan: Plan, window: Window, device: CudaDevice, beside: HostShare | None
) -> StreamProgram | None:
    """The program, or None where something would stay and there is no memory for it: nothing is held then."""
    try:
        return StreamProgram(ordered, plan, window, device, beside)
    except DeviceMemoryError:
        if not window.kept:
            raise
        return None


def _fits(matrix: Matrix, k: int, budget: int) -> bool:
    """Whether the matrix in CSR and k + 1 vectors fit so many bytes."""
    size = matrix.dtype.itemsize
    return matrix.nnz * (size + 4.0) + matrix.n * (4.0 + (k + 1.0) * size) <= budget


SCHEDULE = Streamed()
