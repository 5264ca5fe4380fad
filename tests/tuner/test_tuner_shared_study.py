"""Several workers on one study: nothing is tried twice, nothing mixed, and who dies costs his own trial alone."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from plandb.samples import without_root
from postgres import PostgresServer

from akx.core.errors import ArgumentTypeError, DatabaseError, InfeasibleError, MissingDependencyError
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanDatabaseWarning
from akx.tuner import Settings, TuneResult, plan_key, tune
from akx.tuner.history.trial import AS_ANOTHER, COMPLETE, FAILED, SHARED, Trial
from akx.tuner.search import shared_study as sharing
from akx.tuner.search import storage
from akx.tuner.search.shared_study import SharedStudy
from akx.tuner.search.storage import TailLock, open_storage

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
_PATIENT = Settings(patience=1000, seconds=1e6)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared" / "study.journal"


def work(matrix: Any, storage: Any, *, trials: int = 12, **options: Any) -> TuneResult:
    """One worker's search, which keeps nothing unless told so."""
    given = {"db": False, "settings": _PATIENT, "threads": 2, **options}
    return tune(matrix, 8, trials=trials, storage=storage, **given)


def own(result: TuneResult) -> list[Plan]:
    return [trial.plan for trial in result.trials if trial.origin != SHARED]


def told(storage: Any) -> list[str]:
    """Labels of the plans that workers have told of, in the order of the study."""
    opened = open_storage(storage)[0]
    trials = [t for study in opened.get_all_studies() for t in opened.get_all_trials(study._study_id)]
    return [trial.user_attrs["label"] for trial in trials if "outcome" in trial.user_attrs]


# ------------------------------------------------------------------------------------------------ searches


def test_what_one_has_tried_another_does_not_try(world: Any, matrix: Any, journal: Path) -> None:
    results = [work(matrix, journal) for _ in range(4)]
    for number, result in enumerate(results):
        before = {plan for other in results[:number] for plan in own(other)}
        again = [plan for plan in own(result) if plan in before]
        assert len(again) == (number > 0), "the best baseline alone is measured again, to compare"
        assert sum(result.counts.to_json().values()) == len(own(result)) <= 12
        assert {trial.plan for trial in result.trials} == before | set(own(result))
    assert "more trials are of 3 other workers" in " ".join(results[-1].notes)
    labels = told(journal)
    assert len(labels) == len(set(labels)), "nothing is told twice"


def test_workers_at_the_same_time_hear_of_one_another(world: Any, matrix: Any, journal: Path) -> None:
    """The second begins and ends while the first is at its tenth trial."""
    second: list[TuneResult] = []

    def meanwhile(progress: Any) -> None:
        if progress.trials == 10 and not second:
            second.append(TuneResult)  # type: ignore[arg-type]
            second[0] = work(matrix, journal, trials=20)

    first = work(matrix, journal, trials=30, callback=meanwhile)
    assert len(set(own(first)) & set(own(second[0]))) == 1
    heard = [trial.plan for trial in first.trials if trial.origin == SHARED]
    assert set(heard) == set(own(second[0])) - set(own(first))
    assert len(own(first)) == 30


def test_what_others_found_is_in_the_run_off_and_is_checked_here(
    make_world: Any, matrix: Any, journal: Path, optimum: Plan
) -> None:
    fast = make_world()
    assert work(matrix, journal, trials=80).plan == optimum
    world = make_world(cost=lambda plan: 3 * fast.cost(plan))
    found = work(matrix, journal, trials=3)
    assert found.plan == optimum
    assert optimum in world.prepared
    assert found.seconds == pytest.approx(6e-3, rel=1e-3), "its own measurement"
    theirs = next(trial for trial in found.trials if trial.plan == optimum)
    assert theirs.seconds == pytest.approx(6e-3, rel=0.02), "theirs in its own seconds"
    make_world(wrong=lambda plan, call: plan == optimum)
    assert work(matrix, journal, trials=3).plan != optimum


