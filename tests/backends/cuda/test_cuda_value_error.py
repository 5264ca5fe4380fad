"""Values stored with an error that the matrix allows: what is stored, by which programs, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
import test_cuda_block_local_values
import test_cuda_value_compression
from hypothesis import given
from hypothesis import strategies as st
from program_on_host import Call
from test_cuda_block_local import small_gpu
from test_cuda_wavefront_layout import NARROW, storable

import akx
from akx.backends import reference, registry
from akx.backends.cuda.device import memory
from akx.backends.cuda.value_compression import encodings as stored
from akx.backends.cuda.value_compression import new_values as values
from akx.backends.cuda.value_compression import program as stored_program
from akx.backends.cuda.value_compression.encodings import FULL, HALF, TABLE, encoded, error_of, is_storable, ways_of
from akx.backends.cuda.variants import diagonals
from akx.backends.schedule import Coefficients
from akx.core import parallel
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.operator import planner

#: What float32 rounds by at most, and what a user would state.
UNIT, ALLOWED = 2.0**-24, 6e-8
WIDE = sorted(NARROW)


def matrix_of(dtype: str, seed: int = 0, allowed: float = 0.0) -> Matrix:
    """Values that are in no way the same in fewer bytes, and more of them than a table holds."""
    rng = np.random.default_rng(seed)
    A = sp.csr_array(sp.diags_array([1.0] * 9, offsets=range(-4, 5), shape=(1000, 1000)))
    data = rng.uniform(-1, 1, A.nnz) + 1j * rng.uniform(-1, 1, A.nnz)
    matrix = Matrix.from_any(A).with_values((data if dtype == "complex128" else data.real).astype(dtype))
    return matrix.with_value_error(allowed)


def largest(stored: Any, data: Any) -> float:
    """The largest relative error of real numbers, by exact arithmetic; of complex ones, by that of double precision."""
    if data.dtype.kind == "c":
        return float(np.max(np.abs(stored - data) / np.abs(data)))
    pairs = ((Fraction(float(s)), Fraction(float(a))) for s, a in zip(stored, data, strict=True))
    return float(max(abs((s - a) / a) for s, a in pairs))


# --------------------------------------------------------------------------------------------------- what is stored


@pytest.mark.parametrize("dtype", WIDE)
def test_values_within_the_allowance_are_rounded(dtype: str) -> None:
    data = matrix_of(dtype).data
    assert encoded(data, HALF) is None
    found = encoded(data, HALF, value_error=ALLOWED)
    assert found is not None
    assert found.stored.dtype == NARROW[dtype]
    np.testing.assert_array_equal(found.stored, data.astype(NARROW[dtype]))
    assert found.error == pytest.approx(largest(found.stored, data), rel=1e-15)
    assert 0.9 * UNIT < found.error <= UNIT  # what is measured, not what is allowed
    exact = encoded(data, HALF, value_error=found.error)
    assert exact is not None
    assert encoded(data, HALF, value_error=np.nextafter(found.error, 0)) is None


@pytest.mark.parametrize("dtype", WIDE)
def test_one_value_beyond_the_allowance_is_enough(dtype: str) -> None:
    data = np.ones(5000, dtype)
    data[4321] = 1 + 2.0**-30
    assert encoded(data, HALF) is None
    assert encoded(data, HALF, value_error=0.9 * 2.0**-30) is None
    found = encoded(data, HALF, value_error=2.0**-30)
    assert found is not None
    assert found.error == 2.0**-30 / (1 + 2.0**-30)


def test_values_that_are_the_same_have_no_error() -> None:
    data = np.array([0.0, -0.0, 0.5, -3.0, 2.0**-149])
    found = encoded(data, HALF, value_error=0.5)
    assert found is not None
    assert found.error == 0
    assert found.stored.astype("f8").tobytes() == data.tobytes()


@pytest.mark.parametrize("allowed", [ALLOWED, 0.25, 0.999])
@pytest.mark.parametrize("value", [1e39, -1e308, np.nextafter(2.0**128, 0), 1e-46, 1e-300, -5e-324])
@pytest.mark.parametrize("dtype", WIDE)
def test_what_overflows_or_vanishes_is_refused(dtype: str, value: float, allowed: float) -> None:
    for turn in (1, 1j) if dtype == "complex128" else (1,):
        assert encoded(np.array([1.0, value * turn], dtype), HALF, value_error=allowed) is None


def test_what_is_too_small_counts_as_far_as_it_is_off() -> None:
    """Subnormal numbers of float32 are 2^-149 apart: off by up to a half of that, however small they are."""
    data = np.array([1.0, 100.4 * 2.0**-149])
    assert encoded(data, HALF, value_error=ALLOWED) is None
    assert encoded(data, HALF, value_error=0.4 / 100.3) is not None
    assert encoded(data, HALF, value_error=0.4 / 100.5) is None
    data[1] = 100 * 2.0**-149
    assert encoded(data, HALF, value_error=ALLOWED) is not None


def test_complex_values_are_off_by_their_modulus() -> None:
    """An imaginary part that is lost is no more of the number than it is; both parts too large are too large."""
    lost = np.array([1 + 1e-60j, 1e-60 + 1j])
    found = encoded(lost, HALF, value_error=ALLOWED)
    assert found is not None
    assert found.error == 1e-60
    assert encoded(lost, HALF, value_error=0.9e-60) is None
    assert encoded(lost, HALF) is None
    assert encoded(np.array([1e308 * (1.7 + 1.7j)]), HALF, value_error=0.9) is None  # its modulus is beyond all numbers
    assert encoded(np.array([1 + 1e39j]), HALF, value_error=0.9) is None


@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.floats(1e-12, 0.99))
def test_a_number_is_stored_where_it_is_off_by_no_more(value: float, allowed: float) -> None:
    found = encoded(np.array([value]), HALF, value_error=allowed)
    with np.errstate(all="ignore"):
        half = float(np.float32(value))
    if not np.isfinite(half):
        assert found is None
        return
    exact = abs(Fraction(half) - Fraction(value)) / abs(Fraction(value)) if value else Fraction(0)
    if abs(exact - Fraction(allowed)) > Fraction(allowed) / 2**50:
        assert (found is not None) == (exact < Fraction(allowed))
    if found is not None:
        assert found.stored[0] == half
        assert found.error == pytest.approx(float(exact), rel=1e-15)


def test_pieces_are_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_PIECE", 100)
    monkeypatch.setattr(parallel, "available_cores", lambda: 4)
    monkeypatch.setattr(parallel, "named_threads", lambda: None)
    for at in (0, 150, 399):
        data = np.ones(400)
        data[at] += 2.0**-26
        found = encoded(data, HALF, value_error=ALLOWED)
        assert found is not None
        assert found.error == 2.0**-26 / (1 + 2.0**-26)
        assert encoded(data, HALF, value_error=1e-9) is None


def test_a_table_stays_exact() -> None:
    data = np.arange(1, 100) / 3
    found = encoded(data, TABLE, value_error=0.5)
    assert found is not None
    assert found.error == 0
    assert (found.table[found.stored // 8] == data).all()
    assert encoded(np.arange(1, 9000) / 3, TABLE, value_error=0.5) is None


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_there_is_nothing_narrower_than_float32(dtype: str) -> None:
    assert encoded(np.ones(3, dtype), HALF, value_error=0.5) is None


# ------------------------------------------------------------------------------------------------- what is asked for


def test_the_ways_of_a_matrix_depend_on_what_it_allows() -> None:
    exact, near, far = (matrix_of("float64", allowed=allowed) for allowed in (0.0, 1e-9, ALLOWED))
    assert [set(ways_of(matrix)) for matrix in (exact, near, far)] == [{FULL}, {FULL}, {FULL, HALF}]
    assert [error_of(matrix, HALF) for matrix in (exact, near)] == [0, 0]
    assert 0.9 * UNIT < error_of(far, HALF) <= UNIT
    assert error_of(far, FULL) == 0
    again = far.with_value_error(0.0)  # nothing is left of what was found with an allowance
    assert set(ways_of(again)) == {FULL}
    assert HALF in ways_of(far.with_values(2 * far.data))
    assert HALF not in ways_of(far.with_values(1e39 * far.data))


def test_values_that_cannot_be_off_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(stored, "encoded", lambda data, way, **how: asked.append(way) or encoded(data, way, **how))
    exact = matrix_of("float64")
    for way in (FULL, HALF, TABLE):
        assert error_of(exact, way) == 0
    for way in (FULL, TABLE):
        assert error_of(matrix_of("float64", allowed=ALLOWED), way) == 0
    front = Plan("cuda", "wavefront", "sell16-2", k=4, k_per_pass=4, options={"stored": HALF})
    for plan in (front, front.replace(schedule="resident", variant="1x1-2"), front.replace(schedule="sweep")):
        schedule = registry.get("cuda", plan.schedule)
        assert registry.stored_error(schedule, plan, exact, small_gpu(3, 60_000)) == 0
    assert not asked
    assert error_of(matrix_of("float64", allowed=ALLOWED), HALF) > 0
    assert HALF in asked


@pytest.mark.parametrize("name", ["resident", "wavefront"])
def test_schedules_offer_the_fewer_bytes_where_they_are_allowed(name: str) -> None:
    schedule: Any = registry.get("cuda", name)
    exact, allowed = matrix_of("float64"), matrix_of("float64", allowed=ALLOWED)
    device = small_gpu(3, 60_000)

    def choices(matrix: Matrix) -> Any:
        return next(p.choices for p in schedule.space(matrix, device, 4) if p.name == "stored")

    assert choices(exact) == (FULL,)
    assert choices(allowed) == (FULL, HALF)
    plan = next(plan for plan in schedule.starts(allowed, device, 4) if plan.typed.stored == HALF)
    assert is_storable(plan, allowed)
    assert not is_storable(plan, exact)
    assert schedule.waste(plan, allowed, device) is None
    assert (
        schedule.waste(plan, exact, device)
        == "stored=half is the same as full here: values are not the same in half the bytes"
    )
    assert schedule.stored_error(plan, allowed, device) == error_of(allowed, HALF) > 0
    assert schedule.stored_error(plan, exact, device) == 0  # it has them in full
    full = plan.replace(options={**plan.options, "stored": FULL})
    assert schedule.stored_error(full, allowed, device) == 0
    assert registry.stored_error(schedule, plan, allowed, device) == error_of(allowed, HALF)
    assert registry.stored_error(schedule, full, allowed, device) == 0
    assert schedule.traffic(plan, allowed, device).matrix_bytes < schedule.traffic(plan, exact, device).matrix_bytes


def test_diagonals_have_values_in_full() -> None:
    matrix = matrix_of("float64", allowed=ALLOWED)
    plan = Plan("cuda", "resident", diagonals.DIA, k=4, k_per_pass=4, options={"stored": HALF})
    assert registry.get("cuda", "resident").stored_error(plan, matrix, small_gpu(3, 60_000)) == 0  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------- programs without a device

Made = Callable[[Matrix, str], Call]


@pytest.fixture(params=["resident", "wavefront"])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    """A program of each schedule that stores values in ways."""
    if request.param == "resident":
        device = test_cuda_block_local_values.resident_device(monkeypatch, tmp_path)

        def by_parts(matrix: Matrix, way: str) -> Call:
            plan = test_cuda_block_local_values.plan_of(way)
            device.facts = test_cuda_block_local_values.facts_for(matrix, plan)
            return Call(test_cuda_block_local_values.prepared(matrix, plan), matrix)

        return by_parts
    test_cuda_value_compression.wavefront_device(monkeypatch, tmp_path)
    return lambda matrix, way: test_cuda_value_compression.called(matrix, test_cuda_value_compression.plan_of(way))


def small(dtype: str, seed: int = 0, allowed: float = 0.0) -> Matrix:
    return test_cuda_value_compression.matrix_of(dtype, seed).with_value_error(allowed)


@pytest.mark.parametrize("dtype", WIDE)
def test_a_program_has_what_is_allowed_and_no_more(made: Made, dtype: str) -> None:
    matrix = small(dtype, allowed=ALLOWED)
    call = made(matrix, HALF)
    program = call.program
    assert program._values.dtype == NARROW[dtype]
    assert program.is_as_planned
    assert program.stored_error == error_of(matrix, HALF) > 0
    call.is_right(matrix)
    with pytest.raises(AssertionError):  # as far off as it may be, it is not right for values as they are
        call.is_right(matrix.with_value_error(0.0))
    exact = made(matrix.with_value_error(0.0), HALF)  # the plan of another matrix: in full
    assert exact.program._values.dtype == dtype
    assert exact.program.stored_error == 0
    exact.is_right(matrix.with_value_error(0.0))


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize("dtype", WIDE)
def test_new_values_have_the_same_allowance(made: Made, dtype: str, source: str) -> None:
    def send(data: Any) -> Any:
        return host_engine.to_device(data) if source == "device" else data

    matrix = small(dtype, allowed=ALLOWED)
    call = made(matrix, HALF)
    program = call.program
    for seed in (1, 2):
        fresh = matrix.with_values(small(dtype, seed).data)
        program.update_values(send(fresh.data))
        assert program.is_as_planned
        assert program.stored_error == pytest.approx(error_of(fresh, HALF), rel=1e-15)
        call.is_right(fresh)
    same = storable(matrix, HALF, 0)
    program.update_values(send(same.data))
    assert program.stored_error == 0
    call.is_right(same.with_value_error(0.0))
    data = small(dtype, 3).data.copy()
    data[7] = 1e-43 * (1 / 3)  # a subnormal number there
    fresh = matrix.with_values(data)
    program.update_values(send(data))
    assert not program.is_as_planned
    assert program._values.dtype == dtype
    assert program.stored_error == 0
    call.is_right(fresh.with_value_error(0.0))
    program.update_values(send(matrix.data))  # in full from then on
    assert program.stored_error == 0
    call.is_right(matrix.with_value_error(0.0))


def test_new_values_that_the_host_stores_have_the_same_allowance(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device has no memory to do it."""

    def full(*_: Any) -> Any:
        raise DeviceMemoryError("no memory")

    monkeypatch.setattr(stored_program, "halved", full)
    matrix = small("float64", allowed=ALLOWED)
    call = made(matrix, HALF)
    fresh = matrix.with_values(small("float64", 1).data)
    call.program.update_values(fresh.data)
    assert call.program.is_as_planned
    assert call.program.stored_error == error_of(fresh, HALF)
    call.is_right(fresh)
    call.program.update_values(1e39 * fresh.data)
    assert not call.program.is_as_planned


