"""The contract on a GPU: every schedule, every variant, every option, right to the bound and the same bits twice."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_contract import DTYPES, KINDS, fewer, make_coefficients, make_matrix, random_numbers

from akx.backends import reference, registry
from akx.backends.cuda.device.facts import CudaDevice, cuda_device, cuda_missing
from akx.backends.schedule import as_coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.space import Space, build_space

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]
SCHEDULES = [schedule.name for schedule in registry.schedules("cuda")]
#: Plans tried on one matrix: the spaces are large, each plan is compiled, and there are hundreds of matrices and types.
MOST_PLANS = int(os.environ.get("AKX_TEST_PLANS", "20"))


def device_for(name: str) -> CudaDevice:
    """The device, with a budget for the schedule that has nothing to do without one."""
    return replace(cuda_device(), budget=2**28) if name == "stream" else cuda_device()


def space_of(name: str, matrix: Matrix, k: int) -> Space:
    """The space of one schedule."""
    return build_space(matrix, k, device_for(name), threads=1, backend="cuda", keep=lambda label: label == name)


def default_plans(name: str, matrix: Matrix, k: int) -> list[Plan]:
    """The feasible ones among the plans of each variant's defaults."""
    space = space_of(name, matrix, k)
    plans = [space.plan(name, {"variant": variant}) for variant in space.choices(name, "variant")]
    return [plan for plan in plans if is_feasible(plan, matrix)]


def is_feasible(plan: Plan, matrix: Matrix) -> bool:
    """Whether a plan must be right, even one that the tuner would not try because it has a cheaper twin."""
    return registry.get("cuda", plan.schedule).feasible(plan, matrix, device_for(plan.schedule)) is None


def all_plans(name: str, matrix: Matrix, k: int) -> list[Plan]:
    """The plans of each variant's defaults, and those that differ from one of them in one choice, or some of them."""
    space = space_of(name, matrix, k)
    start = [space.plan(name, {"variant": variant}) for variant in space.choices(name, "variant")]
    widest = {"block": sizes[-1]} if (sizes := space.choices(name, "block")) else {}
    wide = [space.plan(name, {"variant": one.variant, **widest}) for one in start]
    near = [plan for one in [*start, *wide] for plan in space.neighbours(one)]
    feasible = [plan for plan in dict.fromkeys([*start, *wide, *near]) if is_feasible(plan, matrix)]
    if len(feasible) <= MOST_PLANS:
        return feasible
    rng = np.random.default_rng([matrix.n, matrix.nnz, k, matrix.dtype.num])  # others for every matrix and type
    return [feasible[i] for i in sorted(rng.choice(len(feasible), MOST_PLANS, replace=False))]


def run_twice(plan: Plan, matrix: Matrix, x: Any, coefficients: Any) -> Any:
    """The result in host memory, from poisoned outputs; three runs, since the second and third are by a graph."""
    from akx.backends.cuda.device.launch import default_stream
    from akx.backends.cuda.device.memory import empty, to_device

    program = registry.get("cuda", plan.schedule).prepare(matrix, plan)
    found = np.full((plan.k + 1, *x.shape), np.nan, dtype=matrix.dtype)
    program.run(x, found, coefficients)
    held, out = to_device(x), empty(found.shape, matrix.dtype)
    for _ in range(3):
        out.fill_bytes(255)
        program.run(held, out, coefficients)
        default_stream().synchronize()
        assert out.get().tobytes() == found.tobytes(), f"{plan.label()}: two runs differ"
    assert program.nbytes > 0
    return found


def right_ones(plans: Iterable[Plan], matrix: Matrix, x: Any, coefficients: Any) -> list[Plan]:
    """The plans that can be prepared: each is right to the bound, and gives the same bits twice."""
    truth, found = reference.reference(matrix, x, coefficients), []
    for plan in plans:
        try:
            out = run_twice(plan, matrix, x, coefficients)
        except InfeasibleError:
            continue
        assert truth.error_ratio(out) <= 1, plan.label()
        found.append(plan)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_plan_is_right(name: str, kind: str, dtype: str) -> None:
    ran = 0
    for turn, n in enumerate((1, 33, 1009)):
        matrix = make_matrix(kind, n, dtype, turn)
        rng = np.random.default_rng(turn)
        k, b = (5, 1, 3)[turn], (1, 2, 1)[turn]
        basis = ("chebyshev", "newton", "monomial")[(turn + KINDS.index(kind)) % 3]
        coefficients = make_coefficients(basis, k, dtype, rng)
        x = random_numbers(rng, (b, n), dtype)
        ran += len(right_ones(all_plans(name, matrix, k), matrix, x, coefficients))
    assert ran


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("b", range(1, 9))
def test_start_vectors(name: str, b: int) -> None:
    ran = 0
    for dtype in ("float64", "complex128"):
        # Rows of "blocks" that read anywhere leave a front no blocks that fit.
        matrix = make_matrix("disconnected" if name == "wavefront" else "blocks", fewer(20_011), dtype, 3)
        rng = np.random.default_rng(b)
        coefficients = make_coefficients("chebyshev", 4, dtype, rng)
        x = random_numbers(rng, (b, matrix.n), dtype)
        ran += len(right_ones(default_plans(name, matrix, 4), matrix, x, coefficients))
    assert ran


@pytest.mark.parametrize("name", SCHEDULES)
def test_new_values_and_new_coefficients_need_no_new_plan(name: str) -> None:
    matrix = make_matrix("band", fewer(50_021), "float64", 0)
    rng = np.random.default_rng(3)
    x, ones, zeros = rng.standard_normal((1, matrix.n)), np.ones(4), np.zeros(4)
    plans = default_plans(name, matrix, 4)
    assert plans
    for plan in plans:
        program = registry.get("cuda", name).prepare(matrix, plan)
        out = np.full((5, 1, matrix.n), np.nan)
        changed = matrix.with_values(rng.standard_normal(matrix.nnz))
        for values, a in ((matrix, ones), (matrix, 2 * ones), (changed, 2 * ones)):
            program.update_values(values.data)
            coefficients = as_coefficients(a, zeros, zeros, matrix.dtype)
            out[:] = np.nan
            program.run(x, out, coefficients)
            assert reference.error_ratio(values, out, x, coefficients) <= 1, plan.label()


def test_the_facts_are_read_from_the_device() -> None:
    device = cuda_device()
    assert device.sms > 0
    assert device.shared_per_block >= 48 * 1024
    assert device.l2_bytes > 0
    assert device.name in device.device_class
