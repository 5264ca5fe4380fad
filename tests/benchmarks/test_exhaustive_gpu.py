"""The search of a GPU's whole space: what it leaves out by a bound could not have won; without a GPU it says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.runtime import cuda_missing
from akx.core.matrix import Matrix
from akx.core.plan import Plan
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


def test_every_plan_is_dealt_once_and_what_is_compiled_once_to_one_process() -> None:
    plans = [
        Plan("cuda", "resident", variant, partitioner, 4, 4, options={"block": block, "keep": keep, "x": "shared"})
        for keep in (0, 24)
        for block in (256, 384, 512)
        for partitioner in ("natural", "metis")
        for variant in ("1x1-1", "3x3-2")
    ]
    hands = [exhaustive_gpu.dealt(plans, number, 4) for number in range(4)]
    assert sorted(plan.label() for hand in hands for plan in hand) == sorted(plan.label() for plan in plans)
    kernels = [{(plan.variant, plan.typed.block) for plan in hand} for hand in hands]
    assert sum(len(one) for one in kernels) == len(set.union(*kernels)) == 6
    for hand in hands:  # what is laid out alike follows one another
        laid_out = [exhaustive_gpu._laid_out(plan) for plan in hand]
        assert all(one == other for one, other in zip(laid_out[::2], laid_out[1::2], strict=True))


def test_a_log_that_ends_in_the_middle_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "x.log.0").write_text('{"plan": "a", "state": "complete"}\n{"plan": "b", "sta')
    (tmp_path / "x.log.1").write_text('{"plan": "c", "state": "begun"}\n')
    assert [one["plan"] for one in exhaustive_gpu._lines(tmp_path.glob("x.log.*"))] == ["a", "c"]


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exhaustive_gpu.main(["--small", "-o", str(tmp_path / "x.json")]) == 3
    assert "nothing measured" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
