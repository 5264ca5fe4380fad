"""Products of blocks by machine code of their own: right, with the bits of SciPy's, and made when that has paid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import _sparsetools

import akx
from akx.operator import blocks, products, tiers

TYPES = [(number, index) for number in (np.float64, np.float32) for index in (np.int32, np.int64)]


def random_arrays(n: int, number: Any = float, index: Any = np.int32) -> tuple[Any, ...]:
    A = sp.random_array((n, n), density=min(1.0, 4 / n), rng=np.random.default_rng(n), format="csr")
    A = (A - 0.5 * sp.eye_array(n, format="csr")[:, ::-1]).tocsr() if n > 20 else A  # no order, and empty rows else
    return A.indptr.astype(index), A.indices.astype(index), A.data.astype(number)


@pytest.mark.parametrize(("number", "index"), TYPES)
@pytest.mark.parametrize("vectors", [1, 5, 8])
@pytest.mark.parametrize(("n", "short"), [(1, 1e9), (7, 1e9), (8, 0), (9, 0), (64, 1e9), (203, 1e9)])
def test_blocks_have_the_bits_of_each_vector_alone(
    number: Any, index: Any, vectors: int, n: int, short: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_SHORT", short)  # all powers by one call, or each by its own
    A = random_arrays(n, number, index)
    assert blocks.fits_blocks(A, np.dtype(number))
    code = blocks.block_code(A)
    assert code is not None
    powers = np.full((4, vectors + 2, n), np.nan, dtype=number)  # a part of more
    part = powers[:, 1:-1]
    part[0] = np.random.default_rng(1).uniform(-1, 1, (vectors, n))
    blocks.block_powers(code, A, part)
    assert np.isnan(powers[:, [0, -1]]).all(), "nothing is written beside it"
    for i in range(vectors):
        alone = np.zeros((4, n), dtype=number)
        alone[0] = part[0, i]
        products._apart(A, alone, None, is_zero=True)
        np.testing.assert_array_equal(part[:, i], alone)


def test_other_types_have_no_code() -> None:
    indptr, indices, data = random_arrays(30)
    assert not blocks.fits_blocks((indptr, indices, data), np.dtype(complex))
    assert not blocks.fits_blocks((indptr, indices, data.astype(np.float32)), np.dtype(float))
    assert not blocks.fits_blocks((indptr, indices.astype(np.int64), data), np.dtype(float))
    assert not blocks.fits_blocks((indptr, indices, np.repeat(data, 2)[::2]), np.dtype(float))


def test_an_llvm_that_cannot_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("LLVM IR parsing error")

    monkeypatch.setattr(blocks, "_made", fail)
    blocks._compiled.cache_clear()
    try:
        assert blocks.block_code(random_arrays(30)) is None
    finally:
        blocks._compiled.cache_clear()


@pytest.mark.parametrize(("number", "index"), TYPES)
def test_where_scipy_rounds_otherwise_there_is_no_code(
    number: Any, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its compiler has contracted multiplications and additions."""
    given: list[Any] = []

    def contracted(n: int, _: int, indptr: Any, indices: Any, data: Any, x: Any, y: Any) -> None:
        given[:] = indices.dtype, data.dtype
        for i in range(n):
            row = slice(indptr[i], indptr[i + 1])
            y[i] += np.dot(data[row].astype(np.longdouble), x[indices[row]])

    blocks._compiled.cache_clear()
    assert blocks.block_code(random_arrays(30, number, index)) is not None
    monkeypatch.setattr(_sparsetools, "csr_matvec", contracted)
    blocks._compiled.cache_clear()
    try:
        assert blocks.block_code(random_arrays(30, number, index)) is None
        assert given == [index, number]
    finally:
        blocks._compiled.cache_clear()


@pytest.mark.parametrize("vectors", [3, 5, 21])
def test_code_is_made_after_so_many_products_and_changes_no_bit(vectors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_PREPARE", raising=False)
    tiers.forget()
    made: list[Any] = []
    real = blocks.block_code
    monkeypatch.setattr(products, "block_code", lambda *given: made.append(1) or real(*given))
    monkeypatch.setattr(products, "_done", 0)
    indptr, indices, data = random_arrays(300)
    A, X = sp.csr_array((data, indices, indptr), shape=(300, 300)), np.random.default_rng(2).random((300, vectors))
    monkeypatch.setattr(products, "_COMPILED", 2 * A.nnz * 3 * vectors)
    V = [akx.matrix_powers(A, X, 3) for _ in range(4)]
    assert len(made) == 2
    for other in V[1:]:
        np.testing.assert_array_equal(other, V[0])
    monkeypatch.setattr(products, "_SHARED", 1)
    np.testing.assert_array_equal(akx.matrix_powers(A, X, 3, threads=2), V[0])
    np.testing.assert_array_equal(akx.matrix_powers(A, X, 3, out=np.empty((300, vectors, 4), order="F")), V[0])


def test_blocks_of_a_matrix_in_a_cache_are_never_prepared_and_others_when_that_has_paid() -> None:
    small, large = (tiers.Rent(lambda: None, size, 12 * size, 0.0) for size in (10**5, 10**8))
    assert all(small.goes_on(8, 64, in_blocks=True) for _ in range(1000))
    assert small._lost == 0
    assert sum(large.goes_on(8, 64, in_blocks=True) for _ in range(1000)) < 20
    one = tiers.Rent(lambda: None, 10**8, 12 * 10**8, 0.0)
    one.goes_on(8)
    other = tiers.Rent(lambda: None, 10**8, 12 * 10**8, 0.0)
    other.goes_on(8, 16, in_blocks=True)
    assert one._lost < other._lost < 2 * one._lost, "the matrix comes twice, and products are as quick"
