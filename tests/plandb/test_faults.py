"""The database in foul weather: each fault is a typed error or a warning that names the cure, and nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from akx.core.errors import DatabaseError
from akx.plandb import PlanDatabase, PlanDatabaseWarning, PlanRecord, ShippedPlans, TrialRecord
from akx.plandb import file as plan_files
from akx.plandb.bundle import bundle_text
from akx.plandb.tables import Tables

from .samples import make_key, make_plan, make_record, without_root


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plans.sqlite"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="akx-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def fill(path: Path, count: int = 3) -> list[PlanRecord]:
    """A closed database with `count` plans and a trial for each."""
    records = [make_record(number) for number in range(count)]
    with PlanDatabase(path, layers=()) as database:
        for record in records:
            database.put(record)
            database.add_trials(record.key, [TrialRecord(make_plan())])
    return records


def aside(path: Path) -> list[Path]:
    """The files that were set aside, without their logs."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(("-wal", "-shm", "-journal")))


def quietly(action: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanDatabaseWarning)
        return action()


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE plans (id TEXT PRIMARY KEY, bookmark TEXT)")
    connection.execute("INSERT INTO plans VALUES ('1', 'precious')")
    connection.commit()
    connection.close()


def marked_foreign_database(path: Path) -> None:
    foreign_database(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 252006674")
    connection.close()


def emptied_database(path: Path) -> None:
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE schema_version")
    connection.commit()
    connection.close()


def garbled_schema(path: Path) -> None:
    """SQLite quotes the statement it cannot parse in its message, which then is no UTF-8."""
    fill(path)
    content = path.read_bytes()
    assert b"CREATE TABLE trials" in content
    path.write_bytes(content.replace(b"CREATE TABLE trials", b"CREATE \xff\xfe\xfd\xfc\xfb trials"))


_USELESS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("%%MatrixMarket matrix coordinate real general\n" * 100),
    "short": lambda path: path.write_bytes(b"x"),
    "zeros": lambda path: path.write_bytes(bytes(8192)),
    "header only": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000),
    "another application": foreign_database,
    "another application, marked": marked_foreign_database,
    "no version": emptied_database,
    "one byte of a log": lambda path: path.write_bytes(b"\0"),
    "garbled schema": garbled_schema,
}


@pytest.mark.parametrize("make", _USELESS.values(), ids=_USELESS.keys())
def test_a_useless_file_is_reported_by_readers_and_set_aside_by_writers(
    path: Path, make: Callable[[Path], object]
) -> None:
    make(path)
    content = path.read_bytes()
    with PlanDatabase(path, layers=()) as database:
        with pytest.warns(PlanDatabaseWarning, match=r"plans\.sqlite"):
            assert database.find(make_key()).record is None
        with pytest.raises(DatabaseError, match="AKX_DB"):
            database.list()
        with pytest.raises(DatabaseError, match="AKX_DB"):
            database.export(path.with_name("bundle.json"))
        assert path.read_bytes() == content
        assert aside(path) == []

        with pytest.warns(PlanDatabaseWarning, match="corrupt-") as caught:
            database.put(make_record())
        (moved,) = aside(path)
        assert moved.read_bytes() == content
        assert str(moved) in str(caught[0].message)
        assert database.find(make_key()).record == make_record()
    with PlanDatabase(path, layers=()) as database:
        assert database.list() == [make_record()]


def test_an_earlier_file_set_aside_is_never_touched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(plan_files.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2024, 5, 6, 7, 8, 9, tzinfo=tz)

    monkeypatch.setattr(plan_files, "datetime", Frozen)
    for number in range(3):
        path.write_text(f"rubbish {number}")
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        with PlanDatabase(path, layers=()) as database, pytest.warns(PlanDatabaseWarning):
            database.put(make_record(number))
    assert [file.name for file in aside(path)] == [
        "plans.sqlite.corrupt-20240506T070809Z",
        "plans.sqlite.corrupt-20240506T070809Z-1",
        "plans.sqlite.corrupt-20240506T070809Z-2",
    ]
    assert [file.read_text() for file in aside(path)] == ["rubbish 0", "rubbish 1", "rubbish 2"]


