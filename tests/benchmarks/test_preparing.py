"""The benchmark of preparations, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from akx.core.plan import Plan
from benchmarks import gpu, planned, preparing, record

LABEL = (
    "cuda/wavefront/sell16-1 natural k=4x2 threads=1 block=512 held_slots=9 helpers=128 slack=2 slices=1 stored=table"
)
ORIGIN = {**record.provenance(1), "commit": "c0ffee", "machine": {"gpu": "a GPU"}}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def stand_in(name: str, A: Any, plan: Plan) -> dict[str, Any]:
        assert plan.label() == LABEL
        times = {"prepare_seconds": [0.5, 0.25, 0.75], "host_seconds": [0.002] * 3, "device_seconds": [0.001] * 3}
        return {"matrix": name, "rows": 4, "nnz": A.nnz, "k": plan.k, "plan": plan.label(), **times}

    monkeypatch.delenv("AKX_COMMIT", raising=False)
    monkeypatch.setattr(preparing, "measure", stand_in)
    monkeypatch.setattr(gpu, "provenance", lambda: ORIGIN)
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: None)
    powers = [{"matrix": "9-point", "k": k, "plan": LABEL.replace("k=4x2", f"k={k // 2}x2")} for k in (8, 2)]
    plans = tmp_path / "plans.json"
    plans.write_text(json.dumps({"powers": powers}))
    return plans


def test_the_plans_of_most_powers_are_taken(pretended: Path) -> None:
    assert {name: plan.label() for name, plan in planned.plans_of(json.loads(pretended.read_text())).items()} == {
        "9-point": LABEL
    }


def test_entries_are_merged_and_the_table_goes_to_the_page(
    pretended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, page = tmp_path / "preparing.json", tmp_path / "page.md"
    page.write_text("a\n<!-- preparing:begin -->\n<!-- preparing:end -->\nb\n")
    select = preparing.select
    monkeypatch.setattr(preparing, "select", lambda names: select(names, reduced=True))
    for _ in range(2):
        assert preparing.main(["--plans", str(pretended), "-o", str(output), "--docs", str(page)]) == 0
    document = json.loads(output.read_text())
    assert [(entry["matrix"], entry["commit"]) for entry in document["preparing"]] == [("9-point", "c0ffee")]
    lines = page.read_text().splitlines()
    assert lines[2] == "Measured on one a GPU, commits c0ffee: medians of 5, the slowest behind."
    nnz = document["preparing"][0]["nnz"]
    row = f"| 9-point | {nnz:,} | `cuda/wavefront/sell16-1` | 500.0 (750.0) | 2.0 (2.0) | 1.0 (1.0) |"
    assert row in lines
    assert lines[-1] == "b"


def test_calls_are_waited_for_and_the_first_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(preparing, "_synchronize", lambda: told.append("wait"))
    assert len(preparing.timed(lambda: told.append("call"))) == 5
    assert told == ["wait", "call", "wait"] * 6


def test_a_matrix_without_a_plan_is_named(pretended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        preparing.main(["--plans", str(pretended), "-o", str(tmp_path / "none.json"), "--only", "brick"])
    assert "has no plan of brick" in capsys.readouterr().err


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: "there is none")
    assert preparing.main(["-o", str(tmp_path / "none.json")]) == 3
    assert not (tmp_path / "none.json").exists()
