"""Powers of groups of vectors: right, with the bits of each vector alone, and made when that has paid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import _sparsetools

import akx
from akx.backends.cpu import spmm as groups
from akx.core.basis import Basis
from akx.core.plan import Plan
from akx.operator import host_products, tiers

NUMBERS = np.float64, np.float32, np.complex128, np.complex64
TYPES = [(number, index) for number in NUMBERS for index in (np.int32, np.int64)]


#: a, b and c of three powers.
BASES = {
    "monomial": None,
    "newton": Basis("newton", np.full(3, 0.7), np.array([0.3, -0.2, 0.5]), np.array([0.0, 0.0, 0.4])),
    "chebyshev": Basis("chebyshev", np.array([0.5, 1.0, 1.0]), np.full(3, 0.1), np.array([0.0, -1.0, -1.0])),
}


def random_arrays(n: int, number: Any = float, index: Any = np.int32) -> tuple[Any, ...]:
    A = sp.random_array((n, n), density=min(1.0, 4 / n), rng=np.random.default_rng(n), format="csr")
    A = (A - 0.5 * sp.eye_array(n, format="csr")[:, ::-1]).tocsr() if n > 20 else A  # no order, and empty rows else
    return A.indptr.astype(index), A.indices.astype(index), (A.data * some(1, number)).astype(number)


def some(shape: Any, number: Any) -> Any:
    rng = np.random.default_rng(1)
    real = rng.uniform(-1, 1, shape)
    return (real + 1j * rng.uniform(-1, 1, shape) if np.dtype(number).kind == "c" else real).astype(number)


@pytest.mark.parametrize(("number", "index"), [(np.float64, np.int64), *((one, np.int32) for one in NUMBERS)])
@pytest.mark.parametrize("kind", ["monomial", "chebyshev"])
@pytest.mark.parametrize(("vectors", "lanes"), [(1, 8), (3, 4), (4, 4), (8, 8), (11, 16), (16, 16), (19, 8)])
@pytest.mark.parametrize(("n", "short"), [(1, 1e9), (9, 0), (203, 1e9)])
def test_groups_have_the_bits_of_each_vector_alone(
    number: Any, index: Any, kind: str, vectors: int, lanes: int, n: int, short: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_SHORT", short)  # all powers by one call, or each by its own
    A, basis = random_arrays(n, number, index), BASES[kind]
    assert groups.fits_groups(A, np.dtype(number))
    code = groups.group_code(A, recurs=basis is not None, lanes=lanes)
    assert code is not None
    powers = np.full((4, vectors + 2, n), np.nan, dtype=number)  # a part of more
    part = powers[:, 1:-1]
    part[0] = some((vectors, n), number)
    factors = None if basis is None else groups.coefficient_rows(basis, 3, np.dtype(number))
    work = np.full(groups.work_size(n, np.dtype(number), lanes), np.nan, dtype=number)
    groups.group_powers(code, A, part, work, factors)
    again, part[1:] = part.copy(), np.nan
    for order in "CF":  # side by side, and one after another
        begin, part[:] = np.asarray(again[0].T, order=order).T, np.nan
        groups.group_powers(code, A, part, work, factors, begin)
        np.testing.assert_array_equal(part, again)
    assert np.isnan(powers[:, [0, -1]]).all(), "nothing is written beside it"
    for i in range(vectors):
        alone = np.zeros((4, n), dtype=number)
        alone[0] = part[0, i]
        host_products._apart(A, alone, basis, is_zero=True)
        if code.is_exact:
            np.testing.assert_array_equal(part[:, i], alone)
        else:
            np.testing.assert_allclose(part[:, i], alone, rtol=1e-5)


def test_rows_of_a_wider_array_are_read_where_they_are_theirs() -> None:
    """Also where the last one ends with the memory, and where they come backwards."""
    A = random_arrays(31)
    wide, code = some((31, 7), float), groups.group_code(A)
    assert code is not None
    for start in (wide[:, 4:].T, wide[::-1, 4:].T, np.repeat(wide, 2, axis=0)[::2, :3].T):
        powers = np.full((3, 3, 31), np.nan)
        groups.group_powers(code, A, powers, np.full(groups.work_size(31, powers.dtype), np.nan), None, start)
        for i in range(3):
            alone = np.zeros((3, 31))
            alone[0] = start[i]
            host_products._apart(A, alone, None, is_zero=True)
            np.testing.assert_allclose(powers[:, i], alone, rtol=1e-13 * (not code.is_exact))


def test_other_types_have_no_code() -> None:
    indptr, indices, data = random_arrays(30)
    assert not groups.fits_groups((indptr, indices, data), np.dtype(complex))
    assert not groups.fits_groups((indptr, indices.astype(np.int16), data), np.dtype(float))
    assert not groups.fits_groups((indptr, indices, data.astype(np.float32)), np.dtype(float))
    assert not groups.fits_groups((indptr, indices.astype(np.int64), data), np.dtype(float))
    assert not groups.fits_groups((indptr, indices, np.repeat(data, 2)[::2]), np.dtype(float))


def test_an_llvm_that_cannot_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("LLVM IR parsing error")

    monkeypatch.setattr(groups, "_made", fail)
    groups._compiled.cache_clear()
    try:
        assert groups.group_code(random_arrays(30)) is None
    finally:
        groups._compiled.cache_clear()


@pytest.mark.parametrize(("number", "index"), TYPES)
def test_where_scipy_rounds_otherwise_first_calls_have_no_code(
    number: Any, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its compiler has contracted multiplications and additions."""
    given: list[Any] = []

    def contracted(n: int, _: int, indptr: Any, indices: Any, data: Any, x: Any, y: Any) -> None:
        given[:] = indices.dtype, data.dtype
        for i in range(n):
            row = slice(indptr[i], indptr[i + 1])
            y[i] += np.dot(
                data[row].astype(np.clongdouble if data.dtype.kind == "c" else np.longdouble), x[indices[row]]
            )

    groups._compiled.cache_clear()
    monkeypatch.setattr(_sparsetools, "csr_matvec", contracted)
    try:
        code = groups.group_code(random_arrays(30, number, index))
        assert code is not None
        assert not code.is_exact
        monkeypatch.setattr(host_products, "_done", host_products._COMPILED)
        assert (
            host_products._code_for(random_arrays(30, number, index), np.zeros((2, 8, 30), dtype=number), None, 1)
            is None
        )
        assert given == [index, number]
    finally:
        groups._compiled.cache_clear()


