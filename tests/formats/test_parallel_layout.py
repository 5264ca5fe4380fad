"""Layouts made by several threads are those of one; full blocks are placed as others are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from akx.core.parallel import alone, in_pieces
from akx.formats import base, bell, dia
from akx.formats.base import Format, Pattern, in_parallel, unsigned

F64 = np.dtype(np.float64)


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads for a few chunks."""
    monkeypatch.setattr(base, "_LEAST_CHUNKS", 1)


def nodes(count: int, block: int, *, seed: int, missing: int = 0) -> sp.csr_array:
    """A matrix of dense blocks at random places, some of their cells left out, and a node without an entry."""
    rng = np.random.default_rng(seed)
    of_nodes = sp.random_array((count, count), density=min(1.0, 4.0 / count), rng=rng, format="lil")
    of_nodes[count // 2, :] = 0
    A = sp.csr_array(sp.kron(sp.csr_array(of_nodes), np.ones((block, block))))
    A.eliminate_zeros()
    keep = np.ones(A.nnz, dtype=bool)
    keep[rng.permutation(A.nnz)[:missing]] = False
    coo = A.tocoo()
    A = sp.csr_array((np.ones(int(keep.sum())), (coo.row[keep], coo.col[keep])), shape=A.shape)
    A.sort_indices()
    return A


def same(one: Format, other: Format) -> None:
    assert one.stored == other.stored
    lengths = [getattr(layout, "length", None) for layout in (one, other)]
    for a, b in zip((*one.arrays, one.slot, lengths[0]), (*other.arrays, other.slot, lengths[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def pattern_of(A: sp.csr_array, bits: int = 32) -> Pattern:
    index = np.int32 if bits == 32 else np.int64
    return Pattern(unsigned(A.indptr.astype(index)), unsigned(A.indices.astype(index)), A.shape[1])


@njit(nogil=True)
def _square(data: Any, out: Any, first: int, last: int) -> int:
    for i in range(first, last):
        out[i] += data[i] * data[i]
    return last - first


@pytest.mark.parametrize(("count", "threads"), [(0, 3), (1, 4), (7, 3), (100, 1), (100, 8)])
def test_shares_cover_everything_once_and_come_in_order(count: int, threads: int) -> None:
    data, out = np.arange(float(count)), np.zeros(count)
    sizes = in_parallel(_square, count, threads, data, out)
    np.testing.assert_array_equal(out, data**2)
    assert sum(sizes) == count
    assert len(sizes) == max(1, min(threads, count))


def test_a_few_chunks_are_no_work_for_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_LEAST_CHUNKS", 64)
    assert [len(in_parallel(lambda first, last: 0, count, 8)) for count in (127, 128, 10_000)] == [1, 2, 8]


def test_what_a_share_raises_comes_out() -> None:
    here = threading.current_thread()

    def fails(first: int, last: int) -> None:
        if threading.current_thread() is not here:
            raise ValueError(f"{first}..{last}")

    with pytest.raises(ValueError, match=r"5\.\.10"):
        in_parallel(fails, 10, 2)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("missing", [0, 1, 40])
@pytest.mark.parametrize("block", [2, 3, 6])
def test_blocks_by_several_threads(block: int, missing: int, bits: int) -> None:
    A = nodes(53, block, seed=block + missing, missing=missing)
    pattern = pattern_of(A, bits)
    one = bell.from_csr(pattern, F64, block=block, bits=16)
    same(bell.from_csr(pattern, F64, block=block, bits=16, threads=5), one)
    shape = bell.bell_shape(pattern, F64, block, threads=3)
    same(bell.from_csr(pattern, F64, block=block, bits=16, shape=shape, threads=2), one)
    assert bell.bell_slots(pattern, F64, block, shape=shape) == one.stored
    # The slots by definition: of node row R the s-th block column is J; entry (r, c) of it lies at lane R mod C.
    chunk, m = one.arrays.chunk, block
    coo = A.tocoo()
    seen: dict[int, list[int]] = {}
    for i, j in zip(coo.row, coo.col, strict=True):
        seen.setdefault(i // m, []).append(j // m)
    columns = {node: sorted(set(found)) for node, found in seen.items()}
    assert one.slot is not None
    for p, (i, j) in enumerate(zip(coo.row, coo.col, strict=True)):
        node, s = int(i) // m, columns[int(i) // m].index(int(j) // m)
        first = int(one.arrays.start[node // chunk])
        inner = (int(j) % m) * m + int(i) % m
        assert one.slot[p] == ((first + s) * m * m + inner) * chunk + node % chunk


def test_blocks_that_begin_elsewhere_are_not_taken_for_full_ones() -> None:
    """Rows of two runs of three columns, alike in all three rows, one of which lies across two blocks."""
    rows = np.repeat(np.arange(3), 6)
    columns = np.tile([0, 1, 2, 4, 5, 6], 3)
    A = sp.csr_array((np.ones(18), (rows, columns)), shape=(9, 9))
    layout = bell.from_csr(pattern_of(A), F64, block=3, bits=32)
    assert layout.arrays.start[-1] == 3, "three blocks, two of them not full"
    assert layout.slot is not None
    assert np.unique(layout.slot).size == 18


@pytest.mark.parametrize("n", [1, 31, 32, 33, 500])
def test_diagonals_by_several_threads(n: int) -> None:
    i = np.arange(n)
    rows, columns = np.concatenate([i, i[:-2], i[5:]]), np.concatenate([i, i[2:], i[:-5]])
    A = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, n))
    pattern = pattern_of(A)
    one = dia.from_csr(pattern, F64)
    same(dia.from_csr(pattern, F64, threads=4), one)
    counts = np.zeros(-(-n // dia.slice_rows(F64)), dtype=np.uint64)
    assert dia.dia_slots(pattern, F64, 2**40, counts=counts, threads=3) == one.stored
    same(dia.from_csr(pattern, F64, counts=counts, threads=2), one)
    assert dia.dia_slots(pattern, F64, 1, threads=3) > 1


def test_a_thread_that_has_no_help_does_it_all() -> None:
    def done(*_: int) -> threading.Thread:
        return threading.current_thread()

    with alone():
        assert {*in_parallel(done, 100, 4), *in_pieces(done, 100, 1)} == {threading.current_thread()}
    assert len(in_parallel(done, 100, 4)) == 4
