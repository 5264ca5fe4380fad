"""Blocks in two stages: the harness on a small matrix, and that the prototype makes the steps of gmres."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from akx.krylov.orthogonalize import Orthogonalizer
from akx.solvers.ca_gmres import _Steps
from benchmarks import two_stage


def test_steps_and_losses_of_all_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_stage, "_WAYS", {30: two_stage._WAYS[30]})
    output, page = tmp_path / "two_stage.json", tmp_path / "page.md"
    page.write_text("<!-- two_stage:begin -->\n<!-- two_stage:end -->\n")
    own = _Steps._several, _Steps.end, Orthogonalizer.append_block
    assert two_stage.main(["--reduced", "-o", str(output), "--docs", str(page)]) == 0
    assert (_Steps._several, _Steps.end, Orthogonalizer.append_block) == own
    (entry,) = json.loads(output.read_text())["matrices"]
    short, long, two, panel, local = entry["30"]
    assert len({way["steps"] for way in entry["30"]}) == 1
    assert max(way["attained"] for way in entry["30"]) < 2e-15
    assert max(two["lost"], panel["lost"]) < 1e-12
    assert max(short["lost"], long["lost"], local["lost"]) < 1.5e-8
    assert "| wind |" in page.read_text()


def test_words_of_a_cycle() -> None:
    # blocks of 2 behind 1 and 3 rows: (3 + 5) read twice and 4 written; a panel of 4 behind 1: 5 read twice, 4 written
    assert two_stage.words(4, 2, "", 0) == (20 / 4, (4 * 3 * 2 + 4 * 5 * 2) / 4)
    assert two_stage.words(4, 2, "two", 4) == (34 / 4, (64 + 4 * 5 * 4) / 4)
    assert two_stage.words(4, 2, "local", 2) == ((8 + 8 + 12) / 4, (24 + 24 + 40) / 4)
