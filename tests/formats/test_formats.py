"""Formats: every entry in a slot of its own, padding harmless, new values by one scatter, sizes as promised."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.formats import bell, csr, dia, inode, sell
from akx.formats.base import Format, Pattern, aligned_zeros, lanes_of, unsigned

F64 = np.dtype(np.float64)


def as_pattern(A: Any) -> Pattern:
    A = sp.csr_array(A)
    A.sum_duplicates()
    return Pattern(unsigned(A.indptr), unsigned(A.indices), A.shape[1])


def test_compiled_code_is_for_patterns_of_one_kind() -> None:
    """Numba compiles a function for arrays that may be written to, and again for others."""
    given = np.array([0, 1, 2], np.uint32), np.array([0, 1], np.uint32)
    pattern = Pattern(*given, 2)
    assert not pattern.indptr.flags.writeable
    assert not pattern.indices.flags.writeable
    assert all(one.flags.writeable for one in given)
    assert np.shares_memory(pattern.indices, given[1])


def random_matrix(n: int, density: float, seed: int) -> sp.csr_array:
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed), format="csr")
    A.data = np.arange(1.0, A.nnz + 1)
    A.sort_indices()
    return A


def make(kind: str, pattern: Pattern, dtype: np.dtype[Any] = F64) -> Format:
    if kind == "csr":
        return csr.from_csr(pattern, dtype, bits=32)
    if kind == "csr16":
        return csr.from_csr(pattern, dtype, bits=16)
    if kind == "sell":
        return sell.from_csr(pattern, dtype, sigma=1, bits=32)
    if kind == "sell sorted":
        return sell.from_csr(pattern, dtype, sigma=32, bits=16)
    if kind == "dia":
        return dia.from_csr(pattern, dtype)
    if kind.startswith("inode"):
        return inode.from_csr(pattern, dtype, bits=16 if kind == "inode16" else 32)
    return bell.from_csr(pattern, dtype, block=3, bits=16)


def dense(kind: str, layout: Format, n: int) -> Any:
    """The matrix read back from the arrays by the definition of the format, padding added to where it points."""
    m, out = layout.arrays, np.zeros((n, n), dtype=layout.arrays.values.dtype)
    if kind.startswith("csr"):
        for i in range(n):
            for p in range(m.pointer[i], m.pointer[i + 1]):
                out[i, int(m.base[i // csr.GROUP]) + int(m.column[p])] += m.values[p]
    elif kind.startswith("sell"):
        for c in range(m.base.size):
            for p in range(int(m.start[c]), int(m.start[c + 1])):
                i = c * m.chunk + (p - int(m.start[c])) % m.chunk
                if i < n:
                    out[m.row[i] if m.row.size else i, int(m.base[c]) + int(m.column[p])] += m.values[p]
                else:
                    assert m.values[p] == 0
    elif kind == "dia":
        for s in range(m.edge.size):
            for d in range(int(m.start[s]), int(m.start[s + 1])):
                for r in range(m.slice):
                    i, j = s * m.slice + r, s * m.slice + r + int(m.offset[d])
                    value = m.values[d * m.slice + r]
                    if i < n and 0 <= j < n:
                        out[i, j] += value
                    else:
                        assert value == 0
                        assert m.edge[s], "only an edge slice may leave the matrix"
    elif kind.startswith("inode"):
        for g in range(m.base.size):
            p, i = int(m.first[g]), g * csr.GROUP
            for q in range(int(m.node[g]), int(m.node[g + 1])):
                for e in range(int(m.pointer[q]), int(m.pointer[q + 1])):
                    for r in range(int(m.height[q])):
                        out[i + r, int(m.base[g]) + int(m.column[e])] += m.values[p + r]
                    p += int(m.height[q])
                i += int(m.height[q])
            assert i == min(n, (g + 1) * csr.GROUP), "nodes of a group are its rows"
        assert not m.values[p:].any(), "what is loaded beyond the end"
    else:
        b = len(m.shape)
        for c in range(m.base.size):
            for s in range(int(m.start[c]), int(m.start[c + 1])):
                for lane, q, r in np.ndindex(m.chunk, b, b):
                    value = m.values[((s * b + q) * b + r) * m.chunk + lane]
                    i = (c * m.chunk + lane) * b + r
                    j = (int(m.base[c]) + int(m.column[s * m.chunk + lane])) * b + q
                    if i < n:
                        out[i, j] += value
                    else:
                        assert value == 0
    return out


@pytest.mark.parametrize("kind", ["csr", "csr16", "sell", "sell sorted", "dia", "bell", "inode", "inode16"])
@pytest.mark.parametrize(("n", "density"), [(1, 1.0), (99, 0.05), (132, 0.0), (201, 0.01)])
def test_entries_come_back(kind: str, n: int, density: float) -> None:
    n = 3 * (n // 3) if kind == "bell" and n > 2 else n
    if kind == "bell" and n % 3:
        n = 3
    A = random_matrix(n, density, 1)
    layout = make(kind, as_pattern(A))
    layout.fill(A.data)
    np.testing.assert_array_equal(dense(kind, layout, n), A.toarray())
    layout.fill(-2 * A.data)
    np.testing.assert_array_equal(dense(kind, layout, n), -2 * A.toarray())
    assert layout.nbytes >= layout.matrix_bytes >= A.nnz * 8
    assert layout.stored >= A.nnz


def test_promised_sizes() -> None:
    A = random_matrix(300, 0.03, 2)
    pattern = as_pattern(A)
    assert sell.from_csr(pattern, F64, sigma=1, bits=32).stored == sell.sell_slots(pattern, F64, 1)
    assert sell.from_csr(pattern, F64, sigma=64, bits=32).stored == sell.sell_slots(pattern, F64, 64)
    assert sell.sell_slots(pattern, F64, 64) < sell.sell_slots(pattern, F64, 1)
    assert dia.from_csr(pattern, F64).stored == dia.dia_slots(pattern, F64, 2**40)
    assert dia.dia_slots(pattern, F64, 100) > 100
    assert bell.from_csr(pattern, F64, block=3, bits=32).stored == bell.bell_slots(pattern, F64, 3)
    nodes, layout = inode.inodes(pattern, F64), inode.from_csr(pattern, F64, bits=32)
    assert layout.stored == A.nnz
    assert layout.arrays.column.size == nodes.columns <= A.nnz


def of_nodes(sizes: Any, width: int, seed: int, dtype: np.dtype[Any] = F64) -> sp.csr_array:
    """Rows of nodes, so many each, with columns anywhere that nodes next to each other do not share: `width`, or none.

    Every fifth node has none.
    """
    rng, sizes = np.random.default_rng(seed), np.asarray(sizes)
    n, rows = int(sizes.sum()), []
    for node, size in enumerate(sizes):
        count = 0 if node % 5 == 4 else min(n, 1 + (width + node) % (width + 1))
        rows += [np.sort(rng.choice(n, count, replace=False))] * int(size)
    indptr = np.concatenate([[0], np.cumsum([row.size for row in rows])])
    values = rng.integers(1, 100, indptr[-1]) * (1 + 2j if dtype.kind == "c" else 1)
    return sp.csr_array((values.astype(dtype), np.concatenate(rows), indptr), shape=(n, n))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("kind", ["inode", "inode16"])
@pytest.mark.parametrize("sizes", [[1, 6, 3, 2, 8, 5] * 9, [12, 9, 16, 17, 4], [150, 1], [7] * 30, [1] * 70, [64, 64]])
def test_nodes_are_the_rows_that_share_their_columns(sizes: list[int], kind: str, dtype: str) -> None:
    """None is longer than the kernels' nodes or crosses a group, and only for that are rows cut apart, evenly."""
    A = of_nodes(sizes, 11, 5, np.dtype(dtype))
    layout, most = make(kind, as_pattern(A), A.dtype), 4 if dtype == "complex128" else 8
    for scale in (1, -3):
        layout.fill(scale * A.data)
        np.testing.assert_array_equal(dense(kind, layout, A.shape[0]), scale * A.toarray())
    expected, row = [], 0
    for size in sizes:
        end = row + size
        while row < end:
            run = min(end, (row // csr.GROUP + 1) * csr.GROUP) - row
            pieces = -(-run // most)
            expected += sorted(run * (p + 1) // pieces - run * p // pieces for p in range(pieces))
            row += run
    height = layout.arrays.height
    at = np.concatenate([[0], np.cumsum(height, dtype=np.int64)])
    assert at[-1] == A.shape[0]
    assert height.size == len(expected)
    assert height.max() <= most
    assert sorted(height.tolist()) == sorted(expected)
    assert layout.arrays.column.size == np.diff(A.indptr)[at[:-1]].sum(), "one index for all rows of a node"
    assert layout.arrays.column.dtype == (np.uint16 if kind == "inode16" else np.uint32)
    assert layout.arrays.values.size == A.nnz + lanes_of(A.dtype)
    assert layout.align == layout.unit == csr.GROUP
    assert {array.flags.writeable for array in layout.arrays[:-2]} == {False}


def test_rows_that_differ_in_one_column_are_no_node() -> None:
    A = sp.csr_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]], float))
    assert inode.inodes(as_pattern(A), F64).height.tolist() == [1, 2, 1, 1]
    assert inode.inodes(as_pattern(A), F64).columns == 2 + 2 + 2 + 1


