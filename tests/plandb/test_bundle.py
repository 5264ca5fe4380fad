"""Bundles: export and import carry everything, merge by merit, and refuse what is not theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from akx.core.errors import ArgumentError, DatabaseError, FileFormatError
from akx.plandb import ImportReport, PlanDatabase, ShippedPlans, parse_bundle, read_bundle
from akx.plandb.bundle import bundle_text

from .samples import make_key, make_record


def open_database(folder: Path, name: str, *records: Any) -> PlanDatabase:
    database = PlanDatabase(folder / name, layers=())
    for record in records:
        database.put(record)
    return database


def test_export_and_import_carry_everything(tmp_path: Path) -> None:
    records = [make_record(number, seconds=1 / (3 + number)) for number in range(4)]
    with open_database(tmp_path, "a", *records) as source, open_database(tmp_path, "b") as target:
        assert source.export(tmp_path / "bundle.json", description="two cores") == 4
        assert target.import_(tmp_path / "bundle.json") == ImportReport(added=4)
        assert target.list() == source.list() == records
        assert target.import_(tmp_path / "bundle.json") == ImportReport(unchanged=4)
    assert read_bundle(tmp_path / "bundle.json").description == "two cores"


def test_a_bundle_is_plain_json_with_provenance_and_a_stable_order(tmp_path: Path) -> None:
    records = [make_record(number) for number in (2, 0, 1)]
    with open_database(tmp_path, "a", *records) as database:
        database.export(tmp_path / "bundle.json")
    content = json.loads((tmp_path / "bundle.json").read_text())
    assert (content["akx"], content["schema"]) == ("plans", 1)
    assert [record["matrix_name"] for record in content["records"]] == ["matrix0.mtx", "matrix1.mtx", "matrix2.mtx"]
    assert content["records"][0]["provenance"] == {"machine": {"cores": 2}, "samples": [0.1, 0.2, 1 / 3]}
    assert content["records"][0]["key"]["fingerprint"] == make_key(0).fingerprint


def test_merging_keeps_the_faster_then_the_newer(tmp_path: Path) -> None:
    old, new = "2024-01-01T00:00:00+00:00", "2024-01-02T00:00:00+00:00"
    here = [
        make_record(0, seconds=1.0),
        make_record(1, seconds=1.0),
        make_record(2, seconds=1.0, created=old),
        make_record(3, seconds=1.0, created=new),
        make_record(4),
    ]
    there = [
        make_record(0, seconds=0.5),
        make_record(1, seconds=2.0),
        make_record(2, seconds=1.0, created=new),
        make_record(3, seconds=1.0, created=old),
        make_record(4),
        make_record(5),
    ]
    (tmp_path / "bundle.json").write_text(bundle_text(there))
    with open_database(tmp_path, "a", *here) as database:
        assert database.import_(tmp_path / "bundle.json") == ImportReport(added=1, replaced=2, kept=2, unchanged=1)
        assert database.list() == [there[0], here[1], there[2], here[3], here[4], there[5]]


def test_a_plan_of_a_disturbed_search_takes_the_place_of_no_sound_one(tmp_path: Path) -> None:
    sound = [make_record(number, seconds=1.0) for number in range(3)]
    disturbed, interrupted = {"disturbed": True}, {"interrupted": True}
    there = [
        make_record(0, seconds=0.5, provenance=disturbed),
        make_record(1, seconds=0.5, provenance=interrupted),
        make_record(2, seconds=0.5),
        make_record(3, seconds=2.0),
    ]
    (tmp_path / "bundle.json").write_text(bundle_text(there))
    crude = make_record(3, seconds=1.0, provenance=disturbed)
    with open_database(tmp_path, "a", *sound, crude) as database:
        assert database.import_(tmp_path / "bundle.json") == ImportReport(added=0, replaced=2, kept=2, unchanged=0)
        assert database.list() == [*sound[:2], there[2], there[3]]


def test_chosen_plans_from_any_layer(tmp_path: Path) -> None:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "a.json").write_text(bundle_text([make_record(9)]))
    with PlanDatabase(tmp_path / "a", layers=(ShippedPlans(tmp_path / "shipped"),)) as database:
        for number in range(3):
            database.put(make_record(number))
        chosen = [make_key(1).id[:12], make_key(9).id[:12], make_key(1).id]
        assert database.export(tmp_path / "bundle.json", chosen) == 2
        assert read_bundle(tmp_path / "bundle.json").records == (make_record(1), make_record(9))
        with pytest.raises(ArgumentError, match="no such plan"):
            database.export(tmp_path / "bundle.json", ["zzz"])
    assert len(read_bundle(tmp_path / "bundle.json").records) == 2


def test_an_invalid_record_stops_the_whole_import_unless_told_otherwise(tmp_path: Path) -> None:
    content = json.loads(bundle_text([make_record(number) for number in range(3)]))
    content["records"][1]["baseline_seconds"] = -1
    (tmp_path / "bundle.json").write_text(json.dumps(content))
    with open_database(tmp_path, "a") as database:
        with pytest.raises(FileFormatError, match=r"record 1: .*baseline_seconds"):
            database.import_(tmp_path / "bundle.json")
        assert database.list() == []
        report = database.import_(tmp_path / "bundle.json", skip_invalid=True)
        assert (report.added, len(report.invalid)) == (2, 1)
        assert report.to_json()["invalid"] == list(report.invalid)
        assert database.list() == [make_record(0), make_record(2)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"akx": "figures"}',
        '{"akx": "plans"}',
        '{"akx": "plans", "schema": true, "records": []}',
        '{"akx": "plans", "schema": 2, "records": []}',
        '{"akx": "plans", "schema": 1, "records": {}}',
        '{"akx": "plans", "schema": 1, "records": [NaN]}',
        "[" * 100_000,
        "%%MatrixMarket matrix",
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileFormatError):
        parse_bundle(text)
    (tmp_path / "bundle.json").write_text(text)
    with open_database(tmp_path, "a") as database, pytest.raises(FileFormatError, match=r"bundle\.json"):
        database.import_(tmp_path / "bundle.json")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("record", [None, 3, [], "plan", {}, {"schema": 1}])
def test_what_is_no_record_is_a_problem_of_its_own(record: Any) -> None:
    content = {"akx": "plans", "schema": 1, "records": [record, make_record().to_json()]}
    bundle = parse_bundle(json.dumps(content))
    assert bundle.records == (make_record(),)
    assert len(bundle.problems) == 1
    assert bundle.problems[0].startswith("record 0: ")


def test_a_missing_bundle(tmp_path: Path) -> None:
    with open_database(tmp_path, "a") as database, pytest.raises(FileFormatError, match="No such file"):
        database.import_(tmp_path / "nothing.json")


def test_an_export_overwrites_a_bundle_and_nothing_else(tmp_path: Path) -> None:
    with open_database(tmp_path, "a", make_record(0)) as database:
        database.export(tmp_path / "bundle.json")
        database.put(make_record(1))
        assert database.export(tmp_path / "bundle.json") == 2
        assert len(read_bundle(tmp_path / "bundle.json").records) == 2
        (tmp_path / "thesis.txt").write_text("years of work")
        for precious in (tmp_path / "thesis.txt", database.path):
            content = precious.read_bytes()
            with pytest.raises(DatabaseError, match="no bundle"):
                database.export(precious)
            assert precious.read_bytes() == content
        with pytest.raises(DatabaseError, match="no bundle"):
            database.import_(database.path)
        with pytest.raises(DatabaseError, match="directory"):
            database.export(tmp_path)
        with pytest.raises(DatabaseError, match="cannot be exported"):
            database.export(tmp_path / "thesis.txt" / "bundle.json")
        with pytest.raises(DatabaseError, match="cannot be exported"):
            database.export(tmp_path / "nowhere" / "bundle.json")
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left <= {"a", "a-wal", "a-shm", "bundle.json", "thesis.txt"}
