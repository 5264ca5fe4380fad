"""Any M in communication-avoiding solvers: the harness on a small matrix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import general_m


def test_steps_with_any_m_are_those_of_the_classic_solvers(tmp_path: Path) -> None:
    pytest.importorskip("pyamg")
    output, page = tmp_path / "general_m.json", tmp_path / "page.md"
    page.write_text("<!-- general_m:begin -->\n<!-- general_m:end -->\n")
    assert general_m.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0
    (entry,) = json.loads(output.read_text())["general_m"]
    for kind in ("diagonal", "operator", "ILU", "AMG"):
        ways = entry[kind]
        assert all(way["info"] == 0 for way in ways.values())
        assert abs(ways["gmres"]["steps"] - ways["ca_gmres"]["steps"]) <= 1
    changing = entry["changing"]
    assert changing["ca_gmres"]["info"] == 0
    assert changing["ca_gmres"]["steps"] < changing["gmres"]["steps"]
    assert "| grid | ILU |" in page.read_text()