@pytest.mark.parametrize("vectors", [2, 3, 5, 9, 21])
def test_code_is_made_after_so_many_products_and_changes_no_bit(vectors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_PREPARE", raising=False)
    tiers.forget()
    made: list[Any] = []
    real = groups.group_code
    monkeypatch.setattr(host_products, "group_code", lambda *given, **named: made.append(1) or real(*given, **named))
    monkeypatch.setattr(host_products, "_done", 0)
    indptr, indices, data = random_arrays(300)
    A, X = sp.csr_array((data, indices, indptr), shape=(300, 300)), np.random.default_rng(2).random((300, vectors))
    monkeypatch.setattr(host_products, "_OF_TWO", 1)
    monkeypatch.setattr(host_products, "_COMPILED", 2 * A.nnz * 3 * vectors)
    V = [akx.matrix_powers(A, X, 3) for _ in range(4)]
    assert len(made) == (4 if vectors % 8 in (1, 2, 3, 4) and vectors > 8 else 2)
    for other in V[1:]:
        np.testing.assert_array_equal(other, V[0])
    monkeypatch.setattr(host_products, "_SHARED", 1)
    np.testing.assert_array_equal(akx.matrix_powers(A, X, 3, threads=2), V[0])
    np.testing.assert_array_equal(akx.matrix_powers(A, X, 3, out=np.empty((300, vectors, 4), order="F")), V[0])


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", list(BASES))
@pytest.mark.parametrize(("vectors", "threads"), [(3, 2), (8, 1), (19, 1), (21, 3)])
def test_products_of_a_plan_have_the_bits_of_each_vector_alone(
    number: Any, kind: str, vectors: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_LONG", 1)  # sixteen at once, where a thread has more than eight
    indptr, indices, data = random_arrays(203, number)
    A, basis = sp.csr_array((data, indices, indptr), shape=(203, 203)), BASES[kind] or "monomial"
    plan = Plan("cpu", "sweep", "csr", k=3, threads=threads)
    P = akx.MatrixPowers(A, 3, plan=plan, basis=basis)
    X = some((203, vectors), number)
    V = P(X)
    matrix = akx.Matrix.from_any(A)
    for i in range(vectors):
        alone = np.zeros((4, 203), dtype=number)
        alone[0] = X[:, i]
        host_products._apart((matrix.indptr, matrix.indices, matrix.data), alone, BASES[kind], is_zero=True)
        np.testing.assert_array_equal(V[:, i].T, alone)
    out = np.full((203, vectors, 4), np.nan, dtype=number, order="F")
    assert P(np.asfortranarray(X), out=out) is out
    np.testing.assert_array_equal(out, V)
    out[..., 1:] = np.nan
    np.testing.assert_array_equal(P(out[..., 0], out=out), V)
    begin = out.reshape(-1, order="F")[: X.size].reshape(X.shape)  # the same memory, in another order
    begin[...] = X
    assert np.shares_memory(begin, out)
    np.testing.assert_array_equal(P(begin, out=out), V)
    P.update_values(0 * A)
    b = P.basis.b[0].astype(number)
    np.testing.assert_array_equal(P(X)[..., 1], b * X)


def test_two_vectors_are_a_group_where_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_products, "_done", host_products._COMPILED)
    A = random_arrays(300)
    short = host_products._OF_TWO // A[1].size
    found = [host_products._code_for(A, np.zeros((k + 1, 2, 300)), None, 1) for k in (short, short + 1)]
    assert found[0] is None
    assert found[1] is None or found[1].lanes == 4
    if groups.group_code(A, lanes=4).is_exact:  # type: ignore[union-attr]
        assert found[1] is not None


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_not_finite_is_seen(number: Any) -> None:
    v = np.ones((2, 30), dtype=number)
    assert host_products.is_finite(v, v)
    large = np.finfo(v.dtype).max * v  # whose inner product overflows
    assert host_products.is_finite(large, large)
    for wrong in (np.nan, np.inf, *((1j * np.nan, 1j * np.inf) if v.dtype.kind == "c" else ())):
        w = v.copy()
        w[1, 7] = wrong
        assert not host_products.is_finite(v, w)
        assert not host_products.is_finite(w, w)


def test_groups_of_a_matrix_in_a_cache_are_never_prepared_and_others_when_that_has_paid() -> None:
    small, large = (tiers.Rent(lambda: None, size, 12 * size, 0.0) for size in (10**5, 10**8))
    assert all(small.goes_on(8, 64, in_groups=True) for _ in range(1000))
    assert small._lost == 0
    assert sum(large.goes_on(8, 64, in_groups=True) for _ in range(1000)) < 20
    one = tiers.Rent(lambda: None, 10**8, 12 * 10**8, 0.0)
    one.goes_on(8)
    other = tiers.Rent(lambda: None, 10**8, 12 * 10**8, 0.0)
    other.goes_on(8, 16, in_groups=True)
    assert one._lost < other._lost < 2 * one._lost, "the matrix comes twice, and products are as quick"
