"""A tuning run recorded on an H100, again, without a GPU: the whole of :func:`akx.tune`, trials answered from the file.

The record is ``tests/data/tuning_h100.jsonl``; ``python -m benchmarks.record_tuning`` makes another.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import mostly_nightly
from replay import UNKNOWN, Replay, without

import akx
from akx.core.errors import FileFormatError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import Recording, Settings, TuneResult, plan_key, replay
from akx.tuner.history.result import TIME_BUDGET
from akx.tuner.space import is_baseline
from akx.tuner.trace.recording import Run
from benchmarks import record_tuning
from benchmarks.gallery import GALLERY, small
from benchmarks.record_tuning import load, recorded

#: Two medians of one plan in two timings of a search are this near, and more is not asked of it (settings.noise).
NOISE = 0.02
RECORD = load()
#: The recorded run itself, with its own trials only; further runs are there to know more of the space.
THEN = RECORD.runs[0]
K = RECORD.key.k
#: Another Optuna may suggest other plans.
SAME_OPTUNA = metadata.version("optuna").split(".")[:2] == THEN.header["packages"]["optuna"].split(".")[:2]
#: Why searches ask for other plans than the recorded ones, where that is meant and there is no GPU to record again.
CHANGED = ""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix.from_any(GALLERY[RECORD.matrix_name]())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Replay:
    return installed(RECORD, monkeypatch)


@pytest.fixture
def then() -> Any:
    """What became of the recorded run."""
    assert THEN.result is not None
    return THEN.result


def installed(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> Replay:
    found = Replay(recording)
    found.install(monkeypatch)
    return found


def recorded_settings(run: Recording | Run) -> Settings:
    held = run.header["settings"]
    return Settings(**{name: held[name] for name in ("trials", "seconds", "patience", "seed")})


def tune(matrix: Matrix, db: Any = False, **changes: Any) -> TuneResult:
    return akx.tune(matrix, K, backend="cuda", db=db, settings=recorded_settings(RECORD).but(**changes))


def seconds_of(world: Replay, plan: Plan) -> float:
    """What the record says of a plan; it must be there, and complete."""
    one = world.known[plan].trial
    assert one.state == "complete"
    assert one.seconds is not None
    return one.seconds


def optimum(recording: Recording) -> float:
    assert recording.best is not None
    assert recording.best.seconds is not None
    return recording.best.seconds


def test_the_record_is_of_this_matrix_and_worth_a_replay(matrix: Matrix, then: Any) -> None:
    assert RECORD.key.fingerprint == matrix.fingerprint
    assert len(RECORD.trials) >= 100
    assert {plan.schedule for plan in RECORD.trials} >= {"sweep", "ghost", "resident"}
    own = {one.trial.plan: one.trial.seconds for one in THEN.trials if one.trial.state == "complete"}
    assert (own[Plan.from_json(then["plan"])] or 1.0) <= 1.05 * optimum(RECORD)  # the run-off is at another clock
    assert then["baseline_seconds"] / then["seconds"] > 1.7  # over plain products of the blocks
    assert then["tuning_seconds"] < 60


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_record_is_searched_without_the_matrix(seed: int) -> None:
    """`akx tune --replay`: what is not on record counts as infeasible there, so that the search goes round it."""
    found = replay(RECORD, seed=seed)
    assert found.share > 0.95
    assert found.speedup > 1.7
    assert found.missing > 10
    assert found.search_seconds < 48


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_thirty_trials_are_enough_since_few_are_wasted_on_what_is_sure_to_be_slow(seed: int) -> None:
    found = replay(RECORD, seed=seed, trials=30)
    assert found.share > 0.95
    tried = [trial for trial in found.trials if trial.origin == "baseline"]
    assert RECORD.baseline is not None
    assert RECORD.baseline.plan in {trial.plan for trial in tried if trial.state == "complete"}
    assert len(tried) <= 15  # half of them; most are of no use here, as the record has just those that were


def test_a_search_finds_a_plan_as_good_as_the_recorded_one(
    world: Replay, matrix: Matrix, tmp_path: Path, then: Any
) -> None:
    db = PlanDatabase(tmp_path / "plans.sqlite")
    result = tune(matrix, db)
    assert seconds_of(world, result.plan) <= (1 + NOISE) * seconds_of(world, Plan.from_json(then["plan"]))
    assert result.baseline_plan == Plan.from_json(then["baseline_plan"])
    assert result.speedup == pytest.approx(
        seconds_of(world, result.baseline_plan) / seconds_of(world, result.plan), rel=2 * NOISE
    )
    assert result.roofline is not None
    assert result.roofline.share == pytest.approx(result.roofline.bound_seconds / result.seconds)
    assert 0.1 < result.roofline.share <= 1
    assert world.verified[result.plan] >= 1

    key = plan_key(matrix, K, backend="cuda", device=world.device)
    assert key.device_class == RECORD.key.device_class == result.device
    assert key.device_class.startswith("cuda/NVIDIA H100")
    assert replace(RECORD.key, fingerprint=key.fingerprint) == key  # digests were others then
    record = db.find(key).record
    assert record is not None
    assert (record.plan, record.seconds, record.plan.backend) == (result.plan, result.seconds, "cuda")
    assert record.trials == result.counts.to_json()
    asked = len(world.asked)
    again = tune(matrix, db)
    assert again.reused
    assert again.plan == result.plan
    assert len(world.asked) == asked


@pytest.mark.parametrize("place", mostly_nightly(range(len(RECORD.runs)), [0]))
def test_the_recorded_searches_ask_for_the_same_plans(
    matrix: Matrix, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the record goes: what a search does between its trials took time then, and takes none here.

    A search that its time ended begins to compare the best plan with those next to it when a fifth of that is left,
    some trials sooner than here; so of such a one the trials of the first two fifths count.
    """
    run = RECORD.runs[place]
    trials = [one.trial for one in run.trials]
    if run.result is not None and run.result["stopped"] == TIME_BUDGET:
        ends = np.cumsum([trial.elapsed for trial in trials])
        trials = [
            trial for trial, end in zip(trials, ends, strict=True) if end < 0.4 * run.header["settings"]["seconds"]
        ]
    world = installed(Recording(RECORD.path, RECORD.key, (run,)), monkeypatch)
    plans, settings = [trial.plan for trial in trials], recorded_settings(run)
    has_ended = run.result is not None and run.result["stopped"] != TIME_BUDGET
    result = akx.tune(
        matrix, K, backend="cuda", db=False, settings=settings if has_ended else settings.but(trials=len(plans))
    )
    if world.asked[: len(plans)] != plans and (CHANGED or not SAME_OPTUNA):
        pytest.skip(CHANGED or "another Optuna suggests other plans: record again")
    assert world.asked[: len(plans)] == plans
    again = [(trial.plan, trial.state, trial.seconds) for trial in result.trials[: len(plans)]]
    assert again == [(trial.plan, trial.state, trial.seconds) for trial in trials]
    if has_ended:
        assert run.result is not None
        assert (len(world.asked), result.stopped) == (len(plans), run.result["stopped"])


