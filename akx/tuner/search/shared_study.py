"""One study by several workers: what each tells the others, and what it hears.

A study is the trials for one pattern, dtype, basis, k and class of device: the key of a search in the plan database. A
trial says which revisions, kernel sources and versions its plan has, and counts for those who have the same. So what
was measured on another class of device is another study, a schedule that has changed is tried anew, and of the others
nothing that is known is lost.

claim    before a plan is tried: a running trial in the storage. Where two claim one plan, the lower number has it
tell     after it was tried: state, reason, seconds, spread. It is then a complete, pruned or failed trial of Optuna
hear     the trials of others since the last time, with seconds as this worker would have measured them: times the
         median ratio of what both have measured

A worker that is killed leaves a claim. On its own host that ends with its process; on another it holds for as long as
it beats: while a trial lasts, its worker changes a number in the claim every twenty seconds, in a thread, and who has
looked at it for a minute without a change takes the worker for dead. Where that is a mistake, a plan is tried twice,
which costs no more than that. No clock of another machine is trusted.

A storage that fails does not end a search: it goes on alone, and tells what it has found once the storage is back.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from akx.core.errors import AkxError, DatabaseError
from akx.core.plan import Plan
from akx.plandb import PlanDatabaseWarning, PlanKey
from akx.plandb.key import build_of, search_key
from akx.tuner.candidates.sampler import quiet_optuna
from akx.tuner.history.trial import COMPLETE, FAILED, PRUNED, SHARED, Trial
from akx.tuner.measure import median
from akx.tuner.search.storage import open_storage

__all__ = ["SharedStudy", "join_study"]

_T = TypeVar("_T")
#: Version of what a trial in the storage holds.
_SCHEMA = 1
#: Seconds between two beats of a claim, and seconds after which one that does not beat counts for nothing.
_BEAT_SECONDS, _CLAIM_SECONDS = 20.0, 60.0
#: Seconds for which a storage that failed is left alone, and how many times what it took to fail, if that is more.
_REST, _REST_SHARE = 10.0, 10.0
#: What is told of a trial.
_OUTCOME = ("origin", "state", "reason", "seconds", "spread", "prepare_seconds", "error")


class SharedStudy:
    """A worker's view of the study for the key of a search, in a storage of Optuna that messages call `name`.

    Raises :class:`DatabaseError` where the study cannot be opened.
    """

    def __init__(self, storage: Any, name: str, key: PlanKey) -> None:
        import optuna

        self.name = name
        self._optuna, self._storage = optuna, storage
        self._states = optuna.trial.TrialState
        self._worker, self._process = uuid.uuid4().hex, [platform.node(), os.getpid()]
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
        return trial if not ratios or trial.seconds is None else replace(trial, seconds=median(ratios) * trial.seconds)

    # ------------------------------------------------------------------------------------------------ the storage

    def _claim(self, plan: Plan) -> bool:
        text, kernels = plan.to_json(), build_of(plan)
        said = {"schema": _SCHEMA, "plan": text, "kernels": kernels, "label": plan.label()}
        said |= {"worker": self._worker, "process": self._process}
        frozen = self._optuna.trial.create_trial(state=self._states.RUNNING, user_attrs=said)
        number = self._storage.create_new_trial(self._study, template_trial=frozen)
        self._claims[plan] = number
        if self._left is None or self._left.is_set():
            self._left = threading.Event()
            weakref.finalize(self, self._left.set)
            threading.Thread(target=_beat, args=(weakref.ref(self), self._left), name="akx claims", daemon=True).start()
        for other in self._trials():
            its = other.user_attrs
            is_before = other._trial_id < number and its.get("worker") != self._worker
            is_same = its.get("plan") == text and its.get("kernels") == kernels
            if is_before and is_same and ("outcome" in its or self._is_alive(other)):
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
                outcome = {name: value for name, value in trial.to_json().items() if name in _OUTCOME}
                self._storage.set_trial_user_attr(number, "outcome", outcome)
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
            said = one.user_attrs
            if one._trial_id in self._heard or said.get("worker") == self._worker:
                continue
            # What is of another akx, or given up, or of other sources, or was written by somebody else is passed over.
            if said.get("schema") == _SCHEMA and ("outcome" in said or not one.state.is_finished()):
                with suppress(AkxError, KeyError, TypeError, ValueError):
                    plan = Plan.from_json(said["plan"])
                    if said["kernels"] == build_of(plan) and "outcome" in said:
                        found.append((str(said["worker"]), _trial(plan, said["outcome"])))
                    elif said["kernels"] == build_of(plan):
                        if self._is_alive(one):
                            self._under_way.add(plan)
                        continue
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
        host, process = claim.user_attrs.get("process") or ("", 0)
        has_ended = host == self._process[0] and os.path.exists("/proc/self") and not os.path.exists(f"/proc/{process}")
        if claim.state.is_finished() or has_ended:
            return False
        beat, now = claim.user_attrs.get("beat"), time.monotonic()
        first, since = self._seen.setdefault(claim._trial_id, (beat, now))
        if beat != first:
            self._seen[claim._trial_id] = beat, now
            return True
        return now - since <= _CLAIM_SECONDS

    def _beat(self, number: int) -> None:
        """Say that what is claimed is still being tried."""
        resting = self._rests_until is not None and time.monotonic() < self._rests_until
        for claim in () if resting else list(self._claims.values()):
            with suppress(Exception):  # it may have ended just now; a storage that fails is told of elsewhere
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
    return None if storage is None else SharedStudy(*open_storage(storage), key)


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


def _trial(plan: Plan, outcome: dict[str, Any]) -> Trial:
    """The trial that an outcome is of; `prepare_seconds` is left out, since nothing was prepared here."""
    state, seconds = str(outcome["state"]), outcome["seconds"]
    if state not in (COMPLETE, PRUNED, FAILED) or (state == COMPLETE and not (seconds and seconds > 0)):
        raise ValueError(state)
    spread = None if outcome["spread"] is None else float(outcome["spread"])
    return Trial(-1, plan, SHARED, state, str(outcome["reason"]), None if seconds is None else float(seconds), spread)
