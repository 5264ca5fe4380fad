"""The reference: matrix powers by k plain SciPy products, and the componentwise error bound that programs must meet.

With u the unit roundoff, m_i the entries of row i and w_j the exact powers of the rounded matrix, any order of
summation of row i gives |fl(A v)_i - (A v)_i| <= gamma_{m_i} (|A| |v|)_i, gamma_m = m u / (1 - m u) (Higham, Accuracy
and Stability of Numerical Algorithms, 2nd ed., sec. 3.1). Running that through the recurrence v_{j+1} = a_j A v_j +
b_j v_j + c_j v_{j-1}, with three more roundings for its own operations, the error e_j of a computed v_j obeys

    e_{j+1} <= |a_j| |A| e_j + |b_j| e_j + |c_j| e_{j-1} + gamma_{m+4} (|a_j| |A| |v_j| + |b_j| |v_j| + |c_j|
    |v_{j-1}|).

This is the design's C(k, nnz_row) eps |A|^j |x| with the constant worked out row by row. A result and the reference may
each be off by e_j, so they may differ by 2 e_j; complex arithmetic costs another factor of 4 (Higham, lemma 3.5).
float32 and complex64 are referred to in double precision.

Where a program stores values with a relative error of d at most (as `Matrix.value_error` may allow),
it computes with A + E, |E| <= d |A| in every entry, the same in each step. A rounded product is (A + E) v as well,
|E| <= gamma |A| (Higham, sec. 3.5), so that d enters beside gamma. As (A + E) (v_j + f_j) - A v_j = (A + E) f_j +
E v_j, |A + E| <= (1 + d) |A|, its error f_j obeys, to first order in gamma as above,

    f_{j+1} <= (1 + d) |a_j| |A| f_j + |b_j| f_j + |c_j| f_{j-1} + d |a_j| |A| |v_j|
               + gamma_{m+4} ((1 + d) |a_j| |A| |v_j| + |b_j| |v_j| + |c_j| |v_{j-1}|).

The reference has the values as they are: the two may differ by e_j + f_j, which is 2 e_j where d is 0. Whoever judges a
program has to say what d is (:func:`akx.backends.registry.stored_error`): the error that its values have, as measured,
and not what would have been allowed. It is 0 for all that store them as they are, whatever the matrix allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.backends.schedule import Coefficients
from akx.core.matrix import Matrix
from akx.core.parallel import in_pieces

__all__ = ["Reference", "by_rows", "error_ratio", "matrix_powers", "reference", "widened"]

#: Entries of the rows that are multiplied at a time.
_PIECE = 1 << 18


@dataclass(frozen=True)
class Reference:
    """The powers of one matrix and start block, with their error bound.

    Attributes
    ----------
    powers : (k+1, b, n) array, float64 or complex128
        The reference V, in the layout of programs.
    bound : (k+1, b, n) array of float64
        How much a correct program's result may differ, componentwise.
    """

    powers: NDArray[Any]
    bound: NDArray[np.float64]

    def error_ratio(self, out: NDArray[Any]) -> float:
        """The largest |out - powers| / bound; at most 1 for a correct result, inf for NaN or where the bound is 0."""
        worst = 0.0
        for computed, exact, bound in zip(out, self.powers, self.bound, strict=True):
            error = np.abs(computed - exact)
            if not np.all(np.isfinite(error)):
                return float("inf")
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(error == 0.0, 0.0, error / bound)
            worst = max(worst, float(ratio.max(initial=0.0)))
        return worst


def matrix_powers(matrix: Matrix, x: NDArray[Any], coefficients: Coefficients) -> NDArray[Any]:
    """V as a (k+1, b, n) array in double precision, from x (b, n), by k plain products."""
    return _run(matrix, x, coefficients)


def reference(matrix: Matrix, x: NDArray[Any], coefficients: Coefficients, *, stored_error: float = 0.0) -> Reference:
    """The reference and its bound; costs about three plain products a step, five where values are off.

    Parameters
    ----------
    matrix : Matrix
    x : (b, n) array
    coefficients : Coefficients
    stored_error : float
        d, the largest relative error of a value as the program that is judged has it.
    """
    powers = _run(matrix, x, coefficients)
    bound = _errors(matrix, powers, coefficients, 0.0)
    bound += bound if stored_error == 0 else _errors(matrix, powers, coefficients, stored_error)
    return Reference(powers, bound)


def widened(
    matrix: Matrix, powers: NDArray[Any], bound: NDArray[np.float64], coefficients: Coefficients, stored_error: float
) -> NDArray[np.float64]:
    """The bound e_j + f_j of a program whose values are off, (k+1, b, n), from 2 e_j; costs two products a step."""
    wider = _errors(matrix, powers, coefficients, stored_error)
    for f, exact in zip(wider, bound, strict=True):
        f += 0.5 * exact
    return wider


def _errors(matrix: Matrix, powers: NDArray[Any], coefficients: Coefficients, off: float) -> NDArray[np.float64]:
    """e_j, or f_j where stored values are `off`, (k+1, b, n)."""
    dtype, vectors = matrix.dtype, powers.shape[1]
    unit = float(np.finfo(dtype).eps) / 2 * (4.0 if dtype.kind == "c" else 1.0)
    tiny = 4.0 * float(np.finfo(dtype).tiny)
    errors = np.zeros(powers.shape, dtype=np.float64)
    for j in range(coefficients.a.size):
        sizes = tuple(float(abs(v[j])) for v in (coefficients.a, coefficients.b, coefficients.c))
        both = np.empty((matrix.n, 2 * vectors))
        both[:, :vectors], both[:, vectors:] = errors[j].T, np.abs(powers[j]).T

        def of_rows(rows: slice, A: sp.csr_array, j: int = j, sizes: Any = sizes, both: NDArray[Any] = both) -> None:
            (a, b, c), A.data = sizes, np.abs(A.data)
            found, terms = A @ both, np.diff(A.indptr).astype(np.float64)[:, None] + 4.0
            passed, size = found[:, :vectors], found[:, vectors:]
            older = np.abs(powers[j - 1][:, rows]).T if j else np.zeros_like(size)
            before = errors[j - 1][:, rows].T if j else np.zeros_like(size)
            fresh = (terms * unit) * ((1.0 + off) * a * size + b * both[rows, vectors:] + c * older) + tiny * terms
            if off:
                fresh += off * a * size
            errors[j + 1][:, rows] = ((1.0 + off) * a * passed + b * both[rows, :vectors] + c * before + fresh).T

        by_rows(matrix, of_rows)
    return errors


def error_ratio(
    matrix: Matrix, out: NDArray[Any], x: NDArray[Any], coefficients: Coefficients, *, stored_error: float = 0.0
) -> float:
    """How far `out` (k+1, b, n) is from the reference, in units of the bound; at most 1 for a correct result."""
    return reference(matrix, x, coefficients, stored_error=stored_error).error_ratio(out)


def _run(matrix: Matrix, x: NDArray[Any], coefficients: Coefficients) -> NDArray[Any]:
    double, k = np.result_type(matrix.dtype, np.float64), coefficients.a.size
    powers = np.empty((k + 1, *x.shape), dtype=double)
    powers[0] = x
    for j in range(k):

        def of_rows(rows: slice, A: sp.csr_array, j: int = j) -> None:
            made = coefficients.a[j] * (A @ powers[j].T).T + coefficients.b[j] * powers[j][:, rows]
            if j:
                made += coefficients.c[j] * powers[j - 1][:, rows]
            powers[j + 1][:, rows] = made

        by_rows(matrix, of_rows)
    return powers


def by_rows(matrix: Matrix, do: Callable[[slice, sp.csr_array], object]) -> None:
    """Call ``do(rows, A)`` with some rows of A in double precision at a time, in any order, by several threads.

    What is made of them is small beside a large matrix.
    """
    indptr, double = matrix.indptr, np.result_type(matrix.dtype, np.float64)
    wanted = np.arange(_PIECE, matrix.nnz, _PIECE)
    cuts = np.unique([0, *np.searchsorted(indptr, wanted).tolist(), matrix.n])

    def of_pieces(first: int, last: int) -> None:
        for begin, end in pairwise(cuts[first : last + 1].tolist()):
            part = slice(int(indptr[begin]), int(indptr[end]))
            values = matrix.data[part].astype(double, copy=False)
            arrays = values, matrix.indices[part], indptr[begin : end + 1] - indptr[begin]
            do(slice(begin, end), sp.csr_array(arrays, shape=(end - begin, matrix.n), copy=False))

    in_pieces(of_pieces, cuts.size - 1, 1)
