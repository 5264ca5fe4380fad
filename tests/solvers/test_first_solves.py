"""The first solves with a matrix: plain products and NumPy, until preparing has paid, in the middle of a solve too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from counting import calls_of
from scipy.sparse.linalg import cg as cg_of_scipy

import akx
from akx.backends.cpu import backend
from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.core.matrix import Matrix
from akx.operator import background_compile, lookup, tiers
from akx.solvers import SOLVERS, Solver, monitor, preconditioners, products, solve, system, vector_work
from akx.solvers.system import System
from akx.tuner.warmup import gpu_code as precompile

ALL = {**SOLVERS, "solve": solve}
_SCRIPT = """
import hashlib, sys
import numpy as np, scipy.sparse as sp
from akx import solvers
n = 2500
d = np.random.default_rng(0).random(n)
A = sp.csr_array(sp.diags_array([-d[1:], 4 + d, -d[1:]], offsets=[-1, 0, 1]))
for name in (*solvers.SOLVERS, "solve"):
    x, info = getattr(solvers, name)(A, np.ones(n), rtol=1e-9)
    assert info == 0, name
    assert np.linalg.norm(A @ x - 1) <= 1.0001e-9 * n**0.5, name
    print(name, hashlib.sha256(x.tobytes()).hexdigest())
