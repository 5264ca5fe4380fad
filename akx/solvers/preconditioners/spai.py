"""Static sparse approximate inverse: M minimises ||A M - I||_F among the matrices of a pattern taken from A.

The pattern keeps m_ik where |a_ik| > (1 - tau) max_j |a_ij|, and the diagonal: for tau = 1 it is that of A, for tau = 0
the diagonal alone (Mehri Dehnavi 2012, ch. 5, eq. 5.3). The norm falls apart into n independent least-squares problems

    min || A(I, J) m_k(J) - e_k(I) ||,    J = pattern of column k,    I = rows that the columns J of A reach

(eq. 5.4), each a small dense QR factorisation; :mod:`akx.solvers.preconditioners.columns` solves them. The steps are
those of the thesis: the dimensions of all problems first (Pre-GSAI), then the columns, cut into runs of equal work that
threads take in turn, each thread with one workspace for its widest problem (Compute-GSAI); a budget of memory decides
how many threads work at once. On a GPU all of it is done there by the same formulas.

Work: sum over k of 2 n2^2 (n1 - n2/3) flops. Memory: A in CSC, M, the magnitudes of A, 4 n bytes for each thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.backends.host import resolve_threads
from akx.backends.selection import HOST, backend_of, suited
from akx.core.arguments import ANY_COUNT, check_count, check_number
from akx.core.errors import ArgumentError, BudgetError
from akx.core.matrix import Matrix
from akx.solvers.preconditioners.columns import column_sizes, kept_entries, largest_magnitudes, solve_columns
from akx.solvers.preconditioners.sparse import SparseM

__all__ = ["SPAI", "spai"]

#: Bytes that the workspaces of all threads may take.
_MEMORY = 1 << 30
#: Runs of columns for each thread: enough that none waits long for the last.
_RUNS = 16


class SPAI(SparseM):
    """M as a sparse matrix; made by :func:`spai`.

    Attributes
    ----------
    M : scipy.sparse.csr_array
        The approximate inverse. Read-only.
    tau, seconds : float
        As asked for, and the time to make it.
    misfit : float
        ||A M - I||_F / sqrt(n): 0 for an inverse, at most 1.
    largest : tuple of int
        The largest n1 and n2 of a local problem.
    backend : str
        Where it was made: on the host for a backend that makes none.
    """

    name = "spai"

    def __init__(
        self,
        matrix: Matrix,
        *,
        tau: float = float("nan"),
        seconds: float = 0.0,
        misfit: float = float("nan"),
        largest: tuple[int, int] = (0, 0),
        backend: str = HOST,
        **options: Any,
    ) -> None:
        super().__init__(matrix, **options)
        self.tau, self.seconds, self.misfit, self.largest = tau, seconds, misfit, largest
        self.backend = backend


def spai(
    A: Any,
    tau: float = 0.9,
    *,
    pattern: Any = None,
    most: int | None = None,
    symmetric: bool = False,
    memory: int | None = None,
    threads: int | None = None,
    backend: str = "auto",
) -> SPAI:
    """A static sparse approximate inverse.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
    tau : float
        Between 0, the diagonal alone, and 1, the pattern of A; entries that are zero are never part of it.
    pattern : sparse matrix or array, shape (n, n), optional
        The pattern of M, instead of one by `tau`: that of A^2, for instance. Its diagonal is not added.
    most : int, optional
        Most entries in a column of M: of those allowed, the largest of A, the diagonal always among them. For matrices
        with a few columns so full that their local problems would dominate.
    symmetric : bool
        Take (M + M^H) / 2, as conjugate gradients need it. It is Hermitian; definite it is not for certain.
    memory : int, optional
        Bytes for the workspaces of all threads: fewer threads work at once where it is short. By default 1 GiB. On a
        GPU, bytes for the local problems that do not fit the memory of a multiprocessor; by default a quarter of all.
    threads : int, optional
        Threads of the host to compute and to apply it with.
    backend : str
        Where to compute it: ``"auto"`` or the name of a backend, a GPU where there is one and A has 100,000 entries or
        more. M can be applied to vectors of either, wherever it was made.

    Returns
    -------
    SPAI
        Computed in float64 or complex128, stored in the dtype of A. The same bits each time on one backend, for any
        number of threads and any memory; the two backends differ by rounding.

    Raises
    ------
    ArgumentError
        Arguments out of range.
    BudgetError
        Where one local problem does not fit `memory`.
    MatrixError
        Where A or the pattern is no square sparse matrix.
    MissingDependencyError, DeviceError
        Where the backend is that of a GPU and there is none that can be used, or its memory is too small.
    """
    begin = time.perf_counter()
    tau = check_number("tau", tau, "a number, 0 .. 1", lambda number: 0 <= number <= 1)
    for name, value in (("most", most), ("memory", memory)):
        if value is not None:
            check_count(name, value, most=ANY_COUNT)
    if backend != "auto":
        backend_of(backend)
    workers = resolve_threads(threads)
    matrix = Matrix.from_any(A, value_error=0.0)
    if backend == "auto":
        backend = suited(lambda one: one.inverse_entries, matrix.nnz)
    make = backend_of(backend).inverse_maker()
    given = matrix, 1.0 - float(tau), pattern, most, symmetric, memory
    found, misfit, largest, notes = _on_host(*given, workers) if make is None else _on_device(*given, make)
    return SPAI(
        found,
        tau=float(tau) if pattern is None else float("nan"),
        seconds=time.perf_counter() - begin,
        misfit=float(np.sqrt(misfit.sum() / matrix.n)),
        largest=largest,
        hermitian=symmetric,
        threads=threads,
        backend=HOST if make is None else backend,
        notes=notes,
    )


#: M, the squared misfit of each column, the largest n1 and n2, and notes.
_Found = tuple[Matrix, NDArray[Any], tuple[int, int], tuple[str, ...]]


def _on_host(
    matrix: Matrix, factor: float, pattern: Any, most: int | None, symmetric: bool, memory: int | None, threads: int
) -> _Found:
    wide = np.dtype(np.complex128 if matrix.dtype.kind == "c" else np.float64)
    csc = matrix.to_scipy().tocsc()
    A = csc.indptr.astype(np.int64), csc.indices, np.ascontiguousarray(csc.data, dtype=wide)
    of_column, kept_ptr, kept = _pattern(matrix, csc, factor, pattern, most)
    room = _MEMORY if memory is None else int(memory)
    result, misfit, largest = _columns(A, of_column, kept_ptr, kept, threads, room)
    with np.errstate(over="ignore"):
        entries = result.astype(matrix.dtype)
    lost = ~np.isfinite(entries)
    entries[lost] = 0
    result[lost] = 0
    counted = np.concatenate([[0], np.cumsum(result != 0)])[kept_ptr]
    notes = _notes(int(np.count_nonzero(lost)), int(np.count_nonzero(np.diff(counted) == 0)))
    M = sp.csr_array(sp.csc_array((entries, kept, kept_ptr), shape=matrix.shape))
    if symmetric:
        M = (M + M.conj().T) * matrix.dtype.type(0.5)
    return Matrix.from_any(M), misfit, largest, notes


def _on_device(
    matrix: Matrix,
    factor: float,
    pattern: Any,
    most: int | None,
    symmetric: bool,
    memory: int | None,
    make: Callable[..., Any],
) -> _Found:
    given = None
    if pattern is not None or most is not None:  # chosen on the host, which sorts
        given = _pattern(matrix, matrix.to_scipy().tocsc(), factor, pattern, most)[1:]
    room = None if memory is None else int(memory)
    found = make(matrix, factor=factor, pattern=given, symmetric=symmetric, memory=room)
    M = Matrix(found.indptr, found.indices, found.data, pattern_cache={})
    return M, found.misfit, found.largest, _notes(found.lost, found.empty)


def _notes(lost: int, empty: int) -> tuple[str, ...]:
    of_lost = f"{lost} entries of M were beyond the range of numbers; 0 stands for them"
    of_empty = f"{empty} columns of M are zero: A is singular there, or the pattern reaches nothing"
    return (of_lost,) * bool(lost) + (of_empty,) * bool(empty)


def _pattern(
    matrix: Matrix, csc: Any, factor: float, pattern: Any, most: int | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Step (a), J of every column: the largest magnitude in each column of A, and the pattern of M in CSC."""
    indptr, indices = csc.indptr.astype(np.int64), csc.indices
    magnitudes = np.abs(csc.data.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64))
    of_column, of_row = np.zeros(matrix.n), np.zeros(matrix.n)
    largest_magnitudes(indptr, indices, magnitudes, of_column, of_row)
    if pattern is None:
        kept_ptr = np.empty(matrix.n + 1, dtype=np.int64)
        kept_entries(indptr, indices, magnitudes, of_row, factor, kept_ptr, np.empty(0, dtype=indices.dtype))
        kept = np.empty(kept_ptr[-1], dtype=indices.dtype)
        kept_entries(indptr, indices, magnitudes, of_row, factor, kept_ptr, kept)
    else:
        given = Matrix.from_any(pattern)
        if given.n != matrix.n:
            raise ArgumentError("pattern does not fit A", expected=str(matrix.shape), found=str(given.shape))
        turned = given.to_scipy().tocsc()
        turned.sort_indices()
        kept_ptr, kept = turned.indptr.astype(np.int64), turned.indices.astype(indices.dtype)
    if most is not None:
        kept_ptr, kept = _thinned(csc, magnitudes, kept_ptr, kept, int(most))
    return of_column, kept_ptr, kept


