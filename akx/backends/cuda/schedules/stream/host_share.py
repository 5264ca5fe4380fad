"""The rows of a streamed matrix that the processor does while the GPU does the others: hybrid computing.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. Row i reads columns from i - d to i + u. Of power p = 1..m of a pass the
GPU returns rows i < s_p and the processor makes the rest, with

    s_p = s + p R,  R >= d              the border goes up with the powers

so that what the processor reads of power p - 1, from s_p - d on, is its own: within a pass it waits for nobody and
computes nothing twice. The GPU has rows i < s_m + m u, and takes the matrix to end there: power p of it is right for
i < s_m + (m - p) u, which is what its own rows of later powers read. So both have their results where a caller wants
them, without a copy; x of a pass is what both have returned of the one before.

What the GPU sends and computes beyond its share: m u + (m - 1) R / 2 rows a pass in the mean. Whether a border can be
drawn is found from the whole pattern, in O(n); only a program cuts it in two. Source: Rennich (NVIDIA),
"Block SpMV on GPU": of a matrix larger than the card only a portion is multiplied on the GPU, so that there is no
cliff. A border for k powers, where that has products one by one, is akx's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from akx.backends.cpu.cost import has_front
from akx.backends.cpu.feasibility import basic_reason
from akx.backends.cpu.layout import block_of, known_of, lay_out, ordered
from akx.backends.cpu.program import TaskProgram
from akx.backends.cpu.task_graph import ascending, mirrored, schedule_tasks
from akx.backends.cpu.task_loop import Tasks
from akx.backends.cuda.schedules.stream.layout import reach
from akx.backends.cuda.schedules.stream.options import HOST_VARIANTS
from akx.backends.pattern_cache import per_pattern
from akx.backends.schedule import Coefficients, as_coefficients
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Pattern
from akx.partition.cuts import even_cuts
from akx.partition.permutation import block_dependencies

__all__ = ["HostShare", "Split", "device_part", "host_plan", "host_reason", "passes", "split_of"]

#: Rows of a border are a multiple of these, and of whole blocks: whole lines of memory, and whole slices of any format.
_UNIT = 32
#: Bytes of a block of the processor's rows, as in :mod:`akx.backends.cpu.schedules.wavefront.schedule`.
_BLOCK = 512 * 1024


@dataclass(frozen=True)
class Split:
    """Who makes which rows.

    `n`: rows of the matrix. `first`, `rise`: of power p of a pass, the GPU returns rows i < first + p rise.
    `device_rows`: rows that are on the GPU. `depth`: powers per pass.
    """

    n: int
    first: int
    rise: int
    device_rows: int
    depth: int

    @property
    def host_first(self) -> int:
        """The first row that the processor ever makes."""
        return self.first + self.rise


def passes(k: int, depth: int) -> Iterator[tuple[int, int]]:
    """(power that it begins with, powers) of each pass."""
    return ((power, min(depth, k - power)) for power in range(0, k, depth))


@per_pattern
def split_of(matrix: Matrix, share: float, depth: int, block: int = 1) -> Split | None:
    """The border with about `share` of the entries on the processor's side; None where there is no room for one.

    `block` is the unknowns of a node, which stay together.
    """
    (below, above), unit = reach(matrix), _UNIT * block
    rise = max(unit, -(-below // unit) * unit)
    middle = int(np.searchsorted(matrix.indptr, (1.0 - share) * matrix.nnz))
    first = round((middle - (depth + 1) / 2 * rise) / unit) * unit
    last = first + depth * rise
    if first < 0 or last >= matrix.n:
        return None
    return Split(matrix.n, first, rise, min(matrix.n, last + depth * above), depth)


def device_part(matrix: Matrix, split: Split) -> tuple[Matrix, int, NDArray[Any]]:
    """The rows and columns that the GPU has, and where their entries are in the data of `matrix`.

    `part`: square; its values are not to be used. `first`: so many entries are the first ones of `matrix`. `others`:
    the places of the other ones.
    """
    rows, end = split.device_rows, int(matrix.indptr[split.device_rows])
    begin = int(matrix.indptr[max(0, rows - reach(matrix)[1])])  # rows before have no columns beyond
    others = begin + np.flatnonzero(matrix.indices[begin:end] < rows)
    columns = np.concatenate([matrix.indices[:begin], matrix.indices[others]])
    start = matrix.indptr[: rows + 1].copy()
    cut = start > begin
    start[cut] = begin + np.searchsorted(others, start[cut])
    inner = sparse.csr_array((np.ones(columns.size, matrix.dtype), columns, start), shape=(rows, rows))
    return Matrix.from_any(inner), begin, others


def _host_part(matrix: Matrix, split: Split) -> Matrix:
    """The matrix with nothing in the rows that the processor never makes."""
    begin = int(matrix.indptr[split.host_first])
    start = np.maximum(matrix.indptr - matrix.indptr.dtype.type(begin), 0)
    columns = matrix.indices[begin:]
    own = sparse.csr_array((np.ones(columns.size, matrix.dtype), columns, start), shape=(split.n, split.n))
    return Matrix.from_any(own)


def host_plan(variant: str) -> Plan:
    """Plain products in a variant of the processor: what says how its rows are laid out."""
    return Plan("cpu", "sweep", variant)


def host_reason(matrix: Matrix, variant: str) -> str | None:
    """Why rows of the matrix, in its own order, cannot be laid out as `variant` on the processor, or None."""
    if variant not in HOST_VARIANTS:
        return f"unknown variant {variant!r} of the processor, known are {', '.join(HOST_VARIANTS)}"
    reason = basic_reason(host_plan(variant), matrix, ("natural",))
    return None if reason is None else f"the processor's rows: {reason}"


class HostShare:
    """The processor's rows, laid out, with each thread's tasks for every pass of a call.

    `matrix`: in the order of the plan's rows; its values are not used. `variant`, `front`: of :data:`HOST_VARIANTS` and
    :data:`FRONTS`. `k`, `threads`: powers of a call, and threads.
    """

    def __init__(self, matrix: Matrix, split: Split, variant: str, front: str, k: int, threads: int) -> None:
        self.split = split
        self._begin = int(matrix.indptr[split.host_first])
        part = _host_part(matrix, split)
        where, known_of_it = ordered(part, "natural"), known_of(part, "natural", threads)
        block = block_of(host_plan(variant), matrix)
        layout = lay_out(where.pattern, part.dtype, variant, sigma=1, block=block, known=known_of_it)
        if split.depth == 1 or not has_front(part, "natural"):
            front = "none"
        known: dict[tuple[int, bool], Tasks] = {}
        self._passes: list[tuple[int, TaskProgram]] = []
        for power, depth in passes(k, split.depth):
            later = power > 0
            if (depth, later) not in known:
                known[depth, later] = _tasks(where.pattern, layout, split, depth, threads, front, later)
            self._passes.append((power, TaskProgram(layout, known[depth, later], where)))
        self._known: Coefficients | None = None
        self._of_passes: list[Coefficients] = []

    @property
    def nbytes(self) -> int:
        """Bytes on the host; the passes share the matrix."""
        return self._passes[0][1].nbytes

    def update_values(self, data: NDArray[Any]) -> None:
        """Take new values, in the order of the entries of the matrix that this is a share of."""
        self._passes[0][1].update_values(data[self._begin :])

    def run(self, number: int, vectors: NDArray[Any], coefficients: Coefficients) -> None:
        """Make the processor's rows of pass `number` in `vectors` (k+1, b, pitch), contiguous, rows of both in turn."""
        if coefficients is not self._known:
            self._of_passes = [self._of_pass(coefficients, power) for power, _ in self._passes]
            self._known = coefficients
        power, program = self._passes[number]
        own = self._of_passes[number]
        base = max(0, power - 1)  # a later pass also reads the vector before the one that it begins with
        program.run(vectors[base], vectors[base : base + own.a.size + 1], own)

    def _of_pass(self, coefficients: Coefficients, power: int) -> Coefficients:
        """Those of a pass; behind those of a step that has no tasks where there is a vector before the first."""
        low, high = max(0, power - 1), min(power + self.split.depth, coefficients.a.size)
        a, b, c = (v[low:high].copy() for v in (coefficients.a, coefficients.b, coefficients.c))
        return as_coefficients(a, b, c, a.dtype)  # of the kind that compiled code is for


