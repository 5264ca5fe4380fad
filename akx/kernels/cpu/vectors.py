"""Dense work on rows of vectors, for solvers: Gram matrices, combinations and the fused updates of CG, one pass each.

An array of rows W (m, n), C-contiguous, holds m vectors. Each thread of the team has a contiguous part of the columns
and goes through it in chunks that stay in its nearest caches while all the arithmetic of a pass is done on them; sums
are kept by thread, in double precision from chunk to chunk, and added up in the order of the threads: the same input
gives the same bits on the same number of threads.

All operations are one compiled job (:func:`run_vectors`), so that the team changes between no more than two jobs in a
solver, the matrix's and this one. Where the pass is too short to be worth a change, the caller does it alone, and the
team goes on listening for the next product.

============  ==========================================================  ======================================
operation     what is done                                                words per entry of a vector moved
============  ==========================================================  ======================================
gram          G[i, j] = <w_i, w_j>, i < j; i in some of the rows          m read
combine       out_q = sum_j C[q, j] w_j (added to out_q if asked)         m read, q written (and read)
advance       x += C[0] W, then w_q-1 = C[q] W for q = 1, 2, ...          m + 1 read, q written
cg_dots       <u, w> and <r, u>                                           2 read, 3 with a preconditioner
cg_update     p = u + beta p, s = w + beta s, x += alpha p, r -= alpha s  5 read and 4 written, 6 and 4 with one
============  ==========================================================  ======================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.device.host import resolve_threads
from akx.kernels.cpu.jit import jit, jit_sums
from akx.kernels.cpu.sync import arrays_of, begin, finish
from akx.kernels.cpu.team import Job

__all__ = ["MOST_ROWS", "VectorWork", "run_vectors"]

#: Rows that an array may have.
MOST_ROWS = 64
#: Bytes of a chunk of all rows: half of a second-level cache of 512 KiB and more.
_CHUNK_BYTES = 192 * 1024
_LEAST_CHUNK, _MOST_CHUNK = 128, 2048
#: Bytes moved from which on a pass is shared by the team: handing it over costs about 50 us where it has another job.
_SHARED_BYTES = 3 << 20
_GRAM, _COMBINE, _ADVANCE, _CG_DOTS, _CG_UPDATE = range(5)


class VectorWork:
    """The operations, for vectors of one type; made once per solve.

    Parameters
    ----------
    dtype : dtype
        float32, float64, complex64 or complex128.
    threads : int, optional
        Most threads, as for :class:`akx.MatrixPowers`.
    """

    def __init__(self, dtype: DTypeLike, threads: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.threads = resolve_threads(threads)
        wide = np.dtype(np.complex128 if self.dtype.kind == "c" else np.float64)
        self._words = np.zeros(8, dtype=np.int64)
        self._factors = np.zeros(MOST_ROWS * MOST_ROWS, dtype=self.dtype)
        self._nothing = np.empty(0, dtype=self.dtype)
        self._jobs: dict[int, tuple[Job, NDArray[Any]]] = {}
        for count in {1, self.threads}:
            sums = np.zeros((count, MOST_ROWS * MOST_ROWS), dtype=wide)
            chunks = np.zeros((count, MOST_ROWS * _LEAST_CHUNK), dtype=self.dtype)
            arguments = (self._words, self._factors, chunks, sums)
            self._jobs[count] = Job(run_vectors, arguments, count, self.dtype), sums

    def gram(self, W: NDArray[Any], first: int = 0) -> NDArray[Any]:
        """Inner products of rows `first`, first + 1, ... of W (m, n) with all rows.

        Returns
        -------
        (m - first, m) array of float64 or complex128
            G[i, j] = <w_{first+i}, w_j>, the first argument conjugated. Where `first` is 0, exactly Hermitian.
        """
        m = self._check(W)
        sums = self._run(_GRAM, W, self._nothing, m, first)[: m * m].reshape(m, m)
        above = np.triu(sums, 1)
        full: NDArray[Any] = above + above.conj().T + np.diag(sums.diagonal().real)
        return full[first:]

    def combine(self, C: NDArray[Any], W: NDArray[Any], out: NDArray[Any], *, add: bool = False) -> NDArray[Any]:
        """out (q, n) = C (q, m) W (m, n), or out += C W; `out` shares no memory with W."""
        m = self._check(W)
        self._factors[: C.size] = C.reshape(-1)
        self._run(_COMBINE, W, out.reshape(-1), m, C.shape[0], int(add))
        return out

    def advance(self, C: NDArray[Any], W: NDArray[Any], x: NDArray[Any]) -> None:
        """x (n,) += C[0] W, and rows q - 1 of W become C[q] W for q = 1 .. len(C) - 1, all of the old W."""
        m = self._check(W)
        self._factors[: C.size] = C.reshape(-1)
        self._run(_ADVANCE, W, x, m, C.shape[0])

    def cg_dots(self, V: NDArray[Any]) -> tuple[complex, complex]:
        """<u, w> and <r, u> of V = [u, w, p, s, x] or [u, w, p, s, x, r] (then r is u, and <r, u> is not computed)."""
        sums = self._run(_CG_DOTS, V, self._nothing, 3 if len(V) > 5 else 2)
        return sums[0], sums[1]

    def cg_update(self, V: NDArray[Any], alpha: complex, beta: complex) -> float:
        """p = u + beta p, s = w + beta s, x += alpha p, r -= alpha s of V as in :meth:`cg_dots`; the new <r, r>."""
        self._factors[0], self._factors[1] = alpha, beta
        return float(self._run(_CG_UPDATE, V, self._nothing, 10 if len(V) > 5 else 9)[0].real)

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
        threads = self.threads if moved * W.shape[1] * self.dtype.itemsize >= _SHARED_BYTES else 1
        job, sums = self._jobs[threads]
        job.run(W, out)
        total: NDArray[Any] = sums[0] if threads == 1 else sums.sum(axis=0)
        return total


@jit_sums
def _dot(a: Any, b: Any) -> Any:
    """<a, b> of two short arrays."""
    total = a.dtype.type(0)
    for i in range(np.uintp(a.size)):
        total += np.conj(a[i]) * b[i]
    return total


@jit_sums
def _dots_one(W: Any, start: int, stop: int, i: int, j: int, sums: Any, k: int) -> None:
    """sums[k + c] += <w_i, w_{j+c}> for c < 4."""
    s0 = s1 = s2 = s3 = W.dtype.type(0)
    x, w0, w1 = W[i, start:stop], W[j, start:stop], W[j + 1, start:stop]
    w2, w3 = W[j + 2, start:stop], W[j + 3, start:stop]
    for t in range(np.uintp(x.size)):
        v = np.conj(x[t])
        s0 += v * w0[t]
        s1 += v * w1[t]
        s2 += v * w2[t]
        s3 += v * w3[t]
    sums[k] += s0
    sums[k + 1] += s1
    sums[k + 2] += s2
    sums[k + 3] += s3


@jit_sums
def _dots_four(W: Any, start: int, stop: int, i: int, j: int, sums: Any, m: int) -> None:
    """sums[(i+r) m + j+c] += <w_{i+r}, w_{j+c}> for r, c < 4: sixteen sums in registers, half a load each product."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = W.dtype.type(0)
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = W.dtype.type(0)
    u0, u1, u2 = W[i, start:stop], W[i + 1, start:stop], W[i + 2, start:stop]
    u3, w0, w1 = W[i + 3, start:stop], W[j, start:stop], W[j + 1, start:stop]
    w2, w3 = W[j + 2, start:stop], W[j + 3, start:stop]
    for t in range(np.uintp(u0.size)):
        a, b, c, d = np.conj(u0[t]), np.conj(u1[t]), np.conj(u2[t]), np.conj(u3[t])
        e, f, g, h = w0[t], w1[t], w2[t], w3[t]
        a0 += a * e
        a1 += a * f
        a2 += a * g
        a3 += a * h
        b0 += b * e
        b1 += b * f
        b2 += b * g
        b3 += b * h
        c0 += c * e
        c1 += c * f
        c2 += c * g
        c3 += c * h
        d0 += d * e
        d1 += d * f
        d2 += d * g
        d3 += d * h
    for r, row in enumerate(((a0, a1, a2, a3), (b0, b1, b2, b3), (c0, c1, c2, c3), (d0, d1, d2, d3))):
        for q, value in enumerate(row):
            sums[(i + r) * m + j + q] += value


