"""The part of a large space that is recorded: what is in it, and how large it is."""

from __future__ import annotations

import pytest
from scipy import sparse

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.space import Space, build_space
from benchmarks import portion, record_tuning, samplers

K = 8


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Nine points, 40,000 rows."""
    line = sparse.diags_array([1.0, 2.0, 1.5], offsets=[-1, 0, 1], shape=(200, 200))
    return Matrix.from_any(sparse.csr_array(sparse.kron(line, line)))


@pytest.fixture(scope="module")
def space(matrix: Matrix) -> Space:
    device = samplers.recorded_device(record_tuning.load())
    return build_space(matrix, K, device, backend="cuda", threads=1, start_vectors=1)


def good(space: Space, matrix: Matrix) -> Plan:
    """A feasible plan of `resident` with choices of its own."""
    chosen = {"variant": ("1x1-1",), "held_slices": (2, 1), "held_slots": (5,), "block": (256,)}
    plans = portion.feasible_plans(space, matrix, "resident", chosen)
    return min(plans, key=lambda plan: plan.label())


def test_a_part_has_the_good_plan_its_neighbours_and_all_variants_of_plain_products(
    space: Space, matrix: Matrix
) -> None:
    plan, elsewhere = good(space, matrix), Plan("cuda", "resident", "no-such", k=K)
    part = space.part(portion.portion(space, matrix, [plan, elsewhere], most=(60, 12)))
    assert part.values(plan) is not None
    assert part.choices("sweep", "variant") == space.choices("sweep", "variant")
    assert part.baselines(matrix) == space.baselines(matrix) != ()
    found = {name: _feasible(part, matrix, name) for name in part.parameters}
    assert {name for name, plans in found.items() if plans} >= {"sweep", "resident", "ghost"}
    assert 30 <= len(found["resident"]) <= 60
    near = {other for other in part.neighbours(plan) if part.feasible(other, matrix) is None}
    assert len(near) >= 3
    assert near <= found["resident"]
    assert len(found["ghost"]) <= 12


def test_plain_products_alone_may_be_more_than_was_asked_for(space: Space, matrix: Matrix) -> None:
    part = space.part(portion.portion(space, matrix, [], most=(1, 1)))
    assert len(_feasible(part, matrix, "sweep")) >= len(part.choices("sweep", "variant")) / 2
    assert all(len(_feasible(part, matrix, name)) <= 1 for name in part.parameters if name != "sweep")


def test_the_shipped_plan_is_found_by_name_and_k() -> None:
    found = portion.shipped_plan("cuda-nvidia-h100", "brick", 16)
    assert found is not None
    assert (found.backend, found.k) == ("cuda", 16)
    assert portion.shipped_plan("cuda-nvidia-h100", "brick", 17) is None
    assert portion.shipped_plan("no-such-device", "brick", 16) is None


def _feasible(part: Space, matrix: Matrix, schedule: str) -> set[Plan]:
    return portion.feasible_plans(part, matrix, schedule, {one.name: one.choices for one in part.parameters[schedule]})
