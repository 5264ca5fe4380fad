"""Several right-hand sides in lockstep: the answers and steps of single solves, in the passes of one."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator
from solvers.systems import fitting

from akx.core.errors import DeviceError
from akx.solvers import SOLVERS, Solver, solve
from akx.solvers import lockstep as module
from akx.solvers import shared_passes as rules
from akx.solvers.preconditioners import jacobi
from akx.solvers.system import System

NAMES = ["cg", "ca_cg", "minres", "ca_minres", "bicgstab", "ca_bicgstab"]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of the matrix; for fewer columns than have a block of conjugate gradients."""
    monkeypatch.setattr(rules, "_FROM_MEMORY", 0)
    monkeypatch.setattr(rules, "_ENTRIES", 0)
    monkeypatch.setattr(rules, "_THREADS", 1000)
    yield
    assert not [one for one in threading.enumerate() if one.name == "akx-column"]


def several(n: int, m: int, dtype: Any = float) -> np.ndarray:
    rng = np.random.default_rng(0)
    B = rng.standard_normal((n, m))
    return (B + 1j * rng.standard_normal((n, m)) if np.dtype(dtype).kind == "c" else B).astype(dtype)


def residuals(A: Any, X: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.linalg.norm(B - A @ X, axis=0) / np.linalg.norm(B, axis=0)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("kind", NAMES)
def test_answers_and_steps_of_single_solves_in_the_passes_of_one(kind: str, dtype: Any) -> None:
    A, B = fitting(kind, dtype=dtype), several(300, 4, dtype)
    rtol, classic = 1e-9 if dtype == np.float64 else 1e-4, kind.removeprefix("ca_")
    options: dict[str, Any] = {"rtol": rtol}
    x, info, stats = SOLVERS[kind](A, B, return_stats=True, **options)
    assert (info, x.dtype, stats.method, len(stats.columns)) == (0, dtype, classic, 4)
    assert residuals(A, x, B).max() <= 1.01 * rtol
    singles = [SOLVERS[classic](A, b, return_stats=True, **options) for b in B.T]
    for column, (_, _, single) in zip(stats.columns, singles, strict=True):
        assert abs(column.iterations - single.iterations) <= 1 + single.iterations // 20
        assert column.products == column.matrix_passes
    np.testing.assert_allclose(x, np.stack([y for y, *_ in singles], axis=1), rtol=0, atol=1e3 * rtol * abs(x).max())
    assert stats.products == sum(column.products for column in stats.columns)
    assert stats.matrix_passes == max(column.products for column in stats.columns)
    assert ("in place of" in stats.notes[0]) == (kind != classic)
    assert "in lockstep" in stats.notes[0]
    again = SOLVERS[kind](A, B, **options)[0]
    assert x.tobytes() == again.tobytes()


def test_the_place_of_a_column_that_is_done_is_taken() -> None:
    A, B = fitting("bicgstab"), several(300, 19)
    B[:, 0] = 0
    x, info, stats = SOLVERS["bicgstab"](A, B, rtol=1e-9, return_stats=True)
    assert info == 0
    assert np.linalg.norm(B - A @ x, axis=0).max() <= 1.01e-9 * np.linalg.norm(B, axis=0).max()
    of_each = [column.products for column in stats.columns]
    assert stats.products == sum(of_each)
    assert sum(of_each) / 8 < stats.matrix_passes < 3.2 * max(of_each)


def test_dependent_columns_wait_for_those_that_they_are_made_of() -> None:
    A, B = fitting("minres"), several(300, 8)
    B[:, 3], B[:, 6] = B[:, 0], B[:, 1] - 2 * B[:, 2]
    x, info, stats = SOLVERS["minres"](A, B, rtol=1e-9, return_stats=True)
    assert info == 0
    assert residuals(A, x, B).max() <= 1.01e-9
    assert max(stats.columns[j].iterations for j in (3, 6)) < 0.3 * stats.iterations
    assert "6 columns in lockstep" in stats.notes[0]


@pytest.mark.parametrize("kind", ["bicgstab", "cg", "minres"])
def test_guesses_and_preconditioners(kind: str) -> None:
    A, B = fitting(kind), several(300, 5)
    for M in (jacobi(A), sp.csr_array(sp.diags_array(1 / A.diagonal()))):
        if kind == "minres" and A.diagonal().min() <= 0:
            M = jacobi(sp.eye_array(300, format="csr"))
        x, info, stats = SOLVERS[kind](A, B, "Mb", rtol=1e-9, M=M, return_stats=True)
        assert info == 0
        assert residuals(A, x, B).max() <= 1.01e-9
        assert stats.matrix_passes < stats.products / 2
    x, info, stats = SOLVERS[kind](A, B, x, rtol=1e-8, return_stats=True)
    assert (info, stats.iterations) == (0, 0)
    x, info, stats = solve(A, B, method=kind, rtol=1e-9, return_stats=True)
    assert stats.matrix_passes < stats.products / 2
    assert Solver(A, kind)(B, rtol=1e-9, return_stats=True)[2].matrix_passes < stats.products / 2


@pytest.mark.parametrize("kind", ["ca_bicgstab"])
def test_callbacks_are_called_where_the_solver_is(kind: str) -> None:
    A, B, seen = fitting(kind), several(300, 5), []

    def callback(value: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.append(np.copy(value))

    x, info, stats = SOLVERS[kind](A, B, rtol=1e-8, callback=callback, return_stats=True)
    assert info == 0
    assert len(seen) >= sum(column.iterations for column in stats.columns)
    assert seen[-1].shape == B.shape
    np.testing.assert_allclose(seen[-1], x, rtol=1e-3, atol=1e-3)  # columns that are under way too


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, StopIteration])
def test_what_is_raised_ends_all(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    A, B, calls = fitting("bicgstab"), several(300, 5), []

    def callback(_: Any) -> None:
        calls.append(0)
        if len(calls) == 7:
            raise error("enough")

    with pytest.raises(error, match="enough"):
        SOLVERS["bicgstab"](A, B, rtol=1e-9, callback=callback)
    assert len(calls) == 7
    multiply: Callable[[Any], None] = module.Lockstep._multiply

    def interrupted(self: Any) -> None:
        multiply(self)
        calls.append(0)
        if len(calls) == 17:
            raise error("between products")

    monkeypatch.setattr(module.Lockstep, "_multiply", interrupted)
    with pytest.raises(error, match="between products"):
        SOLVERS["minres"](fitting("minres"), B, rtol=1e-9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork")
def test_a_child_is_told_that_the_solves_are_not_there() -> None:
    A, B, told = fitting("minres"), several(300, 5), []

    def callback(_: Any) -> None:
        if not told:
            told.append(os.fork())

    try:
        info = SOLVERS["minres"](A, B, rtol=1e-9, callback=callback)[1]
    except DeviceError as error:
        os._exit("forked" in str(error))
    except BaseException:
        os._exit(2)
    if told[0] == 0:
        os._exit(3)
    assert info == 0
    assert os.waitstatus_to_exitcode(os.waitpid(told[0], 0)[1]) == 1


def test_an_error_of_one_solve_is_raised() -> None:
    A, B = fitting("bicgstab"), several(300, 5)

    class Bad(type(jacobi(A))):  # type: ignore[misc]
        def _matvec(self, r: np.ndarray) -> np.ndarray:
            if np.array_equal(r, B[:, 3]):
                raise RuntimeError("of this one alone")
            return r.copy()

    M = jacobi(A)
    M.__class__ = Bad
    with pytest.raises(RuntimeError, match="of this one alone"):
        SOLVERS["bicgstab"](A, B, rtol=1e-9, M=M)


def test_without_threads_columns_are_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B, start = fitting("minres"), several(300, 5), threading.Thread.start
    begun: list[str] = []

    def refused(self: threading.Thread) -> None:
        begun.append(self.name)
        if self.name == "akx-column" and begun.count("akx-column") == 3:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refused)
    x, info, stats = SOLVERS["minres"](A, B, rtol=1e-9, return_stats=True)
    assert (info, begun.count("akx-column")) == (0, 3)
    assert residuals(A, x, B).max() <= 1.01e-9
    assert stats.matrix_passes == stats.products


def test_without_threads_what_a_block_has_left_is_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    A = fitting("minres")
    B = several(300, 10)
    monkeypatch.setattr(rules, "_LONG", 0)
    start = threading.Thread.start

    def refused(self: threading.Thread) -> None:
        if self.name == "akx-column":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refused)
    x, _, stats = SOLVERS["cg"](A, B, rtol=1e-9, return_stats=True)  # A is not definite
    assert x.shape == B.shape
    assert all(column.reason for column in stats.columns)
    assert len(stats.columns) == 10


