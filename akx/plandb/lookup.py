"""Find a plan for a key, or timings, in all layers, and say why a plan is not used: the half of a database that reads.

lookup      the project's plans, the user's database, the system's plans, those shipped: the first that has the exact
            key wins; else the nearest keys' differences
cost        one indexed SELECT and one JSON parse, some tens of microseconds, and more to open the file; a lookup that
            was done before costs a look at the times and sizes of the file and its log; those of layers are looked at
            once a second at most. No compiler is imported. A server takes some milliseconds, and is asked at most every
            ten seconds whether plans have changed
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from akx.core.errors import ArgumentError, DatabaseError, MissingDependencyError, brief
from akx.core.fork_safety import ForkSafeLock
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.former import former_of, of_layer, of_user, renewed, timings_under
from akx.plandb.key import FIELD_MEANINGS, PlanKey, device_distance, difference, search_key
from akx.plandb.layers import USER, PlanLayer, origin, project_plans, shipped_plans, system_plans
from akx.plandb.merge import NEIGHBOURS, Kept, trials_of
from akx.plandb.migrate import Inspection
from akx.plandb.place import ServerAddress, database_place
from akx.plandb.record import PlanRecord, Sketch, aged, mismatch, newest
from akx.plandb.server import ServerStore
from akx.plandb.store import Store
from akx.plandb.tables import Row, Tables, decode, decode_keyed_trials, decode_trials
from akx.plandb.timing import SolverTiming, TimingKey, decode_timings
from akx.plandb.trial import TrialRecord

__all__ = ["Lookup", "PlanReader", "count_change"]

_T = TypeVar("_T")
_Asked = TypeVar("_Asked", bound=Hashable)
_One = TypeVar("_One", bound=Kept)
#: Changes by this process, the stamp of the place, and those of the layers.
_State = tuple[Any, ...]
#: Plans of other patterns that are looked at for similar matrices.
_SKETCHED = 256
#: Seconds a lookup waits for a lock before it goes on without the user's database.
_LOOKUP_PATIENCE = 1.0
#: Lookups that are remembered.
_REMEMBERED = 256
#: How often this process has changed the plans of the file, or on the server, at a place.
_CHANGES: Counter[Hashable] = Counter()
_LOCK = ForkSafeLock()


def count_change(place: Hashable) -> None:
    """Say that this process has changed the plans at `place`: every holder of one looks again."""
    with _LOCK:
        _CHANGES[place] += 1


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


class PlanReader:
    """What :class:`akx.plandb.PlanDatabase` does without changing plans."""

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
        return f"{type(self).__name__}({str(self.path)!r})"

    def __enter__(self) -> Self:
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
        return (partial(type(self), layers=self._layers, timeout=self._store.timeout, above=self._above), (self.path,))

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
        state = self._state()
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
            rows = tables.of_pattern(key.fingerprint, NEIGHBOURS)
            records = decode(rows)
            if former is not None:
                old = tables.of_pattern(former, NEIGHBOURS)
                rows, records = rows + old, records + renewed(decode(old), key.fingerprint)
            return len(rows), records, None if tables.is_old else former

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
            old = former or self._read(lambda tables: None if tables.is_old else former_of(tables, fingerprint))
            if old is not None:
                self._change(lambda tables: tables.rename_pattern(old, fingerprint))
                return True
        return False

    def of_pattern(self, fingerprint: str) -> tuple[PlanRecord, ...]:
        """The plans for a pattern in every layer, 64 of the user's at most. Raises :class:`DatabaseError`."""
        self._adopt(fingerprint)

        def query(tables: Tables) -> list[PlanRecord]:
            former, records = former_of(tables, fingerprint), decode(tables.of_pattern(fingerprint, NEIGHBOURS))
            old = [] if former is None else decode(tables.of_pattern(former, NEIGHBOURS))
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

    # ------------------------------------------------------------------------------------------------ timings

    def find_timings(self, key: TimingKey) -> tuple[SolverTiming, ...]:
        """The timings under a key in every layer, in the order of a lookup.

        Never raises because of the database, and is remembered, as :meth:`find` does and is.
        """
        state = self._state()
        known = self._timed.get(key)
        if known is not None and known[0] == state:
            return known[1]

        def query(tables: Tables) -> tuple[Row | None, str | None]:
            row = tables.timing(key.id)
            former = former_of(tables, key.fingerprint, timings=True) if row is None else None
            if former is not None:
                row = tables.timing(replace(key, fingerprint=former).id)
            return row, None if tables.is_old else former

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
            return [trials_of(tables, record) for record in records]

        found = self._read(query) or [[]] * len(records)
        return tuple(tuple(trial for _, trial in trials) for trials in found)

    def all_trials(self) -> tuple[tuple[PlanKey, TrialRecord], ...]:
        """Every trial in the user's database with the key it is kept under, in the order they were added.

        Also those of a search that was killed before it had a plan. Raises :class:`DatabaseError`.
        """
        return decode_keyed_trials(self._read(lambda tables: tables.every_trial()) or [])

    # ------------------------------------------------------------------------------------------------ the tables

    def _read(self, action: Callable[[Tables], _T], patience: float | None = None) -> _T | None:
        """`action` on the tables, or None where there are none yet."""
        return self._store.read(action, patience)

    def _write(self, action: Callable[[Tables], _T], *, patience: float | None = None) -> _T:
        """`action` on the tables in one transaction; it may be done twice."""
        return self._store.write(action, patience=patience)

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
        return _CHANGES[self.path]

    def file_stamp(self) -> tuple[Any, ...]:
        """What differs after another process has changed the plans, or those of a layer.

        Costs some microseconds and opens nothing; a server is asked at most every ten seconds, which takes it some
        milliseconds, and files of layers are looked at once a second at most.
        """
        return (*self._store.stamp(), self._layer_stamps())

    def _state(self) -> _State:
        """What an answer depends on; taken before the file is read, so that a change since is seen."""
        return self.generation, self._store.stamp(), self._layer_stamps()

    def _layer_stamps(self) -> tuple[Hashable, ...]:
        return tuple(layer.stamp() for layer in (*self.above, *self.layers))

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