@pytest.mark.parametrize("seed", mostly_nightly([7, 8, 9], [7]))
def test_other_seeds_come_near_the_best_of_the_record(world: Replay, matrix: Matrix, seed: int) -> None:
    """Much of what they ask for is not in the record, which costs them a trial and nothing else."""
    result = tune(matrix, seed=seed, trials=400)
    assert seconds_of(world, result.plan) <= 1.05 * optimum(RECORD)
    assert len(set(world.asked)) == len(world.asked)
    known = world.known
    for trial in result.trials:
        if trial.plan not in known:
            assert (trial.state, trial.seconds) == ("pruned", None)
    assert UNKNOWN in result.reasons["pruned"]
    assert all(finalist.plan in known for finalist in result.finalists)


def test_a_search_within_the_record_asks_for_nothing_else(world: Replay, matrix: Matrix) -> None:
    known = world.known
    settings = Settings(seed=5)
    result = akx.tune(matrix, K, backend="cuda", settings=settings, space_filter=known.__contains__)
    assert {plan for plan in world.asked if not is_baseline(plan)} <= set(known)
    assert seconds_of(world, result.plan) <= 1.05 * optimum(RECORD)


def test_the_baseline_is_the_plan_where_nothing_else_was_measured(
    monkeypatch: pytest.MonkeyPatch, matrix: Matrix
) -> None:
    """Defaults, the model's favourites and the sampler's ideas are all asked for, and none has a figure."""
    recording = without(RECORD, lambda trial: trial.plan.schedule != "sweep")
    world = installed(recording, monkeypatch)
    result = tune(matrix)
    assert is_baseline(result.plan)
    assert seconds_of(world, result.plan) <= (1 + NOISE) * optimum(recording)
    assert result.speedup == 1
    assert any(plan.schedule == "resident" for plan in world.asked)
    assert {trial.reason for trial in result.trials if trial.plan.schedule == "resident"} >= {UNKNOWN}