def test_a_tighter_allowance_is_kept_too(made: Made) -> None:
    matrix = storable(small("float64"), HALF, 0).with_value_error(1e-10)
    call = made(matrix, HALF)
    near = matrix.with_values(matrix.data * (1 + 2.0**-36))
    call.program.update_values(near.data)
    assert call.program.is_as_planned
    assert 0 < call.program.stored_error <= 1e-10
    call.is_right(near)
    call.program.update_values(small("float64", 4).data)
    assert not call.program.is_as_planned


# ------------------------------------------------------------------------------------------------- as users call it


@pytest.fixture
def powers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., akx.MatrixPowers]:
    """:class:`akx.MatrixPowers` by a resident plan with values in half their bytes."""
    device = test_cuda_block_local_values.resident_device(monkeypatch, tmp_path, memory)
    monkeypatch.setattr(values, "all_finite", lambda data: bool(np.isfinite(host_engine.seen(data)).all()))
    options: dict[str, Option] = {"block": 256, "held_slices": 1, "held_slots": 2, "stored": HALF}
    plan = Plan("cuda", "resident", "1x1-2", "natural", 4, 4, options=options)

    def make(A: Any, **how: Any) -> akx.MatrixPowers:
        device.facts = test_cuda_block_local_values.facts_for(Matrix.from_any(A), plan)
        monkeypatch.setattr(planner, "device_of", lambda _: device.facts)
        return akx.MatrixPowers(A, 4, plan=plan, db=tmp_path / "plans.sqlite", **how)

    return make


