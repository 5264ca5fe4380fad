"""Block Jacobi of large blocks: M = K^-1 by factors of K, which has no entries between blocks.

K is factorised by :mod:`akx.solvers.direct` (SuperLU), scaled to a diagonal of ones: in the order of minimum degree
where its diagonal is safe to eliminate with, which has half to two thirds of the fill of SuperLU's own order. Blocks
that have some thousands of rows together are a part with factors of its own; threads share out parts, which are the
same for any number of threads.

Words moved by an application: the factors, with an index each, and some vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.process import resolve_threads, share_out
from akx.solvers.preconditioners.base import Preconditioner

__all__ = ["PART", "BlockLU", "large_blocks", "notes_of"]

#: Rows of a part, at least, but for the last.
PART = 16_384

#: An error of this part of the answer says that factors are of a singular matrix.
_SPOILT = 0.1

#: The rows of each part: between parts K has no entries.
_Parts = list[Any]


class BlockLU(Preconditioner):
    """M of large blocks, by the factors of K, which are made anew after a pickle; made by ``block_jacobi``."""

    name = "block_jacobi"
    _factors: list[Any]

    def __init__(
        self,
        K: Matrix,
        parts: _Parts,
        factors: list[Any],
        *,
        threads: int | None,
        hermitian: bool,
        notes: tuple[str, ...],
    ) -> None:
        super().__init__(K.n, K.dtype, notes)
        self.matrix, self.hermitian, self._parts, self._threads = K, hermitian, parts, threads
        self._factors = factors

    def _unprepared(self) -> dict[str, Any]:
        return {"_factors": []}

    @property
    def nnz(self) -> int:
        """Entries of the factors."""
        return sum(int(factors.lu.nnz) for factors in self._factorised())

    def _factorised(self) -> list[Any]:
        """The :class:`akx.solvers.direct.Factors` of each part."""
        if not self._factors:
            self._factors = _all_factors(self.matrix.to_scipy(), self._parts)
        return self._factors

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._solve(x, adjoint=False)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._solve(x, adjoint=True)

    def _solve(self, x: NDArray[Any], *, adjoint: bool) -> NDArray[Any]:
        factors, vector = self._factorised(), np.asarray(x).reshape(-1)
        kind = np.result_type(self.matrix.dtype, np.float64)
        if vector.dtype.kind == "c" and kind.kind != "c":
            real, imaginary = (self._solve(part, adjoint=adjoint) for part in (vector.real, vector.imag))
            return np.asarray(real + 1j * imaginary)
        vector = vector.astype(kind, copy=False)
        if len(factors) == 1:
            return np.asarray(factors[0].solve(vector, adjoint=adjoint))
        found = np.empty_like(vector)

        def do(part: tuple[Any, Any]) -> None:
            rows, of_rows = part
            found[rows] = of_rows.solve(vector[rows], adjoint=adjoint)

        share_out("blocks", zip(self._parts, factors, strict=True), do, resolve_threads(self._threads))
        return found


def large_blocks(
    K: Any, labels: NDArray[np.int64], dtype: np.dtype[Any], *, threads: int | None, hermitian: bool
) -> BlockLU:
    """M of a type; K (n, n), CSR, double precision, has no entries between blocks, which labels (n,) tell: 0, 1, ..."""
    sizes = np.bincount(labels)
    parts = _parts(labels, sizes)
    K, factors, bad = _nonsingular(K, labels, parts)
    stored = Matrix.from_any(K).in_type(dtype)
    return BlockLU(stored, parts, factors, threads=threads, hermitian=hermitian, notes=notes_of(bad, sizes.size))


def notes_of(bad: int, count: int) -> tuple[str, ...]:
    """What a user should know of singular blocks."""
    return (f"{bad} of {count} blocks are singular; their diagonals stand for them",) if bad else ()


def _parts(labels: NDArray[np.int64], sizes: NDArray[np.int64]) -> _Parts:
    """The rows of blocks in their turn, of so many together that there are enough, as slices where they may be."""
    order, ends = np.argsort(labels, kind="stable"), np.cumsum(sizes)
    found, first = [], 0
    while first < order.size:
        last = int(ends[min(int(np.searchsorted(ends, first + PART)), ends.size - 1)])
        rows = order[first:last]
        found.append(slice(first, last) if np.array_equal(rows, np.arange(first, last)) else rows)
        first = last
    return [slice(None)] if len(found) == 1 else found


def _factors(K: Any) -> Any:
    """Factors of K, in double precision, scaled by |diag K|^-1/2; None where a pivot is zero or memory short."""
    from akx.solvers.direct import factors_of, foreseen

    matrix = Matrix.from_any(K).in_type(np.result_type(K.dtype, np.float64))
    roots = np.abs(matrix.diagonal())
    roots[roots == 0] = 1
    found = factors_of(matrix.to_scipy(), foreseen(matrix, roots**-0.5))
    return None if isinstance(found, str) else found


def _all_factors(K: Any, parts: _Parts) -> list[Any]:
    """The factors of each part. Raises ArgumentError where there are none.

    They are made by this thread: where another has made factors, SciPy 1.17 prints an error as the process ends.
    """
    found = [_factors(K[rows][:, rows]) for rows in parts]
    if None in found:
        raise ArgumentError("blocks have no factors: these do not fit the memory", hint="take smaller blocks")
    return found


def _nonsingular(K: Any, labels: NDArray[np.int64], parts: _Parts) -> tuple[Any, list[Any], int]:
    """K with the diagonals of singular blocks for these, where 1 stands for zeros; its factors; how many there are."""
    factors = [_regular(K[rows][:, rows]) for rows in parts]
    if None not in factors:
        return K, factors, 0
    bad = np.zeros(labels.size, dtype=bool)
    count = 0
    for rows, found in zip(parts, factors, strict=True):
        of_part = np.arange(labels.size)[rows]
        of_part = of_part[np.argsort(labels[of_part], kind="stable")]
        for block in () if found is not None else np.split(of_part, np.flatnonzero(np.diff(labels[of_part])) + 1):
            if _regular(K[block][:, block]) is None:
                bad[block] = True
                count += 1
    entries = K.tocoo()
    i, j = entries.coords
    kept = ~bad[i] | (i == j)
    K = sp.csr_array((entries.data[kept], (i[kept], j[kept])), shape=K.shape)
    zeros = bad & (K.diagonal() == 0)
    K = sp.csr_array(K + sp.diags_array(zeros.astype(K.dtype)))
    return K, _all_factors(K, parts), count


def _regular(K: Any) -> Any:
    """The factors of K; None where a pivot is zero, or only rounding errors of its column.

    Such a pivot spoils the answer to a question whose answer is known. Only in doubt pivots are looked at: SciPy makes
    and keeps copies of the factors for it.
    """
    factors = _factors(K)
    if factors is None:
        return None
    known = np.cos(np.arange(K.shape[0]))
    with np.errstate(all="ignore"):
        error = np.abs(factors.solve(K @ (factors.scale * known)) / factors.scale - known).max(initial=0)
    if error <= np.finfo(float).eps ** 0.5:
        return factors
    if not error <= _SPOILT:
        return None
    upper = factors.lu.U
    pivots, largest = np.abs(upper.diagonal()), abs(upper).max(axis=0).toarray().reshape(-1)
    return factors if np.all(pivots > 10 * np.finfo(float).eps * largest) else None
