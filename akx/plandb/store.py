"""One SQLite file that many processes share: opened late, looked at before it is trusted, never lost.

Reading never makes, changes or moves a file. It needs no write access: a read-only file, directory or medium will do.
SQLite's write-ahead log needs a shared-memory file beside the database, even to read; where that cannot be made the
file is opened as ``immutable`` if its log is empty, else the two are read into memory.

Writing makes the file and its directory where they are missing, brings layout 4 to the present one, refuses others,
sets a useless file aside and makes a fresh one, and turns on the write-ahead log (WAL), so that readers and a writer do
not block each other and a process killed at any moment leaves the last committed state. Every change is one immediate
transaction; a lock is waited for up to ``timeout`` seconds.

A later akx may change the layout of a file that is open here. SQLite numbers such changes (``PRAGMA schema_version``):
where the number has moved, the file is looked at as when it is opened.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from akx.core.errors import DatabaseError
from akx.core.fork_safety import ForkSafeLock
from akx.plandb.file import (
    SQLITE_ERRORS,
    USELESS_HINT,
    PlanDatabaseWarning,
    check_place,
    file_stamp,
    is_busy,
    is_damage,
    is_foreign,
    is_settled,
    is_writable,
    make_parent,
    set_aside,
    translate,
)
from akx.plandb.layout import (
    PLAN_COLUMNS,
    SCHEMA_VERSION,
    SQLITE,
    TIMED,
    TIMING_COLUMNS,
    TRIAL_COLUMNS,
    Inspection,
    check_layout,
    inspect,
    make_tables,
)
from akx.plandb.tables import Tables

__all__ = ["Store"]

_T = TypeVar("_T")
#: Seconds that SQLite itself waits for a lock, and between two attempts.
_WAIT, _PAUSE = 1.0, 0.02
#: A file up to this many bytes is checked in whole before it is written to.
_CHECKED_BYTES = 64 * 1024 * 1024
#: Connections inherited by a fork are neither used nor closed in the child: SQLite allows neither.
_INHERITED: list[sqlite3.Connection] = []
#: How many connections of this process are open per file.
_OPEN: Counter[Path] = Counter()
_OPEN_LOCK = ForkSafeLock()
_TABLES = {"plans": PLAN_COLUMNS, "trials": ("key_id", "key", *TRIAL_COLUMNS), "timings": TIMING_COLUMNS}


class _UselessError(Exception):
    """The file is no plan database of ours, or a broken one."""


class _ChangedError(Exception):
    """The layout of the file may be another than it was when the file was opened."""


class Store:
    """The file at `path`; see the module for what reading and writing do to it.

    `timeout`: seconds to wait for another process's lock.
    """

    prefix = SQLITE.prefix

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
        self._forget()

    def _forget(self) -> None:
        self._lock = ForkSafeLock()
        self._pid = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._signature: tuple[Any, ...] = ()
        #: SQLite's number of the layout, and the layout.
        self._number = self._layout = 0
        self._is_writer = self._is_copy = False

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._pid != os.getpid():
            if self._connection is not None:
                _INHERITED.append(self._connection)
            self._forget()
        with self._lock:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                with _OPEN_LOCK, contextlib.suppress(sqlite3.Error):
                    _OPEN[self.path] -= 1
                    connection.close()

    def read(self, action: Callable[[Tables], _T], patience: float | None = None) -> _T | None:
        """`action` on one state of the tables, or None where there are none yet. Raises :class:`DatabaseError`."""
        return self._do(lambda connection: action(self._tables(connection)), patience)

    def write(self, action: Callable[[Tables], _T], *, patience: float | None = None) -> _T:
        """`action` on the tables in one immediate transaction. Raises :class:`DatabaseError`; then nothing has changed.

        `action` may be done twice. `patience`: seconds to wait for another process's lock, `timeout` by default.
        """
        return cast(_T, self._do(lambda connection: action(self._tables(connection)), patience, to_write=True))

    def describe(self) -> tuple[Inspection, str]:
        """The layout of the file and SQLite's journal mode; layout 0 where there is none. Raises as reading does."""
        return self._do(lambda connection: (inspect(connection), _journal(connection))) or (Inspection(), "")

    def exists(self) -> bool:
        """Whether there is a file. Raises :class:`DatabaseError` where it is no file, or one cannot tell."""
        return check_place(self.path)

    def is_writable(self) -> bool:
        """Whether a change seems possible, by the rights on the file or its directory."""
        return is_writable(self.path)

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """What differs after another process has changed the file; some microseconds, opens nothing."""
        return file_stamp(self.path)

    @staticmethod
    def is_settled(stamp: tuple[tuple[int, ...], ...]) -> bool:
        """Whether the next change is sure to give another stamp."""
        return is_settled(stamp)

    def _tables(self, connection: sqlite3.Connection) -> Tables:
        return Tables(connection, has_timings=self._layout >= TIMED)

    def _do(
        self, action: Callable[[sqlite3.Connection], _T], patience: float | None = None, *, to_write: bool = False
    ) -> _T | None:
        """`action` in one transaction, begun anew while another process has a lock; None where there is no file."""
        if self._pid != os.getpid():
            self.close()
        limit = self.timeout if patience is None else patience
        deadline = time.monotonic() + limit
        verb, is_fresh = "written" if to_write else "read", False
        with self._lock:
            while True:
                try:
                    connection = self._opened(to_write=to_write)
                    if connection is None:
                        return None
                    if to_write:
                        connection.execute(f"PRAGMA busy_timeout = {round(1000 * min(_WAIT, limit))}")
                    return self._transaction(connection, action, to_write=to_write)
                except _ChangedError:
                    self.close()
                except (_UselessError, *SQLITE_ERRORS) as error:
                    if is_busy(error) and time.monotonic() < deadline:
                        time.sleep(_PAUSE)
                        continue
                    self.close()
                    is_useless = isinstance(error, _UselessError)
                    if to_write and not is_fresh and (is_useless or is_damage(error)):
                        self._set_aside(str(error))
                        is_fresh = True
                    elif is_useless:
                        found = f"{self.path}: {error}"
                        raise DatabaseError("plan database is useless", found=found, hint=USELESS_HINT) from error
                    else:
                        raise translate(error, self.path, verb) from error

    def _transaction(
        self, connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], _T], *, to_write: bool
    ) -> _T:
        """`action` on one state of the file, of the layout that it had when it was opened."""
        connection.execute("BEGIN IMMEDIATE" if to_write else "BEGIN")
        try:
            if _layout_number(connection) != self._number:
                raise _ChangedError
            result = action(connection)
            if connection.in_transaction:  # unless an error has ended it
                connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
        return result

    # ------------------------------------------------------------------------------------------------ opening

    def _opened(self, *, to_write: bool) -> sqlite3.Connection | None:
        """The connection, made anew where the file is another; None where there is nothing to read."""
        if self._connection is not None and self._is_writer >= to_write and self._signature == self._sign():
            return self._connection
        self.close()
        self._is_writer, self._is_copy = to_write, False
        if check_place(self.path):
            self._check_start()
        elif not to_write:
            return None
        if to_write:
            make_parent(self.path)
        stamp = file_stamp(self.path)
        connection = self._connect("mode=rwc") if to_write else self._connect_to_read()
        try:
            self._number = _layout_number(connection)  # first: a change behind it is then seen
            self._layout = self._examine(connection, _CHECKED_BYTES if to_write else 0, to_write=to_write).version
            if to_write:
                self._prepare(connection)
            elif not self._layout:
                connection.close()
                return None
        except BaseException:
            connection.close()
            raise
        with _OPEN_LOCK:
            _OPEN[self.path] += 1
        self._connection, self._signature = connection, self._sign(stamp)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Bring the file to the present layout, and its log to WAL."""
        if self._layout < SCHEMA_VERSION:
            self._transaction(connection, lambda opened: make_tables(opened, self._layout), to_write=True)
            self._number, self._layout = _layout_number(connection), SCHEMA_VERSION
        # Some file systems (network ones) cannot do WAL: SQLite stays with its rollback journal, which is safe too.
        with contextlib.suppress(sqlite3.OperationalError):
            if _journal(connection) != "wal":
                connection.execute("PRAGMA journal_mode = WAL").fetchone()

    def _connect(self, options: str) -> sqlite3.Connection:
        """Open the file with SQLite's URI `options`, in autocommit mode."""
        return _connect(self.path, options, min(_WAIT, self.timeout))

    def _connect_to_read(self) -> sqlite3.Connection:
        """Open with as many rights as there are: a reader with the right to write also finishes a killed one's work."""
        attempts = ("mode=rw", "mode=ro", "copy" if file_stamp(self.path)[1] else "mode=ro&immutable=1")
        for options in attempts:
            connection = None
            try:
                self._is_copy = options == attempts[-1]
                connection = _log_copy(self.path) if options == "copy" else self._connect(options)
                _layout_number(connection)
                return connection
            except SQLITE_ERRORS as error:
                if connection is not None:
                    connection.close()
                if self._is_copy or is_damage(error) or is_busy(error):
                    raise
        raise AssertionError

    def _sign(self, stamp: tuple[tuple[int, ...], ...] | None = None) -> tuple[Any, ...]:
        """What tells that the file is still the one that was opened; for a copy, that it has not changed either."""
        try:
            status = os.stat(self.path)
        except OSError:
            return ()
        return status.st_dev, status.st_ino, (stamp or file_stamp(self.path)) if self._is_copy else ()

    def _check_start(self) -> None:
        with _OPEN_LOCK:
            if not _OPEN[self.path] and is_foreign(self.path):
                raise _UselessError("it is no SQLite database")

    def _examine(self, connection: sqlite3.Connection, checked_bytes: float, *, to_write: bool) -> Inspection:
        found = inspect(connection)
        if found.fault is not None:
            raise _UselessError(found.fault)
        check_layout(found, self.path, to_write=to_write)
        if found.version and self.path.stat().st_size <= checked_bytes:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _UselessError(f"it is damaged: {' '.join(str(verdict).split())}")
        return found

    # ------------------------------------------------------------------------------------------------ a useless file

    def _set_aside(self, reason: str) -> None:
        target = set_aside(self.path, self._is_useless)
        if target is None:
            return
        message = f"plan database {self.path} is not usable ({reason}); it is now {target}, and a fresh one is made"
        if rescued := _rescue(target):
            with contextlib.suppress(_UselessError, *SQLITE_ERRORS):
                connection = self._opened(to_write=True)
                assert connection is not None
                self._transaction(connection, lambda opened: _put_back(opened, rescued), to_write=True)
                message += " with " + " and ".join(f"{len(rows)} {table}" for table, rows in rescued.items())
                message += " of the old one"
        warnings.warn(message, PlanDatabaseWarning, stacklevel=5)

    def _is_useless(self) -> bool:
        """A second look, under the lock: whether the file that is there now is useless."""
        if not check_place(self.path):
            return False
        try:
            self._check_start()
            with contextlib.closing(self._connect("mode=rw")) as connection:
                self._examine(connection, math.inf, to_write=True)
        except (_UselessError, *SQLITE_ERRORS) as error:
            if isinstance(error, _UselessError) or is_damage(error):
                return True
            raise translate(error, self.path, "written") from error
        return False