def test_explain_says_how_far_values_are_off(powers: Callable[..., akx.MatrixPowers]) -> None:
    matrix = test_cuda_block_local_values.matrix_of("float64")
    off = f"{error_of(matrix.with_value_error(1e-6), HALF):.3g}"
    told = f"values      stored in half the bytes, with a relative error of at most {off}; 1e-06 is allowed"
    P = powers(matrix.to_scipy(), value_error=1e-6)
    assert told in P.explain(measure=False).splitlines()
    assert "is the same as full" not in P.explain(measure=False)
    exact = powers(matrix.to_scipy()).explain(measure=False)
    assert "relative error" not in exact
    assert "stored=half is the same as full here" in exact
    assert told in powers(matrix.with_value_error(1e-6)).explain(measure=False)  # that of the matrix, by default
    assert "relative error" not in powers(matrix.with_value_error(1e-6), value_error=0).explain(measure=False)
    same = storable(matrix, HALF, 0)
    assert "relative error" not in powers(same, value_error=1e-6).explain(measure=False)
    P._prepared.programs.clear()  # where nothing is prepared, as it would be
    assert told in P.explain(measure=False)


def test_new_values_of_an_operator(powers: Callable[..., akx.MatrixPowers]) -> None:
    matrix = test_cuda_block_local_values.matrix_of("float64")
    P = powers(matrix.to_scipy(), value_error=1e-6)
    other = test_cuda_block_local_values.matrix_of("float64", 5)
    P.update_values(other.to_scipy())
    assert P._prepared.values.matrix.value_error == 1e-6
    (program,) = P._prepared.programs.values()
    assert program.stored_error == error_of(other.with_value_error(1e-6), HALF)  # type: ignore[attr-defined]
    huge = other.with_values(1e39 * other.data)
    P.update_values(huge)
    assert program.stored_error == 0  # type: ignore[attr-defined]
    assert "relative error" not in P.explain(measure=False)
    P.update_values(other.to_scipy())  # they could be stored so again, and are not
    assert "relative error" not in P.explain(measure=False)


