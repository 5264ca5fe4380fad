"""The baselines are right for every dtype and index type, and MKL is driven through its fast path."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.operator import host_products
from akx.report.comparison import baselines as module
from akx.report.comparison.baselines import baselines
from akx.report.comparison.mkl import mkl_missing, mkl_powers, mkl_version

needs_mkl = pytest.mark.skipif(mkl_missing() is not None, reason="MKL is not installed")


def _matrix(dtype: Any, n: int = 300) -> sp.csr_array:
    rng = np.random.default_rng(7)
    values = sp.random_array((n, n), density=0.02, rng=rng, format="csr")
    if np.dtype(dtype).kind == "c":
        values = values * (1 + 0.5j)
    return sp.csr_array(values.astype(dtype))


def _check(run: Any, A: sp.csr_array, k: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(A.shape[0]).astype(A.dtype)
    out = np.full((k + 1, A.shape[0]), np.nan, dtype=A.dtype)
    run(x, out)
    expected = x.astype(np.complex128)
    wide = A.astype(np.complex128)
    for j in range(k + 1):
        assert np.abs(out[j] - expected).max() <= 50 * np.finfo(A.dtype).eps * max(1.0, np.abs(expected).max())
        expected = wide @ expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_every_baseline_is_right_in_every_dtype(dtype: Any) -> None:
    A = _matrix(dtype)
    made = baselines(Matrix.from_any(A), 4, 2)
    assert list(made) == (["scipy"] if mkl_missing() else ["scipy", "mkl", "mkl_1_thread"])
    for run in made.values():
        _check(run, A, 4)
        _check(run, A, 4)  # a second run starts from what the first left in its arrays


def test_scipy_without_its_private_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "csr_product", lambda: host_products._added)
    A = _matrix(np.float64)
    _check(module.scipy_powers(Matrix.from_any(A), 3), A, 3)


@needs_mkl
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_mkl_takes_64_bit_indices(dtype: Any) -> None:
    A = _matrix(dtype)
    small = Matrix.from_any(A)
    wide = Matrix(small.indptr.astype(np.int64), small.indices.astype(np.int64), small.data, pattern_cache={})
    _check(mkl_powers(wide, 3, 1), A, 3)


@needs_mkl
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_mkl_gets_block_csr_where_there_are_dense_blocks(dtype: Any) -> None:
    A = sp.csr_array(sp.kron(_matrix(dtype, n=80), np.arange(1.0, 10.0).reshape(3, 3)).astype(dtype))
    made = baselines(Matrix.from_any(A), 3, 2)
    assert "mkl_bsr" in made
    _check(made["mkl_bsr"], A, 3)


@needs_mkl
def test_mkl_keeps_its_arrays_alive_and_lets_go_of_them() -> None:
    A = _matrix(np.float64)
    run = mkl_powers(Matrix.from_any(A), 3, 2)
    gc.collect()
    _check(run, A, 3)
    del run
    gc.collect()
    assert mkl_version() is not None


@needs_mkl
def test_mkl_empty_rows_and_one_row() -> None:
    A = sp.csr_array((np.array([2.0]), np.array([1]), np.array([0, 0, 1, 1])), shape=(3, 3))
    _check(mkl_powers(Matrix.from_any(A), 2, 2), A, 2)
    one = sp.csr_array(np.array([[3.0]]))
    _check(mkl_powers(Matrix.from_any(one), 2, 2), one, 2)
