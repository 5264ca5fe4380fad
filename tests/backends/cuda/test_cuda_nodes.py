"""`resident` and `ghost` with nodes of mixed sizes or with rows anywhere: how they are cut, what they read; on a GPU.

Layouts are in test_cuda_block_local.py, and what a program gives its kernel in test_cuda_block_local_values.py.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import make_coefficients, random_numbers
from test_cuda import MOST_PLANS, all_plans, right_ones, run_twice
from test_cuda_block_local import NODES, block_local_device, check, h100, make, resident_program, small_gpu

from akx.backends import reference
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.schedules.ghost import schedule as ghost
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.schedules.resident.search import heuristic_plans
from akx.backends.cuda.variants.block_local import shapes as block_shapes
from akx.backends.cuda.variants.block_local.shapes import (
    best_shape,
    blocked_of,
    column_shapes,
    fill_of,
    filled_rows,
    fitting_variants,
    is_listed,
    nodes_of,
    padding,
    values_in,
)
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import pattern_of
from akx.formats.block_local import NOWHERE, Blocked, Shape, blocks_of, cut_blocks, full_blocks
from akx.formats.natural_blocks import natural_nodes
from akx.formats.supervariables import of_nodes, supervariables
from benchmarks import gallery
from benchmarks.orders import by_fields, permuted, shuffled
from benchmarks.products import wind

on_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
DTYPES = ("float32", "float64", "complex64", "complex128")


def blocks(matrix: Matrix, blocked: Blocked) -> Any:
    """The blocks that have an entry, by a product of SciPy's, as (node, node) pairs."""
    spread = sp.csr_array((np.ones(matrix.n), (blocked.of, np.arange(matrix.n))))
    found = sp.coo_array(spread @ abs(matrix.to_scipy()) @ spread.T)
    return set(zip(found.row.tolist(), found.col.tolist(), strict=True))


