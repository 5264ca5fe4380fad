"""The plan database: find a plan for a key, keep the winners of a search, and say why a plan is not used.

place       a file (:mod:`akx.plandb.store`), or a server that a team shares (:mod:`akx.plandb.server_store`)
lookup      the project's plans, the user's database, the system's plans, those shipped: the first that has the exact
            key wins; else the nearest keys' differences
cost        one indexed SELECT and one JSON parse, some tens of microseconds, and more to open the file; a lookup that
            was done before costs a look at the times and sizes of the file and its log; those of layers are looked at
            once a second at most. No compiler is imported. A server takes some milliseconds, and is asked at most every
            ten seconds whether plans have changed
history     one winning plan per key, replaced in one transaction; every trial of every search in `trials`
solvers     what their steps took in `timings`, found as plans are
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from akx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    DatabaseError,
    FileFormatError,
    MissingDependencyError,
    brief,
)
from akx.plandb.bundle import ImportReport, bundle_text, read_bundle, write_bundle
from akx.plandb.changes import count_change, generation
from akx.plandb.files import PlanDatabaseWarning
from akx.plandb.former import former_of, of_layer, of_user, renewed, timings_under
from akx.plandb.key import FIELD_MEANINGS, PlanKey, device_distance, difference, search_key
from akx.plandb.layers import USER, PlanLayer, ShippedPlans, origin, shipped_plans
from akx.plandb.migrate import Inspection
from akx.plandb.place import ServerAddress, database_place
from akx.plandb.places import project_plans, system_plans
from akx.plandb.record import PlanRecord, TrialRecord, aged, mismatch, newest, stale_fields
from akx.plandb.server_store import ServerStore
from akx.plandb.sketches import Sketch
from akx.plandb.store import Store
from akx.plandb.tables import (
    Connection,
    Row,
    Tables,
    decode,
    decode_keyed_trials,
    decode_trials,
    encode_trials,
)
from akx.plandb.timing import SolverTiming, TimingKey, decode_timings, encode_timing

__all__ = ["Lookup", "PlanDatabase", "database_of", "default_database", "shared_database"]

_T = TypeVar("_T")
_Asked = TypeVar("_Asked", bound=Hashable)
#: Changes by this process, the stamp of the place, and those of the layers.
_State = tuple[Any, ...]
#: What is kept under an id.
_Kept = PlanRecord | SolverTiming
_One = TypeVar("_One", bound=_Kept)
#: Plans of one pattern that a failed lookup compares with.
_NEIGHBOURS = 64
#: Plans of other patterns that are looked at for similar matrices.
_SKETCHED = 256
#: Seconds a lookup waits for a lock before it goes on without the user's database.
_LOOKUP_PATIENCE = 1.0
#: Lookups that are remembered.
_REMEMBERED = 256


@dataclass(frozen=True)
class Lookup:
    """The answer to :meth:`PlanDatabase.find`.

    Attributes
    ----------
    record : PlanRecord or None
        The plan under exactly this key, or, where the key is that of a search, the newest of those that are kept for it
        under the revisions of their own schedules and variants.
    mismatches : list of (PlanRecord, list of str)
        Where there is none: the plans for the same pattern with the fields of the key in which each differs, nearest
        first.
    layer : str
        Where the record was found: ``"project"``, ``"user"``, ``"system"``, ``"shipped"``; "" where there is none.
    key : PlanKey or None
        What was looked up.
    """

    record: PlanRecord | None
    mismatches: list[tuple[PlanRecord, list[str]]]
    layer: str = ""
    key: PlanKey | None = None

    def explain(self) -> str:
        """One line: what was found, or why no plan is used."""
        if self.record is not None:
            age = aged(self.record)
            told = f", aged: {'; '.join(age)}" if age else ""
            return f"plan {self.record.id[:12]}, {origin(self.layer)}{told}"
        if not self.mismatches:
            return "no plan for this matrix"
        record, names = self.mismatches[0]
        if self.key is None:
            why = ", ".join(FIELD_MEANINGS[name] for name in names)
        else:
            why = difference(record.key, self.key, names)
        return f"plan {record.id[:12]} for this matrix is not used: it is for {why}"


class PlanDatabase:
    """The user's plans, and read-only layers above and below them.

    Nothing is opened until needed. Lookups make no file and work without the right to write; a user's database that
    cannot be read is reported by a :class:`PlanDatabaseWarning`, and the layers answer. Safe with several processes and
    threads at once.

    Parameters
    ----------
    path : path-like or str, optional
        The file, or the URL of a PostgreSQL server, such as ``"postgresql://user@host/database"``; by default
        ``AKX_DB``, else ``plans.sqlite`` in the user's data directory.
    layers : sequence of PlanLayer, optional
        Read-only layers below the user's plans, first wins; by default those of the system and the plans shipped with
        akx (:mod:`akx.plandb.places`).
    timeout : float
        Seconds to wait for another process's lock.
    above : sequence of PlanLayer, optional
        Read-only layers that go before the user's plans, first wins; by default that of the project, or none where
        `layers` are given.

    Attributes
    ----------
    path : Path or ServerAddress
        Where the plans are; as text without passwords.

    Raises
    ------
    DatabaseError
        Where `path` can be neither a file nor a server.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | ServerAddress | None = None,
        *,
        layers: Sequence[PlanLayer] | None = None,
        timeout: float = 10.0,
        above: Sequence[PlanLayer] | None = None,
    ) -> None:
        self.path: Path | ServerAddress = database_place(path)
        self._layers = None if layers is None else tuple(layers)
        self._above = () if above is None and layers is not None else None if above is None else tuple(above)
        self._store: Store | ServerStore = (
            ServerStore(self.path, timeout) if isinstance(self.path, ServerAddress) else Store(self.path, timeout)
        )
        self._remembered: dict[PlanKey, tuple[_State, Lookup]] = {}
        self._timed: dict[TimingKey, tuple[_State, tuple[SolverTiming, ...]]] = {}
        self._modern: _State | None = None  # the changes after which no plan was under a former digest

    def __repr__(self) -> str:
        return f"PlanDatabase({str(self.path)!r})"

    def __enter__(self) -> PlanDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.path, self._layers, self._store.timeout, self._above))

    @property
    def above(self) -> tuple[PlanLayer, ...]:
        """The read-only layers that go before the user's plans, first wins."""
        return project_plans() if self._above is None else self._above

    @property
    def layers(self) -> tuple[PlanLayer, ...]:
        """The read-only layers below the user's plans, first wins."""
        return (*system_plans(), shipped_plans()) if self._layers is None else self._layers

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._store.close()

    # ------------------------------------------------------------------------------------------------ lookup

    def find(self, key: PlanKey) -> Lookup:
        """The plan stored for `key`, or what stands in the way.

        A key of :func:`akx.plandb.make_key` asks for the plan of any schedule and variant, of the revisions of today.
        Whether it is aged, :func:`akx.plandb.aged` says.

        Never raises because of the database: one that cannot be read is reported by a :class:`PlanDatabaseWarning`.
        The answer is remembered as long as neither this process nor another has changed the file or a layer.
        """
        stamp = self._store.stamp()  # before the file is read: a change since is then seen
        state = self.generation, stamp, self._layer_stamps()
        known = self._remembered.get(key)
        if known is not None and known[0] == state:
            return known[1]
        found, is_sound = self._find(key, state[:2])
        self._remember(self._remembered, key, state, found, is_sound=is_sound)
        return found

    def _remember(
        self, memory: dict[_Asked, tuple[_State, _T]], key: _Asked, state: _State, found: _T, *, is_sound: bool
    ) -> None:
        """Keep an answer for as long as nothing has changed since `state`, where all was well with the database."""
        if is_sound and self._store.is_settled(state[1]):
            if len(memory) >= _REMEMBERED:
                memory.clear()
            memory[key] = state, found

    def _find(self, key: PlanKey, changes: _State) -> tuple[Lookup, bool]:
        """:meth:`find` in the user's database, after these changes, and all layers; whether all was well with it."""
        for layer in self.above:
            found = _answer(key, of_layer(layer, key.fingerprint))
            if found is not None:
                return Lookup(found, [], layer.name), True

        def query(tables: Tables) -> tuple[int, list[PlanRecord], str | None]:
            if self._modern != changes and not tables.has_former() and self._store.is_settled(changes[1]):
                self._modern = changes
            former = None if self._modern == changes else former_of(tables, key.fingerprint)
            rows = tables.under(key)
            records = decode(rows)
            if former is None and _answer(key, records) is not None:
                return len(rows), records, None
            rows = tables.of_pattern(key.fingerprint, _NEIGHBOURS)
            records = decode(rows)
            if former is not None:
                old = tables.of_pattern(former, _NEIGHBOURS)
                rows, records = rows + old, records + renewed(decode(old), key.fingerprint)
            return len(rows), records, former if tables.can_be_renewed else None

        try:
            number, neighbours, former = self._read(query, self._patience) or (0, [], None)
            if former is not None and self._adopt(key.fingerprint, former):  # else the tables cannot be changed
                number, neighbours, _ = self._read(query, self._patience) or (0, [], None)
        except (DatabaseError, MissingDependencyError) as error:
            warnings.warn(f"no plans of the user's are used: {error}", PlanDatabaseWarning, stacklevel=3)
            neighbours, is_sound = [], False
        else:
            is_sound = len(neighbours) == number
        found = _answer(key, neighbours)
        if found is not None:
            return Lookup(found, [], USER), is_sound
        for layer in self.layers:
            found = _answer(key, of_layer(layer, key.fingerprint))
            if found is not None:
                return Lookup(found, [], layer.name), is_sound
        for layer in (*self.above, *self.layers):
            neighbours += of_layer(layer, key.fingerprint)
        mismatches = [(record, mismatch(key, record)) for record in neighbours]
        mismatches.sort(key=lambda pair: (len(pair[1]), device_distance(pair[0].key, key)))
        return Lookup(None, mismatches, key=key), is_sound

    def _adopt(self, fingerprint: str, former: str | None = None) -> bool:
        """Give what is kept for a pattern that is known here the digest of today; whether that was done."""
        with contextlib.suppress(DatabaseError, MissingDependencyError):
            old = former or self._read(lambda tables: former_of(tables, fingerprint) if tables.can_be_renewed else None)
            if old is not None:
                self._change(lambda tables: tables.rename_pattern(old, fingerprint))
                return True
        return False

    def of_pattern(self, fingerprint: str) -> tuple[PlanRecord, ...]:
        """The plans for a pattern in every layer, 64 of the user's at most. Raises :class:`DatabaseError`."""
        self._adopt(fingerprint)

        def query(tables: Tables) -> list[PlanRecord]:
            former, records = former_of(tables, fingerprint), decode(tables.of_pattern(fingerprint, _NEIGHBOURS))
            old = [] if former is None else decode(tables.of_pattern(former, _NEIGHBOURS))
            return records + renewed(old, fingerprint)

        own = self._read(query) or []
        around = [of_layer(layer, fingerprint) for layer in (*self.above, *self.layers)]
        return (*own, *(record for records in around for record in records))

    def sketches(self, key: PlanKey, *, backend: str, least: int, most: int) -> tuple[Sketch, ...]:
        """Plans for other patterns at a glance, of every layer: those whose records tell features of their matrices.

        Of the user's the newest 256 of those that fit are looked at, in one pass over the table: some 20 ms for 10,000
        plans. Raises :class:`DatabaseError`.

        Parameters
        ----------
        key : PlanKey
            Of the call: plans are for the same kind of numbers, real or complex, and for another pattern.
        backend : str
            Of the plans.
        least, most : int
            Of their k.
        """
        kind, device = key.value_kind, f"{backend}/"
        wanted = {"least": least, "most": most, "fingerprint": key.fingerprint}
        wanted |= {"dtype": f"{kind}%", "device": f"{device}%"}
        rows = self._read(lambda tables: tables.sketches(wanted, _SKETCHED)) or []
        found = [Sketch.of_row(tuple(row)) for row in rows]
        for layer in (*self.above, *self.layers):
            for record in layer.records():
                other = record.key
                if (
                    least <= other.k <= most
                    and other.dtype.startswith(kind)
                    and other.device_class.startswith(device)
                    and other.fingerprint != key.fingerprint
                ):
                    found.append(Sketch.of_record(record))
        return tuple({sketch.id: sketch for sketch in reversed(found) if sketch is not None}.values())

    def with_ids(self, identifiers: Iterable[str]) -> tuple[PlanRecord, ...]:
        """The plans with these full ids, of the first layer that has each. Raises :class:`DatabaseError`."""
        wanted = tuple(identifiers)
        rows = self._read(lambda tables: [tables.plan(identifier) for identifier in wanted]) or []
        own = {record.id: record for record in decode([row for row in rows if row is not None])}

        def first(identifier: str) -> PlanRecord | None:
            above, below = ([layer.get(identifier) for layer in layers] for layers in (self.above, self.layers))
            return next((record for record in (*above, own.get(identifier), *below) if record is not None), None)

        return tuple(record for record in map(first, wanted) if record is not None)

    def list(self) -> list[PlanRecord]:
        """The user's plans, by name of the matrix, k and id. Raises :class:`DatabaseError`."""
        rows = self._read(lambda tables: tables.plans()) or []
        return sorted(decode(rows), key=lambda record: (record.matrix_name, record.key.k, record.id))

    def entries(self, fingerprint: str | None = None) -> tuple[tuple[str, PlanRecord], ...]:
        """Every plan that a lookup can find and its layer's name, in the order of a lookup; hidden ones are left out.

        Parameters
        ----------
        fingerprint : str, optional
            Only those for this pattern.
        """
        if fingerprint is not None:
            self._adopt(fingerprint)

        def of(layer: PlanLayer) -> tuple[PlanRecord, ...]:
            return layer.records() if fingerprint is None else of_layer(layer, fingerprint)

        found: dict[str, tuple[str, PlanRecord]] = {}
        for name, records in (
            *((layer.name, of(layer)) for layer in self.above),
            (USER, self.list() if fingerprint is None else of_user(self.list(), fingerprint)),
            *((layer.name, of(layer)) for layer in self.layers),
        ):
            for record in records:
                found.setdefault(record.id, (name, record))
        return tuple(entry for entry in found.values() if fingerprint in (None, entry[1].key.fingerprint))

    def get(self, identifier: str) -> PlanRecord:
        """The plan whose id begins with `identifier`, the user's or a layer's.

        Raises
        ------
        ArgumentError
            Where there is none, or more than one.
        DatabaseError
            Where the database cannot be read.
        """
        return self.entry(identifier)[1]

    def entry(self, identifier: str) -> tuple[str, PlanRecord]:
        """The same with its layer's name."""
        return self._resolve(identifier, self.entries())

    # ------------------------------------------------------------------------------------------------ change

    def check_writable(self) -> None:
        """Raise :class:`DatabaseError` where :meth:`put` would; make, migrate or set aside the file as it would."""
        self._store.write(lambda connection, layout: None)

    def put(self, record: PlanRecord, *, unless: Callable[[PlanRecord], bool] | None = None) -> PlanRecord | None:
        """Keep `record` as the plan for its key, in place of the one there was. Raises :class:`DatabaseError`.

        Where its revisions are those of today, it also takes the place of the plan of another schedule or variant that
        would answer the same lookup.

        Parameters
        ----------
        record : PlanRecord
        unless : callable, optional
            Asked of the user's plan that is there, in the transaction of the change: where it is true, that one stays.

        Returns
        -------
        PlanRecord or None
            The plan that stays; None where `record` is kept.
        """

        def replace_it(tables: Tables) -> PlanRecord | None:
            rivals = _rivals(tables, record)
            there = newest(rivals)
            if unless is not None and there is not None and there != record and unless(there):
                return there
            _replace(tables, rivals, record)
            return None

        return self._change(replace_it)

    def remove(self, identifier: str) -> _Kept:
        """Remove the user's plan or timing whose id begins with `identifier`.

        With a plan go its trials (:meth:`trials_behind`), and the timings of solvers that were taken with it.

        Returns
        -------
        PlanRecord or SolverTiming
            What was removed.

        Raises
        ------
        ArgumentError
            Where there is none, more than one, or only one of a read-only layer.
        DatabaseError
            Where the database cannot be changed.
        """
        own = [(USER, record) for record in self.list()]  # those that a project's hide, too
        timings = sorted(self.timings(), key=lambda entry: entry[0] == USER)
        entries: Iterable[tuple[str, _Kept]] = (*self.entries(), *own, *timings)
        layer, found = self._resolve(identifier, {entry[1].id: entry for entry in entries}.values())
        if layer != USER:
            kind = "plan" if isinstance(found, PlanRecord) else "timing"
            raise ArgumentError(
                f"{kind} is read-only",
                found=f"{kind} {found.id[:12]} of the {layer} layer",
                hint=self._way_out(found),
            )
        self._change(lambda tables: _remove(tables, found))
        return found

    def remove_stale(self) -> tuple[_Kept, ...]:
        """Remove the user's stale plans, their trials, and stale timings, all or none. Raises :class:`DatabaseError`.

        They are those of other revisions than this akx has, which it never uses again. One that is aged stays.

        Returns
        -------
        tuple of PlanRecord or SolverTiming
            What was removed.
        """
        removed: dict[str, _Kept] = {}  # also those of a change that is made again, as its end was lost

        def remove_them(tables: Tables) -> None:
            for one in _stale(tables, quietly=True):
                _remove(tables, one)
                removed[one.id] = one

        if self._read(_stale):
            self._change(remove_them)
        return tuple(removed.values())

    def _way_out(self, one: _Kept) -> str | None:
        """How to get rid of a plan or timing of a layer."""
        folders = (layer for layer in (*self.above, *self.layers) if isinstance(layer, ShippedPlans))
        file = next((file for file in (layer.place_of(one.id) for layer in folders) if file is not None), None)
        return None if file is None else f"it is in {file}"

    # ------------------------------------------------------------------------------------------------ timings

    def find_timings(self, key: TimingKey) -> tuple[SolverTiming, ...]:
        """The timings under a key in every layer, in the order of a lookup.

        Never raises because of the database, and is remembered, as :meth:`find` does and is.
        """
        stamp = self._store.stamp()
        state = self.generation, stamp, self._layer_stamps()
        known = self._timed.get(key)
        if known is not None and known[0] == state:
            return known[1]

        def query(tables: Tables) -> tuple[Row | None, str | None]:
            row = tables.timing(key.id, key.fingerprint)
            former = former_of(tables, key.fingerprint, timings=True) if row is None else None
            if former is not None:
                row = tables.timing(replace(key, fingerprint=former).id, former)
            return row, former if tables.can_be_renewed else None

        try:
            row, former = self._read(query, self._patience) or (None, None)
            own = [replace(timing, key=key) for timing in decode_timings([] if row is None else [row])]
            is_sound = row is None or bool(own)
            if former is not None:
                self._adopt(key.fingerprint, former)
        except (DatabaseError, MissingDependencyError) as error:
            warnings.warn(f"no timings of the user's are used: {error}", PlanDatabaseWarning, stacklevel=2)
            own, is_sound = [], False
        found = tuple(timings_under(key, (timing for _, timing in self._with_layers(own))))
        self._remember(self._timed, key, state, found, is_sound=is_sound)
        return found

    def timings(self) -> tuple[tuple[str, SolverTiming], ...]:
        """Every timing and its layer's name, in the order of a lookup. Raises :class:`DatabaseError`."""
        return self._with_layers(decode_timings(self._read(lambda tables: tables.timings()) or []))

    def _with_layers(self, own: Iterable[SolverTiming]) -> tuple[tuple[str, SolverTiming], ...]:
        """The user's timings among those of the layers, each with the name of its layer."""
        above, below = (
            [(layer.name, timing) for layer in layers for timing in layer.timings()]
            for layers in (self.above, self.layers)
        )
        return (*above, *((USER, timing) for timing in own), *below)

    def put_timing(self, timing: SolverTiming) -> None:
        """Keep a timing in place of the one that its key had. Raises :class:`DatabaseError`."""
        row = encode_timing(timing)
        self._change(lambda tables: tables.put_timing(row))

    # ------------------------------------------------------------------------------------------------ trials

    def add_trials(
        self,
        key: PlanKey,
        trials: Iterable[TrialRecord],
        *,
        corrected: Iterable[TrialRecord] = (),
        patience: float | None = None,
    ) -> int:
        """Append trials of a search for `key`, all or none. Raises :class:`DatabaseError`.

        A trial whose plan and time (``created``) are there already is not appended again: its state and reason are put
        there. So what an error has left in doubt may be given again, and is one row each.

        Each is kept with the revisions of its plan, for as long as which it holds, and with what it was made with.

        Parameters
        ----------
        key : PlanKey
        trials : iterable of TrialRecord
        corrected : iterable of TrialRecord
            Trials that are there already, of these plans and times: their states and reasons are replaced.
        patience : float, optional
            Seconds to wait for another process's lock, `timeout` by default.

        Returns
        -------
        int
            How many were appended.
        """
        rows, others = encode_trials(key, trials), encode_trials(key, corrected)
        appended = [0]

        def change(tables: Tables) -> None:
            if rows:
                appended.append(tables.add_trials(rows))
            if others:
                tables.correct_trials(others)

        if rows or others:
            self._write(change, patience=patience)
        return max(appended)  # a change that is made again, as its end was lost, may find its own rows

    def trials(self, key: PlanKey, *, most: int | None = None) -> tuple[TrialRecord, ...]:
        """The trials for a key, in the order they were added. Raises :class:`DatabaseError`.

        That is the key of a search, or of a plan that it may find. Those of other revisions than today's are left out.
        `most`: the newest so many, all by default.
        """
        identifier = search_key(key).id
        found = decode_trials(self._read(lambda tables: tables.trials(identifier, most)) or [])
        return tuple(trial for trial in found if trial.is_current)

    def trials_behind(self, record: PlanRecord) -> tuple[TrialRecord, ...]:
        """The trials of the searches for a plan's key, in the order they were added. Raises :class:`DatabaseError`.

        Of a plan of today's revisions those of :meth:`trials`; and every other of a search that has tried plans of its
        own revisions, which are all that a stale plan has.
        """
        return self.trials_behind_each((record,))[0]

    def trials_behind_each(self, records: Sequence[PlanRecord]) -> tuple[tuple[TrialRecord, ...], ...]:
        """:meth:`trials_behind` of several plans, in one read. Raises :class:`DatabaseError`."""

        def query(tables: Tables) -> list[list[tuple[int, TrialRecord]]]:
            return [_behind(tables, record) for record in records]

        found = self._read(query) or [[]] * len(records)
        return tuple(tuple(trial for _, trial in trials) for trials in found)

    def all_trials(self) -> tuple[tuple[PlanKey, TrialRecord], ...]:
        """Every trial in the user's database with the key it is kept under, in the order they were added.

        Also those of a search that was killed before it had a plan. Raises :class:`DatabaseError`.
        """
        return decode_keyed_trials(self._read(lambda tables: tables.every_trial()) or [])

    # ------------------------------------------------------------------------------------------------ transfer

    def export(
        self, path: str | os.PathLike[str], identifiers: Iterable[str] | None = None, *, description: str = ""
    ) -> int:
        """Write plans as a bundle of JSON text, with timings of solvers.

        Parameters
        ----------
        path : path-like
            The file; one that is there is only replaced where it is a bundle.
        identifiers : iterable of str, optional
            Which plans, by the beginnings of their ids, from any layer, with the timings that hold for them; by default
            all of the user's.
        description : str
            A line for the reader of the bundle.

        Returns
        -------
        int
            The number of plans written.
        """
        if identifiers is None:
            chosen = self.list()
            timings = [timing for layer, timing in self.timings() if layer == USER]
        else:
            entries = self.entries()
            resolved = [self._resolve(identifier, entries)[1] for identifier in identifiers]
            chosen = [*{record.id: record for record in resolved}.values()]
            found = (timing for _, timing in reversed(self.timings()) if any(map(timing.is_of, chosen)))
            timings = [*{timing.id: timing for timing in found}.values()]
        write_bundle(self._other_file(path), bundle_text(chosen, timings, description=description))
        return len(chosen)

    def import_(self, path: str | os.PathLike[str], *, skip_invalid: bool = False) -> ImportReport:
        """Merge the plans of a bundle into the user's, all in one transaction.

        Of two plans for one key the better one stays (:meth:`akx.plandb.PlanRecord.better_than`), of two timings the
        one whose plan is there, then the newer.

        Raises
        ------
        FileFormatError
            Where the file is no bundle, or has an invalid record and `skip_invalid` is False; nothing is imported.
        DatabaseError
            Where the database cannot be changed.
        """
        bundle = read_bundle(self._other_file(path))
        if bundle.problems and not skip_invalid:
            raise FileFormatError(
                f"bundle has {len(bundle.problems)} invalid record(s), nothing was imported",
                found=f"{path}: {bundle.problems[0]}",
                hint="correct or remove them",
            )

        def merge(tables: Tables) -> ImportReport:
            added = replaced = kept = unchanged = 0
            for record in bundle.records:
                rivals = _rivals(tables, record)
                current, is_new = newest(rivals), not rivals and tables.plan(record.id) is None
                if current == record:
                    unchanged += 1
                    continue
                if current is not None and not record.better_than(current):
                    kept += 1
                    continue
                _replace(tables, rivals, record)
                added, replaced = added + is_new, replaced + (not is_new)
            timings = sum(_merge(tables, timing) for timing in bundle.timings)
            return ImportReport(added, replaced, kept, unchanged, bundle.problems, timings)

        return self._change(merge)

    def _read(self, action: Callable[[Tables], _T], patience: float | None = None) -> _T | None:
        """`action` on the tables, or None where there are none yet."""
        return self._store.read(self._on_tables(action), patience)

    def _write(self, action: Callable[[Tables], _T], *, patience: float | None = None) -> _T:
        """`action` on the tables in one transaction; it may be done twice."""
        return self._store.write(self._on_tables(action), patience=patience)

    def _on_tables(self, action: Callable[[Tables], _T]) -> Callable[[Connection, int], _T]:
        return lambda connection, layout: action(Tables(connection, self._store.prefix, layout))

    def _change(self, action: Callable[[Tables], _T]) -> _T:
        """`action` in one transaction, after which every holder of a plan of this database looks again."""
        try:
            return self._write(action)
        finally:
            count_change(self.path)

    @property
    def _patience(self) -> float:
        """Seconds that a lookup waits for a lock."""
        return min(_LOOKUP_PATIENCE, self._store.timeout)

    @property
    def generation(self) -> int:
        """How often this process has changed the plans at this place, through any object; costs next to nothing."""
        return generation(self.path)

    def file_stamp(self) -> tuple[Any, ...]:
        """What differs after another process has changed the plans, or those of a layer.

        Costs some microseconds and opens nothing; a server is asked at most every ten seconds, which takes it some
        milliseconds, and files of layers are looked at once a second at most.
        """
        return (*self._store.stamp(), self._layer_stamps())

    def _layer_stamps(self) -> tuple[Hashable, ...]:
        return tuple(layer.stamp() for layer in (*self.above, *self.layers))

    def _other_file(self, path: str | os.PathLike[str]) -> Path:
        """`path`, which must not be the database: opening that beside SQLite would drop SQLite's locks."""
        if self.path == Path(os.path.realpath(path)):
            raise DatabaseError("this is the plan database, no bundle", found=str(path), hint="pass another file name")
        return Path(path)

    def exists(self) -> bool:
        """Whether the user's database is there. Raises :class:`DatabaseError` where its place cannot be reached."""
        return self._store.exists()

    def is_writable(self) -> bool:
        """Whether plans can be kept, as far as that is known without trying. Never raises."""
        return self._store.is_writable()

    def describe(self) -> tuple[Inspection, str]:
        """The layout, and SQLite's journal mode or which server it is. Raises :class:`DatabaseError`."""
        return self._store.describe()

    @staticmethod
    def _resolve(identifier: str, entries: Iterable[tuple[str, _One]]) -> tuple[str, _One]:
        prefix = identifier.strip().lower()
        found = [entry for entry in entries if entry[1].id.startswith(prefix)] if prefix else []
        if not found:
            raise ArgumentError(
                "there is no such plan", found=brief(identifier), hint="akx plans list --all shows the ids"
            )
        if len(found) > 1:
            ids = ", ".join(record.id[:12] for _, record in found[:4]) + (", ..." if len(found) > 4 else "")
            raise ArgumentError(
                "plan id is ambiguous", expected="the beginning of one id", found=f"{brief(identifier)} ({ids})",
                hint="give more of its digits",
            )  # fmt: skip
        return found[0]


