"""Records: what goes in comes out to the last bit, and nothing wrong gets in."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import PlanError
from akx.plandb import PlanDatabase, PlanRecord, TrialRecord, aged, stale_fields
from akx.plandb.record import break_even_calls

from .samples import make_key, make_plan, make_record

_TIMES = st.floats(min_value=5e-324, max_value=1e300, allow_nan=False, allow_infinity=False)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(
    seconds=_TIMES,
    baseline=_TIMES,
    prepare=st.floats(0, 1e300),
    name=_TEXT,
    provenance=st.dictionaries(_TEXT, _JSON, max_size=3),
    trials=st.dictionaries(_TEXT, st.integers(0, 10**9), max_size=3),
)
def test_round_trips_are_exact(
    seconds: float, baseline: float, prepare: float, name: str, provenance: dict[str, Any], trials: dict[str, int]
) -> None:
    record = make_record(
        seconds=seconds,
        baseline_seconds=baseline,
        prepare_seconds=prepare,
        matrix_name=name,
        provenance=provenance,
        trials=trials,
    )
    assert (record.seconds, record.matrix_name, dict(record.provenance)) == (seconds, name, provenance)
    assert PlanRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert pickle.loads(pickle.dumps(record)) == record
    with tempfile.TemporaryDirectory() as folder, PlanDatabase(Path(folder) / "plans.sqlite", layers=()) as database:
        database.put(record)
        found = database.find(record.key).record
        assert found == record
        assert found.to_json() == record.to_json()
        assert dict(found.plan.options) == dict(record.plan.options)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": "1.0"},
        {"seconds": None},
        {"seconds": True},
        {"baseline_seconds": 0},
        {"prepare_seconds": -0.1},
        {"tuning_seconds": math.inf},
        {"baseline_name": None},
        {"created": "yesterday"},
        {"created": "2024-05-06T07:08:09"},
        {"created": 12},
        {"matrix_name": 3},
        {"provenance": {"x": math.nan}},
        {"provenance": {"x": {1, 2}}},
        {"provenance": {1: 2}},
        {"provenance": [1]},
        {"trials": {"complete": -1}},
        {"trials": {"complete": 1.5}},
        {"plan": make_plan(4)},
        {"plan": "sweep"},
        {"key": "key"},
    ],
    ids=str,
)
def test_wrong_fields_are_refused(change: dict[str, Any]) -> None:
    arguments = make_record().to_json() | {"key": make_key(), "plan": make_plan()} | change
    with pytest.raises(PlanError):
        PlanRecord(**{name: value for name, value in arguments.items() if name not in ("schema", "id")})


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 3},
        {"schema": None},
        {"colour": "red"},
        {"id": "0" * 32},
        {"key": {}},
        {"plan": {"schema": 99}},
        {"plan": None},
        {"seconds": -1},
    ],
    ids=str,
)
def test_wrong_json_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        PlanRecord.from_json({**make_record().to_json(), **change})


def test_missing_json_fields_are_named() -> None:
    data = make_record().to_json()
    data.pop("baseline_name")
    with pytest.raises(PlanError, match="baseline_name"):
        PlanRecord.from_json(data)


def test_numbers_of_numpy_and_odd_file_names_are_taken() -> None:
    record = make_record(seconds=np.float64(0.5), matrix_name="caf\udce9.mtx")  # type: ignore[arg-type]
    assert type(record.seconds) is float
    assert record.matrix_name == "caf\\udce9.mtx"


def test_a_record_does_not_change_with_what_it_was_made_from() -> None:
    provenance = {"list": [1]}
    record = make_record(provenance=provenance)
    provenance["list"].append(2)
    record.to_json()["provenance"]["list"].append(3)
    assert dict(record.provenance) == {"list": [1]}


def test_speedup_and_better_than() -> None:
    record = make_record(seconds=0.5, baseline_seconds=2.0)
    assert record.speedup == 4.0
    faster = make_record(seconds=0.4, baseline_seconds=2.0)
    assert faster.better_than(record)
    assert not record.better_than(faster)
    moment = "2024-05-06T08:08:09.2+01:00"  # 77 ms later, in another zone
    later = make_record(seconds=0.5, baseline_seconds=2.0, created=moment)
    assert later.better_than(record)
    assert not record.better_than(later)
    assert not record.better_than(record)


@pytest.mark.parametrize("how", ["interrupted", "disturbed"])
def test_a_plan_without_a_sound_run_off_is_never_better_than_one_with(how: str) -> None:
    sound, crude = make_record(seconds=0.5), make_record(seconds=0.1, provenance={how: True})
    assert (sound.is_crude, crude.is_crude) == (False, True)
    assert sound.better_than(crude)
    assert not crude.better_than(sound)
    assert crude.better_than(make_record(seconds=0.2, provenance={how: True}))


def test_why_a_plan_is_provisional() -> None:
    assert make_record(provenance={"interrupted": False, "stopped": "time budget"}).provisional == ""
    assert make_record(provenance={"starved": True}).provisional == "too little time"
    assert make_record(provenance={"disturbed": True, "starved": True}).provisional == "disturbed, too little time"


def test_times_of_two_searches_are_not_compared() -> None:
    busy = make_record(seconds=1.0, baseline_seconds=4.0)
    assert busy.better_than(make_record(seconds=0.9, baseline_seconds=1.0))


def test_stale_fields(revise: Callable[..., None]) -> None:
    record = make_record()
    assert stale_fields(record) == []
    assert record.key.revisions == "plan 1, wavefront 1, sell16 1", "given the key of a search it has that of its plan"
    revise("cpu/ghost", revision=2)
    assert stale_fields(record) == []
    revise("cpu/wavefront", revision=2)
    assert stale_fields(record) == ["revisions"]
    assert stale_fields(make_record()) == []


def test_trials_say_what_they_were_made_with(revise: Callable[..., None]) -> None:
    trial = TrialRecord(make_plan(), (0.1,))
    stamped = trial.stamped()
    assert trial.provenance == {}
    assert stamped == trial, "which makes them no others"
    assert stamped.provenance["revisions"] == "plan 1, wavefront 1, sell16 1"
    assert stamped.stamped() is stamped
    assert pickle.loads(pickle.dumps(stamped)).provenance == stamped.provenance
    revise("cpu/wavefront", tokens="0" * 16)
    assert (aged(stamped), stamped.is_current) == (["other kernel sources"], True)
    revise("cpu/wavefront", revision=2)
    assert not stamped.is_current
    assert trial.is_current, "nobody has kept it yet"


_AT = "2024-01-01T00:00:00+00:00"


def test_trials_are_checked() -> None:
    trial = TrialRecord(make_plan(), [1, 0.5], "complete")  # type: ignore[arg-type]
    assert trial.seconds == (1.0, 0.5)
    assert trial.clock_hz is None
    assert TrialRecord(make_plan(), (), "pruned", "", _AT, 3_000_000_000).clock_hz == 3e9
    for arguments in [
        ("plan",),
        (make_plan(), 1.0),
        (make_plan(), (-1.0,)),
        (make_plan(), (), "won"),
        (make_plan(), (), "failed", None),
        (make_plan(), (), "failed", "", "now"),
        (make_plan(), (), "failed", "", _AT, 0.0),
        (make_plan(), (), "failed", "", _AT, float("inf")),
        (make_plan(), (), "failed", "", _AT, "fast"),
    ]:
        with pytest.raises(PlanError):
            TrialRecord(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spent", "gain", "calls"),
    [(30.0, 1.5e-3, 20000), (30.25, 1.5e-3, 20167), (0.0, 1e-3, 1), (1.0, 0.0, None), (1.0, -1e-3, None)],
)
def test_what_was_spent_is_paid_back_after_so_many_calls(spent: float, gain: float, calls: int | None) -> None:
    assert break_even_calls(spent, gain) == calls
    record = make_record(seconds=1.0, baseline_seconds=1.0 + gain, tuning_seconds=spent, prepare_seconds=0.0)
    assert (record.break_even_calls is None) == (calls is None)


@pytest.mark.parametrize("name", ["matrix_name", "baseline_name"])
def test_long_names_are_cut_once(name: str) -> None:
    record = make_record(**{name: "\ud800" * 10**4})
    assert len(getattr(record, name)) == 255
    assert PlanRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    "change",
    [
        {"trials": {"x" * 10**4: 1}},
        {"trials": {str(n): 1 for n in range(101)}},
        {"trials": {"complete": 2**63}},
        {"provenance": {"deep": json.loads("[" * 40 + "]" * 40)}},
        {"created": "x" * 10**5},
        {"seconds": [0] * 10**5},
        {"key": {"fingerprint": "x" * 10**5}},
        {"plan": {"\x1b" * 10**5: 1}},
        {"y" * 10**5: 1},
    ],
)
def test_what_does_harm_is_refused_in_few_words(change: dict[str, Any]) -> None:
    data = make_record().to_json()
    data.pop("id")
    for name, value in change.items():
        data[name] = data[name] | value if name in ("key", "plan") else value
    with pytest.raises(PlanError) as caught:
        PlanRecord.from_json(data)
    assert len(str(caught.value)) < 500
