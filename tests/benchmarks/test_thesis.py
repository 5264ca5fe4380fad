"""The page of the thesis' experiments: it is what the results say, and ghost zones that fit a budget do fit it."""

from __future__ import annotations

from akx.core.matrix import Matrix
from benchmarks import gallery, thesis
from benchmarks.thesis import ghosts_within


def test_the_page_is_up_to_date() -> None:
    assert thesis.main(["--check"]) == 0


def test_ghost_zones_within_a_budget() -> None:
    matrix = Matrix.from_any(gallery.stencil((60, 60), 9))
    once = 12 * matrix.nnz + 4 * (matrix.n + 1)
    found = [ghosts_within(matrix, k, once // 2) for k in (1, 4, 8)]
    assert all(one is not None for one in found)
    redundancies = [one[1] for one in found if one is not None]
    assert redundancies[0] == 1.0 < redundancies[1] < redundancies[2]
    assert ghosts_within(matrix, 40, once // 50) is None


def test_the_page_without_figures_says_so() -> None:
    text = thesis.page({"stream": [], "powers": []}, {})
    assert "not measured yet" in text
    assert "Not worked out yet" in text
    assert "1.4 times" in text
