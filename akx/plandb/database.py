"""The plan database: lookups (:mod:`akx.plandb.lookup`), and what keeps, removes, imports and exports plans.

place       a file (:mod:`akx.plandb.store`), or a server that a team shares (:mod:`akx.plandb.server`)
history     one winning plan per key, replaced in one transaction; every trial of every search in `trials`
solvers     what their steps took in `timings`, found as plans are
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from akx.core.errors import ArgumentError, ArgumentTypeError, DatabaseError, FileFormatError
from akx.plandb.bundle import ImportReport, bundle_text, read_bundle, write_bundle
from akx.plandb.key import PlanKey, search_key
from akx.plandb.layers import USER
from akx.plandb.lookup import PlanFinder
from akx.plandb.merge import Kept, import_bundle, remove_with, rivals_of, stale_ones, take_place, trials_of
from akx.plandb.place import ServerAddress, database_place
from akx.plandb.record import PlanRecord, newest
from akx.plandb.tables import Tables, decode_keyed_trials, decode_trials, encode_trials
from akx.plandb.timing import SolverTiming, encode_timing
from akx.plandb.trial import TrialRecord

__all__ = ["PlanDatabase", "database_of", "default_database", "shared_database"]


class PlanDatabase(PlanFinder):
    """The user's plans, and read-only layers above and below them.

    Nothing is opened until needed. Lookups make no file and work without the right to write; a user's database that
    cannot be read is reported by a :class:`PlanDatabaseWarning`, and the layers answer. Safe with several processes and
    threads at once.

    Parameters
    ----------
    path : path-like or str, optional
        The file, or the URL of a PostgreSQL server, such as ``"postgresql://user@host/database"``; by default
        ``AKX_DB``, else ``plans.sqlite`` in the user's data directory.
    layers : sequence of ShippedPlans, optional
        Read-only layers below the user's plans, first wins; by default those of the system and the plans shipped with
        akx (:mod:`akx.plandb.layers`).
    timeout : float
        Seconds to wait for another process's lock.
    above : sequence of ShippedPlans, optional
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

    # ------------------------------------------------------------------------------------------------ change

    def check_writable(self) -> None:
        """Raise :class:`DatabaseError` where :meth:`put` would; make, bring up or set aside the file as it would."""
        self._store.write(lambda tables: None)

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
            rivals = rivals_of(tables, record)
            there = newest(rivals)
            if unless is not None and there is not None and there != record and unless(there):
                return there
            take_place(tables, rivals, record)
            return None

        return self._change(replace_it)

    def remove(self, identifier: str) -> Kept:
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
        entries: Iterable[tuple[str, Kept]] = (*self.entries(), *own, *timings)
        layer, found = self._resolve(identifier, {entry[1].id: entry for entry in entries}.values())
        if layer != USER:
            kind = "plan" if isinstance(found, PlanRecord) else "timing"
            file = next(filter(None, (one.place_of(found.id) for one in (*self.above, *self.layers))), None)
            raise ArgumentError(
                f"{kind} is read-only",
                found=f"{kind} {found.id[:12]} of the {layer} layer",
                hint=None if file is None else f"it is in {file}",
            )
        self._change(lambda tables: remove_with(tables, found))
        return found

    def remove_stale(self) -> tuple[Kept, ...]:
        """Remove the user's stale plans, their trials, and stale timings, all or none. Raises :class:`DatabaseError`.

        They are those of other revisions than this akx has, which it never uses again. One that is aged stays.

        Returns
        -------
        tuple of PlanRecord or SolverTiming
            What was removed.
        """
        removed: dict[str, Kept] = {}  # also those of a change that is made again, as its end was lost

        def remove_them(tables: Tables) -> None:
            for one in stale_ones(tables, quietly=True):
                remove_with(tables, one)
                removed[one.id] = one

        if self._read(stale_ones):
            self._change(remove_them)
        return tuple(removed.values())

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
        found = decode_trials(row[1:] for row in self._read(lambda tables: tables.trials(identifier, most)) or [])
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
        return self._change(lambda tables: import_bundle(tables, bundle))

    def _other_file(self, path: str | os.PathLike[str]) -> Path:
        """`path`, which must not be the database: opening that beside SQLite would drop SQLite's locks."""
        if self.path == Path(os.path.realpath(path)):
            raise DatabaseError("this is the plan database, no bundle", found=str(path), hint="pass another file name")
        return Path(path)


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
