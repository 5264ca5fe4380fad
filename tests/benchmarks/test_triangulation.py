"""Triangulations in windows against one of all points."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import Delaunay

from benchmarks import triangulation
from benchmarks.splitmix import uniform


@pytest.mark.parametrize(("n", "points"), [(4, 100), (300, 1000), (3000, 700), (20_000, 3000)])
def test_windows_give_the_edges_of_all_points(n: int, points: int) -> None:
    places = uniform(n, 2 * n).reshape(n, 2)
    indptr, neighbours = Delaunay(places).vertex_neighbor_vertices
    first = np.repeat(np.arange(n), np.diff(indptr))
    expected = np.sort((first * n + neighbours)[first < neighbours])
    assert np.array_equal(triangulation.edges(places, points=points), expected)


def test_a_missing_triangle_is_told_of() -> None:
    """Points in two heaps: what lies between them reaches over windows."""
    places = uniform(9, 4000).reshape(2000, 2)
    places[:, 1] = np.where(places[:, 1] < 0.5, 0.1 * places[:, 1], 1.0 - 0.1 * places[:, 1])
    with pytest.raises(ValueError, match="a window is too small"):
        triangulation.edges(places, points=200)
