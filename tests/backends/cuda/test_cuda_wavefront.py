"""`wavefront` on a GPU: grids and triangulations, every option, right to the bound and the same bits twice.

Values are as many different ones as there are entries, but where a plan stores them in another way than in full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import fewer, make_coefficients, random_numbers
from test_cuda import run_twice

import akx
from akx.backends import reference, registry
from akx.backends.cuda.device.facts import cuda_device, cuda_missing
from akx.backends.schedule import as_coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from benchmarks import gallery

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]
DTYPES = ("float32", "float64", "complex64", "complex128")
#: Types of half the bytes.
NARROW = {"float64": "float32", "complex128": "complex64"}
#: Matrix, lanes (0: by diagonals), order, powers per pass of 7, start vectors, options.
Case = tuple[str, int, str, int, int, dict[str, Option]]
CASES: list[Case] = [
    ("lines", 1, "natural", 7, 1, {"slices": 1, "held_slots": 4, "block": 256, "helpers": 128, "slack": 0}),
    ("lines", 1, "natural", 4, 2, {"slices": 2, "held_slots": 9, "block": 256, "helpers": 128, "slack": 1}),
    ("lines", 2, "natural", 3, 1, {"slices": 3, "held_slots": 0, "block": 384, "helpers": 256, "slack": 2}),
    ("lines", 4, "natural", 7, 3, {"slices": 3, "held_slots": 1, "block": 512, "helpers": 256, "slack": 0}),
    ("lines", 8, "natural", 2, 1, {"slices": 4, "held_slots": 2, "block": 256, "helpers": 128, "slack": 0}),
    ("lines", 1, "natural", 1, 1, {"slices": 2, "held_slots": 3, "block": 512, "helpers": 256, "slack": 0}),
    ("planes", 1, "natural", 5, 1, {"slices": 1, "held_slots": 4, "block": 512, "helpers": 128, "slack": 2}),
    ("planes", 1, "natural", 7, 1, {"slices": 1, "held_slots": 2, "block": 512, "helpers": 256, "slack": 1}),
    ("lines", 0, "natural", 7, 1, {"slices": 1, "held_slots": 6, "block": 256, "helpers": 128, "slack": 2}),
    ("planes", 0, "natural", 4, 2, {"slices": 2, "held_slots": 7, "block": 256, "helpers": 128, "slack": 0}),
    ("triangle", 1, "natural", 4, 1, {"slices": 1, "held_slots": 2, "block": 256, "helpers": 128, "slack": 1}),
    ("mesh", 1, "levels", 3, 1, {"slices": 1, "held_slots": 3, "block": 256, "helpers": 256, "slack": 0}),
    ("mesh", 2, "levels", 4, 2, {"slices": 2, "held_slots": 1, "block": 256, "helpers": 128, "slack": 2}),
]
#: Of these, some with values stored in other ways: odd and even numbers of slots in registers, none, and all.
TABLES: list[Case] = [
    ("lines", 1, "natural", 7, 1, {"slices": 1, "held_slots": 9, "block": 256, "helpers": 128, "slack": 0}),
    ("lines", 2, "natural", 4, 2, {"slices": 2, "held_slots": 2, "block": 256, "helpers": 256, "slack": 1}),
    ("lines", 4, "natural", 7, 1, {"slices": 2, "held_slots": 0, "block": 384, "helpers": 128, "slack": 2}),
    ("planes", 1, "natural", 5, 1, {"slices": 2, "held_slots": 6, "block": 256, "helpers": 256, "slack": 0}),
    ("triangle", 1, "natural", 4, 1, {"slices": 1, "held_slots": 1, "block": 256, "helpers": 128, "slack": 0}),
    ("mesh", 1, "levels", 3, 2, {"slices": 1, "held_slots": 4, "block": 256, "helpers": 128, "slack": 2}),
]
HALVES: list[Case] = [
    ("lines", 1, "natural", 4, 1, {"slices": 2, "held_slots": 9, "block": 256, "helpers": 128, "slack": 0}),
    ("lines", 8, "natural", 7, 2, {"slices": 2, "held_slots": 1, "block": 512, "helpers": 256, "slack": 1}),
    ("planes", 1, "natural", 7, 1, {"slices": 1, "held_slots": 2, "block": 512, "helpers": 128, "slack": 2}),
    ("mesh", 1, "levels", 3, 1, {"slices": 1, "held_slots": 0, "block": 256, "helpers": 256, "slack": 0}),
    ("lines", 0, "natural", 3, 1, {"slices": 2, "held_slots": 7, "block": 256, "helpers": 128, "slack": 1}),
]


def stored(cases: list[Case], way: str) -> list[Case]:
    return [(*case[:5], {**case[5], "stored": way}) for case in cases]


RUNS: list[tuple[Case, str]] = [
    *((case, dtype) for case in CASES + stored(TABLES, "table") for dtype in DTYPES),
    *((case, dtype) for case in stored(HALVES, "half") for dtype in NARROW),
]
#: Plans that add up in the same order, whatever values are stored as: all slots are in registers, or values are small.
ALIKE: list[tuple[Case, str]] = [
    (stored(TABLES[:1], "table")[0], "float64"),
    (stored(TABLES[:1], "table")[0], "complex64"),
    (stored(TABLES[1:2], "table")[0], "float32"),
    (stored(HALVES[:1], "half")[0], "float64"),
]
#: Plans that are given new values.
UPDATED: list[tuple[Case, str]] = [
    (stored(TABLES[:1], "table")[0], "float64"),
    (stored(TABLES[5:], "table")[0], "complex64"),
    (stored(TABLES[1:2], "table")[0], "float32"),
    (stored(TABLES[4:5], "table")[0], "complex128"),
    (stored(HALVES[:1], "half")[0], "float64"),
    (stored(HALVES[3:], "half")[0], "complex128"),
]


def values_of(way: str, count: int, dtype: str, rng: np.random.Generator, kinds: int = 200) -> Any:
    """Values that can be stored that way: any, those of half the bytes, or of so many kinds."""
    if way == "half":
        return (random_numbers(rng, count, NARROW[dtype]) / 3).astype(NARROW[dtype]).astype(dtype)
    if way == "table":
        return rng.choice(random_numbers(rng, kinds, dtype) / 3, count)
    return random_numbers(rng, count, dtype) / 3


def matrix_of(name: str, dtype: str, rng: np.random.Generator, way: str = "full") -> Matrix:
    """A matrix with strips for all multiprocessors, or for some where fewer rows are asked for."""
    many = fewer(20_011) > 20_000
    made = {
        "lines": lambda: gallery.stencil((53, 347) if many else (29, 34), 9),
        "planes": lambda: gallery.stencil((13, 21, 37) if many else (7, 9, 13), 7),
        "triangle": lambda: gallery.epidemic(199 if many else 43),
        "mesh": lambda: gallery.delaunay(19_997 if many else 997),
    }
    A = sp.csr_array(made[name]())
    A.data = values_of(way, A.nnz, dtype, rng)
    return Matrix.from_any(A.astype(dtype))


def name_of(case: Case) -> str:
    return f"wavefront-{case[0]}-{case[1]}-{case[3]}-{case[4]}-" + "-".join(f"{k}={v}" for k, v in case[5].items())


def plan_of(case: Case, k: int = 7) -> Plan:
    _, lanes, order, powers, _, options = case
    return Plan("cuda", "wavefront", f"sell16-{lanes}" if lanes else "dia", order, k, powers, options=options)


def way_of(case: Case) -> str:
    return str(case[5].get("stored", "full"))


@pytest.mark.parametrize(("case", "dtype"), RUNS, ids=lambda one: one if isinstance(one, str) else name_of(one))
def test_fronts_are_right(case: Case, dtype: str) -> None:
    turn = RUNS.index((case, dtype))
    rng = np.random.default_rng(turn)
    matrix, plan = matrix_of(case[0], dtype, rng, way_of(case)), plan_of(case)
    schedule = registry.get("cuda", "wavefront")
    wide = np.dtype(dtype).itemsize == 16
    reason = schedule.feasible(plan, matrix, cuda_device())
    while wide and reason is not None and plan.typed.held_slots > 0:  # registers do not hold as many
        plan = plan.replace(options={**plan.options, "held_slots": plan.typed.held_slots // 2})
        reason = schedule.feasible(plan, matrix, cuda_device())
    assert reason is None
    basis = ("chebyshev", "newton", "monomial")[turn // len(DTYPES) % 3]
    coefficients = make_coefficients(basis, 7, dtype, rng)
    x = random_numbers(rng, (case[4], matrix.n), dtype)
    try:
        out = run_twice(plan, matrix, x, coefficients)
    except InfeasibleError:
        assert wide, plan.label()
        pytest.skip("x of that type does not fit the shared memory")
    assert reference.reference(matrix, x, coefficients).error_ratio(out) <= 1


@pytest.mark.parametrize(("case", "dtype"), ALIKE, ids=lambda one: one if isinstance(one, str) else name_of(one))
def test_stored_values_give_the_same_bits(case: Case, dtype: str) -> None:
    """As values in full do: they are widened without an error."""
    rng = np.random.default_rng(17)
    matrix, plan = matrix_of(case[0], dtype, rng, way_of(case)), plan_of(case)
    x = random_numbers(rng, (case[4], matrix.n), dtype)
    coefficients = make_coefficients("chebyshev", 7, dtype, rng)
    found = [
        run_twice(plan.replace(options={**plan.options, "stored": way}), matrix, x, coefficients)
        for way in (way_of(case), "full")
    ]
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(("case", "dtype"), ALIKE[::3], ids=lambda one: one if isinstance(one, str) else name_of(one))
def test_values_that_a_plan_cannot_store_as_it_says_are_stored_in_full(case: Case, dtype: str) -> None:
    rng = np.random.default_rng(19)
    matrix, plan = matrix_of(case[0], dtype, rng), plan_of(case)
    P, in_full = (
        akx.MatrixPowers(matrix, 7, plan=one)
        for one in (plan, plan.replace(options={**plan.options, "stored": "full"}))
    )
    x = random_numbers(rng, (matrix.n, case[4]), dtype)
    assert P(x).tobytes() == in_full(x).tobytes()
    assert P.plan == plan


@pytest.mark.parametrize("case", CASES[:1] + CASES[-2:], ids=name_of)
def test_new_values_of_a_front(case: Case) -> None:
    rng = np.random.default_rng(11)
    matrix, plan = matrix_of(case[0], "float64", rng), plan_of(case)
    program: Any = registry.get("cuda", "wavefront").prepare(matrix, plan)
    x, out = rng.standard_normal((1, matrix.n)), np.full((8, 1, matrix.n), np.nan)
    for _ in range(3):
        changed = matrix.with_values(rng.standard_normal(matrix.nnz) / 3)
        program.update_values(changed.data)
        a, b, c = rng.standard_normal((3, 7))
        coefficients = as_coefficients(a, b, np.append(0.0, c[1:]), matrix.dtype)
        out[:] = np.nan
        program.run(x, out, coefficients)
        assert reference.error_ratio(changed, out, x, coefficients) <= 1


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize(("case", "dtype"), UPDATED, ids=lambda one: one if isinstance(one, str) else name_of(one))
def test_new_values_of_a_front_that_stores_them(case: Case, dtype: str, source: str) -> None:
    """As the old ones where that can be, then in full; each right at once, by kernels and by graphs."""
    rng, way = np.random.default_rng(13), way_of(case)
    matrix, plan = matrix_of(case[0], dtype, rng, way), plan_of(case)
    program: Any = registry.get("cuda", "wavefront").prepare(matrix, plan)
    assert program._values.dtype.itemsize < matrix.dtype.itemsize
    x, coefficients = random_numbers(rng, (case[4], matrix.n), dtype), make_coefficients("chebyshev", 7, dtype, rng)
    check_new_values(program, matrix, x, coefficients, way, source, rng)


def check_new_values(
    program: Any, matrix: Matrix, x: Any, coefficients: Any, way: str, source: str, rng: np.random.Generator
) -> None:
    """Give a program, whose table has 256 places if it has any, values that can be stored `way`, and others."""
    from akx.backends.cuda.device.launch import default_stream
    from akx.backends.cuda.device.memory import empty, to_device

    held, out = to_device(x), empty((program.k + 1, *x.shape), matrix.dtype)

    def is_right(changed: Matrix) -> None:
        for _ in range(3):  # at first, recorded, and by a graph
            out.fill_bytes(255)
            program.run(held, out, coefficients)
            default_stream().synchronize()
            assert reference.error_ratio(changed, out.get(), x, coefficients) <= 1
        on_host = np.full(out.shape, np.nan, matrix.dtype)
        program.run(x, on_host, coefficients)
        assert on_host.tobytes() == out.get().tobytes()

    is_right(matrix)
    before, stored_as = program.nbytes, program._values.dtype
    halves = matrix.data * matrix.dtype.type(0.5)
    halves[::7] *= -0.0
    new: list[tuple[Any, str]] = [(halves, way)]
    for kinds, new_way in ((190, way), (3, way), (255, way), (256, "full"), (200, way), (1, "full")):
        new.append((values_of(new_way, matrix.nnz, matrix.dtype.name, rng, kinds), new_way))
    for data, new_way in new:
        program.update_values(to_device(data) if source == "device" else data)
        is_right(matrix.with_values(data))
        if new_way == "full":
            stored_as = matrix.dtype
        assert program._values.dtype == stored_as
        assert program.is_as_planned == (stored_as != matrix.dtype)
    assert program.nbytes > before


def test_many_calls_of_a_front_in_a_row() -> None:
    """Tags and beats go on from call to call: what the last one left behind is never taken for new."""
    rng = np.random.default_rng(5)
    matrix, plan = matrix_of("lines", "float64", rng), plan_of(CASES[0])
    program: Any = registry.get("cuda", "wavefront").prepare(matrix, plan)
    ones, zeros = np.ones(7), np.zeros(7)
    coefficients = as_coefficients(ones, zeros, zeros, matrix.dtype)
    out = np.empty((8, 1, matrix.n))
    for _ in range(40):
        x = rng.standard_normal((1, matrix.n))
        program.run(x, out, coefficients)
        assert reference.error_ratio(matrix, out, x, coefficients) <= 1
