"""The problem that trials are run on, and the judge of their results.

The start vectors are random and the coefficients typical of the basis kind: their size does not matter to the time, but
which of them vanish does. The powers of a matrix whose norm is far from one leave the range of the dtype, which would
time denormal numbers and compare infinities; then A is scaled by a power of two, through the coefficients.

The reference and its componentwise bound (:mod:`akx.kernels.reference`) are computed once. A result passes where
|w - ref| <= bound in every entry, the output having been filled with NaN before, so that an entry that nobody wrote
cannot pass.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.errors import ArgumentError
from akx.kernels.base import Coefficients, as_coefficients
from akx.kernels.reference import reference
from akx.matrix import Matrix

__all__ = ["BASIS_KINDS", "Problem", "typical_coefficients"]

#: Entries compared at once.
_PIECE = 32 * 1024

BASIS_KINDS = ("monomial", "newton", "chebyshev")


class Problem:
    """One call to be made by every candidate: matrix, start vectors, coefficients, output, and what must come out.

    Parameters
    ----------
    matrix : Matrix
        The matrix.
    k : int
        Powers.
    basis : str
        ``"monomial"``, ``"newton"`` or ``"chebyshev"``.
    start_vectors : int
        Start vectors per call.
    seed : int
        Of the start vectors.

    Attributes
    ----------
    x : (b, n) array
        Start vectors.
    out : (k+1, b, n) array
        Where every candidate writes.
    coefficients : Coefficients
        Of the recurrence.
    """

    def __init__(
        self, matrix: Matrix, k: int, *, basis: str = "monomial", start_vectors: int = 1, seed: int = 0
    ) -> None:
        self.matrix = matrix
        self.k = k
        self.x = _start_vectors(matrix, start_vectors, seed)
        self.coefficients = typical_coefficients(matrix, k, basis)
        wanted = reference(matrix, self.x, self.coefficients)
        self._expected = wanted.powers.reshape(-1)
        # Where the bound is zero (v_0 = x, rows without entries) the least of differences is far beyond it.
        self._bound = np.maximum(wanted.bound.reshape(-1), np.finfo(np.float64).tiny)
        self.out = np.zeros((k + 1, start_vectors, matrix.n), dtype=matrix.dtype)

    def poison(self) -> None:
        """Fill the output with NaN, so that what is not written shows."""
        self.out.fill(np.nan)

    def error(self) -> float:
        """Largest error of the output over its bound: at most 1 passes, NaN where an entry is NaN or infinite.

        Compared piece by piece, so that the differences stay in cache: five passes over the output in all.
        """
        out, worst = self.out.reshape(-1), 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for begin in range(0, out.size, _PIECE):
                piece = slice(begin, begin + _PIECE)
                error = np.abs(out[piece] - self._expected[piece])
                error /= self._bound[piece]
                largest = float(error.max())
                if not math.isfinite(largest) and not np.isfinite(out[piece]).all():
                    return math.nan
                worst = max(worst, largest)
        return worst


def typical_coefficients(matrix: Matrix, k: int, basis: str) -> Coefficients:
    """Coefficients of shape (k,) in the matrix's dtype, zero where those of the basis kind are always zero."""
    if basis not in BASIS_KINDS:
        raise ArgumentError("unknown basis", expected=f"one of {', '.join(BASIS_KINDS)}", found=repr(basis))
    radius = _row_sum_norm(matrix) or 1.0
    a, b, c = np.ones(k), np.zeros(k), np.zeros(k)
    exponent = int(np.frexp(radius)[1])
    if abs(exponent) * k > 0.4 * np.finfo(matrix.dtype).maxexp:
        a *= np.ldexp(1.0, -exponent)
    if basis == "newton":
        # Pairs of conjugate shifts t +- is, in real arithmetic: the second step of a pair has c = s^2.
        b[:] = -a * radius * np.linspace(-0.5, 0.5, k)
        c[1::2] = (0.1 * a[1::2] * radius) ** 2
    elif basis == "chebyshev":
        a[:] = 2.0 / radius
        a[0] = 1.0 / radius
        b[:] = -0.125 * a * radius
        c[1:] = -1.0
    return as_coefficients(a, b, c, matrix.dtype)


def _row_sum_norm(matrix: Matrix) -> float:
    """Largest absolute row sum."""
    sums = np.zeros(matrix.n)
    filled = np.flatnonzero(np.diff(matrix.indptr) > 0)
    if filled.size:
        sums[filled] = np.add.reduceat(np.abs(matrix.data).astype(np.float64), matrix.indptr[filled])
    return float(sums.max())


def _start_vectors(matrix: Matrix, count: int, seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1.0, 1.0, (count, matrix.n))
    if matrix.dtype.kind == "c":
        return (x + 1j * random.uniform(-1.0, 1.0, x.shape)).astype(matrix.dtype)
    return x.astype(matrix.dtype)
