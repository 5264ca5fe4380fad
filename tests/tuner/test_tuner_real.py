"""The tuner on the real schedules of the CPU: small budgets, real time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.schedule import as_coefficients
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import exhaustive, predict, tune
from akx.tuner.space import is_baseline


def stencil(m: int) -> sp.csr_array:
    """Nine points on an m x m grid, random values."""
    line = sp.diags_array([np.ones(m - 1), np.ones(m), np.ones(m - 1)], offsets=[-1, 0, 1])
    A = sp.csr_array(sp.kron(line, line))
    A.data[:] = np.random.default_rng(0).uniform(-1, 1, A.nnz)
    return A


def powers(A: sp.csr_array, plan: Plan, k: int) -> float:
    """Largest relative error of a plan's monomial powers against SciPy's."""
    matrix = Matrix.from_any(A)
    x = np.random.default_rng(1).uniform(-1, 1, (1, matrix.n))
    out = np.full((k + 1, 1, matrix.n), np.nan)
    program = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    program.run(x, out, as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype))
    expected = [x[0]]
    for _ in range(k):
        expected.append(A @ expected[-1])
    return max(float(np.abs(out[j, 0] - e).max() / np.abs(e).max()) for j, e in enumerate(expected))


def test_a_stencil_is_tuned_kept_and_found_again(tmp_path: Path) -> None:
    A, k = stencil(120), 4
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as db:
        result = tune(Matrix.from_any(A), k, trials=5, seconds=9.0, db=db, name="stencil")
        assert result.counts.failed == 0, result.reasons
        assert result.counts.complete >= 1
        assert result.speedup >= 1.0
        assert powers(A, result.plan, k) < 1e-13
        assert result.roofline is not None
        assert result.roofline.share > 0
        shuffled = sp.coo_array(A)
        order = np.random.default_rng(2).permutation(shuffled.nnz)
        other = sp.coo_array((shuffled.data[order], (shuffled.row[order], shuffled.col[order])), shape=A.shape)
        begin = time.perf_counter()
        again = tune(Matrix.from_any(other), k, db=db)
        assert time.perf_counter() - begin < 3.0
        assert again.reused
        assert again.plan == result.plan


def test_predictions_are_feasible_and_right() -> None:
    A = stencil(60)
    for k in (1, 2, 7):
        plan = predict(Matrix.from_any(A), k)
        assert powers(A, plan, k) < 1e-13


@pytest.mark.parametrize("n", [1, 50])
def test_tiny_matrices_can_be_tuned(n: int) -> None:
    A = sp.csr_array(sp.eye_array(n) * 2.0)
    result = tune(Matrix.from_any(A), 3, trials=3, seconds=9.0, db=False)
    assert result.speedup >= 1.0
    assert powers(A, result.plan, 3) == 0.0


def test_a_part_of_the_space_is_measured_completely() -> None:
    matrix = Matrix.from_any(stencil(40))
    result = exhaustive(matrix, 2, space_filter=lambda plan: plan.schedule == "sweep" and plan.variant == "csr")
    measured = {trial.plan for trial in result.trials if not is_baseline(trial.plan)}
    assert measured
    assert all((plan.schedule, plan.variant) == ("sweep", "csr") for plan in measured)
    assert result.stopped == "space exhausted"


def test_a_part_without_plain_products_is_refused_before_anything_is_measured() -> None:
    matrix = Matrix.from_any(stencil(40))
    with pytest.raises(ArgumentError, match="no plain product"):
        exhaustive(matrix, 2, choices={"sweep": {"partitioner": ("rcm",)}})
