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
dot           <a, b>                                                      2 read
descend       r -= alpha w, and <r, r>                                    2 read, 1 written
turn          x += alpha p, then p = u + beta p                           3 read, 2 written
============  ==========================================================  ======================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.device.host import resolve_threads
from akx.kernels.cpu import simd
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
#: Bytes of a row that `advance` asks for ahead.
_AHEAD = 512
_GRAM, _COMBINE, _ADVANCE, _DOT, _DESCEND, _TURN = range(6)


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
        self._picks = np.zeros((MOST_ROWS // 4, 1 + MOST_ROWS), dtype=np.int64)
        self._nothing = np.empty(0, dtype=self.dtype)
        self._jobs: dict[int, tuple[Job, NDArray[Any]]] = {}
        for count in {1, self.threads}:
            sums = np.zeros((count, MOST_ROWS * MOST_ROWS), dtype=wide)
            chunks = np.zeros((count, MOST_ROWS * _LEAST_CHUNK), dtype=self.dtype)
            arguments = (self._words, self._factors, self._picks, chunks, sums)
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
        assert len(C) <= MOST_ROWS - 4
        _pack(np.ascontiguousarray(C, dtype=self.dtype), self._factors, self._picks)
        self._run(_ADVANCE, W, x, m, C.shape[0])

    def dot(self, V: NDArray[Any], i: int, j: int) -> complex:
        """<v_i, v_j> of rows of V, real for real vectors."""
        return complex(self._run(_DOT, V, self._nothing, 2, i, j)[0])

    def descend(self, V: NDArray[Any], alpha: complex) -> float:
        """r -= alpha w of V = [p, w, r, x, ...]; the new <r, r>."""
        self._factors[0] = alpha
        return float(self._run(_DESCEND, V, self._nothing, 3)[0].real)

    def turn(self, V: NDArray[Any], alpha: complex, beta: complex, u: int) -> None:
        """x += alpha p, then p = v_u + beta p, of V = [p, w, r, x, ...]."""
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
def _pack(C: Any, factors: Any, picks: Any) -> None:
    """Factors in groups of four rows of C, the first row last, each of four to a row of W; those of zero left out.

    Group g begins at factors[4 g MOST_ROWS], and is of the rows picks[g, 1 : 1 + count] of W, count = picks[g, 0].
    """
    count, m = C.shape
    for g in range((count + 3) // 4):
        used, p = 0, 4 * g * MOST_ROWS
        for j in range(m):
            found = False
            for q in range(4 * g, 4 * g + 4):
                row = q + 1 if q < count - 1 else 0
                factors[p] = C[row, j] if q < count else C.dtype.type(0)
                found = found or factors[p] != 0
                p += 1
            if found:
                used += 1
                picks[g, used] = j
            else:
                p -= 4
        picks[g, 0] = used


@jit
def _combine_four(C: Any, picks: Any, g: int, chunk: Any, to: Any) -> None:
    """Four rows of `chunk`, from flat `to` on, of two vectors each: sums of those of its first rows that are picked."""
    lanes = np.uintp(64 // chunk.itemsize)
    a0, a1, b0, b1 = simd.zero(chunk), simd.zero(chunk), simd.zero(chunk), simd.zero(chunk)
    c0, c1, d0, d1 = simd.zero(chunk), simd.zero(chunk), simd.zero(chunk), simd.zero(chunk)
    p = np.uintp(4 * g * MOST_ROWS)
    for k in range(np.uintp(1), np.uintp(1 + picks[g, 0])):
        row = np.uintp(picks[g, k]) * (lanes + lanes)
        u, v = simd.load(chunk, row), simd.load(chunk, row + lanes)
        f = simd.splat(C, p)
        a0, a1 = simd.fma(f, u, a0), simd.fma(f, v, a1)
        f = simd.splat(C, p + np.uintp(1))
        b0, b1 = simd.fma(f, u, b0), simd.fma(f, v, b1)
        f = simd.splat(C, p + np.uintp(2))
        c0, c1 = simd.fma(f, u, c0), simd.fma(f, v, c1)
        f = simd.splat(C, p + np.uintp(3))
        d0, d1 = simd.fma(f, u, d0), simd.fma(f, v, d1)
        p += np.uintp(4)
    q = np.uintp(to)
    for first, second in ((a0, a1), (b0, b1), (c0, c1), (d0, d1)):
        simd.store(chunk, q, first)
        simd.store(chunk, q + lanes, second)
        q += lanes + lanes


@jit
def _advance(C: Any, picks: Any, count: int, x: Any, start: int, stop: int, out: Any, chunk: Any) -> None:
    """Rows 0 .. count - 2 of x (m, n), and `out` added to, on columns start .. stop - 1; `chunk` is scratch.

    Two vectors of columns at a time are brought together, whose rows may lie in the same sets of every cache, and so
    read once; all sums of a group of rows stay in registers.
    """
    m, n = x.shape
    w = x.reshape(-1)
    lanes = np.uintp(64 // w.itemsize)
    width = lanes + lanes
    after = np.uintp(m) * width  # of the rows of x that were brought
    i, end, ahead = np.uintp(start), np.uintp(stop), np.uintp(_AHEAD // w.itemsize)
    while i + width <= end:
        at, to = i, np.uintp(0)
        for _ in range(m):
            simd.prefetch(w, at + ahead)
            simd.prefetch(w, at + ahead + lanes)
            simd.store(chunk, to, simd.load(w, at))
            simd.store(chunk, to + lanes, simd.load(w, at + lanes))
            at += np.uintp(n)
            to += width
        for g in range((count + 3) // 4):
            _combine_four(C, picks, g, chunk, after + np.uintp(4 * g) * width)
        at, to = i, after
        for _ in range(count - 1):
            simd.store(w, at, simd.load(chunk, to))
            simd.store(w, at + lanes, simd.load(chunk, to + lanes))
            at += np.uintp(n)
            to += width
        for t in range(width):
            out[i + t] += chunk[to + t]
        i += width
    while i < end:
        for q in range(count):
            total = w.dtype.type(0)
            for k in range(picks[q // 4, 0]):
                total += C[q // 4 * 4 * MOST_ROWS + 4 * k + q % 4] * x[picks[q // 4, 1 + k], i]
            chunk[q] = total
        for q in range(count - 1):
            x[q, i] = chunk[q]
        out[i] += chunk[count - 1]
        i += np.uintp(1)


@jit
def _add(factor: Any, a: Any, target: Any) -> None:
    """target += factor a."""
    for i in range(np.uintp(target.size)):
        target[i] += factor * a[i]


@jit
def _scale_and_add(factor: Any, target: Any, a: Any) -> None:
    """target = a + factor target."""
    for i in range(np.uintp(target.size)):
        target[i] = a[i] + factor * target[i]


@jit
def run_vectors(
    words: Any,
    factors: Any,
    picks: Any,
    chunks: Any,
    sums: Any,
    x: Any,
    out: Any,
    calls: Any,
    thread: int,
    sent: bool,
) -> Any:
    """Do one operation on the columns of one thread; a member of a team for call after call.

    words : (8,) int64: the operation, rows m and columns n of x, what else the operation needs.
    factors, picks : coefficients, and for what; chunks : (threads, ...) scratch; sums : (threads, ...) those of each.
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
                _advance(factors, picks, words[3], x, start, end, out, chunks[thread])
                stop = end
            elif operation == _DOT:
                total[0] += _dot(x[words[3], start:stop], x[words[4], start:stop])
            elif operation == _DESCEND:
                _add(-factors[0], x[1, start:stop], x[2, start:stop])
                total[0] += _dot(x[2, start:stop], x[2, start:stop])
            else:
                _add(factors[0], x[0, start:stop], x[3, start:stop])
                _scale_and_add(factors[1], x[0, start:stop], x[words[3], start:stop])
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