assert "numba" not in sys.modules
"""


@pytest.fixture(autouse=True)
def _from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_PREPARE")
    for module in (background_compile, products):  # all code is compiled
        monkeypatch.setattr(module, "look", lambda *job: None)
    tiers.forget()
    akx.clear_cache()  # work on vectors that tests before have left


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> list[System]:
    """Those that were made."""
    made, make = list[System](), System.__init__

    def noted(self: System, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(System, "__init__", noted)
    return made


def laplacian(n: int = 400) -> sp.csr_array:
    d = np.random.default_rng(0).random(n)
    return sp.csr_array(sp.diags_array([-d[1:], 2.2 + d, -d[1:]], offsets=[-1, 0, 1]))


def test_a_new_process_solves_without_a_compiler_and_with_the_same_bits_as_any_other(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "code"), "AKX_DB": str(tmp_path / "plans.sqlite")}
    run = [sys.executable, "-c", _SCRIPT]
    first, second = (
        subprocess.run(run, check=True, env=environment, capture_output=True, text=True).stdout for _ in range(2)
    )
    assert first == second
    assert len(first.splitlines()) == 1 + len(SOLVERS)
    assert not (tmp_path / "code").exists()


@pytest.mark.usefixtures("methods_first")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("loaded", [True, False], ids=["compiled", "numpy"])
def test_what_is_prepared_goes_on_in_the_middle_of_a_solve(
    name: str, loaded: bool, systems: list[System], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "is_compiled", lambda *_: loaded)
    monkeypatch.setattr(tiers, "is_loaded", lambda: True)
    for constant, value in {"_MATRIX": 1e-6, "_ENTRY": 0.0}.items():
        monkeypatch.setattr(tiers, constant, value)
    monkeypatch.setattr(products, "_OVERHEAD", -2e-7)  # five products
    monkeypatch.setattr(backend, "_SHORT", 0)
    A, b = laplacian(), np.random.default_rng(1).random(400)
    x, info, stats = ALL[name](A, b, rtol=1e-10, return_stats=True)
    assert info == 0
    assert np.linalg.norm(b - A @ x) <= 1.0001e-10 * np.linalg.norm(b)
    assert stats.seconds["setup"] > 0
    first = systems[0]
    assert first._rent is None
    assert isinstance(first.work, NumpyVectors) is not loaded
    again = ALL[name](A, b, rtol=1e-10)
    assert again[1] == 0
    assert all(one._rent is None for one in systems[1:])
    np.testing.assert_allclose(again[0], x, rtol=1e-7)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_plain_ones_solve_every_type_and_prepare_nothing(
    name: str, dtype: Any, systems: list[System], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "is_compiled", lambda *_: False)
    A, b = laplacian().astype(dtype), np.random.default_rng(1).random(400).astype(dtype)
    rtol = 1e-5 if dtype == np.float32 else 1e-10
    M = preconditioners.jacobi(A)
    for options in ({}, {"M": M}):
        x, info = ALL[name](A, b, rtol=rtol, **options)
        assert (info, x.dtype) == (0, dtype)
        assert np.linalg.norm(b - A @ x) <= 1.01 * rtol * np.linalg.norm(b)
    assert systems
    assert all(one._rent is not None and not one._operators for one in systems)


def test_a_solve_waits_for_no_compiler_where_numba_is_there_for_other_reasons(
    systems: list[System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, asked = tmp_path / "note", list[Any]()
    monkeypatch.setattr(vector_work, "_NOTES", {})
    monkeypatch.setattr(precompile, "note_of", lambda code, matrix: asked.append(code) or note)
    monkeypatch.setattr(vector_work, "is_loaded", lambda: True)
    monkeypatch.setattr(backend, "_SHORT", 0)
    for _ in range(2):
        assert ALL["cg"](laplacian(), np.ones(400), rtol=1e-10)[1] == 0
    note.touch()
    assert ALL["cg"](laplacian(), np.ones(400), rtol=1e-10)[1] == 0
    assert [isinstance(one.work, NumpyVectors) for one in systems] == [True, True, False]
    count = len(asked)
    assert ALL["cg"](laplacian(), np.ones(400), rtol=1e-10)[1] == 0
    assert len(asked) == count  # it is not asked for again


def test_a_trial_of_a_counterpart_waits_for_what_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[bool]()

    class Looks:
        is_of_prepared = looks_at_plain = False

        def due(self, stats: Any) -> bool:
            asked.append(True)
            return False

        def ends(self, stats: Any, target: float) -> bool:
            return False

    def run(prepared: bool) -> list[bool]:
        asked.clear()
        watch = Looks()
        watch.is_of_prepared = prepared
        SOLVERS["cg"](laplacian(), np.ones(400), callback=monitor.Watched(None, watch))
        return asked

    assert run(prepared=False) == []
    assert run(prepared=True) != []


def test_a_database_that_is_none_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="db is no database"):
        SOLVERS["cg"](laplacian(), np.ones(400), db=3)


def test_a_matrix_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, from_any = list[Any](), Matrix.from_any

    def count(A: Any, **options: Any) -> Any:
        made.append(A)
        return from_any(A, **options)

    monkeypatch.setattr(Matrix, "from_any", staticmethod(count))
    A, b, cg = laplacian(), np.ones(400), SOLVERS["cg"]
    x = cg(A, b)[0]
    np.testing.assert_array_equal(cg(A, b)[0], x)
    assert made == [A]
    A.data *= 2
    np.testing.assert_allclose(2 * cg(A, b, rtol=1e-10)[0], cg(laplacian(), b, rtol=1e-10)[0], rtol=1e-8)


@pytest.mark.parametrize("rtol", [1e-1, 1e-8])
def test_a_second_solve_runs_no_more_python_than_scipys(rtol: float) -> None:
    A, b, cg = laplacian(), np.ones(400), SOLVERS["cg"]
    assert calls_of(lambda: cg(A, b, rtol=rtol)) <= calls_of(lambda: cg_of_scipy(A, b, rtol=rtol)) + 110
    steps = [
        calls_of(lambda cg=cg: cg(A, b, rtol=1e-8)) - calls_of(lambda cg=cg: cg(A, b, rtol=1e-1))
        for cg in (cg, cg_of_scipy)
    ]
    assert steps[0] < steps[1]


def test_a_matrix_is_compared_with_its_copy_bit_for_bit() -> None:
    A, b, cg = laplacian(), np.ones(400), SOLVERS["cg"]
    A.data[0] = 0.0
    kept = lookup.canonical(A)
    assert lookup.canonical(A) is kept
    A.data[0] = -0.0
    assert np.signbit(lookup.canonical(A).data[0])
    A.data[0] = 3.0
    x = cg(A, b, rtol=1e-10)[0]
    np.testing.assert_allclose(A @ x, b, rtol=1e-7)
    A.indices[0], A.indices[1] = A.indices[1], A.indices[0]
    assert lookup.canonical(A) is not kept


def test_a_solver_of_a_small_system_does_what_cg_does(systems: list[System]) -> None:
    """Products of a plan, and compiled work on vectors, are the quicker ones only where there is enough to be done."""
    A, b = laplacian(), np.random.default_rng(1).random(400)
    solver = Solver(A, "cg")
    np.testing.assert_array_equal(solver(b, rtol=1e-10)[0], SOLVERS["cg"](A, b, rtol=1e-10)[0])
    assert all(isinstance(one.work, NumpyVectors) and not one._operators for one in systems)
    assert solver._cache.nbytes == 0


@pytest.mark.parametrize("how", ["size", "always", "online"])
def test_a_solver_has_a_plan_where_that_is_quicker_or_asked_for(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "always":
        monkeypatch.setenv("AKX_PREPARE", "always")
    solver = Solver(laplacian(6000 if how == "size" else 400), "cg", tune="online" if how == "online" else None)
    assert len(solver._cache.entries) == 1


def test_powers_of_a_small_system_have_a_plan_where_products_have_none(systems: list[System]) -> None:
    """Eight products in one call are spared eight times as much as one."""
    A, b = laplacian(2500), np.random.default_rng(1).random(2500)
    solver = Solver(A, "ca_cg", s=8, basis="chebyshev")
    systems.clear()
    solver(b, rtol=1e-10)
    assert {k for one in systems for k, _ in one._operators} == set()
    assert {entry.operator.k for entry in solver._cache.entries.values()} == {8}
