"""Sliced diagonals (:mod:`akx.formats.dia`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu import simd
from akx.backends.cpu.jit import jit
from akx.backends.cpu.variants.base import Given, Layout
from akx.backends.variant import VariantTraits
from akx.formats import dia
from akx.formats.base import Format
from akx.formats.dia import DiaArrays, dia_reach, slice_rows

__all__ = ["LAYOUTS", "VARIANTS", "Dia"]

_1 = np.uintp(1)


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


def _dia_slots(m: Any, row: Any) -> Any:
    return np.uintp(m.start[(row + m.slice - 1) // m.slice]) * np.uintp(m.slice)


class Dia(Layout):
    """See the module."""

    name, arrays = "dia", DiaArrays
    loop, slot_of = staticmethod(_dia), staticmethod(_dia_slots)

    def slots(self, given: Given) -> int:
        return self._counted(given)[0]

    def tail(self, given: Given) -> int:
        return 64 * slice_rows(given.dtype)

    def _counted(self, given: Given) -> tuple[int, NDArray[np.uint64]]:
        """Slots, and the diagonals of each slice, where there is room for so many."""

        def count() -> tuple[int, NDArray[np.uint64]]:
            counts = np.zeros(-(-given.pattern.rows // slice_rows(given.dtype)), dtype=np.uint64)
            room, threads = self.room(given), given.known.threads
            return dia.dia_slots(given.pattern, given.dtype, room, counts=counts, threads=threads), counts

        found: tuple[int, NDArray[np.uint64]] = given.known.of("dia", given.dtype.str, make=count)
        return found

    def _counts(self, given: Given) -> NDArray[np.uint64] | None:
        """The diagonals of each slice; None where they would be padded too much, and were not counted to the end."""
        slots, counts = self._counted(given)
        return counts if slots <= self.room(given) else None

    def lay_out(self, given: Given) -> Format:
        return dia.from_csr(given.pattern, given.dtype, counts=self._counts(given), threads=given.known.threads)

    def lay_out_zones(self, given: Given, begins: NDArray[np.int64]) -> Format:
        height, pattern = slice_rows(given.dtype), given.pattern
        rows = np.arange(-(-pattern.rows // height), dtype=np.int64) * height
        origin = begins[np.searchsorted(begins, rows, side="right") - 1]  # that of all rows of a slice
        counts, threads = self._counts(given), given.known.threads
        return dia.from_csr(pattern, given.dtype, origin=origin, counts=counts, threads=threads)

    def bytes_per_entry(self, given: Given) -> float:
        return given.dtype.itemsize + 8 / slice_rows(given.dtype)

    def rows_together(self, given: Given) -> int:
        return slice_rows(given.dtype)

    def padding_reach(self, arrays: Any, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return dia_reach(arrays, columns)


LAYOUTS = (Dia(),)
VARIANTS = {"dia": VariantTraits("sliced diagonals, no column indices", has_columns=False)}
