"""Row statistics by lengths and ends, on the device: order in sliced ELL, slots, numbers for cost models.

All are those that the host finds (:mod:`akx.formats.sell`, :mod:`akx.formats.pcsr`), to the bit; the kernels are those
of ``lengths.cuh``. :func:`measured` has all that prices ask of rows in one pass, of which the host reads 160 bytes.

Bytes: 4 a row of the pointers; 8 more for the ends of a row, and for each number that is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, zeros
from akx.backends.cuda.matrix.transpose import running_sums
from akx.backends.pattern_cache import per_pattern
from akx.core.matrix import Matrix

__all__ = [
    "WINDOW",
    "Measured",
    "measured",
    "measured_rows",
    "order_in_windows",
    "partitions_of",
    "starts_of_rows",
    "starts_of_slices",
]

_SOURCE = Path(__file__).with_name("lengths.cu")
#: Rows that are sorted together at most.
WINDOW = 1024
_BLOCK, _WARP = 256, 32
#: Bytes of shared memory: of a team, of keys, and of sums and the ends of rows.
_SORTING = 1024 + 8 * WINDOW
_MEASURING = _SORTING + 8 * 32 + 8 * WINDOW
#: What is measured: SUMS and LARGEST of the kernel.
_SUMS, _LARGEST = 15, 5
_PADS, _LANES = (1, 2, 4, 8, 16), (2, 4, 8)


@dataclass(frozen=True)
class Measured:
    """Numbers of all rows.

    `slots`: of sliced ELL, by the rows that are sorted together: 1, or 1024. `far`: whether columns of a slice lie too
    far apart for 16 bits, likewise. `padded`: entries of rows padded to multiples of 1, 2, 4, 8, 16, each having one at
    least. `dealt`: places of rows that are dealt to 1, 2, 4, 8 lanes. `longest`, `shortest`, `empty`: entries of the
    longest and the shortest row, and rows without any. `squares`: squares of the lengths in all. `below`, `above`,
    `reach`: how far columns lie below and above their rows, and from the first that a row reads or is to the last.
    `profile`: sum_i max(0, i - first column of row i).
    """

    slots: dict[int, int]
    far: dict[int, bool]
    padded: dict[int, int]
    dealt: dict[int, int]
    longest: int
    shortest: int
    empty: int
    squares: int
    below: int
    above: int
    reach: int
    profile: int


def measured(pointer: DeviceArray, index: DeviceArray) -> Measured:
    """The numbers of a pattern on the device, square, with sorted rows."""
    rows = pointer.size - 1
    totals = zeros(_SUMS + _LARGEST, np.uint64)
    if rows:
        _launch("measure_windows", -(-rows // WINDOW), WINDOW, [np.uint32(rows), pointer, index, totals], _MEASURING)
    found = [int(one) for one in totals.get()]
    sums, (longest, reach, below, above, lack) = found[:_SUMS], found[_SUMS:]
    return Measured(
        slots={1: sums[0], WINDOW: sums[1]},
        far={1: sums[2] > 0, WINDOW: sums[3] > 0},
        padded=dict(zip(_PADS, sums[4:9], strict=True)),
        dealt={1: index.size, **dict(zip(_LANES, sums[9:12], strict=True))},
        longest=longest,
        shortest=2**32 - 1 - lack if rows else 0,
        empty=sums[12],
        squares=sums[14],
        below=below,
        above=above,
        reach=reach,
        profile=sums[13],
    )


def measured_rows(matrix: Matrix) -> Measured | None:
    """The numbers of a matrix that is on the device; None of one of the host."""
    return None if matrix.on_device is None else _measured(matrix)


@per_pattern
def _measured(matrix: Matrix) -> Measured:
    pointer, index, _ = matrix.on_device
    return measured(pointer, index)


def order_in_windows(pointer: DeviceArray, sigma: int) -> DeviceArray:
    """The rows in the order in which sliced ELL has them, whole slices of them; `sigma` divides 1024."""
    rows = pointer.size - 1
    order = empty(-(-rows // _WARP) * _WARP, np.uint32)
    if rows:
        arguments = [np.uint32(rows), np.uint32(sigma), pointer, order]
        _launch("sort_windows", -(-rows // WINDOW), WINDOW, arguments, _SORTING)
    return order


def starts_of_slices(pointer: DeviceArray, order: DeviceArray | None) -> tuple[DeviceArray, int]:
    """First slot of each slice of sliced ELL, (slices + 1,), and the number of all. Waits for the device."""
    rows = pointer.size - 1
    slices = -(-rows // _WARP)
    starts = empty(slices + 1, np.uint32)
    where: Any = np.uint64(0) if order is None else order
    arguments = [np.uint32(rows), np.uint32(slices), where, pointer, starts]
    _launch("slots_of_slices", -(-(slices + 1) * _WARP // _BLOCK), _BLOCK, arguments)
    return _summed(starts)


def starts_of_rows(pointer: DeviceArray, pad: int, unit: int = 1) -> tuple[DeviceArray, int]:
    """First slot of each row padded to a multiple of `pad`, in so many slots, (rows + 1,), and the number of all."""
    rows = pointer.size - 1
    starts = empty(rows + 1, np.uint32)
    arguments = [np.uint32(rows), np.uint32(pad), np.uint32(unit), pointer, starts]
    _launch("slots_of_rows", -(-(rows + 1) // _BLOCK), _BLOCK, arguments)
    return _summed(starts)


def partitions_of(starts: DeviceArray, partitions: int, partition: int) -> tuple[DeviceArray, NDArray[Any]]:
    """The row of the first slot of each partition and of the end, (partitions + 1,), and rows that are split.

    These are (3, splits): the rows, and the first and the last partition of each.
    """
    rows = starts.size - 1
    found = empty((3, partitions + 1), np.uint32)
    arguments = [np.uint32(partitions), np.uint32(partition), np.uint32(rows), starts, *(found[i] for i in range(3))]
    _launch("place_partitions", -(-(partitions + 1) // _BLOCK), _BLOCK, arguments)
    row, begin, end = found.get().astype(np.int64)
    split = np.flatnonzero((row < rows) & (begin < partition * np.arange(partitions + 1)))
    split = split[np.append(True, row[split[1:]] != row[split[:-1]])[: split.size]]  # which may lie in more than two
    ends = np.stack([row[split], begin[split] // partition, (end[split] - 1) // partition])
    return found[0], ends.astype(np.uint32)


def _summed(starts: DeviceArray) -> tuple[DeviceArray, int]:
    running_sums(starts)
    return starts, int(starts.view(starts.size - 1, (1,)).get()[0])


def _launch(name: str, grid: int, block: int, arguments: list[Any], shared: int = 0) -> None:
    load(_SOURCE, {}, device=cuda_device()).kernel(name).launch(grid, block, arguments, shared=shared)
