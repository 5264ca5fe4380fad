"""The compiled part of the sparse approximate inverse: patterns, and one small least-squares problem for each column.

A column k of M solves min ||A(I, J) m - e_k(I)||, J the rows that the pattern allows it, I the rows that the columns J
of A reach (thesis, fig. 5.1). A(I, J), of shape (n1, n2), is gathered into a dense array with its columns contiguous,
and factorised by Householder reflections, which are applied to e_k at once: Q is never formed.

Flops of a column: 2 n2^2 (n1 - n2/3). Bytes: the columns J of A, read once, and a workspace of n1 n2 numbers. All
functions release the GIL; a column is computed by one thread in one order: its bits do not depend on threads. Nor do
they on whether the code was compiled here or before (:mod:`akx.core.numba_compiler`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["column_sizes", "kept_entries", "largest_magnitudes", "solve_columns"]

Array = NDArray[Any]
#: What may be reordered within a sum, so that it is vectorised. Values are never assumed to be finite.
_FLAGS = {"reassoc", "contract", "nsz"}


@njit(nogil=True, cache=True)
def largest_magnitudes(indptr: Array, indices: Array, magnitudes: Array, of_column: Array, of_row: Array) -> None:
    """The largest magnitude in each column and each row of a matrix in CSC; both (n,) and zero before."""
    for k in range(indptr.size - 1):
        largest = 0.0
        for p in range(indptr[k], indptr[k + 1]):
            value = magnitudes[p]
            largest = max(largest, value)
            of_row[indices[p]] = max(of_row[indices[p]], value)
        of_column[k] = largest


@njit(nogil=True, cache=True)
def kept_entries(
    indptr: Array, indices: Array, magnitudes: Array, of_row: Array, factor: float, kept_ptr: Array, kept: Array
) -> None:
    """Rows i of each column k with |a_ik| > factor max_j |a_ij|, and k itself; ascending.

    `kept_ptr`, (n+1,), is filled; `kept` is filled where it has room, else only counted.
    """
    total = 0
    kept_ptr[0] = 0
    for k in range(indptr.size - 1):
        met = False
        for p in range(indptr[k], indptr[k + 1]):
            i = indices[p]
            if i > k and not met:
                met = True
                if kept.size:
                    kept[total] = k
                total += 1
            if i == k or magnitudes[p] > factor * of_row[i]:
                if kept.size:
                    kept[total] = i
                total += 1
                met = met or i == k
        if not met:
            if kept.size:
                kept[total] = k
            total += 1
        kept_ptr[k + 1] = total


@njit(nogil=True, cache=True)
def column_sizes(first: int, last: int, indptr: Array, indices: Array, kept_ptr: Array, kept: Array, n1: Array) -> None:
    """n1[k], the number of rows in I, of the columns first .. last - 1 of M; n2 is known from `kept_ptr`."""
    seen = np.full(indptr.size - 1, -1, dtype=np.int32)
    for k in range(first, last):
        count = 0
        for q in range(kept_ptr[k], kept_ptr[k + 1]):
            j = kept[q]
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                if seen[i] != k:
                    seen[i] = k
                    count += 1
        n1[k] = count


_compiled = njit(nogil=True, cache=True, fastmath=_FLAGS, error_model="numpy")


@_compiled
def solve_columns(
    columns: Array,
    indptr: Array,
    indices: Array,
    values: Array,
    scale: Array,
    kept_ptr: Array,
    kept: Array,
    where: Array,
    work: Array,
    right: Array,
    pivot: Array,
    tolerance: float,
    result: Array,
    misfit: Array,
) -> None:
    """Columns `columns` of M into `result`, and ||A m_k - e_k||^2 into `misfit`.

    Parameters
    ----------
    columns : (m,) int64
        In the order in which they are done.
    indptr, indices, values
        A in CSC; values float64 or complex128.
    scale : (n,) float64
        Column j of A is multiplied by scale[j] while it is worked on, so that squares do not overflow; powers of two.
    kept_ptr, kept
        The pattern of M in CSC.
    where : (n,) int32
        All -1; again so afterwards.
    work : (max n1 n2,), right : (max n1,) like values; pivot : (max n2,) int64
        Workspace.
    tolerance : float
        A column of A(I, J) whose part orthogonal to those before it is smaller than this, relative to itself, is left
        out: its entry of M is zero.
    result : (nnz of M,) like values
    misfit : (n,) float64
    """
    for number in range(columns.size):
        k = columns[number]
        J = kept[kept_ptr[k] : kept_ptr[k + 1]]
        m_k = result[kept_ptr[k] : kept_ptr[k + 1]]
        n1, reached = _gather(k, J, indptr, indices, values, scale, where, work, right)
        r = _factorise(work, right, pivot, m_k, n1, tolerance)
        # (d) R m = Q^H e_k
        rest = 0.0
        for i in range(r, n1):
            rest += right[i].real * right[i].real + right[i].imag * right[i].imag
        misfit[k] = rest if reached else 1.0
        for t in range(r - 1, -1, -1):
            q = pivot[t]
            column = work[q * n1 : q * n1 + n1]
            m = right[t] / column[t]
            for i in range(t):
                right[i] -= m * column[i]
            m_k[q] = m * scale[J[q]]


@_compiled
def _gather(
    k: int,
    J: Array,
    indptr: Array,
    indices: Array,
    values: Array,
    scale: Array,
    where: Array,
    work: Array,
    right: Array,
) -> tuple[int, bool]:
    """A(I, J) into `work`, column after column, and e_k(I) into `right`: the rows of I, and whether k is one."""
    n1 = 0  # (b) I, and the place of each of its rows
    for j in J:
        for p in range(indptr[j], indptr[j + 1]):
            if where[indices[p]] < 0:
                where[indices[p]] = n1
                n1 += 1
    work[: n1 * J.size] = 0.0  # (c)
    right[:n1] = 0.0
    reached = where[k] >= 0
    if reached:
        right[where[k]] = 1.0
    for q in range(J.size):
        j = J[q]
        for p in range(indptr[j], indptr[j + 1]):
            work[q * n1 + where[indices[p]]] = values[p] * scale[j]
    for j in J:
        for p in range(indptr[j], indptr[j + 1]):
            where[indices[p]] = -1
    return n1, reached


@_compiled
def _factorise(work: Array, right: Array, pivot: Array, m_k: Array, n1: int, tolerance: float) -> int:
    """Householder: rows of R, r of which are made; I - v v^H / beta takes a column x to alpha e_r. `m_k` becomes 0."""
    r, n2 = 0, m_k.size
    for q in range(n2):
        m_k[q] = 0.0
    for q in range(n2):
        x = work[q * n1 : q * n1 + n1]
        above = 0.0
        for i in range(r):
            above += x[i].real * x[i].real + x[i].imag * x[i].imag
        below = 0.0
        for i in range(r, n1):
            below += x[i].real * x[i].real + x[i].imag * x[i].imag
        if below <= tolerance * tolerance * (above + below):
            continue
        norm = np.sqrt(below)
        size = abs(x[r])
        alpha = -x[r] * (norm / size) if size > 0.0 else -norm + 0.0 * x[r]
        x[r] -= alpha
        beta = below + norm * size
        for c in range(q + 1, n2):
            _reflect(x[r:], work[c * n1 + r : c * n1 + n1], beta)
        _reflect(x[r:], right[r:n1], beta)
        x[r] = alpha
        pivot[r] = q
        r += 1
        if r == n1:
            break
    return r


@_compiled
def _reflect(v: Array, y: Array, beta: float) -> None:
    """y -= v (v^H y) / beta."""
    total = v[0].conjugate() * y[0]
    for i in range(1, v.size):
        total += v[i].conjugate() * y[i]
    total /= beta
    for i in range(v.size):
        y[i] -= total * v[i]
