"""What akx is compared with: k plain products, one after another, by the best code there is for them elsewhere.

Used by ``akx bench`` and by ``benchmarks/``, so that both mean the same thing by "SciPy" and "MKL". A weak baseline
would be a defect: SciPy's compiled product is called without SciPy's checks and without its allocation of a new result,
and MKL gets its inspection and optimisation once, ahead of the clock; it also gets block CSR where the matrix has dense
blocks, and one thread where the matrix is so small that more may hinder. akx's own baseline, the ``sweep`` schedule, is
in the tuner's search space and is not made here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.operator.host_products import csr_product
from akx.report.comparison.mkl import mkl_missing, mkl_powers

__all__ = ["Baseline", "baselines", "scipy_powers"]

#: Below this number of entries a second thread may cost more than it brings.
_FEW_ENTRIES = 500_000

#: ``run(x, out)``: x of shape (n,); out of shape (k + 1, n), C-contiguous; out[j] becomes A^j x.
Baseline = Callable[[NDArray[Any], NDArray[Any]], None]


def scipy_powers(matrix: Matrix, k: int) -> Baseline:
    """k products by SciPy's compiled CSR product (one thread, as SciPy has it), straight into the rows of out."""
    n, indptr, indices, data = matrix.n, matrix.indptr, matrix.indices, matrix.data
    product = csr_product()

    def run(x: NDArray[Any], out: NDArray[Any]) -> None:
        out[0] = x
        for j in range(k):
            out[j + 1] = 0
            product(n, n, indptr, indices, data, out[j], out[j + 1])

    return run


def baselines(matrix: Matrix, k: int, threads: int) -> dict[str, Baseline]:
    """Every baseline that is installed, prepared for `matrix`: name -> ``run(x, out)``, in the monomial basis.

    Parameters
    ----------
    matrix : Matrix
        The matrix, in its natural order.
    k : int
        Number of powers, at least 1.
    threads : int
        Threads of those baselines that have any (SciPy's product has one).

    Returns
    -------
    dict of str to callable
        ``"scipy"`` always; where MKL is installed ``"mkl"``, for a small matrix also ``"mkl_1_thread"``, and for one
        with dense blocks also ``"mkl_bsr"``. None allocates in the call.
    """
    made = {"scipy": scipy_powers(matrix, k)}
    if mkl_missing() is not None:
        return made
    made["mkl"] = mkl_powers(matrix, k, threads)
    if threads > 1 and matrix.nnz < _FEW_ENTRIES:
        made["mkl_1_thread"] = mkl_powers(matrix, k, 1)
    block = matrix.features.block_size
    if block > 1 and matrix.n % block == 0:
        made["mkl_bsr"] = mkl_powers(matrix, k, threads, block)
    return made
