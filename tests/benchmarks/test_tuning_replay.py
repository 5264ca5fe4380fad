"""A tuning run recorded on an H100, again, without a GPU: the whole of :func:`akx.tune`, trials answered from the file.

The record is ``tests/data/tuning_h100.json``; ``python -m benchmarks.record_tuning`` makes another.
"""

from __future__ import annotations

import copy
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from replay import UNKNOWN, Replay, without

import akx
from akx.matrix import Matrix
from akx.plan import Plan
from akx.plandb import PlanDatabase, kernel_hash
from akx.tuner import Settings, TuneResult, plan_key
from akx.tuner.space import is_baseline
from benchmarks import record_tuning
from benchmarks.gallery import GALLERY, small
from benchmarks.record_tuning import load, plan_of, recorded

#: Two medians of one plan in two timings of a search are this near, and more is not asked of it (settings.noise).
NOISE = 0.02
DOCUMENT = load()
#: A search that is not the recorded one asks for other plans: those of the record are then its whole world.
SAME_OPTUNA = metadata.version("optuna").split(".")[:2] == DOCUMENT["versions"]["optuna"].split(".")[:2]
SAME_SEARCH = SAME_OPTUNA and record_tuning.search_hash() == DOCUMENT.get("search")


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix.from_any(GALLERY[DOCUMENT["matrix"]]())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Replay:
    found = Replay(copy.deepcopy(DOCUMENT))
    found.install(monkeypatch)
    return found


