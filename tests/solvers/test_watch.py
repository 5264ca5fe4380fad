"""A watch beside a callback: it looks between steps, changes nothing by looking, and ends a solve where it wants to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import fitting, rhs

from akx.solvers import SOLVERS, SolveStats, preconditioners
from akx.solvers.monitor import ENDED, Watched
from akx.solvers.pilot import Stopwatch


class Look:
    """Looks at every third step; ends after so many looks."""

    def __init__(self, looks: float = float("inf")) -> None:
        self.looks, self.asked, self.seen = looks, 0, list[int]()

    def due(self, stats: SolveStats) -> bool:
        self.asked += 1
        return self.asked % 3 == 0

    def ends(self, stats: SolveStats, target: float) -> bool:
        assert target > 0
        self.seen.append(stats.iterations)
        return len(self.seen) >= self.looks


def check_looks(name: str, backend: str) -> None:
    """For this test and the one of the device that is not there."""
    A, b = fitting(name), rhs(300)
    options: dict[str, Any] = {"rtol": 1e-9, "backend": backend, "return_stats": True}
    options |= {"restart": 8} if name.endswith("gmres") else {}
    x, info, stats = SOLVERS[name](A, b, **options)
    watch, told = Look(), list[Any]()
    y, said, seen = SOLVERS[name](A, b, callback=Watched(told.append, watch), **options)
    np.testing.assert_array_equal(x, y)  # the same bits
    assert (info, stats.iterations, stats.residuals) == (said, seen.iterations, seen.residuals)
    assert told
    assert watch.seen == sorted(watch.seen)
    assert len(watch.seen) >= 2
    silent = Look()
    y, said, seen = SOLVERS[name](A, b, callback=Watched(None, silent), **options)
    np.testing.assert_array_equal(x, y)
    assert (info, stats.iterations) == (said, seen.iterations)
    assert silent.seen


def check_ends(name: str, backend: str) -> None:
    A, b = fitting(name), rhs(300)
    options: dict[str, Any] = {"rtol": 1e-9, "backend": backend, "return_stats": True}
    options |= {"restart": 8} if name.endswith("gmres") else {}
    whole = SOLVERS[name](A, b, **options)[2].iterations
    watch = Look(looks=1)
    x, info, stats = SOLVERS[name](A, b, callback=Watched(None, watch), **options)
    assert (info, stats.reason, stats.converged) == (stats.iterations, ENDED, False)
    assert 0 < watch.seen[0] <= stats.iterations < whole
    assert np.linalg.norm(b - A @ x) == pytest.approx(stats.residual)
    if not name.endswith("gmres"):  # all that was done is in the record
        assert stats.residuals[-2] == pytest.approx(stats.residual, rel=1e-6)
    assert stats.residual < np.linalg.norm(b)
    assert SOLVERS[name](A, b, x, **options)[1] == 0  # and another goes on from there


def test_looking_changes_nothing(name: str) -> None:
    check_looks(name, "cpu")


def test_a_watch_ends_a_solve(name: str) -> None:
    check_ends(name, "cpu")


@pytest.mark.parametrize("name", [name for name in SOLVERS if name.startswith("ca_")])
def test_a_watch_is_there_where_a_preconditioner_is_part_of_the_matrix(name: str) -> None:
    scale = sp.diags_array(np.logspace(0, 1, 300))
    A = sp.csr_array(scale @ fitting(name) @ scale)
    watch, told = Look(looks=2), list[Any]()
    options: dict[str, Any] = {"M": preconditioners.jacobi(A), "rtol": 1e-9, "return_stats": True}
    options |= {"restart": 8} if name.endswith("gmres") else {}
    _, info, stats = SOLVERS[name](A, rhs(300), callback=Watched(told.append, watch), **options)
    assert (len(watch.seen), stats.reason) == (2, ENDED)
    assert info > 0
    assert told


@pytest.mark.parametrize("name", [name for name in SOLVERS if name.startswith("ca_")])
def test_a_counterpart_on_trial_is_timed(name: str) -> None:
    A, b, in_cycles = fitting(name), rhs(300), name.endswith("gmres")
    options: dict[str, Any] = {"rtol": 1e-14, "return_stats": True, "restart": 10} if in_cycles else {
        "rtol": 1e-14, "return_stats": True, "s": 2
    }  # fmt: skip
    whole = SOLVERS[name](A, b, **options)[2]
    watch = Stopwatch(1e3, 100, in_cycles=in_cycles)
    _, _, stats = SOLVERS[name](A, b, callback=Watched(None, watch), **options)
    assert stats.iterations < whole.iterations
    found = watch.verdict(stats)
    assert found is not None
    assert 0 < found < 1
    late = Stopwatch(-1.0, 100, in_cycles=in_cycles)
    _, _, stats = SOLVERS[name](A, b, callback=Watched(None, late), **options)
    assert late.verdict(stats) is None
    assert stats.iterations == 0
