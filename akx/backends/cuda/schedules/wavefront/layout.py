"""The layout of `wavefront`: blocks of strips as the kernel takes them. See ``wavefront.cuh`` for its words.

What is described here for block b and strip s (of B and S). w: bytes of an entry of vectors; v: of a value as it is
stored (:mod:`akx.backends.cuda.value_compression.encodings`). Strips of a block follow each other, so that at each step
what all strips read is in one place of the memory:

- *rows*: those of both, the longest first; ``32 / lanes`` of them are a slice. A slot of a slice has 32 entries, one
  for each lane; entry e of a row is in slot e // lanes, for lane e % lanes of its row.
- *values*: the first `held_slots` slots of each slice, of all slices of a block one after another ("held"), (B, S,
  slices, held_slots, 32) of them; behind all of these what is left ("near"), packed, (near slots, 32).
- *x*: of each power, in shared memory: `ring` blocks of own rows, ``room = slices * 32 / lanes`` places each, and
  behind all of them `ring` blocks of the halo, `fetched` places each, what rows of the strip read of others; block b is
  the (b % ring)-th of both. `stride` is room + fetched.
- *columns*: offsets in bytes into x of one power, 16 bits each.
- *meta*, (B, S, words): first near slot, number of near slots, at which place of x own rows begin, their number; near
  slots of each slice (first << 16 | number), padded to a multiple of four; rows; where they are in x, in bytes, and in
  the upper 16 bits where they are published, behind `bases` (0xffff where they are not); columns of held slots, two in
  a word.
- *nodes*, (B, S, 4 + stride): first near slot and their number again, two words of nothing, and the rows whose x is in
  these places, own ones and then those of the halo; *halo*, (B, S, fetched): where the latter are published; *readers*,
  (S, most): who reads what strip s publishes.

Shared memory, in bytes: 3 powers w + table + powers ring stride w (each a multiple of 16) + STAGES (4 words +
32 slices held_slots v) + nears near_slots (32 v + 64) + 4 lists (4 + stride) + 4 halos fetched. A block keeps its near
slots for lag (powers - 1) + 1 steps, and `nears` is that, and lag + FLIGHT on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.schedules.wavefront.runs import Runs
from akx.backends.cuda.value_compression.encodings import placed
from akx.partition.wavefront_blocks import Strips

__all__ = [
    "FLIGHT",
    "LEAST_FETCHED",
    "LINE",
    "NONE",
    "RING",
    "STAGES",
    "WARP",
    "Front",
    "Shape",
    "asks_of",
    "lag_of",
    "slices_per_step",
]

WARP = 32
NONE = 0xFFFFFFFF
#: As in ``wavefront.cuh``.
RING, STAGES, LINE = 16, 5, 64
FLIGHT = STAGES - 1
_HEAD = 4
#: Places for what is fetched from others are copied by 16 bytes, and are there without any, too.
LEAST_FETCHED = 4


def lag_of(strips: Strips, slack: int) -> int:
    """Steps from one power of a block to the next."""
    return strips.ahead + 2 + slack


def slices_per_step(powers: int, slices: int, warps: int) -> int:
    """Slices of a warp that have a power in the same step; it has `lag` times as many in registers."""
    return -(-powers * slices // warps)


def asks_of(powers: int, fetched: int, helpers: int) -> int:
    """Values of others that a thread asks for in a step; two warps of the helpers bring other things."""
    return -(-(powers - 1) * fetched // (helpers - 2 * WARP))


@dataclass(frozen=True)
class Shape:
    """Sizes of a layout, and what follows from them.

    `fetched`: places for what is fetched from others, of a block. `near_slots`: near slots of a block, at most. `runs`:
    of diagonals, where no columns are stored; `gaps`: places of x of a block that nothing is in then, less those of own
    rows that are not there.
    """

    strips: Strips
    lanes: int
    slices: int
    held_slots: int
    slack: int
    fetched: int
    near_slots: int
    runs: Runs | None = field(default=None, kw_only=True)
    gaps: int = field(default=0, kw_only=True)

    @property
    def lag(self) -> int:
        """Steps from one power of a block to the next."""
        return lag_of(self.strips, self.slack)

    @property
    def ring(self) -> int:
        """Blocks of x of each power."""
        return max(self.lag, self.strips.ahead + FLIGHT) + self.strips.behind + 1

    @property
    def room(self) -> int:
        """Places of x for own rows of a block."""
        return self.slices * (WARP // self.lanes)

    @property
    def stride(self) -> int:
        """Places of x of a block."""
        if self.runs is None:
            return self.room + self.fetched
        return -(-(self.room + self.fetched + self.gaps + max(self.runs.lengths) - 1) // 16) * 16

    @property
    def guard(self) -> int:
        """Places of x before all blocks that nothing is in."""
        return self.runs.guard if self.runs else 0

    @property
    def words(self) -> int:
        """Words that describe a block of a strip."""
        columns = self.slices * (((self.runs.places if self.runs else self.held_slots) + 1) // 2) * WARP
        return _HEAD + -(-self.slices // 4) * 4 + 2 * self.room + columns

    def in_flight(self, powers: int) -> int:
        """Blocks that are at work at the same time."""
        return self.lag * (powers - 1) + 1

    def slices_per_step(self, powers: int, warps: int) -> int:
        """As the function of that name."""
        return slices_per_step(powers, self.slices, warps)

    @property
    def lists(self) -> int:
        """Blocks of lists of indices of x in shared memory: from where they are asked for to where they are used."""
        return self.lag - self.strips.ahead + FLIGHT + 1

    def halos(self, powers: int) -> int:
        """Blocks of lists of what is fetched from others in shared memory: these are used for every power."""
        return self.lag + 2 * FLIGHT + self.slack + self.lag * max(powers - 2, 0) + 2

    def nears(self, powers: int) -> int:
        """Blocks of near slots in shared memory."""
        return self.in_flight(powers) + self.lag + FLIGHT

    def shared(self, powers: int, itemsize: int, stored: int, table: int) -> int:
        """Bytes of shared memory: entries of vectors and stored values take so many each, a table so many in all.

        Nothing of it is smaller where a layout has more slices, near slots or places for what is fetched.
        """
        places = powers * (self.ring * self.stride + self.guard) + self.guard
        if self.runs:  # v_{p-2} of all that is in registers
            places += powers * self.slices * self.lag * WARP
        vectors = (3 * powers * itemsize, table, places * itemsize)
        stage = 4 * self.words + WARP * self.slices * self.held_slots * stored
        near = self.nears(powers) * self.near_slots * (WARP * stored + (0 if self.runs else 2 * WARP))
        lists = 4 * (self.lists * (self.stride + _HEAD) + self.halos(powers) * self.fetched)
        return int(sum(-(-part // 16) * 16 for part in vectors) + STAGES * stage + near + lists)

    def steps(self, powers: int) -> int:
        """Steps of a pass."""
        lead = -(-(self.lag + 2 * FLIGHT) // self.lag) * self.lag
        return -(-(lead + self.strips.blocks + self.lag * (powers - 1)) // self.lag) * self.lag


@dataclass(frozen=True)
class Front(Shape):
    """A matrix laid out for a front; arrays as in the module.

    `near_columns`: (near slots, 32). `entry` (places,): for each place of values, held and then near ones, one plus the
    entry of A it has, 0 for padding. `published`: values that all strips together publish of one power and block, at
    most.
    """

    meta: NDArray[np.uint32]
    nodes: NDArray[np.uint32]
    halo: NDArray[np.uint32]
    readers: NDArray[np.uint32]
    bases: NDArray[np.uint32]
    near_columns: NDArray[np.uint16]
    entry: NDArray[np.uint32]
    published: int

    def values(self, data: NDArray[Any]) -> NDArray[Any]:
        """The values of all places, from those of the entries in the order of CSR, whatever they are stored as."""
        return placed(data, self.entry)
