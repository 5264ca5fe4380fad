"""The layout of the tables, the way to it from every older layout, and old tables read through a copy.

Each layout has a number; `schema_version` has one row for each migration applied, with the oldest layout whose readers
can still read the result. New tables are made by all migrations, so the way an old file takes is the way every file
takes, and every server's tables. All of it happens in one transaction: a process killed in between leaves the old
layout. A migration uses plain SQL and JSON only, never the classes of today. It makes, alters or drops a table or an
index, by which processes that have the file open notice it (:mod:`akx.plandb.store`).

    1  plans(id, fingerprint, record)                      record: JSON
    2  plans with a column per field; trials; plans that could not be carried over are kept in `rejected`
    3  trials with the clock of the processor
    4  plans under the revisions of their schedules and variants; trials under the keys of their searches, with what
       they were made with; of several plans that have one key now the newest, the others in `rejected`
    5  timings, of steps of solvers, which were marks on plans and trials of plans before

Who only reads tables of an old layout reads a copy in memory that is brought to the present one (:func:`modern_copy`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akx.core.errors import DatabaseError
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.legacy import marked_timings, modern_plan, modern_trial, newest_timings, unmarked, untried_timings
from akx.plandb.record import now

__all__ = [
    "APPLICATION_ID",
    "OLD_PLAN_COLUMNS",
    "PLAN_COLUMNS",
    "POSTGRES",
    "REVISED",
    "SCHEMA_VERSION",
    "SQLITE",
    "TIMED",
    "TIMING_COLUMNS",
    "TRIAL_COLUMNS",
    "Dialect",
    "Inspection",
    "insert",
    "inspect",
    "migrate",
    "modern_copy",
    "newer",
]

#: Marks a SQLite file as one of ours ("akxp" in ASCII); the `file` command and every reader can tell.
APPLICATION_ID = 0x616B7870

#: The layout that this code writes, that from which on plans are under revisions, and that with `timings`.
SCHEMA_VERSION, REVISED, TIMED = 5, 4, 5

_SHARED_COLUMNS = ("fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class")
_OLD_KEY_COLUMNS = (*_SHARED_COLUMNS, "kernel_hash", "versions")
_KEY_COLUMNS = (*_SHARED_COLUMNS, "revisions", "returns", "transpose", "ranks")
_FIGURE_COLUMNS = (
    "plan", "seconds", "baseline_name", "baseline_seconds", "prepare_seconds", "tuning_seconds", "created",
    "matrix_name", "provenance", "trials",
)  # fmt: skip

#: Columns of `plans` in their order, and those of the layouts 2 and 3.
PLAN_COLUMNS = ("id", *_KEY_COLUMNS, *_FIGURE_COLUMNS)
OLD_PLAN_COLUMNS = ("id", *_OLD_KEY_COLUMNS, *_FIGURE_COLUMNS)

#: Columns of `trials` that make a :class:`akx.plandb.TrialRecord`; before them are `number`, `key_id` and `key`.
TRIAL_COLUMNS = ("plan", "seconds", "state", "reason", "created", "clock_hz", "provenance")

#: Columns of `timings` in their order.
TIMING_COLUMNS = (
    "id", "fingerprint", "dtype", "index_type", "device_class", "solver", "basis", "asked_s", "restart",
    "preconditioner", "revision", "seconds", "best_s", "plan_created", "created", "matrix_name", "provenance",
)  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """Where the SQL of a file and that of a server differ.

    Attributes
    ----------
    prefix : str
        What the names of tables and indexes begin with.
    real, serial : str
        The types of a float of 64 bits, and of a number that counts the rows.
    """

    prefix: str
    real: str
    serial: str


SQLITE = Dialect("", "REAL", "INTEGER PRIMARY KEY")
POSTGRES = Dialect("akx_", "DOUBLE PRECISION", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")


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


def migrate(connection: Any, version: int, target: int = SCHEMA_VERSION, dialect: Dialect = SQLITE) -> None:
    """Bring the layout from `version` (0: empty) to `target`, inside a transaction that the caller opened."""
    for number in range(version + 1, target + 1):
        step, oldest = _MIGRATIONS[number]
        step(connection, dialect)
        row = {"version": number, "oldest_reader": oldest, "applied": now()}
        insert(connection, f"{dialect.prefix}schema_version", [row])


def insert(connection: Any, table: str, rows: Sequence[Mapping[str, Any]], more: str = "") -> None:
    """Insert rows, each its values by the names of the columns, all the same; `more` ends the statement."""
    if rows:
        names, marks = ", ".join(rows[0]), ", ".join(f":{name}" for name in rows[0])
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks}) {more}", rows)


def modern_copy(
    layout: int, read: Callable[[str, Sequence[str]], Iterable[Sequence[Any]]], target: int = SCHEMA_VERSION
) -> sqlite3.Connection:
    """A database in memory with the rows of tables of an old layout, brought to the present one.

    `read` gives the rows of the table of this name, with these columns. Those that no table takes are left out, and a
    :class:`PlanDatabaseWarning` says how many.
    """
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    memory.execute("BEGIN")
    migrate(memory, 0, layout)
    left_out = 0
    for table in ("plans", "trials", "timings"):
        columns = [row[1] for row in memory.execute(f"PRAGMA table_info({table})")]
        statement = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(columns))})"
        for row in read(table, columns) if columns else ():
            left_out += 1
            with contextlib.suppress(UnicodeEncodeError, OverflowError):
                left_out -= memory.execute(statement, tuple(row)).rowcount
    if left_out:
        text = f"{left_out} damaged rows of a plan database of layout {layout} are left out"
        warnings.warn(text, PlanDatabaseWarning, stacklevel=2)
    migrate(memory, layout, target)
    memory.execute("COMMIT")
    return memory


def _to_1(connection: Any, dialect: Dialect) -> None:
    prefix = dialect.prefix
    if dialect is SQLITE:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(
        f"CREATE TABLE {prefix}schema_version"
        " (version INTEGER PRIMARY KEY, oldest_reader INTEGER NOT NULL, applied TEXT NOT NULL)"
    )
    connection.execute(
        f"CREATE TABLE {prefix}plans (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, record TEXT NOT NULL)"
    )
    _index(connection, prefix, "plans", "fingerprint")


def _to_2(connection: Any, dialect: Dialect) -> None:
    prefix = dialect.prefix
    connection.execute(f"DROP INDEX {prefix}plans_by_fingerprint")
    connection.execute(f"ALTER TABLE {prefix}plans RENAME TO {prefix}plans_1")
    _make_plans(connection, dialect, OLD_PLAN_COLUMNS)
    connection.execute(
        f"CREATE TABLE {prefix}trials (number {dialect.serial}, key_id TEXT NOT NULL, key TEXT NOT NULL,"
        " plan TEXT NOT NULL, seconds TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, created TEXT NOT NULL)"
    )
    _index(connection, prefix, "trials", "key_id", "key")
    _make_rejected(connection, prefix)
    for identifier, text in connection.execute(f"SELECT id, record FROM {prefix}plans_1").fetchall():
        try:
            record = json.loads(text)
            values = {"id": identifier} | {name: record["key"][name] for name in _OLD_KEY_COLUMNS}
            for name in _FIGURE_COLUMNS:
                value = record[name]
                values[name] = json.dumps(value) if name in ("plan", "provenance", "trials") else value
            insert(connection, f"{prefix}plans", [values])
        except (
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            sqlite3.InterfaceError,
            sqlite3.ProgrammingError,
            sqlite3.IntegrityError,
        ) as error:
            row = {"id": identifier, "record": str(text), "reason": f"{type(error).__name__}: {error}"}
            insert(connection, f"{prefix}rejected", [row])
    connection.execute(f"DROP TABLE {prefix}plans_1")


def _to_3(connection: Any, dialect: Dialect) -> None:
    connection.execute(f"ALTER TABLE {dialect.prefix}trials ADD COLUMN clock_hz {dialect.real}")


def _to_4(connection: Any, dialect: Dialect) -> None:
    prefix = dialect.prefix
    rows = connection.execute(f"SELECT {', '.join(OLD_PLAN_COLUMNS)} FROM {prefix}plans").fetchall()
    kept, others = _revised_plans(rows)
    if dialect is SQLITE:
        connection.execute("DROP TABLE plans")
        _make_plans(connection, dialect, PLAN_COLUMNS)
    else:  # a table that takes the place of another has not its rights
        connection.execute(f"DELETE FROM {prefix}plans")
        new = ("revisions TEXT", "returns TEXT", "transpose INTEGER", "ranks INTEGER")
        changes = [f"ADD COLUMN {column} NOT NULL" for column in new] + [
            "DROP COLUMN kernel_hash",
            "DROP COLUMN versions",
        ]
        connection.execute(f"ALTER TABLE {prefix}plans {', '.join(changes)}")
    insert(connection, f"{prefix}plans", kept)
    _make_rejected(connection, prefix)
    insert(connection, f"{prefix}rejected", others, "ON CONFLICT (id) DO NOTHING")
    connection.execute(f"ALTER TABLE {prefix}trials ADD COLUMN provenance TEXT")
    trials = connection.execute(f"SELECT number, key_id, key, plan FROM {prefix}trials").fetchall()
    names = ("key_id", "key", "provenance", "number")
    changed = [(*row, number) for number, *old in trials if (row := modern_trial(*old)) is not None]
    if changed:
        statement = f"UPDATE {prefix}trials SET key_id = :key_id, key = :key, provenance = :provenance"
        given = [dict(zip(names, row, strict=True)) for row in changed]
        connection.executemany(f"{statement} WHERE number = :number", given)


def _to_5(connection: Any, dialect: Dialect) -> None:
    prefix = dialect.prefix
    numbers = ("asked_s", "restart", "revision", "best_s")
    columns = (f"{name} {'BIGINT' if name in numbers else 'TEXT'} NOT NULL" for name in TIMING_COLUMNS[1:])
    connection.execute(f"CREATE TABLE {prefix}timings (id TEXT PRIMARY KEY, {', '.join(columns)})")
    _index(connection, prefix, "timings", "fingerprint")
    _move_timings(connection, prefix)
    if dialect is POSTGRES:
        _give_rights(connection, f"{prefix}timings", f"{prefix}trials")


def _move_timings(connection: Any, prefix: str) -> None:
    """Make timings of what stood for them in the tables of layout 4."""
    marked = {"marks": '%"solvers"%'}
    statement = f"SELECT {', '.join(PLAN_COLUMNS)} FROM {prefix}plans WHERE provenance LIKE :marks"
    plans = [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in connection.execute(statement, marked).fetchall()]
    statement = f"SELECT number, key_id, key, {', '.join(TRIAL_COLUMNS)} FROM {prefix}trials WHERE key LIKE :sisters"
    trials = connection.execute(f"{statement} ORDER BY number", {"sisters": "% or ca_%"}).fetchall()
    numbers, timings = untried_timings(map(tuple, trials))
    timings += [timing for row in plans for timing in marked_timings(row)]
    insert(connection, f"{prefix}timings", newest_timings(timings))
    changed = [{"id": row["id"], "new": unmarked(row["provenance"])} for row in plans]
    if changed:
        connection.executemany(f"UPDATE {prefix}plans SET provenance = :new WHERE id = :id", changed)
    if numbers:
        gone = [{"number": number} for number in numbers]
        connection.executemany(f"DELETE FROM {prefix}trials WHERE number = :number", gone)


def _give_rights(connection: Any, table: str, other: str) -> None:
    """To those who have rights on the other table of a server, the same on a new one."""
    rights = connection.execute(
        "SELECT coalesce(quote_ident(pg_get_userbyid(nullif(given.grantee, 0))), 'PUBLIC'), given.privilege_type,"
        " given.is_grantable FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) AS given"
        f" WHERE pg_class.oid = '{other}'::regclass"
    ).fetchall()
    for who, right, is_grantable in rights:
        connection.execute(f"GRANT {right} ON {table} TO {who}{' WITH GRANT OPTION' if is_grantable else ''}")


def _index(connection: Any, prefix: str, table: str, column: str, name: str = "") -> None:
    connection.execute(f"CREATE INDEX {prefix}{table}_by_{name or column} ON {prefix}{table} ({column})")


def _make_plans(connection: Any, dialect: Dialect, columns: tuple[str, ...]) -> None:
    numbers = ("k", "start_vectors", "transpose", "ranks")
    kinds = dict.fromkeys(numbers, "INTEGER") | {n: dialect.real for n in _FIGURE_COLUMNS if n.endswith("seconds")}
    listed = ", ".join(f"{name} {kinds.get(name, 'TEXT')} NOT NULL" for name in columns[1:])
    connection.execute(f"CREATE TABLE {dialect.prefix}plans (id TEXT PRIMARY KEY, {listed})")
    _index(connection, dialect.prefix, "plans", "fingerprint")


def _make_rejected(connection: Any, prefix: str) -> None:
    columns = "id TEXT PRIMARY KEY, record TEXT NOT NULL, reason TEXT NOT NULL"
    connection.execute(f"CREATE TABLE IF NOT EXISTS {prefix}rejected ({columns})")


def _revised_plans(rows: Iterable[Sequence[Any]]) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Rows of plans of layout 3 as those of layout 4; and, for `rejected`, those whose key a newer plan has."""
    kept: dict[str, tuple[Any, ...]] = {}
    others, new = [], {}
    when = OLD_PLAN_COLUMNS.index("created")
    for old in sorted(map(tuple, rows), key=lambda row: str(row[when])):
        row = modern_plan(old)
        if there := kept.get(row[0]):
            record = json.dumps(dict(zip(OLD_PLAN_COLUMNS, there, strict=True)))
            others.append({"id": str(there[0]), "record": record, "reason": "a newer plan has its key"})
        kept[row[0]], new[row[0]] = old, dict(zip(PLAN_COLUMNS, row, strict=True))
    return list(new.values()), others


#: number of the layout -> (step from the one before, oldest layout whose readers understand the result)
_MIGRATIONS: dict[int, tuple[Callable[[Any, Dialect], None], int]] = {
    1: (_to_1, 1),
    2: (_to_2, 2),
    3: (_to_3, 2),
    4: (_to_4, 4),
    5: (_to_5, 4),
}