def test_a_file_put_over_a_database_in_use_is_not_overwritten_from_its_log(path: Path, tmp_path: Path) -> None:
    """The log of a killed process holds valid pages; SQLite alone would write them into whatever lies beside it."""
    source = tmp_path / "source.sqlite"
    with PlanDatabase(source, layers=()) as database:
        database.put(make_record())
        shutil.copyfile(f"{source}-wal", f"{path}-wal")
    log = Path(f"{path}-wal").read_bytes()
    path.write_text("a thesis" * 4000)
    with PlanDatabase(path, layers=()) as database:
        with pytest.raises(DatabaseError, match="useless"):
            database.list()
        with pytest.warns(PlanDatabaseWarning, match="corrupt-"):
            database.put(make_record(7))
        assert make_record(7) in database.list()
    (moved,) = aside(path)
    assert moved.read_text() == "a thesis" * 4000
    assert Path(f"{moved}-wal").read_bytes() == log


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_truncated_file(path: Path, share: float) -> None:
    records = fill(path, 60)
    content = path.read_bytes()[: int(share * path.stat().st_size)]
    path.write_bytes(content)
    with PlanDatabase(path, layers=()) as database:
        with pytest.warns(PlanDatabaseWarning, match="corrupt-"):
            database.check_writable()
        (moved,) = aside(path)
        assert moved.read_bytes() == content
        survivors = quietly(database.list)
        assert [record for record in survivors if record not in records] == []
        quietly(lambda: database.put(make_record(99)))
        assert make_record(99) in quietly(database.list)


def test_what_can_be_read_of_a_damaged_file_comes_back(path: Path) -> None:
    records = fill(path, 60)
    size = 4096
    content = bytearray(path.read_bytes())
    content[-size:] = b"\xee" * size
    path.write_bytes(content)
    with PlanDatabase(path, layers=()) as database:
        with pytest.warns(PlanDatabaseWarning, match=r"with \d+ plans"):
            database.check_writable()
        survivors = quietly(database.list)
    assert len(survivors) > 20
    assert all(record in records for record in survivors)


def test_random_damage_never_crashes_and_never_loses_the_file(path: Path) -> None:
    records = fill(path, 20)
    original = path.read_bytes()
    generator = random.Random(0)
    for _ in range(30):
        for file in path.parent.iterdir():
            file.unlink()
        content = bytearray(original)
        start = generator.randrange(len(content))
        for position in range(start, min(start + generator.choice([1, 16, 600, 5000]), len(content))):
            content[position] = generator.randrange(256)
        path.write_bytes(content)
        with PlanDatabase(path, layers=()) as database:
            try:
                quietly(lambda database=database: database.find(make_key(3)))
                quietly(lambda database=database: database.put(make_record(77)))
                listed = quietly(database.list)
            except DatabaseError as error:
                if "newer" not in str(error):  # the damage may have hit the version
                    raise
                continue
        assert make_record(77) in listed
        unknown = [record for record in listed if record not in records and record != make_record(77)]
        # A changed byte in a figure or a name cannot be noticed; in a key, a plan or the structure it must be.
        assert all(any(record.key == known.key for known in records) for record in unknown)
        if aside(path):
            assert aside(path)[0].read_bytes() == bytes(content)


def test_an_empty_file_is_a_fresh_database(path: Path) -> None:
    path.touch()
    with PlanDatabase(path, layers=()) as database:
        assert database.find(make_key()).record is None
        assert database.list() == []
        database.put(make_record())
        assert database.list() == [make_record()]
    assert aside(path) == []


def test_places_where_no_database_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    places = {
        tmp_path / "folder": "is a directory",
        tmp_path / "file" / "plans.sqlite": "is a file",
        tmp_path / "file" / "more" / "plans.sqlite": "is a file",
        tmp_path / ("n" * 300): "plan database",
    }
    if os.name == "posix":
        places |= {Path("/dev/null"): "device", Path("/dev/null/plans.sqlite"): "is a file"}
    for place, message in places.items():
        with PlanDatabase(place, layers=()) as database:
            with pytest.warns(PlanDatabaseWarning, match="no plans of the user's"):
                assert database.find(make_key()).record is None
            for action in (lambda database=database: database.put(make_record()), database.check_writable):
                with pytest.raises(DatabaseError, match=message) as caught:
                    action()
                assert caught.value.hint
                assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "text"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc on this system")
def test_a_directory_that_cannot_be_made_even_by_root() -> None:
    with PlanDatabase("/proc/akx/plans.sqlite", layers=()) as database:
        assert database.find(make_key()).record is None
        with pytest.raises(DatabaseError, match="AKX_DB"):
            database.put(make_record())


