"""The benchmark of what stays on the GPU and of the processor's share: its search, its file and its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from akx.core.plan import Plan
from benchmarks import hybrid, markdown


class Pretended(hybrid.Bench):
    """Times of a model: a share of 0.3 is best, with a shared front and in sell16."""

    def __init__(self, name: str, A: Any) -> None:
        self.name, self.asked = name, []
        self.matrix = type("Matrix", (), {"n": 10, "nnz": 20})()
        self.device = None
        self.schedule = type("Schedule", (), {"feasible": lambda self, plan, matrix, device: None})()

    def timed(self, plan: Plan) -> dict[str, Any] | None:
        share, stays = float(plan.typed.share), 0.5 if plan.typed.stays else 0.0
        self.asked.append(plan)
        if share > 0.4:
            return None
        slow = {"csr16": 1.5, "sell16": 1.0, "bell16": 2.0}[str(plan.options.get("host", "sell16"))]
        slow *= {"shared": 1.0, "own": 1.2, "none": 1.4}[plan.typed.front]
        seconds = (1.0 - stays) * (1 - share) + 0.9 * slow * share**2 + 8 / plan.k_per_pass
        return {"seconds": seconds, "spread": 0.0, "stays": stays, "error": 0.0, "plan": plan.label()}


def test_the_share_goes_where_it_helps() -> None:
    bench = Pretended("a", None)
    found = bench.shared(Plan("cuda", "stream", "sell16-1", k=8, k_per_pass=8))
    assert found is not None
    assert "share=0.3" in found["plan"]
    assert "host=sell16" in found["plan"]
    assert "front=shared" in found["plan"]
    tried = [bench.timed(plan) for plan in list(bench.asked)]
    assert found["seconds"] == min(one["seconds"] for one in tried if one is not None)


def test_entries_are_merged_and_the_table_goes_to_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hybrid, "Bench", Pretended)
    monkeypatch.setattr(hybrid, "MATRICES", {"27-point": (4, lambda: None)})
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: None)
    monkeypatch.setattr(
        "benchmarks.gpu.provenance", lambda: {"machine": {"gpu": "a GPU"}, "commit": "c0ffee", "date": "d"}
    )
    output, page = tmp_path / "hybrid.json", tmp_path / "page.md"
    page.write_text("a\n<!-- hybrid:begin -->\n<!-- hybrid:end -->\nb\n")
    for _ in range(2):
        asked = ["-o", str(output), "--docs", str(page), "--only", "27-point", "--fraction", "0.5", "0.8"]
        assert hybrid.main(asked) == 0
    document = json.loads(output.read_text())
    assert [(one["matrix"], one["fraction"]) for one in document["hybrid"]] == [("27-point", 0.5), ("27-point", 0.8)]
    assert "a GPU, commits c0ffee" in page.read_text()
    assert page.read_text().count("| 27-point |") == 2
    with pytest.raises(SystemExit, match="2"):
        hybrid.main(["--only", "nothing"])


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: "there is none")
    assert hybrid.main(["-o", str(tmp_path / "none.json")]) == 3
    assert not (tmp_path / "none.json").exists()


def test_the_shipped_figures() -> None:
    document = json.loads(hybrid.RESULTS.read_text())
    names = {one["matrix"] for one in document["hybrid"]}
    assert len(names) > 1
    assert names <= set(hybrid.MATRICES)
    for entry in document["hybrid"]:
        kinds = [one for key, one in entry.items() if key.startswith(("products", "powers"))]
        assert len(kinds) >= 5
        assert all(one["error"] <= 1 for one in kinds)
        assert entry["products, stay"]["seconds"] < entry["products"]["seconds"]
        assert entry["powers, stay"]["seconds"] < 1.02 * entry["powers"]["seconds"]
    page = hybrid.PAGE.read_text()
    assert markdown.replace_block(page, "hybrid", hybrid.table(document)) == page
