"""The benchmark of plain products in dense blocks, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akx.core.matrix import Matrix
from akx.formats.base import pattern_of
from akx.formats.natural_blocks import natural_nodes
from benchmarks import gpu, markdown, products, record

ORIGIN = {**record.provenance(1), "commit": "c0ffee", "machine": {"gpu": "a GPU"}}


def test_the_wind_tunnel_has_the_nodes_of_the_slides() -> None:
    A = products.wind()
    found = natural_nodes(pattern_of(Matrix.from_any(A)))
    counts = np.bincount(found.sizes, minlength=7)
    assert counts[1:].tolist() == [4701, 1230, 1237, 17, 148, 34373]
    assert found.slots == A.nnz
    assert (A != A.T).nnz > 0, "values are not symmetric"
    assert (abs(A).sign() != abs(A.T).sign()).nnz == 0, "the pattern is"


def entry(name: str, scale: float = 1.0) -> dict[str, Any]:
    seconds = {"vbell-1 256": 8e-6, "vbell-2 once 128": 9e-6, "csr-8 256": 2e-5, "cusparse_alg1": 3e-5}
    if name != "wind":
        seconds["cusparse_bsr"] = 1.6e-5
    times = {label: {"seconds": scale * one, "spread": 0.01} for label, one in seconds.items()}
    return {"matrix": name, "rows": 9, "nnz": 27, "k": 8, "times": times, "commit": "c0ffee", "date": "2026-01-01"}


def test_the_table_has_the_best_of_each_kind() -> None:
    lines = products.table({**ORIGIN, "products": [entry("brick"), entry("wind")]}).splitlines()
    assert lines[-2] == "| brick | vbell-1 256 | 8.0 | csr-8 256 | 20.0 | 30.0 | 16.0 | 3.75 | 2.00 |"
    assert lines[-1] == "| wind | vbell-1 256 | 8.0 | csr-8 256 | 20.0 | 30.0 |  | 3.75 |  |"


def test_results_are_merged_and_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, file = tmp_path / "page.md", tmp_path / "file.json"
    page.write_text("<!-- products:begin -->\n<!-- products:end -->\n")
    monkeypatch.setattr(products.planned, "has_gpu", lambda name: True)
    monkeypatch.setattr(gpu, "provenance", lambda: ORIGIN)
    monkeypatch.setattr(products, "MATRICES", {"brick": lambda: None, "wind": lambda: None})
    scale = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(products, "measure", lambda name, A, seconds: entry(name, next(scale)))
    assert products.main(["-o", str(file), "--docs", str(page)]) == 0
    assert products.main(["--only", "wind", "-o", str(file), "--docs", str(page)]) == 0
    found = json.loads(file.read_text())["products"]
    assert [(one["matrix"], one["times"]["vbell-1 256"]["seconds"]) for one in found] == [
        ("brick", 8e-6),
        ("wind", pytest.approx(2.4e-5)),
    ]
    assert "| wind | vbell-1 256 | 24.0 |" in page.read_text()


def test_the_page_has_the_table_of_the_file() -> None:
    document = json.loads(products.RESULTS.read_text())
    page = products.PAGE.read_text()
    assert markdown.replace_block(page, "products", products.table(document)) == page


def test_the_bars_of_block_products_are_met() -> None:
    """Over cuSPARSE's CSR and BSR; a translation in less than 100 products, new values in less than 5."""
    found = {entry["matrix"]: entry for entry in json.loads(products.RESULTS.read_text())["products"]}
    for name, bar in (("brick", 1.35), ("shell", 1.5), ("wind", 1.5)):
        times = {label: one["seconds"] for label, one in found[name]["times"].items()}
        ours = min(seconds for label, seconds in times.items() if label.startswith("vbell"))
        csr = min(seconds for label, seconds in times.items() if label.startswith("cusparse") and "bsr" not in label)
        assert csr / ours >= bar, name
        assert times.get("cusparse_bsr", ours) >= ours, name
        assert found[name]["translate_products"] < 100, name
        assert found[name]["translate_and_place_products"] < 100, name
        assert found[name]["update_products"] < 5, name


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from akx.backends.cuda.device.runtime import cuda_missing

    if cuda_missing() is None:
        pytest.skip("there is a GPU")
    assert products.main(["-o", str(tmp_path / "file.json")]) == products.planned.NO_DEVICE
    assert "nothing measured" in capsys.readouterr().err
