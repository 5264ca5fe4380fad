"""The error that stored values may have: stated, kept with the matrix, part of a plan's key, and of what is checked."""

from __future__ import annotations

import dataclasses
import pickle
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx import solvers
from akx.backends import registry
from akx.backends.cuda.backend import CudaBackend
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.value_compression.encodings import HALF, error_of
from akx.backends.device_similarity import device_similarity
from akx.backends.host import host_device
from akx.backends.schedule import Parameter, Program, Schedule, Traffic
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, VerificationError
from akx.core.matrix import Matrix, content_token
from akx.core.plan import Plan
from akx.operator import planner
from akx.operator.cache import CACHE
from akx.plandb import PlanDatabase, PlanRecord
from akx.report.comparison import bench
from akx.report.plans import verification
from akx.solvers import tuning as solver_tuning
from akx.solvers.preconditioners import chebyshev
from akx.tuner import TuneResult, plan_key, sandbox
from akx.tuner import space as spaces
from akx.tuner.fallback import answer as ladder
from akx.tuner.history.trial import COMPLETE, FAILED
from akx.tuner.measure import Precision
from akx.tuner.search import outcome as outcomes
from akx.tuner.search import tune as tuning
from akx.tuner.space import Space
from akx.tuner.trial import problem as verify
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import Comparison, Problem