def _tasks(pattern: Pattern, layout: Any, split: Split, depth: int, threads: int, front: str, later: bool) -> Tasks:
    """The tasks of one pass: those of a `sweep`, or of a `wavefront` with contiguous or interleaved shares.

    They are those of all of the rows that the processor ever makes, cut off at the border of each power. With `later`
    powers count from the vector before the one that the pass begins with.
    """
    assert split.first % layout.align == split.rise % layout.align == 0, "a border amid a unit of the format"
    rows = split.n - split.host_first
    shared, wave = front == "shared", front != "none"
    blocks = (threads if shared else 1) * max(1 if shared else threads, round(layout.matrix_bytes / _BLOCK))
    at = np.minimum(split.host_first + np.arange(-(-rows // layout.align) + 1) * layout.align, split.n)
    work = pattern.indptr[at].astype(np.float64) + 2.0 * (at - split.host_first)
    cuts = at[even_cuts(work, blocks if wave else threads)].astype(np.int64)
    low, high = block_dependencies(pattern.indptr, pattern.indices, np.concatenate([[0], cuts]))
    low, high = np.maximum(low[1:] - 1, 0), high[1:] - 1
    number = np.arange(cuts.size - 1, dtype=np.int64)
    owner = number % threads if shared else number * threads // number.size
    order, pointer = (mirrored if front == "own" else ascending)(owner, threads)
    done, lag = depth if wave else 1, 1 if shared else 0
    tasks = schedule_tasks(cuts, low, high, owner, order, pointer, k=depth, k_per_pass=done, lag=lag)
    first = np.maximum(tasks.first, split.first + tasks.power * split.rise)
    return tasks._replace(first=first, last=np.maximum(tasks.last, first), power=tasks.power + int(later))
