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
Of a symmetric or Hermitian matrix one triangle travels and stays where `stored` = triangle
(:mod:`akx.backends.cuda.schedules.stream.triangle`), with the same bits of every result.

Traffic, over the bus: ceil(k / k_per_pass) times the GPU's rows that do not stay, and x, once each of the k results;
from the processor's memory: its rows as often, or k times where it makes plain products, and two vectors per power.
Flops: 2 nnz k, and those of the GPU's rows beyond its share.
The bound of thesis eq. 6.2 over k streamed plain products (Fig. 6.5), which send the matrix k times and bring back k
results as well: the ratio of the bytes. It adds bytes of both directions up; a bus that does both at once may pass it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.schedules.base import misnamed
from akx.backends.cuda.schedules.stream.host_share import HostShare, host_reason
from akx.backends.cuda.schedules.stream.layout import kind_of, reach, smallest_window
from akx.backends.cuda.schedules.stream.options import OPTIONS, PARTITIONERS, TRIANGLE, VARIANTS
from akx.backends.cuda.schedules.stream.program import StreamProgram, movers
from akx.backends.cuda.schedules.stream.rows import (
    border,
    budget_of,
    bus_bytes,
    device_rows,
    expected_seconds,
    fits_device,
    mark_bits,
    ordered_of,
    stored_on_device,
    window_of,
)
from akx.backends.cuda.schedules.stream.triangle import storable, symmetry_of
from akx.backends.cuda.variants.slots import near
from akx.backends.host import default_threads
from akx.backends.schedule import Parameter, Program, Schedule, Traffic, check_feasible, option_reason
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.core.options import CudaStream
from akx.core.plan import FULL, Plan, in_full

__all__ = ["SCHEDULE", "Streamed"]

_MOST_PADDING = 2.0