def test_what_gives_wrong_results_does_not_win_however_fast(world: Replay, matrix: Matrix) -> None:
    """Every plan that is nearly as fast as the best is spoilt: one of the others is found."""
    trials = [one.trial for one in world.known.values()]
    done = {trial.plan: trial.seconds for trial in trials if trial.state == "complete" and trial.seconds}
    fast = {plan for plan, seconds in done.items() if seconds < 1.05 * optimum(RECORD)}
    assert len(fast) > 3
    world.spoilt = lambda plan: "wrong result: entries missing or not finite" if plan in fast else None
    result = tune(matrix)
    assert fast & set(world.asked)
    assert result.plan not in fast
    assert seconds_of(world, result.plan) <= 1.15 * min(seconds for plan, seconds in done.items() if plan not in fast)
    assert result.speedup > 1.6


def test_recording_and_replaying_what_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recorder, on the CPU: what it writes can be read, and replayed with the same winner."""
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))
    path = tmp_path / "record.json"
    arguments = ["--small", "--backend", "cpu", "--k", "4", "--seconds", "0.6", "--others", "0.6", "-o", str(path)]
    assert record_tuning.main(arguments) == 0
    recording = load(path)
    assert all(len(line) < 10_000 for line in path.read_text().splitlines())
    run = recording.runs[0]
    assert len(recording.runs) > 1
    assert run.trials[0].trial.origin == "baseline"
    assert all((one.trial.elapsed or 0.0) > 0 for one in run.trials)
    assert {"machine", "versions", "commit", "date", "search"} <= run.header.keys()
    found = replay(recording)
    assert found.trials[0].plan == run.trials[0].trial.plan
    matrix = Matrix.from_any(small("brick"))
    world = installed(recording, monkeypatch)
    result = akx.tune(matrix, 4, backend="cpu", db=False, settings=recorded_settings(recording))
    assert world.asked[0] == run.trials[0].trial.plan
    one = world.known[result.plan].trial
    assert one.seconds is not None  # in the record, and timed: what was dropped early there may be good enough here
    with pytest.raises(SystemExit):
        record_tuning.main(["--small"])
    path.write_text('{"akx": "recording", "schema": 99}')
    with pytest.raises(FileFormatError, match="another schema"):
        load(path)


def test_a_record_without_other_searches(tmp_path: Path) -> None:
    """What is recorded does not depend on a device: two plans of a matrix of the CPU. An older record is replaced."""
    path = tmp_path / "record.jsonl"
    path.write_text("an older record\n")
    found = recorded(path, "brick", Matrix.from_any(small("brick")), 2, backend="cpu", seconds=0.3)
    (run,) = found.runs
    assert run.result is not None
    assert Plan.from_json(run.result["plan"]) in found.trials
