"""A pattern on the device into the slices of `vbell`, without a way over the host (:mod:`akx.formats.vbell`).

Nodes, their order and every array are those that :func:`akx.formats.natural_blocks.natural_nodes` and
:func:`akx.formats.vbell.lay_out` find, to the bit; the kernels are those of ``translate.cuh``. What a call queues until
the host needs a number depends on the number of rows alone: eight kernels, then the host reads how large the arrays are
to be, and queues the one that fills them. Only where loose nodes may be better than exact ones it reads once or twice
more, and as many as five more kernels are queued.

Bytes per call: the indices are read four times (of rows that are the same as the one before once less), `entry` is
written once, and the others are smaller; 60 to 80 bytes a row are held while it works, and as many again where loose
nodes are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, zeros
from akx.formats.natural_blocks import INDEX_BYTES, MOST, VALUE_BYTES, Nodes
from akx.formats.vbell import HEAD, WINDOW, Shape

__all__ = ["DeviceVbell", "Refusal", "found_nodes", "reason_of", "shape_of", "translated"]

_SOURCE = Path(__file__).with_name("translate.cu")
_WARP = 32
#: Threads of a block that has warps with work of their own, of one that has a chunk of rows or a window, of a slice's.
_BLOCK, _LARGE, _PLACING = 256, 1024, 128
#: Rows of a thread in a chunk (ROWS_EACH of the kernels), and values of a digit (DIGITS).
_EACH, _DIGITS = 4, 256
#: Blocks for each multiprocessor where warps take nodes in turn.
_TURNS = 8
#: Values stored for each entry that there may be.
_MOST_PADDING = 2.0
_EXACT, _LOOSE = 0, 1
#: What is counted: nodes of both choices, then for each choice blocks, their values, slices, and the lengths of arrays.
_NODES, _OF_CHOICE, _COUNTED = 2, 6, 14


@dataclass(frozen=True)
class DeviceVbell:
    """A pattern in slices: the arrays of :class:`akx.formats.vbell.VbellArrays` on the device, queued.

    `head`, `first`, `column`, `entry`: uint32.
    """

    head: DeviceArray
    first: DeviceArray
    column: DeviceArray
    entry: DeviceArray
    nodes: int
    blocks: int

    @property
    def slices(self) -> int:
        """Slices of nodes."""
        return self.head.shape[0]

    @property
    def slots(self) -> int:
        """Values stored, padding included."""
        return self.entry.size


@dataclass(frozen=True)
class Refusal:
    """Why a pattern is not laid out, and how many slots it would have, where that was counted."""

    reason: str
    slots: int = 0


def shape_of(lanes: int) -> Shape:
    """What a slice has, a warp's."""
    return Shape(_WARP, lanes, _WARP)


def reason_of(rows: int, entries: int, slots: int) -> str | None:
    """Why a matrix is not laid out in so many slots, at least as many as it has entries."""
    if rows >= 2**31:
        return "more rows than 31 bits number"
    if max(entries, slots) >= 2**32:
        return "more than 2**32 slots"
    if slots > _MOST_PADDING * entries + 4096:
        return f"padding would make it more than {_MOST_PADDING:g} times as large"
    return None


def translated(pointer: DeviceArray, index: DeviceArray, lanes: int) -> DeviceVbell | Refusal:
    """The arrays of a square pattern with sorted rows, or why there are none. Waits for the device, not for the arrays.

    `pointer`, `index`: (rows + 1,) and (nnz,) DeviceArray of uint32. `lanes`: lanes that share a row, where so many
    fit.
    """
    rows, entries = pointer.size - 1, index.size
    if (reason := reason_of(rows, entries, 0)) is not None:
        return Refusal(reason)
    if rows == 0:
        first, column, entry = (empty(0, np.uint32) for _ in range(3))
        return DeviceVbell(empty((0, HEAD), np.uint32), first, column, entry, 0, 0)
    runs = _Runs(pointer, index)
    chosen = _Choice(runs, _EXACT, lanes)
    chosen.count()
    chosen.slice()
    counted = runs.counted.get()
    if counted[_EXACT] != counted[_LOOSE]:
        loose = _Choice(runs, _LOOSE, lanes)
        loose.count()
        counted = runs.counted.get()
        if _size(counted, loose) < _size(counted, chosen):
            chosen = loose
            chosen.slice()
            counted = runs.counted.get()
    blocks, _, slices, *lengths = (int(one) for one in counted[chosen.at : chosen.at + _OF_CHOICE])
    if (reason := reason_of(rows, entries, lengths[-1])) is not None:
        return Refusal(reason, lengths[-1])
    head, (first, column, entry) = empty((slices, HEAD), np.uint32), (empty(length, np.uint32) for length in lengths)
    chosen.place(slices, [head, first, column, entry])
    return DeviceVbell(head, first, column, entry, int(counted[chosen.kind]), blocks)


def found_nodes(pointer: DeviceArray, index: DeviceArray) -> Nodes:
    """The natural nodes of a square pattern with sorted rows, of which there are some."""
    runs = _Runs(pointer, index)
    choices = [_Choice(runs, kind, 1) for kind in (_EXACT, _LOOSE)]
    chosen, loose = choices
    chosen.count()
    counted = runs.counted.get()
    if counted[_EXACT] != counted[_LOOSE]:
        loose.count()
        counted = runs.counted.get()
        if _size(counted, loose) < _size(counted, chosen):
            chosen = loose
    return chosen.nodes(counted)


def _size(counted: Any, choice: _Choice) -> int:
    """Bytes of the blocks of a choice of nodes, without what fills slices up."""
    blocks, values = (int(one) for one in counted[choice.at : choice.at + 2])
    return values * VALUE_BYTES + blocks * INDEX_BYTES


