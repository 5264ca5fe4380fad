"""One study by several workers: what each tells the others, and what it hears.

A study is the trials for one pattern, dtype, basis, k and class of device: the key of a search in the plan database. A
trial says which revisions, kernel sources and versions its plan has, and counts for those who have the same. So what
was measured on another class of device is another study, a schedule that has changed is tried anew, and of the others
nothing that is known is lost.

claim    before a plan is tried: a running trial in the storage. Where two claim one plan, the lower number has it
tell     after it was tried: state, reason, seconds, spread. It is then a complete, pruned or failed trial of Optuna
hear     the trials of others since the last time, with seconds as this worker would have measured them: times the
         median ratio of what both have measured

A worker that is killed leaves a claim. On its own host it holds for as long as the process is alive, by its number and
the time it began, and no longer. On another host it holds for as long as it beats: while a trial lasts, its worker
changes a number in the claim every twenty seconds, in a thread, and who has looked at it for a minute without a change
takes the worker for dead, as who finds a claim that is days old and never beat. Where that is a mistake, a plan is
tried twice, which costs no more than that. No clock of another machine is trusted further.

A storage that fails does not end a search: it goes on alone, and tells what it has found once the storage is back.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from akx.core.errors import AkxError, DatabaseError
from akx.core.plan import Plan
from akx.plandb import PlanDatabaseWarning, PlanKey
from akx.plandb.key import build_of, search_key
from akx.tuner.history.result import COMPLETE, FAILED, PRUNED, SHARED, Trial
from akx.tuner.measure import median
from akx.tuner.search.storage import open_storage, quiet_optuna

__all__ = ["SharedStudy", "join_study"]

_T = TypeVar("_T")
#: Version of what a trial in the storage holds.
_SCHEMA = 1
#: Seconds between two beats of a claim, and seconds after which one that does not beat counts for nothing.
_BEAT_SECONDS, _CLAIM_SECONDS = 20.0, 60.0
#: Seconds by the clocks of two hosts after which it counts for nothing at once.
_CLAIM_AGE = 86400.0
#: Seconds for which a storage that failed is left alone, and how many times what it took to fail, if that is more.
_REST, _REST_SHARE = 10.0, 10.0


@dataclass(frozen=True)
class _Place:
    """Which process on which host: enough to see from the same host whether it is alive."""

    host: str
    pid: int
    born: str

    @staticmethod
    def here() -> _Place:
        return _Place(_host(), os.getpid(), _born(os.getpid()))

    def is_alive(self) -> bool | None:
        """Whether it is there; None where one cannot tell, as of a process of another host."""
        return _born(self.pid) == self.born if self.born and self.host == _host() else None


class SharedStudy:
    """A worker's view of the study for `key`.

    Parameters
    ----------
    storage : optuna.storages.BaseStorage
        Where it is.
    name : str
        The storage's name, for messages.
    key : PlanKey
        What is tuned for: the key of a search.

    Raises
    ------
    DatabaseError
        Where the study cannot be opened.
    """

    def __init__(self, storage: Any, name: str, key: PlanKey) -> None:
        import optuna

        self.name = name
        self._optuna, self._storage = optuna, storage
        self._states = optuna.trial.TrialState
        self._worker = uuid.uuid4().hex
        self._place = _Place.here()
        self._claims: dict[Plan, int] = {}
        self._mine: dict[Plan, float] = {}
        self._untold: list[tuple[int | None, Trial]] = []
        self._heard: set[int] = set()
        self._seen: dict[int, tuple[Any, float]] = {}
        self._left: threading.Event | None = None
        self._under_way: set[Plan] = set()
        self._theirs: dict[str, dict[Plan, float]] = {}
        self._rests_until: float | None = None
        self._has_warned = False
        shared = search_key(key)
        try:
            with quiet_optuna():
                study = optuna.create_study(
                    storage=storage, study_name=f"akx {shared.id}", direction="minimize", load_if_exists=True
                )
                self._study = storage.get_study_id_from_name(study.study_name)
                if "key" not in study.user_attrs:
                    study.set_user_attr("key", shared.to_json())
        except Exception as error:
            raise self._error(error) from None

    @property
    def workers(self) -> int:
        """Other workers that have been heard of."""
        return len(self._theirs)

    def is_under_way(self, plan: Plan) -> bool:
        """Whether another worker was trying a plan when the study was last looked at."""
        return plan in self._under_way

    def claim(self, plan: Plan) -> bool:
        """Say that a plan is about to be tried here; false where another worker has it."""
        return self._guarded(lambda: self._claim(plan), True)

    def tell(self, trial: Trial) -> None:
        """Tell what became of a plan."""
        if trial.state == COMPLETE and trial.seconds is not None:
            self._mine[trial.plan] = trial.seconds
        self._untold.append((self._claims.pop(trial.plan, None), trial))
        self._guarded(self._tell_all, None)

    def leave(self) -> None:
        """Tell what could not be told yet, and give back what was claimed and not tried, as where Ctrl-C came."""
        if self._left is not None:
            self._left.set()
        self._rests_until = None
        self._guarded(self._tell_all, None)
        claimed, self._claims = list(self._claims.values()), {}
        for number in claimed:
            self._guarded(partial(self._end, number, self._states.FAIL), None)

    def hear(self) -> list[tuple[str, Trial]]:
        """Trials of others that ended since the last time, in the order of the study, each with its worker."""
        return self._guarded(self._hear, [])

    def as_mine(self, worker: str, trial: Trial) -> Trial:
        """A trial of another worker as this one would have measured it: their devices are alike, not the same."""
        theirs = self._theirs[worker]
        ratios = [self._mine[plan] / seconds for plan, seconds in theirs.items() if plan in self._mine]
        if not ratios or trial.seconds is None:
            return trial
        return replace(trial, seconds=median(ratios) * trial.seconds)

    # ------------------------------------------------------------------------------------------------ the storage

    def _claim(self, plan: Plan) -> bool:
        text = plan.to_json()
        frozen = self._optuna.trial.create_trial(
            state=self._states.RUNNING,
            user_attrs={
                "schema": _SCHEMA,
                "plan": text,
                "kernels": build_of(plan),
                "label": plan.label(),
                "worker": self._worker,
                "place": [self._place.host, self._place.pid, self._place.born],
                "begun": time.time(),
            },
        )
        number = self._storage.create_new_trial(self._study, template_trial=frozen)
        self._claims[plan] = number
        if self._left is None or self._left.is_set():
            self._left = threading.Event()
            weakref.finalize(self, self._left.set)
            beat = threading.Thread(target=_beat, args=(weakref.ref(self), self._left), name="akx claims", daemon=True)
            beat.start()
        for other in self._trials():
            attributes = other.user_attrs
            if other._trial_id >= number or attributes.get("plan") != text or attributes.get("worker") == self._worker:
                continue
            if attributes.get("kernels") != frozen.user_attrs["kernels"]:
                continue
            if "outcome" in attributes or self._is_alive(other):
                del self._claims[plan]
                self._end(number, self._states.FAIL)
                return False
        return True

    def _tell_all(self) -> None:
        while self._untold:
            number, trial = self._untold[0]
            if number is None:  # claimed while the storage failed
                self._claim(trial.plan)
                number = self._claims.pop(trial.plan, None)
            if number is not None and not self._storage.get_trial(number).state.is_finished():
                self._storage.set_trial_user_attr(number, "outcome", _outcome(trial))
                kinds = {COMPLETE: self._states.COMPLETE, PRUNED: self._states.PRUNED, FAILED: self._states.FAIL}
                self._end(number, kinds[trial.state], trial.seconds)
            self._untold.pop(0)  # one that was finished was told before, and the answer was lost

    def _end(self, number: int, state: Any, seconds: float | None = None) -> None:
        values = [seconds] if state == self._states.COMPLETE and seconds is not None else None
        self._storage.set_trial_state_values(number, state, values)

    def _hear(self) -> list[tuple[str, Trial]]:
        self._tell_all()
        found: list[tuple[str, Trial]] = []
        self._under_way = set()
        for one in self._trials():
            attributes = one.user_attrs
            if one._trial_id in self._heard or attributes.get("worker") == self._worker:
                continue
            outcome = attributes.get("outcome")
            if attributes.get("schema") != _SCHEMA or (outcome is None and one.state.is_finished()):
                self._heard.add(one._trial_id)  # of another akx, or given up: nothing is known of its plan
                continue
            try:
                plan = Plan.from_json(attributes["plan"])
                if attributes["kernels"] != build_of(plan):
                    self._heard.add(one._trial_id)  # of other sources than those here
                    continue
                if outcome is None:
                    if self._is_alive(one):
                        self._under_way.add(plan)
                    continue
                found.append((str(attributes["worker"]), _trial(plan, outcome)))
            except (AkxError, KeyError, TypeError, ValueError):
                pass  # somebody else wrote this
            self._heard.add(one._trial_id)
        for worker, trial in found:
            theirs = self._theirs.setdefault(worker, {})
            if trial.state == COMPLETE and trial.seconds is not None:
                theirs[trial.plan] = trial.seconds
        return found

    def _trials(self) -> list[Any]:
        return list(self._storage.get_all_trials(self._study, deepcopy=False))

    def _is_alive(self, claim: Any) -> bool:
        """Whether the worker of a running trial may still be at it."""
        if claim.state.is_finished():
            return False
        attributes = claim.user_attrs
        alive = _Place(*(attributes.get("place") or ("", 0, ""))).is_alive()
        if alive is not None:
            return alive
        beat, now = attributes.get("beat"), time.monotonic()
        first, since = self._seen.setdefault(claim._trial_id, (beat, now))
        if beat != first:
            self._seen[claim._trial_id] = beat, now
            return True
        age = abs(time.time() - float(attributes.get("begun", 0.0)))
        return now - since <= _CLAIM_SECONDS and (beat is not None or age <= _CLAIM_AGE)

    def _beat(self, number: int) -> None:
        """Say that what is claimed is still being tried."""
        resting = self._rests_until is not None and time.monotonic() < self._rests_until
        for claim in () if resting else list(self._claims.values()):
            with contextlib.suppress(
                Exception
            ):  # it may have ended just now; a storage that fails is told of elsewhere
                self._storage.set_trial_user_attr(claim, "beat", number)

    def _guarded(self, action: Callable[[], _T], otherwise: _T) -> _T:
        """What `action` gives, or `otherwise` where the storage fails, or did a moment ago."""
        begin = time.monotonic()
        if self._rests_until is not None and begin < self._rests_until:
            return otherwise
        try:
            with quiet_optuna():
                found = action()
        except Exception as error:  # whatever a file system, a server or its driver come up with
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(f"the search goes on alone: {self._error(error)}", PlanDatabaseWarning, stacklevel=4)
            end = time.monotonic()
            self._rests_until = end + max(_REST, _REST_SHARE * (end - begin))
            return otherwise
        self._rests_until = None
        return found

    def _error(self, error: Exception) -> DatabaseError:
        words = " ".join(str(error).split())[:200]
        return DatabaseError(
            "storage of the study cannot be used",
            found=f"{self.name} ({type(error).__name__}: {words})",
            hint="check the file or the server, or leave --storage out",
        )


def join_study(storage: Any, key: PlanKey) -> SharedStudy | None:
    """The study for `key` in a storage, as :func:`akx.tuner.search.storage.open_storage` takes it; None without one."""
    if storage is None:
        return None
    opened, name = open_storage(storage)
    return SharedStudy(opened, name, key)


def _beat(study: weakref.ref[SharedStudy], left: threading.Event) -> None:
    """Beat for the claims of a study until it is left, or forgotten."""
    number = 0
    while not left.wait(_BEAT_SECONDS):
        found = study()
        if found is None:
            return
        number += 1
        found._beat(number)
        del found


def _outcome(trial: Trial) -> dict[str, Any]:
    kept = ("origin", "state", "reason", "seconds", "spread", "prepare_seconds", "error")
    return {name: value for name, value in trial.to_json().items() if name in kept}


def _trial(plan: Plan, outcome: dict[str, Any]) -> Trial:
    """The trial that an outcome is of; `prepare_seconds` is left out, since nothing was prepared here."""
    state, seconds = str(outcome["state"]), outcome["seconds"]
    if state not in (COMPLETE, PRUNED, FAILED) or (state == COMPLETE and not (seconds and seconds > 0)):
        raise ValueError(state)
    spread = None if outcome["spread"] is None else float(outcome["spread"])
    return Trial(-1, plan, SHARED, state, str(outcome["reason"]), None if seconds is None else float(seconds), spread)


def _host() -> str:
    """This host, as long as it runs, and the processes that are seen from here."""
    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _born(pid: int) -> str:
    """When a process began, in the system's own units; "" where there is none or one cannot tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""
