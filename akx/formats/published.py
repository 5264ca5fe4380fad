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
    part = np.repeat(np.arange(count), nodes)
    index = np.arange(part.size) - np.repeat(np.cumsum(nodes) - nodes, nodes)
    mine, rows = index < own[part], parts.rows.astype(np.int64)
    owner, place = (np.zeros(parts.blocked.pattern.rows, dtype=np.int64) for _ in range(2))
    owner[rows[mine]], place[rows[mine]] = part[mine], index[mine] * shape.bc
    reader, read = part[~mine], rows[~mine]
    assert (place[read] + shape.bc <= givens[owner[read]]).all(), "what others read is not published"
    found = (given[owner[read]] + place[read])[:, None] + np.arange(shape.bc)
    if parts.blocked.listed is not None:
        found = np.where(parts.blocked.listed[read] == NOWHERE, np.int64(NOWHERE), found)
    pairs = np.unique(np.stack([reader, owner[read]], axis=1), axis=0)
    back = ~np.isin(pairs[:, 1] * count + pairs[:, 0], pairs[:, 0] * count + pairs[:, 1])
    waiting, watched = pairs[back, 1], pairs[back, 0]  # who is read from, and by whom
    assert (givens[watched] > 0).all(), "a part that reads publishes nothing"
    of = np.concatenate([np.repeat(reader, shape.bc), waiting])
    halo = np.concatenate([found.reshape(-1), given[watched]])[np.argsort(of, kind="stable")]
    halos = np.bincount(of, minlength=count)
    table["given"], table["givens"] = given[:-1], givens
    table["halo"], table["halos"] = np.cumsum(halos) - halos, halos
    return Published(table, halo.astype(np.uint32), int(given[-1]))
