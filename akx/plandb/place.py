"""Where plans are kept: a file, or a PostgreSQL server by URL. Passwords are kept out of every text.

    postgresql://user:password@host:port/database?sslmode=require
    postgresql:///database?host=/run/postgresql            a Unix socket, as the user of the system

What the URL leaves out, libpq takes from ``PGHOST``, ``PGUSER``, ``PGPASSWORD``, ... and from ``~/.pgpass``, which is
the better place for a password.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
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
_ESCAPES = "write / ? # @ : % in a user's name or password as %2F %3F %23 %40 %3A %25, or keep it in ~/.pgpass"


class ServerAddress:
    """A database on a PostgreSQL server. As text it is its URL without passwords.

    `url` may hold a password: not for messages. Its parts are `user`, `password`, `host`, `port` and `database`, None
    where it has none, and `options`, the query for libpq. Raises :class:`DatabaseError` where it is none of a
    PostgreSQL server; the message shows nothing that may be a password.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        scheme = url.partition("://")[0]
        if scheme not in _SCHEMES:
            is_file = scheme in ("sqlite", "file")
            hint = "for a file, pass its path" if is_file else "pass the path of a file, or such a URL"
            found = f"a URL with {scheme}://"
            raise DatabaseError("plan database cannot be of this kind", expected=_EXAMPLE, found=found, hint=hint)
        try:
            parts = urlsplit(url)
            self.port = parts.port
        except ValueError:
            parts = urlsplit(f"{scheme}:///@")
        if parts.fragment or "@" in parts.path or "@" in parts.query:
            raise DatabaseError("URL of the plan database cannot be read", expected=_EXAMPLE, hint=_ESCAPES)
        self.user = unquote(parts.username) if parts.username else None
        self.password = None if parts.password is None else unquote(parts.password)
        self.host = unquote(parts.hostname) if parts.hostname else None
        self.database = unquote(parts.path.lstrip("/")) or None
        self.options = tuple(parse_qsl(parts.query, keep_blank_values=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerAddress) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __str__(self) -> str:
        login = "" if self.user is None else self.user + ("" if self.password is None else f":{_MASK}") + "@"
        host = "" if self.host is None else f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        shown = [(name, _MASK if name in _SECRET_OPTIONS else value) for name, value in self.options]
        query = f"?{urlencode(shown, safe='/*')}" if shown else ""
        return f"postgresql://{login}{host}{port}/{self.database or ''}{query}"

    def __repr__(self) -> str:
        return f"ServerAddress({str(self)!r})"

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
