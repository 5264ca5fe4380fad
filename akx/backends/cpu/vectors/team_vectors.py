"""Dense work on rows of vectors, for solvers: Gram matrices, combinations and the fused updates of CG, one pass each.

An array of rows W (m, n), C-contiguous, holds m vectors. Each part of the job is a contiguous run of the columns,
gone through in chunks that stay in its nearest caches while all the arithmetic of a pass is done on them; sums
are kept by part, in double precision from chunk to chunk, and added up in the order of the parts: the same input
gives the same bits with the same `threads`, however many of them are running.

All operations are one compiled job (:func:`run_vectors`), so that the team changes between no more than two jobs in a
solver, the matrix's and this one. Where the pass is too short to be worth a change, the caller does it alone, and the
team goes on listening for the next product.

============  ==========================================================  ======================================
operation     what is done                                                words per entry of a vector moved
============  ==========================================================  ======================================
gram          G[i, j] = <w_i, w_j>, i < j; i in some of the rows          m read
combine       out_q = sum_j C[q, j] w_j (added to out_q if asked)         m read, q written (and read)
advance       x += C[0] W, then w_q-1 = C[q] W for q = 1, 2, ...          m + 1 read, q written
dot           <a, b>                                                      2 read
descend       r -= alpha w, and <r, r>                                    2 read, 1 written
turn          x += alpha p, then p = u + beta p                           3 read, 2 written
============  ==========================================================  ======================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.cpu.jit import jit, jit_inner
from akx.backends.cpu.thread_sync import arrays_of, begin, first_part, part_count, then_undone, undone
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.vectors.orthogonalisation import BlockWork
from akx.backends.cpu.vectors.row_kernels import SHARED_BYTES, cut, dot, dots_four, dots_one, sum_rows
from akx.backends.cpu.vectors.row_updates import advance_rows, pack
from akx.backends.host import resolve_threads
from akx.backends.vectors import MOST_ROWS, HostVectors

__all__ = ["VectorWork", "run_vectors"]

#: Bytes of a chunk of all rows: half of a second-level cache of 512 KiB and more.
_CHUNK_BYTES = 192 * 1024
_LEAST_CHUNK, _MOST_CHUNK = 128, 2048
_GRAM, _COMBINE, _ADVANCE, _DOT, _DESCEND, _TURN = range(6)


class VectorWork(HostVectors):
    """The operations, for vectors of one type; made once per solve.

    `dtype`: float32, float64, complex64 or complex128. `threads`: most threads, as for :class:`akx.MatrixPowers`.
    """

    def __init__(self, dtype: DTypeLike, threads: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.threads = resolve_threads(threads)
        wide = np.dtype(np.complex128 if self.dtype.kind == "c" else np.float64)
        self._words = np.zeros(8, dtype=np.int64)
        self._factors = np.zeros(MOST_ROWS * MOST_ROWS, dtype=self.dtype)
        self._picks = np.zeros((MOST_ROWS // 4 + 1, 1 + MOST_ROWS), dtype=np.int64)
        self._nothing = np.empty(0, dtype=self.dtype)
        self._jobs: dict[int, tuple[Job, NDArray[Any]]] = {}
        for count in {1, self.threads}:
            sums = np.zeros((count, MOST_ROWS * MOST_ROWS), dtype=wide)
            chunks = np.zeros((count, MOST_ROWS * _LEAST_CHUNK), dtype=self.dtype)
            arguments = (self._words, self._factors, self._picks, chunks, sums)
            self._jobs[count] = Job(run_vectors, arguments, count, self.dtype), sums

    revision = 1

    # Rows of vectors, and what is done with single ones; NumPy's arithmetic is as good as any there.

    def following(self, v: NDArray[Any], w: NDArray[Any]) -> NDArray[Any] | None:
        if v.__array_interface__["data"][0] + v.nbytes != w.__array_interface__["data"][0]:
            return None
        owner = v.base
        if not isinstance(owner, np.ndarray) or not owner.flags.c_contiguous or w.base is not owner:
            return None
        flat = owner.reshape(-1)
        first = (v.__array_interface__["data"][0] - owner.__array_interface__["data"][0]) // v.itemsize
        return flat[first : first + 2 * v.size].reshape(2, v.size)

    def norm(self, v: NDArray[Any]) -> float:
        """The length of a vector; not by BLAS, whose own threads wait for one another on a busy machine."""
        return float(np.sqrt(self._run(_DOT, v.reshape(1, -1), self._nothing, 1, 0, 0)[0].real))

    def add(self, x: NDArray[Any], factor: complex, v: NDArray[Any]) -> None:
        self.advance(np.array([[factor]]), v.reshape(1, -1), x)

    def over(self, W: NDArray[Any]) -> BlockWork:
        return BlockWork(W, self.threads)

    def gram(self, W: NDArray[Any], first: int = 0) -> NDArray[Any]:
        """Inner products of rows `first`, first + 1, ... of W (m, n) with all rows.

        Returns (m - first, m) array of float64 or complex128: G[i, j] = <w_{first+i}, w_j>, the first argument
        conjugated. Where `first` is 0, exactly Hermitian.
        """
        m = self._check(W)
        sums = self._run(_GRAM, W, self._nothing, m, first)[: m * m].reshape(m, m)
        above = np.triu(sums, 1)
        full: NDArray[Any] = above + above.conj().T + np.diag(sums.diagonal().real)
        return full[first:]

    def combine(self, C: NDArray[Any], W: NDArray[Any], out: NDArray[Any], *, add: bool = False) -> NDArray[Any]:
        m = self._check(W)
        self._factors[: C.size] = C.reshape(-1)
        self._run(_COMBINE, W, out.reshape(-1), m, C.shape[0], int(add))
        return out

    def advance(self, C: NDArray[Any], W: NDArray[Any], x: NDArray[Any]) -> None:
        m = self._check(W)
        assert len(C) <= MOST_ROWS - 4
        if len(C) == 1:
            self.combine(C, W, x[None], add=True)
            return
        pack(np.ascontiguousarray(C, dtype=self.dtype), self._factors, self._picks)
        self._run(_ADVANCE, W, x, m, C.shape[0])

    def dot(self, V: NDArray[Any], i: int, j: int) -> complex:
        return complex(self._run(_DOT, V, self._nothing, 2, i, j)[0])

    def descend(self, V: NDArray[Any], alpha: complex) -> float:
        self._factors[0] = alpha
        return float(self._run(_DESCEND, V, self._nothing, 3)[0].real)

    def turn(self, V: NDArray[Any], alpha: complex, beta: complex, u: int) -> None:
        self._factors[0], self._factors[1] = alpha, beta
        self._run(_TURN, V, self._nothing, 5, u)

    def _check(self, W: NDArray[Any]) -> int:
        assert W.flags.c_contiguous
        assert W.dtype == self.dtype
        assert len(W) <= MOST_ROWS
        return len(W)

    def _run(self, operation: int, W: NDArray[Any], out: NDArray[Any], moved: int, *rest: int) -> NDArray[Any]:
        """Do one operation, moving so many vectors' worth of memory; the sums."""
        words = self._words
        words[0], words[1], words[2] = operation, W.shape[0], W.shape[1]
        words[3 : 3 + len(rest)] = rest
        threads = self.threads if moved * W.shape[1] * self.dtype.itemsize >= SHARED_BYTES else 1
        job, sums = self._jobs[threads]
        job.run(W, out)
        total: NDArray[Any] = sums[0] if threads == 1 else sums.sum(axis=0)
        return total


