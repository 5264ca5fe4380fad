"""Plans under the digest that a pattern had before digests were trees: renewed when its matrix is next seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.fingerprint import Pattern
from akx.core.matrix import Matrix
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, TrialRecord

from .samples import make_plan, make_record, make_timing, of_search


def matrix(seed: int = 0) -> Matrix:
    places = np.random.default_rng(seed).permutation(400)[:60]
    return Matrix.from_any(sp.csr_array((np.ones(60), (places // 20, places % 20)), shape=(20, 20)))


def pattern_of(A: Matrix) -> Pattern:
    return Pattern(A.indptr, A.indices)


def search_for(A: Matrix, former: bool = False) -> PlanKey:
    return of_search(fingerprint=pattern_of(A).former_digest if former else A.fingerprint)


def old_record(A: Matrix, **changes: Any) -> PlanRecord:
    given = {"key": search_for(A, former=True), "provenance": {"matrix": {"rows": A.n, "nnz": A.nnz}}}
    return make_record(**given | changes)


@pytest.fixture(params=["file", "server"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlanDatabase]:
    place = tmp_path / "plans.sqlite" if request.param == "file" else request.getfixturevalue("server_url")
    with PlanDatabase(place, layers=()) as database:
        yield database


def test_it_is_the_digest_of_then() -> None:
    A = Matrix.from_any(sp.csr_array(np.array([[4.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 4.0]])))
    assert pattern_of(A).former_digest == "0e3da0d7a6d0f886098feae6f3d10a75850c298a"


@pytest.mark.parametrize("provenance", [None, {"machine": "one that does not tell sizes"}])
def test_plans_and_trials_are_renewed(database: PlanDatabase, provenance: Any) -> None:
    A = matrix()
    old = old_record(A) if provenance is None else old_record(A, provenance=provenance)
    trial = TrialRecord(make_plan(), (1e-3, 2e-3), "complete", "", old.created)
    database.put(old)
    database.add_trials(search_for(A, former=True), [trial])
    found = database.find(search_for(A))
    assert found.record == replace(old, key=replace(old.key, fingerprint=A.fingerprint))
    assert found.layer == "user"
    assert database.list() == [found.record]
    assert [one.plan for one in database.trials(search_for(A))] == [trial.plan]
    assert database.trials(search_for(A, former=True)) == ()
    with PlanDatabase(database.path, layers=()) as other:
        assert other.find(search_for(A)).record == found.record


def test_those_of_another_k_too_and_by_each_way_to_ask(database: PlanDatabase) -> None:
    A, B = matrix(0), matrix(1)
    for one in (A, B):
        key = replace(search_for(one, former=True), k=4)
        database.put(old_record(one, key=key, plan=make_plan(4)))
    assert [record.key.k for record, _ in database.find(search_for(A)).mismatches] == [4]
    assert [record.key.fingerprint for record in database.of_pattern(B.fingerprint)] == [B.fingerprint]
    assert [entry[1].key.fingerprint for entry in database.entries(A.fingerprint)] == [A.fingerprint]


def test_others_are_left_alone(database: PlanDatabase) -> None:
    A, other = matrix(0), matrix(1)
    database.put(old_record(other))
    assert database.find(search_for(A)).record is None
    assert [record.key.fingerprint for record in database.list()] == [pattern_of(other).former_digest]


def test_of_two_plans_for_one_key_the_better_stays(database: PlanDatabase) -> None:
    A, B = matrix(0), matrix(1)
    database.put(old_record(A, seconds=1e-4))
    database.put(make_record(key=search_for(A), seconds=5e-4))
    database.put(old_record(B, seconds=5e-4))
    database.put(make_record(key=search_for(B), seconds=1e-4))
    for one in (A, B):
        assert [record.seconds for record in database.of_pattern(one.fingerprint)] == [1e-4]
    assert len(database.list()) == 2


def test_timings_of_solvers_are_renewed_with_their_plans(database: PlanDatabase) -> None:
    A = matrix()
    plan = old_record(A)
    timings = [make_timing(fingerprint=pattern_of(A).former_digest), make_timing(of=plan)]
    database.put(plan)
    for timing in timings:
        database.put_timing(timing)
    assert database.find(search_for(A)).record is not None
    for old in timings:
        key = replace(old.key, fingerprint=A.fingerprint)
        assert database.find_timings(key) == (replace(old, key=key),)
    assert {timing.key.fingerprint for _, timing in database.timings()} == {A.fingerprint}
    assert [timing.is_of(database.list()[0]) for timing in database.find_timings(key)] == [True]


def test_of_two_timings_for_one_key_the_newer_stays(database: PlanDatabase) -> None:
    for number, created in enumerate(("2024-01-01T00:00:00+00:00", "2025-01-01T00:00:00+00:00")):
        A = matrix(number)
        old = make_timing(fingerprint=pattern_of(A).former_digest)
        new = replace(old, key=replace(old.key, fingerprint=A.fingerprint), created=created)
        for timing in (old, new):
            database.put_timing(timing)
        database.put(old_record(A))
        assert database.of_pattern(A.fingerprint)
        (found,) = database.find_timings(new.key)
        assert found.created == max(old.created, created)
