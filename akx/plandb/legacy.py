"""Plans as they were kept before revisions, when a digest of kernel sources and versions were in the key, as of today.

Such a plan is one of revision 1 of its schedule and its variant. The digest and the versions become part of its
provenance: where they are those of today it is current, else aged. Plain JSON only, never the classes of today.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["OLD_FIELDS", "key_id", "modern_plan", "modern_record", "modern_trial", "old_plan"]

#: Fields that keys had then, and have no more.
OLD_FIELDS = frozenset({"kernel_hash", "versions"})
_COLUMNS = ("fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class")
#: What a key asks for where it does not say: returns, transpose, ranks.
_REST = ("vectors", 0, 1)
#: In the text of versions, what is none of a compiler.
_FORM = "plan"


def modern_record(data: Mapping[str, Any]) -> dict[str, Any]:
    """A record of schema 1 as one of schema 2. Raises KeyError, TypeError or AttributeError where it is none."""
    old = dict(data["key"])
    kernels, versions = old.pop("kernel_hash"), old.pop("versions")
    key = old | {"revisions": _revisions(data["plan"])}
    provenance = _provenance(dict(data["provenance"]), kernels, versions)
    found = dict(data) | {"schema": 2, "key": key, "provenance": provenance}
    if "id" in found and found["id"] == key_id(data["key"]):
        found["id"] = key_id(key)
    return found


def modern_plan(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of plans of the layouts 2 and 3, in the order of its columns, as one of layout 4.

    One that is not valid stays so, for those who read it.
    """
    identifier, *rest = row
    same, (kernels, versions, plan, *figures) = rest[: len(_COLUMNS)], rest[len(_COLUMNS) :]
    provenance = figures[-2]
    try:
        key = dict(zip(_COLUMNS, same, strict=True))
        revisions = _revisions(json.loads(plan))
        figures[-2] = json.dumps(_provenance(json.loads(provenance), kernels, versions))
        new = key | {"revisions": revisions}
        if identifier == key_id(key | {"kernel_hash": kernels, "versions": versions}):
            identifier = key_id(new)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        revisions = ""
    return (identifier, *same, revisions, *_REST, plan, *figures)


def modern_trial(identifier: str, key: str, plan: str) -> tuple[str, str, str] | None:
    """Id and text of its search's key, and provenance, of a trial of the layouts 2 and 3; None of one not valid."""
    try:
        old = json.loads(key)
        if "kernel_hash" not in old or key_id(old) != identifier:
            return None
        kernels, versions = old.pop("kernel_hash"), old.pop("versions")
        provenance = {"revisions": _revisions(json.loads(plan))} | _provenance({}, kernels, versions)
        return key_id(old), json.dumps(old), json.dumps(provenance)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def old_plan(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The columns of a plan of layout 4 as those of layout 3; None of one that those have no place for."""
    form = json.loads(row["plan"])
    if row["revisions"] != _revisions(form) or tuple(row[name] for name in ("returns", "transpose", "ranks")) != _REST:
        return None
    made = json.loads(row["provenance"])
    releases = made.get("versions")
    compilers = releases if isinstance(releases, Mapping) else {}
    listed = [f"{name} {compilers[name]}" for name in ("numba", "cuda-bindings") if name in compilers]
    old = {"kernel_hash": str(made.get("kernels", "-")), "versions": ", ".join([f"plan {form['schema']}", *listed])}
    return {
        name: value for name, value in row.items() if name not in ("revisions", "returns", "transpose", "ranks")
    } | old


def _revisions(plan: Mapping[str, Any]) -> str:
    return f"plan {plan['schema']}, {plan['schedule']} 1, {plan['variant']} 1"


def _provenance(given: dict[str, Any], kernels: str, versions: str) -> dict[str, Any]:
    """With the digest and, where it has none, the versions; what is first in it stays first."""
    parts = [part.rpartition(" ") for part in versions.split(", ")]
    releases = {name: release for name, _, release in parts if name and name != _FORM and release != "absent"}
    there = given.get("versions")
    kept = dict(there) if isinstance(there, Mapping) else {}
    return given | {"kernels": kernels, "versions": kept | {k: v for k, v in releases.items() if k not in kept}}


def key_id(key: Mapping[str, Any]) -> str:
    """The id of a key, of its JSON form, then as now."""
    return hashlib.sha256(json.dumps(key, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
