"""The tables: every figure comes from the results, and only the block between the marks changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record, table

ORIGIN = {
    "machine": {"processor": "Some CPU", "cores": 2, "threads": 2},
    "versions": {"python": "3.11", "numpy": "2.4"},
    "commit": "0123456789abcdef+changes",
    "date": "2025-01-02T03:04:05+00:00",
}


def entry(matrix: str, k: int, best: float, **more: Any) -> dict[str, Any]:
    return {
        "matrix": matrix, "rows": 62451, "nnz": 4325625, "k": k, "dtype": "float64",
        "baselines": {"scipy": 16e-3, "mkl": 4e-3, "sweep": 8e-3},
        "best": {"schedule": "wavefront", "variant": "csr16", "seconds": best, "spread": 0.0123},
        "speedup": 4e-3 / best, "prepare_seconds": 0.25, "error": 0.31, "tuning_seconds": 9.75, **more,
    }  # fmt: skip


@pytest.fixture
def document() -> dict[str, Any]:
    entries = [
        entry("brick", 8, 1e-3),
        entry("brick", 16, 2e-3),
        entry("shell", 8, 4e-3),
        entry("delaunay", 8, 8e-3, sweep_reordered=0.5e-3),
        entry("bcsstk16", 8, 2e-3, group="real"),
        entry("helmholtz_2D", 8, 2e-3, group="real", dtype="complex128"),
    ]
    return record.merge(None, ORIGIN, entries)


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_all_commits_are_named(document: dict[str, Any]) -> None:
    document["powers"][1]["commit"] = "fedcba9876543210"
    text = table.full_tables(document)
    assert "Some CPU, 2 threads, commits 0123456789 with changes, fedcba9876, 2025-01-02" in text


def test_geometric_means_of_each_group(document: dict[str, Any]) -> None:
    eight, sixteen = table.full_tables(document).split("### k = 16")
    assert cells(eight, "shell")[7] == "**1.00**"
    assert cells(eight, "helmholtz_2D (complex128)")[7] == "**2.00**"
    assert cells(eight, "*geometric mean, gallery*")[7] == "**1.26**"  # of 4, 1 and 1/2
    assert cells(eight, "*geometric mean, real*")[7] == "**2.00**"
    assert cells(sixteen, "*geometric mean, gallery*")[6] == "**2.00**"


def test_full_tables_have_every_baseline_and_the_price(document: dict[str, Any]) -> None:
    text = table.full_tables(document)
    assert "### k = 8" in text
    assert "### k = 16" in text
    eight = text.split("### k = 16")[0]
    assert cells(eight, "delaunay") == [
        "delaunay", "16.0", "4.00", "8.00", "0.500", "8.00", "1.2%", "**0.50**", "`wavefront/csr16`",
        "250", "-", "0.31",
    ]  # fmt: skip
    # 9.75 s of tuning and 0.25 s of preparing, 3 ms gained a call
    assert cells(eight, "brick")[10] == "3,334"
    assert cells(eight, "brick")[4] == ""
    for part in text.split("### k = ")[1:]:
        assert len({line.count("|") for line in part.splitlines() if line.startswith("|")}) == 1


def test_every_baseline_has_a_name_for_readers() -> None:
    seconds = {"mkl_bsr": 2e-3, "mkl_1_thread": 3e-3, "mkl": 4e-3, "scipy": 16e-3, "sweep": 8e-3}
    text = table.full_tables(record.merge(None, ORIGIN, [entry("brick", 8, 1e-3, baselines=seconds)]))
    head = cells(text, "matrix")
    assert head[1:6] == ["MKL, block CSR", "MKL, 1 thread", "MKL", "SciPy", "own `sweep`"]
    assert "mkl_" not in text


def test_the_exhaustive_search_is_told(document: dict[str, Any]) -> None:
    found = {
        "matrix": "brick", "k": 8, "space": 500, "feasible": 321, "complete": True, "tuning_seconds": 41.2,
        "ratio": 1.0123,
        "tuned": {"plan": "cpu/wavefront/a", "seconds": 2e-3}, "best": {"plan": "cpu/wavefront/b", "seconds": 1.9e-3},
        "commit": "fedcba9876543", "date": "2025-03-04T00:00:00",
    }  # fmt: skip
    text = table.full_tables(document, found)
    assert "all 321 feasible plans of 500 were measured" in text
    part = table.full_tables(document, {**found, "complete": False})
    assert "321 feasible plans of 500 looked at, not the whole space, were measured" in part
    assert "all 321" not in part
    assert "1.012 times the best one's time (fedcba9876, 2025-03-04)" in text


def test_command_line_writes_then_checks(tmp_path: Path, document: dict[str, Any]) -> None:
    results, docs = tmp_path / "cpu.json", tmp_path / "benchmarks.md"
    record.save(results, document)
    docs.write_text("title\n\n<!-- bench:begin -->\n<!-- bench:end -->\n\nend\n")
    where = ["--results", str(results), "--docs", str(docs)]
    where += ["--exhaustive", str(tmp_path / "none.json")]
    assert table.main([*where, "--check"]) == 1
    assert table.main(where) == 0
    assert table.main([*where, "--check"]) == 0
    assert table.full_tables(document) in docs.read_text()
    assert docs.read_text().startswith("title\n")
    changed = json.loads(results.read_text())
    changed["powers"] = changed["powers"][:1]
    record.save(results, changed)
    assert table.main([*where, "--check"]) == 1
    with pytest.raises(SystemExit) as refused:
        table.main(["--results", str(tmp_path / "absent.json")])
    assert refused.value.code == 2
