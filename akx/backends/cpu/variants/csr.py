"""Compressed sparse rows (:mod:`akx.formats.csr`), and the same with entries of x asked for ahead of their use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends.cpu import simd
from akx.backends.cpu.variants.base import Given, Layout, rows_per
from akx.backends.variant import VariantTraits
from akx.formats import csr
from akx.formats.base import Format
from akx.formats.csr import GROUP, CsrAheadArrays, CsrArrays

__all__ = ["LAYOUTS", "VARIANTS", "Csr", "CsrAhead"]

_1, _2, _3, _4 = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
_GROUP = np.uintp(GROUP)
#: Entries ahead of which csr-ahead asks for x: 64 of them cover the way to memory (16 to 128 were tried).
_AHEAD = np.uintp(64)


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


def _csr_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.pointer[row])


class Csr(Layout):
    """See the module."""

    name = "csr"
    arrays: type = CsrArrays
    loop, slot_of = staticmethod(_csr), staticmethod(_csr_slots)
    loop_of_complex: Callable[..., None] | None = staticmethod(_csr_complex)

    def is_near(self, given: Given) -> bool:
        return csr.csr_fits(given.pattern, given.bits)

    def lay_out(self, given: Given) -> Format:
        return csr.from_csr(given.pattern, given.dtype, bits=given.bits)

    def bytes_per_entry(self, given: Given) -> float:
        return given.dtype.itemsize + given.bits / 8 + 4 * rows_per(given)


class CsrAhead(Csr):
    """See the module."""

    name, arrays = "csr-ahead", CsrAheadArrays
    loop, loop_of_complex = staticmethod(_csr_ahead), None
    reason_against_zones = "local vectors are in cache, there is nothing to ask for ahead"

    def lay_out(self, given: Given) -> Format:
        return csr.from_csr(given.pattern, given.dtype, bits=given.bits, ahead=True)


LAYOUTS = (Csr(), CsrAhead())
VARIANTS = {
    "csr": VariantTraits("compressed sparse rows", narrow="csr16"),
    "csr-ahead": VariantTraits(
        "compressed sparse rows, entries of x asked for ahead of use, for columns far apart", asks_ahead=True
    ),
    "csr16": VariantTraits("compressed sparse rows, 16-bit column indices relative to a base per 64 rows"),
}
