"""Complex products, format by format: exact on small integers, at home in their range, whatever lies around it.

The products of all formats go through sums that keep the four real products of an entry apart (`simd.SumType`); with
integers every order of the additions gives the same bits, so that results are compared for equality.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from akx.backends.cpu.layout import lay_out
from akx.backends.cpu.products import product
from akx.formats.base import Format, Pattern, unsigned

DTYPES = ["complex64", "complex128"]
LAYOUTS = [("csr", 1), ("csr-ahead", 1), ("csr16", 1), ("sell", 1), ("sell16", 64), ("dia", 1)]
LAYOUTS += [("inode", 1), ("inode16", 1), ("bell16", 1)]
#: Entries that nobody may read or write, before, between and after x and y.
GUARD = 11


@njit(cache=True)
def _call(m: Any, w: Any, x: int, y: int, first: int, last: int, soon: int, lines: int) -> None:
    product(m, w, x, y, first, last, 0, soon, lines)


def integers(rng: np.random.Generator, size: int, dtype: str) -> Any:
    return (rng.integers(-9, 10, size) + 1j * rng.integers(-9, 10, size)).astype(dtype)


def some_matrix(kind: str, n: int, dtype: str) -> sp.csr_array:
    """Rows of every length from none to 12; or what diagonals, blocks of 3 or nodes of 1 to 9 rows are for.

    Some rows are empty.
    """
    rng = np.random.default_rng(n)
    if kind == "dia":
        offsets = [d for d in (-5, -1, 0, 2, 7) if abs(d) < n]
        A = sp.csr_array(sp.diags_array([np.ones(n)] * len(offsets), offsets=offsets, shape=(n, n)))
    elif kind == "bell16":
        nodes = sp.random_array((n // 3, n // 3), density=min(1, 4 / n), rng=rng)
        A = sp.csr_array(sp.kron(nodes, np.ones((3, 3))))
    else:
        rows = [rng.choice(n, min(n, int(count)), replace=False) for count in rng.permutation(np.arange(n) % 13)]
        if kind.startswith("inode"):
            rows = [rows[node] for node in np.repeat(np.arange(n), np.arange(n) % 9 + 1)[:n]]
        at = np.repeat(np.arange(n), [row.size for row in rows])
        A = sp.csr_array((np.ones(at.size), (at, np.concatenate(rows))), shape=(n, n))
    if kind == "dia" and n > 70:
        A = sp.csr_array(sp.diags_array((np.arange(n) // 40 != 1).astype(float)) @ A)
        A.eliminate_zeros()
    A.sort_indices()
    A = A.astype(dtype)
    A.data = integers(rng, A.nnz, dtype)
    return A


def laid_out(A: sp.csr_array, variant: str, sigma: int) -> Format:
    pattern = Pattern(unsigned(A.indptr), unsigned(A.indices), A.shape[1])
    layout = lay_out(pattern, A.dtype, variant, sigma=sigma, block=3)
    layout.fill(A.data)
    return layout


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("variant", "sigma"), LAYOUTS)
def test_exact_and_within_its_range(variant: str, sigma: int, dtype: str) -> None:
    for n in (1, 2, 3, 8, 33, 66, 200, 403):
        size = max(n // 3, 1) * 3 if variant == "bell16" else n
        A = some_matrix(variant, size, dtype)
        layout = laid_out(A, variant, sigma)
        rng = np.random.default_rng(size)
        source, truth = integers(rng, size, dtype), np.zeros(size, dtype)
        truth[:] = A.toarray().astype(np.clongdouble) @ source.astype(np.clongdouble)
        x, y = GUARD, 2 * GUARD + size
        w = np.full(y + size + GUARD, np.nan + 1j * np.nan, dtype)
        w[x : x + size] = source
        step = layout.align * max(1, size // (2 * layout.align))
        for first in range(0, size, step):
            expected = w.copy()
            last = min(size, first + step)
            expected[y + first : y + last] = truth[first:last]
            _call(layout.arrays, w, x, y, first, last, 0, first % 3)
            np.testing.assert_array_equal(w, expected, f"{size} rows, from {first}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("variant", "sigma"), [case for case in LAYOUTS if case[0] != "dia"])
def test_nothing_is_read_but_what_the_entries_name(variant: str, sigma: int, dtype: str) -> None:
    """Columns without entries may hold anything, as they do while another thread has yet to make them."""
    n = 201
    A = some_matrix(variant, n, dtype)
    if variant != "bell16":
        A = sp.csr_array(A @ sp.diags_array((np.arange(n) % 4 != 1).astype(dtype)))
        A.eliminate_zeros()
    A.sort_indices()
    layout = laid_out(A, variant, sigma)
    unread = np.setdiff1d(
        np.arange(n), A.indices // 3 * 3 + np.arange(3)[:, None] if variant == "bell16" else A.indices
    )
    assert unread.size
    source = integers(np.random.default_rng(1), n, dtype)
    expected = A @ source
    source[unread] = np.nan
    w = np.concatenate([source, np.full(n, np.nan, dtype)])
    _call(layout.arrays, w, 0, n, 0, n, 0, 0)
    np.testing.assert_array_equal(w[n:], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_imaginary_unit(dtype: str) -> None:
    """i times i is -1, and i times 1 is i, in every lane and in the entries left over."""
    n = 37
    for count in range(1, 10):
        at, columns = np.repeat(np.arange(n), count), (np.arange(n)[:, None] + np.arange(count)).ravel() % n
        A = sp.csr_array((np.full(n * count, 1j, dtype), (at, columns)), shape=(n, n))
        A.sort_indices()
        for variant, sigma in LAYOUTS[:-1]:
            layout = laid_out(A, variant, sigma)
            for value in (1j, 1, 1 - 1j):
                w = np.full(2 * n, value, dtype)
                _call(layout.arrays, w, 0, n, 0, n, 0, 0)
                np.testing.assert_array_equal(w[n:], np.full(n, count * 1j * value, dtype))
