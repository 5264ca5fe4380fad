"""y = A x for a range of rows of one block, one loop per format: what every CPU schedule is made of.

``product(m, w, x, y, first, last, shift)`` makes rows first <= i < last of the matrix laid out as `m`; `first` is a
multiple of the format's `align`, `last` too or the number of rows. All vectors lie in one flat array `w`: entry j of x
is w[x + j], entry i of y goes to w[y + i - shift]. (Slicing an array costs compiled code some 50 ns of reference
counting, which a task of half a microsecond would feel.) Columns and rows of a matrix of stacked local blocks are
numbered within the block, whose first row is `shift`; else shift is 0. While a unit (chunk, slice) is done, `lines`
cache lines of the values from slot `soon` on are asked for: a wavefront's next block comes from memory while the block
at hand is computed with.

All but real CSR goes through short vectors (:mod:`akx.kernels.cpu.simd`), of real or of complex entries. Which loop is
compiled is decided by the class of `m` and the type of its values, at compile time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from akx.formats.bell import BellArrays
from akx.formats.csr import GROUP, CsrAheadArrays, CsrArrays
from akx.formats.dia import DiaArrays
from akx.formats.inode import InodeArrays
from akx.formats.sell import SellArrays
from akx.kernels.cpu import simd
from akx.kernels.cpu.jit import jit

__all__ = ["combine", "product", "slots"]

_1, _2, _3, _4 = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
_GROUP = np.uintp(GROUP)
#: Entries ahead of which csr-ahead asks for x: 64 of them cover the way to memory (16 to 128 were tried).
_AHEAD = np.uintp(64)


def product(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    """w[y + i - shift] = (A x)[i] for first <= i < last; compiled code only."""
    raise NotImplementedError("product is for compiled code")


def slots(m: Any, row: Any) -> Any:
    """The slot of the values where the unit of `row` begins; compiled code only."""
    raise NotImplementedError("slots is for compiled code")


def combine(w: Any, x: Any, before: Any, y: Any, count: Any, a: Any, b: Any, c: Any) -> None:
    """y = a y + b x + c before, `count` entries of each from w[y], w[x], w[before] on: the basis recurrence."""
    raise NotImplementedError("combine is for compiled code")


def _csr(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    i, bound = np.uintp(first), np.uintp(last)
    target = np.uintp(y) - np.uintp(shift)
    while i < bound:
        group = i // _GROUP
        stop = min(bound, (group + _1) * _GROUP)
        start = np.uintp(x) + np.uintp(m.base[group])
        while i < stop:
            p, end = np.uintp(m.pointer[i]), np.uintp(m.pointer[i + _1])
            s0 = s1 = s2 = s3 = m.values.dtype.type(0)
            while p + _3 < end:  # four sums, so that additions do not wait for one another
                s0 += m.values[p] * w[start + np.uintp(m.column[p])]
                s1 += m.values[p + _1] * w[start + np.uintp(m.column[p + _1])]
                s2 += m.values[p + _2] * w[start + np.uintp(m.column[p + _2])]
                s3 += m.values[p + _3] * w[start + np.uintp(m.column[p + _3])]
                p += _4
            if p + _1 < end:  # two and one instead of up to three turns of a loop: 5 to 10 % on rows of 4 to 7 entries
                s0 += m.values[p] * w[start + np.uintp(m.column[p])]
                s1 += m.values[p + _1] * w[start + np.uintp(m.column[p + _1])]
                p += _2
            if p < end:
                s2 += m.values[p] * w[start + np.uintp(m.column[p])]
            total = (s0 + s1) + (s2 + s3)
            w[target + i] = total
            i += _1


def _csr_complex(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    """Two entries at a time: 1.2 times as fast as one at a time (Zen 4); four are slower where rows have 5 entries.

    Two sums, so that additions do not wait for one another, and one for the entry left over.
    """
    i, bound = np.uintp(first), np.uintp(last)
    target = np.uintp(y) - np.uintp(shift)
    while i < bound:
        group = i // _GROUP
        stop = min(bound, (group + _1) * _GROUP)
        start = np.uintp(x) + np.uintp(m.base[group])
        while i < stop:
            p, end = np.uintp(m.pointer[i]), np.uintp(m.pointer[i + _1])
            even, odd, single = simd.zero_of(m.values, 2), simd.zero_of(m.values, 2), simd.zero_of(m.values, 1)
            while p + _3 < end:
                even = simd.fma_gather(even, m.values, w, start, m.column, p)
                odd = simd.fma_gather(odd, m.values, w, start, m.column, p + _2)
                p += _4
            if p + _1 < end:
                even = simd.fma_gather(even, m.values, w, start, m.column, p)
                p += _2
            if p < end:
                single = simd.fma_gather(single, m.values, w, start, m.column, p)
            simd.store(w, target + i, simd.add(simd.fold(simd.add(even, odd)), single))
            i += _1


def _csr_ahead(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    target, source = np.uintp(y) - np.uintp(shift), np.uintp(x)
    most = np.uintp(max(m.column.size, 1) - 1)
    for i in range(np.uintp(first), np.uintp(last)):
        total = simd.zero_of(m.values, 1)
        for p in range(np.uintp(m.pointer[i]), np.uintp(m.pointer[i + _1])):
            simd.prefetch(w, source + np.uintp(m.column[min(p + _AHEAD, most)]))
            total = simd.fma_gather(total, m.values, w, source, m.column, p)
        simd.store(w, target + i, total)


def _sell(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    lanes, rows = np.uintp(m.chunk), np.uintp(m.rows)
    target = np.uintp(y) - np.uintp(shift)
    ahead, line = np.uintp(soon), np.uintp(64 // m.values.itemsize)
    for c in range(np.uintp(first) // lanes, (np.uintp(last) + lanes - _1) // lanes):
        for _ in range(lines):
            simd.prefetch(m.values, ahead)
            ahead += line
        p, stop = np.uintp(m.start[c]), np.uintp(m.start[c + _1])
        base = np.uintp(x) + np.uintp(m.base[c])
        even, odd = simd.zero(m.values), simd.zero(m.values)
        while p + lanes < stop:
            even = simd.fma_gather(even, m.values, w, base, m.column, p)
            p += lanes
            odd = simd.fma_gather(odd, m.values, w, base, m.column, p)
            p += lanes
        if p < stop:
            even = simd.fma_gather(even, m.values, w, base, m.column, p)
        total = simd.add(even, odd)
        i = c * lanes
        if m.row.size:
            simd.scatter(w, target, m.row, i, total, min(lanes, rows - i))
        elif i + lanes <= rows:
            simd.store(w, target + i, total)
        else:
            simd.store_some(w, target + i, total, rows - i)


def _dia(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    height = np.uintp(m.slice)
    lanes = height // np.uintp(4)
    source, target = np.uintp(x) - np.uintp(shift), np.uintp(y) - np.uintp(shift)
    ahead, line = np.uintp(soon), np.uintp(64 // m.values.itemsize)
    for s in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        i = s * height
        for _ in range(lines):
            simd.prefetch(m.values, ahead)
            ahead += line
        if m.edge[s]:
            _slice_by_entry(m, w, s, min(height, np.uintp(m.rows) - i), source + i, target + i)
            continue
        s0, s1, s2, s3 = simd.zero(m.values), simd.zero(m.values), simd.zero(m.values), simd.zero(m.values)
        for d in range(np.uintp(m.start[s]), np.uintp(m.start[s + _1])):
            p = d * height
            q = source + i + np.uintp(m.offset[d])
            s0 = simd.fma(simd.load(m.values, p), simd.load(w, q), s0)
            s1 = simd.fma(simd.load(m.values, p + lanes), simd.load(w, q + lanes), s1)
            p += lanes + lanes
            q += lanes + lanes
            s2 = simd.fma(simd.load(m.values, p), simd.load(w, q), s2)
            s3 = simd.fma(simd.load(m.values, p + lanes), simd.load(w, q + lanes), s3)
        i += target
        simd.store(w, i, s0)
        simd.store(w, i + lanes, s1)
        i += lanes + lanes
        simd.store(w, i, s2)
        simd.store(w, i + lanes, s3)


@jit
def _slice_by_entry(m: Any, w: Any, s: Any, rows: Any, source: Any, target: Any) -> None:
    """One slice, entry by entry; padding is told by its zero value, so that no column outside the matrix is read."""
    height = np.uintp(m.slice)
    for r in range(np.uintp(rows)):
        total = m.values.dtype.type(0)
        for d in range(np.uintp(m.start[s]), np.uintp(m.start[s + _1])):
            value = m.values[d * height + r]
            if value != 0:
                total += value * w[source + r + np.uintp(m.offset[d])]
        w[target + r] = total


def _bell(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    block, lanes = np.uintp(len(m.shape)), np.uintp(m.chunk)
    height = block * lanes
    step = height * block
    block_rows = np.uintp(m.rows) // block
    target = np.uintp(y) - np.uintp(shift)
    ahead, line = np.uintp(soon), np.uintp(64 // m.values.itemsize)
    for c in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        base = np.uintp(x) + np.uintp(m.base[c]) * block
        for _ in range(lines):
            simd.prefetch(m.values, ahead)
            ahead += line
        sums = simd.zero_block(m.values, m.shape)
        for s in range(np.uintp(m.start[c]), np.uintp(m.start[c + _1])):
            sums = simd.fma_block(sums, m.values, s * step, w, base, m.column, s * lanes)
        simd.scatter_block(w, target + c * height, sums, min(lanes, block_rows - c * lanes))


def _inode(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    source, target = np.uintp(x), np.uintp(y) - np.uintp(shift)
    ahead, line = np.uintp(soon), np.uintp(64 // m.values.itemsize)
    for g in range(np.uintp(first) // _GROUP, (np.uintp(last) + _GROUP - _1) // _GROUP):
        for _ in range(lines):
            simd.prefetch(m.values, ahead)
            ahead += line
        base, p, i = source + np.uintp(m.base[g]), np.uintp(m.first[g]), target + g * _GROUP
        for q in range(np.uintp(m.node[g]), np.uintp(m.node[g + _1])):
            e, end, rows = np.uintp(m.pointer[q]), np.uintp(m.pointer[q + _1]), np.uintp(m.height[q])
            s0, s1, s2, s3 = simd.zero(m.values), simd.zero(m.values), simd.zero(m.values), simd.zero(m.values)
            while e + _3 < end:  # four sums, so that additions do not wait for one another
                s0 = simd.fma(simd.load(m.values, p), simd.splat(w, base + np.uintp(m.column[e])), s0)
                p += rows
                s1 = simd.fma(simd.load(m.values, p), simd.splat(w, base + np.uintp(m.column[e + _1])), s1)
                p += rows
                s2 = simd.fma(simd.load(m.values, p), simd.splat(w, base + np.uintp(m.column[e + _2])), s2)
                p += rows
                s3 = simd.fma(simd.load(m.values, p), simd.splat(w, base + np.uintp(m.column[e + _3])), s3)
                p += rows
                e += _4
            while e < end:
                s0 = simd.fma(simd.load(m.values, p), simd.splat(w, base + np.uintp(m.column[e])), s0)
                p += rows
                e += _1
            simd.store_some(w, i, simd.add(simd.add(s0, s1), simd.add(s2, s3)), rows)
            i += rows


_LOOPS: dict[type, Callable[..., None]] = {
    CsrArrays: _csr,
    CsrAheadArrays: _csr_ahead,
    SellArrays: _sell,
    DiaArrays: _dia,
    BellArrays: _bell,
    InodeArrays: _inode,
}


@overload(product)
def _product(
    m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any
) -> Callable[..., None] | None:
    if not isinstance(m, types.NamedTuple) or m.instance_class not in _LOOPS:
        return None
    values = m.types[m.fields.index("values")]
    if m.instance_class is CsrArrays and isinstance(values.dtype, types.Complex):
        return _csr_complex
    return _LOOPS[m.instance_class]


def _csr_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.pointer[row])


def _sell_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.start[(row + m.chunk - 1) // m.chunk])


def _dia_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.start[(row + m.slice - 1) // m.slice]) * np.uintp(m.slice)


def _bell_slots(m: Any, row: Any) -> Any:
    height = m.chunk * len(m.shape)
    return np.uintp(m.start[(row + height - 1) // height]) * np.uintp(height * len(m.shape))


def _inode_slots(m: Any, row: Any) -> Any:
    group = (row + GROUP - 1) // GROUP
    return np.uintp(m.first[group]) if group < m.first.size else np.uintp(m.values.size)


_SLOTS: dict[type, Callable[..., Any]] = {
    CsrArrays: _csr_slots,
    CsrAheadArrays: _csr_slots,
    SellArrays: _sell_slots,
    DiaArrays: _dia_slots,
    BellArrays: _bell_slots,
    InodeArrays: _inode_slots,
}


@overload(slots)
def _slots(m: Any, row: Any) -> Callable[..., Any] | None:
    if not isinstance(m, types.NamedTuple) or m.instance_class not in _SLOTS:
        return None
    return _SLOTS[m.instance_class]


@overload(combine)
def _combine(w: Any, x: Any, before: Any, y: Any, count: Any, a: Any, b: Any, c: Any) -> Callable[..., None]:
    def loop(w: Any, x: Any, before: Any, y: Any, count: Any, a: Any, b: Any, c: Any) -> None:
        u, v, t = np.uintp(x), np.uintp(y), np.uintp(before)
        if c != 0:
            for i in range(np.uintp(count)):
                w[v + i] = a * w[v + i] + b * w[u + i] + c * w[t + i]
        elif b != 0:
            for i in range(np.uintp(count)):
                w[v + i] = a * w[v + i] + b * w[u + i]
        elif a != 1:
            for i in range(np.uintp(count)):
                w[v + i] = a * w[v + i]

    return loop
