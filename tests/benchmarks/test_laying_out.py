"""Layouts and new values in products of their own: the harness, on a small matrix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import calm, laying_out


def test_a_matrix_is_measured_and_its_line_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calm, "_PATIENCE", 0.0)  # beside other tests there is no calm to wait for
    monkeypatch.setattr(calm, "_AGAIN", 0)
    output, page = tmp_path / "laying_out.json", tmp_path / "page.md"
    page.write_text("a\n<!-- laying_out:begin -->\n<!-- laying_out:end -->\nb\n")
    arguments = ["--only", "brick", "--reduced", "-o", str(output), "--docs", str(page)]
    assert laying_out.main(arguments) == 0
    assert laying_out.main(arguments) == 0
    (entry,) = json.loads(output.read_text())["matrices"]
    assert entry["variant"].startswith("bell")
    seconds = [entry[f"{name}_seconds"] for name in ("product", "prepare", "update", "update_behind")]
    assert all(one > 0 for one in seconds)
    assert seconds[1] > seconds[2], "new values are a part of what a preparation does"
    products = f"| {seconds[1] / seconds[0]:.0f} | {seconds[2] / seconds[0]:.1f} | {seconds[3] / seconds[0]:.1f} |"
    assert products in page.read_text()
    assert products in capsys.readouterr().out
