"""What the CPU schedules share: orders and layouts, whether they are possible, cuts on unit boundaries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.layout import (
    VARIANTS,
    Ordered,
    block_size,
    bytes_per_entry,
    given_of,
    known_of,
    ordered,
    unknown_variant,
    variant_reason,
)
from akx.backends.cpu.variants import layout_of, made_by
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format, Pattern
from akx.partition.cuts import even_cuts
from akx.partition.permutation import block_dependencies

__all__ = [
    "aligned_cuts",
    "basic_reason",
    "block_of",
    "block_plan_reason",
    "dependencies",
    "front",
    "has_front",
    "laid_out",
    "largest_share",
    "multiplied",
    "padding_of",
    "sigma_of",
    "slots_before",
    "stored_bytes",
]

#: A front that is wider than this share of the rows, and than so many rows, is no front: nothing would be reused.
_WIDEST, _NARROW = 0.5, 4096


def sigma_of(plan: Plan) -> int:
    """Rows of the sorting window of a plan; 1 where its variant has none."""
    return plan.typed.sigma if layout_of(plan.variant).sorts else 1


def block_of(plan: Plan, matrix: Matrix) -> int:
    """The block size of a block variant; 1 for the others, which do not need the pattern searched for blocks."""
    return block_size(matrix) if layout_of(plan.variant).has_blocks and plan.partitioner == "natural" else 1


def padding_of(plan: Plan, matrix: Matrix) -> float:
    """Values stored for each entry of the matrix, where all rows are laid out in one order."""
    return layout_of(plan.variant).padding(given_of(plan, matrix))


def multiplied(plan: Plan, matrix: Matrix) -> float:
    """Values multiplied for each entry of the matrix, where all rows are laid out in one order."""
    return layout_of(plan.variant).multiplied(given_of(plan, matrix))


def largest_share(plan: Plan, matrix: Matrix) -> float:
    """Work of the thread that has most over the mean, where each has whole windows, chunks or slices of rows."""
    unit = layout_of(plan.variant).rows_together(given_of(plan, matrix))
    shares, rows = plan.threads, matrix.n
    whole = shares * unit
    largest = min(-(-rows // whole) * unit, rows - (shares - 1) * (rows // whole) * unit)
    return max(1.0, largest * shares / max(rows, 1))


def laid_out(matrix: Matrix, plan: Plan) -> tuple[Ordered, Format]:
    """The matrix in the plan's order, and its pattern in the plan's variant; values are zero."""
    return ordered(matrix, plan.partitioner), layout_of(plan.variant).lay_out(given_of(plan, matrix))


def stored_bytes(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of the matrix as it is laid out, padding included."""
    return bytes_per_entry(plan, matrix) * matrix.nnz * padding_of(plan, matrix)


def front(matrix: Matrix, partitioner: str) -> float:
    """Mean extent of what a row and its block read, as a share of all rows; memoised with the pattern."""
    key = ("akx.backends.cpu.front", partitioner)
    if key not in matrix.pattern_cache:
        where = ordered(matrix, partitioner)
        cuts = aligned_cuts(where.pattern, 256, 1)
        low, high = block_dependencies(where.pattern.indptr, where.pattern.indices, cuts)
        begin = np.minimum.accumulate(cuts[low][::-1])[::-1]
        end = np.maximum.accumulate(cuts[high + 1])
        own = np.diff(cuts)
        matrix.pattern_cache[key] = float(np.mean(end - begin - own) / max(matrix.n, 1))
    share: float = matrix.pattern_cache[key]
    return share


def has_front(matrix: Matrix, partitioner: str) -> bool:
    """Whether what rows read is narrow enough, in this order, for a front to move through the matrix."""
    share = front(matrix, partitioner)
    return share * matrix.n <= _NARROW or share <= _WIDEST


def block_plan_reason(plan: Plan) -> str | None:
    """Why this plan's block size makes no sense for a schedule with blocks, or None."""
    return None if plan.block_bytes >= 1024 else f"block_bytes is {plan.block_bytes}, expected at least 1024"


def basic_reason(plan: Plan, matrix: Matrix, orders: tuple[str, ...]) -> str | None:
    """Why this plan's order or variant cannot be laid out, or None."""
    if plan.backend != "cpu":
        return f"this schedule runs on the cpu, not on {plan.backend}"
    if plan.partitioner not in orders:
        return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(orders)}"
    if plan.variant not in VARIANTS:
        return unknown_variant(plan.variant)
    layout = layout_of(plan.variant)
    if layout.has_blocks and plan.partitioner != "natural":
        return "a new order of the rows breaks the dense blocks up"
    sigma = plan.typed.sigma
    if sigma > 1 and not layout.sorts:
        return f"sigma is for sliced ELL, not for {plan.variant}"
    return variant_reason(
        plan.variant,
        ordered(matrix, plan.partitioner).pattern,
        matrix.dtype,
        sigma=sigma,
        block=block_of(plan, matrix),
        known=known_of(matrix, plan.partitioner, plan.threads),
    )


def outside_reason(plan: Plan) -> str | None:
    """Why a plan with a variant of another package makes no sense, whatever the matrix, or None."""
    if plan.partitioner != "natural":
        return f"{plan.variant} takes rows in their own order, not in that of {plan.partitioner}"
    if plan.typed.sigma != 1:
        return f"sigma is for sliced ELL, not for {plan.variant}"
    return None


def aligned_cuts(pattern: Pattern, parts: int, align: int, layout: Format | None = None) -> NDArray[np.int64]:
    """At most `parts` contiguous blocks of equal work, cut at multiples of `align` rows.

    The work of a row is that of its entries and of two more; with a `layout` that pads, of the slots it is stored in.
    """
    units = -(-pattern.rows // align)
    boundaries = np.minimum(np.arange(units + 1, dtype=np.int64) * align, pattern.rows)
    slots = slots_before(boundaries, pattern, layout).astype(np.float64)
    cuts: NDArray[np.int64] = boundaries[even_cuts(slots + 2.0 * boundaries, parts)]
    return cuts


def slots_before(rows: NDArray[np.int64], pattern: Pattern, layout: Format | None) -> NDArray[Any]:
    """Slots stored for rows 0 .. i-1, for each i of `rows`, where a unit of the layout begins or the matrix ends."""
    start = None if layout is None else made_by(layout).starts(layout.arrays)
    if layout is None or start is None or layout.stored == 0:
        return pattern.indptr[rows]
    found: NDArray[Any] = start[-(-rows // layout.unit)] * (layout.stored / float(start[-1]))
    return found


def dependencies(
    pattern: Pattern, layout: Format, cuts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last block that each block of rows reads, inclusive, what the format's padding reads included."""
    low, high = block_dependencies(pattern.indptr, pattern.indices, cuts)
    reach = None if pattern.rows == 0 else made_by(layout).padding_reach(layout.arrays, pattern.columns)
    if reach is None:
        return low, high
    first, last = reach
    starts = np.minimum(cuts[:-1] // layout.align, first.size - 1)
    first, last = np.minimum.reduceat(first, starts), np.maximum.reduceat(last, starts)
    reads = last >= 0
    low[reads] = np.minimum(low[reads], np.searchsorted(cuts, first[reads], side="right") - 1)
    high[reads] = np.maximum(high[reads], np.searchsorted(cuts, last[reads], side="right") - 1)
    return low, high