@jit
def _gram(W: Any, start: int, stop: int, first: int, sums: Any) -> None:
    """sums[i m + j] += <w_i, w_j> for i <= j, j >= first; below the diagonal only those of the last m mod 4 rows."""
    m = W.shape[0]
    whole = m - m % 4
    for j in range(0, whole, 4):
        if j + 4 > first:
            for i in range(0, j + 4, 4):
                _dots_four(W, start, stop, i, j, sums, m)
    for j in range(whole, m):
        for i in range(0, whole, 4):  # <w_j, w_i>, to be conjugated
            _dots_one(W, start, stop, j, i, sums, j * m + i)
        for i in range(whole, j + 1):
            sums[i * m + j] += _dot(W[i, start:stop], W[j, start:stop])


@jit
def _sum_rows(C: Any, at: int, W: Any, start: int, stop: int, target: Any) -> None:
    """target += sum_j C[at + j] w_j, four rows at a time."""
    m = W.shape[0]
    whole = m - m % 4
    for j in range(0, whole, 4):
        c0, c1, c2, c3 = C[at + j], C[at + j + 1], C[at + j + 2], C[at + j + 3]
        w0, w1 = W[j, start:stop], W[j + 1, start:stop]
        w2, w3 = W[j + 2, start:stop], W[j + 3, start:stop]
        for i in range(np.uintp(target.size)):
            target[i] += c0 * w0[i] + c1 * w1[i] + c2 * w2[i] + c3 * w3[i]
    for j in range(whole, m):
        c0, w0 = C[at + j], W[j, start:stop]
        for i in range(np.uintp(target.size)):
            target[i] += c0 * w0[i]