@pytest.mark.parametrize("types", [(float, complex), (np.float32, float), (complex, float)])
def test_columns_of_another_type_than_that_of_the_matrix(types: tuple[Any, Any]) -> None:
    A, B = fitting("bicgstab", dtype=types[0]), several(300, 5, types[1])
    x, info, stats = SOLVERS["bicgstab"](A, B, rtol=1e-9, return_stats=True)
    assert (info, x.dtype) == (0, np.result_type(*types))
    assert residuals(A.astype(x.dtype), x, B).max() <= 1.01e-9
    assert stats.matrix_passes < stats.products / 2


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_kept_of_solves_that_are_over(fails: bool) -> None:
    A, B = fitting("bicgstab"), several(300, 5)

    def callback(_: Any) -> None:
        if fails:
            raise ValueError

    def systems() -> int:
        return sum(type(one) is System for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = systems()
        for _ in range(2):
            with suppress(ValueError):
                SOLVERS["bicgstab"](A, B, rtol=1e-9, callback=callback)
        assert systems() == before
    finally:
        gc.enable()


def test_where_columns_are_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = fitting("bicgstab"), several(300, 5)
    M = LinearOperator(A.shape, matvec=lambda v: v, dtype=float)
    plain = [
        ("bicgstab", {"M": M}),
        ("ca_bicgstab", {"s": 2}),
        ("ca_bicgstab", {"basis": "newton"}),
        ("ca_gmres", {}),
        ("gmres", {}),
    ]
    for kind, options in plain:
        stats = SOLVERS[kind](A, B, rtol=1e-9, return_stats=True, **options)[2]
        assert not any("lockstep" in note for note in stats.notes)
    stats = SOLVERS["bicgstab"](A, B[:, :3], rtol=1e-9, return_stats=True)[2]
    assert stats.matrix_passes == stats.products
    _, info, stats = SOLVERS["bicgstab"](1e200 * A, B, rtol=1e-9, return_stats=True)  # in units of its own
    assert (info, stats.matrix_passes) == (0, stats.products)
    assert "lockstep" not in " ".join(solve(A, B, rtol=1e-9, return_stats=True)[2].notes)
    monkeypatch.setattr(rules, "_THREADS", 1)
    for threads, is_shared in ((1, True), (2, False)):
        stats = SOLVERS["bicgstab"](A, B, rtol=1e-9, threads=threads, return_stats=True)[2]
        assert (stats.matrix_passes < stats.products) == is_shared
    monkeypatch.undo()
    stats = SOLVERS["bicgstab"](A, B, rtol=1e-9, return_stats=True)[2]
    assert stats.matrix_passes == stats.products


def test_solve_has_the_others_in_lockstep_and_goes_on_with_who_needs_more() -> None:
    n, rng = 800, np.random.default_rng(2)
    R = sp.csr_array(sp.random_array((n - 1, n - 1), density=20 / n, rng=rng))  # factors are full
    A, B = sp.csr_array(sp.block_diag([sp.eye_array(1), R + 10.5 * sp.eye_array(n - 1)])), several(n, 6)
    x, info, stats = solve(A, B, rtol=1e-9, return_stats=True)
    assert (info, stats.method) == (0, "bicgstab")
    assert residuals(A, x, B).max() <= 1.01e-9
    assert "5 columns in lockstep" in stats.notes[0]
    assert stats.matrix_passes < 0.6 * stats.products
    S = R @ R.T
    A = sp.csr_array(sp.block_diag([sp.eye_array(1), S + 0.03 * sp.eye_array(n - 1)]))
    B[:, 0] = np.arange(n) == 0
    x, info, stats = solve(A, B, rtol=1e-9, return_stats=True)
    assert info == 0
    assert residuals(A, x, B).max() <= 1.01e-9
    assert "5 columns in lockstep" in stats.notes[0]
    assert min(column.iterations for column in stats.columns[1:]) > 22 == 2 * stats.columns[0].iterations + rules._MORE
    _, info, stats = solve(A.copy(), B, rtol=1e-9, maxiter=1000, return_stats=True)
    assert info == 0  # in lockstep columns may not use up all of it
    assert "5 columns in lockstep" in stats.notes[0]
