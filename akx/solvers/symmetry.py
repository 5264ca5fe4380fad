"""Whether a matrix is Hermitian up to rounding: what conjugate gradients ask for, and all that arithmetic can give.

Or, with a minus sign between the two and a multiple of the identity aside, real and skew-symmetric.

    |a_ij - conj(a_ji)| <= 16 eps max(|a_ij|, |a_ji|, sqrt(|a_ii| |a_jj|)),    an entry that is not there being zero.

A product D A D rounds a_ij and a_ji by some eps of their own size; a sum of element matrices, as in B^T K B, by some
eps of its largest terms, at most sqrt(a_ii a_jj). The measure does not change under symmetric scaling.

One pass: each entry is read twice, and four words for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded, jit_later

__all__ = ["is_hermitian", "real_diagonal", "skew_shift"]

#: Units of rounding.
_SLACK = 16
#: Entries that are compared at once where nothing is compiled.
_AT_ONCE = 10_000
#: In the cache of a matrix, what :func:`skew_shift` has found.
_SHIFT = "akx.solvers.skew_shift"
#: And what :func:`is_hermitian` has.
_HERMITIAN = "akx.solvers.is_hermitian"


def real_diagonal(diagonal: NDArray[Any]) -> NDArray[Any]:
    """A diagonal without its imaginary parts where all of them are rounding errors of their entries."""
    noise = 0.5 * _SLACK * float(np.finfo(diagonal.dtype).eps)  # an entry and its conjugate differ by twice that
    if diagonal.dtype.kind == "c" and np.all(np.abs(diagonal.imag) <= noise * np.abs(diagonal)):
        return diagonal.real.astype(diagonal.dtype)
    return diagonal


def is_hermitian(matrix: Matrix) -> bool:
    """Whether a matrix is Hermitian (real: symmetric) up to rounding errors: looked at once."""
    if _HERMITIAN not in matrix.cache:
        matrix.cache[_HERMITIAN] = _is_so(matrix)
    return bool(matrix.cache[_HERMITIAN])


def _is_so(matrix: Matrix) -> bool:
    tolerance = _SLACK * float(np.finfo(matrix.dtype).eps)
    found = matrix.is_hermitian_there(tolerance)
    if found is not None:
        return found
    roots = np.sqrt(np.abs(matrix.diagonal()))
    if not is_loaded():
        A = matrix.to_scipy()
        return _is_near(A, A.T.tocsr().conj(), roots, tolerance)
    return bool(_is_hermitian(matrix.indptr, matrix.indices, matrix.data, roots, tolerance))


def skew_shift(matrix: Matrix) -> float | None:
    """c of a real matrix c I + S, S = -S^T up to rounding errors and not zero; None of any other.

    Most are told by their diagonal, by one pair of entries or by one product; else A is transposed, once.
    """
    if _SHIFT not in matrix.cache:
        matrix.cache[_SHIFT] = _skew_shift(matrix)
    found: float | None = matrix.cache[_SHIFT]
    return found


def _skew_shift(matrix: Matrix) -> float | None:
    tolerance = _SLACK * float(np.finfo(matrix.dtype).eps)
    if matrix.dtype.kind == "c" or matrix.is_hermitian_there(tolerance):
        return None
    A, diagonal = matrix.to_scipy(), matrix.diagonal()
    c = float(diagonal[0])
    if (diagonal != c).any():
        return None
    i = int(np.argmax(np.diff(A.indptr) > (c != 0)))  # a row with an entry beside the diagonal's
    of_row = slice(A.indptr[i], A.indptr[i + 1])
    beside = np.flatnonzero(A.indices[of_row] != i)[:1]
    if not beside.size and np.array_equal(A.indices, np.repeat(np.arange(matrix.n), np.diff(A.indptr))):
        return None  # c I, which is Hermitian
    if beside.size and A.data[of_row][beside[0]] * np.sign(A[A.indices[of_row][beside[0]], i]) > 0:
        return None
    x = np.cos(np.arange(matrix.n))  # x^T S x = 0
    if abs(x @ (A @ x) - c * (x @ x)) > np.sqrt(tolerance) * np.abs(A.data).sum():
        return None
    other = -A.T.tocsr()
    if c:
        other.setdiag(c)
    return c if _is_near(A, other, np.sqrt(np.abs(diagonal)), tolerance) else None


def _is_near(A: Any, other: Any, roots: NDArray[Any], tolerance: float) -> bool:
    """Whether A is `other` up to rounding errors; entries that differ first and so many at a time."""
    is_alike = np.array_equal(A.indptr, other.indptr) and np.array_equal(A.indices, other.indices)
    if is_alike:
        places = np.flatnonzero(A.data != other.data)
        rows, columns = np.searchsorted(A.indptr, places, side="right") - 1, A.indices[places]
    else:
        rows, columns = (A - other).tocoo().coords
    for start in range(0, rows.size, _AT_ONCE):
        piece = slice(start, start + _AT_ONCE)
        i, j = rows[piece], columns[piece]
        at = places[piece] if is_alike else (i, j)
        values, partners = (
            np.asarray(one[at]).reshape(-1) for one in ((A.data, other.data) if is_alike else (A, other))
        )
        largest = np.maximum(np.maximum(np.abs(values), np.abs(partners)), roots[i] * roots[j])
        if not np.all(np.abs(values - partners) <= tolerance * largest):
            return False
    return True


@jit_later
def _is_hermitian(indptr: Any, indices: Any, data: Any, roots: Any, tolerance: float) -> bool:
    """Rows in order, ``cursor[j]`` being the entry of row j in column i or the first one behind it."""
    cursor = indptr[:-1].copy()
    for i in range(roots.size):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            q, end = cursor[j], indptr[j + 1]
            while q < end and indices[q] < i:
                q += 1
            value, partner = data[p], 0 * data[p]
            if q < end and indices[q] == i:
                partner = np.conj(data[q])
                q += 1
            cursor[j] = q
            if value != partner:
                size = max(abs(value), abs(partner), roots[i] * roots[j])
                if not abs(value - partner) <= tolerance * size:
                    return False
    return True
