"""Looks at two threads after a pause: what a look has, how checkouts are compared, and the table."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cores, samplers
from benchmarks.gallery import small

_ROOT = Path(__file__).resolve().parents[2]


def test_a_look_has_seconds_of_both_and_the_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "made", lambda name: samplers.Matrix.from_any(small("brick")))
    (look,) = cores.looks("brick", 1, pause=0.0)
    assert 0 < look["alone"] < 1
    assert 0 < look["together"] < 1
    assert look["switches"] >= 0


def test_checkouts_are_looked_at_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    real = subprocess.run
    other = tmp_path / "other"
    other.mkdir()

    def run(command: list[str], **options: Any) -> Any:
        if command[0] == "git":
            if str(other) in command:
                return SimpleNamespace(stdout="feedc0de" * 5 + "\n")
            return real(command, **options)
        asked.append(options["env"]["PYTHONPATH"])
        together = 3e-5 if asked[-1] == str(other) else 1e-5
        looks = [{"alone": 2e-5, "together": together, "switches": 1.5}] * int(command[-1])
        return SimpleNamespace(stdout=json.dumps(looks))

    monkeypatch.setattr(cores.subprocess, "run", run)
    out = tmp_path / "cores.json"
    assert cores.main(["--before", str(other), "-o", str(out)]) == 0
    assert asked == [str(other), str(_ROOT)] * 16
    found = json.loads(out.read_text())["found"]
    assert [entry["ratio"]["median"] for entry in found] == [1.5, 0.5] * 2
    assert [entry["slower"] for entry in found] == [1.0, 0.0] * 2
    assert {entry["looks"] for entry in found} == {96}
    assert "| dw8192 | feedc0defe | 96 | 1.50 | 1.50 | 100% | 1.50 |" in capsys.readouterr().out