@pytest.mark.parametrize("seed", range(4))
def test_diagonals_of_a_slice_are_the_distinct_offsets_of_its_rows(seed: int) -> None:
    n, height = 301, dia.slice_rows(F64)
    A = random_matrix(n, 0.05, seed).tocoo()
    of_slices = {(int(i) // height, int(j) - int(i)) for i, j in zip(*A.coords, strict=True)}
    assert dia.dia_slots(as_pattern(A), F64, 2**40) == len(of_slices) * height
    offsets = dia.from_csr(as_pattern(A), F64).arrays.offset
    assert offsets.tolist() == [offset for _, offset in sorted(of_slices)]


def test_rows_without_a_diagonal_in_common_are_merged_in_linear_time() -> None:
    """Sixteen rows of 60,000 entries: two million comparisons, where inserting one by one moves ten billion offsets."""
    n, width = 2_000_000, 60_000
    dia.dia_slots(as_pattern(random_matrix(50, 0.1, 0)), F64, 2**40)  # compiled
    rng = np.random.default_rng(7)
    columns = np.concatenate([np.sort(rng.choice(n, width, replace=False)) for _ in range(16)]).astype(np.uint32)
    indptr = np.minimum(np.arange(n + 1, dtype=np.uint32), 16) * np.uint32(width)
    begin = time.perf_counter()
    slots = dia.dia_slots(Pattern(unsigned(indptr), columns, n), F64, 2**40)
    assert time.perf_counter() - begin < 3.0  # alone: 20 ms
    offsets = columns.astype(np.int64) - np.repeat(np.arange(16), width)
    assert slots == np.unique(offsets).size * dia.slice_rows(F64)


def test_a_stencil_has_no_padding_in_diagonals_but_at_the_ends() -> None:
    n = 6400
    A = sp.csr_array(sp.diags_array([1.0, 2.0, 3.0], offsets=[-80, 0, 80], shape=(n, n)))
    layout = dia.from_csr(as_pattern(A), F64)
    assert layout.stored <= A.nnz + 2 * (80 + dia.slice_rows(F64))
    low, high = dia.dia_reach(layout.arrays, n)
    middle = np.flatnonzero(~layout.arrays.edge)[5]
    first = middle * dia.slice_rows(F64)
    assert (low[middle], high[middle]) == (first - 80, first + dia.slice_rows(F64) - 1 + 80)


def test_sixteen_bits_are_refused_where_columns_are_far_apart() -> None:
    n = 70_000
    A = sp.csr_array((np.ones(4), ([0, 0, 69_999, 69_999], [0, 65_536, 3, 69_999])), shape=(n, n))
    pattern = as_pattern(A)
    assert not csr.csr_fits(pattern, 16)
    assert not sell.sell_fits(pattern, F64, 1, 16)
    assert not bell.bell_fits(as_pattern(sp.kron(A, np.ones((2, 2)))), F64, 2, 16)
    assert not csr.csr_fits(pattern, 16)
    B = sp.csr_array((np.ones(4), ([0, 0, 69_999, 69_999], [0, 65_535, 4_464, 69_999])), shape=(n, n))
    pattern = as_pattern(B)
    assert csr.csr_fits(pattern, 16)
    assert sell.sell_fits(pattern, F64, 1, 16)
    assert csr.csr_fits(pattern, 16)
    assert inode.from_csr(pattern, F64, bits=16).arrays.column.tolist() == [0, 65_535, 0, 65_535]
    assert inode.from_csr(pattern, F64, bits=16).arrays.base[-1] == 4_464
    assert csr.csr_fits(pattern, 32)


@pytest.mark.parametrize("size", [1, 63, 1000])
def test_values_begin_where_a_vector_does(size: int) -> None:
    for dtype in (np.float32, np.complex128):
        array = aligned_zeros(size, np.dtype(dtype))
        assert array.ctypes.data % 64 == 0
        assert array.dtype == dtype
        assert array.shape == (size,)
        assert array.flags.writeable
        assert not array.any()


def test_lanes() -> None:
    assert [lanes_of(np.dtype(t)) for t in ("f4", "f8", "c8", "c16")] == [16, 8, 8, 4]


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("kind", ["sell", "sorted", "bell"])
def test_padding_reads_nothing_that_its_chunk_does_not_read(kind: str, bits: int) -> None:
    """A schedule waits for the columns of a chunk's entries only, so padding must stay among them."""
    n = 360
    rng = np.random.default_rng(3)
    rows = np.repeat(np.arange(0, n, 7), 3)  # most rows are empty
    A = sp.csr_array((np.ones(rows.size), (rows, 120 + (rows + rng.integers(0, 90, rows.size)) % 240)), shape=(n, n))
    A.sum_duplicates()
    pattern = as_pattern(A)
    if kind == "bell":
        layout, block = bell.from_csr(pattern, F64, block=3, bits=bits), 3
    else:
        layout, block = sell.from_csr(pattern, F64, sigma=1 if kind == "sell" else 64, bits=bits), 1
    m = layout.arrays
    order = m.row if kind == "sorted" else np.arange(n)
    slots = np.diff(m.start.astype(np.int64)) * (m.chunk if kind == "bell" else 1)
    ends = np.cumsum(slots)
    for c, end in enumerate(ends):
        columns = int(m.base[c]) + m.column[end - slots[c] : end].astype(np.int64)
        owned = order[c * m.chunk * block : (c + 1) * m.chunk * block]
        read = {int(j) // block for i in owned for j in A.indices[A.indptr[i] : A.indptr[i + 1]]}
        assert set(columns.tolist()) <= read


@pytest.mark.parametrize("longest", [9, 70_000])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 200])
def test_rows_are_sorted_in_windows(n: int, longest: int) -> None:
    """By falling length, ties as they come; the last window has what is left."""
    rng = np.random.default_rng(n)
    lengths = rng.integers(0, 5, n) * rng.integers(1, 1 + longest // 4, n)
    pattern = Pattern(np.append(0, np.cumsum(lengths)).astype(np.uint32), np.zeros(0, np.uint32), n)
    for sigma in (1, 16, 64, 1024):
        rows = np.arange(n)
        expected = rows if sigma == 1 else np.lexsort((rows, -lengths, rows // sigma))
        np.testing.assert_array_equal(sell.order_of(pattern, sigma), expected)