@jit_inner
def _gram(W: Any, start: int, stop: int, first: int, sums: Any) -> None:
    """sums[i, j] += <w_i, w_j> for i <= j, j >= first, on a chunk; some of those below the diagonal too."""
    m = W.shape[0]
    whole = m - m % 4
    for j in range(0, whole, 4):
        if j + 4 > first:
            for i in range(0, j + 4, 4):
                dots_four(W, start, stop, i, m, j, sums, j)
    for j in range(whole, m):
        for i in range(0, whole, 4):
            dots_one(W, start, stop, i, m, j, sums, j)
        for i in range(whole, j + 1):
            sums[i, j] += dot(W[i, start:stop], W[j, start:stop])


@jit_inner
def _add(factor: Any, a: Any, target: Any) -> None:
    """target += factor a."""
    for i in range(np.uintp(target.size)):
        target[i] += factor * a[i]


@jit_inner
def _scale_and_add(factor: Any, target: Any, a: Any) -> None:
    """target = a + factor target."""
    for i in range(np.uintp(target.size)):
        target[i] = a[i] + factor * target[i]


@jit
def run_vectors(
    words: Any, factors: Any, picks: Any, chunks: Any, sums: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool
) -> Any:
    """Do one operation on the columns of the parts of one thread; a member of a team for call after call.

    words : (8,) int64: the operation, rows m and columns n of x, what else the operation needs.
    factors, picks : coefficients, and for what; chunks : (parts, ...) scratch; sums : (parts, ...) those of each.
    x (m, n), out flat, calls, thread, sent: see :mod:`akx.backends.cpu.thread_sync`.
    """
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    number, part = undone(calls, thread, number, first_part(calls, thread))
    while number > 0:
        if thread > 0:
            x, out = arrays_of(calls, MOST_ROWS, x, out)  # `out` ends earlier than that says
        _do_columns(words, factors, picks, chunks[part], sums[part], x, out, part, part_count(calls))
        number, part = then_undone(calls, thread, number, part)
    return number == 0


@jit_inner
def _do_columns(
    words: Any, factors: Any, picks: Any, chunk: Any, total: Any, x: Any, out: Any, part: int, parts: int
) -> None:
    """One operation on the columns of one part."""
    operation, m, n = words[0], words[1], words[2]
    total[: m * m] = 0
    length = min(max(_CHUNK_BYTES // (m * x.itemsize), _LEAST_CHUNK), _MOST_CHUNK) // 64 * 64
    if operation == _COMBINE and words[3] > 1:
        length = _LEAST_CHUNK
    start, end = cut(n, part, parts), cut(n, part + 1, parts)
    while start < end:
        stop = min(start + length, end)
        if operation == _GRAM:
            _gram(x, start, stop, words[3], total[: m * m].reshape(m, m))
        elif operation == _COMBINE:
            for q in range(words[3]):
                target = out[q * n + start : q * n + stop]
                if words[4] == 0:
                    target[:] = 0
                sum_rows(x, start, stop, factors[q * m : (q + 1) * m], target)
        elif operation == _ADVANCE:
            advance_rows(factors, picks, words[3], x, start, end, out, chunk)
            stop = end
        elif operation == _DOT:
            total[0] += dot(x[words[3], start:stop], x[words[4], start:stop])
        elif operation == _DESCEND:
            _add(-factors[0], x[1, start:stop], x[2, start:stop])
            total[0] += dot(x[2, start:stop], x[2, start:stop])
        else:
            _add(factors[0], x[0, start:stop], x[3, start:stop])
            _scale_and_add(factors[1], x[0, start:stop], x[words[3], start:stop])
        start = stop