def test_a_read_only_directory(public_folder: Path) -> None:
    path = public_folder / "plans.sqlite"
    records = fill(path)
    path.chmod(0o444)
    public_folder.chmod(0o555)

    def look() -> tuple[list[PlanRecord], bool]:
        with warnings.catch_warnings(), PlanDatabase(path, layers=()) as database:
            warnings.simplefilter("error")
            return database.list(), database.find(records[1].key).record == records[1]

    assert without_root(look) == (records, True)
    with pytest.raises(DatabaseError, match="read-only") as caught:
        without_root(lambda: PlanDatabase(path, layers=()).put(make_record(9)))
    assert "AKX_DB" in caught.value.hint
    with pytest.raises(DatabaseError, match="AKX_DB"):
        without_root(lambda: PlanDatabase(public_folder / "new.sqlite", layers=()).put(make_record()))
    with pytest.raises(DatabaseError, match="AKX_DB"):
        without_root(lambda: PlanDatabase(public_folder / "new" / "new.sqlite", layers=()).put(make_record()))
    assert sorted(entry.name for entry in public_folder.iterdir()) == ["plans.sqlite", "plans.sqlite.lock"][:1]


def test_a_read_only_directory_with_a_log(public_folder: Path) -> None:
    """The copy of a database in use: its newest plans are only in the log."""
    source = public_folder / "source.sqlite"
    with PlanDatabase(source, layers=()) as database:
        database.put(make_record(0))
        folder = public_folder / "medium"
        folder.mkdir()
        shutil.copyfile(source, folder / "plans.sqlite")
        shutil.copyfile(f"{source}-wal", folder / "plans.sqlite-wal")
    assert (folder / "plans.sqlite-wal").stat().st_size > 0
    folder.chmod(0o555)
    assert without_root(lambda: PlanDatabase(folder / "plans.sqlite", layers=()).list()) == [make_record(0)]
    assert sorted(entry.name for entry in folder.iterdir()) == ["plans.sqlite", "plans.sqlite-wal"]
    folder.chmod(0o755)


def test_a_read_only_file_in_a_writable_directory(public_folder: Path) -> None:
    path = public_folder / "plans.sqlite"
    records = fill(path)
    path.chmod(0o444)
    public_folder.chmod(0o777)
    assert without_root(lambda: PlanDatabase(path, layers=()).list()) == records
    with pytest.raises(DatabaseError, match="read-only"):
        without_root(lambda: PlanDatabase(path, layers=()).put(make_record(9)))


def test_an_unreadable_file(public_folder: Path) -> None:
    path = public_folder / "plans.sqlite"
    fill(path)
    path.chmod(0o000)
    with pytest.raises(DatabaseError, match="cannot be opened"):
        without_root(lambda: PlanDatabase(path, layers=()).list())
    assert without_root(lambda: quietly(lambda: PlanDatabase(path, layers=()).find(make_key()).record)) is None
    with pytest.raises(DatabaseError, match="cannot be written"):
        without_root(lambda: PlanDatabase(path, layers=()).put(make_record()))
    path.chmod(0o644)
    with PlanDatabase(path, layers=()) as database:
        assert len(database.list()) == 3


def test_a_locked_database(path: Path) -> None:
    records = fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with PlanDatabase(path, layers=(), timeout=0.2) as database:
        assert database.find(records[0].key).record == records[0]
        with pytest.raises(DatabaseError, match="locked by another process") as caught:
            database.put(make_record(9))
        assert "wait" in caught.value.hint
        other.execute("ROLLBACK")
        database.put(make_record(9))
        assert len(database.list()) == 4
    other.close()
    assert aside(path) == []


def test_who_has_little_patience_does_not_wait_longer(path: Path) -> None:
    """A search puts its trials there as they end, and must not stand still for another process."""
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    with PlanDatabase(path, layers=(), timeout=20) as database:
        database.put(make_record(9))
        other.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        with pytest.raises(DatabaseError, match="locked by another process"):
            database.add_trials(make_key(), [TrialRecord(make_plan())], patience=0.1)
        assert 0.1 <= time.monotonic() - begin < 10  # of 20 s, on a busy machine too
        other.execute("ROLLBACK")
        assert database.add_trials(make_key(), [TrialRecord(make_plan())], patience=0.1) == 1
    other.close()


def test_a_lock_that_goes_away_is_waited_for(path: Path) -> None:
    fill(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    timer.start()
    with PlanDatabase(path, layers=(), timeout=20) as database:
        database.put(make_record(9))
        assert len(database.list()) == 4
    timer.join()
    other.close()


def test_a_database_locked_against_readers_leaves_the_shipped_plans(path: Path, tmp_path: Path) -> None:
    records = fill(path)
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "a.json").write_text(bundle_text([make_record(50)]))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with PlanDatabase(path, layers=(ShippedPlans(tmp_path / "shipped"),), timeout=0.2) as database:
        with pytest.warns(PlanDatabaseWarning, match="locked"):
            assert database.find(records[0].key).record is None
        with pytest.warns(PlanDatabaseWarning, match="locked"):
            assert database.find(make_key(50)).layer == "shipped"
        with pytest.raises(DatabaseError, match="locked"):
            database.list()
        other.execute("COMMIT")
        other.close()
        assert database.find(records[0].key).record == records[0]


