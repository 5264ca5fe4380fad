"""Rows of vectors replaced by sums of rows, in one read and one write: the last pass of a communication-avoiding block.

x += C[0] W, and rows q - 1 of W become C[q] W for q = 1, 2, .., all of the old W (m, n). Two short vectors of columns
of all rows are brought together in scratch, so that each cache line is read once even where rows lie in the same sets
of every cache, as those of 2^k entries do. Four sums of two vectors stay in registers while the rows of W go by; those
whose four factors are zero are left out. Then the new rows are written.

Words per entry of a vector: m + 1 read, len(C) written. Against sums of one row after another, as the compiler makes
them from loops: 13.8 to 5.4 ms for 13 rows of a million entries and C (10, 13) with 86 factors, two cores (Zen 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cpu import simd
from akx.backends.cpu.jit import jit, jit_inner

__all__ = ["advance_rows", "pack"]

#: Factors that there is room for in a group of four rows of C.
_GROUP = 256
#: Bytes of a row that are asked for ahead.
_AHEAD = 512


@jit
def pack(C: Any, factors: Any, picks: Any) -> None:
    """Factors in groups of four rows of C, each of four to a row of W; those of zero left out.

    The rows of C go by their first factor that is not zero, so that rows of one group are made of the same rows of W:
    the j-th is row picks[-1, j]. Group g begins at factors[256 g], and is of the rows picks[g, 1 : 1 + count] of W,
    count = picks[g, 0].
    """
    count, m = C.shape
    order, done = picks[-1], 0
    for j in range(m + 1):
        for q in range(count):
            first = 0
            while first < m and C[q, first] == 0:
                first += 1
            if first == j:
                order[done] = q
                done += 1
    for g in range((count + 3) // 4):
        used, p = 0, g * _GROUP
        for j in range(m):
            found = False
            for q in range(4 * g, 4 * g + 4):
                factors[p] = C[order[q], j] if q < count else C.dtype.type(0)
                found = found or factors[p] != 0
                p += 1
            if found:
                used += 1
                picks[g, used] = j
            else:
                p -= 4
        picks[g, 0] = used


@jit_inner
def _combine_four(C: Any, picks: Any, g: int, chunk: Any, to: Any) -> None:
    """Four rows of `chunk`, from flat `to` on, of two vectors each: sums of those of its first rows that are picked."""
    lanes = np.uintp(64 // chunk.itemsize)
    a0, a1, b0, b1 = simd.zero(chunk), simd.zero(chunk), simd.zero(chunk), simd.zero(chunk)
    c0, c1, d0, d1 = simd.zero(chunk), simd.zero(chunk), simd.zero(chunk), simd.zero(chunk)
    p = np.uintp(g * _GROUP)
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


@jit_inner
def advance_rows(C: Any, picks: Any, count: int, x: Any, start: int, stop: int, out: Any, chunk: Any) -> None:
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
        to = after
        for q in picks[-1, :count]:
            if q > 0:
                at = np.uintp(q - 1) * np.uintp(n) + i
                simd.store(w, at, simd.load(chunk, to))
                simd.store(w, at + lanes, simd.load(chunk, to + lanes))
            else:
                for t in range(width):
                    out[i + t] += chunk[to + t]
            to += width
        i += width
    while i < end:
        for q in range(count):
            total = w.dtype.type(0)
            for k in range(picks[q // 4, 0]):
                total += C[q // 4 * _GROUP + 4 * k + q % 4] * x[picks[q // 4, 1 + k], i]
            chunk[q] = total
        for q in range(count):
            row = picks[-1, q]
            if row > 0:
                x[row - 1, i] = chunk[q]
            else:
                out[i] += chunk[q]
        i += np.uintp(1)
