"""The user's plans come before the shipped ones, and a bad shipped file stops nothing."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest

from akx.core.errors import ArgumentError
from akx.plandb import PlanDatabase, PlanDatabaseWarning, ShippedPlans, shipped_plans
from akx.plandb import folder as folder_module
from akx.plandb.bundle import bundle_text
from akx.plandb.record import PlanRecord

from .samples import make_key, make_record


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Two files of three plans, one of them in both."""
    folder = tmp_path / "tuning_db"
    folder.mkdir()
    (folder / "brick.json").write_text(bundle_text([make_record(1), make_record(2, seconds=0.5)]))
    (folder / "shell.json").write_text(bundle_text([make_record(2, seconds=0.25), make_record(3)]))
    (folder / "README.md").write_text("no bundle")
    return folder


def test_the_user_comes_first(shipped: Path, tmp_path: Path) -> None:
    slower = make_record(1, seconds=0.75)
    with PlanDatabase(tmp_path / "plans.sqlite", layers=(ShippedPlans(shipped),)) as database:
        found = database.find(make_key(1))
        assert (found.record, found.layer) == (make_record(1), "shipped")
        database.put(slower)
        found = database.find(make_key(1))
        assert (found.record, found.layer) == (slower, "user")
        assert database.list() == [slower]
        assert [layer for layer, _ in database.entries()] == ["user", "shipped", "shipped"]
        assert database.get(make_key(1).id) == slower
        assert database.get(make_key(3).id) == make_record(3)
        assert database.remove(make_key(1).id) == slower
        assert database.find(make_key(1)).record == make_record(1)


def test_the_faster_of_two_files_wins(shipped: Path) -> None:
    layer = ShippedPlans(shipped)
    assert [record.matrix_name for record in sorted(layer.records(), key=lambda r: r.matrix_name)] == [
        "matrix1.mtx",
        "matrix2.mtx",
        "matrix3.mtx",
    ]
    found = layer.get(make_key(2).id)
    assert found is not None
    assert found.seconds == 0.25


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_plan_of_a_disturbed_search_hides_no_sound_one_of_another_file(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    sound, disturbed = make_record(seconds=0.5), make_record(seconds=0.25, provenance={"disturbed": True})
    for name, record in zip(names, (sound, disturbed), strict=True):
        (tmp_path / f"{name}.json").write_text(bundle_text([record]))
    assert ShippedPlans(tmp_path).records() == (sound,)


def test_shipped_plans_are_read_only_and_explain_themselves(shipped: Path, tmp_path: Path) -> None:
    with PlanDatabase(tmp_path / "plans.sqlite", layers=(ShippedPlans(shipped),)) as database:
        with pytest.raises(ArgumentError, match="read-only"):
            database.remove(make_key(1).id)
        found = database.find(make_key(1, ranks=9))
        assert found.record is None
        assert found.mismatches == [(make_record(1), ["ranks"])]
        assert database.find(make_key(77)).mismatches == []


def test_malformed_files_are_reported_and_skipped(shipped: Path, tmp_path: Path) -> None:
    (shipped / "truncated.json").write_text((shipped / "brick.json").read_text()[:-40])
    (shipped / "binary.json").write_bytes(b"\xff\xfe\x00")
    (shipped / "list.json").write_text("[]")
    (shipped / "newer.json").write_text('{"akx": "plans", "schema": 99, "records": []}')
    (shipped / "folder.json").mkdir()
    one_bad = json.loads((shipped / "shell.json").read_text())
    one_bad["records"][0]["seconds"] = "fast"
    one_bad["records"][1]["key"]["k"] = 4
    (shipped / "shell.json").write_text(json.dumps(one_bad))
    layer = ShippedPlans(shipped)
    with pytest.warns(PlanDatabaseWarning) as caught:
        assert {record.key for record in layer.records()} == {make_key(1), make_key(2)}
    assert len(layer.problems) == len(caught) == 6
    for name in ("truncated.json", "binary.json", "list.json", "newer.json", "shell.json"):
        assert any(name in problem for problem in layer.problems)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert layer.get(make_key(1).id) == make_record(1)
        assert len(layer.problems) == 6


@pytest.fixture
def ours(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> ShippedPlans:
    """The layer that comes with akx, where these files are its own."""
    monkeypatch.setattr(folder_module, "shipped_folder", lambda: shipped)
    return ShippedPlans()


def test_a_lookup_parses_those_that_come_with_akx_for_its_pattern_alone(
    ours: ShippedPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, from_json = list[PlanRecord](), PlanRecord.from_json
    monkeypatch.setattr(PlanRecord, "from_json", staticmethod(lambda data: made.append(from_json(data)) or made[-1]))
    assert ours.with_fingerprint("0" * 48) == ()
    assert ours.timings() == ()
    assert made == []
    key = make_key(2)
    found = ours.with_fingerprint(key.fingerprint)
    assert {record.key.fingerprint for record in made} == {key.fingerprint}
    assert found == tuple(record for record in ours.records() if record.key.fingerprint == key.fingerprint)


def test_what_is_wrong_with_plans_that_come_with_akx_is_told_where_they_are_looked_for(
    ours: ShippedPlans,
) -> None:
    path = ours.directory / "brick.json"
    path.write_text(path.read_text()[:-40])
    key = make_key(2)
    with pytest.warns(PlanDatabaseWarning, match=r"brick\.json"):
        assert [record.seconds for record in ours.with_fingerprint(key.fingerprint) if record.key == key] == [0.25]


def test_a_directory_that_is_not_there_is_an_empty_layer(tmp_path: Path) -> None:
    layer = ShippedPlans(tmp_path / "nothing")
    assert layer.records() == ()
    assert layer.problems == ()
    assert layer.with_fingerprint("f") == ()


def test_where_the_shipped_plans_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "akx"
    package.mkdir()
    monkeypatch.setattr("akx.core.process._PACKAGE", package)
    assert ShippedPlans().directory == package / "tuning_db"
    (tmp_path / "tuning_db").mkdir()
    assert ShippedPlans().directory == package / "tuning_db"  # some other project's folder
    (tmp_path / "pyproject.toml").touch()
    assert ShippedPlans().directory == tmp_path / "tuning_db"
    (package / "tuning_db").mkdir()
    assert ShippedPlans().directory == package / "tuning_db"
    shutil.rmtree(package)


def test_what_is_shipped_is_well_formed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shipped_plans().problems == ()
    assert shipped_plans() is shipped_plans()
