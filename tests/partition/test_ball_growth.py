"""Balls in the graph of a matrix, and what they say of ghost zones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.partition.ball_growth import ball_sizes, closure_and_work
from akx.partition.base import order_by_part
from akx.partition.ghost import ghost_zones


def grid(side: int, dimensions: int) -> sp.csr_array:
    """Every point with its 3^dimensions - 1 neighbours; the ends are neighbours, so that no point is special."""
    offsets = [-1, 0, 1, 1 - side, side - 1]
    line = sp.diags_array([1.0] * 5, offsets=offsets, shape=(side, side))
    found = line
    for _ in range(dimensions - 1):
        found = sp.kron(found, line)
    return sp.csr_array(found)


def sizes_of(A: Any, most: int) -> Any:
    return ball_sizes(A.indptr.view(np.uint32), A.indices.view(np.uint32), most)


def test_a_line() -> None:
    """2 r + 1 rows."""
    assert np.array_equal(sizes_of(grid(4000, 1), 200), 2 * np.arange(101) + 1)


def test_what_cannot_be_reached_does_not_count() -> None:
    pairs = sp.csr_array(sp.kron(sp.eye_array(50), np.ones((2, 2))))
    assert np.array_equal(sizes_of(pairs, 100), [1, 2])
    assert closure_and_work(sizes_of(pairs, 100), 10, 5) == (1, 1)
    assert np.array_equal(sizes_of(sp.csr_array(sp.eye_array(7)), 7), [1])


@pytest.mark.parametrize(("side", "dimensions", "edge"), [(2000, 1, 100), (120, 2, 20), (30, 3, 10)])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_cubes_cost_what_balls_say(side: int, dimensions: int, edge: int, k: int) -> None:
    """In these grids balls are cubes, so the estimate of a block in the middle is right but for its rounding."""
    A = grid(side, dimensions)
    at = np.indices((side,) * dimensions).reshape(dimensions, -1)
    inside = (np.abs(at - side // 2 + 0.5) < edge / 2).all(axis=0)
    zones = ghost_zones(A.indptr, A.indices, order_by_part(1 - inside.astype(int), 2), k)
    own, computed = zones.own(0).size, zones.ptr[0, k] - zones.ptr[0, 0]
    assert own == edge**dimensions
    closure, work = closure_and_work(sizes_of(A, A.shape[0] // 2), own, k)
    assert closure == pytest.approx(computed / own, rel=0.08)
    assert work == pytest.approx(zones.products[0] / (k * zones.entries[0, 0]), rel=0.08)


def test_beyond_the_last_radius_balls_go_on_growing_as_they_did() -> None:
    sizes = np.array([1.0, 4.0, 16.0])  # cut short
    assert closure_and_work(sizes, 4.0, 4)[0] == pytest.approx(4.0**3)
    ended = np.array([1.0, 4.0, 16.0, 16.0])  # all there is
    assert closure_and_work(ended, 4.0, 4)[0] == pytest.approx(4.0)
