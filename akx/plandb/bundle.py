"""Bundles: plans as reviewable JSON text, to carry from machine to machine and to ship with the package.

    {"akx": "plans", "schema": 1, "created": ..., "description": ..., "records": [{"schema": 1, "id": ..., ...}, ...],
     "timings": [{"id": ..., ...}, ...]}

Timings of solvers are left out where there are none.

Text is deterministic (sorted, indented), so that two exports of the same plans differ only where the plans do.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from akx.core.errors import DatabaseError, FileFormatError, PlanError, brief
from akx.core.process import user_folder
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


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds.

    Attributes
    ----------
    records : tuple of PlanRecord
        Those that are valid.
    problems : tuple of str
        What is wrong with the others, one line each.
    created, description : str
    timings : tuple of SolverTiming
        Those that are valid; what is wrong with the others is in `problems`, too.
    """

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

    Returns
    -------
    Bundle
        With every valid record; a record that is not valid is in its ``problems``.

    Raises
    ------
    FileFormatError
        Where the text is no bundle, or one of a newer schema.
    """
    expected = f'a JSON object with "akx": "{_KIND}" and "schema": {BUNDLE_SCHEMA}'
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{source} is not a bundle of plans", expected=expected, found=f"{error}") from error
    if not isinstance(content, dict) or content.get("akx") != _KIND:
        found = f'"akx": {brief(content.get("akx"))}' if isinstance(content, dict) else type(content).__name__
        raise FileFormatError(f"{source} is not a bundle of plans", expected=expected, found=found)
    schema = content.get("schema")
    if schema != BUNDLE_SCHEMA or isinstance(schema, bool):
        hint = "upgrade akx" if isinstance(schema, int) and schema > BUNDLE_SCHEMA else None
        raise FileFormatError(
            f"{source} is of another schema", expected=str(BUNDLE_SCHEMA), found=brief(schema), hint=hint
        )
    listed = content.get("records")
    if not isinstance(listed, list):
        raise FileFormatError(f"{source} has no list of records", found=type(listed).__name__)
    timed = content.get("timings", [])
    if not isinstance(timed, list):
        raise FileFormatError(f"{source} has timings that are no list", found=type(timed).__name__)
    records: list[PlanRecord] = []
    timings: list[SolverTiming] = []
    problems: list[str] = []
    for number, data in enumerate(listed):
        if fingerprint is not None and not _is_under(fingerprint, data):
            continue
        try:
            records.append(PlanRecord.from_json(data))
        except (PlanError, TypeError) as error:
            problems.append(f"record {number}: {error}")
    for number, data in enumerate(timed):
        try:
            timings.append(SolverTiming.from_json(data))
        except (PlanError, TypeError) as error:
            problems.append(f"timing {number}: {error}")
    created, description = (str(content.get(name, "")) for name in ("created", "description"))
    return Bundle(tuple(records), tuple(problems), created, description, tuple(timings))


def _is_under(fingerprint: str, data: Any) -> bool:
    """Whether a record in JSON has this fingerprint in its key."""
    key = data.get("key") if isinstance(data, dict) else None
    return isinstance(key, dict) and key.get("fingerprint") == fingerprint


def read_bundle(path: Path) -> Bundle:
    """:func:`parse_bundle` of a file. Raises :class:`FileFormatError` where it is none, or cannot be read."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
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
    import tempfile

    temporary: str | None = None
    try:
        if path.absolute().parent.parts[-2:] == PROJECT_FOLDER.parts:
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        hint = "pass a file in a writable directory"
        if isinstance(error, FileNotFoundError):
            hint = f"make its folder first: mkdir -p {path.parent}"
        raise DatabaseError(f"plans cannot be exported: {error.strerror}", found=str(path), hint=hint) from error


def keep_aside(record: PlanRecord) -> Path | None:
    """Write a plan that its database cannot take as a bundle of its own, to be imported later.

    It goes to ``unsaved`` in the user's data directory, else to a new folder for temporary files.

    Returns
    -------
    Path or None
        The bundle; None where there is no place for it either.
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
