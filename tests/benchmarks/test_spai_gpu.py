"""The benchmark of the sparse approximate inverse on a GPU, with the host in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.solvers.preconditioners import spai as make
from benchmarks import gpu, markdown, record, solving, spai, spai_gpu

PARTS = {"copy A": 0.25, "local problems": 0.5}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def stand_in(matrix: Any, tau: float, *, backend: str, threads: int) -> Any:
        asked.append(backend)
        found = make(matrix, tau, backend="cpu", threads=threads)
        found.seconds = 0.875 if backend == "cpu" else 0.5
        return found

    origin = {**record.provenance(1), "commit": "c0ffee", "machine": {"gpu": "a GPU"}}
    monkeypatch.setattr(spai_gpu, "spai", stand_in)
    monkeypatch.setattr(spai_gpu, "_parts", lambda matrix, tau: PARTS)
    monkeypatch.setattr(gpu, "provenance", lambda: origin)
    monkeypatch.setattr(solving, "load", lambda name: sp.csr_array(np.tri(40) + np.eye(40)))
    return asked


def test_entries_are_merged_and_the_table_goes_to_the_page(
    pretended: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AKX_COMMIT", raising=False)
    output, page = tmp_path / "spai_gpu.json", tmp_path / "page.md"
    page.write_text("a\n<!-- spai-gpu:begin -->\n<!-- spai-gpu:end -->\nb\n")
    arguments = ["--backend", "cuda", "--threads", "1", "-o", str(output), "--docs", str(page)]
    assert spai.main([*arguments, "--only", "wang4", "--tau", "1.0", "--tau", "0.5"]) == 0
    assert spai.main([*arguments, "--only", "G3_circuit", "--tau", "0.5", "--tau", "none"]) == 0
    document = json.loads(output.read_text())
    assert [(e["matrix"], e["tau"]) for e in document["spai"]] == [("G3_circuit", 0.5), ("wang4", 0.5), ("wang4", 1.0)]
    entry = document["spai"][-1]
    assert (entry["gpu_seconds"], entry["host_seconds"], entry["difference"]) == (0.5, 0.875, 0.0)
    assert entry["same_pattern"]
    assert entry["commit"] == "c0ffee"
    assert (pretended.count("cuda"), pretended.count("cpu")) == (3 * 6, 3 * 4)
    lines = page.read_text().splitlines()
    assert lines[2] == f"Measured on one a GPU, and on 1 threads of its host; c0ffee, {document['date'][:10]}."
    assert "| G3_circuit | 0.5 | 40 | 40 x 1 | 875.0 | 500.0 | 1.8 | 500.00 | 650 |" in lines
    assert "| wang4 | 1.0 | 820 | 40 x 40 | 875.0 | 500.0 | 1.8 | 500.00 |  |" in lines
    assert lines[-1] == "b"


def test_a_slow_host_is_asked_once(pretended: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spai_gpu, "_LONG", 0.5)
    spai_gpu.compare("small", sp.csr_array(np.eye(3)), 0.5, threads=1)
    assert pretended.count("cpu") == 1


def test_the_page_has_the_table_of_the_file() -> None:
    page = Path(spai.__file__).resolve().parents[1] / "docs" / "preconditioners.md"
    if not spai_gpu.RESULTS.exists():
        pytest.skip("not measured on a GPU yet")
    text = page.read_text()
    assert markdown.replace_block(text, "spai-gpu", spai_gpu.table(json.loads(spai_gpu.RESULTS.read_text()))) == text