def test_a_full_disk(path: Path) -> None:
    records = fill(path)
    with PlanDatabase(path, layers=()) as database:
        database.check_writable()
        connection = database._store._connection
        assert connection is not None
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DatabaseError, match="disk is full") as caught:
            database.put(make_record(9, provenance={"long": "x" * 100_000}))
        assert "free some space" in caught.value.hint
        assert database.list() == records
        database.put(make_record(9))
    assert aside(path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_disk_that_fills_up_while_it_is_written_to(path: Path) -> None:
    """A file that may not grow beyond some size takes a part of a write, as a full disk does."""
    import resource
    import signal

    records = fill(path)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
            stored = 0
            with PlanDatabase(path, layers=()) as database:
                try:
                    for number in range(10, 30):
                        database.put(make_record(number, provenance={"long": "x" * 10_000}))
                        stored += 1
                except DatabaseError as error:
                    is_named = "disk" in str(error) and bool(error.hint)
                    status = 0 if is_named and len(database.list()) == 3 + stored and stored < 20 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with warnings.catch_warnings(), PlanDatabase(path, layers=()) as database:
        warnings.simplefilter("error")
        assert [record for record in database.list() if record in records] == records
        database.put(make_record(9))
        assert make_record(9) in database.list()
    assert aside(path) == []


def test_a_clock_that_jumps_back_hides_no_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told by the times of the file: those that the clock has not come to yet tell nothing."""
    fill(path)
    with PlanDatabase(path, layers=()) as database:
        database.find(make_key())
        database.close()
        genuine = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: genuine() - 86_400 * 10**9)
        for seconds in (0.5, 0.25):
            change = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
            statement = f"UPDATE plans SET seconds = {seconds}"
            subprocess.run([sys.executable, "-c", change, path, statement], check=True)
            os.utime(path, ns=(2 * 10**18, 2 * 10**18))  # the same time for both changes, in the future
            assert database.find(make_key()).record.seconds == seconds  # type: ignore[union-attr]
            database.close()  # so that the log goes with the change, and the file is as long as before


def test_a_failed_change_changes_nothing(path: Path) -> None:
    records = fill(path)

    def fail(tables: Tables) -> None:
        tables.connection.execute("DELETE FROM plans")
        raise KeyboardInterrupt

    with PlanDatabase(path, layers=()) as database:
        with pytest.raises(KeyboardInterrupt):
            database._store.write(fail)
        assert database.list() == records
        database.put(make_record(9))


def newer(path: Path, oldest_reader: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("INSERT INTO schema_version VALUES (99, ?, '')", (oldest_reader,))
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def test_a_newer_layout_is_refused(path: Path) -> None:
    fill(path)
    newer(path, 99)
    content = path.read_bytes()
    with PlanDatabase(path, layers=()) as database:
        for action in (lambda: database.put(make_record(9)), database.check_writable, database.list):
            with pytest.raises(DatabaseError, match="newer akx") as caught:
                action()
            assert "upgrade" in caught.value.hint
            assert "layout 99" in caught.value.found
        with pytest.warns(PlanDatabaseWarning, match="newer akx"):
            assert database.find(make_key()).record is None
    assert path.read_bytes() == content
    assert aside(path) == []


def test_a_newer_layout_that_we_can_still_read_is_read_and_not_written(path: Path) -> None:
    records = fill(path)
    newer(path, 2)
    with PlanDatabase(path, layers=()) as database:
        assert database.list() == records
        with pytest.raises(DatabaseError, match="newer akx"):
            database.put(make_record(9))
        assert database.list() == records


def test_errors_of_the_file_system_are_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("rubbish")

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(plan_files.os, "replace", refuse)
    with PlanDatabase(path, layers=()) as database, pytest.raises(DatabaseError, match="cannot be set aside") as caught:
        database.put(make_record())
    assert "AKX_DB" in caught.value.hint
    assert path.read_text() == "rubbish"


def test_a_file_system_without_shared_memory_keeps_the_rollback_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems cannot do WAL; a VFS without it stands in for one."""
    from akx.plandb import store

    genuine = store._connect

    def connect(path: Path, options: str, wait: float) -> sqlite3.Connection:
        return genuine(path, f"{options}&vfs=unix-none", wait)

    monkeypatch.setattr(store, "_connect", connect)
    try:
        with PlanDatabase(path, layers=()) as database:
            database.put(make_record())
            assert database.list() == [make_record()]
    except DatabaseError as error:
        if "vfs" in str(error):
            pytest.skip("SQLite here has no such VFS")
        raise
