"""Filling `tuning_db/`: what is tuned, what is left alone, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from akx.cost.calibration import Calibration
from akx.cost.device_model import Figures
from akx.plandb import PlanDatabase, ShippedPlans
from akx.tuner import tune
from benchmarks import shipped
from benchmarks.gallery import small
from benchmarks.matrices import Case, select


def _refused() -> None:
    raise ValueError("not square: 3 x 4")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Two matrices, and tunings of two trials; the names and k that were asked for."""
    asked: list[tuple[str, int]] = []

    def two_trials(matrix, k, *, backend, db, name, seconds):
        assert seconds in (None, 7.0)
        asked.append((name, k))
        return tune(matrix, k, backend=backend, db=db, name=name, trials=2, seconds=5.0)

    cases = [Case("odd", "real", _refused), Case("bcsstk25", "real", _refused)]
    cases.append(Case("brick", "gallery", lambda: small("brick")))
    monkeypatch.setattr(shipped, "select", lambda names: cases)
    monkeypatch.setattr(shipped, "tune", two_trials)
    return asked


def test_plans_are_tuned_once_and_written_as_a_layer(
    quick: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(tmp_path / "plans.sqlite"), "--shipped", str(tmp_path), "--k", "3", "--k", "2"]
    assert shipped.main(given) == 0
    assert quick == [("brick", 3), ("brick", 2)]
    assert "was there" not in capsys.readouterr().err
    assert shipped.main([*given, "--seconds", "7", "--bundle", "cpu-here"]) == 0
    assert capsys.readouterr().err.count("was there") == 2
    layer = ShippedPlans(tmp_path)
    assert sorted(record.key.k for record in layer.records()) == [2, 3]
    assert layer.problems == ()
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as db:
        assert {record.id for record in db.list()} == {record.id for record in layer.records()}


def test_matrices_of_few_values_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped, "select", lambda names: select(names, reduced=True))
    with pytest.raises(ValueError, match="9-point-constant has the key of 9-point, and few values"):
        shipped.main([str(tmp_path / "plans.sqlite"), "--matrix", "9-point-constant"])


def test_a_plan_of_the_matrix_of_the_demo_is_not_written(quick: list[tuple[str, int]], tmp_path: Path) -> None:
    """Though it may be in the database, by a benchmark that tunes all matrices."""
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as db:
        tune(small("brick"), 2, backend="cpu", db=db, name="bcsstk25", trials=2, seconds=5.0)
        tune(small("brick"), 3, backend="cpu", db=db, name="brick", trials=2, seconds=5.0)
    given = [str(tmp_path / "plans.sqlite"), "--shipped", str(tmp_path), "--k", "3", "--bundle", "cpu-here"]
    assert shipped.main(given) == 0
    assert [record.matrix_name for record in ShippedPlans(tmp_path).records()] == ["brick"]


def test_a_failure_is_told_by_the_exit_code(
    quick: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given, **options):
        raise shipped.AkxError("no")

    monkeypatch.setattr(shipped, "tune", fails)
    assert shipped.main([str(tmp_path / "plans.sqlite"), "--k", "2"]) == 1


def test_a_calibration_is_put_beside_the_plans(
    quick: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Figures(1e10, 2e10, 4e10, 3e9, 1e-7, 2**25)
    made = Calibration("a processor", 2, known, known, "0123456789abcdef", "2026-02-03T00:00:00")
    monkeypatch.setattr(shipped, "calibrate", lambda backend: made)
    assert shipped.main([str(tmp_path / "plans.sqlite"), "--shipped", str(tmp_path), "--k", "2", "--calibrate"]) == 0
    (file,) = (tmp_path / "machines").iterdir()
    assert Calibration.from_json(json.loads(file.read_text())) == made
