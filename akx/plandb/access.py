"""Ways to open the file of the database, and what a broken one still holds."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from akx.plandb.file import SQLITE_ERRORS
from akx.plandb.migrate import SCHEMA_VERSION, inspect, modern_copy

__all__ = ["WAIT", "connect", "log_copy", "put_back", "rescue"]

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


def log_copy(path: Path) -> sqlite3.Connection:
    """A copy in memory of a database whose log can be read but not opened, as on a read-only medium."""
    import shutil
    import tempfile

    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with tempfile.TemporaryDirectory(prefix="akx-plans-") as folder:
        copy = Path(folder) / "plans.sqlite"
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        except OSError as error:
            raise sqlite3.OperationalError(f"cannot be copied: {error}") from error
        with contextlib.closing(connect(copy, "mode=rw", wait=WAIT)) as connection:
            memory.text_factory = connection.text_factory
            connection.backup(memory)
    return memory


def rescue(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Rows of today that can still be read from a damaged database, by table: from both ends to the damage."""
    try:
        with contextlib.closing(connect(path, "mode=ro", wait=WAIT)) as connection:
            inspection = inspect(connection)
            if inspection.fault is not None or not 2 <= inspection.version <= SCHEMA_VERSION:
                return {}

            def read(table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
                found: dict[int, tuple[object, ...]] = {}
                for order in ("ASC", "DESC"):
                    with contextlib.suppress(*SQLITE_ERRORS):
                        statement = f"SELECT rowid, {', '.join(columns)} FROM {table} ORDER BY rowid {order}"
                        for rowid, *row in connection.execute(statement):
                            found[rowid] = tuple(row)
                return [found[rowid] for rowid in sorted(found)]

            with contextlib.closing(modern_copy(inspection.version, read)) as copy:
                return {t: copy.execute(f"SELECT * FROM {t}").fetchall() for t in ("plans", "trials", "timings")}
    except SQLITE_ERRORS:
        return {}


def put_back(connection: sqlite3.Connection, rows: dict[str, list[tuple[object, ...]]]) -> None:
    """Insert the rows of :func:`rescue` where their keys are free."""
    for table, found in rows.items():
        if found:
            statement = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(found[0]))})"
            connection.executemany(statement, found)
