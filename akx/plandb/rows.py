"""Records as rows of the database, and back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from typing import Any

from akx.errors import PlanError
from akx.plan import Plan
from akx.plandb.files import PlanDatabaseWarning
from akx.plandb.keys import FIELD_MEANINGS, PlanKey
from akx.plandb.migrate import PLAN_COLUMNS
from akx.plandb.records import PlanRecord, TrialRecord

__all__ = ["ADD_TRIAL", "PUT", "SELECT", "SELECT_TRIALS", "Row", "decode", "decode_trials", "encode", "encode_trials"]

Row = tuple[Any, ...]

_COLUMNS = ", ".join(PLAN_COLUMNS)
SELECT = f"SELECT {_COLUMNS} FROM plans"
PUT = f"INSERT OR REPLACE INTO plans ({_COLUMNS}) VALUES ({', '.join('?' * len(PLAN_COLUMNS))})"

_TRIAL_COLUMNS = ("plan", "seconds", "state", "reason", "created")
SELECT_TRIALS = f"SELECT {', '.join(_TRIAL_COLUMNS)} FROM trials WHERE key_id = ? ORDER BY number"
ADD_TRIAL = f"INSERT INTO trials (key_id, key, {', '.join(_TRIAL_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)"


def encode(record: PlanRecord) -> Row:
    values: dict[str, Any] = record.key.to_json() | record.to_json()
    for name in ("plan", "provenance", "trials"):
        values[name] = json.dumps(values[name], allow_nan=False)
    return tuple(values[name] for name in PLAN_COLUMNS)


def decode(rows: Iterable[Row]) -> list[PlanRecord]:
    """Records from rows; one that is not valid is reported and left out."""
    records = []
    for row in rows:
        values = dict(zip(PLAN_COLUMNS, row, strict=True))
        identifier = values.pop("id")
        try:
            for name in ("plan", "provenance", "trials"):
                values[name] = json.loads(values[name])
            key = {name: values.pop(name) for name in FIELD_MEANINGS}
            record = PlanRecord(key=PlanKey.from_json(key), **{**values, "plan": Plan.from_json(values["plan"])})
            if record.id != identifier:
                raise PlanError("its id is not that of its key", expected=record.id, found=repr(identifier))
        except (PlanError, TypeError, ValueError, RecursionError) as error:
            warnings.warn(f"plan {str(identifier)[:12]} skipped: {error}", PlanDatabaseWarning, stacklevel=3)
            continue
        records.append(record)
    return records


def encode_trials(key: PlanKey, trials: Iterable[TrialRecord]) -> list[Row]:
    """Rows for :data:`ADD_TRIAL`."""
    identifier, text = key.id, json.dumps(key.to_json())
    rows = []
    for trial in trials:
        plan, seconds = json.dumps(trial.plan.to_json(), allow_nan=False), json.dumps(trial.seconds)
        rows.append((identifier, text, plan, seconds, trial.state, trial.reason, trial.created))
    return rows


def decode_trials(rows: Iterable[Row]) -> tuple[TrialRecord, ...]:
    """Trials from rows of :data:`SELECT_TRIALS`; one that is not valid is reported and left out."""
    trials = []
    for plan, seconds, state, reason, created in rows:
        try:
            samples = tuple(json.loads(seconds))
            trials.append(TrialRecord(Plan.from_json(json.loads(plan)), samples, state, reason, created))
        except (PlanError, TypeError, ValueError, RecursionError) as error:
            warnings.warn(f"trial skipped: {error}", PlanDatabaseWarning, stacklevel=3)
    return tuple(trials)