def installed(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Replay:
    found = Replay(document)
    found.install(monkeypatch)
    return found


def tune(matrix: Matrix, db: Any = False, **changes: Any) -> TuneResult:
    settings = Settings(**{**DOCUMENT["settings"], **changes})
    return akx.tune(matrix, DOCUMENT["k"], backend="cuda", db=db, settings=settings)


def seconds_of(world: Replay, plan: Plan) -> float:
    """What the record says of a plan; it must be there, and complete."""
    one = world.known()[plan]
    assert one["state"] == "complete"
    return float(one["seconds"])


def optimum(document: dict[str, Any]) -> float:
    done = [one for one in [*document["trials"], *document["others"]] if one["state"] == "complete"]
    return float(min(one["seconds"] for one in done))


def test_the_record_is_of_this_matrix_and_worth_a_replay(matrix: Matrix) -> None:
    assert matrix.fingerprint == DOCUMENT["fingerprint"]
    plans = [plan_of(DOCUMENT, one["plan"]) for one in [*DOCUMENT["trials"], *DOCUMENT["others"]]]
    assert len(set(plans)) == len(plans) >= 100
    assert {plan.schedule for plan in plans} >= {"sweep", "ghost", "resident"}
    result = DOCUMENT["result"]
    assert result["seconds"] <= 1.05 * optimum(DOCUMENT)
    assert result["baseline_seconds"] / result["seconds"] > 4
    assert result["tuning_seconds"] < 90


def test_a_search_finds_a_plan_as_good_as_the_recorded_one(world: Replay, matrix: Matrix, tmp_path: Path) -> None:
    db = PlanDatabase(tmp_path / "plans.sqlite")
    result, then = tune(matrix, db), DOCUMENT["result"]
    assert seconds_of(world, result.plan) <= (1 + NOISE) * seconds_of(world, plan_of(DOCUMENT, then["plan"]))
    assert result.baseline_plan == plan_of(DOCUMENT, then["baseline"])
    assert result.speedup == pytest.approx(then["baseline_seconds"] / then["seconds"], rel=2 * NOISE)
    assert result.roofline is not None
    assert 0.2 < result.roofline.share <= 1
    assert world.verified[result.plan] >= 1

    key = plan_key(matrix, DOCUMENT["k"], backend="cuda", device=world.device)
    assert key.device_class == then["device_class"] == result.device
    assert key.device_class.startswith("cuda/NVIDIA H100")
    assert key.kernel_hash == kernel_hash("cuda") != kernel_hash("cpu")
    assert "cuda-bindings" in key.versions
    record = db.find(key).record
    assert record is not None
    assert (record.plan, record.seconds, record.plan.backend) == (result.plan, result.seconds, "cuda")
    assert record.trials == result.counts.to_json()
    asked = len(world.asked)
    again = tune(matrix, db)
    assert again.reused
    assert again.plan == result.plan
    assert len(world.asked) == asked


@pytest.mark.skipif(not SAME_SEARCH, reason="the search, or Optuna, is not the recorded one: record again")
def test_the_recorded_search_asks_for_the_same_plans(world: Replay, matrix: Matrix) -> None:
    result, then = tune(matrix), DOCUMENT["result"]
    assert world.asked == [plan_of(DOCUMENT, one["plan"]) for one in DOCUMENT["trials"]]
    assert result.stopped == then["stopped"]
    assert result.counts.complete == sum(one["state"] == "complete" for one in DOCUMENT["trials"])
    assert result.tuning_seconds == pytest.approx(then["tuning_seconds"], rel=0.1)
    assert not [trial for trial in result.trials if trial.reason == UNKNOWN]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_come_near_the_best_of_the_record(world: Replay, matrix: Matrix, seed: int) -> None:
    """Much of what they ask for is not in the record, which costs them a trial and nothing else."""
    result = tune(matrix, seed=seed, trials=400)
    assert seconds_of(world, result.plan) <= 1.05 * optimum(DOCUMENT)
    assert len(set(world.asked)) == len(world.asked)
    known = world.known()
    for trial in result.trials:
        if trial.plan not in known and trial.state != "pruned":
            assert (trial.state, trial.reason, trial.seconds) == ("failed", UNKNOWN, None)
    assert all(finalist.plan in known for finalist in result.finalists)


def test_a_search_within_the_record_asks_for_nothing_else(world: Replay, matrix: Matrix) -> None:
    known = world.known()
    settings = Settings(seed=5)
    result = akx.tune(matrix, DOCUMENT["k"], backend="cuda", settings=settings, space_filter=known.__contains__)
    assert {plan for plan in world.asked if not is_baseline(plan)} <= set(known)
    assert seconds_of(world, result.plan) <= 1.05 * optimum(DOCUMENT)


def test_the_baseline_is_the_plan_where_nothing_else_was_measured(
    monkeypatch: pytest.MonkeyPatch, matrix: Matrix
) -> None:
    """Defaults, the model's favourites and the sampler's ideas are all asked for, and none has a figure."""
    document = without(copy.deepcopy(DOCUMENT), lambda one: one["plan"]["schedule"] != "sweep")
    world = installed(document, monkeypatch)
    result = tune(matrix)
    assert is_baseline(result.plan)
    assert seconds_of(world, result.plan) <= (1 + NOISE) * optimum(document)
    assert result.speedup == 1
    assert any(plan.schedule == "resident" for plan in world.asked)
    assert {trial.reason for trial in result.trials if trial.plan.schedule == "resident"} >= {UNKNOWN}


def test_what_gives_wrong_results_does_not_win_however_fast(world: Replay, matrix: Matrix) -> None:
    """Every plan that is nearly as fast as the best is spoilt: one of the others is found."""
    done = {plan: one["seconds"] for plan, one in world.known().items() if one["state"] == "complete"}
    fast = {plan for plan, seconds in done.items() if seconds < 1.05 * optimum(DOCUMENT)}
    assert len(fast) > 3
    world.spoilt = lambda plan: "wrong result: entries missing or not finite" if plan in fast else None
    result = tune(matrix)
    assert fast & set(world.asked)
    assert result.plan not in fast
    assert seconds_of(world, result.plan) <= 1.15 * min(seconds for plan, seconds in done.items() if plan not in fast)
    assert result.speedup > 3


def test_recording_and_replaying_what_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recorder, on the CPU: what it writes can be read, and replayed with the same winner."""
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))
    path = tmp_path / "record.json"
    arguments = ["--small", "--backend", "cpu", "--k", "4", "--seconds", "1.5", "--others", "1.5", "-o", str(path)]
    assert record_tuning.main(arguments) == 0
    document = load(path)
    assert all(len(line) < 10_000 for line in path.read_text().splitlines())
    assert document["trials"][0]["origin"] == "baseline"
    assert all(one["elapsed"] >= 0 for one in document["trials"])
    matrix = Matrix.from_any(small("brick"))
    world = installed(document, monkeypatch)
    settings = Settings(**document["settings"])
    result = akx.tune(matrix, 4, backend="cpu", db=False, settings=settings)
    assert world.asked[0] == plan_of(document, document["trials"][0]["plan"])
    assert seconds_of(world, result.plan) > 0  # in the record, and complete
    with pytest.raises(SystemExit):
        record_tuning.main(["--small"])
    path.write_text('{"schema": 99}')
    with pytest.raises(ValueError, match="record it again"):
        load(path)


def test_a_record_without_other_searches() -> None:
    """What is recorded does not depend on a device: two plans of a matrix of the CPU."""
    document = recorded("brick", Matrix.from_any(small("brick")), 2, backend="cpu", seconds=0.3)
    assert document["others"] == []
    assert document["result"]["plan"] in [one["plan"] for one in document["trials"]]
