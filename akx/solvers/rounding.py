"""What rounding errors may hide of a residual, and the residual without them.

b - A x computed in the precision of x, of unit eps, is off by about eps || |A| |x| || (Higham 2002, sec. 3.5). Where A
is nearly singular and x large that may be above a tolerance that the computed residual meets, which then says nothing.
So a residual that meets it is taken as it is where

    10 eps || |A| |x| || <= tolerance,

first of all by the bound sqrt(nnz) max |a_ij| || x ||, which costs nothing; else it is computed again in the next wider
type, on the host: double for single precision, the processor's extended one for double. Where a machine has no such
type (long double is double with some compilers and processors) it stays as it is.

Words moved: none for most systems; else 2 products, and where they leave a doubt about 8 more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.solvers.scaling import eps_of, norm_of

__all__ = ["confirmed", "size_of_terms"]

#: What rounding errors may come to is no matter below the tolerance over this.
_SAFE = 10
#: Entries of A in a wider type at a time.
_PART = 1 << 20
_WIDER = {"f": np.float64, "F": np.complex128, "d": np.longdouble, "D": np.clongdouble}


def confirmed(system: Any, norm: float, x: Any, r: Any, b: Any = None, tolerance: float | None = None) -> float:
    """The norm of b - A x, computed as r with that `norm`; r itself is made right where the norm has to be.

    Only a norm that meets the tolerance is looked at. `b` and `tolerance` are the system's where they are not given.
    """
    matrix, work, b = system.matrix, system.work, system.b if b is None else b
    dtype, tolerance = matrix.dtype, system.target if tolerance is None else tolerance
    wider, eps = np.dtype(_WIDER[dtype.char]), eps_of(dtype)
    least = tolerance / (_SAFE * eps)
    if not norm <= tolerance or matrix.nnz**0.5 * float(matrix.largest) * float(work.norm(x)) <= least:
        return norm
    of_x = work.to_host(x)
    if eps_of(wider) == eps or size_of_terms(matrix.to_scipy(), of_x) <= least:
        return norm
    found = _residual(matrix, work.to_host(b), of_x, wider)
    r[:] = work.from_host(found.astype(dtype))
    return float(np.sqrt(np.vdot(found, found).real))


def size_of_terms(A: Any, x: NDArray[Any], b: NDArray[Any] | None = None) -> float:
    """|| |A| |x| + |b| ||: times eps what rounding errors of b - A x, or of A x, come to."""
    moduli = abs(A) @ np.abs(x)
    return norm_of(moduli if b is None else moduli + np.abs(b))


def _residual(matrix: Matrix, b: NDArray[Any], x: NDArray[Any], wider: np.dtype[Any]) -> NDArray[Any]:
    """b - A x in a wider type."""
    found, x, pointer = b.astype(wider), x.astype(wider), matrix.indptr
    first = 0
    while first < matrix.n:
        last = max(first + 1, int(np.searchsorted(pointer, int(pointer[first]) + _PART, "right")) - 1)
        low, high = pointer[first], pointer[last]
        rows = matrix.data[low:high].astype(wider), matrix.indices[low:high], pointer[first : last + 1] - low
        found[first:last] -= sp.csr_array(rows, shape=(last - first, matrix.n)) @ x
        first = last
    return found
