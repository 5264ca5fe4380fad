"""Plans and timings of solvers as they were kept once, as of today. Plain JSON only, never the classes of today.

Before revisions a digest of kernel sources and versions were in the key of a plan. Such a plan is one of revision 1 of
its schedule and its variant. The digest and the versions become part of its provenance: where they are those of today
it is current, else aged.

Before timings of solvers had a table of their own, what a step took with the s that was chosen stood in the provenance
of the plan of its matrix powers, as ``"solvers": {solver: seconds}`` beside ``"solver_revision"``; and what steps of
two solvers took was kept as two trials of plans with an option ``solver``, all that a step depends on being in the
place of the basis.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "OLD_FIELDS",
    "key_id",
    "marked_timings",
    "modern_plan",
    "modern_record",
    "modern_trial",
    "newest_timings",
    "old_plan",
    "renamed_timing",
    "unmarked",
    "untried_timings",
]

#: Fields that keys had then, and have no more.
OLD_FIELDS = frozenset({"kernel_hash", "versions"})
_COLUMNS = ("fingerprint", "dtype", "index_type", "basis", "k", "start_vectors", "device_class")
#: What a key asks for where it does not say: returns, transpose, ranks.
_REST = ("vectors", 0, 1)
#: In the text of versions, what is none of a compiler.
_FORM = "plan"
#: What is in the provenance of a plan on which there is a mark of a solver.
_MARKS, _REVISION = "solvers", "solver_revision"
#: Powers for each of the s steps of a solver, where it is not one.
_PER_STEP = {"ca_bicgstab": 2}
#: What two solvers depended on, in the place of the basis.
_SISTERS = re.compile(
    r"(\w+) or ca_\1: s (\w+), basis (\w+)(?:, restart (\w+))?, M (.*?)(?:, revision (\d+))?", re.DOTALL
)


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


def unmarked(provenance: str) -> str:
    """The provenance of a plan, as text, without marks of solvers."""
    if not isinstance(provenance, str) or f'"{_MARKS}"' not in provenance:
        return provenance
    made, marks, _ = _split(provenance)
    return provenance if marks is None else json.dumps(made)


def marked_timings(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The marks of solvers on a row of plans of layout 4, by its columns, as rows of timings; those that are valid."""
    if not isinstance(row["provenance"], str) or f'"{_MARKS}"' not in row["provenance"]:
        return []
    made, marks, revision = _split(row["provenance"])
    found = []
    for solver, seconds in (marks or {}).items():
        s = row["k"] // _PER_STEP.get(solver, 1) if isinstance(row["k"], int) else 0
        if not _is_time(seconds) or not isinstance(revision, int) or s < 1:
            continue
        key = _key_of(row, solver, row["basis"], revision=revision)
        figures = {"seconds": {solver: float(seconds)}, "best_s": s}
        dates = {"plan_created": row["created"], "created": row["created"], "matrix_name": row["matrix_name"]}
        found += _row(key, figures | dates, made.get("versions"))
    return found


def untried_timings(trials: Iterable[tuple[Any, ...]]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Of rows of trials of layout 4 the numbers of those that stood for steps of solvers, and rows of their timings.

    A row has the number, id and text of the key, plan, seconds, state, reason, date, clock and provenance. Of several
    for one solver the last counts.
    """
    numbers, groups = [], dict[str, dict[str, Any]]()
    for number, identifier, text, plan, seconds, state, _, created, _, provenance in trials:
        try:
            key, options = json.loads(text), json.loads(plan)["options"]
            match = _SISTERS.fullmatch(key["basis"])
            if match is None or options["solver"] not in (match[1], f"ca_{match[1]}"):
                continue
            samples = json.loads(seconds) if state == "complete" else []
            versions = json.loads(provenance).get("versions") if provenance else None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            continue
        numbers.append(number)
        group = groups.setdefault(identifier, {"key": key, "asked": match.groups(), "steps": {}})
        group["steps"][options["solver"]] = samples[0] if samples and _is_time(samples[0]) else None
        group |= {"created": created, "versions": versions}
    found = []
    for group in groups.values():
        family, s, basis, restart, preconditioner, revision = group["asked"]
        if len(group["steps"]) < 2:
            continue
        asked = {"asked_s": _number(s), "restart": _number(restart), "revision": _number(revision) or 1}
        named = "" if preconditioner == "none" else preconditioner
        key = _key_of(group["key"], family, basis, preconditioner=named, **asked)
        figures = {"seconds": group["steps"], "best_s": 0, "plan_created": "", "matrix_name": ""}
        found += _row(key, figures | {"created": group["created"]}, group["versions"])
    return numbers, found


def newest_timings(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest of the rows of timings that have one key."""
    return list({row["id"]: row for row in sorted(rows, key=lambda row: str(row["created"]))}.values())


def renamed_timing(row: Mapping[str, Any], fingerprint: str) -> dict[str, Any]:
    """The row of a timing under another fingerprint."""
    key = {name: row[name] for name in (*_TIMED, *_ASKED)} | {"fingerprint": fingerprint}
    return {**row, **key, "id": key_id(_short(key))}


def _short(key: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form of the key of a timing."""
    return {name: value for name, value in key.items() if name not in _ASKED or value != _ASKED[name]}


def _split(provenance: str) -> tuple[dict[str, Any], Mapping[str, Any] | None, Any]:
    """A provenance without marks of solvers, these, and their revision; no marks where it has none that are ours."""
    try:
        made = json.loads(provenance)
        marks = made.get(_MARKS)
    except (ValueError, AttributeError, RecursionError):
        return {}, None, 1
    if not isinstance(marks, Mapping):
        return made, None, 1
    del made[_MARKS]
    return made, marks, made.pop(_REVISION, 1)


def _key_of(given: Mapping[str, Any], solver: str, basis: str, **asked: Any) -> dict[str, Any]:
    """All fields of the key of a timing, for a plan or a search with these."""
    shared = {name: given[name] for name in ("fingerprint", "dtype", "index_type", "device_class")}
    return shared | {"solver": solver, "basis": basis} | _ASKED | asked


#: What every key of a timing has.
_TIMED = ("fingerprint", "dtype", "index_type", "device_class", "solver", "basis")
#: What the key of a timing asks for where it does not say, and leaves out of its JSON form.
_ASKED = {"asked_s": 0, "restart": 0, "preconditioner": "", "revision": 1}


def _row(key: dict[str, Any], figures: dict[str, Any], versions: Any) -> list[dict[str, Any]]:
    """The row of a timing; none where it holds what is no text or number of a table."""
    provenance = {"versions": dict(versions) if isinstance(versions, Mapping) else {}}
    texts = {"seconds": json.dumps(figures["seconds"]), "provenance": json.dumps(provenance)}
    row = {"id": key_id(_short(key))} | key | figures | texts
    if any(isinstance(value, int) and abs(value) >= 2**63 for value in row.values()):
        return []
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except (TypeError, UnicodeEncodeError):
        return []
    return [row]


def _number(asked: str | None) -> int:
    return int(asked) if asked is not None and asked.isdecimal() else 0


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