def _answer(key: PlanKey, records: Iterable[PlanRecord]) -> PlanRecord | None:
    """The plan that answers a lookup by `key`: of several schedules the newest."""
    return newest(record for record in records if not mismatch(key, record))


def _rivals(tables: Tables, record: PlanRecord) -> list[PlanRecord]:
    """The plans of which one is to stay when `record` comes: those that answer the lookup that it answers."""
    key = record.key if stale_fields(record) else search_key(record.key)
    return [one for one in decode(tables.under(key), quietly=True) if not mismatch(key, one)]


def _replace(tables: Tables, rivals: Iterable[PlanRecord], record: PlanRecord) -> None:
    """Keep `record` instead of all of them."""
    for rival in rivals:
        if rival.id != record.id:
            tables.remove(rival.id)  # its trials are those of the search, and stay
    tables.put(record)


def _merge(tables: Tables, timing: SolverTiming) -> bool:
    """Keep a timing where it is better than the one that its key has, and has a place; whether it is."""
    if not tables.has_timings:
        return False
    there = [one for one in decode_timings(tables.timings(timing.key.fingerprint)) if one.key == timing.key]
    plans = decode(tables.of_pattern(timing.key.fingerprint, _NEIGHBOURS), quietly=True) if timing.is_choice else []

    def merit(one: SolverTiming) -> tuple[bool, datetime]:
        return any(map(one.is_of, plans)), datetime.fromisoformat(one.created)

    if any(merit(one) >= merit(timing) for one in there):
        return False
    tables.put_timing(encode_timing(timing))
    return True


