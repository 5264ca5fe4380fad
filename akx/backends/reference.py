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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.schedule import Coefficients
from akx.core.matrix import Matrix

__all__ = ["Reference", "error_ratio", "matrix_powers", "reference", "widened"]


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
    return _run(matrix, x, coefficients)[0]


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
    powers, magnitude = _run(matrix, x, coefficients)
    bound = _errors(matrix, powers, magnitude, coefficients, 0.0)
    bound += bound if stored_error == 0 else _errors(matrix, powers, magnitude, coefficients, stored_error)
    return Reference(powers, bound)


def widened(
    matrix: Matrix, powers: NDArray[Any], bound: NDArray[np.float64], coefficients: Coefficients, stored_error: float
) -> NDArray[np.float64]:
    """The bound e_j + f_j of a program whose values are off, (k+1, b, n), from 2 e_j; costs two products a step."""
    wider = _errors(matrix, powers, _magnitude(matrix), coefficients, stored_error)
    for f, exact in zip(wider, bound, strict=True):
        f += 0.5 * exact
    return wider


def _errors(
    matrix: Matrix, powers: NDArray[Any], magnitude: Any, coefficients: Coefficients, off: float
) -> NDArray[np.float64]:
    """e_j, or f_j where stored values are `off`, (k+1, b, n)."""
    dtype, vectors = matrix.dtype, powers.shape[1]
    lengths = np.diff(matrix.indptr).astype(np.float64)[:, None]
    unit = float(np.finfo(dtype).eps) / 2 * (4.0 if dtype.kind == "c" else 1.0)
    gamma = (lengths + 4.0) * unit
    tiny = 4.0 * float(np.finfo(dtype).tiny) * (lengths + 4.0)
    errors = np.zeros(powers.shape, dtype=np.float64)
    error, before = np.zeros((matrix.n, vectors)), np.zeros((matrix.n, vectors))
    for j in range(coefficients.a.size):
        a, b, c = (float(abs(v[j])) for v in (coefficients.a, coefficients.b, coefficients.c))
        value = np.abs(powers[j]).T
        older = np.abs(powers[j - 1]).T if j else np.zeros_like(value)
        both = magnitude @ np.hstack([error, value])
        passed, size = both[:, :vectors], both[:, vectors:]
        fresh = gamma * ((1.0 + off) * a * size + b * value + c * older) + tiny
        if off:
            fresh += off * a * size
        error, before = (1.0 + off) * a * passed + b * error + c * before + fresh, error
        errors[j + 1] = error.T
    return errors


def error_ratio(
    matrix: Matrix, out: NDArray[Any], x: NDArray[Any], coefficients: Coefficients, *, stored_error: float = 0.0
) -> float:
    """How far `out` (k+1, b, n) is from the reference, in units of the bound; at most 1 for a correct result."""
    return reference(matrix, x, coefficients, stored_error=stored_error).error_ratio(out)


def _run(matrix: Matrix, x: NDArray[Any], coefficients: Coefficients) -> tuple[NDArray[Any], Any]:
    A = _in_double(matrix)
    double, k = A.dtype, coefficients.a.size
    powers = np.empty((k + 1, *x.shape), dtype=double)
    powers[0] = x
    for j in range(k):
        product = (A @ powers[j].T).T
        powers[j + 1] = coefficients.a[j] * product + coefficients.b[j] * powers[j]
        if j:
            powers[j + 1] += coefficients.c[j] * powers[j - 1]
    return powers, abs(A)


def _in_double(matrix: Matrix) -> Any:
    return matrix.to_scipy().astype(np.result_type(matrix.dtype, np.float64))


def _magnitude(matrix: Matrix) -> Any:
    """|A| in double precision."""
    return abs(_in_double(matrix))
