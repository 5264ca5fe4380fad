"""Results of `resident` that come in the order of rows through a stage: what needs no device.

The kernel runs in test_cuda_block_local.py, and on a GPU in test_cuda_resident_stored.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_cuda_block_local import h100, large, make, small_gpu

from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.value_compression.encodings import FULL, TABLE
from akx.backends.cuda.variants.block_local.layout import STATIC, chunk_bytes, chunk_nodes, flag_words, staging
from akx.backends.cuda.variants.block_local.program import macros
from akx.backends.cuda.variants.block_local.shapes import (
    DIRECT,
    FLAGS,
    STAGED,
    VALUES,
    is_staged,
    may_wait_for_values,
    shape_of,
    waits_for_values,
)
from akx.core.errors import InfeasibleError, PlanError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.block_local import NOWHERE
from akx.tuner.space import build_space
from benchmarks import gallery

SCHEDULE = resident.SCHEDULE


def plan_of(variant: str = "1x1-1", order: str = "metis", results: str = STAGED, k: int = 4, **more: Option) -> Plan:
    return Plan("cuda", "resident", variant, order, k, k, options={"block": 256, "results": results, **more})


@pytest.fixture(scope="module")
def scattered() -> Matrix:
    """Rows in random order, that read farther than 16 bits number."""
    return Matrix.from_any(gallery.delaunay(150_000, constant=True))


@pytest.mark.parametrize(
    ("name", "variant", "more"),
    [
        ("delaunay", "1x1-1", {}),
        ("delaunay", "1x1-2", {"vectors": 4, "held_slices": 1, "held_slots": 2}),
        ("brick", "3x3-2", {"vectors": 2}),
        ("shell", "2x6-1", {"blocks_per_sm": 2}),
        ("mixed", "3x3-2", {"vectors": 2}),
        ("mixed with holes", "2x6-1", {"blocks_per_sm": 2}),
        ("shuffled", "3x3-2", {"vectors": 2}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_where_results_are_in_the_stage(name: str, variant: str, more: dict[str, Option], dtype: str) -> None:
    """Each node has one place, in its chunk; in a chunk those of a part lie side by side, in its own order.

    Rows that are listed are not in chunks: they are part by part.
    """
    matrix, device, plan = make(name, dtype), small_gpu(sms=7, shared=200_000), plan_of(variant, **more)
    assert SCHEDULE.feasible(plan, matrix, device) is None
    assert SCHEDULE.waste(plan.replace(options={"block": 256, "results": STAGED}), matrix, device) is None
    laid_out = resident_layout.lay_out_resident(matrix, plan, device)[0]
    parts, bc = laid_out.parts, shape_of(plan).bc
    listed = parts.blocked.listed is not None
    assert listed == name.startswith(("mixed", "shuffled"))
    # Of nodes, or where their rows are listed of rows.
    nodes, count = (matrix.n if listed else matrix.n // bc), parts.parts.size
    one, words = (bc if listed else 1), parts.blocked.words(parts.rows)
    chunk = laid_out.chunk // (1 if listed else bc)
    assert laid_out.chunk == chunk * (1 if listed else bc)
    assert nodes <= chunk * count < nodes + 4 * count
    assert laid_out.chunk * matrix.dtype.itemsize % 16 == 0
    place, in_chunk = staging(parts, laid_out.chunk)
    assert np.array_equal(place == NOWHERE, words == NOWHERE)
    owner, where = np.full(nodes, -1), np.full(nodes, -1)
    for g, part in enumerate(parts.parts):
        mine = slice(int(part["node"]) * one, int(part["node"] + part["own"]) * one)
        own = words[mine][words[mine] != NOWHERE]
        owner[own], where[own] = g, place[mine][words[mine] != NOWHERE]
    assert np.array_equal(np.sort(where), np.arange(nodes))
    if listed:
        assert np.array_equal(where, in_chunk)
    else:
        assert np.array_equal(where // chunk, np.arange(nodes) // chunk)
        assert np.array_equal(where % chunk, in_chunk)
    real = words != NOWHERE
    assert np.array_equal(place[real], where[words[real]])  # what is fetched is looked for where its owner puts it
    of_place = np.empty(nodes, dtype=np.int64)
    of_place[where] = np.arange(nodes)
    for begin in range(0, nodes, nodes if listed else chunk):
        assert (np.diff(owner[of_place[begin : begin + (nodes if listed else chunk)]]) >= 0).all()
    for part in parts.parts:
        mine = slice(int(part["node"]) * one, int(part["node"] + part["own"]) * one)
        own = place[mine][words[mine] != NOWHERE].astype(np.int64)
        if listed:
            assert (np.diff(own) == 1).all()
            continue
        for number in np.unique(own // chunk):
            assert (np.diff(own[own // chunk == number]) == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(("variant", "vectors"), [("1x1-1", 1), ("1x1-2", 4)])
def test_a_chunk_has_room_in_shared_memory(dtype: str, variant: str, vectors: int) -> None:
    matrix, device = make("delaunay", dtype), small_gpu(sms=3, shared=200_000)
    sizes = {}
    for results in (DIRECT, STAGED):
        plan = plan_of(variant, results=results, vectors=vectors)
        laid_out = resident_layout.lay_out_resident(matrix, plan, device)[0]
        assert laid_out.shared + STATIC <= device.shared_per_block
        assert (laid_out.chunk > 0) == (results == STAGED)
        assert laid_out.parts.far_slots == 0
        sizes[results] = laid_out.shared
    size, chunk = np.dtype(dtype).itemsize, chunk_nodes(matrix.n, 3)
    places = -(-2 * chunk // 16) * 16
    assert sizes[STAGED] - sizes[DIRECT] == chunk_bytes(chunk, 1, vectors, size) == vectors * chunk * size + places


def test_results_that_have_no_room(scattered: Matrix) -> None:
    matrix = make("delaunay", "float64")
    tight = small_gpu(sms=2, shared=int(11.0 * matrix.n))  # x twice takes 8 bytes a row and some, a chunk 5 more
    resident_layout.lay_out_resident(matrix, plan_of(results=DIRECT), tight)
    with pytest.raises(InfeasibleError, match="x does not fit the shared memory"):
        resident_layout.lay_out_resident(matrix, plan_of(), tight)
    each = scattered.n * 8 / 100
    gpu = h100(sms=100, shared_per_block=int(2.5 * each), shared_per_sm=int(2.5 * each) + 1024)
    assert SCHEDULE.feasible(plan_of(results=DIRECT), scattered, gpu) is None
    why = SCHEDULE.feasible(plan_of(), scattered, gpu)
    assert why == f"x and results take {3 * each:.0f} bytes of each multiprocessor, of {int(2.5 * each)} shared ones"
    assert not is_staged(SCHEDULE.untuned_for(scattered, gpu, 4))


@pytest.mark.parametrize("more", [{"x": "global"}, {"depth": 2}])
def test_only_with_x_in_shared_memory_and_an_exchange_in_every_step(more: dict[str, Option]) -> None:
    matrix = make("delaunay", "float64")
    assert SCHEDULE.feasible(plan_of(results=DIRECT, **more), matrix, h100()) is None
    why = SCHEDULE.feasible(plan_of(**more), matrix, h100())
    assert why == "results are staged where x is in shared memory, and exchanged in every step"


def test_what_is_not_one_of_the_choices() -> None:
    with pytest.raises(PlanError, match="'results' is out of range, expected one of direct, staged"):
        plan_of(results="somewhere")


def test_rows_in_the_order_given_need_no_stage() -> None:
    matrix, gpu = make("mc2depi", "float64"), small_gpu(shared=200_000)
    assert SCHEDULE.waste(plan_of(order="natural"), matrix, gpu) == (
        "parts have rows that follow one another, and write them so"
    )
    assert SCHEDULE.waste(plan_of(order="natural", results=DIRECT), matrix, gpu) is None
    assert SCHEDULE.waste(plan_of(), matrix, gpu) is None
    diagonals = plan_of("dia", "natural", held_slices=1, held_slots=4, x="shared")
    assert SCHEDULE.waste(diagonals, matrix, gpu) == "diagonals write results in the order of rows"


def test_the_space_has_both(scattered: Matrix) -> None:
    space = build_space(scattered, 4, h100(), backend="cuda", threads=1, start_vectors=1)
    assert set(space.choices("resident", "results")) == {DIRECT, STAGED}


def test_searches_of_matrices_in_random_order_begin_with_a_stage_and_without(scattered: Matrix) -> None:
    starts = SCHEDULE.starts(scattered, h100(), 4)
    assert SCHEDULE.untuned_for(scattered, h100(), 4) == starts[0]
    assert is_staged(starts[0])
    assert starts[0].replace(options={**starts[0].options, "results": DIRECT}) != SCHEDULE._plain(scattered, h100(), 4)
    assert len(set(starts)) == len(starts)
    for plan in starts:
        assert SCHEDULE.feasible(plan, scattered, h100()) is None
        if is_staged(plan):
            plain = {"results": DIRECT, "exchange": VALUES}  # whatever parts wait for
            assert {**plan.options, **plain} in [{**plain, **one.options, "exchange": VALUES} for one in starts]
    ways = {(plan.typed.stored, is_staged(plan)) for plan in starts if plan.partitioner == "metis"}
    assert ways >= {(FULL, True), (FULL, False), (TABLE, True), (TABLE, False)}
    for near in (make("mc2depi", "float64"), make("brick", "float64")):
        assert not any(map(is_staged, SCHEDULE.starts(near, h100(), 4)))
        assert not is_staged(SCHEDULE.untuned_for(near, h100(), 4))


def test_a_stage_is_begun_with_where_there_very_likely_is_room(scattered: Matrix) -> None:
    """Parts that METIS makes are a little uneven, and have a halo: in a tight place `feasible` does not know."""
    plan, begins = SCHEDULE._plain(scattered, h100(), 4), []
    laid_out = resident_layout.lay_out_resident(
        scattered, plan.replace(options={**plan.options, "results": STAGED}), h100()
    )
    nodes = np.diff(laid_out[0].parts.parts["node"], append=laid_out[0].parts.rows.size)
    needed = 2 * int(nodes.max()) * 8 + chunk_bytes(chunk_nodes(scattered.n, 132), 1, 1, 8)
    for fraction in (0.9, 1.4):
        room = int(fraction * needed)
        gpu = h100(shared_per_block=room, shared_per_sm=room + 1024)
        begins.append(SCHEDULE._staged(plan, scattered, gpu) is not None)
        assert SCHEDULE.feasible(plan_of(), scattered, gpu) is None
    assert begins == [False, True]


def test_where_parts_tell_one_another() -> None:
    assert [flag_words(parts, staged=False) for parts in (0, 1, 132)] == [1, 1, 132]
    assert [flag_words(parts, staged=True) for parts in (1, 32, 33, 132)] == [33, 33, 65, 161]


def test_what_a_stage_costs_and_saves(scattered: Matrix) -> None:
    """More bytes that L2 moves, in the model of bytes; fewer in that of time, where rows lie anywhere."""
    direct, staged = (plan_of(results=results, k=8, block=1024) for results in (DIRECT, STAGED))
    vector = scattered.n * 8.0
    figures = [SCHEDULE.traffic(plan, scattered, h100()) for plan in (direct, staged)]
    rest = [max(0.0, resident_layout.bytes_read_again(plan, scattered, h100())) for plan in (direct, staged)]
    assert (
        resident_layout.bytes_read_again(staged, scattered, h100())
        - resident_layout.bytes_read_again(direct, scattered, h100())
        == vector
    )
    assert figures[1].cache_bytes - figures[0].cache_bytes == 8 * (2 * vector + rest[1] - rest[0])
    work: list[Any] = [SCHEDULE.work(plan, scattered, h100(), 1) for plan in (direct, staged)]
    assert work[1].cache_bytes < 0.6 * work[0].cache_bytes
    assert work[1].chain > work[0].chain
    assert work[1].memory_bytes >= work[0].memory_bytes
    near = Matrix.from_any(gallery.stencil((400, 400), 5))
    work = [SCHEDULE.work(plan, near, h100(), 1) for plan in (direct, staged)]
    assert work[1].cache_bytes > work[0].cache_bytes


def test_another_kernel() -> None:
    shape = shape_of(plan_of())
    given = partial(macros, shape, np.dtype("float64"), 1, mode=0, stream=True)
    assert given()["AKX_STAGED"] == 0
    assert given(staged=True) == {**given(), "AKX_STAGED": 1}


def test_a_table_beside_a_chunk() -> None:
    """Where there is no room for both, values are said to be stored in full."""
    many = large("float64")
    few = many.with_values(np.random.default_rng(0).choice(np.random.default_rng(1).standard_normal(4000), many.nnz))
    plans = [plan_of(results=results, stored=TABLE) for results in (DIRECT, STAGED)]
    least = [int(resident_layout.least_shared(plan, few, h100(sms=20))) for plan in plans]
    assert least[1] - least[0] == chunk_bytes(chunk_nodes(few.n, 20), 1, 1, 8)
    gpu = h100(sms=20, shared_per_block=least[0], shared_per_sm=least[0] + 1024)
    reasons = [SCHEDULE.waste(plan, few, gpu) for plan in plans]
    assert reasons == [None, "stored=table is the same as full here: its table does not fit beside x"]


def test_a_search_begins_with_few_bytes_and_x_in_global_memory_too(scattered: Matrix) -> None:
    """The 27-point grid has its best plan there. What parts wait for with x in shared memory is no choice then."""
    matrix, gpu = Matrix.from_any(gallery.CONSTANT["27-point-constant"]()), h100()
    starts = SCHEDULE.starts(matrix, gpu, 8)
    assert FLAGS in {plan.typed.exchange for plan in starts}
    away = [plan for plan in starts if plan.typed.x == "global" and plan.typed.stored == TABLE]
    assert {plan.typed.blocks_per_sm for plan in away} == {1, 2}
    assert SCHEDULE.untuned_for(scattered, gpu, 4).typed.exchange == VALUES  # staged: all wait for all


def test_what_a_plan_does_not_say_is_values_in_a_search_too() -> None:
    """Also where the default plan has flags: with x in global memory, and through a stage, they would be a waste."""
    n, rng, gpu = 250_000, np.random.default_rng(4), h100()
    rows = np.repeat(np.arange(n), 7)
    columns = np.clip(rows + rng.integers(-2000, 2001, rows.size), 0, n - 1)
    A = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, n)) + sp.eye_array(n, format="csr")
    matrix = Matrix.from_any(A)
    assert SCHEDULE.untuned_for(matrix, gpu, 8).typed.exchange == FLAGS
    space = build_space(matrix, 8, gpu, backend="cuda", threads=1, start_vectors=1)
    away = [plan for plan in SCHEDULE.starts(matrix, gpu, 8) if plan.typed.x == "global"]
    assert away
    for plan in (*away, *SCHEDULE.heuristic_plans(matrix, gpu, 8)):
        assert space.inside(plan).typed.exchange == plan.typed.exchange
        assert SCHEDULE.waste(space.inside(plan), matrix, gpu) is None


def test_where_nothing_is_exchanged_parts_wait_for_nothing(scattered: Matrix) -> None:
    """One step, or ghosts for all steps: there flags are a waste, and nothing waits for values either."""
    flags = plan_of(results=DIRECT, exchange=FLAGS)
    alone = flags.replace(options={**flags.options, "depth": flags.k})
    assert [may_wait_for_values(plan) for plan in (flags, alone, alone.replace(k=flags.k + 1))] == [True, False, True]
    assert not waits_for_values(flags)
    assert waits_for_values(flags.replace(options={**flags.options, "exchange": VALUES}))
    assert not waits_for_values(alone.replace(options={**alone.options, "exchange": VALUES}))
    assert SCHEDULE.waste(flags, scattered, h100(sms=20)) is None
    assert "for nothing" in (SCHEDULE.waste(alone, scattered, h100(sms=20)) or "")
