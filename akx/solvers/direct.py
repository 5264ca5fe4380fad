"""A direct solve whose price is known before it is begun: an order, its fill counted, SuperLU, refinement.

    P (D A E) P^T = L U,    x <- x + E P^T (L U)^-1 P D (b - A x)    until the residual is small enough

(iterative refinement: Higham 2002, ch. 12). What it takes is found out in looks, each dearer than the one before:

1. The envelope of A + A^T as it stands; where that is wide, in the order of reverse Cuthill-McKee. Elimination fills
   about half of it. Where that is little SuperLU's own order, by minimum degree, will do.
2. Minimum degree (Liu 1985), as SuperLU makes it for incomplete factors of which nothing is kept; METIS's nested
   dissection, five times as dear, where the envelope is so wide that minimum degree may run away, or a row so long. The
   entries of L are counted before a number of it is computed: row i of L is the subtree of the elimination tree that
   the entries of row i of A span (Liu 1990, sec. 4), which takes a pass over L's pattern and no memory.

SuperLU keeps to that order as long as the diagonal is not too small to be a pivot. Where it is, or zero, rows change
places as their values ask for, and SuperLU's COLAMD is right for any such change. Its fill is reckoned as that of A
with columns moved so that there are large entries on the diagonal. Not so with a long row, as of a circuit: where that
changes places early it fills all (of 20,000 rows 6 s, by nested dissection 0.05 s).

Work: O(n log n) for the order, sum of c_j^2 for c_j entries in column j of L; memory: L and U.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded, jit_later

__all__ = ["ILU_FILL", "MOST_FILL", "Factors", "Forecast", "doubt", "factors_of", "forecast", "foreseen"]
__all__ += ["is_doubtful", "look_closer", "superlu"]

#: Seconds on one machine, for each row and entry: of a look at the diagonal, of an envelope in a better order, and of
#: minimum degree, COLAMD and METIS with the fill counted.
_LOOKED, _NARROWED = (1e-8, 1e-8), (2e-7, 1e-8)
_MINIMUM_DEGREE, _COLAMD, _METIS = (1e-6, 5e-8), (1e-6, 1.5e-7), (3.5e-6, 4e-8)
#: For each entry of L + U and each of its flops, of what else is done with each row and entry of A, and at all.
_FILL, _FLOP = 1.2e-8, 1e-10
_OF_ROW, _OF_ENTRY, _CALL = 2e-7, 5e-8, 3e-4
#: SuperLU's columns at a time where factors have fewer flops an entry than this: half of what it has by itself.
_PANEL, _FULL = 4, 400.0
#: The part of an envelope that elimination fills, about.
_FILLED = 0.5
#: An envelope of so many times the entries of A is an order that none is much better than.
_TIGHT = 3.0
#: Fill over the entries of A, as long as its envelope says nothing.
_HOPED = 10.0
#: An envelope of this part of all entries, and a row of so many times sqrt(n), are too much for minimum degree.
_WIDE, _LONG = 0.16, 10.0
#: Rows of an envelope with which it cannot run away, and with which METIS is quicker (of a hypercube of 2^14 rows 0.2 s
#: against 2.7).
_FEW, _MANY = 100, 2000
#: Rounds in which columns find rows.
_MATCHINGS = 6
#: Where SuperLU keeps to a diagonal that is not safe, for the sake of a long row, its fill is so many times as large.
_SWAPPED = 10.0
#: The most entries of L + U that are thought of, and flops.
MOST_FILL, _MOST_FLOPS = 2e8, 2e11
#: Incomplete factors have so many times the entries of A at most.
ILU_FILL = 10
#: The diagonal is the pivot where it is more than this part of the largest in its column. SuperLU keeps to an order
#: where it is not in so many columns, of a matrix with a long row in so many.
_THRESHOLD, _WEAK, _WEAK_LONG = 0.05, 0.05, 0.25
#: In so few it is no matter.
_SURE = 0.01
#: Entries of L that Python counts.
_BY_PYTHON = 1e6
_KEY, _DOUBT = "akx.solvers.direct.forecast", "akx.solvers.direct.doubt"


@dataclass(frozen=True)
class Forecast:
    """What is known of a factorisation.

    Attributes
    ----------
    fill, flops : float
        Entries of L + U, and operations with them.
    base : float
        Seconds of what each factorisation does with A, on one machine.
    width : float
        Of its envelope, in the mean.
    next : float
        Seconds of the next look; 0 where nothing is left to find out.
    order : (n,) array or None
        The rows in their turn; None for SuperLU's own order.
    pivots : bool
        Whether SuperLU is to keep to the diagonal.
    times : float
        SuperLU's fill over that: 1 but where it keeps to a diagonal that is not safe.
    scale : (n,) array or None
        What both sides of A are scaled by, where its diagonal was looked at.
    degree : bool
        Whether minimum degree suits the pattern.
    graph : pair of arrays or None
        Where each row begins, and columns, for the next look: of A + A^T, or A with columns moved.
    """

    fill: float
    flops: float
    base: float = 0.0
    width: float = 1.0
    next: float = 0.0
    order: NDArray[Any] | None = None
    pivots: bool = False
    times: float = 1.0
    scale: NDArray[Any] | None = None
    degree: bool = False
    graph: tuple[NDArray[Any], NDArray[Any]] | None = None

    @property
    def seconds(self) -> float:
        """Of the factorisation, on one machine; Inf where that is out of the question."""
        if not (self.times * self.fill <= MOST_FILL and self.times * self.flops <= _MOST_FLOPS):
            return float("inf")
        return float(self.times * _FILL * self.fill + _FLOP * self.flops + self.base)


def forecast(matrix: Matrix) -> Forecast:
    """What is known by now; at first by the envelope as it stands."""
    if _KEY not in matrix.cache:
        matrix.cache[_KEY] = _as_it_stands(matrix)
    found: Forecast = matrix.cache[_KEY]
    return found


def look_closer(matrix: Matrix, scale: NDArray[Any] | None) -> Forecast:
    """Take the next look, of A scaled on both sides by `scale`; once for a pattern as long as its diagonal is safe."""
    now = forecast(matrix)
    if not now.next:  # another thread has taken it
        return now
    if now.graph is not None:
        found = _counted_fill(matrix, now)
        if found.pivots and found.times == 1:
            matrix.pattern_cache[_KEY] = found
    else:
        is_strong = _strong(matrix, scale)
        weak = 1 - np.count_nonzero(is_strong) / matrix.n
        known = None if weak else matrix.pattern_cache.get(_KEY)
        found = replace(known or _narrowed(matrix, now, weak, is_strong), scale=scale)
    matrix.cache[_KEY] = found
    return found


def foreseen(matrix: Matrix, scale: NDArray[Any] | None) -> Forecast:
    """All that can be known."""
    found = forecast(matrix)
    while found.next:
        found = look_closer(matrix, scale)
    return found


def doubt(matrix: Matrix) -> None:
    """A has no factors that solve anything: it may be singular."""
    matrix.cache[_DOUBT] = True


def is_doubtful(matrix: Matrix) -> bool:
    """Whether that was found."""
    return bool(matrix.cache.get(_DOUBT, False))


def _seconds(matrix: Matrix, each: tuple[float, float]) -> float:
    return each[0] * matrix.n + each[1] * matrix.nnz + 2e-5


def _filled(widths: NDArray[Any]) -> tuple[float, float]:
    """Entries of L + U and flops, where each row of L reaches over so many columns at most."""
    return _FILLED * float(2 * widths.sum()), _FILLED**2 * float(2 * (widths**2).sum())


def _as_it_stands(matrix: Matrix) -> Forecast:
    n, pointer, columns = matrix.n, matrix.indptr, matrix.indices
    rows = np.flatnonzero(np.diff(pointer))
    widths = np.ones(n)
    widths[rows] += np.maximum(rows - columns[pointer[rows]], columns[pointer[rows + 1] - 1] - rows).clip(0)
    base = _CALL + _OF_ROW * n + _OF_ENTRY * matrix.nnz
    found = Forecast(*_filled(widths), base, float(widths.mean()))
    if _is_narrow(matrix, found):
        return replace(found, next=_seconds(matrix, _LOOKED))
    return replace(found, fill=_HOPED * matrix.nnz, flops=0.0, next=_seconds(matrix, _NARROWED))


def _is_narrow(matrix: Matrix, found: Forecast) -> bool:
    """Whether a better order would cost more than it may save."""
    return found.flops > 0 and found.seconds < 2 * _seconds(matrix, _MINIMUM_DEGREE) + found.base


def _strong(matrix: Matrix, scale: NDArray[Any] | None) -> NDArray[Any]:
    """Whether the diagonal of A, scaled, is large enough to be the pivot of each column."""
    moduli, diagonal = np.abs(matrix.data), np.abs(matrix.diagonal())
    if scale is not None:  # by rows: of a column all moduli would be scaled alike
        moduli, diagonal = moduli * np.repeat(scale, np.diff(matrix.indptr)), diagonal * scale
    largest = np.zeros(matrix.n, moduli.dtype)
    np.maximum.at(largest, matrix.indices, moduli)
    return np.asarray(diagonal > _THRESHOLD * largest)


def _narrowed(matrix: Matrix, first: Forecast, weak: float, is_strong: NDArray[Any]) -> Forecast:
    """SuperLU's own order will do, or how wide A is in that of reverse Cuthill-McKee, for columns in other places."""
    n = matrix.n
    longest = max(int(lengths.max(initial=0)) for lengths in (np.bincount(matrix.indices), np.diff(matrix.indptr)))
    is_short = longest <= _LONG * n**0.5
    pivots = weak <= (_WEAK if is_short else _WEAK_LONG)
    first = replace(first, pivots=pivots, times=_SWAPPED if pivots and weak > _SURE else 1.0)
    column = None if pivots else _moved(matrix, is_strong)
    if _is_narrow(matrix, first) and (is_short or not pivots):
        return replace(first, next=0.0, degree=pivots)
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    there = _pattern(matrix.indptr, matrix.indices)
    there = there if column is None else sp.csr_array(there[:, column])
    both = sp.csr_array(there + there.T)
    order = np.asarray(reverse_cuthill_mckee(both, symmetric_mode=True), dtype=np.int64)
    place = _inverse(order)
    widths, rows = np.ones(n), place[np.repeat(np.arange(n), np.diff(both.indptr))]
    np.maximum.at(widths, rows, rows - place[both.indices] + 1.0)
    width = float(widths.mean())
    degree = pivots and is_short and width <= min(max(_WIDE * n, _FEW), _MANY)
    found = Forecast(*_filled(widths), first.base, width, pivots=pivots, times=first.times, degree=degree)
    if _is_narrow(matrix, found) and (degree or not pivots):
        return replace(found, order=order) if pivots and found.fill <= _TIGHT * matrix.nnz else found
    price = _seconds(matrix, _MINIMUM_DEGREE if degree else _METIS if pivots else _COLAMD)
    graph = both if pivots else there
    known = replace(found, next=price, graph=(graph.indptr, graph.indices))
    return known if pivots and not degree else replace(known, fill=min(first.fill, found.fill), flops=0.0)


