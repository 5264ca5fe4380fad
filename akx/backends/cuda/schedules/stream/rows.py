"""Which rows the GPU has, in which order, the window for them, and what crosses the bus."""

from __future__ import annotations

from math import ceil, inf

import numpy as np
from scipy import sparse

from akx.backends.cpu.layout import block_of
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.stream.host_share import Split, host_plan, split_of
from akx.backends.cuda.schedules.stream.layout import (
    BACKS,
    Ordered,
    Window,
    below_diagonal,
    choose_window,
    kind_of,
    pass_seconds,
    stored_bytes,
)
from akx.backends.cuda.schedules.stream.options import TRIANGLE
from akx.backends.cuda.schedules.stream.triangle import storable
from akx.backends.pattern_cache import per_pattern
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.partition.levels import rcm
from akx.partition.permutation import permute

__all__ = [
    "MOST_OF_DEVICE",
    "border",
    "bound",
    "budget_of",
    "bus_bytes",
    "device_rows",
    "expected_seconds",
    "fits_device",
    "mark_bits",
    "ordered_of",
    "stored_on_device",
    "window_of",
]

MOST_OF_DEVICE = 0.9
#: And what is filled with chunks that stay where nobody has said how much may be taken.
_STAYING = 0.5


def budget_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> int:
    """Bytes that the window may take on the device: what is allowed, less the coefficients."""
    given: list[int] = [plan.typed.budget] if plan.typed.budget else []
    if plan.typed.fraction:
        given.append(int(float(plan.typed.fraction) * matrix.csr_bytes))
    if device.budget:
        given.append(device.budget)
    return min([*given, int(MOST_OF_DEVICE * device.memory_bytes)]) - 3 * plan.k * matrix.dtype.itemsize


def ordered_of(matrix: Matrix, partitioner: str) -> Ordered:
    """The matrix in its order, the permutation and that of the entries; values are not to be used."""
    return (matrix, None, None) if partitioner == "natural" else _by_rcm(matrix, matrix.dtype.name)


@per_pattern
def _by_rcm(matrix: Matrix, dtype: str) -> Ordered:
    order = rcm(matrix.indptr, matrix.indices)
    start, columns, entries = permute(matrix.indptr, matrix.indices, order)
    inner = sparse.csr_array((np.ones(matrix.nnz, dtype), columns, start), shape=(matrix.n, matrix.n))
    return Matrix.from_any(inner), order, entries


def border(plan: Plan, matrix: Matrix) -> Split | None:
    """Who makes which rows, in the plan's order; None where the GPU makes all, or there is no room for a border."""
    share, ordered = float(plan.typed.share), ordered_of(matrix, plan.partitioner)[0]
    if not share:
        return None
    return split_of(ordered, share, plan.k_per_pass, block_of(host_plan(str(plan.typed.host)), ordered))


def device_rows(plan: Plan, matrix: Matrix) -> int:
    """How many rows the GPU has, the first ones in the plan's order."""
    split = border(plan, matrix)
    return matrix.n if split is None else split.device_rows


def mark_bits(plan: Plan, matrix: Matrix) -> int:
    """Bits of a mark where half chunks travel, 0 where whole ones do."""
    if storable(plan, matrix).typed.stored != TRIANGLE:
        return 0
    return below_diagonal(ordered_of(matrix, plan.partitioner)[0])[0]


def stored_on_device(plan: Plan, matrix: Matrix) -> int:
    """Bytes of the GPU's rows as they are stored, in whole chunks."""
    ordered = ordered_of(matrix, plan.partitioner)[0]
    return stored_bytes(ordered, kind_of(plan.variant)[0], device_rows(plan, matrix))


def window_of(plan: Plan, matrix: Matrix, device: CudaDevice) -> Window | None:
    """The window of a plan for the GPU's rows in the plan's order, None where none fits the budget."""
    ordered, budget = ordered_of(matrix, plan.partitioner)[0], budget_of(plan, matrix, device)
    vectors, rows = plan.typed.vectors, plan.typed.rows
    move = plan.typed.move
    backs = BACKS if move == "copy" else 0
    bits, ahead = kind_of(plan.variant)[0], plan.typed.ahead
    is_given = plan.typed.budget or plan.typed.fraction or device.budget
    full = budget if is_given else int(_STAYING * device.memory_bytes)
    full = full if plan.typed.stays else 0
    one, first = move == "kernel", device_rows(plan, matrix)
    half = mark_bits(plan, matrix)
    return choose_window(ordered, plan.k_per_pass, budget, vectors, bits, backs, ahead, rows, one, full, first, half)


def expected_seconds(plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
    """A rough time of a call, to compare plans by that differ in what travels; infinite where no window fits."""
    window, ordered = window_of(plan, matrix, device), ordered_of(matrix, plan.partitioner)[0]
    if window is None:
        return inf
    given = ordered, kind_of(plan.variant)[0], device_rows(plan, matrix)
    sent, whole = stored_bytes(*given, window.half), stored_bytes(*given)
    return ceil(plan.k / plan.k_per_pass) * pass_seconds(window, sent / window.chunks, whole / window.chunks)


def bus_bytes(plan: Plan, matrix: Matrix, staying: float = 0.0) -> tuple[float, float]:
    """Bytes of the matrix and of vectors, for one start vector, that a call sends or brings back.

    `staying` is the share of the GPU's rows that is on the device already.
    """
    rows, split, passes = device_rows(plan, matrix), border(plan, matrix), ceil(plan.k / plan.k_per_pass)
    size = matrix.dtype.itemsize
    back = plan.k * (matrix.n if split is None else split.first + (plan.k_per_pass + 1) / 2 * split.rise)
    ordered, half = ordered_of(matrix, plan.partitioner)[0], mark_bits(plan, matrix)
    sent = passes * stored_bytes(ordered, kind_of(plan.variant)[0], rows, half) * (1.0 - staying)
    return float(sent), float(size * (rows * (2 * passes - 1) + back))


def bound(plan: Plan, matrix: Matrix) -> float:
    """The most that a call may be faster than k streamed plain products, thesis eq. 6.2 (see the module).

    It is of a GPU that does all rows, and keeps none of the matrix from call to call.
    """
    once = stored_bytes(ordered_of(matrix, plan.partitioner)[0], kind_of(plan.variant)[0])
    alone = plan.replace(options={**plan.options, "share": 0.0})
    return plan.k * (once + matrix.n * matrix.dtype.itemsize) / sum(bus_bytes(alone, matrix))


def fits_device(matrix: Matrix, k: int, budget: int) -> bool:
    """Whether the matrix in CSR and k + 1 vectors fit so many bytes, and 32 bits number its entries."""
    size = matrix.dtype.itemsize
    return matrix.nnz + matrix.n < 2**32 and matrix.nnz * (size + 4.0) + matrix.n * (4.0 + (k + 1.0) * size) <= budget
