"""The layout of the database and the way to it from every older layout.

Each layout has a number; `schema_version` has one row for each migration applied, with the oldest layout whose readers
can still read the result. A new file is made by applying all migrations to an empty one, so the way an old file takes
is the way every file takes. All of it happens in one immediate transaction: a process killed in between leaves the old
layout. A migration uses plain SQL and JSON only, never the classes of today. It makes, alters or drops a table or an
index, by which processes that have the file open notice it (:mod:`akx.plandb.store`).

    1  plans(id, fingerprint, record)                      record: JSON
    2  plans with a column per field; trials; plans that could not be carried over are kept in `rejected`
    3  trials with the clock of the processor
    4  plans under the revisions of their schedules and variants; trials under the keys of their searches, with what
       they were made with; of several plans that have one key now the newest, the others in `rejected`
    5  timings, of steps of solvers, which were marks on plans and trials of plans before
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from akx.core.errors import DatabaseError
from akx.plandb.legacy import marked_timings, modern_plan, modern_trial, newest_timings, unmarked, untried_timings
from akx.plandb.record import now

__all__ = [
    "APPLICATION_ID",
    "OLDEST_ALIKE",
    "OLD_PLAN_COLUMNS",
    "PLAN_COLUMNS",
    "REVISED",
    "SCHEMA_VERSION",
    "TIMED",
    "TIMING_COLUMNS",
    "TIMING_TABLE",
    "Inspection",
    "inspect",
    "migrate",
    "move_timings",
    "newer",
    "revised_plans",
]

#: Marks a SQLite file as one of ours ("akxp" in ASCII); the `file` command and every reader can tell.
APPLICATION_ID = 0x616B7870

#: The layout that this code writes.
SCHEMA_VERSION = 5

#: The layout from which on it is read as it is.
OLDEST_ALIKE = 2

#: The layout in which revisions came: the tables of those before have :data:`OLD_PLAN_COLUMNS`.
REVISED = 4

#: The layout in which timings of solvers got a table of their own.
TIMED = 5

_SHARED_COLUMNS = ("fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class")
_OLD_KEY_COLUMNS = (*_SHARED_COLUMNS, "kernel_hash", "versions")
_KEY_COLUMNS = (*_SHARED_COLUMNS, "revisions", "returns", "transpose", "ranks")
_FIGURE_COLUMNS = (
    "plan", "seconds", "baseline_name", "baseline_seconds", "prepare_seconds", "tuning_seconds", "created",
    "matrix_name", "provenance", "trials",
)  # fmt: skip

#: Columns of `plans` in their order.
PLAN_COLUMNS = ("id", *_KEY_COLUMNS, *_FIGURE_COLUMNS)
OLD_PLAN_COLUMNS = ("id", *_OLD_KEY_COLUMNS, *_FIGURE_COLUMNS)

#: Columns of `timings` in their order.
TIMING_COLUMNS = (
    "id", "fingerprint", "dtype", "index_type", "device_class", "solver", "basis", "asked_s", "restart",
    "preconditioner", "revision", "seconds", "best_s", "plan_created", "created", "matrix_name", "provenance",
)  # fmt: skip
#: The same for the statement that makes the table.
TIMING_TABLE = "id TEXT PRIMARY KEY, " + ", ".join(
    f"{name} {'BIGINT' if name in ('asked_s', 'restart', 'revision', 'best_s') else 'TEXT'} NOT NULL"
    for name in TIMING_COLUMNS[1:]
)


@dataclass(frozen=True)
class Inspection:
    """What a file is.

    Attributes
    ----------
    version : int
        Its layout; 0 where it is an empty database.
    oldest_reader : int
        The oldest layout whose readers understand it.
    fault : str or None
        Why it is none of ours; None where it is.
    """

    version: int = 0
    oldest_reader: int = 0
    fault: str | None = None


def newer(inspection: Inspection, place: object) -> DatabaseError:
    """What is said of a database whose layout is one of a later akx."""
    return DatabaseError(
        "plan database is of a newer akx",
        expected=f"layout {SCHEMA_VERSION} or older",
        found=f"layout {inspection.version} in {place}",
        hint="upgrade akx, or use another with --db PATH or AKX_DB",
    )


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


def migrate(connection: sqlite3.Connection, version: int, target: int = SCHEMA_VERSION) -> None:
    """Bring the layout from `version` (0: empty) to `target`, inside a transaction that the caller opened."""
    for number in range(version + 1, target + 1):
        step, oldest_reader = _MIGRATIONS[number]
        step(connection)
        connection.execute("INSERT INTO schema_version VALUES (?, ?, ?)", (number, oldest_reader, now()))


def _to_1(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(
        "CREATE TABLE schema_version"
        " (version INTEGER PRIMARY KEY, oldest_reader INTEGER NOT NULL, applied TEXT NOT NULL)"
    )
    connection.execute("CREATE TABLE plans (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, record TEXT NOT NULL)")
    connection.execute("CREATE INDEX plans_by_fingerprint ON plans (fingerprint)")


def _to_2(connection: sqlite3.Connection) -> None:
    connection.execute("DROP INDEX plans_by_fingerprint")
    connection.execute("ALTER TABLE plans RENAME TO plans_1")
    _make_plans(connection, OLD_PLAN_COLUMNS)
    connection.execute("CREATE INDEX plans_by_fingerprint ON plans (fingerprint)")
    connection.execute(
        "CREATE TABLE trials (number INTEGER PRIMARY KEY, key_id TEXT NOT NULL, key TEXT NOT NULL, plan TEXT NOT NULL,"
        " seconds TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, created TEXT NOT NULL)"
    )
    connection.execute("CREATE INDEX trials_by_key ON trials (key_id)")
    connection.execute("CREATE TABLE rejected (id TEXT PRIMARY KEY, record TEXT NOT NULL, reason TEXT NOT NULL)")
    marks = ", ".join("?" * len(OLD_PLAN_COLUMNS))
    for identifier, text in connection.execute("SELECT id, record FROM plans_1").fetchall():
        try:
            record = json.loads(text)
            values = [record["key"][name] for name in _OLD_KEY_COLUMNS]
            for name in _FIGURE_COLUMNS:
                value = record[name]
                values.append(json.dumps(value) if name in ("plan", "provenance", "trials") else value)
            connection.execute(f"INSERT INTO plans VALUES ({marks})", (identifier, *values))
        except (
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            sqlite3.InterfaceError,
            sqlite3.ProgrammingError,
            sqlite3.IntegrityError,
        ) as error:
            reason = f"{type(error).__name__}: {error}"
            connection.execute("INSERT INTO rejected VALUES (?, ?, ?)", (identifier, str(text), reason))
    connection.execute("DROP TABLE plans_1")


def _to_3(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN clock_hz REAL")


def _to_4(connection: sqlite3.Connection) -> None:
    connection.execute("DROP INDEX plans_by_fingerprint")
    connection.execute("ALTER TABLE plans RENAME TO plans_3")
    _make_plans(connection, PLAN_COLUMNS)
    connection.execute("CREATE INDEX plans_by_fingerprint ON plans (fingerprint)")
    rows = connection.execute(f"SELECT {', '.join(OLD_PLAN_COLUMNS)} FROM plans_3 ORDER BY rowid").fetchall()
    kept, others = revised_plans(rows)
    connection.executemany(f"INSERT INTO plans VALUES ({', '.join('?' * len(PLAN_COLUMNS))})", kept)
    connection.executemany("INSERT OR IGNORE INTO rejected VALUES (?, ?, ?)", others)
    connection.execute("DROP TABLE plans_3")
    connection.execute("ALTER TABLE trials ADD COLUMN provenance TEXT")
    trials = connection.execute("SELECT number, key_id, key, plan FROM trials").fetchall()
    changes = [(*new, number) for number, *old in trials if (new := modern_trial(*old)) is not None]
    connection.executemany("UPDATE trials SET key_id = ?, key = ?, provenance = ? WHERE number = ?", changes)


def _to_5(connection: sqlite3.Connection) -> None:
    connection.execute(f"CREATE TABLE timings ({TIMING_TABLE})")
    connection.execute("CREATE INDEX timings_by_fingerprint ON timings (fingerprint)")
    move_timings(connection)


def move_timings(connection: Any, prefix: str = "") -> None:
    """Make timings of what stood for them in the tables of layout 4, in a file or on a server."""
    marked = {"marks": '%"solvers"%'}
    statement = f"SELECT {', '.join(PLAN_COLUMNS)} FROM {prefix}plans WHERE provenance LIKE :marks"
    plans = [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in connection.execute(statement, marked).fetchall()]
    columns = "number, key_id, key, plan, seconds, state, reason, created, clock_hz, provenance"
    statement = f"SELECT {columns} FROM {prefix}trials WHERE key LIKE :sisters ORDER BY number"
    trials = connection.execute(statement, {"sisters": "% or ca_%"}).fetchall()
    numbers, timings = untried_timings(map(tuple, trials))
    timings += [timing for row in plans for timing in marked_timings(row)]
    changed = [{"id": row["id"], "new": unmarked(row["provenance"])} for row in plans]
    listed, marks = ", ".join(TIMING_COLUMNS), ", ".join(f":{name}" for name in TIMING_COLUMNS)
    for statement, rows in (
        (f"INSERT INTO {prefix}timings ({listed}) VALUES ({marks})", newest_timings(timings)),
        (f"UPDATE {prefix}plans SET provenance = :new WHERE id = :id", changed),
        (f"DELETE FROM {prefix}trials WHERE number = :number", [{"number": number} for number in numbers]),
    ):
        if rows:
            connection.executemany(statement, rows)


def _make_plans(connection: sqlite3.Connection, columns: tuple[str, ...]) -> None:
    numbers = ("k", "start_vectors", "transpose", "ranks")
    kinds = dict.fromkeys(numbers, "INTEGER") | {n: "REAL" for n in _FIGURE_COLUMNS if n.endswith("seconds")}
    listed = ", ".join(f"{name} {kinds.get(name, 'TEXT')} NOT NULL" for name in columns[1:])
    connection.execute(f"CREATE TABLE plans (id TEXT PRIMARY KEY, {listed})")


def revised_plans(rows: Iterable[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[tuple[str, str, str]]]:
    """Rows of plans of layout 3 as those of layout 4; and, for `rejected`, those whose key a newer plan has."""
    kept: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
    others = []
    when = OLD_PLAN_COLUMNS.index("created")
    for old in sorted(rows, key=lambda row: str(row[when])):
        new = modern_plan(tuple(old))
        if new[0] in kept:
            there = kept[new[0]][0]
            record = json.dumps(dict(zip(OLD_PLAN_COLUMNS, there, strict=True)))
            others.append((str(there[0]), record, "a newer plan has its key"))
        kept[new[0]] = tuple(old), new
    return [new for _, new in kept.values()], others


#: number of the layout -> (step from the one before, oldest layout whose readers understand the result)
_MIGRATIONS: dict[int, tuple[Callable[[sqlite3.Connection], None], int]] = {
    1: (_to_1, 1),
    2: (_to_2, 2),
    3: (_to_3, 2),
    4: (_to_4, 4),
    5: (_to_5, 4),
}
