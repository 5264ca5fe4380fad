"""Tables on a PostgreSQL server that many machines share, through SQLAlchemy, by the rules of the file.

Tables are ``akx_plans``, ``akx_trials``, ``akx_timings``, ``akx_schema_version`` and ``akx_changes``, in the first
schema of the search path, so that they may lie beside Optuna's. They are made by the first change, in one transaction.

Every change is one transaction and holds a lock of the database while it lasts, so that changes come one after another
as they do in a file, and of two processes that import for one key the better plan stays. A client killed at any moment
leaves the last committed state. Every transaction looks at the layout first: another akx may have changed it since.

Connections are opened for one transaction and closed after it. That takes some milliseconds, and leaves nothing open on
a server that many share, nothing that a restart of the server breaks, and nothing for a fork to inherit. A number that
each change raises tells others that plans have changed; it is asked for every ten seconds at most.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from akx.core.errors import DatabaseError, MissingDependencyError
from akx.core.fork_safety import ForkSafeLock
from akx.plandb.layout import POSTGRES, SCHEMA_VERSION, TIMED, Inspection, check_layout, make_tables
from akx.plandb.place import ServerAddress
from akx.plandb.tables import Tables

__all__ = ["ServerStore", "connecting", "server_errors", "translate"]

_T = TypeVar("_T")
_PREFIX = POSTGRES.prefix
#: The lock that changes take: "akxp" in ASCII.
_LOCK = 0x616B7870
_PAUSE = 0.1
#: Seconds for which the number of changes is believed, and for which a server that did not answer is left alone.
_BELIEVED = 10.0
#: Seconds that a lookup gives the server to say how many changes there were.
_PATIENCE = 1.0
#: Milliseconds after which the server ends a transaction that says nothing, and the client a connection that does not
#: answer: a machine that went away without a word holds its lock no longer.
_SILENCE_MS = 60_000
#: Least seconds for a connection: libpq takes less for two.
_CONNECT_SECONDS = 2

_ELSEWHERE = "pass --db PATH or set AKX_DB to a file to go on without it"
#: What a server says that is starting, stopping or recovering from a crash: worth waiting for.
_AT_REST = ("is starting up", "is shutting down", "in recovery mode", "not yet accepting connections")
#: Errors by the code (SQLSTATE) of the server, or its first digits, or by its words where it gave none: what and hint.
_FAULTS: tuple[tuple[tuple[str, ...], tuple[str, ...], str, str], ...] = (
    (("55P03", "57014"), (), "plan database is locked by another process", "wait until the other process has finished"),
    (("53100",), (), "plan database cannot be written: the server's disk is full", "tell its administrator"),
    (
        ("53300",), ("too many clients", "too many connections", "connection slots are reserved"),
        "the server of the plan database has too many connections", "try again later",
    ),
    (("25006",), (), "the server of the plan database is read-only", "name the primary server in the URL"),
    (
        ("42501",), (), "no right to use the plan database so",
        "ask its owner for GRANT SELECT, INSERT, UPDATE, DELETE ON akx_plans, akx_trials, akx_timings, akx_changes, "
        "and SELECT ON akx_schema_version; to make the tables, CREATE on the schema",
    ),
    (
        ("28",), ("authentication failed", "no password supplied", "no pg_hba.conf entry", 'FATAL: role "'),
        "the server of the plan database refuses the user or the password",
        "put the password in ~/.pgpass (host:port:database:user:password, mode 0600) or PGPASSWORD, and check the user",
    ),
    (
        ("3D000",), ('FATAL: database "',), "there is no such database on the server",
        "make it with createdb, or correct the name in the URL",
    ),
)  # fmt: skip


class ServerStore:
    """The tables at `address`; see the module for the rules.

    `timeout`: seconds to wait for another process's lock, and for a server that is starting.
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

    def read(self, action: Callable[[Tables], _T], patience: float | None = None) -> _T | None:
        """`action` on the tables, or None where there are none yet.

        With `patience`, in seconds, a server that could not be reached a moment ago is not asked again. Raises
        :class:`DatabaseError` where the server cannot be reached, refuses, or has tables that are too new or too old,
        :class:`MissingDependencyError` where the driver is not installed.
        """

        def attempt(connection: _ServerConnection) -> _T | None:
            layout = self._inspect(connection).version
            return action(Tables(connection, _PREFIX, has_timings=layout >= TIMED)) if layout else None

        return self._reading(attempt, patience)

    def _reading(self, action: Callable[[_ServerConnection], _T], patience: float | None) -> _T:
        if patience is not None and self._failure is not None and time.monotonic() - self._failed < _BELIEVED:
            raise self._failure.with_traceback(None)
        try:
            found = self._transaction(action, self.timeout if patience is None else patience, "read")
        except DatabaseError as error:
            self._failure, self._failed = error, time.monotonic()
            raise
        self._failure = None
        return found

    def write(self, action: Callable[[Tables], _T], *, patience: float | None = None) -> _T:
        """`action` on the tables in one transaction, alone. Raises as :meth:`read` does.

        Then nothing has changed, or, where the connection was lost as the change was committed, the error says that it
        may have. Before that it is made again: `action` must be one that may be done twice.

        `patience`: seconds to wait for another process, or for the server, `timeout` by default. A server that cannot
        be reached is waited for, since it may be starting anew.
        """

        def attempt(connection: _ServerConnection) -> _T:
            connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            layout = self._inspect(connection, to_write=True).version
            if layout == 0:
                connection.execute(f"CREATE TABLE {_PREFIX}changes (number BIGINT NOT NULL)")
                connection.execute(f"INSERT INTO {_PREFIX}changes VALUES (1)")
            if layout == 0 or (layout < SCHEMA_VERSION and self._may_alter(connection)):
                make_tables(connection, layout, POSTGRES)
                layout = SCHEMA_VERSION
            result = action(Tables(connection, _PREFIX, has_timings=layout >= TIMED))
            connection.execute(f"UPDATE {_PREFIX}changes SET number = number + 1")
            return result

        limit = self.timeout if patience is None else patience
        return self._transaction(attempt, limit, "written")

    def describe(self) -> tuple[Inspection, str]:
        """The layout of the tables, 0 where there are none, and what the server is. Raises as reading does."""

        def look(connection: _ServerConnection) -> tuple[Inspection, str]:
            (version,) = connection.execute("SHOW server_version").fetchone()
            return self._inspect(connection), f"PostgreSQL {version}"

        return self._transaction(look, self.timeout, "read")

    def exists(self) -> bool:
        """Whether the tables are there. Raises as reading does."""
        return self._transaction(lambda connection: self._inspect(connection).version > 0, self.timeout, "read")

    def is_writable(self) -> bool:
        """Whether the server says that this user may change the tables, or make them. Never raises."""

        def look(connection: _ServerConnection) -> bool:
            if connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
                return False
            question, layout = "has_schema_privilege(current_schema(), 'CREATE')", self._inspect(connection).version
            if layout:
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

        def look(connection: _ServerConnection) -> tuple[int, ...]:
            if not self._inspect(connection).version:
                return ()
            return (int(connection.execute(f"SELECT number FROM {_PREFIX}changes").fetchone()[0]),)

        with contextlib.suppress(DatabaseError, MissingDependencyError):
            self._changes = self._reading(look, _PATIENCE)
        return (self._changes,)

    @staticmethod
    def is_settled(stamp: tuple[tuple[int, ...], ...]) -> bool:
        """Whether the next change is sure to give another stamp: it is, since changes are numbered."""
        return True

    # ------------------------------------------------------------------------------------------------ transactions

    def _transaction(self, action: Callable[[_ServerConnection], _T], patience: float, verb: str) -> _T:
        """`action` in one transaction; where the server is starting or was lost meanwhile, once it is back."""
        if patience not in self._engines:
            url, options = connecting(self.address, patience)
            import sqlalchemy

            self._engines[patience] = sqlalchemy.create_engine(url, **options)
        errors, deadline = server_errors(), time.monotonic() + patience
        while True:
            stage = "connecting"
            try:
                with self._engines[patience].connect() as opened:
                    stage = "working"
                    with opened.begin() as transaction:
                        connection = _ServerConnection(opened)
                        connection.limit(patience)
                        result = action(connection)
                        stage = "ending"
                        transaction.commit()
                    return result
            except errors as error:
                if _may_pass(error, stage, patient=verb == "written") and time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                    continue
                raise translate(error, self.address, verb, stage) from None

    def _inspect(self, connection: _ServerConnection, *, to_write: bool = False) -> Inspection:
        """The layout; 0 where there are no tables. Raises where they cannot be read, or written to."""
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
        found = Inspection(*row)
        check_layout(found, self.address, to_write=to_write)
        return found

    @staticmethod
    def _may_alter(connection: _ServerConnection) -> bool:
        """Whether this user has the role of the tables' owner, who alone may alter them."""
        question = f"SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = '{_PREFIX}trials'::regclass"
        return bool(connection.execute(question).fetchone()[0])


