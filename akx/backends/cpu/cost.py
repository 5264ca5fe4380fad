"""Counts for cost models of the CPU: what plans store, read and multiply."""

from __future__ import annotations

import numpy as np

from akx.backends.cpu.layout import aligned_cuts, given_of, ordered
from akx.backends.cpu.variants import layout_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.partition.permutation import block_dependencies

__all__ = ["bytes_per_entry", "front_share", "has_front", "largest_share", "multiplied", "padding_of", "stored_bytes"]

#: A front that is wider than this share of the rows, and than so many rows, is no front: nothing would be reused.
_WIDEST, _NARROW = 0.5, 4096


def bytes_per_entry(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of matrix data per entry, padding left out: exact for CSR."""
    return layout_of(plan.variant).bytes_per_entry(given_of(plan, matrix))


def padding_of(plan: Plan, matrix: Matrix) -> float:
    """Values stored for each entry of the matrix, where all rows are laid out in one order."""
    return layout_of(plan.variant).padding(given_of(plan, matrix))


def multiplied(plan: Plan, matrix: Matrix) -> float:
    """Values multiplied for each entry of the matrix, where all rows are laid out in one order."""
    return layout_of(plan.variant).multiplied(given_of(plan, matrix))


def stored_bytes(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of the matrix as it is laid out, padding included."""
    return bytes_per_entry(plan, matrix) * matrix.nnz * padding_of(plan, matrix)


def largest_share(plan: Plan, matrix: Matrix) -> float:
    """Work of the thread that has most over the mean, where each has whole windows, chunks or slices of rows."""
    unit = layout_of(plan.variant).rows_together(given_of(plan, matrix))
    shares, rows = plan.threads, matrix.n
    whole = shares * unit
    largest = min(-(-rows // whole) * unit, rows - (shares - 1) * (rows // whole) * unit)
    return max(1.0, largest * shares / max(rows, 1))


def front_share(matrix: Matrix, partitioner: str) -> float:
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
    share = front_share(matrix, partitioner)
    return share * matrix.n <= _NARROW or share <= _WIDEST
