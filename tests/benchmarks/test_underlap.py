"""s steps of A M in one pass over domains: the harness on a small grid."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import underlap


def test_one_pass_does_what_is_done_with_m_between_products(tmp_path: Path) -> None:
    output, page = tmp_path / "underlap.json", tmp_path / "page.md"
    page.write_text("<!-- underlap:begin -->\n<!-- underlap:end -->\n")
    assert underlap.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0  # it compares all ways
    (entry,) = json.loads(output.read_text())["underlap"]
    (way,) = entry["ways"]
    assert (entry["domains"], way["s"]) == (9, 2)
    assert 0 < way["inside"] < 1 < way["redundancy"]
    solves = entry["solves"]
    assert all(one["info"] == 0 for one in solves.values())
    assert solves["0"]["steps"] < solves["2"]["steps"] < solves["jacobi"]["steps"]
    assert "| small |" in page.read_text()