def _moved(matrix: Matrix, is_strong: NDArray[Any]) -> NDArray[Any]:
    """For each row a column to have its diagonal in: its own, or a free one with a large entry of all in its row.

    Free columns take the rows of their largest entries, in some rounds; rows that are left take what is left.
    """
    n = matrix.n
    column = np.where(is_strong, np.arange(n), -1)
    is_taken = is_strong.copy()
    rows, columns, parts = np.repeat(np.arange(n), np.diff(matrix.indptr)), matrix.indices, np.abs(matrix.data)
    largest = np.zeros(n, parts.dtype)
    np.maximum.at(largest, rows, parts)
    parts = parts / np.where(largest > 0, largest, 1)[rows]
    for _ in range(_MATCHINGS):
        is_free = (column[rows] < 0) & ~is_taken[columns]
        rows, columns, parts = rows[is_free], columns[is_free], parts[is_free]
        order = np.lexsort((-parts, columns))
        wanting, first = np.unique(columns[order], return_index=True)
        wanted, one = np.unique(rows[order][first], return_index=True)
        column[wanted], is_taken[wanting[one]] = wanting[one], True
    column[column < 0] = np.flatnonzero(~is_taken)
    return column


def _pattern(pointer: NDArray[Any], columns: NDArray[Any]) -> Any:
    return sp.csr_array((np.ones(columns.size, np.float32), columns, pointer), shape=(pointer.size - 1,) * 2)


