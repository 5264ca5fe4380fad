"""benchmarks.stream_symmetric: its matrices, its table, and what it says without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from akx.backends.cuda.device.runtime import cuda_missing
from akx.backends.cuda.schedules.stream.triangle import PLAIN, symmetry_of
from benchmarks import gallery, stream_symmetric


def test_matrices_are_symmetric_and_have_general_values() -> None:
    for name in stream_symmetric.MATRICES:
        A = gallery.small(name)
        matrix = stream_symmetric.symmetric(A)
        assert symmetry_of(matrix) == PLAIN
        assert matrix.nnz >= A.nnz
        assert len(set(matrix.data)) > matrix.nnz // 3


def test_the_table() -> None:
    ways = {"seconds": 2e-3, "bytes": 9e7}, {"seconds": 1e-3, "bytes": 5e7}
    entry = {"matrix": "brick", "k": 4, "fraction": 0.25, "full": ways[0], "triangle": ways[1], "speedup": 2.0}
    entries = [{**entry, "stays": stays, "commit": "abc"} for stays in (False, True)]
    lines = stream_symmetric.table({"machine": {"gpu": "a GPU"}, "stream_symmetric": entries}).splitlines()
    assert "a GPU" in lines[0]
    assert "25%" in lines[0]
    assert lines[-1].count("**2.00**") == 2
    assert lines[-1].count("|") == lines[2].count("|")


def test_without_a_gpu_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if cuda_missing() is not None:
        assert stream_symmetric.main(["-o", str(tmp_path / "out.json")]) == 3
        assert "nothing measured" in capsys.readouterr().err
