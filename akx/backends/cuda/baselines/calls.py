"""k products by every algorithm of cuSPARSE there is, to be timed beside akx; what is missing is said."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends import reference
from akx.backends.cuda.baselines.cusparse import ALGORITHMS, CusparsePowers, cusparse_missing
from akx.backends.cuda.baselines.spmvop import KNOWN, OP_ALGORITHMS, CusparseOpPowers, spmvop, spmvop_note
from akx.backends.cuda.device.memory import to_device
from akx.backends.cuda.timing import DeviceCall
from akx.backends.program import as_coefficients
from akx.core.errors import AkxError, VerificationError
from akx.core.matrix import Matrix

__all__ = ["calls", "notes"]

_DETAILS = {
    "cusparse_alg1": "CSR algorithm 1, preprocessed, {k} products in a CUDA graph",
    "cusparse_alg2": "CSR algorithm 2, preprocessed, {k} products in a CUDA graph",
    "cusparse_op1": "SpMVOp algorithm 1, planned ahead, {k} products in a CUDA graph",
    "cusparse_op2": "SpMVOp algorithm 2, planned ahead, {k} products in a CUDA graph",
}


def calls(matrix: Matrix, x: NDArray[Any], k: int) -> dict[str, tuple[Callable[[], object], str]]:
    """Each algorithm of cuSPARSE for CSR, on vectors of its own: the work to be timed, and how it works.

    Parameters
    ----------
    matrix : Matrix
    x : (n,) array
    k : int
        Products, one after another.
    """
    made: dict[str, tuple[Callable[[], object], str]] = {}
    for name in ALGORITHMS if cusparse_missing() is None else ():
        powers = CusparsePowers(matrix, to_device(_aligned_result(matrix, x, k)), name)
        made[name] = DeviceCall(powers.run, powers.repeated, k), _DETAILS[name].format(k=k)
    for name in OP_ALGORITHMS if spmvop() == KNOWN else ():
        try:
            checked = _checked_op(matrix, x, k, name)
        except AkxError as failure:
            warnings.warn(f"cusparseSpMVOp ({name}) is not compared: {failure}", RuntimeWarning, stacklevel=2)
        else:
            made[name] = DeviceCall(checked.run, checked.repeated, k), _DETAILS[name].format(k=k)
    return made


def _checked_op(matrix: Matrix, x: NDArray[Any], k: int, name: str) -> CusparseOpPowers:
    """k products by ``cusparseSpMVOp``, run once from a poisoned output. Raises AkxError where a result is wrong."""
    held = to_device(_aligned_result(matrix, x, k))
    powers = CusparseOpPowers(matrix, held, name)
    try:
        powers.run()
        found = np.ascontiguousarray(held.get()[:, :, : matrix.n])
        coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
        error = float(reference.error_ratio(matrix, found, x[None, :], coefficients))
        if not error <= 1:
            what = f"{error:.3g} times it"
            raise VerificationError("a wrong result", expected="an error within the bound", found=what)
    except BaseException:
        with contextlib.suppress(AkxError):
            powers.close()
        raise
    return powers


def notes() -> tuple[str, ...]:
    """What a comparison lacks, and what to do."""
    lacking, beyond = cusparse_missing(), spmvop_note()
    missing = () if lacking is None else (f"cuSPARSE is not installed, so it is not compared: {lacking}",)
    return missing if beyond is None else (*missing, beyond)


def _aligned_result(matrix: Matrix, x: NDArray[Any], k: int) -> NDArray[Any]:
    """x and NaN, (k+1, 1, n or a little more): vectors begin at multiples of 256 bytes, as those of cuSPARSE may."""
    padded = -(-matrix.n * matrix.dtype.itemsize // 256) * 256 // matrix.dtype.itemsize
    out = np.full((k + 1, 1, padded), np.nan, dtype=matrix.dtype)
    out[0, 0, : matrix.n] = x
    return out
