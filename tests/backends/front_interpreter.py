"""The kernel of ``wavefront.cuh`` in plain NumPy, on the same arrays and as many bytes of memory: what a layout means.

Strips do a step as the kernel does: what a helper begins to copy is garbage until it has arrived FLIGHT steps later,
what is written is garbage to all who read in the same step, and every slot of a ring of shared memory knows the block
that it has, so that a slot that is overwritten too early, or used too early, is an error. Values of the matrix stay in
memory and registers what they are stored as, and are widened where they are used.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from akx.backends.cuda.schedules.wavefront.layout import FLIGHT, NONE, RING, STAGES, WARP, Front
from akx.backends.schedule import Coefficients

__all__ = ["LOOK", "Pace", "Sizes", "interpret", "shared_bytes", "sizes_of"]

Pace = Literal["together", "apart"]
#: As in ``wavefront.cuh``: steps from one look at the readers to the next, and words before the lists of a block.
LOOK = 4
_HEAD = 4
_UNPUBLISHED = 0xFFFF
_GARBAGE = 0xDEADBEEF


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What the kernel is told, by macros and by ``Sizes``."""

    blocks: int
    strips: int
    lanes: int
    slices: int
    held: int
    lag: int
    reach: int
    slack: int
    ring: int
    stride: int
    halo: int
    published: int
    meta: int
    near_slots: int
    nears: int
    lists: int
    halos: int
    powers: int

    @property
    def room(self) -> int:
        """Places of a block's own rows."""
        return self.slices * (WARP // self.lanes)

    @property
    def ahead(self) -> int:
        return self.lag + FLIGHT

    @property
    def lead(self) -> int:
        return -(-(self.ahead + FLIGHT) // self.lag) * self.lag

    @property
    def steps(self) -> int:
        last = self.blocks - 1 + self.lag * (self.powers - 1)
        return ((last + self.lead) // self.lag + 1) * self.lag


def sizes_of(front: Front, powers: int) -> Sizes:
    strips = front.strips
    return Sizes(
        strips.blocks, strips.parts, front.lanes, front.slices, front.held_slots, front.lag, strips.ahead, front.slack,
        front.ring, front.stride, front.halo.shape[2], front.published, front.meta.shape[2], front.near_slots,
        front.nears(powers), front.lists, front.halos(powers), powers,
    )  # fmt: skip


class _Ring:
    """Slots of shared memory that blocks take in turn: which one has each, and since when."""

    def __init__(self, slots: int, **arrays: Any) -> None:
        self.arrays = {name: np.full((slots, *shape), fill, dtype) for name, (shape, dtype, fill) in arrays.items()}
        self.fill = {name: fill for name, (_, _, fill) in arrays.items()}
        self.block = np.full(slots, -1)
        self.ready = np.zeros(slots, dtype=int)
        self.nbytes = sum(array.nbytes for array in self.arrays.values())

    def begin(self, block: int, step: int, **contents: Any) -> None:
        """Copy to the block's slot; what the slot had is lost now, and what comes is there FLIGHT steps later."""
        slot = block % self.block.size
        self.block[slot], self.ready[slot] = block, step + FLIGHT
        for name, content in contents.items():
            room = self.arrays[name][slot]
            assert content.shape[0] <= room.shape[0], "more than there is room for"
            room[:] = self.fill[name]
            room[: content.shape[0]] = content

    def of(self, block: int, step: int) -> dict[str, Any]:
        slot = block % self.block.size
        assert self.block[slot] == block, f"block {block} was overwritten by {self.block[slot]}"
        assert self.ready[slot] <= step, f"block {block} has not arrived"
        return {name: array[slot] for name, array in self.arrays.items()}


@dataclasses.dataclass
class _Registers:
    """What the warps hold of a block."""

    block: int = -1
    node: Any = None
    at: Any = None
    near: Any = None
    value: Any = None
    column: Any = None
    older: Any = None


class _Global:
    """What all strips see: published words with their tags, and beats."""

    def __init__(self, front: Front, powers: int, dtype: Any) -> None:
        words = max(powers - 1, 1) * RING * front.published
        self.tag = np.zeros(words, dtype=np.int64)
        self.value = np.full(words, np.nan, dtype)
        self.step = np.full(words, -(10**6))
        self.beat = np.zeros(front.strips.parts, dtype=int)
        self.epoch = 1


class _Strip:
    """A thread block, at step `step`."""

    def __init__(
        self, front: Front, size: Sizes, me: int, values: Any, table: Any, coefficients: Coefficients, whole: _Global,
        source: Any, out: Any, first: int, total: int,
    ) -> None:  # fmt: skip
        self.front, self.size, self.me, self.whole, self.out, self.first = front, size, me, whole, out, first
        self.source, self.coefficients, dtype, stored = source, coefficients, whole.value.dtype, values.dtype
        held = size.slices * size.held * WARP
        self.held = values[: size.blocks * size.strips * held].reshape(size.blocks, size.strips, held)
        self.near = values[size.blocks * size.strips * held :].reshape(-1, WARP)
        self.step, self.number = -size.lead, 0
        self.tag0, self.beat0 = whole.epoch * (size.blocks + 1), whole.epoch * total
        self.readers = front.readers[me][front.readers[me] != NONE]
        # Shared memory.
        self.coefficient = np.empty(3 * size.powers, dtype)
        self.table = np.array(table, dtype)
        self.xs = np.full((size.powers, size.ring * size.stride), np.nan, dtype)
        nothing = 0xFFFF if stored == np.uint16 else np.nan
        self.stages = _Ring(STAGES, meta=((size.meta,), np.uint32, _GARBAGE), value=((held,), stored, nothing))
        slots = (size.near_slots, WARP)
        self.nears = _Ring(size.nears, value=(slots, stored, nothing), column=(slots, np.uint16, 0xFFFF))
        self.lists = _Ring(size.lists, words=((_HEAD + size.stride,), np.uint32, _GARBAGE))
        self.halos = _Ring(size.halos, words=((size.halo,), np.uint32, _GARBAGE))
        # Registers: of a class of blocks (`turn`), and of a block of LAG that follow each other.
        self.registers = [[_Registers() for _ in range(size.lag)] for _ in range(size.powers)]
        self.done = [(-size.lead // size.lag - turn) % size.powers for turn in range(size.powers)]
        self.flying: list[tuple[int, Any, Any]] = []  # (step that it has arrived behind, places of x, values)
        self.writes: list[tuple[int, Any, Any]] = []  # (power, places, values), done at the end of the step
        self.published: list[tuple[Any, Any, int]] = []  # (words, values, block), seen at the end of the step

    @property
    def shared(self) -> int:
        rings = self.stages.nbytes + self.nears.nbytes + self.lists.nbytes + self.halos.nbytes
        return sum(-(-part.nbytes // 16) * 16 for part in (self.coefficient, self.table, self.xs)) + rings

    @property
    def ended(self) -> bool:
        return self.number == self.size.steps

    # What numbers of 16 bits stand for.

    def _places(self, offsets: Any) -> Any:
        """Places of x from offsets in bytes."""
        place, rest = np.divmod(np.asarray(offsets).astype(int), self.xs.itemsize)
        assert not rest.any()
        assert np.all(place < self.xs.shape[1])
        return place

    def _halo_places(self, block: int, item: Any) -> Any:
        """Where values of others are in x: behind own rows of all blocks."""
        size = self.size
        return size.ring * size.room + block % size.ring * size.halo + item

    def _widened(self, stored: Any) -> Any:
        """Values as they are computed with."""
        if stored.dtype != np.uint16:
            return stored.astype(self.xs.dtype)
        place, rest = np.divmod(stored.astype(int), self.table.itemsize)
        assert not rest.any()
        return self.table[place]

    # What keeps a step from its end.

    def waits(self) -> bool:
        """Whether something that it asks for is not published, or readers are not through with what it overwrites."""
        for _, block, word, _ in self._asked():
            if not np.all(self.whole.tag[word] == self.tag0 + block):
                return True
        behind = self.number + LOOK + 2 + self.size.slack - RING
        looks = self.number % LOOK == 0 and behind > 0
        return looks and bool(np.any(self.whole.beat[self.readers] < self.beat0 + behind))

    def _asked(self) -> list[tuple[int, int, Any, Any]]:
        """Power, block, words and numbers in the list of what is fetched from others at this step."""
        size, found = self.size, []
        for p in range(size.powers - 1):
            block = self.step - 1 - size.slack - size.lag * p
            if 0 <= block < size.blocks:
                place = self.halos.of(block, self.step)["words"]
                assert np.all((place < size.published) | (place == NONE))
                item = np.flatnonzero(place != NONE)
                word = (p * RING + block % RING) * size.published + place[item].astype(int)
                found.append((p, block, word, item))
        return found

    # A step: what is begun, what is computed, and what is there at its end.

    def run(self, strict: bool) -> None:
        """All of a step but what others and later steps see of it."""
        self._begin_copies()
        fetched = self._fetch(strict)
        live = self._live()
        # Where this step writes is garbage for who reads now.
        for _, p, own in live:
            if p + 1 < self.size.powers:
                self.xs[p + 1, self._places(own.at & 0xFFFF)[own.node != NONE]] = np.nan
        for p, places, _ in fetched:
            self.xs[p, places] = np.nan
        for block, p, own in live:
            self._advance(block, p, own)
        self.writes += fetched
        self._take_all()

    def finish(self) -> None:
        """The barrier: writes are seen, copies have arrived, and what is published can be found."""
        for p, places, values in self.writes:
            self.xs[p, places] = values
        self.writes = []
        for arrives, places, values in self.flying:
            if arrives == self.step:
                self.xs[0, places] = values
        self.flying = [one for one in self.flying if one[0] > self.step]
        for word, value, block in self.published:
            self.whole.tag[word], self.whole.value[word] = self.tag0 + block, value
            self.whole.step[word] = self.step
        self.published = []
        self.whole.beat[self.me] = self.beat0 + self.number + 1
        self.step, self.number = self.step + 1, self.number + 1

    def _begin_copies(self) -> None:
        size, front, step, me = self.size, self.front, self.step, self.me
        block = step + size.ahead + FLIGHT
        if 0 <= block < size.blocks:
            self.lists.begin(block, step, words=front.nodes[block, me])
            self.halos.begin(block, step, words=front.halo[block, me])
        block = step + size.ahead
        if 0 <= block < size.blocks:
            self.stages.begin(block, step, meta=front.meta[block, me], value=self.held[block, me])
            first, number = (int(word) for word in self.lists.of(block, step)["words"][:2])
            near = slice(first, first + number)
            self.nears.begin(block, step, value=self.near[near], column=front.near_columns[near])
        block = step + size.reach + FLIGHT
        if 0 <= block < size.blocks:
            node = self.lists.of(block, step)["words"][_HEAD:]
            item = np.flatnonzero(node != NONE)
            own = block % size.ring * size.room + item
            places = np.where(item < size.room, own, self._halo_places(block, item - size.room))
            self.xs[0, places] = np.nan
            self.flying.append((step + FLIGHT - 1, places, self.source[node[item]]))

    def _fetch(self, strict: bool) -> list[tuple[int, Any, Any]]:
        size, found = self.size, []
        for p, block, word, item in self._asked():
            assert np.all(self.whole.tag[word] == self.tag0 + block), "a published word is not there, or overwritten"
            if strict:
                assert np.all(self.whole.step[word] <= self.step - 1 - size.slack)
            found.append((p + 1, self._halo_places(block, item), self.whole.value[word]))
        return found

    def _live(self) -> list[tuple[int, int, _Registers]]:
        size, r, found = self.size, self.number % self.size.lag, []
        for turn in range(size.powers):
            p = self.done[turn]
            block = self.step - size.lag * p
            if 0 <= block < size.blocks:
                own = self.registers[turn][r]
                assert own.block == block
                found.append((block, p, own))
        assert len({p for _, p, _ in found}) == len(found)
        return found

    def _advance(self, block: int, p: int, own: _Registers) -> None:
        """Power p + 1 of the pass on a block."""
        size, j = self.size, self.first + p
        per, x = WARP // size.lanes, self.xs[p]
        at = self._places(own.at & 0xFFFF)
        mine = x[at]
        total = (self._widened(own.value) * x[self._places(own.column)]).sum(axis=1)  # (slices, 32)
        if size.near_slots:
            memory = self.nears.of(block, self.step)
            for s in range(size.slices):
                first, number = int(own.near[s]) >> 16, int(own.near[s]) & 0xFFFF
                assert first + number <= size.near_slots
                value, column = memory["value"][first:][:number], memory["column"][first:][:number]
                total[s] += (self._widened(value) * x[self._places(column)]).sum(axis=0)
        else:
            assert not own.near.any()
        total = total.reshape(size.slices, size.lanes, per).sum(axis=1)
        a, b, c = (v[j] for v in (self.coefficients.a, self.coefficients.b, self.coefficients.c))
        value = a * total
        if b != 0:
            value = value + b * mine
        if c != 0:
            value = value + c * own.older
        own.older = mine
        there = own.node != NONE
        node = own.node[there]
        if p == 0 and self.first == 0:
            self.out[0, node] = mine[there]
        assert np.isnan(self.out[j + 1, node]).all(), "a row is computed twice"
        self.out[j + 1, node] = value[there]
        if p + 1 < size.powers:
            self.writes.append((p + 1, at[there], value[there]))
            public = there & (own.at >> 16 != _UNPUBLISHED)
            place = int(self.front.bases[self.me]) + (own.at[public] >> 16).astype(int)
            assert np.all(place < size.published)
            self.published.append(((p * RING + block % RING) * size.published + place, value[public], block))

    def _take_all(self) -> None:
        """The next blocks of the registers whose blocks had their last power."""
        size, r = self.size, self.number % self.size.lag
        for turn in range(size.powers):
            ends = self.done[turn] + 1 == size.powers
            if ends and 0 <= self.step + size.lag < size.blocks:
                self._take(self.registers[turn][r], self.step + size.lag)
            if r == size.lag - 1:
                self.done[turn] = 0 if ends else self.done[turn] + 1

    def _take(self, own: _Registers, block: int) -> None:
        size, stage = self.size, self.stages.of(block, self.step)
        per, words = WARP // size.lanes, stage["meta"]
        room, pairs = size.room, (size.held + 1) // 2
        nodes = _HEAD + -(-size.slices // 4) * 4
        columns = words[nodes + 2 * room :].reshape(size.slices, pairs, 1, WARP)
        both = np.concatenate([columns & 0xFFFF, columns >> 16], axis=2).reshape(size.slices, 2 * pairs, WARP)
        own.block = block
        own.near = words[_HEAD:][: size.slices].copy()
        own.node = words[nodes:][:room].reshape(size.slices, per).copy()
        own.at = words[nodes + room :][:room].reshape(size.slices, per).copy()
        own.column = both[:, : size.held].astype(int)
        own.value = stage["value"].reshape(size.slices, size.held, WARP).copy()
        own.older = np.zeros((size.slices, per), self.xs.dtype)
        if self.first > 0 and self.coefficients.c[self.first] != 0:
            there = own.node != NONE
            own.older[there] = self.out[self.first - 1, own.node[there]]


def interpret(
    front: Front,
    values: Any,
    x: Any,
    coefficients: Coefficients,
    passes: tuple[int, ...],
    *,
    table: Any = (),
    pace: Pace = "together",
    **changes: int,
) -> Any:
    """out (k+1, n) as ``wavefront.cuh`` computes it. An AssertionError where the layout or its sizes are wrong.

    Parameters
    ----------
    values : array
        Of all places: of the type of x, of half its bytes, or uint16, offsets in bytes into `table`.
    passes : tuple of int
        Powers of each pass.
    table : array, optional
        Of the type of x.
    pace : {"together", "apart"}
        All strips do a step and then all the next; or each goes on alone until it has to wait for another.
    changes : int
        Other sizes than those of the layout.
    """
    out = np.full((sum(passes) + 1, x.size), np.nan, dtype=x.dtype)
    whole, total, first = _Global(front, max(passes), x.dtype), front.steps(max(passes)) + 1, 0
    for powers in passes:
        size = dataclasses.replace(sizes_of(front, powers), **changes)
        given = (values, table, coefficients, whole, x if first == 0 else out[first], out, first, total)
        strips = [_Strip(front, size, me, *given) for me in range(size.strips)]
        with np.errstate(invalid="ignore"):  # garbage times zero, of rows that are none
            _together(strips) if pace == "together" else _apart(strips)
        whole.epoch += 1
        first += powers
    return out


def shared_bytes(front: Front, values: Any, powers: int, dtype: Any, table: Any = ()) -> int:
    """Bytes of shared memory that a strip has: vectors of `dtype`, values of all places as they are stored."""
    whole, empty = _Global(front, powers, dtype), np.zeros(0, dtype)
    none = Coefficients(empty, empty, empty)
    return _Strip(front, sizes_of(front, powers), 0, values, table, none, whole, empty, empty, 0, 0).shared


def _together(strips: list[_Strip]) -> None:
    for _ in range(strips[0].size.steps):
        for strip in strips:
            assert not strip.waits()
            strip.run(strict=True)
        for strip in strips:
            strip.finish()


def _apart(strips: list[_Strip]) -> None:
    while not all(strip.ended for strip in strips):
        before = sum(strip.number for strip in strips)
        for strip in strips:
            while not strip.ended and not strip.waits():
                strip.run(strict=False)
                strip.finish()
        assert sum(strip.number for strip in strips) > before, "all strips wait for each other"
