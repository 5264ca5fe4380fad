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

from akx.core.errors import PlanError
from akx.plandb.file import MAGIC
from akx.plandb.layout import OLDEST, inspect
from akx.plandb.record import RECORD_SCHEMA

__all__ = ["as_of_today", "records_of_file"]

_KEY = ("fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class", "kernel_hash", "versions")
_JSON = ("plan", "provenance", "trials")
#: Timings of solvers, which were in the provenance of a plan.
_MARKS = ("solvers", "solver_revision")


def as_of_today(data: Any) -> Any:
    """A record in JSON from before revisions in the form of today; any other as it is.

    Raises :class:`PlanError` where it is damaged.
    """
    if not isinstance(data, dict) or not isinstance(data.get("key"), dict) or "kernel_hash" not in data["key"]:
        return data
    try:
        key, plan, made = dict(data["key"]), data["plan"], dict(data["provenance"])
        kernels, versions = key.pop("kernel_hash"), key.pop("versions")
        key["revisions"] = f"plan {plan['schema']}, {plan['schedule']} 1, {plan['variant']} 1"
        parts = [part.rpartition(" ") for part in versions.split(", ")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError("record from before revisions is damaged", found=f"{type(error).__name__}: {error}") from error
    releases = {name: release for name, _, release in parts if name not in ("", "plan") and release != "absent"}
    there = made.get("versions")
    made |= {"kernels": kernels, "versions": releases | (dict(there) if isinstance(there, Mapping) else {})}
    made = {name: value for name, value in made.items() if name not in _MARKS}
    rest = {name: value for name, value in data.items() if name != "id"}
    return rest | {"schema": RECORD_SCHEMA, "key": key, "provenance": made}


def records_of_file(path: Path) -> list[Any] | None:
    """Records in JSON, as they were then, of a file of layouts 1 to 3; None of any other file.

    Raises :data:`akx.plandb.file.SQLITE_ERRORS` where such a file cannot be read. A row that is damaged is None.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        found = inspect(connection)
        if found.fault is not None or not 0 < found.version < OLDEST:
            return None
        connection.row_factory = sqlite3.Row
        return [_record(row) for row in connection.execute("SELECT * FROM plans ORDER BY id")]


def _record(row: sqlite3.Row) -> Any:
    found = dict(row)
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        if "record" in found:  # layout 1
            return json.loads(found["record"])
        del found["id"]
        key = {name: found.pop(name) for name in _KEY}
        return found | {name: json.loads(found[name]) for name in _JSON} | {"key": key}
    return None
