"""Find a plan for a key, or timings, in all layers, and say why a plan is not used: the half of a database that reads.

lookup      the project's plans, the user's database, the system's plans, those shipped: the first that has the exact
            key wins; else the nearest keys' differences
cost        one indexed SELECT and one JSON parse, some tens of microseconds, and more to open the file; a lookup that
            was done before costs a look at the times and sizes of the file and its log; those of layers are looked at
            once a second at most. No compiler is imported. A server takes some milliseconds, and is asked at most every
            ten seconds whether plans have changed
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from akx.core.errors import DatabaseError, MissingDependencyError
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.key import FIELD_MEANINGS, PlanKey, device_distance, difference
from akx.plandb.layers import USER, origin
from akx.plandb.merge import NEIGHBOURS
from akx.plandb.reader import PlanReader
from akx.plandb.record import PlanRecord, aged, mismatch, newest
from akx.plandb.tables import Tables, decode
from akx.plandb.timing import SolverTiming, TimingKey, decode_timings

__all__ = ["Lookup", "PlanFinder"]

_Asked = TypeVar("_Asked", bound=Hashable)
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


class PlanFinder(PlanReader):
    """The plan, or the timings, for a key; see :class:`akx.plandb.PlanDatabase`."""

    def find(self, key: PlanKey) -> Lookup:
        """The plan stored for `key`, or what stands in the way.

        A key of :func:`akx.plandb.make_key` asks for the plan of any schedule and variant, of the revisions of today.
        Whether it is aged, :func:`akx.plandb.aged` says.

        Never raises because of the database: one that cannot be read is reported by a :class:`PlanDatabaseWarning`.
        The answer is remembered as long as neither this process nor another has changed the file or a layer.
        """
        found: Lookup = self._recalled(key, self._find)
        return found

    def _recalled(self, key: _Asked, ask: Callable[[_Asked], tuple[Any, bool]]) -> Any:
        """What is asked, from memory as long as nothing has changed; kept where all was well with the database."""
        state = self._state()
        known = self._remembered.get(key)
        if known is not None and known[0] == state:
            return known[1]
        found, is_sound = ask(key)
        if is_sound and self._store.is_settled(state[1]):
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = state, found
        return found

    def _find(self, key: PlanKey) -> tuple[Lookup, bool]:
        """:meth:`find` in the user's database and all layers; whether all was well with the database."""
        for layer in self.above:
            found = _answer(key, layer.with_fingerprint(key.fingerprint))
            if found is not None:
                return Lookup(found, [], layer.name), True

        def query(tables: Tables) -> tuple[int, list[PlanRecord], bool]:
            rows = tables.under(key)
            records = decode(rows)
            if _answer(key, records) is not None:
                return len(rows), records, False
            rows = tables.of_pattern(key.fingerprint, NEIGHBOURS)
            return len(rows), decode(rows), tables.has_former()

        try:
            number, neighbours, may_be_former = self._read(query, self._patience) or (0, [], False)
            if may_be_former and self._adopt(key.fingerprint):
                number, neighbours, _ = self._read(query, self._patience) or (0, [], False)
            found = _answer(key, neighbours)
        except (DatabaseError, MissingDependencyError) as error:
            warnings.warn(f"no plans of the user's are used: {error}", PlanDatabaseWarning, stacklevel=4)
            found, neighbours, is_sound = None, [], False
        else:
            is_sound = len(neighbours) == number
        if found is not None:
            return Lookup(found, [], USER), is_sound
        for layer in self.layers:
            found = _answer(key, layer.with_fingerprint(key.fingerprint))
            if found is not None:
                return Lookup(found, [], layer.name), is_sound
        for layer in (*self.above, *self.layers):
            neighbours += layer.with_fingerprint(key.fingerprint)
        mismatches = [(record, mismatch(key, record)) for record in neighbours]
        mismatches.sort(key=lambda pair: (len(pair[1]), device_distance(pair[0].key, key)))
        return Lookup(None, mismatches, key=key), is_sound

    def find_timings(self, key: TimingKey) -> tuple[SolverTiming, ...]:
        """The timings under a key in every layer, in the order of a lookup.

        Never raises because of the database, and is remembered, as :meth:`find` does and is.
        """
        found: tuple[SolverTiming, ...] = self._recalled(key, self._find_timings)
        return found

    def _find_timings(self, key: TimingKey) -> tuple[tuple[SolverTiming, ...], bool]:
        try:
            row = self._read(lambda tables: tables.timing(key.id), self._patience)
            own = decode_timings([] if row is None else [row])
            is_sound = row is None or bool(own)
        except (DatabaseError, MissingDependencyError) as error:
            warnings.warn(f"no timings of the user's are used: {error}", PlanDatabaseWarning, stacklevel=4)
            own, is_sound = [], False
        return tuple(timing for _, timing in self._with_layers(own) if timing.key == key), is_sound

    @property
    def _patience(self) -> float:
        """Seconds that a lookup waits for a lock."""
        return min(_LOOKUP_PATIENCE, self._store.timeout)


def _answer(key: PlanKey, records: Iterable[PlanRecord]) -> PlanRecord | None:
    """The plan that answers a lookup by `key`: of several schedules the newest."""
    return newest(record for record in records if not mismatch(key, record))
