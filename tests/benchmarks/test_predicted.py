"""The plan of an untuned call beside the best on record: who is timed, and what the shares are."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp
from pretended import TunerSeconds

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import exhaustive, measure
from akx.tuner.measure import Measurement, Precision
from benchmarks import calls, predicted, samplers
from benchmarks.calm import Calm

MADE = sp.csr_array(sp.diags_array([0.2, 0.5, 0.3], offsets=[-1, 0, 1], shape=(500, 500)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of four plain products: whatever this machine measures, all of them are among the fastest four."""
    made = tmp_path_factory.mktemp("recordings")
    exhaustive(
        MADE, 4, backend="cpu", threads=1, name="lines", record=made / "lines-4.jsonl",
        space_filter=lambda plan: (plan.schedule, plan.partitioner) == ("sweep", "natural")
        and plan.variant in {"csr", "dia", "sell"}, seconds=20.0,
    )  # fmt: skip
    return made


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plans that were timed: in DIA 2 ms, in CSR 5 ms, in others 4 ms."""
    time, plans = TunerSeconds(), []

    def powers(A: Any, k: int, *, plan: Plan, backend: str) -> Callable[..., None]:
        plans.append(plan.label())
        return lambda x, out: time.sleep({"dia": 2e-3, "csr": 5e-3}.get(plan.variant, 4e-3))

    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    monkeypatch.setattr(calls, "MatrixPowers", powers)
    monkeypatch.setattr(samplers, "GALLERY", {"lines": lambda: MADE})
    return plans


def test_the_best_on_record_are_measured_again_beside_the_predicted_plan(
    folder: Path, timed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Plan("cpu", "sweep", "sell", k=4, threads=1, options={"sigma": 1})
    monkeypatch.setattr(predicted, "predict", lambda matrix, k, **given: chosen)
    out = tmp_path / "predicted.json"
    assert predicted.main([str(folder), "-o", str(out)]) == 0
    assert len(timed) == 3 * len(set(timed))  # each once in each of three passes
    assert chosen.label() in timed
    assert any("/csr " in label for label in timed)
    document = json.loads(out.read_text())
    assert document["calibrated"] in (True, False)
    (entry,) = document["predictions"]
    assert (entry["matrix"], entry["rows"], entry["k"]) == ("lines", 500, 4)
    assert entry["predicted"]["plan"] == chosen.label()
    assert "/dia " in entry["fastest"]["plan"]
    assert entry["share"] == pytest.approx(0.5)
    assert entry["shares"] == pytest.approx([0.5] * 3)
    assert (entry["whole"], entry["calm"]) == (False, True)
    assert entry["plans"] == len(samplers.read_recording(next(folder.glob("*.jsonl"))).trials)
    assert entry["baseline_share"] == pytest.approx(0.5)
    assert entry["csr_share"] == pytest.approx(1.25)
    assert entry["baseline_most"] == pytest.approx(0.5)
    said = capsys.readouterr().out
    assert "| lines | 4 |" in said
    assert "| 0.500 (to 0.500) |" in said
    assert "| least |" in said
    assert predicted.main(["--table", "-o", str(out)]) == 0
    assert capsys.readouterr().out == said


def test_a_plan_is_timed_once_however_it_is_written(
    folder: Path, timed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that is not mentioned has its default: beside itself a plan would be faster or slower by chance."""
    monkeypatch.setattr(predicted, "predict", lambda matrix, k, **given: Plan("cpu", "sweep", "dia", k=4, threads=1))
    out = tmp_path / "predicted.json"
    assert predicted.main([str(folder), "-o", str(out)]) == 0
    assert sum("/dia " in label for label in timed) == 3
    (entry,) = json.loads(out.read_text())["predictions"]
    assert entry["share"] == entry["baseline_share"] == entry["baseline_most"] == 1.0


