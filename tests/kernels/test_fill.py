"""Values are laid out by all threads of a plan, and rows are shared by what is stored of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.device.host import host_device
from akx.kernels import registry
from akx.kernels.cpu.fill import _ALONE, _FAR, fill
from akx.kernels.cpu.layout import lay_out, ordered
from akx.kernels.cpu.shared import aligned_cuts
from akx.matrix import Matrix
from akx.plan import Plan


def banded(n: int, *, dtype: Any = np.float64) -> sp.csr_array:
    """So many rows that several threads fill, and not a multiple of anything."""
    rng = np.random.default_rng(n)
    offsets = [-40, -7, -1, 0, 1, 3, 40]
    A = sp.csr_array(sp.diags_array([rng.random(n) for _ in offsets], offsets=offsets, shape=(n, n)))
    return A.astype(dtype)


def of_nodes(n: int) -> sp.csr_array:
    """Nodes of three rows in a band, the last one cut off."""
    A = sp.csr_array(sp.kron(banded(n // 3 + 50), np.ones((3, 3))))[:n, :n]
    A.data = np.random.default_rng(n).random(A.nnz)
    return A


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("variant", ["csr", "csr16", "sell", "dia", "inode16"])
@pytest.mark.parametrize("n", [101, _ALONE // 6 + 7])
def test_values_go_where_the_layout_wants_them(variant: str, n: int, threads: int) -> None:
    matrix = Matrix.from_any(of_nodes(n) if variant == "inode16" else banded(n))
    pattern = ordered(matrix, "natural").pattern
    layout, other = (lay_out(pattern, matrix.dtype, variant, sigma=1, block=1) for _ in range(2))
    for data in (matrix.data, -3.0 * matrix.data):
        fill(layout, data, None, threads)
        other.fill(data)
        np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)
    if variant == "inode16":
        assert layout.slot is not None
        assert (np.diff(layout.slot.astype(np.int64)) != 1).any(), "they are in another order"


def test_many_values_which_are_asked_for_before_they_are_written_to() -> None:
    matrix = Matrix.from_any(banded(_FAR // 8 // 6 + 7))
    layout, other = (
        lay_out(ordered(matrix, "natural").pattern, matrix.dtype, "sell", sigma=1, block=1) for _ in range(2)
    )
    assert layout.arrays.values.nbytes > _FAR
    fill(layout, matrix.data, None, 3)
    other.fill(matrix.data)
    np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", ["csr", "sell"])
def test_values_of_rows_in_another_order(variant: str, threads: int) -> None:
    matrix = Matrix.from_any(banded(_ALONE // 6 + 7))
    where = ordered(matrix, "rcm")
    assert where.entries is not None
    layout, other = (lay_out(where.pattern, matrix.dtype, variant, sigma=1, block=1) for _ in range(2))
    fill(layout, matrix.data, where.entries, threads)
    other.fill(matrix.data[where.entries])
    np.testing.assert_array_equal(layout.arrays.values, other.arrays.values)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_values_of_all_types(dtype: Any) -> None:
    matrix = Matrix.from_any(banded(_ALONE // 6 + 7, dtype=dtype))
    layout, other = (
        lay_out(ordered(matrix, "natural").pattern, matrix.dtype, "sell", sigma=1, block=1) for _ in range(2)
    )
    fill(layout, matrix.data, None, 2)
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


@pytest.mark.parametrize("variant", ["csr", "sell", "inode"])
def test_values_that_are_not_those_of_the_layout_are_refused(variant: str) -> None:
    """Compiled code would read and write anywhere."""
    matrix = Matrix.from_any(banded(101))
    layout = lay_out(ordered(matrix, "natural").pattern, matrix.dtype, variant, sigma=1, block=1)
    for data in (matrix.data[:-1], np.append(matrix.data, 1.0), matrix.data.astype(np.float32)):
        with pytest.raises(ValueError, match="cannot take"):
            fill(layout, data, None, 1)
    with pytest.raises(ValueError, match="cannot take"):
        fill(layout, matrix.data, np.arange(3, dtype=np.uint32), 1)


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
