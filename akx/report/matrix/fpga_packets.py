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
(docs/literature.md). One pass over the row lengths schedules. Slots that become free together take their next rows in
the order of the slots.

Source: Zhang, Shalabi, Jain, Nagar, Bakos, FPGA vs. GPU for sparse matrix vector multiply (2009), sections VI and VII.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError
from akx.core.numba_jit import njit

__all__ = ["LEAST_SET", "SLOTS", "PacketSchedule", "schedule_rows"]

#: Slots of a packet, and packets that a row takes at least, of the published design.
SLOTS, LEAST_SET = 5, 8


@dataclass(frozen=True)
class PacketSchedule:
    """Which slot each row goes through, and when.

    Slots of a packet, packets that a row takes at least, packets in all, entries of the matrix; and for each row its
    slot (int32), the packet with its first entry, and the packets that it takes, padding and termination among them
    (int64).
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


def schedule_rows(indptr: NDArray[Any], *, slots: int = SLOTS, least: int = LEAST_SET) -> PacketSchedule:
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
    return PacketSchedule(slots, least, packets, entries, slot, start, length)


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
