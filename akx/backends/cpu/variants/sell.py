"""Sliced ELL with a sorting window (:mod:`akx.formats.sell`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cpu import simd
from akx.backends.cpu.variants.base import Given, Layout, rows_per
from akx.backends.variant import VariantTraits
from akx.formats import sell
from akx.formats.base import Format, lanes_of
from akx.formats.sell import SellArrays

__all__ = ["LAYOUTS", "VARIANTS", "Sell"]

_1 = np.uintp(1)


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


def _sell_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.start[(row + m.chunk - 1) // m.chunk])


class Sell(Layout):
    """See the module."""

    name, arrays = "sell", SellArrays
    loop, slot_of = staticmethod(_sell), staticmethod(_sell_slots)
    sorts = True
    pads_by_order = True

    def misfit(self, given: Given) -> str | None:
        if given.sigma != 1 and given.sigma % lanes_of(given.dtype):
            return f"sigma = {given.sigma} is not a multiple of the chunk height {lanes_of(given.dtype)}"
        return None

    def is_near(self, given: Given) -> bool:
        return sell.sell_fits(given.pattern, given.dtype, given.sigma, given.bits)

    def slots(self, given: Given) -> int:
        key = (self.name, given.dtype.str, given.sigma, given.block)
        make = lambda: sell.sell_slots(given.pattern, given.dtype, given.sigma)  # noqa: E731
        return int(given.known.of("slots", *key, make=make))

    def tail(self, given: Given) -> int:
        return 8 * lanes_of(given.dtype)

    def lay_out(self, given: Given) -> Format:
        return sell.from_csr(given.pattern, given.dtype, sigma=given.sigma, bits=given.bits)

    def bytes_per_entry(self, given: Given) -> float:
        return given.dtype.itemsize + given.bits / 8 + rows_per(given)

    def rows_together(self, given: Given) -> int:
        return max(given.sigma, lanes_of(given.dtype))


LAYOUTS = (Sell(),)
VARIANTS = {
    "sell": VariantTraits("sliced ELL with a sorting window", narrow="sell16", sorts=True),
    "sell16": VariantTraits(
        "sliced ELL with a sorting window, 16-bit column indices relative to a base per chunk", sorts=True
    ),
}
