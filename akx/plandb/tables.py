"""The tables of plans, trials and timings: each statement once, for a file and a server, and records as rows.

Statements are text with named parameters, in the SQL that SQLite and PostgreSQL share. A server runs them through
SQLAlchemy. A file runs them through the standard library's sqlite3: a lookup may fall in a user's first call, importing
SQLAlchemy takes 460 ms, and a SELECT by key that takes sqlite3 13 us takes SQLAlchemy Core 30 to 45 us, which is 1.2
times the whole lookup (measured on 2 cores of an EPYC, SQLAlchemy 2.0, 200 plans).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from akx.core.errors import DatabaseError, PlanError, brief, shown
from akx.core.fingerprint import FORMER_DIGITS
from akx.core.plan import Plan
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.key import FIELD_MEANINGS, PlanKey, search_key
from akx.plandb.layout import PLAN_COLUMNS, TIMING_COLUMNS, TRIAL_COLUMNS
from akx.plandb.record import PlanRecord
from akx.plandb.trial import TrialRecord

__all__ = [
    "MOST_TRIALS",
    "Connection",
    "Row",
    "Tables",
    "decode",
    "decode_keyed_trials",
    "decode_trials",
    "encode",
    "encode_trials",
]

#: Trials in a database at most, 0.6 to 2 KB each.
MOST_TRIALS = 100_000

#: The values of one row, in the order of the columns.
Row = tuple[Any, ...]

#: Fields of a key that plans are found by; its revisions are compared with what is declared.
_ASKED = tuple(name for name in FIELD_MEANINGS if name != "revisions")


class Connection(Protocol):
    """A connection within a transaction, as sqlite3's."""

    def execute(self, statement: str, parameters: Mapping[str, Any] = ..., /) -> Any: ...
    def executemany(self, statement: str, parameters: Sequence[Mapping[str, Any]], /) -> Any: ...


