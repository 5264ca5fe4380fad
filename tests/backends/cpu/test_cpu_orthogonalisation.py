"""Products and replacement of the last rows in one pass: against NumPy, every type, odd sizes, one thread and two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from akx.backends.cpu.vectors import orthogonalisation as blocks
from akx.backends.cpu.vectors.numpy_vectors import NumpyBlocks
from akx.backends.cpu.vectors.orthogonalisation import BlockWork

TYPES = [np.float32, np.float64, np.complex64, np.complex128]


def rows(m: int, n: int, dtype: Any, seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((m, n))
    if np.dtype(dtype).kind == "c":
        W = W + 1j * rng.standard_normal((m, n))
    return np.ascontiguousarray(W.astype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("threads", [0, 1, 2], ids=["numpy", "alone", "shared"])
@pytest.mark.parametrize("n", [1, 15, 1037, 4100])
def test_against_numpy(monkeypatch: pytest.MonkeyPatch, dtype: Any, threads: int, n: int) -> None:
    monkeypatch.setattr(blocks, "SHARED_BYTES", 0)
    near = {"rtol": 0, "atol": (200 + 10 * n) * float(np.finfo(dtype).eps)}
    for k, s in ((0, 1), (0, 3), (5, 1), (6, 4), (3, 6), (17, 8), (2, 11)):
        W = rows(k + s + 2, n, dtype)
        before = W.astype(complex)
        work = BlockWork(W, threads) if threads else NumpyBlocks(W)
        np.testing.assert_allclose(work.products(k, s), before[: k + s].conj() @ before[k : k + s].T, **near)
        F = rows(k + s, s, dtype, 1) / np.asarray(k + s, dtype=dtype)
        check = s % 2 == 0
        found = work.replace(k, s, F, check=check)
        expected = before.copy()
        expected[k : k + s] = F.T.astype(complex) @ before[: k + s]
        np.testing.assert_allclose(W, expected, **near)
        if check:
            np.testing.assert_allclose(found, expected[: k + s].conj() @ expected[k : k + s].T, **near)
        x, y = rows(1, n, dtype, 2)[0], rows(1, k + s, dtype, 3)[0]
        sum_of_all = x + y.astype(complex) @ W[: k + s].astype(complex)
        work.add(y, x)
        np.testing.assert_allclose(x, sum_of_all, **near)


def test_rows_behind_are_neither_read_nor_written() -> None:
    W = rows(9, 500, float)
    W[6:] = np.nan
    work = BlockWork(W, 1)
    assert np.isfinite(work.products(3, 3)).all()
    assert np.isfinite(work.replace(3, 3, np.ones((6, 3)), check=True)).all()
    assert np.isfinite(W[:6]).all()
    assert np.isnan(W[6:]).all()


def test_the_same_bits_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SHARED_BYTES", 0)
    W = rows(20, 30011, float)
    work = BlockWork(W, 2)
    first = work.products(13, 6)
    for _ in range(5):
        np.testing.assert_array_equal(work.products(13, 6), first)
