"""A minute of calls that are tuned as they are made: what is compared with what, and the table."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.tuner.online.threads import NAME
from benchmarks import online


def test_calls_are_compared_with_as_many_of_the_tuned_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    time = SimpleNamespace(now=0.0)

    class Powers:
        def __init__(self, A: Any, k: int, *, db: Any, backend: str, tune: str | None = None) -> None:
            self.seconds = 2.2e-3 if tune else 2e-3
            self.plan = SimpleNamespace(label=lambda: "sweep")
            budget, candidates = SimpleNamespace(spent=0.05), SimpleNamespace()
            tried = {"slower": 3, "adopted": 1}
            search = SimpleNamespace(tried=tried, budget=budget, _candidates=candidates)
            self._prepared = SimpleNamespace(online={0: search})

        def __call__(self, x: Any, out: Any) -> None:
            time.now += self.seconds

    monkeypatch.setattr(online.time, "perf_counter", lambda: time.now)
    monkeypatch.setattr(online, "_compile", lambda matrix, backend: None)
    monkeypatch.setattr(online.akx, "MatrixPowers", Powers)
    monkeypatch.setattr(online.akx, "tune", lambda *arguments, **options: None)
    out = tmp_path / "online.json"
    given = ["--only", "brick", "--reduced", "--seconds", "2", "-o", str(out)]
    assert online.main(given) == 0
    (entry,) = json.loads(out.read_text())["online"]
    assert entry["over"] == pytest.approx(1.1)
    assert [entry["first"], entry["last"]] == pytest.approx([1.1, 1.1])
    assert entry["seconds"] >= 2.0
    assert "| brick |" in capsys.readouterr().out
    assert online.main([*given, "--table"]) == 0
    assert "| 1.100 | 1.100 | 1.100 | 0.0% | 4 | 2.5% |" in capsys.readouterr().out


def test_calls_go_on_until_nothing_is_prepared_beside_them() -> None:
    """A step that ends behind a piece is paid for by calls that are timed."""
    calls, may_end = [], threading.Event()
    thread = threading.Thread(target=may_end.wait, args=(20.0,), name=NAME)

    def call(x: Any, out: Any) -> None:
        calls.append(thread.is_alive())
        if len(calls) == 5:
            may_end.set()
            thread.join()

    thread.start()
    took, count = online._until_alone(call, np.ones(1), None, 0.0, lambda: None)
    assert calls == [True] * 5
    assert count == 5
    assert took > 0
