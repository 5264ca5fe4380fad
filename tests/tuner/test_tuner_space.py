"""The space: limits, neighbours, and the way from plans to choices and back."""

from __future__ import annotations

from typing import Any

import pytest

from akx.backends.host import HostDevice
from akx.core.errors import ArgumentError
from akx.core.plan import Plan
from akx.tuner.space import Space, build_space, is_baseline, resolve_backend

DEVICE = HostDevice("test", 2, 32768, 2**20, 2**25)


@pytest.fixture
def space(world: Any, matrix: Any) -> Space:
    return build_space(matrix, 8, DEVICE, threads=2)


def test_plans_are_all_different_and_as_many_as_the_size_says(space: Space) -> None:
    plans = list(space.plans())
    assert len(plans) == len(set(plans)) == 8 + 8 * 3 * 7 * 2


def test_choices_and_plans_are_inverse(space: Space) -> None:
    for plan in space.plans():
        values = space.values(plan)
        assert values is not None
        assert space.plan(plan.schedule, values) == plan


def test_an_option_not_mentioned_has_its_default(space: Space) -> None:
    full = space.default("front")
    short = full.replace(options={})
    assert short != full
    assert space.inside(short) == full
    assert space.values(short) == space.values(full)
    assert space.neighbours(short) == space.neighbours(full)
    assert space.inside(full.replace(options={"split": "interleaved"})) != full


def test_plans_outside_have_no_choices(space: Space) -> None:
    inside = space.default("front")
    assert space.values(inside) is not None
    for outside in (
        inside.replace(block_bytes=3),
        inside.replace(threads=64),
        inside.replace(k=9),
        inside.replace(options={"other": 1}),
        inside.replace(options={**inside.options, "threads": inside.threads}),
        space.default("sweep").replace(block_bytes=1024),
        inside.replace(schedule="unknown"),
        inside.replace(backend="cuda"),
    ):
        assert space.values(outside) is None
        assert space.neighbours(outside) == ()
        assert space.inside(outside) == outside


def test_neighbours_differ_in_one_choice_and_numbers_by_one_step(space: Space) -> None:
    plan = space.default("front")
    values = space.values(plan)
    found = space.neighbours(plan)
    assert len(found) == len(set(found)) > 0
    assert plan not in found
    steps = set()
    for other in found:
        chosen = space.values(other)
        assert chosen is not None
        assert values is not None
        changed = [name for name in values if values[name] != chosen[name]]
        assert len(changed) == 1
        steps.add((changed[0], chosen[changed[0]]))
    assert ("block_bytes", 64 * 1024) in steps
    assert ("block_bytes", 256 * 1024) in steps
    assert ("k_per_pass", 4) in steps
    assert ("k_per_pass", 2) not in steps
    assert ("split", "interleaved") in steps


def test_plans_along_differ_in_one_choice_whatever_it_is(space: Space) -> None:
    plan = space.default("front")
    values = space.values(plan)
    assert values is not None
    found = space.along(plan)
    assert len(found) == len(set(found))
    assert plan not in found
    assert set(space.neighbours(plan)) < set(found)
    for other in found:
        chosen = space.values(other)
        assert chosen is not None
        assert sum(values[name] != chosen[name] for name in values) == 1
    assert len(found) == sum(len(one.choices) - 1 for one in space.parameters["front"])
    assert space.along(plan.replace(block_bytes=3)) == ()


def test_a_part_has_the_choices_given_in_the_order_of_the_space(space: Space) -> None:
    part = space.part({"front": {"block_bytes": (256 * 1024, 64 * 1024), "variant": ("sell",)}})
    assert part.choices("front", "block_bytes") == (64 * 1024, 256 * 1024)
    assert part.parameters["sweep"] == space.parameters["sweep"]
    plans = list(part.plans("front"))
    assert set(plans) == {
        plan for plan in space.plans("front") if plan.block_bytes in (64 * 1024, 256 * 1024) and plan.variant == "sell"
    }
    assert part.default("front") in plans, "a default that is gone gives way"
    assert ("block_bytes", 256 * 1024) in {
        ("block_bytes", other.block_bytes) for other in part.neighbours(plans[0].replace(block_bytes=64 * 1024))
    }


@pytest.mark.parametrize(
    ("choices", "what"),
    [
        ({"back": {}}, "unknown schedule"),
        ({"front": {"colour": ("red",)}}, "unknown parameter of front"),
        ({"front": {"variant": ("sell", "red")}}, "no choice of variant"),
        ({"front": {"variant": ()}}, "no choice of variant"),
    ],
)
def test_a_part_of_what_there_is_not_is_refused(space: Space, choices: Any, what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        space.part(choices)


def test_threads_are_limited(world: Any, matrix: Any) -> None:
    one = build_space(matrix, 8, DEVICE, threads=1)
    assert {plan.threads for plan in one.plans()} == {1}
    assert one.device.cores == 1


def test_powers_per_pass_are_limited(world: Any, matrix: Any) -> None:
    few = build_space(matrix, 3, DEVICE, threads=2)
    assert {plan.k_per_pass for plan in few.plans("front")} == {2}


def test_baselines_are_the_variants_of_the_sweep_in_natural_order(space: Space, matrix: Any) -> None:
    found = space.baselines(matrix)
    assert [(p.schedule, p.variant, p.partitioner, p.threads) for p in found] == [
        ("sweep", "csr", "natural", 2),
        ("sweep", "sell", "natural", 2),
    ]
    assert all(is_baseline(plan) for plan in found)
    assert not is_baseline(Plan("cpu", "sweep", "csr", "rcm"))
    assert not is_baseline(Plan("cpu", "front", "csr", "natural"))


def test_backends(world: Any) -> None:
    assert resolve_backend("auto") == "cpu"
    assert resolve_backend("cpu") == "cpu"
    with pytest.raises(ArgumentError, match="backend"):
        resolve_backend("abacus")
