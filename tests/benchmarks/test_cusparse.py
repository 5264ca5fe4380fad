"""The harness of cuSPARSE's figures without a GPU, and on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from akx.backends.cuda.device.runtime import cuda_missing
from benchmarks import cusparse


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cusparse.main(["--small", "-o", str(tmp_path / "x.json")]) == 3
    assert "nothing measured" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
    with pytest.raises(SystemExit):
        cusparse.main(["--small"])


@pytest.mark.cuda
@pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
def test_all_algorithms_are_timed(tmp_path: Path) -> None:
    from akx.backends.cuda.baselines.cusparse import ALGORITHMS, cusparse_missing

    if cusparse_missing() is not None:
        pytest.skip(str(cusparse_missing()))
    path = tmp_path / "x.json"
    assert cusparse.main(["--small", "--only", "brick", "--k", "3", "-o", str(path)]) == 0
    document = json.loads(path.read_text())
    (found,) = document["products"]
    assert set(found["algorithms"]) >= set(ALGORITHMS)
    assert all(0 < one["seconds"] < 1e-2 for one in found["algorithms"].values())
    assert isinstance(document["versions"]["spmvop"], bool)
