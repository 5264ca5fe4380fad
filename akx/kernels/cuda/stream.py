"""`stream` on the GPU: a matrix in host memory comes through a window on the device, k_per_pass powers at a time.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. The matrix is cut into chunks of rows, which come once per pass; the powers
follow one another through the window that :mod:`akx.kernels.cuda.window` describes, one launch a step for all of them.
So what thesis sec. 6.3.1 sends as ghost zones of its blocks, and computes again, is on the device already: the bytes
sent and the flops are those of one product and of k products. What moves: the thread blocks of one kernel per pass,
some bringing the matrix, some writing results to the host, the others computing (`move` = kernel), or copies on streams
of their own beside a launch per step (copy; direct: the launches write the results to the host). One graph is a call.

The window takes no more device memory than `budget` bytes, or `fraction` of the bytes of the matrix in CSR, or the
device's budget, or without any nine tenths of the device (then only for matrices that do not fit it). Vectors count.

Traffic, over the bus: ceil(k / k_per_pass) times the matrix and x, once each of the k results. Flops: 2 nnz k.
The bound of thesis eq. 6.2 over k streamed plain products (Fig. 6.5), which send the matrix k times and bring back k
results as well: the ratio of the bytes. It adds bytes of both directions up; a bus that does both at once may pass it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from scipy import sparse

from akx.device.cuda.facts import CudaDevice, cuda_device
from akx.kernels.base import Parameter, Program, Traffic, check_feasible, option_reason
from akx.kernels.cuda.stream_program import Ordered, StreamProgram, kind_of, movers
from akx.kernels.cuda.sweep import near
from akx.kernels.cuda.window import BACKS, Window, choose_window, smallest_window, stored_bytes
from akx.matrix import Matrix
from akx.partition.levels import rcm
from akx.partition.reach import permute
from akx.plan import Plan

__all__ = ["SCHEDULE", "Streamed", "bound", "budget_of", "bus_bytes", "window_of"]

_PARTITIONERS = ("natural", "rcm")
_SHARE = 0.9
_MOST_PADDING = 2.0


def budget_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Bytes that the window may take on the device: what is allowed, less the coefficients."""
    given = [int(plan.option("budget", 0))] if plan.option("budget", 0) else []
    if plan.option("fraction", 0.0):
        given.append(int(float(plan.option("fraction", 0.0)) * matrix.csr_bytes))
    if device.budget:
        given.append(device.budget)
    return min([*given, int(_SHARE * device.memory_bytes)]) - 3 * plan.k * matrix.dtype.itemsize


def _ordered(matrix: Matrix, partitioner: str) -> Ordered:
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
    found: Ordered = matrix.pattern_cache[key]
    return found


def window_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> Window | None:
    """The window of a plan for the matrix in the plan's order, None where none fits the budget."""
    ordered, budget = _ordered(matrix, plan.partitioner)[0], budget_of(plan, matrix, device)
    vectors, rows = int(plan.option("vectors", 1)), int(plan.option("rows", 0))
    move = plan.option("move", "kernel")
    backs = BACKS if move == "copy" else 0
    bits, ahead = kind_of(plan.variant)[0], int(plan.option("ahead", 4))
    return choose_window(ordered, plan.k_per_pass, budget, vectors, bits, backs, ahead, rows, move == "kernel")


def bus_bytes(plan: Plan, matrix: Matrix) -> tuple[float, float]:
    """Bytes of the matrix and of vectors, for one start vector, that a call sends or brings back."""
    ordered, passes = _ordered(matrix, plan.partitioner)[0], ceil(plan.k / plan.k_per_pass)
    vector = float(matrix.n * matrix.dtype.itemsize)
    return float(passes * stored_bytes(ordered, kind_of(plan.variant)[0])), vector * (plan.k + 2 * passes - 1)


def bound(plan: Plan, matrix: Matrix) -> float:
    """The most that a call may be faster than k streamed plain products, thesis eq. 6.2 (see the module)."""
    once = stored_bytes(_ordered(matrix, plan.partitioner)[0], kind_of(plan.variant)[0])
    return plan.k * (once + matrix.n * matrix.dtype.itemsize) / sum(bus_bytes(plan, matrix))


class Streamed:
    """See the module."""

    name = "stream"
    backend = "cuda"
    description = "a matrix in host memory, or beyond a budget, comes through a window on the device"
    may_crash = True  # blocks of one kernel wait for one another

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        from akx.kernels.cuda import stream_space

        return stream_space.space(matrix, device, k)

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        reason = self._malformed(plan)
        if reason is not None:
            return reason
        if not 0 < matrix.n < 2**32 or matrix.nnz >= 2**40:
            return f"{matrix.n} rows and {matrix.nnz} entries are out of range"
        size, budget = matrix.dtype.itemsize, budget_of(plan, matrix, device)
        unasked = not plan.option("budget", 0) and not plan.option("fraction", 0.0)
        if device.budget and budget_of(plan, matrix, replace(device, budget=0)) > budget:
            return f"the plan may take more than the memory budget of {device.budget} bytes"
        if unasked and _fits(matrix, plan.k, budget):
            return "the matrix fits the device; set a budget or a fraction to stream it all the same"
        bits = kind_of(plan.variant)[0]
        ordered = _ordered(matrix, plan.partitioner)[0]
        stored = stored_bytes(ordered, bits)
        if stored > (_MOST_PADDING * matrix.nnz + 4096) * (size + bits / 8) + matrix.n:
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

    def _malformed(self, plan: Plan) -> str | None:
        from akx.kernels.cuda.stream_space import OPTIONS, VARIANTS

        if plan.backend != self.backend:
            return f"this schedule runs on cuda, not on {plan.backend}"
        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        if plan.variant not in VARIANTS:
            return f"unknown variant {plan.variant!r}, known are {', '.join(VARIANTS)}"
        reason = option_reason(plan, OPTIONS)
        if reason is not None:
            return reason
        if plan.option("move", "kernel") == "kernel" and plan.option("block", 256) != 256:
            return "threads per block are those of a launch per step; one kernel takes what its registers allow"
        for name in ("budget", "rows"):
            value = plan.option(name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                return f"{name} is {value!r}, expected a whole number of {'bytes' if name == 'budget' else 'rows'}"
        fraction = plan.option("fraction", 0.0)
        if isinstance(fraction, (bool, str)) or not 0 <= fraction <= 1:
            return f"fraction is {fraction!r}, expected 0 .. 1"
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
        window = window_of(plan, matrix, device)
        assert window is not None
        program = StreamProgram(_ordered(matrix, plan.partitioner), plan, window, device)
        program.update_values(matrix.data)
        return program


def _fits(matrix: Matrix, k: int, budget: int) -> bool:
    """Whether the matrix in CSR and k + 1 vectors fit so many bytes."""
    size = matrix.dtype.itemsize
    return matrix.nnz * (size + 4.0) + matrix.n * (4.0 + (k + 1.0) * size) <= budget


SCHEDULE = Streamed()
