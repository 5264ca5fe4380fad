"""The SQL schema of the tables, and whether a file is an akx database.

Each layout has a number; `schema_version` has a row for each that the tables had, with the oldest layout whose readers
understand it. All is plain SQL, for files and servers alike, in the transaction of a change: a process that is killed
leaves the old layout. A new table or index is noticed by processes that have the file open (:mod:`akx.plandb.store`).

    4  plans, trials
    5  timings of solvers beside them

Layout 4 is read as it is, without timings, and gets its table of them with the first change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akx.core.errors import DatabaseError
from akx.plandb.record import now

__all__ = [
    "OLDEST",
    "PLAN_COLUMNS",
    "POSTGRES",
    "SCHEMA_VERSION",
    "SQLITE",
    "TIMED",
    "TIMING_COLUMNS",
    "TRIAL_COLUMNS",
    "Dialect",
    "Inspection",
    "check_layout",
    "inspect",
    "make_tables",
]

#: Marks a SQLite file as one of ours ("akxp" in ASCII); the `file` command and every reader can tell.
APPLICATION_ID = 0x616B7870
#: The layout that this code writes, the oldest that it reads, and that from which on there are timings.
SCHEMA_VERSION, OLDEST, TIMED = 5, 4, 5

#: Columns of `plans` in their order.
PLAN_COLUMNS = (
    "id", "fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class", "revisions", "returns",
    "transpose", "ranks", "plan", "seconds", "baseline_name", "baseline_seconds", "prepare_seconds", "tuning_seconds",
    "created", "matrix_name", "provenance", "trials",
)  # fmt: skip
#: Columns of `trials` that make a :class:`akx.plandb.TrialRecord`; before them are `number`, `key_id` and `key`.
TRIAL_COLUMNS = ("plan", "seconds", "state", "reason", "created", "clock_hz", "provenance")
#: Columns of `timings` in their order.
TIMING_COLUMNS = (
    "id", "fingerprint", "dtype", "index_type", "device_class", "solver", "basis", "asked_s", "restart",
    "preconditioner", "revision", "seconds", "best_s", "plan_created", "created", "matrix_name", "provenance",
)  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """Where the SQL of a file and that of a server differ: what names of tables and indexes begin with, the types of a
    float of 64 bits and of a number that counts the rows.
    """

    prefix: str
    real: str
    serial: str


SQLITE = Dialect("", "REAL", "INTEGER PRIMARY KEY")
POSTGRES = Dialect("akx_", "DOUBLE PRECISION", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")


@dataclass(frozen=True)
class Inspection:
    """What a file is: its layout (0: empty), the oldest layout whose readers understand it, and why it is foreign."""

    version: int = 0
    oldest_reader: int = 0
    fault: str | None = None


def check_layout(found: Inspection, place: object, *, to_write: bool = False) -> None:
    """Raise :class:`DatabaseError` where tables of this layout, at `place`, cannot be read, or written to."""
    if found.version > SCHEMA_VERSION and (to_write or found.oldest_reader > SCHEMA_VERSION):
        age, hint = "a newer", "upgrade akx, or use another with --db PATH or AKX_DB"
    elif 0 < found.version < OLDEST:
        age, hint = "an older", "move it away and import its plans (akx plans import FILE), or use --db PATH or AKX_DB"
    else:
        return
    expected, what = f"layout {OLDEST} or {SCHEMA_VERSION}", f"layout {found.version} in {place}"
    raise DatabaseError(f"plan database is of {age} akx", expected=expected, found=what, hint=hint)


def inspect(connection: sqlite3.Connection) -> Inspection:
    """Say what the file behind `connection` is. Raises ``sqlite3.Error`` where it cannot be read at all.

    All of it is read in one transaction: another process may be making the tables at this moment.
    """
    if connection.in_transaction:
        return _inspect(connection)
    connection.execute("BEGIN")
    try:
        return _inspect(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _inspect(connection: sqlite3.Connection) -> Inspection:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application == 0 and not tables:
        return Inspection()
    if application != APPLICATION_ID:
        return Inspection(fault="it is a SQLite database of another application")
    if "schema_version" not in tables:
        return Inspection(fault="its schema_version table is missing")
    columns = {row[1] for row in connection.execute("PRAGMA table_info(schema_version)")}
    if not {"version", "oldest_reader"} <= columns:
        return Inspection(fault="its schema_version table is not as expected")
    row = connection.execute(
        "SELECT version, oldest_reader FROM schema_version ORDER BY version DESC LIMIT 1"
    ).fetchone()
    if row is None or not all(isinstance(value, int) and value >= 1 for value in row):
        return Inspection(fault="its schema_version table does not tell the version")
    version, oldest_reader = row
    if "plans" not in tables and version <= SCHEMA_VERSION:
        return Inspection(fault="its plans table is missing")
    return Inspection(version, oldest_reader)


def make_tables(connection: Any, version: int = 0, dialect: Dialect = SQLITE) -> None:
    """Make the tables, or bring those of layout `version` to the present one, in the caller's transaction."""
    prefix = dialect.prefix
    if version == 0:
        if dialect is SQLITE:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        layouts = {"version": "INTEGER PRIMARY KEY", "oldest_reader": "INTEGER NOT NULL", "applied": "TEXT NOT NULL"}
        _make(connection, f"{prefix}schema_version", layouts)
        kinds = dict.fromkeys(("k", "start_vectors", "transpose", "ranks"), "INTEGER")
        kinds |= {name: dialect.real for name in PLAN_COLUMNS if name.endswith("seconds")}
        _make(connection, f"{prefix}plans", _typed(PLAN_COLUMNS, kinds), "fingerprint")
        trials = {"number": dialect.serial} | _typed(("key_id", "key", *TRIAL_COLUMNS), {})
        trials |= {"clock_hz": dialect.real, "provenance": "TEXT"}
        _make(connection, f"{prefix}trials", trials, "key_id")
    kinds = dict.fromkeys(("asked_s", "restart", "revision", "best_s"), "BIGINT")
    _make(connection, f"{prefix}timings", _typed(TIMING_COLUMNS, kinds), "fingerprint")
    row = {"version": SCHEMA_VERSION, "oldest": OLDEST, "now": now()}
    connection.execute(f"INSERT INTO {prefix}schema_version VALUES (:version, :oldest, :now)", row)


def _typed(columns: tuple[str, ...], kinds: Mapping[str, str]) -> dict[str, str]:
    """The type of each column, text where none is told; an `id` is the key."""
    return {name: "TEXT PRIMARY KEY" if name == "id" else f"{kinds.get(name, 'TEXT')} NOT NULL" for name in columns}


def _make(connection: Any, table: str, columns: Mapping[str, str], indexed: str = "") -> None:
    connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())})")
    if indexed:
        connection.execute(f"CREATE INDEX {table}_by_{indexed} ON {table} ({indexed})")
