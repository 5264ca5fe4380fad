"""tune() beside the layers of plans: one that goes before the user's database is used, and told of where it hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from akx.plandb import PlanDatabase, ShippedPlans
from akx.plandb.transfer import bundle_text
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
        assert (again.reused, again.plan, world.calls) == (True, record.plan, calls)
        fresh = tune(matrix, 8, db=database, retune=True, trials=6)
        assert [kept.plan for kept in database.list()] == [fresh.plan]
        assert any("the project layer has a plan for this key" in note for note in fresh.notes)
        assert tune(matrix, 8, db=database).plan == record.plan
