"""Mixed precision beside double: the harness on a small matrix."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import mixed


def test_steps_and_times_of_both(tmp_path: Path) -> None:
    output, page = tmp_path / "mixed.json", tmp_path / "page.md"
    page.write_text("<!-- mixed:begin -->\n<!-- mixed:end -->\n")
    assert mixed.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0
    (entry,) = json.loads(output.read_text())["mixed"]
    for ways in entry["methods"].values():
        for way in ways.values():
            assert (way["info"], way["false"]) == (0, False)
    assert any("steps in float32" in note for note in entry["methods"]["gmres"]["mixed"]["notes"])
    assert "| wind 60^2 (small) | gmres |" in page.read_text()
