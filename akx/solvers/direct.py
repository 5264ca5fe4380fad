"""A direct solve whose price is known before it is begun: nested dissection, its fill counted, SuperLU, refinement.

    P (D A E) P^T = L U,    x <- x + E P^T (L U)^-1 P D (b - A x)    until the residual is small enough

(iterative refinement: Higham 2002, ch. 12). Where the envelope of A + A^T in the order of reverse Cuthill-McKee is so
small that it needs no better one, SuperLU's own order will do. Else, where the diagonal is nowhere zero, P is METIS's
nested dissection of A + A^T. The entries of L are counted before a number of it is computed: row i of L is the subtree
of the elimination tree that the entries of row i of A span (Liu 1990, sec. 4), which takes a pass over L's pattern and
no memory. SuperLU keeps to that order as long as the diagonal is not too small to be a pivot.

Where some of the diagonal is zero rows change places as their values ask for, and SuperLU's own order (COLAMD) is right
for any such change. Nobody counts its fill: it is reckoned as a multiple of that of A with columns moved so that the
diagonal is there (maximum matching), by nested dissection.

Work: O(n log n) for the order, sum of c_j^2 for c_j entries in column j of L; memory: L and U.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded, jit_later

__all__ = ["ILU_FILL", "MOST_FILL", "Factors", "Forecast", "factorise", "forecast", "order_seconds"]

#: Seconds for each row and entry of an order, and for each entry of L + U and each of its flops, on one machine.
_ROW, _ENTRY, _FILL, _FLOP = 3.5e-6, 4e-8, 2.5e-8, 3e-10
#: Of what else is done with each row and entry of A.
_OF_ROW, _OF_ENTRY, _CALL = 2e-7, 5e-8, 3e-4
#: Where the diagonal is no safe pivot, SuperLU's fill is so many times as large.
_PIVOTING = 1.5
#: The most entries of L + U that are thought of, and flops.
MOST_FILL, _MOST_FLOPS = 2e8, 2e11
#: Incomplete factors have so many times the entries of A at most.
ILU_FILL = 10
#: The diagonal is the pivot where it is at least this part of the largest in its column.
_THRESHOLD = 0.05
#: Entries of L that Python counts.
_BY_PYTHON = 1e6
#: Rows whose factors may be full.
_SMALL = 250
_KEY = "akx.solvers.direct.forecast"


@dataclass(frozen=True)
class Forecast:
    """The order of a pattern, (n,) rows in their turn or None for SuperLU's own, and what its factors will be.

    `base`: seconds of what each factorisation does with A, on one machine.
    """

    order: NDArray[Any] | None
    fill: float
    flops: float
    base: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the factorisation, on one machine; Inf where that is out of the question."""
        times = _PIVOTING if self.order is None else 1.0
        if not (times * self.fill <= MOST_FILL and times * self.flops <= _MOST_FLOPS):
            return float("inf")
        return float(times * _FILL * self.fill + _FLOP * self.flops + self.base)


def order_seconds(matrix: Matrix) -> float:
    """Of a forecast."""
    if matrix.n <= _SMALL:
        return 0.0
    return 0.0 if _key(matrix) in matrix.pattern_cache else _ROW * matrix.n + _ENTRY * matrix.nnz + 2e-4


def forecast(matrix: Matrix) -> Forecast:
    """The order and its price, once for a pattern, and for whether its diagonal is nowhere zero."""
    key = _key(matrix)
    found: Forecast | None = matrix.pattern_cache.get(key)
    return found or matrix.pattern_cache.setdefault(key, _forecast(matrix, pivots=key[1]))


def _key(matrix: Matrix) -> tuple[str, bool]:
    if _KEY not in matrix.cache:
        matrix.cache[_KEY] = _KEY, bool(matrix.diagonal().all())
    found: tuple[str, bool] = matrix.cache[_KEY]
    return found


