"""Trials on record: put into the plan database as they end, and where the next search for the same key goes on.

write    every two seconds or so and at the end, so that a search that is killed loses what it was at and little more. A
         database that fails is left alone for a while, and one that is slow gets a twentieth of the time: neither ends
         a search, nor makes it wait for long
read     what was tried for exactly this key, of the revisions that the trial's own schedule and variant have. Trials
         that have one time are of one search
enter    the fastest baseline on record is measured first; then the seconds of a search that has measured it as well are
         those that they would be here, times the ratio of the two figures (the median, where there are several). What
         gave a wrong result, or is infeasible, needs no figure

What is entered says where to search, and no more: it is nobody's plan until the run-off has measured it here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from akx.core.errors import DatabaseError, MissingDependencyError
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, TrialRecord, aged
from akx.plandb.record import now
from akx.tuner import measure
from akx.tuner.history.trial import AS_ANOTHER, COMPLETE, EARLIER, FAILED, PRUNED, WRONG, Trial
from akx.tuner.measure import Measurement, median
from akx.tuner.sandbox import UNANSWERED
from akx.tuner.space import is_baseline

__all__ = [
    "NO_HISTORY",
    "History",
    "TrialLog",
    "as_measured_here",
    "earlier_trials",
    "may_be_otherwise",
    "without_figures",
]

#: What refusals say that go by the values, which are no part of the key (value compression, symmetric storage).
_OF_VALUES = (" is the same as ", AS_ANOTHER, "values are not symmetric")
#: Seconds between two changes of the database, and how many times what the last one took, if that is more.
_PAUSE, _PAUSE_SHARE = 2.0, 20.0
#: Seconds for which a database that failed is left alone.
_REST = 10.0
#: Seconds that are waited, within a search, for another process that changes the database.
_PATIENCE = 0.25
#: Trials that are read, the newest: a sampler is told of each.
_MOST_TRIALS = 512


class TrialLog:
    """The trials of one search on their way into the database."""

    def __init__(self, db: PlanDatabase, key: PlanKey) -> None:
        self._db: PlanDatabase | None = db
        self._key = key
        self._began = now()
        self._new: dict[Plan, TrialRecord] = {}
        self._corrected: dict[Plan, TrialRecord] = {}
        self._there: set[Plan] = set()
        self._next = measure.now() + _PAUSE

    def trial(self, trial: Trial, nbytes: int = 0) -> None:
        """Take a trial that has ended, or one again that was found out later; never raises for the database."""
        row = TrialRecord(trial.plan, trial.samples, trial.state, trial.reason, self._began, trial.clock_hz)
        (self._corrected if trial.plan in self._there else self._new)[trial.plan] = row
        begin = measure.now()
        if begin < self._next:
            return
        least = _PAUSE
        try:
            self._put(_PATIENCE)
        except Exception:  # it is tried again, and the end of the search says so where it fails then too
            least = _REST
        end = measure.now()
        self._next = end + max(least, _PAUSE_SHARE * (end - begin))

    def end(self) -> None:
        """Put what is left into the database. Raises :class:`DatabaseError` where that cannot be done."""
        try:
            self._put(None)
        finally:
            self._new, self._corrected = {}, {}

    def leave(self) -> None:
        """The same for a search that has no result, as where its user's callback raised; and let go of the database."""
        with suppress(Exception):
            self._put(_PATIENCE)
        self._db = None  # which ends with its last holder, whoever still has the log

    def _put(self, patience: float | None) -> None:
        if self._db is None or not (self._new or self._corrected):
            return
        # After an error, or Ctrl-C, they are given again: nobody knows whether they are there, and they become no more.
        self._db.add_trials(self._key, self._new.values(), corrected=self._corrected.values(), patience=patience)
        self._there |= self._new.keys()
        self._new, self._corrected = {}, {}


@dataclass(frozen=True)
class History:
    """What earlier searches for a key have tried: the trials of each, the newest first."""

    runs: tuple[tuple[Trial, ...], ...] = ()

    def baseline(self, is_fit: Callable[[Trial], bool] = lambda trial: True) -> Plan | None:
        """The fastest baseline that fits, of the newest search with one: measured first, it tells how times compare."""
        for run in self.runs:
            done = (trial for trial in run if trial.state == COMPLETE and is_baseline(trial.plan))
            plain = list(filter(is_fit, done))
            if plain:
                return min(plain, key=_seconds).plan
        return None

    def without(self, run: tuple[Trial, ...]) -> History:
        """The same but for a search."""
        return History(tuple(other for other in self.runs if other is not run))


#: Nothing was tried.
NO_HISTORY = History()


def earlier_trials(db: PlanDatabase | None, key: PlanKey) -> History:
    """What the database has of searches for exactly this key; nothing without one, nothing of one that cannot be read.

    The newest 512 are read. Left out is what may be otherwise today: candidates that failed but for a wrong result (the
    memory was short, a process was lost) or were not given the time to tell, and ways to store values that the values
    of that day did not take; and what was not measured to the end and is aged, since today's sources may do better.
    """
    if db is None:
        return NO_HISTORY
    try:
        records = db.trials(key, most=_MOST_TRIALS)
    except (DatabaseError, MissingDependencyError):
        return NO_HISTORY
    runs: dict[str, dict[Plan, Trial]] = {}
    for record in records:
        run = runs.setdefault(record.created, {})
        if may_be_otherwise(record) or (record.state != COMPLETE and aged(record)):
            continue
        trial = _trial(record)
        if trial is not None:
            run[record.plan] = trial
    return History(tuple(tuple(run.values()) for run in reversed(runs.values())))


def as_measured_here(run: Sequence[Trial], mine: Mapping[Plan, float]) -> list[Trial] | None:
    """The trials of a search as they would have been here; None where nothing was measured both there and here."""
    ratios = [mine[trial.plan] / _seconds(trial) for trial in run if trial.state == COMPLETE and trial.plan in mine]
    if not ratios:
        return None
    ratio = median(ratios)
    return [trial if trial.seconds is None else replace(trial, seconds=ratio * trial.seconds) for trial in run]


def without_figures(run: Sequence[Trial]) -> list[Trial]:
    """The trials of a search that were wrong, or infeasible: what holds whatever the machine does."""
    return [trial for trial in run if trial.seconds is None]


def may_be_otherwise(trial: Trial | TrialRecord) -> bool:
    """Whether what became of a trial says nothing of another day, or of other values in the same pattern."""
    if trial.state == FAILED:
        return not trial.reason.startswith(WRONG)
    of_values = any(said in trial.reason for said in _OF_VALUES)
    return trial.state == PRUNED and (trial.reason.startswith(UNANSWERED) or of_values)


def _trial(record: TrialRecord) -> Trial | None:
    """The trial of a record; None of one that says it is complete and has no time."""
    if record.state == FAILED or not record.seconds:
        failed = record.state != COMPLETE
        return Trial(-1, record.plan, EARLIER, record.state, record.reason) if failed else None
    found = Measurement.of(record.seconds)
    if not found.seconds > 0:
        return None
    return Trial(-1, record.plan, EARLIER, record.state, record.reason, found.seconds, found.spread)


def _seconds(trial: Trial) -> float:
    return math.inf if trial.seconds is None else trial.seconds