class Streamed(Schedule):
    """See the module."""

    name = "stream"
    backend = "cuda"
    options = CudaStream
    description = "a matrix in host memory, or beyond a budget, comes through a window on the device"

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        from akx.backends.cuda.schedules.stream import search

        return search.space(matrix, device, k)

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
        if unasked and fits_device(matrix, plan.k, budget):
            return "the matrix fits the device; set a budget or a fraction to stream it all the same"
        bits, split, ordered = kind_of(plan.variant)[0], border(plan, matrix), ordered_of(matrix, plan.partitioner)[0]
        if plan.typed.share:
            if split is None:
                return (
                    f"with share={plan.typed.share:g} there is no room among {matrix.n} rows for a border that goes up "
                    f"by {reach(ordered)[0]} rows with each of {plan.k_per_pass} powers ({plan.partitioner} order)"
                )
            if reason := host_reason(ordered, str(plan.typed.host)):
                return reason
        stored = stored_on_device(plan, matrix)
        rows = device_rows(plan, matrix)
        if stored > (_MOST_PADDING * int(ordered.indptr[rows]) + 4096) * (size + bits / 8) + rows:
            return f"padding would make it more than {_MOST_PADDING:g} times as large"
        if bits == 16 and not near(ordered, 1):
            return "columns of one slice lie more than 65,535 apart"
        stored_so = storable(plan, matrix).typed.stored
        if stored_so == TRIANGLE and not mark_bits(plan, matrix):
            return "rows of more than 32,768 entries, or 16,383 below the diagonal, are too long for stored=triangle"
        found = window_of(plan, matrix, device)
        if found is None:
            return (
                f"no window for {plan.k_per_pass} powers fits {budget} bytes in the {plan.partitioner} order: "
                "take more memory, or fewer powers per pass"
            )
        if max(found.slot_bytes, found.whole_bytes) >= 2**32:
            return "a chunk of more than 2**32 bytes"
        if found.staged and sum(movers(found.staged - 1)) >= device.sms:
            return f"{device.sms} multiprocessors are too few for one kernel with movers; move=copy does without"
        return None

    def _malformed(self, plan: Plan) -> str | None:
        if reason := misnamed(plan, PARTITIONERS, VARIANTS) or option_reason(plan, OPTIONS):
            return reason
        if plan.typed.move == "kernel" and plan.typed.block != CudaStream.block:
            return "threads per block are those of a launch per step; one kernel takes what its registers allow"
        if plan.typed.stored == TRIANGLE and plan.typed.move != "kernel":
            return "one triangle is made whole by one kernel alone: stored=triangle takes move=kernel"
        share = plan.typed.share
        if share == 1:
            return f"share is {share!r}, expected 0 .. 1, and less than 1"
        if share and plan.typed.move != "kernel":
            return "the processor has a share only beside one kernel: move=kernel"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        if plan.typed.stored == FULL:
            return None
        if storable(plan, matrix) == plan:
            longer = expected_seconds(plan, matrix, device) > expected_seconds(in_full(plan), matrix, device)
            return f"stored={TRIANGLE} leaves room for short chunks only: {FULL} should be faster" if longer else None
        return f"stored={TRIANGLE} is the same as {FULL} here: the matrix is neither symmetric nor Hermitian"

    def least_budget(self, matrix: Matrix, k: int, device: CudaDevice) -> int:
        """The fewest bytes that some plan for the matrix does with, one power per pass, in the better order of rows."""
        least = []
        for partitioner in PARTITIONERS:
            ordered = ordered_of(matrix, partitioner)[0]
            for bits in (16, 32) if near(ordered, 1) else (32,):
                least.append(smallest_window(ordered, bits).nbytes)
        return min(least) + 3 * k * matrix.dtype.itemsize

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        window, passes = window_of(plan, matrix, device), ceil(plan.k / plan.k_per_pass)
        sent, vectors = bus_bytes(plan, matrix, 0.0 if window is None else window.kept / window.chunks)
        rows, split, ordered = device_rows(plan, matrix), border(plan, matrix), ordered_of(matrix, plan.partitioner)[0]
        flops, size = 2.0 * matrix.nnz * plan.k, matrix.dtype.itemsize
        if split is not None:  # the GPU does all its rows for all powers, and the processor those beyond the border
            middle = int(split.first + (plan.k_per_pass + 1) / 2 * split.rise)
            others = matrix.nnz - int(ordered.indptr[middle])
            flops = 2.0 * plan.k * (int(ordered.indptr[rows]) + others)
            times = plan.k if plan.typed.front == "none" else passes
            sent += times * others * (size + (2.0 if str(plan.typed.host).endswith("16") else 4.0))
            vectors += 2.0 * plan.k * size * (matrix.n - middle)
        return Traffic(
            matrix_bytes=sent,
            vector_bytes=vectors,
            flops=flops,
            redundancy=flops / (2.0 * max(matrix.nnz, 1) * plan.k),
            cache_bytes=(stored_on_device(plan, matrix) + 2.0 * rows * matrix.dtype.itemsize) * plan.k,
            synchronisations=0.0 if window is None else float(passes * window.steps(plan.k_per_pass)),
        )

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        plan, planned = storable(plan, matrix), plan
        program = self._made(matrix, plan, device)
        program.update_values(matrix.data)
        program.is_as_planned = program.is_as_planned and plan == planned
        return program

    def _made(self, matrix: Matrix, plan: Plan, device: CudaDevice) -> StreamProgram:
        """A program without values."""
        window = window_of(plan, matrix, device)
        assert window is not None
        ordered, split = ordered_of(matrix, plan.partitioner), border(plan, matrix)
        beside = None
        if split is not None:
            front = plan.typed.front
            beside = HostShare(ordered[0], split, str(plan.typed.host), front, plan.k, default_threads())
        more: tuple[Any, ...] = (beside,)
        if window.half:
            more = beside, symmetry_of(matrix), partial(self._made_in_full, matrix, plan, device)
        try:
            program = StreamProgram(ordered, plan, window, device, *more)
        except DeviceMemoryError:
            if not window.kept:
                raise
            program = None  # others have what was to stay; nothing is held
        if program is None:
            frugal = window_of(plan.replace(options={**plan.options, "stays": False}), matrix, device)
            program = StreamProgram(ordered, plan, frugal or window, device, *more)
            program.is_as_planned = False
        return program

    def _made_in_full(self, matrix: Matrix, plan: Plan, device: CudaDevice) -> StreamProgram:
        """The program for values that are not symmetric; raises InfeasibleError where they do not fit in full."""
        plan = in_full(plan)
        check_feasible(self, plan, matrix, device)
        return self._made(matrix, plan, device)


SCHEDULE = Streamed()
