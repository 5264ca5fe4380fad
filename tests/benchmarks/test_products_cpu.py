"""The benchmark of plain products in blocks beside MKL, without MKL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.report.comparison.baselines import scipy_powers
from akx.tuner.measure import Measurement, Precision
from benchmarks import markdown, products_cpu
from benchmarks.calm import Calm
from benchmarks.products_cpu import measured, select, table

QUICK = Precision(seconds=0.0, rounds_min=2, rounds_max=2, sample_seconds=1e-5)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """SciPy in MKL's place; the blocks that it was asked for. What is timed is timed in brief."""
    asked: list[int] = []

    def powers(matrix: Any, k: int, threads: int, block: int = 1) -> Callable[..., None]:
        asked.append(block)
        return scipy_powers(matrix, k)

    monkeypatch.setattr(products_cpu, "mkl_powers", powers)
    monkeypatch.setattr(products_cpu, "_TURNS", QUICK)
    monkeypatch.setattr(products_cpu, "_BRIEF", QUICK)
    monkeypatch.setattr(products_cpu, "Calm", lambda threads: Calm(1))
    return asked


def small(name: str) -> Any:
    (case,) = select([name], reduced=True)
    return products_cpu.Matrix.from_any(case.load())


def test_matrices_are_measured_merged_and_shown(others: list[int], tmp_path: Path) -> None:
    output, page = tmp_path / "products_cpu.json", tmp_path / "page.md"
    page.write_text("a\n<!-- products_cpu:begin -->\n<!-- products_cpu:end -->\nb\n")
    arguments = ["--reduced", "-o", str(output), "--docs", str(page), "--only"]
    assert products_cpu.main([*arguments, "brick", "wind"]) == 0
    assert products_cpu.main([*arguments, "wind"]) == 0
    assert others == [1, 3, 1, 1], "block CSR is for blocks of one size"
    brick, wind = json.loads(output.read_text())["products"]
    assert (brick["matrix"], wind["matrix"]) == ("brick", "wind")
    assert {"csr", "csr16", "sell sigma=256", "sell16", "bell", "bell16", "inode", "inode16"} <= set(brick["looked_at"])
    assert {"inode", "inode16"} <= set(wind["looked_at"])
    assert not {"bell", "bell16"} & set(wind["looked_at"])
    assert ("mkl_bsr" in brick["times"], "mkl_bsr" in wind["times"]) == (True, False)
    for entry in (brick, wind):
        ours = {name: one["seconds"] for name, one in entry["times"].items() if not name.startswith("mkl")}
        assert len(ours) == len({products_cpu._format(name) for name in ours}) == 3
        seen, formats = entry["looked_at"], products_cpu._format
        for name in ours:
            assert seen[name] == min(seen[one] for one in seen if formats(one) == formats(name))
        best, other = entry["best"]["variant"], entry["other"]["variant"]
        assert ours[best] == min(ours.values())
        assert products_cpu._format(best) != products_cpu._format(other)
        assert entry["best"]["over_csr"]["low"] <= entry["best"]["over_csr"]["ratio"]
        for cost in ("prepare", "update"):
            assert entry[f"{cost}_products"] == pytest.approx(entry[f"{cost}_seconds"] / ours[best])
    assert ("over_bsr" in brick["best"], "over_bsr" in wind["best"]) == (True, False)
    assert table(json.loads(output.read_text())) in page.read_text()


def test_a_contestant_that_is_wrong_is_not_measured(others: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def off(matrix: Any, k: int, threads: int, block: int = 1) -> Callable[..., None]:
        right = scipy_powers(matrix, k)

        def run(x: Any, out: Any) -> None:
            right(x, out)
            out[k] *= 1 + 1e-6 * (block == 3)

        return run

    monkeypatch.setattr(products_cpu, "mkl_powers", off)
    with pytest.raises(ArithmeticError, match=r"mkl_bsr and .+ differ by"):
        measured(small("brick"), 3, Calm(1))
    monkeypatch.setattr(products_cpu, "reference", lambda *_: SimpleNamespace(error_ratio=lambda out: 1.01))
    with pytest.raises(ArithmeticError, match=" is wrong"):
        measured(small("brick"), 3, Calm(1))


def test_the_page_has_the_table_of_the_file() -> None:
    page = products_cpu.PAGE.read_text()
    assert markdown.replace_block(page, "products_cpu", table(json.loads(products_cpu.RESULTS.read_text()))) == page


def test_ratios_are_those_of_rounds() -> None:
    times = {"inode": Measurement.of([1.0, 3.0, 2.0]), "mkl": Measurement.of([2.0, 6.0, 4.0])}
    found = products_cpu._beside("inode", times)
    assert found == {"variant": "inode", "over_csr": {"ratio": 2.0, "low": 2.0, "high": 2.0}}


def test_formats_are_told_by_their_names() -> None:
    names = ("csr", "csr16", "csr-ahead", "sell sigma=256", "sell16", "bell16", "inode", "inode16")
    assert [products_cpu._format(name) for name in names] == [*["csr"] * 3, *["sell"] * 2, "bell", *["inode"] * 2]


def test_a_small_wind_tunnel_has_nodes_of_1_to_6_unknowns() -> None:
    matrix = small("wind")
    assert matrix.n == np.dot(list(products_cpu._BREEZE), list(products_cpu._BREEZE.values()))
    with pytest.raises(KeyError):
        select(["no such matrix"])


def test_the_table_says_what_was_not_calm_and_leaves_out_what_there_is_not() -> None:
    names = {"inode16": 2e-3, "sell": 3e-3, "mkl": 4e-3}
    entry = {
        "matrix": "wind",
        "times": {name: {"seconds": seconds, "spread": 0.01} for name, seconds in names.items()},
        "best": {"variant": "inode16", "over_csr": {"ratio": 2.0, "low": 1.9, "high": 2.125}},
        "other": {"variant": "sell", "over_csr": {"ratio": 1.3, "low": 1.2, "high": 1.4}},
        "prepare_products": 20.4,
        "update_products": 2.04,
        "update_behind_products": 3.04,
        "calm": False,
        "commit": "c0ffee",
        "date": "2026-01-01",
    }
    document = {"machine": {"processor": "one", "threads": 2}, "versions": {"mkl": "1"}, "products": [entry]}
    line = "| wind (not calm) | `inode16` | 2000 | `sell` | 3000 | 4000 |  | 2.00 (1.90 to 2.12) |  | 20 | 2.0 | 3.0 |"
    assert table(document).splitlines()[-1] == line
