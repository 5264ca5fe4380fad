"""Pattern statistics for cost models, beside the lengths of rows, on the device.

All are the numbers that the host finds, to the bit: counts in 64 bits, whatever the order of threads. The kernels are
those of ``features.cuh``. The host is told these counts alone, a few numbers for each part of the matrix.

Bytes: :func:`parts_read` reads the pattern once, and has a bit for each row and part, 64 MiB at a time;
:func:`full_blocks` once at most; all others some slices or rows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device, cuda_missing
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.matrix.device_matrix import PATTERN, Arrays, DeviceMatrix, sent_pattern
from akx.backends.cuda.matrix.transpose import take
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.formats.blocked import Blocked
from akx.formats.slice_diagonals import Extents

__all__ = [
    "LANES",
    "LineFaults",
    "OnDevice",
    "PartsRead",
    "blocks_of_nodes",
    "blocks_read",
    "copied",
    "count_alike",
    "count_twins",
    "different_keys",
    "extents",
    "full_blocks",
    "largest_counts",
    "line_faults",
    "lines_of_loads",
    "mark_parts",
    "of",
    "parts_read",
    "remember",
    "rows_of",
    "starts_at",
]

_SOURCE = Path(__file__).with_name("features.cu")
_BLOCK, _WARP = 256, 32
#: Threads of a block where each has a slice by itself.
_FEW = 64
#: Kinds of loads: of entries as they are stored (0), and with so many threads a row; LOADS of the kernels.
_LOADS = (0, 1, 2, 4, 8, 16, 32)
#: Lanes to which rows of parts are dealt, numbers of a part (OF_PART), sizes of blocks (SHAPES), counted counts (BINS).
LANES, _OF_PART, _SIZES, _BINS = (1, 2, 4, 8), 8, (2, 3, 6), 4096
#: Blocks for each part and slice, entries of a row for which a slice has one more, and most of them.
_PER_PART, _PER_SLICE, _LONG, _MOST_SHARES = 8, 4, 4096, 64
#: Words of bits at a time.
_WORDS = 1 << 24
#: Entries of a matrix of the host from which on sending it takes less time than looking at it there.
_WORTH_SENDING = 500_000


class OnDevice(NamedTuple):
    """A square pattern with sorted rows on the device: (rows + 1,) and (nnz,), both uint32."""

    pointer: DeviceArray
    column: DeviceArray

    @property
    def rows(self) -> int:
        return self.pointer.size - 1


class PartsRead(NamedTuple):
    """Of runs of rows, each of shape (parts,).

    `halo`, `neighbours`, `span`: as of :func:`akx.partition.halo.halo_sizes`. `slots`: by lanes, slots of all rows
    where each is dealt to so many.
    """

    halo: NDArray[np.float64]
    neighbours: NDArray[np.float64]
    span: NDArray[np.float64]
    slots: dict[int, NDArray[np.int64]]


def copied(matrix: Matrix, device: CudaDevice) -> Matrix:
    """A matrix of the host on the device for a prediction, which then needs no pass over it on the host.

    Itself where it is there, or small, or predicted before, where its indices take 64 bits, or nothing may be sent.
    """
    known = "akx.backends.cuda.value_compression.encodings" in matrix.cache and any(
        isinstance(key, tuple) and key[0] == "akx.tuner.model.predict" for key in matrix.pattern_cache
    )
    here = matrix.on_device is not None or matrix.nnz < _WORTH_SENDING or matrix.index_dtype != np.int32
    if known or here or device.budget or cuda_missing() is not None or device != cuda_device(device.ordinal):
        return matrix
    try:
        arrays = Arrays(*sent_pattern(matrix), to_device(matrix.data))
    except DeviceMemoryError:
        return matrix
    cache = {key: one for key, one in matrix.pattern_cache.items() if key != PATTERN}
    found = DeviceMatrix(arrays, pattern_cache=cache, largest=matrix.largest, value_error=matrix.value_error)
    if not matrix.value_error:  # by how much values are off is the same there but for its last bit
        found.cache = matrix.cache
    return found


def remember(matrix: Matrix, seen: Matrix) -> None:
    """Let a matrix know what was found by its copy (:func:`copied`), but for what is on the device."""
    for key, one in seen.pattern_cache.items():
        if key != PATTERN and not isinstance(one, (dict, Blocked)):
            matrix.pattern_cache.setdefault(key, one)


def of(matrix: Matrix) -> OnDevice | None:
    """The pattern of a matrix that is on the device; None of one of the host."""
    return None if matrix.on_device is None else OnDevice(*matrix.on_device[:2])


def starts_at(pattern: OnDevice, rows: NDArray[Any]) -> NDArray[np.int64]:
    """The first entries of some rows, and of what comes behind the last one."""
    return take(pattern.pointer, _words(rows.ravel())).get().astype(np.int64).reshape(rows.shape)


def rows_of(pattern: OnDevice, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """How many entries some rows have, which ascend, and their columns, row after row; few, since all come down."""
    if rows.size and rows[-1] - rows[0] + 1 == rows.size:  # what lies side by side needs no kernel
        ends = pattern.pointer.view(int(rows[0]), (rows.size + 1,)).get().astype(np.int64)
        return np.diff(ends), pattern.column.view(int(ends[0]), (int(ends[-1] - ends[0]),)).get()
    begin = starts_at(pattern, rows)
    counts = starts_at(pattern, rows + 1) - begin
    at = np.repeat(begin - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return counts, take(pattern.column, _words(at)).get() if at.size else np.zeros(0, np.uint32)


def different_keys(pattern: OnDevice, slices: NDArray[Any], per_sector: int = 0) -> tuple[int, int]:
    """Sectors of so many columns that each of some slices of 32 rows reads, in all, and their entries.

    With none, diagonals that their entries lie on.
    """
    found, shares = zeros(2, np.uint64), np.uint32(_PER_SLICE)
    arguments = [np.uint32(pattern.rows), shares, _words(slices), *pattern, np.uint32(per_sector), found]
    _launch("count_new_keys", slices.size * _PER_SLICE, arguments)
    different, entries = found.get()
    return int(different), int(entries)


def lines_of_loads(pattern: OnDevice, slices: NDArray[Any], per_line: int, longest: int) -> tuple[dict[int, int], int]:
    """Lines of so many columns that the loads of warps ask for in some slices, by threads of a row, and their entries.

    With 0 threads a load has 32 entries as they are stored. `longest` is the length of the longest row.
    """
    ends = starts_at(pattern, np.concatenate([slices * _WARP, np.minimum((slices + 1) * _WARP, pattern.rows)]))
    before = np.concatenate([[0], np.cumsum(ends[slices.size :] - ends[: slices.size])])
    found, shares = zeros(len(_LOADS), np.uint64), min(_MOST_SHARES, 1 + longest // _LONG)
    numbers = [np.uint32(number) for number in (pattern.rows, slices.size, shares)]
    arguments = [*numbers, _words(slices), _words(before), *pattern, np.uint32(per_line), found]
    _launch("count_lines_of_loads", len(_LOADS) * slices.size * shares, arguments)
    return dict(zip(_LOADS, (int(one) for one in found.get()), strict=True)), int(before[-1])


def count_alike(pattern: OnDevice, rows: NDArray[Any]) -> int:
    """How many of some rows may be of one node with the row before (:mod:`akx.formats.natural_blocks`)."""
    return _count_rows("count_alike_rows", pattern, rows)


def count_twins(pattern: OnDevice, rows: NDArray[Any]) -> int:
    """How many of some rows have the columns of another one which they are coupled with."""
    return _count_rows("count_twin_rows", pattern, rows)


def _count_rows(name: str, pattern: OnDevice, rows: NDArray[Any]) -> int:
    found = zeros(1, np.uint64)
    if rows.size:
        _launch(name, -(-rows.size * _WARP // _BLOCK), [np.uint32(rows.size), _words(rows), *pattern, found])
    return int(found.get()[0])


def parts_read(pattern: OnDevice, cuts: NDArray[np.int64]) -> PartsRead:
    """What runs of rows read of one another, and slots of their rows; `cuts` is (parts + 1,)."""
    numbers, _ = mark_parts(pattern, cuts)
    halo, neighbours, lack, behind, *slots = numbers.get().astype(np.int64).T
    low = np.where(halo > 0, np.minimum(2**32 - 1 - lack, cuts[:-1]), cuts[:-1])
    span = np.maximum(behind, cuts[1:]) - low
    read, owners, reach = (one.astype(np.float64) for one in (halo, neighbours, span))
    return PartsRead(read, owners, reach, dict(zip(LANES, slots, strict=True)))


def mark_parts(
    pattern: OnDevice,
    cuts: NDArray[np.int64],
    border: DeviceArray | None = None,
    then: Callable[[DeviceArray, DeviceArray], None] | None = None,
) -> tuple[DeviceArray, DeviceArray]:
    """Numbers of runs of rows, (parts, 8), and whom each reads, (parts, words) with a bit for each part.

    `border`, a byte for each row and zero before, becomes 1 where a row reads another run or is read by one. For some
    runs at a time, ``then(bits, numbers)`` has a bit for each row that they read of others, (runs, words), and theirs.
    """
    parts, words = cuts.size - 1, -(-pattern.rows // 32)
    at_once = min(parts, max(1, _WORDS // max(words, 1)))
    numbers, met, where = zeros((parts, _OF_PART), np.uint64), zeros((parts, -(-parts // 32)), np.uint32), _words(cuts)
    bits, marked = empty((at_once, words), np.uint32), np.uint64(0) if border is None else border
    for first in range(0, parts, at_once):
        some = min(at_once, parts - first)
        bits.fill_bytes(0)
        given = [np.uint32(number) for number in (parts, first, _PER_PART, words)]
        _launch("mark_parts", some * _PER_PART, [*given, where, *pattern, bits, met, numbers, marked])
        if then is not None:
            then(bits[:some], numbers[first : first + some])
    return numbers, met


def full_blocks(pattern: OnDevice) -> frozenset[int]:
    """The sizes, 2, 3 and 6, of which the pattern is one of dense, aligned blocks; rows and entries come out even."""
    wrong, rows = zeros(len(_SIZES), np.uint32), pattern.rows
    wrong.set(np.array([rows % size > 0 or pattern.column.size % (size * size) > 0 for size in _SIZES], np.uint32))
    if rows:
        _launch("check_for_blocks", -(-rows * _WARP // _BLOCK), [np.uint32(rows), *pattern, wrong])
    return frozenset(size for size, is_wrong in zip(_SIZES, wrong.get(), strict=True) if not is_wrong)


def blocks_of_nodes(pattern: OnDevice, size: int) -> OnDevice:
    """The pattern of the nodes of a matrix of full blocks."""
    nodes = pattern.rows // size
    found = OnDevice(empty(nodes + 1, np.uint32), empty(pattern.column.size // (size * size), np.uint32))
    arguments = [np.uint32(nodes), np.uint32(size), *pattern, *found]
    _launch("take_all_blocks", -(-(nodes + 1) * _WARP // _BLOCK), arguments)
    return found


class LineFaults(NamedTuple):
    """Why runs of rows, each of which reads the next one, are not the lines of a grid.

    `is_one`: there is one run alone. `is_uneven`, `is_beyond`: some but the last are longer than others; some row reads
    beyond the runs next to its own. `far`: the least row that reads another than those next to it or is read by one;
    the number of rows where none is.
    """

    is_one: bool
    is_uneven: bool
    is_beyond: bool
    far: int


def extents(pattern: OnDevice) -> Extents:
    """What slices take by diagonals, and the rows of x that they read."""
    slices = -(-pattern.rows // _WARP)
    found = empty((4, slices), np.int64)
    numbers = [np.uint32(pattern.rows), np.uint32(slices)]
    if slices:
        _launch("choose_all_diagonals", -(-slices // _FEW), [*numbers, *pattern, found], block=_FEW)
    return Extents(pattern.rows, *found.get())


def blocks_read(pattern: OnDevice, begin: NDArray[Any]) -> tuple[int, int]:
    """Blocks that rows read after and before their own, at most; `begin` is where each begins."""
    found = zeros(2, np.uint32)
    numbers = [np.uint32(pattern.rows), np.uint32(begin.size), _words(begin)]
    _launch("find_blocks_read", max(1, -(-pattern.rows // _BLOCK)), [*numbers, *pattern, found])
    ahead, behind = (int(one) for one in found.get())
    return ahead, behind


def line_faults(pattern: OnDevice) -> LineFaults:
    """What speaks against lines of a grid."""
    rows, (second, *_) = pattern.rows, _checked(pattern, 0)
    line = 2**32 - 1 - second if second else rows
    uneven, beyond, lack = _checked(pattern, line)
    return LineFaults(line == rows, uneven > 0, beyond > 0, 2**32 - 1 - lack if lack else rows)


def _checked(pattern: OnDevice, line: int) -> list[int]:
    found = zeros(3, np.uint32)
    numbers = [np.uint32(pattern.rows), np.uint32(line)]
    _launch("check_for_lines", -(-pattern.rows // _BLOCK), [*numbers, *pattern, found])
    return [int(one) for one in found.get()]


def largest_counts(counts: DeviceArray, entries: int, most: int) -> int:
    """The sum of the `most` largest of some counts, which add up to `entries`."""
    bins = zeros(_BINS + 1 + entries // _BINS, np.uint32)
    rest = bins.view(_BINS, (bins.size - _BINS,))
    blocks = min(-(-counts.size // _BLOCK), 4 * cuda_device().sms)
    _launch("count_all_counts", blocks, [np.uint32(counts.size), counts, bins, rest], shared=4 * _BINS)
    found = bins.get().astype(np.int64)
    listed = np.sort(found[_BINS + 1 : _BINS + 1 + found[_BINS]])[::-1][:most]
    taken, left = int(listed.sum()), most - listed.size
    behind = np.minimum(np.cumsum(found[_BINS - 1 :: -1]), left)  # columns that are taken, from the largest count on
    return taken + int(np.diff(behind, prepend=0) @ np.arange(_BINS - 1, -1, -1))


def _words(numbers: NDArray[Any] | Sequence[int]) -> DeviceArray:
    return to_device(np.asarray(numbers).astype(np.uint32))


def _launch(name: str, grid: int, arguments: list[Any], shared: int = 0, block: int | None = None) -> None:
    """Queue a kernel; a block has _BLOCK threads by default."""
    kernel = load(_SOURCE, {}, device=cuda_device()).kernel(name)
    kernel.launch(grid, _BLOCK if block is None else block, arguments, shared=shared)
