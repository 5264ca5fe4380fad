"""The tables of plans and trials: records as rows, and the few statements there are, the same for a file and a server.

Statements have named parameters and keep to what SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from akx.core.errors import DatabaseError, PlanError, brief, shown
from akx.core.fingerprint import FORMER_DIGITS
from akx.core.plan import Plan
from akx.plandb.files import PlanDatabaseWarning
from akx.plandb.key import FIELD_MEANINGS, PlanKey, search_key
from akx.plandb.legacy import (
    key_id,
    marked_timings,
    modern_plan,
    modern_trial,
    newest_timings,
    old_plan,
    renamed_timing,
    unmarked,
    untried_timings,
)
from akx.plandb.migrate import (
    OLD_PLAN_COLUMNS,
    PLAN_COLUMNS,
    REVISED,
    SCHEMA_VERSION,
    TIMED,
    TIMING_COLUMNS,
    revised_plans,
)
from akx.plandb.record import PlanRecord, TrialRecord
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
TRIAL_COLUMNS = ("plan", "seconds", "state", "reason", "created", "clock_hz", "provenance")
#: Layouts with which columns came that were not in `trials` from the beginning.
_SINCE = {"clock_hz": 3, "provenance": 4}
#: Fields of a key that plans are found by; its revisions are compared with what is declared.
_ASKED = tuple(name for name in FIELD_MEANINGS if name != "revisions")
_NEW_FIELDS = ("returns", "transpose", "ranks")
#: Where the provenance of a plan is in its row.
_PROVENANCE = PLAN_COLUMNS.index("provenance")
#: What to do about tables that have no place for something.
_UPGRADE = "ask their owner to write to them once with this akx, as `akx tune` does"
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
        Theirs. Plans and trials of one before there were revisions are read as those of revision 1, and may be added;
        columns that came later are read as empty, and not written. Timings of solvers are read as they were then.
    """

    def __init__(self, connection: Connection, prefix: str = "", layout: int = SCHEMA_VERSION) -> None:
        self._connection = connection
        self._is_old, self._is_untimed = layout < REVISED, layout < TIMED
        self._missing = {name for name, since in _SINCE.items() if layout < since}
        self._plans, self._trials, self._timings = (f"{prefix}{name}" for name in ("plans", "trials", "timings"))
        self._select = f"SELECT {', '.join(OLD_PLAN_COLUMNS if self._is_old else PLAN_COLUMNS)} FROM {self._plans}"
        self._of_trial = ", ".join("NULL" if name in self._missing else name for name in TRIAL_COLUMNS)

    def _found(self, condition: str = "", values: Mapping[str, Any] | None = None) -> list[Row]:
        """Plans in the order of :data:`PLAN_COLUMNS`."""
        return self._without_marks(self._marked(condition, values))

    def _marked(self, condition: str = "", values: Mapping[str, Any] | None = None) -> list[Row]:
        """The same, with the marks of solvers that plans have in old layouts."""
        rows = map(tuple, self._connection.execute(f"{self._select} {condition}", values or {}).fetchall())
        return [modern_plan(row) for row in rows] if self._is_old else list(rows)

    def _without_marks(self, rows: list[Row]) -> list[Row]:
        if not self._is_untimed:
            return rows
        return [(*row[:_PROVENANCE], unmarked(row[_PROVENANCE]), *row[_PROVENANCE + 1 :]) for row in rows]

    def plan(self, identifier: str) -> Row | None:
        """The plan with this full id."""
        if self._is_old:
            return next((row for row in self.plans() if row[0] == identifier), None)
        return next(iter(self._found("WHERE id = :id", {"id": identifier})), None)

    def under(self, key: PlanKey) -> list[Row]:
        """The plans whose keys are this one but for the revisions."""
        values = {name: getattr(key, name) for name in _ASKED}
        values["transpose"] = int(key.transpose)
        if self._is_old:
            if any(getattr(key, name) != getattr(PlanKey, name) for name in _NEW_FIELDS):
                return []
            values = {name: value for name, value in values.items() if name not in _NEW_FIELDS}
        return self._found("WHERE " + " AND ".join(f"{name} = :{name}" for name in values), values)

    def of_pattern(self, fingerprint: str, most: int) -> list[Row]:
        """Plans for one pattern, the newest first."""
        condition = f"WHERE fingerprint = :fingerprint ORDER BY created DESC LIMIT {most}"
        return self._found(condition, {"fingerprint": fingerprint})

    @property
    def can_be_renewed(self) -> bool:
        """Whether a lookup may give patterns the digest of today: not in old layouts, which an older akx may read."""
        return not self._is_old

    def has_former(self) -> bool:
        """Whether there are plans under former digests."""
        statement = f"SELECT 1 FROM {self._plans} WHERE length(fingerprint) = {FORMER_DIGITS} LIMIT 1"
        return self._connection.execute(statement).fetchone() is not None

    def may_have_former(self, rows: int, entries: int) -> bool:
        """Whether there may be plans for a pattern of this size under a former digest."""
        statement = (  # an index knows the fingerprints, so that the rest is read of those plans alone
            f"SELECT 1 FROM {self._plans} WHERE fingerprint IN"
            f" (SELECT fingerprint FROM {self._plans} WHERE length(fingerprint) = {FORMER_DIGITS})"
            " AND (provenance LIKE :size OR provenance NOT LIKE :told) LIMIT 1"
        )
        size = {"size": f'%"rows": {rows}, "nnz": {entries}%', "told": '%"nnz": %'}
        return self._connection.execute(statement, size).fetchone() is not None

    def may_have_former_timings(self) -> bool:
        """Whether there may be timings under a former digest; where they have no table of their own nobody knows."""
        if self._is_untimed:
            return True
        statement = f"SELECT 1 FROM {self._timings} WHERE length(fingerprint) = {FORMER_DIGITS} LIMIT 1"
        return self._connection.execute(statement).fetchone() is not None

    def rename_pattern(self, former: str, fingerprint: str) -> None:
        """Give plans, trials and timings of a pattern another digest.

        Of two plans that have one key then the better stays, of two timings the newer.
        """
        found = self._marked("WHERE fingerprint = :fingerprint", {"fingerprint": former})
        for record in decode(found, quietly=True):
            new = replace(record, key=replace(record.key, fingerprint=fingerprint))
            row = self.plan(new.id)
            there = decode([] if row is None else [row], quietly=True)
            self.remove(record.id)
            if not there or new.better_than(there[0]):
                self.put(new)
        statement = f"SELECT number, key FROM {self._trials} WHERE key LIKE :key"
        trials = self._connection.execute(statement, {"key": f'%"{former}"%'}).fetchall()
        changed = []
        for number, text in trials:
            key = PlanKey.from_json(json.loads(text) | {"fingerprint": fingerprint})
            changed.append({"number": number, "id": key.id, "key": json.dumps(key.to_json())})
        if changed:
            statement = f"UPDATE {self._trials} SET key_id = :id, key = :key WHERE number = :number"
            self._connection.executemany(statement, changed)
        if self.has_timings:
            old = [dict(zip(TIMING_COLUMNS, row, strict=True)) for row in self.timings(former)]
            self.remove_timings(row["id"] for row in old)
            when = TIMING_COLUMNS.index("created")
            newest = {row[0]: row[when] for row in self.timings(fingerprint)}
            for timing in (renamed_timing(row, fingerprint) for row in old):
                if timing["created"] > newest.get(timing["id"], ""):
                    self.put_timing(timing)

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
        if self._is_old:
            places = [PLAN_COLUMNS.index(name) for name in SKETCH_COLUMNS]
            return [tuple(row[place] for place in places) for row in self._found(f"WHERE id IN ({newest})", conditions)]
        statement = f"SELECT {', '.join(SKETCH_COLUMNS)} FROM {self._plans} WHERE id IN ({newest})"
        return self._connection.execute(statement, conditions).fetchall()  # type: ignore[no-any-return]

    def plans(self) -> list[Row]:
        """Every plan."""
        if self._is_old:
            rows = map(tuple, self._connection.execute(self._select).fetchall())
            return self._without_marks(revised_plans(rows)[0])
        return self._found()

    def put(self, record: PlanRecord) -> None:
        """Keep a plan in place of the one that its key had."""
        row = encode(record)
        columns: tuple[str, ...] = PLAN_COLUMNS
        if self._is_old:
            old = old_plan(row)
            if old is None:
                raise DatabaseError(
                    "the tables are those of an older akx, in which this plan has no place", hint=_UPGRADE
                )
            self.remove(record.id)
            row, columns = old, OLD_PLAN_COLUMNS
        self._connection.execute(_replacing(self._plans, columns), row)

    def remove(self, identifier: str) -> None:
        """Delete a plan."""
        stored = [identifier]
        if self._is_old:
            there = map(tuple, self._connection.execute(self._select).fetchall())
            stored = [row[0] for row in there if modern_plan(row)[0] == identifier]
        for one in stored:
            self._connection.execute(f"DELETE FROM {self._plans} WHERE id = :id", {"id": one})

    def trials(self, identifier: str, most: int | None = None) -> list[Row]:
        """The trials for the key with this id, in the order they were added; the newest, where `most` is given."""
        return [row[3:] for row in self.numbered_trials(identifier, most)]

    def numbered_trials(self, identifier: str, most: int | None = None) -> list[Row]:
        """The same, before each its number, and id and text of its key."""
        marks, values = _listed("id", self._stored_keys(identifier))
        # Not the column itself: a server would go through all trials from the newest on, in place of those of the keys.
        newest = f" + 0 DESC LIMIT {int(most)}" if most is not None else ""
        found = self._found_trials(f"WHERE key_id IN ({marks}) ORDER BY number{newest}", values)
        return found[::-1] if newest else found

    def every_trial(self) -> list[Row]:
        """All trials in the order they were added: id and text of the key, then the columns of :meth:`trials`."""
        rows = self._found_trials("ORDER BY number", {})
        none = set(untried_timings(rows)[0]) if self._is_untimed else set()
        return [row[1:] for row in rows if row[0] not in none]

    def remove_trials(self, numbers: Iterable[int]) -> None:
        """Delete the trials with these numbers."""
        given = [{"number": number} for number in numbers]
        if given:
            self._connection.executemany(f"DELETE FROM {self._trials} WHERE number = :number", given)

    def _found_trials(self, condition: str, values: Mapping[str, Any]) -> list[Row]:
        statement = f"SELECT number, key_id, key, {self._of_trial} FROM {self._trials} {condition}"
        rows: list[Row] = [tuple(row) for row in self._connection.execute(statement, values).fetchall()]
        if not self._is_old:
            return rows
        found = []
        for number, identifier, key, plan, *rest in rows:
            new = modern_trial(identifier, key, plan)
            of_key, provenance = ((identifier, key), rest[-1]) if new is None else (new[:2], new[2])
            found.append((number, *of_key, plan, *rest[:-1], provenance))
        return found

    def _stored_keys(self, identifier: str) -> list[str]:
        """The ids under which trials for a key are there; of old layouts all keys are looked at."""
        if not self._is_old:
            return [identifier]
        statement = f"SELECT DISTINCT key_id, key FROM {self._trials}"
        keys = decode_keys(self._connection.execute(statement).fetchall())
        return [identifier, *(stored for stored, key in keys.items() if key.id == identifier)]

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

    @property
    def has_timings(self) -> bool:
        """Whether timings of solvers have a table of their own."""
        return not self._is_untimed

    def timings(self, fingerprint: str | None = None) -> list[Row]:
        """Timings of solvers for one pattern, or all, in the order of their columns, the oldest first."""
        condition = "" if fingerprint is None else "WHERE fingerprint = :fingerprint"
        values = {} if fingerprint is None else {"fingerprint": fingerprint}
        if not self._is_untimed:
            statement = f"SELECT {', '.join(TIMING_COLUMNS)} FROM {self._timings} {condition} ORDER BY created, id"
            return [tuple(row) for row in self._connection.execute(statement, values).fetchall()]
        trials = self._found_trials("WHERE key LIKE :sisters ORDER BY number", {"sisters": "% or ca_%"})
        found = untried_timings(trials)[1]
        for row in self._marked(condition, values):
            found += marked_timings(dict(zip(PLAN_COLUMNS, row, strict=True)))
        known = (row for row in newest_timings(found) if fingerprint in (None, row["fingerprint"]))
        return [tuple(row[name] for name in TIMING_COLUMNS) for row in known]

    def timing(self, identifier: str, fingerprint: str) -> Row | None:
        """The timing of a key with this full id and pattern."""
        if self._is_untimed:
            return next((row for row in self.timings(fingerprint) if row[0] == identifier), None)
        statement = f"SELECT {', '.join(TIMING_COLUMNS)} FROM {self._timings} WHERE id = :id"
        row = self._connection.execute(statement, {"id": identifier}).fetchone()
        return None if row is None else tuple(row)

    def put_timing(self, row: Mapping[str, Any]) -> None:
        """Keep a timing, by its columns, in place of the one that its key had."""
        self._check_timings()
        self._connection.execute(_replacing(self._timings, TIMING_COLUMNS), row)

    def remove_timings(self, identifiers: Iterable[str]) -> None:
        """Delete the timings with these ids."""
        given = [{"id": identifier} for identifier in identifiers]
        if given:
            self._check_timings()
            self._connection.executemany(f"DELETE FROM {self._timings} WHERE id = :id", given)

    def _check_timings(self) -> None:
        if self._is_untimed:
            raise DatabaseError(
                "the tables are those of an older akx, in which timings of solvers have no place", hint=_UPGRADE
            )


