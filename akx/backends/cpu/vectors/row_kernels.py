"""What passes over rows of vectors are made of: inner products, sums of rows, and the columns of a thread.

W (m, n), C-contiguous, holds m vectors as rows; all work is on a chunk of columns, start .. stop - 1, that stays in the
caches. Four rows meet four rows at a time: sixteen sums in registers, half a load for each product. Rows beyond the
end are the last one again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cpu.jit import jit_inner, jit_sums

__all__ = ["SHARED_BYTES", "cut", "dot", "dots_four", "dots_one", "sum_rows"]

#: Bytes moved from which on a pass is shared by the team: handing it over costs about 50 us where it has another job.
SHARED_BYTES = 3 << 20


@jit_inner
def cut(n: int, thread: int, threads: int) -> int:
    """Where the columns of a thread begin: at a cache line, but for the end."""
    return n if thread == threads else n * thread // threads // 16 * 16


@jit_sums
def dot(a: Any, b: Any) -> Any:
    """<a, b> of two short arrays."""
    total = a.dtype.type(0)
    for i in range(np.uintp(a.size)):
        total += np.conj(a[i]) * b[i]
    return total


@jit_sums
def dots_one(W: Any, start: int, stop: int, i: int, end: int, j: int, sums: Any, q: int) -> None:
    """sums[i + r, q] += <w_{i+r}, w_j> for r < 4 and i + r < end."""
    s0 = s1 = s2 = s3 = W.dtype.type(0)
    last = end - 1
    w0, w1 = W[i, start:stop], W[min(i + 1, last), start:stop]
    w2, w3 = W[min(i + 2, last), start:stop], W[min(i + 3, last), start:stop]
    v = W[j, start:stop]
    for t in range(np.uintp(v.size)):
        s0 += np.conj(w0[t]) * v[t]
        s1 += np.conj(w1[t]) * v[t]
        s2 += np.conj(w2[t]) * v[t]
        s3 += np.conj(w3[t]) * v[t]
    for r, value in enumerate((s0, s1, s2, s3)):
        if i + r < end:
            sums[i + r, q] += value


@jit_sums
def dots_four(W: Any, start: int, stop: int, i: int, end: int, j: int, sums: Any, q: int) -> None:
    """sums[i + r, q + c] += <w_{i+r}, w_{j+c}> for r, c < 4 and i + r < end."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = W.dtype.type(0)
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = W.dtype.type(0)
    last = end - 1
    u0, u1 = W[i, start:stop], W[min(i + 1, last), start:stop]
    u2, u3 = W[min(i + 2, last), start:stop], W[min(i + 3, last), start:stop]
    v0, v1, v2, v3 = W[j, start:stop], W[j + 1, start:stop], W[j + 2, start:stop], W[j + 3, start:stop]
    for t in range(np.uintp(u0.size)):
        a, b, c, d = np.conj(u0[t]), np.conj(u1[t]), np.conj(u2[t]), np.conj(u3[t])
        e, f, g, h = v0[t], v1[t], v2[t], v3[t]
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
        if i + r < end:
            for p, value in enumerate(row):
                sums[i + r, q + p] += value


@jit_inner
def sum_rows(W: Any, start: int, stop: int, f: Any, target: Any) -> None:
    """target += sum_j f[j] w_j over the first f.size rows, four at a time."""
    m = f.size
    whole = m - m % 4
    for j in range(0, whole, 4):
        f0, f1, f2, f3 = f[j], f[j + 1], f[j + 2], f[j + 3]
        w0, w1 = W[j, start:stop], W[j + 1, start:stop]
        w2, w3 = W[j + 2, start:stop], W[j + 3, start:stop]
        for t in range(np.uintp(target.size)):
            target[t] += f0 * w0[t] + f1 * w1[t] + f2 * w2[t] + f3 * w3[t]
    for j in range(whole, m):
        f0, w0 = f[j], W[j, start:stop]
        for t in range(np.uintp(target.size)):
            target[t] += f0 * w0[t]
