"""What parts publish without flags, on a GPU: numbers that look like what stands for nothing, and many calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx import MatrixPowers
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.variants.block_local.exchange import ABSENT
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))]


def powers(A: Any, k: int, **options: Option) -> Any:
    plan = Plan("cuda", "resident", "1x1-1", k=k, k_per_pass=k, options={"block": 256, **options})
    return MatrixPowers(Matrix.from_any(A), k, plan=plan)


def grid(n: int, dtype: str) -> Any:
    line = sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(sp.kron(line, line)).astype(dtype) / 16


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_signalling_nans_of_the_user_end_as_nans_and_nobody_waits(dtype: str, depth: int) -> None:
    """Numbers of x that are what stands for nothing: NaN where SciPy has it."""
    A, rng = grid(300, dtype), np.random.default_rng(1)
    x = rng.standard_normal(A.shape[0]).astype(dtype)
    x.view(np.uint32)[:: 6410 * 2] = ABSENT[dtype]
    x.view(np.uint32)[1 :: 6410 * 2] = ABSENT[dtype]
    found = powers(A, 7, depth=depth)(x)
    wanted = x
    for j in range(1, 8):
        with np.errstate(invalid="ignore"):
            wanted = A @ wanted
        assert np.array_equal(np.isnan(found[:, j]), np.isnan(wanted))
        there = ~np.isnan(wanted)
        assert np.allclose(found[there, j], wanted[there], rtol=1e-4 if dtype in ("float32", "complex64") else 1e-12)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("shape", ["symmetric", "one-sided"])
def test_many_calls_of_all_numbers_of_vectors(shape: str, depth: int) -> None:
    """Places are taken back from call to call, whatever vectors the last one had; some parts only read, or are read."""
    A = grid(300, "float64")
    A = A if shape == "symmetric" else sp.csr_array(sp.triu(A)) + sp.eye_array(A.shape[0], format="csr")
    call, rng = powers(A, 6, depth=depth, vectors=4), np.random.default_rng(2)
    for b in (1, 4, 7, 2, 3, 4, 1, 6, 1, 1):
        x = rng.standard_normal((A.shape[0], b))
        wanted, found = x, call(x)
        for j in range(1, 7):
            wanted = A @ wanted
            assert np.allclose(found[..., j], wanted, rtol=1e-11, atol=1e-13 * np.abs(wanted).max())
