"""What lies in `tuning_db/`: well formed, of public matrices alone, and in use."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest

from akx.backends import registry
from akx.core.io import read_matrix
from akx.core.matrix import Matrix
from akx.cost.calibration import Calibration
from akx.plandb import PlanDatabase, ShippedPlans, aged, stale_fields
from akx.plandb.key import search_key

_SHIPPED = Path(__file__).resolve().parents[2] / "tuning_db"
_LAYER = ShippedPlans(_SHIPPED)
_DEMO = _SHIPPED.parent / "examples" / "data" / "bcsstk25.mtx.gz"


def test_every_bundle_is_well_formed() -> None:
    assert _LAYER.problems == ()
    assert {record.key.device_class.split("/")[0] for record in _LAYER.records()} <= {"cpu", "cuda"}


def test_plans_are_better_than_their_baselines_or_are_these_and_say_where_they_come_from() -> None:
    for record in _LAYER.records():
        assert record.matrix_name, record.id
        assert record.speedup >= 1.0, record.matrix_name
        assert record.provenance["versions"]["python"], record.matrix_name
        assert not record.provenance["interrupted"], record.matrix_name
        names = [schedule.name for schedule in registry.schedules(record.plan.backend)]
        assert record.plan.schedule in names, record.matrix_name


def test_every_plan_answers_a_lookup(tmp_path: Path) -> None:
    with PlanDatabase(tmp_path / "none.sqlite", layers=(_LAYER,)) as database:
        for record in _LAYER.records():
            found = database.find(search_key(record.key))
            assert found.record is not None, record.matrix_name
            assert (found.layer, stale_fields(record)) == ("shipped", []), record.matrix_name


def test_bundles_that_are_aged_are_told_of() -> None:
    """A warning and no failure: whoever changes a kernel may not have the machine that a bundle was measured on."""
    old: Counter[str] = Counter()
    for record in _LAYER.records():
        if "other kernel sources" in aged(record):
            old[record.key.device_class] += 1
    for device, number in old.items():
        warnings.warn(
            f"{number} shipped plans for {device} are of other kernels, and are raced before calls use them: "
            "measure them again (python -m benchmarks.shipped)",
            stacklevel=1,
        )


def test_the_matrix_of_the_demo_has_no_plan() -> None:
    """`make demo` is to show a tuning, on whatever machine."""
    demo = Matrix.from_any(read_matrix(_DEMO)).fingerprint
    assert [record.id for record in _LAYER.records() if record.key.fingerprint == demo] == []
    assert [record.id for record in _LAYER.records() if record.matrix_name == "bcsstk25"] == []


def test_no_place_of_a_machine_is_in_the_files() -> None:
    for path in _SHIPPED.rglob("*.json"):
        text = path.read_text()
        assert "/home/" not in text, path.name
        assert "/tmp/" not in text, path.name


@pytest.mark.parametrize("path", sorted((_SHIPPED / "machines").glob("*.json")), ids=lambda path: path.name[:40])
def test_every_calibration_is_found_under_its_class(path: Path, tmp_path: Path) -> None:
    made = Calibration.from_json(json.loads(path.read_text()))
    assert made.save(tmp_path).name == path.name
    again, there = json.loads((tmp_path / path.name).read_text()), json.loads(path.read_text())
    for figures in ("one_thread", "all_threads"):  # a file of an older akx has not all of them
        again[figures] = {name: again[figures][name] for name in there[figures]}
        for variant, cost in there[figures]["formats"].items():
            again[figures]["formats"][variant] = {name: again[figures]["formats"][variant][name] for name in cost}
    assert again == there
