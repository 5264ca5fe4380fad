"""Dense work of orthogonalisation on the team: products of the last rows with all, and their replacement, in one pass.

W (m, n), C-contiguous, holds m vectors as rows; the last s of them, V, are to be made orthonormal to the others and to
each other (:mod:`akx.krylov.orthogonalize`). A pass goes through W in chunks of columns that stay in the second-level
cache, each thread through its own part of the columns, and does any of

    replace     V = F^T W, F (m, s), all of the old W
    add         x += f^T W, f (m,)
    products    P = conj(W) V^T, (m, s), of the new V, or only its last s rows

on a chunk before the next, so that products that check a replacement move no memory. Words per pass: m n read, and s n
written by replace, n read and written by add. Flops: 2 m s n for replace and products each.

Sums are kept in double precision from chunk to chunk and added up in the order of
the threads: the same input gives the same bits on the same number of threads. One job, so that in a solver the team
changes between this and the matrix only; passes too short to be worth the change are done by the caller alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.jit import jit, jit_inner
from akx.backends.cpu.thread_sync import arrays_of, begin, first_part, part_count, then_undone, undone
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.vectors.row_kernels import SHARED_BYTES, cut, dots_four, dots_one, sum_rows
from akx.backends.host import resolve_threads
from akx.backends.householder import orthonormal_rows

__all__ = ["BlockWork", "run_blocks"]

#: Bytes of a chunk of all rows, and the columns that it has.
_CHUNK_BYTES = 160 * 1024
_LEAST_CHUNK, _MOST_CHUNK = 64, 1024
_NONE, _OWN, _ALL = range(3)


class BlockWork:
    """The operations on the rows of one array.

    `W` (m, n) array, C-contiguous, float32, float64, complex64 or complex128: room for all rows there will be.
    `threads`: most threads, as for :class:`akx.MatrixPowers`.
    """

    def __init__(self, W: NDArray[Any], threads: int | None = None) -> None:
        assert W.flags.c_contiguous
        self.W = W
        self.threads = resolve_threads(threads)
        self._words = np.zeros(8, dtype=np.int64)
        self._nothing = np.empty(0, dtype=W.dtype)
        self._jobs: dict[int, tuple[Job, NDArray[Any]]] = {}
        self._width = 0
        self._factors = self._nothing
        self._make(8)

    def products(self, k: int, s: int) -> NDArray[Any]:
        """conj(W[:k+s]) W[k:k+s]^T, (k+s, s), in float64 or complex128."""
        return self._run(k, s, None, _ALL)

    def replace(self, k: int, s: int, F: NDArray[Any], *, check: bool = False) -> NDArray[Any]:
        """Rows k .. k+s-1 become F^T W[:k+s], F (k+s, s); with `check`, the products of the new ones."""
        return self._run(k, s, F, _ALL if check else _NONE)

    def add(self, y: NDArray[Any], x: NDArray[Any]) -> None:
        """x (n,) += sum_j y[j] W[j], y (j,)."""
        if y.size:
            self._run(y.size - 1, 1, y[:, None], _NONE, x)

    def is_zero(self, k: int) -> bool:
        """Whether all entries of row k are zero."""
        return not self.W[k].any()

    def factorise(self, k: int, s: int) -> NDArray[Any]:
        """Rows k .. k+s-1 become orthonormal by Householder reflections; the triangle (s, s)."""
        self.W[k : k + s], upper = orthonormal_rows(self.W[k : k + s])
        return upper

    def _make(self, width: int) -> None:
        """Room for blocks of so many rows."""
        rows, kind = self.W.shape[0], self.W.dtype
        wide = np.dtype(np.complex128 if kind.kind == "c" else np.float64)
        self._width = width = -(-width // 4) * 4
        self._factors = np.zeros((rows + 4, width), dtype=kind)
        for count in {1, self.threads}:
            sums = np.zeros((count, rows, width), dtype=wide)
            chunks = np.zeros((count, width, _MOST_CHUNK), dtype=kind)
            self._jobs[count] = Job(run_blocks, (self._words, self._factors, chunks, sums), count, kind), sums

    def _run(self, k: int, s: int, F: NDArray[Any] | None, check: int, x: NDArray[Any] | None = None) -> NDArray[Any]:
        if s > self._width:
            self._make(s)
        m = k + s
        if F is not None:
            self._factors[: m + 4] = 0
            self._factors[:m, :s] = F
        self._words[:6] = m, s, self.W.shape[1], F is not None and x is None, x is not None, check
        threads = self.threads if m * self.W[0].nbytes >= SHARED_BYTES else 1
        job, sums = self._jobs[threads]
        job.run(self.W, self._nothing if x is None else x)
        found: NDArray[Any] = sums[0, :m, :s].copy() if threads == 1 else sums[:, :m, :s].sum(axis=0)
        return found


@jit_inner
def _products(W: Any, start: int, stop: int, first: int, m: int, s: int, sums: Any) -> None:
    """sums[i, q] += <w_i, v_q> for first <= i < m, on a chunk."""
    k, whole = m - s, s - s % 4
    for i in range(first, m, 4):
        for q in range(0, whole, 4):
            dots_four(W, start, stop, i, m, k + q, sums, q)
        for q in range(whole, s):
            dots_one(W, start, stop, i, m, k + q, sums, q)


@jit_inner
def _sum_four(W: Any, start: int, stop: int, m: int, F: Any, q: int, chunk: Any) -> None:
    """chunk[q + c] = sum_j F[j, q + c] w_j for c < 4."""
    last, size = m - 1, stop - start
    x0, x1, x2, x3 = chunk[q, :size], chunk[q + 1, :size], chunk[q + 2, :size], chunk[q + 3, :size]
    for j in range(0, m, 4):
        a0, a1, a2, a3 = F[j, q], F[j + 1, q], F[j + 2, q], F[j + 3, q]
        b0, b1, b2, b3 = F[j, q + 1], F[j + 1, q + 1], F[j + 2, q + 1], F[j + 3, q + 1]
        c0, c1, c2, c3 = F[j, q + 2], F[j + 1, q + 2], F[j + 2, q + 2], F[j + 3, q + 2]
        d0, d1, d2, d3 = F[j, q + 3], F[j + 1, q + 3], F[j + 2, q + 3], F[j + 3, q + 3]
        w0, w1 = W[j, start:stop], W[min(j + 1, last), start:stop]
        w2, w3 = W[min(j + 2, last), start:stop], W[min(j + 3, last), start:stop]
        for t in range(np.uintp(size)):
            e, f, g, h = w0[t], w1[t], w2[t], w3[t]
            x0[t] += a0 * e + a1 * f + a2 * g + a3 * h
            x1[t] += b0 * e + b1 * f + b2 * g + b3 * h
            x2[t] += c0 * e + c1 * f + c2 * g + c3 * h
            x3[t] += d0 * e + d1 * f + d2 * g + d3 * h


@jit_inner
def _replace(W: Any, start: int, stop: int, m: int, s: int, F: Any, chunk: Any) -> None:
    """The last s of m rows become F^T W, on a chunk."""
    size = stop - start
    chunk[:s, :size] = 0
    if s == 1:
        sum_rows(W, start, stop, F[:m, 0], chunk[0, :size])
    else:
        for q in range(0, s, 4):
            chunk[q : q + 4, :size] = 0
            _sum_four(W, start, stop, m, F, q, chunk)
    for q in range(s):
        W[m - s + q, start:stop] = chunk[q, :size]


@jit
def run_blocks(
    words: Any, factors: Any, chunks: Any, sums: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool
) -> Any:
    """Do one pass over the columns of the parts of one thread; a member of a team for call after call.

    words : (8,) int64: m, s, n, whether to replace, whether to add to `out`, which products.
    factors : (rows + 4, width); chunks : (parts, width, columns) scratch; sums : (parts, rows, width).
    x : W (rows, n); out (n,), calls, thread, sent: see :mod:`akx.backends.cpu.thread_sync`.
    """
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    number, part = undone(calls, thread, number, first_part(calls, thread))
    while number > 0:
        if thread > 0:
            x, out = arrays_of(calls, 1, x, out)  # `out` ends earlier than that says
        _do_columns(words, factors, chunks[part], sums[part], x, out, part, part_count(calls))
        number, part = then_undone(calls, thread, number, part)
    return number == 0


@jit_inner
def _do_columns(words: Any, factors: Any, chunk: Any, total: Any, x: Any, out: Any, part: int, parts: int) -> None:
    """The pass over the columns of one part."""
    m, s, n = words[0], words[1], words[2]
    total[:m, :s] = 0
    length = min(max(_CHUNK_BYTES // (m * x.itemsize), _LEAST_CHUNK), _MOST_CHUNK) // 64 * 64
    start, end = cut(n, part, parts), cut(n, part + 1, parts)
    while start < end:
        stop = min(start + length, end)
        if words[3]:
            _replace(x, start, stop, m, s, factors, chunk)
        if words[4]:
            sum_rows(x, start, stop, factors[:m, 0], out[start:stop])
        if words[5] != _NONE:
            _products(x, start, stop, 0 if words[5] == _ALL else m - s, m, s, total)
        start = stop
