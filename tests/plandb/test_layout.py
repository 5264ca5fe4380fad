"""The layouts of the tables: layout 4 is read and brought to the present one, of others plans are imported."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akx.core.errors import DatabaseError, FileFormatError
from akx.plandb import PlanDatabase, PlanDatabaseWarning, TrialRecord, aged, layout, stale_fields, store
from akx.plandb import key as keys
from akx.plandb.key import search_key

from .samples import make_key, make_plan, make_record, make_timing

_DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture
def of_layout_4(tmp_path: Path) -> Path:
    """A database as the last akx wrote it that had no table of timings."""
    path = tmp_path / "plans.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((_DATA / "plans_layout_4.sql").read_text())
    connection.close()
    return path


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (number,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    connection.close()
    return int(number)


def test_layout_4_is_read_as_it_is_and_brought_up_by_the_first_change(of_layout_4: Path) -> None:
    content = of_layout_4.read_bytes()
    with PlanDatabase(of_layout_4, layers=()) as reader, PlanDatabase(of_layout_4, layers=()) as writer:
        records = reader.list()
        assert {record.key.k for record in records} == {3, 4, 6, 8}
        assert [reader.find(search_key(record.key)).record for record in records] == records
        trials = [trial for record in records for trial in reader.trials(record.key)]
        assert trials
        assert (reader.timings(), reader.find_timings(make_timing().key)) == ((), ())
        assert reader.describe()[0].version == 4
        assert of_layout_4.read_bytes() == content, "who only reads changes nothing"
        writer.put_timing(make_timing())
        assert version(of_layout_4) == layout.SCHEMA_VERSION
        for database in (reader, writer):
            assert database.find_timings(make_timing().key) == (make_timing(),)
            assert database.list() == records
            assert [trial for record in records for trial in database.trials(record.key)] == trials
        writer.remove(records[0].id)


def test_who_is_killed_as_the_layout_is_changed_leaves_the_old_one(
    of_layout_4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        layout.make_tables(*given)
        raise KeyboardInterrupt

    before = contents(of_layout_4)
    monkeypatch.setattr(store, "make_tables", fail)
    with PlanDatabase(of_layout_4, layers=()) as database, pytest.raises(KeyboardInterrupt):
        database.put_timing(make_timing())
    assert (version(of_layout_4), contents(of_layout_4)) == (4, before)
    monkeypatch.undo()
    with PlanDatabase(of_layout_4, layers=()) as database:
        database.put_timing(make_timing())
        assert [timing for _, timing in database.timings()] == [make_timing()]


def test_a_damaged_file_of_layout_4_is_rescued(of_layout_4: Path, tmp_path: Path) -> None:
    with PlanDatabase(of_layout_4, layers=()) as old, PlanDatabase(tmp_path / "new.sqlite", layers=()) as new:
        rows = store._rescue(of_layout_4)
        new._store.write(lambda tables: store._put_back(tables.connection, rows))  # type: ignore[arg-type]
        assert new.list() == old.list()
        for record in old.list():
            assert new.trials(record.key) == old.trials(record.key)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_older_layouts_are_refused_and_left_alone(of_layout_4: Path, number: int) -> None:
    change_layout(
        of_layout_4,
        "DELETE FROM schema_version",
        f"INSERT INTO schema_version VALUES ({number}, {number}, '')",
    )
    before = contents(of_layout_4)
    with PlanDatabase(of_layout_4, layers=()) as database:
        for action in (database.list, lambda: database.put(make_record()), database.check_writable):
            with pytest.raises(DatabaseError, match="older akx") as caught:
                action()
            assert f"layout {number} in {of_layout_4}" in str(caught.value.found)
            assert "move it away" in caught.value.hint
        with pytest.warns(PlanDatabaseWarning, match="older akx"):
            assert database.find(make_key()).record is None
        with pytest.raises(DatabaseError, match="older akx"):
            database.describe()
    assert contents(of_layout_4) == before


def test_a_file_that_was_brought_up_has_the_columns_of_a_fresh_one(of_layout_4: Path, tmp_path: Path) -> None:
    def columns(path: Path) -> dict[str, set[str]]:
        with PlanDatabase(path, layers=()) as database:
            database.check_writable()
        connection = sqlite3.connect(path)
        tables = ("plans", "trials", "timings", "schema_version")
        found = {table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} for table in tables}
        connection.close()
        return found

    assert columns(of_layout_4) == columns(tmp_path / "fresh.sqlite")


def change_layout(path: Path, *statements: str) -> None:
    """What another process does to a file that is open here."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements:
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.close()