def _stale(tables: Tables, *, quietly: bool = False) -> Sequence[_Kept]:
    """The plans and timings of other revisions than those of today."""
    plans = (record for record in decode(tables.plans(), quietly=quietly) if stale_fields(record))
    timings = decode_timings(tables.timings()) if tables.has_timings else []
    return (*plans, *(timing for timing in timings if timing.is_stale))


def _remove(tables: Tables, one: _Kept) -> None:
    """Delete a timing, or a plan with the trials behind it and the timings that were taken with it."""
    if isinstance(one, SolverTiming):
        return tables.remove_timings([one.id])
    tables.remove(one.id)
    tables.remove_trials(number for number, _ in _behind(tables, one))
    # Where they have no table of their own they are marks on the plan.
    timings = decode_timings(tables.timings(one.key.fingerprint)) if tables.has_timings else []
    return tables.remove_timings(timing.id for timing in timings if timing.is_of(one))


def _behind(tables: Tables, record: PlanRecord) -> list[tuple[int, TrialRecord]]:
    """The trials behind a plan, and their numbers."""
    found = []
    for number, _, _, *row in tables.numbered_trials(search_key(record.key).id):
        found += [(int(number), trial) for trial in decode_trials([tuple(row)])]
    times = {trial.created for _, trial in found if trial.revisions == record.key.revisions}
    is_current = not stale_fields(record)
    return [(n, trial) for n, trial in found if trial.created in times or (is_current and trial.is_current)]


_SHARED: dict[Path | ServerAddress, PlanDatabase] = {}


def shared_database(path: str | os.PathLike[str] | ServerAddress | None = None) -> PlanDatabase:
    """The database at `path`, as for :class:`PlanDatabase`: one object per path and process, so it opens once."""
    place = database_place(path)
    if place not in _SHARED:
        _SHARED.setdefault(place, PlanDatabase(place))
    return _SHARED[place]


def database_of(db: Any) -> PlanDatabase:
    """The database that an argument `db` names, itself where it is one. Raises :class:`ArgumentTypeError`."""
    if isinstance(db, PlanDatabase):
        return db
    if db is not None and not isinstance(db, (str, os.PathLike)):
        raise ArgumentTypeError("db is no database", expected="a path or a PlanDatabase", found=type(db).__name__)
    return shared_database(db)


def default_database() -> PlanDatabase:
    """The database of ``AKX_DB`` or of the user's data directory: one object per path and process, so it opens once."""
    return shared_database()


def _reopen(
    path: Path | ServerAddress,
    layers: Sequence[PlanLayer] | None,
    timeout: float,
    above: Sequence[PlanLayer] | None = None,
) -> PlanDatabase:
    return PlanDatabase(path, layers=layers, timeout=timeout, above=above)
