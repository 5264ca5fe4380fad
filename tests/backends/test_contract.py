"""The contract that every schedule of every backend must pass: right to the componentwise bound, and deterministic.

The bound is checked here against dense products in extended precision as well, so that the reference itself is not
taken on trust.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fake_backend
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akx.backends import reference, registry
from akx.backends.cpu.variants import VARIANTS, layout_of
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import HostDevice
from akx.backends.schedule import Coefficients, Schedule, as_coefficients
from akx.backends.selection import backend_of, device_of
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.space import build_space

#: Variants of the CPU that are tried: all, or those of AKX_TEST_VARIANTS, by commas.
TRIED = [one for one in VARIANTS if one in os.environ.get("AKX_TEST_VARIANTS", ",".join(VARIANTS)).split(",")]
#: The memory budget of a schedule that streams, in those that some plan does with.
_ROOM = 8
#: Devices as they are on every machine.
FROZEN: dict[str, Any] = {
    "cpu": HostDevice("test", 4, 32 * 1024, 1024 * 1024, 16 * 1024 * 1024),
    "cuda": CudaDevice("test", 0, (9, 0), 132, 232448, 233472, 65536, 2**25, 2**36, 10**9, 1e12),
}


def _marks(backend: str) -> list[pytest.MarkDecorator]:
    if not backend_of(backend).has_own_memory or backend == fake_backend.BACKEND.name:
        return []
    reason = backend_of(backend).missing()
    return [pytest.mark.cuda, pytest.mark.skipif(reason is not None, reason=str(reason))]


with fake_backend.registered():
    NAMES = [(one.backend, one.name) for backend in registry.backends() for one in registry.schedules(backend)]
    SCHEDULES = [pytest.param(*names, marks=_marks(names[0]), id="-".join(names)) for names in NAMES]


@pytest.fixture(autouse=True, scope="module")
def _fake_backend() -> Iterator[None]:
    with fake_backend.registered():
        yield


DTYPES = ["float32", "float64", "complex64", "complex128"]


def random_numbers(rng: np.random.Generator, shape: Any, dtype: str) -> Any:
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def pattern(kind: str, n: int, rng: np.random.Generator) -> sp.coo_array:
    """A random pattern with an awkward feature."""
    i = np.arange(n)
    if kind == "band":
        parts = [(i, np.clip(i + d, 0, n - 1)) for d in (-3, -1, 0, 1, 4)]
    elif kind == "empty":
        return sp.coo_array((n, n))
    elif kind == "dense row":
        parts = [(i, i), (np.full(n, n // 2), i), (i[::7], np.zeros_like(i[::7]))]
    elif kind == "grid":  # levels of 96 rows
        down, across = np.maximum(i - _WIDE, 0), np.where(i % _WIDE, i - 1, i)
        parts = [(i, i), (i, down), (down, i), (i, across), (across, i)]
    elif kind == "disconnected":
        parts = [(i, i // 5 * 5), (i, np.minimum(i // 5 * 5 + 4, n - 1))]
    elif kind.startswith("symmetric"):  # diagonals with holes, and a few entries far off
        parts = [(i, i)]
        for offset in (1, 3, 70):
            some = np.flatnonzero(rng.random(max(n - offset, 0)) < 0.9)
            parts += [(some, some + offset), (some + offset, some)]
        some = np.array([rng.integers(0, n, n // 10), rng.integers(0, n, n // 10)])
        parts += [tuple(some), tuple(some[::-1])]
    elif kind == "symmetric nodes":
        i = np.arange(max(n // 3, 1))
        node = np.array([(j, max(j - d, 0)) for d in (0, 1, 4) for j in i] + [(j, j // 2) for j in i[::9]]).T
        node = np.hstack([node, node[::-1]])
        rows = (3 * node[0][:, None, None] + np.arange(3)[None, :, None]) + np.zeros((1, 1, 3), int)
        columns = (3 * node[1][:, None, None] + np.arange(3)[None, None, :]) + np.zeros((1, 3, 1), int)
        keep = (rows < n) & (columns < n)
        parts = [(rows[keep], columns[keep])]
    elif kind == "holes":  # two of three rows are empty
        parts = [(i[::3], rng.integers(0, n, i[::3].size)), (i[::3], i[::3])]
    elif kind == "blocks":
        nodes = max(n // 3, 1)
        first = np.repeat(np.arange(nodes), 4)
        node = np.array([first, (first + rng.integers(0, nodes, first.size)) % nodes])
        rows = (3 * node[0][:, None, None] + np.arange(3)[None, :, None]) + np.zeros((1, 1, 3), int)
        columns = (3 * node[1][:, None, None] + np.arange(3)[None, None, :]) + np.zeros((1, 3, 1), int)
        keep = (rows < n) & (columns < n)
        parts = [(rows[keep], columns[keep])]
    else:
        count = 4 * n
        parts = [(rng.integers(0, n, count), rng.integers(0, n, count))]
    rows, columns = (np.concatenate(p) for p in zip(*parts, strict=True))
    return sp.coo_array((np.ones(rows.size), (rows, columns)), shape=(n, n))


#: Rows of a level of the grid, and of all of it: what needs levels for a front, on each of many multiprocessors, has a
#: plan on it.
_WIDE, GRID = 96, 24 * 96
KINDS = ["band", "empty", "dense row", "disconnected", "holes", "blocks", "random", "symmetric", "symmetric nodes"]


def fewer(n: int) -> int:
    """So many rows, or AKX_TEST_ROWS if these are fewer, for tools under which kernels take a thousand times longer."""
    return min(n, int(os.environ.get("AKX_TEST_ROWS", n)))


def make_matrix(kind: str, n: int, dtype: str, seed: int) -> Matrix:
    rng = np.random.default_rng(seed)
    A = sp.csr_array(pattern(kind, n, rng))
    A.sum_duplicates()
    A.data = random_numbers(rng, A.nnz, dtype) / 3
    if kind == "symmetric":
        A = sp.csr_array((A + A.T) / 2)
    return Matrix.from_any(A.astype(dtype))


def make_coefficients(kind: str, k: int, dtype: str, rng: np.random.Generator) -> Coefficients:
    ones, zeros = np.ones(k), np.zeros(k)
    if kind == "monomial":
        return as_coefficients(ones, zeros, zeros, np.dtype(dtype))
    a, b, c = rng.uniform(0.5, 1.5, k), rng.uniform(-1, 1, k), rng.uniform(-1, 1, k)
    if kind == "newton":  # shifts, and the third term of a complex pair
        c[::2] = 0
    c[0] = 0
    return as_coefficients(a, b, c, np.dtype(dtype))


def exact_powers(matrix: Matrix, x: Any, coefficients: Coefficients) -> tuple[Any, Any]:
    """Powers in extended precision, and sum |a||A| ... on absolute values: an oracle without sparse code.

    Of the dense matrix only entries that are not zero are multiplied: nothing is fast in extended precision.
    """
    wide = np.clongdouble if matrix.dtype.kind == "c" else np.longdouble
    dense = matrix.to_scipy().toarray()
    row, column = dense.nonzero()  # by rows
    entries = dense[row, column].astype(wide)
    starts = np.flatnonzero(np.diff(row, prepend=-1))

    def product(values: Any, v: Any) -> Any:
        result = np.zeros_like(v)
        if starts.size:
            result[:, row[starts]] = np.add.reduceat(values * v[:, column], starts, axis=1)
        return result

    V, size = [x.astype(wide)], [np.abs(x).astype(np.longdouble)]
    for j in range(coefficients.a.size):
        a, b, c = (v[j] for v in (coefficients.a, coefficients.b, coefficients.c))
        older, older_size = (V[-2], size[-2]) if j else (np.zeros_like(V[0]), np.zeros_like(size[0]))
        V.append(a * product(entries, V[-1]) + b * V[-1] + c * older)
        size.append(abs(a) * product(np.abs(entries), size[-1]) + abs(b) * size[-1] + abs(c) * older_size)
    return np.array(V), np.array(size)


def with_room(schedule: Schedule, matrix: Matrix, k: int, device: Any) -> Any:
    """The device as the schedule needs it: one that streams has plans within a memory budget."""
    if not schedule.options.streams:
        return device
    least = schedule.least_budget(matrix, k, device)
    assert least is not None
    return replace(device, budget=_ROOM * least)


def plans_in_space(schedule: Schedule, matrix: Matrix, k: int, device: Any) -> list[Plan]:
    """The defaults of the space with each variant, what is one choice away, and where a search begins."""
    device, name = with_room(schedule, matrix, k, device), schedule.name
    space = build_space(matrix, k, device, backend=schedule.backend, threads=1, keep=name.__eq__)
    default = space.default(name)
    found = [default, *(space.plan(name, {"variant": one}) for one in space.choices(name, "variant"))]
    found += [*space.neighbours(default), *schedule.starts(matrix, device, k)]
    return [plan for plan in dict.fromkeys(found) if space.feasible(plan, matrix) is None]


def all_plans(
    backend: str, name: str, matrix: Matrix, k: int, threads: tuple[int, ...], depths: tuple[int, ...] = ()
) -> list[Plan]:
    """Plans over variants, orders, threads and a few options; those that do not fit are left out by the schedule.

    Of the CPU in all combinations, of others :func:`plans_in_space`.
    """
    schedule, device = registry.get(backend, name), device_of(backend)
    if backend != "cpu":
        return plans_in_space(schedule, matrix, k, device)
    orders = {
        "sweep": ("natural", "rcm", "levels"),
        "wavefront": ("natural", "rcm", "levels"),
        "ghost": ("natural", "metis"),
    }
    plans = []
    for variant in TRIED:
        for order in orders[name]:
            for count in threads:
                options: list[dict[str, Any]] = [{}]
                if layout_of(variant).sorts:
                    options.append({"sigma": 64})
                if name == "wavefront" and count > 1:
                    options += [{"split": "interleaved"}, {"split": "interleaved", "lag": 1}]
                for option in options:
                    size = 0 if name == "sweep" else 1024
                    for depth in (1,) if name == "sweep" else depths or (3,):
                        if depth > k:
                            continue
                        plans.append(Plan(backend, name, variant, order, k, depth, size, count, option))
    return [plan for plan in plans if schedule.feasible(plan, matrix, device) is None]


def run(plan: Plan, matrix: Matrix, x: Any, coefficients: Coefficients) -> Any:
    program = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    out = np.full((plan.k + 1, *x.shape), np.nan, dtype=matrix.dtype)
    program.run(x, out, coefficients)
    again = np.full_like(out, np.nan)
    program.run(x, again, coefficients)
    assert out.tobytes() == again.tobytes(), f"{plan.label()}: two runs differ"
    again[1:] = np.nan
    program.run(again[0], again, coefficients)
    assert out.tobytes() == again.tobytes(), f"{plan.label()}: x that is there already makes a difference"
    assert program.nbytes > 0
    return out


def check(plan: Plan, matrix: Matrix, x: Any, coefficients: Coefficients, truth: Any, size: Any) -> bool:
    """Run and compare; False where ghost zones turn out too large, or columns too far apart, when they are made."""
    try:
        out = run(plan, matrix, x, coefficients)
    except InfeasibleError:
        assert plan.schedule == "ghost" or plan.backend == "cuda"
        return False
    k = plan.k
    longest = int(np.diff(matrix.indptr).max(initial=0))
    unit = np.finfo(matrix.dtype).eps * (2 if matrix.dtype.kind == "c" else 1)
    allowed = (np.arange(k + 1)[:, None, None] * (longest + 5)) * unit * size + np.finfo(matrix.dtype).tiny * 100
    error = np.abs(out - truth)
    assert np.all(error <= allowed), f"{plan.label()}: worst {np.nanmax(error / allowed)} of the bound"
    assert np.array_equal(out[0], x)
    ratio = reference.error_ratio(matrix, out, x, coefficients)
    assert ratio <= 1.0, f"{plan.label()}: {ratio}"
    return True


@pytest.mark.parametrize(("backend", "name"), NAMES)
def test_each_schedule_has_plans_on_a_frozen_device(backend: str, name: str) -> None:
    """So that on a real one no test is empty: on one of the small matrices, or on the grid."""
    schedule, device = registry.get(backend, name), FROZEN.get(backend) or device_of(backend)
    cases = ((kind, GRID if kind == "grid" else 402) for kind in ("disconnected", "grid"))
    matrices = (make_matrix(kind, n, "float64", seed=0) for kind, n in cases)
    assert any(plans_in_space(schedule, matrix, 5, device) for matrix in matrices)
    band = make_matrix("band", 5000, "float64", seed=0)
    parameters = schedule.space(band, with_room(schedule, band, 4, device), 4)
    plan = Plan.from_parameters(backend, name, 4, {one.name: one.default for one in parameters})
    assert schedule.feasible(plan, band, device) is None


def _is_for_a_push(dtype: str, name: str) -> bool:
    """Every schedule in complex64, and in float64 but for `ghost`, which compiles the steps of the others once more."""
    return dtype == "complex64" or (dtype == "float64" and name != "ghost")


CASES = [
    pytest.param(
        dtype,
        *one.values,
        marks=[*one.marks, *([] if _is_for_a_push(dtype, one.values[1]) else [pytest.mark.nightly])],
        id=f"{dtype}-{one.id}",
    )
    for dtype in DTYPES
    for one in SCHEDULES
]


@pytest.mark.parametrize(("dtype", "backend", "name"), CASES)
def test_every_variant_order_and_basis(dtype: str, backend: str, name: str) -> None:
    rng = np.random.default_rng(len(name) + 100 * DTYPES.index(dtype))
    seen = set()
    for number, kind in enumerate([*KINDS, "grid"]):
        if kind == "grid" and seen:
            break
        n, k = {"blocks": 402, "grid": GRID}.get(kind, 403), 5
        matrix = make_matrix(kind, n, dtype, seed=number)
        basis = ("monomial", "newton", "chebyshev")[number % 3]
        coefficients = make_coefficients(basis, k, dtype, rng)
        x = random_numbers(rng, (1 + number % 3, n), dtype)
        truth, size = exact_powers(matrix, x, coefficients)
        for plan in all_plans(backend, name, matrix, k, (1, 3)):
            if check(plan, matrix, x, coefficients, truth, size):
                seen.add(plan.variant)
    if backend != "cpu":
        assert seen
        return
    fitting = [one for one in TRIED if name != "ghost" or not layout_of(one).reason_against_zones]
    assert seen == {one for one in fitting if matrix.dtype.kind == "f" or not layout_of(one).is_symmetric}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 150) | st.integers(1000, 1200),
    k=st.integers(1, 9),
    b=st.integers(1, 8),
    basis=st.sampled_from(["monomial", "newton", "chebyshev"]),
    seed=st.integers(0, 2**16),
    threads=st.integers(1, 5),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
@pytest.mark.parametrize(("backend", "name"), SCHEDULES)
def test_random_problems(
    backend: str,
    name: str,
    kind: str,
    n: int,
    k: int,
    b: int,
    basis: str,
    seed: int,
    threads: int,
    dtype: str,
    data: Any,
) -> None:
    matrix = make_matrix(kind, n, dtype, seed)
    plans = all_plans(backend, name, matrix, k, (threads,), (2, 4, k))
    if not plans:
        return
    plan = data.draw(st.sampled_from(plans))
    rng = np.random.default_rng(seed)
    coefficients = make_coefficients(basis, k, dtype, rng)
    x = random_numbers(rng, (b, n), dtype)
    truth, size = exact_powers(matrix, x, coefficients)
    check(plan, matrix, x, coefficients, truth, size)


@pytest.mark.parametrize(("backend", "name"), SCHEDULES)
def test_space_traffic_and_values(backend: str, name: str) -> None:
    """The space makes feasible plans, the model counts at least the work there is, new values need no new plan."""
    schedule = registry.get(backend, name)
    i = np.arange(5000)
    A = sp.csr_array(sp.diags_array([1.0 + i % 7, 2.0 + i % 3, 1.0 + i % 5], offsets=[-2, 0, 1], shape=(5000, 5000)))
    matrix = Matrix.from_any(A)
    k = 4
    device = with_room(schedule, matrix, k, device_of(backend))
    parameters = schedule.space(matrix, device, k)
    values = {p.name: p.default for p in parameters}
    plan = Plan.from_parameters(backend, name, k, values)
    assert schedule.feasible(plan, matrix, device) is None
    assert all(p.description for p in parameters)
    traffic = schedule.traffic(plan, matrix, device)
    assert traffic.flops >= 2 * matrix.nnz * k
    assert traffic.redundancy >= 1
    assert traffic.matrix_bytes >= matrix.nnz * 8
    assert traffic.vector_bytes >= (k + 1) * 5000 * 8
    coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
    program = schedule.prepare(matrix, plan)
    rng = np.random.default_rng(3)
    x, out = rng.standard_normal((1, 5000)), np.full((k + 1, 1, 5000), np.nan)
    program.run(x, out, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
    changed = matrix.with_values(rng.standard_normal(matrix.nnz))
    program.update_values(changed.data)
    out[:] = np.nan
    program.run(x, out, coefficients)
    assert reference.error_ratio(changed, out, x, coefficients) <= 1
    assert reference.error_ratio(matrix, out, x, coefficients) > 1


@pytest.mark.parametrize(("backend", "name"), SCHEDULES)
def test_64_bit_indices(backend: str, name: str, is_nightly: bool) -> None:
    """A matrix too large for 32-bit indices takes another compiled path; a small one with such indices stands in.

    On every push one variant of each kind: rows as they are, with columns of 16 bits, sliced; all in the nightly run.
    """
    rng = np.random.default_rng(1)
    for kind, n in (("blocks", 300), ("grid", GRID)):
        narrow = make_matrix(kind, n, "float64", 0)
        wide = Matrix(narrow.indptr.astype(np.int64), narrow.indices.astype(np.int64), narrow.data, pattern_cache={})
        plans = all_plans(backend, name, wide, 3, (2,))
        if plans:
            break
    coefficients = make_coefficients("chebyshev", 3, "float64", rng)
    x = random_numbers(rng, (1, n), "float64")
    truth, size = exact_powers(wide, x, coefficients)
    if backend == "cpu":
        plans = [p for p in plans if not p.options and p.partitioner != "levels"]
        plans = [p for p in plans if is_nightly or p.variant in ("csr", "csr16", "sell16")]
    assert backend != "cpu" or {plan.variant for plan in plans} >= {"csr", "csr16", "sell16"}
    assert plans
    for plan in plans:
        check(plan, wide, x, coefficients, truth, size)


@pytest.mark.parametrize(("backend", "name"), SCHEDULES)
def test_columns_far_apart(backend: str, name: str) -> None:
    """Groups with a base of their own: 16-bit columns where each group's lie near, though the matrix is wide."""
    n = 90_000
    i = np.arange(n)
    A = sp.csr_array(
        sp.coo_array((np.ones(3 * n), (np.tile(i, 3), np.r_[i, np.minimum(i + 1, n - 1), i // 2])), shape=(n, n))
    )
    A.sum_duplicates()
    rng = np.random.default_rng(5)
    A.data = rng.standard_normal(A.nnz)
    matrix = Matrix.from_any(A)
    coefficients = make_coefficients("newton", 3, "float64", rng)
    x = random_numbers(rng, (1, n), "float64")
    truth = reference.reference(matrix, x, coefficients)
    ran = set()
    depth, size = (1, 0) if name == "sweep" else (3, 65536)
    variants, orders = ("csr", "csr-ahead", "csr16", "sell", "sell16"), ("natural", "rcm")
    plans = [Plan("cpu", name, variant, order, 3, depth, size, 2) for variant in variants for order in orders]
    for plan in plans if backend == "cpu" else all_plans(backend, name, matrix, 3, (1,)):
        if registry.get(backend, name).feasible(plan, matrix, device_of(backend)) is None:
            try:
                out = run(plan, matrix, x, coefficients)
            except InfeasibleError:
                continue
            assert truth.error_ratio(out) <= 1, plan.label()
            ran.add(plan.variant)
    if (backend, name) == ("cpu", "sweep"):
        assert ran == {"csr", "csr-ahead", "csr16", "sell", "sell16"}


@pytest.mark.parametrize(("backend", "name"), SCHEDULES)
def test_malformed_plans_are_infeasible_with_a_reason(backend: str, name: str) -> None:
    schedule, device = registry.get(backend, name), device_of(backend)
    matrix = make_matrix("band", 300, "float64", 0)
    if backend == "cpu":
        good = Plan(backend, name, "csr", k=4, k_per_pass=1 if name == "sweep" else 2, block_bytes=4096)
    else:
        plans = all_plans(backend, name, matrix, 4, (1,))
        if not plans:
            matrix = make_matrix("grid", GRID, "float64", 0)
            plans = all_plans(backend, name, matrix, 4, (1,))
        good = plans[0]
    assert schedule.feasible(good, matrix, device) is None
    bads = [good.replace(variant="nothing"), good.replace(partitioner="nothing")]
    if backend == "cpu":
        bads.append(good.replace(variant="bell"))
        own = good.replace(variant="sell", options={"sigma": 5}) if name != "ghost" else good.replace(block_bytes=1)
        bads.append(own)
    for bad in bads:
        reason = schedule.feasible(bad, matrix, device)
        assert isinstance(reason, str)
        assert reason
        with pytest.raises(InfeasibleError):
            schedule.prepare(matrix, bad)


def test_a_result_off_by_a_little_is_caught() -> None:
    matrix = make_matrix("band", 300, "float64", 0)
    rng = np.random.default_rng(0)
    coefficients = make_coefficients("chebyshev", 4, "float64", rng)
    x = rng.standard_normal((2, 300))
    out = reference.matrix_powers(matrix, x, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
    for place in [(4, 1, 17), (1, 0, 299), (2, 1, 0)]:
        wrong = out.copy()
        wrong[place] *= 1 + 1e-13
        assert reference.error_ratio(matrix, wrong, x, coefficients) > 1
        wrong[place] = np.nan
        assert reference.error_ratio(matrix, wrong, x, coefficients) == np.inf
