"""Halo exchange between parts: a place for each row that others read, and where each part finds its halo.

The first own nodes of a part, those in the slices that are computed first, have places in the order of the part, one
for each of their rows: they are written side by side. A part looks for its halo, node by node in the order of its list,
and for one row of each part that reads from it without being read by it, as where the pattern is not symmetric: that
part has read what is older when it publishes what is newer (``exchange.cuh``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.formats.base import pointers_of
from akx.formats.block_local import NOWHERE, WARP, Parts

__all__ = ["Published", "published"]


@dataclass(frozen=True)
class Published:
    """Places of what parts publish.

    `parts` (parts,) PART: with `given`, `givens`, `halo` and `halos`. `halo` (uint32): part after part the places of
    its halo, bc for each node, :data:`~akx.formats.block_local.NOWHERE` for what fills a node up; then of what it only
    waits for. `places`: of all parts, for one vector.
    """

    parts: NDArray[Any]
    halo: NDArray[np.uint32]
    places: int


def published(parts: Parts) -> Published:
    """Places for parts that have something published as soon as they read from others (`border` is not 0)."""
    table, shape, count = parts.parts.copy(), parts.shape, parts.parts.size
    nodes, own, border = (table[name].astype(np.int64) for name in ("nodes", "own", "border"))
    givens = np.minimum(border * (WARP // shape.lanes) * shape.br, own * shape.bc)
    given = pointers_of(givens)
    ptr, rows, listed = pointers_of(nodes), parts.rows, parts.blocked.listed
    place = np.full(parts.blocked.pattern.rows, NOWHERE)  # of all parts
    reads = np.zeros((count, count), dtype=bool)
    for g in range(count):
        named = rows[ptr[g] : ptr[g] + givens[g] // shape.bc]
        place[named] = given[g] + shape.bc * np.arange(named.size)
        first = table["neighbour"][g]
        reads[g, parts.neighbours[first : first + table["neighbours"][g]]] = True
    waits = reads & ~reads.T  # who reads and is not read from, and from whom
    assert (givens[waits.any(axis=1)] > 0).all(), "a part that reads publishes nothing"
    halos = shape.bc * (nodes - own) + np.count_nonzero(waits, axis=0)
    begin = np.cumsum(halos) - halos
    halo = np.empty(int(halos.sum()), dtype=np.uint32)
    for g in range(count):
        read = rows[ptr[g] + own[g] : ptr[g + 1]]
        found: NDArray[Any] = place[read]
        assert (found != NOWHERE).all(), "what others read is not published"
        if shape.bc > 1:
            found = found[:, None] + np.arange(shape.bc, dtype=np.uint32)
        if listed is not None:
            found = np.where(listed[read] == NOWHERE, NOWHERE, found)
        here = halo[begin[g] : begin[g] + halos[g]]
        here[: found.size], here[found.size :] = found.reshape(-1), given[:-1][waits[:, g]]
    table["given"], table["givens"] = given[:-1], givens
    table["halo"], table["halos"] = begin, halos
    return Published(table, halo, int(given[-1]))
