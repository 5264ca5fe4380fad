"""``akx report``: from a tuned matrix to a page, and everything that can be wrong with where it goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import scipy.io
from plandb.samples import make_key, make_record

from akx.core.matrix import Matrix
from akx.plandb import PlanDatabase, ShippedPlans
from cli.golden import check_shape
from cli.running import Ran


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, with no shipped plans."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("akx.plandb.lookup.shipped_plans", lambda: ShippedPlans(tmp_path / "none"))


def test_from_tuning_to_a_page(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    assert akx("tune", poisson, "--k", 4, "--time", 2, "--trials", 4, "--backend", "cpu").code == 0
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        (record,) = database.list()
        trials = database.trials(record.key)
        database.put(make_record(1))
    ran = akx("report", poisson)
    assert (ran.code, ran.out) == (0, "")
    assert "wrote poisson.report.html: 1 plan of" in ran.err
    page = Path("poisson.report.html").read_text(encoding="utf-8")
    assert record.plan.label() in page
    assert record.id in page
    assert "400 rows, 1,920 entries" in page
    assert page.count('class="dot c1"') >= 4 + sum(trial.state == "complete" for trial in trials)
    assert "Ghosts and redundant work" in page
    assert "matrix1.mtx" not in page, "plans of other matrices are not of this page"
    assert [path.name for path in Path().iterdir()] == ["poisson.report.html"]

    ran = akx("report", "--db", tmp_path / "plans.sqlite", "--json")
    check_shape("report.json", ran.json | {"file": "of the first"})
    assert ran.json == {
        "schema": 1, "db": str(tmp_path / "plans.sqlite"), "file": None, "output": "plans.report.html", "plans": 2,
    }  # fmt: skip
    page = Path("plans.report.html").read_text(encoding="utf-8")
    assert "matrix1.mtx" in page
    assert record.id in page
    assert "Ghosts and redundant work" not in page


def test_a_page_is_written_where_it_is_wanted_and_anew(akx: Callable[..., Ran], tmp_path: Path) -> None:
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(make_record(1))
        database.put(make_record(key=make_key(1, dtype="float32"), matrix_name="single"))
    target = tmp_path / "deep.html"
    target.write_text("old")
    assert akx("report", "-o", target, "--json").json["output"] == str(target)
    assert "single" in target.read_text(encoding="utf-8")
    ran = akx("report", "--output", target, "--dtype", "float64", "--json")
    assert ran.json["plans"] == 1
    assert "single" not in target.read_text(encoding="utf-8")


def test_no_plan_no_page(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    ran = akx("report", poisson)
    assert (ran.code, ran.out) == (0, "")
    assert f"no plan for {poisson}; `akx tune {poisson}` makes one" in ran.err
    ran = akx("report")
    assert ran.code == 0
    assert "has no plans yet; `akx tune FILE` makes one" in ran.err
    ran = akx("report", poisson, "--dtype", "float32", "--json")
    assert (ran.code, ran.json["plans"], ran.json["output"]) == (0, 0, None)
    assert list(Path().iterdir()) == []
    assert not (tmp_path / "plans.sqlite").exists(), "looking must not make a file"


def test_plans_shipped_with_akx_are_on_the_page_of_their_matrix_or_where_asked_for(
    akx: Callable[..., Ran], poisson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PlanDatabase(tmp_path / "shipped.sqlite", layers=()) as database:
        own = Matrix.from_any(scipy.io.mmread(poisson)).fingerprint
        database.put(make_record(key=make_key(fingerprint=own), matrix_name="poisson shipped"))
        database.put(make_record(2, matrix_name="another shipped"))
        (tmp_path / "bundles").mkdir()
        database.export(tmp_path / "bundles" / "plans.json")
    monkeypatch.setattr("akx.plandb.lookup.shipped_plans", lambda: ShippedPlans(tmp_path / "bundles"))

    ran = akx("report")
    assert (ran.code, ran.out) == (0, "")
    assert "has no plans yet; `akx tune FILE` makes one; --all takes the 2 shipped with akx" in ran.err
    assert "has no plans of float32 values yet; `akx tune FILE` makes one\n" in akx("report", "--dtype", "float32").err
    ran = akx("report", "--json")
    assert (ran.code, ran.json["plans"], ran.json["output"]) == (0, 0, None)
    assert list(Path().iterdir()) == []

    assert akx("report", "--all", "--json").json["plans"] == 2
    page = Path("plans.report.html").read_text(encoding="utf-8")
    assert "poisson shipped" in page
    assert "another shipped" in page

    assert akx("report", poisson, "--json").json["plans"] == 1
    page = Path("poisson.report.html").read_text(encoding="utf-8")
    assert "poisson shipped" in page
    assert "another shipped" not in page

    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(make_record(2, matrix_name="mine"))  # hides a shipped one
    assert akx("report", "--json").json["plans"] == 1
    page = Path("plans.report.html").read_text(encoding="utf-8")
    assert "mine" in page
    assert "poisson shipped" not in page
    assert "another shipped" not in page
    assert akx("report", "--all", "--json").json["plans"] == 2

    ran = akx("report", poisson, "--all")
    assert (ran.code, "--all has no meaning with FILE" in ran.error) == (2, True)


def test_places_where_no_page_can_be(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(make_record(1))
    before = (tmp_path / "plans.sqlite").read_bytes()
    for target, why in (
        (tmp_path / "no" / "page.html", "no folder"),
        (tmp_path, "is a folder"),
        (tmp_path / "plans.sqlite", "overwrite"),
    ):
        ran = akx("report", "-o", target)
        assert ran.code == 2
        assert why in ran.error
        assert ";" in ran.error, "the line must name the cure"
    assert "overwrite" in akx("report", poisson, "-o", poisson).error
    assert (tmp_path / "plans.sqlite").read_bytes() == before
    assert akx("report", "-o", tmp_path, "--json").json["error"]["type"] == "ArgumentError"
    assert "FILE" in akx("report", "--variable", "A").error
    assert akx("report", tmp_path / "no.mtx").code == 2


def test_a_folder_that_cannot_be_written(akx: Callable[..., Ran], tmp_path: Path) -> None:
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(make_record(1))
    locked = Path("/proc") if os.geteuid() == 0 and Path("/proc").is_dir() else tmp_path / "locked"
    if not locked.is_dir():
        locked.mkdir(mode=0o500)
    ran = akx("report", "-o", locked / "page.html")
    assert ran.code == 2
    assert "cannot be written" in ran.error
    assert "--output" in ran.error
