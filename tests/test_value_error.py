"""The error that stored values may have: stated, kept with the matrix, part of a plan's key, and of what is checked."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx import operator, solvers
from akx.device.cuda.facts import CudaDevice
from akx.device.likeness import likeness
from akx.errors import ArgumentError, ArgumentTypeError, VerificationError
from akx.kernels import registry
from akx.kernels.cuda.stored import HALF, error_of
from akx.matrix import Matrix, content_token
from akx.plan import Plan
from akx.plandb import PlanDatabase, PlanRecord
from akx.report import recheck
from akx.tuner import TuneResult, canary, plan_key, tuning
from akx.tuner.verify import Comparison, Problem

ALLOWED = 6e-8
GPU = CudaDevice("H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * 2**20, 80 * 2**30, 1_980_000_000, 3.35e12)


def given_matrix(dtype: str = "float64") -> Matrix:
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.diags_array([1.0] * 9, offsets=range(-4, 5), shape=(1000, 1000)))
    data = rng.uniform(-1, 1, A.nnz) + 1j * rng.uniform(-1, 1, A.nnz)
    return Matrix.from_any(A).with_values((data if dtype.startswith("c") else data.real).astype(dtype))


@pytest.fixture
def matrix() -> Matrix:
    return given_matrix()


# ------------------------------------------------------------------------------------------------------ the matrix


def test_a_matrix_has_the_error_that_is_stated(matrix: Matrix) -> None:
    A = matrix.to_scipy()
    assert Matrix.from_any(A).value_error == 0
    allowed = Matrix.from_any(A, value_error=ALLOWED)
    assert allowed.value_error == ALLOWED
    assert (allowed.data == A.data).all()  # what is here is exact
    assert Matrix.from_any(allowed) is allowed
    assert Matrix.from_any(allowed, value_error=ALLOWED) is allowed
    assert Matrix.from_any(allowed, value_error=0).value_error == 0
    assert Matrix.from_any(allowed, dtype="complex128").value_error == ALLOWED
    assert Matrix.from_any(allowed, dtype="float32", value_error=1e-3).value_error == 1e-3
    assert type(Matrix.from_any(A, value_error=np.float32(0.5)).value_error) is float


def test_it_stays_with_the_matrix(matrix: Matrix) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    assert allowed.with_values(2 * allowed.data).value_error == ALLOWED
    assert pickle.loads(pickle.dumps(allowed)).value_error == ALLOWED
    assert pickle.loads(pickle.dumps(matrix)).value_error == 0
    assert allowed.with_value_error(ALLOWED) is allowed
    assert matrix.with_value_error(0.0) is matrix


def test_all_but_what_is_derived_from_it_is_shared(matrix: Matrix) -> None:
    matrix.cache["x"] = 1
    known = matrix.largest, matrix.values_fingerprint, matrix.features
    allowed = matrix.with_value_error(ALLOWED)
    assert allowed.data is matrix.data
    assert allowed.pattern_cache is matrix.pattern_cache
    assert allowed.cache == {}
    assert (allowed.largest, allowed.values_fingerprint, allowed.features) == known
    assert content_token(allowed) != content_token(matrix)
    assert content_token(allowed.with_value_error(0)) == content_token(matrix)


@pytest.mark.parametrize("wrong", [-1e-8, 1.0, 2, np.nan, np.inf, -np.inf, 10**400])
def test_what_is_out_of_range_is_refused(matrix: Matrix, wrong: Any) -> None:
    A, x = matrix.to_scipy(), np.ones(matrix.n)
    for call in (
        lambda: Matrix.from_any(A, value_error=wrong),
        lambda: matrix.with_value_error(wrong),
        lambda: akx.MatrixPowers(A, 2, value_error=wrong),
        lambda: akx.matrix_powers(A, x, 2, value_error=wrong),
        lambda: akx.tune(A, 2, value_error=wrong, db=False),
        lambda: akx.tuner.exhaustive(A, 2, value_error=wrong),
    ):
        with pytest.raises(ArgumentError, match=r"value_error is out of range.*at least 0 and less than 1"):
            call()


@pytest.mark.parametrize("wrong", ["6e-8", True, [0.1], 1j, np.array([0.1])])
def test_what_is_no_number_is_refused(matrix: Matrix, wrong: Any) -> None:
    A, x = matrix.to_scipy(), np.ones(matrix.n)
    for call in (
        lambda: Matrix.from_any(A, value_error=wrong),
        lambda: akx.MatrixPowers(A, 2, value_error=wrong),
        lambda: akx.matrix_powers(A, x, 2, value_error=wrong),
        lambda: akx.tune(A, 2, value_error=wrong, db=False),
    ):
        with pytest.raises(ArgumentTypeError, match="value_error is not a number"):
            call()


# --------------------------------------------------------------------------------------------------- keys of plans


def test_plans_of_a_gpu_are_kept_for_the_allowance(matrix: Matrix) -> None:
    def key(allowed: float) -> Any:
        return plan_key(matrix.with_value_error(allowed), 4, backend="cuda", device=GPU)

    exact, some, more = key(0.0), key(ALLOWED), key(1e-3)
    assert exact.device_class == GPU.device_class  # as it was before there were allowances
    assert some.device_class == f"{GPU.device_class}/value error 6e-08"
    assert exact.mismatch(some) == some.mismatch(more) == ["device_class"]
    assert likeness(exact.device_class, some.device_class) is None  # no plan of one is tried for the other in passing
    assert likeness(some.device_class, some.device_class) is None


@pytest.mark.parametrize(("backend", "dtype"), [("cpu", "float64"), ("cuda", "float32"), ("cuda", "complex64")])
def test_where_nothing_is_stored_otherwise_the_key_is_the_same(backend: str, dtype: str) -> None:
    matrix, where = given_matrix(dtype), {"backend": backend, "device": GPU if backend == "cuda" else None}
    assert plan_key(matrix.with_value_error(ALLOWED), 4, **where) == plan_key(matrix, 4, **where)  # type: ignore[arg-type]


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


EXACT = Plan("cuda", "sweep", "sell-2", k=4)
INEXACT = Plan("cuda", "resident", "1x1-1", k=4, k_per_pass=4, options={"block": 256, "stored": HALF})


def record(matrix: Matrix, plan: Plan) -> PlanRecord:
    return PlanRecord(plan_key(matrix, 4, backend="cuda", device=GPU), plan, 1e-3, "sweep/csr-1", 2e-3)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, db: PlanDatabase) -> Callable[[Matrix], Any]:
    """What an operator on the GPU chooses for a matrix."""
    for module in (operator, tuning):
        monkeypatch.setattr(module, "device_of", lambda _: GPU)
    monkeypatch.setattr(operator, "predict", lambda matrix, k, **_: Plan("cuda", "sweep", "csr-1", k=k))

    def chosen(matrix: Matrix) -> Any:
        P = akx.MatrixPowers(matrix, 4, backend="cpu", plan=Plan("cpu", "sweep", "csr", k=4))
        P._given, P._home, P._backend, P._db, P._is_own_db = None, "cuda", "cuda", db, True
        return P._choose(P._matrix, 1, "cuda")

    return chosen


def test_a_call_with_an_allowance_has_the_plan_for_it_else_that_for_exact_values(
    matrix: Matrix, db: PlanDatabase, choose: Callable[[Matrix], Any]
) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    assert choose(allowed).is_predicted
    assert "no plan for this matrix" in choose(allowed).source
    db.put(record(matrix, EXACT))
    found = choose(allowed)
    assert found.plan == EXACT
    assert found.source.endswith("2.00x over sweep/csr-1, with values as they are")
    db.put(record(allowed, INEXACT))
    found = choose(allowed)
    assert found.plan == INEXACT
    assert "with values as they are" not in found.source
    assert choose(allowed.with_value_error(1e-3)).plan == EXACT  # for exactly this allowance


def test_a_call_without_one_never_has_a_plan_for_one(
    matrix: Matrix, db: PlanDatabase, choose: Callable[[Matrix], Any]
) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    db.put(record(allowed, INEXACT))
    found = choose(matrix)
    assert found.is_predicted
    assert "another device, number of threads, memory budget or allowed error of values" in found.source
    db.put(record(matrix, EXACT))  # neither displaces the other
    assert choose(matrix).plan == EXACT
    assert choose(allowed).plan == INEXACT


def tuned(monkeypatch: pytest.MonkeyPatch, matrix: Any, db: Any, **how: Any) -> dict[str, Any]:
    """What a search on the GPU is begun with."""

    class Begun(Exception):
        """Measuring has begun."""

    asked: dict[str, Any] = {}

    def search(bench: Any, model: Any, *_: Any, given: Any, seeds: Any, **__: Any) -> Any:
        asked.update(matrix=bench.matrix, given=given, seeds=seeds)
        raise Begun

    monkeypatch.setattr(tuning, "_where", lambda backend, *_: (backend, 1, GPU))
    monkeypatch.setattr(tuning, "_bench", lambda problem, *_: problem)
    monkeypatch.setattr(tuning, "_model", lambda *_: None)
    monkeypatch.setattr(tuning, "_search", search)
    with pytest.raises(Begun):
        akx.tune(matrix, 4, backend="cuda", db=db, **how)
    return asked


def test_the_plan_for_exact_values_takes_part_in_the_search(
    matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned(monkeypatch, matrix, db, value_error=ALLOWED)["given"] == []
    db.put(record(matrix, EXACT))
    asked = tuned(monkeypatch, matrix.to_scipy(), db, value_error=ALLOWED)
    assert asked["matrix"].value_error == ALLOWED
    assert [(plan.schedule, plan.variant) for plan in asked["given"]] == [("sweep", "sell-2")]
    asked = tuned(monkeypatch, matrix.with_value_error(ALLOWED), db)  # what the matrix says
    assert asked["matrix"].value_error == ALLOWED
    db.put(record(matrix.with_value_error(ALLOWED), INEXACT))
    asked = tuned(monkeypatch, matrix, db, value_error=1e-3)
    assert [plan.schedule for plan in asked["given"]] == ["sweep"]
    again = akx.tune(matrix, 4, backend="cuda", db=db, value_error=ALLOWED)
    assert (again.reused, again.plan) == (True, INEXACT)
    off = error_of(matrix.with_value_error(ALLOWED), HALF)
    assert again.notes[0].startswith(
        f"values are stored in half the bytes, with a relative error of at most {off:.3g} of the 6e-08 allowed"
    )
    assert akx.tune(matrix, 4, backend="cuda", db=db).plan == EXACT


def test_where_it_has_no_effect_results_are_judged_without(db: PlanDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = given_matrix("float32")
    asked = tuned(monkeypatch, matrix, db, value_error=ALLOWED)
    assert asked["matrix"].value_error == 0
    db.put(record(matrix, EXACT))
    found = akx.tune(matrix, 4, backend="cuda", db=db, value_error=ALLOWED)
    assert (found.reused, found.plan) == (True, EXACT)
    assert not any("stored" in note for note in found.notes)


def test_the_note_is_for_plans_that_store_values_so(matrix: Matrix) -> None:
    fields = {field.name: None for field in dataclasses.fields(TuneResult)}
    result = TuneResult(**{**fields, "notes": ("x",), "plan": INEXACT})  # type: ignore[arg-type]
    assert tuning._with_value_error(result, matrix, GPU) is result
    allowed = matrix.with_value_error(ALLOWED)
    assert tuning._with_value_error(result, allowed, GPU).notes[1] == "x"
    for plan in (EXACT, Plan("cpu", "sweep", "csr", k=4)):
        other = replace(result, plan=plan)
        assert tuning._with_value_error(other, allowed, GPU) is other


def test_a_plan_is_verified_with_its_allowance(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akx.device.choose.device_of", lambda _: GPU)
    allowed = matrix.with_value_error(ALLOWED)
    assert recheck._place(matrix, record(allowed, INEXACT)) == (GPU, 1, ALLOWED, "")
    assert recheck._place(matrix, record(matrix, EXACT)) == (GPU, 1, 0.0, "")
    for value in (0.5, 1e-3, 1.5e-05, 2.0**-24, 5e-324):
        assert recheck._place(matrix, record(matrix.with_value_error(value), INEXACT))[2] == value
    other = replace(record(allowed, EXACT).key, device_class=f"{GPU.device_class}/value error x")
    assert "another device" in recheck._place(matrix, replace(record(allowed, EXACT), key=other))[3]


# ------------------------------------------------------------------------------------------------ what is checked


def off_by(matrix: Matrix, problem: Problem, off: float) -> Any:
    A = matrix.with_values(matrix.data * (1 + off)).to_scipy()
    found = [problem.x]
    for j in range(problem.k):
        found.append(problem.coefficients.a[j] * (A @ found[j].T).T)
    return np.stack(found)


def test_a_problem_allows_what_the_matrix_does_and_no_more(matrix: Matrix) -> None:
    for allowed, off, passes in ((0.0, ALLOWED, False), (ALLOWED, 0.99 * ALLOWED, True), (ALLOWED, 1e-3, False)):
        problem = Problem(matrix.with_value_error(allowed), 4)
        problem.out[:] = off_by(matrix, problem, off)
        assert (problem.error() <= 1) == passes


def test_a_comparison_allows_both_what_the_matrix_does(matrix: Matrix) -> None:
    """One program may be off in one direction and the other in the other."""
    for allowed, off, passes in ((0.0, ALLOWED, False), (ALLOWED, ALLOWED, True), (ALLOWED, 1e-2, False)):
        problem = Comparison(matrix.with_value_error(allowed), 4)
        problem.out[:] = off_by(matrix, problem, -off)
        problem.trust()
        magnitudes = problem.magnitudes()
        positive = matrix.with_values(problem.absolute_values())
        problem.bound_by(off_by(positive, magnitudes, -off))
        problem.out[:] = off_by(matrix, problem, off)
        assert (problem.error() <= 1) == passes
    large = Comparison(matrix.with_value_error(0.1), 4)
    with pytest.raises(VerificationError, match="says nothing"):
        large.bound_by(np.ones((5, 1, matrix.n)))


def test_the_process_that_may_be_lost_has_the_allowance(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(canary, "_send", lambda _, value: sent.append(value))
    monkeypatch.setattr(canary, "_receive", lambda _: "")
    command = ["python", "-c", "import sys; sys.stdin.read()"]
    runner = canary.Canary(Problem(matrix.with_value_error(ALLOWED), 2), command=command)
    monkeypatch.setattr(runner, "_answer", lambda *_: "")
    runner.reason_against(EXACT)
    runner.close()
    assert sent[0]["value_error"] == ALLOWED


# ---------------------------------------------------------------------------------------------- calls on the host


def test_the_host_has_values_in_full(matrix: Matrix, tmp_path: Path) -> None:
    A, x = matrix.to_scipy(), np.random.default_rng(1).standard_normal(matrix.n)
    exact = akx.matrix_powers(A, x, 4, backend="cpu", db=tmp_path / "plans.sqlite")
    loose = akx.matrix_powers(A, x, 4, backend="cpu", db=tmp_path / "plans.sqlite", value_error=1e-3)
    assert exact.tobytes() == loose.tobytes()
    P = akx.MatrixPowers(A, 4, backend="cpu", db=tmp_path / "plans.sqlite", value_error=1e-3)
    assert "relative error" not in P.explain(measure=False)
    P.update_values(2 * A)
    assert P._matrix.value_error == 1e-3
    assert P._matrix_in(np.dtype("complex128")).value_error == 1e-3


def test_operators_that_are_kept_are_told_apart(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    operator._kept.clear()
    A, made = matrix.to_scipy(), []
    monkeypatch.setattr(
        operator.MatrixPowers, "__call__", lambda self, x, out=None: made.append((self, self._matrix.value_error))
    )
    for given, stated in (
        (A, {}),
        (A, {"value_error": ALLOWED}),
        (A, {"value_error": 0}),
        (A, {"value_error": ALLOWED}),
    ):
        akx.matrix_powers(given, np.ones(matrix.n), 2, backend="cpu", **stated)  # type: ignore[arg-type]
    assert [allowed for _, allowed in made] == [0, ALLOWED, 0, ALLOWED]
    assert made[0][0] is made[2][0]
    assert made[1][0] is made[3][0]
    assert made[0][0]._matrix.data is made[1][0]._matrix.data
    made.clear()
    allowed = matrix.with_value_error(ALLOWED)
    akx.matrix_powers(allowed, np.ones(matrix.n), 2, backend="cpu")
    akx.matrix_powers(allowed, np.ones(matrix.n), 2, backend="cpu", value_error=0.0)
    assert [one for _, one in made] == [ALLOWED, 0]
    operator._kept.clear()


def test_solvers_have_values_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = operator.MatrixPowers.__init__

    def watched(self: Any, A: Any, *arguments: Any, **options: Any) -> None:
        real(self, A, *arguments, **options)
        asked.append(self._matrix.value_error)

    monkeypatch.setattr(operator.MatrixPowers, "__init__", watched)
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300)))
    allowed = Matrix.from_any(A, value_error=1e-2)
    for solve in (solvers.ca_cg, solvers.ca_gmres, solvers.ca_bicgstab):
        x, info = solve(allowed, np.ones(300), rtol=1e-12, backend="cpu")
        assert info == 0
        assert np.linalg.norm(A @ x - 1) < 1e-9
    assert asked
    assert not any(asked)


def test_every_schedule_says_how_far_it_is_off_or_stores_in_full(matrix: Matrix) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    for schedule in (*registry.schedules("cpu"), *registry.schedules("cuda")):
        assert hasattr(schedule, "stored_error") == (
            schedule.backend == "cuda" and schedule.name in ("resident", "wavefront")
        )
    assert error_of(allowed, HALF) > 0