def connecting(address: ServerAddress, timeout: float) -> tuple[Any, dict[str, Any]]:
    """SQLAlchemy's URL for a server, and the options for an engine. Raises :class:`MissingDependencyError` without
    driver.
    """
    try:
        import psycopg  # noqa: F401
        import sqlalchemy
    except ImportError as error:
        raise MissingDependencyError(
            f"a database on a server needs psycopg: {error}",
            found=str(address),
            hint="pip install 'akx[postgres]'",
        ) from error
    given, login = dict(address.options), (address.user, address.password, address.host, address.port)
    url = sqlalchemy.URL.create("postgresql+psycopg", *login, address.database, given)
    arguments: dict[str, Any] = {"connect_timeout": max(_CONNECT_SECONDS, round(timeout)), "application_name": "akx"}
    arguments |= {"client_encoding": "utf8", "tcp_user_timeout": _SILENCE_MS}
    # Statements are not prepared on the server: a pool before it (pgbouncer) would lose them.
    arguments = {name: value for name, value in arguments.items() if name not in given} | {"prepare_threshold": None}
    return url, {"poolclass": sqlalchemy.NullPool, "hide_parameters": True, "connect_args": arguments}


class _ServerConnection:
    """A connection of SQLAlchemy as :class:`akx.plandb.tables.Connection`."""

    def __init__(self, connection: Any) -> None:
        import sqlalchemy

        self._connection, self._text = connection, sqlalchemy.text

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None, /) -> Any:
        """Run a statement with parameters ``:name``."""
        return self._connection.execute(self._text(statement), _storable(parameters or {}))

    def executemany(self, statement: str, parameters: Sequence[Mapping[str, Any]], /) -> Any:
        """Run a statement once for each set of parameters."""
        return self._connection.execute(self._text(statement), [_storable(each) for each in parameters])

    def limit(self, seconds: float) -> None:
        """Let this transaction wait so long for a lock, and take so long for a statement; more is an error."""
        milliseconds = str(max(1, round(1e3 * seconds)))
        names = {"lock_timeout": milliseconds, "statement_timeout": milliseconds}
        names["idle_in_transaction_session_timeout"] = str(_SILENCE_MS)
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in names.items())
        self.execute(f"SELECT {settings}")


