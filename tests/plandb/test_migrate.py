"""Old layouts come along, in one step or not at all."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.errors import DatabaseError
from akx.core.fingerprint import Pattern
from akx.core.matrix import Matrix
from akx.plandb import (
    PlanDatabase,
    PlanDatabaseWarning,
    PlanRecord,
    ShippedPlans,
    TimingKey,
    TrialRecord,
    access,
    aged,
    database_status,
    parse_bundle,
    read_bundle,
    stale_fields,
    store,
)
from akx.plandb import key as keys
from akx.plandb import migrate as migrations
from akx.plandb.bundle import bundle_text
from akx.plandb.key import search_key
from akx.plandb.legacy import key_id

from .samples import make_key, make_plan, make_record, make_timing, of_search, without_root

#: Layout 1 as it was written then, spelled out so that it stays what it was.
_LAYOUT_1 = """
PRAGMA application_id = 1634433136;
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, oldest_reader INTEGER NOT NULL, applied TEXT NOT NULL);
INSERT INTO schema_version VALUES (1, 1, '2024-01-01T00:00:00+00:00');
CREATE TABLE plans (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, record TEXT NOT NULL);
CREATE INDEX plans_by_fingerprint ON plans (fingerprint);
PRAGMA journal_mode = WAL;
"""


#: Layout 2, likewise.
_LAYOUT_2 = """
PRAGMA application_id = 1634433136;
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, oldest_reader INTEGER NOT NULL, applied TEXT NOT NULL);
INSERT INTO schema_version VALUES (1, 1, '2024-01-01T00:00:00+00:00'), (2, 2, '2024-01-01T00:00:00+00:00');
CREATE TABLE plans (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, dtype TEXT NOT NULL, index_type TEXT NOT NULL,
    basis TEXT NOT NULL, k INTEGER NOT NULL, start_vectors INTEGER NOT NULL, device_class TEXT NOT NULL,
    kernel_hash TEXT NOT NULL, versions TEXT NOT NULL, plan TEXT NOT NULL, seconds REAL NOT NULL,
    baseline_name TEXT NOT NULL, baseline_seconds REAL NOT NULL, prepare_seconds REAL NOT NULL,
    tuning_seconds REAL NOT NULL, created TEXT NOT NULL, matrix_name TEXT NOT NULL, provenance TEXT NOT NULL,
    trials TEXT NOT NULL);
CREATE INDEX plans_by_fingerprint ON plans (fingerprint);
CREATE TABLE trials (number INTEGER PRIMARY KEY, key_id TEXT NOT NULL, key TEXT NOT NULL, plan TEXT NOT NULL,
    seconds TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, created TEXT NOT NULL);
