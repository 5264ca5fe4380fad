"""What becomes of plans, trials and timings when others come or one goes: which stays, and what goes along.

All of it is done to the user's tables, within the transaction of a change.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from akx.core.errors import PlanError
from akx.plandb.bundle import Bundle, ImportReport
from akx.plandb.key import PlanKey, search_key
from akx.plandb.record import PlanRecord, mismatch, newest, stale_fields
from akx.plandb.tables import Tables, decode, decode_trials
from akx.plandb.timing import SolverTiming, decode_timings, encode_timing
from akx.plandb.trial import TrialRecord

__all__ = [
    "NEIGHBOURS",
    "Kept",
    "import_bundle",
    "remove_with",
    "rename_pattern",
    "rivals_of",
    "stale_ones",
    "take_place",
    "trials_of",
]

#: What is kept under an id.
Kept = PlanRecord | SolverTiming
#: Plans of one pattern that are looked at.
NEIGHBOURS = 64


def rivals_of(tables: Tables, record: PlanRecord) -> list[PlanRecord]:
    """The plans of which one is to stay when `record` comes: those that answer the lookup that it answers."""
    key = record.key if stale_fields(record) else search_key(record.key)
    return [one for one in decode(tables.under(key), quietly=True) if not mismatch(key, one)]


def take_place(tables: Tables, rivals: Iterable[PlanRecord], record: PlanRecord) -> None:
    """Keep `record` instead of all of them."""
    for rival in rivals:
        if rival.id != record.id:
            tables.remove(rival.id)  # its trials are those of the search, and stay
    tables.put(record)


def import_bundle(tables: Tables, bundle: Bundle) -> ImportReport:
    """Merge plans and timings: of two plans the better one stays."""
    added = replaced = kept = unchanged = 0
    for record in bundle.records:
        rivals = rivals_of(tables, record)
        current, is_new = newest(rivals), not rivals and tables.plan(record.id) is None
        if current == record:
            unchanged += 1
        elif current is not None and not record.better_than(current):
            kept += 1
        else:
            take_place(tables, rivals, record)
            added, replaced = added + is_new, replaced + (not is_new)
    timings = sum(_merge(tables, timing) for timing in bundle.timings)
    return ImportReport(added, replaced, kept, unchanged, bundle.problems, timings)


def _merge(tables: Tables, timing: SolverTiming) -> bool:
    """Keep a timing where it is better than the one that its key has, and has a place; whether it is."""
    if not tables.has_timings:
        return False
    there = [one for one in decode_timings(tables.timings(timing.key.fingerprint)) if one.key == timing.key]
    plans = decode(tables.of_pattern(timing.key.fingerprint, NEIGHBOURS), quietly=True) if timing.is_choice else []

    def merit(one: SolverTiming) -> tuple[bool, datetime]:
        return any(map(one.is_of, plans)), datetime.fromisoformat(one.created)

    if any(merit(one) >= merit(timing) for one in there):
        return False
    tables.put_timing(encode_timing(timing))
    return True


def stale_ones(tables: Tables, *, quietly: bool = False) -> Sequence[Kept]:
    """The plans and timings of other revisions than those of today."""
    plans = (record for record in decode(tables.plans(), quietly=quietly) if stale_fields(record))
    return (*plans, *(timing for timing in decode_timings(tables.timings()) if timing.is_stale))


def remove_with(tables: Tables, one: Kept) -> None:
    """Delete a timing, or a plan with the trials behind it and the timings that were taken with it."""
    if isinstance(one, SolverTiming):
        return tables.remove_timings([one.id])
    tables.remove(one.id)
    tables.remove_trials(number for number, _ in trials_of(tables, one))
    timings = decode_timings(tables.timings(one.key.fingerprint))
    return tables.remove_timings(timing.id for timing in timings if timing.is_of(one))


def trials_of(tables: Tables, record: PlanRecord) -> list[tuple[int, TrialRecord]]:
    """The trials behind a plan, and their numbers."""
    found = []
    for number, *row in tables.trials(search_key(record.key).id):
        found += [(int(number), trial) for trial in decode_trials([tuple(row)])]
    times = {trial.created for _, trial in found if trial.revisions == record.key.revisions}
    is_current = not stale_fields(record)
    return [(n, trial) for n, trial in found if trial.created in times or (is_current and trial.is_current)]


def rename_pattern(tables: Tables, former: str, fingerprint: str) -> None:
    """Give plans, trials and timings of a pattern another digest; of two under one key the better, or newer, stays."""
    for record in decode(tables.of_pattern(former), quietly=True):
        tables.remove(record.id)
        new = replace(record, key=replace(record.key, fingerprint=fingerprint))
        rival = next(iter(decode(filter(None, [tables.plan(new.id)]), quietly=True)), None)
        if rival is None or new.better_than(rival):
            tables.put(new)
    keys = {}
    for number, text in tables.trials_of_pattern(former):
        with contextlib.suppress(PlanError, TypeError, ValueError):
            keys[int(number)] = replace(PlanKey.from_json(json.loads(text)), fingerprint=fingerprint)
    tables.rename_trials(keys)
    for timing in decode_timings(tables.timings(former)):
        tables.remove_timings([timing.id])
        _merge(tables, replace(timing, key=replace(timing.key, fingerprint=fingerprint)))
