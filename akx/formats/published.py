"""What parts publish for one another: a place for each row that others read, and where each part finds its halo.

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

from akx.formats.parts import NOWHERE, WARP, Parts

__all__ = ["Published", "published"]


@dataclass(frozen=True)
class Published:
    """Places of what parts publish.

    Attributes
    ----------
    parts : (parts,) array of PART
        With `given`, `givens`, `halo` and `halos`.
    halo : array of uint32
        Part after part the places of its halo, bc for each node, :data:`~akx.formats.parts.NOWHERE` for what fills a
        node up; then of what it only waits for.
    places : int
        Of all parts, for one vector.
    """

    parts: NDArray[Any]
    halo: NDArray[np.uint32]
    places: int


def published(parts: Parts) -> Published:
    """Places for parts that have something published as soon as they read from others (`border` is not 0)."""
    table, shape, count = parts.parts.copy(), parts.shape, parts.parts.size
    nodes, own, border = (table[name].astype(np.int64) for name in ("nodes", "own", "border"))
    givens = np.minimum(border * (WARP // shape.lanes) * shape.br, own * shape.bc)
    given = np.concatenate([[0], np.cumsum(givens)])
    ptr, rows = np.concatenate([[0], np.cumsum(nodes)]), parts.rows
    owner = np.full(parts.blocked.pattern.rows, count, dtype=np.int64)
    place, places = np.zeros(owner.size, dtype=np.int64), np.arange(int(own.max(initial=0))) * shape.bc
    for g in range(count):  # of nodes that are not published nothing is asked
        named = rows[ptr[g] : ptr[g] - -givens[g] // shape.bc]
        owner[named], place[named] = g, places[: named.size]
    read = np.concatenate([rows[:0], *(rows[ptr[g] + own[g] : ptr[g + 1]] for g in range(count))])
    reader = np.repeat(np.arange(count), nodes - own)
    assert (place[read] + shape.bc <= np.append(givens, 0)[owner[read]]).all(), "what others read is not published"
    found = (given[owner[read]] + place[read])[:, None] + np.arange(shape.bc)
    if parts.blocked.listed is not None:
        found = np.where(parts.blocked.listed[read] == NOWHERE, np.int64(NOWHERE), found)
    reads = np.zeros((count, count), dtype=bool)
    reads[reader, owner[read]] = True
    watched, waiting = np.nonzero(reads & ~reads.T)  # who reads and is not read from, and from whom
    assert (givens[watched] > 0).all(), "a part that reads publishes nothing"
    of_halo = shape.bc * np.bincount(reader, minlength=count)
    halos = of_halo + np.bincount(waiting, minlength=count)
    begin = np.cumsum(halos) - halos
    halo = np.empty(int(halos.sum()), dtype=np.uint32)
    places = begin - (np.cumsum(of_halo) - of_halo)
    halo[np.arange(found.size) + np.repeat(places, of_halo)] = found.reshape(-1)
    order = np.argsort(waiting, kind="stable")
    before = np.cumsum(halos - of_halo) - (halos - of_halo)
    at = np.arange(order.size) - np.repeat(before, halos - of_halo) + (begin + of_halo)[waiting[order]]
    halo[at] = given[watched[order]]
    table["given"], table["givens"] = given[:-1], givens
    table["halo"], table["halos"] = begin, halos
    return Published(table, halo, int(given[-1]))