CREATE INDEX trials_by_key ON trials (key_id);
CREATE TABLE rejected (id TEXT PRIMARY KEY, record TEXT NOT NULL, reason TEXT NOT NULL);
PRAGMA journal_mode = WAL;
"""
#: What keys and rows had in the place of revisions; the newest plan of today's sources has those of the lock.
_THEN = {"kernel_hash": "0123456789abcdef", "versions": "plan 1, numba 0.61"}
_MADE = {"kernels": "0123456789abcdef", "versions": {"numba": "0.61"}}
_TRIALS_2 = "number, key_id, key, plan, seconds, state, reason, created"


def then(number: int, **changes: Any) -> dict[str, Any]:
    """The JSON of a record as it was written then."""
    record = make_record(number, **changes)
    key = {name: value for name, value in record.key.to_json().items() if name != "revisions"} | _THEN
    return {**record.to_json(), "schema": 1, "key": key, "id": key_id(key)}


def now(number: int, **changes: Any) -> PlanRecord:
    """The same record as it is read today."""
    record = make_record(number, **changes)
    return replace(record, provenance={**record.provenance, **_MADE})


@pytest.fixture
def of_layout_2(tmp_path: Path) -> tuple[Path, tuple[TrialRecord, ...]]:
    """A database of layout 2 with a plan and two trials for its key."""
    path, old = tmp_path / "plans.sqlite", then(1)
    at = "2024-01-01T00:00:00+00:00"
    trials = tuple(TrialRecord(make_plan(threads=number), (0.5, 1 / 3), created=at) for number in (1, 2))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(_LAYOUT_2)
    row = old["key"] | {name: json.dumps(old[name]) for name in ("plan", "provenance", "trials")}
    values = [(row if name in row else old)[name] for name in migrations.OLD_PLAN_COLUMNS]
    connection.execute(f"INSERT INTO plans VALUES ({', '.join('?' * len(values))})", values)
    for number, trial in enumerate(trials, 1):
        plain = json.dumps(trial.plan.to_json()), json.dumps(trial.seconds), trial.state, trial.reason, at
        key = json.dumps(old["key"])
        connection.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (number, old["id"], key, *plain))
    connection.close()
    return path, trials


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, list[PlanRecord]]:
    """A database of layout 1 with three plans and one that is beyond reading."""
    path = tmp_path / "plans.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(_LAYOUT_1)
    for number in range(3):
        record = then(number, seconds=1 / (number + 3))
        row = (record["id"], record["key"]["fingerprint"], json.dumps(record))
        connection.execute("INSERT INTO plans VALUES (?, ?, ?)", row)
    connection.execute("INSERT INTO plans VALUES ('bad', 'f', '{\"key\": 1')")
    connection.execute("INSERT INTO plans VALUES ('worse', 'f', '{\"key\": {\"fingerprint\": [1]}}')")
    connection.close()
    return path, [now(number, seconds=1 / (number + 3)) for number in range(3)]


_DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture
def of_layout_3(tmp_path: Path, revise: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database as the last akx without revisions wrote it, with today's sources of sweep as they were then.

    For k = 3 it has what a search found, for k = 2 a plan of other sources and versions, for k = 4 one under the
    digest of all sources, and for k = 5 two of other sources.
    """
    path = tmp_path / "plans.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((_DATA / "plans_layout_3.sql").read_text())
    connection.close()
    revise("cpu/sweep", tokens="f" * 16, equal=("fb5168568f6728b2", "3efd3770805b3a88"))
    monkeypatch.setattr(keys, "_releases", lambda backend: {"numba": "0.68.1"})
    return path


_AGES = {
    2: ["other kernel sources", "numba 0.60, now 0.68"],
    3: [],
    4: [],
    5: ["other kernel sources"],
}


def test_rows_of_an_old_layout_that_no_table_takes_are_told() -> None:
    rows = {"plans": [("a", "f", "{}"), ("a", "twin", "{}"), ("b", None, "{}")]}
    with pytest.warns(PlanDatabaseWarning, match="2 damaged rows of a plan database of layout 1"):
        copy = migrations.modern_copy(1, lambda table, columns: rows.get(table, []), target=1)
    assert copy.execute("SELECT id, fingerprint FROM plans").fetchall() == [("a", "f")]
    copy.close()


def test_plans_from_before_there_were_revisions_stay_in_use(of_layout_3: Path) -> None:
    with PlanDatabase(of_layout_3, layers=()) as database:
        content = of_layout_3.read_bytes()
        for is_first in (True, False):  # as it is, and migrated
            ages = {}
            records = database.list()
            for record in records:
                found = database.find(search_key(record.key)).record
                assert found == database.get(record.id) == record
                assert stale_fields(record) == []
                ages[record.key.k] = aged(record)
                assert database.find(replace(search_key(record.key), k=9)).mismatches
            assert ages == _AGES
            assert [record.created[:7] for record in records if record.key.k == 5] == ["2024-02"], "the newest"
            found_for = {record.key.k: database.trials(record.key) for record in records}
            assert {k: [aged(one) for one in trials] for k, trials in found_for.items()} == {
                2: [_AGES[2]],
                3: [[]],
                4: [],
                5: [],
            }
            assert [database.trials_behind(one) for one in records if one.key.k == 3] == [found_for[3]]
            near = database.sketches(replace(records[0].key, fingerprint="f"), backend="cpu", least=1, most=9)
            assert {sketch.id for sketch in near} == {record.id for record in records}
            assert database.with_ids(sketch.id for sketch in near)
            if is_first:
                assert (version(of_layout_3), of_layout_3.read_bytes()) == (3, content)
                database.check_writable()
        assert version(of_layout_3) == migrations.SCHEMA_VERSION
        connection = sqlite3.connect(of_layout_3)
        ((record, reason),) = connection.execute("SELECT record, reason FROM rejected").fetchall()
        connection.close()
        assert (json.loads(record)["created"][:7], reason) == ("2024-01", "a newer plan has its key")


