"""What `resident` and `ghost` share: parts of the matrix that stay on the multiprocessors, and their program.

Shared memory of a thread block, in bytes, for NB start vectors at a time (w: bytes of a value):

    k (3 w + 4)  +  table  +  chunk (NB w + 2 / bc)  +  16 slices  +  2 nodes bc NB w  +  slots (32 br bc s + 64)

that is: coefficients and active slices, the table of values, results on their way into the order of rows (where they
are staged: an equal share of all), slices, x with its halo twice (not where x is in global memory), and as many slots
of the matrix as then fit; s is bytes of a stored value (:mod:`akx.backends.cuda.value_compression.encodings`).
With a table a slot of one entry is a word: where its value is, and its column, 128 bytes in all. Slots in registers
come on top; what fits neither is read from L2 or memory each step.

Dense blocks are those of nodes of one size where the matrix is made of such. Otherwise the natural nodes
(:mod:`akx.formats.natural_blocks`), or supervariables where rows of a node do not follow one another
(:mod:`akx.formats.supervariables`), are cut into pieces of at most bc rows, where blocks with their padding take fewer
bytes than single entries. Then the rows of each node are listed, and 2 / bc above is 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression.encodings import FULL, TABLE, placed, placed_words
from akx.backends.cuda.value_compression.new_values import not_empty
from akx.backends.cuda.value_compression.program import StoredProgram
from akx.backends.cuda.variants.block_local.exchange import TURNS, ring_of
from akx.backends.cuda.variants.block_local.layout import (
    GLOBAL,
    SHARED,
    LaidOut,
    as_words,
    flag_words,
    slot_bytes,
    staging,
)
from akx.backends.cuda.variants.block_local.shapes import waits_for_values
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.block_local import WARP, Shape
from akx.formats.halo_exchange import published

__all__ = ["KeptShare", "PartsProgram", "load_kernel", "macros", "vector_groups"]

_SOURCE = Path(__file__).with_name("parts.cu")
#: Steps whose results are in the stage at a time: of fewer some would be written again before all have taken them.
_SLABS = 4
#: Of the bytes of L2, those of a call whose matrix is still there for the next one: between 0.83, where that is so, and
#: 0.90, where it is not (one H100, brick and the 27-point grid).
_STAYS = 0.86
#: What a program has of a layout.
_OF_LAYOUT = (
    "_laid_out", "_count", "_form", "_tables", "_columns", "_active", "_flags", "_share", "kernels", "_arrays", "entry",
    "words", "_values", "_places", "_table", "_tabled", "_stored", "_way", "_stage", "_ring", "_given_places",
)  # fmt: skip


def macros(
    shape: Shape,
    dtype: np.dtype[Any],
    vectors: int,
    *,
    mode: int,
    stream: bool,
    blocks: int = 1,
    stored: np.dtype[Any] | None = None,
    staged: bool = False,
    listed: bool = False,
    ringed: bool = False,
    deep: bool = False,
) -> dict[str, int | str]:
    """The macros of the kernel.

    `stored` is the type that values are stored as, their own by default; `staged`: results come through a stage;
    `listed`: so are the rows of nodes; `ringed`: parts wait for values and not for flags; `deep`: not in every step.
    """
    stored = dtype if stored is None else stored
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": "u32" if stored.kind == "u" else C_TYPES[stored.name],
        "AKX_BR": shape.br,
        "AKX_BC": shape.bc,
        "AKX_LANES": shape.lanes,
        "AKX_HELD_SLICES": shape.held_slices,
        "AKX_HELD_SLOTS": shape.held_slots if shape.held_slices else 0,
        "AKX_VECTORS": vectors,
        "AKX_THREADS": WARP * shape.warps,
        "AKX_MODE": mode,
        "AKX_STREAM": int(stream),
        "AKX_BLOCKS": blocks,
        "AKX_STAGED": int(staged),
        "AKX_LISTED": int(listed),
        "AKX_RINGED": int(ringed),
        "AKX_DEEP": int(deep),
    }


def load_kernel(given: dict[str, int | str]) -> Kernel:
    """The kernel that macros ask for."""
    return load(_SOURCE, given, device=cuda_device()).kernel("steps")


@dataclass(frozen=True)
class KeptShare:
    """Of what a program reads, the share that L2 is asked to keep, in sixteenths.

    Of what is read again in each step: as much as the plan says. Where nothing is: all, for the next call, or nothing.
    What L2 is asked to keep and cannot is worse than nothing: results then have to wait for memory (one H100).

    `far`: bytes that are read again in each step. `stored`: bytes of the program.
    """

    plan: Plan
    far: int
    stored: int
    device: CudaDevice

    def of(self, vectors: int) -> np.uint32:
        """For a launch that reads and writes so many bytes of vectors."""
        if self.far:
            return np.uint32(min(16, round(16 * float(self.plan.typed.keep) * 2**20 / self.far)))
        return np.uint32(16 if self.stored + vectors <= _STAYS * self.device.l2_bytes else 0)


class PartsProgram(StoredProgram):
    """A matrix in parts on the GPU.

    `steps`: steps of each pass; more than one pass only without exchange.
    """

    def __init__(
        self,
        matrix: Matrix,
        laid_out: LaidOut,
        plan: Plan,
        steps: tuple[int, ...],
        active: dict[int, NDArray[np.uint32]],
        blocks_per_sm: int,
        planned: str = FULL,
        in_full: Callable[[NDArray[Any]], PartsProgram] | None = None,
    ) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self.steps, self._in_full = steps, in_full
        self._depth = plan.typed.depth
        self._cluster = plan.typed.cluster
        self._laid_out = laid_out
        parts = laid_out.parts
        self._count = int(parts.parts.size)
        self._form: dict[str, Any] = {
            "mode": laid_out.mode,
            "stream": parts.far_slots > 0,
            "blocks": blocks_per_sm,
            "staged": laid_out.chunk > 0,
            "listed": parts.blocked.listed is not None,
            "ringed": laid_out.mode == SHARED and waits_for_values(plan),
        }
        self._form["deep"] = self._form["ringed"] and self._depth > 1
        ring = published(parts) if self._form["ringed"] else None
        table = parts.parts if ring is None else ring.parts
        words = [table, parts.slices, parts.blocked.words(parts.rows), parts.neighbours]
        self._tables = [self.hold(not_empty(as_words(a))) for a in words]
        if isinstance(parts.entry, DeviceArray):  # the program has them, or what has made room
            self.entry = parts.entry
            self._laid_out = replace(laid_out, parts=replace(parts, columns=None, entry=None))
        if laid_out.way == TABLE:  # in one word with what says the value
            self._columns = self.hold(np.zeros(1, np.uint16))
            self.words = None if self.entry is None else parts.columns
        elif self.entry is None or parts.columns.size == 0:
            self._columns = self.hold(np.zeros(1, np.uint16) if parts.columns.size == 0 else parts.columns)
        else:
            self._columns = self.held(parts.columns)
        self._active = {depth: self.hold(table) for depth, table in active.items()}
        self._flags = self.hold(np.zeros(flag_words(self._count, staged=laid_out.chunk > 0), dtype=np.uint32))
        self._stage, self._ring = [self._flags] * 3, [self._flags] * 2  # not looked at
        self._given_places = np.uint32(0 if ring is None else ring.places)
        if ring is not None:
            vectors = laid_out.vectors * (2 if self._depth > 1 else 1)
            if TURNS * vectors * ring.places >= 2**32:
                raise InfeasibleError("what parts publish has more places than 32 bits number")
            of_values = self.held(ring_of(ring.places, vectors, self.dtype))
            self._ring = [self.hold(not_empty(ring.halo)), of_values]
        if laid_out.chunk:
            places = (self.hold(not_empty(array)) for array in staging(parts, laid_out.chunk))
            self._stage = [self.held(empty((_SLABS, laid_out.vectors, self.n), self.dtype)), *places]
        self.store_values(matrix, laid_out.way, planned, self._laid, self._map)
        far = parts.far_slots * slot_bytes(parts.shape, matrix.dtype, laid_out.way)
        self._share = KeptShare(plan, far, self.nbytes - self._places.nbytes, cuda_device())
        self.kernels: dict[int, Kernel] = {}

    def _laid(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Values of the host in their places."""
        if self.entry is None:
            return self._laid_out.values(stored)
        entry = self.entry_of_host()
        if self._way != TABLE:
            return placed(stored, entry)
        return placed_words(stored, entry, (self._values.get() >> 16).astype(np.uint16))

    def _map(self) -> NDArray[np.uint32]:
        """Which entry each place has."""
        found: NDArray[np.uint32] = self._laid_out.parts.entry if self.entry is None else self.entry_of_host()
        return found

    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these and all later values in full, which takes another layout: less of it stays on the chip."""
        assert self._in_full is not None
        other = self._in_full(data)
        for size in self.kernels:
            other.ready(size)
        self.forget_graphs()
        for name in _OF_LAYOUT:
            setattr(self, name, getattr(other, name))
        self._on_host = self._laid
        self._in_full = None  # from here on they stay so

    def groups(self, vectors: int) -> list[tuple[int, int, int]]:
        """(first, last, at a time) of the kernels that so many start vectors take."""
        return vector_groups(vectors, self._laid_out.vectors)

    def ready(self, vectors: int) -> None:
        for _, _, size in self.groups(vectors):
            if size not in self.kernels:
                given = macros(self._laid_out.parts.shape, self.dtype, size, **self._form, stored=self._stored)
                self.kernels[size] = load_kernel(given)

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors = x.shape[0]
        for first, last, size in self.groups(vectors):
            done = 0
            for steps in self.steps:
                depth = self._depth if self._laid_out.mode == SHARED else steps
                sizes = [np.uint32(one) for one in (self.k, vectors, first, last)]
                pass_of: list[Any] = [np.int64(self.n), np.uint32(done), np.uint32(steps), np.uint32(depth)]
                values: list[Any] = [self._values, self._columns, self._table, np.uint32(self._tabled)]
                kept = self._share.of((steps + 2) * (last - first) * self.n * self.dtype.itemsize)
                stage: list[Any] = [*self._stage, np.uint32(self._laid_out.chunk)]
                ring: list[Any] = [*self._ring, np.uint32(self._laid_out.vectors), self._given_places]
                given: list[Any] = [
                    *self._tables,
                    self._active.get(depth, self._flags),
                    *values,
                    coefficients,
                    self._flags,
                ]
                self.kernels[size].launch(
                    self._count,
                    WARP * self._laid_out.parts.shape.warps,
                    [*given, x, out, *sizes, *pass_of, kept, *stage, *ring],
                    shared=self._laid_out.shared,
                    cooperative=self._laid_out.mode in (SHARED, GLOBAL),
                    cluster=self._cluster,
                    stream=self.stream,
                )
                done += steps


def vector_groups(vectors: int, size: int) -> list[tuple[int, int, int]]:
    """(first, last, at a time) of the kernels that so many start vectors take, at most `size` at a time."""
    found, at = [], 0
    while at < vectors:
        while size > vectors - at:
            size //= 2
        stop = at + (vectors - at) // size * size
        found.append((at, stop, size))
        at = stop
    return found
