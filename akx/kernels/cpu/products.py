"""y = A x for a range of rows of one block, one loop per format: what every CPU schedule is made of.

``product(m, x, y, first, last, shift)`` writes ``y[i - shift]`` for rows first <= i < last of the matrix laid out as
`m`; `first` is a multiple of the format's `align`, `last` too or the number of rows. Columns and rows of a matrix of
stacked local blocks are numbered within the block, whose first row is `shift`; else shift is 0. x, y: contiguous
vectors.

Real values go through short vectors (:mod:`akx.kernels.cpu.simd`), complex ones through plain loops over the same
layout. Which loop is compiled is decided by the class of `m`, at compile time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from akx.formats.bell import BellArrays
from akx.formats.csr import CsrArrays
from akx.formats.dia import DiaArrays
from akx.formats.sell import SellArrays
from akx.kernels.cpu import simd

__all__ = ["combine", "product"]

_0, _1 = np.uintp(0), np.uintp(1)


def product(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    """y[i - shift] = (A x)[i] for first <= i < last; compiled code only."""
    raise NotImplementedError("product is for compiled code")


def combine(x: Any, before: Any, y: Any, first: Any, last: Any, a: Any, b: Any, c: Any) -> None:
    """y = a y + b x + c before on [first, last): the basis recurrence, on rows still in the nearest cache."""
    raise NotImplementedError("combine is for compiled code")


def _csr(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    i = np.uintp(first)
    end = np.uintp(last)
    while i < end:
        group = i // np.uintp(64)
        stop = min(end, (group + _1) * np.uintp(64))
        start = np.uintp(m.base[group])
        while i < stop:
            total = m.values.dtype.type(0)
            for p in range(np.uintp(m.pointer[i]), np.uintp(m.pointer[i + _1])):
                total += m.values[p] * x[start + np.uintp(m.column[p])]
            y[i - np.uintp(shift)] = total
            i += _1


def _sell(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    lanes = np.uintp(m.chunk)
    rows = np.uintp(m.rows)
    moved = np.uintp(shift)
    for c in range(np.uintp(first) // lanes, (np.uintp(last) + lanes - _1) // lanes):
        p, stop = np.uintp(m.start[c]), np.uintp(m.start[c + _1])
        base = np.uintp(m.base[c])
        even, odd = simd.zero(m.values), simd.zero(m.values)
        while p + lanes < stop:
            even = simd.fma(simd.load(m.values, p), simd.gather(x, base, m.column, p), even)
            p += lanes
            odd = simd.fma(simd.load(m.values, p), simd.gather(x, base, m.column, p), odd)
            p += lanes
        if p < stop:
            even = simd.fma(simd.load(m.values, p), simd.gather(x, base, m.column, p), even)
        total = simd.add(even, odd)
        i = c * lanes
        if m.row.size:
            simd.scatter(y, _0 - moved, m.row, i, total, min(lanes, rows - i))
        elif i + lanes <= rows:
            simd.store(y, i - moved, total)
        else:
            simd.store_some(y, i - moved, total, rows - i)


def _sell_scalar(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    lanes = np.uintp(m.chunk)
    rows = np.uintp(m.rows)
    for c in range(np.uintp(first) // lanes, (np.uintp(last) + lanes - _1) // lanes):
        begin, stop = np.uintp(m.start[c]), np.uintp(m.start[c + _1])
        base = np.uintp(m.base[c])
        for lane in range(min(lanes, rows - c * lanes)):
            total = m.values.dtype.type(0)
            p = begin + lane
            while p < stop:
                total += m.values[p] * x[base + np.uintp(m.column[p])]
                p += lanes
            i = c * lanes + lane
            if m.row.size:
                i = np.uintp(m.row[i])
            y[i - np.uintp(shift)] = total


def _dia(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    height = np.uintp(m.slice)
    lanes = height // np.uintp(4)
    for s in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        i = s * height - np.uintp(shift)
        if m.edge[s]:
            _edge_slice(m, x, y, s, min(height, np.uintp(m.rows) - s * height), i)
            continue
        s0, s1, s2, s3 = simd.zero(m.values), simd.zero(m.values), simd.zero(m.values), simd.zero(m.values)
        for d in range(np.uintp(m.start[s]), np.uintp(m.start[s + _1])):
            p = d * height
            q = i + np.uintp(m.offset[d])
            s0 = simd.fma(simd.load(m.values, p), simd.load(x, q), s0)
            s1 = simd.fma(simd.load(m.values, p + lanes), simd.load(x, q + lanes), s1)
            p += lanes + lanes
            q += lanes + lanes
            s2 = simd.fma(simd.load(m.values, p), simd.load(x, q), s2)
            s3 = simd.fma(simd.load(m.values, p + lanes), simd.load(x, q + lanes), s3)
        simd.store(y, i, s0)
        simd.store(y, i + lanes, s1)
        i += lanes + lanes
        simd.store(y, i, s2)
        simd.store(y, i + lanes, s3)


def _dia_scalar(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    height = np.uintp(m.slice)
    for s in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        _edge_slice(m, x, y, s, min(height, np.uintp(m.rows) - s * height), s * height - np.uintp(shift))


def _edge_slice(m: Any, x: Any, y: Any, s: Any, rows: Any, i: Any) -> None:
    """One slice, entry by entry; padding is told by its zero value, so that no column outside the matrix is read."""
    raise NotImplementedError


@overload(_edge_slice)
def _edge_slice_loop(m: Any, x: Any, y: Any, s: Any, rows: Any, i: Any) -> Callable[..., None]:
    def loop(m: Any, x: Any, y: Any, s: Any, rows: Any, i: Any) -> None:
        height = np.uintp(m.slice)
        for r in range(rows):
            total = m.values.dtype.type(0)
            for d in range(np.uintp(m.start[s]), np.uintp(m.start[s + _1])):
                value = m.values[d * height + r]
                if value != 0:
                    total += value * x[i + r + np.uintp(m.offset[d])]
            y[i + r] = total

    return loop


def _bell(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    block = np.uintp(len(m.shape))
    lanes = np.uintp(m.chunk)
    height = block * lanes
    step = height * block
    block_rows = np.uintp(m.rows) // block
    for c in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        base = np.uintp(m.base[c]) * block
        sums = simd.zero_block(m.values, m.shape)
        for s in range(np.uintp(m.start[c]), np.uintp(m.start[c + _1])):
            sums = simd.fma_block(sums, m.values, s * step, x, base, m.column, s * lanes)
        simd.scatter_block(y, c * height - np.uintp(shift), sums, min(lanes, block_rows - c * lanes))


def _bell_scalar(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> None:
    block = np.uintp(len(m.shape))
    lanes = np.uintp(m.chunk)
    block_rows = np.uintp(m.rows) // block
    height = block * lanes
    for c in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        base = np.uintp(m.base[c]) * block
        for lane in range(min(lanes, block_rows - c * lanes)):
            i = (c * lanes + lane) * block - np.uintp(shift)
            for r in range(block):
                total = m.values.dtype.type(0)
                for s in range(np.uintp(m.start[c]), np.uintp(m.start[c + _1])):
                    q = base + np.uintp(m.column[s * lanes + lane]) * block
                    for d in range(block):
                        total += m.values[((s * block + d) * block + r) * lanes + lane] * x[q + d]
                y[i + r] = total


_LOOPS: dict[type, tuple[Callable[..., None], Callable[..., None]]] = {
    CsrArrays: (_csr, _csr),
    SellArrays: (_sell, _sell_scalar),
    DiaArrays: (_dia, _dia_scalar),
    BellArrays: (_bell, _bell_scalar),
}


@overload(product)
def _product(m: Any, x: Any, y: Any, first: Any, last: Any, shift: Any) -> Callable[..., None] | None:
    if not isinstance(m, types.NamedTuple) or m.instance_class not in _LOOPS:
        return None
    real, complex_ = _LOOPS[m.instance_class]
    values = m.types[m.fields.index("values")]
    return complex_ if isinstance(values.dtype, types.Complex) else real


@overload(combine)
def _combine(x: Any, before: Any, y: Any, first: Any, last: Any, a: Any, b: Any, c: Any) -> Callable[..., None]:
    def loop(x: Any, before: Any, y: Any, first: Any, last: Any, a: Any, b: Any, c: Any) -> None:
        start, stop = np.uintp(first), np.uintp(last)
        if c != 0:
            for i in range(start, stop):
                y[i] = a * y[i] + b * x[i] + c * before[i]
        elif b != 0:
            for i in range(start, stop):
                y[i] = a * y[i] + b * x[i]
        elif a != 1:
            for i in range(start, stop):
                y[i] = a * y[i]

    return loop
