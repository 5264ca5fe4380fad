"""Timings of solvers are checked when made, and equal to themselves after a trip through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from akx.core.errors import PlanError
from akx.plandb import SolverTiming, TimingKey

from .samples import make_record, make_timing


@pytest.mark.parametrize("timing", [make_timing(), make_timing(restart=20), make_timing(of=make_record())])
def test_a_timing_survives_json(timing: SolverTiming) -> None:
    again = SolverTiming.from_json(json.loads(json.dumps(timing.to_json())))
    assert again == timing
    assert (again.id, dict(again.provenance), hash(again)) == (timing.id, dict(timing.provenance), hash(timing))
    for wrong in ({"id": "0" * 32}, {"more": 1}, {"key": {**timing.key.to_json(), "mood": ""}}, {"key": 3}):
        with pytest.raises(PlanError):
            SolverTiming.from_json(timing.to_json() | wrong)


def test_ids_stay_what_they_are() -> None:
    """They are in databases: what is asked for by nobody is no part of them."""
    key = TimingKey("f", "float64", "int32", "cpu/a", "cg", "newton")
    assert key.id == "611c53e63e91eeb29804f79971ec9588"
    assert len({key.id, *(replace(key, **one).id for one in ({"asked_s": 1}, {"restart": 1}, {"revision": 2}))}) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"solver": ""}, {"basis": 3}, {"dtype": "x" * 2000}, {"device_class": "\ud800"}, {"asked_s": -1},
        {"restart": True}, {"revision": 0}, {"asked_s": 1.0}, {"preconditioner": None}, {"seconds": {"cg": 1.0}},
        {"seconds": {"cg": 0.0, "ca_cg": 1.0}}, {"seconds": {"cg": "fast", "ca_cg": 1.0}}, {"seconds": None},
        {"best_s": 4}, {"best_s": -1}, {"created": "today"}, {"plan_created": "today"}, {"matrix_name": 3},
        {"provenance": [1]}, {"seconds": {"cg": True, "ca_cg": 1.0}},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_wrong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        make_timing(**wrong)


def test_an_s_has_a_time_and_a_plan() -> None:
    for wrong in ({"seconds": {"ca_cg": None}}, {"plan_created": ""}):
        with pytest.raises(PlanError):
            make_timing(of=make_record(), **wrong)
    timing = make_timing(of=make_record())
    assert timing.is_of(make_record())
    assert not timing.is_of(make_record(1))
    assert not timing.is_of(make_record(created="2024-05-06T07:08:10+00:00"))
    assert make_timing(seconds={"cg": None, "ca_cg": 2.0}).step("cg") == float("inf")
