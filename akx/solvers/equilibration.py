"""Scaling first: a diagonal M for a matrix whose rows differ in size, which costs a pass and often saves all.

    M = D^-1,    d_i = a_ii,    and where a_ii is zero or tiny, beside the entries a_ij of its row,

    d_i = max_j |a_ij| |a_ji| / |d_j|    over the rows j that have a diagonal, or max_j sqrt(|a_ij| |a_ji|),

the first being what the diagonal of a Schur complement would be: the scale of a pressure in a saddle point. For a
Hermitian A all d_i are made positive, as a Hermitian method asks for (van der Sluis 1969: of all diagonals this is
within a factor n of the one with the least condition). Where some a_ii <= 0 that does not hold, as an a_ii that happens
to be small is no size of its row: five rounds of

    d_i <- (d_i sum_j |a_ij|^2 / d_j)^(1/2)

make rows of the scaled matrix about 1 long (Ruiz 2001, in the 2-norm). Exact values, not powers of two: the steps saved
by rounding nothing in A are fewer than those lost by a diagonal between 1 and 2 (memplus: 950 products of bicgstab
against 1640).

Reads the diagonal; where some of it is missing, A and its transpose once; where some of it is not positive, A five
times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.solvers.symmetry import real_diagonal

__all__ = ["equilibration", "spread"]

#: Rows that differ in size by no more than this factor are left as they are.
_EVEN = 10.0
#: A diagonal entry below this part of the largest sqrt(|a_ij| |a_ji|) of its row is none to scale by, unless those are
#: nowhere above sqrt(|a_ii| |a_jj|), to so much.
_TINY, _ROUNDING = 1e-6, 1e-6
#: As long as entries of the diagonal differ by no more, none is taken for tiny.
_WIDE = 1e4
#: Rounds of balancing.
_ROUNDS = 5
_KEY = "akx.solvers.equilibration"


def spread(diagonal: NDArray[Any]) -> float:
    """The largest modulus over the least; 1 of nothing."""
    sizes = np.abs(diagonal)
    return float(sizes.max() / sizes.min()) if sizes.size and sizes.min() > 0 else 1.0


def equilibration(matrix: Matrix, *, hermitian: bool) -> tuple[Any, str] | None:
    """The preconditioner that scales a matrix, and a word on it; None where rows are of one size, or beyond all range.

    A :class:`akx.solvers.preconditioners.jacobi.Jacobi` of a diagonal without zeros, made once for a matrix.
    """
    if _KEY not in matrix.cache:
        matrix.cache[_KEY] = _equilibration(matrix, hermitian=hermitian)
    found: tuple[Any, str] | None = matrix.cache[_KEY]
    return found


def _equilibration(matrix: Matrix, *, hermitian: bool) -> tuple[Any, str] | None:
    diagonal = real_diagonal(np.array(matrix.diagonal()))
    with np.errstate(all="ignore"):
        missing = 0
        ratio = spread(diagonal)
        if diagonal.all() and ratio <= _EVEN:
            return None
        if not diagonal.all() or ratio > _WIDE:
            diagonal, missing = _completed(matrix.to_scipy(), diagonal)
        diagonal = np.abs(diagonal).astype(diagonal.dtype) if hermitian else diagonal
        is_balanced = hermitian and matrix.diagonal().real.min() <= 0
        if is_balanced:
            diagonal = _balanced(matrix.to_scipy(), diagonal)
        ratio, inverse = spread(diagonal), 1 / diagonal
        is_usable = np.isfinite(inverse).all() and np.all(inverse) and np.isfinite(1 / inverse).all()
    if ratio <= _EVEN or not is_usable:
        return None
    from akx.solvers.preconditioners.jacobi import Jacobi  # with SciPy's operators, which few solves need

    has_none = not matrix.diagonal().any()
    if is_balanced:
        said = "scaled so that rows are equally long"
    else:
        said = f"scaled by the {'size of entries' if has_none else 'diagonal'}, as rows differ {ratio:.0e}-fold"
    if missing:
        said += " (A has no diagonal)" if has_none else f" ({missing} have no diagonal entry)"
    return Jacobi(diagonal, "symmetric" if hermitian else "right", ()), said


def _completed(A: Any, diagonal: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The diagonal with other values where there is none of use; how many these are."""
    sizes = np.abs(diagonal)
    moduli = sp.csr_array((np.abs(A.data), A.indices, A.indptr), shape=A.shape)
    roots = sp.csr_array((np.sqrt(moduli.data), A.indices, A.indptr), shape=A.shape)
    means = roots.multiply(roots.T.tocsr())  # geometric: products of entries may leave the range of numbers
    mean = _largest(means)
    mean = np.where(mean > 0, mean, _largest(moduli))
    if _is_scale(means, sizes):
        return diagonal, 0
    lacks = ~(sizes > _TINY * mean) & (mean > 0)
    if not lacks.any():
        return np.where(diagonal == 0, 1, diagonal).astype(diagonal.dtype), int(np.count_nonzero(diagonal == 0))
    with_one = np.where(lacks | (sizes == 0), 0, 1 / np.sqrt(np.where(sizes > 0, sizes, 1)))
    schur = _largest(sp.csr_array(means @ sp.diags_array(with_one))) ** 2
    other = np.where(schur > 0, schur, mean)
    found = np.where(lacks, other, diagonal)
    return np.where(found == 0, 1, found).astype(diagonal.dtype), int(np.count_nonzero(lacks | (diagonal == 0)))


def _is_scale(means: Any, sizes: NDArray[Any]) -> bool:
    """Whether |a_ij| |a_ji| <= |a_ii| |a_jj| throughout, so that a tiny entry of the diagonal is in a row as small."""
    roots, means = np.sqrt(sizes), sp.csr_array(means)
    bounds = np.repeat(roots, np.diff(means.indptr)) * roots[means.indices]
    return bool(np.all(means.data <= (1 + _ROUNDING) * bounds))


def _balanced(A: Any, diagonal: NDArray[Any]) -> NDArray[Any]:
    """A diagonal d with about 1 for the sums of |a_ij|^2 / (d_i d_j), from another; that itself beyond the range."""
    squares = sp.csr_array((np.abs(A.data).astype(np.float64) ** 2, A.indices, A.indptr), shape=A.shape)
    found = diagonal.real.astype(np.float64)
    for _ in range(_ROUNDS):
        sums = squares @ (1 / found)
        found = np.sqrt(np.where(sums > 0, found * sums, found**2))
    return found.astype(diagonal.dtype) if np.isfinite(found).all() and found.all() else diagonal


def _largest(A: Any) -> NDArray[Any]:
    """The largest entry of each row of a matrix without negative ones; 0 of none."""
    A = sp.csr_array(A)
    found = np.zeros(A.shape[0])
    held = np.flatnonzero(np.diff(A.indptr))
    if held.size:
        found[held] = np.maximum.reduceat(A.data, A.indptr[held])
    return found
