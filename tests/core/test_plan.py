"""Plans: frozen, checked, and the same after a trip through JSON."""

from __future__ import annotations

import json
import pickle
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from akx.core.errors import AkxError, PlanError
from akx.core.options import Words, traits
from akx.core.plan import PLAN_SCHEMA, Plan

PLAN = Plan("cpu", "wavefront", "sell16", "rcm", 8, 4, 65536, 2, {"split": "contiguous", "sigma": 32})


def test_json_and_pickle_round_trip() -> None:
    assert Plan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN
    assert PLAN.to_json()["schema"] == PLAN_SCHEMA


def test_equal_plans_hash_alike_whatever_the_order_of_options() -> None:
    other = Plan("cpu", "wavefront", "sell16", "rcm", 8, 4, 65536, 2, {"sigma": 32, "split": "contiguous"})
    assert other == PLAN
    assert hash(other) == hash(PLAN)
    assert (
        other.label()
        == PLAN.label()
        == ("cpu/wavefront/sell16 rcm k=4x2 block=64KiB threads=2 sigma=32 split=contiguous")
    )


def test_plans_are_equal_where_their_json_is() -> None:
    options: list[Any] = [1, True, 1.0, 0, False, 0.0, -0.0, "1", np.float64(1.0), np.str_("1")]
    plans = [PLAN.replace(options={"undeclared": option}) for option in options]
    for one in plans:
        assert Plan.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one
        for other in plans:
            alike = json.dumps(one.to_json()) == json.dumps(other.to_json())
            assert (one == other) is alike
            assert (hash(one) == hash(other)) >= alike
    assert PLAN.label() != PLAN


def test_a_plan_is_frozen() -> None:
    with pytest.raises(AttributeError):
        PLAN.k = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        PLAN.options["sigma"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    "change",
    [
        {"k": 0},
        {"k": True},
        {"k": 2.0},
        {"k_per_pass": 9},
        {"threads": 0},
        {"block_bytes": -1},
        {"schedule": ""},
        {"variant": 3},
        {"options": {"sigma": [1]}},
        {"options": {"sigma": None}},
        {"options": {"sigma": float("nan")}},
        {"options": {"sigma": float("inf")}},
        {"options": {"": 1}},
        {"options": {1: 1, "sigma": 1}},
        {"options": None},
        {"options": {"undeclared": 2**63}},
        {"options": {"undeclared": "x" * 201}},
        {"options": {"x" * 201: 1}},
        {"options": dict.fromkeys(map(str, range(101)), 1)},
        {"variant": "x" * 201},
        {"k": 2**31},
        {"threads": 5000},
        {"block_bytes": 2**41},
    ],
)
def test_nonsense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        PLAN.replace(**change)


@pytest.mark.parametrize(
    ("schedule", "options", "expected"),
    [
        ("cpu/sweep", {"sigma": 10**12}, "expected an integer from 1 to 2147483647, found 1000000000000"),
        ("cpu/sweep", {"sigma": 1.0}, "an integer"),
        ("cpu/wavefront", {"sigma": True}, "an integer"),
        ("cpu/wavefront", {"split": "both"}, "expected one of contiguous, interleaved, found 'both'"),
        ("cpu/wavefront", {"lag": -1}, "'lag' is out of range"),
        ("cuda/sweep", {"once": 1}, "expected true or false, found 1"),
        ("cuda/sweep", {"block": 4096}, "from 32 to 1024"),
        ("cuda/stream", {"share": 1.5}, "a number from 0.0 to 1.0"),
    ],
)
def test_an_option_out_of_range_says_what_it_may_be(schedule: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        Plan(*schedule.split("/"), "csr", options=options)


def test_a_number_of_thousands_of_digits_is_named_by_its_size() -> None:
    with pytest.raises(PlanError, match="found a number of 33220 bits"):
        PLAN.replace(threads=10**10000)


@pytest.mark.parametrize("schedule", ["ghost", "resident", "stream", "sweep", "wavefront"])
def test_what_kernels_are_written_for_is_in_range(schedule: str) -> None:
    choices = import_module(f"akx.backends.cuda.schedules.{schedule}.options").OPTIONS
    declared = traits("cuda", schedule).allowed
    assert set(choices) <= set(declared)
    for name, values in choices.items():
        Plan("cuda", schedule, "any", options={name: values[0]})
        assert all(declared[name].holds(value) for value in values)
        if isinstance(declared[name], Words):
            assert set(declared[name].words) == set(values)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data | {"schema": PLAN_SCHEMA + 1},
        lambda data: data | {"colour": "blue"},
        lambda data: {key: value for key, value in data.items() if key != "variant"},
        lambda data: [data],
        lambda data: data | {"options": None},
        lambda data: data | {"options": [["sigma", 32]]},
        lambda data: data | {"options": "sigma"},
        lambda data: data | {"options": {"sigma": float("nan")}},
        lambda data: data | {"options": {"sigma": None}},
    ],
)
def test_other_json_is_refused(spoil: Any) -> None:
    with pytest.raises(PlanError):
        Plan.from_json(spoil(PLAN.to_json()))


def test_from_parameters_sorts_fields_from_options() -> None:
    values = {"variant": "csr", "threads": 2, "block_bytes": 4096, "k_per_pass": 2, "split": "contiguous"}
    plan = Plan.from_parameters("cpu", "wavefront", 4, values)
    assert plan == Plan("cpu", "wavefront", "csr", "natural", 4, 2, 4096, 2, {"split": "contiguous"})
    assert plan.typed.split == "contiguous"
    assert plan.typed.lag is None


def test_errors_say_what_expected_found_and_next() -> None:
    error = AkxError("it broke", expected="this", found="that", hint="mend it")
    assert str(error) == "it broke, expected this, found that; mend it"
    again = pickle.loads(pickle.dumps(PlanError("x", found="y")))
    assert isinstance(again, PlanError)
    assert isinstance(again, ValueError)
    assert str(again) == "x, found y"
