"""Delaunay triangulations of many random points in the unit square, in windows, so that memory stays small.

A triangle of a part of the points is one of all of them where its circle has no other point within. Of a window, which
is a strip across the square with a margin, that is sure where the circle, as far as it is in the square, lies in the
window. Triangles at the border are long, as a hull has few points: a strip along each side has those. A planar graph
that is triangulated has 3 n - 3 - h edges, with h points on its hull: then none is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, Delaunay

from akx.core.parallel import in_pieces
from akx.core.process import available_cores

__all__ = ["edges"]

#: Points of a window, about, but for those in its margins; the margin, in mean distances of points (of 8 million points
#: at random the widest empty circle is about 5 across); and windows at once, each of about 0.1 GB.
_POINTS, _MARGIN, _THREADS = 125_000, 6.0, 8


def edges(places: NDArray[np.float64], *, points: int = _POINTS) -> NDArray[np.int64]:
    """The edges of the Delaunay triangulation, sorted: n i + j for points i < j, (edges,).

    Parameters
    ----------
    places : (n, 2) float64 array, in the unit square and in no special position
    points : int
        Of a window, about.

    Raises
    ------
    ValueError
        Where a triangle is missing: points are not spread evenly.
    """
    n = len(places)
    margin = _MARGIN / np.sqrt(n)
    strips = max(1, round(n / points))
    # Axis that bounds a window, and from where to where.
    windows = [(1, strip / strips - margin, (strip + 1) / strips + margin) for strip in range(strips)]
    if strips > 1:
        windows += [(0, -np.inf, margin), (0, 1.0 - margin, np.inf)]
        windows[0] = (1, -np.inf, windows[0][2])
        windows[strips - 1] = (1, windows[strips - 1][1], np.inf)
    else:
        windows = [(1, -np.inf, np.inf)]
    found = in_pieces(
        lambda begin, end: [_of_window(places, *window) for window in windows[begin:end]],
        len(windows),
        1,
        threads=min(_THREADS, available_cores()),
    )
    keys = np.concatenate([part for parts in found for part in parts])
    del found
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    border = np.flatnonzero((np.abs(places - 0.5) > 0.5 - margin).any(axis=1))
    hull = len(ConvexHull(places[border]).vertices)
    if len(keys) != 3 * n - 3 - hull:
        raise ValueError(f"{len(keys)} edges of {3 * n - 3 - hull}: a window is too small for its triangles")
    return keys


def _of_window(places: NDArray[np.float64], axis: int, low: float, high: float) -> NDArray[np.int64]:
    """Edges of triangles that are sure to be of all points."""
    n = len(places)
    along = places[:, axis]
    inside = np.flatnonzero((along >= low) & (along <= high))
    if len(inside) < 4:
        return np.zeros(0, dtype=np.int64)
    # A triangulator is faster on points in spatial order: there and back in narrow lanes.
    lane = (places[inside, axis] * np.sqrt(n) / 2).astype(np.int64)
    across = places[inside, 1 - axis]
    inside = inside[np.lexsort((np.where(lane % 2, across, -across), lane))]
    corners = inside[Delaunay(places[inside]).simplices]
    if np.isfinite(low) or np.isfinite(high):
        middle, radius = _circles(places, corners)
        beside = middle[:, 1 - axis] - np.clip(middle[:, 1 - axis], 0.0, 1.0)  # how far the centre is out of the square
        half = np.sqrt(np.maximum(radius * radius - beside * beside, 0.0))
        slack = 1e-9
        kept = (middle[:, axis] - half > low + slack) & (middle[:, axis] + half < high - slack)
        corners = corners[kept]
    corners.sort(axis=1)
    keys: Any = np.concatenate([n * corners[:, a] + corners[:, b] for a, b in ((0, 1), (0, 2), (1, 2))])
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def _circles(
    places: NDArray[np.float64], corners: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centres and radii of the circles through three points each; infinite or not a number where they are in line."""
    origin = places[corners[:, 0]]
    a, b = places[corners[:, 1]] - origin, places[corners[:, 2]] - origin
    with np.errstate(all="ignore"):
        doubled = 2.0 * (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
        aa, bb = a[:, 0] ** 2 + a[:, 1] ** 2, b[:, 0] ** 2 + b[:, 1] ** 2
        x = (b[:, 1] * aa - a[:, 1] * bb) / doubled
        y = (a[:, 0] * bb - b[:, 0] * aa) / doubled
        return origin + np.stack([x, y], axis=1), np.sqrt(x * x + y * y)