@pytest.mark.parametrize("name", ["mixed", "mixed with holes", "shuffled", "fields"])
@pytest.mark.parametrize("bc", [2, 3, 6])
def test_nodes_are_cut_evenly_and_their_blocks_counted(name: str, bc: int) -> None:
    matrix = make(name, "float64")
    pattern = pattern_of(matrix)
    anywhere = not name.startswith("mixed")
    sets = supervariables(pattern) if anywhere else of_nodes(natural_nodes(pattern))
    blocked = cut_blocks(pattern, sets, bc)
    there = blocked.rows != NOWHERE
    sizes, pieces = there.sum(axis=1), -(-sets.sizes // bc)
    assert sizes.size == pieces.sum()
    assert sizes.max() <= bc
    most, least = (np.repeat((sets.sizes + up) // pieces, pieces) for up in (pieces - 1, 0))
    assert ((sizes == most) | (sizes == least)).all()
    assert np.array_equal(blocked.rows[there], sets.rows)
    assert (np.argsort(~there, axis=1, kind="stable") == np.arange(bc)).all()  # rows first, then what fills a node up
    assert (blocked.listed is None) == (blocked.contiguous and there.all())
    assert blocked.contiguous == (not anywhere)
    node, at = np.nonzero(there)
    assert np.array_equal(blocked.of[blocked.rows[there]], node)
    assert np.array_equal(blocked.at[blocked.rows[there]], at)
    node = blocked.pattern
    rows = np.repeat(np.arange(node.rows), np.diff(node.indptr.astype(np.int64)))
    assert set(zip(rows.tolist(), node.indices.tolist(), strict=True)) == blocks(matrix, blocked)
    assert (np.diff(node.indices.astype(np.int64))[np.diff(rows) == 0] > 0).all()  # in ascending order
    assert node.nnz == blocks_of(sets, bc)


def test_rows_of_a_node_that_differ() -> None:
    """The first has columns on both sides of what only the second has: blocks are in order all the same."""
    A = np.kron(np.eye(10), np.ones((2, 2)))
    A[:2] = 1
    A[0, 8:10] = A[1, 18] = 0
    matrix = Matrix.from_any(sp.csr_array(A))
    pattern = pattern_of(matrix)
    natural = natural_nodes(pattern)
    assert natural.cuts.tolist() == list(range(0, 21, 2))
    found = cut_blocks(pattern, of_nodes(natural), 2)
    assert found.listed is None
    assert found.pattern.indices.tolist() == [*range(10), *range(1, 10)]
    assert 4 * found.pattern.nnz == matrix.nnz + 3


@pytest.mark.parametrize("bc", [2, 3, 6])
def test_what_blocks_multiply_beside_their_nodes(bc: int) -> None:
    """Of each block bc rows of x, from the first of its node, and never beyond the last row."""
    matrix = make("mixed", "float64")
    blocked = blocked_of(matrix, bc)
    assert blocked is not None
    node, read = blocked.pattern, blocked.read()
    assert blocked.begin.max() + bc == matrix.n
    last = np.where(blocked.rows == NOWHERE, 0, blocked.rows).max(axis=1)
    assert (blocked.begin <= blocked.rows[:, 0]).all()
    assert (blocked.begin + bc > last).all()
    for i in range(node.rows):
        wanted = {i, *node.indices[int(node.indptr[i]) : int(node.indptr[i + 1])].tolist()}
        rows = {int(blocked.begin[j]) + c for j in wanted for c in range(bc)}
        found = read.indices[int(read.indptr[i]) : int(read.indptr[i + 1])].tolist()
        assert found == sorted(set(blocked.of[sorted(rows)].tolist()))
    assert read.nnz > node.nnz


def test_a_matrix_of_one_size_is_cut_as_before() -> None:
    """And there is no look at the nodes of a matrix that has none."""
    for name, sizes in (("brick", {1, 3}), ("shell", {1, 2, 3, 6}), ("9-point", {1}), ("rmat", {1})):
        matrix = make(name, "float64")
        assert {bc for _, bc in column_shapes(matrix)} == sizes
        for bc in sizes:
            blocked, full = blocked_of(matrix, bc), full_blocks(pattern_of(matrix), bc)
            assert blocked is not None
            assert full is not None
            assert blocked.listed is None
            assert blocked.contiguous
            assert np.array_equal(blocked.pattern.indices, full.pattern.indices)
            assert blocked.words(np.arange(3, dtype=np.uint32)).tolist() == [0, 1, 2]
            assert fill_of(matrix, bc) == 1.0
        assert blocked_of(matrix, 6 if 6 not in sizes else 5) is None
        assert matrix.pattern_cache[("akx.backends.cuda.variants.block_local.shapes._sets",)] is None


def test_blocks_are_offered_where_they_take_fewer_bytes() -> None:
    """An entry takes w + 2 bytes alone, (w + 2 / (br bc)) / fill in blocks."""
    counts = {1: 1, 2: 2, 3: 30, 6: 30}
    fills = {2: 0.812, 3: 0.970, 6: 0.527}
    for dtype, shapes in (("float32", {(2, 2), (3, 3), (1, 3)}), ("complex128", {(3, 3), (1, 3)})):
        matrix = Matrix.from_any(wind(counts=counts).astype(dtype))
        size = matrix.dtype.itemsize
        for bc, fill in fills.items():
            assert fill_of(matrix, bc) == pytest.approx(fill, abs=5e-4)
        assert set(column_shapes(matrix)) == {(1, 1), *shapes}
        taken = {(br, bc): (size + 2 / (br * bc)) / fill_of(matrix, bc) for br, bc in column_shapes(matrix)}
        assert best_shape(matrix) == min(taken, key=lambda shape: taken[shape]) == (3, 3)
        assert max(taken.values()) == size + 2
        order = [tuple(map(int, variant.split("-")[0].split("x"))) for variant in fitting_variants(matrix)]
        near = [shape for shape in taken if shape == (1, 1) or taken[shape] <= 1.05 * taken[3, 3]]
        assert list(dict.fromkeys(order)) == sorted(near, key=lambda shape: taken[shape])
        assert (1, 1) in near
        node = nodes_of(matrix, 3)
        assert node is not None
        assert filled_rows(matrix, 3) == 3 * node.rows > matrix.n
        assert padding(matrix, 1, 3) == 1.0
        assert values_in(matrix, Shape(3, 3, 1, 8, 0, 1)) == pytest.approx(matrix.nnz / fill_of(matrix, 3))
        for schedule in (resident.SCHEDULE, ghost.SCHEDULE):
            plan = Plan("cuda", schedule.name, "3x6-1", k=2, k_per_pass=2, options={"block": 256})
            why = schedule.feasible(plan, matrix, small_gpu())
            assert why == "the matrix is not made of dense 6 x 6 blocks, nor nearly so"


def test_a_call_may_take_them_unseen() -> None:
    matrix = Matrix.from_any(wind(counts={size: 20 * many for size, many in NODES.items()}))
    found = heuristic_plans(resident.SCHEDULE, matrix, h100(), 8)
    assert {plan.variant[:3] for plan in found} == {"3x3", "1x1"}
    assert {plan.typed.x for plan in found if plan.variant[0] == "3"} == {"shared", "global"}
    for plan in found:
        laid_out, _ = resident_layout.lay_out_resident(matrix, plan, h100())
        assert (laid_out.parts.blocked.listed is not None) == plan.variant.startswith("3x3")
    assert resident.SCHEDULE.untuned_for(matrix, h100(), 8).variant.startswith("3x3")


def test_columns_that_have_no_number_in_rows() -> None:
    """Where x is in global memory 16 bits number rows: 70,000 are too many, though there are 20,000 nodes."""
    matrix = Matrix.from_any(far(70_000))
    plan = Plan("cuda", "resident", "3x3-1", k=2, k_per_pass=2, options={"block": 256, "x": "global"})
    why = "with x in global memory, columns of a row that lie more than 65,535 rows apart have no number"
    assert resident.SCHEDULE.feasible(plan, matrix, h100()) == why
    assert resident.SCHEDULE.feasible(plan.replace(options={"block": 256}), matrix, h100()) is None
    assert resident.SCHEDULE.feasible(plan, Matrix.from_any(far(60_000)), h100()) is None


def far(rows: int) -> sp.csr_array:
    """Nodes of three unknowns and one of two, the first of which is coupled with the last."""
    count = rows // 3
    sizes = np.append(2, np.full(count, 3))
    near = sp.lil_array(sp.diags_array([np.ones(count + 1), np.ones(count)], offsets=[0, 1]))
    near[0, count] = 1
    spread = sp.csr_array((np.ones(int(sizes.sum())), (np.arange(sizes.sum()), np.repeat(np.arange(count + 1), sizes))))
    return sp.csr_array(spread @ sp.csr_array(near) @ spread.T)


@pytest.mark.cuda
@on_gpu
@pytest.mark.parametrize("name", ["resident", "ghost"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mixed", "mixed with holes", "shuffled", "fields"])
def test_every_form_is_right(name: str, dtype: str, kind: str) -> None:
    """What a form has and what of it is chosen at random: right to the bound, and the same bits twice."""
    ran = []
    for turn, times in enumerate((1, 7)):
        rng = np.random.default_rng([turn, len(kind)])
        counts = {3: 100 * times} if kind == "fields" else {size: times * many for size, many in NODES.items()}
        A = sp.csr_array(wind(seed=turn, counts=counts))
        A = shuffled(A) if kind == "shuffled" else by_fields(A, 3) if kind == "fields" else A
        A.data = random_numbers(rng, A.nnz, dtype) / 3
        if kind == "mixed with holes":
            A.data[rng.random(A.nnz) < 0.02] = 0
            A.eliminate_zeros()
        matrix = Matrix.from_any(A.astype(dtype))
        k, b = (5, 3)[turn], (2, 3)[turn]
        x, coefficients = random_numbers(rng, (b, matrix.n), dtype), make_coefficients("chebyshev", k, dtype, rng)
        ran += right_ones(all_plans(name, matrix, k), matrix, x, coefficients)
    assert len(ran) >= min(MOST_PLANS // 2, 11)
    formed = {plan.variant.split("-")[0] for plan in ran}
    assert MOST_PLANS < 20 or len(formed) > (1 if kind == "fields" else 2)


@pytest.mark.cuda
@on_gpu
@pytest.mark.parametrize("x", ["shared", "global"])
@pytest.mark.parametrize("order", ["natural", "metis"])
def test_nothing_is_read_before_it_is_there(x: str, order: str) -> None:
    """Many parts and many steps on results that are poisoned: a row read too early makes others NaN."""
    A = wind(counts={1: 900, 2: 800, 3: 700, 6: 5000})
    A.data /= 4
    matrix = Matrix.from_any(A)
    options = {"block": 256, "x": x, "blocks_per_sm": 2}
    plan = Plan("cuda", "resident", "3x3-2", order, 24, 24, options=options)
    rng = np.random.default_rng(0)
    vector, coefficients = rng.standard_normal((1, matrix.n)), make_coefficients("monomial", 24, "float64", rng)
    for _ in range(3):
        out = run_twice(plan, matrix, vector, coefficients)
        assert reference.reference(matrix, vector, coefficients).error_ratio(out) <= 1


@pytest.mark.cuda
@on_gpu
def test_what_others_of_a_cluster_give_is_kept() -> None:
    """Blocks that have begun write into others that have not: what they write stays, whatever those do first."""
    matrix = Matrix.from_any(shuffled(wind(counts={3: 200, 6: 9000})))
    plan = Plan("cuda", "ghost", "2x6-1", "metis", 3, 3, options={"block": 256, "cluster": 8, "waves": 2})
    rng = np.random.default_rng(0)
    x, coefficients = rng.standard_normal((1, matrix.n)), make_coefficients("monomial", 3, "float64", rng)
    truth = reference.reference(matrix, x, coefficients)
    for _ in range(5):
        assert truth.error_ratio(run_twice(plan, matrix, x, coefficients)) <= 1


def nodes_in_pieces() -> sp.csr_array:
    """Nodes of six, as runs of three rows with others between them: their rows follow, and pieces are in no order."""
    order, first = [], np.arange(0, 6 * 40, 6)
    for i in range(0, 40, 2):
        a, b = first[i], first[i + 1]
        order += [*range(a, a + 3), 240 + 2 * i, *range(b, b + 3), 241 + 2 * i, *range(a + 3, a + 6)]
        order += [242 + 2 * i, *range(b + 3, b + 6), 243 + 2 * i]
    A = sp.csr_array(sp.block_diag([wind(counts={6: 40}), sp.diags_array(np.ones(80))], format="csr"))
    A = sp.csr_array(A + sp.csr_array((np.ones(79), (np.arange(240, 319), np.arange(241, 320))), shape=A.shape))
    return permuted(A, order)


def test_pieces_are_in_the_order_of_their_rows_where_these_follow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a part would not wait for all that its blocks read."""
    monkeypatch.setattr(block_shapes, "alike_share", lambda matrix: 0.0)  # supervariables are looked for
    A = nodes_in_pieces()
    A.data = np.random.default_rng(0).standard_normal(A.nnz) / 3
    matrix = Matrix.from_any(A)
    sets = supervariables(pattern_of(matrix))
    unordered = [int(sets.rows[i + 3 * half]) for i in sets.cuts[:-1][sets.sizes == 6] for half in (0, 1)]
    assert (np.diff(unordered) < 0).any()
    blocked = blocked_of(matrix, 3)
    assert blocked is not None
    assert blocked.listed is not None
    assert blocked.contiguous
    assert (np.diff(blocked.rows[:, 0].astype(np.int64)) > 0).all()
    whole = blocked_of(matrix, 6)
    assert whole is not None
    assert not whole.contiguous
    device = block_local_device(monkeypatch, tmp_path)
    for order, x in product(("natural", "metis"), ("shared", "global")):
        plan = Plan("cuda", "resident", "3x3-1", order, 4, 4, options={"block": 256, "x": x})
        _, program = resident_program(device, matrix, plan, small_gpu())
        check(device, matrix, program, 1)


def test_little_fill_is_no_reason_for_few_lanes() -> None:
    """Nor for no offers: padding of lanes is that of lanes, whatever blocks are filled up with."""
    for counts, shape in (({5: 3000}, "1x1"), ({2: 1000, 3: 3000}, "3x3")):
        matrix = Matrix.from_any(wind(counts=counts).astype("float32"))
        found = heuristic_plans(resident.SCHEDULE, matrix, h100(), 8)
        assert {plan.variant[:3] for plan in found} == {shape, "1x1"}
        default = resident.SCHEDULE._plain(matrix, h100(), 8)
        assert (default.variant[:3], int(default.variant[4:]) > 1) == (shape, True)


def test_rows_without_entries_are_not_like_one_another() -> None:
    """Nor are those that have the rest of the entries: no nodes are looked for."""
    A = sp.random_array((6000, 6000), density=2e-3, rng=np.random.default_rng(0), format="lil")
    A[::2] = A[1::4] = 0
    matrix = Matrix.from_any(sp.csr_array(A))
    assert column_shapes(matrix) == ((1, 1),)
    assert matrix.pattern_cache[("akx.backends.cuda.variants.block_local.shapes._sets",)] is None


def test_the_gallery_has_no_such_nodes() -> None:
    """So that its plans are those of blocks of one size, or of single entries."""
    for name in gallery.GALLERY:
        matrix = make(name, "float64")
        assert not any(is_listed(matrix, bc) for _, bc in column_shapes(matrix))


@pytest.mark.parametrize("name", ["shuffled", "fields"])
def test_rows_that_do_not_follow_one_another_have_x_in_shared_memory(name: str) -> None:
    matrix = make(name, "float64")
    assert best_shape(matrix) == (3, 3)
    plan = Plan("cuda", "resident", "3x3-1", k=2, k_per_pass=2, options={"block": 256, "x": "global"})
    why = "with x in global memory, rows of a node must follow one another"
    assert resident.SCHEDULE.feasible(plan, matrix, small_gpu()) == why
    assert resident.SCHEDULE.feasible(plan.replace(variant="1x1-1"), matrix, small_gpu()) is None
    for k in (1, 4):
        default = resident.SCHEDULE.untuned_for(matrix, small_gpu(), k)
        assert default.variant.startswith("3x3")
        assert default.typed.x == "shared"
        assert resident.SCHEDULE.feasible(default, matrix, small_gpu()) is None
        offered = heuristic_plans(resident.SCHEDULE, matrix, small_gpu(), k)
        assert {plan.typed.x for plan in offered if plan.variant[0] == "3"} == ({"shared"} if k > 1 else set())


def test_fields_are_in_natural_order_and_random_ones_are_not() -> None:
    """Nodes have the order of their first rows; where that has no meaning parts are those of METIS."""
    A = wind(counts={3: 9000})
    for B, order in ((by_fields(A, 3), "natural"), (shuffled(A), "metis")):
        plan = resident.SCHEDULE._plain(Matrix.from_any(B), h100(), 4)
        assert (plan.variant[:3], plan.partitioner) == ("3x3", order)
