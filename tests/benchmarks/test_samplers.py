"""Samplers compared on the recorded run that the repository has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from akx.tuner import read_recording
from akx.tuner.proposals import Proposals
from benchmarks import record_tuning, samplers


def test_shares_by_sampler_and_their_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(record_tuning.RECORD, tmp_path / "brick-16.jsonl")
    near, out = Proposals._near_best, tmp_path / "found.json"
    given = [str(tmp_path), "--seeds", "1", "--sampler", "local", "--sampler", "random alone", "-o", str(out)]
    assert samplers.main(given) == 0
    assert Proposals._near_best is near
    (entry,) = samplers.json.loads(out.read_text())["recordings"]
    assert (entry["matrix"], entry["k"]) == ("brick", 16)
    assert set(entry["shares"]) == {"local", "random alone"}
    for found in entry["shares"].values():
        assert set(found) == {"30", "60"}
        assert all(0 < share <= 1 for shares in found.values() for share in shares)
    best = read_recording(record_tuning.RECORD).best
    assert best is not None
    assert entry["best"]["plan"] == best.plan.label()
    said = capsys.readouterr().out
    assert "| brick | 16 |" in said
    assert "reach 95% and 97%" in said
    assert samplers.main([str(tmp_path), "--table", "-o", str(out)]) == 0
    assert capsys.readouterr().out == said


def test_without_recordings_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        samplers.main([str(tmp_path)])
    assert "no recordings in" in capsys.readouterr().err


def test_spaces_are_recorded_while_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def exhaustive(A: Any, k: int, **given: Any) -> Any:
        asked.append((k, given["name"], given["seconds"] <= 7.0))
        raise samplers.AkxError("no such thing") if given["name"] == "brick" else KeyboardInterrupt

    monkeypatch.setattr(samplers, "exhaustive", exhaustive)
    monkeypatch.setattr(samplers, "_SPACES", (("brick", 8), ("shell", 4)))
    monkeypatch.setattr(samplers, "GALLERY", {"brick": lambda: None, "shell": lambda: None})
    with pytest.raises(KeyboardInterrupt):
        samplers.main([str(tmp_path), "--record", "--seconds", "7"])
    assert asked == [(8, "brick", True), (4, "shell", True)]
    (tmp_path / "brick-8.jsonl").write_text("")
    assert samplers.record_spaces(tmp_path, 0.0, 1.0) == 0
