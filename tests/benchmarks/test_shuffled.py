"""The benchmark of matrices in random order, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import gallery, gpu, preparing, record, shuffled

ORIGIN = {**record.provenance(1), "commit": "c0ffee", "machine": {"gpu": "a GPU"}}
PLANS = {
    order: Plan("cuda", "resident", "3x3-2", partitioner, k=8, k_per_pass=8, options={"block": 256})
    for order, partitioner in zip((*shuffled.ORDERS, shuffled.FIELDS), ("natural", "metis", "natural"), strict=True)
}


def test_rows_and_columns_change_places_alike() -> None:
    A = gallery.small("brick")
    B = shuffled.shuffled(A)
    order = np.random.default_rng(0).permutation(A.shape[0])
    assert B.has_sorted_indices
    assert (sp.csr_array(A.toarray()[np.ix_(order, order)]) != B).nnz == 0
    assert (shuffled.shuffled(A) != B).nnz == 0
    assert (B != A).nnz > 0


def test_the_unknowns_of_a_node_are_as_far_apart_as_there_are_nodes() -> None:
    A = gallery.small("shell")
    B = shuffled.by_fields(A, 6)
    nodes = A.shape[0] // 6
    assert B.has_sorted_indices
    for i, j in ((0, 1), (7, 20)):
        at = [f * nodes + node for node in (i // 6, j // 6) for f in (i % 6, j % 6)]
        assert B[at[0], at[3]] == A[i // 6 * 6 + i % 6, j // 6 * 6 + j % 6]
    assert B.nnz == A.nnz


def test_matrices_are_of_the_gallery_and_the_page_has_a_place() -> None:
    assert set(shuffled.MATRICES) - {"wind"} <= set(gallery.GALLERY)
    page = shuffled.PAGE.read_text()
    assert "<!-- shuffled:begin -->" in page
    assert "<!-- shuffled:end -->" in page


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Tuning, programs and clocks of a GPU that is not there; what was tuned, and for how many seconds."""
    asked: list[tuple[str, float]] = []

    def tune(matrix: Matrix, k: int, *, seconds: float, name: str, **given: Any) -> Any:
        assert given == {"backend": "cuda", "db": False}
        assert k == 8
        asked.append((name, seconds))
        return SimpleNamespace(plan=PLANS[name.rpartition(", ")[2]], tuning_seconds=seconds)

    def time(calls: dict[str, Any]) -> dict[str, Any]:
        assert calls["natural"][1] is PLANS["natural"]
        assert calls["shuffled"][1] is PLANS["shuffled"]
        assert calls["natural"][0].nnz == calls["shuffled"][0].nnz
        orders = ("natural", "shuffled")
        names = {order: calls[order][0].fingerprint for order in orders}
        assert names["natural"] != names["shuffled"]
        assert all(calls[f"{one}, {order}"].fingerprint == names[order] for order in orders for one in ("alg", "other"))
        steps = {"natural": 4.0, "shuffled": 4.5, "by fields": 4.25}
        steps |= {"alg, natural": 10.0, "other, natural": 9.0, "alg, shuffled": 20.0, "other, shuffled": 30.0}
        return {
            name: {"seconds": 8e-6 * one, "spread": 0.01, "step_microseconds": one}
            for name, one in steps.items()
            if name in calls
        }

    def cusparse(matrix: Matrix, x: Any, k: int) -> dict[str, Any]:
        assert x.shape == (matrix.n,)
        return {"alg": (matrix, "how"), "other": (matrix, "how")}

    monkeypatch.delenv("AKX_COMMIT", raising=False)
    monkeypatch.setattr(shuffled, "tune", tune)
    monkeypatch.setattr(shuffled, "_checked_call", lambda matrix, plan: (matrix, plan))
    monkeypatch.setattr(shuffled, "cusparse_calls", cusparse)
    monkeypatch.setattr(shuffled, "_timed", time)
    ready = {"natural": [0.05, 0.0625, 0.75], "metis": [0.5] * 3}
    monkeypatch.setattr(preparing, "seconds_to_prepare", lambda matrix, plan, repeats: ready[plan.partitioner])
    monkeypatch.setattr(gpu, "provenance", lambda: ORIGIN)
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: None)
    select = shuffled.select
    monkeypatch.setattr(shuffled, "select", lambda names: select(names, reduced=True))
    return asked