# ------------------------------------------------------------------------------------------------------- the bound


def powers_of(matrix: Matrix, data: Any, x: Any, coefficients: Coefficients) -> Any:
    """The recurrence with other values, in double precision."""
    A = matrix.with_values(data).to_scipy()
    V = [x]
    for j in range(coefficients.a.size):
        last = coefficients.a[j] * (A @ V[j].T).T + coefficients.b[j] * V[j]
        V.append(last + (coefficients.c[j] * V[j - 1] if j else 0))
    return np.stack(V)


def some(k: int, dtype: str) -> Coefficients:
    a, b, c = np.full(k, 1.5), np.full(k, 0.25), np.full(k, -0.125)
    c[0] = 0
    return Coefficients(*(np.asarray(v, dtype) for v in (a, b, c)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_without_an_allowance_the_bound_is_what_it_was(dtype: str) -> None:
    """Bit for bit: formed again as it was before there were allowances."""
    matrix = matrix_of("complex128" if dtype.startswith("c") else "float64")
    matrix = matrix.with_values(matrix.data.astype(dtype))
    rng, coefficients = np.random.default_rng(0), some(5, dtype)
    x = rng.uniform(-1, 1, (2, matrix.n)).astype(dtype)
    found = reference.reference(matrix, x, coefficients)
    lengths = np.diff(matrix.indptr).astype(np.float64)[:, None]
    gamma = (lengths + 4.0) * (float(np.finfo(dtype).eps) / 2 * (4.0 if "complex" in dtype else 1.0))
    tiny = 4.0 * float(np.finfo(dtype).tiny) * (lengths + 4.0)
    magnitude = abs(matrix.to_scipy().astype(np.result_type(dtype, np.float64)))
    error, before = np.zeros((matrix.n, 2)), np.zeros((matrix.n, 2))
    for j in range(5):
        a, b, c = (float(abs(v[j])) for v in (coefficients.a, coefficients.b, coefficients.c))
        value = np.abs(found.powers[j]).T
        older = np.abs(found.powers[j - 1]).T if j else np.zeros_like(value)
        both = magnitude @ np.hstack([error, value])
        fresh = gamma * (a * both[:, 2:] + b * value + c * older) + tiny
        error, before = a * both[:, :2] + b * error + c * before + fresh, error
        assert found.bound[j + 1].tobytes() == np.ascontiguousarray(2.0 * error.T).tobytes()
    assert not found.bound[0].any()


@pytest.mark.parametrize("off", [1e-12, ALLOWED, 1e-3, 0.5])
@pytest.mark.parametrize("dtype", WIDE)
def test_the_bound_holds_however_far_values_are_off(dtype: str, off: float) -> None:
    matrix = matrix_of(dtype)
    rng, coefficients = np.random.default_rng(1), some(6, dtype)
    x = rng.uniform(-1, 1, (2, matrix.n)).astype(dtype)
    for signs in (np.ones(matrix.nnz), -np.ones(matrix.nnz), rng.choice([-1.0, 1.0], matrix.nnz)):
        out = powers_of(matrix, matrix.data * (1 + 0.999999 * off * signs), x, coefficients)
        assert reference.error_ratio(matrix, out, x, coefficients, stored_error=off) <= 1
        assert reference.error_ratio(matrix, out, x, coefficients) > 1  # it had to grow
        truth = reference.reference(matrix, x, coefficients)
        wider = reference.widened(matrix, truth.powers, truth.bound, coefficients, off)
        stated = reference.reference(matrix, x, coefficients, stored_error=off).bound
        assert wider.tobytes() == stated.tobytes()


def test_the_bound_is_reached_where_nothing_cancels() -> None:
    """With entries and vectors that are positive, all errors of one sign add up: it grows by that, and not by more."""
    matrix = matrix_of("float64")
    matrix = matrix.with_values(np.abs(matrix.data))
    coefficients = Coefficients(np.full(6, 1.5), np.full(6, 0.25), np.array([0, *[0.125] * 5]))
    x = np.random.default_rng(2).uniform(0.5, 1, (1, matrix.n))
    for off, passes in ((1.0, True), (1.001, False), (-1.0, True)):
        out = powers_of(matrix, matrix.data * (1 + off * 1e-4), x, coefficients)
        ratio = reference.error_ratio(matrix, out, x, coefficients, stored_error=1e-4)
        assert (ratio <= 1) == passes
        assert 0.99 < ratio < 1.01


@pytest.mark.parametrize("off", [1e-12, ALLOWED, 1e-3])
def test_a_wrong_result_is_wrong_with_values_that_are_off_too(off: float) -> None:
    def ratio(out: Any) -> float:
        return reference.error_ratio(matrix, out, x, coefficients, stored_error=off)

    matrix = matrix_of("float64")
    coefficients = some(4, "float64")
    x = np.random.default_rng(3).uniform(-1, 1, (1, matrix.n))
    right = powers_of(matrix, matrix.data, x, coefficients)
    assert ratio(right) <= 1
    data = matrix.data.copy()
    data[np.argmax(np.abs(data))] *= 1 + 400 * off
    assert ratio(powers_of(matrix, data, x, coefficients)) > 1
    for j in range(1, 5):
        wrong = right.copy()
        wrong[j, 0, 5] += 500 * 9**j * off
        assert ratio(wrong) > 1
    lost = right.copy()
    lost[0, 0, 0] = np.nextafter(lost[0, 0, 0], 2)  # v_0 is x itself
    assert ratio(lost) == np.inf


def test_a_step_has_what_values_are_off_by_beside_the_rounding() -> None:
    """In single precision, where one does not vanish beside the other."""
    matrix, off = matrix_of("float64"), 0.5
    matrix, coefficients = matrix.with_values(matrix.data.astype("f4")), some(1, "float32")
    x = np.random.default_rng(5).uniform(-1, 1, (1, matrix.n)).astype("f4")
    found = reference.reference(matrix, x, coefficients, stored_error=off).bound[1, 0]
    size = 1.5 * (abs(matrix.to_scipy().astype("f8")) @ np.abs(x[0].astype("f8")))
    gamma, own = (np.diff(matrix.indptr) + 4) * 2.0**-24, 0.25 * np.abs(x[0].astype("f8"))
    np.testing.assert_allclose(found, gamma * (size + own) + gamma * ((1 + off) * size + own) + off * size, rtol=1e-12)


def test_what_is_allowed_widens_no_bound() -> None:
    """An error is stated for a program, and not for its matrix: most store values as they are all the same."""
    matrix, coefficients = matrix_of("float64"), some(4, "float64")
    x = np.random.default_rng(4).uniform(-1, 1, (1, matrix.n))
    exact, allowed = (reference.reference(one, x, coefficients) for one in (matrix, matrix.with_value_error(1e-2)))
    assert exact.bound.tobytes() == allowed.bound.tobytes()
    wrong = exact.powers.copy()
    wrong[2, 0, 9] *= 1.005
    assert reference.error_ratio(matrix.with_value_error(1e-2), wrong, x, coefficients) > 1
