"""Plans on a server: addresses, faults with their cures, and no password in any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgres import PostgresServer

from akx.core.errors import DatabaseError, MissingDependencyError
from akx.plandb import PlanDatabase, PlanDatabaseWarning, PlanRecord, ShippedPlans, TrialRecord
from akx.plandb import server as module
from akx.plandb.bundle import bundle_text
from akx.plandb.place import ServerAddress, database_place

from .samples import make_key, make_plan, make_record, make_timing, of_search

_SECRET = "xyzzy"


def refused(action: Callable[[], object], match: str) -> DatabaseError:
    """The error of `action`, in which there is a cure and no secret."""
    with pytest.raises(DatabaseError, match=match) as caught:
        action()
    text = f"{caught.value} {caught.value.found} {caught.value!r} {caught.value.__cause__}"
    assert _SECRET not in text
    assert caught.value.hint
    return caught.value


# ------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann@host/plans", "postgresql://ann@host/plans"),
        ("postgres://host", "postgresql://host/"),
        (f"postgresql+psycopg://ann:{_SECRET}@host:5433/plans", "postgresql://ann:***@host:5433/plans"),
        (f"postgresql://ann:{_SECRET}%2F%40@[::1]/p", "postgresql://ann:***@[::1]/p"),
        (f"postgresql:///p?host=/run/pg&password={_SECRET}", "postgresql:///p?host=/run/pg&password=***"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = database_place(url)
    assert isinstance(address, ServerAddress)
    assert str(address) == shown
    assert _SECRET not in repr(address)
    assert repr(PlanDatabase(url)) == f"PlanDatabase({shown!r})"
    assert _SECRET not in address.without_secrets(
        f"cannot use {address.url}, {url.partition('@')[0]}: {address.password}"
    )


def test_parts_of_an_address_are_unescaped() -> None:
    address = ServerAddress("postgresql://a%40b:c%2Fd@host:1/e%20f?sslmode=require")
    assert (address.user, address.password, address.host, address.port) == ("a@b", "c/d", "host", 1)
    assert (address.database, address.options) == ("e f", (("sslmode", "require"),))


@pytest.mark.parametrize("sign", ["/", "?", "#", "/1@", "["])
def test_a_password_that_is_not_escaped_is_not_shown(sign: str) -> None:
    for url in (f"postgresql://ann:12{sign}{_SECRET}@host/plans", f"postgresql://ann:{_SECRET}{sign}12@host/plans"):
        assert "%2F" in str(refused(lambda url=url: PlanDatabase(url), "cannot be read"))


@pytest.mark.parametrize(
    "url", [f"mysql://a:{_SECRET}@b/c", f"postgresql+psycopg2://a:{_SECRET}@b/c", "sqlite:///a.db"]
)
def test_other_kinds_of_databases_are_refused(url: str) -> None:
    refused(lambda: PlanDatabase(url), "of this kind")


def test_the_variable_and_other_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AKX_DB", "postgresql://host/plans")
    assert str(PlanDatabase().path) == "postgresql://host/plans"
    assert PlanDatabase(tmp_path / "a.sqlite").path == (tmp_path / "a.sqlite").resolve()
    assert PlanDatabase("postgresql:odd").path == Path("postgresql:odd").resolve()
    refused(lambda: PlanDatabase(Path("postgresql://host/plans")), "given as a path")


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with PlanDatabase(f"postgresql://a:{_SECRET}@/b", layers=()) as database:
        with pytest.raises(MissingDependencyError, match=r"akx\[postgres\]") as caught:
            database.list()
        assert _SECRET not in str(caught.value)
        with pytest.warns(PlanDatabaseWarning, match=r"akx\[postgres\]"):
            assert database.find(make_key()).record is None
        with pytest.raises(MissingDependencyError, match="psycopg"):
            database.exists()


# ------------------------------------------------------------------------------------------------ faults


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    (tmp_path / "a.json").write_text(bundle_text([make_record()]))
    url = f"postgresql://ann:{_SECRET}@/plans?host={tmp_path}"
    with PlanDatabase(url, layers=(ShippedPlans(tmp_path),), timeout=0.1) as database:
        for action in (database.exists, database.list, database.check_writable, database.describe):
            refused(action, "cannot be reached")
        refused(lambda: database.put(make_record()), "cannot be reached")
        with pytest.warns(PlanDatabaseWarning, match="cannot be reached") as caught:
            assert database.find(make_key()).layer == "shipped"
        assert _SECRET not in str(caught[0].message)
        assert not database.is_writable()
        # A lookup does not wait again for a server that did not answer a moment ago.
        monkeypatch.setattr(database._store, "_transaction", lambda *_: pytest.fail("asked again"))
        with pytest.warns(PlanDatabaseWarning, match="cannot be reached"):
            assert database.find(make_key(1)).record is None


def test_who_may_and_who_may_not(postgres_server: PostgresServer) -> None:
    name = postgres_server.new_database()
    good, bad = (postgres_server.url(name, f"guest:{word}") for word in ("se%2Fcret", _SECRET))
    refused(PlanDatabase(bad, layers=()).list, "refuses the user")
    assert "se/cret" not in str(refused(PlanDatabase(postgres_server.url(name, "guest"), layers=()).list, "refuses"))
    refused(PlanDatabase(postgres_server.url("nowhere", f"akx:{_SECRET}"), layers=()).list, "no such database")
    guest = PlanDatabase(good, layers=())
    assert (guest.list(), guest.exists(), guest.is_writable()) == ([], False, False)
    assert "CREATE" in refused(lambda: guest.put(make_record()), "no right").hint
    owner = PlanDatabase(postgres_server.url(name), layers=())
    owner.put(make_record())
    assert "GRANT" in refused(guest.list, "no right").hint
    tables = "akx_plans, akx_trials, akx_changes"
    postgres_server.sql(f"GRANT SELECT ON {tables}, akx_schema_version TO guest", name)
    guest = PlanDatabase(good, layers=())
    assert (guest.find(make_key()).record, guest.is_writable()) == (make_record(), False)
    refused(lambda: guest.put(make_record(1)), "no right")
    postgres_server.sql(f"GRANT INSERT, UPDATE, DELETE ON {tables} TO guest", name)
    guest.put(make_record(1))
    assert guest.add_trials(make_key(1), [TrialRecord(make_plan())]) == 1
    assert guest.is_writable()
    assert owner.list() == [make_record(0), make_record(1)]


def test_the_servers_faults_are_named(postgres_server: PostgresServer) -> None:
    """A disk that is full, a server that is read-only: the server says so by a code, here by that of a trigger."""
    name = postgres_server.new_database()
    database = PlanDatabase(postgres_server.url(name), layers=())
    database.put(make_record())
    for code, match in (("53100", "disk is full"), ("25006", "read-only"), ("53300", "too many"), ("22000", "written")):
        postgres_server.sql(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = "
            f"'{code}'; END $$ LANGUAGE plpgsql; DROP TRIGGER IF EXISTS fail ON akx_plans; "
            "CREATE TRIGGER fail BEFORE INSERT ON akx_plans EXECUTE FUNCTION fail()",
            name,
        )
        refused(lambda: database.put(make_record(1)), match)
        assert database.list() == [make_record()]
    postgres_server.sql("DROP TRIGGER fail ON akx_plans", name)
    database.put(make_record(1))


def test_a_lock_is_waited_for_and_named(postgres_server: PostgresServer) -> None:
    import psycopg

    url = postgres_server.url(postgres_server.new_database())
    with PlanDatabase(url, layers=(), timeout=0.2) as database:
        database.put(make_record())
        with psycopg.connect(url) as other:
            other.execute(f"SELECT pg_advisory_xact_lock({module._LOCK})")
            refused(lambda: database.put(make_record(1)), "locked by another")
            assert database.list() == [make_record()]
        database.put(make_record(1))


def test_a_newer_layout_is_refused(postgres_server: PostgresServer) -> None:
    name = postgres_server.new_database()
    database = PlanDatabase(postgres_server.url(name), layers=())
    database.put(make_record())
    postgres_server.sql("INSERT INTO akx_schema_version VALUES (99, 2, '')", name)
    assert database.list() == [make_record()]
    refused(lambda: database.put(make_record(1)), "newer akx")
    postgres_server.sql("UPDATE akx_schema_version SET oldest_reader = 99 WHERE version = 99", name)
    for action in (database.list, database.check_writable):
        assert "layout 99" in str(refused(action, "newer akx").found)
    with pytest.warns(PlanDatabaseWarning, match="newer akx"):
        assert database.find(make_key(2)).record is None
    postgres_server.sql("DELETE FROM akx_schema_version WHERE version = 99", name)
    assert database.list() == [make_record()]
    postgres_server.sql("DELETE FROM akx_schema_version", name)
    refused(database.list, "does not tell the version")


def to_layout(server: PostgresServer, name: str, number: int) -> None:
    server.sql("DROP TABLE akx_timings", name)
    server.sql(f"UPDATE akx_schema_version SET version = {number}, oldest_reader = {number}", name)


def test_tables_of_layout_4_have_timings_once_their_owner_has_changed_them(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = postgres_server.new_database()
    postgres_server.sql("CREATE ROLE holder LOGIN; GRANT CREATE ON SCHEMA public TO holder", name)
    holder, guest = (
        PlanDatabase(postgres_server.url(name, login), layers=()) for login in ("holder", "guest:se%2Fcret")
    )
    holder.put(make_record())
    holder.add_trials(of_search(), [TrialRecord(make_plan(), (0.5,))])
    to_layout(postgres_server, name, 4)
    tables = "akx_plans, akx_trials, akx_changes"
    postgres_server.sql(f"GRANT SELECT ON {tables}, akx_schema_version TO guest", name)
    postgres_server.sql(f"GRANT INSERT, UPDATE, DELETE ON {tables} TO guest", name)
    for database in (holder, guest):
        assert (database.list(), database.timings()) == ([make_record()], ())
        assert database.find_timings(make_timing().key) == ()
        assert len(database.trials(make_key())) == 1
    assert "older akx" in str(refused(lambda: guest.put_timing(make_timing()), "no place"))
    guest.export(tmp_path / "bundle.json")
    assert guest.import_(tmp_path / "bundle.json").unchanged == 1
    guest.put(make_record(1))
    assert guest.remove(make_record(1).id) == make_record(1)
    assert guest.remove_stale() == ()
    assert holder.describe()[0].version == 4
    holder.put_timing(make_timing())
    assert guest.describe()[0].version == 5
    assert holder.find_timings(make_timing().key) == (make_timing(),)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_older_layouts_are_refused(postgres_server: PostgresServer, number: int) -> None:
    name = postgres_server.new_database()
    database = PlanDatabase(postgres_server.url(name), layers=())
    database.put(make_record())
    to_layout(postgres_server, name, number)
    for action in (database.list, lambda: database.put(make_record(2)), database.check_writable):
        assert f"layout {number}" in str(refused(action, "older akx").found)


def test_who_has_no_right_to_timings_gets_a_warning_with_the_cure(postgres_server: PostgresServer) -> None:
    name = postgres_server.new_database()
    owner = PlanDatabase(postgres_server.url(name), layers=())
    owner.put_timing(make_timing())
    postgres_server.sql("GRANT SELECT ON akx_plans, akx_trials, akx_changes, akx_schema_version TO guest", name)
    guest = PlanDatabase(postgres_server.url(name, "guest:se%2Fcret"), layers=())
    with pytest.warns(PlanDatabaseWarning, match="akx_timings"):
        assert guest.find_timings(make_timing().key) == ()
    assert guest.list() == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_that_is_reported_as_lost_is_made_again(
    server_url: str, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Nobody knows whether what was lost as it was committed is there: it is there once in any case."""
    import psycopg

    with PlanDatabase(server_url, layers=()) as database:
        database.put(make_record(key=make_key(revisions="other")))
        trials = [TrialRecord(make_plan(threads=number), (0.5,)) for number in (1, 2, 3)]
        genuine, ahead = psycopg.Connection.commit, [0]

        def commit(self: Any) -> None:
            ahead[0] -= 1
            if ahead[0] != -1:
                return genuine(self)
            if is_there:
                genuine(self)
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(psycopg.Connection, "commit", commit)
        assert database.add_trials(make_key(), trials) == 3
        assert ahead == [-2], "one was lost, and one was not"
        assert database.trials(make_key()) == tuple(trials)
        ahead[:] = [0]
        assert database.put(make_record()) is None
        assert ahead == [-2]
        ahead[:] = [1]  # the first is of a look at what there is
        assert [record.key.revisions for record in database.remove_stale()] == ["other"]
        assert ahead == [-2]
        assert database.list() == [make_record()]


