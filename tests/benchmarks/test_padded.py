"""Padded CSR from recordings: which plans count, and what is compared with what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from akx.core.plan import Plan
from akx.tuner import Recording
from akx.tuner.history.result import COMPLETE, PRUNED, Trial
from akx.tuner.trace.recording import RecordedTrial
from benchmarks import padded, record_tuning


def plan(pad: int, ahead: int, variant: str = "pcsr", **more: str | int) -> Plan:
    return Plan("cuda", "sweep", variant, k=16, k_per_pass=1, options={"pad": pad, "ahead": ahead, **more})


def recorded(*trials: tuple[Plan, float, str]) -> Recording:
    """A recording of these trials alone, with the header of the one that is kept."""
    found = record_tuning.load()
    rows = tuple(
        RecordedTrial(Trial(number, one, "all", state, seconds=seconds, spread=0.0), 0, None, None)
        for number, (one, seconds, state) in enumerate(trials)
    )
    return Recording(found.path, found.key, (replace(found.runs[0], trials=rows),))


@pytest.fixture
def recording() -> Recording:
    return recorded(
        (plan(1, 2), 32e-6, COMPLETE),
        (plan(1, 2, block=512), 64e-6, COMPLETE),
        (plan(4, 2), 16e-6, COMPLETE),
        (plan(4, 1), 24e-6, COMPLETE),
        (plan(8, 2), 1e-6, PRUNED),
        (plan(8, 2, stored="table"), 1e-6, COMPLETE),
        (plan(4, 2, "csr-16"), 1e-6, COMPLETE),
    )


def test_the_fastest_complete_plan_with_values_as_they_are_counts(recording: Recording) -> None:
    assert padded.products(recording) == pytest.approx({(1, 2): 2e-6, (4, 2): 1e-6, (4, 1): 1.5e-6})


def test_gains_are_beside_no_padding_and_one_partition(recording: Recording) -> None:
    found = padded.entry(recording)
    assert found is not None
    row = padded.table({"matrices": [found]}).splitlines()[2]
    assert [cell.strip() for cell in row.split("|")[3:-1]] == ["2.0", "", "2.00", "", "1.00", "1.50", "", ""]
    assert padded.entry(recorded((plan(4, 2), 16e-6, COMPLETE))) is None


def test_a_folder_without_padded_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert padded.main([str(tmp_path), "-o", str(tmp_path / "x.json")]) == 1
    assert "no recording" in capsys.readouterr().err


def test_the_results_are_of_a_gpu_and_of_several_matrices() -> None:
    document = json.loads(padded.RESULTS.read_text())
    assert "H100" in document["recorded_on"]
    assert len(document["matrices"]) >= 5
    assert all(row["seconds"] > 0 for one in document["matrices"] for row in one["products"])