def _replacing(table: str, columns: Sequence[str]) -> str:
    """The statement that inserts a row, or replaces the one with its id."""
    names, marks = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {changes}"


def _listed(name: str, given: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The marks of a list of values in a statement, and the values by their marks."""
    values = {f"{name}_{number}": one for number, one in enumerate(given)}
    return ", ".join(f":{mark}" for mark in values), values


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
    identifier, text = search.id, json.dumps(search.to_json())
    return [
        {
            "key_id": identifier,
            "key": text,
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
    """Trials from rows of :meth:`Tables.trials`; one that is not valid is reported and left out."""
    trials = []
    for plan, seconds, state, reason, created, clock, provenance in rows:
        try:
            samples, made = tuple(json.loads(seconds)), json.loads(provenance) if provenance else {}
            trials.append(TrialRecord(Plan.from_json(json.loads(plan)), samples, state, reason, created, clock, made))
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
            given = json.loads(text)
            key = PlanKey.from_json(given)
        except (PlanError, TypeError, ValueError, RecursionError):
            continue
        if identifier in (key.id, key_id(given)):  # the latter of one before there were revisions
            keys[identifier] = key
    return keys


def decode_keyed_trials(rows: Iterable[Row]) -> tuple[tuple[PlanKey, TrialRecord], ...]:
    """Keys and trials from rows of :meth:`Tables.every_trial`; one that is not valid is reported and left out."""
    given = list(rows)
    keys = decode_keys(given)
    trials = []
    for identifier, _, *row in given:
        if identifier not in keys:
            warnings.warn(f"trial skipped: its key {brief(identifier)} is not valid", PlanDatabaseWarning, stacklevel=3)
            continue
        trials += [(keys[identifier], trial) for trial in decode_trials([tuple(row)])]
    return tuple(trials)
