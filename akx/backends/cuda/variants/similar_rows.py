"""Rows that are like others, of a matrix of the host or on the device: how many, and the nodes that they make.

Each is found once for a pattern. On the device it is the kernels of ``features.cuh`` and ``translate.cuh`` that look,
and the host is told how many rows are alike, or how many blocks each node has.
"""

from __future__ import annotations

from akx.backends.cuda.matrix import features
from akx.backends.cuda.variants.translate import found_nodes
from akx.backends.pattern_cache import per_pattern
from akx.core.matrix import Matrix
from akx.formats.base import pattern_of
from akx.formats.natural_blocks import Nodes, alike_rows, compared_rows, natural_nodes
from akx.formats.supervariables import looked_at, twins

__all__ = ["alike_share", "natural_nodes_of", "twin_share"]


@per_pattern
def alike_share(matrix: Matrix) -> float:
    """Share of the rows that may be of one node with the row before, by a look at some (:func:`alike_rows`)."""
    there = features.of(matrix)
    if there is None:
        return float(alike_rows(pattern_of(matrix)))
    rows = compared_rows(matrix.n)
    return features.count_alike(there, rows) / max(rows.size, 1)


@per_pattern
def twin_share(matrix: Matrix) -> float:
    """Share of the rows that have the columns of another one which they are coupled with (:func:`twins`)."""
    there = features.of(matrix)
    if there is None or not matrix.n:
        return float(twins(pattern_of(matrix)))
    rows = looked_at(matrix.n)
    return float(features.count_twins(there, rows) / rows.size)


@per_pattern
def natural_nodes_of(matrix: Matrix) -> Nodes:
    """The natural nodes (:mod:`akx.formats.natural_blocks`)."""
    there = features.of(matrix)
    return found_nodes(*there) if there and 0 < matrix.n < 2**31 else natural_nodes(pattern_of(matrix))
