"""``akx info``: features and suggestions, where entries are, layouts and bounds, ghosts, the plan, other devices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rich.console import Console
from scipy.io import mmwrite

from akx.backends.host import host_device
from akx.core.errors import InfeasibleError
from akx.core.io import read_matrix
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.calibration import Calibration
from akx.plandb import PlanDatabase, PlanRecord
from akx.report import pictures
from akx.report.matrix import matrix_report as outlook
from akx.report.matrix.device_bounds import known_devices
from akx.report.matrix.fpga_packets import schedule_rows
from akx.report.matrix.ghost_growth import GhostGrowth, ghost_growth
from akx.report.matrix.matrix_tables import print_spy
from akx.tuner import plan_key
from akx.tuner.model.figures import derived_figures
from akx.tuner.model.predict import predict
from akx.tuner.space import resolve_backend
from cli.golden import check_shape, check_text
from cli.running import Ran

#: Bytes of a product with the matrix of `poisson` in CSR, x and y moved once.
_MOVED = 1920 * 12 + 401 * 4 + 2 * 400 * 8


def in_json(growth: GhostGrowth) -> Any:
    return json.loads(json.dumps(growth.to_json()))


@pytest.fixture(scope="module")
def matrix(poisson: Path) -> Matrix:
    return Matrix.from_any(read_matrix(poisson))


@pytest.fixture
def asked(akx: Callable[..., Ran], poisson: Path) -> Any:
    return akx("info", poisson, "--k", "4", "--device", "c2070", "--device", "FPGA", "--json").json


def test_json_has_features_and_suggestions(asked: Any, matrix: Matrix) -> None:
    assert asked["schema"] == 2
    assert asked["matrix"]["fingerprint"] == matrix.fingerprint
    assert (asked["matrix"]["rows"], asked["matrix"]["nnz"]) == (400, 1920)
    assert asked["features"] == matrix.features.to_json()
    assert {item["topic"] for item in asked["suggestions"]} >= {"memory", "diagonals", "symmetry"}
    check_shape("info.json", asked)


def test_json_has_layouts_with_their_bounds(asked: Any) -> None:
    layouts = {one["name"]: one for one in asked["layouts"]}
    assert layouts["pcsr-4"]["values"] == 4 * 4 + 72 * 4 + 324 * 8
    assert layouts["dia"]["fill"] == 1920 / 2000
    assert layouts["csr"]["bytes"] == 1920 * 12 + 401 * 4
    rate = asked["bandwidth"]["last_level"]  # it fits any cache
    assert layouts["csr"]["bound_gflops"] == pytest.approx(2 * 1920 * rate / _MOVED / 1e9)
    assert layouts["csr"]["far_bound_gflops"] == pytest.approx(2 * 1920 * rate / (1920 * 20 + 401 * 4) / 1e9)


def test_json_has_ghosts_packets_the_plan_and_where_entries_are(asked: Any, matrix: Matrix) -> None:
    assert asked["ghosts"] == in_json(ghost_growth(matrix, 4))
    assert [len(curve["redundancy"]) for curve in asked["ghosts"]["curves"]] == [4, 4, 4, 4]
    assert asked["nodes"] == {"count": 400, "by_size": [400, 0, 0, 0, 0, 0], "blocks": 1920, "values": 1920}
    assert asked["supervariables"] is None
    assert "nodes" not in {one["name"] for one in asked["layouts"]}
    assert asked["packets"]["utilisation"] == 1920 / (5 * 8 * 80)  # 80 rows a slot, eight packets each
    assert asked["plan"]["plan"] == predict(matrix, 4).to_json()
    counts = asked["spy"]["counts"]
    assert len(counts) == 32
    assert sum(map(sum, counts)) == 1920


def test_nodes_of_mixed_sizes_and_their_blocks(akx: Callable[..., Ran], tmp_path: Path) -> None:
    """A ring of nodes of 1, 2 and 3 unknowns, each coupled to itself and the next."""
    sizes = np.tile([1, 2, 3], 20)
    nodes = sp.eye_array(60) + sp.csr_array((np.ones(60), (np.arange(60), (np.arange(60) + 1) % 60)), shape=(60, 60))
    of = np.repeat(np.arange(60), sizes)
    A = sp.coo_array(sp.csr_array(nodes)[of][:, of])
    path = tmp_path / "ring.mtx"
    mmwrite(path, A)
    found = akx("info", path, "--json").json
    assert found["nodes"] == {"count": 60, "by_size": [20, 20, 20, 0, 0, 0], "blocks": 120, "values": A.nnz}
    layout = {one["name"]: one for one in found["layouts"]}["nodes"]
    assert layout["fill"] == 1
    assert layout["bytes"] == 8 * A.nnz + 4 * (120 + 2 * 61)
    assert [one["device"] for one in found["devices"]] == [one.name for one in known_devices()]
    assert found["supervariables"] is None
    assert "20 of 1 row, 20 of 2 rows, 20 of 3 rows" in akx("info", path).out


def test_nodes_that_are_not_side_by_side(akx: Callable[..., Ran], tmp_path: Path) -> None:
    """A ring of nodes of 3 unknowns: the first ones of all nodes, then the second ones, then the third ones."""
    near = sp.eye_array(40) + sp.csr_array((np.ones(40), (np.arange(40), (np.arange(40) + 1) % 40)), shape=(40, 40))
    path = tmp_path / "fields.mtx"
    mmwrite(path, sp.coo_array(sp.kron(np.ones((3, 3)), near)))
    found = akx("info", path, "--json").json
    assert found["nodes"]["by_size"] == [120, 0, 0, 0, 0, 0]
    assert found["supervariables"] == {"count": 40, "by_size": [0, 0, 40, 0, 0, 0], "blocks": 80}
    assert "40 of 3 rows; these are not side by side" in akx("info", path).out


def test_other_devices(asked: Any) -> None:
    tesla, fpga = asked["devices"]
    assert tesla["device"] == "NVIDIA Tesla C2070"
    assert tesla["csr_gflops"] == pytest.approx(2 * 1920 * 144 / _MOVED)
    assert (tesla["layout"], tesla["bandwidth"]) == ("dia", 144e9)
    assert fpga["gflops"] == pytest.approx(1.7 * asked["packets"]["utilisation"])


def test_blocks_and_packets_as_asked_for(akx: Callable[..., Ran], poisson: Path, matrix: Matrix) -> None:
    given = ("--blocks", "2", "--slots", "15", "--clock", "100", "--device", "FPGA", "--k", "4")
    found = akx("info", poisson, *given, "--json").json
    assert found["ghosts"] == in_json(ghost_growth(matrix, 4, 2)) != in_json(ghost_growth(matrix, 4))
    assert (found["ghosts"]["blocks"], found["packets"]["slots"], found["packets"]["clock"]) == (2, 15, 1e8)
    used = schedule_rows(matrix.indptr, slots=15).utilisation
    assert found["packets"]["utilisation"] == used
    assert found["packets"]["gflops"] == pytest.approx(2 * used * 15 * 1e8 / 1e9)
    assert found["devices"][0]["gflops"] == pytest.approx(
        1.7 * schedule_rows(matrix.indptr).utilisation
    )  # as published
    out = akx("info", poisson, *given).out
    assert f"15 slots on an FPGA: {100 * used:.1f}% used, {2 * used * 1.5:.3g} Gflop/s at 100 MHz" in out
    for wrong in (("--slots", "0"), ("--blocks", "0"), ("--clock", "0")):
        assert akx("info", poisson, *wrong).code == 2


def test_bounds_are_of_calibrated_figures_where_there_are_any(
    akx: Callable[..., Ran], poisson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AKX_MACHINES", str(tmp_path))
    here = host_device()
    figures = replace(derived_figures(here, here.cores), slow_bandwidth=7e13, last_level_bandwidth=8e13)
    Calibration(here.device_class, here.cores, figures, figures, "", "").save()
    found = akx("info", poisson, "--json").json
    assert found["bandwidth"] == {
        "device": here.device_class, "calibrated": True, "memory": 7e13, "last_level": 8e13,
        "last_level_bytes": here.l3_bytes,
    }  # fmt: skip
    assert found["layouts"][0]["bound_gflops"] == pytest.approx(2 * 1920 * 8e4 / _MOVED)
    assert "(calibrated)" in akx("info", poisson).out
    monkeypatch.setattr(outlook, "figures_of", derived_figures)
    assert akx("info", poisson, "--json").json["bandwidth"]["calibrated"] is False
    assert "(measured now)" in akx("info", poisson).out


def test_devices_that_were_calibrated(
    akx: Callable[..., Ran], poisson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AKX_MACHINES", str(tmp_path))
    figures = derived_figures(host_device(), 2)
    Calibration("cpu/an odd one", 2, figures, figures, "", "").save()
    (tmp_path / "broken.json").write_text("{")
    (found,) = akx("info", poisson, "--device", "odd", "--json").json["devices"]
    assert (found["device"], found["source"]) == ("cpu/an odd one", "calibrated")
    assert found["csr_gflops"] == pytest.approx(2 * 1920 * figures.last_level_bandwidth / _MOVED / 1e9)
    everything = akx("info", poisson, "--device", "all", "--json").json["devices"]
    assert [one["device"] for one in everything] == [one.name for one in known_devices()]


def test_too_many_rows_for_the_columns_of_the_fpga(akx: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "one.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n70000 70000 1\n1 1 1.0\n")
    (found,) = akx("info", path, "--device", "fpga", "--json").json["devices"]
    assert (found["layout"], found["gflops"]) == (None, None)
    assert "too many rows" in akx("info", path, "--device", "fpga").out


def test_a_device_that_nobody_knows(akx: Callable[..., Ran], poisson: Path) -> None:
    ran = akx("info", poisson, "--device", "abacus")
    assert ran.code == 2
    assert "'abacus'" in ran.error
    assert "NVIDIA GTX480" in ran.error


def test_text(akx: Callable[..., Ran], poisson: Path) -> None:
    features, places, layouts, ghosts, plan, suggestions = akx("info", poisson).out.split("\n\n")
    check_text("info.txt", features.replace(str(poisson), "poisson.mtx") + "\n\n" + places)
    assert "pcsr-4" in layouts
    assert "rows in their order" in ghosts
    assert "cpu/sweep/" in plan
    assert "symmetry" in suggestions
    assert "\x1b" not in places


def test_dots_in_a_terminal(matrix: Matrix) -> None:
    out = StringIO()
    print_spy(matrix, Console(file=out, force_terminal=True, width=24))
    *lines, told, _ = out.getvalue().split("\n")
    assert len(lines) == 10  # 40 dots high
    assert lines[0][2] > "\u2800"  # the diagonal begins in the first character
    assert all(len(line) <= 22 for line in lines)
    assert "a cell of 10 x 10" in told


def test_a_small_matrix_is_shown_entry_by_entry(akx: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "three.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 3 1.0\n2 1 1.0\n")
    assert "\n\n    #\n  #\n\nEach mark is an entry.\n" in akx("info", path).out


def test_without_entries_and_without_a_plan(
    akx: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> None:
        raise InfeasibleError("no plain sweep is feasible")

    monkeypatch.setattr(outlook, "predict", nothing)
    path = tmp_path / "none.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 0\n")
    found = akx("info", path, "--json").json
    assert found["plan"] is None
    assert {one["bound_gflops"] for one in found["layouts"]} == {0.0}
    out = akx("info", path).out
    assert "none: no plain sweep is feasible" in out
    assert "no ghosts" in out


def test_a_picture(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = akx("info", poisson, "--spy", tmp_path / "a.svg")
    assert ran.code == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()
    assert str(tmp_path / "a.svg") in ran.out


def test_a_picture_that_cannot_be(
    akx: Callable[..., Ran], poisson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    copy = tmp_path / "copy.mtx"
    shutil.copy(poisson, copy)
    assert "overwrite" in akx("info", copy, "--spy", copy).error
    assert copy.read_bytes() == poisson.read_bytes()
    assert "no folder" in akx("info", copy, "--spy", tmp_path / "no" / "a.png").error
    assert "without an ending" in akx("info", copy, "--spy", tmp_path / "a").error
    assert "a folder" in akx("info", copy, "--spy", tmp_path).error
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    ran = akx("info", copy, "--spy", tmp_path / "a.png")
    assert (ran.code, "akx[plot]" in ran.error) == (2, True)


def test_a_plan_that_is_known_is_what_is_told(akx: Callable[..., Ran], matrix: Matrix, poisson: Path) -> None:
    before = akx("info", poisson, "--k", 6)
    assert "no plan is known" in before.out
    plan = Plan("cpu", "wavefront", "csr", k=6, k_per_pass=6, block_bytes=65536)
    record = PlanRecord(plan_key(matrix, 6, backend="cpu"), plan, 1e-3, "sweep/csr threads=1", 1.5e-3)
    with PlanDatabase(layers=()) as database:
        database.put(record)
    if resolve_backend("auto") != "cpu":
        return
    found = akx("info", poisson, "--k", 6)
    line = next(line for line in found.out.splitlines() if line.startswith("tuned"))
    assert plan.label() in line
    assert "1.50x over sweep/csr threads=1 when it was tuned; from your plans" in found.out.replace("\n         ", " ")
    told = akx("info", poisson, "--k", 6, "--json").json
    assert told["tuned"] == {
        "id": record.id, "layer": "user", "label": plan.label(), "seconds": 1e-3, "speedup": pytest.approx(1.5),
    }  # fmt: skip
    assert told["plan"]["plan"] == predict(matrix, 6).to_json()