def test_the_problems_of_a_result_file_are_compared_once_more(
    folder: Path, timed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, again, third = (tmp_path / f"{name}.json" for name in ("out", "again", "third"))
    assert predicted.main([str(folder), "-o", str(out)]) == 0
    assert predicted.main(["--again", str(out), "-o", str(again)]) == 0
    before, after = (json.loads(path.read_text())["predictions"][0] for path in (out, again))
    for what in ("matrix", "k", "plans", "whole", "candidates", "share", "baseline_share"):
        assert before[what] == after[what]
    older = json.loads(out.read_text())  # of a time when candidates were not kept
    del older["predictions"][0]["candidates"]
    out.write_text(json.dumps(older))
    assert predicted.main(["--again", str(out), "-o", str(third)]) == 0
    (entry,) = json.loads(third.read_text())["predictions"]
    assert len(entry["candidates"]) == 2
    assert entry["fastest"] == {**after["fastest"], "seconds": pytest.approx(after["fastest"]["seconds"])}


def test_plans_of_a_gpu_are_timed_in_three_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time as many rounds, with the programs of the places before still there; samples of all places count."""
    alive: list[Any] = []
    precisions: list[Precision] = []

    class Call:
        pass

    def calls_of(backend: str, matrix: Any, k: int, plans: Any) -> list[Any]:
        made = [Call() for _ in plans]
        assert all(ref() is not None for ref in alive)
        alive.extend(weakref.ref(call) for call in made)
        return made

    def interleave(made: Any, precision: Precision) -> list[Measurement]:
        precisions.append(precision)
        place = len(precisions)
        return [Measurement.of([place * (1.0 + i)] * 7) for i, _ in enumerate(made)]

    monkeypatch.setattr(calls, "calls_of", calls_of)
    monkeypatch.setattr(measure, "interleave", interleave)
    plans = [Plan("cuda", "sweep", variant, k=4) for variant in ("csr-1", "csr-2")]
    found, was_calm = calls.in_places("cuda", MADE, 4, plans, Calm(1), Precision(rounds_min=3, rounds_max=9))
    assert was_calm
    assert [one.seconds for one in found] == [2.0, 4.0]
    assert [len(one.samples) for one in found] == [21, 21]
    assert [(one.rounds_min, one.rounds_max) for one in precisions] == [(3, 9), (7, 7), (7, 7)]


def test_what_cannot_be_compared_is_said(
    folder: Path, timed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        predicted.main([str(tmp_path)])
    assert "no recordings in" in capsys.readouterr().err
    monkeypatch.setattr(predicted, "load", lambda name: None)
    with pytest.raises(SystemExit):
        predicted.main([str(folder), "-o", str(tmp_path / "nothing.json")])
    assert "no such matrix here" in capsys.readouterr().err
    assert not (tmp_path / "nothing.json").exists()


def test_recordings_are_looked_up_without_their_device(
    folder: Path, timed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "of_records.json", tmp_path / "page.md"
    page.write_text("before\n<!-- of_records:begin -->\n<!-- of_records:end -->\nafter\n")
    assert predicted.main(["--recordings", str(folder), "-o", str(out), "--docs", str(page)]) == 0
    assert timed == []
    (entry,) = json.loads(out.read_text())["predictions"]
    recording = samplers.read_recording(next(folder.glob("*.jsonl")))
    assert recording.best is not None
    assert entry["fastest"]["seconds"] == recording.best.seconds
    assert entry["predicted"]["plan"] in {plan.label() for plan in recording.trials}
    assert 0 < entry["share"] <= 1
    assert entry["share"] == pytest.approx(entry["over_baseline"] * entry["baseline_share"])
    assert "| lines | 4 |" in page.read_text()
    capsys.readouterr()
    assert predicted.main(["--table", "-o", str(out)]) == 0
    assert "| median |" in capsys.readouterr().out


def test_a_predicted_plan_that_nobody_measured_has_no_share(
    folder: Path, timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Plan("cpu", "wavefront", "csr", k=4, k_per_pass=4, threads=1)
    monkeypatch.setattr(predicted, "predicted", lambda model: chosen)
    found = predicted.look_up(samplers.read_recording(next(folder.glob("*.jsonl"))), Matrix.from_any(MADE))
    assert found["share"] is found["over_baseline"] is found["predicted"]["seconds"] is None
    document = {"recorded_on": "a device", "commit": "0" * 40, "predictions": [found, {**found, "share": 0.5}]}
    document["predictions"][1] |= {"over_baseline": 1.5, "left_out": {"plan": "another", "share": 0.25}}
    lines = predicted.recorded_table(document).splitlines()
    assert "not on record" in lines[4]
    assert "| 50% | 25% | 1.50 |" in lines[5]
    assert "| 50% | 25% | 1.50 |" in lines[6]


def test_nothing_to_look_up_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predicted.main(["--recordings", str(tmp_path), "-o", str(tmp_path / "none.json")]) == 1
    assert not (tmp_path / "none.json").exists()
    assert "nothing to look up" in capsys.readouterr().err


def test_the_model_of_now_takes_the_place_of_the_recorded_one(folder: Path) -> None:
    (path,) = folder.glob("*.jsonl")
    recording = samplers.read_recording(path)
    anew = samplers.modelled(recording, Matrix.from_any(MADE))
    assert Plan.from_json(anew.header["predicted"]) == Plan.from_json(recording.header["predicted"])
    for plan, one in recording.trials.items():
        assert anew.trials[plan].trial == one.trial
        assert anew.trials[plan].model_seconds == pytest.approx(one.model_seconds)
