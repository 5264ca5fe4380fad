"""Seconds of the tunings behind the plans that are shipped."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from akx.plandb.bundle import read_bundle
from benchmarks import tunings

_CPU = Path(tunings.__file__).resolve().parents[1] / "tuning_db" / "cpu-amd-epyc-family-25-2-cores.json"


def test_large_matrices_do_not_count_and_slow_tunings_are_named() -> None:
    given = (one for one in read_bundle(_CPU).records if one.provenance["matrix"]["nnz"] < 10_000_000)
    first, *others = islice(given, 6)
    large = {**first.provenance, "matrix": {"rows": 10, "nnz": 10_000_001}}
    records = [
        replace(first, tuning_seconds=1e4, provenance=large),
        *(replace(one, tuning_seconds=28.0 + number) for number, one in enumerate(others)),
    ]
    found = tunings.summary(records)
    assert (found["plans"], found["within"], found["limit"]) == (6, 5, 30.0)
    assert found["seconds"] == {"median": 30.0, "high": pytest.approx(31.6), "most": 32.0}
    slow = [(one.matrix_name, one.key.k, 28.0 + number) for number, one in enumerate(others)][:2:-1]
    assert [(one["matrix"], one["k"], one["seconds"]) for one in found["above"]] == slow


def test_the_file_the_table_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, out = tmp_path / "page.md", tmp_path / "found.json"
    page.write_text("<!-- found:begin -->\n<!-- found:end -->\n")
    assert tunings.main(["--bundle", str(_CPU), "-o", str(out), "--docs", str(page)]) == 0
    (entry,) = json.loads(out.read_text())["devices"]
    assert entry["plans"] == len(read_bundle(_CPU).records)
    assert f"| {entry['device']} |" in page.read_text()
    said = capsys.readouterr().out
    assert tunings.main(["--table", "-o", str(out)]) == 0
    assert capsys.readouterr().out == said


def test_the_page_has_what_is_on_record() -> None:
    document = json.loads(tunings._RESULTS.read_text())
    assert tunings.table(document) in tunings._PAGE.read_text()
    bundles = sorted(tunings._SHIPPED.glob("*.json"))
    assert document["devices"] == [tunings.summary(read_bundle(path).records) for path in bundles]