def test_what_failed_for_want_of_memory_is_tried_by_another(make_world: Any, matrix: Any, journal: Path) -> None:
    """Memory was short there, and how values can be stored depends on them; a wrong result is one everywhere."""

    def fails(plan: Plan) -> Exception | None:
        if plan.schedule != "front" or plan.threads != 2:
            return None
        return InfeasibleError(AS_ANOTHER) if plan.variant == "sell" else MemoryError("short")

    make_world(fails_to_prepare=fails, wrong=lambda plan, call: plan.variant == "csr" and plan.partitioner == "rcm")
    first = work(matrix, journal, trials=40)
    reasons = {trial.plan: trial.reason for trial in first.trials if trial.state in ("failed", "pruned")}
    passing = {plan for plan, reason in reasons.items() if "short" in reason or AS_ANOTHER in reason}
    wrong = {plan for plan, reason in reasons.items() if reason.startswith("wrong result")}
    assert passing
    assert wrong
    assert any(AS_ANOTHER in reason for reason in reasons.values())
    make_world()
    second = work(matrix, journal, trials=40)
    heard = {trial.plan for trial in second.trials if trial.origin == SHARED}
    assert wrong <= heard
    assert not passing & heard
    assert passing & set(own(second))
    assert second.speedup > 1.5 > first.speedup - 1.0


def test_nothing_is_mixed_that_is_not_alike(world: Any, make_matrix: Any, journal: Path) -> None:
    matrix = make_matrix()
    work(matrix, journal)
    others = (
        {"threads": 1},  # part of the class of the device
        {"basis": "newton"},
        {"start_vectors": 2},
    )
    for options in others:
        assert SHARED not in [trial.origin for trial in work(matrix, journal, **options).trials]
    assert SHARED not in [trial.origin for trial in work(make_matrix(seed=1), journal).trials]
    assert SHARED in [trial.origin for trial in work(matrix, journal).trials]


