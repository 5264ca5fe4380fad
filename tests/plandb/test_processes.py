"""Several processes at one database: nothing is lost, and a kill at any moment leaves it readable."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
import time
import warnings
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from akx.plandb import PlanDatabase, PlanDatabaseWarning, TrialRecord

from .samples import make_key, make_plan, make_record, make_timing

_SPAWN = multiprocessing.get_context("spawn")
_COUNT = 8


def write_plans(path: str, start: int, barrier: Barrier) -> None:
    """Write `_COUNT` plans of its own and one that all processes fight for, from a common start."""
    warnings.simplefilter("ignore", PlanDatabaseWarning)
    barrier.wait(30)
    for number in range(start, start + _COUNT):
        with PlanDatabase(path, layers=(), timeout=30) as database:
            database.put(make_record(number))
            database.put(make_record(10_000, seconds=float(start + 1)))
            database.add_trials(make_key(10_000), [TrialRecord(make_plan(), (float(number),))])


def write_for_ever(path: str, ready: int) -> None:
    """Write plans and say each number once it is safe."""
    database = PlanDatabase(path, layers=())
    number = 0
    while True:
        database.put(make_record(number, provenance={"padding": "x" * 3000}))
        database.add_trials(make_key(number), [TrialRecord(make_plan()) for _ in range(10)])
        database.put_timing(make_timing(number))
        os.write(ready, b"%d\n" % number)
        number += 1


def run_writers(path: Path, count: int) -> None:
    barrier = _SPAWN.Barrier(count)
    writers = [_SPAWN.Process(target=write_plans, args=(str(path), 100 * i, barrier)) for i in range(count)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * count


def check(path: Path, count: int) -> None:
    with PlanDatabase(path, layers=()) as database:
        expected = {make_key(100 * i + j).id for i in range(count) for j in range(_COUNT)} | {make_key(10_000).id}
        assert {record.id for record in database.list()} == expected
        fought = database.find(make_key(10_000)).record
        assert fought is not None
        assert fought.seconds in [float(100 * i + 1) for i in range(count)]
        samples = sorted(trial.seconds[0] for trial in database.trials(make_key(10_000)))
        assert samples == sorted(float(100 * i + j) for i in range(count) for j in range(_COUNT))


def test_writers_of_a_database_that_none_has_made_yet_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plans.sqlite"
    run_writers(path, 3)
    check(path, 3)


def test_writers_that_find_the_same_useless_file_set_it_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    path.write_bytes(b"rubbish" * 1000)
    run_writers(path, 3)
    check(path, 3)
    (moved,) = tmp_path.glob("plans.sqlite.corrupt-*")
    assert moved.read_bytes() == b"rubbish" * 1000


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.05])
def test_a_process_killed_in_the_middle_leaves_every_plan_it_had_stored(tmp_path: Path, delay: float) -> None:
    path = tmp_path / "plans.sqlite"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            write_for_ever(str(path), writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        stream.readline()
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said = [0, *(int(line) for line in stream.read().split())]
    with warnings.catch_warnings(), PlanDatabase(path, layers=()) as database:
        warnings.simplefilter("error")
        stored = {record.id for record in database.list()}
        assert {make_key(number).id for number in range(said[-1] + 1)} <= stored
        assert len(stored) <= said[-1] + 2
        for number in range(said[-1] + 1):
            assert len(database.trials(make_key(number))) == 10
            assert database.find_timings(make_timing(number).key) == (make_timing(number),)
        database.put(make_record(10_000))
        assert database.find(make_key(10_000)).record is not None
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_killed_while_it_makes_the_database(tmp_path: Path) -> None:
    """Killed inside the first transaction: the next process starts from an empty file, not from half a layout."""
    path = tmp_path / "plans.sqlite"
    child = os.fork()
    if child == 0:
        try:
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("PRAGMA cache_spill = 1")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE schema_version (version, oldest_reader, applied)")
            connection.execute("CREATE TABLE filler (x)")
            for _ in range(100):
                connection.execute("INSERT INTO filler VALUES (?)", ("x" * 4000,))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert path.stat().st_size > 0
    assert Path(f"{path}-journal").exists()
    with warnings.catch_warnings(), PlanDatabase(path, layers=()) as database:
        warnings.simplefilter("error")
        assert database.find(make_key()).record is None
        database.put(make_record())
        assert database.list() == [make_record()]
