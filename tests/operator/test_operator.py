"""MatrixPowers and matrix_powers as their users call them."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry
from akx.backends.cpu.task_loop import run_tasks
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import host_device, resolve_threads
from akx.backends.schedule import Program
from akx.backends.selection import device_of
from akx.core.basis import chebyshev
from akx.core.errors import (
    AkxError,
    AkxWarning,
    ArgumentError,
    ArgumentTypeError,
    BudgetError,
    InfeasibleError,
    MatrixError,
    MissingDependencyError,
    PlanError,
)
from akx.core.plan import Plan
from akx.operator import cache, freshness, planner
from akx.operator import powers as prepared_powers
from akx.operator.cache import CACHE
from akx.operator.planner import Choice
from akx.operator.prepared import Prepared
from akx.plandb import PlanDatabase, PlanRecord
from akx.solvers import ca_gmres
from akx.tuner import measure, plan_key
from akx.tuner.fallback import answer as ladder


def budgeted(P: akx.MatrixPowers, budget: int) -> None:
    """Have an operator keep within so many bytes from now on."""
    chooser = P._prepared.planner
    chooser.asked = dataclasses.replace(chooser.asked, budget=budget)


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))


def grid(m: int = 30) -> sp.csr_array:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    return sp.csr_array(sp.kron(line, sp.eye_array(m)) + sp.kron(sp.eye_array(m), line))


def record(A: Any, k: int, plan: Plan, **which: Any) -> PlanRecord:
    """What a search would keep, made by hand."""
    key = plan_key(akx.Matrix.from_any(A), k, **which)
    return PlanRecord(key, plan, 1.0, "csr", 2.0, 0.1, 1.0, "2026-01-01T00:00:00+00:00", "by hand", {}, {})


def powers(A: Any, x: Any, k: int) -> Any:
    V = [x]
    for _ in range(k):
        V.append(A @ V[-1])
    return np.stack(V, axis=-1)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_array, sp.dia_array])
def test_any_sparse_format(make: Any) -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    V = akx.matrix_powers(make(A), x, 5)
    assert V.shape == (900, 6)
    np.testing.assert_allclose(V, powers(A, x, 5), rtol=1e-13, atol=1e-10)


def test_layout_each_vector_contiguous() -> None:
    A, rng = grid(), np.random.default_rng(0)
    V = akx.matrix_powers(A, rng.standard_normal(900), 3)
    assert V.shape == (900, 4)
    assert V.flags.f_contiguous
    W = akx.matrix_powers(A, rng.standard_normal((900, 2)), 3)
    assert W.shape == (900, 2, 4)
    assert all(W[:, b, j].flags.c_contiguous for b in range(2) for j in range(4))


@pytest.mark.parametrize("b", range(1, 9))
def test_start_vectors(b: int) -> None:
    A, X = grid(), np.random.default_rng(b).standard_normal((900, b))
    V = akx.matrix_powers(A, X, 4)
    for j in range(b):
        np.testing.assert_allclose(V[:, j], powers(A, X[:, j], 4), rtol=1e-13, atol=1e-9)


def test_types_follow_scipy() -> None:
    A = grid()
    for matrix in ("float32", "float64", "complex64", "complex128", "int64"):
        for vector in ("float32", "float64", "complex64", "complex128", "int32", "bool"):
            B, x = A.astype(matrix), np.arange(900).astype(vector)
            V = akx.matrix_powers(B, x, 2)
            expected = (B.astype("float64") if matrix == "int64" else B) @ (
                x * 1.0 if vector in ("int32", "bool") else x
            )
            assert V.dtype == expected.dtype, (matrix, vector)
            np.testing.assert_allclose(V[:, 1], expected, rtol=1e-5)


def test_arrays_that_speak_dlpack_alone() -> None:
    class Tensor:
        def __init__(self, values: Any) -> None:
            self._values = values

        def __dlpack__(self, **options: Any) -> Any:
            return self._values.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    A, x = grid(), np.random.default_rng(0).standard_normal((900, 2))
    np.testing.assert_array_equal(akx.matrix_powers(A, Tensor(x), 2), akx.matrix_powers(A, x, 2))


def test_out_is_filled_and_returned() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    out = np.full((900, 4), np.nan, order="F")
    V = akx.matrix_powers(A, x, 3, out=out)
    assert V is out
    np.testing.assert_allclose(out, powers(A, x, 3), atol=1e-12)
    P = akx.MatrixPowers(A, 3)
    block = np.full((900, 2, 4), np.nan, order="F")
    P(np.stack([x, 2 * x], axis=1), out=block)
    np.testing.assert_allclose(block[:, 1], 2 * out, atol=1e-12)


def test_start_vector_may_be_a_part_of_out() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    out = np.empty((900, 4), order="F")
    out[:, 3] = x
    akx.matrix_powers(A, out[:, 3], 3, out=out)
    np.testing.assert_allclose(out, powers(A, x, 3), atol=1e-12)


@pytest.mark.parametrize(
    "out",
    [np.empty((900, 4)), np.empty((900, 3), order="F"), np.empty((900, 4), "f4", order="F"), [0.0]],
    ids=["C order", "shape", "dtype", "list"],
)
def test_out_that_does_not_fit(out: Any) -> None:
    with pytest.raises(ArgumentError, match="out"):
        akx.matrix_powers(grid(), np.ones(900), 3, out=out)


@pytest.mark.parametrize(
    ("k", "kind"), [(0, ArgumentError), (-1, ArgumentError), (2.0, ArgumentTypeError), (True, ArgumentTypeError)]
)
def test_k_that_makes_no_sense(k: Any, kind: type[AkxError]) -> None:
    for call in (lambda: akx.MatrixPowers(grid(), k), lambda: akx.matrix_powers(grid(), np.ones(900), k)):
        with pytest.raises(kind, match="k"):
            call()


def test_arguments_that_make_no_sense() -> None:
    A = grid()
    for x in (np.ones(899), np.ones((900, 0)), np.ones((1, 900)), np.ones((900, 2, 2))):
        with pytest.raises(ArgumentError, match="x does not fit"):
            akx.matrix_powers(A, x, 2)
    with pytest.raises(ArgumentTypeError):
        akx.matrix_powers(A, np.array(["a"] * 900), 2)
    with pytest.raises(MatrixError):
        akx.matrix_powers(A.toarray(), np.ones(900), 2)
    with pytest.raises(ArgumentError):
        akx.matrix_powers(A, np.ones(900), 2, basis="legendre")
    with pytest.raises(ArgumentError):
        akx.matrix_powers(A, np.ones(900), 2, threads=0)
    with pytest.raises(AkxError):
        akx.matrix_powers(A, np.ones(900), 2, backend="abacus")
    with pytest.raises(PlanError, match="another k"):
        akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "csr", k=4))
    with pytest.raises(InfeasibleError):
        akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "bell", k=3))


# ------------------------------------------------------------------------------------------- prepared only once


def test_second_call_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = grid(), np.ones(900)
    made: list[int] = []
    original = akx.MatrixPowers.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(1)
        original(self, *args, **kwargs)

    monkeypatch.setattr(akx.MatrixPowers, "__init__", counted)
    for _ in range(3):
        akx.matrix_powers(A, x, 4)
    assert len(made) == 1
    akx.matrix_powers(A, x, 5)
    assert len(made) == 2
    akx.matrix_powers(A.copy(), x, 4)
    assert len(made) == 3


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.dia_array])
def test_values_changed_in_place_are_seen(make: Any) -> None:
    A, x = make(grid()), np.random.default_rng(0).standard_normal(900)
    akx.matrix_powers(A, x, 4)
    rng = np.random.default_rng(1)
    for _ in range(5):
        flat = A.data.reshape(-1)
        flat[rng.integers(flat.size)] += 0.5
        np.testing.assert_allclose(akx.matrix_powers(A, x, 4), powers(sp.csr_array(A), x, 4), atol=1e-9)


def test_one_tiny_change_is_seen() -> None:
    A, x = sp.csr_array(sp.diags_array(np.full(900, 3.0))), np.ones(900)
    akx.matrix_powers(A, x, 1)
    A.data[17] = np.nextafter(3.0, 4.0)
    assert np.flatnonzero(akx.matrix_powers(A, x, 1)[:, 1] != 3.0).tolist() == [17]


def test_pattern_changed_in_place_is_seen() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    akx.matrix_powers(A, x, 3)
    A.indices[0], A.indices[1] = 7, 11  # row 0 now couples to other columns
    A.has_sorted_indices = False
    np.testing.assert_allclose(akx.matrix_powers(A, x, 3), powers(A, x, 3), atol=1e-11)


def test_estimated_basis_follows_the_values() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    akx.matrix_powers(A, x, 4, basis="chebyshev")
    A.data *= 100
    V = akx.matrix_powers(A, x, 4, basis="chebyshev")
    assert np.abs(V).max() < 100 * np.abs(x).max()  # |T_j| stays small on the interval of the new values


def test_kept_operators_die_with_their_matrix() -> None:
    CACHE.entries.clear()
    A = grid()
    akx.matrix_powers(A, np.ones(900), 2)
    size = len(CACHE.entries)
    del A
    gc.collect()
    assert len(CACHE.entries) == size - 1


def test_only_a_few_are_kept() -> None:
    CACHE.entries.clear()
    matrices = [grid(4 + i) for i in range(12)]
    for A in matrices:
        akx.matrix_powers(A, np.ones(A.shape[0]), 1)
    assert len(CACHE.entries) <= 8


# ------------------------------------------------------------------------------------------- the object


def test_operator_copies_and_update_values() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    P = akx.MatrixPowers(A, 3)
    first = P(x).copy()
    A.data[:] *= 2
    np.testing.assert_array_equal(P(x), first)
    P.update_values(sp.csc_array(A))
    np.testing.assert_allclose(P(x), powers(A, x, 3), atol=1e-10)
    assert P(x.astype(complex) * 1j).dtype == np.complex128
    P.update_values(A / 2)
    np.testing.assert_allclose(P(1j * x)[:, 3].imag, first[:, 3], atol=1e-10)


def test_values_from_a_device_reach_plans_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are fetched when a plan of the host is used, once, and not before; bytes are counted meanwhile."""
    from akx.backends.cuda.device import interchange
    from akx.backends.cuda.value_compression import new_values as values

    fetched: list[int] = []

    class Values:
        __cuda_array_interface__: Any = None

        def __init__(self, data: Any) -> None:
            self.data, self.nbytes = data, data.nbytes

        def get(self) -> Any:
            fetched.append(1)
            return self.data.copy()

    monkeypatch.setattr(interchange, "values_of", lambda x, nnz, dtype: x)
    monkeypatch.setattr(values, "all_finite", lambda x: bool(np.isfinite(x.data).all()))
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    P = akx.MatrixPowers(A, 3)
    P(x)
    P(x.astype(complex))
    held = P.nbytes
    for factor in (2.0, 3.0):
        fetched.clear()
        P.update_values(Values(factor * A.data))
        assert not fetched
        assert P.nbytes >= held + A.data.nbytes
        V = akx.matrix_powers(factor * A, x, 3)
        assert np.array_equal(P(x), V)
        np.testing.assert_allclose(P(x.astype(complex)), V, rtol=1e-13)
        np.testing.assert_allclose(P(np.stack([x, x], axis=1))[:, 1], V, rtol=1e-13)
        assert fetched == [1]
    spoilt = A.data.copy()
    spoilt[7] = np.inf
    with pytest.raises(MatrixError, match="not finite"):
        P.update_values(Values(spoilt))
    assert np.array_equal(P(x), V)
    P.update_values(Values(spoilt), check_finite=False)
    with pytest.warns(AkxWarning, match="power 1 of 3"):
        assert not np.isfinite(P(x)[:, 1]).all()
    P.update_values(A)  # and back to values of the host, with others still on the device
    P.update_values(Values(2 * A.data))
    P.update_values(A)
    assert np.array_equal(P(x), akx.matrix_powers(A, x, 3))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is sent to a GPU that is not there."""
    from akx.backends.cuda.device import memory
    from akx.backends.cuda.value_compression import new_values as values

    class OnDevice:
        def __init__(self, data: Any) -> None:
            self.data, self.nbytes = data.copy(), data.nbytes

        def get(self) -> Any:
            return self.data

    found: list[Any] = []

    def send(data: Any) -> Any:
        found.append(OnDevice(data))
        return found[-1]

    monkeypatch.setattr(memory, "to_device", send)
    monkeypatch.setattr(values, "all_finite", lambda x: bool(np.isfinite(x.data).all()))
    return found


class Laid(Program):
    """A program of a GPU that is not there."""

    nbytes = staged_nbytes = host_nbytes = 0

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def update_values(self, data: Any) -> None:
        self.taken.append(data)

    def run(self, x: Any, out: Any, coefficients: Any) -> None:
        raise NotImplementedError


def test_values_of_the_host_are_laid_out_on_the_device_where_entries_are_alike(sent: list[Any]) -> None:
    A = sp.csr_array(grid())
    P, program = akx.MatrixPowers(A, 3), Laid()
    plan = Plan("cuda", "sweep", "csr-1", k=3)
    P._prepared.programs = {(P.dtype, plan): program}  # type: ignore[dict-item]
    for B in (2.0 * A, akx.Matrix.from_any(3.0 * A)):
        P.update_values(B)
        assert program.taken[-1] is sent[-1]
        assert np.array_equal(sent[-1].data, B.data)
        assert np.array_equal(P._prepared.values.of(P.dtype).data, B.data)
    longer = A.copy()
    longer.data = np.append(2.5 * A.data, [7.0, 7.0])
    P.update_values(longer)  # more room than entries
    assert np.array_equal(sent[-1].data, 2.5 * A.data)
    assert P._prepared.held()["new values", id(P._prepared.values)] == A.data.nbytes  # of each operator its own
    count = len(sent)
    backwards = sp.csr_array((A.data, A.indices.copy(), A.indptr), shape=A.shape)
    for i in range(A.shape[0]):
        backwards.indices[A.indptr[i] : A.indptr[i + 1]] = A.indices[A.indptr[i] : A.indptr[i + 1]][::-1]
    for B in (sp.coo_array(A), A.astype(np.float32), backwards):  # sorted, widened, put in order here
        P.update_values(B)
        assert len(sent) == count
        assert np.array_equal(program.taken[-1], akx.Matrix.from_any(B, dtype=P.dtype).data)
    for way in ("table", "half"):  # looked at there
        P._prepared.programs = {(P.dtype, plan.replace(options={"stored": way})): program}  # type: ignore[dict-item]
        P.update_values(A)
        assert program.taken[-1] is sent[-1]
    assert len(sent) == count + 2
    for other in (Plan("cuda", "stream", "sell-2", k=3), Plan("cpu", "sweep", "csr", k=3)):  # kept here
        P._prepared.programs = {(P.dtype, plan): Laid(), (P.dtype, other): program}  # type: ignore[dict-item]
        P.update_values(A)
        assert isinstance(program.taken[-1], np.ndarray)
    P._prepared.programs = {(P.dtype, plan): program}  # type: ignore[dict-item]
    budgeted(P, 2**40)  # counts all that is held
    P.update_values(A)
    assert isinstance(program.taken[-1], np.ndarray)
    assert len(sent) == count + 2


def test_arrays_that_do_not_belong_together_are_refused_as_ever(sent: list[Any]) -> None:
    A = sp.csr_array(grid())
    P = akx.MatrixPowers(A, 3)
    P._prepared.programs = {(P.dtype, Plan("cuda", "sweep", "csr-1", k=3)): Laid()}  # type: ignore[dict-item]
    short = A.copy()
    short.data = short.data[:-20]
    wider = sp.csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], A.shape[1] + 3))
    for wrong in (short, wider):
        with pytest.raises(akx.AkxError):
            P.update_values(wrong)
    assert not sent


def test_kept_operators_of_one_matrix_take_its_new_values_from_it(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose values are on a device has the old ones on the host: others are not to take these."""

    class Emulated(Program):
        nbytes = 0

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def update_values(self, data: Any) -> None:
            self.inner.update_values(data if isinstance(data, np.ndarray) else data.data)

        def run(self, x: Any, out: Any, coefficients: Any) -> None:
            self.inner.run(x, out, coefficients)

    A, x = sp.csr_array(grid()), np.random.default_rng(0).standard_normal(900)
    for k in (3, 4):
        akx.matrix_powers(A, x, k)
    for kept in CACHE.entries.values():
        P = kept.operator
        if kept.owner() is not A:
            continue
        plan = Plan("cuda", "sweep", "csr-1", k=P.k)
        P._prepared.programs = {(P.dtype, plan): Emulated(*P._prepared.programs.values())}  # type: ignore[dict-item]
        P._prepared.choices.made = {key: Choice(plan, "here") for key in P._prepared.choices.made}
        P._prepared.ready.clear()
    A.data *= 2
    for k in (3, 4, 5):
        np.testing.assert_allclose(akx.matrix_powers(A, x, k), powers(A, x, k), rtol=1e-12, atol=1e-9)
    assert sent


