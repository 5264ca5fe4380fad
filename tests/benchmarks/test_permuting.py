"""What a permutation of results takes at least: whose rows are taken, what stands beside it, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu, permuting, record

ORIGIN = {"commit": "0123456789abcdef", "date": "2026-11-26T00:00:00", "machine": {"processor": "a GPU", "threads": 1}}


def pretended(rows: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Copies in as many picoseconds as there are rows, each way after it twice as long as the last."""
    return {way: (1e-12 * rows * 2**place, 0.01 * place) for place, way in enumerate(permuting.WAYS)}


def test_each_matrix_has_a_step_in_its_natural_order_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(permuting, "measure", pretended)
    monkeypatch.setattr(gpu, "origin_of_table", lambda threads: {**record.provenance(1), **ORIGIN})
    out = tmp_path / "permuting.json"
    assert permuting.main(["-o", str(out)]) == 0
    found = json.loads(out.read_text())
    known = {one["matrix"]: one for one in json.loads(gpu.RESULTS.read_text())["powers"] if one["k"] == found["k"] == 8}
    assert sorted(one["matrix"] for one in found["permutations"]) == sorted(permuting.MATRICES)
    for entry in found["permutations"]:
        natural = known[entry["matrix"]]
        assert entry["rows"] == natural["rows"]
        assert entry["step_seconds"] == pytest.approx(natural["best"]["seconds"] / 8)
        assert entry["ways"]["gather_all"] == {"seconds": pytest.approx(2e-12 * entry["rows"]), "spread": 0.01}
    rows = [one["rows"] for one in found["permutations"]]
    assert rows == sorted(rows)
    capsys.readouterr()


def test_the_last_column_is_the_least_permutation_over_a_step() -> None:
    ways = {way: {"seconds": 1e-6 * (5 - place), "spread": 0.02} for place, way in enumerate(permuting.WAYS)}
    ways["copy"]["seconds"] = 1e-7  # no permutation: does not count
    entry = {"matrix": "brick", "rows": 62451, "step_seconds": 4e-6, "ways": ways}
    said, _, _, _, line = permuting.table({**ORIGIN, "permutations": [entry]}).split("\n")
    assert "commit 0123456789, 2026-11-26; spread 2.0% at most." in said
    assert line == "| 62,451 | brick | 4.0 | 0.10 | 4.00 | 3.00 | 2.00 | 1.00 | 25% |"


def test_the_page_is_what_the_file_says() -> None:
    document, natural = json.loads(permuting._RESULTS.read_text()), permuting.steps()
    assert permuting.table(document) in permuting._PAGE.read_text()
    for entry in document["permutations"]:  # else the steps beside them are of older kernels: measure again
        assert entry["step_seconds"] == pytest.approx(natural[entry["matrix"]][1], rel=0.1)
