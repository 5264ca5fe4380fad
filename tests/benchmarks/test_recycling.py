"""Products of sequences of systems: the harness on a small matrix."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import recycling


def test_sequences_are_counted_with_and_without_recycled_vectors(tmp_path: Path) -> None:
    output, page = tmp_path / "recycling.json", tmp_path / "page.md"
    page.write_text("<!-- recycling:begin -->\n<!-- recycling:end -->\n")
    assert recycling.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0
    (entry,) = json.loads(output.read_text())["recycling"]
    for sequence in ("right-hand sides", "matrices"):
        ways = entry[sequence]
        assert all(len(way["products"]) == 10 and way["failed"] == 0 for way in ways.values())
        assert sum(ways["recycle=10"]["products"]) < sum(ways["gmres(30)"]["products"])
        assert sum(ways["recycle=10"]["products"]) < sum(ways["gcrotmk(k=10)"]["products"])
    assert "| grid | 10 right-hand sides |" in page.read_text()