def _inverse(order: NDArray[Any]) -> NDArray[Any]:
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return place


def _counted_fill(matrix: Matrix, found: Forecast) -> Forecast:
    """The last look: an order, and the fill in it."""
    assert found.graph is not None
    pointer, columns = found.graph
    if not found.pivots:
        there = _pattern(pointer, columns)
        both, there = sp.csr_array(there + there.T), there.tocsc()
        pointer, columns = both.indptr, both.indices
        order = _by_superlu(there.indptr, there.indices, "COLAMD")
    else:
        order = _by_superlu(pointer, columns, "MMD_AT_PLUS_A") if found.degree else _dissected(pointer, columns)
    counts = _column_counts(pointer, columns, order, MOST_FILL)
    flops = float(2 * (counts.astype(float) ** 2).sum())
    kept = order if found.pivots else None
    return replace(found, fill=float(2 * counts.sum()), flops=flops, next=0.0, order=kept, graph=None)


def _by_superlu(pointer: NDArray[Any], columns: NDArray[Any], name: str) -> NDArray[Any]:
    """An order of SuperLU's for a pattern by columns: that of incomplete factors of what is a diagonal, to rounding."""
    from scipy.sparse.linalg import spilu

    n = pointer.size - 1
    A = sp.csc_array((np.full(columns.size, 1e-9), columns, pointer), shape=(n, n)) + sp.eye_array(n, format="csc")
    made = spilu(A, drop_tol=1.0, fill_factor=1.0, permc_spec=name, options={"SymmetricMode": name != "COLAMD"})
    return _inverse(np.asarray(made.perm_c, dtype=np.int64))


