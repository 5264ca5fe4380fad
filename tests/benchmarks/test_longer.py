"""Short searches beside a long one: what is asked for, what is compared with what, and the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pretended import TunerSeconds

from akx.core.plan import Plan
from akx.tuner import measure
from benchmarks import calls as timed_calls
from benchmarks import longer, record, samplers
from benchmarks.gallery import small

BEST = Plan("cpu", "wavefront", "bell", k=4, k_per_pass=4, block_bytes=2**18, threads=2)
GOOD, POOR = BEST.replace(variant="csr"), BEST.replace(variant="sell")
SECONDS = {BEST: 2e-3, GOOD: 2.1e-3, POOR: 2.5e-3}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """With 30 trials a tuning finds POOR, with 60 GOOD, with more BEST."""
    time, given = TunerSeconds(), []

    def tune(A: Any, k: int, **options: Any) -> Any:
        given.append({"k": k, **options})
        trials = options["settings"].trials
        plan = {30: POOR, 60: GOOD}.get(trials, BEST)
        return SimpleNamespace(plan=plan, tuning_seconds=float(trials), trials=[None] * (trials - 1))

    def powers(A: Any, k: int, *, plan: Plan, backend: str) -> Callable[..., None]:
        return lambda x, out: time.sleep(SECONDS[plan])

    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    monkeypatch.setattr(longer, "compile_kernels", lambda dtype, threads: 0)
    monkeypatch.setattr(longer, "tune", tune)
    monkeypatch.setattr(timed_calls, "MatrixPowers", powers)
    monkeypatch.setattr(samplers, "GALLERY", {"brick": lambda: small("brick")})
    return given


def test_each_search_has_its_trials_and_their_plans_are_timed_in_turns(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "longer.json"
    given = ["--matrix", "brick", "--k", "4", "--seconds", "99", "-o", str(out)]
    assert longer.main(given) == 0
    settings = [one["settings"] for one in asked]
    assert sorted(one.trials for one in settings) == [30, 60, 600]
    assert all(one.patience == one.trials and one.seconds == 99 for one in settings), "nothing else ends them"
    assert len({one.seed for one in settings}) == 3
    assert all(one["db"] is False and one["k"] == 4 for one in asked)
    (entry,) = json.loads(out.read_text())["matrices"]
    found = {one["allowed"]: one for one in entry["searches"]}
    assert [found[trials]["share"] for trials in (30, 60, None)] == [
        pytest.approx(0.8),
        pytest.approx(20 / 21),
        pytest.approx(1.0),
    ]
    assert (found[30]["plan"], found[30]["trials"], found[None]["trials"]) == (POOR.label(), 29, 599)
    assert found[60]["call_seconds"] == pytest.approx(2.1e-3)
    said = capsys.readouterr().out
    assert "| brick | 4 | 0.80 | 0.95 | 1.00 | 599 | 30, 60, 600 |" in said
    assert "| least |  | 0.80 | 0.95 | 1.00 |  |  |" in said
    assert longer.main([*given, "--table"]) == 0
    assert capsys.readouterr().out == said


def test_another_matrix_is_added_and_the_same_replaced(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "longer.json"
    for k in ("4", "5", "4"):
        assert longer.main(["--matrix", "brick", "--k", k, "-o", str(out)]) == 0
    assert [one["k"] for one in json.loads(out.read_text())["matrices"]] == [5, 4]


def test_on_a_gpu_plans_are_timed_there_and_have_a_file_of_their_own(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    time = TunerSeconds()
    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    timed: list[list[Plan]] = []

    def calls(backend: str, matrix: Any, k: int, plans: list[Plan]) -> list[Callable[[], None]]:
        timed.append(plans)
        return [lambda: time.sleep(1e-3)] * len(plans)

    monkeypatch.setattr(longer, "calls_of", calls)
    monkeypatch.setattr(longer, "origin_of", lambda backend: dict(record.provenance(1)))
    monkeypatch.setattr(longer, "_RESULTS", {"cpu": tmp_path / "no.json", "cuda": tmp_path / "longer_gpu.json"})
    monkeypatch.setattr(longer, "_MATRICES", {"cpu": (), "cuda": (("brick", 16),)})
    monkeypatch.setattr(longer, "_PAGE", None)
    assert longer.main(["--backend", "cuda"]) == 0
    assert [(one["backend"], one["k"]) for one in asked] == [("cuda", 16)] * 3
    assert timed == [[BEST, GOOD, POOR]]
    assert len(json.loads((tmp_path / "longer_gpu.json").read_text())["matrices"]) == 1
    with pytest.raises(SystemExit):
        longer.main(["--processes", "2"])
    assert "take one another's cores" in capsys.readouterr().err
