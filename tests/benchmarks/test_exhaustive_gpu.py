"""The search of a GPU's whole space: what it leaves out by a bound could not have won; without a GPU it says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from akx.device.cuda.facts import CudaDevice
from akx.device.cuda.runtime import cuda_missing
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner.space import build_space
from benchmarks import exhaustive_gpu
from benchmarks.gallery import GALLERY

H100 = CudaDevice("H100", 0, (9, 0), 132, 232448, 233472, 65536, 50 << 20, 80 << 30, 1980000000, 3.35e12)


def test_the_bound_lies_below_everything_that_was_measured() -> None:
    measured = json.loads((Path(exhaustive_gpu.__file__).parent / "results" / "h100_parts.json").read_text())["rows"]
    rows = [row for row in measured if row["matrix"] == "brick" and row["k"] == 16]
    assert rows
    matrix = Matrix.from_any(GALLERY["brick"]())
    space = build_space(matrix, 16, H100, threads=1, backend="cuda", start_vectors=1)
    for row in rows:
        least = exhaustive_gpu.least_seconds(Plan.from_json(row["plan"]), matrix, space)
        assert 0 < least < 1e-6 * row["microseconds_per_call"]


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exhaustive_gpu.main(["--small", "-o", str(tmp_path / "x.json")]) == 3
    assert "nothing measured" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
