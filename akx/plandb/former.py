"""Plans kept under the digest that a pattern had before digests were trees (:mod:`akx.core.fingerprint`).

Where this process has a matrix of that pattern, a lookup takes them for what they are: those of the user's database get
the new digest there, with their trials, in one transaction; those of a database that cannot be changed, of an old
layout, which an older akx may read, and of read-only layers, have it in memory. The former digest is formed where there
is a plan for a matrix of that size under one, or a plan that does not tell its size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from akx.core.fingerprint import FORMER_DIGITS, Pattern, known_pattern
from akx.plandb.record import PlanRecord

if TYPE_CHECKING:
    from akx.plandb.layers import PlanLayer
    from akx.plandb.tables import Tables
    from akx.plandb.timing import SolverTiming, TimingKey

__all__ = ["former_of", "of_layer", "of_user", "renewed", "timings_under"]


def renewed(records: Iterable[PlanRecord], fingerprint: str) -> list[PlanRecord]:
    """Plans of one pattern under this digest."""
    return [replace(record, key=replace(record.key, fingerprint=fingerprint)) for record in records]


def former_of(tables: Tables, fingerprint: str, *, timings: bool = False) -> str | None:
    """The former digest of a pattern that is known here, where tables have plans, or timings, under it; else None."""
    pattern = known_pattern(fingerprint)
    if pattern is None:
        return None
    if not (tables.may_have_former_timings() if timings else tables.may_have_former(pattern.n, pattern.nnz)):
        return None
    former = pattern.former_digest
    return former if (tables.timings(former) if timings else tables.of_pattern(former, 1)) else None


def of_layer(layer: PlanLayer, fingerprint: str) -> tuple[PlanRecord, ...]:
    """The plans of a layer for one pattern, those under its former digest too."""
    found, pattern = layer.with_fingerprint(fingerprint), known_pattern(fingerprint)
    if pattern is None or not layer.has_digests(FORMER_DIGITS):
        return found
    if not any(_may_be_of(record, pattern) for record in layer.records()):
        return found
    ids = {record.id for record in found}
    others = renewed(layer.with_fingerprint(pattern.former_digest), fingerprint)
    return (*found, *(record for record in others if record.id not in ids))


def of_user(records: Iterable[PlanRecord], fingerprint: str) -> tuple[PlanRecord, ...]:
    """Those of the user's plans that are for one pattern, those under its former digest too."""
    given, pattern = tuple(records), known_pattern(fingerprint)
    found = [record for record in given if record.key.fingerprint == fingerprint]
    if pattern is not None and any(_may_be_of(record, pattern) for record in given):
        found += renewed([one for one in given if one.key.fingerprint == pattern.former_digest], fingerprint)
    return tuple(found)


def timings_under(key: TimingKey, timings: Iterable[SolverTiming]) -> list[SolverTiming]:
    """The timings under a key, those under the former digest of its pattern too."""
    found, pattern = list(timings), known_pattern(key.fingerprint)
    keys = {key}
    if pattern is not None and any(len(one.key.fingerprint) == FORMER_DIGITS for one in found):
        keys.add(replace(key, fingerprint=pattern.former_digest))
    return [one if one.key == key else replace(one, key=key) for one in found if one.key in keys]


def _may_be_of(record: PlanRecord, pattern: Pattern) -> bool:
    if len(record.key.fingerprint) != FORMER_DIGITS:
        return False
    told = record.provenance.get("matrix")
    size = {"rows": pattern.n, "nnz": pattern.nnz}
    return not isinstance(told, dict) or all(told.get(name, count) == count for name, count in size.items())