def _forecast(matrix: Matrix, *, pivots: bool) -> Forecast:
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = matrix.n
    if n <= _SMALL:
        return Forecast(None, float(n) ** 2, float(n) ** 3, _CALL)
    base = _CALL + _OF_ROW * n + _OF_ENTRY * matrix.nnz
    there = sp.csr_array((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=(n, n))
    if not pivots:
        from scipy.sparse.csgraph import maximum_bipartite_matching

        columns = maximum_bipartite_matching(there, perm_type="column")
        if columns.min() < 0:  # structurally singular
            return Forecast(None, float("inf"), float("inf"))
        there = sp.csr_array(there[:, columns])
    graph = there + there.T.tocsr()
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    is_off = rows != graph.indices
    columns, rows = graph.indices[is_off], rows[is_off]
    pointer = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n))))
    longest = int(np.diff(pointer).max(initial=0))
    if _FILL * longest + _FLOP * float(longest) ** 2 < _ROW:
        place = _inverse(np.asarray(reverse_cuthill_mckee(graph, symmetric_mode=True), dtype=np.int64))
        width = np.ones(n)
        np.maximum.at(width, place[rows], place[rows] - place[columns] + 1.0)
        narrow = Forecast(None, float(2 * width.sum()), float(2 * (width**2).sum()), base)
        if narrow.seconds < 2 * _ROW * n + base:
            return narrow
    import pymetis

    index = np.dtype(pymetis.zero_copy_dtype())
    adjacency = pymetis.CSRAdjacency(pointer.astype(index), columns.astype(index))
    found = pymetis.nested_dissection(adjacency, options=pymetis.Options(seed=0, numbering=0))
    order = np.asarray(found[0], dtype=np.int64)
    counts = _column_counts(pointer, columns, order, MOST_FILL)
    flops = float(2 * (counts.astype(float) ** 2).sum())
    return Forecast(order if pivots else None, float(2 * counts.sum()), flops, base)


def _inverse(order: NDArray[Any]) -> NDArray[Any]:
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return place


def _column_counts(pointer: NDArray[Any], columns: NDArray[Any], order: NDArray[Any], most: float) -> NDArray[Any]:
    """Entries of each column of L, its diagonal included; beyond `most` in all, those found until then, and as many.

    Python does what it can do in a fifth of a second. For more, Numba is worth its import.
    """
    n = order.size
    given = [np.ascontiguousarray(a, dtype=np.int64) for a in (pointer, columns, order, _inverse(order))]
    if not is_loaded():
        counts, least = [1] * n, min(most, _BY_PYTHON)
        a, b, c, d = (a.tolist() for a in given)
        if _counted(a, b, c, d, [-1] * n, [-1] * n, counts, least) <= least:
            return np.array(counts)
        import_module("akx.backends.cpu.jit")
    found = np.ones(n, dtype=np.int64)
    a, b, c, d = given
    if _count(a, b, c, d, np.full(n, -1), np.full(n, -1), found, most) > most:
        found[-1] += int(most)
    return found


def _counted(
    pointer: Any, columns: Any, order: Any, place: Any, parent: Any, mark: Any, counts: Any, most: float
) -> int:
    """Count on in `counts` as long as there are no more than `most`; how many there were."""
    total = 0
    for k in range(len(order)):
        mark[k] = k
        row = order[k]
        for p in range(pointer[row], pointer[row + 1]):
            i = place[columns[p]]
            while i < k and mark[i] != k:
                if parent[i] == -1:
                    parent[i] = k
                counts[i] += 1
                total += 1
                mark[i] = k
                i = parent[i]
        if total > most:
            break
    return total


_count = jit_later(_counted)


class Factors:
    """(D A E)^-1 in the order of its factorisation, as :func:`factorise` makes it; for refinement and as an M."""

    def __init__(self, lu: Any, order: NDArray[Any] | None, scale: NDArray[Any] | None) -> None:
        self.lu, self.order, self.scale = lu, order, scale
        self.nbytes = int(lu.nnz) * 12

    def solve(self, r: NDArray[Any]) -> NDArray[Any]:
        """A^-1 r, about; (n,)."""
        right = r if self.scale is None else self.scale * r
        x = np.empty(r.size, dtype=np.result_type(r, np.float64))
        if self.order is None:
            x[:] = self.lu.solve(right.astype(x.dtype))
        else:
            x[self.order] = self.lu.solve(right[self.order].astype(x.dtype))
        return x if self.scale is None else self.scale * x


def factorise(matrix: Matrix, order: NDArray[Any] | None, scale: NDArray[Any] | None) -> Factors | None:
    """The factors of A, scaled on both sides by `scale`; None where a pivot is zero or memory short."""
    from scipy.sparse.linalg import splu

    A = matrix.to_scipy()
    A = A.astype(np.result_type(A.dtype, np.float64))
    if scale is not None:
        A = sp.diags_array(scale) @ A @ sp.diags_array(scale)
    try:
        if order is None:
            return Factors(splu(sp.csc_array(A)), None, scale)
        ordered = sp.csc_array(sp.csr_array(A)[order][:, order])
        options = {"permc_spec": "NATURAL", "diag_pivot_thresh": _THRESHOLD, "options": {"SymmetricMode": True}}
        return Factors(splu(ordered, **options), order, scale)
    except (RuntimeError, MemoryError):  # "Factor is exactly singular"
        return None
