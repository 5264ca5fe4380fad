"""The packets of an FPGA: rows of a matrix scheduled on parallel accumulators, as Zhang et al. do it.

A packet is what the memory gives in one cycle, and has a few *slots*, each with a value, a column and an accumulator of
its own (five slots of 64 + 16 bits in 400 bits there). All entries of a row go through one slot, one packet after
another. Slots begin with rows 0, 1, 2, ...; where a row ends, a *termination* says so, whose value is zero and whose
column is the number of the row that comes next in that slot: the first that no slot has yet. An accumulator with a
pipeline of three stages can tell one sum from the next only where a row takes it eight packets or more, so a shorter
one is *padded* with zeros, and so is a slot whose rows are done while others still have some. For a row of len
entries::

    set of a row    = max(len + 1, least)            packets, the termination among them
    utilisation     = entries / (packets x slots)
    Gflop/s         = 2 utilisation x slots x clock / 1e9

That the termination is one of the eight is one way to read the text, and the one that the published utilisations allow:
beside eight, dw8192 would have 0.566 instead of 0.637; for nothing, olafu would have more than its 0.984
(docs/literature.md). One pass over the row lengths schedules, one over the slots writes the packets. Slots that become
free together take their next rows in the order of the slots. There is no column for the last termination of a slot in
the paper; here it is the number of rows.

Source: Zhang, Shalabi, Jain, Nagar, Bakos, FPGA vs. GPU for sparse matrix vector multiply (2009), sections VI and VII.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError
from akx.core.numba_jit import njit

__all__ = ["LEAST_SET", "PADDING", "SLOTS", "TERMINATION", "Packets", "Schedule", "pack", "schedule"]

#: Slots of a packet, and packets that a row takes at least, of the published design.
SLOTS, LEAST_SET = 5, 8
#: Bits of a value with its column there.
SLOT_BITS = 64 + 16
#: What a slot holds where it holds no entry.
PADDING, TERMINATION = -1, -2


@dataclass(frozen=True)
class Schedule:
    """Which slot each row goes through, and when.

    Attributes
    ----------
    slots : int
        Slots of a packet.
    least : int
        Packets that a row takes at least.
    packets : int
        Packets in all.
    entries : int
        Entries of the matrix.
    slot : (rows,) array of int32
        The slot of each row.
    start : (rows,) array of int64
        The packet with its first entry.
    length : (rows,) array of int64
        Packets that it takes, padding and termination among them.
    """

    slots: int
    least: int
    packets: int
    entries: int
    slot: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @property
    def utilisation(self) -> float:
        """Entries of the matrix over places in the packets; 0 without packets."""
        return self.entries / (self.packets * self.slots) if self.packets else 0.0

    def gflops(self, clock: float) -> float:
        """Gflop/s at a `clock` in Hz: two flops for each entry, a packet a cycle."""
        return 2.0 * self.utilisation * self.slots * clock / 1e9

    def bandwidth(self, clock: float, bits: int = SLOT_BITS) -> float:
        """Bytes a second that the memory must give at a `clock` in Hz, with so many `bits` a slot."""
        return self.slots * bits / 8.0 * clock


@dataclass(frozen=True)
class Packets:
    """The packets themselves.

    Attributes
    ----------
    schedule : Schedule
        Of the rows.
    entry : (packets, slots) array of int64
        The entry, counted as CSR has it, or `PADDING` or `TERMINATION`.
    row : (packets, slots) array of int64
        The row that a place belongs to; -1 where the slot has run out of rows.
    column : (packets, slots) array of int64
        What goes with the value: the column of an entry, the next row of a termination, 0 of padding.
    """

    schedule: Schedule
    entry: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    def values(self, data: NDArray[Any]) -> NDArray[Any]:
        """The (packets, slots) values that go with the columns; 0 where there is no entry."""
        found = np.zeros(self.entry.shape, dtype=data.dtype)
        held = self.entry >= 0
        found[held] = data[self.entry[held]]
        return found

    def multiply(self, data: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        """A x as the accumulators do it: packet after packet, from values, columns and terminations alone.

        Parameters
        ----------
        data : (nnz,) array
            The values, as CSR has them.
        x : (n,) array
            The vector.

        Returns
        -------
        (n,) array
        """
        y = np.zeros(self.schedule.slot.size, dtype=np.result_type(data, x))
        _accumulate(self.values(data), self.column, self.entry == TERMINATION, x, y)
        return y


def schedule(indptr: NDArray[Any], *, slots: int = SLOTS, least: int = LEAST_SET) -> Schedule:
    """Hand the rows to the slots as these become free.

    Parameters
    ----------
    indptr : (n+1,) array of integers
        Row pointers of CSR.
    slots : int
        Slots of a packet, at least 1.
    least : int
        Packets that a row takes at least, at least 1.

    Raises
    ------
    ArgumentError
        Where `slots` or `least` is less than 1.
    """
    for name, value in (("slots", slots), ("least", least)):
        if value < 1:
            raise ArgumentError(
                f"{name} of a packet schedule is out of range",
                expected="an integer >= 1",
                found=str(value),
                hint=f"the published design has slots={SLOTS}, least={LEAST_SET}",
            )
    length = np.maximum(np.diff(indptr).astype(np.int64) + 1, least)
    slot, start = np.zeros(length.size, dtype=np.int32), np.zeros(length.size, dtype=np.int64)
    packets = int(_hand_out(length, slots, slot, start))
    entries = int(indptr[-1]) - int(indptr[0])
    return Schedule(slots, least, packets, entries, slot, start, length)


def pack(indptr: NDArray[Any], indices: NDArray[Any], *, slots: int = SLOTS, least: int = LEAST_SET) -> Packets:
    """Schedule the rows and write the packets; arguments and errors as in :func:`schedule`.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of integers
        CSR pattern.
    """
    made = schedule(indptr, slots=slots, least=least)
    shape = (made.packets, slots)
    entry = np.full(shape, PADDING, dtype=np.int64)
    row = np.full(shape, -1, dtype=np.int64)
    column = np.zeros(shape, dtype=np.int64)
    _write(indptr, indices, made.slot, made.start, made.length, entry, row, column)
    return Packets(made, entry, row, column)


@njit(nogil=True, cache=True)
def _hand_out(length: Any, slots: Any, slot: Any, start: Any) -> Any:
    """Each row to the slot that is free first, the first of these; give the packets in all."""
    free = np.zeros(slots, np.int64)
    for i in range(length.size):
        first = 0
        for s in range(1, slots):
            if free[s] < free[first]:
                first = s
        slot[i] = first
        start[i] = free[first]
        free[first] += length[i]
    return free.max()


@njit(nogil=True, cache=True)
def _write(indptr: Any, indices: Any, slot: Any, start: Any, length: Any, entry: Any, row: Any, column: Any) -> None:
    n = slot.size
    following = np.full(entry.shape[1], n, np.int64)  # from the last row on, the row after it in each slot
    for i in range(n - 1, -1, -1):
        s, at, end = slot[i], start[i], start[i] + length[i] - 1
        row[at : end + 1, s] = i
        for p in range(indptr[i], indptr[i + 1]):
            entry[at, s] = p
            column[at, s] = indices[p]
            at += 1
        entry[end, s] = TERMINATION
        column[end, s] = following[s]
        following[s] = i


@njit(nogil=True, cache=True)
def _accumulate(values: Any, column: Any, ends: Any, x: Any, y: Any) -> None:
    packets, slots = values.shape
    for s in range(slots):
        row, total = s, y.dtype.type(0)
        for t in range(packets):
            if ends[t, s]:
                y[row] = total
                row, total = column[t, s], y.dtype.type(0)
            elif row < y.size:
                total += values[t, s] * x[column[t, s]]
