"""What the faults of a PostgreSQL server are called, and which of them pass."""

from __future__ import annotations

from akx.core.errors import DatabaseError
from akx.plandb.place import ServerAddress

__all__ = ["may_pass", "server_errors", "translate"]

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


def server_errors() -> tuple[type[Exception], ...]:
    """What using an engine can raise because of the server, the network or the URL."""
    import psycopg
    import sqlalchemy.exc

    return sqlalchemy.exc.SQLAlchemyError, psycopg.Error


def may_pass(error: Exception, stage: str, *, patient: bool) -> bool:
    """Whether it is worth trying again in a moment.

    Parameters
    ----------
    error : Exception
        One of :func:`server_errors`.
    stage : str
        As for :func:`translate`.
    patient : bool
        Whether a server that cannot be reached may be back soon, as one that is being restarted is.
    """
    at_rest = _code(error)[:4] == "57P0" or any(words in _words(error) for words in _AT_REST)
    if stage == "connecting":
        return at_rest or (patient and _fault(error, stage) is None)
    return at_rest or bool(getattr(error, "connection_invalidated", False))


def translate(error: Exception, address: ServerAddress, action: str, stage: str) -> DatabaseError:
    """The typed error for one of the server, with a hint that names the cure.

    Parameters
    ----------
    error : Exception
        One of :func:`server_errors`.
    address : ServerAddress
    action : str
        What was tried: ``"read"`` or ``"written"``.
    stage : str
        How far it came: ``"connecting"``, ``"working"``, or ``"ending"``, which is when a change is committed.
    """
    code, words, connected = _code(error), _words(error), stage != "connecting"
    found = address.without_secrets(f"{address} ({words})")
    known = _fault(error, stage)
    if known is not None:
        return DatabaseError(known[0], found=found, hint=f"{known[1]}; or {_ELSEWHERE}")
    if not connected:
        what, hint = "the server of the plan database cannot be reached", "check the URL and that the server runs"
        return DatabaseError(what, found=found, hint=f"{hint}; or {_ELSEWHERE}")
    if stage == "ending" and (not code or code[:2] in ("08", "57")):
        what = "the connection to the plan database was lost while a change was being stored"
        return DatabaseError(what, found=found, hint="look whether it is there before you try again: akx plans list")
    if not code or code[:2] in ("08", "57"):
        what = f"the connection to the plan database was lost before it was {action}"
        return DatabaseError(what, found=found, hint=f"try again; or {_ELSEWHERE}")
    return DatabaseError(f"plan database cannot be {action}", found=found, hint=_ELSEWHERE)


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
