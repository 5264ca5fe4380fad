"""The file below the database: whether it may have changed, what its faults are called, how a useless one is set aside.

A file that cannot be used is moved, with the logs that belong to it, to ``NAME.corrupt-TIMESTAMP``: nothing is deleted
and no earlier such file is overwritten. The move is done under a lock, after a second look at the file, so that of two
processes which find the same useless file one moves it and the other uses the fresh one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from akx.core.errors import AkxWarning, DatabaseError, shown
from akx.core.fork_safety import lock_file, unlock_file

__all__ = [
    "MAGIC",
    "SQLITE_ERRORS",
    "USELESS_HINT",
    "PlanDatabaseWarning",
    "check_place",
    "file_stamp",
    "is_busy",
    "is_damage",
    "is_foreign",
    "is_settled",
    "is_writable",
    "make_parent",
    "set_aside",
    "translate",
]

_ELSEWHERE = "pass --db PATH or set AKX_DB to a file in a writable directory"
USELESS_HINT = "the next akx tune sets it aside and makes a fresh one; or use another with --db PATH or AKX_DB"
#: What a file of SQLite begins with.
MAGIC = b"SQLite format 3\0"
#: What a query can raise: the text of SQLite's own message may come from the damaged file and not be UTF-8.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

#: The most characters of a warning.
_LONGEST = 2000
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
#: What belongs to a database, beside it.
_LOGS = ("-journal", "-wal", "-shm")
#: Nanoseconds within which two changes may have the same time: clocks of file systems are coarse, some of a second.
_COARSE = 2_000_000_000


class PlanDatabaseWarning(AkxWarning):
    """The plan database, or a part of it, could not be used; work goes on without it."""

    def __str__(self) -> str:
        return shown(super().__str__(), _LONGEST)


def file_stamp(path: Path) -> tuple[tuple[int, ...], ...]:
    """What differs after another process has changed the file or its log; some microseconds.

    An empty log counts as none: SQLite makes and removes those as the file is opened and closed.
    """
    return _stamp(path), _stamp(f"{path}-wal")


def _stamp(path: str | Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns) if status.st_size else ()


def is_settled(stamp: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the next change is sure to give another stamp: the last one was long enough ago, by our own clock."""
    latest = time.time_ns() - _COARSE
    return all(part[2] < latest for part in stamp if part)


def check_place(path: Path) -> bool:
    """Whether there is a file at `path`. Raises :class:`DatabaseError` where it is no file, or one cannot tell."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise DatabaseError("the directory of the plan database is a file", found=str(path), hint=_ELSEWHERE) from None
    except OSError as error:
        raise DatabaseError(
            f"plan database cannot be reached: {error.strerror}", found=str(path), hint=_ELSEWHERE
        ) from error
    if stat.S_ISDIR(mode):
        hint = f"pass a file, such as {path / 'plans.sqlite'}"
        raise DatabaseError("plan database is a directory", expected="a file", found=str(path), hint=hint)
    if not stat.S_ISREG(mode):
        raise DatabaseError("plan database is a device or a pipe", expected="a file", found=str(path), hint=_ELSEWHERE)
    return True


def is_writable(path: Path) -> bool:
    """Whether the file, or the nearest directory above it that exists, may be written; nothing is tried."""
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def is_foreign(path: Path) -> bool:
    """Whether the file does not begin as a SQLite database does, seen without SQLite.

    SQLite takes a file of one byte for an empty one, and would apply a log that lies beside a file to whatever the file
    holds: both would overwrite it. A file with a rollback journal is left to SQLite to judge.

    Closing a file drops every lock that this process has on it, also those of SQLite, so this is only for a file that
    this process has not open.
    """
    if os.path.exists(f"{path}-journal"):
        return False
    try:
        with path.open("rb") as stream:
            start = stream.read(len(MAGIC))
    except OSError:
        return False  # SQLite will say why
    return bool(start) and start != MAGIC


def make_parent(path: Path) -> None:
    """Make the directory of the database. Raises :class:`DatabaseError` where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DatabaseError("the directory of the plan database is a file", found=str(path), hint=_ELSEWHERE) from None
    except OSError as error:
        hint = "free some space" if error.errno == errno.ENOSPC else _ELSEWHERE
        raise DatabaseError(
            f"the directory of the plan database cannot be made: {error.strerror}", found=str(path.parent), hint=hint
        ) from error


def _code(error: Exception) -> int:
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    code = getattr(error, "sqlite_errorcode", None)
    return int(code) & 0xFF if code is not None else 0


def is_damage(error: Exception) -> bool:
    """Whether the content of the file is at fault, rather than its surroundings."""
    return _code(error) in _DAMAGE


def is_busy(error: Exception) -> bool:
    """Whether another process holds a lock, so that it is worth waiting."""
    return _code(error) in _BUSY


def translate(error: Exception, path: Path, action: str) -> DatabaseError:
    """The typed error for one of SQLite, while trying to `action` ("read", "written"); the hint names the cure."""
    code, hint = _code(error), _ELSEWHERE
    what = f"plan database cannot be {action}"
    if code in _BUSY:
        what = "plan database is locked by another process"
        hint = "wait until the other process has finished, or use another with --db PATH or AKX_DB"
    elif code in _DAMAGE:
        what, hint = "plan database is damaged or no plan database", USELESS_HINT
    elif code == sqlite3.SQLITE_FULL:
        what = "plan database cannot be written: the disk is full"
        hint = "free some space, or pass --db PATH or set AKX_DB to a file on another disk"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        if action == "read":
            what = "plan database cannot be opened"
        elif not os.access(path.parent, os.W_OK):
            what += ": its directory is read-only"
        elif path.exists() and not os.access(path, os.W_OK):
            what += ": the file is read-only"
    elif code == sqlite3.SQLITE_IOERR:
        what += ": the disk fails"
    return DatabaseError(what, found=f"{path} ({error})", hint=hint)


def set_aside(path: Path, still_useless: Callable[[], bool]) -> Path | None:
    """Move a useless file out of the way; where it now is. Raises :class:`DatabaseError` where it cannot be moved.

    `still_useless` is called under the lock: where it says no, another process has put things right, and nothing is
    moved.
    """
    try:
        with path.with_name(f"{path.name}.lock").open("ab") as lock, contextlib.ExitStack() as stack:
            lock_file(lock.fileno(), wait=True)  # the operating system frees it when the process dies
            stack.callback(unlock_file, lock.fileno())
            if not still_useless():
                return None
            target = _reserve(path)
            # Logs first: a fresh database must never meet the log of the old one, nor SQLite delete it.
            for suffix in _LOGS:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{target}{suffix}")
            os.replace(path, target)
            return target
    except DatabaseError:
        raise
    except OSError as error:
        raise DatabaseError(
            f"plan database is useless and cannot be set aside: {error.strerror}", found=str(path), hint=_ELSEWHERE
        ) from error


def _reserve(path: Path) -> Path:
    """A new, empty file with a name that nothing had before: the target of an atomic move."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in count():
        target = path.with_name(f"{path.name}.corrupt-{stamp}" + (f"-{number}" if number else ""))
        if not any(Path(f"{target}{suffix}").exists() for suffix in _LOGS):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                return target
    raise AssertionError