def _dissected(pointer: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """METIS's nested dissection."""
    import pymetis

    index, n = np.dtype(pymetis.zero_copy_dtype()), pointer.size - 1
    rows = np.repeat(np.arange(n), np.diff(pointer))
    is_off = rows != columns
    pointer = np.concatenate(([0], np.cumsum(np.bincount(rows[is_off], minlength=n))))
    adjacency = pymetis.CSRAdjacency(pointer.astype(index), columns[is_off].astype(index))
    found = pymetis.nested_dissection(adjacency, options=pymetis.Options(seed=0, numbering=0))
    return np.asarray(found[0], dtype=np.int64)


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
    """(D A E)^-1 in the order of its factorisation, as :func:`factors_of` makes it; for refinement and as an M."""

    def __init__(self, lu: Any, order: NDArray[Any] | None, scale: NDArray[Any] | None) -> None:
        self.lu, self.order, self.scale = lu, order, scale
        self.nbytes = int(lu.nnz) * 12

    def solve(self, r: NDArray[Any], *, adjoint: bool = False) -> NDArray[Any]:
        """A^-1 r, about, or A^-H r; (n,)."""
        right = r if self.scale is None else self.scale * r
        right = right.astype(np.result_type(r, np.float64), copy=False)
        trans = "H" if adjoint else "N"
        if self.order is None:
            x: NDArray[Any] = self.lu.solve(right, trans)
        else:
            x = np.empty_like(right)
            x[self.order] = self.lu.solve(right[self.order], trans)
        return x if self.scale is None else self.scale * x


def factors_of(A: Any, known: Forecast) -> Factors | str:
    """The factors of A, scaled on both sides as is `known`; or, as text, why there are none."""
    data, pointer, columns = A.data.astype(np.result_type(A.dtype, np.float64), copy=False), A.indptr, A.indices
    if known.scale is not None:  # without, its diagonal may be no safe pivot
        data = data * np.repeat(known.scale, np.diff(pointer)) * known.scale[columns]
    A = sp.csr_array((data, columns, pointer), shape=A.shape) if data is not A.data else A
    options: dict[str, Any] = {"panel_size": _PANEL} if known.flops < _FULL * known.fill else {}
    if known.pivots and (known.degree or known.order is not None):
        options |= {"diag_pivot_thresh": _THRESHOLD, "options": {"SymmetricMode": True}, "permc_spec": "MMD_AT_PLUS_A"}
        if known.order is not None:
            A, options["permc_spec"] = sp.csr_array(A[known.order]), "NATURAL"
            A = sp.csr_array((A.data, _inverse(known.order)[A.indices], A.indptr), shape=A.shape)
        if A.diagonal().all():  # else it may fail, and say so on the terminal
            options["relax"] = 1  # by itself it takes columns together that are of no one subtree: ten times the fill
    lu = superlu(A, **options)
    return lu if isinstance(lu, str) else Factors(lu, known.order, known.scale)


def superlu(A: Any, **options: Any) -> Any:
    """SuperLU's factors, or text as above. Where a row or column is empty it complains on the terminal, or crashes."""
    from scipy.sparse.linalg import splu

    A = sp.csc_array(A)
    if not (np.diff(A.indptr).all() and np.bincount(A.indices, minlength=A.shape[0]).all()):
        return "a row or column is empty"
    try:
        return splu(A, **options)
    except (RuntimeError, MemoryError) as error:  # "Factor is exactly singular"
        return "no memory for the factors" if isinstance(error, MemoryError) else "a pivot is zero"