def _storable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without what PostgreSQL's text cannot hold: the null character, shown as ``\\x00``."""
    return {n: value.replace("\0", r"\x00") if isinstance(value, str) else value for n, value in parameters.items()}


def server_errors() -> tuple[type[Exception], ...]:
    """What using an engine can raise because of the server, the network or the URL."""
    import psycopg
    import sqlalchemy.exc

    return sqlalchemy.exc.SQLAlchemyError, psycopg.Error


def _may_pass(error: Exception, stage: str, *, patient: bool) -> bool:
    """Whether it is worth trying again in a moment; where `patient`, also to reach a server that may be restarting."""
    at_rest = _code(error)[:4] == "57P0" or any(words in _words(error) for words in _AT_REST)
    if stage == "connecting":
        return at_rest or (patient and _fault(error, stage) is None)
    return at_rest or bool(getattr(error, "connection_invalidated", False))


def translate(error: Exception, address: ServerAddress, action: str, stage: str) -> DatabaseError:
    """The typed error for one of the server, with a hint that names the cure.

    `action` is what was tried: ``"read"`` or ``"written"``; `stage` how far it came: ``"connecting"``, ``"working"``,
    or ``"ending"``, which is when a change is committed.
    """
    code, known = _code(error), _fault(error, stage)
    if known is not None:
        what, hint = known[0], f"{known[1]}; or {_ELSEWHERE}"
    elif stage == "connecting":
        what = "the server of the plan database cannot be reached"
        hint = f"check the URL and that the server runs; or {_ELSEWHERE}"
    elif code and code[:2] not in ("08", "57"):
        what, hint = f"plan database cannot be {action}", _ELSEWHERE
    elif stage == "ending":
        what = "the connection to the plan database was lost while a change was being stored"
        hint = "look whether it is there before you try again: akx plans list"
    else:
        what = f"the connection to the plan database was lost before it was {action}"
        hint = f"try again; or {_ELSEWHERE}"
    return DatabaseError(what, found=address.without_secrets(f"{address} ({_words(error)})"), hint=hint)


def _fault(error: Exception, stage: str) -> tuple[str, str] | None:
    """What is wrong and what to do, where the server said which of the known faults it is."""
    code, words = _code(error), _words(error)
    for codes, phrases, what, hint in _FAULTS:
        spoken = stage == "connecting" and any(phrase in words for phrase in phrases)
        if code.startswith(codes) if code else spoken:
            return what, hint
    return None


def _code(error: Exception) -> str:
    """The server's code for an error, "" where it gave none."""
    return str(getattr(getattr(error, "orig", None) or error, "sqlstate", None) or "")


def _words(error: Exception) -> str:
    """What the server or the driver says, in one line."""
    return " ".join(str(getattr(error, "orig", None) or error).split())[:300]
