"""A pattern into sliced ELL or padded CSR on the device: one that is there, or that the host sends as it is.

The arrays are those that :mod:`akx.formats.sell` and :mod:`akx.formats.pcsr` find, to the bit; the kernels are those of
``slots.cuh``. The host has the lengths of the rows, of which it says where each slice or row begins, and in which order
rows are.

Bytes: the pattern read once, and by slices the ends of rows once more; for each slot its column and 4 of its entry
written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.device.cuda.compile import load
from akx.device.cuda.facts import cuda_device
from akx.device.cuda.memory import DeviceArray, empty, to_device
from akx.formats import pcsr, sell
from akx.formats.base import lengths_of, pattern_of
from akx.matrix import Matrix

__all__ = ["PaddedRows", "Slices", "padded_rows", "pattern_there", "ranges_of", "slices_of"]

_SOURCE = Path(__file__).with_name("slots.cu")
_BLOCK, _WARP = 256, 32


class Slices(NamedTuple):
    """Sliced ELL on the device: (slices+1,), (slices,), (slots,), (slots,), and (32 slices,), or (0,) if unsorted."""

    start: DeviceArray
    base: DeviceArray
    column: DeviceArray
    entry: DeviceArray
    row: DeviceArray


class PaddedRows(NamedTuple):
    """Padded CSR: columns and entries on the device; what rows, partitions and split rows have, of the host."""

    start: NDArray[np.uint32]
    column: DeviceArray
    entry: DeviceArray
    row: NDArray[np.uint32]
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
    return _ranges(matrix.n, pattern_there(matrix), _order_of(matrix, sigma))


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
    starts, pattern = sell.starts_of(lengths_of(matrix), sigma, _WARP), pattern_there(matrix)
    slots, order = int(starts[-1]), _order_of(matrix, sigma)
    start, (least, _) = to_device(starts.astype(np.uint32)), _ranges(matrix.n, pattern, order)
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
    start, row, split, begin, end = pcsr.cuts_of(lengths_of(matrix), pad)
    slots = pcsr.PARTITION * (row.size - 1)
    column, entry, first = empty(slots, np.uint32), empty(slots, np.uint32), to_device(start)
    used = int(start[-1])
    for array in (column, entry):  # of no row
        array.view(used, (slots - used,)).fill_bytes(0)
    _launch("lay_rows", matrix.n, [np.uint32(matrix.n), *pattern_there(matrix), first, column, entry])
    return PaddedRows(start, column, entry, row, split, begin, end)


def _order_of(matrix: Matrix, sigma: int) -> DeviceArray | None:
    """The rows in the order in which they are stored, whole slices of them; None where that is their own."""
    if sigma == 1:
        return None
    order = np.zeros(-(-matrix.n // _WARP) * _WARP, dtype=np.uint32)
    order[: matrix.n] = sell.order_of(lengths_of(matrix), sigma)
    return to_device(order)


def _launch(name: str, warps: int, arguments: list[Any]) -> None:
    """Queue a kernel with so many warps."""
    load(_SOURCE, {}, device=cuda_device()).kernel(name).launch(-(-warps * _WARP // _BLOCK), _BLOCK, arguments)
