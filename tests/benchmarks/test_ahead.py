"""Searches with processes ahead and without: what is compared, and the table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akx.core.plan import Plan
from akx.tuner.search import tune as tuning
from akx.tuner.warmup import compile_ahead as forerunners
from benchmarks import ahead, gpu, record, samplers
from benchmarks.gallery import small


def test_both_begin_with_nothing_compiled_and_one_has_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, str | None]] = []

    def tune(matrix: Any, k: int, **options: Any) -> Any:
        store = os.environ.get("AKX_CUBIN_DIR")
        asked.append((tuning.processes_ahead(None, 2**36), store))  # type: ignore[arg-type]
        trial = SimpleNamespace(elapsed=0.5, prepare_seconds=0.4, timing_seconds=0.05)
        found = SimpleNamespace(trials=[trial] * 20, tuning_seconds=10.0 / (1 + asked[-1][0]), stopped="no improvement")
        return SimpleNamespace(**vars(found), seconds=1e-5, spread=0.01, plan=Plan("cuda", "sweep", "csr-1", k=k))

    machine = {"processor": "a GPU", "threads": 1}
    monkeypatch.setenv("AKX_CUBIN_DIR", "the user's")
    monkeypatch.setattr(ahead, "tune", tune)
    monkeypatch.setattr(forerunners, "processes_ahead", lambda problem, memory_bytes: 3)
    monkeypatch.setattr(samplers, "GALLERY", {"brick": lambda: small("brick")})
    monkeypatch.setattr(gpu, "origin_of_table", lambda threads: {**record.provenance(1), "machine": machine})
    out = tmp_path / "ahead.json"
    assert ahead.main(["--matrix", "brick", "--k", "4", "-o", str(out)]) == 0
    (first, store), (none, one), (some, other) = asked
    assert (first, store, none, some) == (0, "the user's", 0, 3)
    assert one is not None
    assert other is not None
    assert one != other
    assert not Path(one).exists()
    assert tuning.processes_ahead is not forerunners.processes_ahead
    (entry,) = json.loads(out.read_text())["searches"]
    assert (entry["processes"], entry["alone"]["trials"], entry["ahead"]["tuning_seconds"]) == (3, 20, 2.5)
    assert ahead.main(["--table", "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "| brick | 4 | 0 | 20 | 10.0 | 0.50 | 0.05 | 10.0 |" in text
    assert "| brick | 4 | 3 | 20 | 2.5 | 0.50 | 0.05 | 10.0 |" in text