def _columns(
    A: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    of_column: NDArray[Any],
    kept_ptr: NDArray[Any],
    kept: NDArray[Any],
    threads: int,
    memory: int,
) -> tuple[NDArray[Any], NDArray[Any], tuple[int, int]]:
    """The entries of M in the order of the pattern, the squared misfit of each column, and the largest n1 and n2."""
    indptr, indices, values = A
    n = indptr.size - 1
    n1, n2 = np.zeros(n, dtype=np.int64), np.diff(kept_ptr)
    cuts = np.linspace(0, n, threads + 1).astype(np.int64)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda run: column_sizes(*run, indptr, indices, kept_ptr, kept, n1), pairwise(cuts)))
    room = int((n1 * n2).max())
    widest = int(np.argmax(n1 * n2))
    needed = max(1, room * values.itemsize)
    if needed > memory:
        raise BudgetError(
            f"the local problem of column {widest} does not fit the memory given to them",
            expected=f"{memory} bytes or less",
            found=f"{n1[widest]} x {n2[widest]}, {needed} bytes",
            hint="lower tau, pass most=100 or so to bound the entries of a column, or raise memory",
        )
    threads = min(threads, memory // needed)
    scale = np.ldexp(1.0, np.minimum(-np.frexp(of_column)[1], 1022))
    result, misfit = np.empty(kept.size, dtype=values.dtype), np.empty(n)
    tolerance = 10 * float(np.finfo(np.float64).eps) * float(np.sqrt(max(1, n1.max())))
    work_done = np.cumsum(n1 * n2 * n2 + 20 * n2 + 10)
    cuts = np.searchsorted(work_done, np.linspace(0, work_done[-1], _RUNS * threads + 1)[1:-1])
    runs: SimpleQueue[NDArray[Any]] = SimpleQueue()
    for run in np.split(np.arange(n), cuts):
        runs.put(run)

    def serve(_: int) -> None:
        where = np.full(n, -1, dtype=np.int32)
        work = np.empty(max(1, room), dtype=values.dtype)
        right, pivot = np.empty(max(1, n1.max()), dtype=values.dtype), np.empty(max(1, n2.max()), dtype=np.int64)
        while True:
            try:
                columns = runs.get_nowait()
            except Empty:
                return
            own = where, work, right, pivot
            solve_columns(columns, *A, scale, kept_ptr, kept, *own, tolerance, result, misfit)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(serve, range(threads)))
    return result, misfit, (int(n1.max()), int(n2.max()))


def _thinned(
    csc: Any, magnitudes: NDArray[Any], kept_ptr: NDArray[Any], kept: NDArray[Any], most: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pattern with at most so many entries in a column: the diagonal, then the largest of A, then by row."""
    column = np.repeat(np.arange(kept_ptr.size - 1), np.diff(kept_ptr))
    size = np.asarray(sp.csc_array((magnitudes, csc.indices, csc.indptr), shape=csc.shape)[kept, column]).reshape(-1)
    size[kept == column] = np.inf
    order = np.lexsort((kept, -size, column))
    rank = np.arange(kept.size) - kept_ptr[:-1][column]
    chosen = np.sort(order[rank < most])
    counts = np.bincount(column[chosen], minlength=kept_ptr.size - 1)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), kept[chosen]