class _Runs:
    """What rows and columns are like those before them, and which place of a node each row has, in both choices."""

    def __init__(self, pointer: DeviceArray, index: DeviceArray) -> None:
        self.rows = pointer.size - 1
        self.chunks = _ceil(self.rows, _EACH * _LARGE)
        self.pattern = [pointer, index]
        rows, chunks = np.uint32(self.rows), np.uint32(self.chunks)
        # What is zero before, in one array: numbers that are counted, and columns that are not like the one before.
        counted = zeros(_COUNTED + _ceil(self.rows, 8), np.uint64)
        self.counted, apart = counted.view(0, (_COUNTED,)), counted.view(_COUNTED, (self.rows,), np.uint8)
        self.flags, self.parts = empty(self.rows, np.uint8), empty(2 * self.rows, np.uint8)
        self.totals = empty(2 * self.chunks, np.uint32)
        ends, of_rows = empty(4 * self.chunks, np.uint32), [self.flags, apart]
        launch = self.launch
        launch("compare_rows", _ceil(self.rows * _WARP, _BLOCK), _BLOCK, [rows, *self.pattern, *of_rows])
        launch("find_ends_of_runs", 2 * self.chunks, _LARGE, [rows, chunks, *of_rows, ends], 4 * _WARP)
        found = [ends, self.parts, self.totals, self.counted]
        launch("cut_runs", 2 * self.chunks, _LARGE, [rows, chunks, *of_rows, *found], 8 * _WARP)

    def launch(self, name: str, grid: int, block: int, args: list[Any], shared: int = 0) -> None:
        """Queue a kernel with so many bytes of shared memory."""
        load(_SOURCE, {}, device=cuda_device()).kernel(name).launch(grid, block, args, shared=shared)


class _Choice:
    """One choice of nodes, their order and their slices."""

    def __init__(self, runs: _Runs, kind: int, lanes: int) -> None:
        self.kind, self.at = kind, _NODES + kind * _OF_CHOICE
        self._runs, self._rows, self._lanes = runs, np.uint32(runs.rows), np.uint32(lanes)
        self._windows, self._per = _ceil(runs.rows, WINDOW), _LARGE // _WARP
        shape = shape_of(lanes)
        # A slice is full, but for the last one of each size in a window.
        least = min(shape.nodes_of(r) * r for r in range(1, MOST + 1))
        self._slices = min(runs.rows, runs.rows // least + MOST * self._windows)
        self._chunks = _ceil(self._slices, self._per)
        self._cuts, self._firsts = empty(runs.rows + 1, np.uint32), empty(self._windows + 1, np.uint32)
        self._counts = empty((runs.rows, MOST), np.uint32)
        self._noded = [*runs.pattern, runs.flags, runs.parts.view(kind * runs.rows, (runs.rows,))]

    def _found(self, number: int, count: int) -> DeviceArray:
        return self._runs.counted.view(self.at + number, (count,))

    def count(self) -> None:
        """Number the nodes, and count their blocks."""
        runs = self._runs
        totals = runs.totals.view(self.kind * runs.chunks, (runs.chunks,))
        args: list[Any] = [self._rows, np.uint32(WINDOW), self._noded[-1], totals, self._cuts, self._firsts]
        runs.launch("number_nodes", runs.chunks, _LARGE, args, 4 * _WARP)
        grid = min(_ceil(runs.rows * _WARP, _BLOCK), _TURNS * cuda_device().sms)
        args = [*self._noded, runs.counted.view(self.kind, (1,)), self._cuts, self._counts, self._found(0, 2)]
        runs.launch("count_blocks", grid, _BLOCK, args, 16 * _WARP)

    def nodes(self, counted: Any) -> Nodes:
        """The nodes, counted before, on the host."""
        count = int(counted[self.kind])
        cuts = self._cuts.view(0, (count + 1,)).get().astype(np.int64)
        of = np.repeat(np.arange(count, dtype=np.int32), np.diff(cuts))
        blocks, values = (int(one) for one in counted[self.at : self.at + 2])
        return Nodes(cuts, of, self._counts.view(0, (count, MOST)).get().view(np.int32), blocks, values)

    def slice(self) -> None:
        """Sort the nodes of each window, and find what each slice has."""
        runs, groups, warps = self._runs, MOST * self._windows, _LARGE // _WARP
        keys, orders = (empty(2 * runs.rows, np.uint32) for _ in range(2))
        sizes = empty(groups, np.uint32)
        of_nodes = [self._firsts, self._cuts, self._counts]
        shared = 4 * (_DIGITS * (warps + 1) + 2 * _WARP)
        runs.launch("sort_nodes", self._windows, _LARGE, [self._rows, *of_nodes, keys, orders, sizes], shared)
        self._order = orders.view(0, (runs.rows,))
        self._about, self._totals = empty((self._slices, HEAD), np.uint32), empty((3, self._chunks), np.uint64)
        found = [self._about, self._totals, self._found(2, 1)]
        args: list[Any] = [np.uint32(groups), self._lanes, sizes, self._order, self._counts, *found]
        runs.launch("make_slices", self._chunks, _LARGE, args, 40 * _WARP)
        args = [np.uint32(self._chunks), self._totals, self._found(3, 3)]
        runs.launch("add_slices_up", 1, _LARGE, args, 8 * _WARP)

    def place(self, slices: int, arrays: list[DeviceArray]) -> None:
        """Fill the arrays."""
        args: list[Any] = [self._rows, self._lanes, np.uint32(self._per), np.uint32(self._chunks), *self._noded]
        args += [self._cuts, self._counts, self._order, self._about, self._totals, *arrays]
        self._runs.launch("place_slices", slices, _PLACING, args)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