def test_optunas_tables_lie_beside(server_url: str) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    database = PlanDatabase(server_url, layers=())
    database.put(make_record())
    storage = optuna.storages.RDBStorage(server_url.replace("postgresql:", "postgresql+psycopg:"))
    study = optuna.create_study(storage=storage, study_name="a")
    study.tell(study.ask(), 1.0)
    assert database.add_trials(make_key(), [TrialRecord(make_plan())]) == 1
    assert len(database.trials(make_key())) == len(study.trials) == 1


# ------------------------------------------------------------------------------------------------ several


def test_a_change_by_another_is_seen(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups are remembered, and the server is asked for changes once in a while."""
    reads: list[object] = []
    genuine = module.ServerStore._transaction

    def counted(self: module.ServerStore, *given: Any, **options: Any) -> Any:
        reads.append(given)
        return genuine(self, *given, **options)

    monkeypatch.setattr(module.ServerStore, "_transaction", counted)
    with PlanDatabase(server_url, layers=()) as database:
        database.put(make_record(seconds=2.0))
        assert database.find(make_key()).record == make_record(seconds=2.0)
        reads.clear()
        for _ in range(5):
            assert database.find(make_key()).record == make_record(seconds=2.0)
        assert reads == []
        _elsewhere(server_url, make_record(seconds=1.0))
        assert database.find(make_key()).record == make_record(seconds=2.0)
        monkeypatch.setattr(module, "_BELIEVED", 0.0)
        assert database.find(make_key()).record == make_record(seconds=1.0)


def _elsewhere(url: str, record: PlanRecord) -> None:
    """Store a plan from another process."""
    code = (
        "import sys, pickle; from akx.plandb import PlanDatabase;"
        "PlanDatabase(sys.argv[1], layers=()).put(pickle.loads(bytes.fromhex(sys.argv[2])))"
    )
    import pickle

    subprocess.run([sys.executable, "-c", code, url, pickle.dumps(record).hex()], check=True)


def test_of_two_imports_at_once_the_better_plan_stays(server_url: str, tmp_path: Path) -> None:
    """Import compares and replaces in one transaction, so that the order in which they come does not matter."""
    count, workers = 12, 4
    for worker in range(workers):
        records = [make_record(i, seconds=1.0 + (worker + i) % workers) for i in range(count)]
        (tmp_path / f"{worker}.json").write_text(bundle_text(records))
    barrier, failures = threading.Barrier(workers), []

    def work(worker: int) -> None:
        database = PlanDatabase(server_url, layers=(), timeout=60)
        barrier.wait(30)
        try:
            database.import_(tmp_path / f"{worker}.json")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert [record.seconds for record in PlanDatabase(server_url, layers=()).list()] == [1.0] * count


def _writer(url: str) -> tuple[int, int]:
    """Fork a process that stores plans and says each number once it is safe; its id, and where it says so."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        os.close(reader)
        database = PlanDatabase(url, layers=(), timeout=60)
        for number in range(10_000):
            database.put(make_record(number, provenance={"padding": "x" * 3000}))
            os.write(writer, b"%d\n" % number)
    finally:
        os._exit(1)


def _said(child: int, reader: int, meanwhile: Callable[[], object], least: int) -> list[int]:
    """What the writer has said once it is dead, by SIGKILL after `meanwhile` and at least so many plans."""
    said: list[int] = []
    with os.fdopen(reader) as stream:
        said += [int(stream.readline()) for _ in range(least)]
        meanwhile()
        said += [int(stream.readline()) for _ in range(least)]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += [int(line) for line in stream]
    return said


@pytest.mark.parametrize("delay", [0.0, 0.007])
def test_a_client_killed_in_the_middle_leaves_every_plan_it_had_stored(server_url: str, delay: float) -> None:
    said = _said(*_writer(server_url), lambda: time.sleep(delay), 2)
    with warnings.catch_warnings(), PlanDatabase(server_url, layers=()) as database:
        warnings.simplefilter("error")
        stored = {record.id for record in database.list()}
        assert {make_key(number).id for number in said} <= stored
        assert len(stored) <= len(said) + 1
        database.put(make_record(20_000))  # its lock is gone with it


def test_a_server_killed_during_puts_loses_nothing(postgres_server: PostgresServer) -> None:
    """kill -9 of the server: what was stored is there after its recovery, and writers go on by themselves."""
    url = postgres_server.url(postgres_server.new_database())

    def restart() -> None:
        postgres_server.kill()
        postgres_server.start()

    database = PlanDatabase(url, layers=(), timeout=60)
    assert database.list() == []
    said = _said(*_writer(url), restart, 3)
    assert said == list(range(len(said)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stored = {record.id for record in database.list()}
    assert {make_key(number).id for number in said} <= stored
    database.put(make_record(20_000))
    assert database.find(make_key(20_000)).record == make_record(20_000)
