"""Sliced ELL of dense blocks (:mod:`akx.formats.bell`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cpu import simd
from akx.backends.cpu.variants.base import Given, Layout
from akx.backends.variant import VariantTraits
from akx.formats import bell
from akx.formats.base import Format, lanes_of
from akx.formats.bell import BellArrays

__all__ = ["LAYOUTS", "VARIANTS", "Bell"]

_1 = np.uintp(1)


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


def _bell_slots(m: Any, row: Any) -> Any:
    height = m.chunk * len(m.shape)
    return np.uintp(m.start[(row + height - 1) // height]) * np.uintp(height * len(m.shape))


class Bell(Layout):
    """See the module."""

    name, arrays = "bell", BellArrays
    loop, slot_of = staticmethod(_bell), staticmethod(_bell_slots)
    has_blocks = True
    reason_against_zones = "ghost zones break the dense blocks up"

    def misfit(self, given: Given) -> str | None:
        if given.block < 2:
            return "the pattern has no dense blocks"
        if given.pattern.rows % given.block:
            return f"{given.pattern.rows} rows are not a multiple of the block size {given.block}"
        return None

    def is_near(self, given: Given) -> bool:
        return bell.bell_fits(given.pattern, given.dtype, given.block, given.bits, shape=self._shape(given))

    def slots(self, given: Given) -> int:
        key = (self.name, given.dtype.str, given.sigma, given.block)
        shape, block = self._shape(given), given.block
        make = lambda: bell.bell_slots(given.pattern, given.dtype, block, shape=shape)  # noqa: E731
        return int(given.known.of("slots", *key, make=make))

    def tail(self, given: Given) -> int:
        return 8 * lanes_of(given.dtype) * given.block * given.block

    def _shape(self, given: Given) -> bell.BellShape:
        pattern, dtype, block, threads = given.pattern, given.dtype, given.block, given.known.threads
        found: bell.BellShape = given.known.of(
            "bell", dtype.str, block, make=lambda: bell.bell_shape(pattern, dtype, block, threads=threads)
        )
        return found

    def lay_out(self, given: Given) -> Format:
        shape, threads = self._shape(given), given.known.threads
        return bell.from_csr(
            given.pattern, given.dtype, block=given.block, bits=given.bits, shape=shape, threads=threads
        )

    def bytes_per_entry(self, given: Given) -> float:
        return given.dtype.itemsize + given.bits / 8 / given.block**2

    def rows_together(self, given: Given) -> int:
        return lanes_of(given.dtype) * given.block


LAYOUTS = (Bell(),)
VARIANTS = {
    "bell": VariantTraits("block sliced ELL, one index per dense block", narrow="bell16"),
    "bell16": VariantTraits("block sliced ELL, one 16-bit index per dense block"),
}