def matrix_of(fingerprint: str, monkeypatch: pytest.MonkeyPatch, *, rows: int = 3, nnz: int = 3) -> Matrix:
    """A matrix of this size whose pattern had this digest once."""
    monkeypatch.setattr(Pattern, "former_digest", fingerprint)
    return Matrix.from_any(sp.csr_array((np.ones(nnz), np.divmod(np.arange(nnz), rows)), shape=(rows, rows)))


def test_plans_of_an_old_layout_are_found_by_the_digests_of_today(
    of_layout_3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = of_layout_3.read_bytes()
    with PlanDatabase(of_layout_3, layers=()) as database:
        records = database.list()
        size = {name: records[0].provenance["matrix"][name] for name in ("rows", "nnz")}
        A = matrix_of(records[0].key.fingerprint, monkeypatch, **size)
        mine = [replace(one, key=replace(one.key, fingerprint=A.fingerprint)) for one in records]
        for record in mine:
            assert database.find(search_key(record.key)).record == record
        for known in (database.of_pattern(A.fingerprint), [one for _, one in database.entries(A.fingerprint)]):
            assert {record.id for record in known} == {record.id for record in mine}
        assert of_layout_3.read_bytes() == content, "an older akx goes on finding them"
        database.check_writable()
        assert database.find(search_key(mine[0].key)).record == mine[0]
        assert {record.id for record in database.list()} == {record.id for record in mine}


def test_timings_of_an_old_layout_are_found_by_the_digests_of_today(
    of_layout_4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PlanDatabase(of_layout_4, layers=()) as database:
        timings = [timing for _, timing in database.timings()]
        A = matrix_of(timings[0].key.fingerprint, monkeypatch)
        for timing in timings:
            mine = replace(timing, key=replace(timing.key, fingerprint=A.fingerprint))
            assert database.find_timings(mine.key) == (mine,)


def test_bundles_from_before_there_were_revisions_are_read(of_layout_3: Path, tmp_path: Path) -> None:
    records = read_bundle(_DATA / "plans_schema_1.json").records
    assert {record.key.k: aged(record) for record in records} == _AGES
    with PlanDatabase(tmp_path / "new.sqlite", layers=()) as fresh, PlanDatabase(of_layout_3, layers=()) as old:
        assert fresh.import_(_DATA / "plans_schema_1.json").added == 4
        assert fresh.list() == old.list()
        assert fresh.export(tmp_path / "new.json") == 4
        assert set(read_bundle(tmp_path / "new.json").records) == set(fresh.list())
    text = (_DATA / "plans_schema_1.json").read_text().replace('"kernel_hash"', '"hash"', 1)
    assert len(parse_bundle(text).problems) == 1


@pytest.fixture
def of_layout_4(tmp_path: Path) -> Path:
    """A database as the last akx wrote it that had no table of timings.

    Marks of solvers are on the plans for k = 4, for k = 6, one of two being no time, and for k = 8, which is of before
    solvers had revisions; on that for k = 3 no mark is left. Of steps of cg and ca_cg there are two pairs of trials, of
    gmres and ca_gmres one, of bicgstab but half of one.
    """
    path = tmp_path / "plans.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((_DATA / "plans_layout_4.sql").read_text())
    connection.close()
    return path


_WHERE = {
    "fingerprint": "a0be5e1e8acc7bef6cca58ff15ed1d8fd7628e2b",
    "dtype": "float64",
    "index_type": "int32",
    "device_class": "cpu/A Processor With The Model 1234/2 cores/L2 1 MiB/L3 32 MiB",
}
#: Solver, what was asked for, seconds, the best s, and the month of the plan.
_TIMED: tuple[tuple[str, dict[str, Any], dict[str, float | None], int, int], ...] = (
    ("ca_cg", {"basis": "chebyshev"}, {"ca_cg": 1.82e-3}, 4, 1),
    ("ca_gmres", {"basis": "newton"}, {"ca_gmres": 2.5e-3}, 6, 2),
    ("ca_bicgstab", {"basis": "chebyshev"}, {"ca_bicgstab": 3e-3}, 4, 3),
    ("cg", {"basis": "chebyshev", "asked_s": 4}, {"cg": 2e-3, "ca_cg": 1.82e-3}, 0, 0),
    (
        "gmres",
        {"basis": "newton", "restart": 20, "preconditioner": "Jacobi 144", "revision": 2},
        {"gmres": 4e-3, "ca_gmres": None},
        0,
        0,
    ),
)


def check_timings(database: PlanDatabase) -> None:
    """That `database` has what the one of layout 4 has, and no trace of the form that it had there."""
    found = {(timing.key.solver, timing.best_s): timing for _, timing in database.timings()}
    assert len(database.timings()) == len(found) == len(_TIMED)
    for solver, asked, seconds, best_s, month in _TIMED:
        timing = found[solver, best_s]
        assert timing.key == TimingKey(**_WHERE, solver=solver, **asked)
        assert database.find_timings(timing.key) == (timing,)
        assert (dict(timing.seconds), timing.plan_created[5:7]) == (seconds, f"{month:02}" if month else "")
        assert timing.provenance["versions"]["numba"]
        of = [record for record in database.list() if timing.is_of(record)]
        assert [(record.created, record.matrix_name) for record in of] == (
            [(timing.created, timing.matrix_name)] if month else []
        )
    assert {record.key.k for record in database.list()} == {3, 4, 6, 8}
    for record in database.list():
        assert not {"solvers", "solver_revision"} & set(record.provenance)
        assert record.provenance["features"]
        assert database.find(search_key(record.key)).record == record
    assert [key.basis for key, _ in database.all_trials()] == ["chebyshev"]


def test_marks_and_trials_of_solvers_become_timings(of_layout_4: Path, tmp_path: Path) -> None:
    content = of_layout_4.read_bytes()
    with PlanDatabase(of_layout_4, layers=()) as database:
        check_timings(database)
        assert (version(of_layout_4), of_layout_4.read_bytes()) == (4, content), "who only reads changes nothing"
        database.check_writable()
        assert version(of_layout_4) == migrations.SCHEMA_VERSION
        check_timings(database)
    connection = sqlite3.connect(of_layout_4)
    assert connection.execute("SELECT count(*) FROM trials").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM plans WHERE provenance LIKE '%solver%'").fetchone() == (0,)
    assert connection.execute("SELECT oldest_reader FROM schema_version WHERE version = 5").fetchone() == (4,)
    connection.close()


def test_timings_of_which_half_were_moved_are_all_where_they_were(
    of_layout_4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, oldest_reader = migrations._MIGRATIONS[5]

    def fail(connection: sqlite3.Connection, dialect: migrations.Dialect) -> None:
        step(connection, dialect)
        raise KeyboardInterrupt

    before = contents(of_layout_4)
    monkeypatch.setitem(migrations._MIGRATIONS, 5, (fail, oldest_reader))
    with PlanDatabase(of_layout_4, layers=()) as database, pytest.raises(KeyboardInterrupt):
        database.put_timing(make_timing())
    assert (version(of_layout_4), contents(of_layout_4)) == (4, before)
    monkeypatch.undo()
    with PlanDatabase(of_layout_4, layers=()) as database:
        check_timings(database)


def test_timings_of_a_damaged_file_come_back(of_layout_4: Path, tmp_path: Path) -> None:
    for number, path in enumerate((of_layout_4, tmp_path / "0.sqlite")):
        with PlanDatabase(tmp_path / f"{number}.sqlite", layers=()) as database:
            database.check_writable()
            rows = access.rescue(path)
            database._store.write(lambda tables, rows=rows: access.put_back(tables.connection, rows))  # type: ignore[arg-type]
            check_timings(database)


def test_marks_of_solvers_in_bundles_become_timings(tmp_path: Path) -> None:
    plain = make_record(provenance={"versions": {"numba": "0.61"}})
    marks = {"solvers": {"ca_bicgstab": 1e-3, "ca_cg": "fast", "ca_gmres": 0}, "solver_revision": 3}
    others = [make_record(number, provenance={"solvers": given}) for number, given in enumerate((3, None, {}), 1)]
    (tmp_path / "a.json").write_text(bundle_text([replace(plain, provenance={**plain.provenance, **marks}), *others]))
    bundle = read_bundle(tmp_path / "a.json")
    assert bundle.problems == ()
    assert bundle.records == (plain, *others[:2], make_record(3, provenance={}))
    (timing,) = bundle.timings
    assert (timing.key.solver, timing.best_s, timing.key.revision) == ("ca_bicgstab", make_record().key.k // 2, 3)
    assert timing.is_of(plain)
    assert ShippedPlans(tmp_path).timings() == (timing,)


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (number,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    connection.close()
    return int(number)


def test_readers_understand_an_old_layout_and_leave_it_alone(old: tuple[Path, list[PlanRecord]]) -> None:
    path, records = old
    content = path.read_bytes()
    with PlanDatabase(path, layers=()) as database:
        assert database.list() == records
        assert database.find(records[1].key).record == records[1]
        assert database.trials(records[1].key) == ()
    assert version(path) == 1
    assert path.read_bytes() == content


def test_writers_bring_it_to_the_current_layout_and_lose_nothing(old: tuple[Path, list[PlanRecord]]) -> None:
    path, records = old
    with PlanDatabase(path, layers=()) as reader, PlanDatabase(path, layers=()) as writer:
        assert reader.list() == records
        writer.put(make_record(7))
        writer.add_trials(make_key(7), [TrialRecord(make_plan())])
        assert writer.list() == [*records, make_record(7)]
        assert reader.list() == [*records, make_record(7)]
        assert len(reader.trials(make_key(7))) == 1
        assert database_status(reader).layout == migrations.SCHEMA_VERSION
    connection = sqlite3.connect(path)
    assert [row[0] for row in connection.execute("SELECT version FROM schema_version ORDER BY 1")] == [1, 2, 3, 4, 5]
    assert dict(connection.execute("SELECT id, record FROM rejected")) == {
        "bad": '{"key": 1',
        "worse": '{"key": {"fingerprint": [1]}}',
    }
    connection.close()
    assert not list(path.parent.glob("*.corrupt-*"))


def test_trials_of_layout_2_have_no_clock(
    of_layout_2: tuple[Path, tuple[TrialRecord, ...]],
) -> None:
    path, trials = of_layout_2
    content = path.read_bytes()
    with PlanDatabase(path, layers=()) as reader, PlanDatabase(path, layers=()) as writer:
        assert reader.list() == [now(1)]
        assert reader.find(make_key(1)).record == now(1)
        assert reader.trials(make_key(1)) == reader.trials_behind(now(1)) == trials
        assert reader.all_trials() == tuple((of_search(1), trial) for trial in trials)
        assert (version(path), path.read_bytes()) == (2, content)
        timed = TrialRecord(make_plan(threads=3), (0.25,), clock_hz=3.1e9)
        writer.add_trials(make_key(1), [timed])
        assert version(path) == migrations.SCHEMA_VERSION
        for database in (reader, writer):
            assert database.trials(make_key(1)) == (*trials, timed)
            assert database.list() == [now(1)]


def test_who_has_read_a_file_of_layout_2_writes_to_one_of_the_present(
    of_layout_2: tuple[Path, tuple[TrialRecord, ...]],
) -> None:
    path, trials = of_layout_2
    timed = TrialRecord(make_plan(threads=3), (0.25,), clock_hz=3.1e9)
    with PlanDatabase(path, layers=()) as database:
        assert database.trials(make_key(1)) == trials
        database.add_trials(make_key(1), [timed])
        assert database.trials(make_key(1)) == (*trials, timed)
    assert version(path) == migrations.SCHEMA_VERSION


def test_a_file_of_layout_2_that_an_older_akx_writes_to_while_it_is_open(
    of_layout_2: tuple[Path, tuple[TrialRecord, ...]],
) -> None:
    """What an akx of that layout adds is seen, though a copy is read."""
    path, trials = of_layout_2
    with PlanDatabase(path, layers=()) as database:
        assert database.trials(make_key(1)) == trials
        change_layout(path, f"INSERT INTO trials SELECT 9, {_TRIALS_2.partition(', ')[2]} FROM trials WHERE number = 1")
        assert database.trials(make_key(1)) == (*trials, trials[0])
    assert version(path) == 2


def test_a_damaged_file_of_layout_2_is_rescued(of_layout_2: tuple[Path, tuple[TrialRecord, ...]]) -> None:
    path, trials = of_layout_2
    with PlanDatabase(path.parent / "other.sqlite", layers=()) as database:
        database.check_writable()
    connection = access.connect(path.parent / "other.sqlite", "mode=rw", wait=1.0)
    connection.execute("BEGIN")
    access.put_back(connection, access.rescue(path))
    connection.execute("COMMIT")
    connection.close()
    with PlanDatabase(path.parent / "other.sqlite", layers=()) as database:
        assert database.list() == [now(1)]
        assert database.trials(make_key(1)) == trials


def test_a_migrated_file_has_the_layout_of_a_fresh_one(old: tuple[Path, list[PlanRecord]], tmp_path: Path) -> None:
    def layout(path: Path) -> dict[str, str]:
        with PlanDatabase(path, layers=()) as database:
            database.check_writable()
        connection = sqlite3.connect(path)
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        connection.close()
        return found

    assert layout(old[0]) == layout(tmp_path / "fresh.sqlite")


def test_a_migration_that_fails_leaves_the_old_layout(
    old: tuple[Path, list[PlanRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = old
    step, oldest_reader = migrations._MIGRATIONS[2]

    def fail(connection: sqlite3.Connection, dialect: migrations.Dialect) -> None:
        step(connection, dialect)
        raise KeyboardInterrupt

    monkeypatch.setitem(migrations._MIGRATIONS, 2, (fail, oldest_reader))
    with PlanDatabase(path, layers=()) as database, pytest.raises(KeyboardInterrupt):
        database.put(make_record(7))
    assert version(path) == 1
    monkeypatch.undo()
    with PlanDatabase(path, layers=()) as database:
        assert database.list() == records
        database.put(make_record(7))
        assert database.list() == [*records, make_record(7)]


def test_every_layout_up_to_the_current_one_has_its_migration() -> None:
    assert sorted(migrations._MIGRATIONS) == list(range(1, migrations.SCHEMA_VERSION + 1))
    assert all(1 <= oldest <= number for number, (_, oldest) in migrations._MIGRATIONS.items())


def test_every_migration_is_noticed_by_who_has_the_file_open() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    numbers = [connection.execute("PRAGMA schema_version").fetchone()[0]]
    for layout in range(migrations.SCHEMA_VERSION):
        migrations.migrate(connection, layout, layout + 1)
        numbers.append(connection.execute("PRAGMA schema_version").fetchone()[0])
    assert len(set(numbers)) == len(numbers)
    connection.close()


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
    genuine = store.Store._writer

    def migrated_behind(self: store.Store) -> sqlite3.Connection:
        connection = genuine(self)
        monkeypatch.setattr(store.Store, "_writer", genuine)
        change_layout(path, *to_layout_99(4))
        return connection

    monkeypatch.setattr(store.Store, "_writer", migrated_behind)
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


def test_an_old_layout_on_a_read_only_medium(old: tuple[Path, list[PlanRecord]]) -> None:
    import shutil
    import tempfile

    path, records = old
    folder = Path(tempfile.mkdtemp(prefix="akx-test-"))
    try:
        shutil.copyfile(path, folder / "plans.sqlite")
        folder.chmod(0o555)
        assert without_root(lambda: PlanDatabase(folder / "plans.sqlite", layers=()).list()) == records
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


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
            migrations.migrate(self._other, 0)
            self._other.execute("COMMIT")
        return SimpleNamespace(fetchone=lambda: rows[0])


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_file_that_another_process_is_making_is_not_taken_for_a_foreign_one(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "plans.sqlite"
    one, other = (sqlite3.connect(path, isolation_level=None, timeout=0.1) for _ in range(2))
    other.execute(f"PRAGMA journal_mode = {journal}")
    found = migrations.inspect(_Interrupted(one, other))  # type: ignore[arg-type]
    assert found.fault is None
    assert not one.in_transaction
    one.close()
    other.close()
