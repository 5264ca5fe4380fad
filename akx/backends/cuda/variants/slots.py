"""A pattern into sliced ELL or padded CSR on the device: one that is there, or that the host sends as it is.

The arrays are those that :mod:`akx.formats.sell` and :mod:`akx.formats.pcsr` find, to the bit; the kernels are those of
``slots.cuh``, and of ``lengths.cuh``, which say in which order rows are and where each slice or row begins. The host
reads the number of slots, and 12 bytes for each partition of padded CSR.

Bytes: the pattern read once, and by slices the ends of rows once more; for each slot its column and 4 of its entry
written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.row_lengths import (
    WINDOW,
    measured_rows,
    order_in_windows,
    partitions_of,
    starts_of_rows,
    starts_of_slices,
)
from akx.backends.pattern_cache import fact
from akx.core.matrix import Matrix
from akx.formats import pcsr, sell
from akx.formats.base import lengths_of, pattern_of

__all__ = ["SLICE", "PaddedRows", "Slices", "near", "padded_rows", "pattern_there", "ranges_of", "slices_of"]

_SOURCE = Path(__file__).with_name("slots.cu")
_BLOCK, _WARP = 256, 32


SLICE = 32


class Slices(NamedTuple):
    """Sliced ELL on the device: (slices+1,), (slices,), (slots,), (slots,), and (32 slices,), or (0,) if unsorted."""

    start: DeviceArray
    base: DeviceArray
    column: DeviceArray
    entry: DeviceArray
    row: DeviceArray


class PaddedRows(NamedTuple):
    """Padded CSR: all on the device but what split rows have; `start` in units of so many slots."""

    start: DeviceArray
    column: DeviceArray
    entry: DeviceArray
    row: DeviceArray
    split: NDArray[np.uint32]
    begin: NDArray[np.uint32]
    end: NDArray[np.uint32]


def pattern_there(matrix: Matrix) -> tuple[DeviceArray, DeviceArray]:
    """Row pointers and columns on the device, both uint32: where the matrix is, or sent there."""
    if matrix.on_device is not None:
        pointer, column, _ = matrix.on_device
        return pointer, column
    pattern = pattern_of(matrix)
    pointer, column = (to_device(one.astype(np.uint32, copy=False)) for one in (pattern.indptr, pattern.indices))
    return pointer, column


def ranges_of(matrix: Matrix, sigma: int) -> tuple[DeviceArray, DeviceArray]:
    """The least and the greatest column of each slice."""
    pattern = pattern_there(matrix)
    return _ranges(matrix.n, pattern, _order_of(matrix, pattern[0], sigma))


def _ranges(
    rows: int, pattern: tuple[DeviceArray, DeviceArray], order: DeviceArray | None
) -> tuple[DeviceArray, DeviceArray]:
    slices = -(-rows // _WARP)
    low, high = empty(slices, np.uint32), empty(slices, np.uint32)
    where: Any = np.uint64(0) if order is None else order
    _launch("range_of_slices", slices, [np.uint32(rows), np.uint32(slices), where, *pattern, low, high])
    return low, high


def slices_of(matrix: Matrix, sigma: int, bits: int) -> Slices:
    """Sliced ELL of a matrix that fits: columns of 16 bits are relative to the least of their slice."""
    pattern = pattern_there(matrix)
    order = _order_of(matrix, pattern[0], sigma)
    start, slots = starts_of_slices(pattern[0], order)
    least, _ = _ranges(matrix.n, pattern, order)
    column, entry = empty(slots, np.uint16 if bits == 16 else np.uint32), empty(slots, np.uint32)
    slices = least.size
    where: Any = np.uint64(0) if order is None else order
    arguments = [np.uint32(matrix.n), np.uint32(slices), where, *pattern, start, least, column, entry]
    if slots:
        _launch("lay_near_slices" if bits == 16 else "lay_slices", slices, arguments)
    if bits != 16:
        least.fill_bytes(0)
    return Slices(start, least, column, entry, empty(0, np.uint32) if order is None else order)


def padded_rows(matrix: Matrix, pad: int) -> PaddedRows:
    """Padded CSR of a matrix."""
    pattern = pattern_there(matrix)
    start, used = starts_of_rows(pattern[0], pad)
    partitions = -(-used // pcsr.PARTITION)
    slots = pcsr.PARTITION * partitions
    column, entry = empty(slots, np.uint32), empty(slots, np.uint32)
    for array in (column, entry):  # of no row
        array.view(used, (slots - used,)).fill_bytes(0)
    _launch("lay_rows", matrix.n, [np.uint32(matrix.n), *pattern, start, column, entry])
    row, split = partitions_of(start, partitions, pcsr.PARTITION)
    return PaddedRows(start, column, entry, row, *split)


def _order_of(matrix: Matrix, pointer: DeviceArray, sigma: int) -> DeviceArray | None:
    """The rows in the order in which they are stored, whole slices of them; None where that is their own."""
    if sigma == 1:
        return None
    if WINDOW % sigma == 0:
        return order_in_windows(pointer, sigma)
    order = np.zeros(-(-matrix.n // _WARP) * _WARP, dtype=np.uint32)
    order[: matrix.n] = sell.order_of(lengths_of(matrix), sigma)
    return to_device(order)


def _launch(name: str, warps: int, arguments: list[Any]) -> None:
    """Queue a kernel with so many warps."""
    load(_SOURCE, {}, device=cuda_device()).kernel(name).launch(-(-warps * _WARP // _BLOCK), _BLOCK, arguments)


def near(matrix: Matrix, sigma: int) -> bool:
    """Whether 16 bits hold the columns of every slice, relative to its least; a fact of the pattern."""

    def found() -> bool:
        rows = measured_rows(matrix)
        if rows is None:
            return sell.sell_fits(pattern_of(matrix), matrix.dtype, sigma, 16, chunk=SLICE)
        if sigma in rows.far:
            return not rows.far[sigma]
        low, high = (end.get() for end in ranges_of(matrix, sigma))
        return bool(np.all(high - low < 2**16))

    return bool(fact(matrix, ("akx.backends.cuda.near", sigma), found))
