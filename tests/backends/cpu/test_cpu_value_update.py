"""Values are laid out by all threads of a plan, and rows are shared by what is stored of them."""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry
from akx.backends.cpu import value_update as filling
from akx.backends.cpu.layout import aligned_cuts, lay_out, ordered
from akx.backends.cpu.value_update import _ALONE, _FAR, NewValues
from akx.backends.host import host_device
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format


def banded(n: int, *, dtype: Any = np.float64) -> sp.csr_array:
    """So many rows that several threads fill, and not a multiple of anything."""
    rng = np.random.default_rng(n)
    offsets = [-40, -7, -1, 0, 1, 3, 40]
    A = sp.csr_array(sp.diags_array([rng.random(n) for _ in offsets], offsets=offsets, shape=(n, n)))
    return A.astype(dtype)


def of_nodes(n: int, *, dtype: Any = np.float64) -> sp.csr_array:
    """Nodes of three rows in a band, the last one cut off."""
    A = sp.csr_array(sp.kron(banded(n // 3 + 50), np.ones((3, 3))))[:n, :n]
    A.data = np.random.default_rng(n).random(A.nnz)
    return A.astype(dtype)


def nodes(count: int, block: int, *, dtype: Any = np.float64) -> sp.csr_array:
    """Dense blocks, from one to many in a row of them, and in every seventh node only what is on the diagonal."""
    rng = np.random.default_rng(count)
    of_nodes = sp.random_array((count, count), density=4.0 / count, rng=rng, format="csr") + sp.eye_array(count)
    A = sp.coo_array(sp.kron(of_nodes, np.ones((block, block))))
    keep = (A.row // block % 7 != 3) | (A.row == A.col)
    data = rng.random(int(keep.sum()))
    return sp.csr_array((data, (A.row[keep], A.col[keep])), shape=A.shape).astype(dtype)


def two_layouts(
    matrix: Matrix, variant: str, order: str = "natural", *, sigma: int = 1, block: int = 1
) -> tuple[Format, Format]:
    """The same layout twice: one to fill, and one to compare with."""
    pattern = ordered(matrix, order).pattern
    one, other = (lay_out(pattern, matrix.dtype, variant, sigma=sigma, block=block) for _ in range(2))
    return one, other


def fill(layout: Format, matrix: Matrix, data: Any, threads: int, order: str = "natural") -> NewValues:
    """Lay `data` out, in a layout of `matrix` in that order."""
    where = ordered(matrix, order)
    new = NewValues(layout, where.pattern, where.entries, threads)
    new.take(data)
    return new


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("variant", ["csr", "csr16", "sell", "dia", "inode16"])
@pytest.mark.parametrize("n", [101, _ALONE // 6 + 7])
def test_values_go_where_the_layout_wants_them(variant: str, n: int, threads: int) -> None:
    matrix = Matrix.from_any(of_nodes(n) if variant == "inode16" else banded(n))
    layout, other = two_layouts(matrix, variant)
    for data in (matrix.data, -3.0 * matrix.data):
        fill(layout, matrix, data, threads)
        other.fill(data)
        np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)
    if variant == "inode16":
        assert layout.slot is not None
        assert (np.diff(layout.slot.astype(np.int64)) != 1).any(), "they are in another order"


@pytest.fixture
def all_are_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few values go window by window, by several threads."""
    monkeypatch.setattr(filling, "_FAR", -1)
    monkeypatch.setattr(filling, "_ALONE", -1)


@pytest.mark.usefixtures("all_are_far")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize(
    ("variant", "order", "sigma"),
    [
        ("sell", "natural", 1),
        ("sell16", "natural", 64),
        ("sell", "rcm", 1),
        ("sell", "levels", 32),
        ("dia", "natural", 1),
        ("dia", "rcm", 1),
        ("bell", "natural", 1),
        ("bell16", "natural", 1),
    ],
)
def test_many_values_go_window_by_window(variant: str, order: str, sigma: int, dtype: Any, threads: int) -> None:
    A = nodes(321, 3, dtype=dtype) if variant.startswith("bell") else banded(1013, dtype=dtype)
    matrix = Matrix.from_any(A)
    layout, other = two_layouts(matrix, variant, order, sigma=sigma, block=3)
    assert layout.stored > layout.slot.size, "it pads"  # type: ignore[union-attr]
    for data in (matrix.data, np.flip(matrix.data).copy(), -0.0 * matrix.data, matrix.data * 1e-30):
        new = fill(layout, matrix, data, threads, order)
        other.fill(data if order == "natural" else data[ordered(matrix, order).entries])
        assert layout.arrays.values.tobytes() == other.arrays.values.tobytes()
    first, window = new.places.first, new.places.window
    assert window.size > 3
    assert new.places.block == (3 if variant.startswith("bell") else 0)
    assert (first[0], window[0], first[-1], window[-1]) == (0, 0, matrix.nnz, layout.stored)


@pytest.mark.usefixtures("all_are_far")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize(("variant", "order"), [("inode", "natural"), ("inode16", "rcm")])
def test_nodes_end_anywhere_in_a_line_and_have_no_windows(variant: str, order: str, dtype: Any, threads: int) -> None:
    matrix = Matrix.from_any(of_nodes(1013, dtype=dtype))
    layout, other = two_layouts(matrix, variant, order)
    for data in (matrix.data, np.flip(matrix.data).copy()):
        assert fill(layout, matrix, data, threads, order).places.window.size == 0
        other.fill(data if order == "natural" else data[ordered(matrix, order).entries])
        assert layout.arrays.values.tobytes() == other.arrays.values.tobytes()


def test_all_places_are_of_one_type() -> None:
    """Else every kernel is compiled once more for matrices that are large."""
    kinds = set()
    for n, far in ((2000, 1 << 40), (2000, -1)):
        for variant in ("bell", "sell", "csr"):
            matrix = Matrix.from_any(nodes(n, 3))
            pattern = ordered(matrix, "natural").pattern
            layout = lay_out(pattern, matrix.dtype, variant, sigma=1, block=3)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(filling, "_FAR", far)
                kinds.add(numba.typeof(NewValues(layout, pattern, None, 2).places))
    assert len(kinds) == 1


@pytest.mark.usefixtures("all_are_far")
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("count", [1, 7, 16, 17, 59])
def test_full_blocks_of_few_nodes_with_short_and_long_rows(count: int, dtype: Any, threads: int) -> None:
    """What is read behind the last rows is not there; some nodes and some chunks have nothing at all."""
    of_nodes = sp.lil_array((count, count))
    for i in range(count):
        if not 16 <= i < 32:
            of_nodes[i, : (i * i) % (count + 1)] = 1
    of_nodes[count - 1, :] = 1
    matrix = Matrix.from_any(sp.csr_array(sp.kron(of_nodes.tocsr(), np.ones((2, 2)))).astype(dtype))
    layout, other = two_layouts(matrix, "bell", block=2)
    rng = np.random.default_rng(count)
    for _ in range(2):
        data = rng.standard_normal(matrix.nnz).astype(dtype)
        assert fill(layout, matrix, data, threads).places.block == 2
        other.fill(data)
        assert layout.arrays.values.tobytes() == other.arrays.values.tobytes()


@pytest.mark.usefixtures("all_are_far")
def test_blocks_few_of_which_are_full_go_by_windows() -> None:
    A = nodes(321, 3)
    A.data[::5] = 0
    A.eliminate_zeros()
    matrix = Matrix.from_any(A)
    layout, other = two_layouts(matrix, "bell", block=3)
    places = fill(layout, matrix, matrix.data, 2).places
    assert places.block == 0
    assert places.window.size > 3
    other.fill(matrix.data)
    assert layout.arrays.values.tobytes() == other.arrays.values.tobytes()


@pytest.mark.usefixtures("all_are_far")
def test_windows_that_the_nearest_cache_has_no_room_for_are_none() -> None:
    """One thread sorts all rows, so that their values lie everywhere."""
    matrix = Matrix.from_any(banded(4001))
    layout, other = two_layouts(matrix, "sell", sigma=4096)
    assert fill(layout, matrix, matrix.data, 2).places.window.size == 0
    other.fill(matrix.data)
    np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)


@pytest.mark.usefixtures("all_are_far")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", ["csr", "sell", "dia", "inode"])
def test_a_matrix_without_entries(variant: str, threads: int) -> None:
    matrix = Matrix.from_any(sp.csr_array((70, 70)))
    layout = lay_out(ordered(matrix, "natural").pattern, matrix.dtype, variant, sigma=1, block=1)
    fill(layout, matrix, matrix.data, threads)
    assert layout.stored == 0
    assert not layout.arrays.values.any()


@pytest.mark.parametrize(("variant", "sigma"), [("sell", 1), ("sell", 8192), ("inode", 1)])
def test_many_values_of_which_there_is_no_doubt(variant: str, sigma: int) -> None:
    """As many as are far indeed: by windows, and where these are too wide asked for before they are written to."""
    matrix = Matrix.from_any(of_nodes(_FAR // 8 // 18) if variant == "inode" else banded(_FAR // 8 // 6 + 7))
    layout, other = two_layouts(matrix, variant, sigma=sigma)
    assert layout.arrays.values.nbytes > _FAR
    new = fill(layout, matrix, matrix.data, 3)
    assert (new.places.window.size > 0) == ((variant, sigma) == ("sell", 1))
    other.fill(matrix.data)
    np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", ["csr", "sell"])
def test_values_of_rows_in_another_order(variant: str, threads: int) -> None:
    matrix = Matrix.from_any(banded(_ALONE // 6 + 7))
    where = ordered(matrix, "rcm")
    assert where.entries is not None
    layout, other = two_layouts(matrix, variant, "rcm")
    fill(layout, matrix, matrix.data, threads, "rcm")
    other.fill(matrix.data[where.entries])
    np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_values_of_all_types(dtype: Any) -> None:
    matrix = Matrix.from_any(banded(_ALONE // 6 + 7, dtype=dtype))
    layout, other = two_layouts(matrix, "sell")
    fill(layout, matrix, matrix.data, 2)
    other.fill(matrix.data)
    np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)


@pytest.mark.parametrize("variant", ["sell", "inode16"])
def test_an_operator_with_new_values_between_its_calls(variant: str) -> None:
    """The team goes from one job to the other and back."""
    A = of_nodes(_ALONE // 18 + 7) if variant == "inode16" else banded(_ALONE // 6 + 7)
    x = np.random.default_rng(0).random(A.shape[0])
    threads = max(2, host_device().cores)
    op = akx.MatrixPowers(A, 2, plan=Plan("cpu", "sweep", variant, k=2, threads=threads))
    for scale in (1.0, 0.25, -2.0):
        op.update_values(scale * A)
        found = op(x)
        np.testing.assert_allclose(found[:, 1], scale * (A @ x), rtol=1e-13)
        np.testing.assert_allclose(found[:, 2], scale * (A @ (scale * (A @ x))), rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("schedule", "variant", "order"),
    [
        ("sweep", "csr", "natural"),
        ("sweep", "sell", "rcm"),
        ("sweep", "bell16", "natural"),
        ("wavefront", "dia", "natural"),
        ("wavefront", "sell16", "levels"),
        ("ghost", "dia", "natural"),
        ("ghost", "csr16", "metis"),
        ("ghost", "sell", "natural"),
        ("sweep", "inode16", "natural"),
        ("ghost", "inode", "natural"),
    ],
)
@pytest.mark.parametrize("far", [_FAR, -1])
def test_new_values_right_behind_products_and_when_members_sleep(
    monkeypatch: pytest.MonkeyPatch, far: int, schedule: str, variant: str, order: str, threads: int
) -> None:
    """Whether they go window by window or not."""
    monkeypatch.setattr(filling, "_FAR", far)
    A = nodes(700, 3) if variant == "bell16" else of_nodes(2503) if "inode" in variant else banded(2503)
    size = 2**17 if variant == "inode" else 2**14
    blocked: dict[str, Any] = {} if schedule == "sweep" else {"k_per_pass": 3, "block_bytes": size}
    plan = Plan("cpu", schedule, variant, k=3, partitioner=order, threads=threads, **blocked)
    op, x = akx.MatrixPowers(A, 3, plan=plan), np.random.default_rng(0).random(A.shape[0])
    for number, scale in enumerate([1.0, -0.5, 3.0, 0.125, 7.0, -2.0, 0.75, 1.5]):
        B = A.copy()
        B.data = scale * np.roll(A.data, number)
        op.update_values(B)
        if number % 3 == 2:
            op.update_values(A)
            op.update_values(B)
        fresh = akx.MatrixPowers(B, 3, plan=plan)
        for _ in range(number % 4):  # the job of the first one may or may not be what members listen for
            np.testing.assert_array_equal(op(x), op(x))
        if number % 4 == 3:
            time.sleep(0.01)
        np.testing.assert_array_equal(op(x), fresh(x))
        np.testing.assert_array_equal(op(x[:, None] * [1, 2])[:, 1], op(2 * x))


@pytest.mark.parametrize("variant", ["csr", "sell", "inode"])
def test_values_that_are_not_those_of_the_layout_are_refused(variant: str) -> None:
    """Compiled code would read and write anywhere."""
    matrix = Matrix.from_any(banded(101))
    layout = lay_out(ordered(matrix, "natural").pattern, matrix.dtype, variant, sigma=1, block=1)
    for data in (matrix.data[:-1], np.append(matrix.data, 1.0), matrix.data.astype(np.float32)):
        with pytest.raises(ValueError, match="cannot take"):
            fill(layout, matrix, data, 1)
    with pytest.raises(ValueError, match="cannot take"):
        NewValues(layout, ordered(matrix, "natural").pattern, np.arange(3, dtype=np.uint32), 1)


@pytest.mark.parametrize(("schedule", "order"), [("sweep", "rcm"), ("ghost", "metis")])
def test_too_few_values_for_rows_in_another_order_are_refused(schedule: str, order: str) -> None:
    matrix = Matrix.from_any(banded(2503))
    blocked: dict[str, Any] = {} if schedule == "sweep" else {"k_per_pass": 2, "block_bytes": 16384}
    plan = Plan("cpu", schedule, "csr", k=2, partitioner=order, threads=2, **blocked)
    program = registry.get("cpu", schedule).prepare(matrix, plan)
    for data in (matrix.data[:-1], np.append(matrix.data, 1.0)):
        with pytest.raises(ValueError, match="cannot take"):
            program.update_values(data)
    program.update_values(matrix.data)


@pytest.mark.parametrize("variant", ["dia", "sell"])
def test_threads_share_what_is_stored_of_the_rows(variant: str) -> None:
    """Half of the rows are padded to twice their entries: shares of equal entries are not of equal work."""
    n = 4096
    i = np.arange(n)
    dense = i < n // 2
    # In the first half each group of rows has six diagonals, of which every row has its own three.
    first = [(i[dense], (i[dense] + 2 * offset + i[dense] % 2 if variant == "dia" else 0)) for offset in range(3)]
    if variant == "sell":
        long = np.flatnonzero(dense & (i % 8 == 0))
        first = [(i[dense], i[dense]), *((long, long + step) for step in range(1, 5))]
    rest = [(i[~dense], np.maximum(i[~dense] - step, 0)) for step in range(3)]
    rows = np.concatenate([row for row, _ in (*first, *rest)])
    columns = np.concatenate([column for _, column in (*first, *rest)])
    matrix = Matrix.from_any(sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, n)))
    pattern = ordered(matrix, "natural").pattern
    layout = lay_out(pattern, matrix.dtype, variant, sigma=1, block=1)
    assert layout.stored > 1.2 * matrix.nnz, "it pads"
    start = layout.arrays.start.astype(np.float64) * (layout.stored / float(layout.arrays.start[-1]))

    def largest(cuts: Any) -> float:
        work = start[-(-cuts // layout.unit)] + 2.0 * cuts
        return float(np.diff(work).max() / np.diff(work).mean())

    by_entries, by_slots = (largest(aligned_cuts(pattern, 2, layout.align, one)) for one in (None, layout))
    assert by_entries > 1.1
    assert by_slots < 1.02
    program: Any = registry.get("cpu", "sweep").prepare(matrix, Plan("cpu", "sweep", variant, k=1, threads=2))
    second = int(program._tasks.first[program._tasks.thread_ptr[1]])
    assert largest(np.array([0, second, n])) == by_slots, "the kernels do"