def test_a_schedule_with_other_kernels_is_tried_anew_and_nothing_else(
    world: Any, matrix: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from akx.plandb import key as keys

    first = own(work(matrix, journal, trials=30))
    changed = {plan for plan in first if plan.schedule == "front"}
    assert changed
    assert changed < set(first)
    monkeypatch.setattr(keys, "revision", lambda backend, schedule: 1 + (schedule == "front"))
    later = work(matrix, journal, trials=30)
    assert {trial.plan for trial in later.trials if trial.origin == SHARED} >= set(first) - changed - set(own(later))
    assert changed & set(own(later)), "what was told of the kernels before is not what these do"
    assert not changed & {trial.plan for trial in later.trials if trial.origin == SHARED}
    told_by_both = [label for label in told(journal) if label in {plan.label() for plan in changed & set(own(later))}]
    assert len(told_by_both) == 2 * len(set(told_by_both)), "the study has the trials of both"


def test_each_worker_keeps_its_own_trials_and_the_better_plan_stays(
    world: Any, matrix: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PlanDatabase(tmp_path / "team.sqlite", layers=()) as db:
        results = [work(matrix, journal, db=db, retune=True) for _ in range(3)]
        key = plan_key(matrix, 8, threads=2)
        assert len(db.trials(key)) == sum(len(own(result)) for result in results)
        assert db.find(key).record.plan == results[-1].plan  # type: ignore[union-attr]
        (kept,) = db.list()
        assert kept.trials == results[-1].counts.to_json()
    # A worker that has not heard of a better plan, kept while it searched, leaves it there.
    better = tmp_path / "better.sqlite"
    with PlanDatabase(better, layers=()) as db:
        best = work(matrix, None, trials=30, db=db)

        def meanwhile(progress: Any) -> None:
            if progress.trials == 2 and not db.list():
                db.put(record)

        (record,) = db.list()
        db.remove(record.id)
        slow = work(matrix, tmp_path / "other.journal", trials=3, db=db, callback=meanwhile)
        assert slow.speedup < best.speedup
        assert [one.plan for one in db.list()] == [best.plan]
        assert "another search" in " ".join(slow.notes)


def test_an_interrupted_worker_gives_its_claim_back(make_world: Any, matrix: Any, journal: Path) -> None:
    make_world(interrupt_at=900)
    first = work(matrix, journal, trials=1000)
    assert first.interrupted
    storage = open_storage(journal)[0]
    (study,) = storage.get_all_studies()
    states = [trial.state for trial in storage.get_all_trials(study._study_id)]
    assert optuna.trial.TrialState.RUNNING not in states
    make_world()
    assert not set(own(work(matrix, journal, trials=20))[1:]) & set(own(first))


def test_a_second_ctrl_c_at_a_slow_storage_does_not_lose_the_plan(
    make_world: Any, matrix: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(self: SharedStudy) -> None:
        raise KeyboardInterrupt

    make_world(interrupt_at=900)
    monkeypatch.setattr(SharedStudy, "leave", slow)
    try:
        assert work(matrix, journal, trials=1000).interrupted
    except KeyboardInterrupt:
        pytest.fail("the plan is lost")


# ------------------------------------------------------------------------------------------------ claims


@pytest.fixture
def pair(matrix: Any, world: Any) -> Callable[[], SharedStudy]:
    storage = optuna.storages.InMemoryStorage()
    return lambda: SharedStudy(storage, "memory", plan_key(matrix, 8, threads=2))


def _plan(threads: int = 1) -> Plan:
    return Plan("cpu", "sweep", "csr", k=8, threads=threads)


def test_one_of_two_that_claim_a_plan_has_it(pair: Callable[[], SharedStudy]) -> None:
    one, other = pair(), pair()
    assert one.claim(_plan())
    assert not other.claim(_plan())
    assert other.claim(_plan(2))
    assert one.hear() == other.hear() == []
    assert (one.is_under_way(_plan(2)), one.is_under_way(_plan())) == (True, False)
    one.tell(Trial(0, _plan(), "sampler", COMPLETE, seconds=2.0, spread=0.01))
    ((worker, heard),) = other.hear()
    assert (heard.plan, heard.state, heard.seconds, heard.origin) == (_plan(), COMPLETE, 2.0, SHARED)
    assert other.hear() == []
    assert not other.is_under_way(_plan())
    other.tell(Trial(0, _plan(2), "sampler", FAILED, "wrong result"))
    assert [trial.reason for _, trial in one.hear()] == ["wrong result"]
    # Both have measured one more: times are compared by that.
    for study, seconds in ((one, 1.0), (other, 3.0)):
        study.claim(_plan(3))
        study.tell(Trial(1, _plan(3), "baseline", COMPLETE, seconds=seconds))
    assert other.as_mine(worker, heard).seconds == 2.0, "told by one alone"
    late = pair()
    late.claim(_plan())
    late.tell(Trial(0, _plan(), "baseline", COMPLETE, seconds=4.0))
    told = late.hear()
    assert [late.as_mine(*each).seconds for each in told if each[1].plan == _plan(3)] == [2.0]


def _elsewhere(study: SharedStudy) -> SharedStudy:
    """The same as a worker on another host."""
    study._process = ["another host", 1]
    return study


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that this host's clock is ahead of what it was."""
    ahead, genuine = SimpleNamespace(monotonic=0.0), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: genuine() + ahead.monotonic)
    return ahead


def test_a_claim_of_another_host_counts_for_a_minute_after_it_was_seen_to_beat(
    pair: Callable[[], SharedStudy], clocks: SimpleNamespace
) -> None:
    one, other = _elsewhere(pair()), pair()
    assert one.claim(_plan())
    assert not other.claim(_plan())
    for number in range(1, 5):  # each time nearly a minute: the trial is a long one
        clocks.monotonic += 55.0
        one._beat(number)
        assert not other.claim(_plan())
        assert not other.hear()
        assert other.is_under_way(_plan())
    assert not pair().claim(_plan())
    clocks.monotonic += 61.0
    assert other.claim(_plan())


def test_a_claim_beats_while_its_trial_lasts_and_no_longer(
    pair: Callable[[], SharedStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_BEAT_SECONDS", 0.01)
    one = pair()
    assert one.claim(_plan())
    number = one._claims[_plan()]

    def beat() -> int:
        return int(one._storage.get_trial(number).user_attrs.get("beat", 0))

    def threads() -> int:
        return sum(thread.name == "akx claims" and thread.is_alive() for thread in threading.enumerate())

    def until(holds: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + 30
        while not holds() and time.monotonic() < deadline:
            time.sleep(5e-3)
        return holds()

    before = threads()
    assert until(lambda: beat() > 2)
    one.tell(Trial(0, _plan(), "sampler", COMPLETE, seconds=2.0, spread=0.01))
    last = beat()
    assert one.claim(_plan(2))
    number = one._claims[_plan(2)]
    assert until(lambda: beat() > last), "the next one beats as well"
    one.leave()
    assert until(lambda: threads() == before - 1)
    other = pair()
    assert other.claim(_plan(3))
    assert threads() == before
    del other
    assert until(lambda: threads() == before - 1), "a study that is forgotten beats no more"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc on this system")
def test_the_claim_of_a_dead_process_of_this_host_counts_for_nothing(pair: Callable[[], SharedStudy]) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    one = pair()
    one._process = [one._process[0], child]
    assert one.claim(_plan())
    assert not pair().claim(_plan())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert pair().claim(_plan())


# ------------------------------------------------------------------------------------------------ faults


def killed(matrix: Any, storage: Any, arm: Callable[[Callable[[], None]], None], **options: Any) -> None:
    """A worker in another process, which `arm` makes kill itself at some point."""
    child = os.fork()
    if child == 0:
        try:
            warnings.simplefilter("ignore")
            arm(lambda: os.kill(os.getpid(), signal.SIGKILL))
            work(matrix, storage, trials=40, **options)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def after(count: int, act: Callable[[], None]) -> Callable[[], None]:
    """Call `act` at the call of that number."""
    calls = 0

    def counted() -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            act()

    return counted


def in_write(count: int, *, torn: bool) -> Callable[[Callable[[], None]], None]:
    """Die at the change of that number: as it has been written, or when half of it has."""

    def arm(die: Callable[[], None]) -> None:
        release = TailLock.release

        def half() -> None:
            path = current[0]._path
            content = path.read_bytes()
            last = content.rstrip(b"\n").rfind(b"\n") + 1
            path.write_bytes(content[: (last + len(content)) // 2])
            die()

        due, current = after(count, half if torn else die), []

        def counted(self: TailLock) -> None:
            current[:] = [self]
            due()
            release(self)

        TailLock.release = counted  # type: ignore[method-assign]

    return arm


def in_world(world: Any, what: str, count: int) -> Callable[[Callable[[], None]], None]:
    """Die while the plan of that number is prepared, or at that call of any program."""

    def arm(die: Callable[[], None]) -> None:
        due, genuine = after(count, die), getattr(world, what)

        def counted(plan: Plan) -> Any:
            due()
            return genuine(plan)

        setattr(world, what, counted)

    return arm


@needs_fork
@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(("write", n, False), id=f"write {n}") for n in (1, 2, 3, 17, 18, 19)),
        *(pytest.param(("write", n, True), id=f"half of write {n}") for n in (1, 3, 17, 18, 19)),
        pytest.param(("prepare_cost", 7), id="preparing"),
        pytest.param(("cost", 900), id="timing"),
    ],
)  # fmt: skip
def test_a_worker_killed_anywhere_costs_its_own_trial_and_nothing_else(
    world: Any, matrix: Any, journal: Path, point: tuple[Any, ...]
) -> None:
    arm = in_write(point[1], torn=point[2]) if point[0] == "write" else in_world(world, point[0], point[1])
    killed(matrix, journal, arm)
    survived = told(journal)
    found = work(matrix, journal)
    heard = [trial.plan.label() for trial in found.trials if trial.origin == SHARED]
    assert len(survived) - len(heard) in (0, 1), "all that was told; but for the baseline, which is measured again"
    assert set(heard) <= set(survived)
    if point[0] != "write":
        assert len(survived) >= 3
    tried = [plan.label() for plan in own(found)]
    assert len(set(tried) & set(survived)) <= 1
    labels = told(journal)
    assert len(labels) == len(set(labels))


@needs_fork
@pytest.mark.parametrize("storage", ["journal", "server_url"])
def test_processes_at_the_same_time_try_nothing_twice(
    world: Any, matrix: Any, storage: str, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue(storage)  # nothing is there yet: they make it at once
    children = []
    for seed in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                warnings.simplefilter("ignore")
                work(matrix, place, trials=25, seed=seed)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    labels = told(place)
    twice = sorted(label for label in set(labels) if labels.count(label) > 1)
    assert len(labels) > 60
    assert all(label.startswith("sweep") for label in twice), "each may begin with a baseline of its own"
    assert len(twice) <= 2


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
@needs_fork
def test_a_full_disk_ends_no_search_and_loses_nothing_told_before(world: Any, matrix: Any, journal: Path) -> None:
    """A file that may not grow beyond some size: the write that reaches it is done in part, as on a full disk."""
    import resource

    work(matrix, journal)
    before, size = told(journal), journal.stat().st_size
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 3000, size + 3000))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = work(matrix, journal, trials=30)
            alone = [str(one.message) for one in caught if "goes on alone" in str(one.message)]
            status = 0 if len(alone) == 1 and "File too large" in alone[0] and len(own(result)) == 30 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert journal.stat().st_size == size + 3000
    assert not journal.read_bytes().endswith(b"\n"), "there is half a line"
    assert told(journal)[: len(before)] == before
    found = work(matrix, journal, trials=5)
    assert len([trial for trial in found.trials if trial.origin == SHARED]) >= len(before) - 1
    assert len(told(journal)) > len(before) + 3


def test_a_storage_that_fails_for_a_while(
    world: Any, matrix: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search goes on alone, says so once, and tells what it found when the storage is back."""
    from optuna.storages import JournalStorage

    genuine, calls = JournalStorage.get_all_trials, 0

    def failing(self: Any, *given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if 10 <= calls < 20:
            raise OSError(5, "Input/output error")
        return genuine(self, *given, **options)

    monkeypatch.setattr(JournalStorage, "get_all_trials", failing)
    monkeypatch.setattr(sharing, "_REST", 0.0)
    monkeypatch.setattr(sharing, "_REST_SHARE", 0.0)
    with pytest.warns(PlanDatabaseWarning, match="goes on alone") as caught:
        result = work(matrix, journal, trials=20)
    assert len([one for one in caught if "goes on alone" in str(one.message)]) == 1
    assert sorted(told(journal)) == sorted(plan.label() for plan in own(result))


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks")
def test_a_worker_that_is_stopped_within_the_journal_holds_up_nobody(
    world: Any, matrix: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-Z does: its lock is not freed. One search goes on alone, the next does not begin."""
    work(matrix, journal, trials=2)
    before = told(journal)
    monkeypatch.setattr(storage, "_PATIENCE", 0.02)
    held = TailLock(journal)

    def meanwhile(progress: Any) -> None:
        if progress.trials == 4 and not freeing.is_alive():
            held.acquire()
            freeing.start()

    freeing = threading.Timer(5.0, held.release)  # for a search that waits all the same
    with pytest.warns(PlanDatabaseWarning, match=r"goes on alone.*another worker holds"):
        assert len(own(work(matrix, journal, trials=6, callback=meanwhile))) == 6
    assert told(journal)[: len(before)] == before
    with pytest.raises(DatabaseError, match="another worker holds"):
        work(matrix, journal)
    freeing.cancel()
    held.release()
    work(matrix, journal, trials=3)
    assert len(told(journal)) > len(before)


def test_a_storage_that_takes_long_to_fail_takes_little_of_the_time(
    world: Any, matrix: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server that went away without a word: five seconds until that is known, two for a trial."""
    from optuna.storages import JournalStorage

    clock, attempts = [0.0], []

    def failing(self: Any, *given: Any, **options: Any) -> Any:
        attempts.append(clock[0])
        clock[0] += 5.0
        raise OSError(110, "Connection timed out")

    def trial_made(progress: Any) -> None:
        clock[0] += 2.0
        monkeypatch.setattr(JournalStorage, "get_all_trials", failing)

    monkeypatch.setattr(sharing, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    with pytest.warns(PlanDatabaseWarning, match="goes on alone"):
        result = work(matrix, journal, trials=40, callback=trial_made)
    assert len(own(result)) == 40
    *within, _ = attempts  # the last one is made as it leaves
    assert 1 <= len(within) <= 3, "a tenth of the time"


def test_an_answer_that_was_lost_is_no_storage_that_fails_for_good(
    world: Any, matrix: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a trial is stored and the connection breaks before that is known: the rest is told all the same."""
    from optuna.storages import JournalStorage

    genuine, calls = JournalStorage.set_trial_state_values, 0

    def lost(self: Any, *given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        found = genuine(self, *given, **options)
        if calls == 4:
            raise OSError(104, "Connection reset by peer")
        return found

    monkeypatch.setattr(JournalStorage, "set_trial_state_values", lost)
    monkeypatch.setattr(sharing, "_REST", 0.0)
    monkeypatch.setattr(sharing, "_REST_SHARE", 0.0)
    with pytest.warns(PlanDatabaseWarning, match="goes on alone"):
        result = work(matrix, journal, trials=12)
    assert told(journal) == [plan.label() for plan in own(result)]


@pytest.mark.parametrize("change", [{"schema": 2}, {"outcome": {"state": "strange"}}], ids=["schema", "outcome"])
def test_what_cannot_be_read_of_another_is_tried_here(
    world: Any, matrix: Any, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An akx of tomorrow has been at every plan: nothing of it is understood, and no search waits for it for ever."""
    storage = optuna.storages.InMemoryStorage()
    work(matrix, storage, trials=40)
    for study in storage.get_all_studies():
        for trial in storage.get_all_trials(study._study_id, deepcopy=False):
            trial.user_attrs.update(change)
    claimed: list[Plan] = []
    claim = SharedStudy.claim

    def counted(self: SharedStudy, plan: Plan) -> bool:
        assert plan not in claimed, "it is claimed over and over again"
        claimed.append(plan)
        return claim(self, plan)

    monkeypatch.setattr(SharedStudy, "claim", counted)
    found = work(matrix, storage, trials=30)
    assert len(own(found)) == len(found.trials) == 30


# ------------------------------------------------------------------------------------------------ storages


def test_files_of_another_kind_are_refused_and_left_alone(world: Any, matrix: Any, tmp_path: Path) -> None:
    foreign = tmp_path / "matrix.mtx"
    foreign.write_bytes(b"%%MatrixMarket matrix\n1 1 1\n1 1 4")
    (tmp_path / "folder").mkdir()
    for place, match in ((foreign, "another kind"), (tmp_path / "folder", "directory"), (foreign / "x", "directory")):
        with pytest.raises(DatabaseError, match=match) as caught:
            work(matrix, place)
        assert "--storage" in (caught.value.hint or "")
    assert foreign.read_bytes() == b"%%MatrixMarket matrix\n1 1 1\n1 1 4"
    with pytest.raises(DatabaseError, match="folder of the storage does not exist") as mistyped:
        work(matrix, tmp_path / "foldr" / "study.journal")
    assert "mkdir -p" in (mistyped.value.hint or "")
    assert not (tmp_path / "foldr").exists(), "nobody else would be at that study"
    with pytest.raises(ArgumentTypeError, match="storage"):
        work(matrix, 7)
    for url, match in (("mysql://a@b/c", "this kind"), ("postgresql://a:xyzzy@/b?host=/nowhere", "cannot be reached")):
        with pytest.raises((DatabaseError, MissingDependencyError)) as found:
            work(matrix, url)
        assert match in str(found.value) or "akx[postgres]" in str(found.value)
        assert "xyzzy" not in str(found.value)
    assert world.prepared == [], "before any time is spent"


@pytest.mark.parametrize(
    "line",
    ['{"op_code": 99, "worker_id": "w"}', '{"op_code": 0, "worker_id": "w"}', '{"op_code": 0, "worker_id"', "[1]"],
    ids=["of a newer Optuna", "without a field", "cut off in the middle", "no object"],
)
def test_a_journal_that_cannot_be_replayed_is_an_error_of_its_own(
    world: Any, matrix: Any, journal: Path, line: str
) -> None:
    work(matrix, journal, trials=2)
    journal.write_text(journal.read_text() + f"{line}\n" + journal.read_text())
    world.prepared.clear()
    with pytest.raises(DatabaseError, match="storage cannot be read"):
        work(matrix, journal)
    assert world.prepared == []


def test_a_device_is_no_journal(world: Any, matrix: Any) -> None:
    with pytest.raises(DatabaseError, match="no file"):
        work(matrix, os.devnull)
    assert not Path(f"{os.devnull}.lock").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such rights")
@pytest.mark.parametrize(
    ("folder", "expected"),
    [(0o755, 0o644), (0o775, 0o664), (0o2770, 0o664), (0o777, 0o666), (0o1777, 0o664)],
    ids=["own", "group", "setgid", "everybody", "sticky"],
)
def test_who_may_write_in_the_folder_may_write_the_journal(journal: Path, folder: int, expected: int) -> None:
    journal.parent.chmod(folder)
    before = os.umask(0o022)
    try:
        open_storage(journal)
    finally:
        os.umask(before)
    lock = journal.with_name("study.journal.lock")
    assert [f"{path.stat().st_mode & 0o777:o}" for path in (journal, lock)] == [f"{expected:o}"] * 2
    journal.chmod(0o600)
    open_storage(journal)
    assert journal.stat().st_mode & 0o777 == 0o600, "what somebody has set stays"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes files of another's")
@pytest.mark.parametrize("which", ["study.journal", "study.journal.lock", "."])
def test_a_journal_of_somebody_else_is_refused_with_the_cure(which: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # others cannot reach pytest's
        journal, place = Path(folder) / "study.journal", Path(folder) / which
        os.chmod(folder, 0o755 if which == "." else 0o777)
        if which != ".":
            open_storage(journal)
            place.chmod(0o644)
        with pytest.raises(DatabaseError, match="Permission denied") as caught:
            without_root(lambda: open_storage(journal)[1])
    assert caught.value.found == f"{place}, which belongs to root"
    rights = "g+rwxs" if which == "." else "g+rw"
    assert f"ask root to run `chmod {rights} {journal if which != '.' else place}" in (caught.value.hint or "")
    assert (caught.value.hint or "").endswith(f"; or {_ANOTHER}")


def _hint_of(place: str) -> str:
    with pytest.raises(DatabaseError) as caught:
        open_storage(place)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(_ANOTHER)
    assert "--db" not in caught.value.hint
    assert "AKX_DB" not in caught.value.hint
    return caught.value.hint.removesuffix(_ANOTHER)


_ANOTHER = "give another --storage: a file in a shared directory, or postgresql://user@host/database"


def test_the_hint_is_the_cure_and_not_only_to_go_elsewhere(tmp_path: Path) -> None:
    assert "%2F" in _hint_of("postgresql://ann:se/cret@host/plans")
    assert "pass its path" in _hint_of("sqlite:///study.db")
    for place in ("", str(tmp_path)):
        assert _hint_of(place) == ""


def test_the_hint_of_a_server_is_the_cure(postgres_server: PostgresServer) -> None:
    database = postgres_server.new_database()
    assert "~/.pgpass" in _hint_of(postgres_server.url(database, "guest:xyzzy"))
    assert "createdb" in _hint_of(postgres_server.url("nothing"))
    postgres_server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database)
    hint = _hint_of(postgres_server.url(database, "guest:se%2Fcret"))
    assert "Optuna's tables" in hint
    assert "akx_" not in hint


def test_a_study_on_a_server_beside_the_plans(world: Any, matrix: Any, server_url: str) -> None:
    with PlanDatabase(server_url, layers=()) as db:
        first = work(matrix, server_url, db=db)
        second = work(matrix, server_url, trials=20, db=db, retune=True)
        assert len(set(own(first)) & set(own(second))) <= 2, "the best baseline, and the plan that was kept"
        assert db.find(plan_key(matrix, 8, threads=2)).record.plan == second.plan  # type: ignore[union-attr]


@needs_fork
@pytest.mark.parametrize("point", [("prepare_cost", 7), ("cost", 900)], ids=["preparing", "timing"])
def test_a_worker_killed_beside_a_server_costs_its_own_trial_and_nothing_else(
    world: Any, matrix: Any, server_url: str, point: tuple[str, int]
) -> None:
    killed(matrix, server_url, in_world(world, *point))
    survived = told(server_url)
    assert len(survived) >= 3
    found = work(matrix, server_url)
    heard = [trial.plan.label() for trial in found.trials if trial.origin == SHARED]
    assert len(survived) - len(heard) in (0, 1), "all that was told; but for the baseline, which is measured again"
    assert set(heard) <= set(survived)
    assert len({plan.label() for plan in own(found)} & set(survived)) <= 1
    labels = told(server_url)
    assert len(labels) == len(set(labels))


def test_a_server_killed_during_a_search(
    world: Any, matrix: Any, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told is there, the search goes on alone and tells the rest when the server is back."""
    url = postgres_server.url(postgres_server.new_database())
    work(matrix, url, trials=5)
    before = told(url)
    steps = iter(range(100))
    monkeypatch.setattr(random, "random", lambda: 0.0)  # how long Optuna waits before it tries again
    monkeypatch.setattr(sharing, "_REST", 0.0)
    monkeypatch.setattr(sharing, "_REST_SHARE", 0.0)

    def meanwhile(progress: Any) -> None:
        step = next(steps)
        if step == 5:
            postgres_server.kill()
        if step == 8:
            postgres_server.start()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanDatabaseWarning)
        result = work(matrix, url, trials=12, callback=meanwhile)
    assert len(own(result)) == 12
    after_all = told(url)
    assert after_all[: len(before)] == before
    assert {plan.label() for plan in own(result)} <= set(after_all)
