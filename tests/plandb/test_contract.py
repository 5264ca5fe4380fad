"""What every place for plans must do, a file and a server alike."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from akx.core.errors import ArgumentError, FileFormatError
from akx.plandb import (
    PlanDatabase,
    PlanDatabaseWarning,
    PlanRecord,
    ShippedPlans,
    TrialRecord,
    aged,
    made_with,
    stale_fields,
)
from akx.plandb import tables as statements
from akx.plandb.bundle import bundle_text
from akx.plandb.tables import Tables
from akx.report.plans.plan_summary import read_summaries

from .samples import make_key, make_plan, make_record, make_timing, of_search


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where plans are to be: a path or a URL."""
    return str(tmp_path / "plans.sqlite") if request.param == "file" else request.getfixturevalue("server_url")


@pytest.fixture
def database(place: str) -> Iterator[PlanDatabase]:
    with PlanDatabase(place, layers=()) as database:
        yield database


def test_looking_makes_nothing(database: PlanDatabase, place: str) -> None:
    found = database.find(make_key())
    assert (found.record, found.mismatches, found.layer) == (None, [], "")
    assert (database.list(), database.trials(make_key())) == ([], ())
    assert (database.exists(), database.is_writable(), database.describe()[0].version) == (False, True, 0)


def test_put_and_find_here_and_by_another(database: PlanDatabase, place: str) -> None:
    records = [make_record(number, provenance={"text": "Poisson's \u00fc:name %s"}) for number in range(3)]
    for record in records:
        database.put(record)
    with PlanDatabase(place, layers=()) as other:
        for record in records:
            for one in (database, other):
                found = one.find(record.key)
                assert (found.record, found.mismatches, found.layer) == (record, [], "user")
        assert other.list() == records
        assert (other.exists(), other.is_writable()) == (True, True)


def test_a_plan_stays_where_it_is_to_stay(database: PlanDatabase) -> None:
    asked: list[PlanRecord] = []

    def ask(answer: bool) -> Any:
        return lambda there: asked.append(there) or answer

    first, second, third = (make_record(seconds=seconds) for seconds in (1e-3, 2e-3, 3e-3))
    assert database.put(first, unless=ask(True)) is None
    assert asked == []
    assert database.put(first, unless=ask(True)) is None  # as where a change is made again
    assert asked == []
    assert database.put(second, unless=ask(True)) == first
    assert database.find(make_key()).record == first
    assert database.put(third, unless=ask(False)) is None
    assert database.find(make_key()).record == third
    assert asked == [first, first]


def test_between_the_question_and_the_change_nobody_comes(database: PlanDatabase, place: str) -> None:
    database.put(make_record(seconds=4e-3))
    done = threading.Event()
    stayed: list[PlanRecord | None] = []

    def faster() -> None:
        with PlanDatabase(place, layers=()) as other:
            stayed.append(other.put(make_record(seconds=1e-3), unless=lambda there: there.seconds < 1e-3))
        done.set()

    thread = threading.Thread(target=faster)

    def ask(there: PlanRecord) -> bool:
        thread.start()
        assert not done.wait(0.5)
        return there.seconds < 2e-3

    assert database.put(make_record(seconds=2e-3), unless=ask) is None
    thread.join(10.0)
    assert stayed == [None]
    assert [record.seconds for record in database.list()] == [1e-3]


def test_figures_are_kept_to_the_last_bit(database: PlanDatabase) -> None:
    record = make_record(seconds=0.1 + 0.2, baseline_seconds=1 / 3, prepare_seconds=5e-324, tuning_seconds=1e300)
    database.put(record)
    assert database.list() == [record]


def test_what_this_process_changes_is_seen_at_once(database: PlanDatabase, place: str) -> None:
    with PlanDatabase(place, layers=()) as other:
        for number, seconds in enumerate((3.0, 2.0, 1.0)):
            other.put(make_record(seconds=seconds))
            found = database.find(make_key()).record
            assert found is not None
            assert found.seconds == seconds, number
        other.remove(make_key().id)
        assert database.find(make_key()).record is None


def test_layers_lie_below(place: str, tmp_path: Path) -> None:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "a.json").write_text(bundle_text([make_record(1), make_record(2)]))
    with PlanDatabase(place, layers=(ShippedPlans(tmp_path / "shipped"),)) as database:
        mine = make_record(1, seconds=5.0)
        database.put(mine)
        assert [database.find(make_key(number)).layer for number in (1, 2, 3)] == ["user", "shipped", ""]
        assert [layer for layer, _ in database.entries()] == ["user", "shipped"]
        with pytest.raises(ArgumentError, match="read-only"):
            database.remove(make_key(2).id)


