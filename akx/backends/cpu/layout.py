"""From a matrix and a plan to arrays: the order of the rows, the variant's layout, and cuts on unit boundaries.

Orders are memoised with the pattern (a permutation does not depend on values), so that the tuner pays for each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.level_order import ordered_rows
from akx.backends.cpu.variants import Given, Known, index_bits, layout_of, made_by
from akx.backends.pattern_cache import per_pattern
from akx.core.canonical import read_only
from akx.core.errors import InfeasibleError
from akx.core.features import dense_block_size
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format, Pattern, pattern_of, unsigned
from akx.partition.base import inverse_permutation
from akx.partition.cuts import even_cuts
from akx.partition.permutation import block_dependencies, permute

__all__ = [
    "Ordered",
    "aligned_cuts",
    "block_of",
    "block_size",
    "dependencies",
    "given_of",
    "known_of",
    "laid_out",
    "lay_out",
    "laying_out",
    "ordered",
    "sigma_of",
    "slots_before",
]


@dataclass(frozen=True)
class Ordered:
    """A matrix pattern in the order of a partitioner.

    `pattern`: P A P^T, or A itself in natural order. `order`, `place` (n,) arrays, or (0,) in natural order: order[new]
    = old and place[old] = new. `entries` (nnz,) array or None: ``data_new = data[entries]``.
    """

    pattern: Pattern
    order: NDArray[Any]
    place: NDArray[Any]
    entries: NDArray[Any] | None


@per_pattern
def ordered(matrix: Matrix, partitioner: str) -> Ordered:
    """The pattern of `matrix` in the order of `partitioner`: "natural", "rcm" or "levels"."""
    nothing = read_only(np.zeros(0, dtype=np.uint32))
    if partitioner == "natural":
        return Ordered(pattern_of(matrix), nothing, nothing, None)
    if partitioner not in ("rcm", "levels"):
        raise InfeasibleError(f"partitioner {partitioner!r} gives no row order", expected="natural, rcm or levels")
    permutation = ordered_rows(matrix.indptr, matrix.indices, partitioner)
    indptr, indices, entries = permute(matrix.indptr, matrix.indices, permutation)
    return Ordered(
        Pattern(unsigned(indptr), unsigned(indices), matrix.n),
        read_only(np.ascontiguousarray(permutation, dtype=np.uint32)),
        read_only(np.ascontiguousarray(inverse_permutation(permutation), dtype=np.uint32)),
        entries,
    )


@per_pattern
def block_size(matrix: Matrix) -> int:
    """The unknowns per node found in the pattern, 1 without; the matrix's other features cost far more."""
    return int(dense_block_size(matrix.indptr, matrix.indices)[0])


def known_of(matrix: Matrix, partitioner: str, threads: int = 1) -> Known:
    """What is known of a matrix in an order; kept with its pattern."""
    return Known(matrix.pattern_cache, partitioner, threads)


def given_of(plan: Plan, matrix: Matrix) -> Given:
    """What a plan with a known variant lays out, and how; its options are those that the variant has."""
    pattern, known = ordered(matrix, plan.partitioner).pattern, known_of(matrix, plan.partitioner, plan.threads)
    bits = index_bits(plan.variant, matrix.n)
    return Given(pattern, matrix.dtype, bits, sigma_of(plan), block_of(plan, matrix), known)


def sigma_of(plan: Plan) -> int:
    """Rows of the sorting window of a plan; 1 where its variant has none."""
    return plan.typed.sigma if layout_of(plan.variant).sorts else 1


def block_of(plan: Plan, matrix: Matrix) -> int:
    """The block size of a block variant; 1 for the others, which do not need the pattern searched for blocks."""
    return block_size(matrix) if layout_of(plan.variant).has_blocks and plan.partitioner == "natural" else 1


def laid_out(matrix: Matrix, plan: Plan) -> tuple[Ordered, Format]:
    """The matrix in the plan's order, and its pattern in the plan's variant; values are zero."""
    return ordered(matrix, plan.partitioner), layout_of(plan.variant).lay_out(given_of(plan, matrix))


def laying_out(matrix: Matrix, plan: Plan) -> Callable[[], Format]:
    """What makes that layout anew; it holds the pattern of the matrix, and no values."""
    return partial(layout_of(plan.variant).lay_out, given_of(plan, matrix))


def lay_out(
    pattern: Pattern, dtype: np.dtype[Any], variant: str, *, sigma: int, block: int, known: Known | None = None
) -> Format:
    """Lay `pattern` out as a `variant` that it can have. Values are not filled in."""
    bits = index_bits(variant, pattern.columns)
    return layout_of(variant).lay_out(Given(pattern, dtype, bits, sigma, block, known or Known({}, "")))


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