def test_entries_are_merged_and_the_table_goes_to_the_page(pretended: list[tuple[str, float]], tmp_path: Path) -> None:
    output, page = tmp_path / "shuffled.json", tmp_path / "page.md"
    page.write_text("a\n<!-- shuffled:begin -->\n<!-- shuffled:end -->\nb\n")
    where = ["-o", str(output), "--docs", str(page)]
    assert shuffled.main([*where, "--only", "brick", "shell"]) == 0
    assert shuffled.main([*where, "--only", "shell", "--seconds", "7"]) == 0
    orders = (*shuffled.ORDERS, shuffled.FIELDS)
    names = [f"{name}, {order}" for name in ("brick", "shell") for order in orders]
    assert pretended == [*((name, 40.0) for name in names), *((name, 7.0) for name in names[3:])]
    document = json.loads(output.read_text())
    assert [(entry["matrix"], entry["commit"]) for entry in document["shuffled"]] == [
        ("brick", "c0ffee"),
        ("shell", "c0ffee"),
    ]
    entry = document["shuffled"][1]
    assert entry["ratio"] == 1.125
    assert entry["shuffled"]["plan"] == PLANS["shuffled"].label()
    assert entry["shuffled"]["prepare_seconds"] == [0.5] * 3
    assert entry["shuffled"]["tuning_seconds"] == 7
    assert {name: one["step_microseconds"] for name, one in entry["cusparse"].items()} == {"alg": 20.0, "other": 30.0}
    assert {name: one["step_microseconds"] for name, one in entry["cusparse_natural"].items()} == {
        "alg": 10.0,
        "other": 9.0,
    }
    lines = page.read_text().splitlines()
    assert lines[2] == "Measured on one a GPU, commits c0ffee: medians."
    plans = "`cuda/resident/3x3-2 natural` | `cuda/resident/3x3-2 metis`"
    assert f"| brick | 4.0 | 4.2 | 4.5 | 1.12 | 9.0 | 20.0 | 62 | 500 | {plans} |" in lines
    assert lines[-1] == "b"
    page.write_text("<!-- shuffled:begin -->\n<!-- shuffled:end -->\n")
    assert shuffled.main([*where, "--table"]) == 0
    assert "| brick |" in page.read_text()
    assert len(pretended) == 9


def test_a_matrix_that_fails_costs_the_others_nothing(
    pretended: list[tuple[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    measure = shuffled.measure

    def fail(name: str, A: Any, seconds: float) -> Any:
        if name == "shell":
            raise ArithmeticError("wrong")
        return measure(name, A, seconds)

    monkeypatch.setattr(shuffled, "measure", fail)
    output = tmp_path / "shuffled.json"
    page = str(tmp_path / "none.md")
    assert shuffled.main(["-o", str(output), "--docs", page, "--only", "brick", "shell", "9-point"]) == 1
    assert {entry["matrix"] for entry in json.loads(output.read_text())["shuffled"]} == {"brick", "9-point"}
    assert "shell  FAILED: ArithmeticError: wrong" in capsys.readouterr().err


def test_calls_that_are_wrong_are_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is fetched from the device and compared; what is not written is NaN."""

    class Device:
        def __init__(self, problem: Any) -> None:
            self.problem, self.told = problem, []

        def call(self, program: Any) -> Any:
            return lambda: self.told.append("call")

        def poison(self) -> None:
            self.told.append("poison")

        def fetch(self) -> None:
            assert self.told == ["poison", "call"]
            self.problem.out.fill(np.nan)

    schedule = SimpleNamespace(prepare=lambda matrix, plan: None)
    monkeypatch.setattr("akx.backends.cuda.timing.DeviceProblem", Device)
    monkeypatch.setattr(shuffled.registry, "get", lambda backend, name: schedule)
    with pytest.raises(ArithmeticError, match="is wrong: nan"):
        shuffled._checked_call(Matrix.from_any(gallery.small("9-point")), PLANS["natural"])


def test_an_unknown_matrix_is_named(pretended: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        shuffled.main(["-o", str(tmp_path / "none.json"), "--only", "nothing"])
    assert "no matrix 'nothing'" in capsys.readouterr().err


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: "there is none")
    assert shuffled.main(["-o", str(tmp_path / "none.json")]) == 3
    assert not (tmp_path / "none.json").exists()
