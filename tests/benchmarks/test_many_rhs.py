"""Several right-hand sides in one call and one by one: the harness on a small matrix."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import many_rhs


def test_what_columns_take_together_and_one_by_one(tmp_path: Path) -> None:
    output, page = tmp_path / "many_rhs.json", tmp_path / "page.md"
    page.write_text("<!-- many_rhs:begin -->\n<!-- many_rhs:end -->\n")
    assert many_rhs.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0
    (entry,) = json.loads(output.read_text())["several"]
    for columns in ("4", "16"):
        taken = entry[columns]
        assert all(way["failed"] == 0 and way["seconds"] > 0 for way in taken.values())
        assert taken["akx, each"]["passes"] == taken["akx, each"]["products"]
    assert entry["16"]["one call"]["passes"] < entry["16"]["akx, each"]["passes"] / 16
    assert "| small | cg | 16 |" in page.read_text()
