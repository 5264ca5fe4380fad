"""Seconds of akx info: the harness on a small matrix, and what the figures have to be."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import info


def test_a_file_is_looked_at_by_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "measured", partial(info.measured, times=1))  # each takes seconds
    output, page = tmp_path / "info.json", tmp_path / "page.md"
    page.write_text("a\n<!-- info:begin -->\n<!-- info:end -->\nb\n")
    assert info.main(["--only", "brick", "--reduced", "-o", str(output), "--docs", str(page)]) == 0
    (entry,) = json.loads(output.read_text())["info"]
    assert len(entry["all"]) == 1
    assert 0 < entry["read_seconds"] < entry["seconds"]
    assert entry["peak_bytes"] > 2**20
    line = f"| brick | {entry['rows']:,} | {entry['nnz']:,} | {entry['seconds']:.1f} |"
    assert line in page.read_text()
    assert line in capsys.readouterr().out


def test_a_command_that_fails_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        info.measured("hole", sp.csr_array(np.array([[np.nan, 1.0], [0.0, 1.0]])), tmp_path)
    assert failed.value.output


def test_ten_million_entries_take_ten_seconds_at_most() -> None:
    entries = json.loads(info.RESULTS.read_text())["info"]
    assert max(entry["nnz"] for entry in entries) >= 10_000_000
    assert max(entry["seconds"] for entry in entries) < 10.0
