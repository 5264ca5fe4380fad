"""Nodes of rows with one list of columns (:mod:`akx.formats.inode`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cpu import simd
from akx.backends.cpu.variants.base import Given, Layout
from akx.backends.variant import VariantTraits
from akx.formats import inode
from akx.formats.base import Format
from akx.formats.csr import GROUP, csr_fits
from akx.formats.inode import InodeArrays

__all__ = ["LAYOUTS", "VARIANTS", "Inode"]

#: Nodes may have at most this many columns, together, per entry of the matrix: else hardly any two rows share theirs.
_MOST_COLUMNS = 0.6
#: Lanes that multiply a column of a node, of which there are rows for some.
_LANES = 8.0
_1, _2, _3, _4 = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
_GROUP = np.uintp(GROUP)


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


def _inode_slots(m: Any, row: Any) -> Any:
    group = (row + GROUP - 1) // GROUP
    return np.uintp(m.first[group]) if group < m.first.size else np.uintp(m.values.size)


class Inode(Layout):
    """See the module."""

    name, arrays = "inode", InodeArrays
    loop, slot_of = staticmethod(_inode), staticmethod(_inode_slots)

    def _nodes(self, given: Given) -> inode.Inodes:
        make = lambda: inode.inodes(given.pattern, given.dtype)  # noqa: E731
        found: inode.Inodes = given.known.of("inodes", given.dtype.str, make=make)
        return found

    def misfit(self, given: Given) -> str | None:
        if self._nodes(given).columns > _MOST_COLUMNS * given.pattern.nnz:
            return "too few rows have the same columns as the row before"
        return None

    def is_near(self, given: Given) -> bool:
        return csr_fits(given.pattern, given.bits)

    def lay_out(self, given: Given) -> Format:
        return inode.from_csr(given.pattern, given.dtype, bits=given.bits, nodes=self._nodes(given))

    def bytes_per_entry(self, given: Given) -> float:
        found = self._nodes(given)
        indices = found.columns * given.bits / 8 + 5.0 * found.height.size
        return given.dtype.itemsize + indices / max(given.pattern.nnz, 1)

    def multiplied(self, given: Given) -> float:
        """Eight for each column of a node."""
        return _LANES * (self._nodes(given).columns / max(given.pattern.nnz, 1))

    def rows_together(self, given: Given) -> int:
        return GROUP


LAYOUTS = (Inode(),)
VARIANTS = {
    "inode": VariantTraits("rows of a node share one list of columns, nodes of 1 to 8 rows", narrow="inode16"),
    "inode16": VariantTraits("the same, 16-bit column indices relative to a base per 64 rows"),
}