def test_plans_are_carried_from_place_to_place(database: PlanDatabase, tmp_path: Path) -> None:
    """Of two plans for one key the faster stays, the newer where they are equally fast."""
    newer = "2025-01-01T00:00:00+00:00"
    with PlanDatabase(tmp_path / "source.sqlite", layers=()) as source:
        for record in (
            make_record(0),
            make_record(1, seconds=5e-4),
            make_record(2, seconds=2e-3),
            make_record(3, created=newer),
            make_record(4),
        ):
            source.put(record)
        assert source.export(tmp_path / "bundle.json") == 5
    for number in range(1, 5):
        database.put(make_record(number))
    report = database.import_(tmp_path / "bundle.json")
    assert (report.added, report.replaced, report.kept, report.unchanged) == (1, 2, 1, 1)
    assert [record.seconds for record in database.list()] == [1e-3, 5e-4, 1e-3, 1e-3, 1e-3]
    assert database.list()[3].created == newer
    assert database.export(tmp_path / "again.json") == 5
    (tmp_path / "bad.json").write_text((tmp_path / "again.json").read_text().replace('"k": 8', '"k": 0', 1))
    before = database.list()
    with pytest.raises(FileFormatError):
        database.import_(tmp_path / "bad.json")
    assert database.list() == before


