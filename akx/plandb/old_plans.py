"""Plans from before there were revisions, as records of today: of bundles, and of database files of layouts 1 to 3.

A digest of kernel sources and versions were in the key of a plan then. Such a plan is one of revision 1 of its schedule
and of its variant; the digest and the versions become part of its provenance, by which it is current or aged.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from akx.plandb.layout import OLDEST, inspect

__all__ = ["as_of_today", "records_of_file"]

#: What a file of SQLite begins with.
_MAGIC = b"SQLite format 3\0"
_KEY = ("fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class", "kernel_hash", "versions")
_SECONDS = ("seconds", "baseline_seconds", "prepare_seconds", "tuning_seconds")
_TEXTS, _JSON = ("baseline_name", "created", "matrix_name"), ("plan", "provenance", "trials")
#: Timings of solvers, which were in the provenance of a plan.
_MARKS = ("solvers", "solver_revision")


def as_of_today(data: Any) -> Any:
    """A record in JSON from before revisions in the form of today; any other as it is.

    Raises KeyError, TypeError, ValueError or AttributeError where it is damaged.
    """
    if not isinstance(data, dict) or not isinstance(data.get("key"), dict) or "kernel_hash" not in data["key"]:
        return data
    key, plan = dict(data["key"]), data["plan"]
    kernels, versions = key.pop("kernel_hash"), key.pop("versions")
    key["revisions"] = f"plan {plan['schema']}, {plan['schedule']} 1, {plan['variant']} 1"
    parts = [part.rpartition(" ") for part in versions.split(", ")]
    releases = {name: release for name, _, release in parts if name not in ("", "plan") and release != "absent"}
    made = {name: value for name, value in data["provenance"].items() if name not in _MARKS}
    there = made.get("versions")
    made |= {"kernels": kernels, "versions": releases | (dict(there) if isinstance(there, Mapping) else {})}
    rest = {name: value for name, value in data.items() if name != "id"}
    return rest | {"schema": 2, "key": key, "provenance": made}


def records_of_file(path: Path) -> list[Any] | None:
    """Records in JSON, as they were then, of a file of layouts 1 to 3; None of any other file.

    Raises ``sqlite3.Error`` where such a file cannot be read. A row that is damaged is None.
    """
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        found = inspect(connection)
        if found.fault is not None or not 0 < found.version < OLDEST:
            return None
        connection.row_factory = sqlite3.Row
        return [_record(row) for row in connection.execute("SELECT * FROM plans ORDER BY id")]


def _record(row: sqlite3.Row) -> Any:
    with contextlib.suppress(ValueError, RecursionError, TypeError, IndexError):
        if "record" in row.keys():  # noqa: SIM118 - a row is no mapping
            return json.loads(row["record"])
        figures = {name: row[name] for name in (*_SECONDS, *_TEXTS)} | {name: json.loads(row[name]) for name in _JSON}
        return figures | {"key": {name: row[name] for name in _KEY}}
    return None
