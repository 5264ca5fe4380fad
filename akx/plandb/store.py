"""One SQLite file that many processes share: opened late, looked at before it is trusted, never lost.

Reading never makes, migrates or moves a file. It needs no write access: a read-only file, directory or medium will do.
SQLite's write-ahead log needs a shared-memory file beside the database, even to read; where that cannot be made the
file is opened as ``immutable`` if its log is empty, else the two are read into memory. A file of an older layout is
read through a copy in memory (:func:`akx.plandb.migrate.modern_copy`).

Writing makes the file and its directory where they are missing, migrates an older layout, refuses a newer one, sets a
useless file aside and makes a fresh one, and turns on the write-ahead log (WAL), so that readers and a writer do not
block each other and a process killed at any moment leaves the last committed state. Every change is one immediate
transaction; a lock is waited for up to ``timeout`` seconds.

Another process, with a later akx, may change the layout of a file that is open here. SQLite numbers such changes
(``PRAGMA schema_version``): the number is looked at in every transaction, and where it has moved the file is looked at
as when it is opened.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from akx.core.errors import DatabaseError
from akx.core.fork_safety import ForkSafeLock
from akx.plandb.access import WAIT, connect, log_copy, put_back, rescue
from akx.plandb.file import (
    SQLITE_ERRORS,
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
from akx.plandb.migrate import SCHEMA_VERSION, SQLITE, Inspection, inspect, migrate, modern_copy, newer
from akx.plandb.tables import Tables

__all__ = ["Store"]

_T = TypeVar("_T")
#: Seconds between two attempts.
_PAUSE = 0.02
#: A file up to this many bytes is checked in whole before it is written to.
_CHECKED_BYTES = 64 * 1024 * 1024
#: Connections inherited by a fork are neither used nor closed in the child: SQLite allows neither.
_INHERITED: list[sqlite3.Connection] = []
#: How many connections of this process are open per file.
_OPEN: Counter[Path] = Counter()
_OPEN_LOCK = ForkSafeLock()


class _UselessError(Exception):
    """The file is no plan database of ours, or a broken one."""


class _ChangedError(Exception):
    """The layout of the file may be another than it was when the file was opened."""


class Store:
    """The file at `path`; see the module for what reading and writing do to it.

    Parameters
    ----------
    path : Path
        Absolute path.
    timeout : float
        Seconds to wait for another process's lock.
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
        self._number: int | None = None
        self._is_writer = self._is_copy = False
        #: Layout and journal mode of the file of which a copy is read that has the present layout.
        self._old: tuple[Inspection, str] | None = None

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
        return self._read(lambda connection: action(Tables(connection, is_old=self._old is not None)), patience)

    def _read(self, action: Callable[[sqlite3.Connection], _T], patience: float | None = None) -> _T | None:
        self._check_process()
        deadline = time.monotonic() + (self.timeout if patience is None else patience)
        with self._lock:
            while True:
                try:
                    connection = self._reader()
                    return None if connection is None else self._snapshot(connection, action)
                except _ChangedError:
                    self.close()
                except _UselessError as error:
                    hint = "the next akx tune sets it aside and makes a fresh one; or use --db PATH or AKX_DB"
                    raise DatabaseError("plan database is useless", found=f"{self.path}: {error}", hint=hint) from error
                except SQLITE_ERRORS as error:
                    if is_busy(error) and time.monotonic() < deadline:
                        time.sleep(_PAUSE)
                        continue
                    self.close()
                    raise translate(error, self.path, "read") from error

    def write(self, action: Callable[[Tables], _T], *, patience: float | None = None) -> _T:
        """`action` on the tables in one immediate transaction.

        Raises :class:`DatabaseError`; then nothing has changed. `patience`: seconds to wait for another process's lock,
        `timeout` by default.
        """
        self._check_process()
        limit = self.timeout if patience is None else patience
        with self._lock:
            is_last = False
            while True:
                try:
                    connection = self._writer()
                    return self._transaction(connection, lambda opened: self._unchanged(opened, _on(action)), limit)
                except _ChangedError:
                    self.close()
                except (_UselessError, *SQLITE_ERRORS) as error:
                    self.close()
                    if not isinstance(error, _UselessError) and not is_damage(error):
                        raise translate(error, self.path, "written") from error
                    if is_last:
                        raise DatabaseError("plan database is useless", found=f"{self.path} ({error})") from error
                    self._set_aside(str(error))
                    is_last = True

    def describe(self) -> tuple[Inspection, str]:
        """The layout of the file and SQLite's journal mode; layout 0 where there is none. Raises as reading does."""
        return self._read(lambda connection: self._old or (inspect(connection), _journal(connection))) or (
            Inspection(),
            "",
        )

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

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self.close()

    # ------------------------------------------------------------------------------------------------ reading

    def _reader(self) -> sqlite3.Connection | None:
        if self._connection is not None and self._signature == self._sign():
            return self._connection
        self.close()
        self._is_writer = self._is_copy = False
        self._old = None
        if not check_place(self.path):
            return None
        self._check_start()
        stamp = file_stamp(self.path)
        connection, number, inspection = self._open_to_read()
        layout = inspection.version
        try:
            if inspection.fault is not None:
                raise _UselessError(inspection.fault)
            if layout > SCHEMA_VERSION and inspection.oldest_reader > SCHEMA_VERSION:
                raise newer(inspection, self.path)
            if layout == 0:
                connection.close()
                return None
            if layout < SCHEMA_VERSION:
                old, journal = connection, _journal(connection)
                with contextlib.closing(old):
                    connection = modern_copy(layout, lambda table, columns: old.execute(_select(table, columns)))
                self._is_copy, self._old = True, (inspection, journal)
                number = _layout_number(connection)
        except BaseException:
            connection.close()
            raise
        self._keep(connection, number, stamp)
        return connection

    def _snapshot(self, connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """`action` on one state of the file, of the layout that it had when it was opened."""
        connection.execute("BEGIN")
        try:
            return self._unchanged(connection, action)
        finally:
            if connection.in_transaction:  # unless an error has ended it
                connection.commit()

    def _unchanged(self, connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """`action`, within a transaction, where the layout has not moved since it was looked at."""
        if _layout_number(connection) != self._number:
            raise _ChangedError
        return action(connection)

    def _open_to_read(self) -> tuple[sqlite3.Connection, int, Inspection]:
        """Open with as many rights as there are: a reader with the right to write also finishes a killed one's work."""
        wait, has_log = min(WAIT, self.timeout), bool(file_stamp(self.path)[1])
        attempts = ("mode=rw", "mode=ro", "copy" if has_log else "mode=ro&immutable=1")
        last: Exception | None = None
        for options in attempts:
            connection = None
            try:
                connection = log_copy(self.path) if options == "copy" else connect(self.path, options, wait=wait)
                self._is_copy = options == attempts[-1]
                number = _layout_number(connection)  # first: a change behind it is then seen
                return connection, number, inspect(connection)
            except SQLITE_ERRORS as error:
                if connection is not None:
                    connection.close()
                if is_damage(error) or is_busy(error):
                    raise
                last = error
        assert last is not None
        raise last

    def _sign(self, stamp: tuple[tuple[int, ...], ...] | None = None) -> tuple[Any, ...]:
        """What tells that the file is still the one that was opened; for a copy, that it has not changed either."""
        try:
            status = os.stat(self.path)
        except OSError:
            return ()
        return status.st_dev, status.st_ino, (stamp or file_stamp(self.path)) if self._is_copy else ()

    # ------------------------------------------------------------------------------------------------ writing

    def _writer(self) -> sqlite3.Connection:
        if self._connection is not None and self._is_writer and self._signature == self._sign():
            return self._connection
        self.close()
        self._is_writer = self._is_copy = False
        self._old = None
        if check_place(self.path):
            self._check_start()
        make_parent(self.path)
        connection = connect(self.path, "mode=rwc", wait=min(WAIT, self.timeout))
        try:
            number = self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._keep(connection, number)
        self._is_writer = True
        return connection

    def _keep(
        self, connection: sqlite3.Connection, number: int, stamp: tuple[tuple[int, ...], ...] | None = None
    ) -> None:
        with _OPEN_LOCK:
            _OPEN[self.path] += 1
        self._connection, self._number, self._signature = connection, number, self._sign(stamp)

    def _check_start(self) -> None:
        with _OPEN_LOCK:
            if not _OPEN[self.path] and is_foreign(self.path):
                raise _UselessError("it is no SQLite database")

    def _prepare(self, connection: sqlite3.Connection) -> int:
        """Bring the file to the present layout; the number that SQLite gave to that."""
        number = self._patiently(lambda: _layout_number(connection))  # first: a change behind it is then seen
        inspection = self._patiently(lambda: self._examine(connection))
        if inspection.version < SCHEMA_VERSION:
            number = self._transaction(connection, self._migrate)
        # Some file systems (network ones) cannot do WAL: SQLite stays with its rollback journal, which is safe too.
        with contextlib.suppress(sqlite3.OperationalError):
            if _journal(connection) != "wal":
                self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        return number

    def _examine(self, connection: sqlite3.Connection, checked_bytes: float = _CHECKED_BYTES) -> Inspection:
        inspection = inspect(connection)
        if inspection.fault is not None:
            raise _UselessError(inspection.fault)
        if inspection.version > SCHEMA_VERSION:
            raise newer(inspection, self.path)
        if inspection.version and self.path.stat().st_size <= checked_bytes:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _UselessError(f"it is damaged: {' '.join(str(verdict).split())}")
        return inspection

    def _migrate(self, connection: sqlite3.Connection) -> int:
        migrate(connection, self._examine(connection, -1).version)  # again: another process may have been faster
        return _layout_number(connection)

    def _patiently(self, action: Callable[[], _T], limit: float | None = None) -> _T:
        deadline = time.monotonic() + (self.timeout if limit is None else limit)
        while True:
            try:
                return action()
            except SQLITE_ERRORS as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE)

    def _transaction(
        self, connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], _T], limit: float | None = None
    ) -> _T:
        wait = min(WAIT, self.timeout if limit is None else limit)
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * wait)}")  # of each look at the lock
        self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"), limit)
        try:
            result = action(connection)
            self._patiently(lambda: connection.execute("COMMIT"), limit)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
        return result

    def _set_aside(self, reason: str) -> None:
        target = set_aside(self.path, self._is_useless)
        if target is None:
            return
        message = f"plan database {self.path} is not usable ({reason}); it is now {target}, and a fresh one is made"
        rescued = rescue(target)
        if rescued:
            with contextlib.suppress(_UselessError, *SQLITE_ERRORS):
                self._transaction(self._writer(), lambda connection: put_back(connection, rescued))
                message += " with " + " and ".join(f"{len(rows)} {table}" for table, rows in rescued.items())
                message += " of the old one"
        warnings.warn(message, PlanDatabaseWarning, stacklevel=4)

    def _is_useless(self) -> bool:
        """A second look, under the lock: whether the file that is there now is useless."""
        if not check_place(self.path):
            return False
        connection = None
        try:
            self._check_start()
            connection = connect(self.path, "mode=rw", wait=min(WAIT, self.timeout))
            self._patiently(lambda: self._examine(connection, math.inf))
        except _UselessError:
            return True
        except SQLITE_ERRORS as error:
            if is_damage(error):
                return True
            raise translate(error, self.path, "written") from error
        finally:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        return False


def _on(action: Callable[[Tables], _T]) -> Callable[[sqlite3.Connection], _T]:
    return lambda connection: action(Tables(connection))


def _layout_number(connection: sqlite3.Connection) -> int:
    """SQLite's number of the layout: every change of a table or an index makes it another."""
    (number,) = connection.execute("PRAGMA schema_version").fetchone()
    return int(number)


def _journal(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _select(table: str, columns: Sequence[str]) -> str:
    return f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid"
