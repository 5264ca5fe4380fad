"""The benchmark of values in fewer bytes, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akx.backends import registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.value_compression.encodings import FULL, HALF, TABLE, ways_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import gallery, gpu, record, stored

GPU = CudaDevice("test", 0, (9, 0), 5, 40_000, 41_024, 65_536, 2**20, 2**30, 10**9, 1e12)
ORIGIN = {**record.provenance(1), "commit": "c0ffee", "machine": {"gpu": "a GPU"}}
LABEL = "cuda/resident/1x1-1 natural k=4x1 threads=1 block=256 held_slices=0 held_slots=1 keep=24 x=global"


@pytest.mark.parametrize(("name", "variant"), [("brick", "3x3-2"), ("27-point", "1x1-1")])
def test_candidates_differ_in_what_they_store_and_in_nothing_else(name: str, variant: str) -> None:
    """But for slots in registers, of which those of another way hold more, and for tables that blocks have not."""
    A = gallery.small(name)
    A.data = A.data.astype(np.float32).astype(np.float64)
    matrix = Matrix.from_any(A)
    base = Plan("cuda", "resident", variant, k=4, k_per_pass=4, options={"block": 256, "x": "shared", "keep": 24})
    schedule = registry.get("cuda", "resident")
    assert list(ways_of(matrix)) == [FULL, HALF, TABLE]
    found = {way: list(stored.candidates(matrix, base, way, GPU)) for way in ways_of(matrix)}
    assert bool(found[TABLE]) == (variant == "1x1-1")  # words are for blocks of one entry
    for way, plans in found.items():
        assert len(set(plans)) == len(plans)
        for plan in plans:
            assert plan.typed.stored == way
            assert schedule.feasible(plan, matrix, GPU) is None
            assert schedule.waste(plan, matrix, GPU) is None
    blocks = {way: [plan for plan in found[way] if plan.variant != "dia"] for way in found}  # diagonals are in full
    forms = {way: {plan.replace(options={**plan.options, "stored": FULL}) for plan in blocks[way]} for way in found}
    assert len(forms[FULL]) > 5
    assert {plan.partitioner for plan in forms[FULL]} == {"natural", "metis"}
    assert forms[FULL] <= forms[HALF]
    assert not forms[TABLE] or forms[FULL] <= forms[TABLE]


def test_all_that_is_measured_by_default_has_plans_and_the_page_has_the_table() -> None:
    plans = stored.bases_of([json.loads(path.read_text()) for path in stored.PLANS])
    assert set(stored.MATRICES) <= set(plans)
    assert {plan.schedule for plan in plans.values()} == {"resident"}
    page = stored.PAGE.read_text()
    assert "<!-- stored:begin -->" in page
    assert "<!-- stored:end -->" in page


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def stand_in(name: str, A: Any, base: Plan) -> dict[str, Any]:
        assert base.label() == LABEL
        full, half = ({"seconds": 4e-6 * step, "spread": 0.0, "plan": LABEL} for step in (10.0, 6.25))
        return {"matrix": name, "nnz": A.nnz, "k": base.k, "plans": {}, "best": {"full": full, "half": half}}

    monkeypatch.delenv("AKX_COMMIT", raising=False)
    monkeypatch.setattr(stored, "measure", stand_in)
    monkeypatch.setattr(gpu, "provenance", lambda: ORIGIN)
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: None)
    select = stored.select
    monkeypatch.setattr(stored, "select", lambda names: select(names, reduced=True))
    plans = tmp_path / "plans.json"
    plans.write_text(json.dumps({"powers": [{"matrix": "brick", "k": 4, "plan": LABEL}]}))
    return plans


def test_entries_are_merged_and_the_table_goes_to_the_page(pretended: Path, tmp_path: Path) -> None:
    output, page = tmp_path / "stored.json", tmp_path / "page.md"
    page.write_text("a\n<!-- stored:begin -->\n<!-- stored:end -->\nb\n")
    asked = ["--plans", str(pretended), "-o", str(output), "--docs", str(page), "--only", "brick"]
    for _ in range(2):
        assert stored.main(asked) == 0
    document = json.loads(output.read_text())
    assert [(entry["matrix"], entry["commit"]) for entry in document["stored"]] == [("brick", "c0ffee")]
    lines = page.read_text().splitlines()
    assert lines[2] == "Measured on one a GPU, commits c0ffee: medians."
    assert "| brick | 4 | 10.0 | 6.2 |  | 1.60 |" in lines
    assert lines[-1] == "b"


def test_a_matrix_without_a_plan_is_named(pretended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        stored.main(["--plans", str(pretended), "-o", str(tmp_path / "none.json"), "--only", "shell"])
    assert "no plan of shell" in capsys.readouterr().err


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: "there is none")
    assert stored.main(["-o", str(tmp_path / "none.json")]) == 3
    assert not (tmp_path / "none.json").exists()
