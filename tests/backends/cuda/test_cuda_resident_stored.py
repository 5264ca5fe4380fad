"""`resident` on a GPU with values stored in half their bytes or in a table: right to the bound, the same bits twice.

Parts are of the multiprocessors that there are, or fewer and larger; blocks have all their shared memory, or so little
that slots are in registers, in shared memory, and in neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import fewer, make_coefficients, random_numbers
from test_cuda import run_twice
from test_cuda_block_local import NODES
from test_cuda_wavefront import NARROW, check_new_values, values_of

import akx
from akx.backends import reference, registry
from akx.backends.cuda.device.facts import CudaDevice, cuda_device, cuda_missing
from akx.backends.cuda.device.launch import default_stream
from akx.backends.cuda.device.memory import empty, to_device
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.value_compression.encodings import in_full, way_of
from akx.backends.cuda.variants.block_local.layout import slot_bytes
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from benchmarks import elements, gallery
from benchmarks.products import wind

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]
DTYPES = ("float32", "float64", "complex64", "complex128")
K = 7
#: Matrix, variant, order, start vectors, parts (0: as many as there can be), whether little is near, options.
Case = tuple[str, str, str, int, int, bool, dict[str, Option]]
TABLES: list[Case] = [
    ("lines", "1x1-1", "natural", 1, 0, False, {"block": 256, "held_slices": 1, "held_slots": 9}),
    ("lines", "1x1-2", "metis", 2, 11, True, {"block": 256, "held_slices": 2, "held_slots": 3, "vectors": 2}),
    ("lines", "1x1-4", "natural", 1, 0, True, {"block": 384, "x": "global"}),
    ("planes", "1x1-1", "natural", 2, 11, True, {"block": 512, "held_slices": 1, "held_slots": 4, "x": "global"}),
    ("mesh", "1x1-1", "metis", 1, 0, False, {"block": 256, "held_slices": 1, "held_slots": 2, "depth": 3}),
    ("mesh", "1x1-2", "metis", 2, 0, True, {"block": 256, "vectors": 1, "blocks_per_sm": 2}),
]
HALVES: list[Case] = [
    ("lines", "1x1-1", "natural", 1, 19, False, {"block": 256, "held_slices": 2, "held_slots": 5}),
    ("mesh", "1x1-4", "metis", 2, 17, True, {"block": 256, "held_slices": 1, "held_slots": 1, "vectors": 2}),
    ("planes", "1x1-2", "natural", 1, 0, True, {"block": 256, "x": "global"}),
    ("blocks", "3x3-2", "natural", 1, 0, True, {"block": 256, "held_slices": 1, "held_slots": 1}),
    ("blocks", "3x3-1", "metis", 2, 0, False, {"block": 256, "vectors": 2}),
    ("blocks", "1x3-4", "natural", 2, 29, True, {"block": 256, "x": "global", "vectors": 2}),
    ("nodes", "3x3-2", "natural", 2, 31, True, {"block": 256, "x": "global", "held_slices": 1, "held_slots": 1}),
    ("nodes", "2x6-1", "metis", 2, 0, True, {"block": 256, "vectors": 2}),
]


def stored(cases: list[Case], way: str) -> list[Case]:
    return [(*case[:6], {**case[6], "stored": way}) for case in cases]


TABLES, HALVES = stored(TABLES, "table"), stored(HALVES, "half")
RUNS: list[tuple[Case, str]] = [
    *((case, dtype) for case in TABLES for dtype in DTYPES),
    *((case, dtype) for case in HALVES for dtype in NARROW),
]
#: Plans of which every slot is on the chip, whatever values are stored as.
ALIKE: list[tuple[Case, str]] = [
    (TABLES[0], "float64"),
    (TABLES[0], "complex64"),
    (TABLES[4], "float32"),
    (HALVES[4], "float64"),
    (HALVES[0], "complex128"),
]
#: Plans that are given new values.
UPDATED: list[tuple[Case, str]] = [
    (TABLES[0], "float64"),
    (TABLES[1], "complex64"),
    (TABLES[2], "float32"),
    (TABLES[4], "complex128"),
    (HALVES[0], "float64"),
    (HALVES[3], "complex128"),
]
#: Plans whose results come in the order of rows through a stage.
STAGES: list[Case] = [
    (
        "mesh",
        "1x1-1",
        "metis",
        3,
        0,
        False,
        {"block": 256, "held_slices": 1, "held_slots": 2, "vectors": 2, "results": "staged"},
    ),
    ("mesh", "1x1-2", "metis", 2, 17, True, {"block": 1024, "stored": "table", "results": "staged"}),
    ("mesh", "1x1-1", "metis", 1, 0, True, {"block": 256, "blocks_per_sm": 2, "stored": "half", "results": "staged"}),
    ("blocks", "3x3-2", "metis", 3, 67, True, {"block": 384, "vectors": 2, "results": "staged"}),
    ("nodes", "3x3-2", "metis", 3, 67, True, {"block": 384, "vectors": 2, "results": "staged"}),
    ("nodes", "2x6-1", "metis", 1, 0, False, {"block": 256, "results": "staged"}),
    ("lines", "1x1-4", "metis", 1, 23, True, {"block": 256, "results": "staged"}),
]


def matrix_of(name: str, dtype: str, rng: np.random.Generator, way: str) -> Matrix:
    """A matrix with rows for all multiprocessors, or for some where fewer rows are asked for."""
    many = fewer(20_011) > 20_000
    made: dict[str, Callable[[], Any]] = {
        "lines": lambda: gallery.stencil((53, 347) if many else (29, 34), 9),
        "planes": lambda: gallery.stencil((13, 21, 37) if many else (7, 9, 13), 7),
        "mesh": lambda: gallery.delaunay(19_997 if many else 997),
        "blocks": lambda: elements.brick((7, 11, 37) if many else (3, 4, 23)),
        "nodes": lambda: wind(counts={size: many_of * (29 if many else 1) for size, many_of in NODES.items()}),
    }
    A = sp.csr_array(made[name]())
    A.data = values_of(way, A.nnz, dtype, rng)
    return Matrix.from_any(A.astype(dtype))


def name_of(one: Any) -> str:
    if isinstance(one, str):
        return one
    name, variant, order, vectors, parts, tight, options = one
    words = [f"{key}={value}" for key, value in options.items()]
    return "-".join([name, variant, order, str(vectors), str(parts), "tight" if tight else "roomy", *words])


def plan_of(case: Case) -> Plan:
    return Plan("cuda", "resident", case[1], case[2], K, K, options=case[6])


def facts_for(case: Case, matrix: Matrix) -> CudaDevice:
    """The device, or what a case leaves of it: so much shared memory that a third of the slots are far."""
    plan, device = plan_of(case), cuda_device()
    device = replace(device, sms=max(1, min(case[4] or device.sms, device.sms, matrix.n // 100)))
    if not case[5]:
        return device
    none, roomy = (replace(device, shared_per_block=size, shared_per_sm=8 * size) for size in (100, 2**26))
    with pytest.raises(InfeasibleError, match="x does not fit") as refusal:
        resident_layout.lay_out_resident(matrix, plan, none)
    parts = resident_layout.lay_out_resident(matrix, plan, roomy)[0].parts
    slots = 2 * int(parts.parts["nears"].max()) // 3
    room = int(str(refusal.value.found).split()[0]) + slots * slot_bytes(parts.shape, matrix.dtype, way_of(plan))
    assert room <= device.shared_per_block
    per_sm = plan.typed.blocks_per_sm
    return replace(device, shared_per_block=room, shared_per_sm=min(device.shared_per_sm, per_sm * (room + 1024)))


@pytest.fixture
def laid_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[Case, Matrix], None]:
    """What lets plans be laid out for :func:`facts_for`, and says whether slots are where a case has them."""

    def lay_out(case: Case, matrix: Matrix) -> None:
        facts = facts_for(case, matrix)
        monkeypatch.setattr(resident, "cuda_device", lambda: facts)
        assert resident.SCHEDULE.feasible(plan_of(case), matrix, facts) is None
        parts = resident_layout.lay_out_resident(matrix, plan_of(case), facts)[0].parts
        assert (parts.far_slots > 0) == case[5]
        assert parts.parts["nears"].any() or not case[5]

    return lay_out


@pytest.mark.parametrize(("case", "dtype"), RUNS, ids=name_of)
def test_stored_parts_are_right(case: Case, dtype: str, laid_out: Callable[[Case, Matrix], None]) -> None:
    turn = RUNS.index((case, dtype))
    rng = np.random.default_rng(turn)
    matrix = matrix_of(case[0], dtype, rng, way_of(plan_of(case)))
    laid_out(case, matrix)
    basis = ("chebyshev", "newton", "monomial")[turn // 4 % 3]
    coefficients = make_coefficients(basis, K, dtype, rng)
    x = random_numbers(rng, (case[3], matrix.n), dtype)
    out = run_twice(plan_of(case), matrix, x, coefficients)
    assert reference.reference(matrix, x, coefficients).error_ratio(out) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", STAGES, ids=name_of)
def test_results_through_a_stage_are_the_same_bits(
    case: Case, dtype: str, laid_out: Callable[[Case, Matrix], None]
) -> None:
    """For few powers and many, an even number of them and an odd one."""
    if way_of(plan_of(case)) == "half" and dtype not in NARROW:
        pytest.skip("float32 has no numbers of half its bytes here")
    rng = np.random.default_rng(STAGES.index(case))
    matrix = matrix_of(case[0], dtype, rng, way_of(plan_of(case)))
    laid_out(case, matrix)
    x = random_numbers(rng, (case[3], matrix.n), dtype)
    for k in (1, 2, 3, 4, 5, K, K + 1) if fewer(20_011) > 20_000 else (2, 5):
        coefficients = make_coefficients(("chebyshev", "newton", "monomial")[k % 3], k, dtype, rng)
        staged = plan_of(case).replace(k=k, k_per_pass=k)
        direct = staged.replace(options={**staged.options, "results": "direct"})
        found = [run_twice(plan, matrix, x, coefficients) for plan in (direct, staged)]
        assert found[0].tobytes() == found[1].tobytes()
        assert reference.reference(matrix, x, coefficients).error_ratio(found[1]) <= 1


def test_a_program_with_a_stage_is_called_with_any_number_of_start_vectors(
    laid_out: Callable[[Case, Matrix], None],
) -> None:
    """The stage has room for those at a time, however many there are; new values change nothing of it."""
    rng, plan = np.random.default_rng(5), plan_of(STAGES[0])
    matrix = matrix_of("mesh", "float64", rng, "full")
    laid_out(STAGES[0], matrix)
    program: Any = registry.get("cuda", "resident").prepare(matrix, plan)
    coefficients, nbytes = make_coefficients("chebyshev", K, "float64", rng), program.nbytes
    for turn, vectors in enumerate((1, 3, 1, 8, 2, 3)):
        x = random_numbers(rng, (vectors, matrix.n), "float64")
        if turn == 3:
            matrix = matrix.with_values(random_numbers(rng, matrix.nnz, "float64"))
            program.update_values(matrix.data)
        held, out = to_device(x), empty((K + 1, *x.shape), matrix.dtype)
        for _ in range(3):
            out.fill_bytes(255)
            program.run(held, out, coefficients)
            default_stream().synchronize()
            assert reference.reference(matrix, x, coefficients).error_ratio(out.get()) <= 1
    assert program.nbytes - program.staged_nbytes <= nbytes


@pytest.mark.parametrize(("case", "dtype"), ALIKE, ids=name_of)
def test_stored_values_give_the_same_bits(case: Case, dtype: str, laid_out: Callable[[Case, Matrix], None]) -> None:
    """As values in full do: they are widened without an error."""
    rng, plan = np.random.default_rng(17), plan_of(case)
    matrix = matrix_of(case[0], dtype, rng, way_of(plan))
    laid_out(case, matrix)
    laid_out((*case[:6], dict(in_full(plan).options)), matrix)
    x = random_numbers(rng, (case[3], matrix.n), dtype)
    coefficients = make_coefficients("chebyshev", K, dtype, rng)
    found = [run_twice(one, matrix, x, coefficients) for one in (plan, in_full(plan))]
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(("case", "dtype"), [ALIKE[0], ALIKE[4]], ids=name_of)
def test_values_that_a_plan_cannot_store_as_it_says_are_stored_in_full(case: Case, dtype: str) -> None:
    rng, plan = np.random.default_rng(19), plan_of(case)
    matrix = matrix_of(case[0], dtype, rng, "full")
    P, full = (akx.MatrixPowers(matrix, K, plan=one) for one in (plan, in_full(plan)))
    x = random_numbers(rng, (matrix.n, case[3]), dtype)
    assert P(x).tobytes() == full(x).tobytes()
    assert P.plan == plan


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize(("case", "dtype"), UPDATED, ids=name_of)
def test_new_values_of_parts_that_store_them(
    case: Case, dtype: str, source: str, laid_out: Callable[[Case, Matrix], None]
) -> None:
    """As the old ones where that can be, then in full; each right at once, by kernels and by graphs."""
    rng, plan = np.random.default_rng(13), plan_of(case)
    way = way_of(plan)
    matrix = matrix_of(case[0], dtype, rng, way)
    laid_out(case, matrix)
    program: Any = registry.get("cuda", "resident").prepare(matrix, plan)
    assert program._values.dtype == ("uint32" if way == "table" else NARROW[dtype])
    x, coefficients = random_numbers(rng, (case[3], matrix.n), dtype), make_coefficients("chebyshev", K, dtype, rng)
    check_new_values(program, matrix, x, coefficients, way, source, rng)
