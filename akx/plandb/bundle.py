"""Bundles: plans as reviewable JSON text, to carry from machine to machine and to ship with the package.

    {"akx": "plans", "schema": 1, "created": ..., "description": ..., "records": [{"schema": 1, "id": ..., ...}, ...],
     "timings": [{"id": ..., ...}, ...]}

Timings of solvers are left out where there are none.

Text is deterministic (sorted, indented), so that two exports of the same plans differ only where the plans do.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from akx.core.atomic_files import write_in_one_step
from akx.core.errors import DatabaseError, FileFormatError, PlanError, brief
from akx.core.process import user_folder
from akx.plandb.file import SQLITE_ERRORS
from akx.plandb.old_plans import as_of_today, records_of_file
from akx.plandb.record import PlanRecord, now
from akx.plandb.timing import SolverTiming

__all__ = [
    "BUNDLE_SCHEMA",
    "PROJECT_FOLDER",
    "Bundle",
    "ImportReport",
    "bundle_text",
    "keep_aside",
    "parse_bundle",
    "read_bundle",
    "unreadable",
    "write_bundle",
]

#: Version of the form of a bundle.
BUNDLE_SCHEMA = 1

#: Where a project keeps its bundles, below its own directory.
PROJECT_FOLDER = Path(".akx", "plans")

_KIND = "plans"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds: plans and timings that are valid, and what is wrong with the others, one line each."""

    records: tuple[PlanRecord, ...]
    problems: tuple[str, ...] = ()
    created: str = ""
    description: str = ""
    timings: tuple[SolverTiming, ...] = ()


@dataclass(frozen=True)
class ImportReport:
    """What became of the records of a bundle.

    Attributes
    ----------
    added : int
        New keys.
    replaced : int
        Faster (or, when equally fast, newer) than the plan there was.
    kept : int
        Not better than the plan there was, which stays.
    unchanged : int
        There already.
    invalid : tuple of str
        Why others were skipped, one line each.
    timings : int
        Timings of solvers that were added, or took the place of others; no part of the JSON form.
    """

    added: int = 0
    replaced: int = 0
    kept: int = 0
    unchanged: int = 0
    invalid: tuple[str, ...] = ()
    timings: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        counts = {name: getattr(self, name) for name in ("added", "replaced", "kept", "unchanged")}
        return {**counts, "invalid": list(self.invalid)}


def bundle_text(records: Iterable[PlanRecord], timings: Iterable[SolverTiming] = (), *, description: str = "") -> str:
    """The text of a bundle: plans by name of the matrix, k and id, and timings by name of the matrix, solver and id."""
    ordered = sorted(records, key=lambda record: (record.matrix_name, record.key.k, record.id))
    content = {
        "akx": _KIND,
        "schema": BUNDLE_SCHEMA,
        "created": now(),
        "description": description,
        "records": [record.to_json() for record in ordered],
    }
    if listed := sorted(timings, key=lambda timing: (timing.matrix_name, timing.key.solver, timing.id)):
        content["timings"] = [timing.to_json() for timing in listed]
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def parse_bundle(text: str | bytes, source: str = "bundle", *, fingerprint: str | None = None) -> Bundle:
    """Read the text of a bundle; given a fingerprint, of its plans those under it, and nothing of the others.

    A record from before revisions becomes one of today; one that is not valid is in ``problems``. Raises
    :class:`FileFormatError` where the text is no bundle, or one of a newer schema.
    """
    expected = f'a JSON object with "akx": "{_KIND}" and "schema": {BUNDLE_SCHEMA}'
    what = f"{source} is not a bundle of plans"
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(what, expected=expected, found=f"{error}") from error
    if not isinstance(content, dict) or content.get("akx") != _KIND:
        found = f'"akx": {brief(content.get("akx"))}' if isinstance(content, dict) else type(content).__name__
        raise FileFormatError(what, expected=expected, found=found)
    schema, listed, timed = content.get("schema"), content.get("records"), content.get("timings", [])
    if schema != BUNDLE_SCHEMA or isinstance(schema, bool):
        hint = "upgrade akx" if isinstance(schema, int) and schema > BUNDLE_SCHEMA else None
        what = f"{source} is of another schema"
        raise FileFormatError(what, expected=str(BUNDLE_SCHEMA), found=brief(schema), hint=hint)
    if not isinstance(listed, list):
        raise FileFormatError(f"{source} has no list of records", found=type(listed).__name__)
    if not isinstance(timed, list):
        raise FileFormatError(f"{source} has timings that are no list", found=type(timed).__name__)
    problems: list[str] = []

    def parsed(kind: str, parse: Callable[[Any], _T], given: list[Any]) -> Iterator[_T]:
        for number, data in enumerate(given):
            if fingerprint is not None and kind == "record" and not _is_under(fingerprint, data):
                continue
            try:
                yield parse(data)
            except (PlanError, TypeError) as error:
                problems.append(f"{kind} {number}: {error}")

    records = tuple(parsed("record", lambda data: PlanRecord.from_json(as_of_today(data)), listed))
    timings = tuple(parsed("timing", SolverTiming.from_json, timed))
    created, description = (str(content.get(name, "")) for name in ("created", "description"))
    return Bundle(records, tuple(problems), created, description, timings)


