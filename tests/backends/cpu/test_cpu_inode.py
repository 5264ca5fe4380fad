"""Products of nodes of rows: exact on small integers, at home in their range, and nothing of a row goes to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends import reference, registry
from akx.backends.cpu.cost import bytes_per_entry, largest_share, multiplied
from akx.backends.cpu.jit import jit
from akx.backends.cpu.layout import lay_out
from akx.backends.cpu.products import product, slots
from akx.backends.host import host_device
from akx.backends.schedule import as_coefficients
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format, pattern_of
from akx.tuner.space import build_space

DTYPES = ["float32", "float64", "complex64", "complex128"]
#: Entries that nobody may read or write, before, between and after x and y.
GUARD = 11


@jit
def _call(m: Any, w: Any, x: int, y: int, first: int, last: int, shift: int, soon: int, lines: int) -> None:
    product(m, w, x, y, first, last, shift, soon, lines)


@jit
def _slots(m: Any, row: int) -> Any:
    return slots(m, row)


def integers(rng: np.random.Generator, size: int, dtype: str) -> Any:
    values = rng.integers(-9, 10, size)
    return (values + 1j * rng.integers(-9, 10, size) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def of_nodes(n: int, dtype: str, *, most: int = 10, near: int | None = None) -> sp.csr_array:
    """Nodes of 1 to `most` rows with 0 to 16 columns, anywhere or from `near` columns around the diagonal."""
    rng = np.random.default_rng(n)
    sizes = rng.integers(1, most + 1, n)
    node = np.repeat(np.arange(n), sizes)[:n]
    wide = min(n, near or n)
    first = np.clip(np.cumsum(sizes) - sizes - wide // 2, 0, n - wide)
    columns = [first[i] + np.sort(rng.choice(wide, min(wide, i % 17), replace=False)) for i in range(node[-1] + 1)]
    rows = [columns[i] for i in node]
    indptr = np.concatenate([[0], np.cumsum([row.size for row in rows])])
    return sp.csr_array((integers(rng, indptr[-1], dtype), np.concatenate(rows), indptr), shape=(n, n))


def laid_out(A: sp.csr_array, variant: str) -> Format:
    layout = lay_out(pattern_of(Matrix.from_any(A)), A.dtype, variant, sigma=1, block=1)
    layout.fill(A.data)
    return layout


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["inode", "inode16"])
@pytest.mark.parametrize("shift", [0, 64])
def test_exact_and_within_its_range(variant: str, dtype: str, shift: int) -> None:
    for n in (1, 2, 7, 64, 65, 130, 403):
        A = of_nodes(n, dtype)
        layout = laid_out(A, variant)
        source = integers(np.random.default_rng(n), n, dtype)
        truth = A.toarray().astype(np.clongdouble if A.dtype.kind == "c" else np.longdouble) @ source
        x, y = GUARD, 2 * GUARD + n + shift
        w = np.full(y + n + GUARD, np.nan, dtype)
        w[x : x + n] = source
        step = layout.align * max(1, n // (2 * layout.align))
        for first in range(0, n, step):
            expected, last = w.copy(), min(n, first + step)
            expected[y + first - shift : y + last - shift] = truth[first:last]
            _call(layout.arrays, w, x, y, first, last, shift, 0, first % 3)
            np.testing.assert_array_equal(w, expected, f"{n} rows, from {first}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_reaches_the_rows_that_name_it_and_no_other(dtype: str) -> None:
    """Lanes beyond the rows of a node multiply values of the next column, and the last ones what is behind them all."""
    n = 203
    A = of_nodes(n, dtype)
    layout = laid_out(A, "inode")
    source, truth = integers(np.random.default_rng(1), n, dtype), np.zeros(n, dtype)
    for column in (0, 17, 101, n - 1):
        x = source.copy()
        x[column] = np.inf
        names = np.zeros(n, bool)
        names[sp.csr_array(A).tocsc()[:, [column]].indices] = True
        clean = source.copy()
        clean[column] = 0
        truth[:] = A @ clean
        w = np.concatenate([x, np.full(n, 5, dtype)])
        _call(layout.arrays, w, 0, n, 0, n, 0, 0, 0)
        np.testing.assert_array_equal(w[n:][~names], truth[~names])
        assert not np.isfinite(w[n:][names]).any()


def test_columns_of_16_bits_are_relative_to_those_of_their_group() -> None:
    n = 70_000
    A = of_nodes(n, "float64", near=2000)
    layout = laid_out(A, "inode16")
    assert int(layout.arrays.base.max()) > 65_536
    source = integers(np.random.default_rng(2), n, "float64")
    w = np.concatenate([source, np.zeros(n)])
    _call(layout.arrays, w, 0, n, 0, n, 0, 0, 1)
    np.testing.assert_array_equal(w[n:], A @ source)


def test_slots_begin_where_groups_do() -> None:
    A = of_nodes(403, "float64")
    layout = laid_out(A, "inode")
    for row in (0, 64, 128, 384):
        assert _slots(layout.arrays, row) == A.indptr[row]
    assert _slots(layout.arrays, 403) == layout.arrays.values.size


@pytest.mark.parametrize("variant", ["inode", "inode16"])
@pytest.mark.parametrize("partitioner", ["natural", "rcm"])
def test_the_model_counts_what_is_laid_out(variant: str, partitioner: str) -> None:
    matrix = Matrix.from_any(of_nodes(4000, "float64", near=400))
    plan = Plan("cpu", "sweep", variant, partitioner, k=2, threads=2)
    program: Any = registry.get("cpu", "sweep").prepare(matrix, plan)
    arrays = program._layout.arrays
    assert multiplied(plan, matrix) == 8 * (arrays.column.size / matrix.nnz) < 4
    held = sum(one.nbytes for one in (arrays.values, arrays.column, arrays.pointer, arrays.height))
    assert bytes_per_entry(plan, matrix) * matrix.nnz == pytest.approx(held, rel=1e-3)
    assert largest_share(plan, matrix) == 2016 / 2000  # 31 groups, and 31 with 32 rows


def test_it_is_offered_where_rows_share_their_columns() -> None:
    def offered(A: Any) -> set[str]:
        matrix = Matrix.from_any(A)
        return {str(one) for one in build_space(matrix, 4, host_device(), threads=2).choices("sweep", "variant")}

    both = {"inode", "inode16"}
    assert offered(of_nodes(4000, "float64", near=400)) >= both
    blocks = sp.kron(sp.diags_array([1.0] * 3, offsets=[-1, 0, 1], shape=(300, 300)), np.ones((3, 3)))
    assert offered(sp.csr_array(blocks)) >= both | {"bell"}, "other orders of the rows have no blocks"
    assert not offered(of_nodes(4000, "float64", most=1, near=400)) & both
    matrix = Matrix.from_any(of_nodes(4000, "float64", most=1, near=400))
    reason = registry.get("cpu", "sweep").feasible(Plan("cpu", "sweep", "inode", k=2), matrix, host_device())
    assert reason is not None
    assert "same columns" in reason


def test_nodes_far_apart_need_wide_indices() -> None:
    n = 70_000
    far = sp.coo_array((np.ones(2), ([0, 1], [n - 1, n - 1])), shape=(n, n))
    A = sp.csr_array(sp.kron(sp.eye_array(n // 2), np.ones((2, 2))) + far)
    matrix, sweep = Matrix.from_any(A), registry.get("cpu", "sweep")
    assert sweep.feasible(Plan("cpu", "sweep", "inode", k=2), matrix, host_device()) is None
    assert "65,535" in str(sweep.feasible(Plan("cpu", "sweep", "inode16", k=2), matrix, host_device()))


@pytest.mark.parametrize("partitioner", ["natural", "metis"])
def test_ghost_zones_of_nodes(partitioner: str) -> None:
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(1200, 1200))
    A = sp.csr_array(sp.kron(line, np.ones((3, 3))))
    A.data = np.random.default_rng(3).standard_normal(A.nnz) / 9
    matrix, ghost = Matrix.from_any(A), registry.get("cpu", "ghost")
    plan = Plan("cpu", "ghost", "inode", partitioner, k=4, k_per_pass=2, block_bytes=64 * 1024, threads=2)
    assert ghost.feasible(plan, matrix, host_device()) is None
    assert ghost.traffic(plan, matrix, host_device()).matrix_bytes >= 8 * matrix.nnz
    x, out = np.random.default_rng(4).standard_normal((1, matrix.n)), np.full((5, 1, matrix.n), np.nan)
    coefficients = as_coefficients(np.ones(4), np.zeros(4), np.zeros(4), matrix.dtype)
    ghost.prepare(matrix, plan).run(x, out, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