@jit
def _cg_vectors(V: Any, start: int, stop: int, r: Any, alpha: Any, beta: Any) -> None:
    """The four updates of CG on a chunk of V = [u, w, p, s, x], u perhaps being r."""
    u, w, p, s, x = V[0, start:stop], V[1, start:stop], V[2, start:stop], V[3, start:stop], V[4, start:stop]
    for i in range(np.uintp(u.size)):
        p[i] = u[i] + beta * p[i]
    for i in range(np.uintp(u.size)):
        s[i] = w[i] + beta * s[i]
    for i in range(np.uintp(u.size)):
        x[i] += alpha * p[i]
    for i in range(np.uintp(u.size)):
        r[i] -= alpha * s[i]


@jit
def run_vectors(
    words: Any, factors: Any, chunks: Any, sums: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool
) -> Any:
    """Do one operation on the columns of one thread; a member of a team for call after call.

    words : (8,) int64: the operation, rows m and columns n of x, what else the operation needs.
    factors : coefficients; chunks : (threads, ...) scratch; sums : (threads, ...) the sums of each thread.
    x (m, n), out flat, calls, thread, sent: see :mod:`akx.kernels.cpu.sync`.
    """
    threads = sums.shape[0]
    number = begin(calls, thread, threads, sent, x, out) if threads > 1 else 1
    if number <= 0:
        return False
    while number > 0:
        operation, m, n = words[0], words[1], words[2]
        if thread > 0:
            x, out = arrays_of(calls, threads, MOST_ROWS, x, out)  # `out` ends earlier than that says
        total = sums[thread]
        total[: m * m] = 0
        length = min(max(_CHUNK_BYTES // (m * x.itemsize), _LEAST_CHUNK), _MOST_CHUNK) // 64 * 64
        if operation in (_COMBINE, _ADVANCE):
            length = _LEAST_CHUNK
        start, end = _cut(n, thread, threads), _cut(n, thread + 1, threads)
        while start < end:
            stop = min(start + length, end)
            if operation == _GRAM:
                _gram(x, start, stop, words[3], total)
            elif operation == _COMBINE:
                for q in range(words[3]):
                    target = out[q * n + start : q * n + stop]
                    if words[4] == 0:
                        target[:] = 0
                    _sum_rows(factors, q * m, x, start, stop, target)
            elif operation == _ADVANCE:
                _sum_rows(factors, 0, x, start, stop, out[start:stop])
                for q in range(1, words[3]):
                    target = chunks[thread, q * _LEAST_CHUNK : q * _LEAST_CHUNK + stop - start]
                    target[:] = 0
                    _sum_rows(factors, q * m, x, start, stop, target)
                for q in range(1, words[3]):
                    x[q - 1, start:stop] = chunks[thread, q * _LEAST_CHUNK : q * _LEAST_CHUNK + stop - start]
            elif operation == _CG_DOTS:
                total[0] += _dot(x[0, start:stop], x[1, start:stop])
                if m > 5:
                    total[1] += _dot(x[5, start:stop], x[0, start:stop])
            else:
                r = x[5, start:stop] if m > 5 else x[0, start:stop]
                _cg_vectors(x, start, stop, r, factors[0], factors[1])
                total[0] += _dot(r, r)
            start = stop
        if operation == _GRAM:
            whole = m - m % 4
            for j in range(whole, m):
                for i in range(whole):
                    total[i * m + j] = np.conj(total[j * m + i])
        number = finish(calls, thread, threads, number) if threads > 1 else 0
    return number == 0


@jit
def _cut(n: int, thread: int, threads: int) -> int:
    """Where the columns of a thread begin: at a cache line, but for the end."""
    return n if thread == threads else n * thread // threads // 16 * 16
