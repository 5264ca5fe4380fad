"""The plans and timings of a database and of the layers around it: opening, listing, and one by its id."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from akx.core.errors import ArgumentError, DatabaseError, MissingDependencyError, brief
from akx.core.fingerprint import known_pattern
from akx.core.fork_safety import ForkSafeLock
from akx.plandb.folder import ShippedPlans
from akx.plandb.key import PlanKey
from akx.plandb.layers import USER, project_plans, shipped_plans, system_plans
from akx.plandb.layout import Inspection
from akx.plandb.merge import NEIGHBOURS, Kept, rename_pattern
from akx.plandb.place import ServerAddress, database_place
from akx.plandb.record import PlanRecord
from akx.plandb.server import ServerStore
from akx.plandb.store import Store
from akx.plandb.tables import Tables, decode
from akx.plandb.timing import SolverTiming, decode_timings

__all__ = ["PlanReader", "State", "count_change"]

_T = TypeVar("_T")
_One = TypeVar("_One", bound=Kept)
#: Changes by this process, the stamp of the place, and those of the layers.
State = tuple[Any, ...]
#: Plans of other patterns that are looked at for similar matrices.
_MOST_OTHERS = 256
#: How often this process has changed the plans of the file, or on the server, at a place.
_CHANGES: Counter[Hashable] = Counter()
_LOCK = ForkSafeLock()


def count_change(place: Hashable) -> None:
    """Say that this process has changed the plans at `place`: every holder of one looks again."""
    with _LOCK:
        _CHANGES[place] += 1


class PlanReader:
    """The user's plans and the layers around them, as they are; see :class:`akx.plandb.PlanDatabase`."""

    def __init__(
        self,
        path: str | os.PathLike[str] | ServerAddress | None = None,
        *,
        layers: Sequence[ShippedPlans] | None = None,
        timeout: float = 10.0,
        above: Sequence[ShippedPlans] | None = None,
    ) -> None:
        self.path: Path | ServerAddress = database_place(path)
        self._layers = None if layers is None else tuple(layers)
        self._above = () if above is None and layers is not None else None if above is None else tuple(above)
        self._store: Store | ServerStore = (
            ServerStore(self.path, timeout) if isinstance(self.path, ServerAddress) else Store(self.path, timeout)
        )
        self._remembered: dict[Hashable, tuple[State, Any]] = {}

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
    def above(self) -> tuple[ShippedPlans, ...]:
        """The read-only layers that go before the user's plans, first wins."""
        return project_plans() if self._above is None else self._above

    @property
    def layers(self) -> tuple[ShippedPlans, ...]:
        """The read-only layers below the user's plans, first wins."""
        return (*system_plans(), shipped_plans()) if self._layers is None else self._layers

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._store.close()

    def _adopt(self, fingerprint: str) -> bool:
        """Give plans of a pattern that are kept under its former digest that of today; whether there were such.

        That can be done where this process has a matrix with the pattern (:mod:`akx.core.fingerprint`).
        """
        pattern = known_pattern(fingerprint)
        if pattern is None:
            return False
        with contextlib.suppress(DatabaseError, MissingDependencyError):
            if self._read(lambda tables: tables.has_former() and tables.of_pattern(pattern.former_digest, 1)):
                self._change(lambda tables: rename_pattern(tables, pattern.former_digest, fingerprint))
                return True
        return False

    def of_pattern(self, fingerprint: str) -> tuple[PlanRecord, ...]:
        """The plans for a pattern in every layer, 64 of the user's at most. Raises :class:`DatabaseError`."""
        self._adopt(fingerprint)
        own = decode(self._read(lambda tables: tables.of_pattern(fingerprint, NEIGHBOURS)) or [])
        around = [layer.with_fingerprint(fingerprint) for layer in (*self.above, *self.layers)]
        return (*own, *(record for records in around for record in records))

    def with_features(self, key: PlanKey, *, backend: str, least: int, most: int) -> tuple[PlanRecord, ...]:
        """Plans of every layer for other patterns whose records tell the features of their matrices.

        Of the user's the newest 256 of those that fit are looked at. Raises :class:`DatabaseError`.

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
        found = {}
        for layer in (*reversed(self.layers), None, *reversed(self.above)):
            if layer is None:
                records = decode(self._read(lambda tables: tables.of_others(wanted, _MOST_OTHERS)) or [], quietly=True)
            else:
                records = list(layer.records())
            for record in records:
                its = record.key
                is_near = least <= its.k <= most and its.fingerprint != key.fingerprint
                if is_near and its.dtype.startswith(kind) and its.device_class.startswith(device) and record.features:
                    found[record.id] = record
        return tuple(found.values())

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
        own = [record for record in self.list() if fingerprint in (None, record.key.fingerprint)]

        def of(layers: Iterable[ShippedPlans]) -> Iterator[tuple[str, PlanRecord]]:
            for layer in layers:
                records = layer.records() if fingerprint is None else layer.with_fingerprint(fingerprint)
                yield from ((layer.name, record) for record in records)

        found: dict[str, tuple[str, PlanRecord]] = {}
        for name, record in (*of(self.above), *((USER, record) for record in own), *of(self.layers)):
            found.setdefault(record.id, (name, record))
        return tuple(found.values())

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
    def generation(self) -> int:
        """How often this process has changed the plans at this place, through any object; costs next to nothing."""
        return _CHANGES[self.path]

    def file_stamp(self) -> tuple[Any, ...]:
        """What differs after another process has changed the plans, or those of a layer.

        Costs some microseconds and opens nothing; a server is asked at most every ten seconds, which takes it some
        milliseconds, and files of layers are looked at once a second at most.
        """
        return (*self._store.stamp(), self._layer_stamps())

    def _state(self) -> State:
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
            hint = "akx plans list --all shows the ids"
            raise ArgumentError("there is no such plan", found=brief(identifier), hint=hint)
        if len(found) > 1:
            ids = ", ".join(record.id[:12] for _, record in found[:4]) + (", ..." if len(found) > 4 else "")
            expected, given = "the beginning of one id", f"{brief(identifier)} ({ids})"
            raise ArgumentError("plan id is ambiguous", expected=expected, found=given, hint="give more of its digits")
        return found[0]
