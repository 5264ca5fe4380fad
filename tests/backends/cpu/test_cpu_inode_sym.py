"""Symmetric matrices by nodes in blocks: exact on small integers, at home in a block, in full once they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry
from akx.backends.cpu.cost import bytes_per_entry
from akx.backends.cpu.jit import jit
from akx.backends.cpu.layout import lay_out
from akx.backends.cpu.products import product
from akx.backends.host import host_device
from akx.backends.schedule import as_coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format, pattern_of
from akx.formats.inode_sym import block_rows
from akx.tuner.space import build_space

#: Entries that nobody may read or write, before, between and after x and y.
GUARD = 11


@jit
def _call(m: Any, w: Any, x: int, y: int, first: int, last: int) -> None:
    product(m, w, x, y, first, last, 0, 0, 0)


def nodes(count: int, dtype: str = "float64", *, sizes: tuple[int, ...] = (3,), near: int = 4) -> sp.csr_array:
    """Symmetric, of integers: dense blocks between nodes `near` apart and some that are far; `sizes` in turn."""
    rng = np.random.default_rng(count)
    rows = np.resize(sizes, count)
    first = np.concatenate([[0], np.cumsum(rows)])
    pairs = {(i, j) for i in range(count) for j in range(max(0, i - near), i + 1) if i == j or rng.random() < 0.7}
    pairs |= {(max(pair), min(pair)) for pair in rng.integers(0, count, (count // 8, 2)).tolist()}
    where = [np.mgrid[first[i] : first[i + 1], first[j] : first[j + 1]].reshape(2, -1) for i, j in sorted(pairs)]
    i, j = np.hstack(where)
    values = rng.integers(1, 9, i.size) * rng.choice([-1, 1], i.size)
    lower = sp.csr_array((values.astype(dtype), (i, j)), shape=(first[-1], first[-1]))
    return sp.csr_array(sp.tril(lower) + sp.tril(lower, -1).T)


def laid_out(A: sp.csr_array) -> Format:
    layout = lay_out(pattern_of(Matrix.from_any(A)), A.dtype, "inode-sym", sigma=1, block=1)
    layout.fill(A.data)
    return layout


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(3,), (1, 2, 5, 7)])
def test_exact_and_within_its_block(dtype: str, sizes: tuple[int, ...]) -> None:
    for count in (1, 2, 21, 22, 60, 190):
        A = nodes(count, dtype, sizes=sizes, near=min(count, 9))
        n, layout = A.shape[0], laid_out(A)
        source = np.random.default_rng(n).integers(-9, 10, n).astype(dtype)
        truth = A.toarray() @ source
        x, y = GUARD, 2 * GUARD + n
        w = np.full(y + n + GUARD, np.nan, dtype)
        w[x : x + n] = source
        for first in range(0, n, layout.align):
            expected, last = w.copy(), min(n, first + layout.align)
            expected[y + first : y + last] = truth[first:last]
            _call(layout.arrays, w, x, y, first, last)
            np.testing.assert_array_equal(w, expected, f"{n} rows, from {first}")


def test_what_is_not_finite_reaches_the_rows_that_name_it_and_no_other() -> None:
    A = nodes(70, sizes=(3, 1, 2))
    n, layout = A.shape[0], laid_out(A)
    for column in (0, 17, 101, n - 1):
        x = np.ones(n)
        x[column] = np.inf
        w = np.concatenate([x, np.full(n, 5.0)])
        _call(layout.arrays, w, 0, n, 0, n)
        names = A.toarray()[:, column] != 0
        np.testing.assert_array_equal(np.isfinite(w[n:]), ~names)


def test_one_value_for_two_entries_of_a_block_and_no_other() -> None:
    A = nodes(400)
    layout, block = laid_out(A), block_rows(A.shape[0])
    rows, columns = A.nonzero()
    slot = sp.csr_array((1 + np.asarray(layout.slot, dtype=np.int64), A.indices, A.indptr)).toarray()  # type: ignore[arg-type]
    assert layout.stored == np.unique(slot[slot > 0]).size < 0.8 * A.nnz
    # nodes end where blocks do, and the others at multiples of three: of rows in a block, and in different nodes
    inside, start = rows // block == columns // block, rows // block * block
    twice = slot[rows, columns] == slot[columns, rows]
    assert not twice[~inside].any()
    assert twice[inside & (np.abs(rows - columns) > 3)].all()
    assert (start < 1200).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    A = nodes(900)
    matrix, n = Matrix.from_any(A / 64), A.shape[0]
    x, coefficients = (
        np.random.default_rng(2).standard_normal((2, n)),
        as_coefficients(*np.ones((3, 3)), np.dtype(float)),
    )
    found = []
    for count in (threads, 3, 5):
        out = np.full((4, 2, n), np.nan)
        registry.get("cpu", "sweep").prepare(matrix, Plan("cpu", "sweep", "inode-sym", k=3, threads=count)).run(
            x, out, coefficients
        )
        found.append(out)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_it_is_offered_where_nodes_are_symmetric_and_near() -> None:
    def offered(A: Any) -> bool:
        return "inode-sym" in build_space(Matrix.from_any(A), 4, host_device(), threads=2).choices("sweep", "variant")

    A = nodes(1500)
    assert offered(A)
    assert not offered(A.astype(np.complex64))
    assert not offered(sp.csr_array(sp.tril(A)))
    assert not offered(sp.csr_array(A @ sp.diags_array(np.arange(1.0, 4501.0))))
    assert not offered(nodes(1500, sizes=(1,)))
    shuffled = np.repeat(3 * np.random.default_rng(0).permutation(1500), 3) + np.tile(np.arange(3), 1500)
    matrix, plan = Matrix.from_any(sp.csr_array(A[shuffled][:, shuffled])), Plan("cpu", "sweep", "inode-sym", k=2)
    with pytest.raises(InfeasibleError, match="in other blocks"):
        registry.get("cpu", "sweep").prepare(matrix, plan)


@pytest.mark.parametrize("order", ["natural", "rcm"])
def test_an_operator_goes_on_with_values_of_any_kind(order: str) -> None:
    A = nodes(700)
    x = np.arange(2100.0)
    op = akx.MatrixPowers(A, 2, plan=Plan("cpu", "sweep", "inode-sym", order, k=2, threads=2))
    other = sp.csr_array(A @ sp.diags_array(x + 1))
    for B in (A, 3 * A, other, A):
        op.update_values(B)
        np.testing.assert_array_equal(op(x)[:, 2], B @ (B @ x))


def test_the_model_counts_what_is_laid_out() -> None:
    matrix = Matrix.from_any(nodes(3000))
    plan = Plan("cpu", "sweep", "inode-sym", k=2, threads=2)
    program: Any = registry.get("cpu", "sweep").prepare(matrix, plan)
    held = program._layout.matrix_bytes
    assert bytes_per_entry(plan, matrix) * matrix.nnz == pytest.approx(held, rel=0.02)
