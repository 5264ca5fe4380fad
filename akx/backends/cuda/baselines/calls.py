"""k products by every algorithm of cuSPARSE there is, to be timed beside akx; what is missing is said."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.baselines.bsr import BsrPowers, bsr_algorithms
from akx.backends.cuda.baselines.cusparse import ALGORITHMS, CusparsePowers, cusparse_missing
from akx.backends.cuda.baselines.spmvop import CusparseOpPowers, op_algorithms, spmvop_note
from akx.backends.cuda.device.memory import to_device
from akx.backends.cuda.timing import DeviceCall
from akx.backends.program import as_coefficients
from akx.backends.reference import Reference, reference
from akx.core.errors import AkxError, VerificationError
from akx.core.matrix import Matrix

__all__ = ["calls", "notes", "powers"]

_IN_GRAPH = "{k} products in a CUDA graph"
_DETAILS = {
    "cusparse_alg1": f"CSR algorithm 1, preprocessed, {_IN_GRAPH}",
    "cusparse_alg2": f"CSR algorithm 2, preprocessed, {_IN_GRAPH}",
    "cusparse_bsr": f"blocks of one size by bsrmv, {_IN_GRAPH}",
    "cusparse_bsr_alg1": f"blocks of one size by SpMV, {_IN_GRAPH}",
    "cusparse_op": f"SpMVOp, planned ahead, {_IN_GRAPH}",
    "cusparse_op1": f"SpMVOp algorithm 1, planned ahead, {_IN_GRAPH}",
    "cusparse_op2": f"SpMVOp algorithm 2, planned ahead, {_IN_GRAPH}",
}


def powers(matrix: Matrix, x: NDArray[Any], k: int, wanted: Reference | None = None) -> dict[str, CusparsePowers]:
    """Each algorithm of cuSPARSE that takes the matrix, on vectors of its own, run once and right.

    One that fails, or gives a wrong last vector, is left out with a RuntimeWarning.

    Parameters
    ----------
    matrix : Matrix
    x : (n,) array
    k : int
        Products, one after another.
    wanted : Reference, optional
        The reference of the k products, where it is known.
    """
    made: dict[str, CusparsePowers] = {}
    for name, kind in _kinds(matrix):
        try:
            if wanted is None:
                coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
                wanted = reference(matrix, x[None, :], coefficients)
            made[name] = _checked(kind, matrix, x, name, wanted)
        except AkxError as failure:
            what = _DETAILS[name].partition(",")[0]
            warnings.warn(f"cuSPARSE's {what} ({name}) is not compared: {failure}", RuntimeWarning, stacklevel=2)
    return made


def calls(matrix: Matrix, x: NDArray[Any], k: int) -> dict[str, tuple[Callable[[], object], str]]:
    """Those of :func:`powers`: the work to be timed by events, and how it works."""
    made = powers(matrix, x, k)
    return {name: (DeviceCall(one.run, one.repeated, k), _DETAILS[name].format(k=k)) for name, one in made.items()}


def _kinds(matrix: Matrix) -> Iterator[tuple[str, type[CusparsePowers]]]:
    """Names of the algorithms there are, and the class of each."""
    if cusparse_missing() is not None:
        return
    yield from ((name, CusparsePowers) for name in ALGORITHMS)
    yield from ((name, BsrPowers) for name in bsr_algorithms(matrix))
    yield from ((name, CusparseOpPowers) for name in op_algorithms())


def _checked(
    kind: type[CusparsePowers], matrix: Matrix, x: NDArray[Any], name: str, wanted: Reference
) -> CusparsePowers:
    """One algorithm, run once from a poisoned output. Raises AkxError where a result is wrong."""
    k, last = wanted.powers.shape[0] - 1, Reference(wanted.powers[-1:], wanted.bound[-1:])
    held = to_device(_aligned_result(matrix, x, k))
    made = kind(matrix, held, name)
    try:
        made.run()
        error = last.error_ratio(held.view(k * held.shape[-1], (1, 1, matrix.n)).get())
        if not error <= 1:
            what = f"{error:.3g} times it"
            raise VerificationError("a wrong result", expected="an error within the bound", found=what)
    except BaseException:
        with contextlib.suppress(AkxError):
            made.close()
        raise
    return made


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
