"""The harness of the GPU's figures, without a GPU: entries have the form of a result file."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends.cuda.device.runtime import cuda_missing
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.report.comparison.bench import BenchPower, BenchRow
from benchmarks import gpu, record


def test_an_entry_is_over_cusparse_alone() -> None:
    matrix = Matrix.from_any(sp.eye_array(5, format="csr"))
    rows = tuple(
        BenchRow(name, seconds, 0.01, "")
        for name, seconds in (("akx", 1e-3), ("sweep", 1.5e-3), ("cusparse_alg1", 2e-3), ("cusparse_alg2", 3e-3))
    )
    power = BenchPower(16, rows, Plan("cuda", "sweep", "csr-1", k=16), 0.1, 0.5, False)
    case: Any = SimpleNamespace(name="brick", group="gallery")
    tuned: Any = SimpleNamespace(tuning_seconds=3.0)
    found = gpu.entry(case, matrix, power, tuned)
    assert found["speedup"] == pytest.approx(2.0)
    assert found["sweep"] == 1.5e-3
    document = {"machine": {}, "versions": {}, "commit": "", "date": "", "powers": [found]}
    assert record.check(document) == []
    assert np.isfinite(found["best"]["seconds"])


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--small", "-o", str(tmp_path / "x.json")]) == 3
    assert "nothing measured" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
    assert "pycuda" not in sys.modules
