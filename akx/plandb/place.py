"""Where plans are kept: a file, or a PostgreSQL server by URL. Passwords are kept out of every text.

    postgresql://user:password@host:port/database?sslmode=require
    postgresql:///database?host=/run/postgresql            a Unix socket, as the user of the system

What the URL leaves out, libpq takes from ``PGHOST``, ``PGUSER``, ``PGPASSWORD``, ... and from ``~/.pgpass``, which is
the better place for a password.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from akx.core.errors import DatabaseError, brief
from akx.core.process import user_folder

__all__ = ["ServerAddress", "database_path", "database_place"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9.+-]*://")
#: What pathlib makes of the beginning of a URL of a server.
_URL_AS_PATH = re.compile(r"postgres(ql)?(\+\w+)?:/[^/]")
_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_EXAMPLE = "postgresql://user@host/database"
_SECRET_OPTIONS = frozenset({"password", "sslpassword"})
_MASK = "***"


@dataclass(frozen=True)
class ServerAddress:
    """A database on a PostgreSQL server. As text it is its URL without passwords.

    Attributes
    ----------
    url : str
        The URL as it was given. May hold a password: not for messages.
    user, password, host, database : str or None
    port : int or None
    options : tuple of (str, str)
        The URL's query, for libpq.

    Raises
    ------
    DatabaseError
        Where `url` is none of a PostgreSQL server; the message shows nothing that may be a password.
    """

    url: str = field(repr=False)
    user: str | None = field(init=False, compare=False)
    password: str | None = field(init=False, compare=False, repr=False)
    host: str | None = field(init=False, compare=False)
    port: int | None = field(init=False, compare=False)
    database: str | None = field(init=False, compare=False)
    options: tuple[tuple[str, str], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, value in _parse(self.url).items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        login = "" if self.user is None else self.user + ("" if self.password is None else f":{_MASK}") + "@"
        host = "" if self.host is None else f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        shown = [(name, _MASK if name in _SECRET_OPTIONS else value) for name, value in self.options]
        query = f"?{urlencode(shown, safe='/*')}" if shown else ""
        return f"postgresql://{login}{host}{port}/{self.database or ''}{query}"

    @property
    def name(self) -> str:
        """The name of the database, or of the user where it has none."""
        return self.database or self.user or "plans"

    def without_secrets(self, text: str) -> str:
        """`text`, such as the message of a driver, with every password of this address masked."""
        secrets = [self.password, *(value for name, value in self.options if name in _SECRET_OPTIONS)]
        text = text.replace(self.url, str(self))
        for secret in filter(None, secrets):
            text = text.replace(quote(secret, safe=""), _MASK).replace(secret, _MASK)
        return text


def database_place(path: str | os.PathLike[str] | ServerAddress | None = None) -> Path | ServerAddress:
    """Where plans are: `path`, else ``AKX_DB``, either the path of a file or a server's URL, else the user's file.

    Raises :class:`DatabaseError` where it can be neither.
    """
    if isinstance(path, ServerAddress):
        return path
    given = os.fspath(path) if path is not None else os.environ.get("AKX_DB", "").strip()
    if isinstance(given, str):
        if _URL.match(given):
            return ServerAddress(given)
        if isinstance(path, os.PathLike) and _URL_AS_PATH.match(given):
            raise DatabaseError("URL of the plan database is given as a path", hint="pass it as a str")
    return database_path(path)


def database_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Path of the database: `path`, else ``AKX_DB``, else ``plans.sqlite`` in the user's data directory.

    Absolute and free of symbolic links, because the logs of SQLite lie beside the file itself. Raises
    :class:`DatabaseError` where it is empty or cannot be expanded.
    """
    given = os.fspath(path) if path is not None else os.environ.get("AKX_DB", "").strip()
    if not given:
        if path is not None:
            raise DatabaseError("path of the plan database is empty", hint="pass --db PATH")
        return Path(os.path.realpath(user_folder("data") / "plans.sqlite"))
    if "\0" in given:
        raise DatabaseError("path of the plan database has a null character", found=brief(given))
    try:
        expanded = Path(given).expanduser()
    except RuntimeError as error:
        raise DatabaseError(f"path of the plan database: {error}", found=given, hint="give it in full") from error
    return Path(os.path.realpath(expanded))


def _parse(url: str) -> dict[str, Any]:
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        hint = "for a file, pass its path" if scheme in ("sqlite", "file") else "pass the path of a file, or such a URL"
        raise DatabaseError(
            "plan database cannot be of this kind", expected=_EXAMPLE, found=f"a URL with {scheme}://", hint=hint
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(f"{scheme}://"), -1
    if port == -1 or parts.fragment or "@" in parts.path or "@" in parts.query:
        raise DatabaseError(
            "URL of the plan database cannot be read",
            expected=_EXAMPLE,
            hint="write / ? # @ : % in a user's name or password as %2F %3F %23 %40 %3A %25, or keep it in ~/.pgpass",
        )
    return {
        "user": None if not parts.username else unquote(parts.username),
        "password": None if parts.password is None else unquote(parts.password),
        "host": None if not parts.hostname else unquote(parts.hostname),
        "port": port,
        "database": unquote(parts.path.lstrip("/")) or None,
        "options": tuple(parse_qsl(parts.query, keep_blank_values=True)),
    }
