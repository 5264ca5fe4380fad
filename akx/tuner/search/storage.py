"""Where workers on one study meet: a storage of Optuna, in a file of a shared directory or on a PostgreSQL server.

A file is a journal: one line of JSON for each change, appended under a lock that the operating system frees when its
holder dies. A line that was not written to its end, since the disk was full or the writer was killed, is cut off before
the next one is appended; Optuna would otherwise find it in the middle and read no further.

On a server Optuna's tables may lie beside the plans'. A worker has one connection, which is tried before it is used,
so that a restart of the server breaks nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import Any

from akx.core.errors import ArgumentTypeError, DatabaseError, brief
from akx.core.fork_safety import lock_file, unlock_file
from akx.plandb.place import ServerAddress, database_place
from akx.plandb.server import connecting, server_errors, translate
from akx.tuner.candidates.sampler import quiet_optuna

__all__ = ["TailLock", "open_storage"]

#: What the first line of a journal begins with.
_MARK = b'{"op_code":'
_ELSEWHERE = "give another --storage: a file in a shared directory, or postgresql://user@host/database"
_RIGHTS = "ask its owner for the right to make Optuna's tables and to change them"
#: How often tables are made that another worker is making at the same time, and seconds between.
_ATTEMPTS, _PAUSE = 5, 0.3
#: Seconds to wait for the lock of a journal, and between two looks at it.
_PATIENCE, _LOOK = 10.0, 2e-3
#: Seconds to wait for a server.
_TIMEOUT = 5.0


class TailLock:
    """Exclusive use of a journal, which ends with a whole line once it is had; a lock file of Optuna."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Wait for the lock and cut off what follows the last line.

        Raises TimeoutError where another holds it for ten seconds: it takes milliseconds, so that one is stopped.
        """
        descriptor = _open(_lock_of(self._path))
        try:
            self._wait(descriptor)
            self._mend()
        except BaseException:
            _close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let the next one in."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            _close(descriptor)

    def _wait(self, descriptor: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return lock_file(descriptor)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another worker holds {self._path}.lock, and may have been stopped") from None
            time.sleep(_LOOK)

    def _mend(self) -> None:
        with self._path.open("rb+") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - 1))
            if end and stream.read(1) != b"\n":
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)


def _close(descriptor: int) -> None:
    unlock_file(descriptor)
    os.close(descriptor)


def open_storage(storage: Any) -> tuple[Any, str]:
    """A storage of Optuna, and its name without passwords.

    `storage` is the path of a journal, which is made where there is none; the URL of a PostgreSQL server; or a storage.

    Raises
    ------
    ArgumentTypeError, DatabaseError, MissingDependencyError
        It is none of these; it cannot be opened, or is a file of another kind; the driver of the server is missing.
    """
    import optuna

    if isinstance(storage, optuna.storages.BaseStorage):
        return storage, type(storage).__name__
    if not isinstance(storage, (str, os.PathLike)):
        raise ArgumentTypeError(
            "storage is none",
            expected="the path of a journal, a URL, or a storage of Optuna",
            found=brief(storage),
        )
    try:
        place = database_place(storage)
        with quiet_optuna():
            found = _on_server(place) if isinstance(place, ServerAddress) else _journal(place)
    except DatabaseError as error:
        what = error.what.replace("plan database", "storage")
        cure = (error.hint or "").removesuffix(_ELSEWHERE).partition("pass --db PATH")[0].removesuffix("; or ")
        if "akx_" in cure:  # rights on the tables of plans
            cure = _RIGHTS
        hint = f"{cure}; or {_ELSEWHERE}" if cure else _ELSEWHERE
        raise DatabaseError(what, expected=error.expected, found=error.found, hint=hint) from error.__cause__
    return found, str(place)


def _journal(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DatabaseError("storage is a device or a pipe, no file", found=str(path), hint=_ELSEWHERE)
    if not os.path.exists(path.parent):  # a name that was mistyped would be a study of its own, on which nobody else is
        hint = f"make it first (mkdir -p {path.parent}); or {_ELSEWHERE}"
        raise DatabaseError("the folder of the storage does not exist", found=str(path.parent), hint=hint)
    try:
        with os.fdopen(_open(path), "rb") as stream:
            start = stream.read(len(_MARK))
    except OSError as error:
        raise _refusal(path, path, error) from error
    if not _MARK.startswith(start):
        raise DatabaseError(
            "storage is a file of another kind", expected="a journal of Optuna", found=str(path), hint=_ELSEWHERE
        )
    try:
        os.close(_open(_lock_of(path)))
    except OSError as error:
        raise _refusal(_lock_of(path), path, error) from error
    lock: Any = TailLock(path)
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except Exception as error:  # Optuna asserts what a newer one, or a damaged line, does not keep
        found = f"{path} ({type(error).__name__}: {error})"
        raise DatabaseError(
            "storage cannot be read", expected="a journal of this Optuna or an older", found=found, hint=_ELSEWHERE
        ) from error


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _open(path: Path) -> int:
    """A descriptor of a file; one that is made here may be written by all who may write in its folder.

    Not so by the group where it is another than the folder's, nor by everybody in a folder such as ``/tmp``.
    """
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:  # another worker has just made it
        return os.open(path, flags)
    with contextlib.suppress(OSError):  # of file systems without such rights
        own, folder = os.stat(path), os.stat(path.parent)
        rights = folder.st_mode & (stat.S_IWGRP if own.st_gid == folder.st_gid else 0)
        rights |= folder.st_mode & (0 if folder.st_mode & stat.S_ISVTX else stat.S_IWOTH)
        os.chmod(path, stat.S_IMODE(own.st_mode) | rights | rights << 1)  # to read as well
    return descriptor


def _refusal(file: Path, journal: Path, error: OSError) -> DatabaseError:
    """Why `file`, a journal or its lock, cannot be opened; where a right is missing, whose it is and what gives it."""
    what = f"storage cannot be opened: {error.strerror}"
    if not isinstance(error, PermissionError):
        return DatabaseError(what, found=str(file), hint=_ELSEWHERE)
    place, change = file, f"chmod g+rw {journal} {_lock_of(journal)}"
    if not os.path.exists(file):
        place, change = file.parent, f"chmod g+rwxs {file.parent}"
    try:
        owner = place.owner()
    except (KeyError, OSError, NotImplementedError):  # who has no name here; Windows
        owner = "its owner"
    hint = f"ask {owner} to run `{change}`, for a group that you are in; or {_ELSEWHERE}"
    return DatabaseError(what, found=f"{place}, which belongs to {owner}", hint=hint)


def _on_server(address: ServerAddress) -> Any:
    import optuna
    import sqlalchemy

    url, options = connecting(address, timeout=_TIMEOUT)
    try:
        with sqlalchemy.create_engine(url, **options).connect():
            pass
    except server_errors() as error:
        raise translate(error, address, "read", "connecting") from None
    options |= {"poolclass": sqlalchemy.QueuePool, "pool_size": 1, "pool_pre_ping": True}
    for attempt in range(_ATTEMPTS):
        try:
            made = optuna.storages.RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=options)
            return optuna.storages.get_storage(made)
        except (*server_errors(), optuna.exceptions.StorageInternalError) as error:
            if attempt == _ATTEMPTS - 1:
                raise translate(error, address, "written", "working") from None
            time.sleep(_PAUSE)  # another worker may be making the tables
        except RuntimeError as error:
            what = f"storage is of another version of Optuna: {error}"
            raise DatabaseError(what, found=str(address), hint="install the same on every worker") from error
    raise AssertionError("unreachable")