def test_a_predicted_plan_that_cannot_keep_new_values_as_planned_is_predicted_anew(sent: list[Any]) -> None:
    class Switched(Laid):
        is_as_planned = True

        def update_values(self, data: Any) -> None:
            super().update_values(data)
            self.is_as_planned = False

    A = sp.csr_array(grid())
    plan = Plan("cuda", "wavefront", "sell16-1", k=3, options={"stored": "table"})
    h100 = CudaDevice("", 0, (9, 0), 132, 232_448, 233_472, 65_536, 2**25, 2**36, 10**9, 3e12)
    crowded = plan.replace(
        k_per_pass=3, options={**plan.options, "held_slots": 14, "block": 256, "slices": 6, "slack": 2}
    )
    for used, predicted, stays in ((plan, True, False), (plan, False, True), (crowded, False, False)):
        P, program = akx.MatrixPowers(A, 3), Switched()
        P._prepared.planner.device = lambda _: h100  # type: ignore[method-assign]
        key = (P.dtype, 1, "cpu")
        P._prepared.choices.made = {key: Choice(used, "here", is_predicted=predicted)}
        P._prepared.programs = {(P.dtype, used): program}  # type: ignore[dict-item]
        P.update_values(2.0 * A)
        assert len(program.taken) == 1
        assert (key in P._prepared.choices.made) == ((P.dtype, used) in P._prepared.programs) == stays