ALLOWED = 6e-8
GPU = CudaDevice("H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * 2**20, 80 * 2**30, 1_980_000_000, 3.35e12)
OTHER_GPU = replace(GPU, memory_bytes=96 * 2**30)


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
    assert (
        device_similarity(exact.device_class, some.device_class) is None
    )  # no plan of one is tried for the other in passing
    assert device_similarity(some.device_class, some.device_class) is None


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
    for module in (planner, spaces):
        monkeypatch.setattr(module, "device_of", lambda _: GPU)
    monkeypatch.setattr(planner, "predict", lambda matrix, k, **_: Plan("cuda", "sweep", "csr-1", k=k))

    def chosen(matrix: Matrix) -> Any:
        return planner.Planner(planner.Asked(4, "monomial", db=db, backend="cuda")).choose(matrix, 1, "cuda")

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


def test_where_the_plan_for_it_does_not_work_that_for_exact_values_is_tried(
    matrix: Matrix, db: PlanDatabase, choose: Callable[[Matrix], Any]
) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    broken = INEXACT.replace(variant="no such")
    db.put(record(allowed, broken))
    why = "; the plan for the error that is allowed does not work here (unknown variant 'no such'"
    found = choose(allowed)
    assert found.is_predicted
    assert "predicted, not tuned (plan" in found.source
    assert why in found.source
    db.put(record(matrix, EXACT))
    found = choose(allowed)
    assert (found.plan, found.is_predicted) == (EXACT, False)
    assert "2.00x over sweep/csr-1, with values as they are; the plan" in found.source
    assert why in found.source
    assert why not in choose(matrix).source
    db.put(record(matrix, EXACT.replace(variant="nor this")))
    found = choose(allowed)
    assert found.is_predicted
    assert "the plan in the database does not work here (" in found.source
    assert "nor this" in found.source
    assert why in found.source


def test_where_the_plan_for_it_is_stale_that_is_said(
    matrix: Matrix, db: PlanDatabase, choose: Callable[[Matrix], Any]
) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    there = record(allowed, INEXACT)
    db.put(replace(there, key=replace(there.key, revisions="other")))
    other = record(matrix.with_value_error(1e-3), INEXACT)  # for another allowance, of which nothing is said
    db.put(other)
    why = "; the plan for the error that is allowed is not used: it is for another revision of its schedule or variant$"
    found = choose(allowed)
    assert found.is_predicted
    assert re.search(why, found.source)
    db.put(record(matrix, EXACT))
    found = choose(allowed)
    assert found.plan == EXACT
    assert re.search(why, found.source)
    assert "the error that is allowed" not in choose(matrix).source
    assert "the error that is allowed" not in choose(matrix.with_value_error(1e-6)).source


def test_a_call_without_one_never_has_a_plan_for_one(
    matrix: Matrix, db: PlanDatabase, choose: Callable[[Matrix], Any]
) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    db.put(record(allowed, INEXACT))
    found = choose(matrix)
    assert found.is_predicted
    assert f"it is for another allowed error of values ({ALLOWED!r}, here none)" in found.source
    db.put(record(matrix, EXACT))  # neither displaces the other
    assert choose(matrix).plan == EXACT
    assert choose(allowed).plan == INEXACT


def tuned(monkeypatch: pytest.MonkeyPatch, matrix: Any, db: Any, **how: Any) -> dict[str, Any]:
    """What a search on the GPU is begun with."""

    class Begun(Exception):
        """Measuring has begun."""

    asked: dict[str, Any] = {}

    def search(bench: Any, model: Any, *_: Any, given: Any, warm_start: Any, **__: Any) -> Any:
        asked.update(matrix=bench.matrix, given=given, warm_start=warm_start)
        raise Begun

    for module in (tuning, spaces):
        monkeypatch.setattr(module, "place_of", lambda backend, *_: (backend, 1, GPU))
    monkeypatch.setattr(
        tuning,
        "bench_for",
        lambda one, *_: SimpleNamespace(matrix=one.matrix, end_when_settled=lambda end: None),
    )
    monkeypatch.setattr(tuning, "model_of", lambda *_: None)
    monkeypatch.setattr(tuning, "search_on", search)
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
    assert not asked["warm_start"].like
    again = akx.tune(matrix, 4, backend="cuda", db=db, value_error=ALLOWED)
    assert (again.reused, again.plan) == (True, INEXACT)
    off = error_of(matrix.with_value_error(ALLOWED), HALF)
    assert again.notes[0].startswith(
        f"values are stored in half the bytes, with a relative error of at most {off:.3g} of the 6e-08 allowed"
    )
    assert again.stored_error == again.to_json()["best"]["stored_error"] == off > 0
    exact = akx.tune(matrix, 4, backend="cuda", db=db)
    assert (exact.plan, exact.stored_error, exact.to_json()["best"]["stored_error"]) == (EXACT, 0.0, 0.0)


def test_a_search_with_an_allowance_begins_where_one_without_does(
    matrix: Matrix, db: PlanDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With plans of like devices, of which those for an allowance are none."""
    here = record(matrix, EXACT)
    db.put(replace(here, key=replace(here.key, device_class=OTHER_GPU.device_class)))
    warm_start = tuned(monkeypatch, matrix, db)["warm_start"]
    assert [(plan.schedule, plan.variant) for plan in warm_start.like] == [("sweep", "sell-2")]
    assert tuned(monkeypatch, matrix, db, value_error=ALLOWED)["warm_start"] == warm_start


def test_where_it_has_no_effect_results_are_judged_without(db: PlanDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = given_matrix("float32")
    asked = tuned(monkeypatch, matrix, db, value_error=ALLOWED)
    assert asked["matrix"].value_error == 0
    db.put(record(matrix, EXACT))
    found = akx.tune(matrix, 4, backend="cuda", db=db, value_error=ALLOWED)
    assert (found.reused, found.plan) == (True, EXACT)
    assert not any("stored" in note for note in found.notes)
    assert found.stored_error == 0


def test_the_note_is_for_plans_that_store_values_so(matrix: Matrix) -> None:
    fields = {field.name: None for field in dataclasses.fields(TuneResult)}
    result = TuneResult(**{**fields, "notes": ("x",), "plan": INEXACT})  # type: ignore[arg-type]
    assert outcomes.with_value_error(result, matrix, GPU) is result
    allowed = matrix.with_value_error(ALLOWED)
    told = outcomes.with_value_error(result, allowed, GPU)
    assert (told.notes[1], told.stored_error) == ("x", error_of(allowed, HALF))
    for plan in (EXACT, Plan("cpu", "sweep", "csr", k=4)):
        other = replace(result, plan=plan)
        assert outcomes.with_value_error(other, allowed, GPU) is other


def test_a_plan_is_verified_with_its_allowance(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akx.backends.selection.device_of", lambda _: GPU)
    allowed = matrix.with_value_error(ALLOWED)
    assert verification._place(matrix, record(allowed, INEXACT)) == (GPU, 1, ALLOWED, "")
    assert verification._place(matrix, record(matrix, EXACT)) == (GPU, 1, 0.0, "")
    for value in (0.5, 1e-3, 1.5e-05, 2.0**-24, 5e-324):
        assert verification._place(matrix, record(matrix.with_value_error(value), INEXACT))[2] == value
    other = replace(record(allowed, EXACT).key, device_class=f"{GPU.device_class}/value error x")
    assert "another device" in verification._place(matrix, replace(record(allowed, EXACT), key=other))[3]


# ------------------------------------------------------------------------------------------------ what is checked


def off_by(matrix: Matrix, problem: Problem, off: float) -> Any:
    A = matrix.with_values(matrix.data * (1 + off)).to_scipy()
    found = [problem.x]
    for j in range(problem.k):
        found.append(problem.coefficients.a[j] * (A @ found[j].T).T)
    return np.stack(found)


@pytest.fixture
def positive(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """A matrix that makes every error of its values count, as nothing cancels: start vectors are positive too."""
    monkeypatch.setattr(verify, "_start_vectors", lambda matrix, *_: np.linspace(0.5, 1, matrix.n)[None, :])
    return matrix.with_values(np.abs(matrix.data))


def test_a_problem_is_judged_as_it_is_without_an_allowance(matrix: Matrix) -> None:
    """Whatever is allowed, for plans that store values as they are; no array more is made for them."""
    exact, loose = Problem(matrix, 4), Problem(matrix.with_value_error(1e-2), 4)
    assert loose._bound.tobytes() == exact._bound.tobytes()
    right = off_by(matrix, loose, 0.0)
    loose.out[:] = exact.out[:] = right
    assert loose.error() == exact.error() <= 1
    loose.out[3, 0, 77] *= 1.005  # half of what is allowed
    assert loose.error() > 1e6
    assert loose._wider is None
    loose.out[:] = off_by(matrix, loose, ALLOWED)
    assert loose.error() > 1


def test_a_problem_is_judged_with_the_error_that_is_measured(positive: Matrix) -> None:
    problem = Problem(positive.with_value_error(1e-2), 4)
    for off, passes in ((1.0, True), (-1.0, True), (1.001, False), (1.5, False), (1e-2 / ALLOWED, False)):
        problem.out[:] = off_by(positive, problem, off * ALLOWED)
        assert (problem.error(ALLOWED) <= 1) == passes
        assert problem.error(ALLOWED) == pytest.approx(abs(off), rel=0.02)
    wider = problem._wider
    assert wider is not None
    problem.out[:] = off_by(positive, problem, 0.0)
    problem.out[2, 0, 500] *= 1.005
    assert problem.error(ALLOWED) > 1
    assert problem._wider is wider  # formed once
    problem.out[:] = off_by(positive, problem, 1e-3)
    assert problem.error(1e-3) <= 1 < problem.error(ALLOWED)


def compared(positive: Matrix, trusted: float, stated: float) -> Comparison:
    """Beside a program with values that are too small by so much, of which it says so."""
    problem = Comparison(positive, 4)
    problem.out[:] = off_by(positive, problem, -trusted)
    problem.trust(stated)
    magnitudes = problem.magnitudes()
    problem.bound_by(off_by(positive, magnitudes, -trusted))
    return problem


@pytest.mark.parametrize("off", [ALLOWED, 1e-3])
def test_a_comparison_adds_up_what_two_programs_are_off_by(positive: Matrix, off: float) -> None:
    """The bound has a tenth to spare (_SLACK), and no more."""
    positive = positive.with_value_error(1e-2)
    for trusted, tried, factor in ((0.0, off, 1.0), (off, 0.0, 1.0), (off, off, 2.0)):
        problem = compared(positive, trusted, trusted)
        for times, passes in ((1.0, True), (1.5, False), (2.0, False)):
            problem.out[:] = off_by(positive, problem, times * factor * off - trusted)
            assert (problem.error(tried) <= 1) == passes
            assert problem.error(tried) == pytest.approx(times / 1.1, rel=0.02)


def test_a_comparison_allows_nothing_to_values_as_they_are(positive: Matrix) -> None:
    problem = compared(positive.with_value_error(1e-2), 0.0, 0.0)
    exact = compared(positive, 0.0, 0.0)
    assert problem._bound.tobytes() == exact._bound.tobytes()
    for off, passes in ((0.0, True), (1e-12, False), (5e-3, False)):
        problem.out[:] = exact.out[:] = off_by(positive, problem, off)
        assert problem.error() == exact.error()
        assert (problem.error() <= 1) == passes


def test_a_large_allowance_makes_no_comparison_impossible(positive: Matrix) -> None:
    """What says nothing is a bound for values that really are so far off."""
    loose = positive.with_value_error(0.5)
    problem = compared(loose, ALLOWED, ALLOWED)
    problem.out[:] = off_by(positive, problem, ALLOWED)
    assert problem.error(ALLOWED) <= 1
    with pytest.raises(VerificationError, match="says nothing"):
        problem.error(0.1)
    with pytest.raises(VerificationError, match="says nothing"):
        compared(loose, 0.1, 0.1)


class Inexact(Schedule):
    """A schedule whose programs have values that are off by so much, and which says by how much they may be."""

    may_crash = False

    def __init__(self, off: float, stated: float | None = None) -> None:
        self.off = off
        if stated is not None:
            self.stored_error = lambda *_: stated  # type: ignore[method-assign]

    def space(self, matrix: Matrix, device: Any, k: int) -> tuple[Parameter, ...]:
        return ()

    def feasible(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        return None

    def traffic(self, plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        return Traffic(0.0, 0.0, 0.0)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        return Powers(matrix, self.off)


class Powers(Program):
    """Plain products with values that are off."""

    nbytes, stored_error = 0, 0.0

    def __init__(self, matrix: Matrix, off: float) -> None:
        self.matrix, self.off = matrix, off
        self.update_values(matrix.data)

    def update_values(self, data: Any) -> None:
        self.A = self.matrix.with_values(data * (1 + self.off)).to_scipy()

    def run(self, x: Any, out: Any, coefficients: Any) -> None:
        out[0] = x
        for j, a in enumerate(coefficients.a):
            out[j + 1] = a * (self.A @ out[j].T).T


EXACTLY, HALVED, WRONG, WRONG_HALVED = (Plan("cpu", name, "csr", k=4) for name in ("full", "half", "wrong", "wronger"))


def space_of_schedules() -> Space:
    schedules = {
        "full": Inexact(0.0),
        "half": Inexact(ALLOWED, ALLOWED),
        "wrong": Inexact(ALLOWED, 0.0),
        "wronger": Inexact(5e-3, ALLOWED),
    }
    return Space("cpu", 4, 1, host_device(), schedules, {})


def test_a_trial_is_judged_with_the_error_that_its_own_values_have(positive: Matrix) -> None:
    problem, quick = Problem(positive.with_value_error(1e-2), 4), Precision(seconds=0.0)
    bench = Bench(problem, space_of_schedules(), precision=quick, race=2.0, keep=1)
    states = {}
    for plan in (EXACTLY, WRONG, WRONG_HALVED, HALVED):
        trial = bench.try_plan(plan, number=0, origin="given", best=None)
        states[plan] = trial.state
        assert (trial.state == COMPLETE) or trial.reason.startswith("wrong result: error is")
    assert states == {EXACTLY: COMPLETE, WRONG: FAILED, WRONG_HALVED: FAILED, HALVED: COMPLETE}
    for plan in (WRONG, WRONG_HALVED):
        with pytest.raises(VerificationError, match="wrong result"):
            bench.program(plan)
    exact = Bench(Problem(positive, 4), space_of_schedules(), precision=quick, race=2.0, keep=1)
    assert exact.stored_error(HALVED) == 0  # nobody is asked: it has to be right for values as they are
    assert exact.try_plan(HALVED, number=0, origin="given", best=None).state == FAILED


def like(plan: Plan, matrix: Matrix) -> ladder.Like:
    return ladder.Like(plan, replace(record(matrix, EXACT), plan=plan), 0.0)


@pytest.mark.parametrize("predicted", [EXACTLY, HALVED])
def test_plans_of_like_devices_are_compared_whatever_is_allowed(positive: Matrix, predicted: Plan) -> None:
    loose, space = positive.with_value_error(0.5), space_of_schedules()
    key = plan_key(loose, 4, backend="cuda", device=GPU)
    for tried in (EXACTLY, HALVED):
        if tried != predicted:
            ladder._measured(like(tried, loose), predicted, loose, key, space)
    with pytest.raises(VerificationError, match="wrong result"):
        ladder._measured(like(WRONG_HALVED, loose), predicted, loose, key, space)
    if predicted == EXACTLY:
        with pytest.raises(VerificationError, match="wrong result"):
            ladder._measured(like(WRONG, loose), predicted, loose, key, space)


def test_a_verdict_for_an_allowance_is_none_for_values_as_they_are(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call with an allowance that has no plan is looked up as one without: the key is the same."""
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    monkeypatch.delenv(ladder.SWITCH, raising=False)
    monkeypatch.setattr(ladder, "_reason_not_to_try", lambda *_: None)
    asked: list[float] = []

    def answer(like: Any, predicted: Plan, call: Any) -> Any:
        asked.append(call.matrix.value_error)
        return ladder.Answer(predicted, False, f"judged with {call.matrix.value_error}"), float("inf")

    monkeypatch.setattr(ladder, "_answer", answer)
    key = plan_key(matrix, 4, backend="cuda", device=GPU)
    there = replace(record(matrix, EXACT), key=replace(key, device_class=OTHER_GPU.device_class))
    predicted, told = Plan("cuda", "sweep", "csr-1", k=4), []
    for allowed in (ALLOWED, 0.0, 1e-3, ALLOWED, 0.0):
        loose = matrix.with_value_error(allowed)
        told.append(ladder.believed([there], predicted, loose, key, device=GPU, threads=1).why)
    assert asked == [ALLOWED, 0.0, 1e-3]
    assert told == [f"judged with {allowed}" for allowed in (ALLOWED, 0.0, 1e-3, ALLOWED, 0.0)]


def test_the_process_that_may_be_lost_has_the_allowance(matrix: Matrix) -> None:
    program = (
        "from akx.tuner import sandbox as process; "
        "process._run = lambda plan, matrix, *_: repr(matrix.value_error); process.main()"
    )
    for allowed in (ALLOWED, 0.0):
        problem = Problem(matrix.with_value_error(allowed), 2)
        runner = sandbox.Sandbox(problem, command=[sys.executable, "-c", program])
        try:
            assert runner.reason_against(EXACT) == repr(allowed)
        finally:
            runner.close()


def test_preparing_is_timed_with_the_allowance(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Matrix] = []
    space = space_of_schedules()
    monkeypatch.setattr(space.schedules["full"], "prepare", lambda matrix, plan: seen.append(matrix))
    outcomes._cold_prepare_seconds(space, matrix.with_value_error(ALLOWED), EXACTLY, 0.0)
    assert [one.value_error for one in seen] == [ALLOWED]
    assert seen[0].pattern_cache is not matrix.pattern_cache


def test_a_plan_is_run_again_with_its_allowance(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(AkxError):
        """A plan is about to be run."""

    def problem(matrix: Matrix, *_: Any, **__: Any) -> Any:
        asked.append(matrix.value_error)
        raise Begun("stop here")

    asked: list[float] = []
    monkeypatch.setattr("akx.backends.selection.device_of", lambda _: GPU)
    monkeypatch.setattr("akx.tuner.space.build_space", lambda matrix, *_, **__: asked.append(matrix.value_error))
    monkeypatch.setattr("akx.tuner.trial.problem.Problem", problem)
    loose = matrix.with_value_error(ALLOWED)
    entries = [("user", record(one, plan)) for one, plan in ((loose, INEXACT), (matrix, EXACT))]
    assert len(list(verification.verifications(matrix, entries))) == 2
    assert asked == [ALLOWED, ALLOWED, 0.0, 0.0]
    asked.clear()
    list(verification.verifications(loose, entries))  # that of the plan, whatever the matrix allows
    assert asked == [ALLOWED, ALLOWED, 0.0, 0.0]


# ------------------------------------------------------------------------------------------------ what is reported


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`akx bench` on a GPU that is not there: matrices by what was prepared of them, and how far the plan is off."""
    seen: dict[str, Any] = {"off": ALLOWED, "stated": ALLOWED}

    def prepare(matrix: Matrix, plan: Plan) -> Any:
        seen[plan.schedule] = matrix.value_error
        program = Powers(matrix, seen["off"] if plan == INEXACT else 0.0)
        if plan == INEXACT:
            program.stored_error = seen["stated"]
        return program

    def cusparse(matrix: Matrix, x: Any, k: int) -> dict[str, Any]:
        seen["cusparse"] = matrix.value_error
        return {"cusparse": (lambda: None, "")}

    monkeypatch.setattr(bench, "_prepare", prepare)
    monkeypatch.setattr(CudaBackend, "call", lambda *_, **__: lambda: None)
    monkeypatch.setattr(CudaBackend, "baselines", lambda _, *given: cusparse(*given))
    monkeypatch.setattr("akx.backends.selection.device_of", lambda _: GPU)
    monkeypatch.setattr("akx.backends.device_lock.device_lock", lambda _: SimpleNamespace(alone=nullcontext))
    monkeypatch.setattr(
        "akx.tuner.measure.interleave", lambda calls, _: [SimpleNamespace(seconds=1.0, spread=0.0) for _ in calls]
    )
    return seen


def result_of(plan: Plan) -> TuneResult:
    fields: dict[str, Any] = {field.name: None for field in dataclasses.fields(TuneResult)}
    fields |= {"k": 4, "backend": "cuda", "plan": plan, "baseline_plan": EXACT, "threads": 1, "reused": True}
    return TuneResult(**{**fields, "notes": (), "stored_error": 0.0})


def test_a_contest_has_the_allowance_for_the_plan_alone(positive: Matrix, contest: dict[str, Any]) -> None:
    loose = positive.with_value_error(1e-6)
    measured = error_of(loose, HALF)
    contest["off"] = contest["stated"] = measured
    found = bench.bench_power(loose, result_of(INEXACT), 1)
    assert (contest["resident"], contest["sweep"], contest["cusparse"]) == (1e-6, 0.0, 0.0)
    assert found.stored_error == measured
    assert 0 < found.error <= 1
    contest["stated"] = 0.0  # there was no room: values are in full, and judged so
    with pytest.raises(VerificationError, match="wrong result"):
        bench.bench_power(loose, result_of(INEXACT), 1)
    contest["off"] = contest["stated"] = 5e-7  # what a program says of itself is not enough
    same = loose.with_values(loose.data.astype("f4").astype("f8"))
    with pytest.raises(VerificationError, match="wrong result"):
        bench.bench_power(same, result_of(INEXACT), 1)
    contest["off"] = contest["stated"] = 0.0
    plain = bench.bench_power(loose, result_of(EXACT), 1)
    assert (plain.stored_error, plain.error <= 1) == (0.0, True)


def test_a_contest_says_which_plans_are_inexact(positive: Matrix, contest: dict[str, Any]) -> None:
    loose = positive.with_value_error(1e-6)
    contest["off"] = contest["stated"] = measured = error_of(loose, HALF)
    inexact, plain = (bench.bench_power(loose, result_of(plan), 1) for plan in (INEXACT, EXACT))
    about = ("m", loose.n, loose.nnz, "float64", "f", "cuda/H100", 1)
    found = bench.BenchResult(*about, (inexact, replace(plain, k=8), replace(inexact, k=16)), False, loose.value_error)
    told = (
        f"akx with k = 4, 16 stores values in half the bytes, with a relative error of at most {measured:.3g} of the "
        "1e-06 allowed; all others have them as they are"
    )
    assert found.notes[0] == found.to_json()["notes"][0] == told
    assert [power["best"]["stored_error"] for power in found.to_json()["powers"]] == [measured, 0.0, measured]
    exact = bench.BenchResult(*about, (plain,), False, loose.value_error)
    assert not any("relative error" in note for note in exact.notes)
    within = bench.BenchResult(*about, (inexact,), True, loose.value_error)
    assert [note.split()[0] for note in within.notes] == ["akx", "within"]


# ---------------------------------------------------------------------------------------------- calls on the host


def test_the_host_has_values_in_full(matrix: Matrix, tmp_path: Path) -> None:
    A, x = matrix.to_scipy(), np.random.default_rng(1).standard_normal(matrix.n)
    exact = akx.matrix_powers(A, x, 4, backend="cpu", db=tmp_path / "plans.sqlite")
    loose = akx.matrix_powers(A, x, 4, backend="cpu", db=tmp_path / "plans.sqlite", value_error=1e-3)
    assert exact.tobytes() == loose.tobytes()
    P = akx.MatrixPowers(A, 4, backend="cpu", db=tmp_path / "plans.sqlite", value_error=1e-3)
    assert "relative error" not in P.explain(measure=False)
    P.update_values(2 * A)
    assert P._prepared.values.matrix.value_error == 1e-3
    assert P._prepared.values.of(np.dtype("complex128")).value_error == 1e-3


def test_operators_that_are_kept_are_told_apart(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    CACHE.entries.clear()
    A, made = matrix.to_scipy(), []

    def noted(self: akx.MatrixPowers, x: Any, out: Any = None) -> None:
        made.append((self, self._prepared.values.matrix.value_error))

    monkeypatch.setattr(akx.MatrixPowers, "__call__", noted)
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
    assert made[0][0]._prepared.values.matrix.data is made[1][0]._prepared.values.matrix.data
    made.clear()
    allowed = matrix.with_value_error(ALLOWED)
    akx.matrix_powers(allowed, np.ones(matrix.n), 2, backend="cpu")
    akx.matrix_powers(allowed, np.ones(matrix.n), 2, backend="cpu", value_error=0.0)
    assert [one for _, one in made] == [ALLOWED, 0]
    CACHE.entries.clear()


def test_solvers_have_values_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = akx.MatrixPowers.__init__

    def watched(self: Any, A: Any, *arguments: Any, **options: Any) -> None:
        real(self, A, *arguments, **options)
        asked.append(self._prepared.values.matrix.value_error)

    monkeypatch.setattr(akx.MatrixPowers, "__init__", watched)
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300)))
    allowed = Matrix.from_any(A, value_error=1e-2)
    for solve in (solvers.ca_cg, solvers.ca_gmres, solvers.ca_bicgstab):
        x, info = solve(allowed, np.ones(300), rtol=1e-12, backend="cpu")
        assert info == 0
        assert np.linalg.norm(A @ x - 1) < 1e-9
    assert asked
    assert not any(asked)


def test_solvers_are_tuned_with_values_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(AkxError):
        """A plan is being tuned."""

    def tune(matrix: Matrix, *_: Any, **__: Any) -> Any:
        asked.append(matrix.value_error)
        raise Begun("stop here")

    asked: list[float] = []
    monkeypatch.setattr(solver_tuning, "tune", tune)
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300)))
    with pytest.raises(Begun):
        solver_tuning.tune_for(Matrix.from_any(A, value_error=1e-2), "ca_cg", backend="cpu", db=False)
    assert asked == [0.0]


def test_a_polynomial_has_values_as_they_are(matrix: Matrix) -> None:
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300)))
    M = chebyshev(Matrix.from_any(A, value_error=1e-2), 3, interval=(0.5, 4.5))
    M @ np.ones(300)
    assert M._on_host is not None
    assert (M._matrix.value_error, M._on_host._prepared.values.matrix.value_error) == (0.0, 0.0)


def test_every_schedule_says_how_far_it_is_off_or_stores_in_full(matrix: Matrix) -> None:
    allowed = matrix.with_value_error(ALLOWED)
    for schedule in (*registry.schedules("cpu"), *registry.schedules("cuda")):
        assert (type(schedule).stored_error is not Schedule.stored_error) == (
            schedule.backend == "cuda" and schedule.name in ("sweep", "resident", "wavefront")
        )
    assert error_of(allowed, HALF) > 0