def _connect(path: Path, options: str, wait: float) -> sqlite3.Connection:
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


def _log_copy(path: Path) -> sqlite3.Connection:
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
        with contextlib.closing(_connect(copy, "mode=rw", _WAIT)) as connection:
            memory.text_factory = connection.text_factory
            connection.backup(memory)
    return memory


def _rescue(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Rows that can still be read from a damaged database, by table: from both ends to the damage."""
    rescued: dict[str, list[tuple[object, ...]]] = {}
    with contextlib.suppress(*SQLITE_ERRORS), contextlib.closing(_connect(path, "mode=ro", _WAIT)) as connection:
        inspection = inspect(connection)
        for table, columns in _TABLES.items() if inspection.fault is None else ():
            found: dict[int, tuple[object, ...]] = {}
            for order in ("ASC", "DESC"):
                with contextlib.suppress(*SQLITE_ERRORS):
                    statement = f"SELECT rowid, {', '.join(columns)} FROM {table} ORDER BY rowid {order}"
                    for rowid, *row in connection.execute(statement):
                        found[rowid] = tuple(row)
            if found or table == "plans":
                rescued[table] = [found[rowid] for rowid in sorted(found)]
    return rescued


def _put_back(connection: sqlite3.Connection, rescued: dict[str, list[tuple[object, ...]]]) -> None:
    """Insert the rows of :func:`_rescue` where their keys are free; those that no table takes are left out."""
    for table, rows in rescued.items():
        names = ", ".join(_TABLES[table])
        statement = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({', '.join('?' * len(_TABLES[table]))})"
        for row in rows:
            with contextlib.suppress(UnicodeEncodeError, OverflowError):
                connection.execute(statement, row)


def _layout_number(connection: sqlite3.Connection) -> int:
    """SQLite's number of the layout: every change of a table or an index makes it another."""
    (number,) = connection.execute("PRAGMA schema_version").fetchone()
    return int(number)


def _journal(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
