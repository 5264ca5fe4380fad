"""Supervariables: rows with the same columns which, as columns, have the same rows; wherever they are in the matrix.

The unknowns of a node of a discretisation are such rows, whatever the order of the unknowns. Where they follow one
another :func:`akx.formats.natural_blocks.natural_nodes` finds them, and also those of which an entry is missing here
and there; here each row and each column is named by a sum of random numbers of its entries, those with the same name
are compared, and runs of more than six are cut evenly. One pass over the entries, one over those of all but one row of
each, a sort.

Source: Duff and Reid, ACM TOMS 22 (1996), section 2.5 ("supervariables"); Ashcraft, SISC 16 (1995), for the names
("compressed graphs").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit
from akx.formats.base import Pattern, even_pieces, same_columns
from akx.formats.natural_blocks import MOST, Nodes

__all__ = ["Supervariables", "looked_at", "of_nodes", "supervariables", "twins"]

#: Rows that are looked at first.
_SOME = 256


@dataclass(frozen=True)
class Supervariables:
    """Sets of at most six rows, and the dense blocks that they cut a pattern into.

    `rows` (n,) int64: rows, set after set; ascending in each, and the first rows of the sets ascending. `cuts`
    (sets+1,) int64: where each set begins in `rows`, and n. `counts` (sets, 6) int32: blocks of each set with 1 to 6
    columns. `exact`: the rows of each set are known to have the same columns.
    """

    rows: NDArray[np.int64]
    cuts: NDArray[np.int64]
    counts: NDArray[np.int32]
    exact: bool

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each set."""
        return np.diff(self.cuts)


def of_nodes(nodes: Nodes) -> Supervariables:
    """Natural nodes as sets of rows."""
    return Supervariables(np.arange(nodes.cuts[-1], dtype=np.int64), nodes.cuts, nodes.counts, exact=False)


def twins(pattern: Pattern) -> float:
    """Share of the rows that have the columns of another one which they are coupled with, by a look at some of them."""
    rows = looked_at(pattern.rows)
    return float(_twins(pattern.indptr, pattern.indices, rows)) / max(rows.size, 1) if pattern.rows else 0.0


def looked_at(rows: int) -> NDArray[np.int64]:
    """The rows that :func:`twins` looks at, of so many."""
    return np.unique(np.linspace(0, max(rows - 1, 0), _SOME).astype(np.int64))


def supervariables(pattern: Pattern) -> Supervariables:
    """The sets of rows that have the same columns and the same rows as columns.

    `pattern`: square, rows sorted.
    """
    n = pattern.rows
    numbers = np.random.default_rng(0).integers(1, 2**63, n, dtype=np.uint64)
    names = np.zeros(n, np.uint64)
    _names(pattern.indptr, pattern.indices, numbers, names)
    order = np.argsort(names, kind="stable")
    joined = np.append(False, names[order][1:] == names[order][:-1])[:n]
    _compare(pattern.indptr, pattern.indices, order, joined)
    begin = np.flatnonzero(~joined)
    run, at = even_pieces(np.diff(np.append(begin, n)), MOST)
    cuts = np.append(begin[run] + at, n)
    # By their first rows, so that what was near stays near.
    first = np.argsort(order[cuts[:-1]], kind="stable")
    sizes = np.diff(cuts)[first]
    ends = np.cumsum(sizes)
    places = np.repeat(cuts[:-1][first] - (ends - sizes), sizes) + np.arange(n)
    rows, cuts = order[places].astype(np.int64), np.append(0, ends).astype(np.int64)
    of = np.empty(n, np.int32)
    of[rows] = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    counts = np.zeros((sizes.size, MOST), np.int32)
    _count(pattern.indptr, pattern.indices, rows, cuts, of, counts)
    return Supervariables(rows, cuts, counts, exact=True)


@njit(nogil=True, cache=True)
def _twins(indptr: Any, indices: Any, rows: Any) -> int:
    found = 0
    for i in rows:
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            j = np.int64(indices[p])
            if j != i and same_columns(indptr, indices, i, j):
                found += 1
                break
    return found


@njit(nogil=True, cache=True)
def _names(indptr: Any, indices: Any, numbers: Any, names: Any) -> None:
    """A sum over the columns of each row, and one over the rows of each column."""
    for i in range(names.size):
        total = np.uint64(0)
        mine = numbers[i] * np.uint64(0x9E3779B97F4A7C15)
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            j = np.int64(indices[p])
            total += numbers[j]
            names[j] += mine
        names[i] += total


@njit(nogil=True, cache=True)
def _compare(indptr: Any, indices: Any, order: Any, joined: Any) -> None:
    """Let go of rows whose name is that of the row before by chance, or which have no entries."""
    for place in range(1, order.size):
        i = order[place]
        if joined[place]:
            joined[place] = indptr[i] < indptr[i + 1] and same_columns(indptr, indices, order[place - 1], i)


@njit(nogil=True, cache=True)
def _count(indptr: Any, indices: Any, rows: Any, cuts: Any, of: Any, counts: Any) -> None:
    """Blocks of each set by their columns, from its first row."""
    seen = np.full(cuts.size - 1, -1, np.int32)
    for node in range(cuts.size - 1):
        i = rows[cuts[node]]
        for p in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
            column = of[np.int64(indices[p])]
            if seen[column] != node:
                seen[column] = node
                counts[node, cuts[column + 1] - cuts[column] - 1] += 1
