"""`sweep` on the GPU for graphs: entries dealt evenly to warps, the entries of x that most rows read in shared memory.

In a graph with hubs a few columns have most of the entries: of an R-MAT graph of 524,288 vertices and 8 million edges
16,384 columns have 69 %. An entry of x that may be anywhere takes a multiprocessor some two cycles, from L2; in shared
memory it is there in a fraction of one. So a thread block for each multiprocessor brings the hubs' entries of x, then
takes its share of the entries of A, the same for every warp whatever the rows are. See ``hubs.cuh`` for the kernel.

Slots of chunk c, 256 of them in the order of the rows: slot 8 l + u is at place 256 c + 32 u + l. An empty row has one
slot; it and the slots behind the last row have value 0 and read the first hub. Bytes per entry: w + 4 + 1/4 / fill, w
those of a stored value (:mod:`akx.backends.cuda.value_compression.encodings`).

Traffic per call and start vector: k times the matrix unless it fits the L2 cache, k times x read and y written.
Flops: 2 nnz k. Start vectors come one after another.

Sources: the most read part of x in fast memory is of Yang, Parthasarathy, Sadayappan, "Fast sparse matrix-vector
multiplication on GPUs: implications for graph mining" (VLDB 2011), which has one pass for each part of x; sums over
entries dealt evenly are the segmented sums of Blelloch, Heroux, Zagha (CMU-CS-93-173, 1993).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.matrix import features
from akx.backends.cuda.matrix.transpose import counted
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.row_lengths import measured_rows, starts_of_rows
from akx.backends.cuda.value_compression.encodings import way_of
from akx.backends.cuda.variants.options import ROOMS
from akx.backends.cuda.variants.slots import pattern_there
from akx.backends.cuda.variants.swept import SweptProgram, how_data_comes, stored_name
from akx.backends.pattern_cache import fact, per_pattern
from akx.core.matrix import Matrix
from akx.core.numba_jit import njit
from akx.core.options import CudaSweep
from akx.core.plan import Plan

__all__ = [
    "CHUNK",
    "HUBS",
    "ROOM",
    "THREADS",
    "HubsProgram",
    "LaidOut",
    "hub_count",
    "lay_out",
    "lay_out_there",
    "macros",
    "reason_against",
    "share",
    "slots_of",
    "usual_room",
    "worthwhile",
]

#: The variant.
HUBS = "hubs"
#: KiB of shared memory for entries of x by default.
ROOM = CudaSweep.hubs
#: Slots of a chunk, and threads of a block: 1024 leave too few registers.
CHUNK, THREADS = 256, 768
_WARP = 32
#: Bit of a column that is the number of a hub; a row or hub that there is not.
_HUB, _NOWHERE = np.uint32(0x80000000), np.uint32(0xFFFFFFFF)
#: Share of the entries that hubs must have, and times that x must be larger than they, to be worth it.
_LEAST_SHARE, _LEAST_REST = 0.2, 2.0
_BLOCK = 256


@dataclass(frozen=True)
class LaidOut:
    """A pattern in chunks.

    `hubs` (H,): columns whose entries of x are in shared memory. `column` (chunks * 256,): columns, or numbers of hubs
    with the highest bit. `entry` (chunks * 256,): one plus the CSR entry in each place, 0 for padding. `mark` (chunks *
    32,): of each lane a bit for each of its slots where a row begins; in the upper half how many begin in lanes before.
    `row_before` (chunks,): the row of the slot before the first of each chunk, 2**32 - 1 for none. `split`, `begin`,
    `end` (splits,): the rows with which runs end, the run where each begins and the one where it ends.
    """

    hubs: NDArray[np.uint32]
    column: Any
    entry: Any
    mark: Any
    row_before: Any
    split: NDArray[np.uint32]
    begin: NDArray[np.uint32]
    end: NDArray[np.uint32]


def hub_count(matrix: Matrix, room: int) -> int:
    """Entries of x that `room` KiB hold."""
    return min(room * 1024 // matrix.dtype.itemsize, matrix.n)


def share(matrix: Matrix, room: int) -> float:
    """Share of the entries that the hubs have; a fact of the pattern."""
    count = hub_count(matrix, room)

    def found() -> float:
        there = matrix.on_device
        if there is not None:
            return features.largest_counts(counted(there.column, matrix.n), matrix.nnz, count) / max(matrix.nnz, 1)
        counts = _counts(matrix)
        most = np.partition(counts, counts.size - count)[counts.size - count :]
        return float(most.sum()) / max(matrix.nnz, 1)

    return fact(matrix, ("akx.backends.cuda.variants.hot_columns", "share", count), found)


def slots_of(matrix: Matrix) -> int:
    """Slots stored, padding included, whole chunks; a fact of the pattern."""

    def found() -> int:
        rows = measured_rows(matrix)
        used = int(np.maximum(np.diff(matrix.indptr.astype(np.int64)), 1).sum()) if rows is None else rows.padded[1]
        return -(-used // CHUNK) * CHUNK

    return int(fact(matrix, ("akx.backends.cuda.variants.hot_columns", "slots"), found))


def reason_against(matrix: Matrix, room: int, device: CudaDevice) -> str | None:
    """Why the variant is not possible with `room` KiB of hubs."""
    if matrix.n >= 2**31 or slots_of(matrix) >= 2**32 - 1:
        return "more rows than 31 bits number, or more entries than 32 bits"
    if room * 1024 > device.shared_per_block:
        return f"{room} KiB for hubs, of {device.shared_per_block // 1024} of shared memory"
    return None


def usual_room(device: CudaDevice) -> int:
    """KiB of hubs by default: what a search tries first; 0 where there is no room for any."""
    return max((room for room in ROOMS if room <= ROOM and room * 1024 <= device.shared_per_block), default=0)


def worthwhile(matrix: Matrix, device: CudaDevice) -> bool:
    """Whether some entries of a long x are read much more often than others."""
    room = usual_room(device)
    if room == 0 or reason_against(matrix, room, device) is not None:
        return False
    if matrix.n * matrix.dtype.itemsize < _LEAST_REST * 1024 * room:
        return False
    return share(matrix, room) >= max(_LEAST_SHARE, 2.0 * hub_count(matrix, room) / matrix.n)


def lay_out(matrix: Matrix, room: int, runs: int) -> LaidOut:
    """The matrix's pattern with `room` KiB of hubs, for so many runs."""
    hubs, known_as = _hubs(_counts(matrix), hub_count(matrix, room))
    start = np.zeros(matrix.n + 1, dtype=np.int64)
    np.cumsum(np.maximum(np.diff(matrix.indptr.astype(np.int64)), 1), out=start[1:])
    slots = slots_of(matrix)
    chunks = slots // CHUNK
    column, entry = np.full(slots, _HUB, dtype=np.uint32), np.zeros(slots, dtype=np.uint32)
    starts = np.zeros(chunks * _WARP, dtype=np.uint8)
    _fill(matrix.indptr, matrix.indices, known_as, start, column, entry, starts)
    begun = np.bitwise_count(starts).reshape(chunks, _WARP).astype(np.int64)
    before = np.cumsum(begun, axis=1) - begun
    row_before = np.cumsum(begun.sum(axis=1)) - begun.sum(axis=1) - 1
    mark = (starts.reshape(chunks, _WARP) | before << 8).astype(np.uint16).reshape(-1)
    return LaidOut(hubs, column, entry, mark, row_before.astype(np.uint32), *_splits(start, chunks, runs))


