"""A basis rounded to single precision: the harness on a small matrix."""

from __future__ import annotations

import json
from pathlib import Path

from akx.solvers.arnoldi import Arnoldi
from benchmarks import stored_basis


def test_steps_of_all_ways(tmp_path: Path) -> None:
    output, page, step = tmp_path / "stored_basis.json", tmp_path / "page.md", Arnoldi.step
    page.write_text("<!-- stored_basis:begin -->\n<!-- stored_basis:end -->\n")
    assert stored_basis.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0
    assert Arnoldi.step is step
    (entry,) = json.loads(output.read_text())["matrices"]
    ways = [entry[way] for way in ("double", "stored", "mixed")]
    assert [(way["info"], way["false"]) for way in ways] == [(0, False)] * 3
    assert any("steps in float32" in note for note in entry["mixed"]["notes"])
    assert abs(entry["stored"]["steps"] - entry["double"]["steps"]) <= 2
    assert "| grid | 256 |" in page.read_text()
