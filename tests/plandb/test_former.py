"""Plans under the digest that a pattern had before digests were trees: renewed when its matrix is next seen."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.fingerprint import Pattern
from akx.core.matrix import Matrix
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, ShippedPlans, TrialRecord
from akx.plandb.bundle import bundle_text
from akx.plandb.tables import Tables

from .samples import make_plan, make_record, make_timing, of_search, without_root


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


def test_nothing_is_digested_where_no_plan_is_for_a_matrix_of_that_size(
    database: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = matrix()
    database.put(old_record(A, provenance={"matrix": {"rows": 20, "nnz": 61}}))
    layer = ShippedPlans(Path(database.path.parent if isinstance(database.path, Path) else "none") / "layer")
    monkeypatch.setattr(Pattern, "former_digest", property(lambda self: pytest.fail("it was")))
    with PlanDatabase(database.path, layers=(layer,)) as both:
        assert both.find(search_for(A)).record is None


def test_of_two_plans_for_one_key_the_better_stays(database: PlanDatabase) -> None:
    A, B = matrix(0), matrix(1)
    database.put(old_record(A, seconds=1e-4))
    database.put(make_record(key=search_for(A), seconds=5e-4))
    database.put(old_record(B, seconds=5e-4))
    database.put(make_record(key=search_for(B), seconds=1e-4))
    for one in (A, B):
        found = database.find(search_for(one)).record
        assert found is not None
        assert found.seconds == 1e-4
    assert len(database.list()) == 2


def test_that_there_were_none_is_asked_again_after_a_change(
    database: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database._store, "is_settled", lambda stamp: True)
    asked: list[bool] = []
    monkeypatch.setattr(Tables, "has_former", _counted(Tables.has_former, asked))
    database.put(make_record())
    A, B = matrix(0), matrix(1)
    for one in (A, B):
        assert database.find(search_for(one)).record is None
    assert asked == [False]
    database.put(old_record(A))
    found = database.find(search_for(A)).record
    assert found is not None
    assert found.key.fingerprint == A.fingerprint


def test_a_layer_stays_as_it_is(tmp_path: Path) -> None:
    A, other = matrix(0), matrix(1)
    file = tmp_path / "layer" / "plans.json"
    file.parent.mkdir()
    file.write_text(bundle_text([old_record(A), old_record(other)]))
    before = file.read_bytes()
    with PlanDatabase(tmp_path / "none.sqlite", layers=(ShippedPlans(file.parent),)) as database:
        found = database.find(search_for(A))
        assert (found.record, found.layer) == (replace(old_record(A), key=search_for(A)), "shipped")
        assert [entry[1] for entry in database.entries(A.fingerprint)] == [found.record]
    assert file.read_bytes() == before
    assert not (tmp_path / "none.sqlite").exists()


def _counted(method: Callable[[Tables], bool], answers: list[bool]) -> Callable[[Tables], bool]:
    """`method`, whose answers are kept."""

    def ask(tables: Tables) -> bool:
        answers.append(method(tables))
        return answers[-1]

    return ask


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="akx-test-"))
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_database_that_cannot_be_changed_answers_all_the_same(public_folder: Path) -> None:
    A = matrix()
    path = public_folder / "plans.sqlite"
    with PlanDatabase(path, layers=()) as database:
        database.put(old_record(A))
    path.chmod(0o444)
    public_folder.chmod(0o555)

    def ask() -> Any:
        with PlanDatabase(path, layers=()) as database:
            return database.find(search_for(A)).record, database.list()

    record, listed = without_root(ask)
    assert record == replace(old_record(A), key=search_for(A))
    assert [one.key.fingerprint for one in listed] == [pattern_of(A).former_digest]


def test_timings_of_solvers_are_renewed_with_plans_and_without(database: PlanDatabase) -> None:
    A, B = matrix(0), matrix(1)
    for one, has_plan in ((A, True), (B, False)):
        former = pattern_of(one).former_digest
        old, plan = make_timing(fingerprint=former), old_record(one)
        database.put_timing(old)
        if has_plan:
            database.put(plan)
            database.put_timing(make_timing(of=plan))
            assert database.find(search_for(one)).record is not None
        key = replace(old.key, fingerprint=one.fingerprint)
        for _ in range(2):
            assert database.find_timings(key) == (replace(old, key=key),)
        assert former not in {timing.key.fingerprint for _, timing in database.timings()}
        if has_plan:
            chosen = replace(make_timing(of=plan).key, fingerprint=one.fingerprint)
            assert [timing.is_of(database.list()[0]) for timing in database.find_timings(chosen)] == [True]


def test_of_two_timings_for_one_key_the_newer_stays(database: PlanDatabase) -> None:
    for number, created in enumerate(("2024-01-01T00:00:00+00:00", "2025-01-01T00:00:00+00:00")):
        A = matrix(number)
        old = make_timing(fingerprint=pattern_of(A).former_digest)
        new = replace(old, key=replace(old.key, fingerprint=A.fingerprint), created=created)
        for timing in (old, new):
            database.put_timing(timing)
        database.put(old_record(A))
        assert database.find(search_for(A)).record is not None
        (found,) = database.find_timings(new.key)
        assert found.created == max(old.created, created)


def test_timings_of_a_layer_and_of_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = matrix()
    old = make_timing(fingerprint=pattern_of(A).former_digest)
    (tmp_path / "a.json").write_text(bundle_text([], [old]))
    place, key = tmp_path / "plans.sqlite", replace(old.key, fingerprint=A.fingerprint)
    with PlanDatabase(place, layers=()) as database:
        database.put_timing(replace(old, matrix_name="mine"))
    monkeypatch.setattr(PlanDatabase, "_adopt", lambda *_: False)
    with PlanDatabase(place, layers=(ShippedPlans(tmp_path),)) as database:
        assert [timing.matrix_name for timing in database.find_timings(key)] == ["mine", ""]
        assert {timing.key for timing in database.find_timings(key)} == {key}
