"""Symmetric matrices by diagonals (:mod:`akx.formats.dia_sym`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu import simd
from akx.backends.cpu.jit import jit
from akx.backends.cpu.variants.base import Given, Layout
from akx.backends.variant import VariantTraits
from akx.formats import dia_sym
from akx.formats.base import Format, lanes_of
from akx.formats.dia_sym import SymmetricDiaArrays, symmetric_dia_reach
from akx.formats.symmetry import has_symmetric_pattern

__all__ = ["LAYOUTS", "VARIANTS", "SymmetricDia"]

_0, _1 = np.uintp(0), np.uintp(1)
#: Rows ahead of which values are asked for: each diagonal comes from memory on its own, and the processor's own
#: prefetching follows few such streams (14 diagonals, 27-point: 2.9 ms without, 1.75 at 64 rows, 1.55 at 256).
_AHEAD = np.uintp(256)
#: Entries on diagonals must be this share of all. More diagonals than the second take longer than blocks or nodes, that
#: are read in order (shell, 32 of them: 1.1 times as long).
_LEAST, _MOST = 0.6, 24


def _dia_sym(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    height, rows = np.uintp(m.slice), np.uintp(m.rows)
    lanes, count = height // np.uintp(4), np.uintp(m.offset.size)
    once = _1 if count > _0 and m.offset[_0] == _0 else _0
    widest = np.uintp(m.offset[count - _1]) if count > _0 else _0
    source, target = np.uintp(x) - np.uintp(shift), np.uintp(y) - np.uintp(shift)
    for s in range(np.uintp(first) // height, (np.uintp(last) + height - _1) // height):
        i = s * height
        before = behind = count
        if i < widest or i + height + widest > rows:
            before, behind, is_whole = _inside(m, i, height, rows)
            if not is_whole:
                _slice_by_entry(m, w, i, min(height, rows - i), source, target)
                _rest(m, w, s, source, target + i)
                continue
        s0, s1, s2, s3 = simd.zero(m.values), simd.zero(m.values), simd.zero(m.values), simd.zero(m.values)
        for d in range(once, before):
            offset = np.uintp(m.offset[d])
            p, q = np.uintp(m.base[d]) + i - offset, source + i - offset
            s0 = simd.fma(simd.load(m.values, p), simd.load(w, q), s0)
            s1 = simd.fma(simd.load(m.values, p + lanes), simd.load(w, q + lanes), s1)
            p += lanes + lanes
            q += lanes + lanes
            s2 = simd.fma(simd.load(m.values, p), simd.load(w, q), s2)
            s3 = simd.fma(simd.load(m.values, p + lanes), simd.load(w, q + lanes), s3)
        for d in range(_0, behind):
            p, q = np.uintp(m.base[d]) + i, source + i + np.uintp(m.offset[d])
            for line in range(np.uintp(4)):
                simd.prefetch(m.values, p + _AHEAD + line * lanes)
            s0 = simd.fma(simd.load(m.values, p), simd.load(w, q), s0)
            s1 = simd.fma(simd.load(m.values, p + lanes), simd.load(w, q + lanes), s1)
            p += lanes + lanes
            q += lanes + lanes
            s2 = simd.fma(simd.load(m.values, p), simd.load(w, q), s2)
            s3 = simd.fma(simd.load(m.values, p + lanes), simd.load(w, q + lanes), s3)
        i += target
        simd.store(w, i, s0)
        simd.store(w, i + lanes, s1)
        simd.store(w, i + lanes + lanes, s2)
        simd.store(w, i + lanes + lanes + lanes, s3)
        _rest(m, w, s, source, i)


@jit
def _inside(m: Any, i: Any, height: Any, rows: Any) -> Any:
    """How many diagonals go all through a slice on either side; False where one begins or ends within it."""
    before = behind = _0
    is_whole = i + height <= rows
    for d in range(np.uintp(m.offset.size)):
        offset = np.uintp(m.offset[d])
        if offset <= i:
            before += _1
        elif offset < i + height:
            is_whole = False
        if i + height + offset <= rows:
            behind += _1
        elif i + offset < rows:
            is_whole = False
    return before, behind, is_whole


@jit
def _slice_by_entry(m: Any, w: Any, i: Any, height: Any, source: Any, target: Any) -> None:
    """One slice, entry by entry; padding is told by its zero value, so that no column outside the matrix is read."""
    for r in range(i, i + height):
        total = m.values.dtype.type(0)
        for d in range(np.uintp(m.offset.size)):
            offset, p = np.uintp(m.offset[d]), np.uintp(m.base[d]) + r
            if offset > _0 and offset <= r and m.values[p - offset] != 0:
                total += m.values[p - offset] * w[source + r - offset]
            if r + offset < np.uintp(m.rows) and m.values[p] != 0:
                total += m.values[p] * w[source + r + offset]
        w[target + r] = total


@jit
def _rest(m: Any, w: Any, s: Any, source: Any, target: Any) -> None:
    for e in range(np.uintp(m.pointer[s]), np.uintp(m.pointer[s + _1])):
        w[target + np.uintp(m.row[e])] += m.values[np.uintp(m.rest) + e] * w[source + np.uintp(m.column[e])]


def _dia_sym_slots(m: Any, row: Any) -> Any:
    return np.uintp(row)  # of the first diagonal


class SymmetricDia(Layout):
    """See the module."""

    name, arrays = "dia-sym", SymmetricDiaArrays
    loop, slot_of = staticmethod(_dia_sym), staticmethod(_dia_sym_slots)
    is_symmetric = True
    reason_against_zones = "local matrices of ghost zones are not symmetric"

    def misfit(self, given: Given) -> str | None:
        if given.dtype.kind == "c":
            return "symmetric storage is for real values"
        found = self._diagonals(given)  # these first: to see whether all is symmetric takes three times as long
        if found.offset.size > _MOST or found.rest > (1 - _LEAST) * given.pattern.nnz:
            return f"too few entries lie on diagonals, of {_MOST} at most"
        if not given.known.of("symmetric", make=lambda: has_symmetric_pattern(given.pattern)):
            return "its pattern is not symmetric"
        return None

    def _diagonals(self, given: Given) -> dia_sym.Diagonals:
        make = lambda: dia_sym.diagonals_of(given.pattern)  # noqa: E731
        found: dia_sym.Diagonals = given.known.of("dia-sym", make=make)
        return found

    def slots(self, given: Given) -> int:
        return dia_sym.slots_of(self._diagonals(given), given.pattern.rows, given.dtype)

    def tail(self, given: Given) -> int:
        return 64 * lanes_of(given.dtype) * _MOST

    def lay_out(self, given: Given) -> Format:
        found, threads = self._diagonals(given), given.known.threads
        return dia_sym.from_csr(given.pattern, given.dtype, bits=given.bits, found=found, threads=threads)

    def bytes_per_entry(self, given: Given) -> float:
        """Of an entry of the matrix, of which two are stored as one."""
        stored = self.slots(given) * given.dtype.itemsize + self._diagonals(given).rest * (given.bits / 8 + 1)
        return stored / max(given.pattern.nnz, 1) / self.padding(given)

    def multiplied(self, given: Given) -> float:
        found = self._diagonals(given)
        return max(1.0, (2 * found.offset.size * given.pattern.rows + found.rest) / max(given.pattern.nnz, 1))

    def rows_together(self, given: Given) -> int:
        return 4 * lanes_of(given.dtype)

    def padding_reach(self, arrays: Any, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return symmetric_dia_reach(arrays, columns)


LAYOUTS = (SymmetricDia(),)
VARIANTS = {"dia-sym": VariantTraits("symmetric matrices by diagonals, one value for two entries")}