def lay_out_there(matrix: Matrix, room: int, runs: int) -> LaidOut:
    """The same on the device; the host chooses the hubs, and reads the first slot of each row."""
    pointer, index = pattern_there(matrix)
    counts = counted(index, matrix.n).get().astype(np.int64)
    hubs, known_as = _hubs(counts, hub_count(matrix, room))
    start, used = starts_of_rows(pointer, 1)
    chunks = -(-used // CHUNK)
    slots = CHUNK * chunks
    column, entry, bits = empty(slots, np.uint32), empty(slots, np.uint32), zeros(chunks * _WARP, np.uint8)
    last = slots - CHUNK  # behind the last row
    column.view(last, (CHUNK,)).set(np.full(CHUNK, _HUB, dtype=np.uint32))
    entry.view(last, (CHUNK,)).fill_bytes(0)
    mark, row_before = empty(chunks * _WARP, np.uint16), empty(chunks, np.uint32)
    rows = np.uint32(matrix.n)
    kernels = load(_LAYOUT, {}, device=cuda_device())
    arguments: list[Any] = [rows, pointer, index, start, to_device(known_as), column, entry, bits]
    kernels.kernel("lay_chunked_rows").launch(-(-matrix.n * _WARP // _BLOCK), _BLOCK, arguments)
    arguments = [np.uint32(chunks), rows, start, bits, mark, row_before]
    kernels.kernel("mark_chunks").launch(-(-chunks * _WARP // _BLOCK), _BLOCK, arguments)
    return LaidOut(hubs, column, entry, mark, row_before, *_splits(start.get().astype(np.int64), chunks, runs))


def _hubs(counts: NDArray[np.int64], count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The columns with most entries, and what each column is called."""
    hubs, known_as = _most_read(counts, count), np.arange(counts.size, dtype=np.uint32)
    known_as[hubs] = _HUB + np.arange(count, dtype=np.uint32)
    return hubs, known_as


def _splits(start: NDArray[np.int64], chunks: int, runs: int) -> tuple[NDArray[np.uint32], ...]:
    """The rows with which runs end, the run where each begins and the one where it ends."""
    cuts = chunks * np.arange(runs + 1, dtype=np.int64) // runs * CHUNK
    ends = np.unique(cuts[1:])
    split = np.unique(np.minimum(np.searchsorted(start, ends[ends > 0], side="left") - 1, start.size - 2))
    # What is behind the last row lies in its last chunk, and so in its last run.
    first_run, last_run = (np.searchsorted(cuts, at, side="right") - 1 for at in (start[split], start[split + 1] - 1))
    return split.astype(np.uint32), first_run.astype(np.uint32), last_run.astype(np.uint32)


def macros(plan: Plan, dtype: np.dtype[Any], stored: np.dtype[Any]) -> dict[str, int | str]:
    """The macros of the plan's kernels."""
    types = {"AKX_VALUE": C_TYPES[dtype.name], "AKX_STORED": stored_name(stored)}
    return {**types, "AKX_THREADS": THREADS, "AKX_ONCE": how_data_comes(plan)}


class HubsProgram(SweptProgram):
    """A matrix in chunks on the device, laid out there; `by_host`: by the host, which takes less of its memory."""

    def __init__(self, matrix: Matrix, plan: Plan, device: CudaDevice, planned: str, *, by_host: bool = False) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._plan, self._device = plan, device
        runs = device.sms * (THREADS // _WARP)
        found = (lay_out if by_host else lay_out_there)(matrix, plan.typed.hubs, runs)
        self._chunks, self._splits = found.row_before.size, found.split.size
        # Padded, so that they come 16 bytes at a time.
        self._hubs = -(-found.hubs.size // 4) * 4
        self._hub = self.held(empty(self._hubs, self.dtype))
        self._shares = [self.held(empty(runs, self.dtype)) for _ in range(2)]
        placing = self.hold if by_host else self.held
        self._column, self._mark, self._row_before = map(placing, (found.column, found.mark, found.row_before))
        row = np.zeros(self._hubs, dtype=np.uint32)
        row[: found.hubs.size] = found.hubs
        self._row = self.hold(row)
        number = np.full(matrix.n, _NOWHERE, dtype=np.uint32)
        number[found.hubs] = np.arange(found.hubs.size, dtype=np.uint32)
        self._split = [self.hold(array) for array in (found.split, found.begin, found.end, number[found.split])]
        self._later = self.hold(np.where(np.isin(row, found.split), _NOWHERE, row))
        self.entry = found.entry  # on the host it is all that stays of the layout
        self.store_values(matrix, way_of(plan), planned)

    def kernels_of(self, stored: np.dtype[Any], vectors: int) -> dict[str, Kernel]:
        module = load(_SOURCE, macros(self._plan, self.dtype, stored), device=self._device)
        return {name: module.kernel(name) for name in ("step", "join", "gather")}

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        n, vectors, none = self.n, x.shape[0], np.uint64(0)
        kernels = self.kernels[vectors]
        hubs, size, kept = np.uint32(self._hubs), vectors * n, self.kept(self._column)
        for v in range(vectors):

            def power(j: int, v: int = v) -> DeviceArray:
                return out.view(j * size + v * n, (n,))

            own = x.view(v * n, (n,))
            self._launch_over(self._hubs, kernels["gather"], [hubs, self._row, own, self._hub])
            for j in range(self.k):
                before: Any = power(j - 1) if j > 1 else x.view(v * n, (n,)) if j else none
                first: Any = power(0) if j == 0 and x.pointer != out.pointer else none
                vectors_of = [own, before, power(j + 1), first, coefficients.view(3 * j, (3,))]
                matrix = [np.uint32(self._chunks), hubs, self._column, self._values, self._table]
                shared = self._hubs * self.dtype.itemsize
                arguments = [*matrix, self._mark, self._row_before, self._hub, *self._shares, *vectors_of, kept]
                kernels["step"].launch(
                    self._device.sms, THREADS, arguments, shared=shared, early=self.is_early, stream=self.stream
                )
                more = j + 1 < self.k  # hubs of the next step
                lists = [np.uint32(self._splits), hubs if more else np.uint32(0), *self._split, self._later]
                count = self._splits + (self._hubs if more else 0)
                arguments = [*lists, *self._shares, *vectors_of, self._hub]
                self._launch_over(count, kernels["join"], arguments, early=self.is_early)
                own = power(j + 1)

    def _launch_over(self, count: int, kernel: Kernel, arguments: list[Any], *, early: bool = False) -> None:
        kernel.launch(-(-count // _BLOCK), _BLOCK, arguments, early=early, stream=self.stream)


_SOURCE, _LAYOUT = Path(__file__).with_name("hubs.cu"), Path(__file__).with_name("hubs_layout.cu")


def _most_read(counts: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    """The columns with most entries, ascending; among equals the first."""
    least = np.partition(counts, counts.size - count)[counts.size - count]
    taken = counts > least
    taken[np.flatnonzero(counts == least)[: count - int(np.count_nonzero(taken))]] = True
    return np.flatnonzero(taken).astype(np.uint32)


@per_pattern
def _counts(matrix: Matrix) -> NDArray[np.int64]:
    """Entries of each column."""
    there = matrix.on_device
    found = np.bincount(matrix.indices, minlength=matrix.n) if there is None else counted(there.column, matrix.n).get()
    return found.astype(np.int64)


@njit(nogil=True, cache=True)
def _fill(indptr: Any, indices: Any, known_as: Any, start: Any, column: Any, entry: Any, starts: Any) -> None:
    for i in range(start.size - 1):
        begin, stop = np.int64(indptr[i]), np.int64(indptr[i + 1])
        for slot in range(start[i], start[i + 1]):
            chunk, lane, u = slot >> 8, (slot & 255) >> 3, slot & 7
            p = begin + slot - start[i]
            if p < stop:
                at = (chunk << 8) + 32 * u + lane
                column[at] = known_as[indices[p]]
                entry[at] = p + 1
            if slot == start[i]:
                starts[(chunk << 5) + lane] |= np.uint8(1 << u)