class Tables:
    """The tables behind a connection, which is within a transaction where they are changed.

    Their names begin with `prefix`. `has_timings`: whether timings of solvers have a table: not in layout 4.
    """

    def __init__(self, connection: Connection, prefix: str = "", *, has_timings: bool = True) -> None:
        self.connection, self.has_timings = connection, has_timings
        self._plans, self._trials, self._timings = (f"{prefix}{name}" for name in ("plans", "trials", "timings"))
        self._select = f"SELECT {', '.join(PLAN_COLUMNS)} FROM {self._plans}"

    def _rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        return list(map(tuple, self.connection.execute(statement, values or {}).fetchall()))

    def _each(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self.connection.executemany(statement, rows)

    # ------------------------------------------------------------------------------------------------ plans

    def plans(self) -> list[Row]:
        """Every plan."""
        return self._rows(self._select)

    def plan(self, identifier: str) -> Row | None:
        """The plan with this full id."""
        return next(iter(self._rows(f"{self._select} WHERE id = :id", {"id": identifier})), None)

    def under(self, key: PlanKey) -> list[Row]:
        """The plans whose keys are this one but for the revisions."""
        values = {name: getattr(key, name) for name in _ASKED} | {"transpose": int(key.transpose)}
        return self._rows(f"{self._select} WHERE {_equal(_ASKED)}", values)

    def of_pattern(self, fingerprint: str, most: int | None = None) -> list[Row]:
        """Plans for one pattern, the newest first; so many at most."""
        limit = "" if most is None else f" LIMIT {most}"
        condition = f"WHERE fingerprint = :fingerprint ORDER BY created DESC{limit}"
        return self._rows(f"{self._select} {condition}", {"fingerprint": fingerprint})

    def of_others(self, conditions: Mapping[str, Any], most: int) -> list[Row]:
        """The newest plans of other patterns than ``fingerprint``, of k from ``least`` to ``most``, so many at most.

        ``dtype`` and ``device`` are the beginnings of those, with a ``%`` behind them.
        """
        newest = (  # what is sorted is narrow: provenance is most of a row
            f"SELECT id FROM {self._plans} WHERE k BETWEEN :least AND :most"
            " AND dtype LIKE :dtype AND device_class LIKE :device AND fingerprint <> :fingerprint"
            f" ORDER BY created DESC, id LIMIT {most}"
        )
        return self._rows(f"{self._select} WHERE id IN ({newest})", conditions)

    def has_former(self) -> bool:
        """Whether there are plans under digests of patterns as they were formed once."""
        return bool(self._rows(f"SELECT 1 FROM {self._plans} WHERE length(fingerprint) = {FORMER_DIGITS} LIMIT 1"))

    def put(self, record: PlanRecord) -> None:
        """Keep a plan in place of the one that its key had."""
        self.connection.execute(_replacing(self._plans, PLAN_COLUMNS), encode(record))

    def remove(self, identifier: str) -> None:
        """Delete a plan."""
        self.connection.execute(f"DELETE FROM {self._plans} WHERE id = :id", {"id": identifier})

    # ------------------------------------------------------------------------------------------------ trials

    def trials(self, identifier: str, most: int | None = None) -> list[Row]:
        """The trials for the key with this id, each with its number first, in the order they were added.

        The newest, where `most` is given.
        """
        # Not the column itself: a server would go through all trials from the newest on, in place of those of the keys.
        newest = "" if most is None else f" + 0 DESC LIMIT {int(most)}"
        statement = f"SELECT number, {', '.join(TRIAL_COLUMNS)} FROM {self._trials} WHERE key_id = :id"
        found = self._rows(f"{statement} ORDER BY number{newest}", {"id": identifier})
        return found[::-1] if newest else found

    def trials_of_pattern(self, fingerprint: str) -> list[Row]:
        """Number and text of the key of each trial whose key has this fingerprint."""
        statement = f"SELECT number, key FROM {self._trials} WHERE key LIKE :key"
        return self._rows(statement, {"key": f'%"{fingerprint}"%'})

    def rename_trials(self, keys: Mapping[int, PlanKey]) -> None:
        """Give trials other keys, by their numbers."""
        rows = [{"number": n, "id": key.id, "key": json.dumps(key.to_json())} for n, key in keys.items()]
        self._each(f"UPDATE {self._trials} SET key_id = :id, key = :key WHERE number = :number", rows)

    def every_trial(self) -> list[Row]:
        """All trials in the order they were added: id and text of the key, then the columns of a trial."""
        return self._rows(f"SELECT key_id, key, {', '.join(TRIAL_COLUMNS)} FROM {self._trials} ORDER BY number")

    def remove_trials(self, numbers: Iterable[int]) -> None:
        """Delete the trials with these numbers."""
        given = [{"number": number} for number in numbers]
        self._each(f"DELETE FROM {self._trials} WHERE number = :number", given)

    def add_trials(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Append rows of :func:`encode_trials`; the number of those that are new.

        A row whose key, plan and time are there already is not appended: its state and reason are put there. So what
        was added once may be added again. Those added longest ago go where there are more than :data:`MOST_TRIALS`.
        """
        if not rows:
            return 0
        times, there = sorted(row["created"] for row in rows), set[Row]()
        select = f"SELECT key_id, plan, created FROM {self._trials} WHERE key_id = :id"
        for key in {row["key_id"] for row in rows}:
            given = {"id": key, "first": times[0], "last": times[-1]}
            there.update(self._rows(f"{select} AND created BETWEEN :first AND :last", given))
        new: list[Mapping[str, Any]] = []
        known: list[Mapping[str, Any]] = []
        for row in rows:
            (known if (row["key_id"], row["plan"], row["created"]) in there else new).append(row)
        names = ("key_id", "key", *TRIAL_COLUMNS)
        self._each(f"INSERT INTO {self._trials} ({', '.join(names)}) VALUES ({_marks(names)})", new)
        newest = f"(SELECT MAX(number) FROM {self._trials})"
        self.connection.execute(f"DELETE FROM {self._trials} WHERE number <= {newest} - :most", {"most": MOST_TRIALS})
        self.correct_trials(known)
        return len(new)

    def correct_trials(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give the trials of rows of :func:`encode_trials`, found by key, plan and time, their states and reasons."""
        found = ("key_id", "plan", "created")
        statement = f"UPDATE {self._trials} SET state = :state, reason = :reason WHERE {_equal(found)}"
        self._each(statement, [{name: row[name] for name in ("state", "reason", *found)} for row in rows])

    # ------------------------------------------------------------------------------------------------ timings

    def timings(self, fingerprint: str | None = None) -> list[Row]:
        """Timings of solvers for one pattern, or all, in the order of their columns, the oldest first."""
        condition = "" if fingerprint is None else "WHERE fingerprint = :fingerprint"
        return self._timed(f"{condition} ORDER BY created, id", {"fingerprint": fingerprint})

    def timing(self, identifier: str) -> Row | None:
        """The timing of the key with this full id."""
        return next(iter(self._timed("WHERE id = :id", {"id": identifier})), None)

    def _timed(self, condition: str, values: Mapping[str, Any]) -> list[Row]:
        statement = f"SELECT {', '.join(TIMING_COLUMNS)} FROM {self._timings} {condition}"
        return self._rows(statement, values) if self.has_timings else []

    def put_timing(self, row: Mapping[str, Any]) -> None:
        """Keep a timing, by its columns, in place of the one that its key had. Raises :class:`DatabaseError`."""
        if not self.has_timings:
            raise DatabaseError(
                "the tables are those of an older akx, in which timings of solvers have no place",
                hint="ask their owner to write to them once with this akx, as `akx tune` does",
            )
        self.connection.execute(_replacing(self._timings, TIMING_COLUMNS), row)

    def remove_timings(self, identifiers: Iterable[str]) -> None:
        """Delete the timings with these ids."""
        given = [{"id": identifier} for identifier in identifiers]
        self._each(f"DELETE FROM {self._timings} WHERE id = :id", given)


def _marks(names: Iterable[str]) -> str:
    return ", ".join(f":{name}" for name in names)


def _equal(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} = :{name}" for name in names)


def _replacing(table: str, columns: Sequence[str]) -> str:
    """The statement that inserts a row, or replaces the one with its id."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    inserting = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({_marks(columns)})"
    return f"{inserting} ON CONFLICT (id) DO UPDATE SET {changes}"


# ---------------------------------------------------------------------------------------------------- rows of records


def encode(record: PlanRecord) -> dict[str, Any]:
    """The columns of a record."""
    values: dict[str, Any] = {name: getattr(record.key, name) for name in FIELD_MEANINGS} | record.to_json()
    values["transpose"] = int(record.key.transpose)
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
            key["transpose"] = bool(key["transpose"])
            record = PlanRecord(key=PlanKey.from_json(key), **{**values, "plan": Plan.from_json(values["plan"])})
            if record.id != identifier:
                raise PlanError("its id is not that of its key", expected=record.id, found=brief(identifier))
        except (PlanError, TypeError, ValueError, RecursionError) as error:
            if not quietly:
                warnings.warn(f"plan {shown(str(identifier), 12)} skipped: {error}", PlanDatabaseWarning, stacklevel=3)
            continue
        records.append(record)
    return records


def encode_trials(key: PlanKey, trials: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """The columns of trials of a search for `key`, for :meth:`Tables.add_trials`."""
    search = search_key(key)
    under = {"key_id": search.id, "key": json.dumps(search.to_json())}
    return [
        under
        | {
            "plan": json.dumps(trial.plan.to_json(), allow_nan=False),
            "seconds": json.dumps(trial.seconds),
            "state": trial.state,
            "reason": trial.reason,
            "created": trial.created,
            "clock_hz": trial.clock_hz,
            "provenance": json.dumps(dict(trial.stamped().provenance)),
        }
        for trial in trials
    ]


def decode_trials(rows: Iterable[Row]) -> tuple[TrialRecord, ...]:
    """Trials from rows of their columns; one that is not valid is reported and left out."""
    trials = []
    for plan, seconds, state, reason, created, clock, provenance in rows:
        try:
            samples, made = tuple(json.loads(seconds)), json.loads(provenance) if provenance else {}
            trials.append(TrialRecord(Plan.from_json(json.loads(plan)), samples, state, reason, created, clock, made))
        except (PlanError, TypeError, ValueError, RecursionError) as error:
            warnings.warn(f"trial skipped: {error}", PlanDatabaseWarning, stacklevel=3)
    return tuple(trials)


def decode_keyed_trials(rows: Iterable[Row]) -> tuple[tuple[PlanKey, TrialRecord], ...]:
    """Keys and trials from rows of :meth:`Tables.every_trial`; one that is not valid is reported and left out."""
    keys: dict[str, PlanKey] = {}
    trials = []
    for identifier, text, *row in rows:
        try:
            key = keys.get(identifier) or PlanKey.from_json(json.loads(text))
            if key.id != identifier:
                raise PlanError("its id is another")
        except (PlanError, TypeError, ValueError, RecursionError):
            warnings.warn(f"trial skipped: its key {brief(identifier)} is not valid", PlanDatabaseWarning, stacklevel=3)
        else:
            keys[identifier] = key
            trials += [(key, trial) for trial in decode_trials([tuple(row)])]
    return tuple(trials)
