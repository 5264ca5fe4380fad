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

__all__ = [
    "TRIAL_COLUMNS",
    "Connection",
    "Row",
    "Tables",
    "decode",
    "decode_keyed_trials",
    "decode_keys",
    "decode_trials",
    "encode",
    "encode_trials",
]

#: The values of one row, in the order of the columns.
Row = tuple[Any, ...]

#: Columns of `trials` that make a :class:`TrialRecord`, in their order.
TRIAL_COLUMNS = ("plan", "seconds", "state", "reason", "created", "clock_hz")
#: Layouts with which columns came that were not in `trials` from the beginning.
_SINCE = {"clock_hz": 3}
#: Values that a statement lists at once: databases take some hundreds to some ten thousands.
_MOST_LISTED = 500


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
        self._of_trial = ", ".join("NULL" if name in self._missing else name for name in TRIAL_COLUMNS)

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

    def remove(self, identifier: str) -> None:
        """Delete a plan."""
        self._connection.execute(f"DELETE FROM {self._plans} WHERE id = :id", {"id": identifier})

    def trials(self, identifiers: Sequence[str], most: int | None = None) -> list[Row]:
        """The trials for the keys with these ids, in the order they were added; the newest, where `most` is given."""
        marks, values = _listed("id", identifiers)
        # Not the column itself: a server would go through all trials from the newest on, in place of those of the keys.
        newest = f" + 0 DESC LIMIT {int(most)}" if most is not None else ""
        statement = f"SELECT {self._of_trial} FROM {self._trials} WHERE key_id IN ({marks}) ORDER BY number{newest}"
        found: list[Row] = self._connection.execute(statement, values).fetchall()
        return found[::-1] if newest else found

    def every_trial(self) -> list[Row]:
        """All trials in the order they were added: id and text of the key, then the columns of :meth:`trials`."""
        statement = f"SELECT key_id, key, {self._of_trial} FROM {self._trials} ORDER BY number"
        return self._connection.execute(statement).fetchall()  # type: ignore[no-any-return]

    def keys_of_trials(self) -> list[Row]:
        """Id and text of every key for which there are trials; goes through all of them."""
        return self._connection.execute(f"SELECT DISTINCT key_id, key FROM {self._trials}").fetchall()  # type: ignore[no-any-return]

    def trials_behind(self, identifier: str, beside: Sequence[str], siblings: Sequence[str]) -> list[Row]:
        """The trials for the keys `beside`, and those for `siblings` whose times any for `identifier` has; in order."""
        where, values = self._behind(identifier, beside, siblings)
        statement = f"SELECT {self._of_trial} FROM {self._trials} WHERE {where} ORDER BY number"
        return self._connection.execute(statement, values).fetchall()  # type: ignore[no-any-return]

    def remove_trials_behind(self, identifier: str, beside: Sequence[str], siblings: Sequence[str]) -> None:
        """Delete what :meth:`trials_behind` finds."""
        where, values = self._behind(identifier, beside, siblings)
        # Asked first: SQLite may delete the rows that tell the times before it has come to those of other schedules.
        found = self._connection.execute(f"SELECT number FROM {self._trials} WHERE {where}", values).fetchall()
        if found:
            numbers = [{"number": number} for (number,) in found]
            self._connection.executemany(f"DELETE FROM {self._trials} WHERE number = :number", numbers)

    def _behind(self, identifier: str, beside: Sequence[str], siblings: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """The condition of :meth:`trials_behind`, and its parameters."""
        near, values = _listed("beside", beside)
        where = f"key_id IN ({near})"
        if siblings:
            far, more = _listed("sibling", siblings)
            times = f"SELECT created FROM {self._trials} WHERE key_id = :own"
            where += f" OR (key_id IN ({far}) AND created IN ({times}))"
            values |= {"own": identifier, **more}
        return where, values

    def add_trials(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Append rows of :func:`encode_trials`; the number of those that are new.

        A row whose key, plan and time are there already is not appended: its state and reason are put there. So what
        was added once may be added again.
        """
        there = self._times_of(rows)
        names = [name for name in ("key_id", "key", *TRIAL_COLUMNS) if name not in self._missing]
        marks = ", ".join(f":{name}" for name in names)
        known = [row for row in rows if (row["key_id"], row["plan"], row["created"]) in there]
        new = [row for row in rows if (row["key_id"], row["plan"], row["created"]) not in there]
        if new:
            kept = [{name: row[name] for name in names} for row in new]
            self._connection.executemany(f"INSERT INTO {self._trials} ({', '.join(names)}) VALUES ({marks})", kept)
        if known:
            self.correct_trials(known)
        return len(new)

    def _times_of(self, rows: Sequence[Mapping[str, Any]]) -> set[Row]:
        """Key, plan and time of the trials that are there for the keys of `rows` at their times."""
        keys, values = _listed("id", sorted({row["key_id"] for row in rows}))
        times = sorted({row["created"] for row in rows})
        select = f"SELECT key_id, plan, created FROM {self._trials} WHERE key_id IN ({keys})"
        found: set[Row] = set()
        for start in range(0, len(times), _MOST_LISTED):
            some, more = _listed("time", times[start : start + _MOST_LISTED])
            rows_there = self._connection.execute(f"{select} AND created IN ({some})", values | more).fetchall()
            found.update(tuple(row) for row in rows_there)
        return found

    def correct_trials(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give the trials of rows of :func:`encode_trials`, found by key, plan and time, their states and reasons."""
        found = ("key_id", "plan", "created")
        statement = (
            f"UPDATE {self._trials} SET state = :state, reason = :reason"
            f" WHERE {' AND '.join(f'{name} = :{name}' for name in found)}"
        )
        names = ("state", "reason", *found)
        self._connection.executemany(statement, [{name: row[name] for name in names} for row in rows])


def _listed(name: str, given: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The marks of a list of values in a statement, and the values by their marks."""
    values = {f"{name}_{number}": one for number, one in enumerate(given)}
    return ", ".join(f":{mark}" for mark in values), values


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


def decode_keys(rows: Iterable[Row]) -> dict[str, PlanKey]:
    """Keys by their ids from rows that begin with id and text; one that is not valid is left out."""
    keys: dict[str, PlanKey] = {}
    for identifier, text, *_ in rows:
        if identifier in keys:
            continue
        try:
            key = PlanKey.from_json(json.loads(text))
        except (PlanError, TypeError, ValueError, RecursionError):
            continue
        if key.id == identifier:
            keys[identifier] = key
    return keys


def decode_keyed_trials(rows: Iterable[Row]) -> tuple[tuple[PlanKey, TrialRecord], ...]:
    """Keys and trials from rows of :meth:`Tables.every_trial`; one that is not valid is reported and left out."""
    given = list(rows)
    keys = decode_keys(given)
    trials = []
    for identifier, _, *row in given:
        if identifier not in keys:
            warnings.warn(f"trial skipped: its key {identifier!r} is not valid", PlanDatabaseWarning, stacklevel=3)
            continue
        trials += [(keys[identifier], trial) for trial in decode_trials([tuple(row)])]
    return tuple(trials)