def test_values_of_the_host_that_do_not_fit_the_device_or_are_not_finite(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from akx.backends.cuda.device import memory
    from akx.core.errors import DeviceMemoryError

    A = sp.csr_array(grid())
    P, program = akx.MatrixPowers(A, 3), Laid()
    P._prepared.programs = {(P.dtype, Plan("cuda", "sweep", "csr-1", k=3)): program}  # type: ignore[dict-item]
    B = A.copy()
    B.data[5] = np.nan
    with pytest.raises(MatrixError, match="not finite"):
        P.update_values(B)
    assert not program.taken

    def full(data: Any) -> Any:
        raise DeviceMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(memory, "to_device", full)
        P.update_values(2.0 * A)
    assert np.array_equal(program.taken[-1], 2.0 * A.data)
    monkeypatch.setattr(program, "update_values", full)  # the map of places does not fit
    P.update_values(3.0 * A)
    assert not P._prepared.programs  # to be made anew
    assert np.array_equal(P._prepared.values.of(P.dtype).data, 3.0 * A.data)


def test_a_budget_counts_the_vectors_of_every_call() -> None:
    P = akx.MatrixPowers(grid(), 3)
    plan, dtype, size = P.plan, np.dtype(float), 8 * 900
    budgeted(P, 1000 + 2 * 5 * size)
    program = Laid()
    program.nbytes = 1000
    P._prepared.choices.made.clear()
    P._prepared.planner.given, P._prepared.programs = plan, {(dtype, plan): program}
    assert P._prepared.program(dtype, 1) is P._prepared.program(dtype, 2) is program
    program.nbytes, program.staged_nbytes = 1000 + 2 * 5 * size, 2 * 5 * size  # as after a call
    assert P._prepared.program(dtype, 2) is program
    with pytest.raises(BudgetError, match=f"found {1000 + 3 * 5 * size} bytes with its vectors"):
        P._prepared.program(dtype, 3)


def test_explain_within_a_budget_says_what_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    P = akx.MatrixPowers(grid(), 3)
    assert "was measured to read" in P.explain()
    budgeted(P, 10**9)
    monkeypatch.setattr(P._prepared.planner, "device", device_of)
    text = P.explain()
    assert "is taken to move between host and GPU" in text
    assert "was measured to" not in text


def test_what_is_page_locked_is_counted() -> None:
    P = akx.MatrixPowers(grid(), 3)
    held, program = P.nbytes, next(iter(P._prepared.programs.values()))
    other = P._prepared.programs[next(iter(P._prepared.programs))] = Laid()
    other.nbytes, other.host_nbytes = program.nbytes, 5000
    assert P.nbytes == held + 5000


def test_budgets_are_read_before_a_kept_operator_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = grid(), np.ones(900)
    for wrong in ({"memory_budget": [1]}, {"memory_budget": {}}, {"fraction": [0.25]}, {"plan": [1]}):
        with pytest.raises(ArgumentTypeError):
            akx.matrix_powers(A, x, 3, **wrong)  # type: ignore[arg-type]
    made: list[Any] = []
    operator = akx.MatrixPowers

    def make(source: Any, k: int, **rest: Any) -> Any:
        made.append((rest.pop("memory_budget"), rest.pop("fraction")))
        return operator(source, k, basis=rest["basis"])

    monkeypatch.setattr(prepared_powers, "MatrixPowers", make)
    for budget in ("1K", 1024, np.int64(1024), "1 KiB"):
        akx.matrix_powers(A, x, 3, memory_budget=budget)  # type: ignore[arg-type]
    akx.matrix_powers(A, x, 3, fraction=np.float32(0.5))  # type: ignore[arg-type]
    akx.matrix_powers(A, x, 3, fraction=0.5)
    assert made == [(1024, None), (None, 0.5)]


def test_update_values_refuses_another_pattern() -> None:
    P = akx.MatrixPowers(grid(), 3)
    for other in (sp.eye_array(900, format="csr"), grid(29)):
        with pytest.raises(MatrixError, match="another pattern"):
            P.update_values(other)
    x = np.ones(900)
    np.testing.assert_allclose(P(x), powers(grid(), x, 3))


@pytest.mark.parametrize("kind", ["monomial", "newton", "chebyshev"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_basis_relation(kind: str, dtype: str) -> None:
    """A V_k = V_{k+1} B."""
    rng = np.random.default_rng(0)
    A = sp.csr_array(grid(12).astype(dtype))
    if dtype == "complex128":
        A = A + sp.csr_array(1j * sp.diags_array(rng.standard_normal(144)))
    else:
        A = A + sp.csr_array(sp.diags_array([1.0, -1.0], offsets=[-1, 1], shape=(144, 144)))
    P = akx.MatrixPowers(A, 6, basis=kind)
    V = P(rng.standard_normal(144))
    B = P.basis.matrix()
    assert B.shape == (7, 6)
    scale = np.abs(V).max(axis=0)[:6]
    np.testing.assert_allclose((A @ V[:, :6]) / scale, (V @ B) / scale, atol=1e-11)


def test_explicit_basis_is_cut_to_k() -> None:
    P = akx.MatrixPowers(grid(), 3, basis=akx.monomial(8))
    assert P.basis.k == 3


def test_linear_operator() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    P = akx.MatrixPowers(A, 3)
    L = P.aslinearoperator()
    assert L.shape == (900, 900)
    np.testing.assert_allclose(L @ x, A @ (A @ (A @ x)), atol=1e-10)
    X = np.stack([x, -x, x + 1], axis=1)
    np.testing.assert_allclose(P.aslinearoperator(1) @ X, A @ X, atol=1e-12)
    with pytest.raises(ArgumentError):
        P.aslinearoperator(4)


def test_explain_names_plan_reason_and_traffic() -> None:
    P = akx.MatrixPowers(grid(), 3)
    text = P.explain()
    for word in (P.plan.label(), "predicted", "expected", "measured", "GB/s", "prepared"):
        assert word in text
    assert "measured" not in P.explain(measure=False)


def test_tuned_plan_is_picked_up(tmp_path: Path) -> None:
    db = akx.PlanDatabase(tmp_path / "other.sqlite")
    A, x = grid(60), np.random.default_rng(0).standard_normal(3600)
    result = akx.tune(akx.Matrix.from_any(A), 4, trials=6, seconds=9, db=db)
    P = akx.MatrixPowers(A, 4, db=db)
    assert P.plan == result.plan
    assert "tuned" in P.explain(measure=False)
    np.testing.assert_allclose(P(x), powers(A, x, 4), atol=1e-9)


def test_threads_and_small_matrices() -> None:
    for n in (1, 2, 3, 7):
        A = sp.csr_array(np.arange(1.0, n * n + 1).reshape(n, n))
        for threads in (1, 2, 5):
            V = akx.matrix_powers(A, np.ones(n), 3, threads=threads)
            np.testing.assert_allclose(V, powers(A, np.ones(n), 3), rtol=1e-13)


def test_several_callers_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    A = grid(60)
    P = akx.MatrixPowers(A, 4)
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(3600) for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for x, V in zip(xs, pool.map(P, xs), strict=True):
            np.testing.assert_allclose(V, powers(A, x, 4), atol=1e-9)
        for x, V in zip(xs, pool.map(lambda x: akx.matrix_powers(A, x, 3), xs), strict=True):
            np.testing.assert_allclose(V, powers(A, x, 3), atol=1e-9)


# ------------------------------------------------------------------------------------------- never stale


@pytest.mark.parametrize(("narrow", "wide"), [("f4", "f8"), ("c8", "c16"), ("f4", "i8")])
def test_type_changed_in_place_is_seen(narrow: str, wide: str) -> None:
    A, x = grid().astype(narrow), np.ones(900, dtype="f4")
    akx.matrix_powers(A, x, 2)
    A.data = A.data.astype(wide)
    if wide != "i8":
        A.data *= 1 + 1e-12
    V = akx.matrix_powers(A, x, 2)
    assert V.dtype == np.dtype("f8" if wide == "i8" else wide)
    np.testing.assert_allclose(V, powers(A, x, 2), rtol=1e-14)


def used_plan(A: Any) -> Plan:
    """The plan of the operator that is kept for A."""
    return next(kept.operator.plan for kept in CACHE.entries.values() if kept.owner() is A)


@pytest.mark.parametrize("named", [False, True], ids=["user's", "path"])
def test_plan_put_later_is_used_from_then_on(tmp_path: Path, named: bool) -> None:
    path = tmp_path / "named.sqlite"
    arguments: dict[str, Any] = {"db": path} if named else {}
    db = akx.PlanDatabase(path if named else None)
    A, x = grid(), np.ones(900)
    akx.matrix_powers(A, x, 3, **arguments)
    tuned = Plan("cpu", "sweep", "sell", k=3, threads=1, options={"sigma": 128})
    assert used_plan(A) != tuned
    kept = db.put(record(A, 3, tuned)) or db.list()[0]
    np.testing.assert_allclose(akx.matrix_powers(A, x, 3, **arguments), powers(A, x, 3), atol=1e-12)
    assert used_plan(A) == tuned
    A.data *= 2
    np.testing.assert_allclose(akx.matrix_powers(A, x, 3, **arguments), powers(A, x, 3), atol=1e-12)
    db.export(tmp_path / "bundle.json")
    db.remove(kept.id)
    akx.matrix_powers(A, x, 3, **arguments)
    assert used_plan(A) != tuned
    db.import_(tmp_path / "bundle.json")
    akx.matrix_powers(A, x, 3, **arguments)
    assert used_plan(A) == tuned


def test_plan_of_another_process_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "GLANCE", 0.0)
    A, x = grid(), np.ones(900)
    tuned = Plan("cpu", "sweep", "sell", k=3, threads=1, options={"sigma": 128})
    put = (
        "import sys, json, akx\nfrom akx.plandb import PlanRecord\n"
        "akx.PlanDatabase().put(PlanRecord.from_json(json.load(sys.stdin)))"
    )
    for variant in ("sell", "csr"):  # makes the file, then changes it
        akx.matrix_powers(A, x, 3)
        tuned = tuned.replace(variant=variant, options={"sigma": 128} if variant == "sell" else {})
        text = json.dumps(record(A, 3, tuned).to_json())
        root = str(Path(akx.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": root}
        subprocess.run([sys.executable, "-c", put], input=text, text=True, check=True, env=environment)
        akx.matrix_powers(A, x, 3)
        assert used_plan(A) == tuned


def test_other_database_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = grid(), np.ones(900)
    akx.matrix_powers(A, x, 3)
    tuned = Plan("cpu", "sweep", "sell", k=3, threads=1)
    akx.PlanDatabase(tmp_path / "second.sqlite").put(record(A, 3, tuned))
    monkeypatch.setenv("AKX_DB", str(tmp_path / "second.sqlite"))
    akx.matrix_powers(A, x, 3)
    assert tuned in [kept.operator.plan for kept in CACHE.entries.values() if kept.owner() is A]


def test_unchanged_database_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "GLANCE", 0.0)
    A, x = grid(), np.ones(900)
    akx.PlanDatabase().put(record(A, 4, Plan("cpu", "sweep", "csr", k=4)))
    akx.matrix_powers(A, x, 3)
    akx.matrix_powers(A, x, 3)
    monkeypatch.setattr(akx.PlanDatabase, "find", lambda *_: pytest.fail("looked up again"))
    for _ in range(3):
        akx.matrix_powers(A, x, 3)


def test_explicit_basis_takes_new_values_without_new_preparation() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    basis = akx.newton([1.0, 3.0, 5.0], 3)
    akx.matrix_powers(A, x, 3, basis=basis)
    (before,) = [kept.operator for kept in CACHE.entries.values() if kept.owner() is A]
    A.data *= 1.5
    V = akx.matrix_powers(A, x, 3, basis=basis)
    (after,) = [kept.operator for kept in CACHE.entries.values() if kept.owner() is A]
    assert after is before
    np.testing.assert_allclose(A @ V[:, :3], V @ basis.matrix(), atol=1e-10 * np.abs(V).max())


# ------------------------------------------------------------------------------------------- what is held


def test_kept_operators_die_with_an_akx_matrix() -> None:
    CACHE.entries.clear()
    A = akx.Matrix.from_any(grid())
    akx.matrix_powers(A, np.ones(900), 2)
    size = len(CACHE.entries)
    del A
    gc.collect()
    assert len(CACHE.entries) == size - 1


def test_kept_operators_of_one_matrix_share_it() -> None:
    A, x = grid(), np.ones(900)
    for turn in range(2):
        for k in (1, 2, 3):
            np.testing.assert_allclose(akx.matrix_powers(A, x, k), powers(A, x, k), atol=1e-12)
        data = {id(kept.operator._prepared.values.matrix.data) for kept in CACHE.entries.values() if kept.owner() is A}
        assert len(data) == 1, turn
        A.data *= 1.25


def test_kept_operators_are_bound_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = [grid(20 + i) for i in range(4)]
    CACHE.entries.clear()
    monkeypatch.setattr(cache, "KEPT_BYTES", 2 * akx.MatrixPowers(matrices[-1], 1).nbytes)
    for A in matrices:
        akx.matrix_powers(A, np.ones(A.shape[0]), 1)
    assert [kept.owner() for kept in CACHE.entries.values()] == matrices[-2:]
    monkeypatch.setattr(cache, "KEPT_BYTES", 1)
    akx.matrix_powers(matrices[0], np.ones(400), 1)
    assert [kept.owner() for kept in CACHE.entries.values()] == matrices[:1]


def test_nbytes_counts_converted_copies_and_new_orders() -> None:
    A = grid()
    P = akx.MatrixPowers(A, 2, plan=Plan("cpu", "sweep", "csr", k=2))
    plain = P.nbytes
    P(np.ones(900, dtype=complex))
    assert P.nbytes >= plain + 2 * 16 * A.nnz  # the complex copy and its layout
    Q = akx.MatrixPowers(A, 2, plan=Plan("cpu", "sweep", "csr", "rcm", k=2))
    assert Q.nbytes >= plain + 8 * A.nnz  # columns and entries in the new order


def test_objects_hold_no_files_open(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("needs /proc")
    A = grid(10)
    akx.PlanDatabase(tmp_path / "plans.sqlite").put(record(A, 5, Plan("cpu", "sweep", "csr", k=5)))
    gc.collect()
    before = len(list(folder.iterdir()))
    held = [akx.MatrixPowers(A, 2) for _ in range(10)]
    held += [akx.MatrixPowers(A, 2, db=tmp_path / "plans.sqlite") for _ in range(10)]
    assert len(list(folder.iterdir())) <= before


# ------------------------------------------------------------------------------------------- unusual arguments


def test_arrays_of_any_kind_compile_nothing_anew() -> None:
    A, rng = grid(), np.random.default_rng(0)
    P = akx.MatrixPowers(A, 2, plan=Plan("cpu", "sweep", "csr", k=2))
    x = rng.standard_normal(900)
    expected = P(x)
    compiled = list(run_tasks.signatures)
    fixed = x.copy()
    fixed.flags.writeable = False
    odd = np.zeros(900 * 8 + 1, dtype=np.uint8)[1:].view(np.float64)
    odd[:] = x
    assert not odd.flags.aligned
    for y in (fixed, odd, x.astype(">f8"), np.repeat(x, 2)[::2], list(x)):
        np.testing.assert_array_equal(P(y), expected)
    assert list(run_tasks.signatures) == compiled
    out = np.zeros(900 * 3 * 8 + 1, dtype=np.uint8)[1:].view(np.float64).reshape((900, 3), order="F")
    with pytest.raises(ArgumentError, match="not aligned"):
        P(x, out=out)


def test_out_in_a_file_is_filled(tmp_path: Path) -> None:
    A, x = grid(), np.ones(900)
    out = np.memmap(tmp_path / "v.bin", dtype=np.float64, mode="w+", shape=(900, 4), order="F")
    assert akx.MatrixPowers(A, 3)(x, out=out) is out
    np.testing.assert_allclose(np.asarray(out), powers(A, x, 3), atol=1e-12)


def test_type_and_database_that_are_none() -> None:
    with pytest.raises(ArgumentTypeError, match="dtype"):
        akx.matrix_powers(grid(), np.ones(900), 2, dtype="nonsense")
    for call in (lambda: akx.matrix_powers(grid(), np.ones(900), 2, db=3), lambda: akx.MatrixPowers(grid(), 2, db=3)):
        with pytest.raises(ArgumentTypeError, match="db"):
            call()


def test_threads_limit_a_given_plan() -> None:
    A, x = grid(40), np.ones(1600)
    options = {"split": "interleaved", "lag": 1}
    plan = Plan("cpu", "wavefront", "csr", k=3, k_per_pass=3, block_bytes=4096, threads=4, options=options)
    one = akx.MatrixPowers(A, 3, plan=plan, threads=1)
    assert one.plan == plan.replace(threads=1, options={})
    np.testing.assert_allclose(one(x), powers(A, x, 3), atol=1e-12)
    assert akx.MatrixPowers(A, 3, plan=plan, threads=2).plan == plan.replace(threads=2)
    assert akx.MatrixPowers(A, 3, plan=plan, threads=8).plan == plan
    assert akx.MatrixPowers(A, 3, plan=plan).plan == plan


def test_non_finite_start_vectors_spread_as_in_scipy_for_csr() -> None:
    A = grid(20).tolil()
    A[7] = 0  # an empty row
    A = sp.csr_array(A)
    plan = Plan("cpu", "sweep", "csr", k=3)
    for value in (np.nan, np.inf):
        x = np.ones(400)
        x[[0, 213]] = value
        V = akx.matrix_powers(A, x, 3, plan=plan)
        expected = powers(A, x, 3)
        assert np.isfinite(expected).any(axis=0).all()
        np.testing.assert_allclose(V, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("stored=table is the same as full here: too many values are different", True),
        ("8 threads for 2 slices", False),  # of use to a search only
        (None, False),
    ],
)
def test_explain_says_where_values_are_not_stored_as_the_plan_says(
    reason: str | None, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan for the pattern may have been tuned for other values."""
    P = akx.MatrixPowers(grid(), 3, backend="cpu")
    schedule = registry.get("cpu", P.plan.schedule)
    asked: list[Any] = []
    monkeypatch.setattr(schedule, "waste", lambda *given: asked.append(given) or reason, raising=False)
    lines = P.explain(measure=False).splitlines()
    assert (f"values      {reason}" in lines) == said
    assert asked[0][0] == P.plan


def test_explain_for_several_vectors_and_another_type() -> None:
    A = grid()
    tuned = Plan("cpu", "sweep", "sell", k=3, threads=1)
    akx.PlanDatabase().put(record(A, 3, tuned, start_vectors=4))
    P = akx.MatrixPowers(A, 3)
    assert tuned.label() not in P.explain(measure=False)
    text = P.explain(measure=False, start_vectors=4)
    assert tuned.label() in text
    assert "4 start vectors" in text
    assert "complex128" in P.explain(measure=False, dtype="complex64")  # the type in common with A's float64
    with pytest.raises(ArgumentError, match="start_vectors"):
        P.explain(start_vectors=0)


def test_explain_sets_what_is_achieved_beside_what_was_measured_of_the_machine() -> None:
    text = akx.MatrixPowers(grid(), 3).explain()
    assert "GB/s" not in next(line for line in text.splitlines() if line.startswith("measured"))
    assert next(line for line in text.splitlines() if line.startswith("achieved")).count("GB/s") == 2


def test_linear_operator_has_the_results_type() -> None:
    for dtype in ("f4", "f8", "c8"):
        P = akx.MatrixPowers(grid().astype(dtype), 2)
        assert P.aslinearoperator().dtype == np.dtype(dtype)
        assert P(np.ones(900, "f4")).dtype == np.dtype(dtype)


def test_another_basis_for_one_call() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    P = akx.MatrixPowers(A, 3)
    other = akx.newton([1.0, 3.0, 5.0], 3)
    V = P(x, basis=other)
    np.testing.assert_allclose(V, akx.matrix_powers(A, x, 3, basis=other), rtol=1e-14)
    np.testing.assert_allclose(P(x), powers(A, x, 3), rtol=1e-13, atol=1e-11)
    with pytest.raises(ArgumentError, match="another k"):
        P(x, basis=akx.monomial(2))
    with pytest.raises(ArgumentTypeError, match="not a Basis"):
        P(x, basis="newton")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="complex"):
        P(x, basis=akx.newton([1j, 1 + 1j, 2j], 3, real=False))


@pytest.mark.parametrize("b", [1, 3])
def test_x_may_be_the_first_vector_of_out(b: int) -> None:
    A, rng = grid(), np.random.default_rng(0)
    matrix = akx.Matrix.from_any(A)
    from akx.backends.host import host_device
    from akx.tuner.space import build_space

    space = build_space(matrix, 4, host_device(), backend="cpu", threads=2)
    names = [(name, order) for name in space.parameters for order in space.choices(name, "partitioner")]
    for name, order in names:
        plan = space.plan(name, {"partitioner": order})
        if space.feasible(plan, matrix) is not None:
            continue
        P = akx.MatrixPowers(A, 4, plan=plan)
        W = np.full((5, b, 900), np.nan)
        W[0] = rng.standard_normal((b, 900))
        wanted = P(W[0].T.copy() if b > 1 else W[0, 0].copy())
        out = W.transpose(2, 1, 0) if b > 1 else W[:, 0].T
        assert P(out[..., 0], out=out) is out
        np.testing.assert_array_equal(out, wanted, err_msg=plan.label())


# ------------------------------------------------------------------------------------------ plans of like devices


def like_record(A: Any, k: int, plan: Plan, **changes: Any) -> PlanRecord:
    """What this processor would have kept for seven threads."""
    kept = record(A, k, plan)
    there = dataclasses.replace(kept.key, device_class=f"{host_device().device_class}/7 threads")
    return dataclasses.replace(kept, key=there, **changes)


def not_predicted(A: Any, k: int) -> Plan:
    """A sweep that is not what an untuned call uses."""
    predicted = akx.MatrixPowers(A, k).plan.variant
    return Plan("cpu", "sweep", "sell16" if predicted == "csr" else "csr", k=k, threads=1)


def put(*records: PlanRecord) -> None:
    with PlanDatabase(os.environ["AKX_DB"], layers=()) as database:
        for one in records:
            database.put(one)


@pytest.mark.parametrize("changes", [{"kernels": "0" * 16}, {"versions": {"numba": "0.1.2"}}])
def test_an_aged_plan_is_measured_once_and_then_used_or_not(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    tuned = not_predicted(A, 4)
    put(dataclasses.replace(record(A, 4, tuned), provenance=changes))
    judged: list[Any] = []
    real = ladder._measured
    monkeypatch.setattr(ladder, "_measured", lambda *given: judged.append(given) or real(*given))
    for _ in range(2):
        P = akx.MatrixPowers(A, 4)
        text = P.explain(measure=False)
        assert "aged (" in text
        assert ("measured here" in text) is (P.plan == tuned)
        np.testing.assert_allclose(P(x), powers(A, x, 4), rtol=1e-12, atol=1e-12)
    assert len(judged) == 1
    monkeypatch.setenv(ladder.SWITCH, "off")
    assert akx.MatrixPowers(A, 4).plan == tuned


def test_the_plan_of_a_like_device_is_measured_before_it_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real kernels and a real clock: whichever plan is faster, results are right and it says what was done."""
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    tuned = not_predicted(A, 4)
    put(like_record(A, 4, tuned))
    judged: list[Any] = []
    real = ladder._measured
    monkeypatch.setattr(ladder, "_measured", lambda *given: judged.append(given) or real(*given))
    P = akx.MatrixPowers(A, 4)
    assert len(judged) == 1
    ((answer, _),) = ladder._VERDICTS.values()
    text = P.explain(measure=False)
    assert f"like device ({host_device().device_class}/7 threads)" in text
    assert ("measured here" in text) is answer.is_like is (P.plan == tuned)
    assert ("was not faster here" in text) is not answer.is_like
    np.testing.assert_allclose(P(x), powers(A, x, 4), rtol=1e-12, atol=1e-12)
    again = akx.MatrixPowers(A, 4)
    assert len(judged) == 1  # once for a key in a process
    assert again.plan == P.plan
    with PlanDatabase(os.environ["AKX_DB"], layers=()) as database:
        assert len(database.list()) == 1  # a call writes nothing


def test_a_plan_for_the_powers_is_used_in_another_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "_measured", lambda *_: pytest.fail("measured"))
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    tuned = not_predicted(A, 4)
    put(record(A, 4, tuned))
    P = akx.MatrixPowers(A, 4, basis=chebyshev(4, (0.0, 8.0)))
    assert P.plan == tuned
    assert "for the monomial basis, tuned on 20" in P.explain(measure=False)
    plain = akx.MatrixPowers(A, 4, basis=chebyshev(4, (0.0, 8.0)), plan=Plan("cpu", "sweep", "csr", k=4))
    np.testing.assert_allclose(P(x), plain(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ratio", [0.5, 1.5])
def test_what_the_measurement_says_is_done(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    monkeypatch.setattr(measure, "paired_ratio", lambda one, other: measure.Measurement.of([ratio] * 3))
    A, x = grid(), np.random.default_rng(0).standard_normal((900, 2))
    tuned = not_predicted(A, 4)
    other = tuned.replace(variant="sell")
    put(like_record(A, 4, tuned))
    P = akx.MatrixPowers(A, 4)
    assert (P.plan == tuned) is (ratio < 1)
    told = "measured here: 2.00x over the predicted plan" if ratio < 1 else "not faster here: 0.67x); tune it"
    assert told in P.explain(measure=False)
    assert [plan for _, plan in P._prepared.programs] == [P.plan]
    B = A * 3.0
    P.update_values(B)
    np.testing.assert_allclose(P(x)[:, 0], powers(B, x[:, 0], 4), rtol=1e-12, atol=1e-9)
    # Another number of vectors is another key, without a like device; another type is one as well.
    assert "like device" not in P.explain(measure=False, start_vectors=2)
    CACHE.entries.clear()
    # matrix_powers sees it as well, and a plan that is tuned for exactly this goes before it.
    akx.matrix_powers(A, x[:, 0], 4)
    (kept,) = CACHE.entries.values()
    assert (kept.operator.plan == tuned) is (ratio < 1)
    put(record(A, 4, other))
    akx.matrix_powers(A, x[:, 0], 4)
    assert kept.operator.plan == other
    CACHE.entries.clear()


def test_a_like_device_has_no_say_within_a_budget_or_where_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    A = grid()
    put(like_record(A, 4, not_predicted(A, 4)))
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    monkeypatch.setattr(ladder, "_measured", lambda *_: asked.append("measured"))
    monkeypatch.setenv("AKX_LIKE_DEVICES", "off")
    P = akx.MatrixPowers(A, 4)
    assert "it is for another number of threads (7, here all)" in P.explain(measure=False)
    monkeypatch.delenv("AKX_LIKE_DEVICES")
    monkeypatch.setattr(planner, "believed", lambda *_, **__: asked.append("believed"))
    budgeted(P, 10**9)
    matrix, chooser = P._prepared.values.matrix, P._prepared.planner
    lookup = chooser.database.find(plan_key(matrix, 4))
    assert lookup.mismatches
    assert chooser._of_like_device(lookup, P.plan, matrix, plan_key(matrix, 4), lambda plan: None) is None
    assert asked == []


def test_a_plan_from_a_folder_of_others_gets_no_more_threads_than_there_are() -> None:
    A = grid()
    put(record(A, 4, not_predicted(A, 4).replace(threads=4000)))
    P = akx.MatrixPowers(A, 4)
    assert "tuned on" in P.explain(measure=False)
    assert P.plan.threads == resolve_threads(None)


def test_calls_for_other_matrices_do_not_wait_while_a_plan_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    CACHE.entries.clear()
    A, x = grid(), np.ones(900)
    akx.matrix_powers(A, x, 4)
    free: list[bool] = []

    def take() -> None:
        free.append(CACHE.lock.acquire(timeout=5.0))
        CACHE.lock.release()

    def look(self: Any) -> None:
        other = threading.Thread(target=take)
        other.start()
        other.join()

    monkeypatch.setattr(Prepared, "look_again", look)
    put(record(A, 4, not_predicted(A, 4)))
    akx.matrix_powers(A, x, 4)
    assert free == [True]
    CACHE.entries.clear()


def test_values_that_wait_on_a_device_are_not_lost_by_a_like_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that the operator has already stays as stale as it was."""
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    plan = not_predicted(A, 4)
    put(like_record(A, 4, plan))
    monkeypatch.setattr(measure, "paired_ratio", lambda one, other: measure.Measurement.of([0.5] * 3))
    P = akx.MatrixPowers(A, 4)
    assert P.plan == plan
    values = P._prepared.values
    values.waiting = SimpleNamespace(get=lambda: 2.0 * values.matrix.data, nbytes=0)
    P._prepared.stale = set(P._prepared.programs)
    P._prepared.look_again()
    np.testing.assert_allclose(P(x), powers(2.0 * A, x, 4), rtol=1e-12, atol=1e-9)


def test_a_prediction_that_cannot_be_prepared_gives_way_to_plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.csr_array(sp.diags_array([0.3, 0.4, 0.3], offsets=[-1, 0, 1], shape=(4000, 4000)))
    x = np.random.default_rng(3).standard_normal(4000)
    wavefront: Any = registry.get("cpu", "wavefront")
    unlucky = Plan("cpu", "wavefront", "csr", k=4, k_per_pass=4, block_bytes=65536, threads=1)
    assert wavefront.feasible(unlucky, akx.Matrix.from_any(A), device_of("cpu")) is None
    plain = planner.predict

    def predict(*given: Any, **named: Any) -> Plan:
        return plain(*given, **named) if named.get("plain") else unlucky

    def prepare(self: Any, matrix: Any, plan: Plan) -> Any:
        raise InfeasibleError("zones are too large")

    monkeypatch.setattr(planner, "predict", predict)
    monkeypatch.setattr(type(wavefront), "prepare", prepare)
    P = akx.MatrixPowers(A, 4, backend="cpu")
    powers = P(x)
    np.testing.assert_allclose(powers[:, 4], A @ (A @ (A @ (A @ x))), rtol=0, atol=1e-14)
    assert P.plan.schedule == "sweep"
    assert "zones are too large" in P.explain(measure=False)
    with pytest.raises(InfeasibleError, match="zones are too large"):  # what was asked for is never something else
        akx.MatrixPowers(A, 4, plan=unlucky)


@pytest.fixture
def values_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps in SELL with 5 powers are for whole numbers alone."""
    schedule = registry.get("cpu", "sweep")
    feasible = schedule.feasible

    def judged(plan: Plan, matrix: akx.Matrix, device: Any) -> str | None:
        whole = bool(np.all(matrix.data == np.round(matrix.data)))
        if not whole and (plan.k, plan.variant) == (5, "sell16"):
            return "values cannot be stored so"
        return feasible(plan, matrix, device)

    monkeypatch.setattr(schedule, "feasible", judged)


@pytest.mark.usefixtures("values_matter")
def test_a_tuned_plan_that_other_values_rule_out_gives_way() -> None:
    A, x = grid(), np.random.default_rng(2).standard_normal(900)
    plan = Plan("cpu", "sweep", "sell16", k=5, options={"sigma": 1})
    akx.PlanDatabase().put(record(A, 5, plan))
    P = akx.MatrixPowers(A, 5)
    assert P.plan == plan
    P.update_values(A / 3)
    P._prepared.programs.clear()  # as where an update is broken off
    np.testing.assert_allclose(P(x), powers(A / 3, x, 5), atol=1e-12)
    assert P.plan != plan
    assert "does not work here (values cannot be stored so)" in P.explain(measure=False)
    with pytest.raises(InfeasibleError, match="values cannot be stored so"):
        akx.MatrixPowers(A / 3, 5, plan=plan)


def test_a_plan_that_asks_for_what_is_not_there_is_refused_with_the_reason(tmp_path: Path) -> None:
    A = grid(8)
    plan = Plan("cpu", "sweep", "csr", k=3)
    with pytest.raises(InfeasibleError, match=r"4096 threads are too many for \d+ cores; pass threads="):
        akx.MatrixPowers(A, 3, plan=plan.replace(threads=4096))
    strange = plan.replace(options={"colour": "blue"})
    with pytest.raises(InfeasibleError, match="cpu/sweep has no option 'colour'"):
        akx.MatrixPowers(A, 3, plan=strange)
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        key = plan_key(akx.Matrix.from_any(A), 3, backend="cpu")
        database.put(PlanRecord(key, strange, 1e-9, "sweep/csr", 1e-3))
        P = akx.MatrixPowers(A, 3, backend="cpu", db=database)
        assert "does not work here (cpu/sweep has no option 'colour'" in P.explain(measure=False)
        assert P.plan.options.get("colour") is None


def overflowing(n: int = 300, factor: float = 1e100) -> sp.csr_array:
    return sp.csr_array(sp.diags_array([-factor, 4 * factor, -factor], offsets=[-1, 0, 1], shape=(n, n)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("vectors", [None, 3])
def test_an_overflow_is_a_warning_that_names_the_power(dtype: Any, vectors: int | None) -> None:
    single = np.finfo(dtype).maxexp < 200
    A = overflowing(factor=1e12 if single else 1e100).astype(dtype)
    P = akx.MatrixPowers(A, 7, threads=1)
    x = np.ones(300 if vectors is None else (300, vectors), dtype=dtype)
    with pytest.warns(AkxWarning, match="power 4 of 7 is the first") as caught:
        V = P(x)
    assert caught[0].filename == __file__
    assert np.isfinite(V[..., :4]).all()
    assert not np.isfinite(V[..., 4]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        P(x)  # once for each object
        akx.MatrixPowers(A, 3, threads=1)(x)
        akx.MatrixPowers(A, 7, threads=1)(0 * x)


def test_every_call_of_matrix_powers_warns_as_far_as_filters_let_it() -> None:
    A, x = overflowing(), np.ones(300)
    for action, count in (("always", 3), ("default", 1), ("ignore", 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            for _ in range(3):
                akx.matrix_powers(A, x, 7)
        assert len(caught) == count
        assert all(one.filename == __file__ for one in caught)


def test_an_overflow_in_a_column_without_entries_is_seen() -> None:
    # Row 0 overflows at power 1, and no other row has it: the last vector is finite.
    A = sp.csr_array(([1e200, 1.0, 1.0, 1.0], ([0, 1, 2, 2], [1, 1, 1, 2])), shape=(3, 3))
    A = sp.csr_array(sp.block_diag([A, sp.eye_array(2)]))
    basis = akx.Basis("newton", np.array([1.0, 1e-200, 1e-200]), np.zeros(3), np.zeros(3))
    P = akx.MatrixPowers(A, 3, basis=basis, threads=1)
    with pytest.warns(AkxWarning, match="power 1 of 3"):
        V = P(np.array([0.0, 1e150, 0.0, 0.0, 0.0]))
    assert np.isfinite(V[:, 3]).all()


def test_what_is_not_finite_in_x_is_not_called_an_overflow() -> None:
    x = np.ones(900)
    x[17] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        akx.MatrixPowers(grid(), 4, threads=1)(x)


def test_huge_numbers_that_do_not_overflow_are_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        V = akx.MatrixPowers(sp.csr_array(sp.eye_array(400)), 2, threads=1)(np.full(400, 1e308))
    assert np.isfinite(V).all()


def test_long_vectors_are_looked_at_in_the_first_call_and_one_of_64() -> None:
    for n, looks in ((2000, [True] * 66), (2001, [True] + [False] * 63 + [True, False])):
        P = akx.MatrixPowers(sp.csr_array(sp.eye_array(n)), 2, threads=1)
        assert [P._overflow.is_due(1) for _ in range(66)] == looks
    P.looks_for_overflow = False
    assert not P._overflow.is_due(1)


def test_solvers_do_not_warn_of_overflows_on_their_way() -> None:
    A = overflowing(factor=1e60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AkxWarning)
        ca_gmres(A, np.ones(300), basis="monomial", s=10)


@pytest.mark.parametrize(
    "problem", [InfeasibleError("it takes too much padding"), MissingDependencyError("no mtkahypar")]
)
def test_a_plan_of_others_that_fails_when_it_is_prepared_gives_way(
    monkeypatch: pytest.MonkeyPatch, problem: AkxError
) -> None:
    A, schedule = grid(8), registry.get("cpu", "ghost")
    put(record(A, 3, Plan("cpu", "ghost", "csr", k=3, k_per_pass=3, block_bytes=65536)))

    def prepare(matrix: akx.Matrix, plan: Plan) -> Any:
        raise problem

    monkeypatch.setattr(schedule, "feasible", lambda *_: None)
    monkeypatch.setattr(schedule, "prepare", prepare)
    P = akx.MatrixPowers(A, 3)
    assert P.plan.schedule != "ghost"
    assert f"does not work here ({problem})" in P.explain(measure=False)
    np.testing.assert_allclose(P(np.ones(64)), powers(A, np.ones(64), 3), atol=1e-9)
    with pytest.raises(type(problem)):
        akx.MatrixPowers(A, 3, plan=Plan("cpu", "ghost", "csr", k=3, k_per_pass=3, block_bytes=65536))


def test_a_call_that_may_be_done_again_leaves_x_as_it_is() -> None:
    """Where A has changed, which is seen while a device works: x in the memory of V is not taken then."""
    from akx.operator import call

    A = sp.eye_array(30, format="csr")
    P, V = akx.MatrixPowers(A, 3, backend="cpu"), np.zeros((30, 4), order="F")
    V[:, 2] = 1
    assert call._read_beside(SimpleNamespace(token="another"), P, A, V[:, 2], V) is None  # type: ignore[arg-type]
    assert V[:, 2].tolist() == [1] * 30
    assert not V[:, [0, 1, 3]].any()


def test_a_call_is_stale_whatever_another_thread_has_renewed_meanwhile() -> None:
    from akx.operator import call
    from akx.operator import lookup as kept

    A = sp.eye_array(300, format="csr")
    known = SimpleNamespace(token=kept.content_of(A, None))
    A.data *= 5

    def of_host(x: Any, out: Any, meanwhile: Any) -> Any:
        known.token = kept.content_of(A, None)  # by another call, after this one was launched
        return x if meanwhile() else None

    operator: Any = SimpleNamespace(_of_host=of_host)
    assert call._read_beside(known, operator, A, np.ones(300), None) is None  # type: ignore[arg-type]
