"""The baseline of `stream` keeps its budget, and the shipped figures are of the form and within the bars' rules."""

from __future__ import annotations

import json

import pytest

from akx.core.matrix import Matrix
from benchmarks import gallery
from benchmarks.gpu import HISTORY
from benchmarks.streamed import blocks_of


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_blocks_of_the_baseline_fit_the_budget(slots: int) -> None:
    matrix = Matrix.from_any(gallery.stencil((70, 90), 9))
    budget = 12 * matrix.nnz // 4
    window = blocks_of(matrix, budget, slots, 16)
    assert window.slots * window.slot_bytes <= budget
    assert (window.chunks - 1) * window.rows < matrix.n <= window.chunks * window.rows


def test_the_shipped_figures() -> None:
    entries = json.loads(HISTORY.read_text())["stream"]
    for one in entries:
        assert one["speedup"] == pytest.approx(one["baseline_seconds"] / one["seconds"])
        assert one["device_bytes"] <= one["budget_bytes"] + 24 * one["k"]  # of some the coefficients came on top
        assert one["error"] <= 1
        assert one["redundancy"] >= 1
    assert {one["matrix"] for one in entries} == {"brick", "9-point", "mc2depi", "shell"}