def contents(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    found = list(connection.iterdump())
    connection.close()
    return found


def to_layout_99(oldest_reader: int) -> tuple[str, ...]:
    """A later akx that keeps more of a plan."""
    return (
        "ALTER TABLE plans ADD COLUMN mood TEXT NOT NULL DEFAULT ''",
        f"INSERT INTO schema_version VALUES (99, {oldest_reader}, '')",
    )


@pytest.mark.parametrize("oldest_reader", [4, 99])
def test_a_file_that_a_newer_akx_migrates_while_it_is_open(tmp_path: Path, oldest_reader: int) -> None:
    path = tmp_path / "plans.sqlite"
    with PlanDatabase(path, layers=()) as writer, PlanDatabase(path, layers=()) as reader:
        writer.put(make_record(1))
        assert reader.list() == [make_record(1)]
        assert writer._store._connection is not None  # type: ignore[union-attr]
        change_layout(path, *to_layout_99(oldest_reader))
        before = contents(path)
        changes: list[Callable[[], object]] = [
            lambda: writer.put(make_record(2)),
            lambda: writer.add_trials(make_key(1), [TrialRecord(make_plan())]),
            lambda: writer.put_timing(make_timing(1)),
            lambda: writer.remove(make_record(1).id),
            writer.check_writable,
        ]
        for change in changes:
            with pytest.raises(DatabaseError, match="newer akx"):
                change()
        for database in (reader, writer):
            if oldest_reader == 4:
                assert database.list() == [make_record(1)]
                continue
            with pytest.raises(DatabaseError, match="newer akx"):
                database.list()
            with pytest.warns(PlanDatabaseWarning, match="newer akx"):
                assert database.find(make_key(1)).record is None
    assert contents(path) == before
    assert not list(path.parent.glob("*.corrupt-*"))


def test_a_file_that_is_migrated_between_being_looked_at_and_being_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plans.sqlite"
    with PlanDatabase(path, layers=()) as database:
        database.put(make_record(1))
    genuine = store.Store._opened

    def migrated_behind(self: store.Store, *, to_write: bool) -> sqlite3.Connection | None:
        connection = genuine(self, to_write=to_write)
        monkeypatch.setattr(store.Store, "_opened", genuine)
        change_layout(path, *to_layout_99(4))
        return connection

    monkeypatch.setattr(store.Store, "_opened", migrated_behind)
    with PlanDatabase(path, layers=()) as database, pytest.raises(DatabaseError, match="newer akx"):
        database.put(make_record(2))


def test_an_index_that_another_process_makes_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    with PlanDatabase(path, layers=()) as writer, PlanDatabase(path, layers=()) as reader:
        writer.put(make_record(1))
        assert reader.list() == [make_record(1)]
        change_layout(path, "CREATE INDEX by_name ON plans (matrix_name)")
        assert reader.list() == [make_record(1)]
        change_layout(path, "DROP INDEX by_name")
        writer.put(make_record(2))
        assert reader.list() == [make_record(1), make_record(2)]


class _Interrupted:
    """A connection during whose first look another one makes the tables."""

    def __init__(self, connection: sqlite3.Connection, other: sqlite3.Connection) -> None:
        self._connection, self._other = connection, other

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str) -> Any:
        cursor = self._connection.execute(statement)
        if "application_id" not in statement:
            return cursor
        rows = cursor.fetchall()
        with contextlib.suppress(sqlite3.OperationalError):  # it may have to wait; then it was not in between
            self._other.execute("BEGIN IMMEDIATE")
            layout.make_tables(self._other)
            self._other.execute("COMMIT")
        return SimpleNamespace(fetchone=lambda: rows[0])


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_file_that_another_process_is_making_is_not_taken_for_a_foreign_one(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "plans.sqlite"
    one, other = (sqlite3.connect(path, isolation_level=None, timeout=0.1) for _ in range(2))
    other.execute(f"PRAGMA journal_mode = {journal}")
    found = layout.inspect(_Interrupted(one, other))  # type: ignore[arg-type]
    assert found.fault is None
    assert not one.in_transaction
    one.close()
    other.close()


#: By k, why plans of the data are aged where sources of `sweep` are taken for those of the newest, and Numba is 0.68.
_AGES = {
    2: ["other kernel sources", "numba 0.60, now 0.68"],
    3: [],
    4: [],
    5: ["other kernel sources"],
}


@pytest.mark.parametrize("form", ["file of layout 3", "file of layout 1", "bundle"])
def test_plans_from_before_there_were_revisions_are_imported(
    tmp_path: Path, revise: Any, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    revise("cpu/sweep", tokens="f" * 16, equal=("fb5168568f6728b2", "3efd3770805b3a88"))
    monkeypatch.setattr(keys, "_releases", lambda backend: {"numba": "0.68.1"})
    bundle = path = _DATA / "plans_schema_1.json"
    if form != "bundle":
        path = tmp_path / "old.sqlite"
        connection = sqlite3.connect(path, isolation_level=None)
        if form == "file of layout 3":
            connection.executescript((_DATA / "plans_layout_3.sql").read_text())
        else:
            connection.executescript(
                "PRAGMA application_id = 1634433136;"
                "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, oldest_reader INTEGER, applied TEXT);"
                "INSERT INTO schema_version VALUES (1, 1, '');"
                "CREATE TABLE plans (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, record TEXT NOT NULL)"
            )
            for record in json.loads(bundle.read_text())["records"]:
                connection.execute("INSERT INTO plans VALUES (?, 'f', ?)", (record["id"], json.dumps(record)))
            connection.execute("INSERT INTO plans VALUES ('bad', 'f', '{\"key\": 1')")
        connection.close()
    before = path.read_bytes()
    with PlanDatabase(tmp_path / "new.sqlite", layers=()) as database:
        report = database.import_(path, skip_invalid=True)
        assert report.added == 4
        assert len(report.invalid) == (form == "file of layout 1")
        assert {record.key.k: aged(record) for record in database.list()} == _AGES
        assert [record.created[:7] for record in database.list() if record.key.k == 5] == ["2024-02"], "the newest"
        for record in database.list():
            assert stale_fields(record) == []
            assert database.find(record.key).record == record
    assert path.read_bytes() == before


def test_a_database_of_today_is_no_bundle(of_layout_4: Path, tmp_path: Path) -> None:
    with (
        PlanDatabase(tmp_path / "new.sqlite", layers=()) as database,
        pytest.raises(FileFormatError, match="not a bundle"),
    ):
        database.import_(of_layout_4)
