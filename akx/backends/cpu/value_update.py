"""New values into a layout, by all threads of a plan.

Each entry of the matrix, in CSR order, goes to its slot: ``values[slot[i]] = data[entries[i]]``. Memory movement per
entry: the value read, the slot read, and the entry that it comes from where rows are in another order, and the value
written, somewhere in the chunk or slice of its row, a line of which is first read.

Many values go window by window instead: those of a few chunks, one after another in both orders, are laid out in the
nearest cache and leave it as whole lines past the others, so that no line is read to be written. Of 8-byte values with
4-byte slots 20 bytes an entry move in place of 28, in 0.55 to 0.8 of the time. Full blocks need no slots either: a line
of a chunk is the next entry of as many rows. That is 16 bytes, in 0.6 to 0.7 of the time (brick, shell, tetrahedra).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu import simd
from akx.backends.cpu.jit import jit, jit_inner
from akx.backends.cpu.layout import slots_before
from akx.backends.cpu.thread_sync import array_at, begin, first_part, part_count, then_undone, undone
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.variants import made_by
from akx.formats.base import VECTOR_BYTES, Format, Pattern
from akx.formats.bell import BellFormat

__all__ = ["NewValues", "Places", "put"]

#: Entries below which waking other threads takes longer than the work.
_ALONE = 400_000
#: Bytes of values above which they go window by window, or else lines are asked for before they are written to, so many
#: entries ahead: blocks of shell take 0.8 of the time then, and those that are in a near cache up to 1.2 times as long.
_FAR, _AHEAD = 8 * 1024 * 1024, 128
#: Bytes of a window, and of the mean window above which the nearest cache has no room for it (4 to 12 KiB are alike on
#: 32 KiB, 16 KiB take up to 1.5 times as long).
_WINDOW, _WIDEST = 4 * 1024, 16 * 1024
#: Share of the entries that are in full blocks from which on their places are told without a map.
_WHOLE = 0.75
_BYTES = VECTOR_BYTES


class Places(NamedTuple):
    """Where entries go; `entries` and `slot` are empty where they would be 0, 1, 2, ...

    Window w has entries first[w] .. first[w+1]-1 and slots window[w] .. window[w+1]-1, which are whole lines; without
    windows both are empty.
    Without them lines are asked for `ahead` entries before they are written to, if that is not 0. Where `block` is not
    0, a window is a chunk of nodes of so many rows, `first` has one more entry for each row, and `length` is that of
    the format; else it is empty.
    """

    entries: NDArray[Any]
    slot: NDArray[Any]
    first: NDArray[np.uint64]
    window: NDArray[np.uint64]
    length: NDArray[np.uint32]
    block: int
    ahead: int


class NewValues:
    """Values for one layout, time after time; padding stays as it is.

    `layout`: as made by a ``from_csr``. `pattern`: that is laid out. `entries`: where the layout's entries are in the
    data, if they are not in order. `threads`: most that lay out. `given`: how many values come, all that are laid out
    by default; where `entries` leads to others, more or fewer.
    """

    def __init__(
        self, layout: Format, pattern: Pattern, entries: NDArray[Any] | None, threads: int, given: int | None = None
    ) -> None:
        nothing = _constant(np.zeros(0, dtype=np.uint32))
        maps = [_constant(nothing if one is None else one) for one in (entries, layout.slot)]
        self._values = layout.arrays.values
        ahead = _AHEAD if self._values.nbytes > _FAR else 0
        blocks = _whole_blocks(layout, pattern, entries)
        first, window, length, block = (*_windows(layout, pattern), nothing, 0) if blocks is None else blocks
        self.places = Places(maps[0], maps[1], first, window, length, block, ahead)
        size = self._values.size if layout.slot is None else layout.slot.size
        self._given = size if given is None else given
        if entries is not None and entries.size != size:
            raise ValueError(f"a layout of {size} entries cannot take them from {entries.size} places")
        self._words = np.zeros(2, dtype=np.int64)
        arguments = (self._values, self.places, self._words)
        self._alone, self._together = (Job(_fill, arguments, count, self._values.dtype) for count in (1, threads))

    @property
    def nbytes(self) -> int:
        """Bytes of the windows; the rest is the layout's and the order's."""
        return int(self.places.first.nbytes + self.places.window.nbytes)

    def take(self, data: NDArray[Any]) -> None:
        """Lay `data`, in CSR order, out.

        Raises :class:`ValueError` where the layout is for another number of values, or another dtype.
        """
        values = self._values
        if data.size != self._given or data.dtype != values.dtype:
            wanted = f"{self._given} of {values.dtype}"
            raise ValueError(f"a layout of {wanted} cannot take {data.size} values of {data.dtype}")
        data = np.ascontiguousarray(data)
        self._words[:] = data.__array_interface__["data"][0], data.size
        job = self._together if data.size > _ALONE else self._alone
        job.run(*job.empty)


def _constant(array: NDArray[Any]) -> NDArray[Any]:
    """All that is read comes as arrays that are not written to: one kind of each, and one compilation."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _whole_blocks(
    layout: Format, pattern: Pattern, entries: NDArray[Any] | None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32], int] | None:
    """What :class:`Places` says of chunks of nodes, where they are many and nearly all entries are in full blocks."""
    values = layout.arrays.values
    if not isinstance(layout, BellFormat) or entries is not None:
        return None
    if values.nbytes <= max(_FAR, 0) or values.ctypes.data % _BYTES:
        return None
    block, length = len(layout.arrays.shape), layout.length
    if int(length.sum(dtype=np.int64)) * block < _WHOLE * pattern.nnz:
        return None
    window = layout.arrays.start * np.uint64(layout.stored // max(int(layout.arrays.start[-1]), 1))
    return pattern.indptr.astype(np.uint64), window, _constant(length), block


def _windows(layout: Format, pattern: Pattern) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Entries and slots before each window and at the end; both empty where there are none."""
    none, values = np.zeros(0, dtype=np.uint64), layout.arrays.values
    if made_by(layout).is_symmetric or layout.slot is None:  # values of a few rows do not lie together
        return none, none
    if values.nbytes <= max(_FAR, 0) or values.ctypes.data % _BYTES:
        return none, none
    units = -(-pattern.rows // layout.align)
    each = max(1, _WINDOW * units // values.nbytes)
    rows = np.minimum(np.append(np.arange(0, units, each), units) * layout.align, pattern.rows)
    if values.nbytes > _WIDEST * (rows.size - 1):
        return none, none
    window = slots_before(rows, pattern, layout).astype(np.uint64)
    if (window % np.uint64(_BYTES // values.itemsize)).any():  # nodes end anywhere in a line
        return none, none
    return pattern.indptr[rows].astype(np.uint64), window


@jit_inner
def put(values: Any, data: Any, places: Any, thread: int, threads: int) -> None:
    """values[slot[i]] = data[entries[i]] for this thread's share of i; where a map is empty, i itself."""
    entries, slot = places.entries, places.slot
    if places.block:
        _by_blocks(values, data, places, thread, threads)
        return
    if places.window.size:
        _by_windows(values, data, places, thread, threads)
        return
    count = entries.size if entries.size else data.size
    first, last = np.uintp(count * thread // threads), np.uintp(count * (thread + 1) // threads)
    if slot.size == 0 and entries.size == 0:
        for i in range(first, last):
            values[i] = data[i]
    elif slot.size == 0:
        for i in range(first, last):
            values[i] = data[np.uintp(entries[i])]
    elif entries.size:
        for i in range(first, last):
            values[np.uintp(slot[i])] = data[np.uintp(entries[i])]
    elif places.ahead:
        most = max(last, np.uintp(1)) - np.uintp(1)
        for i in range(first, last):
            simd.prefetch(values, np.uintp(slot[min(i + np.uintp(places.ahead), most)]))
            values[np.uintp(slot[i])] = data[i]
    else:
        for i in range(first, last):
            values[np.uintp(slot[i])] = data[i]


@jit_inner
def _by_windows(values: Any, data: Any, places: Any, thread: int, threads: int) -> None:
    entries, slot, first, window = places.entries, places.slot, places.first, places.window
    lanes, count = np.uintp(_BYTES // values.itemsize), window.size - 1
    begin_window, end_window = count * thread // threads, count * (thread + 1) // threads
    longest = np.uint64(0)
    for w in range(begin_window, end_window):
        longest = max(longest, window[w + 1] - window[w])
    room = np.intp(longest) * values.itemsize
    octets = np.zeros(room + _BYTES, dtype=np.uint8)
    skipped = -octets.ctypes.data % _BYTES
    line = octets[skipped : skipped + room].view(values.dtype)
    for w in range(begin_window, end_window):
        start, stop = np.uintp(window[w]), np.uintp(window[w + 1])
        if entries.size:
            for i in range(np.uintp(first[w]), np.uintp(first[w + 1])):
                line[np.uintp(slot[i]) - start] = data[np.uintp(entries[i])]
        else:
            for i in range(np.uintp(first[w]), np.uintp(first[w + 1])):
                line[np.uintp(slot[i]) - start] = data[i]
        at = np.uintp(0)
        while start + at < stop:
            simd.stream(values, start + at, simd.load(line, at))
            simd.store(line, at, simd.zero(line))  # the next window has its padding elsewhere
            at += lanes
    simd.fence()


@jit_inner
def _by_blocks(values: Any, data: Any, places: Any, thread: int, threads: int) -> None:
    """Line by line: one of a chunk has an entry of each of its nodes, the next of one of their rows.

    While a chunk is done, the data of the next one, which are in order, are asked for.
    """
    slot, first, window, length = places.slot, places.first, places.window, places.length
    lanes, block, rows = np.uintp(_BYTES // values.itemsize), np.uintp(places.block), np.uintp(first.size - 1)
    total, chunks = window[-1], window.size - 1
    begin_chunk = np.searchsorted(window[:chunks], total * np.uint64(thread) // np.uint64(threads))
    end_chunk = np.searchsorted(window[:chunks], total * np.uint64(thread + 1) // np.uint64(threads))
    at = np.zeros(lanes, dtype=np.uint64)
    one, pace, none = np.uintp(1), lanes * block, np.uintp(0)
    for c in range(np.uintp(begin_chunk), np.uintp(end_chunk)):
        node = c * lanes
        steps = (np.uintp(window[c + one]) - np.uintp(window[c])) // pace
        soon = np.uintp(first[min((node + lanes) * block, rows)])
        least = steps
        for lane in range(lanes):
            least = min(least, np.uintp(length[node + lane]))
        for r in range(block):
            for lane in range(lanes):
                at[lane] = first[(node + lane) * block + r] if length[node + lane] else 0
            p = np.uintp(window[c]) + r * lanes
            inside = np.uintp(at.max()) + steps <= np.uintp(data.size)  # what is read behind a row is thrown away
            for step in range(steps):
                simd.prefetch(data, soon)
                soon += lanes
                if step < least:
                    simd.stream(values, p, simd.gather(data, step, at, none))
                elif inside:
                    simd.stream(values, p, simd.up_to(simd.gather(data, step, at, none), length, node, step))
                else:
                    for lane in range(lanes):
                        if step < np.uintp(length[node + lane]):
                            values[p + lane] = data[np.uintp(at[lane]) + step]
                p += pace
        for lane in range(lanes):
            row = (node + lane) * block
            if row < rows and length[node + lane] == 0:
                for q in range(np.uintp(first[row]), np.uintp(first[row + block])):
                    values[np.uintp(slot[q])] = data[q]
    simd.fence()


@jit
def _fill(values: Any, places: Any, words: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool) -> Any:
    """A job of a team (:mod:`akx.backends.cpu.thread_sync`); words: address and number of the new
    values. x, out: not used.
    """
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    number, part = undone(calls, thread, number, first_part(calls, thread))
    while number > 0:
        put(values, array_at(words[0], words[1], values), places, part, part_count(calls))
        number, part = then_undone(calls, thread, number, part)
    return number == 0
