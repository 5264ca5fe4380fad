"""Symmetric matrices by nodes of rows, in blocks (:mod:`akx.formats.inode_sym`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cpu import simd, simd_lanes
from akx.backends.cpu.variants.base import Given, Layout
from akx.backends.variant import VariantTraits
from akx.formats import inode_sym
from akx.formats.base import Format
from akx.formats.inode import inodes
from akx.formats.inode_sym import SymmetricInodeArrays
from akx.formats.symmetry import has_symmetric_pattern

__all__ = ["LAYOUTS", "VARIANTS", "SymmetricInode"]

_0, _1, _2 = np.uintp(0), np.uintp(1), np.uintp(2)
#: Columns that nodes may have for each entry, and values stored for each: else rows share too few columns, or too many
#: of these lie in other blocks.
_MOST_COLUMNS, _MOST_VALUES = 0.4, 0.8
#: And of nodes of up to 8 rows, whatever their blocks.
_ALL_COLUMNS = 0.6
_TOO_FEW = "too few rows have the same columns as the row before"


def _inode_sym(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    block, lanes = np.uintp(m.block), np.uintp(64 // m.values.itemsize)
    source = np.uintp(x)
    for b in range(np.uintp(first) // block, (np.uintp(last) + block - _1) // block):
        p, start = np.uintp(m.first_value[b]), b * block
        near, target = source + start, np.uintp(y) - np.uintp(shift) + start
        row = _0
        for q in range(np.uintp(m.first_node[b]), np.uintp(m.first_node[b + _1])):
            rows = np.uintp(m.height[q])
            s0, s1, s2 = simd.zero(m.values), simd.zero(m.values), simd.zero(m.values)
            e, end = np.uintp(m.pointer[q]), np.uintp(m.pointer[q + _1])
            while e < end:
                wide = min(lanes, end - e)
                begin = np.uintp(m.column[e])
                is_run = wide == lanes and np.uintp(m.column[e + lanes - _1]) == begin + lanes - _1
                if is_run:
                    entries = simd.load(w, near + begin)
                else:
                    entries = simd.gather(w, near, m.column, e)
                    if wide < lanes:
                        entries = simd_lanes.below(entries, wide)
                value = simd.load(m.values, p)
                s0 = simd.fma(value, entries, s0)
                back = simd.fma(value, simd.splat(w, near + row), simd.zero(m.values))
                if rows > _1:
                    value = simd.load(m.values, p + wide)
                    s1, back = simd.fma(value, entries, s1), simd.fma(value, simd.splat(w, near + row + _1), back)
                if rows > _2:
                    value = simd.load(m.values, p + _2 * wide)
                    s2, back = simd.fma(value, entries, s2), simd.fma(value, simd.splat(w, near + row + _2), back)
                if is_run:
                    simd.store(w, target + begin, simd.add(simd.load(w, target + begin), back))
                elif wide == lanes:
                    simd_lanes.add_at(w, target, m.column, e, back, lanes)
                else:
                    simd_lanes.add_at(w, target, m.column, e, back, wide)
                p += wide * rows
                e += wide
            e, end = np.uintp(m.full_pointer[q]), np.uintp(m.full_pointer[q + _1])
            while e < end:
                wide = min(lanes, end - e)
                entries = simd.gather(w, source, m.full_column, e)
                if wide < lanes:
                    entries = simd_lanes.below(entries, wide)
                s0 = simd.fma(simd.load(m.values, p), entries, s0)
                if rows > _1:
                    s1 = simd.fma(simd.load(m.values, p + wide), entries, s1)
                if rows > _2:
                    s2 = simd.fma(simd.load(m.values, p + _2 * wide), entries, s2)
                p += wide * rows
                e += wide
            at = target + row
            w[at] = simd_lanes.total(s0)
            if rows > _1:
                w[at + _1] = simd_lanes.total(s1)
            if rows > _2:
                w[at + _2] = simd_lanes.total(s2)
            row += rows


def _inode_sym_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.first_value[(row + m.block - 1) // m.block])


class SymmetricInode(Layout):
    """See the module."""

    name, arrays = "inode-sym", SymmetricInodeArrays
    loop, slot_of = staticmethod(_inode_sym), staticmethod(_inode_sym_slots)
    is_symmetric = True
    reason_against_zones = "local matrices of ghost zones are not symmetric"

    def misfit(self, given: Given) -> str | None:
        if given.dtype.kind == "c":
            return "symmetric storage is for real values"
        nodes = given.known.of("inodes", given.dtype.str, make=lambda: inodes(given.pattern, given.dtype))
        if nodes.columns > _ALL_COLUMNS * given.pattern.nnz:  # as `inode`, which has counted them before
            return _TOO_FEW
        if not given.known.of("symmetric", make=lambda: has_symmetric_pattern(given.pattern)):
            return "its pattern is not symmetric"
        if self._columns(given) > _MOST_COLUMNS * given.pattern.nnz:
            return _TOO_FEW
        if self.slots(given) > _MOST_VALUES * given.pattern.nnz:
            return "too many entries lie in other blocks than those of their rows"
        return None

    def _counts(self, given: Given) -> inode_sym.Counts:
        make = lambda: inode_sym.counts_of(given.pattern)  # noqa: E731
        found: inode_sym.Counts = given.known.of("inode-sym", make=make)
        return found

    def _columns(self, given: Given) -> int:
        found = self._counts(given)
        return int(2 * found.columns.sum() + found.full_columns.sum())

    def slots(self, given: Given) -> int:
        return int(self._counts(given).values.sum())

    def lay_out(self, given: Given) -> Format:
        return inode_sym.from_csr(given.pattern, given.dtype, bits=given.bits, counts=self._counts(given))

    def bytes_per_entry(self, given: Given) -> float:
        """Of an entry of the matrix, of which two may be stored as one."""
        found = self._counts(given)
        indices = 2 * found.columns.sum() + found.full_columns.sum() * given.bits / 8 + 17.0 * found.nodes.sum()
        return (self.slots(given) * given.dtype.itemsize + float(indices)) / max(given.pattern.nnz, 1)

    def rows_together(self, given: Given) -> int:
        return inode_sym.block_rows(given.pattern.rows)


LAYOUTS = (SymmetricInode(),)
VARIANTS = {"inode-sym": VariantTraits("symmetric matrices by nodes of rows, one value for two entries of a block")}
