"""The form of result files, and what merging keeps."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record

ORIGIN = {
    "machine": {"processor": "P", "threads": 2},
    "versions": {"numpy": "2"},
    "commit": "abc",
    "date": "2025-01-01",
}


def entry(matrix: str = "brick", k: int = 8, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "matrix": matrix,
        "rows": 3,
        "nnz": 5,
        "k": k,
        "dtype": "float64",
        "baselines": {"scipy": 4.0, "mkl": 2.0, "sweep": 3.0},
        "best": {"schedule": "wavefront", "variant": "csr", "seconds": seconds, "spread": 0.01},
        "speedup": 2.0 / seconds,
        "prepare_seconds": 0.5,
        "error": 0.25,
        **more,
    }


def test_merge_replaces_the_same_measurement_and_keeps_the_others() -> None:
    first = record.merge(None, ORIGIN, [entry(k=8), entry(k=16), entry("abc_real", k=8)])
    later = {**ORIGIN, "commit": "def", "date": "2025-02-02"}
    second = record.merge(first, later, [entry(k=8, seconds=0.5)])
    assert [(e["matrix"], e["k"], e["commit"]) for e in second["powers"]] == [
        ("brick", 8, "def"),
        ("brick", 16, "abc"),
        ("abc_real", 8, "abc"),
    ]
    assert second["commit"] == "def"
    assert record.check(second) == []


def test_merge_refuses_the_figures_of_another_machine() -> None:
    first = record.merge(None, ORIGIN, [entry()])
    with pytest.raises(ValueError, match="another machine"):
        record.merge(first, {**ORIGIN, "machine": {"processor": "Q", "threads": 2}}, [entry()])


@pytest.mark.parametrize("missing", ["machine", "versions", "commit", "date", "powers"])
def test_every_field_of_the_file_is_needed(missing: str) -> None:
    document = record.merge(None, ORIGIN, [entry()])
    del document[missing]
    assert any(missing in problem for problem in record.check(document))


@pytest.mark.parametrize(
    "missing", sorted(set(entry()) | {"best.schedule", "best.variant", "best.seconds", "best.spread"})
)
def test_every_field_of_an_entry_is_needed(missing: str) -> None:
    document = record.merge(None, ORIGIN, [entry()])
    target = document["powers"][0]
    *path, name = missing.split(".")
    for part in path:
        target = target[part]
    del target[name]
    assert any(missing in problem for problem in record.check(document))


@pytest.mark.parametrize(
    "change",
    [
        {"speedup": 2.1},
        {"speedup": float("nan")},
        {"error": 1.5},
        {"error": float("nan")},
        {"baselines": {}},
        {"baselines": {"mkl": 0.0}},
    ],
)
def test_figures_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    document = record.merge(None, ORIGIN, [entry(**change)])
    assert record.check(document)


def test_save_writes_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results" / "cpu.json"
    document = record.merge(None, ORIGIN, [entry()])
    record.save(path, document)
    assert record.load(path) == document == json.loads(path.read_text())
    broken = copy.deepcopy(document)
    broken["powers"][0]["error"] = 7.0
    with pytest.raises(ValueError, match="beyond the bound"):
        record.save(path, broken)
    assert record.load(path) == document
    assert [p.name for p in path.parent.iterdir()] == ["cpu.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"powers": []}'])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="choose another file with -o"):
        record.load(path)
    assert path.read_text() == text


def test_no_file_is_no_document(tmp_path: Path) -> None:
    assert record.load(tmp_path / "none.json") is None


def test_provenance_is_complete() -> None:
    document = record.empty(record.provenance(2))
    assert record.check(document) == []
    assert document["machine"]["threads"] == 2
    assert document["versions"]["numpy"]


def test_geometric_mean() -> None:
    assert record.geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
