"""Ways to open the file: with every right, read-only, on a read-only medium, in memory; and what a broken one holds.

SQLite's write-ahead log needs a shared-memory file beside the database, even to read. On a read-only medium that cannot
be made: the file is then opened as ``immutable`` where its log is empty, else the two are read into memory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

from akx.plandb.files import SQLITE_ERRORS
from akx.plandb.legacy import marked_timings, modern_plan, modern_trial, newest_timings, unmarked, untried_timings
from akx.plandb.migrate import (
    OLD_PLAN_COLUMNS,
    OLDEST_ALIKE,
    PLAN_COLUMNS,
    REVISED,
    SCHEMA_VERSION,
    TIMED,
    TIMING_COLUMNS,
    inspect,
)

__all__ = [
    "WAIT",
    "connect",
    "connect_copy",
    "connect_immutable",
    "connect_ro",
    "connect_rw",
    "in_memory",
    "put_back",
    "rescue",
    "wal_bytes",
]

#: Where plans of old layouts say when they were made, and where, behind its plan, a trial has the clock.
_CREATED, _CLOCK = OLD_PLAN_COLUMNS.index("created"), 4
#: Seconds that SQLite itself waits for a lock; longer waits are loops of these.
WAIT = 1.0


def connect(path: Path, options: str, *, wait: float) -> sqlite3.Connection:
    """Open `path` with SQLite's URI `options`, in autocommit mode; a locked file is waited for `wait` seconds."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=wait, isolation_level=None, check_same_thread=False
    )
    # Text that is not UTF-8 (a damaged file) must reach the validation of records rather than stop the query.
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def wal_bytes(path: Path) -> int:
    """Bytes of the write-ahead log; 0 where there is none."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def connect_rw(path: Path, wait: float) -> sqlite3.Connection:
    """Open an existing file with whatever rights the file system gives."""
    return connect(path, "mode=rw", wait=wait)


def connect_ro(path: Path, wait: float) -> sqlite3.Connection:
    """Open an existing file to read only."""
    return connect(path, "mode=ro", wait=wait)


def connect_immutable(path: Path, wait: float) -> sqlite3.Connection:
    """Open a file that nobody changes, without its log."""
    return connect(path, "mode=ro&immutable=1", wait=wait)


def connect_copy(path: Path, wait: float) -> sqlite3.Connection:
    """A copy in memory of a database whose log can be read but not opened, as on a read-only medium."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="akx-plans-") as folder:
        copy = Path(folder) / "plans.sqlite"
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        except OSError as error:
            raise sqlite3.OperationalError(f"cannot be copied: {error}") from error
        return in_memory(connect(copy, "mode=rw", wait=wait))


def in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy a database to memory and close it."""
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    memory.text_factory = connection.text_factory
    try:
        connection.backup(memory)
    except BaseException:
        memory.close()
        raise
    finally:
        connection.close()
    return memory


def rescue(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows that can still be read from a damaged database: from both ends to the damage.

    It is of the present layout, or of one that is read as it is.
    """
    rows: dict[str, list[tuple[object, ...]]] = {}
    try:
        connection = connect_ro(path, WAIT)
        try:
            inspection = inspect(connection)
            if inspection.fault is None and OLDEST_ALIKE <= inspection.version <= SCHEMA_VERSION:
                for table in ("plans", "trials", *(["timings"] if inspection.version >= TIMED else [])):
                    found: dict[int, tuple[object, ...]] = {}
                    for order in ("ASC", "DESC"):
                        with contextlib.suppress(*SQLITE_ERRORS):
                            for rowid, *row in connection.execute(
                                f"SELECT rowid, * FROM {table} ORDER BY rowid {order}"
                            ):
                                found[rowid] = tuple(row)
                    in_order = [found[rowid] for rowid in sorted(found)]
                    rows[table] = in_order if inspection.version >= REVISED else _revised(table, in_order)
                if inspection.version < TIMED:
                    rows = _timed(**rows)
        finally:
            connection.close()
    except SQLITE_ERRORS:
        return {}
    return rows


def _revised(table: str, rows: list[tuple[Any, ...]]) -> list[tuple[object, ...]]:
    """Rows of layouts before there were revisions as those of the present one; plans the newest first."""
    if table == "plans":
        return [modern_plan(row) for row in sorted(rows, key=lambda row: str(row[_CREATED]), reverse=True)]
    found = []
    for number, key_id, key, plan, *rest in rows:
        new = modern_trial(key_id, key, plan)
        clock = rest[_CLOCK] if len(rest) > _CLOCK else None
        of_key, provenance = ((key_id, key), None) if new is None else (new[:2], new[2])
        found.append((number, *of_key, plan, *rest[:_CLOCK], clock, provenance))
    return found


def _timed(plans: list[tuple[Any, ...]], trials: list[tuple[Any, ...]]) -> dict[str, list[tuple[object, ...]]]:
    """Rows of layout 4 as those of the present one."""
    numbers, timings = untried_timings(trials)
    for number, row in enumerate(plans):
        values = dict(zip(PLAN_COLUMNS, row, strict=False))
        timings += marked_timings(values)
        plans[number] = tuple((values | {"provenance": unmarked(values["provenance"])}).values())
    of_timings = [tuple(row[name] for name in TIMING_COLUMNS) for row in newest_timings(timings)]
    return {"plans": plans, "trials": [row for row in trials if row[0] not in numbers], "timings": of_timings}


def put_back(connection: sqlite3.Connection, rows: dict[str, list[tuple[object, ...]]]) -> None:
    """Insert the rows of :func:`rescue` where their keys are free; columns that they did not have yet stay empty."""
    for table, found in rows.items():
        columns = len(connection.execute(f"PRAGMA table_info({table})").fetchall())
        statement = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * columns)})"
        for row in found:
            with contextlib.suppress(UnicodeEncodeError, OverflowError):
                connection.execute(statement, (*row, *[None] * (columns - len(row))))