def test_an_import_that_fails_halfway_changes_nothing(
    database: PlanDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.put(make_record(7))
    (tmp_path / "bundle.json").write_text(bundle_text([make_record(number) for number in range(3)]))
    put = Tables.put

    def interrupted(self: Tables, record: object) -> None:
        if record == make_record(2):
            raise KeyboardInterrupt
        put(self, record)  # type: ignore[arg-type]

    monkeypatch.setattr(Tables, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        database.import_(tmp_path / "bundle.json")
    monkeypatch.undo()
    assert database.list() == [make_record(7)]
    assert database.import_(tmp_path / "bundle.json").added == 3


def test_a_plan_of_another_revision_is_kept_and_never_used(database: PlanDatabase) -> None:
    old = make_record(key=make_key(revisions="plan 1, wavefront 0, sell16 1"))
    database.put(old)
    found = database.find(of_search())
    assert found.record is None
    assert found.mismatches == [(old, ["revisions"])]
    database.put(make_record(seconds=9.0))
    assert database.find(of_search()).record == make_record(seconds=9.0)
    assert database.find(old.key).record == old


def test_a_plan_for_the_transpose_or_several_ranks_is_another(database: PlanDatabase) -> None:
    records = [make_record()]
    for changes in ({"transpose": True}, {"ranks": 2}, {"returns": "last"}):
        records.append(make_record(key=of_search(**changes)))  # type: ignore[arg-type]
    for record in records:
        database.put(record)
    assert len({record.id for record in records}) == 4
    assert all(database.find(record.key).record == record for record in records)
    assert {record.id for record in database.list()} == {record.id for record in records}


@pytest.mark.parametrize("created", ["1970-01-01T00:00:00+00:00", "2999-12-31T23:59:59+14:00"])
def test_a_clock_that_jumps_decides_nothing_but_a_tie(database: PlanDatabase, tmp_path: Path, created: str) -> None:
    """Storing replaces whatever the dates say; importing goes by seconds."""
    database.put(make_record(created=created))
    database.put(make_record(seconds=2.0))
    assert database.find(make_key()).record == make_record(seconds=2.0)
    (tmp_path / "bundle.json").write_text(bundle_text([make_record(seconds=1.0, created=created)]))
    assert database.import_(tmp_path / "bundle.json").replaced == 1
    (tmp_path / "bundle.json").write_text(bundle_text([make_record(seconds=1.5)]))
    assert database.import_(tmp_path / "bundle.json").kept == 1
    assert database.find(make_key()).record == make_record(seconds=1.0, created=created)
    assert database.find(make_key(k=9)).mismatches[0][0].created == created


def test_a_bad_row_is_reported_and_skipped(database: PlanDatabase) -> None:
    for number in range(3):
        database.put(make_record(number))
    table = f"{database._store.prefix}plans"

    def spoil(tables: Tables) -> None:
        tables.connection.execute(f"UPDATE {table} SET plan = '{{broken' WHERE id = :id", {"id": make_key(0).id})
        tables.connection.execute(f"UPDATE {table} SET k = 16 WHERE id = :id", {"id": make_key(1).id})

    database._store.write(spoil)
    with pytest.warns(PlanDatabaseWarning, match="skipped"):
        assert database.list() == [make_record(2)]
    with pytest.warns(PlanDatabaseWarning, match="skipped"):
        assert database.find(make_key(1)).record is None
    database.put(make_record(0))
    assert database.find(make_key(0)).record == make_record(0)


def test_one_winner_per_key(database: PlanDatabase) -> None:
    database.put(make_record(seconds=1.0))
    slower_but_newer = make_record(seconds=2.0, plan=make_plan(schedule="ghost"))
    database.put(slower_but_newer)
    assert database.list() == [slower_but_newer]


def found_by_search(schedule: str = "wavefront", **changes: Any) -> PlanRecord:
    return make_record(**{"plan": make_plan(schedule=schedule)} | changes)


Revise = Callable[..., None]
_WAVEFRONT = "cpu/wavefront"


def test_a_plan_is_valid_while_its_revisions_are(database: PlanDatabase, revise: Revise, tmp_path: Path) -> None:
    record = found_by_search()
    database.put(record)
    (tmp_path / "layer").mkdir()
    database.export(tmp_path / "layer" / "plans.json")
    layered = PlanDatabase(tmp_path / "none.sqlite", layers=(ShippedPlans(tmp_path / "layer"),))
    above = PlanDatabase(tmp_path / "none.sqlite", layers=(), above=(ShippedPlans(tmp_path / "layer"),))
    revise("cpu/sweep", revision=2)  # another schedule, and another variant
    revise("cpu/ghost", revision=7, variants={"csr": 3})
    for one in (database, layered, above):
        assert one.find(of_search()).record == record
        assert one.find(record.key).record == record
        assert one.find(of_search(k=9)).mismatches == [(record, ["k"])]
    assert stale_fields(record) == []
    for lock in ({"revision": 2}, {"variants": {"sell16": 2}}):
        revise(_WAVEFRONT, **lock)
        database._remembered.clear()  # declared anew in another process
        assert stale_fields(record) == ["revisions"]
        for path in (tmp_path / "none.sqlite", database.path):
            layers = (ShippedPlans(tmp_path / "layer"),) if path != database.path else ()
            found = PlanDatabase(path, layers=layers).find(of_search())
            assert (found.record, found.mismatches) == (None, [(record, ["revisions"])])
            assert "another revision" in found.explain()


def test_an_aged_plan_is_found(database: PlanDatabase, revise: Revise) -> None:
    database.put(found_by_search(provenance=made_with(make_plan())))
    assert aged(database.list()[0]) == []
    revise("cpu/ghost", tokens="0" * 16)
    assert aged(database.list()[0]) == []
    revise(_WAVEFRONT, tokens="0" * 16)
    found = database.find(of_search())
    assert found.record == database.list()[0]
    assert aged(found.record) == ["other kernel sources"]
    assert found.explain().endswith(", aged: other kernel sources")
    assert database.remove_stale() == ()


def test_trials_hold_while_their_revisions_do(database: PlanDatabase, revise: Revise) -> None:
    """So that a space that grows, or a schedule that changes, does not throw away what was measured of the others."""
    trials = [TrialRecord(make_plan(schedule=name), (0.1,)) for name in ("sweep", "wavefront", "sweep", "unheard of")]
    assert database.add_trials(of_search(), trials) == 4
    assert database.trials(of_search()) == database.trials(make_record().key) == tuple(trials)
    revise(_WAVEFRONT, tokens="0" * 16)
    assert [aged(trial) for trial in database.trials(of_search())] == [[], ["other kernel sources"], [], []]
    corrected = TrialRecord(trials[1].plan, (0.1,), "failed", "wrong", trials[1].created)
    database.add_trials(of_search(), [], corrected=[corrected])
    assert [trial.state for trial in database.trials(of_search())] == ["complete", "failed", "complete", "complete"]
    revise("cpu/sweep", revision=2)
    assert [trial.plan for trial in database.trials(of_search())] == [trials[1].plan, trials[3].plan]
    record = found_by_search()
    database.put(record)
    database.add_trials(of_search(), [trials[0]])
    assert len(database.trials(record.key)) == 2, "what is there is not there again"
    database.remove(record.id)
    assert database.trials(of_search()) == ()


_AT, _LATER = "2024-01-01T00:00:00+00:00", "2024-01-02T00:00:00+00:00"


def of_one_search(created: str, *schedules: str) -> list[TrialRecord]:
    return [TrialRecord(make_plan(schedule=name), (0.1,), created=created) for name in schedules]


def test_a_stale_plan_has_all_trials_of_its_searches_behind_it(database: PlanDatabase, revise: Revise) -> None:
    trials = of_one_search(_AT, "sweep", "wavefront", "ghost")
    others = of_one_search(_LATER, "sweep", "ghost")
    record = found_by_search()
    database.put(record)
    database.add_trials(of_search(), trials)
    assert database.trials_behind(record) == database.trials(record.key) == tuple(trials)
    database.add_trials(of_search(), others)
    near = [
        of_search(**{name: value})
        for name, value in (
            ("fingerprint", "f" * 64), ("dtype", "float32"), ("index_type", "int64"), ("basis", "newton"), ("k", 9),
            ("start_vectors", 2), ("device_class", "cpu/Some Processor/4 cores"), ("ranks", 2),
        )
    ]  # fmt: skip
    for key in near:
        database.add_trials(key, trials)
    revise(_WAVEFRONT, revision=2)
    assert stale_fields(record) == ["revisions"]
    assert database.trials_behind(record) == tuple(trials)
    going_on = (trials[0], trials[2], *others)
    assert database.trials(record.key) == database.trials(of_search()) == going_on
    database.add_trials(of_search(), of_one_search(_LATER, "wavefront"))
    newer = found_by_search(seconds=2e-3)
    database.put(newer)
    assert database.trials_behind(record) == tuple(trials)
    assert database.trials_behind(newer) == (*going_on, *of_one_search(_LATER, "wavefront"))
    stories = read_summaries(database, [("user", newer), ("user", record)])
    each = database.trials_behind(newer), database.trials_behind(record)
    assert [story.trials for story in stories] == [*each], "a report shows them too"
    assert database.trials_behind_each((newer, record, make_record(7))) == (*each, ())

    assert database.remove(record.id) == record
    assert database.trials_behind(record) == ()
    assert database.trials(of_search()) == (*others, *of_one_search(_LATER, "wavefront"))
    for key in near:
        left = [trial for one, trial in database.all_trials() if one == key]
        assert sorted(trial.plan.schedule for trial in left) == ["ghost", "sweep", "wavefront"], (
            "those of other keys stay"
        )
    assert database.list() == [newer]
    database.remove(newer.id)
    assert len(database.all_trials()) == 3 * len(near)


def test_stale_plans_go_with_their_trials(database: PlanDatabase, revise: Revise) -> None:
    assert database.remove_stale() == ()
    assert not database.exists()
    record = found_by_search("wavefront")
    database.put(record)
    database.add_trials(of_search(), of_one_search(_AT, "sweep", "wavefront"))
    assert database.remove_stale() == ()
    revise(_WAVEFRONT, revision=2)
    current = make_record(key=of_search(k=4), plan=make_plan(4, schedule="sweep"))
    database.put(current)
    database.add_trials(of_search(k=4), of_one_search(_AT, "sweep"))
    with PlanDatabase(database.path, layers=()) as other:
        assert other.remove_stale() == (record,)
    assert database.list() == [current]
    assert [(key.k, trial.plan.schedule) for key, trial in database.all_trials()] == [(4, "sweep")]
    assert database.remove_stale() == ()


def test_the_plan_of_one_schedule_replaces_that_of_another(database: PlanDatabase) -> None:
    first, second = found_by_search("sweep", seconds=1e-3), found_by_search("wavefront", seconds=2e-3)
    stale = make_record(key=make_key(revisions="plan 1, sweep 0, sell16 1"), plan=first.plan)
    other = make_record(9)
    for record in (stale, other, first):
        database.put(record)
    database.add_trials(first.key, [TrialRecord(first.plan)])
    asked: list[PlanRecord] = []
    assert database.put(second, unless=lambda there: asked.append(there) or True) == first  # type: ignore[func-returns-value]
    assert database.find(of_search()).record == first
    assert database.put(second, unless=lambda there: asked.append(there) or False) is None  # type: ignore[func-returns-value]
    assert asked == [first, first]
    database.add_trials(second.key, [TrialRecord(second.plan)])
    assert database.find(of_search()).record == second
    assert {record.id for record in database.list()} == {stale.id, other.id, second.id}
    assert [trial.plan for trial in database.trials(second.key)] == [first.plan, second.plan]
    assert database.trials(of_search()) == database.trials(second.key) == database.trials(first.key)


def test_of_plans_of_several_schedules_the_newest_answers(database: PlanDatabase, tmp_path: Path) -> None:
    old = found_by_search("sweep", created="2024-05-06T07:08:09+02:00", seconds=1e-3)
    new = found_by_search("wavefront", created="2024-05-06T06:08:09+00:00", seconds=2e-3)
    for number, records in enumerate(((old, new), (new, old))):
        folder = tmp_path / f"layer{number}"
        folder.mkdir()
        (folder / "plans.json").write_text(bundle_text(records))
        assert PlanDatabase(tmp_path / "none.sqlite", layers=(ShippedPlans(folder),)).find(of_search()).record == new
    # Of those that are imported the faster one stays.
    report = database.import_(tmp_path / "layer0" / "plans.json")
    assert (report.added, report.kept + report.replaced) == (1, 1)
    assert database.find(of_search()).record == old
    assert database.list() == [old]


def test_mismatching_fields_are_named_nearest_first(database: PlanDatabase) -> None:
    far = make_record(key=make_key(dtype="float32", k=4, revisions="other"))
    near = make_record(key=make_key(revisions="other"))
    for record in (far, near, make_record(5)):
        database.put(record)
    found = database.find(of_search())
    assert found.record is None
    assert found.mismatches == [(near, ["revisions"]), (far, ["dtype", "k", "revisions"])]
    assert "another revision" in found.explain()
    assert near.id[:12] in found.explain()


@pytest.mark.parametrize("prefix_digits", [32, 12])
def test_get_and_remove_by_prefix(database: PlanDatabase, prefix_digits: int) -> None:
    records = [make_record(number) for number in range(4)]
    for record in records:
        database.put(record)
        database.add_trials(record.key, [TrialRecord(make_plan())])
    prefix = records[2].id[:prefix_digits]
    assert database.get(prefix.upper()) == records[2]
    assert database.remove(prefix) == records[2]
    assert database.list() == [records[0], records[1], records[3]]
    assert database.trials(records[2].key) == ()
    assert len(database.trials(records[1].key)) == 1
    with pytest.raises(ArgumentError, match="no such plan"):
        database.remove(prefix)


def test_ambiguous_empty_and_odd_prefixes(database: PlanDatabase) -> None:
    records = [make_record(number) for number in range(17)]  # 17 ids, 16 first digits: two share one
    for record in records:
        database.put(record)
    digits = [record.id[0] for record in records]
    shared = next(digit for digit in digits if digits.count(digit) > 1)
    with pytest.raises(ArgumentError, match="ambiguous"):
        database.get(shared)
    with pytest.raises(ArgumentError, match="ambiguous"):
        database.remove(shared)
    for odd in ("", " ", "%", "_", "g", "' OR 1=1"):
        with pytest.raises(ArgumentError, match="no such plan"):
            database.remove(odd)
    assert len(database.list()) == 17


def test_trials_come_back_in_order(database: PlanDatabase) -> None:
    key = make_key()
    first = [TrialRecord(make_plan(threads=t), (0.1 * t, 1 / 3), created="2024-01-01T00:00:00+00:00") for t in (1, 2)]
    failed = TrialRecord(make_plan(), state="failed", reason="wrong by 2e-3", clock_hz=1e9 / 3)
    second = [failed, TrialRecord(make_plan(), state="pruned")]
    assert database.add_trials(key, first) == 2
    assert database.add_trials(key, second) == 2
    assert database.add_trials(make_key(1), []) == 0
    assert database.trials(key) == (*first, *second)
    assert database.trials(key, most=3) == (first[1], *second), "the newest, still in order"
    assert database.trials(key, most=9) == (*first, *second)
    assert database.trials(key, most=0) == ()
    assert database.list() == []


def test_trials_added_longest_ago_go_where_there_are_too_many(
    database: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "MOST_TRIALS", 5)
    trials = [TrialRecord(make_plan(threads=t), created=_AT) for t in range(1, 9)]
    for number, one in enumerate(trials):
        database.add_trials(make_key(number // 4), [one])
    assert database.trials(make_key(0)) == tuple(trials[3:4])
    assert database.trials(make_key(1)) == tuple(trials[4:])


def test_trials_are_corrected_in_their_places(database: PlanDatabase) -> None:
    key, at = make_key(), "2024-01-01T00:00:00+00:00"
    trials = [TrialRecord(make_plan(threads=t), (0.1 * t,), created=at) for t in (1, 2, 3)]
    database.add_trials(key, trials)
    database.add_trials(make_key(1), trials)
    database.add_trials(key, [TrialRecord(make_plan(threads=2), (0.5,), created="2024-01-02T00:00:00+00:00")])
    before = database.trials(key)
    wrong = TrialRecord(make_plan(threads=2), (9.0,), "failed", "wrong later", at)
    unknown = TrialRecord(make_plan(threads=7), (), "failed", "never tried", at)
    more = TrialRecord(make_plan(threads=4), created=at)
    assert database.add_trials(key, [more], corrected=[wrong, unknown]) == 1
    after = TrialRecord(make_plan(threads=2), (0.2,), "failed", "wrong later", at)
    assert database.trials(key) == (before[0], after, *before[2:], more)
    assert database.trials(make_key(1)) == tuple(trials), "of another key"
    assert database.add_trials(key, [], corrected=[wrong]) == 0


def test_a_trial_that_is_given_again_is_one_row(database: PlanDatabase) -> None:
    """As after an error that leaves it in doubt; what has become of it meanwhile counts."""
    key = make_key()
    trials = [TrialRecord(make_plan(threads=t), (0.1 * t,), created=_AT, clock_hz=2e9) for t in (1, 2)]
    assert database.add_trials(key, trials) == 2
    assert database.add_trials(key, trials) == 0
    assert database.trials(key) == tuple(trials)
    wrong = replace(trials[1], state="failed", reason="wrong later")
    later, other = replace(trials[0], created=_LATER), TrialRecord(make_plan(threads=3), created=_AT)
    assert database.add_trials(key, [trials[0], wrong, later, other], corrected=[wrong]) == 2
    assert database.trials(key) == (trials[0], wrong, later, other)
    assert database.add_trials(make_key(1), trials) == 2, "for another key"
    assert database.trials(make_key(1)) == tuple(trials)
    many = [TrialRecord(make_plan(), (0.1,), created=f"2024-01-0{day}T00:00:00+00:00") for day in range(1, 8)]
    assert [database.add_trials(make_key(2), given) for given in (many[:5], many, many)] == [5, 2, 0]
    assert database.trials(make_key(2)) == tuple(many)


def test_every_trial_with_its_key(database: PlanDatabase) -> None:
    assert database.all_trials() == ()
    assert not database.exists()
    first = [TrialRecord(make_plan(threads=t), (0.1,), created=_AT, clock_hz=1e9) for t in (1, 2)]
    database.add_trials(of_search(1), first)
    database.add_trials(of_search(0), first[:1])
    database.add_trials(of_search(1), of_one_search(_LATER, "sweep"))
    expected = [(of_search(1), first[0]), (of_search(1), first[1]), (of_search(0), first[0])]
    assert database.all_trials() == (*expected, (of_search(1), *of_one_search(_LATER, "sweep")))
    table = f"{database._store.prefix}trials"

    def spoil(tables: Tables) -> None:
        tables.connection.execute(f"UPDATE {table} SET key = '{{}}' WHERE key_id = :id", {"id": of_search(0).id})
        tables.connection.execute(f"UPDATE {table} SET plan = '{{' WHERE created = :later", {"later": _LATER})

    database._store.write(spoil)
    with pytest.warns(PlanDatabaseWarning, match="trial skipped") as caught:
        assert database.all_trials() == tuple(expected[:2])
    assert len(caught) == 2
    assert database.trials_behind(make_record(0)) == (first[0],), "found by the id of its key alone"


def test_threads_share_a_database(database: PlanDatabase) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 8):
            database.put(make_record(number))
            assert database.find(make_key(number)).record is not None

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(database.list()) == 32


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_opens_its_own_connection(database: PlanDatabase) -> None:
    database.put(make_record(0))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            database.put(make_record(1))
            status = 0 if len(database.list()) == 2 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    database.put(make_record(2))
    assert len(database.list()) == 3


def test_a_database_travels_to_another_process_by_its_path(database: PlanDatabase) -> None:
    database.put(make_record())
    with pickle.loads(pickle.dumps(database)) as copy:
        assert copy.path == database.path
        assert copy.layers == ()
        assert copy.list() == [make_record()]


def test_plans_of_other_patterns_at_a_glance(database: PlanDatabase, tmp_path: Path) -> None:
    """Of the same kind of numbers, backend and range of k, with features; of the layers as well, each plan once."""

    def put(number: int, where: PlanDatabase | None = database, features: Any = 1.0, **changes: Any) -> PlanRecord:
        given = {"features": {"rows": float(number), "nnz": features}} if features is not None else {}
        record = make_record(key=make_key(number, **changes), provenance={**given, "finalists": [{"rows": 7}]})
        if where is not None:
            where.put(record)
        return record

    fitting = [
        put(1),
        put(2, dtype="float32", k=4),
        put(3, k=16, basis="newton", start_vectors=4, revisions="other"),
    ]
    put(0)  # the pattern of the call
    for number, changes in enumerate(({"k": 3}, {"k": 17}, {"dtype": "complex128"}, {"device_class": "cuda/H100"}), 10):
        put(number, **changes)
    put(20, features=None)
    put(21, features="many")
    put(22, features={"nested": 1})
    put(23, features=True)
    shipped = [put(30, None), put(31, None, dtype="complex64"), put(32, None, features=None), fitting[0]]
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "a.json").write_text(bundle_text(shipped))
    with PlanDatabase(database.path, layers=(ShippedPlans(tmp_path / "shipped"),)) as both:
        found = both.with_features(make_key(0), backend="cpu", least=4, most=16)
        assert {record.id: record for record in found} == {record.id: record for record in (*fitting, shipped[0])}
        assert len(found) == 4
        assert next(one for one in found if one.id == fitting[2].id).features == {"rows": 3.0, "nnz": 1.0}
        assert both.of_pattern(make_key(30).fingerprint) == (shipped[0],)
        assert len(both.of_pattern(make_key(1).fingerprint)) == 2
    assert database.of_pattern(make_key(77).fingerprint) == ()


def test_no_more_than_so_many_are_looked_at(database: PlanDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akx.plandb.reader._MOST_OTHERS", 2)
    for number in range(1, 5):
        created = f"2024-05-0{number}T07:08:09+00:00"
        database.put(make_record(number, provenance={"features": {"rows": 1}}, created=created))
    found = database.with_features(make_key(0), backend="cpu", least=8, most=8)
    assert {record.id for record in found} == {make_key(number).id for number in (3, 4)}  # the newest


def test_nothing_at_a_glance_where_there_is_nothing(database: PlanDatabase) -> None:
    assert database.with_features(make_key(0), backend="cpu", least=1, most=99) == ()
    assert database.of_pattern("f") == ()
    assert not database.exists()


# ---------------------------------------------------------------------------------------------- timings of solvers


def test_timings_are_found_by_their_keys_here_and_by_another(database: PlanDatabase, place: str) -> None:
    assert database.find_timings(make_timing().key) == database.timings() == ()
    assert not database.exists()
    special = {"asked_s": 4, "restart": 20, "preconditioner": "Jacobi \u00fc:x %s", "basis": "newton"}
    timings = [
        make_timing(),
        make_timing(**special),
        make_timing(1, seconds={"cg": 0.1 + 0.2, "ca_cg": None}),
        make_timing(2, of=make_record(2)),
    ]
    for timing in timings:
        database.put_timing(timing)
    with PlanDatabase(place, layers=()) as other:
        for one in (database, other):
            assert [one.find_timings(timing.key) for timing in timings] == [(timing,) for timing in timings]
            assert sorted(one.timings(), key=lambda entry: entry[1].id) == sorted(
                (("user", timing) for timing in timings), key=lambda entry: entry[1].id
            )
            assert one.find_timings(make_timing(basis="newton").key) == ()
        assert (database.list(), database.all_trials()) == ([], ()), "they are no plans"
        later = replace(timings[0], seconds={"cg": 5.0, "ca_cg": 6.0})
        other.put_timing(later)
        assert database.find_timings(later.key) == (later,), "what this process changes is seen at once"
    assert pickle.loads(pickle.dumps(later)) == later
    assert later.aged == []


def test_a_timing_that_is_not_valid_is_reported_and_skipped(database: PlanDatabase) -> None:
    for number in range(3):
        database.put_timing(make_timing(number))
    table = f"{database._store.prefix}timings"

    def spoil(tables: Tables) -> None:
        for number, change in enumerate(('seconds = \'{"cg": -1, "ca_cg": 1}\'', "restart = 9")):
            tables.connection.execute(f"UPDATE {table} SET {change} WHERE id = :id", {"id": make_timing(number).id})

    database._store.write(spoil)
    with pytest.warns(PlanDatabaseWarning, match="timing .* skipped") as caught:
        assert database.timings() == (("user", make_timing(2)),)
    assert len(caught) == 2
    with pytest.warns(PlanDatabaseWarning, match="timing .* skipped"):
        assert database.find_timings(make_timing(0).key) == ()
    database.put_timing(make_timing(0))
    assert database.find_timings(make_timing(0).key) == (make_timing(0),)


def test_timings_go_with_their_plans_and_by_themselves(database: PlanDatabase, revise: Revise) -> None:
    plans = [make_record(number) for number in range(3)]
    compared, chosen, others = make_timing(0), make_timing(0, of=plans[0]), make_timing(1, of=plans[1])
    of_another = replace(chosen, plan_created="2024-01-01T00:00:00+00:00", key=replace(chosen.key, asked_s=2))
    for plan in plans:
        database.put(plan)
    for timing in (compared, chosen, others, of_another):
        database.put_timing(timing)
    assert database.remove(plans[0].id) == plans[0]
    assert {timing.id for _, timing in database.timings()} == {compared.id, others.id, of_another.id}
    assert database.remove(compared.id[:12]) == compared
    with pytest.raises(ArgumentError, match="no such plan"):
        database.remove(compared.id)
    assert database.list() == plans[1:]
    assert database.remove_stale() == ()
    revise("cpu/solvers", revision=2)
    assert {one.id for one in database.remove_stale()} == {others.id, of_another.id}
    assert (database.timings(), database.list()) == ((), plans[1:])
    revise("cpu/solvers", tokens="0" * 16)
    database.put_timing(replace(others, provenance={"kernels": "1" * 16}))
    assert [timing.aged for _, timing in database.timings()] == [["other kernel sources"]]


def test_timings_of_layers_lie_around(place: str, tmp_path: Path) -> None:
    folders = [ShippedPlans(tmp_path / name, name) for name in ("project", "shipped")]
    for number, folder in enumerate(folders):
        folder.directory.mkdir()
        layered = [make_timing(seconds={"cg": 1.0 + number, "ca_cg": None}), make_timing(number + 1)]
        (folder.directory / "a.json").write_text(bundle_text([make_record(7)], layered))
    with PlanDatabase(place, above=folders[:1], layers=folders[1:]) as database:
        database.put_timing(make_timing())
        found = database.find_timings(make_timing().key)
        assert [timing.seconds["cg"] for timing in found] == [1.0, 2e-3, 2.0]
        assert [layer for layer, _ in database.timings()] == ["project", "project", "user", "shipped", "shipped"]
        assert database.remove(make_timing().id) == make_timing(), "the user's, hidden or not"
        with pytest.raises(ArgumentError, match="timing is read-only") as caught:
            database.remove(make_timing(2).id)
        assert str(tmp_path / "shipped" / "a.json") in str(caught.value)


def test_timings_are_carried_with_plans(database: PlanDatabase, tmp_path: Path) -> None:
    """Of two for one key the one whose plan is there stays, then the newer; a part of the plans has only its own."""
    plans = [make_record(number) for number in range(3)]
    timings = [make_timing(number, of=plan) for number, plan in enumerate(plans)]
    later = "2025-01-01T00:00:00+00:00"
    with PlanDatabase(tmp_path / "source.sqlite", layers=()) as source:
        for plan, timing in zip(plans, timings, strict=True):
            source.put(plan)
            source.put_timing(timing)
        source.put_timing(make_timing(0))
        assert source.export(tmp_path / "part.json", [plans[1].id]) == 1
        assert source.export(tmp_path / "all.json") == 3
    better = make_record(2, seconds=1e-4, created=later)
    mine = make_timing(2, of=better, created="2024-01-01T00:00:00+00:00")
    database.put(better)
    for timing in (mine, make_timing(0, created=later)):
        database.put_timing(timing)
    for name, added, taken in (("part.json", 1, 1), ("all.json", 1, 1), ("all.json", 0, 0)):
        report = database.import_(tmp_path / name)
        assert (report.added, report.timings) == (added, taken)
    for timing in (*timings[:2], mine, make_timing(0, created=later)):
        assert database.find_timings(timing.key) == (timing,)
    assert len(database.timings()) == 4
    text = (tmp_path / "all.json").read_text().replace('"best_s": 8', '"best_s": -8', 1)
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"1 invalid record"):
        database.import_(tmp_path / "bad.json")
