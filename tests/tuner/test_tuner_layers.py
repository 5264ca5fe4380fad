"""tune() beside the layers of plans: one that goes before the user's database is used, and told of where it hides."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanRecord, ShippedPlans
from akx.plandb.bundle import bundle_text
from akx.tuner import plan_key, tune


def test_the_plan_of_a_project_is_used_and_hides_what_is_tuned_later(world: Any, matrix: Any, tmp_path: Path) -> None:
    with PlanDatabase(tmp_path / "user.sqlite", layers=()) as database:
        first = tune(matrix, 8, db=database, trials=4)
        record = database.find(plan_key(matrix, 8, device=None)).record
        assert record is not None
        assert not any("layer" in note for note in first.notes)
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "brick.json").write_text(bundle_text([record]))
    project = ShippedPlans(folder, "project")
    with PlanDatabase(tmp_path / "other.sqlite", layers=(), above=(project,)) as database:
        calls = world.calls
        again = tune(matrix, 8, db=database)
        assert (again.reused, again.layer, again.plan, world.calls) == (True, "project", record.plan, calls)
        fresh = tune(matrix, 8, db=database, retune=True, trials=6)
        assert [kept.plan for kept in database.list()] == [fresh.plan]
        assert any("the project layer has a plan for this key" in note for note in fresh.notes)
        assert tune(matrix, 8, db=database).plan == record.plan
    with PlanDatabase(tmp_path / "third.sqlite", layers=(ShippedPlans(folder),)) as database:
        assert tune(matrix, 8, db=database).layer == "shipped"


@pytest.mark.parametrize("change", [{"threads": 4000}, {"options": {"colour": "blue"}}])
def test_a_plan_that_cannot_be_run_here_is_as_good_as_none(
    world: Any, matrix: Any, tmp_path: Path, change: dict[str, Any]
) -> None:
    key = plan_key(matrix, 8, device=None)
    with PlanDatabase(tmp_path / "user.sqlite", layers=()) as database:
        database.put(PlanRecord(key, Plan("cpu", "sweep", "csr", k=8).replace(**change), 1e-9, "sweep/csr", 1.0))
        found = tune(matrix, 8, db=database, trials=4)
    assert not found.reused
    assert found.plan.threads < 4000


def test_nonsense_beside_a_plan_stops_no_call(world: Any, matrix: Any, tmp_path: Path) -> None:
    nonsense = {"spreads": ["a", None], "calls": "x", "stopped": 3, "untuned": [1], "features": "x", "finalists": 7}
    nonsense |= {"baseline_plan": Plan("cpu", "sweep", "csr", k=3, threads=4000).to_json(), "roofline": "none"}
    with PlanDatabase(tmp_path / "user.sqlite", layers=()) as database:
        first = tune(matrix, 8, db=database, trials=4)
        (record,) = database.list()
        database.put(dataclasses.replace(record, provenance=nonsense))
        again = tune(matrix, 8, db=database)
    assert (again.plan, again.spread, again.baseline_plan) == (first.plan, 0.0, None)
