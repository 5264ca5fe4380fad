"""Every ablation runs on reduced matrices, its two sides agree, and the file has what the documentation quotes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ablations
from benchmarks.clock import Settings

QUICK = Settings(seconds=0.0, rounds_min=1, rounds_max=1, sample_seconds=1e-5, warm_seconds=0.0, pause_seconds=0.0)


@pytest.mark.parametrize("name", sorted(ablations.ABLATIONS))
def test_both_sides_compute_the_same_powers(name: str) -> None:
    ablation = ablations.ABLATIONS[name]
    sides = ablation.sides(ablations._matrix(ablation.matrices[0], reduced=True))
    with_it, without = (np.array(side()) for side in sides)
    assert np.isfinite(with_it).all()
    assert np.allclose(with_it, without, rtol=1e-12)


def test_the_file_names_every_idea(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ablations.measure
    monkeypatch.setattr(ablations, "measure", lambda names: original(names, reduced=True, settings=QUICK))
    output = tmp_path / "ablations.json"
    assert ablations.main(["--only", "prefetch", "--only", "listening", "-o", str(output)]) == 0
    document = json.loads(output.read_text())
    assert {"machine", "versions", "commit", "date"} <= set(document)
    assert [entry["name"] for entry in document["ablations"]] == ["prefetch", "prefetch", "listening", "listening"]
    for entry in document["ablations"]:
        assert entry["ratio"] == pytest.approx(entry["without_seconds"] / entry["with_seconds"])