def _is_under(fingerprint: str, data: Any) -> bool:
    """Whether a record in JSON has this fingerprint in its key."""
    key = data.get("key") if isinstance(data, dict) else None
    return isinstance(key, dict) and key.get("fingerprint") == fingerprint


def read_bundle(path: Path) -> Bundle:
    """:func:`parse_bundle` of a file, or the plans of a plan database of layout 1 to 3.

    Raises :class:`FileFormatError` where it is neither, or cannot be read.
    """
    try:
        if (old := records_of_file(path)) is not None:
            return parse_bundle(json.dumps({"akx": _KIND, "schema": BUNDLE_SCHEMA, "records": old}), str(path))
        text = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    except SQLITE_ERRORS as error:
        raise FileFormatError(f"plan database cannot be read: {error}", found=str(path)) from error
    return parse_bundle(text, str(path))


def unreadable(path: Path, error: OSError) -> FileFormatError:
    """The error for a file of a bundle that cannot be read."""
    return FileFormatError(f"bundle cannot be read: {error.strerror}", found=str(path))


def write_bundle(path: Path, text: str) -> None:
    """Write a bundle in one step: a reader sees the old file or the new one, never a part.

    A project's folder for plans, ``.akx/plans``, is made where it is missing; of any other folder an error says how.

    Raises
    ------
    DatabaseError
        Where the file cannot be written, or is there and is something other than a bundle: it is not overwritten.
    """
    if path.is_dir():
        raise DatabaseError("plans cannot be exported to a directory", found=str(path), hint="pass a file name")
    if path.exists():
        try:
            parse_bundle(path.read_bytes(), str(path))
        except (FileFormatError, OSError) as error:
            raise DatabaseError(
                "plans cannot be exported over a file that is no bundle", found=str(path), hint="pass another file name"
            ) from error
    is_project = path.absolute().parent.parts[-2:] == PROJECT_FOLDER.parts
    hint = "pass a file in a writable directory"
    try:
        if not is_project and not path.parent.exists():
            hint = f"make its folder first: mkdir -p {path.parent}"
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        write_in_one_step(path, text.encode(), mode=0o644)
    except OSError as error:
        raise DatabaseError(f"plans cannot be exported: {error.strerror}", found=str(path), hint=hint) from error


def keep_aside(record: PlanRecord) -> Path | None:
    """Write a plan that its database cannot take as a bundle of its own, to be imported later.

    It goes to ``unsaved`` in the user's data directory, else to a new folder for temporary files; None: neither.
    """
    import tempfile

    name = f"{record.created.translate(str.maketrans('', '', ':.+-'))}-{record.id[:12]}.json"
    for folder in (user_folder("data") / "unsaved", None):
        try:
            if folder is None:
                folder = Path(tempfile.mkdtemp(prefix="akx-plan-"))
            folder.mkdir(parents=True, exist_ok=True)
            write_bundle(folder / name, bundle_text([record], description="a plan that its database could not take"))
        except OSError:  # a DatabaseError is one
            continue
        return folder / name
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
