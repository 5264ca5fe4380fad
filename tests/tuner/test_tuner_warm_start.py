"""Plans of the database with which a search begins: of like devices, of the same pattern, of similar matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends.host import host_device
from akx.core.errors import DatabaseError, FileFormatError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, ShippedPlans
from akx.plandb.bundle import bundle_text
from akx.tuner import measure, plan_key, read_recording, replay, tune
from akx.tuner.candidates import warm_start as similar
from akx.tuner.candidates.warm_start import (
    NO_WARM_START,
    WarmStart,
    carried_over,
    distance,
    features_of,
    key_distance,
    similar_plans,
    warm_start_of,
)
from akx.tuner.fallback.answer import like_plans
from akx.tuner.space import Space, build_space

KIB = 1024
FEATURES = {"rows": 1000, "nnz": 5000, "row_mean": 5.0, "bandwidth": 30, "block_size": 1, "diagonals": 5}


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


@pytest.fixture
def space(world: Any, matrix: Any) -> Space:
    return build_space(matrix, 8, host_device(), threads=2)


def record(key: PlanKey, plan: Plan, **changes: Any) -> PlanRecord:
    fields: dict[str, Any] = {"seconds": 1e-3, "baseline_name": "sweep/csr", "baseline_seconds": 2e-3}
    return PlanRecord(**({"key": key, "plan": plan} | fields | changes))


def elsewhere(key: PlanKey) -> PlanKey:
    """The key on this processor with seven threads."""
    return replace(key, device_class=f"{key.device_class.removesuffix('/2 threads')}/7 threads")


def front(**changes: Any) -> Plan:
    options = {"split": "interleaved"}
    return Plan("cpu", "front", "sell", "natural", 8, 4, 256 * KIB, 2, options).replace(**changes)


def of_other_pattern(key: PlanKey, number: int, plan: Plan, **features: Any) -> PlanRecord:
    other = replace(key, fingerprint=f"{number:040x}", k=plan.k)
    return record(other, plan, provenance={"features": FEATURES | features})


def origins(result: Any) -> list[str]:
    return [trial.origin for trial in result.trials]


# ------------------------------------------------------------------------------------------------ like devices


def test_the_plan_of_a_like_device_comes_second(world: Any, matrix: Any, db: PlanDatabase) -> None:
    key = plan_key(matrix, 8)
    db.put(record(elsewhere(key), front()))
    result = tune(matrix, 8, db=db)
    behind = [trial for trial in result.trials if trial.origin != "baseline"]
    assert (behind[1].origin, behind[1].plan) == ("like", front())
    assert behind[0].origin == "predicted"
    kept = db.find(key).record
    assert kept is not None
    assert kept.provenance["features"] == dict(features_of(matrix))
    assert next(iter(kept.provenance)) == "features"
    assert tune(matrix, 8, db=db).reused


def test_like_plans_are_within_the_budgets_and_given_ones_are_not(world: Any, matrix: Any, db: PlanDatabase) -> None:
    key = plan_key(matrix, 8)
    db.put(record(elsewhere(key), front()))
    result = tune(matrix, 8, db=db, trials=4, retune=True)
    assert origins(result) == ["baseline", "baseline", "predicted", "like"]
    db.put(record(key, front(block_bytes=64 * KIB)))
    again = tune(matrix, 8, db=db, trials=2, fresh=True)
    assert origins(again) == ["baseline", "given"]  # the third trial of any kind is one too many
    assert front() not in [trial.plan for trial in again.trials]


def test_without_plans_there_are_no_seeds(matrix: Any, db: PlanDatabase, space: Space) -> None:
    key = plan_key(matrix, 8)
    assert warm_start_of(db, key, space, matrix) == NO_WARM_START
    assert similar._MEMO in matrix.pattern_cache  # known before the search: Ctrl-C behind it must not lose the plan
    assert warm_start_of(None, key, space, matrix) == NO_WARM_START


def test_seeds_are_feasible(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    def infeasible(plan: Plan) -> str | None:
        if plan.variant == "broken":
            raise ValueError("no such variant")
        return "too small" if plan.block_bytes == 16 * KIB else None

    make_world(infeasible=infeasible)
    space, key = build_space(matrix, 8, host_device(), threads=2), plan_key(matrix, 8)
    here = elsewhere(key)
    plans = [front(block_bytes=16 * KIB), front(variant="broken"), front(schedule="none"), front()]
    for number, plan in enumerate(plans):
        there = f"{host_device().device_class}/{number + 3} threads"
        db.put(record(replace(here, device_class=there), plan, baseline_seconds=4e-3 - number * 1e-4))
    near = dict(features_of(matrix))
    for number, plan in enumerate(plans[:1], 1):
        db.put(of_other_pattern(key, number, plan, **near))
    db.put(record(replace(key, revisions="other 0"), plans[0]))
    db.put(record(replace(key, revisions="other 1"), plans[1]))
    db.put(record(replace(key, revisions="other 2"), front(block_bytes=64 * KIB)))
    assert warm_start_of(db, key, space, matrix) == WarmStart((front(),), (), (front(block_bytes=64 * KIB),))


# ------------------------------------------------------------------------------------------------ the same pattern

STALE = {"revisions": "other 0"}


@pytest.mark.parametrize(
    ("change", "far"),
    [
        ({"basis": "newton"}, 0.25),
        ({"index_type": "int64"}, 0.25),
        ({"dtype": "float32"}, 0.5),
        ({"k": 16}, 1.0),
        ({"k": 2}, 2.0),
        ({"start_vectors": 4}, 2.0),
        ({"device_class": "cpu/Some Processor"}, 1.0),
        ({"dtype": "complex128"}, math.inf),
        ({"k": 33}, math.inf),
        ({"k": 1}, math.inf),
        ({"fingerprint": "f" * 40}, math.inf),
    ],
)
def test_how_far_plans_for_the_same_pattern_are(matrix: Any, change: dict[str, Any], far: float) -> None:
    key = plan_key(matrix, 8)
    assert key_distance(key, replace(key, **change)) == key_distance(replace(key, **change), key) == far
    assert key_distance(key, replace(elsewhere(key), **change)) >= far


def test_plans_for_the_same_pattern_are_seeds_the_nearest_first(matrix: Any, db: PlanDatabase, space: Space) -> None:
    key = plan_key(matrix, 8)
    changes: list[dict[str, Any]] = [STALE, {"basis": "newton"}, {"dtype": "float32"}, {"k": 16}, {"k": 2}]
    sizes = [2**i * KIB for i in range(4, 10)]
    plans = [front(block_bytes=size) for size in sizes]

    def put(numbers: Any) -> None:
        for number in numbers:
            k = changes[number].get("k", 8)
            moved = plans[number].replace(k=k, k_per_pass=k if k < 4 else 4)
            db.put(record(replace(key, **changes[number]), moved))

    def found() -> tuple[Plan, ...]:
        return warm_start_of(db, key, space, matrix).pattern

    put([4])
    assert found() == (plans[4].replace(k_per_pass=8),)  # all of them in one pass
    put([3])
    assert found() == (plans[3], plans[4].replace(k_per_pass=8))
    put([2, 1])
    assert found() == (plans[1], plans[2], plans[3])
    put([0])
    assert found() == (plans[0], plans[1], plans[2])
    db.put(record(replace(key, revisions="other 1"), plans[5], created="2020-01-01T00:00:00+00:00"))
    assert found() == (plans[0], plans[5], plans[1]), "of two that are equally far the newer first"
    db.put(record(key, front()))
    assert front() not in found(), "the plan under the very key is given"
    assert warm_start_of(db, key, space, matrix) == WarmStart(pattern=found())


def test_a_plan_of_another_revision_or_aged_is_a_little_farther(matrix: Any, db: PlanDatabase, space: Space) -> None:
    key = plan_key(matrix, 8)
    small, large = front(block_bytes=64 * KIB), front(block_bytes=128 * KIB)
    db.put(record(key, front()))
    assert front() not in warm_start_of(db, key, space, matrix).pattern, "the plan that a lookup finds is given"
    earlier = "2020-01-01T00:00:00+00:00"
    newton = replace(key, basis="newton")
    db.put(record(replace(newton, revisions="other"), small))
    db.put(record(newton, large, created=earlier))
    assert warm_start_of(db, key, space, matrix).pattern == (large, small), "nearer, though it is older"
    db.put(record(newton, large, created=earlier, provenance={"versions": {"numba": "0.1"}}))
    assert warm_start_of(db, key, space, matrix).pattern == (small, large), "as far"


def test_what_is_of_no_use_for_the_same_pattern(matrix: Any, db: PlanDatabase, space: Space) -> None:
    key = plan_key(matrix, 8)
    db.put(record(replace(key, dtype="complex128"), front()))
    db.put(record(replace(key, k=64), front(k=64)))
    db.put(record(replace(key, **STALE), front(backend="cuda")))
    db.put(record(replace(key, basis="newton"), front(block_bytes=3 * KIB)))  # outside the space
    db.put(record(replace(key, fingerprint="f" * 40), front()))
    assert warm_start_of(db, key, space, matrix) == NO_WARM_START


def test_the_plan_of_a_like_device_is_no_second_seed(matrix: Any, db: PlanDatabase, space: Space) -> None:
    key = plan_key(matrix, 8)
    db.put(record(elsewhere(key), front()))
    assert warm_start_of(db, key, space, matrix) == WarmStart((front(),))
    db.put(record(replace(key, **STALE), front()))
    assert warm_start_of(db, key, space, matrix) == WarmStart((front(),))
    db.put(record(replace(elsewhere(key), **STALE), front(block_bytes=64 * KIB)))
    assert warm_start_of(db, key, space, matrix) == WarmStart((front(),), (), (front(block_bytes=64 * KIB),))
    db.put(record(replace(key, device_class="cpu/Some Processor/2 cores/L2 1 MiB/L3 32 MiB"), front(threads=1)))
    assert warm_start_of(db, key, space, matrix).pattern == (front(block_bytes=64 * KIB), front(threads=1))


def test_the_plan_of_yesterdays_kernels_is_tried_before_those_for_similar_matrices_and_used_by_no_call(
    world: Any, matrix: Any, db: PlanDatabase
) -> None:
    key, near = plan_key(matrix, 8), dict(features_of(matrix))
    stale = record(replace(key, **STALE), front())
    db.put(stale)
    db.put(of_other_pattern(key, 1, front(block_bytes=64 * KIB), **near))
    lookup = db.find(key)
    assert (lookup.record, lookup.mismatches) == (None, [(stale, ["revisions"])])
    assert like_plans([stale], key, backend="cpu", threads=2) == []
    result = tune(matrix, 8, db=db)
    behind = [trial for trial in result.trials if trial.origin != "baseline"]
    assert [(trial.origin, trial.plan) for trial in behind[1:3]] == [
        ("pattern", front()),
        ("similar", front(block_bytes=64 * KIB)),
    ]
    assert behind[0].origin == "predicted"
    assert "pattern" not in origins(tune(matrix, 8, db=False))


def test_a_plan_that_is_wrong_by_now_is_a_failed_trial(make_world: Any, matrix: Any, db: PlanDatabase) -> None:
    make_world(wrong=lambda plan, call: plan == front())
    db.put(record(replace(plan_key(matrix, 8), **STALE), front()))
    result = tune(matrix, 8, db=db)
    (tried,) = (trial for trial in result.trials if trial.origin == "pattern")
    assert (tried.plan, tried.state) == (front(), "failed")
    assert result.plan != front()


def test_another_k_of_the_matrix_is_where_the_next_search_begins(world: Any, matrix: Any, db: PlanDatabase) -> None:
    first = tune(matrix, 8, db=db)
    second = tune(matrix, 16, db=db)
    (seed,) = (trial for trial in second.trials if trial.origin == "pattern")
    assert (seed.plan.variant, seed.plan.block_bytes) == (first.plan.variant, first.plan.block_bytes)


# ------------------------------------------------------------------------------------------------ similar matrices


def test_features_are_what_they_are_called() -> None:
    blocks = sp.kron(sp.diags_array([1.0, 2.0, 1.0], offsets=[-4, 0, 4], shape=(50, 50)), np.ones((3, 3)), format="csr")
    matrix = Matrix.from_any(blocks)
    found = features_of(matrix)
    whole = matrix.features
    names = {
        "rows": "rows",
        "nnz": "nnz",
        "bandwidth": "bandwidth",
        "block_size": "block_size",
        "diagonals": "diagonal_count",
    }
    assert {name: found[name] for name in names} == {name: getattr(whole, there) for name, there in names.items()}
    assert found["row_mean"] == pytest.approx(whole.row_mean, abs=1e-4)
    assert found["block_size"] == 3
    assert features_of(matrix.with_values(2 * matrix.data)) is found


def test_blocks_are_seen_in_a_part_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(1, 7):
        line = sp.diags_array([1.0, 2.0, 1.0], offsets=[-4, 0, 4], shape=(1200, 1200))
        matrix = Matrix.from_any(sp.kron(line, np.ones((size, size)), format="csr"))
        for most in (10**6, 100):
            monkeypatch.setattr(similar, "_ALL_ENTRIES", most)
            matrix.pattern_cache.clear()
            assert features_of(matrix)["block_size"] == size
    empty = Matrix.from_any(sp.csr_array(([1.0] * 200, ([0] * 200, range(200))), shape=(200, 200)))
    assert features_of(empty)["block_size"] == 1


def test_the_nearer_matrix_is_the_more_similar_one(matrix: Any) -> None:
    key = replace(plan_key(matrix, 8), device_class="cpu/Xeon Gold 6430/8 cores/L2 2 MiB/L3 60 MiB")

    def far(k: int = 8, device: str = key.device_class, **changes: Any) -> float:
        return distance(FEATURES, key, FEATURES | changes, replace(key, k=k, start_vectors=1, device_class=device))

    assert far() == 0
    assert 0 < far(rows=2000) < far(rows=8000) < far(row_mean=20.0)
    assert far(block_size=3) == 2
    assert far(k=16) == pytest.approx(1, abs=0.1)
    assert far(device=key.device_class.replace("6430", "6448Y")) == 0.25
    assert far(device="cpu/Some Processor") == 1
    assert far(bandwidth=0) > 0
    for wrong in ({"rows": -5}, {"bandwidth": -1}):
        assert far(**wrong) == math.inf
    assert distance(FEATURES, key, {"rows": 1000.0}, key) == math.inf


def test_plans_are_carried_over_to_another_k(space: Space) -> None:
    there = host_device().device_class
    assert carried_over(front(k=4, k_per_pass=4), there, space) == front(k_per_pass=8)  # all in one pass
    assert carried_over(front(k=16, k_per_pass=4), there, space) == front()
    assert carried_over(front(k=16, k_per_pass=3), there, space) == front(k_per_pass=2)  # the nearest there is
    assert carried_over(front(block_bytes=3 * KIB), there, space) is None
    assert carried_over(front(schedule="other"), there, space) is None
    assert carried_over(front(backend="cuda"), there, space) is None
    assert carried_over(front(options={"split": "interleaved", "new": 1}), there, space) is None
    eight = there.replace(f"{host_device().cores} cores", "8 cores")
    assert carried_over(front(threads=8), eight, space) == front()
    assert carried_over(front(threads=1), eight, space) == front(threads=1)


def test_the_nearest_few_plans_of_similar_matrices(matrix: Any, db: PlanDatabase, space: Space) -> None:
    key = plan_key(matrix, 8)
    near = dict(features_of(matrix))
    blocks = [2**i * KIB for i in range(4, 11)]
    for number, size in enumerate(blocks, 1):
        db.put(of_other_pattern(key, number, front(block_bytes=size), **near | {"rows": near["rows"] * number}))
    db.put(of_other_pattern(key, 50, front(block_bytes=blocks[0]), **near))  # the nearest plan once more
    db.put(of_other_pattern(key, 60, Plan("cpu", "sweep", "sell", k=8, threads=2), **near))  # a baseline
    db.put(of_other_pattern(key, 61, front(block_bytes=32 * KIB, k=2, k_per_pass=2), **near))  # another k
    db.put(of_other_pattern(key, 62, front(block_bytes=3 * KIB), **near))  # outside the space
    db.put(record(replace(key, fingerprint="f" * 40), front(block_bytes=64 * KIB)))  # no features
    found = similar_plans(db, key, space, matrix)
    assert found == tuple(front(block_bytes=size) for size in blocks[:3])
    far = PlanDatabase(f"{db.path}.far", layers=())
    far.put(of_other_pattern(key, 1, front(), row_mean=500.0, rows=10**9))
    assert similar_plans(far, key, space, matrix) == ()


def test_a_search_begins_with_them_after_the_predicted_plan(world: Any, matrix: Any, db: PlanDatabase) -> None:
    key, near = plan_key(matrix, 8), dict(features_of(matrix))
    db.put(of_other_pattern(key, 1, front(k=16, k_per_pass=16), **near))
    result = tune(matrix, 8, db=db)
    behind = [trial for trial in result.trials if trial.origin != "baseline"]
    assert [trial.origin for trial in behind[:3]] == ["predicted", "similar", "default"]
    assert behind[1].plan == front(k_per_pass=8)
    filtered = tune(matrix, 8, db=db, space_filter=lambda plan: True)
    assert "similar" not in origins(filtered)
    assert "similar" not in origins(tune(matrix, 8, db=False))


def test_what_one_search_has_kept_is_where_the_next_begins(world: Any, make_matrix: Any, tmp_path: Path) -> None:
    """From a layer as well: the plan, tuned for one matrix, carried in a bundle, tried for another."""
    with PlanDatabase(tmp_path / "first.sqlite", layers=()) as first:
        best = tune(make_matrix(seed=1), 4, db=first).plan
        (tmp_path / "system").mkdir()
        (tmp_path / "system" / "a.json").write_text(bundle_text(first.list()))
    with PlanDatabase(tmp_path / "second.sqlite", layers=(ShippedPlans(tmp_path / "system", "system"),)) as second:
        result = tune(make_matrix(seed=2), 8, db=second)
    (seed,) = (trial for trial in result.trials if trial.origin == "similar")
    assert (seed.plan.variant, seed.plan.block_bytes) == (best.variant, best.block_bytes)


def test_a_database_that_cannot_be_read_has_no_seeds(
    matrix: Any, db: PlanDatabase, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, near = plan_key(matrix, 8), dict(features_of(matrix))
    db.put(record(elsewhere(key), front()))
    db.put(of_other_pattern(key, 1, front(block_bytes=64 * KIB), **near))
    assert warm_start_of(db, key, space, matrix) == WarmStart((front(),), (front(block_bytes=64 * KIB),))

    def fails(*_: Any, **__: Any) -> Any:
        raise DatabaseError("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(PlanDatabase, "with_features", fails)
        assert warm_start_of(db, key, space, matrix) == WarmStart((front(),))
    monkeypatch.setattr(PlanDatabase, "_read", fails)
    assert warm_start_of(db, key, space, matrix) == NO_WARM_START


# ------------------------------------------------------------------------------------------------ recordings


def test_a_search_with_seeds_is_recorded_and_made_again(
    make_world: Any, matrix: Any, db: PlanDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    make_world(prepare_cost=lambda plan: 0.2, noise=lambda: float(random.uniform(0, 0.01)))
    key, near = plan_key(matrix, 8), dict(features_of(matrix))
    db.put(record(elsewhere(key), front(block_bytes=64 * KIB)))
    db.put(of_other_pattern(key, 1, front(), **near))
    db.put(record(replace(key, **STALE), front(block_bytes=16 * KIB)))
    path = tmp_path / "trials.jsonl"
    result = tune(matrix, 8, db=db, record=path)
    assert {"like", "pattern", "similar"} < set(origins(result))
    found = read_recording(path)
    assert found.warm_start == WarmStart((front(block_bytes=64 * KIB),), (front(),), (front(block_bytes=16 * KIB),))
    clock = SimpleNamespace(now=lambda: pytest.fail("asked for the time of a real machine"), pause=None)
    monkeypatch.setattr(measure, "_CLOCK", ContextVar("nobody's", default=clock))
    again = replay(path)
    assert [(trial.origin, trial.plan, trial.state) for trial in again.trials] == [
        (trial.origin, trial.plan, trial.state) for trial in result.trials
    ]
    assert (again.plan, again.missing, again.stopped) == (result.plan, 0, result.stopped)


@pytest.mark.parametrize(
    "wrong", ['{"like": 5}', '{"pattern": 5}', '{"like": [5]}', "[1]", '{"similar": [{"schema": 99}]}']
)
def test_recordings_without_seeds_or_with_wrong_ones(
    world: Any, matrix: Any, tmp_path: Path, wrong: str, write_seeds: Callable[[Path, str | None], None]
) -> None:
    path = tmp_path / "trials.jsonl"
    partial(tune, db=False)(matrix, 8, record=path)
    write_seeds(path, None)  # as before there were any
    assert read_recording(path).warm_start == NO_WARM_START
    assert replay(path).missing == 0
    write_seeds(path, wrong)
    with pytest.raises(FileFormatError, match="seeds"):
        replay(path)


@pytest.fixture
def write_seeds() -> Callable[[Path, str | None], None]:
    """Change the seeds in the header of a recording; None removes them."""
    import json

    def write(path: Path, seeds: str | None) -> None:
        first, rest = path.read_text().split("\n", 1)
        header = json.loads(first)
        header.pop("seeds", None)
        if seeds is not None:
            header["seeds"] = json.loads(seeds)
        path.write_text(json.dumps(header) + "\n" + rest)

    return write


def test_seeds_as_json() -> None:
    seeds = WarmStart((front(),), (front(block_bytes=64 * KIB), front(threads=1)), (front(block_bytes=32 * KIB),))
    assert WarmStart.from_json(seeds.to_json()) == seeds
    assert WarmStart.from_json({}) == NO_WARM_START
