"""The tables of plans and trials: records as rows, and the few statements there are, the same for a file and a server.

Statements have named parameters and keep to what SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from akx.errors import PlanError
from akx.plan import Plan
from akx.plandb.files import PlanDatabaseWarning
from akx.plandb.keys import FIELD_MEANINGS, PlanKey, key_of_plan
from akx.plandb.migrate import PLAN_COLUMNS, SCHEMA_VERSION
from akx.plandb.records import PlanRecord, TrialRecord
from akx.plandb.sketches import SKETCH_COLUMNS

__all__ = ["TRIAL_COLUMNS", "Connection", "Row", "Tables", "decode", "decode_trials", "encode", "encode_trials"]

#: The values of one row, in the order of the columns.
Row = tuple[Any, ...]

#: Columns of `trials` that make a :class:`TrialRecord`, in their order.
TRIAL_COLUMNS = ("plan", "seconds", "state", "reason", "created", "clock_hz")
#: Layouts with which columns came that were not in `trials` from the beginning.
_SINCE = {"clock_hz": 3}


class Connection(Protocol):
    """What is asked of a connection to a database, within a transaction: sqlite3's has it."""

    def execute(self, statement: str, parameters: Mapping[str, Any] = ..., /) -> Any:
        """Run a statement; its result has ``fetchone()`` and ``fetchall()``."""
        ...

    def executemany(self, statement: str, parameters: Sequence[Mapping[str, Any]], /) -> Any:
        """Run a statement once for each set of parameters."""
        ...


