"""Tables on a PostgreSQL server that many machines share: the rules of the file, kept by the server.

Tables are ``akx_plans``, ``akx_trials``, ``akx_timings``, ``akx_schema_version`` and ``akx_changes``, in the first
schema of the search path, so that they may lie beside Optuna's. They are made by the first change, in one transaction.

Every change is one transaction and holds a lock of the database while it lasts, so that changes come one after another
as they do in a file, and of two processes that import for one key the better plan stays. A client killed at any moment
leaves the last committed state. Every transaction looks at the layout first: another akx may have changed it since.

A number that each change raises tells others that plans have changed; it is asked for every ten seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from akx.core.errors import DatabaseError, MissingDependencyError
from akx.core.fork_safety import ForkSafeLock
from akx.plandb.legacy import modern_trial
from akx.plandb.migrate import (
    OLD_PLAN_COLUMNS,
    PLAN_COLUMNS,
    SCHEMA_VERSION,
    TIMING_TABLE,
    Inspection,
    move_timings,
    newer,
    revised_plans,
)
from akx.plandb.place import ServerAddress
from akx.plandb.record import now
from akx.plandb.server import ServerConnection, make_engine, may_pass, server_errors, translate

__all__ = ["ServerStore"]

_T = TypeVar("_T")
_PREFIX = "akx_"
#: The lock that changes take: "akxp" in ASCII.
_LOCK = 0x616B7870
_PAUSE = 0.1
#: Seconds for which the number of changes is believed, and for which a server that did not answer is left alone.
_BELIEVED = 10.0
#: Seconds that a lookup gives the server to say how many changes there were.
_PATIENCE = 1.0

_DOUBLE = "DOUBLE PRECISION"
_KINDS = {"k": "INTEGER", "start_vectors": "INTEGER"} | {
    name: _DOUBLE for name in OLD_PLAN_COLUMNS if name.endswith("seconds")
}
#: The layout with which the history of servers begins, and the statements that make it.
_FIRST = 2
_LAYOUT = (
    f"CREATE TABLE {_PREFIX}schema_version"
    " (version INTEGER PRIMARY KEY, oldest_reader INTEGER NOT NULL, applied TEXT NOT NULL)",
    f"CREATE TABLE {_PREFIX}plans (id TEXT PRIMARY KEY, "
    + ", ".join(f"{name} {_KINDS.get(name, 'TEXT')} NOT NULL" for name in OLD_PLAN_COLUMNS[1:])
    + ")",
    f"CREATE INDEX {_PREFIX}plans_by_fingerprint ON {_PREFIX}plans (fingerprint)",
    f"CREATE TABLE {_PREFIX}trials (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key_id TEXT NOT NULL,"
    " key TEXT NOT NULL, plan TEXT NOT NULL, seconds TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,"
    " created TEXT NOT NULL)",
    f"CREATE INDEX {_PREFIX}trials_by_key ON {_PREFIX}trials (key_id)",
    f"CREATE TABLE {_PREFIX}changes (number BIGINT NOT NULL)",
    f"INSERT INTO {_PREFIX}changes VALUES (1)",
)


def _to_3(connection: ServerConnection) -> None:
    connection.execute(f"ALTER TABLE {_PREFIX}trials ADD COLUMN clock_hz {_DOUBLE}")


def _to_4(connection: ServerConnection) -> None:
    """Columns are added and dropped: a table that takes the place of another has not its rights."""
    rows = connection.execute(f"SELECT {', '.join(OLD_PLAN_COLUMNS)} FROM {_PREFIX}plans").fetchall()
    kept, others = revised_plans(rows)
    connection.execute(f"DELETE FROM {_PREFIX}plans")
    columns = ("revisions TEXT", "returns TEXT", "transpose INTEGER", "ranks INTEGER")
    changes = [f"ADD COLUMN {column} NOT NULL" for column in columns] + [
        "DROP COLUMN kernel_hash",
        "DROP COLUMN versions",
    ]
    connection.execute(f"ALTER TABLE {_PREFIX}plans {', '.join(changes)}")
    _insert(connection, "plans", PLAN_COLUMNS, kept)
    connection.execute(
        f"CREATE TABLE {_PREFIX}rejected (id TEXT PRIMARY KEY, record TEXT NOT NULL, reason TEXT NOT NULL)"
    )
    _insert(connection, "rejected", ("id", "record", "reason"), others)
    connection.execute(f"ALTER TABLE {_PREFIX}trials ADD COLUMN provenance TEXT")
    trials = connection.execute(f"SELECT number, key_id, key, plan FROM {_PREFIX}trials").fetchall()
    names = ("key_id", "key", "provenance", "number")
    revised = [(*current, number) for number, *old in trials if (current := modern_trial(*old)) is not None]
    if revised:
        statement = f"UPDATE {_PREFIX}trials SET key_id = :key_id, key = :key, provenance = :provenance"
        changed = [dict(zip(names, row, strict=True)) for row in revised]
        connection.executemany(f"{statement} WHERE number = :number", changed)


def _to_5(connection: ServerConnection) -> None:
    connection.execute(f"CREATE TABLE {_PREFIX}timings ({TIMING_TABLE})")
    connection.execute(f"CREATE INDEX {_PREFIX}timings_by_fingerprint ON {_PREFIX}timings (fingerprint)")
    move_timings(connection, _PREFIX)
    _give_rights(connection, "timings", "trials")


def _give_rights(connection: ServerConnection, table: str, other: str) -> None:
    """To those who have them on the other table, the same on a new one."""
    rights = connection.execute(
        "SELECT coalesce(quote_ident(pg_get_userbyid(nullif(given.grantee, 0))), 'PUBLIC'), given.privilege_type,"
        " given.is_grantable FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) AS given"
        f" WHERE pg_class.oid = '{_PREFIX}{other}'::regclass"
    ).fetchall()
    for who, right, is_grantable in rights:
        more = " WITH GRANT OPTION" if is_grantable else ""
        connection.execute(f"GRANT {right} ON {_PREFIX}{table} TO {who}{more}")


def _insert(connection: ServerConnection, table: str, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        marks = ", ".join(f":{name}" for name in names)
        statement = f"INSERT INTO {_PREFIX}{table} ({', '.join(names)}) VALUES ({marks})"
        connection.executemany(statement, [dict(zip(names, row, strict=True)) for row in rows])


#: number of a layout -> (the step from the one before, oldest layout whose readers understand it)
_STEPS: dict[int, tuple[Callable[[ServerConnection], None], int]] = {
    3: (_to_3, 2),
    4: (_to_4, 4),
    5: (_to_5, 4),
}


class ServerStore:
    """The tables at `address`; see the module for the rules.

    Parameters
    ----------
    address : ServerAddress
        Where they are.
    timeout : float
        Seconds to wait for another process's lock, and for a server that is starting.
    """

    prefix = _PREFIX

    def __init__(self, address: ServerAddress, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self._engines: dict[float, Any] = {}
        self._changes: tuple[int, ...] = ()
        self._asked = -_BELIEVED
        self._failure: DatabaseError | None = None
        self._failed = -_BELIEVED
        self._guard = ForkSafeLock()

    def close(self) -> None:
        """Nothing is open between transactions."""

    def read(self, action: Callable[[ServerConnection, int], _T], patience: float | None = None) -> _T | None:
        """`action` on the tables and their layout, or None where there are none yet.

        With `patience`, in seconds, a server that could not be reached a moment ago is not asked again.

        Raises
        ------
        DatabaseError
            Where the server cannot be reached, refuses, or has the tables of a newer akx.
        MissingDependencyError
            Where the driver is not installed.
        """
        if patience is not None and self._failure is not None and time.monotonic() - self._failed < _BELIEVED:
            raise self._failure.with_traceback(None)

        def attempt(connection: ServerConnection) -> _T | None:
            inspection = self._inspect(connection)
            if inspection.version > SCHEMA_VERSION and inspection.oldest_reader > SCHEMA_VERSION:
                raise newer(inspection, self.address)
            return action(connection, inspection.version) if inspection.version else None

        limit = self.timeout if patience is None else patience
        try:
            found = self._transaction(attempt, limit, "read")
        except DatabaseError as error:
            self._failure, self._failed = error, time.monotonic()
            raise
        self._failure = None
        return found

    def write(self, action: Callable[[ServerConnection, int], _T], *, patience: float | None = None) -> _T:
        """`action` on the tables and their layout in one transaction, alone. Raises as :meth:`read` does.

        Then nothing has changed, or, where the connection was lost as the change was committed, the error says that it
        may have. Before that it is made again: `action` must be one that may be done twice.

        `patience`: seconds to wait for another process, or for the server, `timeout` by default. A server that cannot
        be reached is waited for, since it may be starting anew.
        """

        def attempt(connection: ServerConnection) -> _T:
            connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            inspection = self._inspect(connection)
            if inspection.version > SCHEMA_VERSION:
                raise newer(inspection, self.address)
            result = action(connection, self._brought_up(connection, inspection.version))
            connection.execute(f"UPDATE {_PREFIX}changes SET number = number + 1")
            return result

        limit = self.timeout if patience is None else patience
        return self._transaction(attempt, limit, "written")

    def describe(self) -> tuple[Inspection, str]:
        """The layout of the tables, 0 where there are none, and what the server is. Raises as reading does."""

        def look(connection: ServerConnection) -> tuple[Inspection, str]:
            (version,) = connection.execute("SHOW server_version").fetchone()
            return self._inspect(connection), f"PostgreSQL {version}"

        return self._transaction(look, self.timeout, "read")

    def exists(self) -> bool:
        """Whether the tables are there. Raises as reading does."""
        return self._transaction(lambda connection: self._inspect(connection).version > 0, self.timeout, "read")

    def is_writable(self) -> bool:
        """Whether the server says that this user may change the tables, or make them. Never raises."""

        def look(connection: ServerConnection) -> bool:
            if connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
                return False
            question = "has_schema_privilege(current_schema(), 'CREATE')"
            if self._inspect(connection).version:
                tables = ("plans", "trials", "changes")
                question = " AND ".join(f"has_table_privilege('{_PREFIX}{name}', 'UPDATE')" for name in tables)
            return bool(connection.execute(f"SELECT {question}").fetchone()[0])

        try:
            return self._transaction(look, self.timeout, "read")
        except (DatabaseError, MissingDependencyError):
            return False

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """The number of changes, or the last that is known where it was asked for a moment ago or cannot be had."""
        with self._guard:
            if time.monotonic() - self._asked < _BELIEVED:
                return (self._changes,)
            self._asked = time.monotonic()
        try:
            row = self.read(
                lambda connection, _: connection.execute(f"SELECT number FROM {_PREFIX}changes").fetchone(), _PATIENCE
            )
        except (DatabaseError, MissingDependencyError):
            return (self._changes,)
        self._changes = () if row is None else (int(row[0]),)
        return (self._changes,)

    @staticmethod
    def is_settled(stamp: tuple[tuple[int, ...], ...]) -> bool:
        """Whether the next change is sure to give another stamp: it is, since changes are numbered."""
        return True

    # ------------------------------------------------------------------------------------------------ transactions

    def _transaction(self, action: Callable[[ServerConnection], _T], patience: float, verb: str) -> _T:
        """`action` in one transaction; where the server is starting or was lost meanwhile, once it is back."""
        if patience not in self._engines:
            self._engines[patience] = make_engine(self.address, patience)
        errors, deadline = server_errors(), time.monotonic() + patience
        while True:
            stage = "connecting"
            try:
                with self._engines[patience].connect() as opened:
                    stage = "working"
                    with opened.begin() as transaction:
                        connection = ServerConnection(opened)
                        connection.limit(patience)
                        result = action(connection)
                        stage = "ending"
                        transaction.commit()
                    return result
            except errors as error:
                if may_pass(error, stage, patient=verb == "written") and time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                    continue
                raise translate(error, self.address, verb, stage) from None

    def _inspect(self, connection: ServerConnection) -> Inspection:
        (table,) = connection.execute(f"SELECT to_regclass('{_PREFIX}schema_version')").fetchone()
        if table is None:
            return Inspection()
        row = connection.execute(
            f"SELECT version, oldest_reader FROM {_PREFIX}schema_version ORDER BY version DESC LIMIT 1"
        ).fetchone()
        if row is None or not all(isinstance(value, int) and value >= 1 for value in row):
            raise DatabaseError(
                f"the table {_PREFIX}schema_version does not tell the version",
                found=str(self.address),
                hint="if it is not of akx, use another database; if it is, restore it from a backup",
            )
        return Inspection(*row)

    def _brought_up(self, connection: ServerConnection, layout: int) -> int:
        """Make the tables, or bring them to the present layout; the layout that they have then.

        Those of others, which only their owner may alter, stay as they are: they can be used so.
        """
        if layout == 0:
            for statement in _LAYOUT:
                connection.execute(statement)
            self._note(connection, _FIRST, _FIRST)
            layout = _FIRST
        question = f"SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = '{_PREFIX}trials'::regclass"
        if layout < SCHEMA_VERSION and connection.execute(question).fetchone()[0]:
            for number in range(layout + 1, SCHEMA_VERSION + 1):
                step, oldest = _STEPS[number]
                step(connection)
                self._note(connection, number, oldest)
                layout = number
        return layout

    def _note(self, connection: ServerConnection, version: int, oldest: int) -> None:
        row = {"version": version, "oldest": oldest, "applied": now()}
        connection.execute(f"INSERT INTO {_PREFIX}schema_version VALUES (:version, :oldest, :applied)", row)
