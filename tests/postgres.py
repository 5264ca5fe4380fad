"""A PostgreSQL server of the tests' own: on a Unix socket in a temporary directory, without fsync, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["PostgresServer", "missing_for_postgres"]

_USERS = ("postgres", "nobody")


def _program(name: str) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[4])
    return str(versions[-1]) if versions else shutil.which(name)


def missing_for_postgres() -> str | None:
    """Why there can be no server here, or None."""
    lacking = [name for name in ("initdb", "postgres") if _program(name) is None]
    if lacking:
        return f"no PostgreSQL server: {' and '.join(lacking)} not found (Debian: apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no driver for PostgreSQL: pip install 'akx[postgres]'"
    return None


class PostgresServer:
    """A server with the superuser ``akx``, whom it trusts, and ``guest``, who needs the password ``se/cret``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="akx-pg-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # which the server refuses
            import pwd

            user = next(name for name in _USERS if name in {entry.pw_name for entry in pwd.getpwall()})
            entry = pwd.getpwnam(user)
            self._as = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        initdb = _program("initdb")
        assert initdb is not None
        options = ["-U", "akx", "-A", "trust", "-N", "--no-locale", "-E", "UTF8"]
        made = subprocess.run(
            [initdb, "-D", str(self.folder / "data"), *options], cwd="/", capture_output=True, text=True, **self._as
        )
        assert made.returncode == 0, made.stderr
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("local all guest scram-sha-256\nlocal all all trust\n")
        self.start()
        self.sql("CREATE ROLE guest LOGIN PASSWORD 'se/cret'")

    def url(self, database: str, login: str = "akx") -> str:
        """The URL of a database for a login, as ``user`` or ``user:password``."""
        return f"postgresql://{login}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Make a database; returns its name."""
        self._made += 1
        name = f"t{self._made}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it and wait until it answers; after :meth:`kill` that takes a recovery."""
        import psycopg

        program, end = _program("postgres"), time.monotonic() + 60
        assert program is not None
        settings = ("listen_addresses=", "fsync=off", "shared_buffers=16MB", f"unix_socket_directories={self.folder}")
        command = [program, "-D", str(self.folder / "data"), *(part for one in settings for part in ("-c", one))]
        with (self.folder / "log").open("ab") as log:
            while True:
                if self._process is None or self._process.poll() is not None:
                    self._process = subprocess.Popen(command, cwd="/", stdout=log, stderr=log, **self._as)
                try:
                    psycopg.connect(self.url("postgres")).close()
                    return
                except psycopg.OperationalError:
                    if time.monotonic() > end:
                        raise AssertionError((self.folder / "log").read_text()[-2000:]) from None
                    time.sleep(0.02)

    def kill(self) -> None:
        """``kill -9``: what is not on disk is lost, and the next start recovers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it and remove everything."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