class Tables:
    """The tables behind a connection.

    Parameters
    ----------
    connection : Connection
        Within a transaction, where they are changed.
    prefix : str
        What the names of the tables begin with.
    layout : int
        Theirs; of one before the present columns are read as empty, and not written.
    """

    def __init__(self, connection: Connection, prefix: str = "", layout: int = SCHEMA_VERSION) -> None:
        self._connection = connection
        self._missing = {name for name, since in _SINCE.items() if layout < since}
        self._plans, self._trials = f"{prefix}plans", f"{prefix}trials"
        self._select = f"SELECT {', '.join(PLAN_COLUMNS)} FROM {self._plans}"

    def plan(self, identifier: str) -> Row | None:
        """The plan with this full id."""
        row = self._connection.execute(f"{self._select} WHERE id = :id", {"id": identifier}).fetchone()
        return None if row is None else tuple(row)

    def under(self, key: PlanKey, hashes: Sequence[str]) -> list[Row]:
        """The plans whose keys are this one but for the kernel sources, which are any of these."""
        values = {name: value for name, value in key.to_json().items() if name != "kernel_hash"}
        marks = {f"hash_{number}": one for number, one in enumerate(hashes)}
        same = " AND ".join(f"{name} = :{name}" for name in values)
        statement = f"{self._select} WHERE {same} AND kernel_hash IN ({', '.join(f':{mark}' for mark in marks)})"
        return self._connection.execute(statement, values | marks).fetchall()  # type: ignore[no-any-return]

    def of_pattern(self, fingerprint: str, most: int) -> list[Row]:
        """Plans for one pattern, the newest first."""
        statement = f"{self._select} WHERE fingerprint = :fingerprint ORDER BY created DESC LIMIT {most}"
        return self._connection.execute(statement, {"fingerprint": fingerprint}).fetchall()  # type: ignore[no-any-return]

    def sketches(self, conditions: Mapping[str, Any], most: int) -> list[Row]:
        """The newest plans, as :data:`akx.plandb.sketches.SKETCH_COLUMNS`, of those that may be of similar matrices.

        `conditions` are ``least`` and ``most`` for k, the beginnings ``dtype`` and ``device`` with a ``%`` behind them,
        and the ``fingerprint`` that is left out.
        """
        newest = (  # what is sorted is narrow: provenance is most of a row
            f"SELECT id FROM {self._plans} WHERE k BETWEEN :least AND :most"
            " AND dtype LIKE :dtype AND device_class LIKE :device AND fingerprint <> :fingerprint"
            f" ORDER BY created DESC, id LIMIT {most}"
        )
        statement = f"SELECT {', '.join(SKETCH_COLUMNS)} FROM {self._plans} WHERE id IN ({newest})"
        return self._connection.execute(statement, conditions).fetchall()  # type: ignore[no-any-return]

    def plans(self) -> list[Row]:
        """Every plan."""
        return self._connection.execute(self._select).fetchall()  # type: ignore[no-any-return]

    def put(self, record: PlanRecord) -> None:
        """Keep a plan in place of the one that its key had."""
        names, marks = ", ".join(PLAN_COLUMNS), ", ".join(f":{name}" for name in PLAN_COLUMNS)
        changes = ", ".join(f"{name} = excluded.{name}" for name in PLAN_COLUMNS[1:])
        statement = f"INSERT INTO {self._plans} ({names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {changes}"
        self._connection.execute(statement, encode(record))

    def remove(self, identifier: str, of_trials: Sequence[str] = ()) -> None:
        """Delete a plan, and the trials for the keys with these ids."""
        self._connection.execute(f"DELETE FROM {self._plans} WHERE id = :id", {"id": identifier})
        for one in of_trials:
            self._connection.execute(f"DELETE FROM {self._trials} WHERE key_id = :id", {"id": one})

    def trials(self, identifiers: Sequence[str], most: int | None = None) -> list[Row]:
        """The trials for the keys with these ids, in the order they were added; the newest, where `most` is given."""
        columns = ", ".join("NULL" if name in self._missing else name for name in TRIAL_COLUMNS)
        values = {f"id_{number}": one for number, one in enumerate(identifiers)}
        marks = ", ".join(f":{mark}" for mark in values)
        # Not the column itself: a server would go through all trials from the newest on, in place of those of the keys.
        newest = f" + 0 DESC LIMIT {int(most)}" if most is not None else ""
        statement = f"SELECT {columns} FROM {self._trials} WHERE key_id IN ({marks}) ORDER BY number{newest}"
        found: list[Row] = self._connection.execute(statement, values).fetchall()
        return found[::-1] if newest else found

    def add_trials(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows of :func:`encode_trials`."""
        names = [name for name in ("key_id", "key", *TRIAL_COLUMNS) if name not in self._missing]
        marks = ", ".join(f":{name}" for name in names)
        kept = [{name: row[name] for name in names} for row in rows]
        self._connection.executemany(f"INSERT INTO {self._trials} ({', '.join(names)}) VALUES ({marks})", kept)

    def correct_trials(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give the trials of rows of :func:`encode_trials`, found by key, plan and time, their states and reasons."""
        found = ("key_id", "plan", "created")
        statement = (
            f"UPDATE {self._trials} SET state = :state, reason = :reason"
            f" WHERE {' AND '.join(f'{name} = :{name}' for name in found)}"
        )
        names = ("state", "reason", *found)
        self._connection.executemany(statement, [{name: row[name] for name in names} for row in rows])


def encode(record: PlanRecord) -> dict[str, Any]:
    """The columns of a record."""
    values: dict[str, Any] = record.key.to_json() | record.to_json()
    for name in ("plan", "provenance", "trials"):
        values[name] = json.dumps(values[name], allow_nan=False)
    return {name: values[name] for name in PLAN_COLUMNS}


def decode(rows: Iterable[Row], *, quietly: bool = False) -> list[PlanRecord]:
    """Records from rows; one that is not valid is reported, unless `quietly`, and left out."""
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
            if not quietly:
                warnings.warn(f"plan {str(identifier)[:12]} skipped: {error}", PlanDatabaseWarning, stacklevel=3)
            continue
        records.append(record)
    return records


def encode_trials(key: PlanKey, trials: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """The columns of trials of a search for `key`, for :meth:`Tables.add_trials`: each under the key of its plan."""
    keys: dict[str, tuple[str, str]] = {}

    def key_of(trial: TrialRecord) -> tuple[str, str]:
        if trial.plan.schedule not in keys:
            own = key_of_plan(key, trial.plan)
            keys[trial.plan.schedule] = own.id, json.dumps(own.to_json())
        return keys[trial.plan.schedule]

    return [
        {
            "key_id": key_of(trial)[0],
            "key": key_of(trial)[1],
            "plan": json.dumps(trial.plan.to_json(), allow_nan=False),
            "seconds": json.dumps(trial.seconds),
            "state": trial.state,
            "reason": trial.reason,
            "created": trial.created,
            "clock_hz": trial.clock_hz,
        }
        for trial in trials
    ]


def decode_trials(rows: Iterable[Row]) -> tuple[TrialRecord, ...]:
    """Trials from rows of :meth:`Tables.trials`; one that is not valid is reported and left out."""
    trials = []
    for plan, seconds, state, reason, created, clock in rows:
        try:
            samples = tuple(json.loads(seconds))
            trials.append(TrialRecord(Plan.from_json(json.loads(plan)), samples, state, reason, created, clock))
        except (PlanError, TypeError, ValueError, RecursionError) as error:
            warnings.warn(f"trial skipped: {error}", PlanDatabaseWarning, stacklevel=3)
    return tuple(trials)
